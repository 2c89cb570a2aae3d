"""The section on sources of the numbers: captures, devices, iterations."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_ns
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Section, Table, present
from xsp_post.reports.text import visible

ITERATION_LIMIT = 1500


def data(results: Results) -> pd.DataFrame:
    """Iterations of every capture in order, warm-up marked."""
    frame = frame_or_empty(results, "iterations")
    return frame.sort_values(["capture_id", "start_ns"], kind="stable").reset_index(drop=True) if len(frame) else frame


def chart(frame: pd.DataFrame, captures: pd.DataFrame) -> Any:
    """Latency of each iteration in order: drift, warm-up and outliers can be seen."""
    shown = frame.iloc[:: -(-len(frame) // ITERATION_LIMIT)]
    factor, unit = theme.axis_scale("latency_ns", shown["latency_ns"])
    levels = captures.set_index("capture_id")["level"].astype(str)
    several = shown["capture_id"].nunique() > 1
    measured = shown.loc[~shown["is_warmup"].astype(bool), "latency_ns"]
    # a warm-up of ten times the latency would flatten everything else: it is drawn at the upper edge instead
    top = float((measured if len(measured) else shown["latency_ns"]).max()) * 1.25 / factor
    points = pd.DataFrame(
        {
            "order": shown.groupby("capture_id").cumcount(),
            "value": shown["latency_ns"] / factor,
            "kind": shown["is_warmup"].astype(bool).map({True: "warm-up", False: "measured"}),
            "capture": "capture " + shown["capture_id"].astype(str),
            "level": shown["capture_id"].map(levels).astype(str).replace("", "level not known"),
            "phase": [visible(p, 60) for p in shown["phase"]],
            "text": [format_ns(v) for v in shown["latency_ns"]],
        }
    )
    encoding: dict[str, Any] = {
        "x": alt.X("order:Q", title="iteration, in order", axis=alt.Axis(format="d", tickMinStep=1)),
        "y": alt.Y(
            "value:Q", title=theme.axis_title("latency", unit), scale=alt.Scale(domain=[0, top], clamp=True, nice=False)
        ),
        "shape": alt.Shape(
            "kind:N", title=None, scale=alt.Scale(domain=["measured", "warm-up"], range=["circle", "cross"])
        ),
        "tooltip": [
            alt.Tooltip(f"{c}:N", title=t)
            for c, t in (
                ("capture", "capture"),
                ("level", "level"),
                ("phase", "phase"),
                ("text", "latency"),
                ("kind", "kind"),
            )
        ],
    }
    if several:
        encoding["color"] = alt.Color("level:N", title=None)
    return (
        alt.Chart(points)
        .mark_point(filled=True, opacity=0.8)
        .encode(**encoding)
        .properties(width=theme.CHART_WIDTH, height=180)
    )


def _make(results: Results, case: cases.Case | None) -> Section | None:
    captures = frame_or_empty(results, "captures")
    if captures.empty:
        return None
    blocks: list[Block] = []
    iterations = data(results)
    if len(iterations) > 1:
        every = -(-len(iterations) // ITERATION_LIMIT)
        blocks.append(
            Chart(
                "iterations",
                chart(iterations, captures),
                "Latency of each iteration in the order it ran. Warm-up is left out of "
                "all statistics, and drawn at the upper edge where it took longer."
                + (f" Every {every}th is drawn." if every > 1 else ""),
                "Iterations",
            )
        )
    blocks.append(
        Table(
            "captures",
            "captures",
            captures.head(100),
            present(captures, view_of("captures")),
            "Captures",
            len(captures),
        )
    )
    roofs = frame_or_empty(results, "roofs")
    if len(roofs):
        blocks.append(
            Table(
                "roofs",
                "roofs",
                roofs.head(60),
                present(
                    roofs,
                    view_of("roofs"),
                ),
                "Roofs: the peaks that verdicts are based on",
                len(roofs),
            )
        )
    return Section(
        "captures", "Captures and iterations", "What was measured, and how much did it vary?", tuple(blocks), "Trust"
    )


EXHIBIT = Exhibit("captures", "Captures and iterations", ("captures",), _make, "")
