"""PyTorch and CUDA programs before and after an edit that people really make, run by an event simulator of their own.

A program is a list of actions for each thread; the edit is made in it. The device follows: streams in order, waits,
copies from memory that is pinned or not, a queue of 1,024, collectives that start when the last rank has come.
Shares no code with `replay`, `simulator`, `machine` or their programs. Times in µs inside a program, ns outside.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from builders import ExportBuilder

DEPTH = 1_024  # operations that may wait in a stream
COLD = 400_000  # ns until the caches of a thread that waited are warm again
LAUNCH, LATENCY, NEXT = 4.2, 3.6, 0.9  # µs of a launch call, from it to the device, from one operation to the next
Row = dict[str, Any]


@dataclass
class Flag:
    """A moment that becomes known while the program runs."""

    at: int | None = None


@dataclass
class Stream:
    rows: list[Row] = field(default_factory=list)
    resolved: int = 0  # rows before it have their times


class Thread:
    """What one thread does, written down in order."""

    def __init__(self, world: World, rank: int, tid: int, name: str) -> None:
        self.world, self.rank, self.tid, self.name = world, rank, tid, name
        self.acts: list[tuple[Any, ...]] = []
        self.now, self.at = 1_000_000 + 7_000 * tid, 0
        self.woken = self.now - COLD  # when it last waited
        self.open: list[Row] = []

    # -- what a program says ---------------------------------------------------------------------

    def cpu(self, us: float) -> None:
        self.acts.append(("cpu", us))

    def begin(self, text: str, kind: str = "user_annotation", **args: Any) -> None:
        self.acts.append(("begin", text, kind, args))

    def end(self) -> None:
        self.acts.append(("end",))

    def inside(self, text: str, body: Callable[[], Any], kind: str = "user_annotation", **args: Any) -> None:
        self.begin(text, kind, **args)
        body()
        self.end()

    def api(self, name: str, us: float) -> None:
        self.acts.append(("api", name, us))

    def os(self, name: str, us: float) -> None:
        self.acts.append(("os", name, us))

    def work(self, kind: str, name: str, us: float, *, stream: int = 7, api: str = "", call: float = LAUNCH,
             after: Iterable[Flag] = (), group: Any = None, **more: Any) -> Flag:  # fmt: skip
        """Give the device something; the moment at which it is done."""
        done = Flag()
        api = api or {"kernel": "cudaLaunchKernel", "memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}[kind]
        row = {"kind": kind, "name": name, "us": us, "stream": stream, "done": done, "after": list(after),
               "group": group, **more}  # fmt: skip
        self.acts.append(("work", row, api, call))
        return done

    def kernel(self, name: str, us: float, **more: Any) -> Flag:
        return self.work("kernel", name, us, **more)

    def copy(self, size: float, way: str = "HtoD", *, pinned: bool = False, stream: int = 7, **more: Any) -> Flag:
        """From pageable memory the call lasts until the copy is done."""
        us = 1.4 + size / (24e3 if pinned else 5.5e3)
        done = self.work("memcpy", way, us, stream=stream, bytes=int(size), pinned=pinned, call=6, **more)
        if not pinned:
            self.wait(done, "cudaStreamSynchronize")
        return done

    def wait(self, what: Flag | str, name: str = "cudaDeviceSynchronize", us: float = 2) -> None:
        """For a moment, or (a text) for all that was given to the device so far; the call takes ``us`` at the least."""
        self.acts.append(("wait", what, name, us))

    def hold(self, done: Flag) -> None:
        """The call made last returns when this is done, as cudaMemcpy and launches with CUDA_LAUNCH_BLOCKING do."""
        self.acts.append(("hold", done))

    def need(self, flag: Flag, name: str = "pthread_cond_wait") -> None:
        """Wait for another thread; without a name nothing of it is recorded."""
        self.acts.append(("need", flag, name))

    def set(self, flag: Flag) -> None:
        self.acts.append(("set", flag))

    # -- its run ---------------------------------------------------------------------------------

    def step(self) -> bool:
        """One action; False: what it waits for is not known yet."""
        act, world = self.acts[self.at], self.world
        start = self.now
        if act[0] == "cpu":
            cold = world.cold * max(1 - (self.now - self.woken) / COLD, 0)
            self.now += world.ns(act[1] * (1 + cold), world.unsteady)
        elif act[0] == "begin":
            self.now += world.ns(0.6)
            row = {"text": act[1], "kind": act[2], "args": act[3], "start": self.now, "thread": self}
            world.ranges.append(row)
            self.open.append(row)
        elif act[0] == "end":
            self.now += world.ns(0.3)
            self.open.pop()["end"] = self.now
            self.now += 50
        elif act[0] == "api":
            self.now += world.ns(act[2])
            world.calls.append({"name": act[1], "start": start, "end": self.now, "thread": self})
        elif act[0] == "os":
            self.now += world.ns(act[2])
            world.systems.append((act[1], start, self.now, self))
        elif act[0] == "hold":  # the call that gave the device this work lasts until it is done
            if act[1].at is None:
                return False
            self.now = self.woken = max(self.now, act[1].at + world.ns(2.5))
            next(row for row in reversed(world.calls) if row["thread"] is self)["end"] = self.now
        elif act[0] == "set":
            act[1].at = self.now
        elif act[0] == "more":  # the other nodes of the graph that was launched last
            last = world.streams[self.rank, 7].rows[-1]
            for number, (name, us) in enumerate(act[1], 2):
                world.streams[self.rank, 7].rows.append(
                    {**last, "name": name, "ns": world.ns(us), "done": Flag(), "after": [], "node": number}
                )
                world.streams[self.rank, 7].rows[-1].pop("start", None)
            world.resolve()
        elif act[0] == "migrate":  # pages of managed memory, before (stream 7) or while a kernel runs
            self._migrate(*act[1:])
        elif act[0] == "need":
            if act[1].at is None:
                return False
            if act[1].at > self.now:
                self.now = act[1].at + world.ns(4)
                if act[2]:
                    world.systems.append((act[2], start, self.now, self))
        elif act[0] == "poll":  # a query is called again until the moment has come
            if act[1].at is None:
                return False
            while start <= act[1].at:
                start, self.now = self.now, self.now + world.ns(act[3])
                world.calls.append({"name": act[2], "start": start, "end": self.now, "thread": self})
                self.now += world.ns(0.3)
        elif act[0] == "wait":
            mine = [stream.rows for (rank, _), stream in world.streams.items() if rank == self.rank and stream.rows]
            flags = [act[1]] if isinstance(act[1], Flag) else [rows[-1]["done"] for rows in mine]
            if any(flag.at is None for flag in flags):
                return False
            self.now = max([self.now + world.ns(act[3]), *(flag.at + world.ns(2.5) for flag in flags)])  # type: ignore
            self.woken = self.now
            world.calls.append({"name": act[2], "start": start, "end": self.now, "thread": self, "is_sync": True})
        else:
            row, name, call = act[1:]
            stream = world.streams.setdefault((self.rank, row["stream"]), Stream())
            if len(stream.rows) >= DEPTH:
                begun = stream.rows[-DEPTH].get("start")
                if begun is None:
                    return False
                self.now = max(self.now, begun)
            self.now += world.ns(call)
            world.correlation += 1
            world.calls.append({"name": name, "start": start, "end": self.now, "thread": self,
                                "correlation": world.correlation})  # fmt: skip
            row.update(thread=self, rank=self.rank, correlation=world.correlation, ns=world.ns(row["us"]))
            row["ready"] = max(start + world.ns(LATENCY + call / 2), self.now - 300)
            stream.rows.append(row)
            if row["group"] is not None:
                world.groups.setdefault(row["group"], []).append(row)
            world.resolve()
        self.at += 1
        return True

    def _migrate(self, stream: int, count: int, us: float, size: int) -> None:
        """Copies that the driver makes, without a call."""
        world, rows = self.world, self.world.streams.setdefault((self.rank, 7), Stream()).rows
        ready = rows[-1]["start"] + 20_000 if stream != 7 else self.now + 3_000
        mine = world.streams.setdefault((self.rank, stream), Stream()).rows
        for _ in range(count):
            mine.append({"kind": "memcpy", "name": "HtoD", "unified": True, "pinned": False, "bytes": size, "after": [],
                         "ready": ready, "ns": world.ns(us), "stream": stream, "done": Flag(), "group": None,
                         "thread": self, "rank": self.rank, "correlation": None})  # fmt: skip
        world.resolve()


class World:
    """Threads, streams, and what a profiler writes of them."""

    def __init__(self, seed: int, ranks: int = 1, spread: float = 0.02, program: str = "python3") -> None:
        self.rng, self.ranks, self.spread, self.program = Random(f"edited {seed}"), ranks, spread, program
        self.threads: list[Thread] = []
        self.streams: dict[tuple[int, int], Stream] = {}
        self.groups: dict[Any, list[Row]] = {}
        self.ranges: list[Row] = []
        self.calls: list[Row] = []
        self.systems: list[tuple[str, int, int, Thread]] = []
        self.correlation = 0
        self.cold = 0.0  # the share by which host code takes longer just after a wait
        self.unsteady: float | None = None  # the spread of host code, where it is not that of all times

    def ns(self, us: float, spread: float | None = None) -> int:
        return max(100, round(us * 1_000 * self.rng.lognormvariate(0, self.spread if spread is None else spread)))

    def thread(self, rank: int = 0, tid: int = 0, name: str = "main") -> Thread:
        self.threads.append(Thread(self, rank, tid, name))
        return self.threads[-1]

    def run(self) -> World:
        """Always the thread whose clock is behind; one that waits for what is not known stands."""
        while live := [one for one in self.threads if one.at < len(one.acts)]:
            for one in sorted(live, key=lambda one: one.now):
                if one.step():
                    break
            else:
                raise RuntimeError("every thread waits")
        return self

    def resolve(self) -> None:
        """Times of what the device can begin; a collective needs all of its ranks."""
        moved = True
        while moved:
            moved = False
            for stream in self.streams.values():
                while stream.resolved < len(stream.rows) and self._begin(stream):
                    moved = True

    def _begin(self, stream: Stream) -> bool:
        row = stream.rows[stream.resolved]
        if any(flag.at is None for flag in row["after"]):
            return False
        if "start" not in row:
            before = stream.rows[stream.resolved - 1]["end"] if stream.resolved else 0
            row["start"] = max(row["ready"], before + self.ns(NEXT), *(flag.at + 800 for flag in row["after"]), 0)
        if row["group"] is not None:
            rows = self.groups[row["group"]]
            if len(rows) < self.ranks or any("start" not in one for one in rows):
                return False
            row["end"] = max(one["start"] for one in rows) + rows[0]["ns"]
        else:
            row["end"] = row["start"] + row["ns"]
        row["done"].at = row["end"]
        stream.resolved += 1
        return True

    def rows(self) -> list[Row]:
        return sorted((row for stream in self.streams.values() for row in stream.rows), key=lambda row: row["start"])

    def times_ns(self) -> tuple[int, int]:
        """From the first action to the end of all, and from the first work of the device."""
        ends = [row["end"] for row in self.rows()] + [one.now for one in self.threads]
        begin = min(row["start"] for row in self.calls + self.ranges)
        return max(ends) - begin, max(ends) - min((row["start"] for row in self.rows()), default=begin)

    def write(self, path: Path, is_kineto: bool) -> Path:
        return self._kineto(path) if is_kineto else self._nsys(path)

    def _nsys(self, path: Path) -> Path:
        made = ExportBuilder("3.24.0")
        for rank in range(self.ranks):
            pid = 52_000 + 100 * rank
            made.process(pid, self.program)
            if self.calls:
                made.gpu(rank)
            mine = [one for one in self.threads if one.rank == rank]
            for one in mine:
                made.thread(pid + one.tid, one.name)
                for row in sorted((row for row in self.ranges if row["thread"] is one), key=lambda row: row["start"]):
                    made.range(row["text"], row["start"], row["end"])
                for row in sorted((row for row in self.calls if row["thread"] is one), key=lambda row: row["start"]):
                    if row.get("is_sync"):
                        made._correlations[pid] = 9_000_000 + row["start"] % 900_000
                        made.sync(f"{row['name']}_v3020", row["start"], row["end"], device=rank)
                    elif "correlation" in row:
                        made.api(f"{row['name']}_v3020", row["start"], row["end"], correlation=row["correlation"])
                    else:
                        made._correlations[pid] = 5_000_000 + row["start"] % 900_000
                        made.api(f"{row['name']}_v3020", row["start"], row["end"])
                for name, start, end, thread in self.systems:
                    if thread is one:
                        made.os_call(name, start, end)
            for row in self.rows():
                if row["rank"] != rank:
                    continue
                where: Row = {"run": (row["start"], row["end"]), "stream": row["stream"], "device": rank,
                              "correlation": row["correlation"]}  # fmt: skip
                if row["kind"] == "kernel":
                    short = row["name"].split("<")[0].split("(")[0].replace("void ", "").split("::")[-1]
                    shape = {"grid": (row.get("grid", 432), 1, 1), "block": (row.get("block", 256), 1, 1)}
                    made.kernel(row["name"], short=short, graph_node=row.get("node"), **shape, **where)
                elif row["kind"] == "memcpy":
                    memory = {"srcKind": 1 if row["pinned"] else 0, "dstKind": 2} if row["name"] == "HtoD" else {}
                    made.memcpy(row["bytes"], kind=11 if row.get("unified") else row["name"], **where, **memory)
                else:
                    made.memset(row["bytes"], **where)
        return made.write(path.with_suffix(".sqlite"))

    def _kineto(self, path: Path) -> Path:
        pid = 52_000
        events: list[Row] = [
            {"ph": "M", "name": "process_name", "ts": 0, "pid": pid, "tid": 0, "args": {"name": self.program}}
        ]
        last = max(one.now for one in self.threads)
        last = max([last, *(row["end"] for row in self.rows())])

        def add(kind: str, name: str, where: tuple[int, int], row: Row, **args: Any) -> None:
            start, end = row["start"], row.get("end", last)
            events.append({"ph": "X", "cat": kind, "name": name, "pid": where[0], "tid": where[1], "ts": start / 1e3,
                           "dur": (end - start) / 1e3, "args": args})  # fmt: skip

        for number, row in enumerate(self.ranges):
            add(
                row["kind"],
                row["text"],
                (pid, pid + row["thread"].tid),
                row,
                **{"External id": number + 1},
                **row["args"],
            )
        for row in self.calls:
            add("cuda_runtime", row["name"], (pid, pid + row["thread"].tid), row, cbid=211,
                correlation=row.get("correlation", 0) or 8_000_000 + row["start"] % 900_000)  # fmt: skip
        for row in self.rows():
            args = {"device": 0, "context": 1, "stream": row["stream"], "correlation": row["correlation"]}
            if row["kind"] == "kernel":
                args |= {
                    "grid": [row.get("grid", 432), 1, 1],
                    "block": [row.get("block", 256), 1, 1],
                    "registers per thread": 48,
                }
                args |= {"graph node id": row["node"], "graph id": 3} if "node" in row else {}
                add("kernel", row["name"], (0, row["stream"]), row, **args)
                continue
            memory = "Pinned" if row.get("pinned") else "Pageable"
            ways = {"HtoD": f"({memory} -> Device)", "DtoH": f"(Device -> {memory})", "DtoD": "(Device -> Device)"}
            name = f"Memcpy {row['name']} {ways[row['name']]}" if row["kind"] == "memcpy" else "Memset (Device)"
            add(f"gpu_{row['kind']}", name, (0, row["stream"]), row, bytes=row["bytes"], **args)
        device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8,
                  "computeMinor": 0, "numSms": 108}  # fmt: skip
        devices = [device] if self.calls else []  # none where nothing of it is called
        document = {"schemaVersion": 1, "deviceProperties": devices, "displayTimeUnit": "ms", "traceEvents": events}
        path = path.with_suffix(".pt.trace.json.gz")
        with gzip.open(path, "wt", compresslevel=1) as stream:
            json.dump(document, stream)
        return path
