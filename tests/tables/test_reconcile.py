"""Leveled latencies: the paper's Figure 2 to the digit, confidence intervals that cover, matching, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from helpers import compare_samples, reconciled
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays import statistics
from xsp_post.base.errors import ContradictionError
from xsp_post.base.findings import FINDINGS, finding
from xsp_post.model.results import Analysis
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.units import format_ns

MS = 1_000_000
M, ML, MLG = "M", "M/L", "M/L/G"


def workload(*captures: dict) -> Analysis:
    """An analysis from captures like ``{"level": M, "model_ms": [1, 2], "layers": {"conv1": [1, 1]}}``: values per
    measured iteration. Optional: batch, phase, warmup_ms, kernels {layer: names}, source, is_late (device work
    outlives the layers), workload_name, gpu_name."""
    frames: dict[str, list[dict]] = {name: [] for name in ("captures", "iterations", "layers", "kernels", "nodes")}
    for capture_id, capture in enumerate(captures):
        batch, phase = capture.get("batch", 1), capture.get("phase", "forward")
        frames["captures"].append({
            "capture_id": capture_id, "level": capture["level"], "source_name": f"capture{capture_id}",
            "workload_name": capture.get("workload_name", "net"), "framework": "torch 2.4",
            "gpu_name": capture.get("gpu_name", "GPU"), "batch_size": batch, "run_process": capture.get("process", ""),
        })  # fmt: skip
        latencies = [*capture.get("warmup_ms", []), *capture["model_ms"]]
        warm = len(latencies) - len(capture["model_ms"])
        for iteration, latency_ms in enumerate(latencies):
            frames["iterations"].append({
                "capture_id": capture_id, "iteration_index": iteration, "phase": phase, "batch_size": batch,
                "latency_ns": round(latency_ms * MS), "duration_ns": round(latency_ms * MS),
                "is_warmup": iteration < warm,
            })  # fmt: skip
            if iteration < warm:
                continue
            for index, (path, values) in enumerate(capture.get("layers", {}).items(), start=1):
                duration_ns = round(values[iteration - warm] * MS)
                frames["layers"].append({
                    "capture_id": capture_id, "iteration_index": iteration, "layer_index": index,
                    "layer_path": path, "layer_type": "Conv2d", "call_index": 0, "duration_ns": duration_ns,
                    "latency_ns": duration_ns // 2 if capture.get("is_late") else duration_ns,
                    "latency_source": "projection" if capture["level"] == MLG else "host",
                })  # fmt: skip
                if capture["level"] == MLG:
                    frames["nodes"].append({"capture_id": capture_id, "level": "LAYER", "end_ns": 100,
                                            "projected_end_ns": 200 if capture.get("is_late") else 100})  # fmt: skip
                for order, name in enumerate(capture.get("kernels", {}).get(path, [])):
                    frames["kernels"].append({
                        "capture_id": capture_id, "iteration_index": iteration, "layer_index": index,
                        "launch_start_ns": 1000 * index + order, "start_ns": 1000 * index + order, "name": name,
                    })  # fmt: skip
    columns = {
        "nodes": ["capture_id", "level", "end_ns", "projected_end_ns"],
        "kernels": ["capture_id", "iteration_index", "layer_index", "launch_start_ns", "start_ns", "name"],
        "layers": ["capture_id", "iteration_index", "layer_index", "layer_path", "layer_type", "call_index",
                   "duration_ns", "latency_ns", "latency_source"],
    }  # fmt: skip
    return Analysis({name: pd.DataFrame(rows, columns=columns.get(name)) for name, rows in frames.items()})


def cell(analysis: Analysis, level: str, path: str = "") -> pd.Series:
    table = analysis.frame("overhead")
    rows = table[(table["level"] == level) & (table["layer_path"] == path)]
    assert len(rows) == 1
    return rows.iloc[0]


def codes(analysis: Analysis) -> list[str]:
    return [found.code for found in analysis.findings]


def test_figure_2_of_the_paper():
    """ResNet50 v1.5, batch 256, V100: M 275.1 ms, M/L +157, M/L/G 490.3 ms, first convolution 5.1 ms +0.24
    (paper, §III-C, R8)."""
    kernels = {"conv": ["ShuffleTensor", "OffsetComp", "volta_scudnn_128x64"]}
    result = reconciled(workload(
        {"level": M, "batch": 256, "model_ms": [275.1] * 5},
        {"level": ML, "batch": 256, "model_ms": [275.1 + 157] * 5, "layers": {"conv": [5.1] * 5}},
        {"level": MLG, "batch": 256, "model_ms": [490.3] * 5, "layers": {"conv": [5.34] * 5}, "kernels": kernels},
    ))  # fmt: skip
    assert cell(result, M)["latency_ns"] == pytest.approx(275.1 * MS) and cell(result, M)["is_accurate"]
    assert cell(result, ML)["overhead_ns"] == pytest.approx(157.0 * MS)
    assert cell(result, ML)["overhead_ratio"] == pytest.approx(0.57, abs=0.005)
    assert cell(result, MLG)["overhead_ns"] == pytest.approx(58.2 * MS)
    assert cell(result, MLG)["total_overhead_ns"] == pytest.approx(215.2 * MS)
    assert cell(result, ML, "conv")["latency_ns"] == pytest.approx(5.1 * MS)
    assert cell(result, ML, "conv")["is_accurate"] and not cell(result, MLG, "conv")["is_accurate"]
    assert cell(result, MLG, "conv")["overhead_ns"] == pytest.approx(0.24 * MS)
    assert list(result.frame("overhead").columns) == column_names("overhead")


def test_one_level_alone_shows_no_overhead():
    table = reconciled(workload({"level": MLG, "model_ms": [1, 2], "layers": {"a": [1, 1]}})).frame("overhead")
    assert table.empty and list(table.columns) == column_names("overhead")


def test_batch_sizes_measured_at_one_level_only_are_left_out():
    result = reconciled(workload(
        {"level": M, "batch": 1, "model_ms": [1, 1.1]}, {"level": M, "batch": 2, "model_ms": [2, 2.1]},
        {"level": ML, "batch": 2, "model_ms": [3, 3.1]},
    ))  # fmt: skip
    assert set(result.frame("overhead")["batch_size"]) == {2}


def test_warm_up_does_not_count():
    result = reconciled(workload(
        {"level": M, "warmup_ms": [500], "model_ms": [10, 10]}, {"level": ML, "model_ms": [12, 12]}
    ))  # fmt: skip
    assert cell(result, M)["latency_ns"] == 10 * MS and cell(result, M)["sample_count"] == 2


def test_the_interval_is_over_captures_where_there_are_several():
    """Welch's interval of the captures' means, computed here by hand."""
    base, deeper = [[10, 10.2], [11, 11.2], [10.5, 10.7]], [[13, 13.2], [14.5, 14.7], [13.5, 13.7]]
    result = reconciled(workload(
        *({"level": M, "model_ms": values} for values in base),
        *({"level": ML, "model_ms": values} for values in deeper),
    ))  # fmt: skip
    row = cell(result, ML)
    means = [np.mean(values, axis=1) * MS for values in (base, deeper)]
    by_hand = compare_samples(*means, trim_ratio=0.0)
    assert row["interval_over"] == "captures" and row["capture_count"] == 3 and row["sample_count"] == 6
    half_width = (row["ci_high_overhead_ns"] - row["ci_low_overhead_ns"]) / 2
    assert half_width == pytest.approx((by_hand.ci_high - by_hand.ci_low) / 2)
    centre = (row["ci_high_overhead_ns"] + row["ci_low_overhead_ns"]) / 2
    assert centre == pytest.approx(row["overhead_ns"])


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """200 simulated runs, three captures a level whose means wander by themselves: 95 % of intervals hold 2 ms."""
    random = np.random.default_rng(0)
    samples = []
    for run in range(200):
        for level, truth in ((M, 10.0), (ML, 12.0)):
            for _ in range(3):
                wander = random.normal(0, 0.3)
                samples.append({"level": level, "phase": f"p{run}",
                                "model_ms": truth + wander + random.normal(0, 0.2, 10)})  # fmt: skip
    table = reconciled(workload(*samples)).frame("overhead")
    rows = table[table["level"] == ML]
    covered = (rows["ci_low_overhead_ns"] <= 2 * MS) & (rows["ci_high_overhead_ns"] >= 2 * MS)
    assert len(rows) == 200 and 0.90 <= covered.mean() <= 0.99
    pooled = [
        compare_samples(*(np.concatenate([s["model_ms"] for s in samples if s["phase"] == f"p{run}"
                                                     and s["level"] == level]) for level in (M, ML)))
        for run in range(200)
    ]  # fmt: skip
    assert np.mean([one.ci_low <= 2 <= one.ci_high for one in pooled]) < 0.8, "iterations pooled would claim too much"


def test_with_one_capture_a_level_the_interval_is_over_its_iterations():
    result = reconciled(workload(
        {"level": M, "model_ms": [10, 10.1, 10.2, 9.9]}, {"level": ML, "model_ms": [12, 12.1, 12.2, 11.9]}
    ))  # fmt: skip
    row = cell(result, ML)
    assert row["interval_over"] == "iterations" and row["ci_low_overhead_ns"] > 0
    assert not row["is_significant"] and "within one process" in row["verdict"]


def in_turns(process: str, level: str, *blocks: list[float], **more) -> dict:
    """A capture of a process that several levels share: blocks of measured iterations, a warm-up before each."""
    values = [one for block in blocks for one in block]
    return {"level": level, "process": process, "blocks": blocks, "model_ms": values, **more}


def with_blocks(*captures: dict) -> Analysis:
    """`workload` with a warm-up before each block."""
    analysis = workload(*captures)
    parts = []
    for capture_id, capture in enumerate(captures):
        mine = analysis.frames["iterations"]
        mine = mine[mine["capture_id"] == capture_id]
        ends = np.cumsum([len(block) for block in capture["blocks"]])
        for end, block in zip(ends, capture["blocks"]):
            settling = mine.iloc[[0]].assign(is_warmup=True, latency_ns=10**9)
            parts += [settling, mine.iloc[end - len(block) : end]]
    frame = pd.concat(parts, ignore_index=True)
    return Analysis({**analysis.frames, "iterations": frame}, analysis.findings)


def test_levels_that_took_turns_are_compared_round_by_round():
    """Load of 100 ms in a round meets both levels, and one process is slower than the other."""
    result = reconciled(with_blocks(
        in_turns("01", M, [10, 10], [110, 110], [10, 12]), in_turns("01", ML, [12, 12], [112, 112], [13, 13]),
        in_turns("04", M, [50, 50], [50, 50], [150, 150]), in_turns("04", ML, [52, 52], [53, 53], [152, 152]),
    ))  # fmt: skip
    row = cell(result, ML)
    assert row["interval_over"] == "pairs" and row["overhead_ns"] == pytest.approx((2 + 2 + 2 + 2) / 4 * MS)
    means = np.array([2, 7 / 3]) * MS
    half_width = 12.706 * means.std(ddof=1) / np.sqrt(2)
    assert (row["ci_high_overhead_ns"] - row["ci_low_overhead_ns"]) / 2 == pytest.approx(half_width, rel=1e-4)
    assert row["total_overhead_ns"] == row["overhead_ns"]
    assert cell(result, M)["latency_ns"] == statistics.trimmed_mean(
        [10, 10, 110, 110, 10, 12, 50, 50, 50, 50, 150, 150]) * MS  # fmt: skip


def test_a_level_with_processes_of_its_own_is_not_paired():
    result = reconciled(with_blocks(
        *(in_turns(process, level, [value, value]) for process in ("01", "03")
          for level, value in ((M, 10.0), (ML, 12.0))),
        *(in_turns("", MLG, [value, value]) for value in (20.0, 21.0)),
    ))  # fmt: skip
    assert cell(result, ML)["interval_over"] == "pairs" and cell(result, MLG)["interval_over"] == "captures"
    assert cell(result, MLG)["overhead_ns"] == pytest.approx(8.5 * MS)


def test_one_process_for_every_level_says_that_nothing_follows():
    result = reconciled(with_blocks(
        in_turns("01", M, [10, 10], [11, 11]), in_turns("01", ML, [12, 12], [13, 13])
    ))  # fmt: skip
    row = cell(result, ML)
    assert row["interval_over"] == "iterations" and row["overhead_ns"] == 2 * MS and not row["is_significant"]
    found = next(f for f in result.findings if f.code == "levels-one-process")
    assert "nothing can be concluded" in found.title and "--repeat" in found.hint


def test_a_difference_between_programs_is_not_called_overhead():
    analysis = with_blocks(*(
        in_turns(process, level, [value, value], layers={} if level == M else {"a": [1, 1]})
        for process in ("01", "04") for level, value in ((M, 10.0), (ML, 15.0), (MLG, 17.0))
    ))  # fmt: skip
    said = dataclasses.replace(finding("hooks-change-program"), capture_id=1)
    result = reconciled(Analysis(analysis.frames, [said]))
    row = cell(result, ML)
    assert row["verdict"].startswith("no overhead: with layer ranges") and not row["is_significant"]
    assert np.isnan(row["overhead_ns"]) and np.isnan(row["total_overhead_ns"]) and row["latency_ns"] == 15 * MS
    assert cell(result, MLG)["overhead_ns"] == 2 * MS and np.isnan(cell(result, MLG)["total_overhead_ns"])
    assert cell(result, MLG, "a")["overhead_ns"] == 0


def test_negative_and_insignificant_overheads_are_said_plainly():
    result = reconciled(workload(
        *({"level": M, "model_ms": [one, one]} for one in (10, 10.1, 10.2, 9.9)),
        *({"level": ML, "model_ms": [one, one]} for one in (8, 8.1, 8.2, 7.9)),
        *({"level": MLG, "model_ms": [one, one]} for one in (5, 11.1, 8.2, 7.9)),
    ))  # fmt: skip
    assert cell(result, ML)["verdict"].startswith("negative") and cell(result, ML)["overhead_ns"] == -2 * MS
    assert cell(result, MLG)["verdict"] == "no overhead shown"
    assert {"overhead-negative", "overhead-not-shown"} <= set(codes(result))


def test_the_interval_is_the_same_wherever_it_is_said_and_no_latency_is_below_zero():
    result = reconciled(workload(
        *({"level": M, "model_ms": [one, one]} for one in (5, 10, 300)),
        *({"level": ML, "model_ms": [one, one]} for one in (6, 100, 400)),
    ))  # fmt: skip
    row = cell(result, ML)
    assert row["ci_low_overhead_ns"] == pytest.approx(row["overhead_ns"] - row["latency_ns"])
    ends = f"{format_ns(row['ci_low_overhead_ns'])} … {format_ns(row['ci_high_overhead_ns'])}"
    found = result.found()
    assert ends in found.loc[found["code"].eq("overhead-not-shown"), "example"].iloc[0]


def test_a_single_iteration_gives_a_difference_without_an_interval():
    row = cell(reconciled(workload({"level": M, "model_ms": [10]}, {"level": ML, "model_ms": [12]})), ML)
    assert row["overhead_ns"] == 2 * MS and np.isnan(row["ci_low_overhead_ns"])
    assert row["verdict"] == "too few samples for an interval" and not row["is_significant"]


def test_without_level_m_nothing_is_called_accurate_for_the_model():
    result = reconciled(workload(
        {"level": ML, "model_ms": [10, 10], "layers": {"a": [4, 4]}},
        {"level": MLG, "model_ms": [12, 12], "layers": {"a": [5, 5]}},
    ))  # fmt: skip
    assert cell(result, ML)["verdict"] == "no accurate level was run" and not cell(result, ML)["is_accurate"]
    assert cell(result, MLG)["overhead_ns"] == 2 * MS and np.isnan(cell(result, MLG)["total_overhead_ns"])
    assert cell(result, ML, "a")["is_accurate"]


def test_host_time_is_not_set_against_device_time():
    """On a GPU that runs behind its launches the projection of M/L/G is another measure than M/L's wall time."""
    result = reconciled(workload(
        {"level": ML, "model_ms": [10, 10], "layers": {"a": [4, 4]}},
        {"level": MLG, "model_ms": [12, 12], "layers": {"a": [6, 6]}, "is_late": True},
    ))  # fmt: skip
    row = cell(result, MLG, "a")
    assert row["verdict"].startswith("not comparable") and not row["is_significant"]
    assert row["latency_ns"] == 3 * MS and row["latency_source"] == "projection"


def test_layers_without_a_partner_are_counted_and_named():
    result = reconciled(workload(
        {"level": ML, "model_ms": [10, 10], "layers": {"a": [4, 4], "only_here": [1, 1]}},
        {"level": MLG, "model_ms": [12, 12], "layers": {"a": [5, 5], "b": [1, 1], "c": [1, 1]}},
    ))  # fmt: skip
    found = next(f for f in result.findings if f.code == "layers-unmatched")
    assert found.count == 3 and "only_here" in found.example


def test_work_between_layers_misses_no_partner():
    analysis = workload(
        {"level": ML, "model_ms": [10, 10], "layers": {"a": [4, 4]}},
        {"level": MLG, "model_ms": [12, 12], "layers": {"a": [5, 5], "[self]": [1, 1]}},
    )  # fmt: skip
    layers = analysis.frames["layers"]
    layers.loc[layers["layer_path"] == "[self]", "layer_type"] = "[self]"
    assert "layers-unmatched" not in codes(reconciled(analysis))


def test_kernels_are_matched_by_layer_launch_order_and_name():
    def run(**kernels):
        return {"level": MLG, "model_ms": [1, 1], "layers": {"a": [1, 1], "b": [1, 1]}, "kernels": kernels}

    same = reconciled(workload(run(a=["x", "y"], b=["x"]), run(a=["x", "y"], b=["x"])))
    assert "kernels-differ-between-runs" not in codes(same)
    swapped = reconciled(workload(run(a=["x", "y"], b=["x"]), run(a=["y", "x"], b=["x"])))
    assert next(f for f in swapped.findings if f.code == "kernels-differ-between-runs").count == 4
    more = reconciled(workload(run(a=["x"], b=["x"]), run(a=["x"], b=["x", "x"])))
    found = next(f for f in more.findings if f.code == "kernels-differ-between-runs")
    assert found.count == 1 and found.example == "b: x"


def test_layers_that_sum_to_more_than_the_model_have_a_finding():
    serialised = reconciled(workload(
        {"level": M, "model_ms": [10, 10]}, {"level": ML, "model_ms": [14, 14], "layers": {"a": [9, 9], "b": [4, 4]}}
    ))  # fmt: skip
    assert "layer-sum-exceeds-model" in codes(serialised) and "layers-overlap" not in codes(serialised)
    nested = reconciled(workload(
        {"level": M, "model_ms": [20, 20]}, {"level": ML, "model_ms": [14, 14], "layers": {"a": [9, 9], "b": [9, 9]}}
    ))  # fmt: skip
    assert "layers-overlap" in codes(nested) and "layer-sum-exceeds-model" not in codes(nested)
    fine = reconciled(workload(
        {"level": M, "model_ms": [20, 20]}, {"level": ML, "model_ms": [22, 22], "layers": {"a": [9, 9], "b": [9, 9]}}
    ))  # fmt: skip
    assert not {"layers-overlap", "layer-sum-exceeds-model"} & set(codes(fine))


@pytest.mark.parametrize(("key", "value"), [("workload_name", "vgg16"), ("gpu_name", "Other GPU")])
def test_unlike_captures_are_refused_with_key_and_both_values(key, value):
    with pytest.raises(ContradictionError, match=key) as caught:
        reconciled(workload({"level": M, "model_ms": [1]}, {"level": ML, "model_ms": [1], key: value}))
    assert value in caught.value.message and caught.value.exit_code == 5


def test_captures_that_name_no_workload_are_not_compared():
    result = reconciled(workload(
        {"level": MLG, "model_ms": [1], "workload_name": "", "gpu_name": "A"},
        {"level": MLG, "model_ms": [1], "workload_name": "", "gpu_name": "B"},
    ))  # fmt: skip
    assert result.frame("overhead").empty


def test_every_finding_has_its_entry():
    assert {"layers-unmatched", "layers-overlap", "layer-sum-exceeds-model", "overhead-negative",
            "overhead-not-shown", "kernels-differ-between-runs"} <= set(FINDINGS)  # fmt: skip


_values = st.lists(st.floats(0.5, 100, allow_nan=False), min_size=1, max_size=6)


@examples(40)
@given(_values, _values, _values)
def test_steps_add_up_to_the_total_whatever_the_numbers(model, layer, kernel):
    """overhead(M/L on M) + overhead(M/L/G on M/L) = total overhead of M/L/G; latencies are never changed."""
    result = reconciled(workload(
        {"level": M, "model_ms": model}, {"level": ML, "model_ms": layer}, {"level": MLG, "model_ms": kernel}
    ))  # fmt: skip
    first, second = cell(result, ML), cell(result, MLG)
    assert first["overhead_ns"] + second["overhead_ns"] == pytest.approx(second["total_overhead_ns"], abs=1)
    assert first["latency_ns"] == pytest.approx(statistics.trimmed_mean([round(v * MS) for v in layer]), abs=1)
