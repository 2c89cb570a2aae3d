"""Exports of real captures: the official report against NVIDIA's definition in SQL, every slice counted."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from conftest import CANARY
from recorded import analyzed

from xsp_post.exporters import FORMATS, export, nvtx_gpu_proj_trace
from xsp_post.exporters.timeline import build_timeline
from xsp_post.pipeline import Options, analyze
from xsp_post.store.store import open_store, write_store

# The definition of nvtx_gpu_proj_trace, row by row (slow; small captures only).
DEFINITION = """
WITH ev AS (
  SELECT n.rowid AS id, n.start AS s, n.globalTid AS thread, coalesce(n.text, t.value) AS text, coalesce(n.end,
         (SELECT max(max(start), max(coalesce(end, start))) FROM NVTX_EVENTS)) AS e
  FROM NVTX_EVENTS n LEFT JOIN StringIds t ON t.id = n.textId
  WHERE n.eventType IN (59, 60, 70, 71) AND n.endGlobalTid IS NULL),
op AS ({operations}),
launch AS (
  SELECT r.start AS s, r.end AS e, r.globalTid AS thread, r.correlationId AS c, op.start AS os, op.end AS oe
  FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN op
    ON op.correlationId = r.correlationId AND op.globalPid = r.globalTid - r.globalTid % 16777216)
SELECT ev.id, ev.text, min(os), max(oe) - min(os), ev.s, ev.e - ev.s, count(DISTINCT launch.c)
FROM ev JOIN launch ON launch.thread = ev.thread AND ev.s <= launch.s AND ev.e >= launch.e
GROUP BY ev.id ORDER BY 3, 4 DESC, 1
"""


def by_definition(path: Path) -> pd.DataFrame:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]
        operations = " UNION ALL ".join(
            f"SELECT start, end, correlationId, globalPid FROM {table}" for table in tables if table in there
        )
        rows = connection.execute(DEFINITION.format(operations=operations)).fetchall()
    return pd.DataFrame(
        rows,
        columns=[
            "RangeId",
            "Text",
            "Projected Start",
            "Projected Duration",
            "Orig Start",
            "Orig Duration",
            "NumGPUOps",
        ],
    )


@pytest.mark.parametrize("name", ["transformer_2.7b_a100_nvtx", "transformer_backward_rtx3070ti", "nvfuser_h200"])
def test_the_official_report_equals_its_definition(captures, name):
    path = captures / "nsys" / f"{name}.sqlite"
    ours = nvtx_gpu_proj_trace.data(analyzed(path))
    expected = by_definition(path)
    assert len(expected) > 0
    columns = [c for c in expected.columns if c != "Text"]
    got = ours[columns].astype("int64")
    pd.testing.assert_frame_equal(got, expected[columns].astype("int64"))
    assert [name.split(":", 1)[1] for name in ours["Name"]] == expected["Text"].tolist()


@pytest.fixture(scope="module")
def fsdp(captures):
    return analyzed(captures / "nsys" / "fsdp_2gpu_h100.sqlite", Options(infer=False))  # recorded ranges only


def test_every_slice_of_a_two_process_capture_is_there(fsdp, captures):
    with sqlite3.connect(f"file:{captures / 'nsys' / 'fsdp_2gpu_h100.sqlite'}?mode=ro&immutable=1", uri=True) as db:
        ranges = db.execute("SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN (59, 60, 70, 71)").fetchone()[0]
        kernels = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    timeline = build_timeline(fsdp)
    counts = timeline.counts()
    assert (counts["ranges"], counts["kernels"]) == (ranges, kernels)
    launched = timeline.slices[timeline.slices["category"] == 2]
    arrows = int(launched["flow_count"].sum())
    orphans = int((fsdp.frame("kernels")["launch_start_ns"] < 0).sum())
    orphans += int((fsdp.frame("memory_operations")["launch_start_ns"] < 0).sum())
    assert arrows == kernels + counts["memory operations"] - orphans
    assert len({(t.process_id, t.device_id) for t in timeline.track_rows() if t.kind == "stream"}) == 2


def test_a_store_exports_what_its_analysis_exports(fsdp, tmp_path):
    store = tmp_path / "fsdp.xsp.sqlite"
    write_store(fsdp, store)
    opened = open_store(store)
    ours, stored = tmp_path / "ours", tmp_path / "stored"
    ours.mkdir()
    stored.mkdir()
    for to in set(FORMATS) - {"parquet", "xlsx"}:  # other writers of the rows that csv has; xlsx holds its time
        name = f"fsdp_{to}"  # Datasette's metadata has the store's name in it
        export(fsdp, to, ours / name, limit=2_000)
        export(opened, to, stored / name, limit=2_000)
        if to == "csv":
            frames = [pd.read_csv(folder / name / "kernels.csv") for folder in (ours, stored)]
            pd.testing.assert_frame_equal(*frames)
        elif to == "csv_spreadsheet":
            texts = [(folder / name / "kernels.csv").read_bytes() for folder in (ours, stored)]
            assert texts[0] == texts[1]
        else:
            assert (ours / name).read_bytes() == (stored / name).read_bytes(), to


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["no_kernels_2023.4", "tensorrt_nvtx_only_titanrtx", "two_kernels_rtx3080"])
def test_captures_with_little_in_them_export_in_every_format(captures, tmp_path, name):
    results = analyzed(captures / "nsys" / f"{name}.sqlite")
    for to in FORMATS:
        if to == "xlsx" and name.startswith("tensorrt"):
            continue  # 3 seconds; its few rows of other captures are written the same way
        export(results, to, tmp_path / to)
        files = [tmp_path / to] if (tmp_path / to).is_file() else list((tmp_path / to).iterdir())
        assert files and not any(CANARY.encode() in file.read_bytes() for file in files)


def test_flame_graph_of_a_real_capture_adds_up(captures, tmp_path):
    results = analyzed(captures / "nsys" / "transformer_backward_rtx3070ti.sqlite")
    export(results, "speedscope", tmp_path / "f.json")
    device = json.loads((tmp_path / "f.json").read_text())["profiles"][0]
    assert sum(device["weights"]) == int(np.sum(results.frame("kernels")["duration_ns"]))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["transformer_2.7b_a100_nvtx", "fsdp_2gpu_h100", "transformer_backward_rtx3070ti"])
def test_our_own_reader_reads_the_jaeger_export_back(captures, tmp_path, name):
    recorded_only = Options(infer=False)  # an inferred range would be a recorded one to the reader
    first = analyzed(captures / "nsys" / f"{name}.sqlite", recorded_only)
    export(first, "jaeger", tmp_path / "trace.json")
    second = analyze([tmp_path / "trace.json"], recorded_only)
    for table in ("kernels", "memory_operations"):
        one, two = (r.frame(table).sort_values(["start_ns", "name"]) for r in (first, second))
        assert one["start_ns"].tolist() == two["start_ns"].tolist()
        assert (one["end_ns"] - one["start_ns"]).sum() == (two["end_ns"] - two["start_ns"]).sum()
        assert one["name"].astype(str).tolist() == two["name"].astype(str).tolist()
    synthetic = "span_kind not in ('root', 'unattributed', 'no_launch')"
    recorded = [r.frame("nodes").query(synthetic) for r in (first, second)]
    same = ["level", "name", "start_ns", "end_ns", "kernel_count", "kernel_ns", "busy_ns"]
    one, two = (
        frame[same].astype({"level": str, "name": str}).sort_values(same[2:], kind="stable").reset_index(drop=True)
        for frame in recorded
    )
    pd.testing.assert_frame_equal(
        one.sort_values(same).reset_index(drop=True), two.sort_values(same).reset_index(drop=True)
    )


def test_an_export_with_every_oddity_equals_the_definition(tmp_path):
    """Ranges that cross, stay open, end on another thread; two API rows for one launch; two processes with the
    same correlation ids; a kernel without a launch."""
    path = tmp_path / "odd.sqlite"
    builder = ExportBuilder().process(100).thread(100)
    builder.range("model:forward#0", 0, 1000, domain="xsp").range("a", 10, 400).range("b", 20, 300)
    builder.start_end("crossing", 200, 600).start_end("crossing too", 250, 700)
    builder.cross_thread("x", 0, 900, end_thread=101)
    builder.range("open", 800, None)
    builder.kernel("k1", launch=(30, 40), run=(50, 90)).kernel("k2", launch=(260, 270), run=(280, 500))
    builder.duplicate_api("cuLaunchKernel", 262, 268)
    builder.memcpy(64, launch=(620, 630), run=(640, 660)).kernel("k3", launch=(850, 860), run=(900, 950))
    builder.kernel("orphan", launch=None, run=(1000, 1010))
    builder.process(200).thread(201).range("other", 0, 500)
    builder.kernel("k4", launch=(100, 110), run=(120, 700), correlation=1)
    builder.write(path)
    ours = nvtx_gpu_proj_trace.data(analyzed(path))
    expected = by_definition(path)
    assert set(expected["Text"]) == {"model:forward#0", "a", "b", "crossing", "crossing too", "open", "other"}
    columns = [c for c in expected.columns if c != "Text"]
    pd.testing.assert_frame_equal(ours[columns].astype("int64"), expected[columns].astype("int64"))
