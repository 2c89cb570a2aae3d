"""The document → values for JSON, for scripts and assistants: the same numbers as the page."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from xsp_post import __version__
from xsp_post.model.results import Results, with_unknown
from xsp_post.model.schemas import unit_of
from xsp_post.reports import theme
from xsp_post.reports.blocks import Chart, Drawing, Note, Section, Table
from xsp_post.reports.document import build
from xsp_post.reports.text import plain


def report_dict(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> dict[str, Any]:
    """The report of results as JSON-ready values (no NaN: unknown is None). Numbers are raw, in the unit of their
    column; texts are made visible."""
    document = build(results, case=case, only=only)
    summary = document.summary
    return {
        "generator": f"xsp-post {__version__}",
        "part": summary.part or None,
        **{name: getattr(summary, name) for name in ("title", "machine", "sources")},
        "case": None if summary.case is None else {"case_index": summary.case.index, "label": summary.case.label},
        "facts": [asdict(fact) for fact in summary.facts],
        "verdict": summary.verdict,
        "time_split": summary.splits,
        "advice": [asdict(one) for one in summary.said.advice],
        "top_layers": [_top(row) for row in summary.top_layers],
        "outside_layers": None if summary.outside is None else _top(summary.outside),
        "top_kernels": [_top(row) for row in summary.top_kernels],
        "findings": summary.findings,
        "balance": [
            {**one._asdict(),
             "parts": [{"attribution": way, "operation_count": n, "device_ns": time} for way, n, time in one.ways]}
            for one in summary.balances
        ],
        "trust": _rows(summary.trust),
        "sections": [_section(section) for section in document.sections],
        "missing": [
            {"id": e.id, "title": e.title, "analyses": list(e.analyses), "recorded_by": e.recorded}
            for e in document.missing
        ],
    }  # fmt: skip


def _top(row: Any) -> dict[str, Any]:
    return {
        "name": row.full_name, "short_name": row.name, "latency_ns": row.latency_ns, "layer_count": row.count,
        "share_ratio": plain(row.share), "layer_index": row.layer_index, "bound": row.bound, "text": list(row.lines),
    }  # fmt: skip


def _section(section: Section) -> dict[str, Any]:
    blocks = section.blocks
    return {
        **{name: getattr(section, name) for name in ("id", "title", "question")},
        "notes": [block.text for block in blocks if isinstance(block, Note)],
        "charts": [{"id": block.id, "caption": block.caption} for block in blocks if isinstance(block, Chart)],
        "drawings": [
            {"id": block.id, "kind": block.kind, "caption": block.caption, **_drawing(block)}
            for block in blocks
            if isinstance(block, Drawing)
        ],
        "tables": [_table(block) for block in blocks if isinstance(block, Table)],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        **{name: getattr(table, name) for name in ("id", "table", "caption", "row_count")},
        "columns": [
            {"name": c, "unit": unit_of(c), "meaning": theme.meaning_of(table.table, c)} for c in table.columns
        ],
        "rows": _rows(with_unknown(table.table, table.frame[list(table.columns)])),
    }


def _drawing(drawing: Drawing) -> dict[str, Any]:
    frames = {name: value for name, value in drawing.data.items() if isinstance(value, pd.DataFrame)}
    numbers = {name: value for name, value in drawing.data.items() if name not in frames}
    return {**numbers, **{name: _rows(frame) for name, frame in frames.items()}}


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns = {name: [plain(v) for v in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, values)) for values in zip(*columns.values())] if columns else []
