"""What the sentences on executions and layers say of device time is what the rows of the tree hold."""

from __future__ import annotations

import random
import re

import pandas as pd
import pytest
from builders import ExportBuilder
from generators import pilgrims
from generators.machine import write
from told_score import program_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.reports.tree_rows import tree_rows
from xsp_post.tree.execution_evidence import _other

TEXTS = ("step {}", "forward", "backward", "model", "layer_{}", "stage", "iteration {}", "aten::mm", "token_{}_x")


def program(folder, seed):
    """One to three threads with ranges in ranges, some closed by another thread, and all kinds of device work."""
    chance, builder, free_at = random.Random(seed), ExportBuilder(), 0
    texts = chance.sample(TEXTS, chance.randint(2, 6))
    todo = [
        (100 + thread, thread * 37 + k * 20000, thread * 37 + (k + 1) * 20000 - 10, 0, k)
        for thread in range(chance.randint(1, 3))
        for k in range(chance.randint(2, 5))
    ]
    while todo:
        thread, low, high, depth, number = todo.pop()
        builder.thread(thread)
        if depth < 4 and chance.random() < 0.75 and high - low >= 60:
            text = texts[min(depth, len(texts) - 1)] if chance.random() < 0.8 else chance.choice(texts)
            if chance.random() < 0.08:
                builder.cross_thread(text.format(number), low, high, end_thread=101)
            else:
                builder.range(text.format(number), low, high)
            parts = chance.randint(1, 3)
            width = (high - low - 4) // parts
            todo += [(thread, low + 2 + k * width, low + (k + 1) * width - 1, depth + 1, k) for k in range(parts)]
        elif high - low > 12:
            run = (max(free_at, low + 8), max(free_at, low + 8) + chance.randint(5, 400))
            free_at, launch, what = run[1] + 1, (low + 1, low + 5), chance.random()
            if what < 0.8:
                builder.kernel(chance.choice("abc"), launch=launch, run=run)
            elif what < 0.95:
                builder.memcpy(1000, launch=launch, run=run)
            else:
                builder.graph_launch(launch=launch, run=run)
    return build_tree(load(builder.write(folder / "a.sqlite")).trace)


def percent(pattern, text):
    found = re.search(pattern, text)
    return float(found.group(1)) / 100 if found else None


@pytest.mark.parametrize("seed", range(8))
def test_coverage_is_the_share_of_the_executions_rows(tmp_path, seed):
    tree = program(tmp_path, seed)
    said = percent(r"([\d.]+) % of device time", tree.execution_evidence)
    if said is None:
        assert not len(tree.iterations)
        return
    device_ns = tree.nodes["device_ns"].to_numpy()
    rows = device_ns[tree.iterations["node_id"].to_numpy()].sum() / device_ns[0]
    assert said == pytest.approx(rows, abs=0.0055)
    chosen = tree.execution_candidates["is_chosen"].to_numpy(bool)
    counted = tree.iterations["device_ns"].sum() / device_ns[0]
    assert tree.execution_candidates["coverage_ratio"].to_numpy()[chosen].sum() == pytest.approx(counted)
    with_others = percent(r"([\d.]+) % with what others", tree.execution_evidence)
    assert (said if with_others is None else with_others) == pytest.approx(counted, abs=0.0105)


def test_work_in_a_long_range_of_another_thread_is_not_in_the_rows_of_the_steps(tmp_path):
    builder = ExportBuilder().process(100)
    builder.thread(200).range("worker", 0, 5000)
    for k in range(4):
        t = 1000 * k
        builder.thread(100).range(f"step {k}", t, t + 900)
        builder.kernel("small", launch=(t + 10, t + 20), run=(t + 30, t + 40))
        builder.thread(200).kernel("large", launch=(t + 100, t + 110), run=(t + 120, t + 200))
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    said = "`step` ×4, 11 % of device time (step markers), 100 % with what others launched"
    assert said in tree.execution_evidence


def test_layers_of_executions_that_are_not_all_work_say_what_their_share_is_of(tmp_path):
    builder = ExportBuilder().process(100).thread(100)
    for k in range(4):
        t = 1000 * k
        builder.range(f"step {k}", t, t + 900).range("layers.0.mlp", t + 5, t + 500)
        builder.kernel("gemm", launch=(t + 10, t + 20), run=(t + 30, t + 130))
        builder.range("other", t + 910, t + 990)
        builder.kernel("copy", launch=(t + 920, t + 930), run=(t + 940, t + 960))
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert "`step` ×4, 83 % of device time" in tree.execution_evidence
    assert "100 % of the executions' device time" in tree.layer_evidence


def test_the_launch_sequence_is_taken_where_marked_ranges_hold_little(tmp_path):
    builder, t = ExportBuilder().process(100).thread(100), 0
    for k in range(6):
        builder.range(f"step {k}", t, t + 20)
        builder.kernel("small", launch=(t + 5, t + 8), run=(t + 10, t + 30))
        t += 30
        for _ in range(6):
            for name in ("norm", "gemm_qkv", "softmax", "gemm_up", "gelu", "gemm_down"):
                builder.kernel(name, launch=(t + 2, t + 6), run=(t + 20, t + 29))
                t += 10
        t += 50
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert "`iteration` ×6, 100 % of device time (period of the launch sequence)" in tree.execution_evidence
    assert tree.execution_evidence.endswith("; else `step` ×6, 6 %, with --model-range '^step'")
    assert tree.execution_candidates["is_chosen"].tolist() == [True, False]


def test_a_few_kernels_beside_the_ranges_taken_name_nothing_else(tmp_path):
    builder = ExportBuilder().process(100).thread(100)
    builder.range("step 0", 0, 100).kernel("small", launch=(5, 8), run=(10, 30))
    builder.range("other", 200, 300).kernel("large", launch=(205, 208), run=(210, 900))
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert tree.execution_evidence == "model executions: `step` ×1, 3 % of device time (step markers)"


BLOCK = ("rms_norm_kernel", "ampere_sgemm_64x64_tn", "flash_fwd_kernel", "ampere_sgemm_64x64_nn", "rms_norm_kernel",
         "ampere_sgemm_128x64_tn", "gelu_kernel", "ampere_sgemm_128x128_tn", "vectorized_add_kernel")  # fmt: skip


PASS = ("embedding_kernel", *BLOCK * 8, "argmax_kernel")
LARGER = ("embedding_kernel", *BLOCK * 12, "argmax_kernel")
EXTRA = ("argmax_kernel", *("gelu_kernel", "vectorized_add_kernel") * 5)
BATCH = ("conv_kernel", "softmax_kernel", *(*BLOCK * 3, "copy_kernel") * 2)


@pytest.mark.parametrize(("passes", "pause", "is_guess"), [
    ([PASS], 2_000, True), ([PASS] * 6, 2_000, False),
    ([PASS] * 6 + [LARGER], 2_000, False),  # another size makes no other cut likely
    ([PASS] * 5 + [PASS + EXTRA] + [PASS] * 2, 0, True), ([PASS] * 5 + [PASS + EXTRA] + [PASS] * 2, 2_000, False),
    ([BATCH] * 3, 0, True), ([BATCH] * 3, 2_000, False),  # three executions, or two in each batch: pauses say which
])  # fmt: skip
def test_what_is_guessed_is_not_the_window_of_the_verdict(tmp_path, passes, pause, is_guess):
    """One pass through equal layers may be an execution; six are. What other cuts explain as well is a guess, and so
    are executions of which one is longer, where no pauses say that nothing else begins in it."""
    builder, t = ExportBuilder().process(100).thread(100), 0
    for names in passes:
        for name in names:
            builder.kernel(name, launch=(t, t + 5), run=(t + 10, t + 30))
            t += 40
        t += pause
    result = analyze([builder.write(tmp_path / "a.sqlite")])
    chosen = result.frame("execution_candidates").query("is_chosen")
    assert chosen["execution_count"].tolist() == [len(passes)]
    assert (chosen["confidence"].tolist() == ["low"]) == is_guess
    said = result.frame("captures")["execution_evidence"].iloc[0]
    assert ("(guessed: " in said) == is_guess
    scopes = set(result.frame("device_windows").query("window_ns > 0")["scope"].astype(str))
    assert ("execution" not in scopes) == is_guess


def test_the_other_candidate_is_the_one_that_covers_most():
    others = pd.DataFrame({"coverage_ratio": [0.2, 0.8, 0.5], "name": ["a", "b", "c"], "execution_count": [3, 1200, 5],
                           "option": ["", "--model-range b", ""]})  # fmt: skip
    assert _other(others) == "; else `b` ×1,200, 80 %, with --model-range b"
    assert _other(others.iloc[:0]) == ""


def test_a_kernel_at_time_zero_has_a_time(tmp_path):
    export = ExportBuilder().process(100).range("step", -5, 50).kernel("a", launch=(-3, -2), run=(0, 9))
    tree = build_tree(load(export.write(tmp_path / "a.sqlite")).trace, Options(model_range="^step$"))
    assert tree.iterations[["device_offset_ns", "projection_ns"]].to_numpy().tolist() == [[5.0, 9.0]]


def test_what_is_around_the_blocks_is_not_called_the_layers(tmp_path):
    """The copies of the inputs, before the blocks, are most of the device time; no owner calls them the layers."""
    path = write(program_of("gnn_sampled_inference", "all"), tmp_path / "report")
    said = build_tree(load(path).trace).layer_evidence
    assert said.startswith("layers: `block · aten::linear") and "; `before the blocks" in said


def test_numbers_of_calls_multiply_to_that_of_the_first_line(tmp_path):
    """A pass that is called twice says so: else three blocks in each of two passes are three, and the line says six."""
    results = analyze([write(pilgrims.draw(98_902), tmp_path / "report")])
    rows = tree_rows(results)
    inner = rows[rows["name"].eq("transformer block (2)") & rows["call_count"].eq(30)].index[0]
    outer = rows.loc[:inner].query("name == 'backward pass'").iloc[-1]
    assert (outer["repeat_count"], rows.loc[inner, "repeat_count"]) == (2, 3)
    assert "`transformer block (2)` ×12" in str(results.frame("captures")["layer_evidence"].iloc[0])  # 2 × 3 + 3 + 3
