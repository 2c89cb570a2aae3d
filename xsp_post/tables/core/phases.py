"""Tree → the phase of each kernel of a training step: forward, backward, optimizer or other."""

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.model.kinds import PHASES
from xsp_post.model.tree import Tree

NONE, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)


def kernel_phases(tree: Tree, kernels: pd.DataFrame) -> np.ndarray:
    """Code of `PHASES` per kernel. Nothing tells phases apart in a capture without backward kernels: all ''.

    A range's text says the phase of what is inside it; what a backward range computes again is backward. Of the
    rest, what autograd numbered is forward (the loss too), and what counts for a layer before the first backward
    kernel of its execution; the remainder is other.
    """
    of_node = node_phases(tree)
    node, launch_node = kernels["node_id"].to_numpy(), kernels["launch_node_id"].to_numpy()
    phase = of_node[np.where(launch_node > 0, launch_node, node)]
    phase = np.where(phase == NONE, of_node[node], phase)
    in_layer = (kernels["layer_node_id"].to_numpy() >= 0) & _is_before_backward(kernels, phase == BACKWARD)
    return with_rest(tree, phase, node, in_layer)


def with_rest(tree: Tree, phase: np.ndarray, node: np.ndarray, in_layer: np.ndarray) -> np.ndarray:
    """Codes of `PHASES` with those of what no range tells: forward what autograd numbered, or a layer has, else other.
    All '' where nothing is backward."""
    if not (phase == BACKWARD).any():
        return np.zeros(len(phase), np.int8)
    is_forward = in_layer | (np.append(tree.nodes["sequence"].to_numpy(), -1)[node] >= 0)
    return np.where(phase == NONE, np.where(is_forward, FORWARD, OTHER), phase).astype(np.int8)


def _is_before_backward(kernels: pd.DataFrame, is_backward: np.ndarray) -> np.ndarray:
    """Which kernels begin before the first backward kernel of their execution."""
    start = kernels["start_ns"].to_numpy()
    iteration = kernels["iteration_index"].to_numpy() + 1
    first = np.full(int(iteration.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, iteration[is_backward], start[is_backward])
    return start < first[iteration]


def node_phases(tree: Tree) -> np.ndarray:
    """Code of `PHASES` per node: what its own text or the nearest range around it says."""
    text = tree.names.node_category("phase")
    said = [PHASES.index(one) if one in PHASES[:OTHER] else NONE for one in text.categories]
    own = np.array(said, np.int8)[text.codes]
    if not own.any():
        return own
    forest = forest_of(tree.nodes["parent_id"].to_numpy())
    # inside backward or optimiser work nothing else begins
    closed = forest.outermost_around((own == BACKWARD) | (own == OPTIMIZER))
    source = np.where(closed >= 0, closed, forest.nearest(own != NONE))
    return np.where(source >= 0, own[source], NONE).astype(np.int8)
