"""Jobs of any number of ranks as the files they leave: a PyTorch trace a rank, or an nsys export a rank.

`simulate` runs all ranks at once: a mesh of data and tensor parallel groups, layers of kernels that end in a collective
of the tensor group, gradients that are reduced in the data group beside the computation. `write` writes one rank.
Traces are as torch.profiler writes them: `distributedInfo` with `pg_config`, `record_param_comms` around the launch,
the collective's arguments on the kernel itself, arrows, names of files that hold host and process and no rank.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from builders import ExportBuilder

CAUSES = ("", "more kernels", "larger shapes", "slower clock", "slow layer", "input", "host", "copies")
WORDS = {
    "more kernels": "more work", "larger shapes": "more work", "slower clock": "slower work",
    "slow layer": "slower work", "input": "input", "host": "host", "copies": "copies",
}  # fmt: skip
KERNELS = (
    ("void at::native::vectorized_layer_norm_kernel<float, float>(int, float, float const*)", 128, 9),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 216, 46),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn", 432, 38),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)", 192, 52),
    ("void at::native::elementwise_kernel<128, 4, at::native::gelu>(int, float*)", 512, 14),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<adam>(long, float*)", 320, 21),
)
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COLLECTIVES = {REDUCE: ("allreduce", "BFloat16", 4_194_304), SCATTER: ("_reduce_scatter_base", "Float", 8_388_608)}
COMPUTE, TENSOR, DATA = 7, 20, 24
_START_NS, _SKIPPED = 1_751_410_836_123_456_789, -1


@dataclass
class Job:
    """The operations of all ranks: lists of (kind, name, grid, stream, group, thread, launch, start, end), the last
    three of shape (ranks,), start −1 on ranks without it; ranges likewise as (kind, name, thread, start, end). Thread 1
    is autograd's."""

    ranks: int
    tensor: int
    cause: str
    late_rank: int
    operations: list[tuple] = field(default_factory=list)
    ranges: list[tuple] = field(default_factory=list)
    late_ns: float = 0.0  # planted, of the late rank in all steps

    def groups(self, axis: str) -> np.ndarray:
        """Number of each rank's group, shape (ranks,)."""
        rank = np.arange(self.ranks)
        return rank // self.tensor if axis == "tp" else rank % self.tensor if axis == "dp" else rank * 0


def simulate(
    seed: int, ranks: int = 8, *, tensor: int = 2, steps: int = 6, layers: int = 4, kernels: int = 10, cause: str = "",
    noise: float = 0.01, share: float = 0.0,
) -> Job:  # fmt: skip
    """``share``: of a step's kernel time, which the cause costs the late rank a step; 0 drawn."""
    random = np.random.default_rng(seed)
    late = int(random.integers(ranks)) if cause else -1
    job, is_late = Job(ranks, tensor, cause, late), np.arange(ranks) == late
    chosen = [KERNELS[k % len(KERNELS)] for k in range(kernels)]
    work_ns = layers * sum(us for *_, us in chosen) * 2_000
    extra = work_ns * (share or random.choice([0.15, 0.3, 0.5]))
    slow_layer = int(random.integers(layers))
    host = random.integers(0, 3_000_000, ranks).astype(float)
    free = {stream: np.zeros(ranks) for stream in (COMPUTE, TENSOR, DATA)}
    where, thread = np.ones(ranks, bool), 0

    def length(ns: float) -> np.ndarray:
        return ns * random.lognormal(0, noise, ranks)

    def launch(kind: str, name: str, ns: np.ndarray, grid=0, stream=COMPUTE, group="", after=0.0, on=where) -> None:
        nonlocal host
        called = host.copy()
        host = np.where(on, host + length(5_000), host)
        start = np.maximum(np.maximum(called + 4_000, free[stream] + 1_000), after)
        end = start + ns
        if group:
            number = job.groups(group)
            last = np.full(number.max() + 1, -np.inf)
            np.maximum.at(last, number, start)
            end = last[number] + ns[np.unique(number, return_index=True)[1]][number]
        free[stream] = np.where(on, end, free[stream])
        job.operations.append((kind, name, np.broadcast_to(grid, ranks), stream, group, thread, called,
                               np.where(on, start, _SKIPPED), end))  # fmt: skip

    def layer(number: int) -> None:
        for name, grid, us in chosen:
            ns, grids = length(us * 1_000), np.full(ranks, grid)
            if cause == "slower clock" or (cause == "slow layer" and number == slow_layer):
                ns *= np.where(is_late, 1 + extra / work_ns * (layers if cause == "slow layer" else 1), 1.0)
            if cause == "larger shapes" and "gemm" in name:
                gemms = sum(us for text, _, us in chosen if "gemm" in text) * 2_000 * layers
                ns, grids = ns * np.where(is_late, 1 + extra / gemms, 1.0), np.where(is_late, grid * 2, grid)
            launch("kernel", name, ns, grids)
        if cause == "more kernels":
            more = length(extra / layers / 4)
            for _ in range(2):
                launch("kernel", "void padded_tokens_kernel<float>(float*, int)", more, 64, on=is_late)
        launch("kernel", REDUCE, length(60_000), 24, TENSOR, "tp", free[COMPUTE])
        free[COMPUTE] = np.maximum(free[COMPUTE], free[TENSOR])

    for step in range(steps):
        began = host.copy()
        loading = host.copy()
        host += length(80_000) + (extra * is_late if cause == "input" else 0)
        text = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        job.ranges.append(("user_annotation", text, 0, loading, host.copy()))
        launch("memcpy", "HtoD", length(120_000) + (extra * is_late if cause == "copies" else 0))
        host += length(50_000) + (extra * is_late if cause == "host" else 0)
        for thread in range(2):  # forward, backward
            entered = host.copy()
            for number in range(layers):
                opened = host.copy()
                layer(number)
                text = "autograd::engine::evaluate_function: BlockBackward0" if thread else f"nn.Module: Block_{number}"
                job.ranges.append(("cpu_op" if thread else "python_function", text, thread, opened, host.copy()))
                if thread:
                    launch("kernel", SCATTER, length(150_000), 16, DATA, "dp", free[COMPUTE])
            if not thread:
                job.ranges.append(("python_function", "nn.Module: GPT_0", 0, entered - 900, host + 900))
        thread = 0
        opened = host.copy()
        launch("kernel", KERNELS[-1][0], length(60_000), 640, after=free[DATA])
        job.ranges.append(("user_annotation", "Optimizer.step#AdamW.step", 0, opened, host.copy()))
        host = np.maximum(host, np.maximum(free[COMPUTE], free[DATA])) + 5_000
        free[COMPUTE] = np.maximum(free[COMPUTE], free[DATA])
        job.ranges.append(("user_annotation", f"ProfilerStep#{step}", 0, began, host.copy()))
        host += 10_000
    job.late_ns = extra * steps if cause else 0.0
    return job


def file_name(job: Job, rank: int, per_host: int = 8, kind: str = "torch") -> str:
    if kind == "nsys":
        return f"train_rank{rank}.sqlite"
    return f"gpu-node-{rank // per_host:03d}_{40_000 + 37 * rank % 9_000}.{1_751_410_840_000 + rank}.pt.trace.json.gz"


def write(job: Job, folder: Path, rank: int, kind: str = "torch") -> Path:
    path = folder / file_name(job, rank, kind=kind)
    return (_write_nsys if kind == "nsys" else _write_torch)(job, path, rank)


def _members(job: Job, axis: str, rank: int) -> list[int]:
    number = job.groups(axis)
    return np.flatnonzero(number == number[rank]).tolist()


def _write_torch(job: Job, path: Path, rank: int) -> Path:
    pid, device = 40_000 + 37 * rank % 9_000, rank % 8
    offset = _START_NS + rank * 1_234_567  # no two clocks agree
    names = {"tp": "1", "dp": "2", "": "0"}
    said = {axis: (f"mesh_{axis}" if axis else "default_pg", _members(job, axis, rank)) for axis in names}

    def us(ns: float) -> str:
        return f"{(offset + int(ns)) // 1000}.{(offset + int(ns)) % 1000:03d}"

    config = ", ".join(
        f'{{"pg_name": "{names[axis]}", "pg_desc": "{label}", "backend_config": "cuda:nccl", "pg_size": {len(ranks)}, '
        f'"ranks": {ranks}}}' for axis, (label, ranks) in said.items()
    )  # fmt: skip
    lines = []
    threads, comm = [f'"pid": {pid}, "tid": {pid + 60 * one}' for one in range(2)], f'"pid": {device}, "tid"'
    for number, (kind, text, thread, start, end) in enumerate(job.ranges):
        main = threads[thread]
        key = "Python id" if kind == "python_function" else "External id"
        lines.append(f'{{"ph": "X", "cat": "{kind}", "name": "{text}", {main}, "ts": {us(start[rank])}, "dur": '
                     f'{(end - start)[rank] / 1000:.3f}, "args": {{"{key}": {number + 1}}}}}')  # fmt: skip
    for number, (kind, name, grid, stream, group, thread, called, start, end) in enumerate(job.operations, 1_000):
        if start[rank] == _SKIPPED:
            continue
        main = threads[thread]
        more, call = "", "cudaLaunchKernel" if kind == "kernel" else "cudaMemcpyAsync"
        if group:
            label, ranks = said[group]
            operation, dtype, elements = COLLECTIVES[name]
            more = (
                f', "Collective name": "{operation}", "In msg nelems": {elements}, "Out msg nelems": {elements}, '
                f'"Group size": {len(ranks)}, "dtype": "{dtype}", "In split size": "[]", "Out split size": "[]", '
                f'"Process Group Name": "{names[group]}", "Process Group Description": "{label}", '
                f'"Process Group Ranks": "{ranks}"'
            )
            call = "cudaLaunchKernelExC"
            lines.append(f'{{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", {main}, "ts": '
                         f'{us(called[rank] - 300)}, "dur": 4.900, "args": {{"External id": {number}{more}, '
                         f'"Seq": {number}}}}}')  # fmt: skip
        lines.append(f'{{"ph": "X", "cat": "cuda_runtime", "name": "{call}", {main}, "ts": {us(called[rank])}, "dur": '
                     f'4.200, "args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}}')  # fmt: skip
        place = f'"device": {device}, "context": 1, "stream": {stream}, "correlation": {number}'
        if kind == "kernel":
            args = f'"External id": {number}, "queued": 0, {place}, "registers per thread": 64, "shared memory": 0, ' \
                   f'"grid": [{grid[rank]}, 1, 1], "block": [256, 1, 1]{more}'  # fmt: skip
        else:
            name = "Memcpy HtoD (Pinned -> Device)"
            args = f'"External id": {number}, {place}, "bytes": {int((end - start)[rank] * 20)}'
        event = "kernel" if kind == "kernel" else "gpu_memcpy"
        lines.append(f'{{"ph": "X", "cat": "{event}", "name": "{name}", {comm}: {stream}, "ts": {us(start[rank])}, '
                     f'"dur": {(end - start)[rank] / 1000:.3f}, "args": {{{args}}}}}')  # fmt: skip
        lines.append(f'{{"ph": "s", "id": {number}, {main}, "ts": {us(called[rank])}, "cat": "ac2g", "name": "ac2g"}}')
        lines.append(f'{{"ph": "f", "id": {number}, {comm}: {stream}, "ts": {us(start[rank])}, "cat": "ac2g", '
                     '"name": "ac2g", "bp": "e"}')  # fmt: skip
    head = (
        '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": '
        '85031714816, "computeMajor": 9, "computeMinor": 0, "numSms": 132}], "distributedInfo": {"backend": "nccl", '
        f'"rank": {rank}, "world_size": {job.ranks}, "pg_count": 3, "pg_config": [{config}], "nccl_version": "2.21.5"'
        '}, "traceEvents": [\n'
    )
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as stream:
        stream.write(head + ",\n".join(lines) + "\n]}\n")
    return path


def _write_nsys(job: Job, path: Path, rank: int) -> Path:
    builder, pid, offset = ExportBuilder(), 1_000 + rank, 5_000_000 + rank * 1_234_567
    builder.process(pid).gpu(0, name="NVIDIA H100 80GB HBM3")
    for kind, text, _, start, end in job.ranges:
        if kind == "user_annotation":
            builder.range(text.replace("ProfilerStep#", "step "), offset + int(start[rank]), offset + int(end[rank]))
    for kind, name, grid, stream, group, _, called, start, end in job.operations:
        if start[rank] == _SKIPPED:
            continue
        at = offset + int(called[rank])
        run = (offset + int(start[rank]), offset + int(end[rank]))
        if group:
            builder.range(
                "ncclAllReduce" if name == REDUCE else "ncclReduceScatter", at - 300, at + 4_600, domain="NCCL"
            )
        if kind == "kernel":
            builder.kernel(name, launch=(at, at + 4_200), run=run, grid=(int(grid[rank]), 1, 1), stream=stream)
        else:
            builder.memcpy(int((end - start)[rank] * 20), kind=name, launch=(at, at + 4_200), run=run, stream=stream)
    return builder.write(path)
