"""Core tables + the part that is wanted (one execution, or a time) → the core tables of that part alone.

The part's rows are made into a small `Tree` again, and the functions that made the tables of the whole sum it up.
Works on a store as on a capture: nothing but the tables is read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import rows_by_depth
from xsp_post.base.errors import UsageError
from xsp_post.model.levels import Level
from xsp_post.model.options import Options
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import column_names
from xsp_post.model.trace import COPY_DIRECTIONS, ActivityKind, MemoryKind
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind, Tree, balance
from xsp_post.replay.idle import Idle
from xsp_post.replay.windows import device_windows
from xsp_post.tables.core.devices import busy_per_gpu, devices_frame
from xsp_post.tables.core.gpu_samples import gpu_sample_frames
from xsp_post.tables.core.idle import CAUSES, give_paths_their_waits, idle_causes_frame
from xsp_post.tables.core.memory_part import memory_of_part
from xsp_post.tables.core.operations import operations_frame
from xsp_post.tree.amounts import roll_up
from xsp_post.tree.folding import fold
from xsp_post.tree.ranks import paths_per_rank

_NEEDED = ("captures", "nodes", "kernels", "memory_operations", "iterations")
# Layers of these kinds of nodes say how their work was found to be theirs.
_WAYS_OF_KINDS = ("inferred", "twin", "hook_pair")
_OWN_AMOUNTS = (
    "self_ns", "projected_start_ns", "projected_end_ns", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns",
    "kernel_count", "self_kernel_ns", "self_kernel_count", "memory_bytes",
)  # fmt: skip
# Tables that say nothing of a part: they compare captures, or hold other tables' sums.
_LEFT_OUT = ("overhead", "replays", "critical_path", "counter_join")


def part_frames(results: Results, options: Options) -> dict[str, pd.DataFrame]:
    """The core tables of the part, and the table ``part``, which says what it is. Raises `UsageError` where the
    results hold no recording, or nothing lies in the part."""
    tables = results.tables()
    if not set(_NEEDED) <= set(tables):
        raise UsageError("--iteration, --from and --to need the recording of one workload: a capture or its store",
                         code="nothing-in-part")  # fmt: skip
    captures = results.frame("captures")
    cut = [one for number in captures["capture_id"].tolist() if (one := _of_capture(results, int(number), options))]
    if not cut:
        raise UsageError(f"Nothing lies in {_asked(results, options)}", code="nothing-in-part")
    names = list(dict.fromkeys(name for one in cut for name in one))
    frames = {name: pd.concat([one[name] for one in cut if name in one], ignore_index=True) for name in names}
    for name in _LEFT_OUT:
        if name in tables:
            frames[name] = results.frame(name).iloc[:0]
    for name in ("findings", "execution_candidates", "operators", "platforms"):
        if name in tables:
            frames[name] = results.frame(name)
    for name, key in (("kernel_metrics", "kernel_id"), ("kernel_work", "kernel_id"), ("inferred", "node_id")):
        if name in tables:
            rows = results.frame(name)
            known = frames["kernels" if key == "kernel_id" else "nodes"][key]
            frames[name] = rows[rows[key].isin(known)].reset_index(drop=True)
    return frames


def _asked(results: Results, options: Options) -> str:
    if options.iteration is None:
        nodes = results.frame("nodes", ["start_ns", "end_ns"])
        low, high = (int(nodes["start_ns"].min()), int(nodes["end_ns"].max())) if len(nodes) else (0, 0)
        zero = _origin(nodes, str(results.frame("captures", ["collector"])["collector"].iloc[0]))
        return f"that time; the recording is {_stretch(low - zero, high - zero)}"
    count = len(results.frame("iterations", ["iteration_index"]))
    known = f"; the iterations are 0 … {count - 1}" if count else "; no model execution was found"
    return f"iteration {options.iteration}{known}"


def _origin(nodes: pd.DataFrame, collector: str) -> int:
    """What times on the command line count from: the clock of nsys, which begins with its session, as it is; of other
    traces, whose clocks count from anywhere, the first event."""
    return 0 if collector == "nsys" or not len(nodes) else int(nodes["start_ns"].min())


class _Window:
    """Which rows of a capture's tables belong to the part."""

    def __init__(self, results: Results, capture: pd.Series, options: Options) -> None:
        self.capture_id = int(capture["capture_id"])
        self.iteration = options.iteration
        nodes = self.of(results, "nodes")
        self.origin = _origin(nodes, str(capture["collector"]))
        least, most = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
        self.low = least if options.begin_ns is None else options.begin_ns + self.origin
        self.high = most if options.end_ns is None else options.end_ns + self.origin
        iterations = self.of(results, "iterations")
        self.iteration_count = len(iterations)
        self.process = -1
        if self.iteration is not None:
            mine = iterations[iterations["iteration_index"] == self.iteration]
            self.process = int(mine["process_id"].iloc[0]) if len(mine) else -2

    def of(self, results: Results, name: str) -> pd.DataFrame:
        """The table's rows of the capture."""
        frame = frame_or_empty(results, name)
        return frame[frame["capture_id"].to_numpy() == self.capture_id]

    def chosen(self, frame: pd.DataFrame) -> np.ndarray:
        """Rows that start in the part."""
        start = frame["start_ns"].to_numpy()
        inside = (start >= self.low) & (start < self.high)
        if self.iteration is not None and "iteration_index" in frame:
            inside &= frame["iteration_index"].to_numpy() == self.iteration
        elif self.iteration is not None and "process_id" in frame:
            inside &= frame["process_id"].to_numpy() == self.process
        return inside


def _of_capture(results: Results, capture_id: int, options: Options) -> dict[str, pd.DataFrame] | None:
    captures = results.frame("captures")
    capture = captures[captures["capture_id"] == capture_id].iloc[0]
    window = _Window(results, capture, options)
    kernels, copies = (frame[window.chosen(frame)] for frame in (
        window.of(results, "kernels"), window.of(results, "memory_operations")))  # fmt: skip
    iterations = window.of(results, "iterations")
    if options.iteration is not None:
        iterations = iterations[iterations["iteration_index"] == options.iteration]
    iterations = iterations[(iterations["start_ns"] >= window.low) & (iterations["end_ns"] <= window.high)]
    every = window.of(results, "nodes")
    held = pd.concat([kernels["node_id"], copies["node_id"]]).unique()
    nodes = _with_ancestors(every, window.chosen(every) | every["node_id"].isin(held).to_numpy())
    if len(nodes) < 2 and not len(kernels) and not len(copies):
        return None
    window = _narrowed(window, nodes, kernels, copies, iterations)
    tree, nodes = _tree(results, window, nodes, kernels, copies, iterations)
    idle = _idle(results, window, tree, nodes)
    frames: dict[str, pd.DataFrame] = {
        "paths": fold(tree), "operations": operations_frame(tree), "devices": devices_frame(tree),
        "balance": balance(tree),
    }  # fmt: skip
    pieces, table = idle
    causes = idle_causes_frame(tree, pieces)
    give_paths_their_waits(frames["paths"], causes)
    windows = device_windows(tree, pieces.devices, causes)
    frames["idle_causes"] = causes
    frames["device_windows"] = windows.reindex(columns=[c for c in column_names("device_windows") if c != "capture_id"])
    for frame in frames.values():
        frame.insert(0, "capture_id", np.full(len(frame), capture_id, np.int64))
    layers = window.of(results, "layers")
    layers = layers[layers["node_id"].isin(nodes["node_id"])]
    if options.iteration is not None:
        layers = layers[layers["iteration_index"] == options.iteration]
    frames |= {"nodes": nodes, "kernels": kernels, "memory_operations": copies, "iterations": iterations,
               "layers": layers, "idle": table, "captures": _capture(capture, tree)}  # fmt: skip
    for name in ("dependencies", "collectives"):
        if name in results.tables():
            rows = window.of(results, name)
            frames[name] = rows[window.chosen(rows)]
    if "gpu_timeline" in results.tables():
        frames |= _samples(window, tree, window.of(results, "gpu_timeline"))
    if "memory" in results.tables():
        about = [window.of(results, name) for name in ("memory_timeline", "memory", "memory_devices")]
        frames |= memory_of_part(about[0], about[1], about[2], every, window.low, window.high)
    frames["part"] = _said(window, iterations)
    return {name: frame.reset_index(drop=True) for name, frame in frames.items()}


def _samples(window: _Window, tree: Tree, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The samples that share time with the part, and their means over the device work that is in it."""
    rows = rows[(rows["end_ns"] > window.low) & (rows["start_ns"] < window.high)]
    tree.trace.gpu_samples = rows.drop(columns=["capture_id"]).reset_index(drop=True).copy
    made, _ = gpu_sample_frames(tree)
    for frame in made.values():
        frame.insert(0, "capture_id", np.full(len(frame), window.capture_id, np.int64))
    means = made["gpu_samples"]
    numbers = np.append(tree.iterations["iteration_index"].to_numpy(np.int64), -1)
    made["gpu_samples"] = means.assign(iteration_index=numbers[means["iteration_index"].to_numpy(np.int64)])
    return made


def _with_ancestors(nodes: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    """The chosen nodes and all above them; the root is always there."""
    position = pd.Index(nodes["node_id"]).get_indexer(pd.Index(nodes["parent_id"]))
    kept = chosen | (position < 0)
    for rows in reversed(rows_by_depth(nodes["depth"].to_numpy())):
        kept[position[rows[kept[rows] & (position[rows] >= 0)]]] = True
    return nodes[kept]


def _narrowed(window: _Window, nodes: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame,
              iterations: pd.DataFrame) -> _Window:  # fmt: skip
    """The window with its real ends: those of an execution with its device work, and none beyond the recording."""
    if window.iteration is not None:
        parts = [iterations, kernels, copies]
        window.low = min((int(f["start_ns"].min()) for f in parts if len(f)), default=window.low)
        window.high = max((int(f["end_ns"].max()) for f in parts if len(f)), default=window.high)
        return window
    root = nodes[nodes["parent_id"] < 0].iloc[0]
    window.low = max(window.low, int(root["start_ns"]))
    window.high = min(window.high, int(root["end_ns"]))
    return window


def _codes(values: pd.Series, members: Any) -> np.ndarray:
    """Texts of a column → numbers of an enumeration whose names they are."""
    number = {member.name.lower(): int(member) for member in members}
    return values.astype(object).str.lower().map(number).fillna(0).to_numpy(np.int64)


def _tree(results: Results, window: _Window, rows: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame,
          iterations: pd.DataFrame) -> tuple[Tree, pd.DataFrame]:  # fmt: skip
    """The part as a tree, and its rows of the table ``nodes`` with what they hold in the part."""
    rows = rows.sort_values("node_id", kind="stable").reset_index(drop=True)
    position = pd.Series(np.arange(len(rows)), index=rows["node_id"].to_numpy())
    parent = position.reindex(rows["parent_id"]).fillna(-1).to_numpy(np.int64)
    folded, texts = pd.factorize(rows["folded_name"].astype(object))
    processes = pd.Index(pd.concat([frame["process_id"] for frame in (rows, kernels, copies)]).unique())
    processes = processes[processes >= 0]
    start = np.clip(rows["start_ns"].to_numpy(), window.low, window.high)
    nodes = pd.DataFrame({
        "parent_id": parent, "depth": rows["depth"].to_numpy(np.int64), "folded_id": folded.astype(np.int64),
        "level": _codes(rows["level"], Level).astype(np.int8), "kind": _codes(rows["span_kind"], NodeKind),
        "start_ns": start, "end_ns": np.maximum(np.clip(rows["end_ns"].to_numpy(), window.low, window.high), start),
        "thread_index": _threads(rows),
        "process_index": processes.get_indexer(pd.Index(rows["process_id"])),
        "is_inferred": rows["is_inferred"].to_numpy(bool), "confidence_ratio": rows["confidence_ratio"].to_numpy(float),
        "layer_key": rows["layer_index"].to_numpy(np.int64) - (rows["layer_index"].to_numpy() > 0),
    })  # fmt: skip
    activities, names = _activities(results, window, kernels, copies, position, processes)
    of_iteration = pd.Series(np.arange(len(iterations)), index=iterations["iteration_index"].to_numpy())
    at = of_iteration.reindex(activities["iteration_index"]).fillna(-1).to_numpy(np.int64)
    activities["iteration_index"] = at
    devices = window.of(results, "devices")
    devices = devices.assign(process_index=processes.get_indexer(pd.Index(devices["process_id"])))
    trace: Any = SimpleNamespace(
        devices=devices[devices["process_index"] >= 0].drop(columns=["capture_id"]).reset_index(drop=True),
        processes=pd.DataFrame({"process_id": processes.to_numpy()}),
    )
    ranks = _ranks(devices, activities)
    nodes["path_id"] = paths_per_rank(nodes, ranks)
    nodes = roll_up(nodes, activities)
    own = iterations.assign(process_index=processes.get_indexer(pd.Index(iterations["process_id"])))
    keys = _layer_texts(results, window)
    tree = Tree(trace, nodes, activities, names, own.reset_index(drop=True), keys,
                names=SimpleNamespace(folded_names=list(texts)), ranks=ranks)  # fmt: skip
    amounts = {column: nodes[column].to_numpy() for column in _OWN_AMOUNTS}
    amounts["busy_ns"] = np.where(nodes["gpu_count"].to_numpy() > 1, np.nan, amounts["busy_ns"])
    return tree, rows.assign(path_id=nodes["path_id"].to_numpy(), **amounts)


def _threads(rows: pd.DataFrame) -> np.ndarray:
    """A number for each thread of each process, −1 for nodes of none."""
    number = rows.groupby(["process_id", "thread_id"], sort=False).ngroup().to_numpy(np.int64)
    return np.where(rows["thread_id"].to_numpy() < 0, -1, number)


def _layer_texts(results: Results, window: _Window) -> pd.DataFrame:
    """layer_path by layer key (layer_index − 1)."""
    layers = window.of(results, "layers")
    known = layers[layers["layer_index"] > 0].drop_duplicates("layer_index").set_index("layer_index")["layer_path"]
    most = int(known.index.max()) if len(known) else 0
    paths = known.astype(object).reindex(range(1, most + 1)).fillna("")
    return pd.DataFrame({"layer_path": paths.to_numpy(object)})


def _activities(results: Results, window: _Window, kernels: pd.DataFrame, copies: pd.DataFrame, position: pd.Series,
                processes: pd.Index) -> tuple[pd.DataFrame, np.ndarray]:  # fmt: skip
    """Device work as a tree holds it, by start, and the texts of its names."""
    nodes = window.of(results, "nodes").set_index("node_id")
    memory = copies.assign(
        layer_node_id=nodes["layer_node_id"].reindex(copies["node_id"]).fillna(-1).to_numpy(np.int64)
    )
    way = nodes["span_kind"].astype(object).reindex(memory["layer_node_id"]).to_numpy(object)
    way = np.where(np.isin(way, _WAYS_OF_KINDS), way, "nesting")
    memory["layer_attribution"] = np.where(memory["layer_node_id"] >= 0, way, "none")
    # the table does not say it of copies: they count for the layer of the kernels of their range
    beside = window.of(results, "kernels").drop_duplicates("node_id").set_index("node_id")
    at = beside.index.get_indexer(pd.Index(memory["node_id"]))
    for column in ("layer_node_id", "layer_attribution"):
        known = beside[column].astype(object).to_numpy() if len(beside) else np.zeros(1, object)
        memory[column] = np.where(at >= 0, known[np.maximum(at, 0)], memory[column].astype(object))
    memory["layer_node_id"] = memory["layer_node_id"].astype(np.int64)
    both = pd.concat([kernels.assign(kind="kernel", bytes=0, direction="", memory_kind="").astype({"kind": object}),
                      memory.astype({"kind": object})], ignore_index=True)  # fmt: skip
    both = both.sort_values("start_ns", kind="stable", ignore_index=True)
    names, texts = pd.factorize(both["name"].astype(object))
    attribution = _codes(both["attribution"], Attribution)
    node = position.reindex(both["node_id"]).fillna(0).to_numpy(np.int64)
    devices = window.of(results, "devices")
    gpu_of = devices.drop_duplicates(["process_id", "device_id"]).set_index(["process_id", "device_id"])["gpu_index"]
    key = pd.MultiIndex.from_frame(both[["process_id", "device_id"]])
    gpu = gpu_of.reindex(key).to_numpy(float)
    directions = {text: number for number, text in reversed(list(enumerate(COPY_DIRECTIONS)))}
    memory_kinds = {kind.name.lower().replace("_", " "): int(kind) for kind in MemoryKind}
    frame = pd.DataFrame({
        "kind": _codes(both["kind"], ActivityKind), "node_id": node,
        "launch_node_id": np.where(attribution == int(Attribution.NO_LAUNCH), -1, node),
        "layer_node_id": position.reindex(both["layer_node_id"]).fillna(-1).to_numpy(np.int64),
        "attribution": attribution, "layer_attribution": _layer_ways(both["layer_attribution"]),
        "start_ns": both["start_ns"].to_numpy(np.int64), "end_ns": both["end_ns"].to_numpy(np.int64),
        "process_index": processes.get_indexer(pd.Index(both["process_id"])),
        "device_id": both["device_id"].to_numpy(np.int64),
        "gpu_index": np.where(np.isnan(gpu), both["device_id"].to_numpy(float), gpu).astype(np.int64),
        "name_id": names.astype(np.int64), "iteration_index": both["iteration_index"].fillna(-1).to_numpy(np.int64),
        "bytes": both["bytes"].fillna(0).to_numpy(np.int64),
        "copy_kind": both["direction"].astype(object).map(directions).fillna(0).to_numpy(np.int64),
        "memory_kind": both["memory_kind"].astype(object).map(memory_kinds).fillna(0).to_numpy(np.int64),
    })  # fmt: skip
    return frame, np.asarray(texts, object)


def _layer_ways(values: pd.Series) -> np.ndarray:
    number = {member.name.lower(): int(member) for member in LayerAttribution}
    return values.astype(object).map(number).fillna(int(LayerAttribution.NONE)).to_numpy(np.int64)


def _ranks(devices: pd.DataFrame, activities: pd.DataFrame) -> pd.DataFrame:
    """The ranks with work in the part."""
    working = devices[devices["process_index"].isin(activities["process_index"])].drop_duplicates("process_index")
    names = [f"rank {rank}" if rank >= 0 else f"process {process}"
             for rank, process in zip(working["rank"], working["process_id"])]  # fmt: skip
    frame = working[["process_index", "rank", "gpu_index"]].assign(name=np.array(names, object))
    return frame.sort_values(["rank", "gpu_index", "process_index"], ignore_index=True)


def _idle(results: Results, window: _Window, tree: Tree, nodes: pd.DataFrame) -> tuple[Idle, pd.DataFrame]:
    """The pieces of idle time in the part, cut at its ends, as the tree's and as rows of the table."""
    rows = window.of(results, "idle")
    inside = (rows["end_ns"] > window.low) & (rows["start_ns"] < window.high)
    if window.iteration is not None:
        inside &= rows["iteration_index"] == window.iteration
    numbers = np.unique(tree.activities["gpu_index"].to_numpy())
    inside &= rows["device_id"].isin(numbers)
    rows = rows[inside]
    rows = rows.assign(
        start_ns=np.maximum(rows["start_ns"], window.low), end_ns=np.minimum(rows["end_ns"], window.high)
    )
    texts = pd.concat([rows["call_name"].astype(object), rows["detail"].astype(object)])
    codes, strings = pd.factorize(texts.where(texts != ""))
    position = pd.Series(np.arange(len(nodes)), index=nodes["node_id"].to_numpy())
    place = position.reindex(rows["node_id"]).fillna(-1).to_numpy(np.int64)
    iterations = pd.Series(np.arange(len(tree.iterations)), index=tree.iterations["iteration_index"].to_numpy())
    layers = nodes["layer_index"].where(nodes["layer_index"] > 0).drop_duplicates().dropna()
    holder = pd.Series(layers.index, index=layers.to_numpy(np.int64))  # any node of the layer
    # what came before the device's first work of its execution or after its last was told apart in the whole
    of_gpu = tree.activities.groupby("gpu_index")
    first = of_gpu["start_ns"].min().reindex(rows["device_id"]).to_numpy(float)
    last = of_gpu["end_ns"].max().reindex(rows["device_id"]).to_numpy(float)
    leads, trails = _leads_and_trails(results, window)
    pieces = pd.DataFrame({
        "device": np.searchsorted(numbers, rows["device_id"].to_numpy()), "start_ns": rows["start_ns"].to_numpy(),
        "end_ns": rows["end_ns"].to_numpy(), "cause": CAUSES.get_indexer(pd.Index(rows["cause"].astype(object))),
        "call_id": codes[: len(rows)], "detail_id": codes[len(rows):], "node_id": place,
        "layer_node_id": holder.reindex(rows["layer_index"]).fillna(-1).to_numpy(np.int64),
        "iteration_index": iterations.reindex(rows["iteration_index"]).fillna(-1).to_numpy(np.int64),
        "previous_activity": np.where(rows["start_ns"].to_numpy() < first, leads, 0),
        "next_activity": np.where(rows["end_ns"].to_numpy() > last, trails, 0),
    })  # fmt: skip
    devices = pd.DataFrame({"device_id": numbers})
    return Idle(pieces, devices, np.asarray(strings, object)), rows


def _leads_and_trails(results: Results, window: _Window) -> tuple[int, int]:
    """−1 where the part begins the recording's device work, so that what came before is its lead-in; and where it ends
    it, so that what comes after is its lead-out."""
    work = [frame for name in ("kernels", "memory_operations") if len(frame := window.of(results, name))]
    begun = min([int(frame["start_ns"].min()) for frame in work], default=window.low)
    done = max([int(frame["end_ns"].max()) for frame in work], default=window.high)
    return (-1 if begun >= window.low else 0), (-1 if done <= window.high else 0)


def _capture(capture: pd.Series, tree: Tree) -> pd.DataFrame:
    """The row of ``captures`` with the amounts of the part; what the whole file held is unknown of it."""
    root = tree.nodes.iloc[0]
    busy = busy_per_gpu(tree) if len(tree.activities) else pd.Series([0])
    columns = ("kernel_count", "copy_count", "graph_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns")
    changed: dict[str, Any] = {column: int(root[column]) for column in columns}
    changed |= {
        "gpu_count": int(tree.activities["gpu_index"].nunique()),
        "busy_ns": float(busy.sum()) if len(busy) < 2 else np.nan,
        "duration_ns": int(root["end_ns"] - root["start_ns"]), "file_operation_count": -1,
    }  # fmt: skip
    known = {str(name): value for name, value in capture.items()}
    return pd.DataFrame([{**known, **changed, "execution_evidence": "", "layer_evidence": ""}])


def _said(window: _Window, iterations: pd.DataFrame) -> pd.DataFrame:
    """The row of the table ``part``."""
    said = f"{_stretch(window.low - window.origin, window.high - window.origin)} of the recording"
    if window.iteration is not None:
        warm = " (warm-up)" if bool(iterations["is_warmup"].iloc[0]) else ""
        count = window.iteration_count
        said = f"iteration {window.iteration} of {count} (0 … {count - 1}){warm}, {said}"
    return pd.DataFrame([{
        "capture_id": window.capture_id, "statement": said,
        "iteration_index": -1 if window.iteration is None else window.iteration,
        "start_ns": window.low, "end_ns": window.high,
    }])  # fmt: skip


def _stretch(low: int, high: int) -> str:
    """``1,251.62–1,256.16 ms``: both ends in the unit that suits the length."""
    scale, unit = next(((s, u) for most, s, u in _UNITS if high - low < most), (1_000_000_000, "s"))
    return f"{low / scale:,.2f}–{high / scale:,.2f} {unit}"


_UNITS = ((1_000_000, 1_000, "µs"), (10_000_000_000, 1_000_000, "ms"))
