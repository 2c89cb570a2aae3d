"""statistics.py against definitions, textbook tables and brute force."""

import math

import numpy as np
import pytest
from helpers import compare_samples
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from scipy import stats

from xsp_post.arrays import processes
from xsp_post.arrays import statistics as s

_SAMPLES = st.lists(st.floats(min_value=-1e9, max_value=1e9), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7], 7),
        ([1, 2, 90], 31),
        ([1, 2, 3, 94], 25),
        ([1, 2, 3, 4, 990], 3),
        ([-99, 1, 2, 3, 99], 2),
        (list(range(10)), 4.5),
        ([100, *range(1, 9), -100], 4.5),
    ],
)
def test_trimmed_mean_drops_a_fifth_at_each_end(values, expected):
    assert s.trimmed_mean(values) == pytest.approx(expected)


def test_trim_count_is_not_fooled_by_binary_fractions():
    assert [int(s.trim_count(n)) for n in (4, 5, 9, 10, 14, 15, 20, 35, 1000)] == [0, 1, 1, 2, 2, 3, 4, 7, 200]


@given(st.lists(_SAMPLES, min_size=1, max_size=6), st.randoms())
@examples(60)
def test_groups_equal_one_sample_at_a_time(samples, random):
    rows = [(value, index) for index, sample in enumerate(samples) for value in sample]
    random.shuffle(rows)
    values, groups = np.array([v for v, _ in rows]), np.array([g for _, g in rows])
    frame = s.summarise_groups(values, groups, len(samples) + 1)
    for index, sample in enumerate(samples):
        row = frame.iloc[index]
        scale = max(1.0, max(abs(v) for v in sample))
        assert row["count"] == len(sample)
        assert row["trimmed_mean"] == pytest.approx(s.trimmed_mean(sample), abs=1e-9 * scale)
        assert row["mean"] == pytest.approx(np.mean(sample), abs=1e-9 * scale)
        for name, q in (("min", 0), ("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("max", 1)):
            assert row[name] == pytest.approx(np.quantile(sample, q), abs=1e-9 * scale)
        if len(sample) > 1:
            assert row["std"] == pytest.approx(np.std(sample, ddof=1), abs=1e-7 * scale)
            assert row["ci_low"] <= row["trimmed_mean"] <= row["ci_high"]
        else:
            assert math.isnan(row["std"]) and math.isnan(row["ci_low"])
    assert frame["count"].iloc[-1] == 0 and frame.drop(columns="count").iloc[-1].isna().all()


def test_singleton_groups_take_the_short_cut_and_agree():
    values, groups = np.array([5.0, 7.0, np.nan]), np.array([2, 0, 1])
    short = s.summarise_groups(values, groups, 4)
    long = s.summarise_groups(np.append(values, [1, 2]), np.append(groups, [4, 4]), 5).iloc[:4]
    assert list(short.columns) == list(long.columns) == list(s.SUMMARY_COLUMNS)
    np.testing.assert_array_equal(short.to_numpy(float), long.to_numpy(float))


def test_nan_and_negative_groups_are_left_out():
    frame = s.summarise_groups([1, np.nan, 3, 999], [0, 0, 0, -1], 1)
    assert frame["count"].tolist() == [2] and frame["mean"].tolist() == [2]


def test_no_values_at_all():
    assert len(s.summarise_groups([], [], 0)) == 0
    assert s.summarise_groups([], [], 3)["count"].tolist() == [0, 0, 0]
    assert math.isnan(s.trimmed_mean([]))


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    # Student's table as printed in any textbook.
    [
        (1, 0.95, 12.706),
        (0.5, 0.95, 164.558),
        (2, 0.95, 4.303),
        (4, 0.95, 2.776),
        (9, 0.95, 2.262),
        (30, 0.95, 2.042),
        (120, 0.95, 1.980),
        (5, 0.99, 4.032),
        (10, 0.90, 1.812),
        (1e9, 0.95, 1.960),
    ],
)
def test_t_quantile(freedom, confidence, quantile):
    assert s.t_quantiles([freedom], confidence)[0] == pytest.approx(quantile, abs=5.1e-4)


def test_t_quantile_of_many_values_is_exact():
    newton, expansion, many = s.t_quantiles([1000, 1000.000001, 1e6])
    assert newton == pytest.approx(expansion, rel=1e-11)
    assert many == pytest.approx(1.9599663568141, rel=1e-12)


def test_t_quantile_without_freedom_is_unknown():
    assert np.isnan(s.t_quantiles([0, -1, np.nan])).all()


def test_untrimmed_interval_is_students():
    row = s.summarise_groups([9, 10, 11, 12, 13], [0] * 5, 1, trim_ratio=0).iloc[0]
    half = 2.776 * math.sqrt(2.5) / math.sqrt(5)
    assert row["ci_high"] - 11 == pytest.approx(half, rel=1e-3)


def test_untrimmed_comparison_is_welchs():
    # Samples and result of the worked example on Wikipedia's "Welch's t-test" page, example 1.
    a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 24.4]
    result = compare_samples(a, b, trim_ratio=0)
    assert result.difference == pytest.approx(np.mean(b) - np.mean(a))
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert result.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.degrees_of_freedom == pytest.approx(expected.df, rel=1e-9)
    interval = expected.confidence_interval()
    assert (result.ci_low, result.ci_high) == pytest.approx((interval.low, interval.high), rel=1e-6)
    yuen = stats.ttest_ind(b, a, equal_var=False, trim=0.2)
    assert compare_samples(a, b).p_value == pytest.approx(yuen.pvalue, rel=1e-9)


def test_too_few_values_show_no_difference():
    result = compare_samples([1.0], [100.0])
    assert not result.is_significant and math.isnan(result.p_value)
    assert result.difference == 99


def test_samples_without_spread():
    assert compare_samples([5, 5, 5], [5, 5, 5]).p_value == 1
    assert not compare_samples([5, 5, 5], [5, 5, 5]).is_significant
    assert compare_samples([5, 5, 5], [6, 6, 6]).is_significant


def test_equal_distributions_are_called_different_one_time_in_twenty():
    random = np.random.default_rng(1)
    hits = sum(compare_samples(random.normal(100, 5, 12), random.normal(100, 5, 9)).is_significant for _ in range(600))
    assert 0.02 < hits / 600 < 0.085


def test_interval_covers_the_truth_about_95_times_in_100():
    random = np.random.default_rng(2)
    draws = random.normal(50, 3, (1000, 10))
    frame = s.summarise_groups(draws.ravel(), np.repeat(np.arange(1000), 10), 1000)
    covered = ((frame["ci_low"] <= 50) & (frame["ci_high"] >= 50)).mean()
    assert 0.92 < covered < 0.98


def test_repeats_are_the_independent_samples():
    values, repeats = [10, 12, 20, 22, 30, 32, 5], [0, 0, 1, 1, 2, 2, 0]
    groups = [0] * 6 + [1]
    frame = processes.summarise_repeats(values, groups, repeats, 2)
    assert frame["trimmed_mean"].tolist() == [s.trimmed_mean(values[:6]), 5]
    assert frame["standard_error"].iloc[0] == pytest.approx(np.std([11, 21, 31], ddof=1) / math.sqrt(3))
    assert frame["degrees_of_freedom"].iloc[0] == 2
    assert math.isnan(frame["ci_low"].iloc[1])  # one value in one repeat
    assert frame["interval_over"].tolist() == ["captures", ""]


def test_within_one_process_the_interval_knows_that_iterations_hang_together():
    values = np.array([10, 10.2, 10.1, 10.4, 12, 12.1, 12.3, 12.2, 10, 10.1])  # a slow stretch
    summary = processes.summarise_repeats(values, [0] * 10, [4] * 10, 1).iloc[0]
    shuffled = processes.summarise_repeats(values[[0, 4, 1, 5, 2, 6, 3, 7, 8, 9]], [0] * 10, [4] * 10, 1).iloc[0]
    independent = s.summarise_groups(values, [0] * 10, 1).iloc[0]
    assert summary["interval_over"] == "one process"
    assert summary["trimmed_mean"] == independent["trimmed_mean"] == shuffled["trimmed_mean"]
    assert summary["standard_error"] > 2 * independent["standard_error"] and summary["degrees_of_freedom"] == 1
    assert independent["standard_error"] <= shuffled["standard_error"] < summary["standard_error"]
    steady = processes.summarise_repeats([5.0] * 4, [0] * 4, [0] * 4, 1).iloc[0]
    assert (steady["ci_low"], steady["ci_high"]) == (5, 5)


def test_the_variance_of_a_mean_of_a_series_is_that_of_bayley_and_hammersley():
    """Long series: the error is (1 + ρ)/(1 − ρ) times that of independent values, and a margin that vanishes."""
    noise, series = np.random.default_rng(3).normal(size=200_000), np.zeros(200_000)
    for i in range(1, len(series)):
        series[i] = 0.5 * series[i - 1] + noise[i]
    at_once = np.zeros(len(series), int)
    found = processes.summarise_repeats(series, at_once, at_once, 1, trim_ratio=0.0)["standard_error"].iloc[0]
    plain = s.summarise_groups(series, at_once, 1, trim_ratio=0.0)["standard_error"].iloc[0]
    assert (found / plain) ** 2 == pytest.approx(3, rel=0.03)


def test_no_values_no_repeats():
    assert len(processes.summarise_repeats([], [], [], 0)) == 0


def test_digits_survive_a_large_offset():
    row = s.summarise_groups(1.7e18 + np.array([0.0, 1024.0, 2048.0, 4096.0]), [0] * 4, 1).iloc[0]  # epoch nanoseconds
    assert row["std"] == pytest.approx(np.std([0, 1024, 2048, 4096], ddof=1), rel=1e-6)


@given(st.floats(1, 5000), st.sampled_from([0.5, 0.95, 0.9999]))
def test_quantiles_and_their_probabilities_are_those_of_scipy(freedom, confidence):
    quantile = float(s.t_quantiles([freedom], confidence)[0])
    # by what lies beyond it: scipy's own quantile is exact from 1.16 on
    assert stats.t.sf(quantile, freedom) == pytest.approx((1 - confidence) / 2, rel=2.5e-12)
    assert s._two_sided_p(quantile, freedom) == pytest.approx(1 - confidence, rel=1e-9)
