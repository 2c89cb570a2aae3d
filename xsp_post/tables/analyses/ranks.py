"""Results of one job → per-rank rows: stragglers, communication time, and how much of it compute hides; and a row for
each process group: who waits for whom.

A rank is a device of a process; its captures are one file with several processes, or one file per rank. No clock has to
agree between files: a collective ends for all its ranks together (`replay.collectives`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import union_length
from xsp_post.arrays.statistics import t_quantiles
from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, core_frame, empty_table, typed
from xsp_post.model.schemas import TABLES, column_names
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.names.families import is_of_family
from xsp_post.names.groups import ranks_of_group
from xsp_post.replay.collectives import across_ranks, median_of_others
from xsp_post.tables.analyses import rank_causes
from xsp_post.tables.analyses.rank_causes import WHO

CONTRIBUTED = ("ranks", "rank_collectives", "rank_work")
COMMUNICATION, PIPELINE = "communication", "pipeline"
STRAGGLER_EXCESS_RATIO = 0.05  # more compute than the others, where no collective was matched
_LEAST_LATE, _BY_CHANCE = 0.01, 0.02  # of the duration; probability that any of the ranks is late by chance
_PARTS = 12  # of the recording, each of some steps
_OF_ITSELF = 0.25  # of a rank's late arrivals, by its own time: else it waited for others itself
# Of more than two ranks, point-to-point transfers join two only: the others' of the same order are other transfers.
_POINT_TO_POINT = "send_recv"
_PLACE = ["capture_id", "process_id", "device_id", "start_ns", "end_ns"]
_GRID = ["grid_x", "grid_y", "grid_z"]
_IDLE = ["cause", "call_name", "detail", "owner", "idle_ns"]
_CALLS = ("process_id", "device_id", "name", "kind", "order_index", "start_ns", "end_ns", "duration_ns",
          "launch_start_ns", "overlapped_ns", "message_bytes", "group_size", "group_name", "group_axis")  # fmt: skip


# -- one capture --------------------------------------------------------------------------------------------


def rank_contribution(
    results: Results, capture_name: str = "", rank: int = -1, capture_id: int | None = None
) -> dict[str, pd.DataFrame]:
    """What one capture knows of its ranks, small enough to travel.

    ``ranks``: a row per device of a process (schemas: ranks) with what needs no other rank filled in; ``rank``
    is the one the file's name states (−1 none). ``rank_collectives``: its rows of `collectives`, still without other
    ranks. ``rank_work``: what it did between them.
    """
    rows, work = [], []
    capture_id = _deepest_capture(results) if capture_id is None else capture_id
    calls = core_frame(results, "collectives", ["capture_id", *_CALLS])
    calls = calls[calls["capture_id"] == capture_id].drop(columns="capture_id").assign(capture_name=capture_name)
    for process, device, kernels, copies, idle in _split(results, capture_id):
        talking = kernels[kernels["is_communication"].to_numpy(bool)]
        mine = calls[(calls["process_id"] == process) & (calls["device_id"] == device)]
        is_transfer = mine["kind"].astype(object) == _POINT_TO_POINT
        is_transfer &= (~is_transfer).sum() > 1  # where nothing else joins the ranks, transfers do
        own = rank_causes.rank_work(kernels.drop(index=talking.index), mine[is_transfer], mine[~is_transfer],
                                    copies, idle)  # fmt: skip
        work.append(own.assign(**dict(zip(WHO, (capture_name, process, device)))))
        row = _row(process, device, kernels, talking, copies, mine)
        rows.append(row | {"capture_name": capture_name, "rank": rank})
    columns = [c.name for c in TABLES["ranks"].columns]
    return {
        "ranks": typed("ranks", pd.DataFrame(rows, columns=columns)),
        "rank_collectives": calls,
        "rank_work": pd.concat(work, ignore_index=True) if work else pd.DataFrame(columns=rank_causes.WORK_COLUMNS),
    }


def _split(results: Results, capture_id: int) -> Iterator[tuple[Any, ...]]:
    """(process, device, kernels, copies, idle causes) of a capture."""
    kernels = core_frame(results, "kernels", [*_PLACE, "kernel_id", "name", *_GRID])
    kernels = kernels[kernels["capture_id"] == capture_id]
    if not kernels["grid_x"].fillna(0).any():  # operators of a CPU: their work stands for the grid
        work = core_frame(results, "kernel_work", ["kernel_id", "flop", "read_bytes"]).drop_duplicates("kernel_id")
        kernels = kernels.drop(columns=_GRID[:2]).merge(work, on="kernel_id", how="left", validate="many_to_one")
        sizes = {side: kernels[name].map("{:.2g}".format) for side, name in zip(_GRID, ("flop", "read_bytes"))}
        kernels = kernels.assign(**sizes)
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
    process: int,
    device: int,
    kernels: pd.DataFrame,
    talking: pd.DataFrame,
    copies: pd.DataFrame,
    calls: pd.DataFrame,
) -> dict[str, object]:
    working = kernels[~kernels["is_communication"].to_numpy(bool)]
    communication, compute = _union(talking), _union(working)
    overlapped = communication + compute - _union(kernels)  # |A ∩ B| = |A| + |B| − |A ∪ B|
    everything = pd.concat([kernels[["start_ns", "end_ns"]], copies[["start_ns", "end_ns"]]])
    start, end = int(everything["start_ns"].min()), int(everything["end_ns"].max())
    busy = _union(everything)
    stages = calls[(calls["kind"] == _POINT_TO_POINT) & calls["group_axis"].str.contains(PIPELINE)]
    covered = _union(pd.concat([working[["start_ns", "end_ns"]], stages[["start_ns", "end_ns"]]]))
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
        "bubble_ns": covered - compute if len(stages) else float("nan"),
        "memory_ns": _union(copies),
        "waiting_ns": float("nan"),
        **dict(zip(rank_causes.LATE, (float("nan"), "", "", float("nan")))),
        "last_count": -1,
        "matched_count": -1,
        "mesh": "",
    }


def _union(rows: pd.DataFrame) -> int:
    return int(union_length(rows["start_ns"].to_numpy(np.int64), rows["end_ns"].to_numpy(np.int64)))


def ranks_of(results: Results) -> dict[str, pd.DataFrame]:
    """``ranks`` and ``rank_groups`` of one job whose captures are all here: processes of one capture, or captures that
    each state a rank of their own. No rows where there is one rank, or where neither communication nor the captures
    say that it is a job."""
    nothing = {name: empty_table(name) for name in ("ranks", "rank_groups")}
    devices = core_frame(results, "devices", ["capture_id", "process_id", "device_id", "rank", "device_ns"])
    devices = devices[devices["device_ns"] > 0]
    captures = results.frame("captures", ["capture_id", "source_name"])
    names = dict(zip(captures["capture_id"], captures["source_name"].astype(object)))
    chosen = list(pd.unique(devices["capture_id"])) if are_one_job(results) else [_deepest_capture(results)]
    if len(devices) and devices["capture_id"].isin(chosen).sum() < 2:
        return nothing  # one device: nothing to compare, and no pass over its kernels
    parts = []
    for capture_id in chosen:  # a handful of captures
        part = rank_contribution(results, str(names.get(capture_id, "")), capture_id=capture_id)
        keys = ["process_id", "device_id"]
        known = devices[devices["capture_id"] == capture_id].drop_duplicates(keys)
        ranks = part["ranks"].drop(columns="rank").merge(known[[*keys, "rank"]], on=keys, how="left", validate="1:1")
        parts.append({**part, "ranks": ranks.fillna({"rank": -1})})
    tables = rank_tables(parts)
    table = tables["ranks"]
    if len(table) < 2:
        return nothing
    if table["communication_count"].sum():
        return tables
    is_stated = bool((devices.loc[devices["capture_id"].isin(chosen), "rank"] >= 0).all())
    return {**nothing, "ranks": table.assign(is_straggler=False)} if is_stated else nothing  # nobody waits


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
    if row["last_count"] > 0:
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


def rank_tables(contributions: Sequence[Mapping[str, pd.DataFrame]], job_name: str = "") -> dict[str, pd.DataFrame]:
    """``ranks``: one row per rank of a job, in rank order; ``rank_groups``: one row per process group. No rows where
    nothing ran on a device."""
    filled = [c["ranks"] for c in contributions if len(c["ranks"])]
    if not filled:
        return {name: empty_table(name) for name in ("ranks", "rank_groups")}
    frame = pd.concat(filled, ignore_index=True)
    frame = frame.sort_values(["rank", "device_id", "process_id"], kind="stable").reset_index(drop=True)
    stated = frame["rank"]
    # the files' numbers are used where every rank has one of its own
    if stated.duplicated().any() or (stated < 0).any():
        frame["rank"] = np.arange(len(frame))
    calls = _met(frame, [c["rank_collectives"] for c in contributions if len(c["rank_collectives"])])
    frame = _with_waiting(frame.assign(job_name=job_name), calls)
    compute = frame["compute_ns"].to_numpy(np.float64)
    usual = median_of_others(compute) if len(frame) > 1 else np.zeros(1)
    frame["compute_excess_ratio"] = np.divide(compute, usual, out=np.full(len(frame), np.nan), where=usual > 0) - 1
    work = [c["rank_work"] for c in contributions if len(c["rank_work"])]
    done = rank_causes.Work(frame, pd.concat(work, ignore_index=True) if work else pd.DataFrame())
    frame["lateness_ns"] = done.lateness_ns
    frame["is_straggler"] = _stragglers(frame, calls)
    frame = frame.assign(**done.causes(frame["is_straggler"].to_numpy(bool)))
    return {"ranks": typed("ranks", frame), "rank_groups": _groups(calls, frame["rank"].to_numpy(), job_name)}


def _met(frame: pd.DataFrame, calls: list[pd.DataFrame]) -> pd.DataFrame:
    """The collectives of all ranks, matched, with ``position``: the row of ``frame`` that is their rank."""
    if len(frame) < 2 or not calls:
        return pd.DataFrame({**{name: [] for name in column_names("collectives")}, "position": np.zeros(0, np.int64)})
    rows = pd.concat(calls, ignore_index=True)
    rows = rows.merge(frame[WHO].assign(position=np.arange(len(frame))), on=WHO, validate="many_to_one")
    rows = rows.assign(capture_id=pd.factorize(rows["capture_name"])[0], is_last=False)
    blank = dict.fromkeys(set(column_names("collectives")) - set(rows), np.nan)
    return across_ranks(rows.assign(**blank)).assign(position=rows["position"])


def _with_waiting(frame: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Waiting time in the collectives that were matched, and the place of each rank in the mesh of groups."""
    count = len(frame)
    met = calls[calls["meeting_index"] >= 0]
    if len(met):
        groups = met.assign(waited=met["waiting_ns"] + met["launch_skew_ns"]).groupby("position")
        sums = groups.agg(waited=("waited", "sum"), last=("is_last", "sum"), met=("is_last", "size"))
        sums = sums.reindex(range(count))
        frame = frame.assign(
            waiting_ns=sums["waited"], last_count=sums["last"].fillna(-1), matched_count=sums["met"].fillna(-1)
        )
    places: list[dict[str, str]] = [{} for _ in range(count)]
    named = calls[calls["group_axis"] != ""].drop_duplicates(["position", "group_name"])
    rank = frame["rank"].to_numpy()
    for position, axis, name in zip(named["position"].tolist(), named["group_axis"], named["group_name"]):
        ranks = ranks_of_group(name)
        if rank[position] in ranks:
            places[position].setdefault(axis, f"{axis} {ranks.index(rank[position])}/{len(ranks)}")
    return frame.assign(mesh=[", ".join(place[axis] for axis in sorted(place)) for place in places])


def _stragglers(frame: pd.DataFrame, calls: pd.DataFrame) -> np.ndarray:
    """The ranks that come to their collectives after the others, more than by chance, and by their own time; without
    matched collectives those with more compute."""
    met = calls[calls["meeting_index"] >= 0]
    if not len(met):
        return frame["compute_excess_ratio"].to_numpy(np.float64) > STRAGGLER_EXCESS_RATIO
    late, position = met["late_ns"], met["position"]
    order = late.groupby(position).cumcount()
    late, position = late[order > 0], position[order > 0]  # what was before the first one was not recorded
    size = np.ceil(late.groupby(position).transform("size") / _PARTS)
    part = (order[order > 0] - 1) // size
    of_parts = late.groupby([position, part]).sum().droplevel(1)  # of a step only some collectives may wait
    signed = np.sign(late) * late.abs().groupby(position).rank()
    beyond = np.zeros(len(frame), bool)
    # by Student's t of all and of parts, and by signed ranks (Wilcoxon 1945), which one large value does not disturb
    for values, who in ((late, position), (of_parts, of_parts.index), (signed, position)):
        found = values.groupby(who).agg(["mean", "std", "size"]).reindex(range(len(frame)))
        chance = 2 * _BY_CHANCE / (3 * len(frame))
        least = t_quantiles(found["size"] - 1, 1 - chance) * found["std"] / np.sqrt(found["size"])
        beyond |= (found["mean"] > least).to_numpy()
    sums = late.groupby(position).sum().reindex(range(len(frame))).to_numpy(np.float64)
    is_late = beyond & (sums > _LEAST_LATE * frame["duration_ns"].to_numpy())
    return is_late & ~(frame["lateness_ns"].to_numpy(np.float64) < _OF_ITSELF * sums)


def _groups(calls: pd.DataFrame, rank: np.ndarray, job_name: str) -> pd.DataFrame:
    """The process groups: how long their collectives take on a rank (mean), and for whom it waits."""
    if not len(calls):
        return empty_table("rank_groups")
    rows = calls.assign(rank=rank[calls["position"]], waited=calls["waiting_ns"] + calls["launch_skew_ns"],
                        exposed=calls["duration_ns"] - calls["overlapped_ns"])  # fmt: skip
    groups = rows.groupby("group_name", sort=False)
    table = groups.agg(
        group_axis=("group_axis", "first"), group_size=("group_size", "max"), rank_count=("rank", "nunique"),
        collective_count=("rank", "size"), kinds=("kind", lambda kind: ", ".join(sorted(set(kind) - {""}))),
    )  # fmt: skip
    for column in ("message_bytes", "duration_ns", "transfer_ns", "waited", "exposed"):
        table[column] = groups[column].sum(min_count=1) / table["rank_count"]
    table = table.rename(columns={"waited": "waiting_ns", "exposed": "exposed_ns"})
    table["collective_count"] = np.ceil(table["collective_count"] / table["rank_count"])
    table["overlap_ratio"] = 1 - table["exposed_ns"] / table["duration_ns"]
    met = rows[rows["meeting_index"] >= 0]
    waited = met.groupby("meeting_index")["waited"].sum()
    last = met[met["is_last"].astype(bool)].assign(waited=lambda f: f["meeting_index"].map(waited))
    of_rank = last.groupby(["group_name", "rank"])["waited"].agg(late_count="size", late_waiting_ns="sum").reset_index()
    most = of_rank.sort_values("late_waiting_ns", kind="stable").drop_duplicates("group_name", keep="last")
    table = table.join(most.rename(columns={"rank": "late_rank"}).set_index("group_name"))
    table["late_ratio"] = table["late_waiting_ns"] / (table["waiting_ns"] * table["rank_count"]).where(lambda v: v > 0)
    table = table.fillna({"late_rank": -1, "late_count": -1, "group_size": -1}).assign(job_name=job_name).reset_index()
    return typed("rank_groups", table.sort_values("exposed_ns", ascending=False, kind="stable", ignore_index=True))
