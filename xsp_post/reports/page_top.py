"""The static top of the page: summary, verdict, findings, trust and balance, as HTML.

It is written without script, so that the answer is there even where scripts are not allowed to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from xsp_post import __version__
from xsp_post.model.schemas.units import format_count, format_ns, format_operations, format_ratio_percent
from xsp_post.model.schemas.words import QUESTIONS, way
from xsp_post.reports.blocks import rows_of
from xsp_post.reports.facts import counted
from xsp_post.reports.findings_view import Shown
from xsp_post.reports.page_rows import SectionRow
from xsp_post.reports.summary import Summary, TopRow
from xsp_post.reports.text import visible
from xsp_post.reports.time_split import Split
from xsp_post.reports.trust import Balance
from xsp_post.reports.why import reach_of
from xsp_post.tables.analyses.advice import Advice

_ACTIONS = 3
_LEAST_SHARE = 0.001  # resources that save less are left out behind the first few
_COLOURS = {
    "nesting": "--kernel",
    "sequence": "--base",
    "thread_time": "--compute",
    "graph": "--latency",
    "inferred": "--write",
    "none": "--other",
    "no_launch": "--unknown",
}
# Of the parts of a split (`time_split.Part.kind`).
_PARTS = {
    "kernel": "--kernel",
    "graph": "--base",
    "communication": "--write",
    "copy": "--read",
    "launch_call": "--launch",
    "launch_latency": "--latency",
    "queued": "--compute",
    "synchronization": "--compute",
    "host_code": "--other",
    "profiler_overhead": "--overhead",
    "unknown": "--unknown",
    "other": "--edge",
    "named": "--base",
    "inferred": "--latency",
    "self": "--other",
    "none": "--unknown",
}


def first_screen(summary: Summary) -> str:
    """The verdict with what each resource would save, what to do next, facts, and the layers that matter."""
    facts = "".join(
        f'<div class="fact{" uncertain" if fact.is_uncertain else ""}" data-fact="{escape(fact.id)}"><div '
        f'class="label">{escape(fact.label)}</div>'
        f'<div class="value">{_value(fact.text)}</div><div class="trust">{escape(fact.trust)}</div></div>'
        for fact in summary.facts
    )
    verdict = summary.verdict
    evidence = "".join(f"<li>{escape(line)}</li>" for line in verdict.evidence)
    more = f"<details><summary>What this rests on</summary><ul>{evidence}</ul></details>" if evidence else ""
    return (
        f'<div id="summary"><section class="verdict {escape(verdict.kind)}"><h2 class="said">'
        f"<strong>{escape(_capital(verdict.word))}.</strong> {escape(verdict.sentence)}</h2>"
        f'<div class="pair">{_shares(summary)}{_next(summary.advice)}</div>{more}</section>\n'
        f'<div class="facts" id="facts">{facts}</div>\n{_tops(summary)}</div>\n'
    )


def _shares(summary: Summary) -> str:
    """What would be saved if a resource took half its time, as bars of one scale."""
    if not summary.shares:
        return ""
    wholes = [one for one in summary.shares if not one["part"]]
    told = [one["resource"] for i, one in enumerate(wholes) if i < _ACTIONS or one["gain_ratio"] >= _LEAST_SHARE]
    rows = ""
    for one in (one for one in summary.shares if one["resource"] in told and (one["is_shown"] or not one["part"])):
        gain, margin = one["gain_ratio"], one["high_gain_ratio"] - one["gain_ratio"]
        rows += (
            f'<li{" class=part" if one["part"] else ""}><span>{escape(one["word"])}</span><span class="meter" '
            f'aria-hidden="true"><i style="width:{200 * max(gain, 0):.1f}%"></i></span><span class="num">'
            f"{escape(format_ratio_percent(gain))} <small>± {escape(format_ratio_percent(margin))}</small></span></li>"
        )
    return (
        f'<div class="shares"><h3>Saved if it took half its time <span class="of">of {escape(summary.shares_of)}</span>'
        f"</h3><ul>{rows}</ul></div>"
    )


def _split(split: Split) -> str:
    """A bar whose parts add up to the whole, and its parts in words."""
    total = max(split.total_ns, 1)
    strip, keys = [], []
    for part in split.parts:
        role = _PARTS.get(part.kind, "--gap")
        strip.append(f'<i style="flex:{max(part.time_ns, total / 400):.0f} 0 0;background:var({role})"></i>')
        keys.append(
            f'<span><i style="background:var({role})"></i>{escape(part.label)} '
            f"<b>{escape(format_ratio_percent(part.time_ns / total))}</b> ({escape(format_ns(part.time_ns))})</span>"
        )
    return (
        f'<div class="balance split"><h3>{escape(split.title)} <span class="of">{escape(split.of)}</span></h3>'
        f'<div class="strip" aria-hidden="true">{"".join(strip)}</div><div class="keys">{"".join(keys)}</div></div>'
    )


def _bound(one: Advice) -> str:
    """A share of the time that the verdict speaks of; of other time, which none beside it is a share of, the time."""
    return format_ns(one.bound_ns) if _share(one) else format_ratio_percent(one.bound_ratio)


def _share(one: Advice) -> str:
    return "" if one.bound_of == "the time" else f", {format_ratio_percent(one.bound_ratio)} of {one.bound_of}"


def _next(advice: Sequence[Advice]) -> str:
    """What to do next, the change that could save most being first; each with the most it can save."""
    if not advice:
        return ""
    items = [
        f'<li><div class="line"><span>{escape(visible(one.what, 400))}</span>'
        f'<span class="num">{escape(reach_of(one))} {escape(_bound(one))}</span></div>'
        f'<details><summary class="meta">why</summary><div class="meta">{escape(visible(one.evidence, 500))} '
        f"{escape(_capital(reach_of(one)))} {escape(format_ns(one.bound_ns))}{escape(_share(one))}. "
        f"Assumed: {escape(visible(one.assumption, 400))}</div></details></li>"
        for one in advice
    ]
    rest = "".join(items[_ACTIONS:])
    more = (
        f'<details><summary>{len(items) - _ACTIONS} more</summary><ol class="top">{rest}</ol></details>' if rest else ""
    )
    return f'<div id="next"><h3>Do next</h3><ol class="top">{"".join(items[:_ACTIONS])}</ol>{more}</div>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _value(text: str) -> str:
    number, space, unit = text.partition(" ")
    return f"{escape(number)}{space}<small>{escape(unit)}</small>" if unit else escape(number)


def _tops(summary: Summary) -> str:
    """The layers and kernels that take most, side by side."""
    where = f" ({escape(summary.case.label)})" if summary.case and summary.case.label else ""
    outside = [summary.outside] if summary.outside else []
    parts = []
    if summary.top_layers or outside:
        title = "The layers that take most" if summary.top_layers else "No layer was recorded"
        parts.append(f"<div><h3>{title}{where}</h3>{_top_list(summary.top_layers, outside)}</div>")
    if summary.top_kernels:
        title = f"The {escape(summary.device.work)} that take most"
        parts.append(f"<div><h3>{title}{where}</h3>{_top_list(summary.top_kernels)}</div>")
    return f'<section id="top"><div class="pair">{"".join(parts)}</div></section>\n' if parts else ""


def _top_list(rows: list[TopRow], unranked: Sequence[TopRow] = ()) -> str:
    """Rows with rank and bar, heaviest first; those of ``unranked`` stand among them without a rank. Rows whose time
    is not known are shown only where none is known, without a bar."""
    rows = [row for row in rows if row.latency_ns > 0] or rows
    widest = max((_length(row) for row in (*rows, *unranked)), default=0.0) or 1.0
    items, unranked_class = [], ' class="unranked"'
    for row in sorted((*rows, *unranked), key=lambda row: -_length(row)):
        name = escape(row.name)
        title = f' title="{escape(row.full_name[:1500])}"' if row.full_name != row.name else ""
        if row.layer_index >= 0:
            shown = (
                f'<button type="button" class="plain name" data-select-layer="{row.layer_index}" '
                f'data-layer="{row.layer_index}"{title}>{name}</button>'
            )
        else:
            shown = f'<span class="name"{title}>{name}</span>'
        tag = (
            f' <span class="tag tag-{escape(row.bound)}">{escape(row.bound)}-bound</span>'
            if row.bound in ("memory", "compute", "latency")
            else ""
        )
        lines = "".join(f'<div class="meta">{escape(line)}</div>' for line in row.lines[:1])
        items.append(
            f'<li title="{escape(" · ".join(row.lines))}"{"" if row in rows else unranked_class}>'
            f'<div class="line"><span>{shown}{tag}</span><span '
            f'class="num">{escape(format_ns(row.latency_ns))}</span></div>'
            f'<div class="meter"><i style="width:{100 * _length(row) / widest:.1f}%"></i></div>{lines}</li>'
        )
    return f'<ol class="top">{"".join(items)}</ol>'


def _length(row: TopRow) -> float:
    return row.latency_ns if row.latency_ns > 0 else 0.0


def findings(found: list[Shown]) -> str:
    """Problems in the data, their causes, and what to do."""
    if not found:
        body = '<p class="note">No problems were found in the captures.</p>'
    else:
        body = "".join(_finding(f) for f in found)
    return (
        '<section id="findings" aria-labelledby="findings-title"><header><h2 id="findings-title">Findings</h2>'
        f"<p>Problems in the data, their causes, and what to do.</p></header>{body}</section>\n"
    )


def _finding(found: Shown) -> str:
    rows = [("Cause", found.cause), ("Cure", found.cure), ("For example", " · ".join(found.examples))]
    lines = "".join(f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>" for title, text in rows if text)
    opened = " open" if found.severity in ("error", "warning") else ""
    times = f' <span class="more-count">× {escape(format_count(found.count))}</span>' if found.count > 1 else ""
    return (
        f'<details class="finding {escape(found.severity)}"{opened} data-code="{escape(found.code)}"><summary>'
        f'<span class="severity">{escape(found.severity)}</span>{escape(found.title)}{times}</summary><dl>{lines}'
        f"<dt>Code</dt><dd><code>{escape(found.code)}</code></dd></dl></details>"
    )


def trust(summary: Summary) -> str:
    """How accurate the numbers are, what the time went to, and whether every kernel is accounted for."""
    rows = "".join(
        f"<tr><td>{escape(r.quantity)}</td><td>{escape(r.level or '–')}</td><td class='num'>{escape(r.n)}</td>"
        f"<td>{escape(r.spread)}</td><td>{escape(r.overhead)}</td></tr>"
        for r in rows_of(summary.trust)
    )
    table = (
        "<h3>Where each number comes from</h3><div class='scroll plain-table'><table><thead><tr><th>Number</th>"
        "<th>Taken from level</th>"
        f"<th class='num'>n</th><th>Spread</th><th>Profiling overhead</th></tr></thead><tbody>{rows}</tbody>"
        f"</table></div>"
        if rows
        else ""
    )
    balances = "".join(_balance(balance) for balance in summary.balances)
    splits = "".join(_split(split) for split in summary.splits)
    if not table and not balances and not splits:
        return ""
    return (
        '<section id="trust" aria-labelledby="trust-title"><header><h2 id="trust-title">Trust and balance</h2>'
        "<p>How accurate are the numbers, and is every kernel accounted for?</p></header>"
        f"{splits}{balances}{table}</section>\n"
    )


def _balance(balance: Balance) -> str:
    total = max(balance.device_ns, 1)
    strip, keys = [], []
    unit = ("kernel", "kernels") if balance.operation_count == balance.kernel_count else ("operation", "operations")
    for attribution, operations, device_ns in balance.parts:
        words, role = way(balance.question, attribution), _COLOURS.get(attribution, "--base")
        share = format_ratio_percent(device_ns / total)
        strip.append(f'<i style="flex:{max(device_ns, total / 400):.0f} 0 0;background:var({role})"></i>')
        keys.append(
            f'<span><i style="background:var({role})"></i>{escape(words)}: '
            f"{escape(counted(operations, *unit))}, "
            f"{escape(format_ns(device_ns))} ({escape(share)})</span>"
        )
    said = "adds up to" if balance.closes else "DOES NOT ADD UP to"
    over = f" in {balance.capture_count} captures" if balance.capture_count > 1 else ""
    question = QUESTIONS.get(balance.question, balance.question)
    own = ""
    if balance.question == "layer" and balance.self_operation_count:
        own = (
            f"<span>of these in no layer, [self] of their model: "
            f"{escape(counted(balance.self_operation_count, *unit))}, "
            f"{escape(format_ns(balance.self_device_ns))} "
            f"({escape(format_ratio_percent(balance.self_device_ns / total))})</span>"
        )
    return (
        f'<div class="balance" data-balance="{escape(balance.question)}"><h3>{escape(question)}</h3>'
        f'<div class="strip">{"".join(strip)}</div><div class="keys">{"".join(keys)}'
        f"<span>{said} {escape(format_operations(balance.kernel_count, balance.copy_count, balance.graph_count))}, "
        f"{escape(format_ns(balance.device_ns))}{over}</span>{own}</div></div>"
    )


def missing(rows: Sequence[SectionRow]) -> str:
    """What this report could also show, and what would record it."""
    if not rows:
        return ""
    items = "".join(
        f"<li><strong>{escape(e.title)}</strong>{' (' + ', '.join(e.analyses) + ')' if e.analyses else ''}: "
        f"{escape(e.recorded)}</li>"
        for e in rows
    )
    return (
        f'<section id="missing" class="missing"><header><h2>What is missing</h2><p>Its data was not '
        f"recorded. What would record it:</p></header><ul>{items}</ul></section>\n"
    )


def footer(summary: Summary, cut_count: int) -> str:
    """Sources, version, and what was cut."""
    cut = f" {format_count(cut_count)} long names are shortened in this file." if cut_count else ""
    return (
        f"<footer>Made by xsp-post {escape(__version__)} from {escape(', '.join(summary.sources[:8]) or 'no capture')}."
        f" This page is one file and makes no network requests.{cut}</footer>\n"
    )
