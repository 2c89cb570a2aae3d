"""A recording of a program that never ran: launches, device work and ranges as a profiler writes them (a `Trace`),
and for each kernel the model execution and the layer that it belongs to.

The clocks are those of a simple machine: each host thread and each stream has its own time, a launch takes some
microseconds, a stream runs its work in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.model.schemas.frames import TRACE_FRAMES, dtypes
from xsp_post.model.trace import ActivityKind, Provenance, SpanKind, Trace, typed_frame

NOTHING, NOT_JUDGED = -1, -2  # belongs to no execution or layer; any answer is accepted
MAIN, AUTOGRAD = 0, 1


@dataclass
class Faults:
    """What a recording lacks or holds besides. Shares of the kernels."""

    missing: float = 0.0  # the launch is there, the kernel is not
    orphan: float = 0.0  # the kernel is there, the launch is not
    extra: float = 0.0  # small kernels that do not come in every turn
    first_launch_ns: int = 0  # pause of the host where a kernel is launched for the first time
    stall: float = 0.0  # launches after which the host compiles, or collects garbage


@dataclass
class Truth:
    """What is right: for each activity the number of its execution and of its layer instance.

    ``executions`` and ``layers`` hold the accepted answers, each of shape (activities,), with `NOTHING` and
    `NOT_JUDGED`; no answers at all: nobody can tell, and the question is not judged. ``kind`` and ``is_warmup`` (None:
    not judged) are per number of execution in the first answer.
    """

    executions: list[np.ndarray]
    layers: list[np.ndarray]
    kind: list[str] = field(default_factory=list)
    is_warmup: list[bool | None] = field(default_factory=list)


@dataclass
class _Thread:
    process: int
    index: int
    now: int


class Recorder:
    """Writes one recording, call by call."""

    def __init__(self, rng: Random, *, kineto: bool = False, faults: Faults | None = None) -> None:
        self.rng, self.kineto, self.faults = rng, kineto, faults or Faults()
        self.strings: dict[str, int] = {}
        self.spans: list[tuple[Any, ...]] = []
        self.sequences: list[int] = []
        self.launches: list[tuple[Any, ...]] = []
        self.work: list[tuple[Any, ...]] = []
        self.truth: list[tuple[int, int, int, int]] = []  # execution, layer, part of it (1: backward), whether aside
        self.kinds: list[str] = []
        self.warmups: list[bool | None] = []
        self.threads: list[_Thread] = []
        self.thread_names: list[str] = []
        self.processes: list[tuple[int, str]] = []
        self.domains: list[str] = []
        self.graph_nodes: list[tuple[int, ...]] = []
        self.free: dict[tuple[int, int], int] = {}
        self.seen: set[str] = set()
        self.layer_count = self.correlation = self.graph_node = 0
        self.now_in = (NOTHING, NOT_JUDGED, 0)
        self.is_judged, self.is_aside, self.stream_shift = True, False, 0
        self.launch_ns, self.host_ns = rng.randint(2_500, 6_000), rng.randint(1_000, 12_000)
        self.process("python3")

    # -- where the next rows belong ------------------------------------------------------------------------

    def process(self, name: str, *, at: int | None = None) -> int:
        """A new process with its main thread, which is the current one from now on."""
        number = len(self.processes)
        self.processes.append((1000 + 137 * number, name))
        begin = 10_000_000 + self.rng.randint(0, 2_000_000) if at is None else at
        self.here = self.add_thread(number, begin)
        return number

    def add_thread(self, process: int, now: int, name: str = "") -> _Thread:
        """A thread of a process whose clock stands at that time."""
        self.threads.append(_Thread(process, len(self.threads), now))
        self.thread_names.append(name)
        return self.threads[-1]

    @contextmanager
    def on(self, thread: _Thread) -> Iterator[None]:
        """Another thread goes on while this one waits."""
        before, self.here = self.here, thread
        thread.now = max(thread.now, before.now + 5_000)
        yield
        before.now, self.here = max(before.now, thread.now + 3_000), before

    @property
    def now(self) -> int:
        """The time of the current thread."""
        return self.here.now

    def wait(self, ns: int) -> None:
        """The host does something else."""
        self.here.now += ns

    def synchronize(self) -> None:
        """The host waits for all streams of its process."""
        begin = self.here.now
        done = max((at for (process, _), at in self.free.items() if process == self.here.process), default=0)
        self.here.now = max(begin + 2_000, done + 4_000)
        self._call("cudaDeviceSynchronize", begin, self.here.now)

    # -- what is true --------------------------------------------------------------------------------------

    @contextmanager
    def execution(self, kind: str = "forward", *, is_warmup: bool = False) -> Iterator[int]:
        """What is launched inside is one model execution."""
        number, before = len(self.kinds), self.now_in
        self.kinds.append(kind)
        is_slow = not is_warmup and bool(self.faults.first_launch_ns) and len(self.seen) < 5
        self.warmups.append(None if is_slow else is_warmup)
        self.now_in = (number, before[1], before[2])
        yield number
        self.now_in = before

    @contextmanager
    def layer(self, number: int | None = None, part: int = 0) -> Iterator[int]:
        """What is launched inside belongs to one layer instance; ``number``: its forward pass is known."""
        before = self.now_in
        if number is None:
            number, self.layer_count = self.layer_count, self.layer_count + 1
        self.now_in = (before[0], number, part)
        yield number
        self.now_in = before

    @contextmanager
    def not_judged(self) -> Iterator[None]:
        """What is launched inside may be in any group."""
        before, self.is_judged = self.is_judged, False
        yield
        self.is_judged = before

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is launched inside stands beside the call of the model: an execution may leave it out."""
        before, self.is_aside = self.is_aside, True
        yield
        self.is_aside = before

    @contextmanager
    def labelled(self, execution: int | None = None, layer: int | None = None) -> Iterator[None]:
        """What is launched inside has these numbers."""
        before = self.now_in
        self.now_in = (before[0] if execution is None else execution, before[1] if layer is None else layer, before[2])
        yield
        self.now_in = before

    # -- rows ----------------------------------------------------------------------------------------------

    def text(self, text: str) -> int:
        """The number of a text."""
        return self.strings.setdefault(text, len(self.strings))

    @contextmanager
    def span(
        self, text: str, kind: SpanKind = SpanKind.PUSH_POP, *, sequence: int = -1, domain: str = "", spent: int = 600
    ) -> Iterator[None]:
        """A range around what is done inside; an empty text: none."""
        if not text:
            yield
            return
        thread, row = self.here, len(self.spans)
        self.spans.append(())
        self.sequences.append(sequence)
        begin = thread.now
        thread.now += spent
        yield
        thread.now += spent
        self.spans[row] = (
            int(kind), thread.index, thread.process, self._domain(domain), self.text(text), begin, thread.now, row,
            False, False, -1,
        )  # fmt: skip

    def _domain(self, name: str) -> int:
        if not name:
            return -1
        if name not in self.domains:
            self.domains.append(name)
        return self.domains.index(name)

    def _call(self, name: str, begin: int, end: int) -> int:
        self.correlation += 1
        self.launches.append((self.here.index, self.here.process, self.correlation, self.text(name), 0, begin, end))
        return self.correlation

    def kernel(self, name: str, ns: int, *, grid: int = 80, block: int = 128, stream: int = 7) -> None:
        """One launch and its kernel, as the faults say."""
        faults, rng, thread = self.faults, self.rng, self.here
        draw = rng.random()
        if name not in self.seen:
            self.seen.add(name)
            thread.now += faults.first_launch_ns
        begin = thread.now
        end = begin + self.launch_ns + int(rng.random() * 1_500)
        thread.now = end + int(self.host_ns * (0.6 + 0.8 * rng.random()))
        if faults.stall and rng.random() < faults.stall:
            thread.now += rng.randint(20_000_000, 160_000_000)
        is_orphan = draw < faults.orphan
        if is_orphan:
            self.correlation += 1
        else:
            self._call("cudaLaunchKernel", begin, end)
        if faults.orphan <= draw < faults.orphan + faults.missing:
            return
        truth = (NOT_JUDGED, NOT_JUDGED, 0) if is_orphan else self.now_in
        self.run(ActivityKind.KERNEL, name, end, ns, stream, grid=grid, block=block, truth=truth)
        if draw > 1 - faults.extra:
            self.kernel("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                        "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
                        1_400, grid=rng.choice((1, 2, 4)))  # fmt: skip

    def run(
        self, kind: ActivityKind, name: str, ready: int, ns: int, stream: int, *, grid: int = 0, block: int = 0,
        copy_kind: int = 0, bytes_: int = 0, node: int = 0, graph: int = 0, truth: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        """Device work of the last call."""
        stream += self.stream_shift
        key = (self.here.process, stream)
        begin = max(self.free.get(key, 0) + 700, ready + 1_800)
        end = begin + max(int(ns * (0.97 + 0.06 * self.rng.random())), 900)
        self.free[key] = end
        number = self.text(name) if name else -1
        self.work.append((int(kind), self.here.process, self.here.process, stream, self.correlation, number, number,
                          begin, end, bytes_, copy_kind, node, graph, 1, grid, 1, 1, block, 1, 1))  # fmt: skip
        truth = self.now_in if truth is None else truth
        self.truth.append((*(truth if self.is_judged else (NOT_JUDGED, NOT_JUDGED, 0)), int(self.is_aside)))

    def copy(self, bytes_: int, *, to_host: bool = False, stream: int = 7) -> None:
        """A copy between host and device."""
        begin = self.here.now
        self.here.now += 6_000
        self._call("cudaMemcpyAsync", begin, self.here.now)
        name = f"Memcpy {'DtoH (Device -> Pageable)' if to_host else 'HtoD (Pageable -> Device)'}"
        self.run(ActivityKind.MEMCPY, name if self.kineto else "", self.here.now, bytes_ // 12, stream,
                 copy_kind=2 if to_host else 1, bytes_=bytes_)  # fmt: skip

    def memset(self, bytes_: int, *, stream: int = 7) -> None:
        """A memset."""
        begin = self.here.now
        self.here.now += 4_000
        self._call("cudaMemsetAsync", begin, self.here.now)
        self.run(ActivityKind.MEMSET, "Memset (Device)" if self.kineto else "", self.here.now, 900, stream,
                 bytes_=bytes_)  # fmt: skip

    def graph_launch(self, graph: Graph, *, opaque: bool, stream: int = 7, first_layer: int | None = None) -> None:
        """A replay of a graph: its kernels, or one row for all."""
        begin = self.here.now
        self.here.now += 12_000
        self._call("cudaGraphLaunch", begin, self.here.now)
        if opaque:
            total = sum(ns + 700 for _, ns, _, _, _ in graph.nodes)
            self.run(ActivityKind.GRAPH, "", self.here.now, total, stream, graph=graph.number,
                     truth=(self.now_in[0], NOT_JUDGED, 0))  # fmt: skip
            return
        first_layer = self.layer_count if first_layer is None else first_layer
        for place, (name, ns, grid, block, layer) in enumerate(graph.nodes):
            truth = (self.now_in[0], NOT_JUDGED if layer < 0 else first_layer + layer, 0)
            self.layer_count = max(self.layer_count, truth[1] + 1)
            self.run(ActivityKind.KERNEL, name, self.here.now, ns, stream, grid=grid, block=block,
                     node=graph.first_node + place, graph=graph.number, truth=truth)  # fmt: skip

    def capture(self, graph: Graph, place: int) -> None:
        """A launch that makes a node of a graph, and no kernel."""
        begin = self.here.now
        self.here.now += self.launch_ns
        self._call("cudaLaunchKernel", begin, self.here.now)
        node = graph.first_node + place
        self.graph_nodes.append((node, 0, self.here.process, self.here.index, begin + 500))

    # -- the recording -------------------------------------------------------------------------------------

    def trace(self, name: str = "program") -> tuple[Trace, np.ndarray]:
        """The recording, and per activity (execution, layer, part, aside)."""
        order = sorted(range(len(self.work)), key=lambda k: self.work[k][7])
        span_order = sorted(range(len(self.spans)), key=lambda k: (self.spans[k][5], k))
        spans = _frame("spans", [self.spans[k] for k in span_order])
        spans["source_row_id"] = np.arange(len(spans))
        sequence = np.array([self.sequences[k] for k in span_order], np.int64)
        attributes = pd.DataFrame({"sequence": sequence}) if (sequence >= 0).any() and self.kineto else pd.DataFrame()
        source, collector = (f"{name}.pt.trace.json", "torch") if self.kineto else (f"{name}.sqlite", "nsys")
        trace = Trace(
            Provenance(source, collector),
            np.array(list(self.strings), object),
            spans,
            pd.DataFrame({
                "process_id": np.array([pid for pid, _ in self.processes], np.int64),
                "global_id": np.array([pid << 24 for pid, _ in self.processes], np.int64),
                "name": np.array([name for _, name in self.processes], object),
                "rank": np.full(len(self.processes), -1, np.int32),
            }),
            pd.DataFrame({
                "process_index": np.array([one.process for one in self.threads], np.int32),
                "thread_id": np.array([5000 + one.index for one in self.threads], np.int64),
                "name": np.array(self.thread_names, object),
            }),
            launches=_frame("launches", sorted(self.launches, key=lambda row: row[5])),
            activities=_frame("activities", [self.work[k] for k in order]),
            graph_nodes=_frame("graph_nodes", self.graph_nodes),
            domains=pd.DataFrame({"process_index": np.zeros(len(self.domains), np.int32),
                                  "name": np.array(self.domains, object)}),
            devices=pd.DataFrame({
                "process_index": np.arange(len(self.processes)), "device_id": np.arange(len(self.processes)),
                "gpu_index": np.arange(len(self.processes)),
                "gpu_name": np.full(len(self.processes), "NVIDIA A100-SXM4-80GB", object),
            }),
            attributes=attributes,
        )  # fmt: skip
        return trace, np.array([self.truth[k] for k in order], np.int64).reshape(len(order), 4)


@dataclass
class Graph:
    """A captured graph: name, length, grid, block and layer (−1 none) of each node."""

    number: int
    first_node: int
    nodes: list[tuple[str, int, int, int, int]]


_ACTIVITY_COLUMNS = (
    "kind", "process_index", "device_id", "stream_id", "correlation_id", "name_id", "short_name_id", "start_ns",
    "end_ns", "bytes", "copy_kind", "graph_node_id", "graph_id", "context_id", "grid_x", "grid_y", "grid_z", "block_x",
    "block_y", "block_z",
)  # fmt: skip


def _frame(name: str, rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Rows as a frame of a trace."""
    declared = dtypes(TRACE_FRAMES[name], with_optional=name == "activities")
    if not rows:
        return typed_frame(declared)
    names = _ACTIVITY_COLUMNS if name == "activities" else tuple(dtypes(TRACE_FRAMES[name]))
    integer = {"int": "int64", "bool": "bool"}
    table = np.array(rows, np.int64)
    return pd.DataFrame(
        {column: table[:, k].astype(integer.get(declared[column], declared[column])) for k, column in enumerate(names)}
    )
