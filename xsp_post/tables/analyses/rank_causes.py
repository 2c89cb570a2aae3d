"""What every rank did between its collectives → why the late one is late, and how much of that its cause explains.

All ranks leave a collective together, so that a rank is late by what its own time between collectives is longer than
that of the others (their median). The own time is split into kernels by name and launch dimensions, copies, transfers
with single ranks, and idle time by cause. What exceeds the others sums to the lateness.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import union_length
from xsp_post.model.schemas.units import format_ratio_percent
from xsp_post.names.families import normalise_kernel_name
from xsp_post.replay.collectives import median_of_others
from xsp_post.tables.analyses.frames import PATTERNS
from xsp_post.tables.analyses.limits import COMMUNICATION, HOST, LAUNCH, SYNCHRONIZATION, UNKNOWN, groups_of

KERNEL, COPY, TRANSFER, IDLE = "kernel", "copy", "transfer", "idle"
MORE, SLOWER, INPUT, COPIES, HOST_CODE, WAIT = "more work", "slower work", "input", "copies", "host", "another wait"
EXPLAINED = 0.8  # of the lateness, by one cause; with less the cause is not known
LATE = ("lateness_ns", "late_cause", "late_detail", "late_explained_ratio")
WHO = ["capture_name", "process_id", "device_id"]
WORK_COLUMNS = [*WHO, "kind", "name", "detail", "count", "size", "own_ns"]
_OF_IDLE = {HOST: HOST_CODE, LAUNCH: HOST_CODE, SYNCHRONIZATION: WAIT, COMMUNICATION: WAIT, "copy": COPIES}
# What tells operations apart.
_SAME = {KERNEL: ["name"], COPY: ["kind", "direction"], TRANSFER: ["name"]}
GRID = ["grid_x", "grid_y", "grid_z"]
_EQUAL = 0.02  # difference of a number of launches, or of their size, that the ends of the recording explain
_ALIKE = 0.02  # spread of how much longer kernels take, up to which all of them are slowed alike


def held_up_ns(ranks: pd.DataFrame) -> float:
    """What the late ranks cost the others: what one of these waits in collectives, each for its turn where ranks are
    late in turn, or what a late one takes longer; no more than communication runs alone, since a wait that kernels hide
    costs nothing."""
    late = ranks.loc[ranks["is_straggler"].fillna(False).astype(bool), "lateness_ns"]
    waited = ranks["waiting_ns"].clip(upper=ranks["exposed_ns"])
    in_turn = waited.sum() / max(len(ranks) - 1, 1)  # all but one wait each time
    return float(np.fmax(max(waited.max(), in_turn), min(late.max(), ranks["exposed_ns"].max())))


def rank_work(
    kernels: pd.DataFrame, transfers: pd.DataFrame, meetings: pd.DataFrame, copies: pd.DataFrame, idle: pd.DataFrame
) -> pd.DataFrame:
    """What one rank did from the end of its first collective (``meetings``) to that of its last: kind, name, detail,
    count, size (thread blocks of all launches), own_ns.

    All frames have start_ns and end_ns but ``idle``, rows of `idle_causes`; ``transfers`` are rows of `collectives`.
    ``own_ns`` sums to the time in which no collective is alone: what runs at the same time counts once, first as
    kernel, then as copy, then as transfer. A collective that work hides is no pause of the work.
    """
    if len(meetings) < 2:
        return pd.DataFrame(columns=WORK_COLUMNS[3:])
    begin, end, before = int(meetings["end_ns"].min()), int(meetings["end_ns"].max()), 0
    parts, shown = [], list[pd.DataFrame]()
    for kind, rows in ((KERNEL, kernels), (COPY, copies), (TRANSFER, transfers)):
        shown.append(rows)
        covered = covered_ns(shown, begin, end)
        inside = rows[(rows["end_ns"].to_numpy() > begin) & (rows["start_ns"].to_numpy() < end)]
        parts.append(_shared(kind, _operations(kind, inside), covered - before))
        before = covered
    texts = [idle[column].astype(object).tolist() for column in ("call_name", "cause", "owner")]
    details = [f"{call or cause.replace('_', ' ')}{owner and ' in '}{owner}" for call, cause, owner in zip(*texts)]
    waits = _sized(groups_of(idle).to_numpy(object), details, np.ones(len(idle)), idle["idle_ns"])
    alone = covered_ns([*shown, meetings], begin, end) - before
    parts.append(_shared(IDLE, waits, end - begin - before - alone))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)[WORK_COLUMNS[3:]]


def covered_ns(frames: Iterable[pd.DataFrame], begin: int = -(2**63), end: int = 2**63 - 1) -> int:
    """How long any of the rows lasts, between two times."""
    some = [rows for rows in frames if len(rows)]
    times = [np.concatenate([np.zeros(0, np.int64), *(rows[name].to_numpy(np.int64) for rows in some)])
             for name in ("start_ns", "end_ns")]  # fmt: skip
    return int(union_length(*(np.clip(one, begin, end) for one in times)))


def _operations(kind: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Operations: copies by kind and direction, kernels by name."""
    columns: list[Any] = [rows[column].astype(object).to_numpy() for column in _SAME[kind]]
    name, detail = (*columns, "")[:2]
    size = rows[GRID].to_numpy(float).prod(axis=1) if kind == KERNEL else np.ones(len(rows))
    name = normalise_kernel_name(name) if kind == KERNEL else name
    return _sized(name, detail, np.fmax(size, 0.0), rows["end_ns"] - rows["start_ns"])


def _sized(name: Any, detail: Any, size: np.ndarray, time_ns: pd.Series) -> pd.DataFrame:
    columns = {"name": name, "detail": detail, "count": 1.0, "size": size, "own_ns": time_ns.to_numpy(float)}
    return pd.DataFrame(columns, index=range(len(size)))


def _shared(kind: str, rows: pd.DataFrame, own: float) -> pd.DataFrame:
    """Summed by name and detail, to ``own`` ns in all."""
    sums = rows.groupby(["name", "detail"], sort=False).sum().reset_index().assign(kind=kind)
    total = sums["own_ns"].sum()
    if total > 0:
        return sums.assign(own_ns=sums["own_ns"] * (own / total))
    nothing = {"kind": kind, "name": UNKNOWN, "detail": "", "count": 0, "size": 0.0, "own_ns": float(own)}
    return pd.DataFrame(nothing, index=range(bool(own)))


class Work:
    """What all ranks of a job did between their collectives (``work``: rows of `rank_work` with their rank's names).

    ``held_up`` (ranks,): part of a rank's transfers that it shares with the other side; that is not its own time.
    ``lateness_ns`` (ranks,): own time over the median of the others', NaN unknown; ``excess_ns`` (any, ranks): that of
    all own time and of each kind.
    """

    def __init__(self, ranks: pd.DataFrame, work: pd.DataFrame, held_up: np.ndarray) -> None:
        count = len(ranks)
        self.excess_ns = np.full((1, count), np.nan)
        self.lateness_ns = self.excess_ns[0]
        self._known = np.zeros(count, bool)
        if count < 2 or not len(work):
            return
        places = ranks[WHO].assign(position=np.arange(count), left=1 - held_up)
        rows = work.merge(places, on=WHO, validate="many_to_one")
        rows["own_ns"] *= rows["left"].where(rows["kind"].eq(TRANSFER), 1.0)
        own, *others = (
            rows.pivot_table(index="position", columns=["kind", "name", "detail"], values=column, aggfunc="sum")
            for column in ("own_ns", "count", "size")
        )
        self._known[own.index] = True
        self._what = own.columns.to_frame(index=False)
        self._values = np.stack([part.fillna(0.0).to_numpy() for part in (own, *others)])
        if len(own) > 1:
            sums = np.stack([own.sum(axis=1), *own.T.groupby("kind").sum().to_numpy()])
            self.excess_ns = np.full((len(sums), count), np.nan)
            self.excess_ns[:, self._known] = sums - median_of_others(sums)
            self.lateness_ns = self.excess_ns[0]

    def causes(self, is_late: np.ndarray) -> dict[str, list[Any]]:
        """The columns of `LATE` but the lateness: '' and NaN for ranks that the others do not wait for."""
        row = np.cumsum(self._known) - 1
        found: list[tuple[str, str, float]] = [("", "", np.nan)] * len(is_late)
        for k in np.flatnonzero(is_late & (self.lateness_ns > 0)).tolist():
            usual = np.median(np.delete(self._values, row[k], axis=1), axis=1)
            found[k] = _cause(self._what, self._values[:, row[k]], usual, float(self.lateness_ns[k]))
        return {name: list(values) for name, values in zip(LATE[1:], zip(*found))}


def _cause(what: pd.DataFrame, mine: np.ndarray, usual: np.ndarray, late: float) -> tuple[str, str, float]:
    """Cause, detail, and the part of the lateness that it explains; the cause is unknown below `EXPLAINED`.

    ``mine``, ``usual``: time, count and size of every row of ``what``, of the rank and of the others. A kernel takes
    some time for each launch and some for each thread block: what more of both take at the others' speed lies between
    their two shares. Of a kernel with as many of both, time beyond that is slower work. Others may have more to do in
    each block: they are slower by what half of all launches and half of the time are. So is every kernel where most
    launches are of another size than the others': inputs are, and a persistent kernel does not show it. Launches of an
    unknown size tell no speed: operators of a CPU that compute nothing.
    """
    excess = mine[0] - usual[0]
    is_kernel = what["kind"].eq(KERNEL).to_numpy()
    same = is_kernel & (mine[1] > 0) & (usual[1] > 0)
    number = mine[1] - usual[1]
    sized = same & (usual[2] > 0)
    tells = sized if usual[2][is_kernel].any() else same
    shares = np.divide(mine[1:], usual[1:], out=np.ones_like(mine[1:]), where=np.stack([same, sized])) - 1
    shares[1] = np.where(sized, shares[1], shares[0])
    is_sized = is_kernel & (~same | (np.abs(shares[1] - shares[0]) > _EQUAL * (1 + shares[0])))
    shares = np.sort(np.where(np.abs(shares) > _EQUAL, shares, 0.0), axis=0)
    expected = usual[0] + np.clip(excess, *(usual[0] * shares))
    told = np.flatnonzero(tells)[np.argsort(mine[0][tells] / expected[tells])]
    sums = np.cumsum([mine[1][told], expected[told]], axis=1)
    halves = [told[np.searchsorted(one, one[-1] / 2)] for one in sums if len(told)]
    speed = min(mine[0][halves] / expected[halves], key=lambda one: abs(one - 1), default=1.0)
    equal = ~shares.any(axis=0) & (mine[1][is_sized].sum() <= mine[1][is_sized | tells].sum() / 2)
    slower = np.where(same, np.where(equal, excess, expected * (speed - 1)), 0.0)
    more = np.where(is_kernel, excess - slower, 0.0)
    text = what["name"].astype(str).str.cat(what["detail"].astype(str), " ")
    kind = what["name"].map(_OF_IDLE).where(what["kind"].eq(IDLE), what["kind"].map({COPY: COPIES, TRANSFER: WAIT}))
    kind = kind.mask(what["kind"].eq(IDLE) & what["detail"].astype(str).str.contains(PATTERNS["lock"]), WAIT)
    kind = kind.mask(~is_kernel & text.str.contains(PATTERNS["input"]), INPUT)
    found = {MORE: more, SLOWER: slower}
    found |= {one: np.where(kind.eq(one), excess, 0.0) for one in (INPUT, COPIES, HOST_CODE, WAIT)}
    # more launches take more host code, as much for each as the others' do
    is_host, launches = kind.eq(HOST_CODE).to_numpy(), number[is_kernel].sum()
    of_host = usual[0][is_host].sum() * max(launches, 0.0) / max(usual[1][is_kernel].sum(), 1.0)
    part = np.clip(of_host / max(found[HOST_CODE].sum(), 1.0), 0, 1)
    found |= {MORE: more + part * found[HOST_CODE], HOST_CODE: (1 - part) * found[HOST_CODE]}
    cause = max(found, key=lambda one: found[one].sum())
    values = found[cause]
    amounts = [float(one.sum()) for one in found.values()]
    # what is shorter than the others' (a processor that these leave free while they wait) takes nothing off a cause
    longer = sum(amount for amount in (*amounts, late - sum(amounts)) if amount > 0)
    ratio = float(values.sum() / longer)
    if ratio < EXPLAINED:
        return UNKNOWN, "", ratio
    top = int((more if cause == MORE else values).argmax())
    is_idle = what["kind"].iloc[top] == IDLE
    detail = str(what["detail"].iloc[top] if is_idle else what["name"].iloc[top])
    if cause == SLOWER and same.sum() > 1:
        usual_mean = usual[0][same] / usual[1][same]
        ratios, weight = mine[0][same] / mine[1][same] / np.maximum(usual_mean, 1.0), usual[0][same]
        mean = float(np.average(ratios, weights=weight))
        if np.average((ratios - mean) ** 2, weights=weight) <= (_ALIKE * mean) ** 2:
            detail = f"all kernels take {format_ratio_percent(mean - 1)} longer, as at a lower clock"
    return cause, detail, ratio
