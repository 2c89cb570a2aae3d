"""A recording → the parameters of a replay: launch latencies, gaps between operations, depth of the
launch queue, which calls blocked and how much of each call was waiting.

All are medians or per-call splits of *host* times. The recorded start of a device operation is an input of no
simulated time: it serves to learn the few numbers here, of a whole capture, and to see which call waited.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct_pairs
from xsp_post.model.kinds import ActivityKind
from xsp_post.names.families import normalise_kernel_name
from xsp_post.replay.collectives import meetings_of
from xsp_post.replay.edges import EVENT_WAIT, WAITS
from xsp_post.replay.recording import CLOCK_TOLERANCE_NS, Operations, Recording

_DEFAULT_LATENCY_NS = 3_000
_DEFAULT_GAP_NS = 1_000
CLEARLY_NS = 10_000  # an operation was queued when its call ended this long before its stream was free
_RETURN_TOLERANCE_NS = 20_000  # a device or stream wait may seem to return this much before the work ended
_TRIED = 4  # operations that ended last, of which one may be what another waited for
_DEEPEST = 1 << 14
_FEW_AHEAD = 32  # launches ahead of the device that tell nothing of a full queue
_MOST_ENDED = 0.9  # of the kernels before their call: by chance some short ones do
_GRAPH_GROUP = 2 * len(ActivityKind)  # groups of operations from here on are nodes of graphs


@dataclass
class Learnt:
    """Numbers of a capture. Arrays: per operation (o) or per call (c)."""

    latency_ns: np.ndarray  # o: from the end of its call (blocking: its start) until it may start
    gap_ns: np.ndarray  # o: after the operation before it on the stream
    is_node: np.ndarray  # o: a node of a graph: its call launched several operations
    is_blocking: np.ndarray  # o: its call returned when it had ended
    after_ns: np.ndarray  # c: of a waiting or blocking call, from the end of what it waited for to its return
    own_ns: np.ndarray  # c: what the call takes without waiting
    waited: np.ndarray  # c: position of the operation it waited for last, −1 none
    queue_depth: int  # operations that may be launched ahead on a stream, 0 not seen
    queue_wait_ns: int  # after the operation that made room had started
    orders: np.ndarray  # (edges, 2) operations: events of other streams that were recorded or are evident
    order_ns: int  # from the end of the first to the start of the second
    meetings: np.ndarray  # (meetings, ranks) operations of one collective
    spins: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # kernels that wait, and what for


def learn(recording: Recording) -> Learnt:
    """Learn from one recording. Steps are independent of any change that is simulated later."""
    calls, operations = recording.calls, recording.operations
    previous_end = ended_before(recording)
    free = _free(previous_end, operations, recording.orders)
    has_call = operations.call >= 0
    call_start, call_end = (np.append(times, 0)[operations.call] for times in (calls.start_ns, calls.end_ns))
    is_host = recording.stream_is_host[operations.stream]
    is_copy = operations.kind == ActivityKind.MEMCPY
    # a copy from pageable memory goes on while its call lasts, and may end a little after it
    during = (call_end - operations.start_ns) * 2 > operations.duration_ns
    is_blocking = has_call & (is_host | (is_copy & during & (operations.start_ns < call_end)))
    is_blocking |= _blocking_launches(operations, has_call & ~is_host, call_end)
    anchor = np.where(is_blocking, call_start, call_end)
    is_node, follows_node = _graph_nodes(operations, is_host)
    group = operations.kind * 2 + is_blocking + _GRAPH_GROUP * is_node
    behind = recording.behind_host & has_call & ~is_host & ~follows_node
    starts = has_call & ~is_host & ~follows_node & ~behind
    least = _least_latency(operations.start_ns - anchor, starts & (free <= call_start))
    orders, order_ns = _orders(recording, np.maximum(free, anchor + least))
    free = _free(previous_end, operations, orders)
    is_behind = starts & _behind_earlier_work(recording, previous_end, call_end)
    latency = _latencies(operations.start_ns - anchor, starts & (free <= call_start) & ~is_behind, group)
    # it started when its launch had arrived: no launch took longer than until then
    latency = np.where(has_call, np.minimum(latency, np.maximum(operations.start_ns - anchor, 0)), latency)
    latency[is_behind] = (operations.start_ns - anchor)[is_behind]
    latency[is_host] = 0
    is_queued = starts & (call_end + CLEARLY_NS < previous_end) & (free == previous_end)
    gap = _gaps(operations.start_ns - previous_end, is_queued, operations.kind)
    gap[is_host] = 0
    # a function of the host takes its time behind the work before it, or behind its own call
    begun = (operations.start_ns - np.maximum(previous_end, call_end))[behind]
    gap[behind] = latency[behind] = np.maximum(begun, 0)
    # inside a graph the device goes on by itself: a node follows the one before it as it did
    latency[follows_node] = np.minimum(latency[follows_node], 0)  # below 0: nodes run while the call lasts
    gap[follows_node] = (operations.start_ns - previous_end)[follows_node]  # below 0: it began before that had ended
    own, after = (calls.end_ns - calls.start_ns).copy(), np.zeros(len(calls), np.int64)
    waited = _waited(recording)
    _split_waits(recording, waited, own, after)
    _split_blocking(recording, is_blocking, previous_end, latency, gap, own, after)
    depth, queue_wait = _queue(recording, own, is_blocking)
    meetings, spins = meetings_in(recording), _spins(recording)
    orders = distinct_pairs(np.concatenate([orders, spins[:, ::-1]]))
    return Learnt(
        latency, gap, is_node, is_blocking, after, own, waited, depth, queue_wait, orders, order_ns, meetings, spins,
    )  # fmt: skip


def _blocking_launches(operations: Operations, has_call: np.ndarray, call_end: np.ndarray) -> np.ndarray:
    """All kernels, where nearly all ended before the call that launched them (CUDA_LAUNCH_BLOCKING=1); bool."""
    kernels = has_call & (operations.kind == ActivityKind.KERNEL)
    ended = operations.end_ns[kernels] <= call_end[kernels]
    return kernels & (kernels.sum() >= _FEW_AHEAD and ended.mean() >= _MOST_ENDED)


def _graph_nodes(operations: Operations, is_host: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which operations are nodes of a graph (their call launched several), and which of these follow another node of
    their call on its stream; bool each."""
    has_call = (operations.call >= 0) & ~is_host
    per_call = np.bincount(operations.call[has_call])
    is_node = np.zeros(len(operations), bool)
    is_node[has_call] = per_call[operations.call[has_call]] > 1
    order = np.argsort(operations.stream, kind="stable")
    follows = np.zeros(len(operations), bool)
    same_stream = operations.stream[order][1:] == operations.stream[order][:-1]
    follows[order[1:]] = same_stream & (operations.call[order][1:] == operations.call[order][:-1])
    return is_node, is_node & follows


def ended_before(recording: Recording) -> np.ndarray:
    """When the stream was free of everything before each operation; −1 for the first."""
    operations = recording.operations
    order = np.argsort(operations.stream, kind="stable")
    ends = pd.Series(operations.end_ns[order]).groupby(operations.stream[order])
    before = np.empty(len(operations), np.int64)
    before[order] = ends.cummax().groupby(operations.stream[order]).shift(fill_value=-1).to_numpy(np.int64)
    return before


def _behind_earlier_work(recording: Recording, previous_end: np.ndarray, call_end: np.ndarray) -> np.ndarray:
    """Which operations, the first of their stream, began when many launches of the stream had returned: what was
    launched before this part of the recording kept the stream busy. bool each."""
    operations = recording.operations
    first = np.flatnonzero((previous_end < 0) & (operations.call >= 0))
    begin = np.full(len(recording.stream_process), -1, np.int64)
    begin[operations.stream[first]] = operations.start_ns[first]
    returned = (operations.call >= 0) & (call_end < begin[operations.stream])
    result = np.zeros(len(operations), bool)
    ahead = np.bincount(operations.stream[returned], minlength=len(begin))
    result[first] = ahead[operations.stream[first]] > _FEW_AHEAD
    return result


def _free(previous_end: np.ndarray, operations: Operations, orders: np.ndarray) -> np.ndarray:
    """When the stream was free and what it waited for of other streams had ended, for each operation."""
    free = previous_end.copy()
    np.maximum.at(free, orders[:, 1], operations.end_ns[orders[:, 0]])
    return free


def _least_latency(sample: np.ndarray, usable: np.ndarray) -> int:
    """What a launch takes that waits for nothing: some of those that seem to wait for nothing do wait."""
    if not usable.any():
        return _DEFAULT_LATENCY_NS
    return round(min(max(float(np.quantile(sample[usable], 0.1)), 0), CLEARLY_NS))


def _latencies(sample: np.ndarray, usable: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The median latency of each kind of operation, as an array over the operations."""
    result = np.full(len(sample), _DEFAULT_LATENCY_NS, np.int64)
    for one in np.unique(group).tolist():
        mine = usable & (group == one)
        known = mine if mine.any() else usable & (group % 2 == one % 2)
        if known.any():
            result[group == one] = round(float(np.median(sample[known])))
    return result


def _gaps(sample: np.ndarray, usable: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The usual gap between an operation and the one before it when both were launched long before."""
    result = np.full(len(sample), _usual_gap(sample[usable]), np.int64)
    for one in np.unique(group).tolist():
        result[group == one] = _usual_gap(sample[usable & (group == one)], int(result[0]) if len(result) else 0)
    return result


def _usual_gap(values: np.ndarray, otherwise: int = _DEFAULT_GAP_NS) -> int:
    """The mean without the largest twentieth: gaps are summed, and a few of them are something else."""
    return round(float(values[values <= np.quantile(values, 0.95)].mean())) if len(values) else otherwise


def _waited(recording: Recording) -> np.ndarray:
    """For each call that waits: the operation, launched before it, that ended last before its return; −1 none.

    A device or event wait may concern any stream of its process; an event was recorded at some time before, so
    operations that ended after the return are not part of it.
    """
    calls, operations = recording.calls, recording.operations
    rows = np.flatnonzero(calls.wait >= 0)
    best, best_end = np.full(len(calls), -1, np.int64), np.full(len(calls), -1, np.int64)
    for stream, process in enumerate(recording.stream_process.tolist()):
        mine = np.flatnonzero(operations.stream == stream)
        of_stream = (calls.stream_id[rows] < 0) | (calls.stream_id[rows] == recording.stream_id[stream])
        asked = rows[(calls.process[rows] == process) & of_stream]
        if not len(mine) or not len(asked):
            continue
        ends = np.maximum.accumulate(operations.end_ns[mine])
        launched = np.searchsorted(operations.place[mine] - (operations.call[mine] < 0), asked, side="left")
        # a device or stream wait is for all of a stream's work or for none of it; clocks differ by microseconds
        whole = calls.wait[asked] < WAITS.index(EVENT_WAIT)
        returned = calls.end_ns[asked] + np.where(whole, _RETURN_TOLERANCE_NS, CLOCK_TOLERANCE_NS)
        ended = np.searchsorted(ends, returned, side="right")
        place = np.minimum(launched, ended) - 1
        place = np.where(whole & (ended < launched), -1, place)
        # an event stands between two calls, never between two nodes of one graph
        is_last = np.append(operations.call[mine][1:] != operations.call[mine][:-1], True) | (operations.call[mine] < 0)
        last = np.maximum.accumulate(np.where(is_last, np.arange(len(mine)), -1))
        place = np.where(whole | (place < 0), place, last[np.maximum(place, 0)])
        end = np.where(place >= 0, ends[np.maximum(place, 0)], -1)
        better = end > best_end[asked]
        best[asked[better]] = mine[place[better]]
        best_end[asked[better]] = end[better]
    return best


def _split_waits(recording: Recording, waited: np.ndarray, own: np.ndarray, after: np.ndarray) -> None:
    """Split the waiting calls (in place): a call that returned after the device was done took what follows that."""
    calls, operations = recording.calls, recording.operations
    rows = np.flatnonzero((calls.wait >= 0) & (waited >= 0))
    end = operations.end_ns[waited[rows]]
    did_wait = end > calls.start_ns[rows]
    # nothing was pending: what it took is its own time, and what it takes after a wait is the usual
    late = rows[did_wait]
    after[late] = calls.end_ns[late] - end[did_wait]
    own[late] = 0
    for kind in range(len(WAITS)):
        mine = late[calls.wait[late] == kind]
        usual = int(np.median(after[mine])) if len(mine) else _DEFAULT_LATENCY_NS
        usual = max(usual, 0)
        early = rows[~did_wait & (calls.wait[rows] == kind)]
        after[early] = np.minimum(usual, own[early])


def _split_blocking(
    recording: Recording, is_blocking: np.ndarray, previous_end: np.ndarray, latency: np.ndarray, gap: np.ndarray,
    own: np.ndarray, after: np.ndarray,
) -> None:  # fmt: skip
    """Split the calls that block for their own operation (in place) into host time before and after it.

    The host's share is the length of the call without that of the operation: what usually follows the operation
    comes after it, the rest before. The rest is the call's own work (staging, pinning) where the stream was free, or
    where most of it passed after the stream had become free. Else the call waited for its stream: its own work is the
    usual one, and what passed after the stream had become free is a gap of the stream.
    """
    calls, operations = recording.calls, recording.operations
    rows = np.flatnonzero(is_blocking)
    if not len(rows):
        return
    call = operations.call[rows]
    length = calls.end_ns[call] - calls.start_ns[call]
    names = pd.factorize(operations.name[rows])[0]
    returned = calls.end_ns[call] - operations.end_ns[rows]  # negative: it returned a little before
    share = length - operations.duration_ns[rows]
    usual_after = pd.Series(returned).groupby(names).transform("median").to_numpy()
    queued = np.maximum(previous_end[rows] - calls.start_ns[call], 0)
    later = share - usual_after - queued  # from the time the stream was free
    idle = (queued == 0) | (later > np.maximum(queued, CLEARLY_NS))
    own[call] = 0
    after[call] = np.where(idle, np.minimum(share, usual_after), returned)
    before = share - after[call]
    usual = pd.Series(np.where(idle, before, np.nan)).groupby(names).transform("median")
    every = float(np.median(before[idle])) if idle.any() else float(_DEFAULT_LATENCY_NS)
    latency[rows] = np.where(idle, before, np.minimum(usual.fillna(every).to_numpy(), before)).round()
    waited = np.where(idle, np.nan, np.maximum(before - queued, 0))
    gap[rows] = pd.Series(waited).groupby(names).transform("median").fillna(pd.Series(gap[rows])).round()
    is_host = recording.stream_is_host[operations.stream[rows]]
    latency[rows[is_host]] = 0
    after[call[is_host]] = 0


def _queue(recording: Recording, own: np.ndarray, is_blocking: np.ndarray) -> tuple[int, int]:
    """The depth of the launch queue, and how long after room was made a launch returned; (0, 0): never full.

    A launch is taken as blocked where it took far longer than usual and returned just after an older operation of
    its stream had started; the number launched since that one is the depth when most blocked launches agree on it.
    Their own time (in place) becomes the usual one. What is usual for a graph are the launches of as many nodes; with
    no wait since the graph before it, nothing but a full queue keeps the host as far ahead each time, and a usual
    launch is that of one kernel. In a part of a recording operations from before it fill the queue: launches before
    any of its own operations began do not say how deep it is, and were held back alike.
    """
    calls, operations = recording.calls, recording.operations
    has_call, waits = operations.call >= 0, calls.wait >= 0
    if (has_call & (operations.kind != ActivityKind.MEMCPY)).sum() < 64:
        return 0, 0
    count = np.bincount(operations.call[has_call], minlength=len(calls))
    waits[operations.call[is_blocking]] = True
    waited = np.maximum.accumulate(np.where(waits, np.arange(len(calls)), -1))
    times = pd.Series(own).mask(waits | (count == 0)).astype(float)
    usual = times.groupby(count).transform("quantile", 0.05).to_numpy().copy()
    free = float(np.append(usual[count == 1], _DEFAULT_LATENCY_NS)[0])  # of a launch that nothing holds back
    found: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64),) * 3]
    for stream in range(len(recording.stream_process)):
        mine = np.flatnonzero((operations.stream == stream) & has_call)
        if len(mine) < 64 or recording.stream_is_host[stream]:
            continue
        start = np.maximum.accumulate(operations.start_ns[mine])
        first = np.flatnonzero(np.diff(operations.call[mine], prepend=-1))
        call = operations.call[mine[first]]
        graphs = call[count[call] > 1]
        usual[graphs[waited[graphs] < np.append(0, graphs[:-1])]] = free
        slow = own[call] > np.maximum(3 * usual[call], usual[call] + CLEARLY_NS)
        first, call = first[slow], call[slow]
        started = np.searchsorted(start, calls.end_ns[call], side="right")  # operations that had started then
        # launched, this one included, and not started; below 0: none had started
        found.append((first - started + 1, calls.end_ns[call] - start[np.maximum(started - 1, 0)], call))
    ahead, wait, rows = (np.concatenate(columns) for columns in zip(*found))
    deep = (ahead > _FEW_AHEAD) & (wait >= 0)
    if deep.sum() < _TRIED or count[rows[deep]].sum() < 16:
        return 0, 0
    depth = int(np.median(ahead[deep]))
    agree = deep & (np.abs(ahead - depth) <= max(4, depth // 50))
    if agree.sum() < 0.5 * deep.sum() or depth > _DEEPEST:
        return 0, 0
    early = (ahead > _FEW_AHEAD) | ((ahead + count[rows] > _FEW_AHEAD + 1) & (wait < -CLEARLY_NS))
    held = rows[agree | (early & (wait < 0) & (ahead <= depth))]
    times[np.union1d(held, rows[wait < 0])] = np.nan
    own[held] = times.groupby(count).transform("median").fillna(free).to_numpy()[held].round()
    return depth, int(np.median(wait[agree]))


def _orders(recording: Recording, ready: np.ndarray) -> tuple[np.ndarray, int]:
    """Which operations waited for one of another stream: as events say, else where it is evident, and how long after
    its end they began.

    Evident (events that were not recorded, the rules of the legacy default stream): it started much later than its
    launch and its own stream allow, and just when an operation of another stream, launched before it, had ended.
    """
    operations = recording.operations
    orders = recording.orders
    for process in np.unique(recording.stream_process).tolist():
        if (recording.stream_process == process).sum() < 2:
            continue
        mine = np.flatnonzero((operations.process == process) & ~recording.stream_is_host[operations.stream])
        late = mine[(operations.start_ns[mine] - ready[mine] > CLEARLY_NS) & (operations.call[mine] >= 0)]
        by_end = mine[np.argsort(operations.end_ns[mine], kind="stable")]
        place = np.searchsorted(operations.end_ns[by_end], operations.start_ns[late] + 500, side="right") - 1
        for back in range(_TRIED):  # the latest that ended: short ones that began with it are none
            cause = by_end[np.maximum(place - back, 0)]
            evident = (place >= back) & (operations.stream[cause] != operations.stream[late]) & (cause < late)
            evident &= operations.start_ns[late] - operations.end_ns[cause] < CLEARLY_NS
            evident &= operations.start_ns[cause] < operations.start_ns[late]
            orders = np.concatenate([orders, np.stack([cause, late], axis=1)[evident]])
            late, place = late[~evident], place[~evident]
    orders = distinct_pairs(orders)
    distance = operations.start_ns[orders[:, 1]] - operations.end_ns[orders[:, 0]]
    near = distance[(distance >= 0) & (distance < CLEARLY_NS)]
    return orders, int(np.median(near)) if len(near) else 0


def _spins(recording: Recording) -> np.ndarray:
    """Kernels that only wait, each with the operation of another stream that was launched before it and ended last
    before its own end; shape (kernels, 2). Without one a kernel waits for something that is not known."""
    operations = recording.operations
    spins = np.flatnonzero(operations.are("waiting"))
    if not len(spins):
        return np.zeros((0, 2), np.int64)
    by_end = np.argsort(operations.end_ns, kind="stable")
    place = np.searchsorted(operations.end_ns[by_end], operations.end_ns[spins], side="left") - 1
    found = []
    for back in range(_TRIED):
        cause = by_end[np.maximum(place - back, 0)]
        fits = (place >= back) & (cause < spins) & (operations.stream[cause] != operations.stream[spins])
        fits &= operations.process[cause] == operations.process[spins]
        ended, soon = operations.end_ns[cause], operations.end_ns[spins] - _RETURN_TOLERANCE_NS
        fits &= (ended > operations.start_ns[spins]) & (ended > soon)
        found.append(np.stack([spins, cause], axis=1)[fits])
        spins, place = spins[~fits], place[~fits]
    return np.concatenate(found)


def meetings_in(recording: Recording) -> np.ndarray:
    """The operations of each collective that all processes of a capture with collectives took part in, shape
    (meetings, ranks)."""
    operations = recording.operations
    talks = np.flatnonzero(operations.are("communication"))
    rank, processes = pd.factorize(operations.process[talks], sort=True)
    if len(processes) < 2:
        return np.zeros((0, 1), np.int64)
    names = pd.Series(normalise_kernel_name(operations.name[talks]), dtype=object)
    times = np.stack([operations.start_ns[talks], operations.end_ns[talks]], axis=1)
    meetings = talks[meetings_of(names, rank, len(processes), times)]
    # all ranks are inside one at some moment: else the clocks differ, or what was matched is not a meeting
    together = operations.start_ns[meetings].max(axis=1) < operations.end_ns[meetings].min(axis=1)
    return meetings if len(meetings) and together.mean() > 0.9 else meetings[:0]
