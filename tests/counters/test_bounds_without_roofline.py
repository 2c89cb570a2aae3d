"""Integer tensor kernels are not kernels of zero flop; Nsight Compute's own shares give a bound where flop do not."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from xsp_post.hardware.gpus import GPUS, PIPES, Peaks, find_peaks
from xsp_post.pipeline import Analysis, results_of
from xsp_post.reports.verdict import peaks_reached
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.analyses.roofline import Work, aggregate, intensity_columns

GPU = {0: Peaks("g", {"fp32": 1e12}, 1e11)}


def work(flop, dram, latency_ns, **conditions):
    count = len(flop)
    nothing = np.full(count, np.nan)
    covered = (~np.isnan(flop)).astype(float)
    conditions = {name: np.asarray(values, float) for name, values in conditions.items()}
    return Work(
        np.zeros(count, np.int64), np.asarray(latency_ns, float), np.asarray(flop, float), {}, nothing, nothing,
        np.asarray(dram, float), nothing, nothing, covered, conditions,
    )  # fmt: skip


def test_shares_of_the_tool_come_before_the_roofline():
    rows = work(
        [np.nan] * 4 + [1e9],
        [np.nan] * 4 + [1e3],
        [1e6] * 5,
        compute_speed_ratio=[0.9, 0.2, 0.3, np.nan, 0.1],
        memory_speed_ratio=[0.3, 0.8, 0.3, 0.9, 0.9],
    )
    found = intensity_columns(rows, GPU, Options())
    assert list(found["bound"]) == ["compute", "memory", "latency", "unknown", "memory"]
    assert list(found["bound_source"]) == ["speed of light"] * 3 + ["", "speed of light"]


def test_the_roof_is_at_the_clock_of_the_measurement():
    # 0.5 Mflop in 1 µs are half of 1 Tflop/s, and all of the 0.5 Tflop/s that the tool's base clock allows
    rows = work([5e5], [1.0], [1e3], peak_fp32_flop_per_s=[5e11], peak_dram_bytes_per_s=[1e11])
    assert intensity_columns(rows, GPU, Options())["roof_ratio"][0] == pytest.approx(1.0)
    assert intensity_columns(work([5e5], [1.0], [1e3]), GPU, Options())["roof_ratio"][0] == pytest.approx(0.5)


def test_shares_of_a_group_are_weighted_by_time_and_unknown_where_one_is():
    rows = work([np.nan] * 3, [np.nan] * 3, [3e3, 1e3, 1e3], compute_speed_ratio=[0.8, 0.4, np.nan])
    total, _ = aggregate(rows, np.array([0, 0, 1]), 2, np.zeros(2, np.int64))
    assert total.conditions["compute_speed_ratio"][0] == pytest.approx(0.7)
    assert np.isnan(total.conditions["compute_speed_ratio"][1])


def test_the_verdict_says_how_near_its_peaks_the_tool_saw_memory_and_arithmetic():
    """By time, of kernels with both shares; "memory-bound" alone does not say how much is left."""
    shares = {0: (0.8, 0.1), 1: (0.4, 0.5), 2: (0.9, np.nan)}
    metrics = [
        {"kernel_id": kernel, "metric_name": name, "value": value}
        for kernel, pair in shares.items()
        for name, value in zip(("memory_speed_ratio", "compute_speed_ratio"), pair)
    ]
    kernels = pd.DataFrame({"capture_id": 0, "kernel_id": [0, 1, 2, 3], "duration_ns": [3_000, 1_000, 5_000, 7_000]})
    limit = SimpleNamespace(captures=(0,))
    assert peaks_reached(Analysis({"kernels": kernels, "kernel_metrics": pd.DataFrame(metrics)}), limit) == (
        ": memory at 70.0 % of its peak, arithmetic at 20.0 %"
    )
    assert peaks_reached(Analysis({"kernels": kernels}), limit) == ""


def test_an_int8_kernel_of_julia_is_no_kernel_of_zero_flop(captures):
    row = results_of([captures / "ncu/julia_a40_2022.1.ncu-rep"]).frame("a08").set_index("kernel_index").loc[2]
    assert "bb_4477" in row["name"]
    assert pd.isna(row["total_flop"]) and pd.isna(row["roof_ratio"])
    # the tool itself: multiprocessors at 66 %, memory at 44 % of their peaks
    assert (row["bound"], row["bound_source"]) == ("compute", "speed of light")


def test_int8_kernels_of_cutlass_are_not_bound_by_dram(captures):
    table = results_of([captures / "ncu/cutlass_int8_nvtx_a100_2024.1.ncu-rep"]).frame("a08")
    assert table["total_flop"].isna().all() and table["roof_ratio"].isna().all()
    assert list(table["bound"]) == ["latency"] * 3  # 18 % and 15 % of the peaks


@pytest.mark.parametrize(
    ("name", "int8"),
    # dense: A10G as AWS documents its G5 instances, L40 data sheet (724 with sparsity), L4 (485), A10, A40, T4
    [("A10G", 140e12), ("L40", 362e12), ("L4", 242.5e12), ("A10", 250e12), ("A40", 299.3e12), ("Tesla T4", 130e12)],
)
def test_int8_roofs_are_the_dense_ones_of_the_data_sheets(name, int8):
    assert find_peaks(name).peak("int8_tensor") == pytest.approx(int8, rel=0.025)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_a_gpu_says_its_source_and_what_it_overrides_is_whole(gpu):
    assert gpu.source and (gpu.datasheet or gpu.printed), "a row names its document and holds numbers printed there"
    halved = {pipe for pipe in gpu.rates if "tensor" in pipe}
    reduced = {"tf32_tensor", "fp16_tensor", "bf16_tensor", "int8_tensor"}
    assert not halved or reduced <= halved, "an override of one tensor pipe says all of them"
    assert set(gpu.rates) | set(gpu.printed) | set(gpu.datasheet) <= set(PIPES)
