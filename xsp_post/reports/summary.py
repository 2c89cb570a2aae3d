"""Results → the top of the page: workload, machine, speed, most important layers and kernels, accuracy.

Each number is a cell of an analysis table; here they are only chosen.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from xsp_post.model.kinds import SELF
from xsp_post.model.levels import RUN_LEVEL_WORDS
from xsp_post.model.results import Results, frame_or_empty, part_sentence, part_text
from xsp_post.model.schemas.units import counted, format_ns, format_ratio_percent
from xsp_post.reports import cases
from xsp_post.reports.blocks import rows_of
from xsp_post.reports.cases import captures_of
from xsp_post.reports.facts import Device, Fact, device_of, facts
from xsp_post.reports.pick import layer_groups
from xsp_post.reports.text import short_kernels, shorten, visible
from xsp_post.reports.trust import Balance, balances, device_splits, shown_findings, trust_data
from xsp_post.reports.verdict import coverage_note, verdict
from xsp_post.reports.why import Why, why
from xsp_post.tables.analyses.limits import find_limit

TOP = 5


@dataclass(frozen=True)
class TopRow:
    """One of the heaviest layers (equal ones are one row) or kernels."""

    name: str
    full_name: str
    latency_ns: float
    share: float
    layer_index: int
    lines: tuple[str, ...]
    bound: str = ""
    count: int = 1  # equal layers in the row


@dataclass
class Summary:
    """The top of the page."""

    title: str
    machine: str
    case: cases.Case | None
    facts: list[Fact]
    verdict: dict[str, Any]  # kind, word, sentence, evidence
    splits: list[dict[str, Any]]
    said: Why
    top_layers: list[TopRow]
    outside: TopRow | None
    top_kernels: list[TopRow]
    device: Device
    balances: list[Balance]
    findings: list[dict[str, Any]]
    trust: pd.DataFrame
    sources: list[str] = field(default_factory=list)
    part: str = ""  # the part of the recording that is shown; "" all of it


def summarize(results: Results, case: cases.Case | None) -> Summary:
    """Everything the first screen says."""
    captures = frame_or_empty(results, "captures")
    title, machine = _workload(captures, case)
    top_layers, outside = _top_layers(results, case)
    limit = find_limit(results, captures_of(results, case))
    said = replace(why(results, limit, is_first=True), coverage_note=coverage_note(results, limit))
    return Summary(
        title, " · ".join(filter(None, (part_sentence(results), machine))), case, facts(results, case),
        verdict(results, limit), device_splits(results, limit), said, top_layers, outside,
        _top_kernels(results, case), device_of(results), balances(results), shown_findings(results),
        trust_data(results, case), [visible(name, 120) for name in captures["source_name"].astype(str).unique()],
        part_text(results),
    )  # fmt: skip


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
        ", ".join(RUN_LEVEL_WORDS.get(level, level) for level in levels) if len(levels) > 1 else "",
        f"{processes} processes" if processes > 1 else "",
    ]
    return shorten(title, 160), " · ".join(dict.fromkeys(part for part in parts if part))


def layer_name(name: object) -> str:
    """A layer's name for a headline; ``[self]`` of the model, or of a module, says what it is."""
    around, is_self, _ = visible(name).rpartition(SELF)
    return f"{shorten(around.strip(), 46) or 'the model'} outside its layers" if is_self else shorten(visible(name), 60)


def group_name(row: Any, group: Any) -> str:
    """``48 × layer*.*.conv*:Conv2d``: a row of `layer_groups`, whose slowest layer is ``row``."""
    if group.layer_count == 1:
        return layer_name(row.layer_name)
    path = visible(group.path).replace(f" > {SELF}", f" {SELF}")
    return f"{group.layer_count} × {layer_name(path.rsplit(' > ', 1)[-1])}"


def is_outside(layers: pd.DataFrame) -> pd.Series:
    """Which rows of A2 are not a layer, but what the model does outside of them. Shape (rows,)."""
    return layers["layer_name"].eq(SELF)


def _top_layers(results: Results, case: cases.Case | None) -> tuple[list[TopRow], TopRow | None]:
    """The layers that take most, equal ones together, and the model's own work outside of them."""
    layers = cases.rows(results, "a02", case)
    if layers.empty:
        return [], None
    launches = cases.rows(results, "a08", case, ["layer_index", "name", "latency_ns"])
    no_layer = is_outside(layers)
    real = layers[~no_layer].reset_index(drop=True) if no_layer.any() else layers
    groups = layer_groups(real, launches, TOP)
    slowest = rows_of(real.iloc[groups["first"]])
    rows = [_top_row(results, case, row, group) for row, group in zip(slowest, rows_of(groups))]
    outside = [_top_row(results, case, row) for row in rows_of(layers[no_layer].nlargest(1, "latency_ns"))]
    return rows, outside[0] if outside else None


def _top_row(results: Results, case: cases.Case | None, row: Any, group: Any = None) -> TopRow:
    """What is said of a layer below its name. Equal layers (``group``): the sum of their latencies, and of what the
    slowest of them (``row``) consists; without a group the model outside of its layers."""
    bounds = cases.rows(results, "a11", case, ["layer_index", "bound"])
    bound = bounds["bound"][bounds["layer_index"].eq(row.layer_index)].astype(str).tolist()[:1]
    spreads = cases.rows(results, "a03", case, ["layer_index", "std_latency_ns"]).set_index("layer_index")
    name, of, count, each = layer_name(row.layer_name), row, 1, _sureness(row, spreads)
    line = [f"{format_ratio_percent(row.latency_ratio)} of the layers and this", each]
    if group is not None:
        name, count, which = group_name(row, group), int(group.layer_count), f"layer {row.layer_index}"
        if count > 1:
            joined = group.last_index - group.first_index + 1 == count
            which = f"layers {group.first_index} {'…' if joined else 'to'} {group.last_index}"
            low, high = format_ns(group.min_ns), format_ns(group.max_ns)
            of, each = group, f"each {low}" if low == high else f"each {low} … {high}"
        share = f"{format_ratio_percent(group.latency_ratio)} of the layers"
        line = [which, visible(row.layer_type, 60), visible(row.shape_text, 60), share, each]
    said = " · ".join(part for part in (*line, "inferred, not recorded" if row.is_inferred else "") if part)
    path, time, ratio = visible(row.layer_path), float(of.latency_ns), float(of.latency_ratio)
    return TopRow(name, path, time, ratio, int(row.layer_index), (said,), "".join(bound), count)


def _sureness(row: Any, spreads: pd.DataFrame) -> str:
    """``n 20, std dev 2.0 %`` of a layer."""
    deviation = spreads["std_latency_ns"].get(row.layer_index, float("nan")) if len(spreads) else float("nan")
    relative = deviation / row.latency_ns if row.latency_ns else float("nan")
    return f"n {row.sample_count}" + (f", std dev {format_ratio_percent(relative)}" if relative == relative else "")


def _top_kernels(results: Results, case: cases.Case | None) -> list[TopRow]:
    kernels = cases.rows(results, "a10", case).nlargest(TOP, "latency_ns")
    work = device_of(results).work[:-1]
    rows = []
    for row, name in zip(rows_of(kernels), short_kernels(kernels["name"].astype(object), 60)):
        share = format_ratio_percent(row.kernel_latency_ratio)
        line = f"{counted(row.kernel_count, 'time', 'times')} · {share} of the {work} time"
        times = float(row.latency_ns), float(row.kernel_latency_ratio)
        rows.append(TopRow(name, visible(row.name), *times, -1, (line,), str(row.bound)))
    return rows
