"""A table without rows → one sentence on what must be recorded to fill it."""

from pathlib import Path

from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import TABLES
from xsp_post.tables.catalogue import OF_CAPTURE, OF_WORKLOAD, find

# what must be recorded, by what a step of the catalogue asks for: of an analysis, and of a table of the recording
_TEXTS = TextTable(lambda: {one.name: one.texts() for one in read_blocks(Path(__file__).with_name("missing.txt"))})


def why_empty(table: str, results: Results) -> str:
    """One sentence on what would fill a table that has no rows; '' for a table that needs nothing.

    Of an analysis the first thing that is missing is named.
    """
    name = find(table) or table.strip().lower()
    needs = next((step.recorded.split() for step in (*OF_CAPTURE, *OF_WORKLOAD) if name in step.names), [])
    for need in needs:
        if need in _TEXTS["recording"]:
            return f"{name}: {_TEXTS['recording'][need]}" if "part" not in results.tables() else ""
        if not _has(need, results):
            return f"{TABLES[name].title}: {_TEXTS['analysis'][need]}."
    return ""


def _has(need: str, results: Results) -> bool:
    if need in ("iterations", "layers", "kernels"):
        return len(frame_or_empty(results, need, ["capture_id"])) > 0
    if need == "batch":
        return frame_or_empty(results, "iterations", ["batch_size"])["batch_size"].nunique() > 1
    if need == "counters":
        return has_work(results)
    if need == "allocation":
        return bool((frame_or_empty(results, "layers", ["allocated_bytes"])["allocated_bytes"] >= 0).any())
    return False


def has_work(results: Results) -> bool:
    """Whether counters, or sizes of operators or layers, say the work of anything."""
    if len(frame_or_empty(results, "kernel_metrics", ["kernel_id"])):
        return True
    if frame_or_empty(results, "kernel_work", ["flop"])["flop"].notna().any():
        return True
    return bool(frame_or_empty(results, "layers", ["analytic_flop"])["analytic_flop"].notna().any())
