"""Core tables about memory + a time → the same tables of that time alone: its peak, and who held what there.

Nothing but the tables is read: what an owner holds after an event is the sum of its changes up to then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xsp_post.arrays.allocations import running
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.tables.core.memory import range_with_work

if TYPE_CHECKING:
    from xsp_post.tables.part import Part

_PLACE = ["process_id", "device_id", "memory_kind"]


def memory_of_part(cut: Part, inside: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``memory`` and ``memory_devices`` of the events ``inside``, rows of ``memory_timeline``; what was allocated
    before the part is still its owner's."""
    owners, devices = cut.whole("memory").reset_index(drop=True), cut.whole("memory_devices")
    if inside.empty:
        return {"memory": owners.iloc[:0], "memory_devices": devices.iloc[:0]}
    timeline, nodes = cut.whole("memory_timeline").reset_index(drop=True), cut.whole("nodes")
    in_part = timeline["start_ns"].between(inside["start_ns"].min(), inside["start_ns"].max()).to_numpy()
    keys = [frame[_PLACE].astype({"memory_kind": str}) for frame in (timeline, owners, devices)]
    place, of_owner, of_device = (pd.MultiIndex.from_frame(one) for one in keys)
    number = of_device.get_indexer(place)
    parts: list[tuple[dict[Any, Any], pd.DataFrame]] = []
    for row in np.unique(number[in_part]).tolist():  # a handful of places
        mine = number == row
        own = owners[of_device.get_indexer(of_owner) == row]
        parts.append(_of_place(timeline[mine], in_part[mine], own, devices.iloc[row], nodes))
    return {
        "memory": pd.concat([part for _, part in parts], ignore_index=True),
        "memory_devices": pd.DataFrame([row for row, _ in parts], columns=devices.columns),
    }


def _of_place(
    events: pd.DataFrame, inside: np.ndarray, owners: pd.DataFrame, device: pd.Series, nodes: pd.DataFrame
) -> tuple[dict[Any, Any], pd.DataFrame]:
    """One row of ``memory_devices``, and the owners in it; ``events`` are all of the place, some of them inside."""
    size, total = events["change_bytes"].to_numpy(), events["total_bytes"].to_numpy()
    rows = np.flatnonzero(inside)
    before = int(total[rows[0] - 1]) if rows[0] else int(device["earlier_bytes"])
    peak_row = int(rows[np.argmax(total[rows])])
    peak = int(total[peak_row])
    if before > peak:
        peak_row, peak = int(rows[0]) - 1, before
    at = int(events["start_ns"].iloc[max(peak_row, int(rows[0]))])
    made = inside & (size > 0)
    row = {
        **device.to_dict(), "allocation_count": int(made.sum()), "release_count": int((inside & ~made).sum()),
        "allocated_bytes": int(size[made].sum()), "released_bytes": -int(size[inside & ~made].sum()),
        "earlier_bytes": before, "peak_bytes": peak, "peak_ns": at,
        "peak_offset_ns": int(device["peak_offset_ns"]) + at - int(device["peak_ns"]),
        "peak_range": range_with_work(nodes, int(events["node_id"].iloc[peak_row])) if peak_row >= 0 else "",
        "end_bytes": int(total[rows[-1]]),
    }  # fmt: skip
    return row, _owners(events, size, inside, made, owners, (before, peak_row, peak, int(total[rows[-1]])))


def _owners(
    events: pd.DataFrame, size: np.ndarray, inside: np.ndarray, made: np.ndarray, owners: pd.DataFrame,
    levels: tuple[int, int, int, int],
) -> pd.DataFrame:  # fmt: skip
    """The owners that held, allocated or released something in the part. ``levels``: live before, row and bytes of the
    peak, live at the end."""
    before, peak_row, peak, end = levels
    count = len(owners)
    owner = pd.Index(owners["memory_id"]).get_indexer(pd.Index(events["memory_id"]))
    earlier = (owners["owner_kind"].astype(str) == "earlier").to_numpy()
    rows = np.flatnonzero(inside)

    def live(upto: int, whole: int) -> np.ndarray:
        held = np.maximum(sums_per_node(owner[:upto], size[:upto], count), 0)
        held[earlier] = 0
        held[earlier] = whole - held.sum()
        return held

    held = running(owner, size, count)
    most = live(int(rows[0]), before)
    np.maximum.at(most, owner[rows], np.where(earlier[owner[rows]], 0, held[rows]))
    released = inside & ~made
    frame = owners.assign(
        allocation_count=np.bincount(owner[made], minlength=count),
        allocated_bytes=np.where(earlier, -1, sums_per_node(owner[made], size[made], count)),
        release_count=np.bincount(owner[released], minlength=count),
        released_bytes=sums_per_node(owner[released], -size[released], count),
        most_live_bytes=most, live_at_peak_bytes=live(peak_row + 1, peak),
        live_at_end_bytes=live(int(rows[-1]) + 1, end),
    )  # fmt: skip
    frame["live_at_peak_ratio"] = frame["live_at_peak_bytes"] / peak if peak > 0 else np.nan
    told = frame[["allocation_count", "release_count", "most_live_bytes", "live_at_peak_bytes"]].ne(0).any(axis=1)
    return frame[told].sort_values(["live_at_peak_bytes", "allocated_bytes"], ascending=False, kind="stable")
