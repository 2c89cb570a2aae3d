"""A real loop of decode steps on this machine: what its cost model errs by on steps that it was not fitted to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xsp_post

torch = pytest.importorskip("torch", reason="torch is not installed (extra run)")
PROGRAM = Path(__file__).with_name("decode_loop.py")
STEPS, RUNS = 100, 3


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Level M of three processes that make the same steps."""
    folder = tmp_path_factory.mktemp("decode") / "loop.xsp-run"
    asked = ["--model", f"{PROGRAM}:build", "--levels", "M", "--threads", "1", "--device", "cpu"]
    command = [sys.executable, "-m", "xsp_post", "run", *asked, "--iterations", str(STEPS), "--repeat", str(RUNS)]
    command += ["-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return xsp_post.load(folder)


def test_every_step_that_the_program_marks_is_measured_with_its_kind_and_sizes(measured):
    steps = measured["iterations"]
    steps = steps[~steps["is_warmup"]]
    assert len(steps) == STEPS * RUNS and set(steps["kind"]) == {"decode"}
    assert steps["batch_size"].between(1, 16).all() and steps["longest_key_count"].between(16, 2048).all()
    assert (steps["key_count"] == steps["batch_size"] * steps["longest_key_count"]).all()
    same = steps.groupby("iteration_index")["key_count"].nunique()
    assert (same == 1).all()


def test_the_model_errs_on_other_steps_by_little_beside_what_two_runs_differ_by(measured):
    """At most 5 %, or twice the spread of one step from run to run."""
    steps = measured["iterations"][~measured["iterations"]["is_warmup"]]
    times = steps.pivot(index="iteration_index", columns="capture_id", values="latency_ns")
    spread = float((times.std(axis=1) / times.mean(axis=1)).median()) / 0.886  # the bias of three values' deviation
    errors = measured["step_costs"].query("family == 'step'")["error_ratio"]
    assert len(errors) == RUNS and np.median(errors) <= max(0.05, 2 * spread)


def test_the_same_steps_in_a_recording_of_torch(tmp_path):
    sys.path.insert(0, str(PROGRAM.parent))
    from decode_loop import build

    model, x = build()
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            model(x)
    profiler.export_chrome_trace(str(tmp_path / "loop.json"))
    profile = xsp_post.load(tmp_path / "loop.json")
    assert profile["iterations"]["kind"].eq("decode").sum() == STEPS
    costs = profile["step_costs"].set_index("family")
    assert costs.loc["step", "held_back_count"] > 0
    assert costs["share_ratio"].drop("step").idxmax() in ("attention", "gemm")
