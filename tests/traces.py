"""A `Trace` from a few rows in memory: for tests of single steps, without a file and its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.model.schemas.frames import ANY_INTEGER, TRACE_FRAMES
from xsp_post.model.trace import Provenance, Trace


def frame_of_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of the trace. A column that no row states: −1 for what refers to another row, else 0, '' or false."""
    frame, columns = TRACE_FRAMES[name], {}
    for column in (*frame.columns, *frame.may_lack):
        blank: Any = -1 if column.name.endswith(("_index", "_id")) and "graph" not in column.name else 0
        blank = {"str": "", "bool": False, "float64": np.nan}.get(column.dtype, blank)
        dtype = {"str": object, ANY_INTEGER: np.int64}.get(column.dtype, column.dtype)
        columns[column.name] = np.array([row.get(column.name, blank) for row in rows], dtype)
    return pd.DataFrame(columns)


def trace_of_rows(
    *, process_of_thread: Sequence[int] = (0,), strings: Sequence[str] = (), **rows: Sequence[Mapping[str, Any]]
) -> Trace:
    """A trace of these rows (``spans=[...]``, ``launches=[...]``), with a thread for each entry of
    ``process_of_thread``. The process of a row that has a thread follows from it."""
    full = {
        name: [{"process_index": process_of_thread[row.get("thread_index", 0)], **row} for row in some]
        for name, some in rows.items()
    }
    processes = [{"process_id": 100 + p, "global_id": p} for p in range(max(process_of_thread) + 1)]
    threads = [{"process_index": process, "thread_id": 1 + t} for t, process in enumerate(process_of_thread)]
    frames = {"spans": [], **full, "processes": processes, "threads": threads}
    return Trace(
        provenance=Provenance("rows", "nsys"),
        strings=np.array([*strings], object),
        **{name: frame_of_rows(name, some) for name, some in frames.items()},
    )
