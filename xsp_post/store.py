"""Analysis → one SQLite file, ``<stem>.xsp.sqlite``, that any SQLite tool opens (DESIGN §5).

Large tables keep their texts once, in ``strings``: the rows lie in ``<table>_rows`` with ``…_string_id``
columns, and the view ``<table>`` shows text and what follows from other columns. Everything but bulk rows is
written with sqlite-utils; bulk rows go in by Arrow. `SCHEMA_VERSION` and its history:

1  first
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post import __version__
from xsp_post.analysis import Analysis, Results
from xsp_post.errors import MESSAGES, CaptureError
from xsp_post.output import atomic_output
from xsp_post.schemas import TABLES

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA_VERSION = 1

MESSAGES.update({
    "store-version": (
        "The store was written by another version of xsp-post whose tables differ.",
        "Ingest the captures again with this version.",
    ),
    "store-table-missing": (
        "The store does not hold the table that was asked for.",
        "See which it holds: sqlite3 STORE .tables; counters, layers or several runs may not have been recorded.",
    ),
})

# Tables whose texts are interned, and what their view computes: view column → SQL over the row's columns.
_INTERNED: dict[str, dict[str, str]] = {
    "nodes": {"duration_ns": "r.end_ns - r.start_ns"},
    "kernels": {
        "duration_ns": "r.end_ns - r.start_ns",
        "queue_delay_ns": "CASE WHEN r.launch_start_ns = -1 THEN -1 ELSE r.start_ns - r.launch_start_ns END",
    },
    "memory_operations": {},
    "layers": {},
}
_PRIMARY_KEYS = {"nodes": "node_id", "kernels": "kernel_id", "memory_operations": "activity_id",
                 "captures": "capture_id"}  # fmt: skip
_INDEXES = {
    "node_rows": (("parent_id",),),
    "kernel_rows": (("node_id",), ("layer_index",)),
    "layer_rows": (("layer_index",),),
    "kernel_metrics": (("kernel_id",),),
}
_ROW_TABLES = {"nodes": "node_rows", "kernels": "kernel_rows", "memory_operations": "memory_operation_rows",
               "layers": "layer_rows"}  # fmt: skip
_SQL_TYPES = {"i": "INTEGER", "u": "INTEGER", "b": "INTEGER", "f": "FLOAT"}


# -- writing --------------------------------------------------------------------------------------


def write_store(analysis: Analysis, path: Path, *, force: bool = False) -> None:
    """Write all tables. Raises `OutputError` (exists without force, disk full, no permission): then nothing is left."""
    from sqlite_utils import Database

    with atomic_output(path, force) as temporary:
        connection = sqlite3.connect(temporary)
        try:
            # the file becomes visible only when it is whole: no journal needed
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            database = Database(connection)
            bulk = _create_tables(database, analysis)
            connection.commit()
            _ingest(temporary, bulk)
            _create_indexes(database, analysis)
            connection.commit()
        finally:
            connection.close()


def _create_tables(database: Database, analysis: Analysis) -> list[tuple[str, pa.Table]]:
    """Create every table and view, insert the small ones, and return what is to go in by Arrow."""
    database.execute("CREATE TABLE xsp_meta (key TEXT PRIMARY KEY, value TEXT) -- what wrote this store")
    meta = {"schema_version": str(SCHEMA_VERSION), "writer": f"xsp-post {__version__}"}
    database["xsp_meta"].insert_all({"key": k, "value": v} for k, v in meta.items())
    strings = _Strings()
    bulk: list[tuple[str, pa.Table]] = []
    for name in analysis.tables():
        frame = analysis.frames[name]
        if name in _INTERNED:
            rows = _ROW_TABLES[name]
            computed = _INTERNED[name]
            columns, arrow = strings.interned(frame.drop(columns=[c for c in computed if c in frame]))
            _create(database, rows, name, columns, _PRIMARY_KEYS.get(name))
            database.execute(_view(name, rows, frame, columns, computed))
            bulk.append((rows, arrow))
        else:
            plain = {c: _SQL_TYPES.get(np.dtype(t).kind if isinstance(t, np.dtype) else "O", "TEXT")
                     for c, t in frame.dtypes.items()}  # fmt: skip
            _create(database, name, name, plain, _PRIMARY_KEYS.get(name))
            if len(frame):
                bulk.append((name, _plain_arrow(frame)))
    database.execute("CREATE TABLE strings (string_id INTEGER PRIMARY KEY, text TEXT) -- texts of the _rows tables")
    if strings.texts:
        ids = np.arange(len(strings.texts), dtype=np.int64)
        bulk.append(("strings", pa.table({"string_id": ids, "text": pa.array(strings.texts, pa.string())})))
    return bulk


class _Strings:
    """Texts of categorical columns, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def interned(self, frame: pd.DataFrame) -> tuple[dict[str, str], pa.Table]:
        """Column types of the row table, and its rows with string ids in place of text."""
        types: dict[str, str] = {}
        columns: dict[str, pa.Array] = {}
        for name in frame.columns:
            series = frame[name]
            if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind not in "iubf":
                codes, categories = _codes(series)
                ids = np.array([self._number(str(text)) for text in categories] or [0], np.int32)
                types[f"{name}_string_id"] = "INTEGER"
                columns[f"{name}_string_id"] = pa.array(ids[codes] if len(categories) else codes)
            else:
                types[name] = _SQL_TYPES[series.dtype.kind]
                columns[name] = _number_array(series)
        return types, pa.table(columns)

    def _number(self, text: str) -> int:
        found = self._index.get(text)
        if found is None:
            found = self._index[text] = len(self.texts)
            self.texts.append(_storable(text))
        return found


def _codes(series: pd.Series) -> tuple[np.ndarray, Sequence]:
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        if (codes < 0).any():
            series = series.cat.add_categories([""] if "" not in series.cat.categories else []).fillna("")
            codes = series.cat.codes.to_numpy()
        return codes, series.cat.categories.tolist()
    codes, categories = pd.factorize(series.fillna("").to_numpy(object))
    return codes, list(categories)


def _storable(text: str) -> str:
    """SQLite text ends at a NUL for many readers: show it instead. Lone surrogates cannot be encoded."""
    return text.replace("\x00", "\u2400").encode("utf-8", "replace").decode("utf-8")


def _number_array(series: pd.Series) -> pa.Array:
    values = series.to_numpy()
    if values.dtype == bool:
        values = values.astype(np.int8)
    return pa.array(values, from_pandas=values.dtype.kind == "f")


def _plain_arrow(frame: pd.DataFrame) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name in frame.columns:
        series = frame[name]
        if not isinstance(series.dtype, pd.CategoricalDtype) and series.dtype.kind in "iubf":
            columns[name] = _number_array(series)
        else:
            texts = [None if pd.isna(v) else _storable(str(v)) for v in series.astype(object)]
            columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def _create(database: Database, table: str, schema: str, columns: dict[str, str], key: str | None) -> None:
    """CREATE TABLE with each column's meaning as a comment: the schema text documents itself."""
    meaning = {c.name: c.meaning for c in TABLES[schema].columns} if schema in TABLES else {}
    lines = []
    for position, (name, kind) in enumerate(columns.items()):
        text = meaning.get(name) or meaning.get(name.removesuffix("_string_id"), "")
        comma = "," if position < len(columns) - 1 else ""
        primary = " PRIMARY KEY" if name == key else ""
        lines.append(f'  "{name}" {kind}{primary}{comma}' + (f" -- {text}" if text else ""))
    title = f" -- {TABLES[schema].title}: one row per {TABLES[schema].one_row_per}" if schema in TABLES else ""
    body = "\n".join(lines)
    database.execute(f'CREATE TABLE "{table}" ({title}\n{body}\n)')


def _view(name: str, rows: str, frame: pd.DataFrame, columns: dict[str, str], computed: dict[str, str]) -> str:
    select, joins = [], []
    for column in frame.columns:
        if column in computed:
            select.append(f'{computed[column]} AS "{column}"')
        elif f"{column}_string_id" in columns:
            alias = f"s{len(joins)}"
            joins.append(f'LEFT JOIN strings {alias} ON {alias}.string_id = r."{column}_string_id"')
            select.append(f'{alias}.text AS "{column}"')
        else:
            select.append(f'r."{column}"')
    return f'CREATE VIEW "{name}" AS SELECT ' + ",\n  ".join(select) + f'\nFROM "{rows}" r\n' + "\n".join(joins)


def _ingest(path: Path, bulk: list[tuple[str, pa.Table]]) -> None:
    """Append Arrow tables to the tables that are there."""
    import adbc_driver_sqlite.dbapi as adbc

    try:
        with adbc.connect(f"file:{quote(str(path))}", autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.execute("PRAGMA synchronous = OFF")
            for table, rows in bulk:
                if rows.num_rows:
                    cursor.adbc_ingest(table, rows, mode="append")
    except adbc.Error as error:
        # the owner of outputs knows SQLite's own errors (disk full, no permission)
        raise sqlite3.OperationalError(str(error)) from error


def _create_indexes(database: Database, analysis: Analysis) -> None:
    present = set(database.table_names())
    for table, indexes in _INDEXES.items():
        for columns in indexes:
            if table in present and all(c in database[table].columns_dict for c in columns):
                database[table].create_index(list(columns))  # type: ignore[union-attr]


# -- reading --------------------------------------------------------------------------------------


class Store(Results):
    """A store opened read-only: frames by table name, texts as categoricals."""

    def __init__(self, path: Path) -> None:
        from xsp_post.ingest.tables import SqliteTables

        self.path = path
        self._tables = SqliteTables(path)
        if "xsp_meta" not in self._tables.tables():
            raise CaptureError(f"{path}: is no store made by xsp-post", code="capture-unknown-format")
        self.meta = dict(self._tables.rows("xsp_meta", ("key", "value")))
        if self.meta.get("schema_version") != str(SCHEMA_VERSION):
            raise CaptureError(
                f"{path}: has store schema {self.meta.get('schema_version')}, this xsp-post reads {SCHEMA_VERSION}",
                code="store-version",
                hint="ingest the captures again",
            )
        self._strings: np.ndarray | None = None

    def tables(self) -> list[str]:
        hidden = set(_ROW_TABLES.values()) | {"strings", "xsp_meta"}
        names = {n for n in self._tables.tables() if n not in hidden and not n.startswith("sqlite_")}
        return sorted(names | {view for view, rows in _ROW_TABLES.items() if rows in self._tables.tables()})

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self.tables():
            raise KeyError(name)
        rows = _ROW_TABLES.get(name, name)
        connection = self._tables.connect()
        try:
            declared = [(r[1], r[2]) for r in connection.execute(f'PRAGMA table_info("{rows}")')]
        finally:
            connection.close()
        frame = self._read(name, rows, declared, columns)
        return frame if columns is None else frame[list(columns)]

    def _read(
        self, name: str, rows: str, declared: list[tuple[str, str]], columns: Sequence[str] | None
    ) -> pd.DataFrame:
        from xsp_post.ingest.tables import NULL, Request, Want, floats

        computed = set(_INTERNED.get(name, {}))
        asked = None if columns is None else set(columns)
        needed = asked
        if asked is not None and asked & computed:
            needed = asked | {"start_ns", "end_ns", "launch_start_ns"}
        wants, texts, plain = [], [], []
        for column, kind in declared:
            shown = column.removesuffix("_string_id") if name in _INTERNED else column
            if needed is not None and shown not in needed:
                continue
            if shown != column:
                texts.append(shown)
                wants.append(Want(column, shown, 0))
            elif kind == "TEXT":
                plain.append(shown)
                wants.append(Want(column, shown, b""))
            elif kind == "FLOAT":
                wants.append(Want(column, shown, float("nan")))
            else:
                wants.append(Want(column, shown, NULL))
        table = self._tables.read([Request(rows, tuple(wants))])[0]
        data: dict[str, object] = {}
        for want in wants:
            values = table.column(want.alias)
            if want.alias in texts:
                data[want.alias] = self._categorical(values.to_numpy())
            elif want.alias in plain:
                data[want.alias] = np.array([v.decode("utf-8", "replace") for v in values.to_pylist()], object)
            elif isinstance(want.default, float):
                data[want.alias] = floats(values)
            else:
                data[want.alias] = values.to_numpy()
        frame = pd.DataFrame(data, copy=False)
        booleans = [c.name for c in TABLES[name].columns if c.dtype == "bool"] if name in TABLES else []
        for column in booleans:
            if column in frame:
                frame[column] = frame[column].to_numpy() == 1
        if "duration_ns" in computed and (asked is None or "duration_ns" in asked):
            frame["duration_ns"] = frame["end_ns"].to_numpy() - frame["start_ns"].to_numpy()
        if "queue_delay_ns" in computed and (asked is None or "queue_delay_ns" in asked):
            launch = frame["launch_start_ns"].to_numpy()
            frame["queue_delay_ns"] = np.where(launch == -1, -1, frame["start_ns"].to_numpy() - launch)
        return frame

    def _categorical(self, ids: np.ndarray) -> pd.Categorical:
        if self._strings is None:
            from xsp_post.ingest.tables import Request, Want

            table = self._tables.read([Request("strings", (Want("text", "text", b""),))])[0]
            self._strings = np.array([v.decode("utf-8", "replace") for v in table.column("text").to_pylist()], object)
        codes, used = pd.factorize(ids)
        return pd.Categorical.from_codes(codes, pd.Index(self._strings[used], dtype=object))


def open_store(path: Path) -> Store:
    """Open a store. Raises `CaptureError` when the file is none or of another schema version."""
    return Store(path)
