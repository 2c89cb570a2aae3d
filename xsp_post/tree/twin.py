"""Trace → Tree, step "layers from a twin": ranges of another capture of the same program, carried over by launches.

The launches of both captures are aligned by kernel name and shape (`arrays.alignment`); each aligned launch gets the
ranges that its twin had. A graph's replay has no ranges of its own, but the capture of the graph has: there the rows
of the launch calls carry the kernels' names. What does not align keeps its place and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.alignment import align
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths, nest
from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding, finding
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind, Tree
from xsp_post.tree.expert_products import expert_arguments
from xsp_post.tree.insertion import with_new_nodes
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.operator_blocks import inside_of

_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
# Aligned by name and shape, less than this share of the launches: shapes may differ (another batch), names decide.
_GOOD_SHARE = 0.9
_NEW = {"iteration_index": -1, "series_index": -1, "block_index": 0, "block_count": 0, "equal_class": -1,
        "matched_block_index": 0, "iteration_class": "", "kind": "twin", "confidence": 1.0}  # fmt: skip


@dataclass(frozen=True)
class Twin:
    """What is carried over from a capture.

    nodes     the ranges that launched something, and those around them: parent (row, −1 top), level, name,
              folded_name, layer_type, arguments (what an operator was given, '' unknown)
    launches  in launch order per process: process_index, node (row of ``nodes``, −1 outside all), name (kernel,
              object), arguments ('' or what `expert_products` says) and, where recorded, grid_x … block_z (0 unknown)
    """

    source_name: str
    nodes: pd.DataFrame
    launches: pd.DataFrame


def twin_of(tree: Tree) -> Twin:
    """The ranges and launches of a finished tree, to be carried over to another capture of the same program."""
    launches = pd.concat([_executed(tree), _recorded_in_graphs(tree)], ignore_index=True)
    launches = launches.sort_values(["process_index", "at_ns", "start_ns"], kind="stable", ignore_index=True)
    parent, depth = tree.nodes["parent_id"].to_numpy(), tree.nodes["depth"].to_numpy()
    owned = np.bincount(launches["node"].to_numpy(), minlength=len(parent)) > 0
    kind = tree.nodes["kind"].to_numpy()
    is_range = ~np.isin(kind, (NodeKind.ROOT, NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH, NodeKind.GRAPH))
    used = rollup.holds(owned, parent) & is_range
    rows = np.flatnonzero(used)
    rows = rows[np.argsort(depth[rows], kind="stable")]
    number = np.full(len(parent) + 1, -1, np.int64)  # the last: no parent
    number[rows] = np.arange(len(rows))
    nearest = _nearest_used(parent, used)
    names = tree.nodes["name_id"].to_numpy()[rows]
    nodes = pd.DataFrame({
        "parent": number[nearest[parent[rows]]],
        "level": tree.nodes["level"].to_numpy()[rows],
        "name": np.where(names >= 0, tree.strings[np.maximum(names, 0)], "[unnamed]"),
        "folded_name": tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[rows]],
        "layer_type": tree.names.node_text("layer_type", rows),
        "arguments": _arguments(tree.trace, rows),
    })  # fmt: skip
    launch_id = launches.pop("launch_id").to_numpy(np.int64)
    launches["arguments"] = expert_arguments(tree.trace, launch_id, launches["name"].to_numpy(object))
    launches["node"] = number[nearest[launches["node"].to_numpy()]]
    return Twin(tree.trace.provenance.source_name, nodes, launches.drop(columns=["at_ns", "start_ns"]))


def _arguments(trace: Trace, nodes: np.ndarray) -> np.ndarray:
    """What the operators of some nodes were given, '' for all that is not a recorded operator."""
    result = np.full(len(nodes), "", object)
    if "arguments_id" in trace.attributes:
        said = np.append(trace.attributes["arguments_id"].to_numpy(np.int64), -1)
        found = said[np.where((nodes > 0) & (nodes < len(said)), nodes - 1, -1)]  # span k is node k + 1
        result[found >= 0] = trace.strings[found[found >= 0]]
    return result


def _nearest_used(parent: np.ndarray, used: np.ndarray) -> np.ndarray:
    """The nearest used node at or above each node, −1 none."""
    return np.append(forest_of(parent).nearest(used), -1)


def _executed(tree: Tree) -> pd.DataFrame:
    """Kernels with a launch, by the time of the launch."""
    kernels = tree.activities[_can_align(tree.activities)]
    at = tree.trace.launches["start_ns"].to_numpy()
    frame = pd.DataFrame({
        "process_index": kernels["process_index"].to_numpy(),
        "at_ns": at[kernels["launch_id"].to_numpy()] if len(kernels) else np.zeros(0, np.int64),
        "start_ns": kernels["start_ns"].to_numpy(),
        "node": kernels["node_id"].to_numpy(),
        "launch_id": kernels["launch_id"].to_numpy(),
        "name": tree.strings[kernels["name_id"].to_numpy()],
    })  # fmt: skip
    return frame.assign(**{column: kernels[column].to_numpy() for column in _SHAPE if column in kernels})


def _recorded_in_graphs(tree: Tree) -> pd.DataFrame:
    """Launch calls that name their kernel and that no execution belongs to: they were recorded into a graph."""
    launches = tree.trace.launches
    if "kernel_name_id" not in launches:
        return pd.DataFrame()
    ran = np.zeros(len(launches), bool)
    launched = tree.activities["launch_id"].to_numpy()
    ran[launched[launched >= 0]] = True
    rows = np.flatnonzero(~ran & (launches["kernel_name_id"].to_numpy() >= 0))
    if not len(rows):
        return pd.DataFrame()
    chosen = launches.iloc[rows]
    spans = tree.trace.spans
    usable = np.flatnonzero(~spans["is_cross_thread"].to_numpy())
    columns = [spans[name].to_numpy()[usable].astype(np.int64) for name in ("thread_index", "start_ns", "end_ns")]
    wanted = (chosen[name].to_numpy().astype(np.int64) for name in ("thread_index", "start_ns", "end_ns"))
    found = nest(*columns).innermost(*wanted)
    frame = pd.DataFrame({
        "process_index": chosen["process_index"].to_numpy(),
        "at_ns": chosen["start_ns"].to_numpy(),
        "start_ns": chosen["start_ns"].to_numpy(),
        "node": np.where(found >= 0, usable[np.maximum(found, 0)] + 1, 0),  # span k is node k + 1
        "launch_id": rows,
        "name": tree.strings[chosen["kernel_name_id"].to_numpy()],
    })  # fmt: skip
    return frame.assign(**{column: chosen[column].to_numpy() for column in _SHAPE if column in chosen})


def _can_align(activities: pd.DataFrame) -> np.ndarray:
    return (activities["kind"].to_numpy() == int(ActivityKind.KERNEL)) & (activities["launch_id"].to_numpy() >= 0)


def carry_over(
    trace: Trace,
    names: NodeNames,
    nodes: pd.DataFrame,
    activities: pd.DataFrame,
    strings: Strings,
    twin: Twin,
) -> tuple[pd.DataFrame, pd.DataFrame, Strings, pd.DataFrame, list[Finding]]:
    """Ranges of a twin for the kernels that no layer of the capture itself holds.

    Returns nodes, activities and strings of the tree, what is known of the new nodes (`tree.INFERRED_COLUMNS`) and
    findings. The new nodes hang below the innermost range that the capture has around the launch, they are marked
    inferred and of kind ``TWIN``; a model range of the twin is left out where the capture has one itself.
    """
    is_open = _can_align(activities) & ~_in_layer(nodes)[activities["node_id"].to_numpy()]
    rows = np.flatnonzero(is_open)
    at = trace.launches["start_ns"].to_numpy()[activities["launch_id"].to_numpy()[rows]]
    process = activities["process_index"].to_numpy()[rows]
    rows = rows[np.lexsort((activities["start_ns"].to_numpy()[rows], at, process))]
    matched = _matched(trace, activities, rows, twin)
    owner = np.where(matched >= 0, twin.launches["node"].to_numpy()[np.maximum(matched, 0)], -1)
    found = _findings(trace, activities, rows, matched, twin)
    placed = np.flatnonzero(owner >= 0)
    if not len(placed):
        return nodes, activities, strings, pd.DataFrame(columns=list(INFERRED_COLUMNS)), found
    new, home, target = _instances(trace, nodes, activities, rows[placed], matched[placed], twin)
    first = len(nodes)
    nodes, strings = with_new_nodes(trace, names, nodes, new, home, strings)
    kind = nodes["kind"].to_numpy().copy()
    kind[first:] = int(NodeKind.TWIN)
    nodes = nodes.assign(kind=kind, depth=depths(nodes["parent_id"].to_numpy()))
    node, launch_node = activities["node_id"].to_numpy().copy(), activities["launch_node_id"].to_numpy().copy()
    node[rows[placed]] = launch_node[rows[placed]] = first + target
    known = new.assign(node_id=first + np.arange(len(new)))[[*INFERRED_COLUMNS, "arguments"]]
    said = np.full(len(activities), "", object)
    said[rows[placed]] = twin.launches["arguments"].to_numpy(object)[matched[placed]]
    changed = {"node_id": node, "launch_node_id": launch_node} | ({"arguments": said} if (said != "").any() else {})
    return nodes, activities.assign(**changed), strings, known, found


def _in_layer(nodes: pd.DataFrame) -> np.ndarray:
    """Which nodes are layers or lie in one."""
    return inside_of(nodes["level"].to_numpy() == int(Level.LAYER), nodes)


def _matched(trace: Trace, activities: pd.DataFrame, rows: np.ndarray, twin: Twin) -> np.ndarray:
    """Row of ``twin.launches`` for each of the activities in ``rows``, −1 none."""
    result = np.full(len(rows), -1, np.int64)
    process = activities["process_index"].to_numpy()[rows]
    ours, theirs = pd.unique(process), pd.unique(twin.launches["process_index"])
    if not len(theirs):
        return result
    names = trace.strings[activities["name_id"].to_numpy()[rows]]
    columns = [c for c in _SHAPE if c in activities and c in twin.launches]
    shapes = activities.iloc[rows][columns].reset_index(drop=True)
    for number, one in enumerate(ours.tolist()):
        mine = np.flatnonzero(process == one)
        other = theirs[number] if len(theirs) == len(ours) else theirs[0]  # ranks in the order of both captures
        known = np.flatnonzero(twin.launches["process_index"].to_numpy() == other)
        best = np.full(len(mine), -1, np.int64)
        for wanted in (columns, []) if columns else ([],):
            left, right = _symbols(twin.launches.iloc[known], names[mine], shapes.iloc[mine], wanted)
            found = align(left, right)
            if (found >= 0).sum() > (best >= 0).sum():
                best = found
            if (best >= 0).mean() >= _GOOD_SHARE:
                break
        result[mine] = np.where(best >= 0, known[np.maximum(best, 0)], -1)
    return result


def _symbols(
    known: pd.DataFrame, names: np.ndarray, shapes: pd.DataFrame, columns: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Equal numbers for launches of equal kernel name and, for ``columns``, equal shape."""
    codes, _ = pd.factorize(np.concatenate([known["name"].to_numpy(object), names.astype(object)]))
    for column in columns:
        values = np.concatenate([known[column].fillna(0).to_numpy(np.int64), shapes[column].to_numpy(np.int64)])
        codes, _ = pd.factorize(codes.astype(np.int64) * (int(values.max(initial=0)) + 1) + values)
    return codes[: len(known)].astype(np.int64), codes[len(known) :].astype(np.int64)


def _instances(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, rows: np.ndarray, matched: np.ndarray, twin: Twin
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """New nodes: a copy of each of the twin's nodes for each pass through it and each range of the capture around it.

    rows, matched: activities in launch order and their launches of the twin. Returns the nodes (parents first), the
    node of the capture that each top one hangs below, and the new node of each activity.
    """
    home = activities["node_id"].to_numpy()[rows]
    process = activities["process_index"].to_numpy()[rows]
    begins = np.r_[True, (np.diff(matched) <= 0) | (np.diff(process) != 0)]
    group, _ = pd.factorize(np.cumsum(begins) * np.int64(len(nodes)) + home)
    theirs = twin.nodes
    parent = theirs["parent"].to_numpy().astype(np.int64)
    has_model = _in_model(nodes)[home]
    is_model = theirs["level"].to_numpy() == int(Level.MODEL)
    above_model = forest_of(parent).around(is_model)
    owner = twin.launches["node"].to_numpy()[matched]
    wanted = [pd.DataFrame({"group": group, "node": owner, "row": np.arange(len(rows))})]
    current, chosen = owner, np.arange(len(rows))
    while len(current):
        keep = parent[current] >= 0
        current, chosen = parent[current[keep]], chosen[keep]
        wanted.append(pd.DataFrame({"group": group[chosen], "node": current, "row": chosen}))
    pairs = pd.concat(wanted, ignore_index=True)
    left_out = has_model[pairs["row"].to_numpy()] & (is_model | above_model)[pairs["node"].to_numpy()]
    pairs = pairs[~left_out]
    launch = activities["launch_id"].to_numpy()[rows]
    times = {c: trace.launches[c].to_numpy()[launch] for c in ("start_ns", "end_ns", "thread_index")}
    row = pairs["row"].to_numpy()
    pairs = pairs.assign(home=home[row], process_index=process[row], **{c: v[row] for c, v in times.items()})
    frame = pairs.groupby(["node", "group"], sort=True, as_index=False).agg(
        home=("home", "first"), process_index=("process_index", "first"), thread_index=("thread_index", "first"),
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
    )  # fmt: skip
    key = pd.MultiIndex.from_frame(frame[["node", "group"]])
    node = frame["node"].to_numpy()
    above = key.get_indexer(pd.MultiIndex.from_arrays([parent[node], frame["group"]]))
    target = key.get_indexer(pd.MultiIndex.from_arrays([owner, group]))
    taken = theirs.iloc[node].reset_index(drop=True)
    level_name = {int(member): member.name for member in Level}
    frame = frame.assign(
        parent=above, name=taken["name"], folded_name=taken["folded_name"], layer_type=taken["layer_type"],
        arguments=taken["arguments"],
        level=[level_name[int(value)] for value in taken["level"]], depth=0, **_NEW,
    )  # fmt: skip
    # a model range that was left out: what it held itself stays in the capture's own range
    return frame, frame["home"].to_numpy(), np.where(target >= 0, target, home - len(nodes))


def _in_model(nodes: pd.DataFrame) -> np.ndarray:
    return inside_of(nodes["level"].to_numpy() == int(Level.MODEL), nodes)


def _findings(
    trace: Trace, activities: pd.DataFrame, rows: np.ndarray, matched: np.ndarray, twin: Twin
) -> list[Finding]:
    found = []
    hit = int((matched >= 0).sum())
    if hit:
        found.append(
            finding("twin-aligned", count=hit, example=f"{hit:,} of {len(rows):,} kernels; {twin.source_name}")
        )
    if hit < len(rows):
        missed = activities["name_id"].to_numpy()[rows[np.flatnonzero(matched < 0)[0]]]
        found.append(finding("twin-unaligned", count=len(rows) - hit, example=str(trace.strings[missed])))
    return found
