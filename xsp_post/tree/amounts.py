"""Trace → Tree, step "how much": inclusive and own device time, and counts, of every node; and for ranges that overlap
partially their projections as NVIDIA defines them.

A tree gives each launch one innermost range. Where ranges overlap partially, a launch may lie in two ranges
neither of which is in the other, and both projections include its work.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.projected import projected
from xsp_post.model.trace import DEVICE_PARTS, ActivityKind, Trace
from xsp_post.tree.frames import with_columns
from xsp_post.tree.other_threads import is_of_other_thread, own_forest


def roll_up(nodes: pd.DataFrame, activities: pd.DataFrame) -> pd.DataFrame:
    """The nodes with their inclusive and own device time. Unions and sums one after the other: side by side a tree of a
    million kernels needs 90 MB more."""
    columns = {**_unions(nodes, activities), **_sums(nodes, activities)}
    columns["gpu_count"] = _gpu_counts(nodes["parent_id"].to_numpy(), columns, activities)
    return with_columns(nodes, columns)


def _gpu_counts(parent: np.ndarray, amounts: dict[str, np.ndarray], activities: pd.DataFrame) -> np.ndarray:
    """On how many physical GPUs the work of each node ran: of several, ``busy_ns`` is not the busy time of any GPU."""
    gpu, node = activities["gpu_index"].to_numpy(), activities["node_id"].to_numpy()
    used = distinct(gpu)
    if len(used) < 2:
        return np.logical_or.reduce([(amounts[f"{part}_count"] > 0) | (amounts[f"{part}_ns"] > 0)
                                     for part in DEVICE_PARTS]).astype(np.int8)  # fmt: skip
    counts = np.zeros(len(parent), np.int64)
    for one in used.tolist():
        own = np.bincount(node[gpu == one], minlength=len(parent)) > 0
        counts += rollup.holds(own, parent)
    return np.minimum(counts, np.iinfo(np.int8).max).astype(np.int8)


def _sums(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent = nodes["parent_id"].to_numpy()
    count = len(nodes)
    kind = activities["kind"].to_numpy()
    node = activities["node_id"].to_numpy()
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    nothing = np.zeros(count, np.int64)
    columns = {"self_device_ns": nothing, "device_ns": nothing, "memory_bytes": nothing}
    for part, kinds in DEVICE_PARTS.items():
        rows = _rows_of(kind, kinds)
        if not isinstance(rows, slice) and not len(rows):
            columns[f"{part}_ns"] = columns[f"{part}_count"] = nothing
            if part == "kernel":
                columns["self_kernel_ns"] = columns["self_kernel_count"] = nothing
            continue
        own_ns = rollup.sums_per_node(node[rows], duration[rows], count)
        counted = None if "is_counted" not in activities else activities["is_counted"].to_numpy()[rows]
        own_count = np.bincount(node[rows], counted, count).astype(np.int64, copy=False)
        columns[f"{part}_ns"] = rollup.add_up(own_ns, parent)
        columns[f"{part}_count"] = rollup.add_up(own_count, parent)
        if part == "kernel":
            columns["self_kernel_ns"], columns["self_kernel_count"] = own_ns, own_count
        if part == "copy":
            own_bytes = rollup.sums_per_node(node[rows], activities["bytes"].to_numpy()[rows], count)
            columns["memory_bytes"] = rollup.add_up(own_bytes, parent)
        columns["self_device_ns"] = _plus(columns["self_device_ns"], own_ns, nothing)
        columns["device_ns"] = _plus(columns["device_ns"], columns[f"{part}_ns"], nothing)
    length = nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    own = length.copy()
    other = is_of_other_thread(nodes)  # a thread's time holds no other thread's
    np.subtract.at(own, parent[1:], np.where(other, 0, length)[1:] if other.any() else length[1:])
    own[0] = length[0]  # of the capture, all of it
    columns["self_ns"] = np.maximum(own, 0, out=own)
    return columns


def _rows_of(kind: np.ndarray, kinds: tuple[ActivityKind, ...]) -> np.ndarray | slice:
    """The activities of some kinds; a slice where all are."""
    chosen = np.isin(kind, [int(k) for k in kinds]) if len(kinds) > 1 else kind == int(kinds[0])
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _plus(total: np.ndarray, part: np.ndarray, nothing: np.ndarray) -> np.ndarray:
    """The sum; the part itself where there is nothing to add it to (a million nodes: no second array)."""
    return part if total is nothing else total + part


def _unions(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    node, launch_node = activities["node_id"].to_numpy(), activities["launch_node_id"].to_numpy()
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    order = None if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")
    busy, first, last = rollup.busy_and_extent(node, start, end, parent, depth, order)
    # NVIDIA's projection knows same-thread launches of kernels and copies only (`nvtx_gpu_proj_trace`)
    projected = (launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH)
    own_parent, own_depth = own_forest(nodes)
    if not (np.array_equal(own_parent, parent) and projected.all() and (launch_node == node).all()):
        chosen = np.flatnonzero(projected) if order is None else order[projected[order]]
        _, first, last = rollup.busy_and_extent(launch_node, start, end, own_parent, own_depth, chosen)
    first[0] = last[0] = -1
    return {"busy_ns": busy, "projected_start_ns": first, "projected_end_ns": last}


def distinct_operations(nodes: pd.DataFrame, activities: pd.DataFrame) -> np.ndarray:
    """Distinct correlation ids of work launched inside (`NumGPUOps` of nvtx_gpu_proj_trace)."""
    parent, _ = own_forest(nodes)
    launch_node = activities["launch_node_id"].to_numpy()
    process = activities["process_index"].to_numpy()
    correlation = activities["correlation_id"].to_numpy()
    rows = np.flatnonzero((launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH))
    if len(rows):
        width = int(correlation[rows].max()) - int(correlation[rows].min()) + 1
        key = (correlation[rows] - correlation[rows].min()) + process[rows].astype(np.int64) * width
        if not (key[1:] > key[:-1]).all():
            rows = rows[~pd.Series(key).duplicated().to_numpy()]
    own = np.bincount(launch_node[rows], minlength=len(parent)).astype(np.int64)
    return rollup.add_up(own, parent)


def project_overlapping(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, spans: np.ndarray
) -> dict[str, np.ndarray]:
    """projected_start_ns, projected_end_ns and device_operation_count of all nodes, with those of ``spans``
    (span k is node k + 1) taken over all launches of their thread inside them instead of from the tree.

    ``nodes`` must have the three columns; nodes not named keep their values. Shapes (nodes,) out.
    """
    columns = ("projected_start_ns", "projected_end_ns", "device_operation_count")
    result = {name: nodes[name].to_numpy().copy() for name in columns if name in nodes}
    launch_id, kind = activities["launch_id"].to_numpy(), activities["kind"].to_numpy()
    work = np.flatnonzero((launch_id >= 0) & (kind != ActivityKind.GRAPH))
    thread_of_launch = trace.launches["thread_index"].to_numpy()[launch_id[work]]
    thread_of_span = trace.spans["thread_index"].to_numpy()[spans]
    for thread in distinct(thread_of_span).tolist():
        mine, rows = spans[thread_of_span == thread], work[thread_of_launch == thread]
        launch = launch_id[rows]
        order = np.lexsort((launch, trace.launches["start_ns"].to_numpy()[launch]))
        rows, launch = rows[order], launch[order]
        begin, end = (trace.launches[c].to_numpy()[launch] for c in ("start_ns", "end_ns"))
        first, last = (activities[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        is_new = np.append(True, launch[1:] != launch[:-1])[: len(launch)]
        start, stop = (trace.spans[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))
        values = projected(begin, end, first, last, is_new, start, stop)
        for name, column in zip(columns, values):
            if name in result:
                result[name][mine + 1] = column
    return result
