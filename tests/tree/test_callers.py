"""Engines and trainers as a seventh author draws them: a sample of what `scripts/structure --callers` scores."""

from __future__ import annotations

from generators.callers import FAMILIES, draw
from stranger_score import judged

# a draft and a target in two graphs, pieces of graphs around attention, two ranges a layer, hooks of FSDP2,
# micro-batches, a teacher and a student, an evaluation between steps, two threads, the device alone, a notebook
RIGHT = (0, 1, 11, 13, 49, 17, 18, 30, 33, 34)


def test_structure_of_callers_programs():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_callers_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 30
    assert [row["start"] for row in draw(7).machines[0].work] == [row["start"] for row in draw(7).machines[0].work]
