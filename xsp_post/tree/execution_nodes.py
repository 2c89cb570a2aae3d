"""Trace → Tree, step "what is one model execution": executions without a range of their own become nodes.

A turn of a cycle of sibling ranges gets a node around its members (`add_turns`), and holds what was launched
meanwhile outside every range (`take_loose_work`).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.arrays.texts import Strings, with_more
from xsp_post.model.levels import Level
from xsp_post.model.trace import SpanKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.candidates import LEAST_COVERAGE
from xsp_post.tree.node_names import NodeNames

_FEWEST_REPLAYS = 3


def add_turns(
    nodes: pd.DataFrame, strings: Strings, names: NodeNames, turn: np.ndarray, name: str
) -> tuple[pd.DataFrame, Strings, pd.DataFrame]:
    """One MODEL node per turn of a cycle, around the siblings that belong to it. ``turn`` holds the number of the turn
    of each span, −1 none. Returns nodes, strings, and what `Tree.inferred` says of the new nodes."""
    members = np.flatnonzero(turn >= 0) + 1  # span k is node k + 1
    members = members[np.argsort(nodes["start_ns"].to_numpy()[members], kind="stable")]
    number = turn[members - 1]
    count = int(number.max(initial=-1)) + 1
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(start, number, nodes["start_ns"].to_numpy()[members])
    np.maximum.at(end, number, nodes["end_ns"].to_numpy()[members])
    first = np.zeros(count, np.int64)
    first[number[::-1]] = members[::-1]
    parent = nodes["parent_id"].to_numpy().copy()
    home, thread = parent[first], nodes["thread_index"].to_numpy()[members[0]]
    fresh = new_nodes(nodes, names, strings, {
        "parent_id": home,
        "process_index": nodes["process_index"].to_numpy()[first],
        "thread_index": nodes["thread_index"].to_numpy()[first],
        "start_ns": start,
        "end_ns": end,
    }, name)  # fmt: skip
    sibling = np.flatnonzero(
        np.isin(parent, home)
        & (nodes["thread_index"].to_numpy() == thread)
        & (nodes["kind"].to_numpy() <= int(SpanKind.ANNOTATION))
    )
    position = np.searchsorted(start, nodes["start_ns"].to_numpy()[sibling], side="right") - 1
    inside = (position >= 0) & (nodes["end_ns"].to_numpy()[sibling] <= end[position])
    inside &= parent[sibling] == home[position]
    parent[sibling[inside]] = len(nodes) + position[inside]
    known = _known_inferred(len(nodes) + np.arange(count))
    joined = joined_nodes(nodes.assign(parent_id=parent), fresh)
    return joined, with_more(strings, [name]), known


def take_loose_work(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, turns: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and activities, with what was launched outside every range during one of the nodes ``turns`` below it."""
    kind, node = nodes["kind"].to_numpy(), activities["node_id"].to_numpy().copy()
    parent, launch_id = nodes["parent_id"].to_numpy().copy(), activities["launch_id"].to_numpy()
    is_graph = kind[node] == int(NodeKind.GRAPH)
    outside = kind[np.where(is_graph, parent[node], node)] == int(NodeKind.UNATTRIBUTED)
    rows = np.flatnonzero(outside & (launch_id >= 0))
    turns = turns[np.argsort(nodes["start_ns"].to_numpy()[turns], kind="stable")]
    found = layering.covering(
        activities["process_index"].to_numpy()[rows], trace.launches["start_ns"].to_numpy()[launch_id[rows]],
        *(nodes[column].to_numpy()[turns] for column in ("process_index", "start_ns", "end_ns")),
    )  # fmt: skip
    rows, turn = rows[found >= 0], turns[found[found >= 0]]
    leaf = is_graph[rows]
    parent[node[rows[leaf]]] = turn[leaf]
    node[rows[~leaf]] = turn[~leaf]
    launch_node = activities["launch_node_id"].to_numpy().copy()
    launch_node[rows[~leaf]] = turn[~leaf]
    nodes = nodes.assign(parent_id=parent, depth=depths(parent))
    return nodes, activities.assign(node_id=node, launch_node_id=launch_node)


def graph_replays(nodes: pd.DataFrame, activities: pd.DataFrame) -> np.ndarray:
    """Nodes of the replays of one CUDA graph, each an execution: outside every range and every execution, three or
    more, and most of the device time; none else."""
    kind, level, node = nodes["kind"].to_numpy(), nodes["level"].to_numpy(), activities["node_id"].to_numpy()
    parent = nodes["parent_id"].to_numpy()
    around = (NodeKind.ROOT, NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH, NodeKind.GRAPH, NodeKind.INFERRED)
    placed = (level == int(Level.MODEL)) | ~np.isin(kind, around)
    is_loose = (kind == int(NodeKind.GRAPH)) & ~forest_of(parent).inside(placed)
    rows = np.flatnonzero(is_loose[node])
    if "graph_id" not in activities or not len(rows):
        return np.zeros(0, np.int64)
    length = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    codes, _ = pd.factorize(activities["graph_id"].to_numpy()[rows])
    held = np.bincount(codes, weights=length[rows])
    rows = rows[codes == np.argmax(held)]
    enough = len(rows) >= _FEWEST_REPLAYS and held.max() >= LEAST_COVERAGE * max(int(length.sum()), 1)
    return np.unique(node[rows]) if enough else np.zeros(0, np.int64)


def new_nodes(
    nodes: pd.DataFrame, names: NodeNames, strings: Strings, given: dict[str, np.ndarray], name: str
) -> dict[str, np.ndarray]:
    """Columns of MODEL nodes that were found, not recorded; their one name becomes the next string."""
    count = len(given["start_ns"])
    filled: dict[str, np.ndarray] = {
        "kind": np.full(count, int(NodeKind.INFERRED), np.int8),
        "level": np.full(count, int(Level.MODEL), np.int8),
        "name_id": np.full(count, len(strings), np.int32),
        "folded_id": names.with_inferred(np.full(count, name, object), np.full(count, "", object)),
        "domain_index": np.full(count, -1, np.int32),
        "source_row_id": np.full(count, -1, np.int64),
        "sequence": np.full(count, -1, np.int64),
        "step_index": np.full(count, -1, np.int64),
        "is_backward": np.zeros(count, bool),
        "is_warmup_text": np.zeros(count, bool),
        "is_open": np.zeros(count, bool),
        "is_inferred": np.ones(count, bool),
        "confidence_ratio": np.ones(count),
        "depth": np.zeros(count, np.int64),
    }
    filled |= given
    return {column: filled[column].astype(nodes[column].to_numpy().dtype) for column in nodes.columns}


def joined_nodes(nodes: pd.DataFrame, fresh: dict[str, np.ndarray]) -> pd.DataFrame:
    """The nodes and new ones behind them; depths follow from the parents."""
    joined = {column: np.concatenate([nodes[column].to_numpy(), fresh[column]]) for column in nodes.columns}
    joined["depth"] = depths(joined["parent_id"])
    return pd.DataFrame(joined, copy=False)


def _known_inferred(node_id: np.ndarray) -> pd.DataFrame:
    count = len(node_id)
    nothing = np.zeros(count, np.int64)
    values: dict[str, object] = {
        "node_id": node_id,
        "kind": np.full(count, "iteration", object),
        "iteration_class": np.full(count, "regular", object),
        "series_index": nothing,
        "block_index": nothing,
        "block_count": nothing,
        "equal_class": np.full(count, -1, np.int64),
        "matched_block_index": nothing,
        "layer_type": np.full(count, "", object),
        "confidence": np.ones(count),
    }
    return pd.DataFrame({column: values[column] for column in INFERRED_COLUMNS})
