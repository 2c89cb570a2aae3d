"""Results of one job → per-rank rows: stragglers, communication time, and how much of it compute hides.

A rank is a device of a process; its captures are one file with several processes, or one file per rank.
No clock has to agree between files: a collective ends for all its ranks together, so that the rank whose
kernel of it is shortest arrived last, and what the others' kernels take longer is waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.analysis import Results
from xsp_post.families import families, normalise_kernel_name
from xsp_post.intervals import union_length
from xsp_post.schemas import TABLES

COMMUNICATION = "communication"
STRAGGLER_EXCESS_RATIO = 0.05
# Of more than two ranks, point-to-point transfers join two only: the others' of the same order are other transfers.
_POINT_TO_POINT = r"send|recv"


@dataclass(frozen=True)
class RankCapture:
    """One capture of a job: its results, its name, and the rank that its file name states (−1 none)."""

    results: Results
    capture_name: str
    rank: int = -1


@dataclass
class _Activity:
    """Device work of one rank: kernels with what they are, and copies."""

    capture_name: str
    stated_rank: int
    process_id: int
    device_id: int
    kernels: pd.DataFrame  # name, is_communication, start_ns, end_ns; by start
    copies: pd.DataFrame  # start_ns, end_ns


def rank_table(captures: Sequence[RankCapture], job_name: str = "") -> pd.DataFrame:
    """One row per rank of a job (schemas: ranks), in rank order; no rows where nothing ran on a device."""
    activities = [activity for capture in captures for activity in _split(capture)]
    stated = [a.stated_rank for a in activities]
    # the files' numbers are used where every rank has one of its own
    ranks = stated if len(set(stated)) == len(stated) and all(r >= 0 for r in stated) else list(range(len(stated)))
    rows = [_row(activity, rank, job_name) for activity, rank in zip(activities, ranks)]
    frame = pd.DataFrame(rows, columns=[c.name for c in TABLES["ranks"].columns])
    frame = _with_waiting(frame, activities)
    frame["compute_excess_ratio"] = _excess(frame["compute_ns"].to_numpy(np.float64))
    frame["is_straggler"] = _stragglers(frame)
    frame = frame.astype({c.name: "object" if c.dtype == "str" else c.dtype for c in TABLES["ranks"].columns})
    return frame.sort_values("rank", kind="stable").reset_index(drop=True)


def _split(capture: RankCapture) -> list[_Activity]:
    """The device work of each (process, device) of a capture's deepest timing run."""
    capture_id = _deepest_capture(capture.results)
    kernels = capture.results.frame(
        "kernels", ["capture_id", "name", "process_id", "device_id", "start_ns", "end_ns"])
    kernels = kernels[kernels["capture_id"] == capture_id]
    copies = capture.results.frame(
        "memory_operations", ["capture_id", "kind", "process_id", "device_id", "start_ns", "end_ns"])
    copies = copies[(copies["capture_id"] == capture_id) & (copies["kind"].astype(object) != "graph")]
    names = kernels["name"].astype(object)
    kernels = kernels.assign(
        is_communication=families(names) == COMMUNICATION, name=names).sort_values("start_ns", kind="stable")
    keys = kernels[["process_id", "device_id"]].drop_duplicates().sort_values(["device_id", "process_id"])
    of_copy = copies.groupby(["process_id", "device_id"])
    none = copies.iloc[:0]
    return [
        _Activity(capture.capture_name, capture.rank, process, device, rows,
                  of_copy.get_group((process, device)) if (process, device) in of_copy.groups else none)
        for process, device in keys.itertuples(index=False)
        for rows in [kernels[(kernels["process_id"] == process) & (kernels["device_id"] == device)]]
    ]


def _deepest_capture(results: Results) -> int:
    captures = results.frame("captures", ["capture_id", "level", "kernel_count"])
    timing = captures[~captures["level"].astype(str).str.endswith("counters")]
    chosen = timing if len(timing) else captures
    return int(chosen.sort_values("kernel_count", kind="stable")["capture_id"].iloc[-1]) if len(chosen) else -1


def _row(activity: _Activity, rank: int, job_name: str) -> dict[str, object]:
    kernels, copies = activity.kernels, activity.copies
    talking = kernels[kernels["is_communication"].to_numpy(bool)]
    working = kernels[~kernels["is_communication"].to_numpy(bool)]
    communication, compute = _union(talking), _union(working)
    either = _union(kernels)
    overlapped = communication + compute - either  # |A ∩ B| = |A| + |B| − |A ∪ B|
    start = min([*kernels["start_ns"].head(1), *([copies["start_ns"].min()] if len(copies) else [])])
    end = max(kernels["end_ns"].max(), copies["end_ns"].max() if len(copies) else start)
    busy = _union(pd.concat([kernels[["start_ns", "end_ns"]], copies[["start_ns", "end_ns"]]]))
    return {
        "job_name": job_name, "rank": rank, "capture_name": activity.capture_name,
        "process_id": activity.process_id, "device_id": activity.device_id, "kernel_count": len(kernels),
        "communication_count": len(talking), "first_start_ns": int(start), "duration_ns": int(end - start),
        "busy_ns": busy, "idle_ns": int(end - start) - busy, "compute_ns": compute, "communication_ns": communication,
        "overlapped_ns": overlapped, "exposed_ns": communication - overlapped,
        "overlap_ratio": overlapped / communication if communication else float("nan"), "memory_ns": _union(copies),
        "waiting_ns": float("nan"), "last_count": -1, "matched_count": -1,
    }


def _union(rows: pd.DataFrame) -> int:
    return int(union_length(rows["start_ns"].to_numpy(np.int64), rows["end_ns"].to_numpy(np.int64)))


def _with_waiting(frame: pd.DataFrame, activities: Sequence[_Activity]) -> pd.DataFrame:
    """Waiting time in the collectives that all ranks launched: same name, same order, same number of them."""
    if len(activities) < 2:
        return frame
    parts = []
    for position, activity in enumerate(activities):
        talking = activity.kernels[activity.kernels["is_communication"].to_numpy(bool)]
        name = pd.Series(normalise_kernel_name(talking["name"]), index=talking.index, dtype=object)
        parts.append(pd.DataFrame({
            "position": position, "name": name, "order": name.groupby(name, sort=False).cumcount(),
            "length": talking["end_ns"] - talking["start_ns"]}))
    calls = pd.concat(parts, ignore_index=True)
    if len(activities) > 2:
        calls = calls[~calls["name"].str.contains(_POINT_TO_POINT, case=False, regex=True)]
    if calls.empty:
        return frame
    table = calls.groupby(["name", "position"]).size().unstack("position")
    table = table.reindex(columns=range(len(activities)))
    alike = table.index[table.notna().all(axis=1) & table.eq(table.iloc[:, 0], axis=0).all(axis=1)]
    calls = calls[calls["name"].isin(alike)]
    if calls.empty:
        return frame
    shortest = calls.groupby(["name", "order"])["length"].transform("min")
    waiting = (calls["length"] - shortest).groupby(calls["position"]).sum()
    last = calls["length"].eq(shortest).groupby(calls["position"]).sum()
    frame["waiting_ns"] = waiting.reindex(range(len(frame))).to_numpy(np.float64)
    frame["last_count"] = last.reindex(range(len(frame))).to_numpy(np.int64)
    frame["matched_count"] = int(table.loc[alike].iloc[:, 0].sum())
    return frame


def _excess(compute: np.ndarray) -> np.ndarray:
    """Each rank's compute over the median of the others' − 1."""
    count = len(compute)
    if count < 2:
        return np.full(count, np.nan)
    others = np.array([np.median(np.delete(compute, i)) for i in range(count)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(others > 0, compute / others - 1, np.nan)


def _stragglers(frame: pd.DataFrame) -> np.ndarray:
    """More compute than the others, or last to arrive in most collectives while the others wait for it."""
    if len(frame) < 2:
        return np.zeros(len(frame), dtype=bool)
    is_slow = frame["compute_excess_ratio"].to_numpy(np.float64) > STRAGGLER_EXCESS_RATIO
    waiting = frame["waiting_ns"].to_numpy(np.float64)
    if np.isnan(waiting).any():
        return is_slow
    others = np.array([np.median(np.delete(waiting, i)) for i in range(len(frame))])
    is_last = frame["last_count"].to_numpy() * 2 > frame["matched_count"].to_numpy()
    return is_slow | (is_last & (waiting * 2 < others))
