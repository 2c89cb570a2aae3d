"""Executions of a case → how long the device was in use for all of them together, and their throughput.

Asynchronous executions overlap: the latency of one, up to its last kernel, counts the work of those before it. So
the busy share is judged over the union of the executions, from the first start on the device to the last end, and
the throughput of overlapping ones from the time between two ends.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import grouped_union

# Latencies may sum to so much more than the executions take together before they count as overlapping.
_MOST_OVERLAP = 0.01


@dataclass(frozen=True)
class Windows:
    """Per case: length of the union of its executions on the device, the device's busy time in it, the median time
    from the end of one execution to the end of the next (NaN: none follow one another), and whether they overlap."""

    window_ns: np.ndarray
    busy_ns: np.ndarray
    period_ns: np.ndarray
    is_overlapping: np.ndarray


def windows_of(iterations: pd.DataFrame, chosen: np.ndarray, case_count: int) -> Windows:
    """The windows of the executions ``chosen`` (bool per row of `Cases.iterations`)."""
    rows = iterations[chosen & (iterations["iteration_index"].to_numpy() >= 0) & iterations["latency_ns"].notna()]
    nothing = np.full(case_count, np.nan)
    if rows.empty:
        return Windows(nothing, nothing, nothing, np.zeros(case_count, bool))
    case = rows["case_index"].to_numpy(np.int64)
    group = rows.groupby(["case_index", "capture_id", "process_id"], sort=False).ngroup().to_numpy()
    start = rows["start_ns"].to_numpy(np.int64)
    start = start - start.min()  # small enough for exact floats
    latency = rows["latency_ns"].to_numpy(np.float64)
    offset, projection = (rows[c].to_numpy(np.float64) for c in ("device_offset_ns", "projection_ns"))
    has_device = ~np.isnan(offset)
    first = np.where(has_device, start + offset, start).astype(np.int64)
    last = np.where(has_device, start + offset + projection, start + latency).astype(np.int64)
    order = np.lexsort((start, group))
    case, group, start, latency, first, last = (a[order] for a in (case, group, start, latency, first, last))
    busy = rows["busy_ns"].to_numpy(np.float64)[order]
    window = _windows(group, start, first, last, case, case_count)
    end = np.maximum(last, start + latency.astype(np.int64))
    stretch, low, high = _stretches(group, start, end)
    union = _by_case(stretch, high - low, case, case_count)
    summed = np.bincount(case, weights=latency, minlength=case_count)
    period = _periods(group, start, last, rows["period_ns"].to_numpy(np.float64)[order], case, case_count)
    known = np.bincount(case, minlength=case_count) > 0
    held = np.bincount(case, weights=np.nan_to_num(busy), minlength=case_count)
    return Windows(
        np.where(known, window, np.nan), np.where(known, np.minimum(held, window), np.nan), period,
        summed > (1 + _MOST_OVERLAP) * union,
    )  # fmt: skip


def _stretches(group: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stretch of each row, and low and high of all stretches; rows ascend by group, then start."""
    owner, low, high = grouped_union(group, start, end)
    width = int(end.max()) + 2
    return np.searchsorted(owner * width + low, group * width + start, side="right") - 1, low, high


def _windows(
    group: np.ndarray, start: np.ndarray, first: np.ndarray, last: np.ndarray, case: np.ndarray, count: int
) -> np.ndarray:
    """Executions that follow one another without a pause are one window; it begins with the first device work."""
    stretch, low, _ = _stretches(group, start, last)
    begin, end = np.full(len(low), np.iinfo(np.int64).max), np.full(len(low), np.iinfo(np.int64).min)
    np.minimum.at(begin, stretch, first)
    np.maximum.at(end, stretch, last)
    return _by_case(stretch, end - begin, case, count)


def _by_case(stretch: np.ndarray, length: np.ndarray, case: np.ndarray, count: int) -> np.ndarray:
    of_case = np.zeros(len(length), np.int64)
    of_case[stretch] = case
    return np.bincount(of_case, weights=length.astype(float), minlength=count)


def _periods(
    group: np.ndarray, start: np.ndarray, last: np.ndarray, period: np.ndarray, case: np.ndarray, count: int
) -> np.ndarray:
    """Median time between the ends of two executions of a case that follow one another."""
    # the recorded period leads to the next execution of the process: other ones lie between where it does not
    follows = (group[1:] == group[:-1]) & (start[1:] - start[:-1] == period[:-1])
    between = pd.Series((last[1:] - last[:-1])[follows], dtype=float).groupby(case[:-1][follows]).median()
    return between.reindex(range(count)).to_numpy(np.float64)
