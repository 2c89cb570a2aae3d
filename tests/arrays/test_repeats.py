"""Texts that repeat but for their digits."""

from __future__ import annotations

import pandas as pd
import pytest

from xsp_post.arrays.repeats import without_numbers


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_texts_that_differ_in_digits_share_a_number(dtype):
    names = pd.Series(["layer 1", "layer 22", "loss", "layer x"], dtype=dtype)
    together = pd.concat([names[:2], names[2:]])  # Arrow keeps the parts apart
    for texts in (names, together, together.astype("str")):
        codes, has_number = without_numbers(texts)
        assert codes.tolist() == [0, 0, 1, 2] and has_number.tolist() == [True, True, False, False]
