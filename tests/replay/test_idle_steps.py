"""Single steps of the cutting of idle time, against loops over all pieces."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.replay import idle

SAME = ("gap", "cause", "call_id", "node_id", "iteration_index", "layer_node_id", "detail_id")


def pieces_of(rows) -> pd.DataFrame:
    """Pieces in a row, as (length, gap, cause, call, node, iteration, layer, detail)."""
    end = np.cumsum([row[0] for row in rows])
    frame = pd.DataFrame({name: np.array([row[k + 1] for row in rows], np.int32) for k, name in enumerate(SAME)})
    return frame.assign(start_ns=end - [row[0] for row in rows], end_ns=end, next_activity=np.arange(len(rows)))


@examples(80)
@given(st.lists(st.tuples(st.integers(1, 9), *[st.integers(0, 1)] * len(SAME)), min_size=1, max_size=14), st.randoms())
def test_neighbours_that_differ_in_nothing_are_one_piece_and_no_others(rows, random):
    frame = pieces_of(rows)
    expected = [rows[0]]
    for row in rows[1:]:
        if row[1:] == expected[-1][1:]:
            expected[-1] = (expected[-1][0] + row[0], *row[1:])
        else:
            expected.append(row)
    order = list(range(len(rows)))
    random.shuffle(order)
    found = idle._coalesced(frame.iloc[order].reset_index(drop=True))
    length = (found["end_ns"] - found["start_ns"]).tolist()
    got = list(zip(length, *(found[name].tolist() for name in SAME)))
    assert got == expected
    assert found["start_ns"].tolist() == np.cumsum([0, *length[:-1]]).tolist()


def test_pieces_of_different_owners_stay_apart():
    """One gap, one cause, one call: only the range that owns the time differs."""
    for place in range(1, len(SAME) + 1):
        one = [5, *[0] * len(SAME)]
        other = [7, *[0] * len(SAME)]
        other[place] = 1
        assert len(idle._coalesced(pieces_of([one, other]))) == 2, SAME[place - 1]
    assert len(idle._coalesced(pieces_of([[5, *[0] * 7], [7, *[0] * 7]]))) == 1
    assert len(idle._coalesced(pieces_of([[5, *[0] * 7]]).iloc[:0])) == 0


RUNS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8)


@examples(150)
@given(RUNS, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=8))
def test_the_execution_of_a_piece_is_the_last_started_one_around_it(runs, asked):
    run_start, run_end = (np.array(one, np.int64) for one in ([r[0] for r in runs], [sum(r) for r in runs]))
    start, end = (np.array(one, np.int64) for one in ([a[0] for a in asked], [sum(a) for a in asked]))
    numbers = np.arange(len(runs)) + 100
    found = idle._last_started(run_start, run_end, start, end, numbers)
    for row in range(len(asked)):
        around = [(s, i) for i, (s, n) in enumerate(runs) if s <= start[row] and s + n >= end[row]]
        assert found[row] == (100 + max(around)[1] if around else -1)


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 4), st.integers(0, 40))
def test_blocks_are_stretches_of_one_device_and_hold_every_gap_once(counts, at_once, edges):
    device = np.repeat(np.arange(len(counts)), counts)
    before, idle._AT_ONCE = idle._AT_ONCE, at_once
    try:
        blocks = list(idle._blocks(device, edges))
    finally:
        idle._AT_ONCE = before
    assert np.concatenate([np.arange(len(device))[one] for one in blocks]).tolist() == list(range(len(device)))
    for one in blocks:
        assert len({*device[one].tolist()}) <= 1 and (len(device[one]) or not len(device))
        assert len(device[one]) <= at_once
        assert len(device[one]) <= max(at_once * len(device) // max(edges, 1), 1)  # edges lie evenly
    assert edges > len(device) or len(blocks) <= max(len(counts) + len(device) // at_once, 1)
