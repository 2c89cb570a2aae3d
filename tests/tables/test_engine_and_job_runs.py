"""Inference engines and jobs of another author: a sample of `scripts/backtest --engines` and `--jobs`."""

from __future__ import annotations

import numpy as np
import pytest
from generators.engine_runs import run
from runs_score import cluster_job_faults, engine_faults, job_faults, mesh_job_faults, rank_files_faults, server_faults


@pytest.mark.parametrize("seed", [1, 5, 7, 10, 18, 23])
def test_costs_outliers_and_drift_of_an_engine(seed, tmp_path):
    assert engine_faults(seed, tmp_path) == []


@pytest.mark.parametrize("seed", [2, 12, 14, 15, 21])
def test_costs_and_slow_steps_of_a_server_whose_contexts_grow(seed, tmp_path):
    assert server_faults(seed, tmp_path) == []


def test_half_of_the_steps_of_a_size_may_be_slow(tmp_path):
    assert engine_faults(213, tmp_path) == []


@pytest.mark.parametrize("seed", [0, 2, 3, 6])
def test_late_rank_and_its_cause(seed, tmp_path):
    assert job_faults(seed, tmp_path) == []


def test_late_input_of_a_rank_whose_clock_is_its_own(tmp_path):
    assert rank_files_faults(1, tmp_path) == []


# all-to-all, two are late; a pipeline of 4 stages; persistent kernels and larger inputs; nobody late; late by turns
@pytest.mark.parametrize("seed", [4, 21, 28, 17, 6])
def test_late_ranks_of_a_mesh(seed, tmp_path):
    assert mesh_job_faults(seed, tmp_path) == []


# stages of unlike length; a checkpoint now and then; a collector of garbage; compilation in one step; a slow link
@pytest.mark.parametrize("seed", [2, 5, 6, 8, 4])
def test_late_ranks_of_a_cluster_in_use(seed, tmp_path):
    assert cluster_job_faults(seed, tmp_path) == []


def test_the_seeds_hold_outliers_drift_and_sizes_that_tell_nothing():
    made = [run(seed, 40) for seed in (1, 5, 7, 10, 18, 23)]
    assert any(one.outliers for one in made) and any(one.drift for one in made)
    assert any(one.unknown for one in made)
    lengths = [np.ptp([row["start"] for row in one.program.machines[0].work]) for one in made]
    assert len(set(lengths)) == len(made)
