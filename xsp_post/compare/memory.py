"""Two results → their peaks of memory: rows of ``compare_totals``, and a sentence, where both recorded memory alike."""

import numpy as np
import pandas as pd

from xsp_post.compare.impact import total_row
from xsp_post.compare.statements import said
from xsp_post.compare.structure import Statement
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_bytes, format_change
from xsp_post.tables.analyses.memory_peaks import main_device

_QUANTITIES = {"memory_peak": "peak_bytes", "memory_reserved": "reserved_bytes"}
# An allocator rounds; a peak that moves by less than this is the same.
_LEAST_CHANGE = 0.01


def memory_totals(base: Results, other: Results) -> pd.DataFrame:
    """Rows of ``compare_totals``: of each side the device with the highest peak. A peak is of the whole recording and
    is not divided by executions. No rows where a side recorded no memory, or the two recorded different things
    (tensors of a framework, segments of the driver)."""
    devices = [main_device(results) for results in (base, other)]
    base_device, other_device = devices
    if base_device is None or other_device is None:
        return pd.DataFrame()
    if any(str(base_device[key]) != str(other_device[key]) for key in ("memory_kind", "recorded_by")):
        return pd.DataFrame()
    rows = []
    for quantity, column in _QUANTITIES.items():
        values = [float(device[column]) for device in (base_device, other_device)]
        if all(value > 0 for value in values):
            rows.append(total_row(quantity, values))
    return pd.DataFrame(rows)


def memory_statements(totals: pd.DataFrame) -> list[Statement]:
    """``Peak of memory 4.10 GiB → 4.18 GiB (+2.0 %).``; nothing without rows."""
    if totals.empty:
        return []
    parts = [
        said(row["quantity"], change=format_change(row["difference_ratio"]),
             **{side: format_bytes(row[f"{side}_value"]) for side in ("base", "other")})
        for row in totals.to_dict("records")
    ]  # fmt: skip
    is_difference = bool((np.abs(totals["difference_ratio"]) >= _LEAST_CHANGE).any())
    return [("memory", f"{', '.join(parts)}.", is_difference)]
