"""Texts by number → a column for a frame."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings


def categorical(codes: np.ndarray, *texts: Strings) -> pd.Categorical[str]:
    """Texts by number as a categorical that holds only the texts in use; −1 becomes ''. ``texts``: arrays, the numbers
    of each going on where those of the one before end."""
    rows, unique = pd.factorize(codes)
    values: pd.Index[str] = pd.Index(texts_of(unique, *texts), dtype=object)
    if not values.is_unique:
        row_of_value, different = pd.factorize(values)
        rows, values = row_of_value[rows], pd.Index(different)
    return pd.Categorical.from_codes(rows, values)


def texts_of(numbers: np.ndarray, *texts: Strings) -> np.ndarray:
    """The texts of these numbers, '' for −1; object."""
    result, first = np.full(len(numbers), "", object), 0
    for some in texts:
        mine = (numbers >= first) & (numbers < first + len(some))
        if mine.all():
            return np.asarray(some[numbers - first], object)
        result[mine] = some[numbers[mine] - first]
        first += len(some)
    return result
