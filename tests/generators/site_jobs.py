"""Recordings of jobs of 8 and 64 ranks with what goes wrong in clusters of 2024 to 2026, as nsys exports or PyTorch
traces; of a seventh author. Nothing of the product is used.

A rank is a program on a host thread, a compute stream and streams of communication; a collective ends for all of its
ranks together. Parameters are sharded over data (and context) ranks: gathered a layer ahead, gradients scattered behind
the next layer. What a fault costs is known: the same job is run without it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from builders import ExportBuilder

MORE, SLOWER, INPUT, HOST = {"more work"}, {"slower work"}, {"input"}, {"host"}
# What is planted → how the product may call it; nothing: nobody is late. Another kernel for the same operation, or a
# persistent one that has more to do, is either.
CASES = {
    "throttle": SLOWER, "sequences": MORE, "loader": INPUT, "slow network": set(), "autotune": MORE | SLOWER,
    "error retries": SLOWER, "garbage collection": HOST, "hot expert": MORE | SLOWER, "longer stage": MORE,
    "context shards": MORE, "two": set(), "nothing": set(),
}  # fmt: skip
OF_TWO = ("throttle", "sequences", "loader", "autotune")
_MESHES = {
    8: ({"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 2, "cp": 4}, {"pp": 4, "dp": 2}, {"dp": 8, "ep": 8}),
    64: ({"dp": 64}, {"dp": 8, "tp": 8}, {"dp": 16, "cp": 4}, {"pp": 4, "dp": 16}, {"dp": 64, "ep": 8}),
}
_NEEDS = {"hot expert": "ep", "longer stage": "pp", "context shards": "cp"}
_NAMES = (
    {"dp": "mesh_dp_shard", "tp": "mesh_tp", "cp": "mesh_cp", "pp": "mesh_pp", "ep": "mesh_ep"},
    {"dp": "DATA_PARALLEL_GROUP", "tp": "TENSOR_MODEL_PARALLEL_GROUP", "cp": "CONTEXT_PARALLEL_GROUP",
     "pp": "PIPELINE_MODEL_PARALLEL_GROUP", "ep": "EXPERT_MODEL_PARALLEL_GROUP"},
)  # fmt: skip
_NCCL = {
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_allv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
_GEMM, _OTHER = "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT", "cutlass_80_tensorop_bf16_s16816gemm_128x64_64x3_tn_align8"
Meet = Generator[tuple, float, None]


@dataclass(frozen=True)
class Fault:
    """What is wrong with some ranks; ``size``: of a step; ``every``: it is there in each ``every``-th step, larger."""

    cause: str
    ranks: tuple[int, ...]
    size: float
    every: int = 1


@dataclass
class SiteJob:
    """``late``: rank → how the product may call its cause. ``spared``: ranks that may be named as well. ``costs``: how
    much longer the job takes for its faults, in relation to the job without them."""

    seed: int
    case: str
    form: str
    mesh: dict[str, int]
    faults: list[Fault]
    steps: int
    layers: int
    names: int
    ragged: float  # spread of the number of tokens of a rank in a step
    synchronous: bool
    late: dict[int, set[str]] = field(default_factory=dict)
    spared: set[int] = field(default_factory=set)
    costs: float = 0.0

    @property
    def size(self) -> int:
        return int(np.prod([length for axis, length in self.mesh.items() if axis != "ep"]))

    @property
    def node(self) -> int:
        return 8 if self.size > 8 else 4

    def members(self, axis: str, rank: int) -> list[int]:
        """The ranks of the group of a rank; experts are spread over data ranks side by side."""
        if axis == "ep":
            return [rank // self.mesh["ep"] * self.mesh["ep"] + k for k in range(self.mesh["ep"])]
        axes = [one for one in self.mesh if one != "ep"]
        place = np.arange(self.size).reshape([self.mesh[one] for one in axes])
        lines = np.moveaxis(place, axes.index(axis), -1).reshape(-1, self.mesh[axis])
        return [int(one) for one in lines[(lines == rank).any(axis=1)][0]]


def site_job(seed: int, size: int = 8, case: str = "", form: str = "") -> SiteJob:
    """Draw a job; seeds go round the cases. A fault costs the job at least 3 %: else it is drawn larger."""
    draw = np.random.default_rng([seed, size, 2026])
    case = case or list(CASES)[seed % len(CASES)]
    axis = _NEEDS.get(case)
    meshes = [mesh for mesh in _MESHES[size] if axis is None or axis in mesh]
    if case in ("loader", "two"):  # stages behind the first one read no input
        meshes = [mesh for mesh in meshes if "pp" not in mesh]
    mesh = meshes[int(draw.integers(len(meshes)))]
    form = form or ("pytorch", "nsys")[seed // len(CASES) % 2]
    if form == "nsys" and len(mesh) > 1 and axis is None:  # exports name no groups: one for all
        mesh = _MESHES[size][0]
    form = form if len(mesh) == 1 else "pytorch"
    job = SiteJob(
        seed, case, form, mesh, [], 10 if size == 8 else 6, int(draw.integers(3, 5)) if size == 8 else 2,
        int(draw.integers(2)), 0.12 if draw.random() < 0.25 else 0.0, bool(draw.random() < 0.7),
    )  # fmt: skip
    rank, other = (int(one) for one in draw.permutation(size)[:2])
    share = float(draw.uniform(0.08, 0.25))
    node = tuple(range(rank // job.node * job.node, (rank // job.node + 1) * job.node))
    every = 3 if case == "loader" and draw.random() < 0.4 else 1
    if case in ("loader", "garbage collection", "two"):
        job.synchronous = True  # else the host is ahead by more than it is late
    ranks: tuple[int, ...] = (rank,)
    if case == "throttle" and size > 8:
        ranks = node  # its fans
    if case == "slow network":
        ranks = node
    if case == "longer stage":
        stage = job.members("pp", rank).index(rank)
        ranks = tuple(one for one in range(size) if job.members("pp", one).index(one) == stage)
    if case == "context shards":
        ranks = tuple(range(size))
    job.faults = [Fault(case, ranks, share, every)] if case not in ("nothing", "two") else []
    if case == "two":
        first, second = (str(one) for one in draw.permutation(OF_TWO)[:2])
        job.faults = [Fault(first, (rank,), share), Fault(second, (other,), share * float(draw.uniform(0.85, 1.15)))]
    while job.faults:
        plain = _length(simulate(replace(job, faults=[]), 0.0))
        job.costs = _length(simulate(job, plain / job.steps)) / plain - 1
        if job.costs >= 0.03 or max(fault.size for fault in job.faults) > 2:
            break
        job.faults = [replace(fault, size=fault.size * 1.4) for fault in job.faults]
    for fault in job.faults:
        if fault.cause == "context shards":  # of each group the last one has most, and those before it some more
            job.late |= {one: CASES[case] for one in ranks if job.members("cp", one)[-1] == one}
            job.spared = {one for one in ranks if job.members("cp", one)[-2] == one}
        elif CASES[fault.cause]:
            job.late |= dict.fromkeys(fault.ranks, CASES[fault.cause])
    return job


class Rank:
    """One process. Times in µs."""

    def __init__(self, job: SiteJob, rank: int, step_us: float) -> None:
        self.job, self.rank, self.step_us = job, rank, step_us
        self.draw = np.random.default_rng([job.seed, job.size, 1, rank])
        self.luck = np.random.default_rng([job.seed, job.size, 2, rank])  # of faults: the rest is drawn alike
        shared = np.random.default_rng([job.seed, job.size, 3])
        self.width, self.host_us = float(shared.uniform(0.7, 1.5)), float(shared.uniform(5, 12))
        self.speed = 1 + float(self.draw.normal(0, 0.003))
        self.host = float(self.draw.uniform(0, 500))
        self.free: dict[int, float] = {}
        self.work: list[tuple] = []  # (kind, name, call start, call end, start, end, stream, grid, args)
        self.ranges: list[tuple[str, str, float, float]] = []
        self.tokens = 1.0
        self.step = 0
        self.retries: set[int] = set()

    def fault(self, cause: str) -> float:
        """How large it is in this step."""
        for one in self.job.faults:
            if one.cause == cause and self.rank in one.ranks and self.step % one.every == one.every - 1:
                return one.size * one.every
        return 0.0

    def spend(self, length: float) -> None:
        self.host += length * float(np.exp(self.draw.normal(0, 0.2)))

    def launch(self, name: str, length: float, grid: int, stream: int = 7, **args: object) -> None:
        call = self.host
        self.spend(4.5)
        slow = 1 + self.fault("throttle") * 1.15
        length *= slow * self.speed * float(np.exp(self.draw.normal(0, 0.012)))
        if self.retries and len(self.work) in self.retries:  # the memory is read again
            length += self.fault("error retries") * self.step_us * self.job.steps / len(self.retries)
        start = max(self.host + 2, self.free.get(stream, 0.0) + 0.8)
        self.free[stream] = start + length
        self.work.append(("kernel", name, call, self.host, start, start + length, stream, grid, args))

    def op(self, name: str, *kernels: tuple[str, float, int]) -> None:
        begin = self.host
        self.spend(self.host_us)
        for kernel in kernels:
            self.launch(*kernel)
        self.spend(self.host_us / 3)
        self.ranges.append(("cpu_op", name, begin, self.host))

    def gemm(self, length: float, tiles: int, tokens: float) -> None:
        if other := self.fault("autotune"):
            self.op("aten::mm", (_OTHER, length * tokens * (1 + 1.7 * other), round(2 * tiles * tokens)))
        else:
            self.op("aten::mm", (_GEMM, length * tokens, round(tiles * tokens)))

    def meet(self, axis: str, kind: str, length: float, stream: int, behind: bool, peer: int = -1) -> Meet:
        """A collective; ``behind``: it needs what was computed before."""
        begin, members = self.host, self.job.members(axis, self.rank)
        self.spend(self.host_us)
        call = self.host
        self.spend(5)
        start = max(self.host + 2, self.free.get(stream, 0.0) + 0.8, self.free.get(7, 0.0) + 0.8 if behind else 0.0)
        pair = (self.rank, peer) if kind == "send" else (peer, self.rank)
        taking = pair if peer >= 0 else tuple(members)
        args: dict[str, object] = {
            "Collective name": kind, "dtype": "BFloat16", "In msg nelems": int(length * 9_000),
            "Out msg nelems": int(length * 9_000), "Group size": len(members),
            "Process Group Name": f"{axis}{members[0]}", "Process Group Description": _NAMES[self.job.names][axis],
            "Process Group Ranks": str(members),
        }  # fmt: skip
        if peer >= 0:
            args["Dst Rank" if kind == "send" else "Src Rank"] = peer
        end = yield (axis, "p2p" if peer >= 0 else kind, taking), start, length
        self.free[stream] = end
        self.work.append(("nccl", _NCCL[kind], call, self.host, start, end, stream, 24, args))
        self.ranges.append(("cpu_op", "record_param_comms", begin, self.host))

    def join(self, stream: int) -> None:
        self.free[7] = max(self.free.get(7, 0.0), self.free.get(stream, 0.0))

    def synchronize(self) -> None:
        begin = self.host
        self.host = max(self.host + 6, max(self.free.values(), default=0.0) + 4)
        self.ranges.append(("sync", "cudaStreamSynchronize", begin, self.host))

    def read(self) -> None:
        begin = self.host
        self.spend(70 + self.fault("loader") * self.step_us)
        self.ranges.append(
            ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin, self.host)
        )
        call = self.host
        self.spend(6)
        start = max(self.host + 2, self.free.get(7, 0.0) + 1)
        self.free[7] = start + 38
        self.work.append(
            ("copy", "Memcpy HtoD (Pinned -> Device)", call, self.host, start, start + 38, 7, 0, {"bytes": 1 << 21})
        )

    def layer(self, backward: bool) -> Meet:
        mesh, more = self.job.mesh, 2.0 if backward else 1.0
        tokens = self.tokens * (1 + 1.3 * self.fault("sequences"))
        big = 260 * self.width * more
        suffix = "_backward" if backward else ""
        rows = round(4096 * tokens)
        self.op(
            "aten::native_layer_norm" + suffix,
            (
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
                18 * tokens * more,
                rows,
            ),
        )
        self.gemm(0.6 * big, 192, tokens)
        flash = f"void flash::flash_{'bwd_dq_dk_dv_loop_seqk_parallel' if backward else 'fwd'}_kernel<bf16, 128>"
        if "cp" in mesh:  # keys of the others come by an all-gather
            yield from self.meet("cp", "all_gather", 45, 26, True)
            self.join(26)
            place = self.job.members("cp", self.rank).index(self.rank)
            blocks = place + 1 if self.fault("context shards") else (mesh["cp"] + 1) // 2 + 1
            for _ in range(blocks):
                self.op("aten::_flash_attention" + suffix, (flash, 0.22 * big * tokens, round(256 * tokens)))
        else:
            self.op("aten::_flash_attention" + suffix, (flash, 0.5 * big * tokens**2, round(512 * tokens)))
        self.gemm(0.3 * big, 96, tokens)
        if "tp" in mesh:
            yield from self.meet("tp", "allreduce", 42, 24, True)
            self.join(24)
        if "ep" in mesh:
            yield from self.meet("ep", "all_to_allv", 60, 28, True)
            self.join(28)
            mine = tokens * (1 + 3 * self.fault("hot expert")) * float(np.exp(self.draw.normal(0, 0.02)))
            self.op(
                "aten::_grouped_mm",
                ("void cutlass::device_kernel<GemmUniversal<GroupProblemShape>>", 0.9 * big * mine, 132),
            )
            self.op(
                "aten::silu" + suffix,
                ("void at::native::vectorized_elementwise_kernel<4, silu_mul>", 30 * mine * more, round(4096 * mine)),
            )
            self.op(
                "aten::_grouped_mm",
                ("void cutlass::device_kernel<GemmUniversal<GroupProblemShape>>", 0.5 * big * mine, 132),
            )
            yield from self.meet("ep", "all_to_allv", 60, 28, True)
            self.join(28)
        else:
            self.gemm(big, 384, tokens)
            self.op(
                "aten::silu" + suffix,
                ("void at::native::vectorized_elementwise_kernel<4, silu_mul>", 30 * tokens * more, rows),
            )
            self.gemm(0.8 * big, 192, tokens)
        if "tp" in mesh:
            yield from self.meet("tp", "allreduce", 42, 24, True)
            self.join(24)

    def passes(self, layers: int, backward: bool) -> Meet:
        """All layers; what is sharded is gathered a layer ahead, and gradients are scattered a layer behind."""
        yield from self.meet("dp", "all_gather", 90, 21, False)
        for index in range(layers):
            self.join(21)
            if index + 1 < layers:
                yield from self.meet("dp", "all_gather", 90, 21, False)
            yield from self.layer(backward)
            if backward:
                yield from self.meet("dp", "reduce_scatter", 110, 22, True)

    def program(self) -> Meet:
        mesh, job = self.job.mesh, self.job
        stages = job.members("pp", self.rank) if "pp" in mesh else [self.rank]
        stage = stages.index(self.rank)
        parts = 4 if len(stages) > 1 else 1
        layers = max(1, job.layers // len(stages)) + bool(
            any(f.cause == "longer stage" and self.rank in f.ranks for f in job.faults)
        )
        lengths = np.random.default_rng([job.seed, job.size, 4, self.rank // mesh.get("tp", 1)])
        tokens = np.exp(lengths.normal(0, job.ragged, job.steps))
        tokens /= tokens.mean()  # over all steps each rank has as many
        steps_of_retry = (
            self.luck.permutation(job.steps - 1)[:2] + 1 if any(f.cause == "error retries" for f in job.faults) else ()
        )
        for step in range(job.steps):
            self.step, begin = step, self.host
            self.tokens = float(tokens[step])
            self.retries = set()
            if step in steps_of_retry and self.fault("error retries"):
                self.retries = {len(self.work) + int(self.luck.integers(5, 30))}
                self.retries |= {one + 1 for one in self.retries}
            if stage == 0:
                self.read()
            collects = self.fault("garbage collection") and self.luck.random() < 0.4
            for part in range(parts):
                if stage:
                    yield from self.meet("pp", "recv", 25, 31, False, stages[stage - 1])
                    self.join(31)
                yield from self.passes(layers, False)
                if collects and part == 0:
                    self.host += (
                        self.fault("garbage collection") * 2.5 * self.step_us * float(np.exp(self.luck.normal(0, 0.2)))
                    )
                if stage + 1 < len(stages):
                    yield from self.meet("pp", "send", 25, 32, True, stages[stage + 1])
            for _ in range(parts):
                if stage + 1 < len(stages):
                    yield from self.meet("pp", "recv", 25, 33, False, stages[stage + 1])
                    self.join(33)
                yield from self.passes(layers, True)
                if stage:
                    yield from self.meet("pp", "send", 25, 34, True, stages[stage - 1])
            self.join(22)
            yield from self.meet("dp", "allreduce", 14, 22, True)  # the norm of gradients
            self.join(22)
            adam = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
            self.op("Optimizer.step#AdamW.step", (adam, 70, 640), (adam, 70, 640))
            if job.synchronous or step + 1 == job.steps:
                self.synchronize()
            self.ranges.append(("step", f"ProfilerStep#{step + 20}", begin, self.host))


def simulate(job: SiteJob, step_us: float) -> list[Rank]:
    """All ranks; each waits at a collective until its partners are there, which is slower over a slow network."""
    ranks = [Rank(job, rank, step_us) for rank in range(job.size)]
    running, counts = [rank.program() for rank in ranks], [dict[tuple, int]() for _ in ranks]
    noise = np.random.default_rng([job.seed, job.size, 5])
    slow = [fault for fault in job.faults if fault.cause == "slow network"]
    waiting: dict[tuple, dict[int, float]] = {}
    ready: list[tuple[int, float | None]] = [(rank.rank, None) for rank in ranks]
    while ready:
        index, value = ready.pop()
        try:
            key, start, length = running[index].send(value)  # type: ignore[arg-type]
        except StopIteration:
            continue
        turn = counts[index][key] = counts[index].get(key, -1) + 1
        arrived = waiting.setdefault((*key, turn), {})
        arrived[index] = start
        if len(arrived) == len(key[2]):
            nodes = {one // job.node for one in arrived}
            for fault in slow if len(nodes) > 1 else ():
                length *= 1 + 18 * fault.size * (fault.ranks[0] // job.node in nodes)
            end = max(arrived.values()) + length * float(np.exp(noise.normal(0, 0.06)))
            del waiting[(*key, turn)]
            ready += [(one, end + float(noise.uniform(0, 3))) for one in sorted(arrived)]
    assert not waiting, "ranks wait for each other"
    return ranks


def _length(ranks: list[Rank]) -> float:
    return max(row[5] for rank in ranks for row in rank.work) - min(row[4] for rank in ranks for row in rank.work)


def write(job: SiteJob, folder: Path) -> list[Path]:
    """A file for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = _length(simulate(replace(job, faults=[]), 0.0)) / job.steps
    clocks = np.random.default_rng([job.seed, job.size, 6]).uniform(0, 3e6, job.size // job.node)
    make = _kineto if job.form == "pytorch" else _nsys
    return [make(job, rank, folder, float(clocks[rank.rank // job.node])) for rank in simulate(job, plain)]


def _kineto(job: SiteJob, rank: Rank, folder: Path, ahead: float) -> Path:
    events, pid, device = [], 7000 + rank.rank, rank.rank % job.node
    for cat, name, begin, end in rank.ranges:
        cat = {"step": "user_annotation", "sync": "cuda_runtime"}.get(cat, cat)
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": begin, "dur": end - begin, "args": {}}
        )
    for number, (kind, name, call, called, begin, end, stream, grid, args) in enumerate(rank.work):
        api = {"kernel": "cudaLaunchKernel", "nccl": "cudaLaunchKernelExC", "copy": "cudaMemcpyAsync"}[kind]
        link = {"correlation": 500 + number}
        events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": api,
                "pid": pid,
                "tid": pid,
                "ts": call,
                "dur": called - call,
                "args": link,
            }
        )
        more = {"device": device, "context": 1, "stream": stream} | link | args
        more |= {} if kind == "copy" else {"grid": [grid, 1, 1], "block": [256, 1, 1]}
        cat = "gpu_memcpy" if kind == "copy" else "kernel"
        events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": device,
                "tid": stream,
                "ts": begin,
                "dur": end - begin,
                "args": more,
            }
        )
    for event in events:
        event["ts"], event["dur"] = round(event["ts"] + 5e9 + ahead, 3), round(event["dur"], 3)
    groups = [
        {"pg_name": f"{axis}{(members := job.members(axis, rank.rank))[0]}", "pg_desc": _NAMES[job.names][axis],
         "pg_size": len(members), "ranks": members} for axis in job.mesh
    ]  # fmt: skip
    about = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": k, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for k in range(job.node)],
        "distributedInfo": {"backend": "nccl", "rank": rank.rank, "world_size": job.size, "pg_config": groups},
        "traceEvents": sorted(events, key=lambda event: event["ts"]),
        "baseTimeNanoseconds": 1767000000000000000,
    }
    path = folder / f"rank{rank.rank}.pt.trace.json.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump(about, file)
    return path


def _nsys(job: SiteJob, rank: Rank, folder: Path, ahead: float) -> Path:
    def ns(*times: float) -> tuple[int, ...]:
        return tuple(round((one + ahead) * 1000) for one in times)

    builder = ExportBuilder().process(7000 + rank.rank)
    for cat, name, begin, end in rank.ranges:
        if cat == "sync":
            builder.api(name + "_v3020", *ns(begin, end))
        elif cat != "cpu_op":
            builder.range(
                {"step": name.replace("ProfilerStep#", "step ")}.get(
                    cat, "dataloader.next" if "Loader" in name else name
                ),
                *ns(begin, end),
            )
    for kind, name, call, called, begin, end, stream, grid, args in rank.work:
        where = {"launch": ns(call, called), "run": ns(begin, end), "stream": stream, "device": rank.rank % job.node}
        if kind == "copy":
            builder.memcpy(int(args["bytes"]), **where)
            continue
        if kind == "nccl":
            words = "".join(part.title() for part in str(args["Collective name"]).split("_")).replace(
                "Allreduce", "AllReduce"
            )
            builder.range("nccl" + words, *ns(call - 2, called), domain="NCCL")
        builder.kernel(name, grid=(grid, 1, 1), **where)
    return builder.write(folder / f"pretrain_rank{rank.rank}.sqlite")
