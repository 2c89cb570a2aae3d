"""Every table, declared once in ``catalogue.txt``: what makes it, what that needs, what it may find.

A new table is one row there and its columns in `schemas`.
"""

import difflib
from collections.abc import Collection
from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.base.texts import Block, read_blocks
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
