"""Patterns over many texts at once (Arrow's RE2): one pass of all patterns together rules out most texts for all."""

import re
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_FEW = 2000  # texts; to search them takes less than to make one pattern of many
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")


def read_rules(path: Path, before: int) -> list[list[str]]:
    """The lines of a file as words between bars: so many, the pattern, which may hold bars itself, and why."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    words = [line.split(" | ", before) for line in lines]
    return [[part.strip(" ") for part in (*one[:-1], *one[-1].rsplit(" | ", 1))] for one in words]


def to_arrow(texts: Any) -> pa.Array:
    """Texts as one Arrow array; lone surrogates (bytes that were not UTF-8) become replacement marks."""
    if isinstance(texts, pa.Array):
        return texts
    try:
        array = pa.array(texts, type=pa.large_string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        array = pa.array(clean, type=pa.large_string())
    return one_chunk(array)


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same as one array."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def matches(array: pa.Array, pattern: str, *, ignore_case: bool = False) -> np.ndarray:
    """In which texts the pattern is found; bool."""
    return np.asarray(pc.match_substring_regex(array, pattern, ignore_case=ignore_case))


def groups(array: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Named groups of a pattern, '' where absent."""
    extracted = one_chunk(pc.extract_regex(array, pattern))
    names = [extracted.type.field(i).name for i in range(extracted.type.num_fields)]
    return {name: pc.fill_null(pc.struct_field(extracted, [i]), "") for i, name in enumerate(names)}


def possible(array: pa.Array, patterns: Sequence[str], *, ignore_case: bool = False) -> np.ndarray:
    """The rows that match one of the patterns, without a search all rows."""
    if len(array) < _FEW:
        return np.arange(len(array))
    any_of = "|".join(f"(?:{_NAMED_GROUP.sub('(?:', pattern)})" for pattern in patterns)
    return np.flatnonzero(matches(array, any_of, ignore_case=ignore_case))


def first_match(array: pa.Array, patterns: Sequence[str], *, ignore_case: bool = False) -> np.ndarray:
    """Index of the first pattern that is found in each text, −1 for none; int16.

    Many texts are searched for all patterns together, then for each half of them in what is left.
    """
    found = np.full(len(array), -1, np.int16)
    parts = [(0, len(patterns), np.arange(len(array)))]
    while parts:
        first, stop, rows = parts.pop()
        rows = rows[found[rows] < 0]
        if not len(rows):
            continue
        texts = array if len(rows) == len(array) else array.take(pa.array(rows))
        if stop - first > 1:
            rows, middle = rows[possible(texts, patterns[first:stop], ignore_case=ignore_case)], (first + stop) // 2
            parts += [(middle, stop, rows), (first, middle, rows)]
            continue
        rows = rows[matches(texts, patterns[first], ignore_case=ignore_case)]
        found[rows] = first
    return found


def looked_at(
    texts: Sequence[str] | np.ndarray, many: Callable[[pa.Array, Sequence[str]], np.ndarray], one: Callable[[str], int]
) -> np.ndarray:
    """A number for each text, int16: of all at once by RE2, where they are of ASCII (of other letters Python and RE2
    differ in upper and lower case, and in what a digit is), else of one after the other."""
    is_plain = np.fromiter(map(str.isascii, texts), bool, len(texts))
    found = np.empty(len(texts), np.int16)
    if is_plain.any():
        plain = list(compress(texts, is_plain))
        found[is_plain] = many(to_arrow(plain), plain)
    found[~is_plain] = [one(text) for text in compress(texts, ~is_plain)]
    return found


def found_in(texts: Sequence[str] | np.ndarray, pattern: str) -> np.ndarray:
    """In which texts Python finds the pattern, which RE2 can read, too; bool."""
    found = looked_at(texts, lambda array, _: matches(array, pattern), lambda text: bool(re.search(pattern, text)))
    return found.astype(bool)


def found_in_column(texts: pd.Series, pattern: str) -> np.ndarray:
    """`found_in` of a column, of which each different text is looked at once; in an unknown one nothing is found."""
    codes, different = pd.factorize(texts)
    return np.append(found_in(different.astype(str).tolist(), pattern), False)[codes]


def digits_in(array: pa.Array) -> np.ndarray:
    """Which texts hold one of 0…9; bool."""
    _, offsets, data = array.buffers()
    if data is None:
        return np.zeros(len(array), bool)
    at = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]  # it may be a part of others
    if not (np.frombuffer(data, np.uint8)[at[0] : at[-1]] - np.uint8(ord("0")) <= 9).any():
        return np.zeros(len(array), bool)
    return matches(array, "[0-9]")


def numbers(array: pa.Array) -> np.ndarray:
    """Digits as int64, −1 for ''."""
    return pc.cast(pc.if_else(pc.equal(array, ""), "-1", array), pa.int64()).to_numpy(zero_copy_only=False)
