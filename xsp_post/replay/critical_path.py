"""The chain of host and device intervals that decides how long the executions take, recorded or simulated.

From the end of the last one back: what did this step wait for last? The answers (stream, launch, wait, event) are the
edges of the replay's program; on the recorded clock the later of the two sources decides. Consecutive intervals share
their ends, so their lengths add up to the time of the verdict exactly.
"""

import numpy as np
import pandas as pd

from xsp_post.model.kinds import ActivityKind
from xsp_post.replay.executions import Clock, Executions, windows
from xsp_post.replay.graph import (
    ARRIVAL,
    CALL,
    HANDOVER,
    OPERATION,
    ORDER,
    RECORD,
    RETURN,
    ROOM,
    Graph,
    Steps,
    make_steps,
)
from xsp_post.replay.simulate import NEVER, Program

COMMUNICATION, HOST, LAUNCH, LATENCY, STREAM_GAP, SYNCHRONISATION = OTHERS = (
    "communication", "host", "launch call", "launch latency", "gap between operations", "synchronisation",
)  # fmt: skip
KINDS = (*(kind.name.lower() for kind in ActivityKind), *OTHERS)
COLUMNS = ("kind", "layer_index", "operation_index", "start_ns", "end_ns")
_WORDS = pd.Index(KINDS, dtype=object)
_NUMBER = {word: number for number, word in enumerate(KINDS)}
# What limits executions that spend most of its critical path so.
_LIMITS = {
    "kernel": "kernels", "graph": "graphs", "memcpy": "copies", "memset": "copies", COMMUNICATION: "communication",
    HOST: "host code", LAUNCH: "launches", LATENCY: "launches", STREAM_GAP: "gaps between operations",
    SYNCHRONISATION: "synchronisation",
}  # fmt: skip
# By kind of step what lies before it, unless it is an operation that waited for its launch (of `ARRIVAL` the other
# ranks had not arrived), and whether the step is one of the host.
_BEFORE_STEP = {CALL: HOST, OPERATION: STREAM_GAP, RETURN: SYNCHRONISATION, ROOM: LAUNCH, RECORD: STREAM_GAP,
                ORDER: STREAM_GAP, ARRIVAL: COMMUNICATION, HANDOVER: HOST}  # fmt: skip
_BEFORE = np.array([_NUMBER[_BEFORE_STEP[step]] for step in sorted(_BEFORE_STEP)], np.int8)
_IS_HOST = np.array([step in (CALL, ROOM, RETURN, HANDOVER) for step in sorted(_BEFORE_STEP)])


def critical_path(
    graph: Graph, clock: Clock, begin_ns: int, end_ns: int, last_operation: int, steps: Steps | None = None
) -> pd.DataFrame:
    """Intervals from ``begin_ns`` to ``end_ns`` in order (`COLUMNS`), each ending where the next begins.

    ``last_operation``: the operation whose end is the execution's end (−1: the host ends it). ``steps``: the program
    that gave a simulated clock (default: the recorded one's). Times are those of the clock.
    """
    steps = make_steps(graph, graph.amounts) if steps is None else steps
    at = _times(graph, clock, steps)
    if last_operation >= 0:
        ends = np.flatnonzero((steps.kind == OPERATION) & (steps.index == last_operation))
    else:
        is_host = np.isin(steps.kind, (CALL, RETURN)) & (at <= end_ns)
        ends = np.flatnonzero(is_host)[-1:]
    if not len(ends):
        return _frame(graph, clock, steps, np.zeros(0, np.int64), at, begin_ns, end_ns)
    # steps that were done before the execution began decide nothing of it
    first = int(np.argmax(at[: ends[0] + 1] > begin_ns))
    steps, at = _between(steps, first, int(ends[0]) + 1), at[first : ends[0] + 1]
    chain = _chain(_decisive(steps, at), len(at) - 1)
    chain = chain[: int(np.argmax(at[chain] <= begin_ns)) or len(chain)] if (at[chain] <= begin_ns).any() else chain
    return _frame(graph, clock, steps, chain[::-1], at, begin_ns, end_ns)


def measured_path(
    graph: Graph, executions: Executions, clock: Clock, steps: Steps | None = None
) -> tuple[pd.DataFrame, int]:
    """The critical path (`COLUMNS`) of all executions with what lies between them, and the process: the time that the
    verdict speaks of, of the process in which it is longest."""
    found = windows(graph, executions, clock)[0]
    taken = np.bincount([one.process for one in found], [one.end_ns - one.begin_ns for one in found])
    process, of = int(taken.argmax()), graph.recording.operations.process
    is_own = (of == process) | (executions.index[0] < 0)  # the recording is of all
    paths = []
    for window in found:
        if window.process == process:
            last = np.append(-1, np.flatnonzero(is_own & (clock.end_ns == window.end_ns)))[-1]
            paths.append(critical_path(graph, clock, window.begin_ns, window.end_ns, int(last), steps))
    return pd.concat(paths, ignore_index=True) if len(paths) > 1 else paths[0], process


def limit_of(path: pd.DataFrame) -> tuple[str, float]:
    """What takes most of a critical path, in a word, and its share."""
    if not len(path):
        return "", 0.0
    shares = path.groupby(path["kind"].map(_LIMITS))["duration_ns"].sum()
    return str(shares.idxmax()), float(shares.max() / max(shares.sum(), 1))


def _between(steps: Steps, first: int, end: int) -> Steps:
    """A part of a program."""
    p, part = steps.program, slice(first, end)
    program = Program(
        p.target[part], p.first[part], p.first_ns[part], p.second[part], p.second_ns[part], p.register_count
    )
    return Steps(program, steps.kind[part], steps.index[part])


def _times(graph: Graph, clock: Clock, steps: Steps) -> np.ndarray:
    """When each step was done on the clock."""
    at, call = np.zeros(len(steps.kind), np.int64), graph.recording.operations.call
    meeting, own_end = graph.amounts.meetings.ravel(), clock.call_start_ns + graph.amounts.own_ns
    times = {
        OPERATION: clock.end_ns, RECORD: clock.end_ns, ORDER: clock.start_ns, ARRIVAL: clock.start_ns[meeting],
        RETURN: clock.call_end_ns, HANDOVER: clock.call_end_ns, ROOM: np.append(clock.call_end_ns, 0)[call],
        CALL: np.minimum(own_end, clock.call_end_ns),
    }  # fmt: skip
    for kind, when in times.items():
        rows = np.flatnonzero(steps.kind == kind)
        at[rows] = when[steps.index[rows]]
    return at


def _decisive(steps: Steps, at: np.ndarray) -> np.ndarray:
    """For each step the one it waited for last; −1: none before it. ``at`` is made exact for calls that wait for
    several streams (in place)."""
    program = steps.program
    count = len(program.target)
    written = np.sort(program.target * count + np.arange(count))
    first, second = _writer(written, program.first), _writer(written, program.second)
    second[program.second_ns == NEVER] = -1
    ready_second = np.where(second >= 0, at[np.maximum(second, 0)] + program.second_ns, NEVER)
    rows = np.flatnonzero(steps.kind == ORDER)
    if len(rows):  # a stream's wait is over when that has ended, whatever the operation behind it waits for then
        came = np.maximum(first[rows], 0)
        follows = steps.kind[came] == ORDER  # several waits of one operation
        free = np.where((first[rows] >= 0) & ~follows, at[came], NEVER)
        at[rows] = np.minimum(at[rows], np.maximum(ready_second[rows], free))
        at[rows[follows]] = np.maximum(at[rows[follows]], at[came[follows]])
    rows = np.flatnonzero(steps.kind == RETURN)
    if len(rows):  # the waits of one call follow one another; the last is its return, the others begin with the call
        calls = np.flatnonzero(steps.kind == CALL)
        begun = pd.Series(at[calls], steps.index[calls]).reindex(steps.index[rows]).fillna(NEVER).to_numpy(np.int64)
        until = np.maximum(ready_second[rows], begun)
        until = pd.Series(until).groupby(steps.index[rows]).cummax().to_numpy()
        inner = np.flatnonzero(steps.index[rows[:-1]] == steps.index[rows[1:]])
        at[rows[inner]] = np.minimum(at[rows[inner]], until[inner])
    ready_first = np.where(first >= 0, at[np.maximum(first, 0)] + program.first_ns, NEVER)
    return np.where(ready_second > ready_first, second, first)


def _writer(written: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The step that wrote the source register of each step last; −1 none. ``written``: by register and step, the
    register times the number of steps, plus the step."""
    count = len(source)
    place = np.searchsorted(written, source * count + np.arange(count), side="left") - 1
    step = written[np.maximum(place, 0)] - source * count
    return np.where((place >= 0) & (step >= 0), step, -1)


def _chain(before: np.ndarray, last: int) -> np.ndarray:
    """last, before[last], before[before[last]] … to the first step: found by doubling, not one by one."""
    jump = np.append(before, len(before))  # a place of its own ends every chain
    jump[jump < 0] = len(before)
    chain = np.array([last])
    while chain[-1] != len(before):
        chain = np.concatenate([chain, jump[chain]])
        jump = jump[jump]
    return chain[chain != len(before)]


def _frame(
    graph: Graph, clock: Clock, steps: Steps, chain: np.ndarray, at: np.ndarray, begin_ns: int, end_ns: int
) -> pd.DataFrame:
    """The chain (in order) as intervals: what lies between two steps is cut where the kind of time changes."""
    count = len(chain)
    operations = graph.recording.operations
    kind, index = steps.kind[chain], steps.index[chain]
    done = np.clip(at[chain], begin_ns, end_ns)
    done = np.minimum.accumulate(done[::-1])[::-1]
    came = np.append(begin_ns, done)[:-1]
    is_operation = kind == OPERATION
    operation = np.where(is_operation, index, -1)
    call = np.where(np.isin(kind, (CALL, RETURN)), index, -1)
    room = kind == ROOM
    call[room] = operations.call[index[room]]
    # where the second part begins: the operation itself, the call itself
    began = np.where(is_operation, np.append(clock.start_ns, 0)[operation], done)
    is_call = kind == CALL
    began = np.where(is_call, np.append(clock.call_start_ns, 0)[call], began)
    began = np.clip(began, came, done)
    before = _BEFORE[kind]
    before[1:][is_operation[1:] & _IS_HOST[kind[:-1]]] = _NUMBER[LATENCY]
    own = np.full(count, _NUMBER[LAUNCH], np.int8)
    calls = graph.recording.calls
    of_call = np.where(calls.allocates, _NUMBER[HOST], _NUMBER[LAUNCH])
    of_call = np.where(calls.synchronises, _NUMBER[SYNCHRONISATION], of_call)
    own[is_call] = of_call[call[is_call]]
    ran = operation[is_operation]
    own[is_operation] = np.where(operations.are("communication")[ran], _NUMBER[COMMUNICATION], operations.kind[ran])
    first = np.full(len(calls) + 1, -1, np.int64)  # operation of each call; the last stands for no call
    launched = np.flatnonzero(operations.call >= 0)[::-1]
    first[operations.call[launched]] = launched
    layer = np.append(operations.layer, -1)[np.where(is_operation, operation, first[call])]
    low, high = _in_turn(came, began), _in_turn(began, done)
    kept = np.flatnonzero(high > low)
    step = kept // 2
    ran = np.where(kept % 2, operation[step], -1)
    columns: tuple[np.ndarray, ...] = (_in_turn(before, own)[kept], layer[step], ran, low[kept], high[kept])
    rest = int(done[-1]) if count else begin_ns
    if rest < end_ns:  # the host went on after its last call
        columns = tuple(np.append(of, last) for of, last in zip(columns, (_NUMBER[HOST], -1, -1, rest, end_ns)))
    kinds = pd.Categorical.from_codes(columns[0], _WORDS)
    return pd.DataFrame(dict(zip(COLUMNS, (kinds, *columns[1:]))), copy=False)


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One of the first, one of the second, the next of the first …"""
    return np.stack([first, second], axis=1).ravel()
