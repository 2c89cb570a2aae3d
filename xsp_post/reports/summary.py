"""On the arrow ``reports``: the top of the page. What ran where, how fast, what matters most, and can one believe it.

Each number is a cell of an analysis table; here they are only chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from xsp_post import units
from xsp_post.analysis import Results
from xsp_post.levels import RUN_LAYER, RUN_MODEL
from xsp_post.reports import cases
from xsp_post.reports.blocks import frame_or_empty, rows_of
from xsp_post.reports.findings_view import Shown, shown_findings
from xsp_post.reports.text import short_kernel, shorten, visible
from xsp_post.reports.verdict import Verdict, verdict
from xsp_post.units import format_count, format_ns, format_ratio_percent

TOP = 3
KERNELS_PER_LAYER = 3
_UNKNOWN_OVERHEAD = "in it, not measured: xsp-post run --levels M,ML,MLG measures it"


@dataclass(frozen=True)
class Fact:
    """One number of the headline: label, text, the raw value, and why one may trust it."""

    id: str
    label: str
    text: str
    value: float | int | None
    trust: str


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


@dataclass(frozen=True)
class Balance:
    """Kernels and their time by one way of attribution."""

    capture_id: int
    question: str
    parts: tuple[tuple[str, int, int], ...]  # attribution, kernel_count, kernel_ns
    kernel_count: int
    kernel_ns: int


@dataclass
class Summary:
    """The top of the page."""

    title: str
    machine: str
    case: cases.Case | None
    facts: list[Fact]
    verdict: Verdict
    top_layers: list[TopRow]
    top_kernels: list[TopRow]
    balances: list[Balance]
    findings: list[Shown]
    trust: pd.DataFrame
    sources: list[str] = field(default_factory=list)


def summarize(results: Results, case: cases.Case | None) -> Summary:
    """Everything the first screen says."""
    captures = frame_or_empty(results, "captures")
    title, machine = _workload(captures, case)
    return Summary(
        title,
        machine,
        case,
        _facts(results, case),
        verdict(results, case),
        _top_layers(results, case),
        _top_kernels(results, case),
        _balances(results),
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


def _facts(results: Results, case: cases.Case | None) -> list[Fact]:
    facts = []
    model, kernels = cases.rows(results, "a01", case), cases.rows(results, "a15", case)
    if not has_iterations(results, case):
        return _capture_facts(results)
    if len(model):
        row = model.iloc[0]
        facts.append(
            Fact(
                "latency",
                "Model latency",
                format_ns(row["latency_ns"]),
                _number(row["latency_ns"]),
                _latency_trust(row),
            )
        )
        if row["throughput_inputs_per_s"] == row["throughput_inputs_per_s"]:
            facts.append(
                Fact(
                    "throughput",
                    "Throughput",
                    units.format_inputs_per_s(row["throughput_inputs_per_s"]),
                    _number(row["throughput_inputs_per_s"]),
                    f"batch {row['batch_size']} / model latency",
                )
            )
    if len(kernels) and int(kernels["kernel_count"].iloc[0]):
        row = kernels.iloc[0]
        if row["gpu_busy_ratio"] == row["gpu_busy_ratio"]:
            facts.append(
                Fact(
                    "busy",
                    "GPU busy",
                    format_ratio_percent(row["gpu_busy_ratio"]),
                    _number(row["gpu_busy_ratio"]),
                    f"{format_ns(row['busy_ns'])} of an iteration of the run that recorded the kernels",
                )
            )
        facts.append(
            Fact(
                "kernels",
                "Kernels per iteration",
                format_count(row["kernel_count"]),
                int(row["kernel_count"]),
                f"{format_ns(row['kernel_latency_ns'])} in all, {format_count(row['unique_kernel_count'])} different",
            )
        )
    return facts


def has_iterations(results: Results, case: cases.Case | None) -> bool:
    """Whether the case is made of iterations; else it is a whole capture taken as one."""
    named = cases.rows(results, "cases", case)
    return len(named) > 0 and int(named["iteration_count"].iloc[0]) > 0


def _capture_facts(results: Results) -> list[Fact]:
    """What can be said of a capture without model ranges."""
    captures = frame_or_empty(results, "captures")
    if captures.empty:
        return []
    count, kernel_ns, busy, length = (
        int(captures[c].sum()) for c in ("kernel_count", "kernel_ns", "busy_ns", "duration_ns")
    )
    facts = [Fact("length", "Recorded", format_ns(length), length, "first to last event")]
    if count:
        facts += [
            Fact("kernel-time", "Kernel time", format_ns(kernel_ns), kernel_ns, "sum over all kernels"),
            Fact("busy-time", "GPU busy", format_ns(busy), busy, "union of the device intervals, summed over devices"),
            Fact("kernels", "Kernels", format_count(count), count, "in the whole capture"),
        ]
    return facts


def _latency_trust(row: pd.Series) -> str:
    level = str(row["level"])
    seen = (
        "no profiler was on" if level == RUN_MODEL else f"level {level}: profiling overhead is in it" if level else ""
    )
    return " · ".join(part for part in (f"n {row['sample_count']}", _spread(row), seen) if part)


def _spread(row: pd.Series) -> str:
    low, high = row.get("ci_low_latency_ns"), row.get("ci_high_latency_ns")
    if low is None or low != low or high != high:
        return "no interval: one sample" if row["sample_count"] <= 1 else ""
    return f"95 % within {format_ns(low)} … {format_ns(high)}"


def _number(value: Any) -> float | None:
    return None if value != value else float(value)


def layer_name(name: object) -> str:
    """A layer's name for a headline; ``[self]`` says what it is."""
    return "[self]: the model outside its layers" if str(name) == "[self]" else shorten(visible(name), 60)


def _top_layers(results: Results, case: cases.Case | None) -> list[TopRow]:
    layers = cases.rows(results, "a02", case)
    if layers.empty:
        return []
    launches = cases.rows(results, "a08", case, ["layer_index", "name", "latency_ns"])
    by_layer = cases.rows(results, "a11", case, ["layer_index", "bound", "kernel_latency_ns", "kernel_count"])
    rows = []
    for row in rows_of(layers.nlargest(TOP, "latency_ns")):
        mine = longest_names(launches[launches["layer_index"].eq(row.layer_index)], KERNELS_PER_LAYER)
        gathered = by_layer[by_layer["layer_index"].eq(row.layer_index)]
        bound = str(gathered["bound"].iloc[0]) if len(gathered) else ""
        lines = [
            " · ".join(
                part
                for part in (
                    f"layer {row.layer_index}",
                    visible(row.layer_type, 60),
                    visible(row.shape_text, 60),
                    f"{format_ratio_percent(row.latency_ratio)} of the layers",
                    f"n {row.sample_count}",
                )
                if part
            )
        ]
        if len(mine):
            more = int(gathered["kernel_count"].iloc[0]) - int(mine["count"].sum()) if len(gathered) else 0
            lines.append(
                "kernels: "
                + ", ".join(
                    f"{short_kernel(visible(n), 48)} {format_ns(t)}" + (f" (×{c})" if c > 1 else "")
                    for n, t, c in zip(mine["name"].astype(object), mine["latency_ns"], mine["count"])
                )
                + (f" and {counted(more, 'more launch', 'more launches')}" if more > 0 else "")
            )
        else:
            lines.append("no kernels")
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
    return rows


def longest_names(launches: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Launches joined by kernel name, heaviest first: name, latency_ns (sum), count."""
    by_name = launches.groupby("name", observed=True, sort=False)["latency_ns"].agg(["sum", "size"]).reset_index()
    by_name.columns = pd.Index(["name", "latency_ns", "count"])
    return by_name.nlargest(limit, "latency_ns")


def counted(count: int, one: str, many: str) -> str:
    """``1 launch``, ``2 launches``."""
    return f"{format_count(count)} {one if count == 1 else many}"


def _top_kernels(results: Results, case: cases.Case | None) -> list[TopRow]:
    kernels = cases.rows(results, "a10", case)
    rows = []
    for row in rows_of(kernels.nlargest(TOP, "latency_ns")):
        line = (
            f"{counted(row.kernel_count, 'launch', 'launches')} · "
            f"{format_ratio_percent(row.kernel_latency_ratio)} of the kernel time"
        )
        rows.append(
            TopRow(
                short_kernel(visible(row.name), 60),
                visible(row.name),
                float(row.latency_ns),
                float(row.kernel_latency_ratio),
                -1,
                (line,),
                str(row.bound),
            )
        )
    return rows


def _balances(results: Results) -> list[Balance]:
    frame = frame_or_empty(results, "balance")
    found = []
    keys = ["capture_id", "question"]
    for (capture_id, question), rows in frame.astype({"question": str}).groupby(keys, sort=True):
        way = rows["attribution"].astype(str)
        total = rows[way.eq("total")]
        parts = rows[way.ne("total") & rows["kernel_count"].gt(0)].sort_values("kernel_ns", ascending=False)
        if total.empty or not int(total["kernel_count"].iloc[0]):
            continue
        found.append(
            Balance(
                int(str(capture_id)),
                str(question),
                tuple(
                    (str(a), int(n), int(t))
                    for a, n, t in zip(parts["attribution"], parts["kernel_count"], parts["kernel_ns"])
                ),
                int(total["kernel_count"].iloc[0]),
                int(total["kernel_ns"].iloc[0]),
            )
        )
    return found


def trust_data(results: Results, case: cases.Case | None) -> pd.DataFrame:
    """How far each kind of number can be trusted: quantity, level, samples, spread, overhead that is in it."""
    named = cases.rows(results, "cases", case)
    if named.empty:
        return pd.DataFrame()
    row = named.iloc[0]
    model = cases.rows(results, "a01", case)
    layers = cases.rows(results, "a03", case)
    kernels = cases.rows(results, "a08", case, ["sample_count", "latency_ns", "std_latency_ns"])
    totals = cases.rows(results, "a15", case)
    lines = []
    if len(model):
        lines.append(
            (
                "Model latency",
                str(row["model_level"]),
                str(model["sample_count"].iloc[0]),
                _spread(model.iloc[0]),
                "none: no profiler was on" if str(row["model_level"]) == RUN_MODEL else _UNKNOWN_OVERHEAD,
            )
        )
    below = {
        "Layer latency": "none from kernel profiling: layers are from a run without"
        if str(row["layer_level"]) == RUN_LAYER
        else "kernel profiling is in it",
        "Kernel latency": "launching is disturbed, execution is not",
    }
    for what, level, frame in (
        ("Layer latency", str(row["layer_level"]), layers),
        ("Kernel latency", str(row["kernel_level"]), kernels),
    ):
        if len(frame):
            relative = (frame["std_latency_ns"] / frame["latency_ns"]).replace([float("inf")], float("nan"))
            typical = relative.median()
            spread = (
                f"std dev {format_ratio_percent(typical)} of the latency (median over {format_count(len(frame))})"
                if typical == typical
                else "one sample each"
            )
            low, high = int(frame["sample_count"].min()), int(frame["sample_count"].max())
            lines.append((what, level, str(low) if low == high else f"{low} … {high}", spread, below[what]))
    if len(totals) and str(totals["counter_source"].iloc[0]) != "none":
        total = totals.iloc[0]
        lines.append(
            (
                "Flop and bytes",
                "counters" if str(total["counter_source"]) == "counters" else "counted from the model",
                "1",
                f"for {format_ratio_percent(total['counter_coverage_ratio'])} of the kernel time"
                if total["counter_coverage_ratio"] == total["counter_coverage_ratio"]
                else "no kernel was measured",
                "none: no time is taken from the counting run",
            )
        )
    return pd.DataFrame(lines, columns=["quantity", "level", "n", "spread", "overhead"])
