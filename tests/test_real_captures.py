"""Real nsys exports against a slow independent reference, and against what NVIDIA's own tools printed."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from conftest import CANARY
from recorded import analyzed, trace_of

from xsp_post import pipeline
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options
from xsp_post.model.tree import balance
from xsp_post.store import store

NAMES = (
    "cloverleaf_a100", "cublas_a100_2022.3", "fsdp_2gpu_h100", "no_cuda_2021.3", "no_cuda_non_utf8_2025.6",
    "no_kernels_2023.4", "no_metadata_2021.2", "nvfuser_h200", "nvtx_only_titanrtx", "tensorrt_nvtx_only_titanrtx",
    "three_kernels_t4_2023.1", "transformer_2.7b_a100_no_nvtx", "transformer_2.7b_a100_nvtx",
    "transformer_backward_rtx3070ti", "two_kernels_rtx3080",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_reference(captures, name):
    expected = json.loads((captures / "expected" / f"{name}.json").read_text())
    trace = trace_of(captures / "nsys" / f"{name}.sqlite")
    tree = build_tree(trace, Options(infer=False))
    launch = balance(tree).query("question == 'launch'").set_index("attribution")["kernel_count"]
    kernels = tree.kernels
    assert launch["total"] == expected["kernels"]
    assert int((kernels["end_ns"] - kernels["start_ns"]).sum()) == expected["kernel_ns"]
    assert launch.get("no_launch", 0) == expected["without_launch"]
    assert launch["total"] - launch.get("no_launch", 0) == expected["with_launch"]
    assert launch["nesting"] == expected["inside_a_range"]
    assert int((trace.spans["kind"] == 0).sum()) == expected["push_pop_ranges"]
    assert kernels["process_index"].nunique() == expected["processes"]
    assert _paths(tree, expected["top_paths"]) == expected["top_paths"]


def _paths(tree, wanted):
    """Kernels and time inside each path of *recorded texts*, counting same-thread nesting as the reference does."""
    nodes, kernels = tree.nodes, tree.kernels
    name = nodes["name_id"].to_numpy()
    parent = nodes["parent_id"].to_numpy()
    found = {}
    duration = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    owner = kernels["launch_node_id"].to_numpy()
    for path in wanted:
        inside = np.zeros(len(nodes), bool)
        texts = path.split(" > ")
        ends = np.flatnonzero((name >= 0) & (tree.strings[np.maximum(name, 0)] == texts[-1]))
        for node in ends.tolist():
            chain, above = [], node
            while above > 0:
                chain.append(str(tree.strings[name[above]]))
                above = int(parent[above])
            inside[node] = chain[::-1] == texts
        below = inside.copy()
        order = np.argsort(nodes["depth"].to_numpy(), kind="stable")
        for node in order.tolist():
            if parent[node] >= 0:
                below[node] |= below[parent[node]]
        mine = below[owner]
        found[path] = {"kernels": int(mine.sum()), "kernel_ns": int(duration[mine].sum())}
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_store_holds_everything_and_nothing_private(captures, tmp_path, name):
    source = captures / "nsys" / f"{name}.sqlite"
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    load(source)
    analysis = analyzed(source)
    path = tmp_path / "out.xsp.sqlite"
    store.write_store(analysis, path)
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    assert CANARY.encode() not in path.read_bytes()
    again = store.open_store(path)
    for table in analysis.tables():
        ours, theirs = analysis.frame(table), again.frame(table)
        assert list(ours.columns) == [c for c in ours.columns if c in theirs.columns], table
        assert len(ours) == len(theirs), table
    for column in ("name", "attribution", "layer_attribution", "duration_ns", "queue_delay_ns"):
        first, second = (a.frame("kernels")[column].astype(str).tolist() for a in (analysis, again))
        assert first == second


def _printed(path):
    """What `nsys stats` printed, re-shaped into one Enter row per event: (name, start, end), sorted."""
    rows = pd.read_csv(path)
    rows = rows[rows["Event Type"] == "Enter"]
    names = rows["Name"].str.replace(r"_v\d+$", "", regex=True)  # the ABI suffix that nsys stats itself leaves out
    return sorted(zip(rows["Timestamp (ns)"].astype("int64"), rows["_matching_timestamp"].astype("int64"), names))


def test_cloverleaf_equals_what_nsys_stats_printed(captures):
    folder = captures / "nsys"
    frames = analyzed(folder / "cloverleaf_a100.sqlite").frames
    printed = _printed(folder / "cloverleaf_a100.nsys_stats_cuda_gpu_trace.csv")
    kernels, copies = frames["kernels"], frames["memory_operations"]
    ours = list(zip(kernels["start_ns"], kernels["end_ns"], kernels["short_name"].astype(str)))
    theirs = [row for row in printed if not row[2].startswith("CUDA_MEM")]
    assert sorted(ours) == theirs
    ours = sorted(zip(copies["start_ns"], copies["end_ns"]))
    assert ours == [row[:2] for row in printed if row[2].startswith("CUDA_MEM")]


def test_cloverleaf_api_calls_equal_what_nsys_stats_printed(captures):
    folder = captures / "nsys"
    trace = trace_of(folder / "cloverleaf_a100.sqlite")
    launches = trace.launches
    names = trace.strings[launches["name_id"].to_numpy()]
    printed = _printed(folder / "cloverleaf_a100.nsys_stats_cuda_api_trace.csv")
    assert sorted(zip(launches["start_ns"], launches["end_ns"], names)) == printed


def test_ranges_of_nvidias_report_nest_as_it_says(captures, tmp_path):
    """27,891 ranges of a JAX run, written into an export: level, parent, children and child time."""
    printed = pd.read_csv(captures / "official" / "jax_fsdp4_nvtx_pushpop_trace.csv.xz")
    builder = ExportBuilder().process(int(printed["PID"].iloc[0]))
    for row in printed.sort_values("RangeId").to_dict("records"):
        builder.thread(int(row["TID"])).range(str(row["RangeId"]), int(row["Start (ns)"]), int(row["End (ns)"]))
    builder.write(tmp_path / "jax.sqlite")
    tree = build_tree(load(tmp_path / "jax.sqlite").trace, Options(infer=False))
    nodes = tree.nodes.iloc[1:]
    identity = tree.strings[nodes["name_id"].to_numpy()].astype("int64")
    parent = nodes["parent_id"].to_numpy()
    ours = pd.DataFrame(
        {
            "Lvl": nodes["depth"].to_numpy() - 1,
            "ParentId": np.where(parent > 0, np.r_[0, identity][parent], -1),
            "DurNonChild (ns)": nodes["self_ns"].to_numpy(),
            "NumChild": np.bincount(parent[parent > 0], minlength=len(nodes) + 1)[1:],
        },
        index=identity,
    ).sort_index()
    theirs = printed.set_index("RangeId").sort_index()
    theirs["ParentId"] = theirs["ParentId"].fillna(-1).astype("int64")
    for column in ours.columns:
        assert (ours[column] == theirs[column]).all(), column


def test_the_natural_pair_agrees(captures):
    """The same workload with and without ranges: inference finds the iterations and blocks of the other one."""
    frames = analyzed(captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite").frames
    iterations = frames["iterations"]
    assert iterations["kernel_count"].tolist() == [1832] * 4
    assert iterations["is_inferred"].all()
    nodes = frames["nodes"]
    blocks = nodes[nodes["level"] == "LAYER"].groupby("iteration_index").size()
    assert blocks.tolist() == [blocks.iloc[0]] * 4
    assert (frames["kernels"]["layer_attribution"] == "inferred").all()
    assert (frames["kernels"]["attribution"] == "none").all()
    path = captures / "nsys" / "transformer_2.7b_a100_no_nvtx.sqlite"
    plain = pipeline.analyze([path], pipeline.Options(infer=False))
    assert not len(plain.frames["iterations"]) and not plain.frames["nodes"]["is_inferred"].any()
