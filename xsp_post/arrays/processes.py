"""Iterations of processes → their trimmed mean, and an interval that says over what it is.

Iterations of one process are not independent: they share clocks and memory layout, and slow ones come in rows. Two
kinds of interval follow (Kalibera & Jones, "Rigorous benchmarking in reasonable time", ISMM 2013):

* Over processes, where there are two or more: Student's t over the processes' trimmed means. It covers the mean over
  processes, whatever the iterations inside each do.
* Within one process: the interval of the trimmed mean (`statistics`), for a series with autocorrelation. For a
  first-order autoregressive series with coefficient ρ the variance of a mean is (1 + ρ)/(1 − ρ) times that of
  independent values (Bayley & Hammersley, "The effective number of independent observations in an autocorrelated time
  series", J. R. Stat. Soc. Suppl. 8, 1946); the degrees of freedom are divided by the same factor. ρ is the lag-1
  autocorrelation of the Winsorised values, corrected for its bias of −(1 + 4ρ)/n (Marriott & Pope, Biometrika 41,
  1954), and one standard error √((1 − ρ²)/n) above that, by which the interval holds for short series, too. It covers
  the mean of that process and says nothing of the next one.

`scripts/bench statistics` simulates both: from 10 iterations on, and autocorrelations up to 0.8, they hold 93–98 %.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.arrays.statistics import TRIM_RATIO, summarise_groups, t_quantiles

CAPTURES, WITHIN_PROCESS = "captures", "one process"  # what an interval is over: a capture is one process
_LARGEST_CORRELATION = 0.95  # of a short series it is hardly known: the factor stays below 39
_SHORT_SERIES = 1.0  # the margin grows by this over n: what one standard error lacks at ten iterations

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def summarise_repeats(
    values: npt.ArrayLike,
    groups: npt.ArrayLike,
    repeats: npt.ArrayLike,
    group_count: int,
    trim_ratio: float = TRIM_RATIO,
) -> pd.DataFrame:
    """`statistics.summarise_groups` with the errors of this module, and ``interval_over``: `CAPTURES`,
    `WITHIN_PROCESS`, or '' where there is no interval. Shapes (n,); values of a group and repeat in order of time.

    The estimate stays the trimmed mean of all values of the group.
    """
    value = np.asarray(values, np.float64).ravel()
    group, repeat = (np.asarray(x, np.int64).ravel() for x in (groups, repeats))
    summary = summarise_groups(value, group, group_count, trim_ratio)
    kept = (group >= 0) & ~np.isnan(value)
    several = np.zeros(group_count, bool)
    if (summary["count"].to_numpy() > 1).any():
        _widen_by_autocorrelation(summary, value[kept], group[kept])
        if (repeat[kept] != repeat[kept][0]).any():
            between = _between(value[kept], group[kept], repeat[kept], group_count, trim_ratio)
            several = between["count"].to_numpy() > 1
            for column in ("standard_error", "degrees_of_freedom"):
                summary.loc[several, column] = between.loc[several, column]
        half_width = t_quantiles(summary["degrees_of_freedom"]) * summary["standard_error"]
        summary["ci_low"] = summary["trimmed_mean"] - half_width
        summary["ci_high"] = summary["trimmed_mean"] + half_width
    over = np.where(summary["ci_low"].isna(), 0, np.where(several, 2, 1))
    summary["interval_over"] = pd.Categorical.from_codes(over, pd.Index(["", WITHIN_PROCESS, CAPTURES]))
    return summary


def trimmed_totals(
    values: FloatArray, groups: IntArray, executions: IntArray, group_count: int, trim_ratio: float = TRIM_RATIO
) -> FloatArray:
    """Per group the trimmed mean, over the executions, of what its parts take together; NaN for empty groups.

    A sum is trimmed as a sum: trimmed parts add up to less under noise, because now this and now that part is the slow
    one. ``values`` (n,) are the parts; rows with a negative group or a NaN value are left out.
    """
    used = (groups >= 0) & ~np.isnan(values)
    width = int(executions.max(initial=0)) + 1
    keys, key = np.unique(groups[used] * width + executions[used], return_inverse=True)
    sums = np.bincount(key, weights=values[used], minlength=len(keys))
    return summarise_groups(sums, keys // width, group_count, trim_ratio)["trimmed_mean"].to_numpy()


def _between(value: FloatArray, group: IntArray, repeat: IntArray, group_count: int, trim_ratio: float) -> pd.DataFrame:
    """Summary of the repeats' trimmed means per group."""
    names, number = np.unique(repeat, return_inverse=True)
    pairs, pair = np.unique(group * len(names) + number, return_inverse=True)
    means = summarise_groups(value, pair, len(pairs), trim_ratio)["trimmed_mean"]
    return summarise_groups(means, pairs // len(names), group_count, 0.0)


def _widen_by_autocorrelation(summary: pd.DataFrame, value: FloatArray, group: IntArray) -> None:
    """Standard error and degrees of freedom of every group for values that depend on the one before, in place."""
    count = len(summary)
    order = np.argsort(group, kind="stable")
    group = group[order]
    low, high = (summary[name].to_numpy() for name in ("kept_min", "kept_max"))
    deviation = np.clip(value[order], low[group], high[group]) - low[group]
    n = np.maximum(summary["count"].to_numpy(np.float64), 1.0)
    deviation -= (np.bincount(group, weights=deviation, minlength=count) / n)[group]
    follows = np.flatnonzero(group[1:] == group[:-1])
    products = np.bincount(group[follows], weights=deviation[follows] * deviation[follows + 1], minlength=count)
    squares = np.bincount(group, weights=deviation**2, minlength=count)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(squares > 0, products / squares, -1.0)
    found = np.clip(found + (1 + 4 * found) / n, -1.0, 1.0)
    correlation = found + (1 + _SHORT_SERIES / n) * np.sqrt((1 - found**2) / n)
    correlation = np.clip(correlation, 0.0, _LARGEST_CORRELATION)
    factor = (1 + correlation) / (1 - correlation)
    summary["standard_error"] *= np.sqrt(factor)
    freedom = summary["degrees_of_freedom"].to_numpy() / factor
    # rounded down, so that thousands of layers need a few quantiles only
    rounded = np.where(freedom < 10, np.floor(freedom * 10) / 10, np.floor(freedom))
    summary["degrees_of_freedom"] = np.where(freedom > 0, np.maximum(rounded, 1.0), freedom)


# -- Two measurements that took turns in the same processes → their differences, pair by pair, and how sure they are ---


def paired_differences(samples: pd.DataFrame, base: np.ndarray) -> pd.DataFrame:
    """Per cell, how much longer it took than cell ``base[cell]`` (−1: compared with none) in the same rounds.

    ``samples``: columns cell (0…n−1), process, round, value; one row per measurement. A pair is the trimmed mean of a
    cell's measurements in one round of a process minus that of its base in the same round. Columns as in
    `summarise_repeats` (the estimate is the trimmed mean over all pairs, the error that between processes), and
    ``process_count``. Shapes: base (n,) → n rows; cells without a pair have count 0.
    """
    keys = ["cell", "process", "round"]
    groups = samples.groupby(keys, sort=False)
    means = groups.first().reset_index()
    means["value"] = summarise_groups(samples["value"], groups.ngroup().to_numpy(), len(means))["trimmed_mean"]
    mine = means.assign(base=base[means["cell"].to_numpy(np.int64)])
    pairs = mine[mine["base"] >= 0].merge(
        means, left_on=["base", "process", "round"], right_on=keys, suffixes=("", "_of_base"), validate="many_to_one"
    )
    cell = pairs["cell"].to_numpy(np.int64)
    difference = (pairs["value"] - pairs["value_of_base"]).to_numpy(np.float64)
    summary = summarise_repeats(difference, cell, pairs["process"].to_numpy(np.int64), len(base))
    count = pairs.groupby("cell")["process"].nunique().reindex(range(len(base)), fill_value=0)
    return summary.assign(process_count=count.to_numpy(np.int64))


def without_overlap(frame: pd.DataFrame) -> np.ndarray:
    """Latency of each execution, from the end of the one before it in its process where that is after its start."""
    start = frame["start_ns"].to_numpy(np.int64)
    end = start + frame["latency_ns"].to_numpy(np.int64)
    order = np.lexsort((start, frame["process_id"], frame["capture_id"]))
    ended = end[order]
    place = frame[["capture_id", "process_id"]].to_numpy()[order]
    new = np.append(True, (place[1:] != place[:-1]).any(axis=1))
    begin = start[order].copy()
    begin[1:] = np.where(new[1:], begin[1:], np.maximum(begin[1:], np.minimum(ended[:-1], ended[1:])))
    found = np.empty(len(frame))
    found[order] = ended - begin
    return found
