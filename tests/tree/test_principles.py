"""Programs that show what an execution is where neither ranges nor equal launches say it, one for each principle."""

from __future__ import annotations

from importlib import import_module

import pytest
from generators import programs
from generators.machine import write
from stranger_score import judge
from structure_score import score

from xsp_post.hierarchy import build_tree

EXECUTIONS = {
    ("strangers", 549): "a marked stage holds little of a frame of any length: the host waits for the frame",
    ("strangers", 543): "two steps of unlike length that take turns between two marks are one",
    ("strangers", 519): "a cut recording is not known to begin as its turns do: the pauses say where they begin",
    ("outsiders", 181): "of marks whose stretches take turns every second one bounds an execution",
    ("visitors", 425): "a few launches between two marks are no execution, however alike",
    ("guests", 324): "turns of one loop up to the end of the recording are runs, not layers of one pass",
    ("callers", 6): "the first turn of a cycle may lack the range that it begins with",
    ("callers", 32): "where the whole recording is one repeat, what repeats is the execution",
}


@pytest.mark.parametrize(("author", "seed"), EXECUTIONS)
def test_executions_of_programs_that_show_a_principle(author, seed, tmp_path):
    program = import_module(f"generators.{author}").draw(seed)
    answers = judge(program, write(program, tmp_path / "program"))
    assert answers["executions"].verdict == "right", EXECUTIONS[author, seed]


@pytest.mark.parametrize("seed", [3207, 3246])
def test_a_pass_of_two_layers_is_one_where_it_begins_with_an_embedding(seed):
    program = programs.draw(seed)
    assert score(build_tree(program.trace), program.truth).layers.verdict == "right"
