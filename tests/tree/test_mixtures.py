"""Layers and steps of several kinds, by the seventh author: a sample of what `scripts/structure --mixtures` scores."""

from __future__ import annotations

from generators.mixtures import FAMILIES, draw
from stranger_score import judged

# kernels that the library chooses, a step that tunes, layers dropped, tokens after training, two processes, experts in
# a loop, two runs alone, two models in any order, fusions of a layer's own number
RIGHT = (3, 5, 6, 9, 10, 11, 16, 18, 22)


def test_structure_of_mixtures():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_mixtures_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 25
    assert [row["start"] for row in draw(7).machines[0].work] == [row["start"] for row in draw(7).machines[0].work]
