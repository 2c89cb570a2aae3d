"""The simulations of `scripts/bench statistics` in short: every kind of claim, few draws."""

import itertools

import numpy as np
import pytest
from benches import statistics as bench


@pytest.fixture
def random():
    return np.random.default_rng(7)


def test_an_interval_within_one_process_covers_that_process(random):
    rows = list(bench.within_process(random, 200, "normal"))
    assert [row for row in rows if not row.is_met] == [] and len(rows) == 9


def test_an_interval_over_processes_covers_their_mean(random):
    rows = list(itertools.islice(bench.over_processes(random, 100, "lognormal"), 4))
    assert [row for row in rows if not row.is_met] == []


def test_independent_iterations_would_claim_too_much(random):
    """What the interval is for: the textbook one misses the process's own mean nearly every second time."""
    values = bench.iterations(random, (400, 1, 30), 0.8)
    plain = bench.summarise_groups(values.ravel(), np.repeat(np.arange(400), 30), 400)
    assert bench._covered(plain, bench.MEAN_NS) < 0.65


def test_a_total_is_trimmed_as_a_total(random):
    whole, singly = bench.totals(random, 200)
    assert whole.share == pytest.approx(1, abs=0.01) and singly.share < 0.9


def test_a_bar_knows_what_few_draws_leave_to_chance():
    assert bench.Row("", "", 0.92, 0.93, 0.98, 400).is_met
    assert not bench.Row("", "", 0.89, 0.93, 0.98, 400).is_met
