"""Analysis → one SQLite file, ``<stem>.xsp.sqlite``, that any SQLite tool opens (docs/architecture.md).

How large tables are split out is in `store.layout`, how they become pages of the file in `store.pages`. Other rows are
written by Arrow, everything else with sqlite-utils.
`SCHEMA_VERSION` is raised whenever a table changes; a store of another version is refused. History:

1  first
2  findings have title and cause; device time with its parts (copy_ns replaces memory_ns), balance over all operations;
   dependencies, replays, critical_path, collectives: what a replay needs and tells;
   idle, idle_causes, device_windows: why devices waited; unknown integers are NULL, not -1;
   memory, memory_devices, memory_timeline: who allocated what, what was live when;
   gpu_samples, gpu_timeline: sampled metrics of the GPU;
   fleet has memory_peak_bytes and memory_reserved_bytes;
   a table of 10,000 rows or more is a view over its rows and strings (one that is a table is read as well)
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_numeric_dtype

from xsp_post import __version__
from xsp_post.base.errors import CaptureError
from xsp_post.base.output import atomic_output
from xsp_post.base.text_safety import shell_command
from xsp_post.model.capture import is_run_directory
from xsp_post.model.results import Analysis, Results
from xsp_post.schemas import TABLES, optional_columns
from xsp_post.schemas.words import QUESTIONS
from xsp_post.store.layout import (
    STRING,
    Strings,
    is_part,
    is_split,
    layout_of,
    plain_table,
    split_table,
    sql_type,
)
from xsp_post.store.pages import LEAST_ROWS, append_rows, can_append

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA_VERSION = 2

_HELD = "tables"  # key of xsp_meta: every table that was written, with its columns
_ALWAYS_THERE = ("captures", "findings")  # an analysis of any kind of source has them
_PRIMARY_KEYS = {"captures": "capture_id"}
# Each million entries cost a fifth of a second; the kernels of a node are found by a scan in less than half of that.
_INDEXES = {
    "node_rows": ("parent_id",),
    "kernel_rows": ("layer_index",),
    "layer_rows": ("layer_index",),
    "kernel_metrics": ("kernel_id",),
    "kernel_metric_rows": ("kernel_id",),
}
_WRITTEN_EARLY = ("kernels", "nodes")  # the two that take time: written while the analyses are computed


# -- writing --------------------------------------------------------------------------------------


def write_store(analysis: Analysis, path: Path, *, force: bool = False) -> None:
    """Write all tables. Raises `OutputError` (exists without force, disk full, no permission): then nothing is left."""
    with StoreWriter(path, force=force) as writer:
        writer.finish(analysis)


class StoreWriter:
    """Writes a store, the large tables in the background if `begin` is given them early.

    A context: what was written becomes ``path`` when the block ends well, and vanishes when it does not.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._output = atomic_output(path, force)
        self._strings = Strings()
        self._pool = ThreadPoolExecutor(1)
        self._early: dict[str, pd.DataFrame] = {}
        self._pending: Future[None] | None = None
        self._columns: dict[str, list[str]] = {}  # by table: what `Store` expects to find again

    def __enter__(self) -> StoreWriter:
        self._path = self._output.__enter__()
        try:
            self._describe()
        except BaseException:
            self.__exit__(*sys.exc_info())  # a full disk is said as one, and nothing stays
            raise
        return self

    def _describe(self) -> None:
        with self._open() as database:
            database.execute("PRAGMA page_size = 16384")
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
        assert not changed, changed
        self._write({name: analysis.frames[name] for name in analysis.tables() if name not in self._early})
        texts = pa.array(self._strings.texts, pa.string())
        self._strings = Strings()  # what follows can use the memory
        with self._open() as database:
            database.execute("CREATE TABLE strings (string_id INTEGER PRIMARY KEY, text TEXT) -- texts of large tables")
            held = json.dumps({**self._columns, "strings": ["string_id", "text"]}, separators=(",", ":"))
            database.table("xsp_meta").insert({"key": _HELD, "value": held})
            (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'strings'").fetchone()
        rows = pa.table({"string_id": np.arange(len(texts)), "text": texts})
        if not (can_append(rows) and append_rows(self._path, root, rows, "string_id")):
            self._ingest([("strings", rows)])

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
                for table, types, rows in split.parts:
                    layout = layout_of(name)
                    key = layout.key if table == layout.rows else layout.kind_id
                    _create(database, table, name, types, key)
                    self._columns[table] = list(types)
                    bulk.append((table, rows))
                database.execute(split.view)
            laid_out = {name: database.table(name).pks[0] for name, rows in bulk if can_append(rows)}
            _create_indexes(database, list(laid_out))
            roots = dict(database.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
        left = []
        for table, rows in bulk:
            indexes = {
                c: roots[_index_name(table, c)] for c in _INDEXES.get(table, ()) if _index_name(table, c) in roots
            }
            if table not in laid_out or not append_rows(self._path, roots[table], rows, laid_out[table], indexes):
                left.append((table, rows))
        if left:
            self._ingest(left)
        if len(laid_out) < len(bulk):
            with self._open() as database:
                _create_indexes(database, [table for table, _ in bulk if table not in laid_out])

    @contextmanager
    def _open(self) -> Iterator[Database]:
        from sqlite_utils import Database

        connection = sqlite3.connect(self._path)
        try:
            # the file becomes visible only when it is whole: no journal needed
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
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
                for pragma in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF"):
                    with adbc.AdbcStatement(connection) as statement:
                        statement.set_sql_query(pragma)
                        statement.execute_update()
                for table, rows in bulk:
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


def _create(database: Database, table: str, schema: str, columns: dict[str, str], key: str | None) -> None:
    """CREATE TABLE with each column's meaning as a comment: the schema text documents itself."""
    meaning = {c.name: c.meaning for c in TABLES[schema].columns} if schema in TABLES else {}
    lines = []
    for position, (name, kind) in enumerate(columns.items()):
        text = meaning.get(name) or meaning.get(name.removesuffix(STRING), "")
        comma = "," if position < len(columns) - 1 else ""
        primary = " PRIMARY KEY" if name == key else ""
        lines.append(f'  "{name}" {kind}{primary}{comma}' + (f" -- {text}" if text else ""))
    title = f" -- {TABLES[schema].title}: one row per {TABLES[schema].one_row_per}" if schema in TABLES else ""
    body = "\n".join(lines)
    database.execute(f'CREATE TABLE "{table}" ({title}\n{body}\n)')


def _index_name(table: str, column: str) -> str:
    return f"idx_{table}_{column}"


def _create_indexes(database: Database, tables: list[str]) -> None:
    for table in tables:
        for column in _INDEXES.get(table, ()):
            if column in database[table].columns_dict:
                database.table(table).create_index([column], _index_name(table, column))


# -- reading --------------------------------------------------------------------------------------


class _OfABatch(CaptureError, KeyError):
    """A table of one capture, asked of the store of a batch."""

    def __init__(self, path: Path, name: str) -> None:
        stores = path.parent / "stores"
        super().__init__(
            f"{path}: the store of a batch has no table {name}: it holds what many captures have in common",
            code="store-of-batch",
            hint=f"{shell_command(['xsp-post', 'table', 'fleet_models', path])} shows it; "
            f"each capture's store lies in {shell_command([stores])}",
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
        if self.meta.get("schema_version") != str(SCHEMA_VERSION):
            raise CaptureError(
                f"{path}: the store has schema version {self.meta.get('schema_version')}, "
                f"this xsp-post reads version {SCHEMA_VERSION}",
                code="store-version",
                hint=f"make it again: {self._remake()}",
            )
        self._strings: np.ndarray | None = None
        # the store of a batch holds the tables of many captures, not those of one
        there = () if "fleet" in self.tables() else _ALWAYS_THERE
        missing = [name for name in there if name not in self.tables()]
        if missing:
            raise CaptureError(
                f"{path}: the store lacks the table {missing[0]}: it is incomplete",
                code="store-table-missing",
                hint=f"make it again: {self._remake()}",
            )

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
        return CaptureError(
            f"{self.path}: the store lacks the {what}: it was edited or is damaged",
            code="store-table-missing",
            hint=f"make it again: {self._remake()}",
        )

    def _remake(self) -> str:
        """The command that makes this store again, with the sources as far as the file names them."""
        if "fleet" in self._tables.tables():
            return shell_command(["xsp-post", "batch", "FOLDER", "-o", self.path.parent])
        if is_run_directory(self.path.parent):
            sources = [str(self.path.parent)]
        else:
            sources = self._source_names() or ["CAPTURE"]
        return shell_command(["xsp-post", "ingest", *sources, "-o", self.path, "--force"])

    def _source_names(self) -> list[str]:
        try:
            names = [str(name) for (name,) in self._tables.rows("captures", ("source_name",))]
        except CaptureError:
            return []
        return [name for name in dict.fromkeys(names) if name][:20]

    def tables(self) -> list[str]:
        """Names of the tables that xsp-post writes; one that somebody added may be called anything, also a path."""
        there = self._tables.tables()
        return sorted(name for name in TABLES if there & {name, layout_of(name).rows})

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self.tables():
            raise _OfABatch(self.path, name) if "fleet" in self._tables.tables() else KeyError(name)
        layout = layout_of(name)
        computed = {c for c, _ in layout.computed}
        declared = [c.name for c in TABLES[name].columns]
        # as with tables: a column that somebody added may be called anything
        needed = asked = set(declared if columns is None else columns)
        if asked & computed:
            needed = asked | {"start_ns", "end_ns", "launch_start_ns"}
            needed |= {"kernel_ns", "copy_ns", "graph_ns"} if "device_ns" in asked & computed else set()
        # a small table is not split
        frame = self._part(layout.rows if layout.rows in self._tables.tables() else name, needed, layout.kind_id)
        self._require_types(name, frame, layout.kind_id)
        if layout.kind_id in frame:
            kinds = self._part(layout.kinds, needed, layout.kind_id)
            self._require_types(name, kinds, layout.kind_id)
            self._require_order(kinds[layout.kind_id], layout.kinds)
            kind = frame.pop(layout.kind_id).to_numpy()
            for column in kinds.columns:
                if column != layout.kind_id:
                    self._require_range(kind, len(kinds), layout.rows)
                    frame[column] = kinds[column].take(kind).array
        for column in [c.name for c in TABLES[name].columns if c.dtype == "bool"]:
            if column in frame:
                frame[column] = frame[column].to_numpy() == 1
        self._require_unique(name, frame)
        self._require_totals(name, frame)
        self._compute(frame, computed & asked)
        return frame[[c for c in declared if c in frame] if columns is None else list(columns)]

    @staticmethod
    def _compute(frame: pd.DataFrame, wanted: set[str]) -> None:
        if "duration_ns" in wanted:
            frame["duration_ns"] = frame["end_ns"].to_numpy() - frame["start_ns"].to_numpy()
        if "device_ns" in wanted:
            frame["device_ns"] = sum(frame[c].to_numpy() for c in ("kernel_ns", "copy_ns", "graph_ns"))
        if "queue_delay_ns" in wanted:
            launch = frame["launch_start_ns"].to_numpy()
            frame["queue_delay_ns"] = np.where(launch == -1, -1, frame["start_ns"].to_numpy() - launch)

    def _part(self, table: str, needed: set[str], kind_id: str) -> pd.DataFrame:
        """The wanted columns of one table of the file."""
        from xsp_post.ingest.tables import Request, WantedColumn, floats

        wants, texts, plain = [], set(), set()
        for column, kind in self._declared(table):
            shown = column.removesuffix(STRING) if is_part(table) else column
            if shown not in needed and column != kind_id:
                continue
            if shown != column:
                texts.add(shown)
                wants.append(WantedColumn(column, shown, -1, is_narrow=True))
            elif kind == "TEXT":
                plain.add(shown)
                wants.append(WantedColumn(column, shown, b""))
            else:
                wants.append(WantedColumn(column, shown, float("nan") if kind == "FLOAT" else -1))
        if len({want.alias for want in wants}) < len(wants):
            raise self._damaged(f"a text column of {table} is there twice")
        rows = self._tables.read([Request(table, tuple(wants))])[0]
        data: dict[str, object] = {}
        for want in wants:
            values = rows.column(want.alias)
            if want.alias in texts:
                data[want.alias] = self._categorical(values.to_numpy())
            elif want.alias in plain:
                data[want.alias] = np.array([v.decode("utf-8", "replace") for v in values.to_pylist()], object)
            else:
                data[want.alias] = floats(values) if isinstance(want.default, float) else values.to_numpy()
        return pd.DataFrame(data, copy=False)

    def _require_range(self, numbers: np.ndarray, count: int, table: str) -> None:
        """Raise `CaptureError` where a row points to a row that is not there."""
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise self._damaged(f"rows of {table} point to rows that are not there")

    def _require_types(self, name: str, frame: pd.DataFrame, kind_id: str) -> None:
        """Raise `CaptureError` where a column holds texts that was written as numbers, or numbers that were texts."""
        is_text = {column.name: column.dtype == "str" for column in TABLES[name].columns} | {kind_id: False}
        for column in frame if len(frame) else ():
            if column in is_text and is_numeric_dtype(frame[column].dtype) == is_text[column]:
                raise self._damaged(f"the column {name}.{column} is of another type")

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
        captures = self._part("captures", {"capture_id"}, "")["capture_id"]
        wanted = pd.MultiIndex.from_product([captures.unique(), list(QUESTIONS)], names=keys)
        if not totals.reindex(wanted, fill_value=0).eq(1).all():
            raise self._damaged("a capture has no total in balance, or two")

    def _damaged(self, what: str) -> CaptureError:
        return CaptureError(
            f"{self.path}: the store was edited or is damaged: {what}",
            code="store-damaged",
            hint=f"make it again: {self._remake()}",
        )

    def _declared(self, table: str) -> list[tuple[str, str]]:
        if not self._tables.columns(table):  # of a view SQLite may know none
            raise self._incomplete(f"table {table}")
        connection = self._tables.connect()
        try:
            return [(row[1], row[2]) for row in connection.execute(f'PRAGMA table_info("{table}")')]
        finally:
            connection.close()

    def _categorical(self, ids: np.ndarray) -> pd.Categorical:
        if self._strings is None:
            from xsp_post.ingest.tables import Request, WantedColumn

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


def open_store(path: Path) -> Store:
    """Open a store. Raises `CaptureError` when the file is none or of another schema version."""
    return Store(path)
