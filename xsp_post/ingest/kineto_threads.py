"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): dense indexes and names of processes and threads."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.ingest.interning import int_column

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
