"""The paper's evaluation beside A1…A15: cases, summary, stages, roofs (paper, §IV)."""

import numpy as np
import pandas as pd

from xsp_post.arrays.statistics import rest_of
from xsp_post.hardware.gpus import PIPES, Peaks
from xsp_post.model.results import empty_table, typed
from xsp_post.model.schemas.units import NS_PER_MS
from xsp_post.tables.analyses.frames import Columns, FloatArray, IntArray, divide, group_sum, picked, text_codes
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.layer_tables import STAGES, layers_only, measured_layers, stages
from xsp_post.tables.analyses.model_tables import captured, kernel_counts

# The paper counts TensorFlow's Conv2D and DepthwiseConv2dNative; torch has Conv1d … ConvTranspose3d, aten::conv2d
# and cudnn_convolution. BatchNorm and the like have no "conv" in their name.
_CONVOLUTION = "conv"


def cases_table(inputs: Inputs) -> Columns:
    """Which capture each number of a case is taken from."""
    frame = inputs.cases.frame
    return {
        **frame,
        **inputs.case_columns(np.arange(len(frame))),
        "iteration_count": np.bincount(inputs.cases.measured_case("model") + 1, minlength=len(frame) + 1)[1:],
    }


def workload_summary(inputs: Inputs) -> Columns:
    """Counts and shares that the paper states in its text, one row per case."""
    frame, count = inputs.cases.frame, len(inputs.cases)
    layers = picked(inputs.layers.frame, measured_layers(inputs))
    case, latency = layers["case_index"].to_numpy(np.int64), layers["latency_ns"].to_numpy()
    code, types = text_codes(layers["layer_type"])
    is_convolution = np.array([_CONVOLUTION in str(text).lower() for text in types], bool)[code]
    short = inputs.kernel_case[inputs.kernels.frame["latency_ns"].to_numpy() < NS_PER_MS]
    kernel_latency = inputs.by_case[0].latency_ns
    has_kernels, has_layers = inputs.has_kernels, np.bincount(case, minlength=count) > 0
    layer_latency = np.where(has_layers, group_sum(case, latency, count), np.nan)
    layer_total = inputs.layers.totals_ns(inputs.layer_case, count)
    return {
        **inputs.case_columns(np.arange(count)),
        "workload_name": frame["workload_name"].to_numpy(),
        "model_latency_ns": inputs.model_latency_ns,
        "layer_latency_ns": layer_latency,
        "layer_total_ns": layer_total,
        "layer_rest_ns": rest_of(layer_total, layer_latency),
        "layer_count": captured(np.bincount(case, minlength=count), has_layers),
        "layer_under_1ms_count": captured(np.bincount(case[latency < NS_PER_MS], minlength=count), has_layers),
        "kernel_latency_ns": np.where(has_kernels, kernel_latency, np.nan),
        **kernel_counts(inputs),
        "kernel_under_1ms_count": captured(np.bincount(short, minlength=count), has_kernels),
        "gpu_latency_ratio": divide(inputs.kernels.total_ns, inputs.model_latency_ns),
        "convolution_latency_ratio": convolution_ratio(case, latency, is_convolution, count),
    }


def convolution_ratio(case: IntArray, latency_ns: FloatArray, is_convolution: np.ndarray, count: int) -> FloatArray:
    """Σ latency of convolution layers ÷ Σ latency of all layers (Table VIII), per case; NaN without layers."""
    part = group_sum(case, np.where(is_convolution, latency_ns, 0.0), count)
    return divide(part, group_sum(case, latency_ns, count))


def stages_table(inputs: Inputs) -> Columns:
    """Latency, allocation, flop and DRAM traffic of each third of the layers, and which third dominates."""
    rows = measured_layers(inputs)
    rows = rows[layers_only(inputs, rows)]
    layers = picked(inputs.layers.frame, rows)
    case = layers["case_index"].to_numpy(np.int64)
    present = np.unique(case)
    group = np.searchsorted(present, case) * 3 + stages(case)
    count = 3 * len(present)
    work = inputs.by_layer[0].take(rows)
    amounts: dict[str, FloatArray] = {
        **{name: layers[name].to_numpy() for name in ("latency_ns", "allocated_bytes")},
        "total_flop": work.flop, "dram_bytes": work.dram_bytes,
    }  # fmt: skip
    sums = {name: group_sum(group, values, count) for name, values in amounts.items()}
    said = ("latency", "allocated", "flop", "dram")
    names = pd.Index(STAGES, dtype="object")
    return {
        **inputs.case_columns(np.repeat(present, 3)),
        "stage": pd.Categorical.from_codes(np.tile(np.arange(3), len(present)), categories=names),
        "layer_count": np.bincount(group, minlength=count),
        **sums,
        **{f"is_dominant_{name}": _is_largest_of_three(values) for name, values in zip(said, sums.values())},
    }


def _is_largest_of_three(values: FloatArray) -> np.ndarray:
    thirds = np.nan_to_num(values, nan=-np.inf).reshape(-1, 3)
    largest = np.arange(3) == thirds.argmax(axis=1)[:, None]
    return (largest & np.isfinite(thirds)).ravel()


def roofs(inputs: Inputs) -> pd.DataFrame:
    """Every known peak of every GPU of the workload, with the ideal intensity it implies (Table VII)."""
    names = inputs.cases.frame["gpu_name"].astype(str)
    known: dict[str, Peaks] = {}
    for index, peaks in inputs.peaks.items():
        if peaks is not None:
            known.setdefault(names.iloc[index], peaks)
    rows = [
        {
            "gpu_name": name, "pipe": pipe, "peak_flop_per_s": peaks.flop_per_s[pipe],
            "memory_bandwidth_bytes_per_s": peaks.memory_bandwidth_bytes_per_s,
            "ideal_intensity_flop_per_byte": peaks.ideal_intensity(pipe), "origin": peaks.origin,
            "source": peaks.source,
        }
        for name, peaks in known.items()
        for pipe in PIPES
        if pipe in peaks.flop_per_s
    ]  # fmt: skip
    return typed("roofs", pd.DataFrame(rows)) if rows else empty_table("roofs")
