"""Results → answers: summary, why, what-if, tree, table and comparison as small JSON values that say what is not known.

Every answer has the same frame: ``abstains`` with ``reason``, ``answer``, ``balance``, ``not_known``, ``left_out``. In
``answer`` and ``balance`` what is unknown is left out, and records are ``columns`` and ``rows``.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xsp_post.base.errors import UsageError, in_words
from xsp_post.model.results import Results, for_people, part_text, records
from xsp_post.model.schemas import TABLES, unit_of
from xsp_post.reports.cases import main_case
from xsp_post.reports.gaps import not_known
from xsp_post.reports.page_rows import by_column
from xsp_post.reports.quantities import quantities
from xsp_post.reports.text import short_kernels, visible
from xsp_post.reports.trust import balances
from xsp_post.tables.catalogue import table_name, why_empty

LIMIT_BYTES = 16_000
_VERSION = 2  # of answers: 2 rows as lists beside their columns, unknown values left out (xsp-post 0.2.0)
_LONGEST_TEXT = 300
_MOST_ROWS = 200
_ACTIONS = 3  # said whole, as on the first screen
_SAID = ("code", "what", "evidence", "assumption", "bound_ns", "bound_ratio", "bound_of", "estimate_ns", "change")

Answer = dict[str, Any]


def answer(name: str, source: str, make: Callable[[], tuple[Results | None, Answer]], root: Path) -> str:
    """The JSON text of one answer, below `LIMIT_BYTES`. A failure is an answer that abstains and says why. Where the
    folder ``root`` lies is not said."""
    document: Answer = {"format": f"xsp-post.agent.{name}", "version": _VERSION, "source": visible(source, 200),
                        "part": "", "abstains": False, "reason": "", "answer": None, "balance": [],
                        "not_known": []}  # fmt: skip
    try:
        results, said = make()
    except Exception as error:
        known = in_words(error)
        reason = f"{known.message} [{known.code}]"
        document |= {"abstains": True, "reason": reason, "hint": known.hint}
    else:
        document["reason"] = said.pop("_reason", "")
        document["abstains"] = bool(document["reason"])
        document["answer"] = said
        document["part"] = part_text(results) if results is not None else ""
        if results is not None and "balance" in results.tables():
            document |= {"balance": _balance(results), "not_known": not_known(results)}
    return fitting(_without(document, str(root)))


def summary(results: Results) -> Answer:
    """What was recorded, the verdict, the numbers with their intervals, the heaviest layers and kernels."""
    from xsp_post.reports.summary import summarize
    from xsp_post.reports.verdict import verdict_data

    said = summarize(results, main_case(results))
    tops = {"top_layers": said.top_layers, "top_kernels": said.top_kernels}
    return {
        "title": said.title, "machine": said.machine, "sources": said.sources[:10],
        "verdict": _of_first_screen(verdict_data(results)), "quantities": quantities(results),
        **{name: [{"name": row.name, "latency_ns": row.latency_ns, "share_ratio": row.share} for row in rows]
           for name, rows in tops.items()},
    }  # fmt: skip


def why(results: Results, layer: str = "") -> Answer:
    """What limits the program, the largest causes of idle time, what to do next with bounds."""
    from xsp_post.reports import why as report

    said = report.why(results, layer=layer)
    reason = said.limit.reason if said.limit.kind == "unknown" else ""
    data = report.json_of(said)
    data |= {"verdict": _of_first_screen(data["verdict"]), "ranks": said.late_rank}
    more = [one["code"] for one in data["advice"][_ACTIONS:]]
    data["advice"] = [
        {key: one[key] for key in _SAID if one[key] not in ("", "the time", -1)} for one in data["advice"][:_ACTIONS]
    ]
    return {**data, "more_advice": more, "_reason": reason}


def _of_first_screen(verdict: Answer) -> Answer:
    """The verdict without resources that save too little to be shown, and without what follows from the rest."""
    gains = [{key: one for key, one in row.items() if key != "is_shown"} for row in verdict["gains"] if row["is_shown"]]
    said = {key: one for key, one in verdict.items() if key not in ("idle_ns", "together_gain_ratio")}
    return {**said, "gains": gains}


def what_if(results: Results, changes: Sequence[str], capture_id: int | None = None) -> Answer:
    """What executions take under changes, with the replay's own error. Raises where the replay is refused."""
    from xsp_post.replay.what_if import what_if as predict
    from xsp_post.reports.predictions import data_of

    return data_of(predict(results, changes, capture_id))


def tree(results: Results, depth: int = 0, top: int = 30) -> Answer:
    """The rows of the tree in print order, heaviest first: as on the first screen at most ``top`` in all; with a
    ``depth`` so many inside each range."""
    from xsp_post.reports.terminal_tree import label
    from xsp_post.reports.tree_rows import tree_rows

    if not {"paths", "captures"} <= set(results.tables()):
        return {"records": [], "_reason": "these are not the results of one workload: they hold no tree"}
    top = max(1, min(top, 50))
    rows = tree_rows(results, depth=min(depth, 12) if depth > 0 else None, top=top, lines=top)
    columns = (
        "capture_id", "indent", "level", "name", "call_count", "kernel_count", "device_ns", "kernel_ns", "copy_ns",
        "graph_ns", "busy_ns", "idle_ns", "idle_cause", "duration_ns", "is_inferred", "source_line",
    )  # fmt: skip
    kept = rows[[c for c in columns if c in rows]].assign(name=[label(row) for row in rows.to_dict("records")])
    return {"records": records(kept), "_reason": "" if len(rows) else "nothing was recorded"}


def table(results: Results, name: str, columns: Sequence[str] = (), top: int = 20, sort: str = "") -> Answer:
    """The first rows of one table with the units of its columns; what would fill it where it is empty. Without
    ``columns`` long names of kernels are short, and ``more_columns`` names those that the rows lack."""
    key = table_name(name, results.tables())
    frame = by_column(for_people(results, key), key, sort)
    unknown = [c for c in columns if c not in frame]
    if unknown:
        raise UsageError(f"table {key} has no column {unknown[0]!r}; it has: {', '.join(map(str, frame.columns))}",
                         code="unknown-column")  # fmt: skip
    shown = (frame[list(columns)] if columns else frame).head(max(1, min(top, _MOST_ROWS)))
    if not columns and "short_name" in shown:
        shown = shown.assign(short_name=short_kernels(shown["name"])).drop(columns="name")
    reason = "" if len(frame) else why_empty(key, results) or f"table {key} has no rows"
    meanings = {c.name: c.meaning for c in TABLES[key].columns} if key in TABLES and columns else {}
    return {
        "table": key, "title": TABLES[key].title if key in TABLES else "", "row_count": len(frame),
        "more_columns": [str(c) for c in frame if not columns and (c not in shown or shown[c].isna().all())],
        "meanings": {str(c): " ".join(filter(None, (meanings.get(str(c)), unit_of(str(c))))) for c in columns},
        "records": records(shown), "_reason": reason,
    }  # fmt: skip


def compare(base: Results, other: Results, top: int = 6) -> Answer:
    """What differs in ``other``: sentences, and the largest differences with their intervals."""
    from xsp_post.compare import compare as compared

    said = compared(base, other)
    names = ("models", "totals", "causes", "names", "layers", "kernels")
    tables = {name: records(said.frame(f"compare_{name}").head(top)) for name in names}
    statements = records(said.frame("compare_summary"))
    return {"statements": statements, **tables, "base_balance": _balance(base), "base_not_known": not_known(base)}


def _balance(results: Results) -> list[Answer]:
    """Per question the time of every way of attribution, without counts."""
    return [
        {"question": one.question, "device_ns": one.device_ns, "closes": one.closes,
         "parts": [{"attribution": way, "device_ns": time} for way, _, time in one.ways]}
        for one in balances(results)
    ]  # fmt: skip


def fitting(document: Answer) -> str:
    """The document as JSON below `LIMIT_BYTES`: its longest lists are cut, and ``left_out`` says by how much."""
    document = {key: _short(value) for key, value in document.items()} | {"left_out": []}
    full: dict[str, int] = {}
    while len(text := _json(document)) >= LIMIT_BYTES:
        where, values = max(_lists(document), key=lambda one: len(_json(one[1])))
        if len(values) <= 1:
            return _json({**document, "answer": None, "balance": [], "not_known": [], "abstains": True,
                          "left_out": ["everything"], "reason": "the answer does not fit; ask for less"})  # fmt: skip
        full.setdefault(where, len(values))
        del values[(3 * len(values)) // 4 :]
        document["left_out"] = [
            f"{path.removesuffix('.rows')}: {count - len(_at(document, path))} of {count}"
            for path, count in full.items()
        ]
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_number)


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _without(value: Any, root: str) -> Any:
    """Names of files as they are in the folder."""
    if isinstance(value, dict):
        return {key: _without(one, root) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without(one, root) for one in value]
    if isinstance(value, str) and len(root) > 1:
        return value.replace(f"{root}/", "").replace(root, "the folder")
    return value


def _short(value: Any) -> Any:
    """Texts made visible and of limited length, numbers of five digits, rows without what is unknown."""
    if isinstance(value, dict):
        kept = {str(key): _short(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in (None, "", [], {})}
    if isinstance(value, (list, tuple)):
        rows = [_short(one) for one in value]
        if not rows or not all(isinstance(one, dict) for one in rows):
            return rows
        columns = list(dict.fromkeys(key for one in rows for key in one))  # those that hold something
        return {"columns": columns, "rows": [[one.get(column) for column in columns] for one in rows]}
    if isinstance(value, str):
        return visible(value, _LONGEST_TEXT)
    if isinstance(value, float):
        return float(f"{value:.5g}") if abs(value) < float("inf") else None
    return value


def _lists(document: Answer) -> list[tuple[str, list[Any]]]:
    """Every list of the document with its path, without those inside rows."""
    found: list[tuple[str, list[Any]]] = [("", [])]
    stack: list[tuple[str, Any]] = [(key, value) for key, value in document.items() if key != "left_out"]
    while stack:
        path, value = stack.pop()
        if isinstance(value, list):
            found.append((path, value))
        elif isinstance(value, dict):
            stack += [(f"{path}.{key}", one) for key, one in value.items()]
    return found


def _at(document: Answer, path: str) -> list[Any]:
    value: Any = document
    for key in path.split("."):
        value = value[key]
    found: list[Any] = value
    return found
