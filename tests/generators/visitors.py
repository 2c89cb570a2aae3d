"""Programs as people record them from 2024 on, family by family, with the truth about their structure.

Run on `generators.machine`; written without a look at the package, its other generators or its findings.
Each family draws its sizes, its dialect of ranges and what the profiler kept from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from generators.machine import NONE, NOT_JUDGED, Machine, Program, Thread, cut

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
GEMM_SMALL = "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn"
HOPPER = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
SPLITK = (
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, true, false>(x)"
)
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(p)"
FLASH_BWD = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128>>(p)"
SPLIT_KV = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 256, 4>, false, false>(p)"
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 256, 4>, 4, 5>(p)"
LN = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)"
LN_BWD = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(x)"
GN = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half>(long, float, c10::Half const*)"
SILU = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&), a>(int)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_min_scalar_kernel_impl, a>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, a>(int, x)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, MulFunctor>, a>(int)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, a, 4>(int, x)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, a>(int, x)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 3>(x)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, true, false>(float*, float const*)"
SOFTMAX_BWD = (
    "void (anonymous namespace)::softmax_warp_backward<float, float, float, 9, true, false>(float*, float const*)"
)
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t>>(x)"
INDEX = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>(long, x)"
EMBED = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2>(x)"
DROPOUT = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>(x)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(x)"
NORM_L2 = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<LpNormFunctor<float, NormType::L2>>(x)"
NLL = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(x)"
LOGSOFT = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMax>(x)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(x)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)"
CONV = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1"
WGRAD = "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4"
DGRAD = "sm80_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4"
BN = "void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true, 1, 2, 0>(cudnnTensorStruct)"
BN_INF = "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float, cudnnTensorStruct)"
BN_BWD = "void cudnn::bn_bw_1C11_singleread<__half, 512, true, 1, 2, 0>(cudnnTensorStruct)"
POOL = "void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::Half, int>(c10::Half const*, int)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

Kernels = list[tuple[str, float]]


def transformer(scale: float = 1.0, *, fused: bool = True) -> Kernels:
    """Kernels of one block of a transformer, forward."""
    core = [(FLASH, 40)] if fused else [(GEMM_SMALL, 20), (MUL, 8), (SOFTMAX, 15), (GEMM_SMALL, 20)]
    rows = [(LN, 6), (GEMM, 60), *core, (GEMM, 22), (ADD, 5), (LN, 6), (GEMM, 80), (GELU, 9), (GEMM, 75), (ADD, 5)]
    return [(name, us * scale) for name, us in rows]


def transformer_backward(scale: float = 1.0) -> Kernels:
    """Kernels of the same block, backward."""
    rows = [
        (GEMM, 75),
        (GEMM, 78),
        (GELU, 12),
        (GEMM, 80),
        (GEMM, 82),
        (LN_BWD, 11),
        (ADD, 5),
        (GEMM, 22),
        (GEMM, 24),
        (FLASH_BWD, 95),
        (GEMM, 60),
        (GEMM, 64),
        (LN_BWD, 11),
        (ADD, 5),
    ]
    return [(name, us * scale) for name, us in rows]


class Author:
    """One who writes a program in a dialect: ``none``, ``nvtx``, ``emit`` (operators as NVTX) or ``kineto``."""

    def __init__(self, rng: Random, dialect: str, **machine: Any) -> None:
        self.rng, self.dialect = rng, dialect
        self.m = Machine(rng, **machine)
        self.t = self.m.thread()
        self.gap = rng.uniform(2, 9)

    @contextmanager
    def module(self, name: str, number: int | str = 0, path: str = "") -> Iterator[None]:
        """A module: a PyTorch frame, or an NVTX range in this author's words."""
        if self.dialect in ("kineto", "module"):
            with self.t.range(f"nn.Module: {name}_{number}", "python_function", 1.0):
                yield
        elif self.dialect == "nvtx":
            with self.t.range(path or f"{name}_{number}"):
                yield
        else:
            yield

    def note(self, text: str, kind: str = "user_annotation") -> Any:
        """A range of the program's own (not where the author marks nothing)."""
        return nullcontext() if self.dialect == "none" else self.t.range(text, kind)

    def say(self, text: str, kind: str = "user_annotation") -> Any:
        """A range that the framework writes whatever the author does."""
        return self.t.range(text, kind)

    def run(self, kernels: Kernels, op: str = "", thread: Thread | None = None, stream: int = 7, **more: Any) -> None:
        """Launch them, each in its operator where the dialect has operators."""
        t = thread or self.t
        for name, us in kernels:
            t.host(self.gap)
            text = op or operator_of(name)
            if self.dialect == "kineto":
                with t.range(text, "cpu_op", 0.8):
                    t.launch(name, us, stream=stream, **more)
            elif self.dialect == "emit":
                with t.range(f"{text}, seq = {self.rng.randrange(9999)}, op_id = {self.rng.randrange(9999)}", cost=0.6):
                    t.launch(name, us, stream=stream, **more)
            else:
                t.launch(name, us, stream=stream, **more)

    @contextmanager
    def autograd(self) -> Iterator[Thread]:
        """The thread of the backward pass, while the main thread waits."""
        other = self.m.thread(77, self.t.now, "pt_autograd_0")
        other.wait_until(self.t.now + 30_000)
        yield other
        self.t.wait_until(other.now + 20_000)

    def backward(self, groups: list[tuple[Kernels, dict[str, int]]]) -> None:
        """Blocks in backward order, on the autograd thread; each group with its labels."""
        with self.autograd() as thread:
            for kernels, labels in groups:
                with thread.mark(**labels):
                    for name, us in kernels:
                        thread.host(self.gap)
                        if self.dialect == "kineto":
                            text = f"autograd::engine::evaluate_function: {backward_of(name)}"
                            with thread.range(text, "cpu_op", 0.5), thread.range(backward_of(name), "cpu_op", 0.4):
                                thread.launch(name, us)
                        else:
                            thread.launch(name, us)

    def program(self, family: str, executions: list[str], layers: list[str] | None = None, **more: Any) -> Program:
        is_kineto = self.dialect in ("kineto", "module")
        return Program(family, [self.m], executions, layers or [], is_kineto=is_kineto, about=self.dialect, **more)


def operator_of(kernel: str) -> str:
    words = {
        "gemm": "aten::addmm",
        "nvjet": "aten::mm",
        "flash_fwd": "aten::_flash_attention_forward",
        "layer_norm": "aten::native_layer_norm",
        "gelu": "aten::gelu",
        "silu": "aten::silu",
        "_add": "aten::add",
        "fprop": "aten::cudnn_convolution",
        "bn_fw": "aten::cudnn_batch_norm",
        "softmax": "aten::_softmax",
        "copy": "aten::copy_",
        "indexselect": "aten::embedding",
        "pool": "aten::max_pool2d_with_indices",
        "mul": "aten::mul",
        "fill": "aten::fill_",
        "topk": "aten::topk",
        "argmax": "aten::argmax",
        "ncclDevKernel": "nccl:coalesced",
        "clamp": "aten::relu_",
    }
    return next((op for word, op in words.items() if word.lower() in kernel.lower()), "aten::sum")


def backward_of(kernel: str) -> str:
    words = {
        "gemm": "AddmmBackward0",
        "flash_bwd": "FlashAttentionBackward0",
        "layer_norm": "NativeLayerNormBackward0",
        "gelu": "GeluBackward0",
        "grad": "ConvolutionBackward0",
        "bn_bw": "CudnnBatchNormBackward0",
    }
    return next((op for word, op in words.items() if word in kernel.lower()), "AddBackward0")


def dialect_of(rng: Random, *some: str) -> str:
    return rng.choice(some or ("none", "nvtx", "kineto"))


def embed(a: Author, scale: float = 1.0) -> None:
    a.run([(EMBED, 5 * scale), (ADD, 4 * scale)])


def optimiser(a: Author, count: int = 6, *, name: str = "AdamW", clip: bool = False) -> None:
    """Clipping of gradients with a look at the norm, then the optimiser."""
    if clip:
        a.run([(NORM_L2, 9), (NORM_L2, 9), (REDUCE, 4), (MUL, 4)])
        a.t.item()
    with a.note(f"Optimizer.step#{name}.step") if a.dialect != "nvtx" else a.note("optimizer.step"):
        a.run([(ADAM, 30)] * count, "aten::_fused_adamw_")
    with a.note(f"Optimizer.zero_grad#{name}.zero_grad") if a.dialect != "nvtx" else nullcontext():
        a.run([(FILL, 4)] if count % 2 else [])


# -- image and video generation ----------------------------------------------------------------------------------------


def diffusion_unet(rng: Random) -> Program:
    """Text encoder, N denoising steps of two passes (guidance), VAE decoder; one to three images."""
    a = Author(rng, dialect_of(rng))
    steps, images, passes = rng.randrange(6, 14), rng.choice((1, 2)), rng.choice((1, 2))
    widths = [1.0, 0.8, 0.9, 0.6, 0.9, 0.8, 1.0]
    for _ in range(images):
        with a.t.mark(image=a.m.group()), a.note("StableDiffusionPipeline.__call__"):
            with a.t.mark(part=a.m.group()), a.module("CLIPTextModel"):
                embed(a)
                for number in range(6):
                    with a.t.mark(block=a.m.group()), a.module("CLIPEncoderLayer", number):
                        a.run(transformer(0.1))
            for step in range(steps):
                with a.t.mark(step=a.m.group(), part=a.m.group()), a.note(f"denoise step {step}"):
                    a.run([(CAT, 6), (MUL, 4)])
                    for _ in range(passes):
                        with a.t.mark(turn=a.m.group()), a.module("UNet2DConditionModel"):
                            a.run([(CONV, 40), (SILU, 5), (GEMM_SMALL, 9)])
                            for number, width in enumerate(widths):
                                kind = "DownBlock" if number < 3 else "UpBlock" if number > 3 else "MidBlock"
                                with a.t.mark(block=a.m.group()), a.module(f"CrossAttn{kind}2D", number):
                                    a.run([(GN, 9 * width), (SILU, 8), (CONV, 90 * width), (GN, 9), (CONV, 85 * width)])
                                    a.run(transformer(width))
                                    if number > 3:
                                        a.run([(CAT, 10 * width)])
                            a.run([(GN, 9), (SILU, 6), (CONV, 40)])
                    a.run([(MUL, 4), (ADD, 4), (MUL, 4), (ADD, 4)])
                    a.t.host(120)
            with a.t.mark(part=a.m.group()), a.module("AutoencoderKL"):
                a.run([(CONV, 200), (GN, 40), (SILU, 30), (CONV, 300), (GN, 60), (SILU, 50), (CONV, 700), (GELU, 20)])
            a.t.copy(3 * 512 * 512, "DtoH")
            a.t.sync()
        a.t.host(3_000)
    layers = ["block"] if a.dialect != "none" else []
    return a.program("diffusion_unet", ["step", "part", "turn", *(["image"] if images > 1 else [])], layers)


def diffusion_dit(rng: Random) -> Program:
    """A diffusion transformer: equal blocks, steps without a wait between them; a scheduler on the host."""
    a = Author(rng, dialect_of(rng, "none", "none", "nvtx", "kineto"))
    steps, depth = rng.randrange(8, 20), rng.choice((12, 19, 28))
    embed(a, 0.3)
    for step in range(steps):
        with a.t.mark(step=a.m.group()), a.note(f"step_{step}"), a.module("DiTTransformer2DModel"):
            a.run([(GEMM_SMALL, 9), (SILU, 4), (GEMM_SMALL, 9), (CONV, 20)])
            for number in range(depth):
                with a.t.mark(block=a.m.group()), a.module("DiTBlock", number):
                    a.run([(SILU, 3), (GEMM_SMALL, 12), *transformer(0.7)])
            a.run([(LN, 6), (GEMM_SMALL, 8), (CAT, 5), (MUL, 4)])
        a.t.host(rng.uniform(200, 800))
    return a.program("diffusion_dit", ["step"], ["block"])


# -- language ----------------------------------------------------------------------------------------------------------


def beam_translation(rng: Random) -> Program:
    """Encoder once, decoder token by token with beam search and reordering of the cache; several sentences."""
    a = Author(rng, dialect_of(rng))
    for sentence in range(rng.randrange(2, 5)):
        with a.t.mark(sentence=a.m.group()), a.note(f"translate batch {sentence}"):
            with a.t.mark(turn=a.m.group()), a.module("MarianEncoder"):
                embed(a)
                for number in range(6):
                    with a.t.mark(block=a.m.group()), a.module("MarianEncoderLayer", number):
                        a.run(transformer(0.4, fused=False))
            for _token in range(rng.randrange(8, 20)):
                with a.t.mark(turn=a.m.group()):
                    with a.module("MarianDecoder"):
                        embed(a)
                        for number in range(6):
                            with a.t.mark(block=a.m.group()), a.module("MarianDecoderLayer", number):
                                a.run([*transformer(0.1, fused=False)[:7], (CAT, 3), (CAT, 3)])
                                a.run(
                                    [(LN, 3), (GEMM_SMALL, 5), (GEMM_SMALL, 5), (SOFTMAX, 3), (GEMM_SMALL, 5), (ADD, 3)]
                                )
                                a.run([(LN, 3), (GEMM_SMALL, 8), (SILU, 3), (GEMM_SMALL, 8), (ADD, 3)])
                    a.run([(GEMM, 30), (LOGSOFT, 9), (ADD, 4), (TOPK, 30)])
                    a.t.item()
                    a.run([(INDEX, 4)] * 12, "aten::index_select")
            a.t.copy(4_000, "DtoH")
            a.t.host(1_500)
    return a.program("beam_translation", ["turn", "sentence"], ["block"])


def speculative(rng: Random) -> Program:
    """A small model drafts k tokens one by one, the large one verifies them in one pass."""
    a = Author(rng, dialect_of(rng))
    drafts = rng.randrange(3, 6)

    def model(name: str, depth: int, scale: float) -> None:
        with a.t.mark(turn=a.m.group()), a.module(f"{name}ForCausalLM"):
            embed(a, 0.5)
            for number in range(depth):
                with a.t.mark(block=a.m.group()), a.module(f"{name}DecoderLayer", number):
                    a.run([*transformer(scale)[:5], (SPLIT_KV, 14 * scale), (COMBINE, 3), *transformer(scale)[5:]])
            a.run([(LN, 4), (GEMM_SMALL, 40 * scale), (ARGMAX, 6)])

    for _ in range(rng.randrange(6, 14)):
        with a.t.mark(round=a.m.group()), a.note("speculative_round"):
            with a.note("draft"):
                for _ in range(drafts):
                    model("Tiny", 4, 0.06)
                    a.t.item()
            with a.note("verify"):
                model("Llama", 16, 0.3)
                a.run([(COPY, 3), (INDEX, 3), (REDUCE, 3)])
            a.t.item()
        a.t.host(200)
    return a.program("speculative", ["round", "turn"], ["block"])


def embedding_batches(rng: Random) -> Program:
    """A text encoder over batches of very different lengths; tokenisation on the host between them."""
    a = Author(rng, dialect_of(rng))
    for batch in range(rng.randrange(8, 16)):
        length = rng.uniform(0.1, 1.5)
        a.t.host(rng.uniform(500, 6_000))
        with a.t.mark(batch=a.m.group()), a.note(f"encode batch {batch}"):
            a.t.copy(int(40_000 * length))
            with a.module("BertModel"):
                embed(a, length)
                for number in range(12):
                    with a.t.mark(block=a.m.group()), a.module("BertLayer", number):
                        a.run(transformer(length, fused=False))
                a.run([(GEMM_SMALL, 4), (REDUCE, 5), (MUL, 3)])
            a.t.copy(int(100_000 * length), "DtoH")
    return a.program("embedding_batches", ["batch"], ["block"])


def rag(rng: Random) -> Program:
    """Queries: an embedding, a search in an index, then a generation of differing length."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    for _query in range(rng.randrange(3, 6)):
        with a.t.mark(query=a.m.group()), a.note("answer_query"):
            with a.t.mark(turn=a.m.group()), a.note("embed"):
                for _ in range(6):
                    with a.t.mark(block=a.m.group()):
                        a.run(transformer(0.05))
                a.run([(REDUCE, 3)])
            with a.t.mark(turn=NOT_JUDGED), a.note("search"):
                a.run(
                    [
                        ("void faiss::gpu::l2NormRowMajor<float, 32, true, long>(x)", 8),
                        ("ampere_sgemm_128x64_tn", 300),
                        ("void faiss::gpu::l2SelectMinK<float, 1, 128, 8, 256>(x)", 40),
                    ]
                )
                a.t.copy(4_000, "DtoH")
            a.t.host(rng.uniform(800, 2_500))
            for token in range(rng.randrange(8, 20)):
                with a.t.mark(turn=a.m.group()), a.note("generate" if token else "prefill"):
                    embed(a, 0.5)
                    for _ in range(8):
                        with a.t.mark(block=a.m.group()):
                            a.run(transformer(0.2 if token else 1.5))
                    a.run([(LN, 3), (GEMM, 20), (ARGMAX, 5)])
                    a.t.item()
        a.t.host(5_000)
    return a.program("rag", ["query", "turn"], ["block"])


def llama_cpp(rng: Random) -> Program:
    """ggml: a prompt in batches, then tokens; no ranges, graphs from the third token on in some builds."""
    a = Author(rng, "none", launch_name="cudaLaunchKernel_v7000")
    depth, is_graph = rng.choice((16, 28)), rng.random() < 0.4
    small: Kernels = [
        ("void rms_norm_f32<1024, true, false>(float const*, float*, int)", 3),
        ("void quantize_q8_1(float const*, void*, long, long, long)", 2),
        ("void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, int)", 14),
        ("void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, int)", 6),
        ("void rope_norm<true, false, float>(float const*, float*, int)", 2),
        ("void k_set_rows<float, long, __half>(float const*, long const*, __half*)", 2),
        ("void flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)1, false>(char const*)", 8),
        ("void mul_mat_vec_q<(ggml_type)12, 1, false, false>(void const*, void const*, int)", 8),
        ("void k_bin_bcast<&op_add, float, float, float>(float const*, float const*, float*)", 2),
        ("void rms_norm_f32<1024, true, false>(float const*, float*, int)", 3),
        ("void mul_mat_vec_q<(ggml_type)12, 1, true, false>(void const*, void const*, int)", 22),
        ("void quantize_q8_1(float const*, void*, long, long, long)", 2),
        ("void mul_mat_vec_q<(ggml_type)14, 1, false, false>(void const*, void const*, int)", 15),
        ("void k_bin_bcast<&op_add, float, float, float>(float const*, float const*, float*)", 2),
    ]
    large = [
        (name.replace("mul_mat_vec_q", "mul_mat_q").replace("_ext_vec", "_ext_f16"), us * 12) for name, us in small
    ]
    tail: Kernels = [("void rms_norm_f32<1024, true, false>(float const*, float*, int)", 3), (small[2][0], 60)]
    for token in range(rng.randrange(12, 26)):
        group = a.m.group()
        with a.t.mark(step=group):
            a.t.copy(8_192, pageable=True)
            kernels = small if token else large
            if is_graph and token > 2:
                blocks = [a.m.group() for _ in range(depth)]
                nodes = [("void k_get_rows_float<float, float>(float const*, int const*)", 2), *kernels * depth, *tail]
                marks = [{"block": NONE}, *[{"block": one} for one in blocks for _ in kernels], *[{"block": NONE}] * 2]
                a.t.graph(nodes, marks=marks, node_base=5 << 32)
            else:
                a.run([("void k_get_rows_float<float, float>(float const*, int const*)", 2)])
                for _ in range(depth):
                    with a.t.mark(block=a.m.group()):
                        a.run(kernels)
                a.run(tail)
            a.t.copy(600_000, "DtoH")
            a.t.sync(7)
        a.t.host(rng.uniform(100, 300))
    return a.program("llama_cpp", ["step"], ["block"])


def whisper(rng: Random) -> Program:
    """Speech: chunks of 30 s, each an encoder pass and a decoder loop of differing length."""
    a = Author(rng, dialect_of(rng))
    for chunk in range(rng.randrange(3, 6)):
        a.t.host(rng.uniform(2_000, 8_000))
        with a.t.mark(chunk=a.m.group()), a.note(f"transcribe:{chunk}"):
            with a.t.mark(turn=a.m.group()), a.module("AudioEncoder"):
                a.t.copy(960_000)
                a.run([(CONV, 40), (GELU, 8), (CONV, 60), (GELU, 8), (ADD, 4)])
                for number in range(6):
                    with a.t.mark(block=a.m.group()), a.module("ResidualAttentionBlock", number):
                        a.run(transformer(1.2))
                a.run([(LN, 8)])
            for _ in range(rng.randrange(10, 24)):
                with a.t.mark(turn=a.m.group()), a.module("TextDecoder"):
                    embed(a, 0.4)
                    for number in range(6):
                        with a.t.mark(block=a.m.group()), a.module("ResidualAttentionBlock", number + 6):
                            a.run([*transformer(0.1), (LN, 2), (GEMM_SMALL, 4), (FLASH, 9), (GEMM_SMALL, 4), (ADD, 2)])
                    a.run([(LN, 3), (GEMM, 12), (LOGSOFT, 4), (ARGMAX, 4)])
                    a.t.item()
    return a.program("whisper", ["turn", "chunk"], ["block"])


def vllm_serving(rng: Random) -> Program:
    """Continuous batching: steps with prefill and decode mixed, as vLLM names them, or unnamed."""
    a = Author(rng, dialect_of(rng, "none", "nvtx", "module"))
    depth, running = rng.choice((12, 24)), rng.randrange(4, 40)
    for _ in range(rng.randrange(14, 24)):
        chunk = rng.choice((0, 0, 0, 512, 1024, 2048))
        with a.t.mark(step=a.m.group()):
            text = f"execute_context_{int(chunk > 0)}({chunk})_generation_{running}({running})"
            with a.note(text):
                a.t.copy(16_000, pageable=False)
                embed(a, 0.2 + chunk / 1024)
                for number in range(depth):
                    scale = 0.15 + chunk / 1024
                    with a.t.mark(block=a.m.group()), a.module("LlamaDecoderLayer", number):
                        a.run(
                            [
                                ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(x)", 4),
                                (HOPPER, 60 * scale),
                                ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(x)", 3),
                                ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(x)", 3),
                                ("void flash::flash_fwd_splitkv_kernel<x>(Flash_fwd_params)", 10 + running * 0.5),
                                (HOPPER, 20 * scale),
                                ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(x)", 4),
                                (HOPPER, 90 * scale),
                                ("void vllm::act_and_mul_kernel<c10::BFloat16>(x)", 6),
                                (HOPPER, 70 * scale),
                            ]
                        )
                a.run([("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(x)", 4), (INDEX, 3), (GEMM, 60)])
            with a.note("sample_tokens"):
                a.run([(COPY, 3), (SOFTMAX, 9), (ARGMAX, 6)])
                a.t.copy(running * 8, "DtoH", pageable=False)
                a.t.sync(7)
        running = max(1, running + rng.randrange(-3, 4))
        a.t.host(rng.uniform(300, 1_500))
    return a.program("vllm_serving", ["step"], ["block"])


def trtllm_steps(rng: Random) -> Program:
    """TensorRT-LLM's executor loop: `_forward_step` with its counts, a graph where only decoding runs."""
    a = Author(rng, "nvtx")
    depth, requests = rng.choice((16, 32)), rng.randrange(8, 65)
    kernels: Kernels = [
        ("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, true>(x)", 4),
        (HOPPER, 20),
        ("void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16, 256>(x)", 5),
        ("fmhaSm90_context_flash_bf16_causal_kernel", 15),
        (HOPPER, 12),
        ("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, true>(x)", 4),
        (HOPPER, 35),
        ("void tensorrt_llm::kernels::swiglu<__nv_bfloat16>(x)", 5),
        (HOPPER, 30),
    ]
    for number in range(rng.randrange(14, 30)):
        context = rng.choice((0, 0, 0, 0, 1, 2))
        with a.t.mark(step=a.m.group()):
            with a.t.range("_fetch_new_requests"):
                a.t.host(60)
            with a.t.range("_schedule"):
                a.t.host(90)
            with a.t.range(f"[Executor] _forward_step {number}: {context} ctx reqs, {requests} gen reqs"):
                with a.t.range("_prepare_inputs"):
                    a.t.copy(4_000, pageable=False)
                    a.run([(COPY, 2), (INDEX, 2)])
                if context:
                    embed(a)
                    for _ in range(depth):
                        with a.t.mark(block=a.m.group()):
                            a.run([(name, us * 8) for name, us in kernels])
                else:
                    blocks = [a.m.group() for _ in range(depth)]
                    marks = [{"block": NONE}, *[{"block": one} for one in blocks for _ in kernels]]
                    a.t.graph([(EMBED, 3), *kernels * depth], marks=marks, node_base=9 << 32)
                a.run([(GEMM, 40)])
            with a.t.range("_sample_async"):
                a.run([("void tensorrt_llm::kernels::topKStage1<float>(x)", 8), (COPY, 2)])
            with a.t.range("_update_requests"):
                a.t.sync(7)
    return a.program("trtllm_steps", ["step"], ["block"])


# -- training ----------------------------------------------------------------------------------------------------------


def lstm_training(rng: Random) -> Program:
    """A recurrent net by hand: cells over time, layers over that; padded batches of differing length."""
    a = Author(rng, dialect_of(rng))
    cell: Kernels = [
        ("ampere_sgemm_32x128_tn", 9),
        ("ampere_sgemm_32x128_tn", 9),
        ("void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>(x)", 4),
    ]
    back: Kernels = [
        ("void at::native::(anonymous namespace)::kernel::lstm_cell_backward<float, float, int, 1>(x)", 4),
        ("ampere_sgemm_32x128_nn", 9),
        ("ampere_sgemm_128x32_nt", 12),
        (REDUCE, 4),
    ]
    for step in range(rng.randrange(6, 10)):
        length = rng.randrange(8, 20)
        with a.t.mark(step=a.m.group()), a.note(f"ProfilerStep#{step}"):
            a.t.copy(20_000)
            with a.note("forward"):
                embed(a)
                for number in range(2):
                    with a.t.mark(block=a.m.group()), a.module("LSTM", number):
                        for _ in range(length):
                            a.run(cell)
                a.run([("ampere_sgemm_128x64_tn", 30), (LOGSOFT, 8), (NLL, 4)])
            with a.note("backward") if a.dialect == "nvtx" else nullcontext():
                a.backward([([(LOGSOFT, 8), ("ampere_sgemm_128x64_nt", 40)], {}), *[(back * length, {})] * 2])
            optimiser(a, 3, name="SGD", clip=True)
        a.t.item()
    return a.program("lstm_training", ["step"])


def gnn_sampling(rng: Random) -> Program:
    """A graph network: neighbours are sampled on the host, features are copied, three layers, backward, Adam."""
    a = Author(rng, dialect_of(rng, "none", "kineto", "nvtx"))
    spmm = "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<128u, false, true>, float>(x)"
    for _step in range(rng.randrange(8, 16)):
        scale = rng.uniform(0.5, 1.8)
        with a.t.mark(step=a.m.group()):
            with a.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                a.t.host(rng.uniform(4_000, 12_000))
            a.t.copy(int(3_000_000 * scale))
            a.t.copy(40_000)
            with a.module("GraphSAGE"):
                for number in range(3):
                    with a.t.mark(block=a.m.group()), a.module("SAGEConv", number):
                        a.run(
                            [
                                (INDEX, 20 * scale),
                                (spmm, 80 * scale),
                                (REDUCE, 6),
                                (GEMM, 30 * scale),
                                (GEMM, 30 * scale),
                                (ADD, 5),
                            ]
                        )
                        a.run([(RELU, 5), (DROPOUT, 6)] if number < 2 else [])
                a.run([(LOGSOFT, 6), (NLL, 4)])
            a.backward(
                [([(LOGSOFT, 6), (GEMM, 30), (GEMM, 35), (spmm, 90 * scale), (INDEX, 30), (DROPOUT, 4)] * 3, {})]
            )
            optimiser(a, 2, name="Adam")
            a.t.item()
    layers = ["block"] if a.dialect != "none" else []
    return a.program("gnn_sampling", ["step"], layers)


def recommender(rng: Random) -> Program:
    """Two ranks of a recommender: embedding bags, all-to-all, bottom and top networks; torchrec's words."""
    dialect = dialect_of(rng)
    machines = []
    for rank in range(2):
        a = Author(rng, dialect, pid=4_000 + 100 * rank, device=rank)
        machines.append(a.m)
        bag = "void fbgemm_gpu::split_embedding_codegen_forward_unweighted_kernel<float, c10::Half>(x)"
        for step in range(8):
            with a.t.mark(step=a.m.group()), a.note(f"ProfilerStep#{step}") if rng.random() < 2 else nullcontext():
                with a.note("## copy_batch_to_gpu ##"):
                    a.t.copy(2_000_000, pageable=False, stream=13)
                with a.note("## input_dist ##"):
                    a.run([(INDEX, 12), (SENDRECV, 60)], stream=15)
                with a.note("## forward ##"):
                    a.run([(GEMM, 30), (RELU, 5), (GEMM, 30), (RELU, 5), (bag, 200), (CAT, 10)])
                    a.run([(SENDRECV, 180)], stream=15)
                    a.run(
                        [(GEMM_SMALL, 40), (CAT, 9), (GEMM, 70), (RELU, 6), (GEMM, 50), (RELU, 5), (GEMM, 9), (NLL, 4)]
                    )
                with a.note("## backward ##"):
                    a.backward([([(GEMM, 60), (GEMM, 60), (RELU, 5), (GEMM, 50), (GEMM, 50), (CAT, 9)], {})])
                    a.run([(SENDRECV, 170)], stream=15)
                    a.run([("void fbgemm_gpu::split_embedding_backward_codegen_rowwise_adagrad_unweighted(x)", 300)])
                    a.run([(ALLREDUCE, 90)], stream=16)
                with a.note("## optimizer ##"):
                    a.run([(ADAM, 20)] * 2)
            a.t.host(150)
    return Program("recommender", machines, ["step"], [], is_kineto=dialect == "kineto", about=dialect)


def reinforcement(rng: Random) -> Program:
    """Rollout of an environment on the host with a small policy, then epochs of minibatches."""
    a = Author(rng, dialect_of(rng))
    policy: Kernels = [
        (GEMM_SMALL, 4),
        ("void at::native::tanh_kernel_cuda(x)", 2),
        (GEMM_SMALL, 4),
        ("void at::native::tanh_kernel_cuda(x)", 2),
        (GEMM_SMALL, 3),
    ]
    for turn in range(rng.randrange(2, 4)):
        with a.t.mark(turn=a.m.group()), a.note(f"iteration {turn}"):
            with a.note("collect_rollouts"):
                for _ in range(rng.randrange(20, 40)):
                    with a.t.mark(unit=a.m.group()):
                        a.t.copy(3_000)
                        a.run([*policy, (LOGSOFT, 3), ("void at::native::distribution_multinomial(x)", 4)])
                        a.t.copy(256, "DtoH")
                    a.t.host(rng.uniform(300, 700))
            with a.note("train"):
                for _ in range(16):
                    with a.t.mark(unit=a.m.group()):
                        a.run(
                            [
                                (INDEX, 6),
                                (INDEX, 6),
                                *[(name, us * 4) for name, us in policy],
                                (LOGSOFT, 5),
                                (REDUCE, 4),
                            ]
                        )
                        a.backward([([(REDUCE, 4), *[(GEMM_SMALL, 12)] * 5], {})])
                        optimiser(a, 2, name="Adam", clip=True)
    return a.program("reinforcement", ["unit", "turn"])


def gan(rng: Random) -> Program:
    """Two networks and two optimisers in one step: the discriminator with real and fake, then the generator."""
    a = Author(rng, dialect_of(rng))
    net: Kernels = [(CONV, 60), (BN, 15), (RELU, 9), (CONV, 90), (BN, 15), (RELU, 9), (CONV, 120), (BN, 12), (RELU, 6)]
    back: Kernels = [(RELU, 7), (BN_BWD, 20), (DGRAD, 100), (WGRAD, 110)] * 3
    for step in range(rng.randrange(6, 12)):
        with a.t.mark(step=a.m.group()), a.note(f"train_step {step}"):
            a.t.copy(800_000)
            with a.t.mark(part=a.m.group()), a.note("D"):
                with a.module("Discriminator"):
                    a.run([*net, (REDUCE, 4)])
                a.run([("void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(x)", 6)])
                with a.module("Generator"):
                    a.run(net)
                with a.module("Discriminator"):
                    a.run([*net, (REDUCE, 4)])
                a.backward([(back * 2, {})])
                optimiser(a, 2, name="Adam")
            with a.t.mark(part=a.m.group()), a.note("G"):
                with a.module("Discriminator"):
                    a.run([*net, (REDUCE, 4)])
                a.backward([(back * 2, {})])
                optimiser(a, 3, name="Adam")
            if step % 4 == 3:
                a.t.item()
    return a.program("gan", ["step", "part"])


def lora_checkpointing(rng: Random) -> Program:
    """Fine-tuning with activation checkpointing: each block runs forward again inside backward; accumulation."""
    a = Author(rng, dialect_of(rng))
    depth, micro = rng.choice((8, 16)), rng.choice((1, 1, 2, 4))
    lora: Kernels = [(GEMM_SMALL, 9), (GEMM_SMALL, 9), (ADD, 4)]
    for step in range(rng.randrange(4, 7)):
        with a.t.mark(step=a.m.group()), a.note(f"ProfilerStep#{step + 3}"):
            for _ in range(micro):
                with a.t.mark(micro=a.m.group()):
                    blocks = [a.m.group() for _ in range(depth)]
                    again = [a.m.group() for _ in range(depth)]
                    with a.module("LlamaForCausalLM"):
                        embed(a)
                        for number in range(depth):
                            labels = {"block": blocks[number], "turn": blocks[number]}
                            with a.t.mark(**labels), a.module("LlamaDecoderLayer", number):
                                a.run([*transformer(0.5), *lora])
                        a.run([(LN, 5), (GEMM, 90), (LOGSOFT, 30), (NLL, 5)])
                    body = [*transformer(0.5), *lora, *transformer_backward(0.3), *lora]
                    tail = [(LOGSOFT, 30), (GEMM, 90), (LN_BWD, 9)]
                    rest = {"block": NONE, "turn": NONE}
                    a.backward(
                        [
                            (tail, rest),
                            *[
                                (
                                    body,
                                    {"block": blocks[n], "turn": again[n]}
                                    if a.dialect in ("none", "nvtx")
                                    else {"block": NOT_JUDGED, "turn": NOT_JUDGED},
                                )
                                for n in reversed(range(depth))
                            ],
                        ]
                    )
            with a.t.mark(block=NONE, micro=NONE, turn=NONE):
                optimiser(a, 3, clip=True)
    layers = ["block", "turn"] if a.dialect != "nvtx" else []
    return a.program("lora_checkpointing", ["step", *(["micro"] if micro > 1 else [])], layers)


def pipeline_1f1b(rng: Random) -> Program:
    """One stage of a pipeline: warm-up forwards, one forward and one backward in turn, cool-down; Megatron's way."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    micro, ahead, depth = 8, rng.randrange(1, 4), rng.choice((3, 4))

    def forward() -> None:
        with a.t.mark(unit=a.m.group()), a.note("forward_step"):
            a.run([(SENDRECV, 40)], stream=20)
            for _ in range(depth):
                with a.t.mark(block=a.m.group()), a.module("TransformerLayer"):
                    a.run(transformer(0.4))
            a.run([(SENDRECV, 35)], stream=20)

    def backward() -> None:
        with a.t.mark(unit=a.m.group()), a.note("backward_step"):
            a.run([(SENDRECV, 40)], stream=20)
            a.backward([(transformer_backward(0.4), {"block": a.m.group()}) for _ in range(depth)])
            a.run([(SENDRECV, 35)], stream=20)

    for step in range(rng.randrange(3, 6)):
        with a.t.mark(step=a.m.group()), a.note(f"train_step iteration {step + 11}"):
            for _ in range(ahead):
                forward()
            for _ in range(micro - ahead):
                forward()
                backward()
            for _ in range(ahead):
                backward()
            a.run([(ALLREDUCE, 200)], stream=21)
            with a.note("optimizer"):
                a.run([(NORM_L2, 9), (NORM_L2, 9), (REDUCE, 3), (ALLREDUCE, 12)])
                a.t.item()
                a.run([(ADAM, 40)] * 4)
        a.t.host(400)
    return a.program("pipeline_1f1b", ["step", "unit"], ["block"] if a.dialect == "none" else [])


def fsdp(rng: Random) -> Program:
    """Sharded training: all-gathers run ahead on a stream of their own, reduce-scatters behind."""
    a = Author(rng, dialect_of(rng))
    depth = rng.choice((6, 10))
    for step in range(rng.randrange(4, 7)):
        with a.t.mark(step=a.m.group()), a.note(f"ProfilerStep#{step}"):
            blocks = [a.m.group() for _ in range(depth)]
            behind = [a.m.group() for _ in range(depth)]
            with a.module("FullyShardedDataParallel"):
                embed(a)
                for number in range(depth):
                    with a.t.mark(block=blocks[number], half=blocks[number]), a.module("FSDPTransformerBlock", number):
                        with a.note("FSDP::all_gather"), a.t.mark(**dict.fromkeys(("block", "half"), NOT_JUDGED)):
                            done = a.t.launch(GATHER, 90, stream=22)["end"]
                        a.t.host(20)
                        a.run(transformer(0.6)[:1], after=done if number == 0 else 0)
                        a.run(transformer(0.6)[1:])
                a.run([(LN, 5), (GEMM, 80), (LOGSOFT, 20), (NLL, 4)])
            with a.autograd() as thread:
                for number in reversed(range(depth)):
                    with thread.mark(block=blocks[number], half=behind[number]):
                        with a.t.mark(block=NOT_JUDGED, half=NOT_JUDGED):
                            thread.launch(GATHER, 90, stream=22)
                        for name, us in transformer_backward(0.6):
                            thread.host(a.gap)
                            if a.dialect == "kineto":
                                with thread.range(backward_of(name), "cpu_op"):
                                    thread.launch(name, us)
                            else:
                                thread.launch(name, us)
                        with a.t.mark(block=NOT_JUDGED, half=NOT_JUDGED):
                            thread.launch(SCATTER, 110, stream=23)
            optimiser(a, 4)
            a.t.item()
    if a.dialect != "none":  # backward has no range of its own: a layer may or may not hold it
        for row in a.m.work:
            if row["tid"] != a.t.tid and "block" in row["labels"]:
                row["labels"] |= {"block": NOT_JUDGED, "half": NOT_JUDGED}
    return a.program("fsdp", ["step"], ["block", "half"])


def moe_training(rng: Random) -> Program:
    """Two ranks of a mixture of experts: routing, all-to-all, grouped products of differing size, all-to-all."""
    dialect = dialect_of(rng, "none", "nvtx", "module")
    machines = []
    for rank in range(2):
        a = Author(rng, dialect, pid=5_000 + 10 * rank, device=rank)
        machines.append(a.m)
        for step in range(rng.randrange(4, 5)):
            with a.t.mark(step=a.m.group()), a.note(f"step={step}"):
                embed(a)
                for number in range(8):
                    with a.t.mark(block=a.m.group()), a.module("MoETransformerLayer", number):
                        a.run(transformer(0.4)[:6])
                        a.run(
                            [(GEMM_SMALL, 6), (SOFTMAX, 5), (TOPK, 9), (INDEX, 6), (SENDRECV, 70 + rng.random() * 60)]
                        )
                        for _ in range(rng.randrange(2, 5)):
                            a.run([(GEMM, 20 + 30 * rng.random()), (SILU, 5), (GEMM, 20 + 30 * rng.random())])
                        a.run([(SENDRECV, 70), (INDEX, 6), (ADD, 5)])
                a.run([(LN, 5), (GEMM, 60), (LOGSOFT, 15), (NLL, 4)])
                a.backward(
                    [
                        (
                            [
                                (GEMM, 40),
                                (GEMM, 40),
                                (SENDRECV, 90),
                                (GELU, 9),
                                (SENDRECV, 90),
                                *transformer_backward(0.4),
                            ],
                            {},
                        )
                        for _ in range(8)
                    ]
                )
                with a.t.mark(block=NONE):
                    a.run([(SCATTER, 150)], stream=9)
                    optimiser(a, 3)
            a.t.host(300)
        for row in a.m.work:
            if row["tid"] != a.t.tid:
                row["labels"]["block"] = NOT_JUDGED
    layers = ["block"] if dialect != "none" else []
    return Program("moe_training", machines, ["step"], layers, is_kineto=dialect == "module", about=dialect)


def deepspeed_zero3(rng: Random) -> Program:
    """DeepSpeed: functions decorated with NVTX ranges, fetching of parameters inside modules."""
    a = Author(rng, "nvtx")
    depth = 8
    for _ in range(rng.randrange(4, 7)):
        with a.t.mark(step=a.m.group()):
            a.t.copy(64_000)
            with a.t.range("DeepSpeedEngine.forward"):
                embed(a)
                for _number in range(depth):
                    with a.t.mark(block=a.m.group()):
                        with a.t.range("PartitionedParameterCoordinator.fetch_sub_module"):  # noqa: SIM117
                            with a.t.range("DeepSpeedZeRoOffload.all_gather_coalesced"):
                                a.run([(GATHER, 60)], stream=30)
                        a.run(transformer(0.5))
                        with a.t.range("PartitionedParameterCoordinator.release_sub_module"):
                            a.t.host(25)
                a.run([(GEMM, 60), (LOGSOFT, 15), (NLL, 4)])
            with a.t.range("DeepSpeedEngine.backward"):
                a.backward([(transformer_backward(0.5), {}) for _ in range(depth)])
                with a.t.range("DeepSpeedZeroOptimizer_Stage3.reduce_independent_p_g_buckets_and_remove_grads"):
                    a.run([(SCATTER, 150)], stream=31)
            with a.t.range("DeepSpeedEngine.step"), a.t.range("DeepSpeedZeroOptimizer_Stage3.step"):
                a.run([(NORM_L2, 8)])
                a.t.item()
                a.run([(ADAM, 40)] * 3)
    return a.program("deepspeed_zero3", ["step"])


def lightning(rng: Random) -> Program:
    """Lightning: the optimiser's step is called first, forward and backward run in its closure."""
    a = Author(rng, "kineto" if rng.random() < 0.6 else "nvtx")
    pre = "[pl][profile]"
    for step in range(rng.randrange(5, 9)):
        with (
            a.t.mark(step=a.m.group()),
            a.say(f"ProfilerStep#{step}") if rng.random() < 2 and a.dialect == "kineto" else nullcontext(),
        ):
            with a.say(f"{pre}[_TrainingEpochLoop].train_dataloader_next"):
                a.t.host(rng.uniform(200, 900))
            with a.say(f"{pre}[Strategy]SingleDeviceStrategy.batch_to_device"):
                a.t.copy(600_000)
            with a.say(f"{pre}run_training_batch"):  # noqa: SIM117
                with a.say(f"{pre}[LightningModule]LitModel.optimizer_step"), a.say("Optimizer.step#AdamW.step"):
                    with a.say(f"{pre}[Strategy]SingleDeviceStrategy.training_step"):  # noqa: SIM117
                        with a.module("ResNet"):
                            a.run([(CONV, 60), (BN, 20), (RELU, 9), (POOL, 12)])
                            for number in range(6):
                                with a.t.mark(block=a.m.group()), a.module("BasicBlock", number):
                                    a.run([(CONV, 50), (BN, 12), (RELU, 6), (CONV, 50), (BN, 12), (ADD, 5), (RELU, 6)])
                            a.run([(REDUCE, 5), (GEMM_SMALL, 6), (LOGSOFT, 4), (NLL, 3)])
                    with a.say(f"{pre}[Strategy]SingleDeviceStrategy.backward"):
                        a.backward([([(BN_BWD, 15), (DGRAD, 60), (WGRAD, 66)] * 13, {})])
                    a.run([(ADAM, 25)] * 3, "aten::_fused_adamw_")
            with a.say(f"{pre}[Callback]ModelCheckpoint.on_train_batch_end"):
                a.t.host(60)
    return a.program("lightning", ["step"], ["block"])


def train_with_validation(rng: Random) -> Program:
    """Epochs: training steps, then validation passes, then a checkpoint that is copied to the host."""
    a = Author(rng, dialect_of(rng))
    depth = 8
    for _epoch in range(rng.randrange(2, 4)):
        for step in range(rng.randrange(6, 10)):
            with a.t.mark(unit=a.m.group()), a.note(f"train step {step}"):
                a.t.copy(300_000)
                with a.module("ViT"):
                    a.run([(CONV, 30), (ADD, 5)])
                    for number in range(depth):
                        with a.t.mark(block=a.m.group()), a.module("Block", number):
                            a.run(transformer(0.5))
                    a.run([(LN, 5), (GEMM_SMALL, 6), (LOGSOFT, 4), (NLL, 3)])
                a.backward([(transformer_backward(0.5), {"block": NOT_JUDGED}) for _ in range(depth)])
                optimiser(a, 5)
        for batch in range(rng.randrange(3, 6)):
            with a.t.mark(unit=a.m.group()), a.note(f"val step {batch}"):
                a.t.copy(300_000)
                with a.module("ViT"):
                    a.run([(CONV, 30), (ADD, 5)])
                    for number in range(depth):
                        with a.t.mark(block=a.m.group()), a.module("Block", number):
                            a.run(transformer(0.5))
                    a.run([(LN, 5), (GEMM_SMALL, 6), (LOGSOFT, 4), (NLL, 3), (ARGMAX, 4)])
                a.t.item()
        with a.note("save_checkpoint"):
            for _ in range(30):
                a.t.copy(2_000_000, "DtoH")
            a.t.host(40_000)
    return a.program("train_with_validation", ["unit"], ["block"])


def autotuned(rng: Random) -> Program:
    """Convolutions whose first step tries algorithms; the first launch of each kernel loads its code."""
    a = Author(rng, dialect_of(rng))
    tried = [
        f"cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_{n}x64_32x5_nhwc>(p)"
        for n in (64, 128, 256)
    ]
    seen: set[str] = set()
    for step in range(rng.randrange(6, 12)):
        with a.t.mark(step=a.m.group()), a.note(f"iter {step}"):
            a.t.copy(1_000_000)
            with a.module("Net"):
                for number in range(8):
                    with a.t.mark(block=a.m.group()), a.module("ConvBlock", number):
                        if not step:
                            a.run([(one, 40 + 10 * number) for one in tried for _ in range(3)])
                        for name, us in ((CONV, 60), (BN_INF, 10), (RELU, 6)):
                            a.t.launch(name, us, pause=0 if name in seen else 900)
                            a.t.host(a.gap)
                            seen.add(name)
                a.run([(REDUCE, 5), (GEMM_SMALL, 6), (SOFTMAX, 4)])
            a.t.copy(4_000, "DtoH")
    return a.program("autotuned", ["step"], ["block"], warmups={a.m.work[0]["labels"]["step"]} if a.m.work else set())


def accumulate_mixed(rng: Random) -> Program:
    """Buckets of image sizes (small and large batches in turn), loss read every step, scaler for mixed precision."""
    a = Author(rng, dialect_of(rng))
    sizes = [0.5, 1.0, 2.2]
    for step in range(rng.randrange(8, 14)):
        size = rng.choice(sizes)
        with a.t.mark(step=a.m.group()), a.note(f"Step {step}: bs={int(size * 8)}"):
            a.t.copy(int(900_000 * size))
            with a.note("forward"):
                a.run([(CONV, 90 * size), (BN, 20 * size), (RELU, 9 * size)])
                for number in range(5):
                    with a.t.mark(block=a.m.group()), a.module("Bottleneck", number):
                        a.run(
                            [
                                (CONV, 40 * size),
                                (BN, 9),
                                (RELU, 6),
                                (CONV, 70 * size),
                                (BN, 9),
                                (RELU, 6),
                                (CONV, 40 * size),
                                (BN, 9),
                            ]
                        )
                        a.run([(ADD, 6), (RELU, 6)])
                a.run([(REDUCE, 5), (GEMM_SMALL, 9), (LOGSOFT, 4), (NLL, 4), (MUL, 3)])
            with a.note("backward"):
                a.backward([([(BN_BWD, 9), (DGRAD, 50 * size), (WGRAD, 55 * size), (RELU, 6)] * 15, {})])
            a.run([("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<UnscaleFunctor>(x)", 9)] * 2)
            a.t.item()
            optimiser(a, 2, name="SGD")
            a.t.item()
    return a.program("accumulate_mixed", ["step"], ["block"] if a.dialect != "none" else [])


def compiled_trees(rng: Random) -> Program:
    """torch.compile with graph trees: eager warm-up, capture, then one launch of a graph per step; Triton kernels."""
    a = Author(rng, dialect_of(rng, "none", "kineto"))
    depth = rng.choice((6, 12))
    block: Kernels = [
        ("triton_red_fused_add_native_layer_norm_0", 6),
        (GEMM, 50),
        (FLASH, 30),
        (GEMM, 20),
        ("triton_per_fused_add_native_layer_norm_1", 7),
        (GEMM, 70),
        ("triton_poi_fused_gelu_2", 8),
        (GEMM, 66),
    ]
    for step in range(rng.randrange(8, 16)):
        with a.t.mark(step=a.m.group()), a.note(f"ProfilerStep#{step}"):
            a.t.copy(200_000)
            with a.note("Torch-Compiled Region: 0/0") if step else a.note("Torch-Compiled Region"):
                if step < 2:
                    a.run([("triton_poi_fused_embedding_0", 5)], "triton_poi_fused_embedding_0")
                    for _ in range(depth):
                        with a.t.mark(block=a.m.group()):
                            for name, us in block:
                                a.t.host(a.gap * (8 if not step else 1))
                                a.run([(name, us)], name if "triton" in name else "")
                    a.run([("triton_per_fused_mean_9", 5)], "triton_per_fused_mean_9")
                else:
                    a.run([(COPY, 3)])
                    blocks = [a.m.group() for _ in range(depth)]
                    marks = [{"block": NONE}, *[{"block": one} for one in blocks for _ in block], {"block": NONE}]
                    a.t.graph(
                        [("triton_poi_fused_embedding_0", 5), *block * depth, ("triton_per_fused_mean_9", 5)],
                        marks=marks,
                        node_base=3 << 32,
                    )
            a.t.item()
    return a.program("compiled_trees", ["step"], ["block"])


# -- other runtimes ----------------------------------------------------------------------------------------------------


def tensorrt_enqueue(rng: Random) -> Program:
    """TensorRT: enqueue with or without layer ranges, input and output copies."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    layers = [
        f"/layer{n // 2 + 1}/layer{n // 2 + 1}.{n % 2}/conv{k}/Conv + /relu{n}/Relu" for n in range(8) for k in (1, 2)
    ]
    tactic = "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_tile"
    for _ in range(rng.randrange(10, 30)):
        with a.t.mark(step=a.m.group()):
            a.t.copy(600_000, pageable=False)
            with a.t.range("ExecutionContext::enqueue", domain="TensorRT") if a.dialect == "nvtx" else nullcontext():
                for text in [
                    "Reformatting CopyNode for Input Tensor 0 to /conv1/Conv",
                    "/conv1/Conv + /relu/Relu",
                    *layers,
                    "/fc/Gemm",
                ]:
                    with a.t.mark(layer=a.m.group()):  # noqa: SIM117
                        with a.t.range(text, domain="TensorRT") if a.dialect == "nvtx" else nullcontext():
                            kernel = (
                                "void genericReformat::copyPackedKernel<float, signed char, true>(x)"
                                if "Reform" in text
                                else (
                                    f"{tactic}size{64 + 32 * (len(text) % 3)}x64x64_stage3"
                                    if "Conv" in text
                                    else GEMM_SMALL
                                )
                            )
                            a.t.launch(kernel, 12 + len(text) % 9)
                            a.t.host(1.5)
            a.t.copy(4_000, "DtoH", pageable=False)
            a.t.sync(7)
        a.t.host(rng.uniform(20, 400))
    return a.program("tensorrt_enqueue", ["step"], ["layer"] if a.dialect == "nvtx" else [])


def onnxruntime(rng: Random) -> Program:
    """ONNX Runtime: the CUDA provider, node by node; copies between providers inside; several sessions' runs."""
    a = Author(rng, "none")
    for _ in range(rng.randrange(8, 16)):
        with a.t.mark(step=a.m.group()):
            a.t.copy(150_000)
            a.run(
                [
                    ("void onnxruntime::cuda::_GatherKernel<__half>(x)", 5),
                    ("void onnxruntime::cuda::LayerNorm<x>(x)", 5),
                ]
            )
            for _ in range(12):
                with a.t.mark(block=a.m.group()):
                    a.run(
                        [
                            (GEMM, 30),
                            ("void onnxruntime::contrib::cuda::AddBiasTransposeQKV<half2>(x)", 5),
                            ("fmha_v2_flash_attention_fp16_S_64_sm80_kernel", 20),
                            (GEMM, 12),
                            ("void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<half, 256, 8>(x)", 5),
                            (GEMM, 40),
                            ("void onnxruntime::contrib::cuda::FastGeluKernel2<256>(x)", 5),
                            (GEMM, 38),
                            ("void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<half, 256, 8>(x)", 5),
                        ]
                    )
            a.run([(GEMM_SMALL, 4), ("void onnxruntime::cuda::_UnaryElementWise<half, TanhOp>(x)", 3)])
            a.t.copy(3_000, "DtoH")
            a.t.sync(7)
        a.t.host(rng.uniform(50, 300))
    return a.program("onnxruntime", ["step"], ["block"])


def jax_training(rng: Random) -> Program:
    """JAX: one jitted module per step, thunks inside, small modules (random keys, conversions) in between."""
    a = Author(rng, dialect_of(rng, "none", "nvtx", "nvtx"))
    depth = rng.choice((4, 8))

    def thunk(name: str) -> Any:
        return a.t.range(f"Thunk:#hlo_op={name}#", domain="TSL") if a.dialect == "nvtx" else nullcontext()

    def module(name: str, number: int) -> Any:
        text = f"XlaModule:#hlo_module={name},program_id={number}#"
        return a.t.range(text, domain="TSL") if a.dialect == "nvtx" else nullcontext()

    is_small = rng.random() < 0.6
    for _step in range(rng.randrange(6, 14)):
        with a.t.mark(turn=a.m.group()):
            if is_small:
                with module("jit__threefry_split", 7), thunk("loop_fusion"):
                    a.t.launch("loop_xor_fusion", 3)
                a.t.host(40)
            with a.t.mark(step=a.m.group()), module("jit_train_step", 21):
                for number in range(depth):
                    for name, us in (
                        ("loop_convert_fusion", 6),
                        ("cublas-gemm", 60),
                        ("input_reduce_fusion", 9),
                        ("cublas-gemm", 40),
                        ("loop_multiply_fusion", 8),
                        ("cublas-gemm", 55),
                    ):
                        op = f"{name}.{number * 6 + int(us)}"
                        with a.t.mark(block=a.m.group()), thunk(op):
                            kernel = GEMM if "gemm" in name else name if not number else f"{name}_{number}"
                            a.t.launch(kernel, us)
                            a.t.host(1)
                for number in reversed(range(depth)):
                    for name, us in (
                        ("input_add_reduce_fusion", 9),
                        ("cublas-gemm", 62),
                        ("loop_subtract_fusion", 9),
                        ("cublas-gemm", 44),
                    ):
                        with thunk(f"{name}.{100 + number * 4 + int(us)}"):
                            a.t.launch(GEMM if "gemm" in name else f"{name}_{number}", us)
                            a.t.host(1)
                a.t.launch("loop_add_multiply_fusion_adam", 30)
        a.t.host(rng.uniform(100, 300))
    executions = ["step"] if a.dialect == "nvtx" else ["turn", "step"]
    return a.program("jax_training", executions)


def stencil(rng: Random) -> Program:
    """A stencil on two GPUs: interior and halo kernels, exchange of halos; a norm every tenth step."""
    machines = []
    dialect = dialect_of(rng, "none", "nvtx")
    steps, every = rng.randrange(40, 80), rng.choice((5, 10))
    for rank in range(2):
        a = Author(rng, dialect, pid=6_000 + rank * 50, device=rank)
        machines.append(a.m)
        for step in range(steps):
            is_norm = step % every == every - 1
            with a.t.mark(step=a.m.group(), cycle=step // every + 1_000 * (rank + 1)):
                with a.t.range("Jacobi solve step") if dialect == "nvtx" else nullcontext():
                    a.t.memset(8)
                    a.t.launch("void jacobi_kernel<32, 32>(float*, float const*, float*, int, int, int, bool)", 120)
                    a.t.copy(65_536, "DtoD")
                    a.t.copy(65_536, "DtoD")
                    if is_norm:
                        a.t.copy(4, "DtoH", pageable=False)
                        a.t.sync(7)
                a.t.host(4)
    return Program("stencil", machines, ["step", "cycle"], [], about=dialect)


def cg_solver(rng: Random) -> Program:
    """Time steps with a differing number of iterations of a conjugate gradient; scalars go to the host."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    for step in range(rng.randrange(4, 8)):
        with a.t.mark(step=a.m.group()), a.note(f"time step {step}"):
            a.run([("assemble_rhs(double*, double const*, int)", 80), ("apply_bc(double*, int)", 10)])
            for _ in range(rng.randrange(10, 22)):
                with a.t.mark(turn=a.m.group()):
                    a.run([("void cusparse::csrmv_v3_kernel<int, int, double, double, double>(x)", 90)])
                    a.run(
                        [
                            ("void dot_kernel<double, 128, 0, cublasDotParams<cublasGemvTensor<double const>>>(x)", 12),
                            ("void reduce_1Block_kernel<double, 128, 7, cublasGemvTensor<double>>(x)", 4),
                        ]
                    )
                    a.t.copy(8, "DtoH")
                    a.run([("void axpy_kernel_val<double, double>(cublasAxpyParamsVal<double>)", 20)] * 2)
                    a.run(
                        [
                            ("void dot_kernel<double, 128, 0, cublasDotParams<cublasGemvTensor<double const>>>(x)", 12),
                            ("void reduce_1Block_kernel<double, 128, 7, cublasGemvTensor<double>>(x)", 4),
                        ]
                    )
                    a.t.copy(8, "DtoH")
                    a.run(
                        [
                            ("void scal_kernel_val<double, double>(cublasScalParamsVal<double>)", 15),
                            ("void axpy_kernel_val<double, double>(cublasAxpyParamsVal<double>)", 20),
                        ]
                    )
            a.run([("update_velocity(double*, double const*, int)", 60)])
    return a.program("cg_solver", ["turn", "step"])


def openacc(rng: Random) -> Program:
    """A Fortran code with OpenACC: kernels named by routine and line, update directives, waits."""
    a = Author(rng, "none")
    names = [
        f"{routine}_{line}_gpu"
        for routine, line in (
            ("advec_cell", 112),
            ("advec_cell", 140),
            ("advec_mom", 88),
            ("calc_dt", 77),
            ("accelerate", 52),
            ("pdv", 61),
            ("flux_calc", 44),
            ("reset_field", 39),
            ("ideal_gas", 33),
            ("viscosity", 58),
        )
    ]
    for _ in range(rng.randrange(14, 30)):
        with a.t.mark(step=a.m.group()):
            for name in names:
                a.t.launch(name, 30 + len(name), block=128)
                a.t.sync(7)
                if name.startswith("calc_dt"):
                    a.t.launch(name + "__red", 5, block=256)
                    a.t.copy(8, "DtoH")
                a.t.host(3)
    return a.program("openacc", ["step"])


def julia_flux(rng: Random) -> Program:
    """Julia: kernels of broadcasts and CUBLAS, epochs over batches, garbage collection now and then."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"), launch_name="cuLaunchKernel")
    cast = "_Z{}julia_broadcast_kernel_linear_{}CompilerMetadata13DynamicCheckvv16CartesianIndices"
    for _epoch in range(rng.randrange(2, 4)):
        for _batch in range(rng.randrange(6, 10)):
            with a.t.mark(step=a.m.group()), a.note("train!"):
                for number in range(3):
                    a.t.launch("ampere_sgemm_64x32_sliced1x4_nn", 40)
                    a.t.launch(cast.format(20, number), 8)
                    a.t.launch(cast.format(21, 9), 7)
                    a.t.host(15)
                a.t.launch("_Z22partial_mapreduce_grid8identity2_vRefOpFloat3216CartesianIndices", 9)
                for number in range(3):
                    a.t.launch("ampere_sgemm_32x128_nt", 40)
                    a.t.launch("ampere_sgemm_32x128_tn", 42)
                    a.t.launch(cast.format(23, number), 9)
                    a.t.host(15)
                for number in range(6):
                    a.t.launch(cast.format(25, 30 + number % 2), 5)
                    a.t.host(6)
            if rng.random() < 0.15:
                a.t.host(30_000)
    return a.program("julia_flux", ["step"])


def cudf_partitions(rng: Random) -> Program:
    """Dataframes: each partition is read, joined, grouped; libcudf's ranges, or none."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    ops = {
        "read_parquet": [
            ("void cudf::io::parquet::gpu::gpuDecodePageData<128>(x)", 200),
            ("void nvcomp::snappy_decompress_kernel(x)", 300),
        ],
        "inner_join": [
            ("void cudf::detail::insert_kernel<cuco::static_multimap>(x)", 120),
            ("void cudf::detail::retrieve_kernel<128>(x)", 160),
            ("void cub::DeviceScanKernel<x>(x)", 9),
        ],
        "gather": [("void thrust::cuda_cub::core::_kernel_agent<gather>(x)", 40)] * 3,
        "groupby": [
            ("void cudf::groupby::detail::hash::compute_mapping<x>(x)", 90),
            ("void cudf::groupby::detail::hash::single_pass_shmem_aggs_kernel(x)", 110),
        ],
        "sort": [("void cub::DeviceRadixSortOnesweepKernel<x>(x)", 30)] * 4,
    }
    for _ in range(rng.randrange(6, 14)):
        size = rng.uniform(0.6, 1.5)
        with a.t.mark(part=a.m.group()):
            for op, kernels in ops.items():
                with (
                    a.t.mark(op=a.m.group()),
                    a.t.range(op, domain="libcudf") if a.dialect == "nvtx" else nullcontext(),
                ):
                    a.run([(name, us * size) for name, us in kernels])
                    a.t.sync(7)
            a.t.copy(100_000, "DtoH")
        a.t.host(rng.uniform(500, 3_000))
    return a.program("cudf_partitions", ["part"], ["op"] if a.dialect == "nvtx" else [])


def dali_vision(rng: Random) -> Program:
    """Decoding and augmentation on threads and streams of their own, inference on another."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    loader = a.m.thread(55, a.t.now, "[DALI][E]GPU")
    for _batch in range(rng.randrange(8, 14)):
        group = a.m.group()
        with a.t.mark(step=group):
            with loader.range("[DALI][GPU op] decoders__Image", domain="DALI"):
                for _ in range(3):
                    loader.launch("void nvjpeg::decode_kernel<x>(x)", 60, stream=31)
                    loader.host(10)
            with loader.range("[DALI][GPU op] RandomResizedCrop", domain="DALI"):
                loader.launch("void dali::kernels::SampleCombineResizeKernel<x>(x)", 50, stream=31)
            with loader.range("[DALI][GPU op] CropMirrorNormalize", domain="DALI"):
                end = loader.launch(
                    "void dali::kernels::slice_flip_normalize::SliceFlipNormalizeKernel<x>(x)", 40, stream=31
                )["end"]
            a.t.wait_until(end + 5_000)
            with a.note("infer"), a.module("EfficientNet"):
                for number in range(10):
                    with a.t.mark(block=a.m.group()), a.module("MBConv", number):
                        a.run(
                            [
                                (CONV, 40),
                                (BN_INF, 8),
                                (SILU, 8),
                                (REDUCE, 5),
                                (CONV, 6),
                                (CONV, 30),
                                (BN_INF, 8),
                                (ADD, 5),
                            ]
                        )
                a.run([(REDUCE, 5), (GEMM_SMALL, 5)])
            a.t.copy(8_000, "DtoH")
            loader.wait_until(a.t.now)
    for row in a.m.work:  # decoding ahead belongs to its batch or to none
        if row["tid"] == loader.tid:
            row["labels"]["step"] = NOT_JUDGED
    return a.program("dali_vision", ["step"], ["block"] if a.dialect == "nvtx" else [])


def shared_gpu(rng: Random) -> Program:
    """Three processes of a service share one GPU (MPS), each at a pace of its own; bursts and long silence."""
    machines = []
    dialect = dialect_of(rng, "none", "nvtx")
    for number in range(3):
        a = Author(rng, dialect, pid=7_000 + number * 11)
        machines.append(a.m)
        a.t.host(rng.uniform(0, 20_000))
        for request in range(rng.randrange(6, 12)):
            with a.t.mark(step=a.m.group()), a.note(f"request {request * 3 + number}"):
                a.t.copy(150_000)
                for _ in range(6):
                    with a.t.mark(block=a.m.group()):
                        a.run(transformer(0.3))
                a.run([(GEMM_SMALL, 4), (SOFTMAX, 3)])
                a.t.copy(4_000, "DtoH")
            a.t.host(rng.choice((500, 2_000, 400_000)))
    return Program("shared_gpu", machines, ["step"], ["block"] if dialect == "none" else [], about=dialect)


def detection(rng: Random) -> Program:
    """A detector: the backbone is equal for all images, the part after the proposals differs; a tracker on the host."""
    a = Author(rng, dialect_of(rng))
    for frame in range(rng.randrange(8, 14)):
        found = rng.randrange(1, 9)
        with a.t.mark(step=a.m.group()), a.note(f"frame {frame}"):
            a.t.copy(900_000)
            with a.module("Backbone"):
                for number in range(6):
                    with a.t.mark(block=a.m.group()), a.module("C2f", number):
                        a.run([(CONV, 60), (BN_INF, 9), (SILU, 9), (CONV, 50), (BN_INF, 9), (SILU, 9), (CAT, 8)])
            with a.module("Detect"):
                a.run([(CAT, 9), (SOFTMAX, 9), (CONV, 20), (TOPK, 20)])
            a.t.item()
            with a.note("nms"):
                for _ in range(found):
                    a.run(
                        [
                            (INDEX, 4),
                            (MUL, 3),
                            ("void vision::ops::nms_kernel_impl<float>(int, double, float const*)", 12),
                        ]
                    )
                    a.t.copy(4_000, "DtoH")
        a.t.host(rng.uniform(800, 1_600))
    return a.program("detection", ["step"], ["block"] if a.dialect in ("nvtx", "kineto") else [])


def splatting(rng: Random) -> Program:
    """Gaussian splatting: many short training steps, densification every so many, no framework ranges."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    every = rng.choice((8, 10))
    for step in range(rng.randrange(24, 40)):
        with a.t.mark(step=a.m.group()), a.note(f"iteration {step}"):
            a.run([("preprocessCUDA<3>(int, int, int, float const*)", 60), ("void cub::DeviceScanKernel<x>(x)", 8)])
            a.t.copy(4, "DtoH")
            a.run([("duplicateWithKeys(int, float2 const*)", 30)])
            for _ in range(4):
                a.run([("void cub::DeviceRadixSortOnesweepKernel<x>(x)", 25)])
            a.run(
                [
                    ("identifyTileRanges(int, unsigned long*, uint2*)", 10),
                    ("renderCUDA<3u>(uint2 const*)", 200),
                    (MUL, 5),
                    (REDUCE, 5),
                    ("fusedssimCUDA(int, int)", 30),
                    ("fusedssim_backwardCUDA(int, int)", 35),
                    ("PerGaussianRenderCUDA<3u>(x)", 400),
                    ("computeCov2DCUDA(int, float3 const*)", 20),
                    ("preprocessCUDA_backward<3>(int, int)", 30),
                ]
            )
            if step % every == every - 1:
                a.run([(CAT, 20)] * 6 + [(INDEX, 15)] * 6)
            a.run([("void adamUpdateCUDA<float>(float*, float const*)", 30)] * 6)
    return a.program("splatting", ["step"])


def molecular_dynamics(rng: Random) -> Program:
    """GROMACS-like: short steps of a few kernels on two streams; the pair list is pruned and rebuilt."""
    a = Author(rng, "none")
    every = rng.choice((10, 20))
    for step in range(rng.randrange(60, 120)):
        with a.t.mark(step=a.m.group(), cycle=step // every):
            if step % every == 0:
                a.t.copy(600_000, pageable=False)
                a.t.launch("nbnxn_kernel_prune_cuda<true>(NBAtomDataGpu, NBParamGpu, int, int)", 40)
                a.t.host(300)
            a.t.launch("nbnxn_kernel_ElecEw_VdwLJCombGeom_F_cuda(NBAtomDataGpu, NBParamGpu)", 90, stream=15)
            end = a.t.launch("void pme_spline_and_spread_kernel<4, true, true, true>(PmeGpuCudaKernelParams)", 20)[
                "end"
            ]
            for name, us in (
                ("void regular_fft_factor<40u, EPT<5u>>(x)", 8),
                ("void pme_solve_kernel<GridOrdering, false>(x)", 6),
                ("void regular_fft_factor<40u, EPT<5u>>(x)", 8),
                ("void pme_gather_kernel<4, true>(x)", 15),
            ):
                a.t.launch(name, us)
            a.t.launch("void reduceKernel<true, false>(float3 const*, float3*)", 6, after=end + 90_000)
            a.t.launch("void leapfrog_kernel<NumTempScaleValues::None, false>(int)", 5)
            a.t.launch("void lincs_kernel<true, false>(x)", 9)
            a.t.host(6)
    return a.program("molecular_dynamics", ["step", "cycle"])


def boosting(rng: Random) -> Program:
    """Gradient boosting: rounds of a tree grown level by level; each level has its histogram and its splits."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    depth = rng.randrange(5, 8)
    for number in range(rng.randrange(8, 16)):
        with a.t.mark(round=a.m.group()), a.note("UpdateOneIter"):
            a.run([("void dh::LaunchNKernel<GetGradient>(x)", 30)])
            for level in range(depth):
                with a.t.mark(level=a.m.group()), a.note(f"depth {level}"):
                    a.run(
                        [
                            ("void xgboost::tree::SharedMemHistKernel<GradientPairInt64>(x)", 150 - 10 * level),
                            ("void xgboost::tree::EvaluateSplitsKernel<256>(x)", 20),
                            ("void xgboost::tree::UpdatePositionKernel(x)", 30),
                        ]
                    )
                    a.t.copy(400 << level, "DtoH")
                    a.t.host(20)
            a.run([("void dh::LaunchNKernel<UpdatePrediction>(x)", 40)])
            if number % 4 == 3:
                a.t.host(400)
    return a.program("boosting", ["round"], ["level"] if a.dialect == "nvtx" else [])


def kmeans_cupy(rng: Random) -> Program:
    """A loop of cupy calls: distances, argmin, new centres, test for convergence on the host."""
    a = Author(rng, "none", launch_name="cuLaunchKernel")
    for _ in range(rng.randrange(15, 40)):
        with a.t.mark(step=a.m.group()):
            for name, us in (
                ("cupy_subtract__float64_float64_float64", 60),
                ("cupy_square__float64_float64", 40),
                ("cupy_sum", 50),
                ("cupy_argmin", 20),
                ("cupy_scatter_add", 60),
                ("cupy_true_divide__float64_float64_float64", 5),
                ("cupy_isclose__float64_float64_bool", 4),
                ("cupy_all", 4),
            ):
                a.t.launch(name, us)
                a.t.host(25)
            a.t.copy(1, "DtoH")
    return a.program("kmeans_cupy", ["step"])


def profiler_window(rng: Random) -> Program:
    """A loop of which the profiler saw a part: its first and its last step are cut through."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    for step in range(rng.randrange(8, 14)):
        with a.t.mark(step=a.m.group()), a.note(f"step {step}"):
            embed(a)
            for _ in range(8):
                with a.t.mark(block=a.m.group()), a.module("Layer"):
                    a.run(transformer(0.5))
            a.run([(LN, 4), (GEMM, 30), (ARGMAX, 5)])
            a.t.item()
        a.t.host(150)
    program = a.program("profiler_window", ["step"], ["block"])
    cut(program, rng.uniform(0.05, 0.25), rng.uniform(0.75, 0.96))
    return program


# -- nothing repeats ---------------------------------------------------------------------------------------------------


def notebook(rng: Random) -> Program:
    """Cells of a notebook: one operation after another, each once or twice, with pauses of a person."""
    a = Author(rng, dialect_of(rng, "none", "kineto"))
    pool = [
        GEMM,
        ADD,
        MUL,
        REDUCE,
        SOFTMAX,
        CAT,
        INDEX,
        TOPK,
        COPY,
        FILL,
        CONV,
        LN,
        EMBED,
        ARGMAX,
        "void cub::DeviceSelectKernel<x>(x)",
        "void at::native::bitonicSortKVInPlace<x>(x)",
        "volta_dgemm_64x64_nn",
        "void cusolver::getrf<x>(x)",
        "vector_fft",
    ]
    for _ in range(rng.randrange(15, 30)):
        for _ in range(rng.randrange(1, 5)):
            a.run([(rng.choice(pool), rng.uniform(3, 900))])
        if rng.random() < 0.4:
            a.t.item()
        a.t.host(rng.lognormvariate(9, 1.5))
    return a.program("notebook", ["none"], is_noise=True)


def one_query(rng: Random) -> Program:
    """One analytic query: every operator once, sizes shrink."""
    a = Author(rng, dialect_of(rng, "none", "nvtx"))
    names = [
        f"void cudf::detail::{word}_kernel<{rng.randrange(9)}>(x)"
        for word in (
            "parse",
            "decode",
            "filter",
            "cast",
            "hash",
            "probe",
            "scatter",
            "concat",
            "rank",
            "window",
            "strings_like",
            "replace",
            "merge",
            "datetime",
            "bitmask",
            "contiguous_split",
            "quantile",
            "transpose",
            "unique",
            "encode",
        )
    ]
    for name in names:
        with (
            a.t.range(name.split("::")[2].split("_kernel")[0], domain="libcudf")
            if a.dialect == "nvtx"
            else nullcontext()
        ):
            a.run([(name, rng.uniform(10, 900))])
            if rng.random() < 0.6:
                a.run([(rng.choice(("void cub::DeviceScanKernel<x>(x)", COPY, FILL)), rng.uniform(3, 60))])
            a.t.copy(rng.randrange(8, 900_000), rng.choice(("DtoH", "HtoD", "DtoD")))
        a.t.host(rng.uniform(20, 4_000))
    return a.program("one_query", ["none"], is_noise=True)


FAMILIES: list[Callable[[Random], Program]] = [
    diffusion_unet,
    diffusion_dit,
    beam_translation,
    speculative,
    embedding_batches,
    rag,
    llama_cpp,
    whisper,
    vllm_serving,
    trtllm_steps,
    lstm_training,
    gnn_sampling,
    recommender,
    reinforcement,
    gan,
    lora_checkpointing,
    pipeline_1f1b,
    fsdp,
    moe_training,
    deepspeed_zero3,
    lightning,
    train_with_validation,
    autotuned,
    accumulate_mixed,
    compiled_trees,
    tensorrt_enqueue,
    onnxruntime,
    jax_training,
    stencil,
    cg_solver,
    openacc,
    julia_flux,
    cudf_partitions,
    dali_vision,
    shared_gpu,
    detection,
    splatting,
    molecular_dynamics,
    boosting,
    kmeans_cupy,
    profiler_window,
    notebook,
    one_query,
]


def draw(seed: int) -> Program:
    """The program of a seed; families in turn."""
    return FAMILIES[seed % len(FAMILIES)](Random(f"visitor {seed}"))
