"""Union length and extent of the work at or below each node of a deep tree: no pass per depth.

The time is cut where any stretch begins or ends. A piece that k nodes cover counts k times when sums are added up;
it is taken away once where each two neighbours of the k (in pre-order) have their nearest common ancestor. What
remains at and above any node is one for each piece that is covered below it.
"""

import numpy as np
from numpy.typing import NDArray

from xsp_post.arrays.forest import forest_of

Int = NDArray[np.integer]
_NONE = np.iinfo(np.int64).max
MOST_PIECES = 50_000_000  # of more (much that runs at once), passes per depth need less memory


def of_stretches(node: Int, low: Int, high: Int, parent: Int, depth: Int) -> tuple[Int, Int, Int] | None:
    """As `rollup.busy_and_extent`, of each node's own work as disjoint stretches. None: too many pieces."""
    points = np.unique(np.concatenate([low, high]))
    begin, size = np.searchsorted(points, low), np.searchsorted(points, high) - np.searchsorted(points, low)
    total = int(size.sum())
    if total > MOST_PIECES:
        return None
    forest, count = forest_of(parent), len(parent)
    position = forest.positions()
    piece = np.repeat(begin - (np.cumsum(size) - size), size) + np.arange(total)
    owner = np.repeat(position[node], size)
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
