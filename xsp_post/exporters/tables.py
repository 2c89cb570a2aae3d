"""Results → files: every table as CSV or Parquet, one file each in a folder; nothing is cut or rounded."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pandas.api.types import is_numeric_dtype

from xsp_post.base.output import atomic_folder
from xsp_post.exporters.base import Written
from xsp_post.model.results import Results, for_people
from xsp_post.model.schemas import TABLES

_FORMULA = r"[ \t\r\n]*[=+\-@＝＋－＠]|[\t\r\n]"  # as OWASP lists them
_CHUNK = 250_000  # rows turned into text at a time


def write_csv(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """``<table>.csv`` for every table, headers as in docs/columns.md. Raises OutputError."""
    return _write(results, Path(path), "csv", force)


def write_spreadsheet_csv(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """The same, with texts that a spreadsheet would compute kept as texts. Raises OutputError."""
    return _write(results, Path(path), "csv", force, change=without_formulas)


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """A quotation mark before each text that begins as a formula does: a spreadsheet shows it and computes nothing."""
    texts = [column for column in frame if not is_numeric_dtype(frame[column].dtype)]
    return frame.assign(**{str(column): _as_text(frame[column]) for column in texts})


def _as_text(values: pd.Series) -> pd.Series:
    objects = values.astype(object)
    return objects.where(~objects.astype(str).str.match(_FORMULA), "'" + objects.astype(str))


def write_parquet(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """``<table>.parquet`` for every table; each column's meaning is in its field's metadata. Raises OutputError."""
    return _write(results, Path(path), "parquet", force)


def _write(
    results: Results,
    path: Path,
    kind: str,
    force: bool,
    *,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
) -> Written:
    counts: dict[str, int] = {}
    with atomic_folder(path, force, f"*.{kind}") as folder:
        for name in results.tables():
            frame = change(_in_order(for_people(results, name), name))
            counts[name] = len(frame)
            if kind == "csv":
                _csv(frame, name, folder / f"{name}.csv")
            else:
                _parquet(frame, name, folder / f"{name}.parquet")
    return Written(path, counts)


def _in_order(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Columns as docs/columns.md lists them, wherever the frame comes from."""
    listed = [c.name for c in TABLES[name].columns if c.name in frame] if name in TABLES else []
    return frame[listed + [c for c in frame if c not in listed]]


def _csv(frame: pd.DataFrame, name: str, path: Path) -> None:
    schema = _schema(frame, name)
    with path.open("wb") as file, pyarrow.csv.CSVWriter(file, schema) as writer:
        for chunk in _chunks(frame, schema):
            writer.write_table(chunk)


def _parquet(frame: pd.DataFrame, name: str, path: Path) -> None:
    schema = _schema(frame, name)
    with path.open("wb") as file, pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for chunk in _chunks(frame, schema):
            writer.write_table(chunk)


def _schema(frame: pd.DataFrame, name: str) -> pa.Schema:
    """Arrow types of a frame: categoricals as plain text, and what each column means."""
    meanings = {c.name: c.meaning for c in TABLES[name].columns} if name in TABLES else {}
    fields = []
    for field in pa.Schema.from_pandas(frame.iloc[:1000], preserve_index=False):
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_null(kind) or pa.types.is_large_string(kind):
            kind = pa.string()
        metadata = {"meaning": meanings[field.name]} if field.name in meanings else None
        fields.append(pa.field(field.name, kind, metadata=metadata))
    return pa.schema(fields)


def _chunks(frame: pd.DataFrame, schema: pa.Schema) -> Iterator[pa.Table]:
    for first in range(0, max(len(frame), 1), _CHUNK):
        table = pa.Table.from_pandas(frame.iloc[first : first + _CHUNK], preserve_index=False)
        yield table.cast(schema)
