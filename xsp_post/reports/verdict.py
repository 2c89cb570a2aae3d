"""Results → what limits the program, in words, with the evidence: for terminal, page, JSON and assistants alike.

Nothing is computed or decided here. What the time of a device went to is `analyses.limits`' to say.
"""

from typing import Any

import pandas as pd
from rich.text import Text

from xsp_post.base.text_safety import shown
from xsp_post.base.texts import sentence
from xsp_post.model.levels import RUN_KERNEL, RUN_MODEL
from xsp_post.model.results import Results, found_in, frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_flop_per_byte, format_flop_per_s, format_ns, format_ratio_percent
from xsp_post.names.families import is_of_family
from xsp_post.replay.experiment import LATENCY, TOGETHER
from xsp_post.replay.recording import shared_captures
from xsp_post.replay.resources import KERNELS
from xsp_post.reports.cases import main_captures, own_verdicts
from xsp_post.reports.text import called, short_kernel, shorten
from xsp_post.reports.where import places, resource_word, where_text
from xsp_post.tables.analyses import limits
from xsp_post.tables.analyses.limits import CauseRow, Limit, counted_work_of, find_limit, lead_in, lead_out
from xsp_post.tables.analyses.places import inside

# A lead-in shorter than this share of the window is not worth a sentence.
_LEAD_IN_RATIO = 0.1
# More device time than this outside every execution, or that only waits, changes what an owner has to do.
_OUTSIDE_RATIO = 0.25
# Less device time than this without a launch changes nothing that is said.
_NO_LAUNCH_RATIO = 0.05
# A verdict about less of the recording leaves out what its owner waited for.
_ELAPSED_RATIO = 0.5
_MOST_WORDS = 25  # of a sentence
# From here on a profiled execution is another program: what limits it need not limit the one without a profiler.
PROFILED_RATIO = 2.0


def verdict(results: Results, limit: Limit) -> dict[str, Any]:
    """The verdict as the page has it: ``kind`` as in `analyses.limits.Limit`, the word for the headline, the sentence,
    the evidence."""
    notes = [" ".join(lead_in_lines(results, limit)), coverage_note(results, limit)] if limit.window_ns else []
    evidence = [note for note in (latency_note(results, limit), *details_of(results, limit), *notes) if note]
    return {"kind": limit.kind, "word": word_of(limit), "sentence": sentence_of(results, limit), "evidence": evidence}


def coverage_note(results: Results, limit: Limit) -> str:
    """That the executions which the verdict is of hold less than half of the device time, or that much of it lies
    outside of them, how much device time has no launch, and that the profiler made them far longer; "" where none is
    so."""
    balance = of_captures(results, "balance", limit.captures, ["question", "attribution", "device_ns"])
    launch = balance[balance["question"].astype(str).eq("launch")]
    times = launch.groupby(launch["attribution"].astype(str))["device_ns"].sum()
    lost_ns = int(times.get("no_launch", 0))
    is_queued = limit.scope == "execution" and found_in(results, limit.captures, "orphan-kernels").empty
    if limit.scope == "execution" and len(found_in(results, limit.captures, "executions-cover-little")):
        said = [_left_out(results, limit)]
    else:
        said = [_outside(results, limit, lost_ns * is_queued)]
    ratio = lost_ns / max(times.get("total", 0), 1)
    if ratio >= _NO_LAUNCH_RATIO:
        said.append(sentence("note.queued" if is_queued else "note.no-launch", share=format_ratio_percent(ratio)))
    rows = limits.answers(results, limit)
    key, part, whole = "elapsed", rows["coverage_ratio"].mean(), rows["elapsed_ns"].mean()
    if limit.scope == limits.OUTSIDE:
        recorded = of_captures(results, "captures", limit.captures, ["duration_ns"])["duration_ns"].mean()
        key, part, whole = "recorded", limit.of_device_ns / recorded, limit.of_device_ns
    if part < _ELAPSED_RATIO and limit.scope != "warm-up" and shared_captures(results).isdisjoint(limit.captures):
        said.append(sentence(f"note.{key}", share=format_ratio_percent(part), time=format_ns(whole / part)))
    busy = _busy(limit) if limit.kind == limits.BALANCED else ""  # no resource alone says how much there was to do
    profiled = _measured_without(results, limit) or _of_records(results, limit)
    return " ".join(filter(None, [busy, _waiting(results, limit), *said, _in_turn(limit), profiled]))


def _waiting(results: Results, limit: Limit) -> str:
    """How much of the device time is kernels that only wait, where that is much: it is no work."""
    work = of_captures(results, "operations", limit.captures, ["name", "device_ns"])
    times = work.groupby("name", observed=True)["device_ns"].sum()
    waits = times[is_of_family(pd.Series(times.index), "waiting")]
    if not waits.sum() >= _OUTSIDE_RATIO * times.sum() > 0:
        return ""
    share = format_ratio_percent(waits.sum() / times.sum())
    return sentence("note.waiting", share=share, name=short_kernel(str(waits.idxmax())))


def _in_turn(limit: Limit) -> str:
    """Why the host would save more than the device is idle: its streams wait in turn."""
    idle = 1 - limit.busy_ns / max(limit.window_ns, 1)
    of_host = [one for one in limit.gains if limits.KIND_OF[one.resources[0]] in (limits.HOST, limits.LAUNCH)]
    saved = [one.gain_ratio - one.margin_ratio for one in of_host if one.resources[0] in limit.limits]
    return sentence("note.in-turn", idle=format_ratio_percent(idle)) if max(saved, default=0.0) > idle else ""


def _left_out(results: Results, limit: Limit) -> str:
    """How little device time the executions hold, what the rest is, and what else could be taken for one."""
    columns = ["coverage_ratio", "is_chosen", "option"]
    known = of_captures(results, "execution_candidates", limit.captures, columns)
    is_chosen = known["is_chosen"].astype(bool)
    held = known.loc[is_chosen, "coverage_ratio"].sum()
    times = of_captures(results, "captures", limit.captures, ["device_ns", "copy_ns"]).sum()
    rest = "; most of the rest is copies" if 2 * times["copy_ns"] > (1 - held) * times["device_ns"] else ""
    if rest and 2 * limit.window.get("copy_busy_ns", 0) > times["copy_ns"]:  # which the verdict is of, too
        rest += " between them"
    others = known[~is_chosen & known["option"].astype(str).ne("")].nlargest(1, "coverage_ratio")
    said = [
        sentence("note.left-out-other", share=format_ratio_percent(row["coverage_ratio"], 0), option=row["option"])
        for row in others.to_dict("records")
        if row["coverage_ratio"] >= 2 * held
    ]
    return " ".join([sentence("note.left-out-work", share=format_ratio_percent(held, 0), rest=rest), *said])


def _outside(results: Results, limit: Limit, queued_ns: int) -> str:
    """How much of the time in which the devices were busy lies outside every execution, where that is much without what
    was queued before."""
    mine = of_captures(results, "device_windows", limit.captures, ["scope", "busy_ns", "copy_busy_ns"])
    outside = mine[mine["scope"].astype(str).eq("outside")]
    busy, copies = max(int(outside["busy_ns"].sum()) - queued_ns, 0), int(outside["copy_busy_ns"].sum())
    ratio = busy / max(int(mine["busy_ns"].sum()), 1)
    if limit.scope != "execution" or ratio < _OUTSIDE_RATIO:
        return ""
    mostly = ", mostly copies" if copies > busy / 2 else ""
    return sentence("note.outside", share=format_ratio_percent(ratio), time=format_ns(busy), mostly=mostly)


def _of_records(results: Results, limit: Limit) -> str:
    """What writing its records may have taken the profiler, where that is much and the host limits."""
    if not {"host", "launches"} & set(limit.limits):
        return ""
    mine = found_in(results, limit.captures, "profiler-records")
    mine = mine[mine["example"].astype(bool)]  # it is empty where names were replaced
    return "" if mine.empty else sentence("note.records", example=mine["example"].iloc[0])


def _measured_without(results: Results, limit: Limit) -> str:
    """The latency of an execution with the profiler and without, which a run measured, where they are far apart."""
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
    if profiled.empty or alone.empty or not profiled.iloc[0] >= PROFILED_RATIO * alone.iloc[0]:
        return ""
    return sentence("note.profiled", profiled=format_ns(profiled.iloc[0]), alone=format_ns(alone.iloc[0]))


def lead_in_lines(results: Results, limit: Limit) -> list[str]:
    """What the first execution did before the device had work, and the last one after it: no part of the verdict, but
    of the user's time."""
    said = []
    for (time, row), name in ((lead_in(results, limit), "before"), (lead_out(results, limit), "after")):
        if row is not None and time >= _LEAD_IN_RATIO * limit.window_ns:
            most = "most of it" if row.idle_ns > time / 2 else "the largest part"
            # the cause of what was queued is a sentence of its own
            cause = sentence("cause.not_recorded") if row.cause == "not_recorded" else cause_text(row, 30)
            part = format_ns(row.idle_ns)
            said.append(sentence(f"note.{name}", time=format_ns(time), most=most, cause=cause, part=part))
    return said


def latency_note(results: Results, limit: Limit) -> str:
    """What limits the latency of the executions, with what the host does before and after the device's time; "" where
    that is the same resource."""
    rows = limits.answers(results, limit, LATENCY)
    named = rows[rows["is_limit"].astype(bool)].sort_values("rank")
    if named.empty or str(named["resource"].iloc[0]) in limit.limits:
        return ""
    if limit.reason in (limits.TOO_LITTLE, limits.ROWS_MISSING):  # what was not recorded may be what limits
        return ""
    first = named.iloc[0]
    return sentence(
        "note.latency", window=format_ns(first["elapsed_ns"]), gain=format_ratio_percent(first["gain_ratio"]),
        resource=resource_word(limit, str(first["resource"])),
    )  # fmt: skip


def main_limit(results: Results) -> Limit:
    """What limits the captures of the main case."""
    return find_limit(results, main_captures(results))


def word_of(limit: Limit) -> str:
    """The verdict in a word or two."""
    if not limit.window_ns:
        return sentence("word.no-work")
    word = sentence("word.loading" if limit.limits == ("loading",) else f"word.{limit.kind}")
    return word if limit.is_gpu else word.replace("GPU", "CPU")


def sentence_of(results: Results, limit: Limit) -> str:
    """What limits, how much, and where: one sentence."""
    window = format_ns(limit.of_device_ns)
    if limit.kind == limits.UNKNOWN or limit.reason == limits.SERIAL:
        unknown = limit.unknown_ns if limit.reason == limits.TIME_UNKNOWN else limit.busy_ns
        share = format_ratio_percent(unknown / max(limit.window_ns, 1))
        slots = {
            "count": 0,
            "device": "GPU" if limit.is_gpu else "CPU",
            "peaks": peaks_reached(results, limit),
            **limit.facts,
        }
        said = sentence(f"limit.{limit.reason}", window=window, share=share, **slots)
        if limit.reason == limits.SERIAL:
            return _with_where(said, _where(results, limit))
        return f"{said} {sentence('limit.record')}" if limit.reason == limits.NO_WORK else said
    first, *others = limit.limits
    names = [resource_word(limit, one) for one in limit.limits]
    where = _where(results, limit)
    if limit.kind == limits.BALANCED:
        gain = format_ratio_percent(limit.gains[0].gain_ratio)
        every = format_ratio_percent(limit.together.gain_ratio if limit.together else 0.0)
        key = "limit.balanced" if len(names) == 2 else "limit.first-balanced"
        slots = {"first": names[-2], "second": names[-1], "window": window, "gain": gain, "all": every}
        return _with_where(sentence(key, resource=names[0], **slots), where)
    slots = {"window": window, "gain": format_ratio_percent(limit.gain(first))}
    said = sentence("limit.one", resource=names[0], **slots)
    if others:
        slots["second_gain"] = format_ratio_percent(limit.gain(others[0]))
        said = sentence("limit.two", first=names[0], second=names[1], **slots)
    return _with_where(said, where)


def _with_where(said: str, where: str) -> str:
    """One sentence where that is short enough, else two."""
    whole = f"{said[:-1]}; {where}." if where else said
    return whole if len(whole.split()) <= _MOST_WORDS else f"{said} {where[:1].upper()}{where[1:]}."


def _where(results: Results, limit: Limit) -> str:
    """Where most of what limits is; "" where no place has much of it."""
    if limit.limits[0] == "kernels" and int(limit.window["graph_busy_ns"]) > int(limit.window["kernel_ns"]):
        share = format_ratio_percent(int(limit.window["graph_busy_ns"]) / max(limit.window_ns, 1))
        return sentence("limit.where-graph", share=share)
    found = places(results, limit)
    of = resource_word(limit, found[0].resource) if found and len(limit.limits) > 1 else ""
    return where_text(found, max((one.gain_ratio for one in limit.gains), default=0.0), of)


def details_of(results: Results, limit: Limit) -> list[str]:
    """The numbers behind the verdict: how busy the device was, and what is known of the kernels."""
    if not limit.window_ns:
        return []
    said = [_busy(limit)]
    if "kernels" in limit.limits:
        said += _kernel_sentences(results, limit)
    if limit.unknown_ns > 0.05 * limit.window_ns:
        said.append(sentence("limit.left-out", time=format_ns(limit.unknown_ns)))
    return said


def _busy(limit: Limit) -> str:
    """How much of the time the devices were busy."""
    several = limit.device_count > 1
    device = f"{limit.device_count} GPUs were" if several else "The GPU was"
    return sentence(
        "limit.busy", device=device if limit.is_gpu else "The CPU's operators were",
        share=format_ratio_percent(limit.busy_ns / limit.window_ns), scope=sentence(f"scope.{limit.scope}"),
        window=format_ns(limit.of_device_ns), each=" each on average" if several else "",
    )  # fmt: skip


def _kernel_sentences(results: Results, limit: Limit) -> list[str]:
    """What limits the kernels, or what would show it."""
    window, work = limit.window, resource_word(limit, KERNELS)
    kernel = max(int(window["kernel_ns"]), 1)
    if int(window["graph_busy_ns"]) > kernel:
        return [sentence("kernels.graphs")]
    said = []
    if limit.kind == limits.SHAPE:
        said.append(sentence("kernels.shape", share=format_ratio_percent(int(window["small_launch_ns"]) / kernel)))
    if limit.is_gpu and int(window["simt_matrix_ns"]) > kernel / 2:
        said.append(sentence("kernels.simt", share=format_ratio_percent(int(window["simt_matrix_ns"]) / kernel)))
    row = counted_work_of(results, limit.captures)
    if row is None or (pd.isna(row["arithmetic_intensity_flop_per_byte"]) and str(row["bound"]) == limits.UNKNOWN):
        return said if limit.kind == limits.SHAPE else [
            *said, sentence("kernels.no-counters" if limit.is_gpu else "kernels.no-sizes")
        ]  # fmt: skip
    if limit.kind in ("compute", "memory", "latency") and str(row["bound_source"]) == "speed of light":
        return [*said, sentence("kernels.speed-of-light", work=work, peaks=peaks_reached(results, limit))]
    coverage = float(row["counter_coverage_ratio"])
    slots = {
        "work": work, "intensity": format_flop_per_byte(row["arithmetic_intensity_flop_per_byte"]),
        "throughput": format_flop_per_s(row["arithmetic_throughput_flop_per_s"]),
        "reached": format_ratio_percent(row["roof_ratio"]), "share": format_ratio_percent(coverage),
    }  # fmt: skip
    if limit.kind in ("compute", "memory", "latency"):
        said.append(sentence(f"kernels.{limit.kind}", **slots))
    elif pd.isna(row["roof_flop_per_s"]):
        return [*said, sentence("kernels.no-peaks", device="GPU" if limit.is_gpu else "CPU", **slots)]
    elif str(row["bound"]) == limits.UNKNOWN:
        return [*said, sentence("kernels.little", **slots)]
    else:
        said.append(sentence("kernels.between", **slots))
    is_estimate = str(row["counter_source"]) == "analytic"
    return [*said, sentence("kernels.estimated") if is_estimate else sentence("kernels.covered", **slots)]


def peaks_reached(results: Results, limit: Limit) -> str:
    """``: memory at 94.5 % of its peak, arithmetic at 12.0 %``: Nsight Compute's own shares, by time; '' unknown."""
    times = of_captures(results, "kernels", limit.captures, ["kernel_id", "duration_ns"])
    shares = frame_or_empty(results, "kernel_metrics", ["kernel_id", "metric_name", "value"])
    shares = shares.pivot_table("value", "kernel_id", "metric_name")
    shares = shares.reindex(columns=["memory_speed_ratio", "compute_speed_ratio"]).dropna()
    time = times.set_index("kernel_id")["duration_ns"].reindex(shares.index, fill_value=0).to_numpy()
    if not time.sum():
        return ""
    memory, compute = (format_ratio_percent(mean) for mean in shares.to_numpy().T @ time / time.sum())
    return sentence("limit.peaks", memory=memory, compute=compute)


def group_word(limit: Limit, group: str) -> str:
    """A group of time in words: what a CPU runs are operators."""
    return sentence("group.operator" if group == "kernel" and not limit.is_gpu else f"group.{group}")


def cause_text(row: CauseRow, most: int = 60) -> str:
    """``synchronisation (cudaStreamSynchronize) in loss``; names of at most so many letters."""
    call = f" ({shorten(called(row.call_name), most)})" if row.call_name else ""
    line = f" ({shorten(shown(row.source_line), most)})" if row.source_line else ""
    owner = f" {inside(shorten(shown(row.owner), most))}{line}" if row.owner else ""
    if row.cause == limits.FIRST_LAUNCH:
        return sentence("wait.first-launch", owner=owner)
    if row.cause == "not_recorded":
        return sentence("wait.queued", call=call, owner=owner)
    if row.cause == "thread_wait" and row.detail:
        return sentence("wait.thread", detail=shorten(shown(row.detail), most), owner=owner)
    behind = "behind " if row.cause in ("synchronization", "queued") else ""
    detail = f", {behind}{shorten(shown(row.detail), most)}" if row.detail else ""
    layer = f" [{shorten(shown(row.layer_path), most)}]" if row.layer_path else ""
    return f"{sentence(f'cause.{row.cause}')}{call}{owner}{layer}{detail}"


def verdict_line(results: Results) -> Text:
    """What stands first on the terminal: one line, or one for each capture where they have nothing in common."""
    own = own_verdicts(results)
    each = [(find_limit(results, [number]), name) for number, name in own.items()] or [(main_limit(results), "")]
    said = [({"word": word_of(limit), "sentence": sentence_of(results, limit)}, name) for limit, name in each]
    return Text("\n").join(verdict_text(*one) for one in said)


def verdict_text(said: dict[str, Any], capture: str = "") -> Text:
    """``Verdict  launch-bound. Halving …``; ``capture``: of which of several."""
    of = f" on {shown(capture, 80)}" if capture else ""
    return Text.assemble((f"Verdict{of}  {said['word']}", "bold"), f". {said['sentence']}")


def window_of(results: Results, limit: Limit) -> str:
    """The time that shares are of, in words: ``857 ms (2 executions after 1 warm-up)``."""
    window = format_ns(limit.of_device_ns)
    rows = limits.answers(results, limit)
    count = int(rows["execution_count"].max()) if len(rows) and limit.scope == "execution" else 0
    known = of_captures(results, "iterations", limit.captures, ["phase", "is_warmup"])
    is_warmup = known["is_warmup"].astype(bool)
    if count and rows["is_part"].eq(True).any():  # the time is that of all
        count = int((~is_warmup).sum())
    before = is_warmup.groupby([known["capture_id"], known["phase"]], observed=True).cummin()
    left_out = int(before.groupby(known["capture_id"]).sum().max()) if len(known) else 0
    after = sentence("bar.after", count=left_out, plural="s" * (left_out > 1)) if left_out else ""
    is_span = limit.scope == limits.OUTSIDE and limit.reason != limits.SERIAL
    if not count:
        return sentence("bar.recording", window=window) if is_span else window
    return sentence("bar.executions", window=window, count=count, plural="s" * (count > 1), after=after)


def verdict_data(results: Results) -> dict[str, Any]:
    """The verdict alone, as data."""
    return limit_data(results, main_limit(results))


def shares(limit: Limit) -> list[dict[str, Any]]:
    """What each resource saves where it takes half its time, largest first, then parts of resources, at the end all of
    them together: for every bar. ``word`` is what to print; ratios are of ``limit.whole_ns``."""
    every = [] if limit.together is None else [*limit.gains, *limit.parts, limit.together]
    return [
        {
            "resource": TOGETHER if one is limit.together else one.resources[0], "part": "".join(one.resources[1:2]),
            "word": "".join(one.resources[1:2]).replace("_", " ") or resource_word(limit, one.resources[0]),
            "gain_ratio": one.gain_ratio, "low_gain_ratio": one.gain_ratio - one.margin_ratio,
            "high_gain_ratio": one.gain_ratio + one.margin_ratio, "is_shown": one.is_shown,
            "is_limit": len(one.resources) == 1 and one.resources[0] in limit.limits,
        }
        for one in every
    ]  # fmt: skip


def first_shares(rows: list[dict[str, Any]], parts: int = 2) -> list[dict[str, Any]]:
    """Of `shares` what a first screen has room for: three resources, those that limit first, of kernels so many parts,
    and in place of one of these all together where that is no half, or far more than each alone: what halves everything
    halves the time."""
    whole = [one for one in rows[:-1] if not one["part"] and (one["is_shown"] or one["is_limit"])]
    whole = sorted(whole, key=lambda one: not one["is_limit"])[:3]
    inside = [one for one in rows if one["part"] and one["is_shown"] and whole[:1] and whole[0]["resource"] == KERNELS]
    alone = sum(one["gain_ratio"] for one in rows[:-1] if not one["part"])
    tells = [one for one in rows[-1:] if one["high_gain_ratio"] < 0.5 or 2 * alone < one["gain_ratio"]]
    return [*whole[:1], *inside[: max(parts - len(tells), 0)], *whole[1:], *tells]


def limit_data(results: Results, limit: Limit, *, with_details: bool = True) -> dict[str, Any]:
    """A limit with its words, as data. The details take analyses that nothing else may ask for."""
    details = [latency_note(results, limit), *details_of(results, limit)] if with_details else []
    return {
        "kind": limit.kind, "word": word_of(limit), "sentence": sentence_of(results, limit),
        "details": [one for one in details if one], "window": window_of(results, limit), "reason": limit.reason,
        "scope": limit.scope, "device_count": limit.device_count, "window_ns": limit.window_ns,
        "busy_ns": limit.busy_ns, "idle_ns": limit.window_ns - limit.busy_ns, "unknown_ns": limit.unknown_ns,
        "limits": list(limit.limits), "gains": shares(limit),
        "together_gain_ratio": limit.together.gain_ratio if limit.together else None,
        "groups": [{"group": group, "time_ns": time, "ratio": limit.ratio(group)} for group, time in limit.groups],
    }  # fmt: skip
