"""Backward work of the autograd thread hangs below its step in the tree, and counts once."""

from __future__ import annotations

import numpy as np
from builders import ExportBuilder
from recorded import tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load


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


def test_resnet_training_steps_hold_all_their_device_time(captures):
    tree = tree_of(captures / "kineto" / "resnet50_ddp_a100.pt.trace.json.gz")
    step = tree.iterations["node_id"].to_numpy()
    held = tree.nodes["device_ns"].to_numpy()
    assert held[step].tolist() == tree.iterations["device_ns"].tolist()
    assert held[step].sum() == held[0]
    assert (tree.nodes["parent_id"].to_numpy()[1:] == 0).sum() == 5
