"""Predictions against reality: programs that are run, changed, and run again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import ExportBuilder
from generators import lodgers, machine
from hypothesis import given
from hypothesis import strategies as st
from programs import Op, run_steps, scaled
from properties import examples

from xsp_post.base.errors import ContradictionError, UsageError
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze
from xsp_post.replay.fidelity import identity_of, margin_of
from xsp_post.replay.what_if import what_if

STEPS = 6


def results_of(path):
    return analyze([path], Options(model_range="^step"))


def kernels(count: int, ns: int, name: str = "gemm", stream: int = 7) -> list[Op]:
    return [Op("kernel", ns, name, stream)] * count


DEVICE_BOUND = [*kernels(40, 80_000), *kernels(20, 30_000, "relu"), Op("sync")]
HOST_BOUND = [op for _ in range(40) for op in (Op("host", 30_000), Op("kernel", 8_000, "gemm"))] + [Op("sync")]
COPYING = [op for _ in range(6) for op in (Op("copy", 300_000), *kernels(5, 40_000))] + [Op("sync")]
CHATTY = [op for _ in range(20) for op in (Op("kernel", 20_000, "gemm"), Op("kernel", 9_000, "relu"), Op("sync"))]

EDITS = [
    (DEVICE_BOUND, ["kernel:gemm=0.5x"], scaled(DEVICE_BOUND, "kernel", 0.5, "gemm")),
    (DEVICE_BOUND, ["kernel:gemm=2x"], scaled(DEVICE_BOUND, "kernel", 2, "gemm")),
    (DEVICE_BOUND, ["kernel:gemm=0x"], scaled(DEVICE_BOUND, "kernel", 0, "gemm")),
    (HOST_BOUND, ["kernel:gemm=0.5x"], scaled(HOST_BOUND, "kernel", 0.5)),
    (HOST_BOUND, ["kernel:gemm=10x"], scaled(HOST_BOUND, "kernel", 10)),
    (HOST_BOUND, ["host=0.5x"], scaled(HOST_BOUND, "host", 0.5)),
    (HOST_BOUND, ["host=0.1x", "kernel:.=2x"], scaled(scaled(HOST_BOUND, "host", 0.1), "kernel", 2)),
    (HOST_BOUND, ["host:step=+1ms"], [Op("host", 1_000_000), *HOST_BOUND]),
    (COPYING, ["copy=0.5x"], scaled(COPYING, "copy", 0.5)),
    (COPYING, ["kernel:.=3x"], scaled(COPYING, "kernel", 3)),
    (CHATTY, ["sync=none"], [op for op in CHATTY if op.what != "sync"]),
    (CHATTY, ["kernel:relu=4x", "host=2x"], scaled(CHATTY, "kernel", 4, "relu")),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_a_known_edit_is_predicted_within_three_percent(number, tmp_path):
    step, changes, edited = EDITS[number]
    run_steps(step, STEPS, tmp_path / "before.sqlite")
    latency, period = run_steps(edited, STEPS, tmp_path / "after.sqlite")
    prediction = what_if(results_of(tmp_path / "before.sqlite"), changes)
    if changes == ["sync=none"]:  # the host runs ahead: the pace is the device's
        period = 20 * (20_000 + 9_000 + 2 * 1_000)
    else:
        assert prediction.latency.predicted_ns == pytest.approx(latency, rel=0.03)
        assert prediction.latency.low_ns <= latency <= prediction.latency.high_ns
    assert prediction.period.predicted_ns == pytest.approx(period, rel=0.03)


@pytest.mark.parametrize("gap_ns", [500, 3_000, 15_000, 60_000])
@pytest.mark.parametrize("factor", [0.0, 0.5, 3.0])
def test_a_copy_that_waits_for_the_device_takes_no_longer_itself(gap_ns, factor, tmp_path):
    step = [*kernels(40, 80_000), Op("copy", 2_000)]  # a loop that ends in .item()
    run_steps(step, STEPS, tmp_path / "before.sqlite", copy_gap_ns=gap_ns)
    edited = scaled(step, "kernel", factor)
    _, period = run_steps(edited, STEPS, tmp_path / "after.sqlite", copy_gap_ns=gap_ns)
    prediction = what_if(results_of(tmp_path / "before.sqlite"), [f"kernel:gemm={factor}x"])
    assert prediction.period.predicted_ns == pytest.approx(period, rel=0.03, abs=12_000)


@pytest.mark.parametrize("copy_ns", [20_000, 150_000, 390_000, 900_000])
def test_hidden_copies_leave_the_time_of_the_kernels(copy_ns, tmp_path):
    step = [Op("copy", copy_ns), *kernels(10, 40_000)]
    run_steps(step, 12, tmp_path / "before.sqlite")
    prediction = what_if(results_of(tmp_path / "before.sqlite"), ["copy=overlap"])
    pace = max(10 * (40_000 + 1_000), copy_ns + 1_000)  # of the busiest stream
    assert prediction.period.predicted_ns == pytest.approx(pace, rel=0.03)
    assert prediction.period.predicted_ns >= max(10 * 40_000, copy_ns)


def test_a_full_queue_holds_launches_back(tmp_path):
    step = kernels(600, 20_000)
    run_steps(step, 4, tmp_path / "before.sqlite", queue_depth=256)
    results = results_of(tmp_path / "before.sqlite")
    identity = identity_of(results, 0)
    assert identity.graph.learnt.queue_depth in range(250, 260)
    assert identity.error_ratio < 0.01
    prediction = what_if(results, ["kernel:gemm=0.5x"])
    assert prediction.period.predicted_ns == pytest.approx(600 * 11_000, rel=0.03)


@examples(6)
@given(data=st.data())
def test_nothing_changed_predicts_what_was_measured(data, tmp_path_factory):
    action = st.one_of(
        st.builds(Op, st.just("kernel"), st.integers(1_000, 90_000), st.sampled_from(["a", "b"]), st.just(7)),
        st.builds(Op, st.just("host"), st.integers(0, 60_000)),
        st.builds(Op, st.just("copy"), st.integers(1_000, 90_000)),
        st.just(Op("sync")),
    )
    step = [Op("kernel", 30_000, "a"), *data.draw(st.lists(action, min_size=3, max_size=25)), Op("sync")]
    path = tmp_path_factory.mktemp("identity") / "one.sqlite"
    run_steps(step, 4, path)
    results = results_of(path)
    same = what_if(results, ["kernel:.=1x"])
    assert same.latency.predicted_ns == pytest.approx(same.latency.measured_ns, rel=1e-6)
    assert same.error_ratio < 0.03
    factor = data.draw(st.floats(0.1, 4))
    slower = what_if(results, [f"kernel:.={factor + 0.5:.3f}x"])
    faster = what_if(results, [f"kernel:.={factor:.3f}x"])
    assert faster.latency.predicted_ns <= slower.latency.predicted_ns + 1


def test_copies_that_are_always_queued_a_little_show_what_they_take_before(tmp_path):
    run_steps(
        [*kernels(1, 30_000), Op("sync"), *kernels(1, 5_947), Op("copy", 1_000), Op("sync")], 4, tmp_path / "a.sqlite"
    )
    assert (
        identity_of(results_of(tmp_path / "a.sqlite"), 0).error_ratio < 0.001
    )  # staging from the call's start, not the queue


def test_overlapped_copies_and_graphs_are_bounds(tmp_path):
    run_steps(COPYING, STEPS, tmp_path / "copying.sqlite")
    overlap = what_if(results_of(tmp_path / "copying.sqlite"), ["copy=overlap"])
    assert overlap.latency.predicted_ns == pytest.approx(6 * 300_000, rel=0.05)  # the copies alone, one after another
    assert overlap.limit == "copies"
    run_steps(HOST_BOUND, STEPS, tmp_path / "host.sqlite")
    graph = what_if(results_of(tmp_path / "host.sqlite"), ["launch=graph"])
    assert graph.limit_before == "host code"
    assert graph.latency.predicted_ns == pytest.approx(40 * 9_000 + 50_000, rel=0.15)
    assert graph.limit == "kernels"


@pytest.mark.parametrize(
    ("own", "change", "expected"),
    [
        (0.0, 0.0, 0.02),  # never narrower
        (0.03, 0.0, 0.03),
        (0.03, 20.0, 0.05),  # a fifth of 20 % of 100 is 4 %
        (0.0, 900.0, 0.1),  # the change widens it to ±10 % at most
        (0.13, 20.0, 0.13),
    ],
)
def test_an_interval_holds_error_spread_and_a_share_of_the_change(own, change, expected):
    assert margin_of(own, change, 100.0) == pytest.approx(expected)
    assert margin_of(own, -change, 100.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    ["", "kernel=0.5x", "kernel:(=0.5x", "kernel:a=0.5", "gpu:a=2x", "sync=roof", "launch=+x", "kernel:a=-1x", "=2x"],
)
def test_a_change_that_cannot_be_read_is_refused(text, tmp_path):
    run_steps(kernels(5, 9_000), 2, tmp_path / "one.sqlite")
    with pytest.raises(UsageError) as caught:
        what_if(results_of(tmp_path / "one.sqlite"), [text])
    assert caught.value.code == ("bad-range-pattern" if "(" in text else "bad-change")


def test_a_change_that_matches_nothing_is_refused(tmp_path):
    run_steps(kernels(5, 9_000), 2, tmp_path / "one.sqlite")
    with pytest.raises(UsageError) as caught:
        what_if(results_of(tmp_path / "one.sqlite"), ["kernel:no_such_kernel=0.5x"])
    assert caught.value.code == "change-matches-nothing"


def test_the_roof_is_taken_where_it_is_known_and_said_where_not(tmp_path):
    run_steps(DEVICE_BOUND, STEPS, tmp_path / "one.sqlite")
    results = results_of(tmp_path / "one.sqlite")
    roof = results.frames["a10"]["name"].astype(str).eq("gemm").map({True: 0.5, False: np.nan})
    known = Analysis({**results.frames, "a10": results.frames["a10"].assign(roof_ratio=roof)}, results.findings)
    half, prediction = what_if(results, ["kernel:gemm=0.5x"]), what_if(known, ["kernel:.=roof"])
    assert prediction.latency.predicted_ns == pytest.approx(half.latency.predicted_ns)
    (effect,) = prediction.effects
    assert effect.left_out.startswith(f"{20 * STEPS} operations") and "no known flop and bytes" in effect.left_out
    with pytest.raises(UsageError) as caught:
        what_if(results, ["kernel:gemm=roof"])
    assert caught.value.code == "change-matches-nothing"


def test_a_wait_that_nothing_explains_refuses_what_holds_it(tmp_path):
    """Thirty kernels of a step that began half a second after their launches: all of it is refused, and the step; of
    times that the replay misses by little it would be none."""
    builder, late = ExportBuilder(), 500_000_000
    builder.kernel("prepare", launch=(0, 5_000), run=(10_000, 30_000))
    for k in range(30):
        at, run = 40_000 + 8_000 * k, late + 10_001_000 * k
        builder.kernel("gemm", launch=(at, at + 5_000), run=(run, run + 10_000_000))
    builder.range("step", 39_000, 290_000).write(tmp_path / "a.sqlite")
    results = results_of(tmp_path / "a.sqlite")
    with pytest.raises(ContradictionError, match="misses its length"):
        what_if(results, ["kernel:gemm=0.5x"])
    identity = identity_of(results, 0)
    assert identity.refusal and not identity.refusal_of(0.01) and "misses" in identity.refusal_of(0.2)
    assert replace(identity, is_serial=True).refusal_of(0.01) == identity.refusal


def test_what_nsight_compute_recorded_is_not_replayed(tmp_path):
    run_steps(DEVICE_BOUND, 3, tmp_path / "a.sqlite")
    results = results_of(tmp_path / "a.sqlite")
    captures = results.frame("captures")
    serialised = Analysis({**{name: results.frame(name) for name in results.tables()},
                           "captures": captures.assign(collector="ncu")})  # fmt: skip
    assert not identity_of(results, 0).refusal
    assert "one by one" in identity_of(serialised, 0).refusal


def test_no_interval_reaches_below_zero_time(tmp_path):
    """Executions of very unlike length: half the range of the middle ones is more than their median."""
    program = lodgers.draw(777007)
    prediction = what_if(analyze([machine.write(program, tmp_path / "program")]), ["kernel:.*=0.5x"])
    assert prediction.period.low_ns == 0 < prediction.period.predicted_ns < prediction.period.high_ns / 2


@pytest.mark.parametrize("text", ["solve", "frame"])
def test_executions_have_the_name_that_the_tree_has_for_them(text, tmp_path):
    """No kind of execution is known of such a text: each was called a pass."""
    builder = ExportBuilder().process(100).thread(100)
    for step in range(8):
        begin = 1_000_000 * step
        for k in range(20):
            at = begin + 20_000 * k
            builder.kernel("gemm", launch=(at, at + 5_000), run=(at + 10_000, at + 18_000))
        builder.range(f"{text} {step}", begin, begin + 500_000)
    results = analyze([builder.write(tmp_path / "a.sqlite")])
    assert what_if(results, ["host=0.5x"]).execution == text
    assert text in set(results.frame("execution_candidates")["name"])
