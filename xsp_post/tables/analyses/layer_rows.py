"""The layers of each case, matched across iterations and runs, summarised once.

The same layer in two iterations or runs has the same (path, call index); its number is that of the first
measured iteration of the run that layer latencies are taken from (in XSP's scripts the first repeat is the
reference).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import row_with
from xsp_post.arrays.processes import summarise_repeats, trimmed_totals
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import summarise_groups
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.kinds import SELF
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.tables.analyses.cases import Cases
from xsp_post.tables.analyses.frames import BoolArray, FloatArray, IntArray, picked, text_codes, texts_of

_COLUMNS = [
    "capture_id", "iteration_index", "process_id", "layer_index", "layer_path", "layer_name", "layer_type",
    "call_index", "call_count", "shape_text", "duration_ns", "latency_ns", "latency_source", "kernel_ns", "busy_ns",
    "allocated_bytes", "analytic_flop", "analytic_bytes", "is_inferred",
]  # fmt: skip


DEVICE_SOURCES = ("projection", "busy")  # latency_source of a layer whose latency is that of its device work


@dataclass
class LayerRows:
    """Layers of all cases, ordered by (case, layer_index).

    frame    one row per layer: case_index, layer_index, layer_name, layer_type, layer_path, call_count,
             shape_text, latency_source, is_inferred, host_ns, busy_ns, kernel_ns (of the run with kernels),
             allocated_bytes, analytic_flop, analytic_bytes (NaN unknown), sample_count (0: only seen in the
             run with kernels); latency_ns is the trimmed mean, NaN of layers without device work among
             layers whose latency is that of the device
    summary  `processes.summarise_repeats` of the layer latency, same rows
    """

    frame: pd.DataFrame
    summary: pd.DataFrame
    findings: list[Finding]
    _samples: tuple[IntArray, IntArray, FloatArray]  # row of frame, iteration row, latency of every measured layer
    _trim_ratio: float
    _known: tuple[IntArray, IntArray]  # iteration row, and the capture's own layer_index, of every layer
    _layer_index: IntArray  # what that layer is called in its case
    _is_own: bool  # every layer keeps its own index

    def index_of(self, iteration_row: IntArray, own_layer_index: IntArray) -> IntArray:
        """The case's layer_index for (iteration row, the capture's own layer_index); −1 none. Shape (n,)."""
        if self._is_own:
            return own_layer_index
        return np.append(self._layer_index, -1)[row_with(self._known, (iteration_row, own_layer_index))]

    def totals_ns(self, group: IntArray, count: int) -> FloatArray:
        """Latency of one execution per group of rows of ``frame`` (−1 none), trimmed as a total. (rows,) → (count,)."""
        row, iteration, latency = self._samples
        return trimmed_totals(latency, group[row], iteration, count, self._trim_ratio)

    def rows_of(self, case_index: IntArray, layer_index: IntArray) -> IntArray:
        """Row of ``frame`` of each (case, layer); −1 where there is none. Shape (n,)."""
        known = [self.frame[name].to_numpy(np.int64) for name in ("case_index", "layer_index")]
        return row_with(known, (case_index, layer_index))


def layer_rows(results: Results, cases: Cases, trim_ratio: float) -> LayerRows:
    """Match and summarise the layers of every case. Frames in, one row per case and layer out."""
    layers = frame_or_empty(results, "layers", _COLUMNS)
    place = (layers[name].to_numpy(np.int64) for name in ("capture_id", "iteration_index", "process_id"))
    row, iterations = cases.rows_of(*place), cases.iterations
    wanted = (iterations["is_layer"] | iterations["is_kernel"]).to_numpy(bool)
    used = np.flatnonzero(np.append(wanted, False)[row])
    layers, row = layers.iloc[used], row[used]
    flag = {name: iterations[name].to_numpy()[row].astype(bool) for name in ("is_layer", "is_kernel", "is_measured")}
    case = iterations["case_index"].to_numpy(np.int64)[row]

    # Reference first, so that a group's first row is the one that names it.
    order = np.lexsort((np.arange(len(row)), ~flag["is_measured"], ~flag["is_layer"]))
    layers, row, case = layers.iloc[order], row[order], case[order]
    is_measured = flag["is_measured"][order]
    is_source = flag["is_layer"][order] & is_measured
    is_kernel = flag["is_kernel"][order] & is_measured

    path, _ = text_codes(layers["layer_path"])
    group, first = dense(case, path, layers["call_index"].to_numpy(np.int64))
    own = layers["layer_index"].to_numpy(np.int64)
    number = _numbered(case[first], own[first], is_source[first])
    latency, captures = layers["latency_ns"].to_numpy(np.float64), layers["capture_id"].to_numpy(np.int64)
    summary = summarise_repeats(latency, np.where(is_source, group, -1), captures, len(first), trim_ratio)
    frame = _frame(layers, group, first, case, number, is_source, is_kernel, trim_ratio)
    hidden = _is_host_among_device(frame)
    if hidden.any():
        summary.loc[hidden, [name for name in summary.columns if name not in ("count", "interval_over")]] = np.nan
        summary.loc[hidden, "interval_over"] = ""
    frame["latency_ns"], frame["sample_count"] = summary["trimmed_mean"], summary["count"]

    seen = np.bincount(group[is_measured], minlength=len(first)) > 0  # a layer of warm-up only is not a layer
    ordered = np.flatnonzero(seen)
    ordered = ordered[np.lexsort((number[ordered], case[first][ordered]))]
    frame, summary = picked(frame, ordered), picked(summary, ordered)
    findings = _findings(frame)
    is_own = bool((number[group] == own).all()) and bool(seen.all())
    named = np.where(seen, number, -1)[group]
    in_frame = np.full(len(first), -1, np.int64)
    in_frame[ordered] = np.arange(len(ordered))
    shown = is_source & ~hidden[group] if len(group) else is_source
    samples = (in_frame[group[shown]], row[shown], latency[shown])
    return LayerRows(frame, summary, findings, samples, trim_ratio, (row, own), named, is_own)


def _is_host_among_device(frame: pd.DataFrame) -> BoolArray:
    """Layers without device work in a case whose other layers have the latency of the device: their host time is
    another quantity, and is not set among those latencies (`host_ns` tells it)."""
    is_host = ~frame["latency_source"].isin(DEVICE_SOURCES).to_numpy(bool)
    case = frame["case_index"].to_numpy(np.int64)
    on_device = np.bincount(case, weights=~is_host, minlength=int(case.max(initial=-1)) + 1) > 0
    return is_host & on_device[case] if len(case) else is_host


def _numbered(case: IntArray, own: IntArray, is_reference: BoolArray) -> IntArray:
    """Each layer's number in its case: its own, but a fresh one where another layer has that number already."""
    order = np.argsort(~is_reference, kind="stable")
    is_taken = np.ones(len(own), dtype=bool)
    is_taken[order] = pd.DataFrame({"case": case, "own": own}).iloc[order].duplicated()
    number = own.copy()
    for index in np.unique(case[is_taken]):  # cases with clashes only, and there are few
        clashing = np.flatnonzero(is_taken & (case == index))
        number[clashing] = own[case == index].max() + 1 + np.arange(len(clashing))
    return number


def _frame(
    layers: pd.DataFrame, group: IntArray, first: IntArray, case: IntArray, number: IntArray, is_source: BoolArray,
    is_kernel: BoolArray, trim_ratio: float,
) -> pd.DataFrame:  # fmt: skip
    """One row per group: text of its first row, numbers summarised over its rows."""

    def text(name: str) -> pd.Categorical:
        codes, texts = text_codes(layers[name])
        return texts_of(codes[first], texts)

    def over(name: str, rows: BoolArray, least: float = 0) -> FloatArray:
        values = layers[name].to_numpy(np.float64)
        values = np.where(values < least, np.nan, values)
        return summarise_groups(values, np.where(rows, group, -1), len(first), trim_ratio)["trimmed_mean"].to_numpy()

    is_one_run = bool((is_source == is_kernel).all())

    def from_either(name: str) -> FloatArray:
        """The layer run's value; where it has none (M/L without facts), the kernel run's."""
        source = over(name, is_source)
        return source if is_one_run else np.where(np.isnan(source), over(name, is_kernel), source)

    names = ("layer_path", "layer_name", "layer_type", "shape_text", "latency_source")
    return pd.DataFrame(
        {
            "case_index": case[first],
            "layer_index": number,
            **{name: text(name) for name in names},
            "call_count": layers["call_count"].to_numpy(np.int64)[first],
            "is_inferred": layers["is_inferred"].to_numpy()[first].astype(bool),
            "host_ns": over("duration_ns", is_source),
            **{name: over(name, is_kernel) for name in ("busy_ns", "kernel_ns")},
            **{name: from_either(name) for name in ("allocated_bytes", "analytic_flop", "analytic_bytes")},
        },
        copy=False,
    )


def _findings(frame: pd.DataFrame) -> list[Finding]:
    # the [self] of a model has no range of its own, so that M/L cannot measure it
    lost = (frame["sample_count"].eq(0) & (frame["layer_type"] != SELF)).to_numpy()
    return if_any("layers-of-kernel-run-only", lost, lambda row: frame["layer_path"].iloc[row])
