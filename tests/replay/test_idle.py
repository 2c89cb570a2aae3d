"""Why a device waited: constructed captures in which every wait has a known cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from helpers import explain_idle
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.cutting import cut
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.pipeline import analyze, results_of
from xsp_post.replay import idle
from xsp_post.replay.calls import CallClass, call_class
from xsp_post.replay.idle import Cause
from xsp_post.replay.recording import read_recording
from xsp_post.tables.core.idle import idle_tables

US = 1_000


def explained(builder: ExportBuilder, tmp_path: Path) -> pd.DataFrame:
    """The pieces of a capture with texts, and the check that they sum to the idle time of every device."""
    builder.write(tmp_path / "report.sqlite")
    trace = load(tmp_path / "report.sqlite").trace
    assert trace is not None
    tree = build_tree(trace)
    found = explain_idle(tree)
    pieces = found.pieces
    length = (pieces["end_ns"] - pieces["start_ns"]).to_numpy()
    assert (length > 0).all()
    for number, device in found.devices.iterrows():
        mine = (pieces["device"] == number).to_numpy()
        assert length[mine].sum() == device["end_ns"] - device["start_ns"] - device["busy_ns"]
    strings = np.append(found.strings, "")
    names = np.asarray(tree.names.folded_names, object)[tree.nodes["folded_id"].to_numpy()]
    return pd.DataFrame(
        {
            "cause": [Cause(code).name.lower() for code in pieces["cause"]],
            "call": strings[pieces["call_id"]],
            "detail": strings[pieces["detail_id"]],
            "range": [names[node] if node > 0 else "" for node in pieces["node_id"]],
            "start": pieces["start_ns"] // US,
            "end": pieces["end_ns"] // US,
        }
    )


def rows(pieces: pd.DataFrame, *columns: str) -> list[tuple]:
    return list(pieces[list(columns)].itertuples(index=False, name=None))


def start() -> ExportBuilder:
    """A capture whose device worked until 100 µs; the next kernel comes from the test."""
    builder = ExportBuilder().process(100).thread(100)
    return builder.kernel("first", launch=(0, 5 * US), run=(10 * US, 100 * US))


def after(builder: ExportBuilder, launch: tuple[int, int], run: int, **more) -> ExportBuilder:
    return builder.kernel("second", launch=(launch[0] * US, launch[1] * US), run=(run * US, (run + 50) * US), **more)


def test_a_gap_is_cut_into_host_code_launch_call_and_latency(tmp_path):
    pieces = explained(after(start().range("prepare", 80 * US, 190 * US), (150, 160), 170), tmp_path)
    assert rows(pieces, "cause", "range", "start", "end") == [
        ("host_code", "prepare", 100, 150),
        ("launch_call", "prepare", 150, 160),
        ("launch_latency", "prepare", 160, 170),
    ]
    assert pieces["call"].tolist() == ["", "cudaLaunchKernel", "cudaLaunchKernel"]


def test_times_of_a_long_recording_stay_whole_numbers(tmp_path):
    later = 5_000_000  # in µs: beyond 32 bits in nanoseconds
    pieces = explained(after(start(), (later, later + 10), later + 20), tmp_path)
    assert pieces["start"].dtype == pieces["end"].dtype == np.int64
    assert rows(pieces, "start", "end")[-1] == (later + 10, later + 20)


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaDeviceSynchronize_v3020", "synchronization"),
        ("cudaStreamSynchronize_v3020", "synchronization"),
        ("cudaMemcpy_v3020", "copy_call"),
        ("cudaMalloc_v3020", "allocation"),
        ("cuModuleLoadDataEx", "module_load"),
        ("cudaStreamIsCapturing_v10000", "host_code"),
    ],
)
def test_every_kind_of_call_is_its_own_cause(tmp_path, call, cause):
    pieces = explained(after(start().api(call, 110 * US, 140 * US), (150, 160), 160), tmp_path)
    piece = pieces[pieces["start"].eq(110)].iloc[0]
    assert (piece["cause"], piece["end"]) == (cause, 140)
    assert piece["call"] == call.split("_v")[0]
    assert set(pieces["cause"]) <= {cause, "host_code", "launch_call"}


def test_a_synchronisation_says_what_it_waited_for(tmp_path):
    pieces = explained(after(start().sync("cudaStreamSynchronize_v3020", 20 * US, 130 * US), (150, 160), 160), tmp_path)
    assert rows(pieces, "cause", "detail", "end")[0] == ("synchronization", "first", 130)


def test_a_call_inside_another_counts_as_the_one_that_says_something(tmp_path):
    builder = start().api("cudaLaunchKernel_v7000", 110 * US, 150 * US, correlation=900)
    builder.api("cuKernelGetAttribute", 120 * US, 125 * US).api("cuLibraryLoadData", 130 * US, 140 * US)
    pieces = explained(after(builder, (150, 160), 160), tmp_path)
    assert rows(pieces, "cause", "start", "end") == [
        ("host_code", 100, 110),
        ("launch_call", 110, 130),
        ("module_load", 130, 140),
        ("launch_call", 140, 160),
    ]


def test_operating_system_scheduler_and_samples_tell_host_code_apart(tmp_path):
    builder = (
        start().os_call("poll", 110 * US, 130 * US).descheduled(115 * US, 125 * US).descheduled(140 * US, 150 * US)
    )
    builder.sample("decode_jpeg", 160 * US).sample("decode_jpeg", 170 * US).sample("other", 180 * US)
    pieces = explained(after(builder, (200, 210), 210), tmp_path)
    assert rows(pieces, "cause", "call", "start", "end") == [
        ("host_code", "", 100, 110),
        ("input_output", "poll", 110, 130),
        ("host_code", "", 130, 140),
        ("sleep", "", 140, 150),
        ("host_code", "decode_jpeg", 150, 200),
        ("launch_call", "cudaLaunchKernel", 200, 210),
    ]


@pytest.mark.parametrize(
    ("call", "cause"),
    [("nanosleep", "sleep"), ("pthread_cond_wait", "thread_wait"), ("read", "input_output"), ("ioctl", "os_call")],
)
def test_calls_of_the_operating_system_say_what_is_waited_for(tmp_path, call, cause):
    pieces = explained(
        after(start().range("x", 0, 300 * US).os_call(call, 110 * US, 140 * US), (200, 210), 210), tmp_path
    )
    assert (cause, call, 110, 140) in rows(pieces, "cause", "call", "start", "end")


def off(at, until):
    """A launching thread that does not run from ``at`` to ``until`` (µs), in a range."""
    return start().range("wait", 0, 3_000 * US).descheduled(at * US, until * US)


@pytest.mark.parametrize(("ran_until", "cause"), [(890, "descheduled"), (300, "sleep")])
def test_no_processor_only_where_another_thread_had_it(tmp_path, ran_until, cause):
    builder = off(110, 900).thread(300).descheduled(0, 111 * US).descheduled(ran_until * US, 2_000 * US)
    pieces = explained(after(builder.thread(100), (1_000, 1_010), 1_010), tmp_path)
    assert (cause, 110, 900) in rows(pieces, "cause", "start", "end")


def test_a_thread_that_preempts_elsewhere_is_no_rival(tmp_path):
    builder = off(110, 900).thread(300).descheduled(0, 111 * US).descheduled(890 * US, 2_000 * US)
    for row in builder.rows["SCHED_EVENTS"][2:]:
        row["cpu"] = 7
    pieces = explained(after(builder.thread(100), (1_000, 1_010), 1_010), tmp_path)
    assert ("sleep", 110, 900) in rows(pieces, "cause", "start", "end")


@pytest.mark.parametrize("process", [100, 101])
def test_a_wait_for_workers_names_what_they_were_in(tmp_path, process):
    builder = off(110, 900)
    for worker in (300, 301):
        builder.process(process).thread(worker).range("compile", 100 * US, 895 * US).range("nvrtc", 200 * US, 890 * US)
    pieces = explained(after(builder.process(100), (1_000, 1_010), 1_010), tmp_path)
    assert ("thread_wait", "nvrtc of 2 threads", 110, 900) in rows(pieces, "cause", "detail", "start", "end")


def test_workers_of_another_time_are_not_waited_for(tmp_path):
    builder = off(110, 900).thread(300).range("nvrtc", 0, 300 * US)
    pieces = explained(after(builder.thread(100), (1_000, 1_010), 1_010), tmp_path)
    assert ("sleep", "", 110, 900) in rows(pieces, "cause", "detail", "start", "end")


@pytest.mark.parametrize(("last", "detail"), [(0, "a timer: equal lengths"), (260, "")])
def test_equal_lengths_are_a_timer(tmp_path, last, detail):
    builder = start().range("wait", 0, 3_000 * US)
    for k, longer in enumerate([0, 0, 3, 0, 0] if not last else [0, 100, 150, 200, last]):
        builder.descheduled((110 + 400 * k) * US, (110 + 400 * k + 120 + longer) * US)
    pieces = explained(after(builder, (2_500, 2_510), 2_510), tmp_path)
    asleep = pieces[pieces["cause"] == "sleep"]
    assert len(asleep) == 5 and set(asleep["detail"]) == {detail}


def test_a_memset_is_launched_like_a_kernel(tmp_path):
    builder = start().memset(64, launch=(110 * US, 140 * US), run=(150 * US, 160 * US))
    pieces = explained(builder, tmp_path)
    assert ("launch_call", "cudaMemsetAsync", 110, 140) in rows(pieces, "cause", "call", "start", "end")


def test_the_launch_of_a_graph_is_a_cause_of_its_own(tmp_path):
    pieces = explained(start().graph_launch(launch=(110 * US, 140 * US), run=(150 * US, 160 * US)), tmp_path)
    assert rows(pieces, "cause", "start", "end")[-2:] == [("graph_launch", 110, 140), ("graph_launch", 140, 150)]


def test_pages_of_unified_memory_migrate(tmp_path):
    pieces = explained(start().memcpy(4096, run=(150 * US, 160 * US), kind=11), tmp_path)
    assert rows(pieces, "cause", "start", "end") == [("page_migration", 100, 150)]


def test_a_kernel_waits_for_the_pages_that_move_while_it_runs(tmp_path):
    """From the first of them to the last where less than 50 µs lie between two; what moves beside no kernel counts for
    none."""
    builder = start().kernel("second", launch=(10 * US, 12 * US), run=(200 * US, 700 * US))
    for begin, end in ((190, 210), (230, 240), (290, 330), (379, 380), (650, 720)):
        builder.memcpy(4096, run=(begin * US, end * US), kind=11, stream=9)
    results = analyze([builder.write(tmp_path / "report.sqlite")])
    assert read_recording(results, 0).operations.migrated_ns.tolist() == [0, (40 + 90 + 50) * US]


def test_operating_system_rows_are_not_asked_in_short_gaps(tmp_path):
    pieces = explained(after(start().os_call("poll", 101 * US, 104 * US), (105, 106), 106), tmp_path)
    assert set(pieces["cause"]) == {"host_code", "launch_call"}


def test_short_gaps_count(tmp_path):
    builder = start().kernel("second", launch=(50 * US, 55 * US), run=(100 * US + 300, 120 * US))
    pieces = explained(builder, tmp_path)
    assert pieces["cause"].tolist() == ["launch_latency"]


def test_what_was_launched_in_time_waited_behind_another_stream_or_copy(tmp_path):
    builder = start().kernel("second", launch=(50 * US, 55 * US), run=(103 * US, 110 * US), stream=8)
    builder.memcpy(64, launch=(56 * US, 60 * US), run=(112 * US, 120 * US), stream=8)
    pieces = explained(builder, tmp_path)
    assert rows(pieces, "cause", "detail") == [("queued", "first"), ("queued", "second")]


@pytest.mark.parametrize("until", [160, 700])
def test_behind_a_function_of_the_host_the_device_waits_for_that(until, tmp_path):
    builder = start().api("cudaLaunchHostFunc_v10000", 20 * US, 23 * US)
    pieces = explained(after(builder, (30, 35), until), tmp_path)
    said = [("thread_wait", "cudaLaunchHostFunc", idle.HOST_FUNCTION, until)]
    assert rows(pieces, "cause", "call", "detail", "end") == said
    builder = start().api("cudaLaunchHostFunc_v10000", 40 * US, 43 * US)  # behind both
    assert rows(explained(after(builder, (30, 35), until), tmp_path), "detail") == [("",)]


def asked(until: int, *ends: int, name: str = "cudaEventQuery_v3020") -> ExportBuilder:
    """Queries of 1 µs from 90 µs on, each after the end of the one before; the last ones at these times."""
    builder = start()
    for at in (*range(90, until, 2), *ends):
        builder.api(name, at * US, (at + 1) * US)
    return after(builder, (until + 20, until + 22), until + 30)


def test_to_ask_again_and_again_is_to_wait(tmp_path):
    """The kernel ends at 100 µs: the query after that says so."""
    pieces = explained(asked(100, 100), tmp_path)
    assert rows(pieces, "cause", "call", "end")[0] == ("synchronization", "cudaEventQuery", 101)
    # who asks on, or has a break, asks of something else
    for builder in (asked(110), asked(92, 100), asked(100, 100, name="cudaGetDevice_v3020")):
        assert "synchronization" not in explained(builder, tmp_path)["cause"].tolist()


def test_no_launch_takes_half_a_millisecond(tmp_path):
    pieces = explained(after(start(), (105, 110), 610), tmp_path)
    assert rows(pieces, "cause", "detail", "end") == [
        ("host_code", "", 105),
        ("launch_call", "", 110),
        ("not_recorded", "", 610),
    ]


def test_a_first_launch_that_took_long_loaded_code(tmp_path):
    pieces = explained(after(start(), (110, 2110), 2115), tmp_path)
    assert ("first_launch", 110, 2110) in rows(pieces, "cause", "start", "end")


def test_profiler_overhead_and_loading_of_modules(tmp_path):
    builder = start().overhead("CUPTI Resource Management", 110 * US, 120 * US, kind=3)
    builder.overhead("/secret/path", 120 * US, 130 * US, kind=7)
    pieces = explained(after(builder, (150, 160), 160), tmp_path)
    assert ("profiler_overhead", "CUPTI") in rows(pieces, "cause", "call")
    assert ("module_load", "profiler") in rows(pieces, "cause", "call")
    assert not pieces["call"].str.contains("secret").any()


@pytest.mark.parametrize(("kind", "severity"), [(3, "warning"), (7, None)])
def test_what_the_profiler_took_is_said(tmp_path, kind, severity):
    builder = start().range("all", 0, 1_000 * US).overhead("CUPTI", 200 * US, 400 * US, kind=kind)
    found = results_of([builder.write(tmp_path / "a.sqlite")]).frame("findings").set_index("code")
    assert ("profiler-overhead" in found.index) == (severity is not None)
    if severity:
        assert found.loc["profiler-overhead", "severity"] == severity
        assert found.loc["profiler-overhead", "example"] == "200 µs, 20.0 % of the recording"


def test_waiting_for_other_ranks(tmp_path):
    builder = start().range("c10d::allreduce_", 105 * US, 145 * US).os_call("poll", 110 * US, 140 * US)
    pieces = explained(after(builder, (150, 160), 160), tmp_path)
    assert rows(pieces[pieces["cause"] == "communication"], "start", "end") == [(105, 110), (110, 140), (140, 145)]


def test_work_without_a_launch_row_is_unknown(tmp_path):
    pieces = explained(start().kernel("orphan", run=(170 * US, 180 * US)), tmp_path)
    assert rows(pieces, "cause", "start", "end") == [("unknown", 100, 170)]


def test_a_thread_that_did_nothing_waited_for_the_one_before_it(tmp_path):
    builder = start().range("loss", 90 * US, 190 * US).sync("cudaStreamSynchronize_v3020", 95 * US, 180 * US)
    builder.thread(200, "autograd").os_call("pthread_cond_wait", 0, 195 * US)
    pieces = explained(after(builder, (200, 210), 210), tmp_path)
    assert rows(pieces, "cause", "range", "start", "end")[:2] == [
        ("synchronization", "loss", 100, 180),
        ("host_code", "loss", 180, 190),
    ]


def test_causes_count_for_the_execution_they_lie_in(tmp_path):
    builder = ExportBuilder().process(100).thread(100)
    for k, at in enumerate((0, 1000)):
        builder.range(f"model#{k}", at * US, (at + 200) * US, domain="xsp")
        builder.kernel("k", launch=((at + 20) * US, (at + 25) * US), run=((at + 30) * US, (at + 300) * US))
    builder.write(tmp_path / "report.sqlite")
    trace = load(tmp_path / "report.sqlite").trace
    assert trace is not None
    idle = explain_idle(build_tree(trace))
    pieces = idle.pieces.assign(ns=idle.pieces["end_ns"] - idle.pieces["start_ns"])
    assert pieces.groupby("iteration_index")["ns"].sum().to_dict() == {-1: 700 * US, 0: 30 * US, 1: 30 * US}
    assert idle.devices[["start_ns", "end_ns", "busy_ns"]].to_numpy().tolist() == [[0, 1300 * US, 540 * US]]


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API", "SAMPLING_CALLCHAINS"])
def test_missing_tables_leave_the_sum_whole(tmp_path, table):
    builder = start().range("prepare", 80 * US, 190 * US).os_call("poll", 110 * US, 130 * US).sample("f", 140 * US)
    builder = after(builder, (150, 160), 170)
    builder.rows[table] = []
    pieces = explained(builder, tmp_path)
    assert (pieces["end"] - pieces["start"]).sum() == 70
    assert ("unknown" in set(pieces["cause"])) == (table == "CUPTI_ACTIVITY_KIND_RUNTIME")


@examples(30)
@given(
    kernels=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 60), st.integers(1, 90), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    calls=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.sampled_from(
        ["cudaMalloc", "cudaStreamSynchronize", "cuLibraryLoadData"])), max_size=8),
    ranges=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400)), max_size=6),
)  # fmt: skip
def test_causes_sum_to_the_idle_time_whatever_was_recorded(tmp_path_factory, kernels, calls, ranges):
    builder = ExportBuilder().process(100)
    for launch, wait, length, thread in kernels:
        builder.thread(100 + thread)
        run = launch + 3 + wait * 5
        builder.kernel(f"k{length % 3}", launch=(launch * US, (launch + 3) * US), run=(run * US, (run + length) * US),
                       stream=7 + length % 2)  # fmt: skip
    builder.thread(100)
    for at, length, name in calls:
        builder.api(name, at * US, (at + length) * US)
    for at, length in ranges:
        builder.range(f"r{length % 4}", at * US, (at + length) * US)
    explained(builder, tmp_path_factory.mktemp("any"))  # checks the sums


def test_pieces_made_in_small_blocks_are_those_made_at_once(tmp_path, monkeypatch):
    builder = ExportBuilder().process(100).thread(100).range("step", 0, 400 * US)
    for at in range(0, 400 * US, 50 * US):
        builder.kernel("one", launch=(at, at + 5 * US), run=(at + 10 * US, at + 30 * US), stream=7 + at % 3)
    builder.write(tmp_path / "report.sqlite")
    trace = load(tmp_path / "report.sqlite").trace
    assert trace is not None
    tree = build_tree(trace)
    whole = idle_tables(tree, frozenset({"idle"}))
    monkeypatch.setattr(idle, "_AT_ONCE", 2)
    assert len(list(idle.IdleBlocks(tree).blocks())) > 1
    for name, frame in idle_tables(tree, frozenset({"idle"})).items():
        pd.testing.assert_frame_equal(frame, whole[name], check_categorical=False)


def test_calls_by_name():
    assert call_class("hipMemcpyWithStream") == CallClass.COPY
    assert call_class("cudaGraphLaunch") == CallClass.LAUNCH
    assert call_class("cudaFreeAsync") == CallClass.ALLOCATION
    assert call_class("cudaFuncGetAttributes") == CallClass.OTHER
    assert call_class("aten::copy_") == CallClass.OTHER


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), max_size=20),
    st.lists(st.integers(-5, 160), max_size=20),
)
def test_cutting_keeps_lengths(intervals, points):
    begin = np.array([a for a, _ in intervals], np.int64)
    end = np.array([a + n for a, n in intervals], np.int64)
    row, low, high = cut(begin, end, np.unique(np.array(points, np.int64)))
    assert (high > low).all()
    assert np.bincount(row, weights=high - low, minlength=len(begin)).tolist() == (end - begin).tolist()
    for point in points:
        assert not ((low < point) & (point < high)).any()


def test_a_kernel_that_only_waits_is_no_work(tmp_path):
    """What was launched behind it waited for what it waits for; what was launched late, for the host."""
    builder = start().kernel("spin_wait_kernel(int*)", launch=(60 * US, 65 * US), run=(110 * US, 400 * US))
    builder.kernel("gemm", launch=(70 * US, 75 * US), run=(401 * US, 500 * US))
    builder.kernel("event_wait", launch=(380 * US, 385 * US), run=(501 * US, 700 * US))
    builder.kernel("late", launch=(690 * US, 705 * US), run=(710 * US, 720 * US))
    pieces = explained(builder, tmp_path)
    found = rows(pieces[pieces["end"] - pieces["start"] > 10], "cause", "detail", "start", "end")
    assert ("device_wait", "spin_wait_kernel(int*)", 100, 401) in found
    assert [cause for cause, *_ in found if cause == "device_wait"] == ["device_wait"]
    assert sum(end - begin for *_, begin, end in found if begin >= 500) >= 190
