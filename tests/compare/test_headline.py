"""What a comparison opens with: both times of one window, their ratio, and one word."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from generators.machine import write
from generators.simulator import Act, Machine, Program, World
from helpers import called
from test_compare import run
from told_score import program_of

from xsp_post.base.errors import BarNotMetError, UndecidedError
from xsp_post.compare import check_bars, compare, parse_bar
from xsp_post.compare.headline import LATENCY, PERIOD, _elapsed, _executions, _of_executions, _paces
from xsp_post.compare.impact import are_unlike
from xsp_post.compare.matching import match_cases
from xsp_post.compare.statements import sentence_of
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze

STEP = tuple(act for k in range(20) for act in (Act("host", 5_000), Act("kernel", 60_000, "gemm" if k % 2 else "relu")))
WAITING = Program(1, (), World(), (((*STEP, Act("sync", mode="device")),),), steps=8)
AHEAD = replace(WAITING, ranks=((STEP,),))


def first(tmp_path, base, other):
    sides = []
    for salt, (name, program) in enumerate((("base", base), ("other", other))):
        path = Machine(program, salt).run().write(tmp_path / f"{name}.sqlite")
        sides.append(analyze([path], Options(model_range="^step")))
    return compare(*sides).frame("compare_summary")["statement"].iloc[0]


def slower(program, factor):
    acts = tuple(replace(act, ns=round(act.ns * factor)) for act in program.ranks[0][0])
    return replace(program, ranks=((acts,),))


def test_two_runs_of_one_program_are_the_same(tmp_path):
    assert re.match(
        r"The same: 1\.2\d ms → 1\.2\d ms an execution, (1\.0|0\.99)\d* times ", first(tmp_path, WAITING, WAITING)
    )


@pytest.mark.parametrize(("factor", "word"), [(1.5, "Slower"), (0.5, "Faster"), (40.0, "Slower"), (0.02, "Faster")])
def test_both_times_and_their_ratio_open_the_comparison(factor, word, tmp_path):
    said = first(tmp_path, WAITING, slower(WAITING, factor))
    assert said.startswith(f"{word}: 1.2") and " an execution, " in said
    ends = re.search(r"interval (.+?) (%|times) … (.+?) (%|times)", said)
    low, high = (float(ends[k].replace("−", "-").replace(",", "")) for k in (1, 3))
    assert -100 < low < high and (low > 0) == (word == "Slower") == (high > 0)
    assert (ends[2] == "times") == (factor >= 11)


@pytest.mark.parametrize(
    ("base", "other", "word"),
    [
        ([10, 11, 10, 12, 11, 300], [2, 2.1, 2, 2.2, 2, 2], "faster"),  # something else disturbed one execution
        ([2, 2.1, 2, 2.2, 2, 2], [10, 11, 10, 12, 11, 300], "slower"),
        ([10, 11, 10, 12, 11, 300], [10, 10, 11, 12, 11, 12], "undecided"),
        ([300, 1, 2, 80, 5, 1], [290, 1, 1, 40, 8, 2], "undecided"),
    ],
)
def test_one_disturbed_execution_decides_nothing(base, other, word):
    rows = [
        pd.DataFrame({"latency_ns": np.array(times) * 1e6, "capture_id": 0, "process_id": 1, "batch_size": -1,
                      "pace": np.nan, "loading_ns": 0.0})
        for times in (base, other)
    ]  # fmt: skip
    said = _of_executions(rows, 0.05, 1.0)
    assert said is not None and said.word == word and -1 < said.low < said.ratio - 1 < said.high


@pytest.mark.parametrize(
    ("slowest", "end"),
    [
        (13.0, "; on average 0.500 times as long: slow executions are 1 of 12, then 0 of 12."),
        (2.0, "how runs differ is assumed)."),  # the mean, 0.92 times as long, is the same as well
    ],
)
def test_what_few_slow_executions_take_is_said_where_the_usual_one_takes_the_same(slowest, end):
    base = [1.0, 1.01, 0.99, 1, 1.01, 1, 0.99, 1, 1, 1.01, 0.99]
    rows = [
        pd.DataFrame(
            {
                "latency_ns": np.array([*base, last]) * 1e6,
                "capture_id": 0,
                "batch_size": -1,
                "pace": np.nan,
                "loading_ns": 0.0,
            }
        )
        for last in (slowest, 1.0)
    ]
    said = _of_executions(rows, 0.02, 1.0)
    assert said is not None and said.word == "same" and sentence_of(said).endswith(end)


@pytest.mark.parametrize(
    ("slow", "loading", "word"),
    [
        ([], 0, "same"),
        ([20.0], 0, "same"),  # one alone: something else may have disturbed it
        ([20.0], 10, "faster"),  # half of what it takes longer is loading or compiling of code
        ([20.0], 9, "same"),
        ([20.0, 25.0], 0, "faster"),  # of one kind, twice
        ([20.0, 31.0], 0, "undecided"),  # they are unlike
        ([2.9, 2.9], 0, "undecided"),  # disturbed executions may take so long
        ([3.1, 3.1], 0, "faster"),
    ],
)
def test_slow_executions_decide_where_they_are_no_chance(slow, loading, word):
    rows = [
        pd.DataFrame({"latency_ns": np.array([1.0, 1.01, 0.99, 1, 1.01, 1, *more]) * 1e6, "capture_id": 0,
                      "batch_size": -1, "pace": np.nan, "loading_ns": [0.0] * 6 + [of_them * 1e6] * len(more)})
        for more, of_them in ((slow, loading), ([], 0))
    ]  # fmt: skip
    for sides in (rows, rows[::-1]):
        said = _of_executions(sides, 0.02, 1.0)
        wanted = {"faster": "slower"}.get(word, word) if sides is not rows else word
        assert said is not None and said.word == wanted and said.low < said.ratio - 1 < said.high, said
        if word == "faster":
            assert said.usual_ns == pytest.approx((1e6, 1e6), rel=0.01) and "by slow executions" in sentence_of(said)


@pytest.mark.parametrize(
    ("paces", "window", "word"),
    [
        ((10.0, 4.1), PERIOD, "faster"),  # what lay between two executions went
        ((4.4, 4.3), LATENCY, "same"),  # it is little, and on both sides
        ((4.4, 4.0), PERIOD, "faster"),  # as little, but it went
        ((np.nan, 4.1), LATENCY, "same"),  # one execution, or other kinds between
        ((2.0, 4.1), PERIOD, "slower"),  # they overlapped
    ],
)
def test_the_time_between_executions_counts_where_it_is_much(paces, window, word):
    rows = [
        pd.DataFrame(
            {
                "latency_ns": 4e6,
                "capture_id": 0,
                "batch_size": -1,
                "pace": [np.nan, *[pace * 1e6] * 5],
                "loading_ns": 0.0,
            }
        )
        for pace in paces
    ]
    said = _of_executions(rows, 0.02, 1.0)
    assert said is not None and (said.window, said.word) == (window, word)


def test_a_pace_is_that_of_executions_of_one_kind_in_a_row():
    case = np.array([0, 0, 1, 0, 0])
    rows = pd.DataFrame({"case_index": case, "is_measured": True, "is_model": True, "latency_ns": 4.0, "capture_id": 0,
                         "iteration_index": np.arange(5), "process_id": 1, "start_ns": np.arange(5) * 10,
                         "end_ns": np.arange(5) * 10 + 4, "device_offset_ns": 1.0,
                         "projection_ns": [3.0, 3, 3, 3, 5]})  # fmt: skip
    frame = pd.DataFrame({"phase": ["prefill", "decode"], "batch_size": -1})
    side = SimpleNamespace(
        cases=SimpleNamespace(iterations=rows, frame=frame), pair_of_case=np.array([0, 1]), results=Analysis({})
    )
    assert _executions(side)["pace"].fillna(-1).tolist() == [-1, 10, -1, -1, 12]
    # three threads end theirs together
    rows = pd.DataFrame({"case_index": 0, "end": [30, 31, 32, 60, 61, 62], "start_ns": [0, 1, 2, 30, 31, 32]})
    assert _paces(rows.assign(end_ns=rows["end"])).fillna(-1).tolist() == [-1, -1, -1, 10, -1, -1]


def test_host_code_between_executions_is_part_of_the_pace_and_of_the_causes(tmp_path):
    """It lies in no range."""
    sides = []
    for name, between in (("base", 900), ("other", 50)):
        export, at = ExportBuilder().process(100).thread(100).gpu(), 0
        for number in range(8):
            begin = at
            for _ in range(12):
                export.kernel("gemm", launch=(at * 1000, at * 1000 + 4000), run=(at * 1000 + 5000, at * 1000 + 55_000))
                at += 50
            export.range(f"step {number}", begin * 1000, (at + 10) * 1000)
            at += 10 + between
        sides.append(analyze([export.write(tmp_path / f"{name}.sqlite")], Options(model_range="^step")))
    compared = compare(*sides)
    rows = compared.frame("compare_models").set_index("quantity")
    assert rows.index[0] == "period" and rows.loc["period", "other_value"] == pytest.approx(660e3, rel=0.01)
    said = compared.frame("compare_summary").set_index("subject")["statement"]
    assert said["verdict"].startswith("Faster: 1.51 ms → 660 µs from one execution to the next, 2.29 times as fast")
    assert "−850 µs waiting for the host between executions" in said["causes"]
    assert_parts_sum(said)


@pytest.mark.parametrize(
    ("paces", "mean"),
    [
        ([170, 172, 171, 280] * 4, 198.25),  # four streams take turns
        ([20, 21, 20, 19, 20, 21, 300], 20.17),  # a pause
        ([55, 20, 21, 20, 19, 20, 21], 20.17),  # a first one that still loads code
        ([20, 19, 14, 9, 16, 17, 9], 14.86),  # all of them are disturbed
        ([5, 5], 5),
    ],
)
def test_elapsed_time_is_a_mean_without_pauses(paces, mean):
    assert _elapsed(np.array(paces, float)) == pytest.approx(mean, abs=0.01)


def steps(path, marked, reads):
    """Eight steps of twelve blocks, the results of some read back; ranges around so many steps."""
    export, at, begin = ExportBuilder().process(100).thread(100).gpu(), 0, 0
    for number in range(8):
        begin = begin if number % marked else at
        for block in range(12):
            for name in ("norm", "gemm", "gelu", "gemm2"):
                launch = (at * 1000, at * 1000 + 4000)
                export.kernel(name, launch=launch, run=(at * 1000 + 6000, at * 1000 + 30_000))
                at += 50
            if block in reads:
                call, run = ((at * 1000 + first, at * 1000 + last) for first, last in ((0, 60_000), (40_000, 41_000)))
                export.memcpy(4, kind="DtoH", launch=call, run=run)
                at += 80 + number + block % 3
        if number % marked == marked - 1:
            export.range(f"{'epoch' if marked > 1 else 'step'} {number // marked}", begin * 1000, (at + 4) * 1000)
        at += 6
    return analyze([export.write(path)], Options(model_range="^(epoch|step)"))


def is_guess(analysis):
    analysis.frame("execution_candidates")["confidence"] = "low"
    return analysis


@pytest.mark.parametrize(
    ("marked", "guess", "reads", "word", "ratio"),
    [
        (4, False, range(12), "Faster", 0.73),  # ranges around four steps, and around one
        (4, False, [11], "The same", 1.0),
        (8, True, range(12), "Faster", 0.73),  # where nothing marks a step, the whole recording is taken for one
    ],
)
def test_executions_that_hold_several_of_the_other_side_are_no_unit(marked, guess, reads, word, ratio, tmp_path):
    base, other = steps(tmp_path / "base.sqlite", marked, reads), steps(tmp_path / "other.sqlite", 1, [11])
    said = compare(is_guess(base) if guess else base, other).frame("compare_summary").set_index("subject")["statement"]
    times = re.match(rf"{word}: ([\d.]+) ms → ([\d.]+) ms for the same kernels, ", said["verdict"])
    assert times, said["verdict"]
    assert float(times[2]) / float(times[1]) == pytest.approx(ratio, abs=0.03)
    if word == "Faster":
        assert_parts_sum(said)


def test_forecasts_and_their_steps_are_no_unit(tmp_path):
    """One program twice: its steps are found in one recording, the ranges around five of them each in the other."""
    sides = [analyze([write(program_of("weather_rollout", ranges), tmp_path / ranges)]) for ranges in ("marks", "all")]
    said = compare(*sides).frame("compare_summary").set_index("subject")["statement"]
    assert [len(side.frame("iterations")) for side in sides] == [20, 4]
    assert re.match(r"The same: [\d.]+ ms → [\d.]+ ms for the same kernels", said["verdict"]), said["verdict"]


def test_ranges_of_one_name_are_one_unit_whatever_they_hold(tmp_path):
    """Half of the work went: that is faster."""
    base = steps(tmp_path / "base.sqlite", 1, [11])
    half = steps(tmp_path / "other.sqlite", 1, [11])
    iterations = base.frame("iterations")
    assert not iterations["is_inferred"].any() and len(iterations) == 8
    kernels = half.frame("kernels")
    half.frames["kernels"] = kernels[kernels.groupby("iteration_index").cumcount() < 24]
    assert not are_unlike(match_cases(base, half)[1])
    base.frames["iterations"] = iterations.assign(is_inferred=True)  # what was found in the kernels may be anything
    assert are_unlike(match_cases(base, half)[1])


def test_executions_that_overlap_are_compared_by_their_pace(tmp_path):
    """The host runs ahead: the last executions wait for seven others, and their latency says nothing of one."""
    said = first(tmp_path, AHEAD, slower(AHEAD, 1.6))
    times = re.match(r"Slower: ([\d.]+) ms → ([\d.]+) ms from one execution to the next, 1\.(5|6)\d* times", said)
    assert times and float(times[1]) == pytest.approx(1.22, rel=0.03)
    assert float(times[2]) == pytest.approx(1.94, rel=0.03)


def test_one_execution_on_each_side_prints_both_times(tmp_path):
    once = replace(WAITING, steps=1)
    said = first(tmp_path, once, slower(once, 1.05))
    assert said.startswith("Not decided: 1.2") and "Several executions of each side would decide it." in said
    assert first(tmp_path, once, slower(once, 2.0)).startswith("Slower: 1.2")


def test_the_parts_sum_to_the_difference_of_the_headline(tmp_path):
    sides = []
    for salt, program in enumerate((AHEAD, slower(AHEAD, 1.6))):
        path = Machine(program, salt).run().write(tmp_path / f"{salt}.sqlite")
        sides.append(analyze([path], Options(model_range="^step")))
    assert_parts_sum(compare(*sides).frame("compare_summary").set_index("subject")["statement"])


def assert_parts_sum(said):
    units = {"ms": 1e6, "µs": 1e3, "ns": 1.0}
    parts = [float(sign.replace("−", "-") + number) * units[unit]
             for sign, number, unit in re.findall(r"([+−])([\d.]+) (ms|µs|ns)", said["causes"])]  # fmt: skip
    times = re.search(r": ([\d.]+) (ms|µs) → ([\d.]+) (ms|µs)", said["verdict"]).groups()
    base, other = (float(number) * units[unit] for number, unit in (times[:2], times[2:]))
    assert parts[0] == pytest.approx(other - base, rel=0.03)
    assert sum(parts[1:]) == pytest.approx(parts[0], rel=0.01)


def test_the_first_example_of_the_page_for_continuous_integration_is_green_without_a_change(tmp_path, root):
    """Two recordings of one program; a slower one is not green, and a bar that cannot be decided has its own code."""
    example = re.search(r"```sh\n(xsp-post compare .+?)```", (root / "docs" / "ci.md").read_text(), re.DOTALL)[1]
    command = shlex.split(example.split(">")[0] + ">" + example.split(">")[1])  # without the file at the end
    assert command[:4] == ["xsp-post", "compare", "main.xsp.sqlite", "change.xsp.sqlite"]
    for salt, (name, program) in enumerate((("main", WAITING), ("change", WAITING), ("slow", slower(WAITING, 1.3)))):
        Machine(program, salt).run().write(tmp_path / f"{name}.sqlite")
        done = called("ingest", f"{name}.sqlite", "--model-range", "^step", "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    green = called(*command[1:], cwd=tmp_path)
    assert green.returncode == 0 and green.stdout.startswith("### The same: "), green.stderr
    slow = called(*[one.replace("change", "slow") for one in command[1:]], cwd=tmp_path)
    assert slow.returncode == 1 and "[bar-not-met]" in slow.stderr
    unsure = called(*[one.replace("10%", "3%") for one in command[1:]], cwd=tmp_path)
    assert unsure.returncode == 7 and "[bar-undecided]" in unsure.stderr


def recorded(seed, before_ms, within_ms):
    """One recording of a program whose steps took so long before it and within it, by `record`'s own clock."""
    results = run(seed, repeats=1, scale=within_ms / 200, iterations=5)
    steps = {"step_awake_ns": before_ms * 1e6, "step_recorded_ns": within_ms * 1e6}
    return replace(results, frames={**results.frames, "captures": results.frame("captures").assign(**steps)})


@pytest.mark.parametrize(
    ("before", "within", "word"),
    [(110, 12.5, "Not decided"), (98, 116, "Faster"), (186, 220, "The same"), (170, 90, "Not decided"),
     (360, 440, "Slower"), (np.nan, 12.5, "Faster")],
)  # fmt: skip
def test_steps_outside_the_recordings_that_changed_otherwise_widen_the_interval(before, within, word):
    """Two measurements of one change, within the recordings and outside: the interval holds both, and all else that is
    said agrees with it."""
    comparison = compare(recorded(1, 186, 220), recorded(2, before, within))
    summary = comparison.frame("compare_summary")
    said = summary["statement"].iloc[0]
    assert said.startswith(f"{word}: ")
    is_unlike = abs(np.log(within / 220 * 186 / before)) > 0.1
    assert ("steps outside the recordings changed by" in said) == is_unlike
    row = comparison.frame("compare_models").set_index("quantity").loc["model_latency"]
    if is_unlike:
        assert row["ci_low_value"] < (before / 186 - 1) * row["base_value"] < row["ci_high_value"]
    assert row["change"] == {"Faster": "less", "Slower": "more"}.get(word, "no difference shown")
    ends = [f"{abs(row[end] / row['base_value']):.1%}".replace("%", " %") for end in ("ci_low_value", "ci_high_value")]
    assert all(end in said for end in (ends if word != "The same" else [max(ends, key=lambda x: float(x[:-2]))]))
    assert summary["is_difference"].any() == (word in ("Faster", "Slower"))
    bar = parse_bar("model_latency>3%")
    outcome = {"Slower": BarNotMetError, "Not decided": UndecidedError, "The same": UndecidedError}.get(word)
    with pytest.raises(outcome) if outcome else nullcontext():
        check_bars(comparison, [bar])


def with_sizes(results, batch, width):
    """A layer of that width, on so many samples."""
    sizes = {"aten::addmm": [[width], [batch, 256], [256, width]], "aten::gelu": [[batch, width]],
             "aten::mm": [[batch, width], [width, 256]]}  # fmt: skip
    rows = pd.DataFrame(
        {"operator": list(sizes), "sizes": [json.dumps(one) for one in sizes.values()], "call_count": 5}
    )
    unsaid = {name: results.frame(name).assign(batch_size=-1) for name in ("captures", "iterations")}
    return replace(results, frames={**results.frames, **unsaid, "operators": rows})


@pytest.mark.parametrize(("batch", "width", "is_input"), [(128, 1024, True), (64, 2048, False)])
def test_a_wider_layer_is_another_model_and_no_larger_input(batch, width, is_input):
    sides = [with_sizes(run(1, repeats=1), 64, 1024), with_sizes(run(2, repeats=1, scale=2), batch, width)]
    said = compare(*sides).frame("compare_summary")["statement"].iloc[0]
    assert ("for inputs of 2 times the size" in said) == is_input
