"""Rows of a part of a capture → the part as a `Tree` again, so that the steps that sum up a capture sum it up too.

Works on a store as on a capture: nothing but tables is read.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.model.levels import Level
from xsp_post.model.results import side_by_side
from xsp_post.model.trace import COPY_DIRECTIONS, ActivityKind
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind, Tree
from xsp_post.replay.idle import Idle
from xsp_post.replay.windows import LAUNCH_SHAPE
from xsp_post.tables.core.captures import amounts_of_capture
from xsp_post.tables.core.idle import CAUSES
from xsp_post.tables.core.kernels import MEMORY_KINDS
from xsp_post.tree.amounts import roll_up
from xsp_post.tree.pieces import PIECES, in_pieces
from xsp_post.tree.ranks import gpu_of_activities, paths_per_rank, rank_frame

if TYPE_CHECKING:
    from xsp_post.tables.part import Part

# Layers of these kinds of nodes say how their work was found to be theirs.
_WAYS_OF_KINDS = {"inferred": "inferred", "twin": "twin", "hook_pair": "hook_pair", "annotated": "annotation",
                  "provenance": "provenance"}  # fmt: skip
_OWN_AMOUNTS = (
    "self_ns", "projected_start_ns", "projected_end_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns",
    "kernel_count", "self_kernel_ns", "self_kernel_count", "memory_bytes",
)  # fmt: skip


def tree_of_part(
    cut: "Part", rows: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame, iterations: pd.DataFrame,
    idle: pd.DataFrame, short: pd.DataFrame, shares: pd.DataFrame,
) -> Tree:  # fmt: skip
    """The part as a tree; a node is the row of ``rows`` with its number."""
    length = idle["end_ns"] - idle["start_ns"]
    idle = idle.assign(idle_ns=length, piece_count=1, longest_ns=length)
    idle = side_by_side([idle, _shared_out(cut, short)])
    position = pd.Series(np.arange(len(rows)), index=rows["node_id"].to_numpy())
    processes = pd.Index(pd.concat([frame["process_id"] for frame in (rows, kernels, copies)]).unique())
    processes = processes[processes >= 0]
    folded, texts = pd.factorize(rows["folded_name"].astype(object))
    start = rows["start_ns"].clip(cut.low, cut.high).to_numpy()
    nodes = pd.DataFrame({
        "parent_id": _found(position, rows["parent_id"]), "depth": rows["depth"].to_numpy(np.int64),
        "folded_id": folded.astype(np.int64), "level": _codes(rows["level"], Level).astype(np.int8),
        "kind": _codes(rows["span_kind"], NodeKind),
        "start_ns": start, "end_ns": np.maximum(rows["end_ns"].clip(cut.low, cut.high).to_numpy(), start),
        "thread_index": _threads(rows), "process_index": processes.get_indexer(pd.Index(rows["process_id"])),
        "is_inferred": rows["is_inferred"].to_numpy(bool), "confidence_ratio": rows["confidence_ratio"].to_numpy(float),
        "layer_key": rows["layer_index"].to_numpy(np.int64) - (rows["layer_index"].to_numpy() > 0),
    })  # fmt: skip
    activities, names = _activities(rows, kernels, copies)
    activities["process_index"] = processes.get_indexer(pd.Index(activities["process_id"]))
    numbers = pd.Series(np.arange(len(iterations)), index=iterations["iteration_index"].to_numpy())
    activities["iteration_index"] = _found(numbers, activities["iteration_index"])
    for column in ("node_id", "launch_node_id", "layer_node_id"):
        activities[column] = _found(position, activities[column])
    devices = cut.whole("devices")
    devices = devices.assign(process_index=processes.get_indexer(pd.Index(devices["process_id"])))
    devices = devices[devices["process_index"] >= 0].drop(columns=["capture_id"]).reset_index(drop=True)
    rank = devices.drop_duplicates("process_index").set_index("process_index")["rank"]
    known = rank.reindex(range(len(processes))).fillna(-1).astype("int64").to_numpy()
    # of unlike names: processes without a rank in the whole get none here
    own = pd.DataFrame({"process_id": processes.to_numpy(), "rank": known, "name": processes.astype(str)})
    shared = cut.whole("captures").get("run_process", pd.Series([""])).iloc[0]  # older stores say none
    trace: Any = SimpleNamespace(
        devices=devices, processes=own, activities=activities,
        provenance=SimpleNamespace(run_process=str(shared or "")),
        gpu_samples=lambda: cut.frame("gpu_timeline").drop(columns=["capture_id"]),
    )  # fmt: skip
    activities["gpu_index"] = gpu_of_activities(trace)
    ranks = rank_frame(trace, activities["gpu_index"].to_numpy())
    nodes["path_id"] = paths_per_rank(nodes, ranks)
    own = iterations.assign(process_index=processes.get_indexer(pd.Index(iterations["process_id"])))
    used = pd.concat([rows["layer_index"], idle["layer_index"]])
    kernel_id = activities["kernel_id"].to_numpy()
    is_kernel = kernel_id >= 0  # copies have none
    at = pd.Index(kernel_id[is_kernel]).get_indexer(pd.Index(shares["kernel_id"]))
    pieces = shares.assign(
        activity=np.append(np.flatnonzero(is_kernel), -1)[at], node_id=_found(position, shares["node_id"])
    )
    pieces = pieces[pieces["node_id"] >= 0][list(PIECES)]
    tree = Tree(trace, roll_up(nodes, in_pieces(activities, pieces)), activities, names, own, _layer_paths(cut, used),
                names=SimpleNamespace(folded_names=list(texts)), ranks=ranks)  # fmt: skip
    tree.idle = _idle(cut, tree, rows, idle, position, numbers)
    return tree


def nodes_of_part(rows: pd.DataFrame, tree: Tree) -> pd.DataFrame:
    amounts = {column: tree.nodes[column].to_numpy() for column in _OWN_AMOUNTS}
    amounts["busy_ns"] = np.where(tree.nodes["gpu_count"].to_numpy() > 1, np.nan, amounts["busy_ns"])
    return rows.assign(path_id=tree.nodes["path_id"].to_numpy(), **amounts)


def captures_of_part(cut: "Part", tree: Tree) -> pd.DataFrame:
    """The row of ``captures`` with the amounts of the part; what the whole file held is unknown of it."""
    unknown: dict[str, Any] = {"file_operation_count": -1, "execution_evidence": "", "layer_evidence": ""}
    return cut.whole("captures").assign(**amounts_of_capture(tree), **unknown)


def _found(positions: pd.Series, wanted: pd.Series) -> np.ndarray:
    """Where each number stands, −1 for one that is not there."""
    return positions.index.get_indexer(pd.Index(wanted))


def _codes(values: pd.Series, members: Any) -> np.ndarray:
    """Texts of a column → numbers of an enumeration whose names they are; of other texts −1."""
    texts = pd.Categorical(values)
    names = pd.Index([member.name.lower() for member in members])
    number = np.append([int(member) for member in members], -1)
    of_text = number[names.get_indexer(texts.categories.astype(object).str.lower())]
    return np.append(of_text, -1)[texts.codes]


def _threads(rows: pd.DataFrame) -> np.ndarray:
    """A number for each thread of each process, −1 for nodes of none."""
    number = rows.groupby(["process_id", "thread_id"], sort=False).ngroup().to_numpy(np.int64)
    return np.where(rows["thread_id"].to_numpy() < 0, -1, number)


def _layer_paths(cut: "Part", used: pd.Series) -> pd.DataFrame:
    """layer_path by layer key (layer_index − 1), of the layers ``used`` at least."""
    columns = ["layer_index", "layer_path"]
    layers = cut.frame("layers", columns)
    if not used[used > 0].isin(layers["layer_index"]).all():
        layers = cut.whole("layers", columns)
    known = layers[layers["layer_index"] > 0].drop_duplicates("layer_index").set_index("layer_index")["layer_path"]
    most = int(known.index.max()) if len(known) else 0
    return known.astype(object).reindex(range(1, most + 1)).fillna("").to_frame().reset_index(drop=True)


def _activities(rows: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Device work by start, places still by the tables' own ids; and the texts of its names."""
    if "layer_node_id" not in copies:  # a store of an older version
        nodes = rows.set_index("node_id")
        layer = nodes["layer_node_id"].reindex(copies["node_id"]).to_numpy()
        way = nodes["span_kind"].astype(object).reindex(layer).map(_WAYS_OF_KINDS).fillna("nesting").to_numpy()
        way = np.where(layer < 0, "none", way)
        copies = copies.assign(layer_node_id=layer, layer_attribution=way)
    kernels = kernels.assign(kind="kernel", bytes=0, direction="", memory_kind="")
    both = side_by_side([kernels, copies]).sort_values("start_ns", kind="stable", ignore_index=True)
    names, texts = pd.factorize(both["name"].astype(object))
    said = both["source_line"].astype(object).fillna("").to_numpy()
    lines, line_texts = pd.factorize(said)
    attribution = _codes(both["attribution"], Attribution)
    layer_way = _codes(both["layer_attribution"], LayerAttribution)
    frame = pd.DataFrame({
        "kind": _codes(both["kind"], ActivityKind), "node_id": both["node_id"],
        "launch_node_id": np.where(attribution == int(Attribution.NO_LAUNCH), -1, both["node_id"]),
        "layer_node_id": both["layer_node_id"], "attribution": attribution,
        "layer_attribution": np.where(layer_way < 0, int(LayerAttribution.NONE), layer_way),
        "source_text_id": np.where(said != "", len(texts) + lines, -1),
        "name_id": names.astype(np.int64), "kernel_id": both["kernel_id"].to_numpy(),
        "copy_kind": np.maximum(pd.Index(COPY_DIRECTIONS).get_indexer(pd.Index(both["direction"].astype(object))), 0),
        "memory_kind": np.maximum(MEMORY_KINDS.get_indexer(pd.Index(both["memory_kind"].astype(object))), 0),
    } | {
        column: both[column].to_numpy(np.int64)
        for column in ("start_ns", "end_ns", "process_id", "device_id", "stream_id", "iteration_index", "bytes")
    } | {column: both[column].fillna(0).to_numpy(np.int64) for column in LAUNCH_SHAPE if column in both})  # fmt: skip
    return frame, np.asarray([*texts, *line_texts], object)


def _idle(
    cut: "Part", tree: Tree, nodes: pd.DataFrame, rows: pd.DataFrame, position: pd.Series, iterations: pd.Series
) -> Idle:
    """The pieces of idle time of the devices that have work in the part."""
    numbers = distinct(tree.activities["gpu_index"].to_numpy())
    rows = rows[np.isin(rows["device_id"].to_numpy(), numbers)]
    texts = pd.concat([rows["call_name"].astype(object), rows["detail"].astype(object)])
    codes, strings = pd.factorize(texts.where(texts != ""))
    layers = nodes["layer_index"].where(nodes["layer_index"] > 0).drop_duplicates().dropna()
    holder = pd.Series(layers.index, index=layers.to_numpy(np.int64))  # any node of the layer
    # what came before the device's first work of its execution or after its last was told apart in the whole
    of_gpu = tree.activities.groupby("gpu_index")
    first = of_gpu["start_ns"].min().reindex(rows["device_id"]).to_numpy(float)
    last = of_gpu["end_ns"].max().reindex(rows["device_id"]).to_numpy(float)
    leads, trails = _leads_and_trails(cut)
    place = _found(holder, rows["layer_index"])
    pieces = pd.DataFrame({
        "device": np.searchsorted(numbers, rows["device_id"].to_numpy()), "start_ns": rows["start_ns"].to_numpy(),
        "end_ns": rows["end_ns"].to_numpy(), "cause": CAUSES.get_indexer(pd.Index(rows["cause"].astype(object))),
        "call_id": codes[: len(rows)], "detail_id": codes[len(rows):],
        "node_id": _found(position, rows["node_id"]),
        "layer_node_id": np.append(holder.to_numpy(np.int64), -1)[place],
        "iteration_index": _found(iterations, rows["iteration_index"]),
        "previous_activity": np.where(rows["start_ns"].to_numpy() < first, leads, 0),
        "next_activity": np.where(rows["end_ns"].to_numpy() > last, trails, 0),
        **{name: rows[name].to_numpy() for name in ("idle_ns", "piece_count", "longest_ns")},
    })  # fmt: skip
    return Idle(pieces, pd.DataFrame({"device_id": numbers}), np.asarray(strings, object))


def _shared_out(cut: "Part", sums: pd.DataFrame) -> pd.DataFrame:
    """Sums of short pieces: where the part cuts one, what its share of the time would hold."""
    start, end = sums["start_ns"].clip(lower=cut.low), sums["end_ns"].clip(upper=cut.high)
    ratio = ((end - start) / (sums["end_ns"] - sums["start_ns"])).to_numpy()
    count = np.maximum(np.rint(sums["piece_count"].to_numpy() * ratio), 1).astype(np.int64)
    shared = np.rint(sums["idle_ns"].to_numpy() * ratio).astype(np.int64)
    return sums.assign(start_ns=start, end_ns=end, idle_ns=shared, piece_count=count)


def _leads_and_trails(cut: "Part") -> tuple[int, int]:
    """−1 where the part begins the recording's device work, so that what came before is its lead-in; and where it ends
    it, so that what comes after is its lead-out."""
    devices = cut.whole("devices", ["first_start_ns", "last_end_ns"])
    devices = devices[devices["last_end_ns"].to_numpy() >= 0]
    begins = not len(devices) or bool(devices["first_start_ns"].min() >= cut.low)
    ends = not len(devices) or bool(devices["last_end_ns"].max() <= cut.high)
    return -begins, -ends
