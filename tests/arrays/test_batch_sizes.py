"""The optimal batch size of a sweep by each policy, as its sentence says it, size by size."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays.batch_sizes import BATCH_POLICIES, GAIN_RATIO, gain_per_doubling, optimal_position

# sizes that need not be a factor of two apart; throughputs on a grid, so that gains at the bound occur
_SWEEPS = st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(90, 130)), min_size=1, max_size=7)


def _gain(sizes, rates, k):
    return (rates[k + 1] / rates[k]) ** (1 / math.log2(sizes[k + 1] / sizes[k])) - 1


def _by_loop(sizes, rates, policy, ratio):
    count = len(sizes)
    if count < 2:
        return -1
    if policy == "max":
        return min(range(count), key=lambda k: (-rates[k], k))
    if policy == "within":
        return next(k for k in range(count) if rates[k] >= (1 - ratio) * max(rates))
    if policy == "first":
        return next((k for k in range(count - 1) if _gain(sizes, rates, k) <= ratio), count - 1)
    if policy == "last":
        top = count - 1
        while top and _gain(sizes, rates, top - 1) <= ratio:
            top -= 1
        return top
    reached = 0
    for k in range(count - 1):
        needed = max(rates[: k + 1]) * (1 + ratio) ** math.log2(sizes[k + 1] / sizes[k])
        if rates[k + 1] > needed and (k + 2 == count or rates[k + 2] > needed):
            reached = k + 1
    return -1 if reached == count - 1 else reached


def _sweep(steps):
    sizes = np.cumprod([1, *(1 + step for step, _ in steps[1:])])
    return sizes, np.array([rate for _, rate in steps], float)


@pytest.mark.parametrize("policy", BATCH_POLICIES)
@given(_SWEEPS, st.sampled_from([0.0, 0.013, GAIN_RATIO, 0.1]))
def test_positions_are_those_of_a_loop(policy, steps, ratio):
    sizes, rates = _sweep(steps)
    assert optimal_position(sizes, rates, policy, ratio) == _by_loop(sizes.tolist(), rates.tolist(), policy, ratio)


@given(_SWEEPS)
def test_gains_are_those_of_a_loop(steps):
    sizes, rates = _sweep(steps)
    found = gain_per_doubling(sizes, rates)
    wanted = [_gain(sizes.tolist(), rates.tolist(), k) for k in range(len(sizes) - 1)]
    assert found[:-1] == pytest.approx(wanted)
    assert np.isnan(found[-1])


def test_doublings_that_all_gain_are_not_finished():
    sizes, rates = np.array([1, 2, 4]), np.array([1.0, 2.0, 4.0])
    assert [optimal_position(sizes, rates, policy) for policy in BATCH_POLICIES] == [-1, 2, 2, 2, 2]
    assert optimal_position(sizes, np.array([1.0, 2.0, 2.0])) == 1
    assert optimal_position(sizes, np.array([1.0, 1.0, 1.0])) == 0
    assert optimal_position(sizes, rates) == optimal_position(sizes, rates, "settled")
