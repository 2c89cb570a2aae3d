"""Results → the document: the summary, the sections in order, and what is missing.

`html` and `json_form` show the same document, so that they cannot disagree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis, Results, finite, frame_or_empty
from xsp_post.reports import cases, icicle, timeline
from xsp_post.reports.blocks import Section
from xsp_post.reports.frames import FRAMES
from xsp_post.reports.leads import LEADS
from xsp_post.reports.page_rows import SECTIONS, SectionRow
from xsp_post.reports.sections import section_of
from xsp_post.reports.summary import Summary, summarize

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
