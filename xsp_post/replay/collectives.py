"""Communication kernels → collectives: on every rank the time split into transfer, waiting for the last arrival and
launch skew; bytes and bus bandwidth; clock offsets between captures; what compute hides of it.

A collective ends for all its ranks together, and nobody transfers before the last one is there. The k-th collective of
a name in a process group is the k-th of that name on the other ranks of the group, where all have equally many.
"""

import re

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import covered_before
from xsp_post.arrays.repeats import numbered
from xsp_post.model.results import empty_table, typed
from xsp_post.model.schemas import column_names
from xsp_post.names.families import joins_ranks, normalise_kernel_name
from xsp_post.names.groups import axis_of_group
from xsp_post.replay.calls import PATTERNS

_KINDS = {name.removeprefix("collective "): text for name, text in PATTERNS.items() if name.startswith("collective ")}
_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all")  # each rank has a part of what is moved
POINT_TO_POINT = ("send", "recv", "send_recv")
_RANK = ["capture_id", "process_id", "device_id"]
_OF_MEETINGS = ("transfer_ns", "launch_skew_ns", "waiting_ns", "rank_count", "meeting_index", "late_ns", "is_last")
_TOGETHER_RATIO, _LEAST_TOGETHER_RATIO = 0.1, 0.9  # of the longest: ends lie so close; of the exchanges
_LEAST_MATCHED = 3  # collectives that a clock offset is taken from


def collective_kind(name: str) -> str:
    """Which collective a kernel or operator name says; '' unknown."""
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name)), "")


def bus_factor(kind: np.ndarray, rank_count: np.ndarray) -> np.ndarray:
    """What bytes per time are multiplied with for the bus bandwidth (nccl-tests/doc/PERFORMANCE.md; bytes: the larger
    of both sides); NaN where the kind or the number of ranks is unknown."""
    known = rank_count >= 1
    others = np.divide(rank_count - 1, rank_count, out=np.full(len(kind), np.nan), where=known)
    is_kind = [kind == "all_reduce", np.isin(kind, _IN_PARTS), known & np.isin(kind, [*_KINDS])]
    return np.select(is_kind, [2 * others, others, 1.0], np.nan)


def collectives_frame(kernels: pd.DataFrame, messages: pd.DataFrame | None = None) -> pd.DataFrame:
    """The communication kernels of one capture (table ``collectives``), what needs other ranks still empty.

    ``messages``: message_bytes, group_size and peer_rank (NaN unknown), group_name and said_kind ('' unknown) of each
    of them. What it does is what the program says: NCCL has one kernel for transfers and all-to-all.
    """
    chosen = np.flatnonzero(joins_ranks(kernels["name"]))
    if not len(chosen):
        return empty_table("collectives")
    rows = kernels.iloc[chosen]
    order = np.lexsort((rows["start_ns"].to_numpy(), rows["device_id"].to_numpy(), rows["process_id"].to_numpy()))
    rows = rows.iloc[order]
    frame = typed("collectives", pd.DataFrame(index=range(len(rows))))
    for column in ("process_id", "device_id", "stream_id", "start_ns", "end_ns"):
        frame[column] = rows[column].to_numpy()
    name = pd.Series(normalise_kernel_name(rows["name"].astype(object)), dtype=object)
    frame["name"] = name
    frame["kind"] = name.map({text: collective_kind(text) for text in name.unique()})
    frame["duration_ns"] = frame["end_ns"] - frame["start_ns"]
    launch = rows["launch_start_ns"].to_numpy(float)
    frame["launch_start_ns"] = np.where(launch >= 0, launch, np.nan)
    if messages is not None:
        for column in ("message_bytes", "group_size", "group_name"):
            frame[column] = messages[column].to_numpy()[order]
        frame["peer_rank"] = messages["peer_rank"].fillna(-1).to_numpy(np.int64)[order]
        said = pd.Series(messages["said_kind"].to_numpy(object)[order])
        said = said.map({one: collective_kind(one) for one in said.unique()})
        frame["kind"] = frame["kind"].astype(object).where(said.eq(""), said)
    frame["group_axis"] = frame["group_name"].map({one: axis_of_group(one) for one in frame["group_name"].unique()})
    frame["order_index"] = (
        frame.groupby(["process_id", "device_id", "group_name", "kind", "name"]).cumcount().to_numpy()
    )
    is_compute = np.ones(len(kernels), bool)
    is_compute[chosen] = False
    frame["overlapped_ns"] = _overlap(frame, kernels, is_compute)
    return frame


def _overlap(frame: pd.DataFrame, kernels: pd.DataFrame, is_compute: np.ndarray) -> np.ndarray:
    """How much of each collective other kernels of its device ran beside it."""
    hidden = np.zeros(len(frame))
    for rows in frame.groupby(["process_id", "device_id"]).indices.values():
        process, device = frame[["process_id", "device_id"]].to_numpy()[rows[0]]
        beside = is_compute & (kernels["process_id"].to_numpy() == process)
        beside &= kernels["device_id"].to_numpy() == device
        start, end = (kernels[name].to_numpy()[beside] for name in ("start_ns", "end_ns"))
        low, high = (covered_before(start, end, frame[name].to_numpy()[rows]) for name in ("start_ns", "end_ns"))
        hidden[rows] = high - low
    return hidden


def across_ranks(frame: pd.DataFrame, stated: np.ndarray | None = None) -> pd.DataFrame:
    """The table of all captures with what only several ranks together tell. Sums close: on each rank
    ``transfer + waiting + launch_skew = duration`` where the collective was matched. ``stated``: rank of each row."""
    frame = frame.reset_index(drop=True)
    rank, first = numbered(frame, _RANK)
    frame["rank_count"] = frame["group_size"]
    frame["meeting_index"] = -1
    filled = {column: frame[column].to_numpy().copy() for column in _OF_MEETINGS}
    clocks: dict[int, dict[int, float]] = {}
    groups = frame.groupby(_meeting_places(frame, stated), sort=False).indices
    for name in sorted(groups, key=lambda one: -len(groups[one])):
        rows = np.asarray(groups[name])
        if name or len(np.unique(rank[rows])) == len(first):  # without a name: the group of all
            _match(frame.iloc[rows], rows, rank[rows], filled, clocks)
    first_of = {one: known[one] - known[min(known)] for one, known in clocks.items()}
    ahead = frame["capture_id"].map(first_of).to_numpy(float)
    frame = frame.assign(**filled, clock_offset_ns=np.where(filled["meeting_index"] >= 0, ahead, np.nan))
    size, kind = frame["message_bytes"].to_numpy(float), frame["kind"].to_numpy(object)
    factor = bus_factor(kind, frame["rank_count"].to_numpy(float))
    time = frame["transfer_ns"].to_numpy(float)
    time = np.where(np.isnan(time), frame["duration_ns"].to_numpy(float), time)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["bus_bandwidth_bytes_per_s"] = np.where(time > 0, size * factor / (time / 1e9), np.nan)
    return frame[column_names("collectives")]


def _meeting_places(frame: pd.DataFrame, stated: np.ndarray | None) -> pd.Series:
    """What is common to the rows of one order of collectives: the group; of transfers also who sends to whom."""
    name, peer = frame["group_name"].astype(object), frame["peer_rank"]
    sides = {"send": (stated, peer), "recv": (peer, stated)}
    for kind, (source, target) in sides.items() if stated is not None else ():
        chosen = np.flatnonzero(frame["kind"].eq(kind) & (peer >= 0))
        texts = [f"{a}>{b}" for a, b in zip(*(np.asarray(one)[chosen] for one in (source, target)))]
        name.iloc[chosen] = name.iloc[chosen].str.cat(texts, " ")
    return name


def _match(
    frame: pd.DataFrame, rows: np.ndarray, rank: np.ndarray, filled: dict[str, np.ndarray],
    clocks: dict[int, dict[int, float]],
) -> None:  # fmt: skip
    """Fill in the split of the collectives that all ranks of one group took part in. ``clocks``: of each capture the
    clocks of all captures that are known beside it."""
    members, place = np.unique(rank, return_inverse=True)
    count = len(members)
    if count < 2:
        return
    names = frame["name"].astype(object).str.cat(frame["kind"].astype(object).replace(POINT_TO_POINT, "send_recv"), " ")
    is_one_clock = frame["capture_id"].nunique() == 1
    times = frame[["start_ns", "end_ns"]].to_numpy(np.int64) if is_one_clock else None
    meetings = meetings_of(names, place, count, times)
    if not len(meetings):
        return
    capture = frame["capture_id"].to_numpy()[meetings[0]]
    start, end, launch = (frame[c].to_numpy(float)[meetings] for c in ("start_ns", "end_ns", "launch_start_ns"))
    offset = clock_offsets(end, capture)
    start, end, launch = start - offset, end - offset, launch - offset
    last = start.argmax(axis=1)[:, None]
    arrived = np.take_along_axis(start, last, axis=1)
    length = end - start
    waited = np.clip(arrived - start, 0, length)
    # the wait that the last rank caused by launching later; the rest its device still had other work
    skew = np.nan_to_num(np.take_along_axis(launch, last, axis=1) - launch)
    skew = np.clip(skew, 0, waited)
    together = clocks.get(capture[0], {capture[0]: 0.0})
    base = together[capture[0]] - offset[0]
    for one, ahead in zip(capture.tolist(), offset.tolist()):
        if one not in together:
            part = clocks.get(one, {one: 0.0})
            together |= {other: clock + base + ahead - part[one] for other, clock in part.items()}
    clocks |= dict.fromkeys(together, together)
    number = filled["meeting_index"].max() + 1 + np.arange(len(start))[:, None]
    for column, values in (
        ("transfer_ns", length - waited), ("launch_skew_ns", skew), ("waiting_ns", waited - skew),
        ("rank_count", float(count)), ("meeting_index", number), ("late_ns", start - median_of_others(start)),
        ("is_last", np.arange(count) == last),
    ):  # fmt: skip
        filled[column][rows[meetings]] = np.broadcast_to(values, start.shape)


def median_of_others(values: np.ndarray) -> np.ndarray:
    """For each value the median of the others in its row: shape (…, n) as given, n ≥ 2, no NaN."""
    count = values.shape[-1]
    order = values.argsort(axis=-1)
    place = order.argsort(axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    low, high = (
        np.where(place > k, ordered[..., k : k + 1], ordered[..., k + 1 : k + 2])
        for k in ((count - 2) // 2, (count - 1) // 2)
    )
    return (low + high) / 2


def meetings_of(names: pd.Series, rank: np.ndarray, count: int, times: np.ndarray | None) -> np.ndarray:
    """Positions of the collectives that all ``count`` ranks took part in, shape (meetings, ranks): the k-th of a name
    on one is the k-th on the others, where all have equally many. ``names``: normalised, of each rank in its order.
    Of more than two ranks, point-to-point transfers join two only, and are left out; where ``times`` (start and end on
    one clock, ns) show that they end together on all ranks, they are an exchange of all with all."""
    names = names.astype(object).reset_index(drop=True)
    kinds = {name: collective_kind(str(name)) for name in names.unique()}
    joins_two = names.map(kinds).eq("send_recv").to_numpy() & (count > 2)
    usable = ~joins_two | (times is not None)
    table = pd.crosstab(names[usable], rank[usable]).reindex(columns=range(count), fill_value=0)
    alike = table.index[table.gt(0).all(axis=1) & table.eq(table[0], axis=0).all(axis=1)]
    rows = np.flatnonzero(usable & names.isin(alike).to_numpy())
    turn = names.groupby([names, rank], sort=False).cumcount().to_numpy()
    number = pd.factorize(names)[0]
    meetings = rows[np.lexsort((rank[rows], turn[rows], number[rows]))].reshape(-1, count)
    if times is not None and len(meetings) and (mine := joins_two[meetings[:, 0]]).any():
        start, end = times[meetings[mine]].transpose(2, 0, 1)
        apart = np.ptp(end, axis=1) > _TOGETHER_RATIO * (end - start).max(axis=1)
        wrong = pd.Series(apart).groupby(number[meetings[mine, 0]]).mean().gt(1 - _LEAST_TOGETHER_RATIO)
        meetings = meetings[~np.isin(number[meetings[:, 0]], wrong.index[wrong])]
    return meetings[np.argsort(meetings[:, 0], kind="stable")]


def clock_offsets(end: np.ndarray, capture: np.ndarray) -> np.ndarray:
    """How far each rank's clock is ahead of the first one's, ns; ranks of one capture share a clock.

    ``end``: ends of the common collectives, shape (collectives, ranks). All ranks leave a collective together: the
    median difference is the clocks'. Zeros where too few are common.
    """
    offset = np.zeros(end.shape[1])
    if len(end) < _LEAST_MATCHED:
        return offset
    for one in np.unique(capture).tolist():
        mine = capture == one
        offset[mine] = np.median(end[:, mine].mean(axis=1) - end[:, capture == capture[0]].mean(axis=1))
    return offset
