"""Sentences → lines of a terminal, wrapped at words, every continuation line indented; cells → its tables."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[nµm]?s\b)")
_KEPT = "\ue000"  # stands for a blank at which no line ends: a figure keeps its unit


def say(console: Console, text: Text | str, hanging: int = 2) -> None:
    """Print a text of one or more lines. A line that is too long goes on ``hanging`` columns deeper than it began."""
    whole = text.copy() if isinstance(text, Text) else Text(text)
    whole.plain = _BEFORE_UNIT.sub(_KEPT, whole.plain)
    for line in whole.split("\n", allow_blank=True):
        begin = len(line.plain) - len(line.plain.lstrip(" "))
        deeper = min(begin + hanging, console.width // 2)
        first, *rest = line.wrap(console, console.width) if line.cell_len > console.width else [line]
        left = Text(" ").join(_stripped(one) for one in rest)
        deep = [Text(" " * deeper) + _stripped(one) for one in left.wrap(console, console.width - deeper)]
        for one in [first, *deep] if rest else [first]:
            one.plain = one.plain.replace(_KEPT, " ").rstrip(" ")
            console.print(one, highlight=False)


def one_line(console: Console, text: Text | str) -> None:
    """Print a text on one line, cut at its end."""
    console.print(text if isinstance(text, Text) else Text(text), highlight=False, no_wrap=True, overflow="ellipsis")


def cell_table(columns: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str | Text]]) -> Table:
    """A table of cells. ``columns``: titles, and whether a column holds texts: numbers end at the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, is_text in columns:
        table.add_column(Text(title), justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def fitting(widths: Mapping[Any, int], room: int, dispensable: Iterable[Any]) -> dict[Any, int]:
    """The columns that have room beside each other: of the ``dispensable`` ones the first go until the others fit."""
    kept = dict(widths)
    for column in dispensable:
        if sum(kept.values()) > room:
            kept.pop(column, None)
    return kept


def _stripped(line: Text) -> Text:
    """Without the blanks at both ends."""
    begin = len(line.plain) - len(line.plain.lstrip(" "))
    return line[begin : len(line.plain.rstrip(" "))] if line.plain.strip(" ") else Text()
