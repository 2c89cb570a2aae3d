"""What halving each resource saves, against programs that are really run with that resource halved."""

from __future__ import annotations

import pytest
import recorded
from programs import Op, run_steps, scaled

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.replay.experiment import COMMUNICATION, COPIES, HOST, KERNELS, LAUNCHES, run_experiment
from xsp_post.replay.fidelity import identity_of

KERNEL, SHORT = Op("kernel", 80_000, "gemm"), Op("kernel", 1_000, "relu")
DEVICE = [*[KERNEL] * 40, Op("sync")]
HOST_CODE = [op for _ in range(40) for op in (Op("host", 40_000), SHORT)] + [Op("sync")]
LAUNCHING = [SHORT] * 200 + [Op("sync")]
COPYING = [op for _ in range(6) for op in (Op("copy", 400_000), *[SHORT] * 5)] + [Op("sync")]
BALANCED = [op for _ in range(40) for op in (Op("host", 40_000), Op("kernel", 43_000, "gemm"))] + [Op("sync")]


def experiment(step, tmp_path):
    run_steps(step, 8, tmp_path / "report.sqlite")
    found = run_experiment(identity_of(analyze([tmp_path / "report.sqlite"], Options(model_range="^step")), 0))
    assert not found.refusal
    return found.latency


@pytest.mark.parametrize(
    ("step", "limit", "what"),
    [(DEVICE, KERNELS, "kernel"), (HOST_CODE, HOST, "host"), (LAUNCHING, LAUNCHES, ""), (COPYING, COPIES, "copy")],
)
def test_the_resource_that_limits_is_named(step, limit, what, tmp_path):
    found = experiment(step, tmp_path)
    assert found.limits == (limit,) and not found.is_balanced
    assert found.together.gain_ratio == pytest.approx(0.5, abs=0.02)
    if what:  # the same program with that resource halved, really run
        before, _ = run_steps(step, 8, tmp_path / "before.sqlite")
        after, _ = run_steps(scaled(step, what, 0.5), 8, tmp_path / "after.sqlite")
        assert found.gains[0].gain_ratio == pytest.approx(1 - after / before, abs=0.03)


def test_resources_that_hide_one_another_limit_together(tmp_path):
    found = experiment(BALANCED, tmp_path)
    assert found.is_balanced
    assert set(found.limits) == {KERNELS, HOST}
    assert max(one.gain_ratio for one in found.gains) < found.together.gain_ratio / 2


def test_no_gain_is_more_than_half_and_none_is_named_below_its_error(tmp_path):
    found = experiment([op for _ in range(30) for op in (Op("host", 9_000), KERNEL)] + [Op("sync")], tmp_path)
    assert all(one.gain_ratio <= 0.5 + 1e-9 for one in (*found.gains, found.together))
    assert found.limits == (KERNELS,)
    assert not next(one for one in found.gains if one.resources == (COMMUNICATION,)).is_shown


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
    found = run_experiment(identity_of(recorded.analyzed(captures / name), 0))
    assert found.device.limits == (OWNERS[name],)
