"""Captures in: allocations and releases of memory → ``Trace.allocations``, of a PyTorch trace and of an nsys export."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.ingest.nsys_activities import launch_of, of_launch
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.tables import NULL
from xsp_post.model.trace import ALLOCATION_DTYPES, MemoryKind, typed_frame

_HOST = -1
_RELEASE = 1  # of nsys' memoryOperationType (ENUM_CUDA_DEV_MEM_EVENT_OPER): 0 allocation, 1 deallocation
_HOST_KINDS = (int(MemoryKind.PAGEABLE), int(MemoryKind.PINNED))
_POSITIVE = (1 << 63) - 1


def addresses(values: list[Any]) -> np.ndarray:
    """Addresses of a JSON trace as int64; those of 64 bits lose the highest. −1: none."""
    return np.array([value & _POSITIVE if type(value) is int else -1 for value in values], np.int64)


def of_kineto(events: pd.DataFrame) -> pd.DataFrame:
    """``[memory]`` events as collected by `kineto_columns.Collector`."""
    if "address" not in events or events.empty:
        return typed_frame(ALLOCATION_DTYPES)
    events = events[(events["bytes"] != 0) & (events["address"] >= 0)]
    is_host = (events["device_type"] == 0) | (events["device_id"] < 0)
    frame = events.assign(
        process_index=events["process_index"].clip(lower=0),
        device_id=events["device_id"].where(~is_host, _HOST),
        memory_kind=np.where(is_host, int(MemoryKind.PAGEABLE), int(MemoryKind.DEVICE)),
        reserved_bytes=events["reserved_bytes"].where(~is_host, -1),
    )
    return typed_frame(ALLOCATION_DTYPES, frame.sort_values(["start_ns", "source_row_id"], kind="stable"))


def of_nsys(table: pa.Table, process: np.ndarray, launches: pd.DataFrame) -> pd.DataFrame:
    """``CUDA_GPU_MEMORY_USAGE_EVENTS``. The call with the same correlation id says the thread; it says the time, too,
    where the event has none (some versions write 0)."""
    launch = launch_of(process, numbers(table, "correlation_id"), launches)
    start = numbers(table, "start_ns")
    start = np.where((start > 0) | (launch < 0), start, of_launch(launches, "start_ns", launch))
    size, unknown = numbers(table, "bytes"), np.full(table.num_rows, -1)
    # nsys counts from 0 (pageable), CUPTI from 1
    kind = (numbers(table, "memory_kind") + 1) % len(MemoryKind)
    is_release = numbers(table, "operation") == _RELEASE
    columns = {
        "process_index": process, "thread_index": of_launch(launches, "thread_index", launch),
        "device_id": np.where(np.isin(kind, _HOST_KINDS), _HOST, numbers(table, "device_id", np.int32)),
        "memory_kind": kind, "start_ns": start, "address": numbers(table, "address") & _POSITIVE,
        "bytes": np.where(is_release, -size, size), "total_bytes": unknown, "reserved_bytes": unknown,
    }  # fmt: skip
    order = np.argsort(start, kind="stable")
    order = order[((size > 0) & (start != NULL))[order]]
    return typed_frame(ALLOCATION_DTYPES, {column: values[order] for column, values in columns.items()})
