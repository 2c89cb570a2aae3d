"""Fifty-five edits by a seventh author, each as a program before and after it (`generators.edited` runs them).

Written before a look at the rules of the replay and the advice; blocks, names and proportions are this author's own
(Hopper kernels, modules, autograd's thread, servers, other languages). The lever is what an engineer would say of the
recording before the edit; where nothing in it could show the edit there is none. First contact, 110 pairs: the lever
among the first three 70 of 76, first 61; bound 51 of 54, compare 103 of 109, limit 106 of 110. What it changed here:
kernels limit where a size is asked for, too; who logs a loss less often also computes less; nobody can know that a
program's own kernels may be one, nor that code that is loaded in a first pass of four counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import Edited

NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
XMMA = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel__5x_cublas"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>(Params)"
ODD = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align1>(Params)"
GEMV = "void gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true>(x)"
QGEMV = "void marlin::Marlin<nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*, int4*)"
FA3 = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<Mainloop> > >(x)"
FA2 = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >(Params)"
FAB = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8> >(x)"
E = "void at::native::vectorized_elementwise_kernel<8, at::native::{}, std::array<char*, {}ul> >(int, {})"
MUL, ADD = (
    E.format("BinaryFunctor<c10::BFloat16, MulFunctor<float> >", 3, "x"),
    E.format("CUDAFunctor_add<c10::BFloat16>", 3, "x"),
)
SILU, SIGMOID = (E.format(f"{name}_kernel(at::TensorIteratorBase&)::lambda", 2, "x") for name in ("silu", "sigmoid"))
RELU = E.format("launch_clamp_scalar(at::TensorIteratorBase&)::lambda", 2, "x")
FILL, CAST = (
    E.format("FillFunctor<float>", 1, "x"),
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(x)",
)
LNORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)"
MEAN = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float> > >(x)"
)
SOFT = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*)"
FOREACH = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(x)"
CONV = "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckcrs_nhwc_tilesize128x64x64_stage3_kernel_cudnn"
DGRAD = (
    "sm80_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckcrs_nhwc_tilesize128x128x32_stage4_kernel_cudnn"
)
SCUDNN = "void cudnn::ampere_scudnn_128x64_relu_interior_nn_v1(x)"
BN = "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, c10::BFloat16, float, 4>(x)"
BNN = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__nv_bfloat16, float, int, 512, true, 1, true>(cudnn::bnFwTrnTensorStruct)"
IN, OUT = (
    f"void cudnn::ops::{way}Kernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(x)"
    for way in ("nchwToNhwc", "nhwcToNchw")
)
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ARGMAX = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float> > >(x)"
)
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<float> >(x)"
EMBED = "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(x)"


@contextmanager
def r(t: Thread, text: str, kind: str = "user_annotation", **args: object) -> Iterator[None]:
    t.begin(text, kind, **args)
    yield
    t.end()


def op(t: Thread, name: str, *kernels: tuple[str, float], us: float = 5, api: str = "", **args: object) -> None:
    """An operator as eager PyTorch runs it: some host code, its launches, some host code."""
    with r(t, name, "cpu_op", **args):
        t.cpu(us)
        for kernel, length in kernels:
            t.kernel(kernel, length, api=api)
            t.cpu(us * 0.6)


def product(t: Thread, us: float, kernel: str = NVJET, rows: int = 8192, kind: str = "c10::BFloat16") -> None:
    """addmm below linear, by cudaLaunchKernelExC."""
    dims = {"Input Dims": [[4096], [rows, 4096], [4096, 4096]], "Input type": [kind] * 3}
    with r(t, "aten::linear", "cpu_op"):
        t.cpu(2)
        op(t, "aten::addmm", (kernel, us), api="cudaLaunchKernelExC", **dims)


def layer(t: Thread, number: int, scale: float, kernel: str = NVJET, attention: str = FA3, rows: int = 8192) -> None:
    """A decoder layer of a language model, as a module."""
    with r(t, f"nn.Module: DecoderLayer_{number}", "python_function"):
        t.cpu(6)
        op(t, "aten::rms_norm", (LNORM, 30 * scale))
        for us in (150, 50, 50):
            product(t, us * scale, kernel, rows)
        op(t, "flash_attn::_flash_attn_forward", (attention, 210 * scale))
        product(t, 150 * scale, kernel, rows)
        op(t, "aten::rms_norm", (LNORM, 30 * scale))
        product(t, 420 * scale, kernel, rows)
        product(t, 420 * scale, kernel, rows)
        op(t, "aten::silu", (SILU, 45 * scale))
        op(t, "aten::mul", (MUL, 60 * scale))
        product(t, 430 * scale, kernel, rows)


def backward(t: Thread, body: Callable[[Thread], None]) -> None:
    """The main thread waits while autograd's thread launches."""
    other = next((one for one in t.world.threads if one.rank == t.rank and one.tid == 55), None)
    other = other or t.world.thread(t.rank, 55, "pt_autograd_0")
    begin, end = Flag(), Flag()
    t.set(begin)
    other.need(begin)
    body(other)
    other.set(end)
    t.need(end)


def grads(t: Thread, count: int, scale: float, kernel: str = NVJET) -> None:
    for _ in range(count):
        for name, us in (("MulBackward0", 60), ("SiluBackward0", 55), ("AddmmBackward0", 420), ("AddmmBackward0", 430)):
            with r(t, f"autograd::engine::evaluate_function: {name}", "cpu_op"):
                t.cpu(4)
                if "Mul" in name or "Silu" in name:
                    op(t, name, (MUL, us * scale))
                else:
                    op(t, "aten::mm", (kernel, us * scale))
                    op(t, "aten::mm", (kernel, us * scale))


def adam(t: Thread, us: float = 180) -> None:
    with r(t, "Optimizer.step#AdamW.step"):
        t.cpu(90)
        for _ in range(2):
            op(t, "aten::_fused_adamw_", (FOREACH, us))


def read(t: Thread, name: str = "aten::item") -> None:
    """A value of the device, on the host."""
    with r(t, name, "cpu_op"), r(t, "aten::_local_scalar_dense", "cpu_op"):
        t.cpu(3)
        t.copy(8, "DtoH")


def loop(t: Thread, body: Callable[[int], None], text: str = "ProfilerStep#{}", count: int = 8) -> None:
    for number in range(count):
        if text:
            t.begin(text.format(number + 2))
        body(number)
        t.cpu(15)
        if text:
            t.end()
    t.wait("all")


def last(t: Thread) -> Flag:
    """What was given to the main stream last by the rank's threads."""
    work = [(one, act) for one in t.world.threads if one.rank == t.rank for act in one.acts if act[0] == "work"]
    mine = [act for one, act in work if one is not t and act[1]["stream"] == 7][-1:]
    own = [act for one, act in work if one is t and act[1]["stream"] == 7][-1:]
    return (mine or own)[-1][1]["done"]


def graph(t: Thread, nodes: list[tuple[str, float]], call: float = 28) -> Flag:
    """A graph whose nodes run one after another; a flag of its first node."""
    done = t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=call, node=1)
    t.acts.append(("more", nodes[1:]))
    return done


def decode_nodes(layers: int, scale: float, gemm: str = NVJET, attention: str = FA3) -> list[tuple[str, float]]:
    one = [(LNORM, 2.4), (gemm, 9.0 * scale), (attention, 6.5), (gemm, 6.0 * scale), (LNORM, 2.4), (gemm, 18 * scale),
           (SILU, 2.2), (gemm, 10 * scale)]  # fmt: skip
    return one * layers


# -- input and copies ----------------------------------------------------------------------------------


def pin_memory(w: World, edited: bool, rng: Random) -> None:
    """Segmentation: images and masks by .cuda() of pageable memory -> pinned and non_blocking, on the same stream."""
    t, size, scale = w.thread(), rng.uniform(60e6, 110e6), rng.uniform(0.7, 1.1)

    def body(_: int) -> None:
        for share in (1.0, 0.35):
            with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
                t.cpu(8)
                t.copy(size * share, pinned=edited)
        for _stage in range(14):
            op(t, "aten::cudnn_convolution", (CONV, 380 * scale))
            op(t, "aten::batch_norm", (BN, 110 * scale))
            op(t, "aten::relu_", (RELU, 60 * scale))
        backward(t, lambda o: [op(o, "aten::convolution_backward", (DGRAD, 500 * scale)) for _ in range(14)])
        adam(t)

    loop(t, body)


def prefetcher(w: World, edited: bool, rng: Random) -> None:
    """Pinned batches copied at the start of a step on the only stream -> one batch ahead on a stream of their own."""
    t, size, scale = w.thread(), rng.uniform(110e6, 160e6), rng.uniform(0.5, 0.8)
    flags = [Flag() for _ in range(10)]

    def upload(number: int) -> None:
        with r(t, "aten::copy_", "cpu_op"):
            flags[number] = t.copy(size, pinned=True, **({"stream": 28} if edited else {}))

    def body(number: int) -> None:
        upload(number + 1 if edited else number)
        t.kernel(CAST, 30, after=[flags[number]])
        for n in range(5):
            layer(t, n, 0.35 * scale)
        backward(t, lambda o: grads(o, 5, 0.7 * scale))
        adam(t)

    if edited:
        upload(0)
    loop(t, body)


def jax_put(w: World, edited: bool, rng: Random) -> None:
    """JAX: each step's NumPy batch goes to the device when the step is called -> prefetch_to_device, two ahead."""
    t, size, us = w.thread(), rng.uniform(30e6, 55e6), rng.uniform(130, 190)
    other = w.thread(0, 33, "prefetch") if edited else None
    flags = [Flag() for _ in range(12)]
    if other:
        for number in range(12):
            done = Flag()
            other.copy(size, stream=21, api="cuMemcpyHtoDAsync_v2")
            flags[number] = done
            other.set(done)

    def body(number: int) -> None:
        if other:
            t.need(flags[number], "")
        else:
            t.cpu(60)
            t.copy(size, api="cuMemcpyHtoDAsync_v2")
        t.cpu(140)
        for n in range(26):
            t.cpu(2)
            t.kernel(f"gemm_fusion_dot_{n}", us, api="cuLaunchKernelEx")
            t.kernel(f"input_reduce_fusion_{n}", us * 0.3, api="cuLaunchKernelEx")

    loop(t, body, "train_step", 12)


def more_workers(w: World, edited: bool, rng: Random) -> None:
    """DataLoader: one worker, which is too slow -> eight with prefetch_factor=4."""
    t, us, scale = w.thread(), rng.uniform(30_000, 42_000), rng.uniform(0.8, 1.2)
    count, workers = 8, 8 if edited else 1
    ready = [Flag() for _ in range(count)]
    for one in range(workers):
        other = w.thread(0, 300 + one, "pt_data_worker")
        for number in range(one, count, workers):
            other.cpu(us * (0.15 if edited else 1))
            other.set(ready[number])

    def body(number: int) -> None:
        with r(t, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            t.need(ready[number], "poll")
            t.cpu(180)
        t.copy(30e6, pinned=True)
        for n in range(4):
            layer(t, n, 0.6 * scale)
        backward(t, lambda o: grads(o, 4, 1.1 * scale))
        adam(t)

    loop(t, body, count=count)


def tf_data(w: World, edited: bool, rng: Random) -> None:
    """TensorFlow: tf.data maps and batches in the step -> parallel calls and prefetch(AUTOTUNE)."""
    t, ms = w.thread(), rng.uniform(18, 26)
    other = w.thread(0, 44, "tf_data_iterator") if edited else None
    ready = [Flag() for _ in range(10)]
    for number in range(10 if other else 0):
        other.cpu(ms * 300 if number else 100)
        other.set(ready[number])

    def body(number: int) -> None:
        with r(t, "IteratorGetNext"):
            if other:
                t.need(ready[number], "pthread_cond_wait")
            t.cpu(120 if other else ms * 1_000)
        t.copy(9e6, pinned=True)
        for n in range(30):
            with r(t, f"model/block_{n}/MatMul"):
                t.cpu(9)
                t.kernel(XMMA, 330)
            with r(t, f"model/block_{n}/Relu"):
                t.cpu(7)
                t.kernel("void tensorflow::functor::ReluGradHalfKernelVector(Eigen::bfloat16 const*, int)", 60)

    loop(t, body, "train {}", 10)


def gpu_augment(w: World, edited: bool, rng: Random) -> None:
    """Crop, flip and colour jitter of each picture with PIL in the main process -> Kornia on the device."""
    t, pictures, scale = w.thread(), rng.randint(24, 40), rng.uniform(0.6, 0.9)

    def body(_: int) -> None:
        with r(t, "augment_batch"):
            for _picture in range(0 if edited else pictures):
                t.cpu(rng.uniform(420, 520))
                op(t, "aten::div", us=30)
        t.copy(pictures * (196_608 if edited else 786_432), pinned=True)
        for name in ("grid_sampler", "adjust_hue", "sub") if edited else ():
            op(t, f"aten::{name}", (MUL, 90))
        for _stage in range(12):
            op(t, "aten::cudnn_convolution", (CONV, 420 * scale))
            op(t, "aten::batch_norm", (BN, 90 * scale))
            op(t, "aten::relu_", (RELU, 40 * scale))
        backward(t, lambda o: [op(o, "aten::convolution_backward", (DGRAD, 640 * scale)) for _ in range(12)])
        adam(t)
        read(t)

    loop(t, body)


def graph_sampling(w: World, edited: bool, rng: Random) -> None:
    """A graph network samples neighbours and gathers features on the host -> both on the GPU."""
    t, ms, size = w.thread(), rng.uniform(7, 11), rng.uniform(20e6, 32e6)

    def body(_: int) -> None:
        with r(t, "sample_neighbors"):
            if edited:
                for _hop in range(3):
                    op(t, "dgl::sample", ("void dgl::aten::impl::_CSRRowWiseSampleUniformKernel<long, 4>(x)", 160))
            else:
                t.cpu(ms * 1_000)
        with r(t, "gather_features"):
            if edited:
                op(t, "aten::index_select", (EMBED, 210))
            else:
                t.cpu(ms * 350)
                t.copy(size)
        for _layer in range(3):
            op(t, "aten::spmm", ("void cusparse::csrmm_v3_kernel<std::integral_constant<int, 128>, float>(x)", 620))
            product(t, 260, XMMA, 60_000)
            op(t, "aten::relu", (RELU, 50))
        backward(t, lambda o: [op(o, "aten::mm", (XMMA, 500)) for _ in range(6)])
        adam(t, 40)

    loop(t, body, "iteration {}", 10)


def constants(w: World, edited: bool, rng: Random) -> None:
    """torch.tensor([...], device='cuda') of small constants in each layer -> buffers that are registered once."""
    t, layers, scale = w.thread(), rng.randint(16, 24), rng.uniform(0.03, 0.05)

    def body(_: int) -> None:
        for n in range(layers):
            for _one in range(0 if edited else 3):
                with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
                    t.cpu(9)
                    t.copy(48)
            layer(t, n, scale)
        read(t)

    loop(t, body, "forward {}", 10)


def results_home(w: World, edited: bool, rng: Random) -> None:
    """Evaluation appends each batch's predictions with .cpu() -> they stay on the device, one copy at the end."""
    t, size = w.thread(), rng.uniform(24e6, 40e6)
    batches = 12

    def body(number: int) -> None:
        t.cpu(400)
        for n in range(5):
            layer(t, n, 0.7)
        if not edited:
            with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
                t.copy(size, "DtoH")
        elif number == batches - 1:
            with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
                t.copy(size * 1.2, "DtoH", pinned=True)

    loop(t, body, "eval batch {}", batches)


def deep_copy(w: World, edited: bool, rng: Random) -> None:
    """Kokkos: deep_copy of five fields to host mirrors and back in each step, to set boundaries -> on the device."""
    t, size = w.thread(), rng.uniform(2e6, 4e6)
    kernel = "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<{}> >(x)"

    def body(_: int) -> None:
        for name in ("Advect", "Diffuse", "Project", "Pressure", "Correct"):
            for _ in range(4):
                t.cpu(5)
                t.kernel(kernel.format(name), 240)
        for _field in range(0 if edited else 5):
            t.copy(size, "DtoH", api="cudaMemcpy")
            t.cpu(40)
            t.copy(size, api="cudaMemcpy")
        for _field in range(5 if edited else 0):
            t.kernel(kernel.format("Boundary"), 9)
        t.wait("all")

    loop(t, body, "step", 10)


# -- kernels -------------------------------------------------------------------------------------------


def nhwc(w: World, edited: bool, rng: Random) -> None:
    """ResNet training with autocast: NCHW -> channels_last."""
    t, scale = w.thread(), rng.uniform(0.8, 1.2)
    around = () if edited else ((IN, 46 * scale),)

    def body(_: int) -> None:
        for _stage in range(18):
            op(t, "aten::cudnn_convolution", *around, *around, (CONV, 130 * scale), *((OUT, 44 * scale),) * len(around))
            op(t, "aten::cudnn_batch_norm", (BN if edited else BNN, 55 * scale))
            op(t, "aten::relu_", (RELU, 30 * scale))
        backward(
            t,
            lambda o: [
                op(o, "aten::convolution_backward", *around, (DGRAD, 160 * scale), (DGRAD, 150 * scale))
                for _ in range(18)
            ],
        )
        adam(t, 80)

    loop(t, body)


def autocast(w: World, edited: bool, rng: Random) -> None:
    """BERT fine-tuned in FP32 -> autocast to BF16, which casts weights in each step."""
    t, layers, scale = w.thread(), rng.randint(5, 7), rng.uniform(0.8, 1.3)
    kernel, factor, kind = (XMMA, 0.14, "c10::BFloat16") if edited else (SIMT, 1.0, "float")
    half = 0.55 if edited else 1.0

    def body(_: int) -> None:
        for _layer in range(layers):
            for us in (700, 700, 700, 700, 2_600, 2_700):
                if edited:
                    op(t, "aten::to", (CAST, 14))
                product(t, us * scale * factor, kernel, 8192, kind)
            op(t, "aten::scaled_dot_product_attention", (FA2, 190 * scale * half))
            op(t, "aten::gelu", (SILU, 130 * scale * half))
            op(t, "aten::layer_norm", (LNORM, 90 * scale * half))
        backward(t, lambda o: grads(o, layers, 9 * scale * factor, kernel))
        adam(t)

    loop(t, body, count=6)


def conv_tf32(w: World, edited: bool, rng: Random) -> None:
    """A VAE decodes in FP32 on the ordinary units -> TF32 convolutions."""
    t, scale = w.thread(), rng.uniform(0.7, 1.2)
    conv = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16_stage4_kernel_cudnn"

    def body(_: int) -> None:
        for _stage in range(16):
            op(
                t,
                "aten::native_group_norm",
                ("void at::native::RowwiseMomentsCUDAKernel<float>(long, float)", 80 * scale),
            )
            op(t, "aten::silu", (SILU, 70 * scale))
            op(t, "aten::cudnn_convolution", (conv, 280 * scale) if edited else (SCUDNN, 1_150 * scale))
            op(t, "aten::add", (ADD, 60 * scale))
        read(t, "aten::isnan")

    loop(t, body, "vae.decode", 8)


def sdpa(w: World, edited: bool, rng: Random) -> None:
    """CLIP attention with bmm, mask, softmax, dropout -> scaled_dot_product_attention of cuDNN."""
    t, layers, scale = w.thread(), rng.randint(8, 12), rng.uniform(0.8, 1.3)

    def body(_: int) -> None:
        for n in range(layers):
            with r(t, f"nn.Module: CLIPAttention_{n}", "python_function"):
                for _ in range(3):
                    product(t, 130 * scale)
                if edited:
                    name = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x64_4x1x1_kernel0_0"
                    op(t, "aten::_scaled_dot_product_cudnn_attention", (name, 160 * scale))
                else:
                    op(t, "aten::mul", (MUL, 60 * scale))
                    op(t, "aten::bmm", (XMMA, 150 * scale))
                    op(t, "aten::add", (ADD, 190 * scale))
                    op(t, "aten::_softmax", (SOFT, 200 * scale))
                    op(t, "aten::to", (CAST, 150 * scale))
                    op(t, "aten::bmm", (XMMA, 140 * scale))
                product(t, 130 * scale)
            product(t, 460 * scale)
            op(t, "aten::gelu", (SILU, 60 * scale))
            product(t, 470 * scale)
        t.wait("all")

    loop(t, body, "encode_image", 8)


def compile_norms(w: World, edited: bool, rng: Random) -> None:
    """A diffusion transformer modulates, gates and adds by single operators -> torch.compile."""
    t, layers, us = w.thread(), rng.randint(10, 14), rng.uniform(65, 95)

    def body(_: int) -> None:
        for _layer in range(layers):
            for part in range(2):
                if edited:
                    with r(t, f"triton_per_fused_native_layer_norm_add_mul_{part}", "cpu_op"):
                        t.cpu(3)
                        name = f"triton_per_fused_add_mul_native_layer_norm_{part}"
                        t.kernel(name, us * 1.6, api="cuLaunchKernelEx")
                else:
                    op(t, "aten::native_layer_norm", (LNORM, us * 1.1))
                    for name, kernel in (("add", ADD), ("mul", MUL), ("add", ADD)):
                        op(t, f"aten::{name}", (kernel, us))
                product(t, 300)
                if part == 0:
                    op(t, "aten::scaled_dot_product_attention", (FA3, 330))
                product(t, 210)
                for kernel in () if edited else (MUL, ADD):
                    op(t, "aten::mul" if kernel == MUL else "aten::add", (kernel, us))
        read(t)

    loop(t, body, "denoise {}", 8)


def cpp_fused(w: World, edited: bool, rng: Random) -> None:
    """C++: an integrator's four passes over the particles, a kernel each -> one kernel."""
    t, us = w.thread(), rng.uniform(80, 130)

    def body(_: int) -> None:
        for _sub in range(6):
            if edited:
                t.kernel("void integrate_all(float4*, float4*, float4 const*, float, int)", us * 1.5)
            else:
                for name in ("scale_velocity", "add_force", "advance_position", "apply_damping"):
                    t.kernel(f"void {name}(float4*, float4 const*, float, int)", us)
            t.kernel("void pair_forces(float4 const*, int const*, float4*, int)", us * 3.2)
        t.wait("all")

    loop(t, body, "timestep", 10)


def padded(w: World, edited: bool, rng: Random) -> None:
    """Hidden sizes of 1,021 -> 1,024: products that read pairs become aligned."""
    t, scale = w.thread(), rng.uniform(0.8, 1.3)

    def body(_: int) -> None:
        for _layer in range(8):
            op(t, "aten::layer_norm", (LNORM, 40 * scale))
            for us in (130, 300, 310):
                product(t, us * scale * (1 if edited else 3.4), XMMA if edited else ODD)
            op(t, "aten::gelu", (SILU, 35 * scale))
        backward(t, lambda o: grads(o, 4, scale * (0.5 if edited else 1.6), XMMA if edited else ODD))
        adam(t)

    loop(t, body)


def int4(w: World, edited: bool, rng: Random) -> None:
    """A 7B model answers one request in BF16 -> weights of 4 bits (Marlin), a graph both times."""
    t, layers = w.thread(), rng.randint(14, 20)

    def body(_: int) -> None:
        t.cpu(80)
        nodes = []
        for _layer in range(layers):
            for us in (28, 18, 96, 50):
                nodes += [(LNORM, 2.4), (QGEMV if edited else GEMV, us * (0.32 if edited else 1))]
            nodes += [(FA3, 5.0), (SILU, 2.2)]
        graph(t, nodes)
        op(t, "aten::argmax", (ARGMAX, 9))
        read(t)

    loop(t, body, "decode step", 10)


def few_blocks(w: World, edited: bool, rng: Random) -> None:
    """C++: a histogram of 8 blocks of 128 threads -> of 1,056 blocks."""
    t, us = w.thread(), rng.uniform(1_400, 2_400)

    def body(_: int) -> None:
        t.kernel("void load_tile(uchar4 const*, float*, int, int)", 210)
        t.kernel("void histogram256(unsigned char const*, unsigned int*, int)", us * (0.06 if edited else 1),
                 grid=1_056 if edited else 8, block=128)  # fmt: skip
        t.kernel("void equalize(unsigned int const*, float*, int)", 260)
        t.wait(last(t), "cudaStreamSynchronize")

    loop(t, body, "frame", 12)


def benchmark(w: World, edited: bool, rng: Random) -> None:
    """cudnn.benchmark=True with pictures of one size: better algorithms, as fast a host."""
    t, scale = w.thread(), rng.uniform(0.8, 1.2)

    def body(_: int) -> None:
        for _stage in range(20):
            conv = CONV.replace("128x64x64", "256x128x32") if edited else CONV
            op(t, "aten::cudnn_convolution", (conv, 360 * scale * (0.68 if edited else 1)))
            op(t, "aten::batch_norm", (BN, 60 * scale))
            op(t, "aten::relu_", (RELU, 40 * scale))
        read(t)

    loop(t, body, "predict {}", 8)


def towers(w: World, edited: bool, rng: Random) -> None:
    """Image and text tower of small kernels, one after another -> on two streams."""
    t, us = w.thread(), rng.uniform(28, 40)

    def tower(stream: int) -> Flag:
        done = Flag()
        for _ in range(40):
            with r(t, "aten::addmm", "cpu_op"):
                t.cpu(3)
                done = t.kernel(XMMA, us, stream=stream, grid=24, block=128)
        return done

    def body(_: int) -> None:
        with r(t, "image_tower"):
            image = tower(7)
        with r(t, "text_tower"):
            text = tower(13 if edited else 7)
        t.kernel(XMMA, 15, after=[image, text])
        read(t)

    loop(t, body, "embed {}", 10)


# -- host, launches, waits -----------------------------------------------------------------------------


def gan_optimisers(w: World, edited: bool, rng: Random) -> None:
    """A GAN with two Adam optimisers, foreach=False -> fused=True."""
    t, parameters = w.thread(), rng.randint(60, 90)

    def body(_: int) -> None:
        for net in ("discriminator", "generator"):
            with r(t, net):
                for _ in range(6):
                    op(t, "aten::cudnn_convolution", (CONV, 190))
                    op(t, "aten::leaky_relu_", (RELU, 30))
                backward(t, lambda o: [op(o, "aten::convolution_backward", (DGRAD, 330)) for _ in range(6)])
            with r(t, "Optimizer.step#Adam.step"):
                if edited:
                    op(t, "aten::_fused_adam_", (FOREACH, 90), us=60)
                    continue
                for _parameter in range(parameters):
                    for name in ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"):
                        op(t, f"aten::{name}", (MUL, 2.6), us=4.5)

    loop(t, body)


def small_model(w: World, edited: bool, rng: Random) -> None:
    """A tabular model of 30 small operators a step, trained eagerly -> compiled, with CUDA graphs."""
    t, layers = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        t.copy(120_000, pinned=True)
        if edited:
            t.cpu(60)
            graph(t, [(XMMA, 6.5), (RELU, 2.4), (LNORM, 3.0)] * layers)
            t.cpu(40)
            graph(t, [(XMMA, 6.5), (XMMA, 6.5), (RELU, 2.4), (LNORM, 3.6)] * layers)
        else:
            for _ in range(layers):
                product(t, 6.5, XMMA, 512)
                op(t, "aten::relu", (RELU, 2.4))
                op(t, "aten::layer_norm", (LNORM, 3.0))

            def grad(o: Thread) -> None:
                for _ in range(layers):
                    for name, kernels in (
                        ("NativeLayerNormBackward0", [(LNORM, 3.6)]),
                        ("ReluBackward0", [(RELU, 2.4)]),
                        ("AddmmBackward0", [(XMMA, 6.5), (XMMA, 6.5)]),
                    ):
                        with r(o, f"autograd::engine::evaluate_function: {name}", "cpu_op"):
                            op(o, name, *kernels)

            backward(t, grad)
        adam(t, 12)

    loop(t, body, count=12)


def sentences(w: World, edited: bool, rng: Random) -> None:
    """A corpus is encoded text by text -> in batches of 32."""
    t, texts = w.thread(), 32
    layers = rng.randint(4, 6)

    def forward(scale: float, rows: int) -> None:
        t.copy(rows * 1_024, pinned=True)
        with r(t, "nn.Module: SentenceEncoder_0", "python_function"):
            for n in range(layers):
                layer(t, n, scale, XMMA, rows=rows)

    def body(_: int) -> None:
        for _text in range(1 if edited else texts):
            forward(0.4 if edited else 0.035, 32 * 64 if edited else 64)
        read(t)

    loop(t, body, "encode corpus {}", 5)


def served_alone(w: World, edited: bool, rng: Random) -> None:
    """A classifier answers requests one at a time -> dynamic batching of eight."""
    t, layers, rows = w.thread(), rng.randint(6, 9), 8 if edited else 1

    def body(_: int) -> None:
        t.cpu(90)
        t.copy(602_112 * rows, pinned=True)
        for n in range(layers):
            layer(t, n, 0.07 if edited else 0.04, XMMA, rows=128 * rows)
        read(t)

    loop(t, body, "request {}", 12)


def finite(w: World, edited: bool, rng: Random) -> None:
    """if not torch.isfinite(loss): after each forward, by a host that is hardly ahead -> checked in every 50th step."""
    t, layers, scale = w.thread(), rng.randint(8, 12), rng.uniform(0.12, 0.16)

    def body(_: int) -> None:
        for n in range(layers):
            layer(t, n, scale)
        op(t, "aten::isfinite", (SIGMOID, 2), (MEAN, 3))
        if not edited:
            read(t, "aten::is_nonzero")
        backward(t, lambda o: grads(o, layers, 0.02))
        adam(t, 30)

    loop(t, body)


def repeats(w: World, edited: bool, rng: Random) -> None:
    """repeat_interleave asks the device for its size in each layer -> output_size is given."""
    t, layers, scale = w.thread(), rng.randint(12, 18), rng.uniform(0.09, 0.13)

    def body(_: int) -> None:
        for n in range(layers):
            with r(t, "aten::repeat_interleave", "cpu_op"):
                op(t, "aten::cumsum", ("void at_cuda_detail::cub::DeviceScanKernel<DeviceScanPolicy<long> >(x)", 3))
                if not edited:
                    t.copy(8, "DtoH")
                op(t, "aten::index_select", (EMBED, 6))
            layer(t, n, scale)
        read(t)

    loop(t, body, "forward {}", 10)


def no_cache(w: World, edited: bool, rng: Random) -> None:
    """PYTORCH_NO_CUDA_MEMORY_CACHING=1 was left set: each tensor is taken and freed -> unset."""
    t, layers = w.thread(), rng.randint(10, 14)

    def one(name: str, kernel: str, us: float) -> None:
        with r(t, name, "cpu_op"):
            t.cpu(5)
            if not edited:
                t.api("cudaMalloc", rng.uniform(90, 140))
            done = t.kernel(kernel, us)
            if not edited:
                t.wait(done, "cudaFree", 60)

    def body(_: int) -> None:
        for _layer in range(layers):
            one("aten::layer_norm", LNORM, 22)
            one("aten::addmm", NVJET, 110)
            one("aten::gelu", SILU, 24)
            one("aten::addmm", NVJET, 130)
        read(t)

    loop(t, body, "forward {}", 8)


def barrier(w: World, edited: bool, rng: Random) -> None:
    """Each iteration ends with cudaDeviceSynchronize, although the next one only launches -> events, as needed."""
    t, us = w.thread(), rng.uniform(14, 22)

    def body(_: int) -> None:
        t.cpu(70)
        for n in range(24):
            t.cpu(3)
            t.kernel(f"void lbm_collide_stream_{n % 3}(float*, float const*, int)", us)
        if not edited:
            t.wait("all")

    loop(t, body, "", 30)


def whisper(w: World, edited: bool, rng: Random) -> None:
    """Whisper decodes with a cache that grows by torch.cat, eagerly -> a static cache and a graph of each token."""
    t, layers = w.thread(), rng.randint(8, 12)

    def body(_: int) -> None:
        if edited:
            t.cpu(55)
            graph(t, decode_nodes(layers, 0.8))
        else:
            for n in range(layers):
                op(t, "aten::cat", (CAST, 5.0))
                op(t, "aten::cat", (CAST, 5.0))
                layer(t, n, 0.024, rows=1)
        op(t, "aten::argmax", (ARGMAX, 5))
        read(t)

    loop(t, body, "token {}", 20)


def pieces(w: World, edited: bool, rng: Random) -> None:
    """A server replays a graph for each piece of a layer, with attention between them eagerly -> one graph of all."""
    t, layers = w.thread(), rng.randint(14, 20)
    piece = [(LNORM, 2.4), (NVJET, 9.0), (NVJET, 6.0), (SILU, 2.2), (NVJET, 8.0)]

    def body(_: int) -> None:
        t.cpu(120)
        if edited:
            graph(t, [*piece, (FA3, 6.0)] * layers, 40)
        for _layer in range(0 if edited else layers):
            graph(t, piece, 12)
            op(t, "vllm::unified_attention", (FA3, 6.0), us=26)
        op(t, "aten::argmax", (ARGMAX, 7))
        read(t)

    loop(t, body, "execute_model", 14)


def boxes(w: World, edited: bool, rng: Random) -> None:
    """A detector filters its boxes on the host, with NumPy -> torchvision's nms on the device."""
    t, ms, scale = w.thread(), rng.uniform(6, 10), rng.uniform(0.6, 0.9)

    def body(_: int) -> None:
        t.copy(4.9e6, pinned=True)
        for _stage in range(20):
            op(t, "aten::cudnn_convolution", (CONV, 210 * scale))
            op(t, "aten::silu_", (SILU, 40 * scale))
        if edited:
            op(t, "torchvision::nms", ("void (anonymous namespace)::nms_kernel_impl<float>(int, double)", 60))
            read(t)
            return
        with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
            t.copy(2.9e6, "DtoH")
        with r(t, "non_max_suppression"):
            t.cpu(ms * 1_000)

    loop(t, body, "image {}", 10)


def environment(w: World, edited: bool, rng: Random) -> None:
    """Reinforcement learning: one environment is stepped between policies of batch 1 -> processes, overlapped."""
    t, us = w.thread(), rng.uniform(900, 1_500)

    def body(_: int) -> None:
        with r(t, "env.step"):
            t.cpu(us * (0.18 if edited else 1))
        t.copy(84 * 84 * 4)
        with r(t, "policy"):
            for _ in range(4):
                op(t, "aten::cudnn_convolution", (CONV, 12))
                op(t, "aten::relu", (RELU, 2))
            product(t, 8, XMMA, 1)
            op(t, "aten::argmax", (ARGMAX, 4))
        read(t)

    loop(t, body, "act {}", 25)


def mel(w: World, edited: bool, rng: Random) -> None:
    """Speech: mel features by librosa before each request -> torch.stft on the device."""
    t, ms = w.thread(), rng.uniform(10, 16)

    def body(_: int) -> None:
        with r(t, "log_mel_spectrogram"):
            if edited:
                t.copy(1.9e6)
                op(t, "aten::stft", ("void regular_fft_400<float2, true>(kernel_arguments_t<unsigned int>)", 40))
                product(t, 22, XMMA)
            else:
                t.cpu(ms * 1_000)
                t.copy(960_000)
        for n in range(10):
            layer(t, n, 0.45)
        read(t)

    loop(t, body, "transcribe {}", 8)


def lazy(w: World, edited: bool, rng: Random) -> None:
    """C++: a short program loads each kernel's code at its first launch, in its loop -> loaded before (EAGER)."""
    t, kernels = w.thread(), rng.randint(24, 36)
    t.kernel("void init(float*, int)", 120)
    if edited:
        t.wait("all")

    def body(number: int) -> None:
        for n in range(kernels):
            t.cpu(4)
            first = not edited and number == 0
            t.kernel(
                f"void module_{n}::stage(float*, float const*, int)", 45, call=rng.uniform(500, 1_100) if first else 4.2
            )
        t.wait("all")

    loop(t, body, "pass {}", 4)


# -- ranks ---------------------------------------------------------------------------------------------


def backward_prefetch(w: World, edited: bool, rng: Random) -> None:
    """FSDP: weights of a layer are gathered when its backward begins -> backward_prefetch=BACKWARD_PRE."""
    us, layers = rng.uniform(900, 1_300), 6
    for rank in range(4):
        t = w.thread(rank)

        def grad(o: Thread, number: int) -> None:
            done = Flag()
            gathered = [Flag() for _ in range(layers)]
            for n in range(layers):
                if edited and n == 0:
                    gathered[0] = o.kernel(GATHER, us, stream=24, group=(number, n, "g"))
                if edited and n + 1 < layers:
                    gathered[n + 1] = o.kernel(GATHER, us, stream=24, group=(number, n + 1, "g"))
                if not edited:
                    gathered[n] = o.kernel(GATHER, us, stream=24, group=(number, n, "g"), after=[done] if n else [])
                o.kernel(MUL, 4, after=[gathered[n]])
                for _ in range(5):
                    op(o, "aten::mm", (NVJET, 420))
                done = o.kernel(NVJET, 100)
                o.kernel(SCATTER, us * 0.5, stream=25, group=(number, n, "s"), after=[done])

        def body(number: int, t: Thread = t) -> None:
            for n in range(layers):
                layer(t, n, 0.9)
            backward(t, lambda o: grad(o, number))
            adam(t)
            t.wait("all")

        loop(t, body, count=5)


def one_shot(w: World, edited: bool, rng: Random) -> None:
    """Tensor-parallel decoding: two sums over ranks a layer by NCCL's ring -> one-shot sums over NVLink."""
    us, layers = rng.uniform(30, 42), rng.randint(12, 16)
    name = (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(RankData*, RankSignals, Signal*)"
        if edited
        else ALLREDUCE
    )
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for n in range(layers):
                for part in range(2):
                    t.cpu(2)
                    t.kernel(LNORM, 3)
                    t.cpu(2)
                    t.kernel(NVJET, 14)
                    t.cpu(2)
                    t.kernel(FA3 if part else NVJET, 12)
                    t.cpu(2)
                    t.kernel(name, us * (0.28 if edited else 1), group=(number, n, part))
            t.kernel(ARGMAX, 6)
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "decode {}", 10)


def p2p(w: World, edited: bool, rng: Random) -> None:
    """NCCL_P2P_DISABLE=1 was left set: sums of gradients go through host memory -> unset."""
    us, scale = rng.uniform(9_000, 14_000), rng.uniform(0.8, 1.1)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for n in range(4):
                layer(t, n, 0.6 * scale)
            flags: list[Flag] = []

            def grad(o: Thread) -> None:
                for part in range(3):
                    grads(o, 2, 0.6 * scale)
                    mark = next(act for act in reversed(o.acts) if act[0] == "work")[1]["done"]
                    flags.append(o.kernel(ALLREDUCE, us / 3 * (0.22 if edited else 1), stream=31, group=(number, part),
                                          after=[mark]))  # fmt: skip

            backward(t, grad)
            t.kernel(FOREACH, 160, after=flags)
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, count=6)


def logged_loss(w: World, edited: bool, rng: Random) -> None:
    """Each step sums the loss over ranks, reads it and meets a barrier -> every 20th step."""
    scale = rng.uniform(0.07, 0.1)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            t.cpu(350)
            for n in range(8):
                layer(t, n, scale)
            backward(t, lambda o: grads(o, 6, scale))
            t.kernel(ALLREDUCE, 130, group=(number, 0))
            adam(t, 40)
            if not edited:
                for one in (1, 2, 3):
                    t.kernel(ALLREDUCE, 14, group=(number, one))
                    read(t)
                t.cpu(420)

        loop(t, body, count=8)


# -- the machine: nothing in a recording names it --------------------------------------------------------


def shared_gpu(w: World, edited: bool, rng: Random) -> None:
    """Another process has the GPU for slices of 2 ms -> it is gone."""
    t, scale = w.thread(), rng.uniform(0.5, 0.7)

    def body(_: int) -> None:
        for n in range(8):
            slow = not edited and n % 2
            layer(t, n, scale * (1.9 if slow else 1))
        read(t)

    loop(t, body, "forward {}", 8)


def power(w: World, edited: bool, rng: Random) -> None:
    """A power limit of 300 W -> 700 W: all kernels that compute are faster."""
    t, factor = w.thread(), rng.uniform(1.25, 1.5)

    def body(_: int) -> None:
        for n in range(5):
            layer(t, n, 0.8 * (1 if edited else factor))
        backward(t, lambda o: grads(o, 5, 0.8 * (1 if edited else factor)))
        adam(t)

    loop(t, body)


def numa(w: World, edited: bool, rng: Random) -> None:
    """The process runs on the other socket's cores: host code and launches are slow -> numactl."""
    t, slow = w.thread(), 1 if edited else rng.uniform(1.35, 1.6)

    def body(_: int) -> None:
        for _ in range(60):
            with r(t, "aten::addmm", "cpu_op"):
                t.cpu(9 * slow)
                t.kernel(XMMA, 5, call=5 * slow)
                t.cpu(5 * slow)
        read(t)

    loop(t, body, "forward {}", 12)


# -- regressions ---------------------------------------------------------------------------------------


def math_attention(w: World, edited: bool, rng: Random) -> None:
    """Slower: a mask was passed, and attention fell back from flash to plain products."""
    sdpa(w, not edited, rng)


def fewer_workers(w: World, edited: bool, rng: Random) -> None:
    """Slower: a container with one core less loads with one worker."""
    more_workers(w, not edited, rng)


def network(w: World, edited: bool, rng: Random) -> None:
    """Slower: gradients go through host memory since the last restart."""
    p2p(w, not edited, rng)


def slow_kernel(w: World, edited: bool, rng: Random) -> None:
    """Slower: a library's heuristic takes another kernel for one product of each layer."""
    t, layers = w.thread(), rng.randint(6, 9)

    def body(_: int) -> None:
        for n in range(layers):
            layer(t, n, 0.5)
            product(t, 640 if edited else 230, XMMA.replace("128x128x64", "64x64x32") if edited else XMMA)
        read(t)

    loop(t, body, "forward {}", 8)


def upcast(w: World, edited: bool, rng: Random) -> None:
    """Slower: norms are computed in FP32 since a fix, with casts around them."""
    t, layers = w.thread(), rng.randint(10, 14)

    def body(_: int) -> None:
        for n in range(layers):
            for _part in range(2):
                for _cast in range(2 if edited else 0):
                    op(t, "aten::to", (CAST, 70))
                op(t, "aten::native_layer_norm", (LNORM, 90 if edited else 45))
            layer(t, n, 0.3)
        read(t)

    loop(t, body, "forward {}", 8)


def slower_host(w: World, edited: bool, rng: Random) -> None:
    """Slower: a new Python makes the host code of a small model slower."""
    numa(w, not edited, rng)


# -- nothing that counts was changed ---------------------------------------------------------------------


def again(w: World, edited: bool, rng: Random) -> None:
    """The same: a training recorded twice."""
    t = w.thread()

    def body(_: int) -> None:
        t.copy(20e6, pinned=True)
        for n in range(5):
            layer(t, n, 0.6)
        backward(t, lambda o: grads(o, 5, 0.6))
        adam(t)

    loop(t, body, count=9 if edited else 8)


def again_host(w: World, edited: bool, rng: Random) -> None:
    """The same: a small model that its host limits, recorded twice."""
    t = w.thread()

    def body(_: int) -> None:
        for n in range(12):
            layer(t, n, 0.03, rows=64)
        read(t)

    loop(t, body, "forward {}", 12)


def again_ranks(w: World, edited: bool, rng: Random) -> None:
    """The same: two ranks, recorded twice."""
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for n in range(5):
                layer(t, n, 0.6)
            backward(t, lambda o: grads(o, 5, 0.6))
            done = t.kernel(ALLREDUCE, 1_800, stream=31, group=number, after=[last(t)])
            t.kernel(FOREACH, 160, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, count=6)


def needless_workers(w: World, edited: bool, rng: Random) -> None:
    """The same: more workers for a loader that was fast enough."""
    t = w.thread()

    def body(_: int) -> None:
        with r(t, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            t.cpu(rng.uniform(240, 260))
        t.copy(25e6, pinned=True)
        for n in range(5):
            layer(t, n, 0.8)
        backward(t, lambda o: grads(o, 5, 0.8))
        adam(t)

    loop(t, body)


def needless_graph(w: World, edited: bool, rng: Random) -> None:
    """The same: a graph for a model whose kernels are long."""
    t, layers = w.thread(), rng.randint(8, 11)

    def body(_: int) -> None:
        if edited:
            t.cpu(40)
            graph(t, [(LNORM, 40), (NVJET, 420), (FA3, 260), (NVJET, 380), (SILU, 50)] * layers)
        else:
            for _ in range(layers):
                op(t, "aten::layer_norm", (LNORM, 40))
                product(t, 420)
                op(t, "aten::scaled_dot_product_attention", (FA3, 260))
                product(t, 380)
                op(t, "aten::silu", (SILU, 50))
        t.wait("all")

    loop(t, body, "forward {}", 8)


def renamed(w: World, edited: bool, rng: Random) -> None:
    """The same: modules and ranges were renamed."""
    t = w.thread()

    def body(_: int) -> None:
        for n in range(6):
            with r(t, f"blk{n}" if edited else f"transformer.h.{n}"):
                op(t, "aten::layer_norm", (LNORM, 40))
                product(t, 380)
                op(t, "aten::scaled_dot_product_attention", (FA3, 240))
                product(t, 390)
        read(t)

    loop(t, body, "infer {}" if edited else "forward {}", 8)


def noisy(w: World, edited: bool, rng: Random) -> None:
    """The same: a host-bound program on a machine whose processors are shared."""
    t = w.thread()
    w.unsteady = 0.3

    def body(_: int) -> None:
        for n in range(10):
            layer(t, n, 0.04, rows=64)
        read(t)

    loop(t, body, "forward {}", 16)


SAME = "same undecided"  # words of compare that are right where nothing was changed
REFITTED = (
    Edited(pin_memory, "overlap-copies copy-less prefetch", "copies kernels", "both"),
    Edited(prefetcher, "overlap-copies prefetch", "kernels copies", "both"),
    Edited(jax_put, "overlap-copies prefetch prepare-ahead", "copies kernels", "nsys"),
    Edited(more_workers, "num-workers waits-for-thread", "host", "both"),
    Edited(tf_data, "host-code prepare-ahead num-workers", "host kernels", "nsys"),
    Edited(gpu_augment, "host-code prepare-ahead num-workers", "host kernels", "both", does_more=True),
    Edited(graph_sampling, "host-code prepare-ahead num-workers", "host", "both", does_more=True),
    Edited(constants, "copy-less copy-together remove-synchronization item-in-step overlap-copies",
           "host launches copies synchronisation", "both"),
    Edited(results_home, "copy-less overlap-copies item-in-step remove-synchronization", "copies kernels", "both"),
    Edited(deep_copy, "copy-less copy-together overlap-copies", "copies kernels", "nsys", program="lbm"),
    Edited(nhwc, "layout", "kernels", "both"),
    Edited(autocast, "tensor-cores", "kernels", "both"),
    Edited(conv_tf32, "tensor-cores", "kernels", "both"),
    Edited(sdpa, "fuse-attention", "kernels", "both"),
    Edited(compile_norms, "fuse-elementwise", "kernels", "both"),
    Edited(cpp_fused, "", "kernels", "nsys", program="md"),
    Edited(padded, "pad-sizes", "kernels", "both"),
    Edited(int4, "narrow-weights", "kernels", "both"),
    Edited(few_blocks, "launch-shape", "kernels", "nsys", program="imaging"),
    Edited(benchmark, "", "kernels", "both"),
    Edited(towers, "streams", "kernels", "both"),
    Edited(gan_optimisers, "fused-optimiser", "host launches", "both"),
    Edited(small_model, "cuda-graphs", "host launches", "both"),
    Edited(sentences, "batch-host-loop larger-batch", "host launches", "both"),
    Edited(served_alone, "larger-batch", "host launches", "both", samples=8),
    Edited(finite, "item-in-step remove-synchronization", "host synchronisation kernels launches", "both"),
    Edited(repeats, "item-in-step remove-synchronization", "kernels host synchronisation", "both"),
    Edited(no_cache, "allocate-once", "host kernels synchronisation", "both"),
    Edited(barrier, "remove-synchronization", "kernels host synchronisation launches", "nsys", program="lbm"),
    Edited(whisper, "cuda-graphs", "host launches", "both", does_more=True),
    Edited(pieces, "cuda-graphs host-code", "host launches", "both"),
    Edited(boxes, "host-code", "host kernels", "both", does_more=True),
    Edited(environment, "host-code", "host", "both"),
    Edited(mel, "host-code prepare-ahead", "host kernels", "both"),
    Edited(lazy, "", "kernels", "nsys", program="short", word="same faster"),
    Edited(backward_prefetch, "overlap-collectives", "kernels communication", "nsys", ranks=4),
    Edited(one_shot, "overlap-collectives", "communication kernels host launches", "nsys", ranks=2),
    Edited(p2p, "overlap-collectives", "communication", "nsys", ranks=2),
    Edited(logged_loss, "item-in-step remove-synchronization host-code overlap-collectives",
           "host synchronisation launches kernels", "nsys", ranks=2, does_more=True),
    Edited(shared_gpu, "", "kernels", "both"),
    Edited(power, "", "kernels", "both"),
    Edited(numa, "", "host launches", "both"),
    Edited(math_attention, "", "kernels", "both"),
    Edited(fewer_workers, "", "kernels", "both"),
    Edited(network, "", "kernels", "nsys", ranks=2),
    Edited(slow_kernel, "", "kernels", "both"),
    Edited(upcast, "", "kernels", "both"),
    Edited(slower_host, "", "host launches", "both"),
    Edited(again, "", "kernels", "both", word=SAME),
    Edited(again_host, "", "host launches", "both", word=SAME),
    Edited(again_ranks, "", "kernels", "nsys", ranks=2, word=SAME),
    Edited(needless_workers, "", "kernels", "both", word=SAME),
    Edited(needless_graph, "", "kernels", "both", word=SAME),
    Edited(renamed, "", "kernels", "both", word=SAME),
    Edited(noisy, "", "host launches", "both", word=SAME),
)  # fmt: skip
