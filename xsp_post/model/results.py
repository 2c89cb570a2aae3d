"""The value that ``reconcile`` makes and everything after it reads: frames by table name.

`Results` is what reports, exporters and tables may rely on; an in-memory `Analysis` and a
`store.Store` both are one.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from xsp_post.base.findings import Finding
from xsp_post.base.text_safety import shown
from xsp_post.model.schemas import TABLES, optional_columns

_T = TypeVar("_T")


class Results(Protocol):
    """Named tables of one workload (docs/columns.md lists each column)."""

    def tables(self) -> list[str]:
        """Names of the tables that are there, e.g. ``captures``, ``kernels``, ``a08``."""

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """One table. KeyError when it is not there; an empty table is there with zero rows."""

    def near(self, name: str, low_ns: int, high_ns: int, iterations: tuple[int, int] | None = None) -> pd.DataFrame:
        """At least the rows of a table that share time with ``low_ns`` … ``high_ns`` and, where they say their model
        execution, are of the ``iterations`` from one to another: what a store need not read is left out."""
        return self.frame(name)

    def numbered(self, name: str, column: str, ids: np.ndarray) -> pd.DataFrame:
        """The rows of a table whose ``column``, an id, is one of ``ids``."""
        frame = self.frame(name)
        return frame[frame[column].isin(ids).to_numpy()]

    def found(self, code: str = "") -> pd.DataFrame:
        """The table of findings, as far as the tables that may find something were made; those that may find ``code``
        are made for it."""
        return frame_or_empty(self, "findings")

    def complete(self) -> "Results":
        """The same tables, all of them made; what they were made of is let go of."""
        return self

    def kept(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """A value that is worked out once for these results, whoever asks for it."""
        known: dict[Hashable, _T] = self.__dict__.setdefault("_kept", {})
        if key not in known:
            known[key] = make()
        return known[key]


@dataclass(eq=False)
class Analysis(Results):
    """All tables of one workload in memory."""

    frames: dict[str, pd.DataFrame]
    findings: list[Finding] = field(default_factory=list)

    def tables(self) -> list[str]:
        return sorted(self.frames)

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        frame = self.frames[name]
        if columns is None:
            return frame
        declared = {column.name for column in TABLES[name].columns} if name in TABLES else set()
        later = [column for column in columns if column not in frame and column in declared]
        frame = (
            frame.assign(**{column: unknown_column(name, column, len(frame)) for column in later}) if later else frame
        )
        return frame[list(columns)]


def finite(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with infinite numbers unknown: they have no place on an axis, and JSON has no word for them."""
    floats = [str(column) for column, dtype in frame.dtypes.items() if dtype.kind == "f"]
    infinite = [column for column in floats if np.isinf(frame[column].to_numpy()).any()]
    if not infinite:
        return frame
    return frame.assign(**{column: frame[column].replace([np.inf, -np.inf], np.nan) for column in infinite})


def frame_or_empty(results: Results, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table, or one without rows but with the columns of its schema where it is not there."""
    if name in results.tables():
        return results.frame(name, columns)
    empty = empty_table(name)
    return empty if columns is None else empty.reindex(columns=list(columns))


def of_captures(
    results: Results, name: str, captures: int | Sequence[int], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """The rows of one or some captures in a table (`frame_or_empty`); ``columns``: without ``capture_id``."""
    frame = frame_or_empty(results, name, None if columns is None else ["capture_id", *columns])
    mine = np.isin(frame["capture_id"].to_numpy(), captures)
    return frame.copy(deep=False) if mine.all() else frame[mine]


def found_in(results: Results, captures: Sequence[int], code: str) -> pd.DataFrame:
    """What was found of one code in some captures."""
    found = results.found(code)
    return found[found["code"].astype(object).eq(code) & found["capture_id"].isin(captures)]


_UNKNOWN: dict[str, Any] = {"int64": -1, "float64": np.nan, "bool": False, "str": ""}


def unknown_column(table: str, name: str, count: int) -> np.ndarray:
    """A column that was not stored, "unknown" in each row: a store may be older than a column. An integer that is
    always known now has no word for that: it is NaN."""
    column = next(column for column in TABLES[table].columns if column.name == name)
    is_number = column.dtype not in ("str", "bool") and not column.is_optional
    dtype = object if column.dtype == "str" else None
    return np.full(count, np.nan if is_number else _UNKNOWN[column.dtype], dtype)


def empty_table(name: str) -> pd.DataFrame:
    """A table without rows: the columns and dtypes of its schema; no column where no schema lists it."""
    listed = TABLES[name].columns if name in TABLES else ()
    return pd.DataFrame({c.name: np.zeros(0, object if c.dtype == "str" else c.dtype) for c in listed})


def shaped(table: str, columns: Mapping[Any, Any]) -> pd.DataFrame:
    """A frame with exactly the columns of a registered table, in order and dtype. KeyError for a missing one.

    Text may be a categorical, an array or one value for all rows; categoricals stay categoricals.
    """
    schema = TABLES[table].columns
    frame = pd.DataFrame({column.name: columns[column.name] for column in schema}, copy=False)
    for column, made in zip(schema, frame.dtypes.tolist()):
        if column.dtype != "str" and str(made) != column.dtype:
            frame[column.name] = frame[column.name].to_numpy().astype(column.dtype)
    return frame


def typed(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of the table's schema, in order and dtype; what is missing is "", −1, NaN or false."""
    columns: dict[str, pd.Series | np.ndarray] = {}
    for c in TABLES[name].columns:
        if c.dtype != "str" and c.name in frame and frame[c.name].dtype == c.dtype:
            columns[c.name] = frame[c.name].to_numpy()
            continue
        dtype = object if c.dtype == "str" else c.dtype
        filled = np.full(len(frame), _UNKNOWN[c.dtype], dtype)
        if c.name in frame:
            values = frame[c.name].to_numpy(object)
            filled = np.where(pd.isna(values), filled.astype(object), values).astype(dtype)
        columns[c.name] = pd.Series(filled, dtype=dtype)  # pandas would look at every text of an array
    return pd.DataFrame(columns)


def side_by_side(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several frames; a column that one of them lacks is unknown there."""
    filled = [f for f in frames if len(f)] or frames[:1]
    if len(filled) == 1:
        return filled[0].reset_index(drop=True)
    columns: dict[str, object] = {}
    for name in dict.fromkeys(column for f in filled for column in f.columns):
        parts = _of_one_kind([f.get(name) for f in filled], [len(f) for f in filled])
        if all(isinstance(p.dtype, pd.CategoricalDtype) for p in parts):
            # readers make texts of either dtype, object or str
            texts = [p.cat.rename_categories(p.cat.categories.astype(object).tolist()) for p in parts]
            columns[name] = union_categoricals(texts)
        else:
            columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def _of_one_kind(parts: list[pd.Series | None], counts: list[int]) -> list[pd.Series]:
    """A column of several frames; where a frame does not have it, its values are unknown."""
    has_texts = any(part is not None and isinstance(part.dtype, pd.CategoricalDtype) for part in parts)
    unknown = pd.CategoricalDtype([""]) if has_texts else float
    value = "" if has_texts else float("nan")
    return [pd.Series([value] * n, dtype=unknown) if part is None else part for part, n in zip(parts, counts)]


def for_people(results: Results, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table as it leaves the program: integers that may be unknown are nullable (Int64), <NA> where they are."""
    return with_unknown(name, results.frame(name, columns))


def with_unknown(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with <NA> in place of the −1 that stands for "unknown" in our own arrays."""
    nullable = {}
    for column in optional_columns(table):
        if column in frame and frame[column].dtype.kind == "i":
            numbers = frame[column].to_numpy(np.int64)
            nullable[column] = pd.arrays.IntegerArray(numbers.copy(), numbers == -1)
    return frame.assign(**nullable) if nullable else frame


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready dicts: missing values are None."""
    frame = frame.astype(object)
    rows: list[dict[Any, Any]] = frame.where(frame.notna(), None).to_dict("records")
    return rows


_MOST = 3


def part_text(results: Results) -> str:
    """``iteration 3 of 0 … 13 (model:forward), 12.0 ms … 16.2 ms of the recording``; "" where all of it is shown."""
    if "part" not in results.tables():
        return ""
    frame = results.frame("part", ["statement"])
    said = list(dict.fromkeys(shown(str(text), 200) for text in frame["statement"]))
    more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
    return "; ".join(said[:_MOST]) + more


def part_sentence(results: Results) -> str:
    """``Part shown: iteration 3 …``; "" where all of the recording is shown."""
    text = part_text(results)
    return f"Part shown: {text}" if text else ""
