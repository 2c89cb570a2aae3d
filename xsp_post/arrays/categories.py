"""Texts by number → a column for a frame."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings, Texts

# Of texts that Arrow holds, those asked for last: several tables have a column of the same names.
_KNOWN: WeakKeyDictionary[Texts, list[tuple[np.ndarray, pd.Index[str]]]] = WeakKeyDictionary()
_MOST_KNOWN = 3


def categorical(codes: np.ndarray, *texts: Strings) -> pd.Categorical[str]:
    """Texts by number as a categorical that holds only the texts in use; −1 becomes ''. ``texts``: arrays, the numbers
    of each going on where those of the one before end."""
    is_each_once = bool((codes[1:] > codes[:-1]).all())
    rows, unique = (np.arange(len(codes), dtype=np.int32), codes) if is_each_once else pd.factorize(codes)
    values = index_of(unique, *texts)
    if not values.is_unique:
        row_of_value, different = pd.factorize(values)
        rows, values = row_of_value[rows], pd.Index(different)
    return pd.Categorical.from_codes(rows, values)


def index_of(numbers: np.ndarray, *texts: Strings) -> pd.Index[str]:
    """The texts of these numbers, '' for −1."""
    alone = texts[0] if len(texts) == 1 else None
    known = _KNOWN.setdefault(alone, []) if isinstance(alone, Texts) else []
    for asked, index in known:
        if np.array_equal(asked, numbers):
            return index
    made: pd.Index[str] = pd.Index(_texts_of(numbers, *texts), dtype=object)
    known[:] = [*known, (numbers, made)][-_MOST_KNOWN:]
    return made


def _texts_of(numbers: np.ndarray, *texts: Strings) -> np.ndarray:
    result, first = np.full(len(numbers), "", object), 0
    for some in texts:
        mine = (numbers >= first) & (numbers < first + len(some))
        if mine.all():
            return np.asarray(some[numbers - first], object)
        result[mine] = some[numbers[mine] - first]
        first += len(some)
    return result
