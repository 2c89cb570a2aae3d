"""Trace → Tree → Analysis: what `ingest`, `tree`, `table`, `report`, `batch` and `run` call, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

import numpy as np
import pandas as pd

from xsp_post import findings as findings_module
from xsp_post.analysis import Analysis, Overlay, Results
from xsp_post.findings import Finding
from xsp_post.hardware import Peaks
from xsp_post.hierarchy import LevelOptions, TreeOptions, build_tree, fold
from xsp_post.ingest.sources import Loaded, expand, load
from xsp_post.ingest.tables import SqliteTables
from xsp_post.intervals import grouped_union_length, union_length
from xsp_post.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL, Level
from xsp_post.reconcile import reconcile
from xsp_post.rollup import sums_per_node
from xsp_post.schemas import TABLES, column_names
from xsp_post.trace import ActivityKind, Trace
from xsp_post.tree import Attribution, LayerAttribution, Tree, balance


@dataclass(frozen=True)
class Options:
    """How sources become an analysis."""

    tree: TreeOptions = field(default_factory=TreeOptions)
    infer: bool = True
    roof: str = "pipe"  # pipe: the roof of the pipe that ran; fp32: the paper's rule
    peaks: Mapping[str, Peaks] = field(default_factory=dict)  # the user's, by GPU name: hardware.load_overrides

    @property
    def has_default_roofs(self) -> bool:
        """Whether nothing was chosen that changes the analyses of a finished tree."""
        return self.roof == Options.roof and not self.peaks

    @property
    def builds_like_default(self) -> bool:
        """Whether nothing was chosen that changes the tree."""
        return self.infer and self.tree.levels == LevelOptions()


def analyze(
    paths: list[Path],
    options: Options | None = None,
    begun: SqliteTables | None = None,
    on_core: Callable[[Analysis], None] | None = None,
) -> Analysis:
    """All tables of the captures (and counter reports) of one workload. Raises `CaptureError` and its kin.

    ``begun``: the first source, being read already (`ingest.sources.begin`). ``on_core`` is called with the core
    tables before the analyses are computed from them: nodes and kernels do not change any more.
    """
    options = options or Options()
    if begun is not None:
        loaded = [load(paths[0], begun=begun), *(load(path) for path in expand(paths[1:]))]
        return analyze_loaded(loaded, options, on_core)
    return analyze_loaded([load(path) for path in expand(paths)], options, on_core)


def analyze_loaded(
    loaded: list[Loaded], options: Options, on_core: Callable[[Analysis], None] | None = None
) -> Analysis:
    """The same, for sources that are read already."""
    traces = [one.trace for one in loaded if one.trace is not None]
    reports = [one.counters for one in loaded if one.counters is not None]
    if not traces and reports:
        from xsp_post.ingest.ncu_timeline import trace_of_report

        traces = [trace_of_report(report) for report in reports]
    parts = []
    for capture_id, trace in enumerate(traces):
        tree = grow(trace, options)
        parts.append(core_frames(tree, capture_id))
    analysis = reconcile(merge(parts))
    if on_core is not None:
        on_core(analysis)
    if reports:
        analysis = with_counters(analysis, reports)
    return with_analyses(analysis, options)


def grow(trace: Trace, options: Options) -> Tree:
    """The tree of one capture, with inferred structure where no range covers the kernels."""
    return build_tree(trace, replace(options.tree, infer=options.infer))


def summary_frames(tree: Tree, capture_id: int = 0) -> Analysis:
    """What `tree` prints, without the million rows behind it: captures, paths, balance, findings."""
    frames = {"paths": fold(tree), "balance": balance(tree), "captures": _captures(tree)}
    for name, frame in frames.items():
        frame.insert(0, "capture_id", np.full(len(frame), capture_id, np.int64))
        frames[name] = frame
    return _with_findings(frames, [replace(f, capture_id=capture_id) for f in tree.findings])


def merge_summaries(parts: list[Analysis]) -> Analysis:
    """Several summaries side by side."""
    names = parts[0].frames if parts else ()
    frames = {name: _concat([part.frames[name] for part in parts]) for name in names if name != "findings"}
    return _with_findings(frames, [f for part in parts for f in part.findings])


def merge(parts: list[Analysis]) -> Analysis:
    """Frames of several captures under one roof; node and kernel ids are made unique by an offset."""
    if len(parts) == 1:
        return parts[0]
    node_offset = kernel_offset = activity_offset = 0
    shifted: list[dict[str, pd.DataFrame]] = []
    for part in parts:
        frames = {name: frame.copy(deep=False) for name, frame in part.frames.items()}
        for table, columns in (
            ("nodes", ("node_id", "parent_id", "layer_node_id")),
            ("kernels", ("node_id", "layer_node_id")),
            ("memory_operations", ("node_id",)),
            ("layers", ("node_id",)),
            ("iterations", ("node_id",)),
        ):
            for column in columns:
                values = frames[table][column]
                frames[table][column] = values.where(values < 0, values + node_offset)
        frames["kernels"]["kernel_id"] += kernel_offset
        frames["memory_operations"]["activity_id"] += activity_offset
        node_offset += len(frames["nodes"])
        kernel_offset += len(frames["kernels"])
        activity_offset += len(frames["memory_operations"])
        shifted.append(frames)
    names = list(dict.fromkeys(name for frames in shifted for name in frames))
    merged = {
        name: _concat([frames[name] for frames in shifted if name in frames]) for name in names
    }
    return Analysis(merged, [f for part in parts for f in part.findings])


def _concat(frames: list[pd.DataFrame]) -> pd.DataFrame:
    from pandas.api.types import union_categoricals

    filled = [f for f in frames if len(f)] or frames[:1]
    if len(filled) == 1:
        return filled[0].reset_index(drop=True)
    columns: dict[str, object] = {}
    for name in filled[0].columns:
        parts = [f[name] for f in filled]
        if all(isinstance(p.dtype, pd.CategoricalDtype) for p in parts):
            # readers make texts of either dtype, object or str
            texts = [p.cat.rename_categories(p.cat.categories.astype(object).tolist()) for p in parts]
            columns[name] = union_categoricals(texts)
        else:
            columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def with_counters(analysis: Analysis, reports: list) -> Analysis:
    """Join counter reports to the kernels."""
    from xsp_post.counter_join import join

    frames = analysis.frames
    metrics, found, steps = join(
        frames["kernels"], frames["nodes"], reports, devices=frames.get("devices"), captures=frames.get("captures")
    )
    frames = dict(analysis.frames, kernel_metrics=metrics, counter_join=steps)
    return _with_findings(frames, analysis.findings + list(found))


def with_analyses(analysis: Analysis, options: Options) -> Analysis:
    """Add the tables A1…A15 and the evaluation tables."""
    from xsp_post.analyses import compute_all

    tables, found = compute_all(analysis, roof=options.roof, peaks=options.peaks)
    return _with_findings({**analysis.frames, **tables}, analysis.findings + list(found))


def reanalyze(results: Results, options: Options) -> Results:
    """A store's results with its analyses made anew for another roof or other peaks; its core tables stay."""
    from xsp_post.analyses import compute_all

    tables, found = compute_all(results, roof=options.roof, peaks=options.peaks)
    old = results.frame("findings")
    fresh = findings_module.to_frame(f for f in found if f.code == _PEAKS_UNKNOWN)
    kept = old[old["code"].astype(str) != _PEAKS_UNKNOWN].astype({c: fresh[c].dtype for c in fresh if len(fresh)})
    return Overlay(results, {**tables, "findings": pd.concat([kept, fresh], ignore_index=True) if len(fresh) else kept})


# the one finding of the analyses that hangs on their options
_PEAKS_UNKNOWN = "peaks-unknown"


def _with_findings(frames: dict[str, pd.DataFrame], findings: list[Finding]) -> Analysis:
    frames["findings"] = findings_module.to_frame(findings)
    return Analysis(frames, findings)


# -- the frames of one capture --------------------------------------------------------------------


def core_frames(tree: Tree, capture_id: int) -> Analysis:
    """The core tables (`schemas.results`) of one capture."""
    found = [replace(f, capture_id=capture_id) for f in tree.findings]
    threads = _Threads(tree)
    frames = {
        "iterations": _iterations(tree),
        "nodes": _nodes(tree, threads),
        "paths": fold(tree),
        "layers": layers_frame(tree),
        "kernels": _kernels(tree, threads),
        "memory_operations": _memory_operations(tree, threads),
        "devices": _devices(tree),
        "balance": balance(tree),
        "kernel_metrics": pd.DataFrame(columns=column_names("kernel_metrics")),
    }
    frames["captures"] = _captures(tree, frames["iterations"]["batch_size"].to_numpy())
    for name, frame in frames.items():
        if name == "kernel_metrics":
            continue
        if "capture_id" not in frame:
            frame.insert(0, "capture_id", np.full(len(frame), capture_id, np.int64))
        frame["capture_id"] = np.full(len(frame), capture_id, np.int64)
        wanted = [c for c in column_names(name) if c in frame]
        frames[name] = frame[wanted + [c for c in frame if c not in wanted]]
    return _with_findings(frames, found)


class _Threads:
    """Operating-system ids of dense process and thread indexes (−1 → −1)."""

    def __init__(self, tree: Tree) -> None:
        self._process = np.append(tree.trace.processes["process_id"].to_numpy(np.int64), -1)
        self._thread = np.append(tree.trace.threads["thread_id"].to_numpy(np.int64), -1)

    def process_id(self, index: np.ndarray) -> np.ndarray:
        return self._process[index]

    def thread_id(self, index: np.ndarray) -> np.ndarray:
        return self._thread[index]


def _categorical(codes: np.ndarray, texts: np.ndarray) -> pd.Categorical:
    """Texts by number as a categorical that holds only the texts in use; −1 becomes ''."""
    rows, unique = pd.factorize(codes)
    values = [str(texts[u]) if u >= 0 else "" for u in unique.tolist()]
    row_of_value, categories = pd.factorize(np.array(values, object))
    return pd.Categorical.from_codes(row_of_value[rows] if len(rows) else rows, pd.Index(categories, dtype=object))


def _named(codes: np.ndarray, members: type[IntEnum]) -> pd.Categorical[str]:
    return pd.Categorical.from_codes(codes, pd.Index([m.name.lower() for m in members]))


def _iterations(tree: Tree) -> pd.DataFrame:
    frame = tree.iterations.copy()
    frame["iteration_index"] = np.arange(len(frame), dtype=np.int64)
    frame["batch_size"] = _batch_sizes(tree, frame)
    frame["phase"] = frame["phase"].astype(object)
    return frame[[c for c in column_names("iterations") if c in frame]]


def _batch_sizes(tree: Tree, frame: pd.DataFrame) -> np.ndarray:
    """Inputs per iteration: the payload of our own model ranges, else what the capture's manifest said."""
    default = tree.trace.provenance.batch_size
    result = np.full(len(frame), default, np.int64)
    attributes = tree.trace.attributes
    span = frame["node_id"].to_numpy() - 1
    inside = span < len(tree.trace.spans)
    if "batch_size" in attributes:
        values = attributes["batch_size"].reindex(span[inside]).to_numpy(float)
        result[inside] = np.where(np.isnan(values) | (values <= 0), result[inside], values)
    if "payload_text_id" in tree.trace.spans:
        payload = tree.trace.spans["payload_text_id"].to_numpy()[span[inside]]
        own = tree.level_rule.startswith("own ranges")
        for row, text_id in zip(np.flatnonzero(inside).tolist(), payload.tolist()):
            text = str(tree.strings[text_id]) if text_id >= 0 else ""
            if own and text.isdigit() and int(text) > 0:
                result[row] = int(text)
    return result


def _nodes(tree: Tree, threads: _Threads) -> pd.DataFrame:
    nodes, names, trace = tree.nodes, tree.names, tree.trace
    count = len(nodes)
    texts = np.append(tree.strings, "").astype(object) if len(tree.strings) else np.array([""], object)
    folded = np.asarray(names.folded_names, object)
    name_id = nodes["name_id"].to_numpy()
    own_name = name_id < 0
    # nodes without a text of their own (synthetic ones) go by their folded name
    combined = np.concatenate([texts, folded])
    code = np.where(own_name, nodes["folded_id"].to_numpy() + len(texts), name_id)
    domain = np.append(trace.domains["name"].to_numpy(object), "")
    frame = pd.DataFrame(
        {
            "node_id": np.arange(count, dtype=np.int64),
            "parent_id": nodes["parent_id"].to_numpy(),
            "depth": nodes["depth"].to_numpy(),
            "level": pd.Categorical.from_codes(nodes["level"].to_numpy(), pd.Index([m.name for m in Level])),
            "name": _categorical(code, combined),
            "folded_name": _categorical(nodes["folded_id"].to_numpy(), folded),
            "path_id": nodes["path_id"].to_numpy(),
            "domain": _categorical(nodes["domain_index"].to_numpy(), domain),
            "process_id": threads.process_id(nodes["process_index"].to_numpy()),
            "thread_id": threads.thread_id(nodes["thread_index"].to_numpy()),
        },
        copy=False,
    )
    for column in ("start_ns", "end_ns"):
        frame[column] = nodes[column].to_numpy()
    frame["duration_ns"] = frame["end_ns"].to_numpy() - frame["start_ns"].to_numpy()
    for column in (
        "self_ns", "projected_start_ns", "projected_end_ns", "kernel_ns", "busy_ns", "kernel_count", "self_kernel_ns",
        "self_kernel_count", "memory_ns", "memory_bytes", "device_operation_count", "iteration_index",
        "layer_node_id", "call_index",
    ):  # fmt: skip
        frame[column] = nodes[column].to_numpy()
    frame["layer_index"] = nodes["layer_key"].to_numpy() + (nodes["layer_key"].to_numpy() >= 0)
    for column in ("layer_type", "shape_text", "dialect"):
        frame[column] = names.node_category(column)
    _from_payloads(tree, frame)
    frame["sequence"] = nodes["sequence"].to_numpy()
    frame["is_inferred"] = nodes["is_inferred"].to_numpy()
    frame["confidence_ratio"] = nodes["confidence_ratio"].to_numpy()
    frame["is_open"] = nodes["is_open"].to_numpy()
    frame["source_row_id"] = nodes["source_row_id"].to_numpy()
    frame["span_kind"] = _span_kinds(nodes["kind"].to_numpy())
    return frame


def _from_payloads(tree: Tree, frame: pd.DataFrame) -> None:
    """What a range's payload or its operator's record says beats what its text says (columns in place)."""
    attributes = tree.trace.attributes
    for column in ("shape_text", "layer_type", "tactic_name"):
        if column not in attributes or not len(attributes):
            continue
        values = attributes[column].dropna()
        values = values[values.astype(str) != ""]
        texts = np.full(len(frame), "", object)
        if column in frame:
            texts[:] = frame[column].astype(object)
        texts[values.index.to_numpy(int) + 1] = values.astype(str).to_numpy(object)
        frame[column] = pd.Categorical(texts)


def _span_kinds(codes: np.ndarray) -> pd.Categorical[str]:
    from xsp_post.tree import NodeKind

    return pd.Categorical.from_codes(codes, pd.Index([m.name.lower() for m in NodeKind]))


def layers_frame(tree: Tree) -> pd.DataFrame:
    """One row per layer and iteration (schemas: layers). Host time comes from the layer's ranges, device time
    from the kernels counted for it, however they were attributed."""
    keys = tree.layer_keys
    key_count = len(keys)
    if not key_count:
        return pd.DataFrame({c.name: pd.Series(dtype=_dtype(c.dtype)) for c in TABLES["layers"].columns})
    nodes, activities = tree.nodes, tree.activities
    rows = np.flatnonzero(nodes["layer_key"].to_numpy() >= 0)
    node_group = _group(nodes["iteration_index"].to_numpy()[rows], nodes["layer_key"].to_numpy()[rows], key_count)
    chosen = np.flatnonzero(activities["layer_key"].to_numpy() >= 0)
    activity_group = _group(
        activities["iteration_index"].to_numpy()[chosen], activities["layer_key"].to_numpy()[chosen], key_count
    )
    groups = np.unique(np.concatenate([node_group, activity_group]))
    of_node, of_activity = np.searchsorted(groups, node_group), np.searchsorted(groups, activity_group)
    count = len(groups)
    iteration, key = groups // key_count - 1, groups % key_count
    is_self = keys["is_self"].to_numpy()[key]

    duration = np.where(
        keys["is_self"].to_numpy()[nodes["layer_key"].to_numpy()[rows]],
        nodes["self_ns"].to_numpy()[rows],
        (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[rows],
    )
    first, last = nodes["projected_start_ns"].to_numpy()[rows], nodes["projected_end_ns"].to_numpy()[rows]
    projection = np.where(first >= 0, last - first, 0)
    first_node = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_node, of_node, rows)
    first_node[first_node == np.iinfo(np.int64).max] = keys["node_id"].to_numpy()[
        key[first_node == np.iinfo(np.int64).max]
    ]

    start, end = activities["start_ns"].to_numpy()[chosen], activities["end_ns"].to_numpy()[chosen]
    kind = activities["kind"].to_numpy()[chosen]
    is_kernel = kind == ActivityKind.KERNEL
    is_memory = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    by_start = np.argsort(start, kind="stable")
    nested = activities["layer_attribution"].to_numpy()[chosen] == LayerAttribution.NESTING
    elsewhere = by_start[~nested[by_start]]
    busy = grouped_union_length(of_activity[by_start], start[by_start], end[by_start], count)
    busy_elsewhere = grouped_union_length(of_activity[elsewhere], start[elsewhere], end[elsewhere], count)

    frame = pd.DataFrame(
        {
            "iteration_index": iteration,
            "layer_index": key + 1,
            "node_id": first_node,
            "layer_path": pd.Categorical.from_codes(*_codes(keys["layer_path"], key)),
            "layer_name": pd.Categorical.from_codes(*_codes(keys["layer_name"], key)),
            "layer_type": pd.Categorical.from_codes(*_codes(keys["layer_type"], key)),
            "call_index": keys["call_index"].to_numpy()[key],
            "call_count": np.bincount(of_node, minlength=count).astype(np.int64),
            "shape_text": _shapes(tree, first_node, is_self),
            "duration_ns": sums_per_node(of_node, duration, count),
            "projection_ns": np.where(is_self, 0, sums_per_node(of_node, projection, count)),
            "kernel_ns": sums_per_node(of_activity[is_kernel], (end - start)[is_kernel], count),
            "busy_ns": busy,
            "kernel_count": np.bincount(of_activity[is_kernel], minlength=count).astype(np.int64),
            "memory_ns": sums_per_node(of_activity[is_memory], (end - start)[is_memory], count),
            "memory_bytes": sums_per_node(
                of_activity[is_memory], activities["bytes"].to_numpy()[chosen][is_memory], count
            ),
        }
    )
    projected = frame["projection_ns"].to_numpy()
    device = np.where(projected > 0, projected + busy_elsewhere, busy)
    has_device = device > 0
    frame["latency_ns"] = np.where(has_device, device, frame["duration_ns"].to_numpy())
    frame["latency_source"] = np.where(projected > 0, "projection", np.where(has_device, "busy", "host"))
    _add_attributes(tree, frame, rows, of_node)
    frame["is_inferred"] = nodes["is_inferred"].to_numpy()[frame["node_id"].to_numpy()]
    return frame


def _dtype(name: str) -> str:
    return "object" if name == "str" else name


def _group(iteration: np.ndarray, key: np.ndarray, key_count: int) -> np.ndarray:
    return (iteration + 1) * key_count + key


def _shapes(tree: Tree, first_node: np.ndarray, is_self: np.ndarray) -> pd.Categorical:
    """The shape that the layer had in this iteration: with dynamic shapes it is another one in the next."""
    texts = tree.names.node_category("shape_text").take(first_node)
    shapes: np.ndarray = np.where(is_self, "", np.asarray(texts, object))
    return pd.Categorical(shapes)


def _codes(values: pd.Series, key: np.ndarray) -> tuple[np.ndarray, pd.Index]:
    codes, categories = pd.factorize(values.to_numpy(object))
    return codes[key], pd.Index(categories, dtype=object)


def _add_attributes(tree: Tree, frame: pd.DataFrame, rows: np.ndarray, of_node: np.ndarray) -> None:
    """What the collector recorded about a layer beside its times (columns added in place)."""
    attributes = tree.trace.attributes
    count = len(frame)
    frame["allocated_bytes"] = np.full(count, -1, np.int64)
    frame["analytic_flop"] = np.full(count, np.nan)
    frame["analytic_bytes"] = np.full(count, np.nan)
    span = rows - 1
    known = (span >= 0) & (span < len(tree.trace.spans))
    recorded = {"allocated_bytes": "allocated_bytes", "analytic_flop": "flop_count", "analytic_bytes": "least_bytes"}
    for column, source in recorded.items():
        if source in attributes:
            values = attributes[source].reindex(span[known]).to_numpy(float)
            use = ~np.isnan(values)
            summed = np.bincount(of_node[known][use], weights=values[use], minlength=count)
            seen = np.bincount(of_node[known][use], minlength=count) > 0
            target = frame[column].to_numpy(float)
            frame[column] = np.where(seen, summed, target).astype(np.int64 if column == "allocated_bytes" else float)
    shape = None
    if "shape_text_id" in tree.trace.spans:
        ids = tree.trace.spans["shape_text_id"].to_numpy()[span[known]]
        shape = np.array([str(tree.strings[i]).removeprefix("shape:") if i >= 0 else "" for i in ids.tolist()], object)
    elif "shape_text" in attributes:
        shape = attributes["shape_text"].reindex(span[known]).fillna("").to_numpy(object)
    if shape is not None and len(shape):
        best = np.full(count, "", object)
        filled = shape != ""
        best[of_node[known][filled]] = shape[filled]
        current = frame["shape_text"].astype(object).to_numpy()
        frame["shape_text"] = pd.Categorical(np.where(best != "", best, current))


class _Launches:
    """Columns of the launching calls of some activities, −1 where there is none."""

    def __init__(self, tree: Tree, launch_id: np.ndarray) -> None:
        self._launches = tree.trace.launches
        self.has = launch_id >= 0
        self._rows = np.maximum(launch_id, 0)

    def column(self, name: str) -> np.ndarray:
        if not self.has.any():
            return np.full(len(self.has), -1, np.int64)
        return np.where(self.has, self._launches[name].to_numpy()[self._rows], -1)


def _kernels(tree: Tree, threads: _Threads) -> pd.DataFrame:
    kernels = tree.kernels
    launch = _Launches(tree, kernels["launch_id"].to_numpy())
    launch_start = launch.column("start_ns")
    start = kernels["start_ns"].to_numpy()
    layer_key = kernels["layer_key"].to_numpy()
    count = len(kernels)
    frame = pd.DataFrame(
        {
            "kernel_id": np.arange(count, dtype=np.int64),
            "node_id": kernels["node_id"].to_numpy(),
            "layer_node_id": kernels["layer_node_id"].to_numpy(),
            "layer_index": layer_key + (layer_key >= 0),
            "iteration_index": kernels["iteration_index"].to_numpy(),
            "name": _categorical(kernels["name_id"].to_numpy(), tree.strings),
            "short_name": _categorical(kernels["short_name_id"].to_numpy(), tree.strings),
            "process_id": threads.process_id(kernels["process_index"].to_numpy()),
            "device_id": kernels["device_id"].to_numpy(),
            "stream_id": kernels["stream_id"].to_numpy(),
            "correlation_id": kernels["correlation_id"].to_numpy(),
            "start_ns": start,
            "end_ns": kernels["end_ns"].to_numpy(),
            "duration_ns": kernels["end_ns"].to_numpy() - start,
            "launch_start_ns": launch_start,
            "launch_end_ns": launch.column("end_ns"),
            "launch_thread_id": threads.thread_id(launch.column("thread_index")),
            "queue_delay_ns": np.where(launch.has, start - launch_start, -1),
            "attribution": _named(kernels["attribution"].to_numpy(), Attribution),
            "layer_attribution": _named(kernels["layer_attribution"].to_numpy(), LayerAttribution),
            "graph_node_id": kernels["graph_node_id"].to_numpy(),
        },
        copy=False,
    )
    for column in (
        "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
        "static_shared_memory_bytes", "dynamic_shared_memory_bytes",
    ):  # fmt: skip
        frame[column] = kernels[column].to_numpy() if column in kernels else np.full(count, -1, np.int32)
    return frame


def _memory_operations(tree: Tree, threads: _Threads) -> pd.DataFrame:
    rows = tree.activities[tree.activities["kind"].to_numpy() != ActivityKind.KERNEL]
    launch = _Launches(tree, rows["launch_id"].to_numpy())
    return pd.DataFrame(
        {
            "activity_id": np.arange(len(rows), dtype=np.int64),
            "kind": _named(rows["kind"].to_numpy(), ActivityKind),
            "node_id": rows["node_id"].to_numpy(),
            "iteration_index": rows["iteration_index"].to_numpy(),
            "name": _categorical(rows["name_id"].to_numpy(), tree.strings),
            "process_id": threads.process_id(rows["process_index"].to_numpy()),
            "device_id": rows["device_id"].to_numpy(),
            "stream_id": rows["stream_id"].to_numpy(),
            "correlation_id": rows["correlation_id"].to_numpy(),
            "start_ns": rows["start_ns"].to_numpy(),
            "end_ns": rows["end_ns"].to_numpy(),
            "bytes": rows["bytes"].to_numpy(),
            "attribution": _named(rows["attribution"].to_numpy(), Attribution),
            "launch_start_ns": launch.column("start_ns"),
            "launch_end_ns": launch.column("end_ns"),
            "launch_thread_id": threads.thread_id(launch.column("thread_index")),
        }
    )


def _devices(tree: Tree) -> pd.DataFrame:
    """The devices table; what a capture does not say of its GPU is −1, NaN or ''."""
    devices = tree.trace.devices
    unknown: dict[str, int | float | str] = {"int64": -1, "float64": np.nan, "str": ""}
    frame = pd.DataFrame(index=pd.RangeIndex(len(devices)))
    process = tree.trace.processes["process_id"].to_numpy()
    for column in TABLES["devices"].columns[1:]:
        if column.name == "process_id":
            index = devices["process_index"].to_numpy(int) if len(devices) else np.zeros(0, int)
            frame[column.name] = process[index] if len(index) else np.zeros(0, np.int64)
        elif column.name in devices:
            frame[column.name] = devices[column.name].to_numpy()
        else:
            frame[column.name] = unknown[column.dtype]
    return frame


def _captures(tree: Tree, batches: np.ndarray | None = None) -> pd.DataFrame:
    provenance, activities = tree.trace.provenance, tree.activities
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    device = activities["device_id"].to_numpy().astype(np.int64)
    process = activities["process_index"].to_numpy().astype(np.int64)
    root = tree.nodes.iloc[0]
    places = pd.unique(process * 4096 + device)
    busy = int(root["busy_ns"])
    if len(places) > 1:  # the union is per device; the root's is over all of them
        busy = 0
        for one in places.tolist():
            mine = (process * 4096 + device) == one
            busy += union_length(start[mine], end[mine])
    known = batches is not None and len(batches) and (batches == batches[0]).all()
    batch = int(batches[0]) if known and batches is not None else provenance.batch_size
    return pd.DataFrame(
        [
            {
                "level": provenance.level or _level_of(tree),
                "collector": provenance.collector,
                "source_name": provenance.source_name,
                "tool_version": provenance.tool_version,
                "schema_version": provenance.schema_version,
                "workload_name": provenance.workload_name,
                "framework": provenance.framework,
                "gpu_name": provenance.gpu_name,
                "batch_size": batch,
                "kernel_count": int(root["kernel_count"]),
                "kernel_ns": int(root["kernel_ns"]),
                "busy_ns": busy,
                "duration_ns": int(root["end_ns"] - root["start_ns"]),
                "level_rule": tree.level_rule,
                "clock_offset_ns": provenance.clock_offset_ns,
                "process_count": len(tree.trace.processes),
                "is_partial": provenance.is_partial,
            }
        ]
    )


def _level_of(tree: Tree) -> str:
    """The deepest profiler that was on, judged by what is in the capture."""
    if len(tree.activities):
        return RUN_KERNEL
    return RUN_LAYER if len(tree.layer_keys) else RUN_MODEL
