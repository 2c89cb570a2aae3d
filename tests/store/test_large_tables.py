"""A table of many rows is stored in parts, and reads as one of few rows does."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from xsp_post.base.errors import CaptureError
from xsp_post.exporters.tables import write_csv
from xsp_post.model.results import Analysis, empty_table
from xsp_post.store.layout import LEAST_ROWS, stretches
from xsp_post.store.store import open_store, write_store


def _paths(count: int) -> pd.DataFrame:
    numbers = np.arange(count)
    frame = empty_table("paths").reindex(range(count))
    names = pd.Index([f"rän\x00ge {i}" for i in range(count)])
    causes = np.where(numbers % 3 > 0, numbers % 3 - 1, -1)
    columns = {
        "capture_id": np.zeros(count, np.int64),
        "path_id": numbers,
        "parent_path_id": np.where(numbers % 2 > 0, numbers // 2, -1),
        "level": pd.Categorical(["layer"] * count, ["model", "layer"]),
        "name": pd.Categorical.from_codes(numbers[::-1], names),
        "idle_cause": pd.Categorical.from_codes(causes, ["launch latency", "host"]),
        "confidence": np.full(count, "", object),
        "idle_ns": np.where(numbers % 5 > 0, numbers * 1.0, np.nan),
        "busy_ns": np.full(count, np.nan),
        "gap_ns": numbers + 0.5,
        "is_inferred": np.ones(count, bool),
    }
    whole = {c: np.full(count, 7) for c in frame.columns if c.endswith(("_count", "_ns", "_bytes"))}
    return frame.assign(**{"depth": 1, "span_kind": "nvtx", **whole, **columns})[list(frame.columns)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The store of many rows, and that of as many as are not split."""
    folder = tmp_path_factory.mktemp("stores")
    for name, count in (("large", LEAST_ROWS), ("small", LEAST_ROWS - 1)):
        frames = {"captures": empty_table("captures"), "findings": empty_table("findings"), "paths": _paths(count)}
        write_store(Analysis(frames, []), folder / name)
    return folder / "large", folder / "small"


def test_a_view_shows_what_a_table_of_fewer_rows_holds(stores):
    shown = []
    for path in stores:
        with closing(sqlite3.connect(path)) as database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(paths)")]
            rows = database.execute("SELECT * FROM paths ORDER BY path_id").fetchmany(LEAST_ROWS - 1)
            kinds = dict(database.execute("SELECT name, type FROM sqlite_master").fetchall())
            shown.append((columns, [{**dict(zip(columns, row)), "name": ""} for row in rows], kinds["paths"]))
    assert (shown[0][2], shown[1][2]) == ("view", "table")
    assert shown[0][:2] == shown[1][:2]
    first, second = shown[0][1][:2]
    assert (first["idle_cause"], second["idle_cause"], first["confidence"]) == (None, "launch latency", "")
    assert (first["busy_ns"], first["idle_ns"], second["idle_ns"], second["gap_ns"]) == (None, None, 1.0, 1.5)


def test_a_large_table_is_read_as_it_was_written(stores):
    large, small = (open_store(path) for path in stores)
    assert large.tables() == small.tables() == ["captures", "findings", "paths"]
    read, few = large.frame("paths"), small.frame("paths")
    assert list(read) == list(few)
    for column in few.columns.drop("name"):
        assert read[column].head(len(few)).astype(few[column].dtype).equals(few[column]), column
    assert read["name"].tolist()[:2] == [f"rän\u2400ge {LEAST_ROWS - 1}", f"rän\u2400ge {LEAST_ROWS - 2}"]
    assert large.frame("paths", ["idle_cause", "level"]).iloc[0].tolist() == ["", "layer"]


@pytest.mark.parametrize("extra", [0, 1])
def test_the_number_of_another_table_is_stored_whole(extra, tmp_path):
    """The numbers of kernels are the key of `kernels` alone: SQLite gives out none in another table."""
    count = LEAST_ROWS + extra
    work = empty_table("kernel_work").reindex(range(count)).assign(capture_id=0, kernel_id=np.arange(count))
    work = work.assign(operator_index=-1, phase=pd.Categorical(["forward"] * count), pipe=pd.Categorical([""] * count))
    frames = {"captures": empty_table("captures"), "findings": empty_table("findings"), "kernel_work": work}
    write_store(Analysis(frames, []), tmp_path / "store")
    store = open_store(tmp_path / "store")
    assert store.frame("kernel_work")["kernel_id"].tolist() == list(range(count))
    assert store.numbered("kernel_work", "kernel_id", np.array([3, count - 1]))["kernel_id"].tolist() == [3, count - 1]


def test_same_texts_of_several_columns_are_stored_once(stores):
    with closing(sqlite3.connect(stores[0])) as database:
        assert (
            database.execute("SELECT count(*), count(DISTINCT text) FROM strings").fetchone() == (LEAST_ROWS + 6,) * 2
        )
        constants = [row[1] for row in database.execute("PRAGMA table_info(path_kinds)")]
        assert {"level_string_id", "busy_ns", "copy_count"} < set(constants)
        assert "name_string_id" not in constants


@pytest.mark.parametrize(
    "view", ["SELECT 1 AS name", "WITH RECURSIVE n AS (SELECT 1 UNION ALL SELECT * FROM n) SELECT * FROM n"]
)
def test_what_a_replaced_view_shows_does_not_matter(stores, tmp_path, view):
    path = _changed(stores[0], tmp_path, f"DROP VIEW paths; CREATE VIEW paths AS {view}")
    assert open_store(path).frame("paths", ["path_id"])["path_id"].sum() == LEAST_ROWS * (LEAST_ROWS - 1) // 2


_UNLISTED = "UPDATE xsp_meta SET value = '{}' WHERE key = 'tables'; DROP TABLE"


@pytest.mark.parametrize(("change", "code", "said"), [
    ("DROP TABLE path_kinds", "store-table-missing", "table path_kinds"),
    ("DELETE FROM xsp_meta WHERE key = 'tables'", "store-table-missing", "list of tables"),
    (f"{_UNLISTED} path_kinds", "store-table-missing", "table path_kinds"),
    (f"{_UNLISTED} path_rows; DROP VIEW paths; CREATE VIEW path_rows AS SELECT * FROM paths; "
     "CREATE VIEW paths AS SELECT * FROM path_rows", "capture-view", "path_rows is a view"),
    ("DELETE FROM strings WHERE string_id = 3", "store-damaged", "strings"),
    ("UPDATE path_kinds SET path_kind_id = path_kind_id + 10", "store-damaged", "path_kinds"),
    ("UPDATE path_rows SET name_string_id = 1000000", "store-damaged", "strings"),
    ("UPDATE path_rows SET path_kind_id = NULL", "store-damaged", "path_rows"),
    ("ALTER TABLE path_rows ADD COLUMN name", "store-damaged", "path_rows"),
])  # fmt: skip
def test_parts_that_do_not_fit_together_are_named(stores, tmp_path, change, code, said):
    path = _changed(stores[0], tmp_path, change)
    with pytest.raises(CaptureError) as refused:
        open_store(path).frame("paths")
    assert refused.value.code == code and said in refused.value.message


def test_tables_that_somebody_else_added_are_left_out(stores, tmp_path):
    tables = 'CREATE TABLE "../outside" (x); CREATE TABLE "a""b" (x);'
    views = "CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM a"
    path = _changed(stores[0], tmp_path, tables + views)
    assert open_store(path).tables() == ["captures", "findings", "paths"]
    write_csv(open_store(path), tmp_path / "csv")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["changed", "csv"]


def _changed(store, folder, change):
    shutil.copy(store, folder / "changed")
    with closing(sqlite3.connect(folder / "changed")) as database:
        # an edit need not leave views that still make sense
        database.executescript(f"PRAGMA writable_schema = ON; {change}")
    return folder / "changed"


def test_columns_that_somebody_else_added_are_left_out(stores, tmp_path):
    written = open_store(stores[0]).frame("paths")
    for part in ("path_rows", "path_kinds"):
        path = _changed(stores[0], tmp_path, f'ALTER TABLE {part} ADD COLUMN "=cmd\x1b[31m<script>" DEFAULT 5')
        assert open_store(path).frame("paths").equals(written)


def test_metrics_of_a_kernel_are_found_by_an_index(tmp_path):
    frame = empty_table("kernel_metrics").reindex(range(LEAST_ROWS))
    frame = frame.assign(kernel_id=frame.index // 40, metric_name="m", value=1.5, unit="", source="ncu")
    tables = {name: empty_table(name) for name in ("captures", "findings")}
    write_store(Analysis({**tables, "kernel_metrics": frame}, []), tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store")) as database:
        plan = database.execute("EXPLAIN QUERY PLAN SELECT value FROM kernel_metrics WHERE kernel_id = 7").fetchall()
        assert database.execute("SELECT sum(value) FROM kernel_metrics WHERE kernel_id = 7").fetchone() == (60.0,)
    assert any("idx_kernel_metric_rows_kernel_id" in step[3] for step in plan)


def test_a_stretch_of_rows_outside_of_executions_says_so():
    written = stretches("critical_path", pd.DataFrame({"iteration_index": [np.nan, np.nan]}))
    assert [written[name].to_pylist() for name in ("least_iteration", "most_iteration")] == [[-1], [-1]]
