"""Columns of numbers → the same numbers in few bytes, and back.

A number of a row often follows from its neighbours: an end is a start and a length, ids and times rise with the rows.
So a column may be stored as its difference to another one (``end_ns_minus_start_ns``), and what is left as its
difference to the least of its model execution (``start_ns_above_base``), which is in a table of its own: SQLite stores
a small number in fewer bytes, and what every execution does again stands once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.ingest.tables import NULL

MINUS, ABOVE, STRING = "_minus_", "_above_base", "_string_id"  # in names of columns
_ROWS_PER_BASE = 1024  # where executions do not say which rows share bases: a few milliseconds of a busy device
_FEWEST_PER_BASE = 16  # rows of an execution: of fewer a base saves nothing
_WIDTHS = (1, 2, 3, 4, 6, 8)  # bytes of an integer in SQLite; 0 and 1 take none
_FLOAT_BYTES = 8


class StoredName(NamedTuple):
    """What the name of a stored column says."""

    own: str  # the name of the table's column
    other: str = ""  # the column that was taken off
    is_text: bool = False  # ids of texts
    is_based: bool = False  # less the base of its rows

    @classmethod
    def of(cls, text: str) -> "StoredName":
        name = text.removesuffix(ABOVE)
        own, _, other = name.partition(MINUS)
        return cls(own.removesuffix(STRING), other, own.endswith(STRING), name != text)

    @property
    def text(self) -> str:
        parts = self.own, STRING * self.is_text, MINUS * bool(self.other), self.other, ABOVE * self.is_based
        return "".join(parts)

    @property
    def without_base(self) -> "StoredName":
        return self._replace(is_based=False)


class Numbers(NamedTuple):
    """One column: its numbers, and which of them are unknown (None: all are known)."""

    values: np.ndarray
    unknown: np.ndarray | None = None

    @classmethod
    def of(cls, values: np.ndarray, is_optional: bool = False) -> "Numbers":
        """``is_optional``: the −1 of an integer is unknown, as NaN is."""
        if values.dtype == bool:
            values = values.view(np.int8)
        unknown = np.isnan(values) if values.dtype.kind == "f" else values == -1 if is_optional else np.zeros(1, bool)
        return cls(values, unknown if unknown.any() else None)

    def take(self, rows: np.ndarray) -> "Numbers":
        return Numbers(self.values[rows], None if self.unknown is None else self.unknown[rows])

    def minus(self, other: np.ndarray) -> "Numbers":
        """The column less another one, in as few bytes as NumPy has."""
        if self.values.dtype.kind == "f":
            return Numbers(self.values - other, self.unknown)
        less = Numbers(np.subtract(self.values, other, dtype=np.int64), self.unknown)
        if self.unknown is not None:
            less.values[self.unknown] = 0
        low, high = int(less.values.min(initial=0)), int(less.values.max(initial=0))
        kinds = (
            kind for kind in (np.int8, np.int16, np.int32) if np.iinfo(kind).min <= low <= high <= np.iinfo(kind).max
        )
        return Numbers(less.values.astype(next(kinds, np.int64), copy=False), self.unknown)

    def follows(self, kind: np.ndarray, first: np.ndarray) -> bool:
        """Whether rows of one kind have one number; ``first``: a row of each kind."""
        codes = self.codes()
        if not len(codes) or (codes == codes[0]).all():
            return True
        return bool((codes[first][kind] == codes).all())

    def known(self) -> np.ndarray:
        return self.values if self.unknown is None else self.values[~self.unknown]

    def width(self) -> int:
        """Bytes of most of the numbers."""
        known = self.known()
        if known.dtype.kind == "f":
            return _FLOAT_BYTES
        return int_bytes(int(known.min(initial=0)), int(known.max(initial=0)))

    def codes(self) -> np.ndarray:
        """Integers that are equal where the numbers are."""
        if self.values.dtype.kind == "f":
            return pd.factorize(self.values, use_na_sentinel=False)[0]
        if self.unknown is None:
            return self.values
        return np.where(self.unknown, int(self.known().min(initial=0)) - 1, self.values)

    def arrow(self) -> pa.Array:
        if self.unknown is None:
            return pa.array(self.values)
        # as pa.array(mask=…), but the numbers are not copied
        bits = pa.py_buffer(np.packbits(~self.unknown, bitorder="little"))
        buffers = [bits, pa.py_buffer(np.ascontiguousarray(self.values))]
        return pa.Array.from_buffers(pa.from_numpy_dtype(self.values.dtype), len(self.values), buffers)


def int_bytes(low: int, high: int) -> int:
    """Bytes that SQLite takes for the largest of some integers."""
    if low >= 0 and high <= 1:
        return 0
    return next(width for width in _WIDTHS if max(high, ~low).bit_length() < 8 * width)


@dataclass(frozen=True)
class Bases:
    """Which rows share bases: the number of each row's, and where runs of the same number begin."""

    number: np.ndarray
    count: int
    begins: np.ndarray

    @classmethod
    def of(cls, iteration: np.ndarray | None, count: int) -> "Bases":
        """``iteration``: the model execution of each of the rows, where the table has it."""
        number, used = np.arange(count, dtype=np.int32) // _ROWS_PER_BASE, range(-(-count // _ROWS_PER_BASE))
        if iteration is not None:
            numbers, executions = pd.factorize(iteration)
            if 1 < len(executions) <= count // _FEWEST_PER_BASE:
                number, used = numbers.astype(np.int32), range(len(executions))
        return cls(number, len(used), np.flatnonzero(np.diff(number, prepend=-1)))

    def least(self, values: np.ndarray) -> np.ndarray:
        """The least of the rows of each base."""
        result = np.full(self.count, np.iinfo(np.int64).max)
        np.minimum.at(result, self.number[self.begins], np.minimum.reduceat(values, self.begins))
        return result

    def above(self, column: Numbers) -> tuple[Numbers, np.ndarray] | None:
        """The column less the bases of its rows, and these; None where that saves nothing."""
        if column.values.dtype.kind not in "iu" or column.width() <= 1:
            return None
        values = column.values
        if column.unknown is not None:
            values = np.where(column.unknown, int(column.known().max()), values)
        bases = self.least(values)
        less = column.minus(bases[self.number])
        return (less, bases) if less.width() < column.width() else None


# Columns that follow from others where a large table has them: the sum of these, less those with a minus
COMPUTED = {
    "duration_ns": ("end_ns", "-start_ns"),
    "device_ns": ("kernel_ns", "copy_ns", "graph_ns"),
    "queue_delay_ns": ("start_ns", "-launch_start_ns"),
}


def sources_of(names: set[str], stored: Iterable[StoredName]) -> set[str]:
    """The columns that are needed for some, given what a table stores: they, and what their differences are of."""
    differences = {name.own: name.other for name in stored if name.other}
    own = {name.own for name in stored}
    found: set[str] = set()
    open_names = set(names)
    while open_names:
        found |= open_names
        more = {differences[name] for name in open_names if name in differences}
        computed = (open_names & COMPUTED.keys()) - own
        open_names = more.union(*({term.lstrip("-") for term in COMPUTED[name]} for name in computed)) - found
    return found


def decoded(
    stored: dict[StoredName, np.ndarray], wanted: Iterable[str], optional: frozenset[str]
) -> dict[str, np.ndarray]:
    """Columns of numbers by their own names, out of what a table stores (there `NULL` stands for unknown, in the result
    −1). Raises KeyError for a column that is not stored and does not follow from others."""
    by_own = {name.own: (name, values) for name, values in stored.items()}
    result: dict[str, np.ndarray] = {}

    def value(name: str) -> np.ndarray:
        if name not in result:
            result[name] = made(name)
        return result[name]

    def made(name: str) -> np.ndarray:
        if name in by_own:
            found, values = by_own[name]
            return _filled(values + value(found.other) if found.other else values, values)
        terms = [(term.lstrip("-"), -1 if term.startswith("-") else 1) for term in COMPUTED[name]]
        total = np.add.reduce([sign * value(of) for of, sign in terms])
        missing = [value(of) == -1 for of, _ in terms if of in optional]
        return np.where(np.logical_or.reduce(missing), -1, total) if missing else total

    return {name: value(name) for name in wanted}


def _filled(values: np.ndarray, stored: np.ndarray) -> np.ndarray:
    missing = stored == NULL if stored.dtype == np.int64 else np.zeros(1, bool)
    return np.where(missing, -1, values) if missing.any() else values
