"""A comparison → its first sentence, the largest regression and gain, and what the difference consists of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.compare.differences import FASTER, SLOWER
from xsp_post.compare.headline import (
    ASSUMED,
    BY_NAME,
    LATENCY,
    OVER_CAPTURES,
    OVER_EXECUTIONS,
    PERIOD,
    SAME,
    UNDECIDED,
    WHOLE,
    Headline,
)
from xsp_post.compare.impact import EXECUTION, WORK, Impact
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_interval, format_ratio_percent

Statement = tuple[str, str, bool]
_WORDS = {SLOWER: "Slower", FASTER: "Faster", SAME: "The same", UNDECIDED: "Not decided"}
_EQUAL_WINDOW = 0.02
_LEAST_CHANGE = 0.03  # a part of the evidence that changed by less is not named


_WINDOWS = {LATENCY: "an execution", PERIOD: "from one execution to the next", WORK: "for the same kernels",
            WHOLE: "for the whole recording"}  # fmt: skip
_INTERVALS = {
    OVER_CAPTURES: "", OVER_EXECUTIONS: "; from single captures: how runs differ is assumed",
    ASSUMED: "; one measurement on a side: how executions differ is assumed", BY_NAME: " by kernel name",
}  # fmt: skip
_DECIDES = {
    OVER_CAPTURES: "More captures of each side would decide it.",
    OVER_EXECUTIONS: "Three captures of each side would decide it (xsp-post run --repeat 3).",
    ASSUMED: "Several executions of each side would decide it.",
    BY_NAME: "Whole executions on both sides would decide it.",
}


def first_sentence(heads: list[Headline]) -> Statement | None:
    """Both times, their ratio and one word; None where no times can be compared."""
    if len(heads) < 2:
        return ("verdict", sentence_of(heads[0]), heads[0].word in (FASTER, SLOWER)) if heads else None
    words = [head.word for head in heads]
    counts = [f"{_WORDS[word].lower()} in {words.count(word)}" for word in _WORDS if word in words]
    most = max(heads, key=lambda head: abs(np.log(head.ratio)))
    said = f"{', '.join(counts)} of {len(heads)} cases; most in {most.label}: {sentence_of(most)}"
    return "verdict", said[:1].upper() + said[1:], any(word in (FASTER, SLOWER) for word in words)


def sentence_of(head: Headline) -> str:
    """``Slower: 10 ms → 12 ms an execution, 1.20 times (+20 %, 95 % interval …).``"""
    times = f"{format_ns(head.base_ns)} → {format_ns(head.other_ns)} {_WINDOWS[head.window]}"
    ratio = f"{head.other_ns / head.base_ns:#.3g} times"
    change = head.ratio - 1
    per_sample = ""
    if head.scale != 1.0:
        ratio += f" for {head.scale:.3g} times the batch"
        per_sample = "per sample "
    ends = format_ratio_interval(head.low, head.high)
    sure = f"95 % interval {ends}{_INTERVALS[head.interval]}"
    if head.interval == BY_NAME:
        sure = f"{ends}{_INTERVALS[head.interval]}"
    if head.word == SAME:
        sure = f"interval within ±{format_ratio_percent(max(abs(head.low), abs(head.high)))}{_INTERVALS[head.interval]}"
    said = f"{_WORDS[head.word]}: {times}, {ratio} ({per_sample}{signed_ratio(change)}, {sure})."
    return f"{said} {_DECIDES[head.interval]}" if head.word == UNDECIDED else said


def evidence(found: Impact) -> list[Statement]:
    """What an owner can check in both captures, where there are no executions."""
    return [("evidence", _evidence(found), False)] if found.unit in (WORK, WHOLE) else []


def _totals(found: Impact) -> dict[str, dict[str, float]]:
    """The rows of compare_totals by quantity."""
    rows = found.totals.drop(columns="unit").to_dict("records")
    return {str(row.pop("quantity")): {str(name): float(value) for name, value in row.items()} for row in rows}


def _evidence(found: Impact) -> str:
    """What an owner can check in both captures: kernels, idle time and the kernel whose length changed most."""
    totals = _totals(found)
    base, other = (totals["window"][f"{side}_value"] / found.device_count for side in ("base", "other"))
    is_equal = abs(other / base - 1) < _EQUAL_WINDOW
    where = "In an equal window" if is_equal else f"In {format_ns(other)} instead of {format_ns(base)}"
    parts = []
    count = totals["kernel_count"]["other_value"] / max(totals["kernel_count"]["base_value"], 1) - 1
    fewer = "fewer" if count < 0 else "more"
    parts.append(f"{format_ratio_percent(abs(count))} {fewer} kernels" if count else "as many kernels")
    idle = [totals["idle"][f"{side}_value"] for side in ("base", "other")]
    if abs(idle[1] - idle[0]) >= _LEAST_CHANGE * max(idle[0], 1):
        over = f"{found.device_count} GPUs together, " if found.device_count > 1 else ""
        whole = "the whole recording"
        parts.append(f"idle {format_ns(idle[0])} → {format_ns(idle[1])} ({over}{whole})")
    if (name := _most_changed(found)) is not None:
        means = f"{format_ns(name['base_mean_ns'])} → {format_ns(name['other_mean_ns'])}"
        parts.append(f"{_short(name['name'])} {means} each")
    return f"{where}: {', '.join(parts)}."


def _most_changed(found: Impact) -> pd.Series | None:
    """The kernel on both sides whose other length costs or saves most."""
    both = found.names[(found.names["base_count"] > 0) & (found.names["other_count"] > 0)]
    if both.empty:
        return None
    ratio = (both["other_mean_ns"] / both["base_mean_ns"] - 1).to_numpy(float)
    cost = ((both["other_mean_ns"] - both["base_mean_ns"]).abs() * both["other_count"]).to_numpy(float)
    most = int(cost.argmax())
    return both.iloc[most] if abs(ratio[most]) >= _LEAST_CHANGE else None


def largest(found: Impact) -> list[Statement]:
    """The kernels that cost and save most, by name."""
    statements: list[Statement] = []
    if not found.unit:
        return statements
    scale = max(_totals(found)["window"]["base_per_unit"], 1.0)
    per = {EXECUTION: "an execution", WORK: "the work of the base"}.get(found.unit, "the recording")
    for subject, rows in (
        ("largest regression", found.names[found.names["impact_ns"] > 0]),
        ("largest gain", found.names[found.names["impact_ns"] < 0]),
    ):
        if rows.empty or abs(rows["impact_ns"].iloc[0]) < 0.001 * scale:
            continue
        row = rows.iloc[0]
        sentence = f"{subject.capitalize()}: {_short(row['name'])}, {_signed_ns(row['impact_ns'])} in {per}"
        statements.append((subject, f"{sentence} ({_of_kernel(row)}).", False))
    return statements


def _of_kernel(row: pd.Series) -> str:
    counts = f"{format_count(row['base_count'])} → {format_count(row['other_count'])} launches"
    if not row["base_count"] or not row["other_count"]:
        return counts
    return f"{format_ns(row['base_mean_ns'])} → {format_ns(row['other_mean_ns'])} each, {counts}"


def causes(found: Impact, head: Headline | None) -> list[Statement]:
    """One sentence: the causes with more than a hundredth of the base's time; they and the rest sum to the difference
    that the headline says."""
    if not found.unit or found.causes.empty:
        return []
    devices = found.device_count
    whole = float(found.causes["difference_ns"].sum()) / devices
    if head is not None and head.scale == 1.0:
        whole = head.other_ns - head.base_ns
    base = _totals(found)["window"]["base_per_unit"] / devices
    parts, rest = [], whole
    for row in found.causes.to_dict("records"):
        value = float(row["difference_ns"]) / devices
        if abs(value) < 0.005 * base:
            continue
        rest -= value
        example = f" (first {_short(str(row['example']))})" if row["example"] else ""
        parts.append(f"{_signed_ns(value)} {row['cause']}{example}")
    if not parts:
        return []
    parts += [f"{_signed_ns(rest)} the rest"] if round(rest) else []
    over = f", each of {devices} GPUs" if devices > 1 else ""
    per = {EXECUTION: "Per execution", WORK: "For the same kernels"}.get(found.unit, "Of the whole recording")
    return [("causes", f"{per}{over}, {_signed_ns(whole)}: {', '.join(parts)}.", False)]


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= 60 else text[:59] + "…"


def signed_ratio(ratio: float) -> str:
    """``+3.1 %``, ``−3.1 %``."""
    return _sign(ratio) + format_ratio_percent(abs(ratio))


def _signed_ns(value: float) -> str:
    return _sign(value) + format_ns(abs(value))


def _sign(value: float) -> str:
    return "+" if value > 0 else "−" if value < 0 else ""
