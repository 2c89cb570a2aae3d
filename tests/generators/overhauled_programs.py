"""Forty-three edits by a fifth author, each as a program before and after it (`generators.edited` runs them).

Training with new optimisers and fused losses, servers of language models, diffusion, CUDA C++, TensorRT, Julia, RAPIDS;
edits that make a program slower, and recordings of a program that nobody changed. Written without a look at the
advice's rules. Where nothing in a recording could show the edit there is no lever. What the first contact changed here:
a batch is said by the shapes of its products; kernels limit a solver whose reads take less; what is logged is host
code, too; `cast-once` came for weights that are cast in each pass.
"""

from __future__ import annotations

from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import (
    ADAM,
    ADD,
    BF16,
    ELEMENT,
    EXCHANGE,
    FLASH,
    FP32,
    GELU,
    MUL,
    NORM,
    REDUCE,
    SOFTMAX,
    STEPS,
    Edited,
    _mark,
    block,
    item,
    linear,
    op,
    steps,
    train,
)
from generators.relieved_programs import copied, plain
from generators.retuned_programs import GATHER, SCATTER
from generators.reworked_programs import CONV, GEMV, INDEX, PAGE, _backward

TO_BF16 = ELEMENT.format("bfloat16_copy_kernel_cuda(TensorIteratorBase&)", 2, "bfloat16_copy_kernel_cuda")
FP8 = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_execute_segment_k_off_kernel"
AMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxNanFunctor<float> > >(x)"
GROUPED = "void cutlass::Kernel2<cutlass::gemm::kernel::GemmGrouped<cutlass_80_tensorop_bf16_s16816gemm>>(Params)"
LOGSOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMax>(float*, x)"
)
NLL = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, x)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >(x)"
CATS = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<Opaque<2u>, unsigned int, 4, 64, 64>(x)"


# -- training ----------------------------------------------------------------------------------------


def merged(w: World, edited: bool, rng: Random) -> None:
    """Sixteen micro-batches of one sample are accumulated -> two of eight, for the same samples."""
    t, layers, scale = w.thread(), rng.randint(4, 7), rng.uniform(0.016, 0.024)

    def body(_: int) -> None:
        for _part in range(2 if edited else 16):
            train(t, layers, scale * (4.2 if edited else 1), optimiser=False)
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (ADAM, 90))
        t.end()
        item(t)

    steps(t, body)


def logged(w: World, edited: bool, rng: Random) -> None:
    """Loss and gradient norm of each small batch are read to be logged -> once in ten steps."""
    t, parts, scale = w.thread(), rng.randint(8, 12), rng.uniform(0.05, 0.08)

    def body(number: int) -> None:
        for _part in range(parts):
            train(t, 2, scale, optimiser=False)
            if not edited:
                t.begin("log_metrics")
                item(t)
                item(t)
                t.cpu(180)
                t.end()
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (ADAM, 60))
        t.end()
        if not edited or number == 5:
            item(t)

    steps(t, body)


def metric(w: World, edited: bool, rng: Random) -> None:
    """Logits go to the host, where NumPy makes a metric of them -> a metric on the GPU, read once a step."""
    t, size, ms, scale = w.thread(), rng.uniform(20e6, 36e6), rng.uniform(6, 11), rng.uniform(0.3, 0.5)

    def body(_: int) -> None:
        for _layer in range(6):
            block(t, scale)
        t.begin("update_metric")
        if edited:
            op(t, "aten::argmax", (ARGMAX, 45))
            op(t, "aten::eq", (ADD, 4))
            op(t, "aten::sum", (ARGMAX.replace("ArgMaxOps", "sum_functor"), 6))
        else:
            t.begin("aten::to", "cpu_op")
            t.copy(size, "DtoH")
            t.end()
            t.cpu(ms * 1_000)
        t.end()
        item(t)

    steps(t, body, "evaluate {}", 8)


def muon(w: World, edited: bool, rng: Random) -> None:
    """Muon orthogonalises one matrix after another -> all matrices of one shape in a batch."""
    t, matrices = w.thread(), rng.randint(40, 64)
    count, times = (4, matrices / 4 * 0.7) if edited else (matrices, 1)

    def body(_: int) -> None:
        train(t, 3, 0.12, optimiser=False)
        t.begin("Optimizer.step#Muon.step")
        for _matrix in range(count):
            op(t, "aten::lerp_", (ADD, 3 * times))
            op(t, "aten::norm", (AMAX.replace("MaxNan", "NormTwo"), 4 * times))
            op(t, "aten::div", (MUL, 3 * times))
            for _iteration in range(5):
                op(t, "aten::bmm" if edited else "aten::mm", (BF16, 5 * times))
                op(t, "aten::bmm" if edited else "aten::addmm", (BF16, 5 * times))
                op(t, "aten::bmm" if edited else "aten::addmm", (BF16, 6 * times))
            op(t, "aten::add_", (ADD, 3 * times))
        t.end()
        item(t)

    steps(t, body)


def momentum(w: World, edited: bool, rng: Random) -> None:
    """SGD with momentum, foreach=False -> foreach=True."""
    t, parameters = w.thread(), rng.randint(150, 220)

    def body(_: int) -> None:
        train(t, 3, 0.14, optimiser=False)
        t.begin("Optimizer.step#SGD.step")
        if edited:
            for name in ("mul_", "add_", "add_"):
                op(t, f"aten::_foreach_{name}", *[(ADAM.replace("FusedAdam", "BinaryOp"), 45)] * 2)
        else:
            for _parameter in range(parameters):
                for name in ("add", "mul_", "add_", "add_"):
                    op(t, f"aten::{name}", (MUL if "mul" in name else ADD, 3))
        t.end()
        item(t)

    steps(t, body)


def resharded(w: World, edited: bool, rng: Random) -> None:
    """FSDP gathers weights again for the backward pass, between layers -> reshard_after_forward=False."""
    layers, us, scale = rng.randint(6, 9), rng.uniform(500, 800), rng.uniform(0.4, 0.6)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            last = Flag(0)
            for way in range(2):
                for layer in range(layers):
                    ready = []
                    if not edited or not way:
                        t.begin("FSDP::all_gather")
                        ready = [t.kernel(GATHER, us, stream=22, group=(number, way, layer),
                                          after=[last] if layer or way else [])]  # fmt: skip
                        t.end()
                    t.kernel(CATS, 15, after=ready)
                    for _pass in range(1 + way):
                        block(t, scale)
                    last = _mark(t)
                    if way:
                        t.begin("FSDP::reduce_scatter")
                        t.kernel(SCATTER, us / 3, stream=24, group=(number, "back", layer), after=[last])
                        t.end()
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, "train_step {}")


def checkpoints(w: World, edited: bool, rng: Random) -> None:
    """Each block is checkpointed -> only each fourth, as memory allows."""
    t, layers, scale = w.thread(), rng.randint(2, 3) * 4, rng.uniform(0.5, 0.9)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
        other, begin, end = _backward(t), Flag(), Flag()
        t.set(begin)
        other.need(begin)
        for layer in range(layers):
            is_kept = edited and layer % 4
            if not is_kept:
                other.begin("autograd::engine::evaluate_function: CheckpointFunctionBackward", "cpu_op")
                block(other, scale)
            for us in (340, 340, 90, 260):
                other.begin("autograd::engine::evaluate_function: MmBackward0", "cpu_op")
                op(other, "aten::mm", (BF16, us * scale))
                op(other, "aten::mm", (BF16, us * scale))
                other.end()
            if not is_kept:
                other.end()
        other.set(end)
        t.need(end)
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (ADAM, 160))
        t.end()
        item(t)

    steps(t, body)


def graph_breaks(w: World, edited: bool, rng: Random) -> None:
    """A branch on a tensor's value breaks a compiled model after each block -> torch.where, one graph."""
    t, blocks, scale = w.thread(), rng.randint(10, 16), rng.uniform(0.05, 0.09)

    def region(number: int) -> None:
        for name, us in (("triton_per_fused_native_layer_norm_0", 20), ("", 260), ("triton_poi_fused_gelu_1", 30),
                         ("", 300), ("triton_poi_fused_add_2", 16)):  # fmt: skip
            op(t, name or "aten::mm", (name or BF16, us * scale), host=3)
        op(t, "triton_poi_fused_where_3" if edited else "triton_per_fused_any_gt_3",
           ("triton_poi_fused_where_3" if edited else "triton_per_fused_any_gt_3", 3), host=3)  # fmt: skip

    def body(_: int) -> None:
        if edited:
            t.begin("Torch-Compiled Region: 0/0")
        for number in range(blocks):
            if not edited:
                t.begin(f"Torch-Compiled Region: {number}/0")
            region(number)
            if not edited:
                t.end()
                t.begin("aten::is_nonzero", "cpu_op")
                item(t)
                t.end()
                t.cpu(70)
        if edited:
            t.end()
        item(t)

    steps(t, body)


def collated(w: World, edited: bool, rng: Random) -> None:
    """Texts are tokenised and padded in collate_fn by no worker -> by four workers."""
    t, texts, scale, us = w.thread(), rng.randint(24, 40), rng.uniform(0.5, 0.8), rng.uniform(500, 800)
    ready = [Flag() for _ in range(STEPS)]
    if edited:
        for worker in range(4):
            one = w.thread(0, 300 + worker, "pt_data_worker")
            for number in range(worker, STEPS, 4):
                one.cpu(us * texts * (0.3 if number < 4 else 1))
                one.set(ready[number])

    def body(number: int) -> None:
        t.begin(f"enumerate(DataLoader)#_{'MultiProcessing' if edited else 'SingleProcess'}DataLoaderIter.__next__")
        if edited:
            t.need(ready[number], "poll")
            t.cpu(200)
        for _text in range(0 if edited else texts):
            t.cpu(us * 0.9)
            op(t, "aten::pad", host=us * 0.06)
        t.end()
        t.copy(texts * 32_768, pinned=True)
        train(t, 5, scale)
        item(t)

    steps(t, body)


def cast_weights(w: World, edited: bool, rng: Random) -> None:
    """Autocast casts weights and inputs in front of each product of a small batch -> the model is cast once."""
    t, layers, us = w.thread(), rng.randint(14, 22), rng.uniform(50, 80)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::layer_norm", (NORM, 10))
            for part in (1.0, 1.0, 1.3):
                if not edited:
                    for size in (0.7, 0.2):
                        t.begin("aten::to", "cpu_op")
                        op(t, "aten::copy_", (TO_BF16, us * size * part))
                        t.end()
                linear(t, us * part)
            op(t, "aten::gelu", (GELU, 9))
        item(t)

    steps(t, body)


def synchronous(w: World, edited: bool, rng: Random) -> None:
    """Pinned batches are copied without non_blocking: the host waits for each tensor -> non_blocking, a batch ahead."""
    t, size, scale = w.thread(), rng.uniform(40e6, 60e6), rng.uniform(0.12, 0.2)
    ahead = [Flag() for _ in range(STEPS + 1)]

    def upload(number: int) -> None:
        t.begin("to_device")
        for _tensor in range(3):
            t.begin("aten::to", "cpu_op")
            t.begin("aten::copy_", "cpu_op")
            ahead[number] = t.copy(size, pinned=True, stream=20 if edited else 7)
            if not edited:
                t.wait("all", "cudaStreamSynchronize")
            t.end()
            t.end()
        t.end()

    def body(number: int) -> None:
        upload(number + 1 if edited else number)
        t.kernel(MUL, 12, after=[ahead[number]] if edited else [])
        train(t, 5, scale)
        item(t)

    if edited:
        upload(0)
    steps(t, body)


def biased(w: World, edited: bool, rng: Random) -> None:
    """Attention with a bias of relative positions, written out in FP16 -> FlexAttention."""
    t, layers, us = w.thread(), rng.randint(8, 12), rng.uniform(300, 500)
    product = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn"

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::layer_norm", (NORM, 30))
            linear(t, 300)
            if edited:
                op(t, "flex_attention", ("triton_tem_fused_flex_attention_0", us * 1.6))
            else:
                op(t, "aten::bmm", (product, us * 0.7))
                op(t, "aten::embedding", (INDEX, us * 0.4))
                op(t, "aten::add", (ADD, us * 0.8))
                op(t, "aten::_softmax", (SOFTMAX, us))
                op(t, "aten::to", (TO_BF16.replace("bfloat16", "float16"), us * 0.6))
                op(t, "aten::bmm", (product, us * 0.7))
            linear(t, 120)
            linear(t, 400)
            linear(t, 400)
        item(t)

    steps(t, body)


def liger(w: World, edited: bool, rng: Random) -> None:
    """RMSNorm, rotary embedding and SwiGLU of a Llama, an operator at a time -> Liger's kernels."""
    t, layers, us = w.thread(), rng.randint(8, 14), rng.uniform(40, 70)

    def chain(names: str, fused: str, name: str) -> None:
        if edited:
            op(t, fused, (name, us * 1.2))
            return
        for one in names.split():
            kernel = AMAX.replace("MaxNan", "Mean") if one == "mean" else CATS if one == "cat" else ELEMENT.format(
                f"{one}_kernel_cuda", 3, f"{one}_kernel_cuda")  # fmt: skip
            op(t, f"aten::{one}", (kernel, us))

    def body(_: int) -> None:
        for _layer in range(layers):
            chain("to pow mean add rsqrt mul to mul", "LigerRMSNorm", "_rms_norm_forward_kernel")
            linear(t, 280)
            chain("neg cat mul mul add neg cat mul mul add", "LigerRope", "_triton_rope")
            op(t, "aten::scaled_dot_product_attention", (FLASH, 200))
            linear(t, 100)
            chain("to pow mean add rsqrt mul to mul", "LigerRMSNorm", "_rms_norm_forward_kernel")
            linear(t, 380)
            chain("silu mul", "LigerSiLUMul", "_swiglu_forward_kernel")
            linear(t, 380)
        item(t)

    steps(t, body)


def vocabulary(w: World, edited: bool, rng: Random) -> None:
    """Logits over 128,000 words are cast to FP32, softened and summed -> one fused cross entropy."""
    t, layers, us = w.thread(), rng.randint(4, 6), rng.uniform(1_500, 2_500)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.9)
        linear(t, us * 1.2)
        if edited:
            op(t, "LigerCrossEntropy", ("liger_cross_entropy_kernel", us))
        else:
            op(t, "aten::to", (ELEMENT.format("float_copy_kernel_cuda", 2, "float_copy_kernel_cuda"), us))
            op(t, "aten::div", (MUL, us * 1.3))
            op(t, "aten::_log_softmax", (LOGSOFTMAX, us * 1.6))
            op(t, "aten::nll_loss_forward", (NLL, 30))
            op(t, "aten::_log_softmax_backward_data", (LOGSOFTMAX.replace("Forward", "Backward"), us * 1.8))
            op(t, "aten::div", (MUL, us * 1.3))
            op(t, "aten::to", (TO_BF16, us))
        item(t)

    steps(t, body)


def grown(w: World, edited: bool, rng: Random) -> None:
    """Sequences of ever other lengths make PyTorch's allocator take and free memory -> the longest comes first."""
    t, layers, us = w.thread(), rng.randint(8, 12), rng.uniform(350, 600)

    def body(_: int) -> None:
        for layer in range(layers):
            t.begin("aten::empty", "cpu_op")
            if not edited:
                if layer % 4 == 0:
                    t.wait("all", "cudaFree")
                    t.cpu(30)
                t.api("cudaMalloc", us)
            t.end()
            block(t, 0.12)
        item(t)

    steps(t, body)


def unequal(w: World, edited: bool, rng: Random) -> None:
    """Sequences of unequal lengths: in each step another rank has most to do -> packed to the same number of tokens."""
    most = rng.uniform(1.8, 2.4)
    order = [rng.randrange(4) for _ in range(10)]
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            train(t, 4, 0.4 * (1 + (most - 1) / 4 if edited else most if order[number] == rank else 1), optimiser=False)
            done = t.kernel(REDUCE, 700, stream=23, group=number, after=[_mark(t)])
            t.kernel(ADAM, 120, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, count=10)


def tensor_parallel(w: World, edited: bool, rng: Random) -> None:
    """Tensor parallel: two sums over ranks a layer, in order -> cut in two, a half's sum beside the other's product."""
    layers, us = rng.randint(10, 16), rng.uniform(160, 240)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            ready: list[list[Flag]] = [[], []]
            for layer in range(layers):
                for part, first in ((0, 240), (1, 420)):
                    for half in range(2 if edited else 1):
                        share = 0.53 if edited else 1
                        t.kernel(NORM, 20 * share, after=ready[half])
                        t.kernel(BF16, first * share)
                        t.kernel(FLASH if part == 0 else GELU, (150 if part == 0 else 40) * share)
                        done = t.kernel(BF16, first / 2 * share)
                        stream = 21 if edited else 7
                        last = t.kernel(REDUCE, us * share, stream=stream, group=(number, layer, part, half),
                                        after=[done] if edited else [])  # fmt: skip
                        ready[half] = [last] if edited else []
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, "forward {}")


def routed(w: World, edited: bool, rng: Random) -> None:
    """Grouped products of experts: one rank of four gets most tokens -> a balancing bias in the router."""
    most = rng.uniform(2.0, 3.0)
    for rank in range(4):
        t = w.thread(rank)
        share = 1.0 if edited else most if rank == 3 else (4 - most) / 3

        def body(number: int, t: Thread = t, share: float = share) -> None:
            for layer in range(8):
                t.kernel(NORM, 20)
                t.kernel(BF16, 180)
                t.kernel(FLASH, 150)
                t.kernel("void moe::topk_gating_softmax<8, 256>(float const*, int*, float*, int)", 18)
                t.kernel(EXCHANGE, 110, group=(number, layer, 0))
                t.kernel(GROUPED, 520 * share)
                t.kernel("void moe::silu_and_mul<__nv_bfloat16>(__nv_bfloat16*, int)", 40 * share)
                t.kernel(GROUPED, 300 * share)
                t.kernel(EXCHANGE, 110, group=(number, layer, 1))
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, "step {}")


# -- inference ---------------------------------------------------------------------------------------


def static_cache(w: World, edited: bool, rng: Random) -> None:
    """generate() with a cache that grows by torch.cat, launch by launch -> StaticCache and a graph of each token."""
    t, layers = w.thread(), rng.randint(16, 24)
    nodes = [(NORM, 2.4), (GEMV, 9.0), (ADD, 1.8), (FLASH, 6.5), (GEMV, 6.0), (NORM, 2.4), (GEMV, 13.0), (GELU, 2.0),
             (GEMV, 12.0), (ADD, 1.8)]  # fmt: skip

    def body(_: int) -> None:
        if edited:
            t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=35, node=1)
            t.acts.append(("more", (nodes * layers)[1:]))
        else:
            for _layer in range(layers):
                for name, us in nodes:
                    op(t, "aten::linear" if name == GEMV else "aten::mul", (name, us), host=9)
                op(t, "aten::cat", (CATS, 5), host=9)
                op(t, "aten::cat", (CATS, 5), host=9)
        op(t, "aten::argmax", (ARGMAX, 9))
        item(t)

    steps(t, body, "decode {}", 12)


def paged(w: World, edited: bool, rng: Random) -> None:
    """Keys and values of a batch are gathered into one tensor for each layer -> a paged attention kernel."""
    t, layers, us = w.thread(), rng.randint(16, 24), rng.uniform(30, 50)

    def body(_: int) -> None:
        for _layer in range(layers):
            for name, long in (
                (NORM, 4),
                (BF16, 30),
                *(((PAGE, us * 1.1),) if edited else ((INDEX, us), (INDEX, us), (FLASH, us))),
                (BF16, 22),
                (NORM, 4),
                (BF16, 60),
                (GELU, 5),
                (BF16, 50),
            ):
                t.cpu(2)
                t.kernel(name, long)
        t.copy(4_096, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "execute_model {}", 10)


def continuous(w: World, edited: bool, rng: Random) -> None:
    """A batch of 4 requests in each decode step -> continuous batching fills 16 places."""
    t, layers = w.thread(), rng.randint(20, 28)
    times = 1.15 if edited else 1

    def body(_: int) -> None:
        t.copy(2_048 * (4 if edited else 1), pinned=True)
        for _layer in range(layers):
            for name, us in (("layer_norm", 3), ("linear", 8), ("scaled_dot_product_attention", 7), ("linear", 5),
                             ("layer_norm", 3), ("linear", 11), ("silu", 2.5), ("linear", 10)):  # fmt: skip
                kernel = (
                    NORM if "norm" in name else BF16 if name == "linear" else FLASH if "attention" in name else GELU
                )
                dims = [[16 if edited else 4, 2048], [2048, 2048]]
                shapes = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 2} if name == "linear" else {}
                op(t, f"aten::{name}", (kernel, us * times), host=8, **shapes)
        op(t, "aten::argmax", (ARGMAX, 9))
        item(t)

    steps(t, body, "decode {}", 10)


def quantised_inputs(w: World, edited: bool, rng: Random) -> None:
    """Inputs of FP8 products are scaled by four operators each -> by the normalisation before, in one kernel."""
    t, layers, us = w.thread(), rng.randint(10, 16), rng.uniform(25, 40)

    def body(_: int) -> None:
        for _layer in range(layers):
            for long in (120, 60, 160, 160):
                op(t, "rms_norm_quant" if edited else "rms_norm", ("_rms_norm_kernel", us * (1.3 if edited else 1)))
                if not edited:
                    op(t, "aten::abs", (ELEMENT.format("abs_kernel_cuda", 2, "abs_kernel_cuda"), us))
                    op(t, "aten::amax", (AMAX, us * 0.6))
                    op(t, "aten::clamp", (MUL.replace("MulFunctor", "clamp_scalar"), us))
                    op(t, "aten::to", (TO_BF16.replace("bfloat16", "float8"), us * 0.8))
                op(t, "aten::_scaled_mm", (FP8, long))
        item(t)

    steps(t, body)


def scheduled(w: World, edited: bool, rng: Random) -> None:
    """A server makes up each batch while the device waits -> it makes up the next one beside this one's work."""
    t, layers, ms = w.thread(), rng.randint(20, 30), rng.uniform(2.5, 4.0)

    def schedule() -> None:
        t.begin("schedule")
        t.cpu(ms * 1_000)
        t.end()

    def body(_: int) -> None:
        if not edited:
            schedule()
        t.copy(8_192, pinned=True)
        t.begin("forward")
        t.work("kernel", BF16, 40, api="cudaGraphLaunch", call=35, node=1)
        t.acts.append(("more", ([(NORM, 8), (PAGE, 55), (BF16, 80), (BF16, 90)] * layers)[1:]))
        t.end()
        t.copy(2_048, "DtoH", pinned=True)
        if edited:
            schedule()
        t.wait("all", "cudaEventSynchronize")

    steps(t, body, "engine_step {}", 10)


def detokenised(w: World, edited: bool, rng: Random) -> None:
    """Tokens become texts, and are sent to clients, in the thread that launches -> in a process of its own."""
    t, layers, ms = w.thread(), rng.randint(20, 30), rng.uniform(2.0, 3.5)

    def body(_: int) -> None:
        t.copy(8_192, pinned=True)
        t.begin("forward")
        t.work("kernel", BF16, 40, api="cudaGraphLaunch", call=35, node=1)
        t.acts.append(("more", ([(NORM, 8), (PAGE, 40), (BF16, 60), (BF16, 70)] * layers)[1:]))
        t.end()
        t.copy(2_048, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")
        t.begin("send_outputs")
        t.cpu(90 if edited else ms * 700)
        t.os("sendmsg", 30 if edited else ms * 500)
        t.end()

    steps(t, body, "engine_step {}", 10)


def moved_models(w: World, edited: bool, rng: Random) -> None:
    """Diffusion: each model's weights go to the GPU when it is called, and back (offload) -> all of them stay."""
    t, size, passes = w.thread(), rng.uniform(50e6, 80e6), rng.randint(6, 9)

    def body(_: int) -> None:
        for name, blocks, times, tensors in (
            ("text_encoder", 2, 1, 3),
            ("transformer", 4, passes, 8),
            ("vae", 2, 1, 2),
        ):
            t.begin(name)
            if not edited:
                for _tensor in range(tensors):
                    t.begin("aten::to", "cpu_op")
                    t.copy(size)
                    t.end()
            for _pass in range(times):
                for _block in range(blocks):
                    block(t, 0.7)
            t.end()
        item(t)

    steps(t, body, "image {}", 5)


def frames(w: World, edited: bool, rng: Random) -> None:
    """Frames of a video are decoded by the host -> by the GPU's decoder."""
    t, ms, scale = w.thread(), rng.uniform(12, 20), rng.uniform(0.2, 0.35)

    def body(_: int) -> None:
        t.begin("decode_frames")
        t.cpu(300 if edited else ms * 1_000)
        t.end()
        if not edited:
            t.copy(16 * 602_112, pinned=True)
        for _layer in range(16):
            op(t, "aten::cudnn_convolution", (CONV, 400 * scale))
            op(t, "aten::relu_", (ADD, 60 * scale))
        item(t)

    steps(t, body, "clip {}", 8)


# -- CUDA C++ and others -----------------------------------------------------------------------------


def event_waits(w: World, edited: bool, rng: Random) -> None:
    """C++: the host waits for an event of one stream before it launches on the other -> cudaStreamWaitEvent."""
    t, us, parts = w.thread(), rng.uniform(40, 70), rng.randint(12, 20)

    def body(_: int) -> None:
        for _part in range(parts):
            done = t.kernel("void assemble(double*, int const*, int)", us, stream=13)
            t.api("cudaEventRecord", 1.2)
            if not edited:
                t.wait(done, "cudaEventSynchronize", 4)
                t.cpu(14)
            else:
                t.api("cudaStreamWaitEvent", 1.0)
            t.kernel("void relax(double*, double const*, int)", us * 0.8, stream=14, after=[done])
        t.wait("all")

    steps(t, body, "cycle {}", 10)


def callbacks(w: World, edited: bool, rng: Random) -> None:
    """C++: cudaLaunchHostFunc between two kernels sums counters on the host -> a kernel does."""
    t, us, ms = w.thread(), rng.uniform(500, 900), rng.uniform(0.8, 1.3)
    other = None if edited else w.thread(0, 60, "cuda-EvtHandlr")

    def body(_: int) -> None:
        for _part in range(4):
            done = t.kernel("void trace_rays(Ray*, Hit*, Node const*, int)", us)
            if edited or other is None:
                t.kernel("void sum_counters(unsigned long long*, int)", 9)
                continue
            t.api("cudaLaunchHostFunc", 3)
            called = Flag()
            other.need(done, "poll")
            other.cpu(ms * 1_000)
            other.set(called)
            other.acts.append(("migrate", 7, 0, 0, 0))
            t.kernel("void shade(Hit const*, float4*, int)", us / 3, after=[called])
        t.wait("all")

    plain(t, body, 8)


def launch_bounds(w: World, edited: bool, rng: Random) -> None:
    """C++: a kernel that spills registers -> __launch_bounds__ and two blocks on a multiprocessor: it is faster."""
    t, us = w.thread(), rng.uniform(1_200, 2_000)

    def body(_: int) -> None:
        for _part in range(3):
            t.kernel("void flux<double, 5>(double const*, double*, Mesh)", us * 0.55 if edited else us, grid=2_048)
            t.kernel("void update<double>(double*, double const*, int)", us / 7, grid=2_048)
        t.wait("all")

    steps(t, body, "iteration {}", 8)


def strides(w: World, edited: bool, rng: Random) -> None:
    """C++: a grid of 16 blocks, whose threads loop -> as many blocks as multiprocessors hold."""
    t, us = w.thread(), rng.uniform(1_000, 1_800)

    def body(_: int) -> None:
        t.kernel("void histogram(unsigned int*, float const*, long)", us / 5.5 if edited else us,
                 grid=864 if edited else 16)  # fmt: skip
        t.kernel("void prefix(unsigned int*, int)", 40)
        t.wait("all")

    plain(t, body, 12)


def pinned_frames(w: World, edited: bool, rng: Random) -> None:
    """C++: pinned memory is taken and freed for each frame -> once."""
    t, ms, us = w.thread(), rng.uniform(2.0, 3.5), rng.uniform(600, 1_000)

    def body(_: int) -> None:
        if not edited:
            t.api("cudaHostAlloc", ms * 1_000)
        t.cpu(150)
        t.copy(8e6, pinned=True)
        t.kernel("void denoise(uchar4 const*, uchar4*, int, int)", us)
        t.copy(8e6, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")
        if not edited:
            t.api("cudaFreeHost", ms * 400)

    steps(t, body, "frame {}", 10)


def residuals(w: World, edited: bool, rng: Random) -> None:
    """C++: a solver copies its residual to the host in each iteration -> in each fiftieth."""
    t, us = w.thread(), rng.uniform(6, 10)

    def body(_: int) -> None:
        for number in range(50):
            for name in ("spmv_csr(double const*, int const*, double*)", "dot(double const*, double*, int)",
                         "axpy(double*, double const*, double const*, int)"):  # fmt: skip
                t.kernel(f"void {name}", us)
            if not edited or number == 49:
                copied(t, 8, "DtoH")
                t.cpu(2)

    steps(t, body, "solve {}", 6)


def handles(w: World, edited: bool, rng: Random) -> None:
    """C++: each call makes and destroys its cuBLAS handle, with the workspace of it -> one handle."""
    t, us = w.thread(), rng.uniform(120, 220)

    def body(_: int) -> None:
        for _call in range(6):
            if not edited:
                t.cpu(250)
                t.api("cudaMalloc", 240)
            t.kernel(BF16.replace("bf16_s16816", "fp16_s16816"), us)
            t.kernel("void bias_act(__half*, __half const*, int)", 14)
            if not edited:
                t.wait("all", "cudaDeviceSynchronize")
                t.wait("all", "cudaFree", 90)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "layer {}", 10)


def swapped(w: World, edited: bool, rng: Random) -> None:
    """C++: each iteration copies the new field over the old one on the device -> pointers are swapped."""
    t, size, us = w.thread(), rng.uniform(500e6, 900e6), rng.uniform(900, 1_400)

    def body(_: int) -> None:
        for _iteration in range(10):
            t.kernel("void wave_step(float*, float const*, float const*, int, int, int)", us)
            for _field in range(0 if edited else 2):
                t.work("memcpy", "DtoD", size / 1e6, bytes=int(size), pinned=False)
        t.wait("all")

    plain(t, body, 5)


def independent(w: World, edited: bool, rng: Random) -> None:
    """C++: kernels of small grids that do not need one another, on one stream -> on six."""
    t, us = w.thread(), rng.uniform(150, 260)

    def body(_: int) -> None:
        for part in range(24):
            t.kernel(f"void align_reads<{part % 3}>(char const*, int*, int)", us, grid=14,
                     stream=13 + part % 6 if edited else 7)  # fmt: skip
        t.wait("all")

    steps(t, body, "batch {}", 8)


def engine(w: World, edited: bool, rng: Random) -> None:
    """TensorRT: an engine of small layers is enqueued for each request -> captured as a graph once."""
    t, layers = w.thread(), rng.randint(60, 90)
    names = ("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_tilesize96x64x64_stage3",
             "generatedNativePointwise", "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize64x32",
             "copyPackedKernel")  # fmt: skip

    def body(_: int) -> None:
        t.copy(602_112, pinned=True)
        t.begin("ExecutionContext::enqueue")
        if edited:
            t.work("kernel", names[0], 4.5, api="cudaGraphLaunch", call=20, node=1)
            t.acts.append(("more", [(names[layer % 4], 4.5 - layer % 4) for layer in range(1, layers)]))
        for layer in range(0 if edited else layers):
            t.begin(f"layer_{layer}")
            t.cpu(4)
            t.kernel(names[layer % 4], 4.5 - layer % 4)
            t.end()
        t.end()
        t.copy(4_000, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "request {}", 12)


def scalars(w: World, edited: bool, rng: Random) -> None:
    """Julia: elements of a CuArray are read one by one (allowscalar) -> one reduction."""
    t, count = w.thread(), rng.randint(80, 140)

    def body(_: int) -> None:
        for part in range(3):
            t.cpu(12)
            t.kernel(f"_Z{part}3gpu_broadcast_kernel_cartesian16CompilerMetadata", 60, api="cuLaunchKernel")
        if edited:
            t.cpu(15)
            t.kernel("_Z22partial_mapreduce_grid8identity", 20, api="cuLaunchKernel")
            copied(t, 8, "DtoH", "cuMemcpyDtoHAsync_v2")
        for _element in range(0 if edited else count):
            t.cpu(3)
            copied(t, 8, "DtoH", "cuMemcpyDtoHAsync_v2")

    plain(t, body, 10)


def pool(w: World, edited: bool, rng: Random) -> None:
    """RAPIDS: each operator on a table takes and frees memory of the device -> rmm's pool."""
    t, us = w.thread(), rng.uniform(60, 110)

    def body(_: int) -> None:
        for name in ("hash_join", "gather_chars", "groupby_aggregate", "sort_by_key", "apply_boolean_mask") * 3:
            t.begin(f"libcudf:{name}")
            if not edited:
                t.api("cudaMalloc", 160)
                t.api("cudaMalloc", 120)
            t.cpu(20)
            t.kernel(f"void cudf::detail::{name}_kernel<256, long>(cudf::column_device_view, int*)", us)
            t.wait("all", "cudaStreamSynchronize")
            if not edited:
                t.wait("all", "cudaFree", 140)
            t.end()

    steps(t, body, "query {}", 8)


# -- slower, or the same -----------------------------------------------------------------------------


def more_precise(w: World, edited: bool, rng: Random) -> None:
    """Slower: a flag switches BF16 off, and products take FP32."""
    t, scale = w.thread(), rng.uniform(0.3, 0.5)

    def body(_: int) -> None:
        train(t, 4, scale * (5 if edited else 1), FP32 if edited else BF16)
        item(t)

    steps(t, body)


def checks(w: World, edited: bool, rng: Random) -> None:
    """Slower: a check for NaN behind each block came in with a refactoring."""
    t, layers, scale = w.thread(), rng.randint(12, 18), rng.uniform(0.04, 0.07)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
            if edited:
                op(t, "aten::isnan", (ADD, 3))
                op(t, "aten::any", (AMAX, 4))
                t.begin("aten::is_nonzero", "cpu_op")
                item(t)
                t.end()
                t.cpu(60)
        item(t)

    steps(t, body)


def renamed(w: World, edited: bool, rng: Random) -> None:
    """The same: another version of cuBLAS takes kernels of other names, as fast as before."""
    t, scale = w.thread(), rng.uniform(0.5, 0.8)
    kernel = BF16.replace("128x128_ldg8_f2f_stages_32x5", "128x64_ldg8_relu_f2f_stages_64x4") if edited else BF16

    def body(_: int) -> None:
        for _layer in range(8):
            block(t, scale, kernel)
        item(t)

    steps(t, body, "forward {}", 10)


def unchanged(w: World, edited: bool, rng: Random) -> None:
    """The same: nothing was changed in a program whose host code limits."""
    t, layers = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.015)
        item(t)

    steps(t, body, "predict {}", 12)


def noisy(w: World, edited: bool, rng: Random) -> None:
    """The same: nothing was changed, and the host's times spread widely on a machine that others use, too."""
    t, layers = w.thread(), rng.randint(10, 16)
    w.unsteady = 0.45

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.015)
        t.cpu(w.rng.choice((20, 20, 20, 900)))
        item(t)

    steps(t, body, "predict {}", 10)


SAME = "same undecided"  # words of compare that are right where nothing was changed
OVERHAULED = (
    Edited(merged, "larger-batch cuda-graphs", "host launches", "both", does_more=True),
    Edited(logged, "item-in-step remove-synchronization host-code", "host launches synchronisation", "both"),
    Edited(metric, "host-code copy-less overlap-copies", "host copies", "both", does_more=True),
    Edited(muon, "fused-optimiser larger-batch cuda-graphs", "host launches", "both", does_more=True),
    Edited(momentum, "fused-optimiser", "host launches", "both"),
    Edited(resharded, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(checkpoints, "recompute-less", "kernels", "both"),
    Edited(graph_breaks, "item-in-step remove-synchronization", "host launches synchronisation", "both"),
    Edited(collated, "num-workers", "host kernels", "both"),
    Edited(cast_weights, "cast-once", "kernels", "both"),
    Edited(synchronous, "overlap-copies", "copies", "both"),
    Edited(biased, "fuse-attention", "kernels", "both"),
    Edited(liger, "fuse-elementwise", "kernels", "both"),
    Edited(vocabulary, "fuse-elementwise", "kernels", "both"),
    Edited(grown, "allocate-once", "host", "both"),
    Edited(unequal, "late-rank", "ranks kernels communication", "nsys", ranks=4),
    Edited(tensor_parallel, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(routed, "late-rank expert-imbalance", "ranks kernels communication", "nsys", ranks=4),
    Edited(static_cache, "cuda-graphs", "host launches", "both", does_more=True),
    Edited(paged, "", "kernels", "nsys"),
    Edited(continuous, "larger-batch", "host launches", "both", samples=4),
    Edited(quantised_inputs, "fuse-elementwise", "kernels", "both"),
    Edited(scheduled, "host-code prepare-ahead", "host kernels", "nsys"),
    Edited(detokenised, "host-code host-blocked", "host kernels", "nsys", does_more=True),
    Edited(moved_models, "copy-less overlap-copies", "copies", "both"),
    Edited(frames, "host-code prepare-ahead", "host", "both", does_more=True),
    Edited(event_waits, "remove-synchronization", "host launches synchronisation kernels", "nsys", program="fem"),
    Edited(callbacks, "waits-for-thread host-code host-blocked streams", "host kernels", "nsys", program="render",
           does_more=True),
    Edited(launch_bounds, "", "kernels", "nsys", program="euler"),
    Edited(strides, "launch-shape", "kernels shape", "nsys", program="count"),
    Edited(pinned_frames, "allocate-once", "host", "nsys", program="denoise"),
    Edited(residuals, "item-in-step remove-synchronization", "host launches synchronisation copies kernels", "nsys",
           program="krylov"),
    Edited(handles, "allocate-once host-code", "host synchronisation", "nsys", program="infer"),
    Edited(swapped, "copy-less", "copies kernels", "nsys", program="wave"),
    Edited(independent, "streams launch-shape larger-batch", "kernels shape", "nsys", program="align"),
    Edited(engine, "cuda-graphs", "host launches", "nsys", program="trtexec"),
    Edited(scalars, "item-in-step remove-synchronization copy-together", "host copies synchronisation launches", "nsys",
           program="julia", does_more=True),
    Edited(pool, "allocate-once", "host synchronisation", "nsys"),
    Edited(more_precise, "", "", "both"),
    Edited(checks, "", "", "both"),
    Edited(renamed, "", "kernels", "both", word=SAME),
    Edited(unchanged, "", "host launches", "both", word=SAME),
    Edited(noisy, "", "host launches", "both", word=SAME),
)  # fmt: skip
