"""Allocations → live memory over time, split by what holds it, and its owners at the peak."""

import numpy as np
import pandas as pd

from xsp_post.model.kinds import SELF
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.reports.cases import Case, captures_of
from xsp_post.reports.memory_line import EARLIER, owners_of
from xsp_post.reports.text import shorten, visible
from xsp_post.tables.analyses.memory_peaks import main_device

BIN_COUNT = 240
PART_LIMIT = 6
_OTHER = "other"


def peak_device(results: Results, case: Case | None) -> pd.Series | None:
    """The device of the case's captures with the highest peak; None where no allocation is known."""
    captures = captures_of(results, case) or frame_or_empty(results, "captures", ["capture_id"])["capture_id"].tolist()
    found = [device for number in captures if (device := main_device(results, number)) is not None]
    return max(found, key=lambda device: int(device["peak_bytes"])) if found else None


def memory_owners(results: Results, case: Case | None) -> pd.DataFrame:
    """What each layer allocated, and what it held at the peak: the last part of its path, of a model's own two."""
    device = peak_device(results, case)
    if device is None:
        return pd.DataFrame()
    held = owners_of(results, device)
    parts = held["owner"].astype(str).str.split(" > ")
    last = parts.map(lambda names: shorten(visible(" > ".join(names[-2:] if names[-1] == SELF else names[-1:]))))
    named = held["owner_kind"].astype(str).isin(["layer", "range"])
    return held.assign(owner=last.where(named, held["part"]))


def live_memory(results: Results, case: Case | None) -> pd.DataFrame:
    """Live bytes over time by part: offset_ns, part, live_bytes, reserved_bytes; those of one time sum to the total."""
    device = peak_device(results, case)
    if device is None:
        return pd.DataFrame()
    wide = live_by_part(results, device, owners_of(results, device)).drop(columns="total_bytes")
    long = wide.melt("offset_ns", var_name="part", value_name="live_bytes")
    return long.assign(reserved_bytes=device["reserved_bytes"])


def live_by_part(results: Results, device: pd.Series, owners: pd.DataFrame) -> pd.DataFrame:
    """Live bytes of one device at chosen times (the last and the highest of every 1/240 of the recording): offset_ns,
    total_bytes, and one column per part, the largest at the peak first; parts sum to the total."""
    keys = ["capture_id", "process_id", "device_id", "memory_kind"]
    events = frame_or_empty(results, "memory_timeline", [*keys, "start_ns", "change_bytes", "total_bytes", "memory_id"])
    for key in keys[:3]:
        events = events[events[key] == device[key]]
    events = events[events["memory_kind"].astype(str) == str(device["memory_kind"])]
    at = events["start_ns"].to_numpy() - int(device["peak_ns"]) + int(device["peak_offset_ns"])
    total, size = events["total_bytes"].to_numpy(), events["change_bytes"].to_numpy()
    rows = _chosen(at, total)
    frame = pd.DataFrame({"offset_ns": at[rows], "total_bytes": total[rows]})
    known = owners[owners["owner_kind"].astype(str) != "earlier"]
    amounts = known.groupby("part")[["live_at_peak_bytes", "most_live_bytes"]].sum()
    at_peak = amounts[amounts["live_at_peak_bytes"] > 0].sort_values(
        "live_at_peak_bytes", ascending=False, kind="stable"
    )
    at_any_time = amounts.sort_values("most_live_bytes", ascending=False, kind="stable")
    # what the peak consists of, and what was large at other times
    most = list(dict.fromkeys([*at_peak.index[: PART_LIMIT // 2], *at_any_time.index]))[:PART_LIMIT]
    named = known["part"].where(known["part"].isin(most), _OTHER)
    part = events["memory_id"].map(dict(zip(known["memory_id"], named))).to_numpy(object)
    at_end = known["live_at_end_bytes"].groupby(named).sum()
    left = frame["total_bytes"].to_numpy()
    for name in [*most, _OTHER]:
        change = np.where(part == name, size, 0)
        before = int(at_end.get(name, 0)) - int(change.sum())  # of a part of a recording: allocated before it
        live = np.maximum(before + np.cumsum(change), 0)[rows]
        if live.any():
            frame[name] = live
            left = left - live
    if (left > 0).any():
        frame[EARLIER] = np.maximum(left, 0)
    length = of_captures(results, "captures", int(device["capture_id"]), ["duration_ns"])["duration_ns"].max()
    end = frame.iloc[[-1]].assign(offset_ns=length)
    return pd.concat([frame, end], ignore_index=True) if length > frame["offset_ns"].iloc[-1] else frame


def _chosen(at: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Of each bin of time the row with the highest total and the last row."""
    width = max(int(at[-1] - at[0]), 1) / BIN_COUNT
    step = np.minimum((at - at[0]) / width, BIN_COUNT - 1).astype(np.int64)
    last = np.flatnonzero(np.append(step[1:] != step[:-1], True))
    order = np.lexsort((-np.arange(len(at)), total, step))
    highest = order[np.flatnonzero(np.append(np.diff(step[order]) != 0, True))]
    return np.unique(np.concatenate([last, highest]))
