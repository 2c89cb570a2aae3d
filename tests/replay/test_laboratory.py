"""Predictions on simulated programs of threads, streams, ranks, graphs and copies, against the edited programs."""

from __future__ import annotations

import pytest
from generators.simulator import KINDS, Act, Machine, Program, World, draw_program, edited
from laboratory import predictions

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze

SEEDS = (1, 2, 3, 4, 6, 7, 9, 12, 13, 15, 16, 17, 18, 22, 24)


def test_a_program_takes_what_its_parts_take():
    step = (Act("kernel", 50_000, "gemm"), Act("kernel", 30_000, "relu"), Act("sync", mode="device"))
    world = World(spread=0.0, launch_ns=4_000, latency_ns=2_000, gap_ns=1_000, return_ns=5_000)
    machine = Machine(Program(0, (), world, ((step,),))).run()
    # launch, latency, two kernels and the gap between them, the return of the wait, what follows the step
    expected = 4_000 + 2_000 + 50_000 + 1_000 + 30_000 + 5_000
    assert machine.latency_ns() == pytest.approx(expected + 400, rel=0.02)
    assert machine.period_ns() == pytest.approx(expected + 400 + 1_500, rel=0.02)


def test_ranks_leave_a_collective_together_and_a_stream_waits_for_its_event():
    main = (Act("kernel", 40_000, "gemm"), Act("record", 0, "e"), Act("await_event", 0, "e", 20),
            Act("kernel", 10_000, "side", 20), Act("collective", 5_000, "nccl"),
            Act("sync", mode="device"))  # fmt: skip
    late = (Act("host", 300_000), *main)
    machine = Machine(Program(1, (), World(), ((main,), (late,)))).run()
    works = [work for call in machine.calls for work in call.works]
    ends = {work.end for work in works if work.act.what == "collective"}
    assert len(ends) == 7  # one end for both ranks in every step
    for rank in (0, 1):
        sides = [work for work in works if work.act.name == "side" and work.rank == rank]
        gemms = [work for work in works if work.act.name == "gemm" and work.rank == rank]
        assert all(side.start > gemm.end for side, gemm in zip(sides, gemms, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_does_what_it_says(kind):
    program = next(p for p in map(draw_program, range(40)) if {"copies", "ends in a wait"} <= set(p.features))
    text, other = edited(program, kind)
    before, after = ([act for rank in p.ranks for thread in rank for act in thread] for p in (program, other))
    assert text.split("=")[0].split(":")[0] in ("kernel", "launch", "host", "copy", "sync")
    assert (before != after) == (kind != "launches")
    assert (program.world != other.world) == (kind == "launches")


@pytest.mark.parametrize(("depth", "since", "single"), [(500, 0, 0), (500, 8, 0), (300, 0, 6)])
def test_graph_after_graph_behind_a_full_queue_is_limited_by_its_kernels(depth, since, single, tmp_path):
    """No launch of a graph waits for the one before it, but each finds the queue full. ``since``: recorded from this
    step on, so that no launch was ever quick. ``single``: kernels before each graph."""
    nodes = tuple(Act("kernel", 8_000, name) for name in ("gemm", "relu", "norm", "gemm") * 50)
    step = (Act("host", 60_000), *[Act("kernel", 5_000, "relu")] * single, Act("graph", nodes=nodes))
    program = Program(1, (), World(queue_depth=depth, spread=0.01), ((step,),), steps=24)
    machine = Machine(program).run()
    machine.ranges = machine.ranges[since:]
    machine.calls = [call for call in machine.calls if call.start >= machine.ranges[0][1]]
    results = analyze([machine.write(tmp_path / "graphs.sqlite")], Options(model_range="^step"))
    gains = results.frame("experiment").query("question == 'device' and part == ''").set_index("resource")
    truth = 1 - Machine(edited(program, "kernels")[1], 1).run().period_ns() / machine.period_ns()
    assert gains.index[gains["is_limit"]].tolist() == ["kernels"]
    assert gains.loc["kernels", "gain_ratio"] == pytest.approx(truth, abs=0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
def test_predictions_hold_in_the_laboratory(seed, tmp_path):
    rows = predictions(seed, tmp_path)
    assert rows
    assert not [row.refusal for row in rows if row.refusal]
    off = [row for row in rows if abs(row.error) > 0.04 and not row.is_covered]
    assert not [(row.kind, row.quantity, round(row.error, 3)) for row in off]
    # no period is shorter than what the busiest stream has to do (times of kernels vary from run to run)
    assert not [(row.kind, row.predicted_ns, row.least_ns) for row in rows if row.predicted_ns < 0.97 * row.least_ns]
