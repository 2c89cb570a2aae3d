"""Exports that lack a column or a table: an alternative is used, a finding says so, or one sentence refuses them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from builders import ExportBuilder
from export_schema import KERNEL, MEMCPY, RUNTIME

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import interning
from xsp_post.ingest.sources import load

NVTX = "NVTX_EVENTS"


def steps() -> ExportBuilder:
    """Two ranges, two kernels, a copy."""
    builder = ExportBuilder().process(100).gpu().range("step", 0, 500).range("layer", 10, 400)
    builder.kernel("void gemm<float>(int)", launch=(20, 25), run=(50, 150))
    builder.set_last(KERNEL, shortName=builder.string("gemm"))
    builder.kernel("relu", launch=(30, 35), run=(160, 200))
    return builder.memcpy(4096, launch=(40, 45), run=(210, 230))


def renamed(path, table, column, new="renamed"):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{new}"')
        connection.commit()
    return path


REQUIRED = [
    (KERNEL, "start"), (KERNEL, "end"), (KERNEL, "deviceId"), (KERNEL, "streamId"), (KERNEL, "correlationId"),
    (MEMCPY, "end"), (RUNTIME, "start"), (RUNTIME, "correlationId"), (RUNTIME, "globalTid"), (RUNTIME, "nameId"),
    (NVTX, "end"), (NVTX, "eventType"), (NVTX, "globalTid"), ("StringIds", "value"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column"), REQUIRED)
def test_a_missing_required_column_is_named_with_its_table_and_the_version(tmp_path, table, column):
    path = renamed(steps().write(tmp_path / "a.sqlite"), table, column)
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.code == "capture-column-missing" and caught.value.exit_code == 4
    assert f"table {table} has no column {column}," in caught.value.message
    assert "2026.2.1.210" in caught.value.message


def test_a_missing_required_column_of_a_parquet_folder(tmp_path):
    folder = steps().write_parquetdir(tmp_path / "a_pqtdir")
    file = folder / f"{KERNEL}.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["streamId"]), file)
    with pytest.raises(CaptureError, match=f"table {KERNEL} has no column streamId"):
        load(folder)


def test_a_range_needs_one_of_two_columns_for_its_text(tmp_path):
    path = renamed(steps().write(tmp_path / "a.sqlite"), NVTX, "textId")
    assert "layer" in load(path).trace.strings.tolist()
    with pytest.raises(CaptureError, match=f"table {NVTX} has no column text or textId"):
        load(renamed(path, NVTX, "text", "text2"))


def test_the_short_name_stands_for_a_missing_demangled_one(tmp_path):
    path = renamed(steps().write(tmp_path / "a.sqlite"), KERNEL, "demangledName")
    trace = load(path).trace
    kernels = trace.activities[trace.activities["kind"] == 0]
    assert trace.strings[kernels["name_id"]].tolist() == ["gemm", "relu"]


@pytest.mark.parametrize(
    ("table", "column"), [(MEMCPY, "bytes"), (MEMCPY, "copyKind"), (RUNTIME, "eventClass"), (KERNEL, "gridX")]
)
def test_a_missing_optional_column_is_a_finding(tmp_path, table, column):
    trace = load(renamed(steps().write(tmp_path / "a.sqlite"), table, column)).trace
    (found,) = [f for f in trace.findings if f.code == "columns-missing"]
    assert f"{table}.{column} (" in found.example
    assert len(trace.activities) == 3


def test_a_complete_export_has_no_such_finding(tmp_path):
    for schema in ("2.9.1", "3.0.0", "3.25.0", "unversioned"):
        builder = ExportBuilder(schema).range("a", 0, 100).kernel("k", launch=(1, 2), run=(5, 9))
        trace = load(builder.memcpy(1, launch=(3, 4), run=(10, 12)).write(tmp_path / f"{schema}.sqlite")).trace
        assert "columns-missing" not in {f.code for f in trace.findings}


def test_an_empty_table_needs_no_columns(tmp_path):
    path = steps().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE CUDNN_EVENTS (start INTEGER)")
        connection.commit()
    assert len(load(path).trace.activities) == 3


def test_device_work_without_a_process_column(tmp_path):
    """With one process it can only be that one; with two it cannot be told."""
    path = renamed(steps().write(tmp_path / "a.sqlite"), KERNEL, "globalPid")
    assert load(path).trace.activities["process_index"].tolist() == [0, 0, 0]
    builder = steps().process(200).kernel("other", launch=(300, 310), run=(320, 330))
    with pytest.raises(CaptureError, match=f"table {KERNEL} has no column globalPid"):
        load(renamed(builder.write(tmp_path / "b.sqlite"), KERNEL, "globalPid"))


@pytest.mark.parametrize("table", [KERNEL, RUNTIME, NVTX, "StringIds", "META_DATA_EXPORT"])
def test_a_view_in_place_of_a_table_is_refused_by_name(tmp_path, table):
    path = steps().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"ALTER TABLE {table} RENAME TO kept; CREATE VIEW {table} AS SELECT * FROM kept;"
            "CREATE VIEW broken AS SELECT * FROM nowhere;"
        )
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.code == "capture-view" and f"{table} is a view" in caught.value.message


def test_other_views_and_virtual_tables_do_not_matter(tmp_path):
    path = steps().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE VIEW mine AS SELECT * FROM nowhere; CREATE VIRTUAL TABLE words USING fts5(word);"
        )
    assert len(load(path).trace.activities) == 3


def test_a_frame_in_less_memory_holds_the_same_values():
    frame = pd.DataFrame({"kind": np.zeros(3, np.int8), "start_ns": [5, 5, 7], "correlation_id": [-1, 1 << 29, 3]})
    compact = interning.compact(frame)
    assert compact.to_dict("list") == frame.to_dict("list")
    assert compact["kind"].to_numpy().strides == (0,) and compact["correlation_id"].dtype == np.int32
    large = interning.compact(frame.assign(correlation_id=[0, 1, 0xFFFFFFFF]))
    assert large["correlation_id"].tolist() == [0, 1, 0xFFFFFFFF]
    assert len(interning.compact(frame[:0])) == 0
