"""Twenty-one more edits that engineers make, each as a program before and after it (`generators.edited` runs them).

Written without a look at the advice: the levers are the words that an engineer would accept. Where none of the remedies
names the edit (recomputation, padding, a cache of keys, narrower weights) only the first limit and the comparison are
judged.
"""

from __future__ import annotations

from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import (
    ADD,
    BF16,
    ELEMENT,
    FLASH,
    GELU,
    MUL,
    NORM,
    REDUCE,
    SOFTMAX,
    Edited,
    block,
    item,
    linear,
    op,
    steps,
    train,
)

FILL = ELEMENT.format("FillFunctor<float>", 1, "FillFunctor<float>")
COPY = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<direct_copy_kernel_cuda>(x)>"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, true, true, false>(x)"
GEMV = "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4>(x)"
MARLIN = "void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, true, 4, 8, false>(int4 const*, int4 const*, int4*)"
NONZERO = "void at_cuda_detail::cub::DeviceSelectSweepKernel<Policy, long*, bool*, long*, int*>(long*, bool*)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)"
INDEX = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<index_kernel>(x)>"
NORM_OF = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float> > >(x)"
CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_tensor16x8x16"
PAGE = "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, false, 512>(float*, x)"
SMALL = [
    ("layer_norm", NORM), ("linear", BF16), ("attention", FLASH), ("linear", BF16), ("add", ADD), ("linear", BF16),
    ("gelu", GELU), ("linear", BF16),
]  # fmt: skip


def _backward(t: Thread) -> Thread:
    """The thread that launches a rank's backward pass."""
    other = next((one for one in t.world.threads if one.rank == t.rank and one.tid == 41), None)
    return other or t.world.thread(t.rank, 41, "pt_autograd_0")


def checkpointing(w: World, edited: bool, rng: Random) -> None:
    """Gradient checkpointing is switched off: the backward pass no longer runs the forward pass again."""
    t, layers, scale = w.thread(), rng.randint(6, 10), rng.uniform(0.8, 1.4)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
        other, begin, end = _backward(t), Flag(), Flag()
        t.set(begin)
        other.need(begin)
        for _layer in range(layers):
            if not edited:
                other.begin("autograd::engine::evaluate_function: CheckpointFunctionBackward", "cpu_op")
                block(other, scale)
            for us in (340, 340, 90, 260):
                other.begin("autograd::engine::evaluate_function: MmBackward0", "cpu_op")
                op(other, "aten::mm", (BF16, us * scale))
                op(other, "aten::mm", (BF16, us * scale))
                other.end()
            if not edited:
                other.end()
        other.set(end)
        t.need(end)
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (MUL.replace("MulFunctor", "FusedAdamMathFunctor"), 190))
        t.end()
        item(t)

    steps(t, body)


def doubled(w: World, edited: bool, rng: Random) -> None:
    """The batch is doubled where the host limits: kernels take half as long again, for twice the samples."""
    t, layers, scale = w.thread(), rng.randint(6, 10), rng.uniform(0.012, 0.02)

    def body(_: int) -> None:
        t.copy(300_000 * (1 + edited), pinned=True)
        for _layer in range(layers):
            block(t, scale * (1.5 if edited else 1), rows=1024 * (1 + edited))
        train(t, 1, scale)
        item(t)

    steps(t, body)


def zero_grad(w: World, edited: bool, rng: Random) -> None:
    """zero_grad(set_to_none=True) instead of a kernel that fills each gradient with zeros."""
    t, parameters, scale = w.thread(), rng.randint(180, 300), rng.uniform(0.03, 0.06)

    def body(_: int) -> None:
        t.begin("Optimizer.zero_grad#AdamW.zero_grad")
        for _parameter in range(0 if edited else parameters):
            op(t, "aten::zero_", (FILL, 2.2), host=4)
        t.cpu(30)
        t.end()
        train(t, 3, scale)
        item(t)

    steps(t, body)


def on_the_gpu(w: World, edited: bool, rng: Random) -> None:
    """Images are resized and normalised on the GPU instead of the host, and copied as bytes."""
    t, ms, scale = w.thread(), rng.uniform(9, 16), rng.uniform(0.5, 0.9)

    def body(_: int) -> None:
        t.begin("preprocess")
        t.cpu(250 if edited else ms * 1_000)
        t.end()
        t.copy(38.5e6, pinned=True)  # larger pictures of bytes, then smaller ones of floats
        if edited:
            op(t, "aten::upsample_bilinear2d", (ELEMENT.format("upsample", 2, "upsample"), 90))
            op(t, "aten::sub", (ADD, 60))
            op(t, "aten::div", (MUL, 60))
        for _layer in range(16):
            op(t, "aten::cudnn_convolution", (CONV, 210 * scale))
            op(t, "aten::cudnn_batch_norm", ("void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true>(x)", 45 * scale))
            op(t, "aten::relu_", (ADD, 25 * scale))
        item(t)

    steps(t, body)


def key_cache(w: World, edited: bool, rng: Random) -> None:
    """Generation with a cache of keys and values instead of the whole text again for each token."""
    t, layers = w.thread(), rng.randint(10, 16)

    def body(number: int) -> None:
        tokens = 1.0 if not edited else 0.06
        for _layer in range(layers):
            op(t, "aten::layer_norm", (NORM, 30 * tokens + 2))
            linear(t, 300 * tokens + 18)
            op(t, "aten::scaled_dot_product_attention", (FLASH, (160 + 4 * number) * tokens + 6))
            linear(t, 110 * tokens + 8)
            linear(t, 400 * tokens + 22)
            op(t, "aten::gelu", (GELU, 40 * tokens + 2))
            linear(t, 400 * tokens + 22)
        op(t, "aten::argmax", (NORM_OF.replace("NormTwoOps", "ArgMaxOps"), 12))
        item(t)

    steps(t, body, "token {}", 10)


def metrics_to_host(w: World, edited: bool, rng: Random) -> None:
    """Each step's loss and five metrics are moved to the host to be logged; then every hundredth step's."""
    t, scale, count = w.thread(), rng.uniform(0.05, 0.1), rng.randint(5, 8)

    def body(_: int) -> None:
        for part in range(4):
            train(t, 2, scale, optimiser=part == 3)
            for _metric in range(0 if edited else count):
                op(t, "aten::mean", (NORM_OF.replace("NormTwoOps", "MeanOps"), 5))
                t.begin("aten::to", "cpu_op")
                t.copy(4, "DtoH")
                t.end()
                t.cpu(12)

    steps(t, body)


def buckets(w: World, edited: bool, rng: Random) -> None:
    """Gradients are summed over ranks one parameter at a time after the backward pass -> in buckets beside it."""
    parameters, each, scale = rng.randint(70, 110), rng.uniform(55, 80), rng.uniform(0.5, 0.8)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            train(t, 3, scale, optimiser=False)
            done = Flag()
            for bucket in range(4 if edited else parameters):
                long = parameters * each * 0.45 / 4 if edited else each
                done = t.kernel(REDUCE, long, stream=23 if edited else 7, group=(number, bucket))
            t.kernel(MUL, 150, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def expert_loop(w: World, edited: bool, rng: Random) -> None:
    """A loop over experts that asks the device for each one's tokens -> one grouped product."""
    t, count = w.thread(), rng.randint(8, 16)

    def body(_: int) -> None:
        for _layer in range(4):
            op(t, "aten::layer_norm", (NORM, 12))
            linear(t, 60)
            op(t, "aten::scaled_dot_product_attention", (FLASH, 40))
            op(t, "aten::topk", (TOPK, 12))
            if edited:
                op(t, "aten::_grouped_mm", ("void cutlass::device_kernel<GroupedGemm<bf16>>(Params)", 6.0 * count))
                op(t, "aten::silu", (GELU, 1.5 * count))
                op(t, "aten::_grouped_mm", ("void cutlass::device_kernel<GroupedGemm<bf16>>(Params)", 6.0 * count))
                continue
            for _expert in range(count):
                op(t, "aten::nonzero", (NONZERO, 4))
                t.copy(8, "DtoH")
                op(t, "aten::index", (INDEX, 4))
                linear(t, 7)
                op(t, "aten::silu", (GELU, 2))
                linear(t, 7)
                op(t, "aten::index_add_", (INDEX, 4))
        item(t)

    steps(t, body)


def padding(w: World, edited: bool, rng: Random) -> None:
    """Texts of like lengths come in one batch: fewer tokens that are padding."""
    t, filled, scale = w.thread(), rng.uniform(0.45, 0.6), rng.uniform(1.0, 1.6)
    steps(t, lambda _: (train(t, 5, scale * (filled if edited else 1)), item(t)))


def offloaded(w: World, edited: bool, rng: Random) -> None:
    """Weights of each layer come from pinned memory of the host just before it -> one layer ahead, on a stream."""
    t, layers, size = w.thread(), rng.randint(8, 14), rng.uniform(22e6, 34e6)

    def body(_: int) -> None:
        ahead = t.copy(size, pinned=True, stream=20) if edited else Flag()
        for layer in range(layers):
            if not edited:
                t.begin("aten::copy_", "cpu_op")
                t.copy(size, pinned=True)
                t.end()
            now = ahead
            if edited and layer + 1 < layers:
                ahead = t.copy(size, pinned=True, stream=20)
            t.kernel(NORM, 20, after=[now] if edited else ())
            block(t, 0.8)
        item(t)

    steps(t, body, "forward {}")


def chunks(w: World, edited: bool, rng: Random) -> None:
    """C++: results go to the host in pieces of 64 kB, each waited for -> in one piece."""
    t, count = w.thread(), rng.randint(150, 260)

    def body(_: int) -> None:
        t.kernel("render_tiles(float4*, Scene const*, int, int)", 2_600)
        for _piece in range(1 if edited else count):
            t.copy(65_536 * (count if edited else 1), "DtoH")
            t.cpu(3)
        t.wait("all")

    steps(t, body, "frame {}", 8)


def masks(w: World, edited: bool, rng: Random) -> None:
    """The causal mask is made anew on the host and copied in every layer -> once."""
    t, layers, size = w.thread(), rng.randint(8, 14), rng.uniform(3e6, 6e6)

    def body(_: int) -> None:
        for _layer in range(layers):
            if not edited:
                t.begin("make_mask")
                t.cpu(size / 2_500)
                t.begin("aten::to", "cpu_op")
                t.copy(size)
                t.end()
                t.end()
            block(t, 0.35)
        item(t)

    steps(t, body, "forward {}")


def quantised(w: World, edited: bool, rng: Random) -> None:
    """Weights of 4 bits in a decoder that reads all of them for each token."""
    t, layers, scale = w.thread(), rng.randint(12, 18), rng.uniform(1.2, 1.8)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 4))
            for us in (38, 26):
                linear(t, us * scale * (0.33 if edited else 1), MARLIN if edited else GEMV)
            op(t, "aten::scaled_dot_product_attention", (PAGE, 9))
            for us in (60, 34):
                linear(t, us * scale * (0.33 if edited else 1), MARLIN if edited else GEMV)
        item(t)

    steps(t, body, "decode {}", 10)


# Kernels of a layer that decodes, µs
DECODE = [(NORM, 2.5), (GEMV, 9.0), (PAGE, 6.0), (GEMV, 6.0), (NORM, 2.5), (GEMV, 13.0), (GELU, 2.0), (GEMV, 12.0)]


def decode_graph(w: World, edited: bool, rng: Random) -> None:
    """A server captures its decode steps as a graph; prefill stays as it is."""
    t, layers, tokens = w.thread(), rng.randint(10, 16), rng.randint(10, 16)

    def body(_: int) -> None:
        t.begin("prefill")
        for _layer in range(layers):
            block(t, 0.3)
        t.end()
        for _token in range(tokens):
            t.begin("decode")
            t.copy(2_048, pinned=True)
            if edited:
                t.work("kernel", DECODE[0][0], DECODE[0][1], api="cudaGraphLaunch", call=26, node=1)
                t.acts.append(("more", (DECODE * layers)[1:]))
            else:
                for _layer in range(layers):
                    for kernel, us in DECODE:
                        op(t, "aten::linear" if kernel == GEMV else "aten::op", (kernel, us), host=8)
            op(t, "aten::argmax", (TOPK, 9))
            item(t)
            t.end()

    steps(t, body, "request {}", 4)


def averages(w: World, edited: bool, rng: Random) -> None:
    """A moving average of the weights: two operators a parameter -> torch._foreach_lerp_."""
    t, parameters, scale = w.thread(), rng.randint(140, 240), rng.uniform(0.06, 0.1)

    def body(_: int) -> None:
        train(t, 3, scale)
        t.begin("update_ema")
        if edited:
            op(t, "aten::_foreach_lerp_", *[("void at::native::multi_tensor_apply_kernel<LerpFunctor>(x)", 45)] * 3)
        for _parameter in range(0 if edited else parameters):
            op(t, "aten::mul_", (MUL, 3))
            op(t, "aten::add_", (ADD, 3))
        t.end()
        item(t)

    steps(t, body)


def emptied(w: World, edited: bool, rng: Random) -> None:
    """torch.cuda.empty_cache() in each step is removed: memory is kept."""
    t, blocks, segments = w.thread(), rng.randint(4, 7), rng.randint(14, 24)

    def body(_: int) -> None:
        for _segment in range(0 if edited else segments):
            t.api("cudaFree", rng.uniform(70, 120))
            t.cpu(3)
        for _block in range(blocks):
            for _segment in range(0 if edited else segments // blocks):
                t.api("cudaMalloc", rng.uniform(90, 160))
            block(t, 0.35)
        item(t)

    steps(t, body)


def scores(w: World, edited: bool, rng: Random) -> None:
    """A score of each step's predictions is computed on the host with NumPy -> on the device."""
    t, ms, scale = w.thread(), rng.uniform(5, 9), rng.uniform(0.6, 1.0)

    def body(_: int) -> None:
        train(t, 3, scale)
        t.begin("compute_score")
        if edited:
            for _part in range(6):
                op(t, "aten::eq", (ADD, 8))
        else:
            t.begin("aten::to", "cpu_op")
            t.copy(2.4e6, "DtoH")
            t.end()
            t.cpu(ms * 1_000)
        t.end()
        item(t)

    steps(t, body)


def beams(w: World, edited: bool, rng: Random) -> None:
    """Beam search keeps its lists on the host, reading the best tokens each time -> on the device."""
    t, layers = w.thread(), rng.randint(8, 12)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 5))
            linear(t, 34)
            op(t, "aten::scaled_dot_product_attention", (FLASH, 12))
            linear(t, 30)
            linear(t, 52)
        op(t, "aten::log_softmax", (SOFTMAX, 25))
        op(t, "aten::topk", (TOPK, 30))
        if edited:
            for _part in range(4):
                op(t, "aten::index_select", (INDEX, 6))
            return
        for _beam in range(4):
            item(t)
            t.cpu(rng.uniform(40, 60))
        t.copy(4_096)

    steps(t, body, "token {}", 10)


def together(w: World, edited: bool, rng: Random) -> None:
    """Four small networks of an ensemble, one after another -> on four streams."""
    t, layers = w.thread(), rng.randint(5, 8)
    nodes = [(NORM, 5.0), (BF16, 14.0), (FLASH, 9.0), (BF16, 11.0), (GELU, 5.0), (BF16, 14.0)] * layers

    def body(_: int) -> None:
        for number in range(4):
            stream = 20 + number if edited else 7
            for name, us in nodes:
                t.begin("aten::op", "cpu_op")
                t.cpu(0.3)
                t.kernel(name, us * 1.08 if edited else us, stream=stream, call=1.9, grid=16)
                t.end()
        t.wait("all")

    steps(t, body, "ensemble {}", 8)


def cold_reads(w: World, edited: bool, rng: Random) -> None:
    """The largest value of each block is read -> of all at the end; a host that waited is slow for a while."""
    t, blocks, w.cold, w.unsteady = w.thread(), rng.randint(8, 14), rng.uniform(0.15, 0.3), 0.15

    def body(_: int) -> None:
        for number in range(blocks):
            for name, kernel in SMALL:
                op(t, f"aten::{name}", (kernel, 4), host=24)
            op(t, "aten::max", (NORM_OF.replace("NormTwoOps", "MaxOps"), 4), host=20)
            if not edited or number == blocks - 1:
                item(t)

    steps(t, body)


def cold_waits(w: World, edited: bool, rng: Random) -> None:
    """torch.cuda.synchronize() behind each block, where a host that waited is slow for a while -> none."""
    t, blocks, w.cold, w.unsteady = w.thread(), rng.randint(12, 18), rng.uniform(0.15, 0.3), 0.15

    def body(_: int) -> None:
        for _block in range(blocks):
            for name, kernel in SMALL:
                op(t, f"aten::{name}", (kernel, 6), host=18)
            if not edited:
                t.cpu(6)
                t.wait("all", us=8)
                t.cpu(6)

    steps(t, body)


REWORKED = (
    Edited(checkpointing, "recompute-less", "kernels", "kineto"),
    Edited(doubled, "larger-batch", "host launches", "both", samples=2),
    Edited(zero_grad, "fused-optimiser", "host launches", "both"),
    Edited(on_the_gpu, "host-code prepare-ahead", "host", "both"),
    Edited(key_cache, "", "kernels", "both"),
    Edited(metrics_to_host, "item-in-step remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(buckets, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(expert_loop, "item-in-step remove-synchronization batch-host-loop", "host launches synchronisation", "both",
           does_more=True),
    Edited(padding, "", "kernels", "both"),
    Edited(offloaded, "overlap-copies", "copies", "both"),
    Edited(chunks, "copy-together", "copies host synchronisation kernels", "nsys", program="render"),
    Edited(masks, "overlap-copies copy-less host-code", "copies host", "both"),
    Edited(quantised, "narrow-weights", "kernels", "both"),
    Edited(decode_graph, "cuda-graphs", "host launches", "both"),
    Edited(averages, "fuse-elementwise fused-optimiser cuda-graphs", "host launches", "both"),
    Edited(emptied, "allocate-once", "host synchronisation", "both"),
    Edited(scores, "host-code", "host kernels", "both"),
    Edited(beams, "item-in-step remove-synchronization", "host launches kernels synchronisation", "both"),
    Edited(together, "larger-batch streams", "kernels launch-shape", "both"),
    Edited(cold_reads, "item-in-step", "host launches", "both"),
    Edited(cold_waits, "remove-synchronization", "host launches", "both"),
)  # fmt: skip
