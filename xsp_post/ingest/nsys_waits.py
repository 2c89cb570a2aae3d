"""Captures in: what host threads and streams waited for, in an Nsight Systems export → optional frames of a Trace.

Synchronisations are distinguished by the name of their API call: the number that nsys writes beside them changed its
meaning from version to version.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.joins import join_ids
from xsp_post.arrays.texts import Strings, of_each
from xsp_post.ingest.nsys_activities import no_sentinel
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.tables import NULL
from xsp_post.model.trace import CUDA_EVENT_DTYPES, SYNCHRONIZATION_DTYPES, SyncKind, typed_frame

# What the call's name says, first match wins.
_KINDS = (
    ("StreamWaitEvent", SyncKind.STREAM_WAIT_EVENT),
    ("Query", SyncKind.QUERY),
    ("StreamSynchronize", SyncKind.STREAM),
    ("EventSynchronize", SyncKind.EVENT),
    ("DeviceSynchronize", SyncKind.DEVICE),
    ("ThreadSynchronize", SyncKind.DEVICE),
    ("CtxSynchronize", SyncKind.DEVICE),
    ("", SyncKind.OTHER),
)


def synchronizations(table: pa.Table, process: np.ndarray, launches: pd.DataFrame, texts: Strings) -> pd.DataFrame:
    """The frame ``Trace.synchronizations``; ``process`` is the process index of every row."""
    launch = launch_of(process, numbers(table, "correlation_id"), launches)
    name = of_launch(launches, "name_id", launch)
    start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
    columns = {
        "process_index": process, "thread_index": of_launch(launches, "thread_index", launch), "launch_id": launch,
        "name_id": name, "kind": kinds_of(name, texts), "device_id": numbers(table, "device_id", np.int32),
        "context_id": numbers(table, "context_id", np.int32), "stream_id": numbers(table, "stream_id", np.int32),
        "event_id": no_sentinel(numbers(table, "event_id"), -1),
        "event_sync_id": no_sentinel(numbers(table, "event_sync_id"), -1),
        "event_record_correlation_id": np.full(table.num_rows, -1, np.int64), "start_ns": start,
        "end_ns": np.where(end == NULL, start, end),
    }  # fmt: skip
    is_known = start != NULL
    return typed_frame(SYNCHRONIZATION_DTYPES, {column: values[is_known] for column, values in columns.items()})


def cuda_events(table: pa.Table, process: np.ndarray, launches: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "process_index": process,
        "launch_id": launch_of(process, numbers(table, "correlation_id"), launches),
        **{name: numbers(table, name, np.int32) for name in ("device_id", "context_id", "stream_id")},
        **{name: no_sentinel(numbers(table, name), -1) for name in ("event_id", "event_sync_id")},
        "timestamp_ns": numbers(table, "timestamp_ns"),
    }
    return typed_frame(CUDA_EVENT_DTYPES, columns)


def launch_of(process: np.ndarray, correlation: np.ndarray, launches: pd.DataFrame) -> np.ndarray:
    """The row in ``launches`` of the call with this process and correlation id, −1 for none; of several the first."""
    return join_ids(launches["process_index"].to_numpy(), launches["correlation_id"].to_numpy(), process, correlation)


def kinds_of(name_id: np.ndarray, texts: Strings) -> np.ndarray:
    """What each call waits for, by its name's string id; OTHER where it synchronises beside its work (``cudaFree``)."""
    return of_each(name_id, lambda id: next(k for part, k in _KINDS if part in (texts[id] if id >= 0 else "")), np.int8)


def of_launch(launches: pd.DataFrame, column: str, launch: np.ndarray) -> np.ndarray:
    """A column of the launches by their rows, −1 for none."""
    return np.append(launches[column].to_numpy(), launches[column].dtype.type(-1))[launch]
