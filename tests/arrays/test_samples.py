"""Samples weighted onto intervals: against a count of every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.cutting import means, shares
from xsp_post.arrays.intervals import grouped_union


def arrays(*columns):
    return tuple(np.array(column, np.int64) for column in columns)


def test_stretches_of_a_group_are_joined_and_groups_are_not():
    group, start, end = grouped_union(*arrays([1, 0, 1, 1], [10, 0, 15, 30], [20, 100, 25, 31]))
    assert list(zip(group.tolist(), start.tolist(), end.tolist())) == [(0, 0, 100), (1, 10, 25), (1, 30, 31)]
    assert [len(part) for part in grouped_union(*arrays([], [], []))] == [0, 0, 0]


def test_a_mean_is_weighted_by_the_time_shared_with_each_sample():
    # samples of 100: the first is half filled, the second wholly, the third for a tenth
    found = shares(*arrays([0], [50], [210], [0, 100, 200], [100, 200, 300]))
    assert found.length.tolist() == [50, 100, 10] and found.ratio.tolist() == [0.5, 1.0, 0.1]
    assert means(found, np.array([0.2, 0.4, 1.0])[found.sample], 1)[0] == pytest.approx((10 + 40 + 10) / 160)
    assert means(found, np.array([0.2, np.nan, 1.0])[found.sample], 1)[0] == pytest.approx((10 + 10) / 60)
    assert np.isnan(means(found, np.full(len(found.sample), np.nan), 2)).all()


INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 20)), max_size=12)
STEPS = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12)


@examples(150)
@given(INTERVALS, STEPS)
def test_shared_times_are_those_of_a_count_of_every_nanosecond(intervals, steps):
    group, start, length = arrays(*(zip(*intervals) if intervals else ([], [], [])))
    edges = np.cumsum([0, *(step for step, _ in steps)])
    kept = np.array([is_kept for _, is_kept in steps])  # a recording may pause
    sample_start, sample_end = edges[:-1][kept], edges[1:][kept]
    busy = np.zeros((3, 200), bool)
    for one, begin, span in intervals:
        busy[one, begin : begin + span] = True
    found = shares(*grouped_union(group, start, start + length), sample_start, sample_end)
    counted = {
        (one, k): int(busy[one, low:high].sum())
        for one in range(3) for k, (low, high) in enumerate(zip(sample_start, sample_end))
    }  # fmt: skip
    assert {(o, s): n for o, s, n in zip(found.owner.tolist(), found.sample.tolist(), found.length.tolist()) if n} == {
        pair: n for pair, n in counted.items() if n
    }
    assert (found.ratio <= 1).all()
