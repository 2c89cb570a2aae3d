"""The value that ``reconcile`` makes and everything after it reads: frames by table name.

`Results` is what reports, exporters and tables may rely on; an in-memory `Analysis` and a
`store.Store` both are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, to_frame
from xsp_post.schemas import TABLES, optional_columns


class Results(Protocol):
    """Named tables of one workload (docs/columns.md lists each column)."""

    def tables(self) -> list[str]:
        """Names of the tables that are there, e.g. ``captures``, ``kernels``, ``a08``."""

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """One table. KeyError when it is not there; an empty table is there with zero rows."""


@dataclass(frozen=True, eq=False)
class Overlay:
    """Results some of whose tables were computed again, e.g. a store's analyses with other roofs."""

    base: Results
    frames: dict[str, pd.DataFrame]

    def tables(self) -> list[str]:
        return sorted({*self.base.tables(), *self.frames})

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self.frames:
            return self.base.frame(name, columns)
        return self.frames[name] if columns is None else self.frames[name][list(columns)]


@dataclass(eq=False)
class Analysis:
    """All tables of one workload in memory."""

    frames: dict[str, pd.DataFrame]
    findings: list[Finding] = field(default_factory=list)

    def tables(self) -> list[str]:
        return sorted(self.frames)

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        frame = self.frames[name]
        return frame if columns is None else frame[list(columns)]


# A table that results have where the work of no kernel is known: A15, which takes a while to make, has none either.
WORKLESS = "workless"


@dataclass(eq=False)
class OnDemand:
    """Tables of one workload, some of which are made when they are first read. ``makers``: of a table, what makes it
    and perhaps others."""

    frames: dict[str, pd.DataFrame]
    makers: Mapping[str, Callable[[Results], Mapping[str, pd.DataFrame]]]

    def tables(self) -> list[str]:
        return sorted({*self.frames, *self.makers})

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self.frames:
            self.frames.update(self.makers[name](self))
        frame = self.frames[name]
        return frame if columns is None else frame[list(columns)]


def with_findings(frames: dict[str, pd.DataFrame], findings: list[Finding]) -> Analysis:
    """An analysis whose table ``findings`` says what the list says."""
    return Analysis({**frames, "findings": to_frame(findings)}, findings)


def frame_or_empty(results: Results, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table, or one without rows but with the columns of its schema where it is not there."""
    if name in results.tables():
        return results.frame(name, columns)
    empty = empty_table(name)
    return empty if columns is None else empty.reindex(columns=list(columns))


def empty_table(name: str) -> pd.DataFrame:
    """A table without rows: the columns and dtypes of its schema; no column where no schema lists it."""
    listed = TABLES[name].columns if name in TABLES else ()
    return pd.DataFrame({c.name: np.zeros(0, object if c.dtype == "str" else c.dtype) for c in listed})


def typed(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of the table's schema, in order and dtype; what is missing in a row is "", −1, NaN or false."""
    missing: dict[str, Any] = {"str": "", "int64": -1, "float64": np.nan, "bool": False}
    columns: dict[str, np.ndarray] = {}
    for c in TABLES[name].columns:
        values = frame[c.name].to_numpy(object)
        filled = np.where(pd.isna(values), missing[c.dtype], values)
        columns[c.name] = filled.astype(object if c.dtype == "str" else c.dtype)
    return pd.DataFrame(columns).astype({c.name: "object" for c in TABLES[name].columns if c.dtype == "str"})


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
