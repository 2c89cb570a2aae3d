"""A9, A14 and the model roofline of A15 (Figures 6, 9, 10 and 12).

The points are the analyses' numbers; only the lines are drawn here: y = min(peak, bandwidth × x) of each pipe
that has a point, with the vertical at its ideal intensity (XSP, IPDPS 2020, §III-D; Williams et al., CACM 2009).
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import (
    format_bytes_per_s,
    format_count,
    format_flop_per_byte,
    format_flop_per_s,
    format_hz,
    format_ns,
    format_ratio_percent,
)
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section
from xsp_post.reports.text import short_kernels, shorten, visible

POINT_LIMIT = 1200
NO_LAYERS = -2  # of points that belong to the model, neither to a layer nor to a kernel outside layers
_X, _Y = "arithmetic_intensity_flop_per_byte", "arithmetic_throughput_flop_per_s"
_X_TITLE = "arithmetic intensity [flop/B]"
_BOUNDS = ("memory", "compute", "latency", "unknown")
_SHAPES = {"memory": "circle", "compute": "triangle-up", "latency": "diamond", "unknown": "square"}


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A9 of one case, longest kernel first."""
    return _heaviest(cases.rows(results, "a09", case or cases.main_case(results)))


def layer_data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A14 of one case, longest layer first."""
    return _heaviest(cases.rows(results, "a14", case or cases.main_case(results)))


def model_data(results: Results) -> pd.DataFrame:
    """The model roofline: one row per case, by batch size."""
    frame = frame_or_empty(results, "model_roofline")
    frame = frame[frame[_X].notna() & frame[_Y].notna()] if len(frame) else frame
    return frame.sort_values(["workload_name", "phase", "batch_size"], kind="stable").reset_index(drop=True)


def roof_data(results: Results, points: pd.DataFrame, gpu_name: str | None = None) -> pd.DataFrame:
    """The roofs of the pipes that the points ran on: pipe, peak, bandwidth, ideal intensity, time_ns
    (summed latency of the points that ran on the pipe)."""
    roofs = frame_or_empty(results, "roofs")
    if roofs.empty or points.empty:
        return roofs
    if gpu_name:
        roofs = roofs[roofs["gpu_name"].astype(str).eq(gpu_name)]
    weight = (
        points.assign(pipe=points["pipe"].astype(str)).groupby("pipe")["latency_ns"].sum()
        if "latency_ns" in points
        else points["pipe"].astype(str).value_counts()
    )
    chosen = roofs[roofs["pipe"].astype(str).isin(weight.nlargest(3).index)].drop_duplicates(["gpu_name", "pipe"])
    chosen = chosen.assign(time_ns=chosen["pipe"].astype(str).map(weight).astype("float64"))
    return chosen.sort_values("peak_flop_per_s", ascending=False, kind="stable").reset_index(drop=True)


def _heaviest(frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty:
        return frame
    known = frame[frame[_X].notna() & frame[_Y].notna()]
    return known.sort_values("latency_ns", ascending=False, kind="stable").reset_index(drop=True)


def chart(
    frame: pd.DataFrame,
    roofs: pd.DataFrame,
    *,
    scale: str = "log",
    names: list[str] | None = None,
    labels: list[str] | None = None,
) -> Any:
    """Points under their roofs. ``scale`` log or linear (the paper's); ``names`` of the points for the tooltip,
    ``labels`` written beside them."""
    shown = frame.head(POINT_LIMIT)
    names = (names or _names(shown))[: len(shown)]
    if scale == "log":  # a kernel without flop or traffic has no place on a logarithmic axis
        placed = (shown[_X] > 0) & (shown[_Y] > 0)
        names = [n for n, keep in zip(names, placed) if keep]
        labels = [n for n, keep in zip(labels, placed) if keep] if labels else None
        shown = shown[placed]
    points = _points(shown, names, labels)
    top = max([float(points["y"].max()) if len(points) else 0.0, *(roofs["peak_flop_per_s"] / 1e12)], default=1.0)
    factor, unit = (1e12, "Tflop/s") if top >= 1 else (1e9, "Gflop/s")
    points["y"] = points["y"] * (1e12 / factor)
    limits = _limits(points, roofs, scale, factor)
    x = alt.X(
        "x:Q", title=_X_TITLE, scale=_scale(scale, limits[0]), axis=alt.Axis(grid=False, format="~g", tickCount=7)
    )
    y = alt.Y(
        "y:Q",
        title=f"arithmetic throughput [{unit}]",
        scale=_scale(scale, limits[1]),
        axis=alt.Axis(format="~g", tickCount=6),
    )
    layers = [*_roof_layers(roofs, limits, factor, x, y)]
    bound = alt.Color(
        "bound:N", title="bound", scale=alt.Scale(domain=list(_BOUNDS), range=[theme.color(b) for b in _BOUNDS])
    )
    tooltip = [
        alt.Tooltip(f"{c}:N", title=t)
        for c, t in (
            ("name", "what"),
            ("latency", "latency"),
            ("intensity", "intensity"),
            ("throughput", "throughput"),
            ("bound", "bound"),
            ("pipe", "pipe"),
            ("reached", "of its roof"),
        )
    ]
    marks = (
        alt.Chart(points)
        .mark_point(filled=True, strokeWidth=1.6)
        .encode(
            x=x,
            y=y,
            tooltip=tooltip,
            color=bound,
            shape=alt.Shape("bound:N", scale=alt.Scale(domain=list(_BOUNDS), range=[_SHAPES[b] for b in _BOUNDS])),
            size=alt.Size("latency_ns:Q", scale=alt.Scale(range=[26, 380]), legend=None),
            opacity=theme.either(
                alt.OpacityValue,
                f"selected_layer < 0 || datum.layer_index === selected_layer || datum.layer_index === {NO_LAYERS}",
                0.8,
                0.15,
            ),
            stroke=theme.either(alt.StrokeValue, theme.SELECTED, theme.color("selected"), None),
        )
    )
    layers.append(marks)
    if labels:
        layers.append(
            alt.Chart(points).mark_text(align="center", dy=-13, fontSize=11).encode(x=x, y=y, text=alt.Text("label:N"))
        )
    return theme.layered(*layers, width=theme.CHART_WIDTH, height=380)


def _points(frame: pd.DataFrame, names: list[str], labels: list[str] | None) -> pd.DataFrame:
    latency = frame["latency_ns"] if "latency_ns" in frame else pd.Series(np.nan, index=frame.index)
    return pd.DataFrame(
        {
            "x": frame[_X].to_numpy("float64"),
            "y": frame[_Y].to_numpy("float64") / 1e12,
            "latency_ns": latency.fillna(1.0).to_numpy(),
            "layer_index": frame["layer_index"].to_numpy() if "layer_index" in frame else NO_LAYERS,
            "name": names,
            "label": labels or "",
            "latency": [format_ns(v) for v in latency],
            "intensity": [format_flop_per_byte(v) for v in frame[_X]],
            "throughput": [format_flop_per_s(v) for v in frame[_Y]],
            "bound": frame["bound"].astype(str).to_numpy(),
            "pipe": [visible(v, 40) for v in frame["pipe"]],
            "reached": [format_ratio_percent(v) for v in frame["roof_ratio"]],
        }
    )


def _names(frame: pd.DataFrame) -> list[str]:
    layers = [
        f" · layer {i} {shorten(visible(n, 200), 40)}" if i > 0 else ""
        for i, n in zip(frame["layer_index"], frame["layer_name"])
    ]
    if "name" in frame:
        return [kernel + layer for kernel, layer in zip(short_kernels(frame["name"], 60), layers)]
    return [layer.removeprefix(" · ") for layer in layers]


def _limits(points: pd.DataFrame, roofs: pd.DataFrame, scale: str, factor: float) -> tuple[list[float], list[float]]:
    """Axis domains that hold points and ridge; logarithmic ones with half a decade of air."""
    ideal = roofs["ideal_intensity_flop_per_byte"].dropna().tolist() if len(roofs) else []
    peaks = (roofs["peak_flop_per_s"].dropna() / factor).tolist() if len(roofs) else []
    xs = [*points["x"].tolist(), *ideal] or [1.0]
    ys = [*points["y"].tolist(), *peaks] or [1.0]
    if scale == "log":
        return [min(xs) / 2, max(xs) * 4], [min(ys) / 2, max(ys) * 2]
    return [0.0, _linear_right(points["x"], ideal)], [0.0, max(ys) * 1.08]


def _linear_right(intensity: pd.Series, ideal: list[float]) -> float:
    """Right end of a linear axis: a few kernels of enormous intensity must not squeeze the rest to the left."""
    return float(max([np.quantile(intensity, 0.98) if len(intensity) else 1.0, *(2.2 * i for i in ideal)]))


def _scale(scale: str, domain: list[float]) -> alt.Scale:
    return alt.Scale(
        type="log" if scale == "log" else "linear", domain=[float(d) for d in domain], nice=False, clamp=True
    )


def _roof_layers(
    roofs: pd.DataFrame, limits: tuple[list[float], list[float]], factor: float, x: Any, y: Any
) -> list[Any]:
    if roofs.empty or roofs["ideal_intensity_flop_per_byte"].isna().all():
        return []
    left, right = limits[0]
    ridge = _ridge(roofs)
    # between the ideal intensities of two pipes it depends on the pipe: no colour there
    ideals = roofs["ideal_intensity_flop_per_byte"].dropna()
    low, high = (min(max(float(at), left), right) for at in (ideals.min(), ideals.max()))
    areas = pd.DataFrame({"from": [left, high], "to": [low, right], "area": ["memory", "compute"]})
    shading = [
        alt.Chart(areas[areas["area"].eq(name)])
        .mark_rect(color=theme.color(f"{name}_area"), opacity=0.6)
        .encode(x=alt.X("from:Q", title=_X_TITLE), x2=alt.X2("to:Q"))
        for name in ("memory", "compute")
    ]
    lines: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for gpu, pipe, peak, bandwidth, ideal in zip(
        roofs["gpu_name"],
        roofs["pipe"],
        roofs["peak_flop_per_s"],
        roofs["memory_bandwidth_bytes_per_s"],
        roofs["ideal_intensity_flop_per_byte"],
    ):
        if ideal != ideal:
            continue
        name = f"{gpu} {pipe}"
        corners = sorted({max(left, 1e-9), min(ideal, right), right})
        lines.extend({"roof": name, "x": at, "y": min(peak, bandwidth * at) / factor} for at in corners)
        labels.append(
            {
                "x": right,
                "y": min(peak, bandwidth * right) / factor,
                "align": "right",
                "text": f"{visible(pipe, 30)} peak {format_flop_per_s(peak)}",
            }
        )
    bandwidth = float(roofs["memory_bandwidth_bytes_per_s"].dropna().iloc[0])
    ideal_line = pd.DataFrame({"x": [ridge], "text": [_ideal_text(roofs, ridge)]})
    roof = (
        alt.Chart(pd.DataFrame(lines))
        .mark_line(color=theme.color("roof"), strokeWidth=2, clip=True)
        .encode(x=x, y=y, detail=alt.Detail("roof:N"))
    )
    peak_text = (
        alt.Chart(pd.DataFrame(labels))
        .mark_text(align="right", baseline="bottom", dy=-4, dx=-4, fontSize=11.5)
        .encode(x=x, y=y, text=alt.Text("text:N"))
    )
    vertical = alt.Chart(ideal_line).mark_rule(strokeDash=[5, 4]).encode(x=x)
    vertical_text = (
        alt.Chart(ideal_line)
        .mark_text(align="left", baseline="bottom", dx=5, fontSize=11)
        .encode(x=x, y=alt.YValue(374), text=alt.Text("text:N"))
    )
    slope_at = float(np.sqrt(left * ridge)) if left > 0 else ridge * 0.45
    slope = pd.DataFrame(
        {"x": [slope_at], "y": [bandwidth * slope_at / factor], "text": [f"DRAM {format_bytes_per_s(bandwidth)}"]}
    )
    slope_text = (
        alt.Chart(slope)
        .mark_text(align="right", baseline="bottom", dx=-6, dy=-6, fontSize=11.5)
        .encode(x=x, y=y, text=alt.Text("text:N"))
    )
    return [*shading, vertical, roof, peak_text, slope_text, vertical_text]


def _ideal_text(roofs: pd.DataFrame, ridge: float) -> str:
    pipe = roofs.loc[roofs["ideal_intensity_flop_per_byte"].eq(ridge), "pipe"].astype(str).iloc[0]
    return f"{visible(pipe, 30)}: ideal {format_flop_per_byte(ridge)}"


def _ridge(roofs: pd.DataFrame) -> float:
    """The ideal intensity that is marked: of the pipe in which most of the time was spent."""
    known = roofs[roofs["ideal_intensity_flop_per_byte"].notna()]
    if "time_ns" in known:
        known = known.sort_values("time_ns", kind="stable")
    return float(known["ideal_intensity_flop_per_byte"].iloc[-1])


def _both(identity: str, frame: pd.DataFrame, roofs: pd.DataFrame, caption: str, label: str, **more: Any) -> Chart:
    """The chart on logarithmic axes, and its linear form (the paper's)."""
    ideal = roofs["ideal_intensity_flop_per_byte"].dropna().tolist() if len(roofs) else []
    beyond = int((frame[_X].head(POINT_LIMIT) > _linear_right(frame[_X].head(POINT_LIMIT), ideal)).sum())
    if beyond:
        caption += f" The linear form draws {format_count(beyond)} of still higher intensity at its right edge."
    log, linear = (chart(frame, roofs, scale=scale, **more) for scale in ("log", "linear"))
    return Chart(identity, log, caption, label, (("Linear", linear),))


def _machine(results: Results, roofs: pd.DataFrame) -> str:
    devices = frame_or_empty(results, "devices")
    clock = float(devices["clock_hz"].max()) if len(devices) and devices["clock_hz"].notna().any() else 0.0
    gpu = visible(roofs["gpu_name"].iloc[0], 80) if len(roofs) else ""
    origin = visible(roofs["source"].iloc[0], 160) if len(roofs) else ""
    at = f" at {format_hz(clock)}" if clock > 0 else ""
    return f"Roofs of {gpu}{at}; from {origin}." if gpu else "The GPU’s peaks are not known, so no roof is drawn."


def _sentence(frame: pd.DataFrame, noun: str) -> str:
    bounds = frame["bound"].astype(str)
    time = frame["latency_ns"].fillna(0).groupby(bounds.to_numpy()).sum()
    total = max(float(time.sum()), 1.0)
    parts = [
        f"{format_count(int((bounds == b).sum()))} {'of unknown bound' if b == 'unknown' else b + '-bound'} "
        f"({format_ratio_percent(time[b] / total)} of their time)"
        for b in _BOUNDS
        if b in time.index
    ]
    return f"{format_count(len(frame))} {noun}: " + ", ".join(parts) + "."


def _make(results: Results, case: cases.Case | None) -> Section | None:
    blocks: list[Block] = []
    kernels, layers, model = data(results, case), layer_data(results, case), model_data(results)
    for identity, frame, noun, caption in (
        ("a09", kernels, "kernels", "A9 · Kernels under their roof; size is latency."),
        ("a14", layers, "layers", "A14 · Layers under their roof; size is latency. Click a point to follow its layer."),
    ):
        if frame.empty:
            continue
        roofs = roof_data(results, frame)
        cut = (
            f" The {format_count(POINT_LIMIT)} longest of {format_count(len(frame))} are drawn."
            if len(frame) > POINT_LIMIT
            else ""
        )
        if identity == "a14" and (frame["counter_source"].astype(str) == "analytic").any():
            cut += " Flop and bytes are counted from the model, not measured."
        nowhere = int(((frame[_X] <= 0) | (frame[_Y] <= 0)).sum())
        if nowhere:
            cut += (
                f" {format_count(nowhere)} without flop have no place on logarithmic axes; the linear form shows them."
            )
        blocks.append(Note(_sentence(frame, noun), "lead"))
        blocks.append(
            _both(identity, frame, roofs, f"{caption}{cut} {_machine(results, roofs)}", f"{noun.capitalize()} roofline")
        )
    if len(model):
        roofs = roof_data(results, model)
        labels = [label or visible(name, 40) for label, name in zip(cases.labels(model), model["workload_name"])]
        blocks.append(
            _both(
                "a15",
                model,
                roofs,
                "A15 · The model under its roof, one point per case. " + _machine(results, roofs),
                "Model roofline",
                names=labels,
                labels=labels,
            )
        )
    if not blocks:
        return None
    return Section("rooflines", "Rooflines", "Memory-bound or compute-bound?", tuple(blocks), "Rooflines")


EXHIBIT = Exhibit(
    "rooflines",
    "Rooflines",
    ("a09", "a14", "model_roofline"),
    _make,
    "Counters: xsp-post run --ncu, or add an ncu report to the sources: xsp-post ingest run.sqlite metrics.ncu-rep.",
    ("A9", "A14", "A15"),
)
