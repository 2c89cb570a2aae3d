"""Suffixes of texts cut from their bytes are those that the pattern finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xsp_post.names import suffixes

PARTS = ["aten::mm", "a,b", ", seq = 3", ", op_id = 77", ", seq = 0012", ", sizes = [[1, 2]]", ", op_id = -4", "é",
         ", op_id = 1234567890123456789", "9", ", input_op_ids = ", "\n", ", seq = ", " ", ", op_id = "]  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=4).map("".join), max_size=12)


def columns(cut):
    head, sequence, op_id, sizes, has_suffix = cut
    texts = sizes.to_pylist() if sizes is not None else [""] * len(head)
    return head.to_pylist(), sequence.tolist(), op_id.tolist(), texts, has_suffix.tolist()


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_the_same_as_by_pattern(texts):
    array = pa.array(texts, pa.large_string())
    assert columns(suffixes.cut_suffix(array)) == columns(suffixes.cut_by_pattern(array))


def test_many_texts_are_cut_in_pieces(monkeypatch):
    monkeypatch.setattr(suffixes, "_AT_ONCE", 3)
    array = pa.array([f"mm, seq = {k}, op_id = {10**k}" for k in range(10)] + ["layer.1"], pa.large_string())
    cut = suffixes.cut_plain(array.slice(1))
    assert cut.heads.to_pylist() == ["mm"] * 9 + ["layer.1"]
    assert cut.sequence.tolist() == [*range(1, 10), -1] and cut.op_id.tolist() == [*(10**k for k in range(1, 10)), -1]
    assert cut.is_cut.tolist() == [True] * 9 + [False]


@pytest.mark.parametrize("text", ["mm, op_id = " + "9" * 19, "a, b, op_id = 3", "mm, op_id =3", "op_id = 3", ""])
def test_texts_of_another_kind_stay_whole(text):
    cut = suffixes.cut_plain(pa.array([text], pa.large_string()))
    assert cut.heads.to_pylist() == [text] and not cut.is_cut.any() and np.array_equal(cut.op_id, [-1])
