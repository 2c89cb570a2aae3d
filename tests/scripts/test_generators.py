"""The generated exports are what they claim: known truth, and the shape of a ResNet-50 run."""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
import subprocess
import sys

import pytest
from export_schema import KERNEL, RUNTIME
from generators.big import KERNELS_PER_ITERATION, write_big_export
from generators.extremes import write_extreme_export
from generators.kineto import write_kineto_trace
from generators.resnet50 import layers, write_resnet50_export

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.kineto import read_kineto
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level

ATTRIBUTED = f"""
    SELECT n.text, count(*), sum(k.end - k.start) FROM NVTX_EVENTS n
    JOIN {RUNTIME} r ON r.start >= n.start AND r.end <= n.end AND r.globalTid = n.globalTid
    JOIN {KERNEL} k ON k.correlationId = r.correlationId AND k.globalPid = (r.globalTid & ~0xFFFFFF)
    WHERE n.text LIKE 'layer.%' GROUP BY n.text"""


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("big") / "big.sqlite"
    return path, write_big_export(path, 2 * KERNELS_PER_ITERATION - 1, processes=2)


def query(path, sql, *indexes):
    connection = sqlite3.connect(path)
    try:
        for index in indexes:
            connection.execute(f"CREATE INDEX IF NOT EXISTS {index}")
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_truth_of_the_big_export_is_what_sql_finds(big):
    path, truth = big
    assert json.loads((path.parent / "big.sqlite.truth.json").read_text()) == truth
    assert query(path, f"SELECT count(*), sum(end - start) FROM {KERNEL}") == [
        (truth["kernel_count"], truth["kernel_ns"])
    ]
    found = query(path, ATTRIBUTED, f"a ON {RUNTIME}(start)", f"b ON {KERNEL}(correlationId)")
    assert {text: {"kernel_count": n, "kernel_ns": ns} for text, n, ns in found} == truth["layers"]
    assert query(path, "SELECT count(*) FROM NVTX_EVENTS") == [(truth["range_count"],)] == [(502,)]


def test_processes_of_the_big_export_collide(big):
    path, _ = big
    [(rows, distinct)] = query(path, f"SELECT count(*), count(DISTINCT correlationId) FROM {KERNEL}")
    assert rows == 2 * distinct
    assert query(path, f"SELECT globalTid, correlationId FROM {RUNTIME} GROUP BY 1, 2 HAVING count(*) > 1") == []


def test_streams_run_one_kernel_at_a_time_and_lag_behind_the_host(tmp_path):
    path = tmp_path / "lag.sqlite"
    truth = write_big_export(path, 50_000)
    overlaps = f"""SELECT count(*) FROM (SELECT start, lag(end) OVER (PARTITION BY streamId ORDER BY start) AS before
                   FROM {KERNEL}) WHERE start < before"""
    assert query(path, overlaps) == [(0,)]
    assert 0.5 < truth["starts_after_operation_ratio"] < 0.7


def test_resnet50_is_the_model_it_says(tmp_path):
    plan = layers(1)
    kinds = [layer.kind for layer in plan]
    assert [kinds.count(kind) for kind in ("Conv2d", "BatchNorm2d", "Add", "Linear")] == [53, 53, 16, 1]
    direct = [w.flop for layer in plan for w in layer.work if "implicit_gemm" in w.name]
    assert 4e9 < sum(direct) < 8.2e9  # 4.1 G multiply-adds in all; the stride-1 3x3 ones go through Winograd
    assert all(work.flop >= 0 and work.bytes > 0 for layer in plan for work in layer.work)


def test_resnet50_export_nests_and_is_reproducible(tmp_path):
    path = write_resnet50_export(tmp_path / "a.sqlite", batch_size=2, iterations=3, warmup=1)
    again = write_resnet50_export(tmp_path / "b.sqlite", batch_size=2, iterations=3, warmup=1)
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(again.read_bytes()).digest()
    texts = "SELECT s.value, n.start, n.end FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE eventType = 59"
    ranges = query(path, texts + " ORDER BY n.start")
    models = [(start, end) for text, start, end in ranges if text.startswith(("model:", "warmup:"))]
    inner = [(start, end) for text, start, end in ranges if not text.startswith(("model:", "warmup:"))]
    assert len(models) == 4 and len(inner) == 4 * len(layers(2))
    assert all(any(a <= start and end <= b for a, b in models) for start, end in inner)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(inner))
    late = f"SELECT count(*) FROM {KERNEL} k JOIN {RUNTIME} r USING (correlationId) WHERE k.start < r.end"
    assert query(path, late) == [(0,)]


def test_the_shipped_example_is_what_the_script_writes(root, tmp_path):
    out = tmp_path / "resnet50.sqlite"
    command = [sys.executable, root / "scripts/make_export", out, "--resnet50"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    shipped = root / "examples/resnet50_generated.sqlite"
    assert shipped.stat().st_size < 1_500_000
    for table in ("NVTX_EVENTS", KERNEL, RUNTIME, "META_DATA_EXPORT", "StringIds"):
        assert query(out, f"SELECT * FROM {table}") == query(shipped, f"SELECT * FROM {table}")
    refused = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert refused.returncode == 2 and b"--force" in refused.stderr


@pytest.mark.parametrize("shape", ["names", "many-layers", "deep", "flat"])
def test_exports_that_are_large_in_one_way_are_read_whole(tmp_path, shape):
    path = tmp_path / "large.sqlite"
    write_extreme_export(path, shape, 400)
    tree = build_tree(load(path).trace)
    assert len(tree.activities) == 400
    kernels = tree.nodes["kernel_count"]
    assert kernels.iloc[0] == 400
    depth, names = int(tree.nodes["depth"].max()), tree.activities["name_id"].nunique()
    assert (depth >= 400) == (shape == "deep")
    assert names == (400 if shape == "names" else 1)
    assert (tree.nodes["level"] == int(Level.LAYER)).sum() >= (400 if shape == "many-layers" else 0)


def test_a_generated_pytorch_trace_has_its_kernels_and_exact_times(tmp_path):
    path = tmp_path / "t.json.gz"
    count = write_kineto_trace(path, 4000)
    trace = read_kineto(path)
    assert len(trace.activities) == count == 500
    # more digits than a float holds
    assert trace.activities["start_ns"].iloc[0] == 1_700_000_000_123_456_789 + 10 + 6_001
    assert set(trace.activities["end_ns"] - trace.activities["start_ns"]) == {12_345}
    assert trace.attributes["shape_text"].ne("").sum() == 2 * count
