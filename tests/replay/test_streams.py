"""Several streams: what one waits for of another, found without event rows; and collectives between two ranks."""

from __future__ import annotations

import random

import pytest
from builders import ExportBuilder

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.replay.edges import EVENT_ORDER
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.limits import find_limit


def two_streams(path, first_ns: int, *, steps: int = 5) -> int:
    """Each step: a kernel on stream 7, one on stream 13 that waits for it (an event), one on 7 beside it. Launches are
    made far ahead; returns the length of a step."""
    export = ExportBuilder().process(100).thread(100)
    now, free = 1_000_000, 1_300_000
    for number in range(steps):
        begin = now
        for name, stream in (("first", 7), ("second", 13), ("beside", 7)):
            start = {"first": free + 1_000, "second": free + 1_000 + first_ns + 1_500,
                     "beside": free + 2_000 + first_ns}[name]  # fmt: skip
            length = {"first": first_ns, "second": 200_000, "beside": 30_000}[name]
            export.kernel(name, launch=(now, now + 4_000), run=(start, start + length), stream=stream)
            now += 5_000
        end = free + 2_500 + first_ns + 200_000
        export.api("cudaDeviceSynchronize_v3020", now, end + 6_000)
        now = end + 6_000
        export.range(f"step {number}", begin, now)
        free = now + 300_000
        now += 1_000
    export.write(path)
    return first_ns


def test_a_wait_between_streams_is_evident_and_moves_with_its_cause(tmp_path):
    two_streams(tmp_path / "one.sqlite", 400_000)
    results = analyze([tmp_path / "one.sqlite"], Options(model_range="^step"))
    orders = identity_of(results, 0).graph.learnt.orders
    names = identity_of(results, 0).graph.recording.operations.name
    assert {(str(names[a]), str(names[b])) for a, b in orders.tolist()} == {("first", "second")}
    assert len(orders) == 5


def ranks(path, slow_ns: int) -> None:
    """Two processes, one GPU each: compute, then an all-reduce that both leave together."""
    export = ExportBuilder()
    host, free = {100: 1_000_000, 200: 1_000_000}, {100: 0, 200: 0}
    for number in range(6):
        arrivals = {}
        begins = dict(host)
        for rank, compute_ns in ((100, 100_000), (200, slow_ns)):
            export.process(rank).thread(rank)
            done = host[rank] + 4_000
            start = max(free[rank] + 1_000, done + 2_000)
            export.kernel("gemm", launch=(host[rank], done), run=(start, start + compute_ns), device=rank // 100 - 1)
            arrivals[rank] = start + compute_ns + 1_000
            host[rank] = done
        end = max(arrivals.values()) + 50_000
        for rank in (100, 200):
            export.process(rank).thread(rank)
            done = host[rank] + 4_000
            export.kernel("ncclDevKernel_AllReduce_Sum", launch=(host[rank], done), run=(arrivals[rank], end),
                          device=rank // 100 - 1)  # fmt: skip
            free[rank] = end
            export.api("cudaStreamSynchronize_v3020", done, end + 6_000)
            host[rank] = end + 6_000
            export.range(f"step {number}", begins[rank], host[rank])
    export.write(path)


@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
def test_the_faster_rank_waits_for_the_slower(factor, tmp_path):
    ranks(tmp_path / "before.sqlite", 300_000)
    results = analyze([tmp_path / "before.sqlite"], Options(model_range="^step"))
    identity = identity_of(results, 0)
    assert identity.graph.learnt.meetings.shape == (6, 2)
    assert identity.error_ratio < 0.01
    ranks(tmp_path / "after.sqlite", round(300_000 * factor))
    after = identity_of(analyze([tmp_path / "after.sqlite"], Options(model_range="^step")), 0)
    prediction = what_if(results, [f"kernel:gemm={factor}x"])
    slowest = max(100_000, 300_000) * factor
    expected = 6_000 + slowest + 1_000 + 50_000 + 6_000
    assert prediction.latency.predicted_ns == pytest.approx(expected, rel=0.03)
    assert after.measured_ns > 0


def test_slower_transfers_keep_all_ranks_together(tmp_path):
    ranks(tmp_path / "one.sqlite", 300_000)
    results = analyze([tmp_path / "one.sqlite"], Options(model_range="^step"))
    prediction = what_if(results, ["comm=3x"])
    assert prediction.latency.predicted_ns - prediction.latency.measured_ns == pytest.approx(100_000, rel=0.05)


def test_recorded_events_order_streams_where_time_does_not_show_it(tmp_path):
    """The second kernel starts long after the first has ended: only the rows of the event say that it waited."""
    export = ExportBuilder().process(100).thread(100)
    export.kernel("first", launch=(1_000, 5_000), run=(10_000, 400_000), stream=7)
    first = export.last_correlation
    export.api("cudaEventRecord_v3020", 6_000, 7_000)
    export._put("CUPTI_ACTIVITY_KIND_CUDA_EVENT", correlationId=export.last_correlation, globalPid=export._pid,
                streamId=7, eventId=3, timestamp=400_000)  # fmt: skip
    export.sync("cudaStreamWaitEvent_v3020", 8_000, 9_000)
    export.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"][-1].update(streamId=13, eventId=3, syncType=2)
    export.kernel("second", launch=(600_000, 604_000), run=(607_000, 700_000), stream=13)
    second = export.last_correlation
    results = analyze([export.write(tmp_path / "one.sqlite")])
    edges = results.frame("dependencies")
    edges = edges[edges["kind"] == EVENT_ORDER]
    assert edges[["from_id", "to_id"]].to_numpy().tolist() == [[first, second]]
    slower = what_if(results, ["kernel:first=3x"])  # ends at 1,180 µs: the second waits for it now
    assert slower.latency.predicted_ns - slower.latency.measured_ns == pytest.approx(571_000 + 1_000, abs=9_000)


@pytest.mark.parametrize("seed", range(3))
def test_waits_without_rows_of_events_are_for_work_that_had_ended(seed, tmp_path):
    """Of the six latest records before a wait one of another stream whose work ended just before, else that had ended
    by then; no order where there is none."""
    rng, export = random.Random(seed), ExportBuilder()
    launched, records, waits, ends = [], [], [], {}
    for at in range(0, 3_000_000, 10_000):
        process, thread, stream = rng.choice((100, 200)), rng.randrange(2), rng.choice((7, 13, 21))
        export.process(process).thread(process + thread)
        if (what := rng.randrange(4)) < 2:
            [records, waits][what].append((process, thread, at))
            export.api(("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020")[what], at, at + 1_000)
            continue
        near = rng.choice(list(ends.values()) or [0]) + rng.choice((-501, -500, 0, 5_999, 6_000))
        begin = max(at + 4_000, ends.get((process, stream), 0), near if rng.random() < 0.8 else 0)
        ends[process, stream] = end = begin + rng.choice((1_000, 20_000, 50_000))
        export.kernel("work", launch=(at, at + 1_000), run=(begin, end), stream=stream)
        launched.append((process, thread, at, stream, begin, end, export.last_correlation))
    wanted = []
    for process, thread, at in waits:
        after = next((one for one in launched if one[:2] == (process, thread) and one[2] > at), None)
        known = [next((one for one in reversed(launched) if one[:2] == (process, of) and one[2] < moment), None)
                 for of_process, of, moment in reversed(records) if of_process == process and moment < at]  # fmt: skip
        latest = [one for one in known if one][:6] if after else []
        fits = [one for one in latest if one[3] != after[3] and after[4] - one[5] >= -500]
        if fits:
            cause = next((one for one in fits if after[4] - one[5] < 6_000), fits[0])
            wanted.append((process, at, cause[-1], after[-1]))
    edges = analyze([export.write(tmp_path / "one.sqlite")]).frame("dependencies")
    edges = edges[edges["kind"] == EVENT_ORDER]
    assert len(wanted) < len(waits) and edges["stream_id"].notna().all()
    found = edges[["process_id", "start_ns", "from_id", "to_id"]].to_numpy().tolist()
    assert sorted(map(tuple, found)) == sorted(wanted)


def test_a_kernel_that_waits_for_a_copy_ends_with_it(tmp_path):
    """A spinning kernel is no work: half of the copy is half of its time, too."""
    export, now = ExportBuilder().process(100).thread(100), 1_000_000
    for number in range(8):
        begin = now
        export.memcpy(4_000_000, launch=(now, now + 5_000), run=(now + 8_000, now + 408_000), stream=15)
        export.kernel("spin_wait_kernel", launch=(now + 6_000, now + 10_000), run=(now + 13_000, now + 410_000))
        export.kernel("gemm", launch=(now + 11_000, now + 15_000), run=(now + 411_000, now + 451_000))
        export.api("cudaDeviceSynchronize", now + 16_000, now + 455_000)
        now += 460_000
        export.range(f"step {number}", begin, now - 2_000)
    results = analyze([export.write(tmp_path / "report.sqlite")], Options(model_range="^step"))
    said = what_if(results, ["copy=0.5x"])
    assert said.error_ratio < 0.01 and said.latency.predicted_ns == pytest.approx(458_000 - 200_000, rel=0.02)
    assert find_limit(results).limits == ("copies",)
