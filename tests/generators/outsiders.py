"""Programs that are not a model in PyTorch: engines in C++, compilers, solvers, pipelines, with the truth about them.

Run on `generators.machine`; kernels come from outsider_kernels.txt. What its owner would call one execution is
listed: a time step with inner iterations is run per step and per iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random

from generators.machine import Machine, Program, Thread, cut, kernels_of, lose

KERNELS = kernels_of("outsider_kernels.txt")


class Play:
    """A program being drawn: chance, machine, main thread."""

    def __init__(self, rng: Random, name: str = "main", pid: int = 4_000) -> None:
        self.rng = rng
        self.m = Machine(rng, pid=pid, jitter=rng.choice((0.02, 0.08)), launch_us=rng.choice((2.5, 4.0, 6.0)))
        self.h, self.number = self.m.thread(name=name), 0

    def run(
        self, block: str, h: Thread | None = None, scale: float = 1.0, part: slice = slice(None), stream: int = 7
    ) -> None:
        for name, us in KERNELS[block][part]:
            (h or self.h).launch(name, us * scale, grid=max(1, int(2 * us * scale)), stream=stream)
            (h or self.h).host(1.0)

    def layer(self, block: str, h: Thread | None = None, text: str = "", scale: float = 1.0, domain: str = "") -> None:
        h = h or self.h
        with h.mark(layer=self.m.group()), h.range(text, domain=domain) if text else nullcontext():
            self.run(block, h, scale)

    def range(self, text: str, h: Thread | None = None, domain: str = "") -> AbstractContextManager[None]:
        return (h or self.h).range(text, domain=domain) if text else nullcontext()

    def next(self, label: str = "run", **more: int) -> AbstractContextManager[None]:
        self.number += 1
        return self.h.mark(**{label: self.number}, **more)

    def odds(self, share: float) -> bool:
        return self.rng.random() < share


def ggml(p: Play) -> Program:
    """llama.cpp: a prompt in one or two batches, then tokens, as launches or as graphs; several prompts."""
    layers, graphs, h = p.rng.choice((12, 16, 24)), p.odds(0.4), p.h
    for _ in range(p.rng.randint(1, 3)):
        for _ in range(p.rng.randint(1, 2)):
            with p.next():
                p.run("ggml_first")
                for k in range(layers):
                    p.layer("ggml_prompt")
                    if k == layers - 1:
                        p.run("ggml_first")
                p.run("ggml_last")
                h.copy(128_000 * 4, "DtoH")
        for token in range(p.rng.randint(8, 20)):
            with p.next():
                h.copy(4096)
                if graphs and token > 1:
                    nodes, marks = list(KERNELS["ggml_first"]), [{}]
                    for _ in range(layers):
                        nodes += KERNELS["ggml_token"]
                        marks += [{"layer": p.m.group()}] * len(KERNELS["ggml_token"])
                    nodes += KERNELS["ggml_last"]
                    h.graph(nodes, node_base=3 << 32, marks=marks + [{}] * len(KERNELS["ggml_last"]))
                else:
                    p.run("ggml_first")
                    for _ in range(layers):
                        p.layer("ggml_token")
                    p.run("ggml_last")
                h.copy(128_000 * 4, "DtoH")
                h.sync(7)
            h.host(p.rng.uniform(100, 400))
    return Program("llama.cpp", [p.m], ["run"], ["layer"], about=f"{graphs=}")


def tensorrt(p: Play) -> Program:
    """Enqueues with a range per layer, or without; a transformer of Myelin, or convolutions."""
    h, says, myelin, blocks = p.h, p.odds(0.6), p.odds(0.6), p.rng.randint(6, 16)
    engines = 1 if p.odds(0.7) else 2
    for _ in range(p.rng.randint(6, 15)):
        with p.next("frame"):
            for engine in range(engines):
                h.copy(600_000)
                with p.next(), p.range("ExecutionContext::enqueue" if says else "", domain="TensorRT"):
                    p.layer("trt_first", text="Reformatting CopyNode for Input Tensor 0" if says else "")
                    for k in range(blocks - 2 * engine):
                        text = (
                            f"/model/layers.{k}/conv/Conv + /act/Relu"
                            if not myelin
                            else f"{{ForeignNode[/blocks.{k}]}}"
                        )
                        p.layer("trt_block" if myelin else "trt_conv", text=text if says else "", domain="TensorRT")
                    p.layer("trt_last", text="PWN(/head/Sigmoid)" if says else "")
                h.copy(40_000, "DtoH")
                h.sync(7)
        h.host(p.rng.choice((20, 800)))
    judged = ["layer"] if says or (myelin and engines == 1) else []
    return Program("TensorRT", [p.m], ["run", "frame"], judged, about=f"{says=} {myelin=} {engines=}")


def onnx(p: Play) -> Program:
    """ONNX Runtime: SequentialExecutor and a range per node, or only the session's run, or nothing."""
    h, says, layers = p.h, p.rng.choice(("nodes", "run", "")), p.rng.randint(4, 12)
    ops = ("MatMul", "Attention", "Attention_core", "MatMul", "SkipLayerNormalization", "MatMul", "BiasGelu", "MatMul",
           "SkipLayerNormalization")  # fmt: skip
    for request in range(p.rng.randint(6, 12)):
        scale = p.rng.choice((0.5, 1, 2)) if p.odds(0.5) else 1.0
        text = {"nodes": f"Batch-{request} Forward", "run": "model_run", "": ""}[says]
        with p.next():
            h.copy(8_192)
            with p.range(text), p.range("SequentialExecutor::Execute" if says == "nodes" else ""):
                p.run("ort_first", scale=scale)
                for k in range(layers):
                    with h.mark(layer=p.m.group()):
                        for number, op in enumerate(ops):
                            node = f"{op}./bert/encoder/layer.{k}/{op}_{number}" if says == "nodes" else ""
                            with h.mark(node=p.m.group()), p.range(node):
                                p.run("ort_block", scale=scale, part=slice(number, number + 1))
                p.run("ort_last", scale=scale)
            h.copy(4_096, "DtoH")
        h.host(p.rng.uniform(50, 900))
    return Program(
        "ONNX Runtime", [p.m], ["run"], ["layer", "node"] if says == "nodes" else ["layer"], about=f"{says=}"
    )


def xla(p: Play) -> Program:
    """JAX: modules of a step and of small helpers beside it, thunks or not, layers in a loop; training or not."""
    h, train, blocks = p.m.thread(3, name="py_xla_execute"), p.odds(0.6), p.rng.randint(4, 12)
    says, thunks, evals = p.odds(0.7), p.odds(0.4), p.odds(0.4)

    def module(name: str, number: int) -> AbstractContextManager[None]:
        return p.range(f"XlaModule:#hlo_module={name},program_id={number}#" if says else "", h, "TSL")

    def thunk(kind: str) -> str:
        return f"Thunk:#hlo_op={kind},hlo_module=jit_step#" if says and thunks else ""

    for step in range(p.rng.randint(6, 12)):
        if says and p.odds(0.5):
            with module("jit_convert_element_type", 3):
                p.run("xla_first", h, 0.1, slice(0, 1))
        with p.next(), module("jit_train_step" if train else "jit_apply", 7):
            p.run("xla_first", h)
            for k in range(blocks):
                p.layer("xla_block", h, thunk(f"while.body.{k}"))
            p.run("xla_last", h)
            if train:
                for k in range(blocks):
                    p.layer("xla_back", h, thunk(f"while.body.{k}.transpose"))
                p.run("xla_update", h)
        if evals and step % 4 == 3:
            for _ in range(2):
                with p.next(), module("jit_eval_step", 9):
                    p.run("xla_first", h)
                    for k in range(blocks):
                        p.layer("xla_block", h, thunk(f"eval.{k}"))
                    p.run("xla_last", h)
        h.host(p.rng.choice((30, 300)))
    return Program("XLA", [p.m], ["run"], ["layer"], about=f"{train=} {says=} {thunks=} {evals=}")


def tensorflow(p: Play) -> Program:
    """TensorFlow: executor threads, a range per operator or none; a step of training, its loss fetched."""
    pool, says, layers = [p.m.thread(20 + k, name="tf_Compute") for k in range(2)], p.odds(0.5), p.rng.randint(4, 9)
    now = p.h.now
    for _ in range(p.rng.randint(7, 12)):
        h = pool[0] if p.odds(0.7) else pool[1]
        h.wait_until(now)
        with p.next():
            h.copy(1_000_000)
            for k in range(layers):
                with p.range(f"MatMul: model/dense_{k}/MatMul" if says else "", h):
                    p.run("tf_layer", h)
            with p.range("SparseSoftmaxCrossEntropyWithLogits: loss" if says else "", h):
                p.run("tf_layer", h, 0.3, slice(2, 3))
            for k in range(layers):
                with p.range(f"MatMul: gradient_tape/model/dense_{layers - k}/MatMul" if says else "", h):
                    p.run("tf_grad", h)
            for k in range(2 * layers):
                with p.range(f"ResourceApplyAdam: Adam/update_{k}" if says else "", h):
                    p.run("tf_update", h)
            h.copy(4, "DtoH")
        now = h.now + p.rng.randint(100_000, 900_000)
    return Program("TensorFlow", [p.m], ["run"], about=f"{says=}")


def solver(p: Play) -> Program:
    """Time steps of a flow solver: matrix assembled, conjugate gradients until they converge, state advanced."""
    h, says, check = p.h, p.rng.choice(("", "step", "phases")), p.rng.choice((1, 5, 10))
    usual = p.rng.randint(15, 40)
    for step in range(p.rng.randint(4, 8)):
        with h.mark(step=step), p.range(f"Timestep {step}" if says else ""):
            with p.range("assemble" if says == "phases" else ""):
                p.run("assemble")
            with p.range("cg_solve" if says == "phases" else ""):
                for k in range(usual + p.rng.randint(-4, 4)):
                    with p.next("iteration"):
                        p.run("cg")
                        if k % check == check - 1:
                            h.copy(8, "DtoH")
            with p.range("advance" if says == "phases" else ""):
                p.run("advance")
            h.sync()
    accepted = ["step"] if says else ["iteration", "step"]
    return Program("solver", [p.m], accepted, about=f"{says=} {check=}")


def stencil(p: Play) -> Program:
    """Two ranks, each on a device: halo packed, exchanged; boundary and interior on two streams; a norm at times."""
    every, says, plays = p.rng.choice((8, 20)), p.odds(0.4), [p, Play(p.rng, "main", 5_000)]
    plays[1].m.device = 1
    steps = p.rng.randint(40, 80)
    for rank, one in enumerate(plays):
        for step in range(steps):
            with one.h.mark(step=1000 * rank + step), one.range("iteration" if says else ""):
                one.run("halo", part=slice(0, 2), stream=13)
                one.run("halo", part=slice(2, 3), stream=14)
                one.h.copy(65_536, "DtoD", stream=13)
                one.run("halo", part=slice(3, 4), stream=13)
                if step % every == every - 1:
                    one.run("cg", part=slice(1, 3), stream=14)
                    one.h.copy(8, "DtoH", stream=14)
                one.h.sync(14)
    return Program("stencil", [one.m for one in plays], ["step"], about=f"{says=}")


def rapids(p: Play) -> Program:
    """cuML's k-means, fit by fit, or queries of a data frame; ranges of the library or none."""
    h, says = p.h, p.odds(0.6)
    if p.odds(0.5):
        for fit in range(p.rng.randint(2, 4)):
            with h.mark(fit=fit), p.range("cuml::kmeans::fit" if says else "", domain="cuml"):
                h.copy(20_000_000)
                for _ in range(p.rng.randint(10, 25)):
                    with p.next():
                        p.run("kmeans")
                        h.item()
        return Program("k-means", [p.m], ["fit", "run"] if says else ["run", "fit"], about=f"{says=}")
    for query in range(p.rng.randint(5, 9)):
        with h.mark(query=query), p.range(f"query_{query}" if says else ""):
            for number in range(6):
                text = ("read_parquet", "valid_if", "inner_join", "sort", "groupby", "gather")[number]
                with p.range(text if says else "", domain="libcudf"):
                    for _ in range(p.rng.choice((3, 3, 4))):
                        p.run("query", part=slice(number, number + 1))
            h.copy(100_000, "DtoH")
        h.host(1_500)
    return Program("data frame", [p.m], ["query"], about=f"{says=}")


def loops(p: Play) -> Program:
    """Numba, OpenACC, OpenMP or Julia: time steps of a few kernels, output at times; sub-steps of Runge-Kutta."""
    h, which = p.h, p.rng.choice(("numba", "openacc", "omp", "julia"))
    stages, every = (4 if which == "julia" else p.rng.choice((1, 1, 2))), p.rng.choice((5, 10, 1000))
    says = p.odds(0.3)
    for step in range(p.rng.randint(15, 40)):
        with h.mark(step=step), p.range(f"step {step}" if says else ""):
            for _ in range(stages):
                with p.next("stage"):
                    p.run(which)
            if step % every == every - 1:
                h.copy(1_000_000, "DtoH")
            if which == "numba":
                h.sync()
    return Program(which, [p.m], ["step"] if says or stages == 1 else ["step", "stage"], about=f"{stages=} {says=}")


def video(p: Play) -> Program:
    """Frames: decoded, resized, detected by a TensorRT engine, tracked; in one thread or in two, in batches or not."""
    h, says, layers, batch = p.h, p.odds(0.5), p.rng.randint(8, 20), p.rng.choice((1, 1, 4))
    other = p.m.thread(5, name="pre_process") if p.odds(0.4) else h
    for frame in range(p.rng.randint(8, 16)):
        with h.mark(frame=frame):
            other.wait_until(h.now - 200_000)
            with p.range(f"preprocess frame={frame}" if says else "", other):
                for _ in range(batch):
                    p.run("decode", other, stream=7 if other is h else 20)
            h.wait_until(other.now)
            with p.range(f"infer frame={frame}" if says else ""):
                p.run("trt_first")
                for _ in range(layers):
                    p.run("trt_conv")
                p.run("trt_last")
            with p.range(f"postprocess frame={frame}" if says else ""):
                for _ in range(batch):
                    p.run("nms")
                h.copy(8_000, "DtoH")
                if frame % 3 == 0:
                    p.run("track")
            h.sync()
        h.host(p.rng.choice((100, 2_000)))
    return Program("video", [p.m], ["frame"], about=f"{says=} {batch=} threads={2 if other is not h else 1}")


def diffusion(p: Play) -> Program:
    """Images: a text encoder once, steps of a U-Net, the decoder; ranges of a TensorRT demo or none."""
    h, says, steps, depth, rounds = p.h, p.odds(0.5), p.rng.randint(10, 20), p.rng.randint(3, 6), p.rng.randint(1, 3)
    for image in range(rounds):
        with h.mark(image=image):
            with p.next(), p.range("clip" if says else ""):
                p.run("ort_first")
                for _ in range(6):
                    p.layer("ort_block", scale=0.4)
            with p.range("denoise" if says else ""):
                for _ in range(steps):
                    with p.next(), p.range("denoise_step/unet" if says and steps % 2 else ""):
                        p.run("trt_first")
                        for level in (1.0, 0.6, 0.4, 0.6, 1.0):
                            for _ in range(depth):
                                p.layer("unet_res", scale=level)
                                p.layer("unet_attn", scale=level)
                        p.run("trt_last")
                    h.host(60)
            with p.next(), p.range("vae" if says else ""):
                for _ in range(depth + 2):
                    p.layer("unet_res", scale=4)
                h.copy(800_000, "DtoH")
        h.host(3_000)
    return Program("diffusion engine", [p.m], ["run", "image"] if rounds > 1 else ["run"], about=f"{says=}")


def speech(p: Play) -> Program:
    """CTranslate2: an encoder, then a decoder with a beam, token by token; segments one after another."""
    h, encoder, decoder = p.h, p.rng.randint(6, 10), p.rng.randint(4, 8)
    for segment in range(p.rng.randint(2, 4)):
        with h.mark(segment=segment):
            with p.next():
                h.copy(960_000)
                p.run("trt_first", scale=3)
                for _ in range(encoder):
                    p.layer("ct2_block", scale=3)
            for _ in range(p.rng.randint(8, 20)):
                with p.next():
                    p.run("ort_first", part=slice(0, 1))
                    for _ in range(decoder):
                        with h.mark(layer=p.m.group()):
                            p.run("ct2_block", scale=0.4, part=slice(0, 6))
                            p.run("ct2_block", scale=0.4)
                    p.run("ct2_beam")
                    h.copy(200, "DtoH")
                h.host(60)
    return Program("beam search", [p.m], ["run", "segment"], ["layer"])


def training(p: Play) -> Program:
    """Steps with an evaluation every few and a checkpoint saved; or gradients accumulated; two threads or one."""
    h, blocks, micro, every = p.h, p.rng.randint(4, 8), p.rng.choice((1, 1, 2, 4)), p.rng.randint(3, 5)
    back = p.m.thread(9, name="pt_autograd_0") if p.odds(0.5) else h
    text = p.rng.choice(("", "", "step {}", "train_iteration"))
    for step in range(p.rng.randint(6, 12)):
        with h.mark(step=step), p.range(text.format(step)):
            for _ in range(micro):
                with p.next("micro"):
                    h.copy(1_500_000, pageable=False)
                    for _ in range(blocks):
                        p.layer("vit_fwd")
                    p.run("learn", part=slice(3, 4))
                    back.wait_until(h.now)
                    for _ in range(blocks):
                        p.layer("vit_bwd", back)
                    h.wait_until(back.now)
            p.run("adam", scale=3)
        if step % every == every - 1:
            for k in range(p.rng.randint(3, 5)):
                with h.mark(step=1000 + 10 * step + k, micro=1000 + 10 * step + k):
                    h.copy(1_500_000, pageable=False)
                    for _ in range(blocks):
                        p.layer("vit_fwd")
                    p.run("learn", part=slice(3, 4))
                    h.item()
            for _ in range(12):
                h.copy(30_000_000, "DtoH")
    return Program("train, evaluate, save", [p.m], ["step"], ["layer"], about=f"{micro=} {text=} {back is h=}")


def gan(p: Play) -> Program:
    """A discriminator's update and a generator's, in turn."""
    h, depth, says = p.h, p.rng.randint(3, 6), p.odds(0.4)
    back = p.m.thread(9, name="pt_autograd_0") if p.odds(0.5) else h

    def passes(*names: str, on: Thread) -> None:
        on.wait_until(h.now)
        for name in names:
            for _ in range(depth):
                p.run(name, on)
        h.wait_until(on.now)

    for step in range(p.rng.randint(6, 12)):
        with h.mark(step=step), p.range(f"[{step}/100] batch" if says else ""):
            h.copy(3_000_000)
            with p.next("half"):
                passes("gan_d", "gan_g", "gan_d", on=h)
                passes("gan_d_bwd", on=back)
                p.run("adam")
            with p.next("half"):
                passes("gan_d", on=h)
                passes("gan_d_bwd", "gan_g_bwd", on=back)
                p.run("adam")
            h.item()
    return Program("GAN", [p.m], ["step"] if says else ["step", "half"], about=f"{says=} {back is h=}")


def reinforcement(p: Play) -> Program:
    """A simulator on the device: physics and policy per step, then mini-batches of an update."""
    h, horizon, says = p.h, p.rng.randint(8, 16), p.odds(0.5)
    for iteration in range(p.rng.randint(3, 6)):
        with h.mark(iteration=iteration):
            with p.range("play_steps" if says else ""), h.mark(phase=2 * iteration):
                for _ in range(horizon):
                    with p.next():
                        p.run("policy")
                        for _ in range(2):
                            p.run("sim")
            with p.range("train_actor_critic" if says else ""), h.mark(phase=2 * iteration + 1):
                for _ in range(p.rng.choice((4, 8)) if not iteration else 4):
                    with p.next():
                        p.run("learn")
                h.item()
    return Program("simulated robots", [p.m], ["run", "iteration", "phase"], about=f"{says=}")


def pipeline(p: Play) -> Program:
    """One rank of a pipeline: forward passes first, one forward and one backward in turn, backward passes last."""
    h, blocks, stage = p.h, p.rng.randint(2, 5), p.rng.randint(1, 3)
    micro, says = stage + p.rng.randint(2, 5), p.rng.choice(("", "", "train-step", "forward-backward"))
    for step in range(p.rng.randint(4, 7)):
        with p.next(), p.range(f"iteration {step}" if says == "train-step" else ""):
            order = "F" * stage + "FB" * (micro - stage) + "B" * stage
            with p.range("forward-backward" if says == "forward-backward" else ""):
                for one in order:
                    name = {"F": "forward-compute", "B": "backward-compute"}[one] if says == "forward-backward" else ""
                    p.run("p2p")
                    with p.range(name):
                        for _ in range(blocks):
                            p.layer("mega_fwd" if one == "F" else "mega_bwd")
            with p.range("optimizer" if says == "forward-backward" else ""):
                p.run("mega_update")
            h.item()
    return Program("pipeline 1F1B", [p.m], ["run"], ["layer"], about=f"{says=} {stage=} {micro=}")


def window(p: Play) -> Program:
    """One of the others, recorded for a part of its time, or with rows lost."""
    program = p.rng.choice((ggml, onnx, loops, training, gan, xla))(p)
    if p.odds(0.6):
        cut(program, p.rng.uniform(0.05, 0.2), p.rng.uniform(0.8, 0.95))
    else:
        lose(program, p.rng, 0.004, 0.004)
    program.family += ", a part"
    return program


def nothing(p: Play) -> Program:
    """Kernels tried by hand, in no order, with copies and waits."""
    names = [row for rows in KERNELS.values() for row in rows]
    p.rng.shuffle(names)
    pool = names[: p.rng.randint(8, 60)]
    for _ in range(p.rng.randint(120, 400)):
        name, us = p.rng.choice(pool)
        p.h.launch(name, us, grid=p.rng.choice((1, 64, 216)))
        if p.odds(0.15):
            p.h.copy(p.rng.randint(1_000, 4_000_000), p.rng.choice(("HtoD", "DtoH")))
            p.h.host(p.rng.uniform(10, 5_000))
    return Program("nothing", [p.m], [], is_noise=True)


FAMILIES: list[Callable[[Play], Program]] = [
    ggml, tensorrt, onnx, xla, tensorflow, solver, stencil, rapids, loops, video, diffusion, speech, training, gan,
    reinforcement, pipeline, window, nothing,
]  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn."""
    return FAMILIES[seed % len(FAMILIES)](Play(Random(f"outsider {seed}")))
