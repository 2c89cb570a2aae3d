"""Programs of 2024 to 2026 as they stand in recordings, by a fourteenth author, written without a look at the finder.

Labels: ``x`` what the owner would call an execution; ``y``, ``z``, ``w`` other answers that the owner would accept;
``l``, ``k`` readings of the layers. What has no label of a layer is not judged as one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

from generators import desk
from generators.desk import drawn
from generators.machine import NOT_JUDGED, US, Program, kernels_of, numbered

B = kernels_of("commuter_kernels.txt")


class Seat(desk.Desk):
    """A process; ``stack``: a PyTorch trace has the frames of Python, too."""

    blocks = B
    between = ("va", "tm_attn", "dep_attn", "mamba_step", "mamba_chunk", "hyb_attn", "hyb_mlp", "norm_attn")
    stack = False

    def called(self, kind: str, number: int, path: str) -> str:
        return {"forward": f"{path}.{number}.forward", "colon": f"{kind}: {path}.{number}",
                "slash": f"/{path.replace('.', '/')}/{number}"}.get(self.modules, "") or super().called(
                    kind, number, path)  # fmt: skip

    def part(self, kind: str, path: str, number: int) -> Any:
        """A module within a layer: a range where modules have one."""
        if self.modules == "frame":
            more = {"Python module id": number}
            return self.t.range(f"nn.Module: {kind}_{number}", "python_function", **more)
        text = self.called(kind, number, path).replace(f"{path}.{number}", path)
        return self.put(text if self.modules else "")

    def frame(self, text: str) -> Any:
        """A frame of Python."""
        return self.t.range(text, "python_function") if self.stack and self.is_kineto else nullcontext()

    def annotated(self, text: str) -> Any:
        """A range that PyTorch's profiler writes by itself."""
        return self.put(text if self.is_kineto else "")

    def after(self, stream: int, *others: int) -> None:
        """A stream waits for others, as events of a real program make it wait."""
        self.m.free[stream] = max(self.m.free[one] for one in (stream, *others))

    def aside(self, block: str, stream: int, **more: Any) -> None:
        """A block on a stream of its own: behind what the main stream holds, which goes on behind it."""
        self.after(stream, self.stream)
        self.go(block, stream=stream, **more)
        self.after(self.stream, stream)

    def tuned(self, low: int, high: int) -> None:
        """Candidates of a compiler are timed: of no step."""
        with self.any():
            for number in range(self.rng.randint(low, high)):
                for _ in range(self.rng.randint(3, 9)):
                    self.kernels(numbered(B["tune"], a=number), size=self.rng.uniform(0.6, 2))
                self.t.sync()

    def replay(self, parts: list[tuple[str, int]], base: int, *, size: float = 1.0, opaque: bool = False) -> None:
        """A graph; of each block the number of the layer that it belongs to (−1: none)."""
        groups = dict(zip(sorted({n for _, n in parts}), self.groups(len({n for _, n in parts})), strict=True))
        marks = [(block, {} if n < 0 else {"l": groups[n]}) for block, n in parts]
        self.graph(marks, base, size=size, opaque=opaque)


# -- language models are served ------------------------------------------------------------------------------


def pieces_of_graphs(rng: Random) -> Program:
    """vLLM on two cards: pieces of graphs around attention for mixed batches, one graph or pieces for tokens."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), program="VLLM::Worker_TP0")
    depth, steps, full, outer = rng.choice((6, 8, 12)), rng.randint(9, 15), rng.random() < 0.5, rng.random() < 0.5
    running = 0
    for s in range(steps):
        fresh = int(s == 0 or rng.random() < 0.2)
        running += fresh
        size = 5.0 if fresh else 1.0
        text = f"execute_context_{fresh}({fresh * 1_024})_generation_{running}({running})"
        with d.step("execute_model" if outer else ""), d.annotated(text):
            with d.say("gpu_model_runner: preprocess"):
                d.t.copy(12_288, pageable=False)
                d.go("inputs")
            with d.say("gpu_model_runner: forward"), d.new("y"):
                if full and not fresh:
                    parts = [(one, n) for n in range(depth) for one in ("va", "vcache", "vo")]
                    d.replay([("embed", -1), *parts], 4)
                else:
                    groups = d.groups(depth)
                    d.go("embed", size=size)
                    for n in range(depth + 1):
                        parts = [("vo", {"l": groups[n - 1]})] if n else []
                        parts += [("va", {"l": groups[n]})] if n < depth else []
                        d.graph(parts, 100 + 50 * fresh + n, size=size)
                        if n < depth:
                            with d.t.mark(l=groups[n]):
                                d.go("vcache", size=size)
            with d.say("gpu_model_runner: postprocess"):
                d.go("vhead")
            with d.say("gpu_model_runner: sample"):
                d.go("pick" if not fresh or rng.random() < 0.6 else "pick_hot")
            d.t.copy(256, "DtoH", pageable=False)
        d.idle(60, 700)
    # where no range holds a step whole, the range of the forward pass may be it
    return d.program(f"{steps} steps, {depth} layers{', full' * full}", "xy" if d.has_own and not outer else "x", "l")


def prompts_alone(rng: Random) -> Program:
    """A server for prompts only: chunks of any size; after each layer its cache goes to another machine."""
    d = Seat(rng, rng.choice(("none", "own", "own")), modules=rng.choice(("", "", "path", "colon")))
    depth, chunks = rng.choice((6, 8, 12)), rng.randint(8, 14)
    for _ in range(chunks):
        size = rng.choice((2, 4, 8, 8, 8))
        with d.step("forward_extend"):
            d.t.copy(32_768, pageable=False)
            d.go("embed", size=size)
            for n in range(depth):
                with d.layer("LlamaDecoderLayer", n):
                    with d.part("LlamaAttention", f"model.layers.{n}.self_attn", 500 + n):
                        d.go("va", "vcache", size=size)
                    with d.part("LlamaMLP", f"model.layers.{n}.mlp", 700 + n):
                        d.go("vo", size=size)
                with d.say(f"save_kv_layer {n}" if rng.random() < 0.9 else ""):
                    d.t.copy(int(400_000 * size), "DtoH", pageable=False, stream=55)
            d.go("vhead", "pick")
            d.t.copy(4, "DtoH", pageable=False)
        d.idle(100, 5_000)
    return d.program(f"{chunks} chunks, {depth} layers", "x", "l")


def tokens_in_cpp(rng: Random) -> Program:
    """LMDeploy's TurboMind: no range, no graph; prompts of some lengths, then tokens of a batch."""
    d = Seat(rng, "none", program="lmdeploy", host=rng.choice((0.3, 0.8)))
    depth, steps = rng.choice((8, 12, 16)), rng.randint(12, 24)
    for s in range(steps):
        size = rng.uniform(4, 8) if s == 0 or rng.random() < 0.1 else 1.0
        with d.step():
            d.t.copy(2_048, pageable=False)
            d.go("tm_in", size=size)
            for n in range(depth):
                with d.layer("", n):
                    d.go("tm_attn", "tm_mlp", size=size)
            d.go("tm_out")
            d.t.copy(64, "DtoH", pageable=False)
            d.t.sync(d.stream)
        d.idle(15, 90)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def heads_that_guess(rng: Random) -> Program:
    """Medusa: heads guess tokens behind the model, the next pass checks them; cached keys are moved at times."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "forward")))
    depth, heads, turns = rng.choice((4, 6, 8)), rng.randint(3, 5), rng.randint(8, 14)
    for s in range(turns):
        size = 4.0 if s == 0 else 1.2
        with d.step("medusa_forward"):
            d.go("embed", size=size)
            for n in range(depth):
                with d.layer("LlamaDecoderLayer", n, "base_model.model.layers"):
                    d.go("hf_attn", "hf_mlp", size=size)
            d.go("hf_head")
            with d.any("l"):
                d.go("medusa_head", times=heads)
                d.go("pick_hot")
                d.item()
                if rng.random() < 0.7:
                    d.go("inputs", times=rng.randint(1, 3))
        d.idle(100, 500)
    return d.program(f"{turns} turns, {depth} layers, {heads} heads", "x", "l")


def generated_eagerly(rng: Random) -> Program:
    """`generate` of Hugging Face under PyTorch's profiler: a prompt, then tokens, each layer in eager operators."""
    d = Seat(rng, rng.choice(("torch", "torch", "emit")), modules=rng.choice(("", "frame")), weights=False)
    d.modules, d.stack = d.modules if d.is_kineto else "", rng.random() < 0.5
    depth, answers = rng.choice((3, 4, 6)), rng.randint(1, 3)
    lengths = [rng.randint(5, 9) for _ in range(answers)]
    for length in lengths:
        with d.new("y"), d.frame("transformers/generation/utils.py(2143): generate"):
            for s in range(length):
                size = 5.0 if s == 0 else 1.0
                with d.new("x"):
                    model = d.part("Qwen2ForCausalLM", "model", 0) if d.modules == "frame" else nullcontext()
                    with d.frame("transformers/models/qwen2/modeling_qwen2.py(700): forward"), model:
                        d.go("embed", size=size)
                        for n in range(depth):
                            with d.layer("Qwen2DecoderLayer", n):
                                with d.part("Qwen2SdpaAttention", "self_attn", 20 + n):
                                    d.go("hf_attn", size=size)
                                with d.part("Qwen2MLP", "mlp", 60 + n):
                                    d.go("hf_mlp", size=size)
                        d.go("hf_head")
                    d.go("pick")
                    d.item()
                d.idle(40, 300)
        d.idle(1_000, 9_000)
    return d.program(f"{lengths} tokens, {depth} layers", "xy" if answers > 1 else "x", "l")


def batches_overlapped(rng: Random) -> Program:
    """DeepSeek on many cards: two halves of the batch in turn, experts of one hide the dispatch of the other."""
    d = Seat(rng, rng.choice(("none", "own")))
    depth, steps, graphs = rng.choice((4, 6, 8)), rng.randint(8, 13), rng.random() < 0.4
    for _ in range(steps):
        with d.step("step[DECODE bs=128]"):
            d.t.copy(16_384, pageable=False)
            if graphs:
                blocks = ("dep_attn", "dep_gate", "dep_attn", "dep_dispatch", "dep_gate", "dep_experts", "dep_dispatch",
                          "dep_combine", "dep_experts", "dep_combine")  # fmt: skip
                d.replay([("embed", -1), *[(one, n) for n in range(depth) for one in blocks], ("vhead", -1)], 12)
            else:
                d.go("embed")
                for _n in range(depth):
                    with d.new("l"):
                        d.go("dep_attn", "dep_gate")
                        d.after(90, d.stream)
                        d.go("dep_dispatch", stream=90)
                        d.go("dep_attn", "dep_gate")
                        d.after(d.stream, 90)
                        d.after(90, d.stream)
                        d.go("dep_dispatch", stream=90)
                        d.go("dep_experts")
                        d.after(d.stream, 90)
                        d.after(90, d.stream)
                        d.go("dep_combine", stream=90)
                        d.go("dep_experts")
                        d.aside("dep_combine", 90)
                d.go("vhead")
            d.go("pick")
            d.t.copy(512, "DtoH", pageable=False)
        d.idle(60, 400)
    return d.program(f"{steps} steps, {depth} layers{', graphs' * graphs}", "x", "l")


def states_served(rng: Random) -> Program:
    """A hybrid of Mamba-2, MLP and attention: prompts in chunks, tokens by a graph that shows its kernels or not."""
    d = Seat(rng, rng.choice(("none", "own", "torch")))
    units, steps, opaque = rng.randint(2, 3), rng.randint(10, 18), rng.random() < 0.25
    pattern = ["M", "-", "M", "-", "M", "*", "-"] * units
    opaque = opaque and not d.is_kineto
    for s in range(steps):
        is_prompt = s == 0 or rng.random() < 0.12
        names = {"M": "mamba_chunk" if is_prompt else "mamba_step", "-": "hyb_mlp", "*": "hyb_attn"}
        parts = [(names[kind], n) for n, kind in enumerate(pattern)]
        with d.step("model_forward"):
            d.t.copy(4_096, pageable=False)
            if is_prompt:
                d.go("embed", size=3)
                for block, _ in parts:
                    with d.new("l"):
                        d.go(block, size=1 if block == "mamba_chunk" else 3)
            else:
                d.replay([("embed", -1), *parts], 9, opaque=opaque)
            d.go("vhead", "pick")
            d.t.copy(64, "DtoH", pageable=False)
        d.idle(50, 500)
    about = f"{steps} steps, {len(pattern)} layers{', opaque' * opaque}"
    return d.program(about, "x", "" if opaque else "l")


def windows_and_weights_of_four_bits(rng: Random) -> Program:
    """Gemma in four bits: five layers with a window, then one without; eager, one request at a time."""
    d = Seat(rng, rng.choice(("none", "own", "emit")), modules=rng.choice(("", "", "slash", "class")))
    depth, requests = rng.choice((6, 12)), rng.randint(2, 4)
    lengths = [rng.randint(4, 8) for _ in range(requests)]
    for number, tokens in enumerate(lengths):
        with d.step(f"request {number}", "y"):
            for s in range(tokens):
                size = 4.0 if s == 0 else 1.0
                with d.step("prefill" if s == 0 else "decode"):
                    d.go("embed", size=size)
                    for n in range(depth):
                        with d.layer("Gemma3DecoderLayer", n):
                            d.go("marlin", "gem_global" if n % 6 == 5 else "gem_local", "gem_post", size=size)
                    d.go("vhead", "pick")
                    d.item()
                d.idle(30, 150)
        d.idle(300, 6_000)
    return d.program(f"{lengths} tokens, {depth} layers", "xy", "l")


def engine_of_numbers(rng: Random) -> Program:
    """A transformer as a TensorRT engine: each fused kernel has its own number; requests of one size."""
    d = Seat(rng, rng.choice(("none", "none", "own")), program="tritonserver")
    depth, calls, graph = rng.choice((6, 8, 12)), rng.randint(10, 20), rng.random() < 0.3
    number = rng.randint(2, 30)
    for _ in range(calls):
        with d.step("ExecutionContext::enqueue"):
            d.t.copy(600_000, pageable=False)
            rows, marks = [*B["myl_in"]], [{} for _ in B["myl_in"]]
            for n, group in enumerate(d.groups(depth)):
                block = numbered(B["myl"], a=number + 5 * n, b=number + 5 * n + 1, c=number + 5 * n + 3)
                rows += block
                marks += [{"l": group}] * len(block)
            rows, marks = [*rows, *B["myl_out"]], [*marks, *[{} for _ in B["myl_out"]]]
            if graph:
                d.t.graph([(name, us * d.speed) for name, us in rows], stream=d.stream, node_base=3 << 32, marks=marks)
            else:
                for row, mark in zip(rows, marks, strict=True):
                    with d.t.mark(**mark):
                        d.kernels([row])
            d.t.copy(4_000, "DtoH", pageable=False)
            d.t.sync(d.stream)
        d.idle(50, 4_000)
    about = f"{calls} calls, {depth} layers{', graph' * graph}"
    return d.program(about, "x", "l", may_be_nothing=("layers",))


def answers_scored(rng: Random) -> Program:
    """An evaluation harness: batches sorted by length, the longest first, so that each is a little faster."""
    d = Seat(rng, rng.choice(("none", "torch", "own")), modules=rng.choice(("", "", "class")))
    depth, batches = rng.choice((4, 6, 8)), rng.randint(9, 16)
    for s in range(batches):
        size = 4.0 * (1 - s / (batches + 4)) + 0.4
        with d.step("loglikelihood"):
            d.t.copy(60_000)
            d.go("embed", size=size)
            for n in range(depth):
                with d.layer("MistralDecoderLayer", n):
                    d.go("hf_attn", "hf_mlp", size=size)
            d.go("hf_head", size=size)
            with d.any("l"):
                d.kernels(B["loss"][:1], size=size)
                for _ in range(rng.randint(4, 8)):  # each answer by itself
                    d.go("pick")
                    d.item()
        d.idle(200, 2_000)
    return d.program(f"{batches} batches, {depth} layers", "x", "l")


def models_in_a_row(rng: Random) -> Program:
    """Triton's ensemble: pictures are prepared, a transformer reads them, a small model ranks; request by request."""
    d = Seat(rng, rng.choice(("none", "own", "own")), program="tritonserver", weights=False)
    depth, small, calls = rng.choice((6, 8)), rng.randint(3, 5), rng.randint(8, 14)
    for _ in range(calls):
        with d.step("ensemble"):
            with d.new("y"), d.say("preprocess"):
                d.t.copy(900_000, pageable=False)
                d.go("sr_out", "sr_merge")
            with d.new("y"), d.say("encoder"):
                d.go("patch")
                for _n in range(depth):
                    with d.new("l"):
                        d.go("ln_block")
                d.go("cls")
            with d.new("y"), d.say("ranker"):
                d.go("hctr_mlp", times=small)
                d.go("pick")
                d.t.copy(400, "DtoH", pageable=False)
                d.t.sync(d.stream)
        d.idle(200, 6_000)
    return d.program(f"{calls} requests, {depth} and {small} layers", "x" if d.has_own else "xy", "l")


def one_prompt(rng: Random) -> Program:
    """A model is loaded and called once, to see what is in it."""
    d = Seat(rng, rng.choice(("torch", "both", "own")), modules=rng.choice(("path", "class", "forward")))
    depth = rng.choice((6, 8, 12))
    with d.step("forward"):
        d.t.copy(4_096)
        d.go("embed")
        for n in range(depth):
            with d.layer("OlmoDecoderLayer", n):
                d.go("hf_attn", "hf_mlp")
        d.go("hf_head")
    d.t.sync()
    return d.program(f"{depth} layers, once", "x", "l", may_be_nothing=("executions",))


# -- pictures, films, sound ----------------------------------------------------------------------------------


def pictures_by_unet(rng: Random) -> Program:
    """SDXL: text, then a UNet for each step, guided in one batch or in two calls; a picture is decoded at the end."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), host=rng.choice((1.0, 4.0)))
    images, steps, twice = rng.randint(1, 2), rng.randint(6, 10), rng.random() < 0.3
    low, mid = rng.randint(1, 2), rng.randint(2, 4)
    for _ in range(images):
        with d.new("y"), d.say("StableDiffusionXLPipeline.__call__"):
            with d.any("xz"), d.say("encode_prompt"):
                d.go("embed")
                d.go("clip_text", times=rng.choice((6, 12)))
            for s in range(steps):
                with d.step(f"step {s}", "x"):
                    for _ in range(1 + twice):
                        with d.new("z"), d.say("unet"):
                            d.go("unet_time", "res_down", "res_down", "unet_shift")
                            for _ in range(2):
                                d.go("res_down")
                                d.go("unet_attn", times=low)
                            d.go("unet_shift", "res_down")
                            d.go("unet_attn", times=mid)
                            for _ in range(2):
                                d.go("unet_up", "res_down")
                                d.go("unet_attn", times=low)
                            d.go("unet_up", "res_down", "unet_end")
                    with d.any("z"):
                        d.go("guide", "euler")
                d.idle(20, 200)
            with d.any("xz"), d.say("vae.decode"):
                d.go("vae_up", times=rng.randint(8, 14))
            d.t.copy(3_000_000, "DtoH")
        d.idle(1_000, 20_000)
    about = f"{images} pictures of {steps} steps{', two calls' * twice}"
    return d.program(about, ("xy" if images > 1 else "x") + "z" * twice)


def two_streams_then_one(rng: Random) -> Program:
    """FLUX, compiled: blocks of two streams, then blocks of one; steps, pictures."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "path")))
    double, single = rng.choice((3, 4, 6)), rng.choice((6, 8, 10))
    images, steps = rng.randint(1, 3), rng.randint(4, 8)
    for _ in range(images):
        with d.new("y"):
            with d.any("x"), d.say("text"):
                d.go("clip_text", times=rng.choice((4, 8)))
            for _ in range(steps):
                with d.step("denoise"):
                    d.go("fx_in", "unet_time", "fx_in")
                    for n in range(double):
                        with d.layer("FluxTransformerBlock", n, "transformer_blocks"):
                            d.go("fx_mod", "fx_mod", "fx_double")
                    for n in range(single):
                        with d.layer("FluxSingleTransformerBlock", n, "single_transformer_blocks"):
                            d.go("fx_mod", "fx_single")
                    d.go("fx_out", "euler")
                d.idle(20, 150)
            with d.any("x"), d.say("decode"):
                d.go("vae_up", times=rng.randint(8, 14))
            d.t.copy(3_000_000, "DtoH")
        d.idle(1_000, 9_000)
    about = f"{images} pictures of {steps} steps, {double} and {single} blocks"
    return d.program(about, "xy" if images > 1 else "x", "l")


def film_on_many_cards(rng: Random) -> Program:
    """A film on many cards: tokens and heads are exchanged around attention; some steps reuse the last one."""
    d = Seat(rng, rng.choice(("none", "own", "own")), modules=rng.choice(("", "forward")))
    depth, steps, skips = rng.choice((5, 6, 8)), rng.randint(10, 16), rng.choice((0.0, 0.35))
    for s in range(steps):
        skipped = 1 < s < steps - 1 and rng.random() < skips
        with d.step("denoise_step"):
            d.go("fx_in", "unet_time", "fx_mod")
            if not skipped:
                for n in range(depth):
                    with d.layer("HunyuanVideoBlock", n, "transformer.blocks"):
                        d.go("hy_block")
                        d.go("alltoall", times=3)
                        d.go("hy_attn")
                        d.go("alltoall")
                        d.go("hy_post")
            d.go("fx_out", "guide", "euler")
        d.idle(20, 200)
    with d.any(), d.say("vae"):
        d.go("vae_up", times=rng.randint(10, 20))
    return d.program(f"{steps} steps, {depth} blocks{', some skipped' * (skips > 0)}", "x", "l")


def voice_in_chunks(rng: Random) -> Program:
    """Speech as it is made: so many tokens, then a vocoder for them, and again until the sentence ends."""
    d = Seat(rng, rng.choice(("none", "own")), host=rng.choice((0.5, 2.0)))
    depth, chunks, tokens, ups = rng.choice((6, 8)), rng.randint(4, 7), rng.choice((6, 8, 12)), rng.randint(4, 6)
    graph = rng.random() < 0.5
    for _ in range(chunks):
        with d.step("stream_chunk"):
            for _ in range(tokens):
                with d.new("y"), d.say("lm_step"):
                    if graph:
                        d.replay([*[("tts_layer", n) for n in range(depth)], ("tts_head", -1)], 2)
                    else:
                        for _n in range(depth):
                            with d.new("l"):
                                d.go("tts_layer")
                        d.go("tts_head")
                    d.t.copy(8, "DtoH")
            with d.new("y"), d.say("vocoder"):
                d.go("vocoder", times=ups)
                d.t.copy(48_000, "DtoH")
        d.idle(30, 900)
    about = f"{chunks} chunks of {tokens} tokens, {depth} layers{', graph' * graph}"
    return d.program(about, "x" if d.has_own else "xy", "l")


def masks_of_prompts(rng: Random) -> Program:
    """Segment Anything: a picture is read once, then asked a few times."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "path")))
    depth, images = rng.choice((6, 8)), rng.randint(4, 7)
    for _ in range(images):
        with d.new("x"):
            with d.new("y"), d.say("set_image"):
                d.t.copy(3_000_000)
                d.go("patch")
                for n in range(depth):
                    with d.layer("SamVisionLayer", n, "vision_encoder.layers"):
                        d.go("sam_block")
                d.go("sam_neck", times=2)
            for _ in range(rng.randint(2, 6)):
                d.idle(200, 3_000)
                with d.new("y"), d.say("predict"):
                    d.t.copy(64)
                    d.go("sam_prompt")
                    with d.any("l"):
                        d.go("sam_two_way", times=2)
                    d.go("sam_mask")
                    d.t.copy(60_000, "DtoH")
        d.idle(4_000, 40_000)
    return d.program(f"{images} pictures, {depth} layers", "xy", "l")


def tiles_of_frames(rng: Random) -> Program:
    """Frames are made larger: each in tiles of one size, which are joined; no ranges or one a frame."""
    d = Seat(rng, rng.choice(("none", "own")), program="vsr", host=rng.choice((0.5, 3.0)))
    frames, tiles, deep = rng.randint(6, 10), rng.choice((4, 6, 9)), rng.randint(5, 8)
    for s in range(frames):
        with d.step(f"frame {s}"):
            d.t.copy(3_000_000, pageable=False)
            for _ in range(tiles):
                with d.new("yk"):
                    for _n in range(deep):
                        with d.new("l"):
                            d.kernels(B["sr_tile"][:2])
                    d.kernels(B["sr_tile"][2:])
            with d.any("y"):
                d.go("sr_merge", times=tiles)
                d.go("sr_out")
            d.t.copy(12_000_000, "DtoH", pageable=False)
        d.idle(500, 4_000)
    about = f"{frames} frames of {tiles} tiles, {deep} blocks"
    return d.program(about, "x" if d.has_own else "xy", "lk", may_be_nothing=("layers",))


def windows_of_speech(rng: Random) -> Program:
    """Whisper: windows of thirty seconds; an encoder, keys for the decoder, then tokens until the text ends."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "path", "class")))
    enc, dec, windows = rng.choice((4, 6)), rng.choice((2, 4)), rng.randint(3, 6)
    inner = rng.random() < 0.5
    for s in range(windows):
        with d.step(f"transcribe_window_{s}"):
            with d.new("y"), d.say("encode" if inner else ""):
                d.t.copy(480_000)
                d.go("mel")
                d.go("wh_conv", times=2)
                for n in range(enc):
                    with d.layer("WhisperEncoderLayer", n, "model.encoder.layers"):
                        d.go("ln_block")
                d.go("cls")
            with d.any("yl"):
                d.go("wh_cross", times=2 * dec)
            for _ in range(rng.randint(6, 16)):
                with d.new("y"), d.say("decode_step" if inner else ""):
                    d.go("embed")
                    for n in range(dec):
                        with d.layer("WhisperDecoderLayer", n, "model.decoder.layers"):
                            d.go("wh_dec")
                    d.go("wh_out", "pick")
                    d.item()
        d.idle(200, 3_000)
    return d.program(f"{windows} windows, {enc} and {dec} layers", "x" if d.has_own else "xy", "l")


def words_by_ctc(rng: Random) -> Program:
    """wav2vec 2.0 over files of any length, in batches; no decoder."""
    d = Seat(rng, rng.choice(("none", "emit", "torch")), modules=rng.choice(("", "forward", "frame")))
    d.modules = "" if d.modules == "frame" and not d.is_kineto else d.modules
    depth, batches = rng.choice((6, 8)), rng.randint(6, 11)
    for _ in range(batches):
        size = rng.lognormvariate(0, 0.5)
        with d.new("x"):
            d.t.copy(int(900_000 * size))
            d.go("w2v_conv", times=7, size=size)
            for n in range(depth):
                with d.layer("Wav2Vec2EncoderLayer", n, "wav2vec2.encoder.layers"):
                    d.go("ln_block", size=size)
            d.go("ctc", "pick", size=size)
            d.t.copy(4_000, "DtoH")
        d.idle(200, 6_000)
    return d.program(f"{batches} batches, {depth} layers", "x", "l")


# -- language models are trained -----------------------------------------------------------------------------


def learn(d: Seat, depth: int, kind: str, blocks: tuple[str, ...], *, size: float = 1.0, again: bool = False,
          train: bool = True, labels: str = "l", path: str = "model.layers",
          head: tuple[str, ...] = ("hf_head", "loss"),
          between: Callable[[int], None] | None = None) -> None:  # fmt: skip
    """Forward, loss, backward; ``again``: each layer is computed again before its own backward."""
    d.go("embed", taped=train and not again, size=size)
    for n in range(depth):
        with d.layer(kind, n, path, labels):
            d.go(*blocks, taped=train and not again, size=size)
    d.go(*head, taped=train, size=size)
    if not train:
        return
    d.backward(between)
    if again:
        for _ in range(depth):
            with d.elsewhere():
                d.go(*blocks, size=size, taped=True)
            d.backward(between)


def trainer_with_evaluations(rng: Random) -> Program:
    """Trainer of Hugging Face: gradients of a few batches, an update; evaluations and files in the middle."""
    view = rng.choice(("none", "own", "torch", "torch", "emit"))
    d = Seat(rng, view, host=rng.choice((2.0, 5.0)))
    d.stack = rng.random() < 0.3
    depth, steps, micro, every = rng.choice((3, 4)), rng.randint(4, 6), rng.choice((1, 2, 4)), rng.choice((2, 3))
    for s in range(steps):
        with d.step(f"train step {s + 1}"):
            for _ in range(micro):
                with d.new("y"):
                    with d.annotated("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                        d.idle(20, 90)
                    d.t.copy(32_768)
                    with d.frame("transformers/trainer.py(3698): training_step"), d.say("training_step"):
                        learn(d, depth, "Qwen2DecoderLayer", ("hf_attn", "hf_mlp"))
                    d.go("accum")
            with d.any("y"):
                d.go("clip")
                d.item()
                with d.annotated("Optimizer.step#AdamW.step"), d.say("optimizer"):
                    d.go("foreach", times=2)
                with d.annotated("Optimizer.zero_grad#AdamW.zero_grad"):
                    d.idle(5, 20)
        d.idle(60, 500)
        if s % every == every - 1:
            with d.any("xyl"), d.say("evaluate"), d.frame("transformers/trainer.py(4120): evaluation_loop"):
                for _ in range(rng.randint(2, 5)):
                    d.t.copy(32_768)
                    learn(d, depth, "Qwen2DecoderLayer", ("hf_attn", "hf_mlp"), train=False, labels="")
                    d.go("pick")
                    d.item()
            with d.say("save_checkpoint"):
                for _ in range(rng.randint(5, 15)):
                    d.t.copy(rng.randint(1, 8) * 500_000, "DtoH")
            d.idle(9_000, 90_000)
    return d.program(f"{steps} steps of {micro}, {depth} layers, evaluated every {every}, stack {d.stack}",
                     "xy" if micro > 1 else "x", "l")  # fmt: skip


def sharded_and_computed_again(rng: Random) -> Program:
    """FSDP2 with checkpointing: gathers on a stream of their own, layers again before their backward."""
    d = Seat(rng, rng.choice(("none", "own", "torch", "both")), modules=rng.choice(("", "", "path")))
    depth, steps, first = rng.choice((4, 6)), rng.randint(4, 7), rng.randint(3, 40)

    def gather(n: int) -> None:
        with d.any("lk"), d.say(f"FSDP::all_gather (layers.{n})"):
            d.go("allgather", stream=33)
            d.after(d.stream, 33)
            d.go("fsdp_in")

    for s in range(steps):
        with d.new("x"), d.annotated(f"ProfilerStep#{first + s}"), d.say("" if d.is_kineto else "train_step"):
            d.t.copy(65_536, pageable=False)
            d.go("embed", taped=True)
            for n in range(depth):
                gather(n)
                with d.layer("TransformerBlock", n, "layers"):
                    d.go("ln_block")
            d.go("hf_head", "loss", taped=True)
            d.backward()
            for n in reversed(range(depth)):
                with d.elsewhere():
                    gather(n)
                    d.go("ln_block", taped=True)
                d.backward()
                with d.elsewhere(), d.say(f"FSDP::post_backward_reduce (layers.{n})"):
                    d.go("fsdp_out")
                    d.after(34, d.stream)
                    d.go("reducescatter", stream=34)
            d.go("clip")
            with d.annotated("Optimizer.step#AdamW.step"):
                d.go("adamw")
        d.idle(50, 700)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def adapters_of_four_bits(rng: Random) -> Program:
    """QLoRA: weights are unpacked before each product, forward and backward; adapters beside; Liger's kernels."""
    d = Seat(rng, rng.choice(("none", "none", "torch", "own")))
    depth, steps, micro = rng.choice((3, 4, 6)), rng.randint(4, 6), rng.choice((1, 2))
    parts = ("liger_norm", "bnb", "lora_ab", "bnb", "lora_ab", "liger_rope", "fa2", "bnb", "lora_ab", "liger_norm",
             "bnb", "lora_ab", "bnb", "lora_ab", "swiglu", "bnb", "lora_ab")  # fmt: skip
    for s in range(steps):
        with d.new("x"), d.put(f"ProfilerStep#{s}" if d.is_kineto else "step" if d.has_own else ""):
            for _ in range(micro):
                with d.new("y"):
                    d.t.copy(16_384)
                    learn(d, depth, "LlamaDecoderLayer", parts, again=True, head=("liger_norm", "liger_ce"))
            with d.any("y"):
                d.go("clip")
                d.item()
                d.go("adam8bit", times=6)
        d.idle(100, 900)
    about = f"{steps} steps of {micro}, {depth} layers"
    return d.program(about, "x" if micro == 1 or d.is_kineto or d.has_own else "xy", "l")


def preferred_answers(rng: Random) -> Program:
    """DPO: a reference reads both answers, then the policy does and learns."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "forward")))
    depth, steps = rng.choice((3, 4, 6)), rng.randint(5, 8)
    for _ in range(steps):
        with d.step("training_step"):
            d.t.copy(65_536)
            with d.say("reference"):
                learn(d, depth, "LlamaDecoderLayer", ("hf_attn", "hf_mlp"), train=False, path="ref.layers")
            with d.say("policy"):
                learn(d, depth, "LlamaDecoderLayer", ("hf_attn", "hf_mlp"), path="policy.layers")
            d.go("clip", "adamw")
            d.item()
        d.idle(60, 900)
    return d.program(f"{steps} steps, twice {depth} layers", "x", "l")


def roll_outs_on_the_same_card(rng: Random) -> Program:
    """GRPO with the engine on the same card: it answers by graphs, then the policy learns in small batches."""
    d = Seat(rng, rng.choice(("none", "own", "own")))
    depth, rounds, tokens, minis = rng.choice((4, 6)), rng.randint(3, 5), rng.randint(8, 16), rng.choice((1, 2, 4))
    phases = rng.random() < 0.5
    for _ in range(rounds):
        with d.step("grpo_step"):
            with d.new("z"), d.say("generate" if phases else ""):
                with d.any("y"):
                    d.t.copy(90_000_000, pageable=False)  # weights return
                for k in range(tokens):
                    with d.new("y"):
                        if k == 0:
                            d.go("embed", size=4)
                            for _n in range(depth):
                                with d.new("l"):
                                    d.go("va", "vcache", "vo", size=4)
                        else:
                            parts = [(one, n) for n in range(depth) for one in ("va", "vcache", "vo")]
                            d.replay([("embed", -1), *parts], 6)
                        d.go("vhead", "pick_hot")
                        d.t.copy(64, "DtoH")
                    d.idle(20, 80)
            with d.new("z"), d.say("reward" if phases else ""):
                d.idle(500, 5_000)
                with d.new("y"):
                    learn(d, depth, "Qwen2DecoderLayer", ("ln_block",), train=False)
            for _ in range(minis):
                with d.new("yz"), d.say("train_mini" if phases else ""):
                    learn(d, depth, "Qwen2DecoderLayer", ("ln_block",))
                    d.go("clip", "adamw")
                    d.item()
        d.idle(500, 5_000)
    return d.program(f"{rounds} rounds of {tokens} tokens and {minis} updates, {depth} layers",
                     "x" if d.has_own else "xyz", "l")  # fmt: skip


def parts_of_tensors(rng: Random) -> Program:
    """Megatron-Core: tensors in parts with their sequence, FP8; the optimiser's shards; micro-batches."""
    d = Seat(rng, rng.choice(("none", "own", "own")))
    depth, steps, micro = rng.choice((3, 4, 6)), rng.randint(3, 5), rng.choice((1, 2, 4))
    for s in range(steps):
        with d.step(f"iteration {s + 12}"):
            d.go("zero")
            for _ in range(micro):
                with d.new("y"):
                    with d.say("forward-compute"):
                        d.go("embed", taped=True)
                        for n in range(depth):
                            with d.layer("TransformerLayer", n, "decoder.layers"):
                                d.aside("allgather", 20)
                                d.go("te_attn", taped=True)
                                d.aside("reducescatter", 20)
                                d.aside("allgather", 20)
                                d.go("te_mlp", taped=True)
                                d.aside("reducescatter", 20)
                        d.go("hf_head", "loss", taped=True)
                    with d.say("backward-compute"):
                        half = len(B["te_attn"])
                        d.backward(lambda k: d.go("allgather", "reducescatter", stream=20) if k % half == 3 else None)  # noqa: B023
            with d.any("y"):
                with d.say("grads-reduce-scatter"):
                    d.go("reducescatter", stream=21, times=2)
                with d.say("optimizer"):
                    d.go("clip")
                    d.item()
                    d.go("dist_adam", times=2)
                with d.say("params-all-gather"):
                    d.go("allgather", stream=21, times=2)
        d.idle(60, 900)
    return d.program(
        f"{steps} iterations of {micro}, {depth} layers", "xy" if micro > 1 and not d.has_own else "x", "l"
    )


def experts_trained(rng: Random) -> Program:
    """A mixture of experts learns: tokens are exchanged, experts by grouped products, one that all share beside."""
    d = Seat(rng, rng.choice(("none", "torch", "both")), modules=rng.choice(("", "path")))
    depth, dense, steps = rng.choice((4, 6)), rng.randint(0, 1), rng.randint(4, 7)
    for s in range(steps):
        with d.new("x"), d.put(f"ProfilerStep#{s + 5}" if d.view == "both" else ""):
            d.t.copy(65_536, pageable=False)
            d.go("embed", taped=True)
            for n in range(depth):
                with d.layer("MoETransformerLayer", n, "model.layers"):
                    d.go("norm_attn", taped=True)
                    if n < dense:
                        d.go("shared_expert", size=3, taped=True)
                        continue
                    d.go("moe_perm")
                    d.after(23, d.stream)
                    d.aside("alltoall", 22)
                    d.go("shared_expert", stream=23, taped=True)
                    for _ in range(rng.choice((1, 1, 2))):
                        d.go("moe_gemm", size=rng.uniform(0.7, 1.5), taped=True)
                    d.aside("alltoall", 22)
                    d.after(d.stream, 23)
                    d.go("moe_unperm")
            d.go("hf_head", "loss", taped=True)
            d.backward(lambda k: d.aside("alltoall", 22) if k % 11 == 6 else None)
            with d.annotated("Optimizer.step#AdamW.step"):
                d.go("clip", "adamw")
            d.item()
        d.idle(60, 600)
    return d.program(f"{steps} steps, {depth} layers, {dense} dense", "x", "l")


def vectors_in_two_passes(rng: Random) -> Program:
    """Text vectors by contrast with GradCache: all chunks without gradients, the loss, all chunks with them."""
    d = Seat(rng, rng.choice(("none", "own", "torch")))
    depth, steps, chunks = rng.choice((3, 4)), rng.randint(4, 6), rng.choice((2, 3, 4))
    for s in range(steps):
        with d.new("x"), d.annotated(f"ProfilerStep#{s}"), d.say("" if d.is_kineto else "train_batch"):
            d.t.copy(200_000, pageable=False)
            for _ in range(chunks):
                with d.new("y"):
                    learn(d, depth, "BertLayer", ("ln_block",), train=False, head=("cls",))
            with d.any("y"):
                d.go("normalise", "info_nce", taped=True)
                d.backward()
            for _ in range(chunks):
                with d.new("y"):
                    learn(d, depth, "BertLayer", ("ln_block",), head=("cls",))
            with d.any("y"):
                d.go("clip", "adamw")
                d.item()
        d.idle(60, 700)
    return d.program(f"{steps} steps of {chunks} chunks, {depth} layers", "xy" if d.view == "none" else "x", "l")


def lengths_that_grow(rng: Random) -> Program:
    """Sequences grow as the training goes on: other tiles of the same products, longer steps."""
    d = Seat(rng, rng.choice(("none", "torch", "own")))
    depth, steps = rng.choice((4, 6)), rng.randint(8, 12)

    def tiles(rows: list[tuple[str, float]], long: bool) -> list[tuple[str, float]]:
        return [(name.replace("128x192", "192x192").replace("128x256", "256x256") if long else name, us)
                for name, us in rows]  # fmt: skip

    for s in range(steps):
        stage = s * 3 // steps
        with d.step("train_step"):
            d.t.copy(16_384 << stage, pageable=False)
            d.go("embed", size=2**stage)
            for _n in range(depth):
                with d.new("l"):
                    d.kernels(tiles(B["ln_block"], stage > 1), size=2**stage, taped=True)
            d.go("hf_head", "loss", size=2**stage, taped=True)
            d.backward()
            d.go("clip", "adamw")
            d.item()
        d.idle(50, 500)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def graphs_of_a_training(rng: Random) -> Program:
    """torch.compile with less overhead: kernels are timed first, two steps run, then a graph forward, one backward."""
    d = Seat(rng, rng.choice(("none", "torch", "own")), weights=False)
    depth, steps, warm = rng.choice((4, 6)), rng.randint(8, 13), 2
    for s in range(steps):
        if s == 0:
            d.tuned(6, 15)
            d.idle(50_000, 400_000)
        with d.new("x"), d.annotated(f"ProfilerStep#{s}"), d.say("" if d.is_kineto else "train_step"):
            d.t.copy(32_768, pageable=False)
            with d.annotated("Torch-Compiled Region: 0/0"):
                if s < warm:
                    d.go("ro_in")
                    for _n in range(depth):
                        with d.new("l"):
                            d.go("ro_fwd")
                    d.go("ro_loss")
                else:
                    d.replay([("ro_in", -1), *[("ro_fwd", n) for n in range(depth)], ("ro_loss", -1)], 1)
            with d.elsewhere(), d.annotated("CompiledFunctionBackward"):
                if s < warm:
                    d.go("ro_bwd", times=depth)
                else:
                    d.graph([("ro_bwd", {"l": NOT_JUDGED})] * depth, 2)
            with d.annotated("Optimizer.step#AdamW.step"):
                d.go("clip", "adamw")
            if rng.random() < 0.5:
                d.item()
        d.idle(50, 500)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def buffers_of_xla(rng: Random) -> Program:
    """MaxText: a scan over layers; XLA's command buffers hold parts of a step; a step is one module."""
    d = Seat(rng, rng.choice(("none", "own")), host=rng.choice((0.3, 0.8)))
    depth, steps, buffers = rng.choice((4, 6, 8)), rng.randint(5, 9), rng.random() < 0.5
    a, b, c = rng.randint(2, 40), rng.randint(2, 40), rng.randint(41, 80)
    rows = numbered(B["xla_layer"], a=a, b=b, c=c)
    for s in range(steps):
        with d.step("XlaModule:#hlo_module=jit_train_step,program_id=57#"):
            with d.say(f"Thunk:#hlo_op=while.{a}#"):
                d.go("xla_embed")
                for group in d.groups(depth):
                    if buffers and s:
                        d.t.graph([(name, us * d.speed) for name, us in rows], stream=d.stream, node_base=8 << 32,
                                  marks=[{"l": group}] * len(rows), first_us=5)  # fmt: skip
                    else:
                        with d.t.mark(l=group):
                            d.kernels(rows)
                    d.t.copy(1, "DtoH", pageable=False)
                d.go("xla_loss")
            with d.any("l"), d.say(f"Thunk:#hlo_op=while.{a + 1}#"):
                for _ in range(depth):
                    if buffers and s:
                        d.graph([("xla_layer_b", {})], 9)
                    else:
                        d.go("xla_layer_b")
                    d.t.copy(1, "DtoH", pageable=False)
                d.go("xla_update", times=4)
        d.idle(20, 400)
    return d.program(f"{steps} steps, {depth} layers{', buffers' * buffers}", "x", "l")


# -- other training ------------------------------------------------------------------------------------------


def dreams(rng: Random) -> Program:
    """DreamerV3 in JAX: a few acts, then an update: pictures read, a state rolled over time, dreams, three losses."""
    d = Seat(rng, rng.choice(("none", "own", "own")), host=rng.choice((0.3, 1.0)))
    rounds, time, ahead, acts = rng.randint(5, 8), rng.choice((8, 16)), rng.choice((5, 8)), rng.randint(0, 4)
    for _ in range(rounds):
        with d.new("z"):
            for _ in range(acts):
                with d.step("jit_policy", "y"), d.any("x"):
                    d.t.copy(12_288)
                    d.go("dream_enc", times=2, size=0.3)
                    d.go("rssm", "imagine")
                    d.t.copy(64, "DtoH")
                d.idle(100, 900)
            with d.step("jit_train", "xy"):
                d.t.copy(3_000_000, pageable=False)
                d.go("dream_enc", times=4)
                d.go("rssm", times=time)
                d.go("imagine", times=ahead)
                d.go("returns", times=ahead)
                d.go("rssm_b", times=time)
                d.go("dream_enc_b", times=4)
                d.go("xla_update", times=3)
        d.idle(100, 900)
    about = f"{rounds} updates, {acts} acts each, {time} states, {ahead} dreamed"
    return d.program(about, "xyz" if acts else "x")


def maker_and_critic(rng: Random) -> Program:
    """A tokenizer of pictures with a critic: an update of the maker, then one of the critic, in each step."""
    d = Seat(rng, rng.choice(("none", "own", "torch", "emit")))
    down, steps, first = rng.randint(3, 5), rng.randint(5, 9), rng.randint(0, 50)

    def maker(train: bool) -> None:
        d.go("gan_conv", times=2 * down, taped=train)

    for s in range(steps):
        with d.new("x"), d.annotated(f"ProfilerStep#{first + s}"), d.say(f"batch {first + s}" * (not d.is_kineto)):
            with d.new("y"), d.say("generator"):
                d.t.copy(2_000_000, pageable=False)
                maker(True)
                d.go("lpips", times=4, taped=True)
                d.go("gan_disc", times=4, taped=True)
                d.go("gan_hinge", taped=True)
                d.backward()
                with d.annotated("Optimizer.step#Adam.step"):
                    d.go("foreach")
            with d.new("y"), d.say("discriminator"):
                d.go("gan_disc", times=8, taped=True)
                d.go("gan_hinge", "gan_hinge", taped=True)
                d.backward()
                with d.annotated("Optimizer.step#Adam.step"):
                    d.go("foreach")
                d.go("ema")
                d.item()
        d.idle(50, 600)
    return d.program(f"{steps} steps", "xy" if d.view in ("none", "emit") else "x")


def boxes_and_masks(rng: Random) -> Program:
    """Mask R-CNN learns: a backbone, proposals, boxes; as many regions as a picture gives; kernels chosen anew."""
    d = Seat(rng, rng.choice(("none", "torch", "own")))
    blocks, steps = rng.randint(6, 9), rng.randint(6, 10)
    for _ in range(steps):
        size = rng.uniform(0.8, 1.3)
        with d.step("run_step"):
            d.t.copy(3_000_000)
            with d.say("backbone"):
                d.go("res_block", times=blocks, size=size, taped=True)
            with d.say("rpn"):
                for level in range(5):
                    d.go("rpn", size=size * 0.4**level, taped=True)
                d.go("nms", times=rng.randint(2, 4))
                d.item()
            with d.say("roi_heads"):
                d.go("roi", times=rng.choice((1, 1, 2)), size=rng.uniform(0.5, 2), taped=True)
                d.go("roi_loss", "roi_loss", "loss", taped=True)
            with d.say("backward"):
                d.backward()
            d.go("sgd", times=2)
        d.idle(50, 2_000)
    return d.program(f"{steps} steps, {blocks} blocks", "x")


def pictures_with_holes(rng: Random) -> Program:
    """A masked autoencoder on several cards: an encoder of a part, a small decoder; buckets of gradients beside."""
    d = Seat(rng, rng.choice(("none", "torch", "both", "own")), modules=rng.choice(("", "", "class", "path")))
    enc, dec, steps = rng.choice((4, 6)), rng.choice((2, 3)), rng.randint(5, 8)
    for s in range(steps):
        with (
            d.new("x"),
            d.put(f"ProfilerStep#{s + 11}" if d.view == "both" else ""),
            d.say("" if d.is_kineto else "iter"),
        ):
            d.t.copy(9_000_000, pageable=False)
            d.go("patch", taped=True)
            with d.any("l"):
                d.go("inputs")
            for n in range(enc):
                with d.layer("Block", n, "blocks"):
                    d.go("ln_block", taped=True)
            with d.any("l"):
                d.go("inputs")
            for n in range(dec):
                with d.layer("DecoderBlock", n, "decoder_blocks"):
                    d.go("ln_block", size=0.5, taped=True)
            d.go("cls", "mse", taped=True)
            d.backward(lambda k: d.go("allreduce", stream=27) if k % 20 == 19 else None)
            with d.annotated("Optimizer.step#AdamW.step"):
                d.go("adamw")
            if rng.random() < 0.3:
                d.item()
        d.idle(50, 700)
    return d.program(f"{steps} steps, {enc} and {dec} blocks", "x", "l")


def neighbours_sampled(rng: Random) -> Program:
    """GraphSAGE with DGL: neighbours are sampled on the card, rows fetched from the host, two or three layers."""
    d = Seat(rng, rng.choice(("none", "own")))
    hops, steps, epochs = rng.choice((2, 3)), rng.randint(6, 9), rng.randint(1, 2)
    for e in range(epochs):
        with d.say(f"epoch {e}"):
            for s in range(steps):
                size = rng.uniform(0.7, 1.4) * (0.4 if s == steps - 1 else 1)
                with d.step("minibatch"):
                    with d.say("sample"):
                        for hop in range(hops):
                            d.go("sample_hop", size=size * (hop + 1))
                            d.item()
                    with d.say("fetch"):
                        d.go("fetch", size=size)
                    with d.say("compute"):
                        for hop in reversed(range(hops)):
                            d.go("sage", size=size * (hop + 1))
                        d.go("loss")
                        with d.elsewhere():
                            d.go("sage_b", times=hops, size=size)
                        d.go("foreach")
                d.idle(50, 300)
        d.idle(2_000, 9_000)
    return d.program(f"{epochs} epochs of {steps}, {hops} hops", "x")


def whole_graph_each_epoch(rng: Random) -> Program:
    """A graph network over the whole graph: an epoch is one training pass and one test pass."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), weights=False)
    layers, epochs = rng.choice((2, 3)), rng.randint(8, 16)
    for e in range(epochs):
        with d.step(f"epoch_{e:03d}"):
            with d.new("y"), d.say("train"):
                d.go("gcn", times=layers, taped=True)
                d.go("loss", taped=True)
                d.backward()
                d.go("foreach")
                d.item()
            with d.new("y"), d.say("test"):
                for _ in range(layers):
                    d.kernels(B["gcn"][:2])
                for _ in range(3):
                    d.go("pick")
                    d.item()
        d.idle(30, 300)
    return d.program(f"{epochs} epochs, {layers} layers", "x" if d.has_own else "xy")


def clicks_in_graphs(rng: Random) -> Program:
    """HugeCTR: an iteration is a graph or is launched; keys are read on another stream."""
    d = Seat(rng, rng.choice(("none", "own")), program="huge_ctr", host=rng.choice((0.3, 0.8)))
    steps, wide, how = rng.randint(10, 20), rng.randint(3, 5), rng.choice(("graph", "opaque", "eager"))
    parts = [("hctr", {}), *[("hctr_mlp", {})] * wide, ("loss", {}), *[("hctr_mlp_b", {})] * wide, ("hctr_b", {}),
             ("allreduce", {}), ("sgd", {})]  # fmt: skip
    for s in range(steps):
        with d.step("iteration"):
            with d.say("read_a_batch"):
                d.t.copy(4_000_000, pageable=False, stream=31)
            if how == "eager" or s == 0:
                d.go(*[block for block, _ in parts])
            else:
                d.graph(parts, 2, opaque=how == "opaque")
            if s % 5 == 4:
                d.t.copy(4, "DtoH")
        d.idle(10, 90)
    return d.program(f"{steps} iterations, {wide} products, {how}", "x")


def points_in_sets(rng: Random) -> Program:
    """PointNet++ learns: centres far apart, balls around them, small networks; then back to all points."""
    d = Seat(rng, rng.choice(("none", "torch", "emit")))
    sets, steps = rng.choice((2, 3)), rng.randint(5, 9)
    for _ in range(steps):
        with d.new("x"):
            d.t.copy(1_500_000)
            for level in range(sets):
                d.go("fps", size=0.4**level)
                d.go("pn_mlp", times=3, size=0.6**level, taped=True)
            for level in reversed(range(sets)):
                d.go("pn_prop", size=0.6**level)
                d.go("pn_mlp", times=2, size=0.6**level, taped=True)
            d.go("loss", taped=True)
            d.backward()
            with d.annotated("Optimizer.step#Adam.step"):
                d.go("foreach")
            d.item()
        d.idle(60, 900)
    return d.program(f"{steps} steps, {sets} sets", "x")


def arm_learns_then_moves(rng: Random) -> Program:
    """A diffusion policy: batches with a moving average of the weights; after each epoch it acts a few times."""
    d = Seat(rng, rng.choice(("none", "own", "torch")))
    epochs, batches, acts, noises = rng.randint(2, 3), rng.randint(4, 7), rng.randint(2, 3), rng.choice((5, 8))
    deep = rng.randint(4, 6)
    for _ in range(epochs):
        for _ in range(batches):
            with d.step("train_batch"):
                d.t.copy(2_000_000, pageable=False)
                d.go("res_block", times=3, taped=True)
                d.go("noise")
                d.go("dp_unet", times=2 * deep, taped=True)
                d.go("mse", taped=True)
                d.backward()
                d.go("adamw", "ema")
                d.item()
            d.idle(50, 400)
        for _ in range(acts):
            with d.any("x"), d.say("predict_action"):
                d.t.copy(200_000)
                d.go("res_block", times=3)
                for _ in range(noises):
                    d.go("dp_unet", times=2 * deep)
                    d.go("euler")
                d.t.copy(512, "DtoH")
            d.idle(500, 9_000)
    return d.program(f"{epochs} epochs of {batches}, {acts} acts of {noises} steps", "x")


def trials_of_widths(rng: Random) -> Program:
    """A search: networks of several widths are trained one after another, a few steps each."""
    d = Seat(rng, rng.choice(("none", "own", "emit")), weights=False)
    trials, steps = rng.randint(3, 4), rng.randint(5, 8)
    for trial in range(trials):
        blocks, size = rng.randint(3, 8), rng.choice((0.5, 1, 2))
        with d.step(f"trial_{trial}", "y"):
            for _ in range(steps):
                with d.step("step"):
                    d.t.copy(800_000, pageable=False)
                    d.go("res_block", times=blocks, size=size, taped=True)
                    d.go("cls", "loss", taped=True)
                    d.backward()
                    d.go("sgd")
                    d.item()
                d.idle(30, 200)
        d.idle(4_000, 30_000)
    return d.program(f"{trials} trials of {steps} steps", "xy")


def actions_as_tokens(rng: Random) -> Program:
    """A vision-language-action model: a picture and a sentence, then seven tokens that move the arm."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "path")))
    eyes, depth, acts = rng.choice((4, 6)), rng.choice((4, 6)), rng.randint(3, 6)
    for _ in range(acts):
        with d.step("predict_action"):
            d.t.copy(150_528)
            with d.new("y"), d.say("vision"):
                d.go("patch")
                for n in range(eyes):
                    with d.layer("SiglipEncoderLayer", n, "vision_backbone.blocks"):
                        d.go("ln_block")
            for k in range(7):
                size = 4.0 if k == 0 else 1.0
                with d.new("y"):
                    if k == 0:
                        d.go("cls")  # the projector
                    d.go("embed", size=size)
                    for n in range(depth):
                        with d.layer("LlamaDecoderLayer", n, "language_model.model.layers"):
                            d.go("hf_attn", "hf_mlp", size=size)
                    d.go("hf_head", "pick")
                    d.item()
        d.idle(3_000, 30_000)
    return d.program(f"{acts} acts, {eyes} and {depth} layers", "x" if d.has_own else "xy", "l")


def folds(rng: Random) -> Program:
    """A structure of a protein: pairs are refined some times over, then atoms by diffusion; proteins of any length."""
    d = Seat(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "forward")))
    proteins, cycles, depth = rng.randint(2, 4), rng.randint(2, 4), rng.choice((4, 6))
    noises, atoms = rng.randint(5, 8), rng.choice((3, 4))
    for number in range(proteins):
        size = rng.uniform(0.6, 2.5)
        with d.step(f"predict protein_{number}"):
            d.t.copy(2_000_000)
            for _ in range(cycles):
                with d.new("y"), d.say("recycle"):
                    d.go("fold_in", size=size)
                    with d.any("l"):
                        d.go("msa", times=2, size=size)
                    for n in range(depth):
                        with d.layer("PairformerBlock", n, "pairformer.blocks"):
                            d.go("pair", size=size)
            for _ in range(noises):
                with d.new("y"), d.say("diffusion_step"):
                    d.go("noise")
                    for n in range(atoms):
                        with d.layer("DiffusionTransformerBlock", n, "diffusion.blocks"):
                            d.go("atom", size=size)
                    d.go("euler")
            with d.any("y"):
                d.go("fold_out")
            d.t.copy(400_000, "DtoH")
        d.idle(2_000, 40_000)
    about = f"{proteins} proteins, {cycles} cycles of {depth} blocks, {noises} steps of {atoms}"
    return d.program(about, "x" if d.has_own else "xy", "l")


def products_timed(rng: Random) -> Program:
    """`do_bench`: the cache is flushed, the kernel runs, again and again; then the next shape."""
    d = Seat(rng, rng.choice(("none", "none", "own")), weights=False, host=2.0)
    shapes, runs = rng.randint(3, 6), rng.randint(20, 40)
    kernels = rng.sample([name for name, _ in B["hf_attn"] + B["fx_double"] + B["te_mlp"] if "gemm" in name or
                          "nvjet" in name], 3)  # fmt: skip
    for shape in range(shapes):
        name, us = rng.choice(kernels), rng.uniform(10, 400)
        with d.new("y"), d.say(f"M={1024 << shape}"):
            for _ in range(runs):
                with d.new("x"):
                    d.go("bench_flush")
                    d.one(name, us)
            d.t.sync()
        d.idle(500, 5_000)
    return d.program(f"{shapes} shapes, {runs} runs", "xy", may_be_nothing=("executions",))


# -- simulations ---------------------------------------------------------------------------------------------


def molecules_at_home_on_the_card(rng: Random) -> Program:
    """GROMACS: forces on two streams, an update; the list of pairs is pruned often and made anew seldom."""
    d = Seat(rng, rng.choice(("none", "own")), program="gmx", host=rng.choice((0.4, 1.0)))
    steps, every, pme = rng.randint(25, 50), rng.choice((10, 20)), rng.random() < 0.7
    for s in range(steps):
        with d.step("step"):
            if s % every == 0:
                with d.any("" if d.has_own else "x"), d.say("neighbour search"):
                    d.t.copy(900_000, pageable=False)
            d.go("gmx_nb")
            d.go("gmx_bonded", stream=d.stream)
            if pme:
                d.after(d.stream + 1, d.stream)
                d.go("gmx_pme", stream=d.stream + 1)
            if s % 4 == 3:
                d.go("gmx_prune")
            d.after(d.stream, d.stream + 1)
            d.go("gmx_update")
        if s % every == every - 1:
            d.t.copy(900_000, "DtoH", pageable=False)
            d.t.sync(d.stream)
            d.idle(300, 2_000)
    return d.program(f"{steps} steps, pairs every {every}{', pme' * pme}", "x")


def atoms_by_kokkos(rng: Random) -> Program:
    """LAMMPS with Kokkos: an integrator's halves around forces; neighbours when atoms moved far; a line at times."""
    d = Seat(rng, rng.choice(("none", "own")), program="lmp", host=rng.choice((0.5, 2.0)))
    steps, line = rng.randint(20, 40), rng.choice((5, 10))
    for s in range(steps):
        with d.step("Verlet::run::step"):
            with d.say("Modify"):
                d.go("kk_nve")
            if s == 0 or rng.random() < 0.15:
                with d.say("Neigh"):
                    d.go("kk_neigh")
                    d.item()
            else:
                with d.say("Comm"):
                    d.go("kk_pack", times=6)
            with d.say("Pair"):
                d.go("kk_force")
            with d.say("Modify"):
                d.go("kk_nve2")
            if s % line == line - 1:
                with d.say("Output"):
                    d.go("kk_thermo")
                    d.item()
        d.t.sync(d.stream)
        d.idle(3, 20)
    return d.program(f"{steps} steps, a line every {line}", "x")


def even_and_odd(rng: Random) -> Program:
    """Lattice Boltzmann in place: even and odd steps are other kernels; fields are written now and then."""
    d = Seat(rng, rng.choice(("none", "own")), program="lbm", weights=False, host=0.5)
    pairs, every = rng.randint(12, 25), rng.choice((5, 10))
    for p in range(pairs):
        with d.new("y"):
            for kind in ("lbm_even", "lbm_odd"):
                with d.step("timestep"):
                    d.go(kind)
                    d.go("lbm_bc")
        if p % every == every - 1:
            with d.any(), d.say("write_fields"):
                d.go("lbm_out")
                d.t.copy(6_000_000, "DtoH")
    return d.program(f"{2 * pairs} steps, written every {2 * every}", "x" if d.has_own else "xy")


def shots_of_sound(rng: Random) -> Program:
    """Seismic imaging: for each shot waves forward in time, then backward with what was recorded."""
    d = Seat(rng, rng.choice(("none", "own")), program="rtm", weights=False, host=0.5)
    shots, steps, save = rng.randint(2, 4), rng.randint(15, 30), rng.choice((2, 5))
    for shot in range(shots):
        with d.step(f"shot {shot}", "y"):
            with d.say("forward"):
                for s in range(steps):
                    with d.new("x"):
                        d.go("rtm_fw")
                        if s % save == 0:
                            d.go("rtm_save")
            with d.say("backward"):
                for _ in range(steps):
                    with d.new("x"):
                        d.go("rtm_bw")
            d.t.copy(8_000_000, "DtoH")
            d.t.sync()
        d.idle(2_000, 20_000)
    return d.program(f"{shots} shots of {steps} steps each way", "y" if d.has_own else "xy")


def sets_of_conjugate_gradients(rng: Random) -> Program:
    """HPCG: sets of iterations, each with a multigrid cycle before."""
    d = Seat(rng, rng.choice(("none", "own")), program="xhpcg", weights=False, host=0.4)
    sets, iterations, levels = rng.randint(2, 3), rng.randint(8, 15), rng.choice((3, 4))
    for _ in range(sets):
        with d.new("y"), d.say("CG set"):
            with d.any("x"):
                d.go("hpcg_spmv", "hpcg_axpy", "hpcg_dot")
                d.item()
            for _ in range(iterations):
                with d.step("CG iteration"):
                    for level in range(levels - 1):
                        d.go("hpcg_smooth", "hpcg_spmv", "hpcg_restrict", size=0.3**level)
                    d.go("hpcg_smooth", size=0.3**levels)
                    for level in reversed(range(levels - 1)):
                        d.go("hpcg_prolong", "hpcg_smooth", size=0.3**level)
                    d.go("hpcg_dot", "hpcg_axpy", "hpcg_spmv", "hpcg_dot")
                    d.item()
                    d.go("hpcg_axpy", "hpcg_axpy", "hpcg_dot")
                    d.item()
        d.idle(500, 5_000)
    return d.program(f"{sets} sets of {iterations}, {levels} levels", "xy")


def stars_in_a_tree(rng: Random) -> Program:
    """Stars that attract each other: a tree is made anew each step, as deep as it must be."""
    d = Seat(rng, rng.choice(("none", "own")), program="nbody", weights=False, host=0.5)
    steps, deep = rng.randint(10, 20), rng.randint(8, 11)
    for s in range(steps):
        with d.step(f"step {s}"):
            d.go("nb_tree")
            d.go("nb_level", times=deep + rng.choice((-1, 0, 0, 0, 1)))
            d.go("nb_force", "nb_kick")
        if s % 5 == 4:
            d.t.copy(2_000_000, "DtoH")
        d.t.sync()
        d.idle(5, 60)
    return d.program(f"{steps} steps", "x")


def electrons(rng: Random) -> Program:
    """Density functional theory: a cycle has as many Davidson iterations as it needs, for each k-point."""
    d = Seat(rng, rng.choice(("none", "own", "own")), program="pw.x", host=rng.choice((0.5, 2.0)))
    cycles, points = rng.randint(5, 9), rng.randint(1, 3)
    for _ in range(cycles):
        with d.step("electrons_scf"):
            for _ in range(points):
                with d.new("z"), d.say("cegterg"):
                    for _ in range(rng.randint(2, 4)):
                        with d.new("y"):
                            d.go("scf_h", times=4)
                            d.go("scf_rot")
                            d.t.copy(50_000, "DtoH")
            with d.any("yz"), d.say("sum_band"):
                d.go("scf_rho", times=2 * points)
            with d.any("yz"), d.say("v_of_rho"):
                d.go("scf_xc")
                d.t.copy(16, "DtoH")
        d.idle(300, 4_000)
    return d.program(f"{cycles} cycles, {points} points", "x" if d.has_own else "xyz")


def neutrons(rng: Random) -> Program:
    """Particles in batches: events are sorted by kind and handled until none is alive."""
    d = Seat(rng, rng.choice(("none", "own")), program="openmc", weights=False, host=0.5)
    batches = rng.randint(5, 9)
    for s in range(batches):
        with d.step(f"batch {s + 1}"):
            d.go("mc_init")
            alive = 1.0
            while alive > 0.04:
                with d.new("y"):
                    d.go("mc_xs", "mc_advance", size=alive)
                    if rng.random() < 0.9:
                        d.go("mc_cross", size=alive)
                    d.go("mc_collide", size=alive)
                    d.item()
                alive *= rng.uniform(0.6, 0.85)
            with d.any("y"):
                d.go("mc_tally")
            d.t.copy(40_000, "DtoH")
        d.idle(100, 900)
    return d.program(f"{batches} batches", "x" if d.has_own else "xy")


def heat_with_halo(rng: Random) -> Program:
    """Jacobi on several cards: the edges first, their copies while the middle is computed; a norm at times."""
    d = Seat(rng, rng.choice(("none", "own")), program="jacobi", weights=False, host=0.4)
    steps, norm = rng.randint(30, 60), rng.choice((1, 10))
    for s in range(steps):
        with d.step("Jacobi iteration"):
            d.go("jac_edge", times=2, stream=d.stream + 1)
            d.go("jac")
            d.t.copy(16_384, "DtoH", pageable=False, stream=d.stream + 1)
            with d.say("MPI_Sendrecv"):
                d.t.sync(d.stream + 1)
                d.idle(5, 30)
            d.t.copy(16_384, pageable=False, stream=d.stream + 1)
            if s % norm == norm - 1:
                d.t.copy(4, "DtoH")
            d.t.sync()
    return d.program(f"{steps} steps, a norm every {norm}", "x")


def weather_by_directives(rng: Random) -> Program:
    """A weather model with OpenACC: stages of a step, small steps within; radiation every few steps."""
    d = Seat(rng, rng.choice(("none", "own")), program="wrf.exe", weights=False, host=0.6)
    steps, small, every = rng.randint(6, 11), rng.choice((2, 4)), rng.choice((3, 4))
    for s in range(steps):
        with d.step(f"timestep {s + 1}"):
            if s % every == 0:
                with d.say("radiation"):
                    d.go("acc_rad")
            for stage in (1, 2, 3):
                with d.new("y"), d.say(f"rk_step {stage}"):
                    d.go("acc_halo", "acc_rk")
                    d.go("acc_dyn", times=(1, small // 2, small)[stage - 1])
            with d.any("y"), d.say("physics"):
                d.go("acc_phys")
                d.t.copy(64, "DtoH")
        d.idle(20, 200)
    return d.program(f"{steps} steps, radiation every {every}", "x")


def ranks_of_pages(rng: Random) -> Program:
    """PageRank over a few graphs: iterations until nothing changes."""
    d = Seat(rng, rng.choice(("none", "own")), weights=False)
    runs = rng.randint(3, 5)
    for g in range(runs):
        size = rng.uniform(0.5, 3)
        with d.step(f"pagerank graph_{g}"):
            with d.any("y"):
                d.go("pr_setup", size=size)
            for _ in range(rng.randint(8, 18)):
                with d.new("y"):
                    d.go("pr", size=size)
                    d.t.copy(4, "DtoH")
        d.idle(3_000, 30_000)
    return d.program(f"{runs} graphs", "x" if d.has_own else "xy")


def slices_of_a_head(rng: Random) -> Program:
    """MRI: each slice is reconstructed by some iterations over all coils."""
    d = Seat(rng, rng.choice(("none", "own")), weights=False, host=rng.choice((3.0, 9.0)))
    slices, iterations, coils = rng.randint(4, 7), rng.randint(5, 10), rng.choice((2, 4))
    for s in range(slices):
        with d.step(f"slice {s}"):
            d.t.copy(4_000_000)
            for _ in range(iterations):
                with d.new("y"):
                    d.go("mri_coil", times=coils)
                    d.go("mri_cg")
                    d.item()
            d.t.copy(500_000, "DtoH")
        d.idle(500, 5_000)
    return d.program(f"{slices} slices of {iterations} iterations, {coils} coils", "x" if d.has_own else "xy")


def particles_in_cells(rng: Random) -> Program:
    """PIConGPU: push, shift, current, fields; a plugin looks at times."""
    d = Seat(rng, rng.choice(("none", "own")), program="picongpu", weights=False, host=0.5)
    steps, every, species = rng.randint(12, 24), rng.choice((4, 8)), rng.choice((1, 2))
    for s in range(steps):
        with d.step("runOneStep"):
            d.go("pic_push", times=species)
            d.go("pic_shift", times=species)
            d.go("pic_current", times=species)
            d.go("pic_field")
            d.t.sync()
        if s % every == every - 1:
            with d.any("x"), d.say("plugins"):
                d.go("pic_dump", times=species)
                d.t.copy(8, "DtoH")
    return d.program(f"{steps} steps, {species} species, a look every {every}", "x")


def ranks_of_training(rng: Random) -> Program:
    """Two processes of one training in a recording: the same steps on two cards, gradients summed between."""
    seats = [Seat(rng, "none", weights=False, host=2.0)]
    d = seats[0]
    d.view, d.has_own = rng.choice((("none", False), ("own", True)))
    other = Seat(rng, d.view, weights=False, host=2.0, pid=d.m.pid + 1)
    other.m.device, other.stream, other.speed = 1, d.stream, d.speed
    depth, steps = rng.choice((3, 4)), rng.randint(5, 8)
    start = max(d.t.now, other.t.now)
    for one in (d, other):
        one.t.wait_until(start)
    for _ in range(steps):
        both = d.m.group()  # a step of all ranks
        for one in (d, other):
            with one.step("train_step", y=both):
                one.t.copy(65_536, pageable=False)
                learn(one, depth, "Block", ("ln_block",))
                one.go("allreduce")
                one.go("adamw")
                one.item()
            one.t.host(100)
        start = max(d.t.now, other.t.now)
        for one in (d, other):
            one.t.wait_until(start + 200 * US)
    return d.program(f"{steps} steps of {depth} layers on two ranks", "xy", "l", others=[other.m])


# -- nothing that repeats ------------------------------------------------------------------------------------


def arrays_in_a_notebook(rng: Random) -> Program:
    """Arrays are looked at in a notebook, in whatever way comes to mind."""
    d = Seat(rng, rng.choice(("none", "own")), weights=False)
    for _ in range(rng.randint(35, 80)):
        said = d.say(rng.choice(("cell", "plot", "filter", "svd", "clean"))) if rng.random() < 0.15 else nullcontext()
        with said:
            for _ in range(rng.choice((1, 1, 2, 3, 5))):
                name, us = rng.choice(B["odd"])
                d.one(name, us * rng.lognormvariate(0, 1.2), grid=rng.randint(1, 2_000))
        if rng.random() < 0.4:
            d.t.copy(int(rng.lognormvariate(12, 2)), rng.choice(("HtoD", "DtoH")))
        d.t.host(rng.lognormvariate(8, 1.7))
    return d.program("a notebook", "", is_noise=True)


def tables_once(rng: Random) -> Program:
    """A script cleans a table once: each stage does another thing, over columns of many kinds."""
    d = Seat(rng, rng.choice(("none", "own")), weights=False)
    stages = ["read", "types", "dedupe", "join", "tokenize", "cluster", "write"]
    for stage in stages:
        with d.say(stage):
            rows = rng.sample(B["odd"], rng.randint(3, 7))
            for _ in range(rng.randint(4, 12)):
                name, us = rng.choice(rows)
                d.one(name, us * rng.lognormvariate(1, 1.2), grid=rng.randint(1, 5_000))
                if rng.random() < 0.2:
                    d.t.sync(d.stream)
            d.t.copy(int(rng.lognormvariate(14, 1.5)), rng.choice(("HtoD", "DtoH")))
        d.idle(500, 20_000)
    return d.program("a script", "", is_noise=True)


def operators_tested(rng: Random) -> Program:
    """A suite of tests of operators: shapes of each, forward and sometimes more, compared with another way."""
    d = Seat(rng, rng.choice(("none", "torch")), weights=False)
    blocks = ("odd", "hf_attn", "fx_double", "gmx_pme", "te_mlp", "sample_hop", "roi", "fps", "mri_coil")
    rows = [row for block in blocks for row in B[block]]
    for _ in range(rng.randint(25, 50)):
        for _ in range(rng.randint(1, 6)):
            text, us = rng.choice(rows)
            name, _, operator = text.partition(" @")
            d.one(name, us * rng.lognormvariate(0, 1), operator or "aten::add", grid=rng.randint(1, 900))
        if rng.random() < 0.6:
            d.item()
        d.t.host(rng.lognormvariate(7, 1.3))
    return d.program("tests", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        pieces_of_graphs, prompts_alone, tokens_in_cpp, heads_that_guess, generated_eagerly, batches_overlapped,
        states_served, windows_and_weights_of_four_bits, engine_of_numbers, answers_scored, models_in_a_row, one_prompt,
        pictures_by_unet, two_streams_then_one, film_on_many_cards, voice_in_chunks, masks_of_prompts, tiles_of_frames,
        windows_of_speech, words_by_ctc, trainer_with_evaluations, sharded_and_computed_again, adapters_of_four_bits,
        preferred_answers, roll_outs_on_the_same_card, parts_of_tensors, experts_trained, vectors_in_two_passes,
        lengths_that_grow, graphs_of_a_training, buffers_of_xla, dreams, maker_and_critic, boxes_and_masks,
        pictures_with_holes, neighbours_sampled, whole_graph_each_epoch, clicks_in_graphs, points_in_sets,
        arm_learns_then_moves, trials_of_widths, actions_as_tokens, folds, products_timed,
        molecules_at_home_on_the_card, atoms_by_kokkos, even_and_odd, shots_of_sound, sets_of_conjugate_gradients,
        stars_in_a_tree, electrons, neutrons, heat_with_halo, weather_by_directives, ranks_of_pages, slices_of_a_head,
        particles_in_cells, ranks_of_training, arrays_in_a_notebook, tables_once, operators_tested,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed."""
    return drawn(FAMILIES, "commuter", seed, ((0, 0.88), (0.06, 1), (0.07, 0.93)))
