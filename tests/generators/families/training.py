"""Training programs: threads, accumulation, data loading, compilation, ranks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from generators import ranges
from generators.draft import Draft, Program
from generators.families.inference import tail
from generators.networks import STACKS
from xsp_post.model.trace import SpanKind


def train(
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
    tail(draft)


def training(seed: int) -> Program:
    """Forward, backward on a thread of its own, and the optimiser."""
    draft = Draft(seed, "training", ranges.TRAINING, blocks=(2, 8), stacks=("ampere", "hopper", "turing"))
    if draft.rng.random() < 0.3:
        draft.model.prepare()
    train(draft, draft.turns(3, 6, passes=2.5))
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
    train(draft, draft.turns(3, 4, passes=6), micro=draft.rng.randint(2, 4))
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
    train(draft, draft.turns(3, 5, passes=2.5), loader=True)
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


_PHASE_TEXTS = (
    ("forward pass", "backward pass", "optimizer step"), ("forward", "backward", "optimizer"), ("fwd", "bwd", "opt"),
)  # fmt: skip


def ranks(seed: int) -> Program:
    """Two processes train together: one execution per rank and step, or one cold step whose parts alone have ranges."""
    draft = Draft(seed, "two ranks", ("kineto_operators", "iteration", "none", "hooks", "emit_nvtx", "bare", "phases"),
                  blocks=(2, 5), stacks=("ampere", "hopper"))  # fmt: skip
    turns = draft.turns(3, 5, passes=5)
    if draft.dialect == "phases":
        turns = draft.rng.choice((1, 1, 2, 4))
        phases = dict(zip(("forward", "backward", "optimizer"), draft.rng.choice(_PHASE_TEXTS)))
        draft.replace_texts(ranges.Dialect(module="transformer block {i}", phase="{what}", phases=phases))
    begin = draft.recorder.now
    shares = draft.rng.random() < 0.4
    for rank in range(2):
        if rank:
            draft.recorder.process("python3", at=begin + draft.rng.randint(0, 200_000))
        if shares:  # the weights are sent to the other ranks, one after another
            for _ in range(draft.rng.randint(20, 60)):
                with draft.model.around("ncclBroadcast" if draft.writer.shown else ""):
                    draft.recorder.kernel("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 50_000)
            draft.recorder.synchronize()
        train(draft, turns, process=rank, reduce=STACKS["eager"]["all_reduce"][0])
    return draft.done()


def plain_loop(seed: int) -> Program:
    """A plain loop under a profiler: operators, gradients and `Optimizer.step`, and no marker of a step or model."""
    draft = Draft(seed, "plain loop", ("kineto_operators",), blocks=(2, 4), nets=("gpt", "bert", "resnet"),
                  stacks=("ampere", "hopper"))  # fmt: skip
    dialect = ranges.DIALECTS["kineto_operators"]
    phases = {what: text for what, text in dialect.phases.items() if text.startswith("Optimizer")}
    draft.replace_texts(replace(dialect, step="", phases=phases))
    train(draft, draft.turns(3, 6, passes=2.5))
    return draft.done()


def phases_only(seed: int) -> Program:
    """`forward pass` and `backward pass` with nothing around them: together one step."""
    draft = Draft(seed, "phases without steps", ("iteration",), blocks=(2, 6), stacks=("ampere", "hopper"))
    phases = dict(zip(("forward", "backward", "optimizer"), draft.rng.choice(_PHASE_TEXTS)))
    draft.replace_texts(ranges.Dialect(phase="{what}", phases=phases))
    train(draft, draft.turns(1, 5, passes=2.5), own_thread=draft.rng.random() < 0.7)
    return draft.done()


def evaluation(seed: int) -> Program:
    """Steps of training, then passes without gradients: two kinds of execution."""
    draft = Draft(seed, "training and evaluation", ("none", "iteration", "hooks", "kineto_operators", "counters"),
                  blocks=(2, 6), stacks=("ampere", "hopper", "turing"))  # fmt: skip
    recorder, model = draft.recorder, draft.model
    train(draft, draft.turns(3, 4, passes=3.5))
    recorder.wait(1_000_000)
    named = bool(draft.writer.shown)
    with model.around(draft.rng.choice(("", "validation", "evaluate")) if named else ""):
        for turn in range(draft.turns(3, 8, passes=3.5)):
            with model.around(f"eval batch {turn}" if named else ""), recorder.execution("forward"):
                model.load_batch()
                model.forward()
            draft.between()
    return draft.done()
