"""What a column and a table are, and all tables as `columns.txt` states them."""

from pathlib import Path
from typing import NamedTuple

from xsp_post.base.texts import Block, TextTable, read_blocks

_SUFFIX_UNITS = {
    "_ns": "ns", "_bytes": "B", "_flop": "flop", "_flop_per_s": "flop/s", "_bytes_per_s": "B/s",
    "_flop_per_byte": "flop/B", "_inputs_per_s": "inputs/s", "_tokens_per_s": "tokens/s", "_hz": "Hz", "_ratio": "1",
    "_count": "1", "_w": "W", "_celsius": "°C",
}  # fmt: skip
_DTYPES = {"int64", "int32", "int8", "int", "float64", "bool", "str"}


class Column(NamedTuple):
    """One column: pandas dtype, and what it means; the unit follows from the suffix."""

    name: str
    dtype: str  # one of _DTYPES
    meaning: str
    is_optional: bool = False  # an integer that may be unknown: −1 in our own arrays, empty wherever a person reads it


class Table(NamedTuple):
    """One table of the store, or one frame in memory: title, one row per what, its columns in order."""

    name: str
    title: str
    one_row_per: str
    columns: tuple[Column, ...]
    source: str = ""  # paper section / table, NVIDIA page
    may_lack: tuple[Column, ...] = ()  # columns of a frame in memory that only some captures have


def read_tables(path: Path) -> dict[str, Table]:
    """The tables of a file of columns, in order; the first lines of `columns.txt` say how such a file is written.

    Raises:
        ValueError: a line cannot be read; with file and line.
    """
    tables: dict[str, Table] = {}
    groups: dict[str, Table] = {}
    for block in read_blocks(path):
        name = block.name.removeprefix("*")
        table = _table(block, name, groups)
        if block.name.startswith("*"):
            groups[name] = table
        elif table.one_row_per:
            tables[name] = table
        else:
            block.refuse(f"[{name}] does not say: one row per …")
    return tables


def _table(block: Block, name: str, groups: dict[str, Table]) -> Table:
    one_row_per = source = ""
    kept: list[Column] = []
    may_lack: list[Column] = []
    columns = kept
    for number, line in block.lines:
        if line.startswith("one row per "):
            one_row_per = line.removeprefix("one row per ")
        elif line.startswith("source: "):
            source = line.removeprefix("source: ")
        elif line == "may lack:":
            columns = may_lack
        elif not line.startswith("*"):
            columns.append(_column(block, number, line))
        elif line[1:] in groups:
            columns.extend(groups[line[1:]].columns)
        else:
            block.refuse(f"no group [{line}] stands above", number)
    if not kept or len({column.name for column in kept + may_lack}) < len(kept + may_lack):
        block.refuse(f"[{block.name}] has no column, or one twice")
    return Table(name, block.title, one_row_per, tuple(kept), source, tuple(may_lack))


def _column(block: Block, number: int, line: str) -> Column:
    fields = line.split(None, 2)
    if len(fields) < 3:
        block.refuse(f"a column is name, dtype and meaning, not {line!r}", number)
    name, dtype, meaning = fields
    if dtype.removesuffix("?") not in _DTYPES or (dtype.endswith("?") and not dtype.startswith("int")):
        block.refuse(f"{name}: {dtype!r} is not one of {', '.join(sorted(_DTYPES))} (? behind an integer)", number)
    return Column(name, dtype.removesuffix("?"), meaning, is_optional=dtype.endswith("?"))


TABLES = TextTable(lambda: read_tables(Path(__file__).with_name("columns.txt")))


def column_names(table: str) -> list[str]:
    return [column.name for column in TABLES[table].columns]


def optional_columns(table: str) -> frozenset[str]:
    """The integer columns of a table in which −1 stands for "unknown" or "none" while we compute."""
    return frozenset(c.name for c in TABLES[table].columns if c.is_optional) if table in TABLES else frozenset()


def unit_of(column: str) -> str:
    """The unit that a column's suffix states ('' for names, ids, text and flags, whatever a flag ends with)."""
    return _SUFFIX_UNITS.get(suffix_of(column), "")


def suffix_of(column: str) -> str:
    """The suffix that states the unit, '' none."""
    suffixes = () if column.startswith("is_") else filter(column.endswith, _SUFFIX_UNITS)
    return max(suffixes, key=len, default="")
