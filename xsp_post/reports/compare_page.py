"""The tables of a comparison → one self-contained page."""

from __future__ import annotations

import os
from textwrap import wrap
from typing import Any

import altair as alt
import pandas as pd

from xsp_post.base.output import atomic_output
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Section, Table
from xsp_post.reports.compare_text import QUANTITIES, amount, is_as_recorded, shown_totals
from xsp_post.reports.small_page import Fact, render_page
from xsp_post.reports.text import short_kernel, shorten, visible

ROW_LIMIT = 400
BAR_LIMIT = 25
_LINE = 18  # letters of a label that a narrow screen has room for
# What a change looks like: never by colour alone, the words are in the legend, the table and on hover.
_COLORS = {"slower": "other", "faster": "base", "no difference shown": "unknown", "changed kernel": "latency"}
_LAYER_COLUMNS = ("layer_path", "call_index", "layer_type", "measure")
_KERNEL_COLUMNS = ("name", "other_name", "layer_path", "base_count", "other_count")
_DIFFERENCE = (
    "base_latency_ns",
    "other_latency_ns",
    "difference_ns",
    "difference_ratio",
    "change",
    "ci_low_difference_ns",
    "ci_high_difference_ns",
    "adjusted_p_value",
    "base_sample_count",
    "other_sample_count",
    "interval_over",
)


def write_compare_page(
    results: Results, path: str | os.PathLike[str], *, names: tuple[str, str] = ("base", "other"), force: bool = False
) -> None:
    """Write the page of a comparison. Raises `OutputError`."""
    with atomic_output(path, force) as temporary:
        temporary.write_text(render(results, names), encoding="utf-8")


def render(results: Results, names: tuple[str, str] = ("base", "other")) -> str:
    """The page of a comparison (tables ``compare_…``) as text."""
    summary = results.frame("compare_summary")
    statements = [
        ("other" if row["is_difference"] else "compute", str(row["statement"])) for row in summary.to_dict("records")
    ]
    sections = [
        section
        for section in (
            _causes(results),
            _totals(results),
            _names(results),
            _section(
                results,
                "compare_layers",
                "layers",
                "Layers",
                "Which layers changed by more than noise? Times are per call.",
                _LAYER_COLUMNS,
                "layer_path",
            ),
            _section(
                results,
                "compare_kernels",
                "kernels",
                "Kernels",
                "Which kernels changed? Times are of all launches in one call of the layer.",
                _KERNEL_COLUMNS,
                "name",
            ),
        )
        if section is not None
    ]
    title = f"{names[0]} → {names[1]}"
    return render_page(
        title,
        "differences of the second against the first",
        "xsp-post comparison",
        _facts(results),
        statements,
        sections,
    )


def _facts(results: Results) -> list[Fact]:
    models = results.frame("compare_models")
    facts = _window_facts(results) if models.empty else []
    for row in models.head(8).to_dict("records"):
        amount = format_count if row["unit"] == "1" else format_ns
        sign = "+" if row["difference_ratio"] > 0 else ""
        facts.append(
            Fact(
                f"{str(row['quantity']).replace('_', ' ')} per iteration",
                f"{sign}{format_ratio_percent(row['difference_ratio'])}",
                f"{amount(row['base_value'])} → {amount(row['other_value'])}: {row['change']}",
            )
        )
    return facts


_WINDOW_FACTS = ("window", "busy", "idle", "kernel_count")


def _window_facts(results: Results) -> list[Fact]:
    """Of captures without executions: what the devices did, as recorded."""
    totals = shown_totals(results)
    facts = []
    for row in totals[totals["quantity"].isin(_WINDOW_FACTS)].to_dict("records"):
        amount = _count if row["unit"] == "1" else format_ns
        sides = f"{amount(row['base'])} → {amount(row['other'])}, as recorded"
        facts.append(Fact(QUANTITIES[row["quantity"]], _signed(row["ratio"]), sides))
    return facts


def _count(value: float) -> str:
    return format_count(round(value))


def _signed(ratio: float) -> str:
    return "–" if ratio != ratio else f"{'+' if ratio > 0 else ''}{format_ratio_percent(ratio)}"


def _causes(results: Results) -> Section | None:
    """What the difference consists of, as bars that sum to it, and as a table."""
    frame = frame_or_empty(results, "compare_causes")
    frame = frame[frame["difference_ns"].abs() >= 0.5].reset_index(drop=True)
    if frame.empty:
        return None
    whole = float(frame["difference_ns"].sum())
    caption = f"Longer bars to the right cost time in the other; together they are {_signed_ns(whole)}, the whole "
    caption += "difference of the time of the devices."
    shown = tuple(c for c in ("cause", "difference_ns", "example") if c != "example" or frame["example"].ne("").any())
    table = Table("causes", "compare_causes", frame, shown, "The same as a table", len(frame), command=_COMMAND,
                  short={"example": lambda names: names.map(short_kernel)})  # fmt: skip
    chart = Chart("causes-bars", _cause_chart(frame), caption, "What the difference consists of")
    return Section("causes", "Causes", "What does the difference consist of?", (chart, table))


def _cause_chart(frame: pd.DataFrame) -> Any:
    lines = [wrap(str(cause), _LINE) for cause in frame["cause"]]  # a narrow screen leaves labels no more room
    bars = pd.DataFrame({
        "cause": frame["cause"], "label": ["\n".join(one) for one in lines], "value": frame["difference_ns"] / 1e6,
        "change": ["slower" if value > 0 else "faster" for value in frame["difference_ns"]],
        "text": [_signed_ns(value) for value in frame["difference_ns"]],
    })  # fmt: skip
    present = list(dict.fromkeys(bars["change"]))
    scale = alt.Scale(domain=present, range=[theme.color(_COLORS[change]) for change in present])
    up: Any = {"condition": [{"test": f"length(split(datum.label, '\\n')) == {count}", "value": 5.5 * (1 - count)}
                             for count in (2, 3)], "value": 0}  # fmt: skip
    axis = alt.Axis(labelExpr="split(datum.label, '\\n')", labelLineHeight=11, labelLimit=330, labelOffset=up)
    mark = (
        alt.Chart(bars)
        .mark_bar()
        .encode(
            y=alt.Y("label:N", title=None, sort=bars["label"].tolist(), axis=axis),
            x=alt.X("value:Q", title="difference [ms]"),
            color=alt.Color("change:N", title=None, scale=scale),
            tooltip=[alt.Tooltip(f"{c}:N", title=c) for c in ("cause", "text")],
        )
    )
    return mark.properties(width=theme.CHART_WIDTH - 320, height=(6 + 11 * max(map(len, [*lines, [""]]))) * len(bars))


def _signed_ns(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + format_ns(abs(value))


def _totals(results: Results) -> Section | None:
    """Time of the devices, and what it went to, on both sides."""
    shown = shown_totals(results)
    if shown.empty:
        return None
    columns = {"base_per_unit": "base", "other_per_unit": "other", "difference_value": "difference"}
    rows = pd.DataFrame({
        "quantity": shown["quantity"].map(QUANTITIES),
        **{name: [amount(v, unit) for v, unit in zip(shown[source], shown["unit"])]
           for name, source in columns.items()},
        "difference_ratio": shown["ratio"],
    })  # fmt: skip
    table = Table("totals", "compare_totals", rows, tuple(rows.columns), "Base and other", len(rows), command=_COMMAND)
    has_memory = bool((shown["unit"] == "B").any())
    of = "as recorded" if is_as_recorded(results) else "per execution"
    of += ", memory as recorded" if has_memory and not is_as_recorded(results) else ""
    question = f"What did the devices do? All values are {of}."
    title = "Device time and memory" if has_memory else "Device time"
    return Section("totals", title, question, (table,))


def _names(results: Results) -> Section | None:
    """Kernels by name, those that cost or save most first."""
    frame = frame_or_empty(results, "compare_names")
    if frame.empty:
        return None
    columns = ("name", "impact_ns", "base_mean_ns", "other_mean_ns", "base_count", "other_count")
    short = {"name": lambda names: names.map(short_kernel)}
    table = Table("names", "compare_names", frame.head(ROW_LIMIT), columns, "Costs: over all launches", len(frame),
                  short, command=_COMMAND, visible_rows=15)  # fmt: skip
    question = "Which kernels cost or save most, over all their launches? Largest first, whichever way it goes."
    return Section("names", "Kernels by name", question, (table,))


_COMMAND = "xsp-post compare BASE OTHER --json"


def _section(
    results: Results, table: str, anchor: str, title: str, question: str, columns: tuple[str, ...], label: str
) -> Section | None:
    frame = results.frame(table)
    if frame.empty:
        return None
    blocks: list[Block] = []
    on_both = frame[frame["difference_ratio"].notna()]
    drawn = on_both.head(BAR_LIMIT)
    if len(drawn):
        caption = (
            "Difference of the other against the base with its 95 % interval. A mark whose line crosses zero shows "
        )
        caption += "no difference; one from edge to edge, that it is too uncertain to say."
        caption += f" The first {BAR_LIMIT} of {len(on_both):,}." if len(on_both) > BAR_LIMIT else ""
        blocks.append(Chart(f"{anchor}-differences", _chart(drawn, label), caption, "Differences"))
    listed = frame.head(ROW_LIMIT).drop(columns=["layer_index"])
    shown = tuple(c for c in (*columns, *_DIFFERENCE) if c in listed and _says_something(listed[c]))
    blocks.append(
        Table(
            anchor,
            table,
            listed,
            shown,
            title,
            len(frame),
            bars=(),
            visible_rows=15,
            short={"name": lambda names: names.map(short_kernel)} if label == "name" else {},
            command=_COMMAND,
        )
    )
    return Section(anchor, title, question, tuple(blocks))


def _says_something(values: pd.Series) -> bool:
    if values.dtype.kind in "f":
        return bool(values.notna().any())
    return bool((values.astype(str) != "").any()) and not (
        values.name in ("call_index", "measure") and values.nunique() == 1
    )


def _chart(frame: pd.DataFrame, label: str) -> Any:
    """One row per layer or kernel: the relative difference as a point, its interval as a line."""
    base = frame["base_latency_ns"]
    texts = [shorten(visible(name, 200), 48) for name in frame[label]]
    points = pd.DataFrame(
        {
            "row": [f"{i + 1}. {text}" for i, text in enumerate(texts)],
            "order": range(len(frame)),
            "value": frame["difference_ratio"] * 100,
            "low": frame["ci_low_difference_ns"] / base * 100,
            "high": frame["ci_high_difference_ns"] / base * 100,
            "change": frame["change"].astype(str),
            "base": [format_ns(v) for v in base],
            "other": [format_ns(v) for v in frame["other_latency_ns"]],
        }
    )
    # an interval of ±300 % would flatten everything else: lines end at the edge of the scale
    edge = float(max(points["value"].abs().max() * 1.6, points["high"].abs().median() * 1.2, 2.0))
    points["low"], points["high"] = points["low"].clip(-edge, edge), points["high"].clip(-edge, edge)
    present = [c for c in dict.fromkeys(points["change"])]
    scale = alt.Scale(domain=present, range=[theme.color(_COLORS.get(change, "memory")) for change in present])
    color = alt.Color("change:N", title=None, scale=scale)
    y = alt.Y("row:N", title=None, sort=points["row"].tolist(), axis=alt.Axis(labelLimit=330))
    x = alt.X("value:Q", title="difference [% of base]", scale=alt.Scale(domain=[-edge, edge]))
    tips = [alt.Tooltip(f"{c}:N", title=c) for c in ("row", "change", "base", "other")]
    interval = (
        alt.Chart(points)
        .mark_rule(strokeWidth=2)
        .encode(
            y=y,
            x=alt.X("low:Q", title="difference [% of base]", scale=alt.Scale(domain=[-edge, edge])),
            x2=alt.X2("high:Q"),
            color=color,
        )
    )
    mark = (
        alt.Chart(points)
        .mark_point(filled=True, size=70)
        .encode(
            y=y,
            x=x,
            color=color,
            shape=alt.Shape("change:N", title=None, scale=alt.Scale(domain=present)),
            tooltip=tips,
        )
    )
    zero = alt.Chart(pd.DataFrame({"zero": [0]})).mark_rule(strokeDash=[4, 3]).encode(x=alt.X("zero:Q"))
    return theme.overlay(zero, interval, mark, width=theme.CHART_WIDTH - 320, height=22 * len(points))
