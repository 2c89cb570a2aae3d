"""Trace → Tree, step "the rows": nodes of root, spans and synthetic nodes; activities with their node."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import depths
from xsp_post.model.levels import Level
from xsp_post.model.trace import Trace
from xsp_post.model.tree import Attribution, NodeKind
from xsp_post.tree import attribution
from xsp_post.tree.node_names import NodeNames


def make_frames(
    trace: Trace, names: NodeNames, span_parent: np.ndarray, level: np.ndarray, owners: pd.DataFrame, launch_id:
    np.ndarray,
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """Nodes (root, spans in span order, synthetic ones) and activities with their node. The trace's spans become views
    of the nodes' columns."""
    spans, activities = trace.spans, trace.activities
    count = len(spans)
    attribution_codes = owners["attribution"].to_numpy()
    span = owners["span"].to_numpy()
    node = span + 1  # span k is node k + 1
    graph = attribution.opaque_graph_launches(trace)
    graph_parent = node[graph].copy()
    nowhere = (span < 0) & (attribution_codes == int(Attribution.NONE))
    lost = (span < 0) & (attribution_codes == int(Attribution.NO_LAUNCH))
    synthetic: list[tuple[NodeKind, int]] = []
    next_id = count + 1
    if nowhere.any():
        synthetic.append((NodeKind.UNATTRIBUTED, next_id))
        node[nowhere] = next_id
        graph_parent[nowhere[graph]] = next_id
        next_id += 1
    if lost.any():
        synthetic.append((NodeKind.NO_LAUNCH, next_id))
        node[lost] = next_id
        graph_parent[lost[graph]] = next_id
        next_id += 1
    node[graph] = next_id + np.arange(len(graph))

    extra = len(synthetic) + len(graph)
    start, end = _extent(trace)
    in_span = slice(1, count + 1)
    total = count + 1 + extra
    columns: dict[str, np.ndarray] = {
        "parent_id": np.zeros(total, np.int32),
        "kind": np.full(total, int(NodeKind.ROOT), np.int8),
        "level": np.full(total, int(Level.CAPTURE), np.int8),
        "name_id": np.full(total, -1, np.int32),
        "folded_id": np.full(total, names.synthetic(NodeKind.ROOT), np.int32),
        "process_index": np.full(total, -1, np.int32),
        "thread_index": np.full(total, -1, np.int32),
        "start_ns": np.full(total, start, np.int64),
        "end_ns": np.full(total, end, np.int64),
        "confidence_ratio": np.broadcast_to(1.0, (total,)),
    }
    of_spans = {
        "domain_index": (spans["domain_index"].to_numpy(), -1),
        "source_row_id": (spans["source_row_id"].to_numpy(), -1),
        "sequence": (names.sequence(trace), -1),
        "step_index": (names.span("step_index"), -1),
        "is_backward": (names.span("is_backward"), False),
        "is_warmup_text": (names.span("is_warmup"), False),
        "is_open": (spans["is_open"].to_numpy(), False),
        "is_inferred": (spans["kind"].to_numpy() == int(NodeKind.HOOK_PAIR), False),
    }
    columns |= {name: _of_nodes(values, total, default) for name, (values, default) in of_spans.items()}
    columns["parent_id"][0] = -1
    columns["parent_id"][in_span] = span_parent + 1
    columns["level"][in_span] = level
    columns["folded_id"][in_span] = names.folded
    for column in ("kind", "name_id", "process_index", "thread_index", "start_ns", "end_ns"):
        columns[column][in_span] = spans[column].to_numpy()
    columns["kind"][in_span][spans["is_cross_thread"].to_numpy()] = int(NodeKind.CROSS_THREAD)
    for kind, identity in synthetic:
        columns["kind"][identity] = int(kind)
        columns["folded_id"][identity] = names.synthetic(kind)
    if len(graph):
        rows = slice(next_id, next_id + len(graph))
        columns["kind"][rows] = int(NodeKind.GRAPH)
        columns["level"][rows] = int(Level.OPERATION)
        columns["folded_id"][rows] = names.synthetic(NodeKind.GRAPH)
        columns["parent_id"][rows] = graph_parent
        columns["name_id"][rows] = activities["name_id"].to_numpy()[graph]
        columns["process_index"][rows] = activities["process_index"].to_numpy()[graph]
        launched = launch_id[graph]
        has = launched >= 0
        at = np.arange(next_id, next_id + len(graph))
        if has.any():
            for column in ("thread_index", "start_ns", "end_ns"):
                columns[column][at[has]] = trace.launches[column].to_numpy()[launched[has]]
        for column in ("start_ns", "end_ns"):
            columns[column][at[~has]] = activities[column].to_numpy()[graph[~has]]
    names.with_synthetic(extra)
    # the spans read what nodes hold as well: a second copy of a million ranges is 30 MB
    names.folded = columns["folded_id"][in_span]
    shared = ("name_id", "process_index", "thread_index", "start_ns", "end_ns", "source_row_id")
    trace.spans = with_columns(spans, {column: columns[column][in_span] for column in shared})
    columns["depth"] = depths(columns["parent_id"])
    launch_node = owners["launch_span"].to_numpy() + 1
    launched_by = {
        "launch_id": launch_id,
        "launch_node_id": node if np.array_equal(launch_node, node) else launch_node,
        "node_id": node,
        "attribution": attribution_codes,
    }
    return pd.DataFrame(columns, copy=False), with_columns(activities, launched_by)


def _of_nodes(of_spans: np.ndarray, total: int, default: int) -> np.ndarray:
    """Values of the spans as those of all nodes, of the others the default. Where all are alike, one number that is
    read as many times: it needs no memory (and cannot be written to)."""
    if (of_spans == default).all():
        return np.broadcast_to(np.array(default, of_spans.dtype), (total,))
    values = np.full(total, default, of_spans.dtype)
    values[1 : len(of_spans) + 1] = of_spans
    return values


def with_columns(frame: pd.DataFrame, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """The frame with these columns, none of them copied, as setting one would be: the same array may be several."""
    kept: dict[Any, Any] = {name: column.array for name, column in frame.items() if name not in columns}
    return pd.DataFrame(kept | columns, index=frame.index, copy=False)


def _extent(trace: Trace) -> tuple[int, int]:
    """First and last time of ranges and device work (0, 0 when there is nothing)."""
    starts = [f["start_ns"].to_numpy().min() for f in (trace.spans, trace.activities) if len(f)]
    ends = [f["end_ns"].to_numpy().max() for f in (trace.spans, trace.activities) if len(f)]
    return (int(min(starts)), int(max(ends))) if starts else (0, 0)
