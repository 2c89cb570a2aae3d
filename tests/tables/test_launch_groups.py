"""Green contexts, clusters and dependent launches as exports of nsys 3.24 state them; nothing of older ones."""

from __future__ import annotations

import pytest
from builders import ExportBuilder
from generators.serving import serving

import xsp_post


def groups(tmp_path, schema, kernels):
    builder = ExportBuilder(schema).process(100).range("forward", 1000, 90_000)
    for number, columns in enumerate(kernels):
        at = 2000 + 10_000 * number
        builder.kernel("gemm", launch=(at, at + 5), run=(at + 10, at + 5010), **columns)
    return xsp_post.load(builder.write(tmp_path / "report.sqlite"))["launch_groups"]


def test_kernels_by_green_context_and_cluster(tmp_path):
    pair = {"clusterX": 2, "clusterY": 1, "clusterZ": 1}
    rows = [{}, {"greenContextId": 3}, {"greenContextId": 3, **pair}, {"greenContextId": 3, **pair}]
    found = groups(tmp_path, "3.25.0", rows).set_index(["green_context_id", "cluster_x", "cluster_y", "cluster_z"])
    assert found["kernel_count"].to_dict() == {(0, 0, 0, 0): 1, (3, 0, 0, 0): 1, (3, 2, 1, 1): 2}
    assert found.loc[(3, 2, 1, 1), "kernel_ns"] == 10_000 and not found["early_count"].any()


def test_kernels_that_let_others_begin(tmp_path):
    # at 12 010 … 17 010: one says 2 µs before its end, one a time that is not in it
    found = groups(tmp_path, "3.25.0", [{}, {"qmdPreexitDone": 15_010}, {"qmdPreexitDone": 5}])
    assert found[["kernel_count", "early_count", "early_ns"]].to_numpy().tolist() == [[3, 1, 2000]]


def test_the_release_of_waiting_kernels_and_the_last_thread_block(tmp_path):
    # the third's times do not lie in it; the fourth's end is that of its last thread block
    moments = ({"qmdBulkReleaseDone": 14_010, "qmdLastCtaDone": 16_510}, {"qmdBulkReleaseDone": 5, "qmdLastCtaDone": 5})
    rows = [{"clusterX": 2}, {"clusterX": 2, **moments[0]}, {"clusterX": 2, **moments[1]}]
    found = groups(tmp_path, "3.25.0", [*rows, {"clusterX": 2, "qmdLastCtaDone": 37_010}])
    assert found[["early_count", "release_ns", "tail_ns"]].to_numpy().tolist() == [[0, 3000, 500]]


@pytest.mark.parametrize("schema", ["3.25.0", "3.7.4"])
def test_without_any_there_are_no_rows(tmp_path, schema):
    assert not len(groups(tmp_path, schema, [{}, {}]))


def test_a_trace_of_torch_that_says_no_cluster_has_no_rows(tmp_path):
    path = serving(1, 20).write(tmp_path / "engine.json")
    assert not len(xsp_post.load(path)["launch_groups"])
