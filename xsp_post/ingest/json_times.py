"""Helper of ``ingest`` (a capture → ``Trace``): microseconds as a JSON trace writes them → int64 nanoseconds, exact.

A float holds a time with three digits behind the point exactly up to a hundred days: that is enough for durations, and
for the times of profilers that count from the start of a session. Times since 1970 are read as the text that they are.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from xsp_post.ingest.json_text import value_of

_EXACT_US = 2.0**43  # below, half the distance between floats is less than half a nanosecond
_NO_US = 2**61 // 1000  # differences of such times, in nanoseconds, stay inside int64
_MOST_NS = _NO_US * 1000
_DECIMAL = r"^-?\d+(\.\d*)?$"


def of_floats(microseconds: np.ndarray) -> np.ndarray | None:
    """Nanoseconds of float microseconds; None where one is so large that it may not be what the file says."""
    if len(microseconds) and not np.abs(microseconds).max() < _EXACT_US:
        return None
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def of_text(times: list[Raw]) -> tuple[np.ndarray, np.ndarray]:
    """`nanoseconds` of times as they are in the file: quick for digits, also in quotes, with a few behind the point."""
    text = b"\n".join([*times, b""]).replace(b'"', b"")
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    if len(ends) == len(times) and text.translate(None, b".\n").isdigit():
        buffers = [None, pa.py_buffer(np.append(0, ends + 1).astype(np.int32)), pa.py_buffer(text)]
        lines = pa.Array.from_buffers(pa.string(), len(times), buffers)
        with suppress(pa.ArrowInvalid):  # another number of digits
            exact = pc.utf8_rtrim_whitespace(lines).cast(pa.decimal128(19, 3))
            low, high = np.frombuffer(exact.buffers()[1], np.int64).reshape(-1, 2)[: len(times)].T
            if not high.any() and (low >= 0).all() and (low <= _MOST_NS).all():
                return low.copy(), np.ones(len(low), bool)
    return nanoseconds([value_of(time) for time in times])


def nanoseconds(microseconds: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """JSON microseconds (int, or text such as "12.345") → (int64 ns rounded to nearest, bool readable).

    Exact for any number of digits before the point; rows that are not finite numbers give 0 and False.
    """
    if all(type(value) is int for value in microseconds):
        try:
            whole = np.asarray(microseconds, dtype=np.int64)
            fits = np.abs(whole) < _NO_US
            return np.where(fits, whole, 0) * 1000, fits
        except OverflowError:
            pass
    text = pa.array([str(value) if isinstance(value, (int, float, str)) else "" for value in microseconds], pa.string())
    plain = pc.match_substring_regex(text, _DECIMAL).to_numpy(zero_copy_only=False)
    parts = pc.if_else(pa.array(plain), text, "0")
    negative = pc.starts_with(parts, "-").to_numpy(zero_copy_only=False)
    digits = pc.utf8_ltrim(parts, "-")
    whole = pc.replace_substring_regex(digits, r"\..*$", "")
    fraction = pc.replace_substring_regex(digits, r"^\d*\.?", "")
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 4, "0"), 0, 4)
    whole_us = pc.cast(pc.if_else(pc.less_equal(pc.utf8_length(whole), 18), whole, str(_NO_US)), pa.int64()).to_numpy()
    fits = whole_us < _NO_US
    ten_thousandths = pc.cast(fraction, pa.int64()).to_numpy()
    result = np.where(fits, whole_us, 0) * 1000 + (ten_thousandths + 5) // 10
    result = np.where(negative, -result, result)
    exact = plain & fits
    if exact.all():
        return result, exact
    # Exponents and the like: rare, through floating point.
    others = pd.to_numeric(pd.Series(text.to_pylist()).where(~exact, "0"), errors="coerce").to_numpy(dtype=float)
    readable = exact | (np.abs(others) < _NO_US)
    others = np.where(readable, others, 0) * 1000
    return np.where(exact, result, others.round().astype(np.int64)), readable
