"""Frames in, frame out: A1…A15 and the paper's evaluation tables (paper, §III).

`compute_all` makes every table from the core tables of one workload; `ANALYSES` says of each which levels
it needs and which exhibit of the paper it reproduces; `why_empty` says what to record for one without rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from xsp_post.analyses.frames import core_frame
from xsp_post.analyses.options import ROOF_AUTO, Options
from xsp_post.base.errors import UsageError
from xsp_post.base.findings import Finding
from xsp_post.model import options as user
from xsp_post.model.results import Results

if TYPE_CHECKING:
    from xsp_post.analyses.inputs import Inputs

__all__ = [
    "ANALYSES",
    "ROOF_AUTO",
    "AnalysisSpec",
    "Options",
    "compute_all",
    "find",
    "table_name",
    "why_empty",
]


@dataclass(frozen=True)
class AnalysisSpec:
    """One analysis: what it is called, what it needs, what it reproduces, and the function that computes it."""

    id: str  # as typed: A8; the table's own name for what the paper did not number
    table: str  # name in the store
    title: str
    levels: str  # least leveled run that has its data (paper, Table I)
    exhibit: str  # table or figure of the paper ('' none)
    needs: tuple[str, ...]  # of iterations, batch, layers, kernels, counters, allocation, gpu
    function: Callable[[Inputs], pd.DataFrame]


class _Module:
    """A module of this package, imported when one of its tables is computed: printing a tree computes none."""

    def __init__(self, name: str) -> None:
        self._name = f"{__name__}.{name}"

    def __getattr__(self, function: str) -> Callable[[Inputs], pd.DataFrame]:
        return lambda inputs: getattr(import_module(self._name), function)(inputs)


def _specs() -> tuple[AnalysisSpec, ...]:
    layer, kernel, both = _Module("layer_tables"), _Module("kernel_tables"), _Module("joined_tables")
    model, extra = _Module("model_tables"), _Module("evaluation")
    phase, rank = _Module("phase_tables"), _Module("rank_tables")
    return (
        AnalysisSpec("A1", "a01", "Model information", "M", "Figure 3, Table VIII", ("iterations",), model.a01),
        AnalysisSpec("A2", "a02", "Layer information", "L", "Table II", ("layers",), layer.a02),
        AnalysisSpec("A3", "a03", "Layer latency", "L", "Figure 5a", ("layers",), layer.a03),
        AnalysisSpec("A4", "a04", "Layer memory allocation", "L", "Figure 5b", ("layers", "allocation"), layer.a04),
        AnalysisSpec("A5", "a05", "Layer type distribution", "L", "Figure 4a", ("layers",), layer.a05),
        AnalysisSpec("A6", "a06", "Layer latency by type", "L", "Figure 4b", ("layers",), layer.a06),
        AnalysisSpec(
            "A7", "a07", "Layer memory allocation by type", "L", "Figure 4c", ("layers", "allocation"), layer.a07
        ),
        AnalysisSpec("A8", "a08", "GPU kernel information", "G", "Table III", ("kernels",), kernel.a08),
        AnalysisSpec("A9", "a09", "GPU kernel roofline", "G", "Figure 6", ("kernels", "counters"), kernel.a09),
        AnalysisSpec("A10", "a10", "Kernels by name", "M/G", "Table IV", ("kernels",), kernel.a10),
        AnalysisSpec("A11", "a11", "Kernels by layer", "L/G", "Table V", ("layers", "kernels"), both.a11),
        AnalysisSpec(
            "A12", "a12", "GPU metrics by layer", "L/G", "Figure 7", ("layers", "kernels", "counters"), both.a12
        ),
        AnalysisSpec("A13", "a13", "GPU and non-GPU latency", "L/G", "Figure 8", ("layers", "kernels"), both.a13),
        AnalysisSpec("A14", "a14", "Layer roofline", "L/G", "Figure 9", ("layers", "counters"), both.a14),
        AnalysisSpec("A15", "a15", "Kernels by model", "M/G", "Table VI, Figures 10, 12", ("kernels",), model.a15),
        AnalysisSpec(
            "workload_summary", "workload_summary", "Summary", "M", "text of §III", (), extra.workload_summary
        ),
        AnalysisSpec(
            "optimal_batch",
            "optimal_batch",
            "Optimal batch size",
            "M",
            "Figure 3",
            ("iterations", "batch"),
            model.optimal_batch,
        ),
        AnalysisSpec(
            "throughput_scalability",
            "throughput_scalability",
            "Throughput scalability",
            "M",
            "arXiv v1 Figure 12",
            ("iterations", "batch"),
            model.throughput_scalability,
        ),
        AnalysisSpec("stages", "stages", "Stages", "L", "Table IX, Figure 5", ("layers",), extra.stages_table),
        AnalysisSpec(
            "dominant_kernels",
            "dominant_kernels",
            "Dominant kernel of each layer",
            "L/G",
            "MLModelScope Table 3",
            ("layers", "kernels"),
            both.dominant_kernels,
        ),
        AnalysisSpec("roofs", "roofs", "Roofs", "G", "Table VII", ("gpu",), extra.roofs),
        AnalysisSpec(
            "model_roofline",
            "model_roofline",
            "Model roofline",
            "M/G",
            "Figures 10, 12",
            ("kernels", "counters"),
            model.model_roofline,
        ),
        AnalysisSpec(
            "training_phases",
            "training_phases",
            "Phases of a training step",
            "L/G",
            "",
            ("kernels",),
            phase.training_phases,
        ),
        AnalysisSpec("rank_layers", "rank_layers", "Layers over the ranks", "L", "", ("layers",), rank.rank_layers),
        # Last: which execution is the reference is decided while kernels are matched.
        AnalysisSpec("cases", "cases", "Cases", "M", "", (), extra.cases_table),
    )


ANALYSES: dict[str, AnalysisSpec] = {spec.id: spec for spec in _specs()}


def find(text: str) -> AnalysisSpec | None:
    """The analysis that ``text`` names, as typed or as stored: A8, a8, A08, a08, stages; None if there is none."""
    wanted = text.strip().lower()
    for spec in ANALYSES.values():
        if wanted in (spec.id.lower(), spec.table):
            return spec
    if wanted[:1] == "a" and wanted[1:].isdecimal():
        return ANALYSES.get(f"A{int(wanted[1:])}")
    return None


def table_name(text: str, tables: Collection[str]) -> str:
    """The table that ``text`` names, among those that are there: by name (kernels) or by id (A8, a08).

    Raises `UsageError` naming what there is.
    """
    key = text.strip().lower()
    if key in tables:
        return key
    spec = find(key)
    if spec is not None and spec.table in tables:
        return spec.table
    close = difflib.get_close_matches(key, sorted(tables), n=2)
    raise UsageError(
        f"table {text!r} is not there; there are: {', '.join(sorted(tables))}",
        code="unknown-table",
        hint=f"Did you mean {' or '.join(close)}?" if close else "xsp-post table --list says what each table holds",
    )


def compute_all(
    results: Results,
    options: user.Options = user.DEFAULTS,
    **choices: Any,
) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """All tables of `ANALYSES` by table name (without data: zero rows, all columns), and what was odd.

    ``choices`` are fields of `Options`, e.g. ``roof="fp32"``. Reads the core tables captures, iterations,
    layers, kernels, kernel_metrics and devices, whichever there are. Raises UsageError for an unknown choice.
    """
    from xsp_post.analyses.inputs import prepare

    inputs = prepare(results, replace(Options.of(options), **choices))
    tables = {spec.table: spec.function(inputs) for spec in ANALYSES.values()}
    return tables, inputs.findings


def makers(options: user.Options) -> dict[str, Callable[[Results], dict[str, pd.DataFrame]]]:
    """What makes each table of `ANALYSES` alone (`OnDemand`); what they have in common is made once."""
    from xsp_post.analyses.inputs import prepare

    inputs = cache(lambda results: prepare(results, Options.of(options)))

    def maker(spec: AnalysisSpec) -> Callable[[Results], dict[str, pd.DataFrame]]:
        return lambda results: {spec.table: spec.function(inputs(results))}  # type: ignore[arg-type]  # by identity

    return {spec.table: maker(spec) for spec in ANALYSES.values()}


_RECORD = {
    "iterations": "no model execution is marked: run with `xsp-post run`, or put one range around each execution and "
    "name it with --model-range",
    "batch": "there is only one batch size: sweep with `xsp-post run --batch-size 1,2,4,…`",
    "layers": "no layer ranges are in the capture: record with `xsp-post run`, use `with xsp_post.ranges(model):`, "
    "or name existing ranges with --layer-range",
    "kernels": "the capture has no GPU kernels: record with `nsys profile --trace=cuda,nvtx`",
    "counters": "no kernel has flop and DRAM counters: collect them with `xsp-post run --ncu`, or give an .ncu-rep of "
    "the same program",
    "allocation": "allocations were not recorded: `xsp-post run` records them from torch's allocator",
    "gpu": "the peaks of this GPU are not known: give them with --peaks",
}


_RECORD_MEMORY = (
    "no allocation is in the capture: record with torch.profiler and profile_memory=True, or with "
    "`nsys profile --cuda-memory-usage=true`."
)
_RECORD_SAMPLES = "no sample is in the capture: record with `nsys profile --gpu-metrics-devices=all`."
_RECORD_RANKS = (
    "no two devices that communicate were recorded: give the captures of all ranks of a job together. Copies between "
    "host and GPU are no communication."
)
_RECORD_CORE = {
    "ranks": _RECORD_RANKS,
    **dict.fromkeys(("memory", "memory_devices", "memory_timeline"), _RECORD_MEMORY),
    **dict.fromkeys(("gpu_samples", "gpu_timeline"), _RECORD_SAMPLES),
}


def why_empty(table: str, results: Results) -> str:
    """One sentence on what would fill a table that has no rows; '' for a table that needs nothing.

    Of an analysis the first thing that is missing is named.
    """
    spec = find(table)
    if spec is None:
        name = table.strip().lower()
        return f"{name}: {_RECORD_CORE[name]}" if name in _RECORD_CORE and "part" not in results.tables() else ""
    for need in spec.needs:
        if not _has(need, results):
            return f"{spec.id} {spec.title}: {_RECORD[need]}."
    return ""


def _has(need: str, results: Results) -> bool:
    if need in ("iterations", "layers", "kernels"):
        return len(core_frame(results, need, ["capture_id"])) > 0
    if need == "batch":
        return core_frame(results, "iterations", ["batch_size"])["batch_size"].nunique() > 1
    if need == "counters":
        analytic = core_frame(results, "layers", ["analytic_flop"])["analytic_flop"].notna().any()
        counted = len(core_frame(results, "kernel_metrics", ["kernel_id"])) > 0
        return counted or bool(analytic) or bool(core_frame(results, "kernel_work", ["flop"])["flop"].notna().any())
    if need == "allocation":
        return bool((core_frame(results, "layers", ["allocated_bytes"])["allocated_bytes"] >= 0).any())
    return False
