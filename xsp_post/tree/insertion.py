"""Trace → Tree, step "what is found becomes nodes": inferred nodes below those that hold their launches.

`inserted` does it for whatever was inferred, outside ranges and inside; `with_turns` for executions that are several
sibling ranges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.intervals import depths, nest
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, SpanKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.draft import Draft
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.operator_blocks import inside_of

if TYPE_CHECKING:
    from xsp_post.tree.structure import Inference


def inserted(draft: Draft, found: Inference, rows: np.ndarray, home: np.ndarray, operators: np.ndarray) -> Draft:
    """The draft with the nodes of an inference.

    rows: the activities it was made from; home: the node below which each found node without a parent hangs;
    operators: recorded operators that may be parts of layers (bool per node). What the found nodes launched
    is theirs; ranges in between hang below the innermost found node that holds all they launched.
    """
    nodes, strings = with_new_nodes(draft.trace, draft.names, draft.nodes, found.nodes, home, draft.strings)
    first = len(draft.nodes)
    node, launch_node = (draft.activities[c].to_numpy().copy() for c in ("node_id", "launch_node_id"))
    placed = found.node_of_launch >= 0
    at, target = rows[placed], first + found.node_of_launch[placed]
    homes = np.unique(home)
    direct = np.isin(node[at], homes)
    _move(node, launch_node, at[direct], target[direct], draft.column("kind"))
    if (~direct).any():
        around = np.append(homes, 0) if (draft.column("parent_id")[homes] == 0).all() else homes
        nodes = _with_calls_inside(nodes, node[at[~direct]], target[~direct], np.unique(around))
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    nodes["level"] = _without_layers_in_blocks(nodes, first, (found.nodes["kind"] == "stretch").to_numpy(), operators)
    activities = draft.activities.assign(node_id=node, launch_node_id=launch_node)
    activities = _with_copies(draft.trace, nodes, activities, homes, first)
    return with_known(replace(draft, nodes=nodes, activities=activities, strings=strings), found.nodes)


def _move(node: np.ndarray, launch_node: np.ndarray, rows: np.ndarray, target: np.ndarray, kind: np.ndarray) -> None:
    """Give activities another node (in place), and their launches with them, if those lie there or outside ranges."""
    outside = (int(NodeKind.UNATTRIBUTED), int(NodeKind.NO_LAUNCH))
    with_launch = (launch_node[rows] == node[rows]) | np.isin(kind[node[rows]], outside)
    launch_node[rows[with_launch]] = target[with_launch]
    node[rows] = target


def with_known(draft: Draft, found: pd.DataFrame) -> Draft:
    """The draft with what is known of its last nodes, those in ``found``."""
    known = found.assign(node_id=len(draft.nodes) - len(found) + np.arange(len(found)))
    return with_inferred(draft, known[list(INFERRED_COLUMNS)])


def with_inferred(draft: Draft, known: pd.DataFrame) -> Draft:
    """The draft with more rows of what is known of inferred nodes."""
    filled = [frame for frame in (draft.inferred, known) if len(frame)]
    return replace(draft, inferred=pd.concat(filled, ignore_index=True) if len(filled) > 1 else (filled or [known])[0])


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
    columns: dict[str, object] = {
        "parent_id": np.where(parent >= 0, parent + first, home),
        "kind": int(NodeKind.INFERRED),
        "level": found["level"].astype(object).map({m.name: int(m) for m in Level}).to_numpy(np.int8),
        "name_id": text_codes + len(strings),
        "folded_id": names.with_inferred(
            found["folded_name"].to_numpy(object), found["layer_type"].fillna("").to_numpy(object)
        ),
        "is_backward": False,
        # what is not a regular iteration is left out of statistics, as warm-up is
        "is_warmup_text": ~found["iteration_class"].isin(["regular", ""]).to_numpy()
        & (found["kind"] == "iteration").to_numpy(),
        "is_open": False,
        "is_inferred": True,
        "confidence_ratio": found["confidence"].to_numpy(float),
        "depth": 0,
    }
    columns |= {name: found[name].to_numpy() for name in ("process_index", "thread_index", "start_ns", "end_ns")}
    joined = {}
    for name in nodes.columns:
        values = nodes[name].to_numpy()
        added = np.broadcast_to(np.asarray(columns.get(name, -1)), count)
        joined[name] = np.concatenate([values, added.astype(values.dtype, copy=False)])
    return pd.DataFrame(joined, copy=False), with_more(strings, texts)


def _without_layers_in_blocks(
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
    holds = rollup.holds(recorded, nodes["parent_id"].to_numpy())
    level[stretch & holds & (level == int(Level.LAYER))] = int(Level.MODULE)
    blocks = is_new & (level == int(Level.LAYER))
    parts = inside_of(blocks, nodes) & ~is_new & np.isin(level, (int(Level.LAYER), int(Level.MODULE)))
    level[parts] = int(Level.OPERATION)
    return level


def _with_calls_inside(nodes: pd.DataFrame, call: np.ndarray, inferred: np.ndarray, home: np.ndarray) -> pd.DataFrame:
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


def _with_copies(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, homes: np.ndarray, first: int
) -> pd.DataFrame:
    """Copies and memsets launched during a found node by its own thread, and in no other range, are that node's."""
    kind, node = activities["kind"].to_numpy(), activities["node_id"].to_numpy()
    launch_id = activities["launch_id"].to_numpy()
    is_copy = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    rows = np.flatnonzero(is_copy & np.isin(node, homes) & (launch_id >= 0))
    if not len(rows):
        return activities
    new = np.arange(first, len(nodes))
    thread, start, end = (nodes[c].to_numpy()[new] for c in ("thread_index", "start_ns", "end_ns"))
    launches = trace.launches
    at = (launches[c].to_numpy()[launch_id[rows]].astype(np.int64) for c in ("thread_index", "start_ns", "end_ns"))
    inside = nest(thread.astype(np.int64), start, end).innermost(*at)
    node, launch_node = node.copy(), activities["launch_node_id"].to_numpy().copy()
    _move(node, launch_node, rows[inside >= 0], new[inside[inside >= 0]], nodes["kind"].to_numpy())
    return activities.assign(node_id=node, launch_node_id=launch_node)


# ---------------------------------------------------------------- several sibling ranges that are one execution


def with_turns(draft: Draft) -> Draft:
    """One MODEL node per execution that is several sibling ranges, around them; it holds what was launched meanwhile
    outside every range."""
    if draft.levels.chosen is None or not (draft.levels.turn >= 0).any():
        return draft
    nodes, turn = draft.nodes, draft.levels.turn
    members = np.flatnonzero(turn >= 0) + 1  # span k is node k + 1
    members = members[np.argsort(nodes["start_ns"].to_numpy()[members], kind="stable")]
    parent, thread = nodes["parent_id"].to_numpy().copy(), nodes["thread_index"].to_numpy()
    grouped = nodes.iloc[members].groupby(turn[members - 1])
    first = pd.Series(members).groupby(turn[members - 1]).first().to_numpy()
    start, end = grouped["start_ns"].min().to_numpy(), grouped["end_ns"].max().to_numpy()
    home, name = parent[first], np.array(draft.levels.chosen.called, object)[grouped["parent_id"].first().index]
    found = pd.DataFrame({
        "parent": -1, "process_index": nodes["process_index"].to_numpy()[first], "thread_index": thread[first],
        "start_ns": start, "end_ns": end, "name": name, "folded_name": name, "layer_type": "", "level": "MODEL",
        "kind": "iteration", "iteration_class": "regular", "series_index": 0, "block_index": 0, "block_count": 0,
        "equal_class": -1, "matched_block_index": 0, "confidence": 1.0,
    })  # fmt: skip
    is_range = nodes["kind"].to_numpy() <= int(SpanKind.ANNOTATION)
    sibling = np.flatnonzero(np.isin(parent, home) & np.isin(thread, thread[first]) & is_range)
    process, begin, stop = (nodes[c].to_numpy()[sibling] for c in ("process_index", "start_ns", "end_ns"))
    position = layering.covering(process, begin, found["process_index"].to_numpy(), start, end)
    inside = (position >= 0) & (stop <= end[position]) & (parent[sibling] == home[position])
    inside &= thread[sibling] == thread[first][position]
    parent[sibling[inside]] = len(nodes) + position[inside]
    nodes, strings = with_new_nodes(
        draft.trace, draft.names, nodes.assign(parent_id=parent), found, home, draft.strings
    )
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    draft = with_known(replace(draft, nodes=nodes, strings=strings), found)
    return _with_loose_work(replace(draft, turns=len(nodes) - len(found) + np.arange(len(found))))


def _with_loose_work(draft: Draft) -> Draft:
    """What was launched outside every range during one of the turns lies below it."""
    nodes, activities, turns = draft.nodes, draft.activities, draft.turns
    kind, node = nodes["kind"].to_numpy(), activities["node_id"].to_numpy().copy()
    parent, launch_id = nodes["parent_id"].to_numpy().copy(), activities["launch_id"].to_numpy()
    is_graph = kind[node] == int(NodeKind.GRAPH)
    outside = kind[np.where(is_graph, parent[node], node)] == int(NodeKind.UNATTRIBUTED)
    rows = np.flatnonzero(outside & (launch_id >= 0))
    turns = turns[np.argsort(nodes["start_ns"].to_numpy()[turns], kind="stable")]
    found = layering.covering(
        activities["process_index"].to_numpy()[rows], draft.trace.launches["start_ns"].to_numpy()[launch_id[rows]],
        *(nodes[column].to_numpy()[turns] for column in ("process_index", "start_ns", "end_ns")),
    )  # fmt: skip
    rows, turn = rows[found >= 0], turns[found[found >= 0]]
    leaf = is_graph[rows]
    parent[node[rows[leaf]]] = turn[leaf]
    node[rows[~leaf]] = turn[~leaf]
    launch_node = activities["launch_node_id"].to_numpy().copy()
    launch_node[rows[~leaf]] = turn[~leaf]
    nodes = nodes.assign(parent_id=parent, depth=depths(parent))
    return replace(draft, nodes=nodes, activities=activities.assign(node_id=node, launch_node_id=launch_node))
