"""Texts as Arrow holds them are read like an array of objects."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from xsp_post.arrays.texts import Texts, taken, with_more

WORDS = np.array(["conv", "", "relu é", "gemm"], object)


@pytest.fixture
def texts() -> Texts:
    return Texts(pa.array(WORDS, pa.large_string()))


@pytest.mark.parametrize("at", [[2, 0, 0], [-1, 1], [True, False, False, True], [3]])
def test_they_give_what_an_array_gives(texts, at):
    assert texts[np.array(at)].tolist() == WORDS[np.array(at)].tolist()
    assert texts[pd.Series(at)].dtype == object
    assert [texts[number] for number in np.flatnonzero(at)] == [WORDS[number] for number in np.flatnonzero(at)]


def test_one_is_a_text_and_all_are_an_array(texts):
    assert texts[np.int32(2)] == texts[-2] == "relu é"
    assert np.append(texts, "end").tolist() == [*WORDS, "end"]
    assert (len(texts), list(texts), "gemm" in texts) == (4, WORDS.tolist(), True)
    with pytest.raises(IndexError):
        texts[4]


@pytest.mark.parametrize("numbers", [[], [0, 1, 2], [1, 2, 3], [-1, 0, 1], [2, -1], [3, 1]])
def test_taken_and_with_more_agree_for_both_kinds(texts, numbers):
    numbers = np.array(numbers, np.int64)
    expected = [WORDS[number] if number >= 0 else "none" for number in numbers]
    assert [list(map(str, taken(kind, numbers, "none"))) for kind in (texts, WORDS)] == [expected] * 2
    assert with_more(texts, ["x"]).tolist() == with_more(WORDS, ["x"]).tolist() == [*WORDS, "x"]
    assert with_more(texts, []) is texts
