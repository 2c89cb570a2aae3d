"""Loops of a sequence: nested, of varying counts, and none where nothing repeats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sequences import noisy_turns

from xsp_post.tree.structure.constants import DEFAULTS
from xsp_post.tree.structure.fold import agreement, find_loops


def dense(symbols):
    return np.unique(symbols, return_inverse=True)[1].astype(np.int64)


def turns(loops, kind):
    """Start of every turn of a kind, ascending."""
    return np.sort(loops.turn_start[np.repeat(loops.kind, loops.count) == kind]).tolist()


@given(st.integers(4, 12), st.integers(4, 9), st.integers(0, 6), st.integers(0, 6))
def test_a_loop_is_found_where_it_is(period, count, before, after):
    parts = [100 + np.arange(before), np.tile(np.arange(period), count), 200 + np.arange(after)]
    loops = find_loops(dense(np.concatenate(parts)), DEFAULTS)
    assert loops.count.tolist() == [count]
    assert (loops.start.tolist(), loops.end.tolist()) == ([before], [before + period * count])


@pytest.mark.parametrize("period", [4, 5, 6, 8, 13])
def test_short_turns_are_found_to_the_last_one(period):
    loops = find_loops(dense(np.concatenate([[97, 98], np.tile(np.arange(period), 40), [99]])), DEFAULTS)
    assert loops.turn_start.tolist() == (2 + period * np.arange(40)).tolist()


def test_nested_loops_with_any_number_of_inner_turns():
    """The experts of a layer run two to six times; each layer is a turn all the same, and so is each pass."""
    rng = np.random.default_rng(0)
    layers = [np.r_[1, 2, 3, 4, 5, 6, np.tile([20, 21, 22, 23, 24], rng.integers(2, 7)), 9] for _ in range(24)]
    passes = [np.r_[100, np.concatenate(layers[k : k + 8]), 101] for k in (0, 8, 16)]
    loops = find_loops(dense(np.concatenate(passes)), DEFAULTS)
    starts = np.cumsum([0] + [len(one) for one in passes])
    assert turns(loops, int(loops.kind[-1])) == starts[:-1].tolist()
    layer = int(loops.kind[np.flatnonzero(loops.count == 8)[0]])
    sizes = np.cumsum([len(one) for one in layers]) + np.repeat([1, 3, 5], 8)
    assert turns(loops, layer) == np.r_[1, sizes[:-1] + np.where(np.diff(np.repeat([1, 3, 5], 8)) > 0, 2, 0)].tolist()


def test_requests_with_any_number_of_tokens():
    prefill, token = np.r_[np.tile(np.arange(10, 16), 6), 50], np.r_[np.tile(np.arange(6), 6), 50]
    sequence = [np.concatenate([prefill, *[token] * count]) for count in (5, 9, 3)]
    loops = find_loops(dense(np.concatenate(sequence)), DEFAULTS)
    assert turns(loops, int(loops.kind[-1])) == np.cumsum([0] + [len(one) for one in sequence])[:-1].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_turns_hold_at_one_percent_noise(seed):
    truth = noisy_turns(seed, kinds=30, block=20, blocks=1, turns=60, noise=0.01)
    loops = find_loops(dense(truth.symbols), DEFAULTS)
    bounds = np.r_[loops.turn_start, loops.turn_end]
    off = np.abs(truth.iterations[:, None] - bounds[None, :]).min(axis=1)
    assert (off <= 1).mean() >= 0.96


@given(st.integers(0, 10_000), st.integers(2, 60), st.integers(30, 4000))
def test_nothing_repeats_in_a_random_sequence(seed, kinds, size):
    symbols = np.random.default_rng(seed).integers(0, kinds, size)
    loops = find_loops(dense(symbols), DEFAULTS)
    assert (loops.end - loops.start).sum() < 0.5 * size


def test_what_is_moved_agrees_still():
    one = np.arange(40)
    assert agreement(one, one, 1) == 40
    assert agreement(np.delete(one, 20), one, 2) == 39
    assert agreement(one[::-1].copy(), one, 2) == 0
