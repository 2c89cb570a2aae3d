"""Trace → Tree, step "how much": device time rolled up from activities to nodes, level by level.

Definitions (docs/glossary.md): kernel time is a sum; busy time the length of the union of device
intervals; projection the first start … last end of work launched on the range's own thread inside it.
Each roll-up is one pass per depth of the tree, from the deepest up; nothing is recursive.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xsp_post.arrays.cutting import distinct, runs
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import grouped_union

_DEEP = 300  # from here on passes per depth cost more
_SLICE = 1 << 16  # activities whose unions are made at a time
_TIMES = np.iinfo(np.int64)


def add_up(values: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Inclusive sums: each node's value plus those of its descendants; int64, shape (nodes,)."""
    return forest_of(parent).add_up(values) if values.any() else values.astype(np.int64)


def holds(mask: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Which nodes are in ``mask``, or have a descendant that is."""
    return mask | forest_of(parent).around(mask)


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
    if values.any():  # by numbers of the pointer's size: by others it takes twice as long
        np.add.at(result, node.astype(np.intp, copy=False), values.astype(np.int64, copy=False))
    return result


def busy_and_extent(
    node: np.ndarray, start: np.ndarray, end: np.ndarray, parent: np.ndarray, depth: np.ndarray,
    order: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Union length, first start and last end of the device work at or below each node (−1 where none).

    ``order``: the activities by start; none where they are in that order. Shapes: activities in, (nodes,) out. Time is
    cut in slices, what runs across a cut being in both: their unions add up, and the passes of a slice need little
    memory.
    """
    busy = np.zeros(len(parent), np.int64)
    first, last = np.full(len(parent), _TIMES.max), np.full(len(parent), _TIMES.min)
    count = len(node) if order is None else len(order)
    if count and int(depth.max()) > _DEEP and int(depth[node].max()) > _DEEP:
        rows = slice(None) if order is None else order
        found = of_stretches(*grouped_union(node[rows], start[rows], end[rows]), parent, depth)
        if found is not None:
            return found
    at = 0
    size = _SLICE if (end >= start).all() else count  # what ends before it starts has no part in a slice
    running = (node[:0], start[:0], end[:0])
    while at < count:
        stop = min(at + max(size, len(running[0])), count)
        rows = slice(at, stop) if order is None else order[at:stop]
        group, s, e = (np.concatenate(parts) for parts in zip(running, (node[rows], start[rows], end[rows])))
        if stop < count:
            cut = start[stop if order is None else order[stop]]
            goes_on = np.flatnonzero(e > cut)
            running = group[goes_on], np.full(len(goes_on), cut), e[goes_on]
            e = np.minimum(e, cut)
        for nodes, length, low, high in _amounts_by_depth(group, s, e, parent, depth):
            busy[nodes] += length
            first[nodes] = np.minimum(first[nodes], low)
            last[nodes] = np.maximum(last[nodes], high)
        at = stop
    nothing = first == _TIMES.max
    first[nothing] = last[nothing] = -1
    return busy, first, last


def _amounts_by_depth(
    node: np.ndarray, start: np.ndarray, end: np.ndarray, parent: np.ndarray, depth: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Nodes of one depth with the union length, first start and last end of what is at or below them; from the deepest
    up. What goes up from a node is its merged stretches, not its activities, so that the passes get shorter."""
    depth_of = depth[node]
    carried = (node[:0], start[:0], end[:0])
    for level in range(int(depth_of.max()), -1, -1):
        here = np.flatnonzero(depth_of == level)
        if len(here) == len(node):
            group, s, e = node, start, end
        elif len(here):
            group = np.concatenate([node[here], carried[0]])
            s, e = np.concatenate([start[here], carried[1]]), np.concatenate([end[here], carried[2]])
        else:
            group, s, e = carried
        if not len(group):
            continue
        stretch_node, low, high = grouped_union(group, s, e)
        edge = np.flatnonzero(np.r_[True, stretch_node[1:] != stretch_node[:-1]])
        yield stretch_node[edge], np.add.reduceat(high - low, edge), low[edge], high[np.r_[edge[1:] - 1, len(high) - 1]]
        carried = parent[stretch_node], low, high


Int = NDArray[np.integer]
_NONE = np.iinfo(np.int64).max
MOST_PIECES = 50_000_000  # of more (much that runs at once), passes per depth need less memory


def of_stretches(node: Int, low: Int, high: Int, parent: Int, depth: Int) -> tuple[Int, Int, Int] | None:
    """As `rollup.busy_and_extent`, of each node's own work as disjoint stretches. None: too many pieces."""
    points = distinct(np.concatenate([low, high]))
    begin, end = np.searchsorted(points, low), np.searchsorted(points, high)
    if (end - begin).sum() > MOST_PIECES:
        return None
    forest, count = forest_of(parent), len(parent)
    position = forest.positions()
    which, piece = runs(begin, end)
    owner = position[node][which]
    length = np.diff(points)
    own = np.zeros(count, np.int64)
    np.add.at(own, owner, length[piece])
    order = np.lexsort((owner, piece))
    piece, owner = piece[order], owner[order]
    again = np.flatnonzero(piece[1:] == piece[:-1])
    meeting = _meetings(owner[again], owner[again + 1], parent, depth, position)
    has = meeting >= 0
    np.subtract.at(own, meeting[has], length[piece[again[has]]])
    running = np.concatenate([[0], np.cumsum(own)])
    first, last = np.full(count, _NONE), np.full(count, -1)
    np.minimum.at(first, position[node], low)
    np.maximum.at(last, position[node], high)
    first, last = range_minima(first, position, forest.stop), -range_minima(-last, position, forest.stop)
    return running[forest.stop] - running[position], np.where(first == _NONE, -1, first), last


def _meetings(one: Int, other: Int, parent: Int, depth: Int, position: Int) -> Int:
    """Position of the nearest common ancestor of positions ``one`` < ``other``, −1 for none: the parent of the
    highest node behind the one and up to the other."""
    if not len(one):
        return np.zeros(0, np.int64)
    count = len(parent)
    above, key = np.full(count, -1, np.int64), np.empty(count, np.int64)
    above[position] = np.where(parent >= 0, position[parent], -1)
    key[position] = depth.astype(np.int64) * count + position
    return above[range_minima(key, one + 1, other + 1) % count]


def range_minima(values: Int, first: Int, stop: Int) -> Int:
    """The smallest of ``values[first:stop]`` for each stretch; none is empty."""
    result = np.empty(len(first), values.dtype)
    level = np.frexp(stop - first)[1] - 1  # of the largest power of two that is not longer
    deepest = int(level.max(initial=0))
    for k in range(deepest + 1):
        rows = np.flatnonzero(level == k)
        result[rows] = np.minimum(values[first[rows]], values[stop[rows] - (1 << k)])
        if k < deepest:
            values = np.minimum(values[: -(1 << k)], values[1 << k :])
    return result
