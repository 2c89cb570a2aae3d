"""What is recorded in 2026, by an eighth author: a sample of what `scripts/structure --owners` scores."""

from __future__ import annotations

from generators.owners import FAMILIES, draw
from stranger_score import judged

# blocks of two kinds that end alike, an exit after each layer, passes inside steps, optimisers that only their kernels
# show, an evaluation behind a turn, a compiled model with breaks, pictures of counted steps, edges that a batch lacks,
# several updates in a step, cells tried by hand, tuning that holds most of the time, an engine's own step
RIGHT = (0, 5, 10, 12, 13, 16, 26, 41, 48, 51, 86, 130, 155)


def test_structure_of_owners():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_owners_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 25
    assert [row["start"] for row in draw(7).machines[0].work] == [row["start"] for row in draw(7).machines[0].work]
