"""Memory by layer: real PyTorch traces against their own totals, and exports whose answer is written down here."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from builders import ExportBuilder, global_id
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.kineto import read_kineto
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis, for_people
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import analyze, captures_of, part_of
from xsp_post.tables.core.columns import Threads
from xsp_post.tables.core.memory import memory_frames

# captures with [memory] events: (events of the device and of the host, peak, live before the first, most reserved)
REAL = {
    "bert_small_h100": (218, 18, 101_305_344, 91_360_768, 121_634_816),
    "qwen_h100": (2250, 200, 2_088_508_416, 984_742_400, 2_629_828_608),
    "switch_transformer": (1030, 40, 4_588_013_568, 2_257_328_128, 4_655_677_440),
    "timesformer_h100": (1206, 58, 4_490_752_000, 287_697_408, 4_588_568_576),
    "vllm_decode_cuda_graph.capture": (1184, 0, 191_628_704_768, 191_610_969_088, 193_621_655_552),
}


def memory_of(path):
    """The tables about memory of a PyTorch trace, without all that is computed besides."""
    tree = build_tree(read_kineto(path))
    return Analysis(*memory_frames(tree, Threads(tree)))


@pytest.fixture(scope="module", params=REAL)
def real(request, captures):
    path = captures / "kineto" / f"{request.param}.pt.trace.json.gz"
    return request.param, path, memory_of(path)


def sums_agree(analysis):
    """What holds of every capture: owners sum to their device, at the peak and at the end; nothing is below zero."""
    devices, owners = analysis.frame("memory_devices"), analysis.frame("memory")
    timeline = analysis.frame("memory_timeline")
    assert (timeline["total_bytes"] >= 0).all()
    keys = ["process_id", "device_id", "memory_kind"]
    for row in devices.to_dict("records"):
        mine = owners[(owners[keys] == [row[k] for k in keys]).all(axis=1)]
        assert mine["live_at_peak_bytes"].sum() == row["peak_bytes"]
        assert mine["live_at_end_bytes"].sum() == row["end_bytes"]
        assert mine["allocation_count"].sum() == row["allocation_count"]
        known = mine[mine["owner_kind"] != "earlier"]
        assert known["allocated_bytes"].sum() == row["allocated_bytes"]
        assert (known["allocated_bytes"] - known["released_bytes"] == known["live_at_end_bytes"]).all()
        assert (known["most_live_bytes"] >= known[["live_at_peak_bytes", "live_at_end_bytes"]].max(axis=1)).all()
        events = timeline[(timeline[keys].astype(object) == [row[k] for k in keys]).all(axis=1)]
        assert max(events["total_bytes"].max(), row["earlier_bytes"]) == row["peak_bytes"]
        assert events["total_bytes"].iloc[-1] == row["end_bytes"]


def test_the_running_sum_equals_the_totals_of_the_trace_itself(real):
    _, path, analysis = real
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("name") == "[memory]"]
    timeline = analysis.frame("memory_timeline")
    devices = analysis.frame("memory_devices").set_index("device_id")
    assert len(timeline) == len(events)
    for device, rows in timeline.groupby("device_id", sort=False):
        mine = [e["args"] for e in events if (e["args"]["Device Id"] if e["args"]["Device Type"] else -1) == device]
        told = [one["Total Allocated"] for one in mine]
        assert rows["total_bytes"].tolist() == told
        summed = devices.loc[device, "earlier_bytes"] + np.cumsum(rows["change_bytes"].to_numpy())
        assert summed.tolist() == told


def test_owners_sum_to_the_peak_of_their_device(real):
    name, _, analysis = real
    devices = analysis.frame("memory_devices")
    device = devices[devices["device_id"] == 0].iloc[0]
    host = devices[devices["device_id"] < 0]
    counted = int(host["allocation_count"].sum() + host["release_count"].sum())
    made = (device["allocation_count"] + device["release_count"], counted, device["peak_bytes"],
            device["earlier_bytes"], device["reserved_bytes"])  # fmt: skip
    assert made == REAL[name]
    sums_agree(analysis)
    assert not analysis.findings  # nothing is missing in them
    assert set(analysis.frame("memory")) <= {c.name for c in TABLES["memory"].columns}


def test_layers_of_a_real_trace_hold_what_they_allocated(captures):
    """switch_transformer keeps activations for a backward pass that was not recorded: the layers hold them."""
    analysis = memory_of(captures / "kineto" / "switch_transformer.pt.trace.json.gz")
    owners = for_people(analysis, "memory")
    owners = owners[owners["device_id"] == 0]
    blocks = owners[owners["layer_type"] == "SwitchTransformerBlock"]
    assert len(blocks) == 10 and (blocks["live_at_peak_bytes"] >= 189_892_608).all()
    assert 0.41 < blocks["live_at_peak_ratio"].sum() < 0.42
    earlier = owners[owners["owner_kind"] == "earlier"].iloc[0]
    assert earlier["live_at_peak_bytes"] == 2_257_328_128 and owners["allocated_bytes"].isna().sum() == 1
    timeline = for_people(analysis, "memory_timeline")
    kept = timeline[(timeline["change_bytes"] > 0) & timeline["end_ns"].isna() & (timeline["device_id"] == 0)]
    assert kept["change_bytes"].sum() == 2_325_442_560


# -- exports --------------------------------------------------------------------------------------------------

MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
COLUMNS = dict.fromkeys(("start", "globalPid", "deviceId", "contextId", "address", "pc", "bytes", "memKind",
                         "memoryOperationType", "correlationId"), "INTEGER")  # fmt: skip
DEVICE, PINNED = 2, 1


def export(events, builder=None):
    """Two layers with a kernel each, and (time, address, bytes: negative a release, memory kind) made by calls."""
    builder = builder or ExportBuilder().process(100).gpu().range("model", 0, 1000)
    builder.range("layer_a", 10, 400).range("layer_b", 410, 900)
    builder.kernel("gemm", launch=(20, 25), run=(50, 150)).kernel("relu", launch=(420, 425), run=(450, 500))
    rows = []
    for at, address, size, kind in events:
        builder.api("cudaMalloc_v3020" if size > 0 else "cudaFree_v3020", at, at + 2)
        rows.append({"start": at + 1, "globalPid": global_id(100), "deviceId": 0, "contextId": 1, "address": address,
                     "pc": 0, "bytes": abs(size), "memKind": kind, "memoryOperationType": int(size < 0),
                     "correlationId": builder.last_correlation})  # fmt: skip
    return builder.add_table(MEMORY, COLUMNS, rows)


EVENTS = [(30, 0x100, 1000, DEVICE), (40, 0x200, 500, DEVICE), (60, 0x900, -300, DEVICE), (430, 0x300, 2000, DEVICE),
          (440, 0x100, -1000, DEVICE), (450, 0x400, 64, PINNED), (950, 0x500, 10, DEVICE)]  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return analyze([export(EVENTS).write(tmp_path_factory.mktemp("memory") / "a.sqlite")])


def test_an_export_counts_from_what_was_released_without_being_allocated(exported):
    sums_agree(exported)
    devices = for_people(exported, "memory_devices").set_index("memory_kind")
    device = devices.loc["device"]
    # 300 were there before: 300 + 1000 + 500 - 300 + 2000 = 3500 at 431
    assert (device["earlier_bytes"], device["peak_bytes"], device["peak_ns"], device["end_bytes"]) == (
        300, 3500, 431, 2510)  # fmt: skip
    assert device["recorded_by"] == "driver" and device["memory_bytes"] == 42298834944
    assert devices.loc["pinned", "peak_bytes"] == 64 and devices["device_id"].isna().tolist() == [False, True]


def test_layers_of_an_export_own_what_they_asked_for(exported):
    owners = exported.frame("memory")
    owners = owners[owners["memory_kind"] == "device"].set_index("owner")
    held = owners["live_at_peak_bytes"].to_dict()
    assert held == {"layer_a": 1500, "layer_b": 2000, "model": 0, "[earlier]": 0}
    assert owners.loc["layer_a", ["allocated_bytes", "released_bytes", "most_live_bytes"]].tolist() == [
        1500,
        1000,
        1500,
    ]
    assert owners.loc["[earlier]", ["owner_kind", "release_count", "released_bytes"]].tolist() == ["earlier", 1, 300]
    codes = {f.code: f.count for f in exported.findings}
    assert codes["memory-released-earlier"] == 1 and codes["memory-of-driver"] == len(EVENTS)


def test_the_timeline_names_who_allocated_what_is_released(exported):
    timeline = for_people(exported, "memory_timeline")
    timeline = timeline[timeline["memory_kind"] == "device"]
    names = exported.frame("nodes").set_index("node_id")["name"].astype(str)
    assert timeline["total_bytes"].tolist() == [1300, 1800, 1500, 3500, 2500, 2510]
    assert timeline["change_bytes"].tolist() == [1000, 500, -300, 2000, -1000, 10]
    owners = timeline["node_id"].map(names).fillna("").tolist()
    assert owners == ["layer_a", "layer_a", "", "layer_b", "layer_a", "model"]
    assert timeline["end_ns"].fillna(0).tolist() == [441, 0, 0, 0, 0, 0]


def test_a_part_has_its_own_peak_and_knows_who_allocated_before_it(exported):
    part = part_of(exported, Options(begin_ns=405, end_ns=445))
    device = part.frame("memory_devices").iloc[0]
    sums = [
        "earlier_bytes",
        "peak_bytes",
        "peak_ns",
        "peak_offset_ns",
        "end_bytes",
        "allocated_bytes",
        "released_bytes",
    ]
    assert device[sums].tolist() == [1500, 3500, 431, 431, 2500, 2000, 1000]
    owners = part.frame("memory").set_index("owner")
    columns = ["live_at_peak_bytes", "most_live_bytes", "live_at_end_bytes", "allocated_bytes", "released_bytes"]
    assert owners.loc["layer_a", columns].tolist() == [1500, 1500, 500, 0, 1000]  # allocated before the part
    assert owners.loc["layer_b", columns].tolist() == [2000, 2000, 2000, 2000, 0]
    assert len(owners) == 2 and part.frame("memory_timeline")["change_bytes"].tolist() == [2000, -1000]


def test_all_of_a_recording_as_a_part_is_the_same_memory(captures):
    path = captures / "kineto" / "bert_small_h100.pt.trace.json.gz"
    whole = captures_of([path])
    part = part_of(whole, Options(begin_ns=0))
    assert part.frame("memory_devices").equals(whole.frame("memory_devices"))
    ours, theirs = (one.frame("memory").sort_values("memory_id").reset_index(drop=True) for one in (part, whole))
    for column in theirs:
        if column not in ("release_count", "released_bytes"):  # of the part: what was released in it
            assert ours[column].astype(object).tolist() == theirs[column].astype(object).tolist(), column
    assert ours["released_bytes"].sum() == whole.frame("memory_devices")["released_bytes"].sum()


def test_an_event_without_a_time_or_a_range_is_placed_by_its_call(tmp_path):
    builder = export([(30, 0x100, 1000, DEVICE), (1500, 0x200, 8, DEVICE)])
    for row in builder.rows[MEMORY]:
        row["start"] = 0  # as some versions of nsys write it
    analysis = analyze([builder.write(tmp_path / "a.sqlite")])
    assert analysis.frame("memory_timeline")["start_ns"].tolist() == [30, 1500]
    assert analysis.frame("memory")["owner_kind"].tolist() == ["layer", "none"]
    assert {f.code: f.example for f in analysis.findings}["memory-owner-unknown"] == "8 B"


def memory_event(at, address, size, total, thread=8):
    args = {"Addr": address, "Bytes": size, "Total Allocated": total, "Total Reserved": 0, "Device Type": 1,
            "Device Id": 0}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "pid": 7, "tid": thread, "args": args}


def test_what_other_threads_did_is_a_finding_and_counts_as_earlier(tmp_path):
    """The total falls by 40 that no event explains: at the peak the known allocations hold more than there is."""
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 100, "pid": 7, "tid": 8, "args": {}},
              memory_event(10, 1, 100, 140), memory_event(20, 2, 50, 150), memory_event(30, 1, -100, 50),
              memory_event(40, 2, 60, 90)]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    analysis = analyze([path])
    sums_agree(analysis)
    codes = {f.code: f.count for f in analysis.findings}
    assert codes["memory-events-missing"] == 2 and codes["memory-release-missing"] == 1
    device = analysis.frame("memory_devices").iloc[0]
    assert (device["earlier_bytes"], device["peak_bytes"], device["end_bytes"]) == (40, 150, 90)
    owners = analysis.frame("memory").set_index("owner_kind")["live_at_peak_bytes"].to_dict()
    assert sum(owners.values()) == 150 and owners["earlier"] == 0


def event(cat, name, at, length, thread=8, **args):
    where = {"pid": 7, "tid": thread} if cat != "kernel" else {"pid": 0, "tid": 7}
    return {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": length, **where, "args": args}


def test_gradients_count_for_their_layer_and_are_told_from_activations(tmp_path):
    """The autograd thread allocates a gradient (40) and releases the activation (100) that forward had kept."""
    engine = "autograd::engine::evaluate_function: AddmmBackward0"
    on_gpu = {"device": 0, "stream": 7}
    events = [
        event("python_function", "nn.Module: Linear_0", 0, 20),
        event("cpu_op", "aten::addmm", 1, 10, **{"Sequence number": 4, "Fwd thread id": 0}),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=1),
        memory_event(5, 1, 100, 100),
        event("cpu_op", engine, 50, 20, 99, **{"Sequence number": 4, "Fwd thread id": 1}),
        event("cuda_runtime", "cudaLaunchKernel", 60, 1, 99, correlation=2),
        memory_event(61, 2, 40, 140, 99),
        memory_event(65, 1, -100, 40, 99),
        event("kernel", "forward", 30, 5, correlation=1, **on_gpu),
        event("kernel", "backward", 70, 9, correlation=2, **on_gpu),
    ]
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    analysis = memory_of(path)
    sums_agree(analysis)
    owners = analysis.frame("memory")
    assert owners["owner"].tolist() == ["nn.Module: Linear_0"] * 2 and owners["layer_index"].tolist() == [1, 1]
    rows = owners.set_index("training_phase")
    assert rows["live_at_peak_bytes"].to_dict() == {"forward": 100, "backward": 40}
    assert rows["live_at_end_bytes"].to_dict() == {"forward": 0, "backward": 40}
    assert analysis.frame("memory_devices")["peak_range"].tolist() == [engine]


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 1 << 40)), min_size=1, max_size=30)


@examples(12)
@given(steps=STEPS, before=st.integers(0, 1 << 40))
def test_of_any_program_the_owners_sum_to_the_peak(tmp_path_factory, steps, before):
    """Each step allocates at an address, or releases what is there."""
    live, total, events = {}, before, [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 0, "dur": 15, "pid": 7, "tid": 8,
                                        "args": {}}]  # fmt: skip
    totals = [before]
    for number, (address, size) in enumerate(steps):
        change = -live.pop(address) if address in live else size
        if change > 0:
            live[address] = change
        total += change
        totals.append(total)
        events.append(memory_event(number + 1, address, change, total))
    path = tmp_path_factory.mktemp("m") / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    analysis = memory_of(path)
    sums_agree(analysis)
    device = analysis.frame("memory_devices").iloc[0]
    assert device["peak_bytes"] == max(totals) and device["earlier_bytes"] == before
    assert device["peak_bytes"] - before <= device["allocated_bytes"]
