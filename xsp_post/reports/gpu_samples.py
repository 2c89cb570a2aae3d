"""The section about samples of GPU metrics: how busy SMs, tensor pipes and DRAM were, over time and by layer."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.cases import Case
from xsp_post.reports.gpu_samples_line import gpu_samples_lines

ROW_LIMIT = 200
BIN_COUNT = 300
_LINES = {"sm_active_ratio": "SMs active", "tensor_active_ratio": "tensor pipes active", "dram_ratio": "DRAM bandwidth"}


def data(timeline: pd.DataFrame) -> pd.DataFrame:
    """Means of one GPU's samples over equal parts of the recording: offset_ns, the ratios of `_LINES`, gpc_clock_hz. A
    part without samples has none: the line is broken there."""
    start, end = timeline["start_ns"].to_numpy(), timeline["end_ns"].to_numpy()
    length = max(int(end[-1] - start[0]), 1)
    count = int(np.clip(length // max(float(np.median(end - start)), 1), 1, BIN_COUNT))
    part = (end - start[0] - 1) * count // length
    frame = timeline.assign(dram_ratio=timeline["dram_read_ratio"] + timeline["dram_write_ratio"])
    frame = frame[[*_LINES, "gpc_clock_hz"]].groupby(part).mean().reindex(range(count))
    return frame.assign(offset_ns=(frame.index.to_numpy() + 0.5) * length / count).reset_index(drop=True)


def chart(frame: pd.DataFrame) -> Any:
    """The ratios as lines."""
    factor, unit = theme.axis_scale("offset_ns", frame["offset_ns"])
    known = [column for column in _LINES if frame[column].notna().any()]
    shown = pd.concat([
        pd.DataFrame({"time": frame["offset_ns"] / factor, "ratio": frame[column], "metric": _LINES[column]})
        for column in known
    ])  # fmt: skip
    names = [_LINES[column] for column in known]
    colors = alt.Scale(domain=names, range=theme.category_colors(names))
    return (
        alt.Chart(shown)
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("time:Q", title=theme.axis_title("time", unit)),
            y=alt.Y("ratio:Q", title="share of the peak", axis=alt.Axis(format=".0%"), scale=alt.Scale(domainMin=0)),
            color=alt.Color("metric:N", title=None, sort=names, scale=colors),
            strokeDash=alt.StrokeDash("metric:N", sort=names, legend=None),
        )
        .properties(width=theme.CHART_WIDTH, height=theme.CHART_HEIGHT)
    )


def _make(results: Results, case: Case | None) -> Section | None:
    timeline = frame_or_empty(results, "gpu_timeline")
    if timeline.empty:
        return None
    captures = timeline["capture_id"].drop_duplicates().tolist()
    lines = [line for number in captures for line in gpu_samples_lines(results, int(number))]
    blocks: list[Block] = [Note(". ".join(lines) + ".", "lead")] if lines else []
    first = timeline.iloc[0]
    mine = (timeline["capture_id"] == first["capture_id"]) & (timeline["gpu_index"] == first["gpu_index"])
    frame = data(timeline[mine])
    if frame[list(_LINES)].notna().any(axis=None):
        text = "Means of the samples, idle time included. docs/gpu-metrics.md says what each metric counts."
        blocks.append(Chart("gpu-samples", chart(frame), text, f"GPU {int(first['gpu_index'])} over time"))
    rows = frame_or_empty(results, "gpu_samples")
    if len(rows):
        rows = rows.assign(order=rows["scope"].astype(str).map({"capture": 0, "execution": 2}).fillna(1))
        rows = rows.sort_values(["order", "busy_ns"], ascending=[True, False], kind="stable").drop(columns="order")
        caption = "Means while device work ran, by capture, layer and execution; empty below five samples"
        blocks.append(
            Table("gpu-samples-table", "gpu_samples", rows.head(ROW_LIMIT), present(rows, view_of("gpu_samples")),
                  caption, len(rows), command="xsp-post table gpu_samples STORE --format csv", bars=("busy_ns",))
        )  # fmt: skip
    return Section("gpu-samples", "GPU metrics", "How busy were the parts of the GPU?", tuple(blocks), "Kernels")


EXHIBIT = Exhibit("gpu-samples", "GPU metrics", ("gpu_samples",), _make, "")
