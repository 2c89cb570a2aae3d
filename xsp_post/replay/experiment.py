"""A recording replayed with each resource at half its time → what that saves, which is what limits the program.

Resources are what a recording can tell apart: kernels, communication, copies, launches, loading of code, host code,
synchronisation. The gain of a resource is the share of the time that goes when its times are halved and the recorded
dependencies stay. It is at most one half. Resources that hide one another gain little alone and much together.
There are two questions: the time of the device, from its first work to its last, and the latency of the executions,
which has what the host does before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from xsp_post.names.families import FAMILIES, family_index
from xsp_post.replay.calls import loads_code
from xsp_post.replay.executions import Clock, Executions, measure, recorded_clock, simulated_clock
from xsp_post.replay.fidelity import LARGEST_ERROR_RATIO, Identity
from xsp_post.replay.graph import Amounts, Graph, recorded_starts, replay
from xsp_post.replay.recording import OperationKind
from xsp_post.replay.what_if import margin_of

FACTOR = 0.5
LONGEST_LAUNCH_NS = 100_000  # from the end of a launch call to the start of its work on a device without work

KERNELS, COMMUNICATION, COPIES, LAUNCHES, LOADING, HOST, SYNCHRONISATION = (
    "kernels", "communication", "copies", "launches", "loading", "host", "synchronisation",
)  # fmt: skip
DEVICE, LATENCY = "device", "latency"  # the questions
TOGETHER = "together"  # all resources
_TALKS, _WAITS = FAMILIES.index("communication"), FAMILIES.index("waiting")


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


@dataclass(frozen=True)
class Answer:
    """Gains of each resource, largest first; of all together; and the resources that limit: one, two, or two that hide
    one another (``is_balanced``). ``limits`` is empty where nothing is shown."""

    elapsed_ns: int
    gains: tuple[Gain, ...]
    together: Gain
    limits: tuple[str, ...]
    is_balanced: bool


@dataclass(frozen=True)
class Experiment:
    """The answers to both questions; None where the recording cannot be replayed."""

    label: str  # what one execution is; "recording": none was found
    execution_count: int
    coverage_ratio: float  # the executions' part of the time from the first to the last device work of the recording
    device: Answer | None
    latency: Answer | None
    refusal: str  # why nothing is said; '' when something is


def run_experiment(identity: Identity) -> Experiment:
    """Replay with each resource halved. Never raises: `Experiment.refusal` says why a recording cannot be replayed."""
    executions = identity.executions
    trial, operations = _Trial(identity), identity.graph.recording.operations
    answers: list[Answer | None] = [None, None]
    refusal, coverage = identity.refusal, float("nan")
    if len(operations):
        whole = int(operations.end_ns.max() - operations.start_ns.min())
        coverage = min(trial.recorded_ns[0] / max(whole, 1), 1.0)
        # a long wait that nothing explains may lie outside of what is asked
        can_ask = identity.replayed.is_settled and bool((operations.call >= 0).any())
        answers = [
            _answer(trial, question) if not refusal or (can_ask and trial.error_ratio(question) <= LARGEST_ERROR_RATIO)
            else None for question in (0, 1)
        ]  # fmt: skip
    said = "" if answers[0] is not None else refusal
    return Experiment(executions.label, len(executions.index), coverage, answers[0], answers[1], said)


def _answer(trial: _Trial, question: int) -> Answer:
    gains = tuple(sorted((trial.gain((one,), question) for one in _SHORTER), key=lambda one: -one.gain_ratio))
    together = trial.gain(tuple(_SHORTER), question)
    limits, is_balanced = limits_of(gains, together)
    if is_balanced:
        pairs = [trial.gain(pair, question) for pair in combinations(_SHORTER, 2)]
        best = max(pairs, key=lambda one: one.gain_ratio)
        limits = best.resources if best.is_shown else ()
    return Answer(int(trial.recorded_ns[question]), gains, together, limits, is_balanced and bool(limits))


def limits_of(gains: Sequence[Gain], together: Gain) -> tuple[tuple[str, ...], bool]:
    """Which resources limit, of gains in order, largest first: the first, and a second one whose interval meets that of
    the first; and whether none does alone, but several together."""
    if together.is_shown and sum(max(one.gain_ratio, 0.0) for one in gains) < together.gain_ratio / 2:
        return (), True
    first = gains[0]
    if not first.is_shown:
        return (), False
    low = first.gain_ratio - first.margin_ratio
    second = [one for one in gains[1:2] if one.is_shown and one.gain_ratio + one.margin_ratio >= low]
    return tuple(one.resources[0] for one in (first, *second)), False


class _Trial:
    """A recording that is replayed with shorter resources. Times are pairs: of the device, of the latency; ns."""

    def __init__(self, identity: Identity) -> None:
        self.identity, self.known = identity, dict[tuple[str, ...], list[tuple[float, float]]]()

    @cached_property
    def recorded_ns(self) -> tuple[float, float]:
        """As recorded."""
        return self._times(self.identity.executions, recorded_clock(self.identity.graph))

    @cached_property
    def replayed_ns(self) -> tuple[float, float]:
        """In the replay without a change."""
        return self._times(self.identity.executions, simulated_clock(self.identity.replayed))

    def error_ratio(self, question: int) -> float:
        """How far the replay without a change is off in this time."""
        return abs(self.replayed_ns[question] / max(self.recorded_ns[question], 1) - 1)

    def gain(self, resources: tuple[str, ...], question: int) -> Gain:
        """Work without a launch row either follows its stream or stays where it was: the gain lies between the two."""
        if resources not in self.known:
            starts = recorded_starts(self.identity.graph)
            self.known[resources] = [
                self._replayed(resources, at) for at in ((None,) if starts is None else (None, starts))
            ]
        before = max(self.replayed_ns[question], 1)
        ways = [1 - after[question] / before for after in self.known[resources]]
        middle = (ways[0] + ways[-1]) / 2
        error = self.identity.error_ratio if not self.identity.refusal else self.error_ratio(question)
        margin = margin_of(error, middle * before, (1 - middle) * before) + abs(ways[0] - ways[-1]) / 2
        return Gain(resources, middle, margin)

    def _replayed(self, resources: Sequence[str], release_ns: np.ndarray | None) -> tuple[float, float]:
        graph, executions = self.identity.graph, self.identity.executions
        amounts = graph.amounts.copy()
        if release_ns is not None:
            amounts.release_ns = release_ns
        for name in resources:
            _SHORTER[name](graph, amounts)
        if HOST in resources:
            executions = _with_shorter_edges(executions)
        return self._times(executions, simulated_clock(replay(graph, amounts)))

    def _times(self, executions: Executions, clock: Clock) -> tuple[float, float]:
        return device_span(executions, clock), _elapsed(self.identity.graph, executions, clock)


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


def device_span(executions: Executions, clock: Clock) -> float:
    """From the first device work of the executions to the last; the mean of the processes."""
    taken = []
    for process in np.unique(executions.process):
        rows = [rows for rows, of in zip(executions.rows, executions.process) if of == process and len(rows)]
        if rows:
            every = np.concatenate(rows)
            taken.append(clock.end_ns[every].max() - clock.start_ns[every].min())
    return float(np.mean(taken)) if taken else 0.0


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


def _loading(graph: Graph) -> np.ndarray:
    """Calls that loaded the code of the kernel that they launched for the first time."""
    operations, calls = graph.recording.operations, graph.recording.calls
    rows = np.flatnonzero((operations.kind == OperationKind.KERNEL) & (operations.call >= 0))
    kernel = operations.process[rows] * (len(operations.name.categories) + 1) + operations.name.codes[rows]
    of = operations.call[rows]
    return np.unique(of[loads_code(calls.start_ns[of], calls.end_ns[of], kernel)])


def _shorter_loading(graph: Graph, amounts: Amounts) -> None:
    _halved(amounts.own_ns, _loading(graph))


def _shorter_launches(graph: Graph, amounts: Amounts) -> None:
    """Launch calls, the way to the device, and the gaps between operations that were launched long before."""
    operations = graph.recording.operations
    is_node = graph.learnt.is_node
    launched = (operations.call >= 0) & ~amounts.is_blocking & ~graph.recording.stream_is_host[operations.stream]
    _halved(amounts.own_ns, np.setdiff1d(operations.call[launched], _loading(graph)))
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
    LOADING: _shorter_loading,
    HOST: _shorter_host,
    SYNCHRONISATION: _shorter_waits,
}
