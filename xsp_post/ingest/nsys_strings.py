"""Captures in: the texts of an Nsight Systems export, interned or inline, as dense string ids of the trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.ingest.tables import NULL


def numbers(table: pa.Table, column: str, dtype: type = np.int64) -> np.ndarray:
    """A column as a writable NumPy array of that type, copied once."""
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in table.column(column).chunks]
    if not chunks:
        return np.zeros(0, dtype)
    return np.concatenate(chunks, dtype=dtype, casting="unsafe")


def interner(table: pa.Table) -> Interner:
    ids = numbers(table, "id")
    values = table.column("value").combine_chunks() if table.num_rows else pa.array([], pa.binary())
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], pa.binary())
    if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
        order = np.argsort(ids, kind="stable")
        ids, values = ids[order], values.take(pa.array(order))
    return Interner(ids, values)


@dataclass
class Interner:
    """Collects StringIds numbers and inline texts and hands out dense string ids at the end."""

    ids: np.ndarray  # StringIds.id, ascending
    values: pa.Array  # binary
    texts: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    bad_bytes_count: int = 0

    def array(self) -> np.ndarray:
        """All texts as an object array; index = string id."""
        result = np.empty(len(self.texts), object)
        result[:] = self.texts
        return result

    def text(self, value: str) -> int:
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.texts)
            self.texts.append(value)
        return found

    def by_number(self, numbers: np.ndarray, transform: Callable[[str], str] | None = None) -> np.ndarray:
        """StringIds numbers → string ids (int32); numbers without a row become ``string-N``, none (NULL, 0) −1."""
        codes, unique = pd.factorize(numbers)
        mapped = np.full(len(unique), -1, np.int32)
        position = np.searchsorted(self.ids, unique)
        position[position >= len(self.ids)] = 0
        for k, number in enumerate(unique.tolist()):
            if len(self.ids) and self.ids[position[k]] == number:
                value = self._decode(self.values[int(position[k])].as_py())
            elif number in (NULL, 0, -1):
                continue
            else:
                value = f"string-{number}"
            mapped[k] = self.text(transform(value) if transform else value)
        return mapped[codes]

    def inline(self, texts: pa.ChunkedArray) -> np.ndarray:
        """Inline texts (binary, empty = none) → string ids (int32), −1 for empty."""
        encoded = texts.combine_chunks().dictionary_encode() if len(texts) else None
        if encoded is None:
            return np.zeros(0, np.int32)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        mapped = np.array(
            [self.text(text) if text else -1 for text in self._decode_all(encoded.dictionary)] or [-1], np.int32
        )
        return mapped[encoded.indices.to_numpy(zero_copy_only=False)]

    def _decode_all(self, values: pa.Array) -> list[str]:
        try:
            return values.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            return [self._decode(value) for value in values.to_pylist()]

    def _decode(self, value: bytes | None) -> str:
        try:
            return (value or b"").decode("utf-8")
        except UnicodeDecodeError:
            self.bad_bytes_count += 1
            return (value or b"").decode("utf-8", "replace")


_ABI_SUFFIX = re.compile(r"_v\d+$")


def without_abi_suffix(name: str) -> str:
    """A function's name without the version of its interface: ``cudaLaunchKernel_v7000`` → ``cudaLaunchKernel``."""
    return _ABI_SUFFIX.sub("", name)
