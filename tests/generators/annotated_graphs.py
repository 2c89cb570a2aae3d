"""Generated PyTorch traces of an engine that replays annotated CUDA graphs, with known truth.

Built by public documentation and source only (torch.cuda.graph_annotations, torch.profiler of 2.12 to 2.16): no such
recording was at hand. A model of equal layers is captured once per batch size; each replay runs its nodes on two
streams, collectives on the second, with the edges that the capture gave them. What stands in the trace, and what in
files beside it, depends on the form:

    spread   each annotation's keys stand among the arguments of a kernel, values as text
    listed   nested annotations stand as one JSON list under ``annotation``
    lanes    spread, and the work was moved to lanes: ``stream`` is the lane, ``original_stream`` where it ran
    pickle   node id → list of one dict of merged scopes, in a file beside the trace
    nested   node id → list of several dicts, outer first, in a file beside the trace
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generators.graph_traces import DEVICE, Recording

FORMS = ("spread", "listed", "lanes", "pickle", "nested")
SIDE_STREAM, LANE = 15, 60
FIRST_ARROW = 1 << 40
METRICS = {"SM Active (%)": 62.5, "DRAM BW (%)": 40.0, "SM Clock (MHz)": 1500.0, "Power (W)": 512.0}


@dataclass
class Node:
    """A node of a captured graph."""

    kernel: str  # '': a record of an event, which is no work
    scopes: list[str]  # annotations, outer first
    place: str  # file:line of the launch
    duration: float
    stream: int = 7
    after: list[int] = field(default_factory=list)  # nodes that it waits for
    count: int = 0  # elements of a collective's message

    @property
    def module(self) -> str:
        return self.scopes[-1] if self.scopes else ""


@dataclass
class Run:
    """A written trace, and what is true of it. Kernels: in the order of their starts."""

    trace: Path
    modules: list[str]
    places: list[str]
    durations: list[float]
    streams: list[int]
    edges: set[tuple[int, int]]  # between kernels, by node id
    messages: list[int]  # bytes of each collective
    layer_count: int


class Engine:
    """One engine; equal seeds give equal files."""

    def __init__(self, seed: int, form: str) -> None:
        self.random, self.form = random.Random(seed), form
        self.layer_count = self.random.randint(3, 6)
        self.prefix = self.random.choice(["model.layers", "layers", "transformer.h", "decoder.blocks"])
        self.ranks = self.random.choice([2, 4, 8])
        self.graphs = {size: self._captured(size) for size in sorted(self.random.sample([1, 8, 32, 64], 2))}
        self.made, self.number, self.rows = Recording(), 0, []
        self.texts: dict[int, list[dict[str, Any]]] = {}
        self.stacks: dict[str, str] = {}

    # ------------------------------------------------------------ what was captured

    def _captured(self, size: int) -> list[Node]:
        nodes = [Node("embedding_kernel", ["embed"], "model.py:20", self._time(4))]
        if self.random.random() < 0.5:
            nodes[0].scopes = []  # work outside every scope
        for number in range(self.layer_count):
            layer = f"{self.prefix}.{number}"
            self._layer(nodes, layer, size)
        nodes.append(Node("rms_norm_kernel", ["norm"], "model.py:31", self._time(3), after=[len(nodes) - 1]))
        nodes.append(Node("nvjet_hsh_128x256", ["lm_head"], "model.py:32", self._time(30), after=[len(nodes) - 1]))
        return nodes

    def _layer(self, nodes: list[Node], layer: str, size: int) -> None:
        """Attention and MLP, each with a collective on another stream, which an event orders behind its product."""
        parts = (
            ("self_attn", ("rms_norm_kernel", "nvjet_hsh_64x64", "flash_fwd_kernel", "nvjet_hsh_64x64"), 40),
            ("mlp", ("rms_norm_kernel", "nvjet_hsh_128x256", "silu_and_mul_kernel", "nvjet_hsh_128x256"), 60),
        )
        for part, kernels, base in parts:
            for k, name in enumerate(kernels):
                inner = [layer, f"{layer}.{part}"] if k else [layer]
                nodes.append(
                    Node(name, inner, f"{part}.py:{k + 10}", self._time(base if k % 2 else 4), after=[len(nodes) - 1])
                )
            nodes.append(Node("", [], "", 0.0, after=[len(nodes) - 1]))
            nodes.append(Node("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", [layer, f"{layer}.{part}"], "comm.py:8",
                              self._time(12), SIDE_STREAM, [len(nodes) - 1], size * 4096))  # fmt: skip

    def _time(self, base: float) -> float:
        return round(base * self.random.uniform(0.8, 1.3), 3)

    # ------------------------------------------------------------ what runs

    def replay(self, size: int) -> None:
        nodes, graph = self.graphs[size], 100 + size
        since, correlation = self.made.at, self.made.call("cudaGraphLaunch")
        begin, free, ends = max(self.made.at, self.made.device_at), {}, []
        for number, node in enumerate(nodes):
            ready = max([free.get(node.stream, begin), *(ends[one] for one in node.after)])
            start = round(ready + (1.2 if node.kernel else 0.2), 3)
            free[node.stream] = round(start + node.duration, 3)
            ends.append(free[node.stream])
            self._write(graph, number, node, start, correlation)
            for one in node.after:
                self._arrow(self._lane(nodes[one]), ends[one], self._lane(node), start)
        self.made.device_at = max(ends) + 1
        self.made.at = max(self.made.at, self.made.device_at)
        self.made.around("user_annotation", f"execute_{size}_context_0(sq0sk0)_generation_{size}(sq{size}sk9)", since)

    def _lane(self, node: Node) -> int:
        return LANE + (node.stream == SIDE_STREAM) if self.form == "lanes" else node.stream

    def _write(self, graph: int, number: int, node: Node, start: float, correlation: int) -> None:
        ids = {"correlation": correlation, "graph id": graph, "graph node id": number + 1}
        category, name = ("kernel", node.kernel) if node.kernel else ("graph_event_node", "EventRecord")
        event = self.made.add(category, name, start, start + node.duration, pid=DEVICE)
        event["tid"] = self._lane(node)
        event["args"] = {"device": DEVICE, "context": 1, "stream": event["tid"], **ids}
        if not node.kernel:
            return
        if self.form == "lanes":
            event["args"]["original_stream"] = node.stream
        said = [{"name": scope} for scope in node.scopes]
        if node.count:
            said.append({"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": node.count,
                         "Out msg nelems": node.count, "Group size": self.ranks, "Process Group Name": "3",
                         "Process Group Description": "tp"})  # fmt: skip
        merged = {key: value for one in said for key, value in one.items()}
        if self.form in ("spread", "lanes"):
            event["args"] |= {key: str(value) for key, value in merged.items()}
        elif self.form == "listed" and said:
            event["args"]["annotation"] = json.dumps(said)
        elif said:
            self.texts[graph << 32 | number + 1] = said if self.form == "nested" else [merged]
        self.stacks[str(graph << 32 | number + 1)] = f"/home/someone/{node.place}:forward\n/home/someone/run.py:3:main"
        self.rows.append((start, graph << 32 | number + 1, node))

    def _arrow(self, lane: int, at: float, to_lane: int, start: float) -> None:
        self.number += 1
        usual = {"id": FIRST_ARROW + self.number, "pid": DEVICE, "cat": "ac2g", "name": "ac2g"}
        self.made.events += [
            {"ph": "s", "tid": lane, "ts": at, **usual},
            {"ph": "f", "tid": to_lane, "ts": start, **usual, "bp": "e"},
        ]

    def counters(self) -> None:
        """A sample of each metric every 20 µs, from before the first kernel to behind the last."""
        at = 900.0
        while at < self.made.device_at + 100:
            for name, value in {**METRICS, "Cycles (Current Kernel)": 7}.items():
                self.made.events.append(
                    {"ph": "C", "name": name, "pid": f"GPU {DEVICE} Counters", "ts": at, "args": {"": value}}
                )
            at += 20.0

    def write(self, folder: Path, sizes: list[int] | None = None) -> Run:
        """Replays of the sizes (default: eight of those captured), and the files of the form."""
        for size in sizes or self.random.choices(list(self.graphs), k=8):
            self.replay(size)
        self.counters()
        trace = self.made.write(folder / "run.pt.trace.json.gz")
        if self.texts:
            (folder / "run.annotations.pkl").write_bytes(pickle.dumps(self.texts))
        (folder / "run.stacks.json.gz").write_bytes(gzip.compress(json.dumps(self.stacks).encode()))
        self.rows.sort(key=lambda row: row[0])
        nodes = [node for _, _, node in self.rows]
        ran = {number >> 32 for _, number, _ in self.rows}
        edges = {pair for size, graph in self.graphs.items() if 100 + size in ran for pair in _edges(100 + size, graph)}
        return Run(
            trace, [one.module for one in nodes], [one.place for one in nodes], [one.duration for one in nodes],
            [one.stream for one in nodes], edges, [2 * one.count for one in nodes if one.count], self.layer_count,
        )  # fmt: skip


def _edges(graph: int, nodes: list[Node]) -> set[tuple[int, int]]:
    """Edges between kernels, by node id; over nodes that are no work."""
    found = set()
    for number, node in enumerate(nodes):
        before = list(node.after) if node.kernel else []
        while before:
            one = before.pop()
            if nodes[one].kernel:
                found.add((graph << 32 | one + 1, graph << 32 | number + 1))
            else:
                before += nodes[one].after
    return found
