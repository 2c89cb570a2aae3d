"""Folded tree → folded tree: siblings that differ in numbers only become one row."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.rollup import sums_per_node

SUMMED = (
    "self_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "kernel_count", "copy_count", "graph_count",
    "self_device_ns", "self_kernel_ns", "self_kernel_count", "memory_bytes", "call_count", "duration_ns",
    "projection_ns", "gap_ns", "idle_ns",
)  # fmt: skip


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
    ids = paths["path_id"].to_numpy()
    if (np.diff(ids) < 0).any():
        paths = paths.sort_values("path_id", kind="stable")
        ids = paths["path_id"].to_numpy()
    above = paths["parent_path_id"].to_numpy()
    place = np.minimum(np.searchsorted(ids, above), len(ids) - 1)
    parent = np.where(ids[place] == above, place, -1)
    text, has_number = without_numbers(paths["name"])
    own = dense(text, pd.factorize(paths["call_count"].to_numpy())[0])[0]
    may_fold = has_number & paths["span_kind"].ne("rank").to_numpy()
    if not (may_fold & _are_many(dense(parent, own)[0], minimum)).any():
        same = paths.assign(repeat_count=1, shown_name=paths["name"], is_folded=False).reset_index(drop=True)
        return same, pd.Series(ids, index=ids)
    shape = _shapes(parent, own)
    key = dense(parent, shape)[0]
    target = np.arange(len(paths))
    first_of_key = np.full(key.max() + 1, -1, np.int64)
    first_of_key[key[::-1]] = target[::-1]
    folds = may_fold & _are_many(key, minimum)
    target[folds] = first_of_key[key[folds]]
    # a folded sibling's children fold onto the children of the one that stays: equal shapes, equal order
    target = _carry_down(parent, target, shape, np.asarray(paths["first_start_ns"]))
    repeat = np.bincount(target, minlength=len(paths))
    keep = np.flatnonzero(target == np.arange(len(paths)))
    summed = {column: _summed(target, paths[column].to_numpy())[keep] for column in SUMMED if column in paths}
    result = paths.iloc[keep].assign(
        **summed,
        repeat_count=np.where(folds[keep], repeat[keep], 1),
        parent_path_id=np.where(parent[keep] >= 0, ids[target[np.maximum(parent[keep], 0)]], -1),
    )
    # a row inside folded siblings sums over all of them too: the name of the first one alone would be wrong
    result["is_folded"] = repeat[keep] > 1
    result["shown_name"] = _ranges(paths["name"], target, keep)
    return result.reset_index(drop=True), pd.Series(ids[target], index=ids)


def dense(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with equal keys get equal group numbers 0…g−1 by first appearance; also each group's first row.

    Keys are integer arrays of one shape (n,); they are combined pairwise, so that none can overflow.
    """
    group, group_width = np.zeros(len(keys[0]), np.int64), 1
    for key in keys if len(group) else ():
        low = int(key.min())
        width = int(key.max()) - low + 1
        if width == 1:
            continue
        if group_width > (1 << 62) // width:
            group, unique = _factorize(group)
            group_width = len(unique)
        if group_width > (1 << 62) // width:
            key, unique = _factorize(key)
            low, width = 0, len(unique)
        group *= width
        np.add(group, key, out=group, casting="unsafe")
        group -= low
        group_width *= width
    group, _ = _factorize(group)
    count = int(group.max(initial=-1)) + 1
    first = np.full(count, len(group), np.int64)
    # Written from the back, so that the first appearance is what stays.
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)
    return group, first


def _factorize(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    codes, unique = pd.factorize(values)
    return codes.astype(np.int64, copy=False), np.asarray(unique, dtype=np.int64)


def numbered(rows: pd.DataFrame, columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """A number per row, equal where some columns are, in the order in which they are met; and where each is first."""
    values = [rows[column] for column in columns]
    return dense(*(one.cat.codes.to_numpy() if one.dtype == "category" else pd.factorize(one)[0] for one in values))


def summed(rows: pd.DataFrame, keys: list[str], amounts: dict[str, str]) -> pd.DataFrame:
    """One row for each combination of some columns, in the order in which they are met, with sums (``sum``) and the
    largest (``max``) of others, which are whole numbers."""
    number, first = numbered(rows, keys)
    values = {name: rows[name].to_numpy(np.int64) for name in amounts}
    found = {name: np.full(len(first), np.iinfo(np.int64).min) for name, how in amounts.items() if how == "max"}
    for name, largest in found.items():
        np.maximum.at(largest, number, values[name])
    sums = {name: sums_per_node(number, one, len(first)) for name, one in values.items() if name not in found}
    return rows[keys].iloc[first].reset_index(drop=True).assign(**{name: {**sums, **found}[name] for name in amounts})


def without_numbers(names: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """A number per text, equal where texts differ in their digits only; and which texts have digits."""
    texts = pa.array(names.astype("str"))
    if isinstance(texts, pa.ChunkedArray):  # of columns that were put together
        texts = texts.combine_chunks()
    erased = pc.replace_substring_regex(texts, r"\p{Nd}+", "#")
    codes = erased.dictionary_encode().indices.to_numpy()
    return codes, pc.not_equal(erased, texts).to_numpy(zero_copy_only=False)


def _are_many(key: np.ndarray, minimum: int) -> np.ndarray:
    """Which rows share their key with so many. Shape kept."""
    return np.bincount(key)[key] >= minimum


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


def _shapes(parent: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A number per path: equal for equal numbers of their own (text without numbers, calls) and equal insides. Rows
    with nothing inside, nearly all of a large tree, have their own; the others follow deepest first."""
    inner = distinct(parent[parent >= 0])
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


def _ranges(names: pd.Series, target: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """`blocks.0` … `blocks.23` as one text."""
    last = np.zeros(len(names), np.int64)
    last[target] = np.arange(len(names))  # of several rows with one target the last one's stays
    pairs = zip(names.iloc[keep].tolist(), names.iloc[last[keep]].tolist(), (last[keep] != keep).tolist())
    return np.array([f"{first} … {end}" if is_range else first for first, end, is_range in pairs], object)
