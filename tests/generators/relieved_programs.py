"""Forty-three edits by one more author, each as a program before and after it (`generators.edited` runs them).

Debug switches that were left on, buckets of collectives, streams of CUDA C++ programs, launch shapes, libraries,
precision, detours over the host, servers that poll, Numba, CuPy, JAX, OpenACC. Written without a look at the advice:
the levers are what an engineer would accept. Where nothing in a recording could show the edit there is none. What the
first contact changed here: larger buckets are named by `overlap-collectives`; two remedies came for what had none
(products of one's own, sizes that are not aligned); a graph that is made again is captured again, too; kernels may
limit where they take as long as what is copied or sent.
"""

from __future__ import annotations

from collections.abc import Callable
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
    Edited,
    _mark,
    block,
    item,
    linear,
    op,
    steps,
    train,
)
from generators.retuned_programs import CAT, SEND
from generators.reworked_programs import CONV, GEMV, INDEX, NONZERO, NORM_OF

ISNAN = ELEMENT.format("isnan_kernel_impl<float>", 2, "isnan_kernel_impl<float>")
RANDOM = "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(long, x)"
FFT = "void regular_fft<1024u, EPT<8u>, CP_STRIDE, ROW_FFT, float2, int>(kernel_arguments_t<int>)"
SORT = "void cub::DeviceRadixSortOnesweepKernel<Policy800, false, unsigned int, int, int, int>(int*, int*, x)"


def plain(t: Thread, body: Callable[[int], None], count: int = 12) -> None:
    """A program without ranges."""
    for number in range(count):
        body(number)
    t.wait("all")


def copied(t: Thread, size: float, way: str = "HtoD", api: str = "cudaMemcpy") -> None:
    """From or to pageable memory, by a call that lasts until the copy is done."""
    t.hold(t.work("memcpy", way, 1.4 + size / 5.5e3, bytes=int(size), pinned=False, api=api, call=6))


# -- switches that were left on ----------------------------------------------------------------------


def blocking(w: World, edited: bool, rng: Random) -> None:
    """CUDA_LAUNCH_BLOCKING=1 was left set: each launch lasts as long as its kernel -> unset."""
    t, layers, scale = w.thread(), rng.randint(10, 16), rng.uniform(0.05, 0.1)

    def body(_: int) -> None:
        for _layer in range(layers):
            for name, kernel, us in (("layer_norm", NORM, 22), ("linear", BF16, 260), ("attention", FLASH, 180),
                                     ("linear", BF16, 90), ("add", ADD, 20), ("linear", BF16, 340), ("gelu", GELU, 35),
                                     ("linear", BF16, 340)):  # fmt: skip
                t.begin(f"aten::{name}", "cpu_op")
                t.cpu(9)
                done = t.kernel(kernel, us * scale)
                if not edited:
                    t.hold(done)
                t.cpu(5)
                t.end()
        item(t)

    steps(t, body)


def anomaly(w: World, edited: bool, rng: Random) -> None:
    """torch.autograd.set_detect_anomaly(True) was left on: each gradient is looked at for NaN -> off."""
    t, layers, scale = w.thread(), rng.randint(12, 20), rng.uniform(0.1, 0.2)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
        for _layer in range(layers):
            for us in (340, 340, 90, 260):
                t.begin("autograd::engine::evaluate_function: MmBackward0", "cpu_op")
                op(t, "aten::mm", (BF16, us * scale))
                op(t, "aten::mm", (BF16, us * scale))
                for _gradient in range(0 if edited else 2):
                    op(t, "aten::isnan", (ISNAN, 6))
                    op(t, "aten::any", (NORM_OF.replace("NormTwoOps", "or_kernel"), 5))
                    t.begin("aten::is_nonzero", "cpu_op")
                    item(t)
                    t.end()
                t.end()
        t.begin("Optimizer.step#AdamW.step")
        op(t, "aten::_fused_adamw_", (MUL.replace("MulFunctor", "FusedAdamMathFunctor"), 120))
        t.end()

    steps(t, body)


def scaler(w: World, edited: bool, rng: Random) -> None:
    """GradScaler with an optimiser for each layer reads found_inf for each of them -> one optimiser."""
    t, optimisers, scale = w.thread(), rng.randint(24, 40), rng.uniform(0.12, 0.2)

    def body(_: int) -> None:
        train(t, 4, scale, optimiser=False)
        for _one in range(1 if edited else optimisers):
            t.begin("Optimizer.step#SGD.step")
            op(t, "aten::_amp_foreach_non_finite_check_and_unscale_", (ISNAN, 3.5 * (optimisers if edited else 1)))
            item(t)
            t.cpu(20)
            op(t, "aten::_foreach_add_", (ADD.replace("CUDAFunctor", "multi_tensor_apply"),
                                          7.0 * (optimisers if edited else 1)))  # fmt: skip
            t.end()

    steps(t, body)


def checked(w: World, edited: bool, rng: Random) -> None:
    """C++ without ranges: a macro synchronises behind each launch to find errors -> only in debug builds."""
    t, us, parts = w.thread(), rng.uniform(14, 30), rng.randint(16, 28)

    def body(_: int) -> None:
        for part in range(parts):
            t.kernel(f"void advect{part % 4}(float4*, float4 const*, int, int, int)", us)
            t.api("cudaGetLastError", 0.3)
            if not edited:
                t.wait("all", "cudaDeviceSynchronize")
            t.cpu(6)
        t.copy(65_536, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")

    plain(t, body)


def searching(w: World, edited: bool, rng: Random) -> None:
    """cudnn.benchmark=True with pictures of ever other sizes: algorithms are tried in each step -> False."""
    t, layers, scale = w.thread(), rng.randint(8, 12), rng.uniform(0.6, 1.0)

    def body(_: int) -> None:
        for _layer in range(layers):
            t.begin("aten::cudnn_convolution", "cpu_op")
            for trial in range(0 if edited else 6):
                t.api("cudaMalloc", 90)
                t.kernel(CONV.replace("128x128x32", f"{64 << trial % 3}x64x32"), 260 * scale)
                t.wait("all", "cudaEventSynchronize")
                t.cpu(15)
                t.wait("all", "cudaFree")
                t.cpu(60)
            t.cpu(8)
            t.kernel(CONV, 190 * scale)
            t.end()
            op(t, "aten::relu_", (ADD, 25 * scale))
        item(t)

    steps(t, body)


# -- ranks -------------------------------------------------------------------------------------------


def tiny_buckets(w: World, edited: bool, rng: Random) -> None:
    """Gradients are summed over ranks in 120 tiny buckets -> in 6 large ones, beside the backward pass both."""
    count, scale = rng.randint(100, 140), rng.uniform(0.25, 0.4)
    count = 6 if edited else count
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            train(t, 4, scale, optimiser=False)
            done = Flag()
            for bucket in range(count):
                done = t.kernel(REDUCE, 38 if count > 6 else 210, stream=23, group=(number, bucket),
                                after=[_mark(t)] if not bucket else ())  # fmt: skip
            t.kernel(MUL, 150, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def sync_norms(w: World, edited: bool, rng: Random) -> None:
    """SyncBatchNorm gathers statistics over ranks in each layer -> statistics of each rank."""
    layers, us = rng.randint(20, 32), rng.uniform(45, 80)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for layer in range(layers):
                op(t, "aten::cudnn_convolution", (CONV, 110))
                op(t, "aten::batch_norm_stats", (NORM_OF.replace("NormTwoOps", "WelfordOps"), 18))
                if not edited:
                    t.kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", us,
                             group=(number, layer))  # fmt: skip
                op(t, "aten::batch_norm_elemt", (MUL, 25))
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def compressed(w: World, edited: bool, rng: Random) -> None:
    """Gradients are summed over PCIe as FP32 -> a bf16_compress hook halves them."""
    long, scale = rng.uniform(9_000, 14_000), rng.uniform(0.4, 0.6)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            train(t, 4, scale, optimiser=False)
            done = Flag()
            for bucket in range(4):
                done = t.kernel(REDUCE.replace("f32", "bf16") if edited else REDUCE, long / (8 if edited else 4),
                                stream=23, group=(number, bucket), after=[] if bucket else [_mark(t)])  # fmt: skip
            t.kernel(MUL, 150, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def through_host(w: World, edited: bool, rng: Random) -> None:
    """MPI without CUDA: halos go through pageable memory of the host -> sent from GPU to GPU."""
    size, us = rng.uniform(8e6, 14e6), rng.uniform(500, 900)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            t.kernel("void lbm_collide(double*, double const*, int, int, int)", us)
            if edited:
                t.kernel(SEND, size / 40e3, group=(number, "halo"))
            else:
                copied(t, size, "DtoH")
                t.begin("MPI_Sendrecv")
                t.cpu(size / 9e3)
                t.end()
                copied(t, size)
            t.kernel("void lbm_stream(double*, double const*, int, int, int)", us)
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, "timestep {}", 8)


def rank_zero(w: World, edited: bool, rng: Random) -> None:
    """Rank 0 writes pictures and a log in each step while the others wait -> every thousandth step."""
    ms, scale = rng.uniform(10, 18), rng.uniform(0.3, 0.5)
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            if rank == 0 and not edited:
                t.begin("log_images")
                t.cpu(ms * 600)
                t.os("write", ms * 400)
                t.end()
            train(t, 3, scale, optimiser=False)
            done = t.kernel(REDUCE, 800, stream=23, group=number, after=[_mark(t)])
            t.kernel(MUL, 150, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def background(w: World, edited: bool, rng: Random) -> None:
    """One rank of four shares its processor with another program: host code is slow there -> alone."""
    slow, layers = rng.uniform(2.2, 3.2), rng.randint(8, 12)
    for rank in range(4):
        t = w.thread(rank)
        host = 7 * (slow if rank == 2 and not edited else 1)

        def body(number: int, t: Thread = t, host: float = host) -> None:
            for _layer in range(layers):
                for name, kernel in (("layer_norm", NORM), ("linear", BF16), ("attention", FLASH), ("linear", BF16),
                                     ("add", ADD), ("linear", BF16), ("gelu", GELU), ("linear", BF16)):  # fmt: skip
                    op(t, f"aten::{name}", (kernel, 7), host=host)
            t.kernel(REDUCE, 220, group=number)
            t.kernel(MUL, 40)
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


# -- CUDA C++ ----------------------------------------------------------------------------------------


def legacy_stream(w: World, edited: bool, rng: Random) -> None:
    """C++: a kernel on the legacy default stream keeps two streams apart -> streams of their own for all."""
    t, us = w.thread(), rng.uniform(260, 420)

    def body(_: int) -> None:
        last: list[Flag] = []
        for part in range(8):
            mine = t.kernel("void encode_tile(uchar4 const*, short*, int, int)", us, grid=48, stream=13 + part % 2,
                            after=[] if edited else last)  # fmt: skip
            if not edited:
                last = [t.kernel("void bump_counter(int*)", 2.5, grid=1, block=32, after=[mine])]
            else:
                t.kernel("void bump_counter(int*)", 2.5, grid=1, block=32, stream=13 + part % 2)
        t.wait("all")

    steps(t, body, "picture {}", 10)


def one_thread(w: World, edited: bool, rng: Random) -> None:
    """C++: kernels with one thread in a block -> 256 threads."""
    t, us = w.thread(), rng.uniform(900, 1_600)

    def body(_: int) -> None:
        copied(t, 4e6)
        for _part in range(3):
            t.kernel("vector_scale(float*, float, int)", us / 18 if edited else us, grid=4_096 if edited else 1 << 20,
                     block=256 if edited else 1)  # fmt: skip
        copied(t, 4e6, "DtoH")

    plain(t, body)


def tiny_blocks(w: World, edited: bool, rng: Random) -> None:
    """C++: blocks of 4x4 threads -> 16x16."""
    t, us = w.thread(), rng.uniform(1_500, 2_500)

    def body(_: int) -> None:
        t.kernel("void box_filter(unsigned char const*, unsigned char*, int, int)", us * 0.31 if edited else us,
                 grid=8_160 if edited else 129_600, block=256 if edited else 16)  # fmt: skip
        t.kernel("void to_gray(uchar3 const*, unsigned char*, int, int)", us / 8)
        t.wait("all")

    steps(t, body, "image {}", 10)


def naive_product(w: World, edited: bool, rng: Random) -> None:
    """C++: a matrix product of one's own -> cuBLAS."""
    t, us = w.thread(), rng.uniform(4_000, 7_000)

    def body(_: int) -> None:
        t.kernel("void add_bias(float*, float const*, int, int)", 120)
        if edited:
            t.kernel("ampere_sgemm_128x64_nn", us / 7)
        else:
            t.kernel("void matmul(float const*, float const*, float*, int, int, int)", us, grid=16_384)
        t.wait("all")

    plain(t, body)


def strided(w: World, edited: bool, rng: Random) -> None:
    """C++: threads read along columns -> along rows (the same kernel, faster)."""
    t, us = w.thread(), rng.uniform(1_500, 2_600)

    def body(_: int) -> None:
        t.kernel("void row_sums(double const*, double*, int, int)", us / 5 if edited else us)
        t.kernel("void normalise(double*, double const*, int, int)", 260)
        t.wait("all")

    plain(t, body)


def thrashing(w: World, edited: bool, rng: Random) -> None:
    """C++: the host reads managed results each step, and pages move both ways by faults -> prefetched both ways."""
    t, pages = w.thread(), rng.randint(40, 70)

    def body(_: int) -> None:
        if edited:
            t.api("cudaMemPrefetchAsync", 30)
            t.acts.append(("migrate", 7, 1, pages * 2e6 / 22e3, pages * 2_097_152))
        t.kernel("integrate(Body*, float, int)", 700 + (0 if edited else pages * 2e6 / 6.5e3))
        if not edited:
            t.acts.append(("migrate", 99, pages, 2e6 / 7e3, 2_097_152))
        t.wait("all")
        t.cpu(400)

    plain(t, body, 8)


def symbols(w: World, edited: bool, rng: Random) -> None:
    """C++: fifty parameters go to constant memory one by one -> as one structure."""
    t, count, us = w.thread(), rng.randint(40, 70), rng.uniform(150, 260)

    def body(_: int) -> None:
        for _one in range(1 if edited else count):
            copied(t, 8 * (count if edited else 1), api="cudaMemcpyToSymbol")
        t.kernel("void bonded_forces(float4 const*, float4*, int)", us)
        t.kernel("void nonbonded_forces(float4 const*, float4*, int)", 2 * us)

    steps(t, body, "md step {}", 12)


def plans(w: World, edited: bool, rng: Random) -> None:
    """C++: a plan of cuFFT is made and destroyed in each step -> once."""
    t, us = w.thread(), rng.uniform(700, 1_300)

    def body(_: int) -> None:
        if not edited:
            t.cpu(us)
            t.api("cudaMalloc", 220)
        for _pass in range(2):
            t.kernel(FFT, 110)
            t.kernel("void apply_filter(float2*, float2 const*, int)", 60)
        if not edited:
            t.wait("all", "cudaFree")
            t.cpu(250)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "frame {}", 12)


def captured_again(w: World, edited: bool, rng: Random) -> None:
    """C++: a graph is captured, made and destroyed in each step -> once, and launched again."""
    t, parts = w.thread(), rng.randint(60, 110)
    nodes = [("void jacobi(float const*, float*, int, int)", 4.0), ("void residual(float const*, float*, int)", 3.0)]

    def body(_: int) -> None:
        if not edited:
            t.api("cudaStreamBeginCapture", 12)
            for _node in range(2 * parts):
                t.cpu(0.5)
                t.api("cudaLaunchKernel", 2.6)
            t.api("cudaStreamEndCapture", 15)
            t.api("cudaGraphInstantiate", 14.0 * parts)
        t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=20, node=1)
        t.acts.append(("more", (nodes * parts)[1:]))
        t.wait("all", "cudaStreamSynchronize")
        if not edited:
            t.api("cudaGraphExecDestroy", 3.0 * parts)

    steps(t, body, "solve {}", 12)


def made_streams(w: World, edited: bool, rng: Random) -> None:
    """C++: streams and events are made and destroyed in each call -> once."""
    t, us = w.thread(), rng.uniform(80, 150)

    def body(_: int) -> None:
        for _stream in range(0 if edited else 4):
            t.api("cudaStreamCreate", 45)
            t.api("cudaEventCreate", 6)
        flags = [t.kernel("void blend(float4 const*, float4*, float, int)", us, stream=13 + part, grid=100)
                 for part in range(4)]  # fmt: skip
        t.kernel("void compose(float4 const*, uchar4*, int)", 60, after=flags)
        t.wait("all", "cudaStreamSynchronize")
        for _stream in range(0 if edited else 4):
            t.api("cudaEventDestroy", 4)
            t.api("cudaStreamDestroy", 38)

    steps(t, body, "draw {}", 12)


def ffts(w: World, edited: bool, rng: Random) -> None:
    """C++: a transform of each of 64 rows -> one plan for the batch of them."""
    t, rows = w.thread(), rng.randint(90, 140)

    def body(_: int) -> None:
        for _row in range(1 if edited else rows):
            t.kernel(FFT, 0.25 * rows if edited else 3.4, grid=rows if edited else 1)
            t.cpu(0.8)
        t.kernel("void power(float2 const*, float*, int)", 40)
        t.wait("all", "cudaStreamSynchronize")

    steps(t, body, "block {}", 12)


def thrust(w: World, edited: bool, rng: Random) -> None:
    """C++: thrust::sort takes and frees memory in each call -> an allocator that keeps it."""
    t, calls, us = w.thread(), rng.randint(10, 16), rng.uniform(60, 110)

    def body(_: int) -> None:
        for _call in range(calls):
            t.kernel("void hash_particles(unsigned int*, int*, float4 const*, int)", 45)
            if not edited:
                t.api("cudaMalloc", 130)
            for _pass in range(3):
                t.kernel(SORT, us)
            t.wait("all", "cudaStreamSynchronize")
            if not edited:
                t.api("cudaFree", 170)

    plain(t, body, 8)


def summed(w: World, edited: bool, rng: Random) -> None:
    """C++: partial results are copied and summed on the host -> summed on the device."""
    t, size, us = w.thread(), rng.uniform(10e6, 18e6), rng.uniform(1_200, 2_000)

    def body(_: int) -> None:
        t.kernel("void price_paths(float const*, float*, curandState*, int)", us)
        if edited:
            t.kernel("void cub::DeviceReduceKernel<Policy, float*, int, cub::Sum>(float*, float*, int, x)", 25)
            copied(t, 4, "DtoH")
        else:
            copied(t, size, "DtoH")
            t.cpu(size / 4e3)

    plain(t, body)


# -- PyTorch -----------------------------------------------------------------------------------------


def lora(w: World, edited: bool, rng: Random) -> None:
    """Adapters (LoRA) beside each product in a decoder -> merged into the weights."""
    t, layers = w.thread(), rng.randint(8, 12)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 4))
            for us in (24, 9, 40, 40):
                linear(t, us, GEMV)
                if not edited:
                    linear(t, 4, GEMV)
                    linear(t, 4, GEMV)
                    op(t, "aten::mul", (MUL, 2))
                    op(t, "aten::add", (ADD, 2))
        item(t)

    steps(t, body, "token {}", 10)


def eval_norm(w: World, edited: bool, rng: Random) -> None:
    """Normalisation and activation behind each convolution in inference -> folded into it."""
    t, layers, us = w.thread(), rng.randint(16, 26), rng.uniform(40, 70)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::cudnn_convolution", (CONV, 160))
            if not edited:
                op(t, "aten::batch_norm", ("void cudnn::bn_fw_inf_1C11_kernel_NCHW<__half, true, 1>(x)", us))
                op(t, "aten::clamp_min_", (ADD, 0.8 * us))
        item(t)

    steps(t, body, "predict {}", 8)


def host_noise(w: World, edited: bool, rng: Random) -> None:
    """Noise is drawn on the host and copied in each step -> drawn on the device."""
    t, ms, size = w.thread(), rng.uniform(5, 9), rng.uniform(6e6, 12e6)

    def body(_: int) -> None:
        if edited:
            op(t, "aten::randn", (RANDOM, 30))
        else:
            op(t, "aten::randn", host=ms * 2_000)
            t.begin("aten::to", "cpu_op")
            t.copy(size)
            t.end()
        for _layer in range(8):
            op(t, "aten::conv2d", (CONV, 300))
            op(t, "aten::silu", (GELU, 60))
        item(t)

    steps(t, body)


def smi(w: World, edited: bool, rng: Random) -> None:
    """nvidia-smi is started in each step to log the memory in use -> no longer."""
    t, ms, scale = w.thread(), rng.uniform(15, 28), rng.uniform(0.3, 0.5)

    def body(_: int) -> None:
        train(t, 2, scale, optimiser=False)
        item(t)
        if not edited:
            t.os("fork", 900)
            t.os("waitpid", ms * 1_000)
            t.os("read", 40)
        train(t, 1, scale)

    steps(t, body)


def heads(w: World, edited: bool, rng: Random) -> None:
    """A loop over heads of small products -> one batched product for all heads."""
    t, layers, count = w.thread(), rng.randint(5, 8), rng.randint(12, 16)

    def body(_: int) -> None:
        for _layer in range(layers):
            linear(t, 60)
            for _head in range(1 if edited else count):
                op(t, "aten::bmm" if edited else "aten::mm", (BF16, 30 if edited else 5))
                op(t, "aten::softmax", (NORM, 14 if edited else 3))
                op(t, "aten::bmm" if edited else "aten::mm", (BF16, 30 if edited else 5))
            if not edited:
                op(t, "aten::cat", (CAT, 6))
            linear(t, 60)
        item(t)

    steps(t, body)


def tf32(w: World, edited: bool, rng: Random) -> None:
    """Convolutions in FP32 without tensor cores -> cudnn.allow_tf32."""
    t, layers, us = w.thread(), rng.randint(10, 16), rng.uniform(500, 900)
    slow = (
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, float const*)"
    )
    fast = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_tensor16x8x8"

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::cudnn_convolution", (fast, us / 3.5) if edited else (slow, us))
            op(t, "aten::relu_", (ADD, 50))
        item(t)

    steps(t, body)


def odd_vocabulary(w: World, edited: bool, rng: Random) -> None:
    """50,257 words -> 50,304: products over the vocabulary that are aligned."""
    t, us = w.thread(), rng.uniform(3_000, 5_000)
    name = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align{}>(x)"

    def body(_: int) -> None:
        words = 50_304 if edited else 50_257
        train(t, 2, 0.5, optimiser=False)
        for _pass in range(3):
            op(t, "aten::mm", (name.format(8), us / 3) if edited else (name.format(1), us),
               **{"Input Dims": [[8192, 768], [768, words]], "Input type": ["c10::BFloat16"] * 2})  # fmt: skip
        item(t)

    steps(t, body)


def masked(w: World, edited: bool, rng: Random) -> None:
    """Indexing by a mask, whose size the host must know -> torch.where."""
    t, layers, scale = w.thread(), rng.randint(14, 24), rng.uniform(0.04, 0.08)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, scale)
            if edited:
                op(t, "aten::where", (MUL, 8))
            else:
                t.begin("aten::index", "cpu_op")
                t.begin("aten::nonzero", "cpu_op")
                t.cpu(6)
                t.kernel(NONZERO, 7)
                t.copy(8, "DtoH")
                t.cpu(5)
                t.end()
                t.cpu(6)
                t.kernel(INDEX, 9)
                t.end()
        item(t)

    steps(t, body)


def penalties(w: World, edited: bool, rng: Random) -> None:
    """A penalty for each token that was said, in a loop of small operators -> gather and scatter for all."""
    t, said, layers = w.thread(), rng.randint(90, 150), rng.randint(8, 12)

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 5), host=3)
            linear(t, 60, GEMV)
            op(t, "aten::scaled_dot_product_attention", (FLASH, 30), host=3)
            linear(t, 70, GEMV)
        t.begin("repetition_penalty")
        for _token in range(1 if edited else said):
            op(t, "aten::select", host=2)
            op(t, "aten::div", (MUL, 2))
            op(t, "aten::copy_", (ADD, 2))
        t.end()
        item(t)

    steps(t, body, "token {}", 8)


def offloaded_optimiser(w: World, edited: bool, rng: Random) -> None:
    """The optimiser's state and step are on the host: gradients down, weights up -> on the GPU."""
    t, ms, size = w.thread(), rng.uniform(12, 20), rng.uniform(60e6, 100e6)

    def body(_: int) -> None:
        train(t, 4, 0.8, optimiser=False)
        t.begin("Optimizer.step#DeepSpeedCPUAdam.step")
        if edited:
            op(t, "aten::_fused_adamw_", (MUL.replace("MulFunctor", "FusedAdamMathFunctor"), 400))
        else:
            t.copy(size, "DtoH", pinned=True)
            t.wait("all", "cudaStreamSynchronize")
            t.cpu(ms * 1_000)
            t.copy(size, pinned=True)
        t.end()

    steps(t, body)


def floats_up(w: World, edited: bool, rng: Random) -> None:
    """Pictures are copied as floats -> as bytes, and made floats on the device."""
    t, size = w.thread(), rng.uniform(90e6, 140e6)

    def body(_: int) -> None:
        t.begin("aten::to", "cpu_op")
        t.copy(size / 4 if edited else size, pinned=True)
        t.end()
        if edited:
            op(t, "aten::div", (MUL, 90))
        for _layer in range(12):
            op(t, "aten::conv2d", (CONV, 130))
            op(t, "aten::relu_", (ADD, 25))
        item(t)

    steps(t, body, "predict {}", 8)


def results_down(w: World, edited: bool, rng: Random) -> None:
    """Masks of each picture go to pageable memory, and the next waits -> pinned, on a stream, used a picture later."""
    t, size = w.thread(), rng.uniform(30e6, 50e6)
    before: list[Flag] = []

    def body(_: int) -> None:
        for _layer in range(14):
            op(t, "aten::conv2d", (CONV, 260))
            op(t, "aten::relu_", (ADD, 40))
        if edited:
            before.append(t.copy(size, "DtoH", pinned=True, stream=21, after=[_mark(t)]))
            if len(before) > 1:
                t.wait(before[-2], "cudaEventSynchronize")
        else:
            t.begin("aten::to", "cpu_op")
            t.copy(size, "DtoH")
            t.end()

    steps(t, body, "segment {}", 8)


def respawned(w: World, edited: bool, rng: Random) -> None:
    """Workers of the DataLoader are started anew for each short epoch -> persistent_workers=True."""
    t, ms, scale = w.thread(), rng.uniform(60, 110), rng.uniform(0.6, 0.9)
    ready = [Flag() for _ in range(9)]
    if not edited:
        for epoch in range(3):
            one = w.thread(0, 200 + epoch, "pt_data_worker")
            if epoch:
                one.need(ready[3 * epoch - 1], "poll")
            one.cpu(ms * 1_000)
            for number in range(3):
                one.set(ready[3 * epoch + number])

    def body(number: int) -> None:
        t.begin("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
        if not edited:
            t.need(ready[number], "poll")
        t.cpu(160)
        t.end()
        t.copy(9.6e6, pinned=True)
        train(t, 4, scale)

    steps(t, body, count=9)


def polling(w: World, edited: bool, rng: Random) -> None:
    """A server looks for requests every 10 ms with time.sleep -> it waits for them."""
    t, ms, layers = w.thread(), rng.uniform(5, 9), rng.randint(10, 14)

    def body(_: int) -> None:
        t.os("clock_nanosleep", 300 if edited else ms * 1_000)
        t.cpu(60)
        t.copy(65_536, pinned=True)
        for _layer in range(layers):
            block(t, 0.25)
        item(t)

    steps(t, body, "request {}", 10)


def lock(w: World, edited: bool, rng: Random) -> None:
    """Augmentation in a Python thread holds the interpreter's lock -> in a process of its own."""
    t, layers, scale = w.thread(), rng.randint(6, 9), rng.uniform(0.05, 0.09)
    other = w.thread(0, 55, "augment")
    count = 6 * layers
    flags = [Flag() for _ in range(count)]
    begun = [Flag() for _ in range(count)]
    if not edited:
        for number in range(count):
            other.need(begun[number], "pthread_cond_timedwait")
            other.cpu(1_700)
            other.set(flags[number])

    def body(number: int) -> None:
        for layer in range(layers):
            block(t, scale)
            if not edited:
                t.set(begun[number * layers + layer])
                t.need(flags[number * layers + layer], "pthread_cond_timedwait")
        item(t)

    steps(t, body)


# -- others ------------------------------------------------------------------------------------------


def numba(w: World, edited: bool, rng: Random) -> None:
    """Numba: arrays of NumPy go to the device and back for each kernel -> arrays of the device."""
    t, size, us = w.thread(), rng.uniform(8e6, 16e6), rng.uniform(150, 300)

    def body(number: int) -> None:
        for part in range(4):
            for _array in range(2 if not edited or (not number and not part) else 0):
                copied(t, size, api="cuMemcpyHtoD_v2")
            t.cpu(40)
            t.kernel("_ZN6cudapy8__main__12diffuse_2439B4v1B30c8tJTIeFIjxB2IKSgI4CrvQClQZ6FczSBAA_3dE5ArrayIfLi2E1C",
                     us, api="cuLaunchKernel")  # fmt: skip
            if not edited:
                for _array in range(2):
                    copied(t, size, "DtoH", "cuMemcpyDtoH_v2")
        t.wait("all", "cuCtxSynchronize")

    plain(t, body, 8)


def cupy(w: World, edited: bool, rng: Random) -> None:
    """CuPy: an expression of large arrays, an operator at a time -> cupy.fuse."""
    t, us = w.thread(), rng.uniform(180, 300)

    def body(_: int) -> None:
        for _part in range(4):
            names = ("multiply", "add", "exp", "multiply", "subtract", "power")
            if edited:
                t.cpu(12)
                t.kernel("cupy_fused_black_scholes", 1.2 * us, api="cuLaunchKernel")
            for name in () if edited else names:
                t.cpu(9)
                t.kernel(f"cupy_{name}__float32_float32_float32", us, api="cuLaunchKernel")
        t.wait("all", "cudaStreamSynchronize")

    plain(t, body, 8)


def unjitted(w: World, edited: bool, rng: Random) -> None:
    """JAX: a step runs operator by operator -> jax.jit."""
    t, layers = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        for _layer in range(layers):
            if edited:
                for name, us in (
                    ("loop_add_multiply_fusion", 9),
                    ("gemm_fusion_dot_12", 22),
                    ("input_reduce_fusion", 8),
                ):
                    t.cpu(1.5)
                    t.kernel(name, us, api="cuLaunchKernel")
                continue
            for name, us in (("wrapped_multiply", 4), ("wrapped_add", 4), ("wrapped_dot", 24), ("wrapped_tanh", 4),
                             ("wrapped_reduce", 5), ("wrapped_subtract", 4), ("wrapped_exponential", 4)):  # fmt: skip
                t.cpu(45)
                t.kernel(name, us, api="cuLaunchKernel")
        t.wait("all", "cuStreamSynchronize")

    plain(t, body, 8)


def data_region(w: World, edited: bool, rng: Random) -> None:
    """OpenACC: arrays are copied in and out around each loop -> a data region around the iterations."""
    t, size, us = w.thread(), rng.uniform(16e6, 30e6), rng.uniform(250, 420)

    def body(number: int) -> None:
        for part in range(2):
            if not edited or (not number and not part):
                t.copy(size, pinned=True, api="cuMemcpyHtoDAsync_v2")
                t.copy(size, pinned=True, api="cuMemcpyHtoDAsync_v2")
            t.kernel(f"laplace_{64 + 11 * part}_gpu", us, api="cuLaunchKernel")
            if not edited:
                t.copy(size, "DtoH", pinned=True, api="cuMemcpyDtoHAsync_v2")
            t.wait("all", "cuStreamSynchronize")

    plain(t, body, 10)


RELIEVED = (
    Edited(blocking, "remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(anomaly, "item-in-step remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(scaler, "item-in-step remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(checked, "remove-synchronization", "host launches synchronisation kernels", "nsys", program="fluid"),
    Edited(searching, "warm-up allocate-once", "kernels host synchronisation", "both", does_more=True),
    Edited(tiny_buckets, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(sync_norms, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(compressed, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(through_host, "copy-less overlap-copies host-code", "copies host", "nsys", ranks=2, program="lbm",
           does_more=True),
    Edited(rank_zero, "late-rank", "ranks host communication", "nsys", ranks=4),
    Edited(background, "late-rank processor", "ranks host communication launches", "nsys", ranks=4),
    Edited(legacy_stream, "streams", "kernels synchronisation shape", "nsys", program="encode"),
    Edited(one_thread, "launch-shape", "kernels shape", "nsys", program="vectors"),
    Edited(tiny_blocks, "launch-shape", "kernels shape", "nsys", program="filters"),
    Edited(naive_product, "tensor-cores library-product", "kernels", "nsys", program="matmul"),
    Edited(strided, "", "kernels", "nsys", program="rows"),
    Edited(thrashing, "prefetch", "copies kernels", "nsys", program="nbody"),
    Edited(symbols, "copy-together", "copies kernels host", "nsys", program="md"),
    Edited(plans, "allocate-once host-code", "host", "nsys", program="filter"),
    Edited(captured_again, "allocate-once graph-launch host-code", "host launches", "nsys", program="jacobi",
           does_more=True),
    Edited(made_streams, "allocate-once host-code host-blocked", "host synchronisation kernels", "nsys",
           program="compose"),
    Edited(ffts, "cuda-graphs larger-batch streams launch-shape", "host launches kernels shape", "nsys",
           program="spectra", does_more=True),
    Edited(thrust, "allocate-once", "host kernels synchronisation", "nsys", program="sph"),
    Edited(summed, "copy-less host-code", "host copies", "nsys", program="montecarlo", does_more=True),
    Edited(lora, "", "host launches", "both"),
    Edited(eval_norm, "fuse-elementwise", "kernels", "both"),
    Edited(host_noise, "host-code copy-less overlap-copies", "host copies", "both", does_more=True),
    Edited(smi, "host-blocked", "host", "nsys"),
    Edited(heads, "cuda-graphs larger-batch batch-host-loop", "host launches", "both", does_more=True),
    Edited(tf32, "tensor-cores", "kernels", "both"),
    Edited(odd_vocabulary, "pad-sizes", "kernels", "kineto"),
    Edited(masked, "item-in-step remove-synchronization", "host launches synchronisation kernels", "both"),
    Edited(penalties, "cuda-graphs larger-batch fuse-elementwise", "host launches", "both", does_more=True),
    Edited(offloaded_optimiser, "host-code copy-less overlap-copies", "host copies", "both", does_more=True),
    Edited(floats_up, "copy-less overlap-copies", "copies kernels", "both"),
    Edited(results_down, "overlap-copies", "copies kernels", "both"),
    Edited(respawned, "num-workers", "host kernels", "both"),
    Edited(polling, "sleeps host-blocked", "host", "nsys"),
    Edited(lock, "waits-for-thread host-blocked processor", "host", "nsys"),
    Edited(numba, "copy-less copy-once", "copies host synchronisation", "nsys", does_more=True),
    Edited(cupy, "fuse-elementwise", "kernels", "nsys"),
    Edited(unjitted, "fuse-elementwise cuda-graphs host-code", "host launches", "nsys", does_more=True),
    Edited(data_region, "copy-less copy-once", "copies host synchronisation kernels", "nsys", program="laplace",
           does_more=True),
)  # fmt: skip
