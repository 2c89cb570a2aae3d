"""Limit and idle causes → text for terminal and page: the limit, the largest causes, what to do next.

Nothing is computed here; `analyses.limits` and `analyses.advice` did.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from xsp_post.base.text_safety import shown
from xsp_post.base.texts import sentence
from xsp_post.model.results import Results, frame_or_empty, part_text
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.replay.experiment import TOGETHER
from xsp_post.reports.cases import own_verdicts
from xsp_post.reports.path_line import critical_path_line
from xsp_post.reports.rank_sentences import late_ranks, rank_sentence
from xsp_post.reports.serving import step_lines
from xsp_post.reports.terminal_text import one_line, say
from xsp_post.reports.text import cut_alike, fitted, shorten
from xsp_post.reports.verdict import (
    cause_text,
    coverage_note,
    first_shares,
    group_word,
    latency_note,
    lead_in_lines,
    limit_data,
    main_limit,
    shares,
    verdict_text,
)
from xsp_post.reports.where import Place, next_capture, place_text, places, spares_little, what_text
from xsp_post.tables.analyses.limits import LEAST_RATIO, ROWS_MISSING, CauseRow, Limit, largest_causes
from xsp_post.tables.analyses.places import places_of

if TYPE_CHECKING:
    from xsp_post.tables.analyses.advice import Advice


@dataclass(frozen=True)
class Why:
    """Everything that `xsp-post why` says."""

    limit: Limit
    causes: tuple[CauseRow, ...]
    advice: tuple[Advice, ...]
    verdict: dict[str, Any]  # the limit as data, with its words
    critical_path: str = ""  # one line; "" where no replay tables are at hand
    latency: str = ""  # what limits the latency with the host's time before and after; "" the same
    lead_in: str = ""  # what the first execution did before the device had work, the last one after; "" if short
    part: str = ""  # the part of the recording that all this is of; "" all of it
    replay_note: str = ""  # that only a part was replayed, where the capture is large; "" all
    no_advice: str = ""  # why there is none; "" where there is some
    ranks: str = ""  # which rank the others wait for; "" with fewer than two ranks
    capture_name: str = ""  # of several captures that are no job, the one that all this is of
    coverage_note: str = ""  # device time that the verdict leaves out, or that no launch is known of; "" none
    late_rank: str = ""  # the short form of ``ranks``
    places: str = ""  # modules and lines with most device time, where lines are known; only with --verbose
    steps: tuple[str, ...] = ()  # kinds of steps of inference with their percentiles, and slow ones
    where: tuple[Place, ...] = ()  # the ranges with most of what limits
    next_capture: str = ""  # what to record next, where nothing, or no place, can be said
    is_next_first: bool = False  # all advice spares little of what limits: what is next comes before it
    beyond: str = ""  # of the user's time what the verdict's leaves out, for a first screen: the host before or after


def why(results: Results, limit: Limit | None = None, *, layer: str = "", is_first: bool = False,
        is_brief: bool = False) -> Why:  # fmt: skip
    """The limit, the five largest causes and what to do next. ``layer``: causes of these layers only. ``is_first``:
    only what `print_first` says; ``is_brief``: only what `print_why` says without ``verbose``."""
    from xsp_post.tables.analyses.advice import advise, why_none

    limit = limit or main_limit(results)
    advice = tuple(advise(results, limit))
    none = "" if advice or not limit.window_ns else why_none(results, limit)
    where = () if layer else tuple(places(results, limit))
    data = limit_data(results, limit, with_details=not (is_first or is_brief))
    latency, lead_in = latency_note(results, limit), lead_in_lines(results, limit)
    first = Why(
        limit, (), advice, data, latency=latency, lead_in=" ".join(lead_in),
        beyond=latency or "".join(lead_in[:1]), no_advice=none, steps=step_lines(results), where=where,
        next_capture=next_capture(results, limit, where, advice), is_next_first=spares_little(limit, advice),
    )  # fmt: skip
    frame_or_empty(results, "overhead")  # raises for captures of several programs; what it finds is shown on any screen
    if is_first:
        return first
    has_kernels = limit.reason != ROWS_MISSING  # else the device may have been busy where it seems to wait
    brief = replace(
        first, part=part_text(results),
        causes=tuple(largest_causes(results, limit, layer=layer)) if limit.scope and has_kernels else (),
        capture_name=own_verdicts(results).get(limit.captures[0], "") if limit.captures else "",
        coverage_note=coverage_note(results, limit), late_rank=late_rank_line(results),
    )  # fmt: skip
    if is_brief:
        return brief
    is_one = len(limit.captures) == 1 and limit.scope == "execution"
    return replace(
        brief, replay_note=replay_note(results), ranks=ranks_line(results), places=places_line(results),
        critical_path=critical_path_line(results, limit.captures[0]) if has_kernels and is_one else "",
    )  # fmt: skip


def ranks_line(results: Results) -> str:
    """Which rank the others wait for, from the table of ranks; "" with fewer than two."""
    ranks = frame_or_empty(results, "ranks")
    return f"{rank_sentence(ranks)} More: xsp-post table ranks" if len(ranks) > 1 else ""


def late_rank_line(results: Results) -> str:
    """Which rank the others wait for, or why it is late; "" with fewer than two."""
    ranks = frame_or_empty(results, "ranks")
    late = ranks.loc[ranks["is_straggler"].eq(True)].reindex(columns=["late_cause"])  # a store of before lacks it
    known = [one for one in late["late_cause"].fillna("").astype(str) if one != "unknown"]
    said = late_ranks(ranks)[-1 if len(known) == 1 and known[0] else 0] if len(ranks) > 1 else ""
    return " ".join((said, sentence("ranks.more"))) if said else ""


def places_line(results: Results) -> str:
    """The modules and source lines with most device time; "" where no line is known."""
    spent = places_of(results)
    if spent.empty:
        return ""
    named = spent.assign(module=spent["module"].str.replace(r"(?<=\.)\d+\b", "*", regex=True))  # equal blocks as one
    whole = frame_or_empty(results, "operations", ["device_ns"])["device_ns"].sum()
    most = named.groupby(["module", "source_line"])["device_ns"].sum().nlargest(_MOST_PLACES) / whole
    rows = most.reset_index(name="ratio").itertuples(index=False)
    places = [f"{format_ratio_percent(row.ratio)} {row.module} ({row.source_line})" for row in rows]
    return sentence("note.places", places=", ".join(places))


def replay_note(results: Results) -> str:
    """That only a part of a large capture was replayed; "" where all was."""
    is_part = frame_or_empty(results, "experiment", ["is_part"])["is_part"]
    return sentence("note.replay-part") if is_part.astype(bool).any() else ""


_MOST_PLACES = 2
_FEW = 3  # causes and changes that the first screen has room for
_BAR_WIDTH = 40
_BEFORE_CAUSE = 20  # columns of share and time before what a wait was
# Shares that sum to less than this below all of the time look as if something were missing.
_LEAST_REST = 0.005


def evidence_of(limit: Limit) -> tuple[str, ...]:
    """One line per group with more than a hundredth of the time, and one for the others where they are worth it:
    together they are all of it."""
    said = _groups(limit)
    rest = max(limit.window_ns, 1) - sum(time for _, time in said)
    if said and rest >= _LEAST_REST * limit.window_ns:
        said.append(("other, each below 1 %", rest))
    return tuple(
        f"{word[:1].upper()}{word[1:]}: {_of_device(limit, time)}, {_share(limit, time)}" for word, time in said
    )


def parts_of(limit: Limit) -> str:
    """The same in one sentence: ``kernels 468 ms (97.5 %), launches 5.63 ms (1.2 %)``."""
    return ", ".join(f"{word} {_of_device(limit, time)} ({_share(limit, time)})" for word, time in _groups(limit))


def _groups(limit: Limit) -> list[tuple[str, int]]:
    """Groups with more than a hundredth of the time, in words; of all devices, ns."""
    groups = [one for one in (*limit.groups, ("unknown", limit.unknown_ns)) if one[1] >= 0.01 * limit.window_ns > 0]
    waited = dict(limit.groups).get("copy", 0) - int(limit.window.get("copy_busy_ns", limit.window_ns))
    calls = ", and waiting for copy calls"
    return [
        (group_word(limit, name) + calls * (name == "copy" and waited >= 0.01 * time), time) for name, time in groups
    ]


def _of_device(limit: Limit, time: float) -> str:
    """A time of all devices as that of one: the mean."""
    return format_ns(time / max(limit.device_count, 1))


def _share(limit: Limit, time: float) -> str:
    return format_ratio_percent(time / max(limit.window_ns, 1))


def print_why(console: Console, said: Why, *, verbose: bool = False) -> None:
    """Verdict, what each resource would save, what to do next; ``verbose``: with evidence and all causes."""
    limit = said.limit
    if said.part:
        say(console, f"Part shown: {said.part}")
    say(console, verdict_text(said.verdict, said.capture_name))
    if said.capture_name:
        say(console, sentence("note.not-ranks"))
    if not limit.window_ns:
        return
    print_gains(console, limit, said.verdict["window"])
    if said.places and verbose:
        one_line(console, Text(shown(said.places, 400)))
    _print_steps(console, said)
    first = said.latency if verbose else said.beyond
    for line in filter(None, (first, said.coverage_note, "" if verbose else said.late_rank)):
        say(console, shown(line, 400))
    if verbose:
        details = [one for one in said.verdict["details"][bool(said.latency) :] if one not in said.coverage_note]
        for line in filter(None, (said.ranks, *details, said.lead_in, said.critical_path, said.replay_note)):
            say(console, shown(line, 400))
        console.print(Text("Where the time went", style="bold"))
        for line in evidence_of(limit):
            say(console, f"  {line}")
    _print_causes(console, said, verbose)
    say(console, Text(sentence("bar.next-of" if said.advice else "bar.next"), style="bold"))
    if said.no_advice:
        say(console, f"  {said.no_advice}", hanging=0)
    if said.next_capture and said.is_next_first:
        say(console, f"  {said.next_capture}", hanging=0)
    for number, one in enumerate(said.advice if verbose else said.advice[:_FEW], 1):
        what = Text(f"  {number}. {shown(one.what, 300)}", style="bold")
        if not verbose:
            say(console, what.append(f" {with_reason(one)}.", style="not bold"), hanging=3)
            continue
        say(console, what, hanging=3)
        say(console, f"     {gain_of(one)}. {shown(one.evidence, 400)}", hanging=0)
        say(console, Text(f"     Assumed: {shown(one.assumption, 300)}", style="dim"), hanging=0)
    if said.next_capture and not said.is_next_first:
        say(console, f"  {said.next_capture}", hanging=0)


def _print_causes(console: Console, said: Why, verbose: bool) -> None:
    """Where most of what limits is; with ``verbose`` and where no place is known the largest waits. Share and time,
    then what it was: names give way to a narrow terminal, words do not."""
    limit, room = said.limit, max(console.width - _BEFORE_CAUSE, 6)
    if said.where and not verbose:
        title = sentence("bar.where")
        names, most = [one.name for one in said.where], room * 2 // 3
        kept = [name if cut == shorten(name, most) else cut for name, cut in zip(names, cut_alike(names, most))]
        texts = [fitted(partial(place_text, replace(one, name=name)), room) for one, name in zip(said.where, kept)]
        rows = [(one.ratio, one.time_ns, text) for one, text in zip(said.where, texts)]
    else:
        of = f" ({_idle_of(limit)})" if verbose else ""
        title = sentence("bar.causes", time=_of_device(limit, limit.window_ns - limit.busy_ns), of=of)
        causes = said.causes if verbose else [row for row in said.causes[:_FEW] if row.ratio >= LEAST_RATIO]
        texts = [
            cause_text(row) + f", {format_count(row.piece_count)} times" * (row.piece_count > 1)
            if verbose
            else fitted(partial(cause_text, row), room)
            for row in causes
        ]
        rows = [(row.ratio, row.idle_ns, text) for row, text in zip(causes, texts)]
    if not rows:
        return
    say(console, Text(title, style="bold"))
    for ratio, time, text in rows:
        say(console, f"  {format_ratio_percent(ratio):>7}  {format_ns(time):>7}  {text}", hanging=_BEFORE_CAUSE - 2)


def print_first(console: Console, said: Why) -> None:
    """What the screens of other commands begin with: verdict, what halving each resource saves, what to do next."""
    say(console, verdict_text(said.verdict))
    if rows := shares(said.limit):
        bars = "  ".join(
            f"{one['word']} {'█' * round(max(one['gain_ratio'], 0) * 10)} {format_ratio_percent(one['gain_ratio'])}"
            for one in first_shares(rows, 0)
            if one["resource"] != TOGETHER
        )
        one_line(console, " ".join((sentence("bar.short"), bars)))
    advised = [_in_one_line(f"{k}. ", one, console.width - 2) for k, one in enumerate(said.advice[:_FEW], 1)]
    advised = advised or [said.no_advice]
    advised = [said.next_capture, *advised] if said.is_next_first else [*advised, said.next_capture]
    for line in filter(None, (*advised, said.beyond)):
        one_line(console, f"  {line}")
    _print_steps(console, said)


def _in_one_line(number: str, one: Advice, room: int) -> str:
    """What to do, without how (what stands behind a colon) where all of it is longer than the room, and its bound."""
    what, bound = number + shown(one.what, 300).rstrip("."), f" · {bound_share(one)}"
    room = max(room - len(bound), 2)
    said = Text(what if len(what) <= room else what.partition(": ")[0])
    said.truncate(room, overflow="ellipsis")
    return said.plain + bound


def _print_steps(console: Console, said: Why) -> None:
    for number, line in enumerate(said.steps):
        one_line(console, Text(shown(line, 300), style="" if number else "bold"))


def print_gains(console: Console, limit: Limit, window: str) -> None:
    """A bar for each resource that would save something, and one for all together."""
    rows = shares(limit)
    if not rows:
        return
    console.print(Text(sentence("bar.title", window=window), style="bold"))
    for one in first_shares(rows):
        gain, name = one["gain_ratio"], f"{'  ' * bool(one['part'])}{one['word']}"
        bar = "█" * round(max(gain, 0.0) * _BAR_WIDTH * 2)
        margin = f"± {one['high_gain_ratio'] - gain:.0%}".replace("%", " %")
        line = f"  {name:<16}{format_ratio_percent(gain):>7} {margin:>6}  {bar}"
        console.print(Text(line.rstrip()), highlight=False)


def _idle_of(limit: Limit) -> str:
    """Which time the idle time is of; `compare` says it of the whole recording."""
    each = f"each of {limit.device_count} GPUs, " if limit.device_count > 1 else ""
    scope = {"execution": "executions, ", "warm-up": "warm-up, "}.get(limit.scope, "")
    return f"{each}{scope}from the first device work to the last"


def reach_of(one: Advice) -> str:
    """Whether the bound of an advice is the most that it saves, or only the time that it concerns."""
    return "at most" if one.is_bound else "acts on"


def bound_share(one: Advice) -> str:
    """``about 2.5 %, at most 4.5 %`` of the verdict's time; of time that is spent once ``at most 475 ms, once``."""
    if one.bound_of != "the time":
        return f"{reach_of(one)} {format_ns(one.bound_ns)}, once"
    ratios = one.bound_ratio, one.bound_ratio * one.estimate_ns / max(one.bound_ns, 1)
    most, about = map(format_ratio_percent, ratios)
    bound = f"{reach_of(one)} {most}"
    return f"about {about}, {bound}" if one.estimate_ns >= 0 and about != most else bound


def bound_text(one: Advice) -> str:
    """``About 9.1 ms, at most 12.3 ms (4.5 %)``, where a replay of the change saves the first; of time that is
    spent once ``At most 475 ms, once, of the 593 ms with start-up``."""
    reach = reach_of(one).capitalize()
    if one.estimate_ns >= 0 and format_ns(one.estimate_ns) != format_ns(one.bound_ns):
        reach = f"About {format_ns(one.estimate_ns)}, {reach.lower()}"
    if one.bound_of == "the time":
        return f"{reach} {format_ns(one.bound_ns)} ({format_ratio_percent(one.bound_ratio)})"
    return f"{reach} {format_ns(one.bound_ns)}, once, of {one.bound_of}"


def with_reason(one: Advice) -> str:
    """`bound_text`, and when the bound may be reached, where it is far above the estimate."""
    return f"{bound_text(one)} if {one.more}" if one.more else bound_text(one)


def gain_of(one: Advice) -> str:
    """`with_reason` and the replay's error."""
    error = one.replay_error_ratio
    of_replay = "" if error is None else f"; replay error {format_ratio_percent(error)}"
    return f"{with_reason(one)}{of_replay}"


def json_of(said: Why) -> dict[str, Any]:
    """The same as data."""
    return {
        "part": said.part or None, "verdict": said.verdict, "critical_path": said.critical_path or None,
        "replay_note": said.replay_note or None, "lead_in": said.lead_in or None,
        "coverage_note": said.coverage_note or None, "ranks": said.ranks or None,
        "capture": said.capture_name or None, "no_advice": said.no_advice or None, "places": said.places or None,
        "next_capture": said.next_capture or None,
        "steps": list(said.steps), "where": [
            {"name": one.name, "what": what_text(one), "time_ns": one.time_ns, "ratio": one.ratio} for one in said.where
        ],
        "causes": [asdict(row) for row in said.causes], "advice": [asdict(one) for one in said.advice],
    }  # fmt: skip
