"""Results → one XLSX workbook with a sheet per table, for people with spreadsheets. Needs the package xlsxwriter."""

import errno
import gc
import io
from pathlib import Path
from typing import Any

import pandas as pd

from xsp_post.base.errors import ToolError
from xsp_post.base.output import atomic_output
from xsp_post.base.text_safety import shown
from xsp_post.exporters.base import Written
from xsp_post.model.results import Results, for_people
from xsp_post.model.schemas import TABLES

MOST_ROWS = 100_000  # per sheet; a sheet holds a million, but spreadsheets are slow with them
_LONGEST_TEXT = 2_000
_SHEET_NAME = 31


def write(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """The workbook; its first sheet lists the tables. Raises OutputError, ToolError without xlsxwriter."""
    try:
        import xlsxwriter
    except ImportError:
        raise ToolError("The package xlsxwriter is not installed.", code="xlsxwriter-missing") from None
    most = limit or MOST_ROWS
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
