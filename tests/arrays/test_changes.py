"""Change points of many measures: false alarms, planted steps and drifts, and their sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from generators.histories import History, history, with_drift, with_step
from scipy import stats

from xsp_post.arrays.changes import DRIFT, STEP, Change, changes, drift_sizes, sizes


def found(of: History) -> list[Change]:
    means = of.values.mean(axis=0)
    least = np.log1p(np.maximum(0.01, 0.001 * means[0] / means))
    return changes(np.log(of.values), np.full(len(means), 0.0025), least)


@pytest.mark.parametrize(("tails", "histories"), [(False, 100), (True, 50)])
def test_histories_without_change_raise_at_most_one_alarm_in_a_hundred(tails, histories):
    assert sum(bool(found(history(seed, tails=tails))) for seed in range(histories)) <= histories / 100


@pytest.mark.parametrize("wander", [0.5, 0.8])
def test_noise_that_wanders_is_no_change(wander):
    assert not any(found(history(seed, wander=wander)) for seed in range(25))
    planted = [with_step(seed, wander=wander) for seed in range(5)]
    assert all(one.first in [change.first for change in found(one)] for one in planted)


def test_layers_with_single_slow_captures_hide_no_step():
    """Two of them side by side at an end look like a step of a layer; that says nothing of the other layers."""
    assert sum(bool(found(history(seed, spikes=0.03))) for seed in range(8)) == 0
    planted = [with_step(seed, spikes=0.03) for seed in range(10)]
    assert sum([change.first for change in found(one)] == [one.first] for one in planted) >= 9


@pytest.mark.parametrize(
    ("captures", "tails", "histories"), [(50, False, 8), (50, True, 8), (30, False, 10), (12, False, 40)]
)
def test_planted_steps_are_found_at_their_capture(captures, tails, histories):
    """A step of 3 % and 3 standard errors or more: its capture, its layer, and nothing else."""
    right = 0
    for seed in range(histories):
        planted = with_step(seed, captures=captures, tails=tails)
        assert planted.model_errors >= 2  # of the planted history itself: the change widens its spread
        one = found(planted)
        right += [(c.kind, c.first) for c in one] == [(STEP, planted.first)] and planted.layer + 1 in one[0].members
    assert right >= 0.95 * histories


def test_the_interval_of_a_step_holds_its_size():
    inside = 0
    for seed in range(100):
        plain = history(seed, 30)
        amount = 0.05 * plain.values[:, 0].mean()
        plain.values[12:, 0] += amount
        before, after, low, high = sizes(plain.values, np.zeros(plain.values.shape[1]), 0, 12, 30)[:, 0]
        assert low < after - before < high
        inside += low <= amount <= high
    assert 90 <= inside <= 99


def test_a_drift_is_no_step_and_stairs_are_no_drift():
    kinds = [[one.kind for one in found(with_drift(seed))] for seed in range(6)]
    assert sum(kind == [DRIFT] for kind in kinds) >= 6
    stairs = history(1)
    stairs.values[17:, 1] *= 1.2
    stairs.values[34:, 1] *= 1.2
    assert [(one.kind, one.first) for one in found(stairs)] == [(STEP, 17), (STEP, 34)]


@pytest.mark.parametrize("seed", range(4))
def test_a_layer_that_is_slower_for_some_captures_shows_where_it_begins_and_where_it_ends(seed):
    made = history(seed, 50)
    made.values[18:25, 4] *= 1.4
    assert [(one.kind, one.first) for one in found(made)] == [(STEP, 18), (STEP, 25)]


def test_a_little_more_for_some_captures_is_noise():
    for seed in range(4):
        made = history(seed, 50)
        made.values[18:25, 4] *= 1.012  # one standard deviation of a capture
        assert not found(made)


@pytest.mark.parametrize(("captures", "last", "count"), [(50, 2, 0), (50, 3, 1), (12, 2, 1)])
def test_of_many_captures_two_at_an_end_are_outliers(captures, last, count):
    made = history(1, captures)
    made.values[-last:, 4] *= 1.5
    assert len(found(made)) == count


def test_two_layers_that_change_at_two_captures_are_two_changes():
    values = history(3).values
    values[10:, 2] *= 1.3
    values[30:, 5] *= 0.7
    one = found(History(values, []))
    assert [(c.first, 2 in c.members, 5 in c.members) for c in one] == [(10, True, False), (30, False, True)]


def test_few_captures_show_a_large_change_only():
    values = history(5, 6, noise=0.003).values
    assert found(History(values, [])) == []
    values[3:, [0, 4]] *= 1.5
    assert [one.first for one in found(History(values, []))] == [3]
    assert found(History(values[:3], [])) == []


def test_a_drift_without_noise_has_its_ends_and_the_interval_of_the_floor():
    """Least squares on a straight line: the slope's error is floor · √(12 / (n (n² − 1))), times n − 1 steps."""
    count, floor = 10, 0.5
    values = 100.0 + 3.0 * np.arange(count)[:, None]
    first, last, low, high = drift_sizes(values, np.array([floor]))[:, 0]
    assert (first, last) == pytest.approx((100.0, 127.0))
    half = stats.t.ppf(0.975, count - 2) * floor * math.sqrt(12 / (count * (count**2 - 1))) * (count - 1)
    assert (low, high) == pytest.approx((27.0 - half, 27.0 + half))
