"""Work of kernels from shapes, where no counters were collected.

A case that has counters keeps to them: sums of both would be of two kinds. What stands for counters then is the least
work: flop of products and each tensor once, as ``docs/work.md`` says.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import lookup
from xsp_post.base.findings import Finding, finding
from xsp_post.hardware.gpus import peaks_of_device
from xsp_post.model.kinds import PHASES
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.tables.analyses.frames import BoolArray, FloatArray, IntArray, text_codes
from xsp_post.tables.analyses.roofline import Work

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
    phase = np.where(row >= 0, _phase_codes(known["phase"])[row], 0)
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


def _phase_codes(column: pd.Series) -> IntArray:
    codes, texts = text_codes(column)
    return np.array([PHASES.index(text) if text in PHASES else 0 for text in texts], np.int64)[codes]


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
