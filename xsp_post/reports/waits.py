"""The section about idle time: causes, their owners, and what to do next."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.arrays.repeats import summed
from xsp_post.base.sentences import sentence
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_count, format_ns
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import theme, verdict
from xsp_post.reports import why as report
from xsp_post.reports.blocks import Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.cases import Case
from xsp_post.tables.analyses.limits import Limit, in_scope

ROW_LIMIT = 100


def data(results: Results, limit: Limit) -> pd.DataFrame:
    """The causes of idle time in what a limit speaks of, summed over devices, largest first."""
    if not limit.scope:
        return pd.DataFrame(columns=list(view_of("idle_causes")))
    causes = in_scope(results, limit)
    keys = ["cause", "call_name", "detail", "owner", "layer_path"]
    frame = summed(causes, keys, {"idle_ns": "sum", "piece_count": "sum", "longest_ns": "max"})
    frame = frame.sort_values("idle_ns", ascending=False, kind="stable", ignore_index=True)
    return frame.assign(cause=frame["cause"].astype(object).map(lambda cause: sentence(f"cause.{cause}")))


def chart(frame: pd.DataFrame) -> Any:
    """Idle time by cause, as bars."""
    summed = frame.groupby("cause", sort=False)[["idle_ns", "piece_count"]].sum().reset_index()
    summed = summed.sort_values("idle_ns", ascending=False)
    factor, unit = theme.axis_scale("idle_ns", summed["idle_ns"])
    shown = summed.assign(
        value=summed["idle_ns"] / factor, text=summed["idle_ns"].map(format_ns),
        pieces=summed["piece_count"].map(format_count),
    )  # fmt: skip
    axis = alt.Axis(labelLimit=300, domain=False, ticks=False)
    y = alt.Y("cause:N", sort=shown["cause"].tolist(), title=None, axis=axis)
    return (
        alt.Chart(shown)
        .mark_bar(color=theme.color("latency"))
        .encode(y=y, x=alt.X("value:Q", title=f"idle time [{unit}]"),
                tooltip=[alt.Tooltip("cause:N"), alt.Tooltip("text:N", title="idle"), alt.Tooltip("pieces:N")])
        .properties(width="container", height=22 * max(len(shown), 2))
    )  # fmt: skip


def _make(results: Results, case: Case | None) -> Section | None:
    limit = verdict.main_limit(results)
    frame = data(results, limit)
    if frame.empty:
        return None
    blocks: list[Any] = [
        Note(f"The time went to {report.parts_of(limit)}.", "lead"),
        Chart("idle-causes", chart(frame), "Idle time by cause. docs/why.md says how each is found.", "By cause"),
        Table("idle-table", "idle_causes", frame.head(ROW_LIMIT), present(frame, view_of("idle_causes")),
              "Causes with the range that owns them", len(frame), bars=("idle_ns",),
              command="xsp-post table idle_causes STORE --format csv"),
    ]  # fmt: skip
    if note := report.replay_note(results):
        blocks.append(Note(note))
    return Section("idle", "Why the device waited", "Which causes, in which ranges?", tuple(blocks), "Waits")


EXHIBIT = Exhibit(
    "idle",
    "Why the device waited",
    ("idle_causes", "device_windows"),
    _make,
    "",
)
