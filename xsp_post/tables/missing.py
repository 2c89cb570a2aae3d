"""A table without rows → one sentence on what must be recorded to fill it."""

from __future__ import annotations

from xsp_post.model.results import Results, core_frame
from xsp_post.model.schemas import TABLES
from xsp_post.tables.catalogue import OF_CAPTURE, OF_WORKLOAD, find

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
_RECORD_CORE = {
    "allocations": "no allocation is in the capture: record with torch.profiler and profile_memory=True, or with "
    "`nsys profile --cuda-memory-usage=true`.",
    "samples": "no sample is in the capture: record with `nsys profile --gpu-metrics-devices=all`.",
    "ranks": "no two devices that communicate were recorded: give the captures of all ranks of a job together. Copies "
    "between host and GPU are no communication.",
}


def why_empty(table: str, results: Results) -> str:
    """One sentence on what would fill a table that has no rows; '' for a table that needs nothing.

    Of an analysis the first thing that is missing is named.
    """
    name = find(table) or table.strip().lower()
    needs = next((step.recorded.split() for step in (*OF_CAPTURE, *OF_WORKLOAD) if name in step.names), [])
    for need in needs:
        if need in _RECORD_CORE:
            return f"{name}: {_RECORD_CORE[need]}" if "part" not in results.tables() else ""
        if not _has(need, results):
            return f"{TABLES[name].title}: {_RECORD[need]}."
    return ""


def _has(need: str, results: Results) -> bool:
    if need in ("iterations", "layers", "kernels"):
        return len(core_frame(results, need, ["capture_id"])) > 0
    if need == "batch":
        return core_frame(results, "iterations", ["batch_size"])["batch_size"].nunique() > 1
    if need == "counters":
        return has_work(results)
    if need == "allocation":
        return bool((core_frame(results, "layers", ["allocated_bytes"])["allocated_bytes"] >= 0).any())
    return False


def has_work(results: Results) -> bool:
    """Whether counters, or sizes of operators or layers, say the work of anything."""
    if len(core_frame(results, "kernel_metrics", ["kernel_id"])):
        return True
    if core_frame(results, "kernel_work", ["flop"])["flop"].notna().any():
        return True
    return bool(core_frame(results, "layers", ["analytic_flop"])["analytic_flop"].notna().any())
