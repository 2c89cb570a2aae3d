"""A counter report alone: kernels, ranges and counters are there, and the durations say what they are."""

from __future__ import annotations

import pytest

from xsp_post import pipeline

REPORTS = {
    "cublas_sgemm_a100_2022.2": 1, "cutlass_int8_nvtx_a100_2024.1": 3, "graph_gb200_2025.3": None,
    "julia_a40_2022.1": None, "sgemm_roofline_a10g_2023.1": None,
}  # fmt: skip
# launch__registers_per_thread of the first kernel, as NVIDIA's reader prints it
REGISTERS = {"cublas_sgemm_a100_2022.2": 86, "cutlass_int8_nvtx_a100_2024.1": 188, "julia_a40_2022.1": 16,
             "sgemm_roofline_a10g_2023.1": 51}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_alone_gives_kernels_with_counters(captures, name):
    pytest.importorskip("ncu_report")
    frames = pipeline.analyze([captures / "ncu" / f"{name}.ncu-rep"]).frames
    kernels = frames["kernels"]
    assert len(kernels) >= 1 and (kernels["duration_ns"] > 0).all()
    if REPORTS[name]:
        assert len(kernels) == REPORTS[name]
    assert "durations-under-counters" in set(frames["findings"]["code"])
    assert frames["captures"]["level"].tolist() == ["M/L/G+counters"]
    matched = frames["kernel_metrics"]["kernel_id"].nunique()
    assert matched == len(kernels)
    assert kernels["registers_per_thread"].iloc[0] == REGISTERS.get(name, kernels["registers_per_thread"].iloc[0]) > 0
    assert (kernels["static_shared_memory_bytes"] < 0).all()  # not read: unknown, not none


def test_ranges_of_the_report_become_nodes(captures):
    pytest.importorskip("ncu_report")
    frames = pipeline.analyze([captures / "ncu" / "cutlass_int8_nvtx_a100_2024.1.ncu-rep"]).frames
    nodes = frames["nodes"].set_index("name")
    assert nodes.loc["Fused-GEMM", "kernel_count"] == 1
    assert nodes.loc["Non-fused-GEMM", "kernel_count"] == 2
