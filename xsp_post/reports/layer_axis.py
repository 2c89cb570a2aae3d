"""Bars over the layers in execution order, the form of the paper's Figures 5, 7 and 8."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.schemas.units import formatter_of
from xsp_post.reports import theme
from xsp_post.reports.text import shorten, visible

MAX_BARS = 700
_X_TITLE = "layer (execution order)"


def layer_label(frame: pd.DataFrame) -> list[str]:
    """``208 · conv2d_48 (Conv2D)`` per row."""
    types = frame["layer_type"] if "layer_type" in frame else pd.Series([""] * len(frame))
    return [
        f"{index} · {shorten(visible(name, 300), 60)}" + (f" ({shorten(visible(kind, 60), 30)})" if kind else "")
        for index, name, kind in zip(frame["layer_index"], frame["layer_name"], types)
    ]


def binned(frame: pd.DataFrame, value: str | None = None) -> tuple[pd.DataFrame, int]:
    """At most MAX_BARS rows: sums over runs of consecutive layers, each named by its heaviest; and the run's length.
    A ratio is that of the heaviest: ratios have no sum."""
    size = -(-len(frame) // MAX_BARS) if len(frame) else 1
    if size <= 1 or value is None:
        return frame, max(size, 1)
    group = np.arange(len(frame)) // size
    heaviest = frame[value].fillna(-np.inf).groupby(group).idxmax()
    result = frame.loc[heaviest].copy()
    if not value.endswith("_ratio"):
        result[value] = frame[value].groupby(group).sum(min_count=1).to_numpy()
    return result.reset_index(drop=True), size


def stage_bands(frame: pd.DataFrame) -> pd.DataFrame:
    """First and last layer of each stage: stage, first, last, middle; empty without a ``stage`` column."""
    if "stage" not in frame.columns or frame["stage"].astype(str).eq("").all():
        return pd.DataFrame()
    staged = frame[frame["stage"].astype(str).ne("")]  # what is outside of the layers has no stage
    bands = staged.groupby("stage", observed=True, sort=False)["layer_index"].agg(["min", "max"]).reset_index()
    return pd.DataFrame(
        {
            "stage": bands["stage"].astype(str),
            "first": bands["min"] - 0.5,
            "last": bands["max"] + 0.5,
            "middle": (bands["min"] + bands["max"]) / 2,
        }
    )


def bars_over_layers(
    frame: pd.DataFrame,
    value: str,
    title: str,
    *,
    color: str,
    stages: bool = False,
    height: int = theme.CHART_HEIGHT,
) -> Any:
    """One bar per layer; x is the layer index, y the value in a unit fit for an axis."""
    rows, size = binned(frame, value)
    factor, unit = theme.axis_scale(value, rows[value])
    formatter = formatter_of(value) or str
    ratio = value.endswith("_ratio")
    shown = pd.DataFrame(
        {
            "layer_index": rows["layer_index"],
            "left": rows["layer_index"] - 0.46 * size,
            "right": rows["layer_index"] + 0.46 * size,
            "value": rows[value].astype("float64") / factor,
            "layer": layer_label(rows),
            "text": [formatter(v) for v in rows[value]],
        }
    ).dropna(subset=["value"])
    low, high = frame["layer_index"].min() - 0.6, frame["layer_index"].max() + 0.6
    x = alt.X(
        "left:Q",
        title=_X_TITLE,
        scale=alt.Scale(domain=[float(low), float(high)], nice=False),
        axis=alt.Axis(format="d", tickMinStep=1, grid=False),
    )
    y = alt.Y("value:Q", title=theme.axis_title(title, unit), axis=alt.Axis(format=".0%") if ratio else alt.Axis())
    bars = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            x=x,
            x2=alt.X2("right:Q"),
            y=y,
            y2=alt.Y2Datum(0),
            color=theme.highlight(color),
            tooltip=[alt.Tooltip("layer:N", title="layer"), alt.Tooltip("text:N", title=title)],
        )
    )
    layers = [bars]
    bands = stage_bands(frame) if stages else pd.DataFrame()
    if len(bands) > 1:
        area = (
            alt.Chart(bands.iloc[1:2])
            .mark_rect(color=theme.color("band"), opacity=1)
            .encode(x=alt.X("first:Q", title=_X_TITLE), x2=alt.X2("last:Q"))
        )
        names = (
            alt.Chart(bands)
            .mark_text(baseline="top", dy=3, fontSize=11, opacity=0.75)
            .encode(x=alt.X("middle:Q"), y=alt.YValue(0), text=alt.Text("stage:N"))
        )
        layers = [area, bars, names]
    return theme.layered(*layers, width=theme.CHART_WIDTH, height=height)
