"""Limit and idle causes → text for terminal and page: the limit, the largest causes, what to do next.

Nothing is computed here; `analyses.limits` and `analyses.advice` did.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from xsp_post.analyses.limits import CauseRow, Limit, find_limit, largest_causes, lead_in, lead_out
from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import cases
from xsp_post.reports.part import part_text
from xsp_post.reports.path_line import critical_path_line
from xsp_post.reports.terminal_text import say
from xsp_post.reports.text import short_kernel, visible
from xsp_post.schemas.units import format_count, format_ns, format_ratio_percent

if TYPE_CHECKING:
    from xsp_post.analyses.advice import Advice

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
    "queued": "queued",
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
SHORT_CAUSES = {
    "launch_call": "launch", "launch_latency": "latency", "queued": "queue", "synchronization": "sync",
    "copy_call": "copy", "allocation": "alloc", "module_load": "load", "os_call": "OS", "descheduled": "no CPU",
    "host_code": "host", "communication": "ranks", "profiler_overhead": "profiler", "unknown": "unknown",
}  # fmt: skip
# A lead-in shorter than this share of the window is not worth a sentence.
_LEAD_IN_RATIO = 0.1
_SCOPES = {"execution": "the measured executions", "warm-up": "the warm-up", "outside": "what was recorded"}


@dataclass(frozen=True)
class Why:
    """Everything that `xsp-post why` says."""

    limit: Limit
    causes: tuple[CauseRow, ...]
    advice: tuple[Advice, ...]
    word: str
    sentence: str
    critical_path: str = ""  # one line; "" where no replay tables are at hand
    lead_in: str = ""  # what the first execution did before the device had work, the last one after; "" if short
    part: str = ""  # the part of the recording that all this is of; "" all of it
    replay_note: str = ""  # why nothing was replayed, where the capture is too large for it
    no_advice: str = ""  # why there is none; "" where there is some
    ranks: str = ""  # which rank the others wait for; "" where the table of ranks is not at hand, or has one rank
    coverage_note: str = ""  # that the executions hold little of the device time; "" where they do not


def why(results: Results, *, layer: str = "") -> Why:
    """The limit, the five largest causes and what to do next. ``layer``: causes of these layers only."""
    from xsp_post.analyses.advice import advise, why_none

    limit = main_limit(results)
    causes = tuple(largest_causes(results, limit, layer=layer)) if limit.scope else ()
    owners = causes if not layer else tuple(largest_causes(results, limit))
    path = _path_line(results, limit)
    lead_in = lead_in_line(results, limit)
    advice = tuple(advise(results, limit))
    sentence, note = sentence_of(limit, owners), replay_note(results)
    little = coverage_note(results, limit)
    none = "" if advice or not limit.window_ns else why_none(results, limit)
    return Why(
        limit,
        causes,
        advice,
        word_of(limit),
        sentence,
        path,
        lead_in,
        part_text(results),
        note,
        none,
        ranks_line(results),
        little,
    )


def ranks_line(results: Results) -> str:
    """Which rank the others wait for, from the table of ranks; "" with fewer than two."""
    ranks = frame_or_empty(results, "ranks", ["rank", "is_straggler"])
    if len(ranks) < 2:
        return ""
    return f"{format_count(len(ranks))} ranks. {straggler_text(ranks)} More: xsp-post table ranks"


def straggler_text(ranks: pd.DataFrame) -> str:
    """``The others wait for rank 1.``"""
    slow = ranks.loc[ranks["is_straggler"].astype(bool), "rank"].tolist()
    names = ", ".join(f"rank {rank}" for rank in slow[:8])
    return f"The others wait for {names}." if slow else "No rank holds up the others."


def coverage_note(results: Results, limit: Limit) -> str:
    """That the executions which the verdict is of hold less than half of the device time; "" where they hold more."""
    if limit.scope != "execution":
        return ""
    found = frame_or_empty(results, "findings", ["capture_id", "code", "example"])
    mine = found["code"].astype(str).eq("executions-cover-little") & found["capture_id"].isin(limit.captures)
    return f"The verdict leaves out most of the work: {found.loc[mine, 'example'].iloc[0]}" if mine.any() else ""


def replay_note(results: Results) -> str:
    """That a capture is too large to be replayed at once; "" where none is."""
    from xsp_post.replay.tables import MOST_OPERATIONS

    count = frame_or_empty(results, "captures", ["kernel_count"])["kernel_count"].max()
    if not count > MOST_OPERATIONS:  # NaN without captures
        return ""
    return (
        f"With more than {format_count(MOST_OPERATIONS)} kernels nothing is replayed here: what is saved at most is "
        "the time that a change concerns, and there is no critical path. xsp-post what-if replays captures of any size."
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


def _path_line(results: Results, limit: Limit) -> str:
    captures = _path_captures(results)
    return critical_path_line(results, captures[0]) if len(captures) == 1 and limit.scope == "execution" else ""


def _path_captures(results: Results) -> list[int]:
    """The captures whose critical path belongs to the verdict: those of the main case, else all."""
    chosen = captures_of(results, cases.main_case(results))
    return chosen or frame_or_empty(results, "captures", ["capture_id"])["capture_id"].tolist()


def main_limit(results: Results) -> Limit:
    """What limits the captures of the main case."""
    return find_limit(results, captures_of(results, cases.main_case(results)))


def captures_of(results: Results, case: cases.Case | None) -> list[int] | None:
    """The captures that a verdict on a case speaks of: where one workload was captured at several levels or batch
    sizes, the one that the case's kernels come from; else (None) all, as the ranks of a job are."""
    rows = cases.rows(results, "cases", case) if case is not None else frame_or_empty(results, "cases").iloc[:0]
    captures = frame_or_empty(results, "captures", ["level", "batch_size"])
    if rows.empty or len(captures.astype(str).drop_duplicates()) < 2:
        return None
    chosen = int(rows["kernel_capture_id"].iloc[0])
    return [chosen] if chosen >= 0 else None


def word_of(limit: Limit) -> str:
    """The verdict in a word or two."""
    if limit.kind == "unknown":
        return "what limits it is not known"
    if limit.kind == "mixed":
        return f"mixed: {_GROUPS[limit.groups[0][0]]} and {_GROUPS[limit.groups[1][0]]}"
    word = WORDS[limit.kind]
    return word if limit.is_gpu else word.replace("GPU", "CPU")


def sentence_of(limit: Limit, causes: tuple[CauseRow, ...]) -> str:
    """The two or three numbers behind the verdict, and who owns them."""
    if not limit.window_ns:
        return "No device work was recorded. Record it: nsys profile -t cuda,nvtx -o report python program.py"
    devices = f"{limit.device_count} GPUs were" if limit.device_count > 1 else "The GPU was"
    devices = devices if limit.is_gpu else "The CPU's operators were"
    each = " each on average" if limit.device_count > 1 else ""
    said = [
        f"{devices} busy {format_ratio_percent(limit.busy_ns / limit.window_ns)} of {_SCOPES[limit.scope]}, "
        f"{format_ns(limit.window_ns / limit.device_count)}{each}."
    ]
    if limit.kind in ("compute", "memory", "kernel", "latency"):
        said.append(_kernel_sentence(limit))
    elif limit.kind == "unknown":
        said.append(f"{limit.reason[:1].upper()}{limit.reason[1:]}.")
    else:
        chosen = [group for group, _ in limit.groups[: 2 if limit.kind == "mixed" else 1]]
        said += [_group_sentence(limit, group, causes) for group in chosen]
    if limit.unknown_ns > 0.05 * limit.window_ns:
        said.append(f"{format_ns(limit.unknown_ns)} wait for something that was not recorded and are left out.")
    return " ".join(said)


def _kernel_sentence(limit: Limit) -> str:
    window = limit.window
    kernel, graph = max(int(window["kernel_ns"]), 1), int(window["graph_busy_ns"])
    if graph > kernel:
        return (
            f"{format_ratio_percent(graph / limit.window_ns)} ({format_ns(graph)}) went to CUDA graphs whose kernels "
            "were not recorded; nsys profile --cuda-graph-trace=node shows them."
        )
    top = format_ratio_percent(int(window["top_kernel_ns"]) / kernel)
    text = f"{top} of the kernel time is in {short_kernel(visible(str(window['top_kernel'])), 60)}"
    if limit.kind == "compute" and window["matrix_ns"]:
        matrix = format_ratio_percent(int(window["matrix_ns"]) / kernel)
        text += f"; matrix products, convolutions and attention take {matrix}"
        if int(window["simt_matrix_ns"]) > kernel / 2:
            text += ", without tensor cores"
    elif limit.kind == "kernel" and limit.is_gpu:
        text += "; xsp-post run --ncu shows whether compute or memory limits"
    return text + "."


def _group_sentence(limit: Limit, group: str, causes: tuple[CauseRow, ...]) -> str:
    time = dict(limit.groups)[group]
    text = f"{format_ratio_percent(time / max(limit.known_ns, 1))} ({format_ns(time)}) went to {_GROUPS[group]}"
    mine = [row for row in causes if row.group == group]
    if group == "copy":
        text += f", {format_ns(int(limit.window['copy_busy_ns']))} of it copies that ran alone"
    if mine:
        text += f"; most of the waiting: {cause_text(mine[0])}"
    return text + "."


def cause_text(row: CauseRow) -> str:
    """``synchronisation (cudaStreamSynchronize) in loss: 12.3 ms``."""
    call = f" ({shown(row.call_name, 60)})" if row.call_name else ""
    owner = f" in {shown(row.owner, 60)}" if row.owner else " outside every range"
    detail = ""
    if row.detail:
        behind = row.cause in ("synchronization", "queued")
        detail = f", {'behind ' if behind else ''}{shown(row.detail, 60)}"
    layer = f" [{shown(row.layer_path, 60)}]" if row.layer_path else ""
    return f"{CAUSES[row.cause]}{call}{owner}{layer}{detail}: {format_ns(row.idle_ns)}"


def evidence_of(limit: Limit) -> tuple[str, ...]:
    """One line per group with more than a hundredth of the time; together they are all of it."""
    window = max(limit.window_ns, 1)
    groups = (*limit.groups, ("unknown", limit.unknown_ns))
    lines = [
        f"{_GROUPS[group]}: {format_ns(time)}, {format_ratio_percent(time / window)}"
        for group, time in groups
        if time >= 0.01 * window
    ]
    return tuple(line[:1].upper() + line[1:] for line in lines)


def parts_of(limit: Limit) -> str:
    """The same in one sentence: ``kernels 468 ms (97.5 %), launches 5.63 ms (1.2 %)``."""
    window = max(limit.window_ns, 1)
    groups = [one for one in (*limit.groups, ("unknown", limit.unknown_ns)) if one[1] >= 0.01 * window]
    named = (f"{_GROUPS[group]} {format_ns(time)} ({format_ratio_percent(time / window)})" for group, time in groups)
    return ", ".join(named)


def verdict_line(results: Results, *, with_cpu: bool = False) -> Text:
    """The line that stands first on the terminal; of a CPU's operators only where it is asked for."""
    limit = main_limit(results)
    if not limit.window_ns or not (limit.is_gpu or with_cpu):
        return Text("")
    text = Text("Verdict  ", style="bold")
    text.append(word_of(limit), style="bold")
    text.append(f". {sentence_of(limit, tuple(largest_causes(results, limit, count=20)))}", style="default")
    lead_in = lead_in_line(results, limit)
    text.append(f" {lead_in}" if lead_in else "", style="default")
    return text


def print_why(console: Console, said: Why) -> None:
    """Verdict, where the time went, the largest causes, what to do next."""
    limit = said.limit
    if said.part:
        say(console, f"Part shown: {said.part}")
    say(console, Text.assemble(("Verdict  " + said.word, "bold"), f". {said.sentence}"))
    if not limit.window_ns:
        return
    if said.coverage_note:
        say(console, shown(said.coverage_note, 400))
    console.print(Text("Where the time went", style="bold"))
    for line in evidence_of(limit):
        say(console, f"  {line}")
    if said.lead_in:
        say(console, said.lead_in)
    for line in (said.ranks, said.critical_path, said.replay_note):
        if line:
            say(console, line)
    if said.causes:
        idle = limit.window_ns - limit.busy_ns
        console.print(Text(f"Largest causes of {format_ns(idle)} idle time", style="bold"))
    for row in said.causes:
        say(console, f"  {format_ratio_percent(row.ratio):>7}  {cause_text(row)}{_pieces(row.piece_count)}", hanging=9)
    console.print(Text("What to do next", style="bold"))
    if said.no_advice:
        say(console, f"  {said.no_advice}")
    for number, one in enumerate(said.advice, 1):
        say(console, Text(f"  {number}. {shown(one.what, 300)}", style="bold"), hanging=3)
        say(console, f"     {gain_of(one)}. {shown(one.evidence, 400)}", hanging=0)
        say(console, Text(f"     Assumed: {shown(one.assumption, 300)}", style="dim"), hanging=0)


def gain_of(one: Advice) -> str:
    """``at most 12.3 ms, 4.5 % of the time``, and the replay's error where a replay found it. Without a replay
    the time that a change concerns is no bound where other work moves up too."""
    time = f"{format_ns(one.bound_ns)}, {format_ratio_percent(one.bound_ratio)} of the time"
    gain = f"at most {time}"
    if one.change in ("sync=none", "copy=overlap") and one.replay_error_ratio is None:  # the host also runs ahead
        return f"concerns {time} (what it saves in all: xsp-post what-if --change {one.change})"
    if one.replay_error_ratio is not None:
        gain += f" (replayed; replay error {format_ratio_percent(one.replay_error_ratio)})"
    return gain


def _pieces(count: int) -> str:
    return f" in {format_count(count)} pieces" if count > 1 else ""


def json_of(said: Why) -> dict[str, Any]:
    """The same as data."""
    return {
        "part": said.part or None,
        "verdict": _verdict_data(said.limit, said.word, said.sentence),
        "critical_path": said.critical_path or None,
        "replay_note": said.replay_note or None,
        "lead_in": said.lead_in or None,
        "causes": [asdict(row) for row in said.causes],
        "advice": [asdict(one) for one in said.advice],
    }


def verdict_data(results: Results) -> dict[str, Any]:
    """The verdict alone, as data."""
    limit = main_limit(results)
    causes = tuple(largest_causes(results, limit, count=20)) if limit.scope else ()
    return _verdict_data(limit, word_of(limit), sentence_of(limit, causes))


def _verdict_data(limit: Limit, word: str, sentence: str) -> dict[str, Any]:
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
