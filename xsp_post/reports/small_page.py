"""Facts, statements and sections of results of many captures → a page with the same security policy as the report.

Written by the same `shell`, without what belongs to one workload (trust, selected layer).
"""

from collections.abc import Sequence
from dataclasses import replace

from xsp_post.reports import shell
from xsp_post.reports.blocks import Chart, Section

Fact = tuple[str, str, str]  # one number at the top of the page: its label, its text, a note


def render_page(
    title: str,
    machine: str,
    brand: str,
    facts: Sequence[Fact],
    statements: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    first_chart: str = "",
) -> str:
    """The page as text; the chart of the id ``first_chart``, else the first one, stands on its first screen.
    ``statements``: (kind, sentence), the first being the verdict; all texts may be hostile."""
    charts = [block for section in sections for block in section.blocks if isinstance(block, Chart)]
    first = next((one for one in charts if one.id == first_chart), charts[0] if charts else None)
    shown = Section("summary", "Summary", "", (first,) if first is not None else ())
    top = shell.macro("small_screen")(facts, statements, shown.blocks)
    left = [replace(one, blocks=tuple(block for block in one.blocks if block is not first)) for one in sections]
    parts = [shell.Part("Summary", "summary", "Summary", top, shown), *shell.parts_of(left)]
    return shell.page(brand, title, machine, parts)
