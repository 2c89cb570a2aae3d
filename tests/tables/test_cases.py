"""Which capture each number comes from: leveled runs, repeats, sweeps, phases, odd captures."""

import numpy as np
import pytest
from helpers import frame_of, small_analysis
from paper.data import compute_all

from xsp_post.arrays.batch_sizes import gain_per_doubling, optimal_position
from xsp_post.model.results import Analysis
from xsp_post.tables.analyses.cases import find_cases


def analysis(captures, iterations, kernels=(), layers=()) -> Analysis:
    """Captures as (level, workload, batch), iterations as (capture, index, phase, latency[, is_warmup])."""
    frames = {
        "captures": frame_of(
            "captures",
            [
                {"capture_id": i, "level": level, "workload_name": workload, "batch_size": batch}
                for i, (level, workload, batch) in enumerate(captures)
            ],
        ),
        "iterations": frame_of(
            "iterations",
            [
                dict(zip(("capture_id", "iteration_index", "phase", "latency_ns", "is_warmup"), row))
                for row in iterations
            ],
        ),
        "kernels": frame_of(
            "kernels", [{"kernel_id": i, "start_ns": i, "launch_start_ns": -1, **row} for i, row in enumerate(kernels)]
        ),
        "layers": frame_of("layers", list(layers)),
    }
    return Analysis(frames)


def test_repeats_of_one_level_are_pooled():
    found = analysis(
        [("M", "net", 4)] * 2 + [("M/L/G", "net", 4)],
        [(0, 0, "", 100), (0, 1, "", 110), (1, 0, "", 120), (2, 0, "", 500)],
    )
    a01 = compute_all(found)[0]["a01"].iloc[0]
    assert a01["latency_ns"] == 110 and a01["sample_count"] == 3
    # The interval is over the captures' means 105 and 120, which are independent; their iterations are not.
    half_width = 12.706 * np.std([105, 120], ddof=1) / np.sqrt(2)
    assert a01["ci_high_latency_ns"] - 110 == pytest.approx(half_width, rel=1e-4)


def test_captures_that_do_not_say_what_they_ran_stay_apart():
    unnamed = analysis([("", "", 4), ("", "", 4)], [(0, 0, "", 100), (1, 0, "", 300)])
    assert compute_all(unnamed)[0]["a01"]["latency_ns"].tolist() == [100, 300]
    no_batch = analysis([("M", "net", -1), ("M", "net", -1)], [(0, 0, "", 100), (1, 0, "", 300)])
    table = compute_all(no_batch)[0]["a01"]
    assert len(table) == 2 and table["throughput_inputs_per_s"].isna().all() and not table["is_optimal"].any()


def test_batch_sizes_are_cases_in_ascending_order():
    sizes = [8, 1, 4]
    found = analysis([("M", "net", size) for size in sizes], [(i, 0, "", 10 * size) for i, size in enumerate(sizes)])
    assert compute_all(found)[0]["a01"]["batch_size"].tolist() == [1, 4, 8]


def test_a_capture_may_hold_several_batch_sizes():
    found = analysis([("M", "net", -1)], [(0, 0, "", 100), (0, 1, "", 150)])
    found.frames["iterations"]["batch_size"] = [1, 2]
    table = compute_all(found)[0]["a01"]
    assert table["batch_size"].tolist() == [1, 2] and table["latency_ns"].tolist() == [100, 150]


def test_phases_are_cases_of_their_own():
    found = analysis(
        [("M", "gpt", 1), ("M/L/G", "gpt", 1)],
        [
            (0, 0, "prefill", 900),
            (0, 1, "decode", 90),
            (0, 2, "decode", 110),
            (1, 0, "prefill", 1900),
            (1, 1, "decode", 190),
        ],
    )
    table = compute_all(found)[0]["a01"]
    assert list(zip(table["phase"].astype(str), table["latency_ns"])) == [("prefill", 900), ("decode", 100)]


def test_runs_that_name_their_only_phase_differently_are_one_case():
    found = analysis(
        [("M", "net", 1), ("M/L/G", "net", 1)],
        [(0, 0, "", 100), (1, 0, "forward", 150)],
        kernels=[{"capture_id": 1, "iteration_index": 0, "name": "k", "duration_ns": 5}],
    )
    table = compute_all(found)[0]["a15"]
    assert table["phase"].tolist() == ["forward"] and table["model_latency_ns"].tolist() == [100]


def test_counter_runs_lend_no_times():
    found = analysis(
        [("M/L/G", "net", 1), ("M/L/G+counters", "net", 1)],
        [(0, 0, "", 100), (1, 0, "", 9000)],
        kernels=[
            {"capture_id": 1, "iteration_index": 0, "name": "k", "duration_ns": 7000},
            {"capture_id": 0, "iteration_index": 0, "name": "k", "duration_ns": 70},
        ],
    )
    table = compute_all(found)[0]["a15"]
    assert (table["model_latency_ns"].tolist(), table["kernel_latency_ns"].tolist()) == ([100], [70])


def test_all_warmup_uses_the_last_and_says_so():
    found = analysis([("M", "net", 1)], [(0, 0, "", 900, True), (0, 1, "", 100, True)])
    tables, findings = compute_all(found)
    assert tables["a01"]["latency_ns"].tolist() == [100]
    assert [f.code for f in findings] == ["only-warmup-iterations"]


def test_a_phase_that_is_warmup_only_is_no_case():
    found = analysis(
        [("M/L/G", "net", 1)],
        [(0, 0, "warmup", 900, True), (0, 1, "loop", 100)],
        kernels=[{"capture_id": 0, "iteration_index": i, "name": "k", "duration_ns": 5} for i in (0, 1)],
    )
    tables, findings = compute_all(found)
    assert tables["a01"]["phase"].tolist() == ["loop"] and tables["a15"]["case_index"].tolist() == [0]
    assert [(f.code, f.count) for f in findings] == [("kernels-outside-iterations", 1)]


def test_a_negative_latency_is_unknown():
    found = analysis([("M", "net", 1)], [(0, 0, "", -1), (0, 1, "", 100)])
    assert compute_all(found)[0]["a01"]["sample_count"].tolist() == [1]


def test_the_reference_is_an_ordinary_iteration():
    kernels = [
        {"capture_id": 0, "iteration_index": i, "name": f"k{k}", "duration_ns": 10}
        for i, count in enumerate([5, 2, 2, 2])
        for k in range(count)
    ]
    found = analysis([("M/L/G", "net", 1)], [(0, i, "", 100) for i in range(4)], kernels=kernels)
    tables, findings = compute_all(found)
    assert tables["cases"]["reference_iteration_index"].tolist() == [1]
    assert len(tables["a08"]) == 2
    (unmatched,) = [f for f in findings if f.code == "launches-unmatched"]
    assert unmatched.count == 3 and unmatched.example == "k2"


def test_launches_that_some_iteration_lacks_are_counted():
    kernels = [
        {"capture_id": 0, "iteration_index": i, "name": f"k{k}", "duration_ns": 10 * (i + 1)}
        for i, count in enumerate([3, 3, 2])
        for k in range(count)
    ]
    tables, findings = compute_all(analysis([("", "", -1)], [(0, i, "", 100) for i in range(3)], kernels=kernels))
    assert tables["a08"]["sample_count"].tolist() == [3, 3, 2]
    assert [f.count for f in findings if f.code == "launches-unmatched"] == [1]


def test_equal_names_in_a_layer_are_matched_by_their_order():
    """Two launches of one name in one layer keep their own latencies (docs/paper.md, E11)."""
    kernels = [
        {"capture_id": 0, "iteration_index": i, "layer_index": 1, "name": "fft", "duration_ns": d + i}
        for i in range(3)
        for d in (400, 200)
    ]
    table = compute_all(analysis([("", "", -1)], [(0, i, "", 900) for i in range(3)], kernels=kernels))[0]["a08"]
    assert table["latency_ns"].tolist() == [401, 201]


def test_launch_order_is_by_launch_not_by_start():
    kernels = [
        {
            "capture_id": 0,
            "iteration_index": -1,
            "name": "second",
            "duration_ns": 1,
            "start_ns": 50,
            "launch_start_ns": 20,
        },
        {
            "capture_id": 0,
            "iteration_index": -1,
            "name": "first",
            "duration_ns": 1,
            "start_ns": 90,
            "launch_start_ns": 10,
        },
    ]
    table = compute_all(analysis([("", "", -1)], [], kernels=kernels))[0]["a08"]
    assert table["name"].tolist() == ["first", "second"]


def layer(capture_id, iteration_index, layer_index, path, latency_ns, call_index=0):
    return {
        "capture_id": capture_id,
        "iteration_index": iteration_index,
        "layer_index": layer_index,
        "layer_path": path,
        "layer_name": path,
        "latency_ns": latency_ns,
        "call_index": call_index,
    }


def test_layers_are_matched_by_path_even_when_numbered_differently():
    found = analysis(
        [("M/L", "net", 1), ("M/L/G", "net", 1)],
        [(0, 0, "", 100), (1, 0, "", 100)],
        layers=[layer(0, 0, 1, "a", 40), layer(0, 0, 2, "b", 60), layer(1, 0, 1, "b", 61), layer(1, 0, 2, "a", 41)],
        kernels=[
            {"capture_id": 1, "iteration_index": 0, "layer_index": 1, "name": "kb", "duration_ns": 6},
            {"capture_id": 1, "iteration_index": 0, "layer_index": 2, "name": "ka", "duration_ns": 4},
        ],
    )
    tables, findings = compute_all(found)
    assert list(
        zip(tables["a11"]["layer_name"], tables["a11"]["layer_latency_ns"], tables["a11"]["kernel_latency_ns"])
    ) == [("a", 40, 4), ("b", 60, 6)]
    assert dict(zip(tables["a08"]["name"], tables["a08"]["layer_name"])) == {"ka": "a", "kb": "b"}
    assert findings == []


def test_layers_of_the_kernel_run_only_are_shown_without_latency():
    found = analysis(
        [("M/L", "net", 1), ("M/L/G", "net", 1)],
        [(0, 0, "", 100), (1, 0, "", 100)],
        layers=[layer(0, 0, 1, "a", 40), layer(1, 0, 1, "a", 41), layer(1, 0, 2, "new", 5)],
        kernels=[{"capture_id": 1, "iteration_index": 0, "layer_index": 2, "name": "k", "duration_ns": 6}],
    )
    tables, findings = compute_all(found)
    assert tables["a02"]["layer_name"].tolist() == ["a"]
    a11 = tables["a11"].set_index("layer_name")
    assert np.isnan(a11.loc["new", "layer_latency_ns"]) and a11.loc["new", "kernel_latency_ns"] == 6
    assert [(f.code, f.example) for f in findings] == [("layers-of-kernel-run-only", "new")]
    assert tables["a13"]["layer_name"].tolist() == ["a"]


def test_two_layers_with_one_number_are_kept_apart():
    found = analysis(
        [("", "", -1)],
        [(0, 0, "", 100), (0, 1, "", 100)],
        layers=[layer(0, 0, 1, "left", 10), layer(0, 1, 1, "right", 20)],
    )
    table = compute_all(found)[0]["a02"]
    assert sorted(zip(table["layer_name"], table["latency_ns"])) == [("left", 10), ("right", 20)]
    assert table["layer_index"].is_unique


def test_cases_of_the_small_analysis():
    cases = find_cases(small_analysis())
    assert len(cases) == 1
    rows = cases.rows_of(np.array([2, 2, 9]), np.array([0, -1, 0]), np.array([-1, -1, -1]))
    assert rows[0] >= 0 and rows[1:].tolist() == [-1, -1]


# Batch sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throughput", "first", "last", "most", "within"),
    [
        ([100, 200, 400], 4, 4, 4, 4),  # always doubling: the top
        ([100, 101, 102], 1, 1, 4, 1),  # never gaining: the bottom
        ([100, 104, 208], 1, 4, 4, 4),  # a plateau before a jump: first and last differ
        ([100, 200, 150], 2, 2, 2, 2),  # falling
    ],
)
def test_policies(throughput, first, last, most, within):
    batch, rate = np.array([1, 2, 4]), np.array(throughput, float)
    found = [int(batch[optimal_position(batch, rate, policy)]) for policy in ("first", "last", "max", "within")]
    assert found == [first, last, most, within]


def test_gain_between_sizes_that_are_no_doubling_apart():
    gain = gain_per_doubling(np.array([1, 4, 6]), np.array([100.0, 121.0, 121.0]))
    assert gain[0] == pytest.approx(0.1) and gain[1] == 0 and np.isnan(gain[2])


def test_no_sweep_no_optimum():
    assert optimal_position(np.array([], dtype=np.int64), np.array([]), "first") == -1
    with pytest.raises(ValueError, match="median"):
        optimal_position(np.array([1, 2]), np.array([1.0, 2.0]), "median")


def test_speedup_is_relative_to_the_smallest_batch():
    found = analysis([("M", "net", b) for b in (2, 4)], [(0, 0, "", 1000), (1, 0, "", 1000)])
    tables = compute_all(found)[0]
    assert tables["throughput_scalability"]["speedup_ratio"].tolist() == [1, 2]
    gain = tables["a01"]["throughput_gain_ratio"].tolist()
    assert gain[0] == 1 and np.isnan(gain[1])


@pytest.mark.parametrize(
    ("rate", "optimal"),
    [
        ([10, 19, 30, 45, 46, 46.5], 8),  # the doubling to 8 is the last that gains
        ([10, 19, 30, 45, 41, 46.5], 8),  # a slow 16 does not make 32 a gain
        ([10, 19, 30, 45, 60, 46.5], 8),  # nor does a fast 16 make itself one
        ([10, 19, 19, 30, 31, 31.1], 8),  # a doubling without gain in between does not end it
        ([10, 9, 8, 7, 7, 7], 1),
        ([10, 20, 40, 80, 160, 320], None),  # every doubling gains: the sweep is not finished
    ],
)
def test_the_optimal_batch_is_what_the_last_gain_reaches(rate, optimal):
    batch = np.array([1, 2, 4, 8, 16, 32])
    position = optimal_position(batch, np.array(rate, float), "settled")
    assert (None if position < 0 else int(batch[position])) == optimal


def test_a_single_batch_size_is_not_optimal():
    assert optimal_position(np.array([8]), np.array([1.0]), "settled") == -1


def test_totals_are_trimmed_as_totals_and_parts_add_up_to_them_with_a_rest():
    """Two layers of a kernel each, of which one is slow in three executions of ten and the other in three others: each
    trimmed mean has two slow values less than the sums have."""
    count, slow = 10, {1: (0, 2, 4), 2: (5, 7, 9)}

    def of(layer, turn):
        return 1100 if turn in slow[layer] else 100

    kernels, layers = [], []
    for turn in range(count):
        for layer in (1, 2):
            place = {"capture_id": 0, "iteration_index": turn, "layer_index": layer}
            kernels.append({**place, "name": f"k{layer}", "short_name": "k", "duration_ns": of(layer, turn)})
            layers.append({**place, "layer_path": f"l{layer}", "layer_name": f"l{layer}", "layer_type": "Linear",
                           "call_index": 0, "latency_ns": of(layer, turn), "latency_source": "projection"})  # fmt: skip
    tables = compute_all(
        analysis([("M/L/G", "net", 1)], [(0, turn, "", 2000) for turn in range(count)], kernels, layers)
    )[0]
    a11, a15, summary = tables["a11"], tables["a15"].iloc[0], tables["workload_summary"].iloc[0]
    part = (100 * 5 + 1100) / 6  # of ten values, two to either side are left out
    assert a11["kernel_latency_ns"].tolist() == pytest.approx([part, part])
    assert a11["kernel_total_ns"].tolist() == pytest.approx([part, part])  # one kernel each: nothing to add up
    assert a11["kernel_rest_ns"].tolist() == pytest.approx([0, 0])
    whole = (200 * 2 + 1200 * 4) / 6
    assert (a15["kernel_total_ns"], a15["kernel_rest_ns"]) == pytest.approx((whole, whole - 2 * part))
    assert a15["gpu_latency_ratio"] == summary["gpu_latency_ratio"] == pytest.approx(whole / 2000)
    a06 = tables["a06"].iloc[0]
    assert (a06["latency_ns"], a06["total_latency_ns"]) == pytest.approx((2 * part, whole))
    assert a06["rest_latency_ns"] == summary["layer_rest_ns"] == pytest.approx(whole - 2 * part)
    assert summary["layer_total_ns"] == pytest.approx(whole)
