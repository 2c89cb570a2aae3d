"""Every device-time cell of MEANING.md, from the tables, and against SQL over the raw rows."""

from __future__ import annotations

import sqlite3

import numpy as np
import pandas as pd
import pytest
from helpers import core_tables
from recorded import analyzed, tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.trace import ActivityKind
from xsp_post.reports.tree_rows import tree_rows

MS = 1e6

# capture: kernels, copies and memsets, in ms, as MEANING.md states them
SUMS = {
    "transformer_2.7b_a100_nvtx": (3408.4, 3156.5),
    "transformer_2.7b_a100_no_nvtx": (3389.1, 4460.4),
    "transformer_backward_rtx3070ti": (1733.8, 64.1 + 1.3),
    "many_copies_a100": (9.0, 125.0),
    "cloverleaf_a100": (294.4, 9.4),
}
# capture: busy ms of each GPU, and of how many
BUSY = {
    "transformer_backward_rtx3070ti": ([1799.2], None),
    "cloverleaf_a100": ([303.8], 342.4),
    "fsdp_2gpu_h100": ([273.8, 267.3], 299.9),
    "fsdp_2gpu_h100_after": ([240.1, 254.0], 299.3),
    "t5_offload_2gpu_h100": ([962.9, 962.9], 969.4),
}
KERNELS_PER_RANK = {
    "fsdp_2gpu_h100": [270.9, 264.3],
    "fsdp_2gpu_h100_after": [237.5, 251.4],
    "t5_offload_2gpu_h100": [22.4, 22.4],
}
# busy ms, and ms from the first device operation to the end of the last
KINETO_BUSY = {
    "resnet50_ddp_a100": (472.5, 480.0),
    "timesformer_h100": (158.4, 160.0),
    "bert_small_h100": (0.31, 3.91),
    "qwen_h100": (45.6, 49.7),
    "switch_transformer": (62.9, 243.7),
    "sglang_prefill_decode": (492.8, 987.3),
    "vllm_decode_cuda_graph": (10.72, 10.74),
}


@pytest.fixture(scope="module")
def summary(captures):
    known = {}

    def of(name):
        if name not in known:
            kineto = captures / "kineto" / f"{name}.pt.trace.json.gz"
            path = kineto if kineto.exists() else captures / "nsys" / f"{name}.sqlite"
            known[name] = core_tables(build_tree(load(path).trace))
        return known[name]

    return of


@pytest.mark.parametrize("name", SUMS)
def test_kernel_and_copy_time(summary, name):
    row = summary(name).frame("captures").iloc[0]
    kernels, copies = SUMS[name]
    assert row["kernel_ns"] / MS == pytest.approx(kernels, abs=0.06)
    assert row["copy_ns"] / MS == pytest.approx(copies, abs=0.11)
    assert row["device_ns"] == row["kernel_ns"] + row["copy_ns"] + row["graph_ns"]


def test_copies_and_memsets_apart(summary):
    operations = summary("transformer_backward_rtx3070ti").frame("operations")
    spent = operations.groupby(operations["kind"].astype(str))["device_ns"].sum() / MS
    assert spent[["memcpy", "memset"]].tolist() == pytest.approx([64.1, 1.3], abs=0.05)


@pytest.mark.parametrize("name", BUSY)
def test_busy_is_the_union_of_each_gpu(summary, captures, name):
    analysis = summary(name)
    busy, window = BUSY[name]
    devices = analysis.frame("devices").sort_values("gpu_index")
    devices = devices[devices["device_ns"] > 0]
    assert (devices["busy_ns"] / MS).tolist() == pytest.approx(busy, abs=0.1)
    if window is not None:
        assert (devices["duration_ns"] / MS).tolist() == pytest.approx([window] * len(busy), abs=0.11)
    assert devices["busy_ns"].tolist() == _raw_busy(captures / "nsys" / f"{name}.sqlite")
    root = analysis.frame("paths").iloc[0]
    # one GPU's union is said once; of several no sum stands for them
    said = analysis.frame("captures")["busy_ns"].iloc[0]
    if len(busy) == 1:
        assert said == root["busy_ns"] == devices["busy_ns"].iloc[0]
    else:
        assert np.isnan(said) and np.isnan(root["busy_ns"])


def _raw_busy(path):
    """Union of kernels, copies and memsets per device, straight from the rows, device by device."""
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        parts = [f"CUPTI_ACTIVITY_KIND_{t}" for t in tables if f"CUPTI_ACTIVITY_KIND_{t}" in there]
        query = " UNION ALL ".join(f'SELECT deviceId d, start s, "end" e FROM {part}' for part in parts)
        rows = db.execute(f"SELECT d, s, e FROM ({query}) ORDER BY d, s").fetchall()
    result, device, reach = [], None, 0
    for d, start, end in rows:
        if d != device:
            result.append(0)
            device, reach = d, start
        result[-1] += max(0, end - max(start, reach))
        reach = max(reach, end)
    return result


@pytest.mark.parametrize("name", KERNELS_PER_RANK)
def test_kernel_time_of_each_rank(summary, name):
    paths = summary(name).frame("paths")
    ranks = paths[paths["span_kind"] == "rank"]
    assert ranks["name"].tolist() == ["rank 0", "rank 1"]
    assert (ranks["kernel_ns"] / MS).tolist() == pytest.approx(KERNELS_PER_RANK[name], abs=0.06)
    assert (ranks["busy_ns"] / MS).tolist() == pytest.approx(BUSY[name][0], abs=0.1)
    assert ranks["device_ns"].sum() == paths["device_ns"].iloc[0]


def test_offloading_leads_with_its_copies(summary):
    analysis = summary("t5_offload_2gpu_h100")
    devices = analysis.frame("devices")
    assert (devices["copy_ns"] / MS).tolist() == pytest.approx([940, 940], abs=1.0)
    assert devices["kernel_count"].tolist() == [1721, 1721]
    operations = analysis.frame("operations")
    to_device = operations["direction"].astype(str).eq("host to device")
    assert operations.loc[to_device, "device_ns"].sum() > 0.97 * devices["copy_ns"].sum()
    rows = tree_rows(analysis, depth=3)
    first = rows[rows["indent"] == 3].iloc[0]
    assert str(first["name"]).startswith("host→device, pinned")
    assert first["copy_ns"] == first["device_ns"] > 300 * MS


def test_what_no_range_holds_has_names(summary):
    rows = tree_rows(summary("many_copies_a100"), depth=2)
    names = [str(name) for name in rows.loc[rows["indent"] == 2, "name"]]
    assert names[0].startswith("host→device, pageable")
    assert names[1].startswith("device→host, pageable")
    assert any("trsm" in name for name in names) and names[-1].endswith("more")
    assert rows.loc[rows["indent"] == 2, "device_ns"].sum() == rows["device_ns"].iloc[0]


@pytest.mark.parametrize("name", KINETO_BUSY)
def test_busy_of_a_pytorch_trace(summary, name):
    analysis = summary(name)
    busy, span = KINETO_BUSY[name]
    assert analysis.frame("captures")["busy_ns"].iloc[0] / MS == pytest.approx(busy, abs=0.06)
    (device,) = analysis.frame("devices").to_dict("records")
    assert (device["last_end_ns"] - device["first_start_ns"]) / MS == pytest.approx(span, abs=0.06)


@pytest.mark.parametrize("name", ["timesformer_h100", "bert_small_h100", "sglang_prefill_decode",
                                  "vllm_decode_cuda_graph", "qwen_h100"])  # fmt: skip
def test_busy_is_that_of_the_peers_timeline_where_the_quantity_is_the_same(summary, captures, name):
    printed = pd.read_csv(captures / "kineto" / "peers" / name / "gpu_timeline.csv").set_index("type")["time ms"]
    analysis = summary(name)
    operations = analysis.frame("operations")
    spent_ms = operations.groupby(operations["kind"].astype(str))["device_ns"].sum() / MS
    if name == "qwen_h100":  # there without what was launched before the recording
        paths = analysis.frame("paths")
        (step,) = paths.loc[paths["name"].astype(str).eq("ProfilerStep"), "device_ns"]
        assert step / MS == pytest.approx(printed["busy_time"], abs=2e-4)
        assert printed["busy_time"] == pytest.approx(31.9, abs=0.01)
        return
    assert analysis.frame("captures")["busy_ns"].iloc[0] / MS == pytest.approx(printed["busy_time"], abs=2e-4)
    computed_ms = spent_ms["kernel"] + spent_ms.get("memset", 0)  # memsets count as computation there
    assert computed_ms == pytest.approx(printed["computation_time"], abs=0.005)


@pytest.mark.parametrize("name", [*SUMS, *KERNELS_PER_RANK, *KINETO_BUSY])
def test_balance_closes_over_all_device_operations(summary, captures, name):
    analysis = summary(name)
    balance = analysis.frame("balance")
    amounts = [c for c in balance if str(c).endswith(("_count", "_ns"))]
    row = analysis.frame("captures").iloc[0]
    for _, rows in balance.groupby("question"):
        total = rows[rows["attribution"] == "total"].iloc[0]
        parts = rows[rows["attribution"] != "total"]
        assert all(parts[c].sum() == total[c] for c in amounts)
        assert total["operation_count"] == row["kernel_count"] + row["copy_count"] + row["graph_count"]
        assert total["device_ns"] == row["device_ns"]
    # what ran in the paths is all there is
    assert analysis.frame("operations")["device_ns"].sum() == row["device_ns"]


def test_two_processes_on_one_gpu_have_their_union(tmp_path):
    from builders import ExportBuilder

    builder = ExportBuilder().process(100).gpu().kernel("a", launch=(1, 2), run=(100, 200))
    builder.process(200).kernel("b", launch=(1, 2), run=(150, 260))
    builder.rows["TARGET_INFO_CUDA_DEVICE"].append(
        {**builder.rows["TARGET_INFO_CUDA_DEVICE"][0], "pid": 200, "cudaId": 0, "gpuId": 0}
    )
    trace = load(builder.write(tmp_path / "two.sqlite")).trace
    analysis = core_tables(build_tree(trace))
    devices = analysis.frame("devices")
    assert devices["gpu_index"].tolist() == [0, 0]
    assert devices["busy_ns"].tolist() == [160, 160] and devices["own_busy_ns"].tolist() == [100, 110]
    assert analysis.frame("captures")["busy_ns"].tolist() == [160]


def test_one_device_number_of_two_processes_may_be_two_gpus(tmp_path):
    """With CUDA_VISIBLE_DEVICES each process calls its own GPU 0."""
    from builders import ExportBuilder

    builder = ExportBuilder().process(100).gpu(0).kernel("a", launch=(1, 2), run=(100, 200))
    builder.process(200).gpu(1).kernel("b", launch=(1, 2), run=(150, 260))
    builder.rows["TARGET_INFO_CUDA_DEVICE"][-1]["cudaId"] = 0
    tree = build_tree(load(builder.write(tmp_path / "two.sqlite")).trace)
    assert tree.activities.loc[tree.activities["kind"] == ActivityKind.KERNEL, "gpu_index"].tolist() == [0, 1]
    analysis = core_tables(tree)
    assert analysis.frame("devices").sort_values("gpu_index")["busy_ns"].tolist() == [100, 110]
    assert np.isnan(analysis.frame("captures")["busy_ns"].iloc[0])


def test_layers_and_executions_are_per_rank(captures):
    """A2 of a capture of two ranks sums to no more than the recording, for each of them."""
    results = analyzed(captures / "nsys" / "fsdp_2gpu_h100.sqlite")
    layers = results.frame("a02")
    sums = layers.groupby(layers["rank_name"].astype(str))["latency_ns"].sum() / MS
    assert sums.index.tolist() == ["rank 0", "rank 1"] and (sums < 299.99).all()
    over = results.frame("rank_layers")
    both = over[over["rank_count"] == 2]
    assert len(both) > 10 and (both["slowest_latency_ns"] >= both["median_latency_ns"]).all()
    ranks = results.frame("ranks")
    assert ranks["rank"].tolist() == [0, 1] and (ranks["communication_count"] > 0).all()
    assert (ranks["busy_ns"] / MS).tolist() == pytest.approx(BUSY["fsdp_2gpu_h100"][0], abs=0.1)


@pytest.mark.parametrize(
    ("name", "orphans"), [("kineto/qwen_h100.pt.trace.json.gz", 436), ("nsys/t5_offload_2gpu_h100.sqlite", 1810)]
)
def test_work_launched_before_the_recording_is_said_to_be(captures, name, orphans):
    """Without a launch row, and on the device before anything that was launched in the recording."""
    path = captures / name
    if not path.exists():
        pytest.skip(f"{name} is not among the captures at hand")
    tree = tree_of(path)
    found = {one.code: one for one in tree.findings}
    assert found["queued-kernels"].count == orphans and "orphan-kernels" not in found


def test_an_orphan_between_launched_kernels_has_its_own_name(tmp_path):
    from builders import ExportBuilder

    builder = ExportBuilder().process(100).gpu().kernel("a", launch=(1, 2), run=(100, 200))
    builder.kernel("lost", run=(210, 220)).kernel("b", launch=(3, 4), run=(300, 400))
    tree = build_tree(load(builder.write(tmp_path / "lost.sqlite")).trace)
    assert {one.code: one for one in tree.findings}["orphan-kernels"].example == "lost"
