"""Inferred nodes in the tree: marked, below [unattributed], never mixed with what was recorded."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from helpers import core_tables
from recorded import analyzed, trace_of, tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level
from xsp_post.model.options import Options
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind, balance
from xsp_post.pipeline import analyze
from xsp_post.tree.structure import find
from xsp_post.tree.structure.find import infer


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
    tree = build_tree(load(without_ranges).trace, Options())
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
    layers = core_tables(build_tree(load(without_ranges).trace, Options())).frames["layers"]
    assert layers["is_inferred"].all() and (layers["latency_source"] == "projection").all()
    assert (layers["latency_ns"] == layers["projection_ns"]).all()


def test_launches_that_no_range_speaks_of_are_read_once(without_ranges, monkeypatch):
    """What finds the executions finds their layers, too: it took twice the time."""
    asked = []

    def count(launches, names, **more):
        asked.append(len(launches))
        return infer(launches, names, **more)

    monkeypatch.setattr(find, "infer", count)
    assert len(build_tree(load(without_ranges).trace, Options()).iterations) == 10
    assert len(asked) == 1


def test_without_inference_nothing_is_inferred(without_ranges):
    tree = build_tree(load(without_ranges).trace, Options(infer=False))
    assert not tree.nodes["is_inferred"].any()
    assert not len(tree.iterations)


def test_a_capture_without_ranges_has_marked_layers(captures):
    tree = tree_of(captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite")
    kernels = tree.kernels
    assert (kernels["attribution"] == int(Attribution.NONE)).all()
    assert (kernels["layer_attribution"] == int(LayerAttribution.INFERRED)).all()
    inferred = tree.nodes[tree.nodes["is_inferred"]]
    assert (inferred["kind"] == int(NodeKind.INFERRED)).all()
    assert (inferred["level"] == int(Level.MODEL)).sum() == 4
    assert inferred["confidence_ratio"].between(0.3, 1).all()
    frames = core_tables(tree).frames
    layers = frames["layers"]
    assert layers["is_inferred"].all() and layers["layer_index"].max() == 34
    assert set(layers["layer_type"]) == {"transformer block", "matrix product", "embedding"}
    assert frames["nodes"]["name"].astype(str).str.fullmatch(r"transformer block 7/32").sum() == 4


def test_an_inferred_iteration_that_loads_code_is_warm_up_and_queueing_is_no_latency(captures):
    """Its first iteration loads libraries (0.5 s of idle GPU); the later ones are launched while the GPU is busy."""
    iterations = tree_of(captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite").iterations
    assert iterations["is_inferred"].all()
    assert iterations["is_warmup"].tolist() == [True, False, False, False]
    busy = iterations["busy_ns"] / iterations["latency_ns"]
    assert (busy[1:] > 0.99).all() and (busy <= 1).all()
    assert iterations["latency_ns"][1:].max() < 1.01 * iterations["latency_ns"][1:].min()


def test_recorded_layers_are_never_called_inferred(captures):
    tree = tree_of(captures / "nsys" / "fsdp_2gpu_h100.sqlite")
    nodes, kernels = tree.nodes, tree.kernels
    layer = kernels["layer_node_id"].to_numpy()
    has = layer >= 0
    ways = [int(LayerAttribution.INFERRED), int(LayerAttribution.HOOK_PAIR)]
    said = np.isin(kernels["layer_attribution"].to_numpy()[has], ways)
    assert (said == nodes["is_inferred"].to_numpy()[layer[has]]).all()
    parent = np.maximum(nodes["parent_id"].to_numpy(), 0)
    recorded = nodes["kind"].to_numpy() <= int(NodeKind.ANNOTATION)
    below = recorded & (nodes["kind"].to_numpy()[parent] == int(NodeKind.INFERRED))
    assert set(nodes["level"].to_numpy()[below].tolist()) <= {int(Level.LIBRARY)}


def test_what_was_inferred_is_a_table_of_its_own(captures, without_ranges):
    """Equal blocks, their order, the guess and how sure it is, by node: for one capture and for two in one store."""
    first = captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite"
    results = analyze([without_ranges, first])
    nodes, inferred = results.frame("nodes"), results.frame("inferred")
    assert inferred["node_id"].tolist() == nodes.loc[nodes["is_inferred"], "node_id"].tolist()
    mine = inferred[inferred["capture_id"] == 1].merge(nodes[["node_id", "level", "parent_id"]], on="node_id")
    assert (mine["kind"] == "iteration").sum() == 4
    blocks = mine[(mine["kind"] == "block") & (mine["level"] == "LAYER")]
    assert blocks.groupby("parent_id")["block_index"].agg(list).tolist() == [[*range(1, 33)]] * 4
    assert blocks["equal_class"].nunique() == 1 and set(blocks["layer_type"]) == {"transformer block"}
    assert blocks["confidence_ratio"].between(0.5, 1).all()
    recorded = analyzed(captures / "nsys" / "two_kernels_rtx3080.sqlite").frame("inferred")
    assert not len(recorded)


def test_the_three_lines_are_printed_as_lines_and_once(captures):
    capture = captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite"
    command = [sys.executable, "-m", "xsp_post.cli", "tree", "--verbose", str(capture)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line.strip() for line in printed.splitlines()]
    first = lines.index("import xsp_post")
    assert lines[first + 1 : first + 3] == ["with xsp_post.ranges(model):", "model(inputs)"]
    assert lines[first + 3].startswith("and run: nsys profile -t cuda,nvtx")
    assert lines.count("import xsp_post") == 1 and "As above." in lines
    assert any(line.startswith("no ranges; what no range covers is inferred") for line in lines)


def test_a_printed_tree_says_the_same_level_as_the_store(captures):
    capture = captures / "nsys" / "tensorrt_nvtx_only_titanrtx.sqlite"
    trace = trace_of(capture)
    quick = core_tables(build_tree(trace))
    assert quick.frame("captures")["level"].tolist() == ["M/L"]
    assert analyzed(capture).frame("captures")["level"].tolist() == ["M/L"]
