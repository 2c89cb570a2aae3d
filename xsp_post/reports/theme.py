"""Colours, fonts and number formats of charts and page.

Charts are made in the light palette. The page's dark form replaces each light colour by its dark partner
(`PALETTES`), so that a chart never knows which theme it is shown in. The hues are those of Okabe and Ito,
"Color Universal Design" (https://jfly.uni-koeln.de/color/), distinguishable by people with any of the common
colour-vision deficiencies; what a colour says is always said by a shape, a label or a position as well.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.base.texts import read_blocks
from xsp_post.model.levels import RUN_LEVEL_TEXTS
from xsp_post.model.schemas import TABLES, unit_of, units
from xsp_post.reports.blocks import may_be_unknown
from xsp_post.reports.text import visible

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

_TEXTS = {block.name: block.texts() for block in read_blocks(Path(__file__).with_name("theme.txt"))}
WAYS, TIMES = _TEXTS.pop("ways"), _TEXTS.pop("times")
_COLOURS = {
    block: {name: (text.split()[0], text.split()[1]) for name, text in texts.items()} for block, texts in _TEXTS.items()
}
PALETTES, _INK, _PAGE = (_COLOURS[name] for name in ("roles", "ink", "page"))
CATEGORIES, MORE_CATEGORIES = (list(_COLOURS[name].values()) for name in ("categories", "more"))
HUE_COUNT = len(CATEGORIES) - 1 + len(MORE_CATEGORIES)
# Text on a filled mark; all fills of the dark theme are light.
_ON_FILL = {"light": ("#fffffe", "#10161d"), "dark": ("#14202b", "#10161d")}

SELECTED = "selected_layer >= 0 && datum.layer_index === selected_layer"
CHART_WIDTH = 760
CHART_HEIGHT = 230


def color(role: str) -> str:
    """The light-theme colour of a role."""
    return PALETTES[role][0]


def category_colors(names: Sequence[str]) -> list[str]:
    """A light-theme colour for each name, unlike the others for up to eleven names; grey for "other"."""
    hues = [light for light, _ in (*CATEGORIES[:-1], *MORE_CATEGORIES)]
    rest = [name for name in names if name != "other"]
    return [CATEGORIES[-1][0] if name == "other" else hues[rest.index(name) % len(hues)] for name in names]


def dark_colors() -> dict[str, str]:
    """Light colour -> dark colour, for the page's theme switch."""
    return {light: dark for light, dark in [*PALETTES.values(), *CATEGORIES, *MORE_CATEGORIES, *_ON_FILL.values()]}


def config(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite configuration of a theme."""
    values: dict[str, Any] = {name: pair[dark] for name, pair in (*_INK.items(), ("kernel", PALETTES["kernel"]))}
    values |= {"background": "transparent" if dark else "#ffffff00", "font": FONT, "width": CHART_WIDTH}
    values |= {"height": CHART_HEIGHT, "categories": [pair[dark] for pair in CATEGORIES]}
    text = Path(__file__).with_name("assets").joinpath("vega_config.json").read_text(encoding="utf-8")
    return dict(json.loads(re.sub(r'"\$(\w+)"', lambda found: json.dumps(values[found[1]]), text)))


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
    words = RUN_LEVEL_TEXTS if column.endswith("level") else {}
    return [words.get(v) or visible(v) for v in values.tolist()]


def is_number(values: pd.Series) -> bool:
    """Whether a column is shown right-aligned and sorted by value."""
    return pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool


def _missing(value: Any, column: str) -> bool:
    # a difference may well be −1 ns
    return value is None or value is pd.NA or value != value or (value == -1 and column in may_be_unknown())


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


def layered(*charts: Any, **properties: Any) -> Any:
    """Charts over one another that know the layer that is selected anywhere on the page (−1: none). As `alt.layer`,
    which writes out the data that all have for a name that is not used; `add_params` and `properties` would copy all
    of it."""
    first, *others = charts
    first = first.add_params(alt.param(name="selected_layer", value=-1))
    data = first.data
    if data is alt.Undefined or not all(chart.data is data for chart in others):
        return alt.layer(first, *others, **properties)
    copies = tuple(chart.copy(deep=False) for chart in (first, *others))
    for chart in copies:
        chart.data = alt.Undefined
    return alt.layer(*copies, data=data, **properties)


def either(channel: Any, test: str, value: Any, otherwise: Any) -> Any:
    """``value`` where the test holds, else ``otherwise``. As `alt.condition`, which takes 15 ms to see what it got."""
    return channel(otherwise, condition={"test": test, "value": value})
