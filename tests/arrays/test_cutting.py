"""Different numbers and pairs: as NumPy finds them."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_post.arrays.cutting import distinct, distinct_pairs


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_different_numbers_and_pairs_as_numpy_finds_them(count):
    pairs = np.random.default_rng(count).integers(0, 30, (count, 2))
    assert distinct(pairs[:, 0]).tolist() == np.unique(pairs[:, 0]).tolist()
    assert distinct_pairs(pairs).tolist() == np.unique(pairs, axis=0).tolist()
