"""Differences of measurements that took turns: by hand, and that load from outside leaves them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xsp_post.arrays.processes import paired_differences


def samples(rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["cell", "process", "round", "value"])


def test_pairs_by_hand():
    """Cell 1 on cell 0, cell 2 on cell 1; the second process lacks a round of cell 1."""
    found = paired_differences(
        samples([
            (0, 0, 0, 10.0), (0, 0, 0, 12.0), (1, 0, 0, 14.0), (2, 0, 0, 20.0), (0, 0, 1, 30.0), (1, 0, 1, 35.0),
            (0, 7, 0, 10.0), (1, 7, 0, 13.0), (0, 7, 1, 99.0), (2, 7, 1, 5.0),
        ]), np.array([-1, 0, 1]),
    )  # fmt: skip
    assert found["count"].tolist() == [0, 3, 1] and found["process_count"].tolist() == [0, 2, 1]
    assert found["trimmed_mean"][1] == pytest.approx((3 + 5 + 3) / 3) and found["trimmed_mean"][2] == 6
    # between the processes: means 4 and 3
    assert found["standard_error"][1] == pytest.approx(0.5) and found["degrees_of_freedom"][1] == 1
    assert np.isnan(found["trimmed_mean"][0]) and np.isnan(found["ci_low"][2])


def test_one_interrupted_iteration_of_a_block_does_not_count():
    rows = [(cell, process, 0, value) for process in (0, 1) for cell, usual in ((0, 10.0), (1, 12.0))
            for value in (usual, usual, usual, usual, usual + 990 * cell)]  # fmt: skip
    assert paired_differences(samples(rows), np.array([-1, 0]))["trimmed_mean"][1] == 2


def test_load_that_both_meet_leaves_the_difference():
    """Load differs by 40 % between processes and by 30 % between rounds: the intervals of 200 runs hold the true 5 %
    as often as they say, and are narrow."""
    random = np.random.default_rng(0)
    run, process, turn = (axis.ravel() for axis in np.meshgrid(*map(np.arange, (200, 6, 5)), indexing="ij"))
    load = random.uniform(0.6, 1.4, (200, 6))[run, process] + random.uniform(-0.3, 0.3, len(run))
    rows = [
        samples(zip(2 * run + side, process + 6 * run, turn, 100 * factor * load * random.normal(1, 0.02, len(run))))
        for side, factor in ((0, 1.0), (1, 1.05))
    ]
    base = np.where(np.arange(400) % 2 == 1, np.arange(400) - 1, -1)
    found = paired_differences(pd.concat(rows), base).iloc[1::2]
    width = (found["ci_high"] - found["ci_low"]) / 2
    assert 0.90 <= ((found["ci_low"] <= 5) & (found["ci_high"] >= 5)).mean() <= 0.99
    assert width.median() < 4, "unpaired it is some 30"
