"""Damaged sources, two hundred a run: the fast form of scripts/fuzz (its nightly form: 2,000 with other seeds)."""

from __future__ import annotations

import random

import pytest
from fuzzing.checks import fault
from fuzzing.sources import KINDS, SHARES, SURROUNDINGS


@pytest.fixture(scope="module", autouse=True)
def scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUZZ_SCRATCH", str(tmp_path_factory.mktemp("fuzz")))
        yield


@pytest.mark.parametrize("first", range(1, 201, 10))
def test_damaged_sources_are_read_whole_or_refused(first):
    weights = [0 if kind in SURROUNDINGS else share for kind, share in zip(KINDS, SHARES)]
    for seed, kind in enumerate(random.Random(first).choices(KINDS, weights, k=10), first):
        assert fault(kind, seed, is_whole=seed % 8 == 0) == "", f"scripts/fuzz --one {kind}:{seed}"


@pytest.mark.guard
@pytest.mark.parametrize("case", ["fault:1", "fault:88001806", "signal:2"])
def test_commands_in_trouble_leave_nothing_half_done(case):
    kind, seed = case.split(":")
    assert fault(kind, int(seed)) == "", f"scripts/fuzz --one {case}"
