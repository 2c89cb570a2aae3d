"""Trace → Tree, step "how much": inclusive and own device time, and counts, of every node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.model.trace import ActivityKind


def roll_up(nodes: pd.DataFrame, activities: pd.DataFrame) -> None:
    """Inclusive and own device time of every node (columns added in place). Sums and unions are independent
    of one another and NumPy leaves the interpreter free: they run side by side."""
    with ThreadPoolExecutor(1) as pool:
        unions = pool.submit(_unions, nodes, activities)
        sums = _sums(nodes, activities)
        columns = {**sums, **unions.result()}
    for name, values in columns.items():
        nodes[name] = values


def _sums(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    count = len(nodes)
    kind = activities["kind"].to_numpy()
    node = activities["node_id"].to_numpy()
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    is_kernel = kind == ActivityKind.KERNEL
    own: np.ndarray | slice = slice(None) if is_kernel.all() else is_kernel
    columns = {
        "self_kernel_ns": rollup.sums_per_node(node[own], duration[own], count),
        "self_kernel_count": np.bincount(node[own], minlength=count).astype(np.int64),
    }
    columns["self_device_ns"] = (
        columns["self_kernel_ns"] if isinstance(own, slice) else rollup.sums_per_node(node, duration, count)
    )
    columns["kernel_ns"] = rollup.add_up(columns["self_kernel_ns"], parent, depth)
    columns["kernel_count"] = rollup.add_up(columns["self_kernel_count"], parent, depth)
    is_memory = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    for column, values in (("memory_ns", duration), ("memory_bytes", activities["bytes"].to_numpy())):
        columns[column] = np.zeros(count, np.int64)
        if is_memory.any():
            own_memory = rollup.sums_per_node(node[is_memory], values[is_memory], count)
            columns[column] = rollup.add_up(own_memory, parent, depth)
    length = nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    child = np.flatnonzero(parent > 0)
    columns["self_ns"] = np.maximum(0, length - rollup.sums_per_node(parent[child], length[child], count))
    return columns


def _unions(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    node, launch_node = activities["node_id"].to_numpy(), activities["launch_node_id"].to_numpy()
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    order = _start_order(start)
    busy, first, last = rollup.busy_and_extent(node[order], start[order], end[order], parent, depth)
    # NVIDIA's projection knows same-thread launches of kernels and copies only (`nvtx_gpu_proj_trace`)
    projected = (launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH)
    if not (projected.all() and (launch_node == node).all()):
        chosen = np.flatnonzero(projected) if isinstance(order, slice) else order[projected[order]]
        _, first, last = rollup.busy_and_extent(launch_node[chosen], start[chosen], end[chosen], parent, depth)
    first[0] = last[0] = -1
    return {"busy_ns": busy, "projected_start_ns": first, "projected_end_ns": last}


def _start_order(start: np.ndarray) -> np.ndarray | slice:
    return slice(None) if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")


def distinct_operations(nodes: pd.DataFrame, activities: pd.DataFrame) -> np.ndarray:
    """Distinct correlation ids of work launched inside (`NumGPUOps` of nvtx_gpu_proj_trace)."""
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    launch_node = activities["launch_node_id"].to_numpy()
    process = activities["process_index"].to_numpy()
    correlation = activities["correlation_id"].to_numpy()
    rows = np.flatnonzero((launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH))
    if len(rows):
        width = int(correlation[rows].max()) - int(correlation[rows].min()) + 1
        key = (correlation[rows] - correlation[rows].min()) + process[rows].astype(np.int64) * width
        if not _is_strictly_ascending(key):
            rows = rows[~pd.Series(key).duplicated().to_numpy()]
    own = np.bincount(launch_node[rows], minlength=len(parent)).astype(np.int64)
    return rollup.add_up(own, parent, depth)


def _is_strictly_ascending(values: np.ndarray) -> bool:
    return bool((values[1:] > values[:-1]).all())
