"""Colours, fonts and number formats of charts and page.

Charts are made in the light palette. The page's dark form replaces each light colour by its dark partner
(`PALETTES`), so that a chart never knows which theme it is shown in. The hues are those of Okabe and Ito,
"Color Universal Design" (https://jfly.uni-koeln.de/color/), distinguishable by people with any of the common
colour-vision deficiencies; what a colour says is always said by a shape, a label or a position as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.schemas import TABLES, unit_of, units
from xsp_post.reports.text import visible

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

# role -> (light, dark). Roles, not hues, are what charts ask for.
PALETTES: dict[str, tuple[str, str]] = {
    "kernel": ("#0072b2", "#4fa8e0"),  # time on the device
    "other": ("#d55e00", "#f28a45"),  # time that is not
    "memory": ("#0067a3", "#63b3ea"),  # memory-bound
    "compute": ("#c77700", "#f0b13c"),  # compute-bound
    "latency": ("#8a5a83", "#c99ac2"),  # bound by neither roof
    "unknown": ("#7c838d", "#8f97a3"),
    "read": ("#0d8263", "#35b894"),
    "write": ("#a8588a", "#d68ebb"),
    "selected": ("#b3005e", "#ff77b5"),
    "accent": ("#245fd1", "#7fabff"),
    "memory_area": ("#dbeaf7", "#172c3f"),
    "compute_area": ("#fbeed6", "#3a2d14"),
    "band": ("#edf0f4", "#1e252e"),
    "roof": ("#3d4651", "#c3cbd6"),
    "base": ("#0e7a5f", "#3fbf9b"),  # the latency one may trust
    "overhead": ("#5b6470", "#9aa4b2"),  # what profiling added
}
# For categories without a meaning of their own: layer types, stages. Any two differ for people with a deficiency, too
# (tests/reports/test_palette.py simulates it).
CATEGORIES: list[tuple[str, str]] = [
    ("#0072b2", "#4fa8e0"),
    ("#e08e00", "#f0b13c"),
    ("#0d9471", "#35b894"),
    ("#9e4c80", "#d776b5"),
    ("#d55e00", "#f28a45"),
    ("#4aa3df", "#8cc9f2"),
    ("#787b34", "#dad311"),
    ("#4a3e8d", "#8267ad"),
    ("#8d9094", "#c8cdd1"),
]
# For more categories than CATEGORIES has (kernel families): its hues without the grey of "other", then these.
MORE_CATEGORIES: list[tuple[str, str]] = [("#7a4a2b", "#c4926f"), ("#34435c", "#bccae2"), ("#97c15c", "#bfe08f")]
HUE_COUNT = len(CATEGORIES) - 1 + len(MORE_CATEGORIES)
# Text on a filled mark; all fills of the dark theme are light.
_ON_FILL = {"light": ("#fffffe", "#10161d"), "dark": ("#14202b", "#10161d")}
_INK = {"text": ("#1b2128", "#e6eaf0"), "muted": ("#59636f", "#a3adba"), "grid": ("#e3e7ec", "#2a323c")}

SELECTED = "selected_layer >= 0 && datum.layer_index === selected_layer"
CHART_WIDTH = 760
CHART_HEIGHT = 230


def color(role: str) -> str:
    """The light-theme colour of a role."""
    return PALETTES[role][0]


def category_colors(names: Sequence[str], other: str = "other") -> list[str]:
    """A light-theme colour for each name, unlike the others for up to eleven names; grey for ``other``."""
    hues = [light for light, _ in (*CATEGORIES[:-1], *MORE_CATEGORIES)]
    rest = [name for name in names if name != other]
    return [CATEGORIES[-1][0] if name == other else hues[rest.index(name) % len(hues)] for name in names]


def dark_colors() -> dict[str, str]:
    """Light colour -> dark colour, for the page's theme switch."""
    return {light: dark for light, dark in [*PALETTES.values(), *CATEGORIES, *MORE_CATEGORIES, *_ON_FILL.values()]}


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite configuration of a theme."""
    ink = {name: pair[dark] for name, pair in _INK.items()}
    return {
        "background": "transparent" if dark else "#ffffff00",
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": CHART_WIDTH, "continuousHeight": CHART_HEIGHT},
        "axis": {
            "labelColor": ink["muted"],
            "titleColor": ink["text"],
            "gridColor": ink["grid"],
            "domainColor": ink["muted"],
            "tickColor": ink["muted"],
            "labelFontSize": 11.5,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelPadding": 4,
            "labelLimit": 260,
        },
        "axisX": {"grid": False},
        "legend": {
            "labelColor": ink["text"],
            "titleColor": ink["muted"],
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "orient": "top",
            "symbolType": "square",
            "labelLimit": 240,
        },
        "header": {"labelColor": ink["text"], "titleColor": ink["muted"]},
        "title": {"color": ink["text"], "fontSize": 14, "fontWeight": 600, "anchor": "start", "offset": 10},
        "text": {"color": ink["text"], "fontSize": 12},
        "rule": {"color": ink["muted"]},
        "bar": {"color": PALETTES["kernel"][dark]},
        "point": {"filled": True, "size": 48},
        "range": {"category": [pair[dark] for pair in CATEGORIES]},
    }


def meaning_of(table: str, column: str) -> str:
    """What docs/columns.md says of a column; '' for one it does not list."""
    listed = TABLES.get(table)
    return next((c.meaning for c in listed.columns if c.name == column), "") if listed else ""


def text_of(values: pd.Series, column: str | None = None) -> list[str]:
    """A column as people read it: scaled with unit by its suffix, text made visible, flags as yes/no."""
    column = str(column or values.name)
    formatter = units.formatter_of(column)
    if formatter is not None:
        return [units.UNKNOWN if _missing(v, column) else formatter(v) for v in values.tolist()]
    if values.dtype == bool:
        return ["yes" if v else "no" for v in values.tolist()]
    if pd.api.types.is_integer_dtype(values.dtype):
        return [units.UNKNOWN if _missing(v, column) else str(v) for v in values.tolist()]
    if pd.api.types.is_float_dtype(values.dtype):
        return [units.UNKNOWN if v != v else f"{v:.4g}" for v in values.tolist()]
    return [visible(v) for v in values.tolist()]


def is_number(values: pd.Series) -> bool:
    """Whether a column is shown right-aligned and sorted by value."""
    return pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool


# Columns in which −1 means "not recorded"; a difference may well be −1 ns.
_MINUS_ONE_IS_UNKNOWN = frozenset(c.name for table in TABLES.values() for c in table.columns if c.is_optional)


def _missing(value: Any, column: str) -> bool:
    return value is None or value is pd.NA or value != value or (value == -1 and column in _MINUS_ONE_IS_UNKNOWN)


# unit -> steps of (factor, shown unit), for axes that need one unit for all their values
_AXES = {
    "ns": [(1, "ns"), (units.NS_PER_US, "µs"), (units.NS_PER_MS, "ms"), (units.NS_PER_S, "s")],
    "B": [(1, "B"), (units.KIB, "KiB"), (units.MIB, "MiB"), (units.GIB, "GiB")],
    "flop": [(1, "flop"), (10**6, "Mflop"), (units.GIGA, "Gflop"), (units.TERA, "Tflop")],
    "flop/s": [(units.GIGA, "Gflop/s"), (units.TERA, "Tflop/s")],
    "B/s": [(units.GIGA, "GB/s"), (units.TERA, "TB/s")],
}


def axis_scale(column: str, values: pd.Series | np.ndarray) -> tuple[float, str]:
    """(factor, unit) that makes the largest of the values readable on an axis; (1, unit) where none is known."""
    unit = unit_of(column)
    steps = _AXES.get(unit)
    if steps is None:
        return 1.0, "" if unit == "1" else unit
    numbers = np.abs(np.asarray(values, dtype="float64"))
    largest = float(np.nanmax(numbers)) if numbers.size and not np.isnan(numbers).all() else 0.0
    fitting = [step for step in steps if largest >= step[0]]
    factor, shown = (fitting or steps[:1])[-1]
    return float(factor), shown


def axis_title(text: str, unit: str) -> str:
    """``latency [ms]``."""
    return f"{text} [{unit}]" if unit else text


def styled(chart: Any, title: str = "") -> Any:
    """A chart with the light theme and, for use outside the page, a title."""
    configured = chart.properties(title=title) if title else chart
    return configured.configure(**config()) if isinstance(configured, alt.TopLevelMixin) else configured


# name -> (light, dark): everything of the page that is not a chart colour
_PAGE = {
    "ground": ("#f4f6f9", "#0e1318"),
    "paper": ("#ffffff", "#161c23"),
    "text": _INK["text"],
    "muted": _INK["muted"],
    "inferred": ("#7a3d8f", "#d3a5e6"),
    "edge": ("#dfe4ea", "#2b343f"),
    "line": ("#eceff3", "#232b34"),
    "gap": ("#c4603a", "#c98a63"),
    "accent-ink": ("#ffffff", "#0d1520"),
    "selected-area": ("#fbe6f0", "#3a1a2b"),
    "bar": ("#d9e9f5", "#1c3a52"),
    "launch": ("#b98aad", "#a86f98"),
    "launch-ink": ("#1b2128", "#ffffff"),
    "memory": PALETTES["memory"],
    "memory-ink": ("#ffffff", "#0d1520"),
    "level-0": ("#dfe3e9", "#2c3540"),
    "level-1": ("#c4ccd8", "#3c4856"),
    "level-2": ("#cbe7dc", "#1f4437"),
    "level-3": ("#79c4a9", "#2d7a5f"),
    "level-4": ("#dcefe8", "#1a382e"),
    "level-5": ("#ecdcae", "#584a20"),
    "level-6": ("#86bfe6", "#22608d"),
}


def css_variables() -> str:
    """The custom properties of the page's style sheet, for both themes and the switch between them."""
    pairs = {**PALETTES, **_PAGE, "font": (FONT, FONT)}
    pairs |= {f"level-{n}-ink": ("#14202b", "#eef3f8") for n in range(7)}
    light, dark = (" ".join(f"--{name.replace('_', '-')}: {pair[i]};" for name, pair in pairs.items()) for i in (0, 1))
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme='dark'] {{ color-scheme: dark; {dark} }}\n"
        f"@media print {{ :root, :root[data-theme] {{ color-scheme: light; {light} }} }}\n"
    )


def selected_layer() -> alt.Parameter:
    """The parameter that the page sets when a layer is selected anywhere; −1: none."""
    return alt.param(name="selected_layer", value=-1)


def layered(*charts: Any, **properties: Any) -> Any:
    """Charts over one another that know the selected layer. As `alt.layer`, which writes out the data that all have for
    a name that is not used; `add_params` and `properties` would copy all of it."""
    first, *others = charts
    first = first.add_params(selected_layer())
    data = first.data
    if data is alt.Undefined or not all(chart.data is data for chart in others):
        return alt.layer(first, *others, **properties)
    copies = tuple(chart.copy(deep=False) for chart in (first, *others))
    for chart in copies:
        chart.data = alt.Undefined
    return alt.layer(*copies, data=data, **properties)


def highlight(role: str) -> Any:
    """Colour of a mark with a ``layer_index``: its role's, or the selection's."""
    return either(alt.ColorValue, SELECTED, color("selected"), color(role))


def either(channel: Any, test: str, value: Any, otherwise: Any) -> Any:
    """``value`` where the test holds, else ``otherwise``. As `alt.condition`, which takes 15 ms to see what it got."""
    return channel(otherwise, condition={"test": test, "value": value})
