"""The critical path of programs whose path is known, and of real captures: it covers the time of the verdict."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder
from programs import Op, run_steps
from recorded import analyzed

from xsp_post.exporters import export
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.replay.critical_path import critical_path
from xsp_post.replay.executions import recorded_clock, windows
from xsp_post.replay.fidelity import identity_of

CAPTURES = (
    "nsys/transformer_2.7b_a100_no_nvtx.sqlite", "nsys/cloverleaf_a100.sqlite", "nsys/fsdp_2gpu_h100.sqlite",
    "kineto/bert_small_h100.pt.trace.json.gz",
)  # fmt: skip


def path_of(results):
    path = results.frame("critical_path")
    identity = identity_of(results, 0)
    found = windows(identity.graph, identity.every_execution, recorded_clock(identity.graph))
    length = max(one.end_ns - one.begin_ns for one in found[0])
    assert (path["end_ns"].to_numpy()[:-1] == path["start_ns"].to_numpy()[1:]).all()
    assert (path["duration_ns"] > 0).all()
    assert int(path["duration_ns"].sum()) == length
    return path, length


def test_a_device_bound_step_is_its_kernels(tmp_path):
    run_steps([*[Op("kernel", 90_000, "gemm")] * 20, Op("sync")], 5, tmp_path / "one.sqlite")
    path, length = path_of(analyze([tmp_path / "one.sqlite"], Options(model_range="^step")))
    kernels = path[path["kind"] == "kernel"]
    assert kernels["duration_ns"].sum() == 5 * 20 * 90_000
    assert path["operation_count"].sum() == 5 * 20
    assert length - kernels["duration_ns"].sum() < 5 * 50_000


def test_a_host_bound_step_is_its_host_code(tmp_path):
    step = [op for _ in range(20) for op in (Op("host", 70_000), Op("kernel", 5_000))] + [Op("sync")]
    run_steps(step, 5, tmp_path / "one.sqlite")
    path, _ = path_of(analyze([tmp_path / "one.sqlite"], Options(model_range="^step")))
    by_kind = path.groupby("kind")["duration_ns"].sum()
    assert by_kind["host"] == pytest.approx(5 * 20 * 70_000, rel=0.02)
    assert by_kind["launch call"] == pytest.approx(5 * 20 * 4_000, rel=0.02)
    assert by_kind["kernel"] == 5 * 5_000  # the last one of each


def test_what_lies_between_executions_is_on_the_path(tmp_path):
    """Short executions of kernels, long pauses of the host between them: verdict and path count both."""
    builder = ExportBuilder().process(100).thread(100)
    for at in range(0, 6_000_000, 1_000_000):
        builder.range(f"step#{at // 1_000_000}", at, at + 200_000)
        for one in range(10):
            launch = at + one * 2_000
            builder.kernel(
                "gemm", launch=(launch, launch + 1_000), run=(at + 5_000 + one * 15_000, at + 20_000 + one * 15_000)
            )
        builder.sync("cudaDeviceSynchronize_v3020", at + 21_000, at + 160_000)
    results = analyze([builder.write(tmp_path / "one.sqlite")], Options(model_range="^step"))
    path, length = path_of(results)
    shares = path.groupby("kind")["duration_ns"].sum() / length
    assert shares["host"] > 0.8 and 0.1 < shares["kernel"] < 0.2
    verdict = results.frame("experiment").query("question == 'device' and part == ''").set_index("resource")
    assert length == verdict["elapsed_ns"].iloc[0] and verdict["is_limit"]["host"]
    assert path["iteration_index"].nunique() == 6


def test_the_path_is_a_track_of_the_exported_timeline(tmp_path):
    run_steps([*[Op("kernel", 90_000, "gemm")] * 4, Op("sync")], 3, tmp_path / "one.sqlite")
    results = analyze([tmp_path / "one.sqlite"], Options(model_range="^step"))
    export(results, "chrome", tmp_path / "one.json")
    events = json.loads((tmp_path / "one.json").read_text())["traceEvents"]
    path = [event for event in events if event.get("cat") == "path"]
    assert len(path) == len(results.frame("critical_path"))
    tracks = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert "critical path" in tracks


@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_have_a_path_as_long_as_the_executions(name, captures):
    path_of(analyzed(captures / name))


@pytest.mark.parametrize("streams", [(7,), (7, 8), (7, 8, 9)])
def test_a_wait_for_other_streams_is_over_before_a_late_launch(streams, tmp_path):
    """The event happened long before the operation behind the wait was launched: its launch is what it waited for."""
    capture = ExportBuilder().process(100).thread(100)
    for at, stream in enumerate(streams):
        at *= 10_000
        capture.kernel("first", launch=(at + 1_000, at + 5_000), run=(at + 10_000, at + 40_000), stream=stream)
        capture.api("cudaEventRecord_v3020", at + 6_000, at + 7_000)
        capture._put("CUPTI_ACTIVITY_KIND_CUDA_EVENT", correlationId=capture.last_correlation, globalPid=capture._pid,
                     streamId=stream, eventId=stream, timestamp=at + 40_000)  # fmt: skip
    for at, stream in enumerate(streams, 8):
        capture.sync("cudaStreamWaitEvent_v3020", at * 10_000, at * 10_000 + 1_000)
        capture.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"][-1].update(streamId=13, eventId=stream, syncType=2)
    capture.kernel("second", launch=(600_000, 604_000), run=(607_000, 700_000), stream=13)
    capture.sync("cudaDeviceSynchronize_v3020", 605_000, 705_000)
    identity = identity_of(analyze([capture.write(tmp_path / "one.sqlite")]), 0)
    assert len(identity.graph.learnt.orders) == len(streams)
    clock = recorded_clock(identity.graph)
    path = critical_path(identity.graph, clock, 0, int(clock.end_ns.max()), int(clock.end_ns.argmax()))
    kinds = path["kind"].astype(str)
    waited = path[kinds == "host"]
    assert (waited["end_ns"] - waited["start_ns"]).sum() > 500_000
    assert "gap between operations" not in set(kinds)


def test_a_wait_for_a_device_that_is_done_hides_no_host_code(tmp_path):
    """The call waits for each stream in turn; those that ended long ago do not reach back to their end."""
    builder = ExportBuilder().process(100).thread(100).range("step#0", -400_000, 2_020_000)
    for stream in (7, 8, 9):
        builder.kernel("k", launch=(stream * 1_000, stream * 1_000 + 500), run=(10_000, 20_000), stream=stream)
    builder.api("cudaDeviceSynchronize_v3020", 2_000_000, 2_010_000)
    builder.kernel("k", launch=(2_011_000, 2_012_000), run=(2_013_000, 2_014_000), stream=7)
    results = analyze([builder.write(tmp_path / "one.sqlite")], Options(model_range="^step"))
    path, length = path_of(results)
    by_kind = path.groupby("kind")["duration_ns"].sum()
    assert by_kind["synchronisation"] == 10_000
    assert by_kind["host"] > 0.98 * length
    rows = results.frame("experiment").set_index(["question", "resource"])["gain_ratio"]
    assert rows["latency", "host"] == pytest.approx(0.5, abs=0.01)  # with what came before the first call
