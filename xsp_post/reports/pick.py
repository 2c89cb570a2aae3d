"""Results → the capture and the iteration that all drawings show."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty

# The run whose device times may be trusted comes first; counter runs replay kernels and come last (XSP §III-C).
_DEPTH = {RUN_KERNEL: 0, "": 1, RUN_LAYER: 2, RUN_MODEL: 3, RUN_COUNTERS: 4}


@dataclass(frozen=True)
class Window:
    """One iteration (or a whole capture, iteration_index −1) on the host's clock."""

    capture_id: int
    iteration_index: int
    start_ns: int
    end_ns: int
    title: str
    left_out_count: int = 0  # events of lanes that are not drawn


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


def median_iteration(results: Results, capture_id: int) -> pd.Series | None:
    """The measured iteration whose latency is nearest the median, of the phase that took most time; None if none.

    A real iteration is chosen, none is averaged: what the timeline shows did happen.
    """
    iterations = frame_or_empty(results, "iterations")
    if iterations.empty:
        return None
    mine = iterations[iterations["capture_id"].eq(capture_id)]
    measured = mine[~mine["is_warmup"].astype(bool)]
    measured = measured if len(measured) else mine
    if measured.empty:
        return None
    heaviest = str(measured.groupby("phase", observed=True, sort=False)["latency_ns"].sum().idxmax())
    measured = measured[measured["phase"].astype(str).eq(heaviest)]
    distance = (measured["latency_ns"] - measured["latency_ns"].median()).abs()
    return measured.iloc[int(distance.to_numpy().argmin())]
