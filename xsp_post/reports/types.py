"""The section on A5–A7, the cost of layer types: share of layers, of latency, of memory (Figure 4)."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.text import shorten, visible, visible_series

TYPE_LIMIT = 8  # colours that can be distinguished; the rest is "other"
_SOURCES = (("a05", "count_ratio", "layers"), ("a06", "latency_ratio", "latency"), ("a07", "allocated_ratio", "memory"))


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A5–A7 of one case side by side, heaviest type first: layer_type, layer_count, count_ratio, latency_ns,
    latency_ratio, allocated_bytes, allocated_ratio."""
    case = case or cases.main_case(results)
    counted, timed, allocated = (cases.rows(results, table, case) for table in ("a05", "a06", "a07"))
    if counted.empty and timed.empty:
        return pd.DataFrame()
    merged = counted[["layer_type", "layer_count", "count_ratio"]]
    for frame, columns in (
        (timed, ["latency_ns", "latency_ratio"]),
        (allocated, ["allocated_bytes", "allocated_ratio"]),
    ):
        if len(frame):
            merged = merged.merge(frame[["layer_type", *columns]], on="layer_type", how="left", validate="1:1")
    by = "latency_ns" if "latency_ns" in merged else "layer_count"
    return merged.sort_values(by, ascending=False, kind="stable").reset_index(drop=True)


def chart(frame: pd.DataFrame) -> Any:
    """One bar of 100 % for layers, latency and memory, cut by layer type."""
    texts = visible_series(frame["layer_type"])
    types = pd.Series(
        [text if 0 < len(text) <= 34 else shorten(text or "(no type)", 34) for text in texts], dtype=object
    )
    top = list(dict.fromkeys(types.head(TYPE_LIMIT)))
    parts = []
    for _, ratio, label in _SOURCES:
        if ratio not in frame or frame[ratio].isna().all():
            continue
        share = frame[ratio].fillna(0.0).groupby(types.where(types.isin(top), "other").to_numpy(), sort=False).sum()
        ordered = share.reindex([*top, "other"]).dropna()
        end = ordered.cumsum()
        parts.append(
            pd.DataFrame(
                {
                    "of": label,
                    "type": ordered.index,
                    "from": (end - ordered).to_numpy(),
                    "to": end.to_numpy(),
                    "text": [format_ratio_percent(v) for v in ordered],
                    "share": ordered.to_numpy(),
                }
            )
        )
    shown = pd.concat(parts, ignore_index=True)
    order = [label for _, _, label in _SOURCES]
    domain = [*top, *(["other"] if (shown["type"] == "other").any() else [])]
    base = alt.Chart(shown).encode(
        y=alt.Y("of:N", sort=order, title=None, axis=alt.Axis(labelFontSize=13, domain=False, ticks=False)),
        tooltip=[alt.Tooltip("type:N", title="layer type"), alt.Tooltip("text:N", title="share")],
    )
    x = alt.X(
        "from:Q",
        title="share of the sum over all layers",
        axis=alt.Axis(format=".0%"),
        scale=alt.Scale(domain=[0, 1], nice=False),
    )
    colors = [light for light, _ in theme.CATEGORIES][: len(domain)]
    bars = base.mark_bar(stroke="#ffffff", strokeWidth=1, height={"band": 0.8}).encode(
        x=x,
        x2=alt.X2("to:Q"),
        color=alt.Color("type:N", sort=domain, title=None, scale=alt.Scale(domain=domain, range=colors)),
    )
    on_fill = {kind: theme.text_on(fill) for kind, fill in zip(domain, colors)}
    labels = [
        base.transform_filter(alt.FieldOneOfPredicate(field="type", oneOf=[k for k in domain if on_fill[k] == text]))
        .transform_calculate(middle="(datum.from + datum.to) / 2")
        .mark_text(color=text, fontWeight=600, fontSize=11)
        .encode(
            x=alt.X("middle:Q"),
            text=alt.Text("text:N"),
            opacity=theme.either(alt.OpacityValue, "datum.share * width > 44", 1, 0),
        )
        for text in dict.fromkeys(on_fill.values())
    ]
    return theme.overlay(bars, *labels, width=theme.CHART_WIDTH, height=46 * shown["of"].nunique() + 10)


def _make(results: Results, case: cases.Case | None) -> Section | None:
    frame = data(results, case)
    if frame.empty:
        return None
    top = frame.head(1).to_dict("records")[0]
    blocks: list[Block] = []
    if "latency_ratio" in frame and top["latency_ratio"] == top["latency_ratio"]:
        name = visible(top["layer_type"], 80)
        kind = f"Layers of type {name}" if name else "Layers without a type"
        blocks.append(
            Note(
                f"{kind} take "
                f"{format_ratio_percent(top['latency_ratio'])} of the "
                f"layer latency with {format_ratio_percent(top['count_ratio'])} of the layers{cases.of_case(case)}.",
                "lead",
            )
        )
    if any(ratio in frame and frame[ratio].notna().any() for _, ratio, _ in _SOURCES):
        blocks.append(
            Chart(
                "a05-a07",
                chart(frame),
                "A5, A6, A7 · Shares by layer type, of the sum over all layers (not of the model latency).",
                "Layer types",
            )
        )
    columns = present(frame, view_of("a06"))
    blocks.append(
        Table(
            "a06",
            "a06",
            frame.head(200),
            columns,
            "A5–A7 · Layer types",
            len(frame),
            command="xsp-post table A6 STORE --format csv",
            bars=("latency_ns",),
        )
    )
    return Section("types", "Layer types", "Which kinds of layers take the time?", tuple(blocks), "Layers")


EXHIBIT = Exhibit("types", "Layer types", ("a05",), _make, "The same as for layers.", ("A5", "A6", "A7"))
