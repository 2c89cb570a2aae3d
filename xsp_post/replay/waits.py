"""Trace → the table ``dependencies``: the edges that a replay needs beside the order of launches and streams.

Launches, streams and copies are in the tables ``kernels`` and ``memory_operations`` already. Here are the host calls
that waited for the device (what for follows from the call's name) and the streams that waited for events.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import Keys
from xsp_post.model.trace import ActivityKind, SyncKind, Trace
from xsp_post.model.tree import Tree
from xsp_post.replay import edges
from xsp_post.replay.calls import PATTERNS
from xsp_post.replay.edges import CALLS, EVENT_ORDER, EVENT_WAIT, RESULT_WAIT

_RECORDS_BACK = 6  # of the records before a wait, so many may be those it is for
_JUST_NS, _CLOCKS_NS = 6_000, 500  # work that waits for an event begins so soon after it
_LEAST_QUERIES, _AGAIN_NS = 3, 10_000  # of one poll, each so soon after the one before
COLUMNS = ("kind", "from_id", "to_id", "process_id", "thread_id", "stream_id", "call_name", "start_ns", "end_ns",
           "from_name", "to_name")  # fmt: skip
_EDGES = {name.removeprefix("edge "): text for name, text in PATTERNS.items() if name.startswith("edge ")}
_EDGES["allocation"] += f"|{PATTERNS['makes']}"


def dependencies_frame(tree: Tree) -> pd.DataFrame:
    """One row per host call that waits or allocates and per event that orders two streams (`COLUMNS`).

    Ids are correlation ids of the process (NaN: none). Of a wait,
    ``from_id`` is the last operation launched before it in the process (on the stream, where that is known),
    ``to_id`` the first that its thread launched after it; of an event the operations that it orders.
    """
    launched = _Launched(tree.trace, tree.activities["launch_id"].to_numpy())
    kinds = (_host_waits, _waits_for_threads, _event_orders, _unnamed_orders, _graph_orders, _host_functions)
    parts = [one(tree.trace, launched) for one in kinds]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    return frame.sort_values(["process_id", "start_ns"], kind="stable", ignore_index=True)


def _host_waits(trace: Trace, launched: _Launched) -> pd.DataFrame:
    launches = trace.launches
    kind, end = np.full(len(launches), -1), launches["end_ns"].to_numpy().copy()
    rows, number = _named(trace, *_EDGES.values())
    kind[rows] = np.array([CALLS.index(one) for one in _EDGES])[number]
    first, last, _ = polls(trace)
    kind[first], end[first] = CALLS.index(EVENT_WAIT), end[last]
    rows = np.flatnonzero(kind >= 0)
    stream = np.full(len(launches), -1, np.int64)
    waits = trace.synchronizations
    waits = waits[(waits["kind"].to_numpy() == SyncKind.STREAM) & (waits["launch_id"].to_numpy() >= 0)]
    stream[waits["launch_id"].to_numpy()] = waits["stream_id"].to_numpy()
    stream = stream[rows]
    process = launches["process_index"].to_numpy()
    thread = launches["thread_index"].to_numpy()
    start = launches["start_ns"].to_numpy()
    before = launched.last_before(process[rows], stream, start[rows])
    after = launched.first_after(thread[rows], start[rows])
    return _frame(trace, {
        "kind": np.array([*CALLS, ""], object)[kind[rows]],
        "from_id": launched.ids(before),
        "to_id": launched.ids(after),
        "stream_id": np.where(stream >= 0, stream, np.nan),
        "call_name": trace.strings[launches["name_id"].to_numpy()[rows]] if len(rows) else np.zeros(0, object),
        "start_ns": start[rows],
        "end_ns": end[rows],
    }, process[rows], thread[rows])  # fmt: skip


def _waits_for_threads(trace: Trace, launched: _Launched) -> pd.DataFrame:
    """Waits of a CPU run for work that another thread carries out (a collective) and that ended after its call had
    returned. No capture has them: the thread that asked for it called nothing from some time until the work ended, and
    nothing for less time after that."""
    names = ("name_id", "process_index", "thread_index", "start_ns", "end_ns")
    name, process, thread, start, end = (trace.launches[one].to_numpy() for one in names)
    device, call = trace.activities["device_id"].to_numpy()[launched.rows], launched.launch_id[launched.rows]
    work = np.flatnonzero((device < 0) & (launched.ends > end[call]))
    asked, ended = thread[call[work]], launched.ends[work]
    before, after = (_neighbour(thread, start, asked, ended, step) for step in (-1, 0))
    waited = (after >= 0) & (2 * ended > start[after] + end[before])
    last = pd.Series(ended[waited]).groupby(before[waited]).idxmax().to_numpy(np.int64)
    work, before, after = (rows[waited][last] for rows in (work, before, after))
    return _frame(trace, {
        "kind": np.full(len(work), RESULT_WAIT, object), "from_id": launched.correlation[work].astype(float),
        "to_id": trace.launches["correlation_id"].to_numpy()[after].astype(float), "stream_id": np.nan,
        "call_name": trace.strings[name[call[work]]] if len(work) else np.zeros(0, object),
        "start_ns": end[before], "end_ns": launched.ends[work],
    }, process[before], thread[before])  # fmt: skip


def polls(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each wait by asking again and again the first call and the last one: queries of one thread without any other
    call between them, of which the last one followed the end of an operation, and the one before it did not. And all
    these calls."""
    launches, activities = trace.launches, trace.activities
    order, _ = _named(trace, PATTERNS["query"])
    process, thread, start, end = (
        launches[name].to_numpy() for name in ("process_index", "thread_index", "start_ns", "end_ns")
    )
    order = order[np.lexsort((start[order], thread[order]))]
    again = (np.diff(thread[order]) == 0) & (start[order[1:]] - end[order[:-1]] < _AGAIN_NS)
    *_, long = _runs(again)
    if not long.any() or not len(activities):
        return order[:0], order[:0], order[:0]
    place = np.empty(len(launches), np.int32)
    place[np.lexsort((start, thread))] = np.arange(len(launches), dtype=np.int32)
    begins, lasts, long = _runs(again & (np.diff(place[order]) == 1))
    first, before, last = order[begins[long]], order[lasts[long] - 1], order[lasts[long]]
    ends, of = activities["end_ns"].to_numpy(), activities["process_index"].to_numpy().astype(np.int64)
    ended = _neighbour(of, ends, process[last].astype(np.int64), end[last] + _CLOCKS_NS, -1)
    said = (ended >= 0) & (ends[ended] >= start[before] - _CLOCKS_NS)
    run = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(order))))
    return first[said], last[said], order[np.isin(run, np.flatnonzero(long)[said])]


def _runs(again: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first and the last call of each run of calls that come again, and whether it is long enough for a poll."""
    begins = np.flatnonzero(np.append(True, ~again))
    lasts = np.append(begins[1:], len(again) + 1) - 1
    return begins, lasts, lasts - begins >= _LEAST_QUERIES - 1


def host_functions(trace: Trace, launch_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Calls that have a stream run a function of the host, and the operation (row) that their thread launched next:
    that waits for the function."""
    launches, (rows, _) = trace.launches, _named(trace, PATTERNS["host function"])
    if not len(rows):
        return rows, rows
    launched = _Launched(trace, launch_id)
    thread, start = (launches[name].to_numpy()[rows].astype(np.int64) for name in ("thread_index", "start_ns"))
    after = launched.first_after(thread, start)
    return rows[after >= 0], launched.rows[after[after >= 0]]


def _host_functions(trace: Trace, launched: _Launched) -> pd.DataFrame:
    """What waited for a function of the host."""
    call, after = host_functions(trace, launched.launch_id)
    stream, number = (trace.activities[name].to_numpy()[after] for name in ("stream_id", "correlation_id"))
    process, none = trace.launches["process_index"].to_numpy()[call], np.full(len(call), np.nan)
    return _orders(trace, edges.HOST_FUNCTION, none, number.astype(float), stream, call, process)


def _named(trace: Trace, *patterns: str) -> tuple[np.ndarray, np.ndarray]:
    """The calls in whose name a pattern is found, and the number of the first one that is."""
    codes, used = pd.factorize(trace.launches["name_id"].to_numpy())
    names = [str(trace.strings[one]) if one >= 0 else "" for one in used.tolist()]
    found = [next((k for k, one in enumerate(patterns) if re.search(one, name)), -1) for name in names]
    number = np.array([*found, -1])[codes]
    rows = np.flatnonzero(number >= 0)
    return rows, number[rows]


def _event_orders(trace: Trace, launched: _Launched) -> pd.DataFrame:
    """What a stream waited for: the last operation before the record of the event, where the capture has that."""
    waits = trace.synchronizations
    waits = waits[(waits["kind"].to_numpy() == SyncKind.STREAM_WAIT_EVENT) & (waits["launch_id"].to_numpy() >= 0)]
    launches, call = trace.launches, waits["launch_id"].to_numpy()
    start = launches["start_ns"].to_numpy()
    process = waits["process_index"].to_numpy().astype(np.int64)
    stream = waits["stream_id"].to_numpy().astype(np.int64)
    record, record_stream = _records(trace, waits)
    usable = np.flatnonzero((record >= 0) & (stream >= 0))
    record, record_stream, call = record[usable], record_stream[usable], call[usable]
    process, stream = process[usable], stream[usable]
    before = launched.last_before(process, record_stream, start[record] if len(record) else record)
    after = launched.first_of_stream(process, stream, start[call] if len(call) else call)
    found = np.flatnonzero((before >= 0) & (after >= 0))
    ends = launched.ids(before[found]), launched.ids(after[found])
    return _orders(trace, EVENT_ORDER, *ends, stream[found], call[found], process[found])


def _unnamed_orders(trace: Trace, launched: _Launched) -> pd.DataFrame:
    """What streams waited for where the capture has the calls and not the events: a wait is for what its thread
    launches next, a record is of what its thread launched last. Of the latest records before a wait, one whose work
    ended just before that of the wait began, else the latest one whose work had ended by then."""
    launches = trace.launches
    rows, number = _named(trace, "StreamWaitEvent", "EventRecord")
    wait, record = rows[number == 0], rows[number == 1]
    if len(trace.cuda_events) or (trace.synchronizations["event_record_correlation_id"].to_numpy() >= 0).any():
        said = trace.synchronizations["launch_id"].to_numpy()  # `_event_orders` knows them
        wait, record = np.setdiff1d(wait, said), np.setdiff1d(record, said)
    start, thread = launches["start_ns"].to_numpy(), launches["thread_index"].to_numpy().astype(np.int64)
    process = launches["process_index"].to_numpy().astype(np.int64)
    after = launched.first_after(thread[wait], start[wait])
    wait, after = wait[after >= 0], after[after >= 0]
    before = _neighbour(launched.thread, launched.at, thread[record], start[record], -1)
    record, before = record[before >= 0], before[before >= 0]
    latest = _neighbour(process[record], start[record], process[wait], start[wait], -1)
    order = np.lexsort((start[record], process[record]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    place = np.where(latest >= 0, rank[latest], -1) if len(order) else latest
    chosen, is_sure = np.full(len(wait), -1, np.int64), np.zeros(len(wait), bool)
    for back in range(_RECORDS_BACK):
        known = np.flatnonzero(place - back >= 0)
        cause, effect = before[order[place[known] - back]], after[known]
        waited = launched.begins[effect] - launched.ends[cause]
        fits = (launched.process[cause] == launched.process[effect]) & (waited >= -_CLOCKS_NS)
        fits &= launched.stream[cause] != launched.stream[effect]
        sure = fits & (waited < _JUST_NS)
        better = (sure & ~is_sure[known]) | (fits & (chosen[known] < 0))
        chosen[known[better]] = cause[better]
        is_sure[known] |= sure
    found = np.flatnonzero(chosen >= 0)
    ends = launched.ids(chosen[found]), launched.ids(after[found])
    return _orders(trace, EVENT_ORDER, *ends, launched.stream[after[found]], wait[found], process[wait[found]])


def _graph_orders(trace: Trace, launched: _Launched) -> pd.DataFrame:
    """Which kernels of a replay waited for one of another stream, by the edges of its graph."""
    if not len(trace.graph_edges):
        return pd.DataFrame()
    activities, launch_id = trace.activities, launched.launch_id
    nodes = activities[["process_index", "graph_node_id", "stream_id", "short_name_id"]].assign(launch=launch_id)
    nodes = nodes[(activities["kind"] == ActivityKind.KERNEL) & (launch_id >= 0) & (nodes["graph_node_id"] != 0)]
    pairs = nodes.merge(trace.graph_edges, left_on=["process_index", "graph_node_id"],
                        right_on=["process_index", "from_node_id"])  # fmt: skip
    pairs = pairs.merge(nodes, left_on=["process_index", "launch", "to_node_id"],
                        right_on=["process_index", "launch", "graph_node_id"], suffixes=("", "_after"))  # fmt: skip
    pairs = pairs[pairs["stream_id"] != pairs["stream_id_after"]]
    names = ("from_node_id", "to_node_id", "stream_id_after", "launch", "process_index")
    before, after, stream, call, process = (pairs[name].to_numpy(np.int64) for name in names)
    orders = _orders(trace, edges.GRAPH_ORDER, before.astype(float), after.astype(float), stream, call, process)
    if len(pairs):
        orders["from_name"], orders["to_name"] = (
            trace.strings[pairs[name].to_numpy()] for name in ("short_name_id", "short_name_id_after")
        )
    return orders


def _orders(
    trace: Trace, kind: str, before: np.ndarray, after: np.ndarray, stream: np.ndarray, call: np.ndarray,
    process: np.ndarray,
) -> pd.DataFrame:  # fmt: skip
    """Rows of orders: ids of the operations, the stream that waits, and the call (row of the launches)."""
    launches = trace.launches
    name = launches["name_id"].to_numpy()[call]
    return _frame(trace, {
        "kind": np.full(len(call), kind, object), "from_id": before, "to_id": after, "stream_id": stream.astype(float),
        "call_name": trace.strings[name] if len(call) else np.zeros(0, object),
        "start_ns": launches["start_ns"].to_numpy()[call], "end_ns": launches["end_ns"].to_numpy()[call],
    }, process, launches["thread_index"].to_numpy()[call])  # fmt: skip


def _records(trace: Trace, waits: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The call that recorded the event each stream waited for, and the stream it was recorded on; −1 unknown."""
    launches, events = trace.launches, trace.cuda_events
    start = launches["start_ns"].to_numpy()
    call = np.full(len(waits), -1, np.int64)
    stream = np.full(len(waits), -1, np.int64)
    events = events[(events["launch_id"].to_numpy() >= 0) & (events["event_id"].to_numpy() >= 0)]
    if len(events):
        at = start[events["launch_id"].to_numpy()]
        asked = waits["process_index"].to_numpy().astype(np.int64) * (1 << 40) + waits["event_id"].to_numpy()
        key = events["process_index"].to_numpy().astype(np.int64) * (1 << 40) + events["event_id"].to_numpy()
        found = _neighbour(key, at, asked, start[waits["launch_id"].to_numpy()], -1)
        has = found >= 0
        call[has] = events["launch_id"].to_numpy()[found[has]]
        stream[has] = events["stream_id"].to_numpy()[found[has]]
    said = waits["event_record_correlation_id"].to_numpy()
    by_id = np.flatnonzero((call < 0) & (said >= 0))
    if len(by_id):
        first = pd.Series(np.arange(len(launches)), index=launches["correlation_id"].to_numpy())
        first = first[~first.index.duplicated()]
        call[by_id] = first.reindex(said[by_id]).fillna(-1).to_numpy().astype(np.int64)
    return call, stream


class _Launched:
    """The launches that started device work, to be looked up by time."""

    def __init__(self, trace: Trace, launch_id: np.ndarray) -> None:
        self.launch_id, self.rows = launch_id, (rows := np.flatnonzero(launch_id >= 0))
        call = launch_id[rows]
        activities, launches = trace.activities, trace.launches
        self.at = launches["start_ns"].to_numpy()[call]
        self.thread = launches["thread_index"].to_numpy()[call].astype(np.int64)
        self.process = activities["process_index"].to_numpy()[rows].astype(np.int64)
        self.stream = activities["stream_id"].to_numpy()[rows].astype(np.int64)
        self.correlation = activities["correlation_id"].to_numpy()[rows]
        self.begins, self.ends = (activities[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))

    def last_before(self, process: np.ndarray, stream: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The last launch of the process, on the stream where it is not −1, before each time; −1 none."""
        found = np.full(len(at), -1, np.int64)
        for known, key, asked in (
            (stream < 0, self.process, process),
            (stream >= 0, self._streams(self.process, self.stream), self._streams(process, stream)),
        ):
            rows = np.flatnonzero(known)
            if len(rows):
                found[rows] = _neighbour(key, self.at, asked[rows], at[rows], -1)
        return found

    def first_after(self, thread: np.ndarray, at: np.ndarray) -> np.ndarray:
        return _neighbour(self.thread, self.at, thread, at, 0)

    def first_of_stream(self, process: np.ndarray, stream: np.ndarray, at: np.ndarray) -> np.ndarray:
        return _neighbour(self._streams(self.process, self.stream), self.at, self._streams(process, stream), at, 0)

    @staticmethod
    def _streams(process: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return process.astype(np.int64) * (1 << 40) + stream

    def ids(self, position: np.ndarray) -> np.ndarray:
        """Correlation ids, NaN where the position is −1."""
        values = np.full(len(position), np.nan)
        known = position >= 0
        values[known] = self.correlation[position[known]]
        return values


def _frame(trace: Trace, columns: dict[str, Any], process: np.ndarray, thread: np.ndarray) -> pd.DataFrame:
    columns["process_id"] = trace.processes["process_id"].to_numpy()[process]
    columns["thread_id"] = trace.threads["thread_id"].to_numpy()[thread]
    return pd.DataFrame({name: columns.get(name, "") for name in COLUMNS})


def _neighbour(group: np.ndarray, at: np.ndarray, asked_group: np.ndarray, asked: np.ndarray, step: int) -> np.ndarray:
    """Position of the last entry of the same group before each time (step −1), or of the first not before it (0)."""
    found = np.full(len(asked), -1, np.int64)
    if not len(group) or not len(asked):
        return found
    codes, groups = pd.factorize(np.concatenate([group, asked_group]))
    own, wanted = codes[: len(group)], codes[len(group) :]
    times = np.concatenate([at, asked])
    if int(times.max()) - int(times.min()) >= (1 << 62) // len(groups):  # a damaged file: in order they are fewer
        times = np.unique(times, return_inverse=True)[1]
    at, asked = times[: len(group)], times[len(group) :]
    keys = Keys(int(times.min()), int(times.max()), len(groups))
    key = keys.of(own, at)
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], keys.of(wanted, asked), side="left") + step
    inside = (place >= 0) & (place < len(order))
    inside[inside] = own[order[place[inside]]] == wanted[inside]
    found[inside] = order[place[inside]]
    return found
