"""Differences of samples against the textbook's formulas, one group at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from scipy import stats

from xsp_post.arrays.statistics import trimmed_mean
from xsp_post.compare.differences import (
    CAPTURES,
    ITERATIONS,
    LEAST_SPREAD,
    REPEATED_SHARE,
    RESOLUTION_NS,
    STAND_IN_FREEDOM,
    detectable,
    differences,
    holm,
)

SPREAD, RESOLUTION = 0.02, 500.0


def one_side(samples, is_repeated):
    """Estimate, and the standard error and degrees of freedom of its logarithm, of one group on one side: lists of
    values by capture. Of logarithms of what lies above the resolution."""
    values = [value for mine in samples for value in mine]
    estimate, logs = trimmed_mean(values), [[math.log(value + RESOLUTION) for value in mine] for mine in samples]
    unsure = RESOLUTION / (estimate + RESOLUTION)
    if is_repeated:
        means = [trimmed_mean(mine) for mine in logs]
        return estimate, math.hypot(stats.sem(means), 0.25 * SPREAD, unsure), len(means) - 1
    if len(values) < 2:
        return estimate, math.nan, 0
    dropped = len(values) // 5  # of each end: the error of a trimmed mean is that of the Winsorised sample (Yuen)
    kept, inside = len(values) - 2 * dropped, stats.mstats.winsorize(np.concatenate(logs), limits=(0.2, 0.2))
    own = np.sum((inside - inside.mean()) ** 2) / (kept * (kept - 1))
    assumed = unsure**2 + SPREAD**2
    freedom = (own + assumed) ** 2 / (own**2 / (kept - 1) + assumed**2 / 12)
    return estimate, math.sqrt(own + assumed), freedom


def expected_of(base, other):
    is_repeated = len(base) > 1 and len(other) > 1
    (one, error_1, freedom_1), (two, error_2, freedom_2) = (one_side(side, is_repeated) for side in (base, other))
    error, ratio = math.hypot(error_1, error_2), (two + RESOLUTION) / (one + RESOLUTION)
    result = {"base": one, "other": two, "difference": two - one, "ratio": (two - one) / one,
              "base_count": sum(map(len, base)), "other_count": sum(map(len, other)),
              "interval_over": CAPTURES if is_repeated else ITERATIONS}  # fmt: skip
    if not freedom_1 or not freedom_2:
        unknown = dict.fromkeys(("p_value", "ci_low", "ci_high", "detectable", "half"), math.nan)
        return {**result, **unknown}
    freedom = error**4 / (error_1**4 / freedom_1 + error_2**4 / freedom_2)
    half = stats.t.ppf(0.975, freedom) * error
    power = stats.t.ppf(0.8, freedom) * error  # 80 % of the comparisons lie above it
    factors = (ratio * math.exp(-half), ratio * math.exp(half), math.exp(half + power))
    low, high, most = ((one + RESOLUTION) * (factor - 1) for factor in factors)
    return {
        **result, "p_value": 2 * stats.t.sf(abs(math.log(ratio)) / error, freedom), "ci_low": low, "ci_high": high,
        "detectable": most, "half": half,
    }  # fmt: skip


VALUES = st.lists(st.integers(10_000, 60_000), min_size=1, max_size=7)
SIDE = st.lists(VALUES, min_size=1, max_size=3)


def compared(groups, order=None):
    rows = [
        (value, group, side, 10 * side + capture)
        for group, sides in enumerate(groups)
        for side, captures in enumerate(sides)
        for capture, values in enumerate(captures)
        for value in values
    ]
    columns = [np.array([row[k] for row in rows]) for k in range(4)]
    columns[0] = columns[0].astype(float)
    return differences(*columns, len(groups), SPREAD, RESOLUTION)


@examples(60)
@given(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=4))
def test_each_group_is_compared_as_the_textbook_says(groups):
    found = compared(groups).to_dict("records")
    for row, (base, other) in zip(found, groups):
        for name, value in expected_of(base, other).items():
            wanted = value if isinstance(value, str) else pytest.approx(value, rel=1e-8, abs=1e-9, nan_ok=True)
            assert row[name] == wanted, name


def test_a_side_without_values_has_no_difference():
    found = compared([([[100.0, 110.0]], []), ([[0.0, 0.0]], [[5.0, 5.0]])])
    assert math.isnan(found["other"][0]) and math.isnan(found["difference"][0]) and found["other_count"][0] == 0
    assert found["base"][0] == 105 and found["base_count"][0] == 2
    assert math.isnan(found["ratio"][1]) and found["difference"][1] == 5  # no ratio to nothing


def test_what_is_taken_for_granted():
    assert LEAST_SPREAD == {"gpu": 0.02, "cpu": 0.05}
    assert (REPEATED_SHARE, RESOLUTION_NS, STAND_IN_FREEDOM) == (0.25, 500, 12)


@pytest.mark.parametrize("freedom", [1, 2.5, 10, 400])
def test_the_detectable_difference_is_shown_in_four_of_five_comparisons(freedom):
    t = stats.t(freedom)
    assert detectable([3.0], [freedom])[0] == pytest.approx(3 * (t.ppf(0.975) + t.ppf(0.8)), rel=1e-7)
    assert np.isnan(detectable([3.0, 3.0], [0.0, np.nan])).all()


@given(st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=8))
def test_holm_rejects_what_its_steps_reject(p_values):
    """Step down: the smallest of m against α/m, the next against α/(m − 1) …, until one is not below."""
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted = holm(p_values)
    assert np.isnan(adjusted).tolist() == [math.isnan(p) for p in p_values]
    for alpha in (0.001, 0.01, 0.05, 0.3, 0.999):
        rejected = set()
        for step, (p, i) in enumerate(known):
            if p * (len(known) - step) >= alpha:
                break
            rejected.add(i)
        assert {i for i in range(len(p_values)) if adjusted[i] < alpha} == rejected
    assert not (adjusted > 1).any()
