"""Helpers of ``ingest`` (a capture → ``Trace``): interning of texts, typed columns, frames.

Readers collect columns as plain lists or object arrays; these turn them into the dtypes of the Trace
contract (see ``trace.Trace``) in one vectorised step per column.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.model.schemas.frames import TRACE_FRAMES, dtypes

NO_TEXT = -1
_INT64 = np.iinfo(np.int64)


class StringTable:
    """Texts by number, in order of first appearance; becomes ``Trace.strings``."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, texts: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Numbers (int32) of an array of texts; None and NaN give −1."""
        values = np.empty(len(texts), dtype=object)
        values[:] = texts
        codes, unique = pd.factorize(values)
        return np.array([*(self.add_one(str(text)) for text in unique), NO_TEXT], np.int32)[codes]

    def add_one(self, text: str) -> int:
        """The number of one text; what no file could hold (lone surrogates) becomes a question mark."""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode("utf-8")
        return self._numbers.setdefault(text, len(self._numbers))

    def array(self) -> np.ndarray:
        """All texts as an object array; index = number."""
        result = np.empty(len(self._numbers), dtype=object)
        result[:] = list(self._numbers)
        return result


class Codes(dict[Any, int]):
    """Numbers of values, in order of first appearance; quicker than `pandas.factorize` for a list of texts."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code

    def of(self, values: Sequence[Any]) -> np.ndarray:
        """The number of each (int32); a value that cannot be a key counts as its text."""
        try:
            return np.fromiter(map(self.__getitem__, values), np.int32, len(values))
        except TypeError:
            return np.fromiter((self[str(value)] for value in values), np.int32, len(values))

    def texts(self) -> list[str]:
        """The values as texts, by number; None is ''."""
        return ["" if value is None else str(value) for value in self]


def int_column(values: Sequence[Any] | np.ndarray, default: int = -1, dtype: str = "int64") -> np.ndarray:
    """Whole numbers out of JSON values; null, lists, other text and out-of-range values give `default`."""
    try:
        result = np.asarray(values, dtype=np.int64)
        is_flat = result.ndim == 1
    except (TypeError, ValueError, OverflowError):
        is_flat = False
    if not is_flat:
        # no integer beyond int64, whose conversion would overflow
        plain = [one if isinstance(one, float | str) or (type(one) in (int, bool) and _INT64.min <= one <= _INT64.max)
                 else None for one in values]  # fmt: skip
        numbers = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce").astype("float64")
        fits = numbers.between(float(_INT64.min), float(_INT64.max), inclusive="left")
        result = numbers.where(fits, default).to_numpy().astype(np.int64)
    if dtype == "int64":
        return result
    limits = np.iinfo(dtype)
    return np.where((result < limits.min) | (result > limits.max), default, result).astype(dtype)


def three_sizes(text: Any) -> tuple[int, int, int]:
    """``[48 1 1]``, ``(48, 1, 1)`` → (48, 1, 1); zeros where it is something else."""
    numbers = re.findall(r"\d{1,10}", str(text or ""))
    return (int(numbers[0]), int(numbers[1]), int(numbers[2])) if len(numbers) == 3 else (0, 0, 0)


def launch_sizes(key: str, texts: Sequence[Any]) -> dict[str, np.ndarray]:
    """Texts of ``grid`` or ``block`` → columns ``grid_x`` … ``grid_z``."""
    sizes = np.array([three_sizes(text) for text in texts], np.int64).reshape(-1, 3)
    return {f"{key}_{axis}": sizes[:, place] for place, axis in enumerate("xyz")}


def one_thread(process: str, thread: str) -> dict[str, Any]:
    """``processes`` and ``threads`` of a trace of one thread, by the names of both."""
    return {
        "processes": pd.DataFrame({"process_id": [0], "global_id": [0], "name": np.array([process], object),
                                   "rank": np.full(1, -1, np.int32)}),
        "threads": pd.DataFrame({"process_index": np.zeros(1, np.int32), "thread_id": np.zeros(1, np.int64),
                                 "name": np.array([thread], object)}),
    }  # fmt: skip


SPAN_DTYPES = dtypes(TRACE_FRAMES["spans"])
LAUNCH_DTYPES = dtypes(TRACE_FRAMES["launches"])
ACTIVITY_DTYPES = dtypes(TRACE_FRAMES["activities"], with_optional=True)


def conform(frame: pd.DataFrame, dtypes: dict[str, str]) -> pd.DataFrame:
    """The frame with exactly the contract's columns: missing ones 0 (text ids −1), dtypes set, index 0…n−1."""
    data = {}
    for name, dtype in dtypes.items():
        missing = NO_TEXT if name.endswith("_text_id") else 0
        # concat leaves NaN where one kind of row has no such column (a copy has no grid)
        values = frame[name].fillna(missing).to_numpy() if name in frame else np.full(len(frame), missing)
        data[name] = int_column(values, missing, dtype) if dtype.startswith("int") else values.astype(dtype)
    return pd.DataFrame(data, index=pd.RangeIndex(len(frame)), copy=False)


_SMALL = 1 << 30  # whose differences, too, fit into int32


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame in less memory: a column of one value is that value, read as many times (it cannot be written
    to), and correlation ids are int32 where they fit."""
    columns = {name: _compact(str(name), column.to_numpy()) for name, column in frame.items()}
    return pd.DataFrame(columns, copy=False)


def _compact(name: str, values: np.ndarray) -> np.ndarray:
    if len(values) and values[0] == values[-1] and (values == values[0]).all():
        return np.broadcast_to(values[0], values.shape)
    if name == "correlation_id" and len(values) and values.min() > -_SMALL and values.max() < _SMALL:
        return values.astype(np.int32)
    return values


@lru_cache(1 << 14)
def short_kernel_name(name: str) -> str:
    """The bare function name of a demangled kernel name: no return type, namespaces, templates, arguments.

    The same text that nsys stores as ``shortName`` for plain C++ functions; names without C++ syntax stay.
    """
    depth = 0
    kept: list[str] = []
    for character in name.replace("(anonymous namespace)", ""):
        if character in "<([{":
            if depth == 0 and character == "(" and kept:
                break
            depth += 1
        elif character in ">)]}":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(character)
    bare = "".join(kept).strip()
    last = bare.rsplit("::", 1)[-1].split()
    return last[-1] if last else name
