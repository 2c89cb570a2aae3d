"""Captures in: a counter report given without a timing run → a Trace whose only order is the profiling order.

XSP takes no latency from a counter run (paper §III-C): replay serialises and repeats kernels, and every
duration below is what ncu measured under it. So the timeline is labelled, its gaps mean nothing, and a
finding says what to record instead; kernels, ranges and counters are right.
"""

import numpy as np
import pandas as pd

from xsp_post.base.findings import finding
from xsp_post.ingest.interning import StringTable
from xsp_post.model.counters import DURATION, PATH_SEPARATOR, CounterReport
from xsp_post.model.levels import RUN_COUNTERS
from xsp_post.model.trace import ActivityKind, Provenance, SpanKind, Trace

_DIMENSIONS = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def trace_of_report(report: CounterReport) -> Trace:
    """One process, one thread; kernels follow one another in profiling order; ranges enclose runs of equal paths."""
    actions = report.actions
    count = len(actions)
    duration = _durations(report)
    end = np.cumsum(duration + 1)
    start = end - duration
    strings = StringTable()
    order = np.arange(count)
    activities = pd.DataFrame(
        {
            "kind": np.full(count, int(ActivityKind.KERNEL), np.int8),
            "process_index": np.zeros(count, np.int32),
            "device_id": actions["device_id"].to_numpy(np.int32),
            "context_id": actions["context_id"].to_numpy(np.int32),
            "stream_id": actions["stream_id"].to_numpy(np.int32),
            "correlation_id": order,
            "name_id": strings.add(actions["name"].to_numpy(object)),
            "short_name_id": strings.add(actions["short_name"].to_numpy(object)),
            "start_ns": start,
            "end_ns": end,
            "bytes": np.zeros(count, np.int64),
            "copy_kind": np.zeros(count, np.int8),
            "graph_node_id": np.zeros(count, np.int64),
            "graph_id": np.zeros(count, np.int64),
            **{column: actions[column].to_numpy(np.int32) for column in _DIMENSIONS},
        }
    )
    launches = pd.DataFrame(
        {
            "thread_index": np.zeros(count, np.int32),
            "process_index": np.zeros(count, np.int32),
            "correlation_id": order,
            "name_id": np.full(count, strings.add_one("kernel launch"), np.int32),
            "api_class": np.zeros(count, np.int8),
            "start_ns": start,
            "end_ns": start,
        }
    )
    spans = _spans(actions, start, end, strings)
    gpus = list(dict.fromkeys(str(name) for name in actions["gpu_name"] if name))
    missing = int((duration == 0).sum())
    example = f"{missing} of {count} kernels have no duration at all" if missing else report.report_name
    return Trace(
        provenance=Provenance(
            source_name=report.report_name,
            collector=report.tool,
            level=RUN_COUNTERS,
            batch_size=report.batch_size,
            gpu_name=" + ".join(gpus),
        ),
        strings=strings.array(),
        spans=spans,
        launches=launches,
        activities=activities,
        processes=pd.DataFrame(
            {"process_id": [0], "global_id": [0], "name": np.array([""], object), "rank": np.array([-1], np.int32)}
        ),
        threads=pd.DataFrame(
            {"process_index": np.zeros(1, np.int32), "thread_id": np.zeros(1, np.int64), "name": np.array([""], object)}
        ),
        devices=pd.DataFrame(
            {
                "process_index": np.zeros(len(gpus), np.int32),
                "device_id": np.arange(len(gpus)),
                "gpu_index": np.arange(len(gpus)),
                "gpu_name": np.array(gpus, object),
            }
        ),
        findings=[finding("durations-under-counters", count=count, example=example)],
    )


def _durations(report: CounterReport) -> np.ndarray:
    """ncu's own duration of each action in whole ns, 0 where it was not recorded."""
    metrics = report.metrics
    rows = metrics[(metrics["metric_name"] == DURATION) & metrics["value"].notna()]
    result = np.zeros(len(report.actions), np.int64)
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
    return pd.DataFrame(
        {
            "kind": np.full(count, int(SpanKind.PUSH_POP), np.int8),
            "thread_index": np.zeros(count, np.int32),
            "process_index": np.zeros(count, np.int32),
            "domain_index": np.full(count, -1, np.int32),
            "name_id": strings.add(np.array(names, object)[order]) if count else np.zeros(0, np.int32),
            "start_ns": np.array(first, np.int64)[order],
            "end_ns": np.array(last, np.int64)[order],
            "source_row_id": np.full(count, -1, np.int64),
            "is_open": np.zeros(count, bool),
            "is_cross_thread": np.zeros(count, bool),
            "payload_text_id": np.full(count, -1, np.int32),
        }
    )
