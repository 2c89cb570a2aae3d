"""The input of all analyses: cases, matched layers, matched kernels, roofs; and how long the device was in use for all
executions of a case together (`windows_of`), and their throughput.

Asynchronous executions overlap: the latency of one, up to its last kernel, counts the work of those before it. So
the busy share is judged over the union of the executions, from the first start on the device to the last end, and
the throughput of overlapping ones from the time between two ends.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import clusters
from xsp_post.arrays.processes import summarise_repeats
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import summarise_groups
from xsp_post.base.findings import Finding, finding
from xsp_post.hardware.gpus import Peaks, peaks_of_device, similar_names
from xsp_post.model import options as user
from xsp_post.model.kinds import PHASES
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.tables.analyses.cases import Cases, find_cases
from xsp_post.tables.analyses.frames import IntArray, divide, text_codes
from xsp_post.tables.analyses.kernel_rows import KernelRows, kernel_rows
from xsp_post.tables.analyses.layer_rows import LayerRows, layer_rows
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.analyses.roofline import BACKWARD, Work, aggregate

# Latencies may sum to so much more than the executions take together before they count as overlapping.
_MOST_OVERLAP = 0.01
_OWNER = ["case_index", "capture_id", "process_id"]


def windows_of(iterations: pd.DataFrame, chosen: np.ndarray, case_count: int) -> pd.DataFrame:
    """Per case, of the executions ``chosen`` (bool per row of `Cases.iterations`): ``window_ns``, the length of their
    union on the device; ``busy_ns``, the device's busy time in it; ``period_ns``, the median time from the end of one
    execution to the end of the next (NaN: none follow one another); ``is_overlapping``, whether they overlap."""
    rows = iterations[chosen & (iterations["iteration_index"].to_numpy() >= 0) & iterations["latency_ns"].notna()]
    rows = rows.sort_values([*_OWNER, "start_ns"], kind="stable", ignore_index=True)
    start, offset, period = rows["start_ns"] - rows["start_ns"].min(), rows["device_offset_ns"], rows["period_ns"]
    host_end = (start + rows["latency_ns"]).astype(np.int64)  # of small numbers, so that floats are exact
    last = (start + offset + rows["projection_ns"]).fillna(host_end).astype(np.int64)
    rows = rows[["case_index", "latency_ns", "busy_ns"]].assign(
        group=rows.groupby(_OWNER).ngroup(), start=start, first=(start + offset).fillna(start).astype(np.int64),
        last=last, end=np.maximum(last, host_end),
    )  # fmt: skip
    # the recorded period leads to the next execution of the process: other ones lie between where it does not
    following = rows[["group", "start", "last"]].shift(-1)
    follows = following["group"].eq(rows["group"]) & (following["start"] - start).eq(period)
    found = pd.DataFrame({
        "window_ns": _stretches(rows, "first", "last"), "union_ns": _stretches(rows, "start", "end"),
        "period_ns": (following["last"] - last)[follows].groupby(rows["case_index"]).median(),
        **rows.groupby("case_index")[["latency_ns", "busy_ns"]].sum(),
    }).reindex(range(case_count)).astype(float)  # fmt: skip
    return found.assign(
        busy_ns=found[["busy_ns", "window_ns"]].min(axis=1),
        is_overlapping=found["latency_ns"] > (1 + _MOST_OVERLAP) * found["union_ns"],
    )


def _stretches(rows: pd.DataFrame, first: str, last: str) -> pd.Series:
    """Per case the length of its stretches, from the first of ``first`` to the last of ``last``: executions that follow
    one another without a pause are one."""
    stretch = clusters(*(rows[name].to_numpy() for name in ("group", "start", last)))
    of_stretch = rows.groupby(stretch)
    length = of_stretch[last].max() - of_stretch[first].min()
    return length.groupby(of_stretch["case_index"].first()).sum()


@dataclass
class Inputs:
    """Everything the analyses are pure functions of."""

    options: Options
    cases: Cases
    layers: LayerRows
    kernels: KernelRows
    peaks: dict[int, Peaks | None]  # per case
    model_summary: pd.DataFrame  # `processes.summarise_repeats` of the model latency, one row per case
    by_layer: tuple[Work, Work] = field(init=False)  # kernels summed per row of layers.frame
    by_case: tuple[Work, Work] = field(init=False)  # kernels summed per case
    layer_of_kernel: IntArray = field(init=False)  # row of layers.frame of each kernel row, −1 none
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.kernel_case
        self.layer_of_kernel = self.layers.rows_of(case, self.kernels.frame["layer_index"].to_numpy(np.int64))
        parts = self.kernels.parts
        row, ratio = parts["row"].to_numpy(), parts["ratio"].to_numpy()
        of_part = self.layers.rows_of(case[row], parts["layer_index"].to_numpy(np.int64))
        work = self.kernels.work.take(row)
        work = work if (ratio == 1).all() else work.times(ratio)
        self.by_layer = aggregate(work, of_part, len(self.layer_case), self.layer_case)
        sums = aggregate(self.kernels.work, case, len(self.cases), np.arange(len(self.cases)))
        self.by_case = (self._with_unplaced(sums[0]), self._with_unplaced(sums[1]))

    @cached_property
    def kernel_case(self) -> IntArray:
        """The case of each kernel row."""
        return self.kernels.frame["case_index"].to_numpy(np.int64)

    @cached_property
    def layer_case(self) -> IntArray:
        """The case of each row of layers.frame."""
        return self.layers.frame["case_index"].to_numpy(np.int64)

    def _with_unplaced(self, work: Work) -> Work:
        """Work from shapes covers less of a case where kernels without a launch may belong to it, too."""
        whole = self.kernel_time_ns + self.kernels.unplaced_ns
        share = np.where(self.analytic_cases & (whole > 0), divide(self.kernel_time_ns, whole), 1.0)
        return replace(work, coverage_ratio=work.coverage_ratio * share)

    @cached_property
    def kernel_time_ns(self) -> np.ndarray:
        latency = np.nan_to_num(self.kernels.frame["latency_ns"].to_numpy())
        return np.bincount(self.kernel_case, weights=latency, minlength=len(self.cases))

    @cached_property
    def kernels_by_name(self) -> tuple[IntArray, IntArray]:
        """Group of each kernel row, by case and name, and each group's first row."""
        return dense(self.kernel_case, text_codes(self.kernels.frame["name"])[0])

    @cached_property
    def has_kernels(self) -> np.ndarray:
        """Which cases have kernels captured: bool (cases,)."""
        return np.bincount(self.kernel_case, minlength=len(self.cases)) > 0

    @cached_property
    def windows(self) -> dict[str, pd.DataFrame]:
        """The executions of each case together, for the role ``model`` and the role ``kernel``."""
        rows = self.cases.iterations
        return {role: windows_of(rows, self.cases.measured(role), len(self.cases)) for role in ("model", "kernel")}

    @property
    def pace_ns(self) -> np.ndarray:
        """How often an execution is done: of overlapping ones the period, else the latency. Shape (cases,)."""
        found = self.windows["model"]
        use = found.is_overlapping & ~np.isnan(found.period_ns)
        return np.where(use, found.period_ns, self.model_latency_ns)

    @property
    def throughput_inputs_per_s(self) -> np.ndarray:
        """NaN where the batch size (−1) or the latency is unknown. Shape (cases,)."""
        batch_size = self.cases.frame["batch_size"].to_numpy(np.int64)
        return np.where(batch_size > 0, divide(batch_size, self.pace_ns * 1e-9), np.nan)

    @property
    def model_latency_ns(self) -> np.ndarray:
        """Trimmed mean per case, NaN without iterations. Shape (cases,)."""
        return self.model_summary["trimmed_mean"].to_numpy()

    @cached_property
    def longest_kernels(self) -> tuple[IntArray, IntArray]:
        """Rows of layers.frame that have kernels, and for each the row of kernels.frame of its longest launch."""
        inside = np.flatnonzero(self.layer_of_kernel >= 0)
        latency = self.kernels.frame["latency_ns"].to_numpy()[inside]
        descending = inside[np.argsort(-latency, kind="stable")]
        longest = np.full(len(self.layers.frame), -1, np.int64)
        # Written from the shortest up, so that the longest (of equals the first) is what stays.
        longest[self.layer_of_kernel[descending[::-1]]] = descending[::-1]
        rows = np.flatnonzero(longest >= 0)
        return rows, longest[rows]

    @cached_property
    def shown_kernels(self) -> IntArray:
        """Rows of kernels.frame that A8 and A9 show: all, or of a case with too many launches the longest."""
        frame, options, case = self.kernels.frame, self.options, self.kernel_case
        count = np.bincount(case) if len(case) else np.zeros(0, np.int64)
        if not (count > options.kernel_row_limit).any():
            return np.arange(len(frame))
        order = np.lexsort((-frame["latency_ns"].to_numpy(), case))
        start = np.concatenate(([0], np.cumsum(count)[:-1]))
        rank = np.arange(len(order)) - start[case[order]]
        limit = np.where(count > options.kernel_row_limit, options.kernel_row_keep, count)
        return np.sort(order[rank < limit[case[order]]]).astype(np.int64)

    def case_columns(self, case: IntArray) -> dict[str, Any]:
        """case_index, batch_size and phase of each row."""
        frame = self.cases.frame
        texts = {name: pd.Categorical(frame[name]).take(case) for name in ("phase", "rank_name")}
        return {"case_index": case, "batch_size": frame["batch_size"].to_numpy()[case], **texts}

    @cached_property
    def analytic_cases(self) -> np.ndarray:
        """Which cases' work is from shapes: bool (cases,)."""
        return np.bincount(self.kernel_case, weights=self.kernels.is_analytic, minlength=len(self.cases)) > 0

    @cached_property
    def training_cases(self) -> np.ndarray:
        """Which cases are training steps: some kernel is backward, or the phase says so. bool (cases,)."""
        is_backward = self.kernels.phase == BACKWARD
        has_backward = np.bincount(self.kernel_case, weights=is_backward, minlength=len(self.cases)) > 0
        words = self.cases.frame["phase"].astype(str).str.contains("train|backward", case=False)
        return has_backward | words.to_numpy(bool)

    def latency_by_phase(self, group: IntArray, count: int) -> dict[str, np.ndarray]:
        """Kernel latency of groups of kernel rows (−1 none) per phase; NaN where no phases of the case are known."""
        case = self.kernel_case
        case_has_phases = np.bincount(case, weights=self.kernels.phase > 0, minlength=len(self.cases)) > 0
        latency, columns = self.kernels.frame["latency_ns"].to_numpy(), {}
        known = (group >= 0) & case_has_phases[case]
        has_phases = np.bincount(group[known], minlength=count) > 0
        for code, name in enumerate(PHASES):
            if name in ("forward", "backward", "optimizer"):
                mine = known & (self.kernels.phase == code)
                sums = np.bincount(group[mine], weights=np.nan_to_num(latency[mine]), minlength=count)
                columns[f"{name}_kernel_ns"] = np.where(has_phases, sums, np.nan)
        return columns

    @property
    def busy_ns(self) -> np.ndarray:
        """Trimmed mean per case, over the executions measured for the role ``kernel``."""
        values, group = self.cases.iterations["busy_ns"].to_numpy(np.float64), self.cases.measured_case("kernel")
        return summarise_groups(values, group, len(self.cases), self.options.trim_ratio)["trimmed_mean"].to_numpy()


def inputs_and_findings(results: Results, options: user.Options) -> tuple[Inputs, list[Finding]]:
    """Read the core tables once and match everything that the analyses need; and the list that they and the analyses
    add their findings to."""
    options = Options.of(options)
    cases = find_cases(results)
    layers = layer_rows(results, cases, options.trim_ratio)
    kernels = kernel_rows(results, cases, layers, options)
    rows = cases.iterations
    latency, captures = rows["latency_ns"].to_numpy(np.float64), rows["capture_id"].to_numpy(np.int64)
    model = summarise_repeats(latency, cases.measured_case("model"), captures, len(cases), options.trim_ratio)
    peaks, unknown = _peaks(results, cases, options)
    inputs = Inputs(options, cases, layers, kernels, peaks, model)
    inputs.findings = [*cases.findings, *layers.findings, *kernels.findings]
    if kernels.has_counters or layers.frame["analytic_flop"].notna().any():
        inputs.findings += unknown
    return inputs, inputs.findings


_OF_DEVICE = [
    "capture_id", "device_id", "gpu_name", "sm_count", "clock_hz", "memory_bandwidth_bytes_per_s", "compute_capability",
]  # fmt: skip


def _peaks(results: Results, cases: Cases, options: Options) -> tuple[dict[int, Peaks | None], list[Finding]]:
    """The roofs of each case: of the device its kernels (else layers, else model) ran on."""
    devices = frame_or_empty(results, "devices", _OF_DEVICE).drop_duplicates("capture_id").set_index("capture_id")
    peaks: dict[int, Peaks | None] = {}
    unknown: dict[str, int] = {}
    for index, case in cases.frame.iterrows():  # a handful of rows
        captures = [case[f"{role}_capture_id"] for role in ("kernel", "layer", "model")]
        capture_id = next((c for c in captures if c in devices.index), None)
        device = dict(devices.loc[capture_id]) if capture_id is not None else {}
        device["gpu_name"] = device.get("gpu_name") or case["gpu_name"]
        found = peaks_of_device(device, options.peaks)
        peaks[int(index)] = found  # type: ignore[call-overload]
        if found is None and device["gpu_name"]:
            unknown[str(device["gpu_name"])] = unknown.get(str(device["gpu_name"]), 0) + 1
    findings = [
        finding("peaks-unknown", count=count, example=", ".join([name, *similar_names(name)[:5]]))
        for name, count in unknown.items()
    ]
    return peaks, findings
