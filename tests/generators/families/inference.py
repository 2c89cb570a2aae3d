"""Programs that call a network in a loop, once, in stages, or behind ranges around everything."""

from __future__ import annotations

import numpy as np

from generators import ranges
from generators.draft import MOST_KERNELS, Draft, Program
from generators.networks import Stack, network
from generators.running import Model


def loop(draft: Draft, turns: int) -> None:
    """Passes one after another. The first ones may be a warm-up, with or without ranges; the last may be small."""
    rng, model, recorder, writer = draft.rng, draft.model, draft.recorder, draft.writer
    draft.pace()
    warm = rng.choice((0, 0, 1, 2)) if turns > 3 else 0
    loads, reads, tunes = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.4
    if warm and rng.random() < 0.3 and "step" in writer.shown:
        shown, writer.shown = writer.shown, set()
        with recorder.not_judged():
            for _ in range(warm):
                model.forward()
                draft.between()
        writer.shown, warm = shown, 0
    is_last_small = rng.random() < 0.2
    for turn in range(turns):
        scale = 0.4 if is_last_small and turn == turns - 1 else 1.0
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
    tail(draft)


def tail(draft: Draft) -> None:
    """Now and then a last step that the recording cut before it launched anything."""
    if draft.rng.random() < 0.15 and "step" in draft.writer.shown:
        with draft.writer.step(97):
            draft.recorder.wait(30_000)


def inference_loop(seed: int) -> Program:
    """Passes of one network in a loop."""
    draft = Draft(seed, "inference loop", ranges.INFERENCE)
    if draft.rng.random() < 0.4:
        draft.model.prepare()
    loop(draft, draft.turns(3, 12))
    return draft.done()


def convolutions(seed: int) -> Program:
    """Passes of a convolution network: its blocks differ from each other."""
    draft = Draft(
        seed, "convolution network", ranges.INFERENCE, nets=("resnet",), stacks=("ampere", "hopper", "turing")
    )
    loop(draft, draft.turns(3, 8))
    return draft.done()


def other_networks(seed: int) -> Program:
    """State-space and encoder-decoder networks in a loop."""
    draft = Draft(seed, "encoder and decoder", ranges.INFERENCE, nets=("t5", "t5", "mamba"), blocks=(3, 10))
    loop(draft, draft.turns(3, 8))
    return draft.done()


def single_call(seed: int) -> Program:
    """One call of a network, perhaps after its weights were made; its operators may have ranges, and nothing else."""
    dialects = (*ranges.INFERENCE, "kineto_operators", "kineto_operators", "kineto")
    draft = Draft(seed, "single call", dialects, blocks=(6, 16), nets=("llama", "gpt", "bert", "t5", "mamba"))
    if draft.rng.random() < 0.5:
        draft.writer.shown -= {"step"}
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
        ("tokens", "tokens", "decode_steps", "none", "counters", "free", "free"),
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
    loop(draft, draft.turns(3, 6, passes=3))
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
                        with recorder.aside():
                            for k in range(rng.randint(2, 6) if place % 2 else 4):
                                recorder.kernel(f"void {text}_kernel_{k}<float>(float*)", 9_000, grid=16)
        draft.between()
    return draft.done(layers=True)


def host_loop(seed: int) -> Program:
    """One range of the user's own around an encoder and many passes of a small decoder: one execution."""
    draft = Draft(
        seed, "one call of many passes", ("kineto_operators", "iteration"), blocks=(2, 6), nets=("bert", "gpt")
    )
    rng, model, recorder = draft.rng, draft.model, draft.recorder
    draft.writer.shown -= {"step", "phase", "root", "module", "part"}
    draft.writer.shown &= {"operator"}
    draft.pace()
    text = rng.choice(("generate_masks", "predict", "run_pipeline", "process_image"))
    stages = rng.random() < 0.5
    for number in range(rng.choice((1, 1, 2, 3))):
        with model.around(text if number >= 0 else ""), recorder.execution():
            with model.around("encoder" if stages else ""):
                model.forward()
            for _ in range(rng.randint(6, 14)):
                with model.around("decoder" if stages else ""):
                    for k in range(6):
                        with draft.writer.operator(("aten::mul", "aten::add", "aten::index")[k % 3]):
                            recorder.kernel(f"void mask_kernel_{k}<float>(float*, int)", 4_000, grid=12)
                if rng.random() < 0.5:
                    recorder.copy(512, to_host=True)
        recorder.synchronize()
        recorder.wait(900_000)
    return draft.done(layers=False)


def recurrent(seed: int) -> Program:
    """Passes of a network of recurrent cells: the cells repeat more often than anything else."""
    draft = Draft(seed, "recurrent network", ("none", "none", "iteration", "kineto_operators", "hooks"), nets=("gpt",))
    rng, recorder = draft.rng, draft.recorder
    draft.writer.shown -= {"module", "part", "root"}
    draft.pace()
    cells, layers = rng.randint(12, 48), rng.randint(1, 3)
    cell = [
        ("aten::linear", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("aten::lstm_cell", "void lstm_cell_forward<float>(float*)"),
    ]
    for turn in range(rng.randint(4, 9)):
        with draft.writer.step(turn), recorder.execution():
            recorder.kernel("void at::native::indexSelectLargeIndex<float, long>(float*)", 9_000)
            for _ in range(layers):
                recorder.kernel("ampere_sgemm_128x64_tn", 60_000)
                for _ in range(cells):
                    for operator, name in cell:
                        with draft.writer.operator(operator):
                            recorder.kernel(name, 6_000, grid=16)
                recorder.kernel("void at::native::CatArrayBatchedCopy<float>(float*)", 7_000)
            recorder.kernel("ampere_sgemm_64x64_tn", 30_000)
            recorder.kernel("void softmax_warp_forward<float>(float*)", 4_000)
        draft.between()
    return draft.done(layers=False)


def diffusion(seed: int) -> Program:
    """Images: an encoder of texts, many passes of a denoiser, a decoder. The passes, or the images, are executions."""
    draft = Draft(
        seed, "diffusion", ("none", "free", "kineto_operators", "iteration"), nets=("gpt", "bert"), blocks=(4, 8)
    )
    rng, recorder = draft.rng, draft.recorder
    model = draft.model
    texts = Model(network("bert", rng, 3), Stack(draft.stack.name, rng), recorder, draft.writer, rng)
    draft.pace()
    images, passes = rng.randint(1, 2), draft.turns(5, 12)
    shown, image_of = draft.writer.shown, []
    for _ in range(images):
        with model.around(rng.choice(("", "pipeline"))):
            draft.writer.shown = shown - {"step", "module", "part"}
            with recorder.aside(), recorder.not_judged():
                texts.forward()
            draft.writer.shown = shown
            for turn in range(passes):
                with draft.writer.step(turn), recorder.execution("denoise") as number:
                    model.forward()
                image_of.append(images and len(image_of) // passes)
                draft.between()
            with recorder.not_judged():
                for k in range(rng.randint(5, 20)):
                    recorder.kernel(draft.stack.forward("conv" if k % 2 else "relu", f"vae{k % 6}")[0].name, 60_000)
            recorder.copy(3_000_000, to_host=True)
        recorder.synchronize()
        recorder.wait(600_000)
    program = draft.done()
    each = program.truth.executions[0]
    of_image = np.where(each >= 0, np.array(image_of)[np.maximum(each, 0)], each)
    program.truth.executions.append(of_image)
    assert number + 1 == len(image_of)
    return program
