"""Small steps of the analyses: utilisation by pipe, numbers for equal keys, late ranks without collectives."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.repeats import dense
from xsp_post.hardware.gpus import peaks_of_device
from xsp_post.tables.analyses.ranks import STRAGGLER_EXCESS_RATIO, _stragglers
from xsp_post.tables.analyses.roofline import PIPES, Work, utilisation


@examples(100)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(5, 5), st.sampled_from([0, 1 << 61, -(1 << 61)])), max_size=30)
)
def test_equal_keys_have_equal_numbers_by_first_appearance(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows)] or [np.zeros(0, np.int64)] * 3
    group, first = dense(*columns)
    order = list(dict.fromkeys(rows))
    assert group.tolist() == [order.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in order]


def test_a_rank_at_the_limit_is_no_straggler():
    frame = pd.DataFrame({"compute_excess_ratio": [STRAGGLER_EXCESS_RATIO, 2 * STRAGGLER_EXCESS_RATIO, -1.0]})
    nothing_met = pd.DataFrame({"meeting_index": []})
    assert _stragglers(frame, nothing_met, np.zeros((1, 3))).tolist() == [False, True, False]


def test_utilisation_is_of_the_peak_of_the_pipe_and_the_gpu_of_each_row():
    flop, pipes, case = [1e9, 2e9, 0.0, 3e9, 4e9], ["fp32", "fp16_tensor", "fp32", "", "fp32"], [0, 0, 0, 0, 1]
    peaks = {0: peaks_of_device({"gpu_name": "NVIDIA A100-SXM4-40GB"}), 1: None}
    unknown = np.full(5, np.nan)
    work = Work(np.array(case), unknown, np.array(flop), {}, *[unknown] * 6)
    found = utilisation(work, pipes, np.array([1e6, 2e6, 1e6, 1e6, 1e6]), peaks)
    assert {"fp32", "fp16_tensor"} <= set(PIPES)
    expected = [1e12 / peaks[0].peak("fp32"), 1e12 / peaks[0].peak("fp16_tensor"), np.nan, np.nan, np.nan]
    np.testing.assert_allclose(found, expected)


def test_kernels_of_which_shapes_say_nothing_have_no_phase_and_no_flop():
    from xsp_post.model.results import Analysis
    from xsp_post.tables.analyses.roofline import PHASES, with_shapes

    known = {"kernel_id": [5, 7], "phase": ["backward", "forward"], "flop": [10.0, 20.0], "read_bytes": [1.0, 2.0],
             "written_bytes": [4.0, 8.0], "pipe": ["fp32", "fp32"]}  # fmt: skip
    unknown, case = np.full(4, np.nan), np.zeros(4, np.int64)
    work = Work(case, np.full(4, 100.0), unknown, {}, unknown, unknown, unknown, unknown, unknown, np.zeros(4))
    results = Analysis({"kernel_work": pd.DataFrame(known)})
    found, is_analytic, phase, _ = with_shapes(results, work, np.array([4, 5, 6, 7]), np.zeros(1))
    assert [PHASES[code] for code in phase] == ["", "backward", "", "forward"]
    assert is_analytic.tolist() == [False, True, False, True]
    np.testing.assert_array_equal(found.flop, [np.nan, 10, np.nan, 20])
    np.testing.assert_array_equal(found.dram_read_bytes, [np.nan, 1, np.nan, 2])
    np.testing.assert_array_equal(found.dram_bytes, [np.nan, 5, np.nan, 10])
