"""Rows of the printed tree: which ranges lie in those that are asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xsp_post.reports import tree_rows


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reach", [1, 3, 200])
def test_what_lies_in_the_chosen_rows(seed: int, reach: int) -> None:
    rng = np.random.default_rng(seed)
    ids = np.arange(7, 207)
    parents = np.array([-1, *(ids[max(0, row - rng.integers(1, reach + 1))] for row in range(1, len(ids)))])
    order = rng.permutation(len(ids))  # as shown: not by depth
    rows = tree_rows._Rows.__new__(tree_rows._Rows)
    rows.rows, rows.parents = pd.DataFrame({"path_id": ids[order]}), parents[order]
    chosen = rng.random(len(ids)) < 0.05
    by_id = dict(zip(ids[order].tolist(), chosen.tolist()))
    parent_of = dict(zip(ids.tolist(), parents.tolist()))

    def is_below(one: int) -> bool:
        while one >= 0:
            if by_id[one]:
                return True
            one = parent_of[one]
        return False

    assert rows._below(chosen).tolist() == [is_below(one) for one in ids[order].tolist()]
