"""Captures in: rows about host threads that may be too many to be read whole, read around gaps of the device only.

Operating-system calls (``OSRT_API``), scheduling (``SCHED_EVENTS``) and samples of the call stack
(``COMPOSITE_EVENTS``, ``SAMPLING_CALLCHAINS``). A table is read in batches, and of each batch only the rows of the
wanted threads (and, where a row stands for itself, of the wanted times) are kept.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.cutting import Keys, distinct, overlaps
from xsp_post.arrays.intervals import covered_before
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.tables import NULL, Request, TableSource, WantedColumn, resolve

_TID = WantedColumn("globalTid", "global_tid")
_START = WantedColumn("start", "start_ns", NULL)
_RUNNABLE = (42, 44, 45, 49, 51)  # threadBlock: its time was over, it was preempted, it yielded, it is ready to run


class NsysHostRows(NamedTuple):
    """`model.trace.HostRows` of one export; ``global_tids`` are those of the trace's threads, in their order."""

    source: TableSource
    global_tids: np.ndarray

    def os_calls(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Calls of the threads that overlap one of the intervals (ascending, disjoint)."""
        wants = (_START, WantedColumn("end", "end_ns", NULL), _TID, WantedColumn("nameId", "name", -1))
        tids = self.global_tids[threads]

        def keep(rows: pa.RecordBatch) -> np.ndarray:
            first, last = _numbers(rows, "start_ns"), _numbers(rows, "end_ns")
            return np.isin(_numbers(rows, "global_tid"), tids) & overlaps(first, last, start_ns, end_ns)

        rows = self._read("OSRT_API", wants, keep)
        return pd.DataFrame(
            {
                "thread_index": self._threads(numbers(rows, "global_tid")),
                "name": self._texts(numbers(rows, "name")),
                "start_ns": numbers(rows, "start_ns"),
                "end_ns": numbers(rows, "end_ns"),
            }
        )

    def descheduled(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """From each moment in which a thread lost its processor to the next in which it got one."""
        tids = self.global_tids[threads]
        rows = self._events(lambda batch: np.isin(_numbers(batch, "global_tid"), tids))
        order = np.lexsort((rows["start_ns"], rows["global_tid"]))
        at, is_in, thread, cpu, block = (rows[name].to_numpy()[order] for name in rows)
        begins = np.flatnonzero((is_in[:-1] == 0) & (is_in[1:] != 0) & (thread[1:] == thread[:-1]))
        begins = begins[overlaps(at[begins], at[begins + 1], start_ns, end_ns)]
        start, end = at[begins], at[begins + 1]
        could_run = np.isin(block[begins], _RUNNABLE)
        is_rival = could_run | (2 * self._others_ran(cpu[begins], start, end) >= end - start)
        return pd.DataFrame(
            {"thread_index": self._threads(thread[begins]), "start_ns": start, "end_ns": end, "is_rival": is_rival}
        )

    def _events(self, keep: Any) -> pd.DataFrame:
        """Rows of the scheduler: start_ns, is_in, global_tid, cpu, block (why it went, −1 not recorded)."""
        wants = (_START, WantedColumn("isSchedIn", "is_in"), _TID, WantedColumn("cpu", "cpu", -1))
        rows = self._read("SCHED_EVENTS", wants, keep, (WantedColumn("threadBlock", "block", -1),))
        return pd.DataFrame({name: numbers(rows, name) for name in ("start_ns", "is_in", "global_tid", "cpu", "block")})

    def _others_ran(self, cpu: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """How long threads of the recording ran on a processor within each interval, whose own thread did not; ns."""
        if not len(cpu):
            return np.zeros(0, np.int64)
        low, high = int(start.min()), int(end.max())

        def keep(batch: pa.RecordBatch) -> np.ndarray:
            at = _numbers(batch, "start_ns")
            return np.isin(_numbers(batch, "cpu"), cpu) & (at >= low) & (at <= high)

        rows = self._events(keep)
        keys = Keys(low, high, int(cpu.max()) + 2)
        key = keys.of(rows["cpu"].to_numpy(), rows["start_ns"].to_numpy())
        order = np.argsort(key, kind="stable")
        key, of, is_in = key[order], rows["cpu"].to_numpy()[order], rows["is_in"].to_numpy()[order] != 0
        # a processor has one thread: it runs until the next event there
        ran = np.flatnonzero(is_in[:-1] & (of[1:] == of[:-1]))
        before_end, before_start = (covered_before(key[ran], key[ran + 1], keys.of(cpu, at)) for at in (end, start))
        return before_end - before_start

    def samples(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Samples of the threads within the intervals, each with the innermost frame of its stack."""
        tids = self.global_tids[threads]

        def keep(rows: pa.RecordBatch) -> np.ndarray:
            at = _numbers(rows, "start_ns")
            return np.isin(_numbers(rows, "global_tid"), tids) & overlaps(at, at + 1, start_ns, end_ns)

        taken = self._read("COMPOSITE_EVENTS", (_START, WantedColumn("id", "id"), _TID), keep)
        ids = distinct(numbers(taken, "id"))
        wants = (WantedColumn("id", "id"), WantedColumn("symbol", "symbol", -1), WantedColumn("stackDepth", "depth"))
        frames = self._read(
            "SAMPLING_CALLCHAINS",
            wants,
            lambda rows: (_numbers(rows, "depth") == 0) & np.isin(_numbers(rows, "id"), ids),
        )
        innermost = pd.Series(numbers(frames, "symbol"), numbers(frames, "id"))
        innermost = innermost[~innermost.index.duplicated()].reindex(numbers(taken, "id"))
        known = innermost.notna().to_numpy()
        symbol = innermost[known].to_numpy(np.int64)
        return pd.DataFrame(
            {
                "thread_index": self._threads(numbers(taken, "global_tid")[known]),
                "start_ns": numbers(taken, "start_ns")[known],
                "name": self._texts(symbol),
            }
        )

    def _read(
        self, table: str, wants: tuple[WantedColumn, ...], keep: Any, optional: tuple[WantedColumn, ...] = ()
    ) -> pa.Table:
        name = resolve(self.source.tables(), table)
        if not {want.column for want in wants} <= self.source.columns(name):
            name = "-"  # a table without what is needed counts as absent
        return self.source.read([Request(name, (*wants, *optional), keep=keep)])[0]

    def _threads(self, global_tid: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.global_tids, global_tid).astype(np.int32)

    def _texts(self, ids: np.ndarray) -> np.ndarray:
        """The texts of StringIds numbers ('' where there is none)."""
        codes, used = pd.factorize(ids)
        wants = (WantedColumn("id", "id"), WantedColumn("value", "value", b""))
        table = resolve(self.source.tables(), "StringIds")
        rows = self.source.read([Request(table, wants, keep=lambda batch: np.isin(_numbers(batch, "id"), used))])[0]
        texts = [value.decode("utf-8", "replace") for value in rows.column("value").to_pylist()]
        by_id = dict(zip(numbers(rows, "id").tolist(), texts))
        return np.array([*(by_id.get(one, "") for one in used.tolist()), ""], object)[codes]


def _numbers(rows: pa.RecordBatch, column: str) -> np.ndarray:
    return rows.column(column).to_numpy(zero_copy_only=False)
