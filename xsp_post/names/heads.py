"""Columns of the different heads of range texts, while the rules of `rules` fill them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.names.patterns import matches, to_arrow

WORDS = ("dialect", "role", "phase")  # few different values
TEXTS = ("folded_name", "base_name", "layer_type", "module_path", "shape_text")
NUMBERS = ("call_index", "step_index", "sequence", "op_id")
FLAGS = ("is_warmup", "is_backward")


class Words(NamedTuple):
    """A column of few different words: the words, and which of them each row holds."""

    words: Sequence[str]
    codes: np.ndarray

    @classmethod
    def of(cls, values: Sequence[str]) -> "Words":
        """The words of a column."""
        codes, words = pd.factorize(np.array(values, object))
        return cls(words.tolist(), codes)


class Heads:
    """Of n different texts: words as codes, texts as pieces that are put together at the end, numbers
    (−1 none) and flags. ``is_open``: no rule has taken the text yet."""

    def __init__(self, texts: pa.Array, has_suffix: np.ndarray) -> None:
        n = len(texts)
        self.texts, self.has_suffix = texts, has_suffix
        self.is_open = np.ones(n, bool)
        self._words = {"": 0}
        self.columns: dict[str, np.ndarray] = {name: np.zeros(n, np.int32) for name in WORDS}
        self.columns |= {name: np.full(n, -1, np.int64) for name in NUMBERS}
        self.columns |= {name: np.zeros(n, bool) for name in FLAGS}
        self._pieces: dict[str, list[tuple[np.ndarray, pa.Array]]] = {name: [] for name in TEXTS}
        self._encoded: list[tuple[pa.Array, np.ndarray, pa.Array]] = []

    def take(self, rows: np.ndarray) -> pa.Array:
        return self.texts if len(rows) == len(self.texts) else self.texts.take(pa.array(rows))

    def matching(self, rows: np.ndarray, pattern: str) -> np.ndarray:
        return rows[matches(self.take(rows), pattern)] if len(rows) else rows

    def put(self, rows: np.ndarray, **values: Any) -> None:
        """Set columns of rows, each to one value or to one for each row (words: as `Words`)."""
        for name, value in values.items():
            if name in TEXTS:
                texts = [value] if isinstance(value, str) else value
                self._pieces[name].append((rows, texts if isinstance(texts, pa.Array) else to_arrow(texts)))
            elif name in WORDS:
                self.columns[name][rows] = self._codes(value)
            else:
                self.columns[name][rows] = value

    def put_all(self, rows: np.ndarray, inner: "Heads") -> None:
        """Set all columns of rows to those of other heads, one for each."""
        self.put(rows, **{name: Words(list(inner._words), inner.columns[name]) for name in WORDS})
        self.put(rows, **{name: inner.texts_of(name) for name in TEXTS})
        self.put(rows, **{name: inner.columns[name] for name in (*NUMBERS, *FLAGS)})

    def _codes(self, value: str | Words) -> np.ndarray | int:
        if isinstance(value, Words):
            return np.array([self._codes(word) for word in value.words], np.int32)[value.codes]
        return self._words.setdefault(value, len(self._words))

    def says(self, column: str, *words: str) -> np.ndarray:
        """Where a column of words holds one of these."""
        return np.isin(self.columns[column], [self._words.get(word, -1) for word in words])

    def texts_of(self, column: str) -> pa.Array:
        """A column of texts, put together."""
        pieces = self._pieces[column]
        if len(pieces) == 1 and len(pieces[0][0]) == len(self.texts) == len(pieces[0][1]):
            return pieces[0][1]  # all rows in their order
        number, parts, count = np.zeros(len(self.texts), np.int64), [to_arrow([""])], 1
        for rows, values in pieces:
            number[rows] = count + (np.arange(len(rows)) if len(values) == len(rows) else 0)
            parts.append(values)
            count += len(values)
        return pa.concat_arrays(parts).take(pa.array(number))

    def encoded(self, column: str) -> tuple[np.ndarray, pa.Array]:
        """A column of words or texts as codes and what they stand for; columns that are the same texts share them."""
        if column in WORDS:
            codes, used = pd.factorize(self.columns[column])
            return small(codes, len(used)), to_arrow(list(self._words)).take(pa.array(used))
        texts = self.texts_of(column)
        for known, codes, different in self._encoded:
            if known is texts:
                return codes, different
        if texts is self.texts:  # different already
            codes, different = np.arange(len(texts)), texts
        else:
            dictionary = texts.dictionary_encode()
            codes, different = np.asarray(dictionary.indices), dictionary.dictionary
        self._encoded.append((texts, small(codes, len(different)), different))
        return self._encoded[-1][1:]


def small(codes: np.ndarray, count: int) -> np.ndarray:
    """Codes in the smallest type, before there are a million."""
    return codes.astype(np.min_scalar_type(-max(count, 1)), copy=False)
