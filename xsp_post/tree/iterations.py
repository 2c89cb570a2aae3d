"""Trace → Tree, step "which execution": model ranges become iterations, with their latency and device time, and warm-up
iterations are separated from measured ones."""

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.model.levels import Level
from xsp_post.model.schemas.units import format_ns
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import Attribution, Tree
from xsp_post.tree import layering
from xsp_post.tree.kinds import kinds_of, warmup_of_its_kind
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.steps import host_gaps, sizes_of_steps
from xsp_post.tree.structure.constants import Constants


def mark_warmup(
    latency_ns: np.ndarray,
    phase: np.ndarray,
    said: np.ndarray,
    has_loading: np.ndarray,
    sizes: np.ndarray,
    kernel_count: np.ndarray,
    constants: Constants,
) -> tuple[np.ndarray, list[Finding]]:
    """Which iterations are warm-up: by their text, or leading ones of a phase that are slow or load code.

    A phase that names its own warm-up means the rest to be measured: slowness alone takes none of it away, or
    the level that happened to start slowly would be summarised over fewer iterations than the others.
    ``sizes``: what texts say of the work of each, shape (iterations, any), −1 unknown: an iteration is slow only
    against later ones that have as much to do, and beyond what it has more kernels than they. At least one iteration of
    a phase always remains measured, unless all say themselves that they are warm-up.
    """
    warm = said.copy()
    detected = 0
    for name in pd.unique(phase):
        rows = np.flatnonzero((phase == name) & ~said)
        names_its_warmup = bool(said[phase == name][0])
        for position in range(len(rows) - 2):
            rest = rows[position + 1 :]
            alike = rest[(sizes[rest] >= sizes[rows[position]]).all(axis=1)]
            own, later = latency_ns[rows[position]], latency_ns[alike]
            later = later * np.maximum(kernel_count[rows[position]] / np.maximum(kernel_count[alike], 1), 1)
            is_longer = (
                len(later) > 0
                and own > constants.slow_start * np.median(later)
                and (later >= own * (1 - constants.near_ratio)).mean() < 1 / 3
            )
            slow = not names_its_warmup and is_longer
            if not (slow or (has_loading[rows[position]] and not has_loading[rest].all())):
                break
            warm[rows[position]] = True
            detected += 1
    is_one = len(warm) - int(warm.sum()) == 1
    return warm, if_any("warmup-detected", detected) + if_any("one-iteration", is_one)


# Latencies may sum to so much more than the executions together take before it is said that they overlap.
_MOST_OVERLAP = 0.01


def number_iterations(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, names: NodeNames
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """MODEL nodes become iterations in order of their start; nodes and activities inside, or launched by
    another thread of the process meanwhile, belong to them."""
    level = nodes["level"].to_numpy()
    start, end = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    models = np.flatnonzero(level == int(Level.MODEL))
    models = models[np.argsort(start[models], kind="stable")]
    of_node = np.full(len(nodes), -1, np.int32)
    of_node[models] = np.arange(len(models))
    parent = nodes["parent_id"].to_numpy()
    of_node = layering.inherit(of_node, parent)
    process = nodes["process_index"].to_numpy()
    if len(models):
        args = (process[models], start[models], end[models])
        around = rollup.holds(level == int(Level.MODEL), parent)
        top = (of_node < 0) & ~around & (parent == 0) & (process >= 0) & (nodes["kind"].to_numpy() <= 5)
        top = np.flatnonzero(top)
        meanwhile = _fully_covered(layering.covering(process[top], start[top], *args), end[top], args[2])
        if (meanwhile >= 0).any():
            of_top = np.full(len(nodes), -1, np.int32)
            of_top[top] = meanwhile
            of_node = np.where(of_node >= 0, of_node, layering.inherit(of_top, parent))
    nodes = nodes.assign(iteration_index=of_node)
    own_threads = nodes["thread_index"].to_numpy()[models]
    activities["iteration_index"] = _iteration_of_activities(
        trace, activities, of_node, process, start, end, models, own_threads
    )

    frame = pd.DataFrame(
        {
            "node_id": models,
            "process_index": process[models],
            "phase": _phases(nodes, models, names),
            "start_ns": start[models],
            "end_ns": end[models],
        }
    )
    return nodes, frame


def _fully_covered(found: np.ndarray, end: np.ndarray, model_end: np.ndarray) -> np.ndarray:
    inside = (found >= 0) & (model_end[np.maximum(found, 0)] >= end)
    return np.where(inside, found, -1)


def _iteration_of_activities(
    trace: Trace, activities: pd.DataFrame, of_node: np.ndarray, process: np.ndarray, start: np.ndarray, end:
    np.ndarray, models: np.ndarray, own_threads: np.ndarray,
) -> np.ndarray:  # fmt: skip
    node = activities["node_id"].to_numpy()
    result = of_node[node].copy()
    # a graph node counts for the range of its capture, but it ran in the iteration that launched the graph
    graph = activities["attribution"].to_numpy() == int(Attribution.GRAPH)
    if graph.any():
        result[graph] = of_node[activities["launch_node_id"].to_numpy()[graph]]
    if len(models):
        launch_id = activities["launch_id"].to_numpy()
        missing = np.flatnonzero((result < 0) & (launch_id >= 0))
        if len(missing):
            at, thread = (trace.launches[c].to_numpy()[launch_id[missing]] for c in ("start_ns", "thread_index"))
            found = layering.covering(
                activities["process_index"].to_numpy()[missing], at, process[models], start[models], end[models]
            )
            # a thread with executions of its own works for no other thread's
            is_other = np.isin(thread, own_threads) & (np.append(own_threads, -1)[found] != thread)
            result[missing] = np.where(is_other, -1, found)
    return result


def _phases(nodes: pd.DataFrame, models: np.ndarray, names: NodeNames) -> np.ndarray:
    """What ran: the phase that the text names, else its folded name."""
    texts = names.node_text("phase", models)
    folded = names.folded_names[nodes["folded_id"].to_numpy()[models]]
    generic = np.isin(texts.astype(str), ["", "warmup"])
    return np.where(generic, folded, texts)


def measure_iterations(tree: Tree, constants: Constants) -> tuple[pd.DataFrame, list[Finding]]:
    """Latency, device time and warm-up of each iteration. Latency runs to the end of its last device work."""
    frame = tree.iterations
    count = len(frame)
    frame = frame.assign(duration_ns=frame["end_ns"] - frame["start_ns"], **_iteration_times(tree))
    inferred = tree.nodes["is_inferred"].to_numpy()[frame["node_id"].to_numpy()]
    frame["latency_ns"] = _without_the_queue(tree, frame, inferred)
    tree.iterations = frame
    model = frame["node_id"].to_numpy()
    kind, sizes_of = sizes_of_steps(tree, named := kinds_of(tree))
    frame["phase"] = np.where(kind != named, kind, frame["phase"].astype(object))
    said = tree.nodes["is_warmup_text"].to_numpy()[model] | _below_warmup(tree, frame)
    frame["phase"], said, raised = warmup_of_its_kind(tree, kind, said)
    frame["kind"] = kind
    frame = frame.assign(**sizes_of, period_ns=_periods(frame), host_gap_ns=host_gaps(frame))
    loading = np.zeros(count, bool)
    at = tree.trace.module_loading_ns
    if len(at) and count:
        position = np.searchsorted(frame["start_ns"].to_numpy(), at, side="right") - 1
        inside = (position >= 0) & (frame["end_ns"].to_numpy()[np.maximum(position, 0)] >= at)
        loading[position[inside]] = True
    sizes = frame[["token_count", "key_count", "query_key_count"]].to_numpy()
    latency, phase = frame["latency_ns"].to_numpy(), frame["phase"].to_numpy()
    counts = frame["kernel_count"].to_numpy()
    warm, findings = mark_warmup(latency, phase, said, loading, sizes, counts, constants)
    return frame.assign(is_warmup=warm, is_inferred=inferred), raised + findings + _overlaps(frame)


def _periods(frame: pd.DataFrame) -> np.ndarray:
    """From the start of each iteration to the start of the next one of its process, where that is of the same phase;
    float, NaN for none."""
    start = frame["start_ns"].to_numpy()
    process, phase = frame["process_index"].to_numpy(), frame["phase"].to_numpy()
    order = np.lexsort((start, process))
    here, following = order[:-1], order[1:]
    same = (process[here] == process[following]) & (phase[here] == phase[following])
    period = np.full(len(frame), np.nan)
    period[here[same]] = (start[following] - start[here])[same]
    return period


def _overlaps(frame: pd.DataFrame) -> list[Finding]:
    """Executions that run into one another on the device: the latency of one counts the end of the one before it."""
    if len(frame) < 2:
        return []
    start, process = frame["start_ns"].to_numpy(), frame["process_index"].to_numpy()
    on_device = frame["device_offset_ns"].to_numpy() + frame["projection_ns"].to_numpy()
    end = np.maximum(frame["end_ns"].to_numpy(), start + np.nan_to_num(on_device).astype(np.int64))
    summed = int(frame["latency_ns"].sum())
    order = np.lexsort((start, process))
    union = int(grouped_union_length(process[order], start[order], end[order], int(process.max()) + 1).sum())
    if summed <= (1 + _MOST_OVERLAP) * union:
        return []
    here, following = order[:-1], order[1:]
    crosses = (process[here] == process[following]) & (end[here] > start[following])
    example = f"{len(frame)} latencies sum to {format_ns(summed)}, the executions together take {format_ns(union)}"
    return [finding("executions-overlap", count=int(crosses.sum()), example=example)]


def _without_the_queue(tree: Tree, frame: pd.DataFrame, inferred: np.ndarray) -> np.ndarray:
    """Latencies, shape (iterations,); of an inferred one launched while its predecessor's work still ran, from the
    end of that: nobody said that the wait began with the launch, and the device was not idle meanwhile."""
    latency, start = frame["latency_ns"].to_numpy(), frame["start_ns"].to_numpy()
    if not inferred.any():
        return latency
    thread = tree.nodes["thread_index"].to_numpy()[frame["node_id"].to_numpy()]
    order = np.lexsort((start, thread))
    follows = inferred[order][1:] & inferred[order][:-1] & (thread[order][1:] == thread[order][:-1])
    queued = np.zeros(len(frame), np.int64)
    queued[order[1:]] = np.where(follows, (start + latency)[order][:-1] - start[order][1:], 0)
    # work on several streams may end before its predecessor's: an iteration takes no less than its own work
    own = np.minimum(latency, frame["busy_ns"].to_numpy())
    return np.maximum(latency - np.maximum(queued, 0), own)


def _iteration_times(tree: Tree) -> dict[str, np.ndarray]:
    """latency_ns, where its work lies on the device, and how much that is, of each iteration."""
    frame, activities = tree.iterations, tree.activities
    count = len(frame)
    index = activities["iteration_index"].to_numpy()
    began, ended = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    rows = np.flatnonzero(index >= 0)
    index = index[rows]
    start, end = activities["start_ns"].to_numpy()[rows], activities["end_ns"].to_numpy()[rows]
    duration, kind = end - start, activities["kind"].to_numpy()[rows]
    is_kernel, is_graph = kind == ActivityKind.KERNEL, kind == ActivityKind.GRAPH
    is_copy = ~is_kernel & ~is_graph
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, index, start)
    np.maximum.at(last, index, end)
    order = np.argsort(start, kind="stable")
    return {
        "latency_ns": np.maximum(ended, last) - began,
        "device_offset_ns": np.where(last >= first, first - began, np.nan),
        "projection_ns": np.where(last >= first, last - first, np.nan),
        "device_ns": rollup.sums_per_node(index, duration, count),
        "kernel_ns": rollup.sums_per_node(index[is_kernel], duration[is_kernel], count),
        "copy_ns": rollup.sums_per_node(index[is_copy], duration[is_copy], count),
        "graph_ns": rollup.sums_per_node(index[is_graph], duration[is_graph], count),
        "busy_ns": grouped_union_length(index[order], start[order], end[order], count),
        "kernel_count": np.bincount(index[is_kernel], minlength=count).astype(np.int64),
    }


def _below_warmup(tree: Tree, frame: pd.DataFrame) -> np.ndarray:
    """Model ranges inside a range that calls itself warm-up."""
    nodes = tree.nodes
    flag = np.where(nodes["is_warmup_text"].to_numpy(), 1, -1)
    return layering.inherit(flag, nodes["parent_id"].to_numpy())[frame["node_id"].to_numpy()] == 1
