"""Captures in: launch calls whose kernels are not in the capture → findings: a CUDA graph was recorded, or the likely
cause."""

import re

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.joins import join_ids
from xsp_post.arrays.texts import Strings, of_each
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.base.messages import INFO
from xsp_post.model.trace import ActivityKind

_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel|ModuleLaunch|ExtLaunch")
_BEGIN, _END = re.compile("StreamBeginCapture"), re.compile("StreamEndCapture")
_FEW_RATIO = 0.05  # below it the edges of the recording explain them
_MOST_RATIO = 0.9
_MANY_RATIO = 0.2  # of the launches from the first one whose kernel was recorded to the middle one


def unmatched_launches(launches: pd.DataFrame, activities: pd.DataFrame, texts: Strings) -> list[Finding]:
    """The findings, none where every launch of a kernel has one. Launches that a CUDA graph recorded run later, under
    the graph's own launch: they are a finding of their own."""
    names = launches["name_id"].to_numpy()
    calls = _named(names, texts, _LAUNCH)
    if not calls.any():
        return []
    rows = np.flatnonzero(calls)
    lost = rows[~_has_work(launches, activities, rows)]
    inside = _inside_capture(launches, names, texts, lost)
    found = if_any("graph-recorded", inside, f"{inside.sum():,} launches")
    lost = lost[~inside]
    if not len(lost):
        return found
    share = len(lost) / len(rows)
    cause = _cause(launches, rows, lost, activities)
    example = f"{len(lost):,} of {len(rows):,} launches; {cause}"
    severity = INFO if share < _FEW_RATIO else ""
    found.append(finding("launches-without-kernel", count=len(lost), example=example, severity=severity))
    start = launches["start_ns"].to_numpy()
    kept, without = start[np.setdiff1d(rows, lost, assume_unique=True)], start[lost]
    if len(kept):  # what was launched between two that ran has run, but for what waits at the end of the recording
        is_early = (without > kept.min()) & (without < np.median(kept))
        if is_early.sum() > _MANY_RATIO * (is_early.sum() + len(kept) / 2):
            count = int(((without > kept.min()) & (without < kept.max())).sum())
            found.append(finding("kernels-missing", count=count, example=example))
    return found


def _named(names: np.ndarray, texts: Strings, pattern: re.Pattern[str]) -> np.ndarray:
    return of_each(names, lambda one: one >= 0 and pattern.search(str(texts[one])) is not None, bool)


def _has_work(launches: pd.DataFrame, activities: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    """Whether some device work has the launch's process and correlation id (or some launch a kernel's)."""
    work, calls = (
        [frame[column].to_numpy() for column in ("process_index", "correlation_id")] for frame in (activities, launches)
    )
    return join_ids(*work, *(column[rows] for column in calls)) >= 0


def _inside_capture(launches: pd.DataFrame, names: np.ndarray, texts: Strings, rows: np.ndarray) -> np.ndarray:
    """Whether each launch lies between the begin and the end of a stream capture of its thread."""
    inside = np.zeros(len(rows), bool)
    begins = np.flatnonzero(_named(names, texts, _BEGIN)) if len(rows) else rows
    ends = np.flatnonzero(_named(names, texts, _END)) if len(begins) else begins
    thread, start = launches["thread_index"].to_numpy(), launches["start_ns"].to_numpy()
    for one in distinct(thread[begins]).tolist():
        opened = np.sort(start[begins[thread[begins] == one]])
        closed = np.sort(start[ends[thread[ends] == one]])
        mine = thread[rows] == one
        at = start[rows[mine]]
        inside[mine] = np.searchsorted(opened, at, side="right") > np.searchsorted(closed, at, side="right")
    return inside


def _cause(launches: pd.DataFrame, rows: np.ndarray, lost: np.ndarray, activities: pd.DataFrame) -> str:
    start = launches["start_ns"].to_numpy()
    kernels = activities[activities["kind"].to_numpy() == int(ActivityKind.KERNEL)]
    if kernels.empty:
        if (activities["kind"].to_numpy() == int(ActivityKind.GRAPH)).any():
            return "kernels of CUDA graphs were recorded as whole graphs"
        return (
            "no kernel at all was recorded: the recording ended before the device's records were collected, another "
            "profiler held the device, or the driver is not one that this profiler knows"
        )
    matched = np.setdiff1d(rows, lost, assume_unique=True)
    if not len(matched):
        return "the recorded kernels belong to other launches: the capture is a part of a longer recording"
    orphans = len(kernels) - int(_has_work(kernels, launches, np.arange(len(kernels))).sum())
    if orphans > _FEW_RATIO * len(kernels):
        return f"{orphans:,} kernels have no launch either: the capture is a part of a longer recording"
    first, last = int(start[matched].min()), int(start[matched].max())
    if (start[lost] > last).mean() >= _MOST_RATIO:
        return "they are the last ones: the recording ended before the device's records were collected"
    if (start[lost] < first).mean() >= _MOST_RATIO:
        return "they are the first ones: device work was recorded later than the calls"
    return "they are spread over the recording: records of the device were lost, or the work ran under a CUDA graph"
