"""Results → the document: the summary, the sections in order, and what is missing.

The one registry of exhibits. `html` and `json_form` show the same document, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from altair.utils.schemapi import debug_mode

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis, Results
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
    results = _Kept(results)
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


class _Kept:
    """Results that read each column once, whatever exhibits ask for it."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._columns: dict[str, dict[str, pd.Series]] = {}
        self._whole: dict[str, pd.DataFrame] = {}
        self._tables: list[str] | None = None

    def tables(self) -> list[str]:
        if self._tables is None:
            self._tables = self._results.tables()
        return self._tables

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        # in memory, nothing is saved by less than all of a table
        if name not in self._whole and (columns is None or isinstance(self._results, Analysis)):
            self._whole[name] = _finite(self._results.frame(name))
        if name in self._whole:
            return self._whole[name] if columns is None else self._whole[name][list(columns)]
        known = self._columns.setdefault(name, {})
        missing = [column for column in dict.fromkeys(columns or ()) if column not in known]
        if missing:
            frame = _finite(self._results.frame(name, missing))
            known.update({column: frame[column] for column in missing})
        return pd.DataFrame({column: known[column] for column in columns or ()}, copy=False)


def _finite(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with infinite numbers unknown: they have no place on an axis, and JSON has no word for them."""
    floats = [str(column) for column, dtype in frame.dtypes.items() if dtype.kind == "f"]
    infinite = [column for column in floats if np.isinf(frame[column].to_numpy()).any()]
    if not infinite:
        return frame
    return frame.assign(**{column: frame[column].replace([np.inf, -np.inf], np.nan) for column in infinite})


__all__ = ["EXHIBITS", "Document", "build", "chosen"]
