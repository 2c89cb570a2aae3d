"""Captures in: requests to the tables of an export, in any file format (`sqlite_tables`, `folder_tables`).

Decided by the columns present: an optional column that is not there is filled with its default, so one request
serves every schema version; a required one that is not there is an error (`require_columns`). `nsys_requests.txt` has
those of an Nsight Systems export. No pandas here: reading begins before the rest of the program is imported
(`sqlite_tables.SqliteTables.read_ahead`).
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding
from xsp_post.base.texts import Block, read_blocks

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


DEVICE_TABLES = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL", "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET", "graph": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}  # fmt: skip
MARK = 34  # event type of NVTX
PROCESS_BITS = -(1 << 24)  # of a global thread or process id; the others are those of the thread
NO_MEMORY_KIND = 7  # of srcKind and dstKind: 0 pageable, 1 pinned, 2 device …
_DEFAULTS: dict[str, int | bytes] = {"null": NULL, "-1": -1, "7": NO_MEMORY_KIND, "text": b""}


def requests(source: TableSource) -> dict[str, Request]:
    """One request per table of an export, by our name for it."""
    tables = source.tables()
    found = {}
    for name, (names, key, one_of, wants) in _read().items():
        if not names:  # columns of several tables
            continue
        known = [resolve(tables, table) for table in names]  # with a version suffix, it may be
        table = next((one for one in known if key in source.columns(one)), known[0])
        found[name] = Request(table, wants, one_of)
    return found


def launch_detail(block: str = "detail") -> list[str]:
    """Our names of the columns that say how a kernel was launched; ``group``: those that only new exports have."""
    return [want.alias for want in _read()[f"*{block}"][3]]


@lru_cache
def _read() -> dict[str, tuple[list[str], str, tuple[str, ...], tuple[WantedColumn, ...]]]:
    """Names of the table, the column that decides between them, columns of which one must be there, and those wanted;
    by our name."""
    found: dict[str, tuple[list[str], str, tuple[str, ...], tuple[WantedColumn, ...]]] = {}
    for block in read_blocks(Path(__file__).with_name("nsys_requests.txt")):
        wants = [
            want for _, line in block.lines for want in (found[line][3] if line in found else _column(block, line))
        ]
        title, _, one_of = block.title.partition(" one of ")
        names, _, key = title.partition(" with ")
        found[block.name] = names.split(), key, tuple(one_of.split()), tuple(wants)
    return found


def _column(block: Block, line: str) -> list[WantedColumn]:
    said, _, when_missing = line.partition("; ")
    raw, colon, rest = said.partition(": ")
    if not colon:
        block.refuse(f"{line!r} is no column")
    column, *others = raw.split("|")
    alias, *words = rest.split()
    default = next((_DEFAULTS[word] for word in words if word in _DEFAULTS), 0)
    return [WantedColumn(column, alias, default, "narrow" in words, "required" in words, tuple(others), when_missing)]
