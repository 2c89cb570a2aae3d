"""Programs of another author: a sample of what `scripts/structure --strangers` scores."""

from __future__ import annotations

import numpy as np
import pytest
from generators import visitors
from generators.machine import NONE, write
from generators.strangers import PROGRAMS, draw
from stranger_score import judge, judged, truth_of
from structure_score import best

SHORT = (2, 10, 22, 25, 26, 29, 86)  # programs of few rows
RIGHT = 0.9  # of their executions and layers; all are right today


def test_structure_of_strangers_programs():
    points = {"executions": [], "layers": []}
    for _, _, answers in judged(SHORT):
        for question in points.keys() & answers.keys():
            points[question].append(answers[question].points)
    assert {question: np.nanmean(some) >= RIGHT for question, some in points.items()} == {
        "executions": True,
        "layers": True,
    }


@pytest.mark.parametrize("seed", [22, 26])
def test_the_truth_of_a_program_is_right_and_half_of_it_is_not(seed):
    program = draw(seed)
    true = truth_of(program)[program.executions[0]].to_numpy()
    assert best(true + 7 * (true >= 0), [true], is_counted=True).verdict == "right"
    assert best(np.where(true >= 0, true // 2, NONE), [true], is_counted=True).verdict == "wrong"


EXECUTIONS = {
    21: "a turn of training crosses no end of a marked step",
    42: "one range called like a phase, among others, is no execution",
    64: "passes of a validation are not joined to one training step",
}


@pytest.mark.parametrize("seed", EXECUTIONS)
def test_executions_of_programs_that_show_a_principle(seed, tmp_path):
    program = visitors.draw(seed)
    answers = judge(program, write(program, tmp_path / "program"))
    assert answers["executions"].verdict == "right", EXECUTIONS[seed]


def test_a_seed_always_draws_the_same_program():
    assert [row["start"] for row in draw(22).machines[0].work] == [row["start"] for row in draw(22).machines[0].work]
    assert len({draw(seed).family for seed in range(20, 30)}) == 10
    assert len(PROGRAMS) >= 20
