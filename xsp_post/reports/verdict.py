"""On the arrow ``reports``: what bounds the model, in words, with the numbers behind it.

Nothing is computed here but which sentence fits; every number is one of A15's. The rules, in order:

1. GPU busy under LAUNCH_BOUND_BELOW of the iteration → launch-bound: the device waits for the host, and what
   its kernels are bound by matters less.
2. Counters: A15's bound (the paper's rule, or the roof of the pipe that ran) → memory, compute or latency.
3. Neither → not known, and what would tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from xsp_post.analysis import Results
from xsp_post.reports import cases
from xsp_post.reports.blocks import frame_or_empty
from xsp_post.reports.text import visible
from xsp_post.units import format_flop_per_byte, format_flop_per_s, format_ns, format_ratio_percent

LAUNCH_BOUND_BELOW = 0.6


@dataclass(frozen=True)
class Verdict:
    """``kind`` memory, compute, latency, launch or unknown; ``word`` for the headline; the sentence; the evidence."""

    kind: str
    word: str
    sentence: str
    evidence: tuple[str, ...]


def verdict(results: Results, case: cases.Case | None) -> Verdict:
    """The verdict on one case."""
    rows = cases.rows(results, "a15", case)
    if rows.empty or not int(rows["kernel_count"].iloc[0]):
        return Verdict(
            "unknown",
            "no GPU work recorded",
            "This capture holds no kernels, so what bounds the model on the GPU cannot be said.",
            ("Record the GPU too: nsys profile --trace=cuda,nvtx …, or xsp-post run --levels MLG.",),
        )
    row = rows.iloc[0]
    bound = str(row["bound"])
    busy = float(row["gpu_busy_ratio"])
    evidence = [*_busy(row), *_roof(results, row, bound)]
    if busy == busy and busy < LAUNCH_BOUND_BELOW:
        device = f" While the GPU works, it is {bound}-bound." if bound in ("memory", "compute", "latency") else ""
        return Verdict(
            "launch",
            "launch-bound",
            f"The GPU is busy only {format_ratio_percent(busy)} of an iteration; the rest of the time "
            f"it waits for the host.{device}",
            (*evidence, f"Called launch-bound below {LAUNCH_BOUND_BELOW:.0%} busy."),
        )
    sure = _how_sure(row)
    numbers = (
        format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"]),
        format_flop_per_s(row["arithmetic_throughput_flop_per_s"]),
        format_ratio_percent(row["roof_ratio"]),
    )
    if bound == "memory":
        return Verdict(
            bound,
            "memory-bound",
            f"At {numbers[0]} the kernels run out of memory bandwidth before "
            f"arithmetic; they do {numbers[1]}, {numbers[2]} of that roof.{sure}",
            tuple(evidence),
        )
    if bound == "compute":
        return Verdict(
            bound,
            "compute-bound",
            f"At {numbers[0]} the arithmetic units are the limit, not the memory; the kernels "
            f"do {numbers[1]}, {numbers[2]} of that roof.{sure}",
            tuple(evidence),
        )
    if bound == "latency":
        return Verdict(
            bound,
            "latency-bound",
            f"The kernels are far below both roofs: {numbers[1]} at {numbers[0]}, {numbers[2]} of the "
            f"nearer one. They wait, rather than compute or move data.{sure}",
            tuple(evidence),
        )
    gpu = f"The GPU is busy {format_ratio_percent(busy)} of an iteration. " if busy == busy else _capture_busy(results)
    return Verdict(
        "unknown",
        "GPU-bound, by memory or compute is not known" if busy == busy else "Bound by what? Not known",
        f"{gpu}Whether its kernels are memory- or compute-bound is not known: no counters were recorded.",
        (*evidence, "Add counters: xsp-post run --ncu, or xsp-post ingest this_capture metrics.ncu-rep."),
    )


def _capture_busy(results: Results) -> str:
    captures = frame_or_empty(results, "captures")
    devices = max(len(frame_or_empty(results, "devices")), 1)
    if captures.empty or not int(captures["busy_ns"].sum()):
        return ""
    among = f" on {devices} devices" if devices > 1 else ""
    return (
        f"The GPU was busy {format_ns(captures['busy_ns'].sum())} of the {format_ns(captures['duration_ns'].sum())} "
        f"recorded{among}. "
    )


def _busy(row: pd.Series) -> list[str]:
    found = []
    if row["gpu_busy_ratio"] == row["gpu_busy_ratio"]:
        found.append(
            f"GPU busy {format_ns(row['busy_ns'])} per iteration, {format_ratio_percent(row['gpu_busy_ratio'])} "
            f"of it (union of device intervals)."
        )
    if row["gpu_latency_ratio"] == row["gpu_latency_ratio"]:
        found.append(
            f"Kernel time {format_ns(row['kernel_latency_ns'])} in {int(row['kernel_count']):,} launches, "
            f"{format_ratio_percent(row['gpu_latency_ratio'])} of the model latency "
            f"{format_ns(row['model_latency_ns'])} (sum)."
        )
    return found


def _roof(results: Results, row: pd.Series, bound: str) -> list[str]:
    roofs = frame_or_empty(results, "roofs")
    if bound == "unknown" or roofs.empty:
        return []
    mine = roofs[
        roofs["gpu_name"].astype(str).eq(str(row["gpu_name"])) & roofs["pipe"].astype(str).eq(str(row["pipe"]))
    ]
    if mine.empty:
        return []
    roof = mine.iloc[0]
    return [
        f"Intensity {format_flop_per_byte(row['arithmetic_intensity_flop_per_byte'])} against "
        f"{format_flop_per_byte(roof['ideal_intensity_flop_per_byte'])}, from which the "
        f"{visible(roof['pipe'], 40)} roof of "
        f"{visible(roof['gpu_name'], 80)} ({format_flop_per_s(roof['peak_flop_per_s'])}) is in reach."
    ]


def _how_sure(row: pd.Series) -> str:
    source, coverage = str(row["counter_source"]), float(row["counter_coverage_ratio"])
    if source == "analytic":
        return " Flop and bytes are counted from the model, not measured: a first answer."
    if coverage == coverage and coverage < 0.995:
        return f" Counters cover {format_ratio_percent(coverage)} of the kernel time."
    return " Counters cover all of the kernel time." if coverage == coverage else ""
