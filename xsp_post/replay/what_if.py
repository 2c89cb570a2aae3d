"""Results + changes → what all executions would take, the time of the verdict, and one: latency, period; intervals, and
what limits then."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.base.errors import ContradictionError, UsageError
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.replay.changes import Effect, apply_change, parse_change
from xsp_post.replay.critical_path import limit_of, measured_path
from xsp_post.replay.executions import Clock, Executions, elapsed, measure, recorded_clock, simulated_clock
from xsp_post.replay.experiment import Gain, gain_of
from xsp_post.replay.fidelity import LEAST_MARGIN_RATIO, Identity, identity_of, margin_of, middle_error
from xsp_post.replay.graph import Graph, Steps, recorded_starts, replay
from xsp_post.replay.recording import name_of_executions
from xsp_post.replay.resources import Altered

# What a kind of change is predicted within at least, by its word (else `LEAST_MARGIN_RATIO`): the half width that holds
# nineteen of twenty predictions of scripts/backtest --laboratory.
KIND_MARGIN_RATIO = {"graph": 0.035, "overlap": 0.03, "none": 0.03}
_FEW = 12  # executions: the median of fewer is less sure than they lie apart


class Amount(NamedTuple):
    """A duration of one execution: measured (median), predicted, and the interval it is expected in."""

    measured_ns: float
    predicted_ns: float
    low_ns: float
    high_ns: float

    @property
    def change_ratio(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_ns / self.measured_ns - 1 if self.measured_ns else float("nan")


class Prediction(NamedTuple):
    """What changes would do to one capture's executions."""

    capture_id: int
    source_name: str
    execution: str  # what one execution is
    execution_count: int
    effects: list[Effect]
    elapsed: Amount  # all measured executions together, of every kind, as the verdict: `experiment.DEVICE`
    latency: Amount  # of one execution: a median
    period: Amount | None  # None: one execution only
    error_ratio: float  # of the identity replay
    spread_ratio: float  # of the measured executions
    critical_path: pd.DataFrame  # after the change: one row per layer and kind
    limit: str
    limit_ratio: float  # its share of the critical path
    limit_before: str

    def amounts(self) -> list[tuple[str, Amount]]:
        """The predicted quantities by name; the first is that of the verdict."""
        known = (("elapsed", self.elapsed), ("latency", self.latency), ("period", self.period))
        return [(name, one) for name, one in known if one is not None]

    def frame(self) -> pd.DataFrame:
        """One row per predicted quantity."""
        frame = pd.DataFrame([
            {"capture_id": self.capture_id, "quantity": name, **one._asdict(), "change_ratio": one.change_ratio}
            for name, one in self.amounts()
        ])  # fmt: skip
        return frame.assign(error_ratio=self.error_ratio, spread_ratio=self.spread_ratio)


def what_if(results: Results, changes: Sequence[str], capture_id: int | None = None) -> Prediction:
    """Predict one capture (default: the one with most kernels) under all changes together.

    Raises `UsageError` for a change that cannot be read or that matches nothing, `ContradictionError` where the replay
    is refused: its message says why.
    """
    if not changes:
        raise UsageError("no change is given", code="bad-change")
    parsed = [parse_change(text) for text in changes]
    captures = results.frame("captures", ["capture_id", "kernel_count", "source_name"])
    if capture_id is None:
        capture_id = int(captures.sort_values("kernel_count", kind="stable")["capture_id"].iloc[-1])
    identity = identity_of(results, capture_id)
    names = captures.loc[captures["capture_id"] == capture_id, "source_name"].astype(str)
    source_name = next(iter(names), "")
    error = middle_error(identity.recorded, identity.simulated) if identity.refusal else identity.error_ratio
    if refusal := identity.refusal_of(error):
        raise ContradictionError(f"{source_name}: nothing is predicted: {refusal}", code="replay-refused")
    graph, executions, every = identity.graph, identity.executions, identity.every_execution
    # half the width, relative, that predictions of these kinds of change need at least
    least = max(KIND_MARGIN_RATIO.get(change.word, LEAST_MARGIN_RATIO) for change in parsed)
    starts, made, ways = recorded_starts(graph), dict[str, Amount](), list[tuple[float, float]]()
    for at in (None,) if starts is None else (starts, None):
        altered, whole = Altered(graph, executions, at), Altered(graph, every, at)
        *_, effects = [[apply_change(one, of, results, capture_id) for one in parsed] for of in (altered, whole)]
        replayed = replay(graph, whole.amounts)
        clock = simulated_clock(replayed)
        ways.append(elapsed(graph, whole.executions, clock))
        follows = _amounts(identity, measure(altered.executions, clock), error, least)
        made = {name: _either(one, made.get(name, one)) for name, one in follows.items()}
    kept = min(1.0, *(0.0 if change.factor is None else change.factor for change in parsed))
    together = _together(identity, gain_of(identity, (), ways, most=1 - kept), least)
    path = _path(results, replace(graph, amounts=whole.amounts), whole.executions, clock, replayed.steps)
    before = _path(results, graph, every, recorded_clock(graph), identity.replayed.steps)
    limit, ratio = limit_of(path)
    known = executions.index.max() >= 0
    name = (name_of_executions(results, capture_id) if known else "") or executions.label
    return Prediction(
        capture_id, source_name, name, len(executions.index), effects,
        together, made["latency_ns"], made.get("period_ns"), error,
        max(_spread(identity.recorded[name]) for name in ("latency_ns", "period_ns")), path, limit, ratio,
        limit_of(before)[0],
    )  # fmt: skip


def _either(follows: Amount, stays: Amount) -> Amount:
    """Work without a launch row may follow its stream or stay where it was: the middle, and an interval over both."""
    low, high = min(follows.low_ns, stays.low_ns), max(follows.high_ns, stays.high_ns)
    return Amount(follows.measured_ns, (follows.predicted_ns + stays.predicted_ns) / 2, low, high)


def _together(identity: Identity, gain: Gain, least_ratio: float) -> Amount:
    """The time that the verdict speaks of, less what goes of it."""
    whole, kept, margin = identity.recorded_ns[0], 1 - gain.gain_ratio, max(gain.margin_ratio, least_ratio)
    return Amount(whole, whole * kept, whole * max(kept - margin, 0.0), whole * (kept + margin))


def _amounts(identity: Identity, after: pd.DataFrame, error_ratio: float, least_ratio: float) -> dict[str, Amount]:
    """Latency and period: the measured median, times what the replay says of the change."""
    recorded, simulated, made = identity.recorded, identity.simulated, dict[str, Amount]()
    for name in ("latency_ns", "period_ns"):
        usable = recorded[name].to_numpy(float) > 0
        if not usable.any():
            continue
        middle, before, now = (float(one[name][usable].median()) for one in (recorded, simulated, after))
        predicted = middle * now / max(before, 1.0)
        unsure = _spread(recorded[name]) * max(1.0, math.sqrt(_FEW / usable.sum()))
        margin = max(margin_of(error_ratio + unsure, predicted - middle, predicted), least_ratio)
        made[name] = Amount(middle, predicted, predicted * max(1 - margin, 0.0), predicted * (1 + margin))
    return made


def _spread(measured: pd.Series) -> float:
    """Half the range of the middle two thirds over the median: how far executions lie apart."""
    values = measured[measured > 0].to_numpy(float)
    if len(values) < 2:
        return 0.0
    low, high = np.quantile(values, [1 / 6, 5 / 6])
    return float((high - low) / 2 / np.median(values))


def _path(results: Results, graph: Graph, executions: Executions, clock: Clock, steps: Steps | None) -> pd.DataFrame:
    """The critical path of the executions, summed up by layer and kind, longest first."""
    path, _ = measured_path(graph, executions, clock, steps)
    path = path.assign(kind=path["kind"].astype("str"), duration_ns=path["end_ns"] - path["start_ns"])
    summed = path.groupby(["layer_index", "kind"])["duration_ns"].sum().reset_index()
    layers = frame_or_empty(results, "layers", ["layer_index", "layer_name"]).drop_duplicates("layer_index")
    names = layers.set_index("layer_index")["layer_name"].astype(str)
    summed["layer_name"] = summed["layer_index"].map(names).astype(object).fillna("")
    summed["path_ratio"] = summed["duration_ns"] / max(summed["duration_ns"].sum(), 1)
    order = np.argsort(-summed["duration_ns"].to_numpy(), kind="stable")
    return pd.DataFrame(summed).iloc[order].reset_index(drop=True)
