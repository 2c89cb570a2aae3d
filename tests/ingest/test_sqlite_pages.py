"""Columns decoded from the pages of a file equal what SQLite says; what is unusual is left to SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import sqlite_pages
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import NULL, Request, WantedColumn

WANTS = (
    WantedColumn("id", "id"),
    WantedColumn("big", "big", NULL),
    WantedColumn("small", "small", -1, is_narrow=True),
    WantedColumn("text", "text", b""),
    WantedColumn("last", "last", 5),
    WantedColumn("absent", "absent", 0xFFFFFFFF, is_narrow=True),
    WantedColumn("ROWID", "row"),
)
REQUEST = Request("t", WANTS)


def decoded(path, request=REQUEST):
    """The columns by the pages alone, None where SQLite has to read them."""
    tables = SqliteTables(path)
    tables.columns("t")
    return tables._decode(request)


def make(
    path, rows, *, page_bytes=4096, columns="id INTEGER PRIMARY KEY, big INTEGER, skipped, small, text TEXT, last"
):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={page_bytes}")
        connection.execute(f"CREATE TABLE t ({columns})")
        marks = ", ".join("?" * (columns.count(",") + 1))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        connection.commit()
    return path


def rows_of_all_sizes(count, longest=90):
    """Numbers at the edges of every stored size, texts of many lengths, NULL, and gaps in the row numbers."""
    edges = [0, 1, -1, None, *(sign * (2**bits) - low for bits in (7, 15, 23, 31, 47, 63) for sign in (1, -1)
                               for low in (0, 1) if -(2**63) <= sign * 2**bits - low < 2**63)]  # fmt: skip
    random = np.random.default_rng(3)
    for k in range(count):
        text = None if k % 7 == 0 else "ä" * (k % 3) + "x" * (int(random.integers(0, 90)) if k % 40 else longest)
        skipped = [None, 1.5, "word", b"\0\1", 7][k % 5]
        yield 3 * k + 1 if k < 200 else 1000 * k, edges[k % len(edges)], skipped, k % 300 - 150, text, edges[-k % 9]


@pytest.mark.parametrize(("page_bytes", "count"), [(512, 3000), (4096, 3000), (65536, 3000), (4096, 1), (4096, 0)])
def test_every_size_of_value_is_read_as_sqlite_reads_it(tmp_path, page_bytes, count):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(count, page_bytes // 5), page_bytes=page_bytes)
    found = decoded(path)
    assert found is not None
    with closing(sqlite3.connect(path)) as connection:
        said = connection.execute(
            "SELECT id, COALESCE(big, ?), small, CAST(COALESCE(text, '') AS BLOB), COALESCE(last, 5), -1, rowid FROM t",
            (NULL,),
        ).fetchall()
    columns = [list(column) for column in zip(*said)] if said else [[] for _ in WANTS]
    assert [found.column(want.alias).to_pylist() for want in WANTS] == columns
    assert [str(found.schema.field(w.alias).type) for w in WANTS] == [str(w.arrow_type) for w in WANTS]


ONE = (1, 10**12, None, 3, "text", 4)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO t VALUES (2, 1.5, NULL, 3, 'text', 4)",  # no whole number
        "INSERT INTO t VALUES (2, 'word', NULL, 3, 'text', 4)",  # no number
        "INSERT INTO t VALUES (2, 1, NULL, 3, CAST(7 AS REAL), x'00')",  # a type that is not wanted of the last
        "INSERT INTO t VALUES (2, 1, zeroblob(9000), 3, 'text', 4)",  # goes on on another page
        "INSERT INTO t VALUES (2, 1, NULL, 3, printf('%.*c', 9000, 'x'), 4)",
        "ALTER TABLE t ADD COLUMN absent INTEGER DEFAULT 9",  # rows have fewer values than the table columns
    ],
)
def test_what_is_unusual_is_left_to_sqlite(tmp_path, change):
    path = make(tmp_path / "a.sqlite", [ONE])
    assert decoded(path).num_rows == 1
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    assert decoded(path) is None


@pytest.mark.parametrize(
    "columns",
    [
        "id INTEGER PRIMARY KEY, big INTEGER, skipped, small, text TEXT, last) WITHOUT ROWID --",
        "id INTEGER PRIMARY KEY DESC, big INTEGER, skipped, small, text TEXT, last",
        "id INTEGER PRIMARY KEY, big INTEGER, skipped, small, text TEXT, last, twice AS (2 * id)) --",
    ],
)
def test_tables_with_other_rows_are_left_to_sqlite(tmp_path, columns):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"CREATE TABLE t ({columns}\n)" if not columns.endswith("--") else f"CREATE TABLE t ({columns}"
        )
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", ONE)
        connection.commit()
    assert decoded(path) is None
    assert SqliteTables(path).read([REQUEST])[0].column("small").to_pylist() == [3]


def test_no_damage_of_a_page_goes_unnoticed_or_ends_in_another_error(tmp_path):
    """Bytes are changed one at a time: either SQLite has to read the table, or there are as many rows as it counts."""
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(60), page_bytes=512)
    whole = path.read_bytes()
    random = np.random.default_rng(5)
    for at, value in zip(random.integers(512, len(whole), 150).tolist(), random.integers(0, 256, 150).tolist()):
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        try:
            found = decoded(path)
        except CaptureError:  # SQLite cannot even count
            continue
        assert found is None or found.num_rows == 60


def test_a_file_that_is_cut_is_left_to_sqlite(tmp_path):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(500))
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(sqlite_pages.Unusual):
        sqlite_pages.PageFile(path).leaves(2)


def test_a_column_of_one_value_takes_no_memory_until_a_row_differs(tmp_path):
    count = 70_000
    rows = [(row, -5, None, 7 if row < count - 1 else 8, "", 1 << 40) for row in range(count)]
    table = decoded(make(tmp_path / "a.sqlite", rows))
    columns = {name: numbers(table, name) for name in ("big", "small", "last", "absent", "id")}
    assert {name: values.strides for name, values in columns.items()} == {
        "big": (0,), "small": (8,), "last": (0,), "absent": (0,), "id": (8,),
    }  # fmt: skip
    assert [(values[0], values[-1], len(values)) for values in columns.values()] == [
        (-5, -5, count), (7, 8, count), (1 << 40, 1 << 40, count), (-1, -1, count), (0, count - 1, count),
    ]  # fmt: skip
