"""Backward work of the autograd thread hangs below its step in the tree, and counts once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded import tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level
from xsp_post.model.options import Options
from xsp_post.tree import other_threads


def steps(tmp_path, *, with_phases):
    """Two steps of 100 ns on thread 100: forward there, backward by ranges of thread 200, a copy in between."""
    builder = ExportBuilder()
    for number in range(2):
        t = 200 * number
        builder.thread(100).range(f"step {number}", t, t + 100)
        if with_phases:
            builder.range("forward", t + 2, t + 40).range("backward", t + 42, t + 95)
        builder.range("aten::mm, seq = 1", t + 5, t + 30).kernel("mm", launch=(t + 6, t + 8), run=(t + 10, t + 20))
        builder.thread(200)
        builder.range("autograd::engine::evaluate_function: MmBackward0", t + 50, t + 80)
        builder.range("aten::mm", t + 52, t + 70).kernel("mm", launch=(t + 55, t + 57), run=(t + 60, t + 90))
    return build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)


def named(tree, text):
    texts = tree.names.folded_names[tree.nodes["folded_id"].to_numpy()].astype(str)
    return np.flatnonzero(np.char.find(texts.astype("U"), text) >= 0)


def test_backward_ranges_hang_below_the_step(tmp_path):
    tree = steps(tmp_path, with_phases=False)
    nodes = tree.nodes
    engine, step = named(tree, "autograd::engine"), named(tree, "step")
    assert nodes["parent_id"].to_numpy()[engine].tolist() == step.tolist()
    assert nodes["kernel_ns"].to_numpy()[step].tolist() == [40, 40]
    assert nodes["kernel_count"].to_numpy()[step].tolist() == [2, 2]
    # host time and projection stay the thread's own
    assert nodes["self_ns"].to_numpy()[step].tolist() == [75, 75]
    first, last = (nodes[c].to_numpy()[step] for c in ("projected_start_ns", "projected_end_ns"))
    assert (last - first).tolist() == [10, 10]
    assert tree.iterations["latency_ns"].tolist() == [100, 100]
    assert tree.iterations["kind"].tolist() == ["training step"] * 2
    assert not {f.code for f in tree.findings} & {"busy-exceeds-projection", "child-outside-parent"}


def test_backward_ranges_hang_below_the_phase_that_covers_them(tmp_path):
    tree = steps(tmp_path, with_phases=True)
    nodes = tree.nodes
    engine = named(tree, "autograd::engine")
    texts = tree.names.folded_names[nodes["folded_id"].to_numpy()]
    assert texts[nodes["parent_id"].to_numpy()[engine]].tolist() == ["backward", "backward"]
    assert nodes["kernel_ns"].to_numpy()[named(tree, "backward")].tolist() == [30, 30]


@examples(20)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 10)), min_size=20, max_size=60))
def test_nothing_inferred_leaves_the_nesting_in_time(tmp_path_factory, drawn):
    """Ranges named by growing numbers on three threads, a long one around those of the first: nothing of another thread
    moves below it, however little those ranges hold."""
    builder, place, expected = ExportBuilder(), {0: 0, 1: 0, 2: 0}, {}
    builder.thread(0).range("0", 0, 1_000_000)
    for number, (thread, gap, length) in enumerate(drawn, 1):
        begin = place[thread] + gap + 1
        place[thread] = begin + length + 2
        builder.thread(thread).range(str(2 * number), begin, begin + length + 1)
        builder.range(str(2 * number + 1), begin, begin + length)
        expected |= {2 * number: 0 if thread == 0 else -1, 2 * number + 1: 2 * number}
    path = builder.write(tmp_path_factory.mktemp("nesting") / "a.sqlite")
    tree = build_tree(load(path).trace, Options(infer=False))
    texts = np.r_[-1, tree.strings[tree.nodes["name_id"].to_numpy()[1:]].astype(int)]
    above = texts[tree.nodes["parent_id"].to_numpy()]
    assert {k: v for k, v in zip(texts.tolist()[1:], above.tolist()[1:]) if k} == expected


def test_ranges_with_a_number_of_their_own_are_of_one_kind(tmp_path):
    """150 outermost ranges, each with a text of its own and under one percent of the work, are executions."""
    builder = ExportBuilder()
    for number in range(150):
        t = 1000 * number
        builder.range(f"solve {number * 7919 % 150}", t, t + 900)
        for k in range(20):
            builder.kernel(f"k{k}", launch=(t + 10 * k, t + 10 * k + 5), run=(t + 10 * k + 6, t + 10 * k + 9))
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert len(tree.iterations) == 150


def test_resnet_training_steps_hold_all_their_device_time(captures):
    tree = tree_of(captures / "kineto" / "resnet50_ddp_a100.pt.trace.json.gz")
    step = tree.iterations["node_id"].to_numpy()
    held = tree.nodes["device_ns"].to_numpy()
    assert held[step].tolist() == tree.iterations["device_ns"].tolist()
    assert held[step].sum() == held[0]
    assert (tree.nodes["parent_id"].to_numpy()[1:] == 0).sum() == 5


HOLDERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 30), st.integers(0, 1)), max_size=8)
LOOSE = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 5), st.integers(0, 1)), min_size=1,
                 max_size=6)  # fmt: skip


@examples(60)
@given(HOLDERS, LOOSE)
def test_the_holder_is_the_shortest_of_the_same_execution_around_a_range_if_it_is_of_another_thread(holders, loose):
    holders = [(t, 10 * s, 10 * n + i, run) for i, (t, s, n, run) in enumerate(holders)]  # no two are equally long
    rows = [*holders, *((t, 10 * s, n, run) for t, s, n, run in loose)]
    names = ("thread_index", "start_ns", "length", "iteration_index")
    nodes = pd.DataFrame({name: np.array([row[k] for row in rows], np.int64) for k, name in enumerate(names)})
    nodes = nodes.assign(end_ns=nodes["start_ns"] + nodes["length"], depth=1)
    at, where = np.arange(len(rows)), nodes["iteration_index"].to_numpy()
    found = other_threads.innermost_of_another(nodes, where, at[: len(holders)], at[len(holders) :])
    for row, (thread, begin, span, run) in enumerate(rows[len(holders) :]):
        around = [
            (n, i, t) for i, (t, s, n, r) in enumerate(holders)
            if r == run and s <= begin and s + n >= begin + span
        ]  # fmt: skip
        _, holder, of = min(around, default=(0, -1, -1))
        assert found[row] == (holder if of != thread else -1)


def test_nodes_of_another_thread_than_the_one_above():
    nodes = pd.DataFrame({
        "thread_index": [-1, 0, 1, 1, -1, 2, 0], "parent_id": [-1, 0, 1, 2, 2, 4, 5], "depth": [0, 1, 2, 3, 3, 4, 5],
    })  # fmt: skip
    assert other_threads.is_of_other_thread(nodes).tolist() == [False, False, True, False, False, False, True]
    parent, depth = other_threads.own_forest(nodes)
    assert parent.tolist() == [-1, 0, 0, 2, 2, 4, 0] and depth.tolist() == [0, 1, 1, 2, 2, 3, 1]
    alone = nodes.assign(thread_index=[-1, 0, 0, 0, -1, 0, 0])
    assert not other_threads.is_of_other_thread(alone).any()
    assert other_threads.own_forest(alone)[0].tolist() == nodes["parent_id"].tolist()


WORKS = {
    "aten::linear": "ampere_sgemm_128x64_tn", "aten::layer_norm": "vectorized_layer_norm_kernel",
    "aten::gelu": "vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
}  # fmt: skip


def folds(tmp_path, *, with_operators):
    """Three ranges of five training steps each: four layers forward on thread 100, backward on thread 200."""
    builder, t = ExportBuilder(), 0
    gradients = {
        "GeluBackward0": "vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl>",
        "NativeLayerNormBackward0": "layer_norm_grad_input_kernel", "AddmmBackward0": "ampere_sgemm_128x64_nt",
    }  # fmt: skip
    for fold in range(3):
        begin = t
        for _ in range(5):
            for thread, kernels in ((100, WORKS), (200, gradients)):
                builder.thread(thread)
                for _layer in range(4):
                    for text, kernel in kernels.items():
                        word = text if thread == 100 else f"autograd::engine::evaluate_function: {text}"
                        if with_operators:
                            builder.range(word, t + 1, t + 19)
                        builder.kernel(kernel, launch=(t + 2, t + 4), run=(t + 5, t + 15))
                        t += 20
            builder.thread(100).kernel(
                "multi_tensor_apply_kernel<FusedAdamMath>", launch=(t, t + 2), run=(t + 3, t + 9)
            )
            t += 100
        builder.thread(100).range(f"fold {fold}", begin, t)
        t += 50
    return build_tree(load(builder.write(tmp_path / f"{with_operators}.sqlite")).trace)


def test_operators_of_another_thread_are_looked_into_with_the_execution(tmp_path):
    found = []
    for with_operators in (False, True):
        tree = folds(tmp_path, with_operators=with_operators)
        layers = tree.nodes[tree.nodes["level"].eq(int(Level.LAYER)) & tree.nodes["is_inferred"]]
        found.append(layers["kernel_count"].value_counts().to_dict())
    assert found[0] == found[1]


@pytest.mark.parametrize("with_operators", [False, True])
def test_passes_beside_the_marked_ones_are_found_whether_operators_were_recorded_or_not(tmp_path, with_operators):
    """Two passes of ten layers outside every range, and ten more in a range each."""
    builder, t = ExportBuilder(), 0
    for number in range(12):
        begin = t
        head = ("aten::linear", "ampere_sgemm_32x32_tn"), ("aten::softmax", "cunn_SoftMaxForward")
        for text, kernel in (("aten::embedding", "indexSelectLargeIndex"), *(list(WORKS.items()) * 10), *head):
            if with_operators:
                builder.range(text, t + 1, t + 19)
            builder.kernel(kernel, launch=(t + 2, t + 4), run=(t + 5, t + 15))
            t += 20
        if number >= 2:
            builder.range(f"request {number}", begin, t)
        t += 500
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert len(tree.iterations) == 12
