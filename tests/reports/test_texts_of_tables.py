"""Columns of shortened names are columns of texts, so that texts can be put before and behind them.

pandas 3.0 adds no column of objects to one of texts, and the empty ones of a run without kernels are such.
"""

from __future__ import annotations

import pandas as pd
import pytest

from xsp_post.reports.blocks import present
from xsp_post.reports.text import short_kernels


@pytest.mark.parametrize("names", [[], ["void a<int>(int)"], ["void a<int>(int)", "void a<int>(int)", "b"]])
def test_shortened_names_are_texts(names):
    shown = short_kernels(pd.Series(names, dtype=object), 60)
    assert shown.dtype == pd.Series(["a"], dtype=str).dtype
    assert (pd.Series(["x"] * len(names), dtype=str) + shown + " y").tolist() == [f"x{one} y" for one in shown]


def test_a_column_in_which_nothing_is_known_has_no_place():
    """−1 is how a column of integers that may be unknown says so; of others it is a number."""
    frame = pd.DataFrame({"rank": [-1, 0], "last_count": [-1, -1], "matched_count": [-1, 3], "busy_ns": [0, 0]})
    assert present(frame, tuple(frame)) == ("rank", "matched_count", "busy_ns")
