"""Forests by parents: sums, ancestors and descendants as plain loops find them, for any order and depth of nodes."""

import numpy as np
import pytest

from xsp_post.arrays.forest import Forest, forest_of
from xsp_post.arrays.rollup import add_up


def test_a_chain_of_100_000():
    count = 100_000
    forest = Forest(np.arange(-1, count - 1))
    assert (forest.add_up(np.ones(count, np.int64)) == np.arange(count, 0, -1)).all()
    assert (forest.depth() == np.arange(count)).all()
    every_tenth = np.arange(count) % 10 == 3
    assert (forest.nearest(every_tenth)[3:] == np.arange(count - 3) // 10 * 10 + 3).all()
    assert forest.inside(every_tenth).sum() == count - 4


def _ancestors(parent, row):
    while parent[row] >= 0:
        row = parent[row]
        yield row


@pytest.mark.parametrize("seed", range(12))
def test_trees_equal_loops(seed):
    rng = np.random.default_rng(seed)
    count = [0, 1, 40, 90][seed % 4]
    depth_step = 3 if seed % 2 else count  # long chains, or bushes
    parent = np.array([rng.integers(max(-1, row - depth_step), row) if row else -1 for row in range(count)], np.int64)
    if seed > 3:  # any order: parents after their children, too
        number = rng.permutation(count)
        shuffled = np.full(count, -1, np.int64)
        shuffled[number] = np.where(parent >= 0, number[parent] if count else parent, -1)
        parent = shuffled
    values, mask = rng.integers(-50, 2**60, count), rng.random(count) < 0.3
    above = [list(_ancestors(parent, row)) for row in range(count)]
    forest = Forest(parent)
    expected = values.copy()
    around, inside = np.zeros(count, bool), np.array([mask[rows].any() for rows in above], bool)
    for row, rows in enumerate(above):
        expected[rows] += values[row]
        around[rows] |= mask[row]
    nearest = [next((one for one in [row, *rows] if mask[one]), -1) for row, rows in enumerate(above)]
    outermost = [next((one for one in [row, *rows][::-1] if mask[one]), -1) for row, rows in enumerate(above)]
    assert (forest.add_up(values) == expected).all()
    assert (forest.add_down(values) == [values[[row, *rows]].sum() for row, rows in enumerate(above)]).all()
    assert (forest.depth() == [len(rows) for rows in above]).all()
    assert (forest.inside(mask) == inside).all()
    assert (forest.around(mask) == around).all()
    assert (forest.nearest(mask) == nearest).all()
    assert (forest.outermost_around(mask) == outermost).all()


def test_a_changed_array_is_another_forest():
    parent = np.array([-1, 0, 0, 1])
    assert add_up(np.ones(4, np.int64), parent).tolist() == [4, 2, 1, 1]
    assert forest_of(parent.copy()) is forest_of(parent)
    parent[3] = 2
    assert add_up(np.ones(4, np.int64), parent).tolist() == [4, 1, 2, 1]
