"""Tree → folded tree: one row per path, however often it ran; what `tree` prints and the icicle draws."""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.model.levels import Level
from xsp_post.model.schemas.words import confidence_words
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.tree.ranks import rank_of_node

_SUMMED = (
    "self_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "kernel_count", "copy_count", "graph_count",
    "self_device_ns", "self_kernel_ns", "self_kernel_count", "memory_bytes",
)  # fmt: skip


_RANK = "rank"


def fold(tree: Tree) -> pd.DataFrame:
    """One row per path (schemas: paths): sums over its calls, in order of first start. Capture id is left out.

    Where there are several ranks, each has a row of its own between the root and its ranges.
    """
    frame = _fold_nodes(tree)
    ranks = tree.ranks
    if len(ranks) < 2:
        return frame
    count = len(ranks)
    rank_of_path = np.full(int(frame["path_id"].max()) + 1, -1, np.int64)
    rank_of_path[tree.nodes["path_id"].to_numpy()] = rank_of_node(tree.nodes, ranks)
    top = (frame["parent_path_id"] == 0).to_numpy()
    rank = rank_of_path[frame["path_id"].to_numpy()]
    owned = top & (rank >= 0)
    frame["parent_path_id"] = np.where(owned, rank + 1, frame["parent_path_id"])
    frame["depth"] += rank >= 0
    own = frame[owned].groupby(rank[owned])
    rows = frame.iloc[[0] * count].assign(
        path_id=1 + np.arange(count), parent_path_id=0, depth=1, name=ranks["name"].to_numpy(object),
        span_kind=_RANK, projection_ns=0, gap_ns=np.nan if frame["gap_ns"].dtype.kind == "f" else 0,
    )  # fmt: skip
    for column in _SUMMED:
        if column not in ("self_ns", "busy_ns"):
            rows[column] = own[column].sum().reindex(range(count)).fillna(0).to_numpy(np.int64)
    rows[["self_ns", "self_device_ns", "self_kernel_ns", "self_kernel_count"]] = 0
    rows["busy_ns"] = _busy_of_ranks(tree, frame["busy_ns"].to_numpy().dtype)
    rows["first_start_ns"] = own["first_start_ns"].min().reindex(range(count)).fillna(0).to_numpy(np.int64)
    rows["span_kind"] = pd.Categorical(rows["span_kind"], categories=frame["span_kind"].cat.categories)
    return pd.concat([frame.iloc[:1], rows, frame.iloc[1:]], ignore_index=True)


def _host_time(nodes: pd.DataFrame, path: np.ndarray, count: int) -> np.ndarray:
    """Time of the calls of each path on their threads. What was inferred inside one launch of a graph shares its time,
    which counts once."""
    start, end = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    inferred = nodes["is_inferred"].to_numpy()
    total = sums_per_node(path, np.where(inferred, 0, end - start), count)
    rows = np.flatnonzero(inferred)
    if not len(rows):
        return total
    rows = rows[np.argsort(start[rows], kind="stable")]
    where = pd.DataFrame({"path": path[rows], "thread": nodes["thread_index"].to_numpy()[rows]})
    line = where.groupby(["path", "thread"], sort=False).ngroup().to_numpy()
    length = grouped_union_length(line, start[rows], end[rows], int(line.max()) + 1)
    first = where.drop_duplicates(ignore_index=True)["path"].to_numpy()
    return total + sums_per_node(first, length, count)


def _busy_of_ranks(tree: Tree, dtype: np.dtype) -> np.ndarray:
    """Union of the device intervals of each rank; unknown where it used several GPUs."""
    activities, ranks = tree.activities, tree.ranks
    rank_of_process = np.full(len(tree.trace.processes), -1, np.int64)
    rank_of_process[ranks["process_index"].to_numpy()] = np.arange(len(ranks))
    rank = rank_of_process[activities["process_index"].to_numpy()]
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    order = np.argsort(start, kind="stable")
    busy = grouped_union_length(rank[order], start[order], end[order], len(ranks))
    several = pd.Series(activities["gpu_index"].to_numpy()).groupby(rank).nunique().to_numpy() > 1
    return np.where(several, np.nan, busy) if several.any() or dtype.kind == "f" else busy


def _fold_nodes(tree: Tree) -> pd.DataFrame:
    nodes = tree.nodes
    ids = nodes["path_id"].to_numpy()
    free = len(tree.ranks) if len(tree.ranks) > 1 else 0  # numbers of paths that have no nodes
    path = (np.where(ids > 0, ids - free, ids) if free else ids).astype(np.intp)
    count = int(path.max(initial=-1)) + 1
    first = np.full(count, -1, np.int64)
    first[path[::-1]] = np.arange(len(path))[::-1]
    parent = nodes["parent_id"].to_numpy()[first]
    start = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start, path, nodes["start_ns"].to_numpy())
    projected = nodes["projected_start_ns"].to_numpy() >= 0
    projection = np.where(projected, nodes["projected_end_ns"].to_numpy() - nodes["projected_start_ns"].to_numpy(), 0)
    columns: dict[str, object] = {
        "path_id": ids[first],
        "parent_path_id": np.where(parent >= 0, ids[np.maximum(parent, 0)], -1),
        "depth": nodes["depth"].to_numpy()[first],
        "level": pd.Categorical.from_codes(nodes["level"].to_numpy()[first], pd.Index([m.name for m in Level])),
        "span_kind": pd.Categorical.from_codes(
            nodes["kind"].to_numpy()[first], pd.Index([*(kind.name.lower() for kind in NodeKind), _RANK])
        ),
        "name": np.asarray(tree.names.folded_names, object)[nodes["folded_id"].to_numpy()[first]],
        "call_count": np.bincount(path, minlength=count).astype(np.int64),
        "duration_ns": _host_time(nodes, path, count),
    }
    for column in _SUMMED:
        columns[column] = sums_per_node(path, nodes[column].to_numpy(), count)
    several = np.bincount(path, weights=nodes["gpu_count"].to_numpy() > 1, minlength=count) > 0
    columns["projection_ns"] = sums_per_node(path, projection, count)
    columns["gap_ns"] = np.maximum(0, columns["projection_ns"] - columns["busy_ns"])  # type: ignore[operator]
    if several.any():  # no GPU's busy time: each has its own in `devices`
        columns["busy_ns"] = np.where(several, np.nan, np.asarray(columns["busy_ns"]))
        columns["gap_ns"] = np.where(several, np.nan, np.asarray(columns["gap_ns"]))
    columns["first_start_ns"] = start
    inferred = nodes["is_inferred"].to_numpy()[first]
    columns["is_inferred"] = inferred
    least = np.ones(count)
    np.minimum.at(least, path, nodes["confidence_ratio"].to_numpy())
    columns["confidence"] = np.where(inferred, confidence_words(least), "").astype(object)
    return pd.DataFrame(columns)
