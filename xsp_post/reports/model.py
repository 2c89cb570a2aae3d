"""The section on A1 and A15: the model over its batch sizes (Figure 3, Table VI)."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.arrays.processes import WITHIN_PROCESS
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_inputs_per_s, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.facts import within


def data(results: Results) -> pd.DataFrame:
    """A1, by phase and batch size."""
    frame = frame_or_empty(results, "a01")
    return frame.sort_values(["phase", "batch_size"], kind="stable").reset_index(drop=True) if len(frame) else frame


def kernel_data(results: Results) -> pd.DataFrame:
    """A15, by phase and batch size."""
    frame = frame_or_empty(results, "a15")
    return frame.sort_values(["phase", "batch_size"], kind="stable").reset_index(drop=True) if len(frame) else frame


def _labels(frame: pd.DataFrame) -> list[str]:
    return [label.removeprefix("batch ") or "all" for label in cases.labels(frame)]


def chart(frame: pd.DataFrame) -> Any:
    """Throughput over batch size, the optimal one marked (Figure 3)."""
    labels = _labels(frame)
    shown = pd.DataFrame(
        {
            "case": labels,
            "value": frame["throughput_inputs_per_s"].astype("float64"),
            "optimal": frame["is_optimal"].astype(bool),
            "throughput": [format_inputs_per_s(v) for v in frame["throughput_inputs_per_s"]],
            "latency": [format_ns(v) for v in frame["latency_ns"]],
            "gain": [format_ratio_percent(v) for v in frame["throughput_gain_ratio"]],
        }
    ).dropna(subset=["value"])
    base = alt.Chart(shown).encode(
        x=alt.X("case:O", sort=labels, title="batch size", axis=alt.Axis(labelAngle=0)),
        tooltip=[
            alt.Tooltip("case:N", title="batch size"),
            alt.Tooltip("throughput:N"),
            alt.Tooltip("latency:N", title="batch latency"),
            alt.Tooltip("gain:N", title="gained by doubling"),
        ],
    )
    y = alt.Y("value:Q", title="throughput [inputs/s]")
    bars = base.mark_bar(size=34).encode(
        y=y, color=theme.either(alt.ColorValue, "datum.optimal", theme.color("base"), theme.color("kernel"))
    )
    marks = (
        base.transform_filter("datum.optimal")
        .mark_text(dy=-9, fontWeight=600)
        .encode(y=y, text=alt.TextValue("optimal"))
    )
    return theme.overlay(bars, marks, width=theme.CHART_WIDTH, height=theme.CHART_HEIGHT)


def latency_chart(frame: pd.DataFrame) -> Any:
    """Batch latency over batch size with its confidence interval."""
    labels = _labels(frame)
    factor, unit = theme.axis_scale("latency_ns", frame["latency_ns"])
    shown = pd.DataFrame(
        {
            "case": labels,
            "value": frame["latency_ns"] / factor,
            "low": frame["ci_low_latency_ns"].fillna(frame["latency_ns"]) / factor,
            "high": frame["ci_high_latency_ns"].fillna(frame["latency_ns"]) / factor,
            "latency": [format_ns(v) for v in frame["latency_ns"]],
            "interval": [
                f"{format_ns(row['ci_low_latency_ns'])} … {format_ns(row['ci_high_latency_ns'])}{within(row)}"
                for row in frame.to_dict("records")
            ],
            "n": frame["sample_count"],
        }
    )
    base = alt.Chart(shown).encode(
        x=alt.X("case:O", sort=labels, title="batch size", axis=alt.Axis(labelAngle=0)),
        tooltip=[
            alt.Tooltip("case:N", title="batch size"),
            alt.Tooltip("latency:N"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("n:Q"),
        ],
    )
    title = theme.axis_title("batch latency", unit)
    return theme.overlay(
        base.mark_bar(size=34).encode(y=alt.Y("value:Q", title=title)),
        base.mark_rule(strokeWidth=2.2, color=theme.color("roof")).encode(
            y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")
        ),
    ).properties(width=theme.CHART_WIDTH, height=180)


def _make(results: Results, case: cases.Case | None) -> Section | None:
    frame = data(results)
    if frame.empty:
        return None
    blocks: list[Block] = []
    best = frame[frame["is_optimal"].astype(bool)]
    if len(frame) > 1 and len(best):
        row = best.iloc[0]
        blocks.append(
            Note(
                f"Best at batch {row['batch_size']}: {format_inputs_per_s(row['throughput_inputs_per_s'])}. The "
                f"rule is the paper’s: "
                "what the last doubling that still gains more than 5 % reaches.",
                "lead",
            )
        )
    if len(frame) > 1 and frame["throughput_inputs_per_s"].notna().any():
        blocks.append(Chart("a01", chart(frame), "A1 · Throughput over batch size.", "Throughput"))
    if len(frame) > 1:
        blocks.append(
            Chart(
                "a01-latency",
                latency_chart(frame),
                "A1 · Latency of one batch, with the 95 % confidence interval of its trimmed mean"
                + (", within one process." if frame["interval_over"].eq(WITHIN_PROCESS).any() else "."),
                "Batch latency",
            )
        )
    columns = present(frame, view_of("a01"))
    if (frame["batch_size"] == -1).all():
        columns = tuple(c for c in columns if c not in ("batch_size", "is_optimal"))
    blocks.append(
        Table(
            "a01",
            "a01",
            frame.head(200),
            columns,
            "A1 · Model latency and throughput",
            len(frame),
            command="xsp-post table A1 STORE --format csv",
        )
    )
    kernels = kernel_data(results)
    if len(kernels):
        blocks.append(
            Table(
                "a15",
                "a15",
                kernels.head(200),
                present(kernels, view_of("a15")),
                "A15 · The model’s kernels together",
                len(kernels),
                command="xsp-post table A15 STORE --format csv",
            )
        )
    return Section("model", "The model", "How fast is it, and at which batch size?", tuple(blocks), "Model")


EXHIBIT = Exhibit(
    "model",
    "The model",
    ("a01",),
    _make,
    "Ranges around the model: xsp-post run --levels M, or --model-range for ranges of your own.",
    ("A1", "A15"),
)
