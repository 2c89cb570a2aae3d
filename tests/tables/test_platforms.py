"""Programs of many languages and frameworks: the first advice is right, nothing false is promised much for."""

from __future__ import annotations

import json
import re

import pytest
from generators.machine import Edit, write
from generators.planted import period, window
from generators.platforms import PROGRAMS, program
from helpers import called, lever

WORTH = 0.05  # false advice that promises less than this does no harm
SLACK = 0.05  # the cure of a program is more than the remedy: calls around what it spares go, too
COMPOSITE = ("handles", "convergence")  # cured by several remedies at once
OF_PYTHON = re.compile(r"torch|DataLoader|\.item\(\)|Python|pin_memory")


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(len(PROGRAMS)), ids=lambda seed: PROGRAMS[seed].make.__name__)
def test_verdict_and_advice(seed, tmp_path):
    row, made = program(seed)
    said = json.loads(called("why", write(made, tmp_path / "made"), "--json").stdout)["data"]
    advice, limits = said["advice"], [said["verdict"]["kind"], *said["verdict"]["limits"][:2]]
    first = lever(advice[0]["code"]) if advice else ""
    assert first in row.advice.split(", "), [(one["code"], one["bound_ratio"]) for one in advice]
    assert set(limits) & set(row.limits.split()), limits
    assert not [one for one in advice if one["code"] in row.never and one["bound_ratio"] >= WORTH]
    if not row.program.startswith("python"):
        assert not OF_PYTHON.search(json.dumps([one["what"] for one in advice]))
    if advice and row.make.__name__ not in COMPOSITE:
        cured = program(seed, Edit(flags=frozenset({"cured"})))[1]
        measures = (period, window) if row.steps > 1 else (window,)
        gain = min(1 - measure(cured) / measure(made) for measure in measures)
        assert advice[0]["bound_ratio"] >= gain - SLACK


@pytest.mark.parametrize("seed", [0, 4])
def test_what_if_counts_the_host_code_between_executions_as_the_verdict_does(seed, tmp_path):
    path = write(program(seed)[1], tmp_path / "made")
    verdict = json.loads(called("why", path, "--json").stdout)["data"]["verdict"]
    host = next(one for one in verdict["gains"] if one["resource"] == "host")
    predicted = json.loads(called("what-if", path, "--change", "host=0.5x", "--json").stdout)["data"]
    period = next(one for one in predicted["predictions"] if one["quantity"] == "period")
    assert 1 - period["predicted_ns"] / period["measured_ns"] == pytest.approx(host["gain_ratio"], abs=0.05)
