"""Arithmetic on int64 intervals: cutting them at points, per group (thread). NumPy only."""

from __future__ import annotations

import numpy as np


class Keys:
    """One ascending number for (group, time), so that one search serves all groups."""

    def __init__(self, low: int, high: int, group_count: int) -> None:
        self.low = low
        self.stride = max(high - low, 0) + 2
        # a stride that leaves no room for the groups would wrap: 10³ threads and 100 days fit
        assert group_count * self.stride < np.iinfo(np.int64).max, "times or threads beyond what 64 bits hold"

    def of(self, group: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Times outside the range given count as its ends."""
        return group.astype(np.int64) * self.stride + np.clip(time - self.low, 0, self.stride - 1)


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
    position = np.arange(len(row)) - first[row]
    at = low[row] + position
    last = position == count[row]
    piece_start = np.where(position == 0, start[row], points[np.maximum(at - 1, 0)])
    piece_end = np.where(last, end[row], points[np.minimum(at, len(points) - 1)])
    return row, piece_start, piece_end


def overlaps(start: np.ndarray, end: np.ndarray, region_start: np.ndarray, region_end: np.ndarray) -> np.ndarray:
    """Whether each interval shares time with one of the regions, which are ascending and disjoint."""
    if not len(region_start):
        return np.zeros(len(start), bool)
    nearest = np.searchsorted(region_end, start, side="right")
    inside = nearest < len(region_start)
    return inside & (region_start[np.minimum(nearest, len(region_start) - 1)] < end)


def inside(point: np.ndarray, region_start: np.ndarray, region_end: np.ndarray) -> np.ndarray:
    """Whether each point lies strictly inside one of the regions, which are ascending and disjoint."""
    if not len(region_start):
        return np.zeros(len(point), bool)
    at = np.searchsorted(region_start, point, side="left") - 1
    return (at >= 0) & (region_end[np.maximum(at, 0)] > point)


def in_order(values: np.ndarray) -> np.ndarray:
    """The stable order of whole numbers: value and row are sorted as one number, several times as fast, if they fit."""
    count = len(values)
    low, high = (int(values.min()), int(values.max())) if count else (0, 0)
    if not count or (high - low + 1) * count > np.iinfo(np.int64).max:
        return np.argsort(values, kind="stable")
    key = (values - low) * np.int64(count) + np.arange(count)
    key.sort()
    return key % count


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values, ascending. Sorts in place; of millions of numbers faster than a table of hashes."""
    values.sort()
    return values[np.r_[True, values[1:] != values[:-1]]] if len(values) else values
