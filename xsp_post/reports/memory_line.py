"""The peak of memory → one sentence: how much, on which device, when, and which layers held it."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import (
    format_bytes,
    format_bytes_per_s,
    format_count,
    format_hz,
    format_ns,
    format_ratio_percent,
    format_watts,
)
from xsp_post.tables.analyses.memory_peaks import main_device

MOST_PARTS = 4
LEAST_RATIO = 0.03
LONGEST_NAME = 40
EARLIER, NO_RANGE = "allocated before the recording", "in no range"
_PREFIX, _ENGINE = "nn.Module: ", "autograd::engine::evaluate_function: "


def memory_line(results: Results, capture_id: int) -> str:
    """``Memory: peak of 4.27 GiB on GPU 0 after 582 ms: 62.0 % 12 × Block, …``; "" where no allocation is known."""
    device = main_device(results, capture_id)
    if device is None:
        return ""
    rest = "; asked of the driver, which gives segments, not tensors" if device["recorded_by"] == "driver" else ""
    return f"Memory: {peak_text(device)}: {split_text(owners_of(results, device))}{rest}"


def owners_of(results: Results, device: pd.Series) -> pd.DataFrame:
    """The rows of ``memory`` of one device, with ``part``: what they are called together."""
    owners = frame_or_empty(results, "memory")
    for key in ("capture_id", "process_id", "device_id"):
        owners = owners[owners[key] == device[key]]
    owners = owners[owners["memory_kind"].astype(str) == str(device["memory_kind"])]
    return owners.assign(part=part_names(owners)).reset_index(drop=True)


def part_names(owners: pd.DataFrame) -> np.ndarray:
    """Layers are called by their type, operators by the range around them (an optimizer's), ranges by their name; what
    forward and backward work of training allocated is told apart."""
    kind, path = owners["owner_kind"].astype(str), owners["owner"].astype(str)
    layer = owners["layer_type"].astype(str).where(owners["layer_type"].astype(str) != "", path)
    around = path.str.split(" > ").str[-2]
    layer = layer.where(~layer.str.contains("::", regex=False) | around.isna(), around)
    layer = layer.where(layer != "[self]", "model outside its layers")
    named = layer.where(kind == "layer", path).map(_name) + _suffixes(owners)
    return np.select([kind == "earlier", kind == "none"], [EARLIER, NO_RANGE], named)


def _name(text: str) -> str:
    return shown(text.replace(_PREFIX, ""), LONGEST_NAME)


def _suffixes(owners: pd.DataFrame) -> pd.Series:
    phase = owners["training_phase"].astype(str)
    return (" (" + phase + ")").where(phase.isin(["forward", "backward"]), "")


def peak_text(device: pd.Series) -> str:
    """``peak of 4.27 GiB on GPU 0 (5.4 % of its 79.2 GiB) after 582 ms in aten::gelu``."""
    where = place_text(device)
    where = f"on {where}" if where.startswith("GPU") else f"of {where}"
    size = device["memory_bytes"]
    share = f" ({format_ratio_percent(device['peak_bytes'] / size)} of its {format_bytes(size)})" if size > 0 else ""
    when = f" after {format_ns(max(int(device['peak_offset_ns']), 0))}"
    inside = shown(str(device["peak_range"]).removeprefix(_PREFIX).removeprefix(_ENGINE), LONGEST_NAME)
    return f"peak of {format_bytes(device['peak_bytes'])} {where}{share}{when}{f' in {inside}' if inside else ''}"


def place_text(device: pd.Series) -> str:
    """``GPU 0``, ``host memory``."""
    kind, number = str(device["memory_kind"]), device["device_id"]
    return f"GPU {int(number)}" if kind == "device" and number >= 0 else f"{kind} memory"


def split_text(owners: pd.DataFrame) -> str:
    """What held the peak, largest first: ``49.2 % allocated before the recording, 41.5 % in 10 × Block (forward)``."""
    held = owners[owners["live_at_peak_bytes"] > 0]
    by_type = held["part"] == held["layer_type"].astype(str).map(_name) + _suffixes(held)
    whole = held["live_at_peak_bytes"].groupby(held["part"]).transform("sum")
    last = held["owner"].astype(str).str.split(" > ").str[-1].map(_name) + _suffixes(held)
    is_alone = by_type & (held["live_at_peak_bytes"] * 2 > whole)  # most of what its type holds: called by its own name
    name = held["part"].where(~is_alone, last)
    shares = held["live_at_peak_ratio"].groupby(name.to_numpy(), sort=False).sum()
    counts = by_type.groupby(name.to_numpy(), sort=False).sum().to_dict()
    shares = shares.sort_values(ascending=False, kind="stable")
    told = shares[shares >= LEAST_RATIO].head(MOST_PARTS)
    texts = [_share_text(str(name), ratio, int(counts[name])) for name, ratio in told.items()]
    if (rest := 1 - float(told.sum())) >= 0.005:
        texts.append(f"{format_ratio_percent(rest)} other")
    return ", ".join(texts)


def _share_text(name: str, ratio: float, count: int) -> str:
    """One part; ``2 ×``: of so many layers."""
    inside = name if name in (EARLIER, NO_RANGE) else f"in {f'{count} × ' if count > 1 else ''}{name}"
    return f"{format_ratio_percent(ratio)} {inside}"


# -- Samples of GPU metrics → one sentence a GPU: how busy its parts were while device work ran ------------------------

_PARTS = (
    ("sm_active_ratio", "SMs active"),
    ("sm_issue_ratio", "issuing"),
    ("tensor_active_ratio", "tensor pipes active"),
)


def gpu_samples_lines(results: Results, capture_id: int) -> list[str]:
    """``GPU 0 while it worked, 62 samples: SMs active 53.3 %, …, DRAM 40.0 % of its peak, 1.27 GHz``."""
    rows = of_captures(results, "gpu_samples", capture_id)
    rows = rows[rows["scope"].astype(str) == "capture"]
    return [line for row in rows.to_dict("records") if (line := _line(row))]


def _line(row: dict[Any, Any]) -> str:
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
