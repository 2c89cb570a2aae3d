"""The collectives of all ranks of a job → the chain through the ranks that decides how long it takes, how late each
rank was in each step, and which machine each is on.
"""

import numpy as np
import pandas as pd

from xsp_post.model.results import empty_table, typed


def rank_chain(calls: pd.DataFrame, rank: np.ndarray, job_name: str) -> pd.DataFrame:
    """``rank_chain``. ``calls``: rows of `across_ranks`, each with ``position``, that of its rank in ``rank``."""
    met = calls[calls["meeting_index"] >= 0].sort_values(["position", "end_ns"], ignore_index=True)
    if not len(met):
        return empty_table("rank_chain")
    position, meeting = (met[name].to_numpy(np.int64) for name in ("position", "meeting_index"))
    start, end = (met[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    begin = met.groupby("position")["start_ns"].transform("min").to_numpy(np.int64)
    width = int((end - begin).max()) + 2
    before = np.searchsorted(position * width + end - begin, position * width + start - begin, side="right") - 1
    before = np.where((before >= 0) & (position[before] == position), before, -1)
    last = np.flatnonzero(met["is_last"].astype(bool))
    row_of, previous = np.full((2, int(meeting.max()) + 2), -1)  # the last element stands for "none": it is at −1
    row_of[meeting[last]] = last
    previous[meeting[last]] = np.where(before[last] >= 0, meeting[before[last]], -1)
    chain = meeting[[int((end - met["clock_offset_ns"].fillna(0)).argmax())]]
    for _ in range(len(previous).bit_length()):
        chain, previous = np.append(chain, previous[chain]), previous[previous]
    rows = row_of[pd.unique(chain[chain >= 0])[::-1]]
    frame = met.iloc[rows].assign(
        job_name=job_name, chain_index=np.arange(len(rows)), rank=rank[position[rows]],
        own_ns=np.where(before[rows] >= 0, start[rows] - end[before[rows]], np.nan),
        waited_ns=(met["waiting_ns"] + met["launch_skew_ns"]).groupby(meeting).sum()[meeting[rows]].to_numpy(),
    )  # fmt: skip
    return typed("rank_chain", frame.reset_index(drop=True))


def rank_steps(calls: pd.DataFrame, rank: np.ndarray, job_name: str) -> pd.DataFrame:
    """The table ``rank_steps``; collectives outside every step are left out."""
    met = calls[(calls["meeting_index"] >= 0) & (calls["step_index"] >= 0)]
    if not len(met):
        return empty_table("rank_steps")
    met = met.assign(waited=met["waiting_ns"] + met["launch_skew_ns"])
    groups = met.groupby(["position", "step_index"], sort=True)
    frame = groups.agg(late_ns=("late_ns", "max"), waiting_ns=("waited", "sum")).reset_index()
    frame["late_ns"] = frame["late_ns"].clip(lower=0)
    return typed("rank_steps", frame.assign(job_name=job_name, rank=rank[frame["position"]]))


def nodes_of(device: np.ndarray) -> np.ndarray:
    """Number of each rank's machine, −1 unknown: the next one begins where a device comes again. ``device``: of the
    ranks in their order; where each process sees one device only, nothing is known."""
    if len(device) < 2 or device.min() < 0 or (device == device[0]).all():
        return np.full(len(device), -1)
    return np.maximum.accumulate(pd.Series(device).groupby(device).cumcount().to_numpy())
