"""A recording replayed with each resource at half its time → what that saves, which is what limits the program.

Resources are what a recording can tell apart: kernels, communication, copies, launches, host code, synchronisation. The
gain of a resource is the share of the executions' elapsed time that goes when its times are halved and the recorded
dependencies stay. It is at most one half. Resources that hide one another gain little alone and much together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from xsp_post.names.families import FAMILIES, family_index
from xsp_post.replay.executions import Clock, Executions, measure, recorded_clock, simulated_clock
from xsp_post.replay.fidelity import Identity
from xsp_post.replay.graph import Amounts, Graph, recorded_starts, replay
from xsp_post.replay.recording import OperationKind
from xsp_post.replay.what_if import margin_of

FACTOR = 0.5
# A second resource is named beside the first from this share of its gain on.
SECOND_RATIO = 0.5
LONGEST_LAUNCH_NS = 100_000  # from the end of a launch call to the start of its work on a device without work

KERNELS, COMMUNICATION, COPIES, LAUNCHES, HOST, SYNCHRONISATION = (
    "kernels", "communication", "copies", "launches", "host", "synchronisation",
)  # fmt: skip
_TALKS, _WAITS = FAMILIES.index("communication"), FAMILIES.index("waiting")


@dataclass(frozen=True)
class Gain:
    """What resources at half their time save: shares of the elapsed time, with an interval."""

    resources: tuple[str, ...]
    gain_ratio: float
    margin_ratio: float
    device_gain_ratio: float  # of the time from the first to the last device work

    @property
    def is_shown(self) -> bool:
        """Whether the gain is more than its error."""
        return self.gain_ratio > self.margin_ratio


@dataclass(frozen=True)
class Experiment:
    """Gains of each resource, largest first; of all together; and the resources that limit: one, two, or two that hide
    one another (``is_balanced``). ``limits`` is empty where nothing is shown."""

    label: str  # what one execution is; "recording": none was found
    execution_count: int
    elapsed_ns: int
    gains: tuple[Gain, ...]
    together: Gain | None
    limits: tuple[str, ...]
    is_balanced: bool
    refusal: str  # why nothing is said; '' when something is


def run_experiment(identity: Identity) -> Experiment:
    """Replay with each resource halved. Never raises: `Experiment.refusal` says why a recording cannot be replayed."""
    executions, graph = identity.executions, identity.graph
    count = len(executions.index)
    elapsed = int(_elapsed(graph, executions, recorded_clock(graph))) if len(graph.recording.operations) else 0
    if identity.refusal:
        return Experiment(executions.label, count, elapsed, (), None, (), False, identity.refusal)
    trial = _Trial(identity, _elapsed(graph, executions, simulated_clock(identity.replayed)))
    gains = tuple(sorted((trial.gain([one]) for one in _SHORTER), key=lambda one: -one.gain_ratio))
    together = trial.gain(list(_SHORTER))
    limits, is_balanced = _limits(gains, together, trial)
    return Experiment(executions.label, count, elapsed, gains, together, limits, is_balanced, "")


def _limits(gains: tuple[Gain, ...], together: Gain, trial: _Trial) -> tuple[tuple[str, ...], bool]:
    """Which resources limit, and whether they do so only together."""
    first = gains[0]
    alone = sum(max(one.gain_ratio, 0.0) for one in gains)
    if together.is_shown and alone < together.gain_ratio / 2:
        pairs = [trial.gain(pair) for pair in combinations(_SHORTER, 2)]
        best = max(pairs, key=lambda one: one.gain_ratio)
        return (best.resources, True) if best.is_shown else ((), False)
    if not first.is_shown:
        return (), False
    second = [one for one in gains[1:2] if one.is_shown and one.gain_ratio >= SECOND_RATIO * first.gain_ratio]
    return tuple(one.resources[0] for one in (first, *second)), False


@dataclass
class _Trial:
    """A recording whose replay is right, and the elapsed time of that replay."""

    identity: Identity
    elapsed_ns: float

    def gain(self, resources: Sequence[str]) -> Gain:
        """Work without a launch row either follows its stream or stays where it was: the gain lies between the two."""
        identity = self.identity
        ways = [self._replayed(resources, None)]
        if (starts := recorded_starts(identity.graph)) is not None:
            ways.append(self._replayed(resources, starts))
        middle = (ways[0][0] + ways[-1][0]) / 2
        saved = middle * self.elapsed_ns
        margin = margin_of(identity.error_ratio, saved, self.elapsed_ns - saved) + abs(ways[0][0] - ways[-1][0]) / 2
        return Gain(tuple(resources), middle, margin, (ways[0][1] + ways[-1][1]) / 2)

    def _replayed(self, resources: Sequence[str], release_ns: np.ndarray | None) -> tuple[float, float]:
        """The share of the elapsed time, and of the device's, that is saved."""
        graph, executions = self.identity.graph, self.identity.executions
        amounts = graph.amounts.copy()
        if release_ns is not None:
            amounts.release_ns = release_ns
        for name in resources:
            _SHORTER[name](graph, amounts)
        if HOST in resources:
            executions = _with_shorter_edges(executions)
        clock = simulated_clock(replay(graph, amounts))
        whole = max(_device_span(executions, simulated_clock(self.identity.replayed)), 1)
        after = _elapsed(graph, executions, clock)
        return 1 - after / max(self.elapsed_ns, 1), 1 - _device_span(executions, clock) / whole


def _elapsed(graph: Graph, executions: Executions, clock: Clock) -> float:
    """From when the first execution could have the device to the end of the last one; the mean of the processes.

    A host that runs ahead begins an execution long before its work can: the time counts from the end of what its
    process had launched before.
    """
    operations, measured = graph.recording.operations, measure(executions, clock)
    begin, end = measured["begin_ns"].to_numpy(), measured["end_ns"].to_numpy()
    taken = []
    for process in np.unique(executions.process):
        mine = np.flatnonzero(executions.process == process)
        first = executions.first_call[mine[0]]
        older = (operations.process == process) & (operations.place < first) & (operations.call >= 0)
        free = clock.end_ns[older].max() if older.any() else begin[mine[0]]
        taken.append(end[mine].max() - min(max(begin[mine[0]], free), end[mine].max()))
    return float(np.mean(taken))


def _device_span(executions: Executions, clock: Clock) -> int:
    rows = np.concatenate([rows for rows in executions.rows if len(rows)] or [np.zeros(0, np.int64)])
    return int(clock.end_ns[rows].max() - clock.start_ns[rows].min()) if len(rows) else 0


def _with_shorter_edges(executions: Executions) -> Executions:
    """Executions whose host code before the first call and after the last one is halved too."""
    lead, tail = executions.lead_ns * FACTOR, executions.tail_ns * FACTOR
    since = executions.since_ns * FACTOR
    return replace(
        executions,
        lead_ns=np.rint(lead).astype(np.int64),
        tail_ns=np.rint(tail),
        since_ns=np.rint(since).astype(np.int64),
    )


def _halved(values: np.ndarray, rows: np.ndarray) -> None:
    values[rows] = np.rint(values[rows] * FACTOR)


def _kinds(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which operations are copies, communication, and waiting kernels; bool each."""
    operations = graph.recording.operations
    of_name = family_index(operations.name.categories.astype(str).tolist())
    family = np.append(of_name, -1)[operations.name.codes] if len(of_name) else np.full(len(operations), -1)
    is_kernel = operations.kind == OperationKind.KERNEL
    return operations.kind == OperationKind.MEMCPY, is_kernel & (family == _TALKS), is_kernel & (family == _WAITS)


def _shorter_kernels(graph: Graph, amounts: Amounts) -> None:
    is_copy, talks, waits = _kinds(graph)
    _halved(amounts.duration_ns, ~is_copy & ~talks & ~waits)


def _shorter_communication(graph: Graph, amounts: Amounts) -> None:
    _halved(amounts.duration_ns, _kinds(graph)[1])


def _shorter_copies(graph: Graph, amounts: Amounts) -> None:
    """The copies, and what calls that block for one do before and after it."""
    is_copy, _, _ = _kinds(graph)
    _halved(amounts.duration_ns, is_copy)
    blocks = is_copy & amounts.is_blocking
    _halved(amounts.latency_ns, blocks)
    _halved(amounts.after_ns, graph.recording.operations.call[blocks])


def _shorter_launches(graph: Graph, amounts: Amounts) -> None:
    """Launch calls, the way to the device, and the gaps between operations that were launched long before."""
    operations = graph.recording.operations
    is_node = graph.learnt.is_node
    launched = (operations.call >= 0) & ~amounts.is_blocking & ~graph.recording.stream_is_host[operations.stream]
    _halved(amounts.own_ns, np.unique(operations.call[launched]))
    # what took longer to begin on a device without work was not on its way: why is not known
    _halved(amounts.latency_ns, launched & (is_node | (amounts.latency_ns <= LONGEST_LAUNCH_NS)))
    _halved(amounts.gap_ns, launched)


def _shorter_host(graph: Graph, amounts: Amounts) -> None:
    """Host code between the calls."""
    _halved(amounts.before_ns, np.arange(len(amounts.before_ns)))


def _shorter_waits(graph: Graph, amounts: Amounts) -> None:
    """What waiting calls take beyond what they wait for."""
    rows = np.flatnonzero(graph.recording.calls.wait >= 0)
    _halved(amounts.own_ns, rows)
    _halved(amounts.after_ns, rows)


_SHORTER: dict[str, Callable[[Graph, Amounts], None]] = {
    KERNELS: _shorter_kernels,
    COMMUNICATION: _shorter_communication,
    COPIES: _shorter_copies,
    LAUNCHES: _shorter_launches,
    HOST: _shorter_host,
    SYNCHRONISATION: _shorter_waits,
}
