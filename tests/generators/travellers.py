"""Programs as they are met on the way, by a ninth author: nothing here was written with the package in view.

Labels: ``x`` an execution; ``y``, ``z`` other answers that an owner would accept; ``l`` a layer; ``k`` another reading
of the layers (the norm that a layer begins with counts for the one before). What prepares, checks or moves data between
executions is in none; what may count for either is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from generators.desk import damaged, family_of
from generators.machine import NONE, NOT_JUDGED, US, Machine, Program, Thread, kernels_of, numbered

Kernels = list[tuple[str, float]]  # name, µs
FREE = {"x": NOT_JUDGED, "y": NOT_JUDGED, "z": NOT_JUDGED}  # of which nobody can say the execution

B = kernels_of("traveller_kernels.txt")


class Trip:
    """One process with its main thread. ``says``: which ranges it has.

    none; step (a range a turn); parts (phases of a turn, too); layers (modules as NVTX); kineto (operators and steps);
    frames (operators, steps and module frames); ops (NVTX of autograd).
    """

    def __init__(self, rng: Random, *says: str, m: Machine | None = None) -> None:
        self.rng = rng
        self.says = rng.choice(says or ("none", "none", "step", "parts", "layers", "kineto", "frames", "ops"))
        self.m = m or Machine(
            Random(rng.random()), pid=rng.randint(900, 90_000), jitter=rng.choice((0.02, 0.05, 0.1)),
            launch_us=rng.choice((2.5, 4.0, 6.0)),
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, 1_000_000 + rng.randint(0, 40_000_000))
        self.speed, self.code = rng.choice((0.3, 1.0, 2.5)), rng.choice((1.0, 4.0, 9.0))
        self.stream = rng.choice((7, 7, 7, 20))
        self.sequence = 0
        self.seen: set[str] = set()  # kernels whose code is loaded
        self.loads = rng.choice((0, 0, 60, 400))  # µs to load the code of a kernel at its first launch
        self.watch = rng.random() < 0.15  # something small is launched at odd times

    @property
    def kineto(self) -> bool:
        return self.says in ("kineto", "frames")

    def do(self, *blocks: str | Kernels, times: int = 1, size: float = 1.0, op: str = "", **more: Any) -> None:
        kernels = [one for block in blocks for one in (B[block] if isinstance(block, str) else block)]
        for name, us in kernels * times:
            self.t.host(self.code)
            if self.watch and self.rng.random() < 0.004:
                with self.t.mark(x=NOT_JUDGED, y=NOT_JUDGED, z=NOT_JUDGED, l=NOT_JUDGED, k=NOT_JUDGED):
                    self.t.launch(B["tiny"][0][0], 2, stream=self.stream)
            with self.operator(name, op):
                pause = 0 if name in self.seen else self.loads
                self.seen.add(name)
                self.t.launch(name, us * self.speed * size, pause=pause, **({"stream": self.stream} | more))

    @contextmanager
    def operator(self, kernel: str, op: str = "") -> Iterator[None]:
        if self.says not in ("kineto", "frames", "ops"):
            yield
            return
        self.sequence += 1
        outer, inner = op or operators(kernel)
        if self.says == "ops":
            number = self.sequence
            with self.t.range(f"{outer}, seq = {number}, op_id = {number * 2}"):
                yield
            return
        with self.t.range(outer, "cpu_op"), self.t.range(inner, "cpu_op") if inner else nullcontext():
            yield

    @contextmanager
    def turn(
        self, text: str = "", labels: str = "x", read: bool = False, host: float = 0, **fixed: int
    ) -> Iterator[None]:
        """An execution; its text where steps have one. ``read``: its last value is read; ``host``: µs behind it."""
        is_said = self.says in ("step", "parts", "layers", "kineto", "frames") and text
        with self.t.range(text) if is_said else nullcontext():
            with self.t.mark(**{one: self.m.group() for one in labels}, **fixed):
                yield
            if read:
                with self.t.mark(**FREE):
                    self.t.item(self.stream)
        self.t.host(host)

    @contextmanager
    def part(self, text: str) -> Iterator[None]:
        """A phase of a turn."""
        with self.t.range(text) if self.says in ("parts", "layers") else nullcontext():
            yield

    @contextmanager
    def module(self, text: str, number: int = 0, labels: str = "lk") -> Iterator[None]:
        """A module that is a layer (``labels`` empty: it is none)."""
        manager: Any = nullcontext()
        if self.says == "layers":
            manager = self.t.range(text)
        elif self.says == "frames":
            kind = text.split(" ")[-1]
            manager = self.t.range(
                f"nn.Module: {kind}_{number}", "python_function", **{"Python module id": number}
            )  # fmt: skip
        with manager, self.t.mark(**{one: self.m.group() for one in labels}):
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """What autograd's thread launches; the main thread waits."""
        main = self.t
        self.t = self.m.thread(23, main.now, "pt_autograd_0")
        self.t.wait_until(main.now + 25 * US)
        try:
            with self.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                yield
        finally:
            main.wait_until(self.t.now + 20 * US)
            self.t = main

    def update(self, block: str = "adamw", text: str = "Optimizer.step#AdamW.step", clip: bool = False) -> None:
        with self.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
            if clip:
                self.do("norm_clip")
            said = self.kineto or self.says in ("ops", "layers")
            with self.t.range(text) if said else nullcontext(), self.part("opt"):
                self.do(block)

    def program(self, about: str, executions: str = "x", layers: str = "", **more: Any) -> Program:
        about = f"{about}, {self.says}"
        return Program("", [self.m], list(executions), list(layers), is_kineto=self.kineto, about=about, **more)


def operators(kernel: str) -> tuple[str, str]:
    """The operators around a kernel of PyTorch, the outer one and the inner one."""
    table = (
        ("gemm", "aten::linear", "aten::addmm"),
        ("nvjet", "aten::linear", "aten::mm"),
        ("cutlass::Kernel2", "aten::matmul", "aten::mm"),
        ("flash", "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"),
        ("fmha", "aten::scaled_dot_product_attention", "aten::_efficient_attention_forward"),
        ("layer_norm", "aten::layer_norm", "aten::native_layer_norm"),
        ("norm", "aten::batch_norm", "aten::native_batch_norm"),
        ("conv", "aten::conv2d", "aten::cudnn_convolution"),
        ("fprop", "aten::conv2d", "aten::cudnn_convolution"),
        ("SoftMax", "aten::log_softmax", "aten::_log_softmax"),
        ("softmax", "aten::softmax", "aten::_softmax"),
        ("nll", "aten::cross_entropy_loss", "aten::nll_loss_forward"),
        ("Gelu", "aten::gelu", ""),
        ("silu", "aten::silu", ""),
        ("indexSelect", "aten::embedding", "aten::index_select"),
        ("multi_tensor", "aten::_foreach_add_", ""),
        ("nccl", "c10d::allreduce_", "record_param_comms"),
        ("reduce_kernel", "aten::argmax", ""),
        ("vllm", "_C::op", ""),
    )
    return next(((outer, inner) for word, outer, inner in table if word in kernel), ("aten::add", ""))


def worded(rng: Random, *texts: str) -> Callable[[int], str]:
    """One way to call a turn by its number."""
    text = rng.choice(texts)
    return lambda n: text.format(n=n, m=n + 1, t=20 * (n + 1))


def vit(o: Trip, depth: int, width: float = 1.0, name: str = "blocks.{n} Block", labels: str = "lk") -> None:
    """Layers of a transformer, each with its own norms."""
    for n in range(depth):
        with o.module(name.format(n=n), n, labels):
            o.do("ln", "vit", "vit_mlp", size=width)


def vit_backward(o: Trip, depth: int, width: float = 1.0) -> None:
    o.do("vit_bw", times=depth, size=width)


def decoder(
    o: Trip, depth: int, *, size: float = 1.0, moe: int = 0, local: int = 0, first_dense: int = 0, head: bool = True
) -> None:
    """A pass of a language model.

    ``moe``: layers from ``first_dense`` on have experts; ``local``: of so many layers only the last sees everything.
    """
    o.do("tok")
    before = NONE
    for n in range(depth):
        group = o.m.group()
        with o.module(f"model.layers.{n} DecoderLayer", n, ""):
            with o.t.mark(l=group, k=before):
                o.do("rms", size=size)
            with o.t.mark(l=group, k=group):
                o.do("attn_local" if local and n % local != local - 1 else "attn", size=size)
                o.do("rms", size=size)
                o.do("experts" if moe and n >= first_dense else "ffn", size=size)
        before = group
    with o.t.mark(l=NOT_JUDGED, k=before):
        o.do("rms")
    with o.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
        if head:
            o.do("logits")


# --- pictures -----------------------------------------------------------------------------------------------------


def sampler_with_guidance(rng: Random) -> Program:
    """Pictures one after another: two text passes, steps of two U-Net calls, the decoder of pictures at the end."""
    o = Trip(rng)
    pictures, steps, res = rng.randint(2, 4), rng.randint(6, 14), rng.randint(2, 3)
    text, step = worded(rng, "image {n}", "generate", "prompt_{n}"), worded(rng, "denoise step {n}", "step", "t={n}")

    def unet() -> None:
        with o.module("UNet2DConditionModel", 1, ""), o.t.mark(z=o.m.group()):
            for _ in range(res):
                o.do("res", "cross", "down")
            o.do("res", "cross", "res")
            for _ in range(res):
                o.do("res", "cross", "upsample")

    for n in range(pictures):
        with o.turn(text(n), "x", host=3_000):
            with o.t.mark(y=NOT_JUDGED, z=NOT_JUDGED), o.part("text_encoder"):
                for _ in range(2):
                    vit(o, 6, 0.3, "text_model.encoder.layers.{n} CLIPEncoderLayer", "")
            for s in range(steps):
                with o.part(step(s)), o.t.mark(y=o.m.group(), z=NOT_JUDGED):
                    unet()
                    unet()
                    o.do("sched")
            with o.t.mark(y=NOT_JUDGED, z=NOT_JUDGED), o.part("vae_decode"):
                o.do("res", times=6, size=2)
                o.do("upsample", times=3, size=2)
                o.t.copy(3_000_000, "DtoH")
    return o.program(f"{pictures} pictures of {steps} steps", "xyz")


def cached_video(rng: Random) -> Program:
    """A video transformer whose blocks are skipped in some steps, because their output is kept from the step before."""
    o = Trip(rng, "none", "step", "frames", "layers")
    steps, depth = rng.randint(14, 24), rng.randint(8, 16)
    text = worded(rng, "denoising {n}/50", "dit_forward", "step {n}")
    kept = {n for n in range(3, steps - 1) if n % 3}
    for n in range(steps):
        with o.turn(text(n), host=120):
            o.do("ln", "dense")
            if n in kept:
                o.do("sched")
            else:
                vit(o, depth, 2.0, "transformer_blocks.{n} WanTransformerBlock")
            o.do("ln", "dense", "sched")
    return o.program(f"{steps} steps, {len(kept)} without blocks, {depth} layers", "x", "l")


def detector_of_proposals(rng: Random) -> Program:
    """A ViT, proposals of several scales, and a head that runs for chunks of as many boxes as there are."""
    o = Trip(rng)
    images, depth = rng.randint(6, 10), rng.choice((8, 12))
    text = worded(rng, "image {n}", "inference", "frame:{n}")
    for n in range(images):
        o.t.copy(4_000_000, pageable=rng.random() < 0.5)
        with o.turn(text(n), host=900):
            o.do("dense")
            vit(o, depth)
            with o.part("rpn"):
                for _ in range(4):
                    o.do("rpn")
                o.do("nms", times=rng.randint(1, 5))
                o.t.item()
            with o.part("roi_heads"):
                o.do("boxhead", times=rng.randint(1, 6))
                o.do("nms", times=rng.randint(0, 12))
            o.t.item()
    return o.program(f"{images} images, {depth} layers", "x", "l")


def flow_by_iterations(rng: Random) -> Program:
    """Optical flow: two images through an encoder, then as many updates of the flow."""
    o = Trip(rng, "none", "step", "frames", "parts", "ops")
    pairs, updates = rng.randint(5, 8), rng.choice((8, 12, 20))
    text = worded(rng, "pair {n}", "forward", "video frame {n}")
    for n in range(pairs):
        o.t.copy(8_000_000)
        with o.turn(text(n), read=True, host=1_500):
            for _ in range(2):
                o.do("res", times=5, size=0.5)
            o.do("dense")
            for _ in range(updates):
                with o.t.mark(l=o.m.group()), o.part("update"):
                    o.do("corr")
            o.do("upsample")
    return o.program(f"{pairs} pairs, {updates} updates", "x", "l")


# --- language -----------------------------------------------------------------------------------------------------


def draft_and_verify(rng: Random) -> Program:
    """Speculative decoding: a small model k times, the large one once, tokens are accepted or not."""
    o = Trip(rng)
    rounds, k, depth, small = rng.randint(8, 14), rng.randint(2, 5), rng.randint(8, 20), rng.choice((1, 2, 4))
    text = worded(rng, "spec_decode round {n}", "generate_step", "iteration {n}")
    for n in range(rounds):
        with o.turn(text(n)):
            for _ in range(k):
                with o.part("draft"), o.t.mark(y=o.m.group()):
                    decoder(o, small, size=0.25)
                    o.do("argmax")
            with o.part("verify"), o.t.mark(y=o.m.group()):
                decoder(o, depth)
                o.do("reject")
                with o.t.mark(**FREE):
                    o.t.item(o.stream)
        o.t.host(rng.choice((60, 300)))
    return o.program(f"{rounds} rounds of {k} drafts, {small} and {depth} layers", "xy", "lk")


def serving_steps(rng: Random) -> Program:
    """An engine that takes prompts and tokens into one batch; names as engines write them, or none."""
    o = Trip(rng, "none", "step", "kineto", "frames", "ops")
    steps, depth = rng.randint(12, 24), rng.randint(6, 24)
    moe, local, dense = rng.choice(((0, 0, 0), (1, 0, 1), (1, 0, 3), (0, 4, 0), (0, 6, 0)))
    for n in range(steps):
        prompt = rng.random() < 0.25 or n == 0
        c, g = (rng.randint(64, 900) if prompt else 0), rng.randint(1, 16)
        text = f"execute_context_{int(prompt)}({c})_generation_{g}({g})"
        o.t.host(rng.choice((80, 400)))
        for _ in range(2):
            o.t.copy(2_048, pageable=False, stream=o.stream)
        with o.turn(text):
            decoder(o, depth, size=1 + c / 200, moe=moe, local=local, first_dense=dense)
            o.do("sample")
        o.t.copy(64, "DtoH", pageable=False, stream=o.stream)
        o.t.sync(o.stream)
    return o.program(f"{steps} steps of {depth} layers, experts {moe}, local {local}", "x", "lk")


def beams(rng: Random) -> Program:
    """Translation: an encoder, then tokens with the cache of each layer put in the order of the beams."""
    o = Trip(rng, "none", "none", "step", "parts")
    sentences, enc, dec = rng.randint(3, 6), rng.choice((6, 12)), rng.choice((2, 6))
    text = worded(rng, "translate {n}", "sentence", "batch {n}")
    for n in range(sentences):
        o.t.copy(4_096)
        with o.turn(text(n), host=600):
            with o.part("encode"), o.t.mark(y=o.m.group()):
                o.do("tok")
                for _ in range(enc):
                    with o.t.mark(l=o.m.group()):
                        o.do("seq_enc")
            for _ in range(rng.randint(9, 26)):
                with o.part("decode_step"), o.t.mark(y=o.m.group()):
                    o.do("tok")
                    for _ in range(dec):
                        with o.t.mark(l=o.m.group()):
                            o.do("seq_dec")
                    o.do("logits", "beam")
                    with o.t.mark(l=NOT_JUDGED):
                        o.do("reorder", times=2 * dec)
                o.t.item()
    return o.program(f"{sentences} sentences, {enc} and {dec} layers", "xy", "l")


def hybrid_decode(rng: Random) -> Program:
    """Tokens of a hybrid model: state-space layers, here and there attention, an MLP or experts behind each."""
    o = Trip(rng, "none", "step", "layers", "frames")
    tokens, depth, every = rng.randint(8, 14), rng.choice((12, 16, 24)), rng.choice((4, 8))
    text = worded(rng, "decode {n}", "token {n}", "forward")
    for n in range(tokens):
        with o.turn(text(n), read=True, host=150):
            o.do("tok")
            for d in range(depth):
                with o.module(f"backbone.layers.{d} HybridBlock", d):
                    o.do("ln")
                    if d % every == every // 2:
                        o.do("attn")
                    else:
                        o.do("ssm")
                    o.do("rms", "experts" if d % 2 else "ffn")
            with o.t.mark(l=NOT_JUDGED):
                o.do("rms")
            o.do("logits", "argmax")
    return o.program(f"{tokens} tokens, {depth} layers, attention every {every}", "x", "lk")


def offloaded(rng: Random) -> Program:
    """The weights of each layer come from the host while the layer before computes."""
    o = Trip(rng, "none", "step", "layers")
    passes, depth = rng.randint(4, 7), rng.randint(8, 16)
    text = worded(rng, "forward {n}", "generate token", "step-{n}")
    for n in range(passes):
        with o.turn(text(n), read=True, host=200):
            o.do("tok")
            before = NONE
            for d in range(depth):
                o.t.copy(6_000_000, pageable=False, stream=31)
                group = o.m.group()
                with o.module(f"layers.{d} Layer", d, ""):
                    with o.t.mark(l=group, k=before):
                        o.do("rms", after=o.m.free[31])
                    with o.t.mark(l=group, k=group):
                        o.do("attn", "rms", "ffn")
                before = group
            with o.t.mark(l=NOT_JUDGED, k=before):
                o.do("rms")
            with o.t.mark(k=NOT_JUDGED):
                o.do("logits", "argmax")
    return o.program(f"{passes} passes of {depth} layers", "x", "lk")


# --- training -----------------------------------------------------------------------------------------------------

STEPS = ("iteration {n}", "train_step", "step_{n}", "Epoch 0 Iter {n}/400", "ProfilerStep#{n}", "global_step={t}")


def preferences(rng: Random) -> Program:
    """Reinforcement from preferences: tokens are rolled out, scored by two models, then the policy is updated."""
    o = Trip(rng, "none", "step", "parts", "parts", "kineto")
    rounds, tokens, depth, micro = rng.randint(3, 5), rng.randint(6, 12), rng.choice((4, 8)), rng.randint(2, 4)
    text = worded(rng, "ppo iteration {n}", "rlhf_step", "rollout_and_update {n}")
    for n in range(rounds):
        with o.turn(text(n), "x", read=True, host=5_000):
            with o.part("generate"):
                for _ in range(tokens):
                    with o.t.mark(y=o.m.group()):
                        decoder(o, depth, size=0.5)
                        o.do("sample")
                    o.t.host(40)
            for model in ("ref_logprobs", "reward"):
                with o.part(model), o.t.mark(y=o.m.group()):
                    decoder(o, depth, size=3, head=model != "reward")
            with o.part("update"), o.t.mark(y=o.m.group()):
                for _ in range(micro):
                    vit(o, depth, 2.0, "layers.{n} PolicyLayer")
                    o.do("xent")
                    with o.backward():
                        o.do("xent_bw")
                        vit_backward(o, depth, 2.0)
                o.update(clip=True)
    return o.program(f"{rounds} rounds of {tokens} tokens, {micro} micro-batches, {depth} layers", "xy")


def adversaries(rng: Random) -> Program:
    """A discriminator step (on real and made pictures) and a generator step, with an optimiser each."""
    o = Trip(rng)
    steps, depth, twice = rng.randint(5, 9), rng.randint(3, 6), rng.choice((1, 1, 2))
    text = worded(rng, *STEPS)
    for n in range(steps):
        o.t.copy(2_000_000)
        with o.turn(text(n), host=300):
            for _ in range(twice):
                with o.part("train_D"), o.t.mark(y=o.m.group()):
                    o.do("conv_t", times=depth)
                    for _ in range(2):
                        o.do("conv_t", times=depth, size=0.7)
                        o.do("bce")
                    with o.backward():
                        for _ in range(2):
                            o.do("bce_bw")
                            o.do("conv_t_bw", times=depth, size=0.7)
                    o.update(text="Optimizer.step#Adam.step")
            with o.part("train_G"), o.t.mark(y=o.m.group()):
                o.do("zero")
                o.do("conv_t", times=2 * depth)
                o.do("bce")
                with o.backward():
                    o.do("bce_bw")
                    o.do("conv_t_bw", times=2 * depth)
                o.update(text="Optimizer.step#Adam.step")
            with o.t.mark(**FREE):
                o.t.item()
    return o.program(f"{steps} steps, discriminator {twice} times", "xy")


def accumulated(rng: Random) -> Program:
    """Micro-batches, of which the last one sums gradients over ranks, clips and updates."""
    o = Trip(rng)
    steps, micro, depth = rng.randint(4, 7), rng.randint(2, 6), rng.choice((4, 6, 12))
    text, small = worded(rng, *STEPS), worded(rng, "micro_batch {n}", "fwd_bwd", "mb{n}")
    for n in range(steps):
        with o.turn(text(n), read=True, host=400):
            for mb in range(micro):
                with o.part(small(mb)), o.t.mark(y=o.m.group()):
                    o.t.copy(600_000, pageable=False)
                    o.do("tok")
                    vit(o, depth)
                    o.do("xent")
                    with o.backward():
                        o.do("xent_bw")
                        for _ in range(depth):
                            o.do("vit_bw")
                            if mb == micro - 1:
                                o.do("allreduce", stream=28)
                    if mb == micro - 1:
                        o.update(clip=True)
    return o.program(f"{steps} steps of {micro} micro-batches, {depth} layers", "xy", "l")


def checked_training(rng: Random) -> Program:
    """Training with an evaluation of a few batches every k steps, another one at the end."""
    o = Trip(rng)
    steps, every, depth, batches = rng.randint(8, 13), rng.randint(3, 5), rng.choice((3, 6)), rng.randint(2, 5)
    text, check = worded(rng, *STEPS), worded(rng, "validation batch {n}", "eval_step", "evaluate")
    for n in range(steps):
        with o.turn(text(n), "xy", host=200):
            o.t.copy(900_000)
            o.do("tok")
            vit(o, depth)
            o.do("xent")
            with o.backward():
                o.do("xent_bw")
                vit_backward(o, depth)
            o.update()
        if n % every == every - 1 or n == steps - 1:
            whole = o.m.group()
            for b in range(batches):
                with o.turn(check(b), "x", read=True, host=100, y=whole):
                    o.t.copy(900_000)
                    o.do("tok")
                    vit(o, depth)
                    o.do("xent")
            o.t.host(1_000)
    return o.program(f"{steps} steps, {batches} batches checked every {every}, {depth} layers", "xy", "l")


def one_forward_one_backward(rng: Random) -> Program:
    """Two ranks of a pipeline in one file; the first warms up with one more micro-batch in flight."""
    seed, says = rng.random(), rng.choice(("none", "step", "parts"))
    steps, micro, depth = rng.randint(4, 6), rng.randint(3, 6), rng.choice((2, 4))
    text = worded(rng, *STEPS)
    ranks = []
    for rank in range(2):
        m = Machine(Random(f"{seed} {rank}"), pid=5_000 + 700 * rank, device=rank, jitter=0.03)
        o = Trip(Random(f"{seed}"), says, m=m)
        o.t.wait_until(2_000_000)
        ahead = 1 - rank

        def forward(o: Trip = o, rank: int = rank) -> None:
            with o.part("forward"):
                o.do("p2p" if rank else "tok", stream=18 if rank else o.stream)
                vit(o, depth)
                if rank:
                    o.do("xent")
                else:
                    o.do("p2p", stream=18)

        def backward(o: Trip = o, rank: int = rank) -> None:
            with o.part("backward"):
                if not rank:
                    o.do("p2p", stream=18)
                with o.backward():
                    if rank:
                        o.do("xent_bw")
                    vit_backward(o, depth)
                if rank:
                    o.do("p2p", stream=18)

        for n in range(steps):
            with o.turn(text(n), read=rank == 1, host=500):
                for _ in range(ahead):
                    forward()
                for _ in range(micro - ahead):
                    forward()
                    backward()
                for _ in range(ahead):
                    backward()
                o.update(clip=True)
        ranks.append(m)
    return Program("", ranks, ["x"], ["l"], about=f"{steps} steps of {micro} micro-batches, {depth} layers, {says}")


def graph_after_eager(rng: Random) -> Program:
    """A few eager steps on a side stream, then every step is one replay of the graph captured from it."""
    o = Trip(rng, "none", "step", "kineto")
    warm, steps, depth = rng.randint(2, 4), rng.randint(6, 12), rng.choice((3, 6))
    text = worded(rng, "train {n}", "iteration {n}", "step")
    nodes: Kernels = [*B["tok"]]
    marks: list[dict[str, int]] = [{}]
    body = [*B["ln"], *B["vit"], *B["vit_mlp"]]
    nodes += body * depth + B["xent"] + B["xent_bw"] + B["vit_bw"] * depth + B["adamw"]
    warmups = set()
    for n in range(warm):
        with o.turn(text(n), host=200):
            warmups.add(o.t.m.labels["x"])
            o.t.copy(800_000)
            o.do("tok", stream=13)
            for _ in range(depth):
                with o.t.mark(l=o.m.group()):
                    o.do("ln", "vit", "vit_mlp", stream=13)
            o.do("xent", stream=13)
            with o.backward():
                o.do("xent_bw", stream=13)
                o.do("vit_bw", times=depth, stream=13)
            o.update()
    o.t.host(60_000)
    for n in range(steps):
        with o.turn(text(warm + n), host=100):
            o.t.copy(800_000, pageable=False)
            marks = [{} for _ in nodes]
            for d in range(depth):
                group = o.m.group()
                for place in range(1 + d * len(body), 1 + (d + 1) * len(body)):
                    marks[place] = {"l": group}
            sized = [(name, us * o.speed) for name, us in nodes]
            o.t.graph(sized, stream=o.stream, node_base=5 << 32, marks=marks)
            with o.t.mark(**FREE):
                o.t.item(o.stream)
    return o.program(f"{warm} eager, {steps} replays, {depth} layers", "x", "l", warmups=warmups)


def tables_and_stream(rng: Random) -> Program:
    """A recommender; another thread prepares the batches on a stream of its own."""
    o = Trip(rng, "none", "step", "parts", "kineto")
    steps, tables, mlp = rng.randint(8, 16), rng.randint(4, 10), rng.randint(3, 6)
    text = worded(rng, *STEPS)
    loader = o.m.thread(51, o.t.now, "prefetch")
    for n in range(steps):
        with loader.mark(x=NOT_JUDGED):
            loader.wait_until(o.t.now - rng.randint(0, 400) * US)
            for _ in range(rng.randint(2, 5)):
                loader.copy(1_500_000, pageable=False, stream=40)
                for name, us in B["prep"]:
                    loader.host(3)
                    loader.launch(name, us, stream=40)
        with o.turn(text(n), read=n % 4 == 0, host=150):
            with o.part("embedding"):
                o.do("tables", times=tables)
            with o.part("mlp"):
                o.do("rec_mlp", times=2 * mlp)
            o.do("bce")
            with o.backward():
                o.do("bce_bw")
                o.do("rec_mlp_bw", times=2 * mlp)
                o.do("tables_bw", times=tables)
            o.update("sgd", "Optimizer.step#SGD.step")
    return o.program(f"{steps} steps, {tables} tables", "x")


def scan_of_layers(rng: Random) -> Program:
    """A JAX training step: the layers are one body of a loop, forward and backward."""
    o = Trip(rng, "none", "step")
    steps, depth = rng.randint(4, 8), rng.choice((4, 8, 12, 24))
    a, b, c = (rng.randint(1, 90) for _ in range(3))
    module = f"XlaModule:#hlo_module=jit_train_step,program_id={rng.randint(3, 90)}#"
    warm = rng.random() < 0.4
    for n in range(steps):
        o.t.copy(64_000, pageable=False)
        with o.turn(module, host=30_000 if warm and n == 0 else 300):
            o.do("tok")
            for _ in range(depth):
                with o.t.mark(l=o.m.group()):
                    o.do(numbered(B["xla_fw"], a=a, b=b, c=c))
                    o.t.copy(4, "DtoD", stream=o.stream)
            o.do("xla_head")
            for _ in range(depth):
                o.do(numbered(B["xla_bw"], a=a + 3, b=b + 1, c=c + 7))
                o.t.copy(4, "DtoD", stream=o.stream)
            for k in range(6):
                o.do(numbered(B["xla_opt"], n=200 + k))
        if rng.random() < 0.3:
            o.t.copy(8, "DtoH")
            o.t.sync()
    return o.program(f"{steps} steps of {depth} layers", "x", "l")


def recomputed(rng: Random) -> Program:
    """Fine-tuning with checkpoints: each layer runs again before its gradients."""
    o = Trip(rng)
    steps, depth = rng.randint(4, 7), rng.choice((4, 8, 16))
    text = worded(rng, *STEPS)
    for n in range(steps):
        with o.turn(text(n), read=True, host=250):
            o.do("tok")
            vit(o, depth)
            o.do("xent")
            with o.backward():
                o.do("xent_bw")
                for _ in range(depth):
                    o.do("ln", "vit", "vit_mlp", "vit_bw")
            o.update(clip=True)
    return o.program(f"{steps} steps of {depth} layers", "x", "l")


def sharded(rng: Random) -> Program:
    """Two ranks of FSDP2 in one file; each layer's weights are gathered a layer ahead, on a stream of their own."""
    seed, says = rng.random(), rng.choice(("none", "step", "layers"))
    steps, depth = rng.randint(3, 5), rng.choice((4, 8))
    text = worded(rng, *STEPS)
    ranks = []
    for rank in range(2):
        m = Machine(Random(f"{seed} {rank}"), pid=30_000 + 90 * rank, device=rank, jitter=0.04)
        o = Trip(Random(f"{seed}"), says, m=m)
        for n in range(steps):
            with o.turn(text(n), read=True, host=400):
                with o.t.mark(l=NOT_JUDGED):
                    o.do("ag", stream=24)
                o.do("tok")
                for d in range(depth):
                    with o.t.mark(l=NOT_JUDGED):
                        o.do("ag", stream=24)
                    with o.module(f"FSDP::forward (layers.{d})", d):
                        o.do("ln", "vit", "vit_mlp")
                o.do("xent")
                with o.backward():
                    o.do("xent_bw")
                    for _ in range(depth):
                        o.do("ag", stream=24)
                        o.do("vit_bw")
                        o.do("rs", stream=26)
                o.update(clip=True)
        ranks.append(m)
    return Program("", ranks, ["x"], ["l"], about=f"{steps} steps of {depth} layers, {says}")


def sweep(rng: Random) -> Program:
    """The same training with other widths, one after another."""
    o = Trip(rng, "none", "none", "step", "kineto")
    text = worded(rng, *STEPS)
    trials, depth, total = rng.randint(2, 4), rng.choice((2, 4)), 0
    for trial in range(trials):
        width = (0.5, 1.0, 2.0, 4.0)[trial]
        for _ in range(rng.randint(4, 6)):
            with o.turn(text(total), read=True, host=100):
                o.t.copy(300_000)
                o.do("tok")
                vit(o, depth, width)
                o.do("xent")
                with o.backward():
                    o.do("xent_bw")
                    vit_backward(o, depth, width)
                o.update()
            total += 1
        o.t.host(80_000)
    return o.program(f"{trials} trials, {total} steps of {depth} layers", "x", "l")


def forces(rng: Random) -> Program:
    """Molecular dynamics with a learned potential: energies, gradients, now and then a new list of neighbours."""
    o = Trip(rng, "none", "none", "step", "kineto", "parts")
    steps, depth, every = rng.randint(14, 30), rng.choice((2, 3, 5)), rng.choice((5, 10))
    text = worded(rng, "md step {n}", "step", "timestep {n}")
    for n in range(steps):
        with o.turn(text(n), host=60):
            o.do(B["verlet"][:1])
            if n % every == 0:
                o.do("neighbours")
                o.t.item()
            with o.part("energy"):
                for _ in range(depth):
                    with o.t.mark(l=o.m.group()):
                        o.do("edge")
            with o.part("forces"), o.backward():
                o.do("edge_bw", times=depth)
            o.do(B["verlet"][1:])
    return o.program(f"{steps} steps, {depth} layers, neighbours every {every}", "x")


# --- engines, compiled models, servers ----------------------------------------------------------------------------


def engine_of_layers(rng: Random) -> Program:
    """A TensorRT engine whose layers have ranges, inference after inference."""
    o = Trip(rng, "step", "step", "none")
    runs, depth = rng.randint(6, 14), rng.choice((6, 12))
    ops = ("MatMul", "Add", "Attention", "LayerNorm", "fc1", "Gelu")
    said = o.says == "step" and rng.random() < 0.7
    for _ in range(runs):
        o.t.copy(150_000, pageable=False)
        with o.turn("ExecutionContext::enqueueV3", host=80):
            for d in range(depth):
                with o.t.mark(k=o.m.group()):
                    for place, one in enumerate(numbered(B["trt"], n=d * 3, h=1 + d % 2)):
                        text = f"/encoder/layer.{d}/{ops[place]}"
                        with o.t.range(text) if said else nullcontext(), o.t.mark(l=o.m.group()):
                            o.do([one])
        o.t.copy(4_000, "DtoH", pageable=False)
        o.t.sync(o.stream)
    return o.program(f"{runs} runs of {depth} layers, named {said}", "x", "lk" if said else "k")


def renumbered(rng: Random) -> Program:
    """A compiled model: each layer's fused kernels have numbers of their own."""
    o = Trip(rng, "none", "none", "step", "kineto")
    calls, depth, stride = rng.randint(5, 10), rng.choice((6, 12, 18)), rng.choice((1, 4))
    text = worded(rng, "forward {n}", "inference", "batch {n}")
    call = f"Torch-Compiled Region: {rng.randint(0, 2)}/0"
    for n in range(calls):
        with o.turn(text(n), read=True, host=120), o.t.range(call) if o.kineto else nullcontext():
            o.do("tok")
            for d in range(depth):
                with o.t.mark(l=o.m.group()):
                    for place, (name, us) in enumerate(B["ind"]):
                        o.do([(name.replace("{n}", str(d * stride * 4 + place)), us)])
            with o.t.mark(l=NOT_JUDGED):
                o.do(numbered(B["ind"], n=900)[:1])
            o.do("logits")
    return o.program(f"{calls} calls of {depth} layers, stride {stride}", "x", "l")


def two_served(rng: Random) -> Program:
    """A server: two threads, a model and a stream each, requests at random times."""
    o = Trip(rng, "none", "step", "step")
    first, second = o.t, o.m.thread(9, o.t.now, "worker-1")
    plan = [(first, 7, "vit", rng.choice((6, 8))), (second, 14, "res", rng.choice((4, 6)))]
    names = rng.choice(
        (("classify", "segment"), ("model_a.infer", "model_b.infer"), ("POST /v1/embed", "POST /v1/mask"))
    )
    clock = [first.now, second.now]
    for _ in range(rng.randint(14, 24)):
        which = clock.index(min(clock))
        o.t, o.stream, kind, depth = plan[which]
        o.t.host(rng.expovariate(1 / 900))
        with o.turn(names[which]):
            o.t.copy(500_000, pageable=False, stream=o.stream)
            if kind == "vit":
                o.do("dense")
                vit(o, depth)
            else:
                o.do("down")
                for _ in range(depth):
                    with o.t.mark(l=o.m.group()):
                        for half in (B["res"][:4], B["res"][4:]):  # the two are equal
                            with o.t.mark(k=o.m.group()):
                                o.do(half)
            o.do("argmax")
            o.t.copy(8_000, "DtoH", pageable=False, stream=o.stream)
            o.t.sync(o.stream)
        clock[which] = o.t.now
    o.t = first
    return o.program("two models", "x", "lk")


def streamed_audio(rng: Random) -> Program:
    """Chunks of sound as long as they come: a conformer, then as many symbols as were said."""
    o = Trip(rng)
    chunks, depth = rng.randint(8, 14), rng.choice((6, 12))
    text = worded(rng, "chunk {n}", "process_chunk", "audio[{t}ms]")
    for n in range(chunks):
        size = rng.choice((0.4, 0.7, 1.0, 1.6))
        o.t.copy(int(20_000 * size))
        with o.turn(text(n), host=rng.randint(300, 4_000)):
            o.do("audio")
            for d in range(depth):
                with o.module(f"encoder.layers.{d} ConformerLayer", d):
                    o.do("conformer", size=size)
            with o.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                for _ in range(rng.randint(1, 7)):
                    o.do("joint")
                    o.t.item(o.stream)
    return o.program(f"{chunks} chunks, {depth} layers", "x", "l")


def timed_kernels(rng: Random) -> Program:
    """Variants of a kernel are timed: the cache is cleared before each call."""
    o = Trip(rng, "none", "step")
    names = ["dense", "attn", "ffn", "experts"]
    shapes = rng.randint(2, 4)
    text = worded(rng, "bench", "case {n}")
    total = 0
    for _ in range(shapes):
        block = [B[rng.choice(names)][0]]
        size = rng.choice((0.5, 1, 3))
        whole = o.m.group()
        for _ in range(rng.randint(8, 14)):
            with o.turn(text(total), z=whole):
                with o.t.mark(y=NOT_JUDGED):
                    o.do("flush")
                with o.t.mark(y=o.m.group()):
                    o.do(block, size=size)
            total += 1
        o.t.sync()
        o.t.host(2_000)
    return o.program(f"{shapes} shapes, {total} calls", "xyz")


def only_once(rng: Random) -> Program:
    """One pass of a model, and nothing else but the weights that came before."""
    o = Trip(rng, "none", "step", "frames", "layers")
    depth, text = rng.choice((8, 24, 32)), rng.choice(("forward", "model_inference", "LlamaForCausalLM"))
    for _ in range(rng.randint(0, 20)):
        o.t.copy(int(rng.lognormvariate(14, 1)))
    o.t.host(20_000)
    with o.turn(text), o.module("LlamaForCausalLM", 0, ""):
        decoder(o, depth, moe=rng.randint(0, 1), first_dense=1)
    o.t.sync()
    return o.program(f"once, {depth} layers", "x" if o.says in ("step", "frames", "layers") else "", "lk")


# --- nothing that repeats -----------------------------------------------------------------------------------------


def random_kernels(rng: Random) -> Program:
    """Kernels of all kinds in no order, copies and pauses between."""
    o = Trip(rng, "none", "kineto", "ops")
    every = [one for block in B.values() for one in block]
    for _ in range(rng.randint(150, 600)):
        o.do([rng.choice(every)], size=rng.lognormvariate(0, 0.8))
        if rng.random() < 0.06:
            o.t.copy(int(rng.lognormvariate(12, 2)), rng.choice(("HtoD", "DtoH", "DtoD")))
        if rng.random() < 0.04:
            o.t.host(rng.lognormvariate(6, 1.5))
    return o.program("random kernels", "", is_noise=True)


def scripts_of_analysis(rng: Random) -> Program:
    """Someone explores data: filters, sorts and products of sizes that differ, in cells. Whether a cell with a heading
    is an execution is not judged."""
    o = Trip(rng, "none", "step")
    pool = [
        *B["prep"],
        *B["tables_bw"],
        *B["beam"],
        *B["neighbours"],
        *B["audio"],
        *B["dense"],
        *B["rec_mlp"],
        *B["norm_clip"],
    ]
    said = worded(rng, "cell {n}", "query")
    for n in range(rng.randint(8, 16)):
        with o.turn(said(n), ""):
            o.t.copy(int(rng.lognormvariate(14, 1.5)))
            for _ in range(rng.randint(2, 30)):
                o.do([rng.choice(pool)], size=rng.lognormvariate(0.5, 1))
            o.t.copy(int(rng.lognormvariate(10, 2)), "DtoH")
        o.t.host(rng.lognormvariate(9, 1))
    return o.program("an analysis", "", is_noise=o.says == "none")


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        sampler_with_guidance, cached_video, detector_of_proposals, flow_by_iterations, draft_and_verify,
        serving_steps, beams, hybrid_decode, offloaded, preferences, adversaries, accumulated, checked_training,
        one_forward_one_backward, graph_after_eager, tables_and_stream, scan_of_layers, recomputed, sharded,
        sweep, forces, engine_of_layers, renumbered, two_served, streamed_audio, timed_kernels, only_once,
        random_kernels, scripts_of_analysis,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn. Some recordings begin or end in the middle, some lost rows."""
    program, rng = family_of(FAMILIES, "traveller", seed)
    if program.family in ("only once", "graph after eager"):
        return program
    return damaged(program, rng, ((0, 0.85), (0.08, 1), (0.1, 0.9)), cuts=0.12, losses=0.22, launches=0.002)
