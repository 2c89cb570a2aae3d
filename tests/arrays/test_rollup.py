"""What the roll-up is made of, each against a plain loop; the roll-up itself is in test_intervals.py."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays import intervals, rollup
from xsp_post.arrays.forest import forest_of

_SEEDS = st.lists(st.integers(0, 100), max_size=12)


def _parents(seeds):
    """Several trees, each node after its parent."""
    return np.array([seed % (k + 1) - 1 for k, seed in enumerate(seeds)], np.int64)


def _above(parent, node):
    while node >= 0:
        yield node
        node = parent[node]


@given(_SEEDS, st.data())
def test_sums_and_marks_go_up_to_all_ancestors(seeds, data):
    parent = _parents(seeds)
    count = len(parent)
    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), np.int64)
    sums, marked = [0] * count, [False] * count
    for node in range(count):
        for above in _above(parent, node):
            sums[above] += int(values[node])
            marked[above] |= bool(values[node] > 7)
    assert rollup.add_up(values, parent).tolist() == sums
    assert rollup.holds(values > 7, parent).tolist() == marked
    depth = [len(list(_above(parent, node))) - 1 for node in range(count)]
    rows = rollup.rows_by_depth(np.array(depth, np.int32))
    assert [level.tolist() for level in rows] == [
        [node for node in range(count) if depth[node] == level] for level in range(max(depth, default=-1) + 1)
    ]


def test_rows_of_a_chain_deeper_than_sixteen_bits():
    depth = np.arange(2**15 + 5, dtype=np.int32)
    assert np.concatenate(rollup.rows_by_depth(depth)).tolist() == depth.tolist()


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20), st.data())
def test_smallest_of_stretches(values, data):
    ends = st.tuples(st.integers(0, len(values) - 1), st.integers(1, len(values)))
    stretches = data.draw(st.lists(ends.filter(lambda pair: pair[0] < pair[1]), max_size=8))
    first, stop = (np.array([pair[k] for pair in stretches], np.int64) for k in range(2))
    found = rollup.range_minima(np.array(values), first, stop)
    assert found.tolist() == [min(values[a:b]) for a, b in stretches]


@pytest.mark.parametrize(("deep", "slice_size"), [(300, 1 << 16), (300, 3), (-1, 1 << 16)])
@given(_SEEDS, st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40), st.integers(0, 12)), max_size=15))
def test_busy_time_of_several_trees_in_the_order_given(deep, slice_size, seeds, rows):
    parent = _parents([0, *seeds])
    rows = sorted((start, start + length, node % len(parent)) for node, start, length in rows)
    start, end, node = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    with mock.patch.multiple(rollup, _DEEP=deep, _SLICE=slice_size):
        busy, first, last = rollup.busy_and_extent(node, start, end, parent, intervals.depths(parent))
    for k in range(len(parent)):
        mine = [(a, b) for a, b, of in rows if k in _above(parent, of)]
        assert busy[k] == len({t for a, b in mine for t in range(a, b)})
        assert (first[k], last[k]) == ((mine[0][0], max(b for _, b in mine)) if mine else (-1, -1))


@given(_SEEDS, st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40), st.integers(1, 12)), min_size=1))
def test_too_many_pieces_are_left_to_the_passes(seeds, rows):
    parent = _parents([0, *seeds])
    node, start, length = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    stretches = intervals.grouped_union(node % len(parent), start, start + length)
    points = sorted({*stretches[1].tolist(), *stretches[2].tolist()})
    pieces = sum(a <= p < b for p in points for _, a, b in zip(*(column.tolist() for column in stretches)))
    for most, is_made in ((pieces, True), (pieces - 1, False)):
        with mock.patch.object(rollup, "MOST_PIECES", most):
            found = rollup.of_stretches(*stretches, parent, forest_of(parent).depth())
        assert (found is not None) == is_made
