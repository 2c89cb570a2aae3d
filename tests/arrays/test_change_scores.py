"""The arithmetic of `changes`, place by place: regressions by least squares, stairs by trial, intervals by textbook."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from scipy import stats

from xsp_post.arrays import changes
from xsp_post.arrays.changes import LEAST_SIDE, drift_sizes, possible_places, sizes

SEEDS, COUNTS = st.integers(0, 2**32 - 1), st.integers(2 * LEAST_SIDE, 14)


def _projector(*columns):
    known = np.column_stack(columns).astype(float)
    return known @ np.linalg.pinv(known)


@examples(40)
@given(SEEDS, st.integers(8, 14), st.booleans(), st.booleans(), st.sampled_from([(), (0.3,), (0.6, 0.5)]))
def test_scores_are_those_of_regressions(seed, count, has_edge, has_shared, alike):
    """Beside a level, an edge at the middle and what measures share: the best edge, two edges and line, by trial; the
    noise of each is what captures so much alike let it explain."""
    random = np.random.default_rng(seed)
    at, shared, floor = np.arange(count), random.normal(0, 1, (count, int(has_shared))), np.array([0.0, 0.5])
    values = random.normal(0, 1, (count, 2)) + np.array([0.0, 2.0]) * (at[:, None] >= count // 2)
    edges = np.array([0, *[count // 2] * has_edge, count])
    known = changes._known(edges, [*shared.T])
    best = changes._candidates(values, edges, known, LEAST_SIDE)
    rows = np.repeat(np.array(alike).reshape(-1, 1), 2, axis=1)
    found = changes._scores(best, edges, rows, floor)
    noise = np.eye(count) + sum(one * (np.abs(at[:, None] - at) == k + 1) for k, one in enumerate(alike))
    levels = [at >= edge for edge in edges[:-1]]
    free = [one for one in range(count) if min(abs(one - edges)) >= LEAST_SIDE]
    number = np.searchsorted(edges, at, side="right")
    pairs = [(one, two) for one in free for two in free if two - one >= LEAST_SIDE and number[one] == number[two]]
    for k, mine in enumerate(values.T):
        rest = mine - _projector(known) @ mine
        for kind, candidates in ((changes._EDGE, [(one,) for one in free]), (changes._EDGES, pairs)):
            explained = {one: rest @ _projector(known, *(at >= edge for edge in one)) @ rest for one in candidates}
            if not explained:
                assert best.explained[kind, k] == 0
                continue
            places = max(explained, key=lambda one: explained[one])
            assert (best.first[kind, k], best.second[kind, k]) == (places[0], places[-1])
            assert best.explained[kind, k] == pytest.approx(explained[places])
            by_noise, by_levels = (
                np.trace(noise @ _projector(*levels, *(at >= edge for edge in more))) for more in (places, ())
            )
            more = max(by_noise - by_levels, 1)
            left = (rest @ rest - explained[places]) / max(count - by_levels - more, 1) + floor[k] ** 2
            assert found[kind, k] == pytest.approx(math.sqrt(explained[places] / more / left))
        line = rest @ _projector(known, at) @ rest
        assert best.explained[changes._LINE, k] == pytest.approx(line)


@examples(40)
@given(SEEDS, COUNTS)
def test_stairs_are_the_best_of_all(seed, count):
    values = np.random.default_rng(seed).normal(0, 1, count)

    @cache
    def least(start, levels):
        """Of the captures from one on, on so many levels."""
        if levels == 1:
            return ((values[start:] - values[start:].mean()) ** 2).sum() if count - start >= LEAST_SIDE else math.inf
        return min(
            (((values[start:end] - values[start:end].mean()) ** 2).sum() + least(end, levels - 1)
             for end in range(start + LEAST_SIDE, count)),
            default=math.inf,
        )  # fmt: skip

    most = min(changes._MOST_STEPS, count // LEAST_SIDE - 1)
    assert changes._stairs(values) == pytest.approx([least(0, levels + 1) for levels in range(most + 1)])


@given(SEEDS, st.integers(2, 5), st.integers(2, 5), st.integers(0, 3), st.sampled_from([0.0, 0.5]))
def test_the_size_of_a_step_has_students_interval(seed, before, after, start, floor):
    values = np.random.default_rng(seed).normal(0, 1, (start + before + after + 2, 1))
    one, other = values[start : start + before, 0], values[start + before : start + before + after, 0]
    found = sizes(values, np.array([floor]), start, start + before, start + before + after)[:, 0]
    variance = (((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()) / (before + after - 2)
    half = stats.t.ppf(0.975, before + after - 2) * math.sqrt((variance + floor**2) * (1 / before + 1 / after))
    change = other.mean() - one.mean()
    assert found == pytest.approx([one.mean(), other.mean(), change - half, change + half])


@given(SEEDS, st.integers(3, 20), st.sampled_from([0.0, 0.5]))
def test_the_size_of_a_drift_is_that_of_its_line(seed, count, floor):
    values = np.random.default_rng(seed).normal(0, 1, count)
    line = stats.linregress(np.arange(count), values)
    rest = values - line.intercept - line.slope * np.arange(count)
    variance = (rest**2).sum() / (count - 2) + floor**2
    error = math.sqrt(variance / (count * (count**2 - 1) / 12)) * (count - 1)
    half, change = stats.t.ppf(0.975, count - 2) * error, line.slope * (count - 1)
    wanted = [line.intercept, line.intercept + change, change - half, change + half]
    assert drift_sizes(values[:, None], np.array([floor]))[:, 0] == pytest.approx(wanted)


@given(SEEDS, st.integers(4, 40))
def test_captures_alike_in_a_row_count_once(seed, count):
    rest = np.cumsum(np.random.default_rng(seed).normal(0, 1, count))
    rest -= rest.mean()
    total = 1.0
    for k in range(1, count // 3) if count >= changes.LEAST_SHUFFLED else ():
        alike = (rest[k:] * rest[:-k]).sum() / (rest**2).sum() + 2 / count
        if alike <= 0:
            break
        total += 2 * alike * (1 - k / count)
    assert changes._alike_in_a_row(rest[:, None])[0] == pytest.approx(total)


@given(SEEDS, COUNTS, st.sampled_from([0.0, 0.5]), st.data())
def test_a_step_may_be_where_it_explains_nearly_as_much(seed, count, floor, data):
    side = data.draw(st.integers(LEAST_SIDE, count // 2))
    values = np.random.default_rng(seed).normal(0, 1, count) + 2.0 * (np.arange(count) >= count // 2)
    rest = {p: sum(((half - half.mean()) ** 2).sum() for half in (values[:p], values[p:])) for p in range(1, count)}
    place = min(range(side, count - side + 1), key=rest.get)
    variance = rest[place] / (count - 2) + floor**2
    near = [p for p in rest if rest[p] - rest[place] <= 2 * changes._UNSURE * variance]
    near = [p for p in near if LEAST_SIDE <= p <= count - LEAST_SIDE]
    assert possible_places(values, floor, side) == (place, min(near), max(near))
