"""`page.txt` → its rows: what the pages show, as data."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import did_you_mean
from xsp_post.base.texts import Block, TextTable, read_blocks
from xsp_post.model.schemas import TABLES as SCHEMAS


@dataclass(frozen=True)
class SectionRow:
    """A section: in which view of which page it stands, what it shows, and what would record its data."""

    id: str
    title: str
    question: str
    shows: tuple[tuple[str, str], ...]  # (chart, table or drawing, id)
    page: str = "report"
    view: str = ""
    analyses: tuple[str, ...] = ()
    recorded: str = ""


@dataclass(frozen=True)
class TableRow:
    """A table: where its rows come from, how they are sorted and cut."""

    id: str
    title: str
    rows: str = ""
    schema: str = ""
    columns: tuple[str, ...] = ()
    where: str = ""
    sort: tuple[str, ...] = ()
    limit: int = 100
    visible: int = 8
    bars: tuple[str, ...] = ()
    least: int = 1


@dataclass(frozen=True)
class ChartRow:
    """A chart: its rows, a mark, and the column that each channel reads; `page.txt` says what each field means."""

    id: str
    title: str
    mark: str
    y: tuple[str, ...] = ()
    x: str = ""
    caption: str = ""
    rows: str = ""
    schema: str = ""
    where: str = ""
    sort: tuple[str, ...] = ()
    limit: int = 10_000
    x2: str = ""
    y2: str = ""
    x_title: str = ""
    y_title: str = ""
    color: str = ""
    colors: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    tick: str = ""
    text: str = ""
    rule: str = ""
    size: str = ""
    bands: str = ""
    log: tuple[str, ...] = ()
    tips: tuple[str, ...] = ()
    least: int = 1
    wrap: int = 0
    height: int = 0


_Row = TypeVar("_Row")
_PATH = Path(__file__).with_name("page.txt")


def _read(kind: str, row_of: type[_Row]) -> TextTable[_Row]:
    def rows() -> dict[str, _Row]:
        named = {one.name.removeprefix(kind): one for one in read_blocks(_PATH) if one.name.startswith(kind)}
        for block in named.values():
            key, _, other = block.lines[0][1].partition(" ")
            if key == "as":
                block.lines[:1] = named[other.strip()].lines
        return {name: _row(block, row_of) for name, block in named.items()}

    return TextTable(rows)


def _row(block: Block, row_of: type[_Row]) -> _Row:
    types = {field.name: field.type for field in fields(row_of)}  # type: ignore[arg-type]
    identity = block.name.partition(" ")[2]
    values: dict[str, Any] = {"id": identity, "title": block.title}
    for number, line in block.lines:
        key, _, text = line.partition(" ")
        if key not in types:
            block.refuse(f"{key!r} is no field of a {row_of.__name__}", number)
        words = tuple(text.split())
        if key == "shows":
            shown = [one.split() for one in text.split(",")]
            values[key] = tuple((one[0], one[1]) for one in shown)
        else:
            kind = types[key]
            values[key] = int(text) if kind is int else text.strip() if kind is str else words
    if "rows" in types:
        rows = values.setdefault("rows", identity)
        values.setdefault("schema", identity if identity in SCHEMAS else rows)
    return row_of(**values)


def sorted_by(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows by columns, ``-column`` the largest first; equals stay in their order."""
    names = [column.removeprefix("-") for column in columns]
    if not names or not len(frame) or not {*names} <= {*frame.columns}:
        return frame
    rising = [not column.startswith("-") for column in columns]
    return frame.sort_values(names, ascending=rising, kind="stable", ignore_index=True)


def by_cost(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The rows of a table as the page sorts them, events the longest first; as they are where neither is so."""
    return sorted_by(_with_length(frame), costs_of(table))


def by_column(frame: pd.DataFrame, table: str, sort: str) -> pd.DataFrame:
    """Rows by one column: numbers largest first, texts in alphabetical order, ``-`` turns either; equals stay, and
    all without a name."""
    if not sort:
        return frame
    column, among = sort_column(frame, table, sort), _with_length(frame)
    if column not in among:
        raise UsageError(
            f"--sort {sort!r}: table {table} has no such column; it has: {', '.join(map(str, frame.columns))}",
            code="unknown-column",
            hint=did_you_mean(column.lower(), map(str, frame.columns)),
        )
    is_number = pd.api.types.is_numeric_dtype(among[column].dtype)
    keys = among[column] if is_number else among[column].astype(str)
    order = keys.sort_values(ascending=is_number == sort.startswith("-"), kind="stable", na_position="last").index
    return frame.loc[order].reset_index(drop=True)


def sort_column(frame: pd.DataFrame, table: str, sort: str) -> str:
    """The column that ``--sort`` names, of the names of a row's time the one that the table has; without a name,
    what its rows are sorted by, else their time."""
    name, among = sort if sort in frame else sort.removeprefix("-"), _with_length(frame)
    own = [column.removeprefix("-") for column in costs_of(table)[:1]]
    if name in among or name not in ("", "time", *_TIMES):
        return name
    return next((one for one in (*own, *_TIMES) if one in among and (not name or one.endswith("_ns"))), name)


def _with_length(frame: pd.DataFrame) -> pd.DataFrame:
    if "duration_ns" in frame or not {"start_ns", "end_ns"} <= {*frame}:
        return frame
    return frame.assign(duration_ns=frame["end_ns"] - frame["start_ns"])


def costs_of(table: str) -> tuple[str, ...]:
    """What rows of a table are sorted by, ``-column`` the largest first; none where they have an order of their own."""
    own = ("-duration_ns",) if table in _EVENTS else (_COSTS[table],) if table in _COSTS else ()
    return next((row.sort for row in TABLES.values() if row.schema == table and row.sort), own)


_TIMES = ("latency_ns", "duration_ns", "kernel_ns", "device_ns")  # any table's name of the time of a row
_EVENTS = ("kernels", "memory_operations", "idle", "collectives")
_COSTS = {  # of tables that the page shows otherwise, or not at all; the others have an order of their own
    "a09": "-latency_ns", "a11": "-layer_latency_ns", "a12": "-kernel_latency_ns", "a14": "-latency_ns",
    "dominant_kernels": "-latency_ns", "layers": "-latency_ns", "operations": "-device_ns", "operators": "-kernel_ns",
    "short_waits": "-idle_ns", "launch_groups": "-kernel_ns",
}  # fmt: skip


SECTIONS = _read("section ", SectionRow)
TABLES = _read("table ", TableRow)
CHARTS = _read("chart ", ChartRow)
