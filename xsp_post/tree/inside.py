"""Trace → Tree, step "ranges that hold no layers": repeated blocks inferred inside recorded ranges.

A phase, a compiled region or a model with much device work, but without ranges that are layers, is not the end:
what repeats inside it is found as it is outside ranges. The blocks hang below the range and count as layers;
ranges recorded inside a block (attention) are parts of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths, nest
from xsp_post.arrays.texts import Strings
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.inferred import launch_columns, with_calls_inside, with_new_nodes, without_layers_in_blocks
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.operator_blocks import name_by_operators, open_operators

if TYPE_CHECKING:
    from xsp_post.tree.structure import Inference

# A range is looked into where its layers hold less than this of its device time, …
_LEAST_IN_LAYERS = 0.5
# … and what is found is kept where blocks hold at least this of it.
_LEAST_IN_BLOCKS = 0.5
# A range taken for a layer is looked into when it is a phase or a compiled region, or its name holds this share of all
# work.
_LARGE = 0.2
_MOST_DEPTH = 16


@dataclass
class Inside:
    """Nodes, activities and strings with the blocks in their place; what is known of the new nodes (none: nothing
    was changed)."""

    nodes: pd.DataFrame
    activities: pd.DataFrame
    strings: Strings
    known: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(INFERRED_COLUMNS)))


def infer_inside_ranges(
    trace: Trace,
    names: NodeNames,
    nodes: pd.DataFrame,
    activities: pd.DataFrame,
    strings: Strings,
    turns: np.ndarray,
) -> Inside:
    """Blocks inside the ranges, and the ``turns`` of ranges (nodes), that hold much device work and no layers."""
    nothing = Inside(nodes, activities, strings)
    operators = open_operators(names, nodes, activities)
    is_turn = np.zeros(len(nodes), bool)
    is_turn[turns] = True
    home_of_node = _hollow(names, nodes, activities, operators, is_turn)
    kind, node = activities["kind"].to_numpy(), activities["node_id"].to_numpy()
    launch_id = activities["launch_id"].to_numpy()
    working = (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)
    rows = np.flatnonzero(working & (home_of_node[node] >= 0) & (launch_id >= 0))
    if not len(rows):
        return nothing
    from xsp_post.tree.structure import infer_inside

    frame = launch_columns(trace, activities, rows)
    homes, owner = np.unique(home_of_node[node[rows]], return_inverse=True)
    series, phases = _kinds(names, nodes, homes)
    found, home_of_iteration = infer_inside(frame, trace.strings, owner, series, phases)
    found, home = _worth_keeping(found, homes[home_of_iteration], frame, node[rows])
    if not len(found.nodes):
        return nothing
    duration = (activities["end_ns"] - activities["start_ns"]).to_numpy()[rows]
    name_by_operators(found.nodes, found.node_of_launch, node[rows], duration, operators, names, nodes)
    _match_gradients(found.nodes, home, names, nodes)
    return _inserted(trace, names, nothing, found, home, rows, operators)


# ---------------------------------------------------------------- which ranges


def _hollow(
    names: NodeNames, nodes: pd.DataFrame, activities: pd.DataFrame, operators: np.ndarray, is_turn: np.ndarray
) -> np.ndarray:
    """For each node the recorded range to be looked into that it lies in (or is), −1 none; int64 (nodes,)."""
    level, kind = nodes["level"].to_numpy(), nodes["kind"].to_numpy()
    parent = nodes["parent_id"].to_numpy()
    count = len(nodes)
    length = np.maximum(activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy(), 0)
    node, what = activities["node_id"].to_numpy(), activities["kind"].to_numpy()
    is_kernel = (what == ActivityKind.KERNEL) | (what == ActivityKind.GRAPH)
    own = rollup.sums_per_node(node[is_kernel], length[is_kernel], count)
    recorded = kind <= int(NodeKind.ANNOTATION)
    is_model = (level == int(Level.MODEL)) & (recorded | is_turn)
    is_layer = (level == int(Level.LAYER)) & ~operators
    held = rollup.add_up(own, parent)
    open_layer = is_layer & recorded & _may_hide_layers(names, nodes, held)
    if not (is_model | open_layer).any():
        return np.full(count, -1, np.int64)
    in_closed = layering.inherit(np.where(is_layer, np.where(open_layer, 0, 1), -1), parent) == 1
    in_layers = rollup.add_up(np.where(in_closed, own, 0), parent)
    is_open = (is_model | open_layer) & (in_layers < _LEAST_IN_LAYERS * np.maximum(held, 1))
    if not is_open.any():
        return np.full(count, -1, np.int64)
    from xsp_post.tree.structure.constants import DEFAULTS

    inside_count = rollup.add_up(np.bincount(node[is_kernel], minlength=count), parent)
    is_open &= inside_count >= DEFAULTS.fewest_launches
    # the phases of a step rather than the step
    around = rollup.holds(is_open & open_layer, parent)
    in_open = rollup.add_up(np.where(is_open & open_layer, held, 0), parent)
    is_open &= open_layer | ~around | (in_open < _LEAST_IN_LAYERS * held)
    is_open = forest_of(parent).outermost_around(is_open) == np.arange(count)
    part = np.flatnonzero(recorded & ~operators & (inside_count >= DEFAULTS.fewest_launches) & (parent >= 0))
    part = part[~in_closed[part] & (in_layers[part] < _LEAST_IN_LAYERS * held[part])]
    _open_the_parts(nodes, is_open, part, held)
    return forest_of(parent).outermost_around(is_open)


def _open_the_parts(nodes: pd.DataFrame, is_open: np.ndarray, part: np.ndarray, held: np.ndarray) -> None:
    """Where different ranges, one of each name, hold most of an open range, they are open instead of it
    (``is_open`` is changed in place): blocks do not reach from one of them into the next. part: nodes that can be."""
    parent, folded = nodes["parent_id"].to_numpy(), nodes["folded_id"].to_numpy().astype(np.int64)
    _, which, often = np.unique(
        parent[part].astype(np.int64) * (int(folded.max(initial=0)) + 1) + folded[part],
        return_inverse=True, return_counts=True,
    )  # fmt: skip
    part = part[often[which] == 1]
    for _ in range(_MOST_DEPTH):
        inner = part[is_open[parent[part]]]
        in_parts = rollup.sums_per_node(parent[inner], held[inner], len(parent))
        inner = inner[in_parts[parent[inner]] >= _LEAST_IN_LAYERS * held[parent[inner]]]
        if not len(inner):
            return
        is_open[parent[inner]] = False
        is_open[inner] = True


def _may_hide_layers(names: NodeNames, nodes: pd.DataFrame, held: np.ndarray) -> np.ndarray:
    """Layers by their place alone: phases, compiled regions, and plain ranges that hold most of all work; bool."""
    plain = names.node_is("role", "", "iteration", "model") & names.node_is("dialect", "plain")
    folded = nodes["folded_id"].to_numpy()
    of_name = np.bincount(folded[plain], weights=held[plain], minlength=int(folded.max(initial=0)) + 1)
    large = of_name[folded] >= _LARGE * max(int(held[0]), 1)
    return names.node_is("role", "phase") | names.node_is("dialect", "torch_compile") | (plain & large)


def _kinds(names: NodeNames, nodes: pd.DataFrame, homes: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Number of the kind of each range (folded path below its root), and the phase that each kind is."""
    paths, _ = layering.path_ids(
        nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy(), nodes["folded_id"].to_numpy(),
        np.zeros(len(nodes), bool),
    )  # fmt: skip
    series, first = pd.factorize(paths[homes])
    phase = names.node_text("phase", homes)
    shown = [str(phase[np.flatnonzero(series == number)[0]]) for number in range(len(first))]
    return series, [text if text in ("forward", "backward", "optimizer") else "" for text in shown]


# ---------------------------------------------------------------- what is kept


def _worth_keeping(
    found: Inference, home: np.ndarray, launches: pd.DataFrame, recorded: np.ndarray
) -> tuple[Inference, np.ndarray]:
    """The inference without its iterations (the ranges stand for them) and without what does not cover enough of its
    range; and the range that each remaining outermost node hangs below. home: the range that holds each iteration."""
    nodes = found.nodes
    if not len(nodes):
        return found, np.zeros(0, np.int64)
    iteration = nodes["iteration_index"].to_numpy()
    is_top = (nodes["kind"] == "iteration").to_numpy()
    length = np.maximum(launches["end_ns"].to_numpy() - launches["start_ns"].to_numpy(), 0).astype(float)
    at = found.node_of_launch
    placed = at >= 0
    total = np.bincount(iteration[at[placed]], weights=length[placed], minlength=len(home))
    parent = nodes["parent"].to_numpy()
    in_block = np.where((nodes["kind"] == "block") & (nodes["level"] == "LAYER"), 1, np.where(is_top, 0, -1))
    in_block = layering.inherit(in_block, parent) == 1
    chosen = placed.copy()
    chosen[placed] = in_block[at[placed]]
    covered = np.bincount(iteration[at[chosen]], weights=length[chosen], minlength=len(home))
    keeps = covered >= _LEAST_IN_BLOCKS * np.maximum(total, 1)
    keep = keeps[np.maximum(iteration, 0)] & (iteration >= 0) & ~is_top
    number = np.full(len(nodes) + 1, -1, np.int64)
    number[:-1][keep] = np.arange(int(keep.sum()))
    kept = nodes[keep].reset_index(drop=True)
    kept["parent"] = number[parent[keep]]
    kept["confidence"] = kept["confidence"].to_numpy(float)
    return replace(found, nodes=kept, node_of_launch=number[at], findings=[]), home[iteration[keep]]


def _match_gradients(found: pd.DataFrame, home: np.ndarray, names: NodeNames, nodes: pd.DataFrame) -> None:
    """Block k of n in a backward range belongs to block n + 1 − k of the forward range of the same step, where that
    has n too (``matched_block_index``, in place)."""
    phase = names.node_text("phase", home)
    parent_of_range = nodes["parent_id"].to_numpy()[home]
    top = (found["parent"].to_numpy() < 0) & (found["kind"] == "block").to_numpy()
    count, index = found["block_count"].to_numpy(), found["block_index"].to_numpy()
    most = pd.DataFrame({"parent_of_range": parent_of_range[top], "phase": phase[top], "count": count[top]})
    most = most.groupby(["parent_of_range", "phase"])["count"].max().unstack(fill_value=0)
    if not {"forward", "backward"} <= set(most.columns):
        return
    both = (
        most["forward"].where(most["forward"] == most["backward"], 0).reindex(parent_of_range, fill_value=0).to_numpy()
    )
    matched = top & (phase == "backward") & (count == both) & (both > 0)
    found["matched_block_index"] = np.where(matched, count + 1 - index, found["matched_block_index"])


# ---------------------------------------------------------------- into the tree


def _inserted(
    trace: Trace,
    names: NodeNames,
    before: Inside,
    found: Inference,
    home: np.ndarray,
    rows: np.ndarray,
    operators: np.ndarray,
) -> Inside:
    nodes, strings = with_new_nodes(trace, names, before.nodes, found.nodes, home, before.strings)
    first = len(before.nodes)
    activities = before.activities
    node, launch_node = activities["node_id"].to_numpy().copy(), activities["launch_node_id"].to_numpy().copy()
    placed = found.node_of_launch >= 0
    at, target = rows[placed], first + found.node_of_launch[placed]
    direct = node[at] == home[found.node_of_launch[placed]]
    moved = at[direct]
    launch_node[moved] = np.where(launch_node[moved] == node[moved], target[direct], launch_node[moved])
    node[moved] = target[direct]
    is_home = np.zeros(len(nodes), bool)
    is_home[home] = True
    if (~direct).any():
        nodes = with_calls_inside(nodes, node[at[~direct]], target[~direct], np.unique(home))
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    level = without_layers_in_blocks(nodes, first, (found.nodes["kind"] == "stretch").to_numpy(), operators)
    # a layer that holds blocks groups them
    groups = rollup.holds(is_home, nodes["parent_id"].to_numpy()) & (level == int(Level.LAYER))
    level[groups & (np.arange(len(nodes)) < first)] = int(Level.MODULE)
    nodes["level"] = level
    activities = activities.assign(node_id=node, launch_node_id=launch_node)
    _place_copies(trace, nodes, activities, is_home, first)
    known = found.nodes.assign(node_id=first + np.arange(len(found.nodes)))[list(INFERRED_COLUMNS)]
    return Inside(nodes, activities, strings, known)


def _place_copies(trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, is_home: np.ndarray, first: int) -> None:
    """Copies and memsets launched in a block by its own thread are the block's (activities changed in place)."""
    kind, node = activities["kind"].to_numpy(), activities["node_id"].to_numpy()
    launch_id = activities["launch_id"].to_numpy()
    is_copy = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    rows = np.flatnonzero(is_copy & is_home[node] & (launch_id >= 0))
    if not len(rows):
        return
    new = np.arange(first, len(nodes))
    thread, start, end = (nodes[c].to_numpy()[new] for c in ("thread_index", "start_ns", "end_ns"))
    launches = trace.launches
    at = (launches[c].to_numpy()[launch_id[rows]].astype(np.int64) for c in ("thread_index", "start_ns", "end_ns"))
    inside = nest(thread.astype(np.int64), start, end).innermost(*at)
    hit = inside >= 0
    node = node.copy()
    node[rows[hit]] = new[inside[hit]]
    activities["node_id"] = node
