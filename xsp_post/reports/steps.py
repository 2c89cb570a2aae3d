"""What one execution is made of: the phases of a training step, and the chain of work that decides its length."""

from __future__ import annotations

import pandas as pd

from xsp_post.arrays.repeats import summed
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases
from xsp_post.reports.blocks import Block, Exhibit, Note, Section, Table, present
from xsp_post.reports.path_line import critical_path_line
from xsp_post.reports.pick import deepest_capture, of_capture
from xsp_post.reports.text import short_kernels, visible

ROW_LIMIT = 100


def phase_data(results: Results, case: cases.Case | None) -> pd.DataFrame:
    """The phases of the whole training step of one case; none where there is a single phase."""
    frame = cases.rows(results, "training_phases", case)
    whole = frame[frame["layer_index"].fillna(-1).lt(0)]
    return whole.reset_index(drop=True) if len(whole) > 1 else whole.iloc[:0]


def path_data(results: Results, capture_id: int) -> pd.DataFrame:
    """The critical path of a capture by kind and name, longest first."""
    columns = ["capture_id", "kind", "name", "operation_count", "duration_ns"]
    mine = of_capture(frame_or_empty(results, "critical_path", columns), capture_id)
    found = summed(mine, ["kind", "name"], {"operation_count": "sum", "duration_ns": "sum"})
    return found.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def _make_phases(results: Results, case: cases.Case | None) -> Section | None:
    frame = phase_data(results, case)
    if frame.empty:
        return None
    parts = ", ".join(
        f"{visible(row['training_phase'], 40)} {format_ns(row['kernel_latency_ns'])} "
        f"({format_ratio_percent(row['kernel_latency_ratio'])})"
        for row in frame.to_dict("records")
    )
    columns = tuple(c for c in present(frame, view_of("training_phases")) if c != "layer_name")
    table = Table(
        "training-phases", "training_phases", frame, columns, "Kernel time by phase of one step", len(frame),
        bars=("kernel_latency_ns",), command="xsp-post table training_phases STORE --format csv",
    )  # fmt: skip
    blocks = (Note(f"Kernel time of a step: {parts}.", "lead"), table)
    return Section("phases", "Phases of a training step", "Forward, backward or optimizer?", blocks, "Model")


def _make_path(results: Results, case: cases.Case | None) -> Section | None:
    capture_id = deepest_capture(results)
    frame = path_data(results, capture_id)
    if frame.empty:
        return None
    blocks: list[Block] = [Note(critical_path_line(results, capture_id) + ".", "lead")]
    table = Table(
        "critical-path", "critical_path", frame.head(ROW_LIMIT), ("kind", "name", "operation_count", "duration_ns"),
        "The chain that decides the length of one execution, by kind and name", len(frame),
        bars=("duration_ns",), short={"name": short_kernels}, command="xsp-post table critical_path STORE --format csv",
    )  # fmt: skip
    replays = frame_or_empty(results, "replays", ["capture_id", "error_ratio", "refusal"])
    mine = replays[replays["capture_id"].eq(capture_id)]
    blocks.append(table)
    if len(mine):
        refusal, error = str(mine["refusal"].iloc[0] or ""), float(mine["error_ratio"].iloc[0])
        can = f"is {format_ratio_percent(error)} off the recording; “xsp-post what-if STORE” replays it with a change"
        said = f"nothing is predicted from this capture: {visible(refusal, 300)}" if refusal else can
        blocks.append(Note(f"A replay of the recording as it was: {said}." if refusal else f"A replay {said}."))
    return Section("path", "Critical path", "What decides how long an execution takes?", tuple(blocks), "Waits")


PHASES = Exhibit("phases", "Phases of a training step", ("training_phases",), _make_phases, "")
PATH = Exhibit("path", "Critical path", ("critical_path",), _make_path, "")
