"""Waits of a host thread → what other threads and processes of the recording did in that time: for whom it waited."""

from typing import NamedTuple

import numpy as np

from xsp_post.arrays.cutting import runs
from xsp_post.arrays.intervals import nest


class AtWork(NamedTuple):
    """Stretches in which threads were in a range or a call, the innermost one, by thread and start."""

    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray
    text: np.ndarray  # text id


def innermost_stretches(thread: np.ndarray, start: np.ndarray, end: np.ndarray, text: np.ndarray) -> AtWork:
    """Ranges and calls in any order, cut where the innermost one changes."""
    nesting = nest(thread, start, end)
    every, times = np.concatenate([thread, thread]), np.concatenate([start, end])
    order = np.lexsort((times, every))
    every, times = every[order], times[order]
    rows = np.flatnonzero((every[1:] == every[:-1]) & (times[1:] > times[:-1]))
    of, low, high = every[rows], times[rows], times[rows + 1]
    found = nesting.innermost(of, low, high)
    inside = found >= 0
    return AtWork(of[inside], low[inside], high[inside], text[found[inside]])


def who_worked(
    work: AtWork, thread: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each wait: whether another thread was at work in half of it or more, in what most of that time went (text id,
    −1 none), and how many threads were in it. Shapes (waits,)."""
    count = len(thread)
    parts: list[tuple[np.ndarray, ...]] = []
    for other in np.unique(work.thread).tolist():  # threads, not events
        mine = slice(*np.searchsorted(work.thread, [other, other + 1]))
        low, high = np.searchsorted(work.end[mine], start, "right"), np.searchsorted(work.start[mine], end, "left")
        wait, row = runs(low + mine.start, np.where(thread == other, 0, high + mine.start))
        time = np.minimum(work.end[row], end[wait]) - np.maximum(work.start[row], start[wait])
        parts.append((wait, np.full(len(wait), other), work.text[row], time))
    found = np.zeros(count, bool), np.full(count, -1, np.int64), np.zeros(count, np.int64)
    if not parts:
        return found
    wait, other, text, time = (np.concatenate(columns) for columns in zip(*parts))
    longest = np.zeros(count, np.int64)
    by_thread, spent = _summed(time, wait, other)
    np.maximum.at(longest, by_thread[0], spent)
    found[0][:] = 2 * longest >= end - start
    by_text, spent = _summed(time, wait, text)
    order = np.argsort(spent, kind="stable")
    found[1][by_text[0][order]] = by_text[1][order]  # the longest is written last
    pairs, _ = _summed(time, wait, other, text)
    np.add.at(found[2], pairs[0][pairs[2] == found[1][pairs[0]]], 1)
    return found


def _summed(time: np.ndarray, *keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different keys, one row each a key, and the sum of the times of each."""
    different, place = np.unique(np.stack(keys), axis=1, return_inverse=True)
    return different, np.bincount(place.ravel(), weights=time, minlength=different.shape[1]).astype(np.int64)
