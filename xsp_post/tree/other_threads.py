"""Trace → Tree, step "backward under its step": work of another thread for an execution is moved below that execution.

PyTorch's autograd engine runs backward work on a thread of its own. The tables count it for the step that covers
it in time; here its outermost ranges get that step, or the phase of it that covers them, as their parent.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import depths, nest
from xsp_post.model.levels import Level
from xsp_post.model.trace import SpanKind
from xsp_post.model.tree import NodeKind
from xsp_post.tree.node_names import NodeNames

_PHASES = ("forward", "backward", "optimizer", "train_step")


def under_their_step(nodes: pd.DataFrame, names: NodeNames) -> pd.DataFrame:
    """Nodes with the outermost ranges of other threads below the execution they belong to; operators below the plain
    range that covers them, as kernels of a thread without ranges. Needs iteration_index."""
    iteration, parent = nodes["iteration_index"].to_numpy(), nodes["parent_id"].to_numpy()
    thread, level = nodes["thread_index"].to_numpy(), nodes["level"].to_numpy()
    is_model = level == int(Level.MODEL)
    loose = (parent == 0) | (is_model[parent] & (thread != thread[parent]))
    inferred = nodes["kind"].to_numpy() == int(NodeKind.INFERRED)
    loose &= ~is_model & (inferred | (nodes["kind"].to_numpy() <= int(SpanKind.ANNOTATION))) & (thread >= 0)
    if not loose.any():
        return nodes
    target = np.full(len(nodes), -1, parent.dtype)
    # a phase of the other thread is not a place for the other thread's ranges
    is_plain = names.node_is("role", "phase", "")
    is_phase = is_plain & ~loose & (thread >= 0) & np.isin(names.node_text("phase"), _PHASES)
    is_plain &= names.node_is("dialect", "plain")
    holders = np.flatnonzero((is_model | is_phase) & (iteration >= 0))
    where = np.where(iteration >= 0, int(nodes["process_index"].max()) + 1 + iteration, nodes["process_index"])
    is_unnamed = inferred | names.node_is("role", "operator")
    for rows in (np.flatnonzero(loose & ~is_unnamed), np.flatnonzero(loose & is_unnamed)):
        target[rows] = innermost_of_another(nodes, where, holders, rows)
        holders = np.union1d(holders, np.flatnonzero(is_plain))
    if (target < 0).all():
        return nodes
    changed = np.where(target >= 0, target, parent)
    return nodes.assign(parent_id=changed, depth=depths(changed))


def innermost_of_another(nodes: pd.DataFrame, where: np.ndarray, holders: np.ndarray, loose: np.ndarray) -> np.ndarray:
    """The shortest holder in the same place (``where``: a number per node) around each loose range; −1 none, or one of
    its own thread."""
    thread, depth, start, end = (nodes[c].to_numpy() for c in ("thread_index", "depth", "start_ns", "end_ns"))
    nesting = nest(where[holders], start[holders], end[holders], depth[holders])
    found = np.append(holders, -1)[nesting.innermost(where[loose], start[loose], end[loose])]
    return np.where(thread[found] == thread[loose], -1, found)


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
