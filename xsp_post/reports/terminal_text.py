"""Sentences → lines of a terminal: wrapped at words, every continuation line indented."""

import re

from rich.console import Console
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


def _stripped(line: Text) -> Text:
    """Without the blanks at both ends."""
    begin = len(line.plain) - len(line.plain.lstrip(" "))
    return line[begin : len(line.plain.rstrip(" "))] if line.plain.strip(" ") else Text()
