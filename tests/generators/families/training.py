"""Training programs: threads, accumulation, data loading, compilation, ranks."""

from __future__ import annotations

from contextlib import ExitStack

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
    train(draft, turns, reduce=STACKS["eager"]["all_reduce"][0])
    process = draft.recorder.process("python3", at=begin + draft.rng.randint(0, 200_000))
    train(draft, turns, process=process, reduce=STACKS["eager"]["all_reduce"][0])
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
