"""The roofs of A9, A14 and A15, which no table has: y = min(peak, bandwidth × x) of each pipe that has a point, with
the vertical at its ideal intensity (XSP, IPDPS 2020, §III-D; Williams et al., CACM 2009)."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes_per_s, format_flop_per_byte, format_flop_per_s
from xsp_post.reports import theme
from xsp_post.reports.draw import draw
from xsp_post.reports.frames import ROOFLINE_AXES
from xsp_post.reports.page_rows import ChartRow
from xsp_post.reports.text import visible

_X, _Y = ROOFLINE_AXES


def roof_data(results: Results, points: pd.DataFrame) -> pd.DataFrame:
    """The roofs of the (at most three) pipes in which the points spent most: pipe, peak, bandwidth, ideal intensity."""
    roofs = frame_or_empty(results, "roofs").dropna(subset=["ideal_intensity_flop_per_byte"])
    if roofs.empty or "pipe" not in points:
        return roofs.iloc[:0]
    weights = points["latency_ns"] if "latency_ns" in points else pd.Series(1.0, points.index)
    weight = weights.groupby(points["pipe"].astype(str)).sum()
    chosen = roofs[roofs["pipe"].astype(str).isin(weight.nlargest(3).index)].drop_duplicates(["gpu_name", "pipe"])
    chosen = chosen.assign(weight=chosen["pipe"].astype(str).map(weight))
    return chosen.sort_values("weight", ascending=False, kind="stable", ignore_index=True)


def on_axes(points: pd.DataFrame, scale: str) -> pd.DataFrame:
    """The points that have a place on the axes: one without flop or traffic has none on logarithmic ones."""
    return points[points[_X].gt(0) & points[_Y].gt(0)] if scale == "log" else points


def draw_roofline(row: ChartRow, points: pd.DataFrame, roofs: pd.DataFrame, scale: str) -> Any:
    """The chart of points under their roofs on logarithmic or linear axes."""
    points = on_axes(points, scale).reset_index(drop=True)
    ends = _ends(points, roofs, scale)
    under = _roof_layers(roofs, ends[_X], theme.axis_scale(_Y, points[_Y])[0]) if len(roofs) else []
    return draw(row, points, under, {"x": ends[_X], "y": ends[_Y]}, ("x", "y") if scale == "log" else ())


def _ends(points: pd.DataFrame, roofs: pd.DataFrame, scale: str) -> dict[str, list[float]]:
    """Ends of the axes that hold points and ridges; of logarithmic ones with half a decade of air. A few kernels of
    enormous intensity do not squeeze the rest of a linear axis to the left."""
    ideal, peak = roofs["ideal_intensity_flop_per_byte"].tolist(), roofs["peak_flop_per_s"].tolist()
    xs, ys = [*points[_X].tolist(), *ideal] or [1.0], [*points[_Y].tolist(), *peak] or [1.0]
    if scale == "log":
        return {_X: [min(xs) / 2, max(xs) * 4], _Y: [min(ys) / 2, max(ys) * 2]}
    most = float(points[_X].quantile(0.98)) if len(points) else 1.0
    return {_X: [0.0, max([most, *(2.2 * one for one in ideal)])], _Y: [0.0, max(ys) * 1.08]}


def _roof_layers(roofs: pd.DataFrame, ends: list[float], factor: float) -> list[Any]:
    """Shaded areas, the roof of each pipe with its peak, the memory's slope, and the ideal intensity."""
    left, right = ends
    ideals = roofs["ideal_intensity_flop_per_byte"]
    # between the ideal intensities of two pipes it depends on the pipe: no colour there
    low, high = (min(max(float(at), left), right) for at in (ideals.min(), ideals.max()))
    layers = [
        alt.Chart(pd.DataFrame({"x": [start], "x2": [end]})).mark_rect(color=theme.color(role), opacity=0.6)
        .encode(x=alt.X("x:Q"), x2=alt.X2("x2:Q"))
        for role, start, end in (("memory_area", left, low), ("compute_area", high, right))
    ]  # fmt: skip
    lines, texts = [], []
    for roof in roofs.to_dict("records"):
        peak, ideal = roof["peak_flop_per_s"], roof["ideal_intensity_flop_per_byte"]
        bandwidth, pipe = roof["memory_bandwidth_bytes_per_s"], visible(roof["pipe"], 30)
        corners = sorted({max(left, 1e-9), min(ideal, right), right})
        lines += [
            {"roof": f"{roof['gpu_name']} {pipe}", "x": at, "y": min(peak, bandwidth * at) / factor} for at in corners
        ]
        texts.append(
            {"x": right, "y": min(peak, bandwidth * right) / factor, "text": f"{pipe} peak {format_flop_per_s(peak)}"}
        )
    first = roofs.iloc[0]
    bandwidth, ridge = first["memory_bandwidth_bytes_per_s"], first["ideal_intensity_flop_per_byte"]
    at = float(np.sqrt(left * ridge)) if left > 0 else ridge * 0.45
    texts.append({"x": at, "y": bandwidth * at / factor, "text": f"DRAM {format_bytes_per_s(bandwidth)}"})
    vertical = pd.DataFrame(
        {"x": [ridge], "text": [f"{visible(first['pipe'], 30)}: ideal {format_flop_per_byte(ridge)}"]}
    )
    line = alt.Chart(pd.DataFrame(lines)).mark_line(color=theme.color("roof"), strokeWidth=2, clip=True)
    text = alt.Chart(pd.DataFrame(texts)).mark_text(align="right", baseline="bottom", dy=-4, dx=-4, fontSize=11.5)
    below = alt.Chart(vertical).mark_text(align="left", baseline="bottom", dx=5, fontSize=11)
    x, y = alt.X("x:Q"), alt.Y("y:Q")
    return [
        *layers, alt.Chart(vertical).mark_rule(strokeDash=[5, 4]).encode(x=x),
        line.encode(x=x, y=y, detail=alt.Detail("roof:N")), text.encode(x=x, y=y, text=alt.Text("text:N")),
        below.encode(x=x, y=alt.YValue(alt.ExprRef("height - 6")), text=alt.Text("text:N")),
    ]  # fmt: skip
