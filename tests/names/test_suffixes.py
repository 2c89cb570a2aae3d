"""Suffixes of texts cut from their bytes are those that the pattern finds."""

from __future__ import annotations

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


def test_a_part_of_other_texts_is_cut_alone():
    array = pa.array([f"mm, seq = {k}, op_id = {10**k}" for k in range(10)] + ["layer.1"], pa.large_string())
    cut = suffixes.cut_suffix(array.slice(1))
    assert cut.heads.to_pylist() == ["mm"] * 9 + ["layer.1"]
    assert cut.sequence.tolist() == [*range(1, 10), -1] and cut.op_id.tolist() == [*(10**k for k in range(1, 10)), -1]
    assert cut.has_suffix.tolist() == [True] * 9 + [False]


@pytest.mark.parametrize("text", ["mm, op_id =3", "op_id = 3", ""])
def test_texts_without_such_a_suffix_stay_whole(text):
    cut = suffixes.cut_suffix(pa.array([text], pa.large_string()))
    assert cut.heads.to_pylist() == [text] and cut.op_id.tolist() == [-1]


def test_a_pattern_is_asked_for_texts_with_more_behind_their_name_alone(monkeypatch):
    asked = []
    by_pattern = suffixes.cut_by_pattern
    monkeypatch.setattr(suffixes, "cut_by_pattern", lambda some: asked.extend(some.to_pylist()) or by_pattern(some))
    texts = ["mm, seq = 1, op_id = 2", "a, b, op_id = 3", "mm, sizes = [[1, 2]]", "mm"]
    cut = suffixes.cut_suffix(pa.array(texts, pa.large_string()))
    assert cut.heads.to_pylist() == ["mm", "a, b", "mm", "mm"] and asked == texts[1:3]
