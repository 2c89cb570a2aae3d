"""Programs with one planted fault, and the same program with the fault mended: what the mending gains is measured.

An event simulation of its own: hosts, streams, events, copy engines, a launch queue, collectives. It shares no code
with `machine`, `simulator` or the package; only the export is written by `machine.write`.
Durations are drawn by the name of what runs and how often it ran before: a change elsewhere leaves them as they are.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from generators.machine import Program

US = 1_000
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SGEMM = "ampere_sgemm_128x64_tn"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(p)"
LN = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, a>(int, x)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, MulFunctor>, a>(int)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*, float const*)"
)
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps>>(x)"
CONV = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1"
ADAM = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIterator&), a>(x)"
FUSED_ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(x)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Change:
    """What is changed: factors, the planted cure, launches of graphs, no waits, copies beside the work."""

    kernel: float = 1.0
    launch: float = 1.0
    host: float = 1.0
    copy: float = 1.0
    is_cured: bool = False
    is_graph: bool = False
    is_sync: bool = True
    is_overlapped: bool = False


@dataclass
class World:
    """The seed of all durations; the ranks."""

    seed: int
    change: Change = field(default_factory=Change)
    spread: float = 0.03
    launch_us: float = 4.0
    ranks: list[Rank] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)

    def rank(self, **more: Any) -> Rank:
        one = Rank(self, 9_000 + 37 * len(self.ranks), len(self.ranks), **more)
        self.ranks.append(one)
        return one

    def together(self, us: float, key: str) -> None:
        """A collective of all ranks: none ends before all have begun."""
        rows = [rank._device("kernel", ALLREDUCE, 0, 60) for rank in self.ranks]
        begins = max(row["start"] for row in rows)
        end = begins + round(self.ranks[0].drawn(f"collective {key}", us) * self.change.kernel)
        for rank, row in zip(self.ranks, rows):
            row["end"] = rank.free[60] = end

    def program(self, is_kineto: bool) -> Program:
        return Program("planted", self.ranks, ["step"], is_kineto=is_kineto)  # type: ignore[arg-type]


class Rank:
    """A process with its GPU. Clocks in ns; `pid`, `device`, `ranges`, `calls`, `work`, `os_calls`, `threads` are what
    the writer reads."""

    def __init__(self, world: World, pid: int, device: int) -> None:
        self.world, self.pid, self.device = world, pid, device
        self.ranges: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.work: list[dict[str, Any]] = []
        self.os_calls: list[tuple[str, int, int, int]] = []
        self.threads: dict[int, Host] = {}
        self.free: dict[int, int] = defaultdict(int)
        self.engines: dict[str, int] = defaultdict(int)
        self.begun: dict[int, list[int]] = defaultdict(list)
        self.times: Counter[str] = Counter()
        self.correlation = 0
        self.steps: list[int] = []
        self.main = self.host_thread(0)

    def host_thread(self, number: int, name: str = "") -> Host:
        return self.threads.setdefault(number, Host(self, self.pid + number, name))

    def drawn(self, key: str, us: float) -> int:
        """The duration (ns) of the next time that this happens."""
        self.times[key] += 1
        rng = Random(f"{self.world.seed}/{self.device}/{key}/{self.times[key]}")
        return max(300, round(us * US * rng.gauss(1, self.world.spread)))

    def _device(self, kind: str, name: str, ns: int, stream: int, engine: str = "") -> dict[str, Any]:
        host = self.main
        begin = max(self.free[stream] + 900, host.now + 3_200, self.engines[engine] if engine else 0)
        row = {
            "kind": kind,
            "name": name,
            "start": begin,
            "end": begin + ns,
            "stream": stream,
            "labels": {},
            "correlation": self.correlation,
            "tid": host.tid,
            "pid": self.pid,
            "device": self.device,
        }
        self.free[stream] = begin + ns
        if engine:
            self.engines[engine] = begin + ns
        self.begun[stream].append(begin)
        self.work.append(row)
        return row


class Host:
    """A thread; its clock runs on with what it does."""

    def __init__(self, rank: Rank, tid: int, name: str) -> None:
        self.rank, self.tid, self.name, self.now = rank, tid, name, 2_000_000
        self.is_batch, self.after = False, 0

    @property
    def change(self) -> Change:
        return self.rank.world.change

    @contextmanager
    def range(self, text: str, kind: str = "nvtx", **args: Any) -> Iterator[None]:
        row = {"text": text, "start": self.now, "end": None, "tid": self.tid, "kind": kind, "args": args}
        self.rank.ranges.append(row)
        yield
        row["end"] = self.now
        self.now += 20

    def open(self, text: str, kind: str = "nvtx") -> None:
        """A range that `close` ends."""
        self.open_row = {"text": text, "start": self.now, "end": None, "tid": self.tid, "kind": kind, "args": {}}
        self.rank.ranges.append(self.open_row)

    def close(self) -> None:
        self.open_row["end"] = self.now
        self.now += 20

    @contextmanager
    def step(self, text: str, kind: str = "nvtx") -> Iterator[None]:
        self.rank.steps.append(self.now)
        with self.range(text, kind):
            yield

    def python(self, us: float, key: str = "python") -> None:
        """Code between calls."""
        ns = self.rank.drawn(key, us) * self.change.host
        is_inside = self.change.is_graph and self.is_batch and us < 100  # a graph has no code between its nodes
        self.now += 0 if is_inside else round(ns)

    def call(self, name: str, us: float, factor: float = 1.0) -> dict[str, Any]:
        self.rank.correlation += 1
        start = self.now
        self.now += round(self.rank.drawn(name, us) * factor)
        row = {"name": name, "start": start, "end": self.now, "tid": self.tid, "correlation": self.rank.correlation}
        self.rank.calls.append(row)
        return row

    def kernel(
        self,
        name: str,
        us: float,
        *,
        stream: int = 7,
        grid: int = 432,
        block: int = 256,
        load: float = 0,
        key: str = "",
    ) -> dict[str, Any]:
        rank, change = self.rank, self.change
        begun = rank.begun[stream]
        if len(begun) >= 1_024:
            self.now = max(self.now, begun[-1_024])
        before = self.now
        self.call("cudaLaunchKernel_v7000", rank.world.launch_us + load, change.launch)
        if change.is_graph and self.is_batch:
            self.now = before
        self.is_batch = True
        row = rank._device("kernel", name, round(rank.drawn(key or f"{name}{us}", us) * change.kernel), stream)
        row.update(grid=grid, block=block)
        return row

    def copy(self, size: int, kind: str = "HtoD", *, pinned: bool = False, stream: int = 7) -> dict[str, Any]:
        rank, change = self.rank, self.change
        rate = 300 if kind == "DtoD" else 22 if pinned else 5
        is_apart = change.is_overlapped and kind != "DtoD"
        call = self.call("cudaMemcpyAsync_v3020", 5)
        ns = round(rank.drawn(f"copy {size}", 1.4 + size / rate / US) * change.copy)
        row = rank._device("memcpy", kind, ns, 999 if is_apart else stream, "" if kind == "DtoD" else kind)
        row["stream"] = stream if not is_apart else 999
        row.update(bytes=size, pageable=not pinned)
        if not pinned and not is_apart and kind != "DtoD" and change.is_sync:
            self._hold(call, row["end"])
        return row

    def _hold(self, call: dict[str, Any], until: int) -> None:
        self.now = call["end"] = max(self.now, until + 2_200)
        self.is_batch = False

    def sync(self, stream: int | None = None) -> None:
        if not self.change.is_sync:
            return
        call = self.call("cudaDeviceSynchronize_v3020" if stream is None else "cudaStreamSynchronize_v3020", 2)
        call["is_sync"] = True
        streams = [stream] if stream is not None else [one for one in self.rank.free if one != 999 or stream is None]
        self._hold(call, max(self.rank.free[one] for one in streams))

    def free(self, us: float) -> None:
        """cudaFree: it waits for the device, then works."""
        call = self.call("cudaFree_v3020", 2)
        if self.change.is_sync:
            self._hold(call, max(self.rank.free.values()))
        self.now = call["end"] = self.now + self.rank.drawn("free", us)

    def item(self) -> None:
        self.copy(4, "DtoH")
        self.sync(7)

    def os_call(self, name: str, us: float) -> None:
        start = self.now
        self.now += round(self.rank.drawn(name, us) * self.change.host)
        self.rank.os_calls.append((name, start, self.now, self.tid))

    def order(self, waiting: int, other: int) -> None:
        """`waiting` runs on only after what `other` has now (event record and wait)."""
        self.call("cudaEventRecord_v3020", 1.5)
        self.call("cudaStreamWaitEvent_v3020", 1.5)
        self.rank.free[waiting] = max(self.rank.free[waiting], self.rank.free[other])


# -- what the programs are made of -------------------------------------------------------------------------------------


def layer(h: Host, scale: float = 1.0, pause: float = 3.0, *, attention: str = "flash") -> None:
    rows = [(LN, 6), (GEMM, 50)]
    rows += [(FLASH, 40)] if attention == "flash" else [(GEMM, 60), (MUL, 90), (ADD, 90), (SOFTMAX, 160), (GEMM, 60)]
    rows += [(GEMM, 20), (ADD, 6), (LN, 6), (GEMM, 70), (GELU, 8), (GEMM, 66), (ADD, 6)]
    for name, us in rows:
        h.python(pause)
        h.kernel(name, us * scale)


Fault = Callable[[World, bool], None]


@dataclass(frozen=True)
class Plant:
    """``limits``: resources that may be named first; ``advice``: codes of which one must be among the first three;
    ``never``: codes that would be false there (with a bound above 5 %)."""

    name: str
    run: Fault
    limits: set[str]
    advice: set[str]
    never: set[str] = field(default_factory=set)
    is_kineto: bool = False


def fp32_products(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(8):
        with h.step(f"step {step}"):
            for _ in range(12):
                h.python(3)
                h.kernel(
                    "ampere_s1688gemm_fp16_128x64_ldg8_stages_32x6_tn" if cured else SGEMM,
                    90 if cured else 400,
                    key="p",
                )
                h.kernel(ADD, 8)
            h.sync()


def written_attention(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(6):
        with h.step(f"forward {step}"):
            for _ in range(8):
                layer(h, attention="flash" if cured else "written")
            h.item()


def tiny_kernels(w: World, cured: bool) -> None:
    h = w.rank().main
    for token in range(20):
        with h.step(f"decode token {token}"):
            if cured:
                h.call("cudaGraphLaunch_v10000", 9)
                for number in range(12 * 10):
                    h.rank._device("kernel", GEMM, h.rank.drawn(f"t{number % 10}", 2.2), 7).update(
                        grid=64, block=128, graph_node=number + 1
                    )
            else:
                for number in range(12 * 10):
                    h.python(4)
                    h.kernel(GEMM, 2.2, grid=64, block=128, key=f"t{number % 10}")
            h.item()


def slow_loader(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(8):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            with h.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"):  # noqa: SIM117
                with h.range("aten::stack", "cpu_op"):
                    h.python(80 if cured else 9_000, "loader")
            h.copy(600_000)
            for _ in range(10):
                with h.range("aten::linear", "cpu_op"):
                    layer(h, 0.8)
            with h.range("Optimizer.step#AdamW.step", "user_annotation"), h.range("aten::_fused_adamw_", "cpu_op"):
                h.kernel(FUSED_ADAM, 60)
            h.item()


def item_inside(w: World, cured: bool) -> None:
    """The loss of each part is read: the host cannot run ahead."""
    h = w.rank().main
    for step in range(8):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            for _ in range(12):
                for name, us in ((CONV, 60), (ADD, 20), (REDUCE, 6)):
                    with h.range("aten::conv2d", "cpu_op"):
                        h.python(18)
                        h.kernel(name, us)
                if not cured:
                    with h.range("aten::item", "cpu_op"), h.range("aten::_local_scalar_dense", "cpu_op"):
                        h.item()
            with h.range("aten::item", "cpu_op"):
                h.item()


def pageable_input(w: World, cured: bool) -> None:
    h = w.rank().main
    h.kernel(CONV, 60)
    for step in range(10):
        with h.step(f"batch {step}"):
            if cured:
                h.copy(24_000_000, pinned=True, stream=20)
            else:
                h.copy(24_000_000)
            for _ in range(16):
                h.python(4)
                h.kernel(CONV, 250)
            h.sync(7)


def allocations(w: World, cured: bool) -> None:
    """A C++ program that allocates and frees its buffers in every step."""
    h = w.rank().main
    for step in range(15):
        with h.step(f"solve {step}"):
            for _ in range(6):
                if not cured:
                    h.call("cudaMalloc_v3020", 250)
                h.kernel("void relax<double>(double*, double const*, int)", 120)
                h.kernel("void residual<double>(double*, double const*, int)", 60)
                if not cured:
                    h.free(180)
            h.copy(8, "DtoH")


def host_postprocessing(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(10):
        with h.step(f"frame {step}"):
            h.copy(500_000)
            with h.range("inference"):
                for _ in range(20):
                    h.python(3)
                    h.kernel(CONV, 90)
            h.copy(400_000, "DtoH")
            if not cured:
                with h.range("non_max_suppression_numpy"):
                    h.python(3_000, "nms")


def late_rank(w: World, cured: bool) -> None:
    first, second = w.rank(), w.rank()
    for step in range(8):
        for number, rank in enumerate((first, second)):
            rank.main.step_text = f"iteration {step}"  # type: ignore[attr-defined]
            rank.steps.append(rank.main.now)
            row = {
                "text": f"iteration {step}",
                "start": rank.main.now,
                "end": None,
                "tid": rank.main.tid,
                "kind": "nvtx",
                "args": {},
            }
            rank.ranges.append(row)
            more = 1.0 if cured or not number else 1.5
            for _ in range(8):
                layer(rank.main, more, 3)
        for rank in (first, second):
            rank.free[60] = max(rank.free[60], rank.free[7])
            rank.main.call("cudaLaunchKernelExC_v11060", 6)
        w.together(300, "gradients")
        for rank in (first, second):
            rank.work[-1].update(grid=24, block=640)
            rank.free[7] = max(rank.free[7], rank.free[60])
            rank.main.kernel(FUSED_ADAM, 50)
            rank.main.sync()
            rank.ranges[-1]["end"] = rank.main.now
            rank.main.now += 40_000


def exposed_collectives(w: World, cured: bool) -> None:
    ranks = [w.rank(), w.rank()]
    for step in range(8):
        for rank in ranks:
            rank.steps.append(rank.main.now)
            rank.ranges.append(
                {
                    "text": f"iteration {step}",
                    "start": rank.main.now,
                    "end": None,
                    "tid": rank.main.tid,
                    "kind": "nvtx",
                    "args": {},
                }
            )
        for _ in range(8):
            for rank in ranks:
                layer(rank.main, 1.0, 3)
                if not cured or not rank.free[60]:
                    rank.free[60] = max(rank.free[60], rank.free[7])
                rank.main.call("cudaLaunchKernelExC_v11060", 6)
            w.together(180, "bucket")
            for rank in ranks:
                rank.work[-1].update(grid=24, block=640)
                if not cured:
                    rank.free[7] = max(rank.free[7], rank.free[60])
        for rank in ranks:
            rank.main.kernel(FUSED_ADAM, 50)
            rank.main.sync()
            rank.ranges[-1]["end"] = rank.main.now
            rank.main.now += 40_000


def optimiser_by_parameter(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(6):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            for _ in range(6):
                with h.range("aten::linear", "cpu_op"):
                    layer(h, 0.4)
            with h.range("Optimizer.step#Adam.step", "user_annotation"):
                if cured:
                    with h.range("aten::_fused_adam_", "cpu_op"):
                        h.kernel(FUSED_ADAM, 60)
                else:
                    for _ in range(60):
                        for op, name in (
                            ("aten::mul_", MUL),
                            ("aten::add_", ADD),
                            ("aten::addcdiv_", ADAM),
                            ("aten::sqrt", MUL),
                        ):
                            with h.range(op, "cpu_op"):
                                h.python(9)
                                h.kernel(name, 2.2)
            h.item()


def elementwise_chain(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(6):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            for _ in range(10):
                with h.range("aten::mm", "cpu_op"):
                    h.kernel(GEMM, 60)
                for op, name in (
                    ("aten::mul", MUL),
                    ("aten::add", ADD),
                    ("aten::gelu", GELU),
                    ("aten::mul", MUL),
                    ("aten::add", ADD),
                    ("aten::mul", MUL),
                ):
                    if not cured or op == "aten::gelu":
                        with h.range(op, "cpu_op"):
                            h.python(3)
                            h.kernel(name, 75)
            h.item()


def layout_changes(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(8):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            for _ in range(12):
                with h.range("aten::cudnn_convolution", "cpu_op"):
                    if not cured:
                        h.kernel("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(x)", 60)
                    h.kernel(CONV, 130)
                    if not cured:
                        h.kernel("void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>(x)", 55)
                    h.python(8)
            h.item()


def sleeping(w: World, cured: bool) -> None:
    """A loop that polls with a timer."""
    h = w.rank().main
    for step in range(12):
        with h.step(f"request {step}"):
            for _ in range(10):
                h.python(4)
                h.kernel(GEMM, 90)
            h.copy(40_000, "DtoH")
            if not cured:
                h.os_call("nanosleep", 2_000)


def one_thread(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(10):
        with h.step(f"pass {step}"):
            h.kernel("histogram(int const*, int*, int)", 80)
            h.kernel(
                "find_maximum(float const*, float*, int)",
                20 if cured else 2_000,
                grid=256 if cured else 1,
                block=256 if cured else 1,
            )
            h.kernel("normalise(float*, float const*, int)", 60)
            h.sync()


def loop_of_decisions(w: World, cured: bool) -> None:
    """A refinement for each object by itself, each with a look at its result."""
    h = w.rank().main
    for step in range(3):
        with h.step(f"ProfilerStep#{step}", "user_annotation"):
            for _ in range(2):
                with h.range("aten::conv2d", "cpu_op"):
                    h.kernel(CONV, 300)
            for _ in range(1 if cured else 64):
                for op, name in (("aten::index", MUL), ("aten::linear", GEMM), ("aten::sigmoid", GELU)):
                    with h.range(op, "cpu_op"):
                        h.python(14)
                        h.kernel(name, 40 if cured else 4)
                with h.range("aten::item", "cpu_op"), h.range("aten::_local_scalar_dense", "cpu_op"):
                    h.item()


def offload(w: World, cured: bool) -> None:
    """Weights are kept on the host and copied for every layer."""
    h = w.rank().main
    for step in range(4):
        with h.step(f"generate step {step}"):
            for _ in range(10):
                if not cured:
                    h.copy(30_000_000, pinned=True)
                layer(h, 0.5, 2)
            h.item()


def code_loading(w: World, cured: bool) -> None:
    """Each of the first steps meets shapes that are compiled then."""
    h = w.rank().main
    for step in range(8):
        with h.step(f"step {step}"):
            for number in range(10):
                h.python(3)
                is_new = not cured and step in (0, 3, 5) and number < 5
                if is_new:
                    h.call("cuModuleLoadData", 9_000)
                h.kernel(
                    f"triton_poi_fused_{number}_{step if step in (0, 3, 5) else 0}d1d2d3", 60, key=f"triton {number}"
                )
            h.item()


def two_streams(w: World, cured: bool) -> None:
    """Two independent branches; events order them one after the other."""
    h = w.rank().main
    for step in range(8):
        with h.step(f"step {step}"):
            for _ in range(6):
                h.kernel("void encode_left<float>(float const*, float*)", 150, stream=7)
                if not cured:
                    h.order(13, 7)
                h.kernel("void encode_right<float>(float const*, float*)", 150, stream=13)
                if not cured:
                    h.order(7, 13)
            h.order(7, 13)
            h.kernel("void join<float>(float const*, float*)", 30, stream=7)
            h.sync()


def slow_host(w: World, cured: bool) -> None:
    """An eager model of middling kernels whose Python takes longer than they do."""
    h = w.rank().main
    for step in range(8):
        with h.step(f"step {step}"):
            for _ in range(8):
                layer(h, 0.25, 6 if cured else 45)
            h.item()


def wait_each(w: World, cured: bool) -> None:
    """A solver with a wait for the device after every kernel."""
    h = w.rank().main
    for step in range(12):
        with h.step(f"time step {step}"):
            for number in range(14):
                h.python(6)
                h.kernel(f"void flux_{number % 7}<double>(double*, double const*, int, int)", 25)
                if not cured:
                    h.sync()
            h.sync()


def reads_files(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(8):
        with h.step(f"chunk {step}"):
            with h.range("load"):
                if not cured:
                    h.os_call("read", 2_500)
                    h.os_call("read", 2_500)
                h.python(40, "parse")
            h.copy(400_000)
            for _ in range(12):
                h.kernel("void filter_rows<long>(long const*, int)", 160)
            h.copy(4_000, "DtoH")


def nothing_wrong(w: World, cured: bool) -> None:
    h = w.rank().main
    for step in range(8):
        with h.step(f"step {step}"):
            for _ in range(16):
                layer(h, 4.0, 3)
            h.item()


def balanced(w: World, cured: bool) -> None:
    """Host and device take equally long: neither alone saves much, and a change of one saves nothing."""
    h = w.rank().main
    for step in range(10):
        with h.step(f"step {step}"):
            for _ in range(60):
                h.python(10)
                h.kernel(GEMM, 13.6)
            h.item()


_ALL = {"kernels", "launches", "host", "copies", "synchronisation", "communication", "ranks", "loading"}
PLANTS: list[Plant] = [
    Plant(
        "FP32 products", fp32_products, {"kernels"}, {"tensor-cores"}, {"cuda-graphs", "larger-batch", "fuse-attention"}
    ),
    Plant("attention written out", written_attention, {"kernels"}, {"fuse-attention"}, {"cuda-graphs", "larger-batch"}),
    Plant("tiny kernels", tiny_kernels, {"launches", "host"}, {"cuda-graphs"}, {"tensor-cores", "overlap-copies"}),
    Plant("slow DataLoader", slow_loader, {"host"}, {"num-workers"}, {"cuda-graphs", "tensor-cores"}, True),
    Plant(
        "item inside",
        item_inside,
        {"synchronisation", "kernels", "host", "launches"},
        {"item-in-step", "remove-synchronization"},
        {"tensor-cores"},
        True,
    ),
    Plant("pageable input", pageable_input, {"copies", "kernels"}, {"overlap-copies"}, {"cuda-graphs", "larger-batch"}),
    Plant("allocations", allocations, {"host", "synchronisation"}, {"allocate-once"}, {"tensor-cores", "larger-batch"}),
    Plant(
        "host postprocessing",
        host_postprocessing,
        {"host"},
        {"host-code"},
        {"cuda-graphs", "tensor-cores", "larger-batch"},
    ),
    Plant("late rank", late_rank, {"ranks", "communication", "kernels"}, {"late-rank"}, {"cuda-graphs"}),
    Plant(
        "exposed collectives",
        exposed_collectives,
        {"communication", "kernels"},
        {"overlap-collectives"},
        {"late-rank", "cuda-graphs"},
    ),
    Plant(
        "optimiser by parameter",
        optimiser_by_parameter,
        {"host", "launches"},
        {"fused-optimiser", "cuda-graphs"},
        {"tensor-cores"},
        True,
    ),
    Plant(
        "elementwise chain", elementwise_chain, {"kernels"}, {"fuse-elementwise"}, {"cuda-graphs", "tensor-cores"}, True
    ),
    Plant("layout changes", layout_changes, {"kernels"}, {"layout"}, {"cuda-graphs", "tensor-cores"}, True),
    Plant("sleeping", sleeping, {"host"}, {"sleeps"}, {"cuda-graphs", "tensor-cores", "larger-batch"}),
    Plant("one thread", one_thread, {"kernels"}, {"launch-shape"}, {"tensor-cores", "cuda-graphs"}),
    Plant(
        "loop of decisions",
        loop_of_decisions,
        {"host", "synchronisation", "launches"},
        {"batch-host-loop", "item-in-step"},
        {"tensor-cores"},
        True,
    ),
    Plant(
        "offload", offload, {"copies"}, {"copy-less", "overlap-copies"}, {"cuda-graphs", "tensor-cores", "larger-batch"}
    ),
    Plant(
        "code loading", code_loading, {"loading", "host"}, {"warm-up"}, {"cuda-graphs", "tensor-cores", "larger-batch"}
    ),
    Plant("two streams", two_streams, {"kernels", "synchronisation"}, {"streams"}, {"cuda-graphs", "tensor-cores"}),
    Plant(
        "slow host",
        slow_host,
        {"host"},
        {"cuda-graphs", "larger-batch", "host-code"},
        {"tensor-cores", "overlap-copies"},
    ),
    Plant(
        "wait after each kernel",
        wait_each,
        {"synchronisation", "kernels", "host", "launches"},
        {"remove-synchronization"},
        {"tensor-cores"},
    ),
    Plant("reads files", reads_files, {"host"}, {"host-blocked"}, {"cuda-graphs", "tensor-cores", "larger-batch"}),
    Plant(
        "nothing wrong",
        nothing_wrong,
        {"kernels"},
        set(),
        {
            "cuda-graphs",
            "larger-batch",
            "tensor-cores",
            "overlap-copies",
            "fuse-attention",
            "remove-synchronization",
            "item-in-step",
            "fuse-elementwise",
            "host-code",
        },
    ),
    Plant("balanced", balanced, _ALL, set(), {"tensor-cores", "overlap-copies", "fuse-attention"}),
]


def run(seed: int, change: Change | None = None) -> tuple[Plant, World]:
    """The plant of a seed, run with a change."""
    plant = PLANTS[seed % len(PLANTS)]
    rng = Random(f"world {seed}")
    world = World(seed, change or Change(), rng.choice((0.01, 0.03, 0.06)), rng.uniform(3, 6))
    plant.run(world, world.change.is_cured)
    return plant, world


def period_ns(world: World) -> float:
    """Median time from the last device work of a step to that of the next; of the slowest rank, the first left out."""

    def median(rank: Rank) -> float:
        called = {row["correlation"]: row["start"] for row in rank.calls}
        ends = [0] * len(rank.steps)
        for row in rank.work:
            number = bisect_right(rank.steps, called[row["correlation"]]) - 1
            if number >= 0:
                ends[number] = max(ends[number], row["end"])
        return statistics.median(b - a for a, b in pairwise(ends[1:]))

    return max(median(rank) for rank in world.ranks)


def span_ns(world: World) -> float:
    """From the first device work to the end of the last."""
    rows = [row for rank in world.ranks for row in rank.work]
    return max(row["end"] for row in rows) - min(row["start"] for row in rows)
