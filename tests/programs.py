"""Small GPU programs that are really run, one call after another, and written as nsys exports: what a recording of
each would hold, and how long the same program takes after an edit.

The machine here is a plain loop over calls: it shares nothing with `xsp_post.replay`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from builders import ExportBuilder

LAUNCH_NS, LATENCY_NS, GAP_NS, RETURN_NS, STAGING_NS = 4_000, 2_000, 1_000, 6_000, 12_000


@dataclass(frozen=True)
class Op:
    """One host action: ``kernel``, ``copy`` (from pageable memory: blocks), ``sync``, ``stream_sync``, ``host``."""

    what: str
    ns: int = 0
    name: str = "kernel"
    stream: int = 7


@dataclass
class Machine:
    """Executes programs; what it did becomes an export."""

    queue_depth: int = 1 << 30
    copy_gap_ns: int = GAP_NS  # on the stream, before a copy
    now: int = 1_000_000
    free: dict[int, int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    export: ExportBuilder = field(default_factory=ExportBuilder)

    def execute(self, program: list[Op]) -> None:
        """Run it."""
        for op in program:
            getattr(self, op.what)(op)

    def host(self, op: Op) -> None:
        self.now += op.ns

    def kernel(self, op: Op) -> None:
        start, done = self.now, self.now + LAUNCH_NS
        if len(self.starts) >= self.queue_depth:
            done = max(done, self.starts[-self.queue_depth] + GAP_NS)
        begin = max(self.free.get(op.stream, 0) + GAP_NS, done + LATENCY_NS)
        self.starts.append(begin)
        self.free[op.stream] = begin + op.ns
        self.export.kernel(op.name, launch=(start, done), run=(begin, begin + op.ns), stream=op.stream)
        self.now = done

    def copy(self, op: Op) -> None:
        begin = max(self.free.get(op.stream, 0) + self.copy_gap_ns, self.now + STAGING_NS)
        end = begin + op.ns
        self.free[op.stream] = end
        done = end + RETURN_NS
        self.export.memcpy(op.ns, launch=(self.now, done), run=(begin, end), kind="DtoH", stream=op.stream)
        self.now = done

    def sync(self, op: Op) -> None:
        self._wait("cudaDeviceSynchronize_v3020", max([0, *self.free.values()]))

    def stream_sync(self, op: Op) -> None:
        self._wait("cudaStreamSynchronize_v3020", self.free.get(op.stream, 0))

    def _wait(self, name: str, until: int) -> None:
        done = max(self.now, until) + RETURN_NS
        self.export.api(name, self.now, done)
        self.now = done


def run_steps(
    step: list[Op], count: int, path, *, queue_depth: int = 1 << 30, copy_gap_ns: int = GAP_NS
) -> tuple[float, float]:
    """Run a step ``count`` times in ranges ``step`` and write the export; (median latency, median period) in ns.

    A period goes from a step's begin to the next one's.
    """
    machine = Machine(queue_depth, copy_gap_ns)
    machine.export.process(100).thread(100)
    times = []
    for number in range(count):
        begin = machine.now
        machine.now += 500
        machine.execute(step)
        machine.now += 500
        machine.export.range(f"step {number}", begin, machine.now)
        times.append((begin, max([machine.now, *machine.free.values()])))
        machine.now += 2_000
    machine.export.write(path)
    latencies = sorted(end - begin for begin, end in times)
    periods = sorted(b[0] - a[0] for a, b in pairwise(times))
    return latencies[len(latencies) // 2], periods[len(periods) // 2]


def scaled(step: list[Op], what: str, factor: float, name: str = "") -> list[Op]:
    """The step with the times of some of its actions scaled."""
    return [
        replace(op, ns=round(op.ns * factor)) if op.what == what and (not name or op.name == name) else op
        for op in step
    ]
