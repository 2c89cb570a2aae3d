"""Tree → core tables: ``kernels`` and ``memory_operations``, one row per device activity."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.categories import categorical
from xsp_post.model.trace import COPY_DIRECTIONS, ActivityKind
from xsp_post.model.tree import Attribution, LayerAttribution, Tree
from xsp_post.tables.core.columns import Launches, Threads, named
from xsp_post.tables.core.operations import copy_directions, memory_kind, memory_kind_names


def kernels_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    kernels = tree.kernels
    launch = Launches(tree, kernels["launch_id"].to_numpy())
    launch_start = launch.column("start_ns")
    start = kernels["start_ns"].to_numpy()
    layer_key = kernels["layer_key"].to_numpy()
    graph_node = kernels["graph_node_id"].to_numpy()
    count = len(kernels)
    source = kernels["source_text_id"].to_numpy() if "source_text_id" in kernels else np.full(count, -1, np.int32)
    columns: dict[str, object] = {
        "kernel_id": np.arange(count, dtype=np.int64),
        "node_id": kernels["node_id"].to_numpy(),
        "layer_node_id": kernels["layer_node_id"].to_numpy(),
        "layer_index": layer_key + (layer_key >= 0),
        "iteration_index": kernels["iteration_index"].to_numpy(),
        "name": categorical(kernels["name_id"].to_numpy(), tree.strings),
        "short_name": categorical(kernels["short_name_id"].to_numpy(), tree.strings),
        "process_id": threads.process_id(kernels["process_index"].to_numpy()),
        "device_id": kernels["device_id"].to_numpy(),
        "stream_id": kernels["stream_id"].to_numpy(),
        "correlation_id": kernels["correlation_id"].to_numpy(np.int64),
        "start_ns": start,
        "end_ns": kernels["end_ns"].to_numpy(),
        "duration_ns": kernels["end_ns"].to_numpy() - start,
        "launch_start_ns": launch_start,
        "launch_end_ns": launch.column("end_ns"),
        "launch_thread_id": threads.thread_id(launch.column("thread_index")),
        "queue_delay_ns": np.where(launch.has, start - launch_start, -1),
        "attribution": named(kernels["attribution"].to_numpy(), Attribution),
        "layer_attribution": named(kernels["layer_attribution"].to_numpy(), LayerAttribution),
        "graph_node_id": np.where(graph_node == 0, -1, graph_node),
        "source_line": categorical(source, tree.strings),
    }
    for column in (
        "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
        "static_shared_memory_bytes", "dynamic_shared_memory_bytes",
    ):  # fmt: skip
        columns[column] = kernels[column].to_numpy() if column in kernels else np.full(count, -1, np.int32)
    return pd.DataFrame(columns, copy=False)  # a column set later would be copied


def memory_operations_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    rows = tree.activities[tree.activities["kind"].to_numpy() != ActivityKind.KERNEL]
    launch = Launches(tree, rows["launch_id"].to_numpy())
    layer_key = rows["layer_key"].to_numpy()
    return pd.DataFrame(
        {
            "activity_id": np.arange(len(rows), dtype=np.int64),
            "kind": named(rows["kind"].to_numpy(), ActivityKind),
            "node_id": rows["node_id"].to_numpy(),
            "layer_node_id": rows["layer_node_id"].to_numpy(),
            "layer_index": layer_key + (layer_key >= 0),
            "iteration_index": rows["iteration_index"].to_numpy(),
            "name": categorical(rows["name_id"].to_numpy(), tree.strings),
            "process_id": threads.process_id(rows["process_index"].to_numpy()),
            "device_id": rows["device_id"].to_numpy(),
            "stream_id": rows["stream_id"].to_numpy(),
            "correlation_id": rows["correlation_id"].to_numpy(np.int64),
            "start_ns": rows["start_ns"].to_numpy(),
            "end_ns": rows["end_ns"].to_numpy(),
            "bytes": rows["bytes"].to_numpy(),
            "direction": copy_directions(rows["copy_kind"].to_numpy().astype(np.int64) % len(COPY_DIRECTIONS)),
            "memory_kind": memory_kind_names(memory_kind(rows)),
            "attribution": named(rows["attribution"].to_numpy(), Attribution),
            "layer_attribution": named(rows["layer_attribution"].to_numpy(), LayerAttribution),
            "launch_start_ns": launch.column("start_ns"),
            "launch_end_ns": launch.column("end_ns"),
            "launch_thread_id": threads.thread_id(launch.column("thread_index")),
        }
    )
