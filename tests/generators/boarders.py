"""Programs of 2024 to 2026 as their owners record them, by a thirteenth author, written without a look at the finder.

Labels: ``x`` what the owner would call an execution; ``y``, ``z``, ``w`` other answers that the owner would accept;
``l``, ``k`` readings of the layers. What has no label of a layer is not judged as one. ``desk.Named``: what ranges
call a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from generators import desk
from generators.desk import damaged, family_of, whole
from generators.machine import NOT_JUDGED, US, Program, cut, kernels_of, numbered

B = kernels_of("boarder_kernels.txt")
BETWEEN = ("qkv", "gdn", "gdn_prefill", "q3attn", "verify_layer", "mla", "gqa")


class Desk(desk.Desk):
    blocks = B
    between = BETWEEN


# -- engines of language models ------------------------------------------------------------------------------


def hybrid_engine(rng: Random) -> Program:
    """vLLM V1 with a model of linear attention (three of four layers) and experts: prompts in chunks, then decode."""
    d = Desk(rng, rng.choice(("none", "none", "own", "both")))
    depth, steps, mode = rng.choice((8, 12)), rng.randint(9, 16), rng.choice(("eager", "full"))
    pre = rng.randint(1, 3)
    for s in range(steps):
        is_prompt = s < pre or rng.random() < 0.12
        size = 4.0 if is_prompt else 1.0
        with (
            d.step(labels="x"),
            d.put(f"execute_context_{int(is_prompt)}({2048 * is_prompt})_generation_{s}({s})" if d.is_kineto else ""),
        ):
            with d.say("gpu_model_runner: preprocess"):
                d.t.copy(16_384, pageable=False)
                d.go("prep")
            with d.say("gpu_model_runner: forward"):
                groups, fours = d.groups(depth), d.groups(depth // 4)
                mixers = ["q3attn" if n % 4 == 3 else "gdn_prefill" if is_prompt else "gdn" for n in range(depth)]
                if mode == "full" and not is_prompt:
                    d.graph([("embed", {})] + [(block, {"l": groups[n], "k": fours[n // 4]}) for n in range(depth)
                                               for block in (mixers[n], "q3moe")], 3)  # fmt: skip
                else:
                    d.go("embed", size=size)
                    for n in range(depth):
                        with d.t.mark(l=groups[n], k=fours[n // 4]):
                            d.go(mixers[n], size=1.0 if mixers[n] == "gdn_prefill" else size)
                            d.go("q3moe", size=size)
            with d.say("gpu_model_runner: postprocess"):
                d.go("lm_head")
            with d.say("gpu_model_runner: sample"):
                d.go("sampler")
            d.t.copy(64, "DtoH", pageable=rng.random() < 0.5)
        d.idle(60, 900)
    return d.program(f"{steps} steps, {depth} layers, {mode}", "x", "lk")


def adapters_served(rng: Random) -> Program:
    """vLLM with LoRA adapters: shrink and expand after each linear layer, in steps where a request wants one."""
    d = Desk(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "path")))
    depth, steps = rng.choice((6, 10, 16)), rng.randint(8, 14)
    for s in range(steps):
        is_prompt, adapters = s == 0 or rng.random() < 0.15, rng.random() < 0.6
        size = 5.0 if is_prompt else 1.0
        with d.step("gpu_model_runner: execute_model"):
            d.t.copy(8_192, pageable=False)
            d.go("prep", "embed", size=size)
            for n in range(depth):
                with d.layer("LlamaDecoderLayer", n):
                    d.kernels(B["qkv"][:2], size=size)
                    d.go("lora", times=adapters * 3, size=size)
                    d.kernels(B["qkv"][2:], size=size)
                    d.go("fa_prefill" if is_prompt else "fi_attn")
                    d.kernels(B["post"][:1], size=size)
                    d.go("lora", times=int(adapters), size=size)
                    d.kernels(B["post"][1:3], size=size)
                    d.go("lora", times=adapters * 2, size=size)
                    d.kernels(B["post"][3:], size=size)
            d.go("lm_head", "sampler")
            d.item()
        d.idle(100, 800)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def draft_and_verify(rng: Random) -> Program:
    """SGLang with EAGLE: the draft runs a few times, a tree is built, the target verifies it, the draft extends."""
    d = Desk(rng, rng.choice(("none", "none", "own")))
    depth, rounds, drafts = rng.choice((6, 8, 12)), rng.randint(7, 14), rng.randint(2, 5)
    one_graph, graphs = rng.random() < 0.5, rng.random() < 0.7
    for _ in range(rounds):
        with d.step("step[DECODE bs=1]", "x"):
            d.t.copy(4_096, pageable=False)
            with d.say("draft"):
                if graphs and one_graph:
                    with d.new("y"):
                        d.graph([part for _ in range(drafts) for part in (("draft_layer", {}), ("draft_head", {}))], 5)
                else:
                    for _ in range(drafts):
                        with d.new("y"):
                            if graphs:
                                d.graph([("draft_layer", {}), ("draft_head", {})], 6)
                            else:
                                d.go("draft_layer", "draft_head")
                with d.any("yl"):
                    d.go("tree")
            with d.say("verify"), d.new("y"):
                if graphs:
                    d.graph(
                        [("embed", {}), *[("verify_layer", {"l": g}) for g in d.groups(depth)], ("accept", {})][:-1], 7
                    )
                else:
                    d.go("embed")
                    for n in range(depth):
                        with d.layer("LlamaDecoderLayer", n):
                            d.go("verify_layer")
                d.go("accept")
            d.item()
            # the draft reads what was accepted: of this round, or of the next one where nothing says
            with d.any("" if d.has_own else "x"), d.say("draft_extend"), d.new("y"):
                d.go("draft_layer", "draft_head", size=1.4)
        d.idle(50, 400)
    return d.program(f"{rounds} rounds, {drafts} drafts, {depth} layers", "x" if d.has_own else "xy", "l")


def tokens_predicted_ahead(rng: Random) -> Program:
    """TensorRT-LLM in PyTorch on a generation server: MLA, experts in FP4, a layer that predicts ahead."""
    d = Desk(rng, rng.choice(("none", "own", "own")), program="trtllm-serve")
    depth, dense, steps, ahead = rng.choice((6, 9, 12)), rng.randint(0, 2), rng.randint(9, 16), rng.randint(1, 3)
    graphs = rng.random() < 0.6
    for s in range(steps):
        if rng.random() < 0.25:  # the cache of a request arrives from another server
            with d.any("xyl"):
                d.t.copy(rng.randint(1, 30) * 1_000_000, "DtoD", stream=77, gbps=40)
                d.go("kv_in", stream=78)
        requests = rng.randint(3, 20)
        with d.step(f"[Executor] _forward_step {s + 211}: 0 ctx reqs, {requests} gen reqs"):
            with d.say("_prepare_inputs"):
                d.t.copy(16_384, pageable=False)
                d.t.copy(2_048, pageable=False)
            groups = d.groups(depth + ahead)
            parts: list[tuple[str, dict[str, int]]] = [("embed", {})]
            for n in range(depth):
                parts += [("mla", {"l": groups[n]}), ("post" if n < dense else "trt_moe", {"l": groups[n]})]
            parts += [("lm_head", {}), ("sampler", {})]
            for _ in range(ahead):
                parts += [("mtp_in", {}), ("mla", {"l": NOT_JUDGED}), ("trt_moe", {"l": NOT_JUDGED}), ("lm_head", {}),
                          ("sampler", {})]  # fmt: skip
            with d.say("_forward_step"):
                if graphs:
                    d.graph(parts, 21)
                else:
                    for block, labels in parts:
                        with d.t.mark(**labels):
                            d.go(block)
            with d.say("_sample_async"):
                d.t.copy(256, "DtoH", pageable=False)
        if rng.random() < 0.8:
            with d.say("_update_requests"):
                d.idle(40, 300)
    return d.program(f"{steps} steps, {depth} layers, {ahead} ahead, {'graph' if graphs else 'eager'}", "x", "l")


def bench_of_llama(rng: Random) -> Program:
    """llama-bench: a warm-up, prompts of one size some times, then tokens one by one; graphs for tokens."""
    d = Desk(rng, "none", program="llama-bench", host=rng.choice((0.4, 1.0)))
    depth, repeats, tokens = rng.choice((8, 12, 16)), rng.randint(2, 4), rng.randint(8, 20)
    graphs = rng.random() < 0.6

    def call(prompt: bool, is_graph: bool) -> None:
        with d.step():
            d.t.copy(2_048, pageable=False)
            d.go("ggml_get")
            block = "ggml_moe_pp" if prompt else "ggml_moe"
            if is_graph:
                d.graph([*[(block, {"l": g}) for g in d.groups(depth)], ("ggml_out", {})], 2)
            else:
                for n in range(depth):
                    with d.layer("", n):
                        d.go(block)
                d.go("ggml_out")
            d.t.copy(512_000, "DtoH")
            d.t.sync(d.stream)
        d.idle(20, 120)

    call(True, False)
    for _ in range(repeats):
        call(True, False)
        d.idle(100, 900)
    call(False, False)
    for n in range(repeats * tokens):
        call(False, graphs and n > 1)
    return d.program(f"{repeats} prompts, {repeats * tokens} tokens, {depth} layers{', graphs' * graphs}", "x", "l")


def genai_tokens(rng: Random) -> Program:
    """ONNX Runtime generates: a prompt, then tokens; weights of four bits."""
    d = Desk(rng, rng.choice(("none", "own")), program="model-generate")
    depth, rounds = rng.choice((6, 9, 14)), rng.randint(1, 3)
    lengths = [rng.randint(5, 12) for _ in range(rounds)]
    for tokens in lengths:
        for s in range(tokens):
            size = 6.0 if s == 0 else 1.0
            with d.step("SequentialExecutor::Execute"):
                d.t.copy(64, pageable=True)
                d.go("ort_gather")
                for n in range(depth):
                    with d.new("l"):
                        for text, us in B["gqa"]:
                            op = text.partition(" @")[2]
                            with d.new("k"), d.say(f"/model/layers.{n}/{op} ({op})" if d.has_own else ""):
                                d.kernels([(text, us)], size=size)
                d.go("ort_logits")
                d.go("ort_pick")
                d.t.copy(8, "DtoH")
                d.t.sync(d.stream)
            d.idle(30, 200)
        d.idle(500, 4_000)
    return d.program(f"{sum(lengths)} tokens in {rounds} answers, {depth} layers", "x", "lk" if d.has_own else "l")


def masked_diffusion(rng: Random) -> Program:
    """A diffusion language model: blocks of tokens, each unmasked in a few passes over the whole sequence."""
    d = Desk(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "class")))
    depth, blocks, passes = rng.choice((6, 8)), rng.randint(2, 4), rng.randint(3, 6)
    for b in range(blocks):
        with d.step(f"block {b}", "y"):
            for s in range(passes):
                with d.step(f"denoise {s}", "x"):
                    d.go("embed")
                    for n in range(depth):
                        with d.layer("LLaDALlamaBlock", n, "model.transformer.blocks"):
                            d.go("llada")
                    d.go("head", "unmask")
                    if rng.random() < 0.5:
                        d.item()
                d.idle(30, 150)
        d.idle(50, 400)
    return d.program(f"{blocks} blocks of {passes} passes, {depth} layers", "xy", "l")


# -- training of language models -----------------------------------------------------------------------------


def forward(d: Desk, depth: int, kind: str, blocks: tuple[str, ...], *, path: str = "model.layers",
            before: Callable[[int], None] | None = None) -> None:  # fmt: skip
    """An embedding, layers, a head and a loss, taped."""
    d.go("embed", taped=True)
    for n in range(depth):
        if before:
            before(n)
        with d.layer(kind, n, path):
            d.go(*blocks, taped=True)
    d.go("head", "loss", taped=True)


def pipeline_of_megatron(rng: Random) -> Program:
    """A middle stage of Megatron: passes forward until the pipeline is full, one of each, then the rest."""
    d = Desk(rng, rng.choice(("none", "own", "own")))
    depth, steps, micro, fill = rng.choice((2, 3, 4)), rng.randint(3, 6), rng.choice((4, 6, 8)), rng.randint(1, 3)
    side, said = 30, rng.random() < 0.5

    def one_forward() -> list[tuple[str, float, str, int]]:
        d.go("sendrecv", stream=side)
        with d.say("forward_step"):
            for n in range(depth):
                with d.layer("TransformerLayer", n, "decoder.layers"):
                    with d.say("TransformerLayer._forward_attention.self_attention"):
                        d.go("te_attn", taped=True)
                    with d.say("TransformerLayer._forward_mlp.mlp"):
                        d.go("te_mlp", taped=True)
        d.go("sendrecv", stream=side)
        kept, d.tape = d.tape, []
        return kept

    def one_backward(tape: list[tuple[str, float, str, int]]) -> None:
        d.go("sendrecv", stream=side)
        d.tape = tape
        with d.say("backward_step"):
            d.backward()
        d.go("sendrecv", stream=side)

    for s in range(steps):
        with d.step(f"iteration {s + 30}" if said else ""):
            d.go("zero", times=2)
            waiting = [one_forward() for _ in range(fill)]
            for _ in range(micro - fill):
                waiting.append(one_forward())
                one_backward(waiting.pop(0))
            for tape in waiting:
                one_backward(tape)
            with d.say("finalize_model_grads"):
                d.go("scatter", times=2, stream=31)
            with d.say("optimizer"):
                d.go("clip")
                d.item()
                d.go("apex_adam", times=3)
            d.go("gather", times=2, stream=31)
        d.idle(100, 1_500)
    return d.program(f"{steps} iterations of {micro} micro-batches, {depth} layers, filled with {fill}", "x", "l")


def sharded_by_titan(rng: Random) -> Program:
    """torchtitan: FSDP2 around compiled blocks; gathers one layer ahead on another stream."""
    view = rng.choice(("none", "torch", "both", "own"))
    d = Desk(rng, view)
    depth, steps, compiled = rng.choice((4, 6, 8)), rng.randint(4, 8), rng.random() < 0.6

    def shard(n: int) -> None:
        with d.any("lk"), d.say(f"FSDP::pre_forward (layers.{n})"), d.say(f"FSDP::all_gather (layers.{n})"):
            d.go("gather", stream=31)
            d.go("ag_copy", stream=d.stream)

    for s in range(steps):
        with d.new("x"), d.put(f"ProfilerStep#{s + 9}" if d.is_kineto else ""):
            d.t.copy(65_536, pageable=False)
            d.go("embed", taped=True)
            taped_before = []
            for n in range(depth):
                shard(n)
                with d.layer("TransformerBlock", n, "layers"):
                    if compiled:
                        with d.put("## Call CompiledFxGraph f3xq ##" if d.is_kineto else ""):
                            d.go("in_block")
                        taped_before.append(n)
                    else:
                        d.go("ln_attn", "ln_mlp", taped=True)
            d.go("head", "loss", taped=True)
            if compiled:
                head, d.tape = d.tape, []
                d.tape = head[-6:]
                d.backward()
                with d.elsewhere():
                    for n in reversed(taped_before):
                        with d.say(f"FSDP::pre_backward (layers.{n})"):
                            d.go("gather", stream=31)
                        with d.put("CompiledFunctionBackward" if d.is_kineto else ""):
                            d.go("in_block_b")
                        with d.say(f"FSDP::post_backward (layers.{n})"):
                            d.go("scatter", stream=32)
            else:
                per = len(B["ln_attn"] + B["ln_mlp"])
                d.backward(lambda k: d.go("scatter", stream=32) if k % per == per - 1 else None)  # noqa: B023
            d.go("clip")
            with d.put("Optimizer.step#AdamW.step" if d.is_kineto else ""):
                d.go("adamw", times=2)
        d.idle(50, 600)
    return d.program(f"{steps} steps, {depth} layers{', compiled' * compiled}", "x", "l")


def zero_three(rng: Random) -> Program:
    """DeepSpeed ZeRO-3: weights gathered module by module, gradients accumulated over micro-batches."""
    d = Desk(rng, rng.choice(("none", "own", "emit")))
    depth, steps, micro, said = rng.choice((4, 6)), rng.randint(3, 5), rng.choice((2, 4)), rng.random() < 0.5

    def before(n: int) -> None:
        with d.any("lk"), d.say("PartitionedParameterCoordinator.fetch_sub_module"):
            d.go("gather", times=2, stream=19)

    for s in range(steps):
        with d.step(f"train_batch {s}" if said else "", "x"):
            for k in range(micro):
                with d.new("y"):
                    with d.say("DeepSpeedEngine.forward"):
                        forward(d, depth, "LlamaDecoderLayer", ("ln_attn", "ln_mlp"), before=before)
                    with d.say("DeepSpeedEngine.backward"):
                        per = len(B["ln_attn"] + B["ln_mlp"])
                        d.backward(lambda k: d.go("gather", "scatter", stream=19) if k % per == per - 1 else None)  # noqa: B023
                    with d.say("DeepSpeedEngine.step"):
                        if k == micro - 1:
                            d.go("clip")
                            d.item()
                            d.go("ds_adam", times=2)
                            d.go("gather", stream=19)
                d.idle(30, 200)
        d.idle(50, 500)
    return d.program(f"{steps} steps of {micro} micro-batches, {depth} layers", "xy", "l")


def groups_of_answers(rng: Random) -> Program:
    """GRPO on one card: tokens are drawn, their likelihood computed, the adapters are trained; Unsloth kernels."""
    d = Desk(rng, rng.choice(("none", "none", "own")))
    depth, rounds, tokens, updates = rng.choice((4, 6)), rng.randint(3, 5), rng.randint(6, 14), rng.randint(1, 3)
    said = rng.random() < 0.5
    for s in range(rounds):
        with d.step(f"step {s}" if said else "", "x"):
            with d.new("z"), d.say("transformers.Trainer._prepare_inputs"):
                for k in range(tokens):
                    with d.new("y"):
                        d.go("embed", size=4 if not k else 1)
                        for _n in range(depth):
                            with d.new("l"):
                                d.go("qkv", "fa_prefill" if not k else "fi_attn", "post")
                        d.go("lm_head", "sampler_hot")
                        d.item()
                    d.idle(20, 100)
                with d.new("y"):
                    d.go("embed")
                    for _n in range(depth):
                        with d.new("l"):
                            d.go("uns_fw")
                    d.go("grpo_lp")
            for _ in range(updates):
                with d.new("yz"), d.say("update"):
                    d.go("embed")
                    for _n in range(depth):
                        with d.new("l"):
                            d.go("uns_fw")
                    d.go("grpo_lp")
                    with d.elsewhere():
                        for _n in range(depth):
                            d.go("uns_fw")
                            d.go("uns_bw")
                    d.go("qadam", times=12)
                    d.item()
        d.idle(500, 3_000)
    return d.program(
        f"{rounds} rounds of {tokens} tokens and {updates} updates, {depth} layers", "xyz" if d.has_own else "xy", "l"
    )


def phases_of_verl(rng: Random) -> Program:
    """verl: the phases of a PPO step are said; the weights go to the engine between update and the next roll-out."""
    d = Desk(rng, rng.choice(("own", "own", "both")))
    depth, rounds, tokens, minis = rng.choice((3, 4)), rng.randint(3, 5), rng.randint(5, 9), rng.randint(1, 3)
    said = rng.random() < 0.5

    def passes(number: int, train: bool) -> None:
        for _ in range(number):
            forward(d, depth, "Qwen2DecoderLayer", ("ln_attn", "ln_mlp"))
            if train:
                d.backward()
                d.go("clip", "adamw")
            d.tape = []

    for _s in range(rounds):
        with d.step("step" if said else "", "x"):
            with d.say("gen"):
                for _k in range(tokens):
                    d.go("embed")
                    for _n in range(depth):
                        with d.new("l"):
                            d.go("qkv", "fi_attn", "post")
                    d.go("lm_head", "sampler_hot")
                    d.item()
            d.idle(200, 900)
            with d.say("reward"):
                d.idle(100, 2_000)
            for name in ("old_log_prob", "ref"):
                with d.say(name):
                    passes(2, False)
                    d.item()
            with d.say("adv"):
                d.go("gae", times=6)
            with d.say("update_actor"):
                passes(2 * minis, True)
            with d.say("update_weights"):
                d.go("gather", times=4)
                d.t.copy(30_000_000, "DtoD")
        d.idle(100, 900)
    return d.program(
        f"{rounds} steps of {tokens} tokens, {minis} mini-batches, {depth} layers{', said' * said}", "x", "l"
    )


def mamba_mix(rng: Random) -> Program:
    """A hybrid of Mamba-2, MLP and a few attention layers is trained."""
    d = Desk(rng, rng.choice(("none", "torch", "both", "emit")), modules=rng.choice(("", "path", "frame")))
    if d.modules == "frame" and not d.is_kineto:
        d.modules = ""
    depth, steps, marked = rng.choice((8, 10, 12)), rng.randint(4, 8), rng.random() < 0.7
    pattern = [("nemo_at" if n == depth // 2 else "nemo_mlp" if n % 2 else "nemo_m") for n in range(depth)]
    kinds = {"nemo_at": "AttentionLayer", "nemo_mlp": "MLPLayer", "nemo_m": "MambaLayer"}
    for s in range(steps):
        with d.new("x"), d.put(f"ProfilerStep#{s}" if d.is_kineto and marked else ""):
            d.go("embed", taped=True)
            pair = {}
            for n in range(depth):
                pair = {"k": d.m.group()} if n % 2 == 0 else pair
                with d.layer(kinds[pattern[n]], n, "decoder.layers", **pair):
                    d.go(pattern[n], taped=True)
            d.go("head", "loss", taped=True)
            d.backward()
            d.go("clip", "adamw")
            if rng.random() < 0.5:
                d.item()
        d.idle(50, 700)
    return d.program(f"{steps} steps, {depth} layers", "x", "lk" if not d.modules else "l")


def scanned_layers(rng: Random) -> Program:
    """JAX with a scan over layers: one body for all, forward and backward; the module is said or not."""
    d = Desk(rng, rng.choice(("none", "own")), host=rng.choice((0.3, 0.8)))
    depth, steps, remat = rng.choice((6, 8, 12)), rng.randint(4, 8), rng.random() < 0.5
    for _s in range(steps):
        with d.step("XlaModule:#hlo_module=jit_train_step,program_id=42#", "x"):
            d.kernels([("wrapped_gather", 6), ("loop_convert_fusion", 4)])
            for _n in range(depth):
                with d.new("l"):
                    d.go("xla")
                d.t.copy(1, "DtoH", pageable=False)
            d.go("xla_head")
            with d.any("l"):
                for _n in range(depth):
                    if remat:
                        d.kernels(B["xla"][:8])
                    d.go("xla_b")
                    d.t.copy(1, "DtoH", pageable=False)
                d.kernels([("input_scatter_fusion", 20)])
                d.go("xla_adam", times=3)
        if rng.random() < 0.4:
            d.item()
        d.idle(30, 500)
    return d.program(f"{steps} steps, {depth} layers{', remat' * remat}", "x", "l")


def graphs_of_compiled(rng: Random) -> Program:
    """torch.compile with CUDA graphs: the first call runs, the second is recorded and replayed, the rest replay."""
    d = Desk(rng, rng.choice(("none", "torch", "own")))
    depth, calls = rng.choice((4, 6, 8)), rng.randint(8, 14)
    for s in range(calls):
        with d.step(f"inference {s}"):
            d.t.copy(600_000, pageable=False)
            with d.put("Torch-Compiled Region: 0/0" if d.is_kineto else ""):
                if s == 0:
                    d.go("in_a")
                    for _n in range(depth):
                        with d.new("l"):
                            d.go("in_block")
                    d.kernels([("triton_per_fused_mean_9", 5)])
                else:
                    d.graph([("in_a", {}), *[("in_block", {"l": g}) for g in d.groups(depth)]], 4)
            if rng.random() < 0.6:
                d.t.copy(4_000, "DtoH")
        d.idle(60, 500) if s else d.idle(20_000, 200_000)
    return d.program(f"{calls} calls, {depth} layers", "x", "l")


def shapes_compiled_anew(rng: Random) -> Program:
    """Compiled for a shape, again for a second one, then for any: kernels change their names, steps are steps."""
    d = Desk(rng, rng.choice(("none", "torch", "both")))
    depth, steps = rng.choice((3, 4, 6)), rng.randint(8, 12)
    shapes = [0, 0, 0, 1, *[rng.choice((2, 2, 0)) for _ in range(steps - 4)]]
    for s, shape in enumerate(shapes):
        fresh = shape not in shapes[:s]
        with d.new("x"), d.put(f"ProfilerStep#{s}" if d.view == "both" else ""):
            if fresh:
                d.idle(30_000, 90_000)
            for _n in range(depth):
                with d.new("l"):
                    d.kernels([(f"{name}_s{shape}" if name.startswith("triton") and shape else name, us)
                               for name, us in B["in_block"]], size=(1, 1.5, 0.8)[shape])  # fmt: skip
            d.go("head", "loss")
            with d.elsewhere():
                for _n in range(depth):
                    d.kernels([(f"{name}_s{shape}" if name.startswith("triton") and shape else name, us)
                               for name, us in B["in_block_b"]], size=(1, 1.5, 0.8)[shape])  # fmt: skip
            d.go("adamw")
        d.idle(50, 400)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def epochs_with_scaler(rng: Random) -> Program:
    """timm: mixed precision with a scaler that skips an update at times; evaluation after each epoch, then a file."""
    d = Desk(rng, rng.choice(("none", "own", "emit")))
    blocks, epochs, batches, tests = rng.randint(5, 9), 2, rng.randint(5, 9), rng.randint(2, 5)
    for _e in range(epochs):
        for s in range(batches):
            with d.step("train_step"):
                d.t.copy(4_000_000, pageable=False)
                d.go("conv", times=blocks, size=0.8 if s == batches - 1 and rng.random() < 0.4 else 1.0, taped=True)
                d.go("pool", "loss", taped=True)
                d.backward()
                d.go("unscale")
                d.item()
                if rng.random() < 0.9:
                    d.go("sgd", times=2)
                d.go("scale", "zero")
            d.idle(50, 900)
        for _ in range(tests):
            with d.step("validate"):
                d.t.copy(4_000_000, pageable=False)
                d.kernels(
                    [(name.replace("bn_fw_tr", "bn_fw_inf"), us) for _ in range(blocks) for name, us in B["conv"]]
                )
                d.go("pool", "metric")
                d.item()
            d.idle(50, 500)
        with d.say("save_checkpoint"):
            for _ in range(rng.randint(4, 20)):
                d.t.copy(rng.randint(1, 9) * 400_000, "DtoH")
        d.idle(20_000, 200_000)
    return d.program(f"{epochs} epochs of {batches} and {tests}, {blocks} blocks", "x")


def window_in_a_step(rng: Random) -> Program:
    """The profiler was started and stopped within steps: few whole ones are there."""
    d = Desk(rng, rng.choice(("none", "torch", "emit")), weights=False, modules=rng.choice(("", "path")))
    depth, steps = rng.choice((8, 12)), rng.randint(4, 5)
    for _s in range(steps):
        with d.new("x"):
            d.t.copy(65_536, pageable=False)
            forward(d, depth, "GPTNeoXLayer", ("ln_attn", "ln_mlp"), path="gpt_neox.layers")
            d.backward()
            d.go("clip", "adamw")
            d.item()
        d.idle(20, 300)
    program = d.program(f"{steps} steps, {depth} layers", "x", "l")
    cut(program, rng.uniform(0.3, 0.7) / steps, 1 - rng.uniform(0.3, 0.7) / steps)
    return program


# -- servers and pipelines -----------------------------------------------------------------------------------


def instances_of_triton(rng: Random) -> Program:
    """Triton server: two instances of an engine on threads of their own, requests whenever they come."""
    d = Desk(rng, rng.choice(("none", "own", "own")), program="tritonserver", weights=False)
    blocks, calls = rng.randint(6, 12), rng.randint(12, 20)
    main, engines = d.t, [d.m.thread(5, d.t.now, "TRITONBACKEND"), d.m.thread(6, d.t.now, "TRITONBACKEND")]
    for _ in range(calls):
        which = rng.randrange(2)
        d.t = engines[which]
        d.t.wait_until(max(one.now for one in engines) - rng.randint(0, 200) * US)
        d.stream = 20 + which
        batch = rng.choice((1, 2, 4, 8))
        with d.new("x"):
            d.t.copy(150_000 * batch, pageable=False, stream=d.stream)
            with d.say("ExecutionContext::enqueue", domain="TensorRT"):
                for n in range(blocks):
                    with d.say(f"/model/layer{n}/conv/Conv + /model/layer{n}/relu/Relu", domain="TensorRT"):
                        d.kernels(B["trt_conv"][:1], size=1 + batch / 4)
                with d.say("/fc/Gemm", domain="TensorRT"):
                    d.go("trt_head")
            d.t.copy(4_000 * batch, "DtoH", pageable=False, stream=d.stream)
            d.t.sync(d.stream)
        d.idle(20, 1_500)
    d.t = main
    return d.program(f"{calls} calls, {blocks} blocks, two threads", "x")


def frames_with_objects(rng: Random) -> Program:
    """A camera: a detector for each frame, a classifier for each object that it found."""
    d = Desk(rng, rng.choice(("none", "own", "own")), program="deepstream-app")
    frames, blocks, small = rng.randint(8, 16), rng.randint(5, 9), rng.randint(3, 5)
    numbered_frames = rng.random() < 0.5
    for s in range(frames):
        with d.step(f"frame {s}" if numbered_frames else "frame", "x"):
            d.t.copy(3_000_000, pageable=False)
            with d.any("y"):
                d.go("prepro")
            with d.new("y"), d.say("detector"):
                for n in range(blocks):
                    d.kernels(numbered(B["trt_conv"], a=17 + n), size=2)
                d.go("trt_head", "trt_nms")
            d.t.copy(2_000, "DtoH")
            d.t.sync(d.stream)
            for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
                with d.new("y"), d.say("classifier"):
                    d.go("crop")
                    for n in range(small):
                        d.kernels(numbered(B["trt_conv"], a=80 + n), size=0.6)
                    d.go("trt_head")
                    d.t.copy(64, "DtoH", pageable=False)
        d.idle(200, 8_000)
    return d.program(f"{frames} frames, {blocks} and {small} blocks", "x" if d.has_own else "xy")


def batches_of_embeddings(rng: Random) -> Program:
    """A text-embeddings server without padding: batches of any length, no ranges."""
    d = Desk(rng, "none", program="text-embeddings-router", host=rng.choice((0.4, 1.2)))
    depth, calls = rng.choice((6, 12)), rng.randint(7, 14)
    for _ in range(calls):
        size = rng.choice((0.5, 1, 2, 5))
        with d.new("x"):
            for _ in range(4):
                d.t.copy(rng.randint(400, 8_000))
            d.go("bert_in", size=size)
            for _n in range(depth):
                with d.new("l"):
                    d.kernels(B["bert_varlen"][:-1], size=size)
                    with d.any("l"):  # norms end a layer, or begin the next one
                        d.kernels(B["bert_varlen"][-1:], size=size)
            d.go("bert_pool", size=size)
            d.t.copy(3_072, "DtoH")
        d.idle(100, 20_000)
    return d.program(f"{calls} batches, {depth} layers", "x", "l")


def transducer(rng: Random) -> Program:
    """Speech with a conformer and a transducer: an encoder for each utterance, then a loop as long as it needs."""
    d = Desk(rng, rng.choice(("none", "torch", "own")), modules=rng.choice(("", "path")))
    depth, turns = rng.choice((4, 6, 8)), rng.randint(5, 9)
    graph = rng.random() < 0.3 and not d.is_kineto
    for _s in range(turns):
        size = rng.uniform(0.6, 2)
        with d.step("transcribe"):
            d.t.copy(400_000)
            with d.new("y"):
                with d.say("preprocessor"):
                    d.go("mel", size=size)
                with d.say("encoder"):
                    d.go("subsample", times=2, size=size)
                    for n in range(depth):
                        with d.layer("ConformerLayer", n, "encoder.layers"):
                            d.go("conformer", size=size)
            with d.new("y"), d.say("decoding"):
                if graph:
                    for _ in range(rng.randint(4, 9)):
                        d.graph([("predictor", {}), ("joint", {})], 8)
                else:
                    for _ in range(rng.randint(6, 18)):
                        d.go("predictor", "joint")
                        d.item()
            d.t.copy(2_000, "DtoH")
        d.idle(100, 2_000)
    return d.program(f"{turns} utterances, {depth} layers{', graph' * graph}", "x" if d.has_own else "xy", "l")


def beams(rng: Random) -> Program:
    """CTranslate2 translates batches: an encoder, then a decoder with beams until all have ended."""
    d = Desk(rng, "none", program="translate", host=rng.choice((0.4, 1.5)))
    enc, dec, batches = rng.choice((4, 6)), rng.choice((2, 4, 6)), rng.randint(4, 7)
    for _ in range(batches):
        with d.new("x"):
            d.t.copy(4_000)
            with d.new("y"):
                for _ in range(enc):
                    with d.new("l"):
                        d.go("ct2_enc", size=rng.choice((1, 2)))
            for _ in range(rng.randint(5, 14)):
                with d.new("y"):
                    for _ in range(dec):
                        with d.new("l"):
                            d.go("ct2_dec")
                    d.go("ct2_beam")
                    d.t.copy(64, "DtoH")
        d.idle(100, 2_000)
    return d.program(f"{batches} batches, {enc} and {dec} layers", "xy", "l")


def speech_by_flow(rng: Random) -> Program:
    """Speech is made: tokens by a language model, a flow over a few steps, a vocoder; chunk after chunk."""
    d = Desk(rng, rng.choice(("none", "own")))
    depth, blocks, chunks, tokens, steps = (
        rng.choice((4, 6)),
        rng.choice((4, 6)),
        rng.randint(3, 6),
        rng.randint(8, 15),
        rng.randint(4, 8),
    )
    for _ in range(chunks):
        with d.step("tts_chunk"):
            with d.say("llm"):
                for _ in range(tokens):
                    with d.new("y"):
                        for _ in range(depth):
                            with d.new("l"):
                                d.go("tts_lm")
                        d.go("tts_head")
                        d.item()
            with d.say("flow"):
                for _ in range(steps):
                    with d.new("y"):
                        for _ in range(blocks):
                            with d.new("l"):
                                d.go("cfm")
                        d.go("guide")
            with d.new("y"), d.say("vocoder"):
                d.go("hift", times=6)
                d.go("istft")
            d.t.copy(96_000, "DtoH")
        d.idle(200, 3_000)
    return d.program(
        f"{chunks} chunks of {tokens} tokens and {steps} steps, {depth} and {blocks} layers",
        "x" if d.has_own else "xy",
        "l",
    )


def film_with_two_experts(rng: Random) -> Program:
    """A film by diffusion: one model for noise, another for detail, each called twice a step; weights moved between."""
    d = Desk(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "", "path")))
    depth, steps, films, texts = rng.choice((4, 6)), rng.randint(6, 10), rng.randint(1, 2), rng.randint(4, 6)
    one_pass = rng.random() < 0.4
    for _ in range(films):
        with d.new("z"):
            with d.any("xy"), d.say("encode_prompt"):
                d.go("embed")
                for _ in range(texts):
                    with d.new("l"):
                        d.go("umt5")
            d.idle(100, 2_000)
            for s in range(steps):
                if s == steps // 2 and rng.random() < 0.6:
                    for _ in range(depth):
                        d.t.copy(40_000_000, pageable=False)
                with d.step("denoising step", "x"):
                    for _ in range(1 if one_pass else 2):
                        with d.new("y"):
                            d.go("dit_in")
                            for n in range(depth):
                                with d.layer("WanTransformerBlock", n, "blocks"):
                                    d.go("dit")
                            d.go("dit_out")
                    with d.any("y"):
                        d.go("guide")
                d.idle(20, 200)
            with d.any("xy"), d.say("vae_decode"):
                d.go("vae3d", times=rng.randint(8, 20))
            d.t.copy(8_000_000, "DtoH")
        d.idle(500, 9_000)
    return d.program(f"{films} films of {steps} steps, {depth} layers, {1 if one_pass else 2} passes", "xyz", "l")


def policy_of_robot(rng: Random) -> Program:
    """A robot's policy: pictures are encoded, a prefix is read, actions flow in ten steps, then the arm moves."""
    d = Desk(rng, rng.choice(("none", "own", "torch")))
    cams, enc, lm, steps, calls = (
        rng.randint(2, 3),
        rng.choice((4, 6)),
        rng.choice((4, 6)),
        rng.choice((5, 10)),
        rng.randint(4, 8),
    )
    for _ in range(calls):
        with d.step("select_action", "x"):
            for _ in range(cams):
                d.t.copy(150_000)
            for _ in range(cams):
                with d.new("y"):
                    d.go("dit_in")
                    for _ in range(enc):
                        with d.new("l"):
                            d.go("siglip")
            with d.new("y"), d.say("prefix"):
                for _ in range(lm):
                    with d.new("l"):
                        d.go("gemma")
            for _ in range(steps):
                with d.new("y"), d.say("denoise_step"):
                    for _ in range(lm):
                        with d.new("l"):
                            d.go("expert")
                    d.go("guide")
            d.t.copy(2_000, "DtoH")
        d.idle(3_000, 30_000)
    return d.program(
        f"{calls} calls, {cams} cameras, {enc} and {lm} layers, {steps} steps", "x" if d.has_own else "xy", "l"
    )


def boxes_by_transformer(rng: Random) -> Program:
    """Deformable DETR answers pictures: a backbone, six layers of an encoder, six of a decoder."""
    d = Desk(rng, rng.choice(("none", "emit", "torch")), modules=rng.choice(("", "", "path", "class")))
    enc, dec, images = rng.choice((3, 6)), rng.choice((3, 6)), rng.randint(5, 9)
    for _ in range(images):
        size = rng.choice((0.8, 1, 1.2))
        with d.new("x"):
            d.t.copy(3_000_000)
            d.go("conv", times=8, size=size)
            for n in range(enc):
                with d.layer("DeformableDetrEncoderLayer", n, "model.encoder.layers"):
                    d.go("detr_enc", size=size)
            for n in range(dec):
                with d.layer("DeformableDetrDecoderLayer", n, "model.decoder.layers"):
                    d.go("detr_dec")
            d.go("detr_out")
            d.t.copy(1_200, "DtoH")
        d.idle(100, 3_000)
    return d.program(f"{images} pictures, {enc} and {dec} layers", "x", "l")


def points_of_lidar(rng: Random) -> Program:
    """Sparse convolutions over points: index pairs now and then, a stage of which every scene has as many."""
    d = Desk(rng, rng.choice(("none", "torch", "own")))
    scenes, stages, convs = rng.randint(6, 12), rng.randint(3, 4), rng.randint(2, 3)
    for s in range(scenes):
        size = rng.uniform(0.6, 1.8)
        with d.step(f"scene_{s:04d}"):
            d.t.copy(int(2_000_000 * size))
            with d.say("voxelization"):
                d.go("feat", size=size)
            with d.say("middle_encoder"):
                for _ in range(stages):
                    with d.new("l"):
                        d.go("indice", size=size)
                        d.item()
                        d.go("spconv", times=convs, size=size)
            with d.say("backbone"):
                d.go("bev", times=6)
            with d.say("head"):
                d.go("trt_head", "trt_nms")
            d.t.copy(4_000, "DtoH")
        d.idle(500, 9_000)
    return d.program(f"{scenes} scenes, {stages} stages of {convs}", "x")


# -- other training ------------------------------------------------------------------------------------------


def pipelined_recommender(rng: Random) -> Program:
    """TorchRec: while a batch is computed the next one is sent; HSTU layers over embeddings from an all-to-all."""
    d = Desk(rng, rng.choice(("none", "both", "own")))
    depth, steps = rng.choice((2, 3, 4)), rng.randint(7, 12)
    n0 = rng.randint(3, 90)

    def sparse(batch: int) -> None:
        with d.say(f"## start_sparse_data_dist {batch} ##"):
            d.go("kjt", stream=41)
            d.go("sendrecv", stream=42)

    def loaded(batch: int) -> None:
        with d.say(f"## copy_batch_to_gpu {batch} ##"):
            d.t.copy(9_000_000, pageable=False, stream=40)

    with d.any("xyz"):
        loaded(n0)
        sparse(n0)
        loaded(n0 + 1)
    for s in range(n0, n0 + steps):
        with d.new("x"), d.put(f"ProfilerStep#{s}" if d.is_kineto else ""):
            with d.say("## zero_grad ##"):
                d.go("zero", times=2)
            with d.say(f"## wait_sparse_data_dist {s} ##"):
                d.idle(20, 60)
            with d.any("x"):  # of this step, or of the batch that it is for
                sparse(s + 1)
                loaded(s + 2)
            with d.say("## forward ##"):
                d.go("tbe")
                d.go("sendrecv", stream=42)
                for _ in range(depth):
                    with d.new("l"):
                        d.go("hstu", taped=True)
                d.go("pool", "loss", taped=True)
            with d.say("## backward ##"):
                d.backward()
                with d.elsewhere():
                    d.go("sendrecv", stream=42)
                    d.go("tbe_b")
                    d.go("allreduce", stream=43)
            with d.say("## optimizer ##"):
                d.go("adamw")
        d.idle(20, 200)
    return d.program(f"{steps} steps, {depth} layers", "x", "l")


def weather_rolled_out(rng: Random) -> Program:
    """A weather model on a mesh: grid to mesh, a processor of many steps, mesh to grid; each from its own output."""
    d = Desk(rng, rng.choice(("none", "own", "torch")), modules=rng.choice(("", "path")))
    depth, steps, runs, written = rng.choice((4, 8, 12)), rng.randint(4, 9), rng.randint(1, 3), rng.random() < 0.6
    for r in range(runs):
        d.t.copy(20_000_000)
        with d.new("y"), d.say(f"forecast_{r}"):
            for s in range(steps):
                with d.step(f"lead_time_{6 * s + 6}h", "x"):
                    d.go("grid_in")
                    for n in range(depth):
                        with d.layer("MeshProcessorStep", n, "processor.layers"):
                            d.go("mesh")
                    d.go("grid_out")
                    if written:
                        d.t.copy(20_000_000, "DtoH")
        d.idle(1_000, 20_000)
    return d.program(f"{runs} forecasts of {steps} steps, {depth} layers", "xy" if runs > 1 else "x", "l")


def potentials_of_atoms(rng: Random) -> Program:
    """Molecular dynamics with a learned potential: energies forward, forces backward; neighbours now and then."""
    d = Desk(rng, rng.choice(("none", "own")))
    depth, steps, every = rng.choice((2, 3)), rng.randint(10, 18), rng.choice((3, 5, 10))
    for s in range(steps):
        with d.step("md_step"):
            if s % every == 0:
                with d.any("" if d.has_own else "x"), d.say("neighbor_list"):
                    d.go("nlist")
                    d.item()
            with d.say("energy"):
                d.go("mace_in")
                for _ in range(depth):
                    with d.new("l"):
                        d.go("mace")
            with d.say("forces"), d.elsewhere():
                d.go("mace_b", times=depth)
            d.t.copy(24_000, "DtoH")
        d.idle(100, 900)
    return d.program(f"{steps} steps, {depth} interactions, neighbours every {every}", "x", "l")


def openmm_steps(rng: Random) -> Program:
    """OpenMM: forces and an integrator, neighbour blocks only when atoms moved far; a report now and then."""
    d = Desk(rng, "none", host=rng.choice((0.3, 0.8)))
    steps, report = rng.randint(20, 50), rng.choice((10, 20))
    for s in range(steps):
        with d.new("x"):
            if s == 0 or rng.random() < 0.15:
                with d.any("x"):
                    d.go("omm_nb")
            d.go("omm_force")
            d.go("omm_int")
        if s % report == report - 1:
            d.t.copy(300_000, "DtoH")
            d.t.sync()
            d.idle(300, 3_000)
    return d.program(f"{steps} steps, report every {report}", "x")


def channels_of_radio(rng: Random) -> Program:
    """CuPy: blocks of samples through a polyphase filter bank, detected and averaged; two streams or one."""
    d = Desk(rng, rng.choice(("none", "own")), host=rng.choice((3.0, 9.0)))
    blocks, streams, sums = rng.randint(10, 25), rng.choice((1, 1, 2)), rng.choice((1, 4))
    for s in range(blocks):
        d.stream = 13 + s % streams
        with d.step("chunk"):
            d.t.copy(4_000_000, pageable=streams == 1, stream=d.stream)
            for _ in range(sums):
                with d.new("y"):
                    d.go("pfb")
            d.t.copy(8_000, "DtoH", pageable=False, stream=d.stream)
        d.idle(30, 600)
    return d.program(f"{blocks} blocks, {streams} streams, {sums} each", "x" if sums == 1 or d.has_own else "xy")


def pressure_solver(rng: Random) -> Program:
    """Incompressible flow: a pressure solve by CG with multigrid in each time step, as many iterations as it takes."""
    d = Desk(rng, rng.choice(("none", "none", "own")), program="flow_solver", host=0.5)
    steps, levels, base = rng.randint(4, 7), rng.randint(2, 4), rng.randint(4, 8)
    for s in range(steps):
        with d.step(f"timestep {s}", "x"):
            with d.say("assemble"):
                d.go("assemble")
            with d.say("pressure solve"):
                for _ in range(max(2, base + rng.randint(-2, 2))):
                    with d.new("y"):
                        for level in range(levels):
                            d.go("amg_smooth", "amg_down", size=0.4**level)
                        d.go("amg_coarse")
                        for level in reversed(range(levels)):
                            d.go("amg_up", "amg_smooth", size=0.4**level)
                        d.go("cg")
                        d.t.copy(8, "DtoH")
                        d.t.sync(d.stream)
            with d.any("y"), d.say("project"):
                d.go("project")
                d.item()
        d.idle(30, 300)
    return d.program(f"{steps} steps, {levels} levels, about {base} iterations", "x" if d.has_own else "xy")


def substeps_of_newton(rng: Random) -> Program:
    """Warp: a frame is a graph of substeps, or launches them; collisions once a frame; a picture now and then."""
    d = Desk(rng, rng.choice(("none", "own")))
    frames, substeps, graph = rng.randint(8, 16), rng.choice((4, 8)), rng.random() < 0.5
    for s in range(frames):
        with d.step("step", "x"):
            if graph and s:
                d.graph([("collide", {}), *[("newton", {"y": g}) for g in d.groups(substeps)]], 3)
            else:
                with d.any("y"):
                    d.go("collide")
                for _ in range(substeps):
                    with d.new("y"):
                        d.go("newton")
        with d.say("render"):
            d.t.copy(60_000, "DtoH")
            d.idle(100, 4_000)
    return d.program(f"{frames} frames of {substeps} substeps{', graph' * graph}", "x" if graph or d.has_own else "xy")


def robots_learn(rng: Random) -> Program:
    """Isaac Lab: a roll-out of physics and policy, advantages, then epochs of small updates."""
    d = Desk(rng, rng.choice(("none", "own")), host=rng.choice((0.5, 4.0)))
    rounds, horizon, updates, physics = rng.randint(3, 5), rng.choice((8, 16)), rng.choice((4, 8)), rng.choice((2, 4))
    said = rng.random() < 0.3
    for r in range(rounds):
        with d.step(f"iteration {r}" if said else "", "x"):
            with d.new("z"), d.say("rollout"):
                for _ in range(horizon):
                    with d.new("y"):
                        d.go("policy")
                        d.go("mjw", times=physics)
                        d.go("obs", "reward")
            with d.any("yz"), d.say("compute_returns"):
                d.go("gae", times=horizon)
            with d.say("update"):
                for _ in range(updates):
                    with d.new("yz"):
                        d.go("policy", times=2)
                        d.go("loss")
                        with d.elsewhere():
                            d.go("ppo_b", times=5)
                        d.go("clip", "adam_small")
            d.item()
        d.idle(200, 4_000)
    return d.program(f"{rounds} rounds of {horizon} and {updates}", "xyz")


def radiance_field(rng: Random) -> Program:
    """Instant-NGP in a trainer: rays, a grid, two small networks, backward, Adam; the grid is renewed now and then."""
    d = Desk(rng, rng.choice(("none", "own")))
    steps, every = rng.randint(18, 40), 16
    for s in range(steps):
        with d.step("train_iteration"):
            if s % every == 0:
                with d.any("" if d.has_own else "x"), d.say("update_extra_state"):
                    d.go("ngp_occ", times=2)
            d.go("ngp", size=rng.uniform(0.7, 1.3))
            d.go("loss")
            with d.elsewhere():
                d.go("ngp_b")
            d.go("ngp_adam", times=2)
            if s % 10 == 9:
                d.item()
        d.idle(20, 400)
    return d.program(f"{steps} steps", "x")


def pictures_by_dali(rng: Random) -> Program:
    """ResNet with DALI: pictures are decoded and cropped on a thread and a stream of the pipeline's own."""
    d = Desk(rng, rng.choice(("none", "own", "torch")))
    steps, blocks = rng.randint(6, 10), rng.randint(6, 10)
    feed = d.m.thread(9, d.t.now, "DALI Executor")
    for _s in range(steps):
        main, d.t = d.t, feed
        d.t.wait_until(main.now - 100 * US)
        with d.any(), d.say("[DALI][Executor] RunGPU"):
            for text, block in (("image_decoder", 0), ("resize", 1), ("crop_mirror_normalize", 2)):
                with d.say(f"[DALI][GPU op] {text}"):
                    d.kernels(B["dali"][block : block + 1], stream=50)
        d.t = main
        with d.step("iteration"):
            d.go("conv", times=blocks, taped=True)
            d.go("pool", "loss", taped=True)
            d.backward(lambda k: d.go("allreduce", stream=51) if k % 12 == 11 else None)
            d.go("sgd", "zero")
        d.idle(50, 400)
    return d.program(f"{steps} steps, {blocks} blocks", "x")


def sampler_and_trainer(rng: Random) -> Program:
    """Two processes on one card: one simulates and asks a policy, the other trains on what came."""
    d = Desk(rng, rng.choice(("none", "own")), weights=False)
    other = Desk(rng, d.view, weights=False, pid=d.m.pid + rng.randint(1, 40))
    other.t.now = d.t.now
    steps, acts = rng.randint(6, 10), rng.randint(15, 30)
    for _ in range(steps):
        with d.step("learner_step", "xy"):
            d.t.copy(900_000, pageable=False)
            d.go("conv", times=3, taped=True)
            d.go("pool", "loss", taped=True)
            d.backward()
            d.go("clip", "adam_small")
            d.item()
        d.idle(50, 500)
    for _ in range(acts):
        with other.step("act"):
            other.t.copy(20_000)
            other.go("policy")
            other.t.copy(400, "DtoH")
        other.idle(50, 300)
    return d.program(f"{steps} steps, {acts} acts of another process", "xy", others=[other.m])


def angles_of_circuits(rng: Random) -> Program:
    """A variational circuit: the state is made, layers of gates run, a value is read; for each shifted angle anew."""
    d = Desk(rng, rng.choice(("none", "own")), host=rng.choice((1.0, 6.0)))
    layers, qubits, angles, steps = rng.randint(3, 6), rng.choice((4, 6, 8)), rng.randint(2, 5), rng.randint(2, 4)
    for s in range(steps):
        with d.step(f"optimizer step {s}", "y"):
            for _ in range(2 * angles + 1):
                with d.step("execute_circuit", "xk"):  # an execution, or a layer of the optimiser's step
                    d.go("sv_init")
                    for _ in range(layers):
                        with d.new("l"):
                            d.go("rx", times=qubits)
                            d.go("gate", times=qubits // 2)
                    d.go("expect")
                    d.t.copy(16, "DtoH")
                d.idle(10, 60)
        d.idle(100, 900)
    return d.program(
        f"{steps} steps of {2 * angles + 1} circuits, {layers} layers", "xy", "lk", may_be_nothing=("layers",)
    )


def series_by_lstm(rng: Random) -> Program:
    """A recurrent network over time series: few large kernels a step; the last batch of an epoch is smaller."""
    d = Desk(rng, rng.choice(("none", "torch", "emit")))
    layers, epochs, batches = rng.randint(1, 3), rng.randint(2, 3), rng.randint(5, 8)
    for _ in range(epochs):
        for s in range(batches):
            size = 0.5 if s == batches - 1 else 1
            with d.new("x"):
                d.t.copy(int(2_000_000 * size))
                d.go("rnn", times=layers, size=size)
                d.go("pool", "loss")
                with d.elsewhere():
                    d.go("rnn_b", times=layers, size=size)
                d.go("adam_small")
                d.item()
            d.idle(30, 300)
        d.idle(1_000, 9_000)
    return d.program(f"{epochs} epochs of {batches}, {layers} layers", "x")


def stages_on_two_ranks(rng: Random) -> Program:
    """AMReX on two ranks: three stages a step, each with its halo; chemistry in some steps."""
    d = Desk(rng, rng.choice(("none", "own")), program="PeleC3d.gnu.CUDA.MPI.ex", weights=False, host=0.5)
    other = Desk(rng, d.view, program="PeleC3d.gnu.CUDA.MPI.ex", weights=False, host=0.5, pid=d.m.pid + 1)
    other.m.device, other.stream = 1, d.stream
    steps, react = rng.randint(6, 10), rng.random() < 0.5
    seed = rng.random()
    for one in (d, other):
        one.speed, draw = d.speed, Random(seed)
        for _s in range(steps):
            with one.step("Amr::coarseTimeStep()", "x"):
                for _k in range(3):
                    with one.new("y"):
                        with one.say("FillPatch"):
                            one.go("halo")
                            one.t.sync(one.stream)
                        with one.say("advance_stage"):
                            one.go("rhs", times=2)
                            one.go("update")
                with one.any("y"):
                    if react and draw.random() < 0.7:
                        with one.say("react"):
                            one.go("react")
                    with one.say("estTimeStep"):
                        one.go("hyper")
                        one.t.item(one.stream)
            one.idle(20, 200)
    return d.program(f"{steps} steps on two ranks{', reacting' * react}", "x" if d.has_own else "xy", others=[other.m])


def cloth_in_colours(rng: Random) -> Program:
    """Position based cloth in a loop of its own: substeps, each some sweeps over constraints; a file at times."""
    d = Desk(rng, rng.choice(("none", "own")), program="cloth", host=0.5)
    frames, substeps, sweeps = rng.randint(6, 12), rng.randint(2, 4), rng.choice((6, 10))
    for _s in range(frames):
        with d.step("frame", "x"):
            for _ in range(substeps):
                with d.new("y"):
                    d.kernels([("predict_positions(float3*, float3*, float, int)", 9),
                               ("void build_spatial_hash<256>(P)", 14), ("find_collisions(P)", 20)])  # fmt: skip
                    d.go("gs_iter", times=sweeps)
                    d.kernels([("update_velocities(float3*, float3 const*, float, int)", 8)])
            d.t.copy(600_000, "DtoH")
        d.idle(100, 2_000)
    return d.program(f"{frames} frames of {substeps} substeps, {sweeps} sweeps", "x" if d.has_own else "xy")


# -- nothing that repeats ------------------------------------------------------------------------------------


def queries_in_a_row(rng: Random) -> Program:
    """cuDF answers queries, each of another shape, once."""
    d = Desk(rng, rng.choice(("none", "own")))
    for q in range(rng.randint(8, 16)):
        with d.step(f"q{q + 1:02d}"):
            for _ in range(rng.randint(6, 25)):
                name, us = rng.choice(B["sql"])
                texts = ("read_parquet", "apply_boolean_mask", "inner_join", "groupby", "sort_by_key", "gather")
                with d.say(rng.choice(texts) if rng.random() < 0.7 else "", domain="libcudf"):
                    for _ in range(rng.choice((1, 1, 2, 3, 5))):
                        d.t.launch(name, us * rng.lognormvariate(0, 1), grid=rng.randint(1, 4_000))
                if rng.random() < 0.3:
                    d.t.sync(7)
            d.t.copy(int(rng.lognormvariate(9, 2)), "DtoH")
        d.idle(500, 30_000)
    if d.has_own:  # each is an execution of its own, or nothing is
        return d.program("queries", "x", may_be_nothing=("executions",))
    return d.program("queries", "", is_noise=True)


def tried_by_hand(rng: Random) -> Program:
    """A console: whatever comes to mind, seldom twice."""
    d = Desk(rng, rng.choice(("none", "torch")), weights=False)
    for _ in range(rng.randint(25, 60)):
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            name, us = rng.choice(B["rep"])
            d.one(name, us * rng.lognormvariate(0, 1.3), rng.choice(("aten::mm", "aten::add", "aten::sort")),
                  grid=rng.randint(1, 3_000))  # fmt: skip
        if rng.random() < 0.5:
            d.item()
        d.t.host(rng.lognormvariate(9, 1.6))
    return d.program("console", "", is_noise=True)


def suite_of_tests(rng: Random) -> Program:
    """Tests of operators, one after another, each with inputs and sizes of its own."""
    d = Desk(rng, rng.choice(("none", "own")), weights=False)
    rows = [row for block in ("rep", "sql", "gate", "newton", "halo", "conformer", "pfb") for row in B[block]]
    for number in range(rng.randint(20, 40)):
        with d.step(f"test_{rng.choice(('mm', 'join', 'fft', 'rope', 'scan', 'norm', 'gather'))}[{number}]"):
            for _ in range(rng.randint(1, 7)):
                name, us = rng.choice(rows)
                d.t.launch(name.partition(" @")[0], us * rng.lognormvariate(0, 1), grid=rng.randint(1, 900))
                if rng.random() < 0.2:
                    d.t.copy(int(rng.lognormvariate(10, 2)), rng.choice(("HtoD", "DtoH")))
            if rng.random() < 0.7:
                d.t.sync()
        d.t.host(rng.lognormvariate(7, 1.2))
    if d.has_own:
        return d.program("tests", "x", may_be_nothing=("executions",))
    return d.program("tests", "", is_noise=True)


FAMILIES: dict[str, Callable[[Random], Program]] = {
    one.__name__: one
    for one in (
        hybrid_engine, adapters_served, draft_and_verify, tokens_predicted_ahead, bench_of_llama, genai_tokens,
        masked_diffusion, pipeline_of_megatron, sharded_by_titan, zero_three, groups_of_answers, phases_of_verl,
        mamba_mix, scanned_layers, graphs_of_compiled, shapes_compiled_anew, epochs_with_scaler, window_in_a_step,
        instances_of_triton, frames_with_objects, batches_of_embeddings, transducer, beams, speech_by_flow,
        film_with_two_experts, policy_of_robot, boxes_by_transformer, points_of_lidar, pipelined_recommender,
        weather_rolled_out, potentials_of_atoms, openmm_steps, channels_of_radio, pressure_solver, substeps_of_newton,
        robots_learn, radiance_field, pictures_by_dali, sampler_and_trainer, angles_of_circuits, series_by_lstm,
        stages_on_two_ranks, cloth_in_colours, queries_in_a_row, tried_by_hand, suite_of_tests,
    )
}  # fmt: skip


def draw(seed: int) -> Program:
    """The program of a seed; families in turn. One recording in twelve is cut, one in twenty lost rows."""
    program, rng = family_of(FAMILIES, "boarder", seed)
    if program.may_be_nothing or program.family == "window in a step":
        return program
    damaged(program, rng, ((0, 0.9), (0.08, 1), (0.05, 0.95)), cuts=0.08, losses=0.13)
    if not (program.is_noise or any(whole(program, label) > 1 for label in program.executions)):
        program, _ = family_of(FAMILIES, "boarder", seed)  # the device was far behind the host
    return program
