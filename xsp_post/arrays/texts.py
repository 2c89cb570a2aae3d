"""Texts by number: of a million of which no two are alike, Python strings are made only of those that are asked for."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, overload
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa


class Texts:
    """Texts by number, as Arrow holds them; read like a NumPy array of objects. They do not change."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array  # large strings, none of them null

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        result: list[str] = self.array.to_pylist()
        return result

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: np.ndarray) -> np.ndarray: ...
    def __getitem__(self, number: int | np.ndarray) -> str | np.ndarray:
        if isinstance(number, (int, np.integer)):
            return str(self.array[int(number)].as_py())
        numbers = np.asarray(number)
        numbers = np.flatnonzero(numbers) if numbers.dtype == bool else numbers
        if (numbers < 0).any():  # −1 is the last one
            numbers = np.where(numbers < 0, numbers + len(self), numbers)
        result: np.ndarray = self.array.take(pa.array(numbers)).to_numpy(zero_copy_only=False)
        return result

    def __array__(self, dtype: type | None = None, copy: bool | None = None) -> np.ndarray:
        result: np.ndarray = self.array.to_numpy(zero_copy_only=False)
        return result if dtype is None else result.astype(dtype, copy=False)


Strings: TypeAlias = "np.ndarray | Texts"


def with_more(strings: Strings, more: Iterable[str]) -> Strings:
    added = list(more)
    if not isinstance(strings, Texts):
        return np.concatenate([strings, np.array(added, object)])
    return Texts(pa.concat_arrays([strings.array, pa.array(added, pa.large_string())])) if added else strings


def taken(strings: Strings, numbers: np.ndarray, unnamed: str) -> np.ndarray | pa.Array:
    """The texts of these numbers, ``unnamed`` for −1; as Arrow holds them where they are held so."""
    if isinstance(strings, Texts):
        first, count = int(numbers[0]) if len(numbers) else 0, len(numbers)
        if first >= 0 and (numbers == np.arange(first, first + count)).all():
            return strings.array.slice(first, count)  # as they were read, mostly: nothing is copied
    texts = strings[np.maximum(numbers, 0)] if len(strings) else np.full(len(numbers), "", object)
    return np.where(numbers >= 0, texts, unnamed).astype(object, copy=False)


def of_each(values: np.ndarray, said: Callable[[Any], Any], dtype: type) -> np.ndarray:
    """What is said of each value, asked once of those that are alike."""
    codes, used = pd.factorize(values)
    return np.array([said(one) for one in used.tolist()], dtype)[codes]


# -- Texts by number → a column for a frame ----------------------------------------------------------------------------

# Of texts that Arrow holds, those asked for last: several tables have a column of the same names.
_KNOWN: "WeakKeyDictionary[Texts, list[tuple[np.ndarray, pd.Index[str]]]]" = WeakKeyDictionary()
_MOST_KNOWN = 3


def categorical(codes: np.ndarray, *texts: Strings) -> "pd.Categorical[str]":
    """Texts by number as a categorical that holds only the texts in use; −1 becomes ''. ``texts``: arrays, the numbers
    of each going on where those of the one before end."""
    is_each_once = bool((codes[1:] > codes[:-1]).all())
    rows, unique = (np.arange(len(codes), dtype=np.int32), codes) if is_each_once else pd.factorize(codes)
    values = index_of(unique, *texts)
    if not values.is_unique:
        row_of_value, different = pd.factorize(values)
        rows, values = row_of_value[rows], pd.Index(different)
    return pd.Categorical.from_codes(rows, values)


def index_of(numbers: np.ndarray, *texts: Strings) -> "pd.Index[str]":
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
