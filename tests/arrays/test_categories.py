"""Columns of texts by number."""

import numpy as np
import pyarrow as pa
import pytest

from xsp_post.arrays.texts import Texts, categorical

WORDS = ["gemm", "conv", "gemm", "relu"]


@pytest.mark.parametrize("words", [np.array(WORDS, object), Texts(pa.array(WORDS, pa.large_string()))])
def test_a_column_holds_only_the_texts_in_use_each_once(words):
    column = categorical(np.array([3, 0, -1, 2, 3]), words)
    assert list(column) == ["relu", "gemm", "", "gemm", "relu"]
    assert list(column.categories) == ["relu", "gemm", ""]


def test_numbers_go_on_in_the_next_texts():
    more = np.array(["[capture]"], object)
    assert list(categorical(np.array([4, 1, -1]), np.array(WORDS, object), more)) == ["[capture]", "conv", ""]
    assert list(categorical(np.array([-1]), np.zeros(0, object))) == [""]


def test_columns_of_the_same_numbers_share_their_texts():
    words = Texts(pa.array(WORDS[:2], pa.large_string()))
    one, other = categorical(np.array([1, 0, 1]), words), categorical(np.array([1, 0]), words)
    assert one.categories is other.categories
    assert list(categorical(np.array([0, 1]), words).categories) == WORDS[:2]
