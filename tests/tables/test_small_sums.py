"""Small steps of the analyses: utilisation by pipe, numbers for equal keys, late ranks without collectives."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.tables.analyses.frames import dense
from xsp_post.tables.analyses.ranks import STRAGGLER_EXCESS_RATIO, _stragglers


@examples(100)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(5, 5), st.sampled_from([0, 1 << 61, -(1 << 61)])), max_size=30)
)
def test_equal_keys_have_equal_numbers_by_first_appearance(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows)] or [np.zeros(0, np.int64)] * 3
    group, first = dense(*columns)
    order = list(dict.fromkeys(rows))
    assert group.tolist() == [order.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in order]


def test_a_rank_at_the_limit_is_no_straggler():
    frame = pd.DataFrame({"compute_excess_ratio": [STRAGGLER_EXCESS_RATIO, 2 * STRAGGLER_EXCESS_RATIO, -1.0]})
    nothing_met = pd.DataFrame({"meeting_index": [-1]})
    assert _stragglers(frame, nothing_met).tolist() == [False, True, False]
