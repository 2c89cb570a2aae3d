"""Every check of a trace and a tree can fail: one change each, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import ExportBuilder
from recorded import trace_of

from xsp_post.base.errors import ContradictionError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.checks import check_trace, check_tree
from xsp_post.model.schemas import TABLES
from xsp_post.model.schemas.frames import TRACE_FRAMES, TREE_FRAMES

SMALL_CAPTURES = ("fsdp_2gpu_h100", "many_copies_a100", "tensorrt_nvtx_only_titanrtx", "nvfuser_h200")


@pytest.fixture
def trace(tmp_path):
    builder = ExportBuilder().process(100).range("model", 0, 1000).range("layer", 100, 900)
    builder.kernel("gemm", launch=(110, 115), run=(120, 220)).kernel("relu", launch=(130, 135), run=(230, 300))
    return load(builder.write(tmp_path / "run.sqlite")).trace


@pytest.fixture
def tree(trace):
    return build_tree(trace)


def undeclared_columns(trace) -> list[str]:
    """Columns that a reader made and `schemas.frames` does not know: ``frame.column``."""
    return [
        f"{name}.{column}"
        for name, declared in TRACE_FRAMES.items()
        for column in (trace.gpu_samples() if name == "gpu_samples" else getattr(trace, name))
        if column not in {c.name for c in (*declared.columns, *declared.may_lack)}
    ]


def test_a_whole_capture_passes(trace, tree):
    check_trace(trace)
    assert check_tree(tree) == [] and tree.nodes["kernel_ns"].tolist()[:3] == [170, 170, 170]


@pytest.mark.parametrize("name", SMALL_CAPTURES)
def test_real_captures_pass_and_have_no_undeclared_column(captures, name):
    trace = trace_of(captures / "nsys" / f"{name}.sqlite")
    assert undeclared_columns(trace) == []
    codes = {one.code for one in check_tree(build_tree(trace))}
    assert not codes & {"busy-exceeds-children", "busy-exceeds-projection"}


def test_what_the_store_makes_of_a_dtype_is_what_its_tables_declare():
    declared = {column.name: column.dtype for column in TABLES["nodes"].columns}
    for column in (*TREE_FRAMES["nodes"].columns, *TREE_FRAMES["nodes"].may_lack):
        if column.name in declared and column.name != "level":
            in_store = "int64" if column.dtype.startswith("int") else column.dtype
            assert in_store == declared[column.name], column.name


# -- trace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.spans.pop("is_open"), "trace.spans lacks the column is_open"),
        (lambda t: setattr(t, "launches", t.launches.astype({"name_id": "int64"})), "launches.name_id is int64"),
        (lambda t: setattr(t, "spans", t.spans.set_axis([1, 2])), "trace.spans is not indexed 0…1"),
        (
            lambda t: t.spans.__setitem__("name_id", np.array([0, 10_000], np.int32)),
            "trace.spans.name_id holds 0 … 10000",
        ),
        (lambda t: t.activities.__setitem__("process_index", np.array([-2, 0], np.int32)), "process_index holds -2"),
        (lambda t: t.spans.__setitem__("thread_index", np.array([0, 9], np.int32)), "thread_index holds 0 … 9"),
    ],
)
def test_a_trace_that_breaks_its_declaration_is_refused(trace, change, says):
    change(trace)
    with pytest.raises(ContradictionError) as caught:
        check_trace(trace)
    assert caught.value.code == "frame-malformed" and says in caught.value.message


def test_an_undeclared_column_is_named(trace):
    trace.spans["mine"] = 1
    assert undeclared_columns(trace) == ["spans.mine"]


# -- tree: the invariants by number -------------------------------------------------------------------------


def lose_a_kernel(tree):
    tree.activities = tree.activities.iloc[:1]


def duplicate_a_kernel(tree):
    tree.activities = tree.activities.iloc[[0, 1, 1]].reset_index(drop=True)


def change_a_time(tree):
    tree.activities["end_ns"] = tree.activities["end_ns"] + 1  # not in place: pandas before 3.0 changes the trace too


def lose_a_count(tree):
    tree.nodes.loc[0, "kernel_count"] -= 1


def lose_kernel_time(tree):
    tree.nodes["self_kernel_ns"] = 0


def lose_device_time(tree):
    tree.nodes["self_device_ns"] = 0


def lose_a_range(tree):
    tree.nodes.loc[2, "kind"] = 10


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose_a_kernel, "holds 1 device activities, the capture 2"),  # 1, 5
        (duplicate_a_kernel, "holds 3 device activities, the capture 2"),  # 1, 5
        (change_a_time, "other values of end_ns"),  # 2, 5
        (lose_a_count, "1 kernels of 170 ns, the capture 2 of 170 ns"),  # 1
        (lose_kernel_time, "2 kernels of 0 ns, the capture 2 of 170 ns"),  # 2
        (lose_device_time, "device operations of 0 ns"),  # 2
        (lose_a_range, "holds 1 ranges, the capture 2"),  # 5
    ],
)
def test_what_is_lost_is_an_error(tree, change, says):
    change(tree)
    with pytest.raises(ContradictionError) as caught:
        check_tree(tree)
    assert caught.value.code == "tree-lost-kernels" and says in caught.value.message


@pytest.mark.parametrize(
    ("column", "row", "value", "says"),
    [
        ("parent_id", 1, -1, "parent_id holds -1"),
        ("parent_id", 2, 2, "is not one tree below node 0"),
        ("depth", 2, 5, "is not one tree below node 0"),
    ],
)
def test_nodes_are_one_tree(tree, column, row, value, says):
    tree.nodes.loc[row, column] = value
    with pytest.raises(ContradictionError) as caught:
        check_tree(tree)
    assert caught.value.code == "frame-malformed" and says in caught.value.message


def test_a_kernel_below_no_node_is_an_error(tree):
    tree.activities["node_id"] = np.array([2, 99], np.int32)
    with pytest.raises(ContradictionError, match="node_id holds 2 … 99"):
        check_tree(tree)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.nodes.__setitem__("kernel_ns", [170, 169, 170]), "kernel_ns: 2 nodes hold another sum"),
        (lambda t: t.nodes.__setitem__("kernel_count", [2, 3, 2]), "kernel_count: 2 nodes"),
        (lambda t: t.nodes.__setitem__("copy_ns", [0, 5, 0]), "device_ns is not the sum of its parts"),
        (
            lambda t: t.activities.__setitem__("node_id", np.array([1, 2], np.int32)),
            "the kernels hang below other nodes",
        ),
    ],
)
def test_inclusive_is_own_plus_children(tree, change, says):  # 4
    change(tree)
    with pytest.raises(ContradictionError) as caught:
        check_tree(tree)
    assert caught.value.code == "tree-not-additive" and says in caught.value.message


def test_a_range_beyond_its_parent_is_a_finding(tree):  # 3
    tree.nodes.loc[2, "end_ns"] = 1_001
    assert [(one.code, one.count) for one in check_tree(tree)] == [("child-outside-parent", 1)]
    tree.findings += check_tree(tree)
    assert check_tree(tree) == []  # it is said already


def test_busy_beyond_children_or_projection_is_a_finding(tree):  # 4
    tree.nodes.loc[2, "busy_ns"] = 10_000
    assert [one.code for one in check_tree(tree)] == ["busy-exceeds-children", "busy-exceeds-projection"]


def test_a_graph_execution_is_outside_projections(tree):
    tree.nodes.loc[2, "projected_end_ns"] = tree.nodes.loc[2, "projected_start_ns"] + 1
    assert [one.code for one in check_tree(tree)] == ["busy-exceeds-projection"]
    tree.activities["launch_node_id"] = np.int32(0)  # launched by another thread
    assert check_tree(tree) == []
