"""Results → files: every table as CSV or Parquet, one file each in a folder; nothing is cut or rounded."""

import errno
import gc
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pandas.api.types import is_numeric_dtype

from xsp_post.base.lazy import optional
from xsp_post.base.output import atomic_folder, atomic_output, write_text
from xsp_post.base.text_safety import shown
from xsp_post.exporters.base import Written
from xsp_post.model.results import Results, for_people
from xsp_post.model.schemas import TABLES, unit_of

_FORMULA = r"[ \t\r\n]*[=+\-@＝＋－＠]|[\t\r\n]"  # as OWASP lists them
_CHUNK = 250_000  # rows turned into text at a time


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """A quotation mark before each text that begins as a formula does: a spreadsheet shows it and computes nothing."""
    texts = {str(name): frame[name].astype(object) for name in frame if not is_numeric_dtype(frame[name].dtype)}
    is_formula = {name: values.astype(str).str.match(_FORMULA) for name, values in texts.items()}
    return frame.assign(**{
        name: values.where(~is_formula[name], "'" + values.astype(str)) for name, values in texts.items()
    })  # fmt: skip


def _write(
    results: Results, path: Path, *, kind: str, force: bool = False,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame, **part: Any,
) -> Written:  # fmt: skip
    """``<table>.<kind>`` for every table, headers as in docs/columns.md. Raises OutputError."""
    counts: dict[str, int] = {}
    with atomic_folder(path, force, f"*.{kind}") as folder:
        for name in results.tables():
            frame = _in_order(for_people(results, name), name)
            counts[name] = len(frame)
            frame = change(frame)
            schema = _schema(frame, name)
            with (folder / f"{name}.{kind}").open("wb") as file, _WRITERS[kind](file, schema) as writer:
                for chunk in _chunks(frame, schema):
                    writer.write_table(chunk)
    return Written(path, counts)


write_csv = partial(_write, kind="csv")
write_spreadsheet_csv = partial(_write, kind="csv", change=without_formulas)
write_parquet = partial(_write, kind="parquet")  # each column's meaning is in its field's metadata
_WRITERS = {"csv": pyarrow.csv.CSVWriter, "parquet": partial(pyarrow.parquet.ParquetWriter, compression="zstd")}


def _in_order(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Columns as docs/columns.md lists them, wherever the frame comes from."""
    listed = [c.name for c in TABLES[name].columns if c.name in frame] if name in TABLES else []
    return frame[listed + [c for c in frame if c not in listed]]


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


def write_datasette(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """``metadata.json`` for ``datasette STORE --metadata FILE``. Raises OutputError."""
    store = getattr(results, "path", None)
    database = Path(store).stem if store is not None else Path(path).name.split("_datasette")[0] + ".xsp"
    tables = {name: _table(name) for name in results.tables() if name in TABLES}
    document = {"title": "xsp-post", "databases": {database: {"tables": tables}}}
    write_text(path, json.dumps(document, indent=1) + "\n", force)
    return Written(Path(path), {"tables": len(tables)})


def _table(name: str) -> dict[str, Any]:
    table, about = TABLES[name], f"One row per {TABLES[name].one_row_per}."
    units = {column.name: unit_of(column.name) for column in table.columns if unit_of(column.name) not in ("", "1")}
    meanings = {c.name: c.meaning + (f" [{units[c.name]}]" if c.name in units else "") for c in table.columns}
    return {"title": table.title, "description": about, "columns": meanings, "units": units}


MOST_ROWS = 100_000  # per sheet; a sheet holds a million, but spreadsheets are slow with them
_LONGEST_TEXT = 2_000
_SHEET_NAME = 31


def write_workbook(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """The workbook; its first sheet lists the tables. Raises OutputError, ToolError without xlsxwriter."""
    xlsxwriter = optional("xlsxwriter", "xlsxwriter-missing", "The package xlsxwriter is not installed.")
    most = part.get("limit") or MOST_ROWS
    # captured text is text: "=1+2" must not be computed, and a name must not become a link
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False,
               "strings_to_numbers": False, "nan_inf_to_errors": False}  # fmt: skip
    whole = io.BytesIO()  # a workbook that cannot be written to its file complains in a traceback of its own
    with atomic_output(path, force) as temporary:
        failed = 0
        try:
            with xlsxwriter.Workbook(whole, options) as book:
                counts = _filled(book, results, most)
        except xlsxwriter.exceptions.FileCreateError as error:  # of its own temporary files
            failed = next((cause.errno for cause in error.args if isinstance(cause, OSError)), None) or errno.EIO
        if failed:
            gc.collect()  # the archive that was begun ends while `whole` is there, else it prints a traceback
            raise OSError(failed, "")
        temporary.write_bytes(whole.getvalue())
    return Written(Path(path), counts)


def _filled(book: Any, results: Results, most: int) -> dict[str, int]:
    """The workbook's sheets; how many rows each has."""
    counts: dict[str, int] = {}
    bold = book.add_format({"bold": True})
    contents = book.add_worksheet("tables")
    frames = {name: for_people(results, name) for name in results.tables()}
    rows = [(name, TABLES[name].title if name in TABLES else "", len(frame), min(len(frame), most))
            for name, frame in frames.items()]  # fmt: skip
    _fill(contents, pd.DataFrame(rows, columns=["table", "what", "rows", "rows_here"]), bold)
    for name, frame in frames.items():
        _fill(book.add_worksheet(name[:_SHEET_NAME]), frame.head(most), bold)
        counts[name] = min(len(frame), most)
    return counts


def _fill(sheet: Any, frame: pd.DataFrame, bold: Any) -> None:
    sheet.freeze_panes(1, 0)
    sheet.write_row(0, 0, [str(column) for column in frame.columns], bold)
    columns = [_cells(frame[column]) for column in frame.columns]
    for number, row in enumerate(zip(*columns), 1):
        sheet.write_row(number, 0, row)


def _cells(values: pd.Series) -> list[object]:
    """Plain values; unknown is an empty cell."""
    objects = values.astype(object)
    known = objects.where(objects.notna(), None).tolist()
    if pd.api.types.is_numeric_dtype(values.dtype):
        return [None if value in (float("inf"), float("-inf")) else value for value in known]
    return [None if value is None else shown(str(value), _LONGEST_TEXT) for value in known]
