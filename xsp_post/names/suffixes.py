"""Texts that end in ``, seq = 12, op_id = 34`` → heads and numbers, a million at once, from the bytes of the texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

_AT_ONCE = 65_536  # so many texts fit into the processor's cache
_MOST_DIGITS = 18
_SEQUENCE, _OPERATOR = b", seq = ", b", op_id = "


class Cut(NamedTuple):
    """``heads``: the texts without their suffix; whole where a text is not of this kind (not ``is_cut``). Numbers:
    −1 none."""

    heads: pa.Array
    is_cut: np.ndarray
    sequence: np.ndarray
    op_id: np.ndarray


def cut_plain(array: pa.Array) -> Cut:
    """Cut the texts (Arrow's large strings, none of them null) whose head has no comma; all others stay whole."""
    if len(array) <= _AT_ONCE:
        return _cut(array)
    parts = [_cut(array.slice(first, _AT_ONCE)) for first in range(0, len(array), _AT_ONCE)]
    heads, *numbers = zip(*parts)
    return Cut(pa.concat_arrays(heads), *map(np.concatenate, numbers))


def _cut(array: pa.Array) -> Cut:
    _, offsets, data = array.buffers()
    offset = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
    text = np.frombuffer(data, np.uint8)[offset[0] : offset[-1]] if data is not None else np.zeros(0, np.uint8)
    offset = offset - offset[0]
    begin, whole = offset[:-1], offset[1:]
    end, op_id = _number_at_end(text, begin, whole, _OPERATOR)
    end, sequence = _number_at_end(text, begin, end, _SEQUENCE)
    comma = np.append(np.flatnonzero(text == ord(",")), len(text))
    is_cut = (end < whole) & (comma[np.searchsorted(comma, begin)] >= end)
    for values in (op_id, sequence):
        values[~is_cut] = -1
    return Cut(_beginnings(text, begin, np.where(is_cut, end, whole)), is_cut, sequence, op_id)


def _number_at_end(text: np.ndarray, begin: np.ndarray, end: np.ndarray, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where the key and number that a text ends in begin (else its end), and the number (else −1)."""
    at, value, scale = end.copy(), np.zeros(len(end), np.int64), 1
    goes_on = end - begin > len(key)
    for _ in range(_MOST_DIGITS):
        if not goes_on.any():
            break
        digit = text[at - 1] - np.uint8(ord("0"))  # of anything but a digit more than 9
        goes_on &= (digit <= 9) & (at > begin)
        value += digit * (goes_on * scale)
        at -= goes_on
        scale *= 10
    found = np.flatnonzero((at < end) & (at - begin >= len(key)))
    for place, byte in enumerate(reversed(key), start=1):
        found = found[text[at[found] - place] == byte]
    number, first = np.full(len(end), -1, np.int64), end.copy()
    number[found], first[found] = value[found], at[found] - len(key)
    return first, number


def _beginnings(text: np.ndarray, begin: np.ndarray, end: np.ndarray) -> pa.Array:
    """The texts between these places, which ascend."""
    step = np.zeros(len(text) + 1, np.int8)
    filled = end > begin
    step[begin[filled]] += 1
    step[end[filled]] -= 1
    kept = text[np.cumsum(step, dtype=np.int8, out=step)[:-1].view(bool)]
    offsets = np.zeros(len(begin) + 1, np.int64)
    np.cumsum(end - begin, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(kept)]
    return pa.Array.from_buffers(pa.large_string(), len(begin), buffers)
