"""Tree → the communication kernels of one capture, with size and group of the collective that each belongs to."""

import json

import numpy as np
import pandas as pd

from xsp_post.model.tree import Tree
from xsp_post.names.families import joins_ranks
from xsp_post.replay.collectives import collectives_frame

_HIGHEST = 4  # ranges above a launch that are looked at: the kernel, its NCCL range, the operator with the sizes
_SAID = ("message_bytes", "group_size", "group_name", "said_kind", "peer_rank")
_TELLING = (*_SAID[:3], "message_text_id")
_NOTHING = {"group_name": "", "said_kind": ""}


def own_collectives(tree: Tree, kernels: pd.DataFrame) -> pd.DataFrame:
    """The table ``collectives``, what needs other ranks still empty."""
    return collectives_frame(kernels, _messages(tree, np.flatnonzero(joins_ranks(kernels["name"]))))


def _messages(tree: Tree, rows: np.ndarray) -> pd.DataFrame:
    """Bytes of the message, ranks of the group and its name, what the collective is called, and the rank at the other
    end of a transfer, of these kernels; NaN and '' where the recording has none.

    They stand on the kernel itself, or on the operator around its launch (Kineto's ``record_param_comms``), in
    ``Trace.attributes``.
    """
    kernels, attributes = tree.kernels.iloc[rows], tree.trace.attributes
    found, telling = _decoded(tree, kernels), [one for one in _TELLING if one in attributes]
    parent = tree.nodes["parent_id"].to_numpy()
    node = kernels["launch_node_id"].to_numpy().astype(np.int64)
    for _ in range(_HIGHEST if telling else 0):
        around = attributes.reindex(node - 1, columns=telling)  # span k is node k + 1; the root is none
        of_span = _decoded(tree, around)
        if "message_text_id" not in around and "message_bytes" in around:
            of_span |= {name: around[name].to_numpy() for name in _SAID[:3]}
        for name, values in found.items():
            found[name] = np.where(pd.isna(values), of_span[name], values)
        node = np.where(node > 0, parent[np.maximum(node, 0)], 0)
    return pd.DataFrame(found).fillna(_NOTHING)


def _decoded(tree: Tree, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """`_SAID` of what collectives say as JSON, by name; NaN, also as name, where there is none."""
    ids = rows["message_text_id"].fillna(-1).to_numpy(np.int64) if "message_text_id" in rows else np.full(len(rows), -1)
    different, codes = np.unique(ids, return_inverse=True)
    said = [json.loads(str(tree.strings[one])) if one >= 0 else [None] * len(_SAID) for one in different.tolist()]
    columns = zip(*said) if said else [()] * len(_SAID)
    return {
        name: np.array(values, object if name in _NOTHING else float)[codes] for name, values in zip(_SAID, columns)
    }
