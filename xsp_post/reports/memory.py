"""The section about memory: live bytes over time, split by what holds them, and the layers at the peak."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.cases import Case
from xsp_post.reports.memory_line import EARLIER, memory_line, owners_of
from xsp_post.reports.text import shorten, visible
from xsp_post.reports.verdict_captures import captures_of
from xsp_post.tables.analyses.memory_peaks import main_device

ROW_LIMIT = 200
BIN_COUNT = 240
PART_LIMIT = 6
_OTHER = "other"
_SELF = "[self]"


def data(results: Results, device: pd.Series, owners: pd.DataFrame) -> pd.DataFrame:
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
    captures = frame_or_empty(results, "captures", ["capture_id", "duration_ns"])
    length = captures.loc[captures["capture_id"] == device["capture_id"], "duration_ns"].max()
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


def chart(frame: pd.DataFrame, device: pd.Series) -> Any:
    """Stacked areas over time, and the peak."""
    parts = [str(c) for c in frame.columns if c not in ("offset_ns", "total_bytes")]
    largest = max(int(device["peak_bytes"]), int(device["reserved_bytes"]))
    factor, unit = theme.axis_scale("peak_bytes", np.array([largest]))
    time, time_unit = theme.axis_scale("offset_ns", frame["offset_ns"])
    label = {name: visible(name, 60) for name in parts}
    shown = pd.concat([
        pd.DataFrame({"time": frame["offset_ns"] / time, "live": frame[name] / factor, "part": label[name],
                      "order": order})
        for order, name in enumerate(reversed(parts))
    ])  # fmt: skip
    names = list(label.values())
    colors = alt.Scale(domain=names, range=theme.category_colors(names, other=EARLIER))
    x = alt.X("time:Q", title=theme.axis_title("time", time_unit))
    y = alt.Y("live:Q", title=theme.axis_title("live memory", unit), stack="zero")
    areas = (
        alt.Chart(shown)
        .mark_area(interpolate="step-after")
        .encode(x=x, y=y, color=alt.Color("part:N", title=None, sort=names, scale=colors,
                                          legend=alt.Legend(columns=2, labelLimit=340)), order=alt.Order("order:Q"))
    )  # fmt: skip
    peak = pd.DataFrame({
        "time": [device["peak_offset_ns"] / time], "live": [device["peak_bytes"] / factor],
        "text": [format_bytes(device["peak_bytes"])], "after": [format_ns(device["peak_offset_ns"])],
    })  # fmt: skip
    tips = [alt.Tooltip("text:N", title="peak"), alt.Tooltip("after:N", title="after")]
    base = alt.Chart(peak).encode(x=alt.X("time:Q"), y=alt.Y("live:Q"), tooltip=tips)
    point = base.mark_point(color=theme.color("selected"), size=70)
    layers = [areas, point]
    if device["reserved_bytes"] > 0:
        line = pd.DataFrame({"live": [device["reserved_bytes"] / factor],
                             "text": [format_bytes(device["reserved_bytes"])]})  # fmt: skip
        tip = [alt.Tooltip("text:N", title="most reserved")]
        layers.append(alt.Chart(line).mark_rule(strokeDash=[5, 4]).encode(y=alt.Y("live:Q"), tooltip=tip))
    return theme.overlay(*layers, width=theme.CHART_WIDTH, height=theme.CHART_HEIGHT + 40)


def _make(results: Results, case: Case | None) -> Section | None:
    captures = captures_of(results, case) or frame_or_empty(results, "captures", ["capture_id"])["capture_id"].tolist()
    found = {number: device for number in captures if (device := main_device(results, number)) is not None}
    if not found:
        return None
    capture_id = max(found, key=lambda number: int(found[number]["peak_bytes"]))
    device = found[capture_id]
    owners = owners_of(results, device)
    blocks: list[Block] = [
        Note(memory_line(results, capture_id) + ".", "lead"),
        Chart("memory", chart(data(results, device, owners), device), _caption(device), "Live memory over time"),
    ]
    held = owners.sort_values("live_at_peak_bytes", ascending=False, kind="stable")
    named = held["owner_kind"].astype(str).isin(["layer", "range"])
    held = held.assign(owner=held["owner"].astype(object).where(named, held["part"]))
    blocks.append(
        _table("memory", held, "What each layer allocated, and what it held at the peak", ("live_at_peak_bytes",))
    )
    devices = frame_or_empty(results, "memory_devices")
    if len(devices) > 1:
        blocks.append(_table("memory_devices", devices, "Devices and host memory"))
    return Section("memory", "Memory", "Which layers hold the memory at its peak?", tuple(blocks), "Layers")


def _caption(device: pd.Series) -> str:
    said = "Live memory by the type of layer that allocated it. docs/memory.md says how it is found."
    reserved = device["reserved_bytes"]
    if reserved <= 0:
        return said
    unused = format_ratio_percent(1 - device["peak_bytes"] / reserved)
    return f"{said} Dashed: {format_bytes(reserved)} held from the driver, {unused} of it unused at the peak."


def _table(name: str, frame: pd.DataFrame, caption: str, bars: tuple[str, ...] = ()) -> Table:
    return Table(
        f"table-{name}", name, frame.head(ROW_LIMIT), present(frame, view_of(name)), caption, len(frame), bars=bars,
        short={"owner": _last_parts} if "owner" in frame else {}, command=f"xsp-post table {name} STORE --format csv",
    )  # fmt: skip


def _last_parts(paths: pd.Series) -> pd.Series:
    """Of each path its last part, of a model's own work the model, too."""
    parts = paths.astype(str).str.split(" > ")
    return parts.map(lambda names: shorten(visible(" > ".join(names[-2:] if names[-1] == _SELF else names[-1:]))))


EXHIBIT = Exhibit("memory", "Memory", ("memory",), _make, "")
