"""How long a step took before it was recorded: without the program's first step, and without the profiler's start."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from xsp_post.commands.record import step_times
from xsp_post.workload.program import SUMMARY
from xsp_post.workload.recording import _step_times

MS = 1_000_000


@pytest.mark.parametrize(
    ("starting_ms", "expected"), [(185, 0.044), (0, 0.1365)], ids=["profiler's start known", "older summary"]
)
def test_the_start_of_the_profiler_is_no_part_of_a_step(starting_ms, expected, tmp_path):
    begun = [0, 530, 574, 803, 848, 894]
    summary = {"begun_ns": [at * MS for at in begun], "warmup_count": 3, "starting_ns": starting_ms * MS}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    before, within = _step_times(tmp_path)
    assert before == pytest.approx(expected) and within == pytest.approx(0.0455)


@pytest.mark.parametrize("begun", [[], [5], [5, 6]])
def test_too_few_steps_say_nothing(begun, tmp_path):
    (tmp_path / SUMMARY).write_text(json.dumps({"begun_ns": begun, "warmup_count": 1, "starting_ns": 3}))
    assert _step_times(tmp_path) == (None, None)


@pytest.mark.parametrize(
    ("before_s", "within_s", "warned"),
    [(0.01, 0.0199, ""), (0.01, 0.0051, ""), (0.01, 0.031, "3.1 times as long"), (0.01, 0.0049, "0.49 times")],
)
def test_recorded_steps_that_are_unlike_those_before_are_warned_of(before_s, within_s, warned):
    said = step_times(before_s, within_s)
    assert said.startswith("A step took 10.0 ms before the recording")
    assert ("Warning" in said) is bool(warned) and warned in said
    assert ("the profiler" in said.partition("Warning")[2]) is (bool(warned) and within_s > before_s)
