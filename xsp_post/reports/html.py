"""The document → one self-contained HTML page (`shell` writes it)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from xsp_post.base.output import atomic_output
from xsp_post.model.results import Results
from xsp_post.reports import page_top, shell
from xsp_post.reports.document import Document, build
from xsp_post.reports.page_data import PageData


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
    return render_document(build(results, case=case, only=only))


def render_document(document: Document) -> str:
    """A document as a page."""
    data = PageData()
    shell.add_blocks(document.sections, data)
    data.add_layers(document.layers)
    summary = document.summary
    parts = shell.Shell(
        "xsp-post report",
        summary.title,
        summary.machine,
        page_top.first_screen(summary, [s.id for s in document.sections]),
        page_top.missing(document.missing) + page_top.footer(summary, data.strings.cut_count),
        _contents(document),
        document.sections,
        has_layers=True,
    )
    return shell.page(parts, data)


def _contents(document: Document) -> list[tuple[str, list[tuple[str, str]]]]:
    """The links of the page by group, in the order of the page."""
    groups: dict[str, list[tuple[str, str]]] = {
        "": [("summary", "Summary"), ("findings", "Findings"), ("trust", "Trust and balance")]
    }
    for section in document.sections:
        groups.setdefault(section.view, []).append((section.id, section.title))
    if document.missing:
        groups.setdefault("More", []).append(("missing", "What is missing"))
    return list(groups.items())
