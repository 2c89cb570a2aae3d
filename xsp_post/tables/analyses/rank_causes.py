"""What every rank did between its collectives → why the late one is late, and how much of that its cause explains.

All ranks leave a collective together, so that a rank is late by what its own time between collectives is longer than
that of the others (their median). The own time is split into kernels by name and launch dimensions, copies, transfers
with single ranks, and idle time by cause. What exceeds the others sums to the lateness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import union_length
from xsp_post.model.schemas.units import format_ratio_percent
from xsp_post.names.families import normalise_kernel_name
from xsp_post.tables.analyses.limits import COMMUNICATION, HOST, LAUNCH, SYNCHRONIZATION, UNKNOWN, groups_of

KERNEL, COPY, TRANSFER, IDLE = "kernel", "copy", "transfer", "idle"
MORE, SLOWER, INPUT, COPIES, HOST_CODE, WAIT = "more work", "slower work", "input", "copies", "host", "another wait"
EXPLAINED = 0.8  # of the lateness, by one cause; with less the cause is not known
LATE = ("lateness_ns", "late_cause", "late_detail", "late_explained_ratio")
WORK_COLUMNS = ["capture_name", "process_id", "device_id", "kind", "name", "detail", "count", "typical_ns", "own_ns"]
# What prepares or brings the data of the next step.
_INPUT = re.compile(r"data_?loader|next_?batch|preprocess|\bcollate|hto?d\b|prefetch", re.I)
_OF_IDLE = {HOST: HOST_CODE, LAUNCH: HOST_CODE, SYNCHRONIZATION: WAIT, COMMUNICATION: WAIT, "copy": COPIES}
_ALIKE = 0.02  # spread of how much longer kernels take, up to which all of them are slowed alike


def rank_work(
    kernels: pd.DataFrame, transfers: pd.DataFrame, meetings: pd.DataFrame, copies: pd.DataFrame, idle: pd.DataFrame
) -> pd.DataFrame:
    """What one rank did between its first and last collective (``meetings``): kind, name, detail, count, own_ns.

    All frames have start_ns and end_ns but ``idle``, rows of `idle_causes`. ``own_ns`` sums to the time outside the
    collectives: what runs at the same time counts once, first as kernel, then as copy, then as transfer.
    """
    if len(meetings) < 2:
        return pd.DataFrame(columns=WORK_COLUMNS[3:])
    begin, end = int(meetings["start_ns"].min()), int(meetings["end_ns"].max())
    before = _length([meetings], begin, end)
    parts, shown = [], [meetings]
    for kind, rows in ((KERNEL, kernels), (COPY, copies), (TRANSFER, transfers)):
        shown.append(rows)
        covered = _length(shown, begin, end)
        inside = rows[(rows["end_ns"] > begin) & (rows["start_ns"] < end)]
        parts.append(_shared(_named(kind, inside), covered - before))
        before = covered
    groups = groups_of(idle).to_numpy(object) if len(idle) else np.zeros(0, object)
    call = idle["call_name"].astype(str)
    call = call.where(call != "", idle["cause"].astype(str).str.replace("_", " "))
    detail = call.str.cat(idle["owner"].astype(str), " in ")
    waits = pd.DataFrame({"kind": IDLE, "name": groups, "detail": detail, "own_ns": idle["idle_ns"].astype(float)})
    parts.append(_shared(waits, end - begin - before))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _length(frames: Sequence[pd.DataFrame], begin: int, end: int) -> int:
    start, stop = (np.concatenate([f[c].to_numpy(np.int64) for f in frames]) for c in ("start_ns", "end_ns"))
    start, stop = np.clip(start, begin, end), np.clip(stop, begin, end)
    return int(union_length(start, stop))


def _named(kind: str, rows: pd.DataFrame) -> pd.DataFrame:
    """What to sum operations by: copies by kind and direction, kernels by name and launch dimensions."""
    if kind == COPY:
        name, detail = (rows[column].astype(str) for column in ("kind", "direction"))
    else:
        name = pd.Series(normalise_kernel_name(rows["name"].astype(object)), rows.index, dtype=object)
        sides = [rows[side].astype(str) for side in ("grid_x", "grid_y", "grid_z")]
        detail = sides[0] + "×" + sides[1] + "×" + sides[2]
    lengths = (rows["end_ns"] - rows["start_ns"]).astype(float)
    return pd.DataFrame({"kind": kind, "name": name, "detail": detail, "own_ns": lengths})


def _shared(rows: pd.DataFrame, own: float) -> pd.DataFrame:
    """Summed by name and detail, to ``own`` ns in all."""
    groups = rows.groupby(["kind", "name", "detail"], sort=False)["own_ns"]
    sums = groups.agg(count="size", typical_ns="median", own_ns="sum").reset_index()
    total = sums["own_ns"].sum()
    if total > 0:
        return sums.assign(own_ns=sums["own_ns"] * (own / total), typical_ns=sums["typical_ns"] * (own / total))
    unknown = {"kind": IDLE, "name": UNKNOWN, "detail": "", "count": 0, "typical_ns": 0.0, "own_ns": float(own)}
    return pd.DataFrame([unknown])


def with_causes(ranks: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ranks` with the columns `LATE`; a cause only for those that the others wait for."""
    found: list[tuple[float, str, str, float]] = [(np.nan, "", "", np.nan)] * len(ranks)
    if len(ranks) > 1 and len(work):
        found = _found(ranks, work)
    return ranks.assign(**dict(zip(LATE, zip(*found)))) if found else ranks


def _found(frame: pd.DataFrame, work: pd.DataFrame) -> list[tuple[float, str, str, float]]:
    """The values of `LATE` for every rank."""
    who = ["capture_name", "process_id", "device_id"]
    places = frame[who].assign(position=np.arange(len(frame)))
    rows = work.merge(places, on=who, validate="many_to_one")
    keys = ["kind", "name", "detail"]
    own, count, typical = (
        rows.pivot_table(index="position", columns=keys, values=column, aggfunc="sum").reindex(range(len(frame)))
        for column in ("own_ns", "count", "typical_ns")
    )
    missing = own.isna().all(axis=1).to_numpy()
    values = np.stack([part.fillna(0.0).to_numpy() for part in (own, count, typical)])
    what = own.columns.to_frame(index=False)
    result = []
    for k, is_slow in enumerate(frame["is_straggler"]):
        others = ~missing & (np.arange(len(frame)) != k)
        late = np.nan
        if others.any() and not missing[k]:
            late = float(values[0, k].sum() - np.median(values[0, others].sum(axis=1)))
        cause = ("", "", np.nan)
        if is_slow and late > 0:
            cause = _cause(what, values[:, k], np.median(values[:, others], axis=1), late)
        result.append((late, *cause))
    return result


def _cause(what: pd.DataFrame, mine: np.ndarray, usual: np.ndarray, late: float) -> tuple[str, str, float]:
    """Cause, detail, and the part of the lateness that it explains; the cause is unknown below `EXPLAINED`.

    ``mine``, ``usual``: time, count and typical duration of every row of ``what``, of the rank and of the others.
    """
    excess = mine[0] - usual[0]
    is_kernel = what["kind"].eq(KERNEL).to_numpy()
    same = is_kernel & (mine[1] > 0) & (usual[1] > 0)
    slower = np.where(same, (mine[2] - usual[2]) * np.minimum(mine[1], usual[1]), 0.0)
    more = np.where(is_kernel, excess - slower, 0.0)
    text = what["name"].astype(str).str.cat(what["detail"].astype(str), " ")
    kind = what["name"].map(_OF_IDLE).where(what["kind"].eq(IDLE), what["kind"].map({COPY: COPIES, TRANSFER: WAIT}))
    kind = kind.mask(~is_kernel & text.str.contains(_INPUT), INPUT)
    found = {MORE: more, SLOWER: slower}
    found |= {one: np.where(kind.eq(one), excess, 0.0) for one in (INPUT, COPIES, HOST_CODE, WAIT)}
    cause = max(found, key=lambda one: found[one].sum())
    values = found[cause]
    ratio = float(values.sum() / late)
    if not EXPLAINED <= ratio <= 1 / EXPLAINED:
        return UNKNOWN, "", ratio
    top = int(values.argmax())
    is_idle = what["kind"].iloc[top] == IDLE
    detail = str(what["detail"].iloc[top] if is_idle else what["name"].iloc[top])
    if cause == SLOWER and same.sum() > 1:
        ratios, weight = mine[2][same] / np.maximum(usual[2][same], 1.0), usual[0][same]
        mean = float(np.average(ratios, weights=weight))
        if np.average((ratios - mean) ** 2, weights=weight) <= (_ALIKE * mean) ** 2:
            detail = f"all kernels take {format_ratio_percent(mean - 1)} longer, as at a lower clock"
    return cause, detail, ratio
