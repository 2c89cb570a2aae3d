"""How tables are shown, on the page and on the terminal: which columns, in which order, under which labels.

`views.txt` has them. A column without a label there is called by its name without the unit; a table without a view
shows all its columns. Files (CSV, JSON, Markdown, Parquet) keep the names of the columns.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.model.schemas.base import column_names, suffix_of, unit_of


class View(NamedTuple):
    """The columns that a table shows by default (none: all of them), and labels of its columns."""

    columns: tuple[str, ...]
    labels: dict[str, str]


def read_views(path: Path) -> dict[str, View]:
    """The views of a file, in order, and its groups of labels by ``*name``; its first lines say how it is written.

    Raises:
        ValueError: a line cannot be read; with file and line.
    """
    views: dict[str, View] = {}
    for block in read_blocks(path):
        shown: list[str] = []
        labels: dict[str, str] = {}
        for number, line in block.lines:
            if line.startswith("*"):
                if line not in views:
                    block.refuse(f"no group [{line}] stands above", number)
                labels.update(views[line].labels)
                continue
            is_shown = not line.startswith("- ")
            column, _, label = line.removeprefix("- ").partition(" ")
            if column in shown or not (is_shown or label):
                block.refuse(f"{line!r} shows a column twice, or is without a label", number)
            if is_shown:
                shown.append(column)
            if label:
                labels[column] = label.strip()
        views[block.name] = View(tuple(shown), labels)
    return views


VIEWS = TextTable(lambda: read_views(Path(__file__).with_name("views.txt")))

_UNITS = {"ns": "time", "1": "%"}
_BOUNDS = {"ci_low_": " from (95 %)", "ci_high_": " to (95 %)"}
_ACRONYMS = {word.lower(): word for word in ("CPU", "CUDA", "DRAM", "GPU", "L1", "L2", "MFU", "MPI", "SM", "UTC")}
_COUNTED = {"kernel": "kernels", "call": "calls", "layer": "layers", "copy": "copies", "graph": "graphs"}


def view_of(table: str) -> tuple[str, ...]:
    """The columns that a table shows by default, in order."""
    view = VIEWS.get(table)
    return view.columns if view is not None and view.columns else tuple(column_names(table))


def label_of(table: str, column: str) -> str:
    """A column's name for people: words, without the unit suffix. ``median_duration_ns`` → "median duration"."""
    view = VIEWS.get(table)
    if view is not None and column in view.labels:
        return view.labels[column]
    return VIEWS["*"].labels.get(column) or _words(column)


def titles_of(table: str, columns: Sequence[str]) -> dict[str, str]:
    """The labels of columns that stand in one table. Where two would have one label: the words of their names, with
    the unit where these are equal, too."""
    titles = {column: label_of(table, column) for column in columns}
    for other in (_words, lambda column: f"{_words(column)} ({_UNITS.get(unit_of(column), unit_of(column))})"):
        count = Counter(titles.values())
        titles = {column: title if count[title] == 1 else other(column) for column, title in titles.items()}
    return titles


def _words(column: str) -> str:
    name = column.removesuffix(suffix_of(column))
    if column.endswith("_count"):
        name = _COUNTED.get(name, f"{name} count")
    if column.endswith("_bytes_per_s"):
        name += " rate"
    for prefix, word in _BOUNDS.items():
        if name.startswith(prefix):
            name = name.removeprefix(prefix) + word
    words = name.removeprefix("is_").replace("_", " ").split()
    return " ".join(_ACRONYMS.get(word, word) for word in words)
