"""Helper of ``ingest``: how far apart two clocks of one capture are, from the intervals that must contain others.

XSP's tracers read their own clocks and map each to wall time once; layers and launches of one
trace then disagree by a constant, and plain containment gives kernels to the *next* layer (check R10). The
offset is the shift of the layer spans under which most launches lie inside a layer. NumPy only.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xsp_post.arrays.intervals import grouped_union

Int = NDArray[np.integer]
_MOST_PAIRS = 4_000_000


class Offset(NamedTuple):
    """The estimate. ``shift_ns`` belongs on the spans; 0 when they contain as many launches as they ever can."""

    shift_ns: int
    low_ns: int  # the window of shifts that contain equally many
    high_ns: int
    contained_count: int  # launches inside a span at shift_ns
    contained_before_count: int  # … at shift 0
    launch_count: int
    is_certain: bool  # False: some shift would contain more, but none convincingly


def estimate(span_start: Int, span_end: Int, launch_start: Int, launch_end: Int) -> Offset:
    """Shift of the spans that puts most launches inside one of them; int64 ns, shapes (m,) and (n,).

    Among equally good windows of shifts: the widest one nearest zero, that is the largest width − distance
    from zero; its middle is taken. A window is believed when it contains every launch, or when it is wider
    than it is far from zero: a few launches more in a narrow far window are chance.
    """
    launch_count = len(launch_start)
    if not launch_count or not len(span_start):
        return Offset(0, 0, 0, 0, 0, launch_count, True)
    rows = _sample(launch_count, len(span_start))
    low, high, count = _windows(span_start, span_end, launch_start[rows], launch_end[rows])
    before = _contained(span_start, span_end, launch_start, launch_end)
    if not len(count):
        return Offset(0, 0, 0, before, before, launch_count, before == launch_count)
    best = count == count.max()
    low, high = low[best], high[best]
    holds_zero = (low <= 0) & (high >= 0)
    if holds_zero.any():
        row = int(np.flatnonzero(holds_zero)[0])
        return Offset(0, int(low[row]), int(high[row]), before, before, launch_count, True)
    distance = np.maximum(np.maximum(low, -high), 0)
    score = (high - low) - distance
    row = int(np.lexsort((distance, -score))[0])
    shift = int(low[row] + (high[row] - low[row]) // 2)
    contained = _contained(span_start + shift, span_end + shift, launch_start, launch_end)
    if contained == launch_count or (contained > before and score[row] >= 0):
        return Offset(shift, int(low[row]), int(high[row]), contained, before, launch_count, True)
    return Offset(0, 0, 0, before, before, launch_count, False)


def _sample(launch_count: int, span_count: int) -> Int:
    """Launches to look at: all, or so many, evenly spread, that the pairs stay within bounds."""
    most = max(_MOST_PAIRS // span_count, 50)
    if launch_count <= most:
        return np.arange(launch_count)
    return np.linspace(0, launch_count - 1, most).astype(np.int64)


def _windows(span_start: Int, span_end: Int, launch_start: Int, launch_end: Int) -> tuple[Int, Int, Int]:
    """Windows [low, high] of shifts between which the number of contained launches is constant, and that number.

    Span s contains launch l at the shifts [l.end − s.end, l.start − s.start]; per launch the union of these.
    """
    low = (launch_end[:, None] - span_end[None, :]).ravel()
    high = (launch_start[:, None] - span_start[None, :]).ravel()
    launch = np.repeat(np.arange(len(launch_start)), len(span_start))
    possible = low <= high
    low, high, launch = low[possible], high[possible], launch[possible]
    if not len(low):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    _, first, last = grouped_union(launch, low, high)
    # +1 at each first, −1 behind each last; the count is constant from one change to the next
    times = np.concatenate([first, last + 1])
    steps = np.repeat([1, -1], len(first))
    changes, inverse = np.unique(times, return_inverse=True)
    counts = np.cumsum(np.bincount(inverse, weights=steps).astype(np.int64))[:-1]
    starts, ends = changes[:-1], changes[1:] - 1
    # neighbours of the same count are one window
    is_new = np.append(True, counts[1:] != counts[:-1])
    return starts[is_new], ends[np.append(is_new[1:], True)], counts[is_new]


def _contained(span_start: Int, span_end: Int, launch_start: Int, launch_end: Int) -> int:
    """Launches that lie inside at least one span."""
    order = np.argsort(span_start, kind="stable")
    starts, reach = span_start[order], np.maximum.accumulate(span_end[order])
    position = np.searchsorted(starts, launch_start, side="right") - 1
    return int(((position >= 0) & (reach[np.maximum(position, 0)] >= launch_end)).sum())
