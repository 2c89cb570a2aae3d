"""The timeline of one iteration: ranges, launches and streams side by side.

A real iteration is shown, the one nearest the median. Where there are more events than can be drawn, the longest
stay single and the others are joined per lane into blocks that say how many they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import numbered
from xsp_post.base.sentences import sentence
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import units
from xsp_post.reports import pick
from xsp_post.reports.blocks import Block, Drawing, Note
from xsp_post.reports.text import short_kernels, visible, visible_series
from xsp_post.tables.analyses.limits import groups_of

EVENT_LIMIT = 3000  # per kind of lane
BIN_COUNT = 1200
LANE_LIMIT = 12  # threads, launching threads and streams: of each the busiest
DEPTH_LIMIT = 14  # ranges inside ranges

_KERNEL_COLUMNS = [
    "capture_id", "iteration_index", "layer_index", "name", "process_id", "device_id", "stream_id", "start_ns",
    "end_ns", "launch_start_ns", "launch_end_ns", "launch_thread_id", "queue_delay_ns",
]  # fmt: skip
_RANGE_COLUMNS = [
    "capture_id", "iteration_index", "node_id", "parent_id", "depth", "level", "name", "process_id", "thread_id",
    "start_ns", "end_ns", "layer_node_id", "is_inferred",
]  # fmt: skip
_IDLE_COLUMNS = [
    "capture_id", "device_id", "iteration_index", "layer_index", "cause", "call_name", "detail", "start_ns", "end_ns",
]  # fmt: skip
_PATH_COLUMNS = ["capture_id", "iteration_index", "kind", "name", "layer_index", "start_ns", "end_ns"]
# Kinds of the path whose time is not on the way to the device.
_PATH_KINDS = {
    "kernel": "KERNEL", "graph": "KERNEL", "communication": "KERNEL", "memcpy": "MEMORY", "memset": "MEMORY",
    "host": "HOST", "synchronisation": "HOST",
}  # fmt: skip
_MEMORY_COLUMNS = [
    "capture_id", "iteration_index", "kind", "name", "process_id", "device_id", "stream_id", "start_ns", "end_ns",
    "bytes",
]  # fmt: skip

Names = tuple[np.ndarray, np.ndarray]  # names and full names
Texts = Callable[[np.ndarray], Names]  # of some events, by the numbers in their column `text`
# The events of a group of lanes, and how they are called: of many events few are drawn by themselves.
Group = tuple[pd.DataFrame, Texts]


def data(results: Results, limit: int = EVENT_LIMIT) -> tuple[pick.Window, pd.DataFrame] | None:
    """The window and its events: lane, kind, name, full_name, start_ns, end_ns (from the window's start),
    launch_start_ns, launch_end_ns, queue_delay_ns (−1 none), layer_index, event_count (> 1: a joined block)."""
    capture_id = pick.deepest_capture(results)
    iteration = pick.median_iteration(results, capture_id)
    index = -1 if iteration is None else int(iteration["iteration_index"])
    groups = _events(results, capture_id, index)
    if not groups:
        return None
    start = min(int(events["start_ns"].min()) for events, _ in groups.values())
    end = max(int(events["end_ns"].max()) for events, _ in groups.values())
    if iteration is None:
        title = "the whole capture"
    else:
        start = min(start, int(iteration["start_ns"]))
        title = f"iteration {index} ({visible(iteration['phase'], 60)})"
    parts, left_out = [], 0
    for group, (events, texts) in groups.items():  # one after the other: all of them together are large
        is_drawn = _is_drawable(events)
        left_out += int((~is_drawn).sum())
        thin = _thin(events if is_drawn.all() else events[is_drawn], texts, limit, start, end - start)
        parts.append(_from(thin, start).assign(group=group))
    return pick.Window(capture_id, index, start, end, title, left_out), pd.concat(parts, ignore_index=True)


def _from(events: pd.DataFrame, start_ns: int) -> pd.DataFrame:
    """Events with times from the window's start."""
    times = {column: events[column] - start_ns for column in ("start_ns", "end_ns")}
    launches = {
        column: np.where(events[column] >= 0, events[column] - start_ns, -1)
        for column in ("launch_start_ns", "launch_end_ns")
    }
    return events.assign(**times, **launches)


def _select(results: Results, table: str, columns: list[str], capture_id: int, iteration: int) -> pd.DataFrame:
    frame = pick.of_capture(frame_or_empty(results, table, columns), capture_id)
    return (frame[frame["iteration_index"].eq(iteration)] if iteration >= 0 else frame).reset_index(drop=True)


def _events(results: Results, capture_id: int, iteration: int) -> dict[str, Group]:
    """The events of each group of lanes that has any; what all events of a group lack is no column."""
    launches, kernels = _kernels(results, capture_id, iteration)
    groups = {
        "ranges": _ranges(results, capture_id, iteration),
        "launches": launches,
        "streams": _joined(kernels, _memory(results, capture_id, iteration)),
        "idle": _idle(results, capture_id, iteration),
        "path": _path(results, capture_id, iteration),
    }
    return {group: (events, texts) for group, (events, texts) in groups.items() if len(events)}


def _joined(one: Group, other: Group) -> Group:
    """Two groups as one."""
    if one[0].empty or other[0].empty:
        return other if one[0].empty else one
    count = int(one[0]["text"].max()) + 1
    events = pd.concat([_complete(one[0]), _complete(other[0].assign(text=other[0]["text"] + count))])

    def texts(numbers: np.ndarray) -> Names:
        of_one = numbers < count
        names = [np.empty(len(numbers), object) for _ in range(2)]
        for found, mine, theirs in zip(names, one[1](numbers[of_one]), other[1](numbers[~of_one] - count)):
            found[of_one], found[~of_one] = mine, theirs
        return names[0], names[1]

    return events, texts


def _ranges(results: Results, capture_id: int, iteration: int) -> Group:
    nodes = _select(results, "nodes", _RANGE_COLUMNS, capture_id, iteration)
    nodes = nodes[nodes["level"].ne("CAPTURE") & nodes["end_ns"].gt(nodes["start_ns"])].reset_index(drop=True)
    if nodes.empty:
        return nodes, _no_texts
    thread = _worded(nodes, ["process_id", "thread_id"], _thread)
    depth = nodes["depth"] - nodes.groupby(thread["lane_key"].codes)["depth"].transform("min")
    layers = frame_or_empty(results, "layers", ["capture_id", "node_id", "layer_index"])
    layer_of = pick.of_capture(layers, capture_id).drop_duplicates("node_id").set_index("node_id")["layer_index"]
    text, names = pd.factorize(nodes["name"])

    def texts(numbers: np.ndarray) -> Names:
        full = visible_series(pd.Series(names.take(numbers))).to_numpy()
        return full, full

    events = _frame(
        nodes["start_ns"],
        nodes["end_ns"],
        **thread,
        text=text,
        kind=nodes["level"],
        sub=depth,
        layer_index=nodes["layer_node_id"].map(layer_of).fillna(-1).astype("int64"),
        is_inferred=nodes["is_inferred"].astype(bool),
    )
    return events, texts


def _kernels(results: Results, capture_id: int, iteration: int) -> tuple[Group, Group]:
    """Launches, and what they launched."""
    kernels = _select(results, "kernels", _KERNEL_COLUMNS, capture_id, iteration)
    if kernels.empty:
        return (kernels, _no_texts), (kernels, _no_texts)
    text, names = pd.factorize(kernels["name"])
    full = pd.Series(names)
    short = short_kernels(full).to_numpy()

    def texts(numbers: np.ndarray) -> Names:
        return short[numbers], visible_series(full.iloc[numbers]).to_numpy()

    launching = ["process_id", "launch_thread_id"]
    executed = _frame(
        kernels["start_ns"],
        kernels["end_ns"],
        **_worded(kernels, _STREAM, _stream),
        text=text,
        kind="KERNEL",
        layer_index=kernels["layer_index"],
        queue_delay_ns=kernels["queue_delay_ns"],
        launch_start_ns=kernels["launch_start_ns"],
        launch_end_ns=kernels["launch_end_ns"],
        launch_key=_worded(kernels, launching, _thread)["lane_key"],
    )
    launched = kernels["launch_start_ns"].ge(0).to_numpy()
    some = kernels[launched]
    launches = _frame(
        some["launch_start_ns"],
        some["launch_end_ns"],
        **_worded(some, launching, lambda rows: {**(said := _thread(rows)), "lane": "launches of " + said["lane"]}),
        text=text[launched],
        kind="LAUNCH",
        layer_index=some["layer_index"],
    )
    # one graph launch starts many kernels: it is one call
    return (launches.drop_duplicates(["lane_key", "start_ns", "end_ns"]), texts), (executed, texts)


def _memory(results: Results, capture_id: int, iteration: int) -> Group:
    copies = _select(results, "memory_operations", _MEMORY_COLUMNS, capture_id, iteration)
    if copies.empty:
        return copies, _no_texts
    text, first = numbered(copies, ["name", "bytes"])
    distinct = copies[["name", "bytes"]].iloc[first]

    def texts(numbers: np.ndarray) -> Names:
        rows = distinct.iloc[numbers]
        full = (visible_series(rows["name"]) + " · " + rows["bytes"].map(units.format_bytes)).to_numpy(object)
        return full, full

    lanes = _worded(copies, _STREAM, _stream)
    return _frame(copies["start_ns"], copies["end_ns"], **lanes, text=text, kind="MEMORY"), texts


def _idle(results: Results, capture_id: int, iteration: int) -> Group:
    """Why each device waited, as a lane of its own below the streams; the kind names the group of the cause."""

    def words(idle: pd.DataFrame) -> dict[str, pd.Series]:
        lane = "GPU " + idle["device_id"].astype(str) + " waits for"
        return {"lane": lane, "lane_key": lane, "kind": "IDLE-" + groups_of(idle)}

    def texts(numbers: np.ndarray) -> Names:
        rows = distinct.iloc[numbers]
        cause = rows["cause"].astype(str).map(lambda cause: sentence(f"cause.{cause}"))
        call, detail = visible_series(rows["call_name"]), visible_series(rows["detail"])
        full = cause + (" (" + call + ")").where(call.ne(""), "") + (", " + detail).where(detail.ne(""), "")
        return cause.to_numpy(object), full.to_numpy(object)

    idle = _select(results, "idle", _IDLE_COLUMNS, capture_id, iteration)
    if idle.empty:
        return idle, texts
    keys = ["device_id", "cause", "call_name", "detail"]
    text, first = numbered(idle, keys)
    distinct = idle[keys].iloc[first]
    said = _spread(words(distinct), text)
    return _frame(idle["start_ns"], idle["end_ns"], **said, text=text, layer_index=idle["layer_index"]), texts


def _path(results: Results, capture_id: int, iteration: int) -> Group:
    """The critical path, as a lane of its own above the others, where it is known of this execution."""

    def texts(numbers: np.ndarray) -> Names:
        rows, name = distinct.iloc[numbers], short.iloc[numbers]
        word, is_named = rows["kind"].astype(str), rows["name"].astype(str).ne("")
        said = [word + (": " + one).where(is_named, "") for one in (name, visible_series(rows["name"]))]
        return said[0].to_numpy(object), said[1].to_numpy(object)

    path = _select(results, "critical_path", _PATH_COLUMNS, capture_id, iteration)
    path = path[path["end_ns"].gt(path["start_ns"])]
    if path.empty:
        return path, texts
    text, first = numbered(path, ["kind", "name"])
    distinct = path[["kind", "name"]].iloc[first]
    short = short_kernels(distinct["name"])
    kinds = _worded(path, ["kind"], lambda rows: {"kind": "PATH-" + rows["kind"].map(_PATH_KINDS).fillna("LAUNCH")})
    layer = path["layer_index"].fillna(-1).astype("int64")
    return _frame(path["start_ns"], path["end_ns"], lane="critical path", lane_key="path",
                  **kinds, text=text, layer_index=layer), texts  # fmt: skip


def _no_texts(numbers: np.ndarray) -> Names:
    return np.empty(len(numbers), object), np.empty(len(numbers), object)


def _worded(
    rows: pd.DataFrame, columns: list[str], words: Callable[[pd.DataFrame], dict[str, pd.Series]]
) -> dict[str, pd.Categorical]:
    """Texts of rows by the column they are for, made once for all rows that are equal in some columns."""
    number, first = numbered(rows, columns)
    return _spread(words(rows[columns].iloc[first]), number)


def _spread(said: dict[str, pd.Series], number: np.ndarray) -> dict[str, pd.Categorical]:
    """Texts by number, for each row."""
    known = {name: pd.factorize(texts.astype(object)) for name, texts in said.items()}
    return {name: pd.Categorical.from_codes(codes[number], texts) for name, (codes, texts) in known.items()}


def _thread(rows: pd.DataFrame) -> dict[str, pd.Series]:
    process, thread = rows.iloc[:, 0].astype(str), rows.iloc[:, 1].astype(str)
    lane = "thread " + thread
    lane = "process " + process + " · " + lane if process.nunique() > 1 else lane
    return {"lane": lane, "lane_key": process + " / " + thread}


_STREAM = ["process_id", "device_id", "stream_id"]


def _stream(rows: pd.DataFrame) -> dict[str, pd.Series]:
    several = rows["process_id"].nunique() > 1
    gpu = "GPU " + rows["device_id"].astype(str) + " · stream " + rows["stream_id"].astype(str)
    # device −1: operators of the CPU stand in for kernels, and a stream is a thread of them
    stream = gpu.where(rows["device_id"].ge(0), "CPU operators · " + rows["stream_id"].astype(str))
    lane = "process " + rows["process_id"].astype(str) + " · " + stream if several else stream
    return {"lane": lane, "lane_key": lane}


_UNSET: dict[str, Any] = {
    "sub": 0,
    "layer_index": -1,
    "queue_delay_ns": -1,
    "launch_start_ns": -1,
    "launch_end_ns": -1,
    "launch_key": "",
    "is_inferred": False,
}


def _frame(start: pd.Series, end: pd.Series, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"start_ns": start, "end_ns": end, "event_count": 1, **columns}).reset_index(drop=True)


def _complete(events: pd.DataFrame) -> pd.DataFrame:
    """Events with every column that one may have."""
    return events.assign(**{column: value for column, value in _UNSET.items() if column not in events})


def _named(events: pd.DataFrame, texts: Texts) -> pd.DataFrame:
    name, full = texts(events["text"].to_numpy())
    return events.drop(columns="text").assign(name=name, full_name=full)


def _is_drawable(events: pd.DataFrame) -> np.ndarray:
    """Which events of a group are in its busiest lanes, and not below a readable depth. Shape (events,)."""
    lane = pd.factorize(events["lane_key"])[0]
    length = (events["end_ns"] - events["start_ns"]).clip(lower=1)
    rank = length.groupby(lane).sum().rank(ascending=False, method="first").to_numpy()
    is_drawn = rank[lane] <= LANE_LIMIT
    return is_drawn & (events["sub"].to_numpy() < DEPTH_LIMIT) if "sub" in events else is_drawn


def _thin(events: pd.DataFrame, texts: Texts, limit: int, start_ns: int, length_ns: int) -> pd.DataFrame:
    """At most about ``limit`` rows: the longest single, the others joined per lane and bin of time."""
    if len(events) <= limit:
        return _complete(_named(events, texts))
    is_single = _longest((events["end_ns"] - events["start_ns"]).to_numpy(), limit // 2)
    small = events[~is_single]
    lane, first = numbered(small, [key for key in ("lane_key", "sub") if key in small])
    bins = max(min(BIN_COUNT, limit // (2 * len(first))), 20)
    place = (small["start_ns"] - start_ns) * bins // max(length_ns, 1)
    kinds = [key for key in ("kind", "is_inferred") if key in small]
    number, first = numbered(small[kinds].assign(lane=lane, bin=place), ["lane", *kinds, "bin"])
    times = small[["start_ns", "end_ns"]].groupby(number).agg({"start_ns": "min", "end_ns": "max"})
    joined = small.iloc[first].reset_index(drop=True)
    joined = joined.drop(columns=[c for c in _UNSET if c in joined and c not in ("sub", "is_inferred")])
    joined = _named(joined, texts).assign(**times, event_count=np.bincount(number))
    several = joined["event_count"].gt(1)
    label = joined["event_count"].map(units.format_count) + " short " + joined["kind"].str.lower() + " events"
    joined["name"] = joined["name"].where(~several, label)
    joined["full_name"] = joined["full_name"].where(~several, label)
    return pd.concat([_complete(_named(events[is_single], texts)), _complete(joined)], ignore_index=True)


def _longest(length: np.ndarray, count: int) -> np.ndarray:
    """Which are the longest, of equal ones the first. Shape kept."""
    least = np.partition(length, -count)[-count]
    is_long = length > least
    is_long[np.flatnonzero(length == least)[: count - is_long.sum()]] = True
    return is_long


def blocks(results: Results) -> list[Block]:
    """The drawing and what it leaves out; none without an event."""
    of_window = data(results)
    if of_window is None:
        return []
    window, events = of_window
    found: list[Block] = [
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
        found.append(
            Note(
                f"{units.format_count(joined)} short events are joined into blocks; "
                "“xsp-post export STORE --to perfetto” writes every one.",
                "folded",
            )
        )
    if window.left_out_count:
        found.append(
            Note(
                f"{units.format_count(window.left_out_count)} events are on further threads and streams or deeper "
                "ranges, and are not drawn; “xsp-post export STORE --to perfetto” writes every one.",
                "folded",
            )
        )
    return found
