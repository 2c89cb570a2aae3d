"""What each change does to the amounts of a recording, number by number."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from recordings import COPY, call, learnt_of, operation, recording_of

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis
from xsp_post.model.trace import ActivityKind
from xsp_post.replay.changes import apply_change, parse_change
from xsp_post.replay.edges import DEVICE_WAIT, STREAM_WAIT, WAITS
from xsp_post.replay.executions import find_executions
from xsp_post.replay.graph import make_graph
from xsp_post.replay.resources import Altered

DEVICE, STREAM = WAITS.index(DEVICE_WAIT), WAITS.index(STREAM_WAIT)
SET = int(ActivityKind.MEMSET)


@pytest.mark.parametrize(
    ("text", "subject", "factor", "added_ns", "word"),
    [
        ("kernel:gemm=0.5x", "kernel", 0.5, None, ""), ("copy=2x", "copy", 2, None, ""),
        ("comm=.25x", "comm", 0.25, None, ""), ("host:^model$=+5ms", "host", None, 5_000_000, ""),
        ("sync=-2us", "sync", None, -2_000, ""), ("launch=+1.5µs", "launch", None, 1_500, ""),
        ("copy=+7ns", "copy", None, 7, ""), ("host=+1s", "host", None, 10**9, ""), ("batch=2x", "batch", 2, None, ""),
        ("layer:a=roof", "layer", None, None, "roof"), ("kernel:a=roof", "kernel", None, None, "roof"),
        ("attention=fused", "attention", None, None, "fused"), ("copy=overlap", "copy", None, None, "overlap"),
        ("launch=graph", "launch", None, None, "graph"), ("sync=none", "sync", None, None, "none"),
        ("host:^load$=none", "host", None, None, "none"),
    ],
)  # fmt: skip
def test_changes_are_read(text, subject, factor, added_ns, word):
    change = parse_change(f" {text} ")
    assert (change.subject, change.factor, change.added_ns, change.word) == (subject, factor, added_ns, word)
    assert (change.pattern is not None) == (":" in text)


@pytest.mark.parametrize(
    "text",
    ["", "gpu=2x", "kernel=2x", "layer=2x", "copy", "copy=2", "copy=+2", "comm=none", "sync=overlap", "host=roof",
     "host=none", "batch=+1ms", "kernel:a=fused", "launch=-x", f"copy={'9' * 400}x"],
)  # fmt: skip
def test_what_is_no_change_is_refused(text):
    with pytest.raises(UsageError):
        parse_change(text)


LAYERS = pd.DataFrame({
    "capture_id": [0, 0, 0, 1], "layer_index": [1, 2, 1, 9], "layer_name": ["conv", "fc", "conv", "fc"],
    "layer_path": ["net.conv", "net.fc", "net.conv", "net.fc"],
})  # fmt: skip
NODES = pd.DataFrame({
    "capture_id": [0, 0, 0, 1], "name": ["step", "load", "empty", "load"], "process_id": [100] * 4,
    "start_ns": [0, 95, 500, 0], "end_ns": [400, 330, 600, 999],
})  # fmt: skip


def changed(text, calls, operations, learnt=None, tables=None, **options):
    """(amounts, effect) of one change."""
    recording = recording_of(calls, operations, **options)
    graph = make_graph(recording, learnt_of(recording, **(learnt or {})))
    altered = Altered(graph, find_executions(graph))
    results = Analysis({"layers": LAYERS, "nodes": NODES, **(tables or {})}, [])
    effect = apply_change(parse_change(text), altered, results, 0)
    return altered.amounts, effect


CALLS = [call(0, 10), call(100, 120), call(200, 230), call(300, 340, wait=STREAM, stream_id=7), call(400, 410)]
WORK = [
    operation(15, 115, 0, name="gemm", layer=1), operation(125, 135, 1, name="relu", layer=2),
    operation(140, 190, 2, name="HtoD", kind=COPY), operation(195, 198, 2, name="set", kind=SET),
    operation(420, 440, 4, name="ncclDevKernel_AllReduce", layer=2),
]  # fmt: skip
WAITED = {"waited": [-1, -1, -1, 2, -1], "after_ns": [0, 0, 0, 9, 0]}


@pytest.mark.parametrize(
    ("text", "durations", "count", "device_ns"),
    [
        ("kernel:gemm=0.5x", [50, 10, 50, 3, 20], 1, 100), ("kernel:.=2x", [200, 20, 50, 3, 40], 3, 130),
        ("kernel:e=+7ns", [107, 17, 50, 3, 27], 3, 130), ("kernel:relu=-30ns", [100, 0, 50, 3, 20], 1, 10),
        ("layer:fc=3x", [100, 30, 50, 3, 60], 2, 30), ("layer:net.conv=0x", [0, 10, 50, 3, 20], 1, 100),
        ("copy=0.1x", [100, 10, 5, 0, 20], 2, 53), ("copy:H=0.5x", [100, 10, 25, 3, 20], 1, 50),
        ("comm=0.8x", [100, 10, 50, 3, 16], 1, 20), ("batch=2x", [200, 20, 50, 3, 20], 2, 110),
    ],
)  # fmt: skip
def test_times_of_operations(text, durations, count, device_ns):
    amounts, effect = changed(text, CALLS, WORK, WAITED)
    assert amounts.duration_ns.tolist() == durations
    assert (effect.operation_count, effect.device_ns, effect.text) == (count, device_ns, text)
    names = {"kernel:gemm=0.5x": ["gemm"], "layer:fc=3x": ["ncclDevKernel_AllReduce", "relu"]}
    assert effect.names == names.get(text, effect.names)


@pytest.mark.parametrize("text", ["kernel:none=2x", "layer:none=2x", "attention=fused", "host:none=2x", "copy:x=2x"])
def test_what_matches_nothing_is_refused(text):
    with pytest.raises(UsageError, match="nothing in the capture matches"):
        changed(text, CALLS, WORK, WAITED)


def test_kernels_reach_their_roof():
    tables = {"a08": pd.DataFrame({"name": ["gemm", "relu", "gemm"], "roof_ratio": [0.2, 1.5, 0.6]}),
              "a10": pd.DataFrame({"name": ["gemm", "other"], "roof_ratio": [0.9, 0.9]}),
              "a11": pd.DataFrame({"layer_index": [1, 2], "roof_ratio": [0.1, 0.5]})}  # fmt: skip
    amounts, effect = changed("kernel:.=roof", CALLS, WORK, WAITED, tables)
    assert amounts.duration_ns.tolist() == [40, 10, 50, 3, 20]  # the median of A8; never longer; the last not known
    assert "1 operations (15%" in effect.left_out and effect.operation_count == 3
    amounts, effect = changed("layer:fc=roof", CALLS, WORK, WAITED, {"a11": tables["a11"]})
    assert amounts.duration_ns.tolist() == [100, 5, 50, 3, 10] and not effect.left_out
    with pytest.raises(UsageError):
        changed("kernel:.=roof", CALLS, WORK, WAITED, {"a11": tables["a11"]})
    with pytest.raises(UsageError):
        changed("kernel:.=roof", CALLS, WORK, WAITED, {"a08": tables["a08"].assign(roof_ratio=0.0)})


def test_a_layer_of_a_cpu_is_also_the_time_between_its_operators():
    calls = [call(0, 10), call(30, 40), call(70, 80), call(150, 160)]
    work = [operation(c["start_ns"], c["end_ns"], k, layer=[1, 1, 2, 1][k]) for k, c in enumerate(calls)]
    amounts, _ = changed("layer:conv=0.5x", calls, work, streams=[(0, True, -1)])
    assert amounts.before_ns.tolist() == [0, 10, 30, 70]  # between the first two, the others are not neighbours
    assert amounts.duration_ns.tolist() == [5, 5, 10, 5]
    amounts, _ = changed("kernel:.=0.5x", calls, work, streams=[(0, True, -1)])
    assert amounts.before_ns.tolist() == [0, 20, 30, 70]


def test_copies_that_overlap_have_a_stream_of_their_own_and_hold_nothing_back():
    learnt = {**WAITED, "is_blocking": [False, False, True, False, False], "latency_ns": [4, 6, 90, 8, 10],
              "own_ns": [10, 20, 0, 5, 12]}  # fmt: skip
    amounts, effect = changed("copy=overlap", CALLS, WORK, learnt, orders=[(0, 1), (1, 2)])
    assert amounts.stream.tolist() == [0, 0, 1, 0, 0] and not amounts.is_blocking.any()
    assert amounts.latency_ns.tolist() == [4, 6, 7, 8, 10]  # the usual one of the others
    assert amounts.own_ns.tolist() == [10, 20, 12, 5, 12]  # of calls that do not wait
    assert amounts.orders.tolist() == [[0, 1]]
    assert amounts.waits.tolist() == [False, False, False, True, False]  # for what else is on its stream
    assert (effect.operation_count, effect.call_count, effect.device_ns) == (1, 1, 50)
    device = [*CALLS[:3], {**CALLS[3], "wait": DEVICE}, CALLS[4]]
    assert changed("copy=overlap", device, WORK, learnt)[0].waits.tolist() == [False, False, False, True, False]
    of_kernel = {**learnt, "waited": [-1, -1, -1, 1, -1]}
    assert changed("copy=overlap", CALLS, WORK, of_kernel)[0].waits[3]
    long = {**learnt, "own_ns": [10, 20, 500, 5, 12], "latency_ns": [4, 6, 1, 8, 10]}
    amounts, _ = changed("copy=overlap", CALLS, WORK, long)
    assert amounts.own_ns[2] == 16 and amounts.latency_ns[2] == 1  # the median of 10, 12, 20 and 500 is 16


def test_launches_get_faster_or_slower():
    amounts, effect = changed("launch=0.5x", CALLS, WORK, {**WAITED, "is_blocking": [0, 0, 1, 0, 0]})
    assert amounts.own_ns.tolist() == [5, 10, 15, 40, 5] and effect.call_count == 4
    amounts, _ = changed("launch=-8ns", CALLS, WORK[:2], WAITED)
    assert amounts.own_ns.tolist() == [2, 12, 30, 40, 10]
    assert changed("launch=-15ns", CALLS, WORK[:2], WAITED)[0].own_ns.tolist() == [0, 5, 30, 40, 10]


def steady(*starts, thread=None, iteration=None, own=5_000):
    calls = [call(at, at + own, thread=(thread or {}).get(k, 0)) for k, at in enumerate(starts)]
    work = [operation(at + own + 1, at + own + 9, k, iteration=(iteration or {}).get(k, 0)) for k, at in
            enumerate(starts)]  # fmt: skip
    return calls, work


def test_a_graph_is_launched_once_for_all_between_two_waits():
    calls, work = steady(0, 10_000, 30_000, own=8_000)
    calls += [call(50_000, 51_000, wait=DEVICE), call(60_000, 68_000), call(70_000, 78_000), call(200_000, 208_000)]
    work += [operation(69_000, 70_000, 4, iteration=0), operation(78_001, 79_000, 5, iteration=0),
             operation(209_000, 210_000, 6, iteration=0)]  # fmt: skip
    waited = {"waited": [-1, -1, -1, 2, -1, -1, -1], "gap_ns": [500, 2_000, 3_000, 2_500, 500, 2_000]}
    amounts, effect = changed("launch=graph", calls, work, {**waited, "queue_depth": 9})
    assert amounts.own_ns.tolist() == [8_000, 0, 0, 1_000, 8_000, 0, 0]
    # host code between launches goes, but for the long one; before the wait and the first launches it stays
    assert amounts.before_ns.tolist() == [0, 0, 0, 12_000, 9_000, 0, 122_000]
    assert amounts.gap_ns.tolist() == [500, 1_000, 1_000, 2_500, 500, 1_000]
    assert amounts.queue_depth == 0 and (effect.call_count, effect.operation_count) == (6, 4)
    assert "2 graphs" in effect.assumption and not effect.left_out


def test_a_graph_is_of_one_thread_and_one_execution():
    calls, work = steady(0, 20_000, 40_000, 60_000, own=15_000, iteration={0: 0, 1: 0, 2: 1, 3: 1})
    amounts, effect = changed("launch=graph", calls, work)
    assert amounts.own_ns.tolist() == [10_000, 0, 10_000, 0] and "2 graphs" in effect.assumption
    calls, work = steady(0, 20_000, 40_000, 60_000, own=15_000, thread={2: 1, 3: 1})
    assert changed("launch=graph", calls, work)[0].own_ns.tolist() == [10_000, 0, 10_000, 0]
    calls, work = steady(0, 20_000, own=15_000, iteration={1: 1})  # one launch is no graph
    amounts, effect = changed("launch=graph", calls, work)
    assert amounts.own_ns.tolist() == [15_000, 15_000] and "0 graphs" in effect.assumption


def test_launches_that_load_code_load_it_with_graphs_too():
    calls, work = steady(*range(0, 600_000, 20_000))
    for at in calls[3:]:
        at["start_ns"], at["end_ns"] = at["start_ns"] + 400_000, at["end_ns"] + 400_000
    calls[2]["end_ns"] = calls[2]["start_ns"] + 400_000
    work[2]["name"] = "seldom"
    amounts, effect = changed("launch=graph", calls, work)
    assert amounts.own_ns[:4].tolist() == [5_000, 0, 400_000, 0]
    assert effect.left_out.startswith("1 first launches")
    work[2]["name"] = "kernel"  # not the first one of its name
    amounts, effect = changed("launch=graph", calls, work)
    assert amounts.own_ns[2] == 0 and not effect.left_out


def test_waits_go_or_get_shorter():
    learnt = {**WAITED, "own_ns": [10, 20, 30, 40, 10]}
    amounts, effect = changed("sync=none", CALLS, WORK, learnt)
    assert not amounts.waits.any() and amounts.own_ns.tolist() == [10, 20, 30, 0, 10] and effect.call_count == 1
    amounts, _ = changed("sync=0.5x", CALLS, WORK, learnt)
    assert amounts.after_ns.tolist() == [0, 0, 0, 4, 0] and amounts.own_ns.tolist() == [10, 20, 30, 20, 10]
    amounts, _ = changed("sync=+6ns", CALLS, WORK, learnt)
    assert amounts.after_ns[3] == 15 and amounts.own_ns[3] == 40 and amounts.waits[3]


def test_host_code_between_calls():
    """Calls at 0, 100, 200, 300, 400: before them 0, 90, 80, 70, 60 ns of the host."""
    amounts, effect = changed("host=0.5x", CALLS, WORK, WAITED)
    assert amounts.before_ns.tolist() == [0, 45, 40, 35, 30] and effect.call_count == 4
    amounts, effect = changed("host:load=0.5x", CALLS, WORK, WAITED)
    # "load" began 5 before the call at 100: of the 90 before that only 5 are inside it
    assert amounts.before_ns.tolist() == [0, 88, 40, 35, 60] and effect.call_count == 3
    assert changed("host:load=+50ns", CALLS, WORK, WAITED)[0].before_ns.tolist() == [0, 140, 80, 70, 60]
    assert changed("host:load=-500ns", CALLS, WORK, WAITED)[0].before_ns.tolist() == [0, 0, 80, 70, 60]
    amounts, effect = changed("host:step|load=2x", CALLS, WORK, WAITED)
    assert amounts.before_ns.tolist() == [0, 180, 160, 140, 120] and effect.call_count == 4
    with pytest.raises(UsageError):  # no call lies in it
        changed("host:empty=2x", CALLS, WORK, WAITED)


def test_host_code_before_the_first_call_and_after_the_last_one():
    """ "load" from 95 to 330 holds the end of the first execution and the beginning of the second."""
    runs = pd.DataFrame({"iteration_index": [0, 1], "process_id": 100, "phase": "", "is_warmup": False, "busy_ns": 1,
                         "is_inferred": False, "start_ns": [0, 170], "end_ns": [165, 500]})  # fmt: skip
    work = [operation(15, 80, 0, iteration=0), operation(205, 300, 1, iteration=1)]
    recording = recording_of([call(0, 90), call(200, 210)], work, iterations=runs)
    graph = make_graph(recording, learnt_of(recording))
    for text, edges in (
        ("host:load=none", (0, 5, 5)),
        ("host:load=0.5x", (15, 42, 40)),
        ("host:step=2x", (60, 160, 150)),
    ):
        altered = Altered(graph, find_executions(graph))
        apply_change(parse_change(text), altered, Analysis({"nodes": NODES}, []), 0)
        executions = altered.executions
        assert (executions.lead_ns[1], executions.since_ns[1], executions.tail_ns[0]) == edges
    assert find_executions(graph).tail_ns[0] == 75


def test_what_is_inside_a_range_is_done_elsewhere():
    """ "load" holds the calls at 100, 200 and 300: what they launch and wait for goes with them."""
    amounts, effect = changed("host:load=none", CALLS, WORK, WAITED)
    assert amounts.before_ns.tolist() == [0, 85, 0, 0, 60] and effect.call_count == 3
    assert amounts.own_ns[1:4].tolist() == [0, 0, 0] and amounts.own_ns[[0, 4]].min() > 0 and not amounts.waits.any()
    assert amounts.duration_ns.tolist() == [100, 0, 0, 0, 20]
    with pytest.raises(UsageError):
        changed("host:empty=none", CALLS, WORK, WAITED)


def test_attention_is_fused_into_the_time_of_its_products():
    names = ["gemm", "softmax_warp_forward", "gemm", "gemm"]
    calls = [call(20 * k, 20 * k + 5) for k in range(4)]
    work = [operation(20 * k + 10, 20 * k + 20, k, name=name) for k, name in enumerate(names)]
    amounts, effect = changed("attention=fused", calls, work)
    assert effect.operation_count == int((amounts.duration_ns == 0).sum()) > 0
    assert np.flatnonzero(amounts.duration_ns == 0).tolist() == [1]


def test_memory_is_taken_by_the_host():
    """The call at 200 takes memory: its time is the host's, as where the experiment halves the host."""
    recording = recording_of(CALLS, WORK)
    recording.calls.allocates[2] = True
    graph = make_graph(recording, learnt_of(recording, **WAITED, own_ns=[10, 20, 30, 40, 10]))
    altered = Altered(graph, find_executions(graph))
    apply_change(parse_change("host=0.5x"), altered, Analysis({"layers": LAYERS, "nodes": NODES}, []), 0)
    assert altered.amounts.own_ns.tolist() == [10, 20, 15, 40, 10]
