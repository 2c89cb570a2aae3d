"""Results → what a notebook shows of them: the verdict, the tree and the findings, as the terminal prints them."""

import io
from html import escape

from xsp_post.model.results import Results

_WIDTH = 120
_NEEDED = {"captures", "paths", "balance", "findings"}


def html_of(results: Results, name: str) -> str:
    """HTML without scripts or styles from elsewhere; "" for results that hold no tree."""
    if not set(results.tables()) >= _NEEDED:
        return ""
    from rich.console import Console

    from xsp_post.reports.terminal import print_tree
    from xsp_post.reports.verdict import verdict_line

    verdict = verdict_line(results).plain
    text = io.StringIO()
    print_tree(Console(file=text, width=_WIDTH, force_terminal=False, color_system=None), results, depth=4, top=8)
    printed = text.getvalue()
    return (
        f"<div><strong>{escape(name)}</strong><p>{escape(verdict)}</p>"
        f'<pre style="line-height:1.25;overflow-x:auto">{escape(printed)}</pre></div>'
    )
