"""Trace → Tree, step "launches outside every range": their iterations and blocks are inferred."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.base.findings import Finding
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, Attribution, NodeKind
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.operator_blocks import inside_of, name_by_operators, open_operators

_HINT_WORDS = ("Synchronize", "Memcpy")


def infer_rest(
    trace: Trace, names: NodeNames, nodes: pd.DataFrame, activities: pd.DataFrame, strings: Strings
) -> tuple[pd.DataFrame, pd.DataFrame, Strings, pd.DataFrame, list[Finding]]:
    """Iterations and blocks for launches outside every range, below [unattributed] and marked inferred.

    Such launches keep their attribution ``none``: no range was recorded around them, whatever repeats. Returns the
    nodes, activities and strings of the tree, what is known of the inferred nodes (`tree.INFERRED_COLUMNS`), and
    findings.
    """
    kind, how = activities["kind"].to_numpy(), activities["attribution"].to_numpy()
    working = (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)
    # between hooks, or in a turn of ranges: not inside a range, but their place is known
    has_place = np.isin(nodes["kind"].to_numpy(), (int(NodeKind.HOOK_PAIR), int(NodeKind.INFERRED)))
    outside = (how == int(Attribution.NONE)) & ~has_place[activities["node_id"].to_numpy()]
    # A call of cuDNN or cuBLAS does not show the structure of the program: what only such ranges hold is open as well.
    # Operators without modules fold into the blocks they repeat in.
    operators = np.zeros(len(nodes), bool)
    if not (nodes["level"].to_numpy() == int(Level.MODEL)).any():
        operators = open_operators(names, nodes, activities) & (nodes["parent_id"].to_numpy() == 0)
    in_library = _library_alone(nodes) | inside_of(operators, nodes)
    node = activities["node_id"].to_numpy().copy()
    uncovered = outside | in_library[node]
    rows = np.flatnonzero(working)
    if not (working & uncovered).any():
        return nodes, activities, strings, pd.DataFrame(columns=list(INFERRED_COLUMNS)), []
    from xsp_post.tree.structure import infer  # no small thing to import, and most captures have ranges

    frame = launch_columns(trace, activities, rows).assign(is_covered=~uncovered[rows])
    inference = infer(frame, trace.strings, hints=hints(trace))
    if not len(inference.nodes):
        return nodes, activities, strings, pd.DataFrame(columns=list(INFERRED_COLUMNS)), inference.findings
    recorded, duration = node[rows], (activities["end_ns"] - activities["start_ns"]).to_numpy()[rows]
    name_by_operators(inference.nodes, inference.node_of_launch, recorded, duration, operators, names, nodes)
    home = np.flatnonzero(nodes["kind"].to_numpy() == int(NodeKind.UNATTRIBUTED))
    nodes, strings = with_new_nodes(trace, names, nodes, inference.nodes, int(home[0]) if len(home) else 0, strings)
    first = len(nodes) - len(inference.nodes)
    has_place = inference.node_of_launch >= 0
    placed, target = rows[has_place], first + inference.node_of_launch[has_place]
    launch_node = activities["launch_node_id"].to_numpy().copy()
    graph = kind[placed] == ActivityKind.GRAPH
    bare = outside[placed] & ~graph
    node[placed[bare]] = target[bare]
    launch_node[placed[bare]] = target[bare]
    parent = nodes["parent_id"].to_numpy().copy()
    leaf = outside[placed] & graph
    parent[node[placed[leaf]]] = target[leaf]  # an opaque graph launch is a leaf of its own
    nodes = nodes.assign(parent_id=parent)
    called = ~outside[placed]
    if called.any():
        nodes = with_calls_inside(nodes, node[placed[called]], target[called], np.zeros(1, np.int64))
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    nodes["level"] = without_layers_in_blocks(
        nodes, first, (inference.nodes["kind"] == "stretch").to_numpy(), operators
    )
    activities = activities.assign(node_id=node, launch_node_id=launch_node)
    known = inference.nodes.assign(node_id=first + np.arange(len(inference.nodes)))[list(INFERRED_COLUMNS)]
    return nodes, activities, strings, known, inference.findings


def without_layers_in_blocks(
    nodes: pd.DataFrame, first: int, is_stretch: np.ndarray, operators: np.ndarray
) -> np.ndarray:
    """Levels, where what was recorded inside an inferred layer (a node from ``first`` on) is a part of it.

    is_stretch: of the inferred nodes, what lies between blocks: there, recorded layers that are not ``operators`` (bool
    per recorded node) stay the layers, and the stretch only stands around them.
    """
    level = nodes["level"].to_numpy().copy()
    is_new = np.arange(len(nodes)) >= first
    stretch = np.r_[np.zeros(first, bool), is_stretch]
    recorded = ~is_new & (level == int(Level.LAYER)) & ~np.r_[operators, np.zeros(len(nodes) - first, bool)]
    parent = nodes["parent_id"].to_numpy()
    holds = rollup.holds(recorded, parent)
    level[stretch & holds & (level == int(Level.LAYER))] = int(Level.MODULE)
    blocks = is_new & (level == int(Level.LAYER))
    parts = inside_of(blocks, nodes) & ~is_new & np.isin(level, (int(Level.LAYER), int(Level.MODULE)))
    level[parts] = int(Level.OPERATION)
    return level


def _library_alone(nodes: pd.DataFrame) -> np.ndarray:
    """Which nodes are library calls, or lie in one, outside every other range; bool per node."""
    parent, level = nodes["parent_id"].to_numpy(), nodes["level"].to_numpy()
    alone = (level == int(Level.LIBRARY)) & (parent == 0)
    return alone | forest_of(parent).inside(alone)


def launch_columns(trace: Trace, activities: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    """The activities ``rows`` as `infer` wants them, with thread and time of their launches (−1 none)."""
    launch_id = activities["launch_id"].to_numpy()[rows]
    has = launch_id >= 0
    frame = activities.iloc[rows].copy(deep=False)
    own_columns = {"launch_start_ns": "start_ns", "launch_end_ns": "end_ns", "thread_index": "thread_index"}
    for ours, column in own_columns.items():
        values = trace.launches[column].to_numpy()
        frame[ours] = np.where(has, values[np.maximum(launch_id, 0)], -1) if len(values) else -1
    return frame


def with_calls_inside(nodes: pd.DataFrame, call: np.ndarray, inferred: np.ndarray, home: np.ndarray) -> pd.DataFrame:
    """Hang outermost recorded ranges below the innermost inferred node that holds all they launched.

    call, inferred: the range and the inferred node of each launch; home: the nodes below which the inferred ones hang.
    The inferred nodes grow by what the ranges did before their first and after their last launch.
    """
    parent = nodes["parent_id"].to_numpy().copy()
    depth = depths(parent)
    is_home = np.zeros(len(parent), bool)
    is_home[home] = True
    top = call.copy()
    while not is_home[parent[top]].all():
        top = np.where(is_home[parent[top]], top, parent[top])
    order = np.lexsort((inferred, top))
    calls, begin = np.unique(top[order], return_index=True)
    low, high = inferred[order][begin], inferred[order][np.append(begin[1:], len(order)) - 1]
    while (low != high).any():
        deeper = depth[low] >= depth[high]
        low, high = (np.where((low != high) & deeper, parent[low], low),
                     np.where((low != high) & ~deeper, parent[high], high))  # fmt: skip
    parent[calls] = low
    start, end = nodes["start_ns"].to_numpy().copy(), nodes["end_ns"].to_numpy().copy()
    is_inferred = nodes["is_inferred"].to_numpy()
    np.minimum.at(start, low[is_inferred[low]], start[calls[is_inferred[low]]])
    np.maximum.at(end, low[is_inferred[low]], end[calls[is_inferred[low]]])
    for rows in rollup.rows_by_depth(depths(parent))[:0:-1]:
        rows = rows[is_inferred[rows] & is_inferred[parent[rows]]]
        np.minimum.at(start, parent[rows], start[rows])
        np.maximum.at(end, parent[rows], end[rows])
    return nodes.assign(parent_id=parent, start_ns=start, end_ns=end)


def hints(trace: Trace) -> pd.DataFrame:
    """Host calls that often end an iteration: synchronisations and copies."""
    name_id = trace.launches["name_id"].to_numpy()
    codes, used = pd.factorize(name_id)
    texts = [str(trace.strings[u]) if u >= 0 else "" for u in used.tolist()]
    wanted = np.array([any(word in text for word in _HINT_WORDS) for text in texts] + [False])
    rows = np.flatnonzero(wanted[codes]) if len(codes) else np.zeros(0, np.int64)
    return trace.launches[["process_index", "start_ns"]].iloc[rows]


def with_new_nodes(
    trace: Trace,
    names: NodeNames,
    nodes: pd.DataFrame,
    found: pd.DataFrame,
    home: int | np.ndarray,
    texts_before: Strings | None = None,
) -> tuple[pd.DataFrame, Strings]:
    """The nodes followed by those in ``found`` (columns of `Inference.nodes`), and the texts of all of them.

    home: the node that those without a parent hang below, one for all or one each. texts_before: the texts of the
    nodes, where they are more than the trace's.
    """
    strings = trace.strings if texts_before is None else texts_before
    count = len(found)
    first = len(nodes)
    parent = found["parent"].to_numpy()
    text_codes, texts = pd.factorize(found["name"].to_numpy(object))
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    columns: dict[str, np.ndarray] = {
        "parent_id": np.where(parent >= 0, parent + first, home),
        "kind": np.full(count, int(NodeKind.INFERRED), np.int8),
        "level": found["level"].astype(object).map({m.name: int(m) for m in Level}).to_numpy(np.int8),
        "name_id": (text_codes + len(strings)).astype(np.int32),
        "folded_id": names.with_inferred(
            found["folded_name"].to_numpy(object), found["layer_type"].fillna("").to_numpy(object)
        ),
        "process_index": found["process_index"].to_numpy(np.int32),
        "thread_index": found["thread_index"].to_numpy(np.int32),
        "domain_index": np.full(count, -1, np.int32),
        "start_ns": start,
        "end_ns": end,
        "source_row_id": np.full(count, -1, np.int64),
        "sequence": np.full(count, -1, np.int64),
        "step_index": np.full(count, -1, np.int64),
        "is_backward": np.zeros(count, bool),
        # what is not a regular iteration is left out of statistics, as warm-up is
        "is_warmup_text": ~found["iteration_class"].isin(["regular", ""]).to_numpy()
        & (found["kind"] == "iteration").to_numpy(),
        "is_open": np.zeros(count, bool),
        "is_inferred": np.ones(count, bool),
        "confidence_ratio": found["confidence"].to_numpy(float),
        "depth": np.zeros(count, np.int32),
    }
    joined = {}
    for name in nodes.columns:
        values = nodes[name].to_numpy()
        joined[name] = np.concatenate([values, columns[name].astype(values.dtype, copy=False)])
    return pd.DataFrame(joined, copy=False), with_more(strings, texts)
