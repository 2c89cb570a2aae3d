"""Captures in: a large SQLite export of nsys, of which only what lies in a time is read.

A launch and its execution have one correlation id, so whatever goes with the work of the time is found by two numbers
for each process. One pass over the smallest columns says what lies in each page of the file; of the pages that may hold
rows of the window all columns are read. No pandas here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.cutting import distinct
from xsp_post.base.findings import finding
from xsp_post.ingest import sqlite_pages
from xsp_post.ingest.sqlite_pages import Zones
from xsp_post.ingest.sqlite_tables import UNREADABLE, SqliteTables
from xsp_post.ingest.tables import DEVICE_TABLES, MARK, NULL, PROCESS_BITS, Request, WantedColumn, resolve
from xsp_post.model.options import Options

LARGE_BYTES = 300_000_000  # a smaller export is read whole: its executions are those of all of it
_CALLS, _RANGES = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_TIMES, _PREFIX = ("start", "end", "correlationId", "globalPid", "globalTid", "eventType"), "of the window: "
_OF_PAGES = ("start", "end", "correlationId", "timestamp")  # by which pages are found
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
        self._zones: dict[str, Zones | None] = {}
        names = (resolve(self.tables(), name) for name in (*DEVICE_TABLES.values(), _CALLS))
        self._with_ids = [name for name in names if {"start", "end", "correlationId"} <= self.columns(name)]
        self._calls, self._ranges = (resolve(self.tables(), name) for name in (_CALLS, _RANGES))
        self._low, self._high = self._with_neighbours()
        self._ids = self._ids_of_processes()
        self._reach = self._low, self._high
        self.findings.append(finding("window-alone"))

    def _read_now(self, requests: Sequence[Request]) -> list[pa.Table]:
        """Calls first: with those that go with the work of the window, ranges around them are read."""
        read: dict[int, pa.Table] = {}
        for at, one in sorted(enumerate(requests), key=lambda item: item[1].table != self._calls):
            (read[at],) = super()._read_now([one])
            if one.table == self._calls and read[at].num_rows:
                first, last = pc.min(read[at].column("start_ns")), pc.max(read[at].column("end_ns"))
                self._reach = min(self._low, first.as_py()), max(self._high, last.as_py())
        return [read[at] for at in range(len(requests))]

    def _read_one(self, request: Request) -> pa.Table:
        table, times = request.table, self._times(request.table)
        if not times:
            return super()._read_one(request)
        last = self._last_start(table) if table == self._ranges else _MOST

        def keep(rows: pa.RecordBatch) -> np.ndarray:
            wanted = self._is_wanted(table, _numbers(rows), last)
            return wanted & request.keep(rows) if request.keep else wanted

        wants = (*request.wants, *times)
        read = self._some(request._replace(wants=wants, keep=keep), partial(self._may_hold, table, last=last))
        self.row_counts[table] = read.num_rows
        return read.select([want.alias for want in request.wants])

    def _times(self, table: str) -> tuple[WantedColumn, ...]:
        """The columns that tell whether a row is of the window; none of a table that tells no time."""
        have = self.columns(table)
        names = _TIMES if {"start", "end"} <= have else ("timestamp",)
        return tuple(WantedColumn(name, _PREFIX + name, NULL) for name in names if name in have)

    def _is_wanted(self, table: str, rows: dict[str, np.ndarray], last: int) -> np.ndarray:
        """Which rows are read. ``last``: the start up to which a range that never ends goes on; its row is one."""
        low, high = self._reach if self._ids else (self._low, self._high)
        if "timestamp" in rows:
            return (rows["timestamp"] >= low) & (rows["timestamp"] <= high)
        start, end = rows["start"], rows["end"]
        if table in self._with_ids:
            wanted = (start <= self._high) & (end >= self._low) & (start != NULL)
            for number, (least, most) in self._ids.items():
                wanted |= (
                    (rows["correlationId"] >= least) & (rows["correlationId"] <= most) & (_process(rows) == number)
                )
            return wanted
        is_open = end == NULL
        if table != self._ranges:
            return (start < high) & ((end >= low) | is_open) & (start != NULL)
        is_range = (start < high) & ((end >= low) | is_open & (rows["eventType"] != MARK))
        is_mark = is_open & (start >= low) & (start <= high)
        return is_range | is_mark | (start == NULL) | (start == last)

    def _may_hold(self, table: str, zones: Zones, last: int) -> np.ndarray:
        """Which pages may hold rows that are read."""
        low, high = self._reach if self._ids else (self._low, self._high)
        if "timestamp" in zones.least:
            return (zones.most["timestamp"] >= low) & (zones.least["timestamp"] <= high)
        start, end = zones.least["start"], zones.most["end"]
        may = (start <= high) & ((end >= low) | (zones.least["end"] == NULL))
        if table == self._ranges:
            may |= (start == NULL) | (zones.most["start"] == last)
        elif table in self._with_ids:
            for least, most in self._ids.values():
                may |= (zones.most["correlationId"] >= least) & (zones.least["correlationId"] <= most)
        return may

    # -- pages near something -----------------------------------------------------------------------

    def _some(self, request: Request, near: Callable[[Zones], np.ndarray]) -> pa.Table:
        """The rows of those pages that are ``near``, of a table that only SQLite can read of all; `Request.keep`
        decides on each row."""
        table = request.table
        if table not in self._zones:
            self._zones[table] = self._zones_of(table)
        if (zones := self._zones[table]) is not None:
            at = near(zones)
            if (read := self._decode(request, int(zones.counts[at].sum()), zones.pages[at])) is not None:
                return read
        return self._read_by_sqlite(request, self._count(table))

    def _zones_of(self, table: str) -> Zones | None:
        stored = self._schema[table].stored
        if stored is None:
            return None
        try:
            with self.opened() as (_, file):
                wants = tuple(want for want in self._times(table) if want.column in _OF_PAGES)
                return sqlite_pages.zones(file, stored, Request(table, wants))
        except UNREADABLE:
            return None

    def _near(self, table: str, near: Callable[[Zones], np.ndarray]) -> dict[str, np.ndarray]:
        """The times and ids of these rows."""
        return _numbers(self._some(Request(table, self._times(table)), near))

    def _last_start(self, table: str) -> int:
        start = self._near(table, lambda zones: zones.most["start"] == zones.most["start"].max())["start"]
        return int(start.max(initial=NULL + 1))

    def _with_neighbours(self) -> tuple[int, int]:
        """The window, and the device work before and after it: the device waited from one to the other."""
        low, high = self._low, self._high

        def near(zones: Zones) -> np.ndarray:
            least, most = zones.least["start"], zones.most["start"]
            last, first = most[most < low].max(initial=NULL), least[least >= high].min(initial=_MOST)
            return (least < low) & (most >= low) | (least < high) & (most >= high) | (most == last) | (least == first)

        for table in self._with_ids:
            if table != self._calls:
                start = self._near(table, near)["start"]
                before, after = start[(start < low) & (start != NULL)], start[start >= high]
                low, high = int(before.max()) if len(before) else low, int(after.min()) if len(after) else high
        return low, high

    def _ids_of_processes(self) -> dict[int, tuple[int, int]]:
        """By process the least and the greatest correlation id of work and calls in the window."""
        found: dict[int, tuple[int, int]] = {}
        for table in self._with_ids:
            rows = self._near(table, partial(self._may_hold, table, last=_MOST))
            is_in = self._is_wanted(table, rows, _MOST) & (rows["correlationId"] > 0)
            process, number = _process(rows)[is_in], rows["correlationId"][is_in]
            for one in distinct(process).tolist():
                mine = number[process == one]
                least, most = found.get(one, (_MOST, _LEAST))
                found[one] = min(int(mine.min()), least), max(int(mine.max()), most)
        return found


def _numbers(rows: pa.RecordBatch | pa.Table) -> dict[str, np.ndarray]:
    """The columns of `WindowTables._times`."""
    names = [name for name in rows.schema.names if name.startswith(_PREFIX)]
    return {name.removeprefix(_PREFIX): rows.column(name).to_numpy() for name in names}


def _process(rows: dict[str, np.ndarray]) -> np.ndarray:
    """The process of each row: the same number in every table; 0 where none is told."""
    known = [rows[name] & PROCESS_BITS for name in ("globalPid", "globalTid") if name in rows]
    return known[0] if known else np.zeros(len(rows["start"]), np.int64)
