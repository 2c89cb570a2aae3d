"""Trace → Tree, step "layers from a twin": ranges of another capture of the same program, carried over by launches.

The launches of both captures are aligned by kernel name and shape (`arrays.alignment`); each aligned launch gets the
ranges that its twin had. A graph's replay has no ranges of its own, but the capture of the graph has: there the rows
of the launch calls carry the kernels' names, and each replay meets the recording that it repeats (`twin_segments`).
What does not align keeps its place and is counted.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.alignment import align
from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.base.findings import Finding, finding
from xsp_post.model.kinds import GEOMETRY
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.names.step_texts import capture_size
from xsp_post.tree.attribution import join_launches
from xsp_post.tree.draft import Draft
from xsp_post.tree.expert_products import expert_arguments
from xsp_post.tree.layering import path_ids
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.placing import in_level, opened_layers, place
from xsp_post.tree.twin_segments import kernel_calls, match, replays_of, segments_of, sizes_around

# Aligned by name and shape, less than this share of the launches: shapes may differ (another batch), names decide.
_GOOD_SHARE = 0.9


@dataclass(frozen=True)
class Twin:
    """What is carried over from captures.

    nodes     the ranges that launched something, and those around them: parent (row, −1 top), level, is_module, name,
              folded_name, layer_type, arguments (what an operator was given, '' unknown)
    launches  in launch order per process: process_index (the rank where it is known), node (row of ``nodes``, −1
              outside all), name (kernel, object), arguments ('' or what `expert_products` says), segment (number of
              the graph capture that it was recorded in, −1), bucket (size that this was recorded for, −1), call (name,
              or of a kernel without one what launched it) and, where recorded, grid_x … block_z (0 unknown)
    """

    source_name: str
    nodes: pd.DataFrame
    launches: pd.DataFrame


def as_run(trace: Trace) -> Trace:
    """The trace with an execution for each launch call that had none: it was recorded into a graph. It lasts as long as
    the call, so that the layers of a graph's capture are found as those of an eager run, and is named after its kernel,
    or after the call where this names none (CUDA)."""
    launches = trace.launches
    ran = np.zeros(len(launches), bool)
    launched = join_launches(trace)
    ran[launched[launched >= 0]] = True
    kernel = launches.get("kernel_name_id", pd.Series(-1, launches.index)).to_numpy()
    kernel = np.where((kernel < 0) & kernel_calls(trace), launches["name_id"].to_numpy(), kernel)
    rows = np.flatnonzero(~ran & (kernel >= 0))
    if not len(rows):
        return trace
    chosen = launches.iloc[rows]
    none = {name: -1 if str(name).endswith("_text_id") else 0 for name in trace.activities}
    made = pd.DataFrame({name: np.full(len(rows), value) for name, value in none.items()})
    same = ("process_index", "correlation_id", "start_ns", "end_ns")
    made = made.assign(**{name: chosen[name].to_numpy() for name in same}, name_id=kernel[rows])
    made = made.assign(short_name_id=kernel[rows]).astype(trace.activities.dtypes.to_dict())
    activities = pd.concat([trace.activities, made], ignore_index=True)
    return dataclasses.replace(trace, activities=activities.sort_values("start_ns", kind="stable", ignore_index=True))


def twin_of(tree: Tree, file_name: str = "") -> Twin:
    """The ranges and launches of a finished tree (of a trace `as_run`), to be carried over to another capture of the
    same program. file_name: where it was read from, which may name a size (``bs_32_rank0.json.gz``)."""
    launches = _executed(tree).sort_values(["process_index", "at_ns", "start_ns"], kind="stable", ignore_index=True)
    parent, depth = tree.nodes["parent_id"].to_numpy(), tree.nodes["depth"].to_numpy()
    owned = np.bincount(launches["node"].to_numpy(), minlength=len(parent)) > 0
    kind = tree.nodes["kind"].to_numpy()
    is_range = ~np.isin(kind, (NodeKind.ROOT, NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH, NodeKind.GRAPH))
    used = rollup.holds(owned, parent) & is_range
    rows = np.flatnonzero(used)
    rows = rows[np.argsort(depth[rows], kind="stable")]
    number = np.full(len(parent) + 1, -1, np.int64)  # the last: no parent
    number[rows] = np.arange(len(rows))
    nearest = np.append(forest_of(parent).nearest(used), -1)  # the last: no node
    names = tree.nodes["name_id"].to_numpy()[rows]
    nodes = pd.DataFrame({
        "parent": number[nearest[parent[rows]]],
        "level": tree.nodes["level"].to_numpy()[rows],
        "is_module": _is_module(tree.nodes, tree.names)[rows],
        "name": np.where(names >= 0, tree.strings[np.maximum(names, 0)], "[unnamed]"),
        "folded_name": tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[rows]],
        "layer_type": tree.names.node_text("layer_type", rows),
        "arguments": _arguments(tree.trace, rows),
    })  # fmt: skip
    launch_id = launches.pop("launch_id").to_numpy(np.int64)
    bucket = sizes_around(tree.nodes, tree.strings, of_capture=True)[launches["node"].to_numpy()]
    rank = tree.trace.processes["rank"].to_numpy()[launches["process_index"].to_numpy()]
    is_named = launches.pop("name_id").to_numpy() != tree.trace.launches["name_id"].to_numpy()[launch_id]
    own, around = launches["name"].to_numpy(object), number[nearest[launches["node"].to_numpy()]]
    launches = launches.assign(
        call=np.where(is_named, own, own + " in " + nodes["folded_name"].to_numpy(object)[around]),
        process_index=np.where(rank >= 0, rank, launches["process_index"].to_numpy()),
        arguments=expert_arguments(tree.trace, launch_id, launches["name"].to_numpy(object)),
        node=around,
        segment=segments_of(tree.trace)[launch_id],
        bucket=np.where(bucket >= 0, bucket, capture_size(np.array([file_name], object))[0]),
    )
    return Twin(tree.trace.provenance.source_name, nodes, launches.drop(columns=["at_ns", "start_ns"]))


def merged(twins: list[Twin], name: str) -> Twin:
    """Several captures as one: the captures of a program's graphs, one a file. name: what they are together."""
    if len(twins) == 1:
        return twins[0]
    nodes, launches, first, count = [], [], 0, 0
    for one in twins:
        parent, node = one.nodes["parent"].to_numpy(), one.launches["node"].to_numpy()
        segment = one.launches["segment"].to_numpy()
        nodes.append(one.nodes.assign(parent=np.where(parent >= 0, parent + first, -1)))
        moved = {"node": np.where(node >= 0, node + first, -1), "segment": np.where(segment >= 0, segment + count, -1)}
        launches.append(one.launches.assign(**moved))
        first, count = first + len(parent), count + int(segment.max(initial=-1)) + 1
    together = pd.concat(launches, ignore_index=True).sort_values("process_index", kind="stable", ignore_index=True)
    return Twin(f"{len(twins)} captures of {name}", pd.concat(nodes, ignore_index=True), together)


def _is_module(nodes: pd.DataFrame, names: NodeNames) -> np.ndarray:
    return (nodes["kind"].to_numpy() == int(NodeKind.MODULE)) | names.node_is("role", "module", "layer")


def _arguments(trace: Trace, nodes: np.ndarray) -> np.ndarray:
    """What the operators of some nodes were given, '' for all that is not a recorded operator."""
    result = np.full(len(nodes), "", object)
    if "arguments_id" in trace.attributes:
        said = np.append(trace.attributes["arguments_id"].to_numpy(np.int64), -1)
        found = said[np.where((nodes > 0) & (nodes < len(said)), nodes - 1, -1)]  # span k is node k + 1
        result[found >= 0] = trace.strings[found[found >= 0]]
    return result


def _executed(tree: Tree) -> pd.DataFrame:
    """Kernels with a launch, by the time of the launch."""
    kernels = tree.activities[_can_align(tree.activities)]
    at = tree.trace.launches["start_ns"].to_numpy()
    frame = pd.DataFrame({
        "process_index": kernels["process_index"].to_numpy(),
        "at_ns": at[kernels["launch_id"].to_numpy()] if len(kernels) else np.zeros(0, np.int64),
        "start_ns": kernels["start_ns"].to_numpy(),
        "node": kernels["node_id"].to_numpy(),
        "launch_id": kernels["launch_id"].to_numpy(), "name_id": kernels["name_id"].to_numpy(),
        "name": tree.strings[kernels["name_id"].to_numpy()],
    })  # fmt: skip
    return frame.assign(**{column: kernels[column].to_numpy() for column in GEOMETRY if column in kernels})


def _can_align(activities: pd.DataFrame) -> np.ndarray:
    return (activities["kind"].to_numpy() == int(ActivityKind.KERNEL)) & (activities["launch_id"].to_numpy() >= 0)


def carry_over(draft: Draft, twin: Twin) -> Draft:
    """Ranges of a twin for the kernels that no layer of the capture itself holds, and for replays of its graphs.

    The new nodes hang below the innermost range that the capture has around the launch, they are marked inferred and
    of kind ``TWIN``; what the capture has itself of the twin's ranges is not doubled.
    """
    nodes, activities, trace = draft.nodes, draft.activities, draft.trace
    rows = np.flatnonzero(_can_align(activities))
    at = trace.launches["start_ns"].to_numpy()[activities["launch_id"].to_numpy()[rows]]
    process = activities["process_index"].to_numpy()[rows]
    rows = rows[np.lexsort((activities["start_ns"].to_numpy()[rows], at, process))]
    is_open = ~in_level(nodes, Level.LAYER)[activities["node_id"].to_numpy()[rows]]
    replayed, is_replay = _replayed(draft, rows, twin)
    matched = np.full(len(rows), -1, np.int64)
    matched[is_open] = _matched(trace, activities, rows[is_open], twin)
    matched = np.where(replayed >= 0, replayed, matched)
    wanted = is_open | is_replay
    found = _findings(trace, activities, rows[wanted], matched[wanted], twin)
    owner = np.where(matched >= 0, twin.launches["node"].to_numpy()[np.maximum(matched, 0)], -1)
    placed = np.flatnonzero(owner >= 0)
    if not len(placed):
        return draft.said("", found)
    draft = draft.said(f"; ranges carried over from {twin.source_name}", found)
    rows, matched, owner = rows[placed], matched[placed], owner[placed]
    begins = np.r_[True, (np.diff(matched) <= 0) | (np.diff(activities["process_index"].to_numpy()[rows]) != 0)]
    path, their_path = _module_paths(nodes, draft.names, twin)
    has_own = _has_own(nodes, path, their_path, twin, distinct(activities["node_id"].to_numpy()[rows]))
    after = place(draft, rows, owner, np.cumsum(begins), twin.nodes, NodeKind.TWIN, has_own)
    said = np.full(len(activities), "", object)
    said[rows] = twin.launches["arguments"].to_numpy(object)[matched]
    level = _levels(after.nodes, len(nodes), path, their_path, twin)
    activities = after.activities.assign(arguments=said) if (said != "").any() else after.activities
    return dataclasses.replace(after, nodes=after.nodes.assign(level=level), activities=activities)


def _replayed(draft: Draft, rows: np.ndarray, twin: Twin) -> tuple[np.ndarray, np.ndarray]:
    """Row of ``twin.launches`` that each activity repeats in a graph's replay (−1 none), and which are replays of
    graphs at all, where the twin recorded some; per entry of ``rows``."""
    recorded = np.flatnonzero(twin.launches["segment"].to_numpy() >= 0)
    result = np.full(len(rows), -1, np.int64)
    trace, launch = draft.trace, draft.activities["launch_id"].to_numpy()[rows]
    is_replay = replays_of(trace, launch) if len(recorded) else np.zeros(len(rows), bool)
    process = draft.activities["process_index"].to_numpy()[rows]
    sizes = sizes_around(draft.nodes, draft.strings, of_capture=False)
    for mine, known in _lanes(trace, process, twin):
        mine, known = mine[is_replay[mine]], np.intersect1d(known, recorded)
        activities = draft.activities.iloc[rows[mine]]
        frame = pd.DataFrame({
            "replay": launch[mine], "name": trace.strings[activities["name_id"].to_numpy()],
            "size": sizes[activities["node_id"].to_numpy()],
            "graph_node_id": activities.get("graph_node_id", pd.Series(0, activities.index)).to_numpy(),
        })  # fmt: skip
        found = match(twin.launches.iloc[known], frame)
        result[mine] = np.append(known, -1)[found]
    return result, is_replay


def _lanes(trace: Trace, process: np.ndarray, twin: Twin) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each of our processes: its positions in ``process``, and the rows of the twin's launches of the same rank
    (of the same place in the order of processes where ranks are not known)."""
    rank = trace.processes["rank"].to_numpy()
    of_launch = twin.launches["process_index"].to_numpy()
    ours, theirs = pd.unique(process).tolist(), pd.unique(of_launch).tolist()
    for number, one in enumerate(ours if theirs else []):
        other = theirs[number] if len(theirs) == len(ours) else theirs[0]
        other = int(rank[one]) if int(rank[one]) in theirs else other
        yield np.flatnonzero(process == one), np.flatnonzero(of_launch == other)


def _module_paths(nodes: pd.DataFrame, names: NodeNames, twin: Twin) -> tuple[np.ndarray, np.ndarray]:
    """Number of the path of each of our nodes, and of each of the twin's, from the outermost module down to it; equal
    numbers are equal paths, −1 outside modules."""
    ours, theirs = nodes["parent_id"].to_numpy().astype(np.int64), twin.nodes["parent"].to_numpy().astype(np.int64)
    parent = np.concatenate([ours, np.where(theirs >= 0, theirs + len(ours), -1)])
    texts = np.concatenate([
        names.folded_names[nodes["folded_id"].to_numpy()], twin.nodes["folded_name"].to_numpy(object)
    ])  # fmt: skip
    is_module = np.concatenate([_is_module(nodes, names), twin.nodes["is_module"].to_numpy()])
    forest = forest_of(parent)
    outermost = is_module & ~forest.inside(is_module)
    depth = depths(parent)
    depth = np.maximum(depth - np.append(depth, 0)[forest.nearest(outermost)], 0)  # below the outermost module
    ids, _ = path_ids(parent, depth, pd.factorize(texts)[0], outermost)
    ids = np.where(is_module | forest.inside(is_module), ids, -1)
    return ids[: len(ours)], ids[len(ours) :]


def _has_own(
    nodes: pd.DataFrame, path: np.ndarray, their_path: np.ndarray, twin: Twin, homes: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Which of the twin's ranges the capture has itself around a node: modules of the same path, and in a model
    execution all that is a model execution by a marker, or lies around one."""
    level, theirs = twin.nodes["level"].to_numpy(), twin.nodes["is_module"].to_numpy()
    is_marker = (level == int(Level.MODEL)) & ~theirs
    above = forest_of(twin.nodes["parent"].to_numpy()).around(is_marker) | is_marker
    in_model = in_level(nodes, Level.MODEL)
    parent, width = nodes["parent_id"].to_numpy(), int(max(path.max(initial=0), their_path.max(initial=0))) + 2
    known, home, current = [], homes, homes
    while len(current):
        known.append(home[path[current] >= 0] * width + path[current][path[current] >= 0])
        inner = parent[current] >= 0
        home, current = home[inner], parent[current[inner]]
    around = distinct(np.concatenate(known))

    def has_own(node: np.ndarray, other: np.ndarray) -> np.ndarray:
        same = (their_path[other] >= 0) & np.isin(node * width + their_path[other], around)
        return same | (in_model[node] & above[other])

    return has_own


def _levels(nodes: pd.DataFrame, first: int, path: np.ndarray, their_path: np.ndarray, twin: Twin) -> np.ndarray:
    """Levels of all nodes, where our layers that hold layers of the twin (nodes from ``first`` on) only group them:
    what lies in these is what the twin says of modules of the same path."""
    level = nodes["level"].to_numpy().copy()
    forest, opened = forest_of(nodes["parent_id"].to_numpy()), opened_layers(nodes, first)
    inside = np.flatnonzero((opened | forest.inside(opened))[:first] & (path >= 0))
    of_path = np.full(int(max(path.max(initial=0), their_path.max(initial=0))) + 2, -1, np.int64)
    of_path[their_path] = np.maximum(twin.nodes["level"].to_numpy(), int(Level.MODULE))
    of_path[-1] = -1  # of what lies in no module
    said = of_path[path[inside]]
    level[inside] = np.where(said >= 0, said, level[inside])
    level[opened] = int(Level.MODULE)
    return level


def _matched(trace: Trace, activities: pd.DataFrame, rows: np.ndarray, twin: Twin) -> np.ndarray:
    """Row of ``twin.launches`` for each of the activities in ``rows``, −1 none."""
    result = np.full(len(rows), -1, np.int64)
    process = activities["process_index"].to_numpy()[rows]
    names = trace.strings[activities["name_id"].to_numpy()[rows]]
    columns = [c for c in GEOMETRY if c in activities and c in twin.launches]
    shapes = activities.iloc[rows][columns].reset_index(drop=True)
    for mine, known in _lanes(trace, process, twin):
        best = np.full(len(mine), -1, np.int64)
        for wanted in (columns, []) if columns else ([],):
            left, right = _symbols(twin.launches.iloc[known], names[mine], shapes.iloc[mine], wanted)
            found = align(left, right)
            if (found >= 0).sum() > (best >= 0).sum():
                best = found
            if (best >= 0).mean() >= _GOOD_SHARE:
                break
        result[mine] = np.where(best >= 0, known[np.maximum(best, 0)], -1)
    return result


def _symbols(
    known: pd.DataFrame, names: np.ndarray, shapes: pd.DataFrame, columns: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Equal numbers for launches of equal kernel name and, for ``columns``, equal shape."""
    codes, _ = pd.factorize(np.concatenate([known["name"].to_numpy(object), names.astype(object)]))
    for column in columns:
        values = np.concatenate([known[column].fillna(0).to_numpy(np.int64), shapes[column].to_numpy(np.int64)])
        codes, _ = pd.factorize(codes.astype(np.int64) * (int(values.max(initial=0)) + 1) + values)
    return codes[: len(known)].astype(np.int64), codes[len(known) :].astype(np.int64)


def _findings(
    trace: Trace, activities: pd.DataFrame, rows: np.ndarray, matched: np.ndarray, twin: Twin
) -> list[Finding]:
    found = []
    hit = int((matched >= 0).sum())
    text = f"{hit:,} of {len(rows):,} kernels; {twin.source_name}"
    found.append(finding("twin-aligned" if hit else "twin-nothing-carried", count=hit, example=text))
    if hit < len(rows):
        missed = activities["name_id"].to_numpy()[rows[np.flatnonzero(matched < 0)[0]]]
        found.append(finding("twin-unaligned", count=len(rows) - hit, example=str(trace.strings[missed])))
    return found
