"""A8, A9 and A10: the tables made from kernels alone (paper, Table I)."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.findings import finding
from xsp_post.tables.analyses import roofline
from xsp_post.tables.analyses.frames import Columns, IntArray, divide, picked, text_codes, texts_of
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.layer_tables import share, statistics_columns

_OF_KERNEL = (
    "capture_id", "kernel_index", "kernel_id", "name", "short_name", "latency_ns", "queue_delay_ns",
    "theoretical_occupancy_ratio", "metric_source", "source_line",
)  # fmt: skip
_ABOVE_ROOF_RATIO = 1.001  # what rounding of a peak explains is none


def a08(inputs: Inputs) -> Columns:
    """A8: one row per launch of the reference iteration, in launch order, with layer and counters."""
    rows = inputs.shown_kernels
    if len(rows) < len(inputs.kernels.frame):
        inputs.findings.append(finding("kernel-table-cut", count=len(inputs.kernels.frame) - len(rows)))
    chosen = picked(inputs.kernels.frame, rows)
    work = inputs.kernels.work.take(rows)
    return {
        **_case_and_layer(inputs, rows),
        **{name: chosen[name].array for name in _OF_KERNEL},
        "shape_text": of_layer(inputs, inputs.layer_of_kernel[rows], "shape_text"),
        **statistics_columns(picked(inputs.kernels.summary, rows)),
        **work.quantities(),
        **roofline.intensity_columns(work, inputs.peaks, inputs.options),
    }


def a09(inputs: Inputs) -> Columns:
    """A9: the launches of A8 that have flop and DRAM counters, with the roof above each."""
    rows = inputs.shown_kernels
    rows = rows[inputs.kernels.work.coverage_ratio[rows] > 0]
    chosen = inputs.kernels.frame.iloc[rows]
    columns = roofline.intensity_columns(inputs.kernels.work.take(rows), inputs.peaks, inputs.options)
    has_counters = chosen["metric_source"].astype(str).ne("").to_numpy()
    say_above_roof(inputs, np.asarray(columns["roof_ratio"]), chosen["name"], has_counters)
    return {
        **_case_and_layer(inputs, rows),
        **columns,
        **{name: chosen[name].array for name in ("kernel_index", "name", "short_name", "latency_ns")},
    }


_L2 = (
    "Most likely data was still in L2: their bytes are counted from sizes as if all came from DRAM, so that the memory "
    "roof is no bound. xsp-post run --ncu counts what moved."
)
_CLOCK = (
    "Most likely the GPU ran above the clock of its data sheet, or times and counters are of different launches. Where "
    "the board has other peaks, give them with --peaks."
)


def say_above_roof(inputs: Inputs, roof_ratio: np.ndarray, names: pd.Series, has_counters: np.ndarray) -> None:
    """A finding where rows reached more than their roof, with the one that is the farthest above, and what is likely
    by where the flop and bytes of the rows are from. shape (rows,) each."""
    above = roof_ratio > _ABOVE_ROOF_RATIO
    if above.any():
        worst = int(np.nanargmax(roof_ratio))
        example = f"{100 * roof_ratio[worst]:.4g} % of the roof: {names.iloc[worst]}"
        hint = _CLOCK if has_counters[above].all() else _L2
        inputs.findings.append(finding("above-roof", count=int(above.sum()), example=example, hint=hint))


def a10(inputs: Inputs) -> Columns:
    """A10: launches of equal demangled name, longest total first; the number of rows is that of unique kernels."""
    frame = inputs.kernels.frame
    group, first = inputs.kernels_by_name
    owner = inputs.kernel_case[first]
    total, covered = roofline.aggregate(inputs.kernels.work, group, len(first), owner)
    order = np.lexsort((-total.latency_ns, owner))
    total, covered, first, owner = total.take(order), covered.take(order), first[order], owner[order]
    return {
        **inputs.case_columns(owner),
        **{name: frame[name].array.take(first) for name in ("name", "short_name")},
        "kernel_count": np.bincount(group, minlength=len(first))[order],
        "latency_ns": total.latency_ns,
        "latency_ratio": divide(total.latency_ns, inputs.model_latency_ns[owner]),
        "kernel_latency_ratio": share(total.latency_ns, owner),
        **total.quantities(),
        **roofline.intensity_columns(covered, inputs.peaks, inputs.options),
        **coverage_columns(total.coverage_ratio, inputs.analytic_cases[owner]),
    }


def coverage_columns(coverage_ratio: np.ndarray, is_analytic: np.ndarray) -> dict[str, Any]:
    """counter_coverage_ratio and counter_source of sums of counters, or of work from shapes."""
    source = np.where(
        coverage_ratio > 0, np.where(is_analytic, roofline.ANALYTIC, roofline.COUNTERS), roofline.NO_COUNTERS
    )
    return {
        "counter_coverage_ratio": coverage_ratio,
        "counter_source": pd.Categorical(source, roofline.COUNTER_SOURCES),
    }


def _case_and_layer(inputs: Inputs, rows: IntArray) -> dict[str, Any]:
    return {
        **inputs.case_columns(inputs.kernel_case[rows]),
        "layer_index": inputs.kernels.frame["layer_index"].to_numpy()[rows],
        **{name: of_layer(inputs, inputs.layer_of_kernel[rows], name) for name in ("layer_name", "layer_type")},
    }


def of_layer(inputs: Inputs, layer: IntArray, column: str) -> pd.Categorical:
    """A text of each of these layers; '' for no layer (−1)."""
    codes, texts = text_codes(inputs.layers.frame[column])
    return texts_of(np.append(codes, -1)[layer], texts)
