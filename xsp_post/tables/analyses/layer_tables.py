"""A2…A7: the tables made from layers alone (paper, Table I)."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import rest_of
from xsp_post.tables.analyses.frames import Columns, FloatArray, IntArray, divide, group_sum, picked, text_codes
from xsp_post.tables.analyses.inputs import Inputs

STAGES = ("beginning", "middle", "end")
_OF_LAYER = (
    "layer_path", "call_count", "shape_text", "latency_ns", "allocated_bytes", "latency_source", "sample_count",
    "is_inferred",
)  # fmt: skip


def statistics_columns(summary: pd.DataFrame) -> dict[str, Any]:
    """The columns that the schema calls statistics, from a frame of `processes.summarise_repeats`."""
    columns = {
        f"{name}_latency_ns": summary[name].to_numpy() for name in ("min", "median", "max", "std", "ci_low", "ci_high")
    }
    # no latency is below 0: that end of a wide interval (few repeats, noisy machine) says nothing
    columns["ci_low_latency_ns"] = np.maximum(columns["ci_low_latency_ns"], 0.0)
    return {**columns, "interval_over": summary["interval_over"].array, "sample_count": summary["count"].to_numpy()}


def measured_layers(inputs: Inputs) -> IntArray:
    """Rows of layers.frame that the layer run measured."""
    return np.flatnonzero(inputs.layers.frame["sample_count"].to_numpy() > 0)


def layer_columns(inputs: Inputs, rows: IntArray) -> dict[str, Any]:
    """Case and layer columns of rows of layers.frame."""
    chosen = picked(inputs.layers.frame, rows)
    case = chosen["case_index"].to_numpy(np.int64)
    return {
        **inputs.case_columns(case),
        **{name: chosen[name].array for name in ("layer_index", "layer_name", "layer_type")},
    }


def stages(case: IntArray) -> IntArray:
    """0, 1, 2 for the first, second, last third of each case's rows, which are ordered by layer index.

    "Thirds by index" (paper, §IV): the k-th of n layers (from 0) is in third ⌊3k/n⌋: 78 + 78 + 78 of 234.
    """
    size = np.bincount(case)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    position = np.arange(len(case)) - start[case]
    return position * 3 // size[case]


def share(values: FloatArray, case: IntArray) -> FloatArray:
    """Each value as a share of its case's sum; NaN where the sum is 0 or unknown."""
    return divide(values, group_sum(case, values, int(case.max(initial=-1)) + 1)[case])


def a02(inputs: Inputs) -> Columns:
    """A2: the layers of each case in execution order; "top k" is a sort by ``latency_ns``."""
    rows = measured_layers(inputs)
    chosen = picked(inputs.layers.frame, rows)
    case = chosen["case_index"].to_numpy(np.int64)
    return {
        **layer_columns(inputs, rows),
        **{name: chosen[name].array for name in _OF_LAYER},
        "capture_id": inputs.cases.frame["layer_capture_id"].to_numpy()[case],
        "latency_ratio": share(chosen["latency_ns"].to_numpy(), case),
        **{name: values[rows] for name, values in _by_phase(inputs).items()},
    }


def a03(inputs: Inputs) -> Columns:
    """A3: layer latency in execution order, with what a box plot over the iterations needs."""
    rows = measured_layers(inputs)
    summary = picked(inputs.layers.summary, rows)
    return {
        **layer_columns(inputs, rows),
        "stage": _stage_names(inputs, rows),
        "latency_ns": summary["trimmed_mean"].to_numpy(),
        "q25_latency_ns": summary["q25"].to_numpy(),
        "q75_latency_ns": summary["q75"].to_numpy(),
        **statistics_columns(summary),
    }


def a04(inputs: Inputs) -> Columns:
    """A4: bytes allocated per layer in execution order; no rows for a case where none was recorded."""
    rows = _with_allocation(inputs)
    return {
        **layer_columns(inputs, rows),
        "stage": _stage_names(inputs, rows),
        "allocated_bytes": inputs.layers.frame["allocated_bytes"].to_numpy()[rows],
    }


def a05(inputs: Inputs) -> Columns:
    """A5: how many layers there are of each type."""
    types = _by_type(inputs, measured_layers(inputs))
    return {**types, "count_ratio": share(types["layer_count"].astype(np.float64), types["case_index"])}


def a06(inputs: Inputs) -> Columns:
    """A6: layer latency by type; shares are of the sum over all layers, not of the model latency."""
    types = _by_type(inputs, measured_layers(inputs), "latency_ns", _by_phase(inputs))
    return {
        **types,
        "rest_latency_ns": rest_of(types["total_latency_ns"], types["latency_ns"]),
        "latency_ratio": share(types["latency_ns"], types["case_index"]),
    }


def _by_phase(inputs: Inputs) -> dict[str, FloatArray]:
    """Kernel latency by phase of a training step, per row of layers.frame."""
    return inputs.latency_by_phase(inputs.layer_of_kernel, len(inputs.layers.frame))


def a07(inputs: Inputs) -> Columns:
    """A7: allocated bytes by type."""
    types = _by_type(inputs, _with_allocation(inputs), "allocated_bytes")
    return {**types, "allocated_ratio": share(types["allocated_bytes"], types["case_index"])}


def _stage_names(inputs: Inputs, rows: IntArray) -> pd.Categorical:
    """The third of each row; empty for what a model does outside of its layers."""
    case = inputs.layer_case[rows]
    is_layer = layers_only(inputs, rows)
    codes = np.full(len(rows), len(STAGES))
    codes[is_layer] = stages(case[is_layer])
    return pd.Categorical.from_codes(codes, categories=pd.Index([*STAGES, ""], dtype="object"))


def layers_only(inputs: Inputs, rows: IntArray) -> np.ndarray:
    """Which rows of layers.frame are layers, not the [self] of a model. Shape (rows,) of bool."""
    return picked(inputs.layers.frame, rows)["layer_name"].ne("[self]").to_numpy(bool)


def _with_allocation(inputs: Inputs) -> IntArray:
    """Measured layers of the cases in which any allocation was recorded."""
    rows = measured_layers(inputs)
    known = inputs.layers.frame["allocated_bytes"].notna().to_numpy()[rows]
    case = inputs.layer_case[rows]
    return rows[np.isin(case, np.unique(case[known]))]


def _by_type(
    inputs: Inputs, rows: IntArray, quantity: str = "", others: dict[str, FloatArray] | None = None
) -> dict[str, Any]:
    """Layers grouped by (case, type): count and sum of a quantity, most first within each case; and the sums of
    ``others``, which are one value per row of layers.frame."""
    chosen = picked(inputs.layers.frame, rows)
    case = chosen["case_index"].to_numpy(np.int64)
    code, texts = text_codes(chosen["layer_type"])
    group, first = dense(case, code)
    count = np.bincount(group)
    weight = count.astype(np.float64)
    if quantity:
        weight = group_sum(group, chosen[quantity].to_numpy(np.float64), len(first))
    order = np.lexsort((-np.nan_to_num(weight), case[first]))
    columns = {
        **inputs.case_columns(case[first][order]),
        "layer_type": pd.Categorical.from_codes(code[first][order], categories=texts),
        "layer_count": count[order],
    }
    if quantity:
        columns[quantity] = weight[order]
    if quantity == "latency_ns":
        of_row = np.full(len(inputs.layers.frame), -1, np.int64)
        of_row[rows] = group
        columns["total_latency_ns"] = inputs.layers.totals_ns(of_row, len(first))[order]
    for name, values in (others or {}).items():
        columns[name] = group_sum(group, values[rows], len(first))[order]
    return columns
