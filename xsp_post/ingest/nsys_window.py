"""Captures in: a large SQLite export of nsys, of which only what lies in a time is read.

A launch and its execution have one correlation id, so whatever goes with the work of the time is found by two numbers
for each process: one pass over the smallest columns. No pandas here.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.findings import finding
from xsp_post.ingest.sqlite_pages.asked import quoted
from xsp_post.ingest.sqlite_tables import DAMAGE, SqliteTables
from xsp_post.ingest.tables import Request, resolve
from xsp_post.model.options import Options

LARGE_BYTES = 300_000_000  # a smaller export is read whole: its executions are those of all of it
_DEVICE = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_CALLS, _RANGES, _MARK = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", 34
_PROCESS_OF = {"globalPid": "globalPid", "globalTid": "globalTid & -16777216"}
_LEAST, _MOST = -(1 << 62), 1 << 62


def is_windowed(path: Path, options: Options) -> bool:
    """Whether of this export only a time is to be read: one execution is known when all is."""
    is_time = options.iteration is None and (options.begin_ns, options.end_ns) != (None, None)
    return is_time and path.stat().st_size >= LARGE_BYTES


class WindowTables(SqliteTables):
    """The rows of an export that share time with a window, or go with those that do."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        self._low = _LEAST if options.begin_ns is None else options.begin_ns
        self._high = _MOST if options.end_ns is None else options.end_ns
        self._ids: dict[int, tuple[int, int]] = {}
        self._tables = {resolve(self.tables(), name): name for name in (*_DEVICE, _CALLS, _RANGES)}
        self._low, self._high = self._with_neighbours()
        self._ids = self._ids_of_processes()
        self._reach = self._low, self._high
        self.findings.append(finding("window-alone"))

    def _read_now(self, requests: Sequence[Request]) -> list[pa.Table]:
        """Calls first: with those that go with the work of the window, ranges around them are read."""
        read: dict[int, pa.Table] = {}
        for at, one in sorted(enumerate(requests), key=lambda item: self._tables.get(item[1].table) != _CALLS):
            (read[at],) = super()._read_now([replace(one, where=self._where(one.table))])
            if self._tables.get(one.table) == _CALLS and read[at].num_rows:
                first, last = pc.min(read[at].column("start_ns")), pc.max(read[at].column("end_ns"))
                self._reach = min(self._low, first.as_py()), max(self._high, last.as_py())
        return [read[at] for at in range(len(requests))]

    def _where(self, table: str) -> str:
        """Which rows of a table are read; "" for all of a table that is small or tells no time."""
        kind, columns = self._tables.get(table, ""), self.columns(table)
        if table in self._with_ids():
            return self._work(table)
        low, high = self._reach
        if kind == _RANGES:
            is_range = f"start < {high} AND (end >= {low} OR end IS NULL AND eventType <> {_MARK})"
            is_last = f"start = (SELECT max(start) FROM {quoted(table)})"  # what never ends goes on up to it
            return f"{is_range} OR start IS NULL OR end IS NULL AND start BETWEEN {low} AND {high} OR {is_last}"
        if {"start", "end"} <= columns:
            return f"start < {high} AND (end >= {low} OR end IS NULL)"
        return f"timestamp BETWEEN {low} AND {high}" if "timestamp" in columns else ""

    def _process(self, table: str) -> str:
        """The process of a row, in SQL: the same number in every table."""
        known = [sql for column, sql in _PROCESS_OF.items() if column in self.columns(table)]
        return known[0] if known else "0"

    def _work(self, table: str) -> str:
        process, shares = self._process(table), f"start <= {self._high} AND end >= {self._low}"
        ids = [
            f"correlationId BETWEEN {low} AND {high} AND {process} = {number}"
            for number, (low, high) in self._ids.items()
        ]
        return " OR ".join([shares, *ids])

    def _asked(self, select: str, table: str, where: str, group: str = "") -> list[tuple[int, ...]]:
        query = f"SELECT {select} FROM {quoted(table)} NOT INDEXED WHERE {where} {group}"
        try:
            with closing(self.connect()) as connection:
                return connection.execute(query).fetchall()
        except DAMAGE as error:
            raise self._damaged(error) from error

    def _with_ids(self) -> list[str]:
        names = [name for name, kind in self._tables.items() if kind != _RANGES]
        return [name for name in names if {"start", "end", "correlationId"} <= self.columns(name)]

    def _with_neighbours(self) -> tuple[int, int]:
        """The window, and the device work before and after it: the device waited from one to the other."""
        low, high = self._low, self._high
        for table in self._with_ids():
            if self._tables[table] != _CALLS:
                before, after = f"CASE WHEN start < {low} THEN start END", f"CASE WHEN start >= {high} THEN start END"
                ((last, first),) = self._asked(f"max({before}), min({after})", table, "1")
                known = [one for one in (last, first) if one is not None]
                low, high = min([low, *known]), max([high, *known])
        return low, high

    def _ids_of_processes(self) -> dict[int, tuple[int, int]]:
        """By process the least and the greatest correlation id of work and calls in the window."""
        found: dict[int, tuple[int, int]] = {}
        for table in self._with_ids():
            process, where = self._process(table), self._work(table)
            select = f"{process}, min(correlationId), max(correlationId)"
            for number, low, high in self._asked(
                select, table, f"({where}) AND correlationId > 0", f"GROUP BY {process}"
            ):
                least, most = found.get(number, (low, high))
                found[number] = min(low, least), max(high, most)
        return found
