"""What a section of the page is made of, before any HTML or JSON is written.

`sections` makes a `Section` of blocks out of results; `html` and `json_form` show them. A block holds raw
numbers in the units of their columns; text is made at the very end by `theme.text_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pandas as pd

from xsp_post.model.schemas import TABLES


class Chart(NamedTuple):
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


class Drawing(NamedTuple):
    """Data of one of the page's own drawings: ``icicle`` or ``timeline``."""

    id: str
    kind: str
    data: dict[str, Any]
    caption: str = ""


class Note(NamedTuple):
    """A sentence or two. Plain text: numbers come formatted, capture text comes through `text.visible`."""

    text: str
    kind: str = "note"  # note, lead, missing, folded


Block = Chart | Table | Drawing | Note


class Section(NamedTuple):
    """One section of the page: its anchor, title, the question it answers, and blocks."""

    id: str
    title: str
    question: str
    blocks: tuple[Block, ...]
    view: str = ""


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """The few rows of a frame that are shown one by one, as named tuples."""
    return list(frame.itertuples(index=False, name="Row"))


def present(frame: pd.DataFrame, columns: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Those of the columns that the frame has and that say something in at least one row."""
    return tuple(c for c in columns if c in frame.columns and c not in twins(frame) and not says_nothing(frame[c]))


# What a column says where nothing is known.
_NOTHING = {"bound": "unknown", "counter_source": "none"}


@cache
def may_be_unknown() -> frozenset[str]:
    """Columns in which −1 is no number, in every table that has them."""
    columns = [column for table in TABLES.values() for column in table.columns]
    return frozenset(one.name for one in columns if one.is_optional)


def twins(frame: pd.DataFrame) -> list[str]:
    """Columns that only repeat a neighbour for the reader."""
    found = ["short_name"] if {"name", "short_name"} <= set(frame) else []
    if {"layer_name", "layer_path"} <= set(frame):
        is_same = (frame["layer_name"].astype(str) == frame["layer_path"].astype(str)).all()
        found += ["layer_path"] if is_same else []
    return found


def says_nothing(values: pd.Series) -> bool:
    """Whether a column says the same of every row: that nothing is known, or what its name says of one row alone."""
    name = str(values.name)
    if not len(values):
        return False
    if values.isna().all():
        return True
    if name in may_be_unknown():
        return bool((values.fillna(-1) < 0).all())
    if name in ("is_negative", "counter_coverage_ratio"):
        return not values.fillna(0).astype(bool).any()
    if name in ("is_optimal", "call_index", "measure"):
        return values.nunique() == 1
    if values.dtype.kind in "iub":
        return False
    return bool((values.isna() | values.astype(object).isin(["", _NOTHING.get(name, "")])).all())
