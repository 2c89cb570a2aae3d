"""The hand-built Analysis that many tests stand on adds up."""

from __future__ import annotations

from helpers import LAYERS, small_analysis

import xsp_post.model.schemas as schemas


def test_it_has_every_core_column_and_adds_up():
    analysis = small_analysis(iterations=3)
    for name in ("captures", "iterations", "nodes", "layers", "kernels", "memory_operations", "balance"):
        frame = analysis.frame(name)
        assert list(frame.columns) == schemas.column_names(name)
        assert len(frame), name
    nodes, kernels = analysis.frame("nodes"), analysis.frame("kernels")
    assert nodes["node_id"].tolist() == list(range(len(nodes)))
    roots = nodes[nodes["parent_id"] == -1]
    assert roots["kernel_ns"].sum() == kernels["duration_ns"].sum()
    assert roots["kernel_count"].tolist() == [0, 0, 4 * 5 + 2]
    assert nodes["self_kernel_ns"].sum() == kernels["duration_ns"].sum()
    assert len(analysis.frame("layers")) == 2 * 4 * len(LAYERS)
    assert (nodes["self_ns"] >= 0).all()
    assert (nodes["busy_ns"] <= nodes["projected_end_ns"] - nodes["projected_start_ns"]).all()
    layer_kernels = kernels[kernels["layer_index"] == 1]
    assert layer_kernels["short_name"].astype(str).unique().tolist() == ["implicit_gemm_128x64", "bias_add"]
