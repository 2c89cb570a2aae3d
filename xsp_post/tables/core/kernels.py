"""Tree → core tables: ``kernels`` and ``memory_operations``, one row per device activity."""

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import dense
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.arrays.texts import categorical
from xsp_post.model.levels import Level
from xsp_post.model.results import empty_table
from xsp_post.model.schemas import column_names
from xsp_post.model.trace import COPY_DIRECTIONS, ActivityKind, MemoryKind
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind, Tree
from xsp_post.replay.windows import is_measured
from xsp_post.tables.core.columns import Launches, Threads, named
from xsp_post.tree.pieces import spans

_DIRECTIONS = pd.Index(dict.fromkeys(COPY_DIRECTIONS))
_OF_COPY_KIND = _DIRECTIONS.get_indexer(pd.Index(COPY_DIRECTIONS))
MEMORY_KINDS = pd.Index(["", *(kind.name.lower().replace("_", " ") for kind in MemoryKind if kind)])  # 0: unknown


def operations_frame(tree: Tree) -> pd.DataFrame:
    """Device work by path and what it was (schemas: operations), heaviest first within each path."""
    activities = tree.activities
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    columns = [*_paths(tree), *(activities[c].to_numpy() for c in ("kind", "name_id", "copy_kind"))]
    columns += [memory_kind(activities), np.asarray(activities.get("source_text_id", np.full(len(activities), -1)))]
    code, first = dense(*columns)
    path, counted, kind, name, copy_kind, memory, line = (column[first] for column in columns)
    frame = pd.DataFrame(
        {
            "path_id": path.astype(np.int64),
            "counted_path_id": counted.astype(np.int64),
            "kind": named(kind, ActivityKind),
            "name": categorical(name, tree.strings),
            "direction": copy_directions(copy_kind.astype(np.int64) % len(COPY_DIRECTIONS)),
            "memory_kind": memory_kind_names(memory),
            "source_line": categorical(line, tree.strings),
            "operation_count": np.bincount(code, minlength=len(first)).astype(np.int64),
            "device_ns": sums_per_node(code, duration, len(first)),
            "measured_ns": sums_per_node(code, duration * is_measured(tree), len(first)),
            "bytes": sums_per_node(code, activities["bytes"].to_numpy(), len(first)),
        }
    )
    return frame.sort_values(["path_id", "device_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def _paths(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """The path of the range around each activity's launch, and of the one that it counts for: of a gradient the module
    of its forward operator."""
    path = tree.nodes["path_id"].to_numpy()
    node, layer, way = (tree.activities[name].to_numpy() for name in ("node_id", "layer_node_id", "layer_attribution"))
    is_part = tree.nodes["level"].isin((Level.LAYER, Level.MODULE)) & tree.nodes["kind"].ne(NodeKind.OPERATOR)
    is_moved = (way == LayerAttribution.SEQUENCE) & is_part.to_numpy()[layer]
    return path[node], path[np.where(is_moved, layer, node)]


def memory_kind(activities: pd.DataFrame) -> np.ndarray:
    """`MemoryKind` of each activity; 0 where the reader does not know any."""
    if "memory_kind" not in activities:
        return np.zeros(len(activities), np.int8)
    values = activities["memory_kind"].to_numpy()
    return np.where((values >= 0) & (values < len(MemoryKind)), values, 0)


def copy_directions(copy_kind: np.ndarray) -> "pd.Categorical[str]":
    """From where to where, '' for what is not a copy."""
    return pd.Categorical.from_codes(_OF_COPY_KIND[copy_kind], _DIRECTIONS)


def memory_kind_names(kind: np.ndarray) -> "pd.Categorical[str]":
    """Where the host's side lies: pageable, pinned, managed …; '' unknown."""
    return pd.Categorical.from_codes(kind, MEMORY_KINDS)


def kernels_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    kernels = tree.kernels
    launch = Launches(tree, kernels["launch_id"].to_numpy())
    start, graph_node, count = kernels["start_ns"].to_numpy(), kernels["graph_node_id"].to_numpy(), len(kernels)
    source = kernels["source_text_id"].to_numpy() if "source_text_id" in kernels else np.full(count, -1, np.int32)
    columns = _of_activities(tree, threads, kernels, launch) | {
        "kernel_id": np.arange(count, dtype=np.int64),
        "short_name": categorical(kernels["short_name_id"].to_numpy(), tree.strings),
        "duration_ns": kernels["end_ns"].to_numpy() - start,
        "queue_delay_ns": np.where(launch.has, start - launch.column("start_ns"), -1),
        "graph_node_id": np.where(graph_node == 0, -1, graph_node),
        "source_line": categorical(source, tree.strings),
    }
    for column in (
        "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
        "static_shared_memory_bytes", "dynamic_shared_memory_bytes",
    ):  # fmt: skip
        columns[column] = kernels[column].to_numpy() if column in kernels else np.full(count, -1, np.int32)
    return _in_order("kernels", columns)


def kernel_shares_frame(tree: Tree) -> pd.DataFrame:
    """The parts of kernels that compute operations of several modules."""
    pieces = tree.pieces
    if not len(pieces):
        return empty_table("kernel_shares")
    at = pieces["activity"].to_numpy()
    start, end = spans(tree.activities, pieces)
    is_kernel = tree.activities["kind"].to_numpy() == ActivityKind.KERNEL
    layer_key = pieces["layer_key"].to_numpy()
    return _in_order("kernel_shares", {
        "kernel_id": (np.cumsum(is_kernel) - 1)[at], "node_id": pieces["node_id"].to_numpy(),
        "layer_index": layer_key + (layer_key >= 0), "operation_count": pieces["operation_count"].to_numpy(),
        "duration_ns": end - start,
    })  # fmt: skip


def memory_operations_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    rows = tree.activities[tree.activities["kind"].to_numpy() != ActivityKind.KERNEL]
    launch = Launches(tree, rows["launch_id"].to_numpy())
    return _in_order("memory_operations", _of_activities(tree, threads, rows, launch) | {
        "activity_id": np.arange(len(rows), dtype=np.int64),
        "kind": named(rows["kind"].to_numpy(), ActivityKind),
        "bytes": rows["bytes"].to_numpy(),
        "direction": copy_directions(rows["copy_kind"].to_numpy().astype(np.int64) % len(COPY_DIRECTIONS)),
        "memory_kind": memory_kind_names(memory_kind(rows)),
    })  # fmt: skip


def _of_activities(tree: Tree, threads: Threads, rows: pd.DataFrame, launch: Launches) -> dict[str, object]:
    """The columns that all device work has."""
    layer_key = rows["layer_key"].to_numpy()
    return {
        **{name: rows[name].to_numpy() for name in _KEPT},
        "layer_index": layer_key + (layer_key >= 0),
        "name": categorical(rows["name_id"].to_numpy(), tree.strings),
        "process_id": threads.process_id(rows["process_index"].to_numpy()),
        "correlation_id": rows["correlation_id"].to_numpy(np.int64),
        "launch_start_ns": launch.column("start_ns"),
        "launch_end_ns": launch.column("end_ns"),
        "launch_thread_id": threads.thread_id(launch.column("thread_index")),
        "attribution": named(rows["attribution"].to_numpy(), Attribution),
        "layer_attribution": named(rows["layer_attribution"].to_numpy(), LayerAttribution),
    }


_KEPT = ("node_id", "layer_node_id", "iteration_index", "device_id", "stream_id", "start_ns", "end_ns")


def _in_order(table: str, columns: dict[str, object]) -> pd.DataFrame:
    ordered = {name: columns[name] for name in column_names(table) if name in columns}
    return pd.DataFrame(ordered, copy=False)  # a column set later would be copied
