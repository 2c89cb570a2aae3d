"""Facts, statements and sections of results of many captures → a page with the same security policy as the report.

Written by the same `shell`, without what belongs to one workload (trust, selected layer).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from xsp_post import __version__
from xsp_post.reports import shell
from xsp_post.reports.blocks import Section
from xsp_post.reports.page_data import PageData
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
    shell.add_blocks(sections, data)
    footer = f"<footer>Made by xsp-post {escape(__version__)}. This page makes no network requests.</footer>\n"
    parts = [shell.Part("Summary", "summary", "Summary", _top(facts, statements)), *shell.parts_of(sections)]
    return shell.page(shell.Shell(brand, title, machine, parts, footer), data)


def _shown(text: str) -> str:
    return escape(visible(text, 600))


def _top(facts: Sequence[Fact], statements: Sequence[tuple[str, str]]) -> str:
    boxes = "".join(
        f'<div class="fact"><div class="label">{escape(fact.label)}</div><div class="value">{_shown(fact.text)}</div>'
        f'<div class="trust">{_shown(fact.note)}</div></div>'
        for fact in facts
    )
    parts = []
    if statements:
        (kind, said), rest = statements[0], statements[1:]
        items = "".join(f"<li>{_shown(sentence)}</li>" for _, sentence in rest)
        parts.append(
            f'<section class="verdict {escape(kind)}" id="verdict"><p class="said"><strong>{_shown(said)}'
            f"</strong></p><ul>{items}</ul></section>\n"
        )
    return f'<div id="summary">{"".join(parts)}<div class="facts">{boxes}</div></div>\n'
