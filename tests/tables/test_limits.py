"""The rule of the verdict at its edges, on windows and causes written by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from xsp_post.model.results import Analysis
from xsp_post.tables.analyses.limits import (
    CLEAR_RATIO,
    FIRST_LAUNCH,
    MATRIX_MEAN_NS,
    MATRIX_RATIO,
    MOVING_RATIO,
    NOT_RECORDED,
    SECOND_RATIO,
    UNKNOWN_RATIO,
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


def limit_of(known=1000, unknown=0, **groups):
    """The limit of a window of ``known`` ns with so many in copies and in idle causes, the rest in small groups."""
    names = {"host": "host_code", "launch": "launch_call", "sync": "synchronization", "profiler": "profiler_overhead"}
    causes = [cause(names[name], time) for name, time in groups.items() if name in names]
    causes += [cause("unknown", unknown)] if unknown else []
    busy = {"copy_busy_ns": groups.get("copy", 1), "kernel_busy_ns": groups.get("kernel", 0)}
    return find_limit(results([window(window_ns=known + unknown, **busy)], causes))


def test_the_bars_are_those_that_the_glossary_and_the_page_state():
    assert (CLEAR_RATIO, SECOND_RATIO, UNKNOWN_RATIO) == (0.5, 0.25, 0.6)
    assert (MATRIX_RATIO, MATRIX_MEAN_NS, MOVING_RATIO) == (0.5, 100_000, 0.75)


@pytest.mark.parametrize(
    ("groups", "kind"),
    [
        ({"host": 600, "copy": 300}, "host"),  # half as much, and no more
        ({"host": 600, "copy": 301}, "mixed"),
        ({"host": 499, "copy": 250}, "mixed"),
        ({"host": 500, "copy": 249}, "host"),
        ({"host": 500, "copy": 251}, "mixed"),
        ({"host": 510, "copy": 259}, "mixed"),
        ({"copy": 510, "host": 259}, "mixed"),
        ({"host": 499, "copy": 249}, "host"),  # less than half of the time, but twice as much as any other
        ({"host": 260, "copy": 240}, "mixed"),  # the two have half of the time
        ({"host": 260, "copy": 239}, "unknown"),
        ({"host": 250, "copy": 250}, "mixed"),
        ({"host": 250, "copy": 249}, "unknown"),  # a quarter is asked of the second one, not of the first
        ({"host": 200, "copy": 101}, "unknown"),
        ({"host": 200, "copy": 100}, "host"),
        ({"sync": 700}, "synchronization"),
        ({"launch": 700, "host": 200}, "launch"),
        ({"profiler": 700, "host": 200}, "unknown"),
        ({"kernel": 900}, "kernel"),
    ],
)
def test_a_group_is_the_limit_where_no_other_one_comes_near(groups, kind):
    assert limit_of(**groups).kind == kind


def test_a_quarter_is_of_the_time_that_is_known():
    assert limit_of(known=1000, unknown=1000, host=480, copy=251).kind == "mixed"
    assert limit_of(known=1000, unknown=1000, host=510, copy=255).kind == "host"
    found = limit_of(known=1000, unknown=1000, host=510)
    assert (found.known_ns, found.unknown_ns, found.window_ns) == (1000, 1000, 2000)
    assert found.ratio("host") == 0.255 and found.ratio("nothing") == 0


def test_nothing_is_said_where_most_is_not_known():
    assert limit_of(known=400, unknown=600, host=390).kind == "host"
    found = limit_of(known=399, unknown=601, host=390)
    assert found.kind == "unknown" and found.reason and found.groups[0] == ("host", 390)
    assert not limit_of(host=600).reason
    assert limit_of(profiler=700).reason and limit_of(host=260, copy=239).reason


@pytest.mark.parametrize(
    ("amounts", "kind"),
    [
        ({"kernel_ns": 1_000_000, "matrix_ns": 500_000, "matrix_count": 5}, "compute"),
        ({"kernel_ns": 1_000_001, "matrix_ns": 500_000, "matrix_count": 5}, "kernel"),
        ({"kernel_ns": 1_000_000, "matrix_ns": 500_000, "matrix_count": 6}, "kernel"),  # short: products of few rows
        ({"kernel_ns": 1_000_000, "matrix_ns": 250_000, "matrix_count": 9}, "memory"),
        ({"kernel_ns": 1_000_000, "matrix_ns": 250_001, "matrix_count": 9}, "kernel"),
        ({"kernel_ns": 1_000_000, "other_kernel_ns": 250_000}, "memory"),
        ({"kernel_ns": 1_000_000, "other_kernel_ns": 250_001}, "kernel"),
        ({"kernel_ns": 0}, "kernel"),
    ],
)
def test_what_names_of_kernels_say(amounts, kind):
    found = find_limit(results([window(window_ns=1000, kernel_busy_ns=900, **amounts)]))
    assert found.kind == kind
    on_cpu = find_limit(results([window(window_ns=1000, kernel_busy_ns=900, device=-1, **amounts)]))
    assert on_cpu.kind == "kernel" and not on_cpu.is_gpu


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
    assert find_limit(results([idle])).reason == "no device work was recorded"


def test_a_limit_of_some_captures_knows_no_others():
    windows = [window(window_ns=100, copy_busy_ns=90), window(window_ns=100, kernel_busy_ns=90, capture=1)]
    found = results(windows, [cause("host_code", 10, capture=1)])
    assert (find_limit(found, [0]).kind, find_limit(found, [1]).kind) == ("copy", "kernel")
    assert find_limit(found, [1]).ratio("host") == 0.1 and find_limit(found, [0]).captures == (0,)
    assert find_limit(found).captures == (0, 1) and find_limit(found).device_count == 2


def test_more_launches_recorded_into_a_graph_than_kernels_that_ran():
    windows = [window(window_ns=100, copy_busy_ns=90, kernel_count=7)]
    for count, is_said in ((7, False), (8, True)):
        rows = [{"capture_id": 0, "code": "graph-recorded", "count": count}, {"capture_id": 0, "code": "x", "count": 9},
                {"capture_id": 1, "code": "graph-recorded", "count": 9}]  # fmt: skip
        found = find_limit(results(windows, findings=pd.DataFrame(rows)))
        assert (found.records_graph, found.kind) == ((True, "unknown") if is_said else (False, "copy"))


@pytest.mark.parametrize(
    ("name", "detail", "group"),
    [
        ("launch_call", "", "launch"), ("launch_call", FIRST_LAUNCH, "host"), ("launch_latency", "", "launch"),
        ("queued", "gemm", "synchronization"), ("queued", NOT_RECORDED, "unknown"), ("copy_call", "", "copy"),
        ("synchronization", "gemm", "synchronization"), ("allocation", "", "host"), ("module_load", "", "host"),
        ("os_call", "", "host"), ("descheduled", "", "host"), ("host_code", "", "host"), ("unknown", "", "unknown"),
        ("communication", "", "communication"), ("profiler_overhead", "", "profiler"),
    ],
)  # fmt: skip
def test_every_cause_is_of_one_group(name, detail, group):
    found = results([window(window_ns=1000, copy_busy_ns=1, communication_ns=0)], [cause(name, 390, detail=detail)])
    limit = find_limit(found)
    assert {**dict(limit.groups), "unknown": limit.unknown_ns}[group] == 390 + (group == "copy")
    assert [row.group for row in largest_causes(found, limit)] == [group]


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
    causes = [cause("launch_call", time, owner=owner, detail=FIRST_LAUNCH) for owner, time in (("a", 10), ("b", 30))]
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
