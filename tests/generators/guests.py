"""Programs of a sixth author, as public captures look: serving, pipelines, trainers, ranks, compilers, benchmarks.

Written without a look at the finder or at the other authors' programs. The truth is what the owner of the program would
say; where owners would differ, each answer is accepted.
"""

# ruff: noqa: E501, SIM117
from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from random import Random
from typing import NamedTuple

from generators.machine import NOT_JUDGED, Machine, Program, Thread, cut, lose

EW = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul>>(int, {})"
UNROLLED = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
MUL, ADD = EW.format("BinaryFunctor<MulFunctor>", "Mul"), EW.format("CUDAFunctor_add<c10::BFloat16>", "Add")
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u>, unsigned int, 4>"
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>"
FLASH_BACK = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>"
SPLIT = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false>>"
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false>>"
GEMM = "ampere_bf16_s16816gemm_bf16_{}_ldg8_f2f_stages_64x3_{}"
NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
LN = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
GELU = EW.format("GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)", "Gelu")
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"
NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnn::bnFwTr, float const*)"
NORM_BACK = "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float)"
CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize{}_stage3_warpsize2x2x1_g1"
DGRAD = "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize{}_stage4_warpsize2x2x1_g1"
WGRAD = "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize{}_stage4_g1"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>"
CLIP = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float>>"
EMBED = (
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>"
)
LOSS = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*, float const*)"
LOSS_BACK = "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float>(float*, float const*)"


class K(NamedTuple):
    """A kernel to launch: module it is of, operator, name, µs."""

    module: str
    op: str
    name: str
    us: float


def gemm(rng: Random) -> str:
    return GEMM.format(rng.choice(("128x64", "128x128", "256x64", "64x64")), rng.choice(("tn", "nn")))


def llama(rng: Random, scale: float, *, served: bool = False, decode: bool = False) -> list[K]:
    """One decoder layer, as Transformers runs it or as a server does."""
    q, o, up, down = (gemm(rng) for _ in range(4))
    attend = SPLIT if decode else FLASH
    if served:
        norm = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, float, int)"
        rope = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, int, int)"
        cache = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, 0>(__nv_bfloat16 const*)"
        act = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel, true>(c10::BFloat16*, int)"
        return [
            K("input_layernorm", "vllm::fused_add_rms_norm", norm, 3), K("self_attn.qkv_proj", "aten::mm", q, scale),
            K("self_attn.rotary_emb", "vllm::rotary_embedding", rope, 2.5), K("self_attn.attn", "vllm::cache", cache, 2),
            K("self_attn.attn", "vllm::unified_attention", attend, scale),
            *([K("self_attn.attn", "vllm::unified_attention", COMBINE, 3)] if decode else []),
            K("self_attn.o_proj", "aten::mm", o, 0.7 * scale), K("post_attention_layernorm", "vllm::norm", norm, 3),
            K("mlp.gate_up_proj", "aten::mm", up, 2 * scale), K("mlp.act_fn", "vllm::silu_and_mul", act, 3),
            K("mlp.down_proj", "aten::mm", down, 1.5 * scale),
        ]  # fmt: skip
    rms = [("aten::to", UNROLLED), ("aten::pow", EW.format("pow_tensor_scalar_kernel_impl", "Pow")),
           ("aten::mean", REDUCE), ("aten::rsqrt", EW.format("rsqrt_kernel_cuda", "Rsqrt")), ("aten::mul", MUL),
           ("aten::mul", MUL)]  # fmt: skip
    rope = [("aten::mul", MUL), ("aten::neg", EW.format("neg_kernel_cuda", "Neg")), ("aten::cat", CAT),
            ("aten::add", ADD)]  # fmt: skip
    return [
        *(K("input_layernorm", op, name, 2.5) for op, name in rms),
        *(K(f"self_attn.{p}_proj", "aten::linear", q, 0.5 * scale) for p in "qkv"),
        *(K("self_attn", op, name, 2.2) for op, name in rope * 2),
        *([K("self_attn", "aten::cat", CAT, 3)] * 2 if decode else []),
        K("self_attn", "aten::scaled_dot_product_attention", attend, scale),
        K("self_attn.o_proj", "aten::linear", o, 0.7 * scale), K("", "aten::add", ADD, 2),
        *(K("post_attention_layernorm", op, name, 2.5) for op, name in rms),
        K("mlp.gate_proj", "aten::linear", up, scale), K("mlp.act_fn", "aten::silu", EW.format("silu", "Silu"), 2),
        K("mlp.up_proj", "aten::linear", up, scale), K("mlp", "aten::mul", MUL, 2),
        K("mlp.down_proj", "aten::linear", down, 1.5 * scale), K("", "aten::add", ADD, 2),
    ]  # fmt: skip


def bert(rng: Random, scale: float) -> list[K]:
    """One encoder layer with layer norms and GELU; every product by itself."""
    a, b = gemm(rng), gemm(rng)
    return [
        *(K(f"attention.self.{p}", "aten::addmm", a, scale) for p in ("query", "key", "value")),
        K("attention.self", "aten::scaled_dot_product_attention", FLASH, scale),
        K("attention.output.dense", "aten::addmm", a, scale), K("attention.output", "aten::add", ADD, 2),
        K("attention.output.LayerNorm", "aten::layer_norm", LN, 3), K("intermediate.dense", "aten::addmm", b, 2 * scale),
        K("intermediate", "aten::gelu", GELU, 3), K("output.dense", "aten::addmm", b, 2 * scale),
        K("output", "aten::add", ADD, 2), K("output.LayerNorm", "aten::layer_norm", LN, 3),
    ]  # fmt: skip


def conv_block(rng: Random, scale: float) -> list[K]:
    """A residual block of three convolutions."""
    tile = rng.choice(("128x128x16", "64x64x32", "128x64x32"))
    relu = EW.format("clamp_min_scalar_kernel_impl", "Relu")
    one = [K("conv", "aten::cudnn_convolution", CONV.format(tile), scale), K("bn", "aten::batch_norm", NORM, 4),
           K("relu", "aten::relu_", relu, 2)]  # fmt: skip
    return [*one, *one, *one[:2], K("", "aten::add_", ADD, 2), one[2]]


def backward(block: Iterable[K]) -> list[K]:
    """The gradients of a block, last first: products twice."""
    rows = []
    for k in reversed(list(block)):
        node = k.op.removeprefix("aten::").title().replace("_", "") + "Backward0"
        if k.name == FLASH:
            dot = "void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128, 64, 128, 8>>"
            rows += [K(k.module, node, dot, 3), K(k.module, node, FLASH_BACK, 2.3 * k.us)]
        elif k.name.startswith("sm80_xmma_fprop"):
            tile = k.name.split("tilesize")[1].split("_")[0]
            rows += [K(k.module, node, name.format(tile), k.us) for name in (DGRAD, WGRAD)]
        elif "gemm" in k.name:
            rows += [K(k.module, node, k.name.replace("_tn", "_nt"), k.us), K(k.module, node, k.name, k.us)]
        elif k.name == NORM:
            rows.append(K(k.module, node, NORM_BACK, 1.8 * k.us))
        else:
            rows.append(K(k.module, node, k.name.replace("kernel<4,", "kernel<2,"), 1.2 * k.us))
    return rows


class Scene:
    """A machine, the thread that runs the program, and how its ranges look."""

    def __init__(self, rng: Random, *dialects: str, kineto: bool | None = None, **machine: float) -> None:
        self.rng, self.m = rng, Machine(rng, pid=rng.randrange(2_000, 90_000), jitter=rng.uniform(0.01, 0.1), **machine)
        self.t, self.dialect = self.m.thread(), rng.choice(dialects or ("none",))
        self.kineto = rng.random() < 0.4 if kineto is None else kineto
        self.ops, self.first = 0, {""}
        self.loading = rng.choice((0, 0, 300, 2_000))  # µs that the first launch of a name takes
        self.host = rng.uniform(1, 9)  # µs of Python around an operator
        self.numbers_operators = False  # each operator is a layer, too

    def says(self, dialect: str) -> bool:
        return dialect in self.dialect.split("+")

    def user(self, text: str, **args: int) -> AbstractContextManager:
        """A range that the user wrote."""
        return self.t.range(text, **args) if self.says("user") else nullcontext()

    def module(self, text: str, t: Thread | None = None) -> AbstractContextManager:
        """A module's call: a hook's range, or a frame that the profiler saw."""
        if not self.says("modules") or not text:
            return nullcontext()
        return (t or self.t).range(text, kind="python_function" if self.kineto else "nvtx")

    def op(self, text: str, t: Thread | None = None) -> AbstractContextManager:
        if not self.says("ops"):
            return nullcontext()
        self.ops += 1
        said = text if self.kineto else f"{text}, op_id = {self.ops}"
        return (t or self.t).range(said, kind="cpu_op")

    def run(self, rows: Iterable[K], t: Thread | None = None, prefix: str = "", stream: int = 7) -> None:
        """Launch the kernels, with what the dialect says around them."""
        t, before = t or self.t, None
        with ExitStack() as stack:
            for k in rows:
                if k.module != before:
                    stack.close()
                    if k.module and prefix:
                        shown = f"nn.Module: {k.module.split('.')[-1]}_0" if self.kineto else f"{prefix}.{k.module}"
                        stack.enter_context(self.module(shown, t))
                    before = k.module
                with self.op(k.op, t):
                    t.host(self.host)
                    pause = self.loading if k.name not in self.first else 0
                    self.first.add(k.name)
                    row = t.launch(k.name, k.us, pause=pause, grid=80 + len(k.name), stream=stream)
                    if self.numbers_operators and "block" in self.m.labels:
                        row["labels"]["operator"] = self.m.group()

    def blocks(self, block: list[K], count: int, path: str, name: str, **labels: str) -> list[int]:
        """``count`` blocks in a row, each a new layer; the numbers of their groups. ``labels``: which to mark."""
        groups = []
        for number in range(count):
            groups.append(self.m.group())
            text = f"nn.Module: {name}_{number}" if self.kineto else f"{path}.{number}"
            with self.t.mark(block=groups[-1], half=groups[-1], ahead=groups[-1]), self.module(text):
                self.run(block, prefix=text)
        return groups

    def back(self, block: list[K], groups: list[int], t: Thread, between: Callable[[], None] | None = None) -> None:
        """The gradients of these blocks on a thread, last first."""
        for group in reversed(groups):
            with t.mark(block=group, half=self.m.group(), ahead=NOT_JUDGED, operator=NOT_JUDGED):
                for k in backward(block):
                    text = f"autograd::engine::evaluate_function: {k.op}"
                    with self.op(text if self.kineto else k.op, t):
                        t.host(0.5 * self.host)
                        t.launch(k.name, k.us, grid=60 + len(k.name))
            if between:
                with t.mark(block=NOT_JUDGED, half=NOT_JUDGED, ahead=NOT_JUDGED):
                    between()

    def optimise(self, chunks: int = 4) -> None:
        text = "Optimizer.step#AdamW.step"
        with self.t.range(text) if self.kineto or self.says("ops") else self.user("optimizer.step"):
            self.run([K("", "aten::_foreach_norm", CLIP, 8)] * 2 + [K("", "aten::_fused_adamw_", ADAM, 30)] * chunks)

    def program(self, family: str, executions: list[str], layers: Iterable[str] = (), **more: object) -> Program:
        return Program(
            family, [self.m], executions, list(layers), is_kineto=self.kineto,
            about=f"{self.dialect}{', PyTorch' if self.kineto else ''}", **more,
        )  # fmt: skip


TRAINED = ("block", "half", "ahead")
BESIDE = dict.fromkeys(("step", "micro", "image", "call"), NOT_JUDGED)


def set_up(s: Scene) -> None:
    """Weights are copied and initialised; belongs to no execution."""
    for _ in range(s.rng.randrange(3, 25)):
        s.t.copy(s.rng.randrange(1, 40) << 18)
        s.t.host(20)
    s.t.host(20_000)


def vllm(rng: Random) -> Program:
    """vLLM's V1 engine: steps of prefill (eager) and decode (a graph per batch size, or pieces)."""
    s = Scene(rng, "none", "user", "user", "modules", kineto=False)
    count, steps = rng.choice((16, 24, 28)), rng.randrange(12, 30)
    decode, ahead = llama(rng, 14, served=True, decode=True), llama(rng, 180, served=True)
    is_pieces = rng.random() < 0.4
    set_up(s)
    for step in range(steps):
        is_prefill = step == 0 or rng.random() < 0.15
        with s.t.mark(step=step):
            with s.user("gpu_model_runner: preprocess"):
                for _ in range(rng.randrange(3, 6)):
                    s.t.copy(512 * rng.randrange(1, 9), pageable=False)
                    s.t.host(25)
                s.run([K("", "aten::index", EMBED, 3)])
            with s.user("gpu_model_runner: forward"), s.module("model"):
                if is_prefill:
                    s.blocks(ahead, count, "model.layers", "LlamaDecoderLayer")
                elif is_pieces:
                    for number in range(count):
                        with s.t.mark(block=s.m.group()):
                            s.t.graph([(k.name, k.us) for k in decode[:4]], node_base=(1 + 2 * number) << 32)
                            s.run(decode[4:6])
                            s.t.graph([(k.name, k.us) for k in decode[6:]], node_base=(2 + 2 * number) << 32)
                else:
                    groups = [s.m.group() for _ in range(count)]
                    marks = [{"block": group} for group in groups for _ in decode]
                    s.t.graph([(k.name, k.us) for k in decode * count], node_base=7 << 32, marks=marks)
            s.t.host(60)
            with s.user("gpu_model_runner: sample"):
                s.run([K("", "aten::mm", gemm(rng), 40), K("", "aten::argmax", REDUCE, 12), K("", "", SOFTMAX, 6)])
            with s.user("gpu_model_runner: bookkeep"):
                s.t.item()
        s.t.host(rng.uniform(100, 900))
    return s.program("vLLM steps", ["step"], [] if is_pieces else ["block"])


def sglang(rng: Random) -> Program:
    """SGLang under torch.profiler: a prefill, then decode steps, with or without frames of modules."""
    s = Scene(rng, "none", "modules", "modules+ops", "ops", kineto=True)
    count, steps = rng.choice((12, 18, 28)), rng.randrange(6, 14)
    is_graph, name = rng.random() < 0.5, rng.choice(("Qwen2", "Llama"))
    is_marked = rng.random() < 0.5
    for step in range(steps):
        is_prefill = step == 0
        block = llama(rng if not step else Random(5), 160 if is_prefill else 12, served=True, decode=not is_prefill)
        text = (
            f"step[{'EXTEND' if is_prefill else 'DECODE'} bs={1 if is_prefill else 8} toks={900 if is_prefill else 8}]"
        )
        with s.t.mark(step=step), s.t.range(text) if is_marked else nullcontext():
            s.t.copy(4_096, pageable=False)
            if is_graph and not is_prefill:
                marks = [{"block": group} for group in [s.m.group() for _ in range(count)] for _ in block]
                s.t.graph([(k.name, k.us) for k in block * count], node_base=3 << 32, marks=marks)
            else:
                with s.module(f"nn.Module: {name}ForCausalLM_0"), s.module(f"nn.Module: {name}Model_0"):
                    s.run([K("", "aten::embedding", EMBED, 3)])
                    s.blocks(block, count, "model.layers", f"{name}DecoderLayer")
            with s.module("nn.Module: LogitsProcessor_0"):
                s.run([K("", "aten::matmul", gemm(Random(3)), 45)])
            with s.module("nn.Module: Sampler_0"):
                s.run([K("", "aten::argmax", REDUCE, 12)])
            s.t.item()
        s.t.host(rng.uniform(200, 800))
    return s.program("SGLang profile", ["step"], ["block"])


def diffusers(rng: Random) -> Program:
    """Images by a pipeline: text encoder, denoising steps, decoder of the autoencoder."""
    s = Scene(rng, "none", "none", "user", "user", "ops", "modules")
    images, steps, count = rng.randrange(1, 4), rng.randrange(8, 20), rng.randrange(6, 12)
    text, dit, vae = bert(rng, 20), bert(rng, 160), conv_block(rng, 300)
    number = 0
    for image in range(images):
        with s.t.mark(image=image, **{k: v for k, v in BESIDE.items() if k != "image"}), s.user("pipeline"):
            with s.user("text_encoder"), s.module("nn.Module: CLIPTextModel_0" if s.kineto else "text_encoder"):
                for _ in range(5):
                    s.run(text)
            with s.user("denoising_loop") if rng.random() < 0.5 else nullcontext():
                for step in range(steps):
                    with s.t.mark(step=number), s.user(f"denoise_step_{step}" if images == 1 else "unet"):
                        with s.module("nn.Module: DiTTransformer2DModel_0" if s.kineto else "transformer"):
                            s.run(
                                [K("", "aten::silu", EW.format("silu", "Silu"), 3), K("", "aten::addmm", gemm(rng), 9)]
                            )
                            s.blocks(dit, count, "transformer.blocks", "BasicTransformerBlock")
                        s.run(
                            [K("", "aten::chunk", UNROLLED, 4), K("", "aten::mul", MUL, 4), K("", "aten::add", ADD, 4)]
                        )
                    number += 1
            with s.user("vae_decode"), s.module("nn.Module: AutoencoderKL_0" if s.kineto else "vae.decoder"):
                for _ in range(6):
                    s.run(vae)
            s.t.copy(3 << 20, "DtoH")
        s.t.host(3_000)
    return s.program("diffusion pipeline", ["image", "step"], ["block"])


def trainer(rng: Random) -> Program:
    """Hugging Face Trainer: gradient accumulation, an evaluation now and then, logging."""
    s = Scene(rng, "none", "user", "ops", "modules", "modules+ops")
    accumulate, steps, count = rng.choice((1, 2, 4)), rng.randrange(4, 9), rng.randrange(4, 9)
    block, every = llama(rng, 90), rng.choice((0, 0, 3))
    number = passes = 0
    autograd = s.m.thread(31)
    profiler = s.kineto and rng.random() < 0.7
    for step in range(steps):
        with s.t.range(f"ProfilerStep#{step + 2}") if profiler else nullcontext(), s.t.mark(step=number):
            for _ in range(accumulate):
                with s.t.mark(micro=passes):
                    with (
                        s.t.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
                        if s.kineto
                        else nullcontext()
                    ):
                        s.t.host(200)
                    s.t.copy(64 << 10, pageable=False)
                    with s.user("training_step"):
                        with s.user("compute_loss"), s.module("nn.Module: LlamaForCausalLM_0" if s.kineto else "model"):
                            s.run([K("", "aten::embedding", EMBED, 5)])
                            groups = s.blocks(block, count, "model.layers", "LlamaDecoderLayer")
                            s.run([K("", "aten::linear", gemm(Random(1)), 200), K("", "aten::cross_entropy", LOSS, 30)])
                        autograd.wait_until(s.t.now)
                        with s.user("backward"):
                            s.run([K("", "NllLossBackward0", LOSS_BACK, 40)], autograd)
                            s.back(block, groups, autograd)
                            s.t.wait_until(autograd.now)
                passes += 1
            with s.t.mark(micro=passes - 1):
                s.optimise()
            number += 1
        if every and step % every == every - 1:
            for _ in range(rng.randrange(3, 6)):
                with (
                    s.t.mark(step=number, micro=passes),
                    s.user("prediction_step"),
                    s.module("nn.Module: LlamaForCausalLM_0" if s.kineto else "model"),
                ):
                    s.run([K("", "aten::embedding", EMBED, 5)])
                    s.blocks(block, count, "model.layers", "LlamaDecoderLayer")
                    s.run([K("", "aten::linear", gemm(Random(1)), 200), K("", "aten::cross_entropy", LOSS, 30)])
                    s.t.item()
                number, passes = number + 1, passes + 1
        if step % 2:
            s.t.item()
    return s.program(f"Trainer, {accumulate} accumulated" + ", evaluation" * bool(every), ["step", "micro"], TRAINED)


def ranks(rng: Random, *, sharded: bool) -> Program:
    """Data-parallel ranks: two in one file, or one rank's trace; gradients are reduced on a stream of their own."""
    kineto = rng.random() < 0.5
    dialect = rng.choice(("none", "user", "ops", "user+ops"))
    steps, count, machines = rng.randrange(4, 8), rng.randrange(4, 8), []
    seed = rng.randrange(1 << 30)
    first: Scene | None = None
    for rank in range(1 if kineto else 2):
        same = Random(seed)
        s = Scene(Random(seed + rank), dialect, kineto=kineto)
        s.m.pid = s.t.tid = 7_000 + 100 * rank
        s.m.threads = {0: s.t}
        s.m.groups, s.m.device = 1_000_000 * (rank + 1), rank
        first = first or s
        block = llama(same, 120) if sharded else bert(same, 120)
        autograd = s.m.thread(55, name="pt_autograd_0")
        gather, scatter = NCCL.format("AllGather_RING_LL"), NCCL.format("ReduceScatter_Sum_bf16_RING_LL")
        reduce = NCCL.format("AllReduce_Sum_f32_RING_LL")
        for step in range(steps):
            mark = s.t.range(f"ProfilerStep#{step + 1}") if kineto and "user" in dialect else nullcontext()
            with s.t.mark(step=1_000 * rank + step), mark:
                s.t.copy(1 << 18, pageable=False)
                groups = []
                with s.user("forward" if sharded else "forward pass"):
                    for number in range(count):
                        if sharded:
                            with (
                                s.t.range(f"FSDP::pre_forward (layers.{number})") if "ops" in dialect else nullcontext()
                            ):
                                s.run([K("", "c10d::_allgather_base_", gather, 150)], stream=20)
                        groups += s.blocks(block, 1, "layers", "Block")
                        if sharded and "ops" in dialect:
                            with s.t.range(f"FSDP::post_forward (layers.{number})"):
                                s.t.host(10)
                    s.run([K("", "aten::cross_entropy", LOSS, 30)])
                autograd.wait_until(s.t.now)
                with s.user("backward" if sharded else "backward pass"):
                    s.run([K("", "NllLossBackward0", LOSS_BACK, 30)], autograd)

                    def share(
                        s: Scene = s, thread: Thread = autograd, names: tuple[str, ...] = (gather, scatter, reduce)
                    ) -> None:
                        gather, scatter, reduce = names
                        rows = [K("", "c10d::_allgather_base_", gather, 150), K("", "c10d::reduce", scatter, 200)]
                        s.run(rows if sharded else [K("", "c10d::allreduce_", reduce, 300)], thread, stream=20)

                    s.back(block, groups, autograd, share)
                    s.t.wait_until(autograd.now)
                s.optimise(6)
                if rng.random() < 0.5:
                    s.t.item()
            s.t.host(300)
        machines.append(s.m)
    program = first.program("FSDP" if sharded else "DDP", ["step"], TRAINED)
    program.machines = machines
    return program


def megatron(rng: Random) -> Program:
    """A stage of a pipeline: 1F1B over micro-batches, send and receive between; then the optimiser."""
    s = Scene(rng, "none", "user", "user", "modules", kineto=False)
    steps, micro, count, stage = rng.randrange(3, 6), rng.choice((4, 6, 8)), rng.randrange(2, 5), rng.randrange(3)
    block = bert(rng, 150)
    send = NCCL.format("SendRecv")
    for step in range(steps):
        with s.t.mark(step=step), s.user("iteration") if rng.random() < 0.5 else s.user(f"train_step {step}"):
            waiting: list[list[int]] = []
            order = ["F"] * (3 - stage) + ["B", "F"] * (micro - 3 + stage) + ["B"] * (3 - stage)
            for one in order:
                s.run([K("", "recv", send, rng.uniform(20, 200))], stream=30)
                if one == "F":
                    with s.user("forward_step"):
                        waiting.append(s.blocks(block, count, "decoder.layers", "TransformerLayer"))
                else:
                    with s.user("backward_step"):
                        s.back(block, waiting.pop(0), s.t)
                s.run([K("", "send", send, 15)], stream=30)
            s.run([K("", "allreduce", NCCL.format("AllReduce_Sum_bf16_RING_LL"), 400)])
            s.optimise(8)
            s.t.item()
        s.t.host(500)
    return s.program(f"Megatron stage {stage}, {micro} micro-batches", ["step"], TRAINED)


def jax(rng: Random) -> Program:
    """XLA: a jitted step with fusions by number, small helper modules between, ranges of modules and operations."""
    s = Scene(rng, "none", "user", "user+ops", kineto=False)
    s.m.launch_name = "cuLaunchKernel"
    steps, names = rng.randrange(6, 20), []
    for number in range(rng.randrange(4, 9)):
        names += [f"loop_add_fusion_{number}", "cutlass_80_tensorop_s16816gemm_bf16_128x128_32x5_nn_align8",
                  f"input_reduce_fusion_{number}", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
                  f"loop_multiply_fusion_{number}", f"wrapped_transpose_{number}"]  # fmt: skip
    times = [rng.uniform(8, 120) for _ in names]
    module = rng.choice(("jit_train_step", "jit_update", "pjit__train_step", "jit_apply_model"))
    for helper in range(rng.randrange(4, 20)):
        with s.user(
            f"XlaModule:#hlo_module=jit_{rng.choice(('convert_element_type', 'broadcast_in_dim'))},program_id={helper}#"
        ):
            s.t.launch("wrapped_convert" if helper % 2 else "wrapped_broadcast", 3)
        s.t.host(900)
    s.t.host(200_000)
    for step in range(steps):
        with s.t.mark(step=step):
            s.t.copy(1 << 18)
            with s.user(f"XlaModule:#hlo_module={module},program_id=27#"):
                for number, (name, us) in enumerate(zip(names, times)):
                    text = (
                        f"Thunk:#hlo_op={name.replace('_', '-', 1)}#"
                        if "fusion" in name
                        else f"Thunk:#hlo_op=custom-call.{number}#"
                    )
                    with s.t.range(text) if s.says("ops") else nullcontext():
                        s.t.launch(name, us, grid=50 + number)
            if rng.random() < 0.3:
                with s.t.mark(step=NOT_JUDGED), s.user("XlaModule:#hlo_module=jit_true_divide,program_id=31#"):
                    s.t.launch("wrapped_divide", 2)
        s.t.host(rng.choice((100, 2_000)))
    return s.program("JAX", ["step"])


def tensorrt(rng: Random) -> Program:
    """TensorRT contexts with profiles of several batch sizes, in turn; layers named or not."""
    s = Scene(rng, "none", "user", "user+ops", kineto=False, launch_us=2.5)
    names = ["sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32",
             "void genericReformat::copyVectorizedKernel<double, float, __half, true, false, 0>",
             "trt_ampere_h16816gemm_128x64_ldg8_relu_stages_64x3_tn_v1", "generatedNativePointwise",
             "void cuInt8::nchwTo32HwCVect<8>"]  # fmt: skip
    kernels = [names[0]] + [rng.choice(names) for _ in range(rng.randrange(20, 60))] + [names[1]]
    times, runs = [rng.uniform(5, 40) for _ in kernels], rng.randrange(8, 30)
    profiles = rng.choice(((1,), (1, 8), (1, 4, 16)))
    for run in range(runs):
        batch = profiles[run % len(profiles)] if rng.random() < 0.7 else rng.choice(profiles)
        with s.t.mark(step=run):
            s.t.copy(150_528 * batch, pageable=False)
            with s.user(
                "ExecutionContext::enqueue" if len(profiles) == 1 else f"enqueueV3 profile {profiles.index(batch)}"
            ):
                for number, (name, us) in enumerate(zip(kernels, times)):
                    with s.t.range(f"[Conv_{number} + Relu_{number + 1}]") if s.says("ops") else nullcontext():
                        s.t.launch(name, us * (0.6 + 0.4 * batch), grid=20 * batch + number)
            s.t.copy(4_000 * batch, "DtoH", pageable=False)
            s.t.sync(7)
        s.t.host(rng.uniform(20, 300))
    return s.program(f"TensorRT, {len(profiles)} profiles", ["step"])


def reinforcement(rng: Random) -> Program:
    """PPO: a roll-out of many small forward passes, then epochs of mini-batches; over and over."""
    s = Scene(rng, "none", "none", "user")
    cycles, acts, batches = rng.randrange(3, 6), rng.randrange(10, 24), rng.randrange(4, 9)
    tanh = EW.format("tanh_kernel_cuda(at::TensorIteratorBase&)", "Tanh")
    layer = [K("", "aten::addmm", "ampere_sgemm_32x32_sliced1x4_tn", 6), K("", "aten::tanh", tanh, 2)]
    net, sample = layer * 3, [K("", "aten::normal_", "void at::native::distribution_elementwise_grid_stride_kernel", 3)]
    number = 0
    for cycle in range(cycles):
        with s.t.mark(step=cycle):
            with s.user("rollout"):
                for _ in range(acts):
                    with s.t.mark(call=number):
                        s.t.copy(4_096)
                        s.run([*net, *sample])
                        s.t.copy(256, "DtoH")
                    number += 1
                    s.t.host(rng.uniform(300, 600))
            with s.user("update"):
                with s.t.mark(call=NOT_JUDGED):
                    s.run([K("", "aten::flip", UNROLLED, 3), K("", "aten::sub", ADD, 3)] * 6)
                for _ in range(batches):
                    with s.t.mark(call=number):
                        s.run([K("", "aten::index", EMBED, 3)] * 4 + net * 2)
                        s.run(
                            [
                                K("", "aten::exp", EW.format("exp_kernel_cuda", "Exp"), 2),
                                K("", "aten::min", MUL, 2),
                                K("", "aten::mean", REDUCE, 4),
                            ]
                        )
                        s.run(backward(net * 2))
                        s.optimise(1)
                    number += 1
    return s.program("PPO", ["step", "call"])


def onnx(rng: Random) -> Program:
    """ONNX Runtime: session.run of a BERT, requests of varying length, pauses of a server."""
    s = Scene(rng, "none", "none", "user", kineto=False)
    count, runs = rng.randrange(4, 13), rng.randrange(6, 20)
    skip = "void onnxruntime::contrib::cuda::SkipLayerNormKernelSmall<__half, 192, 4, false>(int, __half const*)"
    bias = "void onnxruntime::contrib::cuda::FastGeluKernel2<256>(__half2, int, int, __half2 const*, __half2 const*)"
    gemms = [
        "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_nn",
        "ampere_fp16_s16816gemm_fp16_128x64_nn",
    ]
    for run in range(runs):
        size = rng.choice((1, 1, 2, 3))
        layer = [
            K("", "Attention", gemms[0], 14 * size), K("", "Attention", "void onnxruntime::contrib::cuda::AddBiasTransposeQKV<__half>", 3),
            K("", "Attention", "fmha_v2_flash_attention_fp16_S_40_sm86_kernel_nl", 9 * size), K("", "MatMul", gemms[0], 8 * size),
            K("", "SkipLayerNormalization", skip, 3), K("", "MatMul", gemms[1], 20 * size), K("", "FastGelu", bias, 4),
            K("", "MatMul", gemms[1], 20 * size), K("", "SkipLayerNormalization", skip, 3),
        ]  # fmt: skip
        with s.t.mark(step=run), s.user(f"Batch-{run} Forward") if rng.random() < 1 else nullcontext():
            s.t.copy(2_048 * size)
            s.run([K("", "Embed", "void onnxruntime::contrib::cuda::EmbedLayerNormKernel<__half, 256>(int)", 4)])
            s.blocks(layer, count, "", "")
            s.run(
                [K("", "Gather", "void onnxruntime::cuda::_GatherKernel<long, 4>(long)", 2), K("", "Gemm", gemms[0], 5)]
            )
            s.t.copy(64, "DtoH")
        s.t.host(rng.choice((50, 4_000)))
    return s.program("ONNX Runtime", ["step"], ["block"])


def speech(rng: Random) -> Program:
    """Whisper: an encoder pass per segment of sound, then tokens one by one until it ends."""
    s = Scene(rng, "none", "none", "user", "modules", "ops")
    segments, layers = rng.randrange(2, 5), rng.randrange(3, 7)
    encoder, decoder = bert(rng, 180), bert(rng, 7)
    decoder = decoder[:7] + [K("encoder_attn" + k.module[9:], k.op, k.name, k.us) for k in decoder[:7]] + decoder[7:]
    number = 0
    for segment in range(segments):
        with s.t.mark(step=segment), s.user("transcribe_segment"):
            with s.t.mark(call=number):
                s.t.copy(960_000)
                with s.user("encoder"), s.module("nn.Module: WhisperEncoder_0" if s.kineto else "model.encoder"):
                    s.run([K("", "aten::conv1d", CONV.format("128x64x32"), 60), K("", "aten::gelu", GELU, 6)] * 2)
                    s.blocks(encoder, layers, "model.encoder.layers", "WhisperEncoderLayer")
            number += 1
            for _ in range(rng.randrange(8, 24)):
                with s.t.mark(call=number), s.user("decode_token"):
                    with s.module("nn.Module: WhisperDecoder_0" if s.kineto else "model.decoder"):
                        s.run([K("", "aten::embedding", EMBED, 2)])
                        s.blocks(decoder, layers, "model.decoder.layers", "WhisperDecoderLayer")
                    s.run([K("", "aten::matmul", gemm(Random(2)), 30), K("", "aten::argmax", REDUCE, 9)])
                    s.t.item()
                number += 1
        s.t.host(5_000)
    return s.program("speech recognition", ["step", "call"], ["block"])


def benchmark(rng: Random) -> Program:
    """A function timed as do_bench does: a buffer is written between runs so that the L2 cache holds nothing."""
    s = Scene(rng, "none", "none", "user")
    fill = EW.format("FillFunctor<int>", "Fill")
    runs = rng.randrange(15, 60)
    body = rng.choice(
        (llama(rng, 60)[10:24], bert(rng, 40)[:7], [K("", "", "_attn_fwd", 200), K("", "", "_attn_fwd_reduce", 9)])
    )
    for _ in range(rng.randrange(3, 12)):  # random inputs
        s.run([K("", "aten::normal_", "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>", 30)])
    for run in range(runs):
        with s.t.mark(step=NOT_JUDGED, call=run):
            s.run([K("", "aten::zero_", fill, 90)])
        with s.t.mark(step=run, call=run), s.user("fn"):
            s.run(body)
        if run == 4:
            s.t.sync()
            s.t.host(800)
    s.t.sync()
    return s.program("benchmark with flush", ["step", "call"])


def autotuned(rng: Random) -> Program:
    """Triton tries configurations of its kernels in the first pass; then the loop."""
    s = Scene(rng, "none", "user", kineto=False)
    count, runs = rng.randrange(4, 9), rng.randrange(8, 16)
    kernels = [
        "_layer_norm_fwd_fused",
        "matmul_kernel",
        "_attn_fwd",
        "matmul_kernel",
        "_layer_norm_fwd_fused",
        "swiglu_fwd",
        "matmul_kernel",
    ]
    block = [K("", "", name, rng.uniform(10, 80)) for name in kernels]
    for step in range(runs):
        with s.t.mark(step=step), s.user("forward"):
            if not step:
                for k in {k.name: k for k in block}.values():
                    for config in range(rng.randrange(4, 9)):
                        s.t.host(9_000)
                        for _ in range(rng.randrange(6, 12)):
                            with s.t.mark(step=NOT_JUDGED):
                                s.t.launch(EW.format("FillFunctor<int>", "Fill"), 60)
                                s.t.launch(k.name, k.us * (1 + config / 4), grid=100 * config + 7)
            s.run([K("", "aten::embedding", EMBED, 4)])
            s.blocks(block, count, "", "")
            s.run([K("", "", "cross_entropy_fwd", 30)])
        s.t.item()
        s.t.host(500)
    return s.program("autotuning, then a loop", ["step"], ["block"])


def cuda_only(rng: Random) -> Program:
    """C++ programs without ranges: molecules with a list of neighbours now and then, a V-cycle, a stencil."""
    s = Scene(rng, "none", "user", kineto=False)
    s.m.program = rng.choice(("gmx_mpi", "a.out", "hpgmg-fv", "simulate"))
    kind, steps = rng.choice(("molecules", "V-cycle", "stencil")), rng.randrange(15, 40)
    for step in range(steps):
        with s.t.mark(step=step), s.user(f"timestep {step}" if rng.random() < 1 else ""):
            if kind == "molecules":
                if step % 10 == 0:
                    s.t.launch("void nbnxm_kernel_prune_rolling_cuda<true>(NBAtomDataGpu, NBParamGpu)", 60)
                    s.t.copy(1 << 16)
                for name, us in (("pme_spline_and_spread_kernel", 30), ("vector_fft", 15), ("pme_solve_kernel<YZX>", 9),
                                 ("regular_fft", 15), ("pme_gather_kernel", 20), ("nbnxn_kernel_ElecEwTwinCut_VdwLJ_F_cuda", 120),
                                 ("bonded_kernel_gpu", 25), ("reduceKernel", 5), ("leapfrog_kernel", 6), ("lincs_kernel", 12)):  # fmt: skip
                    s.t.launch(f"{name}(PmeGpuCudaKernelParams)" if "pme" in name else name, us)
                    s.t.host(3)
            elif kind == "V-cycle":
                for level in [*range(4), *range(3, -1, -1)]:
                    for _ in range(2):
                        s.t.launch(
                            "smooth_kernel<8>(level_type, int, double, double)", 80 / 2**level, grid=512 >> level
                        )
                    s.t.launch("residual_kernel(level_type, int, int)", 40 / 2**level, grid=512 >> level)
                    s.t.launch("restriction_kernel(level_type)", 10, grid=256 >> level)
                s.t.launch("norm_kernel(level_type, double*)", 12)
                s.t.item()
            else:
                for axis in "xyz":
                    s.t.launch(f"flux_{axis}<double, 3>(Grid, State)", 150)
                    s.t.launch("update_state(Grid, State, double)", 60)
                s.t.launch("void cub::DeviceReduceSingleTileKernel<double>", 4)
                s.t.item()
        if step % 10 == 9:
            s.t.host(1_500)
    return s.program(f"CUDA C++ {kind}", ["step"])


def schedule(rng: Random) -> Program:
    """torch.profiler's schedule over the training of a vision model: ProfilerStep# from wait to active."""
    s = Scene(rng, "ops", "modules+ops", "none", kineto=True)
    steps, count = rng.randrange(3, 7), rng.randrange(4, 10)
    block, autograd, first = conv_block(rng, 60), s.m.thread(9), rng.randrange(1, 8)
    s.numbers_operators = s.dialect == "ops"
    for step in range(steps):
        with s.t.range(f"ProfilerStep#{first + step}"), s.t.mark(step=step):
            with s.t.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                s.t.host(rng.uniform(500, 4_000))
            s.t.copy(19 << 20)
            with s.module("nn.Module: ResNet_0"):
                groups = s.blocks(block, count, "layer", "Bottleneck")
            s.run([K("", "aten::cross_entropy", LOSS, 6)])
            with s.t.range("Optimizer.zero_grad#SGD.zero_grad"):
                s.t.host(50)
            autograd.wait_until(s.t.now)
            s.back(block, groups, autograd)
            s.t.wait_until(autograd.now)
            with s.t.range("Optimizer.step#SGD.step"):
                s.run([K("", "aten::_foreach_add_", ADAM, 20)] * 5)
            if rng.random() < 0.5:
                s.t.item()
    return s.program("profiler schedule", ["step"], [*TRAINED, "operator"] if s.numbers_operators else TRAINED)


def one_forward(rng: Random) -> Program:
    """One forward pass, nothing else."""
    s = Scene(rng, "none", "ops", "modules", "modules+ops")
    count = rng.randrange(12, 33)
    block = llama(rng, 200)
    with s.t.mark(step=0), s.t.range("model_inference") if s.rng.random() < 0.5 else nullcontext():
        with s.module("nn.Module: LlamaModel_0" if s.kineto else "model"):
            s.run([K("", "aten::embedding", EMBED, 4)])
            s.blocks(block, count, "model.layers", "LlamaDecoderLayer")
            s.run([k for k in block[:6]])
    return s.program("one forward pass", ["step"], ["block"])


def kernels_only(rng: Random) -> Program:
    """Device rows without one call of the host: steps of training, pauses between."""
    s = Scene(rng, "none", kineto=True)
    steps, count, block = rng.randrange(3, 8), rng.randrange(6, 12), bert(rng, 60)
    for step in range(steps):
        with s.t.mark(step=step):
            s.run([K("", "", EMBED, 4)])
            groups = s.blocks(block, count, "", "")
            s.run([K("", "", LOSS, 10), K("", "", LOSS_BACK, 10)])
            s.back(block, groups, s.t)
            s.optimise()
            s.t.item()
        s.t.host(800)
    s.m.calls, s.m.ranges = [], []
    return s.program("kernels only", ["step"], TRAINED)


def checkpointed(rng: Random) -> Program:
    """A fine-tuning with adapters and recomputation: the forward of each block runs again before its gradients."""
    s = Scene(rng, "none", "user", "user+modules", "ops")
    steps, count, block = rng.randrange(4, 8), rng.randrange(4, 9), llama(rng, 80)
    lora = [K("self_attn.q_proj.lora_A", "aten::linear", "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_tn", 6),
            K("self_attn.q_proj.lora_B", "aten::linear", "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_tn", 6),
            K("self_attn", "aten::add", ADD, 2)]  # fmt: skip
    block = block[:9] + lora + block[9:]
    for step in range(steps):
        with s.t.mark(step=step), s.user(f"step {step}"):
            with s.user("forward"):
                groups = s.blocks(block, count, "model.layers", "LlamaDecoderLayer")
                s.run([K("", "aten::cross_entropy", LOSS, 20)])
            with s.user("backward"):
                for group in reversed(groups):
                    with s.t.mark(block=group, half=s.m.group(), ahead=NOT_JUDGED):
                        s.run(block)
                        s.run(backward(block))
            s.optimise(1)
            s.t.item()
        s.t.host(600)
    return s.program("adapters with recomputation", ["step"], ["ahead", "half", "block"])


def recommender(rng: Random) -> Program:
    """TorchRec's pipeline: the copy of the next batch and its exchange overlap this one's passes."""
    s = Scene(rng, "none", "user", "user")
    steps = rng.randrange(6, 16)
    layer = [K("", "aten::addmm", gemm(rng), 40), K("", "aten::relu", EW.format("clamp_min", "Relu"), 4)]
    table = "void fbgemm_gpu::split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, long, 64>"
    table_back = "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float>"
    exchange = NCCL.format("SendRecv")
    copier = 20
    for step in range(steps):
        with s.t.mark(step=step):
            with s.t.mark(step=NOT_JUDGED), s.user("## copy_batch_to_gpu ##"):
                for _ in range(4):
                    s.t.copy(1 << 20, pageable=False, stream=copier)
            with s.t.mark(step=NOT_JUDGED), s.user("## start_sparse_data_dist ##"):
                s.run(
                    [K("", "fbgemm::permute", "void fbgemm_gpu::permute_2D_sparse_data_kernel<false, int, long>", 12)],
                    stream=21,
                )
                s.run([K("", "c10d::alltoall_", exchange, 60)], stream=22)
            with s.user("## forward ##"):
                s.run([K("", "fbgemm::lookup", table, 200)])
                s.run([K("", "c10d::alltoall_base_", exchange, 90)], stream=22)
                s.run(layer * 4 + [K("", "aten::bmm", gemm(rng), 30)] + layer * 3)
                s.run([K("", "aten::binary_cross_entropy", LOSS, 5)])
            with s.user("## backward ##"):
                s.run(backward(layer * 7))
                s.run([K("", "c10d::alltoall_base_", exchange, 90)], stream=22)
                s.run([K("", "lookup_backward", table_back, 300)])
            with s.user("## optimizer ##"):
                s.run([K("", "aten::_foreach_add_", ADAM, 25)] * 2)
    return s.program("recommender pipeline", ["step"])


def detector(rng: Random) -> Program:
    """Frames of a video through a detector: preprocessing, network, boxes whose number differs."""
    s = Scene(rng, "none", "none", "user", "modules")
    frames, count, block = rng.randrange(5, 16), rng.randrange(5, 10), conv_block(rng, 25)
    for frame in range(frames):
        with s.t.mark(step=frame), s.user("frame"):
            with s.user("preprocess"):
                s.t.copy(640 * 640 * 3)
                s.run([K("", "aten::to", UNROLLED, 8), K("", "aten::div", MUL, 8)])
            with s.user("inference"), s.module("nn.Module: DetectionModel_0" if s.kineto else "DetectionModel"):
                for _ in range(count):
                    s.run(block)
                s.run([K("", "aten::cat", CAT, 9), K("", "aten::sigmoid", EW.format("sigmoid", "Sigmoid"), 4)])
            with s.user("nms"):
                s.run(
                    [K("", "aten::max", REDUCE, 6), K("", "aten::nonzero", "void cub::DeviceSelectSweepKernel<int>", 4)]
                )
                s.t.item()
                for _ in range(rng.randrange(1, 8)):
                    s.run(
                        [
                            K("", "aten::index", EMBED, 2),
                            K("", "aten::sort", "void cub::DeviceRadixSortOnesweepKernel<float>", 6),
                        ]
                    )
                s.run([K("", "torchvision::nms", "void nms_kernel_impl<float>(int, double, float const*)", 9)])
                s.t.copy(1_024, "DtoH")
        s.t.host(rng.uniform(1_000, 6_000))
    return s.program("detector on frames", ["step"])


def graph_network(rng: Random) -> Program:
    """Sampled neighbourhoods of a graph: sizes differ, so kernels do, too."""
    s = Scene(rng, "none", "user", "ops")
    steps = rng.randrange(8, 20)
    scatter = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<index_put_kernel_impl>>"
    spmm = "void cusparse::load_balancing_kernel<512u, 4ul, 0ul, long, cusparse::CsrMMPolicy<float>>"
    for step in range(steps):
        conv = [K("", "aten::index_select", EMBED, rng.uniform(5, 20)), K("", "torch_sparse::spmm", spmm, rng.uniform(30, 90)),
                K("", "aten::addmm", rng.choice(("ampere_sgemm_128x64_tn", "ampere_sgemm_64x64_tn")), rng.uniform(20, 40)),
                K("", "aten::relu", EW.format("clamp_min", "Relu"), 3)]  # fmt: skip
        with s.t.mark(step=step):
            with s.user("sample"):
                s.t.host(2_000)
                for _ in range(rng.randrange(2, 5)):
                    s.t.copy(rng.randrange(1, 99) << 10)
            with s.user("forward"):
                s.run(conv * 3 + [K("", "aten::log_softmax", LOSS, 4)])
            with s.user("backward"):
                s.run(
                    [
                        K("", "LogSoftmaxBackward0", LOSS_BACK, 4),
                        *backward(conv * 3),
                        K("", "IndexSelectBackward", scatter, 15),
                    ]
                )
            s.optimise(2)
            if rng.random() < 0.3:
                s.t.item()
    return s.program("graph network", ["step"])


def generate(rng: Random) -> Program:
    """Transformers' generate(): a prompt, then token after token, eager; one or a few calls."""
    s = Scene(rng, "none", "none", "ops", "modules", "user")
    calls, count = rng.choice((1, 1, 2, 3)), rng.randrange(6, 14)
    prompt, token = llama(rng, 150), llama(rng, 10, decode=True)
    number = 0
    if rng.random() < 0.5:
        set_up(s)
    for call in range(calls):
        with s.t.mark(step=call), s.user("generate"):
            s.t.copy(2_048)
            for step in range(rng.randrange(6, 14)):
                with (
                    s.t.mark(call=number),
                    s.module("nn.Module: MistralForCausalLM_0" if s.kineto else "MistralForCausalLM"),
                ):
                    s.run([K("", "aten::embedding", EMBED, 3)])
                    s.blocks(token if step else prompt, count, "model.layers", "MistralDecoderLayer")
                    s.run([*prompt[:6], K("", "aten::linear", gemm(Random(4)), 60)])
                with s.t.mark(call=number):
                    s.run([K("", "aten::argmax", REDUCE, 9), K("", "aten::cat", CAT, 3)])
                    s.t.item()
                number += 1
        s.t.host(4_000)
    return s.program("generate", ["call", "step"], ["block"])


def mamba(rng: Random) -> Program:
    """A state-space model's forward passes over a data set, of batches that differ in length."""
    s = Scene(rng, "none", "ops", "modules")
    runs, count = rng.randrange(4, 10), rng.randrange(8, 16)
    scan = "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, true, true, true, true>>"
    conv = "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16, c10::BFloat16>>"
    for run in range(runs):
        size = rng.uniform(0.5, 3)
        block = [K("norm", "LayerNormFn", "_layer_norm_fwd_1pass_kernel", 6 * size), K("mixer.in_proj", "aten::matmul", GEMM.format("128x128", "tn"), 60 * size),
                 K("mixer.conv1d", "causal_conv1d_fwd", conv, 15 * size), K("mixer.x_proj", "aten::linear", GEMM.format("64x64", "tn"), 10 * size),
                 K("mixer.dt_proj", "aten::matmul", GEMM.format("64x64", "nn"), 9 * size), K("mixer", "selective_scan_cuda", scan, 70 * size),
                 K("mixer.out_proj", "aten::linear", GEMM.format("128x64", "tn"), 40 * size)]  # fmt: skip
        with s.t.mark(step=run), s.module("nn.Module: MambaLMHeadModel_0" if s.kineto else "model"):
            s.t.copy(8_192)
            s.run([K("", "aten::embedding", EMBED, 5)])
            s.blocks(block, count, "backbone.layers", "Block")
            s.run([K("", "aten::linear", GEMM.format("256x64", "tn"), 200)])
        s.t.host(900)
    return s.program("Mamba over a data set", ["step"], ["block"])


def compiled(rng: Random) -> Program:
    """torch.compile: training by Inductor's fused kernels, forward and backward in CompiledFunction."""
    s = Scene(rng, "none", "ops", "user")
    steps, count, autograd = rng.randrange(4, 9), rng.randrange(4, 9), s.m.thread(12)
    forward = [K("", "", "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_0", 5), K("", "aten::mm", gemm(rng), 60),
               K("", "", "triton_poi_fused_add_cat_mul_neg_1", 8), K("", "aten::_scaled_dot_product_flash_attention", FLASH, 90),
               K("", "aten::mm", gemm(rng), 40), K("", "", "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", 7),
               K("", "aten::mm", gemm(rng), 90), K("", "", "triton_poi_fused_mul_silu_3", 6), K("", "aten::mm", gemm(rng), 90)]  # fmt: skip
    for step in range(steps):
        with (
            s.t.mark(step=step),
            s.t.range(f"ProfilerStep#{step + 3}") if s.kineto and s.says("user") else s.user("step"),
        ):
            with s.t.range("Torch-Compiled Region: 0/0") if s.says("ops") else nullcontext(), s.op("CompiledFunction"):
                groups = s.blocks(forward, count, "", "")
            s.run([K("", "", "triton_red_fused__log_softmax_nll_loss_forward_9", 40)])
            autograd.wait_until(s.t.now)
            with s.op("CompiledFunctionBackward", autograd):
                s.back(forward, groups, autograd)
            s.t.wait_until(autograd.now)
            s.optimise(3)
            s.t.item()
    return s.program("torch.compile training", ["step"], TRAINED)


def chores(rng: Random) -> Program:
    """A script that does one thing after another: nothing is run twice."""
    s = Scene(rng, "none", "user", kineto=False)
    names = ["void cub::DeviceRadixSortOnesweepKernel<{0}>", "void thrust::cuda_cub::core::_kernel_agent<{0}>", "hash_join_{0}",
             "void cudf::detail::gather_{0}<int>", "compute_groupby_{0}", "parquet_decode_{0}", "strings_{0}_kernel"]  # fmt: skip
    for stage in range(rng.randrange(6, 12)):
        with s.user(f"{rng.choice(('read', 'join', 'sort', 'filter', 'merge', 'write'))} table {chr(97 + stage)}"):
            for _ in range(rng.randrange(3, 18)):
                s.t.launch(
                    rng.choice(names).format(f"{stage}{rng.randrange(99)}"),
                    rng.uniform(10, 400),
                    grid=rng.randrange(1, 4_000),
                )
                s.t.host(rng.uniform(5, 200))
                if rng.random() < 0.2:
                    s.t.item()
    program = s.program("chores", [], is_noise=True)
    return program


FAMILIES: list[Callable[[Random], Program]] = [
    vllm, sglang, diffusers, trainer, lambda rng: ranks(rng, sharded=False), lambda rng: ranks(rng, sharded=True),
    megatron, jax, tensorrt, reinforcement, onnx, speech, benchmark, autotuned, cuda_only, schedule, one_forward,
    kernels_only, checkpointed, recommender, detector, graph_network, generate, mamba, compiled, chores,
]  # fmt: skip
CUT = {
    vllm,
    megatron,
    jax,
    trainer,
    generate,
    tensorrt,
    checkpointed,
}  # some of these recordings start late or end early


def draw(seed: int) -> Program:
    """The program of a seed: a family in turn, everything else by chance."""
    rng = Random(f"guest {seed}")
    family = FAMILIES[seed % len(FAMILIES)]
    program = family(rng)
    if family in CUT and rng.random() < 0.3:
        first, last = rng.choice(((0.15, 1), (0, 0.85), (0.1, 0.9)))
        cut(program, first, last)
        program.about += f", cut to {first:g} to {last:g}"
    elif family is not kernels_only and rng.random() < 0.12:
        lose(program, rng, 0.002, 0.002)
        program.about += ", rows lost"
    return program
