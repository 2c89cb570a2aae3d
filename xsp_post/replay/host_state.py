"""Trace → what a host thread did at any time: its calls, ranges, and other recorded events.

`HostState.pieces` cuts stretches of a thread's time where its state changes, and says of each piece the cause it
would be of a wait, the call, and the innermost range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import Keys, cut, distinct, inside, overlaps
from xsp_post.arrays.intervals import Nesting, nest, union
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.replay.calls import CallClass, are_communication, call_classes

# overheadType of nsys: driver JIT, module loading, lazy function loading
_LOADING_TYPES = (2, 6, 7)
_INTERVAL = ("thread_index", "start_ns", "end_ns")
# Beginnings of the names of overheads that say what the profiler did.
_OVERHEADS = (
    "CUDA profiling data flush", "CUDA profiling initialization", "CUDA profiling", "OS runtime libraries profiling",
    "CUPTI", "dlopen", "TLS allocation", "Chunk Allocation", "Lazy", "Runtime Triggered Module Loading",
    "Module loading", "Instrumentation", "Activity Buffer", "Buffer Flush", "Command Buffer Full", "Overhead",
)  # fmt: skip
LONG_NS = 10_000  # operating-system, scheduler and sample rows are looked at in stretches longer than this


class Cause(IntEnum):
    """Why a device waited (docs/why.md)."""

    LAUNCH_CALL = 0
    LAUNCH_LATENCY = 1
    QUEUED = 2
    SYNCHRONIZATION = 3
    COPY_CALL = 4
    ALLOCATION = 5
    MODULE_LOAD = 6
    OS_CALL = 7
    DESCHEDULED = 8
    HOST_CODE = 9
    COMMUNICATION = 10
    PROFILER_OVERHEAD = 11
    UNKNOWN = 12


_OF_CALL = np.array([Cause.HOST_CODE, Cause.LAUNCH_CALL, Cause.COPY_CALL, Cause.SYNCHRONIZATION, Cause.ALLOCATION,
                     Cause.MODULE_LOAD], np.int8)  # fmt: skip


@dataclass
class Pieces:
    """Stretches of host time with one state each; ``row`` is that of the stretch asked for."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    cause: np.ndarray  # `Cause`
    call: np.ndarray  # text id, −1 none
    node: np.ndarray  # node id of the innermost range, −1 none
    is_bare: np.ndarray  # neither a call nor a range: the thread may have waited for another one


@dataclass
class _Source:
    """Intervals of host threads: what of them overlaps the stretches asked for."""

    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray
    row: np.ndarray  # row in the frame they come from


class HostState:
    """The host threads of one capture. Texts of calls are numbered on behind the trace's strings (`texts`)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.texts: list[str] = []
        self._text_ids: dict[str, int] = {}
        self._thread_count = max(len(tree.trace.threads), 1)
        self.talks = are_communication(map(str, tree.names.folded_names))  # by folded name

    def text_id(self, text: str) -> int:
        """The number of a text that the trace's strings do not hold."""
        if text not in self._text_ids:
            self._text_ids[text] = len(self.tree.strings) + len(self.texts)
            self.texts.append(text)
        return self._text_ids[text]

    def strings(self) -> Strings:
        """The texts that `Pieces.call` numbers."""
        return with_more(self.tree.strings, self.texts)

    def pieces(self, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> Pieces:
        """What the threads did in these stretches, which are disjoint for each thread."""
        if not len(start):
            none = np.zeros(0, np.int64)
            return Pieces(none, none, none, none.astype(np.int8), none, none, none.astype(bool))
        self._since, self._until = int(start.min()), int(end.max())
        keys = Keys(self._since, self._until, self._thread_count)
        order = np.argsort(keys.of(thread, start), kind="stable")
        self._regions = keys.of(thread, start)[order], keys.of(thread, end)[order]
        self._keys = keys
        calls, ranges = self._calls(), self._ranges()
        overhead, os_calls, descheduled, samples = self._rest(thread, start, end)
        points = self._points(calls, ranges, overhead, os_calls, descheduled)
        row, low, high = cut(*self._regions, points)
        row = order[row]
        base = thread[row].astype(np.int64) * keys.stride - keys.low
        at = Stretch(thread[row].astype(np.int64), low - base, high - base)
        return self._label(row, at, calls, ranges, overhead, os_calls, descheduled, samples)

    # -- what there is in the stretches ----------------------------------------------------------

    def _chosen(self, frame: pd.DataFrame, wanted: Callable[[np.ndarray], np.ndarray] | None = None) -> _Source:
        """The intervals of a frame that overlap the stretches."""
        t, s, e = (frame[column].to_numpy() for column in _INTERVAL)
        near = np.flatnonzero((s < self._until) & (e > self._since))  # few, of a long recording
        if wanted is not None:
            near = near[wanted(near)]
        t, s, e = t[near].astype(np.int64), s[near], e[near]
        hit = np.flatnonzero(overlaps(self._keys.of(t, s), self._keys.of(t, e), *self._regions))
        return _Source(t[hit], s[hit], e[hit], near[hit])

    def _calls(self) -> _Source:
        return self._chosen(self.tree.trace.launches)

    def _ranges(self) -> _Source:
        nodes = self.tree.nodes
        kind, thread = nodes["kind"].to_numpy(), nodes["thread_index"].to_numpy()

        def is_range(rows: np.ndarray) -> np.ndarray:
            of = kind[rows]
            return ((of < int(NodeKind.ROOT)) | (of == int(NodeKind.INFERRED))) & (thread[rows] >= 0)

        return self._chosen(nodes, is_range)

    def _rest(
        self, thread: np.ndarray, start: np.ndarray, end: np.ndarray
    ) -> tuple[_Source, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        overhead = self._chosen(self.tree.trace.profiler_overhead)
        empty = pd.DataFrame({column: np.zeros(0, np.int64) for column in _INTERVAL})
        long = end - start > LONG_NS
        rows = self.tree.trace.host_rows
        if rows is None or not long.any():
            return overhead, empty.assign(name=""), empty, empty.assign(name="")
        asked = np.unique(thread[long])
        span = union(start[long], end[long])
        known = rows.os_calls(asked, *span)
        return overhead, known, rows.descheduled(asked, *span), rows.samples(asked, *span)

    def _points(self, calls: _Source, ranges: _Source, overhead: _Source, *frames: pd.DataFrame) -> np.ndarray:
        """Where the state of a thread may change, ascending; only those inside the stretches."""
        edges = [self._keys.of(s.thread, t) for s in (calls, ranges, overhead) for t in (s.start, s.end)]
        for frame in frames:
            of = frame["thread_index"].to_numpy()
            edges += [self._keys.of(of, frame[c].to_numpy()) for c in ("start_ns", "end_ns")]
        return distinct(np.concatenate([edge[inside(edge, *self._regions)] for edge in edges]))

    # -- what a piece is -------------------------------------------------------------------------

    def _label(
        self,
        row: np.ndarray,
        at: Stretch,
        calls: _Source,
        ranges: _Source,
        overhead: _Source,
        os_calls: pd.DataFrame,
        descheduled: pd.DataFrame,
        samples: pd.DataFrame,
    ) -> Pieces:
        count = len(row)
        node = _innermost(ranges, at)
        node = np.where(node >= 0, ranges.row[np.maximum(node, 0)], -1) if len(ranges.row) else node
        cause = np.full(count, int(Cause.HOST_CODE), np.int8)
        call = np.full(count, -1, np.int64)
        found = _frame_innermost(descheduled, at)
        cause[found >= 0] = int(Cause.DESCHEDULED)
        found = _frame_innermost(os_calls, at)
        hit = found >= 0
        cause[hit] = int(Cause.OS_CALL)
        if hit.any():
            call[hit] = self._ids_of(os_calls["name"].to_numpy(object))[found[hit]]
        in_call, name = self._in_call(calls, at)
        is_host = in_call == int(CallClass.OTHER)
        # a launch that took long because the thread lost its processor is explained by that
        takes_over = (name >= 0) & ~((cause == int(Cause.DESCHEDULED)) & (is_host | (in_call == int(CallClass.LAUNCH))))
        cause[takes_over] = _OF_CALL[in_call[takes_over]]
        call[takes_over] = name[takes_over]
        self._paint_overhead(overhead, at, cause, call)
        is_bare = (node < 0) & (name < 0) & np.isin(cause, (int(Cause.HOST_CODE), int(Cause.OS_CALL)))
        self._name_host_code(at, cause, call, samples)
        return Pieces(row, at.start, at.end, cause, call, node, is_bare)

    def _in_call(self, calls: _Source, at: Stretch) -> tuple[np.ndarray, np.ndarray]:
        """Class and name of the call around each piece (name −1: none). A call inside another that says nothing of
        itself counts as the outer one."""
        none = np.zeros(len(at.start), np.int8), np.full(len(at.start), -1, np.int64)
        if not len(calls.row) or self._is_cpu_only():
            return none
        launches = self.tree.trace.launches
        name = launches["name_id"].to_numpy()[calls.row].astype(np.int64)
        kind = call_classes(name, self.tree.strings)
        nesting = nest(calls.thread, calls.start, calls.end)
        found = nesting.innermost(at.thread, at.start, at.end)
        for _ in range(int(nesting.depth.max(initial=0))):
            outer = np.where(found >= 0, nesting.parent[np.maximum(found, 0)], -1)
            climb = (outer >= 0) & (kind[np.maximum(found, 0)] == int(CallClass.OTHER))
            if not climb.any():
                break
            found = np.where(climb, outer, found)
        hit = found >= 0
        return np.where(hit, kind[np.maximum(found, 0)], 0), np.where(hit, name[np.maximum(found, 0)], -1)

    def _is_cpu_only(self) -> bool:
        """Operators of the CPU stand for calls and for kernels at once: they are not calls that one waits in."""
        devices = self.tree.trace.devices
        return bool(len(devices)) and "device_id" in devices and bool((devices["device_id"] < 0).all())

    def _paint_overhead(self, overhead: _Source, at: Stretch, cause: np.ndarray, call: np.ndarray) -> None:
        found = _innermost(overhead, at)
        hit = found >= 0
        if not hit.any():
            return
        frame = self.tree.trace.profiler_overhead
        rows = overhead.row[found[hit]]
        loading = np.isin(frame["overhead_type"].to_numpy()[rows], _LOADING_TYPES)
        cause[hit] = np.where(loading, int(Cause.MODULE_LOAD), int(Cause.PROFILER_OVERHEAD))
        call[hit] = self._overhead_ids()[frame["name_id"].to_numpy()[rows]]

    def _overhead_ids(self) -> np.ndarray:
        """Text id of what kind of overhead each name stands for: the names themselves may hold paths."""
        strings = self.tree.strings
        ids = np.full(len(strings) + 1, -1, np.int64)  # the last one: no name
        for name in np.unique(self.tree.trace.profiler_overhead["name_id"].to_numpy()).tolist():
            if name >= 0:
                text = str(strings[name])
                ids[name] = self.text_id(next((kind for kind in _OVERHEADS if text.startswith(kind)), "profiler"))
        return ids

    def _name_host_code(self, at: Stretch, cause: np.ndarray, call: np.ndarray, samples: pd.DataFrame) -> None:
        """Long pieces of host code get the frame in which most of them was spent, where frames are known."""
        wanted = np.flatnonzero((cause == int(Cause.HOST_CODE)) & (call < 0) & (at.end - at.start > LONG_NS))
        if not len(wanted):
            return
        call[wanted] = self._python_frame(Stretch(at.thread[wanted], at.start[wanted], at.end[wanted]))
        if not len(samples):
            return
        of, when = samples["thread_index"].to_numpy(), samples["start_ns"].to_numpy()
        first = self._keys.of(at.thread[wanted], at.start[wanted])
        order = np.argsort(first)
        position = np.searchsorted(first[order], self._keys.of(of, when), side="right") - 1
        piece = wanted[order[np.maximum(position, 0)]]
        hit = (position >= 0) & (at.thread[piece] == of) & (at.end[piece] > when)
        if hit.any():
            names = self._ids_of(samples["name"].to_numpy(object))[hit]
            seen = pd.DataFrame({"piece": piece[hit], "name": names}).value_counts(sort=True).reset_index()
            most = seen.drop_duplicates("piece")
            call[most["piece"].to_numpy()] = most["name"].to_numpy()

    def _python_frame(self, at: Stretch) -> np.ndarray:
        """Text id of the innermost Python frame that fills at least half of each piece, −1 none."""
        frame = self.tree.trace.python_frames
        result = np.full(len(at.start), -1, np.int64)
        if not len(frame):
            return result
        near = self._chosen(frame)
        nesting = nest(near.thread, near.start, near.end)
        middle = (at.start + at.end) // 2  # what fills half of a piece holds its middle
        found = nesting.innermost(at.thread, middle, middle)
        for _ in range(int(nesting.depth.max(initial=-1)) + 1):
            rows = np.maximum(found, 0)
            share = np.minimum(near.end[rows], at.end) - np.maximum(near.start[rows], at.start)
            short = (found >= 0) & (2 * share < at.end - at.start)
            if not short.any():
                break
            found[short] = nesting.parent[found[short]]
        hit = found >= 0
        result[hit] = frame["name_id"].to_numpy()[near.row[found[hit]]]
        return result

    def _ids_of(self, names: np.ndarray) -> np.ndarray:
        codes, used = pd.factorize(names)
        ids = np.array([*(self.text_id(str(text)) if text else -1 for text in used), -1], np.int64)
        return ids[codes]


@dataclass
class Stretch:
    """Pieces of host time."""

    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray


def _innermost(source: _Source, at: Stretch) -> np.ndarray:
    """Position in ``source`` of the shortest interval around each piece, −1 for none."""
    if not len(source.row):
        return np.full(len(at.start), -1, np.int64)
    nesting: Nesting = nest(source.thread, source.start, source.end)
    return nesting.innermost(at.thread, at.start, at.end)


def _frame_innermost(frame: pd.DataFrame, at: Stretch) -> np.ndarray:
    thread, start, end = (frame[column].to_numpy().astype(np.int64) for column in _INTERVAL)
    return _innermost(_Source(thread, start, end, np.arange(len(frame))), at)
