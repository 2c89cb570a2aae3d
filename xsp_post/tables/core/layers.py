"""Tree → core tables: ``layers``, one row per layer and iteration."""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.arrays.texts import categorical
from xsp_post.model.results import empty_table
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.tables.core.columns import on_one_gpu
from xsp_post.tree.pieces import in_pieces

_TEXTS = ("layer_path", "layer_name", "layer_type")
_SOURCES = pd.Index(["host", "busy", "projection"], dtype=object)


def layers_frame(tree: Tree) -> pd.DataFrame:
    """One row per layer and iteration (schemas: layers). Host time comes from the layer's ranges, device time
    from the kernels counted for it, however they were attributed."""
    keys = tree.layer_keys
    key_count = len(keys)
    if not key_count:
        return empty_table("layers")
    nodes, activities = tree.nodes, in_pieces(tree.activities, tree.pieces)
    rows = np.flatnonzero(nodes["layer_key"].to_numpy() >= 0)
    chosen = np.flatnonzero(activities["layer_key"].to_numpy() >= 0)
    places = _Places(tree)
    groups, of_node, of_activity = _numbered(
        places.layers(nodes, rows, key_count), places.layers(activities, chosen, key_count)
    )
    count = len(groups)
    place, key = groups // key_count, groups % key_count
    is_self = keys["is_self"].to_numpy()[key]
    first_node = keys["node_id"].to_numpy(np.int64)[key]
    first_node[of_node[::-1]] = rows[::-1]  # written backwards, the first stays
    begun, ended = (nodes[column].to_numpy()[rows] for column in ("projected_start_ns", "projected_end_ns"))
    projected = np.where(is_self, 0, sums_per_node(of_node, np.where(begun >= 0, ended - begun, 0), count))
    frame = pd.DataFrame(
        {
            "iteration_index": places.iteration(place),
            "process_id": places.process_id(place),
            "layer_index": key + 1,
            "node_id": first_node,
            **{name: categorical(key, keys[name].to_numpy(object)) for name in _TEXTS},
            "call_index": keys["call_index"].to_numpy()[key],
            "call_count": np.bincount(of_node, minlength=count).astype(np.int64),
            "shape_text": _shapes(tree, first_node, is_self),
            "duration_ns": sums_per_node(of_node, _host_times(nodes, rows, is_self[of_node]), count),
            "projection_ns": projected,
            **_device_amounts(activities, chosen, of_activity, count),
        },
        copy=False,
    )
    busy, elsewhere = _busy(nodes, activities, (rows, chosen), (of_node, of_activity), is_self)
    frame["busy_ns"] = on_one_gpu(busy, of_activity, activities["gpu_index"].to_numpy()[chosen])
    device = np.where(projected > 0, projected + elsewhere, busy)
    has_device = device > 0
    frame["latency_ns"] = np.where(has_device, device, frame["duration_ns"].to_numpy())
    frame["latency_source"] = pd.Categorical.from_codes(np.where(projected > 0, 2, has_device), _SOURCES)
    _add_attributes(tree, frame, rows, of_node)
    frame["is_inferred"] = nodes["is_inferred"].to_numpy()[frame["node_id"].to_numpy()]
    return frame


# What holds a number per range or device operation is made in functions of its own: nothing of it outlives them.


def _host_times(nodes: pd.DataFrame, rows: np.ndarray, is_self: np.ndarray) -> np.ndarray:
    """What each range takes on the host; of one that stands for the work between layers, what is its own."""
    duration = nodes["end_ns"].to_numpy()[rows]
    duration -= nodes["start_ns"].to_numpy()[rows]
    duration[is_self] = nodes["self_ns"].to_numpy()[rows[is_self]]
    return duration


def _device_amounts(
    activities: pd.DataFrame, chosen: np.ndarray, layer: np.ndarray, count: int
) -> dict[str, np.ndarray]:
    length = activities["end_ns"].to_numpy()[chosen]
    length -= activities["start_ns"].to_numpy()[chosen]
    kind = activities["kind"].to_numpy()[chosen]
    kernels, graphs = np.flatnonzero(kind == ActivityKind.KERNEL), np.flatnonzero(kind == ActivityKind.GRAPH)
    counted = activities["is_counted"].to_numpy()[chosen[kernels]] if "is_counted" in activities else None
    copies = np.flatnonzero((kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET))
    return {
        "device_ns": sums_per_node(layer, length, count),
        "kernel_ns": sums_per_node(layer[kernels], length[kernels], count),
        "copy_ns": sums_per_node(layer[copies], length[copies], count),
        "graph_ns": sums_per_node(layer[graphs], length[graphs], count),
        "kernel_count": np.bincount(layer[kernels], counted, count).astype(np.int64),
        "memory_bytes": sums_per_node(layer[copies], activities["bytes"].to_numpy()[chosen[copies]], count),
    }


_Pair = tuple[np.ndarray, np.ndarray]  # of ranges, of device operations


def _busy(
    nodes: pd.DataFrame, activities: pd.DataFrame, rows: _Pair, layer: _Pair, is_self: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Busy time of each layer, and the part of it outside the projections of its ranges: what overlaps them is in them
    already."""
    start, end = activities["start_ns"].to_numpy()[rows[1]], activities["end_ns"].to_numpy()[rows[1]]
    busy = grouped_union_length(layer[1], start, end, len(is_self))
    elsewhere = np.flatnonzero(~_is_projected(nodes, activities, rows[1]))
    if not len(elsewhere):
        return busy, np.zeros(len(busy), np.int64)
    work = layer[1][elsewhere], start[elsewhere], end[elsewhere]
    has_work = np.zeros(len(busy), bool)
    has_work[work[0]] = True
    has_work[is_self] = False
    ranges = np.flatnonzero(has_work[layer[0]])
    first, last = (nodes[f"projected_{side}_ns"].to_numpy()[rows[0][ranges]] for side in ("start", "end"))
    projections = tuple(of[first >= 0] for of in (layer[0][ranges], first, last))

    def covered(*parts: tuple[np.ndarray, ...]) -> np.ndarray:
        of, start, end = (np.concatenate(columns) for columns in zip(*parts))
        return grouped_union_length(of, start, end, len(busy))

    return busy, covered(projections, work) - covered(projections)


def _is_projected(nodes: pd.DataFrame, activities: pd.DataFrame, chosen: np.ndarray) -> np.ndarray:
    """Whether the projection of its layer's own ranges holds an activity: it was launched inside them, by whatever
    rule it got the layer (inferred layers hold theirs, too), and is not an opaque graph. bool per ``chosen`` one."""
    launch_node = activities["launch_node_id"].to_numpy()[chosen]
    layer = activities["layer_node_id"].to_numpy()[chosen]
    inside = (launch_node > 0) & (nodes["layer_node_id"].to_numpy()[launch_node] == layer)
    return inside & (activities["kind"].to_numpy()[chosen] != ActivityKind.GRAPH)


class _Places:
    """Where a layer ran: in which iteration, or, outside all of them, in which rank."""

    def __init__(self, tree: Tree) -> None:
        self._ranks = tree.ranks["process_index"].to_numpy()
        self._rank_of_process = np.zeros(len(tree.trace.processes) + 1, np.int64)
        self._rank_of_process[self._ranks] = np.arange(len(self._ranks))
        of_iteration = tree.iterations["process_index"].to_numpy()
        self._outside = max(len(self._ranks), 1)
        # without a process of its own, an iteration is of the only one there is
        process = np.concatenate([self._ranks if len(self._ranks) else [-1], of_iteration]).astype(np.int64)
        self._process_id = np.append(tree.trace.processes["process_id"].to_numpy(np.int64), -1)[process]

    def layers(self, frame: pd.DataFrame, rows: np.ndarray, key_count: int) -> np.ndarray:
        """A number per row for its layer in its place: the place times ``key_count``, and the layer's key."""
        number = frame["iteration_index"].to_numpy()[rows].astype(np.int64)
        number += self._outside
        outside = np.flatnonzero(number < self._outside)
        number[outside] = self._rank_of_process[frame["process_index"].to_numpy()[rows[outside]]]
        number *= key_count
        number += frame["layer_key"].to_numpy()[rows]
        return number

    def iteration(self, place: np.ndarray) -> np.ndarray:
        return np.maximum(place - self._outside, -1)

    def process_id(self, place: np.ndarray) -> np.ndarray:
        return self._process_id[place]


def _numbered(*groups: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different values of all arrays, ascending, and each array as positions among them."""
    width = max(int(values.max(initial=-1)) for values in groups) + 1
    if width > 8 * sum(map(len, groups)) + 1024:
        present = distinct(np.concatenate(groups))
        return present, *(np.searchsorted(present, values) for values in groups)
    is_there = np.zeros(width, bool)
    for values in groups:
        is_there[values] = True
    position = np.cumsum(is_there, dtype=np.int32 if width < 1 << 31 else np.int64) - 1
    return np.flatnonzero(is_there), *(position[values] for values in groups)


def _shapes(tree: Tree, first_node: np.ndarray, is_self: np.ndarray) -> pd.Categorical:
    """The shape that the layer had in this iteration: with dynamic shapes it is another one in the next."""
    shapes: np.ndarray = np.where(is_self, "", tree.names.node_text("shape_text", first_node))
    return pd.Categorical(shapes)


def _add_attributes(tree: Tree, frame: pd.DataFrame, rows: np.ndarray, of_node: np.ndarray) -> None:
    """What the collector recorded about a layer beside its times (columns added in place)."""
    attributes = tree.trace.attributes
    count = len(frame)
    frame["allocated_bytes"] = np.full(count, -1, np.int64)
    frame["analytic_flop"] = np.full(count, np.nan)
    frame["analytic_bytes"] = np.full(count, np.nan)
    if not len(attributes):
        return
    span = rows - 1
    known = (span >= 0) & (span < len(tree.trace.spans))
    recorded = {"allocated_bytes": "allocated_bytes", "analytic_flop": "flop_count", "analytic_bytes": "least_bytes"}
    for column, source in recorded.items():
        if source in attributes:
            values = attributes[source].reindex(span[known]).to_numpy(float)
            use = values >= 0  # −1 and NaN: not said
            summed = np.bincount(of_node[known][use], weights=values[use], minlength=count)
            seen = np.bincount(of_node[known][use], minlength=count) > 0
            target = frame[column].to_numpy(float)
            frame[column] = np.where(seen, summed, target).astype(np.int64 if column == "allocated_bytes" else float)
    shape = None
    if "shape_text" in attributes:
        shape = attributes["shape_text"].astype(object).reindex(span[known]).fillna("").to_numpy(object)
    if shape is not None and (shape != "").any():
        best = np.full(count, "", object)
        filled = shape != ""
        best[of_node[known][filled]] = shape[filled]
        current = frame["shape_text"].astype(object).to_numpy()
        frame["shape_text"] = pd.Categorical(np.where(best != "", best, current))
