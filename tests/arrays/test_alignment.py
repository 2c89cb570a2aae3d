"""Alignment of launch sequences: pieces, repeats, edits, and nothing found by chance."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays.alignment import align

BLOCK = np.random.default_rng(0).integers(0, 10, 57)
PASS = np.r_[[90, 91], np.tile(BLOCK, 32), [92]]  # a head, 32 equal blocks, a tail


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200))
def test_a_sequence_aligns_with_itself(symbols):
    assert align(np.array(symbols), np.array(symbols)).tolist() == list(range(len(symbols)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80), st.lists(st.integers(0, 3), max_size=120))
def test_only_equal_symbols_are_aligned(known, other):
    found = align(np.array(known, np.int64), np.array(other, np.int64))
    hit = found >= 0
    assert (np.array(known)[found[hit]] == np.array(other, np.int64)[hit]).all()


def test_a_program_that_ran_once_is_found_in_each_of_its_repeats():
    assert (align(PASS, np.tile(PASS, 4)) == np.tile(np.arange(len(PASS)), 4)).all()


def test_one_different_launch_costs_one_launch():
    other = np.tile(PASS, 4)
    other[500] = 77
    found = align(PASS, other)
    expected = np.tile(np.arange(len(PASS)), 4)
    expected[500] = -1
    assert (found == expected).all()


def test_launches_left_out_shift_nothing():
    other, expected = np.delete(np.tile(PASS, 4), [300, 301]), np.delete(np.tile(np.arange(len(PASS)), 4), [300, 301])
    assert (align(PASS, other) == expected).all()


def test_launches_added_stay_unaligned():
    other = np.insert(PASS, 700, [81, 82, 83])
    found = align(PASS, other)
    assert (found[700:703] == -1).all()
    assert (np.delete(found, [700, 701, 702]) == np.arange(len(PASS))).all()


def test_random_sequences_share_nothing():
    rng = np.random.default_rng(1)
    assert (align(rng.integers(0, 50, 5_000), rng.integers(0, 50, 5_000)) >= 0).sum() <= 5


def test_empty_sequences():
    assert align(np.zeros(0, np.int64), PASS).tolist() == [-1] * len(PASS)
    assert len(align(PASS, np.zeros(0, np.int64))) == 0
