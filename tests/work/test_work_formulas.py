"""The least work of one operator call, by hand values and by torch's own flop counter."""

from __future__ import annotations

import json

import pytest

from xsp_post.work.catalogue import is_known, is_wrapper, work_of
from xsp_post.work.convolutions import read_positions
from xsp_post.work.signature import read_signature
from xsp_post.work.steps import read_steps


def record(dims, types=None, values=None, strides=None, message=None):
    types = types if types is not None else ["float" if one else "Scalar" for one in dims]
    values = values if values is not None else [""] * len(dims)
    parts = [dims, types, strides or [], values]
    return json.dumps(parts if message is None else [*parts, message])


def test_a_product_is_two_flop_per_multiply_add_and_moves_each_matrix_once():
    found = work_of("aten::mm", record([[8, 16], [16, 32]]))
    assert (found.flop, found.read_bytes, found.written_bytes) == (2 * 8 * 16 * 32, 4 * (128 + 512), 4 * 256)
    assert found.operand == "fp32"


def test_an_addend_is_an_element_operation_and_not_flop():
    text = record([[32], [8, 16], [16, 32], [], []], values=["", "", "", "1", "1"])
    found = work_of("aten::addmm", text)
    assert (found.flop, found.element_operations) == (8192, 8 * 32)
    assert found.least_bytes == 4 * (32 + 128 + 512 + 256)
    unread = work_of("aten::addmm", record([[8, 32], [8, 16], [16, 32], [], []], values=["", "", "", "0", "1"]))
    assert unread.least_bytes == 4 * (128 + 512 + 256)


def test_products_of_mixed_types_name_the_wider_operand():
    found = work_of("aten::mm", record([[8, 16], [16, 32]], ["c10::BFloat16", "c10::Float8_e4m3fn"]))
    assert found.operand == "bf16"


def test_a_batch_is_broadcast_and_an_expanded_tensor_is_read_once():
    text = record([[12, 8, 16], [12, 16, 4]], strides=[[128, 16, 1], [0, 4, 1]])
    found = work_of("aten::bmm", text)
    assert found.flop == 12 * 2 * 8 * 16 * 4
    assert found.read_bytes == 4 * (12 * 128 + 64)


def test_sizes_that_do_not_fit_say_nothing():
    assert work_of("aten::mm", record([[8, 16], [15, 32]])) is None
    assert work_of("aten::mm", record([[8, 16]])) is None
    assert work_of("aten::mm", "[[8, 16") is None
    assert work_of("aten::nobody_knows", record([[8, 16]])) is None


@pytest.mark.parametrize(
    ("dims", "stride", "groups", "flop", "read"),
    [
        ([[1, 64, 56, 56], [256, 64, 1, 1]], 1, 1, 2 * 56 * 56 * 256 * 64, 64 * 56 * 56),
        ([[1, 64, 56, 56], [256, 64, 1, 1]], 2, 1, 2 * 28 * 28 * 256 * 64, 64 * 28 * 28),  # reads what it reads
        ([[1, 32, 112, 112], [32, 1, 3, 3]], 1, 32, 2 * 112 * 112 * 32 * 9, 32 * 112 * 112),
    ],
)
def test_convolutions(dims, stride, groups, flop, read):
    pad = (dims[1][2] - 1) // 2
    values = ["", "", "", f"[{stride}, {stride}]", f"[{pad}, {pad}]", "[1, 1]", "False", "[0, 0]", str(groups)]
    types = ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
    found = work_of("aten::convolution", record([*dims, *[[]] * 7], types, values))
    weight = dims[1][0] * dims[1][1] * dims[1][2] * dims[1][3]
    assert found.flop == flop
    assert found.read_bytes == 4 * (read + weight)


@pytest.mark.parametrize("case", [(9, 3, 2, 1, 1), (9, 1, 2, 0, 1), (10, 2, 3, 0, 1), (7, 3, 5, 1, 1), (8, 3, 4, 2, 1)])
def test_positions_that_a_convolution_reads_are_those_that_some_output_needs(case):
    size, width, step, pad, hole = case
    outputs = (size + 2 * pad - hole * (width - 1) - 1) // step + 1
    needed = {i * step - pad + k * hole for i in range(outputs) for k in range(width)}
    assert read_positions(*case) == len([one for one in needed if 0 <= one < size])


def test_without_a_stride_nothing_is_said_of_a_convolution():
    assert work_of("aten::convolution", "[[1, 64, 56, 56], [256, 64, 3, 3]]") is None  # emit_nvtx


def test_gradients_of_a_convolution_follow_the_mask():
    def backward(mask):
        dims = [[2, 8, 4, 4], [2, 4, 9, 9], [8, 2, 3, 3], *[[]] * 8]
        types = ["float"] * 3 + ["ScalarList"] * 8
        values = ["", "", "", "[8]", "[2, 2]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "2", mask]
        return work_of("aten::convolution_backward", record(dims, types, values))

    forward = 2 * 2 * 8 * 16 * 2 * 9
    assert backward("[True, True, False]").flop == 2 * forward
    assert backward("[False, True, True]").flop == forward
    assert backward("[False, True, True]").element_operations == 2 * 8 * 16


def test_a_causal_mask_leaves_the_lower_triangle():
    types = ["c10::Half"] * 3 + ["Scalar"] * 4

    def flash(is_causal):
        text = record([[2, 4, 100, 64]] * 3 + [[]] * 4, types, ["", "", "", "0.", str(is_causal), "False", "0.1"])
        return work_of("aten::_scaled_dot_product_flash_attention", text)

    assert flash(False).flop == 2 * 4 * 100 * 100 * 2 * 128
    assert flash(True).flop == 2 * 4 * (100 * 101 // 2) * 2 * 128
    assert flash(True).least_bytes == 4 * 2 * 2 * 4 * 100 * 64


def test_paged_attention_needs_the_lengths_of_the_step():
    text = record([[3, 8, 64], [3, 2, 64], [3, 2, 64], [3, 8, 64]], ["c10::BFloat16"] * 4)
    assert work_of("vllm::unified_attention_with_output", text) is None
    [step] = read_steps(["execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk600sqsq3sqsk600)"])
    found = work_of("vllm::unified_attention_with_output", text, step=step)
    assert found.flop == 2 * 8 * 128 * 600
    assert found.read_bytes == 2 * (3 * 8 * 64 + 600 * 2 * 128)


def test_a_prefill_of_whole_prompts_sees_a_triangle_each():
    lengths = [5, 11, 100]
    sums = f"sq{sum(lengths)}sk{sum(lengths)}sqsq{sum(n * n for n in lengths)}sqsk{sum(n * n for n in lengths)}"
    [step] = read_steps([f"execute_116_context_3({sums})_generation_0(sq0sk0sqsq0sqsk0)"])
    assert step.pair_count == sum(n * (n + 1) // 2 for n in lengths)
    assert read_steps(["execute_32_context_0_generation_32", "ProfilerStep#3"]) == [None, None]


def test_experts_are_read_once_and_every_token_meets_its_choices():
    dims = [[16, 128], [8, 512, 128], [8, 128, 256], [16, 2], [16, 2]]
    types = ["c10::BFloat16"] * 3 + ["float", "int"]
    found = work_of("vllm::outplace_fused_experts", record(dims, types))
    rows = 16 * 2
    assert found.flop == 2 * rows * 128 * 512 + 2 * rows * 256 * 128
    chosen = 8 * (1 - 0.75**16)  # of eight experts, by sixteen tokens that choose two each
    assert found.read_bytes == pytest.approx(2 * (16 * 128 + chosen * (512 * 128 + 128 * 256)))


def test_an_embedding_reads_the_rows_that_are_looked_up():
    found = work_of(
        "aten::index_select", record([[50000, 64], [], [10]], ["float", "Scalar", "long int"], ["", "0", ""])
    )
    assert (found.flop, found.read_bytes, found.written_bytes) == (0, 10 * 64 * 4 + 80, 10 * 64 * 4)


def test_writes_by_index_are_as_many_as_the_values():
    put = ["float", "", "float", "Scalar"]
    sizes = [[1000, 64], [], [10, 64], []]
    found = work_of("aten::_index_put_impl_", record(sizes, put, ["", "", "", "False"]))
    assert (found.flop, found.read_bytes, found.written_bytes) == (0, 2560, 2560)
    added = work_of("aten::_index_put_impl_", record(sizes, put, ["", "", "", "True"]))
    assert (added.read_bytes, added.written_bytes, added.element_operations) == (5120, 2560, 640)
    assert work_of("aten::_index_put_impl_", record([[1000, 64], [], [1], []], put)) is None  # a fill, of how many?
    types = ["float", "Scalar", "long int", "float"]
    found = work_of("aten::scatter_", record([[100, 64], [], [10, 64], [10, 64]], types, ["", "0", "", ""]))
    assert (found.read_bytes, found.written_bytes) == (640 * 8 + 640 * 4, 640 * 4)
    filled = work_of(
        "aten::scatter_", record([[100, 64], [], [10, 64], []], types[:3] + ["Scalar"], ["", "0", "", "1"])
    )
    assert (filled.read_bytes, filled.written_bytes) == (640 * 8, 640 * 4)
    found = work_of("aten::scatter_add_", record([[100, 64], [], [10, 64], [10, 64]], types, ["", "0", "", ""]))
    assert (found.read_bytes, found.element_operations) == (640 * 8 + 2 * 640 * 4, 640)


def test_reads_by_index_are_known_where_the_indices_are():
    found = work_of("aten::index", record([[1000, 64], [[10]]], ["float", ""]))
    assert (found.flop, found.read_bytes, found.written_bytes) == (0, 10 * 64 * 4 + 80, 10 * 64 * 4)
    pairs = work_of("aten::index", record([[1000, 64, 2], [[10], [10]]], ["float", ""]))
    assert pairs.written_bytes == 10 * 2 * 4
    assert work_of("aten::index", record([[1000, 64], []], ["float", ""])) is None  # the list is not recorded
    assert work_of("aten::index", record([[1000, 64], [[1000, 64]]], ["float", ""])) is None  # a mask, perhaps


def test_a_reduction_writes_what_remains():
    text = record([[4, 8, 16], [], [], []], ["float", "ScalarList", "Scalar", ""], ["", "[-1]", "True", ""])
    assert work_of("aten::mean", text).written_bytes == 4 * 32


def test_a_collective_is_its_message():
    message = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 10, "Out msg nelems": 10}
    found = work_of("record_param_comms", record([], [], [], [], message))
    assert (found.least_bytes, found.note, found.flop) == (40, "allreduce", 0)


def test_element_types_that_are_not_said_are_unknown_or_assumed_and_said():
    text = record([[[4, 8], [4, 8]], []], ["TensorList", "Scalar"], ["", "0"])
    assert work_of("aten::cat", text).least_bytes is None
    assumed = work_of("aten::cat", text, assumed_type="fp16")
    assert (assumed.least_bytes, assumed.note) == (2 * 2 * 64, "element type taken as fp16")


def test_wrappers_are_known_as_such():
    assert is_wrapper("aten::linear") and is_wrapper("aten::convolution") and not is_wrapper("aten::addmm")
    assert is_known("triton_poi_fused_add_0") and not is_known("aten::view")


@pytest.mark.parametrize("text", ["", "[", "[[[[[]]]]]", "[1]", '{"a": 1}', "[[-1, 4]]", "[[1e400]]", "[" * 5000])
def test_any_text_is_read_or_refused(text):
    read_signature("aten::mm", text)
    assert work_of("aten::mm", text) is None
