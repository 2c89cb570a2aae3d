"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): ``cuda_sync`` events, profiler overhead, Python frames.

Collected as columns by `kineto_columns.Collector`; here they become the optional frames of the Trace.
"""

import re
from functools import lru_cache

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.ingest.nsys_waits import kinds_of, launch_of, of_launch
from xsp_post.model.trace import FRAME_DTYPES, OVERHEAD_DTYPES, SYNCHRONIZATION_DTYPES, SyncKind, empty_frame

# The texts of Kineto's `cuda_sync_kind`, for traces without the call.
_KINDS = {
    "Event Sync": SyncKind.EVENT,
    "Stream Wait Event": SyncKind.STREAM_WAIT_EVENT,
    "Stream Sync": SyncKind.STREAM,
    "Context Sync": SyncKind.DEVICE,
}
# 0xFFFFFFFF: none
_NONE_32 = 0xFFFFFFFF
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FOLDERS = re.compile(r"^(?:[A-Za-z]:)?[\\/].*[\\/](?=[^\\/]+\(\d+\))")


def synchronizations(events: pd.DataFrame, launches: pd.DataFrame, texts: Strings) -> pd.DataFrame:
    """``Trace.synchronizations``: who called is known by the correlation id, as for kernels."""
    if events.empty or "stream_id" not in events:
        return empty_frame(SYNCHRONIZATION_DTYPES)
    correlation = events["correlation_id"].to_numpy()
    # Kineto says the device where the process should be: the first call with the id, whatever its process
    launch = launch_of(np.zeros(len(correlation), np.int32), correlation, launches.assign(process_index=0))
    name = of_launch(launches, "name_id", launch)
    said = np.array([int(_KINDS.get(str(texts[n]), SyncKind.OTHER)) for n in events["name_id"].tolist()], np.int8)
    stream = events["stream_id"].to_numpy()
    columns = {
        "process_index": np.maximum(of_launch(launches, "process_index", launch), 0),
        "thread_index": of_launch(launches, "thread_index", launch), "launch_id": launch, "name_id": name,
        "kind": np.where(launch >= 0, kinds_of(name, texts), said), "device_id": events["device_id"].to_numpy(),
        "context_id": events["context_id"].to_numpy(),
        "stream_id": np.where((stream == _NONE_32) | (stream > np.iinfo(np.int32).max), -1, stream),
        "event_id": events["event_id"].to_numpy(), "event_sync_id": np.full(len(events), -1),
        "event_record_correlation_id": events["event_record_correlation_id"].to_numpy(),
        "start_ns": events["start_ns"].to_numpy(), "end_ns": events["end_ns"].to_numpy(),
    }  # fmt: skip
    return pd.DataFrame(columns).astype(SYNCHRONIZATION_DTYPES)


def overheads(events: pd.DataFrame) -> pd.DataFrame:
    """``Trace.profiler_overhead``; rows of threads without ranges or calls are left out."""
    if events.empty:
        return empty_frame(OVERHEAD_DTYPES)
    known = events[(events["thread_index"] >= 0) & (events["end_ns"] > events["start_ns"])]
    return known.assign(overhead_type=0)[list(OVERHEAD_DTYPES)].astype(OVERHEAD_DTYPES).reset_index(drop=True)


def python_frames(events: pd.DataFrame) -> pd.DataFrame:
    """``Trace.python_frames``, outer frames first."""
    if events.empty:
        return empty_frame(FRAME_DTYPES)
    known = events[(events["thread_index"] >= 0) & (events["end_ns"] > events["start_ns"])]
    known = known.sort_values(["thread_index", "start_ns", "end_ns"], ascending=[True, True, False], kind="stable")
    return known[list(FRAME_DTYPES)].astype(FRAME_DTYPES).reset_index(drop=True)


@lru_cache(1 << 16)
def frame_text(name: str) -> str:
    """A Python frame's text without the user's folders and without addresses."""
    return _FOLDERS.sub("", _ADDRESS.sub("", name))
