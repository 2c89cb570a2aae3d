"""Texts that end in ``, seq = 12, op_id = 34`` → heads and numbers: a million at once where nothing else is said, by a
pattern those that end in anything else that ``emit_nvtx`` writes."""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.names.patterns import groups, matches, numbers, one_chunk

_KEY = ", (?:seq|op_id|sizes|input_op_ids) = "
_KEY_BYTES = re.compile(_KEY.encode())
_TOO_LONG = 19  # digits of a number
_AT_ONCE = 16_384  # so many texts fit into the processor's cache
_SUFFIX = (
    r"(?s)^(?P<head>.*?)(?:, seq = (?P<seq>-?\d{1,18}))?(?:, op_id = (?P<op>-?\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>.*?))?(?:, input_op_ids = .*)?$"
)


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
    if data is None or not len(array) or not _KEY_BYTES.search(data):
        return _uncut(array)
    parts = [_without_numbers(array.slice(first, _AT_ONCE)) for first in range(0, len(array), _AT_ONCE)]
    head, (sequence, op_id) = pa.concat_arrays([part[0] for part in parts]), np.hstack([part[1:] for part in parts])
    has_suffix, sizes = (sequence >= 0) | (op_id >= 0), None
    mask = pc.match_substring(head, ",")  # something else may stand there
    rows = np.flatnonzero(np.asarray(mask))
    if len(rows):
        rest, sequence[rows], op_id[rows], some_sizes, has_suffix[rows] = cut_by_pattern(array.filter(mask))
        head = pc.replace_with_mask(head, mask, rest)
        if some_sizes is not None:
            sizes = pc.replace_with_mask(_empty_texts(len(array)), mask, some_sizes)
    return Parts(head, sequence, op_id, sizes, has_suffix)


def _without_numbers(array: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    head, op_id = _without_number(array, ", op_id = ")
    return *_without_number(head, ", seq = "), op_id


def _without_number(array: pa.Array, key: str) -> tuple[pa.Array, np.ndarray]:
    """The texts without the key and number that they end in (else whole), and the number (else −1)."""
    parts = pc.split_pattern(array, key, max_splits=1, reverse=True)
    edges = parts.offsets.to_numpy()
    last = parts.values.take(pa.array(edges[1:] - 1))
    is_number = pc.and_(pc.ascii_is_decimal(last), pc.less(pc.binary_length(last), _TOO_LONG))
    mask = pc.and_(is_number, pa.array(np.diff(edges) > 1))
    head = parts.values.take(pa.array(edges[:-1]))
    if not pc.all(mask).as_py():
        head, last = pc.if_else(mask, head, array), pc.if_else(mask, last, "-1")
    return head, last.cast(pa.int64()).to_numpy()


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
