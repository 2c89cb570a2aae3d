"""Choosing constants on a part: what is chosen, and what it scores on the rest, on made-up points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import leave_one_out
import numpy as np


@dataclass(frozen=True)
class Constants:
    width: int = 10
    share_ratio: float = 0.8


class Known(leave_one_out.Table):
    """A program is right where its own width is met; one in ten is never right."""

    def __init__(self, wanted: list[int]) -> None:
        super().__init__([("seed", k) for k in range(len(wanted))], Path(), 1)
        self.wanted = np.array(wanted)

    def of(self, constants):
        right = np.stack([self.wanted == some.width for some in constants], axis=1).astype(float)
        return np.stack([right, right], axis=2)


def test_each_constant_is_moved_alone():
    moved = leave_one_out.moved(Constants())
    assert moved[0] == ("", 1.0, Constants())
    assert {one.width for name, _, one in moved if name == "width"} == {5, 7, 8, 12, 15, 20}
    assert max(one.share_ratio for name, _, one in moved if name == "share_ratio") == 1.0


def test_what_is_best_on_the_part_is_chosen_and_scored_on_the_rest():
    table = Known([20] * 8 + [10] * 2)
    part = np.array([True] * 8 + [False] * 2)
    (fold,) = leave_one_out.folds(table, Constants(), [part])
    assert fold.changed == {"width": 20}
    assert (fold.on_part, fold.on_rest, fold.default_on_rest) == (1.0, 0.0, 1.0)


def test_a_constant_reaches_as_far_as_nothing_changes():
    assert leave_one_out.reach(Known([10, 3]), Constants()) == {"width": (1.0, 1.0), "share_ratio": (0.5, 2.0)}
    assert leave_one_out.reach(Known([3, 3]), Constants())["width"] == (0.5, 2.0)


def test_folds_leave_out_each_item_once():
    left_out = np.sum([~part for part in leave_one_out.fifths(23)], axis=0)
    assert left_out.tolist() == [1] * 23
    assert all(part.sum() == 12 for part in leave_one_out.halves(23, 4))
