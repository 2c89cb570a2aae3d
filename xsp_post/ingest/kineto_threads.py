"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): dense indexes and names of processes and threads."""

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.ingest.interning import int_column
from xsp_post.ingest.nsys_activities import kinds_of, launch_of, of_launch
from xsp_post.ingest.tables import NONE_32
from xsp_post.model.trace import FRAME_DTYPES, OVERHEAD_DTYPES, SYNCHRONIZATION_DTYPES, SyncKind, typed_frame

Labels = dict[tuple[str, int, int], str]


def index(hosts: list[pd.DataFrame], others: list[pd.DataFrame]) -> pd.DataFrame:
    """Give all frames ``process_index`` and ``thread_index``, −1 where no row of ``hosts`` names their process or
    thread. One row per thread: process_index, process_id, thread_id, in order of its index."""
    process_id, thread_id = (
        np.concatenate([frame[column].to_numpy() for frame in hosts]) if hosts else np.array([-1])
        for column in ("process_id", "thread_id")
    )
    first, lengths = _runs(process_id, thread_id)
    process_id, thread_id = process_id[first], thread_id[first]
    processes, numbers = pd.Index(pd.unique(process_id)), pd.Index(pd.unique(thread_id))

    def pairs(process_id: Any, thread_id: Any) -> np.ndarray:
        process, number = processes.get_indexer(process_id), numbers.get_indexer(thread_id)
        return np.where((process >= 0) & (number >= 0), process * len(numbers) + number, -1)

    of_run, used = pd.factorize(pairs(process_id, thread_id))
    threads = pd.DataFrame({
        "process_id": processes[used // len(numbers)], "thread_id": numbers[used % len(numbers)], "pair": used,
        "count": np.bincount(of_run, lengths).astype(np.int64),
    })  # fmt: skip
    # The process with most host rows is the profiled one: index 0, which owns what names no process.
    process_ids = threads.groupby("process_id")["count"].sum().sort_values(ascending=False, kind="stable").index
    threads["process_index"] = process_ids.get_indexer(pd.Index(threads["process_id"]))
    threads = threads.sort_values(["process_index", "thread_id"], ignore_index=True)
    known = pd.Index(threads["pair"])
    for frame in (*hosts, *others):
        process_id, thread_id = (frame[column].to_numpy() for column in ("process_id", "thread_id"))
        first, lengths = _runs(process_id, thread_id)
        pair = pd.Index(pairs(process_id[first], thread_id[first]))
        process_index = process_ids.get_indexer(pd.Index(process_id[first]))
        frame["thread_index"] = np.repeat(known.get_indexer(pair).astype(np.int32), lengths)
        frame["process_index"] = np.repeat(process_index.astype(np.int32), lengths)
    return threads


def _runs(process_id: np.ndarray, thread_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows one behind the other that are alike, of which there are many: the first row of each run, and its length."""
    is_first = np.ones(len(process_id), bool)
    is_first[1:] = (process_id[1:] != process_id[:-1]) | (thread_id[1:] != thread_id[:-1])
    first = np.flatnonzero(is_first)
    return first, np.diff(first, append=len(process_id))


def named(threads: pd.DataFrame, labels: Labels, metadata: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``Trace.processes`` and ``Trace.threads`` of what `index` gave."""
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank", -1) if isinstance(distributed, dict) else -1
    process_ids = threads.drop_duplicates("process_index")["process_id"].to_numpy(np.int64)
    names = [labels.get(("process_name", one, -1), "") for one in process_ids.tolist()]
    processes = pd.DataFrame({
        "process_id": process_ids,
        "global_id": process_ids,
        "name": np.array(names, dtype=object),
        "rank": np.full(len(process_ids), int_column([rank], dtype="int32")[0], dtype=np.int32),
    })  # fmt: skip
    keys = zip(threads["process_id"].tolist(), threads["thread_id"].tolist())
    return processes, pd.DataFrame({
        "process_index": threads["process_index"].to_numpy(np.int32),
        "thread_id": threads["thread_id"].to_numpy(np.int64),
        "name": np.array([labels.get(("thread_name", *key), "") for key in keys], dtype=object),
    })  # fmt: skip


# -- Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): ``cuda_sync`` events, profiler overhead, Python frames -

# The texts of Kineto's `cuda_sync_kind`, for traces without the call.
_KINDS = {
    "Event Sync": SyncKind.EVENT,
    "Stream Wait Event": SyncKind.STREAM_WAIT_EVENT,
    "Stream Sync": SyncKind.STREAM,
    "Context Sync": SyncKind.DEVICE,
}
# 0xFFFFFFFF: none
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FOLDERS = re.compile(r"^(?:[A-Za-z]:)?[\\/].*[\\/](?=[^\\/]+\(\d+\))")


def synchronizations(events: pd.DataFrame, launches: pd.DataFrame, texts: Strings) -> pd.DataFrame:
    """``Trace.synchronizations``: who called is known by the correlation id, as for kernels."""
    if events.empty or "stream_id" not in events:
        return typed_frame(SYNCHRONIZATION_DTYPES)
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
        "stream_id": np.where((stream == NONE_32) | (stream > np.iinfo(np.int32).max), -1, stream),
        "event_id": events["event_id"].to_numpy(), "event_sync_id": np.full(len(events), -1),
        "event_record_correlation_id": events["event_record_correlation_id"].to_numpy(),
        "start_ns": events["start_ns"].to_numpy(), "end_ns": events["end_ns"].to_numpy(),
    }  # fmt: skip
    return typed_frame(SYNCHRONIZATION_DTYPES, columns)


def overheads(events: pd.DataFrame) -> pd.DataFrame:
    """``Trace.profiler_overhead``; rows of threads without ranges or calls are left out."""
    return _of_known_threads(events.assign(overhead_type=0), OVERHEAD_DTYPES)


def python_frames(events: pd.DataFrame) -> pd.DataFrame:
    """``Trace.python_frames``, outer frames first."""
    if len(events):
        outer_first = ["thread_index", "start_ns", "end_ns"]
        events = events.sort_values(outer_first, ascending=[True, True, False], kind="stable")
    return _of_known_threads(events, FRAME_DTYPES)


def _of_known_threads(events: pd.DataFrame, dtypes: dict[str, str]) -> pd.DataFrame:
    if events.empty:
        return typed_frame(dtypes)
    known = events[(events["thread_index"] >= 0) & (events["end_ns"] > events["start_ns"])]
    return typed_frame(dtypes, known)


@lru_cache(1 << 16)
def frame_text(name: str) -> str:
    """A Python frame's text without the user's folders and without addresses."""
    return _FOLDERS.sub("", _ADDRESS.sub("", name))
