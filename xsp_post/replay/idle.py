"""Tree → why each device waited: its idle time cut into pieces, each with one cause and one owner.

A gap is explained by the operation that ended it: before its launch call returned, by what the launching thread did;
after that, by the way from the call to the device. The lengths of all pieces of a device sum to its idle time, to the
nanosecond.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import cut, distinct
from xsp_post.arrays.joins import rows_of
from xsp_post.arrays.texts import Strings
from xsp_post.model.trace import UNIFIED_COPIES, ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.replay.calls import LATENCY_LIMIT_NS, loads_code
from xsp_post.replay.gaps import Gaps, device_codes, different, find_gaps, waiting_kernels
from xsp_post.replay.host_state import Cause, HostState, Pieces
from xsp_post.replay.waits import host_functions

_NO_LAYER = -1
HOST_FUNCTION = "a function of the host on the stream"  # what an operation waited for
_AT_ONCE = 120_000  # gaps, or ranges and calls that cut them: what is made at once grows with both


@dataclass
class Idle:
    """The idle time of every device, cut.

    pieces   device (row of devices), gap (row of the gap), start_ns, end_ns, cause (`Cause`), call_id (into strings,
             −1 none), node_id (−1 none), layer_node_id (−1 none), iteration_index (−1 outside executions),
             next_activity, previous_activity (rows of tree.activities, −1 none), detail_id (into strings, −1: what
             was waited for, or why it took long)
    devices  device_id (gpu_index), start_ns, end_ns (the window), busy_ns
    """

    pieces: pd.DataFrame
    devices: pd.DataFrame
    strings: Strings
    gap_count: int = 0

    def blocks(self) -> Iterator[pd.DataFrame]:
        """All pieces at once."""
        yield self.pieces


class _Launched(NamedTuple):
    """Of each gap the call that ended it, and of what ended before; −1 where it was not recorded."""

    call: np.ndarray  # row of trace.launches: of the operation that ended the gap, of the last one after the last
    thread: np.ndarray
    returned: np.ndarray  # when the call was over; the gap's end after the last operation
    thread_before: np.ndarray  # that launched the operation before
    function: np.ndarray  # name id of the call that has its stream run a function of the host before the operation


class IdleBlocks:
    """The gaps of every device, cut by cause, some ten thousand at a time: memory holds one block."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._gaps = find_gaps(tree)
        self._state, self._waits = HostState(tree), _waits_of_devices(tree)
        self.devices = self._gaps.devices
        self.gap_count = len(self._gaps.start)

    @property
    def strings(self) -> Strings:
        """The texts that the pieces number; known when all blocks are made."""
        return self._state.strings()

    def blocks(self) -> Iterator[pd.DataFrame]:
        """`Idle.pieces` in blocks, in order of device and time; at least one, which may be empty."""
        tree, state, gaps = self._tree, self._state, self._gaps
        edges = distinct(np.concatenate(gaps.runs))
        runs = _runs_of_devices(tree, gaps)
        first_launches = _first_launches(tree)
        launched = _launched(tree, gaps)
        calls = pd.unique(tree.trace.launches["name_id"].to_numpy())
        graph_launches = [one for one in calls.tolist() if one >= 0 and "GraphLaunch" in str(tree.strings[one])]
        for some in _blocks(gaps.device, len(tree.nodes) + len(tree.trace.launches)):
            _watch(state, gaps, launched, some)
            cut_gaps = _cut_at_executions(tree, gaps, some, edges, runs)
            pieces = _explain(tree, state, gaps, launched, graph_launches, *cut_gaps)
            if len(self._waits):
                _mark_device_waits(self._waits, pieces)
            pieces["layer_node_id"] = _layers(tree, pieces)
            pieces["cause"], pieces["detail_id"] = _details(tree, pieces, first_launches)
            yield _coalesced(pieces)


def _blocks(device: np.ndarray, edges: int) -> Iterator[slice]:
    """Stretches of gaps of one device: those of one thread are disjoint within a device only."""
    begins = np.append(np.flatnonzero(np.diff(device, prepend=-1)), len(device))
    step = max(_AT_ONCE * len(device) // max(len(device), edges, 1), 1)
    for first, last in zip(begins[:-1].tolist(), begins[1:].tolist()):
        for low in range(first, last, step):
            yield slice(low, min(low + step, last))
    if not len(device):
        yield slice(0, 0)


def _cut_at_executions(
    tree: Tree, gaps: Gaps, some: slice, edges: np.ndarray, runs: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gaps of one device cut where executions begin and end: row of the gap, start, end, execution (−1 outside).

    Where several executions cover a piece it counts for that of the operation which ended the gap, if it is one
    of them, else for the one that started last."""
    run_start, run_end = gaps.runs
    row, start, end = cut(gaps.start[some], gaps.end[some], edges)
    row += some.start
    if not len(run_start) or not len(row):
        return row, start, end, np.full(len(row), -1, np.int64)
    mine = runs[int(gaps.device[some.start])]
    iteration = _last_started(run_start[mine], run_end[mine], start, end, mine)
    following = gaps.next[row]
    wanted = np.where(following >= 0, tree.activities["iteration_index"].to_numpy()[following], -1)
    known = np.flatnonzero(wanted >= 0)
    covers = (run_start[wanted[known]] <= start[known]) & (run_end[wanted[known]] >= end[known])
    iteration[known[covers]] = wanted[known[covers]]
    return row, start, end, iteration


def _runs_of_devices(tree: Tree, gaps: Gaps) -> list[np.ndarray]:
    """Of each device the executions (rows of tree.iterations) of the processes that used it."""
    if not len(gaps.runs[0]):
        return []
    process, run_process = (frame["process_index"].to_numpy() for frame in (tree.activities, tree.iterations))
    result = []
    for device in range(len(gaps.devices)):
        rows = rows_of(gaps.device == device)
        beside = np.concatenate([gaps.next[rows], gaps.previous[rows]])
        result.append(np.flatnonzero(np.isin(run_process, different(process[beside[beside >= 0]]))))
    return result


def _last_started(
    run_start: np.ndarray, run_end: np.ndarray, start: np.ndarray, end: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """The execution that started last among those around each piece, −1 for none; pieces are cut at their edges."""
    found = np.full(len(start), -1, np.int64)
    order = np.argsort(run_start, kind="stable")
    s, e = run_start[order], run_end[order]
    at = np.searchsorted(s, start, side="right") - 1
    active = np.flatnonzero(at >= 0)
    reach = np.maximum.accumulate(e)
    while len(active):  # as often as executions overlap one another
        covers = e[at[active]] >= end[active]
        found[active[covers]] = numbers[order[at[active[covers]]]]
        active = active[~covers]
        at[active] -= 1
        active = active[at[active] >= 0]
        active = active[reach[at[active]] >= end[active]]
    return found


def _launched(tree: Tree, gaps: Gaps) -> _Launched:
    launches, launch_id = tree.trace.launches, tree.activities["launch_id"].to_numpy()
    is_tail = gaps.next < 0
    # after the last operation it is the thread that launched that one
    asked = np.where(is_tail, gaps.previous, gaps.next)
    call, before = (np.where(rows >= 0, launch_id[rows], -1).astype(np.int32) for rows in (asked, gaps.previous))
    function = np.full(len(launch_id) + 1, -1, np.int32)
    calls, behind = host_functions(tree.trace, launch_id)
    function[behind] = launches["name_id"].to_numpy()[calls]
    function = function[gaps.next]
    if not len(launches):
        return _Launched(call, call, gaps.end, call, function)
    thread = np.append(launches["thread_index"].to_numpy(), np.int32(-1))
    returned = np.where(is_tail | (call < 0), gaps.end, launches["end_ns"].to_numpy()[call])
    return _Launched(call, thread[call], returned, thread[before], function)


def _watch(state: HostState, gaps: Gaps, launched: _Launched, some: slice) -> None:
    """Get ready what the threads did before each launch: the one that launched, and the one that launched before."""
    start, thread, before = gaps.start[some], launched.thread[some], launched.thread_before[some]
    middle = np.clip(launched.returned[some], start, gaps.end[some])
    own = np.flatnonzero((launched.call[some] >= 0) & (middle > start))
    other = own[(before[own] >= 0) & (before[own] != thread[own])]
    rows = np.concatenate([own, other])
    state.watch(np.concatenate([thread[own], before[other]]), start[rows], middle[rows])


def _explain(
    tree: Tree, state: HostState, gaps: Gaps, launched: _Launched, graph_launches: list[int], row: np.ndarray,
    start: np.ndarray, end: np.ndarray, iteration: np.ndarray,
) -> pd.DataFrame:  # fmt: skip
    """Pieces of one device: the host's part by its state, the rest by the way to the device."""
    has = launched.call[row] >= 0
    middle = np.clip(launched.returned[row], start, end)
    host = np.flatnonzero(has & (middle > start))
    thread = launched.thread[row]
    pieces = state.pieces(thread[host], start[host], middle[host])
    pieces.row = host[pieces.row]
    parts = _ask_previous_thread(state, pieces, thread, launched.thread_before[row])
    late = np.flatnonzero(has & (end > middle))
    waits_for = state.text_id(HOST_FUNCTION)
    parts.append(_on_the_way(tree, gaps, launched, waits_for, late, middle[late], end[late], row[late]))
    lost = np.flatnonzero(~has)
    # pages that move without a call of the program
    moves = np.isin(tree.activities["copy_kind"].to_numpy()[gaps.next[row[lost]]], UNIFIED_COPIES)
    moves &= gaps.next[row[lost]] >= 0
    unknown = np.where(moves, int(Cause.PAGE_MIGRATION), int(Cause.UNKNOWN)).astype(np.int8)
    none = np.full(len(lost), -1, np.int32)
    parts.append(Pieces(lost, start[lost], end[lost], unknown, none, none, none))
    whole = Pieces(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Pieces)[:-1]))
    gap = row[whole.row]
    if graph_launches:
        rows = np.flatnonzero(np.isin(whole.call, graph_launches))
        rows = rows[np.isin(whole.cause[rows], (int(Cause.LAUNCH_CALL), int(Cause.LAUNCH_LATENCY)))]
        # before the first node, not between two
        launch = np.append(tree.activities["launch_id"].to_numpy(), -2)
        rows = rows[launch[gaps.previous[gap[rows]]] != launch[gaps.next[gap[rows]]]]
        whole.cause[rows] = int(Cause.GRAPH_LAUNCH)
    numbers = {
        "gap": gap, "call_id": whole.call, "node_id": whole.node, "iteration_index": iteration[whole.row],
        "next_activity": gaps.next[gap], "previous_activity": gaps.previous[gap], "detail_id": whole.detail,
    }  # fmt: skip
    return pd.DataFrame({
        "device": gaps.device[gap].astype(np.int16, copy=False),
        "start_ns": whole.start, "end_ns": whole.end, "cause": whole.cause,
        **{name: values.astype(np.int32, copy=False) for name, values in numbers.items()},
    }, copy=False)  # fmt: skip


def _ask_previous_thread(state: HostState, pieces: Pieces, thread: np.ndarray, before: np.ndarray) -> list[Pieces]:
    """Where the launching thread did nothing that was recorded, the work was still with the thread that launched
    the operation before (an autograd thread waits for the main thread): what that one did explains the wait."""
    own, other = thread[pieces.row], before[pieces.row]
    asked = np.flatnonzero(pieces.is_bare & (other >= 0) & (other != own))
    if not len(asked):
        return [pieces]
    second = state.pieces(other[asked], pieces.start[asked], pieces.end[asked])
    # where that thread says nothing either, the first answer stays
    silent = np.bincount(second.row, weights=~second.is_bare, minlength=len(asked)) == 0
    kept = np.ones(len(pieces.row), bool)
    kept[asked[~silent]] = False
    chosen = ~silent[second.row]
    second.row = pieces.row[asked[second.row]]
    return [pieces.some(kept), second.some(chosen)]


def _on_the_way(
    tree: Tree, gaps: Gaps, launched: _Launched, waits_for: int, at: np.ndarray, start: np.ndarray, end: np.ndarray,
    gap: np.ndarray,
) -> Pieces:  # fmt: skip
    """From the launch call's return to the start on the device: latency; or the operation was launched while another
    one ran, on another stream or by the copy engine, and started only after that one had ended; or it waited for a
    function of the host (``waits_for``: its text)."""
    activities = tree.activities
    following, previous = gaps.next[gap], gaps.previous[gap]
    stream, kind = activities["stream_id"].to_numpy(), activities["kind"].to_numpy()
    has_previous = previous >= 0
    before = np.maximum(previous, 0)
    differs = (stream[following] != stream[before]) | (_is_copy(kind[following]) != _is_copy(kind[before]))
    returned = launched.returned[gap]
    queued = has_previous & differs & (returned <= gaps.start[gap])
    cause = np.where(queued, int(Cause.QUEUED), int(Cause.LAUNCH_LATENCY)).astype(np.int8)
    cause[end - start > LATENCY_LIMIT_NS] = int(Cause.NOT_RECORDED)
    function = launched.function[gap]
    cause[function >= 0] = int(Cause.THREAD_WAIT)
    call = np.where(function >= 0, function, tree.trace.launches["name_id"].to_numpy()[launched.call[gap]])
    node = activities["node_id"].to_numpy()[following]
    return Pieces(at, start, end, cause, call, node, np.where(function >= 0, waits_for, -1))


def _waits_of_devices(tree: Tree) -> pd.DataFrame:
    """The kernels that only wait, by device and start; ``reach_ns``: the last end so far."""
    rows = waiting_kernels(tree)
    device = device_codes(tree)[0][rows] if len(rows) else rows
    frame = tree.activities.iloc[rows][["start_ns", "end_ns", "short_name_id"]].assign(device=device)
    frame = frame.sort_values(["device", "start_ns"], kind="stable")
    return frame.assign(reach_ns=frame.groupby("device")["end_ns"].cummax())


def _mark_device_waits(waits: pd.DataFrame, pieces: pd.DataFrame) -> None:
    """On the way to a device that ran a kernel which waits, an operation waited for what that one did (in place)."""
    late = (Cause.LAUNCH_LATENCY, Cause.QUEUED, Cause.NOT_RECORDED, Cause.UNKNOWN)
    rows = np.flatnonzero(np.isin(pieces["cause"], [int(one) for one in late]) & (pieces["device"] >= 0))
    start, end, device = (pieces[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "device"))
    cause, detail = pieces["cause"].to_numpy().copy(), pieces["detail_id"].to_numpy().copy()
    for one, mine in waits.groupby("device"):
        at = np.searchsorted(mine["start_ns"].to_numpy(), end) - 1
        reach, name = (mine[column].to_numpy()[np.maximum(at, 0)] for column in ("reach_ns", "short_name_id"))
        hit = (device == one) & (at >= 0) & (reach - start > (end - start) / 2)
        cause[rows[hit]], detail[rows[hit]] = int(Cause.DEVICE_WAIT), name[hit]
    pieces["cause"], pieces["detail_id"] = cause, detail


def _is_copy(kind: np.ndarray) -> np.ndarray:
    return (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)


def _layers(tree: Tree, pieces: pd.DataFrame) -> np.ndarray:
    """The layer a piece belongs to: that of its range; of the operation that ended the gap, where both were in one
    range. −1 for none."""
    node = pieces["node_id"].to_numpy()
    layer_of = tree.nodes["layer_node_id"].to_numpy()
    layer = np.where(node >= 0, layer_of[np.maximum(node, 0)], _NO_LAYER)
    following, activities = pieces["next_activity"].to_numpy(), tree.activities
    rows = np.flatnonzero((following >= 0) & (layer < 0))
    at, own = following[rows], node[rows]
    same = (activities["launch_node_id"].to_numpy()[at] == own) | (activities["node_id"].to_numpy()[at] == own)
    layer[rows[same]] = activities["layer_node_id"].to_numpy()[at[same]]
    return layer.astype(np.int32)


def _details(tree: Tree, pieces: pd.DataFrame, slow: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The causes, and what a synchronisation or a queued operation waited for (the operation that ended last); text
    ids, −1 for none. Launches that loaded code (``slow``, per activity) are a cause of their own."""
    cause, detail = (pieces[name].to_numpy().copy() for name in ("cause", "detail_id"))
    if not len(tree.activities):
        return cause, detail
    previous = pieces["previous_activity"].to_numpy()
    waits = (previous >= 0) & np.isin(cause, (int(Cause.SYNCHRONIZATION), int(Cause.QUEUED)))
    detail[waits] = tree.activities["short_name_id"].to_numpy()[previous[waits]]
    following = pieces["next_activity"].to_numpy()
    loads = np.flatnonzero((cause == int(Cause.LAUNCH_CALL)) & (following >= 0) & slow[following])
    launch = tree.activities["launch_id"].to_numpy()[following[loads]]
    loads = loads[pieces["start_ns"].to_numpy()[loads] >= tree.trace.launches["start_ns"].to_numpy()[launch]]
    cause[loads] = int(Cause.FIRST_LAUNCH)
    return cause, detail


def _first_launches(tree: Tree) -> np.ndarray:
    """Kernels whose launch was the first of their name in their process, and took ten times the usual and more."""
    activities, launches = tree.activities, tree.trace.launches
    launch = activities["launch_id"].to_numpy()
    result = np.zeros(len(activities), bool)
    is_launched = (launch >= 0) & (activities["kind"].to_numpy() == ActivityKind.KERNEL)
    rows = slice(None) if is_launched.all() else np.flatnonzero(is_launched)
    launch = launch[rows]
    start, end = launches["start_ns"].to_numpy()[launch], launches["end_ns"].to_numpy()[launch]
    process, name = activities["process_index"].to_numpy()[rows], activities["name_id"].to_numpy()[rows]
    if len(different(process)) > 1:
        name = process.astype(np.int64) * (len(tree.strings) + 1) + name
    result[rows] = loads_code(start, end, name)
    return result


def _coalesced(pieces: pd.DataFrame) -> pd.DataFrame:
    """Of one device in order of time, neighbours of one gap that differ in nothing made one."""
    order = np.argsort(pieces["start_ns"].to_numpy(), kind="stable")
    same = np.ones(max(len(pieces) - 1, 0), bool)
    for column in ("gap", "cause", "call_id", "node_id", "iteration_index", "layer_node_id", "detail_id"):
        values = pieces[column].to_numpy()[order]
        same &= values[1:] == values[:-1]
    first = np.flatnonzero(np.r_[True, ~same][: len(pieces)])
    last = np.r_[first[1:] - 1, len(pieces) - 1][: len(first)]
    end = pieces["end_ns"].to_numpy()[order[last]]
    rows = order[first]
    return pd.DataFrame({str(name): pieces[name].to_numpy()[rows] for name in pieces} | {"end_ns": end}, copy=False)
