"""What limits, at the edges, on windows, causes and gains written by hand."""

from __future__ import annotations

from random import Random

import pandas as pd
import pytest
from generators.machine import Machine, Program, write

from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze
from xsp_post.replay.experiment import Gain, limits_of
from xsp_post.replay.resources import HOST, KERNELS, LAUNCHES, SYNCHRONISATION
from xsp_post.tables.analyses.limits import (
    FIRST_LAUNCH,
    GROUP_OF_CAUSE,
    LEAST_ROOF_RATIO,
    answers,
    find_limit,
    largest_causes,
    lead_in,
    lead_out,
)

AMOUNTS = ("kernel_busy_ns", "graph_busy_ns", "communication_ns", "copy_busy_ns", "busy_ns", "idle_ns", "window_ns",
           "kernel_ns", "matrix_ns", "matrix_count", "other_kernel_ns", "top_kernel_ns", "kernel_count")  # fmt: skip


def window(scope="execution", *, capture=0, device=0, gpu="A100", top="gemm", **amounts) -> dict:
    amounts.setdefault("busy_ns", sum(amounts.get(name, 0) for name in AMOUNTS[:4]))
    return {"capture_id": capture, "device_id": device, "scope": scope, "gpu_name": gpu, "top_kernel": top,
            **dict.fromkeys(AMOUNTS, 0), **amounts}  # fmt: skip


def cause(name, time, *, scope="execution", capture=0, detail="", owner="step", layer="", pieces=1, longest=None):
    return {"capture_id": capture, "device_id": 0, "scope": scope, "cause": name, "call_name": "", "detail": detail,
            "owner": owner, "layer_path": layer, "idle_ns": time, "piece_count": pieces,
            "longest_ns": time if longest is None else longest}  # fmt: skip


def results(windows, causes=(), **frames) -> Analysis:
    columns = [*cause("", 0)]
    return Analysis(
        {"device_windows": pd.DataFrame(windows), "idle_causes": pd.DataFrame([*causes], columns=columns), **frames}, []
    )


def experiment(capture=0, *, elapsed=1000, margin=0.02, together=0.5, balanced=(), question="device", **gains):
    """The rows of one capture: what each resource saves at half its time."""
    values = {**dict.fromkeys(("kernels", "copies", "launches", "host", "synchronisation"), 0.0), **gains}
    names = sorted(values, key=lambda name: -values[name])
    rows = [(number, name, values[name]) for number, name in enumerate(names, 1)] + [(-1, "together", together)]
    return [
        {"capture_id": capture, "question": question, "resource": name, "part": "", "rank": rank, "gain_ratio": gain,
         "low_gain_ratio": gain - margin, "high_gain_ratio": gain + margin, "is_limit": name in balanced,
         "is_balanced": bool(balanced), "is_part": False, "elapsed_ns": elapsed, "coverage_ratio": 1.0,
         "execution": "forward", "execution_count": 3}
        for rank, name, gain in rows
    ]  # fmt: skip


def limit_of(rows, windows=None, causes=(), **frames):
    """What the replays say of a window of 1,000 ns."""
    windows = windows or [window(window_ns=1000, kernel_busy_ns=900)]
    return find_limit(results(windows, causes, experiment=pd.DataFrame(rows), **frames))


@pytest.mark.parametrize(
    ("gains", "kind", "named"),
    [
        ({"host": 0.4, "copies": 0.1}, "host", ("host",)),
        ({"host": 0.4, "copies": 0.36}, "mixed", ("host", "copies")),  # the intervals meet
        ({"host": 0.4, "copies": 0.359}, "host", ("host",)),
        ({"copies": 0.3}, "copy", ("copies",)),
        ({"launches": 0.3}, "launch", ("launches",)),
        ({"synchronisation": 0.3}, "synchronization", ("synchronisation",)),
        ({"kernels": 0.45}, "kernel", ("kernels",)),
        ({"host": 0.25, "loading": 0.05}, "host", ("host",)),
        ({"loading": 0.3}, "host", ("loading",)),
    ],
)
def test_the_limit_is_what_saves_most_at_half_its_time(gains, kind, named):
    found = limit_of(experiment(**gains))
    assert (found.kind, found.limits, found.reason) == (kind, named, "")
    assert found.gain(named[0]) == gains[named[0]] and found.gain("nothing") == 0


def test_what_saves_less_than_its_error_is_never_named():
    found = limit_of(experiment(host=0.02, together=0.03))
    assert (found.kind, found.limits, found.reason) == ("unknown", (), "nothing-shown")
    assert limit_of(experiment(host=0.021, together=0.03)).limits == ("host",)
    assert limit_of(experiment(host=0.03, copies=0.02, together=0.05)).limits == ("host",)


def test_two_that_save_little_alone_and_much_together_are_balanced():
    found = limit_of(experiment(kernels=0.05, host=0.04, balanced=("kernels", "host")))
    assert (found.kind, set(found.limits)) == ("balanced", {"kernels", "host"})
    gains = [Gain((name,), gain, 0.02) for name, gain in ((KERNELS, 0.2), (HOST, 0.1), (LAUNCHES, 0.0))]
    everything = Gain((SYNCHRONISATION,), 0.5, 0.02)
    assert limits_of(gains, everything) == ((KERNELS,), False)  # as much alone as is hidden
    assert limits_of([one._replace(gain_ratio=one.gain_ratio * 0.99) for one in gains], everything) == (
        (KERNELS,),
        True,
    )
    gains = [Gain((name,), gain, 0.02) for name, gain in ((LAUNCHES, 0.15), (HOST, 0.08), (KERNELS, 0.03))]
    assert limits_of(gains, everything)[1]  # more is hidden than the first saves, though half is saved alone


def test_gains_of_several_captures_count_by_their_time():
    windows = [window(window_ns=100, copy_busy_ns=90), window(window_ns=100, kernel_busy_ns=90, capture=1)]
    rows = experiment(0, elapsed=100, host=0.4) + experiment(1, elapsed=300, copies=0.4)
    found = limit_of(rows, windows)
    assert found.limits == ("copies",)
    assert (found.gain("copies"), found.gain("host")) == (pytest.approx(0.3), pytest.approx(0.1))
    assert found.gains[0].margin_ratio == pytest.approx(0.02) and found.together.gain_ratio == pytest.approx(0.5)


def test_the_latency_is_another_question():
    rows = experiment(kernels=0.4) + experiment(host=0.4, question="latency", elapsed=2000)
    frames = results([window(window_ns=1000, kernel_busy_ns=900)], experiment=pd.DataFrame(rows))
    limit = find_limit(frames)
    assert limit.limits == ("kernels",)
    assert answers(frames, limit, "latency")["elapsed_ns"].unique().tolist() == [2000]


def test_nothing_is_said_where_half_is_not_known_or_nothing_was_replayed():
    windows = [window(window_ns=1000, kernel_busy_ns=300)]
    rows = experiment(host=0.4)
    assert limit_of(rows, windows, [cause("host_code", 200), cause("unknown", 500)]).kind == "host"
    lost = limit_of(rows, windows, [cause("host_code", 199), cause("unknown", 501)])
    assert (lost.kind, lost.reason, lost.unknown_ns, lost.known_ns) == ("unknown", "time-unknown", 501, 499)
    assert limit_of(rows, windows, [cause("profiler_overhead", 501)]).reason == "profiler"
    assert limit_of(rows, windows, [cause("profiler_overhead", 500)]).kind == "host"
    replays = pd.DataFrame([{"capture_id": 0, "refusal": "no launches"}])
    refused = find_limit(results(windows, replays=replays))
    assert (refused.reason, refused.facts) == ("refused", {"refusal": "no launches"})
    assert find_limit(results(windows)).reason == "refused"


def work(bound, *, source="roofline", roof=1.0, coverage=1.0):
    """A15 with what was counted of the kernels."""
    row = {"case_index": 0, "kernel_count": 3, "kernel_latency_ns": 5.0, "bound": bound, "bound_source": source,
           "roof_ratio": roof, "counter_coverage_ratio": coverage}  # fmt: skip
    return {"a15": pd.DataFrame([row]), "cases": pd.DataFrame([{"case_index": 0, "kernel_capture_id": 0}]),
            "kernel_metrics": pd.DataFrame([{"kernel_id": 0}])}  # fmt: skip


@pytest.mark.parametrize(
    ("amounts", "frames", "kind"),
    [
        ({"matrix_ns": 1000, "matrix_count": 5}, {}, "kernel"),  # names say nothing
        ({}, work("memory", roof=LEAST_ROOF_RATIO), "memory"),
        ({}, work("memory", roof=0.49), "kernel"),  # far from the roof
        ({}, work("compute", coverage=0.5), "compute"),
        ({}, work("compute", coverage=0.49), "kernel"),
        ({}, work("latency", roof=0.05), "latency"),
        ({}, work("unknown"), "kernel"),
        ({"small_launch_ns": 500}, {}, "shape"),
        ({"small_launch_ns": 499}, {}, "kernel"),
        ({"small_launch_ns": 500}, work("memory"), "shape"),
        ({"small_launch_ns": 500}, work("memory", source="speed of light"), "memory"),  # Nsight Compute knows best
        ({"graph_busy_ns": 1001}, work("memory", source="speed of light"), "kernel"),  # of less than half of it
        ({"graph_busy_ns": 1000}, work("memory", source="speed of light"), "memory"),
        ({"graph_busy_ns": 1, "small_launch_ns": 500}, {}, "kernel"),
    ],
)
def test_what_limits_the_kernels_is_measured_or_counted(amounts, frames, kind):
    windows = [window(window_ns=1000, kernel_busy_ns=900, **{"kernel_ns": 1000, **amounts})]
    assert limit_of(experiment(kernels=0.4), windows, **frames).kind == kind


def test_measured_executions_are_believed_before_the_warm_up_and_the_rest():
    windows = [window("outside", window_ns=500, copy_busy_ns=500), window("warm-up", window_ns=400, copy_busy_ns=300),
               window("execution", window_ns=100, copy_busy_ns=60, gpu="B"),
               window("execution", window_ns=100, copy_busy_ns=90, device=1, top="best", top_kernel_ns=5)]  # fmt: skip
    found = find_limit(results(windows, [cause("host_code", 50), cause("host_code", 900, scope="outside")]))
    assert (found.scope, found.window_ns, found.busy_ns, found.device_count) == ("execution", 200, 150, 2)
    assert found.groups[:2] == (("copy", 150), ("host", 50))
    assert found.gpu_name == "B + A100" and found.window["top_kernel"] == "best" and found.captures == (0,)
    assert find_limit(results(windows[:2])).scope == "warm-up"
    assert find_limit(results(windows[:1])).scope == "outside"
    idle = window("execution", window_ns=100)
    assert find_limit(results([idle, windows[1]])).scope == "warm-up"  # what did nothing decides nothing
    assert find_limit(results([idle])).reason == "no-work"


def test_a_limit_of_some_captures_knows_no_others():
    windows = [window(window_ns=100, copy_busy_ns=90), window(window_ns=100, kernel_busy_ns=90, capture=1)]
    rows = pd.DataFrame(experiment(0, copies=0.4) + experiment(1, kernels=0.4))
    found = results(windows, [cause("host_code", 10, capture=1)], experiment=rows)
    assert (find_limit(found, [0]).kind, find_limit(found, [1]).kind) == ("copy", "kernel")
    assert find_limit(found, [1]).ratio("host") == 0.1 and find_limit(found, [0]).captures == (0,)
    assert find_limit(found).captures == (0, 1) and find_limit(found).device_count == 2


def test_nothing_limits_where_many_kernels_are_missing():
    windows = [window(window_ns=100, copy_busy_ns=90, kernel_count=70)]
    findings = pd.DataFrame([{"capture_id": 0, "code": "kernels-missing", "count": 30}])
    found = limit_of(experiment(copies=0.4), windows, findings=findings)
    assert (found.kind, found.reason, found.limits) == ("unknown", "rows-missing", ())


def test_more_launches_recorded_into_a_graph_than_kernels_that_ran():
    windows = [window(window_ns=100, copy_busy_ns=90, kernel_count=7)]
    for count, is_said in ((7, False), (8, True)):
        rows = [{"capture_id": 0, "code": "graph-recorded", "count": count}, {"capture_id": 0, "code": "x", "count": 9},
                {"capture_id": 1, "code": "graph-recorded", "count": 9}]  # fmt: skip
        found = limit_of(experiment(copies=0.4), windows, findings=pd.DataFrame(rows))
        assert (found.reason == "graph-recorded", found.kind) == ((True, "unknown") if is_said else (False, "copy"))
        assert found.facts == ({"count": 8} if is_said else {})


@pytest.mark.parametrize(
    ("name", "detail", "group"),
    [
        ("launch_call", "", "launch"), (FIRST_LAUNCH, "", "host"), ("launch_latency", "", "launch"),
        ("queued", "gemm", "synchronization"), ("not_recorded", "", "unknown"), ("copy_call", "", "copy"),
        ("synchronization", "gemm", "synchronization"), ("allocation", "", "host"), ("module_load", "", "host"),
        ("os_call", "", "host"), ("descheduled", "", "host"), ("host_code", "", "host"), ("unknown", "", "unknown"),
        ("communication", "", "communication"), ("profiler_overhead", "", "profiler"),
    ],
)  # fmt: skip
def test_every_cause_is_of_one_group(name, detail, group):
    found = results([window(window_ns=1000, copy_busy_ns=1, communication_ns=0)], [cause(name, 390, detail=detail)])
    limit = find_limit(found)
    assert {**dict(limit.groups), "unknown": limit.unknown_ns}[group] == 390 + (group == "copy")
    assert [GROUP_OF_CAUSE[row.cause] for row in largest_causes(found, limit)] == [group]


def test_causes_are_summed_by_owner_and_the_largest_come_first():
    causes = [
        cause("host_code", 30, owner="a", layer="x", pieces=2, longest=20),
        cause("host_code", 25, owner="a", layer="y", pieces=3, longest=25),
        cause("host_code", 50, owner="b", layer="x"),
        cause("host_code", 900, owner="b", scope="outside"), cause("host_code", 900, owner="b", capture=1),
    ]  # fmt: skip
    found = results([window(window_ns=1000, copy_busy_ns=100)], causes)
    rows = largest_causes(found, find_limit(found, [0]))
    assert [(row.owner, row.idle_ns, row.piece_count, row.longest_ns, row.ratio) for row in rows] == [
        ("a", 55, 5, 25, 0.055), ("b", 50, 1, 50, 0.05),
    ]  # fmt: skip
    assert len(largest_causes(found, find_limit(found, [0]), count=1)) == 1
    of_layer = largest_causes(found, find_limit(found, [0]), layer="^x$")
    assert [(row.owner, row.idle_ns, row.layer_path) for row in of_layer] == [("b", 50, "x"), ("a", 30, "x")]


def test_launches_that_loaded_code_have_one_owner_together():
    causes = [cause(FIRST_LAUNCH, time, owner=owner) for owner, time in (("a", 10), ("b", 30))]
    found = results([window(window_ns=1000, copy_busy_ns=100)], [*causes, cause("launch_call", 5, owner="a")])
    rows = largest_causes(found, find_limit(found))
    assert [(row.owner, row.idle_ns) for row in rows] == [("b and 1 more", 40), ("a", 5)]
    alone = results([window(window_ns=1000, copy_busy_ns=100)], causes[:1])
    assert largest_causes(alone, find_limit(alone))[0].owner == "a"


def test_what_came_before_the_first_and_after_the_last_operation_is_kept_apart():
    windows = [window(window_ns=1000, copy_busy_ns=900), window("lead-in", idle_ns=70), window("lead-out", idle_ns=20),
               window("lead-in", idle_ns=5, capture=1)]  # fmt: skip
    causes = [cause("module_load", 60, scope="lead-in"), cause("host_code", 10, scope="lead-in"),
              cause("host_code", 20, scope="lead-out")]  # fmt: skip
    found = results(windows, causes)
    limit = find_limit(found, [0])
    (before, first), (after, last) = lead_in(found, limit), lead_out(found, limit)
    assert (before, first.cause, first.idle_ns, first.ratio) == (70, "module_load", 60, 60 / 70)
    assert (after, last.cause, last.ratio) == (20, "host_code", 1.0)
    warm = [window("warm-up", window_ns=50, copy_busy_ns=50)]
    assert lead_in(results([*windows, *warm], causes), limit) == (0, None)  # the first execution is the warm-up
    only_warm = results([*warm, *windows[1:]], causes)
    assert lead_in(only_warm, find_limit(only_warm, [0]))[0] == 70
    assert lead_out(only_warm, find_limit(only_warm, [0])) == (0, None)
    assert lead_in(results(windows[:1]), limit) == (0, None)


def test_shares_of_processes_on_one_device_are_of_its_time(tmp_path):
    """One of them works ten times as long: the mean of their times holds less than the device did."""
    machines = [Machine(Random(1), pid=pid) for pid in (4_000, 5_000)]
    for machine, each_us in zip(machines, (20, 200), strict=True):
        thread = machine.thread()
        for _ in range(10):
            with thread.range("step"):
                for _ in range(20):
                    thread.launch("gemm", each_us)
                thread.sync()
    limit = find_limit(analyze([write(Program("shared", machines, []), tmp_path / "two")]))
    assert limit.busy_ns <= limit.whole_ns == limit.window_ns
