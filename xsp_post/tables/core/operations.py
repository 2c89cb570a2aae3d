"""Tree → core tables: ``operations``, one row per path and kind of device work launched in it and in no range inside
it: which kernels, which copies, which graphs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.categories import categorical
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.model.trace import COPY_DIRECTIONS, ActivityKind, MemoryKind
from xsp_post.model.tree import Tree
from xsp_post.tables.core.columns import named

_DIRECTIONS = pd.Index(dict.fromkeys(COPY_DIRECTIONS))
_OF_COPY_KIND = _DIRECTIONS.get_indexer(pd.Index(COPY_DIRECTIONS))
_MEMORY = pd.Index(["" if kind is MemoryKind.UNKNOWN else kind.name.lower().replace("_", " ") for kind in MemoryKind])


def operations_frame(tree: Tree) -> pd.DataFrame:
    """Device work by path and what it was (schemas: operations), heaviest first within each path."""
    activities = tree.activities
    kind = activities["kind"].to_numpy()
    name = activities["name_id"].to_numpy()
    what = kind
    if (kind != ActivityKind.KERNEL).any():
        what = kind + 4 * (activities["copy_kind"].to_numpy().astype(np.int64) % len(COPY_DIRECTIONS))
        what += 4 * len(COPY_DIRECTIONS) * memory_kind(activities).astype(np.int64)
    width = 4 * len(COPY_DIRECTIONS) * len(MemoryKind)
    names = int(name.max(initial=-1)) + 2
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    key = tree.nodes["path_id"].to_numpy()[activities["node_id"].to_numpy()].astype(np.int64)
    for values, count in ((name, names), (what, width)):  # in place: of a million rows each copy counts
        key *= count
        key += values
    key += width  # a name of −1 counts as 0
    code, unique = pd.factorize(key)
    count, source = len(unique), np.asarray(activities.get("source_text_id", np.full(len(kind), -1)))
    what, place = unique % width, unique // width
    frame = pd.DataFrame(
        {
            "path_id": place // names,
            "kind": named(what % 4, ActivityKind),
            "name": categorical(place % names - 1, tree.strings),
            "direction": copy_directions(what // 4 % len(COPY_DIRECTIONS)),
            "memory_kind": memory_kind_names(what // (4 * len(COPY_DIRECTIONS))),
            "source_line": categorical(_same(code, source, count), tree.strings),
            "operation_count": np.bincount(code, minlength=count).astype(np.int64),
            "device_ns": sums_per_node(code, duration, count),
            "bytes": sums_per_node(code, activities["bytes"].to_numpy(), count),
        }
    )
    return frame.sort_values(["path_id", "device_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def _same(code: np.ndarray, text: np.ndarray, count: int) -> np.ndarray:
    """The text of all rows of a group, −1 where they differ."""
    low, high = np.full(count, np.iinfo(np.int32).max), np.full(count, -1)
    np.minimum.at(low, code, text)
    np.maximum.at(high, code, text)
    return np.where(low == high, high, -1)


def memory_kind(activities: pd.DataFrame) -> np.ndarray:
    """`MemoryKind` of each activity; 0 where the reader does not know any."""
    if "memory_kind" not in activities:
        return np.zeros(len(activities), np.int8)
    values = activities["memory_kind"].to_numpy()
    return np.where((values >= 0) & (values < len(MemoryKind)), values, 0)


def copy_directions(copy_kind: np.ndarray) -> pd.Categorical[str]:
    """From where to where, '' for what is not a copy."""
    return pd.Categorical.from_codes(_OF_COPY_KIND[copy_kind], _DIRECTIONS)


def memory_kind_names(kind: np.ndarray) -> pd.Categorical[str]:
    """Where the host's side lies: pageable, pinned, managed …; '' unknown."""
    return pd.Categorical.from_codes(kind, _MEMORY)
