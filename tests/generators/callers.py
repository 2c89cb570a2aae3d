"""Programs of 2024 to 2026 as a seventh author draws them: engines, trainers and simulations, each with its truth.

Labels: ``x`` an execution, ``y`` another answer that is as true, ``l`` a layer, ``k`` the same layers where the kernels
that a layer begins with (its norm) count for the one before: without ranges both are as likely. What is between
executions has none of them. Gradients are in no judged layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from generators.machine import NONE, NOT_JUDGED, US, Machine, Program, Thread, cut, kernels_of, lose

Kernels = list[tuple[str, float]]  # name, µs

K = kernels_of("caller_kernels.txt")
# A part of a kernel's name, the operator that launches it.
OPERATORS = (
    ("flash_bwd", "aten::_flash_attention_backward"), ("flash", "aten::_flash_attention_forward"),
    ("fmha", "aten::_efficient_attention_forward"), ("gemm", "aten::mm"), ("nvjet", "aten::mm"),
    ("gemv", "aten::addmv"), ("layer_norm", "aten::native_layer_norm"), ("RowwiseMoments", "aten::native_group_norm"),
    ("bn_", "aten::cudnn_batch_norm"), ("dgrad", "aten::convolution_backward"),
    ("wgrad", "aten::convolution_backward"), ("fprop", "aten::cudnn_convolution"),
    ("multi_tensor", "aten::_fused_adamw_"), ("oftMax", "aten::_log_softmax"), ("reduce_kernel", "aten::mean"),
    ("silu", "aten::silu"), ("add", "aten::add"), ("Mul", "aten::mul"), ("pow", "aten::pow"), ("rsqrt", "aten::rsqrt"),
    ("Cat", "aten::cat"), ("gather", "aten::embedding"), ("index", "aten::index"), ("nll", "aten::nll_loss_forward"),
    ("codegen_forward", "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"), ("clamp", "aten::relu"),
    ("nccl", "record_param_comms"),
)  # fmt: skip


def operator(name: str) -> str:
    if name.startswith("triton_"):
        return name
    return next((text for part, text in OPERATORS if part in name), "aten::copy_" if "at::" in name else name[:40])


class Run:
    """One process that runs: short words for what its programs do."""

    def __init__(self, rng: Random, *, kineto: bool = False, operators: bool = True) -> None:
        self.rng, self.is_kineto, self.operators = rng, kineto, operators
        self.m = Machine(
            Random(rng.random()), pid=rng.randint(3_000, 90_000), jitter=rng.choice((0.02, 0.05, 0.1)),
            launch_us=rng.choice((3.5, 5.0, 6.5)),
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, 3_000_000)
        self.scale = rng.choice((0.6, 1.0, 2.0, 5.0))
        self.pace = rng.choice((2.0, 4.0, 7.0))  # µs of host code before a launch
        self.late = NONE
        self.stream = 7

    def r(self, text: str, kind: str = "nvtx", **args: Any) -> Any:
        """A range, or nothing where the text is empty."""
        return self.t.range(text, kind, **args) if text else nullcontext()

    def go(self, kernels: Kernels | str, times: int = 1, *, scale: float = 1.0, **more: Any) -> None:
        """Launch these, each in its operator where the profiler shows operators."""
        for name, us in (K[kernels] if isinstance(kernels, str) else kernels) * times:
            self.t.host(self.pace)
            with self.r(operator(name) if self.is_kineto and self.operators else "", "cpu_op"):
                self.t.launch(name, us * self.scale * scale, **({"stream": self.stream} | more))

    @contextmanager
    def step(self, text: str = "", kind: str = "nvtx", *, y: bool = False) -> Iterator[None]:
        """One execution, in a range where it has a text. ``y``: the other answer is the same here."""
        x = self.m.group()
        self.late = NONE
        with self.r(text, kind), self.t.mark(x=x, **({"y": x} if y else {})):
            yield

    @contextmanager
    def also(self) -> Iterator[None]:
        """An execution of the other answer."""
        with self.t.mark(y=self.m.group()):
            yield

    @contextmanager
    def layer(self, text: str = "", head: Kernels | str = "", kind: str = "nvtx", scale: float = 1.0) -> Iterator[None]:
        """One layer; ``head``: the kernels that it begins with."""
        g = self.m.group()
        with self.r(text, kind):
            if head:
                with self.t.mark(l=g, k=self.late):
                    self.go(head, scale=scale)
            self.late = g
            with self.t.mark(l=g, k=g):
                yield

    def tail(self, kernels: Kernels | str, scale: float = 1.0) -> None:
        """The norm behind the last layer."""
        with self.t.mark(k=self.late):
            self.go(kernels, scale=scale)

    @contextmanager
    def autograd(self, tid: int = 11) -> Iterator[None]:
        """What runs on the engine's thread, while this one waits."""
        main, self.t = self.t, self.m.thread(tid, self.t.now, "pt_autograd_0")
        self.t.now = max(self.t.now, main.now + 20 * US)
        try:
            yield
        finally:
            main.wait_until(self.t.now + 15 * US)
            self.t = main

    def between(self, us: float = 0, *, item: bool = True) -> None:
        """The host reads a value or waits, then does its own work."""
        if item:
            self.t.item()
        self.t.host(us)

    def program(self, family: str, about: str = "", **truth: Any) -> Program:
        truth = {"executions": ["x"], "layers": []} | truth
        return Program(family, [self.m], is_kineto=self.is_kineto, about=about, **truth)


STEPS = (
    "iter {n}", "Step:{n:03d}", "it_0x{n:02x}", "第{n}步", "🚀 step {n}", "global_step={n}", "train/batch_{n}",
    "iteration", "训练步骤", "batch-{uuid}", "[rank0] step {n}/100", "step{n}", "Epoch 0 | batch {n}",
    "forward_backward_optim", "шаг {n}", "s{n}", "TrainLoop.step ({n} of 500)",
)  # fmt: skip
LAYERS = ("layers.{n}", "forward/encoder/{n}", "Block_{n:02d}", "第{n}层", "h.{n}", "TransformerBlock ({n})", "blk#{n}")


def texts(rng: Random, choices: Sequence[str]) -> Callable[[int], str]:
    template = rng.choice(choices)
    return lambda n: template.format(n=n, uuid="".join(rng.choices("0123456789abcdef", k=8)))


def nothing(_: int) -> str:
    return ""


def module(run: Run, cls: str, n: int) -> Any:
    """How a module's frame is called, where modules are recorded."""
    return run.t.range(f"nn.Module: {cls}_{n}", "python_function", **{"Python module id": n})


# --- engines that serve language models -------------------------------------------------------------------------------


def speculative_decoding(rng: Random) -> Program:
    """A target that verifies in one graph, a draft of one layer three times in another, then rejection."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, drafts = rng.choice((8, 16)), rng.choice((2, 3, 5))
    shown = rng.random() < 0.6
    base, head = (9 << 32), [*K["vllm_first"]]
    target, marks = [*head], [{} for _ in head]
    late = NONE
    for _ in range(layers):
        g = run.m.group()
        rest = K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"]
        target += K["vllm_head"] + rest
        marks += [{"l": g, "k": late}] + [{"l": g, "k": g}] * len(rest)
        late = g
    target, marks = target + K["vllm_head"], [*marks, {"k": late}]
    turns = rng.randint(5, 9)
    for n in range(turns):
        marks = [{key: value + 10_000 * (value > 0) for key, value in one.items()} for one in marks]
        with run.step(f"execute_context_0(0)_generation_{8 + n % 2}({4 * (8 + n % 2)})" if shown else ""):
            with run.r("gpu_model_runner: preprocess" if shown else ""):
                run.t.host(120)
                run.t.copy(4_096, pageable=False)
            with run.r("gpu_model_runner: forward" if shown else ""):
                run.t.graph(target, node_base=base, marks=marks)
            with run.r("gpu_model_runner: sample" if shown else ""):
                run.go("vllm_sample")
                run.go("reject")
            with run.r("gpu_model_runner: draft" if shown else ""):
                for _ in range(drafts):
                    run.t.host(60)
                    run.t.graph(K["draft"], node_base=11 << 32)
                    run.go(K["vllm_sample"][:1] + K["vllm_sample"][2:])
            run.t.copy(256, "DtoH")
            run.t.sync(7)
        run.t.host(rng.uniform(150, 400))
    return run.program("speculative decoding", f"{turns} steps, {drafts} drafts", layers=["l", "k"])


def chunked_prefill(rng: Random) -> Program:
    """Pieces of graphs between eager attention; some steps carry a chunk of a prompt."""
    run = Run(rng, kineto=rng.random() < 0.6)
    layers, shown = rng.choice((8, 12)), rng.random() < 0.7
    turns = rng.randint(6, 10)
    for n in range(turns):
        chunk = 512 if n % 4 == 1 else 0
        text = f"execute_context_{int(chunk > 0)}({chunk})_generation_{7 + n}({7 + n})"
        scale = 6.0 if chunk else 1.0
        with run.step(text if shown else ""):
            run.t.copy(8_192, pageable=False)
            run.t.host(150)
            run.go("vllm_first")
            held: Kernels = K["vllm_head"] + K["vllm_qkv"]
            g, late = run.m.group(), NONE
            marks = [{"l": g, "k": late}] + [{"l": g, "k": g}] * len(K["vllm_qkv"])
            for number in range(layers):
                nodes = [(name, us * scale) for name, us in held]
                run.t.graph(nodes, node_base=(20 + number) << 32, marks=marks)
                with run.t.mark(l=g, k=g):
                    run.go("vllm_attention", scale=scale)
                held = K["vllm_rest"] + K["vllm_head"] + K["vllm_qkv"]
                marks, late = [{"l": g, "k": g}] * len(K["vllm_rest"]), g
                g = run.m.group()
                marks += [{"l": g, "k": late}] + [{"l": g, "k": g}] * len(K["vllm_qkv"])
            nodes, marks = K["vllm_rest"] + K["vllm_head"], [*marks[: len(K["vllm_rest"])], {"k": late}]
            run.t.graph([(name, us * scale) for name, us in nodes], node_base=90 << 32, marks=marks)
            run.go("vllm_sample")
        run.between(rng.uniform(200, 500))
    return run.program("chunked prefill", f"{turns} steps, {layers} layers in pieces", layers=["l", "k"])


def adapters(rng: Random) -> Program:
    """Decoding of several adapters at once: two small kernels after each product."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    layers, shown = rng.randint(6, 14), rng.random() < 0.5
    turns = rng.randint(6, 9)
    for n in range(turns):
        with run.step(f"step[DECODE bs={16 - n // 3} loras=4]" if shown else ""):
            run.t.copy(2_048)
            run.go("vllm_first")
            for _ in range(layers):
                with run.layer("", "vllm_head"):
                    run.go(K["vllm_qkv"][:1] + K["lora"] + K["vllm_qkv"][1:] + K["vllm_attention"])
                    run.go(K["vllm_rest"][:1] + K["lora"] + K["vllm_rest"][1:3] + K["lora"])
                    run.go(K["vllm_rest"][3:] + K["lora"])
            run.tail("vllm_head")
            run.go("vllm_sample")
        run.between(rng.uniform(100, 300))
    return run.program("adapters", f"{turns} tokens, {layers} layers", layers=["l", "k"])


def expert_parallel(rng: Random) -> Program:
    """FP8 experts on other ranks: dispatch and combine on a stream of their own, as DeepEP does."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    layers, dense, shown = rng.randint(6, 12), rng.choice((0, 1, 3)), rng.random() < 0.6
    turns = rng.randint(4, 7)
    for n in range(turns):
        with run.step(f"ForwardMode.DECODE bs=64 id={n}" if shown else ""):
            run.go("vllm_first")
            for number in range(layers):
                if number < dense:  # unlike the others: in a layer or not
                    with run.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                        run.go(K["deepep_head"] + K["deepep_attention"] + K["deepep_head"] + K["vllm_rest"])
                    continue
                with run.layer("", "deepep_head"):
                    run.go("deepep_attention")
                    run.go("deepep_head")
                    run.go("deepep_route")
                    run.go("deepep_dispatch", stream=24, after=run.m.free[7])
                    run.go("deepep_experts", after=run.m.free[24])
                    run.go("deepep_combine", stream=24, after=run.m.free[7])
                    run.m.free[7] = max(run.m.free[7], run.m.free[24])
            run.tail("deepep_head")
            run.go("vllm_sample")
        run.between(rng.uniform(80, 300))
    return run.program("expert parallel", f"{turns} steps, {layers} layers, {dense} dense", layers=["l", "k"])


def executor_steps(rng: Random) -> Program:
    """The PyTorch backend of TensorRT-LLM: one range a step, eager prompts and replayed tokens."""
    run = Run(rng)
    layers, turns = rng.randint(5, 10), rng.randint(7, 12)
    for n in range(turns):
        prompts = int(n in (0, 4))
        with run.step(f"[Executor] _forward_step {40 + n}: {prompts} ctx reqs, {3 + n} gen reqs"):
            with run.r("_prepare_inputs"):
                run.t.host(150)
                run.t.copy(1_024, pageable=False)
            with run.r("_forward_step"):
                if prompts:
                    run.go("vllm_first")
                    for _ in range(layers):
                        with run.layer("", "vllm_head", scale=5):
                            run.go(K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"], scale=5)
                    run.tail("vllm_head")
                else:
                    nodes, marks = [*K["vllm_first"]], [{}]
                    late = NONE
                    for _ in range(layers):
                        g, body = run.m.group(), K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"]
                        nodes += K["vllm_head"] + body
                        marks += [{"l": g, "k": late}] + [{"l": g, "k": g}] * len(body)
                        late = g
                    run.t.graph(nodes + K["vllm_head"], node_base=5 << 32, marks=[*marks, {"k": late}])
            with run.r("_sample_async"):
                run.go("vllm_sample")
            with run.r("_update_requests"):
                run.t.copy(512, "DtoH")
                run.t.sync(7)
                run.t.host(90)
        run.t.host(rng.uniform(40, 150))
    return run.program("executor steps", f"{turns} steps, {layers} layers", layers=["l", "k"])


# --- training ---------------------------------------------------------------------------------------------------------


def forward_hf(
    run: Run, layers: int, text: Callable[[int], str] = nothing, *, is_module: bool = False, scale: float = 1
) -> None:
    run.go("embedding", scale=scale)
    for n in range(layers):
        with (
            module(run, "LlamaDecoderLayer", n) if is_module else nullcontext(),
            run.layer(text(n), "hf_head", scale=scale),
        ):
            run.go("hf_body", scale=scale)
    run.tail("hf_head", scale=scale)
    run.go("head", scale=scale)


def backward_hf(run: Run, layers: int, hook: Callable[[int], None] = lambda n: None, *, again: bool = False) -> None:
    with run.autograd():
        run.go("loss_backward")
        for n in reversed(range(layers)):
            if again:
                run.go(K["hf_head"] + K["hf_body"])
            run.go("hf_backward")
            hook(n)
        run.go("embedding")


def update(run: Run, *, clip: bool = True) -> None:
    if clip:
        run.go("clip")
    run.go("adam", 4)


def reinforcement(rng: Random) -> Program:
    """Roll-outs of many tokens, the reference's log-probabilities, then updates; ranges as verl's timers."""
    run = Run(rng)
    layers, tokens, turns = rng.randint(3, 5), rng.randint(6, 9), 3
    shown = rng.random() < 0.7
    for n in range(turns):
        with run.step(f"step {n}" if shown else ""):
            with run.r("gen"):
                for _ in range(tokens):
                    with run.also():
                        run.go("vllm_first")
                        for _ in range(layers):
                            run.go(K["vllm_head"] + K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"])
                        run.go("vllm_head")
                        run.go("vllm_sample")
                    run.between(60)
            for text in ("old_log_prob", "ref"):
                with run.r(text), run.also():
                    forward_hf(run, layers)
                run.between(200)
            with run.r("adv"):
                run.t.host(2_500)
            with run.r("update_actor"):
                for _ in range(2):
                    with run.also():
                        forward_hf(run, layers)
                        run.go("loss")
                        backward_hf(run, layers)
                        update(run)
                    run.between(150)
        run.t.host(900)
    about = f"{turns} steps of {tokens} tokens, two updates each"
    return run.program("reinforcement", about, executions=["x"] if shown else ["x", "y"])


def segmentation(rng: Random) -> Program:
    """A U-Net with mixed precision under Lightning: its profiler's texts."""
    run = Run(rng, kineto=rng.random() < 0.5)
    turns, depth = rng.randint(4, 6), rng.randint(3, 5)
    for n in range(turns):
        with run.r("[pl][profile][_TrainingEpochLoop].train_dataloader_next" if n else ""):
            run.t.host(1_500)
        with run.step("[pl][profile]run_training_batch"):
            with run.r("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device"):
                run.t.copy(3_000_000, pageable=False)
            with run.r("[pl][profile][LightningModule]UNet.optimizer_step"):
                with run.r("[pl][profile][Strategy]SingleDeviceStrategy.training_step"):
                    for _ in range(depth):
                        run.go("conv", 2)
                    for _ in range(depth):
                        run.go("resize")
                        run.go("conv", 2)
                    run.go("loss")
                with run.r("[pl][profile][Strategy]SingleDeviceStrategy.backward"), run.autograd():
                    run.go("loss_backward")
                    for _ in range(2 * depth):
                        run.go("conv_backward", 2)
                update(run, clip=n % 2 == 0)
        run.between(300, item=n % 3 == 0)
    return run.program("segmentation", f"{turns} batches, depth {depth}")


def graph_sampling(rng: Random) -> Program:
    """Neighbours are sampled on the GPU, features gathered, three layers trained: batches differ a little."""
    run = Run(rng, kineto=rng.random() < 0.3)
    text = texts(rng, STEPS) if rng.random() < 0.5 else nothing
    turns = rng.randint(8, 14)
    for n in range(turns):
        with run.step(text(n)):
            for _ in range(3):
                run.go("graph_sample")
                if rng.random() < 0.4:
                    run.go(K["graph_sample"][1:2])
                run.t.item()
            run.go("graph_gather")
            run.t.copy(200_000, pageable=False)
            for _ in range(3):
                run.go("sage")
            run.go("loss")
            with run.autograd():
                run.go("loss_backward")
                for _ in range(3):
                    run.go("sage_backward")
            update(run, clip=False)
        run.between(rng.uniform(100, 800))
    return run.program("graph sampling", f"{turns} batches")


def recommender(rng: Random) -> Program:
    """Embedding tables on all ranks, exchanged on another stream; ranges of a pipelined trainer."""
    run = Run(rng, kineto=rng.random() < 0.7)
    turns, shown = rng.randint(6, 10), rng.random() < 0.7
    kind = "nvtx"
    for n in range(turns):
        with run.step(f"ProfilerStep#{n + 5}" if shown else "", kind):
            with run.r("## zero_grad ##"):
                run.t.host(80)
            with run.r("## start_sparse_data_dist 2 ##"):
                run.go("all_to_all", stream=21)
            with run.r("## copy_batch_to_gpu 2 ##"):
                run.t.copy(2_500_000, pageable=False, stream=20)
            with run.r("## forward ##"):
                run.go("tables")
                run.go("all_to_all", stream=21, after=run.m.free[7])
                run.go("mlp", 3)
                run.m.free[7] = max(run.m.free[7], run.m.free[21])
                run.go("interact")
                run.go("mlp", 4)
                run.go("loss")
            with run.r("## backward ##"), run.autograd():
                run.go("loss_backward")
                run.go("mlp_backward", 4)
                run.go("interact")
                run.go("mlp_backward", 3)
                run.go("all_to_all", stream=21, after=run.m.free[7])
                run.go("tables_backward", after=run.m.free[21])
                run.go("all_reduce", stream=22)
            with run.r("## optimizer ##"):
                update(run, clip=False)
        run.between(200, item=n % 5 == 4)
    return run.program("recommender", f"{turns} batches")


def state_space(rng: Random) -> Program:
    """Mamba trained with ranges of an odd dialect, or none."""
    run = Run(rng, kineto=rng.random() < 0.4)
    text = texts(rng, STEPS) if rng.random() < 0.6 else nothing
    layers, turns = rng.randint(5, 12), rng.randint(4, 6)
    for n in range(turns):
        with run.step(text(n)):
            run.go("embedding")
            for number in range(layers):
                with module(run, "MambaBlock", number) if run.is_kineto else nullcontext(), run.layer("", "mamba_head"):
                    run.go("mamba")
            run.tail("mamba_head")
            run.go("head")
            run.go("loss")
            with run.autograd():
                run.go("loss_backward")
                for _ in range(layers):
                    run.go("mamba_backward")
            update(run)
        run.between(rng.uniform(100, 2_000), item=rng.random() < 0.7)
    return run.program("state space", f"{turns} steps, {layers} layers", layers=["l"] if run.is_kineto else ["l", "k"])


def linear_attention(rng: Random) -> Program:
    """A gated delta rule in Triton: prompts of many lengths, forward only."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns = rng.randint(6, 12), rng.randint(4, 7)
    text = texts(rng, LAYERS) if not run.is_kineto and rng.random() < 0.5 else nothing
    for n in range(turns):
        with run.step("model.forward" if run.is_kineto else ""):
            run.go("embedding")
            for number in range(layers):
                with run.layer(text(number), "fla_head"):
                    run.go("fla", scale=1 + n % 3)
            run.tail("fla_head")
            run.go("head")
        run.between(rng.uniform(100, 900))
    has_text = text is not nothing
    return run.program("linear attention", f"{turns} passes, {layers} layers", layers=["l"] if has_text else ["l", "k"])


def megatron(rng: Random) -> Program:
    """One rank of a pipeline, 1F1B: ranges of Megatron, two for each layer."""
    run = Run(rng)
    layers, micro, turns = rng.randint(2, 4), rng.choice((4, 6)), rng.randint(3, 5)
    shown = rng.choice(("iter {n}", "iteration", ""))
    scope = "megatron.core.transformer.transformer_layer.TransformerLayer.forward"

    def forward() -> None:
        with run.r("forward-compute"):
            for _ in range(layers):
                with run.layer():
                    for part in ("self_attention", "mlp"):
                        with run.r(f"{scope}.{part}"), run.t.mark(k=run.m.group()):
                            run.go("te_attention" if part == "self_attention" else "te_mlp")
        run.go("send", stream=30, after=run.m.free[7])

    def backward() -> None:
        with run.r("backward-compute"), run.autograd():
            for _ in range(layers):
                run.go("te_backward")
        run.go("send", stream=31, after=run.m.free[7])

    for n in range(turns):
        with run.step(shown.format(n=n + 10)):
            with run.r("forward-backward"):
                for _ in range(2):
                    forward()
                for _ in range(micro - 2):
                    forward()
                    backward()
                for _ in range(2):
                    backward()
            with run.r("all-grads-sync"):
                run.go("reduce_scatter", stream=32, after=run.m.free[7])
            with run.r("optimizer"):
                run.t.item()
                update(run)
                run.go("all_gather", stream=32, after=run.m.free[7])
        run.t.sync()
        run.t.host(500)
    about = f"{turns} steps of {micro} micro-batches, {layers} layers {shown!r}"
    return run.program("megatron", about, layers=["l", "k"])


def zero3(rng: Random) -> Program:
    """DeepSpeed, parameters in parts: a gather before each layer, forward again in backward."""
    run = Run(rng)
    layers, turns, again = rng.randint(4, 8), rng.randint(3, 5), rng.random() < 0.5
    stage = "DeepSpeedZeroOptimizer_Stage3"

    def fetch() -> None:
        with run.r("PartitionedParameterCoordinator.fetch_sub_module"):
            with run.r("PartitionedParameterCoordinator.__all_gather_params"):
                run.go("all_gather", stream=20)
            run.m.free[7] = max(run.m.free[7], run.m.free[20])

    def reduce(_: int) -> None:
        fetch()
        with run.r(f"{stage}.reduce_ready_partitions_and_remove_grads"):
            run.go("reduce_scatter", stream=23, after=run.m.free[7])

    for _ in range(turns):
        with run.step():
            with run.r("DeepSpeedEngine.forward"):
                run.go("embedding")
                for _ in range(layers):
                    with run.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                        fetch()
                    with run.layer("", "hf_head"):
                        run.go("hf_body")
                run.tail("hf_head")
                run.go("head")
            run.go("loss")
            with run.r("DeepSpeedEngine.backward"), run.r(f"{stage}.backward"):
                backward_hf(run, layers, reduce, again=again)
            with run.r("DeepSpeedEngine.step"), run.r(f"{stage}.step"):
                run.t.item()
                update(run)
        run.t.host(rng.uniform(200, 3_000))
    return run.program("zero 3", f"{turns} steps, {layers} layers, recomputed {again}", layers=["l", "k"])


def fsdp2(rng: Random) -> Program:
    """FSDP2 under the profiler's schedule: annotations of its hooks, modules recorded or not."""
    run = Run(rng, kineto=True)
    layers, turns, is_module = rng.randint(4, 8), rng.randint(3, 5), rng.random() < 0.5

    def hook(n: int) -> None:
        with run.r(f"FSDP::post_backward (layers.{n})"), run.r("FSDP::post_backward_reduce"):
            run.go("reduce_scatter", stream=25, after=run.m.free[7])

    for n in range(turns):
        with run.step(f"ProfilerStep#{n + 3}"):
            run.go("embedding")
            for number in range(layers):
                with run.r(f"FSDP::pre_forward (layers.{number})"), run.t.mark(l=NOT_JUDGED, k=NOT_JUDGED):
                    with run.r("FSDP::all_gather"):
                        run.go("all_gather", stream=24)
                    run.go(K["hf_body"][4:5])
                    run.m.free[7] = max(run.m.free[7], run.m.free[24])
                with module(run, "TransformerBlock", number) if is_module else nullcontext(), run.layer("", "hf_head"):
                    run.go("hf_body")
            run.tail("hf_head")
            run.go("head")
            run.go("loss")
            backward_hf(run, layers, hook)
            with run.r("Optimizer.step#AdamW.step"):
                update(run)
        run.between(0, item=rng.random() < 0.5)
    about = f"{turns} steps, {layers} layers, modules {is_module}"
    return run.program("fsdp 2", about, layers=["l"] if is_module else ["l", "k"])


def accumulation(rng: Random) -> Program:
    """Accelerate: several micro-batches an update, checkpointed blocks; a marker around each update, or micro-batch."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, micro, turns = rng.randint(3, 5), rng.choice((2, 4)), rng.randint(3, 5)
    style = rng.choice(("update", "micro", "none"))
    text = texts(rng, STEPS)
    count = 0
    for n in range(turns):
        with run.step(text(n) if style == "update" else ""):
            for number in range(micro):
                count += 1
                with run.also(), run.r(text(count) if style == "micro" else ""):
                    run.t.copy(16_384)
                    forward_hf(run, layers)
                    run.go("loss")
                    backward_hf(run, layers, again=True)
                    if number == micro - 1:
                        update(run)
        run.between(300)
    executions = {"update": ["x"], "micro": ["y"], "none": ["x", "y"]}[style]
    about = f"{turns} updates of {micro}, {layers} layers, marked: {style}"
    return run.program("accumulation", about, executions=executions, layers=["l", "k"])


def compiled_training(rng: Random) -> Program:
    """torch.compile: one region forward, one backward; odd texts around steps or none."""
    run = Run(rng, kineto=True)
    layers, turns = rng.randint(3, 8), rng.randint(5, 9)
    graph = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz234567", k=51))
    text = texts(rng, STEPS) if rng.random() < 0.5 else nothing
    for n in range(turns):
        with run.step(text(n)):
            with (
                run.r("Torch-Compiled Region: 0/0", "cpu_op"), run.r("CompiledFunction", "cpu_op"),
                run.r(f"## Call CompiledFxGraph f{graph} ##", "cpu_op"),
            ):  # fmt: skip
                run.go([("triton_poi_fused_embedding_add_9", 5.0)])
                for _ in range(layers):
                    with run.layer("", K["inductor_block"][:1]):
                        run.go(K["inductor_block"][1:])
                run.tail(K["inductor_block"][:1])
                run.go("head")
                run.go([("triton_red_fused__log_softmax_nll_loss_forward_3", 12.0)])
            name = "autograd::engine::evaluate_function: CompiledFunctionBackward"
            with run.autograd(), run.r(name, "cpu_op"), run.r("CompiledFunctionBackward", "cpu_op"):
                run.go([("triton_red_fused__log_softmax_backward_data_4", 14.0)])
                run.go(K["loss_backward"][2:])
                for _ in range(layers):
                    run.go("inductor_backward")
            with run.r("Optimizer.step#AdamW.step"):
                update(run, clip=False)
        run.between(100, item=n % 2 == 0)
    return run.program("compiled training", f"{turns} steps, {layers} blocks", layers=["l", "k"])


def adversarial(rng: Random) -> Program:
    """Two optimisers take turns: the discriminator on real and made images, then the generator."""
    run = Run(rng, kineto=rng.random() < 0.5)
    turns, shown = rng.randint(5, 9), rng.random() < 0.4
    text = texts(rng, STEPS)
    for n in range(turns):
        with run.step(text(n) if shown else ""):
            run.t.copy(1_500_000)
            with run.also():
                run.go(K["resize"] + K["conv"], 4)
                run.go("conv_eval", 8)
                run.go("loss")
                with run.autograd():
                    run.go("loss_backward")
                    run.go("conv_backward", 8)
                update(run, clip=False)
            with run.also():
                run.go(K["resize"] + K["conv"], 4)
                run.go("conv_eval", 4)
                run.go("loss")
                with run.autograd():
                    run.go("loss_backward")
                    run.go("conv_backward", 8)
                update(run, clip=False)
        run.between(400)
    return run.program("adversarial", f"{turns} turns", executions=["x"] if shown else ["x", "y"])


def distillation(rng: Random) -> Program:
    """A teacher without gradients, a student of fewer layers with them."""
    run = Run(rng, kineto=rng.random() < 0.5)
    teacher, student, turns = rng.choice((6, 8)), rng.choice((2, 3)), rng.randint(4, 7)
    shown = rng.random() < 0.5
    for _ in range(turns):
        with run.step():
            run.t.copy(65_536)
            with run.r("teacher" if shown else ""):
                run.go("bert_first")
                for _ in range(teacher):
                    with run.layer():
                        run.go("bert", scale=2)
            with run.r("student" if shown else ""):
                run.go("bert_first")
                for _ in range(student):
                    with run.layer():
                        run.go("bert")
            run.go("loss", 2)
            with run.r("backward" if shown else ""), run.autograd():
                run.go("loss_backward")
                run.go("hf_backward", student)
            with run.r("optimizer" if shown else ""):
                update(run)
        run.between(200)
    return run.program("distillation", f"{turns} steps, {teacher} and {student} layers", layers=["l"])


def evaluation_between(rng: Random) -> Program:
    """Steps of training, after some of them passes over a validation set; nothing is marked."""
    run = Run(rng, kineto=rng.random() < 0.3)
    layers, every = rng.randint(3, 5), rng.choice((2, 3))
    turns = 3 * every
    for n in range(turns):
        with run.step():
            run.t.copy(16_384)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
        run.between(150)
        if n % every == every - 1:
            for _ in range(3):
                with run.step():
                    run.t.copy(16_384)
                    forward_hf(run, layers)
                    run.go("loss")
                run.between(80)
    return run.program("evaluation between", f"{turns} steps, 3 passes every {every}", layers=["l", "k"])


def odd_texts(rng: Random) -> Program:
    """A trainer whose texts no library writes: numbers in hex, words in Chinese, layers as paths."""
    run = Run(rng)
    layers, turns = rng.randint(3, 6), rng.randint(4, 7)
    step, layer = texts(rng, STEPS), texts(rng, LAYERS)
    forward, backward = rng.choice((("forward", "backward"), ("前向", "反向"), ("fwd→", "←bwd"), ("", "")))
    start = rng.choice((0, 118, 40_000))
    for n in range(turns):
        with run.step(step(start + n)):
            run.t.copy(16_384)
            with run.r(forward):
                forward_hf(run, layers, layer)
                run.go("loss")
            with run.r(backward):
                backward_hf(run, layers)
            with run.r("优化器" if forward == "前向" else "opt"):
                update(run)
        run.between(rng.uniform(100, 1_500), item=rng.random() < 0.6)
    return run.program("odd texts", f"{turns} steps {step(7)!r}, {layers} layers {layer(3)!r}", layers=["l"])


def cut_step(rng: Random) -> Program:
    """The recording of a trainer starts and stops in the middle of a step."""
    run = Run(rng)
    layers, turns = rng.randint(3, 5), rng.randint(6, 8)
    step = texts(rng, STEPS) if rng.random() < 0.6 else nothing
    for n in range(turns):
        with run.step(step(n)):
            run.t.copy(16_384)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
        run.between(200)
    program = run.program("cut step", f"{turns} steps, {layers} layers", layers=["l", "k"])
    cut(program, rng.uniform(0.04, 0.1), rng.uniform(0.88, 0.96))
    return program


def lost_rows(rng: Random) -> Program:
    """A trainer under load: the profiler lost some kernels and some launches."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns = rng.randint(3, 5), rng.randint(5, 8)
    step = texts(rng, STEPS)
    for n in range(turns):
        with run.step(step(n)):
            run.t.copy(16_384)
            forward_hf(run, layers, is_module=run.is_kineto)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
        run.between(200)
    program = run.program("lost rows", f"{turns} steps, {layers} layers", layers=["l"] if run.is_kineto else ["l", "k"])
    lose(program, rng, 0.01, 0.01)
    return program


def splatting(rng: Random) -> Program:
    """Gaussian splatting: render, gradients and update; the sort takes as many passes as it needs."""
    run = Run(rng, kineto=rng.random() < 0.4)
    turns, text = rng.randint(10, 18), texts(rng, STEPS) if rng.random() < 0.4 else nothing
    for n in range(turns):
        with run.step(text(n)):
            run.go("splat")
            run.t.item()
            run.go("sort_pass", rng.choice((4, 4, 5)))
            run.go("splat_render")
            run.go("splat_loss")
            with run.autograd():
                run.go("splat_backward")
            update(run, clip=False)
            if n % 6 == 5:
                run.go("clip")
        run.between(rng.uniform(50, 300), item=n % 2 == 0)
    return run.program("splatting", f"{turns} iterations")


# --- inference --------------------------------------------------------------------------------------------------------


def guided_diffusion(rng: Random) -> Program:
    """Two passes of a U-Net a step (with and without the prompt), then the decoder of images."""
    run = Run(rng, kineto=rng.random() < 0.5)
    images, steps, blocks = rng.choice((2, 3)), rng.randint(4, 6), rng.randint(3, 5)
    shown = rng.random() < 0.4
    for n in range(images):
        with run.step(f"pipe(prompt={n})" if shown else ""):
            run.go("bert_first")
            run.go("bert", 3)
            for _ in range(steps):
                with run.also():
                    for _ in range(2):
                        with run.t.mark(z=run.m.group()):
                            for _ in range(blocks):
                                run.go(K["unet_res"] + K["unet_attention"])
                    run.go("scheduler")
                run.t.host(150)
            with run.r("vae.decode" if shown else ""):
                run.go(K["unet_res"] + K["resize"], 6)
            run.t.copy(3_000_000, "DtoH")
        run.t.host(4_000)
    if not shown:  # what a step is not may be in one or not
        for row in run.m.work:
            row["labels"] = {"y": NOT_JUDGED, "z": NOT_JUDGED} | row["labels"]
    about = f"{images} images of {steps} steps"
    return run.program("guided diffusion", about, executions=["x"] if shown else ["x", "y", "z"])


def detector(rng: Random) -> Program:
    """A backbone, heads, and a loop on the host over classes that suppresses boxes: its length varies."""
    run = Run(rng, kineto=rng.random() < 0.5)
    turns, depth = rng.randint(5, 9), rng.randint(8, 16)
    text = rng.choice(("infer_image", "frame {n}", ""))
    for n in range(turns):
        with run.step(text.format(n=n)):
            run.t.copy(1_200_000)
            run.go("conv_eval", depth)
            run.go("resize", 3)
            run.go("conv_eval", 6)
            for _ in range(rng.randint(2, 7)):
                run.go("nms")
                run.t.item()
                run.t.host(40)
        run.t.copy(4_000, "DtoH")
        run.t.host(rng.uniform(500, 2_500))
    return run.program("detector", f"{turns} images, {depth} convolutions {text!r}")


def conformer(rng: Random) -> Program:
    """Speech of many lengths through an encoder; a range a batch or none."""
    run = Run(rng, kineto=rng.random() < 0.4)
    turns, layers = rng.randint(4, 7), rng.randint(5, 10)
    text = rng.choice(("transcribe_batch", "音频 {n}", "", "utt-{n:04d}"))
    for n in range(turns):
        scale = rng.choice((0.7, 1.0, 1.6))
        with run.step(text.format(n=n)):
            run.t.copy(640_000)
            run.go("whisper_audio")
            run.go("subsampling", 2, scale=scale)
            for _ in range(layers):
                with run.layer():
                    run.go("conformer", scale=scale)
            run.go(K["loss"][:1])
            run.t.copy(20_000, "DtoH")
        run.t.host(rng.uniform(800, 4_000))
    return run.program("conformer", f"{turns} batches, {layers} layers {text!r}", layers=["l"])


def whisper(rng: Random) -> Program:
    """Segments of speech: an encoder once, then tokens of a decoder until the sentence ends."""
    run = Run(rng, kineto=rng.random() < 0.5)
    segments, layers, shown = rng.choice((3, 4)), rng.choice((2, 4)), rng.random() < 0.5
    for n in range(segments):
        with run.step(f"segment {30 * n}s" if shown else ""):
            run.t.copy(480_000)
            first = run.m.group()  # nothing ends the encoder before the first token is read: both are one, or two
            with run.also(), run.t.mark(z=first):
                run.go("whisper_audio")
                for _ in range(layers):
                    run.go("bert")
            for token in range(rng.randint(5, 9)):
                with run.also(), run.t.mark(z=run.m.group() if token else first):
                    run.go("bert_first")
                    for _ in range(layers):
                        run.go("decoder_layer")
                    run.go(K["vllm_sample"][1:])
                run.between(90)
        run.t.host(1_500)
    about = f"{segments} segments, {layers} layers"
    return run.program("whisper", about, executions=["x"] if shown else ["x", "y", "z"])


def protein(rng: Random) -> Program:
    """One prediction: recycled passes of pair blocks, then steps that move atoms."""
    run = Run(rng, kineto=rng.random() < 0.5)
    cycles, blocks, moves = rng.choice((3, 4)), rng.randint(6, 12), rng.randint(6, 10)
    is_module = run.is_kineto and rng.random() < 0.6
    shown = "predict_structure" if rng.random() < 0.5 else ""
    with run.t.mark(x=run.m.group()), run.r(shown):
        for _ in range(cycles):
            g = run.m.group()
            with run.t.mark(y=g, z=g):
                run.go("embedding")
                for n in range(blocks):
                    with module(run, "PairformerBlock", n) if is_module else nullcontext(), run.layer():
                        run.go("pair_block")
            run.t.host(300)
        for _ in range(moves):
            with run.t.mark(y=NOT_JUDGED, z=run.m.group()):
                run.go("structure_step", 3)
                run.go("scheduler")
    about = f"{cycles} cycles of {blocks} blocks, {moves} moves"
    return run.program("protein", about, executions=["x", "y", "z"], layers=["l"])


def two_engines(rng: Random) -> Program:
    """TensorRT: an encoder and a decoder engine a request, layers named by the builder or not."""
    run = Run(rng)
    turns, layers, shown = rng.randint(4, 7), rng.randint(4, 8), rng.random() < 0.6
    for n in range(turns):
        with run.step(f"request#{n}" if n >= 0 and shown else ""):
            run.t.copy(600_000, pageable=False)
            for engine, count in (("encoder", layers), ("decoder", layers // 2)):
                with run.r("ExecutionContext::enqueue" if shown else "", domain="TensorRT"):
                    for number in range(count):
                        text = f"{{ForeignNode[/{engine}/layers.{number}/attn/MatMul...]}}"
                        with run.r(text if shown else "", domain="TensorRT"), run.layer():
                            run.go("trt_block")
            run.t.copy(4_000, "DtoH", pageable=False)
            run.t.sync(7)
        run.t.host(rng.uniform(300, 1_500))
    about = f"{turns} requests, {layers} and {layers // 2} layers, named {shown}"
    return run.program("two engines", about, layers=["l"])


def jax_scan(rng: Random) -> Program:
    """A jitted step whose layers are turns of a scan: module and thunks as XLA writes them."""
    run = Run(rng)
    turns, layers, shown = rng.randint(4, 6), rng.randint(4, 9), rng.random() < 0.6
    for _ in range(turns):
        with run.step("XlaModule:#hlo_module=jit_train_step,program_id=27#" if shown else ""):
            run.go("xla_first")
            for _ in range(layers):
                with run.layer():
                    for name, us in K["xla_layer"]:
                        thunk = f"Thunk:#hlo_op={name.split('(')[0][:24]}#" if shown else ""
                        with run.r(thunk):
                            run.go([(name, us)])
            run.go(K["xla_first"][1:], 2)
            for _ in range(layers):
                run.go("xla_layer_backward")
            run.go("xla_update", 3)
        run.t.host(rng.uniform(50, 400))
        if rng.random() < 0.5:
            run.t.sync(7)
    return run.program("JAX scan", f"{turns} steps, {layers} turns of the scan", layers=["l"])


def two_instances(rng: Random) -> Program:
    """Two threads of a server, each with a stream and a copy of the model; requests come when they come."""
    run = Run(rng)
    layers, turns, text = rng.randint(4, 8), rng.randint(4, 6), rng.choice(("bert_0_{i}", "execute request {n}", ""))
    threads = [run.m.thread(tid, 3_000_000 + 400 * US * tid, f"instance_{tid}") for tid in (21, 22)]
    for n in range(turns):
        for i, thread in enumerate(threads):
            run.t, run.stream = thread, 14 + i
            with run.step(text.format(i=i, n=2 * n + i)):
                thread.copy(49_152, pageable=False, stream=run.stream)
                run.go("bert_first")
                for _ in range(layers):
                    with run.layer():
                        run.go("bert")
                thread.copy(4_096, "DtoH", pageable=False, stream=run.stream)
                thread.sync(run.stream)
            thread.host(rng.uniform(200, 1_200))
    return run.program("two instances", f"two threads, {turns} requests each, {layers} layers {text!r}", layers=["l"])


def sparse_points(rng: Random) -> Program:
    """Point clouds: indices by hashing, sparse convolutions, a head in two dimensions."""
    run = Run(rng)
    turns, text = rng.randint(6, 10), rng.choice(("sweep_{n}", "", "lidar frame"))
    for n in range(turns):
        with run.step(text.format(n=n)):
            run.t.copy(rng.randint(1_000_000, 2_400_000))
            for _ in range(4):
                run.go("sparse_conv")
                run.t.item()
                run.go("sparse_layer", 3)
            run.go("conv_eval", 6)
            run.go(K["nms"])
            run.t.item()
        run.t.host(rng.uniform(300, 1_500))
    return run.program("sparse points", f"{turns} sweeps {text!r}")


def kernel_benchmark(rng: Random) -> Program:
    """An operator of a few kernels is timed: the cache is flushed before each run, the host never waits."""
    run = Run(rng)
    count = rng.randint(20, 40)
    body = rng.choice((K["fla"][2:9], K["mamba"], K["deepep_experts"], K["splat_render"] + K["splat_loss"]))
    with run.r(rng.choice(("", "do_bench", "benchmark"))):
        for _ in range(count):
            with run.t.mark(x=NOT_JUDGED):
                run.go("flush")
            with run.step():
                run.go(body)
    run.t.sync()
    return run.program("kernel benchmark", f"{count} runs of {len(body)} kernels")


def kernels_only(rng: Random) -> Program:
    """Only the rows of the device were kept: no call, no range."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    layers, turns = rng.randint(5, 9), rng.randint(4, 7)
    for _ in range(turns):
        with run.step():
            run.go("bert_first")
            for _ in range(layers):
                with run.layer():
                    run.go("bert")
            run.go("loss")
        run.between(rng.uniform(400, 900))
    run.m.calls, run.m.ranges = [], []
    return run.program("kernels only", f"{turns} passes, {layers} layers", layers=["l"])


def notebook(rng: Random) -> Program:
    """Cells of a notebook: nothing repeats."""
    run = Run(rng, kineto=rng.random() < 0.5)
    names = [name for name in K if name not in ("flush", "send")]
    for _ in range(rng.randint(25, 45)):
        some = [rng.choice(K[name]) for name in rng.sample(names, rng.randint(3, 6))]
        run.go(some, scale=rng.lognormvariate(0, 1.2))
        if rng.random() < 0.4:
            run.go([rng.choice(K["chores"])], rng.randint(1, 4), scale=rng.lognormvariate(0, 1))
        if rng.random() < 0.4:
            run.t.copy(rng.randint(1_000, 5_000_000), rng.choice(("HtoD", "DtoH")))
        run.t.host(rng.lognormvariate(6, 1.5))
    return run.program("notebook", "cells", executions=[], is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        speculative_decoding, chunked_prefill, adapters, expert_parallel, executor_steps, reinforcement, segmentation,
        graph_sampling, recommender, state_space, linear_attention, megatron, zero3, fsdp2, accumulation,
        compiled_training, adversarial, distillation, evaluation_between, odd_texts, cut_step, lost_rows, splatting,
        guided_diffusion, detector, conformer, whisper, protein, two_engines, jax_scan, two_instances, sparse_points,
        kernel_benchmark, kernels_only, notebook,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed."""
    return list(FAMILIES.values())[seed % len(FAMILIES)](Random(f"caller {seed}"))
