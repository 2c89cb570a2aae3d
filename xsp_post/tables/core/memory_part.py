"""Core tables about memory + a time → the same tables of that time alone: its peak, and who held what there.

Nothing but the tables is read: what an owner holds after an event is the sum of its changes up to then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xsp_post.arrays.allocations import Held
from xsp_post.tables.core.memory import PlaceEvents, range_with_work

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
    places = []
    for row in np.unique(number[in_part]).tolist():  # a handful of places
        mine = number == row
        own = owners[of_device.get_indexer(of_owner) == row]
        places.append(_of_place(timeline[mine], np.flatnonzero(in_part[mine]), own, devices.iloc[row], nodes))
    return {
        "memory": pd.concat([part for _, part in places], ignore_index=True),
        "memory_devices": pd.DataFrame([row for row, _ in places], columns=devices.columns),
    }


def _of_place(
    timeline: pd.DataFrame, inside: np.ndarray, owners: pd.DataFrame, device: pd.Series, nodes: pd.DataFrame
) -> tuple[dict[Any, Any], pd.DataFrame]:
    """One row of ``memory_devices``, and the owners in it; ``timeline``: its events, those ``inside`` in the part."""
    start, size, total = (timeline[c].to_numpy() for c in ("start_ns", "change_bytes", "total_bytes"))
    owner = pd.Index(owners["memory_id"]).get_indexer(pd.Index(timeline["memory_id"]))
    is_earlier = owners["owner_kind"].astype(str).eq("earlier").to_numpy()
    held = Held(np.arange(len(size)), owner, size, len(owners))
    events = PlaceEvents(start, size, total, int(device["earlier_bytes"]), held, is_earlier)
    amounts, columns, peak = events.amounts(int(inside[0]), int(inside[-1]))
    row: dict[Any, Any] = {
        **device.to_dict(), **amounts,
        "peak_offset_ns": int(device["peak_offset_ns"]) + amounts["peak_ns"] - int(device["peak_ns"]),
        "peak_range": range_with_work(nodes, int(timeline["node_id"].iloc[peak])) if peak >= 0 else "",
    }  # fmt: skip
    frame = owners.assign(**columns)
    told = frame[["allocation_count", "release_count", "most_live_bytes", "live_at_peak_bytes"]].ne(0).any(axis=1)
    return row, frame[told].sort_values(["live_at_peak_bytes", "allocated_bytes"], ascending=False, kind="stable")
