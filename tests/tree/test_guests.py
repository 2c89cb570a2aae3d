"""Public captures as a sixth author draws them: a sample of what `scripts/structure --guests` scores."""

from __future__ import annotations

from generators.guests import FAMILIES, draw
from stranger_score import judged

# collectives in hooks around layers, an encoder and a decoder of two attentions, chores of one range each, frames whose
# last stage varies, an evaluation beside marked steps
RIGHT = (5, 11, 25, 46, 263, 7023)


def test_structure_of_guests_programs():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_guests_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 20
    assert [row["start"] for row in draw(7).machines[0].work] == [row["start"] for row in draw(7).machines[0].work]
