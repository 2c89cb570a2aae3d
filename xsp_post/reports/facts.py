"""Results → the main numbers at the top of the page, each with its source and interval."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from xsp_post.arrays.processes import WITHIN_PROCESS
from xsp_post.base.texts import sentence
from xsp_post.model.levels import RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import (
    format_count,
    format_inputs_per_s,
    format_ns,
    format_operations,
    format_ratio_percent,
)
from xsp_post.reports import cases
from xsp_post.reports.cases import captures_of
from xsp_post.reports.text import plain
from xsp_post.tables.analyses.limits import find_limit

# A confidence interval that reaches further than this to either side makes a number one should not rely on.
UNCERTAIN_RATIO = 0.1
MOST_GPUS = 8  # each named by itself; more are counted


@dataclass(frozen=True)
class Fact:
    """One number of the headline: label, text, the raw value, why one may trust it, and whether one should not."""

    id: str
    label: str
    text: str
    value: float | int | None
    trust: str
    is_uncertain: bool = False


class Device(NamedTuple):
    """What the kernels ran on, in words: a GPU and kernels, or a CPU and the operators that stand in for them."""

    name: str
    work: str
    is_gpu: bool


def device_of(results: Results) -> Device:
    """The words for the device; operators of a CPU have device −1 (`model/schemas/columns.txt`)."""
    devices = frame_or_empty(results, "devices", ["device_id"])
    if len(devices) and devices["device_id"].lt(0).all():
        return Device("CPU", "operators", False)
    return Device("GPU", "kernels", True)


def gpus(results: Results) -> pd.DataFrame:
    """One row per physical GPU with device work: capture_id, gpu_index, rank (−1: not of a single one), busy_ns,
    duration_ns, and the label that tells it from the others."""
    devices = frame_or_empty(results, "devices")
    used = devices[devices["device_ns"] > 0].sort_values(["capture_id", "gpu_index", "rank"], kind="stable")
    keys = ["capture_id", "gpu_index"]
    alone = ~used.duplicated(keys, keep=False)
    found = used.assign(rank=used["rank"].where(alone, -1)).drop_duplicates(keys).reset_index(drop=True)
    label = "GPU " + found["gpu_index"].astype(str)
    label = label.where(found["rank"] < 0, label + " (rank " + found["rank"].astype(str) + ")")
    several = found["capture_id"].nunique() > 1
    found["label"] = label + (" of capture " + found["capture_id"].astype(str) if several else "")
    return found[[*keys, "rank", "busy_ns", "duration_ns", "label"]]


def has_iterations(results: Results, case: cases.Case | None) -> bool:
    """Whether the case is made of iterations; else it is a whole capture taken as one."""
    named = cases.rows(results, "cases", case)
    return len(named) > 0 and int(named["iteration_count"].iloc[0]) > 0


def facts(results: Results, case: cases.Case | None) -> list[Fact]:
    """Model latency, throughput, busy share and kernels of the case; of the capture where it has no iterations."""
    if not has_iterations(results, case):
        return _capture_facts(results)
    model, kernels = cases.rows(results, "a01", case), cases.rows(results, "a15", case)
    found = _model_facts(results, case, model.iloc[0]) if len(model) else []
    if len(kernels) and int(kernels["kernel_count"].iloc[0]) > 0:
        found += _device_facts(results, case, kernels.iloc[0])
    return found


def _model_facts(results: Results, case: cases.Case | None, row: pd.Series) -> list[Fact]:
    level, uncertain = str(row["level"]), is_uncertain(row)
    seen = {RUN_MODEL: "measured without a profiler", "": ""}.get(level, "profiling overhead included")
    inferred = "iterations are inferred, not recorded" if _is_inferred(results, case) else ""
    trust = " · ".join(part for part in (f"n {row['sample_count']}", spread(row), seen, inferred) if part)
    latency, throughput = row["latency_ns"], row["throughput_inputs_per_s"]
    found = [Fact("latency", "Model latency", format_ns(latency), plain(latency), trust, uncertain)]
    if throughput == throughput:
        said = f"batch {row['batch_size']} / model latency"
        found.append(
            Fact("throughput", "Throughput", format_inputs_per_s(throughput), plain(throughput), said, uncertain)
        )
    return found


def _is_inferred(results: Results, case: cases.Case | None) -> bool:
    named = cases.rows(results, "cases", case)
    mine = of_captures(results, "iterations", named["model_capture_id"].tolist(), ["is_inferred"])
    return bool(mine["is_inferred"].astype(bool).any())


def _device_facts(results: Results, case: cases.Case | None, row: pd.Series) -> list[Fact]:
    device, found = device_of(results), []
    limit = find_limit(results, captures_of(results, case))
    if limit.window_ns:  # the time that the verdict speaks of, too
        busy, scope = limit.busy_ns / limit.window_ns, sentence(f"scope.{limit.scope}")
        said = f"{format_ns(limit.busy_ns)} of {scope}"
        found.append(Fact("busy", f"{device.name} busy", format_ratio_percent(busy), busy, said))
    count = int(row["kernel_count"])
    said = f"{format_ns(row['kernel_latency_ns'])} in all, {format_count(row['unique_kernel_count'])} different"
    label = f"{device.work.capitalize()} per iteration"
    return [*found, Fact("kernels", label, format_count(count), count, said)]


def _capture_facts(results: Results) -> list[Fact]:
    """What can be said of captures without iterations."""
    captures = frame_or_empty(results, "captures")
    if captures.empty:
        return []
    device = device_of(results)
    columns = ("kernel_count", "copy_count", "graph_count", "device_ns", "duration_ns")
    kernels, copies, graphs, device_ns, length = (int(captures[column].sum()) for column in columns)
    found = [Fact("length", "Recorded", format_ns(length), length, "first to last range or device work")]
    if device_ns:
        said = f"sum over {format_operations(kernels, copies, graphs).replace('kernel', device.work[:-1])}"
        found.append(Fact("device-time", "Device time", format_ns(device_ns), device_ns, said))
        found += _busy_facts(results, device)
        if kernels:
            work = device.work.capitalize()
            found.append(Fact("kernels", work, format_count(kernels), kernels, "in the whole capture"))
    return found


def _busy_facts(results: Results, device: Device) -> list[Fact]:
    """Busy time of the GPU; of several, each its own."""
    rows = gpus(results)
    facts = []
    for number, row in enumerate(rows.head(MOST_GPUS).to_dict("records")):
        share = row["busy_ns"] / row["duration_ns"] if row["duration_ns"] > 0 else 0.0
        label, identity = (device.name, "busy-time") if len(rows) == 1 else (row["label"], f"busy-time-{number}")
        said = f"{format_ratio_percent(share)} of what was recorded"
        facts.append(Fact(identity, f"{label} busy", format_ns(row["busy_ns"]), row["busy_ns"], said))
    return facts


def spread(row: pd.Series) -> str:
    """The 95 % interval of a row's latency in words; how wide it is where that matters."""
    low, high = row["ci_low_latency_ns"], row["ci_high_latency_ns"]
    if low != low or high != high:
        return "no interval: one sample" if row["sample_count"] <= 1 else ""
    if low <= 0:  # as wide as the value itself: its ends say nothing
        return f"no interval: {format_count(row['sample_count'])} samples say too little"
    text = f"95 % within {format_ns(low)} … {format_ns(high)}{within(row)}"
    return f"{text}: too uncertain to rely on" if is_uncertain(row) else text


def within(row: Mapping[Any, Any] | pd.Series) -> str:
    """`` (within one process)`` for an interval that speaks of one process alone, else ''."""
    return " (within one process)" if row["interval_over"] == WITHIN_PROCESS else ""


def is_uncertain(row: pd.Series) -> bool:
    """Whether a row's latency is one sample, or its interval reaches further than UNCERTAIN_RATIO."""
    if row["sample_count"] <= 1:
        return True
    low, high, latency = row["ci_low_latency_ns"], row["ci_high_latency_ns"], row["latency_ns"]
    return bool(high - low > 2 * UNCERTAIN_RATIO * latency)
