"""Rows of the tree → the table that the terminal prints, with the columns that fit its width."""

import pandas as pd
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from xsp_post.base.text_safety import shown
from xsp_post.base.texts import SENTENCES
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import label_of
from xsp_post.reports.pick import starred
from xsp_post.reports.terminal_text import fitting
from xsp_post.reports.text import cut_alike, inferred, shorten
from xsp_post.reports.tree_rows import MOSTLY_WAIT, STRUCTURELESS, Row

_LEVEL_STYLE = {
    "CAPTURE": "bold", "APPLICATION": "dim", "MODEL": "bold cyan", "MODULE": "cyan", "LAYER": "green",
    "OPERATION": "default", "LIBRARY": "magenta", "KERNEL": "yellow",
}  # fmt: skip
# Columns that a narrow terminal does without, first to last; what rows are sorted by stays, and names are cut.
_DISPENSABLE = (
    "kernel_ns", "gap_ns", "duration_ns", "busy_ns", "idle_ns", "call_count", "graph_ns", "copy_ns", "kernel_count",
    "share",
)  # fmt: skip
_NAME_WIDTH = 36
_SMALL_SHARE = 0.05  # a part of the device time with less is the first column to go
_MOST_WAIT = 0.1  # where devices waited less than this share of the capture, busy time says more


def tree_table(
    rows: pd.DataFrame, width: int, whole_ns: int | None = None, work: str = "kernels", wanted: str = ""
) -> tuple[Table, list[str]]:
    """The table, and the titles of the columns that the width leaves no room for. ``whole_ns``: device time that
    shares are of, where the rows are a part of the tree. ``work``: what the device ran (`facts.device_of`).
    ``wanted``: the column of what limits, the last to give way."""
    has_device = bool(rows["device_ns"].max()) if len(rows) else False
    columns = _columns(rows) if has_device else ("call_count", "duration_ns", "share")
    titles = {column: label_of("paths", column).replace("kernel", work[:-1]) for column in columns}
    weight = "device_ns" if has_device else "duration_ns"
    root_ns = whole_ns if whole_ns and has_device else int(rows[weight].iloc[0]) if len(rows) else 0
    top_level = rows[rows["indent"] == 1][weight].sum() if weight == "duration_ns" else root_ns
    records = rows.to_dict("records")
    cells = [_cells_of(row, has_device, row[weight] / top_level if top_level else None) for row in records]
    widths = {column: 2 + max([len(titles[column]), *(len(line[column]) for line in cells)]) for column in columns}
    names = (f"{'  ' * row['indent']}{row['name']}{_line(row)}{_times(row)}{_mark(row)}" for row in records)
    name_width = min(_NAME_WIDTH, max(map(len, names), default=0))
    may_go = _dispensable(rows, root_ns, wanted) if has_device else ("call_count", "share")
    widths = fitting(widths, width - name_width, may_go)
    left_out = [titles[column] for column in may_go if column in titles.keys() - widths]
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    # On a narrow terminal the texts give way, never the numbers: rich takes room from columns that may wrap first.
    table.add_column(label_of("paths", "name"), overflow="ellipsis")
    for column in widths:
        table.add_column(titles[column], justify="right", no_wrap=True)
    room = max(width - sum(widths.values()), 8)
    for row, label, line in zip(records, _labels(records, room), cells):
        table.add_row(_name(row, label), *(line[column] for column in widths))
    return table, left_out


def _dispensable(rows: pd.DataFrame, root_ns: int, wanted: str) -> tuple[str, ...]:
    """Columns in the order in which they give way, by what this capture's time went to; ``wanted`` before the
    share only."""
    small = [part for part in ("copy_ns", "graph_ns") if rows[part].max() < _SMALL_SHARE * root_ns]
    waited, extent = rows["idle_ns"].max(), float(rows["duration_ns"].iloc[0])
    order = ["kernel_ns", *small, *(column for column in _DISPENSABLE if column not in small)]
    if not waited >= _MOST_WAIT * extent:  # unknown, too
        order.remove("idle_ns")
        order.insert(order.index("busy_ns"), "idle_ns")
    elif waited >= MOSTLY_WAIT * extent:
        order.remove("idle_ns")
        order.insert(order.index("kernel_count") + 1, "idle_ns")
    order = list(dict.fromkeys(order))
    if wanted in order:
        order.remove(wanted)
        order.insert(order.index("kernel_count") + 1, wanted)
    return tuple(order)


def _name(row: Row, label: str) -> Text:
    """The first cell of a line."""
    name = Text("  " * row["indent"], no_wrap=True, overflow="ellipsis")
    name.append(_times(row), style="bold").append(label, style=_LEVEL_STYLE.get(str(row["level"]), "dim"))
    return name.append(_mark(row), style="italic dim")


def _labels(rows: list[Row], room: int) -> list[str]:
    """The texts of lines, cut to their room so that what follows is kept; different texts stay different."""
    labels = [shown(label(row) + _line(row)) for row in rows]
    rooms = [room - 2 * row["indent"] - len(_times(row) + _mark(row)) for row in rows]
    is_copy = [row["span_kind"] in ("memcpy", "memset") for row in rows]
    fitting = [(_fitting_copy if one else _fitting)(label, left) for one, label, left in zip(is_copy, labels, rooms)]
    alike: dict[tuple[str, int], list[int]] = {}
    for number, (text, left) in enumerate(zip(fitting, rooms)):
        is_cut = text != labels[number] and not is_copy[number] and not text.startswith("… ")
        alike.setdefault((text[: left // 3] if is_cut else text, left), []).append(number)
    for (_, left), numbers in alike.items():
        if len({labels[k] for k in numbers}) > 1:
            for k, text in zip(numbers, cut_alike([labels[k] for k in numbers], max(left, 6))):
                fitting[k] = text
    return fitting


def _fitting(label: str, room: int) -> str:
    """The text in so many columns: what stands before the last colon goes first, then as `shorten` cuts."""
    if cell_len(label) <= room or room < 6:
        return label
    last = label.rpartition(": ")[2]
    if len(last) < len(label) and cell_len(last) <= room - 2:
        return f"… {last}"
    if cell_len(label) != len(label):  # letters of two columns each
        cut = Text(label)
        cut.truncate(room, overflow="ellipsis")
        return cut.plain
    return shorten(label, room)


def _fitting_copy(label: str, room: int) -> str:
    """The same for a copy, whose amount and direction stay: without its rate, then without the kind of memory."""
    what, _, amount = label.rpartition(" · ")
    size, direction = amount.partition(" at ")[0], what.partition(", ")[0]
    shorter = (label, f"{what} · {size}", f"{direction} · {size}")
    cut = f"{shorten(direction, max(room - len(size) - 3, 2))} · {size}"
    return next((text for text in shorter if cell_len(text) <= room), cut)


_MARKS = {"twin": "carried over", "annotated": "annotated", "provenance": "compiled"}


def _mark(row: Row) -> str:
    """What a reader has to know of a range that was not recorded here."""
    if not row["is_inferred"]:
        return ""
    if str(row["span_kind"]) in _MARKS:
        return f"  ({_MARKS[str(row['span_kind'])]})"
    return "  (guessed)" if row.get("confidence", "") == "low" else "  (inferred)"


def _times(row: Row) -> str:
    """``24 × ``, or ``16 of 18 × `` where others of the name have other insides, and their own rows."""
    count, alike = row["repeat_count"], row["alike_count"]
    return f"{count} of {alike} × " if alike > count > 1 else f"{count} × " if count > 1 else ""


def _columns(rows: pd.DataFrame) -> tuple[str, ...]:
    """The columns: parts of the device time only where there is more than kernels."""
    copies, graphs = bool(rows["copy_ns"].max()), bool(rows["graph_ns"].max())
    parts = [("kernel_ns", copies or graphs), ("copy_ns", copies), ("graph_ns", graphs)]
    shown_parts = [column for column, is_there in parts if is_there]
    waited = ["idle_ns"] if rows["idle_ns"].fillna(0).max() > 0 else []
    return ("call_count", "kernel_count", "device_ns", "share", *shown_parts, "busy_ns", "gap_ns", *waited,
            "duration_ns")  # fmt: skip


def _cells_of(row: Row, has_device: bool, share: float | None) -> dict[str, str]:
    def known(value: float) -> str:
        return "" if value != value else format_ns(value)

    def some(value: float) -> str:
        return format_ns(value) if value and value == value else ""

    return {
        "call_count": format_count(row["call_count"]),
        "kernel_count": format_count(row["kernel_count"]) if row["kernel_count"] or not row["is_work"] else "",
        "device_ns": format_ns(row["device_ns"]),
        "share": "" if share is None or not (has_device or row["indent"]) else format_ratio_percent(share),
        **{name: some(row[name]) for name in ("kernel_ns", "copy_ns", "graph_ns", "gap_ns")},
        "busy_ns": known(row["busy_ns"]),
        "idle_ns": _waited(row),
        # what lies outside every range has the whole capture's extent, which nobody spent in it
        "duration_ns": "" if row["span_kind"] in STRUCTURELESS else known(row["duration_ns"]),
    }


def _waited(row: Row) -> str:
    """How long a device waited while the launching thread was in a range, and the largest cause: ``3.2 ms host``."""
    time = row["idle_ns"]
    if time != time or not time:
        return ""
    cause = str(row.get("idle_cause", ""))
    return f"{format_ns(time)} {SENTENCES.get(f'short.{cause}', '')}".rstrip()


def label(row: Row) -> str:
    """A node's text; of folded siblings what they share, with a star for the numbers in which they differ."""
    first, _, last = str(row["name"]).partition(" … ")
    name = starred((first, last)) if row["is_folded"] and last else str(row["name"])
    return inferred(name) if row["is_inferred"] else name


def _line(row: Row) -> str:
    return f" · {row['source_line']}" if row["source_line"] else ""
