"""Captures in: global process and thread ids of an Nsight Systems export → dense indexes, and their two frames."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.cutting import distinct
from xsp_post.ingest.tables import DEVICE_TABLES, PROCESS_BITS


class Numbering:
    """Every process and thread that has a range, a call or device work, in ascending order of its global id."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        thread_ids = [_unique(tables[k], "global_tid") for k in ("api", "nvtx", "cudnn", "cublas", "graph_node")]
        self.gtids = distinct(np.concatenate(thread_ids))
        device_ids = [_unique(tables[k], "global_pid") for k in DEVICE_TABLES]
        gpids = distinct(np.concatenate([*device_ids, self.gtids]) & PROCESS_BITS)
        # exports of 2019–20 leave globalPid out of device rows: with one process it can only be that one
        self.gpids = gpids[1:] if len(gpids) == 2 and gpids[0] == 0 else gpids
        self.process_of_thread = self.process_index(self.gtids)

    def process_index(self, global_pid: np.ndarray) -> np.ndarray:
        if len(self.gpids) == 1:
            return np.zeros(len(global_pid), np.int32)
        index = np.searchsorted(self.gpids, global_pid & PROCESS_BITS).astype(np.int32)
        return np.minimum(index, len(self.gpids) - 1).astype(np.int32)

    def thread_index(self, global_tid: np.ndarray) -> np.ndarray:
        if len(self.gtids) == 1:
            return np.zeros(len(global_tid), np.int32)
        return np.searchsorted(self.gtids, global_tid).astype(np.int32)

    def process_frame(self, names: dict[int, str]) -> pd.DataFrame:
        """The processes, with the names known by global id."""
        return pd.DataFrame(
            {
                "process_id": (self.gpids >> 24) & 0xFFFFFF,
                "global_id": self.gpids,
                "name": np.array([names.get(int(g), "") for g in self.gpids], object),
                "rank": np.full(len(self.gpids), -1, np.int32),
            }
        )

    def thread_frame(self, names: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(
            {"process_index": self.process_of_thread, "thread_id": self.gtids & 0xFFFFFF, "name": names}
        )


def _unique(table: pa.Table, column: str) -> np.ndarray:
    return pc.unique(table.column(column)).to_numpy(zero_copy_only=False)
