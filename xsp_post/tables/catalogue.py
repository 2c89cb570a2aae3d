"""Every table, declared once: what makes it, what that needs, what it may find. Columns stand in `schemas`.

A new table is one row here and its columns there. Rows are in the order in which a full analysis makes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from xsp_post.base.errors import UsageError
from xsp_post.tables.graph import Step

# One capture: its trace and the options → the core tables, still without `capture_id`.
OF_CAPTURE = (
    Step("tree", "hierarchy:tree_and_findings", "trace options twin", finds="*"),
    Step("threads", "tables.core.columns:Threads", "tree"),
    Step("nodes", "tables.core.nodes:nodes_frame", "tree threads"),
    Step("kernels", "tables.core.kernels:kernels_frame", "tree threads"),
    Step("iterations", "tables.core.captures:iterations_frame", "tree"),
    Step("layers", "tables.core.layers:layers_frame", "tree"),
    Step("memory_operations", "tables.core.kernels:memory_operations_frame", "tree threads"),
    Step("operations", "tables.core.operations:operations_frame", "tree"),
    Step("devices", "tables.core.devices:devices_frame", "tree", finds="streams-overlap"),
    Step("balance", "model.tree:balance", "tree"),
    Step("own_collectives", "tables.core.collectives:own_collectives", "tree kernels"),
    Step("dependencies", "replay.waits:dependencies_frame", "tree"),
    Step("execution_candidates", "tables.core.inferred:candidates_frame", "tree"),
    Step("inferred", "tables.core.inferred:inferred_frame", "tree"),
    Step("platforms", "tables.core.platforms:platforms_frame", "tree"),
    Step("profiler_cost", "tables.core.overheads:profiler_cost", "tree", finds="profiler-overhead"),
    Step("captures", "tables.core.captures:captures_frame", "tree iterations"),
    Step("operators kernel_work", "tables.core.operators:operator_frames", "tree"),
    Step("paths idle_causes device_windows idle short_waits", "tables.core.idle:idle_tables", "tree wanted"),
    Step("memory_devices memory memory_timeline", "tables.core.memory:memory_frames", "tree threads",
         finds="memory-released-earlier memory-owner-unknown memory-release-missing memory-events-missing "
               "memory-of-driver", recorded="allocations"),
    Step("gpu_samples gpu_timeline", "tables.core.gpu_samples:gpu_sample_frames", "tree",
         finds="gpu-samples-few gpu-clock-fell", recorded="samples"),
)  # fmt: skip

_OF_REPLAY = "captures kernels memory_operations iterations layers dependencies"

EXPERIMENT = Step("experiment", "replay.tables:experiment_frame", reads=f"{_OF_REPLAY} devices kernel_work")


def _of_paper(module: str, tables: str, recorded: str = "", finds: str = "") -> tuple[Step, ...]:
    """The analyses of one module, each made of the same inputs by the function of its name."""
    return tuple(
        Step(name, f"tables.analyses.{module}:{name}", "inputs", "", finds, recorded) for name in tables.split()
    )


ANALYSES = (
    *_of_paper("model_tables", "a01", "iterations"),
    *_of_paper("layer_tables", "a02 a03 a05 a06", "layers"),
    *_of_paper("layer_tables", "a04 a07", "layers allocation"),
    *_of_paper("kernel_tables", "a08", "kernels", "kernel-table-cut"),
    *_of_paper("kernel_tables", "a09", "kernels counters", "above-roof"),
    *_of_paper("kernel_tables", "a10", "kernels"),
    *_of_paper("joined_tables", "a11 dominant_kernels", "layers kernels"),
    *_of_paper("joined_tables", "a12", "layers kernels counters"),
    *_of_paper("joined_tables", "a13", "layers kernels", "negative-non-gpu"),
    *_of_paper("joined_tables", "a14", "layers counters", "work-forward-only above-roof"),
    *_of_paper("model_tables", "a15", "kernels"),
    *_of_paper("evaluation", "workload_summary"),
    *_of_paper("model_tables", "optimal_batch throughput_scalability", "iterations batch"),
    Step("stages", "tables.analyses.evaluation:stages_table", "inputs", recorded="layers"),
    *_of_paper("evaluation", "roofs", "gpu"),
    *_of_paper("model_tables", "model_roofline", "kernels counters"),
    *_of_paper("phase_tables", "training_phases", "kernels"),
    *_of_paper("rank_tables", "rank_layers", "layers"),
    Step("cases", "tables.analyses.evaluation:cases_table", "inputs"),
)

# The captures of one workload (or a store, or a part of a recording) → everything else.
OF_WORKLOAD = (
    Step("overhead", "tables.reconcile:overhead_and_findings",
         reads="captures iterations layers kernels nodes findings",
         finds="layers-unmatched layers-overlap layer-sum-exceeds-model levels-one-process overhead-negative "
               "overhead-not-shown kernels-differ-between-runs"),
    Step("kernel_metrics counter_join", "counters.join:tables", "kernels nodes counters devices captures", finds="*"),
    Step("kernel_metrics", "counters.join:no_metrics"),
    Step("collectives", "replay.collectives:across_ranks", "own_collectives"),
    Step("replays critical_path", "replay.tables:replay_frames", reads=_OF_REPLAY),
    EXPERIMENT,
    Step("inputs", "tables.analyses.inputs:inputs_and_findings", "options",
         reads="captures iterations layers kernels kernel_metrics kernel_work devices",
         finds="only-warmup-iterations layers-of-kernel-run-only kernels-outside-iterations launches-unmatched "
               "counters-partial work-from-shapes work-from-shapes-partial peaks-unknown"),
    *ANALYSES,
    Step("step_kinds", "tables.analyses.steps:kinds_of_steps", reads="captures iterations kernels"),
    Step("steps step_costs", "tables.analyses.steps:steps", "step_kinds", finds="steps-drift", recorded="iterations"),
    Step("step_outliers", "tables.analyses.step_outliers:step_outliers", "step_kinds",
         reads="captures idle short_waits kernels", finds="slow-steps", recorded="iterations"),
    Step("ranks rank_groups", "tables.analyses.ranks:ranks_of",
         reads="captures devices kernels kernel_work memory_operations idle_causes collectives", recorded="ranks"),
)  # fmt: skip


# A part of a capture (`part.Part`): which rows of its tables lie in it, by the method of that name.
CUTS = {
    "starts": "kernels memory_operations dependencies collectives",
    "happens": "memory_timeline",
    "within": "iterations",
    "shares": "gpu_timeline short_waits",
    "is_cut": "idle",
    "holds": "node_rows",
    "of_nodes": "layers inferred",
    "of_kernels": "kernel_metrics kernel_work",
    "stays": "findings execution_candidates operators platforms",
    "is_left_out": "overhead replays critical_path counter_join",
    "is_said": "part",
}
_SUMS = {"operations", "devices", "balance", "paths", "gpu_samples"}

# A part of a capture and its rows → what is summed up of them, by the steps that do so for all of it.
OF_PART = (
    Step("tree", "tables.core.part_tree:tree_of_part",
         "cut node_rows kernels memory_operations iterations idle short_waits"),
    Step("nodes", "tables.core.part_tree:nodes_of_part", "node_rows tree"),
    Step("captures", "tables.core.part_tree:captures_of_part", "cut tree"),
    Step("memory_devices memory", "tables.core.memory_part:memory_of_part", "cut memory_timeline"),
    *(step for step in OF_CAPTURE if _SUMS & set(step.names)),
)  # fmt: skip


def find(text: str) -> str:
    """The table of the analysis that ``text`` names, as typed or as stored: A8, a8, A08, a08, stages; '' none."""
    wanted = text.strip().lower()
    if wanted[:1] == "a" and wanted[1:].isdecimal():
        wanted = f"a{int(wanted[1:]):02}"
    return wanted if any(wanted in step.names for step in ANALYSES) else ""


def table_name(text: str, tables: Collection[str]) -> str:
    """The table that ``text`` names, among those that are there: by name (kernels) or by id (A8, a08).

    Raises `UsageError` naming what there is.
    """
    for key in (text.strip().lower(), find(text)):
        if key in tables:
            return key
    close = difflib.get_close_matches(text.strip().lower(), sorted(tables), n=2)
    raise UsageError(
        f"table {text!r} is not there; there are: {', '.join(sorted(tables))}",
        code="unknown-table",
        hint=f"Did you mean {' or '.join(close)}?" if close else "xsp-post table --list says what each table holds",
    )
