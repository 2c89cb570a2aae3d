"""``ingest.kineto``: real traces of five runs, and traces written here for what those lack."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import json_times, trace_events
from xsp_post.ingest.interning import short_kernel_name
from xsp_post.ingest.kineto import read_kineto
from xsp_post.ingest.kineto_events import Event, EventDecoder
from xsp_post.ingest.recognition import sniff_kineto
from xsp_post.model.trace import ActivityKind, SpanKind, Trace
from xsp_post.names import range_text

# file → (annotations, operators, modules, launches, kernels, copies, sets); counted in the JSON with jq.
REAL = {
    "alexnet_gpu": (8, 359, 0, 361, 79, 16, 3),
    "bert_small_h100": (1, 479, 84, 132, 60, 1, 0),
    "cupti_counters_gpu": (8, 375, 0, 1862, 0, 0, 0),
    "torch_compile_triton": (1, 41, 0, 59, 12, 0, 0),
    "vllm_decode_cuda_graph": (1, 100, 1, 20, 425, 9, 0),
}
HOST = {"pid": 7, "tid": 8}


def write(path: Path, events: list[dict], **top: object) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return path


def event(cat: str, name: str, ts: float, dur: float, where: dict | None = None, **args: object) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **(where or HOST), "args": args}


def codes(trace: Trace) -> dict[str, int]:
    return {finding.code: finding.count for finding in trace.findings}


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest, captures: Path) -> tuple[str, Path]:
    return request.param, captures / "kineto" / f"{request.param}.pt.trace.json.gz"


def test_every_row_of_a_real_trace_is_used_or_counted(real: tuple[str, Path]) -> None:
    name, path = real
    trace = read_kineto(path)
    kinds = trace.spans["kind"].value_counts()
    devices = trace.activities["kind"].value_counts()
    counts = (
        *(int(kinds.get(int(k), 0)) for k in (SpanKind.ANNOTATION, SpanKind.OPERATOR, SpanKind.MODULE)),
        len(trace.launches),
        *(int(devices.get(int(k), 0)) for k in (ActivityKind.KERNEL, ActivityKind.MEMCPY, ActivityKind.MEMSET)),
    )
    assert counts == REAL[name]
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    used = len(trace.spans) + len(trace.launches) + len(trace.activities)
    labels = sum(e["ph"] == "M" for e in events)
    memory = sum(e.get("name") == "[memory]" for e in events)
    waits = sum(e.get("cat") in ("cuda_sync", "overhead") for e in events)
    frames = sum(e.get("cat") == "python_function" and not e["name"].startswith("nn.Module: ") for e in events)
    assert len(trace.synchronizations) + len(trace.profiler_overhead) == waits
    assert len(trace.python_frames) <= frames  # those of threads without ranges or calls are not wanted
    assert used + labels + memory + waits + frames + codes(trace)["kineto-rows-left-out"] == len(events)


def test_real_traces_join_and_are_typed(real: tuple[str, Path]) -> None:
    name, path = real
    trace = read_kineto(path)
    launched = trace.activities["correlation_id"].isin(trace.launches["correlation_id"])
    assert launched.all()
    assert (trace.activities["process_index"] == 0).all()
    for frame in (trace.spans, trace.launches, trace.activities):
        assert frame["start_ns"].dtype == np.int64
        assert (frame["end_ns"] >= frame["start_ns"]).all()
        assert frame["name_id"].between(0, len(trace.strings) - 1).all()
        assert list(frame.index) == list(range(len(frame)))
    assert len(set(trace.strings)) == len(trace.strings)
    assert trace.provenance.clock_offset_ns == 0
    assert sniff_kineto(path)
    assert ("kineto-kernels-not-recorded" in codes(trace)) == (name == "cupti_counters_gpu")


def test_times_equal_the_json_to_the_nanosecond(captures: Path) -> None:
    path = captures / "kineto" / "bert_small_h100.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    kernels = sorted((int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in events if e.get("cat") == "kernel")
    trace = read_kineto(path)
    mine = trace.activities[trace.activities["kind"] == int(ActivityKind.KERNEL)]
    assert sorted(zip(mine["start_ns"].tolist(), (mine["end_ns"] - mine["start_ns"]).tolist())) == kernels


def test_modules_and_shapes_come_with_the_bert_trace(captures: Path) -> None:
    trace = read_kineto(captures / "kineto" / "bert_small_h100.pt.trace.json.gz")
    types = trace.attributes["layer_type"].value_counts()
    assert types["Linear"] == 26 and types["BertLayer"] == 4
    assert trace.attributes["shape_text"].astype(str).eq("[[1, 512], [], [], [], []]").any()
    assert trace.provenance.gpu_name == "NVIDIA H100 80GB HBM3"
    assert trace.devices["sm_count"].tolist() == [132]


def test_private_metadata_stay_out(tmp_path: Path) -> None:
    """Traces may carry the whole environment of their recording: none of it may reach ours."""
    secret = "do-not-tell"
    path = write(
        tmp_path / "private.json", [event("cpu_op", "a", 1, 1)], host_name=secret, traceName=f"/home/{secret}/t",
        metadata={"env": {"TOKEN": secret}}, trace_id=secret, deviceProperties=[{"id": 0, "pci": secret}],
        distributedInfo={"rank": 0, "pg_config": [secret]},
    )  # fmt: skip
    trace = read_kineto(path)
    everything = "\n".join([*trace.strings, str(trace.provenance), *(f.example for f in trace.findings)])
    for frame in (trace.processes, trace.threads, trace.devices, trace.domains, trace.attributes):
        everything += frame.to_csv()
    assert "cpu-operators-as-kernels" in codes(trace)
    assert secret not in everything


def test_graph_launch_owns_all_its_kernels(captures: Path) -> None:
    trace = read_kineto(captures / "kineto" / "vllm_decode_cuda_graph.pt.trace.json.gz")
    merged = trace.activities.merge(trace.launches, on="correlation_id", validate="many_to_one")
    assert len(merged) == len(trace.activities)
    graph = trace.strings[merged["name_id_y"]] == "hipGraphLaunch"
    assert graph.sum() > 400


def test_cpu_trace_shows_working_operators_as_kernels(tmp_path: Path) -> None:
    path = write(tmp_path / "cpu.json", [
        event("user_annotation", "xsp/model:forward#0", 0, 100),
        event("user_annotation", "xsp/fc:Linear#0", 10, 80),
        event("cpu_op", "aten::linear", 11, 70, **{"Input Dims": [[8, 3], [5, 3], []]}),
        event("cpu_op", "aten::addmm", 12, 60, **{"Sequence number": 4}),
        event("cpu_op", "aten::resolve_conj", 13, 2),
        event("cpu_op", "aten::relu", 90, 4),
        event("user_annotation", "xsp/shape:[8,5]", 82, 1),
    ])  # fmt: skip
    trace = read_kineto(path)
    names = trace.strings[trace.activities["name_id"]].tolist()
    # linear only passes on; addmm works itself although it calls resolve_conj; relu is a leaf.
    assert names == ["aten::addmm", "aten::relu"]
    assert trace.activities["device_id"].tolist() == [-1, -1]
    assert (trace.activities["start_ns"].to_numpy() == trace.launches["start_ns"].to_numpy()).all()
    assert trace.activities["correlation_id"].tolist() == trace.launches["correlation_id"].tolist()
    assert codes(trace)["cpu-operators-as-kernels"] == 2
    assert trace.provenance.gpu_name == "CPU"
    own = trace.spans[trace.spans["kind"] == int(SpanKind.PUSH_POP)]
    assert trace.strings[own["name_id"]].tolist() == ["model:forward#0", "fc:Linear#0"]
    assert trace.domains["name"].tolist() == [range_text.DOMAIN]
    assert (own["domain_index"] == 0).all()
    shapes = trace.attributes["shape_text"].astype(str)
    assert shapes[own.index].tolist() == ["", "[8,5]"]  # the mark became the layer's shape
    assert "[[8, 3], [5, 3], []]" in set(shapes)
    assert trace.attributes["sequence"].max() == 4


def test_a_collective_of_a_cpu_run_lasts_as_long_as_the_thread_that_carries_it_out(tmp_path: Path) -> None:
    """Two threads of gloo: the call returns at once, and the wait for the other ranks lies in gloo's own range."""
    gloo = [{"pid": 7, "tid": 80}, {"pid": 7, "tid": 81}]
    path = write(tmp_path / "cpu.json", [
        event("cpu_op", "aten::mm", 0, 10), event("cpu_op", "c10d::allreduce_", 12, 2),
        event("user_annotation", "gloo:all_reduce", 13, 500, gloo[0]),
        event("cpu_op", "aten::mm", 600, 10), event("cpu_op", "c10d::allreduce_", 620, 2),
        event("user_annotation", "gloo:all_reduce", 621, 40, gloo[1]),
        event("cpu_op", "c10d::broadcast_", 700, 5),  # its range was not recorded: the call stays what it is
    ])  # fmt: skip
    trace = read_kineto(path)
    done, calls = trace.activities, trace.launches
    assert trace.strings[done["name_id"]].tolist() == [
        "aten::mm", "gloo:all_reduce", "aten::mm", "gloo:all_reduce", "c10d::broadcast_"
    ]  # fmt: skip
    assert ((done["end_ns"] - done["start_ns"]) // 1000).tolist() == [10, 500, 10, 40, 5]
    assert trace.strings[calls["name_id"]].tolist()[1] == "c10d::allreduce_"
    assert (calls["start_ns"] // 1000).tolist() == [0, 12, 600, 620, 700]
    assert calls["correlation_id"].tolist() == done["correlation_id"].tolist()
    assert calls["thread_index"].nunique() == 1 and done["stream_id"].nunique() == 3


@pytest.mark.parametrize("allocation_us", [4, 6, 8, 12])
def test_what_is_a_kernel_of_the_cpu_does_not_hang_on_noise(tmp_path: Path, allocation_us: int) -> None:
    """`_to_copy` spends about half its time in itself: two runs of one program must have the same kernels."""
    path = write(tmp_path / "cpu.json", [
        event("cpu_op", "aten::_to_copy", 0, 20),
        event("cpu_op", "aten::empty_strided", 1, allocation_us),
        event("cpu_op", "aten::copy_", 14, 5),
        event("cpu_op", "aten::native_batch_norm", 30, 20),
        event("cpu_op", "aten::empty", 31, 2 * allocation_us - 6),
    ])  # fmt: skip
    trace = read_kineto(path)
    names = trace.strings[trace.activities["name_id"]].tolist()
    assert names == ["aten::empty_strided", "aten::copy_", "aten::native_batch_norm"]


def test_what_passes_one_kind_of_call_on_may_compute_another_itself(tmp_path: Path) -> None:
    """`_convolution` passes on what a library computes; a transposed one it computes itself, between small copies."""
    events = []
    for call in range(6):
        at = 1000 * call
        events.append(event("cpu_op", "aten::_convolution", at, 500))
        inner = ("aten::mkldnn_convolution", 480) if call % 3 else ("aten::copy_", 9)
        events.append(event("cpu_op", inner[0], at + 10, inner[1]))
    trace = read_kineto(write(tmp_path / "cpu.json", events))
    names = trace.strings[trace.activities["name_id"]].tolist()
    assert names == ["aten::_convolution", "aten::mkldnn_convolution", "aten::mkldnn_convolution"] * 2


def test_one_interrupted_call_makes_no_worker_of_who_passes_on(tmp_path: Path) -> None:
    """The machine took the processor away in the middle of one call of five."""
    events = []
    for call in range(5):
        at, interruption = 1000 * call, 400 if call == 2 else 0
        events.append(event("cpu_op", "aten::_to_copy", at, 10 + interruption))
        events.append(event("cpu_op", "aten::copy_", at + 2 + interruption, 6))
    trace = read_kineto(write(tmp_path / "cpu.json", events))
    assert set(trace.strings[trace.activities["name_id"]]) == {"aten::copy_"}


def test_who_converts_many_small_inputs_may_compute_a_few_large_ones(tmp_path: Path) -> None:
    """`div` by a number converts it first: a copy. Of small tensors nobody computes for long, of a table it does."""
    events = []
    for call in range(24):
        at, own_us, rows = 100_000 * call, 50_000 if call % 8 == 3 else 3, 400_000 if call % 8 == 3 else 64
        own_us += 700 if call == 20 else 0  # the machine took the processor away in one small call
        sizes = {"Input Dims": [[rows, 16], []]}
        events.append(event("cpu_op", "aten::div", at, 20 + own_us, **sizes))
        events.append(event("cpu_op", "aten::copy_", at + 4, 14, **{"Input Dims": [[], []]}))
    trace = read_kineto(write(tmp_path / "cpu.json", events))
    names = trace.strings[trace.activities["name_id"]].tolist()
    assert names == ["aten::div" if call % 8 == 3 else "aten::copy_" for call in range(24)]


@pytest.mark.parametrize(("own_us", "made_of"), [(900, ["aten::addmm"]), (120, ["aten::expand", "aten::copy_"])])
def test_who_takes_longer_than_to_pass_on_computes(tmp_path: Path, own_us: int, made_of: list[str]) -> None:
    """On a machine with few processors a copy inside `addmm` takes as long as its product: both are its work."""
    events = []
    for call in range(4):
        at = 3000 * call
        events += [
            event("cpu_op", "aten::addmm", at, own_us + 640), event("cpu_op", "aten::expand", at + 5, 20),
            event("cpu_op", "aten::copy_", at + 30, 620),
        ]  # fmt: skip
    trace = read_kineto(write(tmp_path / "cpu.json", events))
    assert list(dict.fromkeys(trace.strings[trace.activities["name_id"]].tolist())) == made_of


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 200)), max_size=30))
def test_kernels_of_the_cpu_never_overlap_on_a_thread(tmp_path_factory, rows) -> None:
    """Properly nested operators in, disjoint kernels out: their times add up to at most the roots' time."""
    events, path = [], tmp_path_factory.mktemp("cpu") / "t.json"
    for index, (depth, start, length) in enumerate(rows):
        events += [  # a chain: each call lies within the one before
            event("cpu_op", f"op{level}", index * 2000 + start + level, length + 2 * (4 - level))
            for level in range(depth + 1)
        ]
    if not events:
        return
    trace = read_kineto(write(path, events))
    kernels = trace.activities.sort_values("start_ns")
    assert (kernels["start_ns"].to_numpy()[1:] >= kernels["end_ns"].to_numpy()[:-1]).all()
    assert len(kernels) == len(rows)


def test_allocations_count_for_every_open_range_of_their_thread(tmp_path: Path) -> None:
    marks = ((5, 100, HOST), (6, -100, HOST), (15, 7, HOST), (5, 999, {"pid": 7, "tid": 9}))
    memory = [{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": ts, **where, "args": {"Bytes": size}}
              for ts, size, where in marks]  # fmt: skip
    trace = read_kineto(write(tmp_path / "m.json", [
        event("cpu_op", "outer", 0, 20), event("cpu_op", "inner", 4, 4), *memory]))  # fmt: skip
    assert trace.attributes["allocated_bytes"].tolist() == [107, 100]
    # beside a GPU only its memory counts: host and device bytes are never added together
    for one, kind in zip(memory, (0, 1, 1, 0)):
        one["args"] |= {"Device Type": kind, "Device Id": kind - 1, "Addr": 1}
    spans = [event("cpu_op", "outer", 0, 20), event("cpu_op", "inner", 4, 4), event("kernel", "k", 9, 2)]
    (tmp_path / "gpu.json").write_text(json.dumps({"traceEvents": [*spans, *memory], "deviceProperties": [{"id": 0}]}))
    assert read_kineto(tmp_path / "gpu.json").attributes["allocated_bytes"].tolist() == [7, 0]


def test_backward_kernels_count_for_their_forward_layer(tmp_path: Path) -> None:
    """The autograd thread has no module frame: the sequence number leads back to one."""
    from xsp_post.hierarchy import build_tree

    autograd = {"pid": 7, "tid": 99}
    trace = read_kineto(write(tmp_path / "train.json", [
        event("python_function", "nn.Module: Linear_0", 0, 20),
        event("cpu_op", "aten::addmm", 1, 10, **{"Sequence number": 4, "Fwd thread id": 0}),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=1),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 20, autograd,
              **{"Sequence number": 4, "Fwd thread id": 1}),
        event("cuda_runtime", "cudaLaunchKernel", 60, 1, autograd, correlation=2),
        event("kernel", "forward", 30, 5, {"pid": 0, "tid": 7}, correlation=1, device=0, stream=7),
        event("kernel", "backward", 70, 9, {"pid": 0, "tid": 7}, correlation=2, device=0, stream=7),
    ]))  # fmt: skip
    assert trace.attributes["sequence"].tolist() == [-1, 4, 4]
    tree = build_tree(trace)
    assert tree.activities["layer_node_id"].nunique() == 1 and (tree.activities["layer_node_id"] > 0).all()


def test_merged_processes_with_colliding_ids_are_said(tmp_path: Path) -> None:
    a, b = {"pid": 1, "tid": 1}, {"pid": 2, "tid": 2}
    trace = read_kineto(write(tmp_path / "two.json", [
        event("cuda_runtime", "cudaLaunchKernel", 0, 1, a, correlation=5),
        event("cuda_runtime", "cudaLaunchKernel", 0, 1, a, correlation=6),
        event("cuda_driver", "cuLaunchKernel", 0, 1, b, correlation=5),
        event("kernel", "k", 3, 1, {"pid": 0, "tid": 7}, correlation=5, device=0, stream=7, grid=[2, 1, 1]),
        event("kernel", "k", 4, 1, {"pid": 0, "tid": 7}, correlation=6, device=0, stream=7, grid="odd"),
        event("kernel", "orphan", 5, 1, {"pid": 0, "tid": 7}, device=0, stream="x"),
    ], distributedInfo={"rank": 3}))  # fmt: skip
    assert codes(trace)["kineto-process-ambiguous"] == 1
    assert len(trace.activities) == 3 and len(trace.processes) == 2
    assert trace.processes["rank"].tolist() == [3, 3]
    assert trace.activities["grid_x"].tolist() == [2, 0, 0]
    assert trace.launches["api_class"].tolist() == [0, 0, 1]


def test_unreadable_times_are_counted_not_guessed(tmp_path: Path) -> None:
    trace = read_kineto(write(tmp_path / "t.json", [
        event("cpu_op", "good", 1, 1), event("cpu_op", "bad", "noon", 1), event("cpu_op", "back", 5, -1),
        {"ph": "X", "cat": "cpu_op", "name": "open", "ts": 9, **HOST},
    ]))  # fmt: skip
    assert codes(trace)["kineto-time-unreadable"] == 2
    assert trace.strings[trace.spans["name_id"]].tolist() == ["good", "open"]
    assert trace.spans["is_open"].tolist() == [False, True]


@pytest.mark.parametrize("separator", [",", ",\n  ", " ,\r\n"])
def test_pieces_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: str) -> None:
    hostile = 'x"},{"ph": "X"}, {"name": "\\ },{ \u2028</script>'
    events = [event("cpu_op", f"{hostile}{i}", i, 0.5, note=hostile) for i in range(200)]
    body = separator.join(json.dumps(e) for e in events)
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + body + '], "baseTimeNanoseconds": 5}')
    whole: list[dict] = []
    trace_events.read_events(path, lambda events, times_of: not whole.extend(events))
    monkeypatch.setattr(trace_events, "_PIECE_BYTES", 700)
    pieces: list[list[dict]] = []
    metadata = trace_events.read_events(path, lambda events, times_of: not pieces.append(events))
    assert [e for piece in pieces for e in piece] == whole
    assert len(pieces) > 20 and len(whole) == 200
    assert metadata["baseTimeNanoseconds"] == 5


@pytest.mark.parametrize("piece_bytes", [700, 5_000, 1 << 20])
def test_lists_of_objects_within_events_and_behind_them(tmp_path: Path, monkeypatch, piece_bytes: int) -> None:
    objects = [{"id": number, "name": f"GPU {number}"} for number in range(12)]
    events = [event("cpu_op", f"op{i}", i, 0.5, **({"x": objects} if i % 3 == 0 else {})) for i in range(40)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": objects}))
    monkeypatch.setattr(trace_events, "_PIECE_BYTES", piece_bytes)
    found: list[Event] = []
    metadata = trace_events.read_events(path, lambda events, times_of: not found.extend(events))
    assert [one.name for one in found] == [f"op{i}" for i in range(40)]
    assert metadata["deviceProperties"] == objects


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("6520430095554.925", "7775999999999.999"),  # counted from the start of a session
        ("1.5", "1712195495541300.987"),  # a float holds the first, not the second
        ('"1.5"', '"1712195495541300.987"'),
        ("0.1000000000000000055", "1712195495541300"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [300, 1 << 21])
def test_times_are_exact_however_they_are_written(tmp_path, monkeypatch, first: str, last: str, piece_bytes) -> None:
    """Large times, and texts, follow after a piece that was read with its times as floats."""
    path, key = tmp_path / "t.json", '"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1'
    times = [first] * 6 + [last] * 6
    body = ",".join(f'{{{key}, "name": "op{row}", "ts": {at}, "dur": 0.123}}' for row, at in enumerate(times))
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{body}]}}')
    monkeypatch.setattr(trace_events, "_PIECE_BYTES", piece_bytes)
    spans = read_kineto(path).spans
    expected = [round(Decimal(at.strip('"')) * 1000) for at in times]
    assert spans["start_ns"].tolist() == expected
    assert (spans["end_ns"] - spans["start_ns"]).eq(123).all()


@pytest.mark.parametrize("name", ["bert_small_h100", "torch_compile_triton"])
def test_pieces_decoded_by_type_give_what_plain_json_gives(captures: Path, monkeypatch, name: str) -> None:
    path = captures / "kineto" / f"{name}.pt.trace.json.gz"
    typed = read_kineto(path)
    monkeypatch.setattr(EventDecoder, "readings", lambda self, text: iter(()))
    plain = read_kineto(path)
    assert typed.strings.tolist() == plain.strings.tolist()
    for frame in ("spans", "launches", "activities", "attributes", "synchronizations", "python_frames", "allocations"):
        pd.testing.assert_frame_equal(getattr(typed, frame), getattr(plain, frame))


def test_a_bare_list_and_gzip_are_traces_too(tmp_path: Path) -> None:
    events = [event("cpu_op", "a", 1, 1)]
    plain, packed = tmp_path / "list.json", tmp_path / "list.json.gz"
    plain.write_text(json.dumps(events))
    packed.write_bytes(gzip.compress(json.dumps(events).encode()))
    assert len(read_kineto(plain).spans) == len(read_kineto(packed).spans) == 1
    assert sniff_kineto(plain) and sniff_kineto(packed)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "trace-not-json"),
        (b"\x00\x01\x02 rubbish", "trace-not-json"),
        (b"{}", "trace-without-events"),
        (b'{"traceEvents": []}', "trace-without-events"),
        (b'{"traceEvents": [{"ph": "X"}]}', "trace-without-events"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "na', "trace-truncated"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"}], "trace', "trace-truncated"),
        (gzip.compress(b'{"traceEvents": [' + b" " * 9000, mtime=0)[:40], "trace-truncated"),
        (b'{"data": [{"spans": [{"operationName": "x"}]}]}', "trace-without-events"),
    ],
)
def test_damaged_files_end_in_one_sentence(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(CaptureError) as caught:
        read_kineto(path)
    assert caught.value.code == code
    assert str(path) in caught.value.message and "\n" not in caught.value.message


def test_a_file_cut_anywhere_never_leaves_a_foreign_exception(captures: Path, tmp_path: Path) -> None:
    text = gzip.decompress((captures / "kineto" / "torch_compile_triton.pt.trace.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    for length in range(0, len(text) - 2, 4001):
        path.write_bytes(text[:length])
        with pytest.raises(CaptureError):
            read_kineto(path)


@given(st.decimals(min_value=-(10**14), max_value=10**14, places=6))
def test_nanoseconds_are_exact(value: Decimal) -> None:
    ns, readable = json_times.nanoseconds([format(value, "f"), "1"])
    # four digits are looked at: enough for the nearest nanosecond but for a tie in the fifth
    expected = int((abs(value).quantize(Decimal("0.0001"), rounding="ROUND_DOWN") * 1000).quantize(1, ROUND_HALF_UP))
    assert readable.all() and ns[1] == 1000
    assert ns[0] == (-expected if value < 0 else expected)


def test_odd_numbers_of_time() -> None:
    assert json_times.nanoseconds([10**17, 5])[1].tolist() == [False, True]
    values = ["1.5e3", 2, "x", None, "1695835542514261.123", float("nan"), "-0.5", "9" * 17]
    ns, readable = json_times.nanoseconds(values)
    assert readable.tolist() == [True, True, False, False, True, False, True, False]
    assert ns[readable].tolist() == [1_500_000, 2000, 1695835542514261123, -500]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::k<float, f(int)::{lambda()#1}>(int, float*)", "k"),
        ("ampere_sgemm_32x32_nn", "ampere_sgemm_32x32_nn"),
        ("kernelA(float *, int)", "kernelA"),
        ("void cub::<unnamed>::Scan<int>(T1)", "Scan"),
        ("", ""),
    ],
)
def test_short_kernel_names(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from(["name", "ts", "dur", "pid", "tid", "args"])
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["correlation", "External id", "Input Dims", "grid", "block", "stream", "device", "bytes", "Bytes",
                     "Sequence number", "graph id", "name", "Addr", "Device Id", "Device Type", "Total Allocated"]),
    _JSON, max_size=5)  # fmt: skip


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "user_annotation", "gpu_memcpy", "python_function",
                             "cpu_instant_event", "else"]),
            st.dictionaries(_KEYS, _JSON, max_size=3), _ARGUMENTS,
        ), max_size=6),
    _JSON,
)  # fmt: skip
def test_whatever_the_values_are_a_trace_or_a_sentence_comes_out(tmp_path_factory, rows, odd) -> None:
    events = [{"ph": "X", "cat": cat, "name": "[memory]", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": args, **more}
              for cat, more, args in rows]  # fmt: skip
    metadata = {"deviceProperties": odd, "distributedInfo": odd, "baseTimeNanoseconds": odd, "schemaVersion": odd}
    path = write(tmp_path_factory.mktemp("fuzz") / "t.json", [*events, {"ph": "M", "name": "thread_name", "pid": odd}],
                 **metadata)  # fmt: skip
    try:
        trace = read_kineto(path)
    except CaptureError as error:
        assert "\n" not in error.message
    else:
        kept = len(trace.spans) + len(trace.launches) + len(trace.activities)
        assert kept > 0 and trace.spans["name_id"].between(0, len(trace.strings) - 1).all()


# -- other ages, other accelerators ---------------------------------------------------------------------


def test_a_trace_of_2021_is_read(tmp_path: Path) -> None:
    """PyTorch 1.8–1.12: capital categories, ranges among the operators, thread ids as text."""
    host, device = {"pid": 7, "tid": "8"}, {"pid": 0, "tid": "stream 7"}
    events = [
        event("Operator", "ProfilerStep#3", 0, 100, host, **{"External id": 1}),
        event("Operator", "aten::mm", 10, 50, host, **{"External id": 2, "Input dims": [[8, 4], [4, 2]]}),
        event("Runtime", "cudaLaunchKernel", 20, 5, host, correlation=11, cbid=211),
        event("Runtime", "cudaMemcpyAsync", 70, 5, host, correlation=12),
        event("Runtime", "cudaMemsetAsync", 80, 5, host, correlation=13),
        event("Kernel", "void gemm<float>(int)", 30, 40, device, device=0, stream=7, correlation=11,
              grid=[1, 2, 3], block=[4, 5, 6]),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 75, 9, device, device=0, stream=7, correlation=12,
              bytes=64),
        event("Memset", "Memset (Device)", 90, 2, device, device=0, stream=7, correlation=13, bytes=8),
        {"ph": "s", "cat": "async", "id": 1, "ts": 20, **host},
    ]  # fmt: skip
    trace = read_kineto(write(tmp_path / "a.json", events))
    assert trace.activities["kind"].tolist() == [ActivityKind.KERNEL, ActivityKind.MEMCPY, ActivityKind.MEMSET]
    assert trace.activities["grid_z"].tolist()[0] == 3 and trace.activities["bytes"].tolist() == [0, 64, 8]
    assert trace.activities["copy_kind"].tolist()[1] == 1
    assert trace.launches["correlation_id"].tolist() == [11, 12, 13]
    assert trace.spans["kind"].tolist() == [SpanKind.ANNOTATION, SpanKind.OPERATOR]
    assert trace.attributes["shape_text"].tolist()[1] == "[[8, 4], [4, 2]]"
    assert trace.threads["thread_id"].tolist() == [8]
    assert "cpu-operators-as-kernels" not in codes(trace)


@pytest.mark.parametrize(
    ("call", "work"),
    [("hip_runtime", "kernel"), ("xpu_runtime", "kernel"), ("xpu_driver", "kernel"),
     ("mtia_runtime", "mtia_ccp_events"), ("privateuse1_runtime", "kernel"),
     ("privateuse1_driver", "privateuse1_kernel"), ("npu_runtime", "npu_kernel")],
)  # fmt: skip
def test_work_of_other_accelerators_is_device_work(tmp_path: Path, call: str, work: str) -> None:
    events = [
        event("cpu_op", "aten::mm", 10, 50),
        event(call, "Launch", 20, 5, correlation=11),
        event(work, "gemm", 30, 40, {"pid": 0, "tid": 1}, device=0, stream=1, correlation=11),
    ]
    trace = read_kineto(write(tmp_path / "a.json", events))
    assert trace.activities["kind"].tolist() == [ActivityKind.KERNEL]
    assert trace.launches["api_class"].tolist() == [int(call.endswith("driver"))]
    assert not {"cpu-operators-as-kernels", "kineto-categories-unknown"} & set(codes(trace))


def test_operators_do_not_stand_in_where_categories_are_not_understood(tmp_path: Path) -> None:
    events = [event("cpu_op", "aten::mm", 10, 50), event("TPU Ops", "gemm", 30, 40), event("TPU Ops", "add", 80, 1)]
    trace = read_kineto(write(tmp_path / "a.json", events))
    assert trace.activities.empty
    assert codes(trace) == {"kineto-categories-unknown": 2}
    assert trace.findings[0].example == "2 TPU Ops"


def test_a_trace_of_unknown_categories_only_names_them(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="not understood: 1 TPU Ops"):
        read_kineto(write(tmp_path / "a.json", [event("TPU Ops", "gemm", 30, 40)]))
