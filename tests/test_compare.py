"""Comparisons: equal runs show nothing, changes are named and ranked, structure is separated from time, bars for CI."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from helpers import called, compare_samples
from hypothesis import given
from hypothesis import strategies as st
from recorded import analyzed

from xsp_post.base.errors import BarNotMetError, UsageError
from xsp_post.compare import check_bars, compare, parse_bar
from xsp_post.compare.clock import clock_statements, common_factor
from xsp_post.compare.differences import differences, holm
from xsp_post.model.results import Analysis
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import analyze
from xsp_post.reports.compare_page import render
from xsp_post.reports.compare_text import comparison_markdown
from xsp_post.reports.draw import draw
from xsp_post.reports.page_rows import CHARTS
from xsp_post.reports.quantities import comparison_quantities

LAYERS, ITERATIONS = 12, 10
SHOWN = {"slower", "faster", "appeared", "vanished", "changed kernel", "more", "less"}
ALL = ("compare_models", "compare_layers", "compare_kernels")


def run(
    seed: int,
    *,
    repeats: int = 3,
    slow: dict[int, float] | None = None,
    scale: float = 1.0,
    kernels: dict[int, list[str]] | None = None,
    layers: list[int] | None = None,
    run_spread: float = 0.02,
    paths: dict[int, str] | None = None,
    iterations: int = ITERATIONS,
    model_scale: float = 1.0,
) -> Analysis:
    """Results of a run: per capture a factor of its own (run-to-run spread), per iteration noise of 3 %.

    ``slow``: layer → factor; ``kernels``: layer → kernel names; ``layers``: which layers there are.
    """
    rng = np.random.default_rng(seed)
    rows: dict[str, list[dict]] = {name: [] for name in ("captures", "iterations", "layers", "kernels", "nodes")}
    for capture in range(repeats):
        factor = scale * rng.lognormal(0, run_spread)
        rows["captures"].append(
            {
                "capture_id": capture,
                "level": "M/L/G",
                "workload_name": "net",
                "batch_size": 4,
                "gpu_name": "NVIDIA A100",
                "kernel_count": 1,
                "framework": "torch 2.8",
            }
        )
        for iteration in range(iterations):
            at, total = iteration * 10**9, 0.0
            for layer in layers or range(LAYERS):
                latency = 1e5 * (1 + layer) * factor * rng.lognormal(0, 0.03) * (slow or {}).get(layer, 1.0)
                names = (kernels or {}).get(layer, [f"void kernel_{chr(97 + layer)}<float>(int)"])
                total += latency
                rows["layers"].append(
                    {
                        "capture_id": capture,
                        "iteration_index": iteration,
                        "layer_index": layer + 1,
                        "layer_path": (paths or {}).get(layer, f"layers.{layer}:Linear"),
                        "layer_type": "Linear",
                        "duration_ns": int(latency * 0.2),
                        "latency_ns": int(latency),
                        "latency_source": "projection",
                    }
                )
                for k, name in enumerate(names):
                    rows["kernels"].append(
                        {
                            "capture_id": capture,
                            "kernel_id": len(rows["kernels"]),
                            "iteration_index": iteration,
                            "layer_index": layer + 1,
                            "name": name,
                            "short_name": name,
                            "process_id": 1,
                            "duration_ns": int(latency / len(names)),
                            "start_ns": at + layer * 10**6 + k,
                            "launch_start_ns": at + layer * 10**6 + k,
                        }
                    )
            rows["iterations"].append(
                {
                    "capture_id": capture,
                    "iteration_index": iteration,
                    "batch_size": 4,
                    "phase": "forward",
                    "latency_ns": int(total * 1.1 * model_scale),
                    "busy_ns": int(total),
                }
            )
    frames = {
        name: frame_of(name, rows.get(name, []))
        for name in (*rows, "memory_operations", "devices", "findings", "kernel_metrics")
    }
    return Analysis(frames)


def frame_of(name: str, rows: list[dict]) -> pd.DataFrame:
    blank = {"int64": -1, "float64": np.nan, "bool": False, "str": ""}
    return pd.DataFrame(
        {
            c.name: pd.Series(
                [row.get(c.name, blank[c.dtype]) for row in rows], dtype="object" if c.dtype == "str" else c.dtype
            )
            for c in TABLES[name].columns
        }
    )


def shown(comparison) -> int:
    return sum(int(comparison.frame(name)["change"].isin(SHOWN).sum()) for name in ALL)


# -- statistics ---------------------------------------------------------------------------------------------


def test_holm_on_a_worked_example():
    """Holm (1979): 0.01, 0.04, 0.03, 0.005 → 0.03, 0.06, 0.06, 0.02."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, np.nan, 0.9]), [1.0, np.nan, 1.0])
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(p):
    adjusted = holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(np.array(p) * len(p), 1) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


def test_repeats_give_welch_on_the_captures_means():
    """With repeats the interval is as wide as Welch's on the logarithm of one mean per capture."""
    rng = np.random.default_rng(3)
    means = [1e6 * rng.lognormal(0, 0.2, 4) for _ in range(2)]
    values = np.concatenate([np.repeat(m, 10) for m in means])
    sides = np.repeat([0, 1], 40)
    captures = np.tile(np.repeat(np.arange(4), 10), 2)
    row = differences(values, np.zeros(80, np.int64), sides, captures, 1, 0.0, 0.0).iloc[0]
    expected = compare_samples(np.log(means[0]), np.log(means[1]), trim_ratio=0.0)
    assert 2 * row["half"] == pytest.approx(expected.ci_high - expected.ci_low)
    assert np.log((row["ci_high"] + row["base"]) / (row["ci_low"] + row["base"])) == pytest.approx(2 * row["half"])
    assert (row["base_count"], row["other_count"], row["interval_over"]) == (40, 40, "captures")


def test_single_values_have_no_interval():
    nothing = np.zeros(2, np.int64)
    row = differences(np.array([5.0, 9.0]), nothing, np.array([0, 1]), nothing, 1, 0.02).iloc[0]
    assert row["difference"] == 4 and np.isnan(row["p_value"]) and np.isnan(row["ci_low"])


# -- equal runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats, run_spread, tries", [(3, 0.02, 6), (3, 0.2, 20), (1, 0.02, 6)])
def test_equal_runs_show_no_difference_in_19_of_20_tries(repeats, run_spread, tries):
    alarms = sum(
        shown(
            compare(
                run(2 * i, repeats=repeats, run_spread=run_spread),
                run(2 * i + 1, repeats=repeats, run_spread=run_spread),
            )
        )
        > 0
        for i in range(tries)
    )
    assert alarms <= tries // 20


def test_same_results_twice_are_equal():
    one = run(1)
    comparison = compare(one, one)
    assert shown(comparison) == 0
    summary = comparison.frame("compare_summary")
    assert not summary["is_difference"].any()
    assert (
        summary["statement"][0].startswith("The same: ") and ", 1.00 times as long (0.0 %, " in summary["statement"][0]
    )


# -- differences --------------------------------------------------------------------------------------------


def test_slowed_layer_is_named_first():
    for repeats in (1, 3):
        comparison = compare(run(1, repeats=repeats), run(2, repeats=repeats, slow={4: 2.0}))
        first = comparison.frame("compare_layers").iloc[0]
        assert (first["layer_path"], first["change"]) == ("layers.4:Linear", "slower")
        assert first["difference_ratio"] == pytest.approx(1.0, abs=0.15)
        assert first["ci_low_difference_ns"] < first["difference_ns"] < first["ci_high_difference_ns"]
        for name in ("compare_layers", "compare_kernels", "compare_models"):  # one capture a side is no measure of runs
            table = comparison.frame(name)
            assert table["is_significant"].tolist() == ((table["adjusted_p_value"] < 0.05) & (repeats > 1)).tolist()
        changes = comparison.frame("compare_layers")["change"].value_counts()
        assert changes.get("slower") <= 2  # latency and, beside it, host time
        assert comparison.frame("compare_kernels").iloc[0]["name"] == "kernel_e"
        assert "layers.4:Linear" in " ".join(comparison.frame("compare_summary")["statement"])


def test_faster_run_has_the_other_sign():
    comparison = compare(run(1), run(2, scale=0.5))
    model = comparison.frame("compare_models").set_index("quantity")
    assert model.loc["model_latency", "change"] == "less"
    assert model.loc["kernel_count", "change"] == "equal"
    assert (comparison.frame("compare_layers").query("measure == 'latency'")["change"] == "faster").all()


def test_host_time_is_compared_where_the_device_runs_behind():
    layers = compare(run(1), run(2)).frame("compare_layers")
    assert sorted(layers["measure"].unique()) == ["host_time", "latency"]
    assert len(layers) == 2 * LAYERS + 1  # and what lies outside of layers


def test_time_between_layers_is_a_row_of_its_own():
    """A hook or glue code that got slower is in no layer."""
    first = compare(run(1), run(2, model_scale=1.5)).frame("compare_layers").iloc[0]
    assert (first["layer_path"], first["change"]) == ("[outside layers]", "slower")


def test_layers_and_kernels_that_appear_vanish_or_change():
    base = run(1, kernels={3: ["gemm_a", "relu"], 5: ["gemm", "bias"], 6: ["copy"]})
    other = run(2, kernels={3: ["gemm_b", "relu"], 5: ["gemm"], 6: ["copy", "extra"]}, layers=list(range(11)))
    comparison = compare(base, other)
    kernels = comparison.frame("compare_kernels").set_index("name")
    assert kernels.loc["gemm_a", ["change", "other_name"]].tolist() == ["changed kernel", "gemm_b"]
    assert kernels.loc["bias", "change"] == "vanished" and kernels.loc["extra", "change"] == "appeared"
    assert "gemm_b" not in kernels.index
    layers = comparison.frame("compare_layers").query("measure == 'latency'").set_index("layer_path")
    assert layers.loc["layers.11:Linear", "change"] == "vanished"
    assert layers["is_kernel_change"].to_dict() == {
        path: path in ("layers.3:Linear", "layers.5:Linear", "layers.6:Linear") for path in layers.index
    }
    assert comparison.frame("compare_models").set_index("quantity").loc["kernel_count", "change"] in ("less", "equal")


def test_a_helper_is_not_compared_with_the_kernel_that_does_the_work():
    """The library prepares with a short kernel of the same family, and then takes another way without it."""

    def of(seed: int, *kernels: tuple[str, int]) -> Analysis:
        made = run(seed, kernels={3: [name for name, _ in kernels]})
        rows, times = made.frame("kernels"), dict(kernels)
        rows["duration_ns"] = rows["name"].map(times).fillna(rows["duration_ns"]).astype("int64")
        return Analysis({name: rows if name == "kernels" else made.frame(name) for name in made.tables()})

    helped = of(1, ("gemm_offsets", 1_000), ("gemm_main", 900_000))
    kernels = compare(helped, of(2, ("gemm_alone", 800_000))).frame("compare_kernels").set_index("name")
    assert kernels.loc["gemm_main", ["change", "other_name"]].tolist() == ["changed kernel", "gemm_alone"]
    assert kernels.loc["gemm_offsets", "change"] == "vanished"
    # and where times are too far apart, the kernels do not do the same work
    kernels = compare(of(1, ("gemm_a", 1_000)), of(2, ("gemm_b", 900_000))).frame("compare_kernels").set_index("name")
    assert kernels.loc[["gemm_a", "gemm_b"], "change"].tolist() == ["vanished", "appeared"]


def test_layer_of_another_class_at_the_same_place_is_the_same_layer():
    comparison = compare(run(1), run(2, paths={4: "layers.4:FusedLinear"}, slow={4: 3.0}))
    layers = comparison.frame("compare_layers")
    assert (layers.iloc[0]["layer_path"], layers.iloc[0]["change"]) == ("layers.4:Linear", "slower")
    assert not layers["change"].isin(["appeared", "vanished"]).any()


def test_template_arguments_do_not_make_another_kernel():
    names = {layer: [f"void kernel_{chr(97 + layer)}<double>(int)"] for layer in range(LAYERS)}
    kernels = compare(run(1), run(2, kernels=names)).frame("compare_kernels")
    assert set(kernels["change"]) == {"no difference shown"} and len(kernels) == LAYERS


def test_what_one_side_did_not_record_has_not_vanished():
    bare = run(2)
    for name in ("kernels", "layers"):
        bare.frames[name] = bare.frames[name].iloc[:0]
    comparison = compare(run(1), bare)
    assert comparison.frame("compare_kernels").empty and comparison.frame("compare_layers").empty
    assert set(comparison.frame("compare_models")["quantity"]) <= {"model_latency", "gpu_busy"}


def test_single_iterations_are_not_comparable():
    comparison = compare(run(1, repeats=1, iterations=1), run(2, repeats=1, iterations=1, scale=3.0))
    assert (comparison.frame("compare_models").query("quantity == 'model_latency'")["change"] == "not comparable").all()


def test_every_table_has_the_columns_of_its_schema():
    empty = run(1, layers=[0]), run(2)
    for pair in ((run(1), run(2)), (run(1), run(2, repeats=1)), empty):
        for name, frame in compare(*pair).frames.items():
            assert list(frame.columns) == [c.name for c in TABLES[name].columns], name


# -- structure ----------------------------------------------------------------------------------------------


def test_natural_pair_differs_in_ranges_only(captures):
    """One workload recorded with and without ranges: 7,328 kernels each (captures/README)."""
    pair = [analyzed(captures / "nsys" / f"transformer_2.7b_a100_{name}.sqlite") for name in ("nvtx", "no_nvtx")]
    comparison = compare(*pair)
    summary = comparison.frame("compare_summary").set_index("subject")
    assert summary.loc["verdict", "statement"].startswith("The same: 841 ms → 841 ms an execution, 1.00 times")
    assert summary.loc["ranges only", "statement"] == (
        "The captures differ in their ranges only: the same 7,328 kernels ran, in the same order."
    )
    assert not summary.loc["kernels", "is_difference"] and not summary.loc["system", "is_difference"]
    assert summary.loc["ranges", "statement"].startswith("The base has 516 ranges")
    assert set(comparison.frame("compare_kernels")["change"]) == {"no difference shown"}
    assert comparison.frame("compare_kernels")["base_count"].sum() == 1832  # of an iteration
    assert shown(comparison) == 0


def write_export(path, names, ranges=1):
    builder = ExportBuilder()
    for i in range(ranges):
        builder.range(f"part {chr(97 + i)}", 10_000 * i, 10_000 * i + 9_000)
    for k, name in enumerate(names):
        builder.kernel(name, launch=(1_000 + 100 * k, 1_050 + 100 * k), run=(2_000 + 100 * k, 2_060 + 100 * k))
    builder.write(path)
    return analyze([path])


def test_order_and_set_of_kernels_are_told_apart(tmp_path):
    base = write_export(tmp_path / "a.sqlite", ["x", "y", "x"])
    swapped = write_export(tmp_path / "b.sqlite", ["y", "x", "x"])
    fewer = write_export(tmp_path / "c.sqlite", ["x", "y"])

    def says(other):
        return compare(base, other).frame("compare_summary").set_index("subject").loc["kernels", "statement"]

    assert says(base) == "The same 3 kernels in the same order, with the same launch dimensions."
    assert says(swapped) == "The same 3 kernels, in another order."
    assert says(fewer) == "3 kernels of 2 names in the base, 2 of 2 in the other; 2 names in both."


def test_copies_of_each_side_are_counted(tmp_path):
    def copied(name, *sizes):
        builder = ExportBuilder().kernel("x", launch=(0, 5), run=(10, 20))
        for k, size in enumerate(sizes, 1):
            builder.memcpy(size, launch=(100 * k, 100 * k + 5), run=(100 * k + 10, 100 * k + 20))
        return analyze([builder.write(tmp_path / name)])

    def says(base, other):
        return compare(base, other).frame("compare_summary").set_index("subject").loc["copies", "statement"]

    few, many = copied("a.sqlite", 1_000), copied("b.sqlite", 1_000, 500)
    assert says(few, few) == "The same 1 copies and sets, of the same bytes."
    assert says(few, many) == "Copies and sets: 1 (1,000 bytes) in the base, 2 (1,500 bytes) in the other."
    assert says(copied("c.sqlite"), copied("d.sqlite")) == "Neither capture has copies or sets of memory."


def test_captures_without_kernels_or_ranges(tmp_path):
    base = write_export(tmp_path / "a.sqlite", [], ranges=0)
    comparison = compare(base, base)
    statements = comparison.frame("compare_summary")["statement"].tolist()
    assert "Neither capture has kernels." in statements and "Neither capture has ranges." in statements
    assert not comparison.frame("compare_summary")["is_difference"].any()


# -- per unit of work ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def windows(captures):
    """Two windows of equal length on a longer run, before and after a change that slowed it (captures/MEANING)."""
    return compare(*(analyzed(captures / "nsys" / f"fsdp_2gpu_h100{name}.sqlite") for name in ("", "_after")))


def test_windows_are_compared_by_the_work_in_them(windows):
    totals = windows.frame("compare_totals").set_index("quantity")
    idle = totals.loc["idle", ["base_value", "other_value"]].to_numpy(float) / 1e6
    assert idle == pytest.approx([58.7, 104.4], abs=0.2)
    assert totals.loc["kernel_count", ["base_value", "other_value"]].tolist() == [4010, 3587]
    assert 0.08 < totals.loc["window", "difference_ratio"] < 0.15
    send = windows.frame("compare_names").set_index("name").loc["ncclDevKernel_SendRecv"]
    assert [round(send[c] / 1e3) for c in ("base_mean_ns", "other_mean_ns")] == [385, 544]
    others = windows.frame("compare_names").query("not is_communication")
    assert len(others) == 10 and np.allclose(others["other_mean_ns"], others["base_mean_ns"], rtol=0.02)
    verdict, evidence, regression = windows.frame("compare_summary")["statement"].iloc[:3]
    assert verdict.startswith("Slower: 300 ms → 336 ms for the same kernels, 1.12 times as long (+12.1 %, +2.6 % … +2")
    assert "In an equal window: 10.5 % fewer kernels" in evidence
    assert "385 µs → 544 µs" in evidence and "idle 58.9 ms → 104 ms (2 GPUs together, the whole recording)" in evidence
    # the table below has the same numbers
    assert "| idle | 58.9 ms | 104 ms | +77.4 % |" in comparison_markdown(windows, ("base", "other"))
    assert regression.startswith("Largest regression: ncclDevKernel_SendRecv")


def test_causes_sum_to_the_difference(windows):
    window = windows.frame("compare_totals").set_index("quantity").loc["window"]
    assert windows.frame("compare_causes")["difference_ns"].sum() == pytest.approx(window["difference_value"], abs=10)


def by_name(factors, communication=()):
    """The table compare_names of kernels that take these times as long in the other."""
    return pd.DataFrame({
        "name": [f"k{i}" for i in range(len(factors))], "base_count": 10, "other_count": 10,
        "base_mean_ns": 1000.0, "other_mean_ns": [1000.0 * factor for factor in factors],
        "is_communication": [i in communication for i in range(len(factors))],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("factors", "found"),
    [
        ([1.12, 1.121, 1.119, 1.12, 1.12, 1.0], 1.12),  # nearly all by one factor
        ([1.12, 1.3, 1.0, 1.05, 1.2, 0.9], None),  # each by another: the program
        ([1.01] * 6, None),  # noise
        ([1.12] * 3, None),  # too few names
    ],
)
def test_one_factor_of_all_kernels_points_to_the_clock(factors, found):
    factor = common_factor(by_name(factors))
    assert (factor is None) if found is None else factor[0] == pytest.approx(found, abs=0.002)


def test_stated_clocks_that_differ_are_said():
    base, other = run(1), run(2)
    devices = pd.DataFrame({"clock_hz": [1.41e9], "device_ns": [5]})
    sides = [Analysis({**side.frames, "devices": devices.assign(clock_hz=clock)})
             for side, clock in ((base, 1.41e9), (other, 1.98e9))]  # fmt: skip
    (subject, sentence, is_difference), *rest = clock_statements(*sides, by_name([1.0] * 5))
    assert subject == "clock" and "1.41 GHz in the base, 1.98 GHz in the other" in sentence and is_difference
    assert not rest and not clock_statements(sides[0], sides[0], by_name([1.0] * 5))
    told = clock_statements(sides[0], sides[0], by_name([1.12] * 5))
    assert "take 12.0 % longer each" in told[0][1] and "low confidence" in told[0][1]


def test_the_page_has_the_causes_the_totals_and_the_names(windows):
    page = render(windows, ("a", "b"))
    for section in ("causes", "totals", "names"):
        assert f'id="{section}"' in page
    assert "waiting for the host" in page and "time of the devices" in page


def test_numbers_for_programs_have_count_interval_or_reason(windows):
    numbers = comparison_quantities(windows)
    assert {"window per unit of work", "idle per unit of work"} <= {one["name"] for one in numbers}
    assert all(one["reason"] or (one["ci_low"] is not None and one["ci_high"] is not None) for one in numbers)
    of_executions = comparison_quantities(compare(run(1), run(2, slow={4: 3.0})))
    latency = next(one for one in of_executions if one["of"] == "difference" and "model_latency" in one["name"])
    assert latency["ci_low"] < latency["value"] < latency["ci_high"] and latency["sample_count"] > 2


def test_bars_of_windows_need_no_executions(windows):
    for bar, code in (("idle>50%", 1), ("idle>200%", 0), ("device_time>20%", 0), ("kernel_time(SendRecv)>30%", 1),
                      ("kernel_time>20%", 0), ("kernel_count>5%", 0)):  # fmt: skip
        try:
            check_bars(windows, [parse_bar(bar)])
            found = 0
        except BarNotMetError:
            found = 1
        assert found == code, bar


# -- bars ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, quantity, name, op, limit, relative",
    [
        ("model_latency>3%", "model_latency", "", ">", 0.03, True),
        (" throughput < -5 % ", "throughput", "", "<", -0.05, True),
        ("layer_latency(layers.3.mlp) >= 200us", "layer_latency", "layers.3.mlp", ">=", 200e3, False),
        ("kernel_count>0", "kernel_count", "", ">", 0.0, False),
        ("kernel_time(void f<(int)1>(x))>1.5ms", "kernel_time", "void f<(int)1>(x)", ">", 1.5e6, False),
    ],
)
def test_bars_are_read(text, quantity, name, op, limit, relative):
    bar = parse_bar(text)
    assert (bar.quantity, bar.name, bar.op, bar.is_relative) == (quantity, name, op, relative)
    assert bar.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model_latency",
        "model_latency>",
        "model_latency>3",
        "latency>3%",
        "model_latency=3%",
        "model_latency(x)>3%",
        "kernel_count>3ms",
        "throughput<5ms",
        "model_latency>3%%",
        "model_latency>nan%",
    ],
)
def test_bars_that_cannot_be_read_are_refused(text):
    with pytest.raises(UsageError) as failed:
        parse_bar(text)
    assert failed.value.code == "bar-syntax"


def verdict(base, other, *bars):
    return judged(compare(base, other), *bars)


def judged(comparison, *bars):
    try:
        return 0, " ".join(check_bars(comparison, [parse_bar(bar) for bar in bars]))
    except BarNotMetError as error:
        return error.exit_code, error.message


def test_bar_breaks_only_for_a_difference_that_is_one():
    code, sentence = verdict(run(1), run(2, scale=1.5), "model_latency>3%")
    assert code == 1 and sentence.startswith("model_latency>3%: model latency ") and "95 % interval" in sentence
    assert verdict(run(1), run(2), "model_latency>30%")[0] == 0
    # one capture of each side cannot show 3 %: the bar says so instead of passing
    code, sentence = verdict(run(1), run(2), "model_latency>3%")
    assert code == 7 and "these captures cannot tell: model latency must change by 6" in sentence
    noisy = [run(i, run_spread=0.4) for i in (4, 5)]
    ratio = compare(*noisy).frame("compare_models").query("quantity == 'model_latency'")["difference_ratio"].iloc[0]
    base, other = noisy if ratio > 0.03 else noisy[::-1]
    code, sentence = verdict(base, other, "model_latency>3%")
    assert code == 7 and "it may be noise" in sentence


def test_bars_of_every_quantity():
    base, other = run(1), run(2, slow={4: 2.0}, kernels={3: ["one", "two"]}, model_scale=1.5)
    comparison = compare(base, other)
    for bar, code in (
        ("throughput<-10%", 1),
        ("throughput<-90%", 0),
        ("kernel_count>0", 1),
        ("kernel_count>5", 0),
        ("layer_latency>50%", 1),
        ("layer_latency(layers.4:Linear)>300us", 1),
        ("gpu_busy>90%", 0),
        ("layer_latency(layers.5)>50%", 0),
        ("kernel_time(kernel_e)>10%", 1),
        ("kernel_latency>90%", 0),
    ):
        assert judged(comparison, bar)[0] == code, bar
    with pytest.raises(UsageError) as failed:
        judged(comparison, "layer_latency(nothing)>1%")
    assert failed.value.code == "bar-unknown"


def test_single_iteration_is_judged_by_its_value_and_says_so():
    pair = run(1, repeats=1, iterations=1), run(2, repeats=1, iterations=1, scale=3.0)
    code, sentence = verdict(*pair, "model_latency>3%")
    assert code == 1 and "too few iterations" in sentence


# -- the command --------------------------------------------------------------------------------------------


def test_command_in_terminal_json_html_and_ci(tmp_path):
    from xsp_post.store.store import write_store

    for name, results in (("base", run(1)), ("same", run(2)), ("slow", run(3, scale=1.6))):
        write_store(results, tmp_path / f"{name}.xsp.sqlite")

    def command(*arguments):
        return called("compare", *arguments, cwd=tmp_path)

    done = command("base.xsp.sqlite", "same.xsp.sqlite", "--fail-if", "model_latency>30%")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("The same: ", "Not decided: ")) and " an execution, 1.0" in done.stdout
    blind = command("base.xsp.sqlite", "same.xsp.sqlite", "--fail-if", "model_latency>3%")
    assert blind.returncode == 7 and "[bar-undecided]" in blind.stderr
    done = command("base.xsp.sqlite", "slow.xsp.sqlite", "--markdown")
    assert done.stdout.startswith("### Slower: ") and "| model latency | " in done.stdout
    failed = command("base.xsp.sqlite", "slow.xsp.sqlite", "--fail-if", "model_latency>3%", "--json", "-o", "c.html")
    assert failed.returncode == 1 and "[bar-not-met]" in failed.stderr and "Traceback" not in failed.stderr
    printed = json.loads(failed.stdout)
    assert printed["format"] == "xsp-post.compare" and printed["data"]["models"][0]["change"] == "more"
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")
    assert command("base.xsp.sqlite", "slow.xsp.sqlite", "--fail-if", "nonsense").returncode == 2
    assert command("base.xsp.sqlite", "missing.sqlite").returncode == 4
    assert command("base.xsp.sqlite", "same.xsp.sqlite", "-o", "c.html").returncode == 6


def test_the_sentence_says_what_a_time_is_per_and_how_sure_one_capture_makes_it():
    said = compare(run(1, repeats=1), run(2, repeats=1)).frame("compare_summary")["statement"]
    assert " an execution, " in said[0] and "from single captures: how runs differ is assumed" in said[0]


def test_batch_against_batch_is_said_per_sample():
    base, other = run(1), run(2, scale=1.5)
    twice = {name: other.frame(name).assign(batch_size=8) for name in ("captures", "iterations")}  # 4 in the base
    other = Analysis({**{name: other.frame(name) for name in other.tables()}, **twice})
    said = compare(base, other).frame("compare_summary")["statement"].iloc[0]
    assert said.startswith("Faster per sample: "), "one step takes longer"
    assert re.search(r" times as long for inputs of 2 times the size \(−2[\d.]* % per sample, ", said)


def test_a_comparison_of_operators_has_no_words_of_a_gpu():
    sides = [run(1), run(2, slow={4: 2.0}, kernels={3: ["aten::one", "aten::two"]})]
    marked = [Analysis({**{name: one.frame(name) for name in one.tables()},
                        "findings": pd.DataFrame({"code": ["cpu-operators-as-kernels"], "capture_id": 0})})
              for one in sides]  # fmt: skip
    said = dict(zip(*(compare(*marked).frame("compare_summary")[c] for c in ("subject", "statement"))))
    own = {"kernels", "ranges", "copies", "system"}  # structure: says itself that operators stand for kernels
    assert any("operator" in text for text in said.values())
    assert not [text for about, text in said.items() if about not in own and "kernels" in text]


def test_the_power_is_as_printed():
    """A change of the size that is said to be shown 4 times of 5 is shown about that often."""
    from xsp_post.compare.differences import detectable, differences

    rng, count, captures = np.random.default_rng(5), 2000, 5
    group = np.repeat(np.arange(count), 2 * captures)
    side, capture = np.tile(np.repeat([0, 1], captures), count), np.tile(np.arange(2 * captures), count)
    size = float(detectable(np.array([np.sqrt(2 / captures)]), np.array([2 * captures - 2.0]))[0])
    values = 1e6 + rng.normal(0, 1, len(group)) + size * side
    found = differences(values, group, side, capture, count, 0.0, 0.0)
    assert 0.75 < (found["p_value"] < 0.05).mean() < 0.85


def executions(path, gemm, pause, extra="", last=0):
    """Six model executions: a matrix product, longer in the last one, a pause of the host, a copy kernel, and perhaps
    one kernel more."""
    builder = ExportBuilder().gpu()
    for k in range(6):
        at = (gemm + pause + 70_000) * k + 3_000 * (k % 2)
        gemm += last * (k == 5)
        builder.range(f"model#{k}:forward", at, at + gemm + pause + 20_000, domain="xsp")
        builder.range("fc#1:Linear", at + 1_000, at + gemm + pause + 10_000, domain="xsp")
        builder.kernel("gemm", launch=(at + 2_000, at + 3_000), run=(at + 4_000, at + 4_000 + gemm))
        late = at + 4_000 + gemm + pause
        builder.kernel("scale", launch=(late - 2_000, late - 1_000), run=(late, late + 50_000))
        if extra:
            builder.kernel(extra, launch=(late, late + 500), run=(late + 50_000, late + 60_000))
    return analyze([builder.write(path)])


def test_causes_of_executions_name_kernels_and_waiting(tmp_path):
    base = executions(tmp_path / "a.sqlite", 200_000, 20_000)
    other = executions(tmp_path / "b.sqlite", 400_000, 60_000, "bias")
    comparison = compare(base, other)
    said = comparison.frame("compare_summary").set_index("subject")["statement"]
    assert said["verdict"].startswith("Slower: 274 µs → 524 µs an execution, 1.91 times as long (+91.2 %, 95 % inter")
    assert said["largest regression"].startswith("Largest regression: gemm, +200 µs in an execution")
    causes = comparison.frame("compare_causes").set_index("cause")["difference_ns"]
    assert causes["the same kernels take another time"] == pytest.approx(200_000)
    assert causes["kernels that only one side has"] == pytest.approx(10_000)
    window = comparison.frame("compare_totals").set_index("quantity").loc["window", "difference_value"]
    assert causes.sum() == pytest.approx(window, abs=10) and window >= 250_000
    # what they sum to is what the first sentence says, which one long execution does not move
    other = executions(tmp_path / "c.sqlite", 400_000, 60_000, last=900_000)
    said = compare(base, other).frame("compare_summary").set_index("subject")["statement"]
    assert said["verdict"].startswith("Slower: 274 µs → 514 µs an execution")
    assert said["causes"].startswith("Per execution, +240 µs: ") and "−150 µs the rest" in said["causes"]


def with_memory(path, peak, reserved=-1, recorded_by="framework"):
    """Executions with a peak of memory on one GPU, and a higher one of the host."""
    analysis = executions(path, 200_000, 20_000)
    place = {"capture_id": 0, "process_id": 100, "recorded_by": recorded_by}
    devices = pd.DataFrame([
        {**place, "device_id": 0, "memory_kind": "device", "peak_bytes": peak, "reserved_bytes": reserved},
        {**place, "device_id": -1, "memory_kind": "host", "peak_bytes": 10 * peak, "reserved_bytes": -1},
    ])  # fmt: skip
    return Analysis({**analysis.frames, "memory_devices": devices})


def test_labels_of_causes_fit_a_narrow_screen():
    causes = ["before the first and after the last operation of a GPU", "waiting for the host"]
    frame = pd.DataFrame({"cause": causes, "difference_ns": [2e6, -1e6], "change": ["slower", "faster"]})
    chart = draw(CHARTS["causes-bars"], frame).to_dict()
    rows = next(iter(chart["datasets"].values()))
    assert [row["y"].replace("\n", " ") for row in rows] == causes  # whole, on lines of their own
    assert max(len(line) for row in rows for line in row["y"].split("\n")) <= CHARTS["causes-bars"].wrap
    assert chart["height"] >= 2 * 3 * 11


def test_peaks_of_memory_are_compared_as_recorded(tmp_path):
    base = with_memory(tmp_path / "a.sqlite", 1 << 30, 2 << 30)
    comparison = compare(base, with_memory(tmp_path / "b.sqlite", 3 << 29, 2 << 30))
    rows = comparison.frame("compare_totals").set_index("quantity")
    columns = ["unit", "base_per_unit", "other_per_unit", "difference_value", "difference_ratio"]
    assert rows.loc["memory_peak", columns].tolist() == ["B", 1 << 30, 3 << 29, 1 << 29, 0.5]  # not per execution
    assert rows.loc["memory_reserved", columns[1:4]].tolist() == [2 << 30, 2 << 30, 0]
    said = comparison.frame("compare_summary").set_index("subject").loc["memory"]
    assert said["statement"].startswith("Peak of memory 1.00 GiB → 1.50 GiB (+50.0 %), most reserved")
    assert said["is_difference"]
    row = "| peak memory | 1.00 GiB | 1.50 GiB | +50.0 % |"
    assert row in comparison_markdown(comparison, ("a", "b"))
    names = {one["name"] for one in comparison_quantities(comparison)}
    assert "memory_peak" in names and "memory_peak per unit of work" not in names
    assert "Device time and memory" in render(comparison, ("a", "b"))
    assert check_bars(comparison, [parse_bar("memory_peak>1GiB")]) == ["memory_peak>1GiB: does not hold"]
    with pytest.raises(BarNotMetError, match=r"peak of memory 1.00 GiB → 1.50 GiB \(\+50.0 %\)$"):
        check_bars(comparison, [parse_bar("memory_peak>100MB")])
    with pytest.raises(UsageError, match="give % or B, KB, MB"):
        parse_bar("memory_peak>1ms")
    same = compare(base, base).frame("compare_summary").set_index("subject")
    assert not same.loc["memory", "is_difference"]


@pytest.mark.parametrize("recorded_by", ["driver", ""])
def test_memory_that_one_side_did_not_record_alike_is_not_compared(tmp_path, recorded_by):
    base = with_memory(tmp_path / "a.sqlite", 1 << 30)
    other = executions(tmp_path / "b.sqlite", 200_000, 20_000)
    if recorded_by:
        other = with_memory(tmp_path / "c.sqlite", 1 << 30, recorded_by=recorded_by)
    comparison = compare(base, other)
    assert not comparison.frame("compare_totals")["quantity"].str.startswith("memory").any()
    assert "memory" not in set(comparison.frame("compare_summary")["subject"])


def test_ranks_of_one_capture_with_executions_of_their_own_are_compared(tmp_path, capsys, monkeypatch):
    """Executions of two processes overlap in time: what lies outside of their layers is each rank's own."""
    builder = ExportBuilder().gpu()
    for process, outside in ((100, 10), (200, 30)):
        builder.process(process)
        for start in range(0, 40_000, 10_000):
            builder.range(f"model#{start // 10_000}", start, start + 8000, domain="xsp")
            for layer in range(3):
                at = start + 100 + 2000 * layer
                builder.range(f"layers.{layer}:Linear", at, at + 1900, domain="xsp")
                builder.kernel("gemm", launch=(at + 10, at + 20), run=(at + 30, at + 1900 - outside))
    result = analyze([builder.write(tmp_path / "ranks.sqlite")])
    assert result.frame("iterations").groupby("process_id").size().tolist() == [4, 4]
    from xsp_post.commands.compare import _print

    comparison = compare(result, result)
    assert comparison.frame("compare_cases")["rank_name"].tolist() == ["rank 0", "rank 1"]
    monkeypatch.setenv("COLUMNS", "200")
    _print(comparison, top=0)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rank ")]
    assert len(rows) == len({*rows}) > 20
    layers = comparison.frame("compare_layers")
    assert (layers["layer_path"] == "[outside layers]").sum() == 2
    assert layers["difference_ns"].abs().max() == 0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_shows_what_changed_on_one_line_each(width, capsys, monkeypatch):
    from xsp_post.commands.compare import _print

    monkeypatch.setenv("COLUMNS", str(width))
    _print(compare(run(1), run(2, slow={4: 3.0})), 5)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if line.startswith("layers.4:Linear "))
    assert "slower" in row and "%" in row
    assert any("none of which shows a difference" in line for line in lines)
