"""Captures in: what decides whether a table can be decoded from its pages, and whether it was, as SQLite says it.

Nothing is read out of the text of a CREATE TABLE: what it means is for SQLite to say.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from xsp_post.ingest.sqlite_pages import Stored
from xsp_post.ingest.tables import Request, WantedColumn

_ASKED_ROWS = 64


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def row_number_name(connection: sqlite3.Connection, table: str, columns: frozenset[str]) -> str:
    """The name under which a query has the number of a row; '' where rows have none (WITHOUT ROWID) or columns have
    taken all three names."""
    taken = {column.lower() for column in columns}
    for name in ("rowid", "_rowid_", "oid"):
        if name not in taken:
            with suppress(sqlite3.OperationalError):  # no such column
                connection.execute(f"SELECT {name} FROM {quoted(table)} LIMIT 0")
                return name
    return ""


def stored(
    connection: sqlite3.Connection, table: str, info: Sequence[tuple[Any, ...]], root_page: int
) -> Stored | None:
    """Where the rows of a table with row numbers lie, ``info`` being its PRAGMA table_xinfo; None where values are
    computed.

    A primary key of one column is the row number itself unless SQLite keeps an index for it
    (sqlite.org/lang_createtable.html#rowid, sqlite.org/pragma.html#pragma_index_list).
    """
    if any(row[6] for row in info):
        return None
    keys = [row[1] for row in info if row[5]]
    origins = [row[3] for row in connection.execute(f"PRAGMA index_list({quoted(table)})")]
    return Stored(root_page, tuple(row[1] for row in info), keys[0] if len(keys) == 1 and "pk" not in origins else "")


def sample(row_count: int) -> np.ndarray:
    """Places of the rows that SQLite is asked for, ascending; alike for every table of so many rows."""
    if not row_count:
        return np.zeros(0, np.int64)
    return np.unique(np.random.default_rng(row_count).integers(0, row_count, _ASKED_ROWS))


def is_confirmed(
    connection: sqlite3.Connection, query: str, request: Request, decoded: pa.Table, row_numbers: Sequence[int]
) -> bool:
    """Whether SQLite has the decoded values in the rows of these numbers. ``query`` gives the wanted columns of the row
    whose number is its parameter; ``decoded`` has one row for each number."""
    for row, number in zip(decoded.to_pylist(), row_numbers):
        said = connection.execute(query, (number,)).fetchall()
        if len(said) != 1 or not all(_is_same(w, row[w.alias], value) for w, value in zip(request.wants, said[0])):
            return False
    return True


def _is_same(want: WantedColumn, decoded: object, said: object) -> bool:
    if want.is_narrow and isinstance(decoded, int) and isinstance(said, int):
        return (decoded - said) % (1 << 32) == 0  # larger numbers are cut to 32 bits
    return decoded == said
