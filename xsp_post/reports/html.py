"""The document → one self-contained HTML page (`shell` writes it)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xsp_post.base.output import write_text
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import counted, format_ns, format_operations, format_ratio_percent
from xsp_post.model.schemas.words import QUESTIONS, way
from xsp_post.reports import shell
from xsp_post.reports.blocks import rows_of
from xsp_post.reports.document import build
from xsp_post.reports.shell import macro
from xsp_post.reports.summary import Summary, TopRow
from xsp_post.reports.text import visible
from xsp_post.reports.theme import TIMES, WAYS
from xsp_post.reports.trust import Balance
from xsp_post.reports.verdict import first_shares, shares
from xsp_post.reports.why import bound_share, with_reason
from xsp_post.tables.analyses.advice import Advice

Bar = tuple[str, str, list[dict[str, Any]], list[str]]
_TOP = 3  # layers, and kernels, on the first screen


def first_screen(summary: Summary) -> str:
    """The verdict with what each resource would save, what to do next, facts, and the layers that matter."""
    where = f" ({summary.case.label})" if summary.case and summary.case.label else ""
    outside = [summary.outside] if summary.outside else []
    tops = []
    if summary.top_layers or outside:
        title = "The layers that take most" if summary.top_layers else "No layer was recorded"
        tops.append((title + where, top_rows(summary.top_layers[:_TOP], outside)))
    if summary.top_kernels:
        tops.append((f"The {summary.device.work} that take most{where}", top_rows(summary.top_kernels[:_TOP])))
    return macro("first_screen")(summary, _shares(summary), [_action(one) for one in summary.said.advice], tops)


def _shares(summary: Summary) -> list[dict[str, Any]]:
    """What would be saved if a resource took half its time, as the terminal says it; all together is the whole bar."""
    return [
        {**one, "margin": one["high_gain_ratio"] - one["gain_ratio"], "width": f"{200 * max(one['gain_ratio'], 0):.1f}"}
        for one in first_shares(shares(summary.said.limit))
    ]


def _action(one: Advice) -> dict[str, str]:
    """What to do, with what it saves: a share of the verdict's time, or of other time the time itself."""
    return {
        "what": visible(one.what, 400), "bound": bound_share(one),
        "why": f"{visible(one.evidence, 500)} {with_reason(one)}. Assumed: {visible(one.assumption, 400)}",
    }  # fmt: skip


def top_rows(rows: list[TopRow], unranked: Sequence[TopRow] = ()) -> list[tuple[TopRow, str, bool]]:
    """Rows, heaviest first, with the width of their bar in percent and whether they have a rank; those of ``unranked``
    stand among them without. Rows whose time is not known are shown only where none is known, without a bar."""
    rows = [row for row in rows if row.latency_ns > 0] or rows
    length = {id(row): max(row.latency_ns, 0.0) if row.latency_ns > 0 else 0.0 for row in (*rows, *unranked)}
    widest = max(length.values(), default=0.0) or 1.0
    ordered = sorted((*rows, *unranked), key=lambda row: -length[id(row)])
    return [(row, f"{100 * length[id(row)] / widest:.1f}", row in rows) for row in ordered]


def trust(summary: Summary) -> str:
    """How accurate the numbers are, what the time went to, and whether every kernel is accounted for."""
    bars = [*map(_split, summary.splits), *map(_balance, summary.balances)]
    rows = rows_of(summary.trust)
    return macro("trust")(bars, rows) if bars or rows else ""


def _split(split: dict[str, Any]) -> Bar:
    total, parts = split["total_ns"], []
    for part in split["parts"]:
        text = f"{part['label']} {format_ratio_percent(part['time_ns'] / total)} ({format_ns(part['time_ns'])})"
        parts.append(_part(text, part["time_ns"], total, f"--{TIMES.get(part['kind'], 'gap')}"))
    return split["title"], split["of"], parts, []


def _part(text: str, time: int, total: int, role: str) -> dict[str, Any]:
    return {"text": text, "width": f"{max(time, total / 400, 1):.0f}", "role": role}


def _balance(balance: Balance) -> Bar:
    unit = ("kernel", "kernels") if balance.operation_count == balance.kernel_count else ("operation", "operations")
    total = max(balance.device_ns, 1)

    def amount(operations: int, time: int) -> str:
        return f"{counted(operations, *unit)}, {format_ns(time)} ({format_ratio_percent(time / total)})"

    parts = [
        _part(f"{way(balance.question, one)}: {amount(count, time)}", time, total, f"--{WAYS.get(one, 'base')}")
        for one, count, time in balance.ways
    ]
    said = "adds up to" if balance.closes else "DOES NOT ADD UP to"
    every = format_operations(balance.kernel_count, balance.copy_count, balance.graph_count)
    over = f" in {balance.capture_count} captures" if balance.capture_count > 1 else ""
    more = [f"{said} {every}, {format_ns(balance.device_ns)}{over}"]
    if balance.question == "layer" and balance.self_operation_count:
        own = amount(balance.self_operation_count, balance.self_device_ns)
        more.append(f"of these in no layer, [self] of their model: {own}")
    return QUESTIONS.get(balance.question, balance.question), "", parts, more


def write_report(
    results: Results,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    case: int | None = None,
    only: Sequence[str] = (),
) -> Path:
    """Write the page and return its path. OutputError when the path exists (without ``force``) or cannot be written."""
    write_text(path, render(results, case=case, only=only), force)
    return Path(path)


def render(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> str:
    """The page as text, under 5 MB for any capture."""
    document = build(results, case=case, only=only)
    summary = document.summary
    parts = [
        shell.Part("Why", "summary", "Summary", first_screen(summary)),
        *shell.parts_of(document.sections),
        shell.Part("Trust", "findings", "Findings", macro("findings")(summary.findings)),
        shell.Part("Trust", "trust", "Trust and balance", trust(summary)),
    ]
    if document.missing:
        parts.append(shell.Part("Trust", "missing", "What is missing", macro("missing")(document.missing)))
    shown = [part for part in parts if part.section or part.html]
    return shell.page("xsp-post report", summary.title, summary.machine, shown, summary.sources)
