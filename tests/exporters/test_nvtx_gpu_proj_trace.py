"""`nvtx_gpu_proj_trace`: columns, types, order and values are those of NVIDIA's own report."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers import frame_of, small_analysis
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.base.errors import OutputError, UsageError
from xsp_post.exporters import nvtx_gpu_proj_trace as official
from xsp_post.model.results import Analysis

COLUMNS = [
    "Name",
    "Projected Start",
    "Projected Duration",
    "Orig Start",
    "Orig Duration",
    "Style",
    "PID",
    "TID",
    "NumGPUOps",
    "Lvl",
    "NumChild",
    "RangeId",
    "ParentId",
    "RangeStack",
]


def analysis_of(nodes: pd.DataFrame, kernels: pd.DataFrame) -> Analysis:
    analysis = small_analysis(levels=("M/L/G",), iterations=0)
    empty = frame_of("memory_operations", [])
    return Analysis({**analysis.frames, "nodes": nodes, "kernels": kernels, "memory_operations": empty})


def test_the_small_analysis_by_hand():
    report = official.data(small_analysis(iterations=1))
    assert list(report.columns) == COLUMNS
    assert report["Name"].tolist() == [
        f"xsp:{name}"
        for name in (
            "warmup:forward#0",
            "conv1:Conv2d#0",
            "layer1.0.relu:ReLU#0",
            "fc:Linear#0",
            "model:forward#0",
            "conv1:Conv2d#0",
            "layer1.0.relu:ReLU#0",
            "fc:Linear#0",
        )
    ]
    assert report["NumGPUOps"].tolist() == [6, 2, 1, 1] * 2  # the copy counts, the strays do not
    assert report["NumChild"].tolist() == [3, 0, 0, 0] * 2
    assert report["Lvl"].tolist() == [0, 1, 1, 1] * 2
    assert report["Projected Duration"].tolist()[1:4] == [110_000, 20_000, 50_000]
    assert report["Projected Duration"][0] == 187_000
    assert report["ParentId"].isna().tolist() == [True, False, False, False] * 2
    assert report["RangeStack"][1] == f":{report['RangeId'][0]}:{report['RangeId'][1]}"


def test_csv_has_the_headers_of_nsys_stats(tmp_path):
    path = tmp_path / "trace.csv"
    written = official.write(small_analysis(iterations=1), path)
    lines = path.read_text().splitlines()
    assert lines[0] == (
        "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,"
        "NumGPUOps,Lvl,NumChild,RangeId,ParentId,RangeStack"
    )
    assert written.counts == {"ranges": 8} and len(lines) == 9
    assert ",,:" in lines[1]  # no parent: empty, not NaN and not 0
    with pytest.raises(OutputError):
        official.write(small_analysis(iterations=1), path)


def test_names_with_commas_and_quotes_survive(tmp_path):
    layers = [('a"b,c\n</script>', "Conv2d", [("k", 10)])]
    path = tmp_path / "trace.csv"
    official.write(small_analysis(layers=layers), path)
    assert f"xsp:{layers[0][0]}:Conv2d#0" in pd.read_csv(path)["Name"].tolist()


def test_a_capture_that_is_not_there():
    with pytest.raises(UsageError) as caught:
        official.data(small_analysis(), capture_id=9)
    assert caught.value.code == "export-no-capture"
    assert len(official.data(small_analysis(), capture_id=0)) == 0  # no device work, no rows


def test_ranges_of_a_pytorch_trace_count_as_push_pop():
    analysis = small_analysis(iterations=1)
    nodes = analysis.frame("nodes").copy()
    nodes["span_kind"] = nodes["span_kind"].astype(str).replace("push_pop", "operator")
    nodes["source_row_id"] = np.where(nodes["source_row_id"] >= 0, 3, -1)  # no key: our own numbers stand in
    report = official.data(Analysis({**analysis.frames, "nodes": nodes}))
    assert set(report["Style"]) == {"PushPop"} and len(report) == 8 and report["RangeId"].is_unique


def test_no_ranges_at_all(tmp_path):
    kernels = small_analysis().frame("kernels")
    empty = analysis_of(frame_of("nodes", []), kernels)
    assert list(official.data(empty).columns) == COLUMNS
    written = official.write(empty, tmp_path / "a.parquet")
    assert [f.code for f in written.findings] == ["export-empty"]
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").schema.remove_metadata() == official.PARQUET_SCHEMA


@pytest.fixture(scope="module")
def nvidia(captures):
    folder = captures / "official"
    ranges = pd.read_csv(folder / "jax_fsdp4_nvtx_pushpop_trace.csv.xz")
    report = pyarrow.parquet.read_table(folder / "jax_fsdp4_nvtx_gpu_proj_trace.parquet")
    return ranges, report


def test_types_and_columns_equal_the_official_file(nvidia, tmp_path):
    path = tmp_path / "trace.parquet"
    official.write(small_analysis(), path)
    ours, theirs = pyarrow.parquet.read_schema(path), nvidia[1].schema
    assert [(f.name, f.type) for f in ours] == [(f.name, f.type) for f in theirs]


def test_the_official_report_is_reproduced(nvidia, tmp_path):
    """NVIDIA's 27,891 ranges, each given one launch whose device work is the range's official projection."""
    ranges, table = nvidia
    theirs = table.to_pandas()
    theirs = theirs[theirs["Name"].notna()].reset_index(drop=True)  # one row is a thread without ranges
    names = ranges["Name"].str.split(":", n=1, expand=True)
    nodes = pd.DataFrame(
        {
            "node_id": np.arange(len(ranges)),
            "capture_id": 0,
            "parent_id": -1,
            "level": "APPLICATION",
            "name": names[1].to_numpy(),
            "domain": names[0].to_numpy(),
            "process_id": ranges["PID"].to_numpy(),
            "thread_id": ranges["TID"].to_numpy(),
            "start_ns": ranges["Start (ns)"].to_numpy(),
            "end_ns": ranges["End (ns)"].to_numpy(),
            "span_kind": "push_pop",
            "source_row_id": ranges["RangeId"].to_numpy(),
        }
    ).sample(frac=1, random_state=1)
    start = theirs["Orig Start"].astype("int64").to_numpy()
    kernels = pd.DataFrame(
        {
            "kernel_id": np.arange(len(theirs)),
            "capture_id": 0,
            "process_id": theirs["PID"].to_numpy(),
            "correlation_id": np.arange(len(theirs)),
            "launch_thread_id": theirs["TID"].to_numpy(),
            "launch_start_ns": start,
            "launch_end_ns": start,
            "start_ns": theirs["Projected Start"].to_numpy(),
            "end_ns": (theirs["Projected Start"] + theirs["Projected Duration"]).to_numpy(),
        }
    )
    path = tmp_path / "trace.parquet"
    official.write(analysis_of(nodes, kernels), path)
    ours = pd.read_parquet(path)
    same = [c for c in theirs.columns if c != "NumGPUOps"]  # the real number of operations is not public
    as_held = {name: ours[name].dtype for name in same if pd.api.types.is_string_dtype(theirs[name])}
    pd.testing.assert_frame_equal(ours[same], theirs[same].astype(as_held))


SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 30)), max_size=12)


CALLS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 4), st.integers(0, 9)), max_size=12)


@examples(60)
@given(SPANS, CALLS)
def test_projection_equals_the_definition_word_by_word(spans, calls):
    """Ranges that overlap in any way, calls that may contain each other, against a plain loop."""
    nodes = frame_of(
        "nodes",
        [
            {
                "node_id": i,
                "capture_id": 0,
                "name": "r",
                "process_id": 1,
                "thread_id": t,
                "start_ns": min(a, b),
                "end_ns": max(a, b),
                "span_kind": "start_end",
                "source_row_id": i + 100,
            }
            for i, (t, a, b) in enumerate(spans)
        ],
    )
    kernels = frame_of(
        "kernels",
        [
            {
                "kernel_id": i,
                "capture_id": 0,
                "process_id": 1,
                "correlation_id": i,
                "launch_thread_id": t,
                "launch_start_ns": s,
                "launch_end_ns": s + length,
                "start_ns": 100 + g,
                "end_ns": 105 + g,
            }
            for i, (t, s, length, g) in enumerate(calls)
        ],
    )
    expected = []
    for i, (thread, a, b) in enumerate(spans):
        low, high = min(a, b), max(a, b)
        inside = [c for c in calls if c[0] == thread and low <= c[1] and c[1] + c[2] <= high]
        if inside:
            first, last = min(100 + c[3] for c in inside), max(105 + c[3] for c in inside)
            expected.append((first, -(last - first), i + 100, len(inside)))
    got = official.data(analysis_of(nodes, kernels))
    rows = list(zip(got["Projected Start"], -got["Projected Duration"], got["RangeId"], got["NumGPUOps"]))
    assert rows == sorted(expected)


def test_it_is_arrow_all_the_way(tmp_path):
    path = tmp_path / "t.parquet"
    official.write(small_analysis(), path)
    assert pyarrow.parquet.read_table(path).schema.field("ParentId").type == pa.float64()
