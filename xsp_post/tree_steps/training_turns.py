"""Trace → Tree, step "what is one model execution": root module calls with the training work after them, unmarked.

A call of the root module that backward or optimiser work follows is the forward part of a training step. The step
reaches from there to the next such call. Where optimiser steps are recorded they end the steps, so that several calls
before one of them (gradient accumulation) are one step.
"""

from __future__ import annotations

import numpy as np


def training_turns(
    calls: np.ndarray,
    parent: np.ndarray,
    thread: np.ndarray,
    process: np.ndarray,
    start_ns: np.ndarray,
    trains: np.ndarray,
    optimizer: np.ndarray,
    eligible: np.ndarray,
) -> np.ndarray | None:
    """Number of the step each span belongs to as one of several siblings, −1 none; None where nothing trains.

    ``calls``: spans of the root module; ``trains``, ``optimizer``, ``eligible``: which spans are training work, are
    optimiser steps, and may belong to a step. All other arrays are per span.
    """
    calls = calls[np.argsort(start_ns[calls], kind="stable")]
    home = calls[0]
    if (thread[calls] != thread[home]).any() or (parent[calls] != parent[home]).any():
        return None
    mine = eligible & (process == process[home]) & (start_ns >= start_ns[home])
    ends = np.sort(start_ns[mine & optimizer])
    work = ends if len(ends) else np.sort(start_ns[mine & trains])
    if not len(work):
        return None
    at = start_ns[calls]
    done = np.searchsorted(work, at)
    begins = at[np.r_[True, done[1:] > done[:-1]]]
    sibling = (thread == thread[home]) & (parent == parent[home])
    of_other_thread = trains & (thread != thread[home]) & (parent < 0)
    member = mine & (sibling | of_other_thread)
    return np.where(member, np.searchsorted(begins, start_ns, side="right") - 1, -1)
