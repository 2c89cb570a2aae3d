"""Different numbers and pairs: as NumPy finds them."""

from __future__ import annotations

import numpy as np
import pytest

from xsp_post.arrays.cutting import distinct, distinct_pairs, shares


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_different_numbers_and_pairs_as_numpy_finds_them(count):
    pairs = np.random.default_rng(count).integers(0, 30, (count, 2))
    assert distinct(pairs[:, 0]).tolist() == np.unique(pairs[:, 0]).tolist()
    assert distinct_pairs(pairs).tolist() == np.unique(pairs, axis=0).tolist()


def test_a_sample_of_one_nanosecond_is_filled_whole_and_one_of_none_not_at_all():
    none = np.zeros(1, np.int64)
    found = shares(none, none, none + 10, np.array([2, 5, 8]), np.array([3, 5, 12]))
    assert (found.sample.tolist(), found.length.tolist()) == ([0, 1, 2], [1, 0, 2])
    assert found.ratio.tolist() == [1.0, 0.0, 0.5]
