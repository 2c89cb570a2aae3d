"""What calls launched within a stretch of their thread's time, against a loop over all calls."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.projected import projected

TIMES = st.integers(0, 12)
CALLS = st.lists(st.tuples(TIMES, st.integers(0, 6), st.integers(0, 90), st.integers(0, 9), st.booleans()), max_size=9)
STRETCHES = st.lists(st.tuples(TIMES, st.integers(0, 12)), max_size=6)


@examples(300)
@given(CALLS, STRETCHES)
@example([(0, 3, 5, 2, True), (3, 0, 1, 1, True)], [(0, 3), (3, 0), (4, 4)])  # one call after the other
@example([(0, 9, 5, 2, True), (1, 2, 1, 1, False), (4, 1, 0, 50, True)], [(1, 4), (0, 9), (1, 3)])  # one in another
def test_each_stretch_has_what_the_calls_within_it_launched(calls, stretches):
    calls = sorted((begin, begin + length, at, at + lasted, new) for begin, length, at, lasted, new in calls)
    columns = [np.array(column, np.int64) for column in (zip(*calls) if calls else [()] * 5)]
    start, length = (np.array(column, np.int64) for column in (zip(*stretches) if stretches else [()] * 2))
    first, last, count = projected(*columns[:4], columns[4].astype(bool), start, start + length)
    for row, (low, long) in enumerate(stretches):
        inside = [one for one in calls if one[0] >= low and one[1] <= low + long]
        assert first[row] == min((one[2] for one in inside), default=-1)
        assert last[row] == max((one[3] for one in inside), default=-1)
        assert count[row] == sum(one[4] for one in inside)
