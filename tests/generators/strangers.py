"""Programs as strangers write them, with known truth: engines, trainers and tools in the dialects that they speak.

`draw(seed)` makes one. Which executions and which blocks its kernels are of is known from the program itself
(`machine.Program`). What an owner would accept is listed: a diffusion pipeline is run per image and per denoising step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

from generators.machine import NONE, NOT_JUDGED, Edit, Machine, Program, Thread, cut, lose

Kernels = list[tuple[str, float]]


def _read() -> tuple[dict[str, Kernels], dict[str, str]]:
    """Blocks of kernels with their times in µs, and names that stand alone."""
    blocks: dict[str, Kernels] = {}
    names: dict[str, str] = {}
    section = ""
    for line in (Path(__file__).parent / "stranger_kernels.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            first, text = line.split(" ", 1)
            if section == "names":
                names[first] = text
            else:
                blocks.setdefault(section, []).append((text, float(first)))
    return blocks, names


KERNELS, NAMES = _read()
EAGER_NORM = KERNELS["EAGER_NORM"]
EAGER_ATTENTION = KERNELS["EAGER_ATTENTION"]
EAGER_MLP = KERNELS["EAGER_MLP"]
VLLM_BLOCK = KERNELS["VLLM_BLOCK"]
TRT_BLOCK = KERNELS["TRT_BLOCK"]
GGML_DECODE = KERNELS["GGML_DECODE"]
BACKWARD_ATTENTION = KERNELS["BACKWARD_ATTENTION"]
BACKWARD_MLP = KERNELS["BACKWARD_MLP"]
LOSS = KERNELS["LOSS"]
LOSS_BACKWARD = KERNELS["LOSS_BACKWARD"]
CONV = KERNELS["CONV"]
CONV_TRAIN = KERNELS["CONV_TRAIN"]
CONV_BACKWARD = KERNELS["CONV_BACKWARD"]
UNET_RES = KERNELS["UNET_RES"]
UNET_ATTENTION = KERNELS["UNET_ATTENTION"]
MAMBA = KERNELS["MAMBA"]
ADAM = NAMES["ADAM"]
FOREACH = NAMES["FOREACH"]
EMBED = NAMES["EMBED"]
NCCL = NAMES["NCCL"]
GATHER = NAMES["GATHER"]
SCATTER = NAMES["SCATTER"]
L2NORM = NAMES["L2NORM"]
FILL = NAMES["FILL"]
ARGMAX = NAMES["ARGMAX"]
EXPERT_UP = NAMES["EXPERT_UP"]
EXPERT_DOWN = NAMES["EXPERT_DOWN"]
LOGITS = NAMES["LOGITS"]
EMBEDDINGS = NAMES["EMBEDDINGS"]
EMBEDDINGS_BACKWARD = NAMES["EMBEDDINGS_BACKWARD"]
CLAMP = NAMES["CLAMP"]
CONVOLVE = NAMES["CONVOLVE"]
RESIDUAL = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)", 4.0)


class Play:
    """A program being drawn: its chance, its machine, its main thread."""

    def __init__(self, seed: int, edit: Edit | None = None) -> None:
        self.rng = Random(f"strangers {seed}")
        self.m = Machine(Random(f"machine {seed}"), edit=edit or Edit(), jitter=self.rng.choice([0.01, 0.04, 0.1]))
        self.m.launch_us = self.rng.uniform(3, 6)
        self.h = self.m.thread(0, name="python")
        self.scale = self.rng.choice([0.3, 1, 1, 3])
        self.pause = self.rng.random() < 0.4  # the first execution loads code
        self.loaded: set[str] = set()

    def run(
        self, kernels: Kernels, h: Thread | None = None, *, scale: float = 1.0, gap: float = 3.0, **more: Any
    ) -> None:
        """Operators one after another: a little host code and a kernel each."""
        h = h or self.h
        for name, us in kernels:
            h.host(gap)
            first = self.pause and name not in self.loaded
            self.loaded.add(name)
            h.launch(name, us * scale * self.scale, pause=self.rng.uniform(200, 3000) if first else 0, **more)

    def layer(self, **labels: int) -> Any:
        """A block: a new group."""
        return self.h.mark(block=self.m.group(), **labels)

    def upload(self, h: Thread | None = None) -> None:
        """Weights go to the device before the loop."""
        for _ in range(self.rng.randint(5, 60)):
            (h or self.h).copy(self.rng.randint(1, 64) << 20)

    def count(self, *choices: int) -> int:
        return self.rng.choice(choices)


def modules(h: Thread, numbers: dict[str, int]) -> Callable[..., Any]:
    """Frames of modules as torch.profiler writes them: ``Class_k``, the k-th object of a class."""
    names: dict[str, str] = {}

    def frame(cls: str, key: str) -> Any:
        if key not in names:
            names[key] = f"nn.Module: {cls}_{numbers.get(cls, 0)}"
            numbers[cls] = numbers.get(cls, 0) + 1
        return h.range(names[key], "python_function", 0.5)

    return frame


def op(p: Play, h: Thread, name: str, kernels: Kernels, **more: Any) -> None:
    """An aten operator around its kernels."""
    with h.range(name, "cpu_op", 1.0):
        p.run(kernels, h, gap=1.5, **more)


# ---------------------------------------------------------------------------------------------- inference engines


def vllm_steps(p: Play) -> Program:
    """vLLM V1, eager, step texts and its layer-wise ranges; prefills among decodes."""
    layers, steps = p.count(12, 16, 24, 28), p.rng.randint(6, 24)
    with_layers, h = p.rng.random() < 0.6, p.h
    for step in range(steps):
        prefill = p.rng.random() < 0.25
        tokens, running = (p.rng.choice([256, 512, 1024]) if prefill else 0), p.rng.randint(4, 32)
        scale = tokens / 256 + 0.3 + running / 64
        text = f"execute_context_{int(prefill)}({tokens})_generation_{running}({running})"
        with h.all(h.mark(step=step), h.range(text)):
            with h.range("gpu_model_runner: preprocess"):
                h.copy(4096, pageable=False)
                h.host(80)
            with h.range("gpu_model_runner: forward"):
                p.run([(EMBED, 3)])
                for layer in range(layers):
                    name = f"{{'Module': 'model.layers.{layer}', 'Inputs': [[{tokens + running}, 4096]]}}"
                    with h.all(p.layer(), h.range(name) if with_layers else nullcontext()):
                        p.run(VLLM_BLOCK, scale=scale)
                p.run(VLLM_BLOCK[:1], scale=scale)
            with h.range("gpu_model_runner: sample"):
                p.run([(LOGITS, 60), (ARGMAX, 9)])
        with h.mark(step=step):
            h.copy(running * 8, "DtoH")
        h.host(150)
    return Program("vllm steps", [p.m], ["step"], ["block"], is_kineto=p.rng.random() < 0.5)


def trtllm_loop(p: Play) -> Program:
    """TensorRT-LLM's PyTorch executor: `[Executor] _forward_step N: …`, decodes by CUDA graphs now and then."""
    layers, steps, h = p.count(8, 16, 32), p.rng.randint(8, 30), p.h
    for step in range(steps):
        context = p.rng.random() < 0.2
        requests = p.rng.randint(1, 16)
        text = f"[Executor] _forward_step {step + 100}: {2 if context else 0} ctx reqs, {requests} gen reqs"
        with h.mark(step=step):
            with h.range("_prepare_and_schedule_batch"):
                h.host(120)
            with h.range(text):
                with h.range("_prepare_inputs"):
                    h.copy(2048, pageable=False)
                    h.copy(1024, pageable=False)
                with h.range("_forward_step_inner"):
                    p.run([(EMBED, 3)])
                    for _ in range(layers):
                        with p.layer():
                            p.run(TRT_BLOCK, scale=4 if context else 1)
                    p.run([("nvjet_qqtst_128x64_128x5_4x1_h_bz_TNT", 50)])
            with h.range("_sample_async"):
                p.run([("void tensorrt_llm::kernels::topKStage1<float, 128, 8>(float const*)", 8)])
            with h.range("_update_requests"):
                h.sync(7)
                h.host(60)
    return Program("TensorRT-LLM executor", [p.m], ["step"], ["block"])


def sglang_eager(p: Play) -> Program:
    """SGLang under torch.profiler with module frames: `step[DECODE bs=…]`."""
    layers, steps, h = p.count(6, 12, 18), p.rng.randint(4, 12), p.h
    frame = modules(h, {})
    for step in range(steps):
        extend = step == 0 or p.rng.random() < 0.2
        text = (
            f"step[EXTEND bs={step + 1} toks={512 * (step + 1)}]" if extend else f"step[DECODE bs={p.count(1, 4, 8)}]"
        )
        with h.all(h.mark(step=step), h.range(text)):
            with frame("LlamaForCausalLM", "root"), frame("LlamaModel", "model"):
                op(p, h, "aten::embedding", [(EMBED, 3)])
                for layer in range(layers):
                    with h.all(p.layer(), frame("LlamaDecoderLayer", f"l{layer}")):
                        with frame("RMSNorm", f"n{layer}"):
                            op(p, h, "sgl_kernel::fused_add_rmsnorm", VLLM_BLOCK[:1])
                        with frame("LlamaAttention", f"a{layer}"):
                            op(p, h, "aten::mm", VLLM_BLOCK[1:2], scale=4 if extend else 1)
                            p.run(VLLM_BLOCK[2:5], scale=3 if extend else 1)
                            op(p, h, "aten::mm", VLLM_BLOCK[5:6], scale=4 if extend else 1)
                        with frame("LlamaMLP", f"m{layer}"):
                            p.run(VLLM_BLOCK[6:], scale=4 if extend else 1)
            with frame("LogitsProcessor", "logits"):
                op(p, h, "aten::mm", [(LOGITS, 60)])
            with frame("Sampler", "sampler"):
                op(p, h, "aten::argmax", [(ARGMAX, 9)])
        h.host(200)
    return Program("SGLang eager", [p.m], ["step"], ["block"], is_kineto=True)


def hf_generate(p: Play) -> Program:
    """`model.generate` of a decoder under torch.profiler: prefill, then tokens; no step marker; modules or not."""
    layers, tokens, calls, h = p.count(4, 8, 12), p.rng.randint(6, 24), p.count(1, 1, 2), p.h
    with_modules, token = p.rng.random() < 0.5, 0
    frame = modules(h, {}) if with_modules else lambda *_: nullcontext()
    for call in range(calls):
        with h.mark(call=call):
            h.copy(8 * 512)
            for k in range(tokens):
                with h.mark(token=token), frame("LlamaForCausalLM", "root"):
                    op(p, h, "aten::embedding", [(EMBED, 3)])
                    for layer in range(layers):
                        with h.all(p.layer(), frame("LlamaDecoderLayer", f"l{layer}")):
                            scale = 3.0 if k == 0 else 0.4
                            op(p, h, "aten::pow", EAGER_NORM[:1])
                            op(p, h, "aten::mean", EAGER_NORM[1:])
                            op(p, h, "aten::linear", EAGER_ATTENTION[:3], scale=scale)
                            op(p, h, "aten::cat", EAGER_ATTENTION[3:5])
                            op(p, h, "aten::scaled_dot_product_attention", EAGER_ATTENTION[5:6], scale=scale)
                            op(p, h, "aten::linear", EAGER_ATTENTION[6:], scale=scale)
                            op(p, h, "aten::linear", EAGER_MLP, scale=scale)
                            op(p, h, "aten::add", [RESIDUAL])
                    op(p, h, "aten::linear", [("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", 120)])
                with h.mark(token=token):
                    op(p, h, "aten::argmax", [(ARGMAX, 9)])
                    h.item()
                token += 1
    accepted = ["token", "call"] if calls > 1 else ["token"]
    return Program("HF generate", [p.m], accepted, ["block"], is_kineto=True, about=f"modules {with_modules}")


def encoder_decoder(p: Play) -> Program:
    """Speech recognition: an encoder, then tokens of a decoder; a range per utterance, or none at all."""
    utterances, encoder, decoder, h = p.rng.randint(2, 6), p.count(6, 12), p.count(4, 6), p.h
    ranges, token = p.rng.random() < 0.6, 0
    for utterance in range(utterances):
        with h.all(
            h.mark(utterance=utterance), h.range(f"transcribe utt_{utterance:03d}") if ranges else nullcontext()
        ):
            h.copy(80 * 3000 * 4)
            with h.range("encoder") if ranges else nullcontext(), h.mark(token=NOT_JUDGED):
                p.run(CONV[:1] * 2)
                for layer in range(encoder):
                    with p.layer(), h.range(f"enc_block_{layer}") if ranges else nullcontext():
                        p.run(UNET_ATTENTION[:4] + EAGER_MLP[:3], scale=2)
            for _ in range(p.rng.randint(5, 20)):
                with h.all(h.mark(token=token), h.range("decode_token") if ranges else nullcontext()):
                    p.run([(EMBED, 3)])
                    for layer in range(decoder):
                        with p.layer(), h.range(f"dec_block_{layer}") if ranges else nullcontext():
                            p.run(UNET_ATTENTION + EAGER_MLP[:3], scale=0.2)
                    p.run([("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", 50)])
                    h.item()
                token += 1
    accepted = ["utterance", "token"]
    return Program("encoder and decoder", [p.m], accepted, ["block"], about="ranges" if ranges else "no ranges")


def llama_cpp(p: Play) -> Program:
    """llama.cpp: a prompt, then tokens, no range anywhere; sometimes by CUDA graphs."""
    layers, tokens, h = p.count(16, 22, 32), p.rng.randint(8, 40), p.h
    graphs = p.rng.random() < 0.4
    p.upload()
    prompt = [(name.replace("mul_mat_vec_q", "mul_mat_q"), us * 6) for name, us in GGML_DECODE]
    for token in range(tokens):
        with h.mark(token=token):
            h.copy(16384 if token else 1 << 20)
            kernels = prompt if token == 0 else GGML_DECODE
            if graphs and token > 2:
                marks = [{"block": p.m.group()} for _ in range(layers)]
                nodes = [one for _ in range(layers) for one in kernels] + [GGML_DECODE[0], GGML_DECODE[15]]
                labels = [marks[k // len(kernels)] if k < layers * len(kernels) else {} for k in range(len(nodes))]
                scaled = [(name, us * p.scale) for name, us in nodes]
                h.graph(scaled, node_base=(1 << 32), marks=labels)
            else:
                for _ in range(layers):
                    with p.layer():
                        p.run(kernels, gap=0.4)
                p.run([GGML_DECODE[0], GGML_DECODE[15]])
            h.copy(32000 * 4, "DtoH")
            h.sync(7)
        h.host(p.rng.uniform(50, 400))
    return Program("llama.cpp", [p.m], ["token"], ["block"], about="graphs" if graphs else "launches")


def moe_decode(p: Play) -> Program:
    """Mixture of experts: each layer runs as many expert products as experts were chosen."""
    layers, steps, h = p.count(6, 12, 24), p.rng.randint(4, 14), p.h
    dialect = p.count(0, 1, 2)
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"decode_iter {step}") if dialect < 2 else nullcontext()):
            p.run([(EMBED, 3)])
            for layer in range(layers):
                with h.all(p.layer(), h.range(f"layers.{layer}.moe_block") if dialect == 0 else nullcontext()):
                    p.run(VLLM_BLOCK[:6], scale=0.6)
                    p.run([("void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*, bool const*)", 4),
                           ("void vllm::moe::moe_align_block_size_kernel<int>(int*, int*, int*)", 6)])  # fmt: skip
                    for _ in range(p.rng.randint(3, 8)):
                        p.run([(EXPERT_UP, 18),
                               VLLM_BLOCK[8],
                               (EXPERT_DOWN, 15)])  # fmt: skip
                    p.run([("void vllm::moe::moe_sum_kernel<c10::BFloat16, 2>(c10::BFloat16*)", 4)])
            p.run([(LOGITS, 60)])
            h.copy(64, "DtoH")
            h.sync(7)
        h.host(60)
    return Program("mixture of experts", [p.m], ["step"], ["block"], about=f"dialect {dialect}")


def graph_replay(p: Play) -> Program:
    """A captured decode step replayed: with a range, without one, opaque or with its nodes; two buckets."""
    layers, steps, h = p.count(8, 16, 24), p.rng.randint(8, 40), p.h
    ranges, opaque, buckets = p.rng.random() < 0.5, p.rng.random() < 0.25, p.count(1, 1, 2)
    warm = p.count(0, 1, 2)
    for step in range(-warm, steps):
        bucket = p.rng.randrange(buckets)
        with h.all(h.mark(step=step + warm), h.range(f"decode_step {step}") if ranges else nullcontext()):
            h.copy(512, pageable=False)
            if step < 0:
                for _ in range(layers):
                    with p.layer():
                        p.run(VLLM_BLOCK, scale=0.5)
                p.run([(LOGITS, 60)])
            else:
                nodes, labels = [], []
                for _ in range(layers):
                    group = {"block": p.m.group()}
                    nodes += [(name, us * 0.5 * p.scale * (1 + bucket)) for name, us in VLLM_BLOCK]
                    labels += [group] * len(VLLM_BLOCK)
                nodes.append((LOGITS, 60 * p.scale))
                h.graph(nodes, opaque=opaque, node_base=(1 + bucket) << 32, marks=[*labels, {}])
            h.copy(64, "DtoH")
            h.sync(7)
        h.host(100)
    layers_judged = [] if opaque else ["block"]
    about = f"{'ranges' if ranges else 'no ranges'}, {'opaque' if opaque else 'nodes'}, {warm} eager before"
    return Program(
        "graph replay", [p.m], ["step"], layers_judged, set(range(warm)) if steps > 2 else set(), about=about
    )


def diffusion(p: Play) -> Program:
    """Images by 20 to 50 denoising steps of a U-Net, text encoder before, decoder of the image after."""
    images, steps, h = p.count(1, 2, 3), p.rng.randint(20, 50), p.h
    dialect, call = p.count(0, 1, 2, 3), 0
    frame = modules(h, {}) if dialect == 3 else lambda *_: nullcontext()
    blocks = p.count(6, 8)
    for image in range(images):
        with h.all(h.mark(image=image), h.range(f"generate image {image}") if dialect == 1 else nullcontext()):
            with h.mark(call=NOT_JUDGED), frame("CLIPTextModel", "text"):
                for _ in range(6):
                    p.run(UNET_ATTENTION[:4] + EAGER_MLP[:2], scale=0.3)
            for step in range(steps):
                text = h.range(f"denoise step {step}") if dialect in (0, 1) else nullcontext()
                with h.all(h.mark(call=call), text, frame("UNet2DConditionModel", "unet")):
                    p.run(CONV[:1])
                    for block in range(blocks):
                        with h.all(
                            p.layer(), frame("BasicTransformerBlock" if block % 2 else "ResnetBlock2D", f"b{block}")
                        ):
                            p.run(UNET_ATTENTION if block % 2 else UNET_RES, scale=1.5 - 0.1 * abs(blocks / 2 - block))
                    p.run(CONV[:1])
                with h.mark(call=call):
                    p.run([RESIDUAL, RESIDUAL], scale=0.5)
                call += 1
            with h.mark(call=NOT_JUDGED), frame("AutoencoderKL", "vae"):
                for _ in range(8):
                    p.run(UNET_RES, scale=4)
            h.copy(512 * 512 * 3, "DtoH")
    judged = ["block"] if dialect == 3 else []
    return Program("diffusion", [p.m], ["call", "image"] if images > 1 else ["call"], judged, is_kineto=dialect == 3,
                   about=f"{images} images, {steps} steps, dialect {dialect}")  # fmt: skip


def speculative(p: Play) -> Program:
    """A draft model proposes, the target verifies: both are one step."""
    draft, target, steps, k, h = p.count(3, 4), p.count(12, 16), p.rng.randint(5, 16), p.count(3, 4, 5), p.h
    ranges, unit = p.rng.random() < 0.6, 0
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"spec_decode_step_{step}") if ranges else nullcontext()):
            for _ in range(k):
                with h.all(h.mark(unit=unit), h.range("draft") if ranges else nullcontext()):
                    p.run([(EMBED, 3)])
                    for _ in range(draft):
                        with p.layer():
                            p.run(VLLM_BLOCK, scale=0.2)
                    p.run([(ARGMAX, 9)])
                unit += 1
            with h.all(h.mark(unit=unit), h.range("verify") if ranges else nullcontext()):
                p.run([(EMBED, 3)])
                for _ in range(target):
                    with p.layer():
                        p.run(VLLM_BLOCK)
                p.run([(LOGITS, 60)])
            unit += 1
            with h.range("accept") if ranges else nullcontext(), h.mark(unit=unit - 1):
                p.run(
                    [
                        ("void at::native::index_elementwise_kernel<128, 4>(int)", 4),
                        ("rejection_greedy_sample_kernel", 5),
                    ]
                )
                h.copy(64, "DtoH")
                h.sync(7)
        h.host(150)
    return Program("speculative decoding", [p.m], ["step"], ["block"], about="ranges" if ranges else "no ranges")


def chunked_mix(p: Play) -> Program:
    """Prefill chunks and decodes of one loop, no range: sizes differ, kernels of prefill differ a little."""
    layers, steps, h = p.count(8, 12, 20), p.rng.randint(8, 24), p.h
    for step in range(steps):
        chunk = p.rng.choice([0, 0, 0, 256, 512])
        block = list(VLLM_BLOCK)
        if chunk:
            block[1] = ("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", 30 + chunk / 4)
            block[4] = (block[4][0], 28 + chunk / 6)
        with h.mark(step=step):
            h.copy(8192, pageable=False)
            p.run([(EMBED, 3)])
            for _ in range(layers):
                with p.layer():
                    p.run(block, gap=1)
            p.run([VLLM_BLOCK[0], (LOGITS, 60)])
            h.copy(256, "DtoH")
            h.sync(7)
        h.host(p.rng.uniform(60, 200))
    return Program("chunked prefill without ranges", [p.m], ["step"], ["block"])


def jax_inference(p: Play) -> Program:
    """A JAX program: XLA modules and HLO ops as ranges of TSL; fusions, a Triton GEMM, a while loop over layers."""
    layers, steps, h = p.count(6, 12), p.rng.randint(5, 15), p.h
    training = p.rng.random() < 0.5
    name, program = ("train_step", 7) if training else ("generate_step", 31)
    warm = p.rng.random() < 0.5
    fusions = [
        ("input_reduce_fusion_%d", 6.0),
        ("gemm_fusion_dot_%d_0", 60.0),
        ("loop_transpose_fusion_%d", 5.0),
        ("cudnn_fmha_flash_fprop_%d", 40.0),
        ("gemm_fusion_dot_1%d_0", 110.0),
        ("loop_multiply_fusion_%d", 6.0),
    ]
    if warm:
        with h.range("TSL:XlaCompile:#module=jit__init_#"), h.mark(step=NONE):
            h.host(30_000)
            p.run([("loop_broadcast_fusion", 4), ("wrapped_iota", 2)])
    for step in range(steps):
        with h.all(
            h.mark(step=step),
            h.range(
                f"XlaModule:#prefix=jit({name})/jit(main),hlo_module=jit_{name},program_id={program}#", domain="TSL"
            ),
        ):
            p.run([("loop_gather_fusion", 4)], gap=0.5)
            for direction in range(1 + training):
                for layer in range(layers):
                    with p.layer():
                        for number, (text, us) in enumerate(fusions):
                            hlo = (text % (number + 10 * direction)).replace("_0", "")
                            with h.all(
                                h.mark(thunk=p.m.group()),
                                h.range(f"Thunk:#name={hlo},hlo_op={hlo}.{layer}#", domain="TSL"),
                            ):
                                p.run([(text % (number + 10 * direction), us * (1 + direction))], gap=0.3)
            if training:
                p.run([("loop_add_multiply_fusion_adam", 40)] * 6, gap=0.3)
        with h.range("PjRtCApiExecutable::Execute" if step % 3 == 9 else "BlockHostUntilReady", domain="TSL"):
            if step % 2:
                h.sync()
    return Program("JAX", [p.m], ["step"], ["block", "thunk"], about=name)


# ------------------------------------------------------------------------------------------------------- training


def _forward(p: Play, h: Thread, layers: int, scope: Callable[[int], Any], scale: float = 1.0) -> list[int]:
    """Embedding, blocks, loss; the groups of its blocks."""
    groups = []
    p.run([(EMBED, 3)], h)
    for layer in range(layers):
        groups.append(p.m.group())
        with h.all(h.mark(block=groups[-1], phase=p.m.group()), scope(layer)):
            p.run(EAGER_NORM + EAGER_ATTENTION + [RESIDUAL] + EAGER_NORM + EAGER_MLP + [RESIDUAL], h, scale=scale)
    p.run(LOSS, h, scale=scale)
    return groups


def _backward(p: Play, h: Thread, groups: list[int], scope: Callable[[int], Any], scale: float = 1.0) -> None:
    p.run(LOSS_BACKWARD, h, scale=scale)
    for layer in reversed(range(len(groups))):
        with h.all(h.mark(block=groups[layer], phase=p.m.group()), scope(layer)):
            p.run(BACKWARD_MLP + BACKWARD_ATTENTION, h, scale=scale)


def _nothing(_: int) -> Any:
    return nullcontext()


@contextmanager
def _other(main: Thread, worker: Thread, wait: bool = True) -> Iterator[Thread]:
    """The autograd thread runs while the main thread waits in `backward`."""
    main.host(20)
    worker.wait_until(main.now)
    yield worker
    if wait:
        main.wait_until(worker.now)
    main.host(10)


def torchtitan(p: Play) -> Program:
    """torchtitan: record_function ranges of FSDP2, backward on autograd's thread, gradient accumulation."""
    layers, steps, micro, h = p.count(4, 8), p.rng.randint(3, 7), p.count(1, 1, 2, 4), p.h
    autograd = p.m.thread(7, name="pt_autograd_0")
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"ProfilerStep#{step + 10}")):
            for _ in range(micro):
                with h.range("dataloading"):
                    h.host(p.rng.uniform(100, 3000))
                    h.copy(8192 * 8, pageable=False)
                with h.range("forward"):

                    def scope(layer: int, h: Thread = h) -> Any:
                        return h.range(f"FSDP::pre_forward (layers.{layer})")

                    groups = []
                    p.run([(EMBED, 3)], h)
                    for layer in range(layers):
                        with scope(layer):
                            h.host(15)
                            with h.range(f"FSDP::all_gather (layers.{layer})"):
                                h.launch(GATHER, 90 * p.scale, stream=20)
                        groups.append(p.m.group())
                        with h.mark(block=groups[-1], phase=p.m.group()):
                            p.run(EAGER_NORM + EAGER_ATTENTION + [RESIDUAL] + EAGER_NORM + EAGER_MLP + [RESIDUAL], h)
                        with h.range(f"FSDP::post_forward (layers.{layer})"):
                            h.host(8)
                    p.run(LOSS, h)
                with h.range("backward"), _other(h, autograd) as worker:
                    p.run(LOSS_BACKWARD, worker)
                    for layer in reversed(range(layers)):
                        with worker.range(f"FSDP::pre_backward (layers.{layer})"):
                            worker.launch(GATHER, 90 * p.scale, stream=20)
                        with worker.mark(block=groups[layer], phase=p.m.group()):
                            p.run(BACKWARD_MLP + BACKWARD_ATTENTION, worker)
                        with (
                            worker.range(f"FSDP::post_backward (layers.{layer})"),
                            worker.range("FSDP::post_backward_reduce"),
                        ):
                            worker.launch(SCATTER, 120 * p.scale, stream=21)
            with h.range("Optimizer.step#AdamW.step"):
                p.run([(ADAM, 60)] * p.count(4, 8), h)
            if p.rng.random() < 0.5:
                h.item()
    return Program("torchtitan FSDP", [p.m], ["step"], ["block", "phase"] if micro == 1 else [],
                   is_kineto=p.rng.random() < 0.6, about=f"{micro} micro-batches")  # fmt: skip


def megatron(p: Play) -> Program:
    """Megatron-LM: micro-batches by `forward-compute` and `backward-compute`; or no ranges at all."""
    layers, steps, micro, h = p.count(4, 6), p.rng.randint(3, 6), p.count(2, 4, 8), p.h
    ranges = p.rng.random() < 0.7
    autograd = p.m.thread(9, name="pt_autograd_0")

    def r(text: str, h: Thread = h) -> Any:
        return h.range(text) if ranges else nullcontext()

    for step in range(steps):
        with h.all(h.mark(step=step), r("train_step") if p.count(0, 0) else nullcontext()):
            with r("forward-backward"):
                for _ in range(micro):
                    with r("batch-generator"):
                        h.copy(4096 * 16, pageable=False)
                    with r("forward-compute"):
                        groups = _forward(p, h, layers, _nothing)
                    with r("backward-compute"), _other(h, autograd) as worker:
                        _backward(p, worker, groups, _nothing)
            with r("all-grads-sync"):
                h.launch(NCCL, 500 * p.scale, stream=20, after=p.m.free[7])
            with r("optimizer"):
                with r("optimizer-clip-main-grad"):
                    p.run([(L2NORM, 30)] * 3, h)
                    h.item()
                p.run([(ADAM, 80)] * 5, h)
    return Program("Megatron-LM", [p.m], ["step"], ["block", "phase"], about=f"{micro} micro-batches, {ranges=}")


def plain_training(p: Play) -> Program:
    """A script of one's own: batches, accumulation, an optimiser; no range, or the marks of the optimiser."""
    layers, steps, micro, h = p.count(3, 6, 8), p.rng.randint(5, 12), p.count(1, 1, 2, 4), p.h
    kineto = p.rng.random() < 0.4
    autograd = p.m.thread(3, name="pt_autograd_0")
    p.upload()
    for step in range(steps):
        with h.mark(step=step):
            for _ in range(micro):
                with (
                    h.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
                    if kineto
                    else nullcontext()
                ):
                    h.host(p.rng.uniform(50, 500))
                h.copy(1 << 20)
                groups = _forward(p, h, layers, _nothing)
                with _other(h, autograd) as worker:
                    _backward(p, worker, groups, _nothing)
            with h.range("Optimizer.step#AdamW.step") if kineto else nullcontext():
                p.run([(FOREACH, 20)] * 12, h)
            with h.range("Optimizer.zero_grad#AdamW.zero_grad") if kineto else nullcontext():
                p.run([(FILL, 5)] * 2, h)
            if step % 5 == 4:
                h.item()
    return Program(
        "plain training loop", [p.m], ["step"], ["block", "phase"], is_kineto=kineto, about=f"{micro} accumulated"
    )


def epochs(p: Play) -> Program:
    """Training of a CNN with validation between the epochs: two kinds of step."""
    convolutions, count, h = p.count(5, 8, 12), p.count(2, 3), p.h
    steps, checks = p.rng.randint(5, 9), p.rng.randint(3, 5)
    ranges, number = p.rng.random() < 0.6, 0
    autograd = p.m.thread(4, name="pt_autograd_0")
    for epoch in range(count):
        with h.range(f"epoch {epoch}") if ranges and p.count(0, 1) else nullcontext():
            for _ in range(steps):
                with h.all(h.mark(step=number), h.range("train_step") if ranges else nullcontext()):
                    h.copy(32 * 224 * 224 * 3, pageable=False)
                    for layer in range(convolutions):
                        p.run(CONV_TRAIN, scale=1 - 0.05 * layer)
                    p.run(LOSS)
                    with _other(h, autograd) as worker:
                        p.run(LOSS_BACKWARD, worker)
                        for layer in range(convolutions):
                            p.run(CONV_BACKWARD, worker, scale=0.6 + 0.05 * layer)
                    p.run([(FOREACH, 15)] * 4)
                number += 1
            for _ in range(checks):
                with h.all(h.mark(step=number), h.range("val_step") if ranges else nullcontext()):
                    h.copy(32 * 224 * 224 * 3, pageable=False)
                    for layer in range(convolutions):
                        p.run(CONV, scale=1 - 0.05 * layer)
                    p.run(LOSS)
                    h.item()
                number += 1
            h.host(3000)
    return Program("epochs with validation", [p.m], ["step"], [], about="ranges" if ranges else "no ranges")


def gan(p: Play) -> Program:
    """Two networks trained in turn: discriminator and generator are halves of one step."""
    steps, h = p.rng.randint(6, 14), p.h
    ranges = p.rng.random() < 0.5
    autograd = p.m.thread(4, name="pt_autograd_0")
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"iter={step}") if ranges else nullcontext()):
            h.copy(64 * 64 * 64 * 3, pageable=False)
            for name, forward, backward in (("D", 7, 7), ("G", 10, 10)):
                with h.range(f"optimize_{name}") if ranges else nullcontext():
                    for layer in range(forward):
                        p.run(CONV_TRAIN, scale=1 / (1 + layer % 4))
                    with _other(h, autograd) as worker:
                        for layer in range(backward):
                            p.run(CONV_BACKWARD, worker, scale=1 / (1 + layer % 4))
                    p.run([(ADAM, 12)] * 2)
    return Program("GAN", [p.m], ["step"], [], about="ranges" if ranges else "no ranges")


def rlhf(p: Play) -> Program:
    """A loop of reinforcement learning: a rollout of tokens, then an update."""
    rounds, layers, h = p.rng.randint(3, 6), p.count(3, 6), p.h
    ranges = p.rng.random() < 0.7
    autograd = p.m.thread(4, name="pt_autograd_0")
    token = 0
    for number in range(rounds):
        with h.mark(round=number):
            with h.range("rollout") if ranges else nullcontext():
                for _ in range(p.rng.randint(8, 16)):
                    with h.mark(piece=token):
                        for _ in range(layers):
                            with p.layer():
                                p.run(EAGER_NORM + EAGER_ATTENTION + EAGER_MLP, scale=0.15)
                        p.run([(ARGMAX, 9)])
                        h.item()
                    token += 1
            with h.range("update_policy") if ranges else nullcontext(), h.mark(piece=token):
                groups = _forward(p, h, layers, _nothing)
                with _other(h, autograd) as worker:
                    _backward(p, worker, groups, _nothing)
                p.run([(ADAM, 60)] * 3)
            token += 1
    return Program("rollout and update", [p.m], ["round", "piece"], [], about="ranges" if ranges else "no ranges")


def checkpointing(p: Play) -> Program:
    """LoRA with recomputation: backward runs each block's forward again."""
    layers, steps, h = p.count(4, 8), p.rng.randint(4, 9), p.h
    dialect = p.count(0, 1)
    autograd = p.m.thread(4, name="pt_autograd_0")
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"train_step_{step}") if dialect else nullcontext()):
            h.copy(65536, pageable=False)
            groups = _forward(
                p, h, layers, lambda layer: h.range(f"model.layers.{layer}") if dialect else nullcontext()
            )
            with _other(h, autograd) as worker:
                p.run(LOSS_BACKWARD, worker)
                for layer in reversed(range(layers)):
                    with worker.mark(block=groups[layer], phase=p.m.group()):
                        p.run(EAGER_NORM + EAGER_ATTENTION + [RESIDUAL] + EAGER_NORM + EAGER_MLP, worker)
                        p.run(BACKWARD_MLP + BACKWARD_ATTENTION, worker)
            p.run([(ADAM, 8)])
    return Program("recomputation", [p.m], ["step"], ["block", "phase"], about="ranges" if dialect else "no ranges")


def compiled(p: Play) -> Program:
    """torch.compile under torch.profiler: regions, Triton kernels, a recompilation in the middle now and then."""
    layers, steps, h = p.count(4, 6), p.rng.randint(4, 10), p.h
    training, again = p.rng.random() < 0.6, p.rng.random() < 0.3
    autograd = p.m.thread(4, name="pt_autograd_0")
    forward = KERNELS["COMPILED"]
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"ProfilerStep#{step + 5}")):
            if again and step == steps // 2:
                with h.range("torch/_dynamo/convert_frame.py(1128): __call__", "python_function"):
                    h.host(400_000)
            groups = []
            with (
                h.range("Torch-Compiled Region: 0/0", "cpu_op"),
                h.range("CompiledFunction" if training else "## Call CompiledFxGraph fabcde ##", "cpu_op"),
            ):
                p.run([("triton_poi_fused_embedding_0", 4)], gap=1)
                for _ in range(layers):
                    groups.append(p.m.group())
                    with h.mark(block=groups[-1], phase=p.m.group()):
                        p.run(forward, gap=1)
            p.run(LOSS)
            if training:
                with (
                    _other(h, autograd) as worker,
                    worker.range("autograd::engine::evaluate_function: CompiledFunctionBackward", "cpu_op"),
                    worker.range("CompiledFunctionBackward", "cpu_op"),
                ):
                    for layer in reversed(range(layers)):
                        with worker.mark(block=groups[layer], phase=p.m.group()):
                            p.run(
                                [
                                    (name.replace("_tn", "_nt").replace("fused_", "fused_backward_"), us * 1.8)
                                    for name, us in forward
                                ],
                                worker,
                                gap=1,
                            )
                with h.range("Optimizer.step#Adam.step"):
                    p.run([(ADAM, 30)] * 3)
    return Program("torch.compile", [p.m], ["step"], ["block", "phase"], is_kineto=True,
                   about=f"{training=}, recompiled {again}")  # fmt: skip


def two_ranks(p: Play) -> Program:
    """DDP on two ranks in one recording: `forward`/`backward` ranges, gradients reduced beside the backward."""
    layers, steps, rng = p.count(3, 6), p.rng.randint(3, 6), p.rng
    ranges, late = rng.random() < 0.6, rng.random() < 0.4
    machines = []
    plays = []
    for rank in range(2):
        m = Machine(Random(f"{rng.random()}"), pid=4_000 + 100 * rank, device=rank, jitter=p.m.jitter, edit=p.m.edit)
        machines.append(m)
        play = Play.__new__(Play)
        play.rng, play.m, play.h, play.scale = rng, m, m.thread(0, name="python"), p.scale
        play.pause, play.loaded = p.pause, set()
        plays.append(play)
    workers = [m.thread(5, name="pt_autograd_0") for m in machines]
    for step in range(steps):
        buckets: list[list[dict[str, Any]]] = [[], []]
        for rank, play in enumerate(plays):
            h, m = play.h, play.m
            with h.mark(step=2 * step + rank):
                with h.range("dataload") if ranges else nullcontext():
                    h.host(100 + (3000 if late and rank else 0))
                    h.copy(1 << 20, pageable=False)
                with h.range("forward pass") if ranges else nullcontext():
                    groups = _forward(play, h, layers, _nothing)
                with h.range("backward pass") if ranges else nullcontext(), _other(h, workers[rank]) as worker:
                    play.run(LOSS_BACKWARD, worker)
                    for layer in reversed(range(layers)):
                        with worker.mark(block=groups[layer], phase=m.group()):
                            play.run(BACKWARD_MLP + BACKWARD_ATTENTION, worker)
                        if layer % 2 == 0:
                            buckets[rank].append(worker.launch(NCCL, 1, stream=20, after=m.free[7]))
        for one, other in zip(*buckets, strict=True):  # a collective ends on both ranks at once
            length = int(rng.uniform(150, 300) * 1000 * p.scale)
            for row, m in ((one, machines[0]), (other, machines[1])):
                row["start"] = max(
                    row["start"], m.free[20] if row is not buckets[0][0] and row is not buckets[1][0] else 0
                )
                row["end"] = max(one["start"], other["start"]) + length
                m.free[20] = row["end"] + 1000
        for rank, play in enumerate(plays):
            with play.h.mark(step=2 * step + rank), play.h.range("optimizer") if ranges else nullcontext():
                for _ in range(4):
                    play.h.host(3)
                    play.h.launch(ADAM, 40 * p.scale, after=play.m.free[20])
            play.h.sync()
    return Program("two ranks", machines, ["step"], ["block", "phase"], about=f"{ranges=}, {late=}")


# --------------------------------------------------------------------------------------------------- other programs


def stencil(p: Play) -> Program:
    """A solver in CUDA C++: time steps with swapped buffers, a reduction now and then; no range, no layers."""
    steps, h = p.rng.randint(20, 120), p.h
    every, number = p.count(5, 10, 20), p.rng.randint(4, 9)
    words = ["flux", "advect", "update", "halo_pack", "viscosity", "pressure"]
    names = [f"void {p.rng.choice(words)}_{k}_kernel(double*, double const*, int, int)" for k in range(number)]
    times = [p.rng.uniform(8, 120) for _ in names]
    p.upload()
    p.run([("init_field(double*, int)", 30)] * p.count(1, 4))
    for step in range(steps):
        with h.mark(step=step, cycle=step // every):
            p.run(list(zip(names, times, strict=True)), gap=0.5)
            if step % every == every - 1:
                p.run([("void cub::DeviceReduceKernel<cub::DeviceReducePolicy<double, int, Max>>(double*)", 9)])
                h.copy(8, "DtoH")
    h.copy(64 << 20, "DtoH")
    return Program(
        "CUDA C++ solver", [p.m], ["step", "cycle"], [], about=f"{steps} steps of {number}, reduced every {every}"
    )


def camera(p: Play) -> Program:
    """Two networks per camera frame, NVTX in one's own words; or TensorRT layer names; or nothing."""
    frames, h, dialect = p.rng.randint(8, 25), p.h, p.count(0, 1, 2)
    detector, classifier = p.count(6, 10), p.count(3, 5)
    for frame in range(frames):
        with h.all(h.mark(frame=frame), h.range(f"frame {frame}") if dialect == 0 else nullcontext()):
            h.copy(1920 * 1080 * 3)
            p.run([("void resize_bilinear_kernel(unsigned char const*, float*, int, int)", 25)])
            with h.range("ExecutionContext::enqueue", domain="TensorRT") if dialect == 1 else nullcontext():
                for layer in range(detector):
                    with (
                        p.layer(),
                        h.range(f"/model.{layer}/conv/Conv + /model.{layer}/act/Mul", domain="TensorRT")
                        if dialect == 1
                        else nullcontext(),
                    ):
                        p.run(CONV[:1], scale=1 / (1 + layer / 3), gap=1)
            for _ in range(p.rng.randint(1, 4)):
                with h.range("classify") if dialect == 0 else nullcontext():
                    p.run([("crop_kernel(float const*, float*, int)", 6)])
                    for layer in range(classifier):
                        p.run([(CONVOLVE, 20)], scale=1 / (1 + layer))
            h.copy(4096, "DtoH")
            h.sync(7)
        h.host(p.rng.uniform(300, 2000))
    return Program("camera pipeline", [p.m], ["frame"], [], about=f"dialect {dialect}")


def recommender(p: Play) -> Program:
    """Many short steps of few kernels."""
    steps, h = p.rng.randint(60, 200), p.h
    dialect = p.count(0, 1)
    for step in range(steps):
        with h.all(h.mark(step=step), h.range("## train_batch ##") if dialect else nullcontext()):
            h.copy(200_000, pageable=False)
            p.run([(EMBEDDINGS, 40)])
            p.run([("ampere_sgemm_64x32_sliced1x4_tn", 14), (CLAMP, 3)] * 3)
            p.run(
                [("void at::native::interaction_bmm(int)", 12)]
                + LOSS_BACKWARD[:1]
                + [("ampere_sgemm_64x32_sliced1x4_nt", 20)] * 4
            )
            p.run([(EMBEDDINGS_BACKWARD, 45)])
            if step % 20 == 19:
                h.item()
    return Program("recommender", [p.m], ["step"], [], about="ranges" if dialect else "no ranges")


def mamba(p: Play) -> Program:
    """A state-space model under emit_nvtx: operators are ranges with sequence numbers, modules are not."""
    layers, calls, h = p.count(12, 24), p.rng.randint(3, 8), p.h
    emit = p.rng.random() < 0.6
    sequence, named = 0, emit and p.rng.random() < 0.5
    for call in range(calls):
        with h.all(h.mark(call=call), h.range(f"batch {call}") if named else nullcontext()):
            h.copy(65536)
            for _ in range(layers):
                with p.layer():
                    for name, us in MAMBA:
                        sequence += 1
                        with h.range(f"aten::op_{name[:12].strip()}, seq = {sequence}") if emit else nullcontext():
                            p.run([(name, us)], gap=1)
            p.run([("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", 120)])
            if p.count(0, 1):
                h.sync()
    return Program(
        "state-space model",
        [p.m],
        ["call"],
        ["block"],
        about=f"{'operators' if emit else 'no ranges'}, batches {'' if named else 'not '}named",
    )


def batches(p: Play) -> Program:
    """Inference over a dataset: the last batch is smaller, the first one tunes its algorithms (extra kernels)."""
    count, blocks, h = p.rng.randint(4, 12), p.count(4, 8, 12), p.h
    dialect, tuned = p.count(0, 1, 2), p.rng.random() < 0.5
    p.upload()
    frame = modules(h, {}) if dialect == 2 else lambda *_: nullcontext()
    for number in range(count):
        last = 0.4 if number == count - 1 else 1.0
        with h.all(h.mark(batch=number), h.range(f"infer_batch[{number}]") if dialect == 1 else nullcontext()):
            h.copy(int(64 * 224 * 224 * 3 * last))
            with frame("VisionTransformer", "root"):
                p.run(CONV[:1], scale=last)
                for block in range(blocks):
                    with h.all(p.layer(), frame("Block", f"b{block}")):
                        if tuned and number == 0 and block == 0:
                            with h.mark(block=NOT_JUDGED):
                                for k in range(p.rng.randint(5, 25)):
                                    p.run([(f"cutlass_80_tensorop_f16_s16816gemm_tune_{k % 7}_tn", 40)])
                        p.run(UNET_ATTENTION[:4] + [RESIDUAL] + UNET_ATTENTION[4:] + [RESIDUAL], scale=last)
                p.run(EAGER_ATTENTION[:1], scale=0.2)
            h.copy(64 * 4000, "DtoH")
    return Program("dataset inference", [p.m], ["batch"], ["block"], {0} if tuned else set(), is_kineto=dialect == 2,
                   about=f"dialect {dialect}, tuned {tuned}")  # fmt: skip


def ensemble(p: Play) -> Program:
    """Requests served by threads: each thread has a stream and calls the model on its own."""
    threads, calls, blocks = p.count(2, 3), p.rng.randint(3, 6), p.count(4, 6)
    number = 0
    handles = [p.m.thread(20 + k, name=f"worker-{k}") for k in range(threads)]
    for _ in range(calls):
        for k, h in enumerate(handles):
            with h.all(h.mark(call=number), h.range("predict")):
                h.copy(1 << 18, stream=30 + k, pageable=False)
                for block in range(blocks):
                    with h.all(h.mark(block=p.m.group()), h.range(f"stage{block}")):
                        p.run(UNET_RES, h, scale=1, stream=30 + k)
                h.copy(4000, "DtoH", stream=30 + k)
                h.sync(30 + k)
            h.host(p.rng.uniform(50, 500))
            number += 1
    return Program("threads that serve", [p.m], ["call"], ["block"], about=f"{threads} threads, {calls} calls each")


def pipeline_stage(p: Play) -> Program:
    """One stage of a pipeline-parallel trainer: 1F1B over micro-batches, sends and receives."""
    steps, micro, layers, h = p.rng.randint(3, 6), p.count(4, 8), p.count(2, 4), p.h
    ranges = p.count(0, 1, 2)
    warm = min(micro, p.count(1, 2, 3))
    autograd = p.m.thread(6, name="pt_autograd_0")
    send = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    for step in range(steps):
        with h.all(h.mark(step=step), h.range(f"iteration {step}") if ranges == 2 else nullcontext()):
            open_: list[list[int]] = []
            order = "F" * warm + "FB" * (micro - warm) + "B" * warm
            for unit in order:
                if unit == "F":
                    with h.range("forward_step") if ranges else nullcontext():
                        h.launch(send, 60 * p.scale, stream=22)
                        open_.append(_forward(p, h, layers, _nothing))
                else:
                    with h.range("backward_step") if ranges else nullcontext(), _other(h, autograd) as worker:
                        _backward(p, worker, open_.pop(0), _nothing)
                        worker.launch(send, 60 * p.scale, stream=22)
            with h.range("optimizer_step") if ranges else nullcontext():
                p.run([(ADAM, 60)] * 4)
    return Program("pipeline stage", [p.m], ["step"], [], about=f"{micro} micro-batches, ranges {ranges}")


def short_noise(p: Play) -> Program:
    """Nothing repeats: a few kernels, uploads, a test; or none with a shape at all."""
    h, rng = p.h, p.rng
    for _ in range(rng.randint(2, 12)):
        h.host(rng.uniform(10, 5000))
        name = rng.choice(
            ["saxpy(float*, float*, float, int)", "reduce0(int*)", "scan_block(int*)", "transpose(float*)"]
        )
        h.launch(name + str(rng.randint(0, 99)), rng.uniform(1, 500))
        if rng.random() < 0.4:
            h.copy(rng.randint(1, 1 << 24))
    return Program("a few kernels", [p.m], [], is_noise=True)


def notebook(p: Play) -> Program:
    """Someone explores data: no order, a Zipf-like mix of operators, pauses."""
    h, rng = p.h, p.rng
    names = [
        f"void at::native::{k}_kernel_{rng.randint(0, 9)}(int)"
        for k in ("add", "mul", "sort", "where", "sum", "index", "copy", "exp", "cat", "mm", "softmax", "gather")
    ]
    weights = [1 / (k + 1) for k in range(len(names))]
    for _ in range(rng.randint(100, 700)):
        h.host(rng.paretovariate(1.2) * 4)
        h.launch(rng.choices(names, weights)[0], rng.paretovariate(1.3) * 3, grid=rng.choice([1, 8, 64, 300, 1000]))
        if rng.random() < 0.05:
            h.item()
        if rng.random() < 0.02:
            h.copy(rng.randint(1, 1 << 22))
    return Program("exploration", [p.m], [], is_noise=True)


def setup_only(p: Play) -> Program:
    """The recording ended before the loop began: initialisation of many tensors of many shapes."""
    h, rng = p.h, p.rng
    fill = ["distribution_elementwise_grid_stride_kernel<float, 4, normal>", "FillFunctor<float>", "FillFunctor<int>"]
    for _ in range(rng.randint(40, 300)):
        h.launch(f"void at::native::{rng.choice(fill)}(int)", rng.uniform(2, 40), grid=rng.randint(1, 500))
        if rng.random() < 0.5:
            h.copy(rng.randint(1000, 1 << 22))
        h.host(rng.uniform(5, 300))
    return Program("set-up only", [p.m], [], is_noise=True)


PROGRAMS: list[Callable[[Play], Program]] = [
    vllm_steps, trtllm_loop, sglang_eager, hf_generate, encoder_decoder, llama_cpp, moe_decode, graph_replay, diffusion,
    speculative, chunked_mix, jax_inference, torchtitan, megatron, plain_training, epochs, gan, rlhf, checkpointing,
    compiled, two_ranks, stencil, camera, recommender, mamba, batches, ensemble, pipeline_stage, short_noise, notebook,
    setup_only,
]  # fmt: skip


def _loading(program: Program) -> set[int]:
    """The first execution, where loading code at first launches took most of its time and no other one's."""
    if len(program.machines) > 1 or len(program.executions) != 1:
        return set()
    waited: dict[int, float] = {}
    calls = {row["correlation"]: row["end"] - row["start"] for row in program.machines[0].calls}
    for row in program.machines[0].work:
        number = row["labels"].get(program.executions[0], NONE)
        if row["kind"] == "kernel" and number >= 0:
            waited[number] = waited.get(number, 0) + calls[row["correlation"]]
    others = sorted(waited.values())[:-1]
    return {0} if len(waited) > 3 and waited.get(0, 0) > 4 * others[-1] else set()


def draw(seed: int, edit: Edit | None = None, *, harmed: bool = True) -> Program:
    """The program of this seed (from 1,000 on of the second set). ``harmed``: a sixth are cut, a third lose rows."""
    from generators.more_strangers import MORE

    p, programs = Play(seed, edit), PROGRAMS if seed < 1_000 else MORE
    program = programs[seed % len(programs)](p)
    if p.pause and not program.warmups:
        program.about += ", code loads at first launches"
        program.warmups = _loading(program)
    if harmed and not program.is_noise:
        way = p.rng.randrange(6)
        whole = {row["labels"].get((program.executions or [""])[0], NONE) for m in program.machines for row in m.work}
        if way == 0 and len(whole) > 5:
            first, last = p.rng.choice([(0.0, 0.8), (0.15, 1.0), (0.1, 0.9)])
            cut(program, first, last)
            program.about += f", cut to {first:g}–{last:g}"
        elif way == 1:
            lose(program, p.rng, p.rng.choice([0.002, 0.01]), 0)
            program.about += ", kernels lost"
        elif way == 2:
            lose(program, p.rng, 0, p.rng.choice([0.005, 0.02]))
            program.about += ", launches lost"
    return program
