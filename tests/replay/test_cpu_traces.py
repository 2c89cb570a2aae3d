"""Traces of CPU runs: operators are their own launches; layers include the host time between their operators."""

from __future__ import annotations

import json

import pytest

from xsp_post.pipeline import analyze
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.what_if import what_if


def trace(path, *, mm_us: float = 400.0, sleep_us: float = 0.0, passes: int = 6):
    """Passes of two linear layers with some Python time between the operators, as the PyTorch profiler writes them."""
    events, at = [], 1_000_000.0

    def event(category: str, name: str, start: float, length: float) -> None:
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length,
                       "args": {}})  # fmt: skip

    for _ in range(passes):
        begin = at
        at += 20 + sleep_us
        for layer in range(2):
            start = at
            at += 15
            event("cpu_op", "aten::mm", at, mm_us)
            at += mm_us + 25
            event("cpu_op", "aten::relu", at, 100)
            at += 100 + 10
            event("python_function", f"nn.Module: Linear_{layer}", start, at - start)
        at += 20
        event("user_annotation", "xsp/model", begin, at - begin)
        at += 50
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def latency_of(path) -> float:
    return float(identity_of(analyze([path]), 0).recorded["latency_ns"].median())


def test_the_replay_of_a_cpu_run_is_the_run(tmp_path):
    identity = identity_of(analyze([trace(tmp_path / "one.json")]), 0)
    assert identity.error_ratio < 1e-6
    assert not identity.refusal


@pytest.mark.parametrize(
    ("change", "edited"),
    [
        ("kernel:aten::mm=2x", {"mm_us": 800.0}),
        ("kernel:aten::mm=0.25x", {"mm_us": 100.0}),
        ("host:^model$=+5ms", {"sleep_us": 5_000.0}),
    ],
)
def test_a_cpu_run_changed_is_predicted(change, edited, tmp_path):
    results = analyze([trace(tmp_path / "before.json")])
    real = latency_of(trace(tmp_path / "after.json", **edited))
    prediction = what_if(results, [change])
    assert prediction.latency.predicted_ns == pytest.approx(real, rel=0.01)


def test_a_layer_twice_as_slow_is_so_with_its_host_time(tmp_path):
    results = analyze([trace(tmp_path / "before.json")])
    prediction = what_if(results, ["layer:Linear_0=2x"])
    gained = prediction.latency.predicted_ns - prediction.latency.measured_ns
    assert gained == pytest.approx(500_000 + 25_000, rel=0.05)


def test_the_first_execution_also_takes_longer_with_more_host_time(tmp_path):
    """No call is before it; with one execution only, it is all there is."""
    results = analyze([trace(tmp_path / "one.json", passes=1)])
    prediction = what_if(results, ["host:^model$=+5ms"])
    assert prediction.latency.predicted_ns == prediction.latency.measured_ns + 5_000_000
    faster = what_if(results, ["host=0x"])
    assert faster.latency.predicted_ns < prediction.latency.measured_ns
