"""A small `Analysis` built by hand, for tests of everything that reads results and nothing else.

Each capture: one warm-up and ``iterations`` model ranges on thread 101, each holding the layers given, each
layer launching its kernels on stream 7; then one copy per iteration, one kernel of the model itself (outside
the layers), one kernel launched by another thread outside every range, and one kernel without a launch row.
All columns of the core tables are there and add up.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import xsp_post.model.schemas as schemas
from xsp_post.arrays import statistics
from xsp_post.arrays.intervals import union_length
from xsp_post.base.findings import Finding, to_frame
from xsp_post.model.options import DEFAULTS
from xsp_post.model.results import Analysis
from xsp_post.model.tree import Tree
from xsp_post.replay.idle import Idle, IdleBlocks
from xsp_post.tables.captures import Captures
from xsp_post.tables.catalogue import OF_CAPTURE, OF_WORKLOAD
from xsp_post.tables.graph import Graph

# path, class, kernels as (name, duration in ns)
LAYERS: tuple[tuple[str, str, tuple[tuple[str, int], ...]], ...] = (
    ("conv1", "Conv2d", (("implicit_gemm_128x64", 100_000), ("bias_add", 10_000))),
    ("layer1.0.relu", "ReLU", (("vectorized_elementwise", 20_000),)),
    ("fc", "Linear", (("ampere_sgemm_32x32", 50_000),)),
)
PROCESS, MAIN_THREAD, OTHER_THREAD, STREAM = 100, 101, 102, 7
_DTYPES = {"int64": np.int64, "float64": np.float64, "bool": bool}


def small_analysis(
    *,
    levels: Sequence[str] = ("M", "M/L", "M/L/G"),
    layers: Sequence[tuple[str, str, Sequence[tuple[str, int]]]] = LAYERS,
    iterations: int = 2,
    batch_size: int = 8,
    overhead_ns: int = 40_000,
    workload_name: str = "small",
    gpu_name: str = "NVIDIA A100-SXM4-40GB",
    findings: Sequence[Finding] = (),
) -> Analysis:
    """An Analysis with one capture per level; each deeper level adds ``overhead_ns`` to an iteration."""
    rows: dict[str, list[dict]] = {name: [] for name in schemas.TABLES}
    for capture_id, level in enumerate(levels):
        _Capture(
            rows, capture_id, level, layers, iterations, batch_size, overhead_ns * capture_id, workload_name, gpu_name
        ).build()
    frames = {
        name: frame_of(name, rows[name])
        for name in (
            "captures",
            "iterations",
            "nodes",
            "layers",
            "kernels",
            "memory_operations",
            "kernel_metrics",
            "devices",
            "balance",
        )
    }
    frames["findings"] = to_frame(findings)
    return Analysis(frames, list(findings))


def frame_of(table: str, rows: Sequence[dict]) -> pd.DataFrame:
    """Rows as a frame with the table's columns and dtypes; what a row does not say is −1, '' or false."""
    columns = {}
    for column in schemas.TABLES[table].columns:
        blank = {"int64": -1, "float64": np.nan, "bool": False}.get(column.dtype, "")
        values = [row.get(column.name, blank) for row in rows]
        dtype = _DTYPES.get(column.dtype)
        columns[column.name] = pd.Series(values, dtype=dtype) if dtype else pd.Categorical(values)
    return pd.DataFrame(columns)


class _Capture:
    def __init__(self, rows, capture_id, level, layers, iterations, batch_size, overhead_ns, workload, gpu):
        self.rows, self.id, self.level = rows, capture_id, level
        self.layers, self.iterations, self.batch_size = layers, iterations, batch_size
        self.overhead_ns, self.workload, self.gpu = overhead_ns, workload, gpu
        self.has_layers, self.has_kernels = "L" in level, "G" in level
        self.nodes: list[dict] = []
        self.kernels: list[dict] = []
        self.copies: list[dict] = []
        self.host, self.device, self.correlation = 1_000_000_000, 1_000_000_000, 1
        self.node_base, self.kernel_base = len(rows["nodes"]), len(rows["kernels"])

    def build(self) -> None:
        root = self.open(None, "small.sqlite", "CAPTURE", "root")
        for k in range(self.iterations + 1):
            self.iteration(root, k)
        if self.has_kernels:
            self.strays(root)
        self.close(root)
        self.finish()

    def open(self, parent, name, level, kind, **values) -> dict:
        node = {
            "node_id": self.node_base + len(self.nodes),
            "capture_id": self.id,
            "level": level,
            "name": name,
            "parent_id": parent["node_id"] if parent else -1,
            "depth": parent["depth"] + 1 if parent else 0,
            "folded_name": name.split("#")[0],
            "process_id": PROCESS,
            "thread_id": MAIN_THREAD if kind == "push_pop" else -1,
            "span_kind": kind,
            "start_ns": self.host,
            "source_row_id": len(self.nodes) + 10 if kind == "push_pop" else -1,
            "dialect": "plain",
            "domain": "xsp" if kind == "push_pop" else "",
            "call_index": 0,
            **values,
        }
        node["path"] = (parent["path"] if parent else ()) + (node["folded_name"],)
        self.nodes.append(node)
        self.host += 1_000
        return node

    def close(self, node: dict) -> None:
        self.host += 1_000
        node["end_ns"] = self.host
        node["duration_ns"] = node["end_ns"] - node["start_ns"]

    def iteration(self, root: dict, k: int) -> None:
        warmup = k == 0
        index = k  # the warm-up is iteration 0 of the capture
        name = "warmup:forward#0" if warmup else f"model:forward#{k - 1}"
        self.host = max(self.host, self.device)
        model = self.open(root, name, "MODEL", "push_pop", iteration_index=index, dialect="xsp")
        self.device = max(self.device, self.host)
        self.host += self.overhead_ns
        for i, (path, layer_type, kernels) in enumerate(self.layers):
            node = model
            if self.has_layers:
                node = self.open(
                    model,
                    f"{path}:{layer_type}#0",
                    "LAYER",
                    "push_pop",
                    iteration_index=index,
                    layer_type=layer_type,
                    shape_text=f"[{self.batch_size},64]",
                    dialect="xsp",
                )
                node["layer_node_id"], node["layer_index"] = node["node_id"], i + 1
            for kernel_name, duration in kernels:
                self.launch(node, kernel_name, duration)
            if node is not model:
                self.close(node)
        self.launch(model, "reduce_kernel", 5_000)
        self.launch(model, "[CUDA memcpy DtoH]", 2_000, copy=True)
        if not self.has_kernels:  # nothing recorded the device: the host waits for it
            self.host += sum(d for _, _, ks in self.layers for _, d in ks)
        self.close(model)

    def launch(self, node, name, duration, *, copy=False, thread=MAIN_THREAD, attribution="nesting") -> None:
        if not self.has_kernels:
            self.host += 3_000
            return
        start = max(self.device, self.host + 4_000)
        self.device = start + duration
        row = {
            "capture_id": self.id,
            "node_id": node["node_id"],
            "iteration_index": node.get("iteration_index", -1),
            "name": name,
            "process_id": PROCESS,
            "device_id": 0,
            "stream_id": STREAM,
            "start_ns": start,
            "end_ns": self.device,
            "correlation_id": self.correlation,
            "launch_start_ns": self.host,
            "launch_end_ns": self.host + 3_000,
            "launch_thread_id": thread,
            "attribution": attribution,
        }
        self.correlation += 1
        self.host += 3_000
        if copy:
            self.copies.append({**row, "kind": "memcpy", "bytes": 4096})
            return
        layer = node.get("layer_node_id", -1)
        self.kernels.append(
            {
                **row,
                "layer_node_id": layer,
                "layer_index": node.get("layer_index", -1),
                "short_name": name,
                "duration_ns": duration,
                "queue_delay_ns": start - row["launch_start_ns"],
                "layer_attribution": "nesting" if layer >= 0 else "none",
                "graph_node_id": 0,
                "grid_x": 64,
                "grid_y": 1,
                "grid_z": 1,
                "block_x": 256,
                "block_y": 1,
                "block_z": 1,
                "registers_per_thread": 32,
                "static_shared_memory_bytes": 0,
                "dynamic_shared_memory_bytes": 0,
            }
        )

    def strays(self, root: dict) -> None:
        node = self.open(root, "[unattributed]", "CAPTURE", "unattributed")
        self.launch(node, "outside_every_range", 7_000, thread=OTHER_THREAD, attribution="none")
        self.close(node)
        node = self.open(root, "[no launch]", "CAPTURE", "no_launch")
        self.launch(node, "orphan_kernel", 3_000, attribution="no_launch")
        for name in ("launch_start_ns", "launch_end_ns", "launch_thread_id", "queue_delay_ns"):
            self.kernels[-1][name] = -1
        self.close(node)

    def finish(self) -> None:
        paths: dict[tuple, int] = {}
        operation_base = len(self.rows["memory_operations"])
        for i, kernel in enumerate(self.kernels):
            kernel["kernel_id"] = self.kernel_base + i
        for i, copy in enumerate(self.copies):
            copy["activity_id"] = operation_base + i
        by_id = {node["node_id"]: node for node in self.nodes}
        for node in self.nodes:
            node["path_id"] = paths.setdefault(node["path"], len(paths))
            children = [n for n in self.nodes if n["parent_id"] == node["node_id"]]
            node["self_ns"] = node["duration_ns"] - sum(n["duration_ns"] for n in children)

        def below(row: dict, node: dict) -> bool:
            at = by_id[row["node_id"]]
            while at["node_id"] != node["node_id"]:
                if at["parent_id"] < 0:
                    return False
                at = by_id[at["parent_id"]]
            return True

        for node in self.nodes:
            kernels = [k for k in self.kernels if below(k, node)]
            copies = [c for c in self.copies if below(c, node)]
            own = [k for k in kernels if k["node_id"] == node["node_id"]]
            everything = kernels + copies
            node.update(
                kernel_ns=sum(k["duration_ns"] for k in kernels),
                kernel_count=len(kernels),
                busy_ns=_union(everything),
                self_kernel_ns=sum(k["duration_ns"] for k in own),
                self_kernel_count=len(own),
                copy_ns=sum(c["end_ns"] - c["start_ns"] for c in copies),
                graph_ns=0,
                device_ns=sum(e["end_ns"] - e["start_ns"] for e in everything),
                memory_bytes=sum(c["bytes"] for c in copies),
                device_operation_count=len(everything),
                projected_start_ns=min((e["start_ns"] for e in everything), default=-1),
                projected_end_ns=max((e["end_ns"] for e in everything), default=-1),
            )
        self.rows["nodes"] += self.nodes
        self.rows["kernels"] += self.kernels
        self.rows["memory_operations"] += self.copies
        self.summaries()

    def summaries(self) -> None:
        root = self.nodes[0]
        self.rows["captures"].append(
            {
                "capture_id": self.id,
                "level": self.level,
                "collector": "nsys",
                "source_name": f"small_{self.id}.sqlite",
                "tool_version": "2025.3",
                "schema_version": "3.25.0",
                "workload_name": self.workload,
                "framework": "torch 2.8.0",
                "gpu_name": self.gpu,
                "batch_size": self.batch_size,
                "kernel_count": root["kernel_count"],
                "copy_count": len(self.copies),
                "graph_count": 0,
                **_pick(root, "device_ns", "kernel_ns", "copy_ns", "graph_ns"),
                "gpu_count": 1 if self.kernels else 0,
                "busy_ns": float(root["busy_ns"]),
                "duration_ns": root["duration_ns"],
                "level_rule": "domain xsp",
                "clock_offset_ns": 0,
                "process_count": 1,
                "is_partial": False,
            }
        )
        self.rows["devices"].append(
            {
                "capture_id": self.id,
                "process_id": PROCESS,
                "device_id": 0,
                "gpu_name": self.gpu,
                "sm_count": 108,
                "clock_hz": 1.41e9,
                "memory_bandwidth_bytes_per_s": 1.555e12,
                "memory_bytes": 40 * 2**30,
                "compute_capability": "8.0",
                "gpu_index": 0,
                "kernel_count": root["kernel_count"],
                "copy_count": len(self.copies),
                "graph_count": 0,
                **_pick(root, "device_ns", "kernel_ns", "copy_ns", "graph_ns", "busy_ns", "duration_ns"),
                "own_busy_ns": root["busy_ns"],
            }
        )
        for node in self.nodes:
            if node["level"] == "MODEL":
                end = max(node["end_ns"], node["projected_end_ns"])
                self.rows["iterations"].append(
                    {
                        **_pick(
                            node,
                            "capture_id",
                            "iteration_index",
                            "node_id",
                            "start_ns",
                            "end_ns",
                            "duration_ns",
                            "device_ns",
                            "kernel_ns",
                            "copy_ns",
                            "graph_ns",
                            "busy_ns",
                            "kernel_count",
                        ),
                        "phase": "forward",
                        "batch_size": self.batch_size,
                        "latency_ns": end - node["start_ns"],
                        "is_warmup": node["name"].startswith("warmup"),
                    }
                )
            elif node["level"] == "LAYER":
                projection = node["projected_end_ns"] - node["projected_start_ns"]
                latency = projection if node["kernel_count"] else node["duration_ns"]
                name = node["name"].split(":")[0]
                self.rows["layers"].append(
                    {
                        **_pick(
                            node,
                            "capture_id",
                            "iteration_index",
                            "layer_index",
                            "node_id",
                            "layer_type",
                            "shape_text",
                            "duration_ns",
                            "device_ns",
                            "kernel_ns",
                            "copy_ns",
                            "graph_ns",
                            "busy_ns",
                            "kernel_count",
                            "memory_bytes",
                        ),
                        "layer_path": name,
                        "layer_name": name,
                        "call_index": 0,
                        "call_count": 1,
                        "latency_ns": latency,
                        "projection_ns": projection if node["kernel_count"] else 0,
                        "latency_source": "projection" if node["kernel_count"] else "host",
                        "analytic_flop": 1e9,
                        "analytic_bytes": 1e7,
                    }
                )
        for question, column in (("launch", "attribution"), ("layer", "layer_attribution")):
            for way in sorted({k[column] for k in self.kernels}) + ["total"]:
                chosen = [k for k in self.kernels if way in (k[column], "total")]
                self.rows["balance"].append(
                    {
                        "capture_id": self.id,
                        "question": question,
                        "attribution": way,
                        **{f"{part}_count": len(chosen) for part in ("operation", "kernel")},
                        **{f"{part}_ns": sum(k["duration_ns"] for k in chosen) for part in ("device", "kernel")},
                        **dict.fromkeys(("copy_count", "copy_ns", "graph_count", "graph_ns"), 0),
                        **dict.fromkeys(("self_operation_count", "self_device_ns"), 0),
                        **dict.fromkeys(("self_kernel_count", "self_kernel_ns"), 0),
                    }
                )


def _pick(row: dict, *names: str) -> dict:
    return {name: row[name] for name in names}


def _union(rows: list[dict]) -> int:
    start = np.array([r["start_ns"] for r in rows], np.int64)
    end = np.array([r["end_ns"] for r in rows], np.int64)
    return int(union_length(start, end)) if len(rows) else 0


@dataclass(frozen=True)
class Called:
    """What a command printed and how it ended."""

    stdout: str
    stderr: str
    returncode: int


def called(
    *words: object, columns: int | str = 160, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Called:
    """``xsp-post`` with these words in this process: a tenth of the time of a process of its own."""
    from typer.testing import CliRunner

    from xsp_post.base.errors import XspPostError
    from xsp_post.commands import application

    before = os.getcwd()
    os.chdir(cwd or before)
    environment = {"COLUMNS": str(columns), "XSP_NSYS": "", **(env or {})}
    try:
        done = CliRunner().invoke(application.app, [str(word) for word in words], env=environment)
    finally:
        os.chdir(before)
    if isinstance(done.exception, XspPostError):
        said = io.StringIO()
        with redirect_stderr(said):
            application._complain(done.exception)
        return Called(done.stdout, done.stderr + said.getvalue(), done.exception.exit_code)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Called(done.stdout, done.stderr, done.exit_code)


def core_tables(tree: Tree) -> Analysis:
    """The core tables of a capture whose tree is made."""
    capture = Graph(Analysis({}), OF_CAPTURE, {"tree": tree})
    found = [*tree.findings, *(capture.complete() and capture.raised())]
    made = Graph(Captures([capture]), (), {}).complete()
    return Analysis(made.frames | {"findings": to_frame(replace(one, capture_id=0) for one in found)}, found)


def reconciled(analysis: Analysis) -> Analysis:
    """The analysis with its table ``overhead`` and what comparing its captures found."""
    before = Analysis(analysis.frames | {"findings": to_frame(analysis.findings)})
    graph = Graph(before, OF_WORKLOAD, {"options": DEFAULTS})
    frames = {**analysis.frames, "overhead": graph.frame("overhead"), "findings": graph.found()}
    return Analysis(frames, [*analysis.findings, *graph.raised()])


def compare_samples(base, other, trim_ratio: float = statistics.TRIM_RATIO) -> pd.Series:
    """The row of `compare_summaries` of two samples: Yuen's test; ``trim_ratio=0`` is Welch's."""
    groups = np.repeat([0, 1], [np.size(base), np.size(other)])
    values = np.concatenate((np.ravel(base), np.ravel(other))).astype(np.float64)
    summary = statistics.summarise_groups(values, groups, 2, trim_ratio)
    return statistics.compare_summaries(summary.iloc[[0]], summary.iloc[[1]]).iloc[0]


def explain_idle(tree: Tree) -> Idle:
    """Every gap of every device, cut by cause."""
    blocks = IdleBlocks(tree)
    return Idle(pd.concat(list(blocks.blocks()), ignore_index=True), blocks.devices, blocks.strings)


def by_row(value: Any) -> Any:
    """An assistant's answer with its records as dictionaries again: what is left out of a record is None."""
    if isinstance(value, dict) and value.keys() == {"columns", "rows"}:
        return [dict(zip(value["columns"], map(by_row, row))) for row in value["rows"]]
    if isinstance(value, dict):
        return {key: by_row(one) for key, one in value.items()}
    return [by_row(one) for one in value] if isinstance(value, list) else value


def lever(code: str) -> str:
    """The change that a remedy is about: to find out what the host does, and to move it, are one."""
    return code.removeprefix("find-")
