"""Trace → Tree, step "how much": device time rolled up from activities to nodes, level by level.

Definitions (docs/glossary.md): kernel time is a sum; busy time the length of the union of device
intervals; projection the first start … last end of work launched on the range's own thread inside it.
Each roll-up is one pass per depth of the tree, from the deepest up; nothing is recursive.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from xsp_post.arrays import deep_unions
from xsp_post.arrays.forest import forest_of

_DEEP = 300  # from here on passes per depth cost more


def add_up(values: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Inclusive sums: each node's value plus those of its descendants; int64, shape (nodes,)."""
    total = values.astype(np.int64)  # a copy
    return forest_of(parent).add_up(total) if total.any() else total


def rows_by_depth(depth: np.ndarray) -> list[np.ndarray]:
    """Rows of each depth 0…max, ascending."""
    deepest = int(depth.max(initial=-1))
    # of 16-bit numbers NumPy's stable sort is a radix sort: linear
    order = np.argsort(depth.astype(np.int16) if deepest < 2**15 else depth, kind="stable")
    bounds: list[int] = np.cumsum(np.bincount(depth, minlength=deepest + 1)).tolist() if len(depth) else []
    return [order[a:b] for a, b in pairwise([0, *bounds])]


def sums_per_node(node: np.ndarray, values: np.ndarray, node_count: int) -> np.ndarray:
    """Exact int64 sums of activity values per node; shape (nodes,)."""
    result = np.zeros(node_count, np.int64)
    np.add.at(result, node, values.astype(np.int64, copy=False))  # five times as fast as a weighted bincount
    return result


def busy_and_extent(
    node: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    parent: np.ndarray,
    depth: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Union length, first start and last end of the device work at or below each node (−1 where none).

    ``start`` must be ascending (sort activities once). Shapes: activities in, (nodes,) out. One pass per
    depth from the deepest up; what goes up from a node is its merged stretches, not its activities, so that
    the passes get shorter.
    """
    node_count = len(parent)
    busy = np.zeros(node_count, np.int64)
    first = np.full(node_count, -1, np.int64)
    last = np.full(node_count, -1, np.int64)
    if not len(node):
        return busy, first, last
    depth_of = depth[node]
    if int(depth_of.max()) > _DEEP:
        own_node, low, high = merged_stretches(node, start, end)
        found = deep_unions.of_stretches(own_node, low, high, parent, depth)
        if found is not None:
            return found
    carried = (np.zeros(0, node.dtype), np.zeros(0, np.int64), np.zeros(0, np.int64))
    for level in range(int(depth_of.max()), -1, -1):
        here = np.flatnonzero(depth_of == level)
        if len(here) == len(node):
            group, s, e = node, start, end
        elif len(here):
            group = np.concatenate([node[here], carried[0]])
            s, e = np.concatenate([start[here], carried[1]]), np.concatenate([end[here], carried[2]])
            order = np.argsort(s, kind="stable")
            group, s, e = group[order], s[order], e[order]
        else:
            group, s, e = carried
        if not len(group):
            continue
        stretch_node, low, high = merged_stretches(group, s, e)
        edge = np.flatnonzero(np.r_[True, stretch_node[1:] != stretch_node[:-1]])
        nodes = stretch_node[edge]
        busy[nodes] = np.add.reduceat(high - low, edge)
        first[nodes] = low[edge]
        last[nodes] = high[np.r_[edge[1:] - 1, len(high) - 1]]
        if level:
            order = np.argsort(low, kind="stable")
            carried = parent[stretch_node[order]], low[order], high[order]
    return busy, first, last


def merged_stretches(
    group: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Disjoint stretches that the intervals of each group cover: (group, start, end), by group, then start.

    ``start`` must be ascending; touching intervals merge.
    """
    if not (group[1:] >= group[:-1]).all():
        order = np.argsort(group, kind="stable")
        group, start, end = group[order], start[order], end[order]
        del order
    begins = np.r_[True, group[1:] != group[:-1]]
    first = np.flatnonzero(begins)
    low = start[first]
    # shift each group to a range of its own, so that one running maximum serves all of them
    span = np.maximum.reduceat(end, first) - low + 1
    shift = np.repeat(np.r_[0, np.cumsum(span)[:-1]] - low, np.diff(np.r_[first, len(group)]))
    reach = end + shift  # in place from here on: this is where a tree of a million kernels needs most memory
    np.maximum.accumulate(reach, out=reach)
    reach -= shift
    del shift
    begins[1:] |= start[1:] > reach[:-1]
    at = np.flatnonzero(begins)
    return group[at], start[at], reach[np.r_[at[1:] - 1, len(group) - 1]]
