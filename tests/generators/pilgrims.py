"""Recordings of 2026 as their owners make them, by a tenth author: nothing here was written with the package in view.

Labels: ``x`` an execution; ``y``, ``z`` other answers that an owner would accept; ``l`` a layer of a forward pass,
``k`` another reading of the layers. What is launched backward is of no judged layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from generators.desk import damaged, family_of
from generators.machine import NOT_JUDGED, US, Machine, Program, Thread, cut, kernels_of, numbered

B = kernels_of("pilgrim_kernels.txt")
Kernels = list[tuple[str, float]]  # name, µs
ANY = {"x": NOT_JUDGED, "y": NOT_JUDGED, "z": NOT_JUDGED}
NO_LAYER = {"l": NOT_JUDGED, "k": NOT_JUDGED}

OPERATORS = (
    ("gemv", "aten::linear", "aten::addmm"), ("gemm", "aten::linear", "aten::addmm"),
    ("nvjet", "aten::linear", "aten::mm"),
    ("sdpa", "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_cudnn_attention"),
    ("flash", "aten::scaled_dot_product_attention", "aten::_flash_attention_forward"),
    ("fprop", "aten::conv2d", "aten::cudnn_convolution"), ("convolve", "aten::conv3d", "aten::cudnn_convolution"),
    ("bn_", "aten::batch_norm", "aten::cudnn_batch_norm"),
    ("batch_norm", "aten::batch_norm", "aten::native_batch_norm"),
    ("layer_norm", "aten::layer_norm", "aten::native_layer_norm"), ("nccl", "c10d::allgather_", "record_param_comms"),
    ("softmax", "aten::softmax", "aten::_softmax"), ("silu", "aten::silu", ""), ("Gelu", "aten::gelu", ""),
    ("Mul", "aten::mul", ""), ("gather_kernel", "aten::embedding", "aten::index_select"),
    ("nll", "aten::cross_entropy_loss", "aten::nll_loss_forward"), ("multi_tensor", "aten::_foreach_mul_", ""),
    ("reduce_kernel", "aten::mean", ""), ("triton", "triton_kernel", ""),
)  # fmt: skip


class Job:
    """A process. ``ops``: operators are recorded; ``frames``: modules are, too; ``said``: ranges of its owner are."""

    def __init__(
        self, rng: Random, *, kineto: bool = False, ops: bool = False, frames: bool = False, said: bool = True
    ):
        self.rng, self.kineto, self.ops, self.frames, self.said = rng, kineto, ops, frames, said
        self.m = Machine(
            Random(rng.random()), pid=rng.randint(2_000, 400_000), jitter=rng.choice((0.03, 0.06, 0.12)),
            launch_us=rng.choice((2.0, 3.5, 5.5)),
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, rng.randint(1_000_000, 900_000_000))
        self.host = rng.choice((1.0, 3.0, 7.0))  # µs between launches
        self.speed = rng.choice((0.5, 1.0, 2.0))
        self.stream = rng.choice((7, 7, 13, 24))
        self.sequence, self.backward = 0, False
        self.new: set[str] = set()
        self.load_us = rng.choice((0, 80, 300))
        self.before()

    def before(self) -> None:
        """What programs do first, some of them: weights are loaded or drawn, kernels are tuned."""
        first = self.rng.choice(("", "", "", "weights", "draws", "tuning"))
        count = self.rng.randint(30, 160) if first else 0
        for n in range(count):
            size = self.rng.lognormvariate(0, 1)
            if first == "weights":
                self.t.copy(int(2_000_000 * size), stream=self.stream)
                if n % 7 < 4:
                    self.do([(B["h_norm"][4][0], 8 * size)])
            elif first == "draws":
                self.do(
                    [
                        (
                            "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<4>(P)",
                            9 * size,
                        )
                    ]
                )
            elif n % 8 == 0:
                for name, us in self.rng.sample(B["odd"], 2):
                    self.do([(name.split("<")[0].split("(")[0] + f"_config_{n}", us)], times=self.rng.randint(2, 5))
                self.t.sync()
        if first:
            self.t.sync()
            self.t.host(20_000)

    def do(
        self, *blocks: str | Kernels, size: float = 1.0, times: int = 1, stream: int | None = None, **more: Any
    ) -> None:
        for name, us in [one for b in blocks for one in (B[b] if isinstance(b, str) else b)] * times:
            self.t.host(self.host)
            with self.operator(name):
                pause = 0 if name in self.new else self.load_us
                self.new.add(name)
                self.t.launch(name, us * size * self.speed, stream=stream or self.stream, pause=pause, **more)

    @contextmanager
    def operator(self, kernel: str) -> Iterator[None]:
        if not self.ops:
            yield
            return
        outer, inner = next(((a, b) for word, a, b in OPERATORS if word in kernel), ("aten::add", ""))
        self.sequence += 1
        texts = [outer, inner] if inner else [outer]
        if self.backward:
            name = outer.split("::")[-1].title().replace("_", "") + "Backward0"
            texts = [f"autograd::engine::evaluate_function: {name}", name, inner or outer]
        if not self.kineto:
            texts = [f"{text}, seq = {self.sequence}, op_id = {self.sequence * 3 + n}" for n, text in enumerate(texts)]
        with ExitStack() as stack:
            for text in texts:
                stack.enter_context(self.t.range(text, "cpu_op"))
            yield

    @contextmanager
    def say(self, text: str, **args: Any) -> Iterator[None]:
        """A range of the owner."""
        if not self.said:
            yield
            return
        with self.t.range(text, **args):
            yield

    @contextmanager
    def run(self, text: str = "", labels: str = "x", **fixed: int) -> Iterator[None]:
        """An execution, in a range if it has a text."""
        with ExitStack() as stack:
            if text:
                stack.enter_context(self.say(text))
            stack.enter_context(self.t.mark(**{one: self.m.group() for one in labels}, **fixed))
            yield

    @contextmanager
    def module(self, kind: str, number: int = 0, labels: str = "", file: str = "") -> Iterator[None]:
        with ExitStack() as stack:
            if self.frames:
                arguments = {"Python module id": number}
                stack.enter_context(self.t.range(f"nn.Module: {kind}_{number}", "python_function", **arguments))
                if file:
                    stack.enter_context(self.t.range(file, "python_function"))
            stack.enter_context(self.t.mark(**{one: self.m.group() for one in labels}))
            yield

    @contextmanager
    def autograd(self) -> Iterator[None]:
        main, self.backward = self.t, True
        self.t = self.m.thread(41, main.now, "pt_autograd_0")
        self.t.wait_until(main.now + 30 * US)
        try:
            with self.t.mark(**NO_LAYER):
                yield
        finally:
            main.wait_until(self.t.now + 15 * US)
            self.t, self.backward = main, False

    def read(self) -> None:
        with self.t.mark(**ANY):
            self.t.item(self.stream)

    def program(self, about: str, executions: str = "x", layers: str = "", **more: Any) -> Program:
        said = [word for word in ("kineto", "ops", "frames", "said") if getattr(self, word)]
        about = f"{about} ({' '.join(said)})"
        return Program("", [self.m], list(executions), list(layers), is_kineto=self.kineto, about=about, **more)


def llama(j: Job, depth: int, size: float = 1.0, labels: str = "l") -> None:
    """A forward pass of Hugging Face's Llama, without its head."""
    file = "transformers/models/llama/modeling_llama.py({}): forward"
    j.do("h_emb", size=size)
    for n in range(depth):
        with j.module("LlamaDecoderLayer", n, labels, file.format(298)):
            with j.module("LlamaRMSNorm", 2 * n):
                j.do("h_norm", size=size)
            with j.module("LlamaAttention", n, "", file.format(236)):
                j.do("h_attn", size=size)
            with j.module("LlamaRMSNorm", 2 * n + 1):
                j.do("h_norm", size=size)
            with j.module("LlamaMLP", n, "", file.format(155)):
                j.do("h_mlp", size=size)
    with j.t.mark(**NO_LAYER):
        j.do("h_norm", size=size)


def learn(j: Job, depth: int, labels: str = "l") -> None:
    """A batch forward, its loss, and backward."""
    llama(j, depth, labels=labels)
    with j.t.mark(**NO_LAYER):
        j.do("h_head", "loss")
    with j.autograd():
        j.do("loss_bw", "h_head")
        j.do("h_bw", times=depth)


def engine_layer(j: Job, n: int, size: float, *, groups: list[int]) -> None:
    """A layer of vLLM; its first norm adds the residual of the layer before: of either (``k``)."""
    group = j.m.group()
    with j.t.mark(l=group, k=groups[-1] if groups else group):
        j.do("v_addnorm" if n else "v_norm", size=size)
    with j.t.mark(l=group, k=group):
        j.do("v_qkv", "v_rope", "v_attn", "v_o", "v_addnorm", "v_mlp", size=size)
    groups.append(group)


def engine_pass(j: Job, depth: int, size: float) -> None:
    groups: list[int] = []
    with j.t.mark(**NO_LAYER):
        j.do("v_emb")
    for n in range(depth):
        engine_layer(j, n, size, groups=groups)
    with j.t.mark(l=NOT_JUDGED, k=groups[-1]):
        j.do("v_addnorm")
    with j.t.mark(**NO_LAYER):
        j.do("v_head")


def engine_parts(j: Job, depth: int) -> list[tuple[Kernels, dict[str, int]]]:
    """`engine_pass` as nodes of a graph."""
    parts: list[tuple[Kernels, dict[str, int]]] = [(B["v_emb"], NO_LAYER)]
    before = NOT_JUDGED
    for n in range(depth):
        group = j.m.group()
        parts.append((B["v_addnorm" if n else "v_norm"], {"l": group, "k": before if n else group}))
        body = ("v_qkv", "v_rope", "v_attn", "v_o", "v_addnorm", "v_mlp")
        parts.append(([k for b in body for k in B[b]], {"l": group, "k": group}))
        before = group
    return [*parts, (B["v_addnorm"], {"l": NOT_JUDGED, "k": before}), (B["v_head"], NO_LAYER)]


def nodes_of(*parts: tuple[Kernels, dict[str, int]]) -> tuple[Kernels, list[dict[str, int]]]:
    """Nodes of a graph and the labels of each."""
    return [k for kernels, _ in parts for k in kernels], [label for kernels, label in parts for _ in kernels]


# --- training -----------------------------------------------------------------------------------------------------


def deepspeed_zero3(rng: Random) -> Program:
    """Micro-batches under accumulation; weights are gathered by the hooks of each layer, on a stream of their own."""
    j = Job(rng, said=rng.random() < 0.8)
    steps, micro, depth = rng.randint(3, 5), rng.choice((1, 2, 4)), rng.choice((4, 6, 10))
    for _ in range(steps):
        with j.run(""):
            for n in range(micro):
                pass_group = j.m.group()
                with j.t.mark(y=pass_group):
                    j.t.copy(65_536)
                    with j.say("DeepSpeedEngine.forward"):
                        for _ in range(depth):
                            with j.t.mark(**NO_LAYER), j.say("PartitionedParameterCoordinator.fetch_sub_module"):
                                j.do("ag", stream=31)
                            with j.t.mark(l=j.m.group()):
                                j.do("h_norm", "h_attn", "h_norm", "h_mlp", after=j.m.free[31])
                            with j.say("PartitionedParameterCoordinator.release_sub_module"):
                                j.t.host(6)
                        with j.t.mark(**NO_LAYER):
                            j.do("h_norm", "h_head", "loss")
                    with j.say("DeepSpeedEngine.backward"), j.autograd():
                        j.do("loss_bw", "h_head")
                        for _ in range(depth):
                            with j.say("PartitionedParameterCoordinator.fetch_sub_module"):
                                j.do("ag", stream=31)
                            j.do("h_bw", after=j.m.free[31])
                            j.do("rs", stream=32)
                with j.say("DeepSpeedEngine.step"), j.t.mark(y=NOT_JUDGED, **NO_LAYER):
                    if n == micro - 1:
                        with j.say("DeepSpeedZeroOptimizer_Stage3.step"):
                            j.do("clip")
                            j.do("ds_adam", times=4)
                        j.read()
                    else:
                        j.t.host(8)
        j.t.host(400)
    return j.program(f"{steps} steps of {micro} micro-batches, {depth} layers", "xy", "l")


def megatron_stage(rng: Random) -> Program:
    """A middle stage of a pipeline: forward and backward of micro-batches in turn, between sends and receives."""
    j = Job(rng, said=rng.random() < 0.5)
    steps, micro, depth, ahead = rng.randint(3, 5), rng.choice((4, 6)), rng.choice((3, 4, 6)), rng.randint(1, 2)

    def forward() -> None:
        with j.t.mark(**NO_LAYER):
            j.do("a2a", stream=45)
        with j.say("forward-compute"):
            for _ in range(depth):
                with j.t.mark(l=j.m.group()), j.say("TransformerLayer.forward"):
                    j.do("te")

    def backward() -> None:
        with j.t.mark(**NO_LAYER):
            j.do("a2a", stream=46)
            with j.say("backward-compute"):
                j.do("te_bw", times=depth)

    for _ in range(steps):
        with j.run(""):
            for n in range(micro + ahead):
                if n < micro:
                    forward()
                if n >= ahead:
                    backward()
            with j.say("optimizer"), j.t.mark(**NO_LAYER):
                j.do("rs", stream=31)
                j.do("clip", "adam", "adam")
                j.do("ag", stream=31)
            j.read()
        j.t.host(900)
    return j.program(f"{steps} iterations of {micro} micro-batches, {depth} layers", "x", "l")


def titan_compiled(rng: Random) -> Program:
    """FSDP2 with each block compiled: gathers ahead, copies in and out, regions, in the profiler's steps."""
    j = Job(rng, kineto=True, ops=True, said=True)
    steps, depth = rng.randint(2, 4), rng.choice((4, 8, 12))
    first = rng.randint(3, 40)
    for s in range(steps):
        with j.run(f"ProfilerStep#{first + s}"):
            j.t.copy(32_768, pageable=False)
            with j.t.mark(**NO_LAYER):
                j.do("h_emb")
            for n in range(depth):
                with j.t.range(f"FSDP::pre_forward (layers.{n})", "cpu_op"), j.t.mark(**NO_LAYER):
                    with j.t.range(f"FSDP::all_gather (layers.{n})", "cpu_op"):
                        j.do("f_pack", stream=20)
                        j.do("ag", stream=22)
                    with j.t.range(f"FSDP::all_gather_copy_out (layers.{n})", "cpu_op"):
                        j.do("f_split", after=j.m.free[22])
                with j.t.range(f"Torch-Compiled Region: {n % 8}/0", "cpu_op"), j.t.all(
                    j.t.range("CompiledFunction", "cpu_op"), j.t.mark(l=j.m.group())
                ):  # fmt: skip
                    j.do(numbered(B["c_fw"], n=1, m=4))
                with j.t.range(f"FSDP::post_forward (layers.{n})", "cpu_op"):
                    j.t.host(5)
            with j.t.mark(**NO_LAYER):
                j.do("h_norm", "h_head", "loss")
            with j.autograd():
                j.do("loss_bw", "h_head")
                for n in range(depth):
                    with j.t.range(f"FSDP::pre_backward (layers.{depth - 1 - n})", "cpu_op"):
                        j.do("f_pack", stream=20)
                        j.do("ag", stream=22)
                        j.do("f_split", after=j.m.free[22])
                    with j.t.all(
                        j.t.range("autograd::engine::evaluate_function: CompiledFunctionBackward", "cpu_op"),
                        j.t.range("CompiledFunctionBackward", "cpu_op"),
                    ):  # fmt: skip
                        j.do(numbered(B["c_bw"], n=2, m=5))
                    with j.t.range(f"FSDP::post_backward_reduce (layers.{depth - 1 - n})", "cpu_op"):
                        j.do("f_pack", stream=21)
                        j.do("rs", stream=23)
            with j.t.range("Optimizer.step#AdamW.step"), j.t.mark(**NO_LAYER):
                j.do("clip", "adam")
            if s % 2:
                j.read()
    return j.program(f"{steps} steps, {depth} layers", "x", "l")


def trainer_with_ema(rng: Random) -> Program:
    """A model of the Trainer with averaged weights and an evaluation every few steps; the last batch is small."""
    j = Job(rng, kineto=rng.random() < 0.5)
    j.ops = j.kineto or rng.random() < 0.3
    j.frames = j.kineto and rng.random() < 0.5
    steps, depth, every, batches = rng.randint(5, 9), rng.choice((4, 6, 8)), rng.randint(2, 4), rng.randint(2, 3)
    for n in range(steps):
        j.t.copy(16_384)
        size = 0.4 if n == steps - 1 else 1.0
        with j.run():
            with j.module("LlamaForCausalLM"), j.module("LlamaModel"):
                llama(j, depth, size)
            with j.t.mark(**NO_LAYER):
                j.do("h_head", "loss", size=size)
            with j.autograd():
                j.do("loss_bw", "h_head", "h_norm", size=size)
                j.do("h_bw", times=depth, size=size)
            with j.t.mark(**NO_LAYER):
                j.do("clip")
                if j.kineto:
                    with j.t.range("Optimizer.step#AdamW.step"):
                        j.do("adam", "adam")
                else:
                    j.do("adam", "adam")
                j.do("foreach")
            j.read()
        j.t.host(300)
        if n % every == every - 1:
            whole = j.m.group()
            for _ in range(batches):
                j.t.copy(16_384)
                with j.run(labels="x", y=whole, z=NOT_JUDGED):
                    with j.module("LlamaForCausalLM"), j.module("LlamaModel"):
                        llama(j, depth)
                    with j.t.mark(**NO_LAYER):
                        j.do("h_head", "loss")
                    j.read()
                j.t.host(200)
    for row in j.m.work:  # a step is one in every reading
        for label in "yz":
            row["labels"].setdefault(label, row["labels"].get("x", -1))
    return j.program(f"{steps} steps, an evaluation of {batches} every {every}, {depth} layers", "xyz", "l")


def grpo(rng: Random) -> Program:
    """Reinforcement learning by TRL: tokens of roll-outs, probabilities under two models, an update."""
    j = Job(rng, kineto=rng.random() < 0.3, said=False)
    j.ops = j.kineto
    rounds, depth, tokens = rng.randint(2, 4), rng.choice((3, 5)), rng.randint(8, 16)
    for _ in range(rounds):
        with j.run(labels="x"):
            stage = j.m.group()
            for n in range(tokens + rng.randint(-2, 2)):
                with j.t.mark(y=j.m.group(), z=stage):
                    llama(j, depth, 0.6 if n == 0 else 0.1)
                    with j.t.mark(**NO_LAYER):
                        j.do("h_head", "v_sample", size=0.1)
                    j.read()
            for _ in range(2):
                with j.run(labels="yz"):
                    llama(j, depth)
                    with j.t.mark(**NO_LAYER):
                        j.do("h_head", "loss")
            j.t.host(700)
            with j.run(labels="yz"):
                learn(j, depth)
                with j.t.mark(**NO_LAYER):
                    j.do("clip", "adam")
                j.read()
        j.t.host(2_500)
    return j.program(f"{rounds} rounds of about {tokens} tokens, {depth} layers", "xyz", "l")


def verl(rng: Random) -> Program:
    """The same by an engine: roll-outs of graphs, stages in ranges, a few micro-batches of updates."""
    j = Job(rng, said=rng.random() < 0.75)
    rounds, depth, tokens, micro = rng.randint(2, 4), rng.choice((4, 8)), rng.randint(10, 20), rng.choice((2, 4))
    for _ in range(rounds):
        with j.run(labels="x"):
            with j.run("generate_sequences", "z"):
                with j.run(labels="y"):
                    engine_pass(j, depth, 2.5)
                    j.do("v_sample")
                for _ in range(tokens):
                    kernels, marks = nodes_of(*engine_parts(j, depth))
                    with j.run(labels="y"):
                        j.do("v_meta")
                        j.t.graph(kernels, stream=j.stream, node_base=5 << 32, marks=marks)
                        with j.t.mark(**NO_LAYER):
                            j.do("v_sample")
                        j.read()
            with j.run("compute_log_prob", "zy"):
                for _ in range(micro):
                    llama(j, depth, labels="lk")
                    with j.t.mark(**NO_LAYER):
                        j.do("h_head", "loss")
                j.read()
            with j.run("update_actor", "zy"):
                for _ in range(micro):
                    learn(j, depth, labels="lk")
                with j.t.mark(**NO_LAYER):
                    j.do("clip", "adam")
                j.read()
        j.t.host(3_000)
    return j.program(f"{rounds} rounds of {tokens + 1} tokens, {micro} micro-batches, {depth} layers", "xyz", "lk")


def torchtune_recompute(rng: Random) -> Program:
    """Fine-tuning with activation checkpoints, traced with modules; layers run again in the backward pass."""
    j = Job(rng, kineto=True, ops=True, frames=rng.random() < 0.7, said=rng.random() < 0.7)
    steps, depth, micro = rng.randint(2, 4), rng.choice((4, 6, 9)), rng.choice((1, 2))

    def layer(n: int, labels: str) -> None:
        with j.module("CheckpointWrapper", n, labels), j.module("TransformerSelfAttentionLayer", n):
            with j.module("RMSNorm", 2 * n):
                j.do("h_norm")
            with j.module("MultiHeadAttention", n):
                j.do("h_attn")
            with j.module("RMSNorm", 2 * n + 1):
                j.do("h_norm")
            with j.module("FeedForward", n):
                j.do("h_mlp")

    for s in range(steps):
        with j.run(f"ProfilerStep#{s + 5}"):
            for _ in range(micro):
                j.t.copy(16_384)
                with j.module("TransformerDecoder"):
                    j.do("h_emb")
                    for n in range(depth):
                        layer(n, "l")
                    with j.t.mark(**NO_LAYER):
                        j.do("h_norm", "h_head")
                with j.t.mark(**NO_LAYER):
                    j.do("loss")
                with j.autograd():
                    j.do("loss_bw", "h_head")
                    for n in reversed(range(depth)):
                        j.backward = False
                        layer(n, "")
                        j.backward = True
                        j.do("h_bw")
            with j.t.range("Optimizer.step#PagedAdamW8bit.step"), j.t.mark(**NO_LAYER):
                j.do("adam", times=3)
            j.read()
    return j.program(f"{steps} steps of {micro}, {depth} layers that run again", "x", "l")


def recommender(rng: Random) -> Program:
    """TorchRec's pipeline: the next batch is copied and distributed while this one is learned."""
    j = Job(rng, kineto=True, ops=rng.random() < 0.6, said=rng.random() < 0.7)
    steps, bottom, top = rng.randint(6, 12), rng.randint(3, 4), rng.randint(4, 6)
    for _ in range(steps):
        with j.run("## train_step ##"):
            with j.t.mark(**ANY):
                with j.say("## copy_batch_to_gpu ##"):
                    j.t.copy(900_000, pageable=False, stream=60)
                with j.say("## start_sparse_data_dist ##"):
                    j.do("rec_dist", stream=61)
                    j.do("a2a", stream=62)
            with j.say("## forward ##"):
                j.do("rec_emb", times=2)
                j.do("a2a", stream=62)
                j.do("rec_lin", times=bottom)
                j.do("rec_cross")
                j.do("rec_lin", times=top)
                j.do("loss")
            with j.say("## backward ##"), j.autograd():
                j.do("loss_bw")
                j.do("rec_lin_bw", times=top)
                j.do("rec_cross")
                j.do("rec_lin_bw", times=bottom)
                j.do("a2a", stream=62)
                j.do("rec_emb_bw", times=2)
                j.do("ar", stream=63)
            with j.say("## optimizer ##"):
                j.do("foreach", "foreach")
        j.t.host(rng.choice((100, 900)))
    return j.program(f"{steps} steps, {bottom} and {top} linear layers", "x")


def neighbours(rng: Random) -> Program:
    """A graph network on sampled neighbourhoods: no two batches are of one size; a pass over all at the end."""
    j = Job(rng, kineto=rng.random() < 0.4, said=False)
    j.ops = j.kineto
    steps, depth = rng.randint(8, 16), rng.choice((2, 3, 4))
    for n in range(steps):
        size = rng.uniform(0.6, 1.4) * (0.3 if n == steps - 1 else 1)
        with j.t.mark(x=NOT_JUDGED):
            for _ in range(depth):
                j.do("gnn_sample", size=size)
                j.t.item(j.stream)
        with j.run():
            j.do("h_emb", size=size)
            for _ in range(depth):
                j.do("gnn", size=size)
            j.do("loss")
            with j.autograd():
                j.do("loss_bw")
                j.do("gnn_bw", times=depth, size=size)
            j.do("foreach", "foreach", "foreach")
        j.read()
        j.t.host(500)
    return j.program(f"{steps} batches, {depth} convolutions")


def vision_window(rng: Random) -> Program:
    """A convolution network on many ranks; the profiler starts and ends in the middle of a step."""
    ops = rng.random() < 0.5
    j = Job(rng, ops=ops, said=rng.random() < 0.5)
    steps, depth = rng.randint(5, 8), rng.choice((17, 20, 49))
    for n in range(steps):
        with j.run(f"Iteration {n + 50}"):
            with j.t.mark(x=NOT_JUDGED):
                j.t.copy(30_000_000, pageable=False, stream=40)
                j.do("v_meta", stream=40)
            with j.say("fwd"):
                for _ in range(depth):
                    j.do("rn_fw")
                j.do("h_head", "loss", size=0.2)
            with j.say("bwd"), j.autograd():
                j.do("loss_bw")
                for d in range(depth):
                    j.do("rn_bw")
                    if d % 16 == 15:
                        j.do("ar", stream=33, after=j.m.free[j.stream])
            with j.say("opt"):
                j.do("sgd", "sgd", after=j.m.free[33])
        if n % 4 == 3:
            j.read()
    program = j.program(f"{steps} steps of {depth} convolutions, begun and ended within one", "x")
    cut(program, rng.uniform(0.03, 0.15), rng.uniform(0.88, 0.97))
    return program


def mixture_of_experts(rng: Random) -> Program:
    """Experts on many ranks, some of which get nothing; dense first layer; the tokens of each expert differ."""
    j = Job(rng, kineto=rng.random() < 0.6)
    j.ops, j.frames = j.kineto, j.kineto and rng.random() < 0.4
    steps, depth = rng.randint(2, 4), rng.choice((4, 6, 8))
    for s in range(steps):
        with j.run(f"ProfilerStep#{s}" if j.kineto else f"train_step {s}"):
            j.do("h_emb")
            for n in range(depth):
                with j.module("MoEDecoderLayer", n, "l"):
                    with j.module("RMSNorm", 2 * n):
                        j.do("h_norm")
                    with j.module("SelfAttention", n):
                        j.do("h_attn")
                    with j.module("RMSNorm", 2 * n + 1):
                        j.do("h_norm")
                    with j.module("MLP" if n == 0 else "MoE", n):
                        if n == 0:
                            j.do("h_mlp")
                            continue
                        j.do("moe_gate")
                        j.do("a2a", stream=34)
                        j.t.item(j.stream)
                        j.do("moe_expert", size=rng.uniform(0.5, 1.6), after=j.m.free[34])
                        if rng.random() < 0.3:
                            j.do("moe_expert", size=rng.uniform(0.1, 0.5))
                        j.do("a2a", stream=34)
                        j.do("moe_un", after=j.m.free[34])
            with j.t.mark(**NO_LAYER):
                j.do("h_norm", "h_head", "loss")
            with j.autograd():
                j.do("loss_bw", "h_head")
                for _ in range(depth):
                    j.do("a2a", stream=34)
                    j.do("moe_bw", "h_bw", after=j.m.free[34])
            with j.t.mark(**NO_LAYER):
                j.do("rs", stream=35)
                j.do("clip", "adam", "adam")
            j.read()
        j.t.host(500)
    return j.program(f"{steps} steps, {depth} layers with experts", "x", "l")


def lengths(rng: Random) -> Program:
    """BERT on batches padded to their longest: the library takes other kernels for other lengths."""
    j = Job(rng, ops=rng.random() < 0.4, said=False)
    steps, depth = rng.randint(8, 14), rng.choice((4, 6, 12))
    choices = [(64, 64, 7), (128, 64, 8), (256, 128, 9)]
    for n in range(steps):
        which = rng.randrange(3)
        a, b, c = choices[which]
        size = (0.5, 1, 1.8)[which]
        j.t.copy(8_192 * (which + 1))
        with j.run():
            j.do("h_emb")
            for _ in range(depth):
                with j.t.mark(l=j.m.group()):
                    j.do(numbered(B["bert"], a=a, b=b, c=c), size=size)
            with j.t.mark(**NO_LAYER):
                j.do("loss")
            with j.autograd():
                j.do("loss_bw")
                j.do(numbered(B["bert_bw"], a=a, b=b, c=c), times=depth, size=size)
            with j.t.mark(**NO_LAYER):
                j.do("clip", "adam")
            if n % 5 == 4:
                j.read()
        j.t.host(400)
    return j.program(f"{steps} steps of three lengths, {depth} layers", "x", "l")


def segmentation(rng: Random) -> Program:
    """A U-Net of volumes: training, then a validation by windows that slide over each volume."""
    j = Job(rng, said=rng.random() < 0.6)
    steps, volumes, levels = rng.randint(4, 7), rng.randint(2, 3), rng.randint(3, 5)

    def net() -> None:
        for _ in range(2):
            for _ in range(levels):
                j.do("u_fw", "u_fw")

    with j.say("Epoch"):
        for _ in range(steps):
            with j.run("Iteration", "xy", z=NOT_JUDGED):
                j.t.copy(9_000_000)
                with j.say("BatchForward"):
                    net()
                j.do("loss")
                with j.say("BatchBackward"), j.autograd():
                    j.do("loss_bw")
                    j.do("u_bw", times=4 * levels)
                j.do("sgd")
                j.read()
            j.t.host(600)
    with j.say("Validation"):
        for _ in range(volumes):
            with j.run("", "x"):
                j.t.copy(40_000_000)
                for _ in range(rng.choice((4, 6, 8))):
                    with j.t.mark(y=j.m.group()):
                        net()
                    with j.t.mark(y=NOT_JUDGED):
                        j.do("foreach")
                j.t.copy(4_000_000, "DtoH")
            j.t.host(2_000)
    return j.program(f"{steps} steps, {volumes} volumes by windows", "xy")


def tune_then_generate(rng: Random) -> Program:
    """Someone fine-tunes a model for some steps and looks at what it writes then."""
    j = Job(rng, kineto=rng.random() < 0.3, said=rng.random() < 0.4)
    j.ops = j.kineto
    steps, tokens, depth = rng.randint(4, 7), rng.randint(8, 20), rng.choice((4, 6))
    for n in range(steps):
        j.t.copy(16_384)
        with j.run(f"step {n}", "xy"):
            learn(j, depth)
            with j.t.mark(**NO_LAYER):
                j.do("clip", "adam")
            j.read()
        j.t.host(300)
    j.t.host(9_000)
    with j.say("generate"), j.t.mark(y=j.m.group()):
        for n in range(tokens):
            with j.run():
                llama(j, depth, 0.5 if n == 0 else 0.1)
                with j.t.mark(**NO_LAYER):
                    j.do("h_head", "v_sample", size=0.1)
                j.read()
    return j.program(f"{steps} steps, then {tokens} tokens, {depth} layers", "xy" if j.said else "x", "l")


def ladder(rng: Random) -> Program:
    """A model measured for batches of 1, 2, 4 …: two runs to warm up, some that are timed, each waited for."""
    j = Job(rng, said=rng.random() < 0.4, ops=rng.random() < 0.2)
    rungs, again, depth = rng.randint(3, 5), rng.randint(3, 8), rng.choice((4, 6, 12))
    for n in range(rungs):
        a, b, c = ((64, 64, 7), (128, 64, 8), (256, 128, 9))[min(n, 2)]
        with j.say(f"batch_size={2**n}"):
            for _ in range(again + 2):
                with j.run():
                    j.do("h_emb")
                    for _ in range(depth):
                        with j.t.mark(l=j.m.group()):
                            j.do(numbered(B["bert"], a=a, b=b, c=c), size=0.5 * 1.7**n)
                    with j.t.mark(**NO_LAYER):
                        j.do("ort_head")
                j.t.sync()
        j.t.host(2_000)
    return j.program(f"{rungs} sizes, {again + 2} times each, {depth} layers", "x", "l")


# --- engines of language models -----------------------------------------------------------------------------------


def vllm_pieces(rng: Random) -> Program:
    """Graphs of what lies between attentions, attention launched by itself; prompts and tokens in one batch."""
    j = Job(rng, kineto=rng.random() < 0.5, said=rng.random() < 0.5)
    steps, depth = rng.randint(8, 16), rng.choice((6, 10, 16))
    for _ in range(steps):
        prompt, g = rng.random() < 0.3, rng.randint(1, 32)
        c = rng.randint(20, 1_500) if prompt else 0
        j.t.host(rng.choice((150, 500)))
        for _ in range(3):
            j.t.copy(1_024, pageable=False, stream=j.stream)
        with j.run(f"execute_context_{int(prompt)}({c})_generation_{g}({g})"):
            with j.t.mark(**NO_LAYER):
                j.do("v_meta")
            before, group = NOT_JUDGED, j.m.group()
            size = 1 + c / 300
            first = B["v_emb"] + B["v_norm"] + B["v_qkv"] + B["v_rope"]
            marks = [
                {"l": group if n else NOT_JUDGED, "k": group if n > 1 else NOT_JUDGED} for n in range(len(first))
            ]  # fmt: skip
            j.t.graph([(n, u * size * j.speed) for n, u in first], stream=j.stream, node_base=9 << 32, marks=marks)
            for n in range(depth):
                with j.t.mark(l=group, k=group):
                    j.do("v_attn", size=size)
                parts = [(B["v_o"] + B["v_addnorm"] + B["v_mlp"], {"l": group, "k": group})]
                before, group = group, j.m.group()
                if n < depth - 1:
                    parts += [(B["v_addnorm"], {"l": group, "k": before})]
                    parts += [(B["v_qkv"] + B["v_rope"], {"l": group, "k": group})]
                else:
                    parts.append((B["v_addnorm"], NO_LAYER))
                kernels, marks = nodes_of(*parts)
                base = (11 + n) << 32
                j.t.graph([(a, u * size * j.speed) for a, u in kernels], stream=j.stream, node_base=base, marks=marks)
            with j.t.mark(**NO_LAYER):
                j.do("v_head", "v_sample")
        j.t.copy(256, "DtoH", pageable=False, stream=j.stream)
        j.t.sync(j.stream)
    return j.program(f"{steps} steps of {depth} layers in pieces", "x", "lk")


def vllm_whole(rng: Random) -> Program:
    """Tokens by one graph, prompts eagerly; layers of either."""
    j = Job(rng, kineto=rng.random() < 0.5, said=rng.random() < 0.6)
    steps, depth = rng.randint(10, 20), rng.choice((6, 12))
    for s in range(steps):
        j.t.host(rng.choice((100, 300)))
        prompt = s == 0 or rng.random() < 0.2
        for _ in range(2):
            j.t.copy(512, pageable=False, stream=j.stream)
        g = rng.choice((1, 2, 4, 8))
        with j.run(f"gpu_model_runner: {'prefill' if prompt else 'decode'} bs={g}"):
            with j.t.mark(**NO_LAYER):
                j.do("v_meta")
            if prompt:
                engine_pass(j, depth, rng.uniform(3, 6))
            else:
                kernels, marks = nodes_of(*engine_parts(j, depth))
                j.t.graph(kernels, stream=j.stream, node_base=(20 + g) << 32, marks=marks)
            with j.t.mark(**NO_LAYER):
                j.do("v_sample")
        j.t.copy(64, "DtoH", pageable=False, stream=j.stream)
        j.t.sync(j.stream)
    return j.program(f"{steps} steps, prompts eager, {depth} layers", "x", "lk")


def sglang_experts(rng: Random) -> Program:
    """SGLang's overlapped scheduler: graphs of tokens, the host is a step ahead; frames of files, no modules."""
    j = Job(rng, kineto=rng.random() < 0.7, said=rng.random() < 0.5)
    steps, depth = rng.randint(10, 18), rng.choice((6, 10))
    for _ in range(steps):
        g = rng.choice((8, 16))
        with ExitStack() as stack:
            if j.kineto:
                stack.enter_context(j.t.range("sglang/srt/managers/scheduler.py(2291): run_batch", "python_function"))
            stack.enter_context(j.run(f"step[DECODE bs={g}]"))
            with j.t.mark(**NO_LAYER):
                j.do("v_meta")
                j.t.copy(512, "DtoD", stream=j.stream)
            parts: list[tuple[Kernels, dict[str, int]]] = [(B["v_emb"], NO_LAYER)]
            before = NOT_JUDGED
            for n in range(depth):
                group = j.m.group()
                own = {"l": group, "k": group}
                parts.append((B["s_norm"], {"l": group, "k": before if n else group}))
                parts += [(B["s_attn"] + B["s_ar"], own), (B["s_moe"], own)]
                before = group
            parts += [(B["s_norm"], {"l": NOT_JUDGED, "k": before}), (B["v_head"], NO_LAYER)]
            kernels, marks = nodes_of(*parts)
            j.t.graph(kernels, stream=j.stream, node_base=(30 + g) << 32, marks=marks)
            with j.t.mark(**NO_LAYER):
                j.do("v_sample")
                j.t.copy(64, "DtoH", pageable=False, stream=j.stream)
        j.t.wait_until(min(j.m.busy_until(), j.t.now + 4_000 * US))
        j.t.host(200)
    return j.program(f"{steps} steps of {depth} layers with experts", "x", "lk")


def tensorrt_llm(rng: Random) -> Program:
    """The executor of TensorRT-LLM with its ranges, 4-bit weights; graphs where there are only tokens."""
    j = Job(rng, said=rng.random() < 0.7)
    steps, depth = rng.randint(8, 16), rng.choice((6, 8, 12))
    body = ("t_norm", "t_attn", "t_norm", "t_mlp")
    for s in range(steps):
        c = rng.randint(1, 2) if s == 0 or rng.random() < 0.25 else 0
        g = rng.randint(1, 9)
        with j.run(f"[Executor] _forward_step {s + 100}: {c} ctx reqs, 0 ctx tokens, {g} gen reqs"):
            with j.say("_prepare_tp_inputs"), j.t.mark(**NO_LAYER):
                for _ in range(3):
                    j.t.copy(2_048, pageable=False, stream=j.stream)
            if c:
                with j.t.mark(**NO_LAYER):
                    j.do("v_emb")
                for _ in range(depth):
                    with j.t.mark(l=j.m.group()):
                        j.do(*body, size=4 * c)
                with j.t.mark(**NO_LAYER):
                    j.do("t_norm", "v_head")
            else:
                parts: list[tuple[Kernels, dict[str, int]]] = [(B["v_emb"], NO_LAYER)]
                parts += [([k for b in body for k in B[b]], {"l": j.m.group()}) for _ in range(depth)]
                parts.append((B["t_norm"] + B["v_head"], NO_LAYER))
                kernels, marks = nodes_of(*parts)
                j.t.graph(kernels, stream=j.stream, node_base=7 << 32, marks=marks)
        with j.say(f"_sample_async {g + c}"), j.t.mark(x=NOT_JUDGED):
            j.do("v_sample")
            j.t.copy(64, "DtoH", pageable=False, stream=j.stream)
        with j.say("_update_requests"):
            j.t.sync(j.stream)
            j.t.host(150)
    return j.program(f"{steps} steps of {depth} layers", "x", "l")


def llama_cpp(rng: Random) -> Program:
    """llama-bench or a server: a warm-up, prompts in pieces, tokens; the first of them eager, then graphs."""
    j = Job(rng, said=False)
    j.host = 1.0
    requests, depth = rng.randint(2, 4), rng.choice((6, 10, 16))
    graphs = rng.random() < 0.5

    def token(eager: bool, y: int) -> None:
        with j.run(labels="x", y=y):
            j.t.copy(64, pageable=False, stream=j.stream)
            if eager:
                with j.t.mark(**NO_LAYER):
                    j.do("l_emb")
                for _ in range(depth):
                    with j.t.mark(l=j.m.group()):
                        j.do("l_attn", "l_ffn")
                with j.t.mark(**NO_LAYER):
                    j.do("l_head")
            else:
                parts: list[tuple[Kernels, dict[str, int]]] = [(B["l_emb"], NO_LAYER)]
                parts += [(B["l_attn"] + B["l_ffn"], {"l": j.m.group()}) for _ in range(depth)]
                parts.append((B["l_head"], NO_LAYER))
                kernels, marks = nodes_of(*parts)
                j.t.graph(kernels, stream=j.stream, node_base=3 << 32, marks=marks)
            j.t.copy(500_000, "DtoH", pageable=False, stream=j.stream)
        j.t.sync(j.stream)
        j.t.host(60)

    token(True, NOT_JUDGED)
    j.t.host(4_000)
    for _ in range(requests):
        y = j.m.group()
        for _ in range(rng.randint(1, 2)):
            with j.run(labels="x", y=y):
                j.t.copy(2_048, pageable=False, stream=j.stream)
                with j.t.mark(**NO_LAYER):
                    j.do("l_emb")
                for _ in range(depth):
                    with j.t.mark(l=j.m.group()):
                        j.do("lp_attn", "lp_ffn")
                with j.t.mark(**NO_LAYER):
                    j.do("l_head")
                j.t.copy(500_000, "DtoH", pageable=False, stream=j.stream)
            j.t.sync(j.stream)
        for n in range(rng.randint(7, 14)):
            token(not graphs or n < 2, y)
        j.t.host(5_000)
    return j.program(f"{requests} requests, {depth} layers, {'graphs' if graphs else 'eager'}", "xy", "l")


def eagle(rng: Random) -> Program:
    """A small draft of one layer several times, a tree of guesses, one check by the large model: three graphs."""
    j = Job(rng, kineto=rng.random() < 0.4, said=rng.random() < 0.4)
    rounds, depth, k = rng.randint(8, 16), rng.choice((6, 10)), rng.randint(2, 4)
    for _ in range(rounds):
        with j.run(f"step[TARGET_VERIFY bs={rng.choice((4, 8))}]", "x"):
            draft = [one for _ in range(k) for one in B["s_draft"] + B["v_head"] + B["v_sample"][:1]]
            with j.t.mark(y=j.m.group(), **NO_LAYER):
                j.do("v_meta")
                j.t.graph(draft, stream=j.stream, node_base=1 << 32)
                j.do("s_tree")
            parts: list[tuple[Kernels, dict[str, int]]] = [(B["v_emb"], NO_LAYER)]
            before = NOT_JUDGED
            for n in range(depth):
                group = j.m.group()
                own = {"l": group, "k": group}
                parts.append((B["s_norm"], {"l": group, "k": before if n else group}))
                parts += [(B["s_attn"] + B["s_norm"] + B["s_moe"], own)]
                before = group
            parts += [(B["s_norm"], {"l": NOT_JUDGED, "k": before}), (B["v_head"], NO_LAYER)]
            kernels, marks = nodes_of(*parts)
            with j.t.mark(y=j.m.group()):
                j.t.graph(kernels, stream=j.stream, node_base=2 << 32, marks=marks)
                with j.t.mark(**NO_LAYER):
                    j.do(B["s_tree"][1:], B["v_sample"])
            j.read()
        j.t.host(250)
    return j.program(f"{rounds} rounds of {k} drafts, {depth} layers", "xy", "lk")


def prefill_worker(rng: Random) -> Program:
    """A server of prompts alone: each in chunks, the cache of each layer is sent to another machine meanwhile."""
    j = Job(rng, said=rng.random() < 0.3)
    requests, depth = rng.randint(4, 8), rng.choice((5, 8, 12))
    passes = 0
    for n in range(requests):
        y = j.m.group()
        chunks = rng.randint(1, 3)
        for c in range(chunks):
            passes += 1
            size = rng.uniform(1, 3) if c == chunks - 1 else 4
            with j.run(f"prefill req={n} chunk={c}", "x", y=y):
                j.t.copy(8_192, pageable=False, stream=j.stream)
                groups: list[int] = []
                with j.t.mark(**NO_LAYER):
                    j.do("v_emb")
                for d in range(depth):
                    engine_layer(j, d, size, groups=groups)
                    j.t.copy(int(400_000 * size), "DtoD", stream=50)
                with j.t.mark(l=NOT_JUDGED, k=groups[-1]):
                    j.do("v_addnorm")
                with j.t.mark(**NO_LAYER):
                    if c == chunks - 1:
                        j.do("v_head", "v_sample")
            if c == chunks - 1:
                j.read()
            j.t.host(120)
        j.t.host(rng.choice((300, 4_000)))
    return j.program(f"{requests} requests in {passes} chunks, {depth} layers", "xy", "lk")


# --- pictures, sound ----------------------------------------------------------------------------------------------


def flux(rng: Random) -> Program:
    """Pictures by a transformer of two kinds of blocks, after two text encoders, before a decoder of pictures."""
    j = Job(rng, kineto=rng.random() < 0.5, said=rng.random() < 0.4)
    j.ops, j.frames = j.kineto, j.kineto and rng.random() < 0.6
    pictures, steps, double, single = rng.randint(1, 3), rng.randint(4, 9), rng.randint(3, 6), rng.randint(6, 12)
    if pictures == 1:
        steps += 6
    for _ in range(pictures):
        with j.run("FluxPipeline.__call__", "x"):
            with j.t.mark(y=NOT_JUDGED, **NO_LAYER), j.say("encode_prompt"):
                with j.module("CLIPTextModel"):
                    j.do("clip_txt", times=6, size=0.3)
                with j.module("T5EncoderModel"):
                    j.do("t5", times=8, size=0.5)
            for s in range(steps):
                with j.say(f"denoise step {s}"), j.t.mark(y=j.m.group()):
                    with j.module("FluxTransformer2DModel"):
                        for n in range(double):
                            with j.module("FluxTransformerBlock", n, "l"):
                                j.do("flux_double")
                        for n in range(single):
                            with j.module("FluxSingleTransformerBlock", n, "l"):
                                j.do("flux_single")
                        with j.t.mark(**NO_LAYER):
                            j.do(B["flux_out"][:2])
                    with j.t.mark(**NO_LAYER):
                        j.do(B["flux_out"][2:])
            with j.t.mark(y=NOT_JUDGED, **NO_LAYER), j.say("vae_decode"), j.module("AutoencoderKL"):
                j.do("vae", times=9)
                j.t.copy(3_000_000, "DtoH")
        j.t.host(8_000)
    return j.program(f"{pictures} pictures of {steps} steps, {double} and {single} blocks", "xy", "l")


def whisper(rng: Random) -> Program:
    """Transcription of pieces of sound: a spectrum, an encoder, tokens one by one until the text ends."""
    j = Job(rng, kineto=rng.random() < 0.4, said=rng.random() < 0.4)
    j.ops, j.frames = j.kineto, j.kineto and rng.random() < 0.5
    pieces, enc, dec = rng.randint(2, 4), rng.choice((4, 6, 12)), rng.choice((2, 4))
    for n in range(pieces):
        with j.run(f"segment {n * 30}s", "x"):
            with j.t.mark(y=NOT_JUDGED, **NO_LAYER):
                j.t.copy(1_900_000)
                j.do("w_mel")
            with j.say("encoder"), j.module("WhisperEncoder"), j.t.mark(y=j.m.group()):
                with j.t.mark(**NO_LAYER):
                    j.do("w_conv", "w_conv")
                for d in range(enc):
                    with j.module("WhisperEncoderLayer", d, "l"):
                        j.do("w_enc")
            for _ in range(rng.randint(10, 30)):
                with j.say("decode"), j.module("WhisperDecoder"), j.t.mark(y=j.m.group()):
                    with j.t.mark(**NO_LAYER):
                        j.do("w_tok")
                    for d in range(dec):
                        with j.module("WhisperDecoderLayer", d, "l"):
                            j.do("w_dec")
                    with j.t.mark(**NO_LAYER):
                        j.do("w_head")
                j.read()
        j.t.host(1_500)
    return j.program(f"{pieces} pieces, {enc} and {dec} layers", "xy", "l")


def video_detector(rng: Random) -> Program:
    """Frames from a hardware decoder, resized, an engine, boxes; stages on streams of their own."""
    j = Job(rng, said=rng.random() < 0.6)
    frames, depth = rng.randint(12, 24), rng.choice((20, 30))
    for f in range(frames):
        with j.run(f"frame {f}", "x"):
            with j.say("preprocess"), j.t.mark(y=NOT_JUDGED):
                j.do("det_pre", stream=21)
            with (
                j.say("ExecutionContext::enqueue", domain="TensorRT") if j.said else ExitStack(),
                j.t.mark(y=j.m.group()),
            ):
                for n in range(depth):
                    j.do(numbered(B["det"], a=3 + n % 3, b=n), after=j.m.free[21])
            with j.say("postprocess"), j.t.mark(y=NOT_JUDGED):
                j.do("det_post", size=rng.uniform(0.5, 2))
                j.t.copy(8_000, "DtoH", pageable=False, stream=j.stream)
        j.t.sync(j.stream)
        j.t.host(rng.choice((200, 1_200)))
    return j.program(f"{frames} frames, {depth} layers of an engine", "xy")


# --- other compilers, libraries -----------------------------------------------------------------------------------


def jax_training(rng: Random) -> Program:
    """Steps of one compiled module, a loop over layers in it; another module evaluates now and then."""
    j = Job(rng, said=rng.random() < 0.5)
    j.host = 0.6
    steps, depth, every = rng.randint(6, 10), rng.choice((4, 8, 12)), rng.choice((0, 3))
    for n in range(steps):
        j.t.copy(65_536, pageable=False)
        with j.run(f"XlaModule:#hlo_module=jit_train_step,program_id={14}#"):
            for _ in range(depth):
                with j.t.mark(l=j.m.group()):
                    j.do(numbered(B["x_layer"], a=12, b=31))
            with j.t.mark(**NO_LAYER):
                j.do("x_head")
                j.do(numbered(B["x_back"], a=44, b=52), times=depth)
                j.do("ar", stream=18)
                for n_leaf in range(12):
                    j.do(numbered(B["x_opt"], a=60 + n_leaf))
        if every and n % every == every - 1:
            with j.run("XlaModule:#hlo_module=jit_eval_step,program_id=15#", "x"):
                for _ in range(depth):
                    with j.t.mark(l=j.m.group()):
                        j.do(numbered(B["x_layer"], a=11, b=13))
                with j.t.mark(**NO_LAYER):
                    j.do("x_head")
            j.read()
    return j.program(f"{steps} steps of {depth} layers, evaluation every {every}", "x", "l")


def jax_tokens(rng: Random) -> Program:
    """A decoder in JAX: a module per token, unrolled, each layer with fusions of its own numbers."""
    j = Job(rng, said=rng.random() < 0.5)
    j.host = 0.6
    tokens, depth = rng.randint(10, 20), rng.choice((4, 6, 10))
    for n in range(tokens):
        text = f"XlaModule:#hlo_module=jit_{'prefill' if n == 0 else 'decode_step'},program_id={7 + (n > 0)}#"
        with j.run(text):
            for d in range(depth):
                with j.t.mark(l=j.m.group()):
                    j.do(numbered(B["x_dec"], a=10 + 7 * d, b=200 + 3 * d), size=5 if n == 0 else 1)
            with j.t.mark(**NO_LAYER):
                j.do("x_head", size=0.3)
        j.read()
        j.t.host(150)
    return j.program(f"{tokens} tokens, {depth} layers with numbers of their own", "x", "l")


def onnx_batches(rng: Random) -> Program:
    """A session of ONNX Runtime on batches; the shape of some makes it allocate; the last is short."""
    j = Job(rng, said=rng.random() < 0.4)
    j.host = 0.8
    runs, depth = rng.randint(6, 14), rng.choice((4, 6, 12))
    for n in range(runs):
        size = 0.5 if n == runs - 1 else rng.choice((1, 1, 2))
        with j.run(f"Batch-{n} Forward"):
            for _ in range(3):
                j.t.copy(32_768, pageable=True, stream=j.stream)
            with j.t.mark(**NO_LAYER):
                j.do("ort_emb")
            for _ in range(depth):
                with j.t.mark(l=j.m.group()):
                    j.do("ort", size=size)
            with j.t.mark(**NO_LAYER):
                j.do("ort_head")
            j.t.copy(4_096, "DtoH", stream=j.stream)
        j.t.sync(j.stream)
        j.t.host(rng.choice((80, 900)))
    return j.program(f"{runs} batches, {depth} layers", "x", "l")


def instances(rng: Random) -> Program:
    """A server with several instances of an engine: threads, a stream each, requests that overlap."""
    j = Job(rng, said=rng.random() < 0.5)
    j.host = 0.8
    count, requests, depth = rng.randint(2, 3), rng.randint(5, 9), rng.choice((6, 8))
    threads = [j.m.thread(50 + n, j.t.now + n * 300 * US, f"worker_{n}") for n in range(count)]
    order = [threads[n % count] for n in range(requests * count)]
    for thread in order:
        j.t = thread
        stream = 20 + thread.tid - j.m.pid
        with j.run(f"request {rng.randint(100, 999)}"):
            j.t.copy(600_000, pageable=False, stream=stream)
            for _ in range(depth):
                with j.t.mark(l=j.m.group()):
                    j.do("ort", stream=stream)
            j.do("ort_head", stream=stream)
            j.t.copy(4_096, "DtoH", pageable=False, stream=stream)
        j.t.sync(stream)
        j.t.host(rng.choice((200, 700)))
    return j.program(f"{count} instances of {requests} requests", "x", "l")


def triton_sweep(rng: Random) -> Program:
    """A kernel measured for several shapes: each many times, the cache flushed before each."""
    j = Job(rng, said=False)
    name = rng.choice(("matmul_kernel_persistent", "_attn_fwd", "fused_softmax_kernel", "_layer_norm_fwd_fused"))
    shapes, again = rng.randint(3, 6), rng.randint(10, 25)
    for shape in range(shapes):
        y = j.m.group()
        us = 20 * 1.8**shape
        for n in range(again + 5):
            with j.t.mark(x=NOT_JUDGED, y=y if n >= 5 else NOT_JUDGED):
                if n >= 5:
                    j.do("flush")
            with j.t.mark(x=j.m.group(), y=y):
                j.do([(name, us)], grid=64 * 2**shape)
        j.t.sync()
        j.t.host(3_000)
    return j.program(f"{name}: {shapes} shapes, {again} times each", "xy")


def gemm_program(rng: Random) -> Program:
    """A C++ program that times products of matrices of several sizes, after one that warms up."""
    j = Job(rng, said=rng.random() < 0.3)
    sizes, again = rng.randint(3, 6), rng.randint(8, 20)
    j.m.program = "gemm_bench"
    for n in range(sizes):
        side = 512 * 2**n
        kernel = f"cutlass_80_tensorop_f16_s16816gemm_f16_{64 * (1 + n % 3)}x128_64x{3 + n % 2}_nn_align8"
        for _ in range(2):
            j.t.copy(side * side * 2)
        with j.run(f"M=N=K={side}", "y"):
            for _ in range(again + 1):
                with j.t.mark(x=j.m.group()):
                    j.do([(kernel, 8 * 2.5**n)])
                    if n > 2:
                        j.do([("void cublasLt::splitKreduce_kernel<32, 16, int, __half, float, __half>(P)", 6)])
            j.t.sync()
        j.t.copy(side * side * 2, "DtoH")
        j.t.host(1_500)
    return j.program(f"{sizes} sizes, {again} times each", "xy")


# --- nothing that repeats -----------------------------------------------------------------------------------------


def chores(rng: Random) -> Program:
    """Arrays and tables by hand: sorts, products, solvers, joins, of any size in any order."""
    j = Job(rng, said=False)
    for _ in range(rng.randint(120, 400)):
        j.do([rng.choice(B["odd"])], size=rng.lognormvariate(0, 1))
        if rng.random() < 0.08:
            j.t.copy(int(rng.lognormvariate(13, 2)), rng.choice(("HtoD", "DtoH")))
        if rng.random() < 0.05:
            j.t.host(rng.lognormvariate(7, 1.5))
    return j.program("chores", "", is_noise=True)


def zoo_of_kernels(rng: Random) -> Program:
    """Tests of a library: kernels of every family, each a few times with its own inputs."""
    j = Job(rng, kineto=rng.random() < 0.3, said=False)
    every = sorted({one for block in B.values() for one in block})
    rng.shuffle(every)
    for name, us in every[: rng.randint(60, 110)]:
        for _ in range(rng.randint(0, 3)):
            j.t.copy(int(rng.lognormvariate(11, 1.5)))
        for _ in range(rng.choice((1, 1, 2, 3))):
            j.do([(name, us)], size=rng.lognormvariate(0, 0.5))
        if rng.random() < 0.6:
            j.t.copy(int(rng.lognormvariate(11, 1.5)), "DtoH")
        j.t.host(rng.lognormvariate(6, 1))
    return j.program("tests of kernels", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        deepspeed_zero3, megatron_stage, titan_compiled, trainer_with_ema, grpo, verl, torchtune_recompute, recommender,
        neighbours, vision_window, mixture_of_experts, lengths, segmentation, tune_then_generate, ladder,
        vllm_pieces, vllm_whole, sglang_experts,
        tensorrt_llm, llama_cpp, eagle, prefill_worker, flux, whisper, video_detector, jax_training, jax_tokens,
        onnx_batches, instances, triton_sweep, gemm_program, chores, zoo_of_kernels,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn. Some recordings begin or end in the middle, some lost rows."""
    program, rng = family_of(FAMILIES, "pilgrim", seed)
    if not program.is_noise and program.family != "vision window":
        damaged(program, rng, ((0, 0.9), (0.07, 1), (0.1, 0.85)), cuts=0.12, losses=0.2)
    beside(program, rng)
    return program


def beside(program: Program, rng: Random) -> None:
    """Ranges that say nothing of the structure: one around everything, those of a thread that launches nothing."""
    [m] = program.machines
    start, end = min(row["start"] for row in m.calls), max(row["end"] for row in m.calls)
    kind = "python_function" if program.is_kineto else "nvtx"
    if rng.random() < 0.15:
        text = rng.choice(("<module>", "main", "profile", "run_benchmark", "train.py(88): <module>"))
        [tid] = {row["tid"] for row in m.calls[:1]}
        row = {"text": text, "start": start - 900, "end": end + 900, "tid": tid, "kind": kind, "args": {}}
        m.ranges.append(row)
        program.about += ", one range around"
    if rng.random() < 0.15:
        other, at = m.thread(77, start, "monitor"), start
        every = (end - start) / rng.randint(6, 40)
        text = rng.choice(("heartbeat", "gc", "poll", "log_metrics"))
        while at + every < end:
            at += int(every * rng.uniform(0.9, 1.1))
            m.ranges.append(
                {"text": text, "start": at, "end": at + 9_000, "tid": other.tid, "kind": kind, "args": {}}
            )  # fmt: skip
        program.about += ", a thread beside"
