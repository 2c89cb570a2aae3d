"""Samples of GPU metrics → one sentence a GPU: how busy its parts were while device work ran."""

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes_per_s, format_count, format_hz, format_ratio_percent, format_watts

_PARTS = (
    ("sm_active_ratio", "SMs active"),
    ("sm_issue_ratio", "issuing"),
    ("tensor_active_ratio", "tensor pipes active"),
)


def gpu_samples_lines(results: Results, capture_id: int) -> list[str]:
    """``GPU 0 while it worked, 62 samples: SMs active 53.3 %, …, DRAM 40.0 % of its peak, 1.27 GHz``."""
    frame = frame_or_empty(results, "gpu_samples")
    rows = frame[(frame["capture_id"] == capture_id) & (frame["scope"].astype(str) == "capture")]
    return [line for row in rows.to_dict("records") if (line := _line(pd.Series(row)))]


def _line(row: pd.Series) -> str:
    said = [f"{name} {format_ratio_percent(row[column])}" for column, name in _PARTS if row[column] == row[column]]
    dram = row["dram_ratio"]
    if dram == dram:
        rate = row["dram_bytes_per_s"]
        amount = f" ({format_bytes_per_s(rate)})" if rate == rate else ""
        said.append(f"DRAM {format_ratio_percent(dram)} of its peak{amount}")
    if row["gpc_clock_hz"] == row["gpc_clock_hz"]:
        said.append(format_hz(row["gpc_clock_hz"]))
    if row["power_w"] == row["power_w"]:
        said.append(format_watts(row["power_w"]))
    count = format_count(row["sample_count"])
    return f"GPU {int(row['gpu_index'])} while it worked, {count} samples: {', '.join(said)}" if said else ""
