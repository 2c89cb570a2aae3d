"""Trace → Tree: ranges known from elsewhere (another capture, a framework's side files) become nodes of the tree, a
copy of each for every pass through it, below the range that the capture itself has around the launch."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.model.levels import Level
from xsp_post.model.trace import Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind
from xsp_post.tree.draft import Draft
from xsp_post.tree.insertion import with_inferred, with_new_nodes
from xsp_post.tree.operator_blocks import inside_of

_NEW = {"iteration_index": -1, "series_index": -1, "block_index": 0, "block_count": 0, "equal_class": -1,
        "matched_block_index": 0, "iteration_class": "", "confidence": 1.0, "depth": 0}  # fmt: skip
_WORD = {NodeKind.TWIN: "twin", NodeKind.ANNOTATED: "annotation", NodeKind.PROVENANCE: "provenance"}


def in_level(nodes: pd.DataFrame, level: Level) -> np.ndarray:
    """Which nodes are of a level or lie in one that is; bool per node."""
    return inside_of(nodes["level"].to_numpy() == int(level), nodes)


def place(
    draft: Draft, rows: np.ndarray, owner: np.ndarray, passes: np.ndarray, theirs: pd.DataFrame, kind: NodeKind,
    has_own: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None, home: np.ndarray | None = None,
    unit: np.ndarray | None = None, moving: slice = slice(None),
) -> Draft:  # fmt: skip
    """Copies of the ranges ``theirs`` (`twin.Twin.nodes`) around the activities ``rows``; of each ``rows`` the copy of
    its innermost range is in `Draft.placed`. Only those in ``moving`` move there.

    owner: the innermost of theirs around each activity; passes: number of the pass through them, per activity.
    has_own(nodes, ranges): which of their ranges the capture has itself around a node: these are not copied, nor is
    what lies around them. An activity whose innermost range is such a one keeps its node.
    home: the node that they hang below, per activity (default: its own); unit: a range below that node which the
    activity was launched in, −1 none: this range moves into theirs, and the activity stays in it.
    """
    nodes, activities = draft.nodes, draft.activities
    home = draft.node[rows] if home is None else home
    unit = np.full(len(rows), -1) if unit is None else unit
    group, _ = pd.factorize(passes.astype(np.int64) * len(nodes) + home)
    parent = theirs["parent"].to_numpy().astype(np.int64)
    current, chosen = owner, np.arange(len(rows))
    wanted = []
    while len(current):
        if has_own is not None:
            keep = ~has_own(home[chosen], current)
            current, chosen = current[keep], chosen[keep]
        wanted.append(pd.DataFrame({"group": group[chosen], "node": current, "row": chosen}))
        inner = parent[current] >= 0
        current, chosen = parent[current[inner]], chosen[inner]
    pairs = pd.concat(wanted, ignore_index=True)
    if not len(pairs):
        return draft
    row = pairs["row"].to_numpy()
    times = {c: values[row] for c, values in _launch_times(draft.trace, activities.iloc[rows]).items()}
    times = {c: np.where(unit[row] >= 0, nodes[c].to_numpy()[unit[row]], values) for c, values in times.items()}
    process = activities["process_index"].to_numpy()[rows]
    pairs = pairs.assign(home=home[row], process_index=process[row], moves=row < (moving.stop or len(rows)), **times)
    moved = pairs.groupby(["node", "group"])["moves"].transform("any")
    pairs = pairs[pairs["moves"] | ~moved]  # a range lasts as long as what moves there
    frame = pairs.groupby(["node", "group"], sort=True, as_index=False).agg(
        home=("home", "first"), process_index=("process_index", "first"), thread_index=("thread_index", "first"),
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"),
    )  # fmt: skip
    key = pd.MultiIndex.from_frame(frame[["node", "group"]])
    node = frame["node"].to_numpy()
    target = key.get_indexer(pd.MultiIndex.from_arrays([owner, group]))
    taken = theirs.iloc[node].reset_index(drop=True)
    level = taken["level"].to_numpy().copy()
    level[(level == int(Level.MODEL)) & in_level(nodes, Level.MODEL)[frame["home"].to_numpy()]] = int(Level.MODULE)
    level_name = {int(member): member.name for member in Level}
    frame = frame.assign(
        parent=key.get_indexer(pd.MultiIndex.from_arrays([parent[node], frame["group"]])),
        level=[level_name[int(value)] for value in level], kind=_WORD[kind],
    )  # fmt: skip
    same = taken[["name", "folded_name", "layer_type", "arguments"]]
    frame = pd.concat([frame, same, pd.DataFrame(_NEW, index=frame.index)], axis=1)
    first, placed = len(nodes), target >= 0
    placed[moving.stop or len(placed) :] = False
    nodes, strings = with_new_nodes(draft.trace, draft.names, nodes, frame, frame["home"].to_numpy(), draft.strings)
    kinds = nodes["kind"].to_numpy().copy()
    kinds[first:] = int(kind)
    changed = {column: activities[column].to_numpy().copy() for column in ("node_id", "launch_node_id")}
    bare = placed & (unit < 0)
    for values in changed.values():
        values[rows[bare]] = first + target[bare]
    above = nodes["parent_id"].to_numpy().copy()
    above[unit[placed & ~bare]] = first + target[placed & ~bare]
    nodes = nodes.assign(kind=kinds, parent_id=above, depth=depths(above))
    known = frame.assign(node_id=first + np.arange(len(frame)))[[*INFERRED_COLUMNS, "arguments"]]
    activities = activities.assign(**changed)
    made = replace(draft, nodes=nodes, activities=activities, strings=strings, placed=first + target)
    return with_inferred(made, known)


def opened_layers(nodes: pd.DataFrame, first: int) -> np.ndarray:
    """Layers of the capture that hold layers among the new nodes (those from ``first`` on); bool per node."""
    layer, is_new = nodes["level"].to_numpy() == int(Level.LAYER), np.arange(len(nodes)) >= first
    return layer & ~is_new & forest_of(nodes["parent_id"].to_numpy()).around(layer & is_new)


def _launch_times(trace: Trace, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    """Times and thread of the launches; of an execution without a launch row its own times, thread −1."""
    launch = activities["launch_id"].to_numpy()
    has, at = launch >= 0, np.maximum(launch, 0)
    columns = {}
    for column in ("start_ns", "end_ns", "thread_index"):
        own = activities[column].to_numpy() if column in activities else np.full(len(activities), -1)
        of_launch = trace.launches[column].to_numpy()
        columns[column] = np.where(has, of_launch[at], own) if len(of_launch) else own
    return columns
