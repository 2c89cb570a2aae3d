"""Layers and steps of several kinds, by the seventh author: a sample of what `scripts/structure --mixtures` scores."""

from __future__ import annotations

from generators.mixtures import FAMILIES, draw
from stranger_score import judged

# kernels that the library chooses, a step that tunes, layers dropped, tokens after training, two processes, experts in
# a loop, two runs alone, two models in any order, fusions of a layer's own number; a heartbeat of another thread, tests
# of kernels that each have a range, layers with a norm behind, Mamba and attention, images decoded beside, cells of a
# recurrent layer, a step that computes nothing again, rows lost between waits, an update at the beginning of a step
RIGHT = (3, 5, 6, 9, 10, 11, 16, 18, 22, 27, 7000, 7007, 7020, 7021, 7025, 7029, 7075, 7138, 7363, 7391)


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
