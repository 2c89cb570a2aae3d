"""Results → what limits the model, in words, with the evidence.

Nothing is computed here but which sentence fits. What a GPU's time went to is `analyses.limits`' to say; what its
kernels are bound by, where there are counters, A15's. A CPU's operators are its work and its host at once: only A15
speaks.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from xsp_post.analyses.limits import Limit, find_limit, largest_causes
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import cases
from xsp_post.reports.facts import MOST_GPUS, Device, device_of, gpus
from xsp_post.reports.text import visible
from xsp_post.reports.why import captures_of, lead_in_line, sentence_of, word_of
from xsp_post.schemas.units import format_flop_per_byte, format_flop_per_s, format_ns, format_ratio_percent

_WORDS = {
    "memory": "At {intensity} the {work} are limited by memory bandwidth; they reach {throughput}, "
    "{reached} of that roof.",
    "compute": "At {intensity} the arithmetic units are the limit, not the memory; the {work} reach {throughput}, "
    "{reached} of that roof.",
    "latency": "The {work} are far below both roofs: {throughput} at {intensity}, {reached} of the nearer one. They "
    "mostly wait.",
}


@dataclass(frozen=True)
class Verdict:
    """``kind`` as in `analyses.limits.Limit`, or latency; ``word`` for the headline; the sentence; the evidence."""

    kind: str
    word: str
    sentence: str
    evidence: tuple[str, ...]


def verdict(results: Results, case: cases.Case | None) -> Verdict:
    """The verdict on one case."""
    rows = cases.rows(results, "a15", case)
    limit = find_limit(results, captures_of(results, case))
    line = lead_in_line(results, limit) if limit.is_gpu and limit.window_ns else ""
    begun = (line,) if line else ()
    if rows.empty and limit.is_gpu and limit.window_ns:
        return Verdict(
            limit.kind, word_of(limit), sentence_of(limit, tuple(largest_causes(results, limit, count=20))), begun
        )
    if rows.empty or int(rows["kernel_count"].iloc[0]) <= 0:
        return Verdict(
            "unknown",
            "no GPU work recorded",
            "This capture holds no kernels, so the limit of the model on the GPU is not known.",
            ("Record the GPU too: nsys profile --trace=cuda,nvtx …, or xsp-post run --levels MLG.",),
        )
    row = rows.iloc[0]
    device = device_of(results)
    bound = str(row["bound"])
    evidence = (*_busy(row, device), *_roof(results, row, bound), *begun)
    if limit.is_gpu and limit.window_ns:
        return _of_limit(results, limit, row, evidence)
    if bound in _WORDS:
        said = _WORDS[bound].format(
            work=device.work,
            intensity=format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"]),
            throughput=format_flop_per_s(row["arithmetic_throughput_flop_per_s"]),
            reached=format_ratio_percent(row["roof_ratio"]),
        )
        return Verdict(bound, f"{bound}-bound", said + _how_sure(row), evidence)
    return _unknown(results, row, device, evidence)


def _of_limit(results: Results, limit: Limit, row: pd.Series, evidence: tuple[str, ...]) -> Verdict:
    """What the time of the devices went to; where that is kernels, and counters say more of them, that too."""
    said = sentence_of(limit, tuple(largest_causes(results, limit, count=20)))
    bound = str(row["bound"])
    if limit.kind == bound and bound in _WORDS:
        said += " " + _WORDS[bound].format(
            work="kernels",
            intensity=format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"]),
            throughput=format_flop_per_s(row["arithmetic_throughput_flop_per_s"]),
            reached=format_ratio_percent(row["roof_ratio"]),
        )
        said += _how_sure(row)
    return Verdict(limit.kind, word_of(limit), said, evidence)


def _unknown(results: Results, row: pd.Series, device: Device, evidence: tuple[str, ...]) -> Verdict:
    """No bound: because there are no counters, or because the device's peaks are not known."""
    busy, intensity = float(row["gpu_busy_ratio"]), row["arithmetic_intensity_flop_per_byte"]
    said = f"The {device.name} is busy {format_ratio_percent(busy)} of an iteration. " if busy == busy else ""
    said = said or _capture_busy(results, device)
    word = f"{device.name}-bound; memory or compute is not known" if busy == busy else "what bounds it is not known"
    if intensity == intensity:
        throughput = format_flop_per_s(row["arithmetic_throughput_flop_per_s"])
        said += (
            f"Its {device.work} do {throughput} at {format_flop_per_byte(intensity)}, but the peaks of this "
            f"{device.name} are not known, so the limit is not known.{_how_sure(row)}"
        )
        cure = "Give its peaks: xsp-post doctor --measure-peaks, then --peaks FILE."
    else:
        why = "no counters were recorded"
        if str(row["counter_source"]) == "counters":
            why = f"the counters fit only {format_ratio_percent(row['counter_coverage_ratio'])} of the kernel time"
        said += f"Whether its {device.work} are memory- or compute-bound is not known: {why}."
        cure = "Add counters: xsp-post run --ncu, or xsp-post ingest this_capture metrics.ncu-rep."
    return Verdict("unknown", word, said, (*evidence, cure))


def _capture_busy(results: Results, device: Device) -> str:
    rows = gpus(results)
    if rows.empty:
        return ""
    length = format_ns(rows["duration_ns"].iloc[0])
    if len(rows) == 1:
        return f"The {device.name} was busy {format_ns(rows['busy_ns'].iloc[0])} of the {length} recorded. "
    said = [
        f"{row['label']} {format_ns(row['busy_ns'])}"
        + (f" ({format_ratio_percent(row['busy_ns'] / row['duration_ns'])})" if row["duration_ns"] > 0 else "")
        for row in rows.head(MOST_GPUS).to_dict("records")
    ]
    more = f", and {len(rows) - MOST_GPUS} more" if len(rows) > MOST_GPUS else ""
    return f"Busy of the {length} recorded: {', '.join(said)}{more}. "


def _busy(row: pd.Series, device: Device) -> list[str]:
    found = []
    if row["gpu_busy_ratio"] == row["gpu_busy_ratio"]:
        found.append(
            f"{device.name} busy {format_ns(row['busy_ns'])} per iteration, "
            f"{format_ratio_percent(row['gpu_busy_ratio'])} "
            f"of it (union of device intervals)."
        )
    if row["gpu_latency_ratio"] == row["gpu_latency_ratio"]:
        less = row["kernel_latency_ns"] < row["busy_ns"]
        why = "; busy time is larger: it includes copies, and single slow launches" if less else ""
        found.append(
            f"{device.work[:-1].capitalize()} time {format_ns(row['kernel_latency_ns'])} in "
            f"{int(row['kernel_count']):,} launches, "
            f"{format_ratio_percent(row['gpu_latency_ratio'])} of the model latency "
            f"{format_ns(row['model_latency_ns'])} (sum of trimmed means{why})."
        )
    return found


def _roof(results: Results, row: pd.Series, bound: str) -> list[str]:
    roofs = frame_or_empty(results, "roofs")
    if bound == "unknown" or roofs.empty:
        return []
    mine = roofs[
        roofs["gpu_name"].astype(str).eq(str(row["gpu_name"])) & roofs["pipe"].astype(str).eq(str(row["pipe"]))
    ]
    if mine.empty:
        return []
    roof = mine.iloc[0]
    return [
        f"Intensity {format_flop_per_byte(row['arithmetic_intensity_flop_per_byte'])} against "
        f"{format_flop_per_byte(roof['ideal_intensity_flop_per_byte'])}, from which the "
        f"{visible(roof['pipe'], 40)} roof of "
        f"{visible(roof['gpu_name'], 80)} ({format_flop_per_s(roof['peak_flop_per_s'])}) is in reach."
    ]


def _how_sure(row: pd.Series) -> str:
    source, coverage = str(row["counter_source"]), float(row["counter_coverage_ratio"])
    if source == "analytic":
        return " Flop and bytes are counted from the model, not measured: an estimate."
    if coverage == coverage and coverage < 0.995:
        return f" Counters cover {format_ratio_percent(coverage)} of the kernel time."
    return " Counters cover all of the kernel time." if coverage == coverage else ""
