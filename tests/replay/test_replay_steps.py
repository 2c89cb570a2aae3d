"""The replay's program against a loop over calls and operations, in the order in which they were recorded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recordings import COPY, call, learnt_of, operation, recording_of

from xsp_post.replay.critical_path import critical_path
from xsp_post.replay.edges import DEVICE_WAIT, EVENT_WAIT, STREAM_WAIT, WAITS
from xsp_post.replay.executions import simulated_clock
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
        began = call_end[source] if source >= 0 else 0
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
        elif amounts.waits[c] and calls.wait[c] == EVENT:  # for one operation, and not for younger ones of its stream
            clock[thread[c]] = max(clock[thread[c]], end[int(learnt.waited[c])] + int(amounts.after_ns[c]))
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


@st.composite
def programs(draw, kinds=("launched", "lost"), least=0):
    """Up to nine calls of two threads, each launching up to two operations on three streams or waiting. ``least``: of
    each time."""
    times = st.integers(least, 9)
    calls, operations, at, free = [], [], 0, [0, 0]
    for number in range(draw(st.integers(1, 9))):
        thread, at = draw(st.integers(0, 1)), at + draw(times)
        wait = draw(st.sampled_from([-1, -1, -1, DEVICE, STREAM, EVENT]))
        at = max(at, free[thread])  # a thread makes one call at a time
        free[thread] = at + draw(times)
        calls.append(call(at, free[thread], thread=thread, wait=wait))
        at += draw(st.integers(0, 4))
        for kind in draw(st.lists(st.sampled_from(kinds), max_size=2)):
            stream, begin = draw(st.integers(0, 2)), at + draw(times)
            if wait >= 0:  # what has no launch stands before a call that launches
                continue
            own = number if kind == "launched" else -1
            operations.append(operation(begin, begin + draw(times), own, place=number, stream=stream))
    operations.sort(key=lambda one: (one["place"], one["call"] >= 0, one["start_ns"]))
    count, streams = len(operations), [(0, False, 7), (0, False, 8), (0, False, 9)]
    given_names = {name: draw(st.lists(times, min_size=count, max_size=count)) for name in ("latency_ns", "gap_ns")}
    blocking = [one["call"] >= 0 and draw(st.integers(0, 3)) == 0 for one in operations]
    orders = [
        (i, j) for i in range(count) for j in range(i + 1, count)
        if operations[i]["place"] < operations[j]["place"] and operations[i]["stream"] != operations[j]["stream"]
        and not least and draw(st.integers(0, 5)) == 0
    ]  # fmt: skip
    waited = []  # of each call one that was enqueued before it, if any
    for number in range(len(calls)):
        before = [i for i, one in enumerate(operations) if one["place"] < number]
        waited.append(draw(st.sampled_from([-1, *before])))
    recording = recording_of(calls, operations, streams=streams, orders=orders)
    learnt = learnt_of(
        recording, **given_names, is_blocking=blocking, order_ns=draw(times), queue_wait_ns=draw(times),
        queue_depth=0 if least else draw(st.sampled_from([0, 2, 3])),  # a call launches two operations at most
        after_ns=draw(st.lists(times, min_size=len(calls), max_size=len(calls))),
        waited=waited,
    )  # fmt: skip
    return recording, learnt


@examples(150)
@given(programs())
def test_a_replay_is_what_a_loop_over_the_calls_gives(made):
    agree(make_graph(*made))


@examples(150)
@given(programs(), st.data())
def test_a_change_gives_the_same_after_a_replay_and_alone(made, data):
    """A graph keeps the order of its first program; another change finds that order, or one of its own."""
    used, fresh = make_graph(*made), make_graph(*made)
    replay(used)
    changed = used.amounts.copy()
    for name in data.draw(st.lists(st.sampled_from(["own_ns", "latency_ns", "gap_ns", "duration_ns"]), unique=True)):
        vars(changed)[name] *= 2
    for name in data.draw(st.lists(st.sampled_from(["waits", "is_blocking"]), unique=True)):
        vars(changed)[name][:] = False
    if data.draw(st.booleans()):
        changed.stream[:] = 0
    if data.draw(st.booleans()):
        changed.orders, changed.queue_depth = changed.orders[:0], 2
    one, other = replay(used, changed), replay(fresh, changed)
    for name in ("call_start_ns", "call_end_ns", "start_ns", "end_ns", "is_settled"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


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
    many = [call(10 * k, 10 * k + 12, thread=k % 2) for k in range(40)]  # one begins inside the other: side by side
    graph = make_graph(recording_of(many, []), learnt_of(recording_of(many, [])))
    assert graph.source_call.tolist() == [-1, -1, *range(38)]


def test_a_call_goes_on_where_another_thread_was_one_call_before():
    """Forward has begun its next call when backward begins: backward follows the call that had ended by then."""
    calls = [call(0, 10), call(12, 40), call(15, 20, thread=1), call(50, 60), call(61, 65, thread=1)]
    recording = recording_of(calls, [])
    graph = make_graph(recording, learnt_of(recording))
    assert graph.source_call.tolist() == [-1, 0, 0, 1, 3]
    assert replay(graph).call_start_ns.tolist() == [one["start_ns"] for one in calls]
    agree(graph)


@pytest.mark.parametrize(("inside", "takes_turns"), [(5, True), (6, False)])
def test_a_tenth_of_the_turns_and_two_may_begin_inside_a_call(inside, takes_turns):
    """The bar is 0.1 × 39 + 2 = 5 switches."""
    calls = [call(10 * k, 10 * k + (11 if k < inside else 5), thread=k % 2) for k in range(40)]
    graph = make_graph(recording_of(calls, []), learnt_of(recording_of(calls, [])))
    assert (graph.source_call.tolist()[10:] == list(range(9, 39))) == takes_turns


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


@examples(40)
@given(programs(kinds=("launched",), least=1))
def test_the_critical_path_decides_when_the_last_operation_ends(made):
    """Its intervals follow one another. What lies on it delays the end when it grows, what does not hastens nothing.
    Without events between streams: the path takes such a one for what decided, whenever there is one."""
    graph = make_graph(*made)
    found = replay(graph)
    if not len(found.end_ns):
        return
    last = int(found.end_ns.argmax())
    end = int(found.end_ns[last])
    path = critical_path(graph, simulated_clock(found), 0, end, last, found.steps)
    edges = [0, *path["end_ns"].tolist()]
    assert path["start_ns"].tolist() == edges[:-1] and edges[-1] == end
    on_path = {*path["operation_index"].tolist()}
    for one in on_path - {-1}:
        mine = path[path["operation_index"] == one]
        assert (int(mine["start_ns"].min()), int(mine["end_ns"].max())) == (found.start_ns[one], found.end_ns[one])
    for one in range(len(found.end_ns)):
        amounts = graph.amounts.copy()
        if one in on_path:
            amounts.duration_ns[one] += 5
            assert replay(graph, amounts).end_ns[last] == end + 5
        else:
            amounts.duration_ns[one] = 0
            assert replay(graph, amounts).end_ns[last] == end


def test_the_kinds_of_time_on_a_path():
    """A launch, its latency, a kernel, a gap, a copy that a call waits for, its return, host code, a launch again."""
    calls = [call(10, 14), call(16, 19), call(120, 125, wait=DEVICE), call(140, 144)]
    work = [operation(17, 60, 0, layer=3), operation(64, 110, 1, name="HtoD", kind=COPY), operation(150, 155, 3)]
    recording = recording_of(calls, work)
    graph = make_graph(recording, learnt_of(
        recording, latency_ns=[3, 3, 6], gap_ns=[4, 4, 4], waited=[-1, -1, 1, -1], after_ns=[0, 0, 15, 0],
        own_ns=[4, 3, 0, 4],
    ))  # fmt: skip
    found = replay(graph)
    assert found.end_ns.tolist() == [50, 100, 145] and found.call_end_ns.tolist() == [4, 9, 115, 134]
    path = critical_path(graph, simulated_clock(found), 0, 145, 2, found.steps)
    said = list(
        path[["kind", "start_ns", "end_ns", "layer_index", "operation_index"]].itertuples(index=False, name=None)
    )
    assert said == [
        ("launch call", 0, 4, 3, -1), ("launch latency", 4, 7, 3, -1), ("kernel", 7, 50, 3, 0),
        ("gap between operations", 50, 54, -1, -1), ("memcpy", 54, 100, -1, 1), ("synchronisation", 100, 115, -1, -1),
        ("host", 115, 130, -1, -1), ("launch call", 130, 134, -1, -1), ("launch latency", 134, 140, -1, -1),
        ("kernel", 140, 145, -1, 2),
    ]  # fmt: skip
    by_host = critical_path(graph, simulated_clock(found), 0, 139, -1, found.steps)
    assert by_host["kind"].tolist()[-2:] == ["launch call", "host"] and by_host["end_ns"].iloc[-1] == 139
    later = critical_path(graph, simulated_clock(found), 60, 145, 2, found.steps)
    assert later["start_ns"].tolist()[0] == 60 and later["kind"].tolist() == [kind for kind, *_ in said[4:]]
    nothing = critical_path(graph, simulated_clock(found), 0, 0, -1, found.steps)
    assert not nothing["start_ns"].ne(0).any()
