"""Programs of a thirteenth author: kept apart from those that the structure finder was made with; no bar yet."""

from __future__ import annotations

import pytest
from generators.boarders import FAMILIES, draw
from stranger_score import judged, truth_of


def test_programs_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 34
    first, again = ([row["start"] for row in draw(7).machines[0].work] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("seed", [18, 32, 33, 39, 40, 44])
def test_a_program_is_read(seed):
    [(_, program, answers)] = judged([seed], draw)
    assert {answer.verdict for answer in answers.values()} <= {"right", "wrong", "abstained", "invented", ""}
    assert program.is_noise or truth_of(program)[program.executions[0]].max() >= 0
