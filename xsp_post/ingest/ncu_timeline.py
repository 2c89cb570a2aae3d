"""Captures in: a counter report given without a timing run → a Trace whose only order is the profiling order.

XSP takes no latency from a counter run (paper §III-C): replay serialises and repeats kernels, and every
duration below is what ncu measured under it. So the timeline is labelled, its gaps mean nothing, and a
finding says what to record instead; kernels, ranges and counters are right.
"""

import numpy as np
import pandas as pd

from xsp_post.base.findings import finding
from xsp_post.ingest import interning
from xsp_post.ingest.interning import StringTable
from xsp_post.model.counters import DURATION, PATH_SEPARATOR, CounterReport
from xsp_post.model.kinds import GEOMETRY
from xsp_post.model.levels import RUN_COUNTERS
from xsp_post.model.trace import ActivityKind, Provenance, SpanKind, Trace

REGISTERS = "launch__registers_per_thread"
_NOT_READ = ("static_shared_memory_bytes", "dynamic_shared_memory_bytes")  # unknown, not none


def trace_of_report(report: CounterReport) -> Trace:
    """One process, one thread; kernels follow one another in profiling order; ranges enclose runs of equal paths."""
    actions = report.actions
    count = len(actions)
    duration = _whole(report, DURATION, 0)
    end = np.cumsum(duration + 1)
    start = end - duration
    strings = StringTable()
    order = np.arange(count)
    activities = actions[["device_id", "context_id", "stream_id", *GEOMETRY]].assign(
        kind=int(ActivityKind.KERNEL), correlation_id=order, start_ns=start, end_ns=end,
        name_id=strings.add(actions["name"].to_numpy(object)),
        short_name_id=strings.add(actions["short_name"].to_numpy(object)),
        registers_per_thread=_whole(report, REGISTERS, -1), **dict.fromkeys(_NOT_READ, -1),
    )  # fmt: skip
    launches = pd.DataFrame(
        {"correlation_id": order, "name_id": strings.add_one("kernel launch"), "start_ns": start, "end_ns": start}
    )
    spans = _spans(actions, start, end, strings)
    gpus = list(dict.fromkeys(str(name) for name in actions["gpu_name"] if name))
    missing = int((duration == 0).sum())
    example = f"{missing} of {count} kernels have no duration at all" if missing else report.report_name
    numbers = np.arange(len(gpus))
    return Trace(
        provenance=Provenance(
            report.report_name, report.tool, level=RUN_COUNTERS, batch_size=report.batch_size,
            gpu_name=" + ".join(gpus),
        ),
        strings=strings.array(), spans=spans, launches=interning.conform(launches, interning.LAUNCH_DTYPES),
        activities=interning.conform(activities, interning.ACTIVITY_DTYPES), **interning.one_thread("", ""),
        devices=pd.DataFrame({
            "process_index": np.zeros(len(gpus), np.int32), "device_id": numbers, "gpu_index": numbers,
            "gpu_name": np.array(gpus, object),
        }),
        findings=[finding("durations-under-counters", count=count, example=example)],
    )  # fmt: skip


def _whole(report: CounterReport, metric: str, unknown: int) -> np.ndarray:
    """A metric of each action in whole numbers, ``unknown`` where it was not recorded; shape (actions,)."""
    metrics = report.metrics
    rows = metrics[(metrics["metric_name"] == metric) & metrics["value"].notna()]
    result = np.full(len(report.actions), unknown, np.int64)
    result[rows["action_id"].to_numpy(int)] = np.rint(rows["value"].to_numpy()).astype(np.int64)
    return result


def _spans(actions: pd.DataFrame, start: np.ndarray, end: np.ndarray, strings: StringTable) -> pd.DataFrame:
    """Ranges: for each depth, runs of neighbouring kernels that share the path down to it."""
    paths = actions["range_path"].astype(str).str.split(PATH_SEPARATOR, regex=False)
    deepest = int(max((len(p) for p in paths if p != [""]), default=0))
    names, first, last = [], [], []
    for depth in range(1, deepest + 1):
        key = np.array([PATH_SEPARATOR.join(p[:depth]) if p != [""] and len(p) >= depth else "" for p in paths], object)
        edge = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        stop = np.r_[edge[1:], len(key)] - 1
        used = key[edge] != ""
        names += [str(paths.iloc[row][depth - 1]) for row in edge[used].tolist()]
        first += start[edge[used]].tolist()
        last += end[stop[used]].tolist()
    count = len(names)
    order = np.lexsort((-np.array(last, np.int64), np.array(first, np.int64))) if count else np.zeros(0, int)
    frame = pd.DataFrame({
        "kind": int(SpanKind.PUSH_POP), "domain_index": -1, "source_row_id": -1,
        "name_id": strings.add(np.array(names, object)[order]) if count else np.zeros(0, np.int32),
        "start_ns": np.array(first, np.int64)[order], "end_ns": np.array(last, np.int64)[order],
    })  # fmt: skip
    return interning.conform(frame, interning.SPAN_DTYPES)
