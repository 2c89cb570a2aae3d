"""Captures in: a ``parquetdir``/``arrowdir`` export (a folder with one file per table) as Arrow columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding
from xsp_post.ingest.tables import Request, WantedColumn, cast_column, empty_table, resolve


def is_export(path: Path) -> bool:
    """Whether a folder holds the tables of an Nsight Systems export."""
    return bool({"StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"} & FolderTables(path).tables())


class FolderTables:
    """A ``parquetdir``/``arrowdir`` export: a folder with one file per table."""

    _suffixes = (".parquet", ".arrow", ".arrows")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            inside = sorted(path.iterdir())
        except OSError as error:
            raise CaptureError(f"{path}: cannot be opened ({error.strerror})", code="capture-unreadable") from error
        self._files = {file.stem: file for file in inside if file.suffix in self._suffixes and file.is_file()}
        self._schemas: dict[str, pa.Schema] = {}
        self.row_counts: dict[str, int] = {}  # by table
        self.findings: list[Finding] = []

    def tables(self) -> frozenset[str]:
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._files:
            return frozenset()
        if table not in self._schemas:
            schema = self._schemas[table] = self._schema(table)
            if len({*schema.names}) < len(schema.names):
                raise self._unreadable(self._files[table])
        return frozenset(self._schemas[table].names)

    def rows(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple[Any, ...]]:
        """Small tables as Python rows: the wanted columns, None where a column is not there."""
        table = resolve(self.tables(), table)
        have = self.columns(table)
        if not have:
            return []
        present = [c for c in columns if c in have]
        read = self._open(table, present).slice(0, limit)
        data = {name: _as_bytes(read.column(name)).to_pylist() for name in present}
        count = len(next(iter(data.values()))) if data else 0
        decoded = {c: [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in data[c]] for c in present}
        return list(zip(*[decoded.get(c, [None] * count) for c in columns]))

    def read(self, requests: Sequence[Request]) -> list[pa.Table]:
        return [self._read_one(request) for request in requests]

    def _read_one(self, request: Request) -> pa.Table:
        have = self.columns(request.table)
        if not have:
            return empty_table(request)
        names = {want.alias: want.name_in(have) for want in request.wants}
        data = self._open(request.table, sorted({name for name in names.values() if name}))
        if not data.num_columns:
            data = self._open(request.table, None)
        count = self.row_counts[request.table] = data.num_rows
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for want in request.wants:
            if want.column == "ROWID":
                columns[want.alias] = pa.array(np.arange(1, count + 1))
            elif not names[want.alias]:
                columns[want.alias] = pa.repeat(pa.scalar(want.default, want.arrow_type), count)
            else:
                columns[want.alias] = self._typed(request, want, data.column(names[want.alias]))
        table = pa.table(columns)
        if request.keep is None:
            return table
        wanted = pa.schema([(w.alias, w.arrow_type) for w in request.wants])
        batches = [batch.filter(pa.array(request.keep(batch))) for batch in table.cast(wanted).to_batches()]
        return pa.Table.from_batches(batches, schema=wanted)

    def _typed(self, request: Request, want: WantedColumn, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # 64-bit ids wrap, as they do in SQLite; so does "none" in narrow columns
        wraps = want.is_narrow or (want.arrow_type == pa.int64() and pa.types.is_uint64(column.type))
        typed = cast_column(self.path, request.table, want, column, safe=not wraps)
        return pc.fill_null(typed, pa.scalar(want.default, want.arrow_type))

    def _schema(self, table: str) -> pa.Schema:
        file = self._files[table]
        if file.suffix != ".parquet":
            return self._open(table, None).schema  # mapped into memory, not read
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(file) from error

    @staticmethod
    def _unreadable(file: Path) -> CaptureError:
        return CaptureError(
            f"{file}: cannot be read as {file.suffix[1:]}: it is damaged or of another format", code="capture-damaged"
        )

    def _open(self, table: str, columns: list[str] | None) -> pa.Table:
        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                import pyarrow.parquet as pq

                return pq.read_table(file, columns=columns)
            with pa.memory_map(str(file)) as source:
                try:
                    whole = pa.ipc.open_file(source).read_all()
                except pa.ArrowInvalid:  # the two Arrow forms go by either suffix
                    source.seek(0)
                    whole = pa.ipc.open_stream(source).read_all()
            return whole if columns is None else whole.select(columns)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(file) from error


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as bytes, which need not be UTF-8; other columns as they are."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.large_binary()) if is_text else column
