"""Intensity, throughput, roofs and the verdict memory-/compute-/latency-bound.

paper, §III: AI = flop / (DRAM reads + writes); AT = flop / kernel latency; memory-bound ⇔ AI < peak / bandwidth
(strictly). Written as times that is: memory-bound ⇔ bytes / bandwidth > flop / peak, which also holds for a
kernel whose flop went through several pipes: its compute time is that of the pipe that is busy longest, and
its roof is flop / max(compute time, memory time). What was not measured has no verdict (error E9 of the paper).

Where no counters were collected, the work of kernels is that of their shapes (`with_shapes`): flop of products and each
tensor once, as ``docs/work.md`` says. A case that has counters keeps to them: sums of both would be of two kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import lookup
from xsp_post.base.findings import Finding, finding
from xsp_post.hardware.gpus import PIPES, Peaks, peaks_of_device
from xsp_post.model.kinds import PHASES
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.names.number_types import operand_kind, runs_on_tensor_cores
from xsp_post.tables.analyses.frames import (
    PATTERNS,
    BoolArray,
    FloatArray,
    IntArray,
    divide,
    group_sum,
    is_every,
    text_codes,
)
from xsp_post.tables.analyses.options import ROOF_AUTO, Options

MEMORY, COMPUTE, LATENCY, UNKNOWN = "memory", "compute", "latency", "unknown"
BOUNDS = (MEMORY, COMPUTE, LATENCY, UNKNOWN)
_MEMORY, _COMPUTE, _LATENCY, _UNKNOWN = range(len(BOUNDS))
COUNTERS, ANALYTIC, NO_COUNTERS = "counters", "analytic", "none"
COUNTER_SOURCES = (COUNTERS, ANALYTIC, NO_COUNTERS)
_PIPE_TEXTS = (*PIPES, "")


# What a counter tool says of its own measurement: shares of its peaks, and its peaks at the clock it held.
MEASURED_PEAKS = ("peak_fp32_flop_per_s", "peak_dram_bytes_per_s")
CONDITIONS = ("compute_speed_ratio", "memory_speed_ratio", *MEASURED_PEAKS)
BOUND_SOURCES = ("roofline", "speed of light")
_AMOUNTS = ("latency_ns", "flop", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes")  # that add up
LATENCY_BOUND_SPEED = 0.6  # Nsight Compute's rule "SOL bottleneck"


@dataclass
class Work:
    """Work of n rows (kernels, layers, models) and the time it took; every array has shape (n,), NaN unknown.

    ``flop`` is the total; ``flop_by_pipe`` what is known of its split (a pipe absent: none of it).
    ``dram_bytes`` is reads + writes; some reports know only that. Rows of ``case`` choose the GPU.
    """

    case: IntArray
    latency_ns: FloatArray
    flop: FloatArray
    flop_by_pipe: dict[str, FloatArray]
    dram_read_bytes: FloatArray
    dram_write_bytes: FloatArray
    dram_bytes: FloatArray
    l2_bytes: FloatArray
    occupancy_ratio: FloatArray
    coverage_ratio: FloatArray
    conditions: dict[str, FloatArray] = field(default_factory=dict)  # of `CONDITIONS`, what there is

    def quantities(self) -> dict[str, FloatArray]:
        """The columns that the schema calls quantities."""
        names = ("dram_read_bytes", "dram_write_bytes", "l2_bytes", "occupancy_ratio")
        return {"total_flop": self.flop, **{name: getattr(self, name) for name in names}}

    def take(self, rows: IntArray) -> Work:
        """The same for some of the rows."""
        if is_every(rows, len(self.case)):
            return self
        by_pipe, conditions = (
            {name: values[rows] for name, values in of.items()} for of in (self.flop_by_pipe, self.conditions)
        )
        amounts = {name: getattr(self, name)[rows] for name in ("case", *_AMOUNTS, "occupancy_ratio", "coverage_ratio")}
        return Work(**amounts, flop_by_pipe=by_pipe, conditions=conditions)

    def where(self, chosen: BoolArray, by_pipe: Mapping[str, FloatArray], **others: FloatArray | float) -> Work:
        """The same with other flop by pipe (none: 0), and other values of some fields, in the rows ``chosen``."""
        none = np.zeros(len(self.case))
        split = {
            pipe: np.where(chosen, by_pipe.get(pipe, none), self.flop_by_pipe.get(pipe, none))
            for pipe in sorted({*self.flop_by_pipe, *by_pipe})
        }
        changed: dict[str, Any] = {
            name: np.where(chosen, values, getattr(self, name)) for name, values in others.items()
        }
        return replace(self, flop_by_pipe=split, **changed)

    def times(self, ratio: FloatArray) -> Work:
        """A part of each row: of its time, flop and bytes."""
        by_pipe = {pipe: flop * ratio for pipe, flop in self.flop_by_pipe.items()}
        return replace(self, flop_by_pipe=by_pipe, **{name: getattr(self, name) * ratio for name in _AMOUNTS})


def aggregate(work: Work, group: IntArray, count: int, case: IntArray) -> tuple[Work, Work]:
    """Work of groups by the paper's rule: latency, flop and bytes are summed, occupancy weighted by latency.

    ``group`` (n,) numbers the group of each row, negative for none; ``case`` (count,) is each group's case.
    Returns the sums, and the sums over the rows that have flop and DRAM counters only: intensity, throughput
    and bound are computed from the latter, so that a kernel without counters cannot dilute them.
    """
    kept = np.flatnonzero(group >= 0)
    work, group = work.take(kept), group[kept]
    covered = ~(np.isnan(work.flop) | np.isnan(work.dram_bytes))
    latency = np.bincount(group, weights=work.latency_ns, minlength=count).astype(np.float64)
    covered_latency = np.bincount(group[covered], weights=work.latency_ns[covered], minlength=count)
    # Weighting by latency fails where all latencies are 0: then kernels count alike.
    rows = np.bincount(group, minlength=count)
    covered_rows = np.bincount(group[covered], minlength=count)
    coverage = np.where(latency > 0, divide(covered_latency, latency), divide(covered_rows, rows))
    coverage = np.where(rows > 0, coverage, 0.0)

    def sums(which: IntArray, total_latency: FloatArray) -> Work:
        part, groups = work.take(which), group[which]
        weight = np.where(np.isnan(part.occupancy_ratio), 0.0, part.latency_ns)
        weighted = group_sum(groups, part.occupancy_ratio * weight, count)
        amounts = {name: group_sum(groups, getattr(part, name), count) for name in _AMOUNTS}
        return Work(
            case, **amounts | {"latency_ns": total_latency}, coverage_ratio=coverage,
            flop_by_pipe={pipe: group_sum(groups, flop, count) for pipe, flop in part.flop_by_pipe.items()},
            occupancy_ratio=divide(weighted, np.bincount(groups, weights=weight, minlength=count)),
            conditions={name: _weighted(groups, of, part.latency_ns, count) for name, of in part.conditions.items()},
        )  # fmt: skip

    everything = sums(np.arange(len(group)), latency)
    if covered.all():
        return everything, everything
    part = sums(np.flatnonzero(covered), covered_latency.astype(np.float64))
    # the tool's own shares need no flop: they are those of all kernels of the group
    speeds = {name: values for name, values in everything.conditions.items() if name not in MEASURED_PEAKS}
    return everything, replace(part, conditions={**part.conditions, **speeds})


def _weighted(group: IntArray, values: FloatArray, latency_ns: FloatArray, count: int) -> FloatArray:
    """Mean per group weighted by latency; NaN where a value of the group is unknown."""
    lost = np.bincount(group[np.isnan(values)], minlength=count) > 0
    mean = divide(
        np.bincount(group, weights=np.nan_to_num(values * latency_ns), minlength=count),
        np.bincount(group, weights=latency_ns, minlength=count),
    )
    return np.where(lost, np.nan, mean)


def timed_where(is_timed: BoolArray, work: Work) -> Work:
    """The work with its time unknown where it is not that of kernels."""
    return replace(work, latency_ns=np.where(is_timed, work.latency_ns, np.nan))


def intensity_columns(work: Work, peaks: Mapping[int, Peaks | None], options: Options) -> dict[str, object]:
    """The columns `*intensity` of `schemas/columns.txt`, and ``roof_flop_per_s``, for every row of ``work``.

    ``peaks`` holds each case's GPU (None: unknown). ``bound`` and ``pipe`` are categoricals.
    """
    flop, dram = work.flop, work.dram_bytes
    seconds = work.latency_ns * 1e-9
    compute_s, pipe = _compute_seconds(work, peaks, options.roof)
    bandwidth = {case: found.memory_bandwidth_bytes_per_s if found else None for case, found in peaks.items()}
    compute_s, memory_s = _at_measured_clock(work, peaks, compute_s, _per_case(work.case, bandwidth))
    needed_s = np.maximum(compute_s, memory_s)
    reached = divide(needed_s, seconds)
    is_known = ~(np.isnan(compute_s) | np.isnan(memory_s) | np.isnan(flop))
    is_known &= work.coverage_ratio >= options.least_coverage
    bound = np.where(memory_s > compute_s, _MEMORY, _COMPUTE)
    if options.roof == ROOF_AUTO:
        bound = np.where(reached < options.latency_bound_ratio, _LATENCY, bound)
        is_known &= (flop > 0) | (bound != _LATENCY)  # without flop: integers, or a type that is not counted
    # Neither flop nor traffic: nothing to compare. Only the share of the roof that was reached says something.
    is_known &= (needed_s > 0) | ((options.roof == ROOF_AUTO) & (seconds > 0))
    said = _speed_of_light(work, options)
    bound = np.where((said != _UNKNOWN) | ~is_known, said, bound)
    return {
        "arithmetic_intensity_flop_per_byte": divide(flop, dram),
        "arithmetic_throughput_flop_per_s": divide(flop, seconds),
        "pipe": pd.Categorical.from_codes(pipe, categories=pd.Index(_PIPE_TEXTS)),
        "bound": pd.Categorical.from_codes(bound, categories=pd.Index(BOUNDS)),
        "bound_source": pd.Categorical.from_codes(
            np.where(said != _UNKNOWN, 1, np.where(is_known, 0, 2)), categories=pd.Index([*BOUND_SOURCES, ""])
        ),
        "roof_ratio": reached,
        "roof_flop_per_s": np.where(flop == 0, 0.0, divide(flop, needed_s)),
    }


def _at_measured_clock(
    work: Work, peaks: Mapping[int, Peaks | None], compute_s: FloatArray, bandwidth: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Least times of arithmetic and of traffic, at the clocks that the counter tool held the GPU at where the latency
    is from its run, too."""
    memory_s = work.dram_bytes / bandwidth
    if not work.conditions.keys() & set(MEASURED_PEAKS):
        return compute_s, memory_s
    peak = (_peak_per_row(work.case, peaks, "fp32"), bandwidth)
    ratios = (work.conditions.get(name, np.nan) / usual for name, usual in zip(MEASURED_PEAKS, peak))
    slower = [np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0) for ratio in ratios]
    return compute_s / slower[0], memory_s / slower[1]


def _speed_of_light(work: Work, options: Options) -> IntArray:
    """Nsight Compute's own shares of its peaks as a bound (index in `BOUNDS`), by its rule: below 60 % of both,
    latency."""
    compute, memory = (work.conditions.get(name) for name in ("compute_speed_ratio", "memory_speed_ratio"))
    if compute is None or memory is None or options.roof != ROOF_AUTO:
        return np.full(len(work.case), _UNKNOWN)
    bound = np.where(memory > compute, _MEMORY, _COMPUTE)
    bound = np.where(np.fmax(compute, memory) < LATENCY_BOUND_SPEED, _LATENCY, bound)
    return np.where(np.isnan(compute) | np.isnan(memory), _UNKNOWN, bound)


def utilisation(work: Work, pipe: object, time_ns: FloatArray, peaks: Mapping[int, Peaks | None]) -> FloatArray:
    """Model flop utilisation: flop / (time × peak of the pipe); NaN without a peak, without flop, or where less than
    all of the work is known (`Options.least_coverage` decides about verdicts, not about this)."""
    codes = np.asarray(pd.Categorical(pipe, categories=pd.Index(_PIPE_TEXTS)).codes)  # type: ignore[call-overload]
    peak = np.full(len(codes), np.nan)
    for code in np.unique(codes).tolist():
        if 0 <= code < len(PIPES):
            rows = codes == code
            peak[rows] = _peak_per_row(work.case[rows], peaks, _PIPE_TEXTS[code])
    flop = np.where(np.nan_to_num(work.flop) > 0, work.flop, np.nan)
    return divide(flop, time_ns * 1e-9 * peak)


def _compute_seconds(work: Work, peaks: Mapping[int, Peaks | None], roof: str) -> tuple[FloatArray, IntArray]:
    """Least time the arithmetic needs, and the index in `_PIPE_TEXTS` of the pipe it needs it in."""
    if roof != ROOF_AUTO:
        peak = _peak_per_row(work.case, peaks, roof)
        return work.flop / peak, np.full(len(work.case), PIPES.index(roof))
    seconds = np.where(np.isnan(work.flop), np.nan, 0.0)
    # Without any flop the roof drawn is that of fp32.
    pipe = np.full(len(work.case), PIPES.index("fp32"))
    known = np.zeros(len(work.case))
    for name, flop in work.flop_by_pipe.items():
        present = np.nan_to_num(flop) > 0
        needed = np.where(present, flop / _peak_per_row(work.case, peaks, name), 0.0)
        longer = present & ~(needed <= seconds)  # also where the peak, and so the time, is unknown
        seconds, pipe = np.where(longer, needed, seconds), np.where(longer, PIPES.index(name), pipe)
        known += np.nan_to_num(flop)
    # Flop whose pipe is unknown are single precision, as nvprof's flop_count_sp and the paper's are.
    rest = work.flop - known > 1e-6 * np.nan_to_num(work.flop)
    needed = np.where(rest, (work.flop - known) / _peak_per_row(work.case, peaks, "fp32"), 0.0)
    seconds = np.where(rest, np.maximum(seconds, needed), seconds)
    return np.where(np.isnan(work.flop), np.nan, seconds), np.where(np.isnan(work.flop), len(PIPES), pipe)


def _peak_per_row(case: IntArray, peaks: Mapping[int, Peaks | None], pipe: str) -> FloatArray:
    return _per_case(case, {index: found.peak(pipe) if found else None for index, found in peaks.items()})


def _per_case(case: IntArray, value: Mapping[int, float | None]) -> FloatArray:
    table = np.full(int(case.max(initial=-1)) + 1, np.nan)
    for index, number in value.items():
        if 0 <= index < len(table) and number:
            table[index] = number
    return table[case]


def tensor_pipe(metric_source: str, kernel_name: str) -> str:
    """The pipe of `hardware.gpus.PIPES` that a kernel's tensor flop went through.

    The counter's own name decides when it names one operand type; else the kernel's name; else fp16, by far
    the most common.
    """
    pipe = _named_pipe(metric_source.lower())
    kind = operand_kind(kernel_name)
    return pipe or f"{kind if kind not in ('', 'fp32') else 'fp16'}_tensor"


def _named_pipe(text: str) -> str:
    """The one tensor pipe whose words are in the text; '' where none or several kinds are named."""
    pipes = ((name.removeprefix("pipe "), words) for name, words in PATTERNS.items() if name.startswith("pipe "))
    found = [pipe for pipe, words in pipes if re.search(words, text)]
    if "fp16_tensor_fp16_accumulate" in found and "dst_fp32" in text:
        found.remove("fp16_tensor_fp16_accumulate")
    kinds = {pipe.removesuffix("_fp16_accumulate") for pipe in found}
    return found[0] if len(kinds) == 1 else ""


@lru_cache(1 << 18)
def pipe_of_name(kernel_name: str) -> str:
    """Which pipe a kernel's arithmetic goes through, from its name alone, for flop that were never counted.

    fp32 unless the name says tensor core: a guess that is only used where no counter is there to tell.
    """
    return tensor_pipe("", kernel_name) if runs_on_tensor_cores(kernel_name) else "fp32"


LEAST_COVERAGE = 0.9  # of kernel time; below it no sum over the model has a verdict (`Options.least_coverage`)
FORWARD, BACKWARD = PHASES.index("forward"), PHASES.index("backward")


def with_shapes(
    results: Results, work: Work, kernel_id: IntArray, unplaced_ns: FloatArray
) -> tuple[Work, BoolArray, IntArray, list[Finding]]:
    """Fill in what shapes say of the kernels ``kernel_id``, which are the rows of ``work``, where their case has no
    counters. ``unplaced_ns``: kernel time per case beside those rows, of which nothing is known.

    Also which rows are filled in, the phase of each (a code of `PHASES`, 0 unknown), and of how much the work is known.
    """
    case_count = len(unplaced_ns)
    columns = ["kernel_id", "phase", "flop", "read_bytes", "written_bytes", "pipe"]
    known = frame_or_empty(results, "kernel_work", columns)
    none = np.zeros(len(kernel_id), bool)
    if known.empty or not len(kernel_id):
        return work, none, np.zeros(len(kernel_id), np.int64), []
    row = lookup(known["kernel_id"].to_numpy(np.int64), np.arange(len(known)), kernel_id)
    code, texts = text_codes(known["phase"])
    of_text = np.array([PHASES.index(text) if text in PHASES else 0 for text in texts], np.int64)
    phase = np.where(row >= 0, of_text[code][row], 0)
    flop, read, written = (np.append(known[name].to_numpy(np.float64), np.nan)[row] for name in columns[2:5])
    counted = np.bincount(work.case, weights=work.coverage_ratio > 0, minlength=case_count) > 0
    is_analytic = ~counted[work.case] & ~np.isnan(flop) & ~np.isnan(read + written)
    if not is_analytic.any():
        return work, none, phase, []
    code, pipes = text_codes(known["pipe"])
    pipe = np.where(row >= 0, np.array(pipes, object)[code[row]], "")
    by_pipe = {name: np.where(pipe == name, flop, 0.0) for name in {*pipe[is_analytic & (flop > 0)]} - {""}}
    filled = work.where(
        is_analytic, by_pipe, flop=flop, dram_read_bytes=read, dram_write_bytes=written, dram_bytes=read + written,
        coverage_ratio=1.0,
    )  # fmt: skip
    return filled, is_analytic, phase, _coverage(filled, is_analytic, counted, unplaced_ns)


def _coverage(work: Work, is_analytic: BoolArray, counted: BoolArray, unplaced_ns: FloatArray) -> list[Finding]:
    """One sentence: of how much kernel time the work is known."""
    latency = np.where(counted[work.case], 0.0, np.nan_to_num(work.latency_ns))
    whole = latency.sum() + unplaced_ns[~counted].sum()
    share = float(latency[is_analytic].sum() / whole) if whole > 0 else 0.0
    code = "work-from-shapes" if share >= LEAST_COVERAGE else "work-from-shapes-partial"
    percent = np.floor(1000 * share) / 10
    return [finding(code, count=int(is_analytic.sum()), example=f"flop known for {percent:g} % of kernel time")]


def least_times(results: Results) -> pd.Series:
    """What the work of each kernel takes at the least at the peaks of its GPU, ns: the longer of its arithmetic and its
    traffic (the roof of roofline.py); index: capture_id, kernel_id. Only kernels whose work and roofs are known."""
    keys = ["capture_id", "pipe"]
    work = frame_or_empty(results, "kernel_work", [*keys, "kernel_id", "flop", "read_bytes", "written_bytes"])
    work = work[work["flop"].notna() & work["read_bytes"].notna()].astype({"pipe": object})
    devices = frame_or_empty(results, "devices").drop_duplicates("capture_id").to_dict("records")
    peaks = {row["capture_id"]: peaks_of_device({str(key): value for key, value in row.items()}) for row in devices}
    kinds = work[keys].drop_duplicates()
    known = [(peaks.get(capture), pipe) for capture, pipe in zip(kinds["capture_id"], kinds["pipe"])]
    kinds["flop_per_s"] = [float(one.peak(pipe) or np.nan) if one and pipe else np.nan for one, pipe in known]
    kinds["bytes_per_s"] = [float(one.memory_bandwidth_bytes_per_s or np.nan) if one else np.nan for one, _ in known]
    work = work.merge(kinds, on=keys)
    compute_s = (work["flop"] / work["flop_per_s"]).where(work["flop"] > 0, 0.0)
    memory_s = (work["read_bytes"] + work["written_bytes"]) / work["bytes_per_s"]
    least_ns = memory_s.where(~(memory_s < compute_s), compute_s).where(compute_s.notna()) * 1e9
    return least_ns.groupby([work["capture_id"], work["kernel_id"]]).sum(min_count=1).dropna().rename("least_ns")


def roof_ratio(kernels: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Least time over time (``duration_ns``) of kernels (`least_times` joined) by ``keys``; NaN where less than
    `LEAST_COVERAGE` of the time is of kernels whose least time is known."""
    known = kernels[kernels["least_ns"].notna()].groupby(keys, observed=True)[["duration_ns", "least_ns"]].sum()
    covered = known["duration_ns"] / kernels.groupby(keys, observed=True)["duration_ns"].sum()
    return (known["least_ns"] / known["duration_ns"]).where(covered >= LEAST_COVERAGE).rename("roof_ratio")
