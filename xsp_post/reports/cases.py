"""Which case the layer and kernel sections show, and its rows of a table.

A *case* is a workload at one batch size and phase (model/schemas/columns.txt). The page shows all cases where it
compares (A1, A15) and one where it goes deep: the optimal batch size if it has kernels, else the deepest.
"""

from dataclasses import dataclass

import pandas as pd

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.text import visible
from xsp_post.tables.analyses.cases import are_one_job


@dataclass(frozen=True)
class Case:
    """One case: its index, and how it is called on the page ('' when there is only one)."""

    index: int
    label: str


def label_of(batch_size: int, phase: str) -> str:
    """``batch 256 · prefill``."""
    parts = [f"batch {batch_size}" if batch_size >= 0 else "", visible(phase, 60)]
    return " · ".join(part for part in parts if part)


def main_case(results: Results, wanted: int | None = None) -> Case | None:
    """The case that the deep sections show; None without cases. UsageError when ``wanted`` is not there."""
    cases = frame_or_empty(results, "cases")
    if cases.empty:
        return None
    if wanted is not None:
        rows = cases[cases["case_index"].eq(wanted)]
        if rows.empty:
            known = ", ".join(str(i) for i in cases["case_index"])
            raise UsageError(f"There is no case {wanted} in this store; its cases are {known}.", code="report-no-case")
        return _case(rows.iloc[0], _several_phases(cases))
    optimal = frame_or_empty(results, "a01", ["case_index", "is_optimal"])
    best = set(optimal.loc[optimal["is_optimal"].astype(bool), "case_index"])
    weight = frame_or_empty(results, "a15", ["case_index", "kernel_latency_ns"])
    heavy = dict(zip(weight["case_index"], weight["kernel_latency_ns"].fillna(0)))
    ranked = pd.DataFrame(
        {
            "kernels": cases["kernel_capture_id"].ge(0),
            "layers": cases["layer_capture_id"].ge(0),
            "optimal": cases["case_index"].isin(best),
            "weight": cases["case_index"].map(heavy).fillna(0) * cases["iteration_count"].fillna(1),
        }
    )
    order = ranked.sort_values(["kernels", "layers", "optimal", "weight"], ascending=False, kind="stable").index
    return _case(cases.loc[order[0]], _several_phases(cases))


def labels(frame: pd.DataFrame) -> list[str]:
    """`label_of` each row; the phase is left out where all rows have the same."""
    several = _several_phases(frame)
    return [_case(row, several).label for _, row in frame.iterrows()]  # a handful of cases


def _several_phases(frame: pd.DataFrame) -> bool:
    return frame["phase"].astype(str).nunique() > 1


def _case(row: pd.Series, several_phases: bool) -> Case:
    words = [str(row["phase"]) if several_phases else "", str(row.get("rank_name", "") or "")]
    label = label_of(int(row["batch_size"]), " · ".join(word for word in words if word))
    return Case(int(row.get("case_index", -1)), label)


def rows(results: Results, table: str, case: Case | None, columns: list[str] | None = None) -> pd.DataFrame:
    """The rows of one case of a table; empty where the table or the case is not there."""
    if columns is not None and "case_index" not in columns:
        columns = ["case_index", *columns]
    frame = frame_or_empty(results, table, columns)
    if case is None or frame.empty:
        return frame.iloc[:0]
    is_mine = frame["case_index"].eq(case.index).to_numpy()
    return (frame if is_mine.all() else frame[is_mine]).reset_index(drop=True)


def of_case(case: Case | None) -> str:
    """`` at batch 256`` for a sentence, '' where nothing distinguishes the case."""
    return f" at {case.label}" if case is not None and case.label else ""


def main_captures(results: Results) -> list[int] | None:
    """The captures of the main case (`captures_of`), which is looked for only where there are several."""
    return None if _is_one_whole(results) else captures_of(results, main_case(results))


def captures_of(results: Results, case: Case | None) -> list[int] | None:
    """The captures that a verdict on a case speaks of: all (None) where there is one, or where they are the ranks of a
    job; else the one that the case's kernels come from, or that has most device time."""
    if _is_one_whole(results):
        return None
    captures = frame_or_empty(results, "captures", ["capture_id", "device_ns"])
    named = rows(results, "cases", case)
    chosen = int(named["kernel_capture_id"].iloc[0]) if len(named) else -1
    return [chosen if chosen >= 0 else int(captures["capture_id"].iloc[captures["device_ns"].argmax()])]


def own_verdicts(results: Results) -> dict[int, str]:
    """Names of the captures by id where each has a verdict of its own: several, of no common workload or job."""
    captures = frame_or_empty(results, "captures", ["capture_id", "source_name", "workload_name"])
    workloads = captures["workload_name"].astype(object).fillna("").unique().tolist()
    if len(captures) < 2 or (len(workloads) == 1 and workloads[0]) or are_one_job(results):
        return {}
    return dict(zip(captures["capture_id"].tolist(), captures["source_name"].astype(str)))


def _is_one_whole(results: Results) -> bool:
    """Whether a verdict is of all captures: of the only one, or of the ranks of a job."""
    return len(frame_or_empty(results, "captures", ["capture_id"])) < 2 or are_one_job(results)
