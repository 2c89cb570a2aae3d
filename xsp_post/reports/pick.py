"""Results → the capture and the executions that the drawings show."""

from dataclasses import dataclass

import pandas as pd

from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.text import visible

# The run whose device times may be trusted comes first; counter runs replay kernels and come last (XSP §III-C).
_DEPTH = {RUN_KERNEL: 0, "": 1, RUN_LAYER: 2, RUN_MODEL: 3, RUN_COUNTERS: 4}


@dataclass(frozen=True)
class Window:
    """One execution on the host's clock: its range, extended to its last device work."""

    capture_id: int
    iteration_index: int
    start_ns: int
    end_ns: int
    title: str


def of_capture(frame: pd.DataFrame, capture_id: int) -> pd.DataFrame:
    """The rows of one capture; the frame itself where it holds no other."""
    is_mine = frame["capture_id"].eq(capture_id).to_numpy()
    return frame if is_mine.all() else frame[is_mine]


def deepest_capture(results: Results) -> int:
    """capture_id of the capture that shows most of the stack: with kernels, of level M/L/G, most kernels; −1 none."""
    captures = frame_or_empty(results, "captures")
    if captures.empty:
        return -1
    ranked = pd.DataFrame(
        {
            "empty": captures["kernel_count"].eq(0),
            "depth": captures["level"].astype(object).map(_DEPTH).fillna(1),
            "kernels": -captures["kernel_count"],
            "id": captures["capture_id"],
        }
    ).sort_values(["empty", "depth", "kernels", "id"], kind="stable")
    return int(ranked["id"].iloc[0])


def windows(results: Results, capture_id: int) -> list[Window]:
    """The median, the first and the slowest of the measured executions of the phase that took most time, as they ran;
    each once. Real executions are chosen, none is averaged: what the timeline shows did happen."""
    columns = ["capture_id", "iteration_index", "phase", "start_ns", "end_ns", "latency_ns", "is_warmup"]
    mine = of_capture(frame_or_empty(results, "iterations", columns), capture_id)
    measured = mine[~mine["is_warmup"].astype(bool)]
    measured = measured if len(measured) else mine
    if measured.empty:
        return []
    heaviest = str(measured.groupby("phase", observed=True, sort=False)["latency_ns"].sum().idxmax())
    measured = measured[measured["phase"].astype(str).eq(heaviest)].sort_values("start_ns", kind="stable")
    latency = measured["latency_ns"]
    rows = {"median": (latency - latency.median()).abs().idxmin(), "first": measured.index[0],
            "slowest": latency.idxmax()}  # fmt: skip
    words = {row: word for word, row in reversed(rows.items())}
    return [
        Window(capture_id, int(row["iteration_index"]), int(row["start_ns"]),
               max(int(row["end_ns"]), int(row["start_ns"] + row["latency_ns"])),
               f"{words[index]} execution ({int(row['iteration_index'])}, {visible(heaviest, 60)})")
        for index, row in measured.loc[[row for row in measured.index if row in words]].iterrows()
    ]  # fmt: skip
