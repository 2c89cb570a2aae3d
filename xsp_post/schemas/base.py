"""What a column and a table are, and the registry of all of them."""

from __future__ import annotations

from dataclasses import dataclass

_SUFFIX_UNITS = {
    "_ns": "ns",
    "_bytes": "B",
    "_flop": "flop",
    "_flop_per_s": "flop/s",
    "_bytes_per_s": "B/s",
    "_flop_per_byte": "flop/B",
    "_inputs_per_s": "inputs/s",
    "_hz": "Hz",
    "_ratio": "1",
    "_count": "1",
}


@dataclass(frozen=True)
class Column:
    """One column: pandas dtype, and what it means; the unit follows from the suffix."""

    name: str
    dtype: str  # int64, int32, int8, float64, bool, str
    meaning: str
    is_optional: bool = False  # an integer that may be unknown: −1 in our own arrays, empty wherever a person reads it


@dataclass(frozen=True)
class Table:
    """One table of the store: title, one row per what, its columns in order."""

    name: str
    title: str
    one_row_per: str
    columns: tuple[Column, ...]
    source: str = ""  # paper section / table, NVIDIA page


TABLES: dict[str, Table] = {}


def register(table: Table) -> Table:
    """Add a table to the registry; names are unique."""
    assert table.name not in TABLES, table.name
    TABLES[table.name] = table
    return table


def column_names(table: str) -> list[str]:
    """Column names of a registered table, in order."""
    return [column.name for column in TABLES[table].columns]


def optional_columns(table: str) -> frozenset[str]:
    """The integer columns of a table in which −1 stands for "unknown" or "none" while we compute."""
    return frozenset(c.name for c in TABLES[table].columns if c.is_optional) if table in TABLES else frozenset()


def unit_of(column: str) -> str:
    """The unit that a column's suffix states ('' for names, ids, text and flags, whatever a flag ends with)."""
    if column.startswith("is_"):
        return ""
    for suffix in sorted(_SUFFIX_UNITS, key=len, reverse=True):
        if column.endswith(suffix):
            return _SUFFIX_UNITS[suffix]
    return ""
