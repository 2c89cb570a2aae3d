"""Tree → folded tree: one row per path, however often it ran; what `tree` prints and the icicle draws."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import sums_per_node
from xsp_post.model.confidence import confidence_words
from xsp_post.model.levels import Level
from xsp_post.model.tree import Tree

_SUMMED = (
    "self_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "kernel_count", "copy_count", "graph_count",
    "self_device_ns", "self_kernel_ns", "self_kernel_count", "memory_bytes",
)  # fmt: skip


def fold(tree: Tree) -> pd.DataFrame:
    """One row per path (schemas: paths): sums over its calls, in order of first start. Capture id is left out."""
    nodes = tree.nodes
    path = nodes["path_id"].to_numpy()
    count = int(path.max(initial=-1)) + 1
    first = np.full(count, -1, np.int64)
    first[path[::-1]] = np.arange(len(path))[::-1]
    parent = nodes["parent_id"].to_numpy()[first]
    start = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start, path, nodes["start_ns"].to_numpy())
    projected = nodes["projected_start_ns"].to_numpy() >= 0
    projection = np.where(projected, nodes["projected_end_ns"].to_numpy() - nodes["projected_start_ns"].to_numpy(), 0)
    columns: dict[str, object] = {
        "path_id": np.arange(count),
        "parent_path_id": np.where(parent >= 0, path[np.maximum(parent, 0)], -1),
        "depth": nodes["depth"].to_numpy()[first],
        "level": pd.Categorical.from_codes(nodes["level"].to_numpy()[first], pd.Index([m.name for m in Level])),
        "name": np.asarray(tree.names.folded_names, object)[nodes["folded_id"].to_numpy()[first]],
        "call_count": np.bincount(path, minlength=count).astype(np.int64),
        "duration_ns": sums_per_node(path, nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy(), count),
    }
    for column in _SUMMED:
        columns[column] = sums_per_node(path, nodes[column].to_numpy(), count)
    columns["projection_ns"] = sums_per_node(path, projection, count)
    columns["gap_ns"] = np.maximum(0, columns["projection_ns"] - columns["busy_ns"])  # type: ignore[operator]
    columns["first_start_ns"] = start
    inferred = nodes["is_inferred"].to_numpy()[first]
    columns["is_inferred"] = inferred
    least = np.ones(count)
    np.minimum.at(least, path, nodes["confidence_ratio"].to_numpy())
    columns["confidence"] = np.where(inferred, confidence_words(least), "").astype(object)
    return pd.DataFrame(columns)
