"""Periods and latencies of executions, one after the other, as a loop over them finds them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.tree.iterations import _fully_covered, _overlaps, _periods, _without_the_queue

_ROWS = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["a", "b"]), st.integers(0, 40), st.integers(1, 20), st.integers(0, 20),
        st.booleans(),
    ),
    max_size=8, unique_by=lambda row: (row[0], row[2]),
)  # fmt: skip
_COLUMNS = ["process_index", "phase", "start_ns", "latency_ns", "busy_ns", "is_inferred"]


def _frame(rows):
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"phase": object, "is_inferred": bool})


def _before(rows, row):
    """The execution before one in its process (or thread), None for the first."""
    earlier = [one for one in rows if one[0] == row[0] and one[2] < row[2]]
    return max(earlier, key=lambda one: one[2], default=None)


@examples(60)
@given(_ROWS)
def test_a_period_runs_to_the_next_of_the_same_phase(rows):
    found = _periods(_frame(rows))
    for row, period in zip(rows, found.tolist()):
        following = [one for one in rows if _before(rows, one) == row]
        if following and following[0][1] == row[1]:
            assert period == following[0][2] - row[2]
        else:
            assert math.isnan(period)


@examples(60)
@given(_ROWS)
def test_an_inferred_latency_begins_where_the_work_before_it_ends(rows):
    frame = _frame(rows).assign(node_id=np.arange(len(rows)))
    tree = SimpleNamespace(nodes=pd.DataFrame({"thread_index": frame["process_index"]}))
    found = _without_the_queue(tree, frame, frame["is_inferred"].to_numpy(bool))
    for row, latency in zip(rows, found.tolist()):
        before = _before(rows, row)
        queued = before[2] + before[3] - row[2] if before and before[5] and row[5] else 0
        assert latency == max(row[3] - max(queued, 0), min(row[3], row[4]))


@examples(60)
@given(_ROWS)
def test_executions_overlap_where_they_sum_to_more_than_they_take_together(rows):
    """Here each runs on the device for as long as its latency says, from its start."""
    frame = _frame(rows)
    frame = frame.assign(end_ns=frame["start_ns"] + 1, device_offset_ns=0.0, projection_ns=frame["latency_ns"] * 1.0)
    found = _overlaps(frame)
    together = len({(row[0], t) for row in rows for t in range(row[2], row[2] + row[3])})
    summed = sum(row[3] for row in rows)
    assert bool(found) == (len(rows) > 1 and summed > 1.01 * together)
    if found:
        crossing = [one for row in rows if (one := _before(rows, row)) and one[2] + max(one[3], 1) > row[2]]
        assert found[0].count == len(crossing)


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 9)), max_size=6))
def test_what_ends_later_than_its_execution_is_not_in_it(rows):
    ends = np.array([3, 5, 7])
    found, end = (np.array([row[k] for row in rows], int) for k in range(2))
    wanted = [row[0] if row[0] >= 0 and row[1] <= ends[row[0]] else -1 for row in rows]
    assert _fully_covered(found, end, ends).tolist() == wanted
