"""Trace → Tree, step "what is one model execution": forward passes with the training work after them, unmarked.

A call of the whole model that backward or optimiser work follows is the forward part of a training step. The step
reaches from there to the next call. Where optimiser steps are recorded they end the steps, so that several calls
before one of them (gradient accumulation) are one step. Where the number of calls before a backward pass differs,
those without one are evaluation: executions of their own. Without any call of a whole model the optimiser's steps
alone say where a step ends (`turns_until`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def training_turns(
    calls: np.ndarray,
    parent: np.ndarray,
    thread: np.ndarray,
    process: np.ndarray,
    start_ns: np.ndarray,
    trains: np.ndarray,
    optimizer: np.ndarray,
    eligible: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Number of the step each span belongs to as one of several siblings, −1 none, and the calls that are no part of a
    step; None where nothing trains.

    ``calls``: spans of the root module; ``trains``, ``optimizer``, ``eligible``: which spans are training work, are
    optimiser steps, and may belong to a step. All other arrays are per span.
    """
    calls = calls[np.argsort(start_ns[calls], kind="stable")]
    home = calls[0]
    if (thread[calls] != thread[home]).any():
        return None
    mine = eligible & (process == process[home]) & (start_ns >= start_ns[home])
    ends = np.sort(start_ns[mine & optimizer])
    gradients = np.sort(start_ns[mine & trains & ~optimizer])
    work = ends if len(ends) else gradients
    if not len(work):
        return None
    at = start_ns[calls]
    followed = np.diff(np.searchsorted(gradients, at), append=len(gradients)) > 0
    # as many calls before each backward pass: one step calls the model so often; the recording may end within a step
    last = np.flatnonzero(followed)
    calls_of_step = np.unique(np.diff(last, prepend=-1))
    if not len(last) or (len(calls_of_step) == 1 and len(calls) - 1 - last[-1] < calls_of_step[0]):
        followed[:] = True
    done = np.searchsorted(work, at[followed])
    begins = np.zeros(len(calls), bool)
    begins[followed] = np.r_[True, done[1:] > done[:-1]]
    turn_of_call = np.where(followed, np.cumsum(begins) - 1, -1)
    call = np.searchsorted(at, start_ns, side="right") - 1
    sibling = (thread == thread[home]) & (parent == parent[calls][call])
    of_other_thread = trains & (thread != thread[home]) & (parent < 0)
    member = mine & (sibling | of_other_thread)
    turn = np.where(member, turn_of_call[call], -1)
    homes = pd.DataFrame({"turn": turn_of_call[followed], "parent": parent[calls][followed]})
    if (homes.groupby("turn")["parent"].nunique() > 1).any():
        return None  # a step lies in one range, or in none
    return turn, calls[~followed]


def turns_until(
    ends: np.ndarray, parent: np.ndarray, thread: np.ndarray, process: np.ndarray, start_ns: np.ndarray,
    name: np.ndarray, trains: np.ndarray, eligible: np.ndarray,
) -> np.ndarray | None:  # fmt: skip
    """Number of the step each span belongs to (−1 none), where a step is all up to the end of an optimiser's step.

    ``ends``: the optimiser's steps; ``name``: equal numbers for equal texts; others as for `training_turns`. None where
    they are no siblings on one thread of each process, or nothing else is in each of the steps.
    """
    turn = np.full(len(parent), -1, np.int64)
    count = 0
    for one in np.unique(process[ends]).tolist():
        mine = ends[process[ends] == one]
        mine = mine[np.argsort(start_ns[mine], kind="stable")]
        home = mine[0]
        if len(mine) < 2 or (thread[mine] != thread[home]).any() or (parent[mine] != parent[home]).any():
            return None
        sibling = (thread == thread[home]) & (parent == parent[home])
        member = eligible & (process == one) & (sibling | (trains & (thread != thread[home]) & (parent < 0)))
        # several of them one after another (groups of weights) end one step
        others = np.searchsorted(np.sort(start_ns[member & ~trains]), start_ns[mine])
        last = mine[np.r_[others[1:] > others[:-1], True]]
        number = np.searchsorted(start_ns[last], start_ns)
        inside = member & (number < len(last))
        again = np.unique(name[inside & (number > 0)])
        inside &= (number > 0) | np.isin(name, again)  # what comes before the first step does not come again
        if len(np.unique(number[inside & ~trains])) < len(last) or len(last) < 2:
            return None
        turn[inside] = count + number[inside]
        count += len(last)
    return turn
