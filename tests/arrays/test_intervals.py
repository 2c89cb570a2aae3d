"""Nesting, containment and unions against plain loops over small random cases."""

from __future__ import annotations

import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays import intervals, rollup

# starts even, ends odd: an end never falls on another's start, where the rules differ on purpose
SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 25)), max_size=14)
QUERIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 4)), max_size=8)


def columns(rows, count=3):
    array = np.array(rows, np.int64).reshape(-1, count)
    return [array[:, k] for k in range(count)]


def spans_of(rows):
    thread, start, length = columns(rows)
    return thread, start * 2, (start + length) * 2 + 1


@given(SPANS)
def test_parent_is_the_shortest_enclosing_range(rows):
    thread, start, end = spans_of(rows)
    nesting = intervals.nest(thread, start, end)
    for i in range(len(rows)):
        around = [
            j for j in range(len(rows))
            if j != i and thread[j] == thread[i] and start[j] <= start[i] and end[j] >= end[i]
            and not (start[j] == start[i] and end[j] == end[i] and j > i)
        ]  # fmt: skip
        parent = nesting.parent[i]
        assert (parent >= 0) == bool(around)
        if around:
            assert parent in around
            assert end[parent] - start[parent] == min(end[j] - start[j] for j in around)


@given(SPANS)
def test_depth_counts_ancestors(rows):
    nesting = intervals.nest(*spans_of(rows))
    for i in range(len(rows)):
        count, above = 0, nesting.parent[i]
        while above >= 0:
            count, above = count + 1, nesting.parent[above]
        assert nesting.depth[i] == count


@given(SPANS, QUERIES)
def test_innermost_is_the_shortest_around_a_call(rows, calls):
    thread, start, end = spans_of(rows)
    call_thread, call_start, call_end = spans_of(calls)
    found = intervals.nest(thread, start, end).innermost(call_thread, call_start, call_end)
    for k in range(len(calls)):
        around = [
            i for i in range(len(rows))
            if thread[i] == call_thread[k] and start[i] <= call_start[k] and end[i] >= call_end[k]
        ]  # fmt: skip
        assert (found[k] >= 0) == bool(around)
        if around:
            assert found[k] in around
            assert end[found[k]] - start[found[k]] == min(end[i] - start[i] for i in around)


def test_start_end_ranges_that_overlap_partially():
    # 0 holds 2; 1 overlaps 0; 3 lies in both: the shorter one is its parent
    thread = np.zeros(4, np.int64)
    start, end = np.array([0, 50, 10, 60]), np.array([100, 400, 20, 70])
    nesting = intervals.nest(thread, start, end)
    assert nesting.parent.tolist() == [-1, -1, 0, 0]
    assert nesting.crossing_count == 1


def test_equal_intervals_nest_in_the_order_they_were_opened():
    nesting = intervals.nest(np.zeros(3, np.int64), np.zeros(3, np.int64), np.full(3, 9))
    assert nesting.parent.tolist() == [-1, 0, 1]


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(-5, 15)), max_size=15))
def test_union_length(block, rows):
    group, start, length = columns(rows)
    order = np.argsort(start, kind="stable")
    with mock.patch.object(intervals, "_BLOCK", block):
        got = intervals.grouped_union_length(group[order], start[order], (start + length)[order], 4)
    for g in range(4):
        covered = {t for gg, s, n in rows if gg == g for t in range(s, s + n)}
        assert got[g] == len(covered)
        mine = group == g
        assert intervals.union_length(start[mine], (start + length)[mine]) == len(covered)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12))
def test_the_union_is_disjoint_and_covers_what_the_intervals_cover(rows):
    start, length = columns(rows, 2)
    low, high = intervals.union(start, start + length)
    assert (low[1:] > high[:-1]).all() and (high > low).all()
    covered = {t for s, n in rows for t in range(s, s + n)}
    assert {t for s, e in zip(low.tolist(), high.tolist()) for t in range(s, e)} == covered


FORESTS = st.lists(st.integers(0, 100), min_size=1, max_size=10)


@pytest.mark.parametrize(("deep", "slice_size"), [(300, 1 << 16), (300, 2), (-1, 1 << 16)])
@given(FORESTS, st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40), st.integers(0, 12)), max_size=15))
def test_roll_up_of_busy_time_and_extent(deep, slice_size, seeds, rows):
    parent = np.array([-1] + [seed % (i + 1) for i, seed in enumerate(seeds[1:])], np.int64)
    depth = intervals.depths(parent)
    node, start, length = columns(rows)
    node = node % len(parent)
    end, order = start + length, np.argsort(start, kind="stable")
    with mock.patch.multiple(rollup, _DEEP=deep, _SLICE=slice_size):  # -1: no tree is too flat for the way of deep ones
        busy, first, last = rollup.busy_and_extent(node, start, end, parent, depth, order)
    sums = rollup.add_up(rollup.sums_per_node(node, end - start, len(parent)), parent)
    for k in range(len(parent)):
        below = []
        for i in range(len(node)):
            above = node[i]
            while above not in (-1, k):
                above = parent[above]
            if above == k:
                below.append(i)
        assert busy[k] == intervals.union_length(start[below], end[below])
        assert sums[k] == int((end - start)[below].sum())
        assert (first[k], last[k]) == ((start[below].min(), end[below].max()) if below else (-1, -1))


def test_sums_stay_exact_beyond_float64():
    node = np.zeros(3, np.int64)
    values = np.array([2**53, 1, 1], np.int64)
    assert rollup.sums_per_node(node, values, 1).tolist() == [2**53 + 2]


@given(SPANS, QUERIES, st.integers(1, 12))
def test_partial_overlaps_in_mass_are_looked_up_exactly(rows, calls, copies):
    """Many clusters beside one another: copies of the same ranges, each later than all before."""
    thread, start, end = spans_of(rows)
    shift = np.repeat(np.arange(copies) * 1000, len(rows))
    many = intervals.nest(np.tile(thread, copies), np.tile(start, copies) + shift, np.tile(end, copies) + shift)
    one = intervals.nest(thread, start, end)
    for k in range(copies):
        part = many.parent[k * len(rows) : (k + 1) * len(rows)]
        assert np.where(part >= 0, part - k * len(rows), -1).tolist() == one.parent.tolist()
    call_thread, call_start, call_end = spans_of(calls)
    last = (copies - 1) * 1000
    found = many.innermost(call_thread, call_start + last, call_end + last)
    first = one.innermost(call_thread, call_start, call_end)
    assert np.where(found >= 0, found - (copies - 1) * len(rows), -1).tolist() == first.tolist()


def test_fifty_thousand_ranges_that_all_overlap_take_no_square_of_time():
    rng = np.random.default_rng(0)
    count = 50_000
    start = np.arange(count) * 10
    end = start + rng.integers(20, 10 * count, count)
    start_s = time.process_time()
    nesting = intervals.nest(np.zeros(count, np.int64), start, end)
    at = rng.integers(0, 10 * count, count)
    nesting.innermost(np.zeros(count, np.int64), at, at + 1)
    assert time.process_time() - start_s < 5


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12))), st.lists(st.integers(-3, 50), min_size=1))
def test_time_covered_before_a_moment_is_counted_by_hand(spans, moments):
    start = np.array([a for a, _ in spans], np.int64)
    end = start + np.array([n for _, n in spans], np.int64)
    inside = {t for a, b in zip(start.tolist(), end.tolist()) for t in range(a, b)}
    wanted = [len([t for t in inside if t < at]) for at in moments]
    assert intervals.covered_before(start, end, np.array(moments)).tolist() == wanted
