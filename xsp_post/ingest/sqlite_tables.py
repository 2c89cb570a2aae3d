"""Captures in: the tables of one SQLite file as Arrow columns, read-only.

Ordinary tables are decoded from the file's pages (`sqlite_pages`), and SQLite is asked for some of their rows. All
others, what looks damaged, and a table of which SQLite says otherwise are read through ADBC; every expression is given
one type with COALESCE, because the driver infers a column's type from its first rows. The rows read are compared with
SQLite's own count.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from xsp_post.base import limits, on_disk
from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding
from xsp_post.ingest import files, sqlite_pages
from xsp_post.ingest.sqlite_pages import asked
from xsp_post.ingest.sqlite_pages.asked import quoted
from xsp_post.ingest.tables import Request, WantedColumn, cast_column, empty_table, resolve, unexpected_type

_BATCH_ROWS = "65536"
_WAL_MODE = 2  # of the read and write version in the header
# SQLite's message may quote a damaged schema, whose bytes are not text for Python.
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
UNREADABLE = (sqlite_pages.Unusual, IndexError, OSError, *DAMAGE)  # as pages; IndexError: beyond the page
# What SQLite says, where it quotes nothing of the file.
_PLAIN_WORDS = ("database disk image is malformed", "file is not a database", "disk I/O error", "out of memory",
                "unable to open database file", "malformed database schema", "unsupported file format")  # fmt: skip
_BUSY_WORDS = ("database is locked", "table is locked", "database is busy")
_PATIENCE_S = 2.0  # with a program that writes


class _Held(NamedTuple):
    """What the file's schema says of one table."""

    columns: frozenset[str]
    never_null: frozenset[str]
    row_number: str  # the name of a row's number in a query, '' where rows have none
    kind: str = "table"
    stored: sqlite_pages.Stored | None = None  # where its rows lie; None: only SQLite knows


class SqliteTables:
    """The tables of one SQLite file, opened read-only; nothing is written to it or beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._uri = self._readable_uri()
        self._schema: dict[str, _Held] = {}
        self._is_utf8 = True
        self._ahead: tuple[list[Request], Future[list[pa.Table]]] | None = None
        self.row_counts: dict[str, int] = {}  # by table: what SQLite counts in the file
        self.findings: list[Finding] = []

    # -- opening ------------------------------------------------------------------------------------

    def _readable_uri(self) -> str:
        real = self.path.resolve()
        uri = "file:" + quote(os.fsencode(real)) + "?mode=ro"  # a name need not be UTF-8
        self._refuse_unmerged(Path(os.fsdecode(os.fsencode(real) + b"-wal")), "write-ahead log")
        if _WAL_MODE in files.head(real, 20)[18:20]:
            # plain read-only mode would create the files of a write-ahead log beside the capture
            uri += "&immutable=1"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if (known := self._damaged(error)).code == "capture-locked":
                raise known from error
            self._refuse_unmerged(Path(os.fsdecode(os.fsencode(real) + b"-journal")), "rollback journal")
            raise self._damaged(error) from error
        except DAMAGE as error:
            raise self._damaged(error) from error
        return uri

    def _refuse_unmerged(self, beside: Path, what: str) -> None:
        """A log that lies beside a database holds changes of it: without them the file is another state."""
        try:
            size_bytes = beside.stat().st_size
        except OSError:
            return
        if size_bytes:
            raise CaptureError(
                f"{self.path}: a {what} of {size_bytes:,} bytes lies beside it, whose changes are not in the file",
                code="capture-unmerged",
                hint="close the program that writes it, or merge it: sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'",
            )

    def _damaged(self, error: BaseException) -> CaptureError:
        said = str(error)
        if "too big" in said:
            return self._too_long("a value")
        if any(words in said for words in _BUSY_WORDS):
            return CaptureError(f"{self.path}: another program is writing to it", code="capture-locked")
        known = next((words for words in _PLAIN_WORDS if words in said), "")
        reason = "its schema is damaged" if isinstance(error, UnicodeDecodeError) else known
        return CaptureError(
            f"{self.path}: not an intact SQLite database ({reason or 'SQLite cannot read it'})", code="capture-damaged"
        )

    def connect(self) -> sqlite3.Connection:
        """A read-only connection whose text is decoded tolerantly (captures hold other code pages)."""
        connection = sqlite3.connect(self._uri, uri=True, timeout=_PATIENCE_S)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if hasattr(connection, "setlimit") and not limits.are_lifted():  # Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.EVENT_CHARACTERS)
        return connection

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The same, what SQLite says of damage as `CaptureError`."""
        try:
            with closing(self.connect()) as connection:
                yield connection
        except DAMAGE as error:
            raise self._damaged(error) from error

    # -- the schema ---------------------------------------------------------------------------------

    def tables(self) -> frozenset[str]:
        if not self._schema:
            with self._connected() as connection:
                names = connection.execute(
                    "SELECT name, type, rootpage FROM sqlite_master WHERE type IN ('table', 'view')"
                ).fetchall()
                self._is_utf8 = connection.execute("PRAGMA encoding").fetchone()[0] == "UTF-8"
                for name, kind, root_page in names:
                    self._schema[name] = _held(connection, name, kind, root_page)
        return frozenset(self._schema)

    def columns(self, table: str) -> frozenset[str]:
        """Column names; empty when the table is not there. CaptureError for a view of that name: a query in the
        file decides what it holds, and whether it ever ends."""
        self.tables()
        held = self._schema.get(table)
        if held is None:
            return frozenset()
        if held.kind != "table":
            raise CaptureError(f"{self.path}: {table} is a {held.kind}, not a table", code="capture-view")
        return held.columns

    # -- rows ---------------------------------------------------------------------------------------

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple[Any, ...]]:
        """Small tables as Python rows: the wanted columns, NULL where a column is not there."""
        table = resolve(self.tables(), table)
        have = self.columns(table)
        if not have:
            return []
        select = ", ".join(quoted(c) if c in have else "NULL" for c in columns)
        with self._connected() as connection:
            return connection.execute(f"SELECT {select} FROM {quoted(table)} LIMIT {int(limit)}").fetchall()

    def read_ahead(self, requests: Sequence[Request]) -> None:
        """Begin to read now; the next `read` of the same requests takes the result. For work that can be done
        meanwhile (importing half the program takes as long as reading half a million rows)."""
        pool = ThreadPoolExecutor(1, initializer=on_disk.use)
        self._ahead = list(requests), pool.submit(self._read_now, list(requests))
        pool.shutdown(wait=False)

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        if self._ahead is not None and self._ahead[0] == list(requests):
            (_, future), self._ahead = self._ahead, None
            return future.result()
        return self._read_now(requests)

    def _read_now(self, requests: Sequence[Request]) -> list[pa.Table]:
        # one table after the other: threads that decode would spend a fifth more on waiting for one another
        return [self._read_one(one) if self.columns(one.table) else empty_table(one) for one in requests]

    def _read_one(self, request: Request) -> pa.Table:
        if request.where:
            some, self.row_counts[request.table] = self._fetch(
                request, f"{self._select(request)} WHERE {request.where}"
            )
            return some
        count = self.row_counts[request.table] = self._count(request.table)
        table = self._decode(request, count)
        return self._read_by_sqlite(request, count) if table is None else table

    def _decode(self, request: Request, count: int, pages: np.ndarray | None = None) -> pa.Table | None:
        """The rows decoded from the file's pages, ``count`` as SQLite says; None where it has to read them. ``pages``:
        only these."""
        stored = self._schema[request.table].stored
        if stored is None:
            return None
        try:
            with self.opened() as (connection, file):
                pages = file.leaves(stored.root_page) if pages is None else pages
                places = asked.sample(count)
                if request.keep is None:
                    table, row_numbers = sqlite_pages.read_table(file, stored, request, count, pages, places)
                else:
                    table, numbers = sqlite_pages.read_kept(file, stored, request, request.keep, count, pages)
                    places = asked.sample(table.num_rows)
                    row_numbers = numbers[places].tolist()
                query = f"{self._select(request)} WHERE {self._schema[request.table].row_number} = ?"
                if asked.is_confirmed(connection, query, request, table.take(pa.array(places)), row_numbers):
                    return table
        except UNREADABLE:
            return None
        self.findings.append(finding("decoded-otherwise", count=count, example=request.table))
        return None

    @contextmanager
    def opened(self) -> Iterator[tuple[sqlite3.Connection, sqlite_pages.PageFile]]:
        """The file's pages, while nobody may write."""
        with closing(self.connect()) as connection, closing(sqlite_pages.PageFile(self.path)) as file:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield connection, file

    def _read_by_sqlite(self, request: Request, count: int) -> pa.Table:
        """All rows from first to last page. CaptureError when fewer come than SQLite counts, or for an endless text."""
        self._refuse_long(request.table)
        table, rows = self._fetch(request, self._select(request))
        if rows != count:
            raise CaptureError(
                f"{self.path}: of {count:,} rows of {request.table} only {rows:,} can be read", code="capture-rows-lost"
            )
        return table

    def _refuse_long(self, table: str) -> None:
        """One text of some hundred megabytes is copied by each step that meets it."""
        stored = self._schema[table].stored
        if stored is None or os.path.getsize(self.path) <= limits.EVENT_CHARACTERS or limits.are_lifted():
            return
        with suppress(sqlite_pages.Unusual, IndexError, OSError), closing(sqlite_pages.PageFile(self.path)) as file:
            if (length := sqlite_pages.longest_row(file, stored)) > limits.EVENT_CHARACTERS:
                raise self._too_long(f"a row of {table} with {length:,} bytes")

    def _too_long(self, what: str) -> CaptureError:
        return limits.over_limit(self.path, f"{what} is very long", f"{limits.EVENT_CHARACTERS:,} bytes")

    def _count(self, table: str) -> int:
        """Rows of a table, by a walk over all its pages (an index might have been left behind by an edit)."""
        with self._connected() as connection:
            return int(connection.execute(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED").fetchone()[0])

    def _select(self, request: Request) -> str:
        held = self._schema[request.table]
        row_number = held.row_number or "row_number() OVER ()"
        select = ", ".join(
            f"{_expression(w, held, row_number, self._is_utf8)} AS {quoted(w.alias)}" for w in request.wants
        )
        return f"SELECT {select} FROM {quoted(request.table)}"

    def _fetch(self, request: Request, query: str) -> tuple[pa.Table, int]:
        """The rows of one query that are kept, and how many there were."""
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


def _held(connection: sqlite3.Connection, name: str, kind: str, root_page: int) -> _Held:
    """A view is not looked into; neither is a virtual table, whose module may be any program."""
    if kind == "table" and not root_page:
        kind = "virtual table"
    if kind != "table":
        return _Held(frozenset(), frozenset(), "", kind)
    info = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
    columns = frozenset(row[1] for row in info)
    row_number = asked.row_number_name(connection, name, columns)
    return _Held(
        columns, frozenset(row[1] for row in info if row[3]), row_number,
        stored=asked.stored(connection, name, info, root_page) if row_number else None,
    )  # fmt: skip


def _typed(path: Path, request: Request, batches: pa.RecordBatchReader) -> tuple[pa.Table, int]:
    """The batches with the wanted types, each narrowed as it comes; an empty slice has no types of its own."""
    wanted = pa.schema([(w.alias, w.arrow_type) for w in request.wants])
    rows = 0
    try:
        parts = []
        for batch in batches:
            if batch.num_rows:
                columns = [
                    cast_column(path, request.table, want, batch.column(k), safe=not want.is_narrow)
                    for k, want in enumerate(request.wants)
                ]
                part = pa.record_batch(columns, schema=wanted)
                rows += batch.num_rows
                parts.append(part if request.keep is None else part.filter(pa.array(request.keep(part))))
        return pa.Table.from_batches(parts, schema=wanted), rows
    except pa.ArrowInvalid as error:  # the driver's own: a type that changes between its batches
        raise unexpected_type(path, _place_of(request, error)) from error


def _place_of(request: Request, error: pa.ArrowException) -> str:
    """The table, and the column where the driver names it by its number or alias."""
    said = str(error)
    column = next((w.column for w in request.wants if f"'{w.alias}'" in said or f'"{w.alias}"' in said), "")
    return f"{request.table}.{column}" if column else request.table


def _expression(want: WantedColumn, held: _Held, row_number: str, is_utf8: bool) -> str:
    literal = "x''" if isinstance(want.default, bytes) else repr(want.default)
    if want.column == "ROWID":
        return row_number
    column = want.name_in(held.columns)
    if not column:
        return literal
    if isinstance(want.default, bytes):
        # of UTF-8 the bytes, which need not be text; other encodings SQLite translates
        return f"CAST(COALESCE({quoted(column)}, '') AS {'BLOB' if is_utf8 else 'TEXT'})"
    if isinstance(want.default, float):
        # NaN cannot be written in SQL: −∞ stands for it and for NULL (see `floats`)
        return f"COALESCE(CAST({quoted(column)} AS REAL), -9e999)"
    if column in held.never_null:
        return quoted(column)
    return f"COALESCE({quoted(column)}, {literal})"
