"""Programs of another author with a planted bottleneck: a sample of `scripts/backtest --planted`."""

from __future__ import annotations

import json

import pytest
from generators.machine import write
from generators.planted import CURED, PLANTS, period, plant
from helpers import called
from planted_score import predictions_of, said_of

RIGHT = (21, 25, 26, 37, 57)  # FP32 products, elementwise chains, one block, tiny kernels, weights copied again


@pytest.mark.parametrize("seed", RIGHT)
def test_verdict_and_first_advice(seed, tmp_path):
    said = said_of(seed, tmp_path)
    assert said.is_verdict_right and said.is_advice_right and not said.never, said


@pytest.mark.parametrize("seed", [4, 26])
def test_halved_kernels_as_the_program_run_again(seed, tmp_path):
    found = {row.change: row for row in predictions_of(seed, tmp_path)}
    assert found["kernel:.*=0.5x"].is_covered and found["launch=0.5x"].is_covered, found
    assert abs(found["kernel:.*=0.5x"].true - 0.5) < 0.05


def test_a_cure_gains_what_it_should():
    gains = {PLANTS[seed].name: 1 - period(plant(seed, CURED)[1]) / period(plant(seed)[1]) for seed in (0, 8, 9, 11)}
    assert gains["slow DataLoader"] > 0.5 and gains["chains of elementwise kernels"] > 0.5
    assert gains["one block"] > 0.9 and abs(gains["nothing wrong"]) < 0.02


@pytest.mark.parametrize("seed", [5, 14, 24])
def test_no_figure_is_beyond_physics(seed, tmp_path):
    path = write(plant(seed)[1], tmp_path / "made")
    said = json.loads(called("why", path, "--json").stdout)["data"]
    verdict = said["verdict"]
    gains = {(gain["resource"], gain["part"]): gain["gain_ratio"] for gain in verdict["gains"]}
    assert max([*gains.values(), verdict["together_gain_ratio"]]) <= 0.5 + 1e-3
    assert gains.get(("host", ""), 0) <= verdict["idle_ns"] / verdict["window_ns"] + 0.02
    assert sum(cause["idle_ns"] for cause in said["causes"]) <= verdict["idle_ns"]
    assert all(advice["bound_ratio"] <= 1 for advice in said["advice"])
