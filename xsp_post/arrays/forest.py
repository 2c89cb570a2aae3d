"""Parents of nodes → sums below, what is inside or around, nearest marked ancestors: linear for any depth.

The nodes are numbered in pre-order (a node, then all below it), so that everything below a node is one stretch of
numbers: sums over it are a difference of two running sums. Nothing loops over depths.
"""

from threading import Lock

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.integer]
Bool = NDArray[np.bool_]


class Forest:
    """Trees given by the parent of each node (−1 roots), in any order; no circles. All results: shape (nodes,); numbers
    of nodes and depths are int32, as in the frames of a tree."""

    def __init__(self, parent: Int) -> None:
        parent = parent.astype(np.int32, copy=False)
        self.stop = _stops(parent)
        self.is_ordered = _is_preorder(parent, self.stop)
        self.first: Int | None = None  # position of each node, none where that is its number
        if not self.is_ordered:
            size = _sizes(parent)
            self.first = _preorder(parent, size)
            self.stop = self.first + size
        self._inner = np.flatnonzero(self.stop > self.positions() + 1)  # the nodes that others hang below: few

    def add_up(self, values: np.ndarray) -> Int:
        """Inclusive sums: each node's value plus those of its descendants; exact."""
        running = np.zeros(len(self.stop) + 1, np.int64)
        np.cumsum(self._ordered(values), out=running[1:])
        total = values.astype(np.int64)
        total[self._inner] = running[self.stop[self._inner]] - running[self.positions(self._inner)]
        return total

    def add_down(self, values: np.ndarray) -> np.ndarray:
        """Each node's value plus those of its ancestors, of the type of the values (which may overflow)."""
        ended = np.zeros(len(values) + 1, values.dtype)
        np.add.at(ended, self.stop, values)
        sums = np.cumsum(self._ordered(values)) - np.cumsum(ended[:-1])
        return sums if self.is_ordered else sums[self.positions()]

    def depth(self) -> Int:
        """0 for roots."""
        depth = _open_count(self.stop)
        return depth if self.is_ordered else depth[self.positions()]

    def inside(self, mask: Bool) -> Bool:
        """Which nodes have an ancestor (not themselves) in ``mask``."""
        rows = self._inner[mask[self._inner]]
        if not len(rows):
            return np.zeros(len(mask), bool)
        open_count = np.zeros(len(mask) + 1, np.int32)
        open_count[self.positions(rows) + 1] = 1
        np.subtract.at(open_count, self.stop[rows], np.int32(1))
        is_open = np.cumsum(open_count[:-1], dtype=np.int32) > 0
        return is_open if self.is_ordered else is_open[self.positions()]

    def around(self, mask: Bool) -> Bool:
        """Which nodes have a descendant (not themselves) in ``mask``."""
        if not mask.any():
            return np.zeros(len(mask), bool)
        running = np.zeros(len(mask) + 1, np.int32)
        np.cumsum(self._ordered(mask), out=running[1:], dtype=np.int32)
        result = np.zeros(len(mask), bool)
        result[self._inner] = running[self.stop[self._inner]] > running[self.positions(self._inner) + 1]
        return result

    def nearest(self, mask: Bool) -> Int:
        """The nearest node at or above each node that is in ``mask``, −1 none."""
        count = len(mask)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return np.full(count, -1, np.int32)
        if not self.is_ordered:
            rows = rows[np.argsort(self.positions(rows), kind="stable")]
        first, stop = self.positions(rows), self.stop[rows]
        around = _nearest_open(first, stop)
        # where a stretch begins its node is the nearest, where it ends again the one around it
        change = np.full(count + 1, -1, np.int32)
        change[stop[::-1]] = len(rows) + np.arange(len(rows))[::-1]  # of several that end the outermost counts
        change[first] = np.arange(len(rows))
        at = np.flatnonzero(change[:-1] >= 0)
        node = np.concatenate([rows, np.where(around >= 0, rows[around], -1)]).astype(np.int32)[change[at]]
        result = np.full(count, -1, np.int32)
        result[at[0] :] = np.repeat(node, np.diff(np.append(at, count)))
        return result if self.is_ordered else result[self.positions()]

    def outermost_around(self, mask: Bool) -> Int:
        """The outermost node at or above each node that is in ``mask``, −1 none."""
        return self.nearest(mask & ~self.inside(mask))

    def positions(self, rows: Int | slice = slice(None)) -> Int:
        """Position of each node in pre-order."""
        if self.first is not None:
            return self.first[rows]
        return np.arange(len(self.stop), dtype=np.int32) if isinstance(rows, slice) else rows

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        if self.is_ordered:
            return values
        result = np.empty(len(values), values.dtype)
        result[self.positions()] = values
        return result


def _stops(parent: Int) -> Int:
    """One after the last descendant of each node, if the nodes are in pre-order: the last child's last child's …"""
    last = np.arange(len(parent))  # looked up by: numbers of the pointer's size take a third of the time
    child = np.flatnonzero(parent >= 0)
    last[parent[child]] = child  # of several the last one counts
    rows = np.flatnonzero(last != np.arange(len(parent)))
    at = last[rows]
    for _ in range(len(parent).bit_length()):
        further = last[at]
        if np.array_equal(further, at):
            break
        last[rows] = at = further
    return (last + 1).astype(np.int32)


def _open_count(stop: Int) -> Int:
    """By position: how many stretches around it have not ended."""
    ended = np.cumsum(np.bincount(stop, minlength=len(stop) + 1)[:-1], dtype=np.int32)
    return np.subtract(np.arange(len(stop), dtype=np.int32), ended, out=ended)


def _is_preorder(parent: Int, stop: Int) -> bool:
    """Whether all below each node, and nothing else, lies in its stretch: stretches lie in those of their parents, and
    no node lies in more of them than it has ancestors."""
    child = parent >= 0
    above = np.maximum(parent, 0)
    if not len(parent) or not (above[1:] < np.arange(1, len(parent), dtype=np.int32)).all() or child[0]:
        return not len(parent)
    depth = _open_count(stop)
    return bool((np.where(child, depth[above] + 1, 0) == depth).all() and (~child | (stop <= stop[above])).all())


def _sizes(parent: Int) -> Int:
    """Nodes at and below each node, in as many passes as the logarithm of the depth.

    After pass k a node has counted itself and what lies less than 2**k below it; `above` is the ancestor at that
    distance.
    """
    size = np.ones_like(parent)
    rows = np.flatnonzero(parent >= 0)
    above = parent
    while len(rows):
        np.add.at(size, above[rows], size[rows])
        further = np.full_like(parent, -1)
        further[rows] = above[above[rows]]
        above = further
        rows = rows[above[rows] >= 0]
    return size


def _preorder(parent: Int, size: Int) -> Int:
    """Position of each node in pre-order; siblings in order of their numbers."""
    order = np.argsort(parent, kind="stable")
    passed = np.cumsum(size[order], dtype=np.int32) - size[order]  # by siblings before, and by all of earlier families
    begins = np.r_[True, parent[order][1:] != parent[order][:-1]] if len(order) else np.zeros(0, bool)
    families = np.flatnonzero(begins)
    passed -= np.repeat(passed[families], np.diff(np.append(families, len(order))))
    first = np.empty_like(parent)
    first[order] = passed + (parent[order] >= 0)
    above = parent.copy()
    rows = np.flatnonzero(above >= 0)
    while len(rows):
        source = above[rows]
        first[rows] += first[source]
        above[rows] = above[source]
        rows = rows[above[rows] >= 0]
    return first


def _nearest_open(first: Int, stop: Int) -> Int:
    """For stretches in pre-order the nearest earlier one that has not ended, −1 none."""
    if (stop[:-1] <= first[1:]).all():
        return np.full(len(first), -1, np.int64)
    pointer = np.arange(-1, len(first) - 1)
    rows = np.flatnonzero(pointer >= 0)
    while len(rows):
        source = pointer[rows]
        ended = stop[source] <= first[rows]
        rows = rows[ended]
        pointer[rows] = pointer[source[ended]]
        rows = rows[pointer[rows] >= 0]
    return pointer


_KEPT = 3  # forests of a capture: its spans, its nodes, those of single threads
_known: list[tuple[np.ndarray, Forest]] = []
_lock = Lock()


def forget_forests() -> None:
    """Give back the memory of forests that no step asks for any more."""
    with _lock:
        _known.clear()


def forest_of(parent: np.ndarray) -> Forest:
    """The forest of these parents: of equal arrays the same one, since many steps ask for it."""
    with _lock:
        known = list(_known)
    for mine, forest in known:
        if len(mine) == len(parent) and np.array_equal(mine, parent):
            return forest
    mine = parent.astype(np.int32)
    forest = Forest(mine)
    with _lock:
        _known.insert(0, (mine, forest))
        del _known[_KEPT:]
    return forest
