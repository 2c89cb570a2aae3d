"""Sentences → lines of a terminal: wrapped at words, every continuation line indented."""

from rich.console import Console
from rich.text import Text


def say(console: Console, text: Text | str, hanging: int = 2) -> None:
    """Print a text of one or more lines. A line that is too long goes on ``hanging`` columns deeper than it began."""
    whole = text if isinstance(text, Text) else Text(text)
    for line in whole.split("\n", allow_blank=True):
        if line.cell_len <= console.width:
            console.print(line, highlight=False)
            continue
        begin = len(line.plain) - len(line.plain.lstrip(" "))
        deeper = min(begin + hanging, console.width // 2)
        first, *rest = line.wrap(console, console.width)
        console.print(first, highlight=False)
        left = Text(" ").join(_stripped(one) for one in rest)
        for one in left.wrap(console, console.width - deeper):
            console.print(Text(" " * deeper) + _stripped(one), highlight=False)


def one_line(console: Console, text: Text | str) -> None:
    """Print a text on one line, cut at its end."""
    console.print(text if isinstance(text, Text) else Text(text), highlight=False, no_wrap=True, overflow="ellipsis")


def _stripped(line: Text) -> Text:
    """Without the blanks at both ends."""
    begin = len(line.plain) - len(line.plain.lstrip(" "))
    return line[begin : len(line.plain.rstrip(" "))] if line.plain.strip(" ") else Text()
