"""Programs that people record in 2024 to 2026, by a twelfth author, written without a look at how structure is found.

Labels: ``x`` what the owner would call an execution; ``y``, ``z``, ``w`` other answers that the owner would accept;
``l``, ``k`` readings of the layers. What has no label of a layer is not judged as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from generators.desk import Host, damaged, family_of
from generators.machine import NOT_JUDGED, Machine, Program, Thread, kernels_of, numbered

B = kernels_of("lodger_kernels.txt")
BACK = {  # what autograd launches for an operator: kernels with their share of the forward time
    "aten::mm": (("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", 1.0),
                 ("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT", 1.0)),
    "aten::addmm": (("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt", 1.0),
                    ("ampere_bf16_s16816gemm_bf16_256x64_ldg8_f2f_stages_64x4_nn", 1.0)),
    "aten::te_gemm": (("nvjet_qqtst_256x128_128x4_1x2_h_bz_coopA_TNT", 1.0),
                      ("nvjet_tst_256x152_64x4_2x1_v_bz_coopA_NTT", 1.0)),
    "aten::bmm": (("ampere_sgemm_64x64_tn", 1.0), ("ampere_sgemm_64x64_nt", 1.0)),
    "aten::scaled_dot_product_attention": (
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4>>(P)", 0.2),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128>>(P)", 2.2)),
    "aten::fused_attn_fwd": (("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_32_kernel0_0", 2.2),),
    "aten::native_layer_norm": (
        ("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>(P)", 1.0),
        ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>(P)", 1.0)),
    "aten::cudnn_convolution": (
        ("sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x32_kernel_cudnn", 1.0),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64_kernel_cudnn", 1.1)),
    "aten::cudnn_batch_norm": (("void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, 512, true, 1>(P)", 1.2),),
    "fbgemm::split_embedding_codegen_lookup": tuple((name.split(" @")[0], us / 70) for name, us in B["tbe_bw"]),
}  # fmt: skip
BETWEEN = ("vattn", "sgl", "sgl_extend")  # begin with a norm that adds what the layer before left: of either layer
PLAIN = "void at::native::vectorized_elementwise_kernel<4, at::native::{}_backward_kernel, std::array<char*, 3ul>>(P)"


class Rig(Host):
    """A process. ``ops``: operators are recorded (kineto, or emit_nvtx); ``modules``: how hooks write a module."""

    op_ids = True

    def __init__(self, rng: Random, *, kineto: bool = False, ops: bool = False, modules: str = "", host: float = 0,
                 program: str = "python3", pid: int = 0) -> None:  # fmt: skip
        self.rng, self.is_kineto, self.has_ops, self.modules = rng, kineto, ops or kineto, modules
        self.m = Machine(
            Random(rng.random()), pid=pid or rng.randint(300, 90_000), jitter=rng.choice((0.02, 0.04, 0.1)),
            launch_us=rng.choice((2.2, 3.5, 5.5)), program=program,
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, rng.randint(1_000_000, 900_000_000))
        self.gap, self.speed = host or rng.choice((0.4, 1.5, 4.0, 9.0)), rng.choice((0.5, 1.0, 1.7))
        self.stream, self.sequence = 7, rng.randint(0, 9_000)
        self.tape: list[tuple[str, float, int]] = []  # what autograd remembers

    # -- ranges and labels -----------------------------------------------------------------------------------

    say = Host.put

    @contextmanager
    def module(self, path: str, kind: str, number: int, labels: str = "l", **fixed: int) -> Iterator[None]:
        """A call of a module, in the range that hooks write around it, and a layer under these labels."""
        text = {"": "", "class": kind, "path": path, "both": f"{path}: {kind}",
                "json": f"{{'Module': '{path}', 'TrainableParams': {10_000 * len(path)}, 'Inputs': [[8, 1024]]}}",
                }.get(self.modules, "")  # fmt: skip
        with ExitStack() as stack:
            if self.modules == "frame":
                more = {"Python module id": number}
                stack.enter_context(self.t.range(f"nn.Module: {kind}_{number}", "python_function", **more))
            elif text:
                stack.enter_context(self.t.range(text))
            stack.enter_context(self.new(labels, **fixed))
            yield

    # -- work ------------------------------------------------------------------------------------------------

    def do(self, *blocks: str, size: float = 1.0, times: int = 1, taped: bool = False, **more: Any) -> None:
        """The kernels of the blocks, each below its operator where these are recorded."""
        for _ in range(times):
            for block in blocks:
                for place, (text, us) in enumerate(B[block]):
                    name, _, operator = text.partition(" @")
                    self.sequence += 1
                    with self.any("l") if not place and block in BETWEEN and not self.modules else self.t.mark():
                        self.one(name, us * size, operator, self.sequence, **more)
                    if taped and operator:
                        self.tape.append((operator, us * size, self.sequence))

    def undo(self, tape: list[tuple[str, float, int]], between: Callable[[int], None] | None = None) -> None:
        """The backward pass of what the tape holds."""
        for number, (operator, us, sequence) in enumerate(reversed(tape)):
            plain = ((PLAIN.format(operator.split("::")[-1].strip("_")), 1.0),)
            for name, share in BACK.get(operator, plain):
                self.one(name, us * share, operator, sequence, back=True)
            if between:
                between(number)

    def autograd(self) -> Any:
        """The thread of autograd launches."""
        return self.elsewhere(tid=37, wakes=30, returns=15)

    def backward(self) -> None:
        """Of all that was taped, on the thread of autograd."""
        tape, self.tape = self.tape, []
        with self.autograd():
            self.undo(tape)

    def read(self) -> None:
        """``.item()``: of the execution before or of the one behind."""
        with self.any("xyzw"):
            self.t.item(self.stream)

    def graph(self, parts: list[tuple[str, str]], base: int, *, size: float = 1.0, opaque: bool = False) -> None:
        """A replay: of each block the name and the label ("": none) of the layer that it belongs to."""
        nodes, marks, groups = [], [], {}
        for block, layer in parts:
            for place, (text, us) in enumerate(B[block]):
                nodes.append((text.partition(" @")[0], us * size * self.speed))
                if layer and layer not in groups:
                    groups[layer] = self.m.group()
                is_between = not place and block in BETWEEN
                marks.append({"l": NOT_JUDGED if is_between else groups[layer]} if layer else {})
        self.t.graph(nodes, stream=self.stream, node_base=base << 32, marks=marks, opaque=opaque)

    def program(self, about: str, executions: str = "x", layers: str = "", **more: Any) -> Program:
        about += ", kineto" * self.is_kineto + ", ops" * (self.has_ops and not self.is_kineto)
        about += f", modules {self.modules}" * bool(self.modules)
        return Program("", [self.m], list(executions), list(layers), is_kineto=self.is_kineto, about=about, **more)


# -- serving -------------------------------------------------------------------------------------------------


def vllm_engine(rng: Random) -> Program:
    """vLLM: prompts and tokens in one batch, eager or in pieces of graphs; pure decode as one graph or likewise."""
    view = rng.choice(("none", "none", "nvtx", "kineto", "layers"))
    r = Rig(rng, kineto=view == "kineto", modules="json" if view == "layers" else "")
    mode = "eager" if view == "layers" else rng.choice(("eager", "pieces", "full"))
    depth, moe, tp = rng.choice((6, 8, 12)), rng.random() < 0.4, rng.random() < 0.4
    post = "vmoe" if moe else "vpost"
    steps, prompts = rng.randint(9, 16), 0
    for s in range(steps):
        fresh = 1 if s == 0 else rng.choice((0, 0, 0, 1, 2))
        prompts += fresh
        size = 6.0 if fresh else 1.0
        text = {"kineto": f"execute_context_{fresh}({fresh * 512})_generation_{prompts - fresh}({prompts - fresh})",
                "nvtx": "gpu_model_runner: execute_model"}.get(view, "")  # fmt: skip
        with r.new("x"), r.say(text):
            with r.say("gpu_model_runner: preprocess" if view == "nvtx" else ""):
                r.t.copy(8_192, pageable=False)
                r.do("slots")
            with r.say("gpu_model_runner: forward" if view == "nvtx" else ""):
                r.do("embed", size=size)
                if mode == "full" and not fresh:
                    r.graph([(block, str(n)) for n in range(depth)
                             for block in ("vattn", "vmix", post, *["vreduce"] * tp)], 5)  # fmt: skip
                elif mode == "pieces":
                    groups = [r.m.group() for _ in range(depth)]
                    for n in range(depth + 1):  # a graph holds the end of one layer and the beginning of the next
                        parts = [(post, n - 1), *([("vreduce", n - 1)] if tp else [])] if n else []
                        parts += [("vattn", n)] if n < depth else []
                        nodes = [(t.partition(" @")[0], us * size * r.speed, g) for b, g in parts for t, us in B[b]]
                        # the norm between two layers is of either
                        marks = [{"l": groups[g]} for *_, g in nodes]
                        if 0 < n < depth:
                            marks[len(nodes) - len(B["vattn"])] = {"l": NOT_JUDGED}
                        r.t.graph([one[:2] for one in nodes], node_base=(40 + n + 100 * bool(fresh)) << 32, marks=marks,
                                  stream=r.stream, first_us=6)  # fmt: skip
                        if n < depth:
                            with r.t.mark(l=groups[n]):
                                r.do("vmix", size=size)
                else:
                    for n in range(depth):
                        with r.module(f"model.layers.{n}", "Qwen3MoeDecoderLayer" if moe else "LlamaDecoderLayer", n):
                            with r.module(f"model.layers.{n}.self_attn", "LlamaAttention", 100 + n, ""):
                                r.do("vattn", "vmix", size=size)
                            with r.module(f"model.layers.{n}.mlp", "LlamaMLP", 200 + n, ""):
                                r.do(post, *["vreduce"] * tp, size=size)
            with r.say("gpu_model_runner: postprocess" if view == "nvtx" else ""):
                r.do("vhead")
            with r.say("gpu_model_runner: sample" if view == "nvtx" else ""):
                r.do(rng.choice(("sample", "sample_top")) if s == 0 else "sample")
            r.read()
        r.t.host(rng.uniform(80, 600))
    return r.program(f"{steps} steps, {depth} layers, {mode}, {view}{', experts' * moe}", "x", "l")


def sglang_scheduler(rng: Random) -> Program:
    """SGLang: extend in chunks, then decode graphs; the scheduler runs ahead and reads the tokens one step late."""
    view = rng.choice(("none", "kineto", "nvtx"))
    r = Rig(rng, kineto=view == "kineto", modules="frame" if view == "kineto" and rng.random() < 0.5 else "")
    depth, rounds, graphs = rng.choice((6, 8, 10)), rng.randint(2, 3), rng.random() < 0.7
    for _ in range(rounds):
        chunks, tokens, bs = rng.randint(1, 3), rng.randint(4, 9), rng.choice((4, 8, 16))
        for s in range(chunks + tokens):
            is_extend = s < chunks
            text = f"step[{'EXTEND' if is_extend else 'DECODE'} bs={bs}{' toks=4096' * is_extend}]"
            short = "forward_extend" if is_extend else "forward_decode"
            with r.new("x"), r.say({"kineto": text, "nvtx": short}.get(view, "")):
                r.t.copy(4_096, pageable=False)
                if is_extend or not graphs:
                    r.do("embed")
                    for n in range(depth):
                        with r.module(f"model.layers.{n}", "Qwen3DecoderLayer", n):
                            r.do("sgl_extend" if is_extend else "sgl", size=1.5 if is_extend else 1)
                else:
                    r.graph([("embed", ""), *[("sgl", str(n)) for n in range(depth)]], 9)
                if not is_extend or s == chunks - 1:
                    r.do("vhead", "sample")
                r.t.copy(4 * bs, "DtoH", pageable=False)
            r.t.host(rng.uniform(60, 200))
        r.t.sync(r.stream)
        r.t.host(rng.uniform(300, 3_000))
    return r.program(f"{rounds} rounds, {depth} layers, {view}{', graphs' * graphs}", "x", "l")


def trtllm_pyexecutor(rng: Random) -> Program:
    """TensorRT-LLM's PyTorch flow: each iteration prepares, runs forward (a graph where all decode), samples."""
    said = rng.random() < 0.6
    r = Rig(rng)
    steps, depth, first = rng.randint(10, 18), rng.choice((6, 8, 12)), rng.randint(20, 300)
    overlap, waiting = rng.random() < 0.5, rng.randint(4, 8)
    for s in range(steps):
        fresh = rng.choice((0, 0, 0, 0, 1)) if s else 2
        iteration = f"[Executor] _forward_step {first + s}: {fresh} ctx reqs, {waiting} gen reqs" if said else ""
        with r.new("x"):
            with r.say("_prepare_and_schedule_batch" * said):
                r.t.host(60)
            with r.say(iteration):
                with r.say("_prepare_inputs" * said):
                    r.t.copy(2_048, pageable=False)
                    r.t.copy(2_048, pageable=False)
                with r.say("_forward_step" * said):
                    if fresh:
                        r.do("embed")
                        for _ in range(depth):
                            with r.new("l"):
                                r.do("trt_ctx")
                    else:
                        r.graph([("embed", ""), *[("trt", str(n)) for n in range(depth)]], 3)
                    r.do("vhead")
            with r.say("_sample_async" * said):
                r.do("sample_top")
                r.t.copy(64, "DtoH", pageable=False)
            if not overlap:
                r.t.sync(r.stream)
            with r.say("_update_requests" * said):
                r.t.host(50)
    return r.program(f"{steps} steps, {depth} layers{', said' * said}{', overlap' * overlap}", "x", "l")


def llama_server(rng: Random) -> Program:
    """llama.cpp: prompts in batches of 512, then token by token; C++ without ranges, graphs or not."""
    r = Rig(rng, host=0.3, program="llama-server")
    depth, requests, graphs = rng.choice((8, 12, 16)), rng.randint(2, 3), rng.random() < 0.4
    for _ in range(requests):
        for s in range(rng.randint(1, 3) + rng.randint(6, 12)):
            prompt = s < 1
            with r.new("x"):
                r.t.copy(16_384, pageable=False)
                if prompt or not graphs:
                    r.do("ggml_in")
                    for _ in range(depth):
                        with r.new("l"):
                            r.do("ggml_pp" if prompt else "ggml", size=2 if prompt else 1)
                    r.do("ggml_out")
                else:
                    parts = [("ggml_in", ""), *[("ggml", str(n)) for n in range(depth)], ("ggml_out", "")]
                    r.graph(parts, 2)
                r.t.copy(600_000, "DtoH", pageable=False)
                r.t.sync(r.stream)
            r.t.host(rng.uniform(50, 300))
        r.t.host(rng.uniform(2_000, 20_000))
    return r.program(f"{requests} requests, {depth} layers{', graphs' * graphs}", "x", "l")


def whisper_segments(rng: Random) -> Program:
    """Speech to text: thirty seconds through an encoder, then a decoder token by token, segment after segment."""
    view = rng.choice(("none", "nvtx", "frames", "class"))
    r = Rig(rng, kineto=view == "frames", modules={"frames": "frame", "class": "class"}.get(view, ""))
    segments, depth = rng.randint(3, 5), rng.choice((4, 6))
    for _ in range(segments):
        first, said = r.m.group(), view == "nvtx"  # the encoder and the first token: nothing ends the encoder
        with r.new("y"), r.say("decode_segment" * said):
            with r.new("x", z=first), r.say("encoder" * said), r.module("encoder", "AudioEncoder", 0, ""):
                r.t.copy(960_000)
                with r.any("lk"):
                    r.do("mel")
                    r.do("stem", times=2)
                for n in range(depth):
                    with r.module(f"encoder.blocks.{n}", "ResidualAttentionBlock", 1 + n):
                        r.do("enc", size=2)
            for token in range(rng.randint(6, 16)):
                with r.new("x", z=r.m.group() if token else first), r.say("decoder" * said):
                    with r.module("decoder", "TextDecoder", 50, ""):
                        r.do("embed")
                        for n in range(depth):
                            with r.module(f"decoder.blocks.{n}", "ResidualAttentionBlock", 51 + n):
                                r.do("dec")
                        r.do("head", size=0.4)
                    r.do("sample")
                    r.read()
        r.t.host(rng.uniform(500, 6_000))
    return r.program(f"{segments} segments, {depth} and {depth} layers, {view}", "xyz", "l")


def pictures_with_two_passes(rng: Random) -> Program:
    """Stable Diffusion XL: two text encoders, a UNet with and without the prompt in each step, a decoder in tiles."""
    view = rng.choice(("none", "nvtx", "frames"))
    r = Rig(rng, kineto=view == "frames", modules="frame" if view == "frames" else "")
    images, steps, batched, tiles = rng.randint(2, 3), rng.randint(8, 14), rng.random() < 0.4, rng.choice((1, 4))
    down, inner = 3, rng.choice((2, 3))

    def unet() -> None:
        number = 0
        with r.module("unet", "UNet2DConditionModel", 9, "z"):
            r.do("euler")
            kinds = ["CrossAttnDownBlock2D"] * down + ["UNetMidBlock2DCrossAttn"] + ["CrossAttnUpBlock2D"] * down
            for b, kind in enumerate(kinds):
                with r.module(f"unet.{kind}.{b}", kind, 10 + b, "k"):
                    for _ in range(1 if b == down else 2):
                        with r.any("l"):
                            r.do("unet_res")
                        for _ in range(inner):
                            with r.module(f"unet.tr.{number}", "BasicTransformerBlock", 30 + number):
                                r.do("unet_tr")
                            number += 1
            with r.any("l"):
                r.do("unet_res")

    for _ in range(images):
        with r.new("x"), r.say("pipeline" if view == "nvtx" else ""):
            with r.say("encode_prompt" if view == "nvtx" else ""), r.any("yz"):
                for e in range(2):
                    with r.module(f"text_encoder_{e}", "CLIPTextModel", 2 + e, ""):
                        for n in range(6):
                            with r.module(f"te.{e}.{n}", "CLIPEncoderLayer", 70 + n, "", l=NOT_JUDGED, k=NOT_JUDGED):
                                r.do("clip", size=1 + e)
            for s in range(steps):
                with r.new("y"), r.say(f"denoise step {s}" if view == "nvtx" else ""):
                    with r.any("z"):
                        r.do("euler")
                    for _ in range(1 if batched else 2):
                        unet()
                    with r.any("z"):
                        r.do("euler", times=2)
            with r.say("vae_decode" if view == "nvtx" else ""), r.any("yz"):
                for _ in range(tiles):
                    with r.module("vae.decoder", "Decoder", 90, ""):
                        r.do("vae", times=8, size=3)
                r.t.copy(3_000_000, "DtoH")
        r.t.host(rng.uniform(5_000, 60_000))
    about = f"{images} images of {steps} steps, {'one pass' if batched else 'two passes'}, {tiles} tiles, {view}"
    return r.program(about, "xyz", "lk" if view == "frames" else "")


def folded_proteins(rng: Random) -> Program:
    """Structures of proteins: blocks over pairs, recycled a few times; longer chains need more chunks in a block."""
    view = rng.choice(("none", "nvtx", "frames", "path"))
    r = Rig(rng, kineto=view == "frames", modules={"frames": "frame", "path": "path"}.get(view, ""))
    proteins, recycles, depth = rng.randint(3, 4), rng.randint(2, 4), rng.choice((4, 6))
    for p in range(proteins):
        chunks = rng.randint(2, 8)
        r.t.copy(2_000_000)
        with r.new("x"), r.say(f"predict target_{p}" if view == "nvtx" else ""):
            for c in range(recycles):
                with r.new("y"), r.say(f"recycle {c}" if view == "nvtx" else ""):
                    r.do("evo_row")
                    for n in range(depth):
                        with r.module(f"evoformer.blocks.{n}", "EvoformerBlock", n):
                            r.do("evo_row")
                            r.do("evo_chunk", times=chunks)
                            r.do("evo_tri", times=2)
                            r.do("evo_chunk", times=chunks)
            with r.say("structure_module" if view == "nvtx" else ""), r.any("y"):
                with r.module("structure_module", "StructureModule", 80, "", l=NOT_JUDGED):
                    r.do("ipa", times=8)
                r.t.copy(400_000, "DtoH")
        r.t.host(rng.uniform(5_000, 80_000))
    about = f"{proteins} proteins, {recycles} recycles, {depth} blocks, {view}"
    return r.program(about, "xy", "l" if r.modules else "")


def pictures_and_answers(rng: Random) -> Program:
    """A model that sees: patches of any number through a tower, a prompt, tokens; request after request (HF)."""
    view = rng.choice(("none", "nvtx", "frames"))
    r = Rig(rng, kineto=view == "frames", modules="frame" if view == "frames" else "")
    requests, tower, depth = rng.randint(3, 4), rng.choice((4, 6)), rng.choice((4, 6))
    for _ in range(requests):
        with r.new("y"), r.say("generate" if view == "nvtx" else ""):
            with r.new("xz"), r.say("prefill" if view == "nvtx" else ""):
                r.t.copy(4_000_000)
                vision = r.m.group()  # the tower may be an execution of its own
                with r.t.mark(z=vision), r.module("visual", "Qwen2VisionTransformer", 1, ""):
                    with r.any("lk"):
                        r.do("stem")
                    for n in range(tower):
                        with r.module(f"visual.blocks.{n}", "Qwen2VLVisionBlock", 2 + n):
                            r.do("enc", size=rng.uniform(1, 4))
                with r.module("model", "Qwen2Model", 40, ""):
                    r.do("embed")
                    for n in range(depth):
                        with r.module(f"model.layers.{n}", "Qwen2DecoderLayer", 41 + n):
                            r.do("attn", "mlp", size=3)
                r.do("head", "sample")
                r.read()
            for _ in range(rng.randint(5, 12)):
                with r.new("xz"), r.say("decode" if view == "nvtx" else ""):
                    with r.module("model", "Qwen2Model", 40, ""):
                        r.do("embed")
                        for n in range(depth):
                            with r.module(f"model.layers.{n}", "Qwen2DecoderLayer", 41 + n):
                                r.do("attn", "mlp", size=0.4)
                    r.do("head", "sample")
                    r.read()
        r.t.host(rng.uniform(500, 20_000))
    return r.program(f"{requests} requests, {tower} and {depth} layers, {view}", "xyz", "l")


def corpus_of_vectors(rng: Random) -> Program:
    """Sentences become vectors: batches sorted by length, so each is smaller and its products are other kernels."""
    view = rng.choice(("none", "nvtx", "frames", "emit"))
    r = Rig(rng, kineto=view == "frames", ops=view == "emit", modules="frame" if view == "frames" else "")
    batches, depth = rng.randint(7, 12), rng.choice((4, 6, 12))
    for b in range(batches):
        tile = ("256x128", "128x128", "128x64", "64x64")[min(3, b * 4 // batches)]
        with r.new("x"), r.say(f"encode batch {b}" if view == "nvtx" else ""):
            r.t.copy(300_000)
            with r.module("0.auto_model", "BertModel", 1, ""):
                r.do("embed")
                for n in range(depth):
                    with r.module(f"encoder.layer.{n}", "BertLayer", 2 + n):
                        for text, us in B["enc"]:
                            name, _, operator = text.partition(" @")
                            if "gemm" in name:
                                name = f"ampere_fp16_s16816gemm_fp16_{tile}_ldg8_f2f_stages_64x3_tn"
                            r.sequence += 1
                            r.one(name, us * (batches - b) / batches, operator, r.sequence)
            r.do("pool")
            r.t.copy(100_000, "DtoH")
        r.t.host(rng.uniform(200, 4_000))
    return r.program(f"{batches} batches, {depth} layers, {view}", "x", "l")


# -- training ------------------------------------------------------------------------------------------------


def forward_of(r: Rig, depth: int, kind: str = "LlamaDecoderLayer", blocks: tuple[str, ...] = ("attn", "mlp"), *,
               gather: bool = False, size: float = 1.0, taped: bool = True) -> list[int]:  # fmt: skip
    """A language model forward; where each layer begins on the tape."""
    starts = []
    r.do("embed", taped=taped)
    for n in range(depth):
        starts.append(len(r.tape))
        if gather:
            with r.any("lk"):
                r.do("allgather", stream=20)
        with r.module(f"model.layers.{n}", kind, 1 + n):
            r.do(*blocks, taped=taped, size=size)
    r.do("head", "loss", taped=taped)
    return starts


def backward_of(r: Rig, starts: list[int], *, again: bool = False, gather: bool = False, scatter: str = "") -> None:
    """Backward layer by layer; ``again``: what was not kept is computed first."""
    tape, r.tape = r.tape, []
    with r.autograd():
        ends = [*starts[1:], len(tape) - len(B["head"]) - len(B["loss"])]
        r.undo(tape[ends[-1] :])
        for a, b in reversed(list(zip(starts, ends))):
            if gather:
                r.do("allgather", stream=20)
            if again:
                for operator, us, _ in tape[a:b]:
                    name = next(t.partition(" @")[0] for blk in ("attn", "mlp", "te_attn", "te_mlp") for t, _ in B[blk]
                                if t.endswith("@" + operator))  # fmt: skip
                    r.sequence += 1
                    r.one(name, us, operator, r.sequence)
            r.undo(tape[a:b])
            if scatter:
                r.do(scatter, stream=21)
        r.undo(tape[: starts[0]])


def megatron_iterations(rng: Random) -> Program:
    """Megatron-Core: micro-batches one after another, all recomputed or not, a distributed optimizer; its own NVTX."""
    said = rng.random() < 0.5
    r = Rig(rng, host=rng.choice((1.5, 4.0)))
    steps, micro, depth, again = rng.randint(3, 5), rng.choice((2, 4)), rng.choice((4, 6)), rng.random() < 0.5
    prefix = "megatron.core.transformer.transformer_layer.TransformerLayer."
    for _ in range(steps):
        with r.new("x"):
            r.do("zero")
            for _ in range(micro):
                with r.say("forward_step" * said):
                    r.t.copy(65_536, pageable=False)
                    starts = []
                    r.do("embed", taped=True)
                    for _ in range(depth):
                        starts.append(len(r.tape))
                        with r.new("l"):
                            with r.say(f"{prefix}_forward_attention.self_attention" * said), r.new("k"):
                                r.do("te_attn", taped=True)
                            with r.say(f"{prefix}_forward_mlp.mlp" * said), r.new("k"):
                                r.do("te_mlp", taped=True)
                    r.do("head", "loss", taped=True)
                with r.say("backward_step" * said):
                    backward_of(r, starts, again=again)
            with r.say("finalize_model_grads" * said):
                r.do("reducescatter", times=2, stream=21)
            with r.say("optimizer" * said):
                r.do("clipnorm")
                r.do("apex", times=depth)
                r.do("allgather", times=2, stream=20)
            r.read()
        r.t.host(rng.uniform(200, 1_500))
    about = f"{steps} steps of {micro}, {depth} layers{', again' * again}{', said' * said}"
    return r.program(about, "x", "lk" if said else "l")  # Megatron's own ranges are two a layer


def zero_offload(rng: Random) -> Program:
    """DeepSpeed: weights gathered for each layer, gradients to the host, Adam on the CPU, weights come back."""
    said = rng.random() < 0.5
    r = Rig(rng, host=rng.choice((1.5, 4.0)), modules=rng.choice(("", "", "class")))
    steps, micro, depth = rng.randint(4, 6), rng.choice((1, 1, 2)), rng.choice((4, 6, 8))
    for _ in range(steps):
        with r.new("x"):
            for one in range(micro):
                with r.new("y"):
                    with r.say("DeepSpeedEngine.forward" * said):
                        r.t.copy(32_768, pageable=False)
                        starts = forward_of(r, depth, gather=True)
                    with r.say("DeepSpeedEngine.backward" * said):
                        backward_of(r, starts, gather=True, scatter="reducescatter")
                        for _ in range(depth):
                            r.t.copy(8_000_000, "DtoH", pageable=False, stream=25)
                    with r.say("DeepSpeedEngine.step" * said):
                        if one == micro - 1:
                            r.t.sync()
                            with r.any("y"):
                                r.do("clipnorm")
                            r.t.host(rng.uniform(6_000, 9_000))
                            for _ in range(depth):
                                r.t.copy(8_000_000, pageable=False, stream=25)
            r.read()
        r.t.host(300)
    return r.program(f"{steps} steps of {micro}, {depth} layers{', said' * said}", "xy" if said else "x", "l")


def lightning_fit(rng: Random) -> Program:
    """Lightning: a sanity check, epochs of batches with validation behind each, a checkpoint; its profiler's texts."""
    said, kineto = rng.random() < 0.7, rng.random() < 0.3
    r = Rig(rng, kineto=kineto, modules=rng.choice(("", "frame" if kineto else "both")))
    epochs, batches, checks, depth = rng.randint(2, 3), rng.randint(4, 8), rng.randint(2, 4), rng.choice((4, 6))

    def says(text: str) -> Any:
        return r.say(f"[pl][profile]{text}" if said else "")

    def validate(count: int) -> None:
        with says("run_evaluation") if rng.random() < 0.5 else r.say(""):
            for _ in range(count):
                with r.new("x", y=NOT_JUDGED), says("[Strategy]SingleDeviceStrategy.validation_step"):
                    r.t.copy(300_000)
                    forward_of(r, depth, "Block", taped=False)
            r.read()

    validate(2)
    with says("run_training_epoch") if rng.random() < 0.3 else r.say(""):
        for _ in range(epochs):
            for _ in range(batches):
                with r.new("xy"), says("run_training_batch"):
                    with says("[Strategy]SingleDeviceStrategy.batch_to_device"):
                        r.t.copy(300_000)
                    with says("[LightningModule]Net.optimizer_step"):
                        with says("[Strategy]SingleDeviceStrategy.training_step"):
                            starts = forward_of(r, depth, "Block")
                        with says("[Strategy]SingleDeviceStrategy.backward"):
                            backward_of(r, starts)
                        r.do("adam", times=3)
                r.t.host(200)
            validate(checks)
            with says("[Callback]ModelCheckpoint.on_validation_end"):
                for _ in range(depth):
                    r.t.copy(4_000_000, "DtoH")
                r.t.host(40_000)
    about = f"{epochs} epochs of {batches} and {checks}, {depth} blocks{', said' * said}"
    return r.program(about, "x", "l")


def adapters_by_trainer(rng: Random) -> Program:
    """HF Trainer with LoRA: micro-batches are gathered, layers computed again backward; PyTorch's profiler."""
    r = Rig(rng, kineto=True, modules=rng.choice(("", "frame")))
    steps, micro, depth, first = rng.randint(3, 5), rng.choice((1, 2, 4)), rng.choice((4, 6)), rng.randint(2, 9)
    for s in range(steps):
        with r.new("x"), r.say(f"ProfilerStep#{first + s}"):
            for _ in range(micro):
                r.t.copy(16_384)
                starts = forward_of(r, depth, "LlamaDecoderLayer", ("attn", "mlp"))
                backward_of(r, starts, again=True)
            r.do("clipnorm")
            with r.say("Optimizer.step#AdamW.step"):
                r.do("adam", times=2)
            with r.say("Optimizer.zero_grad#AdamW.zero_grad"):
                pass
            r.read()
        r.t.host(500)
    return r.program(f"{steps} steps of {micro}, {depth} layers", "x", "l")


def resnet_loader(rng: Random) -> Program:
    """Pictures: a loader, mixed precision with a scaler that skips steps, SGD; PyTorch's profiler or emit_nvtx."""
    view = rng.choice(("kineto", "frames", "emit", "none"))
    r = Rig(rng, kineto=view in ("kineto", "frames"), ops=view == "emit", modules="frame" if view == "frames" else "")
    steps, depth, first, epoch = rng.randint(5, 8), rng.choice((4, 8)), rng.randint(1, 5), rng.random() < 0.3
    for s in range(steps):
        text = f"ProfilerStep#{first + s}" if r.is_kineto else ""
        with r.new("x"), r.say(text):
            with r.say("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__" if r.is_kineto else ""):
                r.t.host(rng.choice((100, 100, 8_000)))
            r.t.copy(2_000_000, pageable=False)
            with r.module("net", "ResNet", 0, ""):
                r.do("stem", taped=True)
                for n in range(depth):
                    with r.module(f"layer1.{n}", "Bottleneck", 1 + n):
                        r.do("bottleneck", taped=True)
                r.do("pool", taped=True)
            r.do("loss", taped=True)
            r.backward()
            r.do("unscale", times=2)
            r.read()
            if rng.random() > 0.2:
                with r.say("Optimizer.step#SGD.step" if r.is_kineto else ""):
                    r.do("sgd", times=2)
            r.do("scale")
            with r.say("Optimizer.zero_grad#SGD.zero_grad" if r.is_kineto else ""):
                r.do("zero", times=2)
        if epoch and s == steps // 2:
            r.t.host(60_000)
    return r.program(f"{steps} steps, {depth} blocks, {view}", "x", "l" if view == "frames" else "")


def compiled_again(rng: Random) -> Program:
    """torch.compile: the second length compiles anew with other kernels, and all of them are tried out first."""
    kineto = rng.random() < 0.6
    r = Rig(rng, kineto=kineto)
    r.has_ops = False
    steps, depth, tuned = rng.randint(7, 11), rng.choice((4, 6)), rng.random() < 0.5
    change = steps // 3
    for s in range(steps):
        version = int(s >= change)
        if s in (0, change):
            r.t.host(rng.uniform(200_000, 900_000))
            if tuned:
                with r.any():
                    for c in range(rng.randint(3, 5)):
                        for _ in range(rng.choice((5, 10))):
                            r.t.memset(50_000_000)
                            r.one(f"triton_tem_fused_mm_{c + 30 * version}", 40 + 3 * c, "", 0)
                        r.t.sync()
        with r.new("x"), r.say(f"step {s}" if kineto else ""):
            r.t.copy(30_000, pageable=False)
            region = f"Torch-Compiled Region: 0/{version}" if kineto else ""
            with r.say(region), r.say("CompiledFxGraph" if kineto else ""):
                r.do("embed")
                for _ in range(depth):
                    with r.new("l"):
                        a = 8 * version
                        for name, us in (
                                (f"triton_red_fused_add_mean_mul_pow_rsqrt_{a}", 7),
                                (f"triton_tem_fused_mm_{a + 1}", 30),
                                (f"triton_poi_fused_cat_mul_{a + 2}", 5),
                                (B["attn"][4][0].split(" @")[0], 34), ("nvjet_tst_128x128_64x6_1x2_h_bz_TNT", 16),
                                (f"triton_red_fused_add_mean_mul_pow_rsqrt_{a + 3}", 7),
                                (f"triton_tem_fused_mm_{a + 4}", 80), (f"triton_poi_fused_mul_silu_{a + 5}", 9),
                                ("nvjet_tst_192x128_64x5_2x1_v_bz_coopB_TNT", 42),
                            ):  # fmt: skip
                            r.one(name, us, "", 0)
            r.do("head", "sample")
            r.read()
        r.t.host(300)
    return r.program(f"{steps} steps, {depth} layers, anew at {change}{', tuned' * tuned}", "x", "l")


def jax_step(rng: Random) -> Program:
    """JAX: one program a step, layers in a scan forward and in a scan backward; XLA's ranges or none."""
    said = rng.random() < 0.5
    r = Rig(rng, host=0.5)
    steps, depth, checks = rng.randint(4, 6), rng.choice((4, 6, 8)), rng.random() < 0.4
    names = {key: rng.randint(2, 90) for key in "abcd"}

    def run(block: str) -> None:
        for name, us in numbered(B[block], **names):
            with r.say(f"Thunk:#hlo_op={name.split('(')[0][:40]}#" if said else "", domain="TSL"), r.new("k"):
                r.one(name, us, "", 0)

    module = "XlaModule:#prefix=jit({0})/jit(main),hlo_module=jit_{0},program_id=31#" if said else ""
    for s in range(steps):
        with r.new("x"), r.say(module.format("train_step"), domain="TSL"):
            run("xla_in")
            for _ in range(depth):
                with r.new("l"):
                    run("xla_fw")
                with r.any("l"):
                    r.t.copy(1, "DtoH", pageable=False)
            run("xla_loss")
            for _ in range(depth):
                with r.any("l"):
                    run("xla_bw")
                    r.t.copy(1, "DtoH", pageable=False)
            for _ in range(2):
                run("xla_opt")
        if checks and s == steps // 2:
            for _ in range(2):
                with r.new("x"), r.say(module.format("eval_step"), domain="TSL"):
                    run("xla_in")
                    for _ in range(depth):
                        with r.new("l"):
                            run("xla_fw")
                    run("xla_loss")
        if s % 2:
            r.t.copy(8, "DtoH")
        r.t.host(150)
    about = f"{steps} steps, {depth} layers{', checks' * checks}{', said' * said}"
    return r.program(about, "x", "lk" if said else "l")


def keras_fit(rng: Random) -> Program:
    """TensorFlow: convolutions with NVTX of each operation or none; epochs of batches, validation behind each."""
    said = rng.random() < 0.5
    r = Rig(rng, host=rng.choice((1.5, 4.0)))
    epochs, batches, depth = rng.randint(2, 3), rng.randint(4, 8), rng.choice((4, 6))

    def run(block: str, scope: str) -> None:
        for text, us in B[block]:
            name, _, operator = text.partition(" @")
            with r.say(f"{operator}: {scope}/{operator}" if said else "", domain="tensorflow-core"):
                r.one(name, us, "", 0)

    def forward() -> None:
        for n in range(depth):
            for c in range(2):
                run("tf_block", f"model/block{n}_conv{c}")
        run("tf_head", "model/dense")

    for _ in range(epochs):
        for _ in range(batches):
            with r.new("x"):
                r.t.copy(600_000, pageable=False)
                forward()
                for n in reversed(range(depth)):
                    for c in (1, 0):
                        run("tf_bw", f"gradient_tape/model/block{n}_conv{c}")
                for n in range(2 * depth):
                    run("tf_adam", f"Adam/update_{n}")
                with r.any("x"):
                    r.t.copy(4, "DtoH")
            r.t.host(rng.uniform(300, 2_000))
        for _ in range(rng.randint(2, 3)):
            with r.new("x"):
                r.t.copy(600_000, pageable=False)
                forward()
                r.t.copy(4, "DtoH")
            r.t.host(200)
        r.t.host(10_000)
    return r.program(f"{epochs} epochs of {batches}, {depth} blocks{', said' * said}")


def neighbours_by_epoch(rng: Random) -> Program:
    """A graph network: neighbours drawn on the CPU, batches of other sizes, training and a test in each epoch."""
    view = rng.choice(("none", "nvtx", "kineto", "emit"))
    r = Rig(rng, kineto=view == "kineto", ops=view == "emit", host=rng.choice((4.0, 9.0)))
    epochs, batches, depth = rng.randint(2, 3), rng.randint(4, 7), rng.choice((2, 3))
    for _ in range(epochs):
        for _ in range(batches):
            size = rng.uniform(0.5, 2)
            with r.new("x"), r.say("train batch" if view == "nvtx" else ""):
                r.t.copy(int(900_000 * size))
                r.t.copy(int(90_000 * size))
                for _ in range(depth):
                    r.do("sage", size=size, taped=True)
                r.do("loss", taped=True)
                r.backward()
                with r.say("Optimizer.step#Adam.step" if view == "kineto" else ""):
                    r.do("adam")
                r.read()
            r.t.host(rng.uniform(2_000, 6_000))
        for _ in range(rng.randint(2, 3)):
            size = rng.uniform(0.5, 2)
            with r.new("x"), r.say("test batch" if view == "nvtx" else ""):
                r.t.copy(int(900_000 * size))
                for _ in range(depth):
                    r.do("sage", size=size)
                r.do("sample")
                r.read()
            r.t.host(rng.uniform(2_000, 6_000))
    return r.program(f"{epochs} epochs of {batches}, {depth} layers, {view}")


def tables_in_pipeline(rng: Random) -> Program:
    """TorchRec: the inputs of the next batch are sent round while the present one is learned from."""
    said = rng.random() < 0.6
    r = Rig(rng, kineto=rng.random() < 0.5)
    r.has_ops = r.is_kineto and rng.random() < 0.5
    steps = rng.randint(7, 11)
    for s in range(steps):
        with r.new("x"), r.say(f"ProfilerStep#{s + 3}" if r.is_kineto else "## train_step ##" * said):
            with r.say("## zero_grad ##" * said):
                r.do("zero")
            with r.say("## wait_for_batch ##" * said):
                r.t.host(20)
            with r.say("## copy_batch_to_gpu ##" * said), r.any("x"):
                r.t.copy(2_000_000, pageable=False, stream=31)
            with r.say("## start_sparse_data_dist ##" * said), r.any("x"):
                r.do("alltoall", times=2, stream=32)
            with r.say("## forward ##" * said):
                r.do("tbe", times=2, taped=True)
                r.do("alltoall", stream=33)
                r.do("dense", times=3, taped=True)
                r.do("interact", taped=True)
                r.do("dense", times=4, taped=True)
                r.do("loss", taped=True)
            with r.say("## backward ##" * said):
                r.backward()
                r.do("allreduce", stream=34)
            with r.say("## optimizer ##" * said):
                r.do("adam")
        r.t.host(100)
    return r.program(f"{steps} steps{', said' * said}")


def acts_and_updates(rng: Random) -> Program:
    """PPO: a small policy acts for many steps of its worlds, then passes of minibatches over what was seen."""
    view = rng.choice(("none", "nvtx", "kineto"))
    r = Rig(rng, kineto=view == "kineto", host=rng.choice((4.0, 9.0)))
    rounds, acts, passes, minis = rng.randint(3, 4), rng.randint(8, 16), rng.choice((1, 2)), rng.choice((2, 4))
    for _ in range(rounds):
        with r.new("y"):
            with r.say("collect_rollouts" if view == "nvtx" else ""), r.any("z"), r.new("w"):
                for _ in range(acts):
                    with r.new("x"):
                        r.t.copy(4_096)
                        r.do("policy", times=2)
                        r.do("act")
                        r.t.copy(256, "DtoH")
                    r.t.host(rng.uniform(300, 700))
            with r.any("xzw"):
                r.do("gae", times=6)
            with r.say("train" if view == "nvtx" else ""):
                for _ in range(passes * minis):
                    with r.new("xzw"):
                        r.do("policy", times=2, taped=True, size=3)
                        r.do("surrogate", taped=True)
                        r.backward()
                        r.do("clipnorm")
                        with r.say("Optimizer.step#Adam.step" if view == "kineto" else ""):
                            r.do("adam")
                    r.t.host(60)
                r.read()
        r.t.host(rng.uniform(500, 3_000))
    return r.program(f"{rounds} rounds, {acts} acts, {passes} passes of {minis}, {view}", "xyzw")


def speech_of_any_length(rng: Random) -> Program:
    """NeMo: sounds of any length through conformers; a loss that waits for the lengths; now and then a read."""
    view = rng.choice(("none", "nvtx", "both", "frame"))
    r = Rig(rng, kineto=view == "frame", modules=view if view in ("both", "frame") else "")
    steps, depth, reads = rng.randint(5, 8), rng.choice((4, 6)), rng.choice((1, 3))
    for s in range(steps):
        size = rng.uniform(0.4, 2.0)
        with r.new("x"), r.say("train_step" if view == "nvtx" else f"ProfilerStep#{s}" * r.is_kineto):
            r.t.copy(int(900_000 * size), pageable=False)
            with r.any("lk"):
                r.do("mel", size=size)
                r.do("stem", times=2, size=size, taped=True)
            for n in range(depth):
                with r.module(f"encoder.layers.{n}", "ConformerLayer", 1 + n):
                    r.do("conformer", size=size, taped=True)
            r.do("head", taped=True)
            r.t.copy(64, "DtoH")
            r.do("ctc", size=size, taped=True)
            r.backward()
            with r.say("optimizer_step" if view == "nvtx" else ""):
                r.do("clipnorm", "adam", "adam")
            if s % reads == 0:
                r.read()
        r.t.host(rng.uniform(100, 1_500))
    return r.program(f"{steps} steps, {depth} layers, {view}", "x", "l")


def two_ranks_of_ddp(rng: Random) -> Program:
    """Two processes of one file: gradients go round in buckets while the backward pass runs; ranges or none."""
    said = rng.random() < 0.5
    steps, depth, kind = rng.randint(4, 6), rng.choice((4, 6)), rng.choice(("", "class"))
    rigs = [Rig(Random(rng.random()), modules=kind, pid=pid) for pid in (4_100, 4_101)]
    for device, r in enumerate(rigs):
        r.m.device, r.gap, r.speed, r.t.now = device, rigs[0].gap, rigs[0].speed, rigs[0].t.now
    for s in range(steps):
        for r in rigs:
            with r.new("x"), r.say(f"iteration {s}" if said else ""):
                r.t.copy(60_000, pageable=False)
                with r.say("forward" * said):
                    starts = forward_of(r, depth, "TransformerBlock")
                with r.say("backward" * said):
                    backward_of(r, starts, scatter="allreduce")
                with r.say("optimizer" * said):
                    r.do("adam", times=2)
                r.read()
            r.t.host(200)
        until = max(r.t.now for r in rigs)
        for r in rigs:
            r.t.wait_until(until)
    program = rigs[0].program(f"{steps} steps, {depth} layers{', said' * said}", "x", "l")
    program.machines = [r.m for r in rigs]
    return program


# -- engines -------------------------------------------------------------------------------------------------


def onnx_service(rng: Random) -> Program:
    """ONNX Runtime: requests of any size, nodes in ranges or not; several sessions may follow one another."""
    said = rng.random() < 0.5
    r = Rig(rng, host=0.8, program="server")
    requests, depth = rng.randint(8, 14), rng.choice((6, 8, 12))

    def run(block: str, layer: str) -> None:
        for text, us in B[block]:
            name, _, operator = text.partition(" @")
            with r.say(f"{operator}.({layer}/{operator})" if said else ""), r.new("k"):
                r.one(name, us * size, "", 0)

    for _ in range(requests):
        size = rng.choice((0.5, 1, 2))
        with r.new("x"), r.say("Batch-0 Forward" * said):
            r.t.copy(20_000)
            run("ort_in", "embed")
            for n in range(depth):
                with r.new("l"):
                    run("ort", f"/bert/encoder/layer.{n}")
            run("ort_out", "pooler")
            r.t.copy(3_072, "DtoH")
        r.t.host(rng.choice((100, 1_000, 9_000)))
    return r.program(f"{requests} requests, {depth} layers{', said' * said}", "x", "lk" if said else "l")


def camera_with_engine(rng: Random) -> Program:
    """TensorRT: a frame is resized, goes through an engine, boxes are suppressed; layers in ranges or a graph."""
    view = rng.choice(("none", "layers", "graph", "enqueue"))
    r = Rig(rng, host=0.4, program="detector")
    frames, depth, pinned = rng.randint(9, 15), rng.randint(10, 18), rng.random() < 0.5
    tiles = ["sm86_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_"
             f"tilesize{rng.choice(('128x64x64', '96x64x64', '256x64x64'))}_stage{rng.choice('346')}_kernel_trt"
             for _ in range(depth)]  # fmt: skip
    times = [rng.uniform(8, 60) for _ in range(depth)]
    for _ in range(frames):
        with r.new("x"):
            r.t.copy(1_800_000, pageable=not pinned)
            r.do("yolo_pre")
            with r.say("ExecutionContext::enqueue" if view in ("layers", "enqueue") else ""):
                if view == "graph":
                    r.t.graph([*zip(tiles, times)], node_base=7 << 32, stream=r.stream)
                else:
                    for n, (tile, us) in enumerate(zip(tiles, times)):
                        text = f"/model.{n}/conv/Conv + PWN(PWN(/model.{n}/act/Sigmoid), /model.{n}/act/Mul)"
                        with r.say(text if view == "layers" else ""), r.new("l"):
                            r.one(tile, us, "", 0)
                            if n % 4 == 3:
                                r.one("void genericReformat::copyVectorizedKernel<float, __half, true>(P)", 4, "", 0)
            r.do("nms")
            r.t.copy(24_000, "DtoH", pageable=not pinned)
            r.t.sync(r.stream)
        r.t.host(rng.uniform(100, 3_000))
    return r.program(f"{frames} frames, {depth} layers, {view}", "x", "l" if view == "layers" else "")


# -- other programs ------------------------------------------------------------------------------------------


def implicit_steps(rng: Random) -> Program:
    """Finite elements: each time step assembles, then conjugate gradients until the residual is small enough."""
    said = rng.random() < 0.4
    r = Rig(rng, host=0.3, program="heat_solver")
    steps = rng.randint(5, 8)
    for s in range(steps):
        with r.new("x"), r.say(f"timestep {s}" if said else ""):
            with r.say("assemble" * said), r.any("y"):
                r.do("assemble")
            with r.say("solve" * said):
                with r.any("y"):
                    r.do("spmv", "axpy", "dot")
                for _ in range(rng.randint(9, 20)):
                    with r.new("y"):
                        r.do("precond", "dot", "axpy", "spmv", "dot")
                        r.t.copy(8, "DtoH")
                        r.do("axpy", "axpy", "dot")
                        r.t.copy(8, "DtoH")
        r.t.host(200)
    return r.program(f"{steps} time steps{', said' * said}", "xy")


def flows_on_lattice(rng: Random) -> Program:
    """Lattice Boltzmann: even and odd steps are two kernels; halos go to a neighbour, results out now and then."""
    said = rng.random() < 0.3
    r = Rig(rng, host=0.3, program="lbm")
    steps, every = 2 * rng.randint(12, 24), rng.choice((6, 10))
    pair = 0
    for s in range(steps):
        pair = r.m.group() if s % 2 == 0 else pair
        with r.new("x", y=pair), r.say("step" * said):
            r.do("lbm_a" if s % 2 == 0 else "lbm_b")
            r.do("lbm_halo")
            r.t.copy(200_000, "DtoD")
        if s % every == every - 1:
            with r.any("xy"), r.say("output" * said):
                r.do("lbm_out")
                r.t.copy(4_000_000, "DtoH")
    return r.program(f"{steps} steps, output every {every}{', said' * said}", "xy")


def molecules_in_steps(rng: Random) -> Program:
    """GROMACS: forces on two streams, an update; pairs are pruned now and then, energies wanted every so often."""
    r = Rig(rng, host=0.5, program="gmx")
    steps, prune, energy = rng.randint(24, 40), rng.choice((4, 10)), rng.choice((5, 10, 100))
    for s in range(steps):
        with r.new("x"):
            r.do("md_nbe" if s % energy == 0 else "md_nb", stream=13)
            r.do("md_pme", stream=14)
            r.t.sync(14)
            r.do("md_upd", stream=15)
            if s % energy == 0:
                r.t.copy(400, "DtoH", pageable=False, stream=15)
                r.t.sync(15)
        if s % prune == prune - 1:
            with r.any("x"):
                r.do("md_prune", stream=13)
        r.t.host(12)
    return r.program(f"{steps} steps, pruned every {prune}, energy every {energy}")


def spectra_by_runge_kutta(rng: Random) -> Program:
    """CuPy: a field is moved on in time by four stages of transforms; its size is looked at now and then."""
    said = rng.random() < 0.3
    r = Rig(rng, host=rng.choice((1.5, 4.0, 9.0)))
    steps, stages, every = rng.randint(10, 18), rng.choice((3, 4)), rng.choice((0, 5))
    for s in range(steps):
        with r.new("x"), r.say("rk4_step" * said):
            for _ in range(stages):
                with r.new("y"):
                    r.do("rk")
            with r.any("y"):
                r.do("rk_end", times=2)
        if every and s % every == every - 1:
            with r.any("xy"):
                r.do("rk_norm")
                r.t.copy(8, "DtoH")
    return r.program(f"{steps} steps of {stages} stages, looked at every {every}{', said' * said}", "xy")


def boosted_trees(rng: Random) -> Program:
    """XGBoost: a tree a round, level by level; how good it is after each; its own monitor's ranges or none."""
    said = rng.random() < 0.5
    r = Rig(rng, host=rng.choice((1.5, 4.0)))
    rounds, levels, checks = rng.randint(7, 12), rng.randint(4, 6), rng.random() < 0.6
    for _ in range(rounds):
        with r.new("x"):
            with r.say("Learner: GetGradient" * said):
                r.do("gb_grad")
            with r.say("GBTree: BoostNewTrees" * said):
                for n in range(levels):
                    r.do("gb_level", size=1 + 0.3 * n)
                    r.t.copy(200, "DtoH")
                r.do("gb_predict")
            if checks:
                with r.say("Learner: EvalOneIter" * said):
                    r.do("gb_eval")
                    r.t.copy(8, "DtoH")
        r.t.host(rng.uniform(50, 400))
    return r.program(f"{rounds} rounds of {levels} levels{', said' * said}{', checked' * checks}")


def chunks_on_streams(rng: Random) -> Program:
    """CUDA C++: parts of a large input, each on its own stream: copied in, three kernels, copied out."""
    said = rng.random() < 0.3
    r = Rig(rng, host=0.3, program="pipeline")
    chunks, streams = rng.randint(12, 24), rng.choice((2, 3, 4))
    for c in range(chunks):
        stream = 13 + c % streams
        with r.new("x"), r.say(f"chunk {c}" if said else ""):
            r.t.copy(3_000_000, pageable=False, stream=stream)
            r.do("chunk", stream=stream)
            r.t.copy(1_000_000, "DtoH", pageable=False, stream=stream)
        if c >= streams:
            r.t.sync(13 + (c + 1) % streams)
    return r.program(f"{chunks} chunks on {streams} streams{', said' * said}")


def splats(rng: Random) -> Program:
    """Scenes of Gaussians: a picture is drawn, compared, and drawn backward; more Gaussians now and then."""
    said = rng.random() < 0.4
    r = Rig(rng, host=rng.choice((1.5, 4.0)))
    steps, every = rng.randint(12, 20), rng.choice((5, 8))
    for s in range(steps):
        size = rng.uniform(0.6, 1.5)
        with r.new("x"), r.say(f"iteration {7_000 + s}" if said else ""):
            with r.say("render" * said):
                r.do("gs", size=size)
            with r.say("loss" * said):
                r.do("gs_loss")
            with r.say("backward" * said), r.autograd():
                r.do("gs_bw", size=size)
            with r.say("step" * said):
                r.do("gs_adam", times=6)
        if s % every == every - 1:
            with r.any("x"), r.say("densify" * said):
                r.do("gs_dens", times=rng.randint(6, 9))
                r.t.item()
        r.t.host(rng.uniform(30, 300))
    return r.program(f"{steps} steps, more every {every}{', said' * said}")


def frames_of_data(rng: Random) -> Program:
    """A notebook with tables and arrays: each cell does something else."""
    r = Rig(rng)
    for _ in range(rng.randint(50, 110)):
        with r.say(rng.choice(("join", "groupby", "plot", "clean", "fit"))) if rng.random() < 0.15 else r.say(""):
            for _ in range(rng.randint(1, 5)):
                name, us = rng.choice(B["odd"])
                r.t.launch(name, us * rng.lognormvariate(0, 1.2), grid=rng.randint(1, 2_000))
        if rng.random() < 0.4:
            r.t.copy(int(rng.lognormvariate(13, 2)), rng.choice(("HtoD", "DtoH")))
        r.t.host(rng.lognormvariate(7, 1.8))
    return r.program("cells", "", is_noise=True)


def samples_in_turn(rng: Random) -> Program:
    """What an installation is tried with: samples of CUDA, one after another, each once or twice with its own work."""
    r = Rig(rng, program="runner")
    tests = [one for block, rows in B.items() if block.startswith("test_") for one in rows] + B["odd"]
    rng.shuffle(tests)
    for name, us in tests:
        r.t.copy(int(rng.lognormvariate(13, 1)))
        for _ in range(rng.choice((1, 1, 2))):
            r.t.launch(name, us * rng.uniform(0.5, 2), grid=rng.randint(1, 600))
        if rng.random() < 0.4:
            r.t.memset(rng.randint(64, 9_000_000))
        r.t.copy(int(rng.lognormvariate(12, 1)), "DtoH")
        r.t.host(rng.lognormvariate(8, 1))
    return r.program(f"{len(tests)} samples", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        vllm_engine, sglang_scheduler, trtllm_pyexecutor, llama_server, whisper_segments, pictures_with_two_passes,
        folded_proteins, pictures_and_answers, corpus_of_vectors, megatron_iterations, zero_offload, lightning_fit,
        adapters_by_trainer, resnet_loader, compiled_again, jax_step, keras_fit, neighbours_by_epoch,
        tables_in_pipeline, acts_and_updates, speech_of_any_length, two_ranks_of_ddp, onnx_service, camera_with_engine,
        implicit_steps, flows_on_lattice, molecules_in_steps, spectra_by_runge_kutta, boosted_trees,
        chunks_on_streams, splats, frames_of_data, samples_in_turn,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn. One recording in ten is cut, one in twenty lost rows."""
    return damaged(*family_of(FAMILIES, "lodger", seed), ((0, 0.9), (0.07, 1)))
