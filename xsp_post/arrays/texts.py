"""Texts by number: of a million of which no two are alike, Python strings are made only of those that are asked for."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias, overload

import numpy as np
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
    """The texts, followed by more."""
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
