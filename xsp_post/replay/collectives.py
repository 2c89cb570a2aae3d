"""Communication kernels → collectives: on every rank the time split into transfer, waiting for the last arrival and
launch skew; bytes and bus bandwidth; clock offsets between captures; what compute hides of it.

A collective ends for all its ranks together, and nobody transfers before the last one is there. The k-th collective of
a name on one rank is the k-th of that name on the others, where all have equally many.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import covered_before
from xsp_post.arrays.repeats import numbered
from xsp_post.model.schemas import TABLES, column_names
from xsp_post.names.families import is_of_family, normalise_kernel_name

# nccl-tests/doc/PERFORMANCE.md: bus bandwidth = bytes / time × factor, n ranks. Bytes: the larger of both sides.
_FACTORS = (
    ("all_reduce", re.compile(r"all_?reduce", re.I), lambda n: 2 * (n - 1) / n),
    ("all_gather", re.compile(r"all_?gather", re.I), lambda n: (n - 1) / n),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.I), lambda n: (n - 1) / n),
    ("all_to_all", re.compile(r"all_?to_?all", re.I), lambda n: (n - 1) / n),
    ("broadcast", re.compile(r"broadcast|bcast", re.I), lambda n: 1.0),
    ("send_recv", re.compile(r"send|recv", re.I), lambda n: 1.0),
    ("reduce", re.compile(r"reduce", re.I), lambda n: 1.0),
)
_POINT_TO_POINT = "send_recv"
_RANK = ["capture_id", "process_id", "device_id"]
_LEAST_MATCHED = 3  # collectives that a clock offset is taken from


def collective_kind(name: str) -> str:
    """Which collective a kernel or operator name says; '' unknown."""
    return next((kind for kind, pattern, _ in _FACTORS if pattern.search(name)), "")


def bus_factor(kind: str, rank_count: float) -> float:
    """What nccl-tests multiplies bytes per time with; NaN where the kind or the number of ranks is unknown."""
    factor = next((factor for name, _, factor in _FACTORS if name == kind), None)
    return float("nan") if factor is None or not rank_count >= 1 else float(factor(rank_count))


def collectives_frame(
    kernels: pd.DataFrame, message_bytes: np.ndarray | None = None, group_size: np.ndarray | None = None
) -> pd.DataFrame:
    """The communication kernels of one capture (table ``collectives``), what needs other ranks still empty.

    ``message_bytes``, ``group_size``: per row of ``kernels``, NaN unknown.
    """
    chosen = np.flatnonzero(is_of_family(kernels["name"], "communication"))
    if not len(chosen):
        return _empty(0)
    rows = kernels.iloc[chosen]
    order = np.lexsort((rows["start_ns"].to_numpy(), rows["device_id"].to_numpy(), rows["process_id"].to_numpy()))
    rows, chosen = rows.iloc[order], chosen[order]
    frame = _empty(len(rows))
    for column in ("process_id", "device_id", "stream_id", "start_ns", "end_ns"):
        frame[column] = rows[column].to_numpy()
    name = pd.Series(normalise_kernel_name(rows["name"].astype(object)), dtype=object)
    frame["name"] = name
    frame["kind"] = [collective_kind(text) for text in name]
    frame["order_index"] = name.groupby([frame["process_id"], frame["device_id"], name]).cumcount().to_numpy()
    frame["duration_ns"] = frame["end_ns"] - frame["start_ns"]
    launch = rows["launch_start_ns"].to_numpy(float)
    frame["launch_start_ns"] = np.where(launch >= 0, launch, np.nan)
    if message_bytes is not None:
        frame["message_bytes"] = message_bytes[chosen]
    if group_size is not None:
        frame["group_size"] = group_size[chosen]
    is_compute = np.ones(len(kernels), bool)
    is_compute[chosen] = False
    frame["overlapped_ns"] = _overlap(frame, kernels, is_compute)
    return frame


def _empty(count: int) -> pd.DataFrame:
    blank = {"int64": np.int64(0), "float64": np.nan, "str": "", "bool": False}
    columns = TABLES["collectives"].columns
    return pd.DataFrame(
        {c.name: np.full(count, blank[c.dtype], object if c.dtype == "str" else c.dtype) for c in columns}
    )


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


def across_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of all captures with what only several ranks together tell. Sums close: on each rank
    ``transfer + waiting + launch_skew = duration`` where the collective was matched."""
    frame = frame.reset_index(drop=True)
    rank, first = numbered(frame, _RANK)
    count = len(first)
    frame["rank_count"] = frame["group_size"]
    if count >= 2:
        frame = _matched(frame, rank, count)
    size, kind = frame["message_bytes"].to_numpy(float), frame["kind"].to_numpy(object)
    factor = np.array([bus_factor(k, n) for k, n in zip(kind, frame["rank_count"].to_numpy(float))], float)
    time = frame["transfer_ns"].to_numpy(float)
    time = np.where(np.isnan(time), frame["duration_ns"].to_numpy(float), time)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["bus_bandwidth_bytes_per_s"] = np.where(time > 0, size * factor / (time / 1e9), np.nan)
    return frame[column_names("collectives")]


def _matched(frame: pd.DataFrame, rank: np.ndarray, count: int) -> pd.DataFrame:
    """Fill in clock offsets and the split for the collectives that all ranks took part in."""
    meetings = meetings_of(frame["name"], rank, count)
    if not len(meetings):
        return frame
    start, end = frame["start_ns"].to_numpy(float)[meetings], frame["end_ns"].to_numpy(float)[meetings]
    offset = clock_offsets(end, frame["capture_id"].to_numpy()[meetings[0]])
    start, end = start - offset, end - offset
    launch = frame["launch_start_ns"].to_numpy(float)[meetings] - offset
    last = start.argmax(axis=1)[:, None]
    arrived = np.take_along_axis(start, last, axis=1)
    length = end - start
    waited = np.clip(arrived - start, 0, length)
    # the wait that the last rank caused by launching later; the rest its device still had other work
    skew = np.nan_to_num(np.take_along_axis(launch, last, axis=1) - launch)
    skew = np.clip(skew, 0, waited)
    for column, values in (
        ("clock_offset_ns", np.broadcast_to(offset, start.shape)), ("transfer_ns", length - waited),
        ("launch_skew_ns", skew), ("waiting_ns", waited - skew), ("rank_count", np.full(start.shape, float(count))),
    ):  # fmt: skip
        filled = frame[column].to_numpy(float).copy()
        filled[meetings] = values
        frame[column] = filled
    return frame


def meetings_of(names: pd.Series, rank: np.ndarray, count: int) -> np.ndarray:
    """Positions of the collectives that all ``count`` ranks took part in, shape (meetings, ranks): the k-th of a name
    on one is the k-th on the others, where all have equally many. ``names``: normalised, of each rank in its order.
    Of more than two ranks, point-to-point transfers join two only, and are left out."""
    names = names.astype(object).reset_index(drop=True)
    kinds = {name: collective_kind(str(name)) for name in names.unique()}
    usable = names.map(kinds).ne(_POINT_TO_POINT).to_numpy() | (count == 2)
    table = pd.crosstab(names[usable], rank[usable]).reindex(columns=range(count), fill_value=0)
    alike = table.index[table.gt(0).all(axis=1) & table.eq(table[0], axis=0).all(axis=1)]
    rows = np.flatnonzero(usable & names.isin(alike).to_numpy())
    turn = names.groupby([names, rank], sort=False).cumcount().to_numpy()
    number = pd.factorize(names)[0]
    meetings = rows[np.lexsort((rank[rows], turn[rows], number[rows]))].reshape(-1, count)
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
