"""A second set of strangers' programs, drawn for seeds from 1,000 on (`strangers.draw`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from random import Random

from generators import strangers as s
from generators.machine import Machine, Program

_LSTM = [
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(cublasGemmSmallNParams<float>)", 9.0),
    ("ampere_sgemm_32x32_sliced1x4_tn", 14.0),
    ("void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>(int)", 4.0),
]
_ONNX = [
    ("void onnxruntime::cuda::_SkipLayerNormKernel<__half, 4u, 192u>(int)", 5.0),
    ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize128x64x64_stage4_warpsize2x2x1_tensor16x8x16_kernel", 24.0),
    ("void onnxruntime::contrib::cuda::AddBiasTransposeQKV<__half2>(int)", 5.0),
    ("fmha_v2_flash_attention_fp16_64_32_S_64_sm80_kernel_nl", 18.0),
    ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x16_kernel", 12.0),
    ("void onnxruntime::contrib::cuda::FastGeluKernel2<__half2, 256u>(int)", 6.0),
]
_TREE = [
    ("void xgboost::tree::SharedMemHistKernel<true, 1024>(int)", 60.0),
    ("void xgboost::tree::EvaluateSplitsKernel<256>(int)", 20.0),
    ("void cub::DeviceScanKernel<cub::AgentScanPolicy<128>>(int)", 5.0),
    ("void dh::LaunchNKernel<RowPartitioner>(int)", 25.0),
]
_GNN = [
    ("void dgl::aten::impl::_CSRRowWiseSampleUniformKernel<long, 16>(int)", 12.0),
    ("void at::native::index_elementwise_kernel<128, 4>(int)", 20.0),
    ("void cusparse::load_balancing_kernel<cusparse::csrmm_policy>(int)", 40.0),
    ("ampere_sgemm_64x64_nn", 25.0),
]


def lightning(p: s.Play) -> Program:
    """PyTorch Lightning's profiler: forward and backward run inside the optimiser's closure."""
    steps, layers, h = p.rng.randint(5, 12), p.count(3, 5), p.h
    worker = p.m.thread(4, name="pt_autograd_0")
    for step in range(steps):
        with h.mark(step=step):
            with h.range("[pl][profile][_TrainingEpochLoop].train_dataloader_next"):
                h.host(p.rng.uniform(50, 900))
            with h.range("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device"):
                h.copy(1 << 20, pageable=False)
            closure = "[pl][profile][LightningModule]Net.optimizer_step"
            with h.range("[pl][profile]run_training_batch"), h.range(closure):
                with h.range("[pl][profile][Strategy]SingleDeviceStrategy.training_step"):
                    groups = s._forward(p, h, layers, s._nothing)
                with h.range("[pl][profile][Strategy]SingleDeviceStrategy.backward"), s._other(h, worker) as w:
                    s._backward(p, w, groups, s._nothing)
                p.run([(s.FOREACH, 20)] * 8)
            with h.range("[pl][profile][Callback]TQDMProgressBar{'refresh_rate': 1}.on_train_batch_end"):
                h.host(80)
    return Program("Lightning", [p.m], ["step"], ["block", "phase"], is_kineto=p.rng.random() < 0.5)


def deepspeed(p: s.Play) -> Program:
    """DeepSpeed's own ranges: forward and backward of micro-batches, a step of the model at the boundary."""
    steps, layers, micro, h = p.rng.randint(3, 6), p.count(3, 4), p.count(2, 4), p.h
    worker = p.m.thread(4, name="pt_autograd_0")
    for step in range(steps):
        for batch in range(micro):
            with h.mark(step=step):
                h.copy(65_536, pageable=False)
                with h.range("DeepSpeedEngine.forward"):
                    groups = s._forward(p, h, layers, s._nothing)
                with h.range("DeepSpeedEngine.backward"), s._other(h, worker) as w:
                    s._backward(p, w, groups, s._nothing)
                    with w.range("DeepSpeedZeroOptimizer.average_tensor"):
                        w.launch(s.SCATTER, 120 * p.scale, stream=21)
                with h.range("DeepSpeedEngine.step"):
                    h.host(8)
                    if batch == micro - 1:
                        with h.range("DeepSpeedEngine._take_model_step"):
                            p.run([(s.ADAM, 60)] * 4)
    return Program("DeepSpeed", [p.m], ["step"], ["block", "phase"], about=f"{micro} micro-batches")


def hooks(p: s.Play) -> Program:
    """Ranges by hooks with qualified names, tokens of a decoder; nothing marks a token but the root's name."""
    layers, tokens, h = p.count(6, 12), p.rng.randint(6, 20), p.h
    for token in range(tokens):
        scale = 3.0 if token == 0 else 0.4
        with h.all(h.mark(token=token), h.range("model")):
            with h.range("model.embed_tokens"):
                p.run([(s.EMBED, 3)])
            for layer in range(layers):
                with h.all(p.layer(), h.range(f"model.layers.{layer}")):
                    with h.range(f"model.layers.{layer}.self_attn"):
                        p.run(s.EAGER_NORM + s.EAGER_ATTENTION, scale=scale)
                    with h.range(f"model.layers.{layer}.mlp"):
                        p.run(s.EAGER_MLP, scale=scale)
            with h.range("model.norm"):
                p.run(s.EAGER_NORM)
        with h.mark(token=token):
            with h.range("lm_head"):
                p.run(s.EAGER_ATTENTION[:1], scale=3)
            p.run([(s.ARGMAX, 9)])
            h.item()
    return Program("module hooks", [p.m], ["token"], ["block"])


def onnx(p: s.Play) -> Program:
    """ONNX Runtime: requests of varying length, no range."""
    requests, layers, h = p.rng.randint(6, 20), p.count(6, 12), p.h
    for request in range(requests):
        length = p.rng.uniform(0.5, 3)
        with h.mark(request=request):
            h.copy(int(4_096 * length), pageable=False)
            p.run([("void onnxruntime::contrib::cuda::EmbedLayerNormKernel<__half, 256u>(int)", 6)])
            for _ in range(layers):
                with p.layer():
                    p.run(_ONNX, scale=length, gap=0.7)
            p.run(_ONNX[1:2])
            h.copy(3_072, "DtoH")
            h.sync(7)
        h.host(p.rng.expovariate(1 / 800))
    return Program("ONNX Runtime", [p.m], ["request"], ["block"])


def recurrent(p: s.Play) -> Program:
    """An LSTM: time steps × layers in each batch, a range a batch or none."""
    batches, times, layers, h = p.rng.randint(4, 9), p.rng.randint(10, 30), p.count(1, 2), p.h
    ranges = p.rng.random() < 0.5
    for batch in range(batches):
        with h.all(h.mark(batch=batch), h.range(f"batch_{batch}") if ranges else nullcontext()):
            h.copy(1 << 18)
            p.run([(s.EMBED, 3)])
            for _ in range(times * layers):
                p.run(_LSTM, gap=1.5)
            p.run(s.EAGER_ATTENTION[:1] + s.LOSS)
            h.item()
    return Program("recurrent network", [p.m], ["batch"], [], about="ranges" if ranges else "no ranges")


def benchmark(p: s.Play) -> Program:
    """Several models one after another, each called ten times: kinds of execution that follow one another."""
    h, number = p.h, 0
    ranges = p.count(0, 1, 2)
    models = p.rng.sample([(s.UNET_RES, 6), (s.UNET_ATTENTION, 12), (s.MAMBA, 10), (_ONNX, 8), (s.CONV, 15)], 3)
    for index, (block, count) in enumerate(models):
        with h.range(f"bench model_{index}") if ranges else nullcontext():
            for call in range(p.rng.randint(6, 10)):
                with h.all(h.mark(call=number), h.range(f"run {call}") if ranges == 2 else nullcontext()):
                    h.copy(1 << 18)
                    for _ in range(count):
                        with p.layer():
                            p.run(block, gap=1)
                    p.run(s.EAGER_ATTENTION[:1])
                    h.sync()
                number += 1
            h.host(5_000)
    return Program("benchmark of models", [p.m], ["call"], ["block"], about=f"ranges {ranges}")


def one_call(p: s.Play) -> Program:
    """One forward pass and nothing else: equal blocks, no range."""
    layers, h = p.count(8, 16, 32), p.h
    p.upload()
    with h.mark(call=0):
        p.run([(s.EMBED, 3)])
        for _ in range(layers):
            with p.layer():
                p.run(s.EAGER_NORM + s.EAGER_ATTENTION + [s.RESIDUAL] + s.EAGER_NORM + s.EAGER_MLP + [s.RESIDUAL])
        p.run(s.EAGER_ATTENTION[:1])
    return Program("one call", [p.m], [], ["block"])


def two_programs(p: s.Play) -> Program:
    """A server and a trainer on one GPU, recorded together: two processes, two loops."""
    other = Machine(Random(f"{p.rng.random()}"), pid=6_000, jitter=p.m.jitter, edit=p.m.edit)
    q = s.Play.__new__(s.Play)
    q.rng, q.m, q.h, q.scale, q.pause, q.loaded = p.rng, other, other.thread(0, name="python"), p.scale, False, set()
    first, second = p.rng.randint(6, 12), p.rng.randint(4, 8)
    for step in range(first):
        with p.h.all(p.h.mark(step=step), p.h.range("serve_request")):
            for _ in range(8):
                with p.layer():
                    p.run(s.VLLM_BLOCK, scale=0.5)
            p.run([(s.LOGITS, 60)])
            p.h.sync(7)
    worker = other.thread(4, name="pt_autograd_0")
    for step in range(second):
        with q.h.all(q.h.mark(step=1_000 + step), q.h.range("train_iteration")):
            groups = s._forward(q, q.h, 4, s._nothing)
            with s._other(q.h, worker) as w:
                s._backward(q, w, groups, s._nothing)
            q.run([(s.ADAM, 60)] * 3)
    return Program("two programs", [p.m, other], ["step"], [])


def piecewise(p: s.Play) -> Program:
    """A decode loop by piecewise graphs: attention is launched between the graphs of a layer's other kernels."""
    layers, steps, h = p.count(6, 12), p.rng.randint(6, 20), p.h
    ranges = p.rng.random() < 0.5
    before, after = s.VLLM_BLOCK[:4], s.VLLM_BLOCK[5:]
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"step {step}") if ranges else nullcontext()):
            h.copy(512, pageable=False)
            for layer in range(layers):
                with p.layer():
                    h.graph([(name, us * p.scale) for name, us in before], node_base=(2 * layer + 1) << 32, first_us=6)
                    p.run(s.VLLM_BLOCK[4:5])
                    h.graph([(name, us * p.scale) for name, us in after], node_base=(2 * layer + 2) << 32, first_us=6)
            p.run([(s.LOGITS, 60), (s.ARGMAX, 9)])
            h.copy(64, "DtoH")
            h.sync(7)
    return Program("piecewise graphs", [p.m], ["step"], ["block"], about="ranges" if ranges else "no ranges")


def boosting(p: s.Play) -> Program:
    """Gradient boosting: rounds of trees whose depth differs."""
    rounds, h = p.rng.randint(10, 40), p.h
    ranges = p.rng.random() < 0.5
    p.upload()
    for number in range(rounds):
        with h.all(h.mark(round=number), h.range("UpdateOneIter") if ranges else nullcontext()):
            p.run([("void xgboost::obj::GetGradientKernel(float*, int)", 15)])
            for _ in range(p.rng.randint(4, 7)):
                p.run(_TREE)
                h.copy(1_024, "DtoH")
            p.run([("void xgboost::UpdatePredictionCacheKernel(int)", 12)])
    return Program("boosting", [p.m], ["round"], [], about="ranges" if ranges else "no ranges")


def graph_network(p: s.Play) -> Program:
    """Sampled neighbourhoods: the same kernels each step, of widely varying length; sampling by another thread."""
    steps, h = p.rng.randint(8, 25), p.h
    sampler = p.m.thread(8, name="sampler")
    ranges = p.rng.random() < 0.6
    for step in range(steps):
        sampler.wait_until(h.now)
        with sampler.range("sample_blocks") if ranges else nullcontext():
            sampler.host(p.rng.uniform(200, 2_000))
        h.wait_until(sampler.now)
        with h.all(h.mark(step=step), h.range("train_batch") if ranges else nullcontext()):
            h.copy(p.rng.randint(1, 32) << 18)
            for _ in range(3):
                p.run(_GNN, scale=p.rng.uniform(0.2, 3))
            p.run(s.LOSS + s.LOSS_BACKWARD)
            for _ in range(3):
                p.run(_GNN[2:], scale=p.rng.uniform(0.2, 3))
            p.run([(s.FOREACH, 10)] * 2)
            h.item()
    return Program("graph network", [p.m], ["step"], [], about="ranges" if ranges else "no ranges")


def epochs_only(p: s.Play) -> Program:
    """Ranges name the epochs only; their steps are in the launches."""
    count, steps, layers, h = p.count(2, 3, 4), p.rng.randint(6, 10), p.count(4, 6), p.h
    number = 0
    for epoch in range(count):
        with h.all(h.mark(epoch=epoch), h.range(f"epoch {epoch}")):
            for _ in range(steps):
                with h.mark(step=number):
                    h.copy(1 << 20, pageable=False)
                    for layer in range(layers):
                        p.run(s.CONV_TRAIN, scale=1 / (1 + layer % 4))
                    p.run(s.LOSS + s.LOSS_BACKWARD)
                    for layer in range(layers):
                        p.run(s.CONV_BACKWARD, scale=1 / (1 + layer % 4))
                    p.run([(s.FOREACH, 15)] * 3)
                number += 1
            h.item()
    return Program("epochs only", [p.m], ["step", "epoch"], [], about=f"{count} epochs of {steps} steps")


MORE: list[Callable[[s.Play], Program]] = [
    lightning, deepspeed, hooks, onnx, recurrent, benchmark, one_call, two_programs, piecewise, boosting,
    graph_network, epochs_only,
]  # fmt: skip
