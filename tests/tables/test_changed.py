"""Pairs of programs before and after a public change: a sample of `scripts/backtest --changed`."""

from __future__ import annotations

import pytest
from changed_score import said_of
from generators.changed import PAIRS, draw, saved


@pytest.mark.parametrize("seed", [5, 13])  # channels last, more blocks
def test_the_lever_its_bound_and_the_first_word(seed, tmp_path):
    said = said_of(seed, tmp_path)
    assert not said.lacks, said


def test_changes_gain_what_was_drawn():
    assert len(PAIRS) >= 20 and len({pair.name for pair in PAIRS}) == len(PAIRS)
    gains = {draw(seed)[0].name: saved(seed) for seed in (3, 6, 14)}
    assert gains["TF32"] > 0.5 and gains["pinned and ahead"] > 0.4 and 0.1 < gains["no waits for timers"] < 0.4
