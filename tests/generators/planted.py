"""Programs with a planted bottleneck: what limits them, which advice is right, what its cure really gains.

`plant(seed)` makes the recording; the same seed with an `Edit` the recording after a change, with the same chance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from generators.machine import Edit, Machine, Program, Thread
from generators.strangers import EAGER_ATTENTION, EAGER_MLP, EAGER_NORM, NCCL, Kernels, Play

CURED = Edit(flags=frozenset({"cured"}))
SMALL: Kernels = [
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", 2.0),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float, float>>>(float*)", 3.0),
    ("void at::native::elementwise_kernel<128, 4, at::native::MulFunctor<float>>(int)", 2.0),
]
GEMM = ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn", 400.0)


@dataclass(frozen=True)
class Plant:
    """``limits``: resources one of which the verdict names first. ``advice``: codes one of which comes first ('':
    nothing is advised). ``never``: codes that would be wrong anywhere. ``in_steps``: the verdict is of the steps."""

    name: str
    limits: tuple[str, ...]
    advice: tuple[str, ...]
    make: Callable[[Play, bool], Any] = field(repr=False)
    never: tuple[str, ...] = ()


def _steps(p: Play, body: Callable[[int], None], dialect: int, count: int) -> None:
    """Steps in one of three dialects: ProfilerStep (Kineto), NVTX, none."""
    for number in range(count):
        text = (f"ProfilerStep#{number + 3}", f"step {number}", "")[dialect]
        with p.h.all(p.h.mark(step=number), p.h.range(text) if text else nullcontext()):
            body(number)
        p.h.host(2)


def _layers(p: Play, count: int, kernels: Kernels, dialect: int, *, scale: float = 1.0, gap: float = 3.0,
            after: Callable[[], None] | None = None) -> None:  # fmt: skip
    for layer in range(count):
        with p.layer(), p.h.range(f"layers.{layer}") if dialect == 1 else nullcontext():
            for name, us in kernels:
                with (
                    p.h.range("aten::linear" if "gemm" in name else "aten::mul", "cpu_op")
                    if dialect == 0
                    else nullcontext()
                ):
                    p.run([(name, us)], scale=scale / p.scale, gap=gap)
            if after:
                after()


BLOCK = EAGER_NORM + EAGER_ATTENTION + EAGER_MLP


def dataloader(p: Play, cured: bool, dialect: int) -> None:
    layers, load = p.count(4, 8), p.rng.uniform(15_000, 40_000)

    def body(_: int) -> None:
        with p.h.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            p.h.host(100 if cured else load)
        p.h.copy(1 << 20, pageable=False)
        _layers(p, layers, BLOCK, dialect, scale=2)
        p.h.item()

    _steps(p, body, dialect if dialect < 2 else 1, 8)


def items(p: Play, cured: bool, dialect: int) -> None:
    """A number is read after every layer."""
    layers, scale = p.count(12, 24), p.rng.uniform(0.3, 0.6)

    def body(_: int) -> None:
        _layers(p, layers, BLOCK, dialect, scale=scale, gap=2, after=None if cured else p.h.item)
        p.h.item()

    _steps(p, body, dialect, 8)


def layer_syncs(p: Play, cured: bool, dialect: int) -> None:
    """torch.cuda.synchronize() after every layer."""
    layers, scale = p.count(12, 24), p.rng.uniform(0.3, 0.6)

    def body(_: int) -> None:
        _layers(p, layers, BLOCK, dialect, scale=scale, gap=2, after=None if cured else p.h.sync)
        p.h.sync()

    _steps(p, body, dialect, 8)


def tiny(p: Play, cured: bool, dialect: int) -> None:
    layers = p.count(20, 40)

    def body(_: int) -> None:
        _layers(p, layers, SMALL * 3, dialect, gap=p.rng.uniform(0.5, 2))
        p.h.item()

    _steps(p, body, dialect, 8)


def huge(p: Play, cured: bool, dialect: int) -> None:
    """FP32 products without tensor cores."""
    layers, us = p.count(4, 8), p.rng.uniform(800, 3000)

    def body(_: int) -> None:
        _layers(p, layers, [("ampere_sgemm_128x64_tn", us / (8 if cured else 1)), *SMALL[:1]], dialect)
        p.h.item()

    _steps(p, body, dialect, 6)


def pageable(p: Play, cured: bool, dialect: int) -> None:
    """A large batch is copied from pageable memory in every step."""
    size, layers = p.rng.randint(30, 90) << 20, p.count(4, 8)

    def body(_: int) -> None:
        p.h.copy(size, pageable=not cured)
        _layers(p, layers, BLOCK, dialect, scale=0.7)
        p.h.item()

    _steps(p, body, dialect, 8)


def twice(p: Play, cured: bool, dialect: int) -> None:
    """The same weights are copied to the device again in every step."""
    sizes, layers = [p.rng.randint(4, 16) << 20 for _ in range(8)], p.count(4, 6)

    def body(number: int) -> None:
        for size in sizes:
            if not cured or number == 0:
                p.h.copy(size, pageable=False)
        _layers(p, layers, BLOCK, dialect, scale=0.5)
        p.h.item()

    _steps(p, body, dialect, 8)


def frees(p: Play, cured: bool, dialect: int) -> None:
    """cudaMalloc and cudaFree in every layer."""
    layers = p.count(6, 12)

    def around() -> None:
        if not cured:
            p.h.call("cudaMalloc_v3020", p.rng.uniform(60, 150))
            p.h.sync(name="cudaFree_v3020")
            p.h.host(5)

    def body(_: int) -> None:
        _layers(p, layers, EAGER_MLP, dialect, scale=0.4, after=around)
        p.h.item()

    _steps(p, body, dialect, 8)


def elementwise(p: Play, cured: bool, dialect: int) -> None:
    """Chains of elementwise kernels on large tensors."""
    layers, us = p.count(6, 12), p.rng.uniform(60, 200)
    names = (
        "MulFunctor<float>",
        "CUDAFunctor_add<float>",
        "sigmoid_kernel_cuda",
        "tanh_kernel_cuda",
        "GeluCUDAKernelImpl",
    )
    chain = [(f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}>(int)", us) for name in names]

    def body(_: int) -> None:
        _layers(p, layers, [("ampere_bf16_s16816gemm_bf16_128x64_tn", us), *(chain[:1] if cured else chain)], dialect)
        p.h.item()

    _steps(p, body, dialect, 6)


def grids(p: Play, cured: bool, dialect: int) -> None:
    """A kernel of one's own with one block of one thread."""
    us = p.rng.uniform(2_000, 20_000)

    def body(_: int) -> None:
        p.h.host(5)
        p.h.launch(
            "matmul_naive(float const*, float const*, float*, int)",
            us / (30 if cured else 1),
            grid=1,
            block=p.count(1, 16),
        )
        p.h.launch("bias_relu(float*, float const*, int)", 12)
        p.h.sync()

    _steps(p, body, 2 if dialect == 0 else dialect, 20)


def allocation_of_host(p: Play, cured: bool, dialect: int) -> None:
    """Python code between launches: host-bound, kernels are not small."""
    layers, gap = p.count(8, 12), p.rng.uniform(60, 120)

    def body(_: int) -> None:
        _layers(p, layers, EAGER_MLP[:3] + EAGER_NORM, dialect, scale=0.5, gap=gap / (4 if cured else 1))
        p.h.item()

    _steps(p, body, dialect, 6)


def healthy(p: Play, cured: bool, dialect: int) -> None:
    """Nothing is wrong: fused attention, half precision, large kernels, one read a step."""
    layers = p.count(6, 12)
    large = [(name, us * 4) for name, us in EAGER_ATTENTION[:1] + EAGER_ATTENTION[5:] + EAGER_MLP[:1] + EAGER_MLP[4:]]

    def body(_: int) -> None:
        _layers(p, layers, large, dialect)
        p.h.item()

    _steps(p, body, dialect, 8)


def spinning(p: Play, cured: bool, dialect: int) -> None:
    """A kernel spins until another stream's copy has arrived."""
    layers, size = p.count(4, 6), p.rng.randint(30, 60) << 20

    def body(_: int) -> None:
        copy = p.h.copy(size // (20 if cured else 1), pageable=False, stream=14)
        row = p.h.launch("spin_wait_kernel(unsigned int volatile*, unsigned int)", 5)
        row["end"] = max(row["end"], copy["end"] + 800)
        p.m.free[7] = max(p.m.free[7], row["end"])
        _layers(p, layers, BLOCK, dialect, scale=0.4)
        p.h.sync()

    _steps(p, body, dialect, 8)


def recompiled(p: Play, cured: bool, dialect: int) -> None:
    """One step in the middle compiles."""
    layers = p.count(4, 6)

    def body(number: int) -> None:
        if number == 5 and not cured:
            with (
                p.h.range("torch/_dynamo/convert_frame.py(1128): __call__", "python_function"),
                p.h.range("_compile.compile_inner (dynamo_timed)", "cpu_op"),
            ):
                p.h.host(900_000)
        _layers(p, layers, BLOCK, 0, scale=1)
        p.h.item()

    _steps(p, body, 0, 10)


def locked(p: Play, cured: bool, dialect: int) -> None:
    """The launching thread waits for a lock that a worker holds."""
    layers, us = p.count(6, 8), p.rng.uniform(4_000, 9_000)
    worker = p.m.thread(11, name="tokenizer")

    def body(_: int) -> None:
        if not cured:
            worker.wait_until(p.h.now)
            with worker.range("tokenize_batch"):
                worker.host(us)
            start = p.h.now
            p.h.wait_until(worker.now)
            p.m.os_calls.append(("pthread_mutex_lock", start, p.h.now, p.h.tid))
        _layers(p, layers, BLOCK, 1, scale=0.5)
        p.h.sync()

    _steps(p, body, 1, 8)


def migration(p: Play, cured: bool, dialect: int) -> None:
    """Unified memory: pages move when a kernel touches them."""
    pages, us = p.rng.randint(60, 120), p.rng.uniform(300, 600)

    def body(_: int) -> None:
        p.h.host(5)
        row = p.h.launch("stencil_um(float*, float const*, int)", us)
        if not cured:
            at = row["start"] + 3_000
            for _page in range(pages):
                length = p.m.spread(22_000)
                p.m.work.append({
                    "kind": "memcpy", "name": 11, "start": at, "end": at + length, "stream": 7, "correlation": 0,
                    "tid": p.h.tid, "labels": {}, "pid": p.m.pid, "device": 0, "bytes": 262_144,
                })  # fmt: skip
                at += length + 2_500
            row["end"] = max(row["end"], at + int(us * 1000))
            p.m.free[7] = max(p.m.free[7], row["end"])
        p.h.sync()

    _steps(p, body, 2, 12)


def late_rank(p: Play, cured: bool, dialect: int) -> list[Machine]:
    """Of four ranks one loads its input more slowly; the others wait in the collective."""
    ranks, slow = 4, p.rng.randrange(4)
    machines = [
        Machine(Random(f"rank {r} {p.rng.random()}"), pid=5_000 + 100 * r, device=r, jitter=0.02, edit=p.m.edit)
        for r in range(ranks)
    ]
    plays = []
    for m in machines:
        play = Play.__new__(Play)
        play.rng, play.m, play.h, play.scale, play.pause, play.loaded = (
            p.rng,
            m,
            m.thread(0, name="python"),
            1.0,
            False,
            set(),
        )
        plays.append(play)
    for step in range(6):
        rows = []
        for rank, play in enumerate(plays):
            with play.h.all(play.h.mark(step=step), play.h.range(f"train_step {step}")):
                with play.h.range("load_batch"):
                    play.h.host(8_000 if rank == slow and not cured else 200)
                _layers(play, 4, BLOCK, 1, scale=0.5)
                rows.append(play.h.launch(NCCL, 1, stream=20, after=play.m.free[7]))
        end = max(row["start"] for row in rows) + 300_000
        for row, play in zip(rows, plays, strict=True):
            row["end"] = end
            play.m.free[20] = end
            with play.h.mark(step=step):
                play.h.sync()
    return machines


PLANTS = [
    Plant("slow DataLoader", ("host",), ("num-workers",), dataloader),
    Plant("a number read after every layer", ("synchronisation", "copies", "kernels"), ("item-in-step",), items),
    Plant("a wait after every layer", ("synchronisation", "kernels"), ("remove-synchronization",), layer_syncs),
    Plant("tiny kernels", ("launches", "host"), ("cuda-graphs", "fuse-elementwise"), tiny),
    Plant("FP32 products", ("kernels",), ("tensor-cores",), huge, ("cuda-graphs",)),
    Plant("pageable copies", ("copies",), ("overlap-copies", "copy-less"), pageable, ("cuda-graphs",)),
    Plant("weights copied again", ("copies",), ("copy-less", "overlap-copies"), twice, ("cuda-graphs",)),
    Plant("cudaMalloc and cudaFree", ("launches", "host", "synchronisation"), ("allocate-once",), frees),
    Plant("chains of elementwise kernels", ("kernels",), ("fuse-elementwise",), elementwise, ("cuda-graphs",)),
    Plant("one block", ("kernels",), ("launch-shape",), grids, ("cuda-graphs",)),
    Plant("slow host code", ("host",), ("cuda-graphs", "host-code", "larger-batch"), allocation_of_host),
    Plant("nothing wrong", ("kernels",), ("",), healthy, ("cuda-graphs", "num-workers", "item-in-step")),
    Plant("spinning kernel", ("copies",), ("overlap-copies", "copy-less"), spinning, ("launch-shape",)),
    Plant("recompilation", ("kernels", "host"), ("warm-up", "host-code"), recompiled),
    Plant("lock", ("host",), ("waits-for-thread", "host-blocked"), locked, ("processor", "sleeps")),
    Plant("page migration", ("copies",), ("prefetch",), migration),
    Plant("late rank", ("communication", "host"), ("late-rank", "host-code"), late_rank),
]  # fmt: skip


NSYS_ONLY = ("one block", "lock", "page migration", "late rank")


def plant(seed: int, edit: Edit | None = None) -> tuple[Plant, Program]:
    """The planted program of this seed; with `CURED` the same without its bottleneck."""
    one, dialect = PLANTS[seed % len(PLANTS)], seed // len(PLANTS) % 3
    p = Play(seed + 50_000, edit)
    p.pause, p.m.jitter = False, 0.02
    made = one.make(p, "cured" in p.m.edit.flags, dialect)  # type: ignore[call-arg]
    kineto = one.name == "recompilation" or (dialect == 0 and one.name not in NSYS_ONLY)
    return one, Program(one.name, made or [p.m], ["step"], is_kineto=kineto, about=f"dialect {dialect}")


def period(program: Program) -> float:
    """The median time from one step's last device work to the next one's, in ns, the first step aside."""
    ends: dict[int, int] = {}
    for row in program.machines[0].work:
        number = row["labels"].get("step", -1)
        if number >= 0:
            ends[number] = max(ends.get(number, 0), row["end"])
    times = [ends[number] for number in sorted(ends)]
    gaps = sorted(b - a for a, b in pairwise(times))
    return float(gaps[len(gaps) // 2])


def window(program: Program) -> float:
    """From the first device work to the last, in ns."""
    work = program.machines[0].work
    return float(max(row["end"] for row in work) - min(row["start"] for row in work))


__all__ = ["CURED", "PLANTS", "Plant", "Thread", "period", "plant", "window"]
