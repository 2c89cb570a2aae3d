"""Smallest programs that each show one principle of what an execution or a layer is, after misses in a thirteenth
author's programs (`boarders`)."""

from random import Random

from generators.boarders import B, Desk, cut


def desk(view="none", **more):
    d = Desk(Random(1), view, weights=False, host=1.0, **more)
    d.speed, d.gap, d.stream, d.m.jitter = 1.0, 1.0, 7, 0.03
    return d


def work_before_the_loop():
    """One upload of 4 MB before ten ranges `chunk`, each with a copy, six kernels, a copy."""
    d = desk("own")
    d.t.copy(4_000_000)
    d.idle(5_000, 5_000)
    for _ in range(10):
        with d.step("chunk"):
            d.t.copy(2_000_000)
            d.go("pfb")
            d.t.copy(8_000, "DtoH", pageable=False)
        d.idle(100, 500)
    return d.program("", "x")


def outermost_range_with_all():
    """`call` holds everything and recurs; inside it a prefix once and a step that recurs more often."""
    d = desk("own")
    for _ in range(5):
        with d.step("call"):
            d.t.copy(150_000)
            d.go("siglip", times=3)
            with d.say("prefix"):
                d.go("gemma", times=3)
            for _ in range(8):
                with d.say("denoise_step"):
                    d.go("expert", times=3)
            d.t.copy(2_000, "DtoH")
        d.idle(2_000, 6_000)
    return d.program("", "x")


def outermost_range_around_repeats():
    """`chunk` holds everything; what is in it repeats four times in launches."""
    d = desk("own")
    for k in range(12):
        d.stream = 13 + k % 2
        with d.step("chunk"):
            d.t.copy(1_000_000, pageable=False, stream=d.stream)
            d.go("pfb", times=4)
            d.t.copy(8_000, "DtoH", pageable=False, stream=d.stream)
        d.idle(30, 600)
    return d.program("", "x")


def parts_of_a_mini_batch():
    """Two epochs of six mini-batches; in each `sample`, `fetch` (copies) and `compute`, named like phases."""
    d = desk("own")
    for _ in range(2):
        with d.say("epoch"):
            for _ in range(6):
                with d.step("minibatch"):
                    with d.say("sample"):
                        d.go("pfb")
                    with d.say("fetch"):
                        d.t.copy(1_500_000)
                    with d.say("compute"):
                        d.go("embed")
                        d.go("ln_attn", "ln_mlp", times=3)
                        d.item()
                d.idle(30, 200)
        d.idle(1_000, 2_000)
    return d.program("", "x")


def sets_around_iterations():
    """Two sets of nine iterations, a few kernels before each set: the ranges inside recur, the sets do not."""
    d = desk("own")
    for _ in range(2):
        with d.say("CG set"):
            d.go("gae", times=2)
            for _ in range(9):
                with d.step("CG iteration"):
                    d.go("pfb")
                    d.item()
                    d.go("gae", times=2)
        d.idle(400, 900)
    return d.program("", "x")


def begin_of_a_range_cut():
    """The recording began inside the first `chunk`; its children have no parent."""
    d = desk("own")
    for _ in range(5):
        with d.step("chunk"):
            with d.say("llm"):
                for _ in range(8):
                    d.go("tts_lm", times=3)
                    d.go("tts_head")
                    d.item()
            with d.say("flow"):
                for _ in range(5):
                    d.go("cfm", times=3)
                    d.go("guide")
            with d.say("vocoder"):
                d.go("hift", times=4)
            d.t.copy(96_000, "DtoH")
        d.idle(200, 2_000)
    p = d.program("", "x")
    cut(p, 0.05, 0.95)
    return p


def phases_in_order():
    """An upload, then three turns of the same seven ranges, once each a turn, nothing around them."""
    d = desk("own")
    d.t.copy(9_000_000)
    d.idle(5_000, 5_000)
    for _ in range(3):
        with d.new("x"):
            with d.say("gen"):
                for _ in range(6):
                    d.go("embed")
                    d.go("qkv", "fi_attn", "post", times=3)
                    d.go("lm_head", "sampler_hot")
                    d.item()
            d.idle(500, 500)
            with d.say("reward"):
                d.idle(900, 900)
            for name in ("old_log_prob", "ref"):
                with d.say(name):
                    for _ in range(2):
                        d.go("embed")
                        d.go("ln_attn", "ln_mlp", times=3)
                        d.go("head", "loss")
                    d.item()
            with d.say("adv"):
                d.go("gae", times=6)
            with d.say("update_actor"):
                for _ in range(2):
                    d.go("embed", taped=True)
                    d.go("ln_attn", "ln_mlp", times=3, taped=True)
                    d.go("head", "loss", taped=True)
                    d.backward()
                    d.go("clip", "adamw")
            with d.say("update_weights"):
                d.go("gather", times=4)
                d.t.copy(30_000_000, "DtoD")
        d.idle(100, 900)
    return d.program("", "x")


def optional_part_of_a_step():
    """Sixteen kernels a step; in one of six steps five more before them. No range, no pause, no copy."""
    d, rng = desk(), Random(3)
    for _ in range(40):
        with d.new("x"):
            if rng.random() < 0.16:
                with d.any("x"):
                    d.go("omm_nb")
            d.go("omm_force")
            d.go("omm_int")
    return d.program("", "x")


def optional_part_in_layers():
    """Sixteen layers a step; in some steps more kernels at three places of each, in some another attention."""
    d, rng = desk("torch"), Random(1)
    for s in range(13):
        is_prompt = s == 0 or rng.random() < 0.15
        more = rng.random() < 0.6
        with d.new("x"):
            d.t.copy(8_192, pageable=False)
            d.go("prep", "embed")
            for _ in range(16):
                d.kernels(B["qkv"][:2])
                d.go("lora", times=3 * more)
                d.kernels(B["qkv"][2:])
                d.go("fa_prefill" if is_prompt else "fi_attn")
                d.kernels(B["post"][:1])
                d.go("lora", times=int(more))
                d.kernels(B["post"][1:3])
                d.go("lora", times=2 * more)
                d.kernels(B["post"][3:])
            d.go("lm_head", "sampler")
            d.item()
        d.idle(100, 800)
    return d.program("", "x")


def varying_number_inside():
    """A detector once a frame, then none to four classifiers; the host waits after the detector, sleeps after all."""
    d, rng = desk(), Random(5)
    for _ in range(12):
        with d.new("x"):
            d.t.copy(3_000_000, pageable=False)
            d.go("prepro")
            d.go("trt_conv", times=6, size=2)
            d.go("trt_head", "trt_nms")
            d.t.copy(2_000, "DtoH")
            d.t.sync(7)
            for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
                d.go("crop")
                d.go("trt_conv", times=4)
                d.go("trt_head")
                d.t.copy(64, "DtoH", pageable=False)
        d.idle(200, 8_000)
    return d.program("", "x")


def level_of_layers():
    """Twelve equal layers and a head; then twice a smaller head of the same kernels and one more layer."""
    d = desk("own")
    for s in range(10):
        with d.step(f"[Executor] _forward_step {s}: 0 ctx reqs, 8 gen reqs"):
            parts = [
                ("embed", {}),
                *[(b, {"l": g}) for g in d.groups(12) for b in ("mla", "trt_moe")],
                ("lm_head", {}),
                ("sampler", {}),
            ]
            for _ in range(2):
                parts += [("mtp_in", {}), ("mla", {"l": -2}), ("trt_moe", {"l": -2}), ("lm_head", {}), ("sampler", {})]
            with d.say("_forward_step"):
                d.graph(parts, 3)
            d.t.copy(256, "DtoH", pageable=False)
        d.idle(40, 300)
    return d.program("", "x", "l")


def repeats_within_a_part():
    """`energy` and `forces` once a step; two equal layers in `energy`."""
    d = desk("own")
    for _ in range(12):
        with d.step("md_step"):
            with d.say("energy"):
                d.go("mace_in")
                for _ in range(2):
                    with d.new("l"):
                        d.go("mace")
            with d.say("forces"), d.elsewhere():
                d.go("mace_b", times=2)
            d.t.copy(24_000, "DtoH")
        d.idle(100, 900)
    return d.program("", "x", "l")


def two_ranges_one_layer():
    """A range of attention and one of the MLP, strictly in turn, no range of the layer."""
    d = desk("own")
    for s in range(6):
        with d.step(f"iteration {s}"):
            for _ in range(4):
                with d.new("l"):
                    with d.say("TransformerLayer._forward_attention.self_attention"):
                        d.go("te_attn")
                    with d.say("TransformerLayer._forward_mlp.mlp"):
                        d.go("te_mlp")
            d.go("te_loss")
            d.item()
        d.idle(100, 900)
    return d.program("", "x", "l")


def layers_of_two_kinds():
    """Eight layers, of four the last is of another kind; all are layers."""
    d = desk("both")
    for s in range(10):
        with d.step(f"execute_context_{int(s == 0)}(64)_generation_{s}({s})"), d.say("gpu_model_runner: forward"):
            d.go("embed")
            for n in range(8):
                with d.new("l"):
                    d.go("q3attn" if n % 4 == 3 else "gdn" if s else "gdn_prefill", "q3moe")
            d.go("lm_head", "sampler")
            d.t.copy(64, "DtoH", pageable=False)
        d.idle(60, 900)
    return d.program("", "x", "l")


def update_behind_backward():
    """Modules have ranges; clip and Adam stand between backward and the wait that ends the step."""
    d = desk("torch", modules="path")
    for _s in range(4):
        with d.new("x"):
            d.t.copy(65_536, pageable=False)
            d.go("embed", taped=True)
            for n in range(6):
                with d.layer("GPTNeoXLayer", n, "gpt_neox.layers"):
                    d.go("ln_attn", "ln_mlp", taped=True)
            d.go("head", "loss", taped=True)
            d.backward()
            d.go("clip", "adamw")
            d.item()
        d.idle(20, 300)
    p = d.program("", "x")
    cut(p, 0.12, 0.9)
    return p


def ends_of_a_pass():
    """Modules `blocks.N` have ranges; two kernels before the first and two after the last are of the pass."""
    d = desk("none", modules="path")
    for n in range(14):
        if n in (0, 7):
            with d.any("xy"):
                d.go("vae3d", times=9 * (n > 0))
                d.go("embed")
                d.go("umt5", times=4)
        with d.new("x"):
            for _ in range(2):
                with d.new("y"):
                    d.go("dit_in")
                    for n in range(4):
                        with d.layer("Block", n, "blocks"):
                            d.go("dit")
                    d.go("dit_out")
            with d.any("y"):
                d.go("guide")
        d.idle(20, 200)
    return d.program("", "xy")


def a_word_of_training():
    """`optimizer step N` holds five runs of a circuit, and the recording nothing else."""
    d = desk("own")
    with d.say("init"):
        for _ in range(4):
            d.t.copy(33_554_432)
    for s in range(4):
        with d.step(f"optimizer step {s}", "y"):
            for _ in range(5):
                with d.step("execute_circuit"):
                    d.go("sv_init")
                    for _ in range(4):
                        d.go("rx", times=6)
                        d.go("gate", times=3)
                    d.go("expect")
                    d.t.copy(16, "DtoH")
                d.idle(10, 60)
        d.idle(100, 900)
    return d.program("", "xy")


def siblings_left_out():
    """Thirty ranges of a level hold all work; texts but for a number occur five times, one of them once."""
    d, rng = desk("own"), Random(4)
    rows = [r for b in ("rep", "sql", "newton", "conformer", "pfb") for r in B[b]]
    for n in range(31):
        with d.step(f"test_{'odd' if n == 17 else ('mm', 'join', 'fft', 'rope', 'scan', 'norm')[n % 6]}[{n}]"):
            for _ in range(rng.randint(1, 7)):
                name, us = rng.choice(rows)
                d.t.launch(name.partition(" @")[0], us * rng.lognormvariate(0, 1))
            d.t.sync()
        d.idle(500, 3_000)
    return d.program("", "x", may_be_nothing=("executions",))


def evaluation_beside_steps():
    """`train_step` and `validate` are siblings and hold all work between them."""
    d = desk("own")
    for _ in range(2):
        for kind, times in (("train_step", 7), ("validate", 3)):
            for _ in range(times):
                with d.step(kind):
                    d.t.copy(4_000_000, pageable=False)
                    d.go("conv", times=5, taped=kind == "train_step")
                    d.go("pool", "loss", taped=kind == "train_step")
                    if kind == "train_step":
                        d.backward()
                        d.go("sgd", times=2)
                    d.item()
                d.idle(50, 900)
        d.idle(20_000, 90_000)
    return d.program("", "x")


def phase_and_siblings():
    """`prefill` once, then four `next_token`, again and again: siblings, of which one text names a phase."""
    d = desk("own")
    for _ in range(4):
        with d.step("prefill"):
            d.go("ln_attn", "ln_mlp", times=3)
            d.item()
        for _ in range(4):
            with d.step("next_token"):
                d.go("ln_attn", "ln_mlp", times=2)
                d.item()
        d.idle(500, 900)
    return d.program("", "x")


def another_thread_and_stream():
    """A thread feeds pictures on a stream of its own, and reductions run on a third one; no range."""
    d = desk()
    feed = d.m.thread(9, d.t.now, "feeder")
    for _ in range(8):
        main, d.t = d.t, feed
        d.t.wait_until(main.now - 100_000)
        with d.any():
            d.kernels(B["dali"], stream=50)
        d.t = main
        with d.new("x"):
            d.go("conv", times=8, taped=True)
            d.go("pool", "loss", taped=True)
            d.backward(lambda k: d.go("allreduce", stream=51) if k % 12 == 11 else None)
            d.go("sgd", "zero")
        d.idle(50, 400)
    return d.program("", "x")


def blocks_in_a_small_part():
    """`vision` holds six small blocks, a tenth of the time; the layers behind it have no range."""
    d = desk("own")
    for _ in range(6):
        with d.step("predict_action"):
            with d.say("vision"):
                d.go("dit_in")
                for _ in range(6):
                    with d.new("l"):
                        d.go("siglip")
            for _ in range(5):
                d.go("embed")
                for _ in range(4):
                    with d.new("l"):
                        d.go("gemma")
                d.go("lm_head", "sampler")
            d.item()
        d.idle(300, 3_000)
    return d.program("", "x", "l")


def steps_within_an_execution():
    """Ten ranges `denoise_step`, each with layers, in an execution; before them layers in no range."""
    d = desk("own")
    for _ in range(5):
        with d.step("select_action"):
            for _ in range(3):
                d.go("dit_in")
                for _ in range(4):
                    with d.new("l"):
                        d.go("siglip")
            for _ in range(10):
                with d.say("denoise_step"):
                    for _ in range(4):
                        with d.new("l"):
                            d.go("expert")
                    d.go("guide")
            d.t.copy(2_000, "DtoH")
        d.idle(3_000, 9_000)
    return d.program("", "x", "l")


def numbers_of_a_compiler():
    """Four layers a token; the kernels of each have numbers of their own, the same for each token."""
    d = desk()
    for _ in range(12):
        with d.new("x"):
            for n in range(4):
                with d.new("l"):
                    d.kernels([
                        (f"input_reduce_fusion_{7 * n}", 4), (f"gemm_fusion_dot_{7 * n}", 14),
                        (f"loop_dynamic_update_slice_fusion_{7 * n}", 3), (f"input_concatenate_fusion_{3 * n}", 9),
                        (f"gemm_fusion_dot_{3 * n + 90}", 12), (f"loop_multiply_fusion_{7 * n}", 4),
                    ])  # fmt: skip
            with d.any("l"):
                d.kernels([("gemm_fusion_dot_general_900_0", 20), ("input_reduce_fusion_900", 3)])
            d.t.copy(8, "DtoH")
        d.idle(100, 300)
    return d.program("", "x", "l")


def products_chosen_by_shape():
    """Nine batches of texts, each shorter than the one before: the library has another product for each shape."""
    d = desk()
    for batch in range(9):
        with d.new("x"):
            d.t.copy(4_000)
            d.kernels([("indexSelectLargeIndex", 3)] * 3)
            d.t.copy(4_000)
            d.kernels([("vectorized_elementwise_kernel", 3)] * 4)
            for _ in range(6):
                with d.new("l"):
                    products = [(f"sm90_xmma_gemm_f16f16_tilesize{64 + batch}x{32 * n + 1}x32", 20) for n in range(4)]
                    norm, attention = ("vectorized_layer_norm_kernel", 3), ("flash_fwd_kernel", 9)
                    d.kernels([norm, products[0], attention, products[1], norm, products[2], ("gelu", 4), products[3]])
            d.t.copy(2_000, "DtoH")
        d.idle(100, 300)
    return d.program("", "x", "l")


def prefill_before_counted_tokens():
    """Four requests of a `prefill` and tokens that count; the prefill does as much as they do."""
    d = desk("own")
    for n in range(4):
        with d.say(f"request {n}"):
            with d.step("prefill"):
                d.go("gemma", times=4)
            for token in range(4 + n):
                with d.step(f"decode token {token}"):
                    d.go("gemma", times=4)
                    d.item()
        d.idle(1_000, 3_000)
    return d.program("", "x")


def networks_one_after_the_other():
    """Nine batches of a convolution network, then nine of a transformer; the last batch of each has fewer samples."""
    d = desk()
    for batch in range(18):
        few = batch % 9 // 8
        convolution = [(f"sm80_xmma_fprop_implicit_gemm_tilesize{64 + few}x{8 * n}x32_cudnn", 20) for n in range(25)]
        with d.new("x"):
            if batch < 9:
                d.kernels(
                    [row for one in convolution for row in (one, ("bn_fw_tr_1C11", 9), ("launch_clamp_scalar", 5))]
                )
                d.go("pool")
            else:
                d.kernels([("implicit_convolve_sgemm", 20)])
                d.go("ln_attn", "ln_mlp", times=5, size=1 - 0.5 * few)
                d.go("head")
    d.item()
    return d.program("", "x")


def _trained(d, forward, update="adamw"):
    d.go(*["uns_fw"] * forward, "loss", *["uns_bw"] * forward, update)


def evaluation_after_every_third_step():
    """Nine steps; behind every third, and so behind the last, a forward pass alone."""
    d = desk()
    for n in range(9):
        with d.new("x"):
            _trained(d, 2)
        if n % 3 == 2:
            with d.any():
                d.go("uns_fw", "uns_fw", "metric")
    return d.program("", "x")


def averaged_weights():
    """Eight steps; each ends with an average of all weights, behind their update."""
    d = desk()
    for _ in range(8):
        with d.new("x"):
            d.kernels([("distribution_elementwise_grid_stride_kernel", 4)])
            _trained(d, 1)
            d.kernels([("vectorized_elementwise_kernel<lerp>", 2), ("vectorized_elementwise_kernel<copy>", 2)] * 20)
    d.go("head")
    return d.program("", "x")


def boxes_in_any_number():
    """Eight pictures; the network ends with a loop over classes that were found, three to seven."""
    d = desk()
    for classes in (5, 3, 5, 7, 5, 5, 4, 5):
        with d.new("x"):
            d.go("conv", times=8)
            for _ in range(classes):
                names = ("vectorized_elementwise_kernel<ge>", "reduce_kernel<max>", "index_elementwise_kernel", "sort")
                d.kernels([(name, 3) for name in names * 2] + [("index_put", 3)])
                d.item()
    return d.program("", "x")


def generator_after_five_critics():
    """Three times five updates of a critic and one of the generator, which is half as long."""
    d = desk()
    for n in range(18):
        with d.new("x"):
            _trained(d, 1 if n % 6 == 5 else 2)
    return d.program("", "x")


def _stages(d):
    """A step in ranges of its stages."""
    with d.say("forward"):
        d.go("embed", "uns_fw", "uns_fw")
    with d.say("backward"):
        d.go("uns_bw", "uns_bw")
    with d.say("optimizer_step"):
        d.go("adamw")


def validation_between_epochs(batches=1):
    """Three epochs of four steps, each in ranges of its stages; behind each epoch `check` with passes of its own."""
    d = desk("own")
    for _ in range(3):
        with d.say("train_part"):
            for _ in range(4):
                with d.new("x"):
                    _stages(d)
        with d.say("check"):
            for _ in range(batches):
                with d.new("x"):
                    d.go("embed", "uns_fw", "uns_fw", "metric")
                    d.item()
    return d.program("", "x")


def validation_of_three_batches():
    """As above; each `check` is three passes."""
    return validation_between_epochs(3)


def probes_between_numbered_steps():
    """Two epochs of five steps in ranges that count; behind each epoch four passes in one range `probe`."""
    d = desk("own")
    for epoch in range(2):
        for batch in range(5):
            with d.step(f"epoch={epoch} batch={batch}"):
                _trained(d, 2)
        with d.say("probe"):
            for _ in range(4):
                with d.new("x"):
                    d.go("embed", "uns_fw", "uns_fw", "metric")
                    d.item()
    return d.program("", "x")


def tokens_behind_an_epoch():
    """Five steps in `epoch`, each in ranges of its stages; behind them nine passes in `decode`."""
    d = desk("own")
    with d.say("epoch"):
        for _ in range(5):
            with d.new("x"):
                _stages(d)
    with d.say("decode"):
        for _ in range(9):
            with d.new("x"):
                d.go("embed", "uns_fw", "uns_fw", "metric")
                d.item()
    return d.program("", "x")


def update_in_the_last_range_of_a_step():
    """Six steps of two ranges: `attack` computes, `train` holds the ranges of forward, backward and update."""
    d = desk("own")
    for _ in range(6):
        with d.new("x"):
            with d.say("attack"):
                d.go("uns_fw", "uns_fw", "metric")
            with d.say("train"):
                _stages(d)
    return d.program("", "x")


def _convolutions(d, passes=1, taped=False):
    """Six convolutions of other shapes in each pass: the library has another kernel for each of them."""
    for _ in range(passes):
        for n in range(6):
            with d.new("l"):
                d.kernels([(f"sm80_xmma_fprop_implicit_gemm_tilesize{64 + n}x32x32_cudnn", 20 + n)])
            d.kernels([("bn_fw_tr_1C11", 9)] + [("max_pool_forward_nchw", 5)] * (n % 3 == 2) + [("clamp_min", 3)])
        if taped:
            with d.elsewhere():
                d.kernels([("softmax_warp_backward", 3)])
                for n in range(6, 0, -1):
                    for word in ("dgrad", "wgrad"):
                        d.kernels([(f"sm80_xmma_{word}_implicit_gemm_tilesize{64 + n}x32x32_cudnn", 25)])
                    d.kernels([("bn_bw_1C11", 9), ("threshold_backward", 3)])


def addition_before_the_first_norm():
    """Nine batches of two layers, each of which ends with a product and an addition, as what embeds them does."""
    d = desk()
    for _ in range(9):
        with d.new("x"):
            d.kernels([("sgemm_patch", 20), ("vectorized_add", 4)])
            for _ in range(2):
                with d.new("l"):
                    norm, end = ("layer_norm_kernel", 4), [("sgemm_patch", 20), ("vectorized_add", 4)]
                    d.kernels([norm, ("sgemm_qkv", 30), ("flash_fwd_kernel", 25), ("sgemm_out", 15), end[1], norm])
                    d.kernels([("sgemm_up", 30), ("gelu", 4), *end])
            d.kernels([("sgemm_head", 20), ("reduce_mean", 3)])
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")


def _two_layers(d):
    """A pass of two layers, which end as what stands before them does."""
    d.kernels([("reduce_kernel", 3), ("vectorized_div", 3), ("sgemm_patch", 12), ("vectorized_add", 3)])
    for _ in range(2):
        with d.new("l"):
            d.kernels([("layer_norm_kernel", 4), ("sgemm_qkv", 20), ("flash_fwd_kernel", 15), ("sgemm_out", 12)])
            d.kernels([("vectorized_add", 3), ("layer_norm_kernel", 4), ("sgemm_up", 20), ("gelu", 4)])
            d.kernels([("sgemm_patch", 12), ("vectorized_add", 3)])
    d.kernels([("sgemm_head", 12), ("vectorized_mul", 3), ("reduce_mean", 3)])


def passes_like_a_layer_of_two_attentions():
    """Six requests of four passes, each of two layers: a pass has as many attentions as one layer may have."""
    d = desk("own")
    for _ in range(6):
        with d.step("request"):
            for _ in range(4):
                _two_layers(d)
        d.idle(500, 900)
    return d.program("", "x", "l")


def convolutions_of_other_shapes():
    """Nine pictures; no stretch of a convolution network repeats in it."""
    d = desk()
    for _ in range(9):
        with d.new("x"):
            _convolutions(d)
            d.t.copy(2_000, "DtoH")
        d.idle(300, 900)
    return d.program("", "x", "l")


def teacher_beside_a_student():
    """Seven steps of three passes through one network of convolutions; the last one is taped, and updates follow."""
    d = desk()
    for _ in range(7):
        with d.new("x"):
            _convolutions(d, 2)
            d.kernels([("softmax_warp_forward", 4)])
            _convolutions(d, taped=True)
            d.go("adamw")
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")


def gradients_in_a_range():
    """Six steps of `attack` (three forward and backward passes) and `train`: gradients hold most of each range."""
    d = desk("own")
    for _ in range(6):
        with d.step("training step"):
            with d.say("attack"):
                _convolutions(d, 3, taped=True)
            with d.say("train"):
                _convolutions(d, taped=True)
                d.go("adamw")
        d.idle(300, 900)
    return d.program("", "x", "l")


def lookups_now_and_then():
    """Eight passes of nine products of other shapes; before three of them something is looked up."""
    d = desk()
    for _ in range(8):
        with d.new("x"):
            for n in range(9):
                d.kernels([("gpu_index_kernel", 5)] * (n in (0, 2, 7)) + [("vectorized_cast", 3)])
                with d.new("l"):
                    d.kernels([(f"ampere_sgemm_{64 + 32 * n}x64_tn", 15 + n)])
                d.kernels([("clamp_min", 3)])
            d.t.copy(2_000, "DtoH")
        d.idle(300, 900)
    return d.program("", "x", "l")


def layers_of_a_graph():
    """Eight passes of three layers, each of which looks up neighbours, adds them up and has two products."""
    d = desk()
    for _ in range(8):
        with d.new("x"):
            for n in range(3):
                with d.new("l"):
                    d.kernels([
                        ("vectorized_zero", 3), ("gpu_index_kernel", 30), ("index_add", 25), ("vectorized_div", 4),
                        *((f"ampere_sgemm_{64 + 32 * n}x64_tn_{k}", 15 - k) for k in range(2)), ("vectorized_add", 3),
                    ])  # fmt: skip
                d.kernels([("clamp_min", 3)] + [("bn_fw_tr_1C11", 4)] * (n < 2))
            d.t.copy(2_000, "DtoH")
        d.idle(300, 900)
    return d.program("", "x", "l")


def forces_of_atoms():
    """Twenty steps of forward and backward work that updates no weights; after every fifth the energy is printed."""
    d = desk()
    for n in range(20):
        with d.new("x"):
            d.kernels([("vectorized_elementwise_kernel<mul>", 2), ("vectorized_elementwise_kernel<add>", 2)] * 2)
            d.go("embed", "ln_attn", "ln_mlp", taped=True)
            d.backward()
            d.kernels([("vectorized_elementwise_kernel<add>", 2)])
            if n % 5 == 4:
                d.item()
                d.kernels([("reduce_kernel<sum>", 3)] * 2)
                d.item()
                d.idle(800, 900)
    return d.program("", "x")


def blocks_of_one_product():
    """Nine passes of four blocks, each of a norm, one product and an addition; another product ends the pass."""
    d = desk()
    for _ in range(9):
        with d.new("x"):
            d.kernels([("gpu_index_kernel", 5)])
            for _ in range(4):
                with d.new("l"):
                    d.kernels([("layer_norm_kernel", 4), ("sgemm_mix", 30), ("gelu", 4), ("vectorized_add", 4)])
            d.kernels([("reduce_mean", 4), ("sgemm_head", 20)])
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")


def operators_of_blocks():
    """Nine ranges of a PyTorch trace, four blocks of two convolutions in each, between another one and a product."""
    d = desk("torch")
    for _ in range(9):
        with d.new("x"), d.put("predict"):
            d.one("sm80_xmma_fprop_implicit_gemm_tilesize96x32x32_cudnn", 20, "aten::conv2d")
            for _ in range(4):
                with d.new("l"):
                    for size in (64, 128):
                        d.one(f"sm80_xmma_fprop_implicit_gemm_tilesize{size}x32x32_cudnn", 30, "aten::conv2d")
                        d.one("bn_fw_tr_1C11", 9, "aten::batch_norm")
                        d.one("clamp_min", 3, "aten::relu")
            d.one("sgemm_head", 20, "aten::linear")
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")


def graph_layers_in_nearly_all_of_a_pass():
    """Two rounds of seven passes of five layers that look up neighbours; four launches more end a round."""
    d = desk()
    for n in range(14):
        with d.new("x"):
            d.kernels([("reduce_mean", 3), ("vectorized_sub", 3), ("sgemm_embed", 15)])
            for _ in range(5):
                with d.new("l"):
                    d.kernels([("gpu_index_kernel", 30), ("CatArrayBatchedCopy", 9), ("sgemm_edge", 25), ("silu", 4)])
                    d.kernels([("index_add", 25), ("sgemm_node", 25), ("vectorized_add", 4)])
            d.kernels([("sgemm_head", 15), ("reduce_sum", 3)])
            d.kernels([("vectorized_scale", 3), ("reduce_any", 3)] * (2 * (n % 7 == 6)) or [("vectorized_step", 3)])
        d.idle(300, 900)
    return d.program("", "x", "l")


def experts_in_a_loop():
    """Nine passes of six layers, every second one with four experts one after the other in place of its MLP."""
    d = desk()
    for _ in range(9):
        with d.new("x"):
            d.kernels([("sgemm_patch", 12), ("vectorized_add", 3)])
            for n in range(6):
                with d.new("l"):
                    d.kernels([("layer_norm_kernel", 4), ("sgemm_qkv", 30), ("flash_fwd_kernel", 25)])
                    d.kernels([("sgemm_out", 15), ("vectorized_residual", 4), ("layer_norm_kernel", 4)])
                    if n % 2:
                        d.kernels([("sgemm_router", 8), ("softmax_kernel", 4), ("topk_kernel", 4)])
                        d.kernels([
                            ("gpu_index_kernel", 5), ("sgemm_expert_up", 9), ("silu", 3), ("sgemm_expert_down", 9),
                            ("index_add", 5),
                        ] * 4)  # fmt: skip
                    else:
                        d.kernels([("sgemm_up", 30), ("gelu", 4), ("sgemm_down", 30), ("vectorized_residual", 4)])
            d.kernels([("reduce_mean", 3), ("sgemm_head", 12)])
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")


def two_layers_with_convolutions():
    """Nine passes of two layers of seven products; two convolutions in place of an MLP lead each layer."""
    d = desk()
    for _ in range(9):
        with d.new("x"):
            d.kernels([("gpu_index_kernel", 5), ("vectorized_position", 3)])
            for _ in range(2):
                with d.new("l"):
                    d.kernels([("layer_norm_kernel", 4), ("sgemm_q", 9), ("sgemm_k", 9), ("sgemm_v", 9), ("copy", 3)])
                    d.kernels([("sgemm_qk", 6), ("softmax_kernel", 5), ("sgemm_pv", 6), ("vectorized_residual", 3)])
                    for size in (64, 128):
                        d.kernels([(f"sm80_xmma_fprop_implicit_gemm_tilesize{size}x32x32_cudnn", 40), ("clamp_min", 3)])
            d.kernels([("reduce_mean", 3), ("sgemm_head", 9)])
            d.item()
        d.idle(300, 900)
    return d.program("", "x", "l")
