"""Trace → Tree, step "what is one model execution": passes inside a long range, from the period of its launches.

A range like ``benchmark_loop`` holds several passes that nothing marks. What was launched inside the outermost
ranges is one sequence; where it repeats, and every turn lies in one of the ranges, the turns are the executions
and the ranges only stand around them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.arrays.texts import Strings
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, SpanKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS
from xsp_post.tree import layering
from xsp_post.tree.candidates import LEAST_COVERAGE, OUTERMOST, Candidate
from xsp_post.tree.inferred import hints, launch_columns, with_calls_inside, with_new_nodes
from xsp_post.tree.node_names import NodeNames

if TYPE_CHECKING:
    from xsp_post.tree.structure import Inference

_FEWEST_PASSES = 2
# Share of the launches in the ranges that regular turns must hold.
_LEAST_COVERAGE = 0.8
_MOSTLY = 0.5
# A range inside an opened one stands for it where it launched this share of its kernels.
_NEARLY_ALL = 0.9
_MOST_DEPTH = 16


@dataclass
class Passes:
    """Nodes, activities and strings with the passes in their place; what is known of the new nodes, and how many
    passes there are (0: nothing was changed)."""

    nodes: pd.DataFrame
    activities: pd.DataFrame
    strings: Strings
    known: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(INFERRED_COLUMNS)))
    count: int = 0
    around: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # nodes that were opened


def unmarked_models(nodes: pd.DataFrame, activities: pd.DataFrame, chosen: Candidate | None) -> np.ndarray:
    """Which nodes may hold several passes: ranges that are executions (or, without ranges inside, layers) by their
    depth alone. bool per node."""
    level, kind = nodes["level"].to_numpy(), nodes["kind"].to_numpy()
    nothing = np.zeros(len(nodes), bool)
    if chosen is not None and chosen.rule != OUTERMOST:
        return nothing
    recorded = kind <= int(SpanKind.ANNOTATION)
    if chosen is not None:
        return recorded & (level == int(Level.MODEL))
    # no range of ranges: an outermost one that holds most of the device time may be a loop
    length = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    held = rollup.sums_per_node(activities["node_id"].to_numpy(), length, len(nodes))
    plain = (
        recorded
        & (nodes["parent_id"].to_numpy() == 0)
        & (level == int(Level.LAYER))
        & (kind <= int(SpanKind.START_END))
    )
    large = plain & (held >= LEAST_COVERAGE * max(int(length.sum()), 1))
    # the warm-up before a loop holds passes of the same kind
    return large | (plain & large.any() & nodes["is_warmup_text"].to_numpy() & (held > 0))


def open_ranges(
    trace: Trace,
    names: NodeNames,
    nodes: pd.DataFrame,
    activities: pd.DataFrame,
    strings: Strings,
    opened: np.ndarray,
) -> Passes:
    """Look for passes inside the ``opened`` nodes (bool per node, none inside another)."""
    nothing = Passes(nodes, activities, strings, around=np.flatnonzero(opened))
    home = np.where(_innermost_around(nodes, activities, opened), np.arange(len(nodes)), -1)
    home = layering.inherit(home, nodes["parent_id"].to_numpy())
    kind = activities["kind"].to_numpy()
    working = (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)
    rows = np.flatnonzero(working & (home[activities["node_id"].to_numpy()] >= 0))
    if not len(rows):
        return nothing
    from xsp_post.tree.structure import infer

    found = infer(launch_columns(trace, activities, rows), trace.strings, hints=hints(trace))
    of_launch = home[activities["node_id"].to_numpy()[rows]]
    in_ranges = float((activities["node_id"].to_numpy()[rows] != of_launch).mean())
    if in_ranges >= _MOSTLY and not (found.nodes["kind"] == "block").any():
        return nothing  # turns of recorded ranges, each a few of them and nothing that repeats inside: layers
    home_of_found = _homes(found, of_launch)
    if home_of_found is None:
        return nothing
    return _inserted(trace, names, nothing, found, home_of_found, rows)


def _innermost_around(nodes: pd.DataFrame, activities: pd.DataFrame, opened: np.ndarray) -> np.ndarray:
    """The opened nodes, or instead of one the single range in it that launched all but a few of its kernels, and so
    on inwards (`main` → `run`); bool per node."""
    parent, what = nodes["parent_id"].to_numpy(), activities["kind"].to_numpy()
    working = (what == ActivityKind.KERNEL) | (what == ActivityKind.GRAPH)
    own = np.bincount(activities["node_id"].to_numpy()[working], minlength=len(nodes)).astype(np.int64)
    inside = rollup.add_up(own, parent)
    recorded = np.flatnonzero(nodes["kind"].to_numpy() <= int(SpanKind.START_END))
    recorded = recorded[parent[recorded] >= 0]
    whole = recorded[inside[recorded] >= np.maximum(_NEARLY_ALL * inside[parent[recorded]], 1)]
    chosen = opened.copy()
    for _ in range(_MOST_DEPTH):
        inner = whole[chosen[parent[whole]]]
        if not len(inner):
            break
        chosen[parent[inner]] = False
        chosen[inner] = True
    return chosen


def _homes(found: Inference, of_launch: np.ndarray) -> np.ndarray | None:
    """The opened node that each top inferred node lies in; None where the turns are not passes of the ranges."""
    passes = found.iterations
    regular = passes[passes["iteration_class"].isin(["regular", "warm-up"])]
    if len(regular) < _FEWEST_PASSES or regular["launch_count"].sum() < _LEAST_COVERAGE * len(of_launch):
        return None
    parent = found.nodes["parent"].to_numpy()
    top = forest_of(parent).nearest(parent < 0)
    placed = np.flatnonzero(found.node_of_launch >= 0)
    at = top[found.node_of_launch[placed]]
    first = np.full(len(parent), np.iinfo(np.int64).max)
    last = np.full(len(parent), -1)
    np.minimum.at(first, at, of_launch[placed])
    np.maximum.at(last, at, of_launch[placed])
    is_pass = (found.nodes["kind"] == "iteration").to_numpy() & (parent < 0)
    if (first[is_pass] != last[is_pass]).any():
        return None  # a turn that begins in one range and ends in another is none of the program's
    return np.where(last >= 0, last, int(of_launch[0]))[top]


def _inserted(
    trace: Trace, names: NodeNames, before: Passes, found: Inference, home: np.ndarray, rows: np.ndarray
) -> Passes:
    nodes, strings = with_new_nodes(trace, names, before.nodes, found.nodes, home, before.strings)
    first = len(before.nodes)
    activities = before.activities
    kind = activities["kind"].to_numpy()
    has_place = found.node_of_launch >= 0
    placed, target = rows[has_place], first + found.node_of_launch[has_place]
    node, launch_node = activities["node_id"].to_numpy().copy(), activities["launch_node_id"].to_numpy().copy()
    graph = kind[placed] == ActivityKind.GRAPH
    direct = (node[placed] == home[found.node_of_launch[has_place]]) & ~graph
    moved = placed[direct]
    launch_node[moved] = np.where(launch_node[moved] == node[moved], target[direct], launch_node[moved])
    node[moved] = target[direct]
    if (~direct).any():
        nodes = with_calls_inside(nodes, node[placed[~direct]], target[~direct], np.unique(home))
    level = nodes["level"].to_numpy().copy()
    level[np.unique(home)] = level[before.around] = int(Level.APPLICATION)
    parent = nodes["parent_id"].to_numpy()
    depth = depths(parent)
    # what was recorded inside an inferred block is a part of it
    in_block = np.where((level == int(Level.LAYER)) & nodes["is_inferred"].to_numpy(), 1, -1)
    in_block = layering.inherit(in_block, parent) == 1
    recorded = ~nodes["is_inferred"].to_numpy()
    level[in_block & recorded & (level == int(Level.LAYER))] = int(Level.OPERATION)
    nodes = nodes.assign(level=level, depth=depth)
    known = found.nodes.assign(node_id=first + np.arange(len(found.nodes)))[list(INFERRED_COLUMNS)]
    activities = activities.assign(node_id=node, launch_node_id=launch_node)
    return Passes(nodes, activities, strings, known, len(found.iterations))
