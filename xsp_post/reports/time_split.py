"""Device windows, idle causes and layers → what the time of the devices went to, part by part.

The parts of a split add up to its total. What is small is joined with its like, never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from xsp_post.base.sentences import sentence
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_ns
from xsp_post.reports.trust import Balance
from xsp_post.tables.analyses.limits import Limit, in_scope

# Idle causes with less than this share of the window, and those after the first few, are joined.
_LEAST_RATIO = 0.005
_MOST_CAUSES = 5
_WORK = (
    ("kernel", "kernels", "kernel_busy_ns"),
    ("graph", "CUDA graphs", "graph_busy_ns"),
    ("communication", "communication", "communication_ns"),
    ("copy", "copies and memsets", "copy_busy_ns"),
)


@dataclass(frozen=True)
class Part:
    """``kind``: what it is, for its colour: kernel, copy, graph, communication, an idle cause, named, self, none …"""

    kind: str
    label: str
    time_ns: int


@dataclass(frozen=True)
class Split:
    """Parts that add up to ``total_ns``. ``of``: what the total is, in words."""

    title: str
    of: str
    total_ns: int
    parts: tuple[Part, ...]


def device_split(results: Results, limit: Limit) -> Split | None:
    """Kernels, graphs, communication, copies, and idle time by cause; None where no device work was recorded."""
    if not limit.window_ns or not limit.window:
        return None
    names = {} if limit.is_gpu else {"kernel": "operators"}
    work = [Part(kind, names.get(kind, label), int(limit.window[column])) for kind, label, column in _WORK]
    by_cause = in_scope(results, limit).groupby("cause", observed=True)["idle_ns"].sum()
    idle = by_cause.set_axis(by_cause.index.astype(str)).sort_index().sort_values(ascending=False)
    shown = idle[idle >= _LEAST_RATIO * limit.window_ns].head(_MOST_CAUSES)
    parts = [
        *work,
        *(Part(str(cause), f"idle: {sentence(f'cause.{cause}')}", int(time)) for cause, time in shown.items()),
    ]
    rest = limit.window_ns - sum(part.time_ns for part in parts)
    if rest > 0:
        parts.append(Part("other", "idle: other causes" if len(shown) else "idle", rest))
    over = f", summed over {limit.device_count} GPUs" if limit.device_count > 1 else ""
    device = "GPU" if limit.is_gpu else "CPU operators"
    return Split(
        f"Where the time of the {device}{'s' if over else ''} went to",
        f"{sentence(f'scope.{limit.scope}')}: {format_ns(limit.window_ns)}{over}",
        limit.window_ns,
        tuple(part for part in parts if part.time_ns > 0),
    )


def layer_split(results: Results, limit: Limit, balances: Sequence[Balance]) -> Split | None:
    """How much of the device time counts for a layer that has a name; None where no device work was recorded."""
    if limit.scope == "execution":
        found = _of_executions(results, list(limit.captures))
        if found is not None:
            return found
    return _of_captures(balances)


def _of_executions(results: Results, captures: list[int]) -> Split | None:
    executions = frame_or_empty(
        results, "iterations", ["capture_id", "iteration_index", "device_ns", "is_warmup"]
    ).query("capture_id in @captures and not is_warmup")
    total = int(executions["device_ns"].sum())
    if not total:
        return None
    columns = ["capture_id", "iteration_index", "layer_name", "device_ns", "is_inferred"]
    layers = frame_or_empty(results, "layers", columns)
    keys = ["capture_id", "iteration_index"]
    mine = layers[pd.MultiIndex.from_frame(layers[keys]).isin(pd.MultiIndex.from_frame(executions[keys]))]
    is_layer = mine["layer_name"].astype(str).ne("[self]")
    is_inferred = mine["is_inferred"].astype(bool)
    named = int(mine.loc[is_layer & ~is_inferred, "device_ns"].sum())
    inferred = int(mine.loc[is_layer & is_inferred, "device_ns"].sum())
    if named + inferred > total:  # layers inside of layers: the balance counts each operation once
        return None
    of = f"the device time of the measured executions: {format_ns(total)}"
    return _layer_parts(of, total, named, inferred, total - named - inferred, 0)


def _of_captures(balances: Sequence[Balance]) -> Split | None:
    of_layers = [balance for balance in balances if balance.question == "layer"]
    total = sum(balance.device_ns for balance in of_layers)
    if not total:
        return None
    times = pd.Series(0, index=["none", "no_launch", "inferred"], dtype="int64")
    for balance in of_layers:
        for way, _, time in balance.parts:
            times[way] = times.get(way, 0) + time
    own = sum(balance.self_device_ns for balance in of_layers)
    nowhere, inferred = int(times["none"] + times["no_launch"]), int(times["inferred"])
    named = total - nowhere - inferred
    own_named = min(own, named)
    own_inferred = own - own_named
    of = f"the device time of what was recorded: {format_ns(total)}"
    return _layer_parts(of, total, named - own_named, inferred - own_inferred, own, nowhere)


def _layer_parts(of: str, total: int, named: int, inferred: int, own: int, nowhere: int) -> Split:
    parts = (
        Part("named", "in named layers", named),
        Part("inferred", "in layers that are inferred, not recorded", inferred),
        Part("self", "in the model, in no layer ([self])", own),
        Part("none", "in no layer", nowhere),
    )
    return Split("Device time in layers", of, total, tuple(part for part in parts if part.time_ns > 0))
