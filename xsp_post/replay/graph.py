"""Recording + what was learnt of it → the program of steps that a replay runs (`simulate.Program`), and which step
is which call or operation.

Steps per host call: its start and own time on the clock of its thread; per operation: the later of "its stream is
free" and "it was launched", plus its duration; after a waiting call or a blocking copy: the return, not before what
it waits for. Where one stream waits for another (an event, the default stream) a register holds the time between.
Launches that a full queue holds back, and collectives whose last rank comes late, have bounds that are found by
running the program again until nothing changes (`replay`). All amounts are arrays that a change may alter before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from xsp_post.arrays.cutting import distinct
from xsp_post.replay.edges import DEVICE_WAIT, EVENT_WAIT, WAITS
from xsp_post.replay.learning import CLEARLY_NS, Learnt, ended_before
from xsp_post.replay.recording import Recording
from xsp_post.replay.simulate import NEVER, ZERO, Program, lanes_of, run

CALL, OPERATION, RETURN, ROOM, RECORD, ORDER, ARRIVAL, HANDOVER = range(8)  # kinds of step
# Threads of a process work side by side, rather than in turns, where more of the changes from one to another than this
# fall into a call that does not wait.
_MOST_INSIDE_RATIO = 0.1
_FEWEST_RUNS, _MOST_RUNS, _MOST_STEPS = 24, 2000, 20_000_000  # of a program that is run again
_MOST_EVENTS = 128  # that are pending at once
_AT_NEVER = 1  # where `_times` has NEVER; before it stands 0


@dataclass
class Amounts:
    """The times a change may alter, ns. Arrays: per call (c), per operation (o)."""

    before_ns: np.ndarray  # c: host time since the call before it
    own_ns: np.ndarray  # c
    after_ns: np.ndarray  # c
    latency_ns: np.ndarray  # o
    gap_ns: np.ndarray  # o
    duration_ns: np.ndarray  # o
    waits: np.ndarray  # c bool: the call waits for the device
    is_blocking: np.ndarray  # o bool
    stream: np.ndarray  # o
    orders: np.ndarray  # (edges, 2): the second operation does not start before the end of the first
    meetings: np.ndarray  # (meetings, ranks) operations of one collective each: none transfers before all are there
    queue_depth: int
    release_ns: np.ndarray  # o: without a launch row, the earliest start; NEVER: it follows its stream

    def copy(self) -> Amounts:
        """One that can be altered."""
        arrays: dict[str, Any] = {k: v.copy() for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **arrays)


@dataclass
class Graph:
    """One recording ready to be replayed."""

    recording: Recording
    learnt: Learnt
    amounts: Amounts
    source_call: np.ndarray  # per call: the call it follows, −1 none
    source: np.ndarray  # per call: register whose clock it follows (ZERO: none before it)
    thread_register: np.ndarray  # per call
    begin_ns: int
    layout: _Layout | None = None  # of the program that ran first: most changes alter times only


@dataclass
class _Layout:
    """The steps of programs that differ in times only, in order: where each time stands in `_times`."""

    structure: list[np.ndarray | int]  # of the amounts that it serves
    kind: np.ndarray  # this and below: one value per step
    index: np.ndarray
    target: np.ndarray
    first: np.ndarray
    first_at: np.ndarray
    second: np.ndarray
    second_at: np.ndarray
    register_count: int

    def program(self, times: np.ndarray) -> Program:
        return Program(
            self.target, self.first, times[self.first_at], self.second, times[self.second_at], self.register_count
        )

    @cached_property
    def lanes(self) -> tuple[np.ndarray, ...]:
        return lanes_of(self.target, self.first, self.second, self.register_count)

    @cached_property
    def rows(self) -> tuple[np.ndarray, ...]:
        """The steps of each kind."""
        return tuple(np.flatnonzero(self.kind == kind) for kind in range(HANDOVER + 1))


class Replayed(NamedTuple):
    """Simulated times, ns after the recording's beginning."""

    call_start_ns: np.ndarray
    call_end_ns: np.ndarray
    start_ns: np.ndarray  # of the operations
    end_ns: np.ndarray
    is_settled: bool
    steps: Steps


@dataclass
class Steps:
    """A program, and what each of its steps stands for."""

    program: Program
    kind: np.ndarray
    index: np.ndarray  # of the call or operation


def make_graph(recording: Recording, learnt: Learnt) -> Graph:
    """Registers, sources and amounts of a recording."""
    calls, operations = recording.calls, recording.operations
    begin = recording.begin_ns
    source_call = _source_calls(recording, learnt.is_blocking)
    register = 1 + calls.thread
    known = source_call >= 0
    before = calls.start_ns - begin
    before[known] = np.maximum(calls.start_ns[known] - calls.end_ns[source_call[known]], 0)
    source = np.where(known, register[source_call], ZERO)
    amounts = Amounts(
        before, learnt.own_ns.copy(), learnt.after_ns.copy(), learnt.latency_ns.copy(), learnt.gap_ns.copy(),
        operations.duration_ns, (calls.wait >= 0) & (learnt.waited >= 0), learnt.is_blocking.copy(),
        operations.stream.copy(), learnt.orders.copy(), learnt.meetings.copy(), learnt.queue_depth,
        np.full(len(operations), NEVER, np.int64),
    )  # fmt: skip
    if len(learnt.meetings):  # the last rank to arrive did not wait: its time is the transfer
        transfer = operations.duration_ns[learnt.meetings].min(axis=1)
        amounts.duration_ns[learnt.meetings.ravel()] = np.repeat(transfer, learnt.meetings.shape[1])
    spins, causes = learnt.spins.T  # a kernel that waits for another operation ends soon after that
    since = np.maximum(operations.start_ns[spins], operations.end_ns[causes])
    amounts.duration_ns[spins] = operations.end_ns[spins] - since
    _keep_gaps_of_orphans(recording, amounts)
    return Graph(recording, learnt, amounts, source_call, source, register, begin)


def recorded_starts(graph: Graph) -> np.ndarray | None:
    """`Amounts.release_ns` that keeps work without a launch row where it was, but for what followed its stream at once;
    None where there is none."""
    operations = graph.recording.operations
    orphan = (operations.call < 0) & (graph.amounts.gap_ns > CLEARLY_NS)
    return np.where(orphan, operations.start_ns - graph.begin_ns, NEVER) if orphan.any() else None


def _source_calls(recording: Recording, is_blocking: np.ndarray) -> np.ndarray:
    """The call each call follows: the one before it on its thread, or, where the threads of a process work in turns
    (forward on one, backward on another; inputs prepared on one), the one that ended last in the process; −1 none."""
    calls = recording.calls
    order = np.argsort(calls.thread, kind="stable")
    own = np.full(len(calls), -1, np.int64)
    same = calls.thread[order][1:] == calls.thread[order][:-1]
    own[order[1:][same]] = order[:-1][same]
    result = own.copy()
    waits = calls.wait >= 0
    waits[recording.operations.call[is_blocking]] = True
    for process in distinct(calls.process).tolist():
        mine = np.flatnonzero(calls.process == process)
        switches = mine[1:][calls.thread[mine][1:] != calls.thread[mine][:-1]]
        busy_until = np.maximum.accumulate(np.where(waits[mine], 0, calls.end_ns[mine]))
        inside = busy_until[np.searchsorted(mine, switches) - 1] > calls.start_ns[switches]
        if inside.sum() > _MOST_INSIDE_RATIO * len(switches) + 2:
            continue
        latest = calls.ended_last(mine, calls.start_ns[switches])
        turned = (latest >= 0) & (latest < switches)
        result[switches[turned]] = latest[turned]
    return result


def _keep_gaps_of_orphans(recording: Recording, amounts: Amounts) -> None:
    """What has no launch row follows its stream at the distance it was recorded at: nothing else is known of it."""
    operations = recording.operations
    orphans = np.flatnonzero(operations.call < 0)
    if len(orphans):
        before = ended_before(recording)[orphans]
        amounts.gap_ns[orphans] = operations.start_ns[orphans] - np.where(before < 0, recording.begin_ns, before)


def make_steps(graph: Graph, amounts: Amounts) -> Steps:
    """The program for some amounts."""
    layout = _layout_of(graph, amounts)
    return Steps(layout.program(_times(graph, amounts)), layout.kind, layout.index)


def _times(graph: Graph, amounts: Amounts) -> np.ndarray:
    """All times that steps take, ns: none, `NEVER`, then those of calls and operations (`_places`)."""
    launched = np.where(graph.recording.operations.call >= 0, amounts.latency_ns, amounts.release_ns)
    times = (
        np.array([0, NEVER]), amounts.before_ns + amounts.own_ns, amounts.after_ns,
        amounts.gap_ns + amounts.duration_ns, launched + amounts.duration_ns, graph.learnt.order_ns - amounts.gap_ns,
    )  # fmt: skip
    return np.concatenate(times, dtype=np.int64, casting="unsafe")


def _places(graph: Graph) -> tuple[int, int, int, int, int]:
    """Where in `_times` those of the first call (until it returns, after a wait) and of the first operation (after its
    stream, after its launch, after another stream) stand."""
    calls, operations = len(graph.recording.calls), len(graph.recording.operations)
    return 2, 2 + calls, 2 + 2 * calls, 2 + 2 * calls + operations, 2 + 2 * (calls + operations)


def _layout_of(graph: Graph, amounts: Amounts) -> _Layout:
    # what decides which steps there are, and in which order
    structure: list[np.ndarray | int] = [
        amounts.waits, amounts.is_blocking, amounts.stream, amounts.orders, amounts.meetings, amounts.queue_depth,
    ]  # fmt: skip
    if graph.layout is not None and all(map(np.array_equal, structure, graph.layout.structure)):
        return graph.layout
    recording = graph.recording
    calls, operations = recording.calls, recording.operations
    n_calls, n_operations = len(calls), len(operations)
    first_stream = 2 + int(calls.thread.max(initial=-1))
    stream = first_stream + amounts.stream
    stream_count = int(amounts.stream.max(initial=-1)) + 1
    thread_of_operation = np.append(graph.thread_register, ZERO)[operations.call]
    at_call, at_return, at_stream, at_launch, _ = _places(graph)
    parts: list[tuple[np.ndarray, ...]] = []

    def add(*columns: Any) -> None:
        """Steps: place, sub, kind, index, target, first, first_at, second, second_at (into `_times`); scalars are the
        same for all."""
        count = len(columns[3])
        parts.append(tuple(np.broadcast_to(np.asarray(x, np.int64), count) for x in columns))

    number = np.arange(n_calls)
    source, event_count = _add_handovers(add, graph, first_stream + stream_count)
    add(number * 4 + 1, 0, CALL, number, graph.thread_register, source, at_call + number, ZERO, _AT_NEVER)
    held = np.zeros(0, np.int64)
    if amounts.queue_depth:
        held = np.flatnonzero(_nth_before(graph, amounts) >= 0)
        at = operations.call[held]
        add(at * 4 + 1, 1, ROOM, held, graph.thread_register[at], graph.thread_register[at], 0, ZERO, _AT_NEVER)
    has_call = operations.call >= 0
    event_count += _add_orders(add, amounts, operations.place, stream, first_stream + stream_count + event_count, graph)
    waiting, event_count = _add_event_waits(add, graph, amounts, stream, first_stream + stream_count, event_count)
    index = np.arange(n_operations)
    meeting = amounts.meetings.ravel()
    add(_enqueued(operations.place, has_call)[meeting], 4 * meeting + 1, ARRIVAL, np.arange(len(meeting)),
        stream[meeting], stream[meeting], 0, ZERO, _AT_NEVER)  # fmt: skip
    add(_enqueued(operations.place, has_call), 4 * index + 2, OPERATION, index, stream, stream, at_stream + index,
        thread_of_operation, at_launch + index)  # fmt: skip
    blocking = np.flatnonzero(amounts.is_blocking)
    at = operations.call[blocking]
    add(at * 4 + 3, blocking, RETURN, at, graph.thread_register[at], graph.thread_register[at], 0, stream[blocking],
        at_return + at)  # fmt: skip
    is_device = calls.wait[waiting] == WAITS.index(DEVICE_WAIT)
    # of the stream as recorded, whatever else a change put on a stream of its own
    waited_stream = first_stream + operations.stream[graph.learnt.waited[waiting]]
    for one in range(stream_count):
        process = recording.stream_process[one % len(recording.stream_process)]  # a change may have doubled them
        mine = waiting[np.where(is_device, calls.process[waiting] == process, waited_stream == first_stream + one)]
        add(mine * 4 + 3, 1 + one, RETURN, mine, graph.thread_register[mine], graph.thread_register[mine], 0,
            first_stream + one, at_return + mine)  # fmt: skip

    columns = [np.concatenate(column) for column in zip(*parts)]
    order = np.lexsort((columns[1], columns[0]))
    kind, index, target, first, first_at, second, second_at = (column[order] for column in columns[2:])
    layout = _Layout(
        [np.copy(one) for one in structure], kind, index, target, first, first_at, second, second_at,
        first_stream + stream_count + event_count,
    )  # fmt: skip
    graph.layout = graph.layout or layout
    return layout


def _enqueued(place: np.ndarray, has_call: np.ndarray) -> np.ndarray:
    """Where the steps of an operation stand: after those of its call, or before those of the next of its stream."""
    return place * 4 + np.where(has_call, 2, 0)


def _add_handovers(add: Callable[..., None], graph: Graph, first_free: int) -> tuple[np.ndarray, int]:
    """The register that each call follows; steps that keep the clock of a thread for a call of another one which goes
    on while that thread is in its next call already; how many registers hold these."""
    calls, source = graph.recording.calls, graph.source.copy()
    rows = np.flatnonzero(graph.source_call >= 0)
    rows = rows[calls.thread[graph.source_call[rows]] != calls.thread[rows]]
    done = graph.source_call[rows]
    latest = done.copy()  # of the thread, when the call begins
    for thread in distinct(calls.thread[done]).tolist():
        own, mine = np.flatnonzero(calls.thread == thread), calls.thread[done] == thread
        latest[mine] = own[np.searchsorted(own, rows[mine], side="left") - 1]
    rows = rows[latest != done]
    rows = rows[np.argsort(graph.source_call[rows], kind="stable")]
    if not len(rows):
        return source, 0
    kept, register, count = _registers(graph.source_call[rows], rows, first_free)
    rows = rows[kept]
    done = graph.source_call[rows]
    source[rows] = register
    add(done * 4 + 3, 1 << 40, HANDOVER, done, register, graph.thread_register[done], 0, ZERO, _AT_NEVER)
    return source, count


def _add_orders(
    add: Callable[..., None], amounts: Amounts, place: np.ndarray, stream: np.ndarray, first_free: int, graph: Graph
) -> int:
    """Steps for what one stream waits for of another, and how many registers hold what is pending."""
    orders = amounts.orders[np.argsort(amounts.orders[:, 0], kind="stable")]
    rows, register, count = _registers(orders[:, 0], orders[:, 1], first_free)
    before, after = orders[rows, 0], orders[rows, 1]
    at = _enqueued(place, graph.recording.operations.call >= 0)
    add(at[before], 4 * before + 3, RECORD, before, register, stream[before], 0, ZERO, _AT_NEVER)
    add(at[after], 4 * after, ORDER, after, stream[after], stream[after], 0, register, _places(graph)[4] + after)
    return count if len(orders) else 0


def _registers(written: np.ndarray, read: np.ndarray, first_free: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Registers for events that are written and read later, in the order of writing: which of them have one, its
    number, and how many there are. Where more are pending than there are registers, those that would be overwritten
    have none."""
    count = 8
    while count < _MOST_EVENTS and len(written) > count and (read[:-count] >= written[count:]).any():
        count *= 2
    overwritten = np.zeros(len(written), bool)
    overwritten[:-count] = read[:-count] >= written[count:]
    rows = np.flatnonzero(~overwritten)
    return rows, first_free + rows % count, count


def _add_event_waits(
    add: Callable[..., None], graph: Graph, amounts: Amounts, stream: np.ndarray, first_free: int, used: int
) -> tuple[np.ndarray, int]:
    """Steps of calls that wait for an event with younger work of its stream behind it: the call does not wait for that.
    The calls that wait for all of a stream or device, and how many registers are in use."""
    calls, operations = graph.recording.calls, graph.recording.operations
    waiting = np.flatnonzero(amounts.waits)
    waited = graph.learnt.waited[waiting]
    following = np.full(len(operations), len(calls), np.int64)  # the place of the next operation of the same stream
    order = np.argsort(stream, kind="stable")
    same = stream[order][1:] == stream[order][:-1]
    following[order[:-1][same]] = operations.place[order[1:][same]]
    is_event = (calls.wait[waiting] >= WAITS.index(EVENT_WAIT)) & (following[waited] < waiting)
    at = waiting[is_event][np.argsort(waited[is_event], kind="stable")]
    if not len(at):
        return waiting, used
    done = graph.learnt.waited[at]
    has_call = operations.call >= 0
    enqueued = _enqueued(operations.place, has_call)
    rows, register, count = _registers(enqueued[done], at * 4, first_free + used)
    at, done = at[rows], done[rows]
    add(enqueued[done], 4 * done + 3, RECORD, done, register, stream[done], 0, ZERO, _AT_NEVER)
    add(at * 4 + 3, 1, RETURN, at, graph.thread_register[at], graph.thread_register[at], 0, register,
        _places(graph)[1] + at)  # fmt: skip
    return waiting[~is_event], used + count


def _nth_before(graph: Graph, amounts: Amounts) -> np.ndarray:
    """The operation that must have started before a launch returns: as many before the first one that it launches on
    a stream as the queue is deep; −1 none. Blocking copies leave nothing in the queue."""
    operations = graph.recording.operations
    result = np.full(len(operations), -1, np.int64)
    queued = np.flatnonzero((operations.call >= 0) & ~amounts.is_blocking)
    order = queued[np.argsort(amounts.stream[queued], kind="stable")]
    depth, stream, call = amounts.queue_depth, amounts.stream[order], operations.call[order]
    if len(order) > depth:
        held = stream[depth:] == stream[:-depth]
        held &= (call[depth:] != call[depth - 1 : -1]) | (stream[depth:] != stream[depth - 1 : -1])
        result[order[depth:][held]] = order[:-depth][held]
    return result


def replay(graph: Graph, amounts: Amounts | None = None) -> Replayed:
    """Simulate the recorded order with the recorded amounts, or with others.

    Launches that wait for room in a full queue, and collectives that wait for their last rank, have bounds that follow
    from the simulated times: the program is run again until they agree with one another.
    """
    amounts = graph.amounts if amounts is None else amounts
    operations = graph.recording.operations
    layout = _layout_of(graph, amounts)
    program = layout.program(_times(graph, amounts))
    at_operation, calls, room, arrival, returns = (layout.rows[k] for k in (OPERATION, CALL, ROOM, ARRIVAL, RETURN))
    position = np.empty(len(operations), np.int64)
    position[layout.index[at_operation]] = at_operation
    older = _nth_before(graph, amounts)[layout.index[room]] if len(room) else room
    arrival = arrival[np.argsort(layout.index[arrival])]
    meetings = amounts.meetings
    bounds = np.concatenate([room, arrival])
    most = min(max(_MOST_STEPS // max(len(program), 1), _FEWEST_RUNS), _MOST_RUNS)
    at, runs, settled = run(program, layout.lanes), 1, True
    while len(bounds):
        start = at[position] - amounts.duration_ns
        last = np.repeat(start[meetings].max(axis=1), meetings.shape[1]) if len(meetings) else arrival
        wanted = np.concatenate([start[older] + graph.learnt.queue_wait_ns, last - amounts.gap_ns[meetings.ravel()]])
        if (wanted == program.second_ns[bounds]).all():
            break
        if runs == most:
            settled = False
            break
        program.second_ns[bounds] = wanted
        at, runs = run(program, layout.lanes), runs + 1
    end = at[position]
    call_end = np.empty(len(graph.recording.calls), np.int64)
    call_end[layout.index[calls]] = at[calls]
    call_start = call_end - amounts.own_ns
    for rows, call in ((room, operations.call[layout.index[room]]), (returns, layout.index[returns])):
        np.maximum.at(call_end, call, at[rows])
    steps = Steps(program, layout.kind, layout.index)
    return Replayed(call_start, call_end, end - amounts.duration_ns, end, settled, steps)
