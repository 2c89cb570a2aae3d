"""What blocks are called, from the names of their kernels."""

import numpy as np
import pytest

from xsp_post.tree.structure.labels import Traits, attentions, guess_type, parts_of_block

GEMM, NORM, SOFTMAX = "ampere_sgemm_128x64_tn", "vectorized_layer_norm_kernel", "cunn_SoftMaxForward"
EXP, SUM = "exp_kernel_cuda", "reduce_kernel"
LOSS = [SOFTMAX, "nll_loss_forward_reduce_cuda_kernel_2d", "nll_loss_backward_reduce_cuda_kernel_2d"]
FLASH, SCAN, CONVOLUTION = "flash_fwd_kernel", "selective_scan_fwd_kernel", "implicit_convolve_sgemm"


def traits_of(names):
    texts = list(dict.fromkeys(names))
    return Traits.of_names(texts, np.array([texts.index(name) for name in names])), np.arange(len(names))


@pytest.mark.parametrize(
    ("names", "word", "cores"),
    [
        ([GEMM, "relu", GEMM, *LOSS, "cunn_SoftMaxBackward", GEMM, GEMM], "matrix product", 0),
        ([NORM, GEMM, GEMM, SOFTMAX, GEMM, GEMM], "attention", 1),
        ([NORM, GEMM, FLASH, GEMM, NORM, GEMM, "silu", GEMM], "transformer block", 1),
        ([NORM, GEMM, GEMM, SUM, "sub", EXP, SUM, "div", GEMM, GEMM, NORM, GEMM, GEMM], "transformer block", 1),
        ([NORM, GEMM, GEMM, "index_elementwise_kernel", "add", SOFTMAX, "dropout", GEMM, GEMM], "attention", 1),
        ([GEMM, GEMM, "softmax_warp_backward", GEMM, GEMM], "attention", 1),
        ([GEMM, "relu", GEMM, SOFTMAX, SUM, GEMM, GEMM, GEMM, GEMM], "matrix product", 0),
        ([GEMM, GEMM, "relu", EXP, "DeviceScanKernel", SUM, GEMM, GEMM, GEMM, GEMM], "matrix product", 0),
        ([CONVOLUTION, NORM, GEMM, SOFTMAX, CONVOLUTION, CONVOLUTION, NORM, GEMM], "convolution", 0),
        ([GEMM, SOFTMAX, "gatherTopK", GEMM, "silu", GEMM, GEMM, GEMM], "matrix product", 0),
        ([NORM, GEMM, "causal_conv1d_fwd_kernel", SCAN, GEMM], "state space", 1),
        ([NORM, GEMM, "causal_conv1d_fwd_kernel", SCAN, GEMM, NORM, GEMM, "silu", GEMM], "transformer block", 1),
    ],
    ids=["loss", "attention", "block", "pieces", "bias", "gradient", "probabilities", "transparency", "head", "router",
         "state space", "hybrid"],
)  # fmt: skip
def test_a_block_is_called_by_its_core(names, word, cores):
    traits, rows = traits_of(names)
    assert guess_type(traits, rows, np.full(len(rows), 10)) == word
    assert len(attentions(traits, rows)) == cores


def test_the_parts_of_a_hybrid_block():
    names = [NORM, GEMM, "causal_conv1d_fwd_kernel", SCAN, GEMM, NORM, GEMM, "silu", GEMM]
    traits, rows = traits_of(names)
    assert parts_of_block(traits, rows, np.full(9, 10), rows) == [(0, 5, "state space"), (5, 9, "MLP")]


def test_numbers_of_a_compiler_are_no_part_of_a_plain_name():
    names = ["triton_poi_fused_add_3", "triton_poi_fused_add_17", "__myl_FcMul_myl0_4", "_gemm_mha_v2_0x1f", GEMM]
    traits, _ = traits_of(names)
    assert traits.plain.tolist() == [0, 0, 1, 2, 3]
