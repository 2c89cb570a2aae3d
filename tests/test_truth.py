"""From an export of known truth to the layer table: nothing lost, nothing doubled, nothing misplaced."""

from __future__ import annotations

import pytest
from generators.big import write_big_export
from generators.resnet50 import layers, write_resnet50_export
from helpers import core_tables

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load


def core(path):
    """The core tables of one capture."""
    return core_tables(build_tree(load(path).trace))


@pytest.mark.parametrize("processes", [1, 2])
def test_layer_sums_are_the_truth(tmp_path, processes):
    truth = write_big_export(tmp_path / "big.sqlite", 5_000, processes=processes)
    analysis = core(tmp_path / "big.sqlite")
    by_layer = analysis.frame("layers").groupby("layer_name", observed=True)[["kernel_count", "kernel_ns"]].sum()
    found = by_layer[by_layer["kernel_count"] > 0].to_dict("index")
    assert found == truth["layers"]
    capture = analysis.frame("captures").iloc[0]
    assert (capture["kernel_count"], capture["kernel_ns"]) == (truth["kernel_count"], truth["kernel_ns"])
    assert capture["process_count"] == processes
    assert analysis.frame("kernels")["kernel_id"].is_unique


def test_the_example_has_the_layers_of_resnet50(tmp_path):
    plan = layers(4)
    analysis = core(write_resnet50_export(tmp_path / "r.sqlite", batch_size=4, iterations=3, warmup=2))
    iterations = analysis.frame("iterations")
    assert iterations["is_warmup"].tolist() == [True, True, False, False, False]
    assert set(iterations["batch_size"]) == {4}
    rows = analysis.frame("layers")
    last = rows[(rows["iteration_index"] == 4) & (rows["layer_type"] != "[self]")].sort_values("layer_index")
    assert last["layer_type"].tolist() == [layer.kind for layer in plan]
    assert last["kernel_count"].tolist() == [len(layer.work) for layer in plan]
    assert last["shape_text"].tolist() == [f"[{','.join(map(str, layer.shape))}]" for layer in plan]
    assert "module-loading" in {finding.code for finding in analysis.findings}
