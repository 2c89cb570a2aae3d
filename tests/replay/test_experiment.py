"""What halving each resource saves, against programs that are really run with that resource halved."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import recorded
from builders import ExportBuilder
from generators.simulator import Act, Machine, Program, World, edited
from programs import Op, run_steps, scaled

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.replay import recording
from xsp_post.replay.experiment import DEVICE as DEVICE_TIME
from xsp_post.replay.experiment import LATENCY, TOGETHER, _Trial, run_experiment
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.resources import COMMUNICATION, COPIES, HOST, KERNELS, LAUNCHES, RANKS, SYNCHRONISATION
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.advice import advise
from xsp_post.tables.analyses.limits import find_limit

KERNEL, SHORT = Op("kernel", 80_000, "gemm"), Op("kernel", 1_000, "relu")
DEVICE = [*[KERNEL] * 40, Op("sync")]
HOST_CODE = [op for _ in range(40) for op in (Op("host", 40_000), SHORT)] + [Op("sync")]
LAUNCHING = [SHORT] * 200 + [Op("sync")]
COPYING = [op for _ in range(6) for op in (Op("copy", 400_000), *[SHORT] * 5)] + [Op("sync")]
BALANCED = [op for _ in range(40) for op in (Op("host", 40_000), Op("kernel", 43_000, "gemm"))] + [Op("sync")]


def experiment(step, tmp_path):
    run_steps(step, 8, tmp_path / "report.sqlite")
    return answer(identity_of(analyze([tmp_path / "report.sqlite"], Options(model_range="^step")), 0))


def answer(identity, question=LATENCY):
    """The rows of a question; there are some."""
    rows = pd.DataFrame(run_experiment(identity)[0])
    rows = rows[rows["question"] == question]
    assert len(rows) and (rows["rank"] > 0).sum() == rows["resource"].nunique() - 1
    return rows


def limits(rows):
    return set(rows.loc[rows["is_limit"], "resource"])


def gains_of(rows):
    """By resource, largest first; what all save together last."""
    return rows[rows["part"] == ""].set_index("resource")["gain_ratio"]


@pytest.mark.parametrize(
    ("step", "limit", "what"),
    [(DEVICE, KERNELS, "kernel"), (HOST_CODE, HOST, "host"), (LAUNCHING, LAUNCHES, ""), (COPYING, COPIES, "copy")],
)
def test_the_resource_that_limits_is_named(step, limit, what, tmp_path):
    found = experiment(step, tmp_path)
    assert limits(found) == {limit} and not found["is_balanced"].any()
    assert gains_of(found)[TOGETHER] == pytest.approx(0.5, abs=0.02)
    if what:  # the same program with that resource halved, really run
        before, _ = run_steps(step, 8, tmp_path / "before.sqlite")
        after, _ = run_steps(scaled(step, what, 0.5), 8, tmp_path / "after.sqlite")
        assert gains_of(found).iloc[0] == pytest.approx(1 - after / before, abs=0.03)


def test_resources_that_hide_one_another_limit_together(tmp_path):
    found = experiment(BALANCED, tmp_path)
    assert found["is_balanced"].all()
    assert limits(found) == {KERNELS, HOST}
    *each, together = gains_of(found)
    assert max(each) < together / 2


def test_no_gain_is_more_than_half_and_none_is_named_below_its_error(tmp_path):
    found = experiment([op for _ in range(30) for op in (Op("host", 9_000), KERNEL)] + [Op("sync")], tmp_path)
    assert (gains_of(found) <= 0.5 + 1e-9).all()
    assert limits(found) == {KERNELS}
    assert found.set_index("resource")["low_gain_ratio"][COMMUNICATION] <= 0


def test_of_a_large_recording_the_median_execution_and_those_beside_it_are_replayed(tmp_path, monkeypatch):
    run_steps([op for _ in range(20) for op in (Op("host", 40_000), SHORT)] + [Op("sync")], 30, tmp_path / "r.sqlite")
    identity = identity_of(analyze([tmp_path / "r.sqlite"], Options(model_range="^step")), 0)
    whole = [answer(identity, question) for question in (DEVICE_TIME, LATENCY)]
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 300)
    monkeypatch.setattr(recording, "PART_OPERATIONS", 100)
    results = analyze([tmp_path / "r.sqlite"], Options(model_range="^step"))
    identity = identity_of(results, 0)
    part = [answer(identity, question) for question in (DEVICE_TIME, LATENCY)]
    assert (len(identity.graph.recording.operations), part[0]["execution_count"].iloc[0]) == (100, 5)
    assert limits(part[0]) == limits(whole[0]) == {HOST}
    assert gains_of(part[0]).iloc[0] == pytest.approx(gains_of(whole[0]).iloc[0], abs=0.01)
    assert part[1]["elapsed_ns"].iloc[0] == pytest.approx(whole[1]["elapsed_ns"].iloc[0] * 5 / 30, rel=0.02)
    assert results.frame("experiment")["is_part"].all()


def test_without_executions_the_middle_of_a_large_recording_is_replayed(tmp_path, monkeypatch):
    run_steps(HOST_CODE * 10, 2, tmp_path / "r.sqlite")  # one execution that is too large itself
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 300)
    monkeypatch.setattr(recording, "PART_OPERATIONS", 100)
    identity = identity_of(analyze([tmp_path / "r.sqlite"], Options(model_range="^step")), 0)
    assert len(identity.graph.recording.operations) == pytest.approx(100, abs=2)
    assert limits(answer(identity, DEVICE_TIME)) == {HOST}


@pytest.mark.parametrize(
    "work", [[Op("copy", 4_000)], [Op("copy", 4_000), Op("copy", 4_000), Op("copy", 4_000), SHORT]]
)
@pytest.mark.parametrize("is_one", [False, True])
def test_copies_count_as_kernels_do(tmp_path, monkeypatch, work, is_one):
    steps = 2 if is_one else 40
    run_steps((work * 20)[:20] * (40 // steps), steps, tmp_path / "r.sqlite")
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 300)
    monkeypatch.setattr(recording, "PART_OPERATIONS", 100)
    graph = identity_of(analyze([tmp_path / "r.sqlite"], Options(model_range="^step")), 0).graph
    assert 60 <= len(graph.recording.operations) <= 400  # of 800


def test_parts_of_the_kernels_save_what_they_take(tmp_path):
    step = [Op("kernel", 60_000, "ampere_sgemm_128x64_tn"), Op("kernel", 20_000, "softmax_warp_forward")] * 10
    found = experiment([*step, Op("sync")], tmp_path)
    gains = found[found["part"] != ""].set_index("part")["gain_ratio"].to_dict()
    assert gains == pytest.approx({"gemm": 0.375, "CUDA cores": 0.375, "softmax": 0.125}, abs=0.02)
    assert (experiment(HOST_CODE, tmp_path)["part"] == "").all()


def test_a_rank_that_waits_saves_where_it_waits_less(tmp_path):
    ranks = [[Act("kernel", ns, "gemm"), Act("collective", 50_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
              Act("sync", mode="device")] for ns in (200_000, 800_000)]  # fmt: skip
    program = Program(1, (), World(spread=0.0), tuple((tuple(one),) for one in ranks))
    results = analyze([Machine(program).run().write(tmp_path / "r.sqlite")], Options(model_range="^step"))
    gains = gains_of(answer(identity_of(results, 0)))
    assert gains[RANKS] == pytest.approx(0.17, abs=0.03)  # one of two waits two thirds of the time: half of it goes
    assert gains[COMMUNICATION] < 0.05 < gains[KERNELS]


def test_half_of_the_waits_is_half_of_what_a_program_without_them_saves(tmp_path):
    """A host that reads a value after every few kernels: the copies are short, what they hold up is not."""
    layer = [one for ns in (8_000, 4_000, 1_000) for one in (Act("host", 4_000), Act("kernel", ns, f"gemm{ns}"))]
    ends, read = Act("sync", mode="device"), Act("copy", 1_600, "item", mode="pageable")
    every, once = [*[*layer, read] * 40, ends], [*[*layer, replace(read, mode="async")] * 40, ends]
    machines = [Machine(Program(1, (), World(spread=0.0), ((tuple(acts),),))).run() for acts in (every, once)]
    results = analyze([machines[0].write(tmp_path / "r.sqlite")], Options(model_range="^step"))
    found = answer(identity_of(results, 0), DEVICE_TIME)
    gain = gains_of(found)[SYNCHRONISATION]
    saved = 1 - machines[1].period_ns() / machines[0].period_ns()
    assert SYNCHRONISATION in limits(found) and gain == pytest.approx(saved / 2, abs=0.03)
    said = advise(results, find_limit(results))
    assert said[0].code == "item-in-step" and "cuda-graphs" not in [one.code for one in said]


@pytest.mark.parametrize("is_early", [False, True])
def test_executions_are_not_shorter_than_their_busiest_stream_works(tmp_path, is_early):
    """Work of before keeps another stream busy until the last execution has nearly ended."""
    builder = ExportBuilder()
    builder.kernel("before", launch=(0, 1_000), run=(2_000, 900_000 if is_early else 9_000), stream=9)
    for step in range(3):
        at = 10_000 + step * 330_000
        builder.range(f"step {step}", at, at + 320_000)
        for start in range(at, at + 310_000, 31_000):
            builder.kernel("own", launch=(start, start + 1_000), run=(start + 2_000, start + 32_000), stream=7)
    results = analyze([builder.write(tmp_path / "r.sqlite")], Options(model_range="^step"))
    assert len(results.frame("experiment"))
    assert ("elapsed-below-busy" in set(results.found()["code"])) == is_early


@pytest.mark.parametrize(("taken_ns", "is_said"), [(1e12, False), (1_000.0, True)])
def test_no_gain_is_more_than_was_taken_away(tmp_path, taken_ns, is_said):
    run_steps(DEVICE, 8, tmp_path / "r.sqlite")
    trial = _Trial(identity_of(analyze([tmp_path / "r.sqlite"], Options(model_range="^step")), 0), None)
    recorded_gain = trial.gain((KERNELS,), 0).gain_ratio
    assert trial.taken_ns[(KERNELS,)] >= recorded_gain * trial.identity.elapsed_ns[0] and not trial.beyond_share
    trial.taken_ns[(KERNELS,)] = taken_ns
    assert (trial.gain((KERNELS,), 0).gain_ratio < recorded_gain) == is_said == bool(trial.beyond_share)
    elapsed_ns = trial.identity.elapsed_ns[0]
    for share, beyond in ((0.9, False), (0.6, True)):  # within the error of a replay nothing is said
        trial.beyond_share.clear()
        trial.taken_ns[(KERNELS,)] = share * recorded_gain * elapsed_ns
        assert trial.gain((KERNELS,), 0).gain_ratio <= recorded_gain and bool(trial.beyond_share) == beyond


@pytest.mark.parametrize("sizes_ns", [(1_500,), (1_500, 300_000)])
def test_half_of_the_copies_is_what_the_change_of_that_name_halves(tmp_path, sizes_ns):
    """Small copies from pageable memory: their calls take the time, and take it still when the copies are shorter."""
    copies = [Act("copy", ns, "in", mode="pageable") for ns in sizes_ns]
    step = [one for _ in range(30) for copy in copies for one in (copy, Act("kernel", 3_000, "gemm"))]
    program = Program(1, (), World(spread=0.0), ((tuple([*step, Act("sync", mode="device")]),),))
    machine = Machine(program).run()
    results = analyze([machine.write(tmp_path / "r.sqlite")], Options(model_range="^step"))
    text, shorter = edited(program, "copies")
    truth = 1 - Machine(shorter).run().latency_ns() / machine.latency_ns()
    gains = gains_of(answer(identity_of(results, 0)))
    predicted = -what_if(results, [text]).latency.change_ratio
    assert [gains[COPIES], predicted] == pytest.approx([truth, truth], abs=0.02)
    assert gains[SYNCHRONISATION] > 0.1 or len(sizes_ns) > 1


# What limits each, as MEANING.md says.
OWNERS = {
    "nsys/transformer_2.7b_a100_nvtx.sqlite": KERNELS, "nsys/t5_offload_2gpu_h100.sqlite": COPIES,
    "nsys/fsdp_2gpu_h100.sqlite": KERNELS, "nsys/nvfuser_compile_h200.sqlite": HOST,
    "kineto/bert_small_h100.pt.trace.json.gz": HOST, "kineto/nccl_training.pt.trace.json.gz": HOST,
    "kineto/resnet50_ddp_a100.pt.trace.json.gz": KERNELS, "kineto/vllm_decode_cuda_graph.pt.trace.json.gz": KERNELS,
    "kineto/vllm_piecewise.pt.trace.json.gz": KERNELS, "kineto/vllm_eager_b200.pt.trace.json.gz": HOST,
    "kineto/qwen3moe_decode_b300.pt.trace.json.gz": KERNELS, "kineto/compiled_rtx3060.pt.trace.json.gz": KERNELS,
    "kineto/compiled_graphs_rtx3060.pt.trace.json.gz": KERNELS, "kineto/dataloader_0_workers.pt.trace.json.gz": HOST,
}  # fmt: skip


@pytest.mark.parametrize("name", OWNERS)
def test_the_limit_is_the_one_that_the_owner_names(name, captures):
    assert limits(answer(identity_of(recorded.analyzed(captures / name), 0), DEVICE_TIME)) == {OWNERS[name]}
