"""Helper of ``ingest`` (a capture → ``Trace``): microseconds as a JSON trace writes them → int64 nanoseconds, exact.

A float holds a time with three digits behind the point exactly up to a hundred days: that is enough for durations, and
for the times of profilers that count from the start of a session. Times since 1970 are read as the text that they are.
"""

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
_SCALES = np.array([1000, 100, 10, 1])  # by digits behind the point
_MOST_DIGITS = 19  # of numbers that fit int64
_DECIMAL = r"^-?\d+(\.\d*)?$"


def of_floats(microseconds: np.ndarray) -> np.ndarray | None:
    """Nanoseconds of float microseconds; None where one is so large that it may not be what the file says."""
    if len(microseconds) and not np.abs(microseconds).max() < _EXACT_US:
        return None
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def of_text(times: list[Raw]) -> tuple[np.ndarray, np.ndarray]:
    """`nanoseconds` of times as they are in the file."""
    plain = _plain_nanoseconds(times)
    return nanoseconds([value_of(time) for time in times]) if plain is None else (plain, np.ones(len(plain), bool))


def _plain_nanoseconds(times: list[Raw]) -> np.ndarray | None:
    """Digits, also in quotes, with at most three behind the point, in int64; None where a time is anything else."""
    text = b"\n".join([*times, b""]).replace(b'"', b"")
    digits = text.translate(None, b".\n")
    if not digits.isdigit():
        return None
    found = _digits_of_lines(text, len(times))
    if found is None:
        return None
    width, fraction = found
    if np.min(width) < 1 or np.max(width) > _MOST_DIGITS or np.max(fraction) > 3:
        return None
    offsets = np.zeros(len(times) + 1, np.int32)
    np.cumsum(width, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    try:
        values = pa.Array.from_buffers(pa.string(), len(times), buffers).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # beyond int64
        return None
    return None if (values > _MOST_NS // _SCALES[fraction]).any() else values * _SCALES[fraction]


def _digits_of_lines(text: bytes, count: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Digits of each line, and behind its point; None where lines are more or fewer, or one has several points."""
    data = np.frombuffer(text, np.uint8)
    ends, points = np.flatnonzero(data == ord("\n")), np.flatnonzero(data == ord("."))
    if len(ends) != count:
        return None
    number = np.searchsorted(ends, points)
    fraction, width = np.zeros(count, np.int64), np.diff(ends, prepend=-1) - 1
    fraction[number] = ends[number] - points - 1
    width[number] -= 1
    return (width, fraction) if np.diff(number).all() else None


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
