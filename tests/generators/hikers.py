"""Programs of 2024 to 2026 from many trades, by a fifteenth author, written without a look at the finder.

Labels: ``x`` what the owner would call an execution; ``y``, ``z`` other answers that the owner would accept; ``l``,
``k`` readings of the layers. Where layers have no label they are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any
from zlib import crc32

from generators import desk
from generators.desk import drawn
from generators.machine import US, Program, kernels_of, numbered

B = kernels_of("hiker_kernels.txt")
PYTHON = ("none", "none", "own", "own", "torch", "both", "emit")


class Pack(desk.Desk):
    """A process; ``lazy``: µs that the code of a kernel takes to load when it is launched first."""

    blocks = B
    between = ("fi_attn", "eager_attn")

    def __init__(self, rng: Random, view: str = "none", **more: Any) -> None:
        super().__init__(rng, view, **more)
        self.lazy, self.loaded = rng.choice((0, 0, 60, 700)), set[str]()

    def one(self, name: str, us: float, *args: Any, **more: Any) -> None:
        if self.lazy and name not in self.loaded:
            more.setdefault("pause", self.rng.uniform(0.5, 2) * self.lazy)
        self.loaded.add(name)
        more.setdefault("grid", 1 + crc32(name.encode()) % 900)
        super().one(name, us, *args, **more)

    def note(self, text: str) -> Any:
        """A range that is there in traces of PyTorch, too (``record_function``)."""
        return self.put(text if self.has_own or self.is_kineto else "")

    def library(self, text: str, domain: str) -> Any:
        """A range of a library, in its own domain."""
        return self.put(text if self.has_own and not self.is_kineto else "", domain=domain)

    def pull(self, size: int, *, pageable: bool = False) -> None:
        self.t.copy(size, pageable=pageable, stream=self.stream)

    def push(self, size: int, *, waits: bool = True) -> None:
        """Results to the host, which waits for them."""
        self.t.copy(size, "DtoH", pageable=False, stream=self.stream)
        if waits:
            self.t.sync(self.stream)

    @contextmanager
    def worker(self, tid: int, name: str, stream: int, *, at: int = 0) -> Iterator[None]:
        """Another thread, whose time runs beside this one's."""
        main, own = self.t, self.stream
        self.t, self.stream = self.m.thread(tid, max(at, main.now), name), stream
        self.t.wait_until(at)
        try:
            yield
        finally:
            self.t, self.stream = main, own

    def stacked(self, depth: int, *blocks: str, kind: str = "Block", path: str = "model.layers", **more: Any) -> None:
        """Equal layers, each of these blocks."""
        for n in range(depth):
            with self.layer(kind, n, path):
                self.go(*blocks, **more)

    def step_of(self, number: int, text: str = "") -> str:
        """How this trainer's step is marked."""
        return f"ProfilerStep#{number}" if self.is_kineto else text


def modules_of(rng: Random, view: str) -> str:
    """How modules are written in such a view."""
    return rng.choice(("", "", "", "path", "class", "both") + ("frame", "frame") * (view in ("torch", "both")))


def seat(rng: Random, views: tuple[str, ...] = PYTHON, *, hooks: bool = True, **more: Any) -> Pack:
    view = rng.choice(views)
    return Pack(rng, view, modules=modules_of(rng, view) if hooks else "", **more)


# -- models are asked ----------------------------------------------------------------------------------------


def decode_of_a_pair(rng: Random) -> Program:
    """The decoding half of a split server: caches arrive by copies; a graph for each size of batch, sampling behind."""
    d = seat(rng, ("none", "none", "own", "torch"), hooks=False, program="sglang::decode_TP0")
    depth, steps, batch = rng.choice((8, 12, 16, 20)), rng.randint(10, 18), rng.choice((3, 6, 9))
    for _ in range(steps):
        if rng.random() < 0.25:
            batch += rng.randint(1, 2)
            with d.any(), d.say("kv_receiver.poll"):
                for _ in range(rng.randint(4, 12)):
                    d.t.copy(rng.randint(200_000, 900_000), pageable=False, stream=81)
        with d.step(), d.note(f"step[DECODE bs={batch}]"):
            for _ in range(3):
                d.pull(256)
            parts: list[tuple[str, dict[str, int]]] = [("tok", {})]
            for group in d.groups(depth):
                parts += [("fi_attn", {"l": group}), ("fi_mlp", {"l": group})]
            d.graph([*parts, ("fi_head", {})], 10 + batch // 4, size=0.8 + 0.05 * batch)
            d.go("fi_sample")
            d.push(4 * batch)
        d.idle(80, 900)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def latent_experts(rng: Random) -> Program:
    """Latent attention and experts of eight bits: the first layers are dense; no graph, one step a token."""
    d = seat(rng, ("none", "torch", "both", "own"), program="VLLM::Worker_DP3")
    dense, experts, steps = rng.randint(1, 3), rng.randint(5, 9), rng.randint(6, 10)
    for s in range(steps):
        size = 3.0 if not s else rng.uniform(0.9, 1.1)
        with d.step("execute_model"):
            d.pull(8_192)
            d.go("tok")
            for n in range(dense + experts):
                with d.layer("DeepseekV2DecoderLayer", n):
                    d.go("mla", "mla_dense" if n < dense else "mla_moe", size=size)
            d.go("mla_head", "greedy")
            d.push(64)
        d.idle(60, 600)
    return d.program(f"{steps} steps, {dense} dense layers, {experts} of experts", "x", "l")


def windows_in_turn(rng: Random) -> Program:
    """Layers that look at a window and layers that look at all, in turn; experts of four bits; with a graph or not."""
    d = seat(rng, ("none", "none", "own", "torch"), hooks=False)
    pairs, steps, graph = rng.choice((4, 6, 8)), rng.randint(8, 14), rng.random() < 0.5
    for s in range(steps):
        size = rng.uniform(3, 5) if s == 0 else 1.0
        with d.step(f"decode_step_{s}" if rng.random() < 0.97 else ""):
            d.pull(1_024)
            parts: list[tuple[str, dict[str, int]]] = []
            for _ in range(pairs):
                k = d.m.group()
                for kind in ("oss_local", "oss_full"):
                    parts += [(one, {"l": group, "k": k}) for group in d.groups(1)
                              for one in ("oss_qkv", kind, "oss_moe")]  # fmt: skip
            if graph and s:
                d.graph([("tok", {}), *parts, ("mla_head", {})], 6)
            else:
                d.go("tok", size=size)
                for block, marks in parts:
                    with d.t.mark(**marks):
                        d.go(block, size=size)
                d.go("mla_head")
            d.go("greedy")
            d.push(4)
        d.idle(50, 400)
    return d.program(f"{steps} steps, {pairs} pairs of layers{', graph' * graph}", "x", "lk")


def vectors_in_rust(rng: Random) -> Program:
    """A server of vectors in Rust: texts of any length, nothing marked."""
    d = seat(rng, ("none",), hooks=False, host=rng.choice((0.4, 1.5)), program="text-embeddings-router")
    depth, batches = rng.choice((6, 12)), rng.randint(8, 14)
    for _ in range(batches):
        size = rng.choice((0.4, 0.7, 1, 1, 2, 3))
        with d.step():
            d.pull(2_048, pageable=True)
            d.go("candle_in", size=size)
            for _ in range(depth):
                with d.layer("", 0):
                    d.kernels(B["candle_layer"][:-1], size=size)
                with d.any("l"):  # the norm between layers may be of the next one
                    d.kernels(B["candle_layer"][-1:], size=size)
            d.go("candle_out")
            d.push(65_536)
        d.idle(100, 8_000)
    return d.program(f"{batches} batches, {depth} layers", "x", "l")


def answers_by_grammar(rng: Random) -> Program:
    """Answers that must be JSON: a mask of allowed tokens comes from the host for each token."""
    d = seat(rng, ("none", "own", "own", "torch"))
    depth, requests, outer = rng.choice((4, 6)), rng.randint(3, 5), rng.random() < 0.6
    for r in range(requests):
        with d.new("y"), d.say(f"request {r} (schema_{rng.randint(1, 9)})" if outer else ""):
            for s in range(rng.randint(3, 7)):
                size = rng.uniform(3, 6) if not s else 1.0
                with d.step("" if outer else "prefill" if not s else "next_token"):
                    d.go("tok", size=size)
                    d.stacked(depth, "eager_attn", "eager_mlp", kind="OPTDecoderLayer", size=size)
                    d.go("eager_head")
                    d.idle(100, 700)
                    d.pull(16_384)
                    d.go("bitmask", "greedy")
                    d.push(8)
        d.idle(2_000, 9_000)
    return d.program(f"{requests} requests, {depth} layers", "xy", "l")


def tokens_by_tvm(rng: Random) -> Program:
    """A chat on a compiled engine: each answer a prompt, then tokens; nothing marked."""
    d = seat(rng, ("none",), hooks=False, host=rng.choice((0.5, 1.0)), program="mlc_chat")
    depth, answers, steps = rng.choice((6, 10, 14)), rng.randint(2, 4), 0
    for _ in range(answers):
        for s in range(rng.randint(4, 8)):
            steps += 1
            with d.step():
                d.pull(512)
                d.go("tvm_in")
                d.stacked(depth, "tvm_layer" if s else "tvm_layer_prefill", size=1.0)
                d.go("tvm_out")
                d.push(128)
            d.idle(30, 120)
        d.idle(20_000, 200_000)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def pages_read(rng: Random) -> Program:
    """Pages are read: where text stands, then what each strip of it says."""
    d = seat(rng, ("none", "own"), hooks=False)
    pages, convs, mixes = rng.randint(7, 12), rng.randint(10, 16), rng.randint(4, 8)
    for p in range(pages):
        with d.step(f"page_{p}"):
            with d.say("det"), d.new("y"):
                d.pull(3_000_000, pageable=True)
                d.go("paddle_stem")
                d.go("paddle_conv", times=convs)
                d.go("paddle_map")
                d.push(1_600_000)
            d.idle(500, 4_000)
            for _ in range(rng.randint(1, 4)):
                with d.say("rec"), d.new("y"):
                    d.pull(200_000, pageable=True)
                    d.go("paddle_stem", size=0.4)
                    d.go("paddle_text", times=mixes)
                    d.go("paddle_ctc")
                    d.push(20_000)
        d.idle(1_000, 5_000)
    return d.program(f"{pages} pages", "xy")


def documents_asked(rng: Random) -> Program:
    """Questions about pictures: the tower of the eye, the prompt, then tokens."""
    d = seat(rng)
    eye, depth, asked = rng.choice((4, 6)), rng.choice((4, 6)), rng.randint(3, 5)
    for r in range(asked):
        size = rng.uniform(0.7, 2.0)
        with d.new("y"), d.say(f"request:{r}"):
            with d.new("x"), d.say("prefill"):
                with d.new("z"), d.say("visual"):
                    d.pull(int(4e6 * size), pageable=True)
                    d.go("vit_patch", size=size)
                    d.stacked(eye, "vit", kind="Qwen2_5_VLVisionBlock", path="visual.blocks", size=size)
                    d.go("vit_merge", size=size)
                with d.new("z"):
                    d.go("tok", size=size)
                    d.stacked(depth, "fi_attn", "fi_mlp", kind="Qwen2_5_VLDecoderLayer", size=6 * size)
                    d.go("fi_head", "greedy")
                    d.push(8)
            for _ in range(rng.randint(3, 6)):
                with d.new("xz"), d.say("decode"):
                    d.go("tok")
                    d.stacked(depth, "fi_attn", "fi_mlp", kind="Qwen2_5_VLDecoderLayer")
                    d.go("fi_head", "greedy")
                    d.push(8)
                d.idle(40, 300)
        d.idle(3_000, 20_000)
    return d.program(f"{asked} questions, {eye} + {depth} layers", "xyz", "l")


def cached_rows(rng: Random) -> Program:
    """Clicks are predicted by two threads: rows of tables from a cache, missing ones from the host, a small network."""
    d = seat(rng, ("none", "own"), hooks=False, program="tritonserver", host=rng.choice((1.0, 4.0)))
    requests, tables = rng.randint(16, 30), rng.randint(1, 3)
    for r in range(requests):
        tid = 70 + r % 2
        with d.worker(tid, f"hps_{tid}", 20 + tid), d.step("HPS::lookup_and_infer"):
            d.pull(40_000)
            for _ in range(tables):
                d.go("hps_find")
                d.push(8)
                if rng.random() < 0.35:
                    d.idle(50, 400)
                    d.pull(rng.randint(50_000, 800_000))
                    d.go("hps_miss")
            d.go("hps_net")
            d.push(4_096)
            d.idle(30, 500)
        d.t.wait_until(d.m.threads[tid].now - int(rng.uniform(0, 200) * US))
    return d.program(f"{requests} requests of two threads", "x")


def pairs_of_two_towers(rng: Random) -> Program:
    """Pictures and captions of a data set are compared, a batch at a time."""
    d = seat(rng)
    eye, words, batches = rng.choice((6, 8)), rng.choice((4, 6)), rng.randint(5, 8)
    for _ in range(batches):
        size = rng.choice((1.0, 1.0, 1.3))
        with d.step("batch"):
            d.pull(9_000_000)
            with d.say("encode_image"):
                d.go("vit_patch", size=size)
                d.stacked(eye, "vit", kind="CLIPEncoderLayer", path="vision_model.encoder.layers", size=size)
            with d.say("encode_text"):
                d.go("tok")
                d.stacked(words, "text_tower", kind="CLIPEncoderLayer", path="text_model.encoder.layers")
            d.go("muon_norm", times=2)
            d.push(8_192)
        d.idle(300, 3_000)
    return d.program(f"{batches} batches, {eye} + {words} layers", "x", "l")


def unet(d: Pack, depth: int, size: float = 1.0) -> None:
    for n in range(depth):
        d.go("unet_res", "unet_attn", size=size, times=1 + n % 2)
        d.go("unet_down", size=size)
    d.go("unet_res", "unet_attn", "unet_res", size=size)
    for n in range(depth):
        d.go("unet_up", "unet_res", "unet_attn", size=size, times=1 + n % 2)


def one_step_pictures(rng: Random) -> Program:
    """Pictures in one step: words, one pass of the network, the decoder."""
    d = seat(rng, ("none", "own", "torch"), hooks=False)
    words, depth, pictures = rng.choice((5, 8)), rng.choice((2, 3)), rng.randint(5, 9)
    for p in range(pictures):
        with d.step(f"prompt {p}"):
            d.go("tok")
            d.go("text_tower", times=words)
            d.pull(65_536)
            unet(d, depth)
            d.go("scheduler")
            d.go("vae", times=5)
            d.go("vae_end")
            d.push(3_000_000)
        d.idle(2_000, 60_000)
    return d.program(f"{pictures} pictures", "x")


def chunks_of_a_world(rng: Random) -> Program:
    """A world that is played: each chunk a few passes of denoising, a pass that keeps keys, then a decoder of video."""
    d = seat(rng, ("none", "own", "own", "torch"))
    depth, chunks, passes = rng.choice((5, 8)), rng.randint(4, 6), rng.randint(3, 4)
    for c in range(chunks):
        with d.step(f"chunk_{c}"):
            for s in range(passes + 1):
                with d.say("denoise" if s < passes else "update_kv"), d.new("y"):
                    d.go("dit_ends")
                    d.stacked(depth, "dit", kind="CausalWanAttentionBlock", path="generator.model.blocks")
                    d.go("dit_ends")
                    if s < passes:
                        d.go("scheduler")
            with d.any("y"), d.say("vae_decode"):
                d.go("vae3d", times=rng.choice((4, 4, 6)))
                d.push(2_000_000)
        d.idle(300, 9_000)
    return d.program(f"{chunks} chunks of {passes} passes, {depth} layers", "xy", "l")


def engine_built_then_run(rng: Random) -> Program:
    """trtexec: kernels are tried for each layer while the engine is built, then it runs."""
    d = seat(rng, ("none", "own"), hooks=False, program="trtexec", host=0.5)
    depth, runs = rng.randint(8, 14), rng.randint(9, 16)
    with d.any(), d.library("Engine building", "TensorRT"):
        for _ in range(rng.randint(6, 16)):
            for number in rng.sample((32, 64, 96, 128, 160, 256), rng.randint(2, 4)):
                d.kernels(numbered(B["trt_tactic"][: rng.randint(1, 2)], a=number), size=rng.uniform(0.5, 2))
                d.t.sync(d.stream)
            d.idle(200, 4_000)
    d.idle(50_000, 400_000)
    for _ in range(runs):
        with d.step(), d.library("ExecutionContext::enqueue", "TensorRT"):
            d.pull(600_000)
            d.go("trt_stem")
            for n, group in enumerate(d.groups(depth)):
                for (name, us), part in zip(B["trt_block"], ("cv1/conv/Conv", "cv2/conv/Conv", "Add"), strict=True):
                    with d.library(f"/model.{n}/{part}", "TensorRT"), d.t.mark(l=group):
                        d.one(name, us)
            d.go("trt_head")
            d.push(40_000)
        d.idle(5, 90)
    # with ranges of TensorRT each of its kernels is a layer of its own
    return d.program(f"{runs} runs, {depth} blocks", "x", "" if d.has_own else "l")


def calibrated_then_judged(rng: Random) -> Program:
    """Ranges of activations are observed, the weights are rounded once, then the rounded model is judged."""
    d = seat(rng)
    depth, first, then = rng.choice((4, 6)), rng.randint(4, 6), rng.randint(4, 7)
    for s in range(first + then):
        if s == first:
            with d.any(), d.say("convert"):
                for _ in range(depth * 4):
                    name, us = rng.choice(B["convert"][:4])
                    d.one(name.partition(" @")[0], us)
            d.idle(20_000, 90_000)
        with d.step("calibrate" if s < first else "evaluate"):
            d.pull(65_536, pageable=True)
            d.go("tok")
            if s < first:
                d.stacked(depth, "eager_attn", "observe", "eager_mlp", "observe", kind="GPTNeoXLayer")
            else:
                d.stacked(depth, "eager_attn", "int8_lin", "int8_lin", kind="GPTNeoXLayer")
            d.go("eager_head")
            if s >= first:
                d.go("loss")
                d.item()
        d.idle(100, 2_000)
    return d.program(f"{first} + {then} passes, {depth} layers", "x", "l")


def layers_patched(rng: Random) -> Program:
    """A model is looked into: in each pass what one layer said is replaced; the passes are named after that layer."""
    d = seat(rng, ("own", "own", "none", "both"))
    depth = rng.choice((6, 8, 10))
    for s in range(depth + 1):
        with d.step(f"layer {s - 1}" if s else "clean run"):
            d.go("tok")
            for n in range(depth):
                with d.layer("GPT2Block", n, "transformer.h"):
                    d.go("eager_attn", "eager_mlp")
                    if n == s - 1:
                        with d.any("l"):
                            d.kernels(B["vit_merge"][:1])
            d.go("eager_head", "loss")
            d.item()
        d.idle(100, 2_000)
    return d.program(f"{depth + 1} passes, {depth} layers", "x", "l")


def moves_searched(rng: Random) -> Program:
    """A game is searched: positions gathered by the host are judged by a tower, several times a move."""
    d = seat(rng, ("none", "own", "torch"))
    depth, moves = rng.choice((6, 9)), rng.randint(3, 4)
    judged = 0
    for m in range(moves):
        with d.new("y"), d.say(f"move {m}"):
            for _ in range(rng.randint(3, 6)):
                judged += 1
                d.idle(300, 3_000)
                with d.step():
                    d.pull(80_000)
                    d.go("tower_in")
                    d.stacked(depth, "res_tower", kind="ResBlock", path="tower", size=rng.choice((0.6, 1, 1.2)))
                    d.go("tower_out")
                    d.push(10_000)
        d.idle(4_000, 12_000)
    return d.program(f"{judged} passes for {moves} moves, {depth} layers", "xy" if d.has_own else "x", "l")


# -- models are trained --------------------------------------------------------------------------------------


def learn(
    d: Pack, depth: int, *blocks: str, size: float = 1.0, kind: str = "Block", path: str = "model.layers"
) -> None:
    """Forward and backward."""
    with d.say("forward"):
        d.go("tok", taped=True, size=size)
        d.stacked(depth, *blocks, kind=kind, path=path, taped=True, size=size)
        d.go("eager_head", "loss", taped=True, size=size)
    with d.say("backward"):
        d.backward()


def orthogonal_updates(rng: Random) -> Program:
    """Updates made orthogonal by five rounds of products, for each matrix."""
    d = seat(rng)
    depth, steps, whole_step = rng.choice((3, 4)), rng.randint(5, 7), rng.random() < 0.6
    for s in range(steps):
        with d.step(d.step_of(s, f"step {s}" if whole_step else "")):
            d.pull(130_000)
            learn(d, depth, "eager_attn", "eager_mlp")
            with d.say("muon"), d.any("l"):
                for _ in range(2 * depth):
                    d.go("muon_norm")
                    d.go("newton_schulz", times=5)
                d.go("adam")
        d.idle(50, 900)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def sizes_that_grow(rng: Random) -> Program:
    """Pictures grow while the network learns: with each size the library takes other kernels."""
    d = seat(rng)
    depth, sizes = rng.choice((4, 6)), rng.sample((32, 64, 128, 256), rng.randint(2, 3))
    number = 0
    for place, size in enumerate(sorted(sizes)):
        rows = numbered(B["bottleneck"], a=size)
        for _ in range(rng.randint(3, 5)):
            with d.step(d.step_of(number, "train_batch")):
                d.pull(4_000_000)
                d.kernels(B["vit_patch"], taped=True, size=1 + place)
                for n in range(depth):
                    with d.layer("Bottleneck", n, "net.body"):
                        d.kernels(rows, taped=True, size=1 + place)
                d.go("pool_fc", "loss", taped=True)
                d.backward()
                with d.any("l"):
                    d.go("momentum")
                number += 1
            d.idle(100, 1_500)
        d.idle(10_000, 50_000)
    return d.program(f"{number} steps of {len(sizes)} sizes, {depth} layers", "x", "l" if d.modules else "")


def activations_sent_away(rng: Random) -> Program:
    """What a layer leaves goes to the host until its gradient is asked for; at times a checkpoint is written."""
    d = seat(rng)
    depth, steps = rng.choice((4, 5)), rng.randint(4, 6)

    def fetched(number: int) -> None:
        if number % 12 == 11:
            d.t.copy(4_000_000, pageable=False, stream=62)

    for s in range(steps):
        with d.step(d.step_of(s, f"iteration={s}")):
            with d.say("fwd"):
                d.go("tok", taped=True)
                for n in range(depth):
                    with d.layer("LlamaDecoderLayer", n):
                        d.go("eager_attn", "eager_mlp", taped=True)
                    d.t.copy(4_000_000, "DtoH", pageable=False, stream=61)
                d.go("eager_head", "loss", taped=True)
            with d.say("bwd"):
                d.backward(fetched)
            with d.any("l"):
                d.go("adam")
        if s % 3 == 2:
            with d.say("save_checkpoint"):
                for _ in range(rng.randint(5, 20)):
                    d.push(20_000_000, waits=False)
                d.t.sync()
        d.idle(100, 700)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def closures(rng: Random) -> Program:
    """A network that obeys an equation: L-BFGS asks for loss and gradient several times a step."""
    d = seat(rng, ("none", "own", "torch"), hooks=False)
    steps, outer, old = rng.randint(3, 5), rng.random() < 0.5, 1
    for _ in range(steps):
        with d.new("y"), d.say("optimizer.step" if outer else ""):
            for _ in range(rng.randint(3, 7)):
                with d.step("" if outer else "closure"):
                    d.go("pinn", times=5, taped=True)
                    d.go("pinn_loss", taped=True)
                    d.go("pinn_again", times=10)
                    d.go("pinn_loss", taped=True)
                    d.backward()
                    d.item()
                with d.any("x"):
                    old = min(old + 1, 8)
                    d.go("lbfgs", times=old)
        d.idle(300, 2_000)
    return d.program(f"{steps} steps of several closures", "xy")


def spikes_in_time(rng: Random) -> Program:
    """Neurons that fire: all layers for each tick of time, gradients through all of them."""
    d = seat(rng, ("none", "own", "torch"))
    depth, ticks, batches = rng.randint(3, 4), rng.choice((4, 6)), rng.randint(5, 7)
    for _ in range(batches):
        with d.step("train_batch"):
            d.pull(500_000)
            for _ in range(ticks):
                with d.new("k"):
                    d.stacked(depth, "snn_conv", kind="ConvLIF", path="net.layers", taped=True)
                    with d.any("l"):
                        d.go("snn_out", taped=True)
            d.go("pinn_loss", taped=True)
            d.backward()
            with d.any("lk"):
                d.go("adam")
            d.item()
        d.idle(100, 3_000)
    return d.program(f"{batches} batches, {ticks} ticks of {depth} layers", "x", "lk")


def automata_grown(rng: Random) -> Program:
    """Cells that grow a picture by one rule: the number of its turns is drawn for each step."""
    d = seat(rng, ("none", "own", "torch", "emit"), hooks=False)
    steps = rng.randint(5, 8)
    for _ in range(steps):
        with d.step("train_step"):
            d.pull(260_000, pageable=True)
            d.go("nca", times=rng.randint(8, 14), taped=True)
            d.go("pinn_loss", taped=True)
            d.backward()
            d.go("muon_norm", times=4)
            d.go("adam")
            d.item()
        d.idle(200, 5_000)
    return d.program(f"{steps} steps", "x")


def flows_inverted(rng: Random) -> Program:
    """A flow that can be inverted: equal steps at a few scales."""
    d = seat(rng)
    scales, depth, steps = rng.randint(2, 3), rng.randint(2, 4), rng.randint(5, 7)
    for s in range(steps):
        with d.step(d.step_of(s, "step")):
            d.pull(1_500_000)
            for scale in range(scales):
                with d.any("l"):
                    d.go("squeeze", taped=True)
                for n in range(depth):
                    with d.layer("FlowStep", scale * depth + n, "glow.flows"):
                        d.go("glow", taped=True)
            d.go("pinn_loss", taped=True)
            d.backward()
            with d.any("l"):
                d.go("adam")
            if s % 3 == 2:
                d.item()
        d.idle(60, 700)
    return d.program(f"{steps} steps, {scales} scales of {depth} layers", "x", "l")


def trained_in_c(rng: Random) -> Program:
    """A trainer in C: its ranges, if any, name parts and layers, not the step."""
    d = seat(rng, ("none", "own", "own"), hooks=False, program="train_gpt2cu", host=0.4)
    depth, steps = rng.choice((4, 6)), rng.randint(5, 9)
    for s in range(steps):
        with d.step():
            with d.say("gpt2_forward"):
                d.pull(65_536)
                d.go("c_in")
                for n, group in enumerate(d.groups(depth)):
                    with d.say(f"Layer {n}"), d.t.mark(l=group):
                        d.go("c_layer")
                d.go("c_loss")
            with d.say("gpt2_backward_and_reduce"), d.any("l"):
                d.t.memset(50_000_000, d.stream)
                d.go("c_head_back")
                for n in reversed(range(depth)):
                    with d.say(f"Layer {n}"):
                        d.go("c_back")
                d.go("c_in_back")
                d.push(4)
            with d.say("gpt2_update"), d.any("l"):
                d.go("c_update")
        if s and s % 4 == 0:
            d.idle(2_000, 5_000)
        d.idle(20, 90)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def tiny_gradients(rng: Random) -> Program:
    """Digits learnt by tinygrad: two steps kernel by kernel, then each step by a graph."""
    d = seat(rng, ("none",), hooks=False, host=rng.choice((20.0, 60.0)))
    steps, eager, seen = rng.randint(10, 20), rng.randint(1, 2), rng.random() < 0.5
    for s in range(steps):
        with d.step() as groups:
            if s < eager:
                d.idle(20_000, 300_000)
                d.go("tiny")
            else:
                d.graph([("tiny", groups)], 3)
            if seen:
                d.push(4)
        d.idle(100, 700)
    return d.program(f"{steps} steps", "x")


def modules_of_xla(rng: Random) -> Program:
    """JAX: a module a step, at times one that evaluates, small ones that draw numbers between them."""
    d = seat(rng, ("none", "own", "own"), hooks=False, host=0.6)
    steps, parts, thunks = rng.randint(7, 12), rng.randint(3, 6), rng.random() < 0.5
    for s in range(steps):
        with d.any(), d.say("XlaModule:#hlo_module=jit__threefry_split,program_id=3#"):
            d.go("xla_small")
        name = "jit_train_step,program_id=11" if s % 5 != 4 else "jit_eval_step,program_id=14"
        with d.step(f"XlaModule:#hlo_module={name}#"):
            for block in ["xla_step"] * parts + ["xla_back"] * (2 * parts if s % 5 != 4 else 0):
                for number, row in enumerate(B[block]):
                    with d.say(f"Thunk:#hlo_op={row[0].partition('(')[0]}.{number}#" if thunks else ""):
                        d.kernels([row])
        d.idle(20, 300)
    return d.program(f"{steps} steps", "x")


def augmented_beside(rng: Random) -> Program:
    """A thread turns pictures on the same GPU while the main thread learns from those before."""
    d = seat(rng, ("none", "own", "torch"))
    depth, steps = rng.choice((4, 6)), rng.randint(5, 8)
    for s in range(steps):
        with d.worker(77, "Thread-3 (prefetch)", 21), d.any(), d.say("augment"):
            d.idle(100, 900)
            d.pull(6_000_000)
            d.go("augment", times=rng.randint(1, 3))
        with d.step(d.step_of(s, "training_step")):
            d.go("vit_patch", taped=True)
            d.stacked(depth, "vit", path="blocks", taped=True)
            d.go("eager_head", "loss", taped=True)
            d.backward()
            with d.any("l"):
                d.go("adam")
            d.item()
        d.idle(50, 500)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def trainer_and_judge(rng: Random) -> Program:
    """Two processes: one learns, the other judges each checkpoint by a few passes."""
    view = rng.choice(("none", "own"))
    d, other = (Pack(rng, view, pid=pid, weights=False) for pid in (4_100, 7_300))
    other.m.device = 1
    depth, steps = rng.choice((3, 5)), rng.randint(5, 7)
    other.t.wait_until(d.t.now + 3_000 * US)
    for _ in range(steps):
        with d.step("train"):
            learn(d, depth, "eager_attn", "eager_mlp")
            with d.any("l"):
                d.go("adam")
        d.idle(100, 900)
    for _ in range(2):
        other.pull(30_000_000, pageable=True)
        for _ in range(rng.randint(3, 4)):
            with other.step("judge"):
                other.go("tok")
                other.stacked(depth, "eager_attn", "eager_mlp")
                other.go("eager_head", "loss")
                other.item()
            other.idle(100, 900)
    return d.program(f"{steps} steps beside a judge, {depth} layers", "x", "l", others=[other.m])


# -- computed without a model --------------------------------------------------------------------------------


def proofs_of_blocks(rng: Random) -> Program:
    """Proofs for a chain of blocks: transforms and hashes of columns, gates, folds."""
    d = seat(rng, ("none", "own"), hooks=False, program="prover", host=2.0)
    proofs, columns, folds = rng.randint(5, 9), rng.randint(2, 4), rng.randint(5, 8)
    for p in range(proofs):
        size = rng.choice((1, 1, 2))
        with d.step(f"gen_proof block={19_000_000 + p}"):
            for stage in range(3):
                with d.say(f"STARK_STEP_{stage + 1}"):
                    d.pull(8_000_000 * size, pageable=rng.random() < 0.5)
                    d.go("zk_ntt", times=columns, size=size)
                    d.go("zk_hash", size=size)
                    if stage:
                        d.go("zk_gates", size=size)
            with d.say("FRI"):
                for fold in range(folds):
                    d.go("zk_fri", size=size / (fold + 1))
                    d.kernels(B["zk_hash"][1:], size=size / (fold + 1))
            d.push(700_000)
        d.idle(500, 30_000)
    return d.program(f"{proofs} proofs", "x")


def bases_called(rng: Random) -> Program:
    """Signals become bases: two runners, each with a stream of its own."""
    d = seat(rng, ("none", "own"), hooks=False, program="dorado", host=1.0)
    batches, turned = rng.randint(12, 20), rng.random() < 0.5
    for number in range(batches):
        tid = 30 + number % 2
        with d.worker(tid, f"runner_{number % 2}", 50 + tid), d.step("call_chunks"):
            d.pull(5_000_000)
            d.go("dorado_conv")
            d.go("dorado_lstm", times=5)
            d.go("dorado_end", "dorado_crf")
            d.push(800_000, waits=not turned)
            if turned:
                d.t.sync(d.stream)
            d.idle(100, 900)
        d.t.host(rng.uniform(20, 200))
    return d.program(f"{batches} batches of two runners", "x")


def films_compared(rng: Random) -> Program:
    """Two films are compared frame by frame, at four scales."""
    d = seat(rng, ("none",), hooks=False, program="ffmpeg", host=rng.choice((1.0, 5.0)))
    frames = rng.randint(14, 24)
    for _ in range(frames):
        with d.step():
            d.go("vmaf_read")
            d.go("vmaf_motion")
            for scale in range(4):
                d.go("vmaf_adm", size=0.25**scale + 0.2)
            for scale in range(4):
                d.go("vmaf_scale", size=0.25**scale + 0.2)
            d.push(512, waits=False)
        d.t.sync(d.stream)
        d.idle(300, 2_000)
    return d.program(f"{frames} frames", "x")


def rays_denoised(rng: Random) -> Program:
    """Light is followed, a few samples a pixel; then the noise is taken out by a network."""
    d = seat(rng, ("none", "own"), hooks=False, program="renderer", host=3.0)
    frames, samples = rng.randint(10, 18), rng.randint(1, 4)
    for _ in range(frames):
        with d.step("frame"):
            d.pull(400)
            with d.say("path trace"):
                for _ in range(samples):
                    d.go("optix", size=rng.uniform(0.7, 1.3))
                    d.kernels(B["optix_tone"][:1])
            with d.say("denoise"):
                d.go("optix_denoise", times=3)
                d.go("optix_denoise_up", times=3)
            d.kernels(B["optix_tone"][1:])
            d.t.sync(d.stream)
        d.idle(100, 6_000)
    return d.program(f"{frames} frames of {samples} samples", "x")


def frames_located(rng: Random) -> Program:
    """A robot finds where it is from two cameras; what it keeps is adjusted by another thread."""
    d = seat(rng, ("none", "own"), hooks=False, program="component_container_mt")
    frames, eyes = rng.randint(14, 24), rng.randint(1, 2)
    for number in range(frames):
        with d.step("VisualSlamNode::Track"):
            for _ in range(eyes):
                d.pull(900_000)
                d.go("slam_frame")
            d.go("slam_pnp", times=rng.randint(3, 5))
            d.push(256)
            if number % 6 == 0:
                d.go("slam_key")
                d.push(20_000)
        if number % 6 == 0:
            with d.worker(62, "sba", 15), d.any(), d.say("sba"):
                d.go("slam_ba", times=rng.randint(2, 4))
                d.push(2_000)
        d.idle(4_000, 12_000)
    return d.program(f"{frames} frames of {eyes} cameras", "x")


def ticks_of_plans(rng: Random) -> Program:
    """A car plans twenty times a second: thousands of futures are driven, the best are mixed."""
    d = seat(rng, ("none", "own"), hooks=False, program="mppi_node")
    ticks, turns = rng.randint(12, 22), rng.randint(2, 3)
    for _ in range(ticks):
        with d.step("computeControl"):
            d.pull(112)
            for _ in range(turns):
                with d.new("y"):
                    d.go("mppi")
            with d.any("y"):
                d.go("mppi_end")
            d.push(2_800)
        d.idle(15_000, 40_000)
    return d.program(f"{ticks} ticks of {turns} turns", "x" if d.has_own else "xy")


def pulses(rng: Random) -> Program:
    """A radar: each interval is compressed, transformed and searched."""
    d = seat(rng, ("none", "own"), hooks=False, program="radar_pipeline", host=1.0)
    intervals, tracked = rng.randint(18, 40), rng.random() < 0.5
    for number in range(intervals):
        with d.step(f"CPI {number}"):
            d.pull(2_000_000)
            d.go("radar")
            if tracked and number % 5 == 4:
                d.go("radar_track")
            d.push(4_096, waits=number % 2 == 1)
        d.idle(20, 2_000)
    return d.program(f"{intervals} intervals", "x")


def ocean_by_julia(rng: Random) -> Program:
    """An ocean in Julia: slow tendencies, many short turns of its surface, then what follows from them."""
    d = seat(rng, ("none",), hooks=False, program="julia", host=rng.choice((2.0, 8.0)))
    steps, turns, saved = rng.randint(7, 12), rng.choice((8, 12, 20)), rng.randint(3, 5)
    for s in range(steps):
        with d.step():
            d.go("ocean")
            d.go("ocean_surface", times=turns)
            d.go("ocean_end")
        if s % saved == saved - 1:
            for _ in range(4):
                d.push(8_000_000, waits=False)
            d.t.sync()
            d.idle(3_000, 20_000)
        d.idle(10, 100)
    return d.program(f"{steps} steps of {turns} turns", "x")


def bodies_by_warp(rng: Random) -> Program:
    """A soft body learns to move: time forward, time backward, one update."""
    d = seat(rng, ("none", "own"), hooks=False)
    turns, substeps = rng.randint(6, 10), rng.randint(8, 16)
    for _ in range(turns):
        with d.step():
            with d.say("forward"):
                d.t.memset(40_000, d.stream)
                d.go("warp_sub", times=substeps)
                d.kernels(B["warp_loss"][:2])
            with d.say("backward"):
                d.kernels(B["warp_loss"][2:])
                d.go("warp_back", times=substeps)
            with d.say("optimize"):
                d.go("warp_step")
                d.push(4)
        d.idle(500, 9_000)
    return d.program(f"{turns} iterations of {substeps} substeps", "x")


def shock_on_two_ranks(rng: Random) -> Program:
    """A shock wave on two ranks: a cycle, faces to the neighbour, the next step of time from both."""
    view = rng.choice(("none", "own"))
    d, other = (Pack(rng, view, pid=pid, program="lulesh", weights=False) for pid in (3_100, 3_101))
    other.m.device = 1
    cycles = rng.randint(10, 18)
    for _ in range(cycles):
        start, both = max(d.t.now, other.t.now), d.m.group()  # a cycle of both
        for one in (d, other):
            one.t.wait_until(start)
            with one.step("LagrangeLeapFrog", y=both):
                for number, row in enumerate(B["lulesh"]):
                    one.kernels([row])
                    if number in (0, 4):
                        one.kernels(B["lulesh_comm"][:1])
                        one.push(90_000)
                        one.pull(90_000)
                        one.kernels(B["lulesh_comm"][1:])
                one.push(16)
            one.idle(20, 300)
    return d.program(f"{cycles} cycles on two ranks", "xy", others=[other.m])


def phases_in_metal(rng: Random) -> Program:
    """Phases in a metal by spectra: six kernels a step, its energy every few steps."""
    d = seat(rng, ("none", "own"), hooks=False, program="phasefield", host=0.5)
    steps, every, waits = rng.randint(24, 50), rng.randint(8, 12), rng.random() < 0.5
    for s in range(steps):
        with d.step("time_step"):
            d.go("phase")
            if waits:
                d.t.sync(d.stream)
        if s % every == every - 1:
            with d.any(), d.say("output"):
                d.go("phase_out")
                d.push(2_000_000)
        d.idle(3, 40)
    return d.program(f"{steps} steps", "x")


def paths_priced(rng: Random) -> Program:
    """A portfolio under many futures: time goes date by date; at some dates a regression says what goes on."""
    d = seat(rng, ("none", "own"), hooks=False, program="xva_engine")
    values, dates, every = rng.randint(4, 8), rng.randint(8, 14), rng.choice((1, 2, 4))
    for v in range(values):
        with d.step(f"price netting set {v}"):
            d.pull(800_000)
            for date in range(dates):
                with d.new("y"):
                    d.go("xva_step")
                    if date % every == every - 1:
                        d.go("xva_regress")
            with d.any("y"):
                d.go("xva_end")
            d.push(9_000)
        d.idle(500, 9_000)
    return d.program(f"{values} portfolios of {dates} dates", "x" if d.has_own else "xy")


def lists_searched(rng: Random) -> Program:
    """An index is built once, then asked in batches."""
    d = seat(rng, ("none", "own"), hooks=False)
    turns, batches, refined = rng.randint(5, 10), rng.randint(9, 18), rng.random() < 0.5
    with d.any(), d.library("ivf_pq::build(64)", "raft"):
        for _ in range(3):
            d.pull(20_000_000, pageable=True)
        d.go("kmeans", times=turns)
    d.idle(20_000, 90_000)
    for _ in range(batches):
        with d.step(), d.library("ivf_pq::search(n_queries = 1000)", "raft"):
            d.pull(400_000)
            d.go("search")
            if refined:
                d.go("refine")
            d.push(80_000)
        d.idle(50, 1_500)
    return d.program(f"{batches} batches after {turns} turns of building", "x")


def alerts_in_batches(rng: Random) -> Program:
    """Logs are judged as they come: one thread cuts texts, another runs the network on those before."""
    d = seat(rng, ("none", "own"), hooks=False, program="morpheus")
    batches, depth, apart = rng.randint(7, 12), rng.choice((4, 6)), rng.random() < 0.5
    for _ in range(batches):
        with d.worker(90, "preprocess", 33), d.any(), d.say("PreprocessNLPStage"):
            d.go("alerts_text", times=rng.randint(1, 2))
            d.idle(50, 500)
        # the range may stand on the thread that waits, not on the one that launches
        with d.step("InferenceStage"), d.elsewhere("ort_session", 91, labels="") if apart else nullcontext():
            for _ in range(depth):
                with d.new("l"):
                    d.go("alerts_net")
            d.go("alerts_end")
            d.push(8_192)
        d.idle(100, 2_500)
    return d.program(f"{batches} batches, {depth} layers", "x", "l")


# -- nothing that repeats ------------------------------------------------------------------------------------


def single_pass(rng: Random) -> Program:
    """One pass of a model is recorded, no more."""
    d = seat(rng, ("torch", "both", "own"), weights=False)
    depth = rng.randint(5, 12)
    with d.step("inference"):
        d.pull(65_536, pageable=True)
        d.go("tok")
        d.stacked(depth, "eager_attn", "eager_mlp", kind="FalconDecoderLayer", path="transformer.h")
        d.go("eager_head")
        d.t.sync()
    return d.program(f"one pass, {depth} layers", "x", "l", may_be_nothing=("executions",))


def strewn(d: Pack, block: str, most: int, spread: float = 1.0) -> None:
    """Some kernels of a block, in any order and of any length."""
    rows = d.rng.sample(B[block], min(len(B[block]), d.rng.randint(2, most)))
    for _ in range(d.rng.randint(2, most)):
        text, us = d.rng.choice(rows)
        name, _, operator = text.partition(" @")
        d.one(name, us * d.rng.lognormvariate(0, spread), operator, grid=d.rng.randint(1, 4_000))


def questions_once(rng: Random) -> Program:
    """Questions to a database, each another one, each once."""
    d = seat(rng, ("none", "own"), hooks=False, weights=False)
    asked = rng.sample(range(1, 23), rng.randint(8, 14))
    for number in asked:
        with d.step(f"tpch q{number}"):
            d.pull(int(rng.lognormvariate(14, 1)), pageable=True)
            for _ in range(rng.randint(1, 5)):
                strewn(d, "sql", 7)
                if rng.random() < 0.4:
                    d.t.sync(d.stream)
            d.push(int(rng.lognormvariate(8, 2)))
        d.t.host(rng.lognormvariate(8, 1))
    about = f"{len(asked)} questions"
    if d.has_own:  # a range around each: whether these are executions or nothing repeats, both can be said
        return d.program(about, "x", may_be_nothing=("executions",))
    return d.program(about, "", is_noise=True)


def factored_once(rng: Random) -> Program:
    """A sparse matrix is ordered, factored and solved once; the work follows its shape."""
    d = seat(rng, ("none", "own"), hooks=False, program="solver", weights=False)
    for phase in ("analysis", "factorization", "solve", "check"):
        with d.say(phase):
            for _ in range(rng.randint(3, 6)):
                strewn(d, "cudss", 7, 1.3)
                if rng.random() < 0.3:
                    d.t.copy(int(rng.lognormvariate(11, 2)), rng.choice(("HtoD", "DtoH")))
        d.t.host(rng.lognormvariate(9, 1))
    return d.program("a matrix", "", is_noise=True)


def weights_written(rng: Random) -> Program:
    """A checkpoint is written in another format, its tensors in the order of a dictionary's hashes."""
    d = seat(rng, ("none", "torch"), hooks=False, weights=False)
    for _ in range(rng.randint(18, 40)):
        d.pull(int(rng.lognormvariate(13, 1.5)), pageable=True)
        strewn(d, "convert", 6)
        if rng.random() < 0.6:
            d.push(int(rng.lognormvariate(12, 1.5)))
        d.t.host(rng.lognormvariate(7, 1.2))
    return d.program("tensors", "", is_noise=True)


def cells_looked_at(rng: Random) -> Program:
    """Single cells in a notebook: filtered, normalised, drawn; each cell of the notebook does another thing."""
    d = seat(rng, ("none", "own"), hooks=False, weights=False)
    for name in ("filter", "normalize", "hvg", "scale", "pca", "neighbors", "leiden", "rank_genes"):
        with d.say(f"rsc.{name}"):
            for _ in range(rng.randint(2, 6)):
                strewn(d, "cells", 6, 1.4)
                d.t.host(rng.lognormvariate(6, 1.5))
        d.t.host(rng.lognormvariate(10, 1.2))
    return d.program("a notebook", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        decode_of_a_pair, latent_experts, windows_in_turn, vectors_in_rust, answers_by_grammar, tokens_by_tvm,
        pages_read, documents_asked, cached_rows, pairs_of_two_towers, one_step_pictures, chunks_of_a_world,
        engine_built_then_run, calibrated_then_judged, layers_patched, moves_searched, orthogonal_updates,
        sizes_that_grow, activations_sent_away, closures, spikes_in_time, automata_grown, flows_inverted,
        trained_in_c, tiny_gradients, modules_of_xla, augmented_beside, trainer_and_judge, proofs_of_blocks,
        bases_called, films_compared, rays_denoised, frames_located, ticks_of_plans, pulses, ocean_by_julia,
        bodies_by_warp, shock_on_two_ranks, phases_in_metal, paths_priced, lists_searched, alerts_in_batches,
        single_pass, questions_once, factored_once, weights_written, cells_looked_at,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed."""
    return drawn(FAMILIES, "hiker", seed, ((0, 0.85), (0.08, 1), (0.05, 0.94)))
