"""Tree → core tables: ``nodes``, one row per range, root and synthetic node."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.model.levels import Level
from xsp_post.model.tree import Tree
from xsp_post.tree_tables.columns import Threads, categorical, span_kinds


def nodes_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    nodes, names, trace = tree.nodes, tree.names, tree.trace
    count = len(nodes)
    texts = np.append(tree.strings, "").astype(object) if len(tree.strings) else np.array([""], object)
    folded = np.asarray(names.folded_names, object)
    name_id = nodes["name_id"].to_numpy()
    own_name = name_id < 0
    # nodes without a text of their own (synthetic ones) go by their folded name
    combined = np.concatenate([texts, folded])
    code = np.where(own_name, nodes["folded_id"].to_numpy() + len(texts), name_id)
    domain = np.append(trace.domains["name"].to_numpy(object), "")
    frame = pd.DataFrame(
        {
            "node_id": np.arange(count, dtype=np.int64),
            "parent_id": nodes["parent_id"].to_numpy(),
            "depth": nodes["depth"].to_numpy(),
            "level": pd.Categorical.from_codes(nodes["level"].to_numpy(), pd.Index([m.name for m in Level])),
            "name": categorical(code, combined),
            "folded_name": categorical(nodes["folded_id"].to_numpy(), folded),
            "path_id": nodes["path_id"].to_numpy(),
            "domain": categorical(nodes["domain_index"].to_numpy(), domain),
            "process_id": threads.process_id(nodes["process_index"].to_numpy()),
            "thread_id": threads.thread_id(nodes["thread_index"].to_numpy()),
        },
        copy=False,
    )
    for column in ("start_ns", "end_ns"):
        frame[column] = nodes[column].to_numpy()
    frame["duration_ns"] = frame["end_ns"].to_numpy() - frame["start_ns"].to_numpy()
    for column in (
        "self_ns", "projected_start_ns", "projected_end_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns",
        "kernel_count", "self_kernel_ns", "self_kernel_count", "memory_bytes", "device_operation_count",
        "iteration_index", "layer_node_id", "call_index",
    ):  # fmt: skip
        frame[column] = nodes[column].to_numpy()
    several = nodes["gpu_count"].to_numpy() > 1
    if several.any():  # no GPU's busy time: each has its own in `devices`
        frame["busy_ns"] = np.where(several, np.nan, frame["busy_ns"])
    frame["layer_index"] = nodes["layer_key"].to_numpy() + (nodes["layer_key"].to_numpy() >= 0)
    for column in ("layer_type", "shape_text", "dialect"):
        frame[column] = names.node_category(column)
    _from_payloads(tree, frame)
    frame["sequence"] = nodes["sequence"].to_numpy()
    frame["is_inferred"] = nodes["is_inferred"].to_numpy()
    frame["confidence_ratio"] = nodes["confidence_ratio"].to_numpy()
    frame["is_open"] = nodes["is_open"].to_numpy()
    frame["source_row_id"] = nodes["source_row_id"].to_numpy()
    frame["span_kind"] = span_kinds(nodes["kind"].to_numpy())
    return frame


def _from_payloads(tree: Tree, frame: pd.DataFrame) -> None:
    """What a range's payload or its operator's record says beats what its text says (columns in place)."""
    attributes = tree.trace.attributes
    for column in ("shape_text", "layer_type", "tactic_name"):
        if column not in attributes or not len(attributes):
            continue
        values = attributes[column].dropna()
        values = values[values.astype(str) != ""]
        texts = np.full(len(frame), "", object)
        if column in frame:
            texts[:] = frame[column].astype(object)
        texts[values.index.to_numpy(int) + 1] = values.astype(str).to_numpy(object)
        frame[column] = pd.Categorical(texts)
