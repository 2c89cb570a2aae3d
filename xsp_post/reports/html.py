"""The document → one self-contained HTML page. No request to any server, ever.

Text of a capture reaches the page in two ways: through `html.escape` into the static top, or as JSON that the
page's script shows with ``textContent``. The Content-Security-Policy allows the two inline scripts by their
hashes and nothing else: no connection, no font, no frame, no evaluation of text as code.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from xsp_post.base.output import atomic_output
from xsp_post.model.results import Results
from xsp_post.reports import javascript, page_top
from xsp_post.reports.blocks import Block, Chart, Drawing, Note, Section, Table
from xsp_post.reports.document import Document, build
from xsp_post.reports.page_data import PageData
from xsp_post.reports.sections import section_html


def write_report(
    results: Results,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    case: int | None = None,
    only: Sequence[str] = (),
) -> Path:
    """Write the page and return its path. OutputError when the path exists (without ``force``) or cannot be written."""
    with atomic_output(path, force) as temporary:
        temporary.write_text(render(results, case=case, only=only), encoding="utf-8")
    return Path(path)


def render(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> str:
    """The page as text, under 5 MB for any capture."""
    bundle = javascript.VegaBundle()
    try:
        return render_document(build(results, case=case, only=only), bundle)
    finally:
        bundle.cancel()


def render_document(document: Document, bundle: javascript.VegaBundle | None = None) -> str:
    """A document as a page."""
    data = PageData()
    sections = "".join(_section(section, data) for section in document.sections)
    data.add_layers(document.layers)
    uses_charts = bool(data.charts)
    vega = (bundle or javascript.VegaBundle()).text() if uses_charts else ""
    own = javascript.page_script()
    policy = (
        "default-src 'none'; script-src "
        + " ".join(javascript.source_hash(s) for s in (vega, own) if s)
        + "; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    summary = document.summary
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="referrer" content="no-referrer">\n<meta name="generator" content="xsp-post">\n',
            f"<title>{escape(summary.title)} · xsp-post</title>\n<style>\n{javascript.page_style()}</style>\n"
            f"</head>\n<body>\n",
            '<a class="skip" href="#summary">Skip to the summary</a>\n<div class="shell">\n',
            page_top.header(summary),
            '<div class="frame">\n',
            _contents(document),
            "<main>\n",
            page_top.first_screen(summary, [s.id for s in document.sections]),
            sections,
            page_top.missing(document.missing),
            page_top.footer(summary, data.strings.cut_count),
            "</main>\n</div>\n</div>\n",
            '<aside id="layer-bar" aria-live="polite" aria-label="Selected layer" hidden></aside>\n<div '
            'id="tip" role="tooltip" hidden></div>\n',
            f'<script type="application/json" id="xsp-data">{data.to_json()}</script>\n',
            f"<script>{vega}</script>\n" if vega else "",
            f"<script>{own}</script>\n</body>\n</html>\n",
        )
    )


def _contents(document: Document) -> str:
    groups: dict[str, list[tuple[str, str]]] = {
        "": [("summary", "Summary"), ("findings", "Findings"), ("trust", "Trust and balance")]
    }
    for section in document.sections:
        groups.setdefault(section.group, []).append((section.id, section.title))
    if document.missing:
        groups.setdefault("More", []).append(("missing", "What is not here"))
    parts = []
    for group, links in groups.items():
        head = f'<div class="group">{escape(group)}</div>' if group and len(links) > 1 else ""
        items = "".join(f'<li><a href="#{escape(anchor)}">{escape(title)}</a></li>' for anchor, title in links)
        parts.append(f"{head}<ul>{items}</ul>")
    return (
        f'<nav id="toc" aria-label="Contents"><details open><summary>Contents</summary>{"".join(parts)}'
        f"</details></nav>\n"
    )


def _section(section: Section, data: PageData) -> str:
    body = "".join(_block(block, data) for block in section.blocks)
    return section_html(section.id, section.title, section.question, body)


def _block(block: Block, data: PageData) -> str:
    if isinstance(block, Note):
        return f'<p class="{"note " if block.kind != "lead" else ""}{escape(block.kind)}">{escape(block.text)}</p>'
    if isinstance(block, Table):
        data.add_table(block)
        return f'<div class="table" data-table="{escape(block.id)}"></div>'
    if isinstance(block, Drawing):
        data.add_drawing(block)
        return (
            f'<figure class="drawing"><div data-drawing="{escape(block.kind)}" data-id="{escape(block.id)}"></div>'
            f"<figcaption>{escape(block.caption)}</figcaption></figure>"
        )
    return _chart(block, data)


def _chart(block: Chart, data: PageData) -> str:
    data.add_chart(block)
    switch = ""
    if block.alternatives:
        first = (
            "Log"
            if block.alternatives[0][0] == "Linear"
            else "Linear"
            if block.alternatives[0][0] == "Log"
            else "Chart"
        )
        buttons = "".join(
            f'<button type="button" data-alternative="{i}" aria-pressed="{str(i == 0).lower()}">{escape(label)}'
            f"</button>"
            for i, label in enumerate([first, *(label for label, _ in block.alternatives)])
        )
        switch = f'<span class="switch alternatives" role="group" aria-label="Scale">{buttons}</span>'
    heading = f"<h3>{escape(block.label)}</h3>" if block.label else ""
    return (
        f'<figure data-chart="{escape(block.id)}" id="chart-{escape(block.id)}"><div '
        f'class="chart-head">{heading}{switch}</div>'
        f'<div class="vega"></div><figcaption>{escape(block.caption)}</figcaption></figure>'
    )
