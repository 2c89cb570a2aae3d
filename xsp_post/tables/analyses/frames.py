"""Small helpers on frames and arrays that every analysis uses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Columns = dict[str, Any]  # of the table that a function makes: `model.results.shaped`


def text_codes(series: pd.Series) -> tuple[IntArray, pd.Index]:
    """A text column as (codes, texts); a missing text is the code of ''. Categoricals are not decoded."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy().astype(np.int64)
        texts = series.cat.categories
    else:
        found, unique = pd.factorize(series)
        codes, texts = found.astype(np.int64), pd.Index(unique)
    if len(codes) and codes.min() < 0:
        codes = np.where(codes < 0, len(texts), codes)
        texts = texts.append(pd.Index([""]))
    return codes, texts


def texts_of(codes: IntArray, texts: pd.Index) -> pd.Categorical:
    """Codes and texts as a categorical again; a negative code is ''."""
    if len(codes) and codes.min() < 0:
        blank = texts.get_indexer(pd.Index([""]))[0] if texts.is_unique else -1
        if blank < 0:
            blank, texts = len(texts), texts.append(pd.Index([""]))
        codes = np.where(codes < 0, blank, codes)
    return pd.Categorical.from_codes(codes, categories=texts)


def dense(*keys: IntArray) -> tuple[IntArray, IntArray]:
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


def _factorize(values: IntArray) -> tuple[IntArray, IntArray]:
    codes, unique = pd.factorize(values)
    return codes.astype(np.int64, copy=False), np.asarray(unique, dtype=np.int64)


def is_every(rows: IntArray, count: int) -> bool:
    """Whether these are all ``count`` rows in their order: then there is nothing to pick."""
    return len(rows) == count and bool((rows == np.arange(count)).all())


def picked(frame: pd.DataFrame, rows: IntArray) -> pd.DataFrame:
    """Some rows of a frame, numbered from 0."""
    return frame if is_every(rows, len(frame)) else frame.iloc[rows].reset_index(drop=True)


def occurrence(group: IntArray) -> IntArray:
    """How many earlier rows have the same group number: 0 for the first. Shape (n,)."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    is_new = np.ones(len(ordered), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    start = np.flatnonzero(is_new)
    counts = np.arange(len(ordered)) - np.repeat(start, np.diff(np.append(start, len(ordered))))
    result = np.empty(len(ordered), np.int64)
    result[order] = counts
    return result


def lookup(keys: IntArray, values: IntArray, wanted: IntArray, missing: int = -1) -> IntArray:
    """``values`` at the place where ``keys`` equals ``wanted``; ``missing`` where none does. Keys are unique."""
    if not len(keys):
        return np.full(len(wanted), missing, np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 4 * (len(keys) + len(wanted)) + 1024:  # a table is faster than a search
        table = np.full(high - low + 1, missing, np.int64)
        table[keys - low] = values
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.clip(wanted, low, high) - low], missing)
    order = np.argsort(keys, kind="stable")
    position = np.clip(np.searchsorted(keys[order], wanted), 0, len(keys) - 1)
    found = order[position]
    return np.where(keys[found] == wanted, values[found], missing)


def group_sum(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Sum per group; NaN values are left out, a group without any known value is NaN. Shape (count,)."""
    known = ~np.isnan(values)
    if not known.any():
        return np.full(count, np.nan)
    if not known.all():
        group, values = group[known], values[known]
    total = np.bincount(group, weights=values, minlength=count).astype(np.float64)
    return np.where(np.bincount(group, minlength=count) > 0, total, np.nan)


def divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> FloatArray:
    """Element-wise ratio; NaN where the denominator is 0 or unknown."""
    top, bottom = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom == 0, np.nan, top / bottom)
