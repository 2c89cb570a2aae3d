"""Bytes of operators that memory limits: each tensor in and out once, counted by hand. 4 bytes where not stated."""

from __future__ import annotations

import json

import pytest

from xsp_post.work.catalogue import work_of

HALF, FLOAT, DOUBLE, LONG, BOOL = "c10::Half", "float", "double", "long int", "bool"


def work(operator, dims, types=None, values=None, strides=None):
    types = types or [FLOAT if one else "Scalar" for one in dims]
    return work_of(operator, json.dumps([dims, types, strides or [], values or [""] * len(dims)]))


@pytest.mark.parametrize(
    ("operator", "dims", "types", "read", "written", "operations"),
    [
        ("aten::add", [[8, 16], [8, 16], []], None, 4 * 256, 4 * 128, 128),
        ("aten::relu_", [[8, 16]], None, 4 * 128, 4 * 128, 128),
        ("aten::mul", [[8, 16], [16]], None, 4 * (128 + 16), 4 * 128, 128),
        ("aten::mul", [[8, 1], [1, 16]], None, 4 * (8 + 16), 4 * 128, 128),
        ("aten::add", [[3, 8, 1], [8, 16]], None, 4 * (24 + 128), 4 * 384, 384),
        ("aten::add", [[8], [8]], [HALF, FLOAT], 2 * 8 + 4 * 8, 4 * 8, 8),  # the result is of the wider type
        ("aten::add", [[8], [8]], [LONG, HALF], 8 * 8 + 2 * 8, 2 * 8, 8),  # floating before integer
        ("aten::eq", [[8, 16], [8, 16]], None, 4 * 256, 128, 128),  # of bool
        ("aten::add", [[0, 16], [1, 16]], None, 4 * 16, 0, 0),
    ],
)
def test_element_by_element(operator, dims, types, read, written, operations):
    found = work(operator, dims, types)
    assert (found.read_bytes, found.written_bytes) == (read, written)
    assert (found.flop, found.element_operations, found.family) == (0, operations, "elementwise")
    assert found.least_bytes == read + written


def test_an_expanded_tensor_is_read_once():
    assert work("aten::add", [[8, 16], [8, 16]], strides=[[16, 1], [0, 1]]).read_bytes == 4 * (128 + 16)


def test_copies_and_fills():
    copied = work("aten::copy_", [[8, 16], [8, 16], []], [FLOAT, HALF, "Scalar"])
    assert (copied.read_bytes, copied.written_bytes, copied.element_operations) == (2 * 128, 4 * 128, 0)
    filled = work("aten::fill_", [[8, 16], []])
    assert (filled.read_bytes, filled.written_bytes) == (0, 4 * 128)
    cloned = work("aten::clone", [[8, 16], []], [HALF, "Scalar"])
    assert (cloned.read_bytes, cloned.written_bytes) == (2 * 128, 2 * 128)


def test_normalisation_and_softmax():
    normed = work("aten::native_layer_norm", [[8, 16], [], [16], [16], []])
    assert (normed.read_bytes, normed.written_bytes, normed.family) == (4 * 160, 4 * 128, "normalisation")
    soft = work("aten::_softmax", [[8, 16], [], []], values=["", "-1", "False"])
    assert (soft.read_bytes, soft.written_bytes) == (4 * 128, 4 * 128)
    back = work("aten::_softmax_backward_data", [[8, 16], [8, 16], [], []])
    assert (back.read_bytes, back.written_bytes) == (4 * 256, 4 * 128)


def test_reductions_write_what_remains():
    for values, kept in ((["", "[1]"], 8), (["", "[-2]"], 16), (["", "[0, 1]"], 1), (["", ""], 1), (["", "[7]"], 1)):
        found = work("aten::sum", [[8, 16], []], [HALF, "ScalarList"], values)
        assert (found.read_bytes, found.written_bytes, found.element_operations) == (2 * 128, 2 * kept, 128)
    sums = work("aten::cumsum", [[8, 16], []])
    assert (sums.read_bytes, sums.written_bytes) == (4 * 128, 4 * 128)
    top = work("aten::topk", [[8, 16], [], []], values=["", "3", "-1"])
    assert (top.read_bytes, top.written_bytes) == (4 * 128, 8 * 3 * (4 + 8))


def test_dropout_writes_a_mask_of_one_byte():
    found = work("aten::native_dropout", [[8, 16], [], []], [HALF, "Scalar", "Scalar"])
    assert (found.read_bytes, found.written_bytes) == (2 * 128, 2 * 128 + 128)
