"""Results → what limits the program, in words, with the evidence: for terminal, page, JSON and assistants alike.

Nothing is computed or decided here. What the time of a device went to is `analyses.limits`' to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.text import Text

from xsp_post.tables.analyses.limits import NOT_RECORDED, CauseRow, Limit, counted_work_of

from xsp_post.tables.analyses.limits import find_limit, largest_causes, lead_in, lead_out, work_of  # isort: skip
from xsp_post.base.text_safety import shown
from xsp_post.model.levels import RUN_KERNEL, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_flop_per_byte, format_flop_per_s, format_ns, format_ratio_percent
from xsp_post.reports import cases
from xsp_post.reports.facts import Device, device_of
from xsp_post.reports.text import short_kernel, visible
from xsp_post.reports.verdict_captures import captures_of, main_captures, own_verdicts

WORDS = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "latency": "latency-bound",
    "kernel": "GPU-bound; compute or memory is not known",
    "copy": "copy-bound",
    "launch": "launch-bound",
    "synchronization": "synchronisation-bound",
    "host": "host-bound",
    "communication": "communication-bound",
}
# Where the work of the kernels was counted: how it lies to the roofs.
_WORK = {
    "memory": "At {intensity} the {work} are limited by memory bandwidth; they reach {throughput}, "
    "{reached} of that roof.",
    "compute": "At {intensity} the arithmetic units are the limit, not the memory; the {work} reach {throughput}, "
    "{reached} of that roof.",
    "latency": "The {work} are far below both roofs: {throughput} at {intensity}, {reached} of the nearer one. They "
    "mostly wait.",
}
_GROUPS = {
    "kernel": "kernels",
    "communication": "communication",
    "copy": "copies",
    "launch": "launches",
    "synchronization": "synchronisation",
    "host": "the host",
    "profiler": "the profiler",
    "unknown": "not known",
}
CAUSES = {
    "launch_call": "launch call",
    "launch_latency": "launch latency",
    "queued": "queued on the device",
    "synchronization": "synchronisation",
    "copy_call": "copy call",
    "allocation": "allocation or free",
    "module_load": "loading or compiling code",
    "os_call": "blocked in the operating system",
    "descheduled": "no processor",
    "host_code": "other host code",
    "communication": "waiting for other ranks",
    "profiler_overhead": "profiler overhead",
    "unknown": "no launch row",
}
# A lead-in shorter than this share of the window is not worth a sentence.
_LEAD_IN_RATIO = 0.1
# More busy time than this outside every execution changes what an owner has to do.
_OUTSIDE_RATIO = 0.25
# Less device time than this without a launch changes nothing that is said.
_NO_LAUNCH_RATIO = 0.05
# From here on a profiled execution is another program: what limits it need not limit the one without a profiler.
_PROFILED_RATIO = 2.0
_SCOPES = {"execution": "the measured executions", "warm-up": "the warm-up", "outside": "what was recorded"}


@dataclass(frozen=True)
class Verdict:
    """``kind`` as in `analyses.limits.Limit`; ``word`` for the headline; the sentence; the evidence."""

    kind: str
    word: str
    sentence: str
    evidence: tuple[str, ...]


def verdict(results: Results, case: cases.Case | None) -> Verdict:
    """The verdict on one case."""
    limit = find_limit(results, captures_of(results, case))
    rows = cases.rows(results, "a15", case)
    row = rows.iloc[0] if len(rows) and rows["kernel_count"].iloc[0] > 0 else work_of(results, limit.captures)
    evidence = [] if row is None else [*_busy(row, device_of(results)), *_roof(results, row, str(row["bound"]))]
    notes = (lead_in_line(results, limit), coverage_note(results, limit)) if limit.window_ns else ()
    evidence += [note for note in notes if note]
    return Verdict(limit.kind, word_of(limit), sentence_of(results, limit), tuple(evidence))


def _busy(row: pd.Series, device: Device) -> list[str]:
    found = []
    if row["gpu_busy_ratio"] == row["gpu_busy_ratio"]:
        found.append(
            f"{device.name} busy {format_ns(row['busy_ns'])} per iteration, "
            f"{format_ratio_percent(row['gpu_busy_ratio'])} of the time from its first to its last work on the device "
            "(union of device intervals, trimmed means; the sentence above is of all executions together)."
        )
    if row["gpu_latency_ratio"] == row["gpu_latency_ratio"]:
        less = row["kernel_latency_ns"] < row["busy_ns"]
        slow = "single slow launches" if not device.is_gpu else "copies, and single slow launches"
        why = f"; busy time is larger: it includes {slow}" if less else ""
        ratio = row["gpu_latency_ratio"]
        share = format_ratio_percent(ratio) + " of" if ratio < _PROFILED_RATIO else f"{ratio:,.0f} times"
        found.append(
            f"{device.work[:-1].capitalize()} time {format_ns(row['kernel_latency_ns'])} in "
            f"{int(row['kernel_count']):,} launches, {share} the model latency "
            f"{format_ns(row['model_latency_ns'])} (sum of trimmed means{why})."
        )
    return found


def _roof(results: Results, row: pd.Series, bound: str) -> list[str]:
    mine = _roof_of(results, row)
    if bound == "unknown" or mine.empty:
        return []
    roof = mine.iloc[0]
    return [
        f"Intensity {format_flop_per_byte(row['arithmetic_intensity_flop_per_byte'])} against "
        f"{format_flop_per_byte(roof['ideal_intensity_flop_per_byte'])}, from which the "
        f"{visible(roof['pipe'], 40)} roof of "
        f"{visible(roof['gpu_name'], 80)} ({format_flop_per_s(roof['peak_flop_per_s'])}) is in reach."
    ]


def _roof_of(results: Results, row: pd.Series) -> pd.DataFrame:
    """The roof of the pipe that a row of A15 is held against; empty where the peaks of its GPU are not known."""
    roofs = frame_or_empty(results, "roofs", ["gpu_name", "pipe"])
    is_mine = roofs["gpu_name"].astype(str).eq(str(row["gpu_name"])) & roofs["pipe"].astype(str).eq(str(row["pipe"]))
    return frame_or_empty(results, "roofs").loc[is_mine[is_mine].index]


def coverage_note(results: Results, limit: Limit) -> str:
    """That the executions which the verdict is of hold less than half of the device time, or that much of it lies
    outside of them, how much device time has no launch, and that the profiler made them far longer; "" where none is
    so."""
    said = []
    found = results.found()
    mine = found["code"].astype(str).eq("executions-cover-little") & found["capture_id"].isin(limit.captures)
    if limit.scope == "execution" and mine.any():
        said.append(f"The verdict leaves out most of the work: {found.loc[mine, 'example'].iloc[0]}")
    else:
        said.append(_outside(results, limit))
    balance = frame_or_empty(results, "balance", ["capture_id", "question", "attribution", "device_ns"])
    launch = balance[balance["question"].astype(str).eq("launch") & balance["capture_id"].isin(limit.captures)]
    times = launch.groupby(launch["attribution"].astype(str))["device_ns"].sum()
    ratio = times.get("no_launch", 0) / max(times.get("total", 0), 1)
    if ratio >= _NO_LAUNCH_RATIO:
        said.append(
            f"{format_ratio_percent(ratio)} of the device time has no launch in the recording: which range it belongs "
            "to, and what it waited for, is not known."
        )
    return " ".join(filter(None, [*said, _profiled(results, limit)]))


def _outside(results: Results, limit: Limit) -> str:
    """How much of the time in which the devices were busy lies outside every execution, where that is much."""
    windows = frame_or_empty(results, "device_windows", ["capture_id", "scope", "busy_ns", "copy_busy_ns"])
    mine = windows[windows["capture_id"].isin(limit.captures)]
    outside = mine[mine["scope"].astype(str).eq("outside")]
    busy, copies = int(outside["busy_ns"].sum()), int(outside["copy_busy_ns"].sum())
    ratio = busy / max(int(mine["busy_ns"].sum()), 1)
    if limit.scope != "execution" or ratio < _OUTSIDE_RATIO:
        return ""
    mostly = ", mostly copies" if copies > busy / 2 else ""
    return (
        f"The verdict is of the executions only: {format_ratio_percent(ratio)} of the busy time of the device "
        f"({format_ns(busy)}{mostly}) lies outside of them."
    )


def _profiled(results: Results, limit: Limit) -> str:
    """That an execution with the profiler took far longer than one without, which a run measured, too; "" else."""
    levels = frame_or_empty(results, "overhead")
    levels = levels[levels["event_kind"].astype(str).eq("model")]
    if limit.scope != "execution" or levels.empty:
        return ""
    cases_of = frame_or_empty(results, "cases", ["kernel_capture_id", "batch_size", "phase"])
    cases_of = cases_of[cases_of["kernel_capture_id"].isin(limit.captures)]
    if cases_of.empty:
        return ""
    case = cases_of.iloc[0]
    levels = levels[levels["batch_size"].eq(case["batch_size"]) & levels["phase"].astype(str).eq(str(case["phase"]))]
    profiled = levels.loc[levels["level"].astype(str).eq(RUN_KERNEL), "latency_ns"]
    alone = levels.loc[levels["level"].astype(str).eq(RUN_MODEL), "latency_ns"]
    if profiled.empty or alone.empty or not profiled.iloc[0] >= _PROFILED_RATIO * alone.iloc[0]:
        return ""
    return (
        f"All this is of executions with the profiler, {format_ns(profiled.iloc[0])} each; without it one takes "
        f"{format_ns(alone.iloc[0])}, and what limits that may be something else."
    )


def lead_in_line(results: Results, limit: Limit) -> str:
    """What the first execution did before the device had work, and the last one after it: no part of the verdict, but
    of the user's time."""
    said = []
    for (time, row), words in (
        (lead_in(results, limit), "Before its first device work the first execution took"),
        (lead_out(results, limit), "After its last device work the last execution went on for"),
    ):
        if row is not None and time >= _LEAD_IN_RATIO * limit.window_ns:
            said.append(f"{words} {format_ns(time)}; most of it: {cause_text(row)}.")
    return " ".join(said)


def main_limit(results: Results) -> Limit:
    """What limits the captures of the main case."""
    return find_limit(results, main_captures(results))


def word_of(limit: Limit) -> str:
    """The verdict in a word or two."""
    if not limit.window_ns:
        return "no device work was recorded"
    if limit.kind == "unknown":
        return "what limits it is not known"
    if limit.kind == "mixed":
        return f"mixed: {group_word(limit, limit.groups[0][0])} and {group_word(limit, limit.groups[1][0])}"
    word = WORDS[limit.kind]
    return word if limit.is_gpu else word.replace("GPU", "CPU")


def sentence_of(results: Results, limit: Limit) -> str:
    """The two or three numbers behind the verdict, and who owns them."""
    if not limit.window_ns:
        return "What limits the program is not known. Record it: nsys profile -t cuda,nvtx -o report python program.py"
    devices = f"{limit.device_count} GPUs were" if limit.device_count > 1 else "The GPU was"
    devices = devices if limit.is_gpu else "The CPU's operators were"
    each = " each on average" if limit.device_count > 1 else ""
    said = [
        f"{devices} busy {format_ratio_percent(limit.busy_ns / limit.window_ns)} of {_SCOPES[limit.scope]}, "
        f"{format_ns(limit.window_ns / limit.device_count)}{each}."
    ]
    if limit.kind in ("compute", "memory", "kernel", "latency"):
        said += [_kernel_sentence(results, limit), *_work_sentence(results, limit)]
    elif limit.kind == "unknown":
        said.append(f"{limit.reason[:1].upper()}{limit.reason[1:]}.")
    else:
        causes = largest_causes(results, limit, count=20)
        chosen = [group for group, _ in limit.groups[: 2 if limit.kind == "mixed" else 1]]
        said += [_group_sentence(limit, group, causes) for group in chosen]
    if limit.unknown_ns > 0.05 * limit.window_ns:
        said.append(f"{format_ns(limit.unknown_ns)} wait for something that was not recorded and are left out.")
    return " ".join(said)


def _kernel_sentence(results: Results, limit: Limit) -> str:
    window = limit.window
    kernel, graph = max(int(window["kernel_ns"]), 1), int(window["graph_busy_ns"])
    if graph > kernel:
        return (
            f"{format_ratio_percent(graph / limit.window_ns)} ({format_ns(graph)}) went to CUDA graphs whose kernels "
            "were not recorded; nsys profile --cuda-graph-trace=node shows them."
        )
    top = format_ratio_percent(int(window["top_kernel_ns"]) / kernel)
    work = "kernel" if limit.is_gpu else "operator"
    text = f"{top} of the {work} time is in {short_kernel(visible(str(window['top_kernel'])), 60)}"
    if limit.kind == "compute" and window["matrix_ns"]:
        matrix = format_ratio_percent(int(window["matrix_ns"]) / kernel)
        text += f"; matrix products, convolutions and attention take {matrix}"
        if int(window["simt_matrix_ns"]) > kernel / 2:
            text += ", without tensor cores"
    elif limit.kind == "kernel":
        text += f"; {_how_to_know(results, limit)}"
    return text + "."


def _how_to_know(results: Results, limit: Limit) -> str:
    """What shows whether compute or memory limits, where that is not known."""
    row = counted_work_of(results, limit.captures)
    if row is not None and pd.notna(row["arithmetic_intensity_flop_per_byte"]):
        throughput = format_flop_per_s(row["arithmetic_throughput_flop_per_s"])
        intensity = format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"])
        device, work = "GPU" if limit.is_gpu else "CPU", _work_name(limit)
        coverage = row["counter_coverage_ratio"]
        if pd.notna(row["roof_flop_per_s"]) and coverage < 0.995:
            share = format_ratio_percent(coverage)
            return f"flop and bytes are known for {share} of the {work[:-1]} time only, too little to tell"
        return (
            f"the {work} do {throughput} at {intensity}, but the peaks of this {device} are not known: "
            "xsp-post doctor --measure-peaks, then --peaks FILE"
        )
    if not limit.is_gpu:
        return "the sizes of the operators were not recorded"
    return (
        "counters of Nsight Compute show whether compute or memory limits: xsp-post ingest CAPTURE METRICS.ncu-rep, or "
        "xsp-post run --ncu of a PyTorch model"
    )


def group_word(limit: Limit, group: str) -> str:
    """A group of time in words: what a CPU runs are operators."""
    return _work_name(limit) if group == "kernel" else _GROUPS[group]


def _work_name(limit: Limit) -> str:
    return "kernels" if limit.is_gpu else "operators"


def _work_sentence(results: Results, limit: Limit) -> list[str]:
    """How far the work of the kernels, where it was counted, is from the roofs."""
    row = counted_work_of(results, limit.captures)
    if row is None or str(row["bound"]) != limit.kind or limit.kind not in _WORK:
        return []
    if pd.isna(row["arithmetic_intensity_flop_per_byte"]) or str(row["bound_source"]) == "speed of light":
        return [f"Nsight Compute's own shares of the peaks say so of the {_work_name(limit)}."]
    said = _WORK[limit.kind].format(
        work=_work_name(limit),
        intensity=format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"]),
        throughput=format_flop_per_s(row["arithmetic_throughput_flop_per_s"]),
        reached=format_ratio_percent(row["roof_ratio"]),
    )
    coverage = float(row["counter_coverage_ratio"])
    if str(row["counter_source"]) == "analytic":
        return [said, "Flop and bytes are counted from the model, not measured: an estimate."]
    share = "all" if coverage >= 0.995 else format_ratio_percent(coverage)
    return [said, f"Counters cover {share} of the kernel time."] if pd.notna(coverage) else [said]


def _group_sentence(limit: Limit, group: str, causes: Sequence[CauseRow]) -> str:
    time = dict(limit.groups)[group]
    text = f"{format_ratio_percent(limit.ratio(group))} ({format_ns(time)}) went to {group_word(limit, group)}"
    mine = [row for row in causes if row.group == group]
    if group == "copy":
        alone = int(limit.window["copy_busy_ns"])
        waited = f" and {format_ns(time - alone)} waiting for copy calls" if time - alone >= 0.01 * time else ""
        text += f": {format_ns(alone)} copies that ran alone{waited}" if waited else ", which ran alone"
    if mine and group != "copy":
        text += f"; most of the waiting: {cause_text(mine[0])}"
    return text + "."


def cause_text(row: CauseRow) -> str:
    """``synchronisation (cudaStreamSynchronize) in loss: 12.3 ms``."""
    call = f" ({shown(row.call_name, 60)})" if row.call_name else ""
    owner = f" in {shown(row.owner, 60)}" if row.owner else " outside every range"
    detail = ""
    if row.detail == NOT_RECORDED:
        detail = ", for a reason that was not recorded"
    elif row.detail:
        behind = row.cause in ("synchronization", "queued")
        detail = f", {'behind ' if behind else ''}{shown(row.detail, 60)}"
    layer = f" [{shown(row.layer_path, 60)}]" if row.layer_path else ""
    return f"{CAUSES[row.cause]}{call}{owner}{layer}{detail}: {format_ns(row.idle_ns)}"


def verdict_line(results: Results) -> Text:
    """What stands first on the terminal: one line, or one for each capture where they have nothing in common."""
    own = own_verdicts(results)
    lines = [_line(results, find_limit(results, [number]), name) for number, name in own.items()]
    return Text("\n").join(lines or [_line(results, main_limit(results), "")])


def _line(results: Results, limit: Limit, name: str) -> Text:
    text = Text(f"Verdict{f' on {shown(name, 80)}' if name else ''}  ", style="bold")
    text.append(word_of(limit), style="bold")
    text.append(f". {sentence_of(results, limit)}", style="default")
    for more in (lead_in_line(results, limit), coverage_note(results, limit)):
        text.append(f" {shown(more, 400)}" if more else "", style="default")
    return text


def verdict_data(results: Results) -> dict[str, Any]:
    """The verdict alone, as data."""
    limit = main_limit(results)
    return limit_data(limit, word_of(limit), sentence_of(results, limit))


def limit_data(limit: Limit, word: str, sentence: str) -> dict[str, Any]:
    """A limit with its words, as data."""
    return {
        "kind": limit.kind,
        "word": word,
        "sentence": sentence,
        "reason": limit.reason,
        "scope": limit.scope,
        "device_count": limit.device_count,
        "window_ns": limit.window_ns,
        "busy_ns": limit.busy_ns,
        "idle_ns": limit.window_ns - limit.busy_ns,
        "unknown_ns": limit.unknown_ns,
        "groups": [{"group": group, "time_ns": time, "ratio": limit.ratio(group)} for group, time in limit.groups],
    }
