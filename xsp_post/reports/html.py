"""The document → one self-contained HTML page (`shell` writes it)."""

import os
from collections.abc import Sequence
from pathlib import Path

from xsp_post.base.output import atomic_output
from xsp_post.model.results import Results
from xsp_post.reports import page_top, shell
from xsp_post.reports.document import Document, build
from xsp_post.reports.page_data import PageData

_VIEWS = ("Why", "Layers", "Kernels", "Timeline", "Compare", "Trust")  # one a question, in the order of the menu


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
    summary = document.summary
    parts = [
        shell.Part("Why", "summary", "Summary", page_top.first_screen(summary)),
        *shell.parts_of(document.sections),
        shell.Part("Trust", "findings", "Findings", page_top.findings(summary.findings)),
        shell.Part("Trust", "trust", "Trust and balance", page_top.trust(summary)),
        shell.Part("Trust", "missing", "What is missing", page_top.missing(document.missing)),
    ]
    shown = [part for part in parts if part.section or part.html]
    shown.sort(key=lambda part: _VIEWS.index(part.view))
    footer = page_top.footer(summary, data.strings.cut_count)
    return shell.page(shell.Shell("xsp-post report", summary.title, summary.machine, shown, footer, True), data)
