"""Perfetto and Chrome exports: as many slices as ranges, launches and device operations, nested and linked."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import frame_of, small_analysis
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.base.errors import OutputError, ToolError
from xsp_post.exporters import chrome, perfetto
from xsp_post.exporters.timeline import build_timeline, lanes
from xsp_post.model.results import Analysis

HOSTILE = 'a"</script>\x00\n\u202e' + "x" * 10_000


def decode(path):
    """Slices of a Perfetto trace, closed as the viewer closes them: per track, an end closes the last begin."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    raw = path.read_bytes()
    trace = pb2.Trace.FromString(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    names, categories, tracks = {}, {}, {}
    slices, stacks, last = [], {}, 0
    for packet in trace.packet:
        names.update({n.iid: n.name for n in packet.interned_data.event_names})
        categories.update({c.iid: c.name for c in packet.interned_data.event_categories})
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        if packet.track_event.type == packet.track_event.TYPE_COUNTER:
            continue
        assert packet.timestamp >= last
        last, event = packet.timestamp, packet.track_event
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == event.TYPE_SLICE_END:
            slices[stack.pop()]["end"] = packet.timestamp
            continue
        slices.append(
            {
                "track": event.track_uuid,
                "start": packet.timestamp,
                "end": packet.timestamp,
                "name": names[event.name_iid],
                "category": categories[event.category_iids[0]],
                "out": list(event.flow_ids),
                "in": list(event.terminating_flow_ids),
                "depth": len(stack),
            }
        )
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.append(len(slices) - 1)
    assert not any(stacks.values())
    return pd.DataFrame(slices), tracks


def counters(path):
    """(name, parent's name) of each counter of a Perfetto trace → its (time, value) pairs."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb2.Trace.FromString(path.read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    found = {}
    for packet in trace.packet:
        if packet.track_event.type == packet.track_event.TYPE_COUNTER:
            track = tracks[packet.track_event.track_uuid]
            assert track.counter.unit == pb2.CounterDescriptor.UNIT_SIZE_BYTES
            parent = tracks[track.parent_uuid]
            key = (track.name, parent.name or parent.process.process_name)
            found.setdefault(key, []).append((packet.timestamp, packet.track_event.counter_value))
    return found


def test_live_and_reserved_memory_are_counters_of_their_device(tmp_path):
    analysis = small_analysis()
    start = int(analysis.frame("kernels").query("capture_id == 2")["start_ns"].min())
    process = int(analysis.frame("kernels")["process_id"].iloc[0])
    rows = [(2, 0, "device", start, 100, 512), (2, -1, "host", start + 5, 7, -1), (2, 0, "device", start + 9, 40, 512),
            (1, 0, "device", start, 1, 1)]  # fmt: skip
    columns = ["capture_id", "device_id", "memory_kind", "start_ns", "total_bytes", "reserved_bytes"]
    timeline = pd.DataFrame(rows, columns=columns).assign(process_id=process)
    written = perfetto.write(Analysis({**analysis.frames, "memory_timeline": timeline}), tmp_path / "a.pftrace")
    assert written.counts["memory events"] == 3  # of the capture that is exported
    found = counters(tmp_path / "a.pftrace")
    gpu = next(parent for _, parent in found if parent.startswith("GPU 0"))
    assert found == {
        ("device memory, live", gpu): [(start, 100), (start + 9, 40)],
        ("device memory, reserved", gpu): [(start, 512), (start + 9, 512)],
        ("host memory, live", f"process {process}"): [(start + 5, 7)],
    }


def test_a_capture_without_memory_events_has_no_counter(tmp_path):
    written = perfetto.write(small_analysis(), tmp_path / "a.pftrace")
    assert counters(tmp_path / "a.pftrace") == {} and "memory events" not in written.counts


def test_the_critical_path_is_a_track_of_its_own(tmp_path):
    analysis = small_analysis()
    start = int(analysis.frame("kernels").query("capture_id == 2")["start_ns"].min())
    rows = [("host", "", start, start + 40), ("kernel", "gemm", start + 40, start + 90)]
    path = pd.DataFrame(rows, columns=["kind", "name", "start_ns", "end_ns"]).assign(capture_id=2)
    perfetto.write(Analysis({**analysis.frames, "critical_path": path}), tmp_path / "trace.pftrace")
    slices, tracks = decode(tmp_path / "trace.pftrace")
    (own,) = [uuid for uuid, track in tracks.items() if track.name.startswith("critical path")]
    mine = slices[slices["track"] == own]
    assert mine["name"].tolist() == ["host", "kernel: gemm"]
    assert (mine["end"] - mine["start"]).tolist() == [40, 50]
    assert mine["start"].iloc[1] == mine["end"].iloc[0]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_perfetto_counts_nests_and_links(tmp_path, suffix):
    analysis = small_analysis()
    path = tmp_path / f"trace.perfetto-trace{suffix}"
    written = perfetto.write(analysis, path)
    slices, tracks = decode(path)
    kernels = analysis.frame("kernels")
    nodes = analysis.frame("nodes")
    deepest = nodes[(nodes["capture_id"] == 2) & (nodes["span_kind"] == "push_pop")]
    count = slices["category"].value_counts()
    assert count["kernel"] == len(kernels) == written.counts["kernels"]
    assert count["model"] + count["layer"] == len(deepest) == written.counts["ranges"] == 3 * 4
    launches = int((kernels["launch_start_ns"] >= 0).sum()) + len(analysis.frame("memory_operations"))
    assert count["launch"] == launches == written.counts["launches"]
    assert len(slices) == sum(written.counts.values())
    # every slice has the times of its row
    kernel = slices[slices["category"] == "kernel"].sort_values("start")
    assert (kernel["end"] - kernel["start"]).tolist() == kernels.sort_values("start_ns")["duration_ns"].tolist()
    layers = slices[slices["category"] == "layer"]
    assert (layers["depth"] == 1).all() and len(layers["track"].unique()) == 1
    assert tracks[layers["track"].iloc[0]].thread.tid == 101
    # each arrow starts once and ends once, at the operation the launch started
    out = slices.explode("out").dropna(subset="out").set_index("out")
    into = slices.explode("in").dropna(subset="in").set_index("in")
    assert out.index.is_unique and sorted(out.index) == sorted(into.index) and len(out) == launches
    joined = out.join(into.add_suffix("_op"))
    assert (joined["start_op"] >= joined["end"]).all()
    assert (joined["name"] == "launch " + joined["name_op"]).all()
    assert [f.code for f in written.findings] == ["export-one-capture"]


def test_chrome_counts_and_times(tmp_path):
    analysis = small_analysis()
    path = tmp_path / "trace.json.gz"
    written = chrome.write(analysis, path)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = pd.DataFrame(trace["traceEvents"])
    slices = events[events["ph"] == "X"]
    assert len(slices) == sum(written.counts.values())
    kernels = analysis.frame("kernels").sort_values("start_ns")
    shown = slices[slices["cat"] == "kernel"].sort_values("ts")
    assert np.round(shown["ts"] * 1000).astype("int64").tolist() == kernels["start_ns"].tolist()
    assert np.round(shown["dur"] * 1000).astype("int64").tolist() == kernels["duration_ns"].tolist()
    assert events[events["ph"] == "s"]["id"].tolist() and set(events[events["ph"] == "s"]["id"]) == set(
        events[events["ph"] == "f"]["id"]
    )
    assert (shown["args"].map(lambda a: a.get("layer")) == "conv1:Conv2d#0").sum() == 6
    names = events[events["name"] == "thread_name"]["args"].map(lambda a: a["name"])
    assert set(names) == {"thread 101 ranges", "thread 101 launches", "thread 102 launches", "stream 7"}


@pytest.mark.parametrize("module", [perfetto, chrome])
def test_hostile_names_and_existing_files(tmp_path, module):
    analysis = small_analysis(layers=[("x", "Conv2d", [(HOSTILE, 10)])])
    path = tmp_path / "t.json"
    module.write(analysis, path)
    before = path.read_bytes()
    with pytest.raises(OutputError):
        module.write(analysis, path)
    module.write(analysis, path, force=True)
    assert path.read_bytes() == before  # the same input gives the same file
    if module is chrome:
        assert len(json.loads(before)["traceEvents"]) > 10


def test_limit_keeps_the_first_kernels_and_says_so(tmp_path):
    analysis = small_analysis(iterations=3)
    timeline = build_timeline(analysis, limit=4)
    assert timeline.counts()["kernels"] == 4
    assert timeline.counts()["ranges"] < build_timeline(analysis).counts()["ranges"]
    assert "export-limited" in {f.code for f in timeline.findings}
    assert build_timeline(analysis, limit=10**9).counts() == build_timeline(analysis).counts()


def test_a_capture_without_device_work_and_an_empty_one(tmp_path):
    timeline = build_timeline(small_analysis(), capture_id=1)
    assert timeline.counts() == {"kernels": 0, "launches": 0, "memory operations": 0, "ranges": 12}
    analysis = small_analysis(levels=("M",), iterations=0)
    frames = {**analysis.frames, "nodes": frame_of("nodes", []), "kernels": frame_of("kernels", [])}
    for module, name in ((perfetto, "a.pftrace"), (chrome, "a.json")):
        module.write(Analysis(frames), tmp_path / name)
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"] == []
    assert len(decode(tmp_path / "a.pftrace")[0]) == 0


def test_negative_and_zero_times(tmp_path):
    analysis = small_analysis(levels=("M/L/G",), iterations=0)
    nodes, kernels = analysis.frame("nodes").copy(), analysis.frame("kernels").copy()
    for frame in (nodes, kernels):
        for column in ("start_ns", "end_ns", "launch_start_ns", "launch_end_ns"):
            if column in frame:
                frame[column] = frame[column] - 1_000_100_000
    kernels["end_ns"] = kernels["start_ns"]
    path = tmp_path / "t"
    perfetto.write(Analysis({**analysis.frames, "nodes": nodes, "kernels": kernels}), path)
    slices, _ = decode(path)
    assert slices["start"].min() >= 0
    assert (slices["category"] == "kernel").sum() == len(kernels)


def test_the_package_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace.perfetto_trace_pb2", None)
    with pytest.raises(ToolError) as caught:
        perfetto.write(small_analysis(), tmp_path / "t")
    assert caught.value.code == "perfetto-missing" and not list(tmp_path.iterdir())


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 20)), max_size=25))
def test_lanes_nest(spans):
    track = np.array([t for t, _, _ in spans], np.int64)
    start = np.array([min(a, b) for _, a, b in spans], np.int64)
    end = np.array([max(a, b) for _, a, b in spans], np.int64)
    lane = lanes(track, start, end)
    for i in range(len(spans)):
        for j in range(i):
            if track[i] == track[j] and lane[i] == lane[j]:
                first, second = (i, j) if start[i] < start[j] else (j, i)
                assert not (start[first] < start[second] < end[first] < end[second])


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=15))
def test_any_ranges_come_back_from_the_protobuf(tmp_path_factory, spans):
    analysis = small_analysis(levels=("M",), iterations=0)
    nodes = frame_of(
        "nodes",
        [
            {
                "node_id": i,
                "capture_id": 0,
                "name": f"n{i}",
                "level": "MODEL",
                "process_id": 1,
                "thread_id": 2,
                "start_ns": min(a, b),
                "end_ns": max(a, b),
                "span_kind": "start_end",
            }
            for i, (a, b) in enumerate(spans)
        ],
    )
    path = tmp_path_factory.mktemp("p") / "t"
    perfetto.write(Analysis({**analysis.frames, "nodes": nodes}), path)
    got = decode(path)[0]
    expected = sorted((f"n{i}", min(a, b), max(a, b)) for i, (a, b) in enumerate(spans))
    assert sorted(zip(got["name"], got["start"], got["end"])) == expected
