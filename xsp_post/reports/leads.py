"""Results and a case → the sentences at the top of a section: what its charts and tables say, in words."""

from collections.abc import Callable

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import (
    counted,
    format_bytes,
    format_count,
    format_hz,
    format_inputs_per_s,
    format_ns,
    format_ratio_percent,
)
from xsp_post.reports import cases, frames, verdict
from xsp_post.reports import why as report
from xsp_post.reports.cases import Case
from xsp_post.reports.facts import device_of, has_iterations
from xsp_post.reports.headline import over_pairs
from xsp_post.reports.live_memory import peak_device
from xsp_post.reports.memory_line import gpu_samples_lines, memory_line
from xsp_post.reports.path_line import critical_path_line
from xsp_post.reports.rank_sentences import rank_sentence
from xsp_post.reports.rooflines import roof_data
from xsp_post.reports.summary import is_outside, layer_name
from xsp_post.reports.text import short_kernel, visible
from xsp_post.tables.analyses.cases import deepest_capture

Lead = Callable[[Results, "Case | None"], "list[str]"]


def _overhead(results: Results, case: Case | None) -> list[str]:
    events = frames.overhead_events(results, case)
    model = events[events["event"].eq("model")]
    accurate = model[model["is_accurate"].astype(bool)]
    said = [f"The model takes {format_ns(one)} without profiling." for one in accurate["latency_ns"].head(1)]
    for row in model[model["overhead_ns"].notna()].to_dict("records"):
        low, high = format_ns(row["ci_low_overhead_ns"]), format_ns(row["ci_high_overhead_ns"])
        said.append(
            f"{visible(row['level'])}: {visible(row['verdict'])}, {format_ns(row['overhead_ns'])} "
            f"({format_ratio_percent(row['overhead_ratio'])}) on {visible(row['compared_level'])}, 95 % within {low} … "
            f"{high}{over_pairs(row['interval_over'])}."
        )
    return [" ".join(said)]


def _model(results: Results, case: Case | None) -> list[str]:
    frame = frames.batches(results, case)
    best = frame[frame["is_optimal"].astype(bool) & (len(frame) > 1)]
    return [
        f"Best at batch {row['batch_size']}: {format_inputs_per_s(row['throughput_inputs_per_s'])}. The rule is the "
        "paper’s: what the last doubling that still gains more than 5 % reaches."
        for row in best.head(1).to_dict("records")
    ]


def _phases(results: Results, case: Case | None) -> list[str]:
    parts = [
        f"{visible(row['training_phase'], 40)} {format_ns(row['kernel_latency_ns'])} "
        f"({format_ratio_percent(row['kernel_latency_ratio'])})"
        for row in frames.phases(results, case).to_dict("records")
    ]
    return [f"Kernel time of a step: {', '.join(parts)}."]


def _layers(results: Results, case: Case | None) -> list[str]:
    """How many layers, the slowest, and what the model does outside of them."""
    table = frames.largest(cases.rows(results, "a02", case), "latency_ns")
    layers, outside = table[~is_outside(table)], table[is_outside(table)]
    said = ["The model has no range that is a layer."]
    if len(layers):
        under, top = int((layers["latency_ns"] < 1_000_000).sum()), layers.iloc[0]
        said = [
            f"{counted(len(layers), 'layer', 'layers')}{cases.of_case(case)}, "
            f"{format_count(under)} of them under 1 ms.",
            f"The slowest is layer {top['layer_index']}, {layer_name(top['layer_name'])} "
            f"({format_ns(top['latency_ns'])}).",
        ]
    if len(outside):
        said.append(f"Outside of its layers the model takes {format_ns(outside['latency_ns'].iloc[0])} ([self]).")
    if layers["is_inferred"].astype(bool).any():
        said.append("These layers are inferred from repeating kernels, not recorded.")
    return [" ".join(said)]


def _types(results: Results, case: Case | None) -> list[str]:
    frame = frames.types(results, case)
    top = frame.iloc[0]
    if top["latency_ratio"] != top["latency_ratio"]:
        return []
    name = visible(top["layer_type"], 80)
    kind = f"Layers of type {name}" if name else "Layers without a type"
    latency, count = (format_ratio_percent(top[column]) for column in ("latency_ratio", "count_ratio"))
    return [f"{kind} take {latency} of the layer latency with {count} of the layers{cases.of_case(case)}."]


def _memory(results: Results, case: Case | None) -> list[str]:
    device = peak_device(results, case)
    if device is None:
        return []
    said, reserved = [memory_line(results, int(device["capture_id"])) + "."], device["reserved_bytes"]
    if reserved > 0:
        unused = format_ratio_percent(1 - device["peak_bytes"] / reserved)
        said.append(f"{format_bytes(reserved)} are held from the driver, {unused} of it unused at the peak.")
    return said


def _path(results: Results, case: Case | None) -> list[str]:
    capture_id = deepest_capture(results)
    said = [critical_path_line(results, capture_id) + "."]
    replays = of_captures(results, "replays", capture_id, ["error_ratio", "refusal"])
    for row in replays.head(1).to_dict("records"):
        error = format_ratio_percent(row["error_ratio"])
        refusal = f"Nothing is predicted from this capture: {visible(row['refusal'], 300)}."
        can = f"A replay is {error} off the recording; “xsp-post what-if STORE” replays it with a change."
        said.append(refusal if row["refusal"] else can)
    return said


def _ranks(results: Results, case: Case | None) -> list[str]:
    ranks = frame_or_empty(results, "ranks")
    exposed, length = int(ranks["exposed_ns"].max()), max(int(ranks["duration_ns"].max()), 1)
    said = f"Communication that nothing hides takes up to {format_ns(exposed)} of a rank, "
    said += f"{format_ratio_percent(exposed / length)} of its time."
    return [f"{rank_sentence(ranks)} {said if exposed else ''}".strip()]


def _communication(results: Results, case: Case | None) -> list[str]:
    frame = frames.collective_sums(results, case)
    hidden = frame["overlapped_ns"].sum() / max(frame["duration_ns"].sum(), 1)
    return [
        f"{format_count(frame['collective_count'].sum())} collectives take {format_ns(frame['duration_ns'].sum())}, "
        f"summed over devices; other kernels run during {format_ratio_percent(hidden)} of it."
    ]


def _idle(results: Results, case: Case | None) -> list[str]:
    said = f"The time went to {report.parts_of(verdict.main_limit(results))}."
    return [said, *filter(None, [report.replay_note(results)])]


def _kernels(results: Results, case: Case | None) -> list[str]:
    frame = frames.largest(cases.rows(results, "a10", case), "latency_ns")
    if frame.empty:
        return []
    top = frame.astype({"name": object}).iloc[0]
    per = "per iteration" if has_iterations(results, case) else "in the capture"
    work = device_of(results).work
    return [
        f"{format_count(frame['kernel_count'].sum())} {work} of {format_count(len(frame))} names "
        f"{per}{cases.of_case(case)}. {short_kernel(str(top['name']))} takes most: {format_ns(top['latency_ns'])}, "
        f"{format_ratio_percent(top['kernel_latency_ratio'])} of the {work[:-1]} time."
    ]


def _gpu_samples(results: Results, case: Case | None) -> list[str]:
    captures = frame_or_empty(results, "gpu_timeline", ["capture_id"])["capture_id"].drop_duplicates().tolist()
    lines = [line for number in captures for line in gpu_samples_lines(results, int(number))]
    return [". ".join(lines) + "."] if lines else []


def _rooflines(results: Results, case: Case | None) -> list[str]:
    said: list[str] = []
    points = frames.roofline_models(results, case)
    for noun, rows in (("layers", "roofline_layers"), ("kernels", "roofline_kernels")):
        frame = frames.FRAMES[rows](results, case)
        if len(frame):
            points, said = frame, [*said, _bounds(frame, noun)]
    if len(points) and "analytic" in set(points.get("counter_source", pd.Series(dtype=str)).astype(str)):
        said.append("Flop and bytes are counted from the model, not measured.")
    roofs = roof_data(results, points)
    if roofs.empty:
        return [*said, "The GPU’s peaks are not known, so no roof is drawn."]
    clock = float(frame_or_empty(results, "devices", ["clock_hz"])["clock_hz"].max())
    at = f" at {format_hz(clock)}" if clock > 0 else ""
    first = roofs.iloc[0]
    return [*said, f"Roofs of {visible(first['gpu_name'], 80)}{at}; from {visible(first['source'], 160)}."]


def _bounds(frame: pd.DataFrame, noun: str) -> str:
    bound = frame["bound"].astype(str)
    times, counts = frame["latency_ns"].fillna(0).groupby(bound).sum(), bound.value_counts()
    parts = [
        f"{format_count(counts[name])} {'of unknown bound' if name == 'unknown' else name + '-bound'} "
        f"({format_ratio_percent(times[name] / max(times.sum(), 1))} of their time)"
        for name in ("memory", "compute", "latency", "unknown") if name in times
    ]  # fmt: skip
    return f"{format_count(len(frame))} {noun}: {', '.join(parts)}."


# By section of `page.txt`; asked only where the section has something to show.
LEADS: dict[str, Lead] = {
    "overhead": _overhead, "model": _model, "phases": _phases, "layers": _layers, "types": _types, "memory": _memory,
    "path": _path, "ranks": _ranks, "communication": _communication, "idle": _idle, "kernels": _kernels,
    "gpu-samples": _gpu_samples, "rooflines": _rooflines,
}  # fmt: skip
