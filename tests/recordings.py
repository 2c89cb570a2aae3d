"""A `Recording` of a few calls and operations, and the `Learnt` of one, for tests of single steps of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.model.trace import ActivityKind
from xsp_post.replay.learning import Learnt
from xsp_post.replay.recording import Calls, Operations, Recording

KERNEL, COPY = int(ActivityKind.KERNEL), int(ActivityKind.MEMCPY)


def call(start: int, end: int, *, thread: int = 0, process: int = 0, wait: int = -1, stream_id: int = -1) -> dict:
    """A host call; ``wait``: index into `edges.WAITS`."""
    return {"start_ns": start, "end_ns": end, "thread": thread, "process": process, "wait": wait,
            "stream_id": stream_id}  # fmt: skip


def operation(start: int, end: int, call: int = -1, **columns: Any) -> dict:
    """A device operation launched by a call; without one it stands before the call ``place``."""
    return {"start_ns": start, "end_ns": end, "call": call, "place": call, "kind": KERNEL, "process": 0, "stream": 0,
            "iteration": -1, "layer": -1, "kernel": -1, "is_read": 0, "name": "kernel", **columns}  # fmt: skip


def recording_of(
    calls: Sequence[dict],
    operations: Sequence[dict],
    *,
    streams: Sequence[tuple[int, bool, int]] = ((0, False, 7),),
    orders: Sequence[tuple[int, int]] = (),
    iterations: pd.DataFrame | None = None,
) -> Recording:
    """``calls`` by process and start, ``operations`` by their place; ``streams``: process, whether operators of a CPU
    run there, number in the capture."""

    def column(rows: Sequence[dict], name: str) -> np.ndarray:
        return np.array([row.get(name, 0) for row in rows], np.int64)

    names = ("process", "thread", "start_ns", "end_ns", "wait", "stream_id")
    no_memory = np.zeros(len(calls), bool)
    numbers = (
        "kind",
        "process",
        "stream",
        "start_ns",
        "end_ns",
        "call",
        "place",
        "iteration",
        "layer",
        "kernel",
        "is_read",
        "migrated_ns",
    )
    texts = np.array([row["name"] for row in operations], object)
    process, is_host, number = zip(*streams)
    return Recording(
        Calls(**{name: column(calls, name) for name in names}, allocates=no_memory),
        Operations(**{name: column(operations, name) for name in numbers}, name=pd.Categorical(texts)),
        np.array(process, np.int64), np.array(is_host, bool), np.array(number, np.int64),
        np.array(orders, np.int64).reshape(-1, 2), column(operations, "behind_host").astype(bool),
        [100 + one for one in sorted({*process})],
        pd.DataFrame() if iterations is None else iterations,
    )  # fmt: skip


def learnt_of(recording: Recording, **given: Any) -> Learnt:
    """Nothing learnt: no latency, gap, wait or queue, each call takes its own time; but for what is given."""
    calls, operations = recording.calls, recording.operations
    of_calls, of_operations = np.zeros(len(calls), np.int64), np.zeros(len(operations), np.int64)
    plain = Learnt(
        latency_ns=of_operations, gap_ns=of_operations.copy(), is_blocking=of_operations.astype(bool),
        after_ns=of_calls, own_ns=calls.end_ns - calls.start_ns, waited=of_calls - 1, queue_depth=0, queue_wait_ns=0,
        orders=recording.orders, order_ns=0, meetings=np.zeros((0, 1), np.int64),
        is_node=of_operations.astype(bool),
    )  # fmt: skip
    return replace(plain, **{name: _as(getattr(plain, name), value) for name, value in given.items()})


def _as(like: Any, value: Any) -> Any:
    return np.array(value, like.dtype) if isinstance(like, np.ndarray) else value
