"""Captures in: the texts of an Nsight Systems export, interned or inline, as dense string ids of the trace."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.texts import Texts
from xsp_post.ingest.tables import NULL


def numbers(table: pa.Table, column: str, dtype: type = np.int64) -> np.ndarray:
    """A column as a NumPy array of that type. Where the table holds it as one, it is the table's own memory; one piece
    that is there again and again is read as often (and cannot be written to); copied once otherwise."""
    parts = table.column(column).chunks
    if len(parts) > 1 and _is_one_value(parts):
        return np.broadcast_to(parts[0].to_numpy()[0].astype(dtype), (table.num_rows,))
    if len(parts) == 1 and parts[0].type == pa.from_numpy_dtype(dtype) and (data := parts[0].buffers()[1]).is_mutable:
        return np.frombuffer(data, dtype, len(parts[0]), parts[0].offset * np.dtype(dtype).itemsize)
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in parts]
    if not chunks:
        return np.zeros(0, dtype)
    return np.concatenate(chunks, dtype=dtype, casting="unsafe")


def _is_one_value(parts: list[pa.Array]) -> bool:
    """Whether all pieces are the same memory, which holds one value."""
    memory = [(part.buffers()[1], part.offset) for part in parts]
    if len({(data.address, offset) if data else None for data, offset in memory}) > 1 or memory[0][0] is None:
        return False
    values = max(parts, key=len).to_numpy(zero_copy_only=False)
    return len(parts[0]) > 0 and bool((values == values[0]).all())


def interner(table: pa.Table) -> "Interner":
    ids = numbers(table, "id")
    values = table.column("value").cast(pa.binary()).combine_chunks() if table.num_rows else pa.array([], pa.binary())
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], pa.binary())
    if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
        order = np.argsort(ids, kind="stable")
        ids, values = ids[order], values.take(pa.array(order))
    return Interner(ids, values)


class Interner:
    """Collects StringIds numbers and inline texts and hands out dense string ids at the end."""

    def __init__(self, ids: np.ndarray, values: pa.Array) -> None:
        self.ids = ids  # StringIds.id, ascending
        self.values = values  # binary
        self.bad_bytes_count = 0
        self._parts: list[pa.Array] = []  # texts that came together
        self._since: list[str] = []  # and one by one since then
        self._count = 0
        self._numbers: dict[str, int] = {}  # of all texts, once one is looked up

    @property
    def texts(self) -> Texts:
        """All texts so far; index = string id."""
        if self._since or len(self._parts) != 1:
            self._parts = [pa.concat_arrays([*self._parts, pa.array(self._since, pa.large_string())])]
            self._since = []
        return Texts(self._parts[0])

    def text(self, value: str) -> int:
        if len(self._numbers) < self._count:
            self._numbers = {text: number for number, text in enumerate(self.texts)}
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self._count
            self._since.append(value)
            self._count += 1
        return found

    def by_number(self, numbers: np.ndarray, transform: Callable[[str], str] | None = None) -> np.ndarray:
        """StringIds numbers → string ids (int32); numbers without a row become ``string-N``, none (NULL, 0) −1."""
        codes, unique = pd.factorize(numbers)
        mapped = np.full(len(unique), -1, np.int32)
        position = np.searchsorted(self.ids, unique)
        position[position >= len(self.ids)] = 0
        if transform is None and len(unique) > _MANY and len(self.ids) and (self.ids[position] == unique).all():
            return self._by_position(position)[codes]
        for k, number in enumerate(unique.tolist()):
            if len(self.ids) and self.ids[position[k]] == number:
                value = self._decode(self.values[int(position[k])].as_py())
            elif number in (NULL, 0, -1):
                continue
            else:
                value = f"string-{number}"
            mapped[k] = self.text(transform(value) if transform else value)
        return mapped[codes]

    def _by_position(self, position: np.ndarray) -> np.ndarray:
        """String ids of rows of StringIds; the empty text is one, too."""
        encoded = self.values.take(pa.array(position)).fill_null(b"").dictionary_encode()
        mapped = self._different(encoded.dictionary)[encoded.indices.to_numpy()]
        if (mapped < 0).any():
            mapped[mapped < 0] = self.text("")
        return mapped

    def inline(self, texts: pa.ChunkedArray) -> np.ndarray:
        """Inline texts (binary, empty = none) → string ids (int32), −1 for empty."""
        if not len(texts):
            return np.zeros(0, np.int32)
        encoded = texts.dictionary_encode().chunks  # the dictionary is that of all
        indices = np.concatenate([chunk.indices.to_numpy() for chunk in encoded])
        return self._different(encoded[0].dictionary)[indices]

    def _different(self, values: pa.Array) -> np.ndarray:
        """String ids of binary texts, none of them twice; −1 for the empty one."""
        filled = pc.binary_length(values).to_numpy(zero_copy_only=False) > 0
        if not filled.any():  # a column without texts: nothing to look up
            return np.full(max(1, len(values)), -1, np.int32)
        try:
            decoded = values.cast(pa.string()).cast(pa.large_string())
        except pa.ArrowInvalid:
            texts = [self._decode(value) for value in values.to_pylist()]
            return np.array([self.text(text) if text else -1 for text in texts] or [-1], np.int32)
        # only what was known before can be there twice: a million texts are not looked up one by one
        result = pc.index_in(decoded, value_set=self.texts.array).fill_null(-1).to_numpy(zero_copy_only=False).copy()
        result[~filled] = -1
        fresh = np.flatnonzero((result < 0) & filled)
        result[fresh] = np.arange(self._count, self._count + len(fresh), dtype=np.int32)
        self._parts.append(decoded if len(fresh) == len(decoded) else decoded.take(pa.array(fresh)))
        self._count += len(fresh)
        return result

    def _decode(self, value: bytes | None) -> str:
        try:
            return (value or b"").decode("utf-8")
        except UnicodeDecodeError:
            self.bad_bytes_count += 1
            return (value or b"").decode("utf-8", "replace")


_MANY = 1_000  # different texts: from here on they are looked up together

_ABI_SUFFIX = re.compile(r"_v\d+$")


def without_abi_suffix(name: str) -> str:
    """A function's name without the version of its interface: ``cudaLaunchKernel_v7000`` → ``cudaLaunchKernel``."""
    return _ABI_SUFFIX.sub("", name)
