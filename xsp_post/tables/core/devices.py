"""Tree → core tables: ``devices``, one row per device of a process, with what ran there and how long the GPU was
busy. Busy is the union of the device intervals of one physical GPU, whichever process they are of."""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.arrays.repeats import numbered
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.findings import Finding, finding
from xsp_post.model.schemas import TABLES
from xsp_post.model.schemas.units import format_ns
from xsp_post.model.trace import DEVICE_PARTS
from xsp_post.model.tree import Tree

_UNKNOWN: dict[str, int | float | str] = {"int64": -1, "float64": np.nan, "str": ""}


_LEAST_OVERLAP = 0.01  # of a device's time within streams, to be worth a word: below that it may be the clocks'


def devices_frame(tree: Tree) -> tuple[pd.DataFrame, list[Finding]]:
    """The devices table; what a capture does not say of its GPU is −1, NaN or ''. And whether streams overlap."""
    places, of_activity = _places(tree)
    amounts = _amounts(tree, places, of_activity)
    overlap = amounts["stream_overlap_ns"] = _within_streams(tree, of_activity, amounts)
    found, large = [], np.flatnonzero(overlap > _LEAST_OVERLAP * amounts["device_ns"])
    if len(large):
        whole, busy = (int(amounts[name][large].sum()) for name in ("device_ns", "own_busy_ns"))
        example = f"{format_ns(int(overlap[large].sum()))}: device time {format_ns(whole)}, busy {format_ns(busy)}"
        found.append(finding("streams-overlap", count=len(large), example=example))
    ranks = tree.ranks.set_index("process_index")["rank"] if len(tree.ranks) else pd.Series(dtype="int64")
    process = places["process_index"].to_numpy(int)
    known: dict[str, object] = {
        **{str(c): places[c].to_numpy() for c in places.columns},
        "process_id": tree.trace.processes["process_id"].to_numpy()[process] if len(process) else process,
        "rank": ranks.reindex(process).fillna(-1).to_numpy(np.int64),
        **amounts,
    }
    columns = {c.name: known.get(c.name, _UNKNOWN[c.dtype]) for c in TABLES["devices"].columns[1:]}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(places)))
    for column in TABLES["devices"].columns[1:]:
        if column.dtype == "int64":
            frame[column.name] = frame[column.name].fillna(-1).to_numpy(np.int64)
    return frame, found


def _within_streams(tree: Tree, of_activity: np.ndarray, amounts: dict[str, np.ndarray]) -> np.ndarray:
    """Device time in which several operations of one stream ran at once, ns, per row of the table."""
    if (amounts["device_ns"] <= amounts["own_busy_ns"]).all():
        return np.zeros(len(amounts["device_ns"]), np.int64)
    context = tree.activities.get("context_id", np.zeros(len(of_activity), np.int64))
    keys = pd.DataFrame({"place": of_activity, "context": context, "stream": tree.activities["stream_id"]})
    stream, first = numbered(keys, ["place", "context", "stream"])
    lengths = _unions(tree.activities, stream, len(first))
    return amounts["device_ns"] - sums_per_node(of_activity[first], lengths, len(amounts["device_ns"]))


def busy_per_gpu(tree: Tree) -> pd.Series:
    """Union of all device intervals of each physical GPU, by gpu_index."""
    activities = tree.activities
    gpu = activities["gpu_index"].to_numpy()
    if len(gpu) and (gpu == gpu[0]).all():
        return pd.Series([int(tree.nodes["busy_ns"].iloc[0])], index=gpu[:1])  # the root's: united already
    codes, gpus = pd.factorize(gpu)
    return pd.Series(_unions(activities, codes, len(gpus)), index=gpus)


def _unions(activities: pd.DataFrame, group: np.ndarray, count: int) -> np.ndarray:
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    order = np.argsort(start, kind="stable")
    return grouped_union_length(group[order], start[order], end[order], count)


def _places(tree: Tree) -> tuple[pd.DataFrame, np.ndarray]:
    """Devices of processes, those that the capture lists and those that only their work tells of; and which of them
    each activity ran on."""
    activities, listed = tree.activities, tree.trace.devices.reset_index(drop=True)
    keys = ["process_index", "device_id"]
    process, device = (activities[c].to_numpy() for c in keys)
    is_one = bool(len(process) and (process == process[0]).all() and (device == device[0]).all())
    few = slice(1 if is_one else None)  # all the same: the first says it
    process, device = process[few].astype(np.int64), device[few].astype(np.int64)
    lowest = int(device.min(initial=-1))  # a damaged file has any number
    width = int(device.max(initial=0)) - lowest + 1
    place = process * width + device - lowest
    code, used = pd.factorize(place)
    met = pd.DataFrame({"process_index": used // width, "device_id": used % width + lowest})
    first = np.full(len(used), -1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    met["gpu_index"] = activities["gpu_index"].to_numpy()[first] if len(met) else np.zeros(0, np.int64)
    listed_keys = pd.MultiIndex.from_frame(listed[keys]) if len(listed) else pd.MultiIndex.from_arrays([[], []])
    fresh = met[listed_keys.get_indexer(pd.MultiIndex.from_frame(met[keys])) < 0]
    places = pd.concat([listed, fresh], ignore_index=True) if len(listed) else fresh.reset_index(drop=True)
    at = pd.MultiIndex.from_frame(places[keys].astype(np.int64)).get_indexer(pd.MultiIndex.from_frame(met[keys]))
    return places, np.broadcast_to(at[code], len(activities)) if is_one else at[code]


def _amounts(tree: Tree, places: pd.DataFrame, of_activity: np.ndarray) -> dict[str, np.ndarray]:
    """What ran on each device of a process, and how long its GPU was busy in which window."""
    activities, count = tree.activities, len(places)
    start, end, kind = (activities[c].to_numpy() for c in ("start_ns", "end_ns", "kind"))
    result: dict[str, np.ndarray] = {"device_ns": sums_per_node(of_activity, end - start, count)}
    for part, kinds in DEVICE_PARTS.items():
        chosen = np.isin(kind, [int(k) for k in kinds])
        result[f"{part}_count"] = np.bincount(of_activity[chosen], minlength=count).astype(np.int64)
        result[f"{part}_ns"] = sums_per_node(of_activity[chosen], (end - start)[chosen], count)
    per_gpu = busy_per_gpu(tree)
    result["busy_ns"] = per_gpu.reindex(places["gpu_index"].to_numpy()).fillna(0).to_numpy(np.int64)
    result["own_busy_ns"] = _unions(activities, of_activity, count)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first, of_activity, start)
    np.maximum.at(last, of_activity, end)
    result["first_start_ns"], result["last_end_ns"] = np.where(last < 0, -1, first), last
    root = tree.nodes.iloc[0]
    result["duration_ns"] = np.full(count, int(root["end_ns"] - root["start_ns"]), np.int64)
    return result
