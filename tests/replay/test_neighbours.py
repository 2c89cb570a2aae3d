"""The entry of a group before or after a time, against a loop; and numbers that stand for one thing each."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

FAR = 1 << 60  # apart: group and time do not fit into one number then
ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8)), max_size=12)


@examples(150)
@given(ENTRIES, ENTRIES, st.sampled_from([-1, 0]), st.sampled_from([1, FAR]))
def test_the_neighbour_is_the_last_before_a_time_or_the_first_not_before_it(entries, asked, step, scale):
    from xsp_post.replay.waits import _neighbour

    group, asked_group = (np.array([one[0] for one in rows], np.int64) for rows in (entries, asked))
    at, when = (np.array([scale * (one[1] - 2) for one in rows], np.int64) for rows in (entries, asked))
    found = _neighbour(group, at, asked_group, when, step)
    assert found.dtype == np.int64
    for row, (number, moment) in enumerate(asked):
        same = [(time, i) for i, (other, time) in enumerate(entries) if other == number]
        before, after = [one for one in same if one[0] < moment], [one for one in same if one[0] >= moment]
        expected = max(before, default=(0, -1))[1] if step else min(after, default=(0, -1))[1]
        assert found[row] == expected


CODES = "replay.host_state:Cause replay.calls:CallClass model.trace:SpanKind model.trace:ActivityKind"
CODES += " model.trace:MemoryKind model.tree:Attribution model.tree:LayerAttribution model.tree:NodeKind"


@pytest.mark.parametrize("name", CODES.split())
def test_each_member_has_a_number_of_its_own(name):
    module, _, code = name.partition(":")
    members = getattr(import_module(f"xsp_post.{module}"), code).__members__.values()
    numbers = [int(one) for one in members]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
