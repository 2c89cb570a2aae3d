"""Facts, statements and sections of results of many captures → a page with the same security policy as the report.

Written by the same `shell`, without what belongs to one workload (trust, selected layer).
"""

from collections.abc import Sequence

from xsp_post.reports import shell
from xsp_post.reports.blocks import Section

Fact = tuple[str, str, str]  # one number at the top of the page: its label, its text, a note


def render_page(
    title: str,
    machine: str,
    brand: str,
    facts: Sequence[Fact],
    statements: Sequence[tuple[str, str]],
    sections: Sequence[Section],
) -> str:
    """The page as text. ``statements``: (kind, sentence), the first being the verdict; all texts may be hostile."""
    top = shell.macro("small_screen")(facts, statements)
    parts = [shell.Part("Summary", "summary", "Summary", top), *shell.parts_of(sections)]
    return shell.page(brand, title, machine, parts)
