"""The replay's program against a loop over calls and operations, in the order in which they were recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recordings import call, learnt_of, operation, recording_of

from xsp_post.replay.edges import DEVICE_WAIT, EVENT_WAIT, STREAM_WAIT, WAITS
from xsp_post.replay.graph import make_graph, replay

DEVICE, STREAM, EVENT = (WAITS.index(one) for one in (DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT))


def loop(graph) -> tuple[list[int], list[int], list[int], list[int]]:
    """Starts and ends of calls and operations. Bounds of a full queue and of meetings are taken from the round before,
    until nothing changes."""
    recording, amounts, learnt = graph.recording, graph.amounts, graph.learnt
    calls, operations = recording.calls, recording.operations
    starts = [-(10**15)] * len(operations)
    for _ in range(200):
        result = one_round(graph, recording, amounts, learnt, calls, operations, starts)
        if result[2] == starts:
            return result
        starts = result[2]
    raise AssertionError("does not settle")


def one_round(graph, recording, amounts, learnt, calls, operations, before):
    clock, free = {}, {}
    call_start, call_end = [0] * len(calls), [0] * len(calls)
    start, end = [0] * len(operations), [0] * len(operations)
    streams = [int(one) for one in amounts.stream]

    def run(i):
        at = free.get(streams[i], 0)
        for first, second in amounts.orders.tolist():
            if second == i:
                at = max(at, end[first] + learnt.order_ns - int(amounts.gap_ns[i]))
        for meeting in amounts.meetings.tolist():
            if i in meeting:
                at = max(at, max(before[one] for one in meeting) - int(amounts.gap_ns[i]))
        done = at + int(amounts.gap_ns[i] + amounts.duration_ns[i])
        if operations.call[i] >= 0:
            done = max(done, clock[thread[operations.call[i]]] + int(amounts.latency_ns[i] + amounts.duration_ns[i]))
        free[streams[i]] = end[i] = done
        start[i] = done - int(amounts.duration_ns[i])

    thread = calls.thread.tolist()
    for c in range(len(calls) + 1):
        for i in range(len(operations)):
            if operations.place[i] == c and operations.call[i] < 0:
                run(i)
        if c == len(calls):
            break
        source = int(graph.source_call[c])
        began = clock[thread[source]] if source >= 0 else 0
        done = began + int(amounts.before_ns[c] + amounts.own_ns[c])
        call_start[c], clock[thread[c]] = done - int(amounts.own_ns[c]), done
        mine = [i for i in range(len(operations)) if operations.call[i] == c]
        for i in mine:
            queued = [
                j
                for j in range(i)
                if streams[j] == streams[i] and operations.call[j] >= 0 and not amounts.is_blocking[j]
            ]
            if amounts.queue_depth and not amounts.is_blocking[i] and len(queued) >= amounts.queue_depth:
                older = before[queued[-amounts.queue_depth]]
                clock[thread[c]] = max(clock[thread[c]], older + learnt.queue_wait_ns)
        for i in mine:
            run(i)
        waits_for = [streams[i] for i in mine if amounts.is_blocking[i]]
        if amounts.waits[c] and calls.wait[c] == DEVICE:
            waits_for += [s for s, of in enumerate(recording.stream_process.tolist()) if of == calls.process[c]]
        elif amounts.waits[c]:
            waits_for.append(streams[int(learnt.waited[c])])
        for stream in waits_for:
            clock[thread[c]] = max(clock[thread[c]], free.get(stream, 0) + int(amounts.after_ns[c]))
        call_end[c] = clock[thread[c]]
    return call_start, call_end, start, end


def agree(graph):
    found = replay(graph)
    expected = loop(graph)
    got = (found.call_start_ns, found.call_end_ns, found.start_ns, found.end_ns)
    assert found.is_settled
    for name, mine, theirs in zip(("call starts", "call ends", "starts", "ends"), got, expected):
        assert mine.tolist() == theirs, name


TIMES = st.integers(0, 9)


@st.composite
def programs(draw):
    """Up to nine calls of two threads, each launching up to two operations on three streams or waiting."""
    calls, operations, at = [], [], 0
    for number in range(draw(st.integers(1, 9))):
        at += draw(TIMES)
        wait = draw(st.sampled_from([-1, -1, -1, DEVICE, STREAM, EVENT]))
        calls.append(call(at, at + draw(TIMES), thread=draw(st.integers(0, 1)), wait=wait))
        at += draw(st.integers(0, 4))
        for kind in draw(st.lists(st.sampled_from(["launched", "lost"]), max_size=2)):
            stream, begin = draw(st.integers(0, 2)), at + draw(TIMES)
            own = number if kind == "launched" and wait < 0 else -1
            operations.append(operation(begin, begin + draw(TIMES), own, place=number, stream=stream))
    operations.sort(key=lambda one: (one["place"], one["call"] >= 0, one["start_ns"]))
    count, streams = len(operations), [(0, False, 7), (0, False, 8), (0, False, 9)]
    given_names = {name: draw(st.lists(TIMES, min_size=count, max_size=count)) for name in ("latency_ns", "gap_ns")}
    blocking = [one["call"] >= 0 and draw(st.integers(0, 3)) == 0 for one in operations]
    orders = [
        (i, j) for i in range(count) for j in range(i + 1, count)
        if operations[i]["place"] < operations[j]["place"] and draw(st.integers(0, 5)) == 0
    ]  # fmt: skip
    recording = recording_of(calls, operations, streams=streams, orders=orders)
    learnt = learnt_of(
        recording, **given_names, is_blocking=blocking, order_ns=draw(TIMES), queue_wait_ns=draw(TIMES),
        queue_depth=draw(st.integers(0, 3)), after_ns=draw(st.lists(TIMES, min_size=len(calls), max_size=len(calls))),
        waited=[draw(st.integers(0, count - 1)) if count and draw(st.booleans()) else -1 for _ in calls],
    )  # fmt: skip
    return recording, learnt


@examples(150)
@given(programs())
def test_a_replay_is_what_a_loop_over_the_calls_gives(made):
    agree(make_graph(*made))


def test_calls_follow_the_one_before_on_their_thread_or_take_turns():
    """Two threads in turns: backward begins when forward ends. Where they overlap each follows its own."""
    turns = [call(0, 10), call(20, 30, thread=1), call(40, 50, thread=1), call(60, 70)]
    graph = make_graph(recording_of(turns, []), learnt_of(recording_of(turns, [])))
    assert graph.source_call.tolist() == [-1, 0, 1, 2]
    assert graph.amounts.before_ns.tolist() == [0, 10, 10, 10]
    beside = [call(0, 10), call(9, 30, thread=1), call(40, 50), call(40, 41, thread=2, process=1),
              call(60, 70, thread=2, process=1)]  # fmt: skip
    graph = make_graph(recording_of(beside, []), learnt_of(recording_of(beside, [])))
    assert graph.source_call.tolist() == [-1, -1, 1, -1, 3]
    assert graph.amounts.before_ns.tolist() == [0, 9, 10, 40, 19]
    many = [call(10 * k, 10 * k + 5, thread=k % 2) for k in range(40)]  # in turns all the time: side by side
    graph = make_graph(recording_of(many, []), learnt_of(recording_of(many, [])))
    assert graph.source_call.tolist() == [-1, -1, *range(38)]


@pytest.mark.parametrize(("switches", "takes_turns"), [(10, True), (13, False)])
def test_a_fifth_of_the_calls_and_four_may_switch_threads(switches, takes_turns):
    """The bar is 0.2 × 40 + 4 = 12 switches."""
    thread = [0] * (40 - switches) + [(k + 1) % 2 for k in range(switches)]
    calls = [call(10 * k, 10 * k + 5, thread=one) for k, one in enumerate(thread)]
    graph = make_graph(recording_of(calls, []), learnt_of(recording_of(calls, [])))
    assert (graph.source_call.tolist() == list(range(-1, 39))) == takes_turns


def test_what_has_no_launch_keeps_its_distance_on_its_stream():
    calls = [call(100, 110)]
    operations = [operation(130, 150, place=0), operation(115, 120, 0), operation(170, 175, place=1),
                  operation(104, 200, place=1, stream=1)]  # fmt: skip
    recording = recording_of(calls, operations, streams=[(0, False, 7), (0, False, 8)])
    graph = make_graph(recording, learnt_of(recording, gap_ns=[1, 2, 3, 4]))
    assert graph.amounts.gap_ns.tolist() == [30, 2, 20, 4]  # from the recording's begin; after 150; the default
    assert graph.begin_ns == 100


def test_no_rank_transfers_before_the_last_one_is_there():
    """Two processes: the second launches its all-reduce 50 later. The shorter time is the transfer."""
    calls = [call(0, 10), call(20, 30), call(0, 10, process=1, thread=1), call(70, 80, process=1, thread=1)]
    operations = [operation(12, 20, 0), operation(32, 95, 1), operation(12, 20, 2, process=1, stream=1),
                  operation(82, 95, 3, process=1, stream=1)]  # fmt: skip
    recording = recording_of(calls, operations, streams=[(0, False, 7), (1, False, 7)])
    graph = make_graph(recording, learnt_of(recording, latency_ns=[2] * 4, meetings=[[1, 3]]))
    assert graph.amounts.duration_ns.tolist() == [8, 13, 8, 13]
    agree(graph)
    found = replay(graph)
    assert found.start_ns.tolist() == [12, 82, 12, 82] and found.end_ns.tolist() == [20, 95, 20, 95]
    graph.amounts.before_ns[3] -= 45
    assert replay(graph).start_ns.tolist() == [12, 37, 12, 37]
    graph.amounts.gap_ns[:] = 5
    agree(graph)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_full_queue_holds_the_launch_until_an_older_one_starts(depth):
    calls = [call(10 * k, 10 * k + 4) for k in range(8)]
    operations = [operation(0, 100, k) for k in range(8)]
    recording = recording_of(calls, operations)
    graph = make_graph(recording, learnt_of(recording, latency_ns=[1] * 8, queue_depth=depth, queue_wait_ns=3))
    agree(graph)
    found = replay(graph)
    assert found.start_ns.tolist() == [5 + 100 * k for k in range(8)]
    assert found.call_end_ns[depth:].tolist() == [max(10 * k + 4, 5 + 100 * (k - depth) + 3) if k == depth else
                                                  5 + 100 * (k - depth) + 3 for k in range(depth, 8)]  # fmt: skip
    graph.amounts.is_blocking[:] = True  # such copies leave nothing in the queue
    agree(graph)


def test_more_pending_events_than_registers_are_taken_in_order():
    """Each operation of the second stream waits for the one launched twenty before it on the first."""
    count = 60
    calls = [call(10 * k, 10 * k + 2) for k in range(count)]
    operations = [operation(0, 7 + k % 5, k, stream=k % 2) for k in range(count)]
    orders = [(k, k + 21) for k in range(0, count - 21, 2)]
    recording = recording_of(calls, operations, streams=[(0, False, 7), (0, False, 8)], orders=orders)
    agree(make_graph(recording, learnt_of(recording, latency_ns=[1] * count, order_ns=4)))
