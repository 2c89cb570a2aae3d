"""Results → files: one capture as tracks and slices, which the Perfetto and Chrome writers then encode."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import nest
from xsp_post.base.findings import Finding
from xsp_post.exporters.base import Selection, select
from xsp_post.model.results import Results, of_captures

# Category codes of slices; a range's category is its level, in lower case.
CATEGORIES = (
    "kernel", "memory", "launch", "capture", "application", "model", "module", "layer", "operation", "library", "path",
)  # fmt: skip
KERNEL, MEMORY, LAUNCH = 0, 1, 2
FIRST_RANGE = 3
PATH = CATEGORIES.index("path")  # an interval of the critical path


class Timeline(NamedTuple):
    """Tracks and slices of one capture.

    tracks  one row each: kind (ranges, launches, stream), process_id, thread_id (−1 for streams), device_id,
            stream_id (−1 for threads), lane (0; more where slices overlap without nesting)
    slices  track, name_id, category i32, start_ns, end_ns, correlation_id i64 (−1), detail_id i32 (name of the
            layer, −1), flow_first i64 and flow_count i32: the flow numbers that start here (launches: one per
            device operation) or end here (device operations); sorted by track, start, longest first
    names   texts, by name_id
    memory  live bytes after each allocation or release: process_id, device_id (−1 host), memory_kind, start_ns,
            total_bytes, reserved_bytes (−1 not recorded)
    """

    tracks: pd.DataFrame
    slices: pd.DataFrame
    names: list[str]
    capture: dict[str, object]
    findings: list[Finding]
    memory: pd.DataFrame

    def track_rows(self) -> Iterable[Any]:
        """The tracks one by one, for writers that say something about each."""
        return self.tracks.itertuples(index=False)

    def counts(self) -> dict[str, int]:
        """Slices by what they are."""
        category = self.slices["category"].to_numpy()
        return {
            "ranges": int(((category >= FIRST_RANGE) & (category != PATH)).sum()),
            "launches": int((category == LAUNCH).sum()),
            "kernels": int((category == KERNEL).sum()),
            "memory operations": int((category == MEMORY).sum()),
        }


def build_timeline(results: Results, **part: Any) -> Timeline:
    """Ranges per thread, launches per thread, device operations per stream. Raises UsageError (no such capture)."""
    operation = (
        "name", "process_id", "device_id", "stream_id", "correlation_id", "launch_start_ns", "launch_end_ns",
        "launch_thread_id",
    )  # fmt: skip
    selection = select(
        results, **part, nodes=("name", "level", "process_id", "thread_id"),
        kernels=(*operation, "short_name", "layer_node_id", "source_line"), memory_operations=operation,
        memory_timeline=_MEMORY,
    )  # fmt: skip
    names = _Names()
    ranges = _range_slices(selection, names)
    launches, operations = _split_launches(_operation_slices(selection, names))
    # negative times exist in captures and neither format can hold them
    path = _path_slices(results, selection, names)
    slices = pd.concat(
        [part for part in (ranges, launches, operations, path) if len(part)] or [ranges], ignore_index=True
    )
    memory = selection.memory_timeline[[*_MEMORY]]
    low = min((int(frame["start_ns"].min()) for frame in (slices, memory) if len(frame)), default=0)
    if low < 0:
        slices["start_ns"] -= low
        slices["end_ns"] -= low
        memory = memory.assign(start_ns=memory["start_ns"] - low)
    slices["end_ns"] = np.maximum(slices["end_ns"].to_numpy(), slices["start_ns"].to_numpy())
    tracks, slices = _on_tracks(slices)
    return Timeline(tracks, slices, names.texts, selection.capture, selection.findings, memory)


class _Names:
    """Texts numbered as they come."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._number)

    def of(self, column: pd.Series, prefix: str = "") -> np.ndarray:
        """Numbers of a text column's values."""
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes, values = column.cat.codes.to_numpy(), column.cat.categories.to_numpy()
        else:
            codes, values = pd.factorize(column.to_numpy(dtype=object))
        numbers = np.full(len(values) + 1, -1, np.int32)
        for code in np.unique(codes[codes >= 0]).tolist():
            text = prefix + str(values[code]).encode("utf-8", "replace").decode("utf-8")
            numbers[code] = self._number.setdefault(text, len(self._number))
        return numbers[codes]


_SLICE = (
    "kind", "process_id", "thread_id", "device_id", "stream_id", "name_id", "category", "start_ns", "end_ns",
    "correlation_id", "detail_id", "flow_first", "flow_count",
)  # fmt: skip
_MEMORY = ("process_id", "device_id", "memory_kind", "start_ns", "total_bytes", "reserved_bytes")
_COPIED = ("process_id", "device_id", "stream_id", "correlation_id", "start_ns", "end_ns")
KINDS = ("ranges", "launches", "stream", "critical path")


def _slices(frame: pd.DataFrame, copied: tuple[str, ...], **columns: object) -> pd.DataFrame:
    """A slice per row: columns of the frame that are copied, others, and −1 for what is in neither."""
    blank: dict[str, object] = {name: np.int64(-1) for name in _SLICE}
    blank["flow_count"] = np.int64(0)
    blank |= {name: frame[name].to_numpy() for name in copied}
    return pd.DataFrame({**blank, **columns}, index=pd.RangeIndex(len(frame)))[list(_SLICE)]


def _range_slices(selection: Selection, names: _Names) -> pd.DataFrame:
    ranges = selection.ranges
    level = ranges["level"].astype(str).str.lower()
    code = {name: i for i, name in enumerate(CATEGORIES)}
    category = level.map(code).fillna(code["application"]).to_numpy(dtype=np.int64)
    copied = ("process_id", "thread_id", "start_ns", "end_ns")
    return _slices(ranges, copied, kind=0, name_id=names.of(ranges["name"]), category=category)


def _path_slices(results: Results, selection: Selection, names: _Names) -> pd.DataFrame:
    """The critical path, a track of its own; none where the store holds none."""
    columns = ["kind", "name", "start_ns", "end_ns"]
    path = of_captures(results, "critical_path", int(selection.capture["capture_id"]), columns)
    name, kind = path["name"].astype(str), path["kind"].astype(str)
    text = np.where(name == "", kind, kind + ": " + name)
    name_id = names.of(pd.Series(text, dtype=object))
    return _slices(path, ("start_ns", "end_ns"), kind=3, category=PATH, name_id=name_id)


def _operation_slices(selection: Selection, names: _Names) -> pd.DataFrame:
    """Kernels, copies and sets in order of their launches; those with a launch get a flow number from 1.
    ``thread_id`` is the launching thread still, and columns ``launch_…`` describe the launch."""
    kernels, copies = selection.kernels, selection.memory_operations
    layer = _layer_names(selection, names)
    frame = pd.concat(
        [_device_slices(kernels, KERNEL, names, layer), _device_slices(copies, MEMORY, names, None)], ignore_index=True
    )
    frame = frame.sort_values(
        ["process_id", "thread_id", "launch_start_ns", "correlation_id"], kind="stable", ignore_index=True
    )
    launched = frame["launch_start_ns"].to_numpy() >= 0
    launched &= frame["thread_id"].to_numpy() >= 0
    frame["flow_first"] = np.where(launched, np.cumsum(launched), -1)
    frame["flow_count"] = launched.astype(np.int64)
    return frame


def _device_slices(frame: pd.DataFrame, category: int, names: _Names, layer: np.ndarray | None) -> pd.DataFrame:
    detail = layer if layer is not None else -1
    slices = _slices(frame, _COPIED, kind=2, category=category, name_id=names.of(frame["name"]), detail_id=detail)
    short = frame["short_name"] if "short_name" in frame else frame["name"]
    return slices.assign(
        thread_id=frame["launch_thread_id"].to_numpy(), launch_start_ns=frame["launch_start_ns"].to_numpy(),
        launch_end_ns=frame["launch_end_ns"].to_numpy(), launch_name_id=names.of(short, "launch "),
    )  # fmt: skip


def _layer_names(selection: Selection, names: _Names) -> np.ndarray:
    """Name of the layer node each kernel counts for, and its source line where that is known; −1 none."""
    nodes = selection.nodes
    position = pd.Index(nodes["node_id"]).get_indexer(selection.kernels["layer_node_id"])
    layer = np.append(names.of(nodes["name"]), -1)[position]
    lines = selection.kernels["source_line"].astype(str).to_numpy()
    rows = np.flatnonzero((layer >= 0) & (lines != ""))
    texts = np.array(names.texts, object)[layer[rows]] + " · " + lines[rows]
    layer[rows] = names.of(pd.Series(texts, dtype=object))
    return layer


def _split_launches(operations: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One slice per launching call, and the operations without what is said of their launch.

    ``operations`` are in launch order, so those of one call are neighbours.
    """
    launched = operations[operations["flow_count"] > 0]
    key = launched[["process_id", "thread_id", "launch_start_ns", "correlation_id"]].to_numpy()
    first = np.flatnonzero(np.append(True, (key[1:] != key[:-1]).any(axis=1))) if len(key) else np.zeros(0, np.int64)
    rows = launched.iloc[first]
    copied = ("process_id", "thread_id", "correlation_id", "flow_first")
    launches = _slices(
        rows, copied, kind=1, category=LAUNCH, name_id=rows["launch_name_id"].to_numpy(),
        start_ns=rows["launch_start_ns"].to_numpy(), end_ns=rows["launch_end_ns"].to_numpy(),
        flow_count=np.diff(np.append(first, len(launched))),
    )  # fmt: skip
    return launches, operations.assign(thread_id=np.int64(-1))[list(_SLICE)]


def _on_tracks(slices: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Track numbers for slices; a track whose slices overlap without nesting gets lanes."""
    key = ["kind", "process_id", "thread_id", "device_id", "stream_id"]
    group = slices.groupby(key, sort=True).ngroup().to_numpy().astype(np.int64)
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    lane = lanes(group, start, end)
    wide = group * (int(lane.max(initial=0)) + 1) + lane
    _, representative, track = np.unique(wide, return_index=True, return_inverse=True)
    tracks = slices[key].iloc[representative].reset_index(drop=True)
    tracks["lane"] = lane[representative]
    order = np.lexsort((-end, start, track))
    slices = slices.drop(columns=key).assign(track=track.reshape(-1)).iloc[order].reset_index(drop=True)
    tracks["kind"] = np.array(KINDS, dtype=object)[tracks["kind"].to_numpy()]
    return tracks, slices


def lanes(track: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Lane of each slice: 0 where the slices of its track nest, else the first lane on which it nests.

    Shapes (slices,). Only tracks with crossing slices are walked slice by slice.
    """
    lane = np.zeros(len(track), np.int64)
    if not len(track) or nest(track, start, end).crossing_count == 0:
        return lane
    order = np.argsort(track, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(track[order])) + 1):
        if nest(np.zeros(len(rows), np.int64), start[rows], end[rows]).crossing_count == 0:
            continue
        inside = rows[np.lexsort((-end[rows], start[rows]))]
        open_ends: list[list[int]] = []  # per lane, ends of the slices still open, outermost first
        for row, s, e in zip(inside.tolist(), start[inside].tolist(), end[inside].tolist()):
            lane[row] = _first_fit(open_ends, s, e)
    return lane


def _first_fit(open_ends: list[list[int]], start: int, end: int) -> int:
    for number, stack in enumerate(open_ends):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or stack[-1] >= end:
            stack.append(end)
            return number
    open_ends.append([end])
    return len(open_ends) - 1
