"""Programs of a fourth author: a sample of each family that `scripts/structure --newcomers` scores."""

from __future__ import annotations

from generators.newcomers import FAMILIES, draw
from stranger_score import judged

RIGHT = (2, 3, 4, 6, 7, 9, 23, 28)  # spectral blocks, a smaller last batch, searches, a window, noise


def test_structure_of_newcomers_programs():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_newcomers_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 10
    assert [row["start"] for row in draw(25).machines[0].work] == [row["start"] for row in draw(25).machines[0].work]
