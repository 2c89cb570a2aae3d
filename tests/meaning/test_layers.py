"""What each real capture's layers are, as its owner would say (MEANING.md, column "layers in each")."""

from __future__ import annotations

import re

import numpy as np
import pytest
from recorded import tree_of

from xsp_post.model.levels import Level
from xsp_post.model.tree import LayerAttribution


@pytest.fixture
def tree(captures):
    """A function: the tree of a capture by its path below the folder of captures."""
    return lambda name: tree_of(captures / name)


def layers(tree, text=""):
    """Layer nodes whose name matches, with their name, class and device time (kernels, copies, memsets, graphs)."""
    nodes = tree.nodes
    rows = np.flatnonzero(nodes["level"].to_numpy() == int(Level.LAYER))
    result = nodes.iloc[rows].assign(
        name=tree.names.folded_names[nodes["folded_id"].to_numpy()[rows]],
        layer_type=tree.names.node_text("layer_type", rows),
        device_ns=device_time(tree)[rows],
    )
    return result[[bool(re.search(text, name)) for name in result["name"]]]


def device_time(tree):
    """Device time that counts for each node as its layer."""
    activities = tree.activities
    home = activities["layer_node_id"].to_numpy()
    duration = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    return np.bincount(home[home >= 0], weights=duration[home >= 0], minlength=len(tree.nodes)).astype(np.int64)


def share_in_layers(tree):
    """Share of the device time with a launch row that counts for a layer."""
    activities = tree.activities
    duration = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    launched = activities["launch_id"].to_numpy() >= 0
    return layers(tree)["device_ns"].sum() / duration[launched].sum()


MODULES = [
    ("kineto/timesformer_h100.pt.trace.json.gz", "TimesformerLayer", 12, 0.96),
    ("kineto/bert_small_h100.pt.trace.json.gz", "BertLayer", 4, 0.75),
    ("kineto/qwen_h100.pt.trace.json.gz", "Qwen2DecoderLayer", 24, 0.98),
    ("kineto/switch_transformer.pt.trace.json.gz", "SwitchTransformerBlock", 10, 0.82),
    ("kineto/sglang_prefill_decode.pt.trace.json.gz", "Qwen3DecoderLayer", 36, 0.99),
]


@pytest.mark.parametrize(("name", "kind", "count", "share"), MODULES)
def test_modules_that_repeat_are_the_layers(tree, name, kind, count, share):
    grown = tree(name)
    found = layers(grown)
    blocks = found[found["layer_type"] == kind]
    assert len(blocks) == count
    activities = grown.activities
    launched = activities["launch_id"].to_numpy() >= 0
    duration = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    assert blocks["device_ns"].sum() >= (share - 0.01) * duration[launched].sum()
    assert share_in_layers(grown) > 0.95
    assert f"layers: `{kind}` ×{count}, " in grown.layer_evidence
    assert not [f for f in grown.findings if f.code == "model-self"]


@pytest.mark.parametrize(("name", "inside"), [
    ("kineto/timesformer_h100.pt.trace.json.gz", "TimesformerSelfAttention"),
    ("kineto/timesformer_h100.pt.trace.json.gz", "TimesformerIntermediate"),
    ("kineto/timesformer_h100.pt.trace.json.gz", "TimesformerOutput"),
    ("kineto/bert_small_h100.pt.trace.json.gz", "BertSdpaSelfAttention"),
    ("kineto/switch_transformer.pt.trace.json.gz", "MultiQueryAttention"),
])  # fmt: skip
def test_attention_and_mlp_lie_inside_the_layers(tree, name, inside):
    grown = tree(name)
    nodes = grown.nodes
    kind = grown.names.node_text("layer_type")
    attention = np.flatnonzero(kind == inside)
    assert len(attention) and (nodes["level"].to_numpy()[attention] == int(Level.OPERATION)).all()
    layer = nodes["layer_node_id"].to_numpy()[attention]
    assert set(kind[layer]) <= {"TimesformerLayer", "BertLayer", "SwitchTransformerBlock"}


def test_operators_are_the_layers_of_a_convolution_network_without_module_frames(tree):
    grown = tree("kineto/resnet50_ddp_a100.pt.trace.json.gz")
    found = layers(grown)
    heaviest = found.groupby("name")["device_ns"].sum().sort_values(ascending=False)
    assert heaviest.index[:3].tolist() == ["aten::conv2d", "aten::batch_norm", "aten::relu_"]
    assert (found["name"] == "aten::conv2d").sum() == 5 * 53
    assert share_in_layers(grown) > 0.99


def test_tensorrt_layers_keep_their_names(tree):
    grown = tree("nsys/tensorrt_nvtx_only_titanrtx.sqlite")
    found = layers(grown, r"^/blocks\.0/blocks\.0\.4/Conv \+ /blocks\.0/blocks\.0\.6/Relu$")
    assert len(found) == 135 and set(found["layer_type"]) == {"Conv+Relu"}


def test_a_program_that_is_no_model_has_no_layers(tree):
    assert not len(layers(tree("nsys/cloverleaf_a100.sqlite")))
    assert not len(layers(tree("nsys/many_copies_a100.sqlite")))


def test_hooks_in_pairs_make_the_blocks_between_them(tree):
    """FSDP marks both ends of a module: `encoder.block.14.layer.0`, `….layer.1` lie in `encoder.block.14`."""
    grown = tree("nsys/t5_offload_2gpu_h100.sqlite")
    found = layers(grown)
    blocks = found[found["name"].str.fullmatch(r"encoder\.block\.\d+")]
    assert sorted(set(blocks["name"]), key=lambda n: int(n[14:])) == [f"encoder.block.{k}" for k in range(24)]
    assert blocks["process_index"].nunique() == 2
    assert blocks["device_ns"].sum() > 0.6 * found["device_ns"].sum()
    assert share_in_layers(grown) > 0.99
    assert "`encoder.block.*` ×24 (inferred, high confidence)" in grown.layer_evidence
    inner = grown.nodes[grown.names.folded_names[grown.nodes["folded_id"]] == "encoder.block.20.layer.1"]
    assert (inner["level"] == int(Level.OPERATION)).all() and inner["is_inferred"].all() and len(inner) == 2
    how = grown.activities["layer_attribution"].to_numpy()
    assert (how == int(LayerAttribution.HOOK_PAIR)).sum() > 0.9 * (how != int(LayerAttribution.NONE)).sum()


@pytest.mark.parametrize(("name", "first", "last"), [
    ("nsys/fsdp_2gpu_h100.sqlite", 2, 19), ("nsys/fsdp_2gpu_h100_after.sqlite", 7, 23),
])  # fmt: skip
def test_blocks_of_each_rank_hold_attention_and_all_to_all(tree, name, first, last):
    grown = tree(name)
    blocks = layers(grown, r"^blocks\.\d+$")
    numbers = blocks["name"].str.extract(r"(\d+)")[0].astype(int)
    assert blocks["process_index"].nunique() == 2
    for _, own in numbers.groupby(blocks["process_index"]):
        assert own.min() >= first - 1 and own.max() <= last + 1 and own.is_unique and len(own) >= 15
    assert share_in_layers(grown) > 0.95
    inside = grown.nodes[np.isin(grown.nodes["layer_node_id"], blocks.index)]
    held = set(grown.names.folded_names[inside["folded_id"]])
    assert {"FlashAttnFunc", "AllToAll4D", "aten::linear"} <= held


def test_blocks_inside_recorded_phases_are_matched_by_their_gradients(tree):
    """Every forward range holds 692 = 12 × 57 + 8 kernels; its 12 blocks have 12 gradients in Backward."""
    grown = tree("nsys/transformer_backward_rtx3070ti.sqlite")
    nodes = grown.nodes
    known = grown.inferred[grown.inferred["kind"] == "block"].set_index("node_id")
    blocks = layers(grown, "^(transformer )?block")
    home = nodes["parent_id"].to_numpy()[blocks.index]
    texts = grown.names.folded_names[nodes["folded_id"].to_numpy()[home]]
    per_range = blocks.groupby(home).size()
    assert set(per_range) == {12}
    kernels = nodes["kernel_count"].to_numpy()
    forward = blocks[texts == "Forward"]
    assert len(forward) == 15 * 12 and set(kernels[forward.index]) == {57}
    assert forward["name"].nunique() == 1
    assert set(kernels[np.unique(home[texts == "Forward"])]) == {692}
    backward = blocks[texts == "Backward"]
    assert len(backward) == 5 * 12
    assert known.loc[backward.index, "matched_block_index"].tolist() == list(range(12, 0, -1)) * 5
    assert set(grown.names.node_text("layer_type", forward.index.to_numpy())) == {"transformer block"}
    assert blocks["device_ns"].sum() > 0.85 * device_time(grown).sum()
    assert "×12 (inferred, high confidence)" in grown.layer_evidence


def test_blocks_of_a_graph_that_was_replayed(tree):
    """24 MoE layers that alternate a little between sliding and full attention, launched at once."""
    grown = tree("kineto/vllm_decode_cuda_graph.pt.trace.json.gz")
    blocks = layers(grown, "^(transformer )?block")
    assert len(blocks) == 24 and set(blocks["layer_type"]) == {"transformer block"}
    assert blocks["name"].nunique() == 1
    assert blocks["device_ns"].sum() > 0.95 * device_time(grown).sum()
    assert "×24 (inferred, high confidence), 97 % of device time" in grown.layer_evidence
    assert len(layers(grown, "LogitsProcessor_0")) == 1  # recorded layers beside the blocks stay layers
    assert not [f for f in grown.findings if f.code == "model-self"]


def test_blocks_of_a_capture_without_any_range(tree):
    grown = tree("nsys/transformer_2.7b_a100_no_nvtx.sqlite")
    blocks = layers(grown, "^(transformer )?block")
    assert blocks.groupby("iteration_index").size().tolist() == [32] * 4
    assert blocks["name"].nunique() == 1 and set(blocks["layer_type"]) == {"transformer block"}
