"""Random programs of known structure, from a seed: a recording, and which kernels are one execution and one layer.

They are made as PyTorch, TensorRT, JAX and C++ programs look in a recording: names, order and grids of kernels come
from real ones. Nothing here knows how structure is found. `FAMILIES` says what there is; `draw` makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from random import Random

import numpy as np

from generators import ranges
from generators.networks import Stack, network
from generators.ranges import Writer
from generators.recorder import NOT_JUDGED, NOTHING, Faults, Graph, Recorder, Truth
from generators.running import Model
from xsp_post.model.trace import ActivityKind, SpanKind, Trace

MOST_KERNELS = 2_600
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Program:
    """One drawn program."""

    seed: int
    family: str
    about: str
    trace: Trace
    truth: Truth

    @property
    def has_structure(self) -> bool:
        """Whether anything repeats at all."""
        return bool(self.truth.kind)


class Draft:
    """A program while it is drawn."""

    def __init__(
        self,
        seed: int,
        family: str,
        dialects: tuple[str, ...],
        *,
        nets: tuple[str, ...] = ("llama", "gpt", "bert"),
        blocks: tuple[int, int] = (2, 14),
        stacks: tuple[str, ...] = ("ampere", "hopper", "turing", "triton"),
        faults: bool = True,
    ) -> None:
        self.seed, self.family = seed, family
        self.rng = rng = Random(f"{family} {seed}")
        self.dialect = rng.choice(dialects)
        kineto = ranges.DIALECTS[self.dialect].is_kineto or (self.dialect == "none" and rng.random() < 0.3)
        self.recorder = Recorder(rng, kineto=kineto, faults=self._faults(rng) if faults else None)
        self.writer = Writer(self.recorder, self.dialect, rng)
        self.stack = Stack(rng.choice(stacks), rng)
        net = network(rng.choice(nets), rng, rng.randint(*blocks))
        self.model = Model(net, self.stack, self.recorder, self.writer, rng)
        self.has_layers = net.are_blocks_equal or self.writer.shown & {"module", "part", "operator"} == {"module"}
        self.more: list[Callable[[np.ndarray], np.ndarray]] = []

    @staticmethod
    def _faults(rng: Random) -> Faults:
        if rng.random() < 0.5:
            return Faults(first_launch_ns=rng.choice((0, 0, 400_000, 5_000_000)))
        return Faults(
            missing=rng.choice((0, 0, 0.002, 0.01)),
            orphan=rng.choice((0, 0, 0.01)),
            extra=rng.choice((0, 0.004)),
            first_launch_ns=rng.choice((0, 300_000)),
        )

    def turns(self, least: int = 3, most: int = 10, *, passes: float = 1.0) -> int:
        """How many executions fit: a pass has some hundred kernels."""
        steps = sum(group.count * len(group.steps) for group in self.model.network.groups)
        return max(least, min(self.rng.randint(least, most), int(MOST_KERNELS / (1.5 * passes * max(steps, 1)))))

    def between(self, *, wait: bool | None = None) -> None:
        """What the host does after an execution."""
        if wait or (wait is None and self.synchronous):
            self.recorder.synchronize()
        self.recorder.wait(self.pause)

    def pace(self) -> None:
        """Whether the host waits for each execution, and how long it pauses."""
        self.synchronous = self.rng.random() < 0.6
        self.pause = self.rng.choice((3_000, 40_000, 400_000))

    def done(self, *, layers: bool | None = None, executions: bool = True) -> Program:
        """The recording and its truth."""
        trace, truth = self.recorder.trace()
        number, layer, part = truth.T
        accepted = [layer]
        if (part > 0).any():
            accepted = [np.where(layer >= 0, 2 * layer + part, layer), layer]
        if layers is None:
            layers = self.has_layers
        if not self.writer.marks_layers:
            names = trace.activities["name_id"].to_numpy()
            accepted = [without_ambiguous(one, names, number, trace) for one in accepted]
        found = Truth(
            [number, *(more(number) for more in self.more)] if executions else [],
            accepted if layers else [],
            self.recorder.kinds,
            self.recorder.warmups,
        )
        shown = ",".join(sorted(self.writer.shown)) or "nothing"
        net = self.model.network
        blocks = "+".join(str(group.count) for group in net.groups)
        about = (
            f"{self.family}: {net.name} ({blocks} blocks) on {self.stack.name}, ranges {self.dialect} ({shown}), "
            f"{len(self.recorder.kinds)} executions, {len(trace.activities)} device rows"
        )
        return Program(self.seed, self.family, about, trace, found)


def without_ambiguous(layer: np.ndarray, names: np.ndarray, execution: np.ndarray, trace: Trace) -> np.ndarray:
    """Layers without the kernels at their ends that the order of names alone cannot tell apart.

    Where the kernel before a run of equal blocks is the one that ends each block, the run may as well begin one
    earlier, and so on; likewise at its end. Those kernels are `NOT_JUDGED`.
    """
    kernels = np.flatnonzero(trace.activities["kind"].to_numpy() == ActivityKind.KERNEL)
    result = layer.copy()
    for number in np.unique(execution[kernels]).tolist():
        rows = kernels[execution[kernels] == number]
        own, name = layer[rows], names[rows]
        starts = np.flatnonzero((own >= 0) & np.append(True, own[1:] != own[:-1]))
        if len(starts) < 2:
            continue
        for sign in (-1, 1):
            first, last = _run(own, starts)
            moved = 0
            while moved < 6:
                edge = first - 1 - moved if sign < 0 else last + 1 + moved
                inside = last - moved if sign < 0 else first + moved
                if not 0 <= edge < len(name) or own[edge] >= 0 or name[edge] != name[inside]:
                    break
                moved += 1
            for k in range(moved):
                ends = np.append(starts[1:] - 1, last) - k if sign < 0 else starts + k
                result[rows[np.clip(ends, 0, len(rows) - 1)]] = NOT_JUDGED
                edge = first - 1 - k if sign < 0 else last + 1 + k
                result[rows[edge]] = NOT_JUDGED
    return result


def _run(own: np.ndarray, starts: np.ndarray) -> tuple[int, int]:
    inside = np.flatnonzero(own >= 0)
    return int(starts[0]), int(inside[-1])


# -- loops of inference ---------------------------------------------------------------------------------------


def _loop(draft: Draft, turns: int, *, scale: float = 1.0) -> None:
    """Passes one after another, the first ones perhaps a warm-up."""
    rng, model, recorder, writer = draft.rng, draft.model, draft.recorder, draft.writer
    draft.pace()
    warm = rng.choice((0, 0, 1, 2)) if turns > 3 else 0
    loads, reads, tunes = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.4
    for turn in range(turns):
        is_warmup = turn < warm
        before = recorder.faults.first_launch_ns
        with writer.step(turn), recorder.execution(is_warmup=is_warmup):
            if loads:
                model.load_batch()
            if is_warmup and tunes and not turn:
                for k in range(rng.randint(8, 60)):  # libraries try their kernels
                    tile = f"{64 << k % 3}x{64 << k % 2}_{k % 7}"
                    recorder.kernel(f"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{tile}_tn>(Params)", 30_000)
            model.forward(scale=scale)
            if reads:
                model.sample()
        recorder.faults.first_launch_ns = before if not turn else 0
        draft.between()
        if rng.random() < 0.1:
            recorder.wait(2_000_000)
    _tail(draft)


def _tail(draft: Draft) -> None:
    """Now and then a last step that the recording cut before it launched anything."""
    if draft.rng.random() < 0.15 and "step" in draft.writer.shown:
        with draft.writer.step(97):
            draft.recorder.wait(30_000)


def inference_loop(seed: int) -> Program:
    """Passes of one network in a loop."""
    draft = Draft(seed, "inference loop", ranges.INFERENCE)
    if draft.rng.random() < 0.4:
        draft.model.prepare()
    _loop(draft, draft.turns(3, 12))
    return draft.done()


def convolutions(seed: int) -> Program:
    """Passes of a convolution network: its blocks differ from each other."""
    draft = Draft(
        seed, "convolution network", ranges.INFERENCE, nets=("resnet",), stacks=("ampere", "hopper", "turing")
    )
    _loop(draft, draft.turns(3, 8))
    return draft.done()


def other_networks(seed: int) -> Program:
    """State-space and encoder-decoder networks in a loop."""
    draft = Draft(seed, "encoder and decoder", ranges.INFERENCE, nets=("t5", "t5", "mamba"), blocks=(3, 10))
    _loop(draft, draft.turns(3, 8))
    return draft.done()


def single_call(seed: int) -> Program:
    """One call of a network, perhaps after its weights were made."""
    draft = Draft(seed, "single call", ranges.INFERENCE, blocks=(6, 24))
    if draft.rng.random() < 0.5:
        draft.model.prepare()
    draft.recorder.synchronize()
    draft.recorder.wait(3_000_000)
    with draft.writer.step(0), draft.recorder.execution():
        draft.model.forward()
    return draft.done()


def tokens(seed: int) -> Program:
    """One range a token, with a numbered one for each layer inside: a number that grows, one that cycles."""
    draft = Draft(
        seed,
        "tokens and layers",
        ("tokens", "tokens", "decode_steps", "none", "counters"),
        nets=("llama", "gpt"),
        blocks=(4, 8),
        stacks=("llama_cpp", "llama_cpp", "hopper"),
    )
    writer = draft.writer
    if draft.dialect in ("tokens", "decode_steps"):
        writer.shown |= {"step", "module"}
        writer.shown -= {"root"}
        writer.first = 0
    draft.pace()
    count = draft.rng.choice((8, 16, 32, 64)) if draft.stack.name == "llama_cpp" else draft.turns(6, 16)
    count = min(
        count, max(6, 4 * MOST_KERNELS // (3 * sum(len(g.steps) * g.count for g in draft.model.network.groups)))
    )
    samples = draft.rng.random() < 0.6
    with draft.model.around(draft.rng.choice(("", "", "generate", "main"))):
        for turn in range(count):
            with writer.step(turn), draft.recorder.execution("decode"):
                draft.model.forward()
                if samples:
                    draft.model.sample()
            draft.between()
    return draft.done()


def experts(seed: int) -> Program:
    """Mixture of experts: which experts run differs from layer to layer and from step to step."""
    draft = Draft(
        seed,
        "mixture of experts",
        ranges.INFERENCE,
        nets=("llama",),
        blocks=(3, 8),
        faults=False,
        stacks=("ampere", "hopper", "turing"),
    )
    draft.model.experts = draft.rng.choice((4, 8, 8, 16))
    draft.model.experts_used = draft.rng.randint(2, 5)
    _loop(draft, draft.turns(3, 6, passes=3))
    return draft.done()


def outermost(seed: int) -> Program:
    """A range around everything, and phases of the program (warm-up, measured) that hold several passes each."""
    draft = Draft(seed, "ranges around loops", ranges.INFERENCE)
    rng, model = draft.rng, draft.model
    draft.pace()
    with model.around(rng.choice(("main", "benchmark", "Run Benchmark", "inference_session"))):
        with model.around(rng.choice(("", "load model", "setup"))):
            model.prepare()
        warm = rng.randint(0, 2)
        total = draft.turns(4, 10)
        number = 0
        for text, count in (
            (rng.choice(("warmup", "Warm-up")), warm),
            (rng.choice(("benchmark_loop", "timed", "")), total - warm),
        ):
            with model.around(text if count else ""):
                for _ in range(count):
                    with draft.writer.step(number), draft.recorder.execution(is_warmup=number < warm):
                        model.forward()
                    draft.between()
                    number += 1
            draft.recorder.synchronize()
    return draft.done()


def stages(seed: int) -> Program:
    """Sibling ranges that come in the same order once a frame, with nothing around a frame."""
    draft = Draft(seed, "stages of a frame", ("none",), nets=("bert", "gpt"), blocks=(3, 6))
    rng, model, recorder = draft.rng, draft.model, draft.recorder
    texts = rng.choice(
        (
            ("reader", "3D_backbone", "bbox_head", "post_processing"),
            ("preprocess", "inference", "postprocess"),
            ("decode_image", "encoder", "decoder", "nms"),
            ("data_loading", "model", "metrics"),
        )
    )
    draft.pace()
    heavy = rng.randrange(1, len(texts) - 1) if len(texts) > 3 else 1
    for _ in range(draft.turns(4, 12)):
        with recorder.execution():
            for place, text in enumerate(texts):
                with model.around(text):
                    if place == heavy:
                        model.forward()
                    elif place == 0:
                        model.load_batch()
                        recorder.wait(100_000)
                    else:
                        for k in range(rng.randint(2, 6) if place % 2 else 4):
                            recorder.kernel(f"void {text}_kernel_{k}<float>(float*)", 9_000, grid=16)
        draft.between()
    return draft.done(layers=True)


# -- serving --------------------------------------------------------------------------------------------------


def serving(seed: int) -> Program:
    """Prefills and decodes of varying size: kinds of one thing."""
    draft = Draft(
        seed,
        "serving",
        ("vllm", "sglang", "sglang", "none", "counters", "hooks", "iteration"),
        nets=("llama",),
        blocks=(4, 12),
        stacks=("hopper",),
    )
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.synchronous, draft.pause = True, rng.choice((20_000, 150_000))
    turn = 0
    for _ in range(rng.randint(1, 3)):
        count = max(3, draft.turns(4, 10) // 2)
        for place in range(count + 1):
            is_prefill, batch = place == 0, rng.choice((1, 4, 8, 16))
            size = rng.choice((256, 1024, 4096)) if is_prefill else batch
            fields = {
                "mode": "EXTEND" if is_prefill else "DECODE",
                "batch": 0 if is_prefill else batch,
                "tokens": size,
                "context": int(is_prefill),
            }
            fields["batch"] = batch if draft.dialect == "sglang" else fields["batch"]
            with draft.writer.step(turn, **fields), recorder.execution("prefill" if is_prefill else "decode"):
                if is_prefill:
                    model.load_batch()
                model.forward(scale=16.0 if is_prefill else 1.0)
                model.sample()
            draft.between()
            turn += 1
    return draft.done()


def replays(seed: int) -> Program:
    """A CUDA graph is captured, then replayed: its nodes are visible, or one row stands for all."""
    draft = Draft(
        seed,
        "replays of a graph",
        ("none", "none", "iteration", "sglang", "hooks", "kineto_operators"),
        nets=("llama", "gpt"),
        blocks=(4, 12),
        stacks=("hopper", "triton"),
        faults=False,
    )
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.synchronous, draft.pause = True, rng.choice((20_000, 200_000))
    opaque = rng.random() < 0.4
    draft.writer.shown -= {"module", "part", "root", "operator"}
    nodes = []
    net = model.network
    parts = [
        (net.before, "before", -1),
        *((group.steps, group.path, k) for group in net.groups for k in range(group.count)),
        (net.after, "after", -1),
    ]
    for steps, place, layer in parts:
        for spot, (_, _, _, what) in enumerate(steps):
            nodes += [(k.name, k.ns, k.grid, k.block, layer) for k in draft.stack.forward(what, f"{place}/{spot}")]
    graph = Graph(rng.randint(1, 40), 4_000, nodes)
    if rng.random() < 0.4:
        model.prepare()
        recorder.synchronize()
    warm = rng.choice((0, 0, 1, 3))
    for turn in range(warm + draft.turns(4, 14)):
        fields = {"mode": "DECODE", "batch": 8, "tokens": 8, "context": 0}
        with draft.writer.step(turn, **fields), recorder.execution("decode", is_warmup=turn < warm):
            model.load_batch()
            if turn < warm:
                model.forward()
            else:
                recorder.graph_launch(graph, opaque=opaque)
            if not draft.seed % 3:
                model.sample()
        draft.between()
    return draft.done(layers=not opaque)


# -- training -------------------------------------------------------------------------------------------------


def _train(
    draft: Draft,
    turns: int,
    *,
    micro: int = 1,
    process: int = 0,
    loader: bool = False,
    reduce: str = "",
    own_thread: bool = True,
) -> None:
    """Steps of training: forward, backward on the engine's thread, the optimiser."""
    rng, model, recorder, writer = draft.rng, draft.model, draft.recorder, draft.writer
    draft.pace()
    updates = rng.randint(1, 8)
    main = recorder.here
    engine = recorder.add_thread(process, 0, f"pt_autograd_{process}") if own_thread else main
    zero_first = rng.random() < 0.5
    micros: list[int] = []
    for turn in range(turns):
        with ExitStack() as held:
            if loader:
                with recorder.execution("training step") as number:
                    pass
                with model.around("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                    recorder.wait(rng.randint(100_000, 900_000))
                held.enter_context(recorder.labelled(execution=number))
            else:
                held.enter_context(writer.step(turn))
                held.enter_context(recorder.execution("training step", is_warmup=False))
            if zero_first:
                model.zero_grad()
            for _ in range(micro):
                micros.append(len(recorder.truth))
                model.load_batch()
                with writer.phase("forward"):
                    done = model.forward()
                    done += model.loss()
                with writer.phase("backward"):
                    model.backward(done, engine, reduce=reduce)
            model.optimizer(updates)
            if not zero_first:
                model.zero_grad()
        draft.between()
    _tail(draft)


def training(seed: int) -> Program:
    """Forward, backward on a thread of its own, and the optimiser."""
    draft = Draft(seed, "training", ranges.TRAINING, blocks=(2, 8), stacks=("ampere", "hopper", "turing"))
    if draft.rng.random() < 0.3:
        draft.model.prepare()
    _train(draft, draft.turns(3, 6, passes=2.5))
    return draft.done()


def accumulation(seed: int) -> Program:
    """Several passes and gradients before the weights are updated: one execution."""
    draft = Draft(
        seed,
        "gradient accumulation",
        ("kineto", "kineto_operators", "iteration", "emit_nvtx_steps", "bare", "megatron"),
        blocks=(2, 4),
        stacks=("ampere", "hopper"),
    )
    draft.writer.shown.add("step")
    _train(draft, draft.turns(3, 4, passes=6), micro=draft.rng.randint(2, 4))
    return draft.done()


def data_loading(seed: int) -> Program:
    """`DataLoader … Optimizer.step`, and no marker of a step."""
    draft = Draft(
        seed,
        "data loading",
        ("kineto_operators", "kineto", "kineto_annotations"),
        blocks=(2, 6),
        nets=("bert", "gpt", "resnet"),
        stacks=("ampere", "hopper", "turing"),
    )
    draft.writer.shown -= {"step"}
    draft.writer.shown |= {"phase"}
    _train(draft, draft.turns(3, 5, passes=2.5), loader=True)
    return draft.done()


def compiled(seed: int) -> Program:
    """torch.compile: `CompiledFunction` is forward, `CompiledFunctionBackward` backward, whole."""
    draft = Draft(seed, "compiled training", ("kineto_operators", "none"), blocks=(3, 8), stacks=("triton",))
    draft.writer.shown -= {"operator", "phase"}
    rng, model, recorder, writer = draft.rng, draft.model, draft.recorder, draft.writer
    draft.pace()
    engine = recorder.add_thread(0, 0, "pt_autograd_0")
    named = draft.dialect != "none"
    kind = SpanKind.OPERATOR
    for turn in range(draft.turns(3, 6, passes=2.5)):
        with writer.step(turn), recorder.execution("training step"):
            with (
                recorder.span("Torch-Compiled Region: 0/0" if named else "", kind),
                recorder.span("CompiledFunction" if named else "", kind),
            ):
                done = model.forward() + model.loss()
            if named:
                with (
                    recorder.on(engine),
                    recorder.span("autograd::engine::evaluate_function: CompiledFunctionBackward", kind),
                    recorder.span("CompiledFunctionBackward", kind),
                ):
                    model.backward(done, engine)
            else:
                model.backward(done, engine)
            model.optimizer(rng.randint(1, 3))
        draft.between()
    return draft.done()


def ranks(seed: int) -> Program:
    """Two processes train together: one execution per rank and step; or one step with named parts and no range."""
    draft = Draft(
        seed,
        "two ranks",
        ("kineto_operators", "iteration", "none", "hooks", "emit_nvtx", "bare"),
        blocks=(2, 5),
        stacks=("ampere", "hopper"),
    )
    turns = draft.turns(3, 5, passes=5)
    begin = draft.recorder.now
    _train(draft, turns, reduce=_NCCL)
    process = draft.recorder.process("python3", at=begin + draft.rng.randint(0, 200_000))
    _train(draft, turns, process=process, reduce=_NCCL)
    return draft.done()


def phases_only(seed: int) -> Program:
    """`forward pass` and `backward pass` with nothing around them: together one step."""
    draft = Draft(seed, "phases without steps", ("iteration",), blocks=(2, 6), stacks=("ampere", "hopper"))
    draft.writer.shown = {"phase"}
    texts = draft.rng.choice(
        (
            ("forward pass", "backward pass", "optimizer step"),
            ("forward", "backward", "optimizer"),
            ("fwd", "bwd", "opt"),
        )
    )
    draft.writer.dialect = ranges.Dialect(phase="{what}", phases=dict(zip(("forward", "backward", "optimizer"), texts)))
    _train(draft, draft.turns(1, 5, passes=2.5), own_thread=draft.rng.random() < 0.7)
    return draft.done()


# -- other programs -------------------------------------------------------------------------------------------


def streams(seed: int) -> Program:
    """Passes whose copies and a second part run on streams of their own."""
    draft = Draft(seed, "several streams", ranges.INFERENCE, blocks=(2, 8))
    rng, model, recorder = draft.rng, draft.model, draft.recorder
    draft.pace()
    side = [(f"void side_stage_{k}<float>(float*, int)", rng.randint(4_000, 60_000)) for k in range(rng.randint(4, 20))]
    for turn in range(draft.turns(4, 10)):
        with draft.writer.step(turn), recorder.execution():
            model.load_batch(stream=14)
            model.forward()
            with model.around(rng.choice(("", "postprocess"))) if draft.writer.shown else model.around(""):
                for name, ns in side:
                    recorder.kernel(name, ns, stream=15)
        draft.between()
    return draft.done()


def beside(seed: int) -> Program:
    """A loop, and something else in the recording: another process, or threads that load data."""
    draft = Draft(seed, "something beside it", ranges.INFERENCE, blocks=(2, 10))
    rng, recorder = draft.rng, draft.recorder
    begin = recorder.now
    main = recorder.here
    _loop(draft, draft.turns(4, 10))
    end = recorder.now
    if rng.random() < 0.5:
        recorder.process(rng.choice(("Xorg", "gnome-shell", "python3")), at=begin)
    else:
        recorder.here = recorder.add_thread(0, begin, "loader")
    with recorder.labelled(NOT_JUDGED, NOT_JUDGED):
        count = rng.randint(5, 40)
        for _ in range(count):
            recorder.wait((end - begin) // (count + 1) + rng.randint(0, 20_000))
            with recorder.span(rng.choice(("load sample", "")), spent=2_000):
                recorder.kernel(f"void composite_{rng.randint(0, 3)}(float4*)", 5_000, stream=33)
    recorder.here = main
    return draft.done()


def time_steps(seed: int) -> Program:
    """A simulation in C++: time steps of kernels and sweeps, no layers."""
    draft = Draft(seed, "time steps", ("none", "none", "iteration", "bare"), nets=("gpt",))
    rng, recorder = draft.rng, draft.recorder
    draft.writer.shown &= {"step"}
    draft.pace()
    words = rng.sample(
        (
            "ideal_gas",
            "viscosity",
            "calc_dt",
            "pdv",
            "accelerate",
            "flux_calc",
            "advec_cell",
            "advec_mom",
            "revert",
            "reset_field",
            "halo",
            "pack",
            "unpack",
            "reduce_sum",
            "stencil7",
            "rhs",
        ),
        rng.randint(8, 14),
    )
    body = [f"{word}_kernel{'_x' if k % 2 else '_y'}(int, int, double const*)" for k, word in enumerate(words)]
    order = [rng.choice(body) for _ in range(rng.randint(30, 120))]
    swapped = order[: len(order) // 3] + order[len(order) // 3 :][::-1] if rng.random() < 0.4 else order
    lengths = {name: rng.randint(8_000, 200_000) for name in body}
    for turn in range(rng.randint(6, 20)):
        with draft.writer.step(turn), recorder.execution("time step"):
            for name in order if turn % 2 else swapped:
                recorder.kernel(name, lengths[name], grid=512)
            if rng.random() < 0.5:
                recorder.copy(8, to_host=True)
        draft.between()
    program = draft.done(layers=False)
    program.truth.layers = [np.full(len(program.trace.activities), NOTHING)] if not draft.seed % 2 else []
    return program


def tensorrt(seed: int) -> Program:
    """`ExecutionContext::enqueue` with ranges of ONNX nodes inside, or without."""
    draft = Draft(seed, "TensorRT", ("tensorrt",), nets=("bert", "gpt"), blocks=(2, 8), stacks=("turing", "hopper"))
    if draft.rng.random() < 0.4:
        draft.writer.shown -= {"part"}
    _loop(draft, draft.turns(4, 12))
    return draft.done(layers="part" not in draft.writer.shown)


def jax(seed: int) -> Program:
    """XLA modules and thunks: names of fusions are numbered, in a loop of layers or unrolled."""
    draft = Draft(seed, "JAX", ("jax", "none"), nets=("gpt",), blocks=(3, 8), faults=False)
    rng, recorder = draft.rng, draft.recorder
    draft.pace()
    count = draft.model.network.groups[0].count
    scanned, thunks = rng.random() < 0.5, draft.dialect == "jax" and rng.random() < 0.6
    shape = [
        rng.choice(("loop_add_fusion", "input_reduce_fusion", "loop_multiply_fusion", "gemm", "loop_transpose_fusion"))
        for _ in range(rng.randint(7, 14))
    ]
    layer_names: list[list[str]] = []
    for layer in range(count):
        names = [
            f"{word}_{k + (0 if scanned else layer * len(shape))}"
            if word != "gemm"
            else rng.choice(("cublasLt_gemm", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4"))
            for k, word in enumerate(shape)
        ]
        layer_names.append(names if not scanned or not layer else layer_names[0])
    lengths = [rng.randint(4_000, 90_000) for _ in shape]

    def thunk(name: str) -> AbstractContextManager[None]:
        text = f"Thunk:#name=jit(train_step)/jvp(main)/{name},hlo_op={name.replace('_', '.', 1)}#" if thunks else ""
        return recorder.span(text, domain="TSL", spent=200)

    for turn in range(draft.turns(4, 10)):
        with draft.writer.step(turn), recorder.execution(), draft.writer.root("train_step"):
            for name in ("loop_convert_fusion", "gather_fusion"):
                with thunk(name):
                    recorder.kernel(name, 9_000)
            for names in layer_names:
                with recorder.layer():
                    for name, ns in zip(names, lengths):
                        with thunk(name):
                            recorder.kernel(name, ns)
            with thunk("input_reduce_fusion_999"):
                recorder.kernel("input_reduce_fusion_999", 5_000)
        draft.between()
    return draft.done(layers=scanned and not thunks)


def noise(seed: int) -> Program:
    """Nothing repeats: whatever is found is invented."""
    draft = Draft(seed, "noise", ("none", "none", "none", "bare"), nets=("gpt",))
    rng, recorder = draft.rng, draft.recorder
    draft.writer.shown.clear()
    recorder.now_in = (NOTHING, NOTHING, 0)
    form = rng.choice(("uniform", "skewed", "runs", "few"))
    kinds = rng.randint(4, 60)
    names = [f"void user_kernel_{k}<float>(float*, int)" for k in range(kinds)]
    number = 0
    for _ in range(rng.randint(60, 2_000)):
        if form == "uniform":
            number = rng.randrange(kinds)
        elif form == "skewed":
            number = min(int(rng.expovariate(0.4)), kinds - 1)
        elif form == "runs" and rng.random() < 0.3:
            number = rng.randrange(kinds)
        elif form == "few":
            number = rng.randrange(3)
        recorder.kernel(names[number], rng.randint(3_000, 60_000), grid=rng.choice((1, 16, 80, 200)))
        if rng.random() < 0.03:
            recorder.copy(rng.randint(4, 900_000))
        if rng.random() < 0.02:
            recorder.wait(rng.randint(10_000, 900_000))
    program = draft.done(layers=True)
    program.about = f"noise: {form}, {kinds} kernels, {len(program.trace.activities)} device rows"
    return program


FAMILIES: dict[str, Callable[[int], Program]] = {
    "inference loop": inference_loop,
    "tokens and layers": tokens,
    "training": training,
    "serving": serving,
    "noise": noise,
    "mixture of experts": experts,
    "replays of a graph": replays,
    "encoder and decoder": other_networks,
    "ranges around loops": outermost,
    "two ranks": ranks,
    "data loading": data_loading,
    "JAX": jax,
    "convolution network": convolutions,
    "stages of a frame": stages,
    "gradient accumulation": accumulation,
    "several streams": streams,
    "compiled training": compiled,
    "something beside it": beside,
    "time steps": time_steps,
    "TensorRT": tensorrt,
    "single call": single_call,
    "phases without steps": phases_only,
}


def draw(seed: int) -> Program:
    """The program of a seed; seeds go through the families in turn."""
    families = list(FAMILIES.values())
    return families[seed % len(families)](seed)
