"""The section on profiling overhead (the paper's Figure 2): the cost of each level, and which number is accurate.

Green is the latency at the event's own level, the one to believe; grey is what each further profiler added to it
(XSP, IPDPS 2020, §III-C).
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.levels import RUN_LEVELS
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present, rows_of
from xsp_post.reports.headline import over_pairs
from xsp_post.reports.text import shorten, visible

ROW_LIMIT = 400


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """The overhead table of one case: the model first, then the slowest layers; ``event`` names the row."""
    frame = frame_or_empty(results, "overhead")
    if frame.empty:
        return frame
    named = cases.rows(results, "cases", case or cases.main_case(results))
    if len(named):
        frame = frame[
            frame["batch_size"].eq(named["batch_size"].iloc[0])
            & frame["phase"].astype(str).eq(str(named["phase"].iloc[0]))
        ]
    events = ["event_kind", "layer_index", "layer_path", "call_index"]
    keys = frame[events].astype({"event_kind": str, "layer_path": str})
    accurate = frame["latency_ns"].where(frame["is_accurate"].astype(bool))
    weight = accurate.groupby([keys[c] for c in events]).transform("max")
    rank = (
        pd.DataFrame(
            {
                "layer": keys["event_kind"].ne("model"),
                "weight": -weight.fillna(0),
                "index": keys["layer_index"],
                "call": keys["call_index"],
                "level": frame["level"].astype(str).map({level: i for i, level in enumerate(RUN_LEVELS)}),
            }
        )
        .sort_values(["layer", "weight", "index", "call", "level"], kind="stable")
        .index
    )
    frame = frame.loc[rank].reset_index(drop=True)
    frame.insert(
        0,
        "event",
        [
            "model" if kind == "model" else f"layer {index} · {visible(path)}"
            for kind, index, path in zip(frame["event_kind"], frame["layer_index"], frame["layer_path"])
        ],
    )
    return frame


def chart(frame: pd.DataFrame) -> Any:
    """One bar per level of one event: the accurate latency, and on top of it what each further level added."""
    ordered = frame.reset_index(drop=True)
    factor, unit = theme.axis_scale("latency_ns", ordered["latency_ns"])
    levels = ordered["level"].astype(str).tolist()
    latency = dict(zip(levels, ordered["latency_ns"]))
    segments: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for row in rows_of(ordered):
        below = str(row.compared_level)
        ends.append(
            {"level": str(row.level), "at": max(row.latency_ns, latency.get(below, 0.0)) / factor, "text": _label(row)}
        )
        chain, at = [], str(row.level)
        while at:  # from this level up to the accurate one; at most one step per level
            chain.append(at)
            at = str(ordered.loc[levels.index(at), "compared_level"]) if at in levels else ""
        start = 0.0
        for level in reversed([c for c in chain if c in latency]):
            end = float(latency[level])
            segments.append(
                {
                    "level": str(row.level),
                    "from": min(start, end) / factor,
                    "to": max(start, end) / factor,
                    "part": "accurate"
                    if start == 0.0
                    else "faster than without"
                    if end < start
                    else f"added by {level}",
                    "time": format_ns(end - start),
                    "order": len(segments),
                }
            )
            start = end
    parts = list(dict.fromkeys(str(s["part"]) for s in segments))
    colors = [
        theme.color("base")
        if p == "accurate"
        else theme.color("other")
        if p.startswith("saved")
        else theme.color("overhead")
        if i < 2
        else theme.color("latency")
        for i, p in enumerate(parts)
    ]
    y = alt.Y("level:N", sort=levels, title=None, axis=alt.Axis(labelFontSize=13, domain=False, ticks=False))
    bars = (
        alt.Chart(pd.DataFrame(segments))
        .mark_bar(height={"band": 0.62})
        .encode(
            y=y,
            x=alt.X("from:Q", title=theme.axis_title("latency", unit)),
            x2=alt.X2("to:Q"),
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=parts, range=colors)),
            tooltip=[alt.Tooltip("level:N"), alt.Tooltip("part:N"), alt.Tooltip("time:N", title="time")],
        )
    )
    # the label stands inside the plot's right end where the bar leaves no room behind it
    top = max(e["at"] for e in ends)
    bars = bars.encode(
        x=alt.X("from:Q", title=theme.axis_title("latency", unit), scale=alt.Scale(domain=[0, top * 1.42], nice=False))
    )
    labels = (
        alt.Chart(pd.DataFrame(ends))
        .mark_text(align="left", dx=6, fontSize=12)
        .encode(y=y, x=alt.X("at:Q"), text=alt.Text("text:N"))
    )
    return theme.overlay(bars, labels, width=theme.CHART_WIDTH, height=46 * len(levels) + 8)


def _label(row: Any) -> str:
    if bool(row.is_accurate) or row.overhead_ns != row.overhead_ns:
        return format_ns(row.latency_ns)
    sign = "+" if row.overhead_ns >= 0 else "−"
    text = f"{format_ns(row.latency_ns)} ({sign}{format_ns(abs(row.overhead_ns))}"
    return f"{text}, {sign}{format_ratio_percent(abs(row.overhead_ratio))})"


def _sentence(model: pd.DataFrame) -> str:
    accurate = model[model["is_accurate"].astype(bool)]
    base = f"The model takes {format_ns(accurate['latency_ns'].iloc[0])} without profiling. " if len(accurate) else ""
    steps = [
        f"{visible(row.level)}: {visible(row.verdict)}, {format_ns(row.overhead_ns)} "
        f"({format_ratio_percent(row.overhead_ratio)}) on "
        f"{visible(row.compared_level)}, 95 % within {format_ns(row.ci_low_overhead_ns)} … "
        f"{format_ns(row.ci_high_overhead_ns)}{over_pairs(row.interval_over)}"
        for row in rows_of(model)
        if row.overhead_ns == row.overhead_ns
    ]
    return base + "; ".join(steps) + ("." if steps else "")


def _make(results: Results, case: cases.Case | None) -> Section | None:
    frame = data(results, case)
    if frame.empty:
        return None
    blocks: list[Block] = []
    model = frame[frame["event_kind"].astype(str).eq("model")]
    if len(model):
        blocks.append(Note(_sentence(model), "lead"))
        blocks.append(
            Chart(
                "overhead",
                chart(model),
                "What profiling added to the model’s latency, level by level (the paper’s Figure 2). "
                "Green is the accurate latency.",
                "The model at each level",
            )
        )
    layers = frame[frame["event_kind"].astype(str).ne("model")]
    if len(layers):
        first = layers["event"].iloc[0]
        blocks.append(
            Chart(
                "overhead-layer",
                chart(layers[layers["event"].eq(first)].drop_duplicates("level")),
                f"The same for the slowest layer, {shorten(first, 90)}. Layer latencies are taken from M/L.",
                "The slowest layer at each level",
            )
        )
    blocks.append(
        Table(
            "overhead",
            "overhead",
            frame.head(ROW_LIMIT),
            present(frame, view_of("overhead")),
            "Latency of each event at each level",
            len(frame),
            command="xsp-post table overhead STORE --format csv",
        )
    )
    return Section(
        "overhead",
        "What profiling cost",
        "Which number is accurate, and what did measuring add?",
        tuple(blocks),
        "Model",
    )


EXHIBIT = Exhibit(
    "overhead",
    "What profiling cost",
    ("overhead",),
    _make,
    "The same workload at rising levels: xsp-post run --model MODEL --levels M,ML,MLG.",
    ("overhead",),
)
