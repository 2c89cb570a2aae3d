"""Patterns over columns of texts."""

import re

import pandas as pd
import pytest

from xsp_post.names.patterns import found_in_column

TEXTS = ["host to device", "unified host to device", "", None, "device to device", "unified host to device"]


@pytest.mark.parametrize("dtype", [object, "category"])
@pytest.mark.parametrize("pattern", ["unified", "^host|e$", "n", "nothing of it"])
def test_a_column_is_searched_as_each_of_its_texts(dtype, pattern):
    found = found_in_column(pd.Series(TEXTS, dtype=dtype), pattern)
    assert found.tolist() == [one is not None and re.search(pattern, one) is not None for one in TEXTS]
    assert found_in_column(pd.Series(TEXTS[:0], dtype=dtype), pattern).tolist() == []
