"""Copies from pageable memory: what pinned memory saves is the recorded bytes at the rate of pinned copies."""

from __future__ import annotations

import pytest
from builders import ExportBuilder

from xsp_post.hardware.gpus import pinned_bytes_per_s
from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import main_limit
from xsp_post.tables.analyses.advice import advise

US, STEPS, MB = 1_000, 12, 1_000_000
KERNEL_US, GB_PER_S = 400, 6


def recording(path, gpu, size, *, pinned=""):
    """Steps that wait for a copy of `size` bytes at 6 GB/s from pageable memory, then for a kernel. ``pinned``: one
    copy a step from pinned memory: as large as the others ("large"), or of few bytes ("small")."""
    builder, at, length = ExportBuilder().gpu(name=gpu), 1_000, size // GB_PER_S // US
    for step in range(STEPS):
        begin = at
        builder.memcpy(
            size, launch=(at * US, (at + length) * US), run=((at + 2) * US, (at + length) * US), srcKind=0, dstKind=2
        )
        at += length + 5
        if pinned:
            few = size if pinned == "large" else 2_000_000
            took = few // 12 // US  # 12 GB/s
            builder.memcpy(
                few, launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 3 + took) * US), srcKind=1, dstKind=2
            )
            at += took + 5
        builder.kernel("gemm", launch=(at * US, (at + 3) * US), run=((at + 5) * US, (at + 5 + KERNEL_US) * US),
                       grid=(1080, 1, 1))  # fmt: skip
        builder.sync("cudaStreamSynchronize_v3020", (at + 4) * US, (at + 7 + KERNEL_US) * US)
        at += KERNEL_US + 10
        builder.range(f"step {step}", begin * US, at * US)
    return builder.write(path)


def hidden(path):
    results = analyze([path])
    limit = main_limit(results)
    return next((one for one in advise(results, limit) if one.code == "overlap-copies"), None), limit


def test_copies_longer_than_all_else_are_as_fast_as_the_link(tmp_path):
    """3.6 GB of copies at 24.6 GB/s instead of 6: the kernels hide beside them, or they beside the kernels."""
    advice, limit = hidden(recording(tmp_path / "a.sqlite", "NVIDIA A100-SXM4-40GB", 300 * MB))
    pageable, pinned = (STEPS * 300 * MB / rate for rate in (GB_PER_S, 24.6))
    assert "pinned memory" in advice.what and limit.kind == "copy"
    assert advice.estimate_ns == pytest.approx(pageable - pinned + STEPS * KERNEL_US * US, rel=0.05)
    assert advice.estimate_ns <= advice.bound_ns <= limit.whole_ns


def test_a_pinned_copy_of_that_size_knows_the_rate(tmp_path):
    slow, _ = hidden(recording(tmp_path / "a.sqlite", "NVIDIA A100-SXM4-40GB", 300 * MB, pinned="large"))
    fast, _ = hidden(recording(tmp_path / "b.sqlite", "NVIDIA A100-SXM4-40GB", 300 * MB, pinned="small"))
    saved = STEPS * 300 * MB / GB_PER_S
    assert slow.estimate_ns < 0.6 * saved and fast.estimate_ns > 0.7 * saved


def test_where_no_rate_is_known_there_is_no_estimate(tmp_path):
    advice, _ = hidden(recording(tmp_path / "a.sqlite", "Radeon", 300 * MB))
    assert advice.estimate_ns == -1 and advice.bound_ns > 0


@pytest.mark.parametrize(("name", "capability", "gb"), [
    ("NVIDIA A100-SXM4-80GB", "8.0", 24.6), ("NVIDIA H200", "9.0", 55.4), ("NVIDIA GH200 480GB", "9.0", 0),
    ("AMD Instinct MI210", "9.0", 0), ("", "", 0),
])  # fmt: skip
def test_the_link_of_a_device(name, capability, gb):
    assert pinned_bytes_per_s({"gpu_name": name, "compute_capability": capability}) == gb * 1e9
