"""A11–A13, the kernels gathered by layer (Table V, Figures 7 and 8)."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Section, Table, present
from xsp_post.reports.layer_axis import bars_over_layers, binned, layer_label
from xsp_post.reports.text import short_kernels

ROW_LIMIT = 400
_METRICS = (
    ("total_flop", "flop", "compute"),
    ("dram_read_bytes", "DRAM reads", "read"),
    ("dram_write_bytes", "DRAM writes", "write"),
    ("occupancy_ratio", "occupancy", "latency"),
)


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A11 of one case with each layer's dominant kernel (``name``), slowest layer first."""
    case = case or cases.main_case(results)
    frame = cases.rows(results, "a11", case)
    dominant = cases.rows(results, "dominant_kernels", case, ["layer_index", "name"])
    if len(dominant):
        frame = frame.merge(dominant[["layer_index", "name"]], on="layer_index", how="left", validate="m:1")
    by = frame["layer_latency_ns"].fillna(frame["kernel_latency_ns"])
    return frame.loc[by.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def gpu_data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A13 of one case in execution order."""
    frame = cases.rows(results, "a13", case or cases.main_case(results))
    return frame[frame["layer_index"].gt(0)].sort_values("layer_index", kind="stable").reset_index(drop=True)


def metric_chart(frame: pd.DataFrame, column: str, title: str, role: str) -> Any:
    """One GPU metric per layer (Figure 7)."""
    return bars_over_layers(frame, column, title, color=role, height=120)


def chart(frame: pd.DataFrame) -> Any:
    """GPU and non-GPU share of each layer's latency (Figure 8); bars above 100 % are layers whose kernels take longer
    than the layer itself."""
    rows, size = binned(frame, "layer_latency_ns")
    ratio = rows["gpu_by_sum_ratio"].astype("float64")
    shown = pd.DataFrame(
        {
            "layer_index": rows["layer_index"],
            "left": rows["layer_index"] - 0.48 * size,
            "right": rows["layer_index"] + 0.48 * size,
            "ratio": ratio,
            "layer": layer_label(rows),
            "gpu": [f"{format_ns(a)} ({format_ratio_percent(b)})" for a, b in zip(rows["kernel_latency_ns"], ratio)],
            "rest": [format_ns(v) for v in rows["non_gpu_by_sum_ns"]],
            "union": [format_ratio_percent(v) for v in rows["gpu_by_union_ratio"]],
            # of the named layer, as the others; `layer_latency_ns` is a sum where bars join layers
            "whole": [format_ns(a + b) for a, b in zip(rows["kernel_latency_ns"], rows["non_gpu_by_sum_ns"])],
        }
    ).dropna(subset=["ratio"])
    low, high = float(frame["layer_index"].min() - 0.6), float(frame["layer_index"].max() + 0.6)
    top = max(1.0, min(float(shown["ratio"].max()) if len(shown) else 1.0, 2.0))
    x = alt.X(
        "left:Q",
        title="layer (execution order)",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(format="d", tickMinStep=1),
    )
    y = alt.Y(
        "ratio:Q",
        title="share of layer latency",
        axis=alt.Axis(format=".0%"),
        scale=alt.Scale(domain=[0, top], clamp=True, nice=False),
    )
    tooltip = [
        alt.Tooltip("layer:N", title="layer"),
        alt.Tooltip("whole:N", title="layer latency"),
        alt.Tooltip("gpu:N", title="kernels"),
        alt.Tooltip("rest:N", title="non-GPU"),
        alt.Tooltip("union:N", title="GPU busy (union)"),
    ]
    base = alt.Chart(shown).encode(x=x, x2=alt.X2("right:Q"), tooltip=tooltip)
    gpu = base.mark_bar(clip=True).encode(y=y, y2=alt.Y2Datum(0), color=theme.highlight("kernel"))
    rest = (
        base.transform_calculate(one="max(1, datum.ratio)")
        .mark_bar(color=theme.color("other"), clip=True)
        .encode(y=y, y2=alt.Y2("one:Q"), color=alt.ColorValue(theme.color("other")))
    )
    line = alt.Chart(pd.DataFrame({"y": [1.0]})).mark_rule(strokeDash=[4, 3]).encode(y=alt.Y("y:Q"))
    return theme.layered(rest, gpu, line, width=theme.CHART_WIDTH, height=theme.CHART_HEIGHT)


def _make(results: Results, case: cases.Case | None) -> Section | None:
    table = data(results, case)
    if table.empty:
        return None
    blocks: list[Block] = [
        Table(
            "a11",
            "a11",
            table.head(ROW_LIMIT),
            present(table, view_of("a11")),
            "A11 · Kernels by layer, slowest layer first",
            len(table),
            short={"name": short_kernels},
            command="xsp-post table A11 STORE --format csv",
            bars=("layer_latency_ns", "kernel_latency_ns"),
        )
    ]
    metrics = cases.rows(results, "a12", case).sort_values("layer_index", kind="stable")
    metrics = metrics[metrics["layer_index"].gt(0)] if len(metrics) else metrics
    for column, title, role in _METRICS:
        if column in metrics and metrics[column].notna().any():
            blocks.append(
                Chart(
                    f"a12-{column.rpartition('_')[0]}",
                    metric_chart(metrics, column, title, role),
                    f"A12 · {title[:1].upper() + title[1:]} of each layer.",
                    title,
                )
            )
    return Section(
        "layer-kernels", "Kernels by layer", "What does each layer run on the GPU?", tuple(blocks), "Kernels"
    )


def _make_gpu(results: Results, case: cases.Case | None) -> Section | None:
    frame = gpu_data(results, case)
    if frame.empty or frame["gpu_by_sum_ratio"].isna().all():
        return None
    negative = int(frame["is_negative"].astype(bool).sum())
    note = (
        ""
        if not negative
        else f" {format_count(negative)} layers have kernels that take longer than the layer: kernels "
        "overlap, end after the range, or the two runs differ. Their bars exceed 100 %."
    )
    blocks: list[Block] = [
        Chart(
            "a13",
            chart(frame),
            "A13 · Share of each layer’s latency that is kernel time (blue), the rest is non-GPU "
            f"(orange): host work, launches, gaps.{note}",
        ),
        Table(
            "a13",
            "a13",
            frame.sort_values("non_gpu_by_sum_ns", ascending=False).head(ROW_LIMIT),
            present(
                frame,
                view_of("a13"),
            ),
            "A13 · Layers by non-GPU latency",
            len(frame),
            command="xsp-post table A13 STORE --format csv",
        ),
    ]
    return Section("gpu-share", "GPU and non-GPU latency", "Which layers wait for the host?", tuple(blocks), "Kernels")


EXHIBIT = Exhibit(
    "layer-kernels",
    "Kernels by layer",
    ("a11",),
    _make,
    "Ranges around the layers together with the GPU: xsp-post run --levels ML,MLG.",
    ("A11", "A12"),
)
GPU_SHARE = Exhibit(
    "gpu-share", "GPU and non-GPU latency", ("a13",), _make_gpu, "The same as for kernels by layer.", ("A13",)
)
