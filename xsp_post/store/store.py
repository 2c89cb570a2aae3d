"""Analysis → one SQLite file, ``<stem>.xsp.sqlite``, that any SQLite tool opens (docs/architecture.md).

How large tables are split out is in `store.layout`. Rows are written by Arrow, everything else with sqlite-utils.
`SCHEMA_VERSION` is raised whenever a table changes; stores of `READ_VERSIONS` are read. History:

1  first
2  findings have title and cause; device time with its parts (copy_ns replaces memory_ns), balance over all operations;
   dependencies, replays, critical_path, collectives: what a replay needs and tells;
   idle, idle_causes, device_windows: why devices waited; unknown integers are NULL, not -1;
   memory, memory_devices, memory_timeline: who allocated what, what was live when;
   gpu_samples, gpu_timeline: sampled metrics of the GPU;
   fleet has memory_peak_bytes and memory_reserved_bytes;
   a table of 10,000 rows or more is a view over its rows and strings (one that is a table is read as well)
3  large tables have bases, and columns that are differences to others (one without is read as well); only
   kernel_metrics has an index; platforms: languages and frameworks that a capture shows (one without is read as well);
   stretches: where in a large table which times are (without it all is read);
   execution_candidates have likeness, cost and confidence (one without is read as well);
   memory_operations say their layer (where they do not, that of their range is taken); kernels have source_line;
   kernel_shares: kernels of several modules (without it all kernels count whole); dependencies name kernels of a graph;
   iterations have tokens a second and shares of kernel time (one without is read as well);
   operations say how much of their time measured executions have (without it shares of all executions are taken);
   captures say how long steps took before and within a recording (without it nothing is known of the former);
   critical_path is of all measured executions (before: of one);
   dependencies have result_wait (one without is read as well: jobs on CPUs cannot be replayed then)
"""

import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post import __version__
from xsp_post.base import on_disk
from xsp_post.base.errors import CaptureError
from xsp_post.base.output import atomic_output
from xsp_post.base.text_safety import shell_command
from xsp_post.ingest.tables import NULL, Request, WantedColumn, floats
from xsp_post.model.capture import is_run_directory
from xsp_post.model.results import Analysis, Results, unknown_column
from xsp_post.model.schemas import TABLES, optional_columns
from xsp_post.model.schemas.words import QUESTIONS
from xsp_post.store.layout import (
    INDEXED,
    LAYOUTS,
    LEAST_ROWS,
    STRETCH_COLUMNS,
    STRETCHES,
    Layout,
    Strings,
    is_part,
    is_split,
    layout_of,
    plain_table,
    split_table,
    sql_type,
    stretches,
    text_array,
)
from xsp_post.store.numbers import StoredName, decoded, sources_of

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA_VERSION = 3
READ_VERSIONS = (2, 3)  # of 2 every part is read as it is

_HELD = "tables"  # key of xsp_meta: every table that was written, with its columns
_ALWAYS_THERE = ("captures", "findings")  # an analysis of any kind of source has them
_MOST_IDS, _MOST_RUNS = 20_000, 200  # in one query
_PRIMARY_KEYS = {"captures": "capture_id"}
_UNJOURNALED = ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF")  # it becomes visible when it is whole
_WRITTEN_EARLY = ("kernels", "nodes")  # the two that take time: written while the analyses are computed


# -- writing --------------------------------------------------------------------------------------


def write_store(results: Results, path: Path, *, force: bool = False) -> None:
    """Write all tables. Raises `OutputError` (exists without force, disk full, no permission): then nothing is left."""
    with StoreWriter(path, force=force) as writer:
        made = results.complete()
        writer.finish(Analysis({name: made.frame(name) for name in made.tables()}))


class StoreWriter:
    """Writes a store, the large tables in the background if `begin` is given them early.

    A context: what was written becomes ``path`` when the block ends well, and vanishes when it does not.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._output = atomic_output(path, force)
        self._strings = Strings()
        self._pool = ThreadPoolExecutor(1, initializer=on_disk.use)
        self._early: dict[str, pd.DataFrame] = {}
        self._pending: Future[None] | None = None
        self._columns: dict[str, list[str]] = {}  # by table: what `Store` expects to find again
        self._stretches: list[pa.Table] = []

    def __enter__(self) -> "StoreWriter":
        self._path = self._output.__enter__()
        try:
            self._describe()
        except BaseException:
            self.__exit__(*sys.exc_info())  # a full disk is said as one, and nothing stays
            raise
        return self

    def _describe(self) -> None:
        with self._open() as database:
            database.execute("CREATE TABLE xsp_meta (key TEXT PRIMARY KEY, value TEXT) -- what wrote this store")
            meta = {"schema_version": str(SCHEMA_VERSION), "writer": f"xsp-post {__version__}"}
            database.table("xsp_meta").insert_all({"key": k, "value": v} for k, v in meta.items())

    def __exit__(self, *failure: Any) -> bool | None:
        if self._pending is not None:
            wait([self._pending])
        self._pool.shutdown()
        return self._output.__exit__(*failure)

    def begin(self, frames: Mapping[str, pd.DataFrame]) -> None:
        """Start to write the large tables, which must not change any more."""
        self._early = {name: frames[name] for name in _WRITTEN_EARLY if name in frames}
        self._pending = self._pool.submit(self._write, dict(self._early))

    def finish(self, analysis: Analysis) -> None:
        """Write everything that `begin` was not given, texts and indexes."""
        if self._pending is not None:
            self._pending.result()
        changed = [name for name, frame in self._early.items() if analysis.frames.get(name) is not frame]
        if changed:
            raise ValueError(f"{changed} changed while they were written")
        self._write({name: analysis.frames[name] for name in analysis.tables() if name not in self._early})
        texts = text_array(self._strings.texts)
        self._strings = Strings()  # what follows can use the memory
        with self._open() as database:
            database.execute("CREATE TABLE strings (string_id INTEGER PRIMARY KEY, text TEXT) -- texts of large tables")
            _create(database, STRETCHES, STRETCHES, STRETCH_COLUMNS, None)
            held = json.dumps({**self._columns, "strings": ["string_id", "text"]}, separators=(",", ":"))
            database.table("xsp_meta").insert({"key": _HELD, "value": held})
        written = [(STRETCHES, pa.concat_tables(self._stretches))] if self._stretches else []
        self._ingest([("strings", pa.table({"string_id": np.arange(len(texts)), "text": texts})), *written])

    def _write(self, frames: dict[str, pd.DataFrame]) -> None:
        """Write these tables: small ones together, of large ones each alone, so that one at a time is laid out."""
        large = [name for name, frame in frames.items() if len(frame) >= LEAST_ROWS]
        self._write_together({name: frame for name, frame in frames.items() if name not in large})
        for name in large:
            self._write_together({name: frames[name]})

    def _write_together(self, frames: dict[str, pd.DataFrame]) -> None:
        bulk: list[tuple[str, pa.Table]] = []
        with self._open() as database:
            for name, frame in frames.items():
                if not is_split(name, frame):
                    plain = {str(c): sql_type(frame[c]) for c in frame.columns}
                    _create(database, name, name, plain, _PRIMARY_KEYS.get(name))
                    self._columns[name] = list(plain)
                    bulk.append((name, plain_table(frame, optional_columns(name))))
                    continue
                split = split_table(name, frame, self._strings)
                if len(frame) >= LEAST_ROWS and {"start_ns", "iteration_index"} & set(frame):
                    self._stretches.append(stretches(name, frame))
                layout = layout_of(name)
                keys = {layout.rows: layout.key, layout.kinds: layout.kind_id, layout.bases: layout.base_id}
                for table, types, rows in split.parts:
                    _create(database, table, name, types, keys[table])
                    self._columns[table] = list(types)
                    bulk.append((table, rows))
                database.execute(split.view)
        self._ingest(bulk)
        for name in frames.keys() & INDEXED.keys():
            written = layout_of(name).rows if is_split(name, frames[name]) else name
            with self._open() as database:
                for column in INDEXED[name]:
                    database.table(written).create_index([column], f"idx_{written}_{column}")

    @contextmanager
    def _open(self) -> "Iterator[Database]":
        from sqlite_utils import Database

        connection = sqlite3.connect(self._path)
        try:
            for pragma in _UNJOURNALED:
                connection.execute(pragma)
            yield Database(connection)
            connection.commit()
        finally:
            connection.close()

    def _ingest(self, bulk: list[tuple[str, pa.Table]]) -> None:
        """Append Arrow tables to the tables that are there."""
        import adbc_driver_manager as adbc
        import adbc_driver_sqlite

        # without `dbapi`, which imports data sets and file systems of Arrow
        uri = f"file:{quote(os.fsencode(self._path))}"
        try:
            with adbc_driver_sqlite.connect(uri) as driver, adbc.AdbcConnection(driver) as connection:
                for pragma in (*_UNJOURNALED, "PRAGMA locking_mode = EXCLUSIVE"):
                    with adbc.AdbcStatement(connection) as statement:
                        statement.set_sql_query(pragma)
                        statement.execute_update()
                parts = [(table, part) for table, rows in bulk for part in _numbered_by_sqlite(table, rows)]
                for table, rows in parts:
                    if rows.num_rows:
                        with adbc.AdbcStatement(connection) as statement:
                            statement.set_options(**{
                                adbc.INGEST_OPTION_TARGET_TABLE: table,
                                adbc.INGEST_OPTION_MODE: adbc.INGEST_OPTION_MODE_APPEND,
                            })  # fmt: skip
                            statement.bind_stream(rows)
                            statement.execute_update()
        except adbc.Error as error:
            # the owner of outputs knows SQLite's own errors (disk full, no permission)
            raise sqlite3.OperationalError(str(error)) from error


def _numbered_by_sqlite(table: str, rows: pa.Table) -> list[pa.Table]:
    """The rows in parts: where their key counts from 0 on, all but the first leave it to SQLite, which then need not
    look whether the number is there."""
    name = rows.column_names[0]
    if (table, name) not in ((layout.rows, layout.key) for layout in LAYOUTS.values()) or rows.num_rows <= LEAST_ROWS:
        return [rows]
    key = rows.column(0).to_numpy()
    if (key != np.arange(len(key))).any():
        return [rows]
    return [rows.slice(0, 1), rows.slice(1).drop_columns([name])]


def _create(database: "Database", table: str, schema: str, columns: dict[str, str], key: str | None) -> None:
    """CREATE TABLE with each column's meaning as a comment: the schema text documents itself."""
    meaning = {c.name: c.meaning for c in TABLES[schema].columns} if schema in TABLES else {}
    lines, last = [], [*columns][-1]
    for name, kind in columns.items():
        text, primary = _meaning(meaning, name), " PRIMARY KEY" if name == key else ""
        lines.append(f'  "{name}" {kind}{primary}{"," * (name != last)}' + (f" -- {text}" if text else ""))
    title = f" -- {TABLES[schema].title}: one row per {TABLES[schema].one_row_per}" if schema in TABLES else ""
    body = "\n".join(lines)
    database.execute(f'CREATE TABLE "{table}" ({title}\n{body}\n)')


def _meaning(meanings: Mapping[str, str], column: str) -> str:
    name = StoredName.of(column)
    less = [part for part in (name.other, "the base of its rows" if name.is_based else "") if part]
    said = meanings.get(name.own, "")
    return f"{said}; less {' and '.join(less)}" if said and less else said


# -- reading --------------------------------------------------------------------------------------


class _OfABatch(CaptureError, KeyError):
    """A table of one capture, asked of the store of a batch."""

    def __init__(self, path: Path, name: str) -> None:
        stores = path.parent / "stores"
        super().__init__(
            f"{path}: the store of a batch has no table {name}: it holds what many captures have in common",
            code="store-of-batch",
            hint=f"{shell_command('xsp-post', 'table', 'fleet_models', path)} shows it; "
            f"each capture's store lies in {shell_command(stores)}",
        )


class Store(Results):
    """A store opened read-only: frames by table name, texts as categoricals."""

    def __init__(self, path: Path) -> None:
        from xsp_post.ingest.sqlite_tables import SqliteTables

        self.path = path
        self._tables = SqliteTables(path)
        if "xsp_meta" not in self._tables.tables():
            raise CaptureError(f"{path}: is not a store made by xsp-post", code="capture-unknown-format")
        self.meta = dict(self._tables.rows("xsp_meta", ("key", "value")))
        if (version := self.meta.get("schema_version")) not in [str(one) for one in READ_VERSIONS]:
            said = f"has schema version {version}, this xsp-post reads version {SCHEMA_VERSION}"
            raise self._unusable(said, "store-version")
        self._strings: np.ndarray | None = None
        # the store of a batch holds the tables of many captures, not those of one
        there = () if "fleet" in self.tables() else _ALWAYS_THERE
        missing = [name for name in there if name not in self.tables()]
        if missing:
            raise self._unusable(f"lacks the table {missing[0]}: it is incomplete", "store-table-missing")
        self._require_what_was_written()

    def _require_what_was_written(self) -> None:
        """Raise `CaptureError` naming the first table or column that was written and is not there any more."""
        try:
            held = json.loads(str(self.meta.get(_HELD)))
            written = {str(table): [str(column) for column in columns] for table, columns in held.items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self._incomplete("list of tables") from None
        for table, columns in written.items():
            if table not in self._tables.tables():
                raise self._incomplete(f"table {table}")
            there = self._tables.columns(table)
            for column in columns:
                if column not in there:
                    raise self._incomplete(f"column {table}.{column}")

    def _incomplete(self, what: str) -> CaptureError:
        return self._unusable(f"lacks the {what}: it was edited or is damaged", "store-table-missing")

    def _damaged(self, what: str) -> CaptureError:
        return self._unusable(f"was edited or is damaged: {what}", "store-damaged")

    def _unusable(self, why: str, code: str) -> CaptureError:
        return CaptureError(f"{self.path}: the store {why}", code=code, hint=f"make it again: {self._remake()}")

    def _remake(self) -> str:
        """The command that makes this store again, with the sources as far as the file names them."""
        if "fleet" in self._tables.tables():
            return shell_command("xsp-post", "batch", "FOLDER", "-o", self.path.parent)
        sources: list[Any] = [self.path.parent]
        if not is_run_directory(self.path.parent):
            sources = []
            with suppress(CaptureError):
                sources = [name for (name,) in self._tables.rows("captures", ("source_name",)) if name]
        named = list(dict.fromkeys(map(str, sources)))[:20] or ["CAPTURE"]
        return shell_command("xsp-post", "ingest", *named, "-o", self.path, "--force")

    def tables(self) -> list[str]:
        """Names of the tables that xsp-post writes; one that somebody added may be called anything, also a path."""
        there = self._tables.tables()
        return sorted(name for name in TABLES if there & {name, layout_of(name).rows})

    def near(self, name: str, low_ns: int, high_ns: int, iterations: tuple[int, int] | None = None) -> pd.DataFrame:
        where = "least_start_ns > ? OR most_end_ns < ?"
        numbers: list[int] = [high_ns, low_ns]
        if iterations is not None:
            where += " OR (least_iteration >= 0 AND (least_iteration > ? OR most_iteration < ?))"
            numbers += [iterations[1], iterations[0]]
        if STRETCHES not in self._tables.tables():
            return self.frame(name)
        with closing(self._tables.connect()) as connection:
            query = f"SELECT first_row, last_row, {where} FROM {STRETCHES} WHERE of_table = ? ORDER BY first_row"
            found = connection.execute(query, (*numbers, name)).fetchall()
        if not found:
            return self.frame(name)
        kept = np.flatnonzero([not is_out for _, _, is_out in found])
        begins = np.flatnonzero(np.diff(kept, prepend=-2) != 1)
        ends = np.append(begins[1:], len(kept))[: len(begins)] - 1
        if len(begins) > _MOST_RUNS:
            begins, ends = begins[:1], ends[-1:]
        runs = [f"rowid BETWEEN {found[kept[a]][0]} AND {found[kept[b]][1]}" for a, b in zip(begins, ends)]
        return self._rows(name, None, " OR ".join(runs) or "0")

    def numbered(self, name: str, column: str, ids: np.ndarray) -> pd.DataFrame:
        layout = layout_of(name)
        if layout.key != column or layout.rows not in self._tables.tables() or len(ids) > _MOST_IDS:
            return super().numbered(name, column, ids)
        return self._rows(name, None, f"rowid IN ({', '.join(map(str, ids.tolist()))})")

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        return self._rows(name, columns)

    def _rows(self, name: str, columns: Sequence[str] | None, where: str = "") -> pd.DataFrame:
        """A table; where it is laid out as a large one, only rows that meet an SQL condition."""
        if name not in self.tables():
            raise _OfABatch(self.path, name) if "fleet" in self._tables.tables() else KeyError(name)
        declared = [c.name for c in TABLES[name].columns]
        # as with tables: a column that somebody added may be called anything
        asked = declared if columns is None else list(columns)
        stored = self._stored(name, set(asked), where)
        held = {part.own for part in stored} | set(layout_of(name).computed)
        later = [column for column in asked if column in declared and column not in held]  # than this store
        texts = {part.own: values for part, values in stored.items() if not isinstance(values, np.ndarray)}
        numbers = {part: values for part, values in stored.items() if part.own not in texts}
        try:
            known = texts | decoded(
                numbers, [column for column in asked if column not in texts and column not in later],
                optional_columns(name),
            )  # fmt: skip
        except KeyError as missing:
            if missing.args[0] in asked:
                raise
            raise self._incomplete(f"column {name}.{missing.args[0]}") from None
        if declared[0] in later:
            raise self._incomplete(f"column {name}.{declared[0]}")
        count = len(next(iter(known.values()), ()) if known else self._rows(name, declared[:1], where))
        known |= {column: unknown_column(name, column, count) for column in later}
        frame = pd.DataFrame({column: known[column] for column in asked}, copy=False)
        for column in [c.name for c in TABLES[name].columns if c.dtype == "bool"]:
            if column in frame:
                frame[column] = frame[column].to_numpy() == 1
        self._require_unique(name, frame)
        self._require_totals(name, frame)
        return frame

    def _stored(self, name: str, asked: set[str], where: str) -> dict[StoredName, Any]:
        """What the file holds of some columns: numbers, `NULL` for unknown, and texts as categoricals."""
        layout = layout_of(name)
        if layout.rows not in self._tables.tables():  # a small table is not split
            return self._part(name, name, self._names_of(name), asked)
        names = self._names_of(layout.rows)
        others = self._names_of(layout.kinds) if any(column.own == layout.kind_id for column in names) else {}
        needed = sources_of(asked, [*names, *others])
        is_shared = any(column.own in needed for column in others)
        is_based = any(column.is_based and column.own in needed for column in (*names, *others))
        places = {layout.kind_id: is_shared, layout.base_id: is_based}
        rows = self._part(
            name, layout.rows, names, needed.union(number for number, is_used in places.items() if is_used), where
        )
        if is_shared:
            kinds = self._with_texts(self._part(name, layout.kinds, others, needed | {layout.kind_id}))
            kind = self._places(layout, rows, kinds, layout.kind_id)
            rows |= {column: values.take(kind) for column, values in kinds.items()}
        if is_based:
            bases = self._part(name, layout.bases, self._names_of(layout.bases), needed | {layout.base_id})
            base = self._places(layout, rows, bases, layout.base_id)
            for column in [column for column in rows if column.is_based]:
                if column.without_base not in bases:
                    raise self._incomplete(f"column {layout.bases}.{column.without_base.text}")
                values = rows.pop(column)
                of_rows = bases[column.without_base][base]
                rows[column.without_base] = np.where(values == NULL, NULL, values + of_rows)
        return self._with_texts(rows)

    def _with_texts(self, columns: dict[StoredName, Any]) -> dict[StoredName, Any]:
        """Columns with texts in place of their ids."""
        return {
            name: self._categorical(values) if name.is_text and isinstance(values, np.ndarray) else values
            for name, values in columns.items()
        }

    def _places(
        self, layout: Layout, rows: dict[StoredName, Any], part: dict[StoredName, Any], number: str
    ) -> np.ndarray:
        """Which row of a part each row points to; the numbers are taken out of both."""
        numbers, places = part.pop(StoredName(number)), rows.pop(StoredName(number), np.full(1, NULL))
        self._require_order(numbers, number.replace("_id", "s"))
        self._require_range(places, len(numbers), layout.rows)
        return places

    def _names_of(self, table: str) -> dict[StoredName, str]:
        """The columns of a table of the file, and the type that each is declared with."""
        if not self._tables.columns(table):  # of a view SQLite may know none
            raise self._incomplete(f"table {table}")
        with closing(self._tables.connect()) as connection:
            found = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        names = {(StoredName.of(row[1]) if is_part(table) else StoredName(row[1])): row[2] for row in found}
        if len({name.own for name in names}) < len(found):
            raise self._damaged(f"a column of {table} is there twice")
        return names

    def _part(
        self, of: str, table: str, names: dict[StoredName, str], needed: set[str], where: str = ""
    ) -> dict[StoredName, Any]:
        """The wanted columns of one table of the file: numbers and ids of texts; texts of a table that is not split."""
        wants = []
        wanted = {name: kind for name, kind in names.items() if name.own in needed}
        for name, kind in wanted.items():
            default: int | float | bytes = b"" if kind == "TEXT" else float("nan") if kind == "FLOAT" else NULL
            wants.append(WantedColumn(name.text, name.text, -1 if name.is_text else default, is_narrow=name.is_text))
        rows = self._tables.read([Request(table, tuple(wants), where=where)])[0]
        data: dict[StoredName, Any] = {}
        for name, want in zip(wanted, wants):
            values = rows.column(want.alias)
            if isinstance(want.default, bytes):
                texts = [v.decode("utf-8", "replace") for v in values.to_pylist()]
                data[name] = pd.Series(np.array(texts, object), dtype=object)
            else:
                data[name] = floats(values) if isinstance(want.default, float) else values.to_numpy()
            self._require_type(of, name, data[name])
        return data

    def _require_range(self, numbers: np.ndarray, count: int, table: str) -> None:
        """Raise `CaptureError` where a row points to a row that is not there."""
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise self._damaged(f"rows of {table} point to rows that are not there")

    def _require_type(self, name: str, column: StoredName, values: Any) -> None:
        """Raise `CaptureError` where a column holds texts that was written as numbers, or numbers that were texts."""
        written = {one.name: one.dtype for one in TABLES[name].columns}.get(column.own, "int64")
        is_written_as_text = written == "str" and not column.is_text
        if len(values) and isinstance(values, np.ndarray) == is_written_as_text:
            raise self._damaged(f"the column {name}.{column.own} is of another type")

    def _require_order(self, numbers: pd.Series | np.ndarray, table: str) -> None:
        """Raise `CaptureError` where rows that others point to by number are not numbered from 0 on."""
        if (numbers != np.arange(len(numbers))).any():
            raise self._damaged(f"rows of {table} are missing or have other numbers")

    def _require_unique(self, name: str, frame: pd.DataFrame) -> None:
        """Raise `CaptureError` where two rows are the same path of a capture."""
        keys = ["capture_id", "path_id"]
        if name == "paths" and set(keys) <= set(frame) and frame.duplicated(keys).any():
            raise self._damaged("rows of paths have the same path_id")

    def _require_totals(self, name: str, frame: pd.DataFrame) -> None:
        """Raise `CaptureError` where a capture has not one total for each question of the balance."""
        keys = ["capture_id", "question"]
        if name != "balance" or not {*keys, "attribution"} <= set(frame):
            return
        totals = frame.loc[frame["attribution"] == "total", keys].value_counts()
        captures = self.frame("captures", ["capture_id"])["capture_id"]
        wanted = pd.MultiIndex.from_product([captures.unique(), list(QUESTIONS)], names=keys)
        if not totals.reindex(wanted, fill_value=0).eq(1).all():
            raise self._damaged("a capture has no total in balance, or two")

    def _categorical(self, ids: np.ndarray) -> pd.Categorical:
        if self._strings is None:
            wants = WantedColumn("string_id", "string_id"), WantedColumn("text", "text", b"")
            table = self._tables.read([Request("strings", wants)])[0]
            self._require_order(table.column("string_id").to_numpy(), "strings")
            texts = [v.decode("utf-8", "replace") for v in table.column("text").to_pylist()]
            self._strings = np.array([*texts, ""], object)  # the last: of −1, which is a missing text
        self._require_range(ids[ids != -1], len(self._strings) - 1, "strings")
        codes, used = pd.factorize(ids)
        again, texts = pd.factorize(self._strings[used])  # an edited store may hold a text twice
        return pd.Categorical.from_codes(
            again[codes] if len(texts) < len(used) else codes, pd.Index(texts, dtype=object)
        )


open_store = Store  # raises `CaptureError` when the file is none or of another schema version
