"""Arithmetic on int64 intervals: cutting them at points, per group (thread). NumPy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Keys:
    """One ascending number for (group, time), so that one search serves all groups; of a single group the time.
    `checks.check_trace` refuses times and threads for which 64 bits do not suffice."""

    def __init__(self, low: int, high: int, group_count: int) -> None:
        self._low, self._stride = (low, max(high - low, 0) + 2) if group_count > 1 else (0, 0)

    def of(self, group: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Times of several groups that are outside the range given count as its ends."""
        if not self._stride:
            return time
        return group.astype(np.int64) * self._stride + np.clip(time - self._low, 0, self._stride - 1)

    def time(self, group: np.ndarray, key: np.ndarray) -> np.ndarray:
        """The time that a key stands for."""
        return key - (group.astype(np.int64) * self._stride - self._low) if self._stride else key


def cut(start: np.ndarray, end: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each interval cut at the points strictly inside it: (row of the interval, start, end) of every piece.

    ``points`` ascending and different. Pieces keep the order of the intervals; their lengths sum to the interval's.
    """
    low = np.searchsorted(points, start, side="right")
    count = np.maximum(np.searchsorted(points, end, side="left") - low, 0)
    if not count.any():
        return np.arange(len(start)), start, end
    row = np.repeat(np.arange(len(start)), count + 1)
    first = np.cumsum(count + 1) - (count + 1)
    after = np.arange(len(row)) + (low - first)[row]  # the point that ends each piece but the last of an interval
    piece_start, piece_end = points[after - 1], points[np.minimum(after, len(points) - 1)]
    piece_start[first], piece_end[first + count] = start, end
    return row, piece_start, piece_end


def overlaps(start: np.ndarray, end: np.ndarray, region_start: np.ndarray, region_end: np.ndarray) -> np.ndarray:
    """Whether each interval shares time with one of the regions, which are ascending and disjoint."""
    if not len(region_start):
        return np.zeros(len(start), bool)
    nearest = np.searchsorted(region_end, start, side="right")
    inside = nearest < len(region_start)
    return inside & (region_start[np.minimum(nearest, len(region_start) - 1)] < end)


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values, ascending: as np.unique, whose table of hashes takes seventy times as long for a million
    numbers that all differ. Columns that ascend, one behind the other, are merged (a twentieth of the time)."""
    values = np.sort(values, kind="stable")
    return values[np.r_[True, values[1:] != values[:-1]]] if len(values) else values


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """The same of pairs of row numbers; int64, shape (pairs, 2)."""
    width = int(pairs.max(initial=0)) + 1
    key = distinct(pairs[:, 0] * np.int64(width) + pairs[:, 1])
    return np.stack([key // width, key % width], axis=1)


Int = NDArray[np.integer]
Float = NDArray[np.float64]


def runs(low: Int, high: Int) -> tuple[Int, Int]:
    """The numbers from each low up to its high, one run behind the other: the number of its run, and the number."""
    count = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) + np.repeat(low - (np.cumsum(count) - count), count)


@dataclass
class Shares:
    """Which owner filled how much of which sample; one row per owner and sample that share time."""

    owner: Int
    sample: Int
    length: Int  # shared time
    ratio: Float  # the same, of the sample's time


def shares(owner: Int, start: Int, end: Int, sample_start: Int, sample_end: Int) -> Shares:
    """The time that each owner's intervals (disjoint: `intervals.grouped_union`) share with samples."""
    row, sample = runs(np.searchsorted(sample_end, start, side="right"), np.searchsorted(sample_start, end, "left"))
    length = np.minimum(end[row], sample_end[sample]) - np.maximum(start[row], sample_start[sample])
    width = len(sample_start) + 1
    pair, code = np.unique(owner[row].astype(np.int64) * width + sample, return_inverse=True)
    summed = np.zeros(len(pair), np.int64)
    np.add.at(summed, code, length)
    sample = pair % width
    whole = np.maximum(sample_end[sample] - sample_start[sample], 1)
    return Shares(pair // width, sample, summed, summed / whole)


def means(found: Shares, values: Float, owner_count: int) -> Float:
    """Mean of the values of the shares (NaN: not known) per owner, weighted by time; NaN for an owner of none."""
    weight = np.where(np.isnan(values), 0.0, found.length.astype(float))
    total = np.bincount(found.owner, weights=weight, minlength=owner_count)
    summed = np.bincount(found.owner, weights=weight * np.nan_to_num(values), minlength=owner_count)
    return np.divide(summed, total, out=np.full(owner_count, np.nan), where=total > 0)
