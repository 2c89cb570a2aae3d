"""A recording's replay → the same with a resource that takes another part of its time, or none: what `what-if`, the
experiment and the ideals of remedies alter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import medians
from xsp_post.base.errors import UsageError
from xsp_post.model.kinds import ActivityKind
from xsp_post.names.families import FAMILIES, OTHER, PRODUCTS
from xsp_post.replay.calls import LATENCY_LIMIT_NS, LONG_HOST_NS, LUMP_NS, loads_code
from xsp_post.replay.executions import Executions, elapsed, simulated_clock
from xsp_post.replay.graph import Graph, replay
from xsp_post.replay.recording import SHORT_COPY_NS

MADE_OF = 3  # kernels that make a value: a comparison, an index, a reduction

KERNELS, COMMUNICATION, RANKS, COPIES, LAUNCHES, LOADING, HOST, SYNCHRONISATION = (
    "kernels", "communication", "ranks", "copies", "launches", "loading", "host", "synchronisation",
)  # fmt: skip


class Altered:
    """A replay with amounts and executions of its own, which changes alter in place. ``release_ns``: as in
    `Amounts`, where work without a launch row stays where it was."""

    def __init__(self, graph: Graph, executions: Executions, release_ns: np.ndarray | None = None) -> None:
        self.graph, self.calls, self.operations = graph, graph.recording.calls, graph.recording.operations
        self.amounts, self.executions = graph.amounts.copy(), executions.copy()
        if release_ns is not None:
            self.amounts.release_ns = release_ns

    def elapsed_ns(self) -> tuple[float, float]:
        """Of the executions, simulated: of the device, and with the host before and after."""
        return elapsed(self.graph, self.executions, simulated_clock(replay(self.graph, self.amounts)))

    def are_copies(self) -> np.ndarray:
        """Which operations are copies; bool."""
        return self.operations.kind == ActivityKind.MEMCPY

    def launches(self) -> tuple[np.ndarray, np.ndarray]:
        """Which operations of a device are launched by a call that does not wait for them, and these calls; bool."""
        operations, calls = self.operations, np.zeros(len(self.calls), bool)
        launched = (operations.call >= 0) & ~self.graph.recording.stream_is_host[operations.stream]
        calls[operations.call[launched & ~self.amounts.is_blocking]] = True
        return launched & ~self.amounts.is_blocking, calls

    def loading(self) -> np.ndarray:
        """Which calls are first launches of a kernel that loaded its code; bool."""
        calls, operations, name = self.calls, self.operations, self.operations.name
        rows = (operations.call >= 0) & (operations.kind == ActivityKind.KERNEL) & ~self.graph.learnt.is_node
        rows = np.flatnonzero(rows)
        call, kernel = operations.call[rows], operations.process[rows] * (len(name.categories) + 1) + name.codes[rows]
        result = np.zeros(len(calls), bool)
        result[call[loads_code(calls.start_ns[call], calls.end_ns[call], kernel)]] = True
        return result

    def scale(self, rows: np.ndarray, factor: float | np.ndarray) -> None:
        """Operations (bool) take ``factor`` times as long: without pages that move meanwhile, with what overlaps the
        one before them and what calls that block for a copy do before and after it."""
        amounts, moved, factor = self.amounts, self.operations.migrated_ns, np.broadcast_to(factor, len(rows))
        scaled = moved + np.rint((amounts.duration_ns - moved) * factor).astype(np.int64)
        amounts.duration_ns = np.where(rows, scaled, amounts.duration_ns)
        overlaps = rows & (amounts.gap_ns < 0)
        _scale(amounts.gap_ns, overlaps, factor[overlaps])
        for times, at, alone, copies in self.copy_calls(rows):
            times[at] = alone * (factor[copies] > 0) + np.rint((times[at] - alone) * factor[copies])

    def copy_calls(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """What calls that block for the copies among these operations do before and after them: times, where in these,
        how much of each is the call alone, as with the shortest copies of its kind, and these copies."""
        copies, same = np.flatnonzero(rows & self.are_copies() & self.amounts.is_blocking), self.graph.amounts
        used, like = np.unique(self.operations.name.codes[copies], return_inverse=True)
        call, duration = self.operations.call[copies], self.operations.duration_ns[copies]
        is_short = duration <= medians(duration, like, len(used), share=0.25)[like]
        for times, before, at in ((self.amounts.latency_ns, same.latency_ns, copies),
                                  (self.amounts.after_ns, same.after_ns, call)):  # fmt: skip
            usual = medians(before[at[is_short]], like[is_short], len(used))[like]
            yield times, at, np.minimum(usual, before[at]), copies

    def without_operations(self, gone: np.ndarray) -> np.ndarray:
        """Operations that are gone (bool) take no time and leave no gap; the calls that launched nothing else."""
        amounts, call, ends = self.amounts, self.operations.call, np.zeros(len(self.calls) + 1, bool)
        amounts.duration_ns[gone] = amounts.latency_ns[gone] = 0
        amounts.gap_ns[gone] = np.minimum(amounts.gap_ns[gone], 0)
        ends[call[gone]] = True
        ends[call[~gone]] = False
        return np.flatnonzero(ends[:-1])  # the last one: no call

    def remove(self, gone: np.ndarray) -> None:
        """Operations (bool) and calls that launched nothing else are gone; code that such a call loads is loaded
        still."""
        calls, amounts = np.setdiff1d(self.without_operations(gone), np.flatnonzero(self.loading())), self.amounts
        amounts.own_ns[calls] = 0
        amounts.before_ns[calls[amounts.before_ns[calls] < LONG_HOST_NS]] = 0  # longer is no way to a launch

    def without_calls(self, rows: np.ndarray, long_ns: int = LONG_HOST_NS) -> None:
        """These calls take no time and wait for nothing, and neither do the way to them, as long as that to a launch,
        and what is done with their result before the next call, unless that is long."""
        amounts, way = self.amounts, self.usual(self.graph.amounts.before_ns)
        amounts.waits[rows] = False
        amounts.own_ns[rows] = amounts.after_ns[rows] = 0
        amounts.before_ns[rows] -= np.minimum(amounts.before_ns[rows], way)
        behind = np.isin(self.graph.source_call, rows) & (amounts.before_ns < long_ns)
        amounts.before_ns[behind] = np.minimum(amounts.before_ns[behind], way)

    def usual(self, values: np.ndarray) -> int:
        """The median of the values above 0 of calls that do not wait, ns; 5 µs where there is none."""
        return usual(values, self.calls.wait < 0)

    def blocking_launches(self) -> np.ndarray:
        """Kernels whose launch returned when they had ended; bool."""
        operations = self.operations
        is_device = ~self.graph.recording.stream_is_host[operations.stream]
        return self.amounts.is_blocking & is_device & (operations.kind == ActivityKind.KERNEL)

    def release(self, chosen: np.ndarray) -> int:
        """No call waits for these operations (bool), but for frees: how many that launched one did."""
        amounts, rows = self.amounts, np.flatnonzero(chosen & self.amounts.is_blocking)
        amounts.waits[np.isin(self.graph.learnt.waited, np.flatnonzero(chosen)) & ~self.calls.allocates] = False
        amounts.is_blocking[rows] = False
        amounts.latency_ns[rows] = 0
        amounts.own_ns[self.operations.call[rows]] = self.usual(amounts.own_ns)
        return len(rows)

    def calls_of(self, chosen: np.ndarray) -> np.ndarray:
        """The calls of these operations (bool), and those that wait for them, or right behind them: no frees."""
        calls = self.operations.call[chosen & (self.operations.call >= 0)]
        waits = np.isin(self.graph.learnt.waited, np.flatnonzero(chosen)) | np.isin(self.graph.source_call, calls)
        return distinct(np.append(calls, np.flatnonzero(waits & self.calls.synchronises)))


def usual(values: np.ndarray, chosen: np.ndarray) -> int:
    """The median of the chosen values above 0, ns; 5 µs where there is none."""
    positive = values[chosen & (values > 0)]
    return int(np.median(positive)) if len(positive) else 5_000


def _scale(values: np.ndarray, rows: np.ndarray | slice, factor: float | np.ndarray) -> None:
    values[rows] = np.rint(values[rows] * factor)


def _kernels(of: Altered, factor: float) -> None:
    of.scale(~of.are_copies() & ~of.operations.are("communication") & ~of.operations.are("waiting"), factor)


def _ranks(of: Altered, factor: float) -> None:
    """Waiting inside collectives for the last rank: a part of what was recorded, whatever the other rank does."""
    amounts = of.amounts
    recorded = of.operations.duration_ns[amounts.meetings]
    if len(recorded):
        waited = recorded - recorded.min(axis=1, keepdims=True)
        amounts.duration_ns[amounts.meetings] += np.rint(waited * factor).astype(np.int64)
    amounts.meetings = amounts.meetings[:0]


def _copies(of: Altered, factor: float) -> None:
    """The copies, and pages that move while kernels run. Nobody waits for a copy that takes no time, unless for a
    value."""
    is_copy = of.are_copies()
    if not factor:
        is_read = of.operations.is_read.astype(bool)
        of.amounts.waits[np.isin(of.graph.learnt.waited, np.flatnonzero(is_copy & ~is_read))] = False
    of.scale(is_copy, factor)
    of.amounts.duration_ns -= np.rint(of.operations.migrated_ns * (1 - factor)).astype(np.int64)


def _launches(of: Altered, factor: float) -> None:
    """Launch calls, the way to the device, and the gaps between operations that were launched long before."""
    amounts, (launched, calls) = of.amounts, of.launches()
    _scale(amounts.own_ns, calls & ~of.loading(), factor)
    launched &= ~of.graph.recording.behind_host
    # what took longer to begin on a device without work was not on its way: why is not known
    is_way = of.graph.learnt.is_node | (amounts.latency_ns <= LATENCY_LIMIT_NS)
    _scale(amounts.latency_ns, launched & is_way, factor)
    _scale(amounts.gap_ns, launched & (amounts.gap_ns > 0), factor)  # below 0 kernels overlap


def _waits(of: Altered, factor: float) -> None:
    """What waiting calls, of copies too, take beyond what they wait for; with the factor 0 nobody waits, for single
    values neither. A free waits as before: it is an allocation."""
    rows, amounts = np.flatnonzero(of.calls.synchronises), of.amounts
    _scale(amounts.own_ns, rows, factor)
    _scale(amounts.after_ns, rows, factor)
    for times, at, alone, _copies in of.copy_calls(of.are_copies()):
        times[at] -= np.rint(alone * (1 - factor)).astype(times.dtype)
    if not factor:
        amounts.waits[rows] = False
        of.release(of.operations.is_read.astype(bool) | of.blocking_launches())


def _host(of: Altered, factor: float) -> None:
    """What lies between calls, before the first one and after the last one, functions on streams, and calls that take
    or free memory; a free waits for the device as before."""
    amounts, edges, behind = of.amounts, of.executions, of.graph.recording.behind_host
    for times in (amounts.before_ns, edges.lead_ns, edges.tail_ns, edges.since_ns, edges.begin_ns):
        _scale(times, slice(None), factor)
    for times, rows in ((amounts.gap_ns, behind), (amounts.latency_ns, behind)):
        _scale(times, rows, factor)
    for times in (amounts.own_ns, amounts.after_ns):
        _scale(times, of.calls.allocates, factor)


SHORTER: dict[str, Callable[[Altered, float], None]] = {
    KERNELS: _kernels,
    COMMUNICATION: lambda of, factor: of.scale(of.operations.are(COMMUNICATION), factor),
    RANKS: _ranks,
    COPIES: _copies,
    LAUNCHES: _launches,
    LOADING: lambda of, factor: _scale(of.amounts.own_ns, of.loading(), factor),
    HOST: _host,
    SYNCHRONISATION: _waits,
}


def _without_allocations(of: Altered, _: float) -> None:
    """No call takes or frees memory, and none waits for that."""
    rows = np.flatnonzero(of.calls.allocates)
    if not len(rows):
        raise UsageError("no call takes or frees memory", code="change-matches-nothing")
    of.without_calls(rows)


def _without_copy_calls(of: Altered, _: float) -> None:
    """Neither calls of copies and waits for them take time, nor the way to them, nor copies of a few values: the bytes
    of others go on."""
    is_copy = of.are_copies()
    of.without_operations(is_copy & (of.operations.duration_ns <= SHORT_COPY_NS))
    for times, at, _alone, _copies in of.copy_calls(is_copy):
        times[at] = 0
    of.without_calls(of.calls_of(is_copy))


def _without_waiting_calls(of: Altered, _: float) -> None:
    """Neither calls that wait nor reads of single values, nor the way to them."""
    _waits(of, 0.0)
    of.without_calls(np.flatnonzero(of.calls.synchronises))
    _without_reads(of, 0.0)


def _without_reads(of: Altered, _: float) -> None:
    """Neither reads of single values nor waits for them, nor the way to them."""
    is_read = of.operations.is_read.astype(bool)
    of.release(is_read)
    of.without_operations(is_read)
    of.without_calls(of.calls_of(is_read))


def _without_makers(of: Altered, _: float) -> None:
    """Nor is what these values are made of, a few kernels launched just before that are no products (of those whose
    names do not say what they do such as take no longer than a copy of a few values), nor what the host does with them
    before its next call, up to 1 ms."""
    operations, is_gone = of.operations, np.zeros(len(of.operations), bool)
    calls = of.calls_of(operations.is_read.astype(bool))
    of.without_calls(calls, LUMP_NS)
    calls = of.graph.source_call[calls]
    can = (operations.kind == ActivityKind.KERNEL) & (operations.call >= 0) & ~of.graph.learnt.is_node
    can &= ~np.isin(operations.family, [FAMILIES.index(name) for name in (*PRODUCTS, COMMUNICATION)])
    can &= ~operations.are(OTHER) | (operations.duration_ns <= SHORT_COPY_NS)
    for _step in range(MADE_OF):
        mine = can & np.isin(operations.call, calls)
        is_gone |= mine
        calls = of.graph.source_call[operations.call[mine]]
    of.remove(is_gone)


def _without_orders(of: Altered, _: float) -> None:
    """No stream waits for another one."""
    of.amounts.orders = of.amounts.orders[:0]


def _without_launch_code(of: Altered, _: float) -> None:
    """Launches and what the host does before each take no time: between two launches of one execution all of it, else
    up to 1 ms, and nothing before a launch between executions."""
    _launches(of, 0.0)
    (launched, calls), execution = of.launches(), np.full(len(of.calls) + 1, -1)
    execution[of.operations.call[launched]] = of.operations.iteration[launched]
    is_inside = execution[:-1] >= 0
    calls &= is_inside | (of.executions.index.max(initial=-1) < 0)
    inside = calls & is_inside & (execution[:-1] == execution[of.graph.source_call])
    of.amounts.before_ns[inside | calls & (of.amounts.before_ns < LUMP_NS)] = 0


def _at_its_quickest(of: Altered, _: float) -> None:
    """The way to a launch never takes longer than in the quickest quarter of its like: before the same launch after the
    same launch. A thread that has waited finds its caches cold, and its processor asleep, for some time. What takes
    longer than such a way has work of its own, and code is loaded still."""
    rows, name = np.flatnonzero(of.operations.call >= 0)[::-1], np.full(len(of.calls) + 1, -1)
    name[of.operations.call[rows]] = of.operations.name.codes[rows]  # the first operation of a call is written last
    (like, first), launches = dense(name[:-1], name[of.graph.source_call]), (name[:-1] >= 0) & ~of.loading()
    same, now = of.graph.amounts, of.amounts
    for before, after in ((same.before_ns, now.before_ns), (same.own_ns, now.own_ns)):
        quick = medians(before, like, len(first), share=0.25)[like]
        rows = launches & (before < LONG_HOST_NS)
        after[rows] = np.minimum(after, quick)[rows]


IDEALS = SHORTER | {
    "allocations": _without_allocations, "orders": _without_orders, "copy calls": _without_copy_calls,
    "messages": lambda of, _: of.remove(of.operations.are(COMMUNICATION)),
    "waits for copies": lambda of, _: of.release(of.are_copies()),
    "launch code": _without_launch_code, "waiting calls": _without_waiting_calls, "reads": _without_reads,
    "makers": _without_makers, "quick host": _at_its_quickest,
}  # fmt: skip
