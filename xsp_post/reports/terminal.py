"""Results → the terminal: the tree, the balance line and the findings as a person reads them."""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from xsp_post.base.messages import SEVERITIES
from xsp_post.base.text_safety import shown
from xsp_post.base.texts import sentence
from xsp_post.model.results import Results, found_in, frame_or_empty, of_captures, part_sentence
from xsp_post.model.schemas.units import (
    UNKNOWN,
    format_count,
    format_instant,
    format_ns,
    format_operations,
    format_ratio_percent,
    formatter_of,
)
from xsp_post.model.schemas.views import VIEWS, titles_of
from xsp_post.model.schemas.words import QUESTIONS, way
from xsp_post.reports.blocks import says_nothing, twins
from xsp_post.reports.cases import own_verdicts
from xsp_post.reports.facts import device_of
from xsp_post.reports.memory_line import gpu_samples_lines, memory_line
from xsp_post.reports.path_line import critical_path_line
from xsp_post.reports.rank_sentences import rank_sentence
from xsp_post.reports.terminal_text import cell_table, fitting, one_line, say
from xsp_post.reports.terminal_tree import tree_table
from xsp_post.reports.text import cut_alike, make_distinct, short_kernel, visible
from xsp_post.reports.tree_rows import tree_rows
from xsp_post.reports.trust import balances
from xsp_post.reports.verdict import verdict_line
from xsp_post.reports.why import late_rank_line, print_first, why
from xsp_post.tables.analyses.cases import are_one_job

# Columns of the tree that show a resource of the verdict; of the others how long a device waited.
_COLUMN_OF = {"kernels": "", "communication": "", "copies": "copy_ns"}
_SCREEN = 13  # rows of the trees on the first screen
_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}


def print_tree(
    console: Console,
    results: Results,
    whole: Results | None = None,
    *,
    depth: int | None = None,
    top: int = 12,
    layer: str = "",
    rank: int | None = None,
    verbose: bool = True,
) -> None:
    """Captures, their trees, balance lines and findings; of some layers or a rank only their part of the trees.
    Without ``verbose`` one screen, with advice from ``whole``, where ``results`` hold less than that needs."""
    captures = results.frame("captures").set_index("capture_id", drop=False)
    is_screen, wanted = not (verbose or layer or rank is not None), ""
    said = why(whole or results, is_first=True) if is_screen and not own_verdicts(results) else None
    left = _SCREEN - bool(said and said.beyond) - bool(is_screen and late_rank_line(results))
    if is_screen and are_one_job(results):  # all do the same: the first that the others wait for, else the first
        late = frame_or_empty(results, "ranks").query("is_straggler == True")["capture_name"]
        captures = pd.concat([captures[captures["source_name"].isin(late)], captures])[:1]
    lines = {"lines": max(left // max(len(captures), 1), 4)} if is_screen else {}
    rows = tree_rows(results, depth=depth, top=top, layer=layer, rank=rank, **lines)
    if sentence := part_sentence(results):
        say(console, Text(sentence, style="bold"))
    if layer or rank is not None:
        _print_part(console, captures, rows, device_of(results).work)
        return
    if said is None:
        say(console, verdict_line(results))
    else:
        print_first(console, said)
        wanted = next(filter(None, (_COLUMN_OF.get(one, "idle_ns") for one in said.limit.limits)), "")
    for _, capture in captures.iterrows():  # a handful of captures, never events
        print_capture(console, results, capture, rows, verbose=verbose, wanted=wanted)
    if verbose:
        print_findings(console, results)
    else:
        one_line(console, findings_line(results))


def print_capture(
    console: Console, results: Results, capture: pd.Series, rows: pd.DataFrame, *, verbose: bool = True,
    wanted: str = "",
) -> None:  # fmt: skip
    """What was recorded, the tree of one capture (its part of ``rows``, as `tree_rows` gives them), and its balance.
    ``wanted``: as `tree_table`."""
    capture_id = int(capture["capture_id"])
    for line in headline(capture, verbose).split("\n"):
        say(console, line) if verbose else one_line(console, _first_parts(line, console.width))
    if not verbose:
        if said := late_rank_line(results):
            say(console, said)
    else:
        if (ranks := frame_or_empty(results, "ranks")).size and (said := rank_sentence(ranks)):
            say(console, said)
        more = (gpu_lines(results, capture_id), critical_path_line(results, capture_id))
        for text in (*more, memory_line(results, capture_id), *gpu_samples_lines(results, capture_id)):
            if text:
                say(console, text)
    work = device_of(results).work
    _print_rows(console, rows[rows["capture_id"] == capture_id], work=work, wanted=wanted)
    if not verbose:
        if said := balance_short(results, capture_id):
            one_line(console, said)
        return
    say(console, balance_line(results, capture_id), hanging=4)


def _print_part(console: Console, captures: pd.DataFrame, rows: pd.DataFrame, work: str) -> None:
    """Subtrees alone; shares are of the whole capture."""
    for capture_id, capture in captures.iterrows():  # a handful of captures, never events
        mine = rows[rows["capture_id"] == capture_id]
        if mine.empty:
            continue
        console.print(Text(shown(str(capture["source_name"])), style="bold"), highlight=False)
        _print_rows(console, mine, whole_ns=int(capture["device_ns"]), work=work)


def _first_parts(line: Text, width: int) -> Text:
    """The parts between semicolons that fit on a line."""
    end = line.plain.rfind("; ", 0, width - 2)
    return line if line.cell_len <= width or end < 0 else line[:end] + Text("; …", style="dim")


def _print_rows(console: Console, rows: pd.DataFrame, **about: Any) -> None:
    """Rows of the tree as a table (``about``: as `tree_table`), and which columns had no room."""
    table, left_out = tree_table(rows, console.width, **about)
    console.print(table, highlight=False)
    if left_out:
        one_line(console, Text(sentence("tree.left-out", columns=", ".join(left_out)), style="dim"))


def headline(capture: pd.Series, verbose: bool = True) -> Text:
    """What was recorded, by what, on what; what an execution is, and what its layers are."""
    schema = f"schema {capture['schema_version']}" if capture["schema_version"] else ""
    facts = [str(capture["source_name"]), str(capture["gpu_name"]), str(capture["tool_version"])]
    text = Text(" · ".join(shown(f) for f in (*facts, *[schema, str(capture["level"])] * verbose) if f), style="bold")
    if verbose:
        rule = str(capture["level_rule"])
        text.append(f"\n{'' if rule.startswith('no ranges') else 'levels by '}{shown(rule, 160)}", style="dim")
    for column in ("execution_evidence", "layer_evidence"):
        if evidence := str(capture.get(column, "") or ""):
            text.append(f"\n{shown(evidence, 220)}", style="dim")
    return text


def gpu_lines(results: Results, capture_id: int) -> Text | None:
    """Of several GPUs, or several processes: how long each GPU was busy, and with what. None for one of each."""
    devices = of_captures(results, "devices", capture_id).loc[lambda rows: rows["device_ns"] > 0]
    if len(devices) < 2:
        return None
    devices = devices.assign(is_shared=devices["gpu_index"].duplicated(keep=False)).sort_values(["gpu_index", "rank"])
    lines = Text()
    for row in devices.to_dict("records"):
        who = f"rank {row['rank']}" if row["rank"] >= 0 else f"process {row['process_id']}"
        times = {part: row[f"{part}_ns"] for part in ("kernel", "copy", "graph")}
        parts = [f"{part} time {format_ns(time)}" for part, time in times.items() if time]
        busy = f"busy {format_ns(row['busy_ns'])} of {format_ns(row['duration_ns'])}"
        busy += f" ({format_ratio_percent(row['busy_ns'] / row['duration_ns'])})" if row["duration_ns"] > 0 else ""
        if row["is_shared"]:
            busy += f", by this process {format_ns(row['own_busy_ns'])}"
        lines.append(f"{chr(10) if len(lines) else ''}GPU {row['gpu_index']} · {who} · {busy} · {' · '.join(parts)}")
    return lines


def balance_line(results: Results, capture_id: int) -> Text:
    """Every way of attribution with its device operations and their time, adding up to the capture's total."""
    text, count = Text("Balance", style="bold"), 0
    for one in balances(results, capture_id):
        listed = " + ".join(
            f"{way(one.question, name)}: {format_count(number)} ({format_ns(time)})"
            for name, number, time in one.parts
            if number or name == "none"
        )
        operations = format_operations(one.kernel_count, one.copy_count, one.graph_count)
        operations = operations.replace("kernel", device_of(results).work[:-1])
        text.append(
            f"\n  {QUESTIONS[one.question]} {listed} = {operations} ({format_ns(one.device_ns)})", style="default"
        )
        said, style = ("adds up", "green") if one.closes else ("DOES NOT ADD UP", "bold red")
        text.append(f"  {said}", style=style)
        if one.question == "layer" and one.self_operation_count:
            own = f"{format_count(one.self_operation_count)} ({format_ns(one.self_device_ns)})"
            text.append(f"\n    of these in no layer, but in their model ([self]): {own}", style="default")
        count = one.operation_count
    in_file = of_captures(results, "captures", capture_id, ["file_operation_count"])["file_operation_count"]
    if len(in_file) and int(in_file.iloc[0]) >= 0:
        said = f"{format_count(int(in_file.iloc[0]))} in the file, {format_count(count)} in the tree"
        text.append(f"\n  {said}", style="default")
    return text


def balance_short(results: Results, capture_id: int) -> str:
    """How much device time is in ranges and in layers, and whether every way of attribution adds up; "" of none."""
    found = balances(results, capture_id)
    closes, total = all(one.closes for one in found), found[-1]
    if closes and not total.operation_count:
        return ""
    key = "tree.adds-up" if closes else "tree.adds-not-up"
    rows = found_in(results, [capture_id], "compiled-modules-unknown")
    unnamed = "".join(sentence("tree.unnamed", what=what) for what in rows["example"].astype(str))
    own = total.self_device_ns / max(total.device_ns, 1)
    shares = {one.question: format_ratio_percent(1 - one.lost_ratio - own * (one is total)) for one in found}
    return sentence(key, **shares, time=format_ns(total.device_ns)) + unnamed


def findings_line(results: Results) -> str:
    """How many kinds of findings there are, and the first of the worst."""
    frame = results.frame("findings").astype({"severity": object, "code": object, "title": object})
    if frame.empty:
        return "No findings."
    worst = frame.iloc[int(frame["severity"].map(SEVERITIES.index).argmin())]
    title, count = shown(str(worst["title"]), 200), frame["code"].nunique()
    key = "tree.findings" if count > 1 else "tree.finding"
    return sentence(key, count=count, severity=str(worst["severity"]), title=title)


def print_findings(console: Console, results: Results) -> None:
    """Each finding with its count, an example and what to do; said once, however many captures it was met in.

    The worst come first; of equals, those that touch most device time. Notes that change no number come last.
    """
    frame = results.frame("findings")
    if not len(frame):
        console.print("No findings.", style="dim")
        return
    console.print("Findings" + (" of the whole recording" if part_sentence(results) else ""), style="bold")
    printed_hints: set[str] = set()
    alike = frame.astype({"severity": object, "code": object}).groupby(
        ["severity", "code", "title", "example", "hint"], sort=False, dropna=False
    )
    folded = alike.agg(count=("count", "sum"), captures=("capture_id", "nunique")).reset_index()
    touched, total = touched_ns(results)
    folded["touched_ns"] = folded["code"].map(touched).fillna(0)
    folded["rank"] = folded["severity"].map({s: k for k, s in enumerate(SEVERITIES)})
    for row in folded.sort_values(["rank", "touched_ns"], ascending=[True, False], kind="stable").to_dict("records"):
        line = Text("  ")
        line.append(f"{shown(str(row['severity']), 20):8}", style=_SEVERITY_STYLE.get(str(row["severity"]), ""))
        title = shown(str(row["title"]), 200)
        where = f" in {row['captures']} captures" if row["captures"] > 1 else ""
        line.append(f"{title} [{shown(str(row['code']), 60)} ×{format_count(row['count'])}{where}]")
        if row["touched_ns"]:
            line.append(f"  {format_ratio_percent(row['touched_ns'] / total)} of the device time")
        if row["example"]:
            line.append(f"  e.g. {shown(str(row['example']), 90)}", style="dim")
        say(console, line, hanging=8)
        for hint in ["As above."] if row["hint"] in printed_hints else str(row["hint"]).splitlines()[:8]:
            say(console, Text(f"          {shown(hint, 220)}", style="dim"), hanging=0)
        printed_hints.add(row["hint"])


# Findings on ways of attribution: their device time is in the table `balance`, by question and way.
_TOUCHES = {
    "orphan-kernels": ("launch", "no_launch"),
    "other-thread": ("launch", "thread_time"),
    "outside-ranges": ("launch", "none"),
    "twin-aligned": ("layer", "twin"),
    "side-file-joined": ("layer", "annotation"),
    "provenance-joined": ("layer", "provenance"),
    "inferred-structure": ("layer", "inferred"),
}


def touched_ns(results: Results) -> tuple[dict[str, int], int]:
    """Device time that findings speak of, by code, where it is known; and the device time of all captures."""
    frame = frame_or_empty(results, "balance", ["question", "attribution", "device_ns"])
    keys = [frame["question"].astype(str), frame["attribution"].astype(str)]
    summed = frame["device_ns"].groupby(keys).sum().to_dict()
    known = {code: int(summed.get(key, 0)) for code, key in _TOUCHES.items()}
    parts = frame_or_empty(results, "captures", ["graph_ns"])["graph_ns"].fillna(0).sum()
    return {**known, "graph-launches": int(parts)}, int(summed.get(("launch", "total"), 0))


def print_frame(console: Console, frame: pd.DataFrame, top: int, table_name: str = "", sort: str = "") -> None:
    """A table under its labels, with units in its cells; rows and columns that do not fit are left out and said. What
    the rows are sorted by is always there, and before all others what they are of."""
    from xsp_post.reports.page_rows import sort_column

    if table_name == "ranks" and len(frame) and (lead := rank_sentence(frame)):
        say(console, lead)
    listed = _with_durations(_with_short_names(frame if top == 0 else frame.head(top)))
    same = [c for c in _KEYS if c in listed and len(listed) > 1 and listed[c].nunique(dropna=False) == 1]
    skipped = {*same, *twins(listed)}
    columns = [c for c in listed.columns if c not in skipped and not says_nothing(listed[c])] or list(listed.columns)
    columns = _telling_apart(listed, _most_wanted_first(columns, table_name))
    titles = titles_of(table_name, [*columns, *same])
    if said := [c for c in same if not says_nothing(listed[c])]:
        say(console, Text(" · ".join(f"{titles[c]} {shown(str(listed[c].iloc[0]))}" for c in said), style="dim"))
    cells = {c: _cells(listed[c], format_instant if _INSTANT.search(str(c)) else formatter_of(str(c))) for c in columns}
    widths = {c: max([len(titles[c]), *map(len, cells[c])]) + 2 for c in columns}
    texts = [c for c in columns if not pd.api.types.is_numeric_dtype(listed[c].dtype)]
    least = {c: min(widths[c], max(_LEAST_TEXT, len(titles[c]) + 2)) if c in texts else widths[c] for c in columns}
    for name in texts[:1]:  # what a row is of
        least[name] = min(widths[name], _TEXT_WIDTH, max(console.width * 2 // 5, least[name]))
    cost = sort_column(listed, table_name, sort)
    *before, cost = columns[: columns.index(cost) + 1 if cost in columns else 1]
    of = [c for c in before if c in texts][:1]
    may_go = [*(c for c in columns[::-1] if c not in (cost, *of)), *of]
    kept = fitting({c: least[c] for c in columns}, console.width + 2, may_go)
    room = console.width + 2 - sum(kept.values())
    for column in kept:
        more = min(widths[column], _TEXT_WIDTH, least[column] + max(room, 0)) - least[column]
        if column in texts and more > 0:
            least[column], room = least[column] + more, room - more
        if column in texts:
            cells[column] = cut_alike(cells[column], max(least[column] - 2, 6))
    console.print(cell_table([(titles[c], c in texts) for c in kept], zip(*(cells[c] for c in kept))))
    if len(listed) < len(frame):
        console.print(f"… {len(frame) - len(listed):,} more rows (--top 0 prints all)", style="dim")
    if len(kept) < len(columns):
        hidden = ", ".join(titles[c] for c in columns if c not in kept)
        left_out = f"… {len(columns) - len(kept)} more columns (--format csv has all): {hidden}"
        say(console, Text(left_out, style="dim"))
    if not len(frame):
        console.print("no rows", style="dim")


_TEXT_WIDTH, _LEAST_TEXT = 54, 16
_TOLD = 3  # columns of texts that a narrow terminal has room for


_INSTANT = re.compile(r"(?:^|_)(?:start|end)_ns$")


def _with_durations(listed: pd.DataFrame) -> pd.DataFrame:
    """Rows with a begin and an end tell how long they are in place of the end."""
    if not {"start_ns", "end_ns"} <= set(listed):
        return listed
    length = listed["end_ns"] - listed["start_ns"]
    rest = [c for c in listed if c not in ("duration_ns", "end_ns")]
    place = rest.index("start_ns") + 1
    return listed.assign(duration_ns=length)[[*rest[:place], "duration_ns", *rest[place:], "end_ns"]]


def _telling_apart(listed: pd.DataFrame, columns: list[Any]) -> list[Any]:
    """The columns, and before the texts after the first one what tells rows apart that are alike in those."""
    texts = [c for c in columns if not pd.api.types.is_numeric_dtype(listed[c].dtype)]
    told = texts[:_TOLD]
    later = [
        c for c in texts[_TOLD:] if listed[[*told, c]].drop_duplicates().shape[0] > len(listed[told].drop_duplicates())
    ]
    if not told or not later or not listed.duplicated(told).any():
        return columns
    rest = [c for c in columns if c != later[0]]
    place = rest.index(told[0]) + 1
    return [*rest[:place], later[0], *rest[place:]]


def _with_short_names(listed: pd.DataFrame) -> pd.DataFrame:
    """Demangled kernel names too long for a cell shortened; different names stay different."""
    if not {"name", "short_name"} <= set(listed):
        return listed
    full = [str(name) for name in pd.unique(listed["name"].astype(object))]
    short = make_distinct(
        [short_kernel(visible(name, 2000), _TEXT_WIDTH - 7) if len(name) > _TEXT_WIDTH - 2 else name for name in full],
        full,
    )
    return listed.assign(name=listed["name"].astype(object).map(dict(zip(full, short))))


# Keys that are said once above the table where all rows share them.
_KEYS = ("case_index", "capture_id", "batch_size", "phase", "call_index", "call_count", "iteration_index")


# Columns before all others: what tells the rows apart (the page makes one column of it), and what is said of them.
_FIRST = {"overhead": ("event_kind", "layer_path", "level", "latency_ns", "verdict")}


def _most_wanted_first(columns: list[Any], table_name: str) -> list[Any]:
    """The columns that the page shows of the table before all others, and ids last: a narrow terminal has room for
    some."""
    named = (*_FIRST.get(table_name, ()), *(VIEWS[table_name].columns if table_name in VIEWS else ()))
    wanted = [c for c in dict.fromkeys(named) if c in columns]
    rest = [c for c in columns if c not in set(wanted)]
    return wanted + sorted(rest, key=lambda c: str(c).endswith("_id"))


def _cells(values: pd.Series, formatter: Callable[[Any], str] | None) -> list[str]:
    if formatter is not None:
        return [formatter(value) for value in values]
    unknown = UNKNOWN if pd.api.types.is_numeric_dtype(values.dtype) else ""
    if values.dtype.kind == "f" and str(values.name).endswith("_id"):  # numbers of which some are unknown
        values = values.astype("Int64")
    return [unknown if pd.isna(value) else shown(str(value), 400) for value in values]


_IN_MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "`": "\\`", "[": "\\[", "&": "&amp;", "<": "&lt;", ">": "&gt;"})


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of raw values; HTML, pipes and hidden characters of captured text are made harmless."""

    def cell(value: Any) -> str:
        return "" if pd.isna(value) else shown(str(value), 200).translate(_IN_MARKDOWN)

    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + " --- |" * frame.shape[1]]
    lines += ["| " + " | ".join(cell(v) for v in row) + " |" for row in frame.itertuples(index=False, name=None)]
    return "\n".join(lines) + "\n"
