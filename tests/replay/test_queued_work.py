"""A profiler that begins while work is queued: kernels run in the first execution whose launch nobody recorded."""

from __future__ import annotations

from builders import ExportBuilder

from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import main_limit
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


def test_kernels_of_a_window_are_those_of_its_busy_time(tmp_path):
    results = analyze([recording(tmp_path / "a.sqlite")])
    windows = results.frame("device_windows").set_index("scope")
    assert windows.loc["execution", "kernel_count"] == QUEUED + 4 * STEPS
    assert windows.loc["execution", "kernel_ns"] == windows.loc["execution", "kernel_busy_ns"]
    assert windows["kernel_count"].sum() == QUEUED + 4 * STEPS


def test_advice_concerns_the_queued_kernels_too(tmp_path):
    results = analyze([recording(tmp_path / "a.sqlite")])
    limit = main_limit(results)
    [first] = [one for one in advise(results, limit) if one.code == "tensor-cores"]
    assert first.bound_ratio > 0.85  # without the queued ones at most 20 of 27 kernels
