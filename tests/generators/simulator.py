"""Programs of host threads, streams and ranks that are run event by event, written as nsys exports, edited, run again.

The laboratory of `what-if`: nothing here is shared with `xsp_post.replay`. A host thread is a generator that the
machine resumes in the order of time. An operation of a device starts when its launch has arrived, its stream is free,
the events before it have happened and, of a collective, all ranks are there. Every time is drawn anew for every call,
so that two runs of one program differ as two recordings do.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from builders import ExportBuilder

MAIN = 7  # the stream of everything that names none
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"


@dataclass(frozen=True)
class Act:
    """One action of a host thread.

    ``what``: host (code), kernel, copy, memset, graph (``nodes`` in one call), collective, record and await_event
    (an event, by ``name``), sync (``mode``: device, stream or event ``name``), give and take (a token ``name``
    between threads). ``mode`` of a copy: async, pageable or blocking.
    """

    what: str
    ns: int = 0
    name: str = ""
    stream: int = MAIN
    mode: str = ""
    nodes: tuple[Act, ...] = ()


@dataclass(frozen=True)
class World:
    """What calls and the device take, ns; ``spread``: of the times of one kernel or call, relative."""

    launch_ns: int = 4_000
    latency_ns: int = 2_500
    gap_ns: int = 900
    event_ns: int = 1_100
    return_ns: int = 5_000
    staging_ns: int = 9_000
    queue_depth: int = 1 << 30
    spread: float = 0.02
    records_events: bool = False
    graph_ns: int = 6_000
    graph_node_ns: int = 30
    graph_gap_ns: int = 700


@dataclass(frozen=True)
class Program:
    """``ranks``: of each rank, of each of its threads (the first one is its main one), the actions of a step."""

    seed: int
    features: tuple[str, ...]
    world: World
    ranks: tuple[tuple[tuple[Act, ...], ...], ...]
    steps: int = 7


@dataclass
class Work:
    """An operation of a device. ``after``: what must have ended, and how long before it starts."""

    act: Act
    rank: int
    arrived: int
    ns: int
    after: list[tuple[Work, int]]
    meeting: list[Work] | None = None
    start: int | None = None
    end: int | None = None
    dependents: list[Work] = field(default_factory=list)


@dataclass
class Call:
    """A host call as a profiler records it."""

    name: str
    rank: int
    thread: int
    start: int
    end: int = 0
    works: list[Work] = field(default_factory=list)
    stream: int | None = None  # of a wait or an event
    event: int | None = None


@dataclass
class _Thread:
    rank: int
    number: int
    now: int
    ready: Callable[[], bool] = lambda: True
    turn: Iterator[None] | None = None


class Machine:
    """Runs one program."""

    def __init__(self, program: Program, salt: int = 0) -> None:
        self.program, self.world = program, program.world
        self.rng = Random(f"{program.seed} {salt}")
        self.calls: list[Call] = []
        self.ranges: list[tuple[int, int, int]] = []  # rank, begin, end of each step
        self.streams: dict[tuple[int, int], list[Work]] = defaultdict(list)
        self.events: dict[tuple[int, str], Work | None] = {}
        self.pending: dict[tuple[int, int], list[tuple[Work, int]]] = defaultdict(list)
        self.tokens: dict[tuple[int, str], deque[int]] = defaultdict(deque)
        self.meetings: dict[tuple[str, int], list[Work]] = defaultdict(list)
        self.met: dict[tuple[int, str], int] = defaultdict(int)
        for rank in range(len(program.ranks)):  # a loader may be two steps ahead
            self.tokens[rank, "room"].extend([0, 0])

    def run(self) -> Machine:
        """Run all threads to their end."""
        threads = []
        for rank, of_rank in enumerate(self.program.ranks):
            for number, acts in enumerate(of_rank):
                thread = _Thread(rank, number, 1_000_000 + 3_000 * rank + 50_000 * number)
                thread.turn = self._steps(thread, acts)
                threads.append(thread)
        while threads:
            able = [one for one in threads if one.ready()]
            if not able:
                raise RuntimeError("the program waits for itself")
            first = min(able, key=lambda one: one.now)
            assert first.turn is not None
            if next(first.turn, "done") == "done":
                threads.remove(first)
        return self

    def about(self, ns: float, spread: float | None = None) -> int:
        """A time as it happens to be."""
        return max(round(self.rng.lognormvariate(0, self.world.spread if spread is None else spread) * ns), 0)

    def _steps(self, thread: _Thread, acts: tuple[Act, ...]) -> Iterator[None]:
        for _ in range(self.program.steps):
            begin = thread.now
            for act in acts:
                yield from getattr(self, act.what)(thread, act)
                thread.ready = lambda: True
                yield
            if not thread.number:
                thread.now += 400
                self.ranges.append((thread.rank, begin, thread.now))
                thread.now += self.about(1_500)

    # -- actions -------------------------------------------------------------------------------------

    def host(self, thread: _Thread, act: Act) -> Iterator[None]:
        thread.now += self.about(act.ns, 2 * self.world.spread)
        return
        yield

    def give(self, thread: _Thread, act: Act) -> Iterator[None]:
        self.tokens[thread.rank, act.name].append(thread.now)
        return
        yield

    def take(self, thread: _Thread, act: Act) -> Iterator[None]:
        tokens = self.tokens[thread.rank, act.name]
        yield from self._until(thread, lambda: bool(tokens))
        thread.now = max(thread.now, tokens.popleft() + 3_000)

    def kernel(self, thread: _Thread, act: Act) -> Iterator[None]:
        yield from self._launch(thread, "cudaLaunchKernel_v7000", [act], self.world.launch_ns)

    def collective(self, thread: _Thread, act: Act) -> Iterator[None]:
        yield from self._launch(thread, "cudaLaunchKernelExC_v11060", [act], 1.5 * self.world.launch_ns)

    def memset(self, thread: _Thread, act: Act) -> Iterator[None]:
        yield from self._launch(thread, "cudaMemsetAsync_v3020", [act], self.world.launch_ns)

    def graph(self, thread: _Thread, act: Act) -> Iterator[None]:
        own = self.world.graph_ns + self.world.graph_node_ns * len(act.nodes)
        yield from self._launch(thread, "cudaGraphLaunch_v10000", list(act.nodes), own, self.world.graph_gap_ns)

    def copy(self, thread: _Thread, act: Act) -> Iterator[None]:
        world = self.world
        if act.mode == "async":
            yield from self._launch(thread, "cudaMemcpyAsync_v3020", [act], world.launch_ns)
            return
        name = "cudaMemcpyAsync_v3020" if act.mode == "pageable" else "cudaMemcpy_v3020"
        staging = world.staging_ns if act.mode == "pageable" else world.launch_ns + world.latency_ns
        call = self._call(thread, name)
        work = self._enqueue(thread, act, thread.now + self.about(staging, 0.05), world.gap_ns)
        call.works.append(work)
        yield from self._until(thread, lambda: work.end is not None)
        thread.now = call.end = (work.end or 0) + self.about(world.return_ns, 0.05)

    def record(self, thread: _Thread, act: Act) -> Iterator[None]:
        stream = self.streams[thread.rank, act.stream]
        self.events[thread.rank, act.name] = stream[-1] if stream else None
        self._event_call(thread, "cudaEventRecord_v3020", act)
        return
        yield

    def await_event(self, thread: _Thread, act: Act) -> Iterator[None]:
        work = self.events.get((thread.rank, act.name))
        if work is not None:
            self.pending[thread.rank, act.stream].append((work, self.about(self.world.event_ns, 0.1)))
        self._event_call(thread, "cudaStreamWaitEvent_v3020", act)
        return
        yield

    def sync(self, thread: _Thread, act: Act) -> Iterator[None]:
        if act.mode == "device":
            works = [x[-1] for (rank, _), x in self.streams.items() if rank == thread.rank and x]
        elif act.mode == "stream":
            works = self.streams[thread.rank, act.stream][-1:]
        else:
            works = [one for one in [self.events.get((thread.rank, act.name))] if one is not None]
        call = self._call(thread, f"cuda{act.mode.capitalize()}Synchronize_v3020")
        call.stream = act.stream if act.mode == "stream" else None
        call.event = _number(act.name) if act.mode == "event" else None
        yield from self._until(thread, lambda: all(one.end is not None for one in works))
        done = max((one.end or 0 for one in works), default=0)
        short = thread.now + self.about(1_200, 0.1)
        thread.now = call.end = max(short, done + self.about(self.world.return_ns, 0.05))

    # -- the device ----------------------------------------------------------------------------------

    def _launch(
        self, thread: _Thread, name: str, acts: list[Act], own_ns: float, node_gap_ns: int = -1
    ) -> Iterator[None]:
        call = self._call(thread, name)
        own = self.about(own_ns, 0.08) * (6 if self.rng.random() < 0.005 else 1)
        done = thread.now + own
        queue = [one for one in self.streams[thread.rank, acts[0].stream] if one.act.mode not in ("pageable",)]
        if len(queue) >= self.world.queue_depth:
            older = queue[-self.world.queue_depth]
            yield from self._until(thread, lambda: older.start is not None)
            done = max(done, (older.start or 0) + 1_500)
        arrived = done + self.about(self.world.latency_ns, 0.05)
        for number, act in enumerate(acts):
            if act.what in ("record", "await_event"):
                self._inside_graph(thread, act)
                continue
            gap = self.world.gap_ns if node_gap_ns < 0 or not number else node_gap_ns
            call.works.append(self._enqueue(thread, act, arrived, gap))
        thread.now = call.end = done

    def _inside_graph(self, thread: _Thread, act: Act) -> None:
        """An edge between streams that a graph has kept."""
        stream = self.streams[thread.rank, act.stream]
        if act.what == "record":
            self.events[thread.rank, act.name] = stream[-1] if stream else None
        elif (work := self.events.get((thread.rank, act.name))) is not None:
            self.pending[thread.rank, act.stream].append((work, self.world.graph_gap_ns))

    def _enqueue(self, thread: _Thread, act: Act, arrived: int, gap_ns: int) -> Work:
        stream = self.streams[thread.rank, act.stream]
        after = [(stream[-1], self.about(gap_ns, 0.1))] if stream else []
        after += self.pending.pop((thread.rank, act.stream), [])
        work = Work(act, thread.rank, arrived, self.about(act.ns), after)
        if act.what == "collective":
            key = (act.name, self.met[thread.rank, act.name])
            self.met[thread.rank, act.name] += 1
            work.meeting = self.meetings[key]
            work.meeting.append(work)
        stream.append(work)
        self._settle(work)
        return work

    def _settle(self, work: Work) -> None:
        """Its times, where all that they follow from is known; then those of what waits for it."""
        waiting = [work]
        while waiting:
            one = waiting.pop()
            if one.start is None:
                unknown = [before for before, _ in one.after if before.end is None]
                if unknown:
                    unknown[0].dependents.append(one)
                    continue
                one.start = max([one.arrived, *((before.end or 0) + ns for before, ns in one.after)])
            members = [one] if one.meeting is None else one.meeting
            if one.meeting is not None and (
                len(members) < len(self.program.ranks) or any(x.start is None for x in members)
            ):
                continue
            begin = max(x.start or 0 for x in members)
            for member in members:
                member.end = begin + members[0].ns
                waiting += member.dependents
                member.dependents = []

    # -- the profiler --------------------------------------------------------------------------------

    def _until(self, thread: _Thread, condition: Callable[[], bool]) -> Iterator[None]:
        if not condition():
            thread.ready = condition
            yield

    def _call(self, thread: _Thread, name: str) -> Call:
        self.calls.append(Call(name, thread.rank, thread.number, thread.now))
        return self.calls[-1]

    def _event_call(self, thread: _Thread, name: str, act: Act) -> None:
        call = self._call(thread, name)
        thread.now = call.end = thread.now + self.about(900, 0.1)
        call.stream, call.event = act.stream, _number(act.name)

    def write(self, path: Path) -> Path:
        """The export of what ran."""
        export = ExportBuilder()
        for rank in range(len(self.program.ranks)):
            export.process(100 * (rank + 1)).thread(100 * (rank + 1)).gpu(rank)
            for number, (_, begin, end) in enumerate(one for one in self.ranges if one[0] == rank):
                export.range(f"step {number}", begin, end)
        for call in sorted(self.calls, key=lambda one: one.start):
            export.process(100 * (call.rank + 1)).thread(100 * (call.rank + 1) + call.thread)
            self._write_call(export, call)
        return Path(export.write(path))

    def _write_call(self, export: ExportBuilder, call: Call) -> None:
        export.api(call.name, call.start, call.end)
        number = export.last_correlation
        place: dict[str, Any] = {"correlationId": number, "globalPid": export._pid, "deviceId": call.rank}
        if "Synchronize" in call.name and (call.event is None or self.world.records_events):
            one = {"eventId": call.event} if call.event is not None else {}
            export._put(_SYNC, start=call.start, end=call.end, streamId=call.stream or 0, **one, **place)
        elif call.event is not None and self.world.records_events:
            row = {"eventId": call.event, "streamId": call.stream} | place
            if "Record" in call.name:
                export._put("CUPTI_ACTIVITY_KIND_CUDA_EVENT", timestamp=call.end, **row)
            else:
                export._put(_SYNC, start=call.start, end=call.end, syncType=2, **row)
        for node, work in enumerate(call.works):
            where: dict[str, Any] = {"stream": work.act.stream, "device": call.rank, "correlation": number}
            run = (work.start or 0, work.end or 0)
            if work.act.what == "copy":
                to_host = "HtoD" if work.act.name == "input" else "DtoH"
                export.memcpy(max(12 * (work.act.ns - 1_400), 4), run=run, kind=to_host, **where)
            elif work.act.what == "memset":
                export.memset(max(100 * work.act.ns, 4), run=run, **where)
            else:
                inside = {"graph_node": node + 1} if "Graph" in call.name else {}
                export.kernel(work.act.name, run=run, **where, **inside)

    # -- the truth -----------------------------------------------------------------------------------

    def period_ns(self) -> float:
        """From the end of the device work of a step to that of the next one: the median, without the first step."""
        taken = []
        for rank in range(len(self.program.ranks)):
            done = self._ends(rank)
            taken += [b - a for a, b in pairwise(done[1:])]
        return median(taken)

    def busiest_ns(self) -> float:
        """What the busiest stream does in a step; of collectives not the waiting for other ranks."""
        sums = [sum(work.ns for work in works) for works in self.streams.values()]
        return max(sums) / self.program.steps

    def latency_ns(self) -> float:
        """From the begin of a step on the host to the end of all its work: the median, without the first step."""
        taken = []
        for rank in range(len(self.program.ranks)):
            ranges = [one for one in self.ranges if one[0] == rank]
            taken += [max(end, done) - begin for (_, begin, end), done in zip(ranges, self._ends(rank), strict=True)][
                1:
            ]
        return median(taken)

    def _ends(self, rank: int) -> list[int]:
        """The end of the device work launched in each step by any thread of the rank."""
        ranges = [one for one in self.ranges if one[0] == rank]
        ends = []
        for _, begin, end in ranges:
            mine = [c for c in self.calls if c.rank == rank and begin <= c.start < end]
            ends.append(max((work.end or 0 for call in mine for work in call.works), default=end))
        return ends


def _number(name: str) -> int:
    return sum(ord(letter) << 8 * place for place, letter in enumerate(name[-3:])) or 1


# -- random programs ---------------------------------------------------------------------------------


def draw_program(seed: int) -> Program:
    """A program out of the parts below."""
    rng = Random(seed)
    features: list[str] = []
    world = World(
        launch_ns=rng.choice((2_500, 4_000, 7_000)), latency_ns=rng.choice((1_500, 2_500, 6_000)),
        gap_ns=rng.choice((600, 900, 1_600)), event_ns=rng.choice((500, 1_100, 2_500)),
        return_ns=rng.choice((2_500, 5_000, 12_000)), staging_ns=rng.choice((5_000, 9_000, 30_000)),
        records_events=rng.random() < 0.5, spread=rng.choice((0.002, 0.01, 0.03)),
    )  # fmt: skip
    rank_count = rng.choice((1, 1, 1, 1, 2, 4))
    if rng.random() < 0.1 and rank_count == 1:
        world = replace(world, queue_depth=rng.choice((48, 100)))
        features.append("queue")
    pace = rng.choice((0.1, 0.4, 1.0, 3.0))  # host code beside device work
    acts: list[Act] = []
    for number, part in enumerate(rng.sample(_PARTS, rng.randint(1, 4))):
        features.append(part.__name__.strip("_"))
        acts += part(rng, pace, number)
    if not any(act.what in ("kernel", "graph") for act in acts):
        acts += _chain(rng, pace, 9)
        features.append("chain")
    threads: list[list[Act]] = [acts]
    if rng.random() < 0.2:
        features.append("threads")
        threads = _on_two_threads(rng, acts)
    if rank_count > 1:
        features.append("ranks")
        threads[0] = [*threads[0], *_collectives(rng, rank_count)]
    ending = rng.choice(("device", "device", "stream", "item", ""))
    threads[0] = [*threads[0], *_ending(ending)]
    if ending:
        features.append("ends in a wait")
    ranks = []
    for rank in range(rank_count):
        slower = 1 + 0.3 * rng.random() * bool(rank)
        ranks.append(tuple(tuple(_slower(act, slower) for act in one) for one in threads))
    steps = 7 if world.queue_depth > 1_000 else 12
    return Program(seed, tuple(features), world, tuple(ranks), steps)


def _ending(ending: str) -> list[Act]:
    if ending == "item":
        return [Act("copy", 1_600, "item", mode="pageable")]
    return [Act("sync", mode=ending)] if ending else []


def _slower(act: Act, factor: float) -> Act:
    return replace(act, ns=round(act.ns * factor)) if act.what == "kernel" and act.name == "gemm" else act


def _size(rng: Random) -> int:
    return round(min(rng.lognormvariate(10.3, 0.9), 900_000))


def _chain(rng: Random, pace: float, number: int, stream: int = MAIN) -> list[Act]:
    """Kernels on one stream with host code between them."""
    sizes = [("gemm", _size(rng)), ("relu", _size(rng) // 3), ("norm", _size(rng) // 4)]
    acts = []
    for _ in range(rng.randint(3, 12)):
        for name, ns in sizes:
            acts += [Act("host", round(pace * ns * rng.uniform(0.3, 1.0)))] if rng.random() < 0.7 else []
            acts.append(Act("kernel", ns, name, stream))
    return acts


def _items(rng: Random, pace: float, number: int) -> list[Act]:
    """A loop that reads a number of the device after some kernels."""
    acts = []
    for _ in range(rng.randint(1, 4)):
        acts += _chain(rng, pace, number)[: rng.randint(3, 14)]
        acts.append(Act("copy", rng.choice((1_100, 1_900)), "item", mode="pageable"))
    return acts


def _copies(rng: Random, pace: float, number: int) -> list[Act]:
    """Inputs copied before the kernels that need them."""
    mode, ns = rng.choice(("async", "pageable", "blocking")), _size(rng) * rng.choice((1, 4))
    acts = []
    for _ in range(rng.randint(1, 4)):
        acts += [Act("copy", ns, "input", mode=mode), *_chain(rng, pace, number)[: rng.randint(3, 9)]]
    return acts


def _prefetch(rng: Random, pace: float, number: int) -> list[Act]:
    """Copies on a stream of their own, one ahead of the kernels."""
    event = f"p{number}"
    acts = [Act("await_event", 0, f"d{number}", 15), Act("copy", _size(rng), "input", 15, "async"),
            Act("record", 0, event, 15)]  # fmt: skip
    kernels = _chain(rng, pace, number)
    kernels.insert(len(kernels) // 2, Act("await_event", 0, event))
    return [*acts, *kernels, Act("record", 0, f"d{number}")]


def _side_streams(rng: Random, pace: float, number: int) -> list[Act]:
    """Fork to other streams, join again."""
    acts = []
    for turn in range(rng.randint(1, 3)):
        acts += [*_chain(rng, pace, number)[:4], Act("record", 0, f"f{number}{turn}")]
        for stream in range(20, 20 + rng.randint(1, 3)):
            acts += [Act("await_event", 0, f"f{number}{turn}", stream), *_chain(rng, pace, number, stream)[:5],
                     Act("record", 0, f"j{turn}{stream}", stream)]  # fmt: skip
            acts += [Act("await_event", 0, f"j{turn}{stream}")] if rng.random() < 0.7 else []
        acts += _chain(rng, pace, number)[:3]
    return acts


def _chatty(rng: Random, pace: float, number: int) -> list[Act]:
    """Waits for the device again and again."""
    mode, acts = rng.choice(("device", "stream", "event")), []
    for turn in range(rng.randint(2, 6)):
        acts += _chain(rng, pace, number)[: rng.randint(2, 6)]
        if mode == "event":
            acts += [Act("record", 0, f"s{turn}"), *_chain(rng, pace, number)[: rng.randint(0, 3)]]
        acts.append(Act("sync", 0, f"s{turn}", mode=mode))
        acts += [Act("host", round(pace * 20_000))]
    return acts


def _graphs(rng: Random, pace: float, number: int) -> list[Act]:
    """A few launches of a graph."""
    nodes = tuple(act for act in _chain(rng, pace, number) if act.what == "kernel")
    acts = []
    for _ in range(rng.randint(1, 3)):
        acts += [Act("graph", nodes=nodes), Act("host", round(pace * 30_000)), *_chain(rng, pace, number)[:3]]
    return acts


def _pauses(rng: Random, pace: float, number: int) -> list[Act]:
    """The host does something long between kernels."""
    acts = []
    for _ in range(rng.randint(1, 3)):
        acts += [*_chain(rng, pace, number)[:6], Act("host", rng.randint(150_000, 900_000))]
    return acts


def _memsets(rng: Random, pace: float, number: int) -> list[Act]:
    """Buffers are cleared between the kernels."""
    return [one for act in _chain(rng, pace, number) for one in (Act("memset", 1_400), act)]


_PARTS = (_chain, _items, _copies, _prefetch, _side_streams, _chatty, _graphs, _pauses, _memsets)


def _collectives(rng: Random, ranks: int) -> list[Act]:
    """Sums over the ranks, on the stream of the kernels or on one of their own."""
    stream = rng.choice((MAIN, 30))
    acts: list[Act] = []
    for turn in range(rng.randint(1, 4)):
        acts += _chain(rng, 0.3, turn)[:4]
        acts += [Act("record", 0, f"c{turn}"), Act("await_event", 0, f"c{turn}", stream)] if stream != MAIN else []
        acts.append(Act("collective", _size(rng), "ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream))
    if stream != MAIN:
        acts += [Act("record", 0, "c", stream), Act("await_event", 0, "c")]
    return [*acts, Act("kernel", 20_000, "adam")]


def _on_two_threads(rng: Random, acts: list[Act]) -> list[list[Act]]:
    """A part of the step runs on a second thread: in turns with the first, or beside it (a loader of inputs)."""
    if rng.random() < 0.5:
        half = rng.randint(1, len(acts))
        return [
            [*acts[:half], Act("give", name="go"), Act("take", name="back")],
            [Act("take", name="go"), *acts[half:], Act("give", name="back")],
        ]
    loader = [Act("host", rng.randint(20_000, 400_000)), Act("copy", _size(rng), "input", 17, "async"),
              Act("record", 0, "l", 17), Act("give", name="loaded")]  # fmt: skip
    return [[Act("take", name="loaded"), Act("await_event", 0, "l"), *acts, Act("give", name="room")],
            [Act("take", name="room"), *loader]]  # fmt: skip


# -- edits -------------------------------------------------------------------------------------------

KINDS = ("kernels", "launches", "host", "copies", "sync removed", "copies overlapped", "graph")
_LAUNCHED = ("kernel", "memset", "collective", "graph")
_LONG_HOST_NS = 100_000


def edited(program: Program, kind: str, factor: float = 0.5) -> tuple[str, Program] | None:
    """The text of a change and the program with it; None where the program has nothing of the kind."""
    every = [act for rank in program.ranks for thread in rank for act in thread]
    said = {
        "kernels": f"kernel:gemm|relu|norm|adam={factor:g}x", "launches": f"launch={factor:g}x",
        "host": f"host={factor:g}x", "copies": f"copy={factor:g}x", "sync removed": "sync=none",
        "copies overlapped": "copy=overlap", "graph": "launch=graph",
    }[kind]  # fmt: skip
    if kind == "launches":
        world = program.world
        world = replace(world, launch_ns=round(world.launch_ns * factor), graph_ns=round(world.graph_ns * factor),
                        graph_node_ns=round(world.graph_node_ns * factor))  # fmt: skip
        return said, replace(program, world=world)
    wanted = {"host": "host", "copies": "copy", "sync removed": "sync", "copies overlapped": "copy"}.get(kind)
    if wanted is not None and not any(act.what == wanted for act in every):
        return None
    edit: Callable[[tuple[Act, ...]], tuple[Act, ...]] = {
        "kernels": lambda acts: tuple(_scaled(act, ("kernel",), factor) for act in acts),
        "host": lambda acts: tuple(_scaled(act, ("host",), factor) for act in acts),
        "copies": lambda acts: tuple(_scaled(act, ("copy", "memset"), factor) for act in acts),
        "sync removed": lambda acts: tuple(act for act in acts if act.what != "sync"),
        "copies overlapped": lambda acts: tuple(_aside(act) for act in acts),
        "graph": _captured,
    }[kind]
    ranks = tuple(tuple(edit(thread) for thread in rank) for rank in program.ranks)
    return said, replace(program, ranks=ranks)


def _scaled(act: Act, what: tuple[str, ...], factor: float) -> Act:
    nodes = tuple(_scaled(node, what, factor) for node in act.nodes)
    return replace(act, ns=round(act.ns * factor) if act.what in what else act.ns, nodes=nodes)


def _aside(act: Act) -> Act:
    """A copy from pinned memory on a stream that nothing else uses."""
    return replace(act, stream=act.stream + 100, mode="async") if act.what == "copy" else act


def _captured(acts: tuple[Act, ...]) -> tuple[Act, ...]:
    """Launches between two actions of another kind become one graph; short host code between them goes."""
    result: list[Act] = []
    held: list[Act] = []

    def close() -> None:
        launched = [act for act in held if act.what in _LAUNCHED or act.mode == "async"]
        if len(launched) < 2:
            result.extend(held)
        else:
            first = next(place for place, act in enumerate(held) if act in launched)
            last = max(place for place, act in enumerate(held) if act in launched)
            inside = [act for act in held[first : last + 1] if act.what != "host"]
            nodes = [node for act in inside for node in (act.nodes or (act,))]
            result.extend([*held[:first], Act("graph", nodes=tuple(nodes)), *held[last + 1 :]])
        held.clear()

    for act in acts:
        is_long = act.what == "host" and act.ns >= _LONG_HOST_NS
        if is_long or act.what in ("sync", "give", "take") or (act.what == "copy" and act.mode != "async"):
            close()
            result.append(act)
        else:
            held.append(act)
    close()
    return tuple(result)
