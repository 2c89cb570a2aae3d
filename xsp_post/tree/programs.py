"""Trace → Tree, step "which program": what one process runs one after another stands as processes of its own until
executions are found.

A program begins where the kernels change for good: most of what is launched before is never launched again, and most
of what follows never was. A part that repeats nothing and holds little (weights that are drawn) is no program.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.tree.draft import Draft
from xsp_post.tree.structure.constants import Constants

# of each program but the first of a process: the process, the last launch before it and its first one (ns)
Begins = list[tuple[int, int, int]]


def begins_of(trace: Trace, launch_id: np.ndarray, constants: Constants) -> Begins:
    """Where programs begin, by the kernels of each process."""
    rows = np.flatnonzero((trace.activities["kind"].to_numpy() == ActivityKind.KERNEL) & (launch_id >= 0))
    process, at = (trace.launches[c].to_numpy()[launch_id[rows]] for c in ("process_index", "start_ns"))
    name, start, end = (trace.activities[c].to_numpy()[rows] for c in ("name_id", "start_ns", "end_ns"))
    found = []
    for one in distinct(process).tolist():
        mine = np.flatnonzero(process == one)
        mine = mine[np.argsort(at[mine], kind="stable")]
        places = _places(name[mine], np.maximum(end - start, 0)[mine], at[mine], constants)
        found += [(one, int(at[mine[k - 1]]), int(at[mine[k]])) for k in places]
    return found


def _places(
    name: np.ndarray, ns: np.ndarray, at: np.ndarray, constants: Constants, offset: int = 0, least: int = 0
) -> list[int]:
    """Launches that programs begin with: of those where the kernels change the one before which the host pauses
    clearly and longest, and so on before and behind it; ``offset`` is added. What has less than ``least`` launches, or
    next to none of all, is no program."""
    n = len(name)
    least = least or max(constants.fewest_launches, round(constants.near_ratio * n))
    code, names = pd.factorize(name)
    first, last = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    first[code[::-1]], last[code] = np.arange(n)[::-1], np.arange(n)
    pause = np.diff(at)
    can = (np.arange(1, n) >= least) & (np.arange(1, n) <= n - least)
    can &= pause > constants.clear_pause * np.median(pause) if n > 1 else False
    places = np.flatnonzero(can)
    for weight in (np.ones(n), ns):
        total, of = np.cumsum(weight), np.bincount(code, weight)
        gone, come = (
            np.append(0, np.cumsum(of[np.argsort(k)]))[np.searchsorted(np.sort(k), places, side="right")]
            for k in (last, first)
        )
        is_new = total[-1] - come >= constants.alike_ratio * (total[-1] - total[places])
        places = places[is_new & (gone >= constants.alike_ratio * total[places])]
    if not len(places):
        return []
    k = int(places[np.argmax(pause[places])]) + 1
    before, behind = ((name[one], ns[one], at[one], constants) for one in (slice(k), slice(k, n)))
    return [*_places(*before, offset, least), offset + k, *_places(*behind, offset + k, least)]


def apart(trace: Trace, launch_id: np.ndarray, begins: Begins) -> tuple[Trace, np.ndarray]:
    """The trace with a process for each program, and the process that each is of."""
    owner = np.r_[np.arange(len(trace.processes)), [one for one, *_ in begins]].astype(np.int32)
    if not begins:
        return trace, owner
    frames = {name: getattr(trace, name) for name in ("spans", "launches", "activities")}
    times = {name: frame["start_ns"].to_numpy() for name, frame in frames.items()}
    times["activities"] = np.where(launch_id >= 0, times["launches"][launch_id], times["activities"])
    for name, frame in frames.items():
        process = frame["process_index"].to_numpy().copy()
        for number, (one, last, begin) in enumerate(begins, len(trace.processes)):
            later = times[name] > last if name == "spans" else times[name] >= begin
            process[(np.append(owner, -1)[process] == one) & later] = number
        frames[name] = frame.assign(process_index=process)
    return replace(trace, **frames), owner


def that_stand_alone(
    begins: Begins, trace: Trace, owner: np.ndarray, process: np.ndarray, constants: Constants
) -> Begins:
    """Begins without that of the first program that has few executions (``process``: of each) and little of the
    kernels' time: it is a part of the program before it, or of the one behind it. None where no program has more.
    ``trace``, ``owner``: as `apart` gives them."""
    frame, first = trace.activities, len(owner) - len(begins)
    length = np.where(frame["kind"] == ActivityKind.KERNEL, frame["end_ns"] - frame["start_ns"], 0)
    held = np.bincount(frame["process_index"], weights=length, minlength=len(owner))
    is_few = np.bincount(process, minlength=len(owner)) < constants.fewest_turns
    is_part = is_few & (held < constants.large_ratio * np.bincount(owner, weights=held)[owner])
    if any(none := [is_few[owner == one].all() for one, *_ in begins]):
        return [begin for begin, nothing in zip(begins, none, strict=True) if not nothing]
    for number, (one, *_) in enumerate(begins):
        before = [k for k in range(number) if begins[k][0] == one]
        if is_part[first + number] or (not before and is_part[one]):
            return begins[:number] + begins[number + 1 :]
    return begins


def together(draft: Draft) -> Draft:
    """The draft with its programs in their processes again."""
    if draft.whole is draft.trace:
        return draft
    nodes, activities = (
        frame.assign(process_index=np.append(draft.owner, np.int32(-1))[frame["process_index"].to_numpy()])
        for frame in (draft.nodes, draft.activities)
    )
    return replace(draft, trace=draft.whole, nodes=nodes, activities=activities)
