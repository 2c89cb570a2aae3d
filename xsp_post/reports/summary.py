"""The top of the page. What ran where, how fast, what matters most, and can one believe it.

Each number is a cell of an analysis table; here they are only chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import cases
from xsp_post.reports.blocks import rows_of
from xsp_post.reports.facts import Device, Fact, counted, device_of, facts
from xsp_post.reports.findings_view import Shown, shown_findings
from xsp_post.reports.text import distinct, short_kernel, shorten, visible
from xsp_post.reports.trust import Balance, balances, trust_data
from xsp_post.reports.verdict import Verdict, verdict
from xsp_post.schemas.units import format_ns, format_ratio_percent

TOP = 3
KERNELS_PER_LAYER = 3
# The name of the row of A2 that holds what a model does outside of its layers; it is no layer, and none is slower.
MODEL_SELF = "[self]"


@dataclass(frozen=True)
class TopRow:
    """One of the heaviest layers or kernels."""

    name: str
    full_name: str
    latency_ns: float
    share: float
    layer_index: int
    lines: tuple[str, ...]
    bound: str = ""


@dataclass
class Summary:
    """The top of the page."""

    title: str
    machine: str
    case: cases.Case | None
    facts: list[Fact]
    verdict: Verdict
    top_layers: list[TopRow]
    outside: TopRow | None
    top_kernels: list[TopRow]
    device: Device
    balances: list[Balance]
    findings: list[Shown]
    trust: pd.DataFrame
    sources: list[str] = field(default_factory=list)


def summarize(results: Results, case: cases.Case | None) -> Summary:
    """Everything the first screen says."""
    captures = frame_or_empty(results, "captures")
    title, machine = _workload(captures, case)
    top_layers, outside = _top_layers(results, case)
    return Summary(
        title,
        machine,
        case,
        facts(results, case),
        verdict(results, case),
        top_layers,
        outside,
        _top_kernels(results, case),
        device_of(results),
        balances(results),
        shown_findings(results),
        trust_data(results, case),
        [visible(name, 120) for name in captures["source_name"].astype(str).unique()],
    )


def _workload(captures: pd.DataFrame, case: cases.Case | None) -> tuple[str, str]:
    def different(column: str) -> list[str]:
        return [visible(v, 200) for v in dict.fromkeys(captures[column].astype(str)) if v]

    names = different("workload_name") or different("source_name") or ["unnamed workload"]
    title = " + ".join(names[:3]) + (f" + {len(names) - 3} more" if len(names) > 3 else "")
    recorded = zip(captures["collector"].astype(str), captures["tool_version"].astype(str))
    tools = [f"{tool} {version}".strip() for tool, version in dict.fromkeys(recorded)]
    processes = int(captures["process_count"].max()) if len(captures) else 1
    levels = different("level")
    parts = [
        case.label if case else "",
        " + ".join(different("gpu_name")[:3]) or "no GPU named",
        " + ".join(different("framework")[:2]),
        ", ".join(visible(t, 60) for t in tools[:3]),
        f"levels {', '.join(levels)}" if levels else "",
        f"{processes} processes" if processes > 1 else "",
    ]
    return shorten(title, 160), " · ".join(part for part in parts if part)


def layer_name(name: object) -> str:
    """A layer's name for a headline; ``[self]`` says what it is."""
    return "the model outside its layers" if str(name) == MODEL_SELF else shorten(visible(name), 60)


def is_outside(layers: pd.DataFrame) -> pd.Series:
    """Which rows of A2 are no layer, but what the model does outside of them. Shape (rows,)."""
    return layers["layer_name"].astype(str).eq(MODEL_SELF)


def _top_layers(results: Results, case: cases.Case | None) -> tuple[list[TopRow], TopRow | None]:
    """The slowest layers, and the model's own work outside of them."""
    layers = cases.rows(results, "a02", case)
    if layers.empty:
        return [], None
    no_layer = is_outside(layers)
    shown = pd.concat([layers[~no_layer].nlargest(TOP, "latency_ns"), layers[no_layer].nlargest(1, "latency_ns")])
    launches = cases.rows(results, "a08", case, ["layer_index", "name", "latency_ns"])
    by_layer = cases.rows(results, "a11", case, ["layer_index", "bound", "kernel_latency_ns", "kernel_count"])
    spreads = cases.rows(results, "a03", case, ["layer_index", "std_latency_ns"]).set_index("layer_index")
    rows = []
    for row in rows_of(shown):
        mine = longest_names(launches[launches["layer_index"].eq(row.layer_index)], KERNELS_PER_LAYER)
        gathered = by_layer[by_layer["layer_index"].eq(row.layer_index)]
        bound = str(gathered["bound"].iloc[0]) if len(gathered) else ""
        lines = [
            " · ".join(
                part
                for part in (
                    *(
                        (
                            f"layer {row.layer_index}",
                            visible(row.layer_type, 60),
                            visible(row.shape_text, 60),
                            f"{format_ratio_percent(row.latency_ratio)} of the layers",
                        )
                        if row.layer_name != MODEL_SELF
                        else (f"{format_ratio_percent(row.latency_ratio)} of the layers and this",)
                    ),
                    _sureness(row, spreads),
                    "inferred, not recorded" if row.is_inferred else "",
                )
                if part
            )
        ]
        if len(mine):
            more = int(gathered["kernel_count"].iloc[0]) - int(mine["count"].sum()) if len(gathered) else 0
            lines.append(
                f"{device_of(results).work}: "
                + ", ".join(
                    f"{short_kernel(visible(n), 48)} {format_ns(t)}" + (f" (×{c})" if c > 1 else "")
                    for n, t, c in zip(mine["name"].astype(object), mine["latency_ns"], mine["count"])
                )
                + (f" and {counted(more, 'more launch', 'more launches')}" if more > 0 else "")
            )
        else:
            busy = cases.rows(results, "a13", case, ["layer_index", "busy_ns"])
            times = busy.loc[busy["layer_index"].eq(row.layer_index) & busy["busy_ns"].gt(0), "busy_ns"]
            copies = f"; copies keep the device busy {format_ns(times.iloc[0])}" if len(times) else ""
            lines.append(f"no {device_of(results).work}{copies}")
        rows.append(
            TopRow(
                layer_name(row.layer_name),
                visible(row.layer_path),
                float(row.latency_ns),
                float(row.latency_ratio),
                int(row.layer_index),
                tuple(lines),
                bound,
            )
        )
    return (rows[:-1], rows[-1]) if no_layer.any() else (rows, None)


def _sureness(row: Any, spreads: pd.DataFrame) -> str:
    """``n 20, std dev 2.0 %`` of a layer."""
    deviation = spreads["std_latency_ns"].get(row.layer_index, float("nan")) if len(spreads) else float("nan")
    relative = deviation / row.latency_ns if row.latency_ns else float("nan")
    return f"n {row.sample_count}" + (f", std dev {format_ratio_percent(relative)}" if relative == relative else "")


def longest_names(launches: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Launches joined by kernel name, heaviest first: name, latency_ns (sum), count."""
    by_name = launches.groupby("name", observed=True, sort=False)["latency_ns"].agg(["sum", "size"]).reset_index()
    by_name.columns = pd.Index(["name", "latency_ns", "count"])
    return by_name.nlargest(limit, "latency_ns")


def _top_kernels(results: Results, case: cases.Case | None) -> list[TopRow]:
    kernels = cases.rows(results, "a10", case).nlargest(TOP, "latency_ns")
    work = device_of(results).work[:-1]
    rows = []
    for row, name in zip(rows_of(kernels), distinct(short_kernel(visible(n), 60) for n in kernels["name"])):
        line = (
            f"{counted(row.kernel_count, 'launch', 'launches')} · "
            f"{format_ratio_percent(row.kernel_latency_ratio)} of the {work} time"
        )
        rows.append(
            TopRow(
                name,
                visible(row.name),
                float(row.latency_ns),
                float(row.kernel_latency_ratio),
                -1,
                (line,),
                str(row.bound),
            )
        )
    return rows
