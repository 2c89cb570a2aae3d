"""Bars on comparisons written by hand: what is beyond one, what is sure, what could not be seen."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from xsp_post.base.errors import BarNotMetError, UndecidedError, UsageError
from xsp_post.compare.bars import check_bars, parse_bar
from xsp_post.model.results import Analysis

NAN = math.nan


@pytest.mark.parametrize(
    ("text", "limit", "is_relative"),
    [
        ("model_latency>3%", 0.03, True), ("model_latency>3ns", 3, False), ("model_latency>3us", 3e3, False),
        ("model_latency>3µs", 3e3, False), ("model_latency>3ms", 3e6, False), ("model_latency>3s", 3e9, False),
        ("kernel_count>2", 2, False), ("throughput<-5%", -0.05, True), ("memory_peak>1KiB", 1024, False),
        ("memory_peak>1KB", 1e3, False), ("memory_peak>2MiB", 2 * 2**20, False), ("memory_peak>1GiB", 2**30, False),
        ("memory_reserved>1MB", 1e6, False), ("memory_peak>1GB", 1e9, False), ("memory_peak>7B", 7, False),
        (" idle >= 1e-1 ms ", 1e5, False), ("copy_time<=.5%", 0.005, True), ("gpu_busy<+2.%", 0.02, True),
    ],
)  # fmt: skip
def test_conditions_are_read(text, limit, is_relative):
    bar = parse_bar(text)
    assert (bar.limit, bar.is_relative, bar.text, bar.name) == (pytest.approx(limit), is_relative, text.strip(), "")
    assert f"{bar.quantity}{bar.op}" in text.replace(" ", "")


def test_names_of_layers_and_kernels():
    assert parse_bar("layer_latency( a b )>1%").name == "a b"
    assert parse_bar("kernel_time(void f(int))>1%").name == "void f(int)"
    for text in ("model_latency(x)>1%", "nothing>1%", "model_latency>1", "kernel_count>1ms", "throughput>1ms",
                 "memory_peak>1ms", "model_latency>1MiB", "model_latency=1%", "model_latency>", ">1%"):  # fmt: skip
        with pytest.raises(UsageError):
            parse_bar(text)


def models(quantity="model_latency", base=100e3, other=110e3, p=0.01, *, spread=5e3, detectable=2e3) -> Analysis:
    row = {"quantity": quantity, "base_value": base, "other_value": other, "difference_value": other - base,
           "difference_ratio": other / base - 1, "ci_low_value": other - base - spread,
           "ci_high_value": other - base + spread, "p_value": p, "detectable_value": detectable}  # fmt: skip
    return Analysis({"compare_models": pd.DataFrame([row])}, [])


def outcome(comparison, *texts) -> str:
    try:
        said = check_bars(comparison, [parse_bar(text) for text in texts])
    except BarNotMetError as error:
        return error.code
    return "noise" if any("noise" in one for one in said) else "met"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model_latency>9%", "bar-not-met"), ("model_latency>10us", "met"), ("model_latency>=10us", "bar-not-met"),
        ("model_latency>9.9us", "bar-not-met"), ("model_latency>11%", "met"), ("model_latency<0%", "met"),
        ("model_latency<10us", "met"), ("model_latency<=10us", "bar-not-met"), ("model_latency<12%", "bar-not-met"),
    ],
)  # fmt: skip
def test_a_difference_beyond_the_bar_breaks_it(text, expected):
    assert outcome(models(), text) == expected


def test_what_may_be_noise_is_not_decided():
    assert outcome(models(p=0.049), "model_latency>5%") == "bar-not-met"
    assert outcome(models(p=0.051), "model_latency>5%") == "bar-undecided"
    assert outcome(models(p=0.051), "model_latency>=5%") == "bar-undecided"
    with pytest.raises(UndecidedError, match="it may be noise") as undecided:
        check_bars(models(p=0.051), [parse_bar("model_latency>5%")])
    assert undecided.value.exit_code == 7
    assert outcome(models(p=NAN), "model_latency>5%") == "bar-not-met"  # the value alone decides
    with pytest.raises(BarNotMetError, match="judged by the value alone"):
        check_bars(models(p=NAN), [parse_bar("model_latency>5%")])
    with pytest.raises(BarNotMetError, match=r"95 % interval \+5.0.*15"):
        check_bars(models(), [parse_bar("model_latency>5%")])


def test_a_bar_that_could_not_be_seen_is_no_pass():
    hidden = {"p": 0.5, "other": 100e3}
    assert outcome(models(**hidden, detectable=5.1e3), "model_latency>5%") == "bar-undecided"
    assert outcome(models(**hidden, detectable=5e3), "model_latency>5%") == "met"
    for text in ("model_latency>5.1%", "model_latency>=5.1%", "model_latency<-5.1%", "model_latency<=-5.1%"):
        assert outcome(models(**hidden, detectable=9e3), text) == "met"  # beyond the interval
    assert outcome(models(**hidden, detectable=5.1e3), "model_latency>5us") == "bar-undecided"
    assert outcome(models(**hidden, detectable=5e3), "model_latency>5us") == "met"
    assert outcome(models(**hidden, detectable=5.1e3), "model_latency<-5us") == "bar-undecided"
    assert outcome(models(**hidden, detectable=9e9), "model_latency>0%") == "met"  # any change: no one size
    assert outcome(models(**hidden, detectable=9e9), "model_latency>0%", "model_latency>1%") == "bar-undecided"


def test_throughput_is_the_reciprocal_of_the_latency():
    assert outcome(models(), "throughput<-9%") == "bar-not-met"
    assert outcome(models(), "throughput<-9.2%") == "met"  # 100/110 − 1 = −9.09 %
    assert outcome(models(base=110e3, other=100e3), "throughput>9.9%") == "bar-not-met"


def test_where_executions_overlap_throughput_is_that_of_the_period():
    latency, period = (one.frame("compare_models") for one in (models(), models("period", 100e3, 200e3)))
    both = Analysis({"compare_models": pd.concat([period, latency], ignore_index=True)}, [])
    assert outcome(both, "throughput<-49%") == "bar-not-met" and outcome(both, "throughput<-51%") == "met"
    assert outcome(both, "period>99%") == "bar-not-met" and outcome(both, "model_latency>11%") == "met"


def rows(table, name, *values) -> Analysis:
    """(name, base, other, p, adjusted p[, measure])."""
    frame = pd.DataFrame([
        {name: row[0], "base_latency_ns": row[1], "other_latency_ns": row[2], "difference_ns": row[2] - row[1],
         "difference_ratio": row[2] / row[1] - 1, "ci_low_difference_ns": 1.0, "ci_high_difference_ns": 2.0,
         "p_value": row[3], "adjusted_p_value": row[4], "detectable_difference_ns": 1.0,
         **({"measure": (*row, "latency")[5]} if table == "compare_layers" else {})} for row in values
    ])  # fmt: skip
    return Analysis({table: frame}, [])


def test_one_layer_is_one_question_and_any_layer_are_many():
    found = rows("compare_layers", "layer_path", ("a.b", 100.0, 120.0, 0.01, 0.2), ("a.bc", 100.0, 100.0, 0.9, 1.0),
                 ("a.b", 100.0, 500.0, 0.0, 0.0, "host_time"))  # fmt: skip
    assert outcome(found, "layer_latency(a.b)>10%") == "bar-not-met"  # exactly that one, by its own p-value
    assert outcome(found, "layer_latency>10%") == "noise"  # any of two, by the corrected one
    assert outcome(found, "layer_latency(A.B)>10%") == "noise"  # two contain it
    assert outcome(found, "layer_latency(bc)>10%") == "met"
    with pytest.raises(UsageError):
        outcome(found, "layer_latency(nothing)>10%")


def test_all_that_break_are_counted_and_three_are_named():
    found = rows("compare_kernels", "name", *((f"k{i}", 100.0, 200.0, 0.0, 0.0) for i in range(5)))
    with pytest.raises(BarNotMetError) as error:
        check_bars(found, [parse_bar("kernel_time>10%")])
    assert str(error.value).count("k0") == 1 and "k2" in str(error.value) and "k3" not in str(error.value)
    assert "(and 2 more)" in str(error.value)
    three = rows("compare_kernels", "name", *((f"k{i}", 100.0, 200.0, 0.0, 0.0) for i in range(3)))
    with pytest.raises(BarNotMetError) as error:
        check_bars(three, [parse_bar("kernel_time>10%")])
    assert "more)" not in str(error.value)


def test_totals_are_judged_by_their_values():
    totals = pd.DataFrame({
        "quantity": ["kernel_time", "idle", "memory_peak", "kernel_count"],
        "base_per_unit": [100.0, 10.0, 2.0**30, 4.0], "other_per_unit": [120.0, 10.0, 1.5 * 2.0**30, 6.0],
    })  # fmt: skip
    names = pd.DataFrame({"name": ["gemm", "gemm_2", "relu"], "base_mean_ns": [10.0, 10.0, 10.0],
                          "other_mean_ns": [20.0, 10.0, NAN]})  # fmt: skip
    empty = {"compare_layers": pd.DataFrame(), "compare_kernels": rows("compare_kernels", "name", ("k", 1.0, 1.0, 1, 1))
             .frames["compare_kernels"].iloc[:0]}  # fmt: skip
    found = Analysis({"compare_totals": totals, "compare_names": names, **empty,
                      "compare_models": models().frames["compare_models"]}, [])  # fmt: skip
    assert outcome(found, "kernel_time>19%") == "bar-not-met" and outcome(found, "kernel_time>20ns") == "met"
    assert outcome(found, "idle>=0%") == "bar-not-met" and outcome(found, "idle>0%") == "met"
    assert outcome(found, "memory_peak>511MiB") == "bar-not-met" and outcome(found, "memory_peak>513MiB") == "met"
    assert outcome(found, "kernel_count>1") == "bar-not-met" and outcome(found, "kernel_count>2") == "met"
    for text, said in (("kernel_count>1", "4 → 6"), ("kernel_time>19%", "100 ns → 120 ns"), ("memory_peak>1%", "GiB")):
        with pytest.raises(BarNotMetError, match=said):
            check_bars(found, [parse_bar(text)])
    assert outcome(found, "kernel_time(gemm)>99%") == "bar-not-met"
    assert outcome(found, "kernel_time(GEMM_2)>0%") == "met"
    with pytest.raises(UsageError):  # one side alone
        outcome(found, "kernel_time(relu)>0%")
    with pytest.raises(UsageError):
        outcome(found, "copy_time>0%")
