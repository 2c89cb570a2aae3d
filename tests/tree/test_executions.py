"""What one model execution is: each rule on a capture that was made for it, and nothing on what has no structure."""

from __future__ import annotations

import json
import re
import shlex
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_thread import Program
from properties import examples

from xsp_post.base.errors import UsageError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.tree.cycles import find_cycle
from xsp_post.tree.structure.constants import DEFAULTS


def network(program, kernels=6):
    for number in range(kernels):
        program.kernel(f"layer_{number}")


def names(tree):
    return tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[tree.iterations["node_id"]]].tolist()


def chosen(tree):
    """Rule, name and count of what was taken, and its share of the device time in percent."""
    taken = tree.execution_candidates[tree.execution_candidates["is_chosen"].to_numpy(bool)]
    share = round(100 * taken["coverage_ratio"].sum())
    return [(r["rule"], r["name"], r["execution_count"]) for r in taken.to_dict("records")], share


def codes(tree):
    return {finding.code for finding in tree.findings}


def test_counted_ranges_inside_a_loop_are_the_executions(tmp_path):
    program = Program()
    program.inside("generate", *(lambda k=k: program.inside(f"token_{k}_processing", lambda: network(program))
                                 for k in range(64)))  # fmt: skip
    tree = program.tree(tmp_path)
    assert chosen(tree) == ([("ranges that repeat", "token_*_processing", 64)], 100)
    assert tree.execution_evidence.startswith("model executions: `token_*_processing` ×64, 100 % of device time")
    assert tree.iterations["kernel_count"].tolist() == [6] * 64
    assert "executions-cover-little" not in codes(tree)


def test_layers_that_count_themselves_are_no_executions(tmp_path):
    program = Program()
    for _ in range(3):
        program.inside("forward_all", *(lambda k=k: program.inside(f"layer_{k}_forward", lambda: network(program))
                                        for k in range(12)))  # fmt: skip
    tree = program.tree(tmp_path)
    assert names(tree) == ["forward_all"] * 3


def test_the_innermost_marker_that_still_holds_the_work_counts(tmp_path):
    program = Program()
    for _ in range(2):
        program.inside("execute_8_context_1(sq8)_generation_0(sq0)", lambda: program.kernel("prepare", 20),
                       lambda: program.inside("step[EXTEND bs=1 toks=8]", lambda: network(program)))  # fmt: skip
    assert names(program.tree(tmp_path)) == ["step[EXTEND]"] * 2


def test_an_inner_marker_that_leaves_out_work_does_not(tmp_path):
    program = Program()
    for k in range(2):
        program.inside(f"step {k}", lambda: network(program, 3),
                       lambda: program.inside("step[DECODE bs=1]", lambda: network(program, 3)))  # fmt: skip
    assert names(program.tree(tmp_path)) == ["step", "step"]


def test_a_training_step_is_one_execution_of_its_micro_batches(tmp_path):
    program = Program()

    def micro_batch(number):
        program.inside(f"micro_batch {number}", lambda: program.inside("forward", lambda: network(program)),
                       lambda: program.inside("backward", lambda: network(program)))  # fmt: skip

    for k in range(2):
        program.inside(f"train step {k}", *(lambda n=n: micro_batch(n) for n in range(4)),
                       lambda: program.inside("optimizer.step", lambda: program.kernel("adam", 30)))  # fmt: skip
    tree = program.tree(tmp_path)
    assert names(tree) == ["train step"] * 2
    assert tree.iterations["kind"].tolist() == ["training step"] * 2


def test_sibling_stages_in_a_cycle_are_one_execution_a_turn(tmp_path):
    program = Program()
    for _ in range(5):
        for stage in ("decode_image", "backbone_3d", "post_processing"):
            program.inside(stage, lambda s=stage: network(program, 8 if s == "backbone_3d" else 2))
    tree = program.tree(tmp_path)
    assert chosen(tree) == ([("cycle of ranges", "decode_image … post_processing", 5)], 100)
    assert tree.iterations["kernel_count"].tolist() == [12] * 5
    assert tree.nodes["is_inferred"].to_numpy()[tree.iterations["node_id"]].all()
    below = tree.nodes["parent_id"].isin(tree.iterations["node_id"]).to_numpy()
    assert below.sum() == 15


def test_forward_backward_and_optimizer_beside_one_another_are_one_training_step(tmp_path):
    program = Program()
    for _ in range(4):
        for phase in ("forward", "backward", "optimizer.step"):
            program.inside(phase, lambda: network(program, 4))
    tree = program.tree(tmp_path)
    assert tree.iterations["kernel_count"].tolist() == [12] * 4
    assert tree.iterations["kind"].tolist() == ["training step"] * 4


def test_parts_of_layers_in_a_cycle_are_no_executions(tmp_path):
    program = Program()
    program.inside(
        "run_model", *(lambda n=n: program.inside(n, lambda: network(program)) for n in ["attn", "ffn"] * 12)
    )
    assert names(program.tree(tmp_path)) == ["run_model"]


def test_prefill_and_decode_are_kinds(tmp_path):
    program = Program()
    program.inside("step[EXTEND bs=2 toks=64]", lambda: network(program, 12))
    for _ in range(3):
        program.inside("step[DECODE bs=2]", lambda: network(program, 6))
    tree = program.tree(tmp_path)
    assert tree.iterations["kind"].tolist() == ["prefill", "decode", "decode", "decode"]
    assert tree.iterations["phase"].tolist() == ["prefill", "decode", "decode", "decode"]
    assert tree.iterations["batch_size"].tolist() == [2] * 4
    assert tree.iterations["token_count"].tolist() == [64, 2, 2, 2]
    assert not tree.iterations["is_warmup"].any()


def test_a_marked_step_of_a_rare_kind_is_an_execution_too(tmp_path):
    program = Program()
    for _ in range(150):
        program.inside("step[DECODE bs=8]", lambda: network(program, 12))
    program.inside("step[EXTEND bs=1 toks=64]", lambda: network(program, 1))
    assert program.tree(tmp_path).iterations["kind"].tolist() == ["decode"] * 150 + ["prefill"]


def test_passes_inside_a_long_range(tmp_path):
    program = Program()

    def forward_pass():
        program.kernel("embed", 30)
        for _ in range(8):
            for part in ("norm", "qkv", "softmax", "attend", "project", "norm_2", "up", "gelu", "down"):
                program.kernel(f"gemm_{part}", 90)
        program.kernel("head", 50)

    program.inside("warmup", lambda: program.inside("setup", forward_pass))
    program.inside("benchmark", lambda: program.inside("nothing_known", *[forward_pass] * 5))
    tree = program.tree(tmp_path)
    found, share = chosen(tree)
    assert [(rule, count) for rule, _, count in found] == [("period of the launch sequence", 6)] and share == 100
    assert tree.iterations["kernel_count"].tolist() == [74] * 6
    assert "100 % of device time (period" in tree.execution_evidence  # in the rows of the passes, too
    assert tree.iterations["is_warmup"].tolist() == [True] + [False] * 5


def test_under_half_of_the_device_time_is_a_warning_that_names_the_runner_up(tmp_path):
    program = Program()
    for k in range(4):
        program.inside(f"step {k}", lambda: program.kernel("small", 50))
        program.kernel("elsewhere", 400)
    tree = program.tree(tmp_path)
    assert chosen(tree)[0] == [("step markers", "step", 4)]
    warning = next(f for f in tree.findings if f.code == "executions-cover-little")
    assert warning.severity == "warning" and "11 % of device time" in warning.example


def test_the_option_of_the_runner_up_selects_it(tmp_path):
    program = Program()
    for _ in range(3):
        program.inside("handle", lambda: program.inside("model", lambda: network(program, 4)),
                       lambda: network(program, 2))  # fmt: skip
        program.inside("send", lambda: network(program, 2))
    tree = program.tree(tmp_path)
    others = tree.execution_candidates[~tree.execution_candidates["is_chosen"].to_numpy(bool)]
    option = others[others["option"] != ""].iloc[0]
    pattern = shlex.split(option["option"])[1]
    again = program.tree(tmp_path / "..", model_range=pattern)
    assert len(again.iterations) == option["execution_count"]


def test_warm_up_that_launches_what_is_measured_is_its_warm_up(tmp_path):
    program = Program()
    for _ in range(2):
        program.inside("Warm-up", lambda: network(program))
    for k in range(3):
        program.inside(f"step {k}", lambda: network(program))
    tree = program.tree(tmp_path)
    if len(tree.iterations) == 5:
        assert tree.iterations["is_warmup"].tolist() == [True, True, False, False, False]
        assert tree.iterations["phase"].nunique() == 1


@examples(60)
@given(st.lists(st.integers(0, 5), min_size=12, max_size=120), st.integers(0, 2**16))
def test_no_cycle_is_found_in_random_siblings(symbols, seed):
    order = np.random.default_rng(seed).permutation(len(symbols))
    name = np.array(symbols)[order]
    count = len(name)
    start = np.arange(count) * 10
    found = find_cycle(
        np.full(count, -1), name, np.zeros(count, np.int64), start, start + 9, np.full(count, 5),
        np.ones(count, np.int64), np.ones(count, bool), 5 * count, DEFAULTS,
    )  # fmt: skip
    if found is None:
        return
    # what is found is there: most turns have the same names in the same order
    turns = [tuple(name[found.spans[found.turn == k]]) for k in range(found.count)]
    chosen = [one for size in range(2, 7) for one in combinations(range(6), size)]
    alike = [[tuple(n for n in turn if n in some) for turn in turns] for some in chosen]
    assert found.count >= 3
    assert any(len(set(one)) > 1 and turns.count(one) >= 3 for turns in alike for one in turns)


@examples(15)
@given(st.lists(st.integers(0, 30), min_size=60, max_size=150))
def test_random_launches_inside_a_range_stay_one_execution(tmp_path, kernels):
    order = np.random.default_rng(len(kernels) + sum(kernels)).permutation(30 * len(kernels)) % 31
    program = Program()
    program.inside("main", lambda: program.inside("body", *(lambda n=n: program.kernel(f"k{n}") for n in order[:200])))
    assert names(program.tree(tmp_path)) == ["main"]


@pytest.mark.parametrize("text", ["step[DECODE bs=*]", "a+b (c) | d 'e'", "token_*_x", "üñ \\d"])
def test_patterns_of_options_match_their_texts(text):
    from xsp_post.tree.executions import pattern_of as _pattern

    example = text.replace("*", "17")
    pattern = shlex.split("x " + shlex.quote(_pattern(text)))[1]
    assert re.search(pattern, example)


def root_calls(folder, *, calls, backward, marker=True, optimizer=False):
    """A PyTorch trace: two `ProfilerStep`s, each with calls of one root module, and perhaps backward work after."""
    events, at, correlation = [], 0, 0

    def span(name, category, start, end, thread=1):
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": end - start}
        )

    def work(name, start):
        nonlocal correlation
        correlation += 1
        args = {"correlation": correlation, "device": 0, "stream": 7}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start,
                       "dur": 1, "args": args})  # fmt: skip
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start + 2, "dur": 5,
                       "args": args})  # fmt: skip

    for step in range(2):
        begin = at
        for _ in range(calls):
            span("nn.Module: Net_0", "python_function", at + 1, at + 19)
            span("nn.Module: Linear_0", "python_function", at + 2, at + 18)
            span("aten::linear", "cpu_op", at + 3, at + 17)
            work("gemm", at + 4)
            at += 20
        if backward:
            span("autograd::engine::evaluate_function: AddmmBackward0", "cpu_op", at + 1, at + 19)
            work("gemm_backward", at + 4)
            at += 20
        if optimizer:
            span("Optimizer.step#Adam.step", "user_annotation", at + 1, at + 9)
            work("adam", at + 2)
            at += 10
        if marker:
            span(f"ProfilerStep#{step}", "user_annotation", begin, at)
        at += 5
    path = folder / "trace.pt.trace.json"
    device = [{"id": 0, "name": "GPU"}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": device, "traceEvents": events}))
    return build_tree(load(path).trace)


def test_calls_of_one_root_module_in_a_step_are_executions(tmp_path):
    tree = root_calls(tmp_path, calls=5, backward=False)
    assert names(tree) == ["nn.Module: Net_0"] * 10
    assert tree.iterations["kind"].tolist() == ["forward"] * 10


@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("calls", [1, 3])
def test_root_calls_and_the_training_work_after_them_are_one_execution(tmp_path, calls, optimizer):
    """Without a step marker; the optimiser's range alone, with 2 % of the work, is none."""
    tree = root_calls(tmp_path, calls=calls, backward=True, marker=False, optimizer=optimizer)
    taken, share = chosen(tree)
    rule = "calls of the whole model and the training work after them"
    assert taken == [(rule, "training step of nn.Module: Net_0", 2)] and share == 100
    assert tree.iterations["kind"].tolist() == ["training step"] * 2
    assert tree.iterations["kernel_count"].tolist() == [calls + 1 + optimizer] * 2


def test_an_optimiser_alone_is_no_execution(tmp_path):
    program = Program()
    for _ in range(3):
        network(program, 20)
        program.inside("Optimizer.step#Adam.step", lambda: program.kernel("adam", 10))
    assert "Optimizer.step#Adam.step" not in names(program.tree(tmp_path))


def test_calls_of_one_root_module_in_a_training_step_are_one_execution(tmp_path):
    tree = root_calls(tmp_path, calls=5, backward=True)
    assert names(tree) == ["ProfilerStep"] * 2
    assert tree.iterations["kind"].tolist() == ["training step"] * 2


def test_one_call_of_a_root_module_in_each_step_leaves_the_step(tmp_path):
    assert names(root_calls(tmp_path, calls=1, backward=False)) == ["ProfilerStep"] * 2


def transformer_block(program):
    for part in (
        "norm",
        "gemm_qkv",
        "softmax",
        "gemm_attend",
        "gemm_project",
        "norm_2",
        "gemm_up",
        "gelu",
        "gemm_down",
    ):
        program.kernel(part, 90)


def transformer(program, blocks=8):
    program.kernel("embedding", 30)
    for _ in range(blocks):
        transformer_block(program)
    program.kernel("gemm_head", 50)


def test_passes_below_main_and_run_are_in_their_rows(tmp_path):
    program = Program()
    program.inside("main", lambda: program.inside("load", lambda: None),
                   lambda: program.inside("run", *[lambda: transformer(program)] * 6))  # fmt: skip
    tree = program.tree(tmp_path)
    assert tree.iterations["kernel_count"].tolist() == [74] * 6
    assert "×6, 100 % of device time (period" in tree.execution_evidence


def test_the_warm_up_before_a_loop_holds_passes_too(tmp_path):
    program = Program()
    program.inside("warmup", *[lambda: transformer(program)] * 2)
    program.inside("timed", *[lambda: transformer(program)] * 6)
    assert program.tree(tmp_path).iterations["is_warmup"].tolist() == [True] * 2 + [False] * 6


def test_blocks_are_inferred_in_the_largest_ranges_of_each_execution(tmp_path):
    """Each step's `forward_all` holds an eighth of all work; `run_batch` holds nothing but the phases inside it."""
    program = Program()

    def batch():
        program.inside("part_a", lambda: transformer(program))
        program.inside("part_b", lambda: transformer(program))

    for k in range(4):
        program.inside(f"step {k}", lambda: program.inside("run_batch", batch), lambda: program.kernel("sum", 9))
    tree = program.tree(tmp_path)
    assert names(tree) == ["step"] * 4
    assert "×16 (inferred, high confidence), 9" in tree.layer_evidence


@pytest.mark.parametrize(("requests", "tokens"), [(1, 5), (1, 24), (3, 12)])
@pytest.mark.parametrize("pause", [2000, 0])
def test_tokens_of_requests_are_passes_and_so_is_the_prefill_before_them(tmp_path, requests, tokens, pause):
    """Requests: a first pass of other kernels, of which each layer repeats as the tokens do, then one a token."""
    program = Program()
    for _ in range(requests):
        program.host += 5 * pause
        for token in range(tokens + 1):
            for _ in range(6):
                for part in ("norm", "gemm_qkv", "softmax", "gemm_up", "gelu", "gemm_down"):
                    program.kernel(part if token else f"{part}_large", 90)
            program.kernel("gemm_head", 50)
            program.host += pause
    tree = program.tree(tmp_path)
    found = {name: count for _, name, count in chosen(tree)[0]}
    assert sorted(found.values()) == [requests, requests * tokens] and not tree.iterations["is_warmup"].any()
    if pause:  # else the head of each pass may as well begin the next
        assert set(tree.iterations["kernel_count"]) == {37}
        assert found["iteration"] == requests  # of equal size, the passes of tokens are "iteration (2)"


@pytest.mark.parametrize(("replays", "count"), [(12, 12), (2, 0)])
def test_replays_of_one_graph_that_hold_most_of_the_work_are_executions(tmp_path, replays, count):
    program = Program()
    program.kernel("fill", 20)
    for _ in range(replays):
        start = max(program.device, program.host + 5)
        program.builder.graph_launch(launch=(program.host, program.host + 4), run=(start, start + 900), graph_id=7)
        program.host, program.device = program.host + 10, start + 901
    tree = program.tree(tmp_path)
    assert len(tree.iterations) == count
    if count:
        assert chosen(tree)[0] == [("replays of a CUDA graph", "[CUDA graph]", 12)]
        assert tree.iterations["graph_ns"].tolist() == [900] * 12


def test_ranges_with_little_of_the_work_give_way_to_passes_outside_them(tmp_path):
    program = Program()
    for _ in range(6):
        program.kernel("embedding", 30)
        for _ in range(8):
            for part in ("norm", "gemm_qkv"):
                program.kernel(part, 90)
            program.inside("attention", lambda: program.inside("scores", *[lambda: program.kernel("softmax", 20)] * 2))
            for part in ("gemm_project", "norm_2", "gemm_up", "gelu", "gemm_down"):
                program.kernel(part, 90)
    tree = program.tree(tmp_path)
    assert chosen(tree)[0] == [("period of the launch sequence", "iteration", 6)]


def test_the_user_chooses_the_rule(tmp_path):
    program = Program()
    for _ in range(5):
        for part in ("decode", "backbone", "post_processing"):
            program.inside(part, lambda name=part: [program.kernel(f"{name}_{k}") for k in range(4)])
    assert chosen(program.tree(tmp_path))[0][0][::2] == ("cycle of ranges", 5)
    bare = program.tree(tmp_path, executions="launches")
    assert chosen(bare)[0][0][::2] == ("period of the launch sequence", 5) and not len(bare.trace.spans)
    with pytest.raises(UsageError, match="no calls of the whole model in the capture; its ranges say: ") as caught:
        program.tree(tmp_path, executions="root")
    assert "say: cycle" in str(caught.value)
    assert caught.value.code == "executions-not-found"


@pytest.mark.parametrize("text", ["solve {}", "transcribe:{}", "chunk_{}", "work[{}]"])
def test_numbers_that_grow_in_outermost_ranges_count_executions_whatever_the_word(tmp_path, text):
    grown = built(tmp_path, [text.format(number) for number in range(5)])
    assert names(grown) == [text.format("").rstrip(":_ []")] * 5
    assert chosen(grown)[0][0][0] == "ranges that repeat"
    cycled = built(tmp_path, [text.format(number) for number in (0, 1, 2, 0, 1, 2)])  # they tell layers apart
    assert {text.format(number) for number in range(3)} <= set(cycled.names.folded_names.tolist())


def test_layers_of_one_pass_do_not_count_executions(tmp_path):
    tree = built(tmp_path, [f"linear {number}" for number in range(5)])
    assert "linear 3" in tree.names.folded_names.tolist()


def built(folder, texts):
    """The tree of a program of outermost ranges with six kernels each."""
    program = Program()
    for text in texts:
        program.inside(text, lambda: network(program))
    return program.tree(folder)
