"""Arithmetic on int64 time intervals: nesting, containment, union, gaps. NumPy only.

Nesting rule (NVIDIA's `nvtx_gpu_proj_trace`): the parent of a range is the enclosing range of
the same thread with the least slack, `(start−P.start)+(P.end−end)`. Slack is `P`'s length minus a
constant, so the parent is simply the *shortest* enclosing range; among equals the one opened first is
the outer one. For properly nested ranges that is the nearest earlier range whose end is not before
ours, found here by pointer jumping (O((n + climbs)) array operations). Ranges that overlap partially
(start/end ranges may) are looked up exactly, in blocks of sorted ends (`_Crossing`).
Where one range ends in the very nanosecond in which the next one starts, a zero-length query at that
instant belongs to the later range.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xsp_post.arrays.cutting import Keys
from xsp_post.arrays.forest import forest_of

Int = NDArray[np.integer]
_BLOCK = 1 << 16  # intervals whose union is made at once


@dataclass
class Nesting:
    """Ranges of many threads, nested. ``parent`` is in the caller's numbering; the rest is sorted by
    (thread, start, −end, tie) and private to `innermost`."""

    parent: Int  # index of the parent range, −1 for roots; shape (n,)
    crossing_count: int  # ranges that partially overlap an earlier one of their thread
    _order: Int | None  # None: the ranges were given in that order
    _thread: Int
    _start: Int
    _end: Int
    _parent_sorted: Int  # nearest earlier range whose end is not before ours (sorted numbering)
    _cluster: Int  # connected group of overlapping ranges (sorted numbering)
    _cluster_crosses: NDArray[np.bool_]
    _left: Int  # ranges of such clusters that end inside a later one (sorted numbering)

    @cached_property
    def depth(self) -> Int:
        """0 for roots; shape (n,)."""
        return depths(self.parent)

    def overlapping(self) -> Int:
        """Ranges of clusters in which some overlap partially, in the caller's numbering."""
        if not self.crossing_count:
            return np.zeros(0, np.int64)
        return np.sort(self._given(np.flatnonzero(self._cluster_crosses[self._cluster])))

    def _given(self, rows: Int) -> Int:
        """Ranges in the caller's numbering."""
        return rows if self._order is None else self._order[rows]

    def innermost(self, thread: Int, start: Int, end: Int) -> Int:
        """The shortest range of the same thread around each [start, end] (bounds included), −1 for none."""
        found = np.full(len(start), -1, np.int32)
        if not len(start) or not len(self._start):
            return found
        candidate = self._last_started(thread, start)
        hit = np.flatnonzero(candidate >= 0)
        nearest = self._climbed(candidate[hit], end[hit])
        hit, nearest = hit[nearest >= 0], nearest[nearest >= 0]
        if self.crossing_count:
            nearest = _Crossing(self._start, self._end, self._cluster, self._left).shortest(nearest, end[hit])
        found[hit] = self._given(nearest)
        return found

    @cached_property
    def _steps(self) -> list[Int]:
        """From each range the one that lies 1, 2, 4 … steps up its chain, −1 beyond its end."""
        steps = [self._parent_sorted]
        while (steps[-1] >= 0).any():
            steps.append(np.where(steps[-1] >= 0, steps[-1][steps[-1]], np.int32(-1)))
        return steps

    def _climbed(self, candidate: Int, end: Int) -> Int:
        """From each range the nearest one up its chain whose end is not before ``end``, −1 none."""
        rows = np.flatnonzero(self._end[candidate] < end)
        if len(rows):
            below, end = candidate[rows], end[rows]
            for step in reversed(self._steps):
                further = step[below]
                below = np.where((further >= 0) & (self._end[further] < end), further, below)
            candidate[rows] = self._parent_sorted[below]
        return candidate

    def _last_started(self, thread: Int, start: Int) -> Int:
        """Sorted position of the last range of the thread with range.start <= start, −1 for none."""
        count = max(int(self._thread[-1]), int(thread.max())) + 1
        keys = Keys(int(self._start.min()) - 1, int(self._start.max()), count)
        position = np.searchsorted(keys.of(self._thread, self._start), keys.of(thread, start), side="right") - 1
        return np.where((position >= 0) & (self._thread[position] == thread), position, -1)


def nest(thread: Int, start: Int, end: Int, tie: Int | None = None) -> Nesting:
    """Nest ranges per thread. ``thread`` holds dense thread indexes 0…t−1; ``tie`` orders equal intervals
    (opened first = outer), default the given order. All shape (n,)."""
    n = len(start)
    order = _outer_first(thread, start, end, tie)
    s, e, t = (start, end, thread) if order is None else (start[order], end[order], thread[order])
    cluster = clusters(t, s, e)
    pointer, crossing, left = _nearest_enclosing(cluster, s, e)
    crosses = np.zeros(n, bool)  # by cluster
    crosses[cluster[crossing]] = True
    left = left[crosses[cluster[left]]]
    parent_sorted = pointer
    if len(left):
        inner = np.flatnonzero(pointer >= 0)
        parent_sorted = pointer.copy()
        parent_sorted[inner] = _Crossing(s, e, cluster, left).shortest(pointer[inner], e[inner])
    parent = parent_sorted
    if order is not None:
        parent = np.full(n, -1, np.int32)
        has = parent_sorted >= 0
        parent[order[has]] = order[parent_sorted[has]]
    return Nesting(
        parent=parent, crossing_count=int(crossing.sum()), _order=order, _thread=t, _start=s, _end=e,
        _parent_sorted=pointer, _cluster=cluster, _cluster_crosses=crosses, _left=left,
    )  # fmt: skip


def _outer_first(thread: Int, start: Int, end: Int, tie: Int | None) -> Int | None:
    """Sort permutation by (thread, start, −end, tie); None when the input is already in that order."""
    same_thread = thread[1:] == thread[:-1]
    ascending = (thread[1:] > thread[:-1]) | (same_thread & (start[1:] > start[:-1]))
    if ascending.all():
        return None
    return np.lexsort((-end, start, thread) if tie is None else (tie, -end, start, thread))


def _nearest_enclosing(cluster: Int, start: Int, end: Int) -> tuple[Int, NDArray[np.bool_], Int]:
    """For sorted ranges: the nearest earlier range of the cluster whose end is not before ours (−1), whether a range is
    skipped on the way that ends after our start (a partial overlap), and the ranges that are so skipped, or end with
    our start.

    Invariant of the jumping: every range strictly between ``pointer[i]`` and ``i`` ends before ``end[i]``.
    """
    n = len(start)
    begins = np.r_[True, cluster[1:] != cluster[:-1]][:n]
    pointer = np.arange(-1, n - 1, dtype=np.int32)
    pointer[begins] = -1
    # the first step, which most ranges make, looks nothing up
    ended = ~begins[1:] & (end[:-1] < end[1:])
    crossing, left = np.zeros(n, bool), np.zeros(n, bool)
    crossing[1:], left[:-1] = ended & (end[:-1] > start[1:]), ended & (end[:-1] >= start[1:])
    pointer[1:] = np.where(ended, pointer[:-1], pointer[1:])
    active = np.flatnonzero(ended & (pointer[1:] >= 0)) + 1
    while len(active):
        candidate = pointer[active].astype(np.intp)  # NumPy looks up by int32 in three times the time
        ended = end[candidate] < end[active]
        active, candidate = active[ended], candidate[ended]
        crossing[active[end[candidate] > start[active]]] = True
        left[candidate[end[candidate] >= start[active]]] = True
        pointer[active] = pointer[candidate]
        active = active[pointer[active] >= 0]
    return pointer, crossing, np.flatnonzero(left)


def clusters(thread: Int, start: Int, end: Int) -> Int:
    """Number the connected groups of overlapping ranges; sorted input, per thread."""
    new = np.r_[True, thread[1:] != thread[:-1]][: len(start)]
    new[1:] |= start[1:] > _reach(new, start, end)[:-1]
    cluster = np.cumsum(new, dtype=np.int32)
    cluster -= 1
    return cluster


def _reach(begins: NDArray[np.bool_], start: Int, end: Int) -> Int:
    """The latest end so far of each group; rows by group, then start (``begins``: the first row of each)."""
    if not (~begins[1:] & (end[1:] < end[:-1])).any():
        return end
    first = np.flatnonzero(begins)
    low = start[first]
    # shift each group to a range of its own, so that one running maximum serves all of them
    span = np.maximum(np.maximum.reduceat(end, first) - low, 0) + 1
    shift = np.repeat(np.r_[0, np.cumsum(span)[:-1]] - low, np.diff(np.r_[first, len(begins)]))
    reach = end + shift
    np.maximum.accumulate(reach, out=reach)
    reach -= shift
    return reach


class _Crossing:
    """Exact look-ups where ranges overlap partially: the shortest range around an interval is the nearest one around
    it, or one that ends inside that one (`rows`, in sorted order: outer first).

    Look-ups cut the rows before a position into blocks of powers of two; in each block the ends are sorted beside the
    shortest range from that end on (O(log² n) array operations, no loop over rows). Times of each cluster are shifted
    beyond all earlier ones, so that a range of another cluster never seems to enclose.
    """

    def __init__(self, start: Int, end: Int, cluster: Int, rows: Int) -> None:
        self._rows, self._cluster, self._times = rows, cluster, (start, end)
        s, e, of = start[rows], end[rows], cluster[rows]
        edge = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
        span = np.maximum.reduceat(e, edge) - s[edge] + 1
        self._base = np.repeat(np.r_[0, np.cumsum(span)[:-1]] - s[edge], np.diff(np.r_[edge, len(rows)]))
        self._end = e + self._base
        self._order = np.empty(len(rows), np.int64)  # rank by (length, last opened first)
        self._order[np.lexsort((-np.arange(len(rows)), e - s))] = np.arange(len(rows))

    def shortest(self, nearest: Int, end: Int) -> Int:
        """The shortest range around each interval up to ``end`` that the range ``nearest`` is around."""
        upto = np.searchsorted(self._rows, nearest)
        last = np.maximum(upto - 1, 0)
        wanted = end + self._base[last]
        is_near = (upto > 0) & (self._cluster[self._rows[last]] == self._cluster[nearest])
        asked = np.flatnonzero(is_near & (wanted <= np.maximum.accumulate(self._end)[last]))
        best = self._before(upto[asked], wanted[asked])
        start, end = self._times
        other = nearest[asked]
        shorter = end[best] - start[best] < end[other] - start[other]
        result = nearest.copy()
        result[asked[shorter]] = best[shorter]
        return result

    def _before(self, upto: Int, wanted: Int) -> Int:
        """The shortest of the first ``upto`` rows whose end is not before ``wanted``; there is one."""
        count = len(self._rows)
        ends, rank = np.unique(self._end, return_inverse=True)
        wanted = np.searchsorted(ends, wanted)
        best = np.full(len(upto), count, np.int64)
        for level in range(count.bit_length()):
            size = 1 << level
            asked = np.flatnonzero(upto & size)
            whole = (count // size) * size
            if not len(asked) or not whole:
                continue
            blocks = rank[:whole].reshape(-1, size)
            by_end = np.argsort(blocks, axis=1, kind="stable")
            sorted_rank = np.take_along_axis(blocks, by_end, axis=1)
            shortest = np.take_along_axis(self._order[:whole].reshape(-1, size), by_end, axis=1)
            shortest = np.minimum.accumulate(shortest[:, ::-1], axis=1)[:, ::-1].ravel()
            block = (upto[asked] >> (level + 1)) << 1
            keys = (sorted_rank + np.arange(len(blocks))[:, None] * len(ends)).ravel()
            at = np.searchsorted(keys, block * len(ends) + wanted[asked])
            inside = at < (block + 1) * size
            asked, at = asked[inside], at[inside]
            best[asked] = np.minimum(best[asked], shortest[at])
        row_of = np.empty(count, np.int64)
        row_of[self._order] = self._rows
        return row_of[best]


def depths(parent: Int) -> Int:
    """Depth of each node of a forest given its parents (−1 roots): 0 for roots."""
    return forest_of(parent).depth()


def union(start: Int, end: Int) -> tuple[Int, Int]:
    """The union of intervals as ascending, disjoint ones; touching intervals merge."""
    _, low, high = grouped_union(np.zeros(len(start), np.int8), start, end)
    return low, high


def grouped_union(group: Int, start: Int, end: Int) -> tuple[Int, Int, Int]:
    """Disjoint stretches that the intervals of each group cover: (group, start, end), by group, then start.

    Rows in any order; touching intervals merge. A group of nothing but intervals that end before they start has
    stretches that do, too.
    """
    if not len(start):
        return group, start, end
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        group, start, end = group[order], start[order], end[order]
    if (group[1:] < group[:-1]).any():
        order = np.argsort(group, kind="stable")
        group, start, end = group[order], start[order], end[order]
        del order
    begins = np.r_[True, group[1:] != group[:-1]]
    reach = _reach(begins, start, end)
    begins[1:] |= start[1:] > reach[:-1]
    at = np.flatnonzero(begins)
    return group[at], start[at], reach[np.r_[at[1:] - 1, len(group) - 1]]


def covered_before(start: Int, end: Int, at: Int) -> Int:
    """How much of the time before each moment ``at`` lies in the union of intervals. int64, shape of ``at``."""
    low, high = union(start, end)
    if not len(low):
        return np.zeros(len(at), np.int64)
    length = np.maximum(high - low, 0)
    place = np.searchsorted(low, at, side="right") - 1
    inside = np.maximum(place, 0)
    before = np.cumsum(length)[inside] - length[inside]
    return np.where(place >= 0, before + np.clip(at - low[inside], 0, length[inside]), 0)


def union_length(start: Int, end: Int) -> int:
    """Length of the union of intervals (busy time)."""
    return int(grouped_union_length(np.zeros(len(start), np.int8), start, end, 1)[0])


def grouped_union_length(group: Int, start: Int, end: Int, group_count: int) -> Int:
    """Length of the union of intervals within each group; shape (group_count,), 0 for empty groups.

    Quickest where ``start`` ascends over all rows (sort once, then call per grouping). Whole groups are taken together,
    up to `_BLOCK` rows of them, so that what is computed in between stays small.
    """
    result = np.zeros(group_count, np.int64)
    if not len(start):
        return result
    order = None if (group[1:] >= group[:-1]).all() else np.argsort(group, kind="stable")
    sorted_group = group if order is None else group[order]
    edges = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1], True])
    cuts = np.searchsorted(edges, np.append(np.arange(0, len(start), _BLOCK), len(start)))
    for a, b in pairwise(np.unique(cuts).tolist()):
        rows = slice(edges[a], edges[b])
        of = rows if order is None else order[rows]
        covered, low, high = grouped_union(sorted_group[rows], start[of], end[of])
        np.add.at(result, covered, np.maximum(high - low, 0))
    return result
