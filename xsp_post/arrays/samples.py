"""Arithmetic on periodic samples: how much of each sample's time an owner's intervals fill, and means weighted by it.

NumPy only. A sample stands for a stretch of time; samples are in order and do not overlap.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.integer]
Float = NDArray[np.float64]


@dataclass
class Shares:
    """Which owner filled how much of which sample; one row per owner and sample that share time."""

    owner: Int
    sample: Int
    length: Int  # shared time
    ratio: Float  # the same, of the sample's time


def shares(owner: Int, start: Int, end: Int, sample_start: Int, sample_end: Int) -> Shares:
    """The time that each owner's intervals (disjoint: `intervals.grouped_union`) share with samples."""
    low = np.searchsorted(sample_end, start, side="right")
    count = np.maximum(np.searchsorted(sample_start, end, side="left") - low, 0)
    row = np.repeat(np.arange(len(start)), count)
    sample = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - low, count)
    length = np.minimum(end[row], sample_end[sample]) - np.maximum(start[row], sample_start[sample])
    width = len(sample_start) + 1
    pair, code = np.unique(owner[row].astype(np.int64) * width + sample, return_inverse=True)
    summed = np.zeros(len(pair), np.int64)
    np.add.at(summed, code, length)
    sample = pair % width
    whole = np.maximum(sample_end[sample] - sample_start[sample], 1)
    return Shares(pair // width, sample, summed, summed / whole)


def means(found: Shares, values: Float, owner_count: int) -> Float:
    """Mean of the samples' values (NaN: not known) per owner, weighted by shared time; NaN for an owner of none."""
    value = values[found.sample]
    weight = np.where(np.isnan(value), 0.0, found.length.astype(float))
    total = np.bincount(found.owner, weights=weight, minlength=owner_count)
    summed = np.bincount(found.owner, weights=weight * np.nan_to_num(value), minlength=owner_count)
    return np.divide(summed, total, out=np.full(owner_count, np.nan), where=total > 0)
