"""Samples of GPU metrics in a sentence and on the page."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.model.results import Analysis
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.frames import METRIC_COLUMNS
from xsp_post.reports import document, frames
from xsp_post.reports.memory_line import gpu_samples_lines

KNOWN = {"sm_active_ratio": 0.5, "dram_read_ratio": 0.1, "dram_write_ratio": 0.3, "dram_ratio": 0.4,
         "gpc_clock_hz": 1.27e9}  # fmt: skip


def _results(sample_count=62, **known):
    unknown = dict.fromkeys(METRIC_COLUMNS, np.nan)
    row = {"capture_id": 0, "gpu_index": 0, "scope": "capture", "iteration_index": -1, "layer_index": -1,
           "layer_path": "", "sample_count": sample_count, "covered_ns": 10, "busy_ns": 12, "purity_ratio": 1.0,
           "dram_bytes_per_s": 622e9, **unknown, **known}  # fmt: skip
    at = np.r_[np.arange(1, 101), np.arange(1001, 1101)] * 100  # samples, a pause, samples
    samples = pd.DataFrame({"capture_id": 0, "gpu_index": 0, "start_ns": at - 100, "end_ns": at, **unknown, **known})
    return Analysis({"gpu_samples": pd.DataFrame([row])[column_names("gpu_samples")], "gpu_timeline": samples})


def test_the_sentence_says_what_is_known_and_of_how_many_samples():
    assert gpu_samples_lines(_results(**KNOWN), 0) == [
        "GPU 0 while it worked, 62 samples: SMs active 50.0 %, DRAM 40.0 % of its peak (622 GB/s), 1.27 GHz"
    ]
    assert gpu_samples_lines(_results(3), 0) == [] == gpu_samples_lines(Analysis({}), 0)


def test_the_chart_is_broken_where_nothing_was_sampled():
    frame = frames.gpu_course(_results(**KNOWN), None)
    assert len(frame) == frames.SAMPLE_BINS and frame["offset_ns"].is_monotonic_increasing
    sampled = frame["dram_ratio"].notna()
    assert np.allclose(frame["dram_ratio"][sampled], 0.4) and sampled.sum() < 60
    assert sampled.iloc[0] and sampled.iloc[-1] and not sampled.iloc[100:200].any()
    (section,) = document.build(_results(**KNOWN), only=("gpu-samples",)).sections
    assert {"SMs active", "DRAM bandwidth"} == set(section.blocks[1].chart.data["color"])


def test_the_section_is_there_where_samples_are():
    (section,) = document.build(_results(**KNOWN), only=("gpu-samples",)).sections
    assert [type(block).__name__ for block in section.blocks] == ["Note", "Chart", "Table"]
    assert "sm_issue_ratio" not in section.blocks[2].columns  # not sampled
    assert not document.build(Analysis({}), only=("gpu-samples",)).sections
