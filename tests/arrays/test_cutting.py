"""Intervals cut at points, shared among samples and sorted, against plain loops over small random cases."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays import cutting, intervals

_SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=10)
_WHOLE = st.integers(-(2**62), 2**62)


def _ends(spans):
    start = np.array([a for a, _ in spans], np.int64)
    return start, start + np.array([n for _, n in spans], np.int64)


@given(_SPANS, st.sets(st.integers(-2, 45), max_size=10))
def test_pieces_are_those_between_the_points_inside(spans, points):
    start, end = _ends(spans)
    row, low, high = cutting.cut(start.copy(), end.copy(), np.array(sorted(points), np.int64))
    wanted = []
    for k, (a, b) in enumerate(zip(start.tolist(), end.tolist())):
        edges = [a, *sorted(p for p in points if a < p < b), b]
        wanted += [(k, *piece) for piece in pairwise(edges)]
    assert list(zip(row.tolist(), low.tolist(), high.tolist())) == wanted


@given(_SPANS, _SPANS)
def test_intervals_that_share_time_with_a_region(spans, regions):
    start, end = _ends([span for span in spans if span[1]])
    low, high = intervals.union(*_ends([span for span in regions if span[1]]))
    inside = {t for a, b in zip(low.tolist(), high.tolist()) for t in range(a, b)}
    wanted = [any(t in inside for t in range(a, b)) for a, b in zip(start.tolist(), end.tolist())]
    assert cutting.overlaps(start, end, low, high).tolist() == wanted


@pytest.mark.parametrize("values", [st.integers(-3, 3), _WHOLE], ids=["small", "of 63 bits"])
@given(st.data())
def test_the_order_is_stable(values, data):
    given_values = data.draw(st.lists(values, max_size=12))
    array = np.array(given_values, np.int64)
    assert cutting.in_order(array).tolist() == sorted(range(len(given_values)), key=lambda k: given_values[k])
    assert cutting.distinct(array).tolist() == sorted(set(given_values))


@given(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 4), st.data())
def test_keys_ascend_by_group_and_time(low, span, group_count, data):
    rows = data.draw(st.lists(st.tuples(st.integers(0, group_count - 1), st.integers(low, low + span)), max_size=10))
    keys = cutting.Keys(low, low + span, group_count)
    group, time = (np.array([row[k] for row in rows], kind) for k, kind in enumerate((np.int8, np.int64)))
    key = keys.of(group, time)
    assert keys.time(group, key).tolist() == time.tolist()
    assert np.argsort(key, kind="stable").tolist() == sorted(range(len(rows)), key=lambda k: rows[k])
    if group_count > 1:  # what lies outside stays in its group
        before, after = keys.of(group, time - 2 * span - 1000), keys.of(group, time + 2 * span + 1000)
        assert keys.time(group, before).tolist() == [low] * len(rows)
        assert (keys.time(group, after) > low + span).all()
        assert (before <= key).all()
        assert (key < after).all()
        for one, other in pairwise(range(len(rows))):
            if group[one] < group[other]:
                assert after[one] < before[other]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 12)), max_size=10),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=6),
    st.lists(st.one_of(st.just(math.nan), st.integers(-9, 9)), min_size=6, max_size=6),
)
def test_time_shared_with_samples_and_their_means(rows, samples, values):
    columns = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    owner, start, length = columns
    owner, start, end = intervals.grouped_union(owner, start, start + length)
    edges = np.cumsum([n for pair in samples for n in pair]) if samples else np.zeros(0, np.int64)
    low, high = edges[::2], edges[1::2]  # ascending and disjoint, with and without gaps, some of no length
    found = cutting.shares(owner, start, end, low, high)
    wanted = {}
    for of, a, b in zip(owner.tolist(), start.tolist(), end.tolist()):
        for sample, (x, y) in enumerate(zip(low.tolist(), high.tolist())):
            if min(b, y) > max(a, x):
                wanted[of, sample] = wanted.get((of, sample), 0) + min(b, y) - max(a, x)
    shared = found.length > 0  # a sample of no length inside an interval is met, and shares nothing
    pairs = list(zip(found.owner.tolist(), found.sample.tolist()))
    assert pairs == sorted(set(pairs))
    assert {pair: n for pair, n in zip(pairs, found.length.tolist()) if n} == wanted
    sizes = np.maximum(high - low, 1)[found.sample]
    assert found.ratio[shared] == pytest.approx((found.length / sizes)[shared])
    mean = cutting.means(found, np.array(values, float), 5)
    for of in range(5):
        known = {k: n for (o, k), n in wanted.items() if o == of and not math.isnan(values[k])}
        if known:
            assert mean[of] == pytest.approx(sum(n * values[k] for k, n in known.items()) / sum(known.values()))
        else:
            assert math.isnan(mean[of])
