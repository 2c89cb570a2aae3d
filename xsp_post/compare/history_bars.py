"""``--fail-if 'model_latency>3% since last'``: the newest capture of a history against those before it."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from xsp_post.arrays.changes import DRIFT
from xsp_post.arrays.statistics import CONFIDENCE, t_quantiles
from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import shown
from xsp_post.compare.bars import THROUGHPUT, Bar, decided, parse_bar
from xsp_post.compare.differences import detectable
from xsp_post.model.schemas.units import format_ns, format_ratio_interval, format_ratio_percent
from xsp_post.tables.analyses import history

LAST, FIRST = "last", "first"
_MEASURES = {
    history.LATENCY: (history.MODEL, history.LATENCY), THROUGHPUT: (history.MODEL, history.LATENCY),
    "kernel_latency": (history.MODEL, "kernel_latency"), "gpu_busy": (history.MODEL, "gpu_busy"),
    "layer_latency": (history.LAYER, ""), "kernel_time": (history.KERNEL, ""), "copy_time": (history.CAUSE, "copy"),
    "communication": (history.CAUSE, "communication"),
}  # fmt: skip


def parse_since(text: str) -> tuple[Bar, str]:
    """The bar, and since which capture: ``last`` (those at the newest one's level before it), ``first`` (those before
    the first change), or the name of a capture or of a ``baseline:``. Raises `UsageError`."""
    bar_text, *since = re.split(r"\s+since\s+", text.strip(), maxsplit=1)
    bar = parse_bar(bar_text)
    if bar.quantity not in _MEASURES:
        raise _unreadable(text, "a history does not have that quantity")
    if _MEASURES[bar.quantity][0] in (history.LAYER, history.KERNEL) and not bar.name:
        raise _unreadable(text, "name a layer or a family of kernels")
    return bar, since[0] if since else LAST


def _unreadable(text: str, why: str) -> UsageError:
    return UsageError(f"--fail-if {text!r}: {why}", code="bar-unknown")


def check_since(
    values: pd.DataFrame, changes: pd.DataFrame, bars: list[tuple[Bar, str]], kept: Mapping[str, pd.DataFrame]
) -> list[str]:
    """A sentence for every bar that is met by every workload. ``values``, ``changes``: tables of the history; ``kept``:
    values of each baseline that a bar names.

    Raises `BarNotMetError`, `UndecidedError` (the captures cannot tell), `UsageError` (no such measure or capture).
    """
    said: dict[str, list[str]] = {"met": [], "broken": [], "unsure": []}
    for bar, since in bars:
        for number, rows in values.groupby("workload_index", sort=True):
            mine = changes[changes["workload_index"] == number]
            outcome, sentence = _decided(rows, mine, bar, since, kept.get(since))
            said[outcome].append(f"{bar.text} since {since}: {sentence}")
    if bars and not any(said.values()):
        said["unsure"] = ["there is no capture with a model execution"]
    return decided(**said)


def _decided(
    rows: pd.DataFrame, changes: pd.DataFrame, bar: Bar, since: str, kept: pd.DataFrame | None
) -> tuple[str, str]:
    table = history.table_of(rows)
    level, subject = _MEASURES[bar.quantity]
    column = _column(table, level, subject or bar.name, bar.text)
    names = history.names_of(rows)
    series, floor = table[column].to_numpy(float), float(history.floors(table[[column]].to_numpy(float))[0])
    newest = len(series) - 1
    steps = changes[(changes["kind"] != DRIFT) & (changes["level"] == level) & (changes["subject"] == column[1])]
    edges = [0, *steps.loc[steps["is_shown"], "position_index"].astype(int), len(series)]
    start, end = (0, 1) if kept is not None else _reference(edges, names, since, bar.text)
    end = min(end, newest)
    if start >= end:
        return "unsure", "there is no capture to compare the newest one with"
    earlier = pd.Series(series[:newest])
    levels = earlier.groupby(np.searchsorted(edges[1:-1], earlier.index, side="right"))
    freedom = newest - levels.ngroups
    spread = np.hypot(np.sqrt(((earlier - levels.transform("mean")) ** 2).sum() / max(freedom, 1)), floor)
    base = series[start:end].mean()
    if kept is not None:
        if len(kept) and history.history_values([kept, rows])["workload_index"].nunique() > 1:
            return "unsure", f"{since} is of another workload"
        base = kept.loc[kept["level"].eq(column[0]) & kept["subject"].eq(column[1]), "value_ns"].sum()
    error = spread * np.sqrt(1 + 1 / (end - start))
    difference = series[newest] - base
    change = base / series[newest] - 1 if bar.quantity == THROUGHPUT else difference / base if base else np.nan
    value = change if bar.is_relative else difference
    half = float(t_quantiles(freedom, CONFIDENCE)) * error  # NaN without a degree of freedom
    low, high = (difference - half) / base, (difference + half) / base
    interval = f"; 95 % interval {format_ratio_interval(low, high)}" if half == half and base else ""
    said = (f"{shown(column[1], 80)} {format_ns(base)} → {format_ns(series[newest])} ({format_ratio_percent(change)}"
            f"{interval}) in {shown(names[newest], 60)}")  # fmt: skip
    if bar.is_beyond(value):
        mine = changes if level == history.MODEL else changes.iloc[:0]
        if kept is None and _is_machines(
            mine, history.slowness_of(table)[:, 0], slice(start, end), base, series[newest], bar
        ):
            return "unsure", f"{said}, as all else does there: the machine's clock or load"
        return ("broken" if abs(difference) > half else "unsure"), said
    unit = base if bar.is_relative else 1.0
    is_known = float(detectable(error, freedom)) / unit <= abs(bar.limit) or not bar.limit
    is_known |= half == half and not any(bar.is_beyond(value + side * half / unit) for side in (-1, 1))
    return ("met" if is_known else "unsure"), said


def _is_machines(
    changes: pd.DataFrame, slowness: np.ndarray, reference: slice, base: float, newest: float, bar: Bar
) -> bool:
    """Whether a bar holds only because the machine is slower than at the captures of ``reference``."""
    steps = changes.loc[changes["kind"] == history.MACHINE, "position_index"]
    usual = newest / slowness[-1] * slowness[reference].mean()
    change = base / usual - 1 if bar.quantity == THROUGHPUT else usual / base - 1 if base else np.nan
    return bool((steps >= reference.stop).any()) or not bar.is_beyond(change if bar.is_relative else usual - base)


def _reference(edges: list[int], names: list[str], since: str, text: str) -> tuple[int, int]:
    """First capture, and one behind the last, that the newest one is compared with."""
    if since == LAST:
        return max(edge for edge in edges if edge < max(len(names) - 1, 1)), len(names)
    if since == FIRST:
        return 0, edges[1]
    if since not in names:
        raise _unreadable(text, f"there is no capture {since!r}")
    start = names.index(since)
    return start, min(edge for edge in edges if edge > start)


def _column(table: pd.DataFrame, level: str, subject: str, text: str) -> tuple[str, str]:
    subjects = [str(one[1]) for one in table.columns if one[0] == level]
    found = [one for one in subjects if one == subject] or [one for one in subjects if subject.lower() in one.lower()]
    if len(found) != 1:
        raise _unreadable(text, "no measure of the history has that name" if not found else "several have that name")
    return level, found[0]
