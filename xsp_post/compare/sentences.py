"""A comparison → its first sentence, the largest regression and gain, and what the difference consists of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.compare.differences import CAPTURES
from xsp_post.compare.impact import EXECUTION, Impact
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_interval, format_ratio_percent

Statement = tuple[str, str, bool]
# Less than this is not called a difference where nothing says how runs differ.
SAME_RATIO = 0.02
_EQUAL_WINDOW = 0.02
_LEAST_CHANGE = 0.03  # a part of the evidence that changed by less is not named


def first_sentence(models: pd.DataFrame, found: Impact | None) -> Statement | None:
    """Faster, slower or the same, and by how much; None where nothing can be said."""
    latencies = models[models["quantity"] == "model_latency"]
    if len(latencies) == 1:
        return _of_latency(latencies.iloc[0])
    if len(latencies) > 1:
        return _of_cases(latencies)
    return _of_work(found) if found is not None and found.unit else None


def _of_latency(row: pd.Series) -> Statement:
    base, other, change = row["base_value"], row["other_value"], str(row["change"])
    values = f"model latency {format_ns(base)} → {format_ns(other)}"
    percent = format_ratio_percent(abs(row["difference_ratio"]))
    if np.isnan(row["ci_low_value"]):
        return "verdict", f"Not known: {values}, with too few executions to say whether that is a difference.", False
    ends = format_ratio_interval(row["ci_low_value"] / base, row["ci_high_value"] / base)
    assumed = ", from single captures: how runs differ is assumed, not measured"
    sure = f"95 % interval {ends}" + ("" if row["interval_over"] == CAPTURES else assumed)
    if change in ("more", "less"):
        word = "Slower" if change == "more" else "Faster"
        return "verdict", f"{word} by {percent} ({sure}): {values}.", True
    smallest = row["detectable_value"] / base if base else np.nan
    power = "" if np.isnan(smallest) else f"; ±{format_ratio_percent(smallest)} would be shown 4 times of 5"
    return (
        "verdict",
        f"The same, as far as can be shown: {values} ({signed_ratio(row['difference_ratio'])}, {sure}{power}).",
        False,
    )


def _of_cases(rows: pd.DataFrame) -> Statement:
    """Of several batch sizes or phases."""
    changed = rows[rows["change"].isin(["more", "less"])]
    if changed.empty:
        return "verdict", f"The same, as far as can be shown, in all {len(rows)} cases.", False
    slower, faster = (int((changed["change"] == change).sum()) for change in ("more", "less"))
    most = changed.iloc[int(changed["difference_ratio"].abs().argmax())]
    parts = [f"{word} in {count}" for word, count in (("slower", slower), ("faster", faster)) if count]
    said = f"{' and '.join(parts)} of {len(rows)} cases, most by {signed_ratio(most['difference_ratio'])}"
    values = f"{format_ns(most['base_value'])} → {format_ns(most['other_value'])}"
    return "verdict", f"{said[:1].upper()}{said[1:]}: model latency {values}.", True


def _of_work(found: Impact) -> Statement:
    totals = _totals(found)
    window, recorded = totals["window"]["difference_ratio"], totals["window"]
    length = recorded["other_value"] / recorded["base_value"]
    ends = sorted(length / end - 1 for end in (found.low, found.high))
    interval = f" ({signed_ratio(ends[0])} … {signed_ratio(ends[1])} by kernel name)"
    evidence = _evidence(found)
    is_clear = abs(window) >= SAME_RATIO and (ends[0] > 0 or ends[1] < 0)
    if not is_clear:
        said = f"The same, as far as can be shown: {signed_ratio(window)} time for the same kernels{interval}"
        return "verdict", f"{said}. {evidence}", False
    word, more = ("Slower", "more") if window > 0 else ("Faster", "less")
    said = f"{word}: {format_ratio_percent(abs(window))} {more} time for the same kernels{interval}"
    return "verdict", f"{said}. {evidence}", True


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
    per = "an execution" if found.unit == EXECUTION else "the work of the base"
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


def causes(found: Impact) -> list[Statement]:
    """One sentence: the causes with more than a hundredth of the base's time, and the sum of all."""
    if not found.unit or found.causes.empty:
        return []
    whole = float(found.causes["difference_ns"].sum())
    base = _totals(found)["window"]["base_per_unit"]
    parts, rest = [], 0.0
    for row in found.causes.to_dict("records"):
        value = float(row["difference_ns"])
        if abs(value) < 0.005 * base:
            rest += value
            continue
        example = f" (first {_short(str(row['example']))})" if row["example"] else ""
        parts.append(f"{_signed_ns(value)} {row['cause']}{example}")
    if not parts:
        return []
    parts += [f"{_signed_ns(rest)} the rest"] if round(rest) else []
    over = f", of {found.device_count} GPUs together" if found.device_count > 1 else ""
    per = "Per execution" if found.unit == EXECUTION else "For the same kernels"
    return [("causes", f"{per}{over}, {_signed_ns(whole)} of device window: {', '.join(parts)}.", False)]


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
