"""Networks without ranges: how many passes ran, whatever their layers are and however short the recording is."""

from __future__ import annotations

import random

import pytest
from one_thread import Program

LAYER = ("rms_norm", "gemm_qkv", "rotary", "flash_fwd_attention", "gemm_o", "add", "gemm_up", "silu", "gemm_down")
EXPERT = ("index_gather", "gemm_expert_up", "silu_expert", "gemm_expert_down", "scatter_add")


class Unsteady(Program):
    """The host takes now and then longer between two launches; it never waits."""

    def __init__(self):
        super().__init__()
        self.rng = random.Random(7)

    def kernel(self, name="gemm", ns=100):
        self.host += self.rng.randint(0, 9)
        return super().kernel(name, ns)


def layers(program, kinds):
    """Layers of a transformer; those of different kinds differ in the kernel of their attention."""
    for kind in kinds:
        for name in LAYER:
            program.kernel(f"{name}_{kind}" if "attention" in name else name)


def transformer(program, kinds):
    program.kernel("embedding_kernel")
    layers(program, kinds)
    program.kernel("rms_norm").kernel("gemm_lm_head")


def experts(program, count=8):
    program.kernel("embedding_kernel")
    for _ in range(count):
        for name in ("rms_norm", "gemm_qkv", "flash_fwd_attention", "gemm_o", "gemm_router", "topk_kernel"):
            program.kernel(name)
        for _ in range(program.rng.randint(2, 6)):
            for name in EXPERT:
                program.kernel(name)
        program.kernel("add")
    program.kernel("gemm_lm_head")


def denoised(program):
    layers_of_text = [f"{name}_text" for name in LAYER] * 6
    for name in ("embedding_kernel", *layers_of_text):
        program.kernel(name)
    for _ in range(10):
        program.kernel("timestep_kernel")
        layers(program, "x" * 8)
        program.kernel("gemm_final").kernel("scheduler_step")


def convolutions(program):
    program.kernel("implicit_convolve_sgemm").kernel("max_pool_kernel")
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            for size in (1, 3, 1):
                program.kernel(f"cudnn_convolution_{size}_{stage}").kernel("batch_norm").kernel("relu")
            if not block:
                program.kernel(f"cudnn_convolution_down_{stage}")
            program.kernel("add")
    program.kernel("avg_pool_kernel").kernel("gemm_fc")


def trained(program):
    for _ in range(4):  # of which each step takes the gradients together
        transformer(program, "x" * 6)
        program.kernel("nll_loss_forward").kernel("nll_loss_backward")
        for _ in range(6):
            for name in ("gemm_dgrad", "gemm_wgrad", "flash_bwd_attention_backward", "layer_norm_backward"):
                program.kernel(name)
    for _ in range(5):
        program.kernel("multi_tensor_apply_kernel_adam")


NETWORKS = {
    "equal layers": lambda program: transformer(program, "x" * 12),
    "local and global attention": lambda program: transformer(program, "lllllg" * 4),
    "experts": experts,
    "convolutions": convolutions,
    "accumulated gradients": trained,
}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("network", list(NETWORKS))
def test_as_many_passes_as_ran(tmp_path, network, count):
    program = Unsteady()
    for _ in range(count):
        NETWORKS[network](program)
    found = program.tree(tmp_path)
    if network == "experts" and not len(found.iterations):
        return  # too little of it recurs: no answer is right, another number is not
    assert len(found.iterations) == (count if (network, count) != ("accumulated gradients", 1) else 4)
    assert found.iterations["device_ns"].sum() >= 0.8 * found.nodes["device_ns"].iloc[0]


@pytest.mark.parametrize("count", [1, 3])
def test_denoising_steps_are_passes(tmp_path, count):
    program = Unsteady()
    for _ in range(count):
        denoised(program)
    assert len(program.tree(tmp_path).iterations) == 11 * count  # the text encoder's pass, too


def perceptron(program, kind):
    program.kernel(f"copy_{kind}")
    for layer in range(3):
        program.kernel(f"gemm_{kind}_{layer}").kernel(f"batch_norm_{kind}").kernel(f"relu_{kind}")
    program.kernel(f"gemm_{kind}_out").kernel(f"mse_loss_{kind}")


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("tests", [2, 3, 5])
def test_batches_of_tests_beside_steps_are_passes(tmp_path, epochs, tests):
    """The last batch of an epoch is smaller and has other kernels; so have tests, in which the norms learn nothing."""
    program, sizes = Program(), []
    for _ in range(epochs):
        for kind in (*["train"] * 9, "rest"):
            perceptron(program, kind)
            for layer in range(4):
                program.kernel(f"gemm_dgrad_{kind}_{layer}").kernel(f"gemm_wgrad_{kind}_{layer}")
                program.kernel("batch_norm_backward").kernel("threshold_backward")
            for _ in range(6):
                program.kernel("multi_tensor_apply_kernel_adam")
            program.host += 2_000
            sizes.append(12 + 4 * 4 + 6)
        for _ in range(tests):
            perceptron(program, "test")
            program.host += 2_000
            sizes.append(12)
    assert program.tree(tmp_path).iterations["kernel_count"].tolist() == sizes


def test_work_of_experts_lies_in_their_layer(tmp_path):
    program = Unsteady()
    for _ in range(4):
        experts(program)
    tree = program.tree(tmp_path)
    assert tree.iterations["kernel_count"].sum() == len(tree.activities)
    assert "×8 (inferred" in tree.layer_evidence
    names = tree.strings[tree.activities["name_id"].to_numpy()]
    of_expert = tree.activities["layer_node_id"].to_numpy()[names == "scatter_add"]
    assert len(of_expert) and len(set(of_expert)) == 4 * 8
