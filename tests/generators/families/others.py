"""Programs that are no PyTorch loop, what runs besides, and noise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from generators import ranges
from generators.draft import Draft, Program
from generators.families.inference import loop
from generators.families.training import train
from generators.networks import network
from generators.recorder import NOT_JUDGED, NOTHING


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
    loop(draft, draft.turns(4, 10))
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
    swapped = order
    if rng.random() < 0.4:  # every other step sweeps a few cells in the other direction
        place, size = rng.randrange(len(order) // 2), rng.randint(4, max(5, len(order) // 8))
        swapped = order[:place] + order[place : place + size][::-1] + order[place + size :]
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
    loop(draft, draft.turns(4, 12))
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


def other_thread(seed: int) -> Program:
    """Ranges on the main thread, which launches nothing: a worker does, in the time of each range."""
    draft = Draft(seed, "launched by another thread", ("iteration", "bare", "batches", "hooks"), blocks=(2, 8))
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.writer.shown = {"step"}
    draft.pace()
    draft.synchronous = True
    worker = recorder.add_thread(0, 0, "worker")
    for turn in range(draft.turns(4, 10)):
        with model.around("load"):
            recorder.wait(rng.randint(20_000, 200_000))
        with draft.writer.step(turn), recorder.execution():
            shown, draft.writer.shown = draft.writer.shown, set()
            with recorder.on(worker):
                model.load_batch()
                model.forward()
                recorder.synchronize()
            draft.writer.shown = shown
        draft.between()
    return draft.done()


def device_only(seed: int) -> Program:
    """Kernels without any row of the host: steps of training or passes, one or many."""
    draft = Draft(seed, "device rows only", ("none",), blocks=(4, 12), nets=("gpt", "bert", "resnet"), faults=False,
                  stacks=("ampere", "hopper"))  # fmt: skip
    if draft.rng.random() < 0.5:
        train(draft, draft.turns(1, 4, passes=2.5))
    else:
        loop(draft, draft.turns(1, 8))
    program = draft.done(layers=False)
    trace = program.trace
    program.trace = replace(trace, launches=trace.launches.iloc[:0], spans=trace.spans.iloc[:0])
    return program


def cut_out(seed: int) -> Program:
    """A window of a longer run: the recording begins and ends inside an execution."""
    draft = Draft(seed, "window cut out", ranges.INFERENCE, blocks=(3, 10), faults=False)
    loop(draft, draft.turns(5, 12))
    program = draft.done()
    trace, rng = program.trace, draft.rng
    begin, end = (
        int(trace.launches["start_ns"].quantile(q)) for q in (rng.uniform(0.05, 0.3), rng.uniform(0.75, 0.95))
    )
    return window(program, begin, end)


def window(program: Program, begin: int, end: int) -> Program:
    """What was launched from one time to another; ranges that began or ended outside are not recorded."""
    trace, truth = program.trace, program.truth
    launches = trace.launches[trace.launches["start_ns"].between(begin, end)]
    activities = trace.activities
    is_launched = activities["correlation_id"].isin(launches["correlation_id"]).to_numpy()
    ran_on = ~is_launched & activities["start_ns"].between(begin, end).to_numpy()  # launched before the window
    kept = np.flatnonzero(is_launched | ran_on)
    spans = np.flatnonzero((trace.spans["start_ns"] >= begin) & (trace.spans["end_ns"] <= end))
    attributes = trace.attributes.iloc[spans].reset_index(drop=True) if len(trace.attributes) else trace.attributes
    cut = replace(
        trace,
        spans=trace.spans.iloc[spans].reset_index(drop=True),
        attributes=attributes,
        launches=launches.reset_index(drop=True),
        activities=activities.iloc[kept].reset_index(drop=True),
    )
    executions, layers = (
        [np.where(ran_on[kept], NOT_JUDGED, _whole(one, kept)) for one in answers]
        for answers in (truth.executions, truth.layers)
    )
    return replace(program, trace=cut, truth=replace(truth, executions=executions, layers=layers))


def _whole(group: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The groups of the rows that are kept; those that lost a row are not judged."""
    before, after = (np.bincount(rows[rows >= 0], minlength=group.max() + 2) for rows in (group, group[kept]))
    result = group[kept]
    return np.where((result >= 0) & (before != after)[np.maximum(result, 0)], NOT_JUDGED, result)


def two_workers(seed: int) -> Program:
    """Two threads, or two processes with networks of their own, call them at the same time."""
    draft = Draft(seed, "two workers", ("none", "iteration", "batches", "hooks"), blocks=(2, 6), faults=False)
    recorder = draft.recorder
    begin = recorder.now
    turns = draft.turns(3, 8, passes=2)
    loop(draft, turns)
    begin += draft.rng.randint(10_000, 100_000)
    if draft.rng.random() < 0.5:
        recorder.here = recorder.add_thread(0, begin, "worker 2")
        recorder.stream_shift = 6
    else:
        recorder.process("python3", at=begin)
        draft.model.network = network(draft.rng.choice(("t5", "bert", "mamba")), draft.rng, draft.rng.randint(2, 6))
    loop(draft, draft.rng.choice((turns, turns + 2)))
    return draft.done()
