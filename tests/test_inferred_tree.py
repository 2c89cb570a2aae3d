"""Inferred nodes in the tree: marked, below [unattributed], never mixed with what was recorded."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from xsp_post.ingest.sources import load
from xsp_post.levels import Level
from xsp_post.pipeline import Options, grow
from xsp_post.tree import Attribution, LayerAttribution, NodeKind, balance
from xsp_post.tree_tables import core_frames


@pytest.fixture(scope="module")
def without_ranges(root, tmp_path_factory):
    """The generated ResNet-50 inference with its library calls, but without any range of the program."""
    path = tmp_path_factory.mktemp("inferred") / "resnet50.sqlite"
    command = [sys.executable, str(root / "scripts/make_export"), str(path), "--resnet50", "--iterations", "8"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM NVTX_EVENTS")
        connection.commit()
    return path


def test_library_calls_hang_inside_inferred_blocks(without_ranges):
    tree = grow(load(without_ranges).trace, Options())
    nodes = tree.nodes
    assert len(tree.iterations) == 10 and tree.iterations["is_inferred"].all()
    assert tree.iterations["kernel_count"].nunique() == 1
    library = nodes[(nodes["level"] == int(Level.LIBRARY)) & (nodes["kernel_count"] > 0)]
    assert len(library) > 500
    assert nodes["is_inferred"].to_numpy()[library["parent_id"]].all()
    above = nodes.iloc[library["parent_id"]]
    assert (above["start_ns"].to_numpy() <= library["start_ns"].to_numpy()).all()
    assert (above["end_ns"].to_numpy() >= library["end_ns"].to_numpy()).all()
    rows = balance(tree)
    total = rows[rows["attribution"] == "total"]["kernel_count"]
    assert total.nunique() == 1
    layer = rows[rows["question"] == "layer"].set_index("attribution")["kernel_count"]
    assert layer["inferred"] == layer["total"] and layer["none"] == 0


def test_an_inferred_layer_lasts_as_long_as_its_work(without_ranges):
    """Its kernels are its own: they were counted once as projection and once more as work launched elsewhere."""
    layers = core_frames(grow(load(without_ranges).trace, Options()), 0).frames["layers"]
    assert layers["is_inferred"].all() and (layers["latency_source"] == "projection").all()
    assert (layers["latency_ns"] == layers["projection_ns"]).all()


def test_without_inference_nothing_is_inferred(without_ranges):
    tree = grow(load(without_ranges).trace, Options(infer=False))
    assert not tree.nodes["is_inferred"].any()
    assert not len(tree.iterations)


def test_a_capture_without_ranges_has_marked_layers(captures):
    tree = grow(load(captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite").trace, Options())
    kernels = tree.kernels
    assert (kernels["attribution"] == int(Attribution.NONE)).all()
    assert (kernels["layer_attribution"] == int(LayerAttribution.INFERRED)).all()
    inferred = tree.nodes[tree.nodes["is_inferred"]]
    assert (inferred["kind"] == int(NodeKind.INFERRED)).all()
    assert (inferred["level"] == int(Level.MODEL)).sum() == 4
    assert inferred["confidence_ratio"].between(0.3, 1).all()
    frames = core_frames(tree, 0).frames
    layers = frames["layers"]
    assert layers["is_inferred"].all() and layers["layer_index"].max() == 34
    assert set(layers["layer_type"]) == {"attention", "matrix product", "embedding"}
    assert frames["nodes"]["name"].astype(str).str.fullmatch(r"block 7/32 · gemm, softmax, gemm").sum() == 4


def test_recorded_layers_are_never_called_inferred(captures):
    tree = grow(load(captures / "nsys" / "fsdp_2gpu_h100.sqlite").trace, Options())
    nodes, kernels = tree.nodes, tree.kernels
    layer = kernels["layer_node_id"].to_numpy()
    has = layer >= 0
    said = kernels["layer_attribution"].to_numpy()[has] == int(LayerAttribution.INFERRED)
    assert (said == nodes["is_inferred"].to_numpy()[layer[has]]).all()
    parent = np.maximum(nodes["parent_id"].to_numpy(), 0)
    recorded = nodes["kind"].to_numpy() <= int(NodeKind.ANNOTATION)
    below = recorded & nodes["is_inferred"].to_numpy()[parent]
    assert set(nodes["level"].to_numpy()[below].tolist()) <= {int(Level.LIBRARY)}
