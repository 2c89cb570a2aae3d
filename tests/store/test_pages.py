"""Pages laid out by NumPy: SQLite finds them whole, reads the same values, and goes on with the file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from xsp_post.store.pages import _Pages, append_rows, can_append

ROWS = 12_000


def _rows(rng: np.random.Generator, first_id: int, count: int = ROWS) -> pa.Table:
    few, half = rng.random(count) < 0.001, rng.random(count) < 0.5
    numbers = {
        "id": np.arange(count) * 7 + first_id,
        "zero": np.zeros(count, np.int8),
        "one": np.ones(count, np.int64),
        "small": rng.integers(-128, 128, count).astype(np.int16),
        "three": rng.integers(-(1 << 23), 1 << 23, count),
        "six": rng.integers(-(1 << 47), 1 << 47, count),
        "eight": rng.integers(-(1 << 63), (1 << 63) - 1, count),
        "real": rng.normal(size=count),
        "some": pa.array(rng.integers(0, 1 << 40, count), mask=half),
        "most": pa.array(rng.integers(0, 9, count), mask=~few),
        "none": pa.array(np.zeros(count, np.int64), mask=np.ones(count, bool)),
    }
    numbers["whole"] = pa.array(rng.integers(-500, 500, count).astype(float), mask=half)
    numbers["large"] = rng.integers(0, 1 << 60, count).astype(float)
    numbers.update({f"wide{i}": rng.integers(0, 1 << 62, count) for i in range(8)})  # lengths of one byte and of two
    lengths = rng.choice([0, 1, 56, 57, 58, 300], count)
    texts = pa.array(
        [None if n == 300 and i % 2 else "ö" * (n % 2) + "x" * (n - n % 2 * 2) for i, n in enumerate(lengths.tolist())]
    )
    return pa.table(numbers | {"text": texts})


def _empty(path: Path, rows: pa.Table, page_bytes: int = 16384) -> tuple[sqlite3.Connection, int]:
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA page_size = {page_bytes}")
    types = {
        name: "REAL" if pa.types.is_floating(kind) else "TEXT" if pa.types.is_string(kind) else "INTEGER"
        for name, kind in zip(rows.column_names, rows.schema.types)
    }
    types |= {"id": "INTEGER PRIMARY KEY"} if "id" in types else {}
    database.execute(f"CREATE TABLE numbers ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
    database.commit()
    root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'numbers'").fetchone()[0]
    database.close()
    return sqlite3.connect(path), root


@pytest.mark.parametrize(("first_id", "page_bytes"), [(0, 16384), (1 << 34, 4096)])
def test_what_is_laid_out_is_what_sqlite_reads_and_changes(tmp_path, first_id, page_bytes):
    rows = _rows(np.random.default_rng(3), first_id)
    assert can_append(rows)
    database, root = _empty(tmp_path / "a.sqlite", rows, page_bytes)
    indexes = {}
    for name in ("id", "one", "small", "eight", "real", "some", "most", "none"):
        database.execute(f"CREATE INDEX by_{name} ON numbers ({name})")
        found = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (f"by_{name}",))
        indexes[name] = found.fetchone()[0]
    database.close()
    assert append_rows(tmp_path / "a.sqlite", root, rows, "id", indexes)
    database = sqlite3.connect(tmp_path / "a.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    read = database.execute("SELECT * FROM numbers").fetchall()
    assert read == list(zip(*(column.to_pylist() for column in rows.columns)))
    assert database.execute(
        "SELECT DISTINCT typeof(real), typeof(whole), typeof(large) FROM numbers WHERE some"
    ).fetchall() == [("real",) * 3]
    few = {row[0] for row in read if row[9] == 3}
    assert {row[0] for row in database.execute("SELECT id FROM numbers INDEXED BY by_most WHERE most = 3")} == few
    last = first_id + (ROWS - 1) * 7
    assert database.execute("SELECT six FROM numbers WHERE id = ?", (last,)).fetchone()[0] == rows["six"][-1].as_py()
    database.execute("DELETE FROM numbers WHERE rowid % 3 = 0")
    database.execute("INSERT INTO numbers (some, six) VALUES (7, 8)")
    database.commit()
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_rows_without_a_key_are_numbered_from_one(tmp_path):
    rows = pa.table({"a": np.arange(ROWS) % 5})
    database, root = _empty(tmp_path / "a.sqlite", rows)
    assert append_rows(tmp_path / "a.sqlite", root, rows, None)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("SELECT min(rowid), max(rowid), sum(a) FROM numbers").fetchone() == (1, ROWS, ROWS * 2)


def test_what_cannot_be_laid_out_is_left_to_sqlite(tmp_path):
    rows = pa.table({"id": np.arange(ROWS)[::-1].copy(), "a": np.arange(ROWS)})
    database, root = _empty(tmp_path / "a.sqlite", rows)
    before = (tmp_path / "a.sqlite").read_bytes()
    assert not append_rows(tmp_path / "a.sqlite", root, rows, "id")
    assert (tmp_path / "a.sqlite").read_bytes() == before
    assert not can_append(pa.table({"bytes": [b"a"] * ROWS}))
    long = pa.table({"id": np.arange(ROWS), "a": ["a"] * (ROWS - 1) + ["b" * 8000]})
    assert can_append(long)
    assert not append_rows(tmp_path / "a.sqlite", root, long, "id")
    assert (tmp_path / "a.sqlite").read_bytes() == before
    assert not can_append(pa.table({"a": np.arange(ROWS, dtype=np.uint64)}))
    assert not can_append(pa.table({"a": np.arange(9)}))
    database.close()


def test_the_page_of_the_lock_byte_stays_free(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        pages = _Pages(file, 16384, (1 << 30) // 16384 - 1)
        assert pages.append(bytes(3 * 16384)) == [65536, 65538, 65539]
        assert (pages.append(bytes(16384)), pages.count) == ([65540], 65540)
