"""Results → the few numbers that programs ask for: each with count, interval, and the reason where one is absent."""

from typing import Any

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.memory_line import place_text
from xsp_post.reports.text import plain, visible
from xsp_post.tables.analyses.memory_peaks import main_device
from xsp_post.tables.catalogue import why_empty

EXACT = "summed over everything recorded: there is no sampling error to state"
FEW = "one value only: an interval needs two or more"
_MOST_MODELS = 8


def quantities(results: Results) -> list[dict[str, Any]]:
    """Latency and period of an execution, device time and its parts, busy time, the peak of memory where allocations
    were recorded: name, of, value, unit, count, interval, what it is over, reason. ``value`` or the interval is None
    where it is not known, and ``reason`` says why."""
    return [*_latencies(results), *_device_times(results), *_memory_peaks(results)]


def quantity(
    name: str, value: Any, unit: str, count: Any = None, *, of: str = "", low: Any = None, high: Any = None,
    over: str = "", reason: str = "",
) -> dict[str, Any]:  # fmt: skip
    """One number; NaN and NA are None."""
    return {
        "name": name, "of": visible(of, 80), "value": plain(value), "unit": unit, "sample_count": plain(count),
        "ci_low": plain(low), "ci_high": plain(high), "interval_over": over, "reason": reason,
    }  # fmt: skip


def _latencies(results: Results) -> list[dict[str, Any]]:
    models = frame_or_empty(results, "a01")
    if models.empty:
        reason = why_empty("A1", results) if "a01" in results.tables() else "this command does not time executions"
        return [quantity("execution_latency", None, "ns", 0, reason=reason.rstrip(".")),
                quantity("execution_period", None, "ns", 0, reason=reason.rstrip("."))]  # fmt: skip
    rows = []
    for row in models.head(_MOST_MODELS).to_dict("records"):
        count = int(row["sample_count"])
        batch = f", batch size {row['batch_size']}" if row["batch_size"] > 0 else ""
        of = f"{row['phase']}{batch}" + (f", {row['rank_name']}" if row["rank_name"] else "")
        low, high = row["ci_low_latency_ns"], row["ci_high_latency_ns"]
        reason = FEW if pd.isna(low) else ""
        rows.append(quantity("execution_latency", row["latency_ns"], "ns", count, of=of, low=low, high=high,
                             over=row["interval_over"], reason=reason))  # fmt: skip
        missing = (
            "the next execution's start is not known" if pd.isna(row["period_ns"]) else "a mean without an interval"
        )
        rows.append(quantity("execution_period", row["period_ns"], "ns", max(int(row["sample_count"]) - 1, 0), of=of,
                             reason=missing))  # fmt: skip
    return rows


def _device_times(results: Results) -> list[dict[str, Any]]:
    captures = frame_or_empty(results, "captures")
    total = len(captures)
    of = f"{total} captures" if total != 1 else ""
    if captures.empty:
        return [quantity("device_time", None, "ns", 0, reason="no capture of a timeline is in here")]
    counts = captures[["kernel_count", "copy_count", "graph_count"]].sum()
    rows = [quantity("device_time", captures["device_ns"].sum(), "ns", counts.sum(), of=of, reason=EXACT)]
    for part in ("kernel", "copy", "graph"):
        count = counts[f"{part}_count"]
        reason = EXACT if count else f"no {part} was recorded"
        value = captures[f"{part}_ns"].sum()
        rows.append(quantity(f"{part}_time", value, "ns", count, of=of, reason=reason))
    busy = captures["busy_ns"].sum(min_count=1)
    rows.append(quantity("device_busy_time", busy, "ns", counts.sum(), of=of,
                         reason="no device was seen" if pd.isna(busy) else EXACT))  # fmt: skip
    return rows


_WITHOUT_TEST = "too few measurements for an interval"


def comparison_quantities(comparison: Results) -> list[dict[str, Any]]:
    """What a comparison measured, as three numbers each: of the base, of the other, and the difference with its
    interval."""
    rows = []
    for row in frame_or_empty(comparison, "compare_models").to_dict("records"):
        name, unit = f"{row['quantity']} per execution", str(row["unit"])
        low, high = row["ci_low_value"], row["ci_high_value"]
        rows += [
            quantity(name, row[f"{side}_value"], unit, row[f"{side}_sample_count"], of=side,
                     reason="the interval is stated of the difference")
            for side in ("base", "other")
        ]  # fmt: skip
        count = int(row["base_sample_count"]) + int(row["other_sample_count"])
        reason = _WITHOUT_TEST if pd.isna(low) else ""
        rows.append(quantity(name, row["difference_value"], unit, count, of="difference", low=low, high=high,
                             reason=reason))  # fmt: skip
    for row in frame_or_empty(comparison, "compare_totals").to_dict("records"):
        unit = str(row["unit"])
        name = str(row["quantity"]) if unit == "B" else f"{row['quantity']} per unit of work"
        for of, column in (("base", "base_per_unit"), ("other", "other_per_unit"), ("difference", "difference_value")):
            rows.append(quantity(name, row[column], unit, None, of=of, reason=EXACT))
    return rows


def _memory_peaks(results: Results) -> list[dict[str, Any]]:
    """Per capture the highest peak of a device, or of the host where no device has any."""
    captures = frame_or_empty(results, "captures", ["capture_id"])["capture_id"].tolist()
    found = [device for number in captures if (device := main_device(results, int(number))) is not None]
    return [
        quantity(
            "memory_peak", device["peak_bytes"], "B", device["allocation_count"], of=place_text(device), reason=EXACT
        )
        for device in found
    ]
