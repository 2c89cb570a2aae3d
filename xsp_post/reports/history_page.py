"""The tables of a history → one self-contained page: its sentences, a chart per measure, changes and values."""

import numpy as np
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import counted, format_count
from xsp_post.reports.cases import Case
from xsp_post.reports.document import sections_of
from xsp_post.reports.frames import Frame
from xsp_post.reports.history import history_lines
from xsp_post.reports.shell import render_page
from xsp_post.reports.text import visible
from xsp_post.tables.analyses.history import CAUSE, KERNEL, LATENCY, LAYER, MODEL

LINE_LIMIT = 8


def render(results: Results) -> str:
    """The page of a history (tables ``history`` and ``history_values``) as text."""
    values, changes = results.frame("history_values"), results.frame("history")
    captures = int(values["capture_name"].nunique())
    facts = [
        ("captures", format_count(captures), counted(values["workload_index"].nunique(), "workload", "workloads")),
        ("changes", format_count(len(changes[["workload_index", "change_index"]].drop_duplicates())), ""),
    ]
    statements = [("kernel", line) for line in history_lines(values, changes)]
    sections = sections_of("history", results, _FRAMES)
    changed = changes["level"][changes["is_shown"].astype(bool)].astype(str).to_numpy()
    return render_page(
        "History", counted(captures, "capture", "captures"), "xsp-post history", facts, statements, sections,
        first_chart=next((chart for level, chart in _CHARTS.items() if level in changed), ""),
    )  # fmt: skip


_CHARTS = {MODEL: "history-model", LAYER: "history-layers", KERNEL: "history-kernels", CAUSE: "history-causes"}


def _course(level: str) -> Frame:
    """The values of a level by capture: of the model each workload, else what is said to have changed, and then those
    subjects whose values differ most."""

    def rows(results: Results, case: Case | None) -> pd.DataFrame:
        values = results.frame("history_values")
        values = values[values["level"].astype(str).eq(level) & (values["subject"].eq(LATENCY) | (level != MODEL))]
        values = values.sort_values("position_index", kind="stable")
        spread = values.groupby(["workload_index", "subject"], observed=True)["value_ns"].agg(np.ptp)
        changes = results.frame("history")
        said = changes[changes["is_shown"].astype(bool) & changes["level"].astype(str).eq(level)]
        is_said = spread.index.isin(pd.MultiIndex.from_frame(said[["workload_index", "subject"]]))
        most = spread.index[np.lexsort([-spread.to_numpy(), ~is_said])][:LINE_LIMIT]
        shown = values[pd.MultiIndex.from_frame(values[["workload_index", "subject"]]).isin(most)]
        place = ["workload_index", "subject", "position_index"]
        begins = pd.MultiIndex.from_frame(shown[place]).isin(pd.MultiIndex.from_frame(said[place]))
        shown = shown.assign(since_name=("since " + shown["capture_name"].astype(str)).where(begins, ""))
        who = shown["gpu_name"].astype(str) + " · " + shown["phase"].astype(str)
        named = [visible(f"{number + 1} {one}", 60) for number, one in zip(shown["workload_index"], who)]
        return shown.assign(workload=named).reset_index(drop=True)

    return rows


_FRAMES: dict[str, Frame] = {f"history_{level}": _course(level) for level in _CHARTS}
