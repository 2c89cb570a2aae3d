"""Which leading executions are warm-up."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from generators.machine import Machine, Program, write
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze, captures_of
from xsp_post.reports.verdict import window_of
from xsp_post.tables.analyses.limits import find_limit
from xsp_post.tree.iterations import mark_warmup
from xsp_post.tree.structure.constants import DEFAULTS


def marked(latency, *, phase=None, said=None, loading=None, sizes=None, kernels=None):
    count = len(latency)
    none = np.zeros(count, bool)
    warm, findings = mark_warmup(
        np.array(latency, np.int64),
        np.array(phase if phase is not None else ["forward"] * count, object),
        none if said is None else np.array(said, bool),
        none if loading is None else np.array(loading, bool),
        np.full((count, 1), -1) if sizes is None else np.array(sizes).reshape(count, -1),
        np.full(count, 10) if kernels is None else np.array(kernels),
        DEFAULTS,
    )
    return warm.tolist(), {one.code: one.count for one in findings}


@pytest.mark.parametrize(
    ("latency", "count"),
    [
        ([300, 200, 100, 100, 100], 2),
        ([131, 100, 100, 100], 1),
        ([130, 100, 100, 100], 0),  # 1.3 times as long is not longer than that
        ([100, 300, 100, 100], 0),  # it does not lead
        ([300, 100, 300, 100, 100], 1),  # neither does the second slow one
        ([900, 500, 100, 100], 2),
        ([900, 500, 100], 1),  # of the last two none: the median is of one alone
        ([900, 100], 0),
        ([900], 0),
        ([], 0),
        ([200, 100, 180, 100, 180], 1),  # the median of what follows is 140
        ([180, 100, 180, 100, 180], 0),
        ([900, 335, 336, 144], 1),  # the last batch is smaller: the second takes what the third takes
    ],
)
def test_slow_leading_executions_are_warm_up(latency, count):
    warm, codes = marked(latency)
    assert warm == [position < count for position in range(len(latency))]
    assert codes.get("warmup-detected", 0) == count
    assert ("one-iteration" in codes) == (len(latency) - count == 1)


def test_the_median_is_of_what_follows_and_of_the_same_phase():
    slow_forward = [300, 1000, 100, 1000, 100, 1000, 100, 1000]
    phases = ["forward", "backward"] * 4
    assert marked(slow_forward, phase=phases)[0] == [True, *[False] * 7]
    assert marked([500, 100, 90, 100])[0] == [True, False, False, False]


def test_executions_that_load_code_are_warm_up_until_all_that_follow_do():
    assert marked([100] * 5, loading=[1, 1, 0, 0, 0])[0] == [True, True, False, False, False]
    assert marked([100] * 5, loading=[0, 1, 0, 0, 0])[0] == [False] * 5
    assert marked([100] * 5, loading=[1, 1, 1, 1, 1])[0] == [False] * 5
    assert marked([100] * 5, loading=[1, 1, 1, 1, 0])[0] == [True, True, True, False, False]
    assert marked([400, 100, 100, 100], loading=[0, 1, 0, 0])[0] == [True, True, False, False]


def test_a_phase_that_names_its_warm_up_means_the_rest_to_be_measured():
    assert marked([900, 800, 100, 100, 100], said=[1, 0, 0, 0, 0]) == ([True, False, False, False, False], {})
    # not so where code was loaded; and another phase says nothing of this one
    assert marked([900, 800, 100, 100, 100], said=[1, 0, 0, 0, 0], loading=[0, 1, 0, 0, 0])[0][:2] == [True, True]
    phases = ["forward"] * 4 + ["backward"] * 2
    assert marked([900, 100, 100, 100, 50, 50], phase=phases, said=[0, 0, 0, 0, 1, 0])[0] == [
        True, False, False, False, True, False,
    ]  # fmt: skip
    assert marked([5, 5, 5], said=[1, 1, 1]) == ([True] * 3, {})
    assert marked([5, 5, 5], said=[1, 1, 0])[1] == {"one-iteration": 1}


@given(st.lists(st.tuples(st.integers(50, 400), st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)), max_size=12))
def test_warm_up_leads_its_phase_and_leaves_something_to_measure(rows):
    latency, phase, loading, said = ([row[k] for row in rows] for k in range(4))
    said = [one == 3 for one in said]
    warm, codes = marked(latency, phase=phase, said=said, loading=loading)
    assert codes.get("warmup-detected", 0) == sum(warm) - sum(said)
    for one in set(phase):
        mine = [k for k in range(len(rows)) if phase[k] == one and not said[k]]
        leading = next((i for i, k in enumerate(mine) if not warm[k]), len(mine))
        assert not any(warm[k] for k in mine[leading:]) and len(mine) - leading >= min(len(mine), 2)
        names_it = said[phase.index(one)]
        for i, k in enumerate(mine[:-2]):
            rest = mine[i + 1 :]
            as_long = sum(latency[r] >= 0.95 * latency[k] for r in rest)  # what later ones take as well is no warm-up
            slow = latency[k] > DEFAULTS.slow_start * sorted_median([latency[r] for r in rest])
            slow = not names_it and slow and as_long < len(rest) / 3
            loads = loading[k] and not all(loading[r] for r in rest)
            if i <= leading:
                assert warm[k] == bool(slow or loads)


def sorted_median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def test_a_step_is_slow_only_against_later_ones_with_as_much_to_do():
    assert marked([300, 200, 100, 100, 100], sizes=[8192, 4096, 512, 512, 512])[0] == [False] * 5  # long contexts
    assert marked([300, 100, 100, 100, 100], sizes=[512, 512, 512, 4096, 4096])[0] == [True] + [False] * 4
    # as many keys, but more tokens: one size that is smaller is enough
    assert marked([300, 100, 100], sizes=[[64, 900], [32, 900], [32, 900]])[0] == [False] * 3


def test_a_longer_execution_that_has_more_kernels_is_slow_only_beyond_them():
    assert marked([300, 100, 100, 100], kernels=[30, 10, 10, 10])[0] == [False] * 4
    assert marked([900, 100, 100, 100], kernels=[20, 10, 10, 10])[0] == [True, False, False, False]  # tries of kernels
    assert marked([200, 100, 100, 100], kernels=[5, 10, 10, 10])[0] == [True, False, False, False]


def detector(crops, folder):
    """A detector looks at as many crops as it finds: other launch sequences, all through the recording."""
    thread = Machine(Random(1)).thread()
    for count in crops:
        thread.host(300)
        for name, us in (("resize_kernel", 20), ("sm80_xmma_fprop_stem", 60), ("nms_kernel", 15), ("sort_kernel", 9)):
            thread.launch(name, us)
        for _ in range(count):
            for name, us in (
                ("sm80_xmma_fprop_crop", 40),
                ("relu_kernel", 7),
                ("max_pool_kernel", 8),
                ("gemm_head", 30),
            ):
                thread.host(3)
                thread.launch(name, us)
        thread.sync()
    return captures_of([write(Program("detector", [thread.m], []), folder / "program")])


@pytest.mark.parametrize("crops", [(4, 6, 4, 2, 6, 4, 3, 4, 6, 4, 5, 4), (6, 4, 4, 4, 6, 4, 4, 5, 4, 4, 4, 4)])
def test_executions_unlike_the_most_frequent_one_are_no_warm_up(crops, tmp_path):
    iterations = detector(crops, tmp_path).frame("iterations")
    assert len(iterations) >= 11
    assert not iterations["is_warmup"].any()


def test_an_execution_that_was_cut_off_is_left_out_and_counts_as_no_warm_up(tmp_path):
    """Only those before what is measured are counted as warm-up."""
    assert detector((12,) * 20 + (4,), tmp_path).frame("iterations")["is_warmup"].tolist() == [False] * 20 + [True]
    thread = Machine(Random(1)).thread()
    for _ in range(8):
        with thread.range("step"):
            for _ in range(9):
                thread.launch("gemm", 30)
        thread.sync()
    results = analyze([write(Program("steps", [thread.m], []), tmp_path / "steps")])
    for row, said in ((0, "executions after 1 warm-up)"), (7, "executions)")):
        iterations = results.frame("iterations").assign(is_warmup=np.arange(8) == row)
        changed = Analysis({**results.frames, "iterations": iterations}, results.findings)
        assert said in window_of(changed, find_limit(changed))
