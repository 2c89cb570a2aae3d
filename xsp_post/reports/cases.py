"""Which case the layer and kernel sections show, and its rows of a table.

A *case* is a workload at one batch size and phase (model/schemas/columns.txt). The page shows all cases where it
compares (A1, A15) and one where it goes deep: the optimal batch size if it has kernels, else the deepest.
"""

from dataclasses import dataclass

import pandas as pd

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.text import visible


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
            "weight": cases["case_index"].map(heavy).fillna(0),
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
