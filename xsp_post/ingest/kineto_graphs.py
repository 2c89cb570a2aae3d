"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): what PyTorch's newer profiler (2.16) adds to a trace.

Counters of each GPU become samples of its metrics; arrows between nodes of a CUDA graph become the graph's edges.
"""

import re

import numpy as np
import pandas as pd

from xsp_post.ingest.gpu_samples import LONGEST_STEPS, in_units
from xsp_post.model.schemas.frames import METRIC_COLUMNS
from xsp_post.model.trace import GPU_SAMPLE_DTYPES, GRAPH_EDGE_DTYPES, typed_frame

FIRST_EDGE = 1 << 40  # arrows with such numbers lead from node to node, others from a launch to its work
DERIVED = frozenset({"Cycles (Current Kernel)"})  # from the duration and the clock
_GPU = re.compile(r"GPU (\d{1,6}) Counters")
_TOLERANCE_NS = 2  # start and duration are rounded apart
_LONGEST_CHAIN = 16  # of nodes that are no work: records of events, calls of the host


def gpu_of(process: object) -> int:
    """Number of the GPU that a process of counters is called after, −1 for another process."""
    found = _GPU.fullmatch(str(process))
    return int(found[1]) if found else -1


def make_ids_whole(frame: pd.DataFrame) -> None:
    """Numbers of nodes with that of their graph above them, as CUPTI makes them, where a trace holds these apart."""
    if "graph_id" in frame:
        graph, node = (frame[name].fillna(0).to_numpy(np.int64) for name in ("graph_id", "graph_node_id"))
        is_apart = (node > 0) & (node < 1 << 32) & (graph > 0) & (graph < 1 << 31)
        frame["graph_node_id"] = np.where(is_apart, (graph << 32) | node, node)


def gpu_samples(counters: pd.DataFrame, texts: np.ndarray) -> pd.DataFrame:
    """``Trace.gpu_samples`` of counters (gpu_index, column_id, start_ns, value): a value holds until the next one of
    the same counter, but for no more than a few of its usual steps. texts: the names of columns, by their number."""
    if counters.empty:
        return typed_frame(GPU_SAMPLE_DTYPES)
    counters, parts = counters.assign(column=texts[counters["column_id"].to_numpy()]), []
    for gpu, rows in counters.dropna(subset=["value"]).groupby("gpu_index"):
        wide = rows.pivot_table(index="start_ns", columns="column", values="value", aggfunc="last")
        at, shortest = wide.index.to_numpy(np.int64), 0
        for name in wide:
            said = wide[name].notna().to_numpy()
            usual = int(np.median(np.diff(at[said]))) if said.sum() > 1 else 0
            shortest = min(shortest or usual, usual or shortest)
            since = at - pd.Series(np.where(said, at, np.nan)).ffill().to_numpy()
            wide[name] = in_units(str(name), wide[name].ffill().where(since <= LONGEST_STEPS * usual).to_numpy(float))
        length = np.append(np.diff(at), shortest)
        length = np.where(length > LONGEST_STEPS * shortest, shortest, length)
        frame = wide.reindex(columns=list(METRIC_COLUMNS)).assign(gpu_index=gpu, start_ns=at, end_ns=at + length)
        frame["dram_ratio"] = frame["dram_ratio"].fillna(frame["dram_read_ratio"] + frame["dram_write_ratio"])
        parts.append(typed_frame(GPU_SAMPLE_DTYPES, frame[length > 0]))
    return pd.concat(parts, ignore_index=True) if parts else typed_frame(GPU_SAMPLE_DTYPES)


def graph_edges(arrows: pd.DataFrame, work: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """``Trace.graph_edges``. arrows: number, is_start, process_id, thread_id (device and lane), start_ns: an arrow
    starts at the end of a node and ends at the start of another; work: activities, others: nodes that are no work,
    which are passed over; both as `kineto_columns` collects them."""
    if arrows.empty or work.empty:
        return typed_frame(GRAPH_EDGE_DTYPES)
    owner = work.drop_duplicates("correlation_id").set_index("correlation_id")["process_index"]
    nodes = work.assign(is_work=True)
    if len(others):
        process = others["correlation_id"].map(owner).fillna(0)
        nodes = pd.concat([nodes, others.assign(process_index=process, is_work=False)])
    lane, arrow = ["process_id", "thread_id"], ["number", "correlation_id", "process_index"]
    ends: list[pd.DataFrame] = []
    for is_start, at in ((True, "end_ns"), (False, "start_ns")):
        mine = arrows.loc[arrows["is_start"] == is_start, [*lane, "number", "start_ns"]].rename(
            columns={"start_ns": at}
        )
        found = pd.merge_asof(
            mine.sort_values(at), nodes[[*lane, *arrow[1:], at, "graph_node_id", "is_work"]].sort_values(at), on=at,
            by=lane, direction="nearest", tolerance=_TOLERANCE_NS,
        )  # fmt: skip
        ends.append(found.dropna().drop_duplicates(arrow, keep=False))
    both = ends[0].merge(ends[1], on=arrow, suffixes=("_from", "_to"))
    both = both.rename(columns={"graph_node_id_from": "from_node_id", "graph_node_id_to": "to_node_id"})
    pairs = both[[*GRAPH_EDGE_DTYPES, "is_work_from", "is_work_to"]].drop_duplicates()
    pairs = pairs.astype({**GRAPH_EDGE_DTYPES, "is_work_from": bool, "is_work_to": bool})
    through = pairs[~pairs["is_work_from"]].drop(columns="is_work_from")
    through.columns = pd.Index(["process_index", "to_node_id", "next_id", "is_next_work"])
    chains = pairs[pairs["is_work_from"]]
    whole = [chains[chains["is_work_to"]]]
    for _ in range(_LONGEST_CHAIN):
        chains = chains[~chains["is_work_to"]].merge(through, on=["process_index", "to_node_id"])
        chains = chains.assign(to_node_id=chains["next_id"], is_work_to=chains["is_next_work"].astype(bool))
        chains = chains[list(pairs)].drop_duplicates()
        whole.append(chains[chains["is_work_to"]])
    edges = pd.concat(whole)[list(GRAPH_EDGE_DTYPES)].drop_duplicates()
    return edges[edges["from_node_id"] != edges["to_node_id"]].reset_index(drop=True)
