"""The strip test: take the ranges and module frames away from a capture that has them, infer, compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from recorded import trace_of, tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind


def stripped(trace):
    """The trace as if nobody had put a range or a frame into the program."""
    return replace(trace, spans=trace.spans.iloc[:0], attributes=pd.DataFrame())


def boundaries(tree, chosen):
    """First and last + 1 kernel, in launch order per process, of each chosen node as a layer: int64 (nodes, 2)."""
    activities = tree.activities
    launch = activities["launch_id"].to_numpy()
    rows = np.flatnonzero((activities["kind"].to_numpy() == ActivityKind.KERNEL) & (launch >= 0))
    at = tree.trace.launches["start_ns"].to_numpy()[launch[rows]]
    started, process = (activities[c].to_numpy()[rows] for c in ("start_ns", "process_index"))
    rows = rows[np.lexsort((started, at, process))]
    layer = activities["layer_node_id"].to_numpy()[rows]
    found = [np.flatnonzero(layer == node)[[0, -1]] + (0, 1) for node in chosen.tolist() if (layer == node).any()]
    return np.array(sorted(map(tuple, found)))


def blocks(tree):
    nodes = tree.nodes
    folded = tree.names.folded_names[nodes["folded_id"].to_numpy()]
    words = ("block", "transformer block", "attention")
    is_block = np.any([np.char.startswith(folded.astype(str), word) for word in words], axis=0)
    return np.flatnonzero((nodes["level"].to_numpy() == int(Level.LAYER)) & is_block)


@pytest.mark.parametrize(("name", "kind", "confidence"), [
    ("timesformer_h100", "TimesformerLayer", "high"),
    ("bert_small_h100", "BertLayer", "medium"),
    ("qwen_h100", "Qwen2DecoderLayer", "high"),
    ("switch_transformer", "SwitchTransformerBlock", "high"),
    ("sglang_prefill_decode", "Qwen3DecoderLayer", "high"),
])  # fmt: skip
def test_blocks_are_where_the_modules_were(captures, name, kind, confidence):
    path = captures / "kineto" / f"{name}.pt.trace.json.gz"
    trace, full = trace_of(path), tree_of(path)
    bare = build_tree(stripped(trace))
    is_layer = full.nodes["level"].to_numpy() == int(Level.LAYER)
    truth = boundaries(full, np.flatnonzero(is_layer & (full.names.node_text("layer_type") == kind)))
    found = boundaries(bare, blocks(bare))
    assert found.shape == truth.shape
    assert np.abs(found - truth).max() <= 1
    assert len(bare.iterations) == 1
    types = bare.names.node_text("layer_type", blocks(bare))
    assert set(types) == {"transformer block"}
    assert f"(inferred, {confidence} confidence)" in bare.layer_evidence


def test_blocks_of_a_benchmark_whose_attention_was_marked(captures):
    path = captures / "nsys" / "transformer_2.7b_a100_nvtx.sqlite"
    trace, full = trace_of(path), tree_of(path)
    bare = build_tree(stripped(trace))
    assert np.array_equal(boundaries(full, blocks(full)), boundaries(bare, blocks(bare)))
    found = boundaries(bare, blocks(bare))
    assert found.shape == (4 * 32, 2) and set(np.diff(found, axis=1).ravel()) == {57}
    nodes = full.nodes
    texts = full.names.folded_names[nodes["folded_id"].to_numpy()]
    attention = np.flatnonzero(texts == "scaled dot product attention")
    assert len(attention) == 128 and (nodes["level"].to_numpy()[attention] == int(Level.OPERATION)).all()
    assert len(np.unique(nodes["layer_node_id"].to_numpy()[attention])) == 128


def test_layers_of_a_cut_out_window_are_no_executions(captures):
    """17 blocks of 119 kernels in each rank's window, begun anywhere: one execution, and its layers."""
    bare = build_tree(stripped(trace_of(captures / "nsys" / "fsdp_2gpu_h100.sqlite")))
    found = boundaries(bare, blocks(bare))
    assert len(bare.iterations) == 2 and len(found) == 2 * 16
    assert set(np.diff(found, axis=1).ravel()) == {119}


def _export(path, names):
    builder = ExportBuilder()
    for k, name in enumerate(names):
        at = 10_000 * k
        builder.kernel(name, launch=(at, at + 4_000), run=(at + 5_000, at + 9_000))
    builder.write(path)
    return build_tree(load(path).trace)


@pytest.mark.parametrize("cells", [20, 35, 50])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("passes", [3, 8])
def test_passes_of_a_recurrent_network_are_counted(tmp_path, cells, layers, passes):
    cell = ["ampere_sgemm_32x32_sliced1x4_tn", "lstm_cell_forward"]
    layer = ["ampere_sgemm_128x64_tn", *(cell * cells), "at::native::cat_kernel"]
    one = ["at::native::embedding_kernel", *(layer * layers), "ampere_sgemm_64x64_tn", "softmax_warp_forward"]
    tree = _export(tmp_path / "lstm.sqlite", one * passes)
    assert len(tree.iterations) == passes
    assert set(tree.iterations["kernel_count"]) == {len(one)}


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_invent_nothing(tmp_path, seed):
    rng = np.random.default_rng(seed)
    names = [f"kernel_{k}" for k in rng.integers(0, 5 + 20 * seed, 300)]
    tree = _export(tmp_path / "random.sqlite", names)
    assert not len(tree.iterations) and not tree.nodes["is_inferred"].any()
    assert not len(blocks(tree))


def _without(trace, pattern):
    """The trace without the ranges whose text matches."""
    texts = pd.Series(trace.strings[trace.spans["name_id"]], dtype=object)
    rows = np.flatnonzero(~texts.str.contains(pattern).to_numpy())
    attributes = trace.attributes.iloc[rows].reset_index(drop=True) if len(trace.attributes) else trace.attributes
    return replace(trace, spans=trace.spans.iloc[rows].reset_index(drop=True), attributes=attributes)


@pytest.mark.parametrize(("name", "kind", "label"), [
    ("timesformer_h100", "TimesformerLayer", "aten::matmul, aten::mul, aten::softmax"),
    ("bert_small_h100", "BertLayer", "aten::linear, aten::scaled_dot_product_attention, aten::layer_norm"),
    ("qwen_h100", "Qwen2DecoderLayer", "aten::mul, aten::linear, aten::contiguous"),
    ("switch_transformer", "SwitchTransformerBlock", "aten::linear, aten::matmul, aten::stack"),
])  # fmt: skip
@pytest.mark.parametrize("gone", ["^nn.Module", "^nn.Module|Step|step"])
def test_operators_without_modules_fold_into_blocks_named_by_them(captures, name, kind, label, gone):
    path = captures / "kineto" / f"{name}.pt.trace.json.gz"
    trace, full = trace_of(path), tree_of(path)
    bare = build_tree(_without(trace, gone))
    is_layer = full.nodes["level"].to_numpy() == int(Level.LAYER)
    truth = boundaries(full, np.flatnonzero(is_layer & (full.names.node_text("layer_type") == kind)))
    found = blocks(bare)
    assert np.abs(boundaries(bare, found) - truth).max() <= 1
    assert set(bare.names.folded_names[bare.nodes["folded_id"].to_numpy()[found]]) == {f"transformer block · {label}"}
    inside = np.isin(bare.nodes["layer_node_id"].to_numpy(), found) & bare.names.node_is("role", "operator")
    assert inside.any() and (bare.nodes["level"].to_numpy()[inside] == int(Level.OPERATION)).all()


def test_operators_of_ranks_without_hooks_fold_into_blocks(captures):
    trace = _without(trace_of(captures / "nsys" / "fsdp_2gpu_h100.sqlite"), "FSDP")
    tree = build_tree(trace)
    found = blocks(tree)
    assert len(found) == 32 and tree.nodes["process_index"].iloc[found].nunique() == 2
    inside = np.isin(tree.nodes["layer_node_id"].to_numpy(), found)
    held = set(tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[inside]])
    assert {"FlashAttnFunc", "AllToAll4D", "aten::linear"} <= held


def test_training_steps_of_two_threads_are_executions_without_their_markers(captures):
    """The host runs ahead of the device: no pause tells where a step begins, and no half of it are equal blocks."""
    bare = build_tree(stripped(trace_of(captures / "kineto/resnet50_ddp_a100.pt.trace.json.gz")))
    assert bare.iterations["kernel_count"].tolist() == [870] * 5
    assert bare.iterations["phase"].unique().tolist() == ["training step"]
