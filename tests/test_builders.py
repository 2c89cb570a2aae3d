"""The test writers write what nsys writes: the column sets of real captures, and every oddity they have."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import CLASS_CUDABACKTRACE, ExportBuilder, global_id
from export_schema import PRODUCTS, UNVERSIONED, tables_of


def rows(path, sql):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.text_factory = bytes
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def table_columns(path):
    return {
        name.decode(): [
            (c[1].decode(), c[2].decode(), c[3]) for c in rows(path, f"PRAGMA table_info('{name.decode()}')")
        ]
        for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }


def test_columns_are_those_of_real_captures(captures, tmp_path):
    compared = 0
    for real in sorted((captures / "nsys").glob("*.sqlite")):
        real_tables = table_columns(real)
        meta = next((t for t in ("META_DATA_EXPORT", "EXPORT_META_DATA") if t in real_tables), None)
        schema = UNVERSIONED
        if meta:
            [(version,)] = rows(real, f"SELECT value FROM {meta} WHERE name = 'EXPORT_SCHEMA_VERSION'")
            schema = version.decode()
        ours = table_columns(ExportBuilder(schema, lazy=False).write(tmp_path / real.name))
        for table in ours.keys() & real_tables.keys():
            assert ours[table] == real_tables[table], (real.name, schema, table)
            compared += 1
    assert compared > 150


@pytest.mark.parametrize("schema", [*PRODUCTS, UNVERSIONED])
def test_every_schema_version_can_be_written(schema, tmp_path):
    builder = ExportBuilder(schema).process(7).range("a", 0, 10, domain="d").gpu()
    builder.kernel("k", launch=(1, 2), run=(3, 4)).memcpy(8, launch=(4, 5), run=(5, 6))
    path = builder.write(tmp_path / "x.sqlite")
    tables = table_columns(path)
    assert rows(path, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == [(1,)]
    assert ("META_DATA_EXPORT" in tables) == (schema != UNVERSIONED and tuple(map(int, schema.split("."))) >= (3, 4))
    assert ("PROCESSES" in tables) == (schema != UNVERSIONED)


def test_the_example_of_the_module(tmp_path):
    path = (
        ExportBuilder()
        .process(100)
        .thread(100)
        .range("model#0", 0, 1000, domain="xsp")
        .kernel("gemm", launch=(10, 15), run=(20, 120))
        .write(tmp_path / "report.sqlite")
    )
    joined = """
        SELECT s.value, k.start, k.end, r.start, r.end FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
          ON r.correlationId = k.correlationId AND (r.globalTid & ~0xFFFFFF) = k.globalPid
        JOIN StringIds s ON s.id = k.demangledName"""
    assert rows(path, joined) == [(b"gemm", 20, 120, 10, 15)]
    named = (
        "SELECT n.text, d.text FROM NVTX_EVENTS n JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = n.domainId"
    )
    assert rows(path, named + " WHERE n.eventType = 59") == [(b"model#0", b"xsp")]


def test_correlation_ids_collide_between_processes_and_double_within_one(tmp_path):
    builder = ExportBuilder()
    for pid in (1, 2):
        builder.process(pid).kernel("k", launch=(0, 9), run=(10, 20))
    builder.duplicate_api("cuLaunchKernel", 2, 8)
    builder.duplicate_api("cudaLaunchKernel_v7000", 0, 9, event_class=CLASS_CUDABACKTRACE)
    path = builder.write(tmp_path / "x.sqlite")
    found = rows(path, "SELECT globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert found == [(global_id(1), 1), (global_id(2), 1)]
    assert rows(path, "SELECT eventClass FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid >> 24 & 0xFFFFFF = 2") == [
        (0,),
        (1,),
        (67,),
    ]


def test_orphans_lonely_launches_and_graph_nodes(tmp_path):
    builder = ExportBuilder().kernel("orphan", run=(5, 6)).api("cudaLaunchKernel_v7000", 1, 2)
    builder.graph_node(11, -50).graph_node(12, 3, original=11)
    builder.graph_launch(launch=(10, 11), run=None)
    builder.kernel("a", run=(12, 13), correlation=builder.last_correlation, graph_node=12)
    builder.kernel("b", run=(13, 14), correlation=builder.last_correlation, graph_node=12)
    path = builder.write(tmp_path / "x.sqlite")
    unmatched = "SELECT count(*) FROM {} WHERE correlationId NOT IN (SELECT correlationId FROM {})"
    kernels, calls = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
    assert rows(path, unmatched.format(kernels, calls)) == [(1,)]
    assert rows(path, unmatched.format(calls, kernels)) == [(1,)]
    assert rows(path, "SELECT graphNodeId, originalGraphNodeId, start FROM CUDA_GRAPH_NODE_EVENTS") == [
        (11, None, -50),
        (12, 11, 3),
    ]


def test_odd_texts_and_columns(tmp_path):
    hostile = "</script><img onerror=x>'\"; DROP TABLE \x00 \u202e" + "n" * 10_000
    builder = ExportBuilder().range(b"caf\xe9", -5, None).range(hostile, 0, 1).range("by id", 0, 1, interned=True)
    builder.cross_thread("handed over", 0, 5, end_thread=7)
    builder.add_column("NVTX_EVENTS", "kernel_name", value="mine")
    path = builder.write(tmp_path / "x.sqlite")
    found = rows(path, "SELECT text, textId, end, typeof(text), kernel_name, endGlobalTid FROM NVTX_EVENTS")
    assert found[0] == (b"caf\xe9", None, None, b"text", b"mine", None)
    assert found[1][0] == hostile.encode()
    assert found[2][:2] == (None, 0)
    assert found[3][5] == global_id(100, 7)
    with pytest.raises(KeyError, match="no_such"):
        builder.row("NVTX_EVENTS", no_such=1)


def test_lazy_leaves_empty_tables_out(tmp_path):
    lazy = ExportBuilder().range("a", 0, 1)
    full = ExportBuilder(lazy=False).range("a", 0, 1).drop_table("StringIds")
    assert "CUPTI_ACTIVITY_KIND_KERNEL" not in table_columns(lazy.write(tmp_path / "lazy.sqlite"))
    tables = table_columns(full.write(tmp_path / "full.sqlite"))
    assert set(tables) == set(tables_of("3.25.0")) - {"StringIds"}


def test_folders_hold_the_same_rows(tmp_path):
    builder = ExportBuilder(lazy=False).range(b"caf\xe9", 0, None).gpu().kernel("k", launch=(0, 1), run=(2, 3))
    path = builder.write(tmp_path / "report.sqlite")
    parquet = builder.write_parquetdir(tmp_path / "report.sqlite")
    arrow = builder.write_arrowdir(tmp_path / "report.sqlite")
    assert (parquet.name, arrow.name) == ("report_pqtdir", "report_arwdir")
    for table in builder.tables_to_write():
        expected = [tuple(row) for row in rows(path, f'SELECT * FROM "{table}"')]
        with pa.memory_map(str(arrow / f"{table}.arrow")) as source:
            for data in (pq.read_table(parquet / f"{table}.parquet"), pa.ipc.open_file(source).read_all()):
                columns = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in data.columns]
                assert list(zip(*(column.to_pylist() for column in columns))) == expected, table
