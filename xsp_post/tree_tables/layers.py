"""Tree → core tables: ``layers``, one row per layer and iteration."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.model.results import empty_table
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.tree_tables.columns import on_one_gpu


def layers_frame(tree: Tree) -> pd.DataFrame:
    """One row per layer and iteration (schemas: layers). Host time comes from the layer's ranges, device time
    from the kernels counted for it, however they were attributed."""
    keys = tree.layer_keys
    key_count = len(keys)
    if not key_count:
        return empty_table("layers")
    nodes, activities = tree.nodes, tree.activities
    rows = np.flatnonzero(nodes["layer_key"].to_numpy() >= 0)
    chosen = np.flatnonzero(activities["layer_key"].to_numpy() >= 0)
    places = _Places(tree)
    node_group = places.of(nodes, rows) * key_count + nodes["layer_key"].to_numpy()[rows]
    activity_group = places.of(activities, chosen) * key_count + activities["layer_key"].to_numpy()[chosen]
    groups, of_node, of_activity = _numbered(node_group, activity_group)
    count = len(groups)
    place, key = groups // key_count, groups % key_count
    iteration = places.iteration(place)
    is_self = keys["is_self"].to_numpy()[key]

    duration = np.where(
        keys["is_self"].to_numpy()[nodes["layer_key"].to_numpy()[rows]],
        nodes["self_ns"].to_numpy()[rows],
        (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[rows],
    )
    first, last = nodes["projected_start_ns"].to_numpy()[rows], nodes["projected_end_ns"].to_numpy()[rows]
    projection = np.where(first >= 0, last - first, 0)
    first_node = np.full(count, np.iinfo(np.int64).max)
    first_node[of_node[::-1]] = rows[::-1]  # written backwards, the first stays
    first_node[first_node == np.iinfo(np.int64).max] = keys["node_id"].to_numpy()[
        key[first_node == np.iinfo(np.int64).max]
    ]

    start, end = activities["start_ns"].to_numpy()[chosen], activities["end_ns"].to_numpy()[chosen]
    length = end - start
    kind = activities["kind"].to_numpy()[chosen]
    is_kernel = kind == ActivityKind.KERNEL
    is_memory = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    is_graph = kind == ActivityKind.GRAPH
    is_ascending = bool((start[1:] >= start[:-1]).all())
    by_start = slice(None) if is_ascending else np.argsort(start, kind="stable")
    elsewhere = np.arange(len(start))[by_start][~_is_projected(nodes, activities, chosen)[by_start]]
    busy = grouped_union_length(of_activity[by_start], start[by_start], end[by_start], count)
    has_work = np.flatnonzero((first >= 0) & ~is_self[of_node])
    busy_elsewhere = _outside(
        (of_node[has_work], first[has_work], last[has_work]),
        (of_activity[elsewhere], start[elsewhere], end[elsewhere]),
        count,
    )

    frame = pd.DataFrame(
        {
            "iteration_index": iteration,
            "process_id": places.process_id(place),
            "layer_index": key + 1,
            "node_id": first_node,
            "layer_path": pd.Categorical.from_codes(*_codes(keys["layer_path"], key)),
            "layer_name": pd.Categorical.from_codes(*_codes(keys["layer_name"], key)),
            "layer_type": pd.Categorical.from_codes(*_codes(keys["layer_type"], key)),
            "call_index": keys["call_index"].to_numpy()[key],
            "call_count": np.bincount(of_node, minlength=count).astype(np.int64),
            "shape_text": _shapes(tree, first_node, is_self),
            "duration_ns": sums_per_node(of_node, duration, count),
            "projection_ns": np.where(is_self, 0, sums_per_node(of_node, projection, count)),
            "device_ns": sums_per_node(of_activity, length, count),
            "kernel_ns": sums_per_node(of_activity[is_kernel], length[is_kernel], count),
            "copy_ns": sums_per_node(of_activity[is_memory], length[is_memory], count),
            "graph_ns": sums_per_node(of_activity[is_graph], length[is_graph], count),
            "busy_ns": on_one_gpu(busy, of_activity, activities["gpu_index"].to_numpy(np.int64)[chosen]),
            "kernel_count": np.bincount(of_activity[is_kernel], minlength=count).astype(np.int64),
            "memory_bytes": sums_per_node(
                of_activity[is_memory], activities["bytes"].to_numpy()[chosen][is_memory], count
            ),
        }
    )
    projected = frame["projection_ns"].to_numpy()
    device = np.where(projected > 0, projected + busy_elsewhere, busy)
    has_device = device > 0
    frame["latency_ns"] = np.where(has_device, device, frame["duration_ns"].to_numpy())
    frame["latency_source"] = np.where(projected > 0, "projection", np.where(has_device, "busy", "host"))
    _add_attributes(tree, frame, rows, of_node)
    frame["is_inferred"] = nodes["is_inferred"].to_numpy()[frame["node_id"].to_numpy()]
    return frame


_Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]  # row of the table, start, end


def _outside(projections: _Intervals, work: _Intervals, count: int) -> np.ndarray:
    """Time that ``work`` adds to the ``projections`` of the same row: what overlaps them is in them already. Shape
    (count,)."""
    if not len(work[0]):
        return np.zeros(count, np.int64)

    def covered(*parts: _Intervals) -> np.ndarray:
        row, start, end = (np.concatenate(columns) for columns in zip(*parts))
        order = np.argsort(start, kind="stable")
        return grouped_union_length(row[order], start[order], end[order], count)

    return covered(projections, work) - covered(projections)


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

    def of(self, frame: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
        iteration = frame["iteration_index"].to_numpy()[rows].astype(np.int64)
        rank = self._rank_of_process[frame["process_index"].to_numpy()[rows]]
        return np.where(iteration >= 0, iteration + self._outside, rank)

    def iteration(self, place: np.ndarray) -> np.ndarray:
        return np.maximum(place - self._outside, -1)

    def process_id(self, place: np.ndarray) -> np.ndarray:
        return self._process_id[place]


def _numbered(*groups: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different values of all arrays, ascending, and each array as positions among them."""
    width = max(int(values.max(initial=-1)) for values in groups) + 1
    if width > 8 * sum(map(len, groups)) + 1024:
        present = np.unique(np.concatenate(groups))
        return present, *(np.searchsorted(present, values) for values in groups)
    is_there = np.zeros(width, bool)
    for values in groups:
        is_there[values] = True
    position = np.cumsum(is_there) - 1
    return np.flatnonzero(is_there), *(position[values] for values in groups)


def _shapes(tree: Tree, first_node: np.ndarray, is_self: np.ndarray) -> pd.Categorical:
    """The shape that the layer had in this iteration: with dynamic shapes it is another one in the next."""
    texts = tree.names.node_category("shape_text").take(first_node)
    shapes: np.ndarray = np.where(is_self, "", np.asarray(texts, object))
    return pd.Categorical(shapes)


def _codes(values: pd.Series, key: np.ndarray) -> tuple[np.ndarray, pd.Index]:
    codes, categories = pd.factorize(values.to_numpy(object))
    return codes[key], pd.Index(categories, dtype=object)


def _add_attributes(tree: Tree, frame: pd.DataFrame, rows: np.ndarray, of_node: np.ndarray) -> None:
    """What the collector recorded about a layer beside its times (columns added in place)."""
    attributes = tree.trace.attributes
    count = len(frame)
    frame["allocated_bytes"] = np.full(count, -1, np.int64)
    frame["analytic_flop"] = np.full(count, np.nan)
    frame["analytic_bytes"] = np.full(count, np.nan)
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
    if shape is not None and len(shape):
        best = np.full(count, "", object)
        filled = shape != ""
        best[of_node[known][filled]] = shape[filled]
        current = frame["shape_text"].astype(object).to_numpy()
        frame["shape_text"] = pd.Categorical(np.where(best != "", best, current))
