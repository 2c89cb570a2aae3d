"""``counter_join``: every step, against a timing run whose counters are known by construction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.counters.join import STEPS, tables
from xsp_post.model.counters import ACTION_DTYPES, DURATION, PATH_SEPARATOR, QUANTITIES, CounterReport
from xsp_post.model.results import empty_table

LAYERS = ("conv1:Conv2d", "bn1:BatchNorm2d", "fc:Linear")
Launch = tuple[str, str]  # layer, kernel


def join(kernels, nodes, reports, devices=None, captures=None):
    devices = empty_table("devices") if devices is None else devices
    captures = empty_table("captures") if captures is None else captures
    made, found = tables(kernels, nodes, reports, devices, captures)
    return made["kernel_metrics"], found, made["counter_join"]


def analysis(iterations: list[list[Launch]], *, phase: str = "model") -> tuple[pd.DataFrame, pd.DataFrame]:
    """kernels and nodes of a run in which each iteration launches these kernels in these layers."""
    nodes = [(0, -1, 0, "CAPTURE", "[capture]", "")]
    kernels = []
    for number, launches in enumerate(iterations):
        model = len(nodes)
        nodes.append((model, 0, 1, "MODEL", f"{phase}:forward", "xsp"))
        library = {}
        for layer in dict.fromkeys(layer for layer, _ in launches):
            node = len(nodes)
            nodes.append((node, model, 2, "LAYER", layer, "xsp"))
            nodes.append((node + 1, node, 3, "LIBRARY", "cudnnConvolutionForward", "cuDNN"))
            library[layer] = node + 1
        for layer, kernel in launches:
            start = 1000 * len(kernels)
            kernels.append((len(kernels), 0, library[layer], number, kernel, kernel.split("<")[0], start, start + 10))
    node_frame = pd.DataFrame(nodes, columns=["node_id", "parent_id", "depth", "level", "folded_name", "domain"])
    frame = pd.DataFrame(
        kernels,
        columns=["kernel_id", "capture_id", "node_id", "iteration_index", "name", "short_name", "launch_start_ns",
                 "start_ns"],
    )  # fmt: skip
    grid = {f"{key}_{axis}": 1 for key in ("grid", "block") for axis in "xyz"}
    return (
        frame.assign(duration_ns=100, correlation_id=frame["kernel_id"] + 1, **grid),
        node_frame.assign(capture_id=0, is_inferred=False),
    )


def report(launches: list[Launch], values: list[float] | None = None, **more: object) -> CounterReport:
    """Counters of these launches; the value of each is its place unless given."""
    count = len(launches)
    columns: dict[str, object] = {
        "name": [kernel for _, kernel in launches],
        "short_name": [kernel.split("<")[0] for _, kernel in launches],
        "range_path": [f"model:forward#7{PATH_SEPARATOR}{layer}#0" if layer else "" for layer, _ in launches],
        "domain": ["xsp" if layer else "" for layer, _ in launches],
        "workload_type": ["kernel"] * count,
        "gpu_name": ["GPU A"] * count,
        **more,
    }  # fmt: skip
    for name, dtype in ACTION_DTYPES.items():
        unknown = 1 if name.startswith(("grid", "block")) else -1
        columns.setdefault(name, [""] * count if dtype == "object" else [unknown] * count)
    actions = pd.DataFrame({n: pd.Series(columns[n], dtype=d) for n, d in ACTION_DTYPES.items()})
    metrics = pd.DataFrame({
        "action_id": np.arange(count), "metric_name": "dram__bytes_read.sum",
        "value": np.arange(count, dtype=float) if values is None else values, "unit": "byte",
    }).astype({"metric_name": "category", "unit": "category"})  # fmt: skip
    return CounterReport("r.ncu-rep", "ncu", actions, metrics)


def read_bytes(metrics: pd.DataFrame, count: int) -> list[float]:
    rows = metrics[metrics["metric_name"] == "dram_read_bytes"].set_index("kernel_id")["value"]
    return rows.reindex(range(count)).tolist()


def used(steps: pd.DataFrame) -> dict[str, int]:
    return {step: count for step, count in zip(steps["step"], steps["kernel_count"]) if count}


RUN: list[Launch] = [
    (LAYERS[0], "implicit_gemm<int>"), (LAYERS[0], "add"), (LAYERS[1], "norm"), (LAYERS[2], "gemm"), (LAYERS[2], "add"),
]  # fmt: skip


def test_equal_runs_match_by_path_and_order() -> None:
    kernels, nodes = analysis([RUN, RUN])
    metrics, findings, steps = join(kernels, nodes, [report(RUN)])
    assert read_bytes(metrics, 10) == [0, 1, 2, 3, 4] * 2
    assert used(steps) == {"path and order": 10}
    assert findings == []
    assert set(metrics["source"]) == {"dram__bytes_read.sum; matched by path and order"}
    assert steps["kernel_ns"].sum() == 1000


def test_warm_up_has_the_counters_of_the_measured_iteration() -> None:
    kernels, nodes = analysis([RUN], phase="warmup")
    assert used(join(kernels, nodes, [report(RUN)])[2]) == {"path and order": 5}


def test_several_profiled_iterations_are_averaged() -> None:
    kernels, nodes = analysis([RUN])
    metrics, _, steps = join(kernels, nodes, [report(RUN + RUN)])
    assert read_bytes(metrics, 5) == [2.5, 3.5, 4.5, 5.5, 6.5]
    assert metrics["source"].astype(str).str.contains("mean of several").all()
    assert used(steps) == {"path and order": 5}


def test_an_iteration_that_was_not_told_apart_repeats() -> None:
    kernels, nodes = analysis([RUN, RUN])
    kernels["iteration_index"] = -1
    assert read_bytes(join(kernels, nodes, [report(RUN)])[0], 10) == [0, 1, 2, 3, 4] * 2


def test_the_second_call_of_a_layer_is_not_the_first() -> None:
    """A defect of XSP's scripts: equal names of one layer shared their samples."""
    twice = [(LAYERS[0], "gemm"), (LAYERS[1], "norm"), (LAYERS[0], "gemm")]
    kernels, nodes = analysis([twice])
    assert read_bytes(join(kernels, nodes, [report(twice)])[0], 3) == [0, 1, 2]


def test_other_order_within_a_layer_matches_by_name() -> None:
    kernels, nodes = analysis([RUN])
    swapped = [RUN[1], RUN[0], *RUN[2:]]
    metrics, _, steps = join(kernels, nodes, [report(swapped)])
    assert read_bytes(metrics, 5) == [1, 0, 2, 3, 4]
    assert used(steps) == {"path and order": 3, "path and name": 2}


def test_a_count_that_differs_names_the_layer() -> None:
    kernels, nodes = analysis([[*RUN, (LAYERS[2], "add"), (LAYERS[2], "add")]])
    raised = {finding.code: finding.example for finding in join(kernels, nodes, [report(RUN)])[1]}
    assert raised["counters-counts-differ"] == "fc:Linear: 4 kernels, 2 results"  # not two times two
    kernels, nodes = analysis([[*RUN, (LAYERS[2], "add")]])
    metrics, findings, steps = join(kernels, nodes, [report(RUN)])
    raised = {finding.code: finding.example for finding in findings}
    assert raised["counters-counts-differ"] == "fc:Linear: 3 kernels, 2 results"
    assert read_bytes(metrics, 5) == [0, 1, 2, 3, 4]
    assert used(steps)["path and order"] == 3 and sum(used(steps).values()) == 6


def test_without_ranges_names_in_order() -> None:
    kernels, nodes = analysis([RUN, RUN])
    metrics, _, steps = join(kernels, nodes, [report([("", kernel) for _, kernel in RUN])])
    assert read_bytes(metrics, 10) == [0, 1, 2, 3, 4] * 2
    assert used(steps) == {"name and order": 10}


def test_too_few_results_give_means_and_say_so() -> None:
    kernels, nodes = analysis([[(LAYERS[0], "gemm")] * 4 + [(LAYERS[1], "other")]])
    kernels["grid_x"] = [1, 1, 1, 9, 1]
    few = report([("", "gemm"), ("", "gemm")], [10, 20])
    metrics, findings, steps = join(kernels, nodes, [few])
    assert read_bytes(metrics, 4) == [15, 15, 15, 15]
    assert used(steps) == {"name and launch dimensions": 3, "name": 1, "none": 1}
    raised = {finding.code: finding.count for finding in findings}
    assert raised["counters-averaged"] == 4 and raised["counters-kernels-without"] == 1
    assert sum(used(steps).values()) == len(kernels)


def test_one_result_never_stands_for_all_launches_of_a_name_unsaid() -> None:
    kernels, nodes = analysis([[(LAYERS[0], "gemm")] * 16])
    kernels["iteration_index"] = -1
    _, findings, steps = join(kernels, nodes, [report([("", "gemm")])])
    assert used(steps) == {"name and launch dimensions": 16}
    assert [finding.code for finding in findings] == ["counters-averaged"]


def test_without_launch_dimensions_names_are_enough() -> None:
    kernels, nodes = analysis([RUN])
    kernels[["grid_x", "block_x"]] = 0
    assert used(join(kernels, nodes, [report([("", kernel) for _, kernel in RUN])])[2]) == {"name and order": 5}


def test_reports_of_another_program_are_not_used() -> None:
    kernels, nodes = analysis([RUN])
    metrics, findings, steps = join(kernels, nodes, [report([("a", "b"), ("c", "d")])])
    assert metrics.empty and used(steps) == {"none": 5}
    assert [finding.code for finding in findings] == ["counters-of-another-program"]
    assert findings[0].severity == "error"


def test_counters_of_another_gpu_are_said() -> None:
    kernels, nodes = analysis([RUN])
    devices = pd.DataFrame({"capture_id": [0], "gpu_name": ["GPU B"]})
    found = join(kernels, nodes, [report(RUN)], devices=devices)[1]
    assert [f.code for f in found] == ["counters-of-another-gpu"] and "GPU A" in found[0].example
    assert join(kernels, nodes, [report(RUN)], devices=devices.assign(gpu_name="GPU A"))[1] == []


def test_correlation_ids_go_before_everything() -> None:
    kernels, nodes = analysis([[(LAYERS[0], "gemm")] * 3])
    known = report([("", "gemm")] * 3, [7, 8, 9], correlation_id=[3, 2, 1])
    metrics, _, steps = join(kernels, nodes, [known])
    assert read_bytes(metrics, 3) == [9, 8, 7] and used(steps) == {"correlation": 3}


def test_demanglers_write_template_arguments_differently() -> None:
    kernels, nodes = analysis([[("a", "void f<4, true, 8ul>(int)"), ("a", "void f<5, true, 8ul>(int)")]])
    other = report([("", "void f<(int)5, (bool)1, (unsigned long)8>(int)"), ("", "f<(int)4, (bool)1, 8>(int)")])
    assert read_bytes(join(kernels, nodes, [other])[0], 2) == [1, 0]


def test_reports_per_metric_set_complement_each_other() -> None:
    kernels, nodes = analysis([RUN])
    fp32, tensor = report(RUN), report(RUN)
    sass = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    parts = [pd.DataFrame({"action_id": range(5), "metric_name": sass.format(op), "value": 1.0, "unit": "inst"})
             for op in ("fadd", "fmul", "ffma")]  # fmt: skip
    fp32.metrics = pd.concat(parts).astype({"metric_name": "category", "unit": "category"})
    tensor.metrics = tensor.metrics.assign(metric_name="sm__ops_path_tensor_src_fp16_dst_fp32.sum", value=100.0)
    tensor.metrics = tensor.metrics.astype({"metric_name": "category"})
    metrics = join(kernels, nodes, [fp32, tensor])[0]
    wide = metrics.pivot(index="kernel_id", columns="metric_name", values="value")
    assert wide["flop"].tolist() == [104.0] * 5 and wide["flop_fp32"].tolist() == [4.0] * 5
    assert not metrics.duplicated(["kernel_id", "metric_name"]).any()


def test_extra_metrics_are_kept_under_their_own_name() -> None:
    kernels, nodes = analysis([RUN])
    odd = report(RUN)
    odd.metrics = odd.metrics.assign(metric_name="odd__metric.avg").astype({"metric_name": "category"})
    assert set(join(kernels, nodes, [odd])[0]["metric_name"]) == {"odd__metric.avg"}


def test_ranges_and_whole_graphs_are_left_out() -> None:
    kernels, nodes = analysis([RUN])
    graph = report(RUN, workload_type=["graph"] * 5)
    metrics, _, steps = join(kernels, nodes, [graph])
    assert metrics.empty and used(steps) == {"none": 5}


def test_nothing_to_join() -> None:
    kernels, nodes = analysis([RUN])
    metrics, findings, steps = join(kernels, nodes, [])
    assert metrics.empty and findings == [] and steps.empty
    metrics, findings, steps = join(kernels.iloc[:0], nodes.iloc[:0], [report(RUN)])
    assert metrics.empty and steps.empty


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from(LAYERS), st.sampled_from(["a", "b", "c<1>"])), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_the_same_sequence_always_finds_its_own(launches: list[Launch], iterations: int, profiled: int) -> None:
    kernels, nodes = analysis([launches] * iterations)
    values = [float(place) for place in range(len(launches))] * profiled
    metrics, _, steps = join(kernels, nodes, [report(launches * profiled, values)])
    # with p profiled and i timed iterations every kernel still gets the value of its own place
    assert read_bytes(metrics, len(kernels)) == [float(p) for p in range(len(launches))] * iterations
    assert used(steps) == {"path and order": len(kernels)}


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from(LAYERS), st.sampled_from("abc")), max_size=10),
    st.lists(st.tuples(st.sampled_from(LAYERS), st.sampled_from("abcd")), min_size=1, max_size=10),
)
def test_every_kernel_is_counted_at_one_step(timed: list[Launch], profiled: list[Launch]) -> None:
    kernels, nodes = analysis([timed, timed[:3]])
    metrics, _, steps = join(kernels, nodes, [report(profiled)])
    assert steps["kernel_count"].sum() == len(kernels)
    assert steps["kernel_ns"].sum() == kernels["duration_ns"].sum()
    assert not metrics.duplicated(["kernel_id", "metric_name"]).any()
    if len(steps):
        served = len(kernels) - int(steps.set_index("step").loc["none", "kernel_count"])
        assert metrics["kernel_id"].nunique() == served
    # a kernel only ever gets counters of its own name
    own = metrics.merge(kernels, on="kernel_id")
    possible = pd.DataFrame({"short_name": [k for _, k in profiled], "value": np.arange(len(profiled))})
    bounds = possible.groupby("short_name")["value"].agg(["min", "max"])
    assert own["short_name"].isin(bounds.index).all()
    assert (own["value"] >= bounds.loc[own["short_name"], "min"].to_numpy()).all()


def test_a_real_report_joins_a_capture_of_its_program(captures: Path) -> None:
    """No public pair exists: the capture is built from the report's own kernels."""
    pytest.importorskip("ncu_report")
    from xsp_post.ingest.ncu import read_ncu

    counters = read_ncu(captures / "ncu" / "cutlass_int8_nvtx_a100_2024.1.ncu-rep")
    launches = list(zip(counters.actions["range_path"], counters.actions["name"]))
    kernels, nodes = analysis([launches])
    nodes = nodes.assign(domain="")
    nodes.loc[nodes["level"] == "MODEL", "domain"] = "other"
    metrics, _, steps = join(kernels, nodes[nodes["level"] != "LIBRARY"], [counters])
    assert steps["kernel_count"].sum() == 3
    assert {"dram_read_bytes", "occupancy_ratio", "peak_dram_bytes_per_s"} <= set(metrics["metric_name"])
    assert len(STEPS) == len(steps)


@pytest.mark.parametrize(
    "name", ["cutlass_int8_nvtx_a100_2024.1", "sgemm_roofline_a10g_2023.1", "graph_gb200_2025.3", "julia_a40_2022.1"]
)
def test_metric_sets_of_a_real_report_join_to_what_the_whole_report_gives(captures: Path, name: str) -> None:
    pytest.importorskip("ncu_report")
    from xsp_post.ingest.ncu import read_ncu
    from xsp_post.ingest.run_facts import one_per_program

    whole = read_ncu(captures / "ncu" / f"{name}.ncu-rep")
    names = whole.metrics["metric_name"].astype(str)
    is_occupancy = names.str.contains("warps_active|maximum_warps|occupancy")
    is_memory = names.str.startswith(("dram__", "lts__"))
    sets = {"flops": ~is_occupancy & ~is_memory, "memory": is_memory | (names == DURATION), "occupancy": is_occupancy}
    parts = [
        replace(whole, report_name=f"counters_{which}.ncu-rep", metrics=whole.metrics[rows].assign(
            metric_name=lambda frame: frame["metric_name"].cat.remove_unused_categories()))
        for which, rows in sets.items()
    ]  # fmt: skip
    assert one_per_program(parts) == parts[:1] and len(one_per_program([whole, whole])) == 2
    kernels, nodes = analysis([list(zip(whole.actions["range_path"], whole.actions["name"]))] * 2)
    columns = ["kernel_id", "metric_name", "value", "unit", "source"]
    as_text = {column: object for column in ("metric_name", "unit", "source")}
    one, many = (
        join(kernels, nodes, reports)[0]
        .astype(as_text)
        .loc[lambda rows: rows["metric_name"].isin(QUANTITIES)]
        .sort_values(columns[:2], ignore_index=True)
        for reports in ([whole], parts)
    )
    assert len(one) > 0 and not many.duplicated(columns[:2]).any()
    pd.testing.assert_frame_equal(one[columns], many[columns])
