"""Tree → the communication kernels of one capture, with size and group of the collective that each belongs to."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.model.tree import Tree
from xsp_post.replay.collectives import collectives_frame

_HIGHEST = 4  # ranges above a launch that are looked at: the kernel, its NCCL range, the operator with the sizes


def own_collectives(tree: Tree, kernels: pd.DataFrame) -> pd.DataFrame:
    """The table ``collectives``, what needs other ranks still empty."""
    return collectives_frame(kernels, *message_sizes(tree))


def message_sizes(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the message and ranks of the group, per kernel; NaN where the recording has none.

    They stand on the operator around the launch (Kineto's ``record_param_comms``), in ``Trace.attributes``.
    """
    kernels, attributes = tree.kernels, tree.trace.attributes
    size = np.full(len(kernels), np.nan)
    group = np.full(len(kernels), np.nan)
    if "message_bytes" not in attributes or not len(kernels):
        return size, group
    span_count = len(tree.trace.spans)
    of_span = {name: attributes[name].reindex(range(span_count)).to_numpy(float) for name in
               ("message_bytes", "group_size")}  # fmt: skip
    parent = tree.nodes["parent_id"].to_numpy()
    node = kernels["launch_node_id"].to_numpy().astype(np.int64).copy()
    for _ in range(_HIGHEST):
        span = node - 1
        inside = (span >= 0) & (span < span_count)
        for values, name in ((size, "message_bytes"), (group, "group_size")):
            found = np.where(inside, of_span[name][np.clip(span, 0, max(span_count - 1, 0))], np.nan)
            values[:] = np.where(np.isnan(values), found, values)
        node = np.where(node > 0, parent[np.maximum(node, 0)], 0)
    return size, group
