"""Tree → the communication kernels of one capture, with size and group of the collective that each belongs to."""

import json

import numpy as np
import pandas as pd

from xsp_post.model.tree import Tree
from xsp_post.replay.collectives import collectives_frame

_HIGHEST = 4  # ranges above a launch that are looked at: the kernel, its NCCL range, the operator with the sizes
_SAID = ("message_bytes", "group_size", "group_name", "said_kind", "peer_rank")
_NOTHING = {"group_name": "", "said_kind": ""}


def own_collectives(tree: Tree, kernels: pd.DataFrame) -> pd.DataFrame:
    """The table ``collectives``, what needs other ranks still empty."""
    return collectives_frame(kernels, messages(tree))


def messages(tree: Tree) -> pd.DataFrame:
    """Bytes of the message, ranks of the group and its name, what the collective is called, and the rank at the other
    end of a transfer, per kernel; NaN and '' where the recording has none.

    They stand on the kernel itself, or on the operator around its launch (Kineto's ``record_param_comms``), in
    ``Trace.attributes``.
    """
    kernels, attributes = tree.kernels, tree.trace.attributes
    found = _decoded(tree, kernels["message_text_id"].to_numpy() if "message_text_id" in kernels else None)
    found = found.reindex(range(len(kernels))).set_axis(kernels.index)
    if "message_text_id" in attributes:
        of_span = _decoded(tree, attributes["message_text_id"].to_numpy())
    elif "message_bytes" in attributes:
        of_span = attributes[list(_SAID[:3])].assign(said_kind="", peer_rank=np.nan)
    else:
        return found.fillna(_NOTHING)
    span_count = len(tree.trace.spans)
    of_span = of_span.reindex(range(-1, span_count))  # the row of −1 has nothing
    parent = tree.nodes["parent_id"].to_numpy()
    node = kernels["launch_node_id"].to_numpy().astype(np.int64).copy()
    for _ in range(_HIGHEST):
        span = np.where((node > 0) & (node <= span_count), node, 0)
        found = found.fillna(of_span.iloc[span].set_axis(kernels.index))
        node = np.where(node > 0, parent[np.maximum(node, 0)], 0)
    return found.fillna(_NOTHING)


def _decoded(tree: Tree, text_ids: np.ndarray | None) -> pd.DataFrame:
    """`_SAID` of what collectives say as JSON; NaN, also as name, where there is none."""
    ids = np.zeros(0, np.int64) if text_ids is None else text_ids
    different, codes = np.unique(ids, return_inverse=True)
    rows = [json.loads(str(tree.strings[one])) if one >= 0 else [None] * len(_SAID) for one in different.tolist()]
    frame = pd.DataFrame(rows, columns=list(_SAID), dtype=object).iloc[codes].reset_index(drop=True)
    return frame.astype({"message_bytes": float, "group_size": float, "peer_rank": float})
