"""Sums over executions and latencies without overlap, as a loop over the executions finds them."""

import math
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.processes import summarise_repeats, trimmed_totals, without_overlap
from xsp_post.arrays.statistics import summarise_groups

_PARTS = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(0, 5), st.one_of(st.just(math.nan), st.integers(0, 50))), max_size=20
)


@pytest.mark.parametrize("stride", [1, 5000], ids=["dense", "sparse"])
@examples(40)
@given(_PARTS, st.sampled_from([0.0, 0.2, 0.4]))
def test_totals_are_trimmed_as_sums(stride, parts, trim_ratio):
    sums = [defaultdict(float) for _ in range(4)]
    for group, execution, value in parts:
        if group >= 0 and not math.isnan(value):
            sums[group][execution] += value
    group, execution, value = (np.array([p[k] for p in parts], kind) for k, kind in enumerate((int, int, float)))
    found = trimmed_totals(value, group, execution * stride, 4, trim_ratio)
    for number, mine in enumerate(sums):
        one = summarise_groups(list(mine.values()), np.zeros(len(mine), int), 1, trim_ratio)["trimmed_mean"][0]
        assert found[number] == pytest.approx(one, nan_ok=True)
        assert math.isnan(found[number]) == (not mine)


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 30), st.integers(1, 12)), max_size=10))
def test_latencies_begin_where_the_execution_before_them_ends(rows):
    frame = pd.DataFrame(rows, columns=["capture_id", "process_id", "start_ns", "latency_ns"])
    found = without_overlap(frame)
    for k, (capture, process, start, latency) in enumerate(rows):
        before = [
            (s, j, s + n) for j, (c, p, s, n) in enumerate(rows) if (c, p) == (capture, process) and (s, j) < (start, k)
        ]
        ended = max(before)[2] if before else start
        assert found[k] == start + latency - max(start, min(ended, start + latency))


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30)), min_size=1, max_size=24), st.sampled_from([0.0, 0.2]))
def test_errors_within_one_process_are_those_of_the_series(rows, trim_ratio):
    """Winsorised values, their correlation with the one before, Marriott & Pope's correction, one error above it."""
    group, value = (np.array([row[k] for row in rows], kind) for k, kind in enumerate((int, float)))
    independent = summarise_groups(value, group, 2, trim_ratio)
    found = summarise_repeats(value, group, np.zeros(len(rows)), 2, trim_ratio)
    for number in range(2):
        plain, mine = independent.iloc[number], value[group == number]
        if len(mine) < 2:
            continue
        n = len(mine)
        off = np.clip(mine, plain["kept_min"], plain["kept_max"])
        off = off - off.mean()
        squares = (off**2).sum()
        rho = (off[1:] * off[:-1]).sum() / squares if squares > 1e-9 else -1.0
        rho = min(max(rho + (1 + 4 * rho) / n, -1.0), 1.0)
        rho = min(max(rho + (1 + 1 / n) * math.sqrt((1 - rho**2) / n), 0.0), 0.95)
        factor = (1 + rho) / (1 - rho)
        assert found["standard_error"][number] == pytest.approx(plain["standard_error"] * math.sqrt(factor))
        freedom = plain["degrees_of_freedom"] / factor
        told = found["degrees_of_freedom"][number]
        assert told == 1 if freedom < 1 else freedom - (0.1 if freedom < 10 else 1) < told <= freedom + 1e-9
