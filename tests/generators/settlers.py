"""Programs that people profile in 2026, by an eleventh author, written without a look at how structure is found.

Labels: ``x`` what the owner would call an execution; ``y``, ``z`` other answers that the owner would accept; ``l`` a
block of a forward pass, ``k`` another reading of the blocks. What has no label of a layer is not judged as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from generators.desk import Host, damaged, family_of
from generators.machine import NOT_JUDGED, Machine, Program, Thread, kernels_of

B = kernels_of("settler_kernels.txt")
EITHER = {"x": NOT_JUDGED, "y": NOT_JUDGED, "z": NOT_JUDGED}  # of the execution before or of the one behind
OPERATORS = {
    "nvjet": "linear", "gemm": "linear", "gemv": "linear", "flash": "scaled_dot_product_attention", "fmha": "bmm",
    "layer_norm": "layer_norm", "xmma": "conv3d", "softmax": "softmax", "silu": "silu", "Gelu": "gelu",
    "reduce_kernel": "mean", "multi_tensor": "_foreach_add_", "nll": "nll_loss", "nccl": "record_param_comms",
}  # fmt: skip


class Desk(Host):
    """A process and its habits. ``said``: its owner wrote ranges; ``modules``: hooks write one around each block."""

    def __init__(self, rng: Random, *, said: bool | None = None, modules: bool | None = None, kineto: bool = False):
        self.rng, self.kineto = rng, kineto
        self.said = rng.random() < 0.5 if said is None else said
        self.modules = rng.random() < 0.35 if modules is None else modules
        self.m = Machine(
            Random(rng.random()), pid=rng.randint(900, 99_000), jitter=rng.choice((0.02, 0.05, 0.1)),
            launch_us=rng.choice((2.5, 4.0, 6.0)),
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, rng.randint(1_000_000, 500_000_000))
        self.between, self.speed = rng.choice((0.5, 2.0, 5.0, 12.0)), rng.choice((0.6, 1.0, 1.6))
        self.stream, self.backward, self.sequence = rng.choice((7, 7, 7, 19)), False, rng.randint(0, 90_000)

    def do(self, *blocks: str, size: float = 1.0, times: int = 1, **more: Any) -> None:
        """Launch the kernels of the blocks, each from an operator where operators are recorded."""
        for name, us in [one for _ in range(times) for block in blocks for one in B[block]]:
            self.t.host(self.between)
            more.setdefault("stream", self.stream)
            if not self.kineto:
                self.t.launch(name, us * size * self.speed, **more)
                continue
            self.sequence += 1
            text = "aten::" + next((said for word, said in OPERATORS.items() if word in name), "add")
            if self.backward:
                text = text.replace("aten::", "").title().replace("_", "") + "Backward0"
                with self.t.range(f"autograd::engine::evaluate_function: {text}", "cpu_op"):
                    self.t.launch(name, us * size * self.speed, **more)
            else:
                with self.t.range(text, "cpu_op", **{"Sequence number": self.sequence}):
                    self.t.launch(name, us * size * self.speed, **more)

    @contextmanager
    def run(self, text: str = "", labels: str = "x", **fixed: int) -> Iterator[None]:
        """An execution under these labels, in a range of the owner if it has a text and the owner writes any."""
        with ExitStack() as stack:
            if text and (self.said or text.startswith("ProfilerStep")):
                stack.enter_context(self.t.range(text, "user_annotation" if self.kineto else "nvtx"))
            stack.enter_context(self.t.mark(**{**{one: self.m.group() for one in labels}, **fixed}))
            yield

    def say(self, text: str) -> Any:
        return self.run(text, "")

    @contextmanager
    def layer(self, kind: str, number: int, labels: str = "lk", **fixed: int) -> Iterator[None]:
        with ExitStack() as stack:
            if self.modules and self.kineto:
                more = {"Python module id": number}
                stack.enter_context(self.t.range(f"nn.Module: {kind}_{number}", "python_function", **more))
            elif self.modules:
                stack.enter_context(self.t.range(f"blocks.{number}:{kind}"))
            stack.enter_context(self.t.mark(**{**{one: self.m.group() for one in labels}, **fixed}))
            yield

    def block(self, kind: str, number: int, *names: str, size: float = 1.0, labels: str = "lk", **fixed: int) -> None:
        with self.layer(kind, number, labels, **fixed):
            self.do(*names, size=size)

    @contextmanager
    def autograd(self) -> Iterator[None]:
        """What is launched backward: on a thread of its own, of no judged layer."""
        self.backward = True
        with self.elsewhere(tid=29, wakes=40, returns=20):
            yield
        self.backward = False

    def read(self) -> None:
        with self.t.mark(**EITHER):
            self.t.item(self.stream)

    def program(self, about: str, executions: str = "x", layers: str = "", **more: Any) -> Program:
        about += "".join(f", {word}" for word in ("kineto", "said", "modules") if getattr(self, word))
        return Program("", [self.m], list(executions), list(layers), is_kineto=self.kineto, about=about, **more)


def two_experts_video(rng: Random) -> Program:
    """Pictures that move: noise is taken away by one model, then by another; only the first steps are guided."""
    d = Desk(rng)
    videos, steps, depth = rng.randint(3, 4), rng.randint(8, 14), rng.choice((4, 6, 8))
    guided, switch = steps // 2, steps // 3
    for _ in range(videos):
        with d.run("generate_video"):
            with d.say("text_encoder"), d.t.mark(y=NOT_JUDGED, z=NOT_JUDGED):  # a call of a model as well
                for _ in range(2):  # the wish, and what is not wished
                    d.do("lm_in")
                    d.do("umt5", times=6, size=0.5)
            for s in range(steps):
                model = "high_noise" if s < switch else "low_noise"
                with d.run(f"denoise_{model}", "y"):
                    for _ in range(2 if s < guided else 1):
                        with d.t.mark(z=d.m.group()):
                            d.do("dit_mod")
                            for n in range(depth):
                                d.block("WanAttentionBlock", n, "dit_self", "dit_cross", "dit_ffn")
                            d.do("guide")
                    with d.t.mark(z=NOT_JUDGED):
                        if s < guided:
                            d.do("guide")
                        d.do("unipc", times=3)
            with d.say("vae.decode"), d.t.mark(y=NOT_JUDGED, z=NOT_JUDGED):
                d.do("vae3", times=rng.randint(10, 12), size=3)
            with d.t.mark(y=NOT_JUDGED, z=NOT_JUDGED):
                d.t.copy(6_000_000, "DtoH")
        d.t.host(30_000)
    return d.program(f"{videos} videos of {steps} steps, {guided} guided, {depth} blocks", "xyz", "l")


def experts_and_next_tokens(rng: Random) -> Program:
    """Steps of a large mixture of experts with a head that guesses one more token: one odd layer behind the others."""
    d = Desk(rng)
    steps, depth, dense = rng.randint(8, 14), rng.choice((5, 7, 9)), rng.randint(0, 1)

    def layer(n: int) -> None:
        d.do("mla")
        if n < dense:
            d.do("moe_shared", size=3)
            return
        d.do("moe_route")
        for _ in range(rng.choice((1, 1, 1, 2))):  # chunks of the tokens that arrived
            d.do("moe_work", size=rng.uniform(0.7, 1.4))
        d.do("moe_shared", "moe_back")

    for _ in range(steps):
        batch = d.m.group()
        with d.run(f"step[DECODE bs={rng.choice((64, 96, 128))}]", "x"):
            with d.say("target_verify"), d.t.mark(y=d.m.group()):
                d.do("lm_in")
                for n in range(depth):
                    with d.layer("DeepseekV2DecoderLayer", n):
                        layer(n)
                d.do("lm_out", "argmax")
            with d.say("draft"), d.t.mark(y=batch):
                d.do("mtp_in")
                with d.layer("DeepseekV2DecoderLayer", depth, l=NOT_JUDGED):
                    layer(dense)
                d.do("lm_out", "argmax")
            d.read()
        d.t.host(150)
    return d.program(f"{steps} steps, {depth} layers, {dense} dense", "xy", "lk")


def delta_hybrid(rng: Random) -> Program:
    """Every fourth layer attends, the others keep a state; a prompt in chunks, then tokens, for each request."""
    d = Desk(rng)
    requests, tokens, depth = rng.randint(3, 5), rng.randint(6, 14), 4 * rng.randint(1, 3)
    for _ in range(requests):
        with d.run("request", "y"):
            for s in range(rng.randint(1, 3) + tokens):
                is_prompt = s < 1
                with d.run("prefill" if is_prompt else "decode"):
                    d.do("lm_in")
                    for n in range(depth):
                        mixer = "gated_attn" if n % 4 == 3 else "delta_chunk" if is_prompt else "delta"
                        d.block("Qwen3NextDecoderLayer", n, mixer, "few_experts", size=4 if is_prompt else 1)
                    d.do("lm_out", "argmax")
                    d.read()
        d.t.host(rng.choice((500, 4_000)))
    return d.program(f"{requests} requests of {tokens} tokens and more, {depth} layers", "xy", "lk")


def learn(d: Desk, depth: int, kinds: tuple[str, ...], *, again: int = 0, extra: str = "") -> None:
    """Forward, loss and backward of blocks. ``again``: every so many blocks are computed again before backward."""
    d.do("lm_in")
    groups = []
    for n in range(depth):
        groups.append(d.m.group())
        names = (extra, "blk") if extra and n % 2 else ("blk",)
        d.block(kinds[n % len(kinds)], n, *names, labels="", l=groups[-1], k=groups[-1])
    d.do("loss")
    with d.autograd():
        d.do("loss_bw")
        for n in reversed(range(depth)):
            if again and n % again == 0:
                with d.layer(kinds[n % len(kinds)], n, "", l=NOT_JUDGED, k=NOT_JUDGED):
                    d.backward = False
                    d.do(*((extra, "blk") if extra and n % 2 else ("blk",)))
                    d.backward = True
            d.do("blk_bw")


def space_and_time(rng: Random) -> Program:
    """Training of a model of videos: blocks over space and blocks over time in turn; some are computed again."""
    d = Desk(rng, kineto=rng.random() < 0.6)
    steps, depth, again = rng.randint(4, 6), rng.choice((4, 6, 8)), rng.choice((0, 1, 2))
    first = rng.randint(2, 30)
    for s in range(steps):
        d.t.copy(400_000, pageable=False)
        with d.run(f"ProfilerStep#{first + s}" if d.kineto else f"train_step {first + s}"):
            learn(d, depth, ("SpatialBlock", "TemporalBlock"), again=again, extra="blk_turn")
            with d.say("optimizer"):
                d.do("norms", "adamw", "adamw", "muon")
            d.read()
        d.t.host(600)
    return d.program(f"{steps} steps, {depth} blocks, every {again} again", "x", "l")


def robot_ticks(rng: Random) -> Program:
    """What a robot does next: cameras through a vision tower, a prompt, then actions by ten steps of a small expert."""
    d = Desk(rng)
    ticks, eyes, flows = rng.randint(5, 9), rng.randint(2, 3), rng.choice((5, 10))
    tower, depth = rng.choice((4, 6)), rng.choice((4, 6))
    for _ in range(ticks):
        with d.run("select_action"):
            for _ in range(eyes):
                d.t.copy(150_528)
            with d.say("vision_tower"):
                for n in range(tower):
                    d.block("SiglipEncoderLayer", n, "siglip", size=eyes)
            with d.say("prefix"):
                for n in range(depth):
                    d.block("GemmaDecoderLayer", n, "gemma")
            with d.say("flow_matching"):
                for _ in range(flows):
                    d.do("dit_mod")
                    for n in range(depth):
                        d.block("GemmaExpertLayer", 100 + n, "gemma", size=0.15)
                    d.do("unipc")
            d.read()
        d.t.host(rng.choice((3_000, 20_000)))
    return d.program(f"{ticks} ticks, {eyes} cameras, {tower} and {depth} layers, {flows} flows", "x", "l")


def codebook_voice(rng: Random) -> Program:
    """A frame of speech: one pass of a large model, then one small pass for each codebook, then the codec."""
    d = Desk(rng)
    frames, depth, books, small = rng.randint(8, 16), rng.choice((4, 6)), rng.choice((8, 16)), rng.choice((2, 4))
    for _ in range(frames):
        with d.run("generate_frame"):
            d.do("lm_in")
            for n in range(depth):
                d.block("LlamaDecoderLayer", n, "gemma", size=0.5)
            d.do("lm_out", "argmax")
            for _ in range(books):
                for n in range(small):
                    d.block("DepthLayer", 50 + n, "depth")
                d.do("argmax")
            with d.say("mimi.decode"):
                d.do("codec", times=4)
            d.t.copy(7_680, "DtoH")
        d.t.host(300)
    return d.program(f"{frames} frames, {depth} layers, {books} codebooks of {small}", "x", "l")


def eye_of_bird(rng: Random) -> Program:
    """A car sees: six cameras through one engine, all of them onto a plane, a head; in C++, without ranges or with."""
    d = Desk(rng, modules=False)
    d.m.program, d.between = "perception_node", 0.5
    frames, depth = rng.randint(8, 14), rng.randint(3, 5)
    for _ in range(frames):
        with d.run("frame"):
            for camera in range(6):
                d.t.copy(900_000, pageable=False)
                with d.say(f"camera {camera}"):
                    d.do("bev_pre", "bev_stem")
                    for _ in range(depth):
                        with d.t.mark(l=d.m.group()):
                            d.do("bev_res")
            d.do("bev_pool")
            d.do("bev_head", times=3)
            d.do("bev_post", times=rng.randint(1, 4))
            d.t.copy(20_000, "DtoH")
        d.t.host(rng.uniform(800, 5_000))
    return d.program(f"{frames} frames, {depth} blocks", "x")


def ring_of_contexts(rng: Random) -> Program:
    """Long contexts over ranks: in each layer attention goes round a ring, forward and backward."""
    d = Desk(rng)
    steps, ranks, depth = rng.randint(4, 6), rng.choice((2, 4, 8)), rng.choice((3, 4, 6))
    for s in range(steps):
        with d.run(f"step {s}"):
            d.do("lm_in")
            for n in range(depth):
                with d.layer("DecoderLayer", n):
                    d.do("ring_in")
                    for turn in range(ranks):
                        if turn < ranks - 1:
                            d.do("sendrecv", stream=41)
                        d.do("ring_attn")
                        if turn:
                            d.do("ring_fix")
                    d.do("ring_out")
            d.do("loss")
            with d.autograd():
                d.do("loss_bw")
                for _ in range(depth):
                    d.do("blk_wgrad")
                    for _ in range(ranks):
                        d.do("sendrecv", stream=41)
                        d.do("ring_bw")
                    d.do("blk_dgrad")
            d.do("rs", stream=42)
            d.do("norms", "adamw")
            d.read()
        d.t.host(300)
    return d.program(f"{steps} steps, {ranks} ranks, {depth} layers", "x", "l")


def speedrun(rng: Random) -> Program:
    """A small model trained by Muon: more launches in the optimizer, five rounds a matrix, than in the model."""
    d = Desk(rng, kineto=rng.random() < 0.3)
    steps, depth, every = rng.randint(5, 9), rng.choice((4, 6)), rng.choice((0, 3))
    for s in range(steps):
        with d.run():
            with d.say("forward_backward"):
                learn(d, depth, ("Block",))
            with d.say("Muon.step"):
                for _ in range(depth * rng.choice((2, 2, 2))):
                    d.do("muon", "norms")
                    d.do("newton", times=5, size=0.5)
                    d.do("muon")
                d.do("adamw")
            if not every or s % every == 0:
                d.read()
        d.t.host(200)
    return d.program(f"{steps} steps, {depth} blocks", "x", "l")


def words_from_masks(rng: Random) -> Program:
    """A language model that unmasks: blocks of text, each by several passes over all of it; no cache."""
    d = Desk(rng)
    answers, blocks, passes, depth = rng.randint(2, 3), rng.randint(2, 4), rng.choice((4, 8)), rng.choice((4, 6))
    for _ in range(answers):
        with d.t.mark(z=d.m.group()), d.say("generate"):
            for b in range(blocks):
                with d.run(f"block {b}", "y"):
                    for _ in range(passes):
                        with d.run():
                            d.do("lm_in")
                            for n in range(depth):
                                d.block("LLaDABlock", n, "blk")
                            d.do("lm_out", "argmax")
                            d.do("shuffle", size=0.1)
        d.t.copy(4_096, "DtoH")
        d.t.host(5_000)
    return d.program(f"{answers} answers of {blocks} blocks of {passes} passes, {depth} layers", "xyz", "l")


def depth_that_recurs(rng: Random) -> Program:
    """A model thinks longer by running its middle again: two layers, a core as often as it likes, two layers."""
    d = Desk(rng)
    tokens, core = rng.randint(10, 18), rng.choice((2, 4))
    most = rng.choice((4, 4, 7))
    for _ in range(tokens):
        with d.run("next_token"):
            d.do("lm_in")
            for n in range(2):
                d.block("SandwichBlock", n, "blk")
            for _ in range(rng.randint(4, most)):
                d.do("mtp_in")
                for n in range(core):
                    d.block("SandwichBlock", 2 + n, "blk")
            for n in range(2):
                d.block("SandwichBlock", 2 + core + n, "blk")
            d.do("lm_out", "argmax")
            d.read()
        d.t.host(100)
    return d.program(f"{tokens} tokens, {core} layers in the core, up to {most} times", "x", "l")


def quantise_by_layer(rng: Random) -> Program:
    """Weights are made small, layer after layer: all samples through it, its matrices one after another, and again."""
    d = Desk(rng, modules=False)
    layers, samples, matrices, columns = rng.randint(4, 6), rng.choice((4, 8)), rng.choice((3, 4)), rng.randint(8, 14)
    for n in range(layers):
        with d.run(f"quantize layer {n}", "x"):
            for _ in range(samples):
                d.do("blk")
                d.do("hess", times=matrices)
            d.t.sync()
            for _ in range(matrices):
                with d.say("fasterquant"):
                    d.do("chol", times=2)
                    for _ in range(3):
                        d.do("column", times=columns)
                        d.do("trail")
                d.t.sync()
            for _ in range(samples):
                d.do("blk")
            d.t.sync()
        d.t.host(3_000)
    return d.program(f"{layers} layers, {samples} samples, {matrices} matrices", "x")


def dictionary_of_features(rng: Random) -> Program:
    """A sparse autoencoder learns what a model thinks: its buffer is filled by passes of that model, now and then."""
    d = Desk(rng)
    fills, passes, steps, depth = rng.randint(3, 4), rng.randint(2, 4), rng.randint(6, 12), rng.choice((4, 6))
    for _ in range(fills):
        whole = d.m.group()
        with d.say("refill_buffer"), d.t.mark(z=whole):
            for _ in range(passes):
                with d.run("", "x", y=NOT_JUDGED):
                    d.do("lm_in")
                    for n in range(depth):
                        d.block("GPTNeoXLayer", n, "blk")
            with d.t.mark(**EITHER):
                d.do("shuffle")
        d.t.sync()
        for _ in range(steps):
            with d.run("sae_step", "xy", z=whole):
                d.do("sae", "mse")
                with d.autograd():
                    d.do("sae_bw")
                d.do("norms", "adamw")
                d.read()
    return d.program(f"{fills} fills of {passes} passes, {steps} steps each, {depth} layers", "xyz", "l")


def views_of_a_scene(rng: Random) -> Program:
    """Cameras and depth from any number of pictures: blocks within a picture and over all of them in turn, heads."""
    d = Desk(rng)
    scenes, depth = rng.randint(4, 7), rng.choice((4, 6, 8))
    for _ in range(scenes):
        views = rng.randint(1, 6)
        with d.run("reconstruct"):
            d.t.copy(600_000 * views)
            for n in range(depth):
                d.block("PatchBlock", n, "siglip", size=views)
            for n in range(depth):
                pair = d.m.group()
                d.block("FrameBlock", 40 + n, "blk", labels="l", size=views * 0.5, k=pair)
                d.block("GlobalBlock", 70 + n, "blk_turn", "blk", labels="l", size=views, k=pair)
            for _ in range(2):
                d.do("dpt", times=rng.choice((5, 5)), size=views)
            d.t.copy(1_000_000 * views, "DtoH")
        d.t.host(2_000)
    return d.program(f"{scenes} scenes, {depth} and twice {depth} blocks", "x", "lk")


def pictures_by_hand(rng: Random) -> Program:
    """Filters and transforms of single pictures, tried in any order: nothing repeats."""
    d = Desk(rng, modules=False)
    for _ in range(rng.randint(60, 140)):
        with d.say(rng.choice(("look", "try", "again", "filter"))) if rng.random() < 0.2 else d.t.mark():
            for _ in range(rng.randint(1, 4)):
                name, us = rng.choice(B["odd"])
                d.t.launch(name, us * rng.lognormvariate(0, 1), stream=d.stream, grid=rng.randint(1, 900))
        if rng.random() < 0.3:
            d.t.copy(int(rng.lognormvariate(13, 2)), rng.choice(("HtoD", "DtoH")))
        d.t.host(rng.lognormvariate(5, 1.5))
    return d.program("pictures", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        two_experts_video, experts_and_next_tokens, delta_hybrid, space_and_time, robot_ticks, codebook_voice,
        eye_of_bird, ring_of_contexts, speedrun, words_from_masks, depth_that_recurs, quantise_by_layer,
        dictionary_of_features, views_of_a_scene, pictures_by_hand,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn. One recording in ten is cut, one in twenty lost rows."""
    return damaged(*family_of(FAMILIES, "settler", seed), ((0, 0.88), (0.09, 1)))
