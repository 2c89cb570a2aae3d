"""Traces of CPU runs: operators are their own launches; layers include the host time between their operators."""

from __future__ import annotations

import json

import pytest

from xsp_post.pipeline import analyze
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.limits import find_limit


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


def rank(path, *, talk_us: float = 3_000.0, mm_us: float = 400.0, is_beside: bool, passes: int = 6):
    """Passes of a rank of a job on CPUs: four products, and an all-reduce behind each that a thread of the library
    carries out. The rank waits for it at once, or (``is_beside``) for all of them at the end. No wait is recorded."""
    events, at = [], 1_000_000.0

    def event(category: str, name: str, start: float, length: float, thread: int = 1) -> float:
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": length,
                       "args": {}})  # fmt: skip
        return start + length

    for _ in range(passes):
        begin, free = at, 0.0
        for _ in range(4):
            at = event("cpu_op", "aten::mm", at + 15, mm_us)
            at = event("cpu_op", "c10d::allreduce_", at + 20, 60)
            free = event("user_annotation", "gloo:all_reduce", max(at + 30, free + 20), talk_us, 2)
            at = at if is_beside else free
        at = event("cpu_op", "aten::add_", max(at, free) + 40, 100) + 20
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


@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize(
    ("change", "edited"),
    [
        ("kernel:all_reduce=2x", {"talk_us": 6_000.0}),
        ("kernel:all_reduce=0.1x", {"talk_us": 300.0}),
        ("kernel:aten::mm=10x", {"mm_us": 4_000.0}),
    ],
)
def test_collectives_on_threads_of_a_library_run_beside_their_caller(is_beside, change, edited, tmp_path):
    """Real jobs were replayed as if the caller carried its collectives out, and then went on waiting for them."""
    results = analyze([rank(tmp_path / "before.json", is_beside=is_beside)])
    assert identity_of(results, 0).error_ratio < 0.02
    real = latency_of(rank(tmp_path / "after.json", is_beside=is_beside, **edited))
    assert what_if(results, [change]).latency.predicted_ns == pytest.approx(real, rel=0.02)
    assert find_limit(results).kind == "communication"
    gains = results.frame("experiment").groupby("resource")["gain_ratio"].max()
    assert gains["synchronisation"] == 0 < gains["host"]  # it goes on with what they gave: no wait to do without


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
