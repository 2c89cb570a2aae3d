"""Twenty-seven edits by a further author, each as a program before and after it (`generators.edited` runs them).

Diffusion loops, speculative decoding, servers with a graph and a sampler on the host, recommenders, sharded training,
pipelines, C++ solvers and video, compilation inside the loop. Written without a look at the advice: the levers are what
an engineer would accept. Where no remedy names the edit, only the first limit and the comparison are judged.
"""

from __future__ import annotations

from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import (
    ADD,
    BF16,
    FLASH,
    GELU,
    MUL,
    NORM,
    Edited,
    _mark,
    block,
    item,
    linear,
    op,
    steps,
    train,
)
from generators.reworked_programs import CONV, COPY, DECODE, GEMV, INDEX, NORM_OF, PAGE, SOFTMAX, TOPK

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GROUP_NORM = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half>(long, float, c10::Half*)"
FUSED = "triton_per_fused_add_mean_mul_pow_rsqrt_3"
DOUBLE = "ampere_dgemm_128x64_tn"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<Opaque<2u>, unsigned int, 4>(x)"


def _unet(t: Thread, blocks: int, us: float, host: float = 7) -> None:
    for _block in range(blocks):
        op(t, "aten::group_norm", (GROUP_NORM, 0.5 * us), host=host)
        op(t, "aten::silu", (GELU, 0.3 * us), host=host)
        op(t, "aten::conv2d", (CONV, 1.6 * us), host=host)
        op(t, "aten::linear", (BF16, 0.8 * us), host=host)
        op(t, "aten::scaled_dot_product_attention", (FLASH, 0.9 * us), host=host)
        op(t, "aten::add", (ADD, 0.3 * us), host=host)


def guidance(w: World, edited: bool, rng: Random) -> None:
    """Classifier-free guidance: two passes of batch 1 for each step of diffusion -> one pass of batch 2."""
    t, blocks = w.thread(), rng.randint(14, 22)

    def body(_: int) -> None:
        for _pass in range(1 if edited else 2):
            _unet(t, blocks, 5.5 if edited else 4.0)
        op(t, "aten::lerp", (ADD, 4))
        item(t)

    steps(t, body, "denoise step {}", 10)


def sigmas(w: World, edited: bool, rng: Random) -> None:
    """The scheduler of a diffusion loop reads its step and sigma on the host -> both stay on the device."""
    t, blocks = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        for _part in range(4):
            _unet(t, blocks // 2, 14)
            for _value in range(0 if edited else 3):
                op(t, "aten::eq", (ADD, 2))
                op(t, "aten::nonzero", (INDEX, 3))
                item(t)
                t.cpu(25)
            op(t, "aten::mul", (MUL, 8))
            op(t, "aten::add", (ADD, 8))
        item(t)

    steps(t, body, "denoise step {}", 8)


def speculation(w: World, edited: bool, rng: Random) -> None:
    """Speculative decoding: each drafted token is read on the host -> they stay on the device, one read a round."""
    t, layers, drafts = w.thread(), rng.randint(10, 14), rng.randint(4, 6)

    def body(_: int) -> None:
        for _draft in range(drafts):
            for _layer in range(3):
                op(t, "aten::rms_norm", (NORM, 6), host=3)
                linear(t, 22, GEMV)
                op(t, "aten::scaled_dot_product_attention", (PAGE, 12), host=3)
                linear(t, 30, GEMV)
            op(t, "aten::argmax", (TOPK, 9), host=3)
            if not edited:
                item(t)
                t.cpu(30)
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 6))
            linear(t, 55)
            op(t, "aten::scaled_dot_product_attention", (PAGE, 20))
            linear(t, 80)
        item(t)

    steps(t, body, "round {}", 10)


def sampler(w: World, edited: bool, rng: Random) -> None:
    """A server replays a graph for each token and samples from logits on the host -> on the device."""
    t, layers, us = w.thread(), rng.randint(14, 20), rng.uniform(700, 1_300)

    def body(_: int) -> None:
        for _token in range(6):
            t.copy(2_048, pinned=True)
            t.work("kernel", DECODE[0][0], DECODE[0][1], api="cudaGraphLaunch", call=26, node=1)
            t.acts.append(("more", (DECODE * layers)[1:]))
            t.begin("sample")
            if edited:
                op(t, "aten::softmax", (SOFTMAX, 12))
                op(t, "aten::multinomial", (TOPK, 18))
                item(t)
            else:
                t.begin("aten::to", "cpu_op")
                t.copy(262_144, "DtoH")
                t.end()
                t.cpu(us)
            t.end()

    steps(t, body, "request {}", 4)


def gathers(w: World, edited: bool, rng: Random) -> None:
    """Sharded weights: each layer's are gathered just before it, in order -> one layer ahead, on a stream."""
    layers, long, scale = rng.randint(6, 9), rng.uniform(500, 900), rng.uniform(0.8, 1.2)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            ahead = t.kernel(GATHER, long, stream=20, group=(number, 0, "g")) if edited else Flag()
            for layer in range(layers):
                now = ahead
                if edited and layer + 1 < layers:
                    ahead = t.kernel(GATHER, long, stream=20, group=(number, layer + 1, "g"))
                if not edited:
                    t.kernel(GATHER, long, group=(number, layer, "g"))
                t.kernel(NORM, 20, after=[now] if edited else ())
                block(t, scale)
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def slow_gpu(w: World, edited: bool, rng: Random) -> None:
    """One GPU of four runs at a lower clock -> it is cooled."""
    slow = rng.uniform(1.3, 1.6)
    for rank in range(4):
        t = w.thread(rank)
        scale = 0.5 * (slow if rank == 1 and not edited else 1)

        def body(number: int, t: Thread = t, scale: float = scale) -> None:
            train(t, 4, scale, optimiser=False)
            done = t.kernel(SCATTER, 700, stream=23, group=number, after=[_mark(t)])
            t.kernel(MUL, 150, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def solver(w: World, edited: bool, rng: Random) -> None:
    """C++: a solver of small kernels, a launch each -> a graph for each sweep."""
    t, parts = w.thread(), rng.randint(40, 70)
    nodes = [
        ("void smooth_red<double>(double*, double const*, int, int, int)", 2.6),
        ("void smooth_black<double>(double*, double const*, int, int, int)", 2.6),
        ("void residual<double>(double*, double const*, double const*, int)", 2.1),
    ] * parts

    def body(_: int) -> None:
        if edited:
            t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=20, node=1)
            t.acts.append(("more", nodes[1:]))
        else:
            for name, us in nodes:
                t.cpu(0.6)
                t.kernel(name, us)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "v-cycle {}", 10)


def one_block(w: World, edited: bool, rng: Random) -> None:
    """C++: a reduction runs in one block -> in one for each multiprocessor."""
    t, us = w.thread(), rng.uniform(1_800, 3_000)

    def body(_: int) -> None:
        t.kernel("void apply_forces(Particle*, float3 const*, int)", 300)
        t.kernel("void total_energy(float const*, float*, int)", us / 60 if edited else us, grid=216 if edited else 1)
        t.copy(4, "DtoH")
        t.cpu(15)

    steps(t, body, "step {}", 10)


def managed_output(w: World, edited: bool, rng: Random) -> None:
    """C++: managed input that the host wrote is moved by faults -> prefetched, as are results of each frame."""
    t, pages = w.thread(), rng.randint(40, 80)

    def body(_: int) -> None:
        t.cpu(150)
        if edited:
            t.api("cudaMemPrefetchAsync", 25)
            t.acts.append(("migrate", 7, 1, pages * 2e6 / 22e3, pages * 2_097_152))
        for part in range(3):
            moved = 0 if edited or part else pages * 2e6 / 7e3
            t.kernel("void diffuse(float*, float const*, int, int)", 500 + moved)
            if moved:
                t.acts.append(("migrate", 99, pages, 2e6 / 7.4e3, 2_097_152))
        t.wait("all")

    steps(t, body, "frame {}", 8)


def few_workers(w: World, edited: bool, rng: Random) -> None:
    """DataLoader: 2 workers, which are too few -> 8."""
    t, us, scale = w.thread(), rng.uniform(42_000, 60_000), rng.uniform(0.6, 0.9)
    ready = [Flag() for _ in range(8)]
    count = 8 if edited else 2
    for worker in range(count):
        one = w.thread(0, 200 + worker, "pt_data_worker")
        for number in range(worker, 8, count):
            one.cpu(us * (0.1 if number < 2 else 1) if not edited else us * 0.2)
            one.set(ready[number])

    def body(number: int) -> None:
        t.begin("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
        t.need(ready[number], "poll")
        t.cpu(180)
        t.end()
        t.copy(9.6e6, pinned=True)
        train(t, 4, scale)

    steps(t, body, count=8)


def finite(w: World, edited: bool, rng: Random) -> None:
    """Each gradient is looked at for NaN with an if -> one look a step."""
    t, count, scale = w.thread(), rng.randint(40, 70), rng.uniform(0.1, 0.16)

    def body(_: int) -> None:
        train(t, 3, scale, optimiser=False)
        t.begin("check_gradients")
        for number in range(count):
            op(t, "aten::isfinite", (ADD, 3))
            op(t, "aten::all", (NORM_OF.replace("NormTwoOps", "AndOps"), 4))
            if not edited or number == count - 1:
                t.begin("aten::is_nonzero", "cpu_op")
                item(t)
                t.end()
        t.end()

    steps(t, body)


def clipping(w: World, edited: bool, rng: Random) -> None:
    """Norms of gradients for clipping, parameter by parameter -> foreach=True."""
    t, parameters, scale = w.thread(), rng.randint(120, 220), rng.uniform(0.05, 0.1)

    def body(_: int) -> None:
        train(t, 3, scale, optimiser=False)
        t.begin("clip_grad_norm_")
        if edited:
            op(t, "aten::_foreach_norm", *[("void at::native::lpnorm_cleanup<float, 2>(x)", 30)] * 2)
            op(t, "aten::_foreach_mul_", *[("void at::native::multi_tensor_apply_kernel<MulFunctor>(x)", 40)] * 2)
        for _parameter in range(0 if edited else parameters):
            op(t, "aten::norm", (NORM_OF, 4))
            op(t, "aten::mul_", (MUL, 3))
        t.end()
        item(t)

    steps(t, body)


def _compile(t: Thread, ms: float) -> None:
    """What torch.compile does for a new shape, as its own ranges say."""
    names = ("_compile.compile_inner (dynamo_timed)", "backend_compile (dynamo_timed)",
             "compile_fx_inner (dynamo_timed)")  # fmt: skip
    for name in names:
        t.begin(name)
        t.cpu(ms * 100)
    t.begin("async_compile.wait (dynamo_timed)")
    t.cpu(ms * 500)
    t.end()
    t.api("cuModuleLoadData", 400)
    for _name in names:
        t.end()


def recompiled(w: World, edited: bool, rng: Random) -> None:
    """A compiled model meets new shapes in two steps and compiles again -> dynamic shapes."""
    t, layers, ms = w.thread(), rng.randint(8, 12), rng.uniform(60, 120)

    def body(number: int) -> None:
        if number in (1, 3) and not edited:
            _compile(t, ms)
        t.begin("Torch-Compiled Region: 0/0")
        for _layer in range(layers):
            op(t, "aten::mm", (BF16, 190), host=4)
            op(t, FUSED, (FUSED, 60), host=4)
            op(t, "aten::mm", (BF16, 240), host=4)
        t.end()
        item(t)

    steps(t, body)


def tuned_first(w: World, edited: bool, rng: Random) -> None:
    """A server compiles with NVRTC, and loads modules, for a size that comes in the third step -> it was warmed up."""
    t, layers, ms = w.thread(), rng.randint(8, 12), rng.uniform(40, 80)

    def body(number: int) -> None:
        for layer in range(layers):
            if number == 2 and not edited and layer % 3 == 0:
                t.api("nvrtcCompileProgram", ms * 250)
                t.api("cuModuleLoadDataEx", 900)
            t.cpu(4)
            t.kernel("void fused_bias_act<__half, 8>(__half*, __half const*, int)", 120)
            t.cpu(4)
            t.kernel("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", 260)
        t.wait("all")

    steps(t, body, "inference {}", 6)


def double_buffer(w: World, edited: bool, rng: Random) -> None:
    """C++: frames are uploaded, filtered and read back on one stream -> on two, a frame ahead."""
    t, size, us = w.thread(), rng.uniform(20e6, 30e6), rng.uniform(900, 1_400)
    ahead = [t.copy(size, pinned=True, stream=20)] if edited else []

    def body(number: int) -> None:
        if edited:
            now = ahead.pop()
            ahead.append(t.copy(size, pinned=True, stream=20))
            done = t.kernel("void bilateral(uchar4*, uchar4 const*, int, int, float)", us, after=[now])
            t.copy(size / 4, "DtoH", pinned=True, stream=21, after=[done])
            t.wait(done, "cudaEventSynchronize")
        else:
            t.copy(size, pinned=True)
            t.kernel("void bilateral(uchar4*, uchar4 const*, int, int, float)", us)
            t.copy(size / 4, "DtoH", pinned=True)
            t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "frame {}", 10)


def printed(w: World, edited: bool, rng: Random) -> None:
    """C++: each iteration waits for the device and writes a line to a file -> every hundredth."""
    t, us, written = w.thread(), rng.uniform(60, 110), rng.uniform(250, 500)

    def body(_: int) -> None:
        for _part in range(8):
            t.kernel("void lattice_step(float*, float const*, int, int, int)", us)
            t.kernel("void boundary(float*, int, int, int)", us / 5)
            if not edited:
                t.wait("all", "cudaDeviceSynchronize")
                t.os("write", written)
        if edited:
            t.wait("all", "cudaDeviceSynchronize")

    steps(t, body, "iteration {}", 8)


def collected(w: World, edited: bool, rng: Random) -> None:
    """Python collects garbage in the middle of each step -> gc.freeze() and no collection there."""
    t, ms, scale = w.thread(), rng.uniform(18, 34), rng.uniform(0.3, 0.5)

    def body(_: int) -> None:
        train(t, 2, scale)
        t.wait("all", "cudaStreamSynchronize")
        if not edited:
            t.cpu(ms * 1_000)
        train(t, 2, scale)
        item(t)

    steps(t, body)


def decoded(w: World, edited: bool, rng: Random) -> None:
    """A server decodes the pictures of a request in the thread that launches -> in threads of its own."""
    t, ms = w.thread(), rng.uniform(9, 16)

    def body(_: int) -> None:
        t.begin("decode_images")
        t.cpu(200 if edited else ms * 1_000)
        t.end()
        t.copy(19e6, pinned=True)
        for _layer in range(12):
            op(t, "aten::conv2d", (CONV, 210))
            op(t, "aten::relu_", (ADD, 30))
        item(t)

    steps(t, body, "handle_request {}", 8)


def growing(w: World, edited: bool, rng: Random) -> None:
    """The cache of keys grows by torch.cat for each token and layer -> memory taken once, written in place."""
    t, layers = w.thread(), rng.randint(10, 14)

    def body(number: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 4), host=3)
            linear(t, 30, GEMV)
            for _what in range(2):
                op(t, "aten::cat", (CAT, 4 if edited else 60 + 2 * number), host=3)
            op(t, "aten::scaled_dot_product_attention", (FLASH, 40), host=3)
            linear(t, 34, GEMV)
        item(t)

    steps(t, body, "token {}", 10)


def doubles(w: World, edited: bool, rng: Random) -> None:
    """A product in FP64 by accident -> FP32 with TF32."""
    t, us = w.thread(), rng.uniform(1_500, 2_600)

    def body(_: int) -> None:
        train(t, 2, 0.4)
        name = {"Input Dims": [[2048, 2048], [2048, 2048]], "Input type": ["double"] * 2}
        for _product in range(4):
            op(t, "aten::mm", (BF16, us / 8) if edited else (DOUBLE, us), **({} if edited else name))
        item(t)

    steps(t, body)


def host_embedding(w: World, edited: bool, rng: Random) -> None:
    """Rows of a table are gathered on the host and copied from pageable memory -> the table is on the device."""
    t, ms, size = w.thread(), rng.uniform(3, 6), rng.uniform(12e6, 20e6)

    def body(_: int) -> None:
        t.begin("lookup_embeddings")
        if edited:
            t.copy(262_144, pinned=True)
            op(t, "aten::embedding", (INDEX, 160))
        else:
            t.cpu(ms * 1_000)
            t.begin("aten::to", "cpu_op")
            t.copy(size)
            t.end()
        t.end()
        for _layer in range(4):
            linear(t, 320)
            op(t, "aten::relu", (ADD, 40))
        item(t)

    steps(t, body, "rank_items {}", 8)


def features(w: World, edited: bool, rng: Random) -> None:
    """A recommender copies each column of features from pinned memory -> all as one."""
    t, count = w.thread(), rng.randint(160, 260)

    def body(_: int) -> None:
        for _column in range(1 if edited else count):
            t.begin("aten::to", "cpu_op")
            t.cpu(5)
            t.copy(16_384 * (count if edited else 1), pinned=True)
            t.end()
        for _layer in range(5):
            linear(t, 140)
            op(t, "aten::relu", (ADD, 20))
        item(t)

    steps(t, body)


def cells(w: World, edited: bool, rng: Random) -> None:
    """An LSTM as a loop over time in Python -> the one of cuDNN."""
    t, times = w.thread(), rng.randint(60, 110)

    def body(_: int) -> None:
        if edited:
            op(t, "aten::_cudnn_rnn", *[("void cudnn::rnn::RNN_blockPersist_fp_LSTM<float, 512>(x)", 9.0 * times)])
        for _time in range(0 if edited else times):
            op(t, "aten::addmm", (BF16, 6))
            op(t, "aten::sigmoid", (GELU, 2))
            op(t, "aten::tanh", (GELU, 2))
            op(t, "aten::mul", (MUL, 2))
            op(t, "aten::addcmul", (ADD, 2))
        item(t)

    steps(t, body)


def accumulated(w: World, edited: bool, rng: Random) -> None:
    """Gradients of eight samples, one after another -> of a batch of eight."""
    t, scale = w.thread(), rng.uniform(0.012, 0.02)

    def body(_: int) -> None:
        for _sample in range(1 if edited else 8):
            train(t, 3, scale * (5 if edited else 1), optimiser=False)
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (MUL.replace("MulFunctor", "FusedAdamMathFunctor"), 90))
        t.end()
        item(t)

    steps(t, body)


def bubble(w: World, edited: bool, rng: Random) -> None:
    """A pipeline of two ranks with one batch a step, forward and back -> four small batches, which overlap."""
    us, parts = rng.uniform(5_000, 8_000), 4 if edited else 1

    def half(t: Thread, factor: float) -> None:
        for _layer in range(4):
            t.kernel(NORM, factor * us / parts / 16)
            t.kernel(BF16, factor * us / parts / 4)

    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            for part in range(parts):
                if rank:
                    t.kernel(SEND, 60, group=(number, part, "there"))
                half(t, 1)
                if not rank:
                    t.kernel(SEND, 60, group=(number, part, "there"))
                else:
                    half(t, 2)
                    t.kernel(SEND, 60, group=(number, part, "back"), stream=21, after=[_mark(t)])
            for part in range(0 if rank else parts):
                t.kernel(SEND, 60, group=(number, part, "back"))
                half(t, 2)
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def transposed(w: World, edited: bool, rng: Random) -> None:
    """Views are made contiguous around each attention -> a layout that needs no copies."""
    t, layers, us = w.thread(), rng.randint(8, 12), rng.uniform(80, 140)

    def body(_: int) -> None:
        for _layer in range(layers):
            linear(t, 260)
            for _what in range(0 if edited else 3):
                op(t, "aten::contiguous", (COPY, us))
            op(t, "aten::scaled_dot_product_attention", (FLASH, 180))
            op(t, "aten::contiguous", *([] if edited else [(COPY, us)]))
            linear(t, 300)
        item(t)

    steps(t, body)


def upsampled(w: World, edited: bool, rng: Random) -> None:
    """A normalisation written in elementwise operators on FP32 pictures -> one fused operator."""
    t, layers, us = w.thread(), rng.randint(8, 14), rng.uniform(50, 90)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::conv2d", (CONV, 260))
            if edited:
                op(t, "aten::batch_norm", ("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, true, 1>(x)", 1.4 * us))
                continue
            for name, kernel in (("mean", NORM_OF.replace("NormTwoOps", "MeanOps")), ("sub", ADD), ("pow", MUL),
                                 ("var", NORM_OF.replace("NormTwoOps", "WelfordOps")), ("div", MUL), ("mul", MUL),
                                 ("add", ADD)):  # fmt: skip
                op(t, f"aten::{name}", (kernel, us))
        item(t)

    steps(t, body)


RETUNED = (
    Edited(guidance, "larger-batch cuda-graphs", "host launches", "both"),
    Edited(sigmas, "item-in-step remove-synchronization", "host launches kernels synchronisation", "both"),
    Edited(speculation, "item-in-step remove-synchronization", "host launches kernels synchronisation", "both"),
    Edited(sampler, "host-code", "host kernels synchronisation", "both"),
    Edited(gathers, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(slow_gpu, "late-rank", "kernels ranks communication", "nsys", ranks=4),
    Edited(solver, "cuda-graphs", "host launches", "nsys", program="multigrid"),
    Edited(one_block, "launch-shape", "kernels shape", "nsys", program="particles"),
    Edited(managed_output, "prefetch", "copies kernels", "nsys", program="smoke"),
    Edited(few_workers, "num-workers", "host", "both"),
    Edited(finite, "item-in-step remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(clipping, "fuse-elementwise fused-optimiser cuda-graphs", "host launches", "both"),
    Edited(recompiled, "warm-up", "host loading", "both"),
    Edited(tuned_first, "warm-up", "host loading", "nsys", program="server"),
    Edited(double_buffer, "overlap-copies", "copies kernels", "nsys", program="denoise"),
    Edited(printed, "host-blocked remove-synchronization", "host", "nsys", program="lattice"),
    Edited(collected, "host-code", "host", "both"),
    Edited(decoded, "host-code prepare-ahead", "host", "both"),
    Edited(growing, "", "kernels", "both"),
    Edited(doubles, "", "kernels", "both"),
    Edited(host_embedding, "host-code", "host copies synchronisation", "both", does_more=True),
    Edited(features, "copy-together", "host copies launches", "both"),
    Edited(cells, "cuda-graphs fuse-elementwise larger-batch", "host launches", "both", does_more=True),
    Edited(accumulated, "larger-batch", "host launches", "both"),
    Edited(bubble, "overlap-collectives late-rank", "communication ranks kernels", "nsys", ranks=2),
    Edited(transposed, "", "kernels", "both"),
    Edited(upsampled, "fuse-elementwise", "kernels", "both"),
)  # fmt: skip
