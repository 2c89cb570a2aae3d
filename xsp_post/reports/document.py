"""Results → the document: the summary, the sections in order, and what is missing.

The one registry of exhibits. `html` and `json_form` show the same document, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from altair.utils.schemapi import debug_mode

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis, Results, finite
from xsp_post.reports import (
    captures,
    cases,
    gpu_samples,
    icicle,
    kernels,
    layer_kernels,
    layers,
    memory,
    model,
    overhead,
    ranks,
    rooflines,
    steps,
    timeline,
    types,
    waits,
)
from xsp_post.reports.blocks import Exhibit, Section
from xsp_post.reports.layer_facts import LayerFacts, layer_facts
from xsp_post.reports.summary import Summary, summarize

# In the order of the page: from the model inwards, then what it rests on.
EXHIBITS: tuple[Exhibit, ...] = (
    overhead.EXHIBIT,
    model.EXHIBIT,
    steps.PHASES,
    layers.EXHIBIT,
    types.EXHIBIT,
    layers.STAGES,
    memory.EXHIBIT,
    icicle.EXHIBIT,
    timeline.EXHIBIT,
    steps.PATH,
    ranks.EXHIBIT,
    ranks.COMMUNICATION,
    waits.EXHIBIT,
    kernels.EXHIBIT,
    layer_kernels.EXHIBIT,
    layer_kernels.GPU_SHARE,
    gpu_samples.EXHIBIT,
    rooflines.EXHIBIT,
    captures.EXHIBIT,
)


@dataclass
class Document:
    """A report before it is a file. ``missing``: exhibits whose data is not there."""

    summary: Summary
    sections: list[Section]
    missing: list[Exhibit]
    layers: LayerFacts | None


def build(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> Document:
    """The document of results. ``only``: ids of analyses (A9) or sections (kernels); everything when empty."""
    if isinstance(results, Analysis):
        results = Analysis({name: finite(frame) for name, frame in results.frames.items()}, results.findings)
    shown = cases.main_case(results, case)
    sections, missing = [], []
    for exhibit in chosen(only):
        with debug_mode(False):  # else altair checks every part of every chart against its schema; tests do
            section = exhibit.make(results, shown)
        if section is not None:
            sections.append(section)
        elif exhibit.recorded_by:
            missing.append(exhibit)
    return Document(summarize(results, shown), sections, missing, layer_facts(results, shown))


def chosen(only: Sequence[str]) -> tuple[Exhibit, ...]:
    """The exhibits that hold the named analyses or sections. UsageError for a name that none has."""
    if not only:
        return EXHIBITS
    wanted = {name.lower() for name in only}
    found = tuple(e for e in EXHIBITS if wanted & {e.id, *(a.lower() for a in e.analyses)})
    known = {name for e in EXHIBITS for name in (e.id, *(a.lower() for a in e.analyses))}
    unknown = sorted(wanted - known)
    if unknown:
        numbered = sorted({int(a[1:]) for e in EXHIBITS for a in e.analyses if a[1:].isdigit()})
        raise UsageError(
            f"No part of the report is called {unknown[0]}.",
            code="report-no-section",
            hint="Its parts are " + ", ".join([*(f"A{n}" for n in numbered), *(e.id for e in EXHIBITS)]) + ".",
        )
    return found


__all__ = ["EXHIBITS", "Document", "build", "chosen"]
