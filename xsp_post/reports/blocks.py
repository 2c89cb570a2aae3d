"""What a section of the page is made of, before any HTML or JSON is written.

An exhibit makes a `Section` of blocks out of results; `html` and `json_form` show them. A block holds raw
numbers in the units of their columns; text is made at the very end by `theme.text_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from xsp_post.model.results import Results

if TYPE_CHECKING:
    from xsp_post.reports.cases import Case


@dataclass(frozen=True)
class Chart:
    """One Vega-Lite chart. ``alternatives``: label → further forms of it (a logarithmic one)."""

    id: str
    chart: Any  # alt.TopLevelMixin
    caption: str = ""
    label: str = ""
    alternatives: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows of a results table as the page shows them: already sorted and cut to what fits.

    ``table`` names the schema of its columns; ``row_count`` is how many rows there were before the cut.
    ``full_names``: a column that holds the text behind a shortened ``shown`` column.
    """

    id: str
    table: str
    frame: pd.DataFrame
    columns: tuple[str, ...]
    caption: str
    row_count: int
    short: dict[str, Callable[[pd.Series], pd.Series]] = field(default_factory=dict)
    command: str = ""
    bars: tuple[str, ...] = ()
    visible_rows: int = 10


@dataclass(frozen=True)
class Drawing:
    """Data of one of the page's own drawings: ``icicle`` or ``timeline``."""

    id: str
    kind: str
    data: dict[str, Any]
    caption: str = ""


@dataclass(frozen=True)
class Note:
    """A sentence or two. Plain text: numbers come formatted, capture text comes through `text.visible`."""

    text: str
    kind: str = "note"  # note, lead, missing, folded


Block = Chart | Table | Drawing | Note


@dataclass(frozen=True)
class Section:
    """One section of the page: its anchor, title, the question it answers, and blocks."""

    id: str
    title: str
    question: str
    blocks: tuple[Block, ...]
    group: str = ""


@dataclass(frozen=True)
class Exhibit:
    """How a section is made: ``make(results, case)`` is None where its data is absent, and ``recorded_by`` then
    says what would record it."""

    id: str
    title: str
    needs: tuple[str, ...]
    make: Callable[[Results, Case | None], Section | None]
    recorded_by: str
    analyses: tuple[str, ...] = ()  # the ids `--only` takes: A3 …


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """The few rows of a frame that are shown one by one, as named tuples."""
    return list(frame.itertuples(index=False, name="Row"))


def present(frame: pd.DataFrame, columns: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Those of the columns that the frame has and that say something in at least one row."""
    return tuple(c for c in columns if c in frame.columns and not _says_nothing(frame[c]))


def _says_nothing(values: pd.Series) -> bool:
    if not len(values):
        return False
    if pd.api.types.is_float_dtype(values.dtype) and values.isna().all():
        return True
    if values.name not in ("bound", "counter_source") and (
        values.dtype == object or isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype))
    ):
        return bool((values.isna() | values.eq("")).all())
    if values.name == "bound":
        return bool((values.astype(str) == "unknown").all())
    if values.name == "counter_source":
        return bool((values.astype(str) == "none").all())
    if values.name == "counter_coverage_ratio":
        return bool((values.fillna(0) == 0).all())
    if values.name == "is_negative":
        return not values.astype(bool).any()
    if values.name == "batch_size":
        return bool((values.fillna(0) <= 0).all())
    if values.name == "is_optimal":
        return len(values) == 1
    if values.name in ("allocated_bytes", "queue_delay_ns"):
        return bool((values == -1).all())
    return False
