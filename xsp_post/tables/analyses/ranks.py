"""Results of one job → per-rank rows: stragglers, communication time, and how much of it compute hides; and a row for
each process group: who waits for whom. From the collectives of all ranks of a job: the chain through the ranks that
decides how long it takes, how late each rank was in each step, and which machine each is on.

A rank is a device of a process; its captures are one file with several processes, or one file per rank. No clock has to
agree between files: a collective ends for all its ranks together (`replay.collectives`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.statistics import t_quantiles
from xsp_post.model.results import Results, empty_table, frame_or_empty, of_captures, typed
from xsp_post.model.schemas import column_names
from xsp_post.names.families import joins_ranks
from xsp_post.names.groups import ranks_of_group
from xsp_post.replay.collectives import POINT_TO_POINT, across_ranks, median_of_others
from xsp_post.tables.analyses import rank_causes
from xsp_post.tables.analyses.cases import are_one_job, deepest, deepest_capture
from xsp_post.tables.analyses.frames import divide
from xsp_post.tables.analyses.rank_causes import GRID, WHO, covered_ns


def rank_chain(calls: pd.DataFrame, rank: np.ndarray, job_name: str) -> pd.DataFrame:
    """``rank_chain``. ``calls``: rows of `across_ranks`, each with ``position``, that of its rank in ``rank``."""
    met = calls[calls["meeting_index"] >= 0].sort_values(["position", "end_ns"], ignore_index=True)
    if not len(met):
        return empty_table("rank_chain")
    position, meeting = (met[name].to_numpy(np.int64) for name in ("position", "meeting_index"))
    start, end = (met[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    begin = met.groupby("position")["start_ns"].transform("min").to_numpy(np.int64)
    width = int((end - begin).max()) + 2
    before = np.searchsorted(position * width + end - begin, position * width + start - begin, side="right") - 1
    before = np.where((before >= 0) & (position[before] == position), before, -1)
    last = np.flatnonzero(met["is_last"].astype(bool))
    row_of, previous = np.full((2, int(meeting.max()) + 2), -1)  # the last element stands for "none": it is at −1
    row_of[meeting[last]] = last
    previous[meeting[last]] = np.where(before[last] >= 0, meeting[before[last]], -1)
    chain = meeting[[int((end - met["clock_offset_ns"].fillna(0)).argmax())]]
    for _ in range(len(previous).bit_length()):
        chain, previous = np.append(chain, previous[chain]), previous[previous]
    rows = row_of[pd.unique(chain[chain >= 0])[::-1]]
    frame = met.iloc[rows].assign(
        job_name=job_name, chain_index=np.arange(len(rows)), rank=rank[position[rows]],
        own_ns=np.where(before[rows] >= 0, start[rows] - end[before[rows]], np.nan),
        waited_ns=(met["waiting_ns"] + met["launch_skew_ns"]).groupby(meeting).sum()[meeting[rows]].to_numpy(),
    )  # fmt: skip
    return typed("rank_chain", frame.reset_index(drop=True))


def rank_steps(calls: pd.DataFrame, rank: np.ndarray, job_name: str) -> pd.DataFrame:
    """The table ``rank_steps``; collectives outside every step are left out."""
    met = calls[(calls["meeting_index"] >= 0) & (calls["step_index"] >= 0)]
    if not len(met):
        return empty_table("rank_steps")
    met = met.assign(waited=met["waiting_ns"] + met["launch_skew_ns"])
    groups = met.groupby(["position", "step_index"], sort=True)
    frame = groups.agg(late_ns=("late_ns", "max"), waiting_ns=("waited", "sum")).reset_index()
    frame["late_ns"] = frame["late_ns"].clip(lower=0)
    return typed("rank_steps", frame.assign(job_name=job_name, rank=rank[frame["position"]]))


def nodes_of(device: np.ndarray) -> np.ndarray:
    """Number of each rank's machine, −1 unknown: the next one begins where a device comes again. ``device``: of the
    ranks in their order; where each process sees one device only, nothing is known."""
    if len(device) < 2 or device.min() < 0 or (device == device[0]).all():
        return np.full(len(device), -1)
    return np.maximum.accumulate(pd.Series(device).groupby(device).cumcount().to_numpy())


CONTRIBUTED = ("ranks", "rank_collectives", "rank_work")
TABLES_OF_RANKS = ("ranks", "rank_groups", "rank_chain", "rank_steps")
PIPELINE = "pipeline"
STRAGGLER_EXCESS_RATIO = 0.05  # more compute than the others, where no collective was matched
_LEAST_LATE, _BY_CHANCE = 0.01, 0.02  # of the duration; probability that any of the ranks is late by chance
_PARTS, _LEAST_STEPS = 12, 4  # parts of the recording: of some steps each, where so many are known
_OF_PAIRS = 0.82  # what a value tells of a spread of pairs, in relation to one by squares
_OF_ITSELF = 0.25  # of the most that a rank is late by its own time: else it waited for others itself
_PLACE = ["process_id", "device_id", "start_ns", "end_ns"]
_IDLE = ["cause", "call_name", "detail", "owner", "idle_ns"]
_CALLS = ("process_id", "device_id", "name", "kind", "order_index", "start_ns", "end_ns", "duration_ns",
          "launch_start_ns", "overlapped_ns", "message_bytes", "group_size", "group_name", "group_axis",
          "peer_rank")  # fmt: skip


# -- one capture --------------------------------------------------------------------------------------------


def rank_contribution(
    results: Results, capture_name: str = "", rank: int = -1, capture_id: int | None = None
) -> dict[str, pd.DataFrame]:
    """What one capture knows of its ranks, small enough to travel.

    ``ranks``: a row per device of a process (schemas: ranks) with what needs no other rank filled in; ``rank``
    is what the file's name states (−1 none), where the capture itself says none. ``rank_collectives``: its rows of
    `collectives`, still without other ranks. ``rank_work``: what it did between them.
    """
    rows, work = [], []
    capture_id = deepest_capture(results) if capture_id is None else capture_id
    calls = of_captures(results, "collectives", capture_id, [*_CALLS]).drop(columns="capture_id")
    calls = calls.assign(capture_name=capture_name, step_index=-1)
    steps = of_captures(results, "iterations", capture_id, ["process_id", "start_ns"])
    for process, device, stated, kernels, copies, idle in _split(results, capture_id):
        talks = kernels["is_communication"].to_numpy(bool)
        talking, working = (kernels[talks], kernels[~talks]) if talks.any() else (kernels.iloc[:0], kernels)
        mine = calls[(calls["process_id"] == process) & (calls["device_id"] == device)]
        begun = np.sort(steps.loc[steps["process_id"] == process, "start_ns"].to_numpy())
        calls.loc[mine.index, "step_index"] = np.searchsorted(begun, mine["start_ns"], side="right") - 1
        is_transfer = mine["kind"].isin(POINT_TO_POINT)
        is_transfer &= (~is_transfer).sum() > 1  # where nothing else joins the ranks, transfers do
        met = mine[~is_transfer].sort_values("launch_start_ns", kind="stable")
        step = np.searchsorted(begun, met["launch_start_ns"], side="right")
        # all ranks begin alike after a step, not after the first collective: work goes on beside it
        if np.unique(step).size > _LEAST_STEPS:
            met = met.iloc[(step == step[0]).sum() - 1 :]
        own = rank_causes.rank_work(working, mine[is_transfer], met, copies, idle)
        work.append(own.assign(**dict(zip(WHO, (capture_name, process, device)))))
        row = _row(process, device, working, talking, copies, mine)
        rows.append(row | {"capture_name": capture_name, "rank": rank if stated < 0 else stated})
    return {
        "ranks": typed("ranks", pd.DataFrame(rows)),
        "rank_collectives": calls,
        "rank_work": pd.concat(work, ignore_index=True) if work else pd.DataFrame(columns=rank_causes.WORK_COLUMNS),
    }


def _split(results: Results, capture_id: int) -> Iterator[tuple[Any, ...]]:
    """(process, device, rank, kernels by start, copies, idle causes) of a capture."""
    kernels = of_captures(results, "kernels", capture_id, [*_PLACE, "kernel_id", "name", *GRID])
    if not kernels["grid_x"].fillna(0).any():  # operators of a CPU: their work stands for the grid
        work = frame_or_empty(results, "kernel_work", ["kernel_id", "flop", "read_bytes"]).drop_duplicates("kernel_id")
        kernels = kernels.merge(work, on="kernel_id", how="left", validate="many_to_one")
        kernels = kernels.assign(grid_x=kernels[["flop", "read_bytes"]].sum(axis=1), grid_y=1, grid_z=1)
    copies = of_captures(results, "memory_operations", capture_id, [*_PLACE, "kind", "direction"])
    copies = copies[copies["kind"].astype(object) != "graph"]
    order = np.lexsort([kernels[name].to_numpy() for name in ("start_ns", "process_id", "device_id")])
    kernels = kernels.assign(is_communication=joins_ranks(kernels["name"])).iloc[order]
    idle = of_captures(results, "idle_causes", capture_id, ["device_id", "scope", *_IDLE])
    idle = idle[idle["scope"].isin(["execution", "between", "outside"])]
    devices = of_captures(results, "devices", capture_id, ["process_id", "device_id", "gpu_index", "rank"])
    devices = devices.fillna({"rank": -1}).astype({"rank": int})
    known = {row[:2]: row[2:] for row in devices.drop(columns="capture_id").itertuples(index=False, name=None)}
    for _, mine in kernels.groupby(["process_id", "device_id"], sort=False):
        process, device = (int(mine[name].iloc[0]) for name in ("process_id", "device_id"))
        copied = copies[(copies["process_id"] == process) & (copies["device_id"] == device)]
        gpu, stated = known.get((process, device), (device, -1))
        yield process, device, stated, mine, copied, idle[idle["device_id"] == gpu]


def _row(
    process: int, device: int, working: pd.DataFrame, talking: pd.DataFrame, copies: pd.DataFrame, calls: pd.DataFrame
) -> dict[str, object]:
    communication, compute = covered_ns([talking]), covered_ns([working])
    overlapped = communication + compute - covered_ns([working, talking])  # |A ∩ B| = |A| + |B| − |A ∪ B|
    everything = (working, talking, copies)
    start = min(int(rows["start_ns"].min()) for rows in everything if len(rows))
    end = max(int(rows["end_ns"].max()) for rows in everything if len(rows))
    busy = covered_ns(everything)
    stages = calls[calls["kind"].isin(POINT_TO_POINT) & calls["group_axis"].str.contains(PIPELINE)]
    covered = covered_ns([working, stages]) if len(stages) else 0
    return {
        "process_id": process,
        "device_id": device,
        "kernel_count": len(working) + len(talking),
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
        "memory_ns": covered_ns([copies]),
    }


def ranks_of(results: Results) -> dict[str, pd.DataFrame]:
    """``ranks`` and ``rank_groups`` of one job whose captures are all here: processes of one capture, or captures that
    each state a rank of their own. No rows where there is one rank, or where neither communication nor the captures
    say that it is a job."""
    nothing = {name: empty_table(name) for name in TABLES_OF_RANKS}
    devices = frame_or_empty(results, "devices", ["capture_id", "process_id", "device_id", "rank", "device_ns"])
    devices = devices[devices["device_ns"] > 0]
    captures = results.frame("captures", ["capture_id", "source_name"])
    names = dict(zip(captures["capture_id"], captures["source_name"].astype(object)))
    chosen = list(pd.unique(devices["capture_id"])) if are_one_job(results) else deepest(results)[:1]
    if len(devices) and devices["capture_id"].isin(chosen).sum() < 2:
        return nothing  # one device: nothing to compare, and no pass over its kernels
    kernels = frame_or_empty(results, "kernels", ["capture_id", "name"])
    talks = joins_ranks(kernels["name"][kernels["capture_id"].isin(chosen)]).any()
    if not talks and not (devices.loc[devices["capture_id"].isin(chosen), "rank"] >= 0).all():
        return nothing
    tables = rank_tables([rank_contribution(results, str(names.get(one, "")), capture_id=one) for one in chosen])
    table = tables["ranks"]
    if len(table) < 2:
        return nothing
    return tables if talks else {**nothing, "ranks": table.assign(is_straggler=False)}  # nobody waits


# -- all ranks of a job -------------------------------------------------------------------------------------


def rank_tables(contributions: Sequence[Mapping[str, pd.DataFrame]], job_name: str = "") -> dict[str, pd.DataFrame]:
    """``ranks``: one row per rank of a job, in rank order; ``rank_groups``: one row per process group. No rows where
    nothing ran on a device."""
    filled = [c["ranks"] for c in contributions if len(c["ranks"])]
    if not filled:
        return {name: empty_table(name) for name in TABLES_OF_RANKS}
    frame = pd.concat(filled, ignore_index=True)
    frame = frame.sort_values(["rank", "device_id", "process_id"], kind="stable").reset_index(drop=True)
    stated = frame["rank"]
    # the files' numbers are used where every rank has one of its own
    if stated.duplicated().any() or (stated < 0).any():
        frame["rank"] = np.arange(len(frame))
    calls = _met(frame, [c["rank_collectives"] for c in contributions if len(c["rank_collectives"])])
    joining = _joining(calls)
    frame = _with_waiting(frame.assign(job_name=job_name), calls, joining)
    compute = frame["compute_ns"].to_numpy(np.float64)
    usual = median_of_others(compute) if len(frame) > 1 else np.zeros(1)
    frame["compute_excess_ratio"] = divide(compute, usual) - 1
    work = [c["rank_work"] for c in contributions if len(c["rank_work"])]
    rows = pd.concat(work, ignore_index=True) if work else pd.DataFrame()
    done = rank_causes.Work(frame, rows, _held_up(calls, len(frame)))
    frame["lateness_ns"] = done.lateness_ns
    frame["is_straggler"] = _stragglers(frame, joining, done.excess_ns)
    frame = frame.assign(**done.causes(frame["is_straggler"].to_numpy(bool)))
    chain = rank_chain(calls, rank := frame["rank"].to_numpy(), job_name)
    frame["chain_ns"] = frame["rank"].map(chain.groupby("rank")["own_ns"].sum()) if len(chain) else np.nan
    frame["node_index"] = nodes_of(frame["device_id"].to_numpy())
    tables = (typed("ranks", frame), _groups(calls, frame, job_name), chain, rank_steps(joining, rank, job_name))
    return dict(zip(TABLES_OF_RANKS, tables))


def _met(frame: pd.DataFrame, calls: list[pd.DataFrame]) -> pd.DataFrame:
    """The collectives of all ranks, matched, with ``position``: the row of ``frame`` that is their rank."""
    if len(frame) < 2 or not calls:
        return pd.DataFrame(
            {**{name: [] for name in column_names("collectives")}, "position": np.zeros(0, np.int64), "step_index": []}
        )
    rows = pd.concat(calls, ignore_index=True)
    rows = rows.merge(frame[WHO].assign(position=np.arange(len(frame))), on=WHO, validate="many_to_one")
    rows = rows.assign(capture_id=pd.factorize(rows["capture_name"])[0], is_last=False)
    blank = dict.fromkeys(set(column_names("collectives")) - set(rows), np.nan)
    met = across_ranks(rows.assign(**blank), frame["rank"].to_numpy()[rows["position"]])
    return met.assign(position=rows["position"], step_index=rows["step_index"])


def _joining(calls: pd.DataFrame) -> pd.DataFrame:
    """The matched collectives that tell who is late. Stages of a pipeline wait for each other in turn, however fast
    they are: transfers tell it only where nothing else joins the ranks."""
    met = calls[calls["meeting_index"] >= 0]
    is_transfer = met["kind"].isin(POINT_TO_POINT)
    return met if is_transfer.all() else met[~is_transfer]


def _held_up(calls: pd.DataFrame, count: int) -> np.ndarray:
    """Part of each rank's transfers, beside work or not, that it shares with the other side, (count,): it waited there,
    or the link took so long, for both."""
    moved = calls[calls["kind"].isin(POINT_TO_POINT)]
    alone = (moved["duration_ns"] - moved["overlapped_ns"]).clip(lower=0)
    shared = alone.where(moved["meeting_index"] >= 0, 0)
    sums = pd.DataFrame({"shared": shared, "alone": alone}).groupby(moved["position"]).sum().reindex(range(count))
    return (sums["shared"] / sums["alone"].where(sums["alone"] > 0)).fillna(0.0).to_numpy(float)


def _with_waiting(frame: pd.DataFrame, calls: pd.DataFrame, met: pd.DataFrame) -> pd.DataFrame:
    """Waiting time in the collectives that were matched, and the place of each rank in the mesh of groups."""
    count = len(frame)
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


def _stragglers(frame: pd.DataFrame, met: pd.DataFrame, excess_ns: np.ndarray) -> np.ndarray:
    """The ranks that come to their collectives after the others, more than by chance, and by their own time
    (``excess_ns``: of all kinds and of each); without matched collectives those with more compute."""
    if not len(met):
        return frame["compute_excess_ratio"].to_numpy(np.float64) > STRAGGLER_EXCESS_RATIO
    late, position = met["late_ns"], met["position"]
    order = late.groupby(position).cumcount()
    # what was before the first one was not recorded
    late, position, group = (one[order > 0] for one in (late, position, met["group_name"]))
    size = np.ceil(late.groupby(position).transform("size") / _PARTS)
    part, step = (order[order > 0] - 1) // size, met["step_index"][order > 0]
    are_known = bool(step.min() >= 0 and step.nunique() >= _LEAST_STEPS)
    steps = step // np.ceil(step.nunique() / _PARTS) if are_known else part
    # a step whose first collective is left out is no whole one: most of its lateness may be in that
    steps = steps.where(step > step.groupby(position).transform("min")) if are_known else steps
    # of a step only some collectives may wait; where a host runs ahead, its steps are not those of the device
    of_parts, of_steps = (late.groupby([position, one]).sum().droplevel(1) for one in (part, steps))
    signed = np.sign(late) * late.abs().groupby(position).rank()
    most = group.groupby(position).nunique().max()
    chance = 2 * _BY_CHANCE / ((2 + most + 2 * are_known) * len(frame))
    beyond = np.zeros(len(frame), bool)
    # by Student's t of groups and parts, and by signed ranks (Wilcoxon 1945), which one large value does not disturb
    of_each = (late, [position, group]), (of_parts, of_parts.index), (of_steps, of_steps.index), (signed, position)
    for values, who in of_each:
        found = values.groupby(who, observed=True).agg(["mean", "std", "size"])
        least = t_quantiles(found["size"] - 1, 1 - chance) * found["std"] / np.sqrt(found["size"])
        beyond[found.index.get_level_values(0)[found["mean"] > least]] = True
    if are_known:  # the last in every step: few steps do not tell how these scatter
        of_rank = late.groupby([steps, position]).sum().unstack()
        is_last = of_rank.eq(of_rank.max(axis=1), axis=0).all().reindex(range(len(frame)), fill_value=False)
        beyond |= is_last.to_numpy() & (len(frame) ** -float(len(of_rank)) < chance / 2)
    sums = late.groupby(position).sum().reindex(range(len(frame)))
    is_late = beyond & (sums > _LEAST_LATE * frame["duration_ns"]).to_numpy()
    own, worth = excess_ns[0], _LEAST_LATE * frame["duration_ns"].to_numpy(np.float64)
    for one in excess_ns:  # where kernels scatter, as the sizes of inputs do, pauses show beside them
        is_late |= _outside(one, _BY_CHANCE / len(excess_ns)) & (np.fmin(one, own) > worth)
    return is_late & ~(own < np.fmax(_OF_ITSELF * np.nanmax(own[is_late], initial=0.0), worth))


def _outside(own: np.ndarray, by_chance: float) -> np.ndarray:
    """Which values lie above the others, more than by chance (as Rosner 1983: what was found is left out, and the rest
    looked at again). The spread is that of pairs (Rousseeuw and Croux 1993, Qn), so that late ranks, up to half of all,
    do not hide each other."""
    outside = np.zeros(len(own), bool)
    while (count := (rest := np.isfinite(own) & ~outside).sum()) > 2:
        above, half = own - np.median(own[rest]), count // 2 + 1
        apart = np.sort(np.abs(above[rest][:, None] - above[rest])[np.triu_indices(count, 1)])
        small = count / (count + (1.4 if count % 2 else 3.8))
        least = float(t_quantiles(_OF_PAIRS * (count - 1), 1 - by_chance / count)) * 2.2219 * small
        found = rest & (above > least * apart[half * (half - 1) // 2 - 1])
        outside |= found
        if not found.any():
            break
    return outside


def _groups(calls: pd.DataFrame, frame: pd.DataFrame, job_name: str) -> pd.DataFrame:
    """The process groups: how long their collectives take on a rank (mean), and for whom it waits."""
    if not len(calls):
        return empty_table("rank_groups")
    places = frame[["rank", "node_index"]].iloc[calls["position"]].set_axis(calls.index)
    rows = calls.assign(**places, waited=calls["waiting_ns"] + calls["launch_skew_ns"],
                        exposed=calls["duration_ns"] - calls["overlapped_ns"])  # fmt: skip
    groups = rows.groupby("group_name", sort=False)
    table = groups.agg(
        group_axis=("group_axis", "first"), group_size=("group_size", "max"), rank_count=("rank", "nunique"),
        collective_count=("rank", "size"), node_count=("node_index", "nunique"),
        kinds=("kind", lambda kind: ", ".join(sorted(set(kind) - {""}))),
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
    table["node_count"] = table["node_count"] if (frame["node_index"] >= 0).all() else -1
    table = table.fillna({"late_rank": -1, "late_count": -1, "group_size": -1}).assign(job_name=job_name).reset_index()
    return typed("rank_groups", table.sort_values("exposed_ns", ascending=False, kind="stable", ignore_index=True))
