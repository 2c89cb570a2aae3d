"""Captures in: rows about host threads that may be too many to be read whole, read around gaps of the device only.

Operating-system calls (``OSRT_API``), scheduling (``SCHED_EVENTS``) and samples of the call stack
(``COMPOSITE_EVENTS``, ``SAMPLING_CALLCHAINS``). A table is read in batches, and of each batch only the rows of the
wanted threads (and, where a row stands for itself, of the wanted times) are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.cutting import overlaps
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.tables import NULL, Request, TableSource, WantedColumn, resolve

_TID = WantedColumn("globalTid", "global_tid")
_START = WantedColumn("start", "start_ns", NULL)


@dataclass
class NsysHostRows:
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
        wants = (_START, WantedColumn("isSchedIn", "is_in"), _TID)
        tids = self.global_tids[threads]
        rows = self._read("SCHED_EVENTS", wants, lambda batch: np.isin(_numbers(batch, "global_tid"), tids))
        at, is_in, thread = numbers(rows, "start_ns"), numbers(rows, "is_in"), numbers(rows, "global_tid")
        order = np.lexsort((at, thread))
        at, is_in, thread = at[order], is_in[order], thread[order]
        begins = np.flatnonzero((is_in[:-1] == 0) & (is_in[1:] != 0) & (thread[1:] == thread[:-1]))
        near = overlaps(at[begins], at[begins + 1], start_ns, end_ns)
        begins = begins[near]
        return pd.DataFrame(
            {"thread_index": self._threads(thread[begins]), "start_ns": at[begins], "end_ns": at[begins + 1]}
        )

    def samples(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Samples of the threads within the intervals, each with the innermost frame of its stack."""
        tids = self.global_tids[threads]

        def keep(rows: pa.RecordBatch) -> np.ndarray:
            at = _numbers(rows, "start_ns")
            return np.isin(_numbers(rows, "global_tid"), tids) & overlaps(at, at + 1, start_ns, end_ns)

        taken = self._read("COMPOSITE_EVENTS", (_START, WantedColumn("id", "id"), _TID), keep)
        ids = np.unique(numbers(taken, "id"))
        wants = (WantedColumn("id", "id"), WantedColumn("symbol", "symbol", -1), WantedColumn("stackDepth", "depth"))
        frames = self._read(
            "SAMPLING_CALLCHAINS",
            wants,
            lambda rows: (_numbers(rows, "depth") == 0) & np.isin(_numbers(rows, "id"), ids),
        )
        chain = numbers(frames, "id")
        order = np.argsort(chain, kind="stable")
        position = np.searchsorted(chain[order], numbers(taken, "id"))
        known = position < len(chain)
        position = np.minimum(position, max(len(chain) - 1, 0))
        if len(chain):
            known &= chain[order][position] == numbers(taken, "id")
        symbol = numbers(frames, "symbol")[order][position[known]] if len(chain) else np.zeros(0, np.int64)
        return pd.DataFrame(
            {
                "thread_index": self._threads(numbers(taken, "global_tid")[known]),
                "start_ns": numbers(taken, "start_ns")[known],
                "name": self._texts(symbol),
            }
        )

    def _read(self, table: str, wants: tuple[WantedColumn, ...], keep: Any) -> pa.Table:
        name = resolve(self.source.tables(), table)
        if not {want.column for want in wants} <= self.source.columns(name):
            name = "-"  # a table without what is needed counts as absent
        return self.source.read([Request(name, wants, keep=keep)])[0]

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
    return rows.column(rows.schema.get_field_index(column)).to_numpy(zero_copy_only=False)
