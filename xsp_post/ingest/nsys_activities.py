"""Captures in: the device tables of an Nsight Systems export → the activities of the trace; and what host threads and
streams waited for → optional frames.

Synchronisations are distinguished by the name of their API call: the number that nsys writes beside them changed its
meaning from version to version.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.joins import join_ids
from xsp_post.arrays.repeats import numbered
from xsp_post.arrays.texts import Strings, of_each
from xsp_post.ingest.nsys_strings import Interner, numbers
from xsp_post.ingest.nsys_threads import Numbering
from xsp_post.ingest.tables import NO_MEMORY_KIND, NONE_32, NULL, launch_detail
from xsp_post.model.trace import (
    COPY_DIRECTIONS,
    CUDA_EVENT_DTYPES,
    SYNCHRONIZATION_DTYPES,
    ActivityKind,
    SyncKind,
    memory_kinds,
    typed_frame,
)


def activities(tables: dict[str, pa.Table], strings: Interner, numbering: Numbering) -> pd.DataFrame:
    """Kernels, copies, sets and opaque graph executions, one row each. Takes their rows out of ``tables``."""
    kinds = (ActivityKind.KERNEL, ActivityKind.MEMCPY, ActivityKind.MEMSET, ActivityKind.GRAPH)
    parts = [_device_rows(tables.pop(kind.name.lower()), kind, strings, numbering) for kind in kinds]
    filled = [p for p in parts if len(p)] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    # concatenate column by column, with the numpy type of the kernels' column
    columns: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(c for part in filled for c in part.columns):
        typed = next(p[name] for p in filled if name in p).to_numpy().dtype
        values = columns[name] = np.zeros(sum(map(len, filled)), typed)
        last = 0
        for part in filled:
            first, last = last, last + len(part)
            if name in part and part[name].any():  # what stays untouched needs no memory
                values[first:last] = part[name].to_numpy()
    return pd.DataFrame(columns, copy=False)


def _device_rows(table: pa.Table, kind: ActivityKind, strings: Interner, numbering: Numbering) -> pd.DataFrame:
    count = table.num_rows
    columns: dict[str, np.ndarray] = {
        "kind": np.full(count, int(kind), np.int8),
        "process_index": numbering.process_index(numbers(table, "global_pid")),
        **{name: numbers(table, name, np.int32) for name in ("device_id", "context_id")},
        "stream_id": np.maximum(numbers(table, "stream_id", np.int32), -1),
        **{name: numbers(table, name) for name in ("correlation_id", "start_ns", "end_ns")},
    }
    if kind is ActivityKind.KERNEL:
        columns["name_id"] = strings.by_number(numbers(table, "name", np.int32))
        columns["short_name_id"] = columns["name_id"]
        if "short_name" in table.column_names:
            columns["short_name_id"] = strings.by_number(numbers(table, "short_name", np.int32))
            missing = columns["name_id"] < 0
            columns["name_id"][missing] = columns["short_name_id"][missing]
        for ours in launch_detail():
            columns[ours] = numbers(table, ours, np.int32)
        for ours in (one for one in launch_detail("group") if one in table.column_names):
            values = np.maximum(numbers(table, ours), 0)
            columns |= {ours: values} if values.any() else {}
    else:
        columns["name_id"] = columns["short_name_id"] = _operation_names(table, kind, strings)
    if kind is not ActivityKind.GRAPH:
        columns["graph_node_id"] = no_sentinel(numbers(table, "graph_node_id"))
    if kind in (ActivityKind.MEMCPY, ActivityKind.MEMSET):
        columns["bytes"] = numbers(table, "bytes")
    if kind is ActivityKind.MEMCPY:
        columns["copy_kind"] = numbers(table, "copy_kind", np.int8)
        # nsys counts from 0 (pageable), CUPTI from 1
        sides = [(numbers(table, f"{side}_kind") + 1) % (NO_MEMORY_KIND + 1) for side in ("source", "target")]
        columns["memory_kind"] = memory_kinds(columns["copy_kind"], *sides)
    if kind is ActivityKind.GRAPH:
        columns["graph_id"] = numbers(table, "graph_id")
    for name, kind_type in (("bytes", np.int64), ("copy_kind", np.int8), ("memory_kind", np.int8),
                            ("graph_node_id", np.int64), ("graph_id", np.int64)):  # fmt: skip
        if name not in columns:
            # a column of zeros that costs no memory until somebody writes to it
            columns[name] = np.zeros(count, kind_type)
    return pd.DataFrame(columns, copy=False)


def _operation_names(table: pa.Table, kind: ActivityKind, strings: Interner) -> np.ndarray:
    if kind is ActivityKind.MEMSET:
        return np.full(table.num_rows, strings.text("[CUDA memset]"), np.int32)
    if kind is ActivityKind.MEMCPY:
        kinds = numbers(table, "copy_kind")
        return of_each(kinds, lambda one: strings.text(_copy_name(one)), np.int32)
    columns = ["graph_id", "graph_exec_id"]
    graphs = pd.DataFrame({name: numbers(table, name) for name in columns}, copy=False)
    codes, first = numbered(graphs, columns)
    names = [strings.text(f"CUDA graph {g} exec {x}") for g, x in graphs.to_numpy()[first]]
    return np.array([*names, -1], np.int32)[codes]


def _copy_name(kind: int) -> str:
    """``[CUDA Unified Memory memcpy Host-to-Device]``, as nsys prints it."""
    if not 0 <= kind < len(COPY_DIRECTIONS):
        return f"[CUDA memcpy kind {kind}]"
    direction, _, unified = COPY_DIRECTIONS[kind].partition(", ")
    words = f" {direction.title()}".replace(" To ", "-to-").rstrip()
    return f"[CUDA {'Unified Memory ' if unified else ''}memcpy{words}]"


def no_sentinel(values: np.ndarray, none: int = 0) -> np.ndarray:
    """Numbers of graph nodes or events; ``none`` where there is none (0xFFFFFFFF, NULL)."""
    is_none = (values == NONE_32) | (values == NULL)
    return np.where(is_none, none, values) if is_none.any() else values


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
