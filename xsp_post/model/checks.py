"""Trace and Tree are checked against their declared columns (`schemas.frames`) and the invariants; always on."""

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import holds, sums_per_node
from xsp_post.base.errors import CaptureError, ContradictionError
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.schemas import Table
from xsp_post.model.schemas.frames import ANY_INTEGER, TRACE_FRAMES, TREE_FRAMES
from xsp_post.model.trace import PART_OF_KIND, PARTS, ActivityKind, Trace
from xsp_post.model.tree import NodeKind, Tree

# Kinds of nodes that stand for one span each.
_SPAN_KINDS = (
    NodeKind.PUSH_POP, NodeKind.START_END, NodeKind.LIBRARY, NodeKind.OPERATOR, NodeKind.MODULE, NodeKind.ANNOTATION,
    NodeKind.CROSS_THREAD, NodeKind.HOOK_PAIR,
)  # fmt: skip
# What an inclusive column is made of besides its children: the node's own part, where the tree keeps one.
_ADDITIVE = {"device_ns": "self_device_ns", "kernel_ns": "self_kernel_ns", "kernel_count": "self_kernel_count"}


# -- Trace --------------------------------------------------------------------------------------------------


def check_trace(trace: Trace) -> None:
    """Raise `ContradictionError` where a frame lacks a declared column, has another dtype, or an index points
    outside the frame it refers to; `CaptureError` where times are too far apart to be of one recording."""
    source = trace.provenance.source_name
    frames = {name: declared for name, declared in TRACE_FRAMES.items() if name != "gpu_samples"}  # read when asked for
    for name, declared in frames.items():
        _check_frame(getattr(trace, name), declared, f"{source}: {declared.name}")
    sizes = {
        "name_id": len(trace.strings), "short_name_id": len(trace.strings), "payload_text_id": len(trace.strings),
        "process_index": len(trace.processes), "thread_index": len(trace.threads), "domain_index": len(trace.domains),
        "launch_id": len(trace.launches),
    }  # fmt: skip
    for name in frames:
        frame = getattr(trace, name)
        for column in frame.columns.intersection(list(sizes)) if len(frame) else ():
            _check_range(frame[column].to_numpy(), -1, sizes[column], f"{source}: trace.{name}.{column}")
    _check_times(trace)


def _check_times(trace: Trace) -> None:
    """(thread, time) must fit one number of 64 bits: 100 days of a thousand threads do (`arrays.cutting.Keys`)."""
    frames = [frame for frame in (trace.spans, trace.launches, trace.activities) if len(frame)]
    if not frames:
        return
    first = min(int(frame["start_ns"].min()) for frame in frames)
    last = max(int(frame["end_ns"].max()) for frame in frames)
    if (last - first + 2) * max(len(trace.threads), 1) > np.iinfo(np.int64).max:
        years = (last - first) / (365 * 86_400 * 1e9)
        raise CaptureError(
            f"{trace.provenance.source_name}: its first and its last time are {years:.1f} years apart, so some of its "
            "times are wrong",
            code="capture-times-apart",
        )


def _check_frame(frame: pd.DataFrame, declared: Table, where: str) -> None:
    for column in declared.columns:
        if column.name not in frame:
            raise _malformed(f"{where} lacks the column {column.name}")
    if not len(frame):
        return
    if not (isinstance(frame.index, pd.RangeIndex) and frame.index[0] == 0 and frame.index.step == 1):
        raise _malformed(f"{where} is not indexed 0…{len(frame) - 1}")
    for column in (*declared.columns, *declared.may_lack):
        if column.name in frame and not _is_of(frame[column.name].dtype, column.dtype):
            raise _malformed(f"{where}.{column.name} is {frame[column.name].dtype}, declared is {column.dtype}")


def _is_of(dtype: object, declared: str) -> bool:
    if declared == "str":
        return str(dtype) in ("object", "str", "string", "category")
    if declared == ANY_INTEGER:
        return str(dtype) in ("int8", "int32", "int64")
    return str(dtype) == declared


def _check_range(values: np.ndarray, least: int, end: int, where: str) -> None:
    if len(values) and (values.min() < least or values.max() >= end):
        raise _malformed(f"{where} holds {values.min()} … {values.max()}, which is outside {least} … {end - 1}")


def _malformed(sentence: str) -> ContradictionError:
    return ContradictionError(sentence, code="frame-malformed")


# -- Tree ---------------------------------------------------------------------------------------------------


def check_tree(tree: Tree) -> list[Finding]:
    """The invariants of docs/architecture.md; findings where a capture may break them.

    Raises `ContradictionError` where device operations or their time were lost (1, 2), a column is not additive (4)
    or a join changed the number of rows (5). Rows read are those that the file counts (6), where a reader counts them.
    """
    source = tree.trace.provenance.source_name
    _check_frame(tree.nodes, TREE_FRAMES["nodes"], f"{source}: tree.nodes")
    _check_frame(tree.activities, TREE_FRAMES["activities"], f"{source}: tree.activities")
    _check_rows(tree)
    _check_forest(tree)
    _check_nothing_lost(tree)
    _check_additive(tree)
    return [*_children_outside(tree), *_busy_beyond_children(tree), *_busy_beyond_projection(tree)]


def _check_rows(tree: Tree) -> None:
    """Every activity and every span of the trace is one row."""
    source, activities = tree.trace.activities, tree.activities
    in_file = tree.trace.provenance.file_operation_count
    if in_file not in (-1, len(source)):
        raise _lost(tree, f"{len(source)} device activities", f"{in_file} rows of them")
    if len(activities) != len(source):
        raise _lost(tree, f"{len(activities)} device activities", f"{len(source)}")
    for column in ("start_ns", "end_ns", "kind"):
        if not np.array_equal(activities[column].to_numpy(), source[column].to_numpy()):
            raise _lost(tree, f"other values of {column} of the device activities", "others")
    spans = int(np.isin(tree.nodes["kind"].to_numpy(), _SPAN_KINDS).sum())
    if spans != len(tree.trace.spans):
        raise _lost(tree, f"{spans} ranges", f"{len(tree.trace.spans)}")


def _check_forest(tree: Tree) -> None:
    """One root, node 0; every other node hangs below a node that is one level less deep; activities below nodes."""
    where = f"{tree.trace.provenance.source_name}: tree"
    parent, depth = tree.nodes["parent_id"].to_numpy(), tree.nodes["depth"].to_numpy()
    _check_range(tree.activities["node_id"].to_numpy(), 0, len(parent), f"{where}.activities.node_id")
    _check_range(tree.activities["layer_node_id"].to_numpy(), -1, len(parent), f"{where}.activities.layer_node_id")
    _check_range(parent[1:], 0, len(parent), f"{where}.nodes.parent_id")
    if parent[0] != -1 or depth[0] != 0 or not (depth[1:] == depth[parent[1:]] + 1).all():
        raise _malformed(f"{where}.nodes is not one tree below node 0")


def _check_nothing_lost(tree: Tree) -> None:
    """Number and time of each part of the device operations, at the root and summed over the nodes' own."""
    source, nodes = tree.trace.activities, tree.nodes
    part = PART_OF_KIND[source["kind"].to_numpy()]
    duration = source["end_ns"].to_numpy() - source["start_ns"].to_numpy()
    counts = np.bincount(part, minlength=len(PARTS))
    lengths = sums_per_node(part, duration, len(PARTS))
    for index, name in enumerate(PARTS):
        recorded = int(counts[index]), int(lengths[index])
        held = int(nodes[f"{name}_count"].iloc[0]), int(nodes[f"{name}_ns"].iloc[0])
        if held != recorded:
            raise _lost_part(tree, name, held, recorded)
    own = int(nodes["self_kernel_count"].sum()), int(nodes["self_kernel_ns"].sum())
    if own != (int(counts[0]), int(lengths[0])):
        raise _lost_part(tree, PARTS[0], own, (int(counts[0]), int(lengths[0])))
    whole = int(lengths.sum())
    for held_ns in (int(nodes["device_ns"].iloc[0]), int(nodes["self_device_ns"].sum())):
        if held_ns != whole:
            raise _lost_part(tree, "device operation", (len(tree.activities), held_ns), (len(source), whole))


def _check_additive(tree: Tree) -> None:
    """Inclusive = own + children's; the parts of the device time add up to it; own = what hangs at the node."""
    nodes, activities = tree.nodes, tree.activities
    where = f"{tree.trace.provenance.source_name}: tree.nodes"
    parent = nodes["parent_id"].to_numpy(np.intp)
    for column, own in _ADDITIVE.items():
        below = sums_per_node(parent[1:], nodes[column].to_numpy()[1:], len(nodes))
        wrong = nodes[column].to_numpy() != below + nodes[own].to_numpy()
        if wrong.any():
            raise ContradictionError(
                f"{where}.{column}: {int(wrong.sum())} nodes hold another sum than their own and their children's",
                code="tree-not-additive",
            )
    parts = sum(nodes[f"{name}_ns"].to_numpy() for name in PARTS)
    if not np.array_equal(parts, nodes["device_ns"].to_numpy()):
        raise ContradictionError(f"{where}.device_ns is not the sum of its parts", code="tree-not-additive")
    is_kernel = activities["kind"].to_numpy() == ActivityKind.KERNEL
    at = np.bincount(activities["node_id"].to_numpy()[is_kernel], minlength=len(nodes))
    if not np.array_equal(at, nodes["self_kernel_count"].to_numpy()):
        raise ContradictionError(
            f"{where}.self_kernel_count: the kernels hang below other nodes", code="tree-not-additive"
        )


def _children_outside(tree: Tree) -> list[Finding]:
    """A recorded range lies within its parent on the same thread, or a finding says that some do not."""
    if any(one.code == "child-outside-parent" for one in tree.findings):
        return []
    nodes = tree.nodes
    parent = np.maximum(nodes["parent_id"].to_numpy(np.intp), 0)
    is_span = np.isin(nodes["kind"].to_numpy(), _SPAN_KINDS)
    thread, start, end = (nodes[c].to_numpy() for c in ("thread_index", "start_ns", "end_ns"))
    compared = is_span & is_span[parent] & (thread == thread[parent])
    outside = compared & ((start < start[parent]) | (end > end[parent]))
    return if_any("child-outside-parent", outside)


def _busy_beyond_children(tree: Tree) -> list[Finding]:
    nodes = tree.nodes
    parent, busy = nodes["parent_id"].to_numpy(), nodes["busy_ns"].to_numpy()
    explained = sums_per_node(parent[1:], busy[1:], len(nodes)) + nodes["self_device_ns"].to_numpy()
    excess = busy > explained + 1
    return if_any("busy-exceeds-children", excess)


def _busy_beyond_projection(tree: Tree) -> list[Finding]:
    """Busy time fits into the projection of every node whose device work its own thread launched (what other threads
    and graphs launched is not in a projection)."""
    nodes, activities = tree.nodes, tree.activities
    node = activities["node_id"].to_numpy()
    foreign = (activities["launch_node_id"].to_numpy() != node) | (activities["kind"].to_numpy() == ActivityKind.GRAPH)
    has_foreign = np.bincount(node[foreign], minlength=len(nodes)) > 0
    has_foreign[tree.pieces["node_id"].to_numpy() if len(tree.pieces) else []] = True
    thread, parent = nodes["thread_index"].to_numpy(), np.maximum(nodes["parent_id"].to_numpy(), 0)
    has_foreign |= (parent > 0) & (thread != thread[parent])  # backward work of another thread hangs below its step
    inside = holds(has_foreign, nodes["parent_id"].to_numpy())
    first, last = nodes["projected_start_ns"].to_numpy(), nodes["projected_end_ns"].to_numpy()
    excess = ~inside & (first >= 0) & (nodes["busy_ns"].to_numpy() > last - first)
    excess[0] = False  # the capture itself has no projection
    return if_any("busy-exceeds-projection", excess)


def _lost_part(tree: Tree, what: str, held: tuple[int, int], recorded: tuple[int, int]) -> ContradictionError:
    plural = {"copy": "copies and memsets", "graph": "graph executions"}.get(what, f"{what}s")
    return _lost(tree, f"{held[0]} {plural} of {held[1]} ns", f"{recorded[0]} of {recorded[1]} ns")


def _lost(tree: Tree, held: str, recorded: str) -> ContradictionError:
    return ContradictionError(
        f"{tree.trace.provenance.source_name}: the tree holds {held}, the capture {recorded}", code="tree-lost-kernels"
    )
