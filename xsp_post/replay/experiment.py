"""A recording replayed with each resource at half its time → what that saves, which is what limits the program.

Resources are what a recording can tell apart: kernels, communication, waiting for other ranks, copies, launches,
loading of code, host code, synchronisation. The gain of a resource is the share of the time that goes when its times
are halved and the recorded dependencies stay. It is at most one half. Resources that hide one another gain little alone
and much together. Kernels have parts: families, with and without tensor cores, and those whose bytes take their time.
There are two questions: the time of the device, from its first work to its last, and the latency of the executions,
which has what the host does before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.base.errors import UsageError
from xsp_post.base.findings import Finding, finding
from xsp_post.model.kinds import ActivityKind
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import FAMILIES, OTHER, PRODUCTS
from xsp_post.names.number_types import runs_on_tensor_cores
from xsp_post.replay.calls import LATENCY_LIMIT_NS, LONG_HOST_NS, LUMP_NS
from xsp_post.replay.changes import (
    apply_change,
    loading,
    parse_change,
    release_reads,
    shorten_copy_calls,
    usual,
    without_operations,
)
from xsp_post.replay.executions import Executions, elapsed, recorded_clock, simulated_clock
from xsp_post.replay.fidelity import LARGEST_ERROR_RATIO, Identity
from xsp_post.replay.graph import Amounts, Graph, recorded_starts, replay
from xsp_post.replay.recording import CLOCK_TOLERANCE_NS, SHORT_COPY_NS
from xsp_post.replay.what_if import margin_of

FACTOR = 0.5
_MADE_OF = 3  # kernels that make a value: a comparison, an index, a reduction
LEAST_PART_RATIO = 0.05  # of the kernel time: a smaller part of it is not replayed alone

KERNELS, COMMUNICATION, RANKS, COPIES, LAUNCHES, LOADING, HOST, SYNCHRONISATION = (
    "kernels", "communication", "ranks", "copies", "launches", "loading", "host", "synchronisation",
)  # fmt: skip
DEVICE, LATENCY = "device", "latency"  # the questions
TOGETHER = "together"  # all resources
TENSOR_CORES, ORDINARY, BANDWIDTH = "tensor cores", "CUDA cores", "bandwidth"  # parts of the kernels


@dataclass(frozen=True)
class Gain:
    """What resources at half their time save: a share of the time asked for, with an interval."""

    resources: tuple[str, ...]
    gain_ratio: float
    margin_ratio: float

    @property
    def is_shown(self) -> bool:
        """Whether the gain is more than its error."""
        return self.gain_ratio > self.margin_ratio


def run_experiment(
    identity: Identity, is_bandwidth: np.ndarray | None = None
) -> tuple[list[dict[str, object]], list[Finding]]:
    """Replay with each resource halved: rows of the table ``experiment`` without their capture, those of a question
    only where it can be answered; and gains that the replay cannot have. ``is_bandwidth``: which operations take the
    time that their bytes need; None: not known."""
    trial, operations = _Trial(identity, is_bandwidth), identity.graph.recording.operations
    if not len(operations):
        return [], []
    executions, whole = trial.executions, int(operations.end_ns.max() - operations.start_ns.min())
    of = {"execution": executions.label, "execution_count": len(executions.index),
          "coverage_ratio": min(trial.recorded_ns[0] / max(whole, 1), 1.0)}  # fmt: skip
    # a long wait that nothing explains may lie outside of what is asked
    can_ask = identity.replayed.is_settled and not identity.is_serial and bool((operations.call >= 0).any())
    rows: list[dict[str, object]] = []
    for number, question in enumerate((DEVICE, LATENCY)):
        if not identity.refusal or (can_ask and trial.error_ratio(number) <= LARGEST_ERROR_RATIO):
            rows += [{"question": question, **of, **row} for row in _answer(trial, number)]
    findings = []
    for code, beyond in (("gain-beyond-half", trial.beyond), ("gain-beyond-share", trial.beyond_share)):
        if rows and beyond:
            example = ", ".join(f"{name} {100 * gain:.3g} %" for name, gain in beyond.items())
            findings.append(finding(code, count=len(beyond), example=example))
    elapsed = next((int(trial.recorded_ns[0]) for row in rows if row["question"] == DEVICE), 0)
    if elapsed and trial.busiest_ns > elapsed + CLOCK_TOLERANCE_NS:
        example = f"{format_ns(elapsed)} of executions, {format_ns(trial.busiest_ns)} of the busiest stream"
        findings.append(finding("elapsed-below-busy", example=example))
    return rows, findings


def _answer(trial: _Trial, question: int) -> list[dict[str, object]]:
    """Gains of each resource, largest first; of parts of the kernels, where these save anything; of all together; and
    which resources limit: one, two, or the largest one and two that hide one another (``is_balanced``)."""
    gains = sorted((trial.gain((one,), question) for one in SHORTER), key=lambda one: -one.gain_ratio)
    together = trial.gain(tuple(SHORTER), question)
    limits, is_balanced = limits_of(gains, together)
    if is_balanced:
        pairs = [trial.gain(pair, question) for pair in combinations(trial.present, 2)]
        best = max(pairs, key=lambda one: one.gain_ratio)
        is_balanced = best.is_shown
        limits = tuple(dict.fromkeys((*limits, *best.resources))) if is_balanced else limits
    said = [(number, one.resources[0], "", one) for number, one in enumerate(gains, 1)]
    if trial.gain((KERNELS,), question).is_shown:  # else none of their parts saves anything
        said += [(-1, KERNELS, name, trial.gain((name,), question)) for name in trial.parts]
    return [
        {
            "resource": resource, "part": part, "rank": rank, "gain_ratio": one.gain_ratio,
            "low_gain_ratio": one.gain_ratio - one.margin_ratio, "high_gain_ratio": one.gain_ratio + one.margin_ratio,
            "is_limit": resource in limits and not part, "is_balanced": is_balanced,
            "elapsed_ns": int(trial.recorded_ns[question]),
        }
        for rank, resource, part, one in (*said, (-1, TOGETHER, "", together))
    ]  # fmt: skip


def limits_of(gains: Sequence[Gain], together: Gain) -> tuple[tuple[str, ...], bool]:
    """Which resources limit, of gains in order, largest first: the first, and a second one whose interval meets that of
    the first; and whether others save much together with it and little alone."""
    is_balanced = together.is_shown and sum(max(one.gain_ratio, 0.0) for one in gains) < together.gain_ratio / 2
    first = gains[0]
    low = first.gain_ratio - first.margin_ratio
    second = [one for one in gains[1:2] if one.gain_ratio + one.margin_ratio >= low and not is_balanced]
    return tuple(one.resources[0] for one in (first, *second) if one.is_shown), is_balanced


def ideal_gain(
    results: Results, identity: Identity, capture_id: int, ideals: Sequence[str], factors: np.ndarray | None = None,
    *, with_launches: bool = True,
) -> float | None:  # fmt: skip
    """The share of the executions' time, from their first device work to the last, that goes where resources take no
    time, changes (`parse_change`) are made, and operations take ``factors`` times what they did; those that take none
    are gone, with their launches. None where nothing matches."""
    graph, executions = identity.graph, identity.every_execution.copy()
    amounts, hits = graph.amounts.copy(), factors is not None
    for text in ideals:
        try:
            if text in IDEALS:
                IDEALS[text](graph, amounts, 0.0)
            else:
                apply_change(parse_change(text), graph, amounts, executions, results, capture_id)
            hits = True
        except UsageError:
            continue  # a recording without synchronisations, copies …
    if not hits:
        return None
    if factors is not None:
        amounts.duration_ns = np.rint(amounts.duration_ns * factors).astype(amounts.duration_ns.dtype)
        _remove(graph, amounts, (factors == 0) & with_launches)
    executions = _with_shorter_edges(executions, 0.0) if HOST in ideals else executions
    after, _ = elapsed(graph, executions, simulated_clock(replay(graph, amounts)))
    before = identity.elapsed_ns[0]
    return 1 - after / before if before > 0 else None


class _Trial:
    """A recording that is replayed with shorter resources. Times are pairs: of the device, of the latency; ns."""

    def __init__(self, identity: Identity, is_bandwidth: np.ndarray | None) -> None:
        self.identity, self.known = identity, dict[tuple[str, ...], list[tuple[float, float]]]()
        self.beyond: dict[str, float] = {}  # resources whose replay saved more than the half that was taken away
        self.beyond_share: dict[str, float] = {}  # and those that saved more than went from all their operations
        self.taken_ns: dict[tuple[str, ...], float] = {}  # from all calls and operations; inf: waits went, too
        self.is_bandwidth, self.executions = is_bandwidth, identity.every_execution

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """Parts of the kernels, bool per operation: those with `LEAST_PART_RATIO` of their time, but for all of it."""
        operations = self.identity.graph.recording.operations
        works = ~operations.are("communication") & ~operations.are("waiting")
        is_kernel = (operations.kind == ActivityKind.KERNEL) & works
        found = {name: operations.are(name) for name in FAMILIES if name != OTHER}
        of_name = [runs_on_tensor_cores(name) for name in operations.name.categories.astype(str)]
        for name, value in ((TENSOR_CORES, True), (ORDINARY, False)):
            found[name] = np.array([*(one is value for one in of_name), False])[operations.name.codes]
        if self.is_bandwidth is not None:
            found[BANDWIDTH] = self.is_bandwidth
        whole = int(operations.duration_ns[is_kernel].sum())
        times = {name: int(operations.duration_ns[is_kernel & rows].sum()) for name, rows in found.items()}
        return {name: is_kernel & found[name] for name, time in times.items() if LEAST_PART_RATIO * whole <= time > 0}

    @cached_property
    def present(self) -> list[str]:
        """The resources that the recording has anything of."""
        same = self.identity.graph.amounts
        return [name for name in SHORTER if name == HOST or not _alike(self._shorter((name,), 0.0), same)]

    @cached_property
    def recorded_ns(self) -> tuple[float, float]:
        """As recorded."""
        return elapsed(self.identity.graph, self.executions, recorded_clock(self.identity.graph))

    @cached_property
    def busiest_ns(self) -> int:
        """How long the busiest stream of a process worked in its executions, the mean of the processes."""
        recording, rows = self.identity.graph.recording, self.executions.work[0]
        of, process = recording.operations, recording.stream_process
        busy = grouped_union_length(of.stream[rows], of.start_ns[rows], of.end_ns[rows], len(process))
        used = np.unique(of.stream[rows])
        return int(pd.Series(busy[used]).groupby(process[used]).max().mean()) if len(used) else 0

    def error_ratio(self, question: int) -> float:
        """How far the replay without a change is off in this time."""
        return abs(self.identity.elapsed_ns[question] / max(self.recorded_ns[question], 1) - 1)

    def gain(self, resources: tuple[str, ...], question: int) -> Gain:
        """Work without a launch row either follows its stream or stays where it was: the gain lies between the two."""
        if resources not in self.known:
            starts = recorded_starts(self.identity.graph)
            self.known[resources] = [
                self._replayed(resources, at) for at in ((None,) if starts is None else (None, starts))
            ]
        before = max(self.identity.elapsed_ns[question], 1)
        ways = [1 - after[question] / before for after in self.known[resources]]
        middle = (ways[0] + ways[-1]) / 2
        if middle > (1 - FACTOR) * (1 + LARGEST_ERROR_RATIO):
            self.beyond[" and ".join(resources) if len(resources) < 3 else TOGETHER] = middle
        most = self.taken_ns.get(resources, math.inf) / before
        if middle > most * (1 + LARGEST_ERROR_RATIO) + LARGEST_ERROR_RATIO:
            self.beyond_share[" and ".join(resources)] = middle
        middle = min(middle, 1 - FACTOR, most)  # what begins late may seem to save more
        error = self.identity.error_ratio if not self.identity.refusal else self.error_ratio(question)
        margin = margin_of(error, middle * before, (1 - middle) * before) + abs(ways[0] - ways[-1]) / 2
        return Gain(resources, middle, margin)

    def _replayed(self, resources: Sequence[str], release_ns: np.ndarray | None) -> tuple[float, float]:
        graph, executions = self.identity.graph, self.executions
        is_half = resources == (SYNCHRONISATION,)  # of the waits: half of what is saved where nobody waits
        amounts = self._shorter(resources, 0.0 if is_half else FACTOR)
        if len(resources) == 1 and resources[0] not in (HOST, SYNCHRONISATION, RANKS):  # nothing but times changed
            same = vars(graph.amounts)
            times = [name for name in same if name.endswith("_ns") and isinstance(same[name], np.ndarray)]
            shorter = [np.abs(same[name] - vars(amounts)[name]).sum() for name in times if name != "release_ns"]
            self.taken_ns[tuple(resources)] = float(sum(shorter))
        if HOST in resources:
            executions = _with_shorter_edges(executions, FACTOR)
        if release_ns is not None:
            amounts.release_ns = release_ns
        if HOST not in resources and _alike(amounts, graph.amounts):
            return self.identity.elapsed_ns
        device, latency = elapsed(graph, executions, simulated_clock(replay(graph, amounts)))
        now = self.identity.elapsed_ns if is_half else (device, latency)
        return (device + now[0]) / 2, (latency + now[1]) / 2

    def _shorter(self, resources: Sequence[str], factor: float) -> Amounts:
        amounts = self.identity.graph.amounts.copy()
        for name in resources:
            if name in SHORTER:
                SHORTER[name](self.identity.graph, amounts, factor)
            else:
                _scale(amounts.duration_ns, self.parts[name], factor)
        return amounts


def _alike(one: Amounts, other: Amounts) -> bool:
    return all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())


def _with_shorter_edges(executions: Executions, factor: float) -> Executions:
    """Executions whose host code before the first call and after the last one is shorter, too."""
    shorter: dict[str, Any] = {name: vars(executions)[name] * factor for name in ("tail_ns", "begin_ns")}
    for name in ("lead_ns", "since_ns"):
        shorter[name] = np.rint(vars(executions)[name] * factor).astype(np.int64)
    return replace(executions, **shorter | {"tail_ns": np.rint(shorter["tail_ns"])})


def _scale(values: np.ndarray, rows: np.ndarray | slice, factor: float) -> None:
    values[rows] = np.rint(values[rows] * factor)


def _copies(graph: Graph) -> np.ndarray:
    return graph.recording.operations.kind == ActivityKind.MEMCPY


def _shorter_kernels(graph: Graph, amounts: Amounts, factor: float) -> None:
    operations = graph.recording.operations
    mine = ~_copies(graph) & ~operations.are("communication") & ~operations.are("waiting")
    moved = operations.migrated_ns[mine]
    amounts.duration_ns[mine] = moved + np.rint((amounts.duration_ns[mine] - moved) * factor).astype(np.int64)
    _scale(amounts.gap_ns, mine & (amounts.gap_ns < 0), factor)  # the part that overlaps the kernel before


def _shorter_ranks(graph: Graph, amounts: Amounts, factor: float) -> None:
    """Waiting inside collectives for the last rank: a part of what was recorded, whatever the other rank does."""
    recorded = graph.recording.operations.duration_ns[amounts.meetings]
    if len(recorded):
        waited = recorded - recorded.min(axis=1, keepdims=True)
        amounts.duration_ns[amounts.meetings] += np.rint(waited * factor).astype(np.int64)
    amounts.meetings = amounts.meetings[:0]


def _shorter_copies(graph: Graph, amounts: Amounts, factor: float) -> None:
    """The copies, what calls that block for one do before and after it, and pages that move while kernels run. Nobody
    waits for a copy that takes no time, unless for a value."""
    is_copy = _copies(graph)
    if not factor:
        is_read = graph.recording.operations.is_read.astype(bool)
        amounts.waits[np.isin(graph.learnt.waited, np.flatnonzero(is_copy & ~is_read))] = False
    _scale(amounts.duration_ns, is_copy, factor)
    amounts.duration_ns -= np.rint(graph.recording.operations.migrated_ns * (1 - factor)).astype(np.int64)
    shorten_copy_calls(graph, amounts, np.flatnonzero(is_copy), factor)


def _shorter_launches(graph: Graph, amounts: Amounts, factor: float) -> None:
    """Launch calls, the way to the device, and the gaps between operations that were launched long before."""
    operations = graph.recording.operations
    is_node = graph.learnt.is_node
    launched = (operations.call >= 0) & ~amounts.is_blocking & ~graph.recording.stream_is_host[operations.stream]
    launches = np.zeros(len(amounts.own_ns), bool)
    launches[operations.call[launched]] = True
    _scale(amounts.own_ns, launches & ~loading(graph), factor)
    launched &= ~graph.recording.behind_host
    # what took longer to begin on a device without work was not on its way: why is not known
    _scale(amounts.latency_ns, launched & (is_node | (amounts.latency_ns <= LATENCY_LIMIT_NS)), factor)
    _scale(amounts.gap_ns, launched & (amounts.gap_ns > 0), factor)  # below 0 kernels overlap


def _shorter_waits(graph: Graph, amounts: Amounts, factor: float) -> None:
    """What waiting calls take beyond what they wait for; with the factor 0 nobody waits, for single values neither. A
    free waits as before: it is an allocation."""
    rows = np.flatnonzero((graph.recording.calls.wait >= 0) & ~graph.recording.calls.allocates)
    _scale(amounts.own_ns, rows, factor)
    _scale(amounts.after_ns, rows, factor)
    if not factor:
        amounts.waits[rows] = False
        release_reads(graph, amounts)


def _shorter_host(graph: Graph, amounts: Amounts, factor: float) -> None:
    """What lies between calls, functions on streams, and calls that take or free memory; a free waits for the device as
    before."""
    _scale(amounts.before_ns, slice(None), factor)
    _scale(amounts.gap_ns, graph.recording.behind_host, factor)
    _scale(amounts.latency_ns, graph.recording.behind_host, factor)
    _scale(amounts.own_ns, graph.recording.calls.allocates, factor)
    _scale(amounts.after_ns, graph.recording.calls.allocates, factor)


def _without_allocations(graph: Graph, amounts: Amounts, _: float) -> None:
    """No call takes or frees memory, and none waits for that."""
    rows = np.flatnonzero(graph.recording.calls.allocates)
    if not len(rows):
        raise UsageError("no call takes or frees memory", code="change-matches-nothing")
    amounts.after_ns[rows] = 0
    amounts.waits[rows] = False
    _without_calls(graph, amounts, rows)


SHORTER: dict[str, Callable[[Graph, Amounts, float], None]] = {
    KERNELS: _shorter_kernels,
    COMMUNICATION: lambda graph, amounts, factor: _scale(
        amounts.duration_ns, graph.recording.operations.are(COMMUNICATION), factor
    ),
    RANKS: _shorter_ranks,
    COPIES: _shorter_copies,
    LAUNCHES: _shorter_launches,
    LOADING: lambda graph, amounts, factor: _scale(amounts.own_ns, loading(graph), factor),
    HOST: _shorter_host,
    SYNCHRONISATION: _shorter_waits,
}


def _without_copy_calls(graph: Graph, amounts: Amounts, _: float) -> None:
    """Neither calls of copies take time, nor the way to them, nor copies of a few values: the bytes of others go on."""
    is_copy, operations = _copies(graph), graph.recording.operations
    without_operations(graph, amounts, is_copy & (operations.duration_ns <= SHORT_COPY_NS))
    shorten_copy_calls(graph, amounts, np.flatnonzero(is_copy), 0.0)
    calls = operations.call[is_copy]
    _without_calls(graph, amounts, np.unique(calls[calls >= 0]))


def _without_calls(graph: Graph, amounts: Amounts, rows: np.ndarray, long_ns: int = LONG_HOST_NS) -> None:
    """These calls take no time, and neither do the way to them, as long as that to a launch, and what is done with
    their result before the next call, unless that is long."""
    way = usual(graph.amounts.before_ns, graph.recording.calls.wait < 0)
    amounts.own_ns[rows] = 0
    amounts.before_ns[rows] -= np.minimum(amounts.before_ns[rows], way)
    behind = np.isin(graph.source_call, rows) & (amounts.before_ns < long_ns)
    amounts.before_ns[behind] = np.minimum(amounts.before_ns[behind], way)


def _without_waiting_calls(graph: Graph, amounts: Amounts, _: float) -> None:
    """Neither calls that wait nor reads of single values, nor the way to them."""
    _shorter_waits(graph, amounts, 0.0)
    _without_calls(graph, amounts, _waiting_calls(graph))


def _waiting_calls(graph: Graph) -> np.ndarray:
    calls = graph.recording.calls
    return distinct(np.append(np.flatnonzero((calls.wait >= 0) & ~calls.allocates), _reads(graph)))


def _reads(graph: Graph) -> np.ndarray:
    """The calls that read single values."""
    operations = graph.recording.operations
    return operations.call[operations.is_read.astype(bool) & (operations.call >= 0)]


def _without_values(graph: Graph, amounts: Amounts, _: float) -> None:
    """Values that nobody reads are not made: the reduction before each read is gone, with its launch."""
    operations = graph.recording.operations
    makers = np.isin(operations.call, graph.source_call[_reads(graph)]) & (operations.call >= 0)
    _remove(graph, amounts, makers & operations.are("reduction"))


def _without_makers(graph: Graph, amounts: Amounts, _: float) -> None:
    """Nor is what these values are made of, a few kernels that are no products, launched just before, nor what the host
    does with them before its next call, up to 1 ms."""
    operations, is_gone = graph.recording.operations, np.zeros(len(graph.recording.operations), bool)
    calls = graph.source_call[_reads(graph)]
    _without_calls(graph, amounts, _waiting_calls(graph), LUMP_NS)
    can = (operations.kind == ActivityKind.KERNEL) & (operations.call >= 0)
    can &= ~np.isin(operations.family, [FAMILIES.index(name) for name in (*PRODUCTS, COMMUNICATION)])
    for _step in range(_MADE_OF):
        mine = can & np.isin(operations.call, calls)
        is_gone |= mine
        calls = graph.source_call[operations.call[mine]]
    _remove(graph, amounts, is_gone)


def _remove(graph: Graph, amounts: Amounts, gone: np.ndarray) -> None:
    """Operations (bool) and calls that launched nothing else are gone; code that such a call loads is loaded still."""
    calls = np.setdiff1d(without_operations(graph, amounts, gone), np.flatnonzero(loading(graph)))
    amounts.own_ns[calls] = 0
    amounts.before_ns[calls[amounts.before_ns[calls] < LONG_HOST_NS]] = 0  # longer is no way to a launch


def _without_orders(graph: Graph, amounts: Amounts, _: float) -> None:
    """No stream waits for another one."""
    amounts.orders = amounts.orders[:0]


def _at_its_quickest(graph: Graph, amounts: Amounts, _: float) -> None:
    """The host is never slower than in the quickest quarter of its like: before the same launch after the same launch.
    A thread that has waited finds its caches cold, and its processor asleep, for some time. Code is loaded still."""
    calls, operations = graph.recording.calls, graph.recording.operations
    rows = np.flatnonzero(operations.call >= 0)[::-1]  # the first operation of a call is written last
    name = np.full(len(calls) + 1, -1)
    name[operations.call[rows]] = operations.name.codes[rows]
    like, launches = [name[:-1], name[graph.source_call]], (name[:-1] >= 0) & ~loading(graph)
    for before, now in ((graph.amounts.before_ns, amounts.before_ns), (graph.amounts.own_ns, amounts.own_ns)):
        quick = pd.Series(before).groupby(like).transform("quantile", 0.25).to_numpy()
        now[launches] = np.minimum(now, quick)[launches]


# What may go, too, but is not sure to.
QUICK_HOST, MAKERS = "quick host", "makers"
IDEALS = SHORTER | {
    "allocations": _without_allocations, "orders": _without_orders, "copy calls": _without_copy_calls,
    "messages": lambda graph, amounts, _: _remove(graph, amounts, graph.recording.operations.are(COMMUNICATION)),
    "waiting calls": _without_waiting_calls, "values": _without_values, MAKERS: _without_makers,
    QUICK_HOST: _at_its_quickest,
}  # fmt: skip
