"""The last lines of a run: the cells of the tables, in words."""

from __future__ import annotations

import pandas as pd

from xsp_post.model.results import Analysis
from xsp_post.reports import headline
from xsp_post.reports.facts import spread

MS = 1e6
NAN = float("nan")


def models(*rows: tuple[int, str, float, bool]) -> pd.DataFrame:
    return pd.DataFrame([
        {"batch_size": batch, "phase": phase, "level": "M", "latency_ns": ms * MS, "ci_low_latency_ns": NAN,
         "ci_high_latency_ns": NAN, "interval_over": "", "sample_count": 5,
         "throughput_inputs_per_s": 1000 * batch / ms,
         "is_optimal": optimal}
        for batch, phase, ms, optimal in rows
    ])  # fmt: skip


def layers(count: int, batch: int = 4) -> pd.DataFrame:
    return pd.DataFrame([
        {"batch_size": batch, "phase": "forward", "layer_index": i, "layer_name": f"layer{i}", "layer_type": "Conv2d",
         "layer_path": f"model > layer{i}", "shape_text": "", "latency_ns": 2**i * MS, "latency_ratio": i / 100}
        for i in range(1, count + 1)
    ])  # fmt: skip


def overhead(**change) -> pd.DataFrame:
    row = {"event_kind": "model", "batch_size": 4, "phase": "forward", "level": "M/L", "compared_level": "M",
           "latency_ns": 12 * MS, "is_accurate": False, "overhead_ns": 2 * MS, "overhead_ratio": 0.2,
           "ci_low_overhead_ns": 1 * MS, "ci_high_overhead_ns": 3 * MS, "interval_over": "captures",
           "verdict": "overhead"}  # fmt: skip
    return pd.DataFrame([{**row, **change}])


def text(**frames: pd.DataFrame) -> str:
    return "\n".join(headline.lines(Analysis(frames)))


def test_latency_throughput_top_five_and_overhead_are_said():
    said = text(a01=models((4, "forward", 10, True)), a02=layers(7), overhead=overhead())
    assert "batch    4    10.0 ms" in said and "400.0 inputs/s  (n=5)" in said
    assert [f"layer{i}" in said for i in range(1, 8)] == [False, False, True, True, True, True, True]
    assert "M/L      12.0 ms  +2.00 ms on M (+20.0 %) [1.00 ms … 3.00 ms]: overhead" in said


def test_a_latency_with_a_wide_interval_is_called_uncertain():
    row = models((1, "forward", 10, True)).assign(ci_low_latency_ns=-30 * MS, ci_high_latency_ns=50 * MS)
    assert "(n=5): too uncertain to rely on" in text(a01=row) and "…" not in text(a01=row)
    assert spread(row.iloc[0]) == "no interval: 5 samples say too little"
    assert "uncertain" not in text(a01=row.assign(ci_low_latency_ns=9.9 * MS, ci_high_latency_ns=10.1 * MS))


def test_the_option_that_narrows_the_interval_is_said():
    row = models((1, "forward", 10, True))
    captures = pd.DataFrame({"level": ["M", "M/L"] * 4, "batch_size": [1] * 8})
    wide = row.assign(ci_low_latency_ns=8 * MS, ci_high_latency_ns=12 * MS)
    said = headline.advice(Analysis({"a01": wide, "captures": captures}))
    assert "±20.0 %, over 4 processes" in said and "--resume --repeat 16" in said and "other work" in said
    assert "--threads" not in said
    assert "--threads 1" in headline.advice(Analysis({"a01": wide, "captures": captures}), has_threads=True)
    narrow = row.assign(ci_low_latency_ns=9.9 * MS, ci_high_latency_ns=10.1 * MS)
    said = headline.advice(Analysis({"a01": narrow, "captures": captures}))
    assert "±1.0 %" in said and "--repeat 8" in said and "other work" not in said
    assert headline.advice(Analysis({"a01": row, "captures": captures[:2]})).endswith("--repeat 5")
    assert headline.advice(Analysis({})) == ""


def test_a_difference_between_programs_has_no_number():
    row = overhead(overhead_ns=NAN, overhead_ratio=NAN, verdict="no overhead: with layer ranges other code runs")
    assert "M/L      12.0 ms  no overhead: with layer ranges other code runs" in text(overhead=row)


def test_the_optimum_is_marked_in_a_sweep_only():
    assert "optimal" in text(a01=models((1, "forward", 10, False), (2, "forward", 11, True)))
    assert "optimal" not in text(a01=models((2, "prefill", 10, True), (2, "decode", 1, True)))


def test_a_negative_overhead_keeps_its_sign():
    row = overhead(overhead_ns=-2 * MS, overhead_ratio=-0.2, verdict="negative: the deeper run was faster")
    said = text(overhead=row)
    assert "−2.00 ms on M (−20.0 %)" in said and "negative" in said


def test_a_difference_of_pairs_says_that_it_is_not_one_of_the_latencies_beside_it():
    said = text(overhead=overhead(interval_over="pairs"))
    assert "[1.00 ms … 3.00 ms] between neighbouring blocks of one process: overhead" in said
    assert "neighbouring" not in text(overhead=overhead())


def test_what_noise_explains_has_no_percentage():
    """+61.8 ms (+9302 %) reads like a result, though the interval says that nothing was shown."""
    row = overhead(latency_ns=100 * MS, overhead_ns=61.8 * MS, overhead_ratio=93.02, ci_low_overhead_ns=-38.2 * MS,
                   ci_high_overhead_ns=200 * MS, verdict="no overhead shown", is_significant=False)  # fmt: skip
    said = text(overhead=row)
    assert "+61.8 ms on M is within the noise [-38.2 ms … 200 ms]: no overhead shown" in said and "9302" not in said
    alone = text(overhead=row.assign(ci_low_overhead_ns=50.0 * MS, verdict="no overhead shown: within one process"))
    assert "+61.8 ms on M [50.0 ms … 200 ms]: no overhead shown: within one process" in alone
    assert "+61.8 ms on M (94 times)" in text(overhead=row.assign(verdict="overhead", is_significant=True))


def test_a_run_ends_with_its_warnings_and_counts_the_rest(tmp_path):
    import xsp_post.hierarchy  # noqa: F401  (its findings are in the catalogue)
    from xsp_post.base.findings import finding
    from xsp_post.commands.run import _findings

    codes = ["no-kernels", "no-ranges", "warmup-detected", "one-iteration", "graph-launches"]
    analysis = Analysis({}, [finding(code) for code in codes] * 2)
    said = _findings(analysis, tmp_path / "s.xsp.sqlite")
    kinds = [line.split(":")[0] for line in said]
    assert kinds[0] == "Warning" and kinds == sorted(kinds, key=lambda kind: {"Warning": 0, "Info": 1}.get(kind, 2))
    assert sum(line.startswith("Warning: Only one iteration") for line in said) == 1
    assert said[-1].endswith("s.xsp.sqlite") and "xsp-post table findings" in said[-1]


def test_equal_layers_are_one_line_as_on_the_page():
    same = layers(6).assign(latency_ns=lambda rows: rows["layer_index"].gt(1) * MS + MS)
    said = text(a02=same)
    assert "5 × layer*" in said and "10.0 ms" in said and "layer1" in said and "layer6" not in said
    assert "Top layers" not in text(a02=same.assign(latency_ns=NAN))  # of a training step


def test_top_layers_are_of_the_largest_batch_size_measured():
    said = text(a02=pd.concat([layers(3, batch=1), layers(3, batch=8)]))
    assert "batch 8" in said and "batch 1)" not in said


def test_names_cannot_drive_the_terminal():
    frame = layers(1)
    frame[["layer_name", "layer_path"]] = "\x1b[2Jevil"
    assert "\x1b" not in text(a02=frame)


def test_nothing_measured_says_nothing_wrong():
    assert headline.data(Analysis({})) == {"models": [], "layers": [], "overheads": []}
