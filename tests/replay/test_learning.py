"""What is learnt of a recording: a few numbers by hand, and what each call waited for by a loop."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recordings import COPY, call, operation, recording_of

from xsp_post.model.trace import ActivityKind
from xsp_post.replay.edges import DEVICE_WAIT, EVENT_WAIT, STREAM_WAIT, WAITS
from xsp_post.replay.graph import make_graph, replay
from xsp_post.replay.learning import learn, meetings_in

DEVICE, STREAM, EVENT = (WAITS.index(one) for one in (DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT))
SET, MS = int(ActivityKind.MEMSET), 1_000_000
TWO_STREAMS = [(0, False, 7), (0, False, 8)]


def learnt(calls, operations, **options):
    return learn(recording_of(calls, operations, **options))


def test_the_latency_is_the_median_of_each_kind_that_found_its_stream_idle():
    calls = [call(MS * k, MS * k + 100) for k in range(5)]
    delays = [3, 5, 40, 999, 7]
    operations = [operation(MS * k + 100 + delays[k], MS * k + 300, k) for k in range(4)]
    operations[2]["end_ns"] = 3 * MS + 1  # the fourth found its stream busy for 1 ns after its call began
    operations.append(operation(4 * MS + 107, 4 * MS + 200, 4, kind=SET))
    found = learnt(calls, operations)
    assert found.latency_ns.tolist() == [3, 5, 5, 5, 7]  # no launch took longer than until its work began
    operations[2]["end_ns"] = 3 * MS  # free at the moment of the call
    assert learnt(calls, operations).latency_ns.tolist() == [3, 5, 22, 22, 7]  # of 3, 5, 40, 999
    busy = [operation(103, 5 * MS, 0), operation(5 * MS, 6 * MS, 1, kind=SET)]
    assert learnt(calls[:2], busy).latency_ns.tolist() == [3, 3]  # of other kinds, where its own was never idle
    assert learnt(calls[:2], [operation(0, 5 * MS, place=0), operation(5 * MS, 6 * MS, 1)]).latency_ns.tolist() == [
        3_000, 3_000,
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "ended", "blocks"), [(40, 36, True), (40, 35, False), (31, 31, False)])
def test_launches_block_where_nearly_all_kernels_ended_inside_them(count, ended, blocks):
    """CUDA_LAUNCH_BLOCKING=1."""
    calls = [call(MS * k, MS * k + 10_000) for k in range(count)]
    operations = [operation(MS * k + 4_000, MS * k + 8_000 + 9_000 * (k >= ended), k) for k in range(count)]
    assert learnt(calls, operations).is_blocking.tolist() == [blocks] * count


def test_the_gap_is_the_mean_of_queued_operations_without_the_largest_twentieth():
    calls, operations, at = [], [operation(0, MS, place=0)], MS
    for k, gap in enumerate([*range(1, 20), 5_000]):
        calls.append(call(10 * k, 10 * k + 5))
        operations.append(operation(at + gap, at + gap + 1_000, k))
        at += gap + 1_000
    found = learnt(calls, operations)
    assert {*found.gap_ns.tolist()} == {10}
    operations.append(operation(at + 44, at + 50, 19, kind=SET))
    assert learnt(calls, operations).gap_ns.tolist() == [10] * 21 + [44]
    assert {*learnt(calls[:1], operations[1:2]).gap_ns.tolist()} == {1_000}  # none was queued


def test_behind_a_function_of_the_host_each_gap_is_its_own():
    calls = [call(10 * k, 10 * k + 5) for k in range(4)]
    operations = [operation(0, MS, place=0), operation(MS + 40, 2 * MS, 0), operation(2 * MS + 40, 3 * MS, 1),
                  operation(3 * MS + 90_000, 4 * MS, 2, behind_host=1)]  # fmt: skip
    assert learnt(calls, operations).gap_ns.tolist() == [40, 40, 40, 90_000]
    late = operation(5 * MS + 70_000, 6 * MS, 3, behind_host=1)  # its call was later than the end of the work before
    found = learnt([*calls[:3], call(5 * MS - 10, 5 * MS)], [*operations, late])
    assert found.gap_ns[4] == found.latency_ns[4] == 70_000 and {*found.latency_ns[:3].tolist()} == {3_000}


@pytest.mark.parametrize(("free_after", "is_queued"), [(10_000, False), (10_001, True)])
def test_queued_is_what_was_launched_long_before_its_stream_was_free(free_after, is_queued):
    free = 105 + free_after
    operations = [operation(50, free, place=0), operation(free + 77, free + 100, 0)]
    assert learnt([call(100, 105)], operations).gap_ns.tolist() == [77 if is_queued else 1_000] * 2


@pytest.mark.parametrize(
    ("start", "end", "kind", "is_blocking"),
    [
        (20, 90, COPY, True), (50, 149, COPY, True), (50, 150, COPY, False), (100, 101, COPY, False),
        (99, 100, COPY, True), (20, 90, SET, False), (20, 90, int(ActivityKind.KERNEL), False),
    ],
)  # fmt: skip
def test_a_copy_blocks_that_lies_within_its_call_for_the_most_part(start, end, kind, is_blocking):
    assert learnt([call(0, 100)], [operation(start, end, 0, kind=kind)]).is_blocking.tolist() == [is_blocking]


def test_operators_of_a_cpu_are_their_own_launch():
    found = learnt([call(0, 100)], [operation(0, 100, 0)], streams=[(0, True, -1)])
    assert found.is_blocking.tolist() == [True]
    assert (found.latency_ns.tolist(), found.gap_ns.tolist(), found.after_ns.tolist()) == ([0], [0], [0])
    assert found.own_ns.tolist() == [0]


K = 1_000


@st.composite
def waiting(draw):
    calls, operations, at = [], [], 0
    for number in range(draw(st.integers(1, 8))):
        at += draw(st.integers(0, 12)) * K
        wait = draw(st.sampled_from([-1, -1, DEVICE, STREAM, EVENT]))
        stream_id = draw(st.sampled_from([-1, 7, 8]))
        calls.append(call(at, at + draw(st.integers(0, 40)) * K, wait=wait, stream_id=stream_id))
        for _ in range(draw(st.integers(0, 2)) if wait < 0 else 0):
            begin, stream = at + draw(st.integers(0, 30)) * K, draw(st.integers(0, 2))
            operations.append(operation(begin, begin + draw(st.integers(1, 30)) * K, number, stream=stream,
                                        process=int(stream == 2)))  # fmt: skip
    return calls, sorted(operations, key=lambda one: (one["call"], one["start_ns"]))


@examples(120)
@given(waiting())
def test_a_wait_was_for_the_operation_launched_before_it_that_ended_last_before_its_return(made):
    """A device or stream wait is for all of a stream's work, and may return 20 µs early; that for an event is for what
    had ended, within 2 µs."""
    calls, operations = made
    streams = [(0, False, 7), (0, False, 8), (1, False, 7)]
    found = learnt(calls, operations, streams=streams)
    for number, one in enumerate(calls):
        best, best_end = -1, -1
        for stream, (process, _, stream_id) in enumerate(streams):
            if one["wait"] < 0 or process != 0 or one["stream_id"] not in (-1, stream_id):
                continue
            before = [i for i, op in enumerate(operations) if op["stream"] == stream and op["call"] < number]
            tolerance = 2 * K if one["wait"] == EVENT else 20 * K
            ended = [
                k for k in range(1, len(before) + 1)
                if max(operations[i]["end_ns"] for i in before[:k]) <= one["end_ns"] + tolerance
            ]  # fmt: skip
            count = max(ended, default=0)
            if not count or (one["wait"] != EVENT and count < len(before)):
                continue
            end = max(operations[i]["end_ns"] for i in before[:count])
            if end > best_end:
                best, best_end = before[count - 1], end
        assert found.waited[number] == best


def test_a_wait_is_split_into_waiting_and_what_follows_it():
    calls = [call(0, 10), call(20, 130, wait=STREAM), call(200, 210), call(220, 360, wait=STREAM),
             call(500, 540, wait=STREAM), call(600, 605, wait=STREAM), call(700, 790, wait=DEVICE)]  # fmt: skip
    operations = [operation(15, 100, 0), operation(215, 350, 2)]
    found = learnt(calls, operations)
    assert found.waited.tolist() == [-1, 0, -1, 1, 1, 1, 1]
    # the two that waited took 30 and 10 after it; for the others nothing was pending
    assert found.after_ns.tolist() == [0, 30, 0, 10, 20, 5, 90]
    assert found.own_ns.tolist() == [10, 0, 10, 0, 40, 5, 90]


def copies(*rows):
    """(call start, call end, start, end) of blocking copies."""
    calls = [call(a, b) for a, b, _, _ in rows]
    return learnt(calls, [operation(c, d, k, kind=COPY, name="HtoD") for k, (*_, c, d) in enumerate(rows)])


def test_a_blocking_copy_is_split_into_host_time_before_and_after_it():
    found = copies((0, 100, 60, 90), (MS, MS + 100, MS + 50, MS + 80), (2 * MS, 2 * MS + 100, 2 * MS + 55, 2 * MS + 85))
    assert found.is_blocking.all() and found.own_ns.tolist() == [0, 0, 0]
    # they return 10, 20 and 15 after the copy; 70 is host time in each: 15 of it after, but for the first's clock
    assert found.after_ns.tolist() == [15, 15, 15]
    assert found.latency_ns.tolist() == [55, 55, 55]


def test_a_blocking_copy_behind_a_busy_stream_only_waited():
    calls = [call(0, 100), call(MS, MS + 5), call(2 * MS, 2 * MS + 500_100)]
    operations = [operation(60, 90, 0, kind=COPY, name="HtoD"), operation(MS + 9, 2 * MS + 500_000, 1),
                  operation(2 * MS + 500_020, 2 * MS + 500_050, 2, kind=COPY, name="HtoD")]  # fmt: skip
    found = learnt(calls, operations)
    assert found.is_blocking.tolist() == [True, False, True]
    # the first found the stream idle; the second returned 50 after its copy, and of the rest only 40 are host time
    assert found.after_ns.tolist() == [30, 0, 50] and found.latency_ns[[0, 2]].tolist() == [40, 40]


def queue(count=200, depth=40, wait=500, short=0):
    """Launches of 2 µs that wait, when the queue is full, until an older operation has started. Every ``short``-th
    operation is a short one."""
    calls, operations, at, starts = [], [], 0, []
    for k in range(count):
        starts.append(10_000 + 60_000 * k - (59_000 * (k // short) if short else 0))
        done = max(at + 2_000, starts[k - depth] + wait if k >= depth else 0)
        calls.append(call(at, done))
        operations.append(operation(starts[k], starts[k] + (500 if short and k % short == short - 1 else 59_000), k))
        at = done + 10
    return calls, operations


def test_a_full_queue_shows_its_depth_and_what_a_launch_takes_without_it():
    calls, operations = queue()
    found = learnt(calls, operations)
    assert (found.queue_depth, found.queue_wait_ns) == (40, 500)
    assert found.own_ns.tolist() == [2_000] * 200
    for few in (queue(count=55), queue(count=63, depth=20), queue(depth=32), queue(depth=300)):
        assert (learnt(*few).queue_depth, learnt(*few).queue_wait_ns) == (0, 0)
    assert learnt(*queue(depth=33)).queue_depth == 33


def test_launches_of_graphs_show_no_queue():
    """A call that launches 40 nodes is long, and has 40 operations before it when it returns."""
    calls, operations, at = [], [], 0
    for _ in range(60):
        for k in range(5):
            calls.append(call(at, at + (2_000 if k < 4 else 15_000)))
            nodes = range(1 if k < 4 else 40)
            operations += [operation(calls[-1]["end_ns"] + 500 + n * 900, calls[-1]["end_ns"] + 1_300 + n * 900,
                                     len(calls) - 1) for n in nodes]  # fmt: skip
            at += 4_000
        at += 60_000
    found = learnt(calls, operations)
    assert (found.queue_depth, found.queue_wait_ns) == (0, 0)
    assert found.own_ns.tolist() == [2_000, 2_000, 2_000, 2_000, 15_000] * 60


def test_a_part_of_a_recording_knows_the_queue_that_earlier_work_fills():
    calls, operations = queue(count=400, depth=150, short=8)
    whole = learnt(calls, operations)
    part = learnt(calls[200:], [{**one, "call": k, "place": k} for k, one in enumerate(operations[200:])])
    assert (part.queue_depth, part.queue_wait_ns) == (whole.queue_depth, whole.queue_wait_ns) == (150, 500)
    assert part.own_ns[33:].max() == 2_000  # of the first ones nothing says that a queue held them
    # what lies before the part ended just before its first operation
    assert part.latency_ns[0] == operations[200]["start_ns"] - calls[200]["end_ns"] > 1_000_000
    assert part.latency_ns[1:].max() < 10_000


def test_operations_of_another_stream_that_evidently_waited():
    calls = [call(0, 10), call(20, 30), call(40, 50)]
    waited = [operation(15, 100_000, 0), operation(100_400, 103_000, 1, stream=1)]
    found = learnt(calls, waited, streams=TWO_STREAMS)
    assert found.orders.tolist() == [[0, 1]] and found.order_ns == 400
    for start, is_evident in ((99_500, True), (99_499, False), (109_999, True), (110_000, False)):
        rows = [waited[0], operation(start, start + 2_000, 1, stream=1)]
        found = learnt(calls, rows, streams=TWO_STREAMS)
        assert found.orders.tolist() == ([[0, 1]] if is_evident else []), start
        assert found.order_ns == (start - 100_000 if is_evident and start >= 100_000 else 0)
    same_stream = [waited[0], operation(100_400, 103_000, 1)]
    assert not len(learnt(calls, same_stream).orders)
    # what was launched later cannot be the cause, and what has no launch is not known to have waited
    later = [operation(100_400, 103_000, 0, stream=1), operation(15, 100_000, 1)]
    assert not len(learnt(calls, later, streams=TWO_STREAMS).orders)
    lost = [waited[0], operation(100_400, 103_000, place=1, stream=1)]
    assert not len(learnt(calls, lost, streams=TWO_STREAMS).orders)
    # what began soon after it was launched waited for nothing
    prompt = [operation(15, 60, 0), operation(3_040, 3_090, 1, stream=1)]
    assert not len(learnt(calls, prompt, streams=TWO_STREAMS).orders)


def test_events_that_were_recorded_are_believed():
    rows = [operation(15, 60, 0), operation(90, 95, 1, stream=1), operation(97, 99, 2)]
    found = learnt([call(0, 10), call(20, 30), call(40, 50)], rows, streams=TWO_STREAMS, orders=[(0, 1), (1, 2)])
    assert found.orders.tolist() == [[0, 1], [1, 2]] and found.order_ns == 16  # the median of 30 and 2


def ranks(first, second, names=("ncclAllReduce", "ncclAllGather")):
    """Kernels of two processes; of each rank (start, end) of its collectives."""
    rows = [
        operation(start, end, place=0, process=rank, stream=rank, name=f"ncclDevKernel_{names[k % len(names)]}")
        for rank, of in enumerate((first, second)) for k, (start, end) in enumerate(of)
    ]  # fmt: skip
    rows.append(operation(0, 5, place=0, name="gemm"))
    return meetings_in(recording_of([], rows, streams=[(0, False, 7), (1, False, 7)])).tolist()


def test_the_collectives_of_ranks_meet_in_their_order():
    assert ranks([(0, 10), (20, 30)], [(5, 10), (22, 30)]) == [[0, 2], [1, 3]]
    assert ranks([(0, 10), (20, 30)], [(5, 10)]) == [[0, 2]]  # of the other name there are not equally many
    assert ranks([(0, 10), (20, 30)], [(5, 10)], ("ncclAllReduce",)) == []
    assert ranks([(0, 10), (20, 30)], [(10, 20), (30, 40)]) == []  # they are never inside together
    nine_of_ten = [(20 * k, 20 * k + 10) for k in range(10)]
    late = [*nine_of_ten[:9], (190, 195)]
    assert ranks(nine_of_ten, late) == []
    assert len(ranks([*nine_of_ten, (200, 210)], [*nine_of_ten[:10], (210, 215)])) == 11
    assert ranks([(0, 10)], []) == []
    other = [operation(0, 9, place=0, process=p, stream=p, name=n) for p, n in ((0, "ncclDevKernel_AllReduce"),
             (1, "ncclDevKernel_AllGather"))]  # fmt: skip
    assert not len(meetings_in(recording_of([], other, streams=[(0, False, 7), (1, False, 7)])))
    one_process = [operation(0, 9, place=0, name="ncclDevKernel_AllReduce", stream=s) for s in (0, 1)]
    assert not len(meetings_in(recording_of([], one_process, streams=TWO_STREAMS)))


@pytest.mark.parametrize("call_ns", [50_000, 500])
def test_nodes_of_a_graph_run_while_its_call_lasts(call_ns):
    """The first node begins 400 ns after the call, however long the call goes on: so do the others behind it."""
    calls = [call(MS * k, MS * k + call_ns) for k in range(1, 5)]
    ends = [[MS * k + 400 + 1_000 * n for n in range(4)] for k in range(1, 5)]
    operations = [operation(low, high, k) for k, times in enumerate(ends) for low, high in pairwise(times)]
    recording = recording_of(calls, operations)
    graph = make_graph(recording, learn(recording))
    replayed = replay(graph)
    at = replayed.start_ns + graph.begin_ns
    assert at[3:].tolist() == [row["start_ns"] for row in operations[3:]]  # before the first stands a usual gap


def test_nothing_is_learnt_of_nothing():
    found = learnt([], [])
    assert not len(found.latency_ns) and found.queue_depth == 0 and not len(found.orders)
    assert np.array_equal(learnt([call(0, 9, wait=DEVICE)], []).own_ns, [9])
