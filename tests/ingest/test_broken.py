"""Inputs that broke something once, and their like made here: read whole, or refused in one sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from builders import ExportBuilder
from conftest import CANARY
from export_schema import KERNEL

from xsp_post.base.errors import CaptureError, XspPostError
from xsp_post.ingest import sqlite_tables
from xsp_post.ingest.sources import load
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import Request, WantedColumn


@pytest.fixture
def broken(captures) -> Path:
    folder = captures / "broken"
    if not folder.is_dir():
        pytest.skip("no folder of broken captures here")
    return folder


def refused(path) -> XspPostError:
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.exit_code == 4 and CANARY not in caught.value.message + caught.value.hint
    return caught.value


def test_lost_kernels_are_not_lost_silently(broken):
    assert refused(broken / "lost_kernels.sqlite").code == "capture-damaged"


def test_a_private_value_stays_out_of_the_sentence(broken):
    error = refused(broken / "canary_leak.sqlite")
    assert error.code == "capture-bad-column" and "CUPTI_ACTIVITY_KIND_MEMCPY.end" in error.message


@pytest.mark.parametrize(("name", "table"), [("infview", KERNEL), ("infview_meta", "META_DATA_CAPTURE")])
def test_an_endless_view_is_refused_by_name(broken, name, table):
    error = refused(broken / f"{name}.sqlite")
    assert error.code == "capture-view" and f"{table} is a view" in error.message


def test_a_write_ahead_log_is_not_ignored_and_nothing_stays_beside_it(broken, tmp_path):
    folder = tmp_path / "wal"
    shutil.copytree(broken / "wal", folder)
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert refused(folder / "w2.sqlite").code == "capture-unmerged"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


# -- made here ------------------------------------------------------------------------------------------


def export(path, kernels=5) -> Path:
    builder = ExportBuilder().range("step", 0, 10_000)
    for k in range(kernels):
        builder.kernel("k", launch=(10 * k, 10 * k + 1), run=(10 * k + 2, 10 * k + 9))
    return builder.write(path)


def test_a_database_in_wal_mode_leaves_nothing_beside_it(tmp_path):
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"DELETE FROM {KERNEL} WHERE start = 2")
        connection.commit()
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    (tmp_path / "a.sqlite-wal").touch()  # an empty log holds no change
    assert len(load(path).trace.activities) == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.sqlite", "a.sqlite-wal"]


def test_a_log_that_a_program_still_writes_is_refused(tmp_path):
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"DELETE FROM {KERNEL} WHERE start = 2")
        connection.commit()
        before = sorted(os.listdir(tmp_path))
        assert refused(path).code == "capture-unmerged"
        link = tmp_path / "link.sqlite"
        link.symlink_to(path)
        assert refused(link).code == "capture-unmerged"
        link.unlink()
        assert sorted(os.listdir(tmp_path)) == before


def test_rows_whose_numbers_are_out_of_order_are_read_by_one_scan(tmp_path, monkeypatch):
    """Slices of a b-tree whose keys are out of order miss rows; SQLite's count of the file does not."""
    path = export(tmp_path / "a.sqlite", kernels=40)
    tables = SqliteTables(path)
    monkeypatch.setattr(
        SqliteTables, "_queries", lambda self, request: [f"{self._select(request)} WHERE rowid BETWEEN 1 AND 28"]
    )
    request = Request(KERNEL, (WantedColumn("start", "start_ns"),))
    assert tables.read([request])[0].num_rows == 40
    assert tables.row_counts == {KERNEL: 40}


def test_fewer_rows_than_sqlite_counts_are_refused(tmp_path, monkeypatch):
    path = export(tmp_path / "a.sqlite")
    monkeypatch.setattr(SqliteTables, "_count", lambda self, table: 7)
    error = refused(path)
    assert error.code == "capture-rows-lost" and "of 7 rows of StringIds only" in error.message


def test_slices_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_tables, "_SLICE_ROWS", 3)
    trace = load(export(tmp_path / "a.sqlite", kernels=10)).trace
    assert trace.activities["start_ns"].tolist() == [10 * k + 2 for k in range(10)]
