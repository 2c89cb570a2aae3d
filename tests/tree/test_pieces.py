"""Kernels that compute operations of several modules: their time is divided, and nothing of it is lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from compiled_programs import DATA, TRACE
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.pipeline import analyze
from xsp_post.tree.pieces import in_pieces, spans

KERNELS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1 << 40), st.lists(st.integers(1, 99), min_size=1)),
                   min_size=1, max_size=8)  # fmt: skip


@given(KERNELS)
def test_the_parts_of_a_kernel_follow_one_another_and_are_all_of_it(kernels):
    starts = np.cumsum([gap for gap, _, _ in kernels]) + np.cumsum([0, *(length for _, length, _ in kernels)])[:-1]
    activities = pd.DataFrame({"start_ns": starts, "end_ns": starts + [length for _, length, _ in kernels],
                               "node_id": 1, "launch_node_id": 1})  # fmt: skip
    rows = [(k, 2 + n, count) for k, (_, _, counts) in enumerate(kernels) for n, count in enumerate(counts)]
    pieces = pd.DataFrame(rows, columns=["activity", "node_id", "operation_count"])
    start, end = spans(activities, pieces)
    for k, (_, length, counts) in enumerate(kernels):
        mine = (pieces["activity"] == k).to_numpy()
        assert start[mine][0] == starts[k] and end[mine][-1] == starts[k] + length
        assert (start[mine][1:] == end[mine][:-1]).all()
        exact = np.array(counts) * length / sum(counts)
        assert (np.abs((end - start)[mine] - exact) <= 1 + 1e-9 * length).all()
    divided = in_pieces(activities, pieces)
    assert divided["is_counted"].sum() == len(kernels)
    assert (divided["end_ns"] - divided["start_ns"]).sum() == sum(length for _, length, _ in kernels)


@pytest.fixture(scope="module")
def analysis():
    return analyze([DATA / "decoder" / TRACE])


def test_layers_and_tree_and_tables_hold_the_sum(analysis):
    kernels, shares = analysis.frame("kernels"), analysis.frame("kernel_shares")
    of_kernel = shares.groupby("kernel_id")["duration_ns"].sum()
    assert (of_kernel == kernels.set_index("kernel_id")["duration_ns"][of_kernel.index]).all()
    assert (shares.groupby("kernel_id").size() > 1).all()
    total = int(kernels["duration_ns"].sum())
    layers, nodes = analysis.frame("layers"), analysis.frame("nodes")
    assert (
        int(layers["kernel_ns"].sum()) == int(nodes["self_kernel_ns"].sum()) == int(nodes["kernel_ns"].iloc[0]) == total
    )
    assert int(layers["kernel_count"].sum()) == int(nodes["self_kernel_count"].sum()) == len(kernels)
    a11 = analysis.frame("a11")
    assert a11["kernel_latency_ns"].sum() == pytest.approx(analysis.frame("a15")["kernel_latency_ns"].iloc[0])
    assert a11["kernel_count"].sum() == len(kernels) / 2


def test_a_fused_norm_counts_for_its_own_block_and_the_one_before(analysis):
    """Seven of nine operations are those of the norm, two are additions of the residual: one of each block before."""
    nodes = analysis.frame("nodes").set_index("node_id")["name"].astype(str)
    shares, kernels = analysis.frame("kernel_shares"), analysis.frame("kernels").set_index("kernel_id")
    shares = shares.assign(module=nodes[shares["node_id"]].to_numpy())
    own = shares[~shares["kernel_id"].duplicated()]
    fused = own["kernel_id"][kernels["name"].astype(str)[own["kernel_id"]].str.contains("native_layer_norm").to_numpy()]
    assert len(fused) == 18
    rest = shares[shares["kernel_id"].isin(fused) & shares["kernel_id"].duplicated()]
    assert set(rest["module"]) <= {"embed", "layers.0", "layers.1", "layers.2", "layers.3"}
    assert {"layers.0", "layers.3"} <= set(rest["module"])
