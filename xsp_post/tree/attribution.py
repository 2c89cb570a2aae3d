"""Trace → Tree, step "where was it launched": launches joined to executions, and each execution to a range.

Join key is (process, correlation id), never the id alone; an API row counts once even where an export
holds a driver and a runtime row for one launch, so no kernel is ever doubled (as in NVIDIA's `nvtx_gpu_proj_trace`).
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import Nesting, nest
from xsp_post.arrays.joins import join_ids, rows_of
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import Attribution
from xsp_post.tree.structure.constants import Constants


def join_launches(trace: Trace) -> np.ndarray:
    """Row of the launching API call of every activity, −1 for none; shape (activities,)."""
    launches, activities = trace.launches, trace.activities
    columns = ("process_index", "correlation_id")
    (process, ids), of = ([frame[column].to_numpy() for column in columns] for frame in (launches, activities))
    return join_ids(process, ids, of[0], of[1], launches["api_class"].to_numpy() != 0)


def shared_correlations(trace: Trace, launch_id: np.ndarray) -> int:
    """How many correlation ids that started device work are those of several API rows of their process."""
    taken = launch_id[launch_id >= 0]
    launches = trace.launches
    process, correlation = launches["process_index"].to_numpy(), launches["correlation_id"].to_numpy()
    count = 0
    for number in range(len(trace.processes)):
        ids = correlation[rows_of(process == number)]
        if not len(ids) or (ids[1:] > ids[:-1]).all():
            continue
        ids = np.sort(ids, kind="stable")
        several = distinct(ids[1:][ids[1:] == ids[:-1]])
        mine = taken[process[taken] == number]
        count += len(np.intersect1d(several, correlation[mine]))
    return count


def beside_the_work(trace: Trace, launch_id: np.ndarray, text: np.ndarray, constants: Constants) -> np.ndarray:
    """Ranges of threads that launch nothing, such as a heartbeat, bool per span: those of one text (``text``: its
    number) hold launches of others now and then only, or begin and end anywhere between them, and with any of them."""
    spans, launches, activities = trace.spans, trace.launches, trace.activities
    beside = np.zeros(len(spans), bool)
    used = distinct(launch_id[launch_id >= 0])
    process, thread = (launches[c].to_numpy()[used] for c in ("process_index", "thread_index"))
    silent = np.isin(spans["process_index"].to_numpy(), process) & ~spans["is_cross_thread"].to_numpy()
    silent &= ~np.isin(spans["thread_index"].to_numpy(), thread)
    if not silent.any():
        return beside
    name, launched = np.full(len(launches), -1, np.int64), np.flatnonzero(launch_id >= 0)[::-1]
    name[launch_id[launched]] = activities["name_id"].to_numpy()[launched]  # of several kernels the first
    for one in distinct(spans["process_index"].to_numpy()[silent]).tolist():
        rows = used[process == one]
        rows = rows[np.argsort(launches["start_ns"].to_numpy()[rows], kind="stable")]
        if len(rows) < constants.fewest_launches:  # nothing tells a clock from a place
            continue
        at, end = (launches[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        pause = np.maximum(at[1:] - np.maximum.accumulate(end)[:-1], 0)
        is_long = pause >= constants.clear_pause * np.median(np.append(pause, 0))
        by_chance = 1 - pause[is_long].sum() / max(int(end.max() - at[0]), 1)  # ends outside long pauses, of a clock
        is_inside = np.r_[False, ~is_long, False]
        mine = np.flatnonzero(silent & (spans["process_index"].to_numpy() == one))
        first, last = (np.searchsorted(at, spans[c].to_numpy()[mine]) for c in ("start_ns", "end_ns"))
        frame = pd.DataFrame({
            "text": text[mine], "size": 1, "holds": last > first,
            "cuts": is_inside[first].astype(float) + is_inside[last],
            "begin": name[rows[np.minimum(first, len(rows) - 1)]], "end": name[rows[last - 1]],
        })  # fmt: skip
        table = frame.groupby("text").agg({"size": "sum", "holds": "mean", "cuts": "mean"})
        alike = sum(frame.groupby(["text", c]).size().groupby("text").max() for c in ("begin", "end"))
        alike = alike / (2 * table["size"])
        is_alike = (table["size"] >= constants.fewest_turns) & (alike >= constants.alike_ratio)
        is_placed = is_alike | (table["cuts"] <= 2 * (1 - constants.alike_ratio) * by_chance)
        is_placed &= table["holds"] >= constants.alike_ratio
        beside[mine] = ~is_placed.reindex(frame["text"]).to_numpy()
    return beside


def attribute(
    trace: Trace, nesting: Nesting, usable: np.ndarray, launch_id: np.ndarray, beside: np.ndarray | None = None
) -> pd.DataFrame:
    """The innermost span of every activity, and how it was found.

    Returns columns ``launch_span`` (innermost range of the launching thread around the launch, −1),
    ``span`` (the range it counts for, −1) and ``attribution``; shape (activities, 3). ``usable`` maps the
    nesting's numbering to span ids. Order of the rules: a graph node goes to the range open when the
    original node was created; else same-thread nesting; else the shortest range of another thread of the
    process that covers the launch, but for those ``beside`` the work.
    """
    launched = np.flatnonzero(launch_id >= 0)
    thread, start, end = _launch_columns(trace, launch_id[launched])
    found = nesting.innermost(thread, start, end)
    launch_span = np.full(len(launch_id), -1, np.int32)
    hit = found >= 0
    launch_span[launched[hit]] = usable[found[hit]]

    attribution = np.full(len(launch_id), int(Attribution.NO_LAUNCH), np.int8)
    attribution[launched] = int(Attribution.NONE)
    attribution[launched[hit]] = int(Attribution.NESTING)
    span = launch_span.copy()

    missing = launched[~hit]
    if len(missing):
        homes = usable if beside is None else usable[~beside[usable]]
        other = _covering_span(trace, homes, launch_id, missing)
        got = other >= 0
        span[missing[got]] = other[got]
        attribution[missing[got]] = int(Attribution.THREAD_TIME)
    _attribute_graph_nodes(trace, nesting, usable, span, attribution)
    return pd.DataFrame({"launch_span": launch_span, "span": span, "attribution": attribution}, copy=False)


def _launch_columns(trace: Trace, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    launches = trace.launches
    if len(rows) == len(launches) and len(rows) and (rows == np.arange(len(rows))).all():
        rows_slice: np.ndarray | slice = slice(None)
    else:
        rows_slice = rows
    return (
        launches["thread_index"].to_numpy()[rows_slice],
        launches["start_ns"].to_numpy()[rows_slice],
        launches["end_ns"].to_numpy()[rows_slice],
    )


def _covering_span(trace: Trace, usable: np.ndarray, launch_id: np.ndarray, activities: np.ndarray) -> np.ndarray:
    """For launches without a range on their thread: the shortest covering range of the process, thus of another thread,
    −1 none."""
    _, start, end = _launch_columns(trace, launch_id[activities])
    spans = trace.spans
    near = (spans["start_ns"].to_numpy()[usable] <= start.max()) & (spans["end_ns"].to_numpy()[usable] >= end.min())
    rows = usable[near]
    process, span_start, span_end = (spans[c].to_numpy()[rows] for c in ("process_index", "start_ns", "end_ns"))
    of_process = trace.activities["process_index"].to_numpy()[activities]
    found = nest(process, span_start, span_end).innermost(of_process, start, end)
    return np.append(rows, -1)[found]


def _attribute_graph_nodes(
    trace: Trace, nesting: Nesting, usable: np.ndarray, span: np.ndarray, attribution: np.ndarray
) -> None:
    """Device work of graph nodes counts for the range open when its original node was created (in place)."""
    graph_node = trace.activities["graph_node_id"].to_numpy()
    rows = np.flatnonzero(graph_node != 0)
    if not len(rows) or not len(trace.graph_nodes):
        return
    creation = original_creation(trace.graph_nodes)
    process = trace.activities["process_index"].to_numpy()[rows].astype(np.int64)
    keys = pd.MultiIndex.from_arrays([creation["process_index"], creation["graph_node_id"]])
    position = keys.get_indexer(pd.MultiIndex.from_arrays([process, graph_node[rows]]))
    known = position >= 0
    rows, position = rows[known], position[known]
    thread = creation["thread_index"].to_numpy()[position].astype(np.int64)
    at = creation["start_ns"].to_numpy()[position]
    found = nesting.innermost(thread, at, at)
    hit = found >= 0
    span[rows[hit]] = usable[found[hit]]
    attribution[rows[hit]] = int(Attribution.GRAPH)


def original_creation(graph_nodes: pd.DataFrame) -> pd.DataFrame:
    """Per graph node the thread and time at which its *original* was created: instantiation clones nodes, so
    ``original_graph_node_id`` is followed to its end. One row per (process, node)."""
    nodes = graph_nodes.drop_duplicates(["process_index", "graph_node_id"]).reset_index(drop=True)
    keys = pd.MultiIndex.from_arrays([nodes["process_index"], nodes["graph_node_id"]])
    original = nodes["original_graph_node_id"].to_numpy()
    above = keys.get_indexer(pd.MultiIndex.from_arrays([nodes["process_index"], original]))
    above = np.where((original == 0) | (above < 0), np.arange(len(nodes)), above)
    for _ in range(64):  # pointer doubling; a cycle in damaged data cannot loop for ever
        further = above[above]
        if (further == above).all():
            break
        above = further
    root = nodes.iloc[above]
    return pd.DataFrame(
        {
            "process_index": nodes["process_index"].to_numpy(),
            "graph_node_id": nodes["graph_node_id"].to_numpy(),
            "thread_index": root["thread_index"].to_numpy(),
            "start_ns": root["start_ns"].to_numpy(),
        }
    )


def opaque_graph_launches(trace: Trace) -> np.ndarray:
    """Rows of the activities that are graph launches whose kernels were not recorded."""
    return np.flatnonzero(trace.activities["kind"].to_numpy() == ActivityKind.GRAPH)
