"""Peaks of memory of two results: what one of them did not record is not compared."""

from __future__ import annotations

import pandas as pd

from xsp_post.compare.memory import memory_totals
from xsp_post.model.results import Analysis


def recorded(peak: int, reserved: int) -> Analysis:
    row = {"capture_id": 0, "memory_kind": "device", "recorded_by": "framework", "peak_bytes": peak,
           "reserved_bytes": reserved}  # fmt: skip
    return Analysis({"memory_devices": pd.DataFrame([row])})


def test_a_quantity_that_one_side_does_not_know_has_no_row():
    found = memory_totals(recorded(100, -1), recorded(150, 400))
    assert found["quantity"].tolist() == ["memory_peak"] and found["difference_ratio"].tolist() == [0.5]
    both = memory_totals(recorded(100, 200), recorded(150, 400))
    assert both["quantity"].tolist() == ["memory_peak", "memory_reserved"]
