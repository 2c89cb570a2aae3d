"""Random programs of known structure (`generators.programs`): what is drawn, how it is scored, what the tool finds."""

from __future__ import annotations

import numpy as np
import pytest
from generators.programs import FAMILIES, draw
from generators.recorder import NOT_JUDGED, NOTHING
from structure_score import Answer, compare, score

from xsp_post.hierarchy import build_tree
from xsp_post.model.checks import check_trace

SEEDS = range(2 * len(FAMILIES))


@pytest.mark.parametrize("seed", range(len(FAMILIES)))
def test_a_seed_is_always_the_same_program(seed):
    one, other = draw(seed), draw(seed)
    check_trace(one.trace)
    assert one.about == other.about and one.trace.activities.equals(other.trace.activities)
    assert one.trace.spans.equals(other.trace.spans) and len(one.trace.activities) > 20
    for answers in (one.truth.executions, one.truth.layers):
        assert all(len(answer) == len(one.trace.activities) and answer.min() >= NOT_JUDGED for answer in answers)
    numbers = np.unique(one.truth.executions[0])
    assert set(numbers[numbers >= 0].tolist()) <= set(range(len(one.truth.kind)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_layer_lies_in_one_execution(seed):
    """Each kernel of a layer belongs to the execution that the layer belongs to."""
    truth = draw(seed).truth
    for layer in truth.layers:
        inside = layer >= 0
        pairs = np.unique(np.stack([layer[inside], truth.executions[0][inside]]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1]


def test_names_of_groups_do_not_matter():
    true = np.array([0, 0, 0, 1, 1, 1, NOTHING])
    assert compare(np.array([9, 9, 9, 4, 4, 4, -1]), true) == Answer(1.0, 2, 2)
    assert compare(np.array([9, 9, 9, 4, 4, 4, 4]), true).share == pytest.approx(6 / 7)
    assert compare(np.array([9, 9, 4, 4, 4, 4, -1]), true).share == pytest.approx(5 / 6)
    assert compare(np.full(7, 3), true).share == pytest.approx(3 / 7)  # one group for all: one of them is right
    assert compare(np.arange(7), true).share == pytest.approx(2 / 7)


def test_what_is_not_judged_does_not_count():
    true = np.array([0, 0, NOT_JUDGED, 1, 1])
    assert compare(np.array([5, 5, 6, 7, 7]), true) == compare(np.array([5, 5, 7, 7, 7]), true) == Answer(1.0, 2, 2)


@pytest.mark.parametrize(("answer", "verdict", "points"), [
    (Answer(1.0, 2, 2), "right", 1.0), (Answer(0.5, 2, 2), "wrong", 0.0), (Answer(0.0, 0, 2), "abstained", 0.5),
    (Answer(0.0, 3, 0), "invented", 0.0), (Answer(1.0, 0, 0), "right", 1.0),
    (Answer(0.99, 3, 2, is_counted=True), "wrong", 0.0), (Answer(0.99, 3, 2), "right", 1.0),
])  # fmt: skip
def test_verdicts(answer, verdict, points):
    assert (answer.verdict, answer.points) == (verdict, points)


def test_what_is_found_in_two_programs_of_each_family():
    """The bars are those of what is found at the time; scripts/structure --check draws many more."""
    found = [score(build_tree(program.trace), program.truth) for program in map(draw, SEEDS)]
    assert np.nanmean([one.executions.points for one in found]) >= 0.96
    assert np.nanmean([one.layers.points for one in found]) >= 0.92
    assert not any("invented" in (one.executions.verdict, one.layers.verdict) for one in found)
