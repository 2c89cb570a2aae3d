"""The frame that every section of every page has."""

from __future__ import annotations

from html import escape


def section_html(identity: str, title: str, question: str, body: str) -> str:
    """A section with its heading, its anchor and what it answers; ``body`` is HTML, the rest is text."""
    return (
        f'<section id="{escape(identity)}" aria-labelledby="{escape(identity)}-title"><header>'
        f'<h2 id="{escape(identity)}-title">{escape(title)}</h2>'
        f'<a class="anchor" href="#{escape(identity)}" aria-label="Link to this section">#</a>'
        f"<p>{escape(question)}</p></header>{body}</section>\n"
    )
