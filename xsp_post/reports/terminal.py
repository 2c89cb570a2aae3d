"""Results → the terminal: the tree, the balance line and the findings as a person reads them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from xsp_post.arrays.repeats import fold_repeats
from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results
from xsp_post.reports.why import verdict_line
from xsp_post.schemas.units import format_count, format_ns, format_operations, format_ratio_percent
from xsp_post.schemas.words import QUESTIONS, way

_LEVEL_STYLE = {
    "CAPTURE": "bold", "APPLICATION": "dim", "MODEL": "bold cyan", "MODULE": "cyan", "LAYER": "green",
    "OPERATION": "default", "LIBRARY": "magenta", "KERNEL": "yellow",
}  # fmt: skip
_DIGITS = re.compile(r"\d+")
_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}


def tree_rows(results: Results, *, depth: int = 6, top: int = 12) -> pd.DataFrame:
    """The rows of the tree in print order: heaviest first, repeats folded, the lightest summed as "other".

    Columns: indent, level, name, call_count, kernel_count, kernel_ns, busy_ns, gap_ns, duration_ns, is_inferred.
    """
    parts = []
    for capture, paths in results.frame("paths").groupby("capture_id", sort=True):
        parts.append(_capture_rows(paths.drop(columns="capture_id"), depth, top).assign(capture_id=capture))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _capture_rows(paths: pd.DataFrame, depth: int, top: int) -> pd.DataFrame:
    folded = fold_repeats(paths)
    weight = "kernel_ns" if int(folded["kernel_ns"].max()) else "duration_ns"
    ordered = folded.sort_values(
        ["parent_path_id", weight, "duration_ns"], ascending=[True, False, False], kind="stable"
    )
    parents = ordered["parent_path_id"].to_numpy()
    root = ordered.iloc[0]
    rows: list[dict] = []
    stack: list[tuple[dict, int]] = [(root.to_dict(), 0)]
    while stack:
        row, indent = stack.pop()
        rows.append({**row, "indent": indent})
        first, last = np.searchsorted(parents, [row["path_id"], row["path_id"] + 1])
        if first == last or row["path_id"] < 0 or indent >= depth:
            continue
        inside = ordered.iloc[first:last]
        inside = _with_own_work(row, _worth_showing(inside, weight))
        listed = inside.head(top)
        rest = inside.iloc[top:]
        if len(rest):
            stack.append((_other(rest, weight), indent + 1))
        stack += [(record, indent + 1) for record in listed.to_dict("records")[::-1]]
    frame = pd.DataFrame(rows)
    frame["name"] = np.where(frame["shown_name"].notna(), frame["shown_name"], frame["name"])
    return frame


def _with_own_work(row: dict, inside: pd.DataFrame) -> pd.DataFrame:
    """The node's own kernels as a line of their own beside its children, so that the lines add up."""
    if not row["self_kernel_count"] or not inside["kernel_count"].any():
        return inside
    own = {**dict.fromkeys(("busy_ns", "gap_ns", "duration_ns", "projection_ns"), 0), "call_count": row["call_count"],
           "kernel_count": row["self_kernel_count"], "kernel_ns": row["self_kernel_ns"]}  # fmt: skip
    line = {**_other(inside.head(0), "", "[self]"), **own}
    both = pd.concat([inside, pd.DataFrame([line])], ignore_index=True)
    return both.sort_values("kernel_ns", ascending=False, kind="stable")


def _worth_showing(rows: pd.DataFrame, weight: str) -> pd.DataFrame:
    """Ranges without any device work are left out beside ranges that have some; what is left out is summed."""
    if weight == "duration_ns":
        return rows
    idle = (rows["kernel_ns"] == 0) & (rows["busy_ns"] == 0)
    if not idle.any() or len(rows) < 2:
        return rows
    host_only = rows[idle]
    kept = rows[~idle]
    label = f"{len(host_only)} more without device work" if len(host_only) > 1 else str(host_only["shown_name"].iloc[0])
    return pd.concat([kept, pd.DataFrame([_other(host_only, weight, label)])], ignore_index=True)


def _other(rows: pd.DataFrame, weight: str, label: str = "") -> dict:
    summed = {
        c: int(rows[c].sum())
        for c in ("call_count", "kernel_count", "kernel_ns", "busy_ns", "gap_ns", "duration_ns", "projection_ns")
    }
    name = label or f"{len(rows)} more"
    return {**summed, "path_id": -2, "level": "", "name": name, "shown_name": name, "repeat_count": 1,
            "is_folded": False, "is_inferred": False, "self_kernel_ns": 0, "self_kernel_count": 0}  # fmt: skip


def print_tree(console: Console, results: Results, *, depth: int = 6, top: int = 12) -> None:
    """Captures, their trees, balance lines and findings."""
    captures = results.frame("captures").set_index("capture_id", drop=False)
    rows = tree_rows(results, depth=depth, top=top)
    if line := verdict_line(results):
        console.print(line, highlight=False)
    for capture_id, capture in captures.iterrows():  # a handful of captures, never events
        mine = rows[rows["capture_id"] == capture_id]
        console.print(headline(capture), highlight=False)
        table, left_out = _tree_table(mine, console.width)
        console.print(table, highlight=False)
        if left_out:
            console.print(f"… no room for: {', '.join(left_out)} (a wider terminal shows them)", style="dim")
        console.print(balance_line(results, int(capture_id)), highlight=False)  # type: ignore[call-overload]
    print_findings(console, results)


def headline(capture: pd.Series) -> Text:
    """One line: what was recorded, by what, on what."""
    facts = [
        str(capture["source_name"]), str(capture["tool_version"]),
        f"schema {capture['schema_version']}" if capture["schema_version"] else "",
        str(capture["gpu_name"]), str(capture["level"]),
    ]  # fmt: skip
    text = Text(" · ".join(shown(f) for f in facts if f), style="bold")
    rule = str(capture["level_rule"])
    text.append(f"\n{'' if rule.startswith('no ranges') else 'levels by '}{shown(rule, 160)}", style="dim")
    for column in ("execution_evidence", "layer_evidence"):
        if evidence := str(capture.get(column, "") or ""):
            text.append(f"\n{shown(evidence, 220)}", style="dim")
    return text


# Columns that a narrow terminal does without, first to last: a tree of numbers without names helps nobody.
_DISPENSABLE = ("gap", "host", "busy", "calls", "kernels", "share")
_NAME_WIDTH = 14


def _tree_table(rows: pd.DataFrame, width: int) -> tuple[Table, list[str]]:
    """The table, and the titles of the columns that the width leaves no room for."""
    has_device = bool(rows["busy_ns"].max()) if len(rows) else False
    titles = ("calls", "kernels", "kernel time", "share", "busy", "gap", "host") if has_device else (
        "calls", "host", "share")  # fmt: skip
    weight = "kernel_ns" if has_device else "duration_ns"
    root_ns = int(rows[weight].iloc[0]) if len(rows) else 0
    top_level = rows[rows["indent"] == 1][weight].sum() if weight == "duration_ns" else root_ns
    records = rows.to_dict("records")
    cells = [_cells_of(row, titles, row[weight] / top_level if top_level else None) for row in records]
    widths = {title: 2 + max(len(title), *(len(line[title]) for line in cells)) for title in titles}
    wanted = min(_NAME_WIDTH, max((len(str(row["name"])) + 2 * row["indent"] for row in records), default=0))
    left_out: list[str] = []
    for title in _DISPENSABLE:
        if title in widths and wanted + sum(widths.values()) > width and (has_device or title != "host"):
            del widths[title]
            left_out.append(title)
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    # On a narrow terminal the texts give way, never the numbers: rich takes room from columns that may wrap first.
    table.add_column("range", overflow="ellipsis")
    for title in widths:
        table.add_column(title, justify="right", no_wrap=True)
    for row, line in zip(records, cells):
        name = Text("  " * row["indent"], no_wrap=True, overflow="ellipsis")
        if row["repeat_count"] > 1:
            name.append(f"{row['repeat_count']} × ", style="bold")
        name.append(shown(_label(row)), style=_LEVEL_STYLE.get(str(row["level"]), "dim"))
        if row["is_inferred"]:
            is_low = row.get("confidence", "") == "low"
            name.append("  (inferred, low confidence)" if is_low else "  (inferred)", style="italic dim")
        table.add_row(name, *(line[title] for title in widths))
    return table, left_out


def _cells_of(row: dict, titles: tuple[str, ...], share: float | None) -> dict[str, str]:
    has_device = "kernels" in titles
    # the line of a node's own kernels has sums only; a union or a host time of it was not computed, and is not 0
    is_sum_only = row["kernel_count"] and not row["busy_ns"] and not row["duration_ns"]
    return {
        "calls": format_count(row["call_count"]),
        "kernels": format_count(row["kernel_count"]),
        "kernel time": format_ns(row["kernel_ns"]),
        "share": "" if share is None or not (has_device or row["indent"]) else format_ratio_percent(share),
        "busy": "" if is_sum_only else format_ns(row["busy_ns"]),
        "gap": format_ns(row["gap_ns"]) if row["gap_ns"] else "",
        "host": "" if is_sum_only else format_ns(row["duration_ns"]),
    }


def _label(row: dict) -> str:
    """A node's text; of folded siblings what they share, with a star for the numbers in which they differ."""
    first, _, last = str(row["name"]).partition(" … ")
    if not row["is_folded"] or not last:
        return str(row["name"])
    numbers = iter(_DIGITS.findall(last))
    return _DIGITS.sub(lambda found: found[0] if next(numbers, None) == found[0] else "*", first)


def balance_line(results: Results, capture_id: int) -> Text:
    """Every way of attribution with its device operations and their time, adding up to the capture's total."""
    frame = results.frame("balance")
    frame = frame[frame["capture_id"] == capture_id]
    amounts = [str(c) for c in frame.columns if str(c).endswith(("_count", "_ns"))]
    text = Text("Balance", style="bold")
    for question, label in QUESTIONS.items():
        rows = frame[frame["question"] == question]
        total = rows[rows["attribution"] == "total"].iloc[0]
        parts = rows[rows["attribution"] != "total"]
        listed = " + ".join(
            f"{way(question, r['attribution'])}: {format_count(r['operation_count'])} ({format_ns(r['device_ns'])})"
            for r in parts.to_dict("records")
            if r["operation_count"] or r["attribution"] == "none"
        )
        operations = format_operations(total["kernel_count"], total["copy_count"], total["graph_count"])
        closes = all(int(parts[c].sum()) == total[c] for c in amounts)
        text.append(f"\n  {label} {listed} = {operations} ({format_ns(total['device_ns'])})", style="default")
        text.append("  adds up" if closes else "  DOES NOT ADD UP", style="green" if closes else "bold red")
        if question == "layer" and total["self_operation_count"]:
            own = f"{format_count(total['self_operation_count'])} ({format_ns(total['self_device_ns'])})"
            text.append(f"\n    of these in no layer, but in their model ([self]): {own}", style="default")
    return text


def print_findings(console: Console, results: Results) -> None:
    """Each finding with its count, an example and what to do; said once, however many captures it was met in."""
    frame = results.frame("findings")
    if not len(frame):
        console.print("No findings.", style="dim")
        return
    console.print("Findings", style="bold")
    told: set[str] = set()
    alike = frame.astype({"severity": object, "code": object}).groupby(
        ["severity", "code", "title", "example", "hint"], sort=False, dropna=False
    )
    folded = alike.agg(count=("count", "sum"), captures=("capture_id", "nunique")).reset_index()
    for row in folded.to_dict("records"):
        line = Text("  ")
        line.append(f"{row['severity']:8}", style=_SEVERITY_STYLE.get(str(row["severity"]), ""))
        title = shown(str(row["title"]), 200)
        where = f" in {row['captures']} captures" if row["captures"] > 1 else ""
        line.append(f"{title} [{row['code']} ×{format_count(row['count'])}{where}]")
        if row["example"]:
            line.append(f"  e.g. {shown(str(row['example']), 90)}", style="dim")
        for hint in ["As above."] if row["hint"] in told else str(row["hint"]).splitlines()[:8]:
            line.append(f"\n           {shown(hint, 220)}", style="dim")
        told.add(row["hint"])
        console.print(line, highlight=False)


def plain(text: str) -> str:
    """Text safe inside rich markup."""
    return escape(shown(text))


def print_frame(console: Console, frame: pd.DataFrame, top: int) -> None:
    """A table with units in its cells; rows and columns that do not fit are left out and said."""
    from xsp_post.schemas.units import formatter_of

    listed = _with_short_names(frame if top == 0 else frame.head(top))
    same = [c for c in _KEYS if c in listed and len(listed) > 1 and listed[c].nunique() == 1]
    skipped = {*same, *_twins(listed)}
    told = [c for c in listed.columns if c not in skipped and not _says_nothing(listed[c])] or list(listed.columns)
    if same:
        console.print(Text(" · ".join(f"{c} {shown(str(listed[c].iloc[0]))}" for c in same), style="dim"))
    cells = {c: _cells(listed[c], formatter_of(str(c))) for c in told}
    widths = {c: max([len(str(c)), *(len(cell) for cell in cells[c])]) + 1 for c in told}
    room = console.width
    fitting: list = []
    for column in told:
        if fitting and widths[column] > room:
            break
        fitting.append(column)
        room -= widths[column]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in fitting:
        numeric = pd.api.types.is_numeric_dtype(listed[column].dtype)
        table.add_column(Text(str(column)), justify="right" if numeric else "left", overflow="fold")
    for row in zip(*(cells[c] for c in fitting)):
        table.add_row(*row)
    console.print(table)
    if len(listed) < len(frame):
        console.print(f"… {len(frame) - len(listed):,} more rows (--top 0 prints all)", style="dim")
    if len(fitting) < len(told):
        hidden = ", ".join(map(str, told[len(fitting) :]))
        console.print(f"… {len(told) - len(fitting)} more columns (--format csv has all): {hidden}", style="dim")
    if not len(frame):
        console.print("no rows", style="dim")


_TEXT_WIDTH = 52


def _with_short_names(listed: pd.DataFrame) -> pd.DataFrame:
    """Demangled kernel names too long for a cell by their gist, told apart: their first letters are all alike."""
    if not {"name", "short_name"} <= set(listed):
        return listed
    from xsp_post.reports.text import distinct, short_kernel, visible

    full = pd.unique(listed["name"].astype(object))
    gist = distinct(
        short_kernel(visible(name, 2000), _TEXT_WIDTH - 5) if len(str(name)) > _TEXT_WIDTH else str(name)
        for name in full
    )
    return listed.assign(name=listed["name"].astype(object).map(dict(zip(full, gist))))


# Keys that are said once above the table where all rows share them.
_KEYS = ("case_index", "capture_id", "batch_size", "phase", "call_index", "call_count", "iteration_index")


def _twins(frame: pd.DataFrame) -> list[str]:
    """Columns that only repeat a neighbour for the reader."""
    twins = ["short_name"] if {"name", "short_name"} <= set(frame) else []
    if {"layer_name", "layer_path"} <= set(frame) and (
        frame["layer_name"].astype(str) == frame["layer_path"].astype(str)
    ).all():
        twins.append("layer_path")
    return twins


def _says_nothing(values: pd.Series) -> bool:
    """Whether a column is empty, or holds the one "unknown" value everywhere."""
    if not len(values):
        return False
    first = values.iloc[0]
    return bool(values.isna().all()) or ((values == first).all() and (isinstance(first, str) and first == ""))


def _cells(values: pd.Series, formatter) -> list[Text]:
    if formatter is None:
        return [Text(shown("" if value is None or value != value else str(value), _TEXT_WIDTH)) for value in values]
    return [Text(formatter(value)) for value in values]


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of raw values; pipes and hidden characters of captured text are made harmless."""

    def cell(value: object) -> str:
        return "" if value is None or value != value else shown(str(value), 200).replace("|", "\\|")

    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + " --- |" * frame.shape[1]]
    lines += ["| " + " | ".join(cell(v) for v in row) + " |" for row in frame.itertuples(index=False, name=None)]
    return "\n".join(lines) + "\n"
