"""Traces of PyTorch jobs on meshes of ranks, in which it is known who is late and why; nothing of the product is used.

Each rank is a program that runs on a simulated host and simulated streams; a collective ends for all of its ranks
together. Faults are planted in a rank: more kernels, larger ones, a lower clock, a host that pauses, a loader that is
late, a call that blocks. `mesh_job(seed)` draws mesh, model, names of groups and faults; `write` makes the files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

CAUSES = ("more kernels", "larger shapes", "lower clock", "host pause", "late input", "blocking call")
SAID = {  # words of the product for each
    "more kernels": "more work",
    "larger shapes": "more work",
    "lower clock": "slower work",
    "host pause": "host",
    "late input": "input",
    "blocking call": "host",
    "mixed": "unknown",
}
CASES = ("one", "one", "one", "one", "two", "two alike", "alternating ranks", "mixed", "none")
SMALL = ({"dp": 8}, {"tp": 8}, {"dp": 4, "tp": 2}, {"dp": 2, "pp": 4}, {"dp": 2, "ep": 4}, {"dp": 2, "pp": 2, "tp": 2})
LARGE = ({"dp": 64}, {"dp": 8, "tp": 8}, {"dp": 8, "pp": 4, "tp": 2}, {"dp": 8, "ep": 8}, {"dp": 16, "pp": 4})
STYLES = {
    "mesh": {"dp": "mesh_dp", "tp": "mesh_tp", "pp": "mesh_pp", "ep": "mesh_ep"},
    "megatron": {
        "dp": "DATA_PARALLEL_GROUP",
        "tp": "TENSOR_MODEL_PARALLEL_GROUP",
        "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
        "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    },
    "plain": dict.fromkeys(("dp", "tp", "pp", "ep"), "undefined"),
}
AXES = {"dp": "data", "tp": "tensor", "pp": "pipeline", "ep": "expert"}


@dataclass(frozen=True)
class Fault:
    """What is wrong with a rank, in which steps, and how large it is in relation to a step."""

    rank: int
    cause: str
    size: float
    every: int = 1  # in each step, or in each second one …
    first: int = 0


@dataclass
class MeshJob:
    """A job with its truth."""

    seed: int
    mesh: dict[str, int]
    style: str
    case: str
    faults: list[Fault]
    steps: int
    layers: int
    synchronous: bool
    named: str  # how its files are named
    late: dict[int, str] = field(default_factory=dict)  # rank -> cause in the product's words

    @property
    def size(self) -> int:
        return int(np.prod(list(self.mesh.values())))


def mesh_job(seed: int, mesh: dict[str, int] | None = None, case: str | None = None) -> MeshJob:
    """Draw a job; each fourth one has 64 ranks."""
    draw = np.random.default_rng([seed, 77])
    meshes = LARGE if seed % 4 == 3 else SMALL
    mesh = mesh or meshes[seed // 4 % len(meshes) if seed % 4 == 3 else seed % len(meshes)]
    case = case or CASES[seed % len(CASES)]
    size = int(np.prod(list(mesh.values())))
    one, other = (int(i) for i in draw.permutation(size)[:2])
    cause, second = (CAUSES[i] for i in draw.permutation(len(CAUSES))[:2])
    share = float(draw.uniform(0.08, 0.25))
    faults = {
        "one": [Fault(one, cause, share)],
        "two": [Fault(one, cause, share), Fault(other, second, share * draw.uniform(0.8, 1.25))],
        "two alike": [Fault(one, cause, share), Fault(other, cause, share)],
        "alternating ranks": [Fault(one, cause, share, 2, 0), Fault(other, cause, share, 2, 1)],
        "mixed": [Fault(one, "lower clock", share / 2), Fault(one, "late input", share / 2)],
        "none": [],
    }[case]
    if "pp" in mesh and any(fault.cause == "late input" for fault in faults):  # only the first stage waits for input
        stages, inner = mesh["pp"], size // mesh["dp"] // mesh["pp"]
        places = [i for i in range(size) if i // inner % stages == 0]
        first = dict(zip(dict.fromkeys(fault.rank for fault in faults), draw.choice(places, 2, replace=False).tolist()))
        faults = [replace(fault, rank=first[fault.rank]) for fault in faults]
    hidden = any(fault.cause == "late input" for fault in faults)  # by the work of the step before
    late = {fault.rank: SAID["mixed" if case == "mixed" else fault.cause] for fault in faults}
    return MeshJob(
        seed=seed,
        mesh=mesh,
        style=str(draw.choice(list(STYLES))),
        case=case,
        faults=faults,
        steps=8 if size <= 8 else 6,
        layers=int(draw.integers(3, 6)) if size <= 8 else 2,
        synchronous=bool(draw.random() < 0.8) or hidden,
        named=str(draw.choice(["rank", "host"])),
        late=late,
    )


Wait = Generator[tuple, float, None]


class Rank:
    """One process: a host thread, a backward thread, streams, and what its profiler wrote."""

    def __init__(self, job: MeshJob, rank: int, step_us: float) -> None:
        self.job, self.rank, self.step_us = job, rank, step_us
        self.draw = np.random.default_rng([job.seed, 5, rank])
        self.events: list[dict] = []
        self.host = float(self.draw.uniform(0, 300))
        self.streams: dict[int, float] = {}
        self.correlation = 100
        self.pid = 4000 + 17 * rank
        self.gpu = 1 + self.draw.normal(0, 0.003)
        self.groups = groups_of(job, rank)
        self.active: list[Fault] = []
        model = np.random.default_rng([job.seed, 9])  # the same model on each rank
        self.width = float(model.uniform(0.6, 1.6))
        self.host_us = float(model.uniform(4, 14))

    def amount(self, cause: str) -> float:
        return sum(fault.size for fault in self.active if fault.cause == cause)

    def event(self, cat: str, name: str, start: float, end: float, tid: int, **args: object) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0 if "gpu" in cat or cat == "kernel" else self.pid, "tid": tid}
            | {"ts": round(start, 3), "dur": round(end - start, 3), "args": args}
        )

    def is_active(self, fault: Fault, step: int) -> bool:
        return step % fault.every == fault.first

    def pause(self, length: float) -> None:
        self.host += length * float(np.exp(self.draw.normal(0, 0.15)))
        if self.draw.random() < 0.004:
            self.host += float(self.draw.uniform(50, 250))

    def launch(self, kernel: str, length: float, grid: tuple[int, int, int], stream: int, after: float = 0.0) -> float:
        """A kernel on a stream; its end."""
        start_call, self.correlation = self.host, self.correlation + 1
        self.pause(5.0)
        self.event("cuda_runtime", "cudaLaunchKernel", start_call, self.host, self.pid, correlation=self.correlation)
        start = max(self.host + 2.0, self.streams.get(stream, 0.0) + 1.0, after)
        slow = (1 + self.amount("lower clock") * 1.1) * self.gpu * float(np.exp(self.draw.normal(0, 0.012)))
        end = start + length * slow
        self.streams[stream] = end
        args = {"device": self.rank % 8, "context": 1, "stream": stream, "correlation": self.correlation}
        self.event("kernel", kernel, start, end, stream, **args, grid=list(grid), block=[256, 1, 1])
        return end

    def operator(self, name: str, kernels: list[tuple[str, float, tuple[int, int, int]]], stream: int = 7) -> None:
        start = self.host
        self.pause(self.host_us)
        for kernel, length, grid in kernels:
            self.launch(kernel, length, grid, stream)
        self.pause(self.host_us / 2)
        self.event("cpu_op", name, start, self.host, self.pid)

    def product(self, name: str, length: float, tiles: int) -> None:
        more = 1 + self.amount("larger shapes") * 1.1
        grid = (max(1, round(tiles * more)), 8, 1)
        self.operator(name, [("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", length * more, grid)])

    def pointwise(self, name: str, kernel: str, length: float, tiles: int) -> None:
        more = 1 + self.amount("larger shapes") * 1.1
        self.operator(name, [(kernel, length * more, (max(1, round(tiles * more)), 1, 1))])

    def collective(self, axis: str, kind: str, length: float, stream: int, peers: tuple[int, ...] = ()) -> Wait:
        """A collective on its own stream after what was computed; computation after it waits."""
        number, members = self.groups[axis]
        start_op = self.host
        self.pause(self.host_us)
        self.correlation += 1
        call = self.host
        self.pause(5.0)
        self.event("cuda_runtime", "cudaLaunchKernelExC", call, self.host, self.pid, correlation=self.correlation)
        known = {"correlation": self.correlation, "device": self.rank % 8, "context": 1, "stream": stream}
        start = max(self.host + 2.0, self.streams.get(stream, 0.0) + 1.0, self.streams.get(7, 0.0) + 1.0)
        taking = tuple(peers) or tuple(members)
        end = yield (axis, number, taking, kind), start, length
        self.streams[stream] = end
        kernel = {
            "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "all_to_allv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        }[kind.split(":")[0]]
        args = {
            "Collective name": kind.split(":")[0],
            "In msg nelems": int(length * 4096),
            "Out msg nelems": int(length * 4096),
            "Group size": len(members),
            "dtype": "BFloat16",
            "Process Group Name": str(number),
            "Process Group Description": STYLES[self.job.style][axis],
            "Process Group Ranks": str(list(members)),
        }
        if peers:
            args["Src Rank" if kind.startswith("recv") else "Dst Rank"] = next(i for i in peers if i != self.rank)
        self.event("kernel", kernel, start, end, stream, **known, grid=[24, 1, 1], block=[544, 1, 1], **args)
        self.event("cpu_op", "record_param_comms", start_op, self.host, self.pid, **args)

    def join(self, stream: int) -> None:
        """Computation waits for a stream of communication."""
        self.streams[7] = max(self.streams.get(7, 0.0), self.streams.get(stream, 0.0))

    def read_input(self) -> None:
        start = self.host
        self.pause(60 + self.amount("late input") * self.step_us)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.event("user_annotation", name, start, self.host, self.pid)
        self.correlation += 1
        call = self.host
        self.pause(6.0)
        self.event("cuda_runtime", "cudaMemcpyAsync", call, self.host, self.pid, correlation=self.correlation)
        at = max(self.host + 2, self.streams.get(7, 0.0) + 1)
        args = {"device": self.rank % 8, "stream": 7, "correlation": self.correlation, "bytes": 1048576}
        self.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at, at + 45, 7, **args)
        self.streams[7] = at + 45

    def synchronize(self) -> None:
        """loss.item(): the host waits for the device."""
        start = self.host
        self.host = max(self.host + 8, self.streams.get(7, 0.0) + 4)
        self.event("cuda_runtime", "cudaStreamSynchronize", start, self.host, self.pid, correlation=0)
        self.event("cpu_op", "aten::item", start - 1, self.host + 1, self.pid)
        self.host += 3

    def wait_on_host(self) -> None:
        """Faults of the host: it waits for the device to be done, then pauses, as a checkpoint or a lock would."""
        if length := self.amount("host pause") * self.step_us:
            self.synchronize()
            start = self.host
            self.host += length
            self.event("user_annotation", "log_metrics", start, self.host, self.pid)
        if length := self.amount("blocking call") * self.step_us:
            self.synchronize()
            for _ in range(4):
                start = self.host
                self.host += length / 4
                self.event("cuda_runtime", "cudaFree", start, self.host, self.pid, correlation=0)

    def layer(self, backward: bool) -> Wait:
        """Attention and feed-forward, or their gradients, with the collectives of tensor and expert parallelism."""
        factor = 2.0 if backward else 1.0
        tensor, expert = "tp" in self.groups, "ep" in self.groups
        big = 220 * self.width * factor
        suffix = "_backward" if backward else ""
        self.pointwise(f"aten::native_layer_norm{suffix}", "vectorized_layer_norm_kernel", 22 * factor, 2048)
        self.product("aten::mm", big * 0.7, 96)
        more = 1 + self.amount("larger shapes") * 1.1
        attention = ("flash_fwd_kernel<bf16, 128>" if not backward else "flash_bwd_kernel<bf16, 128>", big * 0.6 * more)
        self.operator(f"aten::_flash_attention{suffix}", [(*attention, (round(64 * more), 16, 1))])
        self.product("aten::mm", big * 0.3, 32)
        if tensor:
            yield from self.collective("tp", "allreduce", 40.0, 24)
            self.join(24)
        if expert:
            tokens = float(np.exp(self.draw.normal(0, 0.03)))
            yield from self.collective("ep", "all_to_allv", 55.0, 28)
            self.join(28)
            self.operator("aten::_grouped_mm", [("grouped_gemm_kernel<bf16>", big * 0.9 * more * tokens, (132, 1, 1))])
            yield from self.collective("ep", "all_to_allv", 55.0, 28)
            self.join(28)
        else:
            self.product("aten::mm", big, 128)
            self.pointwise("aten::gelu" + suffix, "vectorized_elementwise_kernel<4, GeluFunctor>", 30 * factor, 4096)
            self.product("aten::mm", big, 128)
        count = self.amount("more kernels") * 3.2 * big / (0.4 * big)
        for _ in range(int(count) + (self.draw.random() < count % 1)):
            self.product("aten::mm", big * 0.4, 64)
        if tensor:
            yield from self.collective("tp", "allreduce", 40.0, 24)
            self.join(24)

    def layers(self, stages: int) -> int:
        """Layers of this rank's stage."""
        return max(1, self.job.layers // (2 if stages > 1 else 1))

    def program(self) -> Wait:
        """Steps of training: input, forward and backward by micro-batches, gradients, optimiser."""
        stages, stage = 1, 0
        if "pp" in self.groups:
            members = self.groups["pp"][1]
            stages, stage = len(members), members.index(self.rank)
        parts = 4 if stages > 1 else 1
        layers = self.layers(stages)
        for step in range(self.job.steps):
            faults = [fault for fault in self.job.faults if fault.rank == self.rank]
            self.active = [fault for fault in faults if self.is_active(fault, step)]
            began = self.host
            self.read_input()
            for part in range(parts):
                if stage:
                    pair = (members[stage - 1], self.rank)
                    yield from self.collective("pp", f"recv:f{part}", 20.0, 31, pair)
                    self.join(31)
                for _ in range(layers):
                    yield from self.layer(backward=False)
                if part == 0:
                    self.wait_on_host()
                if stage + 1 < stages:
                    pair = (self.rank, members[stage + 1])
                    yield from self.collective("pp", f"send:f{part}", 20.0, 32, pair)
            for part in range(parts):
                if stage + 1 < stages:
                    pair = (self.rank, members[stage + 1])
                    yield from self.collective("pp", f"recv:b{part}", 20.0, 33, pair)
                    self.join(33)
                for _ in range(layers):
                    yield from self.layer(backward=True)
                    if "dp" in self.groups and part == parts - 1:
                        yield from self.collective("dp", "allreduce", 130.0, 20)
                if stage:
                    pair = (members[stage - 1], self.rank)
                    yield from self.collective("pp", f"send:b{part}", 20.0, 34, pair)
            self.join(20)
            kernel = "multi_tensor_apply_kernel<AdamFunctor>"
            self.operator("Optimizer.step#AdamW.step", [(kernel, 60.0, (320, 1, 1)), (kernel, 60.0, (320, 1, 1))])
            if self.job.synchronous or step + 1 == self.job.steps:
                self.synchronize()
            self.event("user_annotation", f"ProfilerStep#{step + 10}", began, self.host, self.pid)


def groups_of(job: MeshJob, rank: int) -> dict[str, tuple[int, list[int]]]:
    """For each axis of more than one rank the number and the ranks of this rank's group; the last axis is innermost."""
    shape = tuple(job.mesh.values())
    ranks = np.arange(job.size).reshape(shape)
    result, number = {}, 1
    for axis, name in enumerate(job.mesh):
        moved = np.moveaxis(ranks, axis, -1).reshape(-1, shape[axis])
        row = int(np.flatnonzero((moved == rank).any(axis=1))[0])
        if shape[axis] > 1:
            result[name] = (number + row, [int(i) for i in moved[row]])
        number += len(moved)
    return result


def mesh_place(job: MeshJob, rank: int) -> str:
    """What the place of a rank in the mesh is to be called; nothing where the groups have no names."""
    groups = {} if job.style == "plain" else groups_of(job, rank)
    return ", ".join(f"{AXES[name]} {members.index(rank)}/{len(members)}" for name, (_, members) in groups.items())


def simulate(job: MeshJob, kind: type[Rank] = Rank) -> list[Rank]:
    """Run all ranks; one that comes to a collective waits until its partners have come."""
    step_us = _length(simulate(replace(job, faults=[]))) / job.steps if job.faults else 0.0
    ranks = [kind(job, rank, step_us) for rank in range(job.size)]
    noise = np.random.default_rng([job.seed, 3])
    waiting: dict[tuple, dict[int, float]] = {}
    running = {rank.rank: rank.program() for rank in ranks}
    ready: list[tuple[int, float | None]] = [(rank.rank, None) for rank in ranks]
    while ready:
        index, value = ready.pop()
        try:
            key, start, length = running[index].send(value)  # type: ignore[arg-type]
        except StopIteration:
            continue
        axis, number, taking, kind = key
        tag = (axis, number, taking, kind.split(":")[-1] if ":" in kind else kind)
        arrived = waiting.setdefault(tag, {})
        arrived[index] = start
        if len(arrived) == len(taking):
            end = max(arrived.values()) + length * float(np.exp(noise.normal(0, 0.05)))
            del waiting[tag]
            ready += [(one, end + float(noise.uniform(0, 3))) for one in arrived]
    assert not waiting, "ranks wait for each other"
    return ranks


def _length(ranks: list[Rank]) -> float:
    return max(event["ts"] + event["dur"] for event in ranks[0].events)


def write(job: MeshJob, folder: Path, kind: type[Rank] = Rank) -> list[Path]:
    """A trace for each rank, as PyTorch's profiler writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    clocks = np.random.default_rng([job.seed, 4])
    nodes = clocks.uniform(-2000, 2000, job.size // 8 + 1)
    files = []
    for rank in simulate(job, kind):
        at = 4.2e9 + nodes[rank.rank // 8]
        events = [event | {"ts": round(event["ts"] + at, 3)} for event in sorted(rank.events, key=lambda e: e["ts"])]
        groups = [
            {"pg_name": str(number), "pg_desc": STYLES[job.style][axis], "pg_size": len(members), "ranks": members}
            for axis, (number, members) in rank.groups.items()
        ]
        about = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": i, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for i in range(8)],
            "distributedInfo": {"backend": "nccl", "rank": rank.rank, "world_size": job.size, "pg_config": groups},
            "traceEvents": events,
            "baseTimeNanoseconds": 1764000000000000000,
        }
        name = f"node{rank.rank // 8}_{rank.pid}.17640000{rank.draw.integers(10**9, 10**10)}"
        path = folder / f"{f'rank{rank.rank}' if job.named == 'rank' else name}.pt.trace.json.gz"
        with gzip.open(path, "wt", compresslevel=1) as file:
            json.dump(about, file)
        files.append(path)
    return files
