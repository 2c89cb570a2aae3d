"""Programs as their owners record them in 2026, by an eighth author: pipelines of models, loops in loops, odd moments.

Labels: ``x`` an execution; ``y``, ``z`` other answers that an owner would accept; ``l`` a layer, ``k`` the same layers
where the norm that a layer begins with counts for the one before. Gradients are in no judged layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from generators.desk import family_of
from generators.machine import NONE, NOT_JUDGED, US, Machine, Program, Thread, cut, kernels_of

Kernels = list[tuple[str, float]]  # name, µs

B = kernels_of("owner_kernels.txt")


class Owner:
    """A process and its main thread; ``kineto``: recorded by PyTorch's profiler, its kernels in operators or not."""

    def __init__(self, rng: Random, kineto: float = 0.4, operators: float = 0.7) -> None:
        self.rng, self.is_kineto = rng, rng.random() < kineto
        self.has_operators = self.is_kineto and rng.random() < operators
        self.m = Machine(
            Random(rng.random()), pid=rng.randint(2_000, 60_000), jitter=rng.choice((0.01, 0.04, 0.08)),
            launch_us=rng.choice((3.0, 4.5, 7.0)),
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, 2_000_000)
        self.size = rng.choice((0.4, 1.0, 3.0))  # factor on the time of kernels
        self.code = rng.choice((1.5, 5.0, 11.0))  # µs of host code before a launch
        self.stream, self.before = 7, NONE

    def say(self, text: str, kind: str = "nvtx", **args: Any) -> Any:
        """A range, or nothing where the text is empty."""
        return self.t.range(text, kind, **args) if text else nullcontext()

    def do(self, *blocks: str | Kernels, times: int = 1, size: float = 1.0, **more: Any) -> None:
        """Launch these."""
        kernels = [one for block in blocks for one in (B[block] if isinstance(block, str) else block)]
        for name, us in kernels * times:
            self.t.host(self.code)
            with self.say(operator(name) if self.has_operators else "", "cpu_op"):
                self.t.launch(name, us * self.size * size, **({"stream": self.stream} | more))

    @contextmanager
    def run(self, labels: str = "x", text: str = "", kind: str = "nvtx", **fixed: int) -> Iterator[None]:
        """A new group of each of these labels, in a range where it has a text."""
        self.before = NONE
        with self.say(text, kind), self.t.mark(**{one: self.m.group() for one in labels}, **fixed):
            yield

    @contextmanager
    def layer(
        self, norm: str = "", text: str = "", kind: str = "nvtx", size: float = 1.0, **args: Any
    ) -> Iterator[None]:
        """A layer; ``norm``: what it begins with."""
        group = self.m.group()
        with self.say(text, kind, **args):
            if norm:
                with self.t.mark(l=group, k=self.before):
                    self.do(norm, size=size)
            self.before = group
            with self.t.mark(l=group, k=group):
                yield

    def encoder(self, depth: int, size: float = 1.0) -> None:
        """An embedding, and layers that end with a norm (``k``: it belongs to the next one)."""
        self.do(B["enc_first"][:-1], size=size)
        groups = [NONE, *(self.m.group() for _ in range(depth)), NONE]
        for before, here, after in zip(groups, groups[1:], groups[2:]):
            if before == NONE:
                with self.t.mark(k=here):
                    self.do(B["enc_first"][-1:], size=size)
            with self.t.mark(l=here, k=here):
                self.do(B["enc"][:-1], size=size)
            with self.t.mark(l=here, k=after):
                self.do(B["enc"][-1:], size=size)

    def decoder(self, depth: int, size: float = 1.0, *, body: float = 0.0, head: float = 1.0) -> None:
        """A pass of a language model; ``body``: size of a layer behind its first norm (0: as that of the norm)."""
        self.do("llm_first")
        for _ in range(depth):
            with self.layer("llm_norm", size=size):
                self.do("llm_body", "llm_norm", "llm_mlp", size=body or size)
        self.last_norm("llm_norm", size)
        self.do("llm_head", size=head)

    def last_norm(self, norm: str, size: float = 1.0) -> None:
        with self.t.mark(k=self.before):
            self.do(norm, size=size)

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """What autograd's thread launches, while this one waits."""
        main, self.t = self.t, self.m.thread(17, self.t.now, "pt_autograd_0")
        self.t.wait_until(main.now + 15 * US)
        try:
            yield
        finally:
            main.wait_until(self.t.now + 12 * US)
            self.t = main

    def pause(self, us: float, read: bool = True) -> None:
        """The host reads a number, then does what is its own."""
        if read:
            self.t.item(self.stream)
        self.t.host(us)

    def program(self, about: str, executions: str = "x", layers: str = "", **more: Any) -> Program:
        return Program("", [self.m], list(executions), list(layers), is_kineto=self.is_kineto, about=about, **more)


def operator(name: str) -> str:
    words = {
        "sdpa": "aten::_scaled_dot_product_cudnn_attention", "flash": "aten::_flash_attention_forward",
        "nvjet": "aten::mm", "gemm": "aten::addmm", "layer_norm": "aten::native_layer_norm",
        "fprop": "aten::cudnn_convolution",
        "bn_": "aten::cudnn_batch_norm", "rad": "aten::convolution_backward", "Adam": "aten::_fused_adamw_",
        "gather": "aten::index_select", "add": "aten::add", "Mul": "aten::mul", "nccl": "record_param_comms",
    }  # fmt: skip
    return (
        name if name.startswith(("triton", "_")) else next((op for w, op in words.items() if w in name), "aten::copy_")
    )


def some(rng: Random, *texts: str, share: float = 0.6) -> Callable[[int], str]:
    """One of the texts, with the number; or no text."""
    text = rng.choice(texts) if rng.random() < share else ""
    return lambda n: text.format(n=n)


# --- pictures, sound, video -------------------------------------------------------------------------------------------


def diffusion_transformer(rng: Random) -> Program:
    """A text encoder, denoising steps with two passes each (or one of twice the batch), a decoder of pictures."""
    o = Owner(rng)
    images, steps, double, single = rng.randint(1, 3), rng.randint(6, 12), rng.randint(2, 4), rng.randint(3, 7)
    twice, text = rng.random() < 0.6, some(rng, "denoise_step_{n}", "降噪 {n}", "t={n}")
    for _ in range(images):
        with o.run("z", x=NOT_JUDGED, y=NOT_JUDGED):
            o.encoder(4)
            for n in range(steps):
                with o.run("x", text(n)):
                    for _ in range(2 if twice else 1):
                        with o.run("y"):
                            o.do("dit_mod")
                            for _ in range(double):
                                with o.layer():
                                    o.do("dit_double")
                            for _ in range(single):
                                with o.layer():
                                    o.do("dit_single")
                            o.do("dit_tail")
                    with o.t.mark(y=NOT_JUDGED):
                        o.do(*["guide"] * twice, "euler")
                o.t.host(40)
            o.do("vae", times=9)
            o.t.copy(3_000_000, "DtoH")
        o.t.host(4_000)
    about = f"{images} images of {steps} steps, {double} + {single} blocks, twice {twice}, {text(0)!r}"
    return o.program(about, "xy" if images == 1 else "xyz", "lk")


def voice(rng: Random) -> Program:
    """Requests of an assistant that speaks: speech to text, an answer token by token, text to speech."""
    o = Owner(rng)
    requests, said = rng.randint(3, 5), rng.choice(("", "pedido {n}", "stages", "both"))
    depth = rng.randint(3, 5)

    def tokens(count: int, layers: int, size: float) -> None:
        for n in range(count):
            with o.run("y"):
                o.decoder(layers, size, body=size * (4 if n == 0 else 1), head=size)
            o.pause(25)

    for n in range(requests):
        with o.run("x", "" if said in ("", "stages") else f"pedido {n}"):
            with o.run("z", "transcrever" if said in ("stages", "both") else ""):
                with o.run("y"):
                    o.t.copy(960_000)
                    o.do("mel")
                    for _ in range(4):
                        with o.layer():
                            o.do("enc")
                tokens(rng.randint(4, 7), 2, 0.5)
            with o.run("z", "responder" if said in ("stages", "both") else ""):
                tokens(rng.randint(5, 11), depth, 1.0)
            with o.run("z", "falar" if said in ("stages", "both") else ""), o.run("y"):
                o.do("vocoder", times=18)
                o.t.copy(480_000, "DtoH")
        o.t.host(rng.uniform(2_000, 9_000))
    return o.program(f"{requests} requests, {said!r}", "xyz", "lk")


def frames_with_memory(rng: Random) -> Program:
    """Objects in a video: encoder, attention to the memory (not in the first frame), masks, new memory."""
    o = Owner(rng)
    frames, depth, text = rng.randint(6, 10), rng.randint(4, 8), some(rng, "フレーム{n}", "frame/{n:04d}", "propagate")
    for n in range(frames):
        with o.run("x", text(n)):
            o.t.copy(6_000_000, pageable=False)
            o.do("conv", times=2)
            for _ in range(depth):
                with o.layer():
                    o.do("enc")
            for _ in range(min(n, 4)):
                o.do([B["enc"][1]], "enc_head")
            o.do("conv", times=3)
            o.do("boxes")
            o.t.copy(1_000_000, "DtoH")
            o.do("vae", times=2)
        o.t.host(rng.uniform(200, 1_500))
    return o.program(f"{frames} frames, {depth} blocks, {text(0)!r}", "x", "l")


def detector_with_host(rng: Random) -> Program:
    """A detector of two stages: boxes are sorted out on the processor between them, masks pasted there at the end."""
    o = Owner(rng)
    images, text = rng.randint(6, 11), some(rng, "imagen {n}", "infer", "img_{n}.jpg", share=0.5)
    for n in range(images):
        with o.run("x", text(n)):
            o.t.copy(1_500_000)
            o.do("conv", times=14)
            o.do("boxes", times=5)
            o.t.copy(120_000, "DtoH")
            o.t.host(rng.uniform(900, 3_000))
            o.t.copy(24_000)
            o.do("roi")
            if rng.random() < 0.7:
                o.do("conv", times=4)
            o.t.copy(800_000, "DtoH")
            o.t.host(rng.uniform(400, 2_500))
    return o.program(f"{images} images, {text(0)!r}")


# --- language models --------------------------------------------------------------------------------------------------


def drafts(rng: Random) -> Program:
    """A draft of two layers as often as it is sure (one to five tokens), then the target verifies."""
    o = Owner(rng)
    rounds, depth, text = rng.randint(7, 11), rng.randint(6, 10), some(rng, "round {n}", "spec_step", share=0.4)
    for n in range(rounds):
        with o.run("x", text(n)):
            for _ in range(rng.randint(1, 5)):
                with o.run("y"):
                    o.decoder(2, 0.3, head=0.5)
                o.pause(10)
            with o.run("y"):
                o.decoder(depth)
                o.do("onehot")
        o.pause(rng.uniform(30, 120))
    return o.program(f"{rounds} rounds, {depth} layers, {text(0)!r}", "xy", "lk")


def early_exit(rng: Random) -> Program:
    """After each layer of the second half the host looks whether the token is decided."""
    o = Owner(rng)
    tokens, depth, text = rng.randint(8, 14), rng.choice((8, 10, 12)), some(rng, "token {n}", "decode", share=0.4)
    for n in range(tokens):
        with o.run("x", text(n)):
            o.do("llm_first")
            for number in range(rng.randint(depth // 2, depth)):
                with o.layer("llm_norm"):
                    o.do("llm_body", "llm_norm", "llm_mlp")
                if number >= depth // 2:
                    o.do([B["loss"][0]])
                    o.t.item()
            o.last_norm("llm_norm")
            o.do("llm_head")
            o.t.item()
        o.t.host(90)
    return o.program(f"{tokens} tokens of up to {depth} layers, {text(0)!r}", "x", "lk")


def mixture_of_depths(rng: Random) -> Program:
    """Every second block works on the tokens that a router chose."""
    o = Owner(rng)
    passes, depth, text = rng.randint(4, 7), rng.choice((6, 8, 10)), some(rng, "fwd", "批次{n}", share=0.5)
    for n in range(passes):
        with o.run("x", text(n)):
            o.do("llm_first")
            for _ in range(depth // 2):
                with o.t.mark(g=o.m.group()):
                    with o.layer():
                        o.do("llm_norm", "llm_body", "llm_norm", "llm_mlp")
                    with o.layer():
                        o.do("route", "llm_norm", "llm_body", "llm_norm", "llm_mlp", "unroute", size=0.5)
            o.do("llm_norm", "llm_head")
        o.pause(150)
    return o.program(f"{passes} passes of {depth} blocks, {text(0)!r}", "x", "lg")


def search_and_rerank(rng: Random) -> Program:
    """A query: an embedding, a search in an index on the GPU, batches of documents through a larger model."""
    o = Owner(rng)
    queries, said = rng.randint(4, 7), rng.choice(("", "query {n}", "models"))
    small, large = rng.randint(3, 4), rng.randint(6, 9)
    for n in range(queries):
        with o.run("x", f"query {n}" if said.startswith("query") else ""):
            with o.run("yz", "embedder.encode" if said == "models" else ""):
                o.t.copy(2_048)
                o.encoder(small, 0.3)
                o.do("enc_head")
            with o.t.mark(y=NOT_JUDGED), o.run("z", "index.search" if said == "models" else "", y=NOT_JUDGED):
                o.do("topk")
                o.t.copy(4_096, "DtoH")
            o.t.host(400)
            with o.run("z", "reranker.predict" if said == "models" else ""):
                for _ in range(rng.randint(2, 4)):
                    with o.run("y"):
                        o.t.copy(65_536)
                        o.encoder(large)
                        o.do("enc_head")
                    o.t.host(60)
                o.t.item()
        o.t.host(rng.uniform(1_000, 5_000))
    return o.program(f"{queries} queries, {small} and {large} layers, {said!r}", "xyz", "lk")


def graphs_and_eager(rng: Random) -> Program:
    """Steps of a batch that was captured are replayed, others run eagerly."""
    o = Owner(rng, operators=0)
    steps, depth, opaque = rng.randint(9, 14), rng.randint(4, 8), not o.is_kineto and rng.random() < 0.4
    text = some(rng, "engine.step", "bs={n}", share=0.5)
    for n in range(steps):
        eager = n in (0, 5) or rng.random() < 0.15
        with o.run("x", text(rng.randint(1, 8))):
            o.t.copy(2_048, pageable=False)
            if eager:
                o.decoder(depth, 3)
            else:
                nodes, marks = [*B["llm_first"]], [{}]
                before = NONE
                for _ in range(depth):
                    group, body = o.m.group(), B["llm_body"] + B["llm_norm"] + B["llm_mlp"]
                    nodes += B["llm_norm"] + body
                    marks += [{"l": group, "k": before}, *[{"l": group, "k": group}] * len(body)]
                    before = group
                nodes += B["llm_norm"] + B["llm_head"]
                marks += [{"k": before}, {}, {}]
                o.t.graph(nodes, opaque=opaque, node_base=3 << 32, marks=marks)
            o.t.copy(64, "DtoH")
        o.t.host(rng.uniform(100, 300))
    return o.program(f"{steps} steps, {depth} layers, opaque {opaque}", "x", "" if opaque else "lk")


def aot_server(rng: Random) -> Program:
    """A compiled library in a C++ server: requests of a few sizes from a pool of streams, no range."""
    o = Owner(rng, kineto=0)
    requests, depth = rng.randint(7, 12), rng.randint(4, 9)
    for n in range(requests):
        size, o.stream = rng.choice((0.5, 1.0, 4.0)), 13 + n % 3
        with o.run("x"):
            o.t.copy(16_384, stream=o.stream)
            o.do([("triton_poi_fused_embedding_0", 3.0)], size=size)
            for _ in range(depth):
                with o.layer():
                    o.do("aoti", size=size)
            o.do([B["aoti"][0]], [B["llm_head"][0]], size=size)
            o.t.copy(32_768, "DtoH", stream=o.stream)
        o.t.host(rng.lognormvariate(6.5, 1))
    return o.program(f"{requests} requests, {depth} layers", "x", "l")


# --- training ---------------------------------------------------------------------------------------------------------


def forward(o: Owner, depth: int, text: Callable[[int], str] = lambda n: "", extra: tuple[str, ...] = ()) -> None:
    o.do("llm_first")
    for n in range(depth):
        with o.layer("tr_norm", text(n)):
            o.do("tr", *extra)
    o.last_norm("tr_norm")
    o.do([B["llm_head"][0]], "loss")


def backward(o: Owner, depth: int, again: bool = False, extra: tuple[str, ...] = (), hook: Any = None) -> None:
    with o.gradients():
        o.do("loss_bw", B["tr_bw"][:2])
        for n in range(depth):
            if again:
                o.do("tr_norm", "tr", *extra)
            o.do("tr_bw", *extra)
            if hook:
                hook(n)


def answers_and_updates(rng: Random) -> Program:
    """Reinforcement learning of a language model: answers are written, scored by two models, then learned from."""
    o = Owner(rng)
    steps, depth, said = rng.randint(2, 4), rng.randint(3, 4), rng.choice(("", "step", "phases"))
    phase = (lambda text: text) if said == "phases" else (lambda text: "")
    for n in range(steps):
        with o.run("x", f"training step {n}" if said == "step" else ""):
            with o.run("z", phase("generate_sequences")):
                for token in range(rng.randint(6, 12)):
                    with o.run("y"):
                        o.decoder(depth, body=3 if token == 0 else 1)
                    o.pause(20)
            for text in ("compute_ref_log_prob", "compute_values"):
                with o.run("yz", phase(text)):
                    forward(o, depth)
            with o.t.mark(y=NOT_JUDGED):
                o.do("enc_head", times=3)
            with o.run("z", phase("update_policy")):
                for _ in range(2):
                    with o.run("y"):
                        forward(o, depth)
                        backward(o, depth)
                        o.do("clip")
                        o.do("adam", times=3)
                    o.pause(50)
        o.t.host(3_000)
    return o.program(f"{steps} steps, {depth} layers, {said!r}", "xyz", "lk")


def adapters_with_checkpoints(rng: Random) -> Program:
    """Adapters are trained; blocks keep nothing, so that backward runs them again; some batches an update."""
    o = Owner(rng, kineto=0.6)
    updates, batches, depth = rng.randint(3, 5), rng.choice((1, 1, 2, 4)), rng.randint(3, 5)
    text, modules = some(rng, "micro {n}", "обучение {n}", share=0.4), o.is_kineto and rng.random() < 0.4
    labels = "xy" if batches == 1 else "y"
    for n in range(updates):
        with o.run("x") if batches > 1 else nullcontext():
            for i in range(batches):
                with o.run(labels, text(n * batches + i)):
                    o.t.copy(32_768)
                    o.do("llm_first")
                    for number in range(depth):
                        module = {"kind": "python_function", "Python module id": number}
                        name = f"nn.Module: LlamaDecoderLayer_{number}" if modules else ""
                        with o.layer("tr_norm", name, **(module if modules else {})):
                            o.do("tr", "lora", "lora")
                    o.last_norm("tr_norm")
                    o.do([B["llm_head"][0]], "loss")
                    backward(o, depth, again=True, extra=("lora", "lora"))
                    if i == batches - 1:
                        with o.t.mark(**({"y": NOT_JUDGED} if batches > 1 else {})):
                            o.do("clip", "adam")
                o.pause(60, read=i == batches - 1)
    return o.program(f"{updates} updates of {batches} batches, {depth} layers", "xy", "lk")


def two_optimisers(rng: Random) -> Program:
    """StyleGAN's loop: generator, discriminator; now and then a penalty on gradients; an average of the weights."""
    o = Owner(rng)
    turns, every, said = rng.randint(6, 9), rng.choice((1, 4)), rng.random() < 0.4
    say = (lambda text: text) if said else (lambda text: "")
    for n in range(turns):
        with o.run("x"):
            with o.run("y"):
                o.t.copy(4_000_000, pageable=False)
                with o.say(say("Gmain_forward")):
                    o.do("conv", "lrelu", times=6)
                    o.do("conv", times=5)
                with o.say(say("Gmain_backward")), o.gradients():
                    o.do("conv_bw", times=11)
                with o.say(say("Gmain_step")):
                    o.do("adam", times=2)
            with o.run("y"):
                for part in ("Dgen", "Dreal"):
                    with o.say(say(f"{part}_forward")):
                        o.do("conv", "lrelu", times=6 if part == "Dgen" else 0)
                        o.do("conv", times=5)
                    with o.say(say(f"{part}_backward")), o.gradients():
                        o.do("conv_bw", times=5)
                with o.say(say("Dmain_step")):
                    o.do("adam")
            with o.t.mark(y=NOT_JUDGED):
                if n % 4 == 3:
                    with o.run("", say("Dr1_backward")), o.gradients():
                        o.do("conv_bw", "conv", times=4)
                if n % every == every - 1:
                    with o.say(say("Gema")):
                        o.do("ema", times=4)
        o.pause(200, read=n % 2 == 0)
    return o.program(f"{turns} turns, average every {every}, said {said}", "xy")


def words_of_french(rng: Random) -> Program:
    """Forward, backward and update have a range in French; evaluations and averages now and then."""
    o = Owner(rng)
    steps, depth, every = rng.randint(7, 10), rng.randint(3, 4), rng.choice((3, 4))
    for n in range(steps):
        with o.run("x"):
            o.t.copy(65_536)
            with o.say("passe avant"):
                forward(o, depth)
            with o.say("rétropropagation"):
                backward(o, depth)
            with o.say("mise à jour"):
                o.do("clip")
                o.do("adam", times=2)
        if n % 2:
            with o.t.mark(x=NOT_JUDGED):
                o.do("ema", times=3)
        o.pause(80)
        if n % every == every - 1:
            for _ in range(2):
                with o.run("x", "évaluation"):
                    o.t.copy(65_536)
                    forward(o, depth)
                o.pause(40)
    return o.program(f"{steps} steps, evaluation every {every}", "x", "lk")


def gathers_ahead(rng: Random) -> Program:
    """Parameters in parts: gathers run a layer ahead on a stream of their own, gradients leave on another."""
    o = Owner(rng)
    steps, depth = rng.randint(4, 6), rng.randint(4, 6)
    text, said = some(rng, "ProfilerStep#{n}", "train_step", share=0.5), rng.random() < 0.5
    say = (lambda text: text) if said else (lambda text: "")

    def gather(after: int = 0) -> None:
        with o.say(say("FSDP::all_gather")), o.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
            o.do("copy_in", stream=21)
            o.do("gather_ag", stream=22, after=max(o.m.free[21], after))

    for n in range(steps):
        with o.run("x", text(n + 4)):
            o.t.copy(16_384)
            gather()
            o.do("llm_first")
            for number in range(depth):
                ready = o.m.free[22]
                if number < depth - 1:
                    with o.say(say("FSDP::pre_forward")):
                        gather()
                with o.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                    o.do("split_out", after=ready)
                with o.layer("tr_norm"):
                    o.do("tr")
            o.last_norm("tr_norm")
            o.do([B["llm_head"][0]], "loss")

            def leave(_: int) -> None:
                with o.say(say("FSDP::post_backward_reduce")):
                    o.do("copy_in", stream=23, after=o.m.free[7])
                    o.do("reduce_rs", stream=24, after=o.m.free[23])
                gather(o.m.free[7])

            backward(o, depth, hook=leave)
            o.m.free[7] = max(o.m.free[7], o.m.free[24])
            o.do("clip")
            o.do("adam", times=2)
        o.pause(60, read=n % 2 == 0)
    return o.program(f"{steps} steps, {depth} layers, said {said}, {text(0)!r}", "x", "lk")


def relations(rng: Random) -> Program:
    """Mini-batches of a graph with several kinds of edges: a kind that a batch lacks launches nothing."""
    o = Owner(rng)
    steps, kinds, text = rng.randint(7, 11), rng.randint(4, 7), some(rng, "minibatch {n}", "ciclo", share=0.4)
    for n in range(steps):
        o.t.host(rng.uniform(500, 4_000))
        present = [rng.random() < 0.75 for _ in range(kinds)]
        with o.run("x", text(n)):
            for _ in range(kinds):
                o.t.copy(rng.randint(10_000, 900_000), pageable=False)
            for _ in range(2):
                with o.layer():
                    for here in present:
                        o.do("rel", times=int(here), size=rng.uniform(0.3, 3))
                    o.do("enc_head")
            o.do("loss")
            with o.gradients():
                o.do("loss_bw")
                for _ in range(2):
                    for here in present:
                        o.do(B["rel"][:2] + B["mlp_bw"][1:3], times=int(here), size=rng.uniform(0.3, 3))
            o.do("adam", times=2)
            o.t.item()
    return o.program(f"{steps} steps, {kinds} kinds of edges, {text(0)!r}", "x", "l")


def compiled_with_breaks(rng: Random) -> Program:
    """torch.compile breaks twice in each block: regions, with eager operators between."""
    o = Owner(rng, kineto=1, operators=1)
    passes, depth, text = rng.randint(5, 8), rng.randint(3, 5), some(rng, "predict", "batch {n}", share=0.4)
    parts = (B["aoti"][:3], B["aoti"][5:])

    def region(number: int, kernels: Kernels) -> None:
        with o.say(f"Torch-Compiled Region: {number}/0", "cpu_op"), o.say(f"## Call CompiledFxGraph fq{number}xk ##"):
            o.do(kernels)

    for n in range(passes):
        with o.run("x", text(n)):
            o.t.copy(8_192)
            region(0, [("triton_poi_fused_embedding_0", 3.0)])
            for _ in range(depth):
                with o.layer():
                    region(1, parts[0])
                    o.do(B["aoti"][3:5])
                    region(2, parts[1])
            region(3, [B["aoti"][0], B["llm_head"][0]])
        o.pause(100)
    return o.program(f"{passes} passes of {depth} blocks, {text(0)!r}", "x", "l")


def tuning_before(rng: Random) -> Program:
    """Every product is timed with many configurations before the first step; the steps are the smaller part."""
    o = Owner(rng)
    steps, depth, text = rng.randint(5, 8), rng.randint(4, 6), some(rng, "step {n}", share=0.3)
    with o.t.mark(x=NOT_JUDGED):
        for name, us in [B["aoti"][i] for i in (1, 4, 6, 8)]:
            for config in range(rng.randint(5, 9)):
                factor, tile = rng.uniform(1, 3), rng.choice(("64x32", "128x64", "256x64"))
                o.t.host(rng.uniform(500, 4_000))
                for _ in range(12):
                    o.do("flush", [(f"triton_tem_fused_mm_{config}_{tile}", us * factor)])
                o.t.sync()
            o.do("flush", [(name, us)], times=12)
            o.t.sync()
    for n in range(steps):
        with o.run("x", text(n)):
            o.t.copy(8_192)
            o.do([("triton_poi_fused_embedding_0", 3.0)])
            for _ in range(depth):
                with o.layer():
                    o.do("aoti")
            o.do([B["aoti"][0], B["llm_head"][0]])
        o.pause(200)
    return o.program(f"{steps} steps of {depth} layers, {text(0)!r}", "x", "l")


def prefetcher(rng: Random) -> Program:
    """The next batch is copied and normalised on a side stream before this one is computed."""
    o = Owner(rng)
    steps, text = rng.randint(6, 10), some(rng, "iter{n}", "train", share=0.5)

    def fetch() -> None:
        with o.t.mark(x=NOT_JUDGED):
            o.t.copy(9_000_000, pageable=False, stream=18)
            o.do("euler", stream=18)

    fetch()
    for n in range(steps):
        with o.run("x", text(n)):
            ready = o.m.free[18]
            fetch()
            o.do([B["conv"][0]], after=ready)
            o.do("conv", times=12)
            o.do("enc_head", "loss")
            with o.gradients():
                o.do("loss_bw")
                o.do("conv_bw", times=13)
            o.do("adam", times=2)
        o.pause(50, read=n % 3 == 0)
    return o.program(f"{steps} steps, {text(0)!r}")


def begun_in_the_middle(rng: Random) -> Program:
    """A window of a training whose ranges go three deep; the ranges that were open when it began are missing."""
    o = Owner(rng, kineto=0)
    steps, depth = rng.randint(6, 9), rng.randint(3, 5)
    outer = rng.choice(("шаг", "étape {n}", "iteration", "{n}"))
    for n in range(steps):
        with o.run("x", outer.format(n=n)):
            o.t.copy(32_768)
            with o.say("вперёд"):
                forward(o, depth, lambda n: f"блок.{n}")
            with o.say("назад"):
                backward(o, depth)
            with o.say("оптимизатор"):
                o.do("adam", times=3)
        o.pause(60, read=n % 2 == 0)
    program = o.program(f"{steps} steps of {depth} blocks, {outer!r}", "x", "l")
    cut(program, rng.uniform(0.02, 0.12), rng.uniform(0.87, 0.98))
    return program


def three_deep(rng: Random) -> Program:
    """Inference whose modules have ranges, three deep, in a language that is not English."""
    o = Owner(rng, operators=0.3)
    passes, depth = rng.randint(5, 9), rng.randint(4, 7)
    words = rng.choice((
        ("модель", "кодировщик", "слой_{n}", "внимание", "прямая сеть"),
        ("모델", "인코더", "레이어 {n}", "어텐션", "피드포워드"),
        ("modello", "codificatore", "strato[{n}]", "attenzione", "rete"),
    ))  # fmt: skip
    for _ in range(passes):
        with o.run("x", words[0]):
            o.t.copy(8_192)
            o.do("enc_first")
            with o.say(words[1]):
                for n in range(depth):
                    with o.layer("", words[2].format(n=n)):
                        with o.say(words[3]):
                            o.do(B["enc"][:5])
                        with o.say(words[4]):
                            o.do(B["enc"][5:])
            o.do("enc_head")
            o.t.copy(4_096, "DtoH")
        o.t.host(rng.uniform(50, 600))
    return o.program(f"{passes} passes of {depth} layers, {words[0]!r}", "x", "l")


def small_network(rng: Random) -> Program:
    """Hundreds of steps of a network of two or three products."""
    o = Owner(rng)
    steps, depth, text = rng.randint(60, 150), rng.choice((2, 3)), some(rng, "fit step", "{n}", share=0.3)
    read = rng.choice((1, 10))
    for n in range(steps):
        with o.run("x", text(n)):
            o.do("mlp", times=depth)
            o.do("loss")
            with o.gradients():
                o.do("loss_bw")
                o.do("mlp_bw", times=depth)
            o.do("adam")
        o.pause(30, read=n % read == 0)
    return o.program(f"{steps} steps of {depth} products, {text(0)!r}")


def world_model(rng: Random) -> Program:
    """Observed states by a recurrent cell, imagined ones after them, then three optimisers; nothing is marked."""
    o = Owner(rng)
    updates, length, horizon = rng.randint(4, 6), rng.randint(10, 16), rng.randint(6, 10)
    text = some(rng, "train", "update/{n}", share=0.3)
    for n in range(updates):
        with o.run("x", text(n)):
            o.t.copy(2_000_000)
            o.do("conv", times=4)
            o.do("gru", "onehot", times=length)
            o.do("conv", times=4)
            o.do("loss")
            with o.gradients():
                o.do("loss_bw")
                o.do("conv_bw", times=4)
                o.do("gru_bw", times=length)
                o.do("conv_bw", times=4)
            o.do("clip", "adam")
            o.do("gru", "mlp", "mlp", "onehot", times=horizon)
            o.do("enc_head")
            for _ in range(2):
                with o.gradients():
                    o.do("mlp_bw", times=8)
                o.do("clip", "adam")
            o.do("ema")
        o.pause(400)
    return o.program(f"{updates} updates of {length} + {horizon} states, {text(0)!r}")


def adaptive_solver(rng: Random) -> Program:
    """A differential equation is solved for each batch with as many evaluations of a network as it needs."""
    o = Owner(rng)
    steps, text = rng.randint(6, 9), rng.choice(("integrate batch", "lote {n}"))
    for n in range(steps):
        with o.run("x", text.format(n=n)):
            o.t.copy(65_536)
            for _ in range(rng.randint(3, 7)):
                for _ in range(6):
                    o.do("mlp", times=3)
                    o.do("euler")
                o.do(B["enc_head"][:2])
                o.t.item()
            o.do("loss")
            with o.gradients():
                o.do("loss_bw")
                o.do("mlp_bw", times=3 * rng.randint(18, 42))
            o.do("adam")
        o.pause(100)
    return o.program(f"{steps} batches, {text!r}")


# --- nothing that repeats ---------------------------------------------------------------------------------------------


def only_loaded(rng: Random) -> Program:
    """Weights are read, converted and checked; the program ended there."""
    o = Owner(rng)
    names = [one for block in B.values() for one in block]
    for _ in range(rng.randint(30, 60)):
        o.t.copy(int(rng.lognormvariate(13, 2)), pageable=rng.random() < 0.5)
        if rng.random() < 0.5:
            o.do([rng.choice(names)], size=rng.lognormvariate(0, 1))
        if rng.random() < 0.2:
            o.t.host(rng.lognormvariate(6, 1.5))
    return o.program("weights", "", is_noise=True)


def tried_by_hand(rng: Random) -> Program:
    """Someone tries operators, one cell after another, some of them a few times in a row."""
    o = Owner(rng)
    names = [one for block in B.values() for one in block]
    said = rng.random() < 0.4
    for _ in range(rng.randint(12, 20)):
        with o.say(f"cell {rng.randint(1, 400)}" if said else ""):
            kernels = rng.sample(names, rng.randint(1, 7))
            for _ in range(rng.choice((1, 1, 1, 2))):
                o.do(kernels, size=rng.lognormvariate(0, 1))
        o.t.item()
        o.t.host(rng.lognormvariate(9, 1.5))
    return o.program(f"cells, named {said}", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        diffusion_transformer, voice, frames_with_memory, detector_with_host, drafts, early_exit, mixture_of_depths,
        search_and_rerank, graphs_and_eager, aot_server, answers_and_updates, adapters_with_checkpoints, two_optimisers,
        words_of_french, gathers_ahead, relations, compiled_with_breaks, tuning_before, prefetcher, begun_in_the_middle,
        three_deep, small_network, world_model, adaptive_solver, only_loaded, tried_by_hand,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn."""
    return family_of(FAMILIES, "owner", seed)[0]
