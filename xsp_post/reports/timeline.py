"""The timeline of one iteration: ranges, launches and streams side by side.

A real iteration is shown, the one nearest the median. Where there are more events than can be drawn, the longest
stay single and the others are joined per lane into blocks that say how many they hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.analyses.limits import groups_of
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import pick
from xsp_post.reports.blocks import Drawing, Exhibit, Note, Section
from xsp_post.reports.cases import Case
from xsp_post.reports.text import short_kernels, visible, visible_series
from xsp_post.reports.verdict import CAUSES
from xsp_post.schemas import units

EVENT_LIMIT = 3000  # per kind of lane
BIN_COUNT = 1200
LANE_LIMIT = 12  # threads, launching threads and streams: of each the busiest
DEPTH_LIMIT = 14  # ranges inside ranges

_KERNEL_COLUMNS = [
    "capture_id",
    "iteration_index",
    "layer_index",
    "name",
    "process_id",
    "device_id",
    "stream_id",
    "start_ns",
    "end_ns",
    "launch_start_ns",
    "launch_end_ns",
    "launch_thread_id",
    "queue_delay_ns",
]
_RANGE_COLUMNS = [
    "capture_id",
    "iteration_index",
    "node_id",
    "parent_id",
    "depth",
    "level",
    "name",
    "process_id",
    "thread_id",
    "start_ns",
    "end_ns",
    "layer_node_id",
    "is_inferred",
]
_IDLE_COLUMNS = [
    "capture_id",
    "device_id",
    "iteration_index",
    "layer_index",
    "cause",
    "call_name",
    "detail",
    "start_ns",
    "end_ns",
]
_PATH_COLUMNS = ["capture_id", "iteration_index", "kind", "name", "layer_index", "start_ns", "end_ns"]
# Kinds of the path whose time is not on the way to the device.
_PATH_KINDS = {
    "kernel": "KERNEL", "graph": "KERNEL", "communication": "KERNEL", "memcpy": "MEMORY", "memset": "MEMORY",
    "host": "HOST", "synchronisation": "HOST",
}  # fmt: skip
_MEMORY_COLUMNS = [
    "capture_id",
    "iteration_index",
    "kind",
    "name",
    "process_id",
    "device_id",
    "stream_id",
    "start_ns",
    "end_ns",
    "bytes",
]


def data(results: Results, limit: int = EVENT_LIMIT) -> tuple[pick.Window, pd.DataFrame] | None:
    """The window and its events: lane, kind, name, full_name, start_ns, end_ns (from the window's start),
    launch_start_ns, launch_end_ns, queue_delay_ns (−1 none), layer_index, event_count (> 1: a joined block)."""
    capture_id = pick.deepest_capture(results)
    iteration = pick.median_iteration(results, capture_id)
    events = _events(results, capture_id, -1 if iteration is None else int(iteration["iteration_index"]))
    if events.empty:
        return None
    start = int(events["start_ns"].min())
    end = int(events["end_ns"].max())
    if iteration is None:
        title = "the whole capture"
    else:
        start = min(start, int(iteration["start_ns"]))
        title = f"iteration {int(iteration['iteration_index'])} ({visible(iteration['phase'], 60)})"
    index = -1 if iteration is None else int(iteration["iteration_index"])
    events, left_out = _drawable(events)
    window = pick.Window(capture_id, index, start, end, title, left_out)
    for column in ("start_ns", "end_ns"):
        events[column] -= start
    for column in ("launch_start_ns", "launch_end_ns"):
        events[column] = np.where(events[column] >= 0, events[column] - start, -1)
    parts = [_thin(part.reset_index(drop=True), limit, end - start) for _, part in events.groupby("group", sort=False)]
    return window, pd.concat(parts, ignore_index=True)


def _select(results: Results, table: str, columns: list[str], capture_id: int, iteration: int) -> pd.DataFrame:
    frame = frame_or_empty(results, table, columns)
    mask = frame["capture_id"].eq(capture_id)
    if iteration >= 0:
        mask &= frame["iteration_index"].eq(iteration)
    return frame[mask].reset_index(drop=True)


def _events(results: Results, capture_id: int, iteration: int) -> pd.DataFrame:
    parts = [
        _ranges(results, capture_id, iteration),
        *_kernels(results, capture_id, iteration),
        _memory(results, capture_id, iteration),
        _idle(results, capture_id, iteration),
        _path(results, capture_id, iteration),
    ]
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _ranges(results: Results, capture_id: int, iteration: int) -> pd.DataFrame:
    nodes = _select(results, "nodes", _RANGE_COLUMNS, capture_id, iteration)
    nodes = nodes[nodes["level"].ne("CAPTURE") & nodes["end_ns"].gt(nodes["start_ns"])].reset_index(drop=True)
    if nodes.empty:
        return nodes
    thread = nodes["process_id"].astype(str) + " / " + nodes["thread_id"].astype(str)
    depth = nodes["depth"] - nodes.groupby(thread)["depth"].transform("min")
    layers = frame_or_empty(results, "layers", ["capture_id", "node_id", "layer_index"])
    layer_of = (
        layers[layers["capture_id"].eq(capture_id)].drop_duplicates("node_id").set_index("node_id")["layer_index"]
    )
    full = visible_series(nodes["name"])
    return _frame(
        "ranges",
        _thread(nodes["process_id"], nodes["thread_id"]),
        thread,
        nodes["start_ns"],
        nodes["end_ns"],
        full,
        full,
        kind=nodes["level"].astype(object),
        sub=depth,
        layer_index=nodes["layer_node_id"].map(layer_of).fillna(-1).astype("int64"),
        is_inferred=nodes["is_inferred"].astype(bool),
    )


def _kernels(results: Results, capture_id: int, iteration: int) -> list[pd.DataFrame]:
    kernels = _select(results, "kernels", _KERNEL_COLUMNS, capture_id, iteration)
    if kernels.empty:
        return []
    full, short = visible_series(kernels["name"]), short_kernels(kernels["name"])
    stream = _stream(kernels)
    executed = _frame(
        "streams",
        stream,
        stream,
        kernels["start_ns"],
        kernels["end_ns"],
        short,
        full,
        kind="KERNEL",
        layer_index=kernels["layer_index"],
        queue_delay_ns=kernels["queue_delay_ns"],
        launch_start_ns=kernels["launch_start_ns"],
        launch_end_ns=kernels["launch_end_ns"],
        launch_key=kernels["process_id"].astype(str) + " / " + kernels["launch_thread_id"].astype(str),
    )
    launched = kernels["launch_start_ns"].ge(0).to_numpy()
    some = kernels[launched]
    launches = _frame(
        "launches",
        "launches of " + _thread(some["process_id"], some["launch_thread_id"]),
        some["process_id"].astype(str) + " / " + some["launch_thread_id"].astype(str),
        some["launch_start_ns"],
        some["launch_end_ns"],
        short[launched],
        full[launched],
        kind="LAUNCH",
        layer_index=some["layer_index"],
    )
    # one graph launch starts many kernels: it is one call
    return [launches.drop_duplicates(["lane_key", "start_ns", "end_ns"]), executed]


def _memory(results: Results, capture_id: int, iteration: int) -> pd.DataFrame:
    copies = _select(results, "memory_operations", _MEMORY_COLUMNS, capture_id, iteration)
    if copies.empty:
        return copies
    full = visible_series(copies["name"]) + " · " + copies["bytes"].map(units.format_bytes)
    stream = _stream(copies)
    return _frame("streams", stream, stream, copies["start_ns"], copies["end_ns"], full, full, kind="MEMORY")


def _idle(results: Results, capture_id: int, iteration: int) -> pd.DataFrame:
    """Why each device waited, as a lane of its own below the streams; the kind names the group of the cause."""
    idle = _select(results, "idle", _IDLE_COLUMNS, capture_id, iteration)
    if idle.empty:
        return idle
    cause = idle["cause"].astype(str).map(CAUSES)
    call, detail = visible_series(idle["call_name"]), visible_series(idle["detail"])
    full = cause + (" (" + call + ")").where(call.ne(""), "") + (", " + detail).where(detail.ne(""), "")
    lane = "GPU " + idle["device_id"].astype(str) + " waits for"
    kind = "IDLE-" + groups_of(idle)
    return _frame("idle", lane, lane, idle["start_ns"], idle["end_ns"], cause, full, kind=kind,
                  layer_index=idle["layer_index"])  # fmt: skip


def _path(results: Results, capture_id: int, iteration: int) -> pd.DataFrame:
    """The critical path, as a lane of its own above the others, where it is known of this execution."""
    path = _select(results, "critical_path", _PATH_COLUMNS, capture_id, iteration)
    path = path[path["end_ns"].gt(path["start_ns"])]
    if path.empty:
        return path
    word = path["kind"].astype(str)
    name = word + (": " + short_kernels(path["name"])).where(path["name"].astype(str).ne(""), "")
    full = word + (": " + visible_series(path["name"])).where(path["name"].astype(str).ne(""), "")
    kind = "PATH-" + word.map(_PATH_KINDS).fillna("LAUNCH")
    layer = path["layer_index"].fillna(-1).astype("int64")
    return _frame("path", "critical path", "path", path["start_ns"], path["end_ns"], name, full, kind=kind,
                  layer_index=layer)  # fmt: skip


def _thread(process: pd.Series, thread: pd.Series) -> pd.Series:
    label = "thread " + thread.astype(str)
    return "process " + process.astype(str) + " · " + label if process.nunique() > 1 else label


def _stream(frame: pd.DataFrame) -> pd.Series:
    several = frame["process_id"].nunique() > 1
    gpu = "GPU " + frame["device_id"].astype(str) + " · stream " + frame["stream_id"].astype(str)
    # device −1: operators of the CPU stand in for kernels, and a stream is a thread of them
    stream = gpu.where(frame["device_id"].ge(0), "CPU operators · " + frame["stream_id"].astype(str))
    return "process " + frame["process_id"].astype(str) + " · " + stream if several else stream


def _frame(
    group: str, lane: Any, key: Any, start: pd.Series, end: pd.Series, name: pd.Series, full: pd.Series, **more: Any
) -> pd.DataFrame:
    unset = {
        "sub": 0,
        "kind": "",
        "layer_index": -1,
        "queue_delay_ns": -1,
        "launch_start_ns": -1,
        "launch_end_ns": -1,
        "launch_key": "",
        "is_inferred": False,
    }
    return pd.DataFrame(
        {
            "group": group,
            "lane": lane,
            "lane_key": key,
            "start_ns": start,
            "end_ns": end,
            "name": name,
            "full_name": full,
            "event_count": 1,
            **(unset | more),
        }
    ).reset_index(drop=True)


def _drawable(events: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The events of the busiest lanes of each group, down to a readable depth; and how many that leaves out."""
    length = (events["end_ns"] - events["start_ns"]).clip(lower=1)
    by_lane = length.groupby([events["group"], events["lane_key"]], sort=False).sum()
    rank = by_lane.groupby(level=0).rank(ascending=False, method="first")
    kept = rank.reindex(pd.MultiIndex.from_frame(events[["group", "lane_key"]])).to_numpy() <= LANE_LIMIT
    kept &= events["sub"].to_numpy() < DEPTH_LIMIT
    return events[kept].reset_index(drop=True), int((~kept).sum())


def _thin(events: pd.DataFrame, limit: int, length_ns: int) -> pd.DataFrame:
    """At most about ``limit`` rows: the longest single, the others joined per lane and bin of time."""
    if len(events) <= limit:
        return events
    longest = np.argsort(-(events["end_ns"] - events["start_ns"]).to_numpy(), kind="stable")[: limit // 2]
    single = np.zeros(len(events), dtype=bool)
    single[longest] = True
    small = events[~single]
    lanes = max(small.groupby(["lane_key", "sub"]).ngroups, 1)
    bins = max(min(BIN_COUNT, limit // (2 * lanes)), 20)
    joined = (
        small.assign(bin=small["start_ns"] * bins // max(length_ns, 1))
        .groupby(
            ["group", "lane", "lane_key", "sub", "kind", "is_inferred", "bin"],
            sort=False,
            observed=True,
        )
        .agg(
            start_ns=("start_ns", "min"),
            end_ns=("end_ns", "max"),
            event_count=("start_ns", "size"),
            name=("name", "first"),
            full_name=("full_name", "first"),
        )
        .reset_index()
        .drop(columns="bin")
    )
    several = joined["event_count"].gt(1)
    label = joined["event_count"].map(units.format_count) + " short " + joined["kind"].str.lower() + " events"
    joined["name"] = joined["name"].where(~several, label)
    joined["full_name"] = joined["full_name"].where(~several, label)
    unset: dict[str, Any] = {
        "layer_index": -1,
        "queue_delay_ns": -1,
        "launch_start_ns": -1,
        "launch_end_ns": -1,
        "launch_key": "",
    }
    return pd.concat([events[single], joined.assign(**unset)], ignore_index=True)


def _make(results: Results, case: Case | None) -> Section | None:
    found = data(results)
    if found is None:
        return None
    window, events = found
    blocks: list[Any] = [
        Drawing(
            "timeline",
            "timeline",
            {"events": events, "length_ns": window.end_ns - window.start_ns},
            f"Shown: {window.title}, the one nearest the median of those measured. "
            if window.iteration_index >= 0
            else "No iteration is known, so the whole capture is shown. ",
        )
    ]
    joined = int(events.loc[events["event_count"].gt(1), "event_count"].sum())
    if joined:
        blocks.append(
            Note(
                f"{units.format_count(joined)} short events are joined into blocks; "
                "“xsp-post export STORE --to perfetto” writes every one.",
                "folded",
            )
        )
    if window.left_out_count:
        blocks.append(
            Note(
                f"{units.format_count(window.left_out_count)} events are on further threads and streams or deeper "
                "ranges, and are not drawn; “xsp-post export STORE --to perfetto” writes every one.",
                "folded",
            )
        )
    return Section(
        "timeline",
        "Timeline of one iteration" if window.iteration_index >= 0 else "Timeline",
        "Which work waits for which?",
        tuple(blocks),
        "Tree",
    )


EXHIBIT = Exhibit(
    "timeline",
    "Timeline of one iteration",
    ("kernels",),
    _make,
    "Record a capture of the GPU: nsys profile --trace=cuda,nvtx …",
)
