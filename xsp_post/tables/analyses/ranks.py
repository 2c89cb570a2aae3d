"""Results of one job → per-rank rows: stragglers, communication time, and how much of it compute hides.

A rank is a device of a process; its captures are one file with several processes, or one file per rank.
No clock has to agree between files: a collective ends for all its ranks together, so that the rank whose
kernel of it is shortest arrived last, and what the others' kernels take longer is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import union_length
from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, core_frame, empty_table, typed
from xsp_post.model.schemas import TABLES
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.names.families import is_of_family, normalise_kernel_name
from xsp_post.replay.collectives import meetings_of
from xsp_post.tables.analyses import rank_causes

CONTRIBUTED = ("ranks", "rank_collectives", "rank_work")
COMMUNICATION = "communication"
STRAGGLER_EXCESS_RATIO = 0.05
_POINT_TO_POINT = r"send|recv"
_PLACE = ["capture_id", "process_id", "device_id", "start_ns", "end_ns"]
_GRID = ["grid_x", "grid_y", "grid_z"]
_IDLE = ["cause", "call_name", "detail", "owner", "idle_ns"]
_CALL_COLUMNS = ["capture_name", "process_id", "device_id", "name", "length_ns"]


# -- one capture --------------------------------------------------------------------------------------------


def rank_contribution(
    results: Results, capture_name: str = "", rank: int = -1, capture_id: int | None = None
) -> dict[str, pd.DataFrame]:
    """What one capture knows of its ranks, small enough to travel.

    ``ranks``: a row per device of a process (schemas: ranks) with what needs no other rank filled in; ``rank``
    is the one the file's name states (−1 none). ``rank_collectives``: capture_name, process_id, device_id, name,
    length_ns of every communication kernel, in their order. ``rank_work``: what it did between them.
    """
    rows, calls, work = [], [], []
    who = ["capture_name", "process_id", "device_id"]
    for process, device, kernels, copies, idle in _split(results, capture_id):
        talking = kernels[kernels["is_communication"].to_numpy(bool)]
        is_transfer = talking["name"].astype(str).str.contains(_POINT_TO_POINT, case=False, regex=True)
        is_transfer &= (~is_transfer).sum() > 1  # where nothing else joins the ranks, transfers do
        own = rank_causes.rank_work(kernels.drop(index=talking.index), talking[is_transfer], talking[~is_transfer],
                                    copies, idle)  # fmt: skip
        work.append(own.assign(**dict(zip(who, (capture_name, process, device)))))
        rows.append(_row(process, device, kernels, talking, copies) | {"capture_name": capture_name, "rank": rank})
        name = pd.Series(normalise_kernel_name(talking["name"].astype(object)), index=talking.index, dtype=object)
        calls.append(
            pd.DataFrame(
                {
                    "capture_name": capture_name,
                    "process_id": process,
                    "device_id": device,
                    "name": name,
                    "length_ns": talking["end_ns"] - talking["start_ns"],
                }
            )
        )
    columns = [c.name for c in TABLES["ranks"].columns]
    return {
        "ranks": typed("ranks", pd.DataFrame(rows, columns=columns)),
        "rank_collectives": pd.concat(calls, ignore_index=True) if calls else pd.DataFrame(columns=_CALL_COLUMNS),
        "rank_work": pd.concat(work, ignore_index=True) if work else pd.DataFrame(columns=rank_causes.WORK_COLUMNS),
    }


def _split(results: Results, capture_id: int | None = None) -> Iterator[tuple[Any, ...]]:
    """(process, device, kernels, copies, idle causes) of a capture (default: the deepest timing run)."""
    capture_id = _deepest_capture(results) if capture_id is None else capture_id
    kernels = core_frame(results, "kernels", [*_PLACE, "name", *_GRID])
    kernels = kernels[kernels["capture_id"] == capture_id]
    copies = core_frame(results, "memory_operations", [*_PLACE, "kind", "direction"])
    copies = copies[(copies["capture_id"] == capture_id) & (copies["kind"].astype(object) != "graph")]
    kernels = kernels.assign(is_communication=is_of_family(kernels["name"], COMMUNICATION)).sort_values(
        "start_ns", kind="stable"
    )
    idle = core_frame(results, "idle_causes", ["capture_id", "device_id", "scope", *_IDLE])
    idle = idle[(idle["capture_id"] == capture_id) & idle["scope"].isin(["execution", "outside"])]
    devices = core_frame(results, "devices", ["capture_id", "process_id", "device_id", "gpu_index"])
    devices = devices[devices["capture_id"] == capture_id]
    gpus = dict(zip(zip(devices["process_id"], devices["device_id"]), devices["gpu_index"]))
    keys = kernels[["process_id", "device_id"]].drop_duplicates().sort_values(["device_id", "process_id"])
    for process, device in keys.itertuples(index=False):
        mine, copied = (
            rows[(rows["process_id"] == process) & (rows["device_id"] == device)] for rows in (kernels, copies)
        )
        gpu = gpus.get((process, device), device)
        yield int(process), int(device), mine, copied, idle[idle["device_id"] == gpu]


def _deepest_capture(results: Results) -> int:
    captures = results.frame("captures", ["capture_id", "level", "kernel_count"])
    timing = captures[~captures["level"].astype(str).str.endswith("counters")]
    chosen = timing if len(timing) else captures
    return int(chosen.sort_values("kernel_count", kind="stable")["capture_id"].iloc[-1]) if len(chosen) else -1


def _row(
    process: int, device: int, kernels: pd.DataFrame, talking: pd.DataFrame, copies: pd.DataFrame
) -> dict[str, object]:
    working = kernels[~kernels["is_communication"].to_numpy(bool)]
    communication, compute = _union(talking), _union(working)
    overlapped = communication + compute - _union(kernels)  # |A ∩ B| = |A| + |B| − |A ∪ B|
    everything = pd.concat([kernels[["start_ns", "end_ns"]], copies[["start_ns", "end_ns"]]])
    start, end = int(everything["start_ns"].min()), int(everything["end_ns"].max())
    busy = _union(everything)
    return {
        "process_id": process,
        "device_id": device,
        "kernel_count": len(kernels),
        "communication_count": len(talking),
        "first_start_ns": start,
        "duration_ns": end - start,
        "busy_ns": busy,
        "idle_ns": end - start - busy,
        "compute_ns": compute,
        "communication_ns": communication,
        "overlapped_ns": overlapped,
        "exposed_ns": communication - overlapped,
        "overlap_ratio": overlapped / communication if communication else float("nan"),
        "memory_ns": _union(copies),
        "waiting_ns": float("nan"),
        **dict(zip(rank_causes.LATE, (float("nan"), "", "", float("nan")))),
        "last_count": -1,
        "matched_count": -1,
    }


def _union(rows: pd.DataFrame) -> int:
    return int(union_length(rows["start_ns"].to_numpy(np.int64), rows["end_ns"].to_numpy(np.int64)))


def ranks_of(results: Results) -> pd.DataFrame:
    """The ranks of one job whose captures are all here (schemas: ranks): processes of one capture, or captures that
    each state a rank of their own. No rows where there is one rank, or where neither communication nor the captures
    say that it is a job."""
    devices = core_frame(results, "devices", ["capture_id", "process_id", "device_id", "rank", "device_ns"])
    devices = devices[devices["device_ns"] > 0]
    captures = results.frame("captures", ["capture_id", "source_name"])
    names = dict(zip(captures["capture_id"], captures["source_name"].astype(object)))
    chosen = list(pd.unique(devices["capture_id"])) if are_one_job(results) else [_deepest_capture(results)]
    if len(devices) and devices["capture_id"].isin(chosen).sum() < 2:
        return rank_table([])  # one device: nothing to compare, and no pass over its kernels
    parts = []
    for capture_id in chosen:  # a handful of captures
        part = rank_contribution(results, str(names.get(capture_id, "")), capture_id=capture_id)
        keys = ["process_id", "device_id"]
        known = devices[devices["capture_id"] == capture_id].drop_duplicates(keys)
        ranks = part["ranks"].drop(columns="rank").merge(known[[*keys, "rank"]], on=keys, how="left", validate="1:1")
        parts.append({**part, "ranks": ranks.fillna({"rank": -1})})
    table = rank_table(parts)
    if len(table) < 2:
        return table.iloc[:0]
    if table["communication_count"].sum():
        return table
    is_stated = bool((devices.loc[devices["capture_id"].isin(chosen), "rank"] >= 0).all())
    return table.assign(is_straggler=False) if is_stated else table.iloc[:0]  # nobody waits where nobody talks


def are_one_job(results: Results) -> bool:
    """Whether several captures are the ranks of one job: each process with device work states a rank of its own."""
    devices = core_frame(results, "devices", ["capture_id", "process_id", "rank", "device_ns"])
    working = devices[devices["device_ns"] > 0].drop_duplicates(["capture_id", "process_id"])
    stated = working["rank"]
    return working["capture_id"].nunique() > 1 and bool((stated >= 0).all()) and not stated.duplicated().any()


def rank_sentence(ranks: pd.DataFrame) -> str:
    """What is to be known of the ranks: communication, how much of it compute hides, who holds the others up."""
    if ranks.empty:
        return ""
    busy = ranks["busy_ns"].astype(float)
    said = f"{len(ranks)} ranks: busy {format_ns(busy.min())} … {format_ns(busy.max())}"
    communication, exposed = (float(ranks[c].median()) for c in ("communication_ns", "exposed_ns"))
    if not ranks["communication_count"].sum():
        spread = format_ratio_percent(busy.max() / max(busy.min(), 1.0) - 1)
        return f"{said}, {spread} apart; no communication between them was recorded, so that none is seen to wait."
    if communication:
        said += (
            f"; communication {format_ns(communication)} a rank (median), "
            f"{format_ratio_percent(1 - exposed / communication)} of it while kernels compute"
        )
    slow = ranks[ranks["is_straggler"].astype(bool)]
    if slow.empty:
        return f"{said}; no rank holds up the others."
    row = slow.sort_values("compute_excess_ratio", ascending=False).iloc[0]
    names = ", ".join(f"rank {rank}" for rank in slow["rank"].tolist()[:8])
    why = []
    if row["last_count"] * 2 > row["matched_count"] > 0:
        why.append(f"the last to arrive in {row['last_count']} of {row['matched_count']} collectives")
    if row["compute_excess_ratio"] > 0:
        why.append(f"{format_ratio_percent(row['compute_excess_ratio'])} more compute")
    if row.get("late_cause", "") not in ("", "unknown"):  # a store of before lacks it
        share = format_ratio_percent(min(row["late_explained_ratio"], 1.0))
        by = f"{row['late_cause']}: {shown(str(row['late_detail']), 80)}"
        why.append(f"{share} of the {format_ns(row['lateness_ns'])} that it is late by {by}")
    of = f"rank {row['rank']}: " if len(slow) > 1 else ""
    return f"{said}; the others wait for {names}{f' ({of}' + ', '.join(why) + ')' if why else ''}."


# -- all ranks of a job -------------------------------------------------------------------------------------


def rank_table(contributions: Sequence[Mapping[str, pd.DataFrame]], job_name: str = "") -> pd.DataFrame:
    """One row per rank of a job (schemas: ranks), in rank order; no rows where nothing ran on a device."""
    filled = [c["ranks"] for c in contributions if len(c["ranks"])]
    if not filled:
        return empty_table("ranks")
    frame = pd.concat(filled, ignore_index=True)
    frame = frame.sort_values(["rank", "device_id", "process_id"], kind="stable").reset_index(drop=True)
    stated = frame["rank"]
    # the files' numbers are used where every rank has one of its own
    if stated.duplicated().any() or (stated < 0).any():
        frame["rank"] = np.arange(len(frame))
    frame["job_name"] = job_name
    calls = [c["rank_collectives"] for c in contributions if len(c["rank_collectives"])]
    if len(frame) > 1 and calls:
        frame = _with_waiting(frame, pd.concat(calls, ignore_index=True))
    frame["compute_excess_ratio"] = _over_others(frame["compute_ns"].to_numpy(np.float64)) - 1
    frame["is_straggler"] = _stragglers(frame)
    work = [c["rank_work"] for c in contributions if len(c["rank_work"])]
    done = pd.concat(work, ignore_index=True) if work else pd.DataFrame()
    return typed("ranks", rank_causes.with_causes(frame, done))


def _with_waiting(frame: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Waiting time in the collectives that all ranks launched: same name, same order, same number of them."""
    keys = ["capture_name", "process_id", "device_id"]
    rank = calls.merge(frame[keys].assign(position=range(len(frame))), on=keys, validate="many_to_one")["position"]
    meetings = meetings_of(calls["name"], rank.to_numpy(), len(frame))
    if not len(meetings):
        return frame
    length = calls["length_ns"].to_numpy(np.float64)[meetings]
    shortest = length.min(axis=1, keepdims=True)
    return frame.assign(
        waiting_ns=(length - shortest).sum(axis=0),
        last_count=(length == shortest).sum(axis=0),
        matched_count=len(length),
    )


def _over_others(values: np.ndarray) -> np.ndarray:
    """Each rank's value over the median of the other ranks'; NaN for a single rank or a median of 0."""
    if len(values) < 2:
        return np.full(len(values), np.nan)
    others = np.array([np.median(np.delete(values, i)) for i in range(len(values))])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(others > 0, values / others, np.nan)


def _stragglers(frame: pd.DataFrame) -> np.ndarray:
    """More compute than the others, or last to arrive in most collectives while the others wait for it."""
    is_slow = frame["compute_excess_ratio"].to_numpy(np.float64) > STRAGGLER_EXCESS_RATIO
    waiting = frame["waiting_ns"].to_numpy(np.float64)
    if len(frame) < 2 or np.isnan(waiting).any():
        return is_slow
    is_last = frame["last_count"].to_numpy() * 2 > frame["matched_count"].to_numpy()
    return is_slow | (is_last & (_over_others(waiting) < 0.5))
