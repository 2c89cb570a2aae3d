"""Results → the document: the summary, the sections in order (rows of `page.txt`), and what is missing.

`html` and `json_form` show the same document, so that they cannot disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from altair.utils.schemapi import debug_mode

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis, Results, finite, frame_or_empty
from xsp_post.model.schemas import TABLES as SCHEMAS
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, icicle, timeline
from xsp_post.reports.blocks import Block, Chart, Note, Section, Table, present
from xsp_post.reports.cases import Case
from xsp_post.reports.draw import draw, rows_of
from xsp_post.reports.frames import FRAMES, Frame
from xsp_post.reports.leads import LEADS, Lead
from xsp_post.reports.page_rows import CHARTS, SECTIONS, TABLES, ChartRow, SectionRow, TableRow, sorted_by
from xsp_post.reports.rooflines import draw_roofline, on_axes, roof_data
from xsp_post.reports.summary import Summary, summarize
from xsp_post.reports.text import short_kernels

_COMMANDS = {
    "report": "xsp-post table {} STORE --format csv", "compare": "xsp-post compare BASE OTHER --json",
    "fleet": "xsp-post table {} fleet.xsp.sqlite", "history": "xsp-post table {} history.xsp.sqlite",
}  # fmt: skip


def section_of(
    row: SectionRow, results: Results, case: Case | None, frames: Mapping[str, Frame], leads: Mapping[str, Lead],
    drawings: Mapping[str, object] | None = None,
) -> Section | None:  # fmt: skip
    """One section; None where none of its charts, tables and drawings has a row."""
    blocks: list[Block] = []
    for kind, name in row.shows:
        if kind == "drawing":
            blocks += (drawings or {})[name](results)  # type: ignore[operator]
            continue
        declared: ChartRow | TableRow = CHARTS[name] if kind == "chart" else TABLES[name]
        frame = _frame(declared, results, case, frames)
        if isinstance(declared, ChartRow):
            blocks += _charts(declared, results, frame)
        elif len(frame) >= declared.least:
            blocks.append(_table(declared, frame, row.page))
    if not blocks:
        return None
    said = leads[row.id](results, case) if row.id in leads else []
    notes = [Note(text, "lead" if i == 0 else "note") for i, text in enumerate(said)]
    return Section(row.id, row.title, row.question, (*notes, *blocks), row.view)


def _frame(row: ChartRow | TableRow, results: Results, case: Case | None, frames: Mapping[str, Frame]) -> pd.DataFrame:
    """The rows of a chart or a table, sorted."""
    if row.rows in frames:
        frame = results.kept(("frame", row.rows, case), lambda: frames[row.rows](results, case))
    elif row.rows in SCHEMAS and "case_index" in column_names(row.rows) and case is not None:
        frame = cases.rows(results, row.rows, case)
    else:
        frame = frame_or_empty(results, row.rows)
    return sorted_by(frame.query(row.where) if row.where else frame, row.sort)


def _charts(row: ChartRow, results: Results, frame: pd.DataFrame) -> list[Chart]:
    frame, said = rows_of(row, frame)
    if frame.empty:
        return []
    with debug_mode(False):  # else altair checks every part of every chart against its schema; tests do
        if row.mark != "roofline":
            return [Chart(row.id, draw(row, frame), row.caption + said, row.title)]
        roofs, nowhere = roof_data(results, frame), len(frame) - len(on_axes(frame, "log"))
        if nowhere:
            said += f" {nowhere:,} without flop have no place on logarithmic axes; the linear form shows them."
        log, linear = (draw_roofline(row, frame, roofs, scale) for scale in ("log", "linear"))
        return [Chart(row.id, log, row.caption + said, row.title, (("Linear", linear),))]


def _table(row: TableRow, frame: pd.DataFrame, page: str) -> Table:
    columns = present(frame, row.columns or view_of(row.schema))
    short: dict[str, Any] = {name: short_kernels for name in ("name", "other_name", "example") if name in columns}
    return Table(
        row.id, row.schema, frame.head(row.limit), columns, row.title, len(frame), short,
        _COMMANDS[page].format(row.schema), row.bars, row.visible,
    )  # fmt: skip


def sections_of(
    page: str, results: Results, frames: Mapping[str, Frame], leads: Mapping[str, Lead] | None = None
) -> list[Section]:
    """The sections of a page of many captures that have something to show."""
    rows = (row for row in SECTIONS.values() if row.page == page)
    found = (section_of(row, results, None, frames, leads or {}) for row in rows)
    return [section for section in found if section is not None]


DRAWINGS = {"tree": icicle.blocks, "timeline": timeline.blocks}


@dataclass
class Document:
    """A report before it is a file. ``missing``: sections whose data is not there."""

    summary: Summary
    sections: list[Section]
    missing: list[SectionRow]


def build(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> Document:
    """The document of results. ``only``: ids of analyses (A9) or sections (kernels); everything when empty."""
    if isinstance(results, Analysis):
        results = Analysis({name: finite(frame) for name, frame in results.frames.items()}, results.findings)
    if not only:  # the timeline shows them: made first, they are made together with their sums
        frame_or_empty(results, "short_waits", ["capture_id"])
    shown = cases.main_case(results, case)
    sections, missing = [], []
    for row in chosen(only):
        section = section_of(row, results, shown, FRAMES, LEADS, DRAWINGS)
        if section is not None:
            sections.append(section)
        elif row.recorded:
            missing.append(row)
    return Document(summarize(results, shown), sections, missing)


def chosen(only: Sequence[str]) -> tuple[SectionRow, ...]:
    """The sections that hold the named analyses or are named. UsageError for a name that none has."""
    rows = tuple(row for row in SECTIONS.values() if row.page == "report")
    if not only:
        return rows
    names = {row.id: {row.id, *(a.lower() for a in row.analyses)} for row in rows}
    wanted = {name.lower() for name in only}
    unknown = sorted(wanted.difference(*names.values()))
    if unknown:
        numbered = sorted({int(a[1:]) for row in rows for a in row.analyses if a[1:].isdigit()})
        raise UsageError(
            f"No part of the report is called {unknown[0]}.",
            code="report-no-section",
            hint="Its parts are " + ", ".join([*(f"A{n}" for n in numbered), *names]) + ".",
        )
    return tuple(row for row in rows if wanted & names[row.id])
