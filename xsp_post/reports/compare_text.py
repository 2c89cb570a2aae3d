"""A comparison → Markdown: its first sentence, what it consists of, and one table, as a pull request shows them."""

import pandas as pd

from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes, format_change, format_count, format_ns

QUANTITIES = {
    "window": "time of the devices", "busy": "busy", "idle": "idle", "kernel_count": "kernels",
    "kernel_time": "kernel time", "copy_time": "copies alone", "communication": "communication alone",
    "memory_peak": "peak memory", "memory_reserved": "reserved memory",
}  # fmt: skip


def comparison_markdown(comparison: Results, names: tuple[str, str], top: int = 10) -> str:
    """The comparison as Markdown. ``top``: kernels in the table (0: all)."""
    summary = comparison.frame("compare_summary")
    verdict, *rest = (_plain(text) for text in summary["statement"])
    lines = [f"### {verdict}", "", *(f"* {sentence}" for sentence in rest), ""]
    base, other = (_plain(name) for name in names)
    per = "as recorded" if is_as_recorded(comparison) else "per execution"
    lines += [f"| {per} | {base} | {other} | difference |", "| --- | ---: | ---: | ---: |"]
    lines += _latencies(comparison) + _totals(comparison) + _kernels(comparison, top)
    return "\n".join(lines) + "\n"


def _latencies(comparison: Results) -> list[str]:
    models = frame_or_empty(comparison, "compare_models")
    models = models[models["quantity"].astype(str).isin(["period", "model_latency"])]
    return [
        _row(str(row["quantity"]).replace("_", " "), row["base_value"], row["other_value"], row["difference_ratio"])
        for row in models.to_dict("records")
    ]


def _totals(comparison: Results) -> list[str]:
    return [
        _row(QUANTITIES[row["quantity"]], row["base"], row["other"], row["ratio"], row["unit"])
        for row in shown_totals(comparison).to_dict("records")
    ]


def is_as_recorded(comparison: Results) -> bool:
    """Whether the captures are windows on a longer run, without executions: their totals are shown as recorded."""
    models = frame_or_empty(comparison, "compare_models", ["quantity"])
    return not models["quantity"].astype(str).eq("model_latency").any()


def shown_totals(comparison: Results) -> pd.DataFrame:
    """The totals with base, other, difference and ratio as they are shown: per execution, or as recorded."""
    totals = frame_or_empty(comparison, "compare_totals")
    totals = totals[totals["quantity"].isin(list(QUANTITIES))]  # device_time is busy by another name
    of = "value" if is_as_recorded(comparison) else "per_unit"
    base, other = totals[f"base_{of}"], totals[f"other_{of}"]
    return totals.assign(base=base, other=other, difference=other - base, ratio=other / base.where(base > 0) - 1)


def _kernels(comparison: Results, top: int) -> list[str]:
    kernels = frame_or_empty(comparison, "compare_names")
    listed = kernels if top == 0 else kernels.head(top)
    ratio = listed["other_mean_ns"] / listed["base_mean_ns"] - 1
    return [
        _row(f"`{_plain(row['name'])}`, each", row["base_mean_ns"], row["other_mean_ns"], change)
        for row, change in zip(listed.to_dict("records"), ratio)
    ]


def _row(what: str, base: float, other: float, ratio: float, unit: str = "ns") -> str:
    return f"| {what} | {amount(base, unit)} | {amount(other, unit)} | {format_change(ratio)} |"


def amount(value: float, unit: str) -> str:
    """A value in its unit; "–" where it is not known."""
    if unit == "B":
        return format_bytes(value)
    return format_count(round(value, 1)) if unit == "1" else format_ns(value)


def _plain(text: object) -> str:
    """Captured text that Markdown shows as it is."""
    safe = shown(str(text), 600)
    for sign in ("\\", "`", "|", "<", "[", "]", "*", "_", "@", "#"):
        safe = safe.replace(sign, {"<": "&lt;", "`": "'", "@": "@\u200b"}.get(sign, "\\" + sign))
    return safe
