"""Programs of a fourth author: what people bring who profile for the first time, family by family, with the truth.

Run on `generators.machine`; written from how such programs work, without a look at the other generators of programs.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from generators.machine import Machine, Program, Thread, cut

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x"
GEMV = "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false, false>(x)"
SGEMM = "ampere_sgemm_32x128_tn"
CONV1 = "void cudnn::cnn::conv1D_unit_stride_tile_kernel<float, 4, 64>(x)"
CONV = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x16"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, half>>(p)"
LN = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, x)"
RMS = "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, c10::BFloat16 const*)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"
MUL = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::MulFunctor<float>>>(x)"
)
EMBED = "void at::native::(anonymous namespace)::indexSelectSmallIndex<float, long, unsigned int, 2, 2, -2>(x)"
BAG = "void fbgemm_gpu::split_embedding_codegen_forward_unweighted_kernel<float, float, float, int, 128>(x)"
BAG_BWD = "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float, 2>(x)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, x)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(x)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>(x)"
RELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::launch_clamp_scalar(at::TensorIteratorBase&)>(int)"
)
RELU_BWD = "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl<float>(x)>(int)"
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>(x)"
)
FFT = "void regular_fft<720u, EPT<4u>, 16u, 8u, (padding_t)0, (twiddle_t)0, (loadstore_modifier_t)2>(kernel_args_t)"
IFFT = "void vector_fft<1440u, EPT<8u>, 4u, 2u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2>(kernel_args_t)"
SCAN = "void faiss::gpu::ivfInterleavedScan<faiss::gpu::Codec<8>, faiss::gpu::L2Distance, 128, 32, 2, true>(x)"
SELECT = "void faiss::gpu::blockSelectPair<float, false, 128, 64, 3>(x)"
SAMPLE = "void dgl::aten::impl::_CSRRowWiseSampleUniformKernel<long, 128>(unsigned long, long)"
SPMM = "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<int, float>>(x)"
GATHER = "void dgl::runtime::cuda::IndexSelectMultiKernelAligned<float, long>(x)"
SCATTER = "void at::native::(anonymous namespace)::indexing_backward_kernel_stride_1<float>(long const*, long const*)"
ALL2ALL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"


def _host(rng: Random, **more: object) -> tuple[Machine, Thread]:
    m = Machine(rng, launch_us=rng.choice((3.0, 5.0, 7.0)), jitter=rng.choice((0.02, 0.08)), **more)  # type: ignore[arg-type]
    return m, m.thread(name="python")


def _run(t: Thread, names: list[tuple[str, float]], scale: float = 1.0) -> None:
    for name, us in names:
        t.launch(name, us * scale, grid=max(1, int(108 * scale)))


def _stack(t: Thread, blocks: int, kernels: list[tuple[str, float]], execution: int, scale: float = 1.0) -> None:
    for k in range(blocks):
        with t.mark(layer=100 * execution + k):
            _run(t, kernels, scale)


_ENCODER = [(LN, 4), (GEMM, 21), (FLASH, 15), (GEMM, 9), (ADD, 3), (LN, 4), (GEMM, 30), (GELU, 5), (GEMM, 28), (ADD, 3)]
_TOKEN = [(RMS, 2), (GEMV, 8), (MUL, 1.5), (FLASH, 6), (GEMV, 5), (ADD, 1.5), (RMS, 2), (GEMV, 14), (GELU, 2),
          (GEMV, 13), (ADD, 1.5)]  # fmt: skip

_SPECTRAL = [(LN, 8), (FFT, 25), (FFT, 22), (MUL, 9), (GEMM, 40), (RELU, 6), (GEMM, 38), (IFFT, 24), (IFFT, 26),
             (ADD, 7), (GEMM, 33), (GELU, 8), (GEMM, 31)]  # fmt: skip


def speech(rng: Random) -> Program:
    """Segments of audio: one encoder pass, then a token at a time; a range per segment, or none: passes then."""
    m, t = _host(rng)
    names, blocks, number = rng.random() < 0.6, rng.randint(4, 8), 0
    for segment in range(rng.randint(4, 7)):
        with t.mark(segment=segment), t.range(f"transcribe_segment_{segment}") if names else t.mark():
            t.copy(480_000)
            with t.mark(run=number):
                _run(t, [(CONV1, 40), (GELU, 6), (CONV1, 44), (GELU, 6), (ADD, 3)])
                _stack(t, blocks, _ENCODER, number)
                _run(t, [(LN, 4)])
            number += 1
            for _ in range(rng.randint(3, 7)):
                with t.mark(run=number):
                    _run(t, [(EMBED, 2), (ADD, 1.5)])
                    _stack(t, blocks, _TOKEN, number)
                    _run(t, [(LN, 3), (GEMV, 60), (ARGMAX, 7)])
                    t.item()
                number += 1
        t.host(300)
    return Program("speech", [m], ["segment", "run"] if names else ["run", "segment"], ["layer"])


def rollout(rng: Random) -> Program:
    """Reinforcement learning: many small policy passes, then epochs of updates; ranges around both, or none."""
    m, t = _host(rng)
    says, epochs, run = rng.random() < 0.7, rng.randint(2, 4), 0
    steps = rng.randint(4, 9)
    for phase in range(rng.randint(4, 6)):
        with t.mark(phase=2 * phase, cycle=phase), t.range("collect") if says else t.mark():
            for _ in range(steps):
                with t.mark(run=run):
                    t.copy(16_384)
                    _run(
                        t, [(SGEMM, 6), (ADD, 2), (RELU, 2), (SGEMM, 7), (ADD, 2), (RELU, 2), (SGEMM, 4), (SOFTMAX, 3)]
                    )
                    t.item()
                run += 1
                t.host(180)
        with t.mark(phase=2 * phase + 1, cycle=phase), t.range("update_policy") if says else t.mark():
            for _ in range(epochs):
                with t.mark(run=run):
                    _run(t, [(SGEMM, 16), (RELU, 3), (SGEMM, 18), (RELU, 3), (SGEMM, 9), (SUM, 4), (MUL, 3)])
                    _run(
                        t,
                        [(SGEMM, 11), (SGEMM, 12), (RELU_BWD, 3), (SGEMM, 19), (SGEMM, 20), (RELU_BWD, 3), (SGEMM, 17)],
                    )
                    _run(t, [(ADAM, 8)])
                run += 1
            t.sync()
    return Program("rollout", [m], ["phase", "cycle", "run"] if says else ["run", "cycle", "phase"])


def recommender(rng: Random) -> Program:
    """Training of embeddings and towers, with exchange between ranks; the steps say their number, or nothing does."""
    m, t = _host(rng)
    a, towers = m.thread(7, name="pt_autograd_0"), rng.randint(3, 6)
    text = rng.choice(("", "train_batch {}", "iteration={}", "## step {} ##"))
    for step in range(rng.randint(5, 9)):
        with t.mark(step=step), t.range(text.format(step)) if text else t.mark():
            t.copy(2_000_000, pageable=False)
            _run(t, [(BAG, 90), (ALL2ALL, 60)])
            for _ in range(towers):
                _run(t, [(SGEMM, 30), (ADD, 4), (RELU, 4)])
            _run(t, [(SGEMM, 22), (SUM, 5), (MUL, 2)])
            a.wait_until(t.now)
            _run(a, [(MUL, 2), (SGEMM, 20), (SGEMM, 21)])
            for _ in range(towers):
                _run(a, [(RELU_BWD, 4), (SGEMM, 31), (SGEMM, 33), (SUM, 6)])
            _run(a, [(ALL2ALL, 55), (BAG_BWD, 120), (ALLREDUCE, 40)])
            t.wait_until(a.now)
            _run(t, [(ADAM, 15), (ADAM, 15)])
            t.sync()
        t.host(rng.choice((100, 900)))
    return Program("recommender", [m], ["step"])


def weather(rng: Random) -> Program:
    """A forecast rolled out: spectral blocks between Fourier transforms, one pass a lead time, several members."""
    m, t = _host(rng)
    blocks, says, run = rng.randint(4, 10), rng.choice(("", "lead", "member")), 0
    for member in range(rng.randint(2, 3)):
        with t.mark(member=member), t.range(f"ensemble member {member}") if says == "member" else t.mark():
            for lead in range(rng.randint(4, 6)):
                with t.mark(run=run), t.range(f"forecast +{6 * (lead + 1)}h") if says == "lead" else t.mark():
                    _run(t, [(CONV, 60), (ADD, 5)])
                    _stack(t, blocks, _SPECTRAL, run)
                    _run(t, [(CONV, 50)])
                    t.copy(4_000_000, "DtoH")
                run += 1
    return Program("weather", [m], ["run", "member"] if says != "member" else ["member", "run"], ["layer"])


def embeddings(rng: Random) -> Program:
    """Documents embedded batch by batch, the last one smaller; a bar of progress, no ranges or one each."""
    m, t = _host(rng)
    blocks, count, says = rng.randint(6, 12), rng.randint(5, 9), rng.random() < 0.4
    with t.range("encode_corpus") if says else t.mark():
        for batch in range(count):
            scale = 1.0 if batch < count - 1 else 0.4
            with t.mark(batch=batch), t.range(f"encode batch of {int(64 * scale)}") if says else t.mark():
                t.copy(65_536)
                _run(t, [(EMBED, 8), (ADD, 4), (LN, 4)], scale)
                _stack(t, blocks, _ENCODER, batch, scale)
                _run(t, [(MUL, 3), (SUM, 4), (MUL, 3)], scale)
                t.copy(200_000, "DtoH")
            t.host(rng.choice((50, 2_000)))
    return Program("embeddings", [m], ["batch"], ["layer"])


def graph_learning(rng: Random) -> Program:
    """Sampling of neighbours, features fetched, two or three layers of message passing, backward, update."""
    m, t = _host(rng)
    hops, says = rng.randint(2, 3), rng.random() < 0.5
    for step in range(rng.randint(7, 12)):
        with t.mark(step=step):
            with t.range("sampling") if says else t.mark():
                for _ in range(hops):
                    _run(t, [(SAMPLE, rng.uniform(10, 30)), (SCATTER, 6), (ADD, 2)])
                    t.item()
            with t.range("features") if says else t.mark():
                _run(t, [(GATHER, 45)])
            with t.range("train") if says else t.mark():
                for _ in range(hops):
                    _run(t, [(SPMM, 30), (SGEMM, 25), (ADD, 3), (RELU, 3)])
                _run(t, [(SOFTMAX, 4), (SUM, 3)])
                for _ in range(hops):
                    _run(t, [(RELU_BWD, 3), (SGEMM, 26), (SGEMM, 27), (SPMM, 31)])
                _run(t, [(ADAM, 9)])
                t.item()
    return Program("graph learning", [m], ["step"])


def search(rng: Random) -> Program:
    """Queries against an index: a product, a scan of lists, a selection; batches of queries."""
    m, t = _host(rng)
    parts, says = rng.randint(1, 3), rng.random() < 0.5
    for query in range(rng.randint(9, 15)):
        with t.mark(query=query), t.range("IndexIVF::search") if says else t.mark():
            t.copy(131_072)
            _run(t, [(SGEMM, 80), (ADD, 6), (SELECT, 30)])
            for _ in range(parts):
                _run(t, [(SCAN, rng.uniform(100, 300)), (SELECT, 40)])
            _run(t, [(SELECT, 12)])
            t.copy(10_240, "DtoH")
            t.copy(20_480, "DtoH")
        t.host(rng.uniform(20, 600))
    return Program("search", [m], ["query"])


def speculative(rng: Random) -> Program:
    """A small model drafts tokens, a large one verifies them: both are passes of one turn."""
    m, t = _host(rng)
    small, large, drafts, run = rng.randint(4, 5), rng.randint(8, 12), rng.randint(2, 4), 0
    says = rng.random() < 0.5
    for turn in range(rng.randint(5, 8)):
        with t.mark(turn=turn), t.range(f"spec_decode_iteration {turn}") if says else t.mark():
            for part in range(drafts + 1):
                with t.mark(run=run):
                    _run(t, [(EMBED, 2)])
                    _stack(t, large if part == drafts else small, _TOKEN, run, 2.0 if part == drafts else 0.6)
                    _run(t, [(RMS, 2), (GEMV, 50), (ARGMAX, 6)])
                run += 1
            t.item()
    return Program("speculative", [m], ["turn", "run"] if says else ["run", "turn"], ["layer"])


def window(rng: Random) -> Program:
    """One of the others, recorded for a part of its time."""
    program = rng.choice((recommender, embeddings, graph_learning, weather))(rng)
    cut(program, rng.uniform(0.05, 0.2), rng.uniform(0.8, 0.95))
    program.family += ", a window"
    return program


def nothing(rng: Random) -> Program:
    """Kernels in an order that nothing repeats."""
    m, t = _host(rng)
    names = [v for k, v in globals().items() if k.isupper() and isinstance(v, str) and not k.startswith("_")]
    for _ in range(rng.randint(150, 400)):
        _run(t, [(rng.choice(names), rng.uniform(2, 80))])
        if rng.random() < 0.1:
            t.sync()
    return Program("nothing", [m], [], is_noise=True)


FAMILIES: list[Callable[[Random], Program]] = [
    speech, rollout, recommender, weather, embeddings, graph_learning, search, speculative, window, nothing,
]  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn."""
    return FAMILIES[seed % len(FAMILIES)](Random(f"newcomer {seed}"))
