"""Every table, declared once in ``catalogue.txt``: what makes it, what that needs, what it may find.

A new table is one row there and its columns in `schemas`.
"""

import difflib
from collections.abc import Collection
from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.base.texts import Block, TextTable, read_blocks
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import TABLES
from xsp_post.tables.graph import Step

_BLOCKS = {block.name: block for block in read_blocks(Path(__file__).with_name("catalogue.txt"))}
_SUMS = {"operations", "devices", "balance", "paths", "gpu_samples"}


def _steps(block: Block) -> tuple[Step, ...]:
    rows: list[dict[str, str]] = []
    for _, line in block.lines:
        name, _, words = line.strip().partition(" ")
        if line.startswith("    "):
            rows[-1][next(reversed(rows[-1]))] += f" {line.strip()}"
        elif line.startswith("  "):
            rows[-1][name] = words
        else:
            makes, _, by = line.partition(": ")
            rows.append({"makes": makes, "by": by})
    return tuple(Step(**row) for row in rows)


OF_CAPTURE, ANALYSES = _steps(_BLOCKS["of_capture"]), _steps(_BLOCKS["analyses"])
OF_WORKLOAD = (*_steps(_BLOCKS["before_analyses"]), *ANALYSES, *_steps(_BLOCKS["after_analyses"]))
EXPERIMENT = next(step for step in OF_WORKLOAD if step.makes == "experiment")
CUTS = _BLOCKS["cuts"].texts()
OF_PART = (*_steps(_BLOCKS["of_part"]), *(step for step in OF_CAPTURE if _SUMS & set(step.names)))


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
