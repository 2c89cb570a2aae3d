"""The record of the advice: pairs of simulated recordings are judged as their making says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from backtest import FAMILIES, FIRST, judge, simulated_pairs


@pytest.mark.parametrize("seed", [0, 1])
def test_a_change_that_was_made_is_judged(seed, tmp_path):
    (pair,) = simulated_pairs(range(seed, seed + 1), tmp_path)
    assert 0.3 < pair.gain < 0.8 and pair.name.startswith("simulated: ")
    outcome = judge(pair)
    assert 1 <= outcome.place <= FIRST and outcome.advised[outcome.place - 1] in pair.remedies
    assert outcome.bound_holds and outcome.is_word_right and outcome.is_limit_right
    # what did not happen is not found
    other = judge(replace(pair, remedies=frozenset({"no such"}), word="slower", limits=frozenset({"nothing"})))
    assert other.place == 0 and other.is_word_right is False and other.is_limit_right is False
    assert judge(replace(pair, gain=0.99)).bound_holds is False


def test_every_family_makes_pairs_that_gain(tmp_path):
    pairs = list(simulated_pairs(range(len(FAMILIES)), tmp_path))
    assert len({pair.name for pair in pairs}) == len(FAMILIES)
    assert all(pair.gain > 0.1 and pair.base.exists() and pair.other.exists() for pair in pairs)
