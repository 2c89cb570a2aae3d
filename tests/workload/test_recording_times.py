"""How long a step took before it was recorded: without the program's first step, and without the profiler's start."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from xsp_post.commands.record import step_times
from xsp_post.model.capture import SUMMARY
from xsp_post.model.capture import step_times as recorded_steps

MS = 1_000_000


@pytest.mark.parametrize(
    ("starting_ms", "expected"), [(185, 0.044), (0, 0.1365)], ids=["profiler's start known", "older summary"]
)
def test_the_start_of_the_profiler_is_no_part_of_a_step(starting_ms, expected, tmp_path):
    begun = [0, 530, 574, 803, 848, 894]
    summary = {"begun_ns": [at * MS for at in begun], "warmup_count": 3, "starting_ns": starting_ms * MS}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    expected = {"step_before_ns": expected * 1e9, "step_recorded_ns": 45.5 * MS, "step_awake_ns": expected * 1e9}
    assert recorded_steps(tmp_path) == pytest.approx(expected)


def test_waits_for_a_processor_are_no_part_of_a_step_that_was_not_recorded(tmp_path):
    """Another program had the processor for 60 ms of the third step, and for 30 ms while the profiler started."""
    begun, waited = [0, 500, 544, 748, 793], [0, 0, 0, 90, 90]
    awake = [(at - late) * MS for at, late in zip(begun, waited, strict=True)]
    summary = {"begun_ns": [at * MS for at in begun], "awake_ns": awake, "warmup_count": 3, "starting_ns": 100 * MS,
               "starting_awake_ns": 70 * MS}  # fmt: skip
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    expected = {"step_before_ns": 74 * MS, "step_recorded_ns": 45 * MS, "step_awake_ns": 44 * MS}
    assert recorded_steps(tmp_path) == pytest.approx(expected)


@pytest.mark.parametrize("begun", [[], [5], [5, 6]])
def test_too_few_steps_say_nothing(begun, tmp_path):
    (tmp_path / SUMMARY).write_text(json.dumps({"begun_ns": begun, "warmup_count": 1, "starting_ns": 3}))
    assert recorded_steps(tmp_path) == {}


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"begun_ns": 5, "warmup_count": 1}', '{"begun_ns": ["a", "b"], "warmup_count": 1}', "{",
             '{"begun_ns": [1, 2, 3], "warmup_count": "x"}', '{"begun_ns": [3, 2, 1, 0], "warmup_count": 2}']
)  # fmt: skip
def test_a_file_of_that_name_that_says_something_else_says_nothing(text, tmp_path):
    (tmp_path / SUMMARY).write_text(text)
    assert recorded_steps(tmp_path) == {}


@pytest.mark.parametrize(
    ("before_s", "within_s", "warned"),
    [(0.01, 0.0199, ""), (0.01, 0.0051, ""), (0.01, 0.031, "3.1 times as long"), (0.01, 0.0049, "0.49 times")],
)
def test_recorded_steps_that_are_unlike_those_before_are_warned_of(before_s, within_s, warned):
    said = step_times(before_s * 1e9, within_s * 1e9)
    assert said.startswith("A step took 10.0 ms before the recording")
    assert ("Warning" in said) is bool(warned) and warned in said
    assert ("the profiler" in said.partition("Warning")[2]) is (bool(warned) and within_s > before_s)
