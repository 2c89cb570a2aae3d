"""Identity replay: how well the simulation gives back what was recorded, and when a prediction is refused."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from xsp_post.base.texts import sentence
from xsp_post.model.results import Results, of_captures
from xsp_post.replay.executions import Executions, elapsed, find_executions, measure, recorded_clock, simulated_clock
from xsp_post.replay.graph import Graph, Replayed, make_graph, replay
from xsp_post.replay.learning import learn
from xsp_post.replay.recording import Operations, read_recording

LARGEST_ERROR_RATIO = 0.05  # above it nothing is predicted
LEAST_MARGIN_RATIO = 0.02  # clocks and temperatures change between runs: no interval is narrower
# What really changes seldom does so by the factor exactly (caches, memory, other kernels): this share of the change,
# found with scripts/bench predictions. It widens no interval beyond the most.
CHANGE_ERROR_RATIO = 0.2
MOST_MARGIN_RATIO = 0.1


@dataclass
class Identity:
    """A recording's graph, its replay without a change, and the error of that."""

    graph: Graph
    replayed: Replayed
    executions: Executions
    recorded: pd.DataFrame  # `executions.measure` of what was recorded
    simulated: pd.DataFrame  # and of the replay
    measured_ns: int  # first to last device work
    replayed_ns: int
    error_ratio: float  # the larger of the whole recording's and the middle execution's; NaN: nothing to replay
    orphan_ratio: float
    refusal: str  # why nothing is predicted; '' when it is
    is_serial: bool = False  # a profiler ran the kernels one by one

    @cached_property
    def every_execution(self) -> Executions:
        """The measured executions of all kinds."""
        return find_executions(self.graph, of_every_kind=True)

    @cached_property
    def recorded_ns(self) -> tuple[float, float]:
        """How long these took: of the device, and with the host before and after."""
        return elapsed(self.graph, self.every_execution, recorded_clock(self.graph))

    @cached_property
    def elapsed_ns(self) -> tuple[float, float]:
        """The same in the replay without a change."""
        return elapsed(self.graph, self.every_execution, simulated_clock(self.replayed))

    def elapsed_error(self, question: int) -> float:
        """How far that is off: 0 of the device, 1 with the host."""
        return abs(self.elapsed_ns[question] / max(self.recorded_ns[question], 1) - 1)

    def refusal_of(self, error_ratio: float) -> str:
        """Why nothing is predicted of times that the replay misses by so much, '' when it is: a long wait that nothing
        explains may lie outside of them."""
        is_final = self.is_serial or not self.refusal
        return self.refusal if is_final else _refusal(self.graph.recording.operations, error_ratio, self.replayed)


def identity_of(results: Results, capture_id: int) -> Identity:
    """Replay one capture as it was. Never raises for odd captures: `refusal` says what is missing.

    The last one is kept: the critical path, every advice and a prediction ask for the same.
    """
    last: dict[int, Identity] = results.kept("replay", dict)
    if capture_id not in last:
        last.clear()
        last[capture_id] = _identity_of(results, capture_id)
    return last[capture_id]


def _identity_of(results: Results, capture_id: int) -> Identity:
    recording = read_recording(results, capture_id)
    graph = make_graph(recording, learn(recording))
    replayed = replay(graph)
    executions = find_executions(graph)
    recorded = measure(executions, recorded_clock(graph))
    simulated = measure(executions, simulated_clock(replayed))
    operations = recording.operations
    measured_ns = replayed_ns = 0
    error = orphans = float("nan")
    if len(operations):
        measured_ns = int(operations.end_ns.max() - operations.start_ns.min())
        replayed_ns = int(replayed.end_ns.max() - replayed.start_ns.min())
        error = max(abs(replayed_ns / max(measured_ns, 1) - 1), middle_error(recorded, simulated))
        duration, missing = operations.duration_ns, operations.call < 0
        orphans = max(float(missing.mean()), float(duration[missing].sum() / max(duration.sum(), 1)))
    collector = of_captures(results, "captures", capture_id, ["collector"])["collector"].astype(str)
    refusal = _refusal(operations, error, replayed)
    if is_serial := bool(collector.eq("ncu").any()):
        refusal = sentence("replay.serial")
    return Identity(graph, replayed, executions, recorded, simulated, measured_ns, replayed_ns, error, orphans, refusal,
                    is_serial)  # fmt: skip


def middle_error(recorded: pd.DataFrame, simulated: pd.DataFrame) -> float:
    """The median error of the executions' latency and period, the larger of the two."""
    names = ["latency_ns", "period_ns"]
    ratios = (simulated[names].astype(float) / recorded[names].astype(float) - 1).abs().replace(np.inf, np.nan)
    return float(ratios.median().fillna(0.0).max())


def margin_of(own_ratio: float, change_ns: float, predicted_ns: float) -> float:
    """Half the width of an interval over the prediction. ``own_ratio``: replay error and spread of the executions."""
    changed = CHANGE_ERROR_RATIO * abs(change_ns) / max(predicted_ns, 1.0)
    both = min(math.hypot(own_ratio, changed), MOST_MARGIN_RATIO)
    return max(own_ratio, both, LEAST_MARGIN_RATIO)


def _refusal(operations: Operations, error: float, replayed: Replayed) -> str:
    if not len(operations):
        return sentence("replay.no-work")
    if (operations.call < 0).all():
        return sentence("replay.no-launches")
    if not replayed.is_settled:
        return sentence("replay.unsettled")
    if not error <= LARGEST_ERROR_RATIO:
        return sentence("replay.missed", error=f"{error:.1%}", limit=f"{LARGEST_ERROR_RATIO:.0%}")
    return ""
