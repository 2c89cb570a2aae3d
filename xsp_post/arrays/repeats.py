"""Folded tree → folded tree: siblings that differ in numbers only become one row."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import sums_per_node

SUMMED = (
    "self_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "kernel_count", "copy_count", "graph_count",
    "self_device_ns", "self_kernel_ns", "self_kernel_count", "memory_bytes", "call_count", "duration_ns",
    "projection_ns", "gap_ns", "idle_ns",
)  # fmt: skip
_DIGITS = re.compile(r"\d+")


def fold_with_targets(paths: pd.DataFrame, minimum: int = 3) -> tuple[pd.DataFrame, pd.Series]:
    """Siblings that differ in numbers only, with equal insides, become one row (24 equal blocks: one line ×24).

    Adds ``repeat_count`` (siblings in the row), ``shown_name`` and ``is_folded`` (more than one path is in the
    row: siblings, or what lies inside them); numbers are summed. Needs ids in which a parent's path id is smaller
    than its children's (as `fold` makes them). Also returns, by path id, the path id of the row it is in.
    """
    if not len(paths):
        nothing = paths.assign(
            repeat_count=np.zeros(0, np.int64), shown_name=paths["name"], is_folded=np.zeros(0, np.bool_)
        )
        return nothing, pd.Series(dtype="int64")
    paths = paths.sort_values("path_id", kind="stable").reset_index(drop=True)
    position = pd.Series(np.arange(len(paths)), index=paths["path_id"].to_numpy())
    parent = position.reindex(paths["parent_path_id"].to_numpy()).fillna(-1).to_numpy(np.int64)
    names = paths["name"].astype(str).to_numpy(object)
    erased = np.array([_DIGITS.sub("#", name) for name in names.tolist()], object)
    shape = _shapes(parent, erased, paths["call_count"].to_numpy())
    key = pd.factorize(pd.MultiIndex.from_arrays([parent, shape]))[0]
    size = np.bincount(key)
    target = np.arange(len(paths))
    first_of_key = np.full(len(size), -1, np.int64)
    first_of_key[key[::-1]] = np.arange(len(paths))[::-1]
    folds = (size[key] >= minimum) & (names != erased) & (paths["span_kind"].astype(str) != "rank").to_numpy()
    target[folds] = first_of_key[key[folds]]
    # a folded sibling's children fold onto the children of the one that stays: equal shapes, equal order
    target = _carry_down(parent, target, shape, np.asarray(paths["first_start_ns"]))
    repeat = np.bincount(target, minlength=len(paths))
    keep = np.flatnonzero(target == np.arange(len(paths)))
    summed = {column: _summed(target, paths[column].to_numpy())[keep] for column in SUMMED if column in paths}
    own_fold = folds[keep] & (size[key][keep] >= minimum)
    result = paths.iloc[keep].assign(
        **summed,
        repeat_count=np.where(own_fold, repeat[keep], 1),
        parent_path_id=np.where(
            parent[keep] >= 0, paths["path_id"].to_numpy()[target[np.maximum(parent[keep], 0)]], -1
        ),
    )
    # a row inside folded siblings sums over all of them too: the name of the first one alone would be wrong
    result["is_folded"] = repeat[keep] > 1
    result["shown_name"] = np.where(result["is_folded"], _ranges(names, target, keep), names[keep])
    ids = paths["path_id"].to_numpy()
    return result.reset_index(drop=True), pd.Series(ids[target], index=ids)


def _summed(target: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums per target row; of values that may be unknown, unknown where one of them is."""
    if values.dtype.kind == "f":
        return np.bincount(target, weights=values, minlength=len(target))
    return sums_per_node(target, values, len(target))


class _Children:
    """The rows below each row, side by side; ``of(-1)``: the roots."""

    def __init__(self, parent: np.ndarray, *order: np.ndarray) -> None:
        self._rows = np.lexsort((*order, parent))
        self._edges = np.searchsorted(parent[self._rows], np.arange(-1, len(parent) + 1))

    def of(self, row: int) -> np.ndarray:
        return self._rows[self._edges[row + 1] : self._edges[row + 2]]


def _shapes(parent: np.ndarray, erased: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """A number per path: equal for equal texts (numbers erased), calls and insides. Rows with nothing inside, nearly
    all of a large tree, at once; the others deepest first."""
    own = pd.MultiIndex.from_arrays([erased, calls]).factorize()[0]
    inner = np.unique(parent[parent >= 0])
    children = _Children(parent)
    shape = own.astype(np.int64)
    numbers: dict[tuple[int, ...], int] = {}
    for row in inner[::-1].tolist():
        inside = (int(own[row]), *np.sort(shape[children.of(row)]).tolist())
        shape[row] = numbers.setdefault(inside, len(own) + len(numbers))
    return shape


def _carry_down(parent: np.ndarray, target: np.ndarray, shape: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Send the descendants of folded rows to the matching descendants of the row that stays."""
    children = _Children(parent, start, shape)
    result = target.copy()
    has_children = np.bincount(parent[parent >= 0], minlength=len(parent)) > 0
    for row in np.flatnonzero((target != np.arange(len(parent))) & has_children).tolist():
        stack = [(row, int(result[row]))]
        while stack:
            one, other = stack.pop()
            mine, theirs = children.of(one), children.of(other)
            result[mine] = result[theirs]
            deeper = has_children[mine]
            stack += zip(mine[deeper].tolist(), theirs[deeper].tolist())
    return result


def _ranges(names: np.ndarray, target: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """`blocks.0` … `blocks.23` as one text."""
    last = np.full(len(names), -1, np.int64)
    np.maximum.at(last, target, np.arange(len(names)))
    return np.array([f"{names[k]} … {names[last[k]]}" if last[k] != k else names[k] for k in keep.tolist()], object)
