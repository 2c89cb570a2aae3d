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
from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths, nest
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, SpanKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.draft import Draft
from xsp_post.tree.executions import CYCLES
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.operator_blocks import inside_of

if TYPE_CHECKING:
    from xsp_post.tree.structure.find import Inference


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
    homes = distinct(home)
    if not np.isin(node[at], homes).all():
        nodes = _with_calls_inside(draft, nodes, found, draft.node[at], target - first, home, operators)
    around = forest_of(nodes["parent_id"].to_numpy())
    place = around.positions()
    direct = (place[node[at]] <= place[target]) & (place[target] < around.stop[node[at]])
    _move(node, launch_node, at[direct], target[direct], draft.column("kind"))
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    is_stretch = (found.nodes["kind"] == "stretch").to_numpy()
    nodes["level"] = _without_layers_in_blocks(nodes, first, is_stretch, operators, draft.constants.most_ratio)
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
    trace: Trace, names: NodeNames, nodes: pd.DataFrame, found: pd.DataFrame, home: int | np.ndarray, texts_before:
    Strings | None = None,
) -> tuple[pd.DataFrame, Strings]:  # fmt: skip
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
        # an iteration that was cut off is left out of statistics, as warm-up is
        "is_warmup_text": found["iteration_class"].eq("tail").to_numpy(),
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
    nodes: pd.DataFrame, first: int, is_stretch: np.ndarray, operators: np.ndarray, most: float
) -> np.ndarray:
    """Levels where what was recorded inside an inferred layer (a node from ``first`` on) is a part, around it a group.

    is_stretch: of the inferred nodes, what lies between blocks: there, recorded layers that are not ``operators`` (bool
    per recorded node) stay the layers, and the stretch only stands around them. most: `Constants.most_ratio`.
    """
    level = nodes["level"].to_numpy().copy()
    is_new = np.arange(len(nodes)) >= first
    stretch = np.r_[np.zeros(first, bool), is_stretch]
    blocks = is_new & (level == int(Level.LAYER)) & ~stretch
    groups = ~is_new & np.isin(level, (int(Level.LAYER), int(Level.OPERATION)))
    # of one text all are groups or none; in a layer that is none blocks are parts
    around = rollup.holds(blocks, nodes["parent_id"].to_numpy())
    share = pd.Series(around[groups]).groupby(nodes["folded_id"].to_numpy()[groups]).transform("mean")
    groups[groups] = share.to_numpy() >= most
    level[groups] = int(Level.MODULE)
    level[blocks & inside_of(~is_new & (level == int(Level.LAYER)), nodes)] = int(Level.OPERATION)
    recorded = ~is_new & (level == int(Level.LAYER)) & ~np.r_[operators, np.zeros(len(nodes) - first, bool)]
    holds = rollup.holds(recorded, nodes["parent_id"].to_numpy())
    level[stretch & holds & (level == int(Level.LAYER))] = int(Level.MODULE)
    blocks = is_new & (level == int(Level.LAYER))
    parts = inside_of(blocks, nodes) & ~is_new & np.isin(level, (int(Level.LAYER), int(Level.MODULE)))
    level[parts] = int(Level.OPERATION)
    return level


def _with_calls_inside(
    draft: Draft, nodes: pd.DataFrame, found: Inference, call: np.ndarray, target: np.ndarray, home: np.ndarray,
    operators: np.ndarray,
) -> pd.DataFrame:  # fmt: skip
    """Recorded ranges and found nodes inside one another, whichever holds more of the launches.

    call, target: the recorded node and the found one of each launch; home: the node that each found one hangs below. A
    block hangs below the innermost range that holds all it launched and more, but no layers of its own (``operators``
    are none); other ranges below the innermost found node that holds all they launched. Found nodes grow by what ranges
    did before their first and after their last launch.
    """
    count, first = len(draft.nodes), len(draft.nodes)
    above, recorded = found.nodes["parent"].to_numpy(), draft.column("parent_id")
    # ranges around blocks: the innermost one of all launches of a block that holds more than they
    inner = _Held(above, target)
    outer = _Held(recorded, call)
    low = outer.lowest(inner.spread(outer.place))
    is_block = (found.nodes["kind"] == "block").to_numpy()
    layer = (draft.column("level") == int(Level.LAYER)) & ~operators
    layer &= ~rollup.holds(np.isin(np.arange(count), home), recorded)
    has_layers = outer.forest.around(layer) | outer.forest.inside(layer)
    for _ in range(int(draft.column("depth").max(initial=0))):
        same = (low != home) & (outer.size[low] <= inner.size)
        if not same.any():
            break
        low = np.where(same, recorded[low], low)
    # the found node around each of these ranges
    around = inner.lowest(outer.spread(inner.place))
    inside_found = forest_of(above)
    place, stop = inside_found.positions(), inside_found.stop
    parent = nodes["parent_id"].to_numpy().copy()
    for rows in rollup.rows_by_depth(depths(above)):
        up, mine = above[rows], low[rows]
        of_parent = np.where(up >= 0, low[up], home[rows])
        by = around[mine]
        is_inside = (up < 0) | ((by >= 0) & (place[by] >= place[up]) & (place[by] < stop[up]))
        moves = is_block[rows] & (mine != of_parent) & is_inside & ~has_layers[mine]
        low[rows] = np.where(moves, mine, of_parent)
        parent[first + rows[moves]] = mine[moves]
    # ranges below the found node around them
    homes = distinct(np.append(low, home))
    is_home = np.zeros(count, bool)
    is_home[homes] = True
    if (recorded[homes] == 0).all():
        is_home[0] = True
    chosen = np.flatnonzero((outer.size > 0) & (recorded >= 0) & (around >= 0) & ~np.isin(np.arange(count), home))
    lies_in = forest_of(recorded).nearest(is_home)[recorded[chosen]]
    is_call = (recorded[chosen] == lies_in) & ((low[around[chosen]] == lies_in) | (lies_in == 0))
    calls = chosen[is_call]
    parent[calls] = first + around[calls]
    start, end = nodes["start_ns"].to_numpy().copy(), nodes["end_ns"].to_numpy().copy()
    np.minimum.at(start, parent[calls], start[calls])
    np.maximum.at(end, parent[calls], end[calls])
    for rows in rollup.rows_by_depth(depths(parent))[:0:-1]:
        rows = rows[(rows >= first) & (parent[rows] >= first)]
        np.minimum.at(start, parent[rows], start[rows])
        np.maximum.at(end, parent[rows], end[rows])
    return nodes.assign(parent_id=parent, start_ns=start, end_ns=end)


class _Held:
    """Launches of the nodes of a forest: size: how many are at or below each node; place: of each launch its node's
    position in pre-order."""

    def __init__(self, parent: np.ndarray, node: np.ndarray) -> None:
        self.parent, self.forest, self.node = parent, forest_of(parent), node
        self.size = self.forest.add_up(np.bincount(node, minlength=len(parent)))
        self.place = self.forest.positions()[node]
        self.order = np.argsort(self.place, kind="stable")

    def spread(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest value of the launches at or below each node (−1: it has none)."""
        held = np.flatnonzero(self.size > 0)
        sorted_place = self.place[self.order]
        begin = np.searchsorted(sorted_place, self.forest.positions()[held])
        low, high = np.full(len(self.parent), -1), np.full(len(self.parent), -1)
        edges = np.stack([begin, begin + self.size[held]], axis=1).ravel()
        padded = np.append(values[self.order], 0)
        low[held] = np.minimum.reduceat(padded, edges)[::2]
        high[held] = np.maximum.reduceat(padded, edges)[::2]
        return low, high

    def lowest(self, spread: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The lowest node around positions (least, greatest), −1 for none."""
        low, high = spread
        at = np.full(len(self.parent) + 1, -1, np.int64)
        at[self.forest.positions()] = np.arange(len(self.parent))
        node = at[low]
        while (is_short := (node >= 0) & (self.forest.stop[node] <= high)).any():
            node = np.where(is_short, self.parent[node], node)
        return node


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
    if draft.levels.chosen.rule == CYCLES:
        start, end = _with_ends(draft, nodes["process_index"].to_numpy()[first], start, end)
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
    parent[members] = len(nodes) + pd.factorize(turn[members - 1], sort=True)[0]
    nodes, strings = with_new_nodes(
        draft.trace, draft.names, nodes.assign(parent_id=parent), found, home, draft.strings
    )
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    draft = with_known(replace(draft, nodes=nodes, strings=strings), found)
    return _with_loose_work(replace(draft, turns=len(nodes) - len(found) + np.arange(len(found))))


def _is_loose(draft: Draft) -> np.ndarray:
    """Which activities were launched outside every range; bool."""
    kind, node, parent = draft.column("kind"), draft.node, draft.column("parent_id")
    home = np.where(kind[node] == int(NodeKind.GRAPH), parent[node], node)
    return (kind[home] == int(NodeKind.UNATTRIBUTED)) & (draft.activities["launch_id"].to_numpy() >= 0)


def _with_ends(draft: Draft, process: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each turn (ns) with what stands outside ranges in nearly every gap alike: the end of such a gap
    that also stands before the first turn begins the next one (a lookup), the rest ends the one before (a head)."""
    order, constants = np.argsort(start, kind="stable"), draft.constants
    begins, ends = start[order], end[order]
    if len(start) < max(2, constants.fewest_turns) or (process != process[0]).any() or (begins[1:] < ends[:-1]).any():
        return start, end
    activities, launches = draft.activities, draft.trace.launches
    kind, name = (activities[column].to_numpy() for column in ("kind", "name_id"))
    is_work = np.isin(kind, (ActivityKind.KERNEL, ActivityKind.GRAPH)) & (activities["launch_id"].to_numpy() >= 0)
    rows = np.flatnonzero(is_work & (activities["process_index"].to_numpy() == process[0]))
    call = activities["launch_id"].to_numpy()[rows]
    at = launches["start_ns"].to_numpy()[call]
    sequence = np.lexsort((activities["start_ns"].to_numpy()[rows], at))
    rows, call, at = rows[sequence], call[sequence], at[sequence]
    first, last = np.searchsorted(at, begins), np.searchsorted(at, ends, side="right")
    gap, symbol = first[1:] - last[:-1], name[rows]
    usual = int(np.median(gap))
    is_usual = gap == usual
    is_small = 0 < usual <= constants.most_ratio * np.median(last - first)
    if not is_small or is_usual.mean() < constants.alike_ratio or not _is_loose(draft)[rows[last[0] : first[1]]].all():
        return start, end
    gaps = symbol[last[:-1][is_usual, None] + np.arange(usual)]
    if (gaps == gaps[0]).all(axis=1).mean() < constants.alike_ratio:
        return start, end
    known, head = gaps[len(gaps) // 2][::-1], symbol[max(first[0] - usual, 0) : first[0]][::-1]
    lead = int(np.argmin(np.append(head == known[: len(head)], False)))
    if first[0] and not lead:
        return start, end  # what begins a turn is not known
    stop = np.append(first[1:] - lead, min(last[-1] + usual - lead, len(at)))
    stop[:-1][~is_usual] = last[:-1][~is_usual]
    begin = np.append(first[0] - lead, np.where(is_usual, stop[:-1], first[1:]))
    start, end = start.copy(), end.copy()
    start[order] = np.minimum(begins, at[np.minimum(begin, len(at) - 1)])
    end[order] = np.maximum(ends, launches["end_ns"].to_numpy()[call[np.maximum(stop - 1, 0)]])
    return start, end


def _with_loose_work(draft: Draft) -> Draft:
    """What was launched outside every range during one of the turns lies below it."""
    nodes, activities, turns = draft.nodes, draft.activities, draft.turns
    node, parent = draft.node.copy(), nodes["parent_id"].to_numpy().copy()
    launch_id = activities["launch_id"].to_numpy()
    is_graph = draft.column("kind")[node] == int(NodeKind.GRAPH)
    rows = np.flatnonzero(_is_loose(draft))
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
