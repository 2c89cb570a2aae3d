"""Programs that are no models in PyTorch: a sample of what `scripts/structure --outsiders` scores."""

from __future__ import annotations

from generators import programs
from generators.outsiders import FAMILIES, draw
from stranger_score import judged
from structure_score import score

from xsp_post.hierarchy import build_tree

# noise, operators of a pool of threads, numbered ranges of two threads, evaluation before a step, beside marked steps,
# steps of a stencil checked now and then, two layers a stage
RIGHT = (17, 22, 27, 30, 33, 42, 60, 84)


def test_structure_of_outsiders_programs():
    said = {
        (seed, question): answer.verdict
        for seed, _, answers in judged(RIGHT, draw)
        for question, answer in answers.items()
    }
    assert set(said.values()) <= {"right", ""}, {key: verdict for key, verdict in said.items() if verdict != "right"}


def test_outsiders_are_of_many_families_and_a_seed_is_one_program():
    assert len(FAMILIES) >= 12
    assert [row["start"] for row in draw(25).machines[0].work] == [row["start"] for row in draw(25).machines[0].work]


def test_waits_of_a_worker_do_not_bound_the_executions_of_another():
    program = programs.draw(3284)
    assert score(build_tree(program.trace), program.truth).executions.verdict == "right"
