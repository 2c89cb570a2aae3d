"""Servers as their users record them: texts of engines and of users' loops, adapters, several processes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dialects_score import dialect_faults
from generators.engine_dialects import recording

from xsp_post.names.families import joins_ranks
from xsp_post.tables.analyses.steps import extra_kernels

SAMPLE = (("ray serve", 1), ("plain names", 2), ("adapters", 2), ("late expert", 1), ("late expert", 4),
          ("disaggregated", 1))  # fmt: skip


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
