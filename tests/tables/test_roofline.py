"""Intensity, throughput, roofs and verdicts; sums of counters; missing counters stay unknown."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import frame_of
from paper.data import compute_all

from xsp_post.hardware.gpus import Peaks
from xsp_post.model.results import Analysis
from xsp_post.tables.analyses.kernel_tables import say_above_roof
from xsp_post.tables.analyses.roofline import pipe_of_name, tensor_pipe

# 1 Tflop/s fp32, 10 Tflop/s fp16 tensor, 100 GB/s: ideal intensities 10 and 100 flop/B
PEAKS = {"*": Peaks("toy", {"fp32": 1e12, "fp16_tensor": 1e13, "tf32_tensor": 5e12, "fp64": 1e11}, 1e11)}
SECOND = 10**9


def tables(kernels, *, peaks=PEAKS, iterations=1, layers=(), **choices):
    """Kernels as (duration_ns, {metric: value or (value, source)}[, layer_index[, name]]) in each iteration."""
    rows, metrics = [], []
    for i in range(iterations):
        for k, (duration, counters, *rest) in enumerate(kernels):
            kernel_id = len(rows)
            rows.append(
                {
                    "capture_id": 0,
                    "kernel_id": kernel_id,
                    "iteration_index": i,
                    "duration_ns": duration,
                    "name": rest[1] if len(rest) > 1 else f"k{k}",
                    "start_ns": kernel_id,
                    "launch_start_ns": -1,
                    "layer_index": rest[0] if rest else -1,
                }
            )
            for name, value in counters.items():
                value, source = value if isinstance(value, tuple) else (value, "")
                metrics.append({"kernel_id": kernel_id, "metric_name": name, "value": value, "source": source})
    frames = {
        "captures": frame_of("captures", [{"capture_id": 0, "level": "M/L/G", "gpu_name": "toy"}]),
        "iterations": frame_of(
            "iterations",
            [{"capture_id": 0, "iteration_index": i, "latency_ns": 10 * SECOND} for i in range(iterations)],
        ),
        "kernels": frame_of("kernels", rows),
        "kernel_metrics": frame_of("kernel_metrics", metrics),
        "layers": frame_of("layers", list(layers)),
    }
    found, findings = compute_all(Analysis(frames), peaks=peaks, **choices)
    return found, [f.code for f in findings]


def counters(flop, moved, **more):
    return {"flop": flop, "dram_read_bytes": moved, "dram_write_bytes": 0.0, "dram_bytes": moved, **more}


def test_intensity_and_throughput():
    found, codes = tables([(SECOND // 2, {"flop": 4e11, "dram_bytes": 4e10})])
    row = found["a08"].iloc[0]
    assert row["arithmetic_intensity_flop_per_byte"] == 10 and row["arithmetic_throughput_flop_per_s"] == 8e11
    assert row["roof_ratio"] == pytest.approx(0.8) and codes == []
    assert found["a09"]["roof_flop_per_s"].tolist() == pytest.approx([1e12])


@pytest.mark.parametrize(
    ("kernel", "bound", "pipe"),
    [
        (counters(4e11, 2e10), "compute", "fp32"),  # intensity 20 > 10
        (counters(4e11, 8e10), "memory", "fp32"),  # intensity 5 < 10
        (counters(4e11, 4e10), "compute", "fp32"),  # 10 is not strictly less than 10
        (counters(0, 8e10), "memory", "fp32"),  # no arithmetic at all
        (counters(4e11, 0), "compute", "fp32"),  # no traffic at all
        (counters(4e10, 1e9), "latency", "fp32"),  # 4 % of one roof, 1 % of the other
        (counters(0, 0), "unknown", "fp32"),  # integers, or a type that is not counted
        # the same flop in the tensor cores: its roof is ten times higher
        (counters(4e11, 2e10, flop_tensor=4e11), "memory", "fp16_tensor"),
        (counters(4e12, 2e10, flop_tensor=4e12), "compute", "fp16_tensor"),
        # both pipes: the one that is busy longer decides
        (counters(4.3e12, 1e10, flop_tensor=4e12, flop_fp32=3e11), "compute", "fp16_tensor"),
        (counters(1.9e12, 1e10, flop_tensor=1e12, flop_fp32=9e11), "compute", "fp32"),
        (counters(9e10, 1e9, flop_fp64=9e10), "compute", "fp64"),
    ],
)
def test_verdict_against_the_roof_of_the_pipe_that_ran(kernel, bound, pipe):
    row = tables([(SECOND, kernel)])[0]["a08"].iloc[0]
    assert (row["bound"], row["pipe"]) == (bound, pipe)


def test_the_papers_rule_knows_one_roof_and_two_verdicts():
    kernels = [
        (SECOND, counters(4e10, 1e9)),
        (SECOND, counters(4e11, 2e10, flop_tensor=4e11)),
        (SECOND, counters(4e11, 8e10)),
        (SECOND, counters(0, 0)),
        (SECOND, {}),
    ]
    assert tables(kernels, roof="fp32")[0]["a08"]["bound"].tolist() == [
        "compute",
        "compute",
        "memory",
        "unknown",
        "unknown",
    ]


def test_how_far_is_far_away_can_be_chosen():
    kernel = [(SECOND, counters(4e10, 1e9))]
    assert tables(kernel, latency_bound_ratio=0.03)[0]["a08"]["bound"].tolist() == ["compute"]


@pytest.mark.parametrize("missing", ["flop", "dram_bytes"])
def test_a_missing_or_nan_counter_is_unknown_never_zero(missing):
    for kernel in (counters(4e11, 2e10), {**counters(4e11, 2e10), missing: np.nan}):
        if not np.isnan(kernel[missing]):
            del kernel[missing]
        row = tables([(SECOND, kernel)])[0]["a08"].iloc[0]
        assert row["bound"] == "unknown" and np.isnan(row["arithmetic_intensity_flop_per_byte"])
        assert np.isnan(row["roof_ratio"])


def test_total_dram_bytes_are_enough():
    row = tables([(SECOND, {"flop": 4e11, "dram_bytes": 8e10})])[0]["a08"].iloc[0]
    assert row["bound"] == "memory" and row["arithmetic_intensity_flop_per_byte"] == 5
    assert np.isnan(row["dram_read_bytes"])


def test_an_unknown_roof_is_unknown_and_said():
    found, codes = tables([(SECOND, counters(4e11, 2e10))], peaks={})
    assert found["a08"]["bound"].tolist() == ["unknown"] and "peaks-unknown" in codes
    assert found["a08"]["arithmetic_throughput_flop_per_s"].tolist() == [4e11]  # needs no roof
    assert found["roofs"].empty
    # tensor flop on a GPU whose tensor peak is not known
    kernel = counters(4e11, 2e10, flop_tensor=(4e11, "sm__ops_path_tensor_src_bf16_dst_fp32.sum"))
    row = tables([(SECOND, kernel)])[0]["a08"].iloc[0]
    assert (row["bound"], row["pipe"]) == ("unknown", "bf16_tensor")


def test_faster_than_the_roof_is_a_finding():
    assert "above-roof" in tables([(SECOND, counters(2e12, 1e9))])[1]
    for counted, likely in ((True, "above the clock"), (False, "still in L2")):
        inputs = SimpleNamespace(findings=[])
        say_above_roof(inputs, np.array([1.2]), pd.Series(["k"]), np.array([counted]))
        assert likely in inputs.findings[0].hint
    assert "above-roof" not in tables([(SECOND, counters(1.0005e12, 1e9))])[1]


# Sums ------------------------------------------------------------------------------------------------------


def test_sums_weigh_occupancy_by_latency_and_recompute_the_rest():
    layers = [{"capture_id": 0, "iteration_index": 0, "layer_index": 1, "layer_path": "a", "latency_ns": 5 * SECOND}]
    found, _ = tables(
        [
            (3 * SECOND, counters(3e11, 3e10, occupancy_ratio=0.2, l2_bytes=5.0), 1),
            (1 * SECOND, counters(5e11, 1e10, occupancy_ratio=0.6, l2_bytes=7.0), 1),
        ],
        layers=layers,
    )
    for table in ("a11", "a15"):
        row = found[table].iloc[0]
        assert row["total_flop"] == 8e11 and row["dram_read_bytes"] == 4e10 and row["l2_bytes"] == 12
        assert row["occupancy_ratio"] == pytest.approx((3 * 0.2 + 1 * 0.6) / 4)
        assert row["arithmetic_intensity_flop_per_byte"] == 20  # not the mean of 10 and 50
        assert row["arithmetic_throughput_flop_per_s"] == 2e11  # over kernel latency, not layer latency
        assert row["counter_coverage_ratio"] == 1 and row["counter_source"] == "counters"
    assert found["a14"]["arithmetic_intensity_flop_per_byte"].tolist() == [20]
    assert found["a12"]["total_flop"].tolist() == [8e11]


def test_a_layer_without_kernels_has_no_intensity():
    layers = [
        {"capture_id": 0, "iteration_index": 0, "layer_index": i, "layer_path": str(i), "latency_ns": 5} for i in (1, 2)
    ]
    found, _ = tables([(SECOND, counters(1e11, 1e9), 1)], layers=layers)
    row = found["a11"].iloc[1]
    assert row["kernel_latency_ns"] == 0 and row["kernel_count"] == 0 and row["bound"] == "unknown"
    assert np.isnan(row["total_flop"]) and row["counter_source"] == "none"
    assert found["a13"]["non_gpu_by_sum_ns"].tolist() == [5 - SECOND, 5]


def test_partial_counters_are_summed_over_what_was_measured():
    found, codes = tables([(9 * SECOND, counters(9e11, 9e9)), (1 * SECOND, {})])
    row = found["a15"].iloc[0]
    assert row["counter_coverage_ratio"] == 0.9 and "counters-partial" in codes
    assert row["arithmetic_throughput_flop_per_s"] == 1e11  # of the nine measured seconds
    assert row["bound"] != "unknown"
    row = tables([(8 * SECOND, counters(9e11, 9e9)), (2 * SECOND, {})])[0]["a15"].iloc[0]
    assert row["counter_coverage_ratio"] == 0.8 and row["bound"] == "unknown"


def test_counters_of_one_iteration_serve_all():
    found, _ = tables([(SECOND, counters(4e11, 2e10))], iterations=3)
    assert found["a08"]["sample_count"].tolist() == [3] and found["a08"]["total_flop"].tolist() == [4e11]
    kernels = frame_of(
        "kernels",
        [
            {
                "capture_id": 0,
                "kernel_id": i,
                "iteration_index": i,
                "duration_ns": SECOND * (i + 1),
                "name": "k",
                "start_ns": i,
                "launch_start_ns": -1,
            }
            for i in range(3)
        ],
    )
    frames = {
        "captures": frame_of("captures", [{"capture_id": 0, "level": "M/L/G", "gpu_name": "toy"}]),
        "iterations": frame_of(
            "iterations",
            [{"capture_id": 0, "iteration_index": i, "latency_ns": SECOND, "is_warmup": i == 0} for i in range(3)],
        ),
        "kernels": kernels,
        # only the warm-up was profiled by the counter tool
        "kernel_metrics": frame_of(
            "kernel_metrics",
            [{"kernel_id": 0, "metric_name": name, "value": value} for name, value in counters(4e11, 2e10).items()],
        ),
    }
    row = compute_all(Analysis(frames), peaks=PEAKS)[0]["a08"].iloc[0]
    assert row["total_flop"] == 4e11 and row["sample_count"] == 2 and row["latency_ns"] == 2.5 * SECOND


def test_counters_of_unknown_kernels_are_ignored():
    found, _ = tables([(SECOND, counters(4e11, 2e10))])
    assert found["a08"]["total_flop"].tolist() == [4e11]
    frames = {
        "captures": frame_of("captures", [{"capture_id": 0}]),
        "kernels": frame_of("kernels", [{"capture_id": 0, "kernel_id": 5, "name": "k", "duration_ns": 1}]),
        "kernel_metrics": frame_of("kernel_metrics", [{"kernel_id": 77, "metric_name": "flop", "value": 1.0}]),
    }
    assert np.isnan(compute_all(Analysis(frames))[0]["a08"]["total_flop"].iloc[0])


# Tensor pipes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name", "pipe"),
    [
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", "any", "tf32_tensor"),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "any", "bf16_tensor"),
        ("sm__ops_path_tensor_src_fp16_dst_fp32.sum", "any", "fp16_tensor"),
        ("sm__ops_path_tensor_src_fp16_dst_fp16.sum", "any", "fp16_tensor_fp16_accumulate"),
        ("sm__ops_path_tensor_src_fp8_dst_fp32.sum", "any", "fp8_tensor"),
        ("sm__ops_path_tensor_src_fp64.sum", "any", "fp64_tensor"),
        ("sm__ops_path_tensor_src_*.sum (floating point)", "sm80_xmma_gemm_tf32tf32_tf32f32", "tf32_tensor"),
        ("sm__inst_executed_pipe_tensor_op_hmma.sum × 512", "ampere_bf16_s16816gemm_bf16_128x128", "bf16_tensor"),
        ("sm__inst_executed_pipe_tensor_op_hmma.sum × 512", "ampere_fp16_s16816gemm_fp16_64x64", "fp16_tensor"),
        ("", "volta_h884gemm_64x64_ldg8_nn", "fp16_tensor"),
        ("", "cutlass_80_tensorop_s1688gemm_128x128", "tf32_tensor"),
        ("", "cutlass_80_tensorop_d884gemm", "fp64_tensor"),
        ("", "some_kernel", "fp16_tensor"),
    ],
)
def test_which_tensor_pipe(source, name, pipe):
    assert tensor_pipe(source, name) == pipe


def test_the_tools_own_operand_counters_decide_the_pipe():
    kernel = counters(4e11, 2e10, flop_tensor=(4e11, "sm__ops_path_tensor_src_*.sum (floating point)"))
    kernel |= {"sm__ops_path_tensor_src_tf32_dst_fp32.sum": 4e11, "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 0.0}
    assert tables([(SECOND, kernel)])[0]["a08"]["pipe"].tolist() == ["tf32_tensor"]


@pytest.mark.parametrize(
    ("name", "pipe"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", "fp32"),
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>>", "fp32"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_relu_f2f_stages_64x3_tn", "fp16_tensor"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", "tf32_tensor"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "bf16_tensor"),
    ],
)
def test_guess_from_the_name_alone(name, pipe):
    assert pipe_of_name(name) == pipe


def test_a_projection_is_not_split_into_gpu_and_rest():
    layers = [
        {"capture_id": 0, "iteration_index": 0, "layer_index": i, "layer_path": str(i), "latency_ns": latency,
         "latency_source": source, "duration_ns": 40, "busy_ns": 5}
        for i, (latency, source) in enumerate([(7, "projection"), (900, "host")], start=1)
    ]  # fmt: skip
    found, _ = tables([(7, counters(1e11, 1e9), 1)], layers=layers)
    device, host = found["a13"].to_dict("records")
    # zero by construction says nothing: the gaps inside and the host's own time are what is known
    assert np.isnan(device["non_gpu_by_sum_ns"]) and np.isnan(device["gpu_by_union_ratio"])
    assert (device["gap_ns"], device["host_ns"]) == (2, 40)
    # a layer without device work has host time, and no place among device latencies
    a2 = found["a02"]
    assert a2["latency_ns"].tolist()[0] == 7 and np.isnan(a2["latency_ns"].tolist()[1])
    assert a2["latency_ratio"].tolist()[0] == 1 and host["host_ns"] == 40
