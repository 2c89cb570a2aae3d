"""Programs before and after one public kind of change, as the seventh author draws them: what it gained is measured.

Each has the levers that name the change (codes of docs/advice.md), and what limits the program before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from generators.callers import K, Kernels, Run, backward_hf, forward_hf, update
from generators.machine import US, Program

AT = "void at::native::"
ADD = (f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int)", 9.0)
MUL = (
    f"{AT}vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, MulFunctor<float>>>(int)",
    9.0,
)
MASK = (f"{AT}vectorized_elementwise_kernel<4, at::native::masked_fill_kernel(at::TensorIterator&)>(int)", 14.0)
SOFTMAX = ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)", 22.0)
DROPOUT = (f"{AT}(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(Info)", 18.0)
GELU = (f"{AT}vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)", 12.0)
COPY = (
    f"{AT}elementwise_kernel<128, 4, gpu_kernel_impl_nocast<direct_copy_kernel_cuda(TensorIteratorBase&)>>(int)",
    9.0,
)
GEMM = ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 40.0)
SGEMM = ("ampere_sgemm_128x64_tn", 240.0)
TF32 = ("ampere_tf32_s1688gemm_fp32_128x128_ldg4_f2f_stages_32x3_tn", 60.0)
BMM = ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", 18.0)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, bf16_t>>(p)",
    24.0,
)
CONV = ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_cudnn", 60.0)
TO_NHWC = ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(p)", 16.0)
TO_NCHW = ("void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>(p)", 16.0)


@dataclass(frozen=True)
class Pair:
    """A kind of change. ``levers``: advice that names it; ``limits``: what limits before it; ``is_per_sample``: the
    step grows, a sample gets cheaper; ``does_more``: than any one lever, so that no bound can be judged."""

    name: str
    levers: frozenset[str]
    limits: frozenset[str]
    write: Callable[[Run, bool, Random], None]
    is_per_sample: bool = False
    does_more: bool = False


def turns(run: Run, rng: Random, body: Callable[[int], None], count: int = 8) -> None:
    """Steps with a marker or a range, some of them without."""
    text = rng.choice(("ProfilerStep#{n}", "iteration {n}", "step", ""))
    for n in range(count):
        with run.step(text.format(n=n)):
            body(n)


def block(run: Run, kernels: Kernels, times: int) -> None:
    run.go("embedding")
    for _ in range(times):
        with run.layer():
            run.go(kernels)
    run.go(K["loss"])


def attention(run: Run, after: bool, rng: Random) -> None:
    """Softmax(QK)V in five kernels, then one."""
    inside = [FLASH] if after else [BMM, MUL, MASK, SOFTMAX, DROPOUT, BMM]
    kernels = [GEMM, *inside, GEMM, ADD, GEMM, GELU, GEMM, ADD]
    turns(run, rng, lambda _: (block(run, kernels, 12), run.between(100)))


def reads(run: Run, after: bool, rng: Random) -> None:
    """Statistics of each layer are read by the host, then none."""

    def body(_: int) -> None:
        for _ in range(16):
            with run.layer():
                run.go([GEMM, GELU, GEMM, ADD, MUL, ADD])
            run.t.host(25)
            if not after:
                run.t.item()
        run.between(100)

    turns(run, rng, body)


def workers(run: Run, after: bool, rng: Random) -> None:
    """A batch is decoded on the launching thread, then by four workers."""

    def body(_: int) -> None:
        with run.r("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" if not after else
                   "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):  # fmt: skip
            run.t.host(400 if after else 9_000)
        run.t.copy(2_000_000)
        forward_hf(run, 4)
        run.go("loss")
        backward_hf(run, 4)
        update(run)
        run.between(50)

    run.scale = 3.0
    turns(run, rng, body, 6)


def pinned(run: Run, after: bool, rng: Random) -> None:
    """Images from pageable memory, then pinned on a stream of their own, a batch ahead."""

    def body(_: int) -> None:
        run.t.copy(40_000_000, pageable=not after, stream=20 if after else 7)
        run.go(K["conv"], 20, scale=2)
        run.go("loss")
        run.between(60)

    run.scale = 2.0
    turns(run, rng, body)


def optimiser(run: Run, after: bool, rng: Random) -> None:
    """Eight small kernels for each of 60 parameters, then four large ones."""

    def body(_: int) -> None:
        forward_hf(run, 3)
        run.go("loss")
        backward_hf(run, 3)
        with run.r("Optimizer.step#AdamW.step"):
            if after:
                run.go("adam", 4)
            else:
                for _ in range(60):
                    run.go([MUL, ADD, MUL, ADD, MUL, ADD, ADD, MUL], scale=0.25)
        run.between(80)

    run.scale, run.pace = 0.6, 7.0
    turns(run, rng, body, 6)


def layout(run: Run, after: bool, rng: Random) -> None:
    """Images change their layout around each convolution, then stay as they are."""
    kernels = [CONV, ADD, MUL] if after else [TO_NHWC, CONV, TO_NCHW, ADD, MUL]

    def body(_: int) -> None:
        for _ in range(40):
            run.go(kernels)
        run.go("loss")
        run.between(100)

    run.scale = 2.0
    turns(run, rng, body)


def tensor_cores(run: Run, after: bool, rng: Random) -> None:
    """FP32 products, then TF32."""
    product = TF32 if after else SGEMM
    kernels = [product, FLASH, product, ADD, product, GELU, product, ADD]
    turns(run, rng, lambda _: (block(run, kernels, 10), run.between(120)))


def graphs(run: Run, after: bool, rng: Random) -> None:
    """A token is 300 launches, then one graph."""
    token = K["vllm_head"] + K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"]
    nodes = token * 24

    def body(_: int) -> None:
        if after:
            run.t.graph([(name, us * run.scale) for name, us in nodes], node_base=7 << 32)
        else:
            run.go(nodes)
        run.go("vllm_sample")
        run.between(100)

    run.scale, run.pace = 0.15, 7.0
    turns(run, rng, body)


def compiled(run: Run, after: bool, rng: Random) -> None:
    """Chains of elementwise kernels, then one Triton kernel for each chain."""
    chain = [("triton_poi_fused_add_gelu_mul_tanh_3", 14.0)] if after else [ADD, MUL, GELU, MUL, ADD, MUL]
    turns(run, rng, lambda _: (block(run, [GEMM, *chain, GEMM, *chain], 10), run.between(100)))


def batch(run: Run, after: bool, rng: Random) -> None:
    """Requests one by one, then eight at once: kernels take three times as long."""

    def body(_: int) -> None:
        run.t.copy(600_000 if after else 75_000)
        run.go(K["conv_eval"], 50, scale=0.36 if after else 0.12)
        run.between(400)

    run.scale, run.pace = 1.0, 7.0
    turns(run, rng, body)


def collectives(run: Run, after: bool, rng: Random) -> None:
    """Gradients are summed after the backward pass, then beside it, in buckets."""
    name = [("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 500.0)]

    def reduce(_: int) -> None:
        if after:
            run.go(name, stream=23, after=run.m.free[7])

    def body(_: int) -> None:
        forward_hf(run, 5)
        run.go("loss")
        backward_hf(run, 5, reduce)
        if not after:
            run.go(name, 5, stream=23, after=run.m.free[7])
        run.m.free[7] = max(run.m.free[7], run.m.free[23])
        update(run)
        run.between(50)

    run.scale = 2.0
    turns(run, rng, body, 6)


def small_copies(run: Run, after: bool, rng: Random) -> None:
    """Sixty columns are copied one by one, then together."""

    def body(_: int) -> None:
        for _ in range(1 if after else 60):
            run.t.copy(240_000 if after else 4_000)
        run.go("tables")
        run.go("mlp", 12)
        run.go("loss")
        run.between(60)

    run.scale = 1.0
    turns(run, rng, body)


def norm(run: Run, after: bool, rng: Random) -> None:
    """RMSNorm in six kernels, then in one."""
    one = [("void apex::cuApplyRMSNorm<c10::BFloat16, float, c10::BFloat16>(c10::BFloat16*, float*)", 8.0)]
    head = one if after else [COPY, *K["hf_head"], MUL, COPY]
    kernels = [*head, GEMM, FLASH, GEMM, ADD, *head, GEMM, GELU, GEMM, ADD]
    turns(run, rng, lambda _: (block(run, kernels, 10), run.between(90)))


def shape(run: Run, after: bool, rng: Random) -> None:
    """A kernel of the program's own runs in four blocks, then in many."""
    name = "void my_ops::roi_gather_kernel<float>(float const*, int const*, float*, int, int)"

    def body(_: int) -> None:
        run.go(K["conv_eval"], 10)
        run.t.host(5)
        run.t.launch(name, 60 if after else 1_600, grid=864 if after else 4, block=256)
        run.go(K["conv_eval"], 4)
        run.between(80)

    turns(run, rng, body)


def debug_waits(run: Run, after: bool, rng: Random) -> None:
    """torch.cuda.synchronize() around each layer for a timer, then none."""

    def body(_: int) -> None:
        for _ in range(12):
            with run.layer():
                run.go([GEMM, GELU, GEMM, ADD, MUL])
                if not after:
                    run.t.sync()
                    run.t.host(15)
        run.between(60)

    turns(run, rng, body)


def tokenise(run: Run, after: bool, rng: Random) -> None:
    """Texts are tokenised before each request, then looked up."""

    def body(_: int) -> None:
        with run.r("tokenize"):
            run.t.host(200 if after else 4_500)
        run.t.copy(8_192)
        run.go("bert_first")
        for _ in range(12):
            with run.layer():
                run.go("bert")
        run.t.copy(4_096, "DtoH")
        run.t.host(80)

    run.scale = 1.0
    turns(run, rng, body)


def recompile(run: Run, after: bool, rng: Random) -> None:
    """Each new length compiles again, then lengths are dynamic."""

    def body(n: int) -> None:
        with run.r("Torch-Compiled Region: 0/0"):
            if not after and n in (0, 1, 2, 4, 7):
                with run.r("_compile.compile_inner (dynamo_timed)"):
                    run.t.host(9_000)
                    run.t.call("cuModuleLoadData", 700)
                    run.t.host(3_000)
            for _ in range(10):
                run.go(K["inductor_block"])
        run.between(100)

    run.scale = 2.0
    turns(run, rng, body)


def cache(run: Run, after: bool, rng: Random) -> None:
    """Keys and values are kept by concatenation, new memory each time, then in pages."""

    def body(_: int) -> None:
        for _ in range(10):
            if not after:
                run.t.sync(7)
                run.t.call("cudaFree_v3020", 90)
                run.t.call("cudaMalloc_v3020", 110)
                run.go([(K["hf_body"][4][0], 12.0)] * 2)
            run.go(K["vllm_head"] + K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"])
        run.go("vllm_sample")
        run.between(60)

    run.scale = 0.6
    turns(run, rng, body)


def logging(run: Run, after: bool, rng: Random) -> None:
    """Each step writes its metrics and waits for the disk, then another thread does."""

    def body(_: int) -> None:
        forward_hf(run, 3)
        run.go("loss")
        backward_hf(run, 3)
        update(run)
        run.t.item()
        if not after:
            with run.r("log_metrics"):
                for name, us in (("write", 300), ("fsync", 5_000), ("write", 200)):
                    start = run.t.now
                    run.t.host(us)
                    run.m.os_calls.append((name, start + 2 * US, run.t.now - 2 * US, run.t.tid))
        run.t.host(60)

    run.scale = 1.5
    turns(run, rng, body, 6)


def experts(run: Run, after: bool, rng: Random) -> None:
    """A loop over experts asks the device which tokens are theirs, then one grouped product."""
    nonzero = [("void at_cuda_detail::cub::DeviceSelectSweepKernel<Policy, long*, bool*, long*, int*>(long*)", 4.0)]

    def body(_: int) -> None:
        for _ in range(4):
            with run.layer():
                run.go([GEMM, FLASH, GEMM, ADD])
                if after:
                    run.go([("_grouped_gemm_kernel", 90.0), GELU, ("_grouped_gemm_kernel", 90.0)])
                    continue
                for _ in range(16):
                    run.go(nonzero)
                    run.t.item()
                    run.go([(GEMM[0], 6.0), (GELU[0], 2.0), (GEMM[0], 6.0), (COPY[0], 2.0)])
        run.between(60)

    run.scale = 0.8
    turns(run, rng, body)


def clipping(run: Run, after: bool, rng: Random) -> None:
    """The norm of each gradient is read by the host, then all norms stay on the device."""
    norm = (f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float>, 4>>(x)", 5.0)

    def body(_: int) -> None:
        forward_hf(run, 3)
        run.go("loss")
        backward_hf(run, 3)
        if after:
            run.go("clip")
        else:
            for _ in range(40):
                run.go([norm])
                run.t.item()
        run.go("adam", 4)
        run.between(60)

    turns(run, rng, body, 6)


def of(text: str) -> frozenset[str]:
    return frozenset(text.split())


PAIRS = (
    Pair("fused attention", of("fuse-attention"), of("kernels"), attention),
    Pair("no reads in the step", of("item-in-step remove-synchronization"), of("synchronisation host launches"), reads),
    Pair("workers of a loader", of("num-workers"), of("host kernels"), workers),
    Pair("pinned and ahead", of("overlap-copies"), of("copies synchronisation"), pinned),
    Pair("an optimiser for all", of("fused-optimiser"), of("host launches"), optimiser),
    Pair("channels last", of("layout"), of("kernels"), layout),
    Pair("TF32", of("tensor-cores"), of("kernels"), tensor_cores),
    Pair("graph of a token", of("cuda-graphs"), of("host launches"), graphs),
    Pair("compiled", of("fuse-elementwise"), of("kernels"), compiled),
    Pair("larger batch", of("larger-batch cuda-graphs"), of("host launches"), batch, is_per_sample=True),
    Pair("collectives beside", of("overlap-collectives"), of("communication kernels"), collectives),
    Pair("one copy", of("copy-together"), of("copies synchronisation host"), small_copies),
    Pair("fused norm", of("fuse-elementwise"), of("kernels"), norm),
    Pair("more blocks", of("launch-shape"), of("kernels"), shape),
    Pair("no waits for timers", of("remove-synchronization"), of("synchronisation host launches kernels"), debug_waits),
    Pair("tokens looked up", of("host-code prepare-ahead"), of("host"), tokenise),
    Pair("dynamic lengths", of("host-code warm-up"), of("host loading"), recompile, does_more=True),
    Pair("pages of a cache", of("allocate-once remove-synchronization"), of("host synchronisation"), cache,
         does_more=True),
    Pair("logs elsewhere", of("host-blocked host-code"), of("host"), logging),
    Pair("grouped experts", of("batch-host-loop item-in-step remove-synchronization"),
         of("synchronisation host launches"), experts),
    Pair("norms stay there", of("item-in-step remove-synchronization"),
         of("synchronisation host launches kernels"), clipping, does_more=True),
)  # fmt: skip


def draw(seed: int, *, after: bool = False) -> tuple[Pair, Program]:
    """The program of a seed, before or after the change."""
    pair = PAIRS[seed % len(PAIRS)]
    rng = Random(f"changed {seed}")
    run = Run(rng, kineto=rng.random() < 0.5, operators=rng.random() < 0.7)
    run.m.jitter = 0.02
    pair.write(run, after, rng)
    return pair, run.program(pair.name, f"{'trace' if run.is_kineto else 'export'}, scale {run.scale}")


def period(program: Program) -> float:
    """The median time (ns) from the first operation of a step to that of the next."""
    starts: dict[int, int] = {}
    for row in program.machines[0].work:
        if (x := row["labels"].get("x", -1)) >= 0:
            starts.setdefault(x, row["start"])
    begins = sorted(starts.values())
    return statistics.median(b - a for a, b in pairwise(begins))


def saved(seed: int) -> float:
    """Share of a step that the change gains: of a step of the median, or of all of them, whichever is less."""
    before, after = draw(seed)[1], draw(seed, after=True)[1]
    gains = [1 - period(after) / period(before), 1 - whole(after) / whole(before)]
    return min(gains)


def whole(program: Program) -> float:
    rows = program.machines[0].work
    return max(row["end"] for row in rows) - min(row["start"] for row in rows)
