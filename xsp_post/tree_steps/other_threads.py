"""Trace → Tree, step "backward under its step": work of another thread for an execution is moved below that execution.

PyTorch's autograd engine runs backward work on a thread of its own. The tables count it for the step that covers
it in time; here its outermost ranges get that step, or the phase of it that covers them, as their parent.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import depths, nest
from xsp_post.model.levels import Level
from xsp_post.model.trace import SpanKind
from xsp_post.tree_steps.node_names import NodeNames

_PHASES = ("forward", "backward", "optimizer", "train_step")


def under_their_step(nodes: pd.DataFrame, names: NodeNames) -> pd.DataFrame:
    """Nodes with the outermost ranges of other threads below the execution they belong to. Needs iteration_index."""
    iteration, parent = nodes["iteration_index"].to_numpy(), nodes["parent_id"].to_numpy()
    level, kind = nodes["level"].to_numpy(), nodes["kind"].to_numpy()
    thread = nodes["thread_index"].to_numpy().astype(np.int64)
    loose = np.flatnonzero(
        (parent == 0) & (iteration >= 0) & (level != int(Level.MODEL)) & (kind <= int(SpanKind.ANNOTATION))
    )
    models = np.flatnonzero(level == int(Level.MODEL))
    if not len(loose) or not len(models):
        return nodes
    role, phase = names.node_category("role"), names.node_category("phase")
    plain = np.isin(role.categories.astype(str), ["phase", ""])[role.codes]
    is_phase = plain & np.isin(phase.categories.astype(str), _PHASES)[phase.codes]
    own = np.zeros(len(nodes), bool)
    own[loose] = True  # a phase of the other thread is not a place for the other thread's ranges
    holders = np.flatnonzero((is_phase & (iteration >= 0) & ~own & (thread >= 0)) | (level == int(Level.MODEL)))
    target = _innermost(nodes, holders, loose, thread, iteration)
    moved = target >= 0
    if not moved.any():
        return nodes
    changed = parent.copy()
    changed[loose[moved]] = target[moved]
    return nodes.assign(parent_id=changed, depth=depths(changed))


def _innermost(
    nodes: pd.DataFrame, holders: np.ndarray, loose: np.ndarray, thread: np.ndarray, iteration: np.ndarray
) -> np.ndarray:
    """The shortest holder of another thread, but of the same iteration, around each loose range; −1 none."""
    start, end = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    nesting = nest(thread[holders], start[holders], end[holders])
    best = np.full(len(loose), -1, np.int64)
    shortest = np.full(len(loose), np.iinfo(np.int64).max)
    for one in np.unique(thread[holders]).tolist():
        rows = np.flatnonzero(thread[loose] != one)
        found = nesting.innermost(np.full(len(rows), one, np.int64), start[loose[rows]], end[loose[rows]])
        rows, found = rows[found >= 0], holders[found[found >= 0]]
        fits = (iteration[found] == iteration[loose[rows]]) & (end[found] - start[found] < shortest[rows])
        best[rows[fits]] = found[fits]
        shortest[rows[fits]] = (end[found] - start[found])[fits]
    return best


def is_of_other_thread(nodes: pd.DataFrame) -> np.ndarray:
    """Which nodes ran on another thread than the node they hang below; nodes without a thread are of their parent's."""
    thread, parent = nodes["thread_index"].to_numpy(), nodes["parent_id"].to_numpy()
    if int(thread.max(initial=-1)) <= int(thread.min(where=thread >= 0, initial=np.iinfo(thread.dtype).max)):
        return np.zeros(len(nodes), bool)  # one thread, or none
    return (parent > 0) & (thread >= 0) & (thread[parent] >= 0) & (thread != thread[parent])


def own_forest(nodes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Parents and depths as the threads themselves nest: what hangs below another thread's node hangs below the
    capture."""
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    other = is_of_other_thread(nodes)
    if not other.any():
        return parent, depth
    parent = np.where(other, 0, parent)
    return parent, depths(parent)
