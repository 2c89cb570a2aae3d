"""Engines that serve a pool of requests, of eight dialects of step texts: costs, slow steps, drift, wrong mixes."""

from __future__ import annotations

import pytest
from generators.request_pools import pool
from pools_score import pool_faults

SEEDS = (0, 2, 5, 8, 9, 11, 20, 32)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_of_a_pool_of_requests_is_true(tmp_path, seed):
    assert pool_faults(seed, tmp_path) == []


def test_the_seeds_hold_drift_wrong_mixes_and_most_causes():
    made = [pool(seed) for seed in SEEDS]
    assert {one.wrong for one in made} >= {"two_models", "shuffled", ""} and any(one.drift for one in made)
    assert len({step.cause for one in made for step in one.steps}) >= 7 and any(one.collinear for one in made)
    assert {one.profiler for one in made} == {"torch", "nsys"}
