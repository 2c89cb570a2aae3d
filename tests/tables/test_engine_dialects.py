"""Servers as their users record them: texts of engines and of users' loops, adapters, several processes."""

from __future__ import annotations

from random import Random

import numpy as np
import pandas as pd
import pytest
from dialects_score import dialect_faults
from generators.engine_dialects import recording
from generators.machine import Machine, Program, write

import xsp_post
from xsp_post.names.families import joins_ranks
from xsp_post.tables.analyses.steps import extra_kernels

SAMPLE = (("ray serve", 1), ("plain names", 2), ("adapters", 2), ("late expert", 1), ("late expert", 4),
          ("disaggregated", 1), ("llama.cpp", 2), ("eviction", 61012))  # fmt: skip


@pytest.mark.parametrize(("name", "seed"), SAMPLE)
def test_what_is_said_of_a_server_is_true(name, seed, tmp_path):
    assert dialect_faults(name, seed, tmp_path) == []


def test_the_sample_holds_slow_steps_requests_and_a_rank_that_is_late_and_none():
    made = [recording(name, seed) for name, seed in SAMPLE]
    assert sum(len(one.slow) for one in made) >= 6 and any(one.requests for one in made)
    assert {one.late_rank >= 0 for one in made if len(one.kinds) == 4} == {True, False}


def test_kernels_that_many_steps_have_beyond_the_others_are_a_size_and_those_of_few_are_none():
    count = np.array([26] * 30 + [32] * 15 + [27] * 14 + [40, 5])
    assert extra_kernels(count).tolist() == [0] * 30 + [6] * 15 + [0] * 14 + [6, 0]
    assert not extra_kernels(np.arange(40)).any()  # each step has another number


def test_kernels_that_send_tokens_to_experts_join_ranks_and_those_that_sort_them_do_not():
    names = pd.Series(["deep_ep::internode_ll::dispatch<true, 3, 7168>", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                       "moe_permute_kernel", "nvjet_tst_128x64"])  # fmt: skip
    assert joins_ranks(names).tolist() == joins_ranks(names.astype("category")).tolist() == [True, True, False, False]


def slow_steps(folder, waits, text=""):
    """Of 120 steps of one size in each of two processes: place in the first → cause. ``waits``: before which of its
    steps, and what; ``text``: of the range around each step."""
    machines = [Machine(Random(k), pid=7000 + 100 * k, device=k, jitter=0.004) for k in range(2)]
    for machine in machines:
        host, said = machine.thread(0), waits if machine.device == 0 else {}
        for number in range(120):
            if said.get(number) == "allocation":
                host.call("cudaMalloc_v3020", 900)
            else:
                host.host(900 if number in said else 25)
            with host.range(text) if text else host.all():
                host.launch("void k_get_rows_float<float, float>(float const*, int const*, float*)", 3, grid=8)
                for _ in range(3):
                    host.launch("void rms_norm_f32<1024, true, false>(float const*, float*, int)", 5, grid=8)
                    host.launch("void mul_mat_q<(ggml_type)12, 128, false>(char const*)", 60)
                host.launch("void soft_max_f32<true, 1024, 1024, float>(float const*, float const*, float*)", 9)
                host.sync(7)
    profile = xsp_post.load(write(Program("steps", machines, ["step"]), folder / "steps"))
    steps, slow = profile["iterations"], profile["step_outliers"]
    place = {index: k for k, index in enumerate(steps.loc[steps["process_id"] == 7000, "iteration_index"])}
    return {place.get(index): cause for index, cause in zip(slow["iteration_index"], slow["cause"])}


def test_what_delays_the_first_launch_of_a_step_that_no_range_marks_counts_for_it(tmp_path):
    planted = {31: "host_code", 70: "allocation", 71: "host_code"}
    assert slow_steps(tmp_path, planted) == planted


def test_waits_before_many_steps_or_before_a_range_begins_make_no_slow_step(tmp_path):
    assert slow_steps(tmp_path, dict.fromkeys(range(9, 120, 10), "host_code")) == {}
    assert slow_steps(tmp_path, {31: "host_code", 70: "allocation"}, "decode_b8") == {}
