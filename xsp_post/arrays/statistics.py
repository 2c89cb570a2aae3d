"""Repeated measurements → one number, and how sure that number is.

The summary of xsp-post is the *symmetric 20 % trimmed mean*: sort the n values, drop
g = ⌊0.2·n⌋ from each end, average the other n − 2g. For n < 5 nothing is dropped and it is the plain
mean. The confidence interval is that of the trimmed mean itself (Tukey & McLaughlin 1963; Yuen 1974):
its standard error is s_w / ((1 − 2·0.2)·√n), here with the exact share kept h/n in place of 1 − 2·0.2,
i.e. √(SSD_w / (h·(h − 1))) where SSD_w is the sum of squared deviations of the Winsorised sample and
h = n − 2g, on h − 1 degrees of freedom. Without trimming both become the textbook Student t
interval and, between two samples, Welch's test.

All values keep the unit they come in. NaN values are left out; no value at all gives NaN.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

TRIM_RATIO = 0.2
CONFIDENCE = 0.95

FloatArray = npt.NDArray[np.float64]

SUMMARY_COLUMNS = (
    "count", "trimmed_mean", "mean", "min", "q25", "median", "q75", "max", "std", "standard_error",
    "degrees_of_freedom", "ci_low", "ci_high", "kept_min", "kept_max",
)  # fmt: skip


def trim_count(n: npt.ArrayLike, trim_ratio: float = TRIM_RATIO) -> npt.NDArray[np.int64]:
    """How many values are dropped from *each* end of n sorted ones: ⌊trim_ratio·n⌋."""
    # 0.2·15 is 3.0000000000000004 in one order and 2.9999999999999996 in another: nudge before the floor.
    return np.floor(np.asarray(n, dtype=np.float64) * trim_ratio + 1e-9).astype(np.int64)


def trimmed_mean(values: npt.ArrayLike, trim_ratio: float = TRIM_RATIO) -> float:
    """Symmetric trimmed mean of one sample (see the module's docstring); NaN for an empty one."""
    sample = np.array(values, np.float64).ravel()
    sample = sample[~np.isnan(sample)]
    if sample.size == 0:
        return math.nan
    sample.sort()
    dropped = int(trim_count(sample.size, trim_ratio))
    return float(sample[dropped : sample.size - dropped].mean())


def rest_of(whole_ns: npt.ArrayLike, parts_ns: npt.ArrayLike) -> FloatArray:
    """What a total is more than the sum of its parts, ns: below a thousandth it is the rounding of the sums."""
    return np.round(np.asarray(whole_ns, np.float64) - np.asarray(parts_ns, np.float64), 3) + 0.0  # no negative zero


def summarise_groups(
    values: npt.ArrayLike, groups: npt.ArrayLike, group_count: int, trim_ratio: float = TRIM_RATIO
) -> pd.DataFrame:
    """Summaries of many samples at once: one row per group 0…group_count−1, columns `SUMMARY_COLUMNS`.

    ``values`` and ``groups`` have shape (n,); rows with a negative group or a NaN value are left out.
    ``std`` is the sample standard deviation (n − 1); it, the standard error and the interval are NaN
    where fewer than two values are kept. Quartiles interpolate linearly. ``kept_min`` and ``kept_max`` are the ends of
    what trimming leaves. One sort, no loop over groups. The interval is of independent values: for iterations see
    `processes.summarise_repeats`.
    """
    value, group, n = _known(values, groups, group_count)
    if n.size and n.max(initial=0) <= 1:
        return _singletons(value, group, n)
    value, group = _sorted_samples(value, group, n)
    start = np.concatenate(([0], np.cumsum(n)[:-1])).astype(np.int64)
    rank = np.arange(value.size) - start[group]

    dropped = trim_count(n, trim_ratio)
    is_inner = (rank >= dropped[group]) & (rank < (n - dropped)[group])
    inner_count = n - 2 * dropped
    # Sums are taken about the group's median, so that 10⁹ ns with a spread of 1 ns keeps its digits.
    centre = _at_quantile(value, start, n, 0.5)
    deviation = value - centre[group]
    inner_mean = _mean(group, np.where(is_inner, deviation, 0.0), inner_count, group_count)
    mean = _mean(group, deviation, n, group_count)
    std = np.sqrt(_squares(group, deviation - mean[group], group_count) / np.maximum(n - 1, 1))

    low = _pick(value, start + dropped, n) - centre
    high = _pick(value, start + n - 1 - dropped, n) - centre
    winsorised = np.clip(deviation, low[group], high[group])
    winsorised_mean = _mean(group, winsorised, n, group_count)
    squares = _squares(group, winsorised - winsorised_mean[group], group_count)
    freedom = (inner_count - 1).astype(np.float64)
    error = np.sqrt(squares / np.maximum(inner_count * (inner_count - 1), 1))
    error[freedom < 1] = np.nan
    std[n < 2] = np.nan
    half_width = t_quantiles(freedom) * error
    estimate = centre + inner_mean
    return pd.DataFrame(
        {
            "count": n,
            "trimmed_mean": estimate,
            "mean": centre + mean,
            "min": _pick(value, start, n),
            "q25": _at_quantile(value, start, n, 0.25),
            "median": centre,
            "q75": _at_quantile(value, start, n, 0.75),
            "max": _pick(value, start + n - 1, n),
            "std": std,
            "standard_error": error,
            "degrees_of_freedom": np.where(n > 0, freedom, np.nan),
            "ci_low": estimate - half_width,
            "ci_high": estimate + half_width,
            "kept_min": low + centre,
            "kept_max": high + centre,
        }
    )


def medians(
    values: npt.ArrayLike, groups: npt.ArrayLike, group_count: int, *, share: float = 0.5
) -> npt.NDArray[np.float64]:
    """The median, or another quantile, of each group (NaN for empty ones), as in `summarise_groups`; shapes
    (n,) → (group_count,)."""
    value, group, n = _known(values, groups, group_count)
    value, _ = _sorted_samples(value, group, n)
    return _at_quantile(value, np.concatenate(([0], np.cumsum(n)[:-1])).astype(np.int64), n, share)


def _known(
    values: npt.ArrayLike, groups: npt.ArrayLike, group_count: int
) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The values that count, their groups, and how many each group has."""
    value = np.asarray(values, dtype=np.float64).ravel()
    group = np.asarray(groups, dtype=np.int64).ravel()
    kept = (group >= 0) & ~np.isnan(value)
    if not kept.all():
        value, group = value[kept], group[kept]
    return value, group, np.bincount(group, minlength=group_count)


def _sorted_samples(
    value: npt.NDArray[np.float64], group: npt.NDArray[np.int64], n: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Values by group, ascending within it. Samples of one size (steady iterations) are sorted as rows of a matrix."""
    filled = n[n > 0]
    if not filled.size or (filled != filled[0]).any():
        order = np.lexsort((value, group))
        return value[order], group[order]
    order = np.argsort(group, kind="stable")
    return np.sort(value[order].reshape(-1, int(filled[0])), axis=1).ravel(), group[order]


def _singletons(value: FloatArray, group: npt.NDArray[np.int64], n: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Groups of at most one value: the common case of a capture without iterations, in no time."""
    only = np.full(n.size, np.nan)
    only[group] = value
    # series, so that columns which are the same are copied when one of them is changed
    columns = dict.fromkeys(SUMMARY_COLUMNS, pd.Series(only))
    columns |= dict.fromkeys(("std", "standard_error", "ci_low", "ci_high"), pd.Series(np.full(n.size, np.nan)))
    columns |= {"count": pd.Series(n), "degrees_of_freedom": pd.Series(np.where(n > 0, 0.0, np.nan))}
    return pd.DataFrame(columns, copy=False)


def _mean(group: npt.NDArray[np.int64], value: FloatArray, n: npt.NDArray[np.int64], groups: int) -> FloatArray:
    total = np.bincount(group, weights=value, minlength=groups)
    return np.asarray(np.where(n > 0, total / np.maximum(n, 1), np.nan), dtype=np.float64)


def _squares(group: npt.NDArray[np.int64], deviation: FloatArray, groups: int) -> FloatArray:
    return np.bincount(group, weights=deviation * deviation, minlength=groups).astype(np.float64)


def _pick(value: FloatArray, position: npt.NDArray[np.int64], n: npt.NDArray[np.int64]) -> FloatArray:
    """value[position] where the group has values, NaN where it has none."""
    if value.size == 0:
        return np.full(n.size, np.nan)
    return np.where(n > 0, value[np.clip(position, 0, value.size - 1)], np.nan)


def _at_quantile(
    value: FloatArray, start: npt.NDArray[np.int64], n: npt.NDArray[np.int64], quantile: float
) -> FloatArray:
    position = quantile * np.maximum(n - 1, 0)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(n - 1, 0))
    low, high = _pick(value, start + below, n), _pick(value, start + above, n)
    return low + (high - low) * (position - below)


def compare_summaries(base: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Row by row, ``other − base`` of two frames of `summarise_groups` (Welch–Satterthwaite freedom).

    Columns: base, other, difference, standard_error, degrees_of_freedom, ci_low, ci_high, p_value,
    is_significant. Rows are matched by position; both frames have the same length.
    """
    if len(base) != len(other):
        raise ValueError(f"{len(base)} base rows against {len(other)} others")
    estimate = [frame["trimmed_mean"].to_numpy(float) for frame in (base, other)]
    variance = [frame["standard_error"].to_numpy(float) ** 2 for frame in (base, other)]
    freedom = [frame["degrees_of_freedom"].to_numpy(float) for frame in (base, other)]
    total = variance[0] + variance[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = total**2 / (variance[0] ** 2 / freedom[0] + variance[1] ** 2 / freedom[1])
    # Two samples without any spread: their difference is exact, whatever the freedom.
    pooled = np.where(total == 0, freedom[0] + freedom[1], pooled)
    error = np.sqrt(total)
    difference = estimate[1] - estimate[0]
    half_width = t_quantiles(pooled) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(difference == 0, 0.0, np.abs(difference) / error)
    p_value = np.array([_two_sided_p(float(x), float(df)) for x, df in zip(t, pooled)])
    low, high = difference - half_width, difference + half_width
    return pd.DataFrame(
        {
            "base": estimate[0],
            "other": estimate[1],
            "difference": difference,
            "standard_error": error,
            "degrees_of_freedom": pooled,
            "ci_low": low,
            "ci_high": high,
            "p_value": p_value,
            "is_significant": (low > 0) | (high < 0),
        }
    )


def t_quantiles(degrees_of_freedom: npt.ArrayLike, confidence: float = CONFIDENCE) -> FloatArray:
    """Two-sided Student t quantile per entry (12.706 for 1 degree at 95 %); NaN for none."""
    freedom = np.asarray(degrees_of_freedom, dtype=np.float64)
    unique, inverse = np.unique(freedom, return_inverse=True)
    quantile = np.array([_t_quantile(float(df), confidence) for df in unique])
    return quantile[inverse].reshape(freedom.shape)


@lru_cache(maxsize=4096)
def _t_quantile(freedom: float, confidence: float) -> float:
    if math.isnan(freedom) or freedom <= 0:
        return math.nan
    value = NormalDist().inv_cdf((1 + confidence) / 2)
    if freedom > 1000:
        return _expanded(freedom, value)
    # Newton from the normal quantile, which is smaller: the tail is convex, so that no step goes too far
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    for _ in range(100):
        density = 2 * math.exp(scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))
        step = (_two_sided_p(value, freedom) - (1 - confidence)) / density
        value += step
        if step < 1e-14 * value:
            break
    return value


def _expanded(freedom: float, z: float) -> float:
    """The quantile from the normal one, by its expansion in 1/ν (Abramowitz & Stegun 26.7.5): from 1000 degrees on
    its error is below 1e-14, less than that of the incomplete beta function there."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _two_sided_p(t: float, freedom: float) -> float:
    """P(|T| ≥ t) = I_x(ν/2, ½), x = ν/(ν + t²) (Abramowitz & Stegun 26.7.1)."""
    if math.isnan(t) or math.isnan(freedom) or freedom <= 0:
        return math.nan
    if math.isinf(t):
        return 0.0
    if math.isinf(freedom):
        return math.erfc(t / math.sqrt(2))
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta by its continued fraction (NIST DLMF 8.17.22, modified Lentz)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction
