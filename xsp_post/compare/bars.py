"""``--fail-if`` conditions: text → bar → met or not, with a sentence either way.

Grammar: ``QUANTITY[(NAME)] OP NUMBER UNIT``, e.g. ``model_latency>3%``, ``kernel_count>0``, ``throughput<-5%``,
``layer_latency>10%`` (any layer), ``layer_latency(layers.3.mlp)>200us``, ``kernel_time(gemm)>5%``,
``memory_peak>1GiB``. The value is how much the other exceeds the base: relative with %, else absolute (ns, us, ms, s;
MiB, GB …; none for counts). A bar is not met when the difference is beyond it *and* is a difference: its interval
leaves out zero. Where nothing can be said about noise (one iteration) the value alone decides, and the sentence says
so. A bar that lies inside the interval is not decided, which has an exit code of its own.

``model_latency>3% since last`` (`parse_since`): the newest capture of a history against those before it.
"""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.changes import DRIFT
from xsp_post.arrays.statistics import CONFIDENCE, t_quantiles
from xsp_post.base.errors import BarNotMetError, UndecidedError, UsageError
from xsp_post.base.text_safety import shown
from xsp_post.compare.differences import SIGNIFICANCE, detectable
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import (
    TIME_UNITS,
    format_bytes,
    format_change,
    format_count,
    format_ns,
    format_ratio_interval,
    format_ratio_percent,
)
from xsp_post.tables.analyses import history

_BAR = re.compile(
    r"^\s*(?P<quantity>[a-z_]+)\s*(?:\(\s*(?P<name>.*?)\s*\))?\s*(?P<op>>=|<=|>|<)\s*"
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>%|ns|us|µs|ms|s|B|[KMG]i?B|)\s*$"
)
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_MODEL = ("period", "model_latency", "kernel_latency", "gpu_busy", "kernel_count")
_ROWS = {"layer_latency": ("compare_layers", "layer_path"), "kernel_time": ("compare_kernels", "name")}
# of a capture as a whole, per unit of work (`compare.impact`): there without executions, too
_TOTALS = ("kernel_time", "device_time", "idle", "copy_time", "communication")
# of the whole recording, where both sides recorded memory alike (`compare.memory`)
_MEMORY = {"memory_peak": "peak of memory", "memory_reserved": "memory reserved by the allocator"}
THROUGHPUT = "throughput"
QUANTITIES = tuple(dict.fromkeys((*_MODEL, THROUGHPUT, *_ROWS, *_TOTALS, *_MEMORY)))


@dataclass(frozen=True)
class Bar:
    """One condition. ``limit`` is a ratio where ``is_relative``, else ns or a count."""

    text: str
    quantity: str
    name: str
    op: str
    limit: float
    is_relative: bool

    def is_beyond(self, value: Any) -> Any:
        """Whether values are beyond the limit; NaN is not."""
        return _COMPARE[self.op](value, self.limit)


def parse_bar(text: str) -> Bar:
    """A condition from its text. Raises `UsageError`."""
    match = _BAR.match(text)
    if match is None or match["quantity"] not in QUANTITIES or (match["name"] and match["quantity"] not in _ROWS):
        raise UsageError(f"--fail-if {text!r} cannot be read", code="bar-syntax")
    relative = match["unit"] == "%"
    units = _units(match["quantity"])
    if not relative and match["unit"] not in units:
        known = f"% or {', '.join(units)}" if len(units) > 1 else "% or no unit" if units else "%"
        raise UsageError(f"--fail-if {text!r}: give {known} as the unit", code="bar-syntax")
    number = float(match["number"])
    limit = number / 100 if relative else number * units[match["unit"]]
    return Bar(text.strip(), match["quantity"], match["name"] or "", match["op"], limit, relative)


def _units(quantity: str) -> Mapping[str, float]:
    """The units of a quantity, beside %, and what they scale by."""
    if quantity in _MEMORY:
        return _BYTES
    return {THROUGHPUT: {}, "kernel_count": {"": 1.0}}.get(quantity, TIME_UNITS)


def check_bars(comparison: Results, bars: Sequence[Bar]) -> list[str]:
    """A sentence for every bar that is met. Raises `BarNotMetError` naming all that are not, `UsageError` for a
    quantity that is not in both captures."""
    met: list[str] = []
    broken: list[str] = []
    unsure: list[str] = []
    for bar in bars:
        beyond, sure = _beyond(comparison, bar)
        broken += [f"{bar.text}: {_sentence(bar, row)}" for row in beyond[sure].to_dict("records")]
        if not sure.any():
            noise = [f"it may be noise: {_sentence(bar, row)}" for row in beyond.head(1).to_dict("records")]
            unseen = _undecided(comparison, bar)
            said = f"{bar.text}: {''.join(noise) or unseen or 'does not hold'}"
            (unsure if unseen else met).append(said)
    return decided(met, broken, unsure)


def decided(met: list[str], broken: list[str], unsure: list[str]) -> list[str]:
    """The sentences of bars that are met, where all are; else raises."""
    if broken:
        more = f" (and {len(broken) - 3} more)" if len(broken) > 3 else ""
        raise BarNotMetError("; ".join(broken[:3]) + more, code="bar-not-met")
    if unsure:
        raise UndecidedError("; ".join(unsure[:3]), code="bar-undecided")
    return met


def _undecided(comparison: Results, bar: Bar) -> str:
    """A sentence where the bar lies inside the interval and these captures would not show a change of its size, ''
    where it is decided."""
    rows = _rows_of(comparison, bar)
    if bar.limit == 0 or (bar.quantity in _ROWS and not bar.name):
        return ""  # any change at all, or any of many rows: no one size to be shown
    limit = bar.limit * rows["base"] if bar.is_relative else bar.limit
    inside = rows["ci_high"].ge(limit) if bar.op.startswith(">") else rows["ci_low"].le(limit)
    is_beyond = rows["difference"].gt(limit) if bar.op.startswith(">") else rows["difference"].lt(limit)
    smallest = rows["detectable"] / rows["base"] if bar.is_relative else rows["detectable"]
    blind = smallest[inside & ((smallest > abs(bar.limit)) | (is_beyond & rows["p_value"].notna()))]
    if blind.empty:
        return ""
    row = rows.iloc[int(rows.index.get_indexer(blind.index)[int(blind.to_numpy().argmax())])]
    size = format_ratio_percent(blind.max()) if bar.is_relative else format_ns(blind.max())
    return f"these captures cannot tell: {row['label']} must change by {size} to be shown 4 times of 5"


def _beyond(comparison: Results, bar: Bar) -> tuple[pd.DataFrame, pd.Series]:
    """The rows whose estimate is beyond the bar, and which of them are so by more than noise explains."""
    rows = _rows_of(comparison, bar)
    if rows.empty:
        what = bar.quantity + (f" of {bar.name!r}" if bar.name else "")
        raise UsageError(f"--fail-if {bar.text!r}: the comparison has no {what} on both sides", code="bar-unknown")
    value = rows["ratio"] if bar.is_relative else rows["difference"]
    beyond = rows[bar.is_beyond(value)]
    return beyond, beyond["is_shown"] | beyond["p_value"].isna()


def _rows_of(comparison: Results, bar: Bar) -> pd.DataFrame:
    """label, base, other, difference, ratio, ci_low, ci_high, p_value, is_shown of what the bar is about; whether it
    had several values on each side (``is_sample``)."""
    if bar.quantity in _ROWS:
        rows = _named_rows(comparison, bar)
        if len(rows) or bar.quantity not in _TOTALS:
            return rows
        return _names_rows(comparison, bar) if bar.name else _totals_rows(comparison, bar)
    if bar.quantity in (*_TOTALS, *_MEMORY):
        return _totals_rows(comparison, bar)
    frame = comparison.frame("compare_models")
    known = set(frame["quantity"].astype(str))
    wanted = bar.quantity if bar.quantity != THROUGHPUT else "period" if "period" in known else "model_latency"
    frame = frame[frame["quantity"] == wanted]
    # one bar asks one question, named beforehand: its own p-value decides
    rows = _taken(frame, _MODEL_COLUMNS, bar.quantity.replace("_", " "), frame["p_value"])
    if rows.empty and bar.quantity == "kernel_count":
        return _totals_rows(comparison, bar)
    if bar.quantity == THROUGHPUT:
        rows = rows.assign(ratio=rows["base"] / rows["other"] - 1, what=wanted.replace("_", " "))
    return rows


def _totals_rows(comparison: Results, bar: Bar) -> pd.DataFrame:
    """One quantity of the whole capture, per unit of work."""
    frame = frame_or_empty(comparison, "compare_totals")
    frame = frame[frame["quantity"].astype(str) == bar.quantity]
    label = _MEMORY.get(bar.quantity, f"{bar.quantity.replace('_', ' ')} per unit of work")
    return _untested(frame, label, frame["base_per_unit"], frame["other_per_unit"])


def _names_rows(comparison: Results, bar: Bar) -> pd.DataFrame:
    """Mean durations of the kernels of a name."""
    frame = frame_or_empty(comparison, "compare_names")
    texts = frame["name"].astype(object)
    frame = frame[texts.eq(bar.name) | texts.str.contains(re.escape(bar.name), case=False, regex=True)]
    label = frame["name"].map(lambda text: f"mean time of {shown(str(text), 80)}")
    rows = _untested(frame, label, frame["base_mean_ns"], frame["other_mean_ns"])
    return rows[rows["base"].notna() & rows["other"].notna()]


def _untested(frame: pd.DataFrame, label: str | pd.Series, base: pd.Series, other: pd.Series) -> pd.DataFrame:
    """Rows that have one value on each side: judged by the values alone."""
    nothing = float("nan")
    values = pd.DataFrame({"base": base, "other": other}, index=frame.index)
    difference = values["other"] - values["base"]
    unknown = dict.fromkeys(("ci_low", "ci_high", "p_value", "detectable"), nothing)
    ratio = difference / values["base"]
    return values.assign(label=label, difference=difference, ratio=ratio, is_shown=False, is_sample=False, **unknown)


def _named_rows(comparison: Results, bar: Bar) -> pd.DataFrame:
    table, column = _ROWS[bar.quantity]
    frame = comparison.frame(table)
    if "measure" in frame:
        frame = frame[frame["measure"] == "latency"]
    if bar.name:
        texts = frame[column].astype(object)
        exact = texts == bar.name
        frame = frame[exact if exact.any() else texts.str.contains(re.escape(bar.name), case=False, regex=True)]
    label = frame[column].map(lambda text: f"{bar.quantity.replace('_', ' ')} of {shown(str(text), 80)}")
    return _taken(frame, _ROW_COLUMNS, label, frame["p_value" if len(frame) == 1 else "adjusted_p_value"])


_MODEL_COLUMNS = ("base_value", "other_value", "difference_value", "ci_low_value", "ci_high_value", "detectable_value")
_ROW_COLUMNS = ("base_latency_ns", "other_latency_ns", "difference_ns", "ci_low_difference_ns",
                "ci_high_difference_ns", "detectable_difference_ns")  # fmt: skip


def _taken(frame: pd.DataFrame, columns: Sequence[str], label: str | pd.Series, p_value: pd.Series) -> pd.DataFrame:
    """The rows that both sides have, under the names that bars use."""
    names = ["base", "other", "difference", "ci_low", "ci_high", "detectable"]
    rows = frame[list(columns)].set_axis(names, axis=1)
    rows = rows.assign(label=label, ratio=frame["difference_ratio"], p_value=frame["p_value"],
                       is_shown=p_value < SIGNIFICANCE, is_sample=True)  # fmt: skip
    return rows[rows["base"].notna() & rows["other"].notna()]


def _sentence(bar: Bar, row: dict[Any, Any]) -> str:
    amount = format_bytes if bar.quantity in _MEMORY else format_count if bar.quantity == "kernel_count" else format_ns
    what = row.get("what", row["label"])
    values = f"{amount(row['base'])} → {amount(row['other'])}"
    change = format_change(row["ratio"])
    if math.isnan(row["p_value"]):
        unsure = "; too few iterations for an interval: judged by the value alone"
        if not row["is_sample"]:
            unsure = "; without an interval: judged by the value alone"
        sure = "" if bar.quantity in ("kernel_count", *_MEMORY) else unsure
    elif row["base"]:
        ends = format_ratio_interval(*(row[end] / row["base"] for end in ("ci_low", "ci_high")))
        sure = f"; 95 % interval {ends}" if bar.quantity != THROUGHPUT else ""
    else:
        sure = ""
    label = f"{row['label']} " if what != row["label"] else ""
    return f"{what} {values} ({label}{change}{sure})"


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
    said = (f"{shown(column[1], 80)} {format_ns(base)} → {format_ns(series[newest])} ({format_change(change)}"
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
