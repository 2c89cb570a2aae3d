"""The chain of host and device intervals that decides the length of one execution, recorded or simulated.

From the end of the execution back: what did this step wait for last? The answers (stream, launch, wait, event) are the
edges of the replay's program; on the recorded clock the later of the two sources decides. Consecutive intervals share
their ends, so their lengths add up to the execution's exactly.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.names.families import families
from xsp_post.replay.executions import Clock
from xsp_post.replay.graph import ARRIVAL, CALL, OPERATION, ORDER, RECORD, RETURN, ROOM, Graph, Steps, steps_of
from xsp_post.replay.recording import OperationKind, Operations
from xsp_post.replay.simulate import NEVER, Program

HOST, LAUNCH, LATENCY, STREAM_GAP, SYNCHRONISATION = (
    "host",
    "launch call",
    "launch latency",
    "gap between operations",
    "synchronisation",
)
COMMUNICATION = "communication"
KINDS = (*(kind.name.lower() for kind in OperationKind), COMMUNICATION, HOST, LAUNCH, LATENCY, STREAM_GAP,
         SYNCHRONISATION)  # fmt: skip
COLUMNS = ("kind", "name", "layer_index", "operation_index", "start_ns", "end_ns")


def critical_path(
    graph: Graph, clock: Clock, begin_ns: int, end_ns: int, last_operation: int, steps: Steps | None = None
) -> pd.DataFrame:
    """Intervals from ``begin_ns`` to ``end_ns`` in order (`COLUMNS`), each ending where the next begins.

    ``last_operation``: the operation whose end is the execution's end (−1: the host ends it). ``steps``: the program
    that gave a simulated clock (default: the recorded one's). Times are those of the clock.
    """
    steps = steps_of(graph) if steps is None else steps
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


def _between(steps: Steps, first: int, end: int) -> Steps:
    """A part of a program."""
    p, part = steps.program, slice(first, end)
    program = Program(
        p.target[part], p.first[part], p.first_ns[part], p.second[part], p.second_ns[part], p.register_count
    )
    return Steps(program, steps.kind[part], steps.index[part])


def _times(graph: Graph, clock: Clock, steps: Steps) -> np.ndarray:
    """When each step was done on the clock."""
    at = np.zeros(len(steps.kind), np.int64)
    operations = graph.recording.operations
    kind, index = steps.kind, steps.index
    rows = np.flatnonzero(np.isin(kind, (OPERATION, RECORD)))
    at[rows] = clock.end_ns[index[rows]]
    rows = np.flatnonzero(kind == ORDER)
    at[rows] = clock.start_ns[index[rows]]
    rows = np.flatnonzero(kind == ARRIVAL)
    at[rows] = clock.start_ns[graph.amounts.meetings.ravel()[index[rows]]] if len(rows) else 0
    rows = np.flatnonzero(kind == RETURN)
    at[rows] = clock.call_end_ns[index[rows]]
    rows = np.flatnonzero(kind == ROOM)
    at[rows] = clock.call_end_ns[operations.call[index[rows]]]
    rows = np.flatnonzero(kind == CALL)
    own_end = clock.call_start_ns[index[rows]] + graph.amounts.own_ns[index[rows]]
    at[rows] = np.minimum(own_end, clock.call_end_ns[index[rows]])
    return at


def _decisive(steps: Steps, at: np.ndarray) -> np.ndarray:
    """For each step the one it waited for last; −1: none before it. ``at`` is made exact for calls that wait for
    several streams (in place)."""
    program = steps.program
    first = _writer(program.target, program.first, program.register_count)
    second = _writer(program.target, program.second, program.register_count)
    second[program.second_ns == NEVER] = -1
    ready_second = np.where(second >= 0, at[np.maximum(second, 0)] + program.second_ns, NEVER)
    rows = np.flatnonzero(steps.kind == RETURN)
    if len(rows):  # the waits of one call follow one another; the last is its return
        rows = rows[:-1][steps.index[rows[:-1]] == steps.index[rows[1:]]]
        at[rows] = np.minimum(at[rows], ready_second[rows])
    ready_first = np.where(first >= 0, at[np.maximum(first, 0)] + program.first_ns, NEVER)
    return np.where(ready_second > ready_first, second, first)


def _writer(target: np.ndarray, source: np.ndarray, register_count: int) -> np.ndarray:
    """The step that wrote the source register of each step last; −1 none."""
    count = len(target)
    key = np.sort(target * count + np.arange(count))
    place = np.searchsorted(key, source * count + np.arange(count), side="left") - 1
    found = key[np.maximum(place, 0)]
    return np.where((place >= 0) & (found // max(count, 1) == source), found % max(count, 1), -1)


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
    done = np.minimum.accumulate(done[::-1])[::-1] if count else done
    came = np.append(begin_ns, done[:-1]) if count else done
    is_operation = kind == OPERATION
    operation = np.where(is_operation, index, -1)
    call = np.where(np.isin(kind, (CALL, RETURN)), index, -1)
    room = kind == ROOM
    call[room] = operations.call[index[room]]
    # where the second part begins: the operation itself, the call itself
    began = np.where(is_operation, clock.start_ns[np.maximum(operation, 0)] if len(operations) else done, done)
    is_call = kind == CALL
    if len(clock.call_start_ns):
        began = np.where(is_call, clock.call_start_ns[np.maximum(call, 0)], began)
    began = np.clip(began, came, done)
    from_launch = np.zeros(count, bool)
    from_launch[1:] = np.isin(kind[:-1], (CALL, ROOM, RETURN))
    before = np.select(
        [is_operation & from_launch, is_operation, is_call], [LATENCY, STREAM_GAP, HOST], SYNCHRONISATION
    )
    before = np.where(np.isin(kind, (RECORD, ORDER)), STREAM_GAP, before)
    before = np.where(kind == ARRIVAL, COMMUNICATION, before)  # the other ranks had not arrived
    before = np.where(room, LAUNCH, before).astype(object)
    own = np.full(count, LAUNCH, object)
    first_operation = _first_operation(operations, len(clock.call_start_ns))
    waits = graph.recording.calls.wait >= 0
    own[is_call] = np.where(waits[call[is_call]], SYNCHRONISATION, LAUNCH)
    words = np.array([kind.name.lower() for kind in OperationKind], object)[operations.kind[operation[is_operation]]]
    talks = families(operations.name[operation[is_operation]]) == "communication"
    own[is_operation] = np.where(talks, COMMUNICATION, words)
    about = np.where(is_operation, operation, first_operation[np.maximum(call, 0)] if len(first_operation) else -1)
    about = np.where((call < 0) & ~is_operation, -1, about)
    layer = np.where(about >= 0, operations.layer[np.maximum(about, 0)], -1) if len(operations) else about
    name = np.full(count, "", object)
    name[is_operation] = operations.name[operation[is_operation]]
    parts = []
    for k, (low, high, label) in enumerate(((came, began, before), (began, done, own))):
        parts.append(pd.DataFrame({
            "kind": label, "name": name if k else np.full(count, "", object), "layer_index": layer,
            "operation_index": np.where(k == 1, operation, -1), "start_ns": low, "end_ns": high,
            "order": np.arange(count) * 2 + k,
        }))  # fmt: skip
    frame = pd.concat(parts, ignore_index=True).sort_values("order", kind="stable")
    rest = int(done[-1]) if count else begin_ns
    if rest < end_ns:  # the host went on after its last call
        tail = {"kind": HOST, "name": "", "layer_index": -1, "operation_index": -1, "start_ns": rest, "end_ns": end_ns}
        frame = pd.concat([frame, pd.DataFrame([tail])], ignore_index=True)
    frame = frame[frame["end_ns"] > frame["start_ns"]]
    return frame[list(COLUMNS)].reset_index(drop=True)


def _first_operation(operations: Operations, call_count: int) -> np.ndarray:
    """The first operation that each call launched, −1 none."""
    first = np.full(call_count, -1, np.int64)
    launched = np.flatnonzero(operations.call >= 0)[::-1]
    first[operations.call[launched]] = launched
    return first
