"""Results → what a notebook shows: the first screen of the tree, and folded away all of it with its findings."""

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

    printed = []
    for how in ({"verbose": False}, {"depth": 4, "top": 8}):
        text = io.StringIO()
        print_tree(Console(file=text, width=_WIDTH, force_terminal=False, color_system=None), results, **how)
        printed.append(f'<pre style="line-height:1.25;overflow-x:auto">{escape(text.getvalue())}</pre>')
    first, whole = printed
    return (
        f"<div><strong>{escape(name)}</strong>{first}"
        f"<details><summary>The whole tree, the balance and all findings</summary>{whole}</details></div>"
    )
