"""Captures in: missing and implausible times of an Nsight Systems export."""

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.ingest.tables import NULL

# Sums and differences of such times stay inside int64. Exports with --ts-normalize=true hold times since 1970.
_FARTHEST_NS = 2**61


def last_time(start: np.ndarray, end: np.ndarray) -> int:
    """The largest plausible time among starts and ends, 0 where there is none."""
    last = NULL
    for times in (start, end):
        if _has_implausible(times):
            times = times[~_implausible(times)]
        last = max(last, int(times.max(initial=NULL)))
    return last if last != NULL else 0


def close_and_repair(
    spans: pd.DataFrame, launches: pd.DataFrame, activities: pd.DataFrame, last_nvtx_ns: int
) -> tuple[pd.DataFrame, list[Finding]]:
    """Give every row a plausible start and end (in place); returns the launches that are left, and findings.

    NULL ends: ranges end with the last NVTX time of the file, calls and activities with their start.
    """
    found = []
    is_open = spans["is_open"].to_numpy()
    if is_open.any():
        closed = np.maximum(last_nvtx_ns, spans["start_ns"].to_numpy())
        spans["end_ns"] = np.where(is_open, closed, spans["end_ns"].to_numpy())
        found.append(finding("open-ranges", count=int(is_open.sum())))
    for frame in (launches, activities):
        end = frame["end_ns"].to_numpy()
        if (end == NULL).any():
            frame["end_ns"] = np.where(end == NULL, frame["start_ns"].to_numpy(), end)
    lost = _implausible(launches["start_ns"].to_numpy())
    if lost.any():
        launches = launches[~lost].reset_index(drop=True)
    count = int(lost.sum()) + sum(_repair(frame) for frame in (spans, launches, activities))
    if count:
        found.append(finding("implausible-times", count=count))
    return launches, found


def _implausible(times: np.ndarray) -> np.ndarray:
    return (times > _FARTHEST_NS) | (times < -_FARTHEST_NS)


def _has_implausible(times: np.ndarray) -> bool:
    return bool(len(times)) and bool(_implausible(np.array([times.min(), times.max()])).any())


def _repair(frame: pd.DataFrame) -> int:
    """Rows with an implausible time get no duration, at the time that is left; returns how many there were."""
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    if not (_has_implausible(start) or _has_implausible(end)):
        return 0
    bad_start, bad_end = _implausible(start), _implausible(end)
    bad = bad_start | bad_end
    frame["start_ns"] = np.where(bad_start, np.where(bad_end, 0, end), start)
    frame["end_ns"] = np.where(bad, np.where(bad_start, frame["start_ns"].to_numpy(), start), end)
    return int(bad.sum())
