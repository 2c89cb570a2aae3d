"""Work from the sizes that emit_nvtx writes, and the phases of a training step under nsys."""

from __future__ import annotations

import pytest
from builders import ExportBuilder

from xsp_post.pipeline import analyze


def exported(tmp_path, product="ampere_sgemm_128x64_tn"):
    """A forward product of two kernels, its gradient on another thread, an update; then a kernel of no operator."""
    builder = ExportBuilder()
    builder.range("Step 1", 0, 1000)
    builder.range("aten::mm, seq = 5, op_id = 9, sizes = [[8, 4], [4, 16]]", 10, 60)
    builder.kernel(product, launch=(12, 14), run=(20, 50))
    builder.kernel("splitKreduce_kernel", launch=(15, 17), run=(50, 60))
    builder.thread(200)
    builder.range("autograd::engine::evaluate_function: MmBackward0, seq = 5, op_id = 12", 100, 200)
    builder.range("aten::mm, op_id = 13, sizes = [[4, 8], [8, 16]]", 110, 150)
    builder.kernel(product, launch=(112, 114), run=(120, 160))
    builder.thread(100)
    builder.range("Optimizer.step#SGD.step", 300, 400)
    builder.range("aten::add_, op_id = 20, sizes = [[4, 16], [4, 16], []]", 310, 330)
    builder.kernel("vectorized_elementwise_kernel<float>", launch=(312, 314), run=(320, 340))
    builder.range("my own code", 500, 600)
    builder.kernel("custom_kernel", launch=(510, 520), run=(530, 630))
    return analyze([builder.write(tmp_path / "a.sqlite")])


def test_sizes_in_ranges_tell_the_work_and_kernels_share_it_by_duration(tmp_path):
    analysis = exported(tmp_path)
    work = analysis.frame("kernel_work").merge(analysis.frame("kernels")[["kernel_id", "name"]], on="kernel_id")
    forward = work[work["phase"].eq("forward")]
    assert forward["flop"].sum() == 2 * 8 * 4 * 16
    assert forward["flop"].tolist() == pytest.approx([1024 * 0.75, 1024 * 0.25])
    assert (forward["read_bytes"] + forward["written_bytes"]).sum() == 4 * (32 + 64 + 128)  # fp32, as sgemm says
    assert set(forward["pipe"]) == {"fp32"}
    assert work[work["name"].eq("custom_kernel")]["flop"].isna().all()


def test_phases_of_a_step_by_ranges(tmp_path):
    analysis = exported(tmp_path)
    phases = (
        analysis.frame("kernel_work").merge(analysis.frame("kernels"), on="kernel_id").groupby("phase", observed=True)
    )
    spent = phases["duration_ns"].sum()
    assert spent["other"] == 100
    assert spent["forward"] == 40 and spent["backward"] == 40 and spent["optimizer"] == 20
    row = analysis.frame("a15").iloc[0]
    assert (row["backward_kernel_ns"], row["optimizer_kernel_ns"]) == (40, 20)
    assert row["counter_coverage_ratio"] == pytest.approx(0.5) and row["bound"] == "unknown"
    assert "work-from-shapes-partial" in {one.code for one in analysis.findings}


def test_the_kernels_name_tells_half_precision(tmp_path):
    operators = exported(tmp_path, "ampere_fp16_s16816gemm_fp16_128x64").frame("operators")
    product = operators[operators["operator"].eq("aten::mm")]
    assert set(product["pipe"]) == {"fp16_tensor"}
    assert product["least_bytes"].tolist()[0] == 2 * (32 + 64 + 128)
    assert product["note"].str.contains("taken as fp16").all()
