"""Results by hand for the report's tests: a ResNet-like workload at three batch sizes with counters, every table
of the page in it. Only shapes and sums are plausible; nothing here tests an analysis."""

from __future__ import annotations

import numpy as np
import pandas as pd
from helpers import frame_of, small_analysis

from xsp_post.base.findings import Finding
from xsp_post.model.results import Analysis
from xsp_post.model.schemas import TABLES

GPU = "NVIDIA A100-SXM4-40GB"
KINDS = ("Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "Add", "ReLU")
KERNEL_OF = {
    "Conv2d": "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_nhwc>(cutlass::Params)",
    "BatchNorm2d": "void at::native::batch_norm_transform_input_channels_last_kernel<float, 4>(float*, float*)",
    "ReLU": "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_scalar_kernel_impl, float>(int)",
    "Add": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, float>(int)",
    "Linear": "ampere_sgemm_32x32_sliced1x4_tn",
}
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 2">',
    "<svg/onload=window.hacked=3>",
    "{{constructor.constructor('window.hacked=4')()}}",
    "abc\u202egpj.exe\u2066 isolate",
    "nul\x00inside and \x1b[31m escape",
    '=HYPERLINK("http://example.invalid","click")',
    "long " + "x" * 10_000,
    "<!-- <script>",
    "javascript:window.hacked=5",
    "'; window.hacked = 6; '",
]
PEAK, BANDWIDTH = 19.5e12, 1.555e12


def sample(layer_count: int = 53, *, names: list[str] | None = None, counters: bool = True) -> Analysis:
    """The whole set. ``names`` replace the first layers' names (and their kernels' names)."""
    layers, kernels = _layers(layer_count, names)
    small = small_analysis(
        layers=[
            (
                row["layer_name"],
                row["layer_type"],
                [(k["name"], int(k["latency_ns"])) for k in kernels[row["layer_index"]]],
            )
            for row in layers[:60]
        ],
        iterations=4,
        batch_size=32,
        workload_name="resnet-like",
        gpu_name=GPU,
        findings=[
            Finding("orphan-kernels", "warning", 3, "orphan_kernel", "Record the whole program."),
            Finding("clock-offset-unknown", "info", 1, "0 ns", "Nothing to do."),
        ],
    )
    frames = dict(small.frames)
    for name, rows in _tables(layers, kernels, counters).items():
        frames[name] = frame_of(name, rows)
    return Analysis(frames | _folded(frames), small.findings)


def _folded(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables paths and operations of the nodes, kernels and copies."""
    nodes = frames["nodes"].astype({"level": object, "folded_name": object})
    keys = ["capture_id", "path_id"]
    path = nodes.drop_duplicates("node_id").set_index("node_id")["path_id"]
    above = nodes.drop_duplicates(keys).set_index(keys)["parent_id"].map(path).fillna(-1)
    sums = nodes.groupby(keys, sort=True)
    amounts = ["duration_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "kernel_count"]
    paths = sums[amounts].sum().assign(
        call_count=sums.size(), level=sums["level"].first(), name=sums["folded_name"].first(), parent_path_id=above,
        depth=sums["depth"].first(), span_kind="range", first_start_ns=sums["start_ns"].min(),
        is_inferred=sums["is_inferred"].max(), gap_ns=np.nan, projection_ns=0,
    )  # fmt: skip
    kernels = frames["kernels"].assign(kind="kernel", device_ns=frames["kernels"]["duration_ns"], bytes=-1)
    copies = frames["memory_operations"]
    copies = copies.assign(kind="memcpy", device_ns=copies["end_ns"] - copies["start_ns"])
    columns = ["capture_id", "node_id", "kind", "name", "device_ns", "bytes"]
    work = pd.concat([rows[columns].astype({"name": object}) for rows in (kernels, copies)])
    work = work.assign(path_id=work["node_id"].map(path), operation_count=1).drop(columns="node_id")
    work = work.groupby([*keys, "kind", "name"], as_index=False)[["device_ns", "operation_count", "bytes"]].sum()
    return {
        "paths": paths.reset_index().astype({"parent_path_id": "int64"}),
        "operations": work.assign(direction="", memory_kind="", measured_ns=work["device_ns"]),
    }


def _layers(count: int, names: list[str] | None) -> tuple[list[dict], dict[int, list[dict]]]:
    rng = np.random.default_rng(7)
    layers: list[dict] = []
    kernels: dict[int, list[dict]] = {}
    for i in range(count):
        kind = "Linear" if i == count - 1 else KINDS[i % len(KINDS)]
        weight = {"Conv2d": 800_000, "BatchNorm2d": 190_000, "ReLU": 90_000, "Add": 150_000, "Linear": 60_000}[kind]
        time = float(weight * rng.uniform(0.4, 1.8))
        name = f"layer{i // 14 + 1}.{(i // 7) % 2}.{kind.lower()}{i % 7}"
        kernel_name = KERNEL_OF[kind]
        if names and i < len(names):
            name = kernel_name = names[i]
            time = 3_000_000.0 - 1000 * i
        flop = time * {"Conv2d": 14_000, "Linear": 9_000}.get(kind, 60) * rng.uniform(0.5, 1.1)
        traffic = time * BANDWIDTH / 1e9 * {"Conv2d": 0.35, "Linear": 0.2}.get(kind, 0.85)
        layers.append(
            {
                "layer_index": i + 1,
                "layer_name": name,
                "layer_path": f"resnet > {name}",
                "layer_type": kind,
                "time": time,
                "flop": flop if kind != "ReLU" else 0.0,
                "traffic": traffic,
                "stage": ("beginning", "middle", "end")[3 * i // count],
            }
        )
        parts = (
            [(kernel_name, 0.8), ("void cudnn::ops::nchwToNhwcKernel<__half, __half>(...)", 0.12)]
            if kind == "Conv2d"
            else [(kernel_name, 0.9)]
        )
        kernels[i + 1] = [{"name": n, "latency_ns": time * share} for n, share in parts]
    return layers, kernels


def _intensity(flop: float, traffic: float, time: float, counters: bool) -> dict:
    if not counters:
        return {"bound": "unknown", "counter_source": "none"}
    x = flop / traffic
    roof = min(PEAK, BANDWIDTH * x)
    return {
        "total_flop": flop,
        "dram_read_bytes": traffic * 0.6,
        "dram_write_bytes": traffic * 0.4,
        "occupancy_ratio": 0.41,
        "arithmetic_intensity_flop_per_byte": x,
        "arithmetic_throughput_flop_per_s": flop / time * 1e9,
        "pipe": "fp32",
        "bound": "memory" if x < PEAK / BANDWIDTH else "compute",
        "roof_flop_per_s": roof,
        "roof_ratio": flop / time * 1e9 / roof if roof else 0.0,
        "counter_source": "counters",
        "counter_coverage_ratio": 1.0,
    }


def _spread(value: float, n: int = 20) -> dict:
    return {
        "min_latency_ns": value * 0.97,
        "median_latency_ns": value,
        "max_latency_ns": value * 1.09,
        "std_latency_ns": value * 0.02,
        "ci_low_latency_ns": value * 0.99,
        "ci_high_latency_ns": value * 1.01,
        "interval_over": "captures",
        "sample_count": n,
        "q25_latency_ns": value * 0.99,
        "q75_latency_ns": value * 1.02,
    }


def _tables(layers: list[dict], kernels: dict[int, list[dict]], counters: bool) -> dict[str, list[dict]]:
    total = sum(row["time"] for row in layers)
    kernel_total = sum(k["latency_ns"] for ks in kernels.values() for k in ks)
    flop, traffic = sum(row["flop"] for row in layers), sum(row["traffic"] for row in layers)
    tables: dict[str, list[dict]] = {
        name: []
        for name in (
            "cases",
            "a01",
            "a02",
            "a03",
            "a04",
            "a05",
            "a06",
            "a07",
            "a08",
            "a09",
            "a10",
            "a11",
            "a12",
            "a13",
            "a14",
            "a15",
            "roofs",
            "stages",
            "dominant_kernels",
            "model_roofline",
        )
    }
    for case, batch in enumerate((8, 16, 32)):
        scale = (0.35, 0.55, 1.0)[case]
        base = {
            "case_index": case,
            "batch_size": batch,
            "phase": "forward",
            "workload_name": "resnet-like",
            "gpu_name": GPU,
        }
        deep = case == 2
        tables["cases"].append(
            {
                **base,
                "model_level": "M",
                "layer_level": "M/L",
                "kernel_level": "M/L/G",
                "model_capture_id": 0,
                "layer_capture_id": 1 if deep else -1,
                "kernel_capture_id": 2 if deep else -1,
                "iteration_count": 20,
            }
        )
        latency = total * 1.04 * scale
        tables["a01"].append(
            {
                **base,
                "level": "M",
                "latency_ns": latency,
                "latency_per_input_ns": latency / batch,
                "throughput_inputs_per_s": batch / latency * 1e9,
                "throughput_gain_ratio": (0.27, 0.1, np.nan)[case],
                "is_optimal": deep,
                **_spread(latency),
            }
        )
        model = {
            **base,
            "model_latency_ns": latency,
            "throughput_inputs_per_s": batch / latency * 1e9,
            "kernel_latency_ns": kernel_total * scale,
            "busy_ns": kernel_total * scale,
            "kernel_count": sum(len(k) for k in kernels.values()),
            "unique_kernel_count": 6,
            "gpu_latency_ratio": kernel_total * scale / latency,
            "gpu_busy_ratio": kernel_total * scale / latency,
            **_intensity(flop * scale, traffic * scale * (1 + 0.2 * case), kernel_total * scale, counters),
        }
        tables["a15"].append(model)
        if counters:
            tables["model_roofline"].append(model)
    base = {"case_index": 2, "batch_size": 32, "phase": "forward"}
    for row in layers:
        mine = kernels[row["layer_index"]]
        kernel_time = sum(k["latency_ns"] for k in mine)
        common = {
            **base,
            "layer_index": row["layer_index"],
            "layer_name": row["layer_name"],
            "layer_type": row["layer_type"],
            "layer_path": row["layer_path"],
            "shape_text": "[32, 64, 56, 56]",
            "stage": row["stage"],
            "call_count": 1,
        }
        metrics = _intensity(row["flop"], row["traffic"], kernel_time, counters)
        tables["a02"].append(
            {
                **common,
                "latency_ns": row["time"],
                "latency_ratio": row["time"] / total,
                "allocated_bytes": row["traffic"] / 2,
                "latency_source": "host",
                "sample_count": 20,
            }
        )
        tables["a03"].append({**common, "latency_ns": row["time"], **_spread(row["time"])})
        tables["a04"].append({**common, "allocated_bytes": row["traffic"] / 2})
        tables["a11"].append(
            {
                **common,
                "layer_latency_ns": row["time"],
                "kernel_latency_ns": kernel_time,
                "kernel_count": len(mine),
                **metrics,
            }
        )
        tables["a12"].append({**common, "kernel_latency_ns": kernel_time, **metrics})
        tables["a13"].append(
            {
                **common,
                "layer_latency_ns": row["time"],
                "kernel_latency_ns": kernel_time,
                "busy_ns": kernel_time,
                "non_gpu_by_sum_ns": row["time"] - kernel_time,
                "non_gpu_by_union_ns": row["time"] - kernel_time,
                "gpu_by_sum_ratio": kernel_time / row["time"],
                "gpu_by_union_ratio": kernel_time / row["time"],
            }
        )
        if counters:
            tables["a14"].append({**common, "latency_ns": kernel_time, **metrics})
        tables["dominant_kernels"].append(
            {
                **common,
                "name": mine[0]["name"],
                "short_name": "k",
                "latency_ns": mine[0]["latency_ns"],
                "latency_ratio": 0.8,
            }
        )
        for kernel in mine:
            share = kernel["latency_ns"] / kernel_time
            launch = {
                **common,
                **kernel,
                "short_name": "k",
                "kernel_index": len(tables["a08"]) + 1,
                "queue_delay_ns": 14_000.0,
                **_spread(kernel["latency_ns"]),
                **_intensity(row["flop"] * share, row["traffic"] * share, kernel["latency_ns"], counters),
            }
            tables["a08"].append(launch)
            if counters:
                tables["a09"].append(launch)
    _by_type(tables, layers, total, base)
    _by_name(tables, base, counters, kernel_total, total)
    _stages(tables, layers, base)
    tables["roofs"].append(
        {
            "gpu_name": GPU,
            "pipe": "fp32",
            "peak_flop_per_s": PEAK,
            "memory_bandwidth_bytes_per_s": BANDWIDTH,
            "ideal_intensity_flop_per_byte": PEAK / BANDWIDTH,
            "origin": "table",
            "source": "NVIDIA A100 data sheet",
        }
    )
    return tables


def _by_type(tables: dict[str, list[dict]], layers: list[dict], total: float, base: dict) -> None:
    frame = pd.DataFrame(layers)
    allocated = frame["traffic"].sum() / 2
    for kind, rows in frame.groupby("layer_type"):
        common = {**base, "layer_type": kind, "layer_count": len(rows)}
        tables["a05"].append({**common, "count_ratio": len(rows) / len(frame)})
        tables["a06"].append({**common, "latency_ns": rows["time"].sum(), "latency_ratio": rows["time"].sum() / total})
        tables["a07"].append(
            {
                **common,
                "allocated_bytes": rows["traffic"].sum() / 2,
                "allocated_ratio": rows["traffic"].sum() / 2 / allocated,
            }
        )


def _by_name(tables: dict[str, list[dict]], base: dict, counters: bool, kernel_total: float, total: float) -> None:
    frame = pd.DataFrame(tables["a08"])
    for name, rows in frame.groupby("name"):
        time = float(rows["latency_ns"].sum())
        metrics = (
            _intensity(rows["total_flop"].sum(), (rows["dram_read_bytes"] + rows["dram_write_bytes"]).sum(), time, True)
            if counters
            else _intensity(0, 0, 0, False)
        )
        tables["a10"].append(
            {
                **base,
                "name": name,
                "short_name": "k",
                "kernel_count": len(rows),
                "latency_ns": time,
                "latency_ratio": time / (total * 1.04),
                "kernel_latency_ratio": time / kernel_total,
                **metrics,
            }
        )


def _stages(tables: dict[str, list[dict]], layers: list[dict], base: dict) -> None:
    frame = pd.DataFrame(layers)
    for stage, rows in frame.groupby("stage", sort=False):
        tables["stages"].append(
            {
                **base,
                "stage": stage,
                "layer_count": len(rows),
                "latency_ns": rows["time"].sum(),
                "allocated_bytes": rows["traffic"].sum() / 2,
                "total_flop": rows["flop"].sum(),
                "dram_bytes": rows["traffic"].sum(),
            }
        )


def waiting(capture, *, busy, idle):
    """A device that ran kernels, and waited for host code."""
    window = {"capture_id": capture, "device_id": 0, "gpu_name": "G", "scope": "execution", "window_ns": busy + idle,
              "busy_ns": busy, "idle_ns": idle, "kernel_busy_ns": busy, "kernel_count": 9, "kernel_ns": busy,
              "other_kernel_ns": busy, "top_kernel": "k", "top_kernel_ns": busy}  # fmt: skip
    names = [c.name for c in TABLES["device_windows"].columns]
    windows = pd.DataFrame([{**dict.fromkeys(names, 0), **window}])
    cause = {"capture_id": capture, "device_id": 0, "scope": "execution", "cause": "host_code", "call_name": "",
             "detail": "", "is_part": False, "path_id": 1, "owner": "load", "layer_index": -1, "layer_path": "",
             "idle_ns": idle, "piece_count": 1, "longest_ns": idle}  # fmt: skip
    whole = busy + idle
    gains = {"kernels": busy / whole / 2, "host": idle / whole / 2, "together": 0.5}
    experiment = pd.DataFrame([
        {"capture_id": capture, "question": "device", "resource": name, "part": "", "is_part": False, "rank": 1,
         "gain_ratio": gain,
         "low_gain_ratio": gain * 0.9, "high_gain_ratio": gain * 1.1, "is_limit": False, "is_balanced": False,
         "elapsed_ns": whole, "coverage_ratio": 1.0, "execution": "forward", "execution_count": 1}
        for name, gain in gains.items()
    ])  # fmt: skip
    return {"device_windows": windows, "idle_causes": pd.DataFrame([cause]), "experiment": experiment}
