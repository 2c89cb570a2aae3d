"""Sums over trees deeper than a call stack: the same numbers, in passes that grow with the logarithm of the depth."""

import numpy as np
import pytest

from xsp_post.arrays.rollup import add_up


def test_a_chain_of_100_000():
    count = 100_000
    found = add_up(np.ones(count, np.int64), np.arange(-1, count - 1), np.arange(count))
    assert (found == np.arange(count, 0, -1)).all()


@pytest.mark.parametrize("seed", range(5))
def test_deep_trees_equal_a_loop(seed):
    rng = np.random.default_rng(seed)
    count = 400
    parent = np.array([-1, *(max(0, row - int(rng.integers(1, 4))) for row in range(1, count))])
    depth = np.zeros(count, np.int64)
    values = rng.integers(-50, 10**6, count)
    expected = values.copy()
    for row in range(1, count):
        depth[row] = depth[parent[row]] + 1
    for row in range(count - 1, 0, -1):
        expected[parent[row]] += expected[row]
    assert depth.max() > 64
    assert (add_up(values, parent, depth) == expected).all()
