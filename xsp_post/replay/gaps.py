"""Tree → the gaps of every physical device: its window, when it was busy in it, and the stretches in between.

The window of a device reaches from the first to the last of its operations and of the model executions of its
processes. A gap knows the operation that ended before it and the one that ended it (−1 at the window's ends).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import rows_of
from xsp_post.arrays.texts import index_of
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.names.families import FAMILIES, family_index


class Gaps(NamedTuple):
    """Stretches without device work, by device and time. All arrays have one entry a gap, rows as int32."""

    device: np.ndarray  # row of `devices`
    start: np.ndarray
    end: np.ndarray
    previous: np.ndarray  # row of tree.activities, −1 before the first
    next: np.ndarray  # row of tree.activities, −1 after the last
    devices: pd.DataFrame  # device_id (gpu_index), start_ns, end_ns, busy_ns of each device
    runs: tuple[np.ndarray, np.ndarray]  # `Tree.execution_intervals`


def device_codes(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Which physical device every activity ran on (a code), and the gpu_index of each code."""
    gpu = tree.activities["gpu_index"].to_numpy()
    if len(gpu) and (gpu == gpu[0]).all():
        return np.broadcast_to(np.int64(0), gpu.shape), gpu[:1].astype(np.int64)
    return pd.factorize(gpu.astype(np.int64), sort=True)


def waiting_kernels(tree: Tree) -> np.ndarray:
    """Which operations are kernels that only wait (for a copy, a signal, another rank): no work; rows, ascending."""
    names = different(tree.activities["name_id"].to_numpy())
    waits = names[family_index(index_of(names, tree.strings)) == FAMILIES.index("waiting")]
    if not len(waits):
        return waits
    is_kernel = tree.activities["kind"].to_numpy() == ActivityKind.KERNEL
    return np.flatnonzero(is_kernel & np.isin(tree.activities["name_id"].to_numpy(), waits))


def at_work(rows: np.ndarray | slice, waits: np.ndarray, count: int) -> np.ndarray | slice:
    """Rows without `waiting_kernels`, ascending; all, where nothing else ran."""
    works = np.setdiff1d(np.arange(count)[rows], waits, assume_unique=True) if len(waits) else waits
    return works if len(works) else rows


def different(values: np.ndarray) -> np.ndarray:
    """The different values, ascending: few of a million."""
    return np.sort(pd.unique(values))


def find_gaps(tree: Tree) -> Gaps:
    """The gaps of every device that did anything, in order of device and time; kernels that only wait are none."""
    activities = tree.activities
    codes, numbers = device_codes(tree)
    starts, ends = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    process = activities["process_index"].to_numpy()
    run_start, run_end = executions = tree.execution_intervals
    run_process = tree.iterations["process_index"].to_numpy() if len(run_start) else np.zeros(0, np.int32)
    parts, devices, waits = [], [], waiting_kernels(tree)
    for code, number in enumerate(numbers.tolist()):
        rows = rows_of(codes == code)
        runs = np.isin(run_process, different(process[rows]))
        window = (
            int(min(starts[rows].min(), run_start[runs].min(initial=np.iinfo(np.int64).max))),
            int(max(ends[rows].max(), run_end[runs].max(initial=np.iinfo(np.int64).min))),
        )
        rows = at_work(rows, waits, len(codes))
        start, end, *edges = _gaps_of(rows, starts[rows], ends[rows], window)
        parts.append((np.full(len(start), code, np.int32), start, end, *edges))
        devices.append((number, *window, window[1] - window[0] - int((end - start).sum())))
    frame = pd.DataFrame(devices, columns=["device_id", "start_ns", "end_ns", "busy_ns"]).astype("int64")
    if not parts:
        none = np.zeros(0, np.int64)
        return Gaps(none, none, none, none, none, frame, executions)
    device, start, end, previous, following = (
        np.concatenate(columns) if len(parts) > 1 else columns[0] for columns in zip(*parts)
    )
    return Gaps(device, start, end, previous, following, frame, executions)


def _gaps_of(
    rows: np.ndarray | slice, start: np.ndarray, end: np.ndarray, window: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gaps of one device's operations within a window around them: start, end, row before, row after."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        rows = order if isinstance(rows, slice) else rows[order]
    reach = np.maximum.accumulate(end)
    at = np.flatnonzero(start[1:] > reach[:-1]).astype(np.int32)  # often few of the places between two operations
    # the operation that ended last so far: where the running maximum was last raised
    raised = np.flatnonzero(end == reach).astype(np.int32)
    last = raised[np.searchsorted(raised, at, side="right") - 1]
    none = np.full(1, -1, np.int32)
    previous, following = np.concatenate([none, last, raised[-1:]]), np.concatenate([none + 1, at + 1, none])
    # not np.r_: before NumPy 2 that makes floats of a Python int above 2³² and a scalar
    gap_start = np.concatenate([[window[0]], reach[at], reach[-1:]])
    gap_end = np.concatenate([start[:1], start[at + 1], [window[1]]])
    idle = np.flatnonzero(gap_end > gap_start)
    edges = [
        place if isinstance(rows, slice) else np.where(place >= 0, rows[place], -1).astype(np.int32)
        for place in (previous[idle], following[idle])
    ]
    return gap_start[idle], gap_end[idle], edges[0], edges[1]
