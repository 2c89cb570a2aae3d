"""Texts that come by the million are numbered as single ones are."""

import numpy as np
import pyarrow as pa

from xsp_post.ingest.nsys_strings import Interner, numbers


def strings() -> Interner:
    return Interner(np.array([1, 2], np.int64), pa.array([b"gemm", b"relu"], pa.binary()))


def inline(texts: Interner, *values: bytes) -> list[int]:
    return texts.inline(pa.chunked_array([pa.array(list(values), pa.binary())])).tolist()


def test_a_text_has_one_number_wherever_it_comes_from():
    texts = strings()
    assert texts.by_number(np.array([2, 1, 2])).tolist() == [0, 1, 0]
    assert inline(texts, b"x, op_id = 1", b"relu", b"", b"x, op_id = 2", b"x, op_id = 1") == [2, 0, -1, 3, 2]
    assert inline(texts, b"gemm", b"x, op_id = 2", b"y") == [1, 3, 4]
    assert [texts.text("y"), texts.text("new"), texts.text("x, op_id = 1")] == [4, 5, 2]
    assert list(texts.texts) == ["relu", "gemm", "x, op_id = 1", "x, op_id = 2", "y", "new"]


def test_bytes_that_are_no_text_may_be_the_same_text():
    texts = strings()
    assert inline(texts, b"a\xff", b"a\xfe", b"b") == [0, 0, 1]
    assert texts.bad_bytes_count == 2
    assert inline(texts) == []


def test_pieces_of_a_column_are_read_as_they_are():
    one, other, none = pa.array([4, 4]), pa.array([4, 5]), pa.array([4, 5])[:0]
    for pieces in ([none, none], [one, one[:1]], [other[:1], other], [one, other, none]):
        column = pa.chunked_array(pieces, pa.int64())
        assert numbers(pa.table({"a": column}), "a", np.int32).tolist() == column.to_pylist()
