"""Which ranges are the layers: by what repeats, what they hold, and what they are called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import ExportBuilder

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level


def grown(builder, path):
    return build_tree(load(builder.write(path / "capture.sqlite")).trace)


def layer_names(tree):
    nodes = tree.nodes
    rows = np.flatnonzero(nodes["level"].to_numpy() == int(Level.LAYER))
    return tree.names.folded_names[nodes["folded_id"].to_numpy()[rows]].tolist()


def test_blocks_rather_than_their_parts(tmp_path):
    builder = ExportBuilder()
    at = 0
    builder.range("step 1", 0, 100_000)
    for block in range(4):
        builder.range(f"layers.{block}", at, at + 4_000)
        for part in ("attn", "mlp"):
            builder.range(f"layers.{block}.{part}", at + 100, at + 1_900)
            builder.kernel("gemm", launch=(at + 200, at + 210), run=(at + 300, at + 1_500))
            at += 2_000
    tree = grown(builder, tmp_path)
    assert layer_names(tree) == [f"layers.{k}" for k in range(4)]
    assert "100 % of device time" in tree.layer_evidence


def test_a_model_whose_layers_hold_little_says_so(tmp_path):
    builder = ExportBuilder()
    builder.range("step 1", 0, 100_000)
    for k in range(3):
        builder.range(f"layer {k}", 1_000 * k, 1_000 * k + 900)
        builder.kernel("gemm", launch=(1_000 * k + 10, 1_000 * k + 20), run=(1_000 * k + 30, 1_000 * k + 130))
    builder.kernel("elementwise", launch=(50_000, 50_010), run=(50_020, 51_020))
    tree = grown(builder, tmp_path)
    found = [f for f in tree.findings if f.code == "model-self"]
    assert len(found) == 1 and found[0].count == 1
    assert found[0].example == "77 % of the device time of the model executions is in no layer"


@pytest.mark.parametrize("parts", [1, 3])
def test_layers_of_parts_of_a_batch_are_the_same_layers_again(tmp_path, parts):
    builder = ExportBuilder()
    at = 0
    for step in range(3):
        builder.range(f"step {step}", at, at + 10_000 * parts + 900)
        for _ in range(parts):
            builder.range("forward_step", at, at + 9_000)
            builder.range("decoder", at + 5, at + 8_990)
            for block in range(4):
                builder.range(f"layers.{block}", at + 10, at + 1_990)
                builder.kernel("gemm", launch=(at + 100, at + 110), run=(at + 200, at + 1_800))
                at += 2_000
            at += 2_000
        at += 1_000
    assert "×4, 100 % of device time" in grown(builder, tmp_path).layer_evidence


@pytest.mark.parametrize("beside", [False, True])
def test_operators_beside_the_modules_are_layers_too(beside, tmp_path):
    builder = ExportBuilder()
    for at in range(0, 60_000, 10_000):
        builder.range(f"step {at // 10_000}", at, at + 9_000)
        for k, name in enumerate(("layers.0", "layers.1", *["aten::mm"] * beside)):
            begin = at + 2_000 * k
            builder.range(name, begin + 100, begin + 1_900)
            builder.range("aten::add", begin + 200, begin + 800) if k == 0 else None
            builder.kernel("gemm", launch=(begin + 300, begin + 310), run=(begin + 400, begin + 1_600))
    tree = grown(builder, tmp_path)
    assert set(layer_names(tree)) == {"layers.0", "layers.1", *["aten::mm"] * beside}
    assert (" and operators beside them" in tree.level_rule) == beside


def test_ranges_that_hold_the_work_of_a_phase_are_layers_instead_of_it(tmp_path):
    builder = ExportBuilder()
    for at in range(0, 60_000, 10_000):
        builder.range(f"step {at // 10_000}", at, at + 9_000)
        for phase, begin, parts in (("forward", at + 100, (1_900, 1_900)), ("backward", at + 4_100, (200,))):
            builder.range(phase, begin, begin + 3_900)
            for k, length in enumerate(parts):
                builder.range(f"{'first' if k else 'other'} of {phase}", begin + 1_950 * k, begin + 1_950 * k + length)
            builder.kernel("gemm", launch=(begin + 300, begin + 310), run=(begin + 400, begin + 1_600))
            builder.kernel("gemm", launch=(begin + 2_300, begin + 2_310), run=(begin + 2_400, begin + 3_600))
    tree = grown(builder, tmp_path)
    assert set(layer_names(tree)) == {"first of forward", "other of forward", "backward"}, tree.level_rule


@pytest.mark.parametrize(("level", "layers"), [("", ["BertLayer"]), ("M/L/G", ["Linear", "Linear"])])
def test_the_layers_of_a_program_are_its_blocks_and_of_a_run_those_of_its_plan(level, layers, tmp_path):
    """`xsp_post.ranges` on a transformer: attention without modules of its own is in no leaf."""
    builder, at = ExportBuilder(), 0
    for step in range(3):
        begin = at
        for block in range(4):
            start = at
            for number, name in enumerate(("query:Linear", "", "output:Linear")):
                if name:
                    builder.range(f"encoder.layer.{block}.{name}#0", at, at + 300, domain="xsp")
                builder.kernel(("gemm", "softmax")[number % 2], launch=(at + 100, at + 110), run=(at + 120, at + 290))
                at += 310
            builder.range(f"encoder.layer.{block}:BertLayer#0", start, at, domain="xsp")
            at += 20
        builder.range(f"model:forward#{step}", begin, at, domain="xsp")
        at += 50
    trace = load(builder.write(tmp_path / "capture.sqlite")).trace
    tree = build_tree(replace(trace, provenance=replace(trace.provenance, level=level)))
    found = [name.rpartition(":")[2] for name in layer_names(tree)]
    assert found == 4 * 3 * layers
    assert ("BertLayer` ×4, 100 %" in tree.layer_evidence) == (not level)
