"""A profiler that begins while work is queued: kernels run in the first execution whose launch nobody recorded."""

from __future__ import annotations

import numpy as np
import pytest
from builders import ExportBuilder

from xsp_post.arrays.joins import queued_before
from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import main_limit
from xsp_post.reports.why import why
from xsp_post.tables.analyses.advice import advise

NAME = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4"
QUEUED, STEPS, LENGTH = 7, 5, 10_000_000


def recording(path):
    """Four products a step, launched within 0.1 ms; seven from before the recording run first."""
    builder = ExportBuilder().gpu(name="NVIDIA H200")
    host, device = 1_000_000, 1_050_000
    builder.range("step 0", host, host + 100_000)
    for _ in range(QUEUED):
        builder.kernel(NAME, run=(device, device + LENGTH))
        device += LENGTH + 1_500
    for step in range(STEPS):
        if step:
            builder.range(f"step {step}", host, host + 100_000)
        for k in range(4):
            at = host + 10_000 + 20_000 * k
            builder.kernel(NAME, launch=(at, at + 5_000), run=(device, device + LENGTH))
            device += LENGTH + 1_500
        host += 110_000
    return builder.write(path)


def test_what_was_queued_before_is_of_no_execution(tmp_path):
    results = analyze([recording(tmp_path / "a.sqlite")])
    windows = results.frame("device_windows").set_index("scope")
    assert windows.loc["execution", "kernel_count"] == 4 * STEPS
    assert windows.loc["execution", "kernel_ns"] == windows.loc["execution", "kernel_busy_ns"]
    assert windows.loc["outside", "kernel_ns"] == QUEUED * LENGTH
    limit = main_limit(results)
    assert limit.replayed_ns == windows.loc["execution", "window_ns"]
    assert limit.replayed_ns == pytest.approx(4 * STEPS * (LENGTH + 1_500), abs=3_000)


def test_places_and_advice_are_of_the_executions_alone(tmp_path):
    results = analyze([recording(tmp_path / "a.sqlite")])
    said = why(results)
    assert sum(one.time_ns for one in said.where) == 4 * STEPS * LENGTH and all(one.resource for one in said.where)
    assert "launched before the first recorded launch" in said.coverage_note
    found = {one.code: one.count for one in results.findings}
    assert found["queued-kernels"] == QUEUED and "orphan-kernels" not in found
    [first] = [one for one in advise(results, said.limit) if one.code == "tensor-cores"]
    assert 0.85 < first.bound_ratio < 1


def test_a_lost_launch_row_leaves_its_kernel_in_the_execution(tmp_path):
    builder = ExportBuilder().gpu(name="NVIDIA H200")
    for step in range(3):
        at = 1_000_000 * (step + 1)
        builder.range(f"step {step}", at, at + 900_000)
        for k in range(10):
            begin, run = at + 50_000 * k, (at + 50_000 * k + 10_000, at + 50_000 * k + 50_000)
            is_lost = k == 5
            builder.kernel(NAME, run=run) if is_lost else builder.kernel(NAME, launch=(begin, begin + 5_000), run=run)
    results = analyze([builder.write(tmp_path / "lost.sqlite")])
    windows = results.frame("device_windows").set_index("scope")
    assert windows.loc["execution", "kernel_count"] == 30 and "outside" not in windows.index
    assert [one.count for one in results.findings if one.code == "orphan-kernels"] == [3]


@pytest.mark.parametrize(("rest_ns", "is_held_up"), [(0, True), (35, True), (45, False)])
def test_a_queue_holds_up_what_the_device_has_no_rest_for(rest_ns, is_held_up):
    """Two operations of 40 ns in all from before, and three with launches that rest in between."""
    start = np.array([0, 20, 40, 60 + rest_ns // 2, 80 + rest_ns])
    launched, process = np.array([False, False, True, True, True]), np.zeros(5, np.int64)
    found = queued_before(process, [process], start, start + 20, launched)
    assert found.tolist() == [is_held_up] * 2 + [False] * 3


def test_each_stream_has_a_queue_of_its_own():
    """A plain loop over the operations of a stream; a stream without any launch is that of its process."""
    random = np.random.default_rng(7)
    for _ in range(50):
        count = int(random.integers(1, 40))
        process, stream = random.integers(0, 2, count), random.integers(0, 3, count)
        start, launched = random.permutation(count) * 10, random.random(count) < 0.4
        end = start + count * 10  # no device rests
        expected = []
        for k in range(count):
            mine = launched & (process == process[k])
            first = start[mine & (stream == stream[k])] if (mine & (stream == stream[k])).any() else start[mine]
            expected.append(not launched[k] and len(first) > 0 and start[k] < first.min())
        assert queued_before(process, [stream], start, end, launched).tolist() == expected
