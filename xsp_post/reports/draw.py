"""A row of `page.txt` and its frame → an Altair chart: one function draws every chart.

A channel that reads a text is a list of names in the order of the rows, one that reads a number is an axis in the unit
that fits its largest value. Two names of an axis are never equal.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.schemas.views import label_of, titles_of
from xsp_post.reports import theme
from xsp_post.reports.page_rows import ChartRow
from xsp_post.reports.text import distinct, shorten, visible

MAX_BARS = 700
NAME_LENGTH = 46
_FIELDS = ("x", "x2", "y", "y2", "low", "high", "tick", "size")
_SHAPES = ("circle", "triangle-up", "diamond", "square", "cross", "triangle-down")
_SERIES = "series"


def draw(
    row: ChartRow, frame: pd.DataFrame, under: Sequence[Any] = (), domains: Mapping[str, list[float]] | None = None,
    log: Sequence[str] | None = None,
) -> Any:  # fmt: skip
    """The chart of a frame that has at least one row (`rows_of`). ``under``: charts below the marks; ``domains``: ends
    of the axes, in the columns' own units; ``log``: the axes that are logarithmic, instead of the row's."""
    scales = _scales(row, frame)
    data = _data(row, frame, scales)
    log = row.log if log is None else log
    x, y = (_axis(row, channel, frame, data, scales[channel], (domains or {}).get(channel), channel in log)
            for channel in ("x", "y"))  # fmt: skip
    base = alt.Chart(data).encode(x=x, y=y, tooltip=_tooltips(row, frame), **_order(row, frame))
    layers = [*under, *_bands(row, frame), *_marks(row, frame, data, base)]
    layers += _rules(row, frame, scales)
    most = max((name.count("\n") for name in data["y"]), default=0) if row.wrap else 0
    lines = data["y"].nunique() * (13 * most + 20) + 10 if _is_text(frame, row.y[0]) else 0
    height = row.height or lines or theme.CHART_HEIGHT
    return theme.layered(*layers, width=theme.CHART_WIDTH, height=height)


def rows_of(row: ChartRow, frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows that are drawn, several columns of y as one series each, and a sentence where they are fewer or sums."""
    columns = [column for column in row.y if column in frame and _has_values(frame[column])]
    if row.mark == "layers":
        columns = [column for column in columns if frame[column].fillna(0).any()]
    needed = [column for column in (row.x, row.color) if column]
    if not columns or not set(needed) <= set(frame) or len(frame) < row.least:
        return frame.iloc[:0], ""
    said = ""
    if row.mark == "layers":
        frame, size = binned(frame, columns[0])
        said = f" Each bar joins {size} consecutive layers." if size > 1 else ""
    if len(row.y) > 1:
        parts = [frame.assign(value_ratio=frame[column], series=label_of(row.schema, column)) for column in columns]
        frame = pd.concat(parts, ignore_index=True)
    numbers = [c for c in (row.x, *row.y) if c in frame and not _is_text(frame, c)]
    known = frame.dropna(subset=numbers) if row.mark != "line" else frame
    if not len(known) or (numbers and not _has_values(known[numbers[-1]])):
        return known.iloc[:0], ""
    if len(known) > row.limit:
        said += f" The first {row.limit:,} of {len(known):,} are drawn."
    return known.head(row.limit).reset_index(drop=True), said


def binned(frame: pd.DataFrame, value: str) -> tuple[pd.DataFrame, int]:
    """At most MAX_BARS rows: sums over runs of consecutive layers, each named by its heaviest; and the run's length.
    A ratio is that of the heaviest: ratios have no sum."""
    size = max(-(-len(frame) // MAX_BARS), 1)
    if size == 1:
        return frame, 1
    group = np.arange(len(frame)) // size
    result = frame.loc[frame[value].fillna(-np.inf).groupby(group).idxmax()].copy()
    if not value.endswith("_ratio"):
        result[value] = frame[value].groupby(group).sum(min_count=1).to_numpy()
    return result.reset_index(drop=True), size


def _has_values(values: pd.Series) -> bool:
    return bool(values.notna().any())


def _is_text(frame: pd.DataFrame, column: str) -> bool:
    return not theme.is_number(frame[column])


def _column(row: ChartRow, field: str) -> str:
    """The column that a field reads; of several series their common one."""
    if field == "y" and len(row.y) > 1:
        return "value_ratio"
    return row.y[0] if field == "y" else str(getattr(row, field))


def _scales(row: ChartRow, frame: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """By axis the factor and unit of its numbers."""
    across = "x" if _is_text(frame, _column(row, "y")) else "y"
    fields = {"x": ["x", "x2"], "y": ["y", "y2"]}
    fields[across] += ["low", "high", "tick"]
    found = {}
    for channel, names in fields.items():
        column = _column(row, channel)
        columns = [_column(row, name) for name in names if _column(row, name) in frame]
        is_text = _is_text(frame, column) or row.mark == "cell"
        values = np.array([]) if is_text else np.concatenate([frame[c].to_numpy("float64") for c in columns])
        found[channel] = theme.axis_scale(column, values)
    return found


def _data(row: ChartRow, frame: pd.DataFrame, scales: Mapping[str, tuple[float, str]]) -> pd.DataFrame:
    """What the chart is drawn from: a column per channel, texts of the tooltip, and the layer that a row is of."""
    across = "x" if _is_text(frame, _column(row, "y")) else "y"
    data = pd.DataFrame(index=frame.index)
    for field in _FIELDS:
        column = _column(row, field)
        if column not in frame:
            continue
        if _is_text(frame, column) or row.mark == "cell":
            names = _labels(frame[column], NAME_LENGTH if not row.wrap else 200)
            data[field] = ["\n".join(wrap(name, row.wrap)) for name in names] if row.wrap else names
        else:
            factor = scales[field[0] if field[0] in "xy" else across][0] if field != "size" else 1.0
            data[field] = frame[column].to_numpy("float64") / factor
    for column in row.tips:
        data[column] = theme.text_of(frame[column], column)
    color = _color_column(row)
    if row.mark == "cell":
        data["amount"] = frame[row.color] / theme.axis_scale(row.color, frame[row.color])[0]
        data["text"] = theme.text_of(frame[row.color], row.color)
    elif color:
        data["color"] = [visible(text, 60) for text in frame[color].astype(str)]
        data["order"] = data["color"].map({name: i for i, name in enumerate(_names(row, frame))})
    if row.text:
        data["text"] = theme.text_of(frame[row.text], row.text)
    if "layer_index" in frame:
        data["layer_index"] = frame["layer_index"].to_numpy()
        if "layer_name" in frame:
            data["layer"] = layer_label(frame)
    if row.mark == "layers":
        size = max(round(len(frame) and (data["x"].max() - data["x"].min() + 1) / len(frame)), 1)
        data["x2"], data["x"] = data["x"] + 0.46 * size, data["x"] - 0.46 * size
    return data


def layer_label(frame: pd.DataFrame) -> list[str]:
    """``208 · conv2d_48 (Conv2D)`` per row."""
    types = frame["layer_type"] if "layer_type" in frame else pd.Series([""] * len(frame))
    return [
        f"{index} · {shorten(visible(name, 300), 60)}" + (f" ({shorten(visible(kind, 60), 30)})" if kind else "")
        for index, name, kind in zip(frame["layer_index"], frame["layer_name"], types)
    ]


def _labels(values: pd.Series, length: int) -> list[str]:
    """Names of an axis: equal values share one, different values never do."""
    known = list(dict.fromkeys(values.tolist()))
    texts = distinct(_cut(visible(one, 400), length) for one in known)
    names = dict(zip(known, texts))
    return [names[value] for value in values.tolist()]


def _cut(name: str, length: int) -> str:
    """A short name: what tells it from its neighbours, behind the last dot, is kept whole."""
    head, dot, own = name.rpartition(" · ")
    return f"{shorten(head, max(length - len(own) - 3, 12))}{dot}{own[:length]}" if dot else shorten(name, length)


def _axis(
    row: ChartRow, channel: str, frame: pd.DataFrame, data: pd.DataFrame, scale: tuple[float, str],
    domain: list[float] | None, is_log: bool,
) -> Any:  # fmt: skip
    of: Any = alt.X if channel == "x" else alt.Y
    column = _column(row, channel)
    title = row.x_title if channel == "x" else row.y_title
    if _is_text(frame, column) or row.mark == "cell":
        axis = alt.Axis(labelLimit=330, labelAngle=0, domain=False, ticks=False)
        if row.wrap:
            axis = alt.Axis(labelExpr="split(datum.label, '\\n')", labelLineHeight=13, labelLimit=330)
        if channel == "x":
            axis = alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=8)
        return of(f"{channel}:N", sort=list(dict.fromkeys(data[channel])), title=title or None, axis=axis)
    factor, unit = scale
    named = theme.axis_title(title or label_of(row.schema, column), unit)
    options: dict[str, Any] = {"type": "log"} if is_log else {}
    if domain is not None:
        options |= {"domain": [float(end) / factor for end in domain], "nice": False, "clamp": True}
    elif row.mark == "layers" and channel == "x":
        options |= {"domain": [float(data["x"].min()) - 0.1, float(data["x2"].max()) + 0.1], "nice": False}
    elif row.text and _is_text(frame, _column(row, "y")) and channel == "x":
        options |= {"rangeMax": alt.ExprRef("max(width - 150, width / 2)"), "nice": False}
    elif column.endswith("_ratio") and row.color:
        options |= {"nice": False}
    elif row.mark == "line" and channel == "y" and not is_log and not column.endswith("_ratio"):
        options |= {"zero": False}  # a course is read by its differences
    steps: dict[str, Any] = {"tickCount": 7, "format": "~g"} if is_log else {}
    if column.endswith("_ratio"):
        steps = {"format": "~%"}
    elif column in ("layer_index", "order"):
        named, steps = title or "layer (execution order)", {"tickMinStep": 1}
    is_amount = channel == ("x" if _is_text(frame, _column(row, "y")) else "y")
    is_stacked = is_amount and row.color and row.mark in ("bar", "area") and not row.x2
    stack: dict[str, Any] = {"stack": "zero"} if is_stacked else {}
    return of(f"{channel}:Q", title=named, scale=alt.Scale(**options) if options else alt.Undefined,
              axis=alt.Axis(grid=channel == "y", **steps), **stack)  # fmt: skip


def _tooltips(row: ChartRow, frame: pd.DataFrame) -> list[Any]:
    titles = titles_of(row.schema, row.tips)
    tips = [alt.Tooltip(f"{column}:N", title=titles[column]) for column in row.tips]
    if "layer_index" in frame and "layer_name" in frame and "label" not in row.tips:
        tips.insert(0, alt.Tooltip("layer:N", title="layer"))
    named = next((c for c in ("y", "x") if _is_text(frame, _column(row, c))), "")
    if named and "label" not in row.tips and "name" not in row.tips:
        title = row.y_title if named == "y" else row.x_title
        tips.insert(0, alt.Tooltip(f"{named}:N", title=title or label_of(row.schema, _column(row, named))))
    if row.mark == "layers" and row.y[0] not in row.tips:
        tips.append(alt.Tooltip("y:Q", title=row.y_title or label_of(row.schema, row.y[0]), format=".3~s"))
    return tips


def _color_column(row: ChartRow) -> str:
    return _SERIES if len(row.y) > 1 else row.color


def _roles(row: ChartRow) -> dict[str, str]:
    """The role of a name by its first word; "" is that of a chart without categories."""
    return dict((name, role) for name, _, role in (one.partition("=") for one in row.colors))


def _palette(row: ChartRow, names: list[str]) -> list[str]:
    roles = _roles(row)
    if not roles:
        return theme.category_colors(names)
    return [theme.color(roles.get(name) or roles.get(name.partition(" ")[0], "latency")) for name in names]


def _names(row: ChartRow, frame: pd.DataFrame) -> list[str]:
    """The names of the categories: those with a role in its order, then as they come, "other" last."""
    found = [visible(text, 60) for text in dict.fromkeys(frame[_color_column(row)].astype(str))]
    known = list(_roles(row))
    place = {name: i for i, name in enumerate(known)}
    return sorted(found, key=lambda name: place.get(name, place.get(name.partition(" ")[0], -(name != "other"))))


def _order(row: ChartRow, frame: pd.DataFrame) -> dict[str, Any]:
    """Channels of a category: its colour, and a second one where that alone would tell it."""
    column = _color_column(row)
    if not column:
        return {}
    if row.mark == "cell":
        title = theme.axis_title(label_of(row.schema, column), theme.axis_scale(column, frame[column])[1])
        return {"color": alt.Color("amount:Q", title=title, scale=alt.Scale(scheme="blues"))}
    names = _names(row, frame)
    scale = alt.Scale(domain=names, range=_palette(row, names))
    legend = alt.Legend(columns=3, labelLimit=340) if len(names) > 1 or row.mark == "roofline" else None
    channels: dict[str, Any] = {"color": alt.Color("color:N", title=None, sort=names, scale=scale, legend=legend)}
    if row.mark in ("point", "roofline"):
        shapes = alt.Scale(domain=names, range=[_SHAPES[i % len(_SHAPES)] for i in range(len(names))])
        channels["shape"] = alt.Shape("color:N", title=None, scale=shapes, legend=legend)
    elif row.mark == "line":
        channels["strokeDash"] = alt.StrokeDash("color:N", sort=names, legend=None)
    elif row.mark in ("bar", "area") and not row.x2:
        channels["order"] = alt.Order("order:Q")
    return channels


def _marks(row: ChartRow, frame: pd.DataFrame, data: pd.DataFrame, base: Any) -> list[Any]:
    """The mark itself, then its interval, tick and text."""
    has_layers = "layer_index" in data
    role = _roles(row).get("", "kernel")
    color = {} if row.color or len(row.y) > 1 else {
        "color": theme.either(alt.ColorValue, theme.SELECTED, theme.color("selected"), theme.color(role))
        if has_layers else alt.ColorValue(theme.color(role))
    }  # fmt: skip
    ends: dict[str, Any] = {}
    if "x2" in data:
        ends["x2"] = alt.X2("x2:Q")
    if "y2" in data or row.mark == "layers":
        ends["y2"] = alt.Y2("y2:Q") if "y2" in data else alt.Y2Datum(0)
    if row.mark == "cell":
        bright = float(data["amount"].max()) * 0.6
        ink = theme.either(alt.ColorValue, f"datum.amount > {bright}", "#fffffe", "#10161d")
        text = base.mark_text(fontSize=11).encode(text=alt.Text("text:N"), color=ink)
        return [base.mark_rect(), *([text] if data["x"].nunique() <= 10 else [])]
    if row.mark == "area":
        return [base.mark_area(interpolate="step-after").encode(**color)]
    marks = []
    roof = {"color": alt.ColorValue(theme.color("roof"))}
    if row.mark in ("point", "roofline"):
        spot = base.mark_point(filled=True, size=60, opacity=0.8).encode(**color)
        if row.size:
            spot = spot.encode(size=alt.Size("size:Q", scale=alt.Scale(range=[26, 380]), legend=None))
        if has_layers:
            near = f"selected_layer < 0 || {theme.SELECTED}"
            edge = theme.either(alt.StrokeValue, theme.SELECTED, theme.color("selected"), None)
            spot = spot.encode(opacity=theme.either(alt.OpacityValue, near, 0.8, 0.15), stroke=edge)
        marks.append(spot)
    elif row.mark == "line":
        marks.append(base.mark_line(strokeWidth=1.5, point=len(frame) <= 60).encode(**color))
    else:
        style: dict[str, Any] = {"stroke": "#fffffe", "strokeWidth": 0.6} if row.color and not row.x2 else {}
        marks.append(base.mark_bar(**style).encode(**color, **ends))
    if row.low and _is_text(frame, _column(row, "y")):
        line = alt.Chart(data).mark_rule(strokeWidth=1.8).encode(y=base.encoding.y, color=base.encoding.color)
        marks.insert(0, line.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")))
    elif row.low:
        marks.append(base.mark_rule(strokeWidth=1.8).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), **roof))
    if row.tick and _has_values(data["tick"]):
        ticks = alt.Chart(data).mark_point(shape="stroke", size=110, strokeWidth=2, opacity=1)
        marks.append(ticks.encode(x=base.encoding.x, y=alt.Y("tick:Q"), **roof))
        if row.x == "order":  # one line a colour
            line = alt.Chart(data).mark_line(strokeWidth=0.8, opacity=0.6)
            marks.append(line.encode(x=base.encoding.x, y=alt.Y("tick:Q"), color=base.encoding.color))
    plain = alt.Chart(data).encode(y=base.encoding.y, text=alt.Text("text:N"))
    if row.text and row.mark in ("roofline", "line"):
        marks.append(plain.mark_text(dy=-13, fontSize=11).encode(x=base.encoding.x))
    elif row.text:
        at = alt.X("x2:Q") if "x2" in data else alt.X("x:Q", stack=None)
        marks.append(plain.mark_text(align="left", dx=5, fontSize=11.5).encode(x=at))
    return marks


def _bands(row: ChartRow, frame: pd.DataFrame) -> list[Any]:
    """Every second run of a column's values is shaded, and each is named above the marks."""
    if not row.bands or row.bands not in frame or frame[row.bands].astype(str).eq("").all():
        return []
    staged = frame[frame[row.bands].astype(str).ne("")]
    runs = staged.groupby(row.bands, observed=True, sort=False)[row.x].agg(["min", "max"]).reset_index()
    if len(runs) < 2:
        return []
    data = pd.DataFrame({"name": runs[row.bands].astype(str), "x": runs["min"] - 0.5, "x2": runs["max"] + 0.5,
                         "middle": (runs["min"] + runs["max"]) / 2})  # fmt: skip
    area = alt.Chart(data.iloc[1::2]).mark_rect(color=theme.color("band")).encode(x=alt.X("x:Q"), x2=alt.X2("x2:Q"))
    names = alt.Chart(data).mark_text(baseline="bottom", dy=-3, fontSize=11, opacity=0.75)
    return [area, names.encode(x=alt.X("middle:Q"), y=alt.YValue(0), text=alt.Text("name:N"))]


def _rules(row: ChartRow, frame: pd.DataFrame, scales: Mapping[str, tuple[float, str]]) -> list[Any]:
    if not row.rule:
        return []
    channel = "x" if _is_text(frame, _column(row, "y")) else "y"
    value = float(frame[row.rule].iloc[0] if row.rule in frame else row.rule)
    if not (value > 0 or row.rule == "0"):
        return []
    at = pd.DataFrame({"at": [value / scales[channel][0]]})
    encoded = {channel: alt.X("at:Q") if channel == "x" else alt.Y("at:Q")}
    return [alt.Chart(at).mark_rule(strokeDash=[5, 4]).encode(**encoded)]
