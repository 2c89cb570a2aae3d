"""Model executions on a clock, recorded or simulated: begin, end, latency and period of each; which are measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.replay.graph import Graph, Replayed
from xsp_post.replay.recording import main_executions


class Clock(NamedTuple):
    """When calls and operations were, recorded or simulated, ns since the recording's beginning."""

    call_start_ns: np.ndarray
    call_end_ns: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


@dataclass
class Executions:
    """The executions of one kind that are compared, by process and start. Without any: the whole recording as one."""

    label: str  # what one is: its phase, or "recording"
    index: np.ndarray  # iterations.iteration_index (−1: the recording)
    rows: list[np.ndarray]  # operations of each
    first_call: np.ndarray  # its first host call, −1 none
    lead_ns: np.ndarray  # from its start on the host to that call
    before: np.ndarray  # the call before its start, −1 none
    since_ns: np.ndarray  # from the end of that call to its start
    begin_ns: np.ndarray  # its start on the recording's clock where no call was before, which nothing moves; else NaN
    last_call: np.ndarray  # its last host call, −1 none
    tail_ns: np.ndarray  # from that call's end to its end on the host, NaN: it ends with its device work
    process: np.ndarray  # that ran it: only those of one process follow one another
    is_queued: bool  # an execution begins when the device work of the one before has ended (nobody said otherwise)
    is_apart: bool = False  # what lies between two is none of the program (`recording.shared_captures`)

    def copy(self) -> Executions:
        """One whose host time before the first call and after the last one can be altered."""
        edges = {name: vars(self)[name].copy() for name in ("lead_ns", "since_ns", "begin_ns", "tail_ns")}
        made = replace(self, **edges)
        made.work = self.work  # of the same operations
        return made

    @cached_property
    def work(self) -> tuple[np.ndarray, np.ndarray]:
        """The operations of all, one execution after the other, and how many each has."""
        counts = np.fromiter(map(len, self.rows), np.int64, len(self.rows))
        return np.concatenate([np.zeros(0, np.int64), *self.rows]), counts

    @property
    def follows(self) -> np.ndarray:
        """Which executions follow the one before; of all but the first."""
        return (self.process[1:] == self.process[:-1]) & (not self.is_apart)

    def of_work(self, put: np.ufunc, values: np.ndarray) -> np.ndarray:
        """The least or the greatest of each one's operations; 0 for one without any. int64, shape (executions,)."""
        rows, counts = self.work
        begins, result = (np.cumsum(counts) - counts)[counts > 0], np.zeros(len(counts), np.int64)
        if len(begins):
            result[counts > 0] = put.reduceat(values[rows], begins)
        return result


def recorded_clock(graph: Graph) -> Clock:
    """What was recorded."""
    calls, operations, zero = graph.recording.calls, graph.recording.operations, graph.begin_ns
    return Clock(calls.start_ns - zero, calls.end_ns - zero, operations.start_ns - zero, operations.end_ns - zero)


def simulated_clock(replayed: Replayed) -> Clock:
    """What a replay gave."""
    return Clock(replayed.call_start_ns, replayed.call_end_ns, replayed.start_ns, replayed.end_ns)


def find_executions(graph: Graph, *, of_every_kind: bool = False) -> Executions:
    """The measured executions (no warm-up) of the kind that took most device time, or of all kinds; else the
    recording."""
    recording = graph.recording
    chosen, label = main_executions(recording.iterations, of_every_kind)
    if len(chosen):
        return _of_iterations(graph, chosen, label)
    every = np.arange(len(recording.operations))
    none, zero, nan = np.full(1, -1), np.zeros(1, np.int64), np.full(1, np.nan)
    first = zero if len(recording.calls) else none
    return Executions("recording", none, [every], first, zero, none, zero, nan, none, nan, zero, False)


def _of_iterations(graph: Graph, chosen: pd.DataFrame, label: str) -> Executions:
    recording = graph.recording
    calls, operations = recording.calls, recording.operations
    index = chosen["iteration_index"].to_numpy()
    order = np.argsort(operations.iteration, kind="stable")
    low = np.searchsorted(operations.iteration[order], index, side="left")
    high = np.searchsorted(operations.iteration[order], index, side="right")
    rows = [order[a:b] for a, b in zip(low.tolist(), high.tolist())]
    start, end = chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy()
    process = [int(operations.process[mine[0]]) if len(mine) else 0 for mine in rows]
    orphans = np.flatnonzero((operations.call < 0) & (operations.iteration < 0) & ~operations.queued)
    for number, own in enumerate(rows if len(orphans) else ()):  # what ran meanwhile, launched by nobody knows whom
        at = operations.start_ns[orphans]
        until = max(int(end[number]), int(operations.end_ns[own].max(initial=0)))
        inside = (at >= start[number]) & (at < until) & (operations.process[orphans] == process[number])
        rows[number], orphans = np.union1d(own, orphans[inside]), orphans[~inside]
    first, last, before = (np.full(len(index), -1, np.int64) for _ in range(3))
    for one in sorted(set(process)):
        mine = np.flatnonzero(calls.process == one)
        which = np.flatnonzero(np.array(process) == one)
        first[which] = np.append(mine, -1)[np.searchsorted(calls.start_ns[mine], start[which], side="left")]
        before[which], last[which] = (calls.ended_last(mine, times[which]) for times in (start, end))
    begun, ended = np.append(calls.start_ns, 0), np.append(calls.end_ns, 0)  # −1: no call
    lead = np.where(first >= 0, begun[first] - start, 0)
    before[first < 0] = -1
    begin = np.where((first >= 0) & (before < 0), start - graph.begin_ns, np.nan)
    since = np.where(before >= 0, start - ended[before], 0)
    # an execution that was inferred from its launches has no end on the host of its own
    inferred = chosen["is_inferred"].to_numpy(bool)
    tail = np.where((last >= first) & (first >= 0) & ~inferred, end - ended[last], np.nan)
    is_queued = bool(inferred.any()) and len(calls) > 0
    return Executions(label, index, rows, first, lead, before, since, begin, last, tail, np.array(process),
                      is_queued, recording.is_shared)  # fmt: skip


def _of_device(
    executions: Executions, graph: Graph, clock: Clock, begin: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    operations, begin, end = graph.recording.operations, begin.copy(), end.copy()
    rows, counts = executions.work
    of = np.repeat(np.arange(len(counts)), counts)
    earliest = executions.of_work(np.minimum, clock.start_ns)
    latest = executions.of_work(np.maximum, clock.end_ns)
    for process in distinct(executions.process).tolist():
        mine = np.flatnonzero((operations.process == process) | (executions.index[0] < 0))  # the recording is of all
        queued = mine[operations.queued[mine]]
        if len(queued):
            which = executions.process == process
            begin[which] = np.maximum(begin[which], np.minimum(clock.end_ns[queued].max(), earliest[which]))
        if len(mine):
            first, last = mine[operations.start_ns[mine].argmin()], mine[operations.end_ns[mine].argmax()]
            which = of[(rows == first) & (executions.process[of] == process)]
            begin[which] = np.maximum(begin[which], earliest[which])
            which = of[(rows == last) & (executions.process[of] == process)]
            end[which] = np.minimum(end[which], latest[which])
    return begin, end


def measure(executions: Executions, clock: Clock) -> pd.DataFrame:
    """One row per execution: begin_ns, end_ns, latency_ns, period_ns (from the end of its device work to
    that of the next one)."""
    begin, end = _begin_and_end(executions, clock)
    # the host, and copies on a stream of their own, may run ahead: the end of the last work tells the pace
    done = executions.of_work(np.maximum, clock.end_ns) if executions.work[1].all() else begin
    period = np.append(np.where(executions.follows, np.diff(done).astype(float), np.nan), np.nan)
    return pd.DataFrame({"iteration_index": executions.index, "begin_ns": begin, "end_ns": end,
                         "latency_ns": end - begin, "period_ns": period})  # fmt: skip


def _begin_and_end(executions: Executions, clock: Clock) -> tuple[np.ndarray, np.ndarray]:
    last_work = executions.of_work(np.maximum, clock.end_ns)
    first, last = executions.first_call, executions.last_call
    if len(clock.call_start_ns):
        begin = clock.call_start_ns[np.maximum(first, 0)] - executions.lead_ns
        after = clock.call_end_ns[np.maximum(executions.before, 0)] + executions.since_ns
        begin = np.where(executions.before >= 0, after, begin)
        begin = np.where(np.isnan(executions.begin_ns), begin, np.nan_to_num(executions.begin_ns)).astype(np.int64)
        host_end = clock.call_end_ns[np.maximum(last, 0)] + np.nan_to_num(executions.tail_ns).astype(np.int64)
    else:
        begin, host_end = last_work, last_work
    begin = np.where(first >= 0, begin, executions.of_work(np.minimum, clock.start_ns))
    end = np.where(np.isnan(executions.tail_ns), last_work, np.maximum(last_work, host_end))
    if executions.is_queued and len(begin) > 1:
        queued = np.minimum(np.maximum(begin[1:], last_work[:-1]), np.maximum(end[1:] - 1, begin[1:]))
        begin[1:] = np.where(executions.follows, queued, begin[1:])
    return begin, end


class Window(NamedTuple):
    """Executions of one process with what lies between them, ns on a clock."""

    process: int
    begin_ns: int
    end_ns: int


def windows(graph: Graph, executions: Executions, clock: Clock) -> tuple[list[Window], list[Window]]:
    """From when the first execution of each process could have the device to the end of the last one: without what the
    host did before the first device work of the recording and after the last one, and with it. Of executions that are
    apart one each.

    A host that runs ahead begins an execution long before its work can: the time counts from the end of what its
    process had launched before, and of what was queued before its own first work; to the end of all that it launched
    until the last one's end, copies between two of them, too.
    """
    operations, both = graph.recording.operations, _begin_and_end(executions, clock)
    earliest = executions.of_work(np.minimum, clock.start_ns)
    found: tuple[list[Window], list[Window]] = ([], [])
    spans = (_of_device(executions, graph, clock, *both), both)
    for process in distinct(executions.process).tolist():
        mine = np.flatnonzero(executions.process == process)
        if executions.is_apart:
            for of, (begin, end) in zip(found, spans):
                of += [Window(process, int(begin[one]), int(end[one])) for one in mine]
            continue
        first = executions.first_call[mine[0]]
        own = operations.process == process
        older = own & (operations.place < first) & (operations.call >= 0)
        queued_ns = min(clock.end_ns[own & operations.queued].max(initial=0), earliest[mine[0]])
        free = max(clock.end_ns[older].max(initial=0), queued_ns)
        until = own & (operations.place >= first) & (operations.place <= executions.last_call[mine].max())
        for of, (begin, end) in zip(found, spans):
            last = int(max(end[mine].max(), clock.end_ns[until].max(initial=0)))
            of.append(Window(process, min(int(max(begin[mine[0]], free)), last), last))
    return found


def elapsed(graph: Graph, executions: Executions, clock: Clock) -> tuple[float, float]:
    """How long the `windows` are of either kind, ns; the mean of the processes."""
    count = len(distinct(executions.process))
    device, whole = (sum(one.end_ns - one.begin_ns for one in of) for of in windows(graph, executions, clock))
    return device / count, whole / count
