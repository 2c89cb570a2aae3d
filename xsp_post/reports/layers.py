"""A2–A4 and the stages: the layer table, latency and memory over the layers, box plot.

Reproduces Table II and Figure 5 with its shaded thirds (XSP, IPDPS 2020, §III-D).
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_count, format_ns
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present, rows_of
from xsp_post.reports.facts import counted
from xsp_post.reports.layer_axis import MAX_BARS, bars_over_layers, binned, layer_label
from xsp_post.reports.summary import is_outside, layer_name

ROW_LIMIT = 600
BOX_LIMIT = 60


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A2 of one case, slowest layer first."""
    case = case or cases.main_case(results)
    frame = cases.rows(results, "a02", case)
    return frame.sort_values("latency_ns", ascending=False, kind="stable").reset_index(drop=True)


def latency_data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A3 of one case in execution order."""
    frame = cases.rows(results, "a03", case or cases.main_case(results))
    return frame.sort_values("layer_index", kind="stable").reset_index(drop=True)


def memory_data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A4 of one case in execution order; empty where nothing was recorded."""
    frame = cases.rows(results, "a04", case or cases.main_case(results))
    recorded = frame["allocated_bytes"].notna() if len(frame) else pd.Series(dtype=bool)
    return frame.sort_values("layer_index", kind="stable").reset_index(drop=True) if recorded.any() else frame.iloc[:0]


def chart(frame: pd.DataFrame) -> Any:
    """Layer latency over the execution order (Figure 5a), thirds shaded."""
    return bars_over_layers(frame, "latency_ns", "latency", color="kernel", stages=True)


def memory_chart(frame: pd.DataFrame) -> Any:
    """Allocated memory over the execution order (Figure 5b)."""
    return bars_over_layers(frame, "allocated_bytes", "allocated memory", color="read", stages=True)


def box_chart(frame: pd.DataFrame) -> Any:
    """Spread of the slowest layers over the iterations: min–max line, quartile box, median tick."""
    slowest = frame.nlargest(BOX_LIMIT, "latency_ns").sort_values("layer_index")
    factor, unit = theme.axis_scale("latency_ns", slowest["max_latency_ns"])
    names = {
        "min_latency_ns": "low",
        "q25_latency_ns": "q25",
        "median_latency_ns": "median",
        "q75_latency_ns": "q75",
        "max_latency_ns": "high",
    }
    shown = slowest[["layer_index", *names]].rename(columns=names)
    for column in names.values():
        shown[column] = shown[column] / factor
    shown["layer"] = layer_label(slowest)
    shown["text"] = [
        f"{format_ns(a)} · {format_ns(b)} · {format_ns(c)} · {format_ns(d)} · {format_ns(e)}  (n {n})"
        for a, b, c, d, e, n in zip(*(slowest[c] for c in names), slowest["sample_count"])
    ]
    tooltip = [alt.Tooltip("layer:N", title="layer"), alt.Tooltip("text:N", title="min · q25 · median · q75 · max")]
    base = alt.Chart(shown).encode(
        x=alt.X("layer_index:O", title="layer", axis=alt.Axis(labelOverlap=True)), tooltip=tooltip
    )
    title = theme.axis_title("latency", unit)
    fill = theme.highlight("kernel")
    return theme.layered(
        base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"), color=fill),
        base.mark_bar(opacity=0.75).encode(y=alt.Y("q25:Q", title=title), y2=alt.Y2("q75:Q"), color=fill),
        base.mark_tick(thickness=2, width=12, color=theme.color("roof")).encode(y=alt.Y("median:Q", title=title)),
        width=theme.CHART_WIDTH,
        height=210,
    )


def _make(results: Results, case: cases.Case | None) -> Section | None:
    table = data(results, case)
    if table.empty:
        return None
    blocks: list[Block] = []
    no_layer = is_outside(table)
    real, outside = table[~no_layer] if no_layer.any() else table, table[no_layer]
    inferred = bool(table["is_inferred"].astype(bool).any()) if "is_inferred" in table else False
    blocks.append(
        Note(
            _lead(real, outside, cases.of_case(case))
            + (" These layers are inferred from repeating kernels, not recorded." if inferred else ""),
            "lead",
        )
    )
    latency = latency_data(results, case)
    if len(latency):
        folded = f" Each bar joins {binned(latency)[1]} consecutive layers." if len(latency) > MAX_BARS else ""
        blocks.append(
            Chart(
                "a03",
                chart(latency),
                "A3 · Layer latency in execution order. The shaded thirds are the paper’s "
                f"beginning, middle and end. Click a bar to follow its layer through the page.{folded}",
                "Layer latency",
            )
        )
        if (latency["sample_count"] > 1).any():
            blocks.append(
                Chart(
                    "a03-box",
                    box_chart(latency),
                    "A3 · Spread over the measured iterations"
                    + (f", the {BOX_LIMIT} slowest layers" if len(latency) > BOX_LIMIT else "")
                    + ": line from shortest to longest, box between the quartiles, tick at the median.",
                    "Spread",
                )
            )
    memory = memory_data(results, case)
    if len(memory):
        blocks.append(Chart("a04", memory_chart(memory), "A4 · Memory allocated during each layer.", "Layer memory"))
    same = (table["layer_name"].astype(str) == table["layer_path"].astype(str)).all()
    columns = tuple(c for c in present(table, view_of("a02")) if not (same and c == "layer_path"))
    blocks.append(
        Table(
            "a02",
            "a02",
            table.head(ROW_LIMIT),
            columns,
            "A2 · Layers, slowest first",
            len(table),
            command="xsp-post table A2 STORE --format csv",
            bars=("latency_ns",),
        )
    )
    return Section("layers", "Layers", "Which layers take the time?", tuple(blocks), "Layers")


def _lead(layers: pd.DataFrame, outside: pd.DataFrame, where: str) -> str:
    """How many layers, the slowest, and what the model does outside of them (``outside``: none or one row of A2)."""
    said = "The model has no range that is a layer."
    if len(layers):
        under, top = int((layers["latency_ns"] < 1_000_000).sum()), rows_of(layers.head(1))[0]
        said = (
            f"{counted(len(layers), 'layer', 'layers')}{where}, {format_count(under)} of them under 1 ms. The slowest "
            f"is layer {top.layer_index}, {layer_name(top.layer_name)} ({format_ns(top.latency_ns)})."
        )
    if len(outside):
        said += f" Outside of its layers the model takes {format_ns(outside['latency_ns'].iloc[0])} ([self])."
    return said


def _make_stages(results: Results, case: cases.Case | None) -> Section | None:
    stages = cases.rows(results, "stages", case)
    if stages.empty:
        return None
    columns = present(stages, view_of("stages"))
    return Section(
        "stages",
        "Stages",
        "Where in the model is the work?",
        (
            Table(
                "stages",
                "stages",
                stages,
                columns,
                "Thirds of the layers by execution order (Table IX)",
                len(stages),
                bars=("latency_ns", "allocated_bytes", "total_flop", "dram_bytes"),
            ),
        ),
        "Layers",
    )


EXHIBIT = Exhibit(
    "layers",
    "Layers",
    ("a02",),
    _make,
    "Ranges around the layers: xsp-post run --levels ML, or NVTX ranges in the "
    "program (`with xsp_post.ranges(model):`) and --layer-range.",
    ("A2", "A3", "A4"),
)
STAGES = Exhibit("stages", "Stages", ("stages",), _make_stages, "The same as for layers.")
