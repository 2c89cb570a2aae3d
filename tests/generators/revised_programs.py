"""Fifty-nine edits by an eighth author, each as a program before and after it (`generators.edited` runs them).

Written before a look at the rules of the replay, the advice and the comparison, after public changes of 2024 to 2026:
servers of language models, experts, simulators in Python, JAX, ONNX Runtime, CUDA C++, jobs of ranks, CPUs alone. The
lever is what an engineer would say of the recording before the edit; where nothing in it could show the edit there is
none. First contact, 118 pairs: the lever among the first three 68 of 88, first 64; bound 40 of 46, compare 108 of 118,
limit 114 of 118. What it changed here: a copy on the device may be hidden as well as spared; a server of several
instances, and a kernel that also chooses, do more than one remedy; sizes of a batch are recorded; names of Eigen's
kernels are real ones; without a device nsys records no work that could be advised on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import Edited
from generators.refitted_programs import SAME, backward, graph, last, loop, op, r

B200 = "nvjet_sm100_tst_128x64_64x9_2x1_2cta_h_bz_TNT"
SMALL = "nvjet_sm100_tst_64x8_64x16_4x1_v_bz_splitK_TNT"
DEEP = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 4096u, 1u, 64u, 128u, 128u, 128u, 5u>(float*, int*, int)"
GROUPED = "fused_moe_kernel"
DECODE = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 1u, 8u>(Params)"
PREFILL = "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(MaskMode)1, 128u> >(Params)"
FMHA = "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP16VarSeqQ128Kv128StaticContext"
RMS = "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, unsigned int)"
ACT = "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu(float const&))>(__nv_bfloat16*, int)"
AT = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, {}ul> >(int, {})"
MUL, ADD, DIV, EXP, CLAMP = (
    AT.format(name, count, "x")
    for name, count in (
        ("BinaryFunctor<float, float, float, MulFunctor<float> >", 3),
        ("CUDAFunctor_add<float>", 3),
        ("BinaryFunctor<float, float, float, DivFunctor<float> >", 3),
        ("exp_kernel_cuda(at::TensorIteratorBase&)::lambda", 2),
        ("launch_clamp_scalar(at::TensorIteratorBase&)::lambda", 2),
    )
)
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(x)"
SOFT = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(TensorInfo<float const, unsigned int>)"
GATHER = "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::cuda_gather>(int, x)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, sum> > >(x)"
SORT = "void cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<cub::detail::radix_sort::policy_hub<float> >(x)"
CONV = "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32_warpgroupsize1x1x1_cudnn"
FIRST_DIRECTION = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)"
GATHERED = "ncclDevKernel_AllGather_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)"
EIGEN = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<TensorCwiseBinaryOp<scalar_{}_op<float> >>>"
MULTI = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMath>(x)"


def tokens(layers: int, us: float) -> list[tuple[str, float]]:
    """The nodes of a decode step."""
    return [(RMS, 2.2), (SMALL, us), (DECODE, us * 0.8), (SMALL, us * 0.6), (RMS, 2.2), (SMALL, us * 2), (ACT, 2),
            (SMALL, us)] * layers  # fmt: skip


def prefill(t: Thread, us: float, layers: int = 8) -> None:
    """Layers of a long prompt, launch by launch."""
    for _ in range(layers):
        for name, kernel, share in (("vllm::fused_add_rms_norm", RMS, 0.08), ("aten::mm", B200, 0.6),
                                    ("vllm::unified_attention", PREFILL, 0.5), ("aten::mm", B200, 0.4),
                                    ("vllm::fused_add_rms_norm", RMS, 0.08), ("aten::mm", B200, 1.4),
                                    ("_C::silu_and_mul", ACT, 0.15), ("aten::mm", B200, 0.7)):  # fmt: skip
            op(t, name, (kernel, us * share), us=3)


def tail(t: Thread, number: int = 1) -> None:
    """Reads of the device, small and pageable, as .item() and .cpu() do."""
    for _ in range(number):
        with r(t, "aten::to", "cpu_op"), r(t, "aten::copy_", "cpu_op"):
            t.cpu(4)
            t.copy(512, "DtoH")


def dense(t: Thread, us: float, layers: int = 6) -> None:
    """A forward and a backward pass, with the optimiser."""
    for _ in range(layers):
        op(t, "aten::native_layer_norm", (RMS, us * 0.1))
        op(t, "aten::addmm", (B200, us))
        op(t, "aten::scaled_dot_product_attention", (FMHA, us * 0.7))
        op(t, "aten::addmm", (B200, us))
    backward(t, lambda o: [op(o, "aten::mm", (B200, us)) for _ in range(4 * layers)])
    with r(t, "Optimizer.step#AdamW.step"):
        t.cpu(80)
        op(t, "aten::_fused_adamw_", (MULTI, us * 0.6))


# -- servers -------------------------------------------------------------------------------------------


def upper_bound(w: World, edited: bool, rng: Random) -> None:
    """Each decode step reads seq_lens.max().item() twice before its graph -> an upper bound that the host has."""
    t, us = w.thread(), rng.uniform(5, 7)

    def body(number: int) -> None:
        t.cpu(260)
        for _ in range(0 if edited else 2):
            op(t, "aten::max", (SUM, 4))
            with r(t, "aten::item", "cpu_op"):
                t.copy(8, "DtoH")
            t.cpu(330)
        for _ in range(2 if edited else 0):
            t.cpu(330)
        t.kernel("void create_flashinfer_kv_indices_triton(x)", 3)
        graph(t, tokens(22, us), 40)
        if number % 12 == 11:
            tail(t)

    loop(t, body, "", 36)


def grammar(w: World, edited: bool, rng: Random) -> None:
    """The grammar's mask of the next token is filled when the forward pass is over -> while it runs."""
    t, ms = w.thread(), rng.uniform(3, 4.5)

    def mask() -> None:
        with r(t, "grammar: fill_next_token_bitmask"):
            t.cpu(ms * 1_000)

    def body(_: int) -> None:
        t.cpu(300)
        graph(t, tokens(40, 9), 45)
        if edited:
            mask()
        t.wait("all", "cudaStreamSynchronize")
        if not edited:
            mask()
        t.copy(16_000, pinned=True)
        t.kernel("apply_token_bitmask_inplace_kernel", 6)
        t.kernel(SOFT, 20)
        t.kernel(SUM, 9)
        tail(t)

    loop(t, body, "execute_model {}", 14)


def shared_experts(w: World, edited: bool, rng: Random) -> None:
    """Shared experts run before the routed ones -> beside them, on a second stream, joined by events."""
    t, us, layers = w.thread(), rng.uniform(38, 50), rng.randint(14, 20)

    def body(_: int) -> None:
        for _layer in range(layers):
            with r(t, "vllm::moe_forward_shared", "cpu_op"):
                t.cpu(2)
                begun = t.kernel(RMS, 5)
                where = {"stream": 23, "after": [begun]} if edited else {}
                t.kernel(DEEP, us, grid=32, **where)
                done = t.kernel(ACT, 4, grid=32, **({"stream": 23} if edited else {}))
                done = t.kernel(DEEP, us * 0.5, grid=32, **({"stream": 23} if edited else {})) or done
                t.kernel(TOPK, 6, grid=32)
                t.kernel(GROUPED, us * 1.6, grid=64)
                t.kernel(GROUPED, us * 0.9, grid=64)
                t.kernel(ADD, 4, after=[done])
        tail(t)

    loop(t, body, "execute_model {}", 10)


def router(w: World, edited: bool, rng: Random) -> None:
    """Experts are chosen by softmax, topk, gather, sum, division, scaling and casts -> one fused kernel."""
    t, us, layers = w.thread(), rng.uniform(9, 13), rng.randint(18, 24)
    loose = [(CAST, us), (SOFT, us * 1.2), (TOPK, us * 2), (GATHER, us), (SUM, us), (DIV, us * 0.9), (MUL, us * 0.9),
             (CAST, us * 0.8)]  # fmt: skip
    one = [("void vllm::moe::topkGating<8, 128, 4, 16, 32, int, __nv_bfloat16>(x)", us)] if edited else loose
    nodes = [(RMS, 4), (SMALL, 22), (DECODE, 24), (SMALL, 16), (SMALL, 8), *one, (GROUPED, 46), (ACT, 5), (GROUPED, 30)]

    def body(_: int) -> None:
        t.cpu(500)
        graph(t, nodes * layers, 40)
        t.wait("all", "cudaStreamSynchronize")

    loop(t, body, "execute_model {}", 10)


def kv_blocks(w: World, edited: bool, rng: Random) -> None:
    """A cache of keys goes to the host block by block and layer by layer -> gathered by a kernel, in one copy."""
    t, blocks = w.thread(), rng.randint(300, 420)

    def body(_: int) -> None:
        prefill(t, 60)
        with r(t, "kv_connector: save"):
            if edited:
                t.kernel("lmc::load_and_reshape_multi_layer_kernel<long>", 60)
                t.copy(blocks * 65_536, "DtoH", pinned=True)
            for _block in range(0 if edited else blocks):
                t.cpu(1.5)
                t.copy(65_536, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")

    loop(t, body, "execute_model {}", 8)


def layer_wise(w: World, edited: bool, rng: Random) -> None:
    """Prefill and decode on two GPUs: keys are sent when the prompt is done -> each layer's beside the next layer."""
    us, layers = rng.uniform(5_500, 7_500), 8
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            done = Flag()
            if rank == 0:
                for n in range(layers):
                    prefill(t, 820, 1)
                    if edited:
                        with r(t, f"send_kv layer {n}"):
                            done = t.kernel(FIRST_DIRECTION, us / layers, stream=33, group=(number, n), after=[last(t)])
                if not edited:
                    with r(t, "send_kv"):
                        done = t.kernel(FIRST_DIRECTION, us * 1.6, group=(number, 0))
            else:
                for n in range(layers if edited else 1):
                    with r(t, f"receive_kv {n}"):
                        done = t.kernel(FIRST_DIRECTION, us / layers if edited else us * 1.6, stream=33,
                                        group=(number, n))  # fmt: skip
            t.kernel(RMS, 6, after=[done])
            t.wait("all", "cudaStreamSynchronize")
            t.cpu(200)

        loop(t, body, "request {}", 8)


def sampler(w: World, edited: bool, rng: Random) -> None:
    """Top-p sampling sorts the whole vocabulary of 256 requests -> by rejection, without a sort."""
    t, us = w.thread(), rng.uniform(300, 380)

    def body(_: int) -> None:
        t.cpu(350)
        graph(t, tokens(30, 12), 40)
        if edited:
            op(t, "flashinfer::top_p_sampling", ("void flashinfer::sampling::TopPSamplingFromProbKernel<1024>(x)", 190))
        else:
            for _pass in range(5):
                op(t, "aten::sort", (SORT, us))
            op(t, "aten::cumsum", ("void at::native::tensor_kernel_scan_innermost_dim<float, plus<float> >(x)", us))
            op(t, "aten::scatter", (GATHER, us))
        tail(t)

    loop(t, body, "execute_model {}", 8)


def logprobs(w: World, edited: bool, rng: Random) -> None:
    """Log-probabilities go to the host request by request, with .tolist() -> as one array."""
    t, requests = w.thread(), rng.randint(28, 44)

    def body(_: int) -> None:
        t.cpu(400)
        graph(t, tokens(28, 7), 40)
        op(t, "aten::log_softmax", (SOFT, 60))
        for _request in range(0 if edited else requests):
            op(t, "aten::index", (GATHER, 3), us=8)
            tail(t)
            t.cpu(30)
        if edited:
            op(t, "aten::index", (GATHER, 5), us=8)
            tail(t)
            t.cpu(30 * requests)

    loop(t, body, "execute_model {}", 10)


def ensemble(w: World, edited: bool, rng: Random) -> None:
    """Triton server: tensors between the models of an ensemble go over the host -> they stay on the GPU."""
    t, size = w.thread(), rng.uniform(14e6, 22e6)

    def body(_: int) -> None:
        for model, kernel in (("detector", CONV), ("cropper", GATHER), ("embedder", B200)):
            with r(t, f"TRITON {model} infer"):
                t.cpu(90)
                for _ in range(24 if kernel != GATHER else 3):
                    t.cpu(4)
                    t.kernel(kernel, 95)
            if model != "embedder" and not edited:
                t.copy(size, "DtoH")
                t.cpu(150)
                t.copy(size)
        t.copy(40_000, "DtoH")

    loop(t, body, "request {}", 10)


def instances(w: World, edited: bool, rng: Random) -> None:
    """Triton server: one instance prepares, runs and answers in turn -> three instances, each on its stream."""
    ms, count = rng.uniform(2.4, 3.2), 3 if edited else 1
    for one in range(count):
        t = w.thread(0, 10 + one, f"instance {one}")

        def body(_: int, t: Thread = t, one: int = one) -> None:
            with r(t, "decode and tokenize"):
                t.cpu(ms * 1_000)
            done = t.copy(2e6, pinned=True, stream=20 + one)
            for _ in range(30):
                t.cpu(3)
                done = t.kernel(CONV, 70, stream=20 + one)
            t.wait(done, "cudaStreamSynchronize")
            with r(t, "answer"):
                t.cpu(ms * 400)

        loop(t, body, "request {}", 12 // count)


def static_inputs(w: World, edited: bool, rng: Random) -> None:
    """A compiled model copies its buffers into those of its CUDA graph in each step -> marked as static."""
    t, buffers = w.thread(), rng.randint(90, 130)

    def body(_: int) -> None:
        with r(t, "CUDAGraphNode.run"):
            for _buffer in range(0 if edited else buffers):
                with r(t, "aten::copy_", "cpu_op"):
                    t.cpu(3)
                    t.work("memcpy", "DtoD", 6, bytes=6_000_000, pinned=False)
            graph(t, tokens(24, 8), 50)
        tail(t)

    loop(t, body, "forward {}", 10)


def autotune_key(w: World, edited: bool, rng: Random) -> None:
    """A Triton kernel is tuned anew for each length of text -> the length is no key of the tuning."""
    t, trials = w.thread(), rng.randint(40, 60)

    def body(number: int) -> None:
        if number in (3, 6) and not edited:
            with r(t, "triton.autotuner: _bench"):
                for _trial in range(trials):
                    t.cpu(900)
                    for _ in range(5):
                        t.work("memset", "Memset", 90, bytes=256_000_000)
                        t.kernel("_layer_norm_fwd_fused", 60)
                    t.wait("all")
        prefill(t, 150)
        t.kernel("_layer_norm_fwd_fused", 45)
        tail(t)

    loop(t, body, "forward {}", 12)


def ort_fallback(w: World, edited: bool, rng: Random) -> None:
    """ONNX Runtime: an operator without a CUDA kernel runs on the host, in each of four blocks -> it has one."""
    t, size = w.thread(), rng.uniform(3e6, 5e6)

    def body(_: int) -> None:
        for block in range(4):
            for _ in range(12):
                with r(t, f"/block.{block}/MatMul_kernel_time"):
                    t.cpu(12)
                    t.kernel("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_tensor16x8x16_cublas", 80)
            with r(t, f"/block.{block}/NonMaxSuppression_kernel_time"):
                if edited:
                    t.cpu(20)
                    t.kernel("onnxruntime::cuda::NMSKernel", 90)
                else:
                    t.copy(size, "DtoH", api="cudaMemcpyAsync")
                    t.cpu(1_300)
                    t.copy(size / 4)
        t.copy(4_000, "DtoH")

    loop(t, body, "model_run", 10)


def ggml_rebuild(w: World, edited: bool, rng: Random) -> None:
    """llama.cpp: the graph of operators is built again for each token -> kept, its pointers updated."""
    t, ms = w.thread(), rng.uniform(1.6, 2.3)
    nodes = [("void rms_norm_f32<1024, true, false>(float const*, float*)", 3), ("void mul_mat_vec_q<(ggml_type)12, 1>",
             17), ("void flash_attn_ext_vec<128, 1, (ggml_type)1>", 7), ("void mul_mat_vec_q<(ggml_type)14, 1>", 14),
             ("void unary_gated_op_kernel<&op_silu, float>", 2)] * 32  # fmt: skip

    def body(_: int) -> None:
        t.cpu(250 if edited else ms * 1_000)
        graph(t, nodes, 35)
        t.wait("all", "cudaStreamSynchronize")
        t.copy(512_000, "DtoH", pinned=True)
        t.wait("all", "cudaStreamSynchronize")
        t.cpu(120)

    loop(t, body, "", 24)


def experts_on_host(w: World, edited: bool, rng: Random) -> None:
    """llama.cpp: experts of a model's layers are computed by the host, as memory was short -> on the GPU."""
    t, us, layers = w.thread(), rng.uniform(380, 520), rng.randint(8, 12)

    def body(_: int) -> None:
        for _layer in range(layers):
            for name, length in (("rms_norm_f32", 3), ("mul_mat_vec_q", 22), ("flash_attn_ext_vec", 14)):
                t.cpu(2)
                t.kernel(f"void {name}<(ggml_type)8, 1>(x)", length)
            if edited:
                t.kernel("void mul_mat_vec_q_moe<(ggml_type)12, 8>(x)", 40)
            else:
                t.copy(16_384, "DtoH", api="cudaMemcpyAsync")
                t.cpu(us)
                t.copy(16_384)
        t.wait("all", "cudaStreamSynchronize")

    loop(t, body, "", 16)


# -- training ------------------------------------------------------------------------------------------


def activations(w: World, edited: bool, rng: Random) -> None:
    """Activations go to pinned memory and back on the stream of the kernels -> on streams of their own."""
    t, size, layers = w.thread(), rng.uniform(60e6, 90e6), 6

    def body(_: int) -> None:
        out = [Flag() for _ in range(layers)]
        for n in range(layers):
            op(t, "aten::addmm", (B200, 2_400))
            op(t, "aten::scaled_dot_product_attention", (FMHA, 1_500))
            where = {"stream": 40, "after": [last(t)]} if edited else {}
            with r(t, "aten::copy_", "cpu_op"):
                out[n] = t.copy(size, "DtoH", pinned=True, **where)
        home = [Flag() for _ in range(layers)]

        def load(o: Thread, n: int) -> None:
            with r(o, "aten::copy_", "cpu_op"):
                home[n] = o.copy(size, pinned=True, **({"stream": 41, "after": [out[n]]} if edited else {}))

        def back(o: Thread) -> None:
            for n in reversed(range(layers)):
                if edited and n == layers - 1:
                    load(o, n)
                if edited and n:
                    load(o, n - 1)
                if not edited:
                    load(o, n)
                o.kernel(MUL, 5, after=[home[n]])
                for _ in range(3):
                    op(o, "aten::mm", (B200, 2_500))

        backward(t, back)
        op(t, "aten::_fused_adamw_", (MULTI, 900))

    loop(t, body, count=5)


def dtensor(w: World, edited: bool, rng: Random) -> None:
    """Two ranks' tensor parallel layers dispatch DTensors, eagerly -> the blocks are compiled."""
    host = rng.uniform(70, 95)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for n in range(8):
                for part, (name, us) in enumerate((("RMS", 9), ("mm", 60), ("attention", 50), ("mm", 40), ("mul", 9),
                                                   ("mm", 90), ("silu", 10), ("mm", 80))):  # fmt: skip
                    t.cpu(6 if edited else host)
                    t.kernel(B200 if name == "mm" else f"triton_{name}" if edited else MUL, us)
                    if part in (3, 7):
                        t.kernel(ALLREDUCE, 30, group=(number, n, part))
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "step {}", 8)


def expert_splits(w: World, edited: bool, rng: Random) -> None:
    """Tokens per expert are read on the host before each exchange of experts -> the device keeps them."""
    us, layers = rng.uniform(90, 130), rng.randint(6, 9)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for n in range(layers):
                t.cpu(60)
                t.kernel(B200, 240)
                t.kernel(TOPK, 20)
                if not edited:
                    tail(t, 2)
                t.cpu(180)
                t.kernel(FIRST_DIRECTION, us, group=(number, n, 0))
                t.kernel("void grouped_gemm::sm90_cutlass(x)", 210)
                t.cpu(120)
                t.kernel(FIRST_DIRECTION, us, group=(number, n, 1))
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "train_step {}", 8)


def two_batches(w: World, edited: bool, rng: Random) -> None:
    """Experts over four ranks: exchange, then compute -> two halves of the batch, one's exchange beside the other."""
    us, layers = rng.uniform(420, 600), 6
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            halves, share = (2, 0.52) if edited else (1, 1.0)
            ready: list[list[Flag]] = [[] for _ in range(halves)]
            for n in range(layers):
                for half in range(halves):
                    t.cpu(12)
                    done = t.kernel(FMHA, 600 * share, after=ready[half])
                    where = {"stream": 50} if edited else {}
                    sent = t.kernel(FIRST_DIRECTION, us * share, group=(number, n, half, 0), after=[done], **where)
                    ready[half] = [sent]
                for half in range(halves):
                    done = t.kernel(DEEP, 700 * share, after=ready[half])
                    where = {"stream": 50} if edited else {}
                    sent = t.kernel(FIRST_DIRECTION, us * share, group=(number, n, half, 1), after=[done], **where)
                    ready[half] = [sent]
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "forward {}", 6)


def object_store(w: World, edited: bool, rng: Random) -> None:
    """Shards are fetched from an object store by the thread that trains -> by a thread, four ahead."""
    t, ms = w.thread(), rng.uniform(22, 32)
    other = w.thread(0, 70, "fetch") if edited else None
    ready = [Flag() for _ in range(8)]
    for flag in ready if other else ():
        other.os("recv", ms * 250)
        other.set(flag)

    def body(number: int) -> None:
        with r(t, "next(shards)"):
            if other:
                t.need(ready[number])
            else:
                t.os("recv", ms * 1_000)
                t.cpu(400)
        t.copy(16e6, pinned=True)
        dense(t, 420)

    loop(t, body, "step {}", 8)


def ray_batches(w: World, edited: bool, rng: Random) -> None:
    """iter_torch_batches without a batch ahead: each is collated when it is asked for -> prefetch_batches=2."""
    t, ms = w.thread(), rng.uniform(11, 16)
    other = w.thread(0, 81, "ray_data_iter")
    count = 10
    asked, ready = [Flag() for _ in range(count)], [Flag() for _ in range(count)]
    for number in range(count):
        if not edited:
            other.need(asked[number])
        with r(other, "collate_fn"):
            other.cpu(ms * 1_000)
        other.set(ready[number])

    def body(number: int) -> None:
        with r(t, "iter_torch_batches.__next__"):
            t.set(asked[number])
            t.need(ready[number])
        t.copy(12e6, pinned=True)
        dense(t, 330)
        tail(t)

    loop(t, body, "step {}", count)


def tables(w: World, edited: bool, rng: Random) -> None:
    """A recommender looks into each of 60 tables by an operator -> one batched lookup for all."""
    t, count = w.thread(), rng.randint(54, 70)

    def body(_: int) -> None:
        if edited:
            op(t, "fbgemm::split_embedding_codegen_lookup", ("split_embedding_codegen_forward_unweighted_kernel", 130))
        for _table in range(0 if edited else count):
            op(t, "aten::embedding_bag", ("void at::native::EmbeddingBag_updateOutputKernel_sum<float, long>(x)", 5),
               us=14)  # fmt: skip
        op(t, "aten::cat", ("void at::native::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(x)", 20))
        for _ in range(5):
            op(t, "aten::addmm", (B200, 22))
        tail(t)

    loop(t, body, "forward {}", 10)


def weight_sync(w: World, edited: bool, rng: Random) -> None:
    """Reinforcement learning: new weights go to the generator tensor by tensor -> in buckets."""
    count = rng.randint(180, 240)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            prefill(t, 160, 6)
            with r(t, "update_weights"):
                for n in range(6 if edited else count):
                    t.cpu(40)
                    if edited:
                        t.kernel("void at::native::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 1, 128, 1>(x)", 60)
                    t.kernel(BROADCAST, 400 if edited else 48, group=(number, n))
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "iteration {}", 6)


def cached_steps(w: World, edited: bool, rng: Random) -> None:
    """Diffusion: each denoising step runs all blocks -> every second one takes the residual of the one before."""
    t, us = w.thread(), rng.uniform(280, 380)

    def body(number: int) -> None:
        for _block in range(1 if edited and number % 2 else 10):
            op(t, "aten::addmm", (B200, us))
            op(t, "aten::scaled_dot_product_attention", (FMHA, us * 1.3))
            op(t, "aten::addmm", (B200, us * 1.6))
        op(t, "aten::add", (ADD, 20))

    loop(t, body, "denoise {}", 16)


def fused_projections(w: World, edited: bool, rng: Random) -> None:
    """Three products for query, key and value of small batches, each below a wave -> one product."""
    t, us = w.thread(), rng.uniform(26, 34)

    def body(_: int) -> None:
        for _block in range(20):
            for _part in range(1 if edited else 3):
                op(t, "aten::addmm", (B200, us * 1.2 if edited else us), us=3)
            op(t, "aten::scaled_dot_product_attention", (FMHA, 34), us=3)
            op(t, "aten::addmm", (B200, us), us=3)
        tail(t)

    loop(t, body, "forward {}", 10)


def dequantised(w: World, edited: bool, rng: Random) -> None:
    """Weights of 4 bits are unpacked in front of each product of a long batch -> BF16, as memory allows."""
    t, us = w.thread(), rng.uniform(150, 210)
    unpack = "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, (DataType_t)2>(float*, unsigned char*, float*, x)"

    def body(_: int) -> None:
        for _layer in range(6):
            for share in (1, 0.6, 2, 1.1):
                with r(t, "MatMul4Bit"):
                    if not edited:
                        op(t, "bitsandbytes::dequantize_4bit", (unpack, us * 0.5 * share))
                    op(t, "aten::mm", (B200, us * share), **{"Input type": ["c10::BFloat16"] * 2})
            op(t, "aten::scaled_dot_product_attention", (FMHA, us))
        tail(t)

    loop(t, body, "forward {}", 8)


def triangles(w: World, edited: bool, rng: Random) -> None:
    """Protein folding: triangle attention in 64 chunks of rows, to save memory -> in one."""
    t, chunks = w.thread(), rng.randint(48, 64)

    def body(_: int) -> None:
        for _block in range(3):
            for _chunk in range(1 if edited else chunks):
                scale = 30 if edited else 1
                op(t, "aten::slice", us=8)
                op(t, "aten::linear", (B200, 7 * scale), us=9)
                op(t, "aten::scaled_dot_product_attention", (FMHA, 9 * scale), us=9)
                op(t, "aten::mul", (MUL, 4 * scale), us=9)
                op(t, "aten::linear", (B200, 6 * scale), us=9)
            op(t, "aten::layer_norm", (RMS, 60))
        tail(t)

    loop(t, body, "recycle {}", 6)


def fused_ssim(w: World, edited: bool, rng: Random) -> None:
    """Gaussian splatting: SSIM of five filters and a dozen elementwise operators -> one kernel."""
    t, us = w.thread(), rng.uniform(55, 75)

    def body(_: int) -> None:
        op(t, "_RasterizeGaussians", ("void renderCUDA<3u>(uint2 const*, unsigned int const*, int, int)", 900))
        if edited:
            op(t, "FusedSSIMMap", ("void fusedssimCUDA(int, int, int, float, float, float const*)", us * 3))
        else:
            for _ in range(5):
                op(t, "aten::cudnn_convolution", (CONV, us * 1.1))
            for kernel in (MUL, MUL, MUL, ADD, ADD, MUL, ADD, ADD, MUL, DIV, CLAMP, EXP):
                op(t, "aten::mul", (kernel, us))
        op(t, "aten::mean", (SUM, 20))
        backward(t, lambda o: [op(o, "_RasterizeGaussiansBackward", ("PerGaussianRenderCUDA<32>", 1_500))])
        op(t, "aten::_fused_adam_", (MULTI, 160))

    loop(t, body, "iteration {}", 10)


def distributions(w: World, edited: bool, rng: Random) -> None:
    """Each torch.distributions object checks its arguments with .all() on the host -> validate_args=False."""
    t, count = w.thread(), rng.randint(10, 16)

    def body(_: int) -> None:
        for _one in range(count):
            op(t, "aten::addmm", (B200, 30))
            op(t, "aten::tanh", (EXP, 12))
            for _check in range(0 if edited else 2):
                op(t, "aten::all", (SUM, 4))
                with r(t, "aten::is_nonzero", "cpu_op"), r(t, "aten::item", "cpu_op"):
                    t.copy(1, "DtoH")
            op(t, "aten::normal_", (EXP, 14))
        backward(t, lambda o: [op(o, "aten::mm", (B200, 40)) for _ in range(count)])
        op(t, "aten::_fused_adam_", (MULTI, 60))

    loop(t, body, "update {}", 10)


def numpy_rollout(w: World, edited: bool, rng: Random) -> None:
    """A simulator on the GPU, whose observations go to NumPy and back for the policy -> as tensors."""
    t, size = w.thread(), rng.uniform(3e6, 5e6)

    def body(_: int) -> None:
        for _sub in range(4):
            t.cpu(6)
            t.kernel("solve_constraint_iteration_gpu", 160)
        if not edited:
            tail(t)
            t.copy(size, "DtoH")
            with r(t, "VecNormalize"):
                t.cpu(900)
            t.copy(size)
        else:
            op(t, "aten::clamp", (CLAMP, 20))
        for _ in range(3):
            op(t, "aten::addmm", (B200, 60))
        op(t, "aten::normal_", (EXP, 12))

    loop(t, body, "env step {}", 14)


def xla_tf(w: World, edited: bool, rng: Random) -> None:
    """TensorFlow: normalisation and activation of a wide network, operator by operator -> jit_compile=True."""
    t, us = w.thread(), rng.uniform(70, 95)

    def body(_: int) -> None:
        for n in range(10):
            with r(t, f"dense_{n}/MatMul"):
                t.cpu(9)
                t.kernel("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize256x128x32_stage3_cublas", 300)
            if edited:
                t.cpu(4)
                t.kernel(f"loop_multiply_fusion_{n}", us * 1.3)
                continue
            for name in ("BiasAdd", "Sub", "Mul", "Add", "Gelu", "Mul_1"):
                with r(t, f"dense_{n}/{name}"):
                    t.cpu(7)
                    t.kernel(EIGEN.format(name.lower()), us)
        t.wait("all", "cuStreamSynchronize")

    loop(t, body, "train {}", 10)


# -- JAX, Warp, CUDA C++ -------------------------------------------------------------------------------


def jax_callback(w: World, edited: bool, rng: Random) -> None:
    """JAX: jax.debug.print of four values in the step calls Python back from the device -> removed."""
    t, us = w.thread(), rng.uniform(90, 130)

    def body(_: int) -> None:
        with r(t, "PjitFunction(train_step)"):
            t.cpu(120)
            for block in range(4):
                for n in range(8):
                    t.cpu(2)
                    t.kernel(f"gemm_fusion_dot_{block}_{n}", us, api="cuLaunchKernelEx")
                if not edited:
                    with r(t, "xla_python_gpu_callback"):
                        t.copy(64, "DtoH", api="cuMemcpyDtoHAsync_v2")
                        t.cpu(650)
        if edited:
            t.wait("all", "cuStreamSynchronize")

    loop(t, body, "", 12)


def xla_graphs(w: World, edited: bool, rng: Random) -> None:
    """JAX: a simulation of small fusions, a launch each -> XLA's command buffers."""
    t, count = w.thread(), rng.randint(130, 180)
    nodes = [(f"loop_add_fusion_{n % 17}", 2.6) for n in range(count)]

    def body(_: int) -> None:
        t.cpu(60)
        if edited:
            graph(t, nodes, 30)
        else:
            for name, us in nodes:
                t.cpu(1.2)
                t.kernel(name, us, api="cuLaunchKernelEx")
        t.wait("all", "cuStreamSynchronize")

    loop(t, body, "PjitFunction(step)", 12)


def latency_hiding(w: World, edited: bool, rng: Random) -> None:
    """JAX on two GPUs: gathers and scatters in order -> the latency hiding scheduler puts them beside products."""
    us = rng.uniform(260, 360)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            t.cpu(100)
            before: list[Flag] = []
            for n in range(10):
                where = {"stream": 19} if edited else {}
                t.cpu(3)
                sent = t.kernel(GATHERED, us, group=(number, n), **where)
                for _ in range(3):
                    t.cpu(2)
                    t.kernel(f"gemm_fusion_dot_{n}", 210, api="cuLaunchKernelEx", after=before)
                before = [sent]
            t.wait("all", "cuStreamSynchronize")

        loop(t, body, "train_step", 6)


def donated(w: World, edited: bool, rng: Random) -> None:
    """JAX: parameters and moments are copied on the device in each step -> donate_argnums."""
    t, copies = w.thread(), rng.randint(24, 36)

    def body(_: int) -> None:
        t.cpu(150)
        for _copy in range(0 if edited else copies):
            t.cpu(2)
            t.work("memcpy", "DtoD", 120, bytes=130_000_000, pinned=False, api="cuMemcpyDtoDAsync_v2")
        for n in range(30):
            t.cpu(2)
            t.kernel(f"gemm_fusion_dot_{n}", 250, api="cuLaunchKernelEx")
        t.wait("all", "cuStreamSynchronize")

    loop(t, body, "PjitFunction(update)", 8)


def substeps(w: World, edited: bool, rng: Random) -> None:
    """NVIDIA Warp: 24 substeps of small kernels are launched from Python -> captured once as a graph."""
    t, host = w.thread(), rng.uniform(16, 24)
    one = [("integrate_particles_cuda_kernel_forward", 5), ("eval_springs_cuda_kernel_forward", 6),
           ("solve_contacts_cuda_kernel_forward", 7), ("apply_deltas_cuda_kernel_forward", 4)]  # fmt: skip

    def body(_: int) -> None:
        with r(t, "simulate"):
            if edited:
                graph(t, one * 24, 40)
            for name, us in () if edited else one * 24:
                t.cpu(host)
                t.kernel(name, us, api="cuLaunchKernel")
        with r(t, "render"):
            t.cpu(250)
            t.wait("all", "cuStreamSynchronize")

    loop(t, body, "frame {}", 10)


def scan_count(w: World, edited: bool, rng: Random) -> None:
    """C++: the count of a scan comes by cudaMemcpy in each action -> a bound is launched, the count read once."""
    t, us = w.thread(), rng.uniform(45, 65)

    def body(_: int) -> None:
        for _action in range(10):
            t.cpu(18)
            t.kernel("void celeritas::launch_action_impl<celeritas::Propagate>(x)", us)
            t.kernel("void cub::detail::scan::DeviceScanKernel<unsigned long>(x)", 8)
            if not edited:
                t.copy(8, "DtoH", api="cudaMemcpy")
            t.cpu(30)
            t.kernel("void celeritas::launch_action_impl<celeritas::ExtendFromSecondaries>(x)", us * 0.7)
        t.copy(8, "DtoH", api="cudaMemcpy")

    loop(t, body, "step", 12)


def boundary_first(w: World, edited: bool, rng: Random) -> None:
    """C++: halos are exchanged, then all cells computed -> the inner cells beside the exchange, on two streams."""
    us = rng.uniform(700, 950)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for stage in range(3):
                packed = t.kernel("void pack_halo<double>(double const*, double*)", 40)
                where = {"stream": 15, "after": [packed]} if edited else {}
                sent = t.kernel(FIRST_DIRECTION, us, group=(number, stage), **where)
                if edited:
                    t.kernel("void update_interior<double>(x)", 1_250)
                    t.kernel("void update_boundary<double>(x)", 210, after=[sent])
                else:
                    t.kernel("void update_all<double>(x)", 1_400)
                t.cpu(15)
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "timestep", 7)


def patches(w: World, edited: bool, rng: Random) -> None:
    """C++: each of 60 patches of a mesh has its own small launches -> one launch for all patches."""
    t, count = w.thread(), rng.randint(52, 72)

    def body(_: int) -> None:
        for name in ("advance", "fluxes", "reflux"):
            kernel = f"void amrex::launch_global<256, amrex::ParallelFor<{name}>::lambda>(x)"
            for _patch in range(1 if edited else count):
                t.cpu(3)
                t.kernel(kernel, 3.2 * count * 0.45 if edited else 3.2, grid=8)
        t.wait("all", "cudaStreamSynchronize")

    loop(t, body, "timestep", 14)


def bonded(w: World, edited: bool, rng: Random) -> None:
    """Molecular dynamics: bonded forces and integration on the host, with copies, in each step -> on the GPU."""
    t, us = w.thread(), rng.uniform(1_000, 1_500)

    def body(_: int) -> None:
        if not edited:
            t.copy(2.4e6, pinned=True)
        t.cpu(20)
        t.kernel("nbnxn_kernel_ElecEw_VdwLJCombGeom_F_cuda", 620)
        t.kernel("pme_spline_and_spread_kernel<4, true, true, true>", 180)
        t.kernel("pme_solve_kernel<(GridOrdering)1, false>", 60)
        if edited:
            t.kernel("bonded_kernel_gpu<false, false>", 110)
            t.kernel("leapfrog_kernel<(NumTempScaleValues)1>", 40)
        else:
            t.copy(2.4e6, "DtoH", pinned=True)
            t.wait("all", "cudaStreamSynchronize")
            t.cpu(us)

    loop(t, body, "", 24)


def displacement(w: World, edited: bool, rng: Random) -> None:
    """Molecular dynamics: each step reads whether a particle went far -> every twentieth step."""
    t, us = w.thread(), rng.uniform(60, 85)

    def body(number: int) -> None:
        for kernel, share in (("gpu_compute_lj_forces_kernel", 1), ("gpu_integrate_two_kernel", 0.3),
                              ("gpu_thermo_reduce_kernel", 0.3)):  # fmt: skip
            t.cpu(9)
            t.kernel(f"void {kernel}<double, 256>(x)", us * share)
        if number % 20 == 19 or not edited:
            t.kernel("gpu_nlist_needs_update_check_kernel", 5)
            t.copy(4, "DtoH", api="cudaMemcpy")
        t.cpu(15)

    loop(t, body, "", 60)


# -- ranks ---------------------------------------------------------------------------------------------


def step_of(t: Thread, number: int, us: float, layers: int = 6, share: float = 1.0) -> None:
    """Forward and backward of a rank, then the sum over ranks."""
    for _ in range(layers):
        op(t, "aten::addmm", (B200, us * share))
        op(t, "aten::scaled_dot_product_attention", (FMHA, us * 0.6 * share))
    backward(t, lambda o: [op(o, "aten::mm", (B200, us * share)) for _ in range(3 * layers)])
    done = t.kernel(ALLREDUCE, us * 2, stream=31, group=number, after=[last(t)])
    t.kernel(MULTI, us * 0.4, after=[done])
    t.wait("all", "cudaStreamSynchronize")


def manual_gc(w: World, edited: bool, rng: Random) -> None:
    """Python collects garbage at another step on each of four ranks -> by hand, on all in one step of fifty."""
    ms = rng.uniform(28, 40)
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            if number % 4 == rank and not edited:
                with r(t, "gc.collect"):
                    t.cpu(ms * 1_000)
            step_of(t, number, 480)

        loop(t, body, "iteration {}", 8)


def uneven_stages(w: World, edited: bool, rng: Random) -> None:
    """Two stages of a pipeline: the second one has the vocabulary, too -> it has fewer layers."""
    head = rng.uniform(1_500, 2_000)
    for rank in range(2):
        t = w.thread(rank)
        us = 260 + (head / 14 * (1 - 2 * rank) if edited else 0)

        def body(number: int, t: Thread = t, rank: int = rank, us: float = us) -> None:
            for micro in range(6):
                if rank:
                    t.kernel(FIRST_DIRECTION, 45, group=(number, micro))
                for _ in range(7):
                    op(t, "aten::addmm", (B200, us))
                if rank:
                    op(t, "aten::mm", (B200, head))
                else:
                    t.kernel(FIRST_DIRECTION, 45, group=(number, micro))
            t.wait("all", "cudaStreamSynchronize")

        loop(t, body, "iteration {}", 5)


def gather_object(w: World, edited: bool, rng: Random) -> None:
    """all_gather_object of statistics in each step: pickled, sizes read, gathered -> every fiftieth step."""
    ms = rng.uniform(2.5, 4)
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            step_of(t, number, 220, 5)
            if not edited:
                with r(t, "all_gather_object"):
                    t.cpu(ms * 500)
                    t.copy(40_000)
                    t.kernel(GATHERED, 20, group=(number, "size"))
                    tail(t)
                    t.kernel(GATHERED, 40, group=(number, "object"))
                    t.copy(80_000, "DtoH")
                    t.cpu(ms * 500)

        loop(t, body, "iteration {}", 7)


# -- CPUs alone ----------------------------------------------------------------------------------------


def cpu_op(t: Thread, name: str, us: float, rows: int = 64) -> None:
    with r(t, name, "cpu_op", **{"Input Dims": [[rows, 512]], "Input type": ["float"]}):
        t.cpu(us)


def turns(t: Thread, body: Callable[[int], None], text: str, count: int = 8) -> None:
    """A loop without a device."""
    for number in range(count):
        with r(t, text.format(number)):
            body(number)


def cpu_compiled(w: World, edited: bool, rng: Random) -> None:
    """On a CPU: a mixer's chains of elementwise operators on large tensors -> torch.compile."""
    t, us = w.thread(), rng.uniform(260, 340)

    def body(_: int) -> None:
        for n in range(8):
            cpu_op(t, "aten::addmm", 2_300)
            if edited:
                cpu_op(t, f"graph_{n}_cpp_fused_add_gelu_mul", us * 1.5)
            for name in () if edited else ("mul", "add", "gelu", "mul", "sigmoid", "add", "mul", "sub"):
                cpu_op(t, f"aten::{name}", us)

    turns(t, body, "forward {}", 8)


def cpu_frames(w: World, edited: bool, rng: Random) -> None:
    """A data pipeline without a GPU: features of each group by a Python loop -> by a vectorised group-by."""
    t, ms = w.thread(), rng.uniform(36, 50)

    def body(_: int) -> None:
        with r(t, "read_parquet"):
            t.os("read", 4_000)
            t.cpu(3_000)
        with r(t, "group_features"):
            t.cpu(ms * (80 if edited else 1_000))
        with r(t, "write"):
            t.cpu(2_500)

    turns(t, body, "partition {}", 8)


def cpu_batch(w: World, edited: bool, rng: Random) -> None:
    """On a CPU: a small ranker scores candidates one by one -> 16 in a batch."""
    t, us = w.thread(), rng.uniform(20, 28)

    def body(_: int) -> None:
        for _layer in range(20):
            cpu_op(t, "aten::linear", us * (2.5 if edited else 1), 16 if edited else 1)
            t.cpu(9)
            cpu_op(t, "aten::relu", us * (0.7 if edited else 0.4), 16 if edited else 1)
            t.cpu(9)

    turns(t, body, "score {}", 16)


# -- edits that make slower ----------------------------------------------------------------------------


def experts_in_turn(w: World, edited: bool, rng: Random) -> None:
    """Slower: a refactoring runs shared experts before the routed ones again."""
    shared_experts(w, not edited, rng)


def beyond_graphs(w: World, edited: bool, rng: Random) -> None:
    """Slower: batches grew beyond the largest graph that was captured, and run launch by launch."""
    t = w.thread()
    nodes = tokens(20, 6)

    def body(_: int) -> None:
        t.cpu(250)
        if edited:
            for name, us in nodes:
                t.cpu(7)
                t.kernel(name, us)
        else:
            graph(t, nodes, 40)
        tail(t)

    loop(t, body, "execute_model {}", 12)


def deterministic(w: World, edited: bool, rng: Random) -> None:
    """Slower: use_deterministic_algorithms(True): gradients of embeddings are sorted first."""
    t, us = w.thread(), rng.uniform(350, 450)

    def body(_: int) -> None:
        dense(t, 260)
        if edited:
            for _ in range(4):
                op(t, "aten::index_put_", (SORT, us))
        op(t, "aten::index_put_", ("void at::native::indexing_backward_kernel<float, 4>(x)", us))

    loop(t, body, "step {}", 8)


def capped_rank(w: World, edited: bool, rng: Random) -> None:
    """Slower: one GPU of four has a lower clock since a repair."""
    share = rng.uniform(1.3, 1.5)
    for rank in range(4):
        t = w.thread(rank)
        mine = share if edited and rank == 2 else 1.0
        loop(t, lambda number, t=t, mine=mine: step_of(t, number, 420, share=mine), "iteration {}", 6)


def cpu_fallback(w: World, edited: bool, rng: Random) -> None:
    """Slower, on a CPU: convolutions lost oneDNN."""
    t, us = w.thread(), rng.uniform(900, 1_200)

    def body(_: int) -> None:
        for _stage in range(10):
            cpu_op(t, "aten::thnn_conv2d" if edited else "aten::mkldnn_convolution", us * (2.2 if edited else 1))
            cpu_op(t, "aten::relu_", 120)

    turns(t, body, "forward {}", 8)


def slow_tokenizer(w: World, edited: bool, rng: Random) -> None:
    """Slower: the tokenizer written in Python is taken instead of the fast one."""
    t, ms = w.thread(), rng.uniform(5, 7)

    def body(_: int) -> None:
        with r(t, "tokenize"):
            t.cpu(ms * (1_000 if edited else 80))
        prefill(t, 120)
        tail(t)

    loop(t, body, "request {}", 10)


# -- nothing that counts was changed -------------------------------------------------------------------


def again_streams(w: World, edited: bool, rng: Random) -> None:
    """The same: a program of three streams, recorded twice."""
    t = w.thread()

    def body(_: int) -> None:
        up = t.copy(30e6, pinned=True, stream=14)
        t.kernel(B200, 900)
        first = t.kernel(FMHA, 800, after=[up])
        for _ in range(6):
            t.kernel(DEEP, 260, stream=15, after=[first])
            t.kernel(B200, 300)
            t.cpu(20)
        t.wait("all")

    loop(t, body, "frame {}", 10)


def again_cuda(w: World, edited: bool, rng: Random) -> None:
    """The same: a solver of CUDA C++; the second recording has more iterations."""
    t = w.thread()

    def body(_: int) -> None:
        for name, us in (("spmv_csr", 210), ("dot", 30), ("axpy", 60), ("dot", 30), ("axpy", 60)):
            t.cpu(4)
            t.kernel(f"void {name}<double, 256>(int, double const*, double*)", us)
        t.copy(8, "DtoH", api="cudaMemcpy")

    loop(t, body, "", 46 if edited else 34)


def again_jax(w: World, edited: bool, rng: Random) -> None:
    """The same: a JAX step, recorded twice; the compiler numbers its fusions anew."""
    t, offset = w.thread(), 40 if edited else 0

    def body(_: int) -> None:
        t.cpu(130)
        for n in range(24):
            t.cpu(2)
            t.kernel(f"gemm_fusion_dot_{n + offset}", 160, api="cuLaunchKernelEx")
            t.kernel(f"loop_multiply_fusion_{n + offset}", 50, api="cuLaunchKernelEx")
        t.wait("all", "cuStreamSynchronize")

    loop(t, body, "PjitFunction(train_step)", 10)


def again_cpu(w: World, edited: bool, rng: Random) -> None:
    """The same: a model on a CPU that others use, too, recorded twice."""
    t = w.thread()
    w.unsteady = 0.12

    def body(_: int) -> None:
        for _layer in range(12):
            cpu_op(t, "aten::addmm", 1_500)
            cpu_op(t, "aten::gelu", 200)
            cpu_op(t, "aten::native_layer_norm", 150)

    turns(t, body, "forward {}", 10)


def again_jitter(w: World, edited: bool, rng: Random) -> None:
    """The same: four ranks, of which another one is a little late each time, recorded twice."""
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            t.cpu(w.rng.uniform(100, 1_400))
            step_of(t, number, 400)

        loop(t, body, "iteration {}", 8)


def again_lengths(w: World, edited: bool, rng: Random) -> None:
    """The same: a server whose requests have every length, recorded for other requests."""
    t = w.thread()

    def body(_: int) -> None:
        t.cpu(200)
        prefill(t, w.rng.uniform(60, 140), 6)
        tail(t)

    loop(t, body, "request {}", 40)


READ = "item-in-step remove-synchronization"
REVISED = (
    Edited(upper_bound, READ, "host synchronisation kernels launches", "both"),
    Edited(grammar, "host-code prepare-ahead", "host kernels", "both"),
    Edited(shared_experts, "streams", "kernels shape", "both"),
    Edited(router, "fuse-elementwise", "kernels", "both", does_more=True),
    Edited(kv_blocks, "copy-together copy-less", "copies launches host kernels", "both"),
    Edited(layer_wise, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(sampler, "", "kernels", "both", word="faster"),
    Edited(logprobs, f"{READ} copy-together batch-host-loop host-code", "host synchronisation copies launches", "both"),
    Edited(ensemble, "copy-less overlap-copies", "copies kernels", "nsys", program="tritonserver"),
    Edited(instances, "host-code prepare-ahead streams", "host kernels", "nsys", program="tritonserver",
           does_more=True),
    Edited(static_inputs, "copy-less copy-together", "copies launches host kernels", "both"),
    Edited(autotune_key, "warm-up host-code remove-synchronization", "host kernels copies synchronisation", "both",
           does_more=True),
    Edited(ort_fallback, "host-code copy-less overlap-copies", "host copies kernels synchronisation", "nsys",
           program="onnxruntime", does_more=True),
    Edited(ggml_rebuild, "host-code prepare-ahead", "host kernels", "nsys", program="llama-server"),
    Edited(experts_on_host, "host-code copy-less", "host copies synchronisation", "nsys", program="llama-server",
           does_more=True),
    Edited(activations, "overlap-copies", "copies kernels", "both"),
    Edited(dtensor, "cuda-graphs host-code", "host launches", "nsys", ranks=2),
    Edited(expert_splits, READ, "host synchronisation kernels launches", "nsys", ranks=2),
    Edited(two_batches, "overlap-collectives", "communication kernels", "nsys", ranks=4),
    Edited(object_store, "host-blocked prepare-ahead num-workers waits-for-thread host-code", "host", "nsys"),
    Edited(ray_batches, "prepare-ahead num-workers waits-for-thread host-code", "host kernels", "both"),
    Edited(tables, "cuda-graphs batch-host-loop larger-batch", "host launches", "both", does_more=True),
    Edited(weight_sync, "overlap-collectives", "communication kernels host launches", "nsys", ranks=2),
    Edited(cached_steps, "", "kernels", "both"),
    Edited(fused_projections, "", "kernels", "both"),
    Edited(dequantised, "cast-once", "kernels", "both"),
    Edited(triangles, "larger-batch batch-host-loop cuda-graphs", "host launches", "both", does_more=True),
    Edited(fused_ssim, "fuse-elementwise", "kernels", "both", does_more=True),
    Edited(distributions, READ, "host synchronisation launches kernels", "both"),
    Edited(numpy_rollout, "host-code copy-less item-in-step overlap-copies", "host copies kernels", "both",
           does_more=True),
    Edited(xla_tf, "fuse-elementwise", "kernels", "nsys"),
    Edited(jax_callback, f"{READ} host-code", "host synchronisation kernels", "nsys", does_more=True),
    Edited(xla_graphs, "cuda-graphs", "host launches", "nsys"),
    Edited(latency_hiding, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(donated, "copy-less overlap-copies", "copies kernels", "nsys"),
    Edited(substeps, "cuda-graphs", "host launches", "nsys"),
    Edited(scan_count, READ, "host synchronisation kernels launches", "nsys", program="celer-sim"),
    Edited(boundary_first, "overlap-collectives", "communication kernels", "nsys", ranks=2, program="heat"),
    Edited(patches, "cuda-graphs streams launch-shape", "host launches kernels shape", "nsys", program="castro",
           does_more=True),
    Edited(bonded, "host-code copy-less overlap-copies", "host kernels", "nsys", program="gmx", does_more=True),
    Edited(displacement, READ, "host synchronisation kernels launches", "nsys", program="hoomd"),
    Edited(manual_gc, "late-rank host-code", "ranks host communication kernels", "nsys", ranks=4),
    Edited(uneven_stages, "late-rank", "ranks kernels communication", "nsys", ranks=2),
    Edited(gather_object, f"{READ} host-code overlap-collectives copy-less", "host synchronisation kernels", "nsys",
           ranks=2, does_more=True),
    Edited(cpu_compiled, "fuse-elementwise", "host kernels", "kineto"),
    Edited(cpu_frames, "", "", "nsys"),
    Edited(cpu_batch, "larger-batch batch-host-loop", "host kernels", "kineto", samples=16),
    Edited(experts_in_turn, "", "kernels shape", "both"),
    Edited(beyond_graphs, "", "kernels", "both"),
    Edited(deterministic, "", "kernels", "both"),
    Edited(capped_rank, "", "kernels", "nsys", ranks=4),
    Edited(cpu_fallback, "", "host kernels", "kineto"),
    Edited(slow_tokenizer, "", "kernels", "both"),
    Edited(again_streams, "", "kernels", "both", word=SAME),
    Edited(again_cuda, "", "kernels host synchronisation", "nsys", program="solver", word=SAME),
    Edited(again_jax, "", "kernels", "nsys", word=SAME),
    Edited(again_cpu, "", "host kernels", "kineto", word=SAME),
    Edited(again_jitter, "", "kernels ranks communication", "nsys", ranks=4, word=SAME),
    Edited(again_lengths, "", "kernels host launches", "both", word=SAME),
)  # fmt: skip
