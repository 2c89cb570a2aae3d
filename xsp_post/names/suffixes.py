"""Texts that end in ``, seq = 12, op_id = 34`` → heads and numbers, a million at once, from the bytes of the texts; by
patterns only those that end in anything else that ``emit_nvtx`` writes."""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.names.patterns import groups, matches, numbers, one_chunk

_KEY = ", (?:seq|op_id|sizes|input_op_ids) = "
_KEY_BYTES = re.compile(_KEY.encode())
_SUFFIX = (
    r"(?s)^(?P<head>.*?)(?:, seq = (?P<seq>-?\d{1,18}))?(?:, op_id = (?P<op>-?\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>.*?))?(?:, input_op_ids = .*)?$"
)
_AT_ONCE = 16_384  # so many texts fit into the processor's cache
_SEQUENCE, _OPERATOR = b", seq = ", b", op_id = "  # at least eight bytes
_U64, _ZERO = np.uint64, np.uint8(ord("0"))


class Parts(NamedTuple):
    """Of texts: heads, numbers (−1 none), sizes (None: nowhere) and which had a suffix."""

    heads: pa.Array
    sequence: np.ndarray
    op_id: np.ndarray
    sizes: pa.Array | None
    has_suffix: np.ndarray


def cut_suffix(array: pa.Array) -> Parts:
    """Texts (Arrow's large strings, none of them null) without what ``emit_nvtx`` appends, and what that says."""
    data = array.buffers()[2]
    if data is None or not _KEY_BYTES.search(data):
        return _uncut(array)
    cut = cut_plain(array)
    if not cut.is_cut.any():
        return cut_by_pattern(array)
    head, sequence, op_id, sizes, has_suffix = cut.heads, cut.sequence, cut.op_id, None, cut.is_cut
    rows = np.flatnonzero(~cut.is_cut)
    if len(rows):
        mask = pa.array(~cut.is_cut)
        rest, sequence[rows], op_id[rows], some_sizes, has_suffix[rows] = cut_by_pattern(array.filter(mask))
        if has_suffix[rows].any():
            head = pc.replace_with_mask(head, mask, rest)
        if some_sizes is not None:
            sizes = pc.replace_with_mask(_empty_texts(len(array)), mask, some_sizes)
    return Parts(head, sequence, op_id, sizes, has_suffix)


def _uncut(array: pa.Array) -> Parts:
    none = np.full(len(array), -1, np.int64)
    return Parts(array, none, none.copy(), None, np.zeros(len(array), bool))


def _empty_texts(count: int) -> pa.Array:
    return pa.array([""], type=pa.large_string()).take(pa.array(np.zeros(count, np.int8)))


def cut_by_pattern(array: pa.Array) -> Parts:
    """The same for texts of any kind, in several times the time."""
    has_suffix = matches(array, _KEY)
    _, sequence, op_id, *_ = uncut = _uncut(array)
    if not has_suffix.any():
        return uncut
    mask = pa.array(has_suffix)
    rows = np.flatnonzero(has_suffix)
    some = array.filter(mask)
    cut = pc.extract_regex(some, _SUFFIX)
    head, seq, op, sizes = (one_chunk(cut.field(i)) for i in range(4))
    sequence[rows], op_id[rows] = numbers(seq), numbers(op)
    # keys in an order nobody writes today: cut at the first key, read each on its own
    odd = pc.match_substring_regex(head, _KEY)
    if pc.any(odd).as_py():
        odd_rows = rows[np.asarray(odd)]
        rest = array.take(pa.array(odd_rows))
        sequence[odd_rows] = numbers(_first(rest, r", seq = (?P<x>-?\d{1,18})(?:\D|$)"))
        op_id[odd_rows] = numbers(_first(rest, r", op_id = (?P<x>-?\d{1,18})(?:\D|$)"))
        sizes = pc.replace_with_mask(sizes, odd, _first(rest, r", sizes = (?P<x>[\[\]\d, \-]*)"))
        head = pc.replace_with_mask(head, odd, _first(rest, rf"(?s)^(?P<x>.*?){_KEY}"))
    whole_sizes = None
    if pc.any(pc.not_equal(sizes, "")).as_py():
        whole_sizes = pc.replace_with_mask(_empty_texts(len(array)), mask, sizes)
    return Parts(pc.replace_with_mask(array, mask, head), sequence, op_id, whole_sizes, has_suffix)


def _first(array: pa.Array, pattern: str) -> pa.Array:
    """Group ``x`` of the first match, '' where there is none."""
    return one_chunk(groups(array, pattern)["x"])


class Cut(NamedTuple):
    """``heads``: the texts without their suffix; whole where a text is not of this kind (not ``is_cut``). Numbers:
    −1 none."""

    heads: pa.Array
    is_cut: np.ndarray
    sequence: np.ndarray
    op_id: np.ndarray


def cut_plain(array: pa.Array) -> Cut:
    """Cut the texts (Arrow's large strings, none of them null) whose head has no comma and whose numbers have no more
    than 16 digits; all others stay whole."""
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
    is_cut, is_comma = end < whole, text == ord(",")
    if np.count_nonzero(is_comma) > np.count_nonzero(op_id >= 0) + np.count_nonzero(sequence >= 0):  # one in each key
        comma = np.append(np.flatnonzero(is_comma), len(text))
        is_cut &= comma[np.searchsorted(comma, begin)] >= end
        for values in (op_id, sequence):
            values[~is_cut] = -1
    return Cut(_beginnings(text, offset, np.where(is_cut, end, whole)), is_cut, sequence, op_id)


def _number_at_end(text: np.ndarray, begin: np.ndarray, end: np.ndarray, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where the key and number that a text ends in begin (else its end), and the number (else −1)."""
    number, first = np.full(len(end), -1, np.int64), end.copy()
    rows = np.flatnonzero(end - begin > len(key))
    rows = rows[text[end[rows] - 1] - _ZERO <= 9]
    if not len(rows):
        return first, number
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))  # the eight bytes from each place on
    value, count = _digits_at_end(words[end[rows] - 8])
    at = end[rows] - count
    long = np.flatnonzero((count == 8) & (at - begin[rows] >= 8))
    if len(long):
        higher, count = _digits_at_end(words[at[long] - 8])
        value[long] += higher * 10**8
        at[long] -= count
    found = np.flatnonzero((at < end[rows]) & (at - begin[rows] >= len(key)))
    for place, part in ((8, key[-8:]), (len(key), key[:8])):
        found = found[words[at[found] - place] == int.from_bytes(part, "little")]
    number[rows[found]], first[rows[found]] = value[found], at[found] - len(key)
    return first, number


def _digits_at_end(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number that eight bytes end in, and its count of digits; all bytes of a word at once, the last is highest."""
    bits = words ^ _each(int(_ZERO))
    # of bytes that are no digit the high bit
    is_other = (((bits & _each(0x7F)) + _each(0x7F - 9)) | bits) & _each(0x80)
    skipped = np.frexp(is_other.astype(np.float64))[1].astype(np.uint64)  # bits up to the last of them
    pairs = bits >> skipped << skipped
    pairs = (pairs * _U64(10) + (pairs >> _U64(8))) & _U64(0x00FF00FF00FF00FF)
    fours = (pairs * _U64(100) + (pairs >> _U64(16))) & _U64(0x0000FFFF0000FFFF)
    value = (fours * _U64(10_000) + (fours >> _U64(32))) & _U64(0xFFFFFFFF)
    return value.astype(np.int64), 8 - (skipped >> _U64(3)).astype(np.int64)


def _each(byte: int) -> np.uint64:
    """A word of eight such bytes."""
    return _U64(byte * 0x0101010101010101)


def _beginnings(text: np.ndarray, offset: np.ndarray, end: np.ndarray) -> pa.Array:
    """The texts that begin at these offsets, each up to its end."""
    length = end - offset[:-1]
    kept_and_not = np.stack([length, offset[1:] - end], axis=1).ravel()
    is_kept = np.repeat(np.tile(np.array([True, False]), len(end)), kept_and_not)
    offsets = np.zeros(len(offset), np.int64)
    np.cumsum(length, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text[is_kept])]
    return pa.Array.from_buffers(pa.large_string(), len(end), buffers)
