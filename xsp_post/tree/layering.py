"""Trace → Tree, step "which layer does it count for": layers get keys that hold across iterations and runs,
and each kernel gets its layer: by nesting, by autograd sequence number, by graph capture, by thread and time."""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import nest
from xsp_post.model.levels import Level
from xsp_post.model.trace import Trace
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind
from xsp_post.tree.structure.constants import Constants

_WAYS_OF_KINDS = {
    NodeKind.INFERRED: LayerAttribution.INFERRED, NodeKind.TWIN: LayerAttribution.TWIN,
    NodeKind.HOOK_PAIR: LayerAttribution.HOOK_PAIR, NodeKind.ANNOTATED: LayerAttribution.ANNOTATION,
    NodeKind.PROVENANCE: LayerAttribution.PROVENANCE,
}  # fmt: skip


def layer_of_nodes(parent: np.ndarray, level: np.ndarray) -> np.ndarray:
    """The node that a node's own kernels count for: the LAYER at or above it; inside a model but in no layer,
    the MODEL or MODULE itself (its ``[self]`` part, XSP-style work between layers); else −1. Shape (nodes,)."""
    forest = forest_of(parent)
    is_layer, is_model = level == int(Level.LAYER), level == int(Level.MODEL)
    layer = forest.outermost_around(is_layer)
    if not is_layer.any():
        return layer
    holder = forest.nearest(is_model | ((level == int(Level.MODULE)) & forest.inside(is_model)))
    return np.where(layer >= 0, layer, holder)


def inherit(values: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Fill −1 with the nearest ancestor's value."""
    source = forest_of(parent).nearest(values >= 0)
    return np.where(source >= 0, values[source], np.asarray(-1, values.dtype)) if len(values) else values


def covering(
    process: np.ndarray, at: np.ndarray, range_process: np.ndarray, range_start: np.ndarray, range_end: np.ndarray
) -> np.ndarray:
    """Index of the range (of any thread) of the same process that is open at a time, −1 for none.

    Ranges of one process that overlap (threads serving requests side by side): the one opened last.
    """
    found = np.full(len(at), -1, np.int64)
    for p in distinct(range_process).tolist():
        mine = np.flatnonzero(range_process == p)
        mine = mine[np.argsort(range_start[mine], kind="stable")]
        rows = np.flatnonzero(process == p)
        position = np.searchsorted(range_start[mine], at[rows], side="right") - 1
        inside = position >= 0
        rows, position = rows[inside], position[inside]
        inside = range_end[mine[position]] >= at[rows]
        found[rows[inside]] = mine[position[inside]]
    return found


def forward_of_backward(
    ranges: pd.DataFrame, sequence: np.ndarray, is_backward: np.ndarray, parent: np.ndarray
) -> np.ndarray:
    """For ranges at or below a backward range with a sequence number: the forward range with that number, −1.

    PyTorch gives an operator and its gradient one number, unique per process for the forward thread; of
    several forward ranges with it the last one opened before the backward one is meant (torch's emit_nvtx). What a
    checkpoint computes again inside its backward range counts for the checkpoint's own forward range.
    ``ranges`` holds process_index and start_ns; all of shape (ranges,).
    """
    backward = np.flatnonzero((sequence >= 0) & is_backward)
    forward = np.flatnonzero((sequence >= 0) & ~is_backward)
    if not len(backward) or not len(forward):
        return np.broadcast_to(np.int32(-1), (len(ranges),))
    numbered = ranges[["process_index", "start_ns"]].assign(sequence=sequence)
    left = numbered.iloc[backward].assign(backward=backward).sort_values("start_ns", kind="stable")
    right = numbered.iloc[forward].assign(forward=forward).sort_values("start_ns", kind="stable")
    merged = pd.merge_asof(left, right, on="start_ns", by=["process_index", "sequence"], direction="backward")
    hit = merged["forward"].notna().to_numpy()
    result = np.full(len(ranges), -1, np.int32)
    result[merged["backward"].to_numpy()[hit]] = merged["forward"].to_numpy()[hit].astype(np.int32)
    result = inherit(result, parent)
    for _ in range(8):  # a checkpoint in a checkpoint …; damaged numbers cannot loop for ever
        further = np.where(result >= 0, result[result], -1)
        if (further < 0).all():
            break
        result = np.where(further >= 0, further, result)
    return result


_GRADIENT, _OPERATOR = r"(?:^|[: ])(\w+?)Backward\d*$", r"^aten::(\w+?)_?$"


def forward_by_order(
    ranges: pd.DataFrame, folded: np.ndarray, texts: np.ndarray, parent: np.ndarray, constants: Constants
) -> np.ndarray:
    """What `forward_of_backward` says, where no number links operators: the gradients of operators of one name come in
    the reverse order of these, as brackets close (`CudnnConvolutionBackward`, `aten::cudnn_convolution`). Names of
    which some operators have no gradient are left out. folded: number in ``texts`` of each range."""
    result = np.full(len(ranges), -1, np.int32)
    said = pd.Series(texts, dtype=object).astype(str)
    names = [said.str.extract(pattern, expand=False) for pattern in (_GRADIENT, _OPERATOR)]
    step = names[1].notna().to_numpy() * 1 - names[0].notna().to_numpy()
    key = pd.factorize(names[0].fillna(names[1]).fillna("").str.replace("_", "").str.lower())[0]
    gradient = (step < 0)[folded]
    rows = np.flatnonzero(np.isin(key[folded], key[folded[gradient]]) & (step != 0)[folded])
    if not len(rows):
        return result
    taken = np.zeros(len(ranges), bool)
    taken[rows] = True
    above = forest_of(parent).nearest(taken)[parent[rows]]
    rows = rows[(parent[rows] < 0) | (above < 0) | (key[folded[above]] != key[folded[rows]])]  # the outer one of a name
    frame = pd.DataFrame({"process": ranges["process_index"].to_numpy()[rows], "key": key[folded[rows]],
                          "step": step[folded[rows]], "start": ranges["start_ns"].to_numpy()[rows]})  # fmt: skip
    frame["row"] = rows
    alike = frame.groupby(["process", "key"])["step"].transform("mean").abs() <= 1 - constants.alike_ratio
    frame = frame[alike].sort_values("start", kind="stable")
    depth = frame.groupby(["process", "key"])["step"].cumsum()
    frame["level"] = depth + (frame["step"] < 0)
    before = frame.groupby(["process", "key", "level"]).shift(1)
    met = (frame["step"] < 0) & (before["step"] > 0)
    result[frame["row"][met]] = before["row"][met].astype(np.int32)
    return inherit(result, parent)


def assign_layers(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, launch_id: np.ndarray, forward_span: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Layer node (−1 none) and `LayerAttribution` of every activity; shape (activities,) each. ``forward_span``:
    what `forward_of_backward` found for the spans."""
    node = activities["node_id"].to_numpy()
    attribution = activities["attribution"].to_numpy()
    layer_of = nodes["layer_node_id"].to_numpy()
    layer = layer_of[node].copy()
    how = np.full(len(node), int(LayerAttribution.NONE), np.int8)
    for source, target in (
        (Attribution.NESTING, LayerAttribution.NESTING),
        (Attribution.THREAD_TIME, LayerAttribution.THREAD_TIME),
        (Attribution.GRAPH, LayerAttribution.GRAPH),
    ):
        how[(attribution == source) & (layer >= 0)] = int(target)

    if (forward_span >= 0).any():
        forward_node = np.full(len(nodes), -1, np.int32)  # span k is node k + 1
        forward_node[1 : len(forward_span) + 1] = np.where(forward_span >= 0, forward_span + 1, -1)
        forward = forward_node[node]
        said = (layer >= 0) & (nodes["kind"].to_numpy()[layer] == int(NodeKind.PROVENANCE))  # it knows better
        by_sequence = (forward >= 0) & (layer_of[np.maximum(forward, 0)] >= 0) & ~said
        layer[by_sequence] = layer_of[forward[by_sequence]]
        how[by_sequence] = int(LayerAttribution.SEQUENCE)

    missing = np.flatnonzero((layer < 0) & (launch_id >= 0))
    if len(missing):
        covering = _covering_layer(trace, nodes, launch_id[missing])
        hit = covering >= 0
        layer[missing[hit]] = covering[hit]
        how[missing[hit]] = int(LayerAttribution.THREAD_TIME)
    # However it was found: a layer that is inferred is never counted as a measured one.
    kind_of_layer = np.where(layer >= 0, nodes["kind"].to_numpy()[np.maximum(layer, 0)], -1)
    for kind, way in _WAYS_OF_KINDS.items():
        how[kind_of_layer == int(kind)] = int(way)
    return layer, how


def _covering_layer(trace: Trace, nodes: pd.DataFrame, launch: np.ndarray) -> np.ndarray:
    """The shortest LAYER range of any thread of the process that covers a launch, −1 none."""
    layers = np.flatnonzero(nodes["level"].to_numpy() == int(Level.LAYER))
    columns = ("process_index", "start_ns", "end_ns")
    nesting = nest(*(nodes[c].to_numpy()[layers] for c in columns))
    return np.append(layers, -1)[nesting.innermost(*(trace.launches[c].to_numpy()[launch] for c in columns))]


def path_ids(
    parent: np.ndarray, depth: np.ndarray, folded: np.ndarray, restart: np.ndarray
) -> tuple[np.ndarray, pd.DataFrame]:
    """Number the folded paths: equal number = equal folded texts from the root (or from the nearest ``restart``
    node, whose path begins with itself). Returns the number per node and, per path, its parent path and text id.
    """
    begins = (parent < 0) | restart
    level = np.where(begins, -1, depth)  # what lies below a beginning is told apart by its depth, too
    order = np.argsort(depth.astype(np.int16) if depth.max(initial=0) < 2**15 else depth, kind="stable")
    forest, ids = forest_of(parent), np.empty(len(parent), np.int32)
    for seed in range(4):  # equal hashes of unequal paths are found, and hashed again
        random = np.random.default_rng(seed)  # a number of each text, −1 (none) the last, and of each level
        words, ranks = (random.integers(1, 2**63, one.max(initial=0) + 2, np.uint64) for one in (folded, level))
        own = words[folded] * ranks[level]
        hashes = forest.add_down(own)
        if restart.any():
            hashes -= (hashes - own)[forest.nearest(begins)]
        ids[order] = pd.factorize(hashes[order])[0]
        first = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
        first[ids[order[::-1]]] = order[::-1]
        path_of_parent = np.where(begins, -1, ids[parent])
        if all((of[first][ids] == of).all() for of in (folded, level, path_of_parent)):
            break
    return ids, pd.DataFrame({"parent_path": path_of_parent[first], "folded_id": folded[first].astype(np.int64)})


def path_chains(paths: pd.DataFrame, wanted: np.ndarray) -> dict[int, list[int]]:
    """For each wanted path the chain of path numbers from its beginning down to itself."""
    parent = paths["parent_path"].to_numpy()
    chains: dict[int, list[int]] = {}
    for path in wanted.tolist():
        chain, current = [], path
        while current >= 0:
            chain.append(current)
            current = int(parent[current])
        chains[path] = chain[::-1]
    return chains


def occurrence(group: np.ndarray, order: np.ndarray) -> np.ndarray:
    """k-th occurrence (0-based) of each row's group, counted in ``order``; shape (n,)."""
    result = np.zeros(len(group), np.int64)
    if not len(group):
        return result
    by_group = order[np.argsort(group[order], kind="stable")]
    ordered = group[by_group]
    edge = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    result[by_group] = np.arange(len(group)) - np.repeat(edge, np.diff(np.r_[edge, len(group)]))
    return result
