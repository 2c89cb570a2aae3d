"""Captures in: tables of an export as Arrow columns, whatever holds them (SQLite, a folder of Parquet or Arrow).

Decided by the columns present: a wanted column that is not there is filled with its default, so one
request serves every schema version. SQLite is read through ADBC in slices of rowids on two threads
(the driver releases the GIL); every expression is given one type with COALESCE, because the driver
infers a column's type from its first rows.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.errors import CaptureError

NULL = np.iinfo(np.int64).min  # stands for SQL NULL where NULL differs from every value
_SLICE_ROWS = 262_144
_BATCH_ROWS = "65536"


@dataclass(frozen=True)
class Want:
    """One wanted column: name in the table, name in the result, and what an absent column or NULL becomes.

    ``is_narrow``: small numbers (ids, kinds), kept as int32 from the first; 0xFFFFFFFF, nsys' "none", wraps to −1.
    """

    column: str
    alias: str
    default: int | bytes | float = 0
    is_narrow: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        if isinstance(self.default, bytes):
            return pa.binary()
        if isinstance(self.default, float):
            return pa.float64()
        return pa.int32() if self.is_narrow else pa.int64()


@dataclass(frozen=True)
class Request:
    """A table and its wanted columns; ``ROWID`` as a column name asks for the row's number in the file.

    ``keep`` says which rows of a batch (named by alias) are wanted, so that a large table is never whole in memory.
    """

    table: str
    wants: tuple[Want, ...]
    keep: Callable[[pa.RecordBatch], np.ndarray] | None = None


class TableSource(Protocol):
    """Named tables with named columns, read-only."""

    path: Path

    def columns(self, table: str) -> frozenset[str]:
        """Column names; empty when the table is not there."""

    def tables(self) -> frozenset[str]:
        """Names of all tables."""

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple]:
        """Small tables as Python rows: the wanted columns, None where a column is not there."""

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        """One Arrow table a request (rows in file order); an absent table gives zero rows."""


# SQLite's message may quote a damaged schema, whose bytes are no text to Python.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


def resolve(tables: frozenset[str], wanted: str) -> str:
    """The table of that name, else its newest ``_V2``/``_V3`` form, else ``wanted`` itself."""
    if wanted in tables:
        return wanted
    versions = [t for t in tables if re.fullmatch(re.escape(wanted) + r"_V\d+", t)]
    return max(versions, key=lambda t: int(t.rsplit("_V", 1)[1]), default=wanted)


def _empty(request: Request) -> pa.Table:
    return pa.table({w.alias: pa.array([], w.arrow_type) for w in request.wants})


class SqliteTables:
    """The tables of one SQLite file, opened read-only; the file is never changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._uri = self._readable_uri()
        self._columns: dict[str, frozenset[str]] = {}
        self._never_null: dict[str, frozenset[str]] = {}
        self._sliceable: dict[str, bool] = {}
        self._ahead: tuple[list[Request], Future[list[pa.Table]]] | None = None

    def _readable_uri(self) -> str:
        base = "file:" + quote(os.fsencode(self.path.resolve()))  # a name need not be UTF-8
        # A write-ahead log or a folder we may not write to makes plain read-only mode fail or create
        # files beside the capture; `immutable` does neither. It also ignores locks, so ask those first.
        for uri in (base + "?mode=ro", base + "?mode=ro&immutable=1"):
            try:
                with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return uri
            except sqlite3.OperationalError as error:
                if "locked" in str(error) or "busy" in str(error):
                    raise CaptureError(
                        f"{self.path}: the database is locked by another program",
                        code="capture-locked",
                        hint="wait for the export to end, or ingest a copy",
                    ) from error
                problem: Exception = error
            except _DAMAGE as error:
                problem = error
                break
        raise self._damaged(problem)

    def _damaged(self, error: BaseException) -> CaptureError:
        said = "its schema is damaged" if isinstance(error, UnicodeDecodeError) else error
        return CaptureError(
            f"{self.path}: not an intact SQLite database ({said})",
            code="capture-damaged",
            hint="export the report again: nsys export -t sqlite REPORT.nsys-rep",
        )

    def connect(self) -> sqlite3.Connection:
        """A read-only connection whose text is decoded tolerantly (captures hold other code pages)."""
        connection = sqlite3.connect(self._uri, uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return connection

    def tables(self) -> frozenset[str]:
        if not self._columns:
            try:
                with closing(self.connect()) as connection:
                    # a view may stand for a table that somebody trimmed with SQL
                    names = connection.execute(
                        "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
                    ).fetchall()
                    for name, kind, sql in names:
                        try:
                            info = connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
                        except sqlite3.OperationalError:
                            continue  # a view of what is gone, or a virtual table of a module we do not have
                        self._columns[name] = frozenset(row[1] for row in info)
                        self._never_null[name] = frozenset(row[1] for row in info if row[3])
                        self._sliceable[name] = kind == "table" and "WITHOUT ROWID" not in (sql or "").upper()
            except _DAMAGE as error:
                raise self._damaged(error) from error
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        self.tables()
        return self._columns.get(table, frozenset())

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple]:
        """Small tables as Python rows: the wanted columns, NULL where a column is not there."""
        have = self.columns(table)
        if not have:
            return []
        select = ", ".join(_quoted(c) if c in have else "NULL" for c in columns)
        try:
            with closing(self.connect()) as connection:
                return connection.execute(f"SELECT {select} FROM {_quoted(table)} LIMIT {int(limit)}").fetchall()
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def read_ahead(self, requests: Sequence[Request]) -> None:
        """Begin to read now; the next `read` of the same requests takes the result. For work that can be done
        meanwhile (importing half the program takes as long as reading half a million rows)."""
        pool = ThreadPoolExecutor(1)
        self._ahead = list(requests), pool.submit(self._read_now, list(requests))
        pool.shutdown(wait=False)

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        if self._ahead is not None and self._ahead[0] == list(requests):
            (_, future), self._ahead = self._ahead, None
            return future.result()
        return self._read_now(requests)

    def _read_now(self, requests: Sequence[Request]) -> list[pa.Table]:
        jobs: list[tuple[int, str]] = []
        for index, request in enumerate(requests):
            if self.columns(request.table):
                jobs += [(index, query) for query in self._queries(request)]
        parts: dict[int, list[pa.Table]] = {index: [] for index in range(len(requests))}
        with ThreadPoolExecutor(2) as pool:
            fetched = pool.map(lambda job: self._fetch(requests[job[0]], job[1]), jobs)
            for (index, _), part in zip(jobs, fetched):
                parts[index].append(part)
        return [pa.concat_tables(parts[i]) if parts[i] else _empty(request) for i, request in enumerate(requests)]

    def _queries(self, request: Request) -> list[str]:
        have, never_null = self.columns(request.table), self._never_null[request.table]
        row_number = "rowid" if self._sliceable[request.table] else "row_number() OVER ()"
        select = ", ".join(
            f"{_expression(w, have, never_null, row_number)} AS {_quoted(w.alias)}" for w in request.wants
        )
        query = f"SELECT {select} FROM {_quoted(request.table)}"
        if not self._sliceable[request.table]:
            return [query]
        try:
            with closing(self.connect()) as connection:
                # two sub-queries: each is answered from the edge of the tree, both at once would scan
                table = _quoted(request.table)
                low, high = connection.execute(
                    f"SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})"
                ).fetchone()
        except _DAMAGE as error:
            raise self._damaged(error) from error
        if low is None:
            return []
        if high - low > 50 * 1_000_000:  # sparse or enormous row numbers: one scan
            return [query]
        return [
            f"{query} WHERE rowid BETWEEN {first} AND {min(first + _SLICE_ROWS - 1, high)}"
            for first in range(low, high + 1, _SLICE_ROWS)
        ]

    def _fetch(self, request: Request, query: str) -> pa.Table:
        import adbc_driver_manager
        import adbc_driver_sqlite

        try:
            with (
                adbc_driver_sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
                reader = pa.RecordBatchReader._import_from_c(stream.address)
                return _typed(self.path, request, reader)
        except (adbc_driver_manager.Error, UnicodeDecodeError, OSError) as error:
            raise self._damaged(error) from error


def _typed(path: Path, request: Request, batches: pa.RecordBatchReader) -> pa.Table:
    """The batches with the wanted types, each narrowed as it comes; an empty slice has no types of its own."""
    wanted = pa.schema([(w.alias, w.arrow_type) for w in request.wants])
    try:
        parts = []
        for batch in batches:
            if batch.num_rows:
                columns = [
                    _cast(path, request.table, want, batch.column(k), safe=not want.is_narrow)
                    for k, want in enumerate(request.wants)
                ]
                part = pa.record_batch(columns, schema=wanted)
                parts.append(part if request.keep is None else part.filter(pa.array(request.keep(part))))
        return pa.Table.from_batches(parts, schema=wanted)
    except pa.ArrowInvalid as error:  # the driver's own: a type that changes between its batches
        raise _bad_column(path, request.table, error) from error


def _cast(path: Path, table: str, want: Want, column: Any, *, safe: bool) -> Any:
    """A column as the wanted type. Raises `CaptureError` that names it when a value is of another kind."""
    try:
        return pc.cast(column, want.arrow_type, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _bad_column(path, f"{table}.{want.column}", error) from error


def _bad_column(path: Path, place: str, error: pa.ArrowException) -> CaptureError:
    return CaptureError(
        f"{path}: {place} holds values of an unexpected type ({error})",
        code="capture-bad-column",
        hint="the capture was edited or damaged: export it again",
    )


class FolderTables:
    """A ``parquetdir``/``arrowdir`` export: a folder with one file per table."""

    _suffixes = (".parquet", ".arrow", ".arrows")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = {
            file.stem: file for file in sorted(path.iterdir()) if file.suffix in self._suffixes and file.is_file()
        }
        self._schemas: dict[str, pa.Schema] = {}

    def tables(self) -> frozenset[str]:
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._files:
            return frozenset()
        if table not in self._schemas:
            self._schemas[table] = self._schema(table)
        return frozenset(self._schemas[table].names)

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple]:
        """Small tables as Python rows: the wanted columns, None where a column is not there."""
        have = self.columns(table)
        if not have:
            return []
        present = [c for c in columns if c in have]
        data = self._open(table, present).slice(0, limit).to_pydict()
        count = len(next(iter(data.values()))) if data else 0
        decoded = {c: [_text(v) for v in data[c]] for c in present}
        return list(zip(*[decoded.get(c, [None] * count) for c in columns]))

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        return [self._read_one(request) for request in requests]

    def _read_one(self, request: Request) -> pa.Table:
        have = self.columns(request.table)
        if not have:
            return _empty(request)
        data = self._open(request.table, [w.column for w in request.wants if w.column in have])
        if not data.num_columns:
            data = self._open(request.table, None)
        count = data.num_rows
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for want in request.wants:
            if want.column == "ROWID":
                columns[want.alias] = pa.array(np.arange(1, count + 1))
            elif want.column not in have:
                columns[want.alias] = pa.repeat(pa.scalar(want.default, want.arrow_type), count)
            else:
                columns[want.alias] = self._typed(request, want, data.column(want.column))
        table = pa.table(columns)
        if request.keep is None:
            return table
        wanted = pa.schema([(w.alias, w.arrow_type) for w in request.wants])
        batches = [batch.filter(pa.array(request.keep(batch))) for batch in table.cast(wanted).to_batches()]
        return pa.Table.from_batches(batches, schema=wanted)

    def _typed(self, request: Request, want: Want, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # 64-bit ids wrap, as they do in SQLite; so does "none" in narrow columns
        wraps = want.is_narrow or (want.arrow_type == pa.int64() and pa.types.is_uint64(column.type))
        typed = _cast(self.path, request.table, want, column, safe=not wraps)
        return pc.fill_null(typed, pa.scalar(want.default, want.arrow_type))

    def _schema(self, table: str) -> pa.Schema:
        file = self._files[table]
        if file.suffix != ".parquet":
            return self._open(table, None).schema  # mapped into memory, not read
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(file, error) from error

    @staticmethod
    def _unreadable(file: Path, error: Exception) -> CaptureError:
        return CaptureError(
            f"{file}: cannot be read as {file.suffix[1:]} ({str(error).splitlines()[0]})", code="capture-damaged"
        )

    def _open(self, table: str, columns: list[str] | None) -> pa.Table:
        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                import pyarrow.parquet as pq

                return pq.read_table(file, columns=columns)
            with pa.memory_map(str(file)) as source:
                opener: Callable = pa.ipc.open_file if file.suffix == ".arrow" else pa.ipc.open_stream
                try:
                    whole = opener(source).read_all()
                except pa.ArrowInvalid:  # the two Arrow forms go by either suffix
                    source.seek(0)
                    whole = (pa.ipc.open_stream if opener is pa.ipc.open_file else pa.ipc.open_file)(source).read_all()
            return whole if columns is None else whole.select(columns)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(file, error) from error


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _expression(want: Want, have: frozenset[str], never_null: frozenset[str], row_number: str) -> str:
    literal = "x''" if isinstance(want.default, bytes) else repr(want.default)
    if want.column == "ROWID":
        return row_number
    if want.column not in have:
        return literal
    if isinstance(want.default, bytes):
        return f"COALESCE(CAST({_quoted(want.column)} AS BLOB), x'')"
    if isinstance(want.default, float):
        # NaN cannot be written in SQL: −∞ stands for it and for NULL (see `floats`)
        return f"COALESCE(CAST({_quoted(want.column)} AS REAL), -9e999)"
    if want.column in never_null:
        return _quoted(want.column)
    return f"COALESCE({_quoted(want.column)}, {literal})"


def whole(value: object, default: int = -1) -> int:
    """A number of a small table, or ``default`` where the file holds NULL, text or what no integer can hold."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and math.isfinite(value) else default


def real(value: object) -> float:
    """The same for floats; NaN where there is none."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def floats(column: pa.ChunkedArray) -> np.ndarray:
    """A float column as read from SQLite, with NaN where it was NULL."""
    values = np.array(column.to_numpy())
    values[np.isneginf(values)] = np.nan
    return values
