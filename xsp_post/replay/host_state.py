"""Trace → what a host thread did at any time: its calls, ranges, and other recorded events.

`HostState.watch` merges what was recorded of some threads into one line of times at which their state changes, and
nests calls and ranges once. `HostState.pieces` cuts stretches of these threads' time along it, and says of each piece
the cause it would be of a wait, the call, and the innermost range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import Keys, cut, distinct, overlaps, runs
from xsp_post.arrays.intervals import Nesting, nest, union
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.model.kinds import LOADING_TYPES
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.names.patterns import found_in
from xsp_post.replay.calls import (
    LONG_HOST_NS,
    PATTERNS,
    TIMER,
    CallClass,
    are_communication,
    are_compilation,
    call_classes,
    system_class,
)
from xsp_post.replay.others import AtWork, innermost_stretches, who_worked
from xsp_post.replay.waits import polls

_INTERVAL = ("thread_index", "start_ns", "end_ns")
_LATEST = np.iinfo(np.int64).max
_FEW = 4  # intervals a stretch: to look for those that overlap one costs more than it saves
_STRETCH = 1 << 16  # intervals looked through together
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
    THREAD_WAIT = 13
    SLEEP = 14
    INPUT_OUTPUT = 15
    PAGE_MIGRATION = 16
    GRAPH_LAUNCH = 17
    FIRST_LAUNCH = 18
    NOT_RECORDED = 19
    DEVICE_WAIT = 20


_OF_CALL = np.array([Cause.HOST_CODE, Cause.LAUNCH_CALL, Cause.COPY_CALL, Cause.SYNCHRONIZATION, Cause.ALLOCATION,
                     Cause.MODULE_LOAD], np.int8)  # fmt: skip
# By `calls.system_class`, −1 last.
_OF_SYSTEM = np.array([Cause.SLEEP, Cause.THREAD_WAIT, Cause.INPUT_OUTPUT, Cause.OS_CALL], np.int8)
_LEAST_TIMES = 5  # equal lengths that are no accident
# What a thread without a call or a range of its own does while it waits for another one.
WAITING = (Cause.HOST_CODE, Cause.OS_CALL, Cause.THREAD_WAIT, Cause.SLEEP, Cause.INPUT_OUTPUT)
# What a thread does that has code compiled, by itself or by other processes, and one that waits for other ranks.
_IN_COMPILATION = (*WAITING, Cause.DESCHEDULED)
_IN_COMMUNICATION = (*_IN_COMPILATION, Cause.SYNCHRONIZATION)


@dataclass
class Pieces:
    """Stretches of host time with one state each; ``row`` is that of the stretch asked for."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    cause: np.ndarray  # `Cause`
    call: np.ndarray  # text id, −1 none
    node: np.ndarray  # node id of the innermost range, −1 none
    detail: np.ndarray  # text id of what was waited for, −1 none
    is_bare: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # neither a call nor a range was recorded:
    # the thread may have waited for another one

    def some(self, kept: np.ndarray) -> Pieces:
        """Those that are kept (bool)."""
        return Pieces(*(values[kept] for values in vars(self).values()))


@dataclass
class Stretch:
    """Pieces of host time."""

    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass
class _Source(Stretch):
    """Intervals of the watched threads, in any order; the last entry of ``row`` stands for none."""

    row: np.ndarray  # row in the frame they come from, and −1

    @cached_property
    def nesting(self) -> Nesting:
        return nest(self.thread, self.start, self.end)

    def innermost(self, at: Stretch) -> np.ndarray:
        """Position of the shortest interval around each piece, −1 for none."""
        if len(self.row) == 1:
            return np.full(len(at.start), -1, np.int32)
        return self.nesting.innermost(at.thread, at.start, at.end)


class _Watched:
    """What was recorded of the watched threads in the time that will be asked about."""

    calls: _Source
    call_names: np.ndarray  # of each call the text id, −1 none; as below, the last entry stands for no call
    call_causes: np.ndarray  # `Cause`
    call_yields: np.ndarray  # whether it yields to the loss of the processor, which explains a wait better
    ranges: _Source
    overhead: _Source
    os_calls: _Source
    os_names: np.ndarray  # text ids, −1 last
    os_causes: np.ndarray  # `Cause`
    descheduled: _Source
    lost_causes: np.ndarray  # `Cause` of each time without a processor
    is_timer: np.ndarray  # of each: as long as most others
    python: _Source
    inside: list[tuple[Cause, _Source]]  # ranges that say what a thread waits for in them
    samples: tuple[np.ndarray, np.ndarray]  # keys of thread and time, ascending; text id of each sample's frame
    edges: np.ndarray  # keys of thread and time at which any state changes, ascending


def _is_range(kind: np.ndarray) -> np.ndarray:
    """Which kinds of nodes are ranges, recorded or inferred."""
    return (kind < int(NodeKind.ROOT)) | (kind == int(NodeKind.INFERRED))


def _equal_lengths(lost: _Source) -> np.ndarray:
    """Which times without a processor are as long as half of the long ones of their thread, to a twentieth."""
    length = lost.end - lost.start
    long = length >= LONG_HOST_NS
    of_long = pd.Series(np.where(long, length, np.nan)).groupby(lost.thread)
    middle = of_long.transform("median").to_numpy()
    near = long & (np.abs(length - middle) <= middle / 20)
    share = pd.Series(np.where(long, near, np.nan)).groupby(lost.thread).transform("mean").to_numpy()
    return near & (share >= 0.5) & (of_long.transform("count").to_numpy() >= _LEAST_TIMES)


class HostState:
    """The host threads of one capture. Texts of calls are numbered on behind the trace's strings (`texts`)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.texts: list[str] = []
        self._text_ids: dict[str, int] = {}
        self._stretches: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # by kind of intervals: first start, last end
        self._thread_count = max(len(tree.trace.threads), 1)

    def text_id(self, text: str) -> int:
        """The number of a text that the trace's strings do not hold."""
        if text not in self._text_ids:
            self._text_ids[text] = len(self.tree.strings) + len(self.texts)
            self.texts.append(text)
        return self._text_ids[text]

    def strings(self) -> Strings:
        """The texts that `Pieces.call` numbers."""
        return with_more(self.tree.strings, self.texts)

    def watch(self, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Get ready for questions about these stretches, which may overlap."""
        is_watched = np.zeros(self._thread_count, bool)
        is_watched[thread] = True
        self._is_watched, self._number = is_watched, np.cumsum(is_watched, dtype=np.int32) - 1
        self._since, self._until = int(start.min(initial=_LATEST)), int(end.max(initial=-_LATEST))
        self._keys = keys = Keys(self._since, self._until, int(is_watched.sum()))
        low = keys.of(self._number[thread], start)
        order = np.argsort(low, kind="stable")
        self._regions = union(low[order], keys.of(self._number[thread], end)[order])
        seen = self._watched = _Watched()
        self._take_calls()
        seen.ranges = self._ranges()
        seen.overhead, seen.python = (
            self._chosen(frame) for frame in (self.tree.trace.profiler_overhead, self.tree.trace.python_frames)
        )
        seen.inside = [(cause, self._chosen(frame)) for cause, frame in self._telling]
        self._take_rest(thread, start, end)
        sources = (seen.calls, seen.ranges, seen.overhead, seen.os_calls, seen.descheduled,
                   *(one for _, one in seen.inside))  # fmt: skip
        edges = [keys.of(one.thread, times) for one in sources for times in (one.start, one.end)]
        seen.edges = distinct(np.concatenate(edges))

    def pieces(self, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> Pieces:
        """What the threads did in these stretches, all of which are watched."""
        keys, thread = self._keys, self._number[thread]
        row, low, high = cut(keys.of(thread, start), keys.of(thread, end), self._watched.edges)
        of = thread[row]
        at = Stretch(of, keys.time(of, low), keys.time(of, high))
        return Pieces(row, at.start, at.end, *self._states(at))

    # -- what there is in the watched time -------------------------------------------------------

    def _chosen(
        self, frame: pd.DataFrame, wanted: Callable[[np.ndarray], np.ndarray] | None = None, of: str = ""
    ) -> _Source:
        """The intervals of a frame that overlap the watched time, of which ``wanted`` says that they count."""
        t, s, e = (frame[column].to_numpy() for column in _INTERVAL)
        near = self._near(s, e, of)
        near = near[self._is_watched[t[near]] & (t[near] >= 0)]
        if wanted is not None:
            near = near[wanted(near)]
        t, s, e = self._number[t[near]], s[near], e[near]
        if len(near) > _FEW * len(self._regions[0]):
            hit = np.flatnonzero(overlaps(self._keys.of(t, s), self._keys.of(t, e), *self._regions))
            t, s, e, near = t[hit], s[hit], e[hit], near[hit]
        return _Source(t, s, e, np.append(near.astype(np.int32), np.int32(-1)))

    def _near(self, start: np.ndarray, end: np.ndarray, of: str) -> np.ndarray:
        """The intervals that share time with what is watched: few, of a long recording. Of those that are asked for
        again (``of``: their name) only stretches are looked through that hold some."""
        if not of:
            return np.flatnonzero((start < self._until) & (end > self._since))
        if of not in self._stretches:
            begins = np.arange(0, len(start), _STRETCH)
            self._stretches[of] = np.minimum.reduceat(start, begins), np.maximum.reduceat(end, begins)
        first, last = self._stretches[of]
        rows = [np.zeros(0, np.int64)]
        for low in (np.flatnonzero((first < self._until) & (last > self._since)) * _STRETCH).tolist():
            some = slice(low, low + _STRETCH)
            rows.append(low + self._near(start[some], end[some], ""))
        return np.concatenate(rows)

    def _take_calls(self) -> None:
        """A call inside another that says nothing of itself counts as the outer one."""
        launches = self.tree.trace.launches
        source = self._chosen(launches.iloc[:0] if self._is_cpu_only() else launches, of="calls")
        name = np.append(launches["name_id"].to_numpy()[source.row[:-1]], np.int32(-1))
        kind = call_classes(name[:-1].astype(np.int64), self.tree.strings)
        kind[np.isin(source.row[:-1], polls(self.tree.trace)[2])] = int(CallClass.SYNCHRONIZATION)
        parent = source.nesting.parent
        counts = np.arange(len(kind) + 1)
        inner = np.flatnonzero((parent >= 0) & (kind == int(CallClass.OTHER)))
        while len(inner):  # as often as calls are nested
            counts[inner] = parent[counts[inner]]
            inner = inner[(parent[counts[inner]] >= 0) & (kind[counts[inner]] == int(CallClass.OTHER))]
        kind, name = np.append(kind, np.int8(CallClass.OTHER))[counts], name[counts]
        yields = (kind == int(CallClass.OTHER)) | (kind == int(CallClass.LAUNCH))
        seen = self._watched
        seen.calls, seen.call_names, seen.call_causes, seen.call_yields = source, name, _OF_CALL[kind], yields

    def _ranges(self) -> _Source:
        nodes = self.tree.nodes
        kind, thread = nodes["kind"].to_numpy(), nodes["thread_index"].to_numpy()

        return self._chosen(nodes, lambda rows: _is_range(kind[rows]) & (thread[rows] >= 0), of="ranges")

    @cached_property
    def _telling(self) -> list[tuple[Cause, pd.DataFrame]]:
        """The ranges and frames in which code is compiled, and ranges in which ranks talk, by what their names say."""
        nodes, frames, columns = self.tree.nodes, self.tree.trace.python_frames, list(_INTERVAL)
        folded, is_range = nodes["folded_id"].to_numpy(), _is_range(nodes["kind"].to_numpy())
        texts = list(map(str, self.tree.names.folded_names))
        compile_, talk = (
            nodes[is_range & told(texts)[folded]][columns] for told in (are_compilation, are_communication)
        )
        codes, used = pd.factorize(frames["name_id"].to_numpy())
        of_frame = are_compilation([str(self.tree.strings[one]) if one >= 0 else "" for one in used.tolist()])[codes]
        compile_ = pd.concat([compile_, frames[of_frame][columns]], ignore_index=True)
        return [(Cause.MODULE_LOAD, compile_), (Cause.COMMUNICATION, talk)]

    def _take_rest(self, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Calls of the operating system, time without a processor, and samples around the long stretches."""
        seen, rows = self._watched, self.tree.trace.host_rows
        long = np.flatnonzero(end - start > LONG_NS)
        known = samples = descheduled = pd.DataFrame({name: np.zeros(0, np.int64) for name in (*_INTERVAL, "name")})
        if rows is not None and len(long):
            asked = np.unique(thread[long])
            order = np.argsort(start[long], kind="stable")
            span = union(start[long][order], end[long][order])
            known, descheduled, samples = (one(asked, *span) for one in (rows.os_calls, rows.descheduled, rows.samples))
        seen.os_calls, seen.descheduled = (self._chosen(frame) for frame in (known, descheduled))
        names = known["name"].to_numpy(object)
        seen.os_names = np.append(self._ids_of(names)[seen.os_calls.row[:-1]], -1)
        codes, used = pd.factorize(names)
        seen.os_causes = _OF_SYSTEM[np.array([*map(system_class, used), -1])[codes]][seen.os_calls.row[:-1]]
        lost = seen.descheduled.row[:-1]
        is_rival = descheduled["is_rival"].to_numpy(bool)[lost] if "is_rival" in descheduled else np.zeros(0, bool)
        seen.lost_causes = np.where(is_rival, Cause.DESCHEDULED, Cause.SLEEP).astype(np.int8)
        seen.is_timer = ~is_rival & _equal_lengths(seen.descheduled)
        of = samples["thread_index"].to_numpy()
        mine = np.flatnonzero((of >= 0) & self._is_watched[of])
        when = self._keys.of(self._number[of[mine]], samples["start_ns"].to_numpy()[mine])
        order = np.argsort(when, kind="stable")
        seen.samples = when[order], self._ids_of(samples["name"].to_numpy(object))[mine[order]]

    # -- the state of a piece --------------------------------------------------------------------

    def _states(self, at: Stretch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Cause, call, node, detail and is_bare of pieces in which none changes (`Pieces`)."""
        seen = self._watched
        node = seen.ranges.row[seen.ranges.innermost(at)]
        of_call = seen.calls.innermost(at)
        cause, call = seen.call_causes[of_call], seen.call_names[of_call]
        is_bare, detail = (node < 0) & (call < 0), np.full(len(node), -1, np.int32)
        if len(seen.os_calls.start) or len(seen.descheduled.start):
            self._ask_system(at, cause, call, seen.call_yields[of_call], detail)
            self._ask_others(at, cause, detail)
        self._paint_overhead(at, cause, call)
        bare = np.flatnonzero(is_bare)
        is_bare[bare] = np.isin(cause[bare], [int(one) for one in WAITING])
        self._name_host_code(at, cause, call)
        for told, around in seen.inside:
            waits = _IN_COMMUNICATION if told == Cause.COMMUNICATION else _IN_COMPILATION
            is_told = (around.innermost(at) >= 0) & np.isin(cause, [int(one) for one in waits])
            cause[is_told & ((detail < 0) | (told == Cause.COMMUNICATION))] = int(told)
        return cause, call, node, detail, is_bare

    def _ask_system(
        self, at: Stretch, cause: np.ndarray, call: np.ndarray, yields: np.ndarray, detail: np.ndarray
    ) -> None:
        """What the operating system knows of pieces outside API calls; a call that ``yields`` and took long because the
        thread lost its processor is explained by that, too. It lacked a processor where another thread had it; else it
        slept or waited."""
        seen, is_free = self._watched, call < 0
        in_system = seen.os_calls.innermost(at)
        gone = seen.descheduled.innermost(at)
        lost = (gone >= 0) & (in_system < 0) & (is_free | yields)
        cause[lost], call[lost] = seen.lost_causes[gone[lost]], -1
        timed = np.flatnonzero(lost)[seen.is_timer[gone[lost]]]
        detail[timed] = self.text_id(TIMER) if len(timed) else -1
        known = np.flatnonzero(is_free & (in_system >= 0))
        cause[known], call[known] = seen.os_causes[in_system[known]], seen.os_names[in_system[known]]

    def _ask_others(self, at: Stretch, cause: np.ndarray, detail: np.ndarray) -> None:
        """For whom a thread waited: other threads and processes that were at work in half of the time or more."""
        rows = np.flatnonzero(np.isin(cause, (int(Cause.THREAD_WAIT), int(Cause.SLEEP))))
        rows = rows[np.lexsort((at.start[rows], at.thread[rows]))]
        follows = (at.thread[rows][1:] == at.thread[rows][:-1]) & (at.start[rows][1:] == at.end[rows][:-1])
        first = np.flatnonzero(np.append(True, ~follows)[: len(rows)])  # a wait is one, whatever it was cut at
        start, end = at.start[rows[first]], at.end[rows[np.append(first[1:], len(rows)) - 1]] if len(rows) else first
        is_long = end - start >= LONG_HOST_NS
        if not is_long.any():
            return
        length = np.diff(np.append(first, len(rows)))
        thread = np.flatnonzero(self._is_watched)[at.thread[rows[first[is_long]]]]
        rows, which = rows[np.repeat(is_long, length)], np.repeat(np.arange(is_long.sum()), length[is_long])
        start, end = start[is_long], end[is_long]
        order = np.argsort(start, kind="stable")
        found, text, count = who_worked(self._work_beside(*union(start[order], end[order])), thread, start, end)
        found, text, count = found[which], text[which], count[which]
        cause[rows[found]] = int(Cause.THREAD_WAIT)
        for one in np.unique(text[found]).tolist():  # different texts
            mine = found & (text == one)
            number = int(count[mine].max())
            said = f"{self.strings()[one]}{f' of {number} threads' if number > 1 else ''}"
            detail[rows[mine]] = self.text_id(said)

    def _work_beside(self, start: np.ndarray, end: np.ndarray) -> AtWork:
        """The ranges and long calls of all threads that overlap these stretches."""
        nodes, launches = self.tree.nodes, self.tree.trace.launches
        frames = []
        for frame, names in ((nodes, "folded_id"), (launches, "name_id")):
            t, s, e = (frame[column].to_numpy() for column in _INTERVAL)
            near = (t >= 0) & overlaps(s, e, start, end)
            near &= _is_range(nodes["kind"].to_numpy()) if frame is nodes else e - s >= LONG_NS
            rows, text = np.flatnonzero(near), frame[names].to_numpy()[near].astype(np.int64)
            if frame is nodes:
                codes, used = pd.factorize(text)
                folded = self.tree.names.folded_names
                text = np.array([self.text_id(str(folded[one])) for one in used.tolist()], np.int64)[codes]
            frames.append((t[rows], s[rows], e[rows], text))
        return innermost_stretches(*(np.concatenate(columns) for columns in zip(*frames)))

    def _is_cpu_only(self) -> bool:
        """Operators of the CPU stand for calls and for kernels at once: they are not calls that one waits in."""
        devices = self.tree.trace.devices
        return bool(len(devices)) and "device_id" in devices and bool((devices["device_id"] < 0).all())

    def _paint_overhead(self, at: Stretch, cause: np.ndarray, call: np.ndarray) -> None:
        overhead = self._watched.overhead
        found = overhead.innermost(at)
        hit = found >= 0
        if not hit.any():
            return
        frame = self.tree.trace.profiler_overhead
        rows = overhead.row[found[hit]]
        loading = np.isin(frame["overhead_type"].to_numpy()[rows], LOADING_TYPES)
        cause[hit] = np.where(loading, int(Cause.MODULE_LOAD), int(Cause.PROFILER_OVERHEAD))
        call[hit] = self._overhead_ids()[frame["name_id"].to_numpy()[rows]]

    def _overhead_ids(self) -> np.ndarray:
        """Text id of what kind of overhead each name stands for: the names themselves may hold paths."""
        strings = self.tree.strings
        ids = np.full(len(strings) + 1, -1, np.int64)  # the last one: no name
        for name in np.unique(self.tree.trace.profiler_overhead["name_id"].to_numpy()).tolist():
            if name >= 0:
                said = re.match(PATTERNS["overhead"], str(strings[name]))
                ids[name] = self.text_id(said[0] if said else "profiler")
        return ids

    # -- host code, by the frame it was spent in -------------------------------------------------

    def _name_host_code(self, at: Stretch, cause: np.ndarray, call: np.ndarray) -> None:
        """Long pieces of host code get the frame in which most of them was spent, where frames are known."""
        wanted = np.flatnonzero((cause == int(Cause.HOST_CODE)) & (call < 0) & (at.end - at.start > LONG_NS))
        long = Stretch(at.thread[wanted], at.start[wanted], at.end[wanted])
        if len(self._watched.python.start):
            call[wanted] = self._python_frame(long)
        piece, name = self._most_sampled(long)
        call[wanted[piece]] = name

    def _most_sampled(self, at: Stretch) -> tuple[np.ndarray, np.ndarray]:
        """Which stretches hold samples, and the frame that most of them are of; of equals the first one."""
        when, names = self._watched.samples
        piece, sample = runs(*(np.searchsorted(when, self._keys.of(at.thread, time)) for time in (at.start, at.end)))
        width = max(len(self.tree.strings) + len(self.texts), 1) + 1
        pair, begun, times = np.unique(piece * width + names[sample] + 1, return_index=True, return_counts=True)
        order = np.lexsort((begun, -times, pair // width))
        piece, name = pair[order] // width, pair[order] % width - 1
        first = np.flatnonzero(np.diff(piece, prepend=-1))
        return piece[first], name[first]

    def _python_frame(self, at: Stretch) -> np.ndarray:
        """Text id of the innermost Python frame that fills at least half of each piece, −1 none."""
        near = self._watched.python
        nesting = near.nesting
        middle = (at.start + at.end) // 2  # what fills half of a piece holds its middle
        found = nesting.innermost(at.thread, middle, middle)
        while True:
            rows = np.maximum(found, 0)
            share = np.minimum(near.end[rows], at.end) - np.maximum(near.start[rows], at.start)
            short = (found >= 0) & (2 * share < at.end - at.start)
            if not short.any():
                break
            found[short] = nesting.parent[found[short]]
        names = np.append(self.tree.trace.python_frames["name_id"].to_numpy()[near.row[:-1]], -1)
        used, codes = np.unique(names, return_inverse=True)
        texts = [str(self.tree.strings[one]) if one >= 0 else "" for one in used.tolist()]
        foreign, own = np.append(found_in(texts, PATTERNS["foreign"])[codes[:-1]], False), found.copy()
        while (outer := np.flatnonzero(foreign[own])).size:  # as deep as libraries call one another
            own[outer] = nesting.parent[own[outer]]
        return names[np.where(own >= 0, own, found)]  # a place is code of the program, where there is any around

    def _ids_of(self, names: np.ndarray) -> np.ndarray:
        codes, used = pd.factorize(names)
        ids = np.array([*(self.text_id(str(text)) if text else -1 for text in used), -1], np.int64)
        return ids[codes]
