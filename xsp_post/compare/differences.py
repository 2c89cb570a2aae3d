"""Samples of two sides → differences with intervals, corrected together for multiple comparisons.

A run is one process: its iterations share clocks, memory layout and whatever else the machine was doing, so
that they are not independent (Kalibera & Jones, "Rigorous benchmarking in reasonable time", ISMM 2013). With
two captures or more on both sides the error of a side is that of its captures' trimmed means, and the test is
Welch's. With one capture nothing says how runs differ: `LEAST_SPREAD` of the value is taken for that, and the
error of the iterations' mean comes on top. That is coarse on purpose: a single capture of each side can show a
large change, never a small one.

Several tests at once are corrected by Holm's step-down procedure (Scand. J. Statist. 6, 1979), valid whatever
the dependence between rows: of two runs of one program at most one comparison in twenty shows any difference.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.arrays.processes import summarise_repeats
from xsp_post.arrays.statistics import compare_summaries, summarise_groups, t_quantiles
from xsp_post.tables.analyses.frames import FloatArray, IntArray, divide

SIGNIFICANCE = 0.05
POWER = 0.8
# How the chance of a false alarm is shared out: the model's own numbers are what most people ask for.
_SHARES = {"models": 0.5, "layers": 0.25, "kernels": 0.25}
# Least run-to-run spread (one standard deviation, relative) taken for granted where only one capture is there:
# clocks and memory placement alone move a GPU by some 2 %, a CPU by some 5 %.
LEAST_SPREAD = {"gpu": 0.02, "cpu": 0.05}
# Repeats of one sitting do not show how the machine differs from one sitting to the next, nor what the clock cannot
# resolve: a part of that spread, and a resolution, stay however alike the repeats are.
REPEATED_SHARE = 0.25
RESOLUTION_NS = 500.0
STAND_IN_FREEDOM = 12.0
CAPTURES, ITERATIONS = "captures", "iterations"

# What a difference is called.
SLOWER, FASTER, NOT_SHOWN = "slower", "faster", "no difference shown"
APPEARED, VANISHED, CHANGED, UNCOMPARABLE = "appeared", "vanished", "changed kernel", "not comparable"
SET_CHANGES = (APPEARED, VANISHED, CHANGED)
MORE, LESS, EQUAL = "more", "less", "equal"


def differences(
    values: FloatArray, groups: IntArray, sides: IntArray, captures: IntArray, count: int, least_spread: float,
    resolution: float = RESOLUTION_NS,
) -> pd.DataFrame:  # fmt: skip
    """Per group, other − base with interval and p-value of that row alone. One row per group, shape (count,).

    ``values``, ``groups``, ``sides`` (0 base, 1 other) and ``captures`` have shape (n,). Columns: base, other,
    difference, ratio, ci_low, ci_high, p_value, detectable, half, base_count, other_count, interval_over. A side
    without values gives NaN; with a single value the interval and p are NaN. ``resolution`` is of the values' unit.
    Logarithms are compared, and ``half`` is half the interval of theirs: what disturbs an execution makes it several
    times as long, and no interval reaches below −100 %.
    """
    summaries, estimates, of_sides = [], [], (sides == 0, sides == 1)
    repeats = [_repeats(groups[mine], captures[mine], count) for mine in of_sides]
    single = (repeats[0] < 2) | (repeats[1] < 2)
    logs = np.log(np.maximum(values, 0) + resolution)
    for mine in of_sides:
        summary = summarise_repeats(logs[mine], groups[mine], captures[mine], count)
        pooled = summarise_groups(logs[mine], groups[mine], count)
        estimates.append(summarise_groups(values[mine], groups[mine], count)["trimmed_mean"].to_numpy())
        above = np.maximum(estimates[-1], 0) + resolution
        unsure = (resolution / above) ** 2
        floor = unsure + (REPEATED_SHARE * least_spread) ** 2
        summary["standard_error"] = np.sqrt(summary["standard_error"].to_numpy() ** 2 + floor)
        own, assumed = pooled["standard_error"].to_numpy() ** 2, unsure + least_spread**2
        stand_in = np.sqrt(own + assumed)
        # Welch-Satterthwaite: the iterations that are kept have their number less one, what is taken for granted a few
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = pooled["degrees_of_freedom"].to_numpy()
            freedom = (own + assumed) ** 2 / (own**2 / kept + assumed**2 / STAND_IN_FREEDOM)
        summary.loc[single, "standard_error"] = stand_in[single]
        summary.loc[single, "degrees_of_freedom"] = freedom[single]
        summaries.append(summary.assign(trimmed_mean=np.log(above)))
    compared = compare_summaries(summaries[0], summaries[1])
    base, other = estimates
    smallest = detectable(compared["standard_error"], compared["degrees_of_freedom"])
    scale = np.maximum(base, 0) + resolution
    ends = {name: scale * np.expm1(compared[name].to_numpy()) for name in ("ci_low", "ci_high")}
    return pd.DataFrame({"base": base, "other": other, "difference": other - base}).assign(
        **ends, p_value=compared["p_value"], ratio=divide(other - base, base), detectable=scale * np.expm1(smallest),
        half=(compared["ci_high"] - compared["ci_low"]) / 2,
        base_count=summaries[0]["count"].to_numpy(np.int64),
        other_count=summaries[1]["count"].to_numpy(np.int64),
        interval_over=np.where(single, ITERATIONS, CAPTURES),
    )  # fmt: skip


def detectable(standard_error: npt.ArrayLike, degrees_of_freedom: npt.ArrayLike) -> FloatArray:
    """The smallest difference that a test of this row alone shows in four of five such comparisons: the t quantile of
    the test, and that of the power, times the standard error."""
    freedom = np.asarray(degrees_of_freedom, np.float64)
    quantiles = t_quantiles(freedom, 1 - SIGNIFICANCE) + t_quantiles(freedom, 2 * POWER - 1)
    return np.asarray(quantiles * np.asarray(standard_error, np.float64), np.float64)


def _repeats(group: IntArray, capture: IntArray, count: int) -> IntArray:
    """Different captures per group."""
    return np.asarray(pd.Series(capture).groupby(group).nunique().reindex(range(count), fill_value=0), np.int64)


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Holm's adjusted p-values: max over smaller ones of (m − rank)·p, at most 1; NaN stays and does not count."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    stepped = np.maximum.accumulate(p[order] * (len(order) - np.arange(len(order))))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


# -- verdicts -----------------------------------------------------------------------------------------------


def corrected(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """``adjusted_p_value``, ``is_shown`` and, of those, ``is_significant``: Holm's correction within each table, each
    with its share of the chance of a false alarm (a table without tests leaves its share to the others)."""
    tested = [name for name, table in tables.items() if table["p_value"].notna().any()]
    total = sum(_SHARES[name] for name in tested) or 1.0
    result = {}
    for name, table in tables.items():
        is_asked = table["is_asked"].astype(bool) if "is_asked" in table else pd.Series(False, table.index)
        adjusted = np.minimum(holm(table["p_value"].mask(is_asked)) * total / _SHARES[name], 1.0)
        adjusted = np.where(is_asked, table["p_value"], adjusted)  # the question itself is one, not one of many
        is_shown = adjusted < SIGNIFICANCE
        # with a single capture on a side the spread between runs is taken for granted, not measured
        is_significant = is_shown & (table["interval_over"] == CAPTURES).to_numpy(bool)
        result[name] = table.assign(adjusted_p_value=adjusted, is_shown=is_shown, is_significant=is_significant)
    return result


def changes_of(table: pd.DataFrame, are_operators: bool) -> np.ndarray:
    is_model = "quantity" in table
    up, down = (MORE, LESS) if is_model else (SLOWER, FASTER)
    difference = table["difference"].to_numpy(np.float64)
    is_shown = table["is_shown"].to_numpy(bool)
    no = np.zeros(len(table), bool)
    exact = table["is_exact"].to_numpy(bool) if is_model else no
    renamed = table["other_name"].ne("").to_numpy() if "other_name" in table else no
    base, other = table["base"].isna().to_numpy(), table["other"].isna().to_numpy()
    comes_and_goes = ~table["is_steady"].to_numpy(bool) & (base | other | renamed) if "is_steady" in table else no
    is_set = base | other | renamed if "other_name" in table else exact
    untested = table["p_value"].isna().to_numpy() | (is_set & are_operators & (difference != 0))
    return np.select(
        [
            comes_and_goes,
            exact & (difference == 0),
            is_set & untested & are_operators,
            base,
            other,
            renamed,
            exact & (difference > 0),
            exact,
            untested,
            is_shown & (difference > 0),
            is_shown,
        ],
        [NOT_SHOWN, EQUAL, UNCOMPARABLE, APPEARED, VANISHED, CHANGED, MORE, LESS, UNCOMPARABLE, up, down],
        NOT_SHOWN,
    )


def ordered(table: pd.DataFrame) -> pd.DataFrame:
    """What was shown first, largest first; then by how far a difference stands out (p), then by size."""
    size = table[["base", "other"]].fillna(0).max(axis=1)
    shown = table["is_shown"] | table["change"].isin(SET_CHANGES)
    weight = table["difference"].abs().fillna(size)
    rank = table.get("rank", pd.Series(0, table.index))
    order = np.lexsort((-weight, table["p_value"].where(~shown, 0).fillna(1), ~shown, rank))
    return table.iloc[order].reset_index(drop=True)
