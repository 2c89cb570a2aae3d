"""Small helpers on frames and arrays that every analysis uses."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.base.texts import TextTable, read_patterns
from xsp_post.model.results import empty_table, typed

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
PATTERNS = TextTable(lambda: read_patterns(Path(__file__).with_name("patterns.txt")))
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


def is_every(rows: IntArray, count: int) -> bool:
    """Whether these are all ``count`` rows in their order: then there is nothing to pick."""
    return len(rows) == count and bool((rows == np.arange(count)).all())


def picked(frame: pd.DataFrame, rows: IntArray) -> pd.DataFrame:
    """Some rows of a frame, numbered from 0."""
    return frame if is_every(rows, len(frame)) else frame.iloc[rows].reset_index(drop=True)


def occurrence(group: IntArray) -> IntArray:
    """How many earlier rows have the same group number: 0 for the first. Shape (n,)."""
    return pd.Series(group).groupby(group, sort=False).cumcount().to_numpy().astype(np.int64)


def group_sum(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Sum per group; NaN values are left out, a group without any known value is NaN. Shape (count,)."""
    known = ~np.isnan(values)
    if not known.all():
        group, values = group[known], values[known]
    total = np.bincount(group, weights=values, minlength=count).astype(np.float64)
    return np.where(np.bincount(group, minlength=count) > 0, total, np.nan)


def divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> FloatArray:
    """Element-wise ratio; NaN where the denominator is 0 or unknown."""
    top, bottom = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom == 0, np.nan, top / bottom)


def together(name: str, parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several frames as one table of this name."""
    filled = [typed(name, part) for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else empty_table(name)
