"""A host with threads, a GPU with streams: runs a program written as Python and keeps what a profiler would write.

Every device operation carries labels (`Thread.mark`): which execution and which block it is of. Times are in ns.
Written apart from `recorder` and `simulator`: no code and no assumption is shared with them or with the package.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from builders import ExportBuilder

NONE, NOT_JUDGED = -1, -2
LATENCY, GAP, QUEUE = 4_500, 1_100, 1_000  # launch to start and kernel to kernel (ns); operations a stream may hold
US = 1_000


@dataclass
class Edit:
    """A change of the program or the machine. Factors on durations; ``only``: of kernels whose name holds this."""

    kernel: float = 1.0
    only: str = ""
    launch: float = 1.0
    host: float = 1.0
    copy: float = 1.0
    sync: bool = True
    flags: frozenset[str] = frozenset()


@dataclass
class Machine:
    """One process. ``jitter``: relative spread of every duration."""

    rng: Random
    pid: int = 4_000
    edit: Edit = field(default_factory=Edit)
    jitter: float = 0.05
    launch_us: float = 4.0
    device: int = 0
    launch_name: str = "cudaLaunchKernel_v7000"
    program: str = "python3"  # the file that runs

    def __post_init__(self) -> None:
        self.ranges: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.work: list[dict[str, Any]] = []
        self.os_calls: list[tuple[str, int, int, int]] = []
        self.labels: dict[str, int] = {}
        self.free: dict[int, int] = defaultdict(int)
        self.queues: dict[int, deque[int]] = defaultdict(deque)
        self.correlation, self.groups = 0, 1_000_000 * self.pid
        self.threads: dict[int, Thread] = {}

    def spread(self, ns: float) -> int:
        """A duration with this machine's jitter."""
        return max(200, int(ns * self.rng.lognormvariate(0, self.jitter)))

    def group(self) -> int:
        """A number that no group has yet."""
        self.groups += 1
        return self.groups

    def thread(self, tid: int = 0, now: int = 1_000_000, name: str = "") -> Thread:
        return self.threads.setdefault(tid, Thread(self, self.pid + tid, now, name))

    def busy_until(self) -> int:
        return max(self.free.values(), default=0)


@dataclass
class Thread:
    """A thread of the program: its own time runs on with what it does."""

    m: Machine
    tid: int
    now: int
    name: str = ""

    @contextmanager
    def range(self, text: str, kind: str = "nvtx", cost: float = 0.3, **args: Any) -> Iterator[None]:
        """A range; ``kind``: nvtx, or the category of a PyTorch event. ``cost``: µs to open it and to close it."""
        row = {"text": text, "start": self.now, "end": None, "tid": self.tid, "kind": kind, "args": args}
        self.m.ranges.append(row)
        self.host(cost)
        yield
        self.host(cost)
        row["end"] = self.now
        self.now += 40

    @contextmanager
    def mark(self, **labels: int) -> Iterator[None]:
        """What is launched inside belongs to these groups."""
        before = dict(self.m.labels)
        self.m.labels.update(labels)
        yield
        self.m.labels = before

    @contextmanager
    def all(self, *managers: Any) -> Iterator[None]:
        with ExitStack() as stack:
            for one in managers:
                stack.enter_context(one)
            yield

    def host(self, us: float) -> None:
        """The thread computes (not where a graph was captured: flag ``graph``)."""
        if us:
            ns = int(self.m.spread(us * US) * self.m.edit.host)
            self.now += 0 if "graph" in self.m.edit.flags and us < 200 else ns

    freed: int = 0  # when it last returned from a wait for the device

    def wait_until(self, at: int) -> None:
        self.now = max(self.now, at)

    def call(self, name: str, us: float) -> int:
        """An API call; its correlation id."""
        self.m.correlation += 1
        start = self.now
        self.now += self.m.spread(us * US)
        self.m.calls.append(
            {"name": name, "start": start, "end": self.now, "tid": self.tid, "correlation": self.m.correlation}
        )
        return self.m.correlation

    def launch(
        self, name: str, us: float, *, stream: int = 7, grid: int = 216, block: int = 256, after: int = 0,
        pause: float = 0, **more: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """A kernel. ``after``: it may not start before (ns); ``pause``: µs that its code takes to load."""
        edit, m = self.m.edit, self.m
        queue = m.queues[stream]
        if len(queue) >= QUEUE:
            self.wait_until(queue.popleft())
        start = self.now
        correlation = self.call(m.launch_name, m.launch_us * edit.launch + pause)
        if "graph" in edit.flags and queue and queue[-1] > self.freed:  # one launch for what follows a wait
            self.now = start
        factor = edit.kernel if edit.only in name else 1.0
        row = self._run("kernel", name, m.spread(us * US) * factor, start, correlation, stream, after)
        row.update(grid=grid, block=block, **more)
        return row

    def _run(
        self, kind: str, name: str, ns: float, start: int, correlation: int, stream: int, after: int = 0
    ) -> dict[str, Any]:
        m = self.m
        ready = max(self.now - 200, start + m.spread(LATENCY), m.free[stream] + m.spread(GAP), after)
        end = ready + max(600, int(ns))
        m.free[stream] = end
        m.queues[stream].append(ready)
        row = {
            "kind": kind, "name": name, "start": ready, "end": end, "stream": stream, "correlation": correlation,
            "tid": self.tid, "labels": dict(m.labels), "pid": m.pid, "device": m.device,
        }  # fmt: skip
        m.work.append(row)
        return row

    def copy(
        self, size: int, kind: str = "HtoD", *, pageable: bool = True, stream: int = 7, gbps: float = 0, after: int = 0
    ) -> dict[str, Any]:
        """A copy of ``size`` bytes; a pageable one holds the thread until it is done."""
        m = self.m
        rate = gbps or (6 if pageable else 24) if kind != "DtoD" else 900
        start = self.now
        correlation = self.call("cudaMemcpyAsync_v3020", 5.0)
        ns = m.spread(1_500 + size / rate) * m.edit.copy
        row = self._run("memcpy", kind, ns, start, correlation, stream, after)
        row.update(bytes=size, pageable=pageable)
        if pageable and kind in ("HtoD", "DtoH"):
            self._stretch(row["end"])
        return row

    def _stretch(self, until: int) -> None:
        """The last call lasts until then (with the flag ``nosync`` no call waits)."""
        if "nosync" in self.m.edit.flags:
            return
        self.wait_until(until + 1_500)
        self.m.calls[-1]["end"] = self.freed = self.now

    def memset(self, size: int, stream: int = 7) -> None:
        start = self.now
        correlation = self.call("cudaMemsetAsync_v3020", 3.0)
        self._run("memset", "memset", self.m.spread(1_000 + size / 900), start, correlation, stream)["bytes"] = size

    def sync(self, stream: int | None = None, name: str = "") -> None:
        """Wait for a stream, or for the device."""
        until = self.m.free[stream] if stream is not None else self.m.busy_until()
        if not self.m.edit.sync:
            return
        self.call(name or ("cudaDeviceSynchronize_v3020" if stream is None else "cudaStreamSynchronize_v3020"), 1.5)
        self._stretch(until)
        self.m.calls[-1]["is_sync"] = True

    def item(self, stream: int = 7) -> None:
        """What ``tensor.item()`` does: a copy of a few bytes and a wait."""
        if self.m.edit.sync:
            self.copy(4, "DtoH", stream=stream)
            self.sync(stream)

    def graph(self, nodes: list[tuple[str, float]], *, stream: int = 7, first_us: float = 12, opaque: bool = False,
              node_base: int = 0, marks: list[dict[str, int]] | None = None) -> None:  # fmt: skip
        """A launch of a CUDA graph whose nodes run one after another; ``marks``: labels of each node."""
        start = self.now
        correlation = self.call("cudaGraphLaunch_v10000", (first_us + 0.005 * len(nodes)) * self.m.edit.launch)
        if opaque:
            row = self._run(
                "graph", "graph", sum(self.m.spread(us * US) for _, us in nodes), start, correlation, stream
            )
            row["graph_id"] = node_base >> 32
            return
        for number, (name, us) in enumerate(nodes):
            factor = self.m.edit.kernel if self.m.edit.only in name else 1.0
            row = self._run("kernel", name, self.m.spread(us * US) * factor, start, correlation, stream)
            row.update(grid=216, block=256, graph_node=node_base + number + 1)
            row["labels"].update(marks[number] if marks else {})


@dataclass
class Program:
    """A recording and the truth about it. ``executions``, ``layers``: the labels that are accepted as an answer
    (one of them); none: nothing repeats (executions) or not judged (layers). ``warmups``: executions that are.
    ``may_be_nothing``: questions that "nothing" answers, too."""

    family: str
    machines: list[Machine]
    executions: list[str]
    layers: list[str] = field(default_factory=list)
    warmups: set[int] = field(default_factory=set)
    is_kineto: bool = False
    about: str = ""
    is_noise: bool = False
    may_be_nothing: tuple[str, ...] = ()


def kernels_of(file: str) -> dict[str, list[tuple[str, float]]]:
    """Blocks of kernels, name and µs, as a file of this folder lists them."""
    blocks: dict[str, list[tuple[str, float]]] = {}
    for line in (Path(__file__).parent / file).read_text("utf-8").splitlines():
        if line.startswith("["):
            block = blocks.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            us, name = line.split(" ", 1)
            block.append((name, float(us)))
    return blocks


def numbered(kernels: list[tuple[str, float]], **numbers: int) -> list[tuple[str, float]]:
    """The kernels with numbers in their names (``triton_poi_fused_{a}``), as a compiler gives each its own."""
    result = []
    for name, us in kernels:
        for key, value in numbers.items():
            name = name.replace("{" + key + "}", str(value))
        result.append((name, us))
    return result


def cut(program: Program, first: float, last: float) -> None:
    """Keep a window of the recording, as a delayed or stopped profiler does.

    Kernels launched before it are not recorded, ranges opened before it neither. What is cut through is not judged.
    """
    for m in program.machines:
        called = {row["correlation"]: row["start"] for row in m.calls}
        low, high = min(called.values()), max(called.values())
        a, b = (low + first * (high - low) if first else 0), low + last * (high - low)
        half = [(row["tid"], row["start"], row["end"]) for row in m.ranges if row["start"] < a < row["end"]]
        kept, gone = [], []
        for row in m.work:
            at = called[row["correlation"]]
            lost = any(start <= at <= end for tid, start, end in half if tid == row["tid"])
            is_whole = at >= a and row["end"] <= b
            (kept if is_whole else gone).append(row)
            if is_whole and lost:
                gone.append(row)
        for label in {*program.executions, *program.layers}:
            lost_groups = {row["labels"].get(label, NONE) for row in gone} - {NONE}
            for row in kept:
                if row["labels"].get(label, NONE) in lost_groups:
                    row["labels"][label] = NOT_JUDGED
        m.work = kept
        m.calls = [row for row in m.calls if a <= row["start"] and row["end"] <= b]
        m.ranges = [row for row in m.ranges if a <= row["start"] <= b]
        for row in m.ranges:
            if row["end"] is not None and row["end"] > b:
                row["end"] = None


def lose(program: Program, rng: Random, kernels: float, launches: float) -> None:
    """Rows that the profiler lost: kernels, or the calls that launched them (such kernels are not judged)."""
    for m in program.machines:
        m.work = [row for row in m.work if rng.random() >= kernels]
        orphans = {row["correlation"] for row in m.work if "graph_node" not in row and rng.random() < launches}
        m.calls = [row for row in m.calls if row["correlation"] not in orphans]
        for row in m.work:
            if row["correlation"] in orphans:
                row["labels"] |= dict.fromkeys([*program.executions, *program.layers], NOT_JUDGED)


def write(program: Program, path: Path) -> Path:
    """The recording as a file: an nsys export, or a PyTorch trace."""
    return write_kineto(program, path) if program.is_kineto else write_nsys(program, path)


def write_nsys(program: Program, path: Path, schema: str = "3.25.0") -> Path:
    builder = ExportBuilder(schema)
    for m in program.machines:
        builder.process(m.pid, getattr(m, "program", "python3"))
        builder.gpu(m.device)
        for thread in m.threads.values():
            builder.thread(thread.tid, thread.name)
        for row in sorted(m.ranges, key=lambda row: row["start"]):
            builder.thread(row["tid"]).range(
                row["text"], row["start"], row["end"], domain=row["args"].get("domain", "")
            )
        for row in sorted(m.calls, key=lambda row: row["start"]):
            builder.thread(row["tid"])
            if row.get("is_sync"):
                builder._correlations[m.pid] = row["correlation"] - 1
                builder.sync(row["name"], row["start"], row["end"], device=m.device)
            else:
                builder.api(row["name"], row["start"], row["end"], correlation=row["correlation"])
        for name, start, end, tid in m.os_calls:  # no name: another thread had the processor
            builder.thread(tid).os_call(name, start, end) if name else builder.thread(tid).descheduled(start, end)
        for row in m.work:
            where = {"run": (row["start"], row["end"]), "stream": row["stream"], "device": m.device}
            where["correlation"] = row["correlation"]
            if row["kind"] == "kernel":
                short = row["name"].split("<")[0].split("(")[0].replace("void ", "").split("::")[-1]
                builder.kernel(
                    row["name"], short=short, grid=(row["grid"], 1, 1), block=(row["block"], 1, 1),
                    graph_node=row.get("graph_node"), **where,
                )  # fmt: skip
            elif row["kind"] == "memcpy":
                memory = {"srcKind": 0 if row.get("pageable") else 1, "dstKind": 2} if row["name"] == "HtoD" else {}
                builder.memcpy(row["bytes"], kind=row["name"], **where, **memory)
            elif row["kind"] == "memset":
                builder.memset(row["bytes"], **where)
            else:
                builder._activity(
                    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", where["run"], None, row["correlation"], "", 0,
                    {"graphId": row["graph_id"], "graphExecId": row["graph_id"], "streamId": row["stream"],
                     "deviceId": m.device},
                )  # fmt: skip
    return builder.write(path.with_suffix(".sqlite"))


_COPIES = {
    "HtoD": "Memcpy HtoD ({} -> Device)",
    "DtoH": "Memcpy DtoH (Device -> {})",
    "DtoD": "Memcpy DtoD (Device -> Device)",
}


def write_kineto(program: Program, path: Path) -> Path:
    """A trace as torch.profiler writes it."""
    events: list[dict[str, Any]] = []
    last = max(row["end"] for m in program.machines for row in [*m.calls, *m.work])
    for m in program.machines:
        ids: dict[str, int] = {}
        for number, row in enumerate(sorted(m.ranges, key=lambda row: row["start"])):
            kind = "user_annotation" if row["kind"] == "nvtx" else row["kind"]
            args = {"External id": number + 1, **row["args"]}
            if kind == "python_function":
                args = {"Python id": number + 1, **row["args"]}
            events.append(_event(kind, row["text"], m.pid, row["tid"], row["start"], row["end"] or last, args))
        for row in m.calls:
            name = row["name"].split("_v")[0]
            kind = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
            args = {"correlation": row["correlation"], "cbid": 211}
            events.append(_event(kind, name, m.pid, row["tid"], row["start"], row["end"], args))
        for row in m.work:
            args = {"device": m.device, "context": 1, "stream": row["stream"], "correlation": row["correlation"]}
            name = row["name"]
            if row["kind"] == "kernel":
                args |= {"grid": [row["grid"], 1, 1], "block": [row["block"], 1, 1], "registers per thread": 64}
                if "graph_node" in row:
                    args |= {"graph node id": row["graph_node"] & 0xFFFFFFFF, "graph id": row["graph_node"] >> 32}
            else:
                args["bytes"] = row["bytes"]
                name = "Memset (Device)" if row["kind"] == "memset" else _COPIES[name].format(
                    "Pageable" if row.get("pageable") else "Pinned"
                )  # fmt: skip
            kind = row["kind"] if row["kind"] == "kernel" else f"gpu_{row['kind']}"
            events.append(_event(kind, name, m.device, row["stream"], row["start"], row["end"], args))
            ids[name] = 1
    document = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8,
             "computeMinor": 0, "numSms": 108}
        ],
        "baseTimeNanoseconds": 1_751_410_836_000_000_000,
        "traceEvents": events,
    }  # fmt: skip
    path = path.with_suffix(".pt.trace.json.gz")
    with gzip.open(path, "wt", compresslevel=1) as stream:
        json.dump(document, stream)
    return path


def _event(kind: str, name: str, pid: int, tid: int, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "ts": start / 1000, "dur": (end - start) / 1000,
        "args": args,
    }  # fmt: skip
