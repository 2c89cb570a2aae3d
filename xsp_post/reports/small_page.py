"""A page of statements and sections for results of many captures; as safe as the report.

Same style sheet, script, blocks and Content-Security-Policy as `html`, without what belongs to one workload
(verdict, trust, selected layer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from xsp_post import __version__
from xsp_post.reports import javascript
from xsp_post.reports.blocks import Chart, Drawing, Note, Section, Table
from xsp_post.reports.page_data import PageData
from xsp_post.reports.sections import section_html
from xsp_post.reports.text import visible


@dataclass(frozen=True)
class Fact:
    """One number at the top of the page."""

    label: str
    text: str
    note: str = ""


def render_page(
    title: str,
    machine: str,
    brand: str,
    facts: Sequence[Fact],
    statements: Sequence[tuple[str, str]],
    sections: Sequence[Section],
) -> str:
    """The page as text. ``statements``: (kind, sentence), the first being the verdict; all texts may be hostile."""
    data = PageData()
    body = "".join(_section(section, data) for section in sections)
    vega = javascript.VegaBundle().text() if data.charts else ""
    own = javascript.page_script()
    policy = (
        "default-src 'none'; script-src "
        + " ".join(javascript.source_hash(s) for s in (vega, own) if s)
        + "; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{escape(s.id)}">{escape(s.title)}</a></li>' for s in sections)
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n<meta name="generator" content="xsp-post">\n',
            f"<title>{_shown(title)} · xsp-post</title>\n<style>\n{javascript.page_style()}</style>\n</head>\n<body>\n",
            '<a class="skip" href="#summary">Skip to the summary</a>\n<div class="shell">\n',
            f'<header class="top"><div><div class="brand">{escape(brand)}</div><h1>{_shown(title)}</h1>',
            f'<p class="machine">{_shown(machine)}</p></div><div class="controls"><button type="button" id="theme">',
            "☾ Dark</button></div></header>\n",
            "<noscript><p>Charts and tables need JavaScript; the summary below does not.</p></noscript>\n",
            '<div class="frame">\n<nav id="toc" aria-label="Contents"><details open><summary>Contents</summary><ul>',
            f'<li><a href="#summary">Summary</a></li>{links}</ul></details></nav>\n<main>\n',
            _top(facts, statements),
            body,
            f"<footer><p>Made by xsp-post {escape(__version__)}. This page asks no server for anything.</p></footer>",
            "</main>\n</div>\n</div>\n",
            '<aside id="layer-bar" hidden></aside>\n<div id="tip" role="tooltip" hidden></div>\n',
            f'<script type="application/json" id="xsp-data">{data.to_json()}</script>\n',
            f"<script>{vega}</script>\n" if vega else "",
            f"<script>{own}</script>\n</body>\n</html>\n",
        )
    )


def _shown(text: str) -> str:
    return escape(visible(text, 600))


def _top(facts: Sequence[Fact], statements: Sequence[tuple[str, str]]) -> str:
    boxes = "".join(
        f'<div class="fact"><div class="label">{escape(fact.label)}</div><div class="value">{_shown(fact.text)}</div>'
        f'<div class="trust">{_shown(fact.note)}</div></div>'
        for fact in facts
    )
    parts = [f'<div id="summary" class="facts">{boxes}</div>\n']
    if statements:
        (kind, said), rest = statements[0], statements[1:]
        items = "".join(f"<li>{_shown(sentence)}</li>" for _, sentence in rest)
        parts.append(
            f'<section class="verdict {escape(kind)}" id="verdict"><p class="said"><strong>{_shown(said)}'
            f"</strong></p><ul>{items}</ul></section>\n"
        )
    return "".join(parts)


def _section(section: Section, data: PageData) -> str:
    body = "".join(_block(block, data) for block in section.blocks)
    return section_html(section.id, section.title, section.question, body)


def _block(block: Chart | Table | Drawing | Note, data: PageData) -> str:
    if isinstance(block, Note):
        return f'<p class="note">{_shown(block.text)}</p>'
    if isinstance(block, Table):
        data.add_table(block)
        return f'<div class="table" data-table="{escape(block.id)}"></div>'
    if isinstance(block, Chart):
        data.add_chart(block)
        heading = f"<h3>{escape(block.label)}</h3>" if block.label else ""
        return (
            f'<figure data-chart="{escape(block.id)}" id="chart-{escape(block.id)}"><div class="chart-head">{heading}'
            f'</div><div class="vega"></div><figcaption>{escape(block.caption)}</figcaption></figure>'
        )
    raise TypeError(type(block).__name__)
