"""Calls of one thread and stretches of its time → first start, last end and number of what was launched in each."""

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


def projected(
    begin: Int, end: Int, first: Int, last: Int, counted: NDArray[np.bool_], start: Int, stop: Int
) -> tuple[Int, Int, Int]:
    """Of the calls that lie within each [``start``, ``stop``]: the least ``first`` and the greatest ``last``, −1
    without any, and how many are ``counted``. The calls, [``begin``, ``end``], are in order of their beginning."""
    low = np.searchsorted(begin, start)
    if (end[1:] >= end[:-1]).all():
        high = np.maximum(low, np.searchsorted(end, stop, side="right"))
        some = np.flatnonzero(high > low)
        bounds = np.column_stack([low[some], high[some]]).ravel()
        # reduceat wants every index inside: one more element that no slice [low, high) reaches
        found_first, found_last = np.full(len(start), -1, np.int64), np.full(len(start), -1, np.int64)
        if len(some):
            found_first[some] = np.minimum.reduceat(np.append(first, 0), bounds)[::2]
            found_last[some] = np.maximum.reduceat(np.append(last, 0), bounds)[::2]
        total = np.append(0, np.cumsum(counted))
        return found_first, found_last, total[high] - total[low]
    # calls of one thread follow one another, but for damaged rows: look at each stretch on its own
    found = np.tile(np.array([-1, -1, 0], np.int64), (len(start), 1))
    for k in range(len(start)):
        rows = low[k] + np.flatnonzero(end[low[k] :] <= stop[k])
        if len(rows):
            found[k] = first[rows].min(), last[rows].max(), counted[rows].sum()
    return found[:, 0], found[:, 1], found[:, 2]
