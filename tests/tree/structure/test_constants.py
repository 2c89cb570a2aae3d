"""Each constant of the finder decides something: a program that is read otherwise with another value, on both sides."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import pytest
from generators.programs import draw
from structure_score import score

from xsp_post.hierarchy import build_tree
from xsp_post.tree.structure.constants import DEFAULTS

BELOW = {
    "fewest_launches": (10, 3107), "fewest_parts": (2, 3107), "alike_ratio": (0.5625, 3107), "near_ratio": (0.0, 21),
    "most_ratio": (0.25, 3105), "holds_ratio": (0.675, 3115), "large_ratio": (0.01, 7), "convolution_ratio": (0.0, 2),
    "slow_start": (0.2, 6), "fewest_turns": (1, 3101),
}  # fmt: skip
ABOVE = {
    "fewest_launches": (400, 0), "fewest_parts": (8, 3101), "spare_bits": (400.0, 0), "alike_ratio": (0.9975, 3101),
    "near_ratio": (0.6, 0), "most_ratio": (0.665, 3102), "holds_ratio": (1.0, 3101), "large_ratio": (0.95, 6),
    "prior_of_model": (1.064, 3115), "prior_of_place": (3.0, 8), "slow_start": (50.0, 13),
    "drift_ratio": (0.1, 3107),
}  # fmt: skip
SIDES = [(name, *side) for sides in (BELOW, ABOVE) for name, side in sides.items()]


@cache
def reading(seed, constants):
    program = draw(seed)
    tree = build_tree(program.trace, constants=constants)
    found = score(tree, program.truth)
    return [(one.verdict, one.found) for one in (found.executions, found.layers, found.warmup)]


@pytest.mark.parametrize(("name", "value", "seed"), SIDES)
def test_another_value_reads_a_program_otherwise(name, value, seed):
    assert reading(seed, replace(DEFAULTS, **{name: value})) != reading(seed, DEFAULTS)


def test_there_are_fifteen_at_most():
    assert len(fields(DEFAULTS)) <= 15
    assert set(BELOW) | set(ABOVE) <= {one.name for one in fields(DEFAULTS)}
    assert DEFAULTS.uneven_ratio == 0.1
