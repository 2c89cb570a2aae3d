"""Tree → core tables: ``nodes``, one row per range, root and synthetic node."""

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import categorical
from xsp_post.model.levels import Level
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.tables.core.columns import Threads, named


def nodes_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    nodes, names, trace = tree.nodes, tree.names, tree.trace
    count = len(nodes)
    folded = np.asarray(names.folded_names, object)
    name_id = nodes["name_id"].to_numpy()
    own_name = name_id < 0
    # nodes without a text of their own (synthetic ones) go by their folded name
    code = np.where(own_name, nodes["folded_id"].to_numpy() + len(tree.strings), name_id)
    domain = np.append(trace.domains["name"].to_numpy(object), "")
    start, end = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    layer_key = nodes["layer_key"].to_numpy()
    columns: dict[str, object] = {
        "node_id": np.arange(count, dtype=np.int64),
        **{name: nodes[name].to_numpy() for name in ("parent_id", "depth", "path_id")},
        "level": pd.Categorical.from_codes(nodes["level"].to_numpy(), pd.Index([m.name for m in Level])),
        "name": categorical(code, tree.strings, folded),
        "folded_name": categorical(nodes["folded_id"].to_numpy(), folded),
        "domain": categorical(nodes["domain_index"].to_numpy(), domain),
        "process_id": threads.process_id(nodes["process_index"].to_numpy()),
        "thread_id": threads.thread_id(nodes["thread_index"].to_numpy()),
        "start_ns": start,
        "end_ns": end,
        "duration_ns": end - start,
    }
    for column in (
        "self_ns", "projected_start_ns", "projected_end_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns",
        "kernel_count", "self_kernel_ns", "self_kernel_count", "memory_bytes", "device_operation_count",
        "iteration_index", "layer_node_id", "call_index",
    ):  # fmt: skip
        columns[column] = nodes[column].to_numpy()
    several = nodes["gpu_count"].to_numpy() > 1
    if several.any():  # no GPU's busy time: each has its own in `devices`
        columns["busy_ns"] = np.where(several, np.nan, nodes["busy_ns"].to_numpy())
    columns["layer_index"] = layer_key + (layer_key >= 0)
    for column in ("layer_type", "shape_text", "dialect"):
        columns[column] = names.node_category(column)
    _from_payloads(tree, columns, count)
    for column in ("sequence", "is_inferred", "confidence_ratio", "is_open", "source_row_id"):
        columns[column] = nodes[column].to_numpy()
    columns["span_kind"] = named(nodes["kind"].to_numpy(), NodeKind)
    return pd.DataFrame(columns, copy=False)  # a column set later would be copied


def _from_payloads(tree: Tree, columns: dict[str, object], count: int) -> None:
    """What a range's payload or its operator's record says beats what its text says (columns in place)."""
    attributes = tree.trace.attributes
    for column in ("shape_text", "layer_type", "tactic_name"):
        if column not in attributes or not len(attributes):
            continue
        values = attributes[column].dropna()
        values = values[values.astype(str) != ""]
        texts = np.full(count, "", object)
        if column in columns:
            texts[:] = columns[column]
        texts[values.index.to_numpy(int) + 1] = values.astype(str).to_numpy(object)
        columns[column] = pd.Categorical(texts)
