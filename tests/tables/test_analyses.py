"""A1…A15 on analyses small enough to add up by hand, and on everything that can be missing."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import frame_of, small_analysis
from hypothesis import given
from hypothesis import strategies as st
from paper.data import compute_all
from properties import examples

from xsp_post.base.errors import UsageError
from xsp_post.model import schemas
from xsp_post.model.results import Analysis
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.catalogue import ANALYSES, find, why_empty

US = 1000


def rows(table: pd.DataFrame, *columns: str) -> list[tuple]:
    return list(table[list(columns)].itertuples(index=False, name=None))


@pytest.fixture
def small() -> Analysis:
    return small_analysis(iterations=3)


@pytest.fixture
def tables(small) -> dict[str, pd.DataFrame]:
    return compute_all(small)[0]


def test_every_table_has_exactly_its_columns(tables):
    assert set(tables) == {name for step in ANALYSES for name in step.names}
    for name, table in tables.items():
        assert list(table.columns) == schemas.column_names(name)
        for column in schemas.TABLES[name].columns:
            if column.dtype != "str":
                assert str(table[column.name].dtype) == column.dtype, (name, column.name)
        json.loads(table.to_json(orient="records"))


def test_each_latency_is_from_the_run_of_its_level(small, tables):
    case = tables["cases"].iloc[0]
    assert (case["model_level"], case["layer_level"], case["kernel_level"]) == ("M", "M/L", "M/L/G")
    m = small.frames["iterations"].query("capture_id == 0 and not is_warmup")["latency_ns"]
    assert tables["a01"]["latency_ns"].tolist() == [m.mean()]
    assert tables["a01"]["sample_count"].tolist() == [3]  # the warm-up is left out
    ml = small.frames["layers"].query("capture_id == 1 and layer_index == 1 and iteration_index > 0")["latency_ns"]
    assert tables["a02"]["latency_ns"].iloc[0] == ml.mean()


def test_no_interval_of_a_latency_reaches_below_zero(small):
    iterations = small.frames["iterations"]
    iterations.loc[iterations["capture_id"] == 0, "latency_ns"] = [1, 1000, 2, 3]
    a01 = compute_all(small)[0]["a01"].iloc[0]
    assert a01["ci_low_latency_ns"] == 0 and a01["ci_high_latency_ns"] > 2 * a01["latency_ns"]


def test_a01_throughput(tables):
    a01 = tables["a01"].iloc[0]
    assert a01["throughput_inputs_per_s"] == pytest.approx(8 / (a01["latency_ns"] * 1e-9))
    assert a01["latency_per_input_ns"] == a01["latency_ns"] / 8
    assert not a01["is_optimal"] and np.isnan(a01["throughput_gain_ratio"])


def test_a05_to_a07_share_over_all_layers(tables):
    assert rows(tables["a05"], "layer_type", "layer_count") == [("Conv2d", 1), ("ReLU", 1), ("Linear", 1)]
    assert tables["a05"]["count_ratio"].sum() == pytest.approx(1)
    assert tables["a06"]["latency_ratio"].sum() == pytest.approx(1)
    assert tables["a06"]["latency_ns"].is_monotonic_decreasing
    assert tables["a07"].empty and tables["a04"].empty  # the helper records no allocations


def test_a08_is_one_execution_in_launch_order(tables):
    expected = [
        ("implicit_gemm_128x64", 1, 100.0),
        ("bias_add", 1, 10.0),
        ("vectorized_elementwise", 2, 20.0),
        ("ampere_sgemm_32x32", 3, 50.0),
        ("reduce_kernel", -1, 5.0),
    ]
    found = tables["a08"].assign(us=tables["a08"]["latency_ns"] / US)
    assert rows(found, "name", "layer_index", "us") == expected
    assert found["kernel_index"].tolist() == [1, 2, 3, 4, 5]
    assert found["sample_count"].tolist() == [3] * 5
    assert found["layer_name"].tolist() == ["conv1", "conv1", "layer1.0.relu", "fc", ""]
    assert found["bound"].tolist() == ["unknown"] * 5


def test_a10_a11_a15_add_up_what_a08_lists(tables):
    total = tables["a08"]["latency_ns"].sum()
    assert tables["a10"]["latency_ns"].sum() == total == tables["a15"]["kernel_latency_ns"].iloc[0]
    assert tables["a10"]["kernel_latency_ratio"].sum() == pytest.approx(1)
    assert rows(tables["a11"], "kernel_latency_ns", "kernel_count") == [(110e3, 2), (20e3, 1), (50e3, 1)]
    assert tables["a11"]["kernel_latency_ns"].sum() == total - 5 * US  # reduce_kernel belongs to no layer
    a15 = tables["a15"].iloc[0]
    assert (a15["kernel_count"], a15["unique_kernel_count"]) == (5, 5)
    assert a15["gpu_latency_ratio"] == pytest.approx(total / a15["model_latency_ns"])


def test_a13_is_negative_and_says_so(small, tables):
    _, findings = compute_all(small)
    a13 = tables["a13"]
    assert (a13["non_gpu_by_sum_ns"] == a13["layer_latency_ns"] - a13["kernel_latency_ns"]).all()
    assert (a13["non_gpu_by_union_ns"] == a13["layer_latency_ns"] - a13["busy_ns"]).all()
    assert a13["is_negative"].all() and (a13["non_gpu_by_sum_ns"] < 0).all()  # asynchronous ranges: never clamped
    assert "negative-non-gpu" in {f.code for f in findings}


def test_kernels_outside_iterations_are_left_out_with_a_finding(small):
    _, findings = compute_all(small)
    (found,) = [f for f in findings if f.code == "kernels-outside-iterations"]
    assert found.count == 2 and found.example == "outside_every_range"


def test_dominant_kernels_and_stages(tables):
    assert rows(tables["dominant_kernels"], "layer_index", "name") == [
        (1, "implicit_gemm_128x64"),
        (2, "vectorized_elementwise"),
        (3, "ampere_sgemm_32x32"),
    ]
    assert tables["dominant_kernels"]["latency_ratio"].tolist() == pytest.approx([100 / 110, 1, 1])
    assert tables["stages"]["layer_count"].tolist() == [1, 1, 1]
    assert tables["stages"]["is_dominant_latency"].tolist() == [True, False, False]
    assert not tables["stages"]["is_dominant_flop"].any()  # not measured: no third dominates


def test_summary(tables):
    summary = tables["workload_summary"].iloc[0]
    assert (summary["layer_count"], summary["kernel_count"]) == (3, 5)
    assert summary["layer_under_1ms_count"] == 3 and summary["kernel_under_1ms_count"] == 5
    layers = tables["a02"]
    share = layers["latency_ns"][layers["layer_type"] == "Conv2d"].sum() / layers["latency_ns"].sum()
    assert summary["convolution_latency_ratio"] == pytest.approx(share)


def test_analytic_flop_stand_in_for_counters(tables):
    assert tables["a14"]["counter_source"].tolist() == ["analytic"] * 3
    assert tables["a14"]["arithmetic_intensity_flop_per_byte"].tolist() == [100.0] * 3
    assert tables["a14"]["latency_ns"].tolist() == [110e3, 20e3, 50e3]  # of the kernels
    a15 = tables["a15"].iloc[0]
    assert a15["counter_source"] == "analytic" and a15["bound"] != "unknown"
    assert a15["total_flop"] == 3e9 and np.isnan(a15["dram_read_bytes"])  # counted from the model, not measured
    assert a15["arithmetic_throughput_flop_per_s"] == pytest.approx(3e9 / 185e-6)


# What can be missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "absent",
    [
        (),
        ("layers",),
        ("kernels",),
        ("iterations",),
        ("layers", "kernels"),
        ("iterations", "layers"),
        ("devices", "kernel_metrics"),
        ("iterations", "layers", "kernels"),
    ],
)
def test_any_table_may_be_missing_or_empty(absent):
    for remove in (
        lambda frames, name: frames.pop(name),
        lambda frames, name: frames.update({name: frames[name].iloc[:0]}),
    ):
        analysis = small_analysis()
        for name in absent:
            remove(analysis.frames, name)
        tables, _ = compute_all(analysis)
        for name, table in tables.items():
            assert list(table.columns) == schemas.column_names(name)


def test_host_ranges_only():
    tables, _ = compute_all(small_analysis(levels=("M/L",)))
    assert not tables["a02"].empty and not tables["a06"].empty and not tables["a01"].empty
    assert tables["a08"].empty and tables["a11"].empty and tables["a13"].empty
    assert tables["a15"]["counter_source"].tolist() == ["analytic"]


def test_kernels_only():
    analysis = small_analysis(levels=("M/L/G",))
    for name in ("iterations", "layers"):
        del analysis.frames[name]
    kernels = analysis.frames["kernels"]
    analysis.frames["kernels"] = kernels.assign(iteration_index=-1, layer_index=-1)
    tables, findings = compute_all(analysis)
    assert len(tables["a08"]) == len(kernels)  # the whole capture is the one execution
    assert tables["a10"]["latency_ns"].sum() == kernels["duration_ns"].sum()
    assert tables["a15"]["kernel_count"].tolist() == [len(kernels)]
    assert np.isnan(tables["a15"]["model_latency_ns"].iloc[0])
    assert tables["a10"]["latency_ratio"].isna().all() and tables["a02"].empty
    assert findings == []


def test_why_empty_names_what_to_record():
    host_only = small_analysis(levels=("M/L",))
    assert "no GPU kernels" in why_empty("a08", host_only)
    assert "no GPU kernels" in why_empty("A9", host_only)
    assert "allocator" in why_empty("A4", host_only)
    assert "--batch-size" in why_empty("optimal_batch", host_only)
    assert "no layer ranges" in why_empty("A2", small_analysis(levels=("M",)))
    assert "no model execution" in why_empty("a01", Analysis({}))
    assert why_empty("a02", host_only) == "" and why_empty("no such table", host_only) == ""
    assert "--peaks" in why_empty("roofs", host_only)
    assert "all ranks" in why_empty("ranks", host_only)


def test_find():
    assert {find(text) for text in ("A8", "a8", "a08", "A08", " a8 ")} == {"a08"}
    assert find("A15") == "a15" and find("stages") == "stages" and find("workload_summary") == "workload_summary"
    assert find("A16") == "" and find("") == "" and find("a") == ""


def test_unknown_choices_are_refused():
    with pytest.raises(UsageError, match="fp33"):
        compute_all(small_analysis(), roof="fp33")
    with pytest.raises(UsageError, match="median"):
        Options(optimal_policy="median")


# Invariants ------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c.d"]),
            st.lists(st.tuples(st.sampled_from(["k1", "k2"]), st.integers(1, 10**6)), max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 4),
    st.randoms(),
)
@examples(12)
def test_tables_agree_whatever_the_model_and_the_order_of_rows(layers, iterations, random):
    named = [(f"{path}{i}", "Linear", kernels) for i, (path, kernels) in enumerate(layers)]
    analysis = small_analysis(layers=named, iterations=iterations)
    tables, _ = compute_all(analysis)
    total = sum(d for _, kernels in layers for _, d in kernels) + 5 * US
    assert tables["a08"]["latency_ns"].sum() == tables["a10"]["latency_ns"].sum() == total
    assert tables["a15"]["kernel_latency_ns"].iloc[0] == total
    assert tables["a11"]["kernel_latency_ns"].sum() == total - 5 * US
    assert tables["a10"]["kernel_count"].sum() == len(tables["a08"]) == tables["a15"]["kernel_count"].iloc[0]
    assert tables["a06"]["latency_ratio"].sum() == pytest.approx(1)
    assert tables["stages"]["layer_count"].sum() == len(layers) == len(tables["a02"])

    shuffled = dict(analysis.frames)
    for name in ("layers", "kernels"):
        order = list(range(len(shuffled[name])))
        random.shuffle(order)
        shuffled[name] = shuffled[name].iloc[order]
    again, _ = compute_all(Analysis(shuffled))
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_categorical=False)


def test_text_columns_may_be_plain_strings(small, tables):
    plain = {
        name: frame.apply(lambda c: c.astype(object) if isinstance(c.dtype, pd.CategoricalDtype) else c)
        for name, frame in small.frames.items()
    }
    again, _ = compute_all(Analysis(plain))
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_dtype=False, check_categorical=False)


def test_hostile_names_come_through_unchanged():
    name = "</script><script>alert(1)</script>\x00\u202e" + "x" * 10_000
    tables, _ = compute_all(small_analysis(layers=[(name, name, [(name, 5)])]))
    assert tables["a08"]["name"].iloc[0] == name
    assert tables["a06"]["layer_type"].iloc[0] == name


def test_a_million_kernels_keep_the_longest_in_a08():
    count = 1000
    kernels = frame_of(
        "kernels",
        [
            {
                "capture_id": 0,
                "kernel_id": i,
                "name": f"k{i % 7}",
                "short_name": "k",
                "duration_ns": i + 1,
                "start_ns": i,
                "launch_start_ns": -1,
            }
            for i in range(count)
        ],
    )
    captures = frame_of("captures", [{"capture_id": 0, "level": "M/L/G"}])
    tables, findings = compute_all(
        Analysis({"kernels": kernels, "captures": captures}), kernel_row_limit=100, kernel_row_keep=10
    )
    assert tables["a08"]["latency_ns"].tolist() == list(range(count - 9, count + 1))
    assert tables["a15"]["kernel_count"].tolist() == [count]
    assert tables["a10"]["kernel_count"].sum() == count
    assert [(f.code, f.count) for f in findings] == [("kernel-table-cut", count - 10)]


def test_marks_that_cover_too_little_of_the_model_give_no_verdict(root):
    """The layers of the example with their marks; then as if nothing were known of the residual additions."""
    from paper.data import compute_all

    from xsp_post.pipeline import analyze

    analysis = analyze([root / "examples" / "resnet50_generated.sqlite"])
    whole = analysis.frame("a15").iloc[0]
    assert whole["counter_coverage_ratio"] == pytest.approx(1) and whole["bound"] == "memory"
    layers = analysis.frame("layers")
    is_addition = layers["layer_type"].astype(str).eq("Add")
    partial = layers.assign(analytic_bytes=layers["analytic_bytes"].mask(is_addition))
    tables, _ = compute_all(Analysis({**analysis.frames, "layers": partial}))
    row = tables["a15"].iloc[0]
    assert row["counter_coverage_ratio"] == pytest.approx(0.881, abs=1e-3)
    assert row["bound"] == "unknown"
    assert whole["arithmetic_intensity_flop_per_byte"] < row["arithmetic_intensity_flop_per_byte"]
