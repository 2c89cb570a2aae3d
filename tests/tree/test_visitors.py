"""Programs of a third author: a sample of what `scripts/structure --visitors` scores."""

from __future__ import annotations

import numpy as np
import pytest
from generators.visitors import FAMILIES, draw
from stranger_score import judged, truth_of
from structure_score import best

RIGHT = (11, 12, 20, 24, 25, 28, 31, 32, 38, 39, 41)  # programs of few rows, each of another family


def test_structure_of_visitors_programs():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


@pytest.mark.parametrize("seed", [20, 24])
def test_the_truth_of_a_visitor_is_right_and_half_of_it_is_not(seed):
    program = draw(seed)
    true = truth_of(program)[program.executions[0]].to_numpy()
    assert best(true + 7 * (true >= 0), [true], is_counted=True).verdict == "right"
    _, numbers = np.unique(true, return_inverse=True)
    assert best(np.where(true >= 0, numbers // 2, -1), [true], is_counted=True).verdict == "wrong"


def test_visitors_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 43
    assert [row["start"] for row in draw(25).machines[0].work] == [row["start"] for row in draw(25).machines[0].work]
