"""Captures of a few lines through reader and tree: who owns which kernel, and how that was found."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from helpers import core_tables
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.joins import lookup
from xsp_post.base.errors import UsageError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest import nsys
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.model.levels import Level
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.model.tree import Attribution, LayerAttribution, balance
from xsp_post.pipeline import analyze
from xsp_post.reports.terminal import balance_line


def tree_of(builder, tmp_path, **levels):
    builder.write(tmp_path / "capture.sqlite")
    trace = nsys.read_trace(SqliteTables(tmp_path / "capture.sqlite"))
    return build_tree(trace, Options(**levels, infer=False))


def owners(tree):
    """kernel name → (folded name of its node, attribution, name of its layer, layer attribution)."""
    frames = core_tables(tree).frames
    nodes = frames["nodes"].set_index("node_id")
    rows = {}
    for k in frames["kernels"].to_dict("records"):
        layer = nodes.loc[k["layer_node_id"], "folded_name"] if k["layer_node_id"] >= 0 else ""
        node = nodes.loc[k["node_id"], "folded_name"]
        rows[k["name"]] = (node, k["attribution"], layer, k["layer_attribution"])
    return rows


def codes(tree):
    return {f.code: f.count for f in tree.findings}


def test_a_kernel_belongs_to_its_launch_and_lasts_as_its_execution(tmp_path):
    builder = (
        ExportBuilder()
        .range("model:forward#0", 0, 100, domain="xsp")
        .range("a:Conv2d#0", 10, 40, domain="xsp")
        .kernel("first", launch=(12, 15), run=(50, 80))  # runs while b is open, and after a closed
        .range("b:ReLU#0", 45, 90, domain="xsp")
        .kernel("second", launch=(46, 48), run=(80, 85))
    )
    tree = tree_of(builder, tmp_path)
    assert owners(tree) == {
        "first": ("a:Conv2d", "nesting", "a:Conv2d", "nesting"),
        "second": ("b:ReLU", "nesting", "b:ReLU", "nesting"),
    }
    layers = core_tables(tree).frames["layers"].set_index("layer_path")
    assert layers["kernel_ns"].to_dict() == {"a:Conv2d": 30, "b:ReLU": 5}
    assert layers["latency_ns"].to_dict() == {"a:Conv2d": 30, "b:ReLU": 5}
    assert tree.iterations["latency_ns"].tolist() == [100]


def test_correlation_ids_that_collide_between_processes(tmp_path):
    builder = ExportBuilder()
    for pid, name in ((100, "one"), (200, "two")):
        builder.process(pid).range(f"work {name}", 0, 50).kernel(name, launch=(10, 12), run=(20, 30), correlation=7)
    rows = owners(tree_of(builder, tmp_path))
    assert rows["one"][0] == "work one" and rows["two"][0] == "work two"
    assert len(rows) == 2


@pytest.mark.parametrize("low", [-(2**40), 2**40, 2**63 - 2, -(2**63)])
def test_correlation_ids_of_kernels_are_32_bits_and_those_of_launches_64(low):
    keys, of_kernels = np.array([low, low + 1]), np.array([5, 2**31 - 1], np.int32)
    for wanted, found in ((of_kernels, [-1, -1]), (of_kernels[:0], []), (keys[::-1], [1, 0])):
        assert lookup(keys, np.arange(2), wanted).tolist() == found


def test_a_driver_row_and_a_backtrace_row_never_double_a_kernel(tmp_path):
    builder = (
        ExportBuilder()
        .range("step", 0, 100)
        .kernel("k", launch=(10, 20), run=(30, 40))
        .duplicate_api("cuLaunchKernel", 12, 18)
        .duplicate_api("cudaLaunchKernel", 10, 20, event_class=67)
    )
    tree = tree_of(builder, tmp_path)
    assert len(tree.kernels) == 1
    assert int(tree.nodes["kernel_ns"].iloc[0]) == 10
    assert [f.count for f in tree.findings if f.code == "duplicate-correlation"] == [1]
    assert core_tables(tree).frames["kernels"]["launch_start_ns"].tolist() == [10]


def test_orphans_and_kernels_outside_ranges_are_kept(tmp_path):
    builder = (
        ExportBuilder()
        .range("inside", 0, 50)
        .kernel("in", launch=(1, 2), run=(3, 4))
        .kernel("out", launch=(60, 62), run=(70, 90))
        .kernel("orphan", run=(95, 99))
    )
    tree = tree_of(builder, tmp_path)
    rows = owners(tree)
    assert rows["out"][:2] == ("[unattributed]", "none")
    assert rows["orphan"][:2] == ("[no launch record]", "no_launch")
    assert codes(tree)["orphan-kernels"] == 1 and codes(tree)["outside-ranges"] == 1
    launch = balance(tree).query("question == 'launch'").set_index("attribution")
    assert launch["kernel_count"].to_dict() == {"nesting": 1, "none": 1, "no_launch": 1, "total": 3}
    assert launch.loc["total", "kernel_ns"] == 25


def test_another_threads_range_covers_a_thread_without_ranges(tmp_path):
    builder = ExportBuilder().range("Step 1", 0, 100).range("Backward", 50, 90)
    builder.thread(101).kernel("grad", launch=(60, 62), run=(70, 80)).kernel("late", launch=(95, 96), run=(98, 99))
    tree = tree_of(builder, tmp_path)
    rows = owners(tree)
    assert rows["grad"][:2] == ("Backward", "thread_time")
    assert rows["late"][:2] == ("Step", "thread_time")
    assert codes(tree)["other-thread"] == 2


def test_another_processes_range_covers_nothing(tmp_path):
    builder = ExportBuilder().range("rank 0", 0, 100)
    builder.process(200).kernel("elsewhere", launch=(10, 12), run=(20, 30))
    assert owners(tree_of(builder, tmp_path))["elsewhere"][1] == "none"


def test_backward_counts_for_its_forward_layer_by_sequence_number(tmp_path):
    builder = (
        ExportBuilder()
        .range("Step 1", 0, 1000)
        .range("aten::linear, seq = 4, op_id = 1", 10, 20)
        .kernel("forward", launch=(11, 12), run=(30, 40))
        .range("aten::relu, seq = 5, op_id = 2", 22, 30)
    )
    builder.thread(101).range("autograd::engine::evaluate_function: AddmmBackward0, seq = 4, op_id = 9", 500, 600)
    builder.range("AddmmBackward0, seq = 4, op_id = 10", 510, 590).kernel("backward", launch=(520, 522), run=(530, 560))
    tree = tree_of(builder, tmp_path)
    rows = owners(tree)
    assert rows["forward"][2:] == ("aten::linear", "nesting")
    assert rows["backward"] == ("AddmmBackward0", "nesting", "aten::linear", "sequence")
    layers = core_tables(tree).frames["layers"].set_index("layer_path")
    assert layers.loc["aten::linear", "kernel_ns"] == 40
    # both kernels ran in the step, whatever thread launched them
    assert core_tables(tree).frames["kernels"]["iteration_index"].tolist() == [0, 0]


def test_graph_nodes_count_for_the_range_of_their_capture(tmp_path):
    builder = (
        ExportBuilder()
        .range("model:capture#0", 0, 100, domain="xsp")
        .range("fc:Linear#0", 10, 30, domain="xsp")
        .graph_node(500, 15)
        .graph_node(900, 60, original=500)  # the instantiated clone
        .range("model:replay#0", 200, 300, domain="xsp")
        .kernel("replayed", launch=(210, 220), run=(230, 250), graph_node=900, api="cudaGraphLaunch_v10000")
    )
    tree = tree_of(builder, tmp_path)
    assert owners(tree)["replayed"] == ("fc:Linear", "graph", "fc:Linear", "graph")
    kernel = core_tables(tree).frames["kernels"].iloc[0]
    assert kernel["iteration_index"] == 1  # it ran in the replay


def test_an_opaque_graph_launch_is_a_leaf_and_a_finding(tmp_path):
    builder = ExportBuilder().range("Step 1", 0, 100).graph_launch(launch=(10, 12), run=(20, 90), graph_id=3, exec_id=4)
    tree = tree_of(builder, tmp_path)
    frames = core_tables(tree).frames
    leaf = frames["nodes"][frames["nodes"]["span_kind"] == "graph"].iloc[0]
    assert leaf["name"] == "CUDA graph 3 exec 4"
    assert leaf["busy_ns"] == 70 and leaf["kernel_count"] == 0
    assert codes(tree)["graph-launches"] == 1


def test_library_calls_are_a_level_of_their_own(tmp_path):
    builder = (
        ExportBuilder()
        .range("model:forward#0", 0, 100, domain="xsp")
        .range("c:Conv2d#0", 5, 60, domain="xsp")
        .library("cudnnConvolutionForward", 10, 50)
        .range("cublasLtMatmul", 62, 70, domain="cuBLAS")
        .kernel("conv", launch=(12, 15), run=(20, 40))
    )
    tree = tree_of(builder, tmp_path)
    nodes = core_tables(tree).frames["nodes"].set_index("folded_name")["level"]
    assert nodes["cudnnConvolutionForward"] == "LIBRARY" and nodes["cublasLtMatmul"] == "LIBRARY"
    assert owners(tree)["conv"] == ("cudnnConvolutionForward", "nesting", "c:Conv2d", "nesting")


def test_open_crossing_and_negative_ranges(tmp_path):
    builder = (
        ExportBuilder()
        .range("never closed", -50, None)
        .cross_thread("handed over", 0, 100, end_thread=101)
        .kernel("k", launch=(10, 12), run=(20, 30))
        .range("last", 200, 300)
    )
    tree = tree_of(builder, tmp_path)
    assert owners(tree)["k"][0] == "never closed"
    frames = core_tables(tree).frames
    row = frames["nodes"].set_index("folded_name").loc["never closed"]
    assert row["end_ns"] == 300 and row["is_open"]
    assert codes(tree)["open-ranges"] == 1 and codes(tree)["cross-thread-ranges"] == 1


def test_leading_slow_iterations_are_warm_up(tmp_path):
    builder = ExportBuilder()
    for i, length in enumerate((500, 100, 101, 99, 100)):
        builder.range(f"Step {i}", i * 1000, i * 1000 + length)
        builder.kernel("k", launch=(i * 1000 + 1, i * 1000 + 2), run=(i * 1000 + 3, i * 1000 + 9))
    tree = tree_of(builder, tmp_path)
    assert tree.iterations["is_warmup"].tolist() == [True, False, False, False, False]
    assert codes(tree)["warmup-detected"] == 1


def test_a_phase_that_names_its_warm_up_keeps_all_its_measured_iterations(tmp_path):
    builder = ExportBuilder()
    texts = ["warmup:forward#0", *(f"model:forward#{i}" for i in range(5))]
    for i, length in enumerate((900, 500, 100, 101, 99, 100)):
        builder.range(texts[i], i * 1000, i * 1000 + length, domain="xsp")
    tree = tree_of(builder, tmp_path)
    assert tree.iterations["is_warmup"].tolist() == [True, False, False, False, False, False]
    assert "warmup-detected" not in codes(tree)


def test_steps_fold_into_as_many_layers_as_the_model_has(tmp_path):
    builder = ExportBuilder()
    for step in range(3):
        at = step * 1000
        builder.range(f"Step {step}", at, at + 900)
        for layer in range(4):
            t = at + 10 + layer * 100
            builder.range(f"aten::linear, seq = {step * 9 + layer}, op_id = {step * 40 + layer}", t, t + 50)
            builder.kernel("gemm", launch=(t + 1, t + 2), run=(t + 5, t + 45))
    tree = tree_of(builder, tmp_path)
    assert len(tree.layer_keys) == 4
    assert tree.layer_keys["call_index"].tolist() == [0, 1, 2, 3]
    layers = core_tables(tree).frames["layers"]
    assert layers.groupby("layer_index").size().tolist() == [3, 3, 3, 3]
    assert set(layers["kernel_ns"]) == {40}


def test_work_between_layers_is_the_models_own(tmp_path):
    builder = (
        ExportBuilder()
        .range("model:forward#0", 0, 100, domain="xsp")
        .range("block:Block#0", 5, 90, domain="xsp")
        .range("block.conv:Conv2d#0", 10, 30, domain="xsp")
        .kernel("conv", launch=(11, 12), run=(13, 20))
        .kernel("add", launch=(50, 51), run=(60, 64))
    )
    tree = tree_of(builder, tmp_path)
    assert owners(tree)["add"][0] == "block:Block"
    layers = core_tables(tree).frames["layers"].set_index("layer_path")
    assert layers["kernel_ns"].to_dict() == {"block.conv:Conv2d": 7, "block:Block > [self]": 4}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({"model_range": "outer"}, {"outer": "MODEL", "mid": "LAYER", "inner": "OPERATION"}),
        ({"model_range": "outer", "layer_range": "inner"}, {"outer": "MODEL", "mid": "MODULE", "inner": "LAYER"}),
        ({"layer_range": "mid"}, {"mid": "LAYER", "inner": "OPERATION"}),
        ({"model_range": "outer", "layer_depth": 2}, {"outer": "MODEL", "mid": "MODULE", "inner": "LAYER"}),
    ],
)
def test_the_user_says_what_is_a_layer(tmp_path, levels, expected):
    builder = (
        ExportBuilder().range("outer", 0, 100).range("mid", 10, 90).range("inner", 20, 80)
        .kernel("k", launch=(30, 31), run=(40, 50))
    )  # fmt: skip
    tree = tree_of(builder, tmp_path, **levels)
    found = core_tables(tree).frames["nodes"].set_index("folded_name")["level"].astype(str).to_dict()
    assert {name: found[name] for name in expected} == expected
    assert all(value in tree.level_rule for value in levels.values() if isinstance(value, str))


def test_patterns_that_cannot_work_are_refused(tmp_path):
    builder = ExportBuilder().range("outer", 0, 100)
    with pytest.raises(UsageError, match="is not a regular expression"):
        tree_of(builder, tmp_path, layer_range="(")
    with pytest.raises(UsageError, match="matches none"):
        tree_of(builder, tmp_path, model_range="absent")


RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 50), st.booleans()), max_size=10)
KERNELS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 80), st.integers(0, 90), st.integers(0, 20), st.booleans()), max_size=12
)


@examples(40)
@given(RANGES, KERNELS)
def test_nothing_is_ever_lost(tmp_path_factory, ranges, kernels):
    """Any ranges, any launches: every kernel once, sums equal, children within parents, busy ≤ kernel time."""
    tmp_path = tmp_path_factory.mktemp("any")
    builder = ExportBuilder().process(100)
    for thread, start, length, push in ranges:
        builder.thread(100 + thread)
        (builder.range if push else builder.start_end)(f"r{start}", start, start + length)
    for thread, launch, run, length, known in kernels:
        builder.thread(100 + thread)
        builder.kernel("k", launch=(launch, launch + 1) if known else None, run=(run, run + length))
    tree = tree_of(builder, tmp_path)
    nodes = tree.nodes
    total = sum(length for *_, length, _ in kernels)
    assert int(nodes["kernel_count"].iloc[0]) == len(kernels) == int(nodes["self_kernel_count"].sum())
    assert int(nodes["kernel_ns"].iloc[0]) == total == int(nodes["self_kernel_ns"].sum())
    for question in ("launch", "layer"):
        rows = balance(tree).pipe(lambda f, q=question: f[f["question"] == q]).set_index("attribution")
        assert rows.drop("total").sum().loc["kernel_ns"] == rows.loc["total", "kernel_ns"] == total
    parent = nodes["parent_id"].to_numpy()
    inner = np.flatnonzero(parent > 0)
    assert (nodes["start_ns"].to_numpy()[parent[inner]] <= nodes["start_ns"].to_numpy()[inner]).all()
    assert (nodes["end_ns"].to_numpy()[parent[inner]] >= nodes["end_ns"].to_numpy()[inner]).all()
    assert (nodes["busy_ns"] <= nodes["kernel_ns"]).all()
    attribution = tree.kernels["attribution"].to_numpy()
    assert ((attribution == Attribution.NO_LAUNCH) == ~np.array([k[4] for k in kernels], bool)).all()


def test_levels_and_attributions_have_the_names_of_the_design():
    assert [m.name.lower() for m in Attribution] == [
        "nesting", "thread_time", "graph", "none", "no_launch", "annotation", "provenance",
    ]  # fmt: skip
    assert {m.name.lower() for m in LayerAttribution} == {
        "nesting", "sequence", "thread_time", "graph", "annotation", "provenance", "twin", "hook_pair", "inferred",
        "none",
    }  # fmt: skip
    assert {"APPLICATION", "MODEL", "LAYER", "LIBRARY", "KERNEL"} <= {m.name for m in Level}


def test_an_empty_capture_has_a_root_and_says_so(tmp_path):
    tree = tree_of(ExportBuilder(lazy=False), tmp_path)
    assert len(tree.nodes) == 1
    assert {"no-kernels", "no-ranges"} <= set(codes(tree))
    assert isinstance(core_tables(tree).frames["layers"], pd.DataFrame)


def test_layers_of_the_measured_model_are_numbered_before_those_of_warm_up(tmp_path):
    builder = ExportBuilder()
    for i, (model, layers) in enumerate((("warmup", "ab"), ("loop", "cde"))):
        at = i * 1000
        builder.range(model, at, at + 900)
        for k, layer in enumerate(layers):
            builder.range(layer, at + k * 100, at + k * 100 + 90)
            builder.kernel("k", launch=(at + k * 100 + 1, at + k * 100 + 2), run=(at + k * 100 + 5, at + k * 100 + 9))
    keys = tree_of(builder, tmp_path).layer_keys
    assert keys["layer_index"].tolist() == [1, 2, 3, 4, 5]
    assert keys["layer_name"].tolist() == ["c", "d", "e", "a", "b"]


def test_the_balance_says_what_lies_in_a_model_but_in_no_layer(tmp_path):
    """It counts as nesting (docs/architecture.md), and a reader of that line alone would take it for layers' work."""
    builder = ExportBuilder().gpu().range("model#0:forward", 0, 1000, domain="xsp")
    builder.range("conv#1:Conv2d", 100, 300, domain="xsp")
    builder.kernel("gemm", launch=(120, 130), run=(150, 250))
    builder.kernel("relu", launch=(400, 410), run=(450, 460)).kernel("late", launch=(1500, 1510), run=(1600, 1605))
    tree = tree_of(builder, tmp_path)
    rows = balance(tree)
    columns = ["operation_count", "device_ns", "self_operation_count", "self_device_ns"]
    layer = rows[rows["question"] == "layer"].set_index("attribution")[columns]
    assert layer.loc["total"].tolist() == [3, 115, 1, 10]
    assert layer.loc["nesting"].tolist() == [2, 110, 1, 10]
    assert layer.loc["none"].tolist() == [1, 5, 0, 0]
    text = str(balance_line(Analysis(core_tables(tree).frames), 0))
    assert "of these in no layer, but in their model ([self]): 1 (10 ns)\n  3 in the file, 3 in the tree" in text
    assert text.count("adds up") == 2


def test_dependent_launches_of_one_stream_are_said(tmp_path):
    """Three kernels of 10 ms, each 1 ms before the end of the one before it; a second stream overlaps, as it may."""
    builder = ExportBuilder().gpu().range("step", 0, 40_000_000)
    for k in range(3):
        start = 1_000_000 + 9_000_000 * k
        builder.kernel("gemm", launch=(10 * k, 10 * k + 5), run=(start, start + 10_000_000), stream=7)
    builder.kernel("copy_like", launch=(40, 45), run=(2_000_000, 3_000_000), stream=8)
    analysis = analyze([builder.write(tmp_path / "a.sqlite")])
    device = analysis.frame("devices").iloc[0]
    assert (device["device_ns"], device["own_busy_ns"]) == (31_000_000, 28_000_000)
    assert device["stream_overlap_ns"] == 2_000_000
    (said,) = analysis.frame("findings").query("code == 'streams-overlap'").to_dict("records")
    assert said["example"] == "2.00 ms: device time 31.0 ms, busy 28.0 ms"
