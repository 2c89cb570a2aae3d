"""The replay's engine against the plain recurrence, one step at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.replay.simulate import NEVER, ZERO, Program, lanes_of, run


def made_program(count: int, width: int, seed: int) -> Program:
    rng = np.random.default_rng(seed)
    second_ns = np.where(rng.random(count) < 0.5, NEVER, rng.integers(-5, 100, count))
    return Program(
        rng.integers(1, width, count), rng.integers(0, width, count), rng.integers(0, 100, count),
        rng.integers(0, width, count), second_ns, width,
    )  # fmt: skip


def step_by_step(program: Program) -> list[int]:
    registers = [0] * program.register_count
    times = []
    for k in range(len(program)):
        one = registers[program.first[k]] + int(program.first_ns[k])
        other = registers[program.second[k]] + int(program.second_ns[k])
        registers[program.target[k]] = max(one, other)
        times.append(max(one, other))
    return times


@examples(60)
@given(st.integers(1, 400), st.integers(2, 9), st.integers(0, 1 << 30))
def test_chunks_give_what_single_steps_give(count, width, seed):
    program = made_program(count, width, seed)
    assert run(program).tolist() == step_by_step(program)


def test_lanes_serve_the_same_steps_with_other_times():
    program = made_program(301, 5, 3)
    lanes = lanes_of(program.target, program.first, program.second, program.register_count)
    for seed in (4, 5):
        program.first_ns = np.random.default_rng(seed).integers(0, 100, 301)
        assert run(program, lanes).tolist() == step_by_step(program)


def test_no_steps_no_times():
    nothing = np.zeros(0, np.int64)
    assert len(run(Program(nothing, nothing, nothing, nothing, nothing, 1))) == 0


@pytest.mark.parametrize("bound", [10, 1_000_000_000_000_000_000])
def test_a_bound_is_a_step_from_zero(bound):
    one = np.array([1])
    program = Program(one, one, np.array([3]), np.array([ZERO]), np.array([bound]), 2)
    assert run(program).tolist() == [bound]


def test_later_amounts_never_make_anything_earlier():
    program = made_program(500, 6, 7)
    before = run(program)
    program.first_ns = program.first_ns + np.random.default_rng(1).integers(0, 50, 500)
    assert (run(program) >= before).all()
