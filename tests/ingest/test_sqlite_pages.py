"""Columns decoded from the pages of a file equal what SQLite says; what is unusual is left to SQLite."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import sqlite_pages, sqlite_tables
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.sqlite_pages.asked import quoted
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
    return tables._decode(request, tables._count("t"))


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
        "id INTEGER PRIMARY KEY, big INTEGER, skipped, small, text TEXT, last) WITHOUT\n  ROWID --",
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


# -- tables of any kind -------------------------------------------------------------------------------------

KEYS = ["INTEGER PRIMARY KEY", "INTEGER PRIMARY KEY\nDESC", "INTEGER /* a */ PRIMARY  KEY ASC",
        "integer primary key --", "INT PRIMARY KEY", "INTEGER UNIQUE", "BIGINT PRIMARY KEY",
        "INTEGER CONSTRAINT DESC PRIMARY KEY NOT NULL",
        "INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER DEFAULT 7", "INTEGER NOT NULL"]  # fmt: skip
OTHERS = ["INTEGER", "", "BLOB", "REAL", "TEXT", "NUMERIC", "INTEGER NOT NULL", "INTEGER DEFAULT 4 UNIQUE"]
NAMES = ["big", "text", "rowid", "ROWID", "_rowid_", "oid", "small", "last", "a b", 'q"', "DESC"]


def drawn(path, seed):
    """A database whose table ``t`` has a schema, a history and rows drawn at random; its columns."""
    draw = random.Random(seed)
    names = {"id": None, **{name.lower(): name for name in draw.sample(NAMES, draw.randint(2, 8))}}
    columns = [f"id {draw.choice(KEYS)}\n"]
    columns += [f'"{name.replace(chr(34), chr(34) * 2)}" {draw.choice(OTHERS)}' for name in list(names.values())[1:]]
    kinds = [
        lambda: draw.randint(-300, 300),
        lambda: draw.choice((0, 1, None)),
        lambda: draw.randint(-(2**63), 2**63 - 1),
    ]
    if draw.random() < 0.4:
        kinds += [
            lambda: "ä" * draw.randint(0, 200),
            lambda: draw.randint(0, 99) / 8,
            lambda: b"x" * draw.randint(0, 900),
        ]
    table_end = draw.choice(["", "", "", "WITHOUT  ROWID", "without\nrowid"]) if "PRIMARY" in columns[0].upper() else ""
    if draw.random() < 0.1:
        columns.append("made AS (id + 1)" + draw.choice((" STORED", "")))
    columns.insert(0, columns.pop(0)) if draw.random() < 0.7 else columns.append(columns.pop(0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={draw.choice((512, 1024, 4096, 65536))}")
        connection.execute(f"PRAGMA encoding='{draw.choice(('UTF-8', 'UTF-8', 'UTF-8', 'UTF-16'))}'")
        connection.execute(f"PRAGMA auto_vacuum={draw.choice((0, 0, 1))}")
        try:
            connection.execute(f"CREATE TABLE t ({', '.join(columns)}) {table_end}")
        except sqlite3.OperationalError:  # AUTOINCREMENT and WITHOUT ROWID, two names for one column
            return None
        stored = [row[1] for row in connection.execute("PRAGMA table_xinfo(t)") if not row[6]]
        marks = f"INSERT OR IGNORE INTO t ({', '.join(map(quoted, stored))}) VALUES ({', '.join('?' * len(stored))})"
        for _ in range(draw.choice((0, 1, 40, 400))):
            row = [draw.randint(-500, 10**12) if name == "id" else draw.choice(kinds)() for name in stored]
            try:
                connection.execute(marks, row)
            except sqlite3.IntegrityError:  # a text as row number
                continue
        if draw.random() < 0.3:
            connection.execute("DELETE FROM t WHERE id % 3 = 0")
        if draw.random() < 0.2:
            connection.execute(
                f"ALTER TABLE t ADD COLUMN added {draw.choice(('INTEGER', 'TEXT', 'INTEGER DEFAULT 4'))}"
            )
        connection.commit()
        if draw.random() < 0.2:
            connection.execute("VACUUM")
        return [row[1] for row in connection.execute("PRAGMA table_xinfo(t)")]


def test_tables_drawn_at_random_are_read_as_sqlite_reads_them(tmp_path):
    decoded_count = read_count = 0
    for seed in range(90):
        path = tmp_path / f"{seed}.sqlite"
        columns = drawn(path, seed)
        if columns is None:
            continue
        for name in sorted({*columns} - {"ROWID"}):  # which asks for the number of the row
            as_text = seed % 4 == 0
            request = Request("t", (WantedColumn(name, "x", b"" if as_text else NULL), WantedColumn("ROWID", "row")))
            tables = SqliteTables(path)
            tables.columns("t")
            found = tables._decode(request, tables._count("t"))
            assert tables.findings == []
            with closing(sqlite3.connect(path)) as connection:
                said = [value for (value,) in connection.execute(f"SELECT {quoted(name)} FROM t")]
            if as_text and any(isinstance(value, (float, bytes)) for value in said):
                continue  # how a float is written depends on the version of SQLite
            said = [("" if as_text else NULL) if value is None else value for value in said]
            said = sorted([str(value).encode() for value in said] if as_text else said, key=repr)
            read_count += 1
            if found is not None:
                decoded_count += 1
                assert sorted(found.column("x").to_pylist(), key=repr) == said, (seed, name)
                continue
            try:
                whole = tables.read([request])[0].column("x").to_pylist()
            except CaptureError as error:
                assert error.code == "capture-bad-column" and not as_text
            else:
                numbers_said = said if as_text else map(int, said)  # a text of digits is a number too
                assert sorted(whole, key=repr) == sorted(numbers_said, key=repr), (seed, name)
    assert decoded_count > read_count / 6


@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_rows_that_are_kept_are_those_that_sqlite_keeps(tmp_path, monkeypatch, page_bytes):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(3000, page_bytes // 5), page_bytes=page_bytes)

    def keep(rows):
        small = np.array(rows.column("small"))
        return (small > 20) & (small < 90)

    request = REQUEST._replace(keep=keep)
    found = decoded(path, request)
    assert found is not None and 0 < found.num_rows < 1000
    monkeypatch.setattr(SqliteTables, "_decode", lambda *_: None)  # so that SQLite reads it
    assert found.equals(SqliteTables(path).read([request])[0])


def test_no_row_may_be_kept(tmp_path):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(300))
    found = decoded(path, REQUEST._replace(keep=lambda rows: np.zeros(rows.num_rows, bool)))
    assert found.num_rows == 0 and found.column_names == [want.alias for want in WANTS]


@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_zones_say_what_lies_in_each_page(tmp_path, page_bytes):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(3000, page_bytes // 5), page_bytes=page_bytes)
    request = Request("t", (WantedColumn("id", "a"), WantedColumn("big", "b", NULL)))
    tables = SqliteTables(path)
    tables.columns("t")
    with tables.opened() as (connection, file):
        zones = sqlite_pages.zones(file, tables._schema["t"].stored, request)
        said = np.array(connection.execute("SELECT id, COALESCE(big, ?) FROM t", (NULL,)).fetchall())
    begins = np.cumsum(zones.counts) - zones.counts
    assert zones.counts.sum() == 3000 and len(zones.pages) > 3
    for k, name in enumerate(("id", "big")):
        assert (zones.least[name] == np.minimum.reduceat(said[:, k], begins)).all()
        assert (zones.most[name] == np.maximum.reduceat(said[:, k], begins)).all()


@pytest.mark.parametrize("change", ["row_number", "columns"])
def test_a_table_decoded_wrongly_is_read_by_sqlite_and_said(tmp_path, monkeypatch, change):
    path = make(tmp_path / "a.sqlite", rows_of_all_sizes(300))
    right = sqlite_tables.asked.stored

    def wrong(*arguments):
        stored = right(*arguments)
        changed = (
            {"row_number": "small"}
            if change == "row_number"
            else {"columns": ("id", "big", "skipped", "last", "text", "small")}
        )
        return stored._replace(**changed)

    monkeypatch.setattr(sqlite_tables.asked, "stored", wrong)
    request = Request("t", (WantedColumn("id", "id"), WantedColumn("small", "small")))
    tables = SqliteTables(path)
    found = tables.read([request])[0]
    assert [(one.code, one.count, one.example) for one in tables.findings] == [("decoded-otherwise", 300, "t")]
    with closing(sqlite3.connect(path)) as connection:
        assert list(zip(*found.to_pydict().values())) == connection.execute("SELECT id, small FROM t").fetchall()
