"""Trace → Tree: nest ranges, join launches to executions, assign levels, iterations and layers, roll up.

Steps, in order, each a function of the frames before it: `_nest_spans`, `attribution.attribute`,
`level_rules.assign_levels`, `_node_frame`, `_number_iterations`, `layering.assign_layers`,
`_layer_keys`, `_roll_up`, `tree.check_tree`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post import attribution, iterations, layering, level_rules, rollup
from xsp_post.findings import CATALOGUE, INFO, WARNING, Entry, Finding, finding
from xsp_post.inference import Inference, infer
from xsp_post.intervals import Nesting, depths, grouped_union_length, nest
from xsp_post.level_rules import LevelOptions
from xsp_post.levels import Level
from xsp_post.names import parse_names
from xsp_post.trace import ActivityKind, Trace
from xsp_post.tree import Attribution, NodeKind, Tree, check_tree

CATALOGUE.update({
    "orphan-kernels": Entry(
        WARNING,
        "Kernels without a launch row",
        "The API call that launched them lies outside the exported window, or API tracing was off.",
        "They are kept under [no launch record]; export the whole recording (no --times) to attribute them.",
    ),
    "outside-ranges": Entry(
        INFO,
        "Kernels launched outside every range",
        "No NVTX range of any thread of the process covers the launch.",
        "They are kept under [unattributed]; put ranges around them: `with xsp_post.ranges(model):`.",
    ),
    "other-thread": Entry(
        INFO,
        "Kernels launched by a thread without ranges",
        "PyTorch's autograd thread launches backward work; the range open on another thread at that time covers it.",
        "They count for that range, marked thread_time; record with emit_nvtx to match them by sequence number.",
    ),
    "graph-launches": Entry(
        WARNING,
        "CUDA graph launches that hide their kernels",
        "nsys traced graphs as a whole (its default), so a graph is one opaque block of device time.",
        "Record with --cuda-graph-trace=node to see the kernels inside.",
    ),
    "duplicate-correlation": Entry(
        INFO,
        "Correlation ids with several launch rows",
        "The export holds a driver row and a runtime row for one launch.",
        "Each kernel is still counted once: the runtime row is used.",
    ),
    "negative-duration": Entry(
        WARNING,
        "Device work or ranges that end before they start",
        "Damaged or clipped rows.",
        "They count with the duration as recorded; export the capture again.",
    ),
    "no-kernels": Entry(
        INFO,
        "No kernel was recorded",
        "CUDA was not traced, the program used no GPU, or the capture range never opened.",
        "Record with: nsys profile -t cuda,nvtx",
    ),
    "no-ranges": Entry(
        INFO,
        "No range was recorded",
        "Nothing in the program or the profiler marked models or layers.",
        "Three lines of Python give true layers: import xsp_post; with xsp_post.ranges(model): run(); "
        "then nsys profile -t cuda,nvtx python ...",
    ),
})


@dataclass(frozen=True)
class TreeOptions:
    """How a tree is built. ``with_layers`` false leaves out what the printed tree does not need: layer keys,
    call numbers and nsys' operation counts."""

    levels: LevelOptions = field(default_factory=LevelOptions)
    with_layers: bool = True
    infer: bool = True


def build_tree(trace: Trace, options: TreeOptions | None = None) -> Tree:
    """Nest a capture. Every kernel of the trace is in the result once; raises `ContradictionError` otherwise,
    `UsageError` for patterns of the options that are invalid or match nothing."""
    options = options or TreeOptions()
    findings: list[Finding] = list(trace.findings)
    nesting, usable = _nest_spans(trace)
    launch_id = attribution.join_launches(trace)
    owners = attribution.attribute(trace, nesting, usable, launch_id)
    names = _Names(trace)
    span_parent, span_depth = _span_forest(trace, nesting, usable)
    level, rule = _levels(trace, names, span_parent, span_depth, owners["span"].to_numpy(), options.levels)
    nodes, activities = _frames(trace, names, span_parent, level, owners, launch_id)
    strings = trace.strings
    if options.infer:
        nodes, activities, strings, inferred = _infer_rest(trace, names, nodes, activities)
        findings += inferred
        if nodes["is_inferred"].any():
            rule += "; inferred from the launch sequence where no range is"
    nodes, frame = _number_iterations(trace, nodes, activities, names)
    nodes["layer_node_id"] = layering.layer_of_nodes(
        nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy(), nodes["level"].to_numpy()
    )
    activities["layer_node_id"], activities["layer_attribution"] = layering.assign_layers(
        trace, nodes, activities, launch_id
    )
    nodes["path_id"], _ = layering.path_ids(
        nodes["parent_id"].to_numpy(),
        nodes["depth"].to_numpy(),
        nodes["folded_id"].to_numpy(),
        np.zeros(len(nodes), bool),
    )
    keys = _layer_keys(nodes, activities, names) if options.with_layers else pd.DataFrame()
    _roll_up(nodes, activities)
    if options.with_layers:
        nodes["device_operation_count"] = _distinct_operations(nodes, activities)
    tree = Tree(trace, nodes, activities, strings, frame, keys, rule, names, findings)
    findings += _findings(tree, nesting, launch_id)
    findings += check_tree(tree)
    tree.iterations, warm = _measure_iterations(tree)
    findings += warm
    return tree


# -- names ----------------------------------------------------------------------------------------


class _Names:
    """What the texts of nodes say: parsed once per different text, looked up per span or per node."""

    def __init__(self, trace: Trace) -> None:
        name_id = trace.spans["name_id"].to_numpy()
        codes, used = pd.factorize(name_id)
        texts = trace.strings[np.maximum(used, 0)] if len(trace.strings) else np.full(len(used), "", object)
        texts = np.where(used >= 0, texts, "[unnamed]") if len(used) else np.zeros(0, object)
        self.parsed = parse_names(texts.astype(object))
        self.row = codes
        folded = self.parsed["folded_name"]
        self.folded_names = np.array([*folded.cat.categories.astype(str), *_SYNTHETIC.values()], object)
        self._first_synthetic = len(folded.cat.categories)
        self.folded = folded.cat.codes.to_numpy()[codes].astype(np.int64)
        self._row_of_node = np.r_[-1, codes]
        self._guessed_type: np.ndarray = np.zeros(0, object)

    def span(self, column: str) -> np.ndarray:
        """A parsed number or flag per span."""
        return self.parsed[column].to_numpy()[self.row]

    def roles_by_string(self) -> np.ndarray:
        return self.parsed["role"].astype(object).to_numpy()

    def synthetic(self, kind: NodeKind) -> int:
        """Folded id of a synthetic node's name."""
        return self._first_synthetic + list(_SYNTHETIC).index(kind)

    def with_synthetic(self, count: int) -> None:
        """So many nodes without a text of their own follow those of the spans."""
        self._row_of_node = np.r_[self._row_of_node, np.full(count, -1, np.int64)]

    def with_inferred(self, folded: np.ndarray, layer_type: np.ndarray) -> np.ndarray:
        """Add the nodes of an inference; returns the folded id of each."""
        codes, unique = pd.factorize(folded)
        known = {text: number for number, text in enumerate(self.folded_names.tolist())}
        fresh = [text for text in unique.tolist() if text not in known]
        known.update({text: len(self.folded_names) + k for k, text in enumerate(fresh)})
        self.folded_names = np.concatenate([self.folded_names, np.array(fresh, object)])
        self._row_of_node = np.r_[self._row_of_node, -2 - np.arange(len(folded))]
        self._guessed_type = layer_type
        return np.array([known[text] for text in unique.tolist()] or [0], np.int64)[codes]

    def node_text(self, column: str, nodes: np.ndarray | None = None) -> np.ndarray:
        """A parsed text per node (object, '' for synthetic nodes; an inferred node has its guessed layer_type)."""
        row = self._row_of_node if nodes is None else self._row_of_node[nodes]
        values = self.parsed[column].astype(object).to_numpy()
        result = np.full(len(row), "", object)
        result[row >= 0] = values[row[row >= 0]]
        if column == "layer_type" and len(self._guessed_type):
            guessed = row <= -2
            result[guessed] = self._guessed_type[-2 - row[guessed]]
        return result

    def node_category(self, column: str) -> pd.Categorical:
        """The same as a categorical, for large frames."""
        values = self.parsed[column]
        categories = values.cat.categories.astype(str).tolist()
        code_of = {text: code for code, text in enumerate(categories)}
        guessed = self._guessed_type if column == "layer_type" else np.full(len(self._guessed_type), "", object)
        for text in ["", *pd.unique(guessed).tolist()]:
            if text not in code_of:
                code_of[text] = len(categories)
                categories.append(text)
        row = self._row_of_node
        codes = np.full(len(row), code_of[""], np.int64)
        codes[row >= 0] = values.cat.codes.to_numpy()[row[row >= 0]]
        inferred = row <= -2
        if inferred.any():
            codes[inferred] = np.array([code_of[t] for t in guessed.tolist()], np.int64)[-2 - row[inferred]]
        return pd.Categorical.from_codes(codes, pd.Index(categories, dtype=object))


_SYNTHETIC = {
    NodeKind.ROOT: "[capture]",
    NodeKind.UNATTRIBUTED: "[unattributed]",
    NodeKind.NO_LAUNCH: "[no launch record]",
    NodeKind.GRAPH: "[CUDA graph]",
}


# -- spans ----------------------------------------------------------------------------------------


def _nest_spans(trace: Trace) -> tuple[Nesting, np.ndarray]:
    """Nest what can nest: spans of one thread (cross-thread ranges belong to none)."""
    spans = trace.spans
    crossing = spans["is_cross_thread"].to_numpy()
    usable = np.flatnonzero(~crossing) if crossing.any() else np.arange(len(spans))
    chosen = slice(None) if len(usable) == len(spans) else usable
    nesting = nest(
        spans["thread_index"].to_numpy()[chosen].astype(np.int64),
        spans["start_ns"].to_numpy()[chosen],
        spans["end_ns"].to_numpy()[chosen],
    )
    return nesting, usable


def _span_forest(trace: Trace, nesting: Nesting, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = len(trace.spans)
    if len(usable) == count:
        return nesting.parent, nesting.depth
    parent, depth = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    has = nesting.parent >= 0
    parent[usable[has]] = usable[nesting.parent[has]]
    depth[usable] = nesting.depth
    return parent, depth


def _levels(
    trace: Trace, names: _Names, parent: np.ndarray, depth: np.ndarray, owner: np.ndarray, options: LevelOptions
) -> tuple[np.ndarray, str]:
    spans = trace.spans
    launched = np.bincount(owner[owner >= 0], minlength=len(spans)) > 0
    domain_names = np.array([str(name).lower() for name in trace.domains["name"]], object)
    ranges = level_rules.Ranges(
        parent=parent,
        depth=depth,
        kind=spans["kind"].to_numpy(),
        name_id=names.row,
        folded_id=names.folded,
        domain_index=spans["domain_index"].to_numpy(),
        domain_names=domain_names,
        has_device_work=rollup.add_up(launched.astype(np.int64), parent, depth) > 0,
        role_of_string=names.roles_by_string(),
        strings=_texts_of_rows(trace, names),
        recorded=trace.attributes["level"].astype(object).to_numpy() if "level" in trace.attributes else None,
    )
    return level_rules.assign_levels(ranges, options)


def _texts_of_rows(trace: Trace, names: _Names) -> np.ndarray:
    """The text of each different name, in the numbering of `_Names.row`."""
    name_id = trace.spans["name_id"].to_numpy()
    texts = np.full(len(names.parsed), "", object)
    if len(name_id):
        known = (name_id >= 0) & bool(len(trace.strings))
        texts[names.row[known]] = trace.strings[name_id[known]]
    return texts


# -- nodes ----------------------------------------------------------------------------------------


def _frames(
    trace: Trace,
    names: _Names,
    span_parent: np.ndarray,
    level: np.ndarray,
    owners: pd.DataFrame,
    launch_id: np.ndarray,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes (root, spans in span order, synthetic ones) and activities with their node."""
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
        "parent_id": np.zeros(total, np.int64),
        "kind": np.full(total, int(NodeKind.ROOT), np.int8),
        "level": np.full(total, int(Level.CAPTURE), np.int8),
        "name_id": np.full(total, -1, np.int32),
        "folded_id": np.full(total, names.synthetic(NodeKind.ROOT), np.int64),
        "process_index": np.full(total, -1, np.int32),
        "thread_index": np.full(total, -1, np.int32),
        "domain_index": np.full(total, -1, np.int32),
        "start_ns": np.full(total, start, np.int64),
        "end_ns": np.full(total, end, np.int64),
        "source_row_id": np.full(total, -1, np.int64),
        "sequence": np.full(total, -1, np.int64),
        "step_index": np.full(total, -1, np.int64),
        "is_backward": np.zeros(total, bool),
        "is_warmup_text": np.zeros(total, bool),
        "is_open": np.zeros(total, bool),
        "is_inferred": np.zeros(total, bool),
        "confidence_ratio": np.ones(total),
    }
    columns["parent_id"][0] = -1
    columns["parent_id"][in_span] = span_parent + 1
    columns["level"][in_span] = level
    columns["folded_id"][in_span] = names.folded
    for column in ("kind", "name_id", "process_index", "thread_index", "domain_index", "start_ns", "end_ns",
                   "source_row_id", "is_open"):  # fmt: skip
        columns[column][in_span] = spans[column].to_numpy()
    columns["kind"][in_span][spans["is_cross_thread"].to_numpy()] = int(NodeKind.CROSS_THREAD)
    sequence = names.span("sequence")
    if "sequence" in trace.attributes:  # PyTorch traces keep it beside the name
        sequence = np.where(sequence >= 0, sequence, trace.attributes["sequence"].to_numpy())
    columns["sequence"][in_span] = sequence
    columns["step_index"][in_span] = names.span("step_index")
    columns["is_backward"][in_span] = names.span("is_backward")
    columns["is_warmup_text"][in_span] = names.span("is_warmup")
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
    nodes = pd.DataFrame(columns, copy=False)
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())

    result = dict(activities.items())
    enlarged = pd.DataFrame(result, copy=False)
    enlarged["launch_id"] = launch_id
    enlarged["launch_node_id"] = owners["launch_span"].to_numpy() + 1
    enlarged["node_id"] = node
    enlarged["attribution"] = attribution_codes
    return nodes, enlarged


def _extent(trace: Trace) -> tuple[int, int]:
    """First and last time of ranges and device work (0, 0 when there is nothing)."""
    starts = [f["start_ns"].to_numpy().min() for f in (trace.spans, trace.activities) if len(f)]
    ends = [f["end_ns"].to_numpy().max() for f in (trace.spans, trace.activities) if len(f)]
    return (int(min(starts)), int(max(ends))) if starts else (0, 0)


# -- inference ------------------------------------------------------------------------------------


def _infer_rest(
    trace: Trace, names: _Names, nodes: pd.DataFrame, activities: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray, list[Finding]]:
    """Iterations and blocks for launches outside every range, below [unattributed] and marked inferred.

    Such launches keep their attribution ``none``: no range was recorded around them, whatever repeats.
    """
    kind, how = activities["kind"].to_numpy(), activities["attribution"].to_numpy()
    working = (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)
    outside = how == int(Attribution.NONE)
    # A call of cuDNN or cuBLAS is no structure of the program: what only such ranges hold is open as well.
    in_library = _library_alone(nodes)
    node = activities["node_id"].to_numpy().copy()
    uncovered = outside | in_library[node]
    rows = np.flatnonzero(working)
    if not (working & uncovered).any():
        return nodes, activities, trace.strings, []
    launch_id = activities["launch_id"].to_numpy()[rows]
    has = launch_id >= 0
    frame = activities.iloc[rows].assign(is_covered=~uncovered[rows])
    for ours, column in (("launch_start_ns", "start_ns"), ("launch_end_ns", "end_ns"), ("thread_index", "thread_index")):
        values = trace.launches[column].to_numpy()
        frame[ours] = np.where(has, values[np.maximum(launch_id, 0)], -1) if len(values) else -1
    inference = infer(frame, trace.strings, hints=_hints(trace))
    if not len(inference.nodes):
        return nodes, activities, trace.strings, inference.findings
    home = np.flatnonzero(nodes["kind"].to_numpy() == int(NodeKind.UNATTRIBUTED))
    nodes, strings = _with_inferred_nodes(trace, names, nodes, inference, int(home[0]) if len(home) else 0)
    first = len(nodes) - len(inference.nodes)
    has_place = inference.node_of_launch >= 0
    placed, target = rows[has_place], first + inference.node_of_launch[has_place]
    launch_node = activities["launch_node_id"].to_numpy().copy()
    graph = kind[placed] == ActivityKind.GRAPH
    bare = outside[placed] & ~graph
    node[placed[bare]] = target[bare]
    launch_node[placed[bare]] = target[bare]
    parent = nodes["parent_id"].to_numpy().copy()
    leaf = outside[placed] & graph
    parent[node[placed[leaf]]] = target[leaf]  # an opaque graph launch is a leaf of its own
    nodes = nodes.assign(parent_id=parent)
    called = ~outside[placed]
    if called.any():
        nodes = _with_library_calls_inside(nodes, node[placed[called]], target[called])
    nodes["depth"] = depths(nodes["parent_id"].to_numpy())
    return nodes, activities.assign(node_id=node, launch_node_id=launch_node), strings, inference.findings


def _library_alone(nodes: pd.DataFrame) -> np.ndarray:
    """Which nodes are library calls, or lie in one, outside every other range; bool per node."""
    parent, level = nodes["parent_id"].to_numpy(), nodes["level"].to_numpy()
    alone = (level == int(Level.LIBRARY)) & (parent == 0)
    if alone.any():
        for below in rollup.rows_by_depth(nodes["depth"].to_numpy())[2:]:
            alone[below] = alone[parent[below]]
    return alone


def _with_library_calls_inside(nodes: pd.DataFrame, call: np.ndarray, inferred: np.ndarray) -> pd.DataFrame:
    """Hang outermost library calls below the innermost inferred node that holds all they launched.

    call, inferred: the library node and the inferred node of each launch. The inferred nodes grow by what the
    calls did before their first and after their last launch.
    """
    parent = nodes["parent_id"].to_numpy().copy()
    depth = depths(parent)
    top = call.copy()
    while (parent[top] != 0).any():
        top = np.where(parent[top] != 0, parent[top], top)
    order = np.lexsort((inferred, top))
    calls, begin = np.unique(top[order], return_index=True)
    low, high = inferred[order][begin], inferred[order][np.append(begin[1:], len(order)) - 1]
    while (low != high).any():
        deeper = depth[low] >= depth[high]
        low, high = (np.where((low != high) & deeper, parent[low], low),
                     np.where((low != high) & ~deeper, parent[high], high))  # fmt: skip
    parent[calls] = low
    start, end = nodes["start_ns"].to_numpy().copy(), nodes["end_ns"].to_numpy().copy()
    is_inferred = nodes["is_inferred"].to_numpy()
    np.minimum.at(start, low[is_inferred[low]], start[calls[is_inferred[low]]])
    np.maximum.at(end, low[is_inferred[low]], end[calls[is_inferred[low]]])
    for rows in rollup.rows_by_depth(depths(parent))[:0:-1]:
        rows = rows[is_inferred[rows] & is_inferred[parent[rows]]]
        np.minimum.at(start, parent[rows], start[rows])
        np.maximum.at(end, parent[rows], end[rows])
    return nodes.assign(parent_id=parent, start_ns=start, end_ns=end)


def _hints(trace: Trace) -> pd.DataFrame:
    """Host calls that often end an iteration: synchronisations and copies."""
    name_id = trace.launches["name_id"].to_numpy()
    codes, used = pd.factorize(name_id)
    wanted = np.array([u >= 0 and any(w in str(trace.strings[u]) for w in _HINT_WORDS) for u in used.tolist()] + [False])
    rows = np.flatnonzero(wanted[codes]) if len(codes) else np.zeros(0, np.int64)
    return trace.launches[["process_index", "start_ns"]].iloc[rows]


_HINT_WORDS = ("Synchronize", "Memcpy")


def _with_inferred_nodes(
    trace: Trace, names: _Names, nodes: pd.DataFrame, inference: Inference, home: int
) -> tuple[pd.DataFrame, np.ndarray]:
    found = inference.nodes
    count = len(found)
    first = len(nodes)
    parent = found["parent"].to_numpy()
    text_codes, texts = pd.factorize(found["name"].to_numpy(object))
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    columns: dict[str, np.ndarray] = {
        "parent_id": np.where(parent >= 0, parent + first, home),
        "kind": np.full(count, int(NodeKind.INFERRED), np.int8),
        "level": found["level"].astype(object).map({m.name: int(m) for m in Level}).to_numpy(np.int8),
        "name_id": (text_codes + len(trace.strings)).astype(np.int32),
        "folded_id": names.with_inferred(
            found["folded_name"].to_numpy(object), found["layer_type"].fillna("").to_numpy(object)
        ),
        "process_index": found["process_index"].to_numpy(np.int32),
        "thread_index": found["thread_index"].to_numpy(np.int32),
        "domain_index": np.full(count, -1, np.int32),
        "start_ns": start,
        "end_ns": end,
        "source_row_id": np.full(count, -1, np.int64),
        "sequence": np.full(count, -1, np.int64),
        "step_index": np.full(count, -1, np.int64),
        "is_backward": np.zeros(count, bool),
        # what is not a regular iteration is left out of statistics, as warm-up is
        "is_warmup_text": ~found["iteration_class"].isin(["regular", ""]).to_numpy()
        & (found["kind"] == "iteration").to_numpy(),
        "is_open": np.zeros(count, bool),
        "is_inferred": np.ones(count, bool),
        "confidence_ratio": found["confidence"].to_numpy(float),
        "depth": np.zeros(count, np.int64),
    }
    joined = {name: np.concatenate([nodes[name].to_numpy(), columns[name]]) for name in nodes.columns}
    return pd.DataFrame(joined, copy=False), np.concatenate([trace.strings, np.asarray(texts, object)])


# -- iterations -----------------------------------------------------------------------------------


def _number_iterations(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, names: _Names
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """MODEL nodes become iterations in order of their start; nodes and activities inside, or launched by
    another thread of the process meanwhile, belong to them."""
    level = nodes["level"].to_numpy()
    start, end = nodes["start_ns"].to_numpy(), nodes["end_ns"].to_numpy()
    models = np.flatnonzero(level == int(Level.MODEL))
    models = models[np.argsort(start[models], kind="stable")]
    of_node = np.full(len(nodes), -1, np.int64)
    of_node[models] = np.arange(len(models))
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    of_node = layering.inherit(of_node, parent, depth)
    process = nodes["process_index"].to_numpy()
    if len(models):
        args = (process[models], start[models], end[models])
        top = np.flatnonzero((of_node < 0) & (parent == 0) & (process >= 0) & (nodes["kind"].to_numpy() <= 5))
        of_node[top] = _fully_covered(iterations.covering_model(process[top], start[top], *args), end[top], args[2])
        of_node = layering.inherit(of_node, parent, depth)
    nodes = nodes.assign(iteration_index=of_node)
    activities["iteration_index"] = _iteration_of_activities(trace, activities, of_node, process, start, end, models)

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
    trace: Trace,
    activities: pd.DataFrame,
    of_node: np.ndarray,
    process: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    models: np.ndarray,
) -> np.ndarray:
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
            at = trace.launches["start_ns"].to_numpy()[launch_id[missing]]
            result[missing] = iterations.covering_model(
                activities["process_index"].to_numpy()[missing], at, process[models], start[models], end[models]
            )
    return result


def _phases(nodes: pd.DataFrame, models: np.ndarray, names: _Names) -> np.ndarray:
    """What ran: the phase that the text names, else its folded name."""
    texts = names.node_text("phase", models)
    folded = names.folded_names[nodes["folded_id"].to_numpy()[models]]
    generic = np.isin(texts.astype(str), ["", "warmup"])
    return np.where(generic, folded, texts)


def _measure_iterations(tree: Tree) -> tuple[pd.DataFrame, list[Finding]]:
    """Latency, device time and warm-up of each iteration. Latency runs to the end of its last device work."""
    frame, activities = tree.iterations, tree.activities
    count = len(frame)
    frame = frame.assign(duration_ns=frame["end_ns"] - frame["start_ns"], **_iteration_times(tree))
    said = tree.nodes["is_warmup_text"].to_numpy()[frame["node_id"].to_numpy()]
    loading = np.zeros(count, bool)
    at = tree.trace.module_loading_ns
    if len(at) and count:
        position = np.searchsorted(frame["start_ns"].to_numpy(), at, side="right") - 1
        inside = (position >= 0) & (frame["end_ns"].to_numpy()[np.maximum(position, 0)] >= at)
        loading[position[inside]] = True
    warm, findings = iterations.mark_warmup(
        frame["latency_ns"].to_numpy(), frame["phase"].to_numpy(), said | _below_warmup(tree, frame), loading
    )
    inferred = tree.nodes["is_inferred"].to_numpy()[frame["node_id"].to_numpy()]
    return frame.assign(is_warmup=warm, is_inferred=inferred), findings


def _iteration_times(tree: Tree) -> dict[str, np.ndarray]:
    """latency_ns, kernel_ns, busy_ns, kernel_count of each iteration."""
    frame, activities, nodes = tree.iterations, tree.activities, tree.nodes
    count = len(frame)
    index = activities["iteration_index"].to_numpy()
    model = frame["node_id"].to_numpy()
    began, ended = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    if _lies_below_models(activities, nodes, index):
        # everything that counts for an iteration lies below its node: that is summed up already
        last = np.maximum(ended, nodes["projected_end_ns"].to_numpy()[model])
        return {
            "latency_ns": last - began,
            **{c: nodes[c].to_numpy()[model] for c in ("kernel_ns", "busy_ns", "kernel_count")},
        }
    rows = np.flatnonzero(index >= 0)
    index = index[rows]
    start, end = activities["start_ns"].to_numpy()[rows], activities["end_ns"].to_numpy()[rows]
    is_kernel = activities["kind"].to_numpy()[rows] == ActivityKind.KERNEL
    last = ended.copy()
    np.maximum.at(last, index, end)
    order = np.argsort(start, kind="stable")
    return {
        "latency_ns": last - began,
        "kernel_ns": rollup.sums_per_node(index[is_kernel], (end - start)[is_kernel], count),
        "busy_ns": grouped_union_length(index[order], start[order], end[order], count),
        "kernel_count": np.bincount(index[is_kernel], minlength=count).astype(np.int64),
    }


def _lies_below_models(activities: pd.DataFrame, nodes: pd.DataFrame, index: np.ndarray) -> bool:
    """Whether all work of iterations was launched by their own thread inside their own node (no autograd thread,
    no graph): then the node's sums are the iteration's."""
    node = activities["node_id"].to_numpy()
    of_node = nodes["iteration_index"].to_numpy()
    level = nodes["level"].to_numpy()
    model = np.where(level == int(Level.MODEL), of_node, -1)
    below = layering.inherit(model, nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy())
    return bool(
        (below == of_node).all()
        and (activities["launch_node_id"].to_numpy() == node).all()
        and (index == of_node[node]).all()
    )


def _below_warmup(tree: Tree, frame: pd.DataFrame) -> np.ndarray:
    """Model ranges inside a range that calls itself warm-up."""
    nodes = tree.nodes
    flag = np.where(nodes["is_warmup_text"].to_numpy(), 1, -1)
    return layering.inherit(flag, nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy())[
        frame["node_id"].to_numpy()
    ] == 1


# -- layers ---------------------------------------------------------------------------------------


def _layer_keys(nodes: pd.DataFrame, activities: pd.DataFrame, names: _Names) -> pd.DataFrame:
    """Number the layers: ``layer_key`` of nodes and activities, and one row a layer in execution order.

    The key is (path below the model, k-th call of it within the iteration), which holds across iterations
    and runs; a capture without iterations folds all calls of a path into one layer.
    """
    level = nodes["level"].to_numpy()
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    folded = _phase_folded(nodes, names)
    # our own texts hold the whole module path: what stands around them (containers on or off) must not matter
    own = (names.node_text("dialect") == "xsp") & (names.node_text("role") == "layer")
    restart = (level == int(Level.MODEL)) | (parent == 0) | own
    relative, paths = layering.path_ids(parent, depth, folded, restart)
    holders = np.unique(activities["layer_node_id"].to_numpy())
    holders = holders[holders >= 0]
    is_layer = level == int(Level.LAYER)
    is_self = np.zeros(len(nodes), bool)
    is_self[holders] = True
    is_self &= ~is_layer
    rows = np.flatnonzero(is_layer | is_self)

    nodes["layer_key"] = np.full(len(nodes), -1, np.int64)
    nodes["call_index"] = _calls(nodes, nodes["path_id"].to_numpy())
    iteration = nodes["iteration_index"].to_numpy()[rows]
    start = nodes["start_ns"].to_numpy()[rows]
    phase_of_model = _model_folded(nodes, folded)[rows]
    path_key = (relative[rows] * (int(folded.max(initial=0)) + 2) + phase_of_model + 1) * 2 + is_self[rows]
    codes, _ = pd.factorize(path_key)
    call = layering.occurrence(
        codes * (int(iteration.max(initial=0)) + 2) + iteration + 1, np.argsort(start, kind="stable")
    )
    call[iteration < 0] = 0
    key, first_row = _in_execution_order(codes * (int(call.max(initial=0)) + 1) + call, iteration, start, nodes)
    nodes.loc[rows, "layer_key"] = key
    layer_node = activities["layer_node_id"].to_numpy()
    activities["layer_key"] = np.where(
        layer_node >= 0, nodes["layer_key"].to_numpy()[np.maximum(layer_node, 0)], -1
    )
    representative = rows[first_row]
    return _describe_layers(nodes, names, paths, relative, folded, own, representative, call[first_row], is_self)


def _calls(nodes: pd.DataFrame, path: np.ndarray) -> np.ndarray:
    iteration = nodes["iteration_index"].to_numpy()
    group = path * (int(iteration.max(initial=0)) + 2) + iteration + 1
    return layering.occurrence(group, np.argsort(nodes["start_ns"].to_numpy(), kind="stable"))


def _phase_folded(nodes: pd.DataFrame, names: _Names) -> np.ndarray:
    """Folded text per node, with warm-up and measured model ranges of one phase folded together."""
    folded = nodes["folded_id"].to_numpy().copy()
    text = names.folded_names
    known = {t: i for i, t in enumerate(text)}
    for identity, name in enumerate(text.tolist()):
        if name.startswith("warmup:"):
            twin = known.get("model:" + name.removeprefix("warmup:"))
            if twin is not None:
                folded[folded == identity] = twin
    return folded


def _model_folded(nodes: pd.DataFrame, folded: np.ndarray) -> np.ndarray:
    """Folded text of the model that a node lies in (layers of prefill and decode stay apart), −1 none."""
    level = nodes["level"].to_numpy()
    own = np.where(level == int(Level.MODEL), folded, -1)
    return layering.inherit(own, nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy())


def _in_execution_order(
    key: np.ndarray, iteration: np.ndarray, start: np.ndarray, nodes: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Number keys 0… by when they first run inside an iteration (measured iterations before warm-up ones);
    returns the number of each row and the row that stands for each number."""
    if not len(key):
        return key, np.zeros(0, np.int64)
    codes, _ = pd.factorize(key)
    count = int(codes.max()) + 1
    models = nodes[nodes["level"].to_numpy() == int(Level.MODEL)]
    began = np.zeros(int(iteration.max(initial=-1)) + 2, np.int64)
    warm = np.zeros(len(began), bool)
    began[models["iteration_index"].to_numpy()] = models["start_ns"].to_numpy()
    warm[models["iteration_index"].to_numpy()] = models["is_warmup_text"].to_numpy()
    inside = iteration >= 0
    offset = np.where(inside, start - began[iteration], start)
    # the last of the iterations that has the layer is the steadiest; sort by (warm-up, iteration desc)
    order = np.lexsort((-iteration, warm[iteration] & inside, codes))
    first = order[np.flatnonzero(np.r_[True, codes[order][1:] != codes[order][:-1]])]
    began_at = _by_phase(offset[first], first, nodes, iteration)
    rank = np.argsort(np.argsort(began_at, kind="stable"), kind="stable")
    number = np.empty(count, np.int64)
    number[codes[first]] = rank
    representative = np.empty(count, np.int64)
    representative[rank] = first
    return number[codes], representative


def _by_phase(
    offset: np.ndarray, first: np.ndarray, nodes: pd.DataFrame, iteration: np.ndarray
) -> np.ndarray:
    """Sort key of layers: their offset inside the iteration. Phases (prefill, decode) follow one another because
    the offset of a later phase's layers is raised by the longest offset of all earlier phases."""
    models = nodes[nodes["level"].to_numpy() == int(Level.MODEL)]
    if not len(models):
        return offset
    phase = pd.factorize(models["folded_id"].to_numpy())[0]
    of_iteration = np.zeros(int(models["iteration_index"].max()) + 2, np.int64)
    of_iteration[models["iteration_index"].to_numpy()] = phase
    span = int(np.abs(offset).max(initial=0)) + 1
    return np.where(iteration[first] >= 0, of_iteration[iteration[first]] * span, 0) + offset


def _describe_layers(
    nodes: pd.DataFrame,
    names: _Names,
    paths: pd.DataFrame,
    relative: np.ndarray,
    folded: np.ndarray,
    own: np.ndarray,
    representative: np.ndarray,
    call: np.ndarray,
    is_self: np.ndarray,
) -> pd.DataFrame:
    chains = layering.path_chains(paths, np.unique(relative[representative]))
    text_of_path = names.folded_names[paths["folded_id"].to_numpy()]
    level = nodes["level"].to_numpy()
    in_model = nodes["iteration_index"].to_numpy() >= 0
    parts, last = [], []
    for node in representative.tolist():
        chain = chains[int(relative[node])]
        texts = [str(text_of_path[p]) for p in chain]
        if in_model[node] and len(texts) > 1 and not own[node]:
            texts = texts[1:]  # below the model: its own name says nothing about the layer
        if is_self[node]:
            texts = [*([] if level[node] == int(Level.MODEL) else texts), layering.SELF]
        parts.append(layering.SEPARATOR.join(texts))
        last.append(texts[-1] if not is_self[node] or len(texts) == 1 else f"{texts[-2]} {layering.SELF}")
    layer_type = names.node_text("layer_type", representative)
    shape = names.node_text("shape_text", representative)
    selves = is_self[representative]
    return pd.DataFrame(
        {
            "layer_index": np.arange(1, len(representative) + 1),
            "node_id": representative,
            "layer_path": np.array(parts, object),
            "layer_name": np.array(last, object),
            "layer_type": np.where(
                selves, layering.SELF, np.where(layer_type == "", np.array(last, object), layer_type)
            ),
            "shape_text": np.where(selves, "", shape),
            "call_index": call,
            "is_self": selves,
        }
    )


# -- amounts --------------------------------------------------------------------------------------


def _roll_up(nodes: pd.DataFrame, activities: pd.DataFrame) -> None:
    """Inclusive and own device time of every node (columns added in place). Sums and unions are independent
    of one another and NumPy leaves the interpreter free: they run side by side."""
    with ThreadPoolExecutor(1) as pool:
        unions = pool.submit(_unions, nodes, activities)
        sums = _sums(nodes, activities)
        columns = {**sums, **unions.result()}
    for name, values in columns.items():
        nodes[name] = values


def _sums(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    count = len(nodes)
    kind = activities["kind"].to_numpy()
    node = activities["node_id"].to_numpy()
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    is_kernel = kind == ActivityKind.KERNEL
    own: np.ndarray | slice = slice(None) if is_kernel.all() else is_kernel
    columns = {
        "self_kernel_ns": rollup.sums_per_node(node[own], duration[own], count),
        "self_kernel_count": np.bincount(node[own], minlength=count).astype(np.int64),
    }
    columns["self_device_ns"] = (
        columns["self_kernel_ns"] if isinstance(own, slice) else rollup.sums_per_node(node, duration, count)
    )
    columns["kernel_ns"] = rollup.add_up(columns["self_kernel_ns"], parent, depth)
    columns["kernel_count"] = rollup.add_up(columns["self_kernel_count"], parent, depth)
    is_memory = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    for column, values in (("memory_ns", duration), ("memory_bytes", activities["bytes"].to_numpy())):
        columns[column] = np.zeros(count, np.int64)
        if is_memory.any():
            own_memory = rollup.sums_per_node(node[is_memory], values[is_memory], count)
            columns[column] = rollup.add_up(own_memory, parent, depth)
    length = nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    child = np.flatnonzero(parent > 0)
    columns["self_ns"] = np.maximum(0, length - rollup.sums_per_node(parent[child], length[child], count))
    return columns


def _unions(nodes: pd.DataFrame, activities: pd.DataFrame) -> dict[str, np.ndarray]:
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    node, launch_node = activities["node_id"].to_numpy(), activities["launch_node_id"].to_numpy()
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    order = _start_order(start)
    busy, first, last = rollup.busy_and_extent(node[order], start[order], end[order], parent, depth)
    # NVIDIA's projection knows same-thread launches of kernels and copies only (NSYS B.2)
    projected = (launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH)
    if not (projected.all() and (launch_node == node).all()):
        chosen = np.flatnonzero(projected) if isinstance(order, slice) else order[projected[order]]
        _, first, last = rollup.busy_and_extent(launch_node[chosen], start[chosen], end[chosen], parent, depth)
    first[0] = last[0] = -1
    return {"busy_ns": busy, "projected_start_ns": first, "projected_end_ns": last}


def _start_order(start: np.ndarray) -> np.ndarray | slice:
    return slice(None) if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")


def _distinct_operations(nodes: pd.DataFrame, activities: pd.DataFrame) -> np.ndarray:
    """Distinct correlation ids of work launched inside (`NumGPUOps` of nvtx_gpu_proj_trace)."""
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    launch_node = activities["launch_node_id"].to_numpy()
    process = activities["process_index"].to_numpy()
    correlation = activities["correlation_id"].to_numpy()
    rows = np.flatnonzero((launch_node > 0) & (activities["kind"].to_numpy() != ActivityKind.GRAPH))
    if len(rows):
        width = int(correlation[rows].max()) - int(correlation[rows].min()) + 1
        key = (correlation[rows] - correlation[rows].min()) + process[rows].astype(np.int64) * width
        if not _is_strictly_ascending(key):
            rows = rows[~pd.Series(key).duplicated().to_numpy()]
    own = np.bincount(launch_node[rows], minlength=len(parent)).astype(np.int64)
    return rollup.add_up(own, parent, depth)


def _is_strictly_ascending(values: np.ndarray) -> bool:
    return bool((values[1:] > values[:-1]).all())


# -- findings -------------------------------------------------------------------------------------


def _findings(tree: Tree, nesting: Nesting, launch_id: np.ndarray) -> list[Finding]:
    trace, activities = tree.trace, tree.activities
    kinds = activities["kind"].to_numpy()
    is_kernel = kinds == ActivityKind.KERNEL
    how = activities["attribution"].to_numpy()
    found: list[Finding] = []
    if not is_kernel.any():
        found.append(finding("no-kernels"))
    if not len(trace.spans):
        found.append(finding("no-ranges"))
    for code, member in (
        ("orphan-kernels", Attribution.NO_LAUNCH),
        ("outside-ranges", Attribution.NONE),
        ("other-thread", Attribution.THREAD_TIME),
    ):
        chosen = is_kernel & (how == member)
        if chosen.any() and (code != "outside-ranges" or len(trace.spans)):
            name = activities["name_id"].to_numpy()[np.flatnonzero(chosen)[0]]
            found.append(finding(code, count=int(chosen.sum()), example=str(trace.strings[name]) if name >= 0 else ""))
    graphs = int((kinds == ActivityKind.GRAPH).sum())
    if graphs:
        found.append(finding("graph-launches", count=graphs))
    if nesting.crossing_count:
        found.append(finding("child-outside-parent", count=nesting.crossing_count))
    backwards = int((activities["end_ns"].to_numpy() < activities["start_ns"].to_numpy()).sum())
    backwards += int((trace.spans["end_ns"].to_numpy() < trace.spans["start_ns"].to_numpy()).sum())
    if backwards:
        found.append(finding("negative-duration", count=backwards))
    return found


