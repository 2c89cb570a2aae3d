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
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.base.errors import UsageError
from xsp_post.base.findings import Finding, finding
from xsp_post.model.kinds import ActivityKind
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import FAMILIES, OTHER
from xsp_post.names.number_types import runs_on_tensor_cores
from xsp_post.replay.changes import apply_change, parse_change
from xsp_post.replay.fidelity import LARGEST_ERROR_RATIO, Identity, margin_of
from xsp_post.replay.graph import Amounts, recorded_starts
from xsp_post.replay.recording import CLOCK_TOLERANCE_NS
from xsp_post.replay.resources import HOST, IDEALS, KERNELS, RANKS, SHORTER, SYNCHRONISATION, Altered

FACTOR = 0.5
LEAST_PART_RATIO = 0.05  # of the kernel time: a smaller part of it is not replayed alone

DEVICE, LATENCY = "device", "latency"  # the questions
TOGETHER = "together"  # all resources
TENSOR_CORES, ORDINARY, BANDWIDTH = "tensor cores", "CUDA cores", "bandwidth"  # parts of the kernels


class Gain(NamedTuple):
    """What resources at half their time save: a share of the time asked for, with an interval."""

    resources: tuple[str, ...]
    gain_ratio: float
    margin_ratio: float

    @property
    def is_shown(self) -> bool:
        """Whether the gain is more than its error."""
        return self.gain_ratio > self.margin_ratio


def gain_of(
    identity: Identity,
    resources: tuple[str, ...],
    ways: list[tuple[float, float]],
    question: int = 0,
    most: float = 1.0,
) -> Gain:
    """What changes save, at most ``most``. ``ways``: the times of replays with them (`executions.elapsed`): work
    without a launch row either follows its stream or stays where it was, and the gain lies between the two."""
    before = max(identity.elapsed_ns[question], 1)
    saved = [1 - after[question] / before for after in ways]
    middle = min((saved[0] + saved[-1]) / 2, most)  # what begins late may seem to save more
    error = identity.elapsed_error(question) if identity.refusal else identity.error_ratio
    margin = margin_of(error, middle * before, (1 - middle) * before) + abs(saved[0] - saved[-1]) / 2
    return Gain(resources, middle, margin)


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
          "coverage_ratio": min(identity.recorded_ns[0] / max(whole, 1), 1.0)}  # fmt: skip
    rows: list[dict[str, object]] = []
    for number, question in enumerate((DEVICE, LATENCY)):
        if not identity.refusal_of(identity.elapsed_error(number)):
            rows += [{"question": question, **of, **row} for row in _answer(trial, number)]
    findings = []
    for code, beyond in (("gain-beyond-half", trial.beyond), ("gain-beyond-share", trial.beyond_share)):
        if rows and beyond:
            example = ", ".join(f"{name} {100 * gain:.3g} %" for name, gain in beyond.items())
            findings.append(finding(code, count=len(beyond), example=example))
    elapsed = next((int(identity.recorded_ns[0]) for row in rows if row["question"] == DEVICE), 0)
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
            "elapsed_ns": int(trial.identity.recorded_ns[question]),
        }
        for rank, resource, part, one in (*said, (-1, TOGETHER, "", together))
    ]  # fmt: skip


def limits_of(gains: Sequence[Gain], together: Gain) -> tuple[tuple[str, ...], bool]:
    """Which resources limit, of gains in order, largest first: the first, and a second one whose interval meets that of
    the first; and whether they hide one another: what only all together save is more than the first saves."""
    first, alone = gains[0], sum(max(one.gain_ratio, 0.0) for one in gains)
    is_balanced = together.is_shown and together.gain_ratio - alone > first.gain_ratio
    low = first.gain_ratio - first.margin_ratio
    second = [one for one in gains[1:2] if one.gain_ratio + one.margin_ratio >= low and not is_balanced]
    return tuple(one.resources[0] for one in (first, *second) if one.is_shown), is_balanced


def ideal_gain(
    results: Results, identity: Identity, capture_id: int, ideals: Sequence[str], factors: np.ndarray | None = None
) -> float | None:
    """The share of the executions' time, from their first device work to the last, that goes where resources take no
    time, changes (`parse_change`) are made, and operations take ``factors`` times what they did; those that take none
    are gone, with their launches. None where nothing matches."""
    altered, hits = Altered(identity.graph, identity.every_execution), factors is not None
    for text in ideals:
        try:
            if text in IDEALS:
                IDEALS[text](altered, 0.0)
            else:
                apply_change(parse_change(text), altered, results, capture_id)
            hits = True
        except UsageError:
            continue  # a recording without synchronisations, copies …
    if not hits:
        return None
    if factors is not None:
        amounts = altered.amounts
        amounts.duration_ns = np.rint(amounts.duration_ns * factors).astype(amounts.duration_ns.dtype)
        altered.remove(factors == 0)
    return gain_of(identity, (), [altered.elapsed_ns()]).gain_ratio


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
        return [name for name in SHORTER if name == HOST or not _alike(self._shorter((name,), 0.0).amounts, same)]

    @cached_property
    def busiest_ns(self) -> int:
        """How long the busiest stream of a process worked in its executions, the mean of the processes."""
        recording, rows = self.identity.graph.recording, self.executions.work[0]
        of, process = recording.operations, recording.stream_process
        busy = grouped_union_length(of.stream[rows], of.start_ns[rows], of.end_ns[rows], len(process))
        used = np.unique(of.stream[rows])
        return int(pd.Series(busy[used]).groupby(process[used]).max().mean()) if len(used) else 0

    def gain(self, resources: tuple[str, ...], question: int) -> Gain:
        """Of these resources; at most what went."""
        if resources not in self.known:
            starts = recorded_starts(self.identity.graph)
            self.known[resources] = [
                self._replayed(resources, at) for at in ((None,) if starts is None else (None, starts))
            ]
        ways, before = self.known[resources], max(self.identity.elapsed_ns[question], 1)
        middle = gain_of(self.identity, resources, ways, question).gain_ratio
        if middle > (1 - FACTOR) * (1 + LARGEST_ERROR_RATIO):
            self.beyond[" and ".join(resources) if len(resources) < 3 else TOGETHER] = middle
        most = self.taken_ns.get(resources, math.inf) / before
        if middle > most * (1 + LARGEST_ERROR_RATIO) + LARGEST_ERROR_RATIO:
            self.beyond_share[" and ".join(resources)] = middle
        return gain_of(self.identity, resources, ways, question, min(1 - FACTOR, most))

    def _replayed(self, resources: Sequence[str], release_ns: np.ndarray | None) -> tuple[float, float]:
        is_half = resources == (SYNCHRONISATION,)  # of the waits: half of what is saved where nobody waits
        altered, same = self._shorter(resources, 0.0 if is_half else FACTOR), vars(self.identity.graph.amounts)
        amounts = altered.amounts
        if len(resources) == 1 and resources[0] not in (HOST, SYNCHRONISATION, RANKS):  # nothing but times changed
            times = [name for name in same if name.endswith("_ns") and isinstance(same[name], np.ndarray)]
            shorter = [np.abs(same[name] - vars(amounts)[name]).sum() for name in times]
            self.taken_ns[tuple(resources)] = float(sum(shorter))
        if release_ns is not None:
            amounts.release_ns = release_ns
        if HOST not in resources and _alike(amounts, self.identity.graph.amounts):
            return self.identity.elapsed_ns
        device, latency = altered.elapsed_ns()
        now = self.identity.elapsed_ns if is_half else (device, latency)
        return (device + now[0]) / 2, (latency + now[1]) / 2

    def _shorter(self, resources: Sequence[str], factor: float) -> Altered:
        altered = Altered(self.identity.graph, self.executions)
        for name in resources:
            if name in SHORTER:
                SHORTER[name](altered, factor)
            else:
                altered.scale(self.parts[name], factor)
        return altered


def _alike(one: Amounts, other: Amounts) -> bool:
    return all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())
