"""Trace → Tree, step "how much": device time rolled up from activities to nodes, level by level.

Definitions (NSYS B.2/B.3, DESIGN §3): kernel time is a sum; busy time the length of the union of device
intervals; projection the first start … last end of work launched on the range's own thread inside it.
Each roll-up is one pass per depth of the tree, from the deepest up; nothing is recursive.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from xsp_post.intervals import grouped_union_length


def add_up(values: np.ndarray, parent: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Inclusive sums: each node's value plus those of its descendants; int64, shape (nodes,)."""
    total = values.astype(np.int64).copy()
    for rows in rows_by_depth(depth)[:0:-1]:
        # parents of one depth are few and repeated: sum per parent first
        above = parent[rows]
        total += _bincount(above, total[rows], len(total))
    return total


def rows_by_depth(depth: np.ndarray) -> list[np.ndarray]:
    """Rows of each depth 0…max."""
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(int(depth.max(initial=-1)) + 2))
    return [order[a:b] for a, b in pairwise(bounds)]


def _bincount(group: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Exact integer sums per group (`np.bincount` weighs in float64: exact below 2**53, checked)."""
    if len(values) and float(np.abs(values).sum(dtype=np.float64)) >= 2**53:
        result = np.zeros(count, np.int64)
        np.add.at(result, group, values)
        return result
    return np.bincount(group, weights=values, minlength=count).astype(np.int64)


def sums_per_node(node: np.ndarray, values: np.ndarray, node_count: int) -> np.ndarray:
    """Exact int64 sums of activity values per node; shape (nodes,)."""
    return _bincount(node, values, node_count)


def busy_and_extent(
    node: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    parent: np.ndarray,
    depth: np.ndarray,
    *,
    with_busy: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Union length, first start and last end of the device work at or below each node (−1 where none).

    ``start`` must be ascending (sort activities once). Shapes: activities in, (nodes,) out.
    """
    node_count = len(parent)
    busy = np.zeros(node_count, np.int64)
    first = np.full(node_count, -1, np.int64)
    last = np.full(node_count, -1, np.int64)
    if not len(node):
        return busy, first, last
    current = node.copy()
    depth_of = depth[current]
    for level in range(int(depth_of.max()), -1, -1):
        here = np.flatnonzero(depth_of == level)
        whole = len(here) == len(current)
        group = current if whole else current[here]
        s, e = (start, end) if whole else (start[here], end[here])
        order = np.argsort(group, kind="stable")
        ordered = group[order]
        edge = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        nodes = ordered[edge]
        # rows are ascending in start, and the sort is stable: a group's first row starts first
        first[nodes] = s[order[edge]]
        last[nodes] = np.maximum.reduceat(e[order], edge)
        if with_busy:
            busy += grouped_union_length(group, s, e, node_count)
        above = parent[group]
        if whole:
            current, depth_of = above, np.full(len(current), level - 1)
        else:
            current[here] = above
            depth_of[here] = level - 1
    return busy, first, last
