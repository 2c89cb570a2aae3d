"""Which kernels a fused attention would take in, by the names of the kernels in the order of a stream."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_post.names.attention import MOST_BETWEEN, unfused_attention

GEMM, SOFTMAX, MUL, COPY, NORM = "sgemm_128", "softmax_warp_forward", "mul_kernel", "copy_kernel", "layer_norm_kernel"
INDEX = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<index_kernel>(x)>"
SUM, EXP = "reduce_kernel<sum>", "vectorized_elementwise_kernel<exp_kernel_cuda>"


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        ([GEMM, MUL, SOFTMAX, COPY, GEMM], [1, 2, 3]),
        ([GEMM, SOFTMAX, GEMM, MUL, GEMM], [1]),
        ([GEMM, MUL, SUM, EXP, SUM, GEMM], [1, 2, 3, 4]),  # a softmax written as maximum, exponential, sum
        ([GEMM, MUL, EXP, SUM, GEMM], []),
        ([GEMM, SOFTMAX, SUM, GEMM], []),  # a router: softmax, then the largest
        ([MUL, SOFTMAX, GEMM], []),  # no product before
        ([GEMM, SOFTMAX, NORM, GEMM], []),  # something else between
        ([GEMM, MUL, GEMM], []),  # no softmax
        ([GEMM, INDEX, MUL, SOFTMAX, GEMM], [1, 2, 3]),  # a bias that is looked up and added
        ([GEMM, SOFTMAX, INDEX, MUL, GEMM], []),  # a router looks up what was chosen
        ([GEMM, SOFTMAX, *[MUL] * MOST_BETWEEN, GEMM], []),  # too much between
    ],
)
def test_kernels_between_two_products_with_a_softmax(names, inside):
    mask, count = unfused_attention(names, np.zeros(len(names)), np.arange(len(names)))
    assert (np.flatnonzero(mask).tolist(), count) == (inside, bool(inside))


def test_the_order_is_that_of_each_stream():
    names = [SOFTMAX, GEMM, GEMM, GEMM, SOFTMAX]  # stream 1: product, softmax, product; stream 2: product, softmax
    mask, count = unfused_attention(names, np.array([1, 1, 1, 2, 2]), np.array([5, 9, 1, 2, 3]))
    assert mask.tolist() == [True, False, False, False, False] and count == 1
