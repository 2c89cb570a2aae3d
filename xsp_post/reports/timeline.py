"""The timeline of the recording: critical path, layers, streams, causes of waiting, ranges and launches side by side.

The first, the median and the slowest execution are shown in full; the rest of the recording, and what is still too much
to draw, is joined per lane and bin of time into blocks that say how many events they hold and how long these took.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import numbered
from xsp_post.base.texts import sentence
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas import units
from xsp_post.reports.blocks import Block, Drawing, Note
from xsp_post.reports.pick import Window, layer_of_node, windows
from xsp_post.reports.text import short_kernels, visible_series
from xsp_post.tables.analyses.cases import deepest_capture
from xsp_post.tables.analyses.limits import groups_of

EVENT_LIMIT = 4000  # per kind of lane
BIN_COUNT = 1200
LANE_LIMIT = 12  # threads, launching threads and streams: of each the busiest
DEPTH_LIMIT = 14  # ranges inside ranges

# Kinds of the path whose time is not on the way to the device.
_PATH_KINDS = {
    "kernel": "KERNEL", "graph": "KERNEL", "communication": "KERNEL", "memcpy": "MEMORY", "memset": "MEMORY",
    "host": "HOST", "synchronisation": "HOST",
}  # fmt: skip
_UNSET: dict[str, Any] = {
    "kind": "", "sub": 0, "layer_index": -1, "queue_delay_ns": -1, "launch_start_ns": -1, "is_inferred": False,
}  # fmt: skip
Texts = Callable[[pd.DataFrame], "pd.Series[str]"]


class _Track(NamedTuple):
    """How the lanes of a kind of events are told apart and called, and how an event is called, short and in full."""

    group: str
    lanes: tuple[str, ...]
    lane: Texts
    short: Texts
    full: Texts


class Timeline(NamedTuple):
    """``events``: group, lane, kind, name, full_name, start_ns, end_ns (since ``start_ns``), busy_ns, launch_start_ns,
    queue_delay_ns (−1 none), layer_index, event_count (> 1: a joined block). ``windows``: executions shown in full."""

    start_ns: int
    length_ns: int
    windows: list[Window]
    events: pd.DataFrame
    left_out_count: int


def data(results: Results, limit: int = EVENT_LIMIT) -> Timeline | None:
    """The timeline of the capture that shows most; None without an event."""
    capture_id = deepest_capture(results)
    groups = [(track, events) for track, events in _events(results, capture_id) if len(events)]
    if not groups:
        return None
    start = min(int(events["start_ns"].min()) for _, events in groups)
    length = max(max(int(events["end_ns"].max()) for _, events in groups) - start, 1)
    shown = windows(results, capture_id)
    parts, left_out = [], 0
    for track, events in groups:  # one after the other: all of them together are large
        lane = numbered(events, list(track.lanes))[0] if track.lanes else np.zeros(len(events), np.int64)
        events = events.assign(**{c: value for c, value in _UNSET.items() if c not in events}, lane_number=lane)
        is_drawn = _is_drawable(events)
        left_out += int((~is_drawn).sum())
        thin = _thin(events[is_drawn], limit, start, length, shown)
        parts.append(_worded(track, thin, start))
    moved = [Window(w.capture_id, w.iteration_index, w.start_ns - start, w.end_ns - start, w.title) for w in shown]
    return Timeline(start, length, moved, pd.concat(parts, ignore_index=True), left_out)


def _worded(track: _Track, thin: pd.DataFrame, start: int) -> pd.DataFrame:
    """Few events with their texts, and times from the start of the timeline."""
    count, several = thin["event_count"], thin["event_count"].gt(1)
    label = count.map(units.format_count) + " short " + thin["kind"].astype(str).str.lower() + " events"
    launch = thin["launch_start_ns"]
    return pd.DataFrame({
        "group": track.group, "lane": track.lane(thin), "kind": thin["kind"].astype(object),
        "name": track.short(thin).where(~several, label), "full_name": track.full(thin).where(~several, label),
        "start_ns": thin["start_ns"] - start, "end_ns": thin["end_ns"] - start, "busy_ns": thin["busy_ns"],
        "launch_start_ns": np.where(several | launch.lt(0), -1, launch - start),
        "launch_lane": _threads(thin, "launches of ") if "launch_thread_id" in thin else "",
        **{c: thin[c].where(~several, _UNSET[c]) for c in ("layer_index", "queue_delay_ns")},
        **{c: thin[c] for c in ("sub", "is_inferred", "event_count")},
    })  # fmt: skip


def _is_drawable(events: pd.DataFrame) -> np.ndarray:
    """Which events are in the busiest lanes, and not below a readable depth. Shape (events,)."""
    lane = events["lane_number"].to_numpy()
    length = np.bincount(lane, (events["end_ns"] - events["start_ns"]).clip(lower=1))
    busiest = np.argsort(-length, kind="stable")[:LANE_LIMIT]
    return np.isin(lane, busiest) & (events["sub"].to_numpy() < DEPTH_LIMIT)


def _thin(events: pd.DataFrame, limit: int, start: int, length: int, shown: list[Window]) -> pd.DataFrame:
    """At most about ``limit`` rows: the longest of the windows single, the others joined per lane and bin of time."""
    at = events["start_ns"].to_numpy()
    time = (events["end_ns"] - events["start_ns"]).to_numpy()
    events = events.assign(busy_ns=time, event_count=1)
    if len(events) <= limit:
        return events
    is_inside = np.zeros(len(events), bool)
    for window in shown:
        is_inside |= (at >= window.start_ns) & (at < window.end_ns)
    rows = np.flatnonzero(is_inside)
    longest = rows[np.argsort(-time[rows], kind="stable")[: limit if len(rows) <= limit else limit // 2]]
    is_small = np.ones(len(events), bool)
    is_small[longest] = False
    keys = ["lane_number", "sub", "kind", "is_inferred"]
    small, time = events[is_small], time[is_small]
    lanes = len(numbered(small, keys)[1])
    count = min(max(limit // (4 * lanes), 20), BIN_COUNT)
    spans = [(start, start + length), *((window.start_ns, window.end_ns) for window in shown)]
    edges = np.unique(np.concatenate([np.linspace(low, high, count + 1) for low, high in spans]))
    number, first = numbered(small[keys].assign(bin=np.searchsorted(edges, at[is_small])), [*keys, "bin"])
    ends = small["end_ns"].groupby(number).max().to_numpy()
    joined = small.iloc[first].assign(
        start_ns=small["start_ns"].groupby(number).min().to_numpy(), end_ns=ends, event_count=np.bincount(number),
        busy_ns=np.bincount(number, time).astype(np.int64),
    )  # fmt: skip
    return pd.concat([events[~is_small], joined])


# -- what is on the tracks ----------------------------------------------------------------------------------


def _events(results: Results, capture_id: int) -> list[tuple[_Track, pd.DataFrame]]:
    """The events of each track, with the columns that their texts are made of."""

    def rows(table: str, columns: str) -> pd.DataFrame:
        names = [*columns.split(), "start_ns", "end_ns"]
        return of_captures(results, table, capture_id, names).reset_index(drop=True)

    path = rows("critical_path", "kind name layer_index")
    path = path[path["end_ns"].gt(path["start_ns"])]
    path = path.assign(word=path["kind"], layer_index=path["layer_index"].fillna(-1).astype("int64"),
                       kind="PATH-" + path["kind"].astype(object).map(_PATH_KINDS).fillna("LAUNCH"))  # fmt: skip
    idle = rows("idle", "device_id layer_index cause call_name detail")
    idle = idle.assign(kind="IDLE-" + groups_of(idle).astype(object))
    copies = rows("memory_operations", "name process_id device_id stream_id bytes").assign(kind="MEMORY")
    kernels = rows("kernels", "layer_index name process_id device_id stream_id launch_start_ns launch_end_ns "
                   "launch_thread_id queue_delay_ns").assign(kind="KERNEL")  # fmt: skip
    launched = kernels[kernels["launch_start_ns"].ge(0)]
    columns = ["layer_index", "name", "process_id", "launch_thread_id"]
    launches = launched[columns].assign(
        start_ns=launched["launch_start_ns"], end_ns=launched["launch_end_ns"], kind="LAUNCH"
    )
    # one graph launch starts many kernels: it is one call
    launches = launches.drop_duplicates(["process_id", "launch_thread_id", "start_ns", "end_ns"])
    ranges = _ranges(results, capture_id, rows("nodes", "node_id depth level name process_id thread_id layer_node_id "
                                               "is_inferred"))  # fmt: skip
    layers = ranges[ranges["kind"].eq("LAYER")].assign(sub=0)
    return [(_PATH, path), (_LAYERS, layers), (_STREAMS, kernels), (_COPIES, copies), (_IDLE, idle), (_RANGES, ranges),
            (_LAUNCHES, launches)]  # fmt: skip


def _ranges(results: Results, capture_id: int, nodes: pd.DataFrame) -> pd.DataFrame:
    nodes = nodes[nodes["level"].ne("CAPTURE") & nodes["end_ns"].gt(nodes["start_ns"])]
    least = nodes.groupby(["process_id", "thread_id"])["depth"].transform("min")
    layer = nodes["layer_node_id"].map(layer_of_node(results, capture_id)).fillna(-1).astype("int64")
    return nodes.assign(kind=nodes["level"].astype(object), sub=nodes["depth"] - least, layer_index=layer)


def _threads(rows: pd.DataFrame, prefix: str = "") -> "pd.Series[str]":
    column = "thread_id" if "thread_id" in rows else "launch_thread_id"
    lane = prefix + "thread " + rows[column].astype(str)
    several = rows["process_id"].nunique() > 1
    return "process " + rows["process_id"].astype(str) + " · " + lane if several else lane


def _stream(rows: pd.DataFrame) -> "pd.Series[str]":
    gpu = "GPU " + rows["device_id"].astype(str) + " · stream " + rows["stream_id"].astype(str)
    # device −1: operators of the CPU stand in for kernels, and a stream is a thread of them
    lane = gpu.where(rows["device_id"].ge(0), "CPU operators · " + rows["stream_id"].astype(str))
    return "process " + rows["process_id"].astype(str) + " · " + lane if rows["process_id"].nunique() > 1 else lane


def _said(names: Callable[[pd.Series], pd.Series]) -> Texts:
    return lambda rows: names(rows["name"])


def _with_bytes(rows: pd.DataFrame) -> "pd.Series[str]":
    return visible_series(rows["name"]) + " · " + rows["bytes"].map(units.format_bytes)


def _cause(rows: pd.DataFrame) -> "pd.Series[str]":
    return rows["cause"].astype(object).map(lambda cause: sentence(f"cause.{cause}"))


def _full_cause(rows: pd.DataFrame) -> "pd.Series[str]":
    call, detail = visible_series(rows["call_name"]), visible_series(rows["detail"])
    return _cause(rows) + (" (" + call + ")").where(call.ne(""), "") + (", " + detail).where(detail.ne(""), "")


def _step(names: Callable[[pd.Series], pd.Series]) -> Texts:
    def said(rows: pd.DataFrame) -> "pd.Series[str]":
        return rows["word"].astype(str) + (": " + names(rows["name"])).where(rows["name"].astype(str).ne(""), "")

    return said


_PLACE = ("process_id", "device_id", "stream_id")
_PATH = _Track("path", (), lambda rows: pd.Series("critical path", rows.index), _step(short_kernels),
               _step(visible_series))  # fmt: skip
_KERNEL, _FULL = _said(short_kernels), _said(visible_series)
_LAYERS = _Track("layers", ("process_id", "thread_id"), lambda rows: "layers of " + _threads(rows), _FULL, _FULL)
_STREAMS = _Track("streams", _PLACE, _stream, _KERNEL, _FULL)
_COPIES = _Track("streams", _PLACE, _stream, _with_bytes, _with_bytes)
_IDLE = _Track("idle", ("device_id",), lambda rows: "GPU " + rows["device_id"].astype(str) + " waits for", _cause,
               _full_cause)  # fmt: skip
_RANGES = _Track("ranges", ("process_id", "thread_id"), _threads, _FULL, _FULL)
_LAUNCHES = _Track("launches", ("process_id", "launch_thread_id"), lambda rows: _threads(rows, "launches of "), _KERNEL,
                   _FULL)  # fmt: skip


def blocks(results: Results) -> list[Block]:
    """The drawing and what it leaves out; none without an event."""
    found = data(results)
    if found is None:
        return []
    shown = ", ".join(window.title for window in found.windows)
    said = f"In full: {shown}. Elsewhere short events are joined into blocks; how dark one is says how busy it is."
    drawn: list[Block] = [
        Drawing(
            "timeline", "timeline",
            {"events": found.events, "start_ns": found.start_ns, "length_ns": found.length_ns, "windows": [
                {"title": one.title, "start_ns": one.start_ns, "end_ns": one.end_ns} for one in found.windows
            ]},
            said if found.windows else "No execution is known: the whole recording, its shortest events joined.",
        )
    ]  # fmt: skip
    joined = int(found.events.loc[found.events["event_count"].gt(1), "event_count"].sum())
    left = f"{units.format_count(found.left_out_count)} are on further threads and streams, and are not drawn; "
    if joined or found.left_out_count:
        text = f"{units.format_count(joined)} short events are joined; {left if found.left_out_count else ''}"
        drawn.append(Note(text + "“xsp-post export STORE --to perfetto” writes every one.", "folded"))
    return drawn
