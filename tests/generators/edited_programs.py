"""Twenty edits that people make, each as a program before and after it (`generators.edited` runs them).

A row of `EDITS`: the program, what the change is called among the advice, what may limit before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from generators.edited import Flag, Thread, World

ELEMENT = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, {}ul> >(int, at::native::{})"
)
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FP32 = "ampere_sgemm_128x128_tn"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, Epilogue>(float*, x)"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash_fwd_params)"
ADAM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(x)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GELU, ADD, MUL = (ELEMENT.format(f"{name}<float>", 3, f"{name}<float>") for name in (
    "GeluCUDAKernelImpl", "CUDAFunctor_add", "MulFunctor"))  # fmt: skip
STEPS = 6


def op(t: Thread, name: str, *kernels: tuple[str, float], host: float = 6, **args: object) -> None:
    """An operator of PyTorch, and what it launches."""
    t.begin(name, "cpu_op", **args)
    for kernel, us in kernels:
        t.cpu(host)
        t.kernel(kernel, us)
    t.cpu(host / 2)
    t.end()


def linear(t: Thread, us: float, kernel: str = BF16, rows: int = 4096) -> None:
    name = {
        "Input Dims": [[rows, 2048], [2048, 2048]],
        "Input type": ["c10::BFloat16" if kernel == BF16 else "float"] * 2,
    }
    t.begin("aten::linear", "cpu_op")
    op(t, "aten::mm", (kernel, us), **name)
    t.end()


def block(t: Thread, scale: float = 1.0, kernel: str = BF16, rows: int = 4096) -> None:
    """A block of a transformer as it should be."""
    op(t, "aten::layer_norm", (NORM, 22 * scale))
    linear(t, 260 * scale, kernel, rows)
    op(t, "aten::scaled_dot_product_attention", (FLASH, 180 * scale))
    linear(t, 90 * scale, kernel, rows)
    linear(t, 340 * scale, kernel, rows)
    op(t, "aten::gelu", (GELU, 35 * scale))
    linear(t, 340 * scale, kernel, rows)


def train(t: Thread, blocks: int, scale: float = 1.0, kernel: str = BF16, optimiser: bool = True) -> None:
    """Forward, backward (launched by a thread of its own) and a fused optimiser."""
    for _ in range(blocks):
        block(t, scale, kernel)
    other = next((one for one in t.world.threads if one.rank == t.rank and one.tid == 41), None)
    other = other or t.world.thread(t.rank, 41, "pt_autograd_0")
    begin, end = Flag(), Flag()
    t.set(begin)
    other.need(begin)
    for _ in range(blocks):
        for us in (340, 340, 90, 260):
            other.begin("autograd::engine::evaluate_function: MmBackward0", "cpu_op")
            op(other, "aten::mm", (kernel, us * scale))
            op(other, "aten::mm", (kernel, us * scale))
            other.end()
    other.set(end)
    t.need(end)
    if optimiser:
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (ADAM, 160), (ADAM, 120))
        t.end()


def item(t: Thread) -> None:
    t.begin("aten::item", "cpu_op")
    t.begin("aten::_local_scalar_dense", "cpu_op")
    t.copy(4, "DtoH")
    t.end()
    t.end()


def steps(t: Thread, body: Callable[[int], None], text: str = "ProfilerStep#{}", count: int = STEPS) -> None:
    for number in range(count):
        t.begin(text.format(number + 4))
        body(number)
        t.cpu(20)
        t.end()
    t.wait("all")


def items(w: World, edited: bool, rng: Random) -> None:
    """.item() after each part of a batch is removed."""
    t, parts, scale = w.thread(), rng.randint(10, 18), rng.uniform(0.02, 0.05)

    def body(_: int) -> None:
        for _part in range(parts):
            block(t, scale)
            op(t, "aten::add_", (ADD, 3))
            if not edited:
                item(t)
        item(t)

    steps(t, body)


def loader(w: World, edited: bool, rng: Random) -> None:
    """DataLoader: workers 0 -> 4."""
    t, images, scale = w.thread(), rng.randint(10, 16), rng.uniform(0.7, 1.0)
    us = rng.uniform(1_500, 2_600)
    ready = [Flag() for _ in range(STEPS)]
    if edited:
        for worker in range(4):
            one = w.thread(0, 200 + worker, "pt_data_worker")
            for number in range(worker, STEPS, 4):
                one.cpu(us * images * 0.3 if number < 4 else us * images)
                one.set(ready[number])

    def body(number: int) -> None:
        name = "_MultiProcessingDataLoaderIter" if edited else "_SingleProcessDataLoaderIter"
        t.begin(f"enumerate(DataLoader)#{name}.__next__")
        if edited:
            t.need(ready[number], "poll")
            t.cpu(150)
        for _ in range(0 if edited else images):
            t.cpu(us * 0.6)
            op(t, "aten::to", host=us * 0.4)
            op(t, "aten::stack", host=40)
        t.end()
        t.copy(images * 602_112, pinned=True)
        train(t, 4, scale)

    steps(t, body)


def pinned(w: World, edited: bool, rng: Random) -> None:
    """Inputs in pinned memory, copied with non_blocking=True on a stream of their own."""
    t, size, scale = w.thread(), rng.uniform(50e6, 90e6), rng.uniform(0.25, 0.4)
    ahead = [Flag() for _ in range(STEPS + 1)]

    def upload(number: int) -> None:
        t.begin("aten::to", "cpu_op")
        t.begin("aten::_to_copy", "cpu_op")
        t.begin("aten::copy_", "cpu_op")
        ahead[number] = t.copy(size, pinned=edited, **({"stream": 20} if edited else {}))
        for _ in range(3):
            t.end()

    def body(number: int) -> None:
        if edited:
            upload(number + 1)
        else:
            upload(number)
        t.kernel(MUL, 12, after=[ahead[number]] if edited else [])
        train(t, 4, scale)
        item(t)

    if edited:
        upload(0)
    steps(t, body)


def half(w: World, edited: bool, rng: Random) -> None:
    """FP32 -> BF16 by autocast."""
    t, scale = w.thread(), rng.uniform(1.6, 2.6)
    steps(t, lambda _: train(t, 4, scale * (0.2 if edited else 1), BF16 if edited else FP32))


def attention(w: World, edited: bool, rng: Random) -> None:
    """Attention written out -> scaled_dot_product_attention, at a long context."""
    t, layers, long = w.thread(), rng.randint(6, 10), rng.uniform(1.5, 3.0)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::layer_norm", (NORM, 40))
            linear(t, 400)
            if edited:
                op(t, "aten::scaled_dot_product_attention", (FLASH, 420 * long))
            else:
                op(t, "aten::matmul", (BF16, 360 * long))
                op(t, "aten::div", (MUL, 520 * long))
                op(t, "aten::masked_fill", (ADD, 610 * long))
                op(t, "aten::softmax", (SOFTMAX, 640 * long))
                op(t, "aten::matmul", (BF16, 380 * long))
            linear(t, 140)
            linear(t, 500)
            op(t, "aten::gelu", (GELU, 50))
            linear(t, 500)
        item(t)

    steps(t, body)


def optimiser(w: World, edited: bool, rng: Random) -> None:
    """AdamW in a loop over parameters -> fused=True."""
    t, parameters = w.thread(), rng.randint(70, 130)

    def body(_: int) -> None:
        train(t, 3, 0.12, optimiser=False)
        t.begin("Optimizer.step#AdamW.step")
        if edited:
            op(t, "aten::_fused_adamw_", *[(ADAM, 70)] * 3)
        else:
            for _parameter in range(parameters):
                for name in ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"):
                    op(t, f"aten::{name}", (MUL if "mul" in name else ADD, 4))
        t.end()
        item(t)

    steps(t, body)


def layout(w: World, edited: bool, rng: Random) -> None:
    """Images in memory_format=channels_last."""
    t, layers = w.thread(), rng.randint(12, 20)
    conv = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_tensor16x8x16"
    there, back = (f"void cudnn::ops::{name}<__half, __half, float, false, true>(x)" for name in (
        "nchwToNhwcKernel", "nhwcToNchwKernel"))  # fmt: skip

    def body(_: int) -> None:
        for _layer in range(layers):
            turns = [] if edited else [(there, 70.0), (there, 9.0)]
            op(t, "aten::cudnn_convolution", *turns, (conv, 240), *([] if edited else [(back, 75.0)]))
            op(t, "aten::cudnn_batch_norm", ("void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true>(x)", 60))
            op(t, "aten::clamp_min_", (ADD, 30))
        item(t)

    steps(t, body)


def graph(w: World, edited: bool, rng: Random) -> None:
    """Inference of one sample, bound by launches -> one CUDA graph."""
    t, layers = w.thread(), rng.randint(12, 24)
    nodes = [
        (NORM, 2.4),
        (BF16, 5.5),
        (FLASH, 4.5),
        (BF16, 3.6),
        (ADD, 1.6),
        (NORM, 2.4),
        (BF16, 6.0),
        (GELU, 1.8),
        (BF16, 6.2),
        (ADD, 1.6),
    ]
    names = ("layer_norm", "linear", "scaled_dot_product_attention", "linear", "add", "layer_norm", "linear", "gelu",
             "linear", "add")  # fmt: skip

    def body(_: int) -> None:
        t.copy(4_096, pinned=True)
        if edited:
            first = t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=30, node=1)
            assert first
            t.acts.append(("more", [(name, us) for name, us in nodes * layers][1:]))
        else:
            for _layer in range(layers):
                for name, (kernel, us) in zip(names, nodes, strict=True):
                    op(t, f"aten::{name}", (kernel, us), host=7)
        item(t)

    steps(t, body, "inference {}", 10)


def compiled(w: World, edited: bool, rng: Random) -> None:
    """A chain of elementwise operators -> torch.compile."""
    t, layers, big = w.thread(), rng.randint(8, 14), rng.uniform(90, 160)

    def body(_: int) -> None:
        for _layer in range(layers):
            linear(t, 180)
            if edited:
                op(t, "triton_poi_fused_add_gelu_mul_pow_tanh_0", ("triton_poi_fused_add_gelu_mul_pow_tanh_0", big))
            else:
                for name, kernel in (
                    ("pow", MUL),
                    ("mul", MUL),
                    ("add", ADD),
                    ("mul", MUL),
                    ("tanh", GELU),
                    ("add", ADD),
                    ("mul", MUL),
                ):
                    op(t, f"aten::{name}", (kernel, big))
        item(t)

    steps(t, body)


def batch(w: World, edited: bool, rng: Random) -> None:
    """A batch of 1 -> a batch of 8: the same launches for more samples."""
    t, layers = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        t.copy(602_112 * (8 if edited else 1), pinned=True)
        for _layer in range(layers):
            block(t, 0.08 if edited else 0.014, rows=4096 if edited else 512)
        item(t)

    steps(t, body, "predict {}", 8)


def allocates(w: World, edited: bool, rng: Random) -> None:
    """C++: a buffer of each call is allocated once."""
    t, calls = w.thread(), rng.randint(20, 36)

    def body(_: int) -> None:
        for _call in range(calls):
            if not edited:
                t.api("cudaMalloc", 180)
            t.cpu(4)
            t.kernel("void stencil_sweep<double, 8>(double const*, double*, int, int)", 85)
            t.kernel("void reduce_norm<double, 256>(double const*, double*, int)", 30)
            if not edited:
                t.wait("all", "cudaFree")
                t.cpu(60)

    steps(t, body, "sweep {}")


def unified(w: World, edited: bool, rng: Random) -> None:
    """C++: cudaMemPrefetchAsync before a kernel that touches managed memory."""
    t, pages = w.thread(), rng.randint(60, 120)

    def body(_: int) -> None:
        t.cpu(200)
        if edited:
            t.api("cudaMemPrefetchAsync", 25)
            t.acts.append(("migrate", 7, 1, pages * 2e6 / 22e3, pages * 2_097_152))
        t.kernel("update_cells(Cell*, float const*, int)", 900 if edited else 900 + pages * 2e6 / 7e3)
        if not edited:
            t.acts.append(("migrate", 99, pages, 2e6 / 7.4e3, 2_097_152))
        t.wait("all")

    steps(t, body, "cells {}")


def logs(w: World, edited: bool, rng: Random) -> None:
    """Histograms and norms of all layers are logged in each step -> no longer."""
    t, layers = w.thread(), rng.randint(16, 28)

    def body(_: int) -> None:
        train(t, 4, 0.3)
        for _layer in range(0 if edited else layers):
            t.begin("log_layer")
            op(
                t,
                "aten::norm",
                ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, NormTwoOps<float> > >(x)", 40),
            )
            item(t)
            t.begin("aten::to", "cpu_op")
            t.copy(4e6, "DtoH")
            t.end()
            t.cpu(350)
            t.end()

    steps(t, body)


def no_sync(w: World, edited: bool, rng: Random) -> None:
    """Four small batches a step: gradients summed over ranks in each -> in the last (no_sync)."""
    long = rng.uniform(4_000, 7_000)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            for part in range(4):
                train(t, 3, 0.6, optimiser=part == 3)
                if not edited or part == 3:
                    done = Flag()
                    for bucket in range(3):
                        done = t.kernel(REDUCE, long / 3, stream=23, group=(number, part, bucket),
                                        after=[_mark(t)] if not bucket else ())  # fmt: skip
                    t.kernel(ADD, 20, after=[done])

        steps(t, body)


def late(w: World, edited: bool, rng: Random) -> None:
    """One rank of four cuts its own pictures -> all have the same to do."""
    late_ms = rng.uniform(9, 15)
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            t.begin("prepare_input")
            t.cpu(late_ms * 1_000 if rank == 2 and not edited else 600)
            t.end()
            train(t, 3, 0.5, optimiser=False)
            done = t.kernel(REDUCE, 900, stream=23, group=number, after=[_mark(t)])
            t.kernel(ADAM, 120, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def _mark(t: Thread) -> Flag:
    """What the thread's main stream is given last."""
    return next(act[1]["done"] for act in reversed(_launched(t)) if act[1]["stream"] == 7)


def _launched(t: Thread) -> Sequence[tuple]:
    """Launches of a rank: backward's thread launches for it too."""
    other = [one for one in t.world.threads if one.rank == t.rank and one.tid == 41]
    acts = other[0].acts if other else t.acts
    return [act for act in acts if act[0] == "work"]


def checkpoint(w: World, edited: bool, rng: Random) -> None:
    """A checkpoint in each step -> every 500 steps."""
    t, tensors = w.thread(), rng.randint(20, 40)

    def body(_: int) -> None:
        train(t, 4, 0.4)
        if not edited:
            t.begin("save_checkpoint")
            for _tensor in range(tensors):
                t.begin("aten::to", "cpu_op")
                t.copy(3e6, "DtoH")
                t.end()
                t.os("write", 900)
            t.os("fsync", 6_000)
            t.end()

    steps(t, body)


def tokens(w: World, edited: bool, rng: Random) -> None:
    """Texts are tokenised in the step -> before the loop."""
    t, ms = w.thread(), rng.uniform(14, 26)

    def body(_: int) -> None:
        t.begin("tokenize_batch")
        t.cpu(120 if edited else ms * 1_000)
        t.end()
        t.copy(65_536, pinned=True)
        train(t, 4, 0.5)
        item(t)

    steps(t, body)


def many_copies(w: World, edited: bool, rng: Random) -> None:
    """A dictionary of many small tensors is copied one by one -> as one."""
    t, count = w.thread(), rng.randint(250, 500)

    def body(_: int) -> None:
        t.begin("to_device")
        for _tensor in range(1 if edited else count):
            t.begin("aten::to", "cpu_op")
            t.cpu(5)
            t.copy(2_048 * (count if edited else 1))
            t.end()
        t.end()
        train(t, 2, 0.35)
        item(t)

    steps(t, body)


def timing(w: World, edited: bool, rng: Random) -> None:
    """torch.cuda.synchronize() around each layer, to time it, is removed."""
    t, layers, scale = w.thread(), rng.randint(16, 28), rng.uniform(0.03, 0.07)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
            if not edited:
                t.wait("all")
                t.cpu(1)
        item(t)

    steps(t, body, "forward {}", 8)


def experts(w: World, edited: bool, rng: Random) -> None:
    """Experts over four ranks: one gets most of the tokens -> all the same."""
    most = rng.uniform(2.2, 3.4)
    for rank in range(4):
        t = w.thread(rank)
        share = 1.0 if edited else most if rank == 1 else (4 - most) / 3

        def body(number: int, t: Thread = t, share: float = share) -> None:
            for layer in range(6):
                op(t, "aten::layer_norm", (NORM, 25))
                linear(t, 220)
                op(t, "aten::scaled_dot_product_attention", (FLASH, 160))
                op(t, "aten::topk", ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)", 30))
                t.kernel(EXCHANGE, 90, group=(number, layer, 0))
                for _expert in range(4):
                    linear(t, 190 * share)
                    op(t, "aten::silu", (GELU, 25 * share))
                    linear(t, 190 * share)
                t.kernel(EXCHANGE, 90, group=(number, layer, 1))
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


@dataclass(frozen=True)
class Edited:
    """``remedies``: what names the edit; ``limits``: resources one of which limits before it. ``samples``: how many
    more samples an execution has after it. ``does_more``: than any one remedy, so that no bound can be judged.
    ``word``: of a comparison, where nothing was changed."""

    make: Callable[[World, bool, Random], None]
    remedies: str
    limits: str
    kind: str = "kineto"  # or nsys, or both in turn
    ranks: int = 1
    program: str = "python3"
    samples: int = 1
    does_more: bool = False
    word: str = ""

    @property
    def name(self) -> str:
        return (self.make.__doc__ or "").rstrip(".")


EDITS = (
    Edited(items, "item-in-step remove-synchronization", "synchronisation host launches", "both"),
    Edited(loader, "num-workers", "host", "both"),
    Edited(pinned, "overlap-copies prefetch", "copies", "both"),
    Edited(half, "tensor-cores", "kernels", "both"),
    Edited(attention, "fuse-attention", "kernels", "both"),
    Edited(optimiser, "fused-optimiser", "host launches", "both"),
    Edited(layout, "layout", "kernels", "both"),
    Edited(graph, "cuda-graphs", "host launches", "both"),
    Edited(compiled, "fuse-elementwise", "kernels", "both"),
    Edited(batch, "larger-batch", "host launches", "both", samples=8),
    Edited(allocates, "allocate-once", "host synchronisation launches kernels", "nsys", program="stencil"),
    Edited(unified, "prefetch", "copies kernels", "nsys", program="cells"),
    Edited(logs, "host-code", "host synchronisation copies", "both"),
    Edited(no_sync, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(late, "late-rank", "ranks host communication", "nsys", ranks=4),
    Edited(checkpoint, "host-blocked host-code", "host", "nsys"),
    Edited(tokens, "host-code prepare-ahead", "host", "both"),
    Edited(many_copies, "copy-together", "host copies launches synchronisation", "both"),
    Edited(timing, "remove-synchronization", "synchronisation host launches", "both"),
    Edited(experts, "late-rank expert-imbalance", "ranks kernels communication", "nsys", ranks=4),
)  # fmt: skip


def draw(seed: int, edited: bool, rows: Sequence[Edited] = EDITS) -> tuple[Edited, World, bool]:
    """A program of a seed, before or after its edit, run; and whether it is a trace of PyTorch."""
    row = rows[seed % len(rows)]
    world = World(2 * seed + edited, row.ranks, program=row.program)
    row.make(world, edited, Random(f"program {seed}"))
    return row, world.run(), row.kind == "kineto" or (row.kind == "both" and seed // len(rows) % 2 == 0)
