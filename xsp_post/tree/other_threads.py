"""Trace → Tree, step "backward under its step": work of another thread for an execution is moved below that execution.

PyTorch's autograd engine runs backward work on a thread of its own. The tables count it for the step that covers
it in time; here its outermost ranges get that step, or the phase of it that covers them, as their parent.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import depths, nest
from xsp_post.model.levels import Level
from xsp_post.model.trace import SpanKind
from xsp_post.tree.node_names import NodeNames

_PHASES = ("forward", "backward", "optimizer", "train_step")


def under_their_step(nodes: pd.DataFrame, names: NodeNames) -> pd.DataFrame:
    """Nodes with the outermost ranges of other threads below the execution they belong to. Needs iteration_index."""
    iteration, parent = nodes["iteration_index"].to_numpy(), nodes["parent_id"].to_numpy()
    level, kind = nodes["level"].to_numpy(), nodes["kind"].to_numpy()
    thread = nodes["thread_index"].to_numpy()
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
    is_holder = (is_phase & ~own & (thread >= 0)) | (level == int(Level.MODEL))
    target = _innermost(nodes, np.flatnonzero(is_holder & (iteration >= 0)), loose)
    moved = target >= 0
    if not moved.any():
        return nodes
    changed = parent.copy()
    changed[loose[moved]] = target[moved]
    return nodes.assign(parent_id=changed, depth=depths(changed))


def _innermost(nodes: pd.DataFrame, holders: np.ndarray, loose: np.ndarray) -> np.ndarray:
    """The shortest holder of the same iteration around each loose range; −1 none, or one of its own thread."""
    columns = ("iteration_index", "start_ns", "end_ns")
    nesting = nest(*(nodes[c].to_numpy()[holders] for c in columns))
    found = np.append(holders, -1)[nesting.innermost(*(nodes[c].to_numpy()[loose] for c in columns))]
    thread = nodes["thread_index"].to_numpy()
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
