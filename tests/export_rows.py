"""The rows of an export as they will be written, and the three kinds of file nsys exports them to."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from export_schema import DEFAULTS, ColumnDdl, create_sql, quoted, tables_of

if TYPE_CHECKING:
    from typing_extensions import Self

Text: TypeAlias = str | bytes  # bytes: written as TEXT whatever they are, also when no UTF-8


class ExportRows:
    """Raw rows by table; `write`, `write_parquetdir`, `write_arrowdir` make the files."""

    def __init__(self, schema: str, *, lazy: bool) -> None:
        self.schema, self.lazy = schema, lazy
        self.tables: dict[str, list[ColumnDdl]] = tables_of(schema)
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self.tables}
        self._strings: dict[Text, int] = {}
        self._dropped: set[str] = set()

    def string(self, value: Text) -> int:
        """The StringIds id of a text (0, 1, 2 … in order of first use)."""
        if value not in self._strings:
            self._strings[value] = len(self._strings)
            self.rows["StringIds"].append({"id": self._strings[value], "value": value})
        return self._strings[value]

    def row(self, table: str, **values: Any) -> Self:
        """A raw row; columns left out take the table's defaults. KeyError for a column that is not there."""
        unknown = set(values) - {column.name for column in self.tables[table]}
        if unknown:
            raise KeyError(f"{table} has no {sorted(unknown)} in schema {self.schema}")
        return self._put(table, **values)

    def set_last(self, table: str, **values: Any) -> Self:
        """Overwrite columns of the last row of a table."""
        self.rows[table][-1].update(values)
        return self

    def add_column(self, table: str, name: str, kind: str = "TEXT", value: Any = None) -> Self:
        """A column that nsys does not write (users and DLProf add some), `value` in the rows so far."""
        self.tables[table] = [*self.tables[table], ColumnDdl(name, kind)]
        for row in self.rows[table]:
            row[name] = value
        return self

    def drop_column(self, table: str, name: str) -> Self:
        """Leave a column out."""
        self.tables[table] = [column for column in self.tables[table] if column.name != name]
        return self

    def drop_table(self, *names: str) -> Self:
        """Leave tables out, rows and all."""
        self._dropped.update(names)
        return self

    def add_table(self, name: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> Self:
        """A table that nsys does not write; columns: name → SQL type."""
        self.tables[name] = [ColumnDdl(column, kind) for column, kind in columns.items()]
        self.rows[name] = list(rows)
        return self

    def _put(self, table: str, **values: Any) -> Self:
        names = {column.name for column in self.tables[table]}
        row = DEFAULTS.get(table, {}) | values
        self.rows[table].append({name: value for name, value in row.items() if name in names})
        return self

    # -- files ---------------------------------------------------------------------------------------

    def tables_to_write(self) -> dict[str, list[ColumnDdl]]:
        """The tables that the file will hold."""
        return {
            name: columns
            for name, columns in self.tables.items()
            if name not in self._dropped and (self.rows[name] or not self.lazy)
        }

    def values(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table in column order; what is NOT NULL and was not given is 0 or ''."""
        columns = self.tables[table]
        fill = [("" if c.type == "TEXT" else 0) if c.is_required else None for c in columns]
        names = [column.name for column in columns]
        return [tuple(row.get(name, empty) for name, empty in zip(names, fill)) for row in self.rows[table]]

    def write(self, path: str | Path) -> Path:
        """The SQLite export at `path` (replaced when there)."""
        path = Path(path)
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        with connection:
            for table, columns in self.tables_to_write().items():
                connection.execute(create_sql(table, columns))
                # CAST keeps bytes that are not UTF-8 as TEXT, as nsys leaves them
                slots = ", ".join("CAST(? AS TEXT)" if column.type == "TEXT" else "?" for column in columns)
                connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({slots})", self.values(table))
        connection.close()
        return path

    def write_parquetdir(self, path: str | Path) -> Path:
        """`<stem>_pqtdir/` beside `path`: one parquet file per table, as `nsys export -t parquetdir`."""
        folder = self._fresh_folder(Path(path), "_pqtdir")
        for table in self.tables_to_write():
            pq.write_table(self._arrow(table), folder / f"{table}.parquet")
        return folder

    def write_arrowdir(self, path: str | Path) -> Path:
        """`<stem>_arwdir/` beside `path`: one Arrow IPC file per table, as `nsys export -t arrowdir`."""
        folder = self._fresh_folder(Path(path), "_arwdir")
        for table in self.tables_to_write():
            data = self._arrow(table)
            with pa.OSFile(str(folder / f"{table}.arrow"), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
                writer.write_table(data)
        return folder

    @staticmethod
    def _fresh_folder(path: Path, ending: str) -> Path:
        folder = path if path.name.endswith(ending) else path.with_name(path.stem + ending)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _arrow(self, table: str) -> pa.Table:
        columns = self.tables[table]
        by_column = list(zip(*self.values(table))) or [()] * len(columns)
        return pa.table({c.name: _arrow_array(values, c.type) for c, values in zip(columns, by_column)})


def _arrow_array(values: tuple[Any, ...], sql_type: str) -> pa.Array:
    if sql_type == "REAL":
        return pa.array(values, pa.float64())
    if sql_type == "INTEGER":
        return pa.array(values, pa.int64())
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return pa.array(raw, pa.binary()).view(pa.string())  # a view: no UTF-8 check, as nsys makes none
