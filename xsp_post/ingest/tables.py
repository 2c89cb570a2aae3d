"""Captures in: requests to the tables of an export, in any file format (`sqlite_tables`, `folder_tables`).

Decided by the columns present: an optional column that is not there is filled with its default, so one request
serves every schema version; a required one that is not there is an error (`require_columns`).
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding

Keep = Callable[[pa.RecordBatch], np.ndarray]  # which rows of a batch are wanted
NONE_32 = 0xFFFFFFFF  # stands for none in columns of 32 bits
NULL = np.iinfo(np.int64).min  # stands for SQL NULL where NULL differs from every value


class WantedColumn(NamedTuple):
    """One wanted column: name in the table, name in the result, and what an absent column or NULL becomes.

    ``is_narrow``: small numbers (ids, kinds), kept as int32 from the first; 0xFFFFFFFF, nsys' "none", wraps to −1.
    ``alternatives``: names that the same column has elsewhere, tried in this order. ``is_required``: without it the
    table cannot be read. ``when_missing``: what is then not known, where that matters (a finding says so).
    """

    column: str
    alias: str
    default: int | bytes | float = 0
    is_narrow: bool = False
    is_required: bool = False
    alternatives: tuple[str, ...] = ()
    when_missing: str = ""

    @property
    def arrow_type(self) -> pa.DataType:
        if isinstance(self.default, bytes):
            return pa.binary()
        if isinstance(self.default, float):
            return pa.float64()
        return pa.int32() if self.is_narrow else pa.int64()

    def name_in(self, have: frozenset[str]) -> str:
        """The name under which a table with the columns ``have`` holds it, "" where it does not."""
        return next((name for name in (self.column, *self.alternatives) if name in have), "")


class Request(NamedTuple):
    """A table and its wanted columns; ``ROWID`` as a column name asks for the row's number in the file.

    ``one_of``: columns of which at least one must be there. ``keep`` says which rows of a batch (named by alias) are
    wanted, so that a large table is never whole in memory. ``where`` (of a SQLite file): an SQL condition for rows, in
    our own words.
    """

    table: str
    wants: tuple[WantedColumn, ...]
    one_of: tuple[str, ...] = ()
    keep: Keep | None = None
    where: str = ""


class TableSource(Protocol):
    """Named tables with named columns, read-only."""

    path: Path
    row_counts: dict[str, int]  # by table that was read: its rows, as the file itself counts them
    findings: list[Finding]  # about tables that were read

    def columns(self, table: str) -> frozenset[str]:
        """Column names; empty when the table is not there."""

    def tables(self) -> frozenset[str]:
        """Names of all tables."""

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple[Any, ...]]:
        """Small tables (`resolve`) as Python rows: the wanted columns, None where a column is not there."""

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        """One Arrow table a request (rows in file order); an absent table gives zero rows.

        Raises `CaptureError` where fewer rows can be read than the file has.
        """


def resolve(tables: frozenset[str], wanted: str) -> str:
    """The table of that name, else its newest ``_V2``/``_V3`` form, else ``wanted`` itself."""
    if wanted in tables:
        return wanted
    versions = [t for t in tables if re.fullmatch(re.escape(wanted) + r"_V\d+", t)]
    return max(versions, key=lambda t: int(t.rsplit("_V", 1)[1]), default=wanted)


def empty_table(request: Request) -> pa.Table:
    return pa.table({w.alias: pa.array([], w.arrow_type) for w in request.wants})


def require_columns(source: TableSource, request: Request, tool_version: str) -> list[str]:
    """Raise `CaptureError` where a table lacks a column that is required; returns what else is missing and matters.

    For tables with rows; each entry reads ``TABLE.column (consequence)``.
    """
    have = source.columns(request.table)
    missing = [w for w in request.wants if w.column != "ROWID" and not w.name_in(have)]
    lacking = [w.column for w in missing if w.is_required]
    if request.one_of and not have.intersection(request.one_of):
        lacking.append(" or ".join(request.one_of))
    if lacking:
        raise missing_column(source.path, request.table, lacking[0], tool_version)
    return [f"{request.table}.{w.column} ({w.when_missing})" for w in missing if w.when_missing]


def missing_column(path: Path, table: str, column: str, tool_version: str) -> CaptureError:
    return CaptureError(
        f"{path}: the table {table} has no column {column}, without which it cannot be read "
        f"(written by {tool_version or 'a version of nsys that the file does not name'})",
        code="capture-column-missing",
    )


def cast_column(path: Path, table: str, want: WantedColumn, column: Any, *, safe: bool) -> Any:
    """A column as the wanted type. Raises `CaptureError` that names it when a value is of another kind."""
    try:
        return pc.cast(column, want.arrow_type, safe=safe or pa.types.is_floating(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise unexpected_type(path, f"{table}.{want.column}", column.type) from error


def unexpected_type(path: Path, place: str, found: pa.DataType | None = None) -> CaptureError:
    """The values themselves stay out of the sentence: they may be private."""
    is_text = found is not None and (pa.types.is_string(found) or pa.types.is_binary(found))
    what = "text where numbers belong" if is_text else "values of an unexpected type"
    return CaptureError(f"{path}: {place} holds {what}", code="capture-bad-column")


def whole(value: object, default: int = -1) -> int:
    """A number of a small table, or ``default`` where the file holds NULL, text or what no integer can hold."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and abs(value) < 2**63 else default  # NaN is not less


def real(value: object) -> float:
    """The same for floats; NaN where there is none."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def floats(column: pa.ChunkedArray) -> np.ndarray:
    """A float column as read from SQLite, with NaN where it was NULL."""
    values = np.array(column.to_numpy())
    values[np.isneginf(values)] = np.nan
    return values
