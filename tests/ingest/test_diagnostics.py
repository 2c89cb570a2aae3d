"""What a reader says of a capture: nsys' own diagnostics by relevance, launches without kernels, foreign databases."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from builders import ExportBuilder

from xsp_post.base.errors import CaptureError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.nsys_devices import diagnostic_findings
from xsp_post.ingest.sources import load

PARANOID = "Unable to collect CPU kernel IP/backtrace samples. perf event paranoid level is 4."
LOST = "Not all NVTX events might have been collected."
DRIVER = "Installed CUDA driver version (13.0) is not supported by this build of Nsight Systems."


def found(*rows, has_kernels=True):
    return {f.code: (f.severity, f.count, f.example) for f in diagnostic_findings(rows, has_kernels=has_kernels)}


def test_notes_about_sampling_are_information():
    rows = [(3, PARANOID), (2, "Scheduling information is absent."), (2, "No OpenGL events collected. Does the …")]
    assert {code: one[:2] for code, one in found(*rows).items()} == {"diagnostic-note": ("info", 3)}


def test_losses_come_first_then_problems_then_notes():
    assert list(found((2, PARANOID), (2, DRIVER), (2, LOST))) == [
        "diagnostic-loss",
        "diagnostic-event",
        "diagnostic-note",
    ]
    assert [one[0] for one in found((2, PARANOID), (2, DRIVER), (2, LOST)).values()] == ["warning", "warning", "info"]


def test_errors_stand_before_warnings_and_equal_texts_once():
    rows = [(2, "Event 1 failed"), (2, "Event 2 failed"), (3, "The trace failed"), (1, "Profiling has started.")]
    assert found(*rows) == {"diagnostic-event": ("warning", 3, "The trace failed | Event 2 failed")}


def test_processes_that_used_no_gpu_matter_only_where_none_did():
    rows = [(2, "No CUDA events collected. Does the process use CUDA?")]
    assert list(found(*rows)) == ["diagnostic-note"]
    assert list(found(*rows, has_kernels=False)) == ["diagnostic-event"]


def test_folders_stay_out():
    assert "somebody" not in found((2, "cuDNN symbols found in /home/somebody/lib/x.so: failed"))["diagnostic-event"][2]


@pytest.mark.parametrize("name", ["transformer_2.7b_a100_nvtx", "cloverleaf_a100", "nvfuser_h200"])
def test_permission_notes_head_no_real_capture(captures, name):
    for one in load(captures / "nsys" / f"{name}.sqlite").trace.findings:
        assert one.severity == "info" or "sampl" not in one.example


# -- launches without kernels -----------------------------------------------------------------------------


def launches(tmp_path, lost, total=40, *, kernels=True, capture=False):
    """An export of `total` launches, of which those in `lost` have no kernel."""
    builder = ExportBuilder().range("step", 0, 10_000)
    if capture:
        builder.api("cudaStreamBeginCapture_v10000", 100 * min(lost) - 5, 100 * min(lost) - 4)
        builder.api("cudaStreamEndCapture_v10000", 100 * max(lost) + 50, 100 * max(lost) + 51)
    for k in range(total):
        if k in lost:
            builder.api("cudaLaunchKernel_v7000", 100 * k, 100 * k + 5)
        elif kernels:
            builder.kernel("k", launch=(100 * k, 100 * k + 5), run=(100 * k + 10, 100 * k + 90))
    trace = load(builder.write(tmp_path / "a.sqlite")).trace
    return trace, {f.code: f for f in trace.findings}.get("launches-without-kernel")


def test_every_launch_with_a_kernel_is_no_finding(tmp_path):
    assert launches(tmp_path, [])[1] is None


@pytest.mark.parametrize(
    ("lost", "cause"),
    [(range(30, 40), "the last ones"), (range(10), "the first ones"), (range(0, 40, 4), "spread over")],
)
def test_the_likely_cause_is_where_they_lie(tmp_path, lost, cause):
    _, one = launches(tmp_path, list(lost))
    assert one.count == 10 and one.severity == "warning"
    assert one.example.startswith("10 of 40 launches; ") and cause in one.example


@pytest.mark.parametrize(
    ("lost", "is_said"), [(range(0, 40, 4), True), (range(0, 40, 6), False), (range(20, 40), False), (range(20), False)]
)
def test_kernels_that_are_missing_between_others(tmp_path, lost, is_said):
    """A launch between two whose kernels ran has run, too; the last ones may wait when the recording ends."""
    trace, _ = launches(tmp_path, list(lost))
    counts = [one.count for one in trace.findings if one.code == "kernels-missing"]
    assert counts == ([9] if is_said else [])


def test_a_few_at_the_edge_are_information(tmp_path):
    assert launches(tmp_path, [39])[1].severity == "info"


def test_no_kernel_at_all_says_so_and_nothing_else(tmp_path):
    trace, one = launches(tmp_path, list(range(40)), kernels=False)
    assert one.count == 40 and "no kernel at all was recorded" in one.example
    assert "no-kernels" not in {f.code for f in build_tree(trace).findings}


def test_launches_that_a_graph_recorded_are_not_counted(tmp_path):
    trace, one = launches(tmp_path, list(range(10, 20)), capture=True)
    assert one is None
    (recorded,) = [f for f in trace.findings if f.code == "graph-recorded"]
    assert (recorded.count, recorded.severity) == (10, "info")


def test_a_window_of_a_longer_recording(captures):
    trace = load(captures / "nsys" / "t5_offload_2gpu_h100.sqlite").trace
    (one,) = [f for f in trace.findings if f.code == "launches-without-kernel"]
    assert one.count == 1714 and "part of a longer recording" in one.example


def test_launches_of_a_pytorch_trace(tmp_path):
    events = []
    for k in range(20):
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10 * k,
                       "dur": 1, "args": {"correlation": k + 1}})  # fmt: skip
        if k < 12:
            events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10 * k + 2, "dur": 5,
                           "args": {"correlation": k + 1, "device": 0, "stream": 7}})  # fmt: skip
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (one,) = [f for f in load(path).trace.findings if f.code == "launches-without-kernel"]
    assert one.count == 8 and "the last ones" in one.example


# -- what is not an export ------------------------------------------------------------------------------------


def test_a_database_of_nvprof_is_refused_by_name(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start, end); CREATE TABLE StringTable (_id_, value);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end);"
        )
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.code == "capture-nvprof" and "nvprof" in caught.value.message
