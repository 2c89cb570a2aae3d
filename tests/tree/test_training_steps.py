"""Training steps as PyTorch records them: as many layers as the model has, whatever runs on which thread."""

from __future__ import annotations

import pytest
from builders import ExportBuilder
from recorded import tree_of

from xsp_post.pipeline import analyze

LAYERS, STEPS = 3, 3
ENGINE = "autograd::engine::evaluate_function: "
KERNELS_PER_STEP = LAYERS * 2 * 3 + 1


def training_step(builder, t, step, sequence, *, modules, seq, replicas=1):
    """Forward on thread 100 (replicas: 101 …), backward and gradient accumulation on thread 200, then an update."""

    def number(n):
        return f", seq = {n}" if seq else ""

    begin, done = t, []
    for layer in range(LAYERS):
        for replica in range(replicas):
            builder.thread(100 + replica)
            at = t + 60 * replica if replicas == 1 else t + replica
            for k, name in enumerate(("addmm", "gelu")):
                own = at + 2 + 25 * k
                text = f"aten::{name}{number(sequence)}, op_id = {sequence}, sizes = [[{step + 8}, 4]]"
                builder.range(text, own, own + 20)
                builder.kernel(f"{name}_{layer}", launch=(own + 1, own + 2), run=(own + 5, own + 15), stream=replica)
                done.append((sequence, name, layer))
                sequence += 1
            if modules:
                builder.range(f"model.layers.{layer}.mlp", at, at + 55)
        t += 60
    builder.thread(200)
    for own, name, layer in reversed(done):
        gradient = f"{name.title()}Backward0{number(own)}, op_id = {own}"
        builder.range(f"{ENGINE}{gradient}", t, t + 40).range(gradient, t + 1, t + 39)
        builder.range(f"aten::mm, op_id = {own}", t + 2, t + 30)
        builder.kernel(f"{name}_{layer}_backward", launch=(t + 3, t + 4), run=(t + 6, t + 26))
        t += 42
        builder.range(f"{ENGINE}torch::autograd::AccumulateGrad, op_id = {own}", t, t + 10)
        builder.kernel("accumulate", launch=(t + 2, t + 3), run=(t + 4, t + 8))
        t += 12
    builder.thread(100).range(f"aten::_foreach_add_, op_id = {sequence}", t, t + 30)
    builder.kernel("update", launch=(t + 2, t + 3), run=(t + 4, t + 8))
    builder.range(f"step {step}", begin, t + 35)
    return t + 100, sequence


def layers_of(tmp_path, **options):
    builder, t, sequence = ExportBuilder(), 0, 100
    for step in range(STEPS):
        t, sequence = training_step(builder, t, step, sequence, **options)
    analysis = analyze([builder.write(tmp_path / "a.sqlite")])
    return analysis.frame("layers"), analysis


@pytest.mark.parametrize("modules", [True, False])
def test_gradients_count_for_their_layer_and_are_no_layers(tmp_path, modules):
    layers, analysis = layers_of(tmp_path, modules=modules, seq=True)
    names = layers[layers["iteration_index"] == 1].sort_values("layer_index")["layer_name"].tolist()
    model = [f"model.layers.{k}.mlp" for k in range(LAYERS)] if modules else ["aten::addmm", "aten::gelu"] * LAYERS
    assert names[: len(model)] == model
    assert names[len(model) :] == [f"{ENGINE}torch::autograd::AccumulateGrad", "aten::_foreach_add_"]
    forward = layers[layers["layer_name"].isin(model)]
    # forward 10 ns, backward 20 ns a kernel; each step's work is with that step
    assert forward.groupby("iteration_index")["kernel_ns"].sum().tolist() == [LAYERS * 2 * 30] * STEPS
    assert layers.groupby("iteration_index")["kernel_count"].sum().tolist() == [KERNELS_PER_STEP] * STEPS
    assert int(layers["kernel_ns"].sum()) == int(analysis.frame("kernels")["duration_ns"].sum())
    how = analysis.frame("kernels")["layer_attribution"].value_counts()
    assert how["sequence"] == STEPS * LAYERS * 2 and how["none"] == 0


@pytest.mark.parametrize("seq", [True, False])
def test_no_layer_has_more_kernel_time_than_latency(tmp_path, seq):
    """Gradients count for their layer, so its latency holds them too."""
    layers, _ = layers_of(tmp_path, modules=True, seq=seq)
    timed = layers[layers["latency_ns"] > 0]
    assert len(timed) >= LAYERS * STEPS and (timed["kernel_ns"] <= timed["latency_ns"]).all()


def test_no_layer_of_a_real_training_has_more_busy_time_than_latency(captures):
    from helpers import core_tables

    tree = tree_of(captures / "nsys/transformer_backward_rtx3070ti.sqlite")
    layers = core_tables(tree).frames["layers"]
    timed = layers[layers["latency_ns"] > 0]
    assert len(timed) > 200 and (timed["busy_ns"] <= timed["latency_ns"]).all()


def test_without_sequence_numbers_gradients_belong_to_the_layer_of_their_operator(tmp_path):
    layers, analysis = layers_of(tmp_path, modules=True, seq=False)
    assert layers.groupby("iteration_index")["kernel_count"].sum().tolist() == [KERNELS_PER_STEP] * STEPS
    assert set(layers["layer_name"]) > {f"model.layers.{k}.mlp" for k in range(LAYERS)}
    assert set(analysis.frame("kernels")["layer_attribution"]) == {"nesting", "sequence"}


def test_replicas_on_threads_of_their_own_are_the_same_layers(tmp_path):
    """DataParallel runs each replica of a module on a thread of its own."""
    layers, _ = layers_of(tmp_path, modules=True, seq=True, replicas=2)
    modules = layers[layers["layer_name"].astype(str).str.startswith("model.layers")]
    assert modules.groupby("iteration_index")["layer_index"].nunique().tolist() == [LAYERS] * STEPS
    assert (modules["call_count"] == 2).all()


def test_a_layers_shape_is_that_of_its_iteration(tmp_path):
    layers, _ = layers_of(tmp_path, modules=False, seq=True)
    shapes = layers[layers["layer_name"] == "aten::addmm"].groupby("iteration_index")["shape_text"].unique()
    assert [s.tolist() for s in shapes] == [["[[8, 4]]"], ["[[9, 4]]"], ["[[10, 4]]"]]


def test_what_a_checkpoint_computes_again_counts_for_the_checkpointed_layer(tmp_path):
    """The backward range of the checkpoint runs the layer once more, and the gradients of that second run."""
    builder = ExportBuilder()
    for step in range(2):
        t = 1000 * step
        first = 10 * step
        builder.thread(100).range(f"step {step}", t, t + 900)
        builder.range("model.layers.0.mlp", t + 10, t + 90)
        builder.range(f"CheckpointFunction, seq = {first}", t + 12, t + 80)
        builder.kernel("gelu", launch=(t + 20, t + 21), run=(t + 30, t + 40))
        builder.thread(200)
        builder.range(f"{ENGINE}CheckpointFunctionBackward, seq = {first}", t + 100, t + 400)
        builder.range("model.layers.0.mlp", t + 110, t + 190)
        builder.range(f"aten::gelu, seq = {first + 1}", t + 112, t + 180)
        builder.kernel("gelu", launch=(t + 120, t + 121), run=(t + 130, t + 140))
        builder.range(f"{ENGINE}GeluBackward0, seq = {first + 1}", t + 200, t + 300)
        builder.kernel("gelu_backward", launch=(t + 210, t + 211), run=(t + 220, t + 230))
    analysis = analyze([builder.write(tmp_path / "a.sqlite")])
    layers = analysis.frame("layers")
    assert layers["layer_name"].tolist() == ["model.layers.0.mlp"] * 2
    assert layers["kernel_count"].tolist() == [3, 3] and layers["kernel_ns"].tolist() == [30, 30]


def test_work_of_another_thread_adds_what_it_does_outside_the_layers_own_time(tmp_path):
    """The gradients of a phase run on the engine's thread, most of them while the phase's own kernels do."""
    builder = ExportBuilder().process(100)
    for step in range(2):
        t = 1000 * step
        builder.thread(100).range(f"step {step}", t, t + 900)
        builder.range("forward", t + 5, t + 300)
        builder.kernel("gemm", launch=(t + 10, t + 11), run=(t + 20, t + 60))
        builder.range("backward", t + 310, t + 800)
        builder.kernel("fill", launch=(t + 320, t + 321), run=(t + 330, t + 340))
        builder.kernel("sum", launch=(t + 700, t + 701), run=(t + 730, t + 740))
        builder.thread(200)
        builder.kernel("gemm_backward", launch=(t + 400, t + 401), run=(t + 410, t + 710), stream=1)
        builder.kernel("gemm_backward", launch=(t + 500, t + 501), run=(t + 720, t + 760), stream=1)
    layers = analyze([builder.write(tmp_path / "a.sqlite")]).frame("layers")
    backward = layers[layers["layer_name"] == "backward"]
    assert backward["projection_ns"].tolist() == [410, 410] and backward["busy_ns"].tolist() == [350, 350]
    assert backward["latency_ns"].tolist() == [430, 430]


def loop_of_own_ranges(tmp_path, texts, *, backward_thread=200, is_marked=True, evaluations=0):
    """Steps with `xsp_post.ranges` around the forward pass, which holds most of the work on the step's own thread;
    the gradients are launched by another thread, with or without ranges."""
    builder, t = ExportBuilder().process(100), 0
    for k, text in enumerate(texts):
        builder.thread(100)
        if text:
            builder.range(text, t, t + 990)
        builder.range(f"model:forward#{k}", t + 10, t + 300, domain="xsp")
        for layer in range(3):
            at = t + 20 + 80 * layer
            builder.range(f"layers.{layer}:Linear#{k}", at, at + 60, domain="xsp")
            builder.kernel("gemm", launch=(at + 5, at + 10), run=(at + 10, at + 70))
        builder.thread(backward_thread)
        if is_marked:
            builder.range(f"{ENGINE}AddmmBackward0", t + 310, t + 600)
        builder.kernel("gemm_backward", launch=(t + 320, t + 330), run=(t + 340, t + 400))
        builder.thread(100).range("Optimizer.step#Adam.step", t + 700, t + 900)
        builder.kernel("adam", launch=(t + 710, t + 720), run=(t + 730, t + 740))
        t += 1000
        for _ in range(evaluations if k % 2 else 0):
            builder.range("model:forward#9", t, t + 90, domain="xsp")
            builder.kernel("gemm", launch=(t + 5, t + 10), run=(t + 10, t + 70))
            t += 100
    return analyze([builder.write(tmp_path / "a.sqlite")]).frame("iterations")


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("text", ["step {}", "iteration {}", "train_step", "epoch 3 step {}", "batch {}"])
def test_a_step_around_our_ranges_is_the_execution(tmp_path, text, is_marked):
    found = loop_of_own_ranges(tmp_path, [text.format(k) for k in range(4)], is_marked=is_marked)
    assert found["kernel_count"].tolist() == [5] * 4
    assert found["kind"].tolist() == ["training step"] * 4


@pytest.mark.parametrize("is_marked", [True, False])
def test_our_ranges_and_the_training_work_after_them_are_one_execution(tmp_path, is_marked):
    found = loop_of_own_ranges(tmp_path, [""] * 4, is_marked=is_marked)
    assert found["kernel_count"].tolist() == [5] * 4 and found["kind"].tolist() == ["training step"] * 4


def test_an_evaluation_between_training_steps_is_an_execution_of_its_own(tmp_path):
    found = loop_of_own_ranges(tmp_path, [""] * 4, evaluations=2)
    assert found["kind"].tolist() == (["training step"] * 2 + ["forward"] * 2) * 2
    assert found["kernel_count"].tolist() == [5, 5, 1, 1] * 2


@pytest.mark.parametrize(
    "turns, kinds",
    [
        (["GDDb", "Db"], ["training step"] * 2),  # a GAN: the judge's update, then the maker's
        (["DbGDb", "Db"], ["training step"] * 2),
        (["FbFbFb"], ["training step"]),  # gradients of three batches
        (
            ["Fb", "FFFb"],
            ["training step", "forward", "forward", "training step"],
        ),  # an evaluation at every second step
        (["FTb"], ["training step"]),  # a model and its teacher
    ],
)
def test_calls_of_models_are_parts_of_the_step_that_uses_them(tmp_path, turns, kinds):
    """F, G, D, T: calls of models; b: backward work; an update ends each turn."""
    builder, t, number = ExportBuilder().process(100).thread(100), 0, 0
    for turn in turns * 4:
        for part in turn:
            if part == "b":
                builder.range(f"{ENGINE}AddmmBackward0", t, t + 50)
                builder.kernel("gemm_backward", launch=(t + 5, t + 10), run=(t + 10, t + 45))
            else:
                phase = {"F": "forward", "G": "maker", "D": "judge", "T": "teacher"}[part]
                builder.range(f"model:{phase}#{number}", t, t + 90, domain="xsp")
                builder.kernel(f"gemm_{phase}", launch=(t + 5, t + 10), run=(t + 10, t + 85))
                number += 1
            t += 100
        builder.range("Optimizer.step#Adam.step", t, t + 40)
        builder.kernel("adam", launch=(t + 10, t + 20), run=(t + 25, t + 38))
        t += 100
    found = analyze([builder.write(tmp_path / "a.sqlite")]).frame("iterations")
    assert found["kind"].tolist() == kinds * 4


def test_our_ranges_in_a_step_that_adds_nothing_stay_the_executions(tmp_path):
    builder = ExportBuilder().process(100).thread(100)
    for k in range(3):
        t = 1000 * k
        builder.range(f"step {k}", t, t + 900).range(f"model:forward#{k}", t + 10, t + 800, domain="xsp")
        builder.range(f"fc:Linear#{k}", t + 20, t + 700, domain="xsp")
        builder.kernel("gemm", launch=(t + 30, t + 40), run=(t + 50, t + 500))
    found = analyze([builder.write(tmp_path / "a.sqlite")])
    assert found.frame("iterations")["phase"].tolist() == ["forward"] * 3


def test_phases_of_steps_in_epochs_are_one_execution_a_step(tmp_path):
    """Nothing marks the steps; each epoch is a range of its own."""
    builder, t = ExportBuilder().process(100).thread(100), 0
    for epoch in range(3):
        begin = t
        for _ in range(4):
            for phase, name, length in (
                ("forward", "sgemm_tn", 100), ("backward", "sgemm_nt", 200), ("optimizer_step", "adam_kernel", 30),
            ):  # fmt: skip
                builder.range(phase, t + 5, t + 60)
                builder.kernel(name, launch=(t + 10, t + 20), run=(t + 30, t + 30 + length))
                t += 400
        builder.range(f"Epoch {epoch}", begin, t - 10)
    found = analyze([builder.write(tmp_path / "a.sqlite")]).frame("iterations")
    assert found["kernel_count"].tolist() == [3] * 12 and found["kind"].tolist() == ["training step"] * 12


def test_a_loop_of_passes_after_training_is_no_part_of_the_last_step(tmp_path):
    builder, t = ExportBuilder().process(100).thread(100), 0
    for k in range(10):
        if k == 4:
            begin = t
        for phase in ("Forward", "Backward")[: 2 if k < 4 else 1]:
            builder.range(phase, t + 5, t + 60)
            builder.kernel(phase, launch=(t + 10, t + 20), run=(t + 30, t + 130))
            t += 400
    builder.range("Benchmark", begin, t)
    analysis = analyze([builder.write(tmp_path / "a.sqlite")])
    found = analysis.frame("iterations")
    assert found["kind"].tolist() == ["training step"] * 4 + ["forward"] * 6
    assert found["kernel_count"].tolist() == [2] * 4 + [1] * 6
    assert "100 % of device time (" in analysis.frame("captures")["execution_evidence"].iloc[0]


def steps_of_phases(builder, t, phases, count=5, loose=()):
    """Steps of a range for each phase, with its kernels; ``loose``: those without a range."""
    for _ in range(count):
        for phase, kernels in phases:
            begin = t
            for name in kernels:
                builder.kernel(name, launch=(t + 10, t + 20), run=(t + 30, t + 130))
                t += 200
            if phase not in loose:
                builder.range(phase, begin + 5, t - 5)
    return t


@pytest.mark.parametrize("loose", [(), ("optimizer",), ("optimizer", "augment")])
def test_averaged_weights_end_a_step(tmp_path, loose):
    phases = [("augment", ["roll"]), ("online", ["sgemm_tn"]), ("backward", ["sgemm_nt"]),
              ("optimizer", ["adam_kernel"]), ("average", ["axpby"])]  # fmt: skip
    builder = ExportBuilder().process(100).thread(100)
    steps_of_phases(builder, 0, phases, loose=loose)
    found = analyze([builder.write(tmp_path / "a.sqlite")]).frame("iterations")
    assert found["kernel_count"].tolist() == [5] * 5
