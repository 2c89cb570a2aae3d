"""Programs of many languages and frameworks, each with what limits it, what cures it, and what is false to advise.

Run on `generators.machine`. A row of `PROGRAMS` is a program: the file that ran, the resources one of which the verdict
names first, the remedies one of which comes first ("" where nothing is to be advised), those that would be false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from generators.machine import Edit, Machine, Program, Thread

Kernels = Sequence[tuple[str, float]]
GRAPHS = frozenset({"cuda-graphs"})
OF_MODELS = frozenset({"tensor-cores", "fuse-attention", "num-workers", "fused-optimiser", "expert-imbalance"})
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, cutlass::bfloat16_t>>(Flash_fwd_params)"
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT"
SGEMM = "ampere_sgemm_128x32_nn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
AT = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, 3ul>>(int, x)"
LLAMA: Kernels = [
    ("void rms_norm_f32<1024, true>(float const*, float*, int, long, float)", 4.0),
    ("void quantize_q8_1(float const*, void*, long, long, long, long, unsigned int)", 2.0),
    ("void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, float*, unsigned int)", 22.0),
    ("void rope_norm<true, false, float>(float const*, float*, int, int, int, int)", 2.5),
    ("void flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)1, false>(char const*, char const*)", 9.0),
    ("void k_bin_bcast<&op_add, float, float, float>(float const*, float const*, float*, int)", 2.5),
    ("void mul_mat_vec_q<(ggml_type)14, 1, false, false>(void const*, void const*, float*, unsigned int)", 30.0),
]


SOLVER: Kernels = [
    ("spmv_csr(int const*, int const*, double const*, double*)", 12),
    ("axpy(double*, double, int)", 5),
    ("void cub::DeviceReduceSingleTileKernel<Policy, double*, double*, int, Sum, double>(x)", 4),
]
FORCES: Kernels = [
    ("force_lj_kernel(double const*, double*, int) [clone .kd]", 3),
    ("integrate_kernel(double*, int) [clone .kd]", 2),
    ("bonds_kernel(int const*, double*, int) [clone .kd]", 2),
]
BIAS: Kernels = [
    ("void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(int, x)", 40),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16", 180),
    ("void tensorflow::BiasNHWCKernel<float>(int, float const*, float const*, float*, int)", 20),
]


@dataclass
class Player:
    """A program being drawn: its chance, machine and main thread."""

    rng: Random
    cured: bool
    m: Machine
    h: Thread = field(init=False)

    def __post_init__(self) -> None:
        self.h = self.m.thread(0, name="main")

    def between(self, low: float, high: float) -> float:
        """The same chance with and without the cure."""
        return self.rng.uniform(low, high)

    def kernels(self, kernels: Kernels, times: int = 1, *, gap: float = 1.0, **more: Any) -> None:
        for _ in range(times):
            for name, us in kernels:
                self.h.host(gap)
                self.h.launch(name, us, **more)

    def os(self, name: str, us: float, thread: Thread | None = None) -> None:
        """A call of the operating system that blocks."""
        t = thread or self.h
        start = t.now
        t.now += self.m.spread(us * 1000)
        self.m.os_calls.append((name, start, t.now, t.tid))


def llama_sampling(p: Player, _: int) -> None:
    """llama.cpp: tokens are sampled on the host, in no range."""
    p.kernels(LLAMA, 32)
    p.h.copy(512_000, "DtoH")
    p.h.sync(7)
    p.h.host(400 if p.cured else 9_000)


def llama_healthy(p: Player, _: int) -> None:
    """llama.cpp: products of quantised weights, bound by memory."""
    p.kernels([(name, us * 4) for name, us in LLAMA], 16)
    p.h.copy(512_000, "DtoH")
    p.h.sync(7)
    p.h.host(200)


def tensorrt_input(p: Player, _: int) -> None:
    """TensorRT: each image is copied from pageable memory."""
    p.h.copy(48 << 20, pageable=not p.cured, gbps=5 if not p.cured else 25)
    with p.h.range("ExecutionContext::enqueue", domain="TensorRT"):
        p.kernels([("sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x64x64", 60),
                   ("__myl_AddCastMulMean_myl0_3", 12), ("trt_ampere_h1688gemm_128x128_ldg8_tn", 50)], 14)  # fmt: skip
    p.h.copy(4_000, "DtoH")
    p.h.sync(7)


def jax_dispatch(p: Player, _: int) -> None:
    """JAX: a function that is not compiled as a whole, operation by operation."""
    for _number in range(20 if p.cured else 60):
        with p.h.range("PjitFunction(add)"), p.h.range("XlaModule:#hlo_module=jit_add,program_id=7#"):
            p.h.host(45 if p.cured else 90)
            p.h.launch("loop_add_fusion", 4)
    p.h.sync(7)


def tensorflow_input(p: Player, number: int) -> None:
    """TensorFlow: the step waits for tf.data, whose thread decodes."""
    worker = p.m.thread(31, name="tf_data_private")
    us = 200 if p.cured else 14_000
    worker.wait_until(p.h.now)
    with worker.range("IteratorGetNext::MapAndBatch::DecodeJpeg"):
        worker.host(us)
    start = p.h.now
    p.h.wait_until(worker.now)
    p.m.os_calls.append(("pthread_cond_wait", start, p.h.now, p.h.tid))
    p.kernels(BIAS, 20)
    p.h.sync(7)


def julia_broadcasts(p: Player, _: int) -> None:
    """Julia: a formula in several broadcasts over a large array."""
    for number in range(2 if p.cured else 12):
        p.kernels([(f"julia_broadcast_kernel_{2400 + number % 6}(CuKernelContext, CuDeviceArray<Float64, 2, 1>)", 240)])
    p.h.sync(7)


def openacc_regions(p: Player, _: int) -> None:
    """OpenACC: arrays go to the device and back around each region."""
    for region in (42, 61, 88):
        if not p.cured:
            p.h.copy(24 << 20, pageable=False, gbps=12)
        p.h.launch(f"jacobi_{region}_gpu", 900)
        p.h.sync(7)
        if not p.cured:
            p.h.copy(24 << 20, "DtoH", pageable=False, gbps=12)
            p.h.sync(7)


def allocates(p: Player, _: int) -> None:
    """CUDA C++: a scratch buffer for each call of a function."""
    for _number in range(24):
        if not p.cured:
            p.h.call("cudaMalloc_v3020", 130)
        p.kernels([("transpose_tiled(double const*, double*, int)", 90), ("fft_radix4(double2*, int)", 120)])
        if not p.cured:
            p.h.sync(name="cudaFree_v3020")
            p.h.host(4)


def many_copies(p: Player, _: int) -> None:
    """CUDA C++: a structure of arrays is copied member by member."""
    for _number in range(2 if p.cured else 400):
        p.h.copy((800_000 if p.cured else 4_096), pageable=True)
    p.kernels([("particles_step(Particles, float)", 700)])
    p.h.sync()


def handles(p: Player, _: int) -> None:
    """CUDA C++: a cuBLAS handle is made for each product."""
    for _number in range(6):
        if not p.cured:
            p.h.host(1_400)
            p.h.call("cudaMalloc_v3020", 160)
        p.kernels([("ampere_dgemm_64x64_nn", 260)])
        if not p.cured:
            p.h.sync(name="cudaFree_v3020")
    p.h.sync()


def runtime_compilation(p: Player, number: int) -> None:
    """CUDA C++: NVRTC compiles a kernel in each iteration."""
    if not p.cured:
        with p.h.range("nvrtcCompileProgram", cost=1):
            p.h.host(38_000)
    p.h.call("cuModuleLoadData", 1_500)
    p.kernels([(f"generated_kernel_{number}(float*, int)", 1_200)] * 4)
    p.h.sync()


def oversubscribed(p: Player, _: int) -> None:
    """C++ with a pool of threads: the launching thread loses its processor to the others."""
    worker = p.m.thread(9, name="pool")
    for _number in range(10):
        p.kernels([("solve_block(double*, double const*, int)", 300)])
        if not p.cured:
            start = p.h.now
            p.h.now += p.m.spread(2_200_000)
            p.m.os_calls += [("", start - 9, start + 1, worker.tid), ("", p.h.now - 1, p.h.now + 9, worker.tid)]
            p.m.os_calls.append(("", start, p.h.now, p.h.tid))
    p.h.sync()


def timers(p: Player, _: int) -> None:
    """C++: a frame every 16 ms by a timer."""
    p.kernels([("render_tile(uchar4*, Scene const*)", 400)] * 4)
    p.h.sync()
    p.os("clock_nanosleep", 300 if p.cured else 14_000)


def files(p: Player, _: int) -> None:
    """C++: each block is read from a file before it is worked on."""
    p.os("read", 200 if p.cured else 9_000)
    p.h.copy(8 << 20, pageable=False)
    p.kernels([("correlate(float2 const*, float2*, int)", 900)] * 3)
    p.h.sync()


def convergence(p: Player, _: int) -> None:
    """C++: a solver reads its residual after every iteration."""
    for number in range(40):
        p.kernels(SOLVER)
        if not p.cured or number % 10 == 9:
            p.h.copy(8, "DtoH")
            p.h.sync(7)
            p.h.host(3)


def waits_each(p: Player, _: int) -> None:
    """C++: cudaDeviceSynchronize after every launch, for errors."""
    for _number in range(60):
        p.kernels([("advect(float*, float const*, int)", 14)])
        if not p.cured:
            p.h.sync()
            p.h.host(6)
    p.h.sync()


def hip_small(p: Player, _: int) -> None:
    """HIP: many short kernels."""
    p.kernels(FORCES, 60, gap=0.0 if p.cured else 3)
    p.h.sync(name="hipDeviceSynchronize")


def logging(p: Player, _: int) -> None:
    """PyTorch: activations are copied to the host for a log after every block."""
    for _number in range(8):
        _block(p, 2)
        if not p.cured:
            p.h.copy(24 << 20, "DtoH")
            p.h.sync(7)
    _read(p)


def empties_cache(p: Player, _: int) -> None:
    """PyTorch: torch.cuda.empty_cache() in every step: all memory is freed and taken again."""
    with p.h.range("train_step"):
        for _number in range(6):
            if not p.cured:
                with p.h.range("aten::empty", "cpu_op"):
                    p.h.call("cudaMalloc_v3020", 400)
            _block(p, 1)
        _read(p)
        for _number in range(0 if p.cured else 6):
            p.h.call("cudaFree_v3020", 200)


def graph_of_all(p: Player, _: int) -> None:
    """PyTorch: the step is a graph already, and the GPU has work all the time."""
    nodes = [(NVJET, 90.0), (FLASH, 60.0), ("triton_red_fused__to_copy_add_mul_rsqrt_2", 8.0)] * 40
    p.h.copy(64_000, pageable=False)
    p.h.graph(nodes, node_base=7 << 32)
    _read(p)


def graph_and_scheduler(p: Player, _: int) -> None:
    """An inference engine: Python schedules between replays of a graph."""
    with p.h.range("schedule"):
        p.h.host(200 if p.cured else 5_000)
    p.h.graph([(NVJET, 20.0), (FLASH, 12.0), ("triton_red_fused_add_mul_rsqrt_2", 3.0)] * 40, node_base=7 << 32)
    _read(p)


def fused_already(p: Player, _: int) -> None:
    """PyTorch: compiled, BF16, fused attention: nothing is left to be advised."""
    with p.h.range("Torch-Compiled Region: 0/0", "cpu_op"):
        p.kernels([("triton_red_fused__to_copy_add_mean_rsqrt_0", 30), (NVJET, 420), (FLASH, 300),
                   ("triton_poi_fused__to_copy_mul_silu_3", 40), (NVJET, 800)], 24)  # fmt: skip
    _read(p)


def compiled_small(p: Player, _: int) -> None:
    """PyTorch: compiled, but the kernels are far shorter than their launches."""
    with p.h.range("Torch-Compiled Region: 0/0", "cpu_op"):
        small = [("triton_per_fused_add_native_layer_norm_0", 2.5), (NVJET, 4.0), ("triton_poi_fused_gelu_1", 2.0)]
        p.kernels(small, 60, gap=2.0)
    _read(p)


def one_stall(p: Player, number: int) -> None:
    """PyTorch: one pass, and a fuser that compiles in the middle of it."""
    for block in range(10):
        if block == 4 and not p.cured:
            with p.h.range("fuser::compile_group", "cpu_op"):
                p.h.host(180_000)
        _block(p, 0.05, gap=12)
    _read(p)


def few(p: Player, _: int) -> None:
    """C++: five kernels are all that was recorded."""
    p.h.copy(1 << 20)
    p.kernels([("saxpy(int, float, float const*, float*)", 40)] * 5)
    p.h.sync()


def late_input(p: Player, _: int) -> None:
    """PyTorch: DataLoader workers are too few."""
    with p.h.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation"):
        p.os("poll", 300 if p.cured else 12_000)
    _block(p, 4)
    _read(p)


def exposed_sums(p: Player, _: int) -> None:
    """Two ranks: gradients are summed after backward, not during it."""
    players = p.m.rng.players  # type: ignore[attr-defined]
    for one in players:
        _block(one, 3)
        one.rows = [one.h.launch(NCCL, 10, stream=20, after=one.m.free[7]) for _ in range(8)]
    for rows in zip(*(one.rows for one in players), strict=True):
        at = max(max(row["start"] for row in rows), getattr(p, "last", 0))
        for row in rows:
            row["start"], row["end"] = at, at + (60_000 if p.cured else 1_500_000)
        p.last = at + (61_000 if p.cured else 1_501_000)  # type: ignore[attr-defined]
    for one in players:
        one.m.free[20] = one.m.free[7] = p.last  # type: ignore[attr-defined]
        one.h.sync()


def locked_interpreter(p: Player, _: int) -> None:
    """PyTorch: another thread holds the interpreter's lock while it tokenises."""
    worker = p.m.thread(12, name="tokenizer")
    for _number in range(4):
        worker.wait_until(p.h.now)
        with worker.range("tokenize"):
            worker.host(100 if p.cured else 5_200)
        start = p.h.now
        p.h.wait_until(worker.now)
        p.m.os_calls.append(("pthread_cond_timedwait", start, p.h.now, p.h.tid))
        _block(p, 2)
    _read(p)


def _block(p: Player, scale: float, gap: float = 3.0) -> None:
    """A block of a model in PyTorch with nothing wrong."""
    for name, us in (("aten::linear", 400), ("aten::scaled_dot_product_attention", 300), ("aten::linear", 500)):
        with p.h.range(name, "cpu_op"):
            p.h.host(gap)
            p.h.launch(FLASH if "attention" in name else NVJET, us * scale)


def _read(p: Player) -> None:
    with p.h.range("aten::item", "cpu_op"):
        p.h.item()


@dataclass(frozen=True)
class Row:
    """See the module. ``kind``: torch (a trace of PyTorch), python or C++ (nsys exports)."""

    make: Callable[[Player, int], None]
    program: str
    limits: str
    advice: str
    never: frozenset[str] = frozenset()
    steps: int = 8
    ranks: int = 1
    is_kineto: bool = False

    @property
    def name(self) -> str:
        return (self.make.__doc__ or "").strip()


HOSTLY = OF_MODELS | GRAPHS | {"larger-batch", "fuse-elementwise"}
PROGRAMS = [
    Row(llama_sampling, "llama-server", "host", "host-code", OF_MODELS - {"num-workers"} | GRAPHS),
    Row(llama_healthy, "llama-bench", "kernels", ", fuse-elementwise", OF_MODELS),
    Row(tensorrt_input, "trtexec", "copies", "overlap-copies, copy-less", OF_MODELS | GRAPHS | {"fuse-elementwise"}),
    Row(jax_dispatch, "python3.12", "host launches", "larger-batch, fuse-elementwise, host-code", OF_MODELS | GRAPHS),
    Row(tensorflow_input, "python3", "host", "waits-for-thread, host-blocked", HOSTLY),
    Row(julia_broadcasts, "julia", "kernels", "fuse-elementwise", OF_MODELS | GRAPHS),
    Row(openacc_regions, "jacobi_acc", "copies synchronisation", "copy-less, overlap-copies", OF_MODELS | GRAPHS),
    Row(allocates, "fft_app", "host synchronisation launches kernels", "allocate-once", OF_MODELS | GRAPHS),
    Row(many_copies, "particles", "synchronisation copies host launches", "copy-together", OF_MODELS | GRAPHS),
    Row(handles, "gemm_loop", "host synchronisation", "allocate-once, host-code", HOSTLY),
    Row(runtime_compilation, "jitter", "host", "warm-up, host-code", HOSTLY),
    Row(oversubscribed, "solver_mt", "host", "processor", HOSTLY),
    Row(timers, "viewer", "host", "sleeps", HOSTLY),
    Row(files, "xcorr", "host", "host-blocked", HOSTLY),
    Row(convergence, "cg", "synchronisation copies host launches kernels", "item-in-step, fuse-elementwise", OF_MODELS),
    Row(waits_each, "advection", "synchronisation host launches", "remove-synchronization", OF_MODELS),
    Row(hip_small, "lammps", "launches host", "cuda-graphs, larger-batch", OF_MODELS),
    Row(logging, "python3", "copies synchronisation", "overlap-copies, copy-less", OF_MODELS, is_kineto=True),
    Row(empties_cache, "python3", "host kernels", "allocate-once", OF_MODELS | GRAPHS, is_kineto=True),
    Row(graph_of_all, "python3", "kernels", "", HOSTLY | {"graph-launch"}, is_kineto=True),
    Row(graph_and_scheduler, "python3", "host", "host-code, larger-batch", OF_MODELS | GRAPHS, is_kineto=True),
    Row(fused_already, "python3", "kernels", "", HOSTLY, is_kineto=True),
    Row(compiled_small, "python3", "launches host", "cuda-graphs", OF_MODELS | {"fuse-elementwise"}, is_kineto=True),
    Row(one_stall, "python3", "host", "host-code, warm-up", HOSTLY, steps=1, is_kineto=True),
    Row(few, "saxpy", "unknown", "", HOSTLY | {"overlap-copies"}, steps=1),
    Row(late_input, "python3", "host", "num-workers", HOSTLY - {"num-workers"}, is_kineto=True),
    Row(late_input, "python3", "host", "num-workers", HOSTLY - {"num-workers"}),
    Row(exposed_sums, "python3", "communication", "overlap-collectives", OF_MODELS | GRAPHS, ranks=2),
    Row(locked_interpreter, "python3", "host", "waits-for-thread, host-blocked", HOSTLY),
]  # fmt: skip


def program(seed: int, edit: Edit | None = None) -> tuple[Row, Program]:
    """The program of this seed; with the flag ``cured`` the same without its fault."""
    row, edit = PROGRAMS[seed % len(PROGRAMS)], edit or Edit()
    players = []
    for rank in range(row.ranks):
        m = Machine(Random(f"{seed}/{rank}"), pid=6_000 + 100 * rank, device=rank, jitter=0.03, edit=edit)
        m.program = row.program
        if row.make is hip_small:
            m.launch_name = "hipLaunchKernel"
        players.append(Player(Random(f"choice {seed}"), "cured" in edit.flags, m))
    players[0].m.rng.players = players  # type: ignore[attr-defined]
    texts = seed // len(PROGRAMS) % 2 or row.is_kineto  # every other one without ranges of steps
    for step in range(row.steps):
        marks = [one.h.all(one.h.mark(step=step), one.h.range(_text(row, step)) if texts else nullcontext())
                 for one in players]  # fmt: skip
        with players[0].h.all(*marks):
            row.make(players[0], step)
        for one in players:
            one.h.host(2)
    machines = [one.m for one in players]
    return row, Program("platform", machines, ["step"], is_kineto=row.is_kineto, about=row.name)


def _text(row: Row, step: int) -> str:
    return f"ProfilerStep#{step + 3}" if row.is_kineto and row.steps > 1 else f"step {step}"
