"""Programs that mix what `callers` keeps apart: layers of several kinds, steps that differ, odd ranges, company.

The same author, labels and kernels as `generators.callers`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from random import Random

from generators.callers import K, Kernels, Run, backward_hf, forward_hf, module, nothing, texts, update
from generators.machine import NOT_JUDGED, US, Machine, Program, cut, lose

FLASH = "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, {}, tuple<>>>>(p)"
LOCAL, GLOBAL = (FLASH.format("true"), 14.0), (FLASH.format("false"), 30.0)
SPLIT = ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>(Params)", 4.0)
SORT = K["sort_pass"] + K["nms"][:2]
UPPER = [("triton_poi_fused_top_k_top_p_0", 9.0), *SORT]


def step_texts(rng: Random, share: float = 0.5) -> Callable[[int], str]:
    """Texts of steps in a dialect, or none."""
    return texts(rng, ("step {n}", "iter_{n:05d}", "ITER", "run #{n}", "🔥{n}")) if rng.random() < share else nothing


def local_and_global(rng: Random) -> Program:
    """Every sixth layer attends to all tokens, the others to their neighbours."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    every, groups, turns, text = rng.choice((2, 4, 6)), rng.choice((2, 3)), rng.randint(4, 6), step_texts(rng)
    for n in range(turns):
        with run.step(text(n)):
            run.go("vllm_first")
            for number in range(every * groups):
                with run.layer("", "deepep_head"):
                    run.go(K["vllm_qkv"])
                    run.go([GLOBAL if number % every == every - 1 else LOCAL])
                    run.go(K["vllm_rest"][:1] + 2 * K["deepep_head"] + K["vllm_rest"][2:] + K["deepep_head"])
            run.tail("deepep_head")
            run.go("vllm_sample")
        run.between(120)
    return run.program("local and global", f"{turns} passes, {every * groups} layers", layers=["l", "k"])


def hybrid(rng: Random) -> Program:
    """Mamba and attention in a pattern, each with products behind it."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    pattern, groups = rng.choice(("mma", "mmma", "mmmam")), rng.choice((2, 3))
    turns, text = rng.randint(3, 6), step_texts(rng)
    for n in range(turns):
        with run.step(text(n)):
            run.go("vllm_first")
            for _ in range(groups):
                group = run.m.group()
                for kind in pattern:
                    with run.t.mark(g=group), run.layer("", "mamba_head"):
                        run.go("mamba" if kind == "m" else K["vllm_qkv"] + [GLOBAL] + K["vllm_rest"][:1])
                        run.go("mamba_head")
                        run.go(K["vllm_rest"][2:])
            run.tail("mamba_head")
            run.go("vllm_sample")
        run.between(120)
    about = f"{turns} passes of {groups} × {pattern}"
    return run.program("hybrid", about, layers=["l", "k", "g"])


def stages(rng: Random) -> Program:
    """A hierarchical network of images: stages of unequal depth, whose products take other tiles."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    depths, turns, text = rng.choice(((2, 2, 6, 2), (3, 3, 9, 3), (2, 4, 4))), rng.randint(4, 7), step_texts(rng)
    tiles = ("128x128_ldg8_f2f_stages_32x5", "128x64_ldg8_f2f_stages_64x4", "64x64_ldg8_f2f_stages_64x5", "64x128")
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(600_000)
            run.go("conv_eval")
            for depth, tile in zip(depths, tiles):
                for _ in range(depth):
                    with run.layer():
                        run.go([(name.replace("128x64_ldg8_f2f_stages_64x4", tile), us) for name, us in K["bert"][4:]])
                        run.go([K["bert"][3]])
                run.go("resize")
            run.go(K["head"])
        run.between(200)
    return run.program("stages", f"{turns} images, depths {depths}")


def chosen_kernels(rng: Random) -> Program:
    """The library chooses other tiles for another batch, and reduces what it has split."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    layers, turns, text = rng.randint(5, 9), rng.randint(7, 11), step_texts(rng, 0.3)
    for n in range(turns):
        choice = rng.choice((0, 0, 1, 2))
        tile = ("64x128_64x8", "64x64_64x16", "128x256_64x4")[choice]
        body: Kernels = []
        for name, us in K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"]:
            body.append((name.replace("64x128_64x8", tile).replace("128x64_64x8", tile), us))
            body += [SPLIT] * (choice == 1 and "splitK" in name)
        with run.step(text(n)):
            run.go("vllm_first")
            for _ in range(layers):
                with run.layer("", "vllm_head"):
                    run.go(body)
            run.tail("vllm_head")
            run.go("vllm_sample")
            if rng.random() < 0.3:
                run.go(UPPER)
        run.between(rng.uniform(60, 300))
    return run.program("chosen kernels", f"{turns} passes, {layers} layers", layers=["l", "k"])


def ahead(rng: Random) -> Program:
    """The host runs far ahead: a step's kernels run while the host is in the ranges of the next steps."""
    run = Run(rng, kineto=rng.random() < 0.4)
    layers, turns, text = rng.randint(3, 5), rng.randint(5, 8), step_texts(rng, 0.7)
    run.scale, run.pace = 8.0, 1.0
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(16_384, pageable=False)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
    run.t.sync()
    return run.program("ahead", f"{turns} steps, {layers} layers", layers=["l", "k"])


def tuned_first(rng: Random) -> Program:
    """The first step tries each kernel with many configurations and compiles."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns, text = rng.randint(3, 6), rng.randint(5, 8), step_texts(rng)
    for n in range(turns):
        with run.step(text(n)):
            for number in range(layers):
                if n == 0 and number == 0:
                    for name, us in K["inductor_block"]:
                        run.t.host(4_000)
                        with run.t.mark(x=NOT_JUDGED, l=NOT_JUDGED, k=NOT_JUDGED):
                            for _ in range(rng.randint(6, 14)):
                                run.go([*K["flush"], (name, us * rng.uniform(1, 3))])
                            run.t.sync()
                with run.layer("", K["inductor_block"][:1]):
                    run.go(K["inductor_block"][1:])
            run.tail(K["inductor_block"][:1])
            run.go("head")
        run.between(150)
    return run.program("tuned first", f"{turns} passes, {layers} layers", layers=["l", "k"])


def variable_depth(rng: Random) -> Program:
    """Layers are dropped at random: passes differ in their number."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns, text = rng.randint(7, 12), rng.randint(6, 9), step_texts(rng, 0.3)
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(16_384)
            run.go("bert_first")
            for _ in range(layers - rng.randint(0, 4)):
                with run.layer():
                    run.go("bert")
            run.go("loss")
        run.between(200)
    return run.program("variable depth", f"{turns} passes, up to {layers} layers", layers=["l"])


def decoder_of_images(rng: Random) -> Program:
    """Images are decoded on the GPU by another thread, on a stream of its own, a step ahead."""
    run = Run(rng, kineto=rng.random() < 0.4)
    turns, text = rng.randint(5, 8), step_texts(rng, 0.4)
    resample = "void dali::kernels::BatchedSeparableResampleKernel<2, float, unsigned char>(Desc const*)"
    decode = [("nvjpeg::decoupled::huffmanDecodeKernel(Params)", 60.0), ("nvjpeg::idct_kernel(Params)", 30.0)]
    decode += [(resample, 40.0)]
    other, main = run.m.thread(31, 3_000_000, "dali_pipe"), run.t
    for n in range(turns):
        with run.step(text(n)):
            run.go("conv", 12)
            run.go("loss")
            with run.autograd():
                run.go("loss_backward")
                run.go("conv_backward", 12)
            run.t, run.stream = other, 33
            other.wait_until(main.now - 3_000 * US)
            with run.t.mark(x=NOT_JUDGED):
                run.go(decode, 4)
            run.t, run.stream = main, 7
            update(run, clip=False)
        run.between(150)
    return run.program("decoder of images", f"{turns} steps")


def now_and_then(rng: Random) -> Program:
    """Every few steps an average of the weights, norms for a log, or a checkpoint."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns, text = rng.randint(3, 4), rng.randint(8, 11), step_texts(rng, 0.3)
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(16_384)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
            if n % 2:
                run.go(K["clip"][3:], 3)
        if n % 4 == 3:
            with run.t.mark(x=NOT_JUDGED):
                run.go(K["clip"][:1], 6)
            for _ in range(12):
                run.t.copy(2_000_000, "DtoH")
        run.between(150)
    return run.program("now and then", f"{turns} steps, {layers} layers", layers=["l", "k"])


def training_then_tokens(rng: Random) -> Program:
    """Some steps of training, then a sample is written token by token."""
    run = Run(rng, kineto=rng.random() < 0.4)
    layers, turns, tokens = rng.randint(3, 4), rng.randint(3, 5), rng.randint(8, 14)
    for _ in range(turns):
        with run.step():
            run.t.copy(16_384)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
        run.between(100)
    for _ in range(tokens):
        with run.step():
            run.go("bert_first")
            for _ in range(layers):
                with run.layer():
                    run.go("decoder_layer")
            run.go(K["vllm_sample"][1:])
        run.between(60)
    return run.program("training, then tokens", f"{turns} steps, {tokens} tokens", layers=["l", "k"])


def two_processes(rng: Random) -> Program:
    """Two ranks in one recording, each with layers of its own number."""
    first = Run(rng)
    turns, text = rng.randint(4, 6), step_texts(rng, 0.4)
    machines: list[Machine] = []
    for rank in range(2):
        run = first if rank == 0 else Run(rng)
        run.m.device, run.scale, run.pace = rank, first.scale, first.pace
        layers = rng.randint(3, 5)
        for n in range(turns):
            with run.step(text(n)):
                run.t.copy(16_384)
                forward_hf(run, layers)
                run.go("loss")
                backward_hf(run, layers, lambda _, run=run: run.go("all_reduce", stream=23, after=run.m.free[7]))
                update(run)
            run.between(150)
        machines.append(run.m)
    machines[1].pid, shift = machines[0].pid + 1_000, machines[0].pid + 1_000 - machines[1].pid
    for row in machines[1].work:
        row["pid"] = machines[1].pid
        row["labels"] = {key: value + 10_000_000 * (value > 0) for key, value in row["labels"].items()}
    for row in [*machines[1].work, *machines[1].calls, *machines[1].ranges]:
        row["tid"] += shift
    for thread in machines[1].threads.values():
        thread.tid += shift
    return Program("two processes", machines, ["x"], ["l", "k"], about=f"{turns} steps each")


def eager_experts(rng: Random) -> Program:
    """A loop over the experts that were hit: no two layers are equal."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=rng.random() < 0.5)
    layers, turns, text = rng.randint(4, 6), rng.randint(4, 6), step_texts(rng)
    shown = run.is_kineto and rng.random() < 0.5
    for n in range(turns):
        with run.step(text(n)):
            run.go("vllm_first")
            for number in range(layers):
                with module(run, "MixtralDecoderLayer", number) if shown else nullcontext(), run.layer("", "hf_head"):
                    run.go(K["hf_body"][:9])
                    run.go(K["hf_head"])
                    run.go(K["vllm_sample"][1:2])
                    for _ in range(rng.randint(2, 6)):
                        run.go([(K["nms"][0][0], 4.0)])
                        run.go(K["hf_body"][12:16])
                        run.go([(K["graph_gather"][0][0], 5.0)])
            run.tail("hf_head")
            run.go("head")
        run.between(150)
    about = f"{turns} passes, {layers} layers"
    return run.program("eager experts", about, layers=["l"] if shown else ["l", "k"])


def epochs(rng: Random) -> Program:
    """Epochs that hold steps and a validation of batches; each has a range."""
    run = Run(rng, kineto=rng.random() < 0.4)
    layers, steps, batches = rng.randint(2, 3), rng.randint(3, 5), rng.randint(2, 3)
    inner = rng.choice((("train_step", "val_step"), ("batch {n}", "val batch {n}"), ("训练 {n}", "验证 {n}")))
    for epoch in range(2):
        with run.r(f"epoch {epoch}"):
            with run.r("train"):
                for n in range(steps):
                    with run.step(inner[0].format(n=n)):
                        run.t.copy(16_384)
                        forward_hf(run, layers)
                        run.go("loss")
                        backward_hf(run, layers)
                        update(run)
                    run.between(100)
            with run.r("validate"):
                for n in range(batches):
                    with run.step(inner[1].format(n=n)):
                        run.t.copy(16_384)
                        forward_hf(run, layers)
                        run.go("loss")
                    run.between(100)
    return run.program("epochs", f"2 epochs of {steps} steps and {batches} batches {inner[0]!r}", layers=["l", "k"])


def stages_of_frames(rng: Random) -> Program:
    """Three threads of a pipeline of frames: what belongs to a frame has its number in its text."""
    run = Run(rng)
    turns = rng.randint(6, 10)
    template = rng.choice(("{stage} frame {n}", "{stage}[{n}]", "frame={n} {stage}"))
    names = ("preprocess", "inference", "postprocess")
    threads = [run.m.thread(41 + i, 3_000_000, name) for i, name in enumerate(names)]
    ready = 3_000_000
    for n in range(turns):
        with run.t.mark(x=run.m.group()):
            for i, (name, thread) in enumerate(zip(names, threads)):
                run.t, run.stream = thread, 14 + i
                thread.wait_until(ready if i else thread.now)
                with run.r(template.format(stage=name, n=n + 30)):
                    if i == 0:
                        thread.copy(1_200_000, pageable=False, stream=14)
                        run.go("resize")
                    elif i == 1:
                        run.go("conv_eval", 12)
                    else:
                        run.go(K["nms"])
                        thread.copy(4_000, "DtoH", pageable=False, stream=16)
                    thread.sync(run.stream)
                ready = thread.now + 20 * US
                thread.host(rng.uniform(30, 120))
    return run.program("stages of frames", f"{turns} frames {template!r}")


def root_modules(rng: Random) -> Program:
    """Python's stack is recorded, no step is marked: calls of the model and what follows them."""
    run = Run(rng, kineto=True)
    layers, turns, trains = rng.randint(3, 5), rng.randint(4, 6), rng.random() < 0.6
    with run.r("train.py(88): main", "python_function"):
        for _ in range(turns):
            with run.step():
                run.t.copy(16_384)
                with module(run, "OptimizedModule", 0), module(run, "GPT", 0):
                    run.go("embedding")
                    for number in range(layers):
                        frame = run.r("torch/nn/modules/module.py(1762): _call_impl", "python_function")
                        with frame, module(run, "Block", number), run.layer("", "hf_head"):
                            run.go("hf_body")
                    with run.t.mark(k=run.late), module(run, "RMSNorm", 2 * layers):
                        run.go("hf_head")
                    run.go("head")
                run.go("loss")
                if trains:
                    backward_hf(run, layers)
                    update(run)
            run.between(150)
    return run.program("root modules", f"{turns} calls, training {trains}, {layers} blocks", layers=["l"])


def cut_without_ranges(rng: Random) -> Program:
    """A window of a decoding loop that has no range."""
    run = Run(rng, kineto=rng.random() < 0.3, operators=False)
    layers, turns = rng.randint(5, 9), rng.randint(7, 10)
    for _ in range(turns):
        with run.step():
            run.go("vllm_first")
            for _ in range(layers):
                with run.layer("", "vllm_head"):
                    run.go(K["vllm_qkv"] + K["vllm_attention"] + K["vllm_rest"])
            run.tail("vllm_head")
            run.go("vllm_sample")
        run.between(rng.uniform(60, 200))
    program = run.program("cut without ranges", f"{turns} tokens, {layers} layers", layers=["l", "k"])
    cut(program, rng.uniform(0.03, 0.12), rng.uniform(0.86, 0.97))
    return program


def only_two(rng: Random) -> Program:
    """One run that loads its code at each first launch, one that is measured."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers = rng.randint(6, 12)
    for n in range(2):
        with run.step():
            run.t.copy(600_000)
            seen: set[str] = set()
            for part in ("bert_first", *["bert"] * layers, "loss"):
                with run.layer() if part == "bert" else nullcontext():
                    for name, us in K[part]:
                        if n == 0 and name not in seen:
                            run.t.host(rng.uniform(300, 2_000))
                        seen.add(name)
                        run.go([(name, us)])
        run.between(2_500)
    return run.program("only two", f"2 passes, {layers} layers", layers=["l"])


def single_pass(rng: Random) -> Program:
    """One pass, nothing around it."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers = rng.randint(8, 24)
    with run.step():
        run.t.copy(600_000)
        run.go("conv_eval")
        for _ in range(layers):
            with run.layer():
                run.go("bert")
        run.go("head")
        run.t.copy(4_000, "DtoH")
    return run.program("single pass", f"{layers} layers", layers=["l"])


def two_models(rng: Random) -> Program:
    """Requests to one of two models, in any order."""
    run = Run(rng, kineto=rng.random() < 0.4)
    turns, shown, sizes = rng.randint(9, 14), rng.random() < 0.3, (rng.randint(4, 6), rng.randint(7, 10))
    for n in range(turns):
        which = n % 2 if n < 4 else int(rng.random() < 0.5)
        with run.step(("embed", "rerank")[which] if shown else ""):
            run.t.copy(8_192)
            if which:
                run.go("bert_first")
                for _ in range(sizes[1]):
                    with run.layer():
                        run.go("bert")
                run.go("head")
            else:
                run.go("vllm_first")
                for _ in range(sizes[0]):
                    with run.layer("", "mamba_head"):
                        run.go("mamba")
                run.tail("mamba_head")
            run.t.copy(4_096, "DtoH")
        run.t.host(rng.uniform(200, 900))
    return run.program("two models", f"{turns} requests, {sizes} layers", layers=["l", "k"])


def recurrent(rng: Random) -> Program:
    """An acoustic model: convolutions, recurrent layers whose loop over time is on the host, a decision."""
    run = Run(rng, kineto=rng.random() < 0.4)
    turns, layers, length, text = rng.randint(4, 6), rng.choice((2, 3)), rng.randint(15, 30), step_texts(rng)
    gates = "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>(Info)"
    cell = [("ampere_sgemm_32x32_sliced1x4_tn", 9.0), (gates, 5.0)]
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(320_000)
            run.go("whisper_audio")
            run.go("subsampling", 2)
            for _ in range(layers):
                with run.t.mark(l=run.m.group()):
                    run.go([("ampere_sgemm_128x64_tn", 40.0)])
                    run.go(cell, length)
            run.go(K["loss"][:1])
        run.between(300)
    return run.program("recurrent", f"{turns} batches, {layers} layers of {length} cells")


def offloaded(rng: Random) -> Program:
    """Activations go to the host and come back beside the work; the optimiser runs on the processor."""
    run = Run(rng, kineto=rng.random() < 0.5)
    layers, turns, text = rng.randint(4, 6), rng.randint(4, 6), step_texts(rng)

    def back(_: int) -> None:
        run.t.copy(4_000_000, pageable=False, stream=28)

    for n in range(turns):
        with run.step(text(n)):
            run.go("embedding")
            for _ in range(layers):
                with run.layer("", "hf_head"):
                    run.go("hf_body")
                run.t.copy(4_000_000, "DtoH", pageable=False, stream=27)
            run.tail("hf_head")
            run.go("head")
            run.go("loss")
            backward_hf(run, layers, back, again=rng.random() < 0.5)
            for _ in range(6):
                run.t.copy(3_000_000, "DtoH", pageable=False, stream=27)
            run.t.sync(27)
            with run.r("cpu_adam" if text is not nothing else ""):
                run.t.host(6_000)
            for _ in range(6):
                run.t.copy(3_000_000, pageable=False, stream=28)
        run.t.sync()
    return run.program("offloaded", f"{turns} steps, {layers} layers", layers=["l", "k"])


def lost_without_ranges(rng: Random) -> Program:
    """The profiler lost one row in thirty of a loop that has no range."""
    run = Run(rng, operators=False)
    layers, turns = rng.randint(4, 7), rng.randint(7, 10)
    for _ in range(turns):
        with run.step():
            run.t.copy(8_192)
            run.go("bert_first")
            for _ in range(layers):
                with run.layer():
                    run.go("bert")
            run.go("loss")
        run.between(rng.uniform(150, 400))
    program = run.program("lost without ranges", f"{turns} passes, {layers} layers", layers=["l"])
    lose(program, rng, 0.03, 0.0)
    return program


def unrolled(rng: Random) -> Program:
    """XLA without a scan: each layer has fusions of its own number."""
    run = Run(rng)
    layers, turns, shown = rng.randint(4, 8), rng.randint(5, 8), rng.random() < 0.4
    kernels: Kernels = []
    for number in range(layers):
        for i, (name, us) in enumerate(K["xla_layer"]):
            own = f"{name.rstrip('_0123456789')}_{number * len(K['xla_layer']) + i}"
            kernels.append((own if "fusion" in name else name, us))
    for _ in range(turns):
        with run.step("XlaModule:#hlo_module=jit_apply,program_id=4#" if shown else ""):
            run.go(K["xla_first"] + kernels)
        run.t.host(rng.uniform(40, 200))
        run.t.copy(512, "DtoH")
    return run.program("unrolled", f"{turns} calls, {layers} layers")


def parallel_streams(rng: Random) -> Program:
    """Attention and products of a block run beside each other, on two streams."""
    run = Run(rng, kineto=rng.random() < 0.5, operators=False)
    layers, turns, text = rng.randint(5, 9), rng.randint(4, 7), step_texts(rng)
    for n in range(turns):
        with run.step(text(n)):
            run.go("vllm_first")
            for _ in range(layers):
                with run.layer("", "deepep_head"):
                    first = run.m.free[7]
                    run.go(K["vllm_qkv"] + [GLOBAL] + K["vllm_rest"][:1])
                    run.go(K["vllm_rest"][2:], stream=19, after=first)
                    run.m.free[7] = max(run.m.free[7], run.m.free[19])
                    run.go([K["hf_body"][8]])
            run.tail("deepep_head")
            run.go("vllm_sample")
        run.between(120)
    return run.program("parallel streams", f"{turns} passes, {layers} layers", layers=["l", "k"])


def never_popped(rng: Random) -> Program:
    """A range is pushed each step and never popped: each step lies in all before it."""
    run = Run(rng)
    layers, turns, text = rng.randint(3, 4), rng.randint(5, 7), rng.choice(("step", "step {n}", "forward"))
    for n in range(turns):
        where = {"start": run.t.now, "end": None, "tid": run.t.tid}
        run.m.ranges.append({"text": text.format(n=n), "kind": "nvtx", "args": {}, **where})
        with run.step():
            run.t.copy(16_384)
            run.go("bert_first")
            for _ in range(layers):
                with run.layer():
                    run.go("bert")
            run.go("loss")
        run.between(200)
    return run.program("never popped", f"{turns} passes, {layers} layers {text!r}", layers=["l"])


def other_ranges(rng: Random) -> Program:
    """Other threads have ranges, too: a heartbeat, workers that load batches, a writer of logs."""
    run = Run(rng)
    layers, turns, text = rng.randint(3, 4), rng.randint(5, 7), step_texts(rng)
    for n in range(turns):
        with run.step(text(n)):
            run.t.copy(16_384)
            forward_hf(run, layers)
            run.go("loss")
            backward_hf(run, layers)
            update(run)
        run.between(200)
    end = run.t.now
    others = (("heartbeat", 700), ("load batch {n}", 2_100), ("load batch {n}", 1_900), ("flush logs", 5_000))
    for tid, (name, every) in enumerate(others, 51):
        thread, n = run.m.thread(tid, 3_000_000, name.split()[0]), 0
        while thread.now < end:
            with thread.range(name.format(n=n)):
                thread.host(every * 0.6)
            thread.host(every * 0.4)
            n += 1
    return run.program("other ranges", f"{turns} steps, {layers} layers", layers=["l", "k"])


def misplaced_marker(rng: Random) -> Program:
    """The profiler's step is called before the optimiser's: its range begins with the update of the step before."""
    run = Run(rng, kineto=rng.random() < 0.6)
    layers, turns = rng.randint(3, 4), rng.randint(5, 7)
    x = y = run.m.group()
    for n in range(turns):
        with run.r(f"ProfilerStep#{n + 2}"):
            x = run.m.group()  # the marker's
            if n:
                with run.t.mark(x=x, y=y):
                    update(run)
            y = run.m.group()  # forward and backward pass, and their update
            with run.t.mark(x=x, y=y):
                run.t.copy(16_384)
                forward_hf(run, layers)
                run.go("loss")
                backward_hf(run, layers)
            run.t.item()
    return run.program("misplaced marker", f"{turns} steps, {layers} layers", executions=["x", "y"], layers=["l", "k"])


def suite(rng: Random) -> Program:
    """Tests of kernels: each launches its own, once or twice, and compares."""
    run = Run(rng, kineto=rng.random() < 0.4)
    names = [one for part in K.values() for one in part]
    shown = rng.random() < 0.5
    for n, (name, us) in enumerate(rng.sample(names, min(len(names), rng.randint(25, 40)))):
        with run.r(f"test_{name.split('<')[0].split('(')[0].split('::')[-1][:18]}_{n}" if shown else ""):
            run.go([(name, us)], rng.randint(1, 2), scale=rng.lognormvariate(0, 1))
            for _ in range(rng.randint(0, 3)):
                run.go([rng.choice(names)], scale=rng.lognormvariate(0, 1))
            if rng.random() < 0.6:
                run.t.copy(rng.randint(1_000, 900_000), "DtoH")
            run.t.host(rng.lognormvariate(6, 1.3))
    return run.program("suite", f"tests, named {shown}", executions=[], is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        local_and_global, hybrid, stages, chosen_kernels, ahead, tuned_first, variable_depth, decoder_of_images,
        now_and_then, training_then_tokens, two_processes, eager_experts, epochs, stages_of_frames, root_modules,
        cut_without_ranges, only_two, single_pass, two_models, recurrent, offloaded, lost_without_ranges, unrolled,
        parallel_streams, never_popped, other_ranges, misplaced_marker, suite,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed."""
    return list(FAMILIES.values())[seed % len(FAMILIES)](Random(f"mixture {seed}"))
