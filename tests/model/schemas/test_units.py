"""units.py: what people read. A wrong prefix is a wrong number."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.model.schemas import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (1_234_567, "1.23 ms"),
        (275_050_000, "275 ms"),
        (999_960, "1.00 ms"),
        (61_000_000_000, "61.0 s"),
        (1_234_000_000_000, "1,234 s"),
        (-1_500, "-1.50 µs"),
        (12.5, "12.5 ns"),
        (np.int64(2_000), "2.00 µs"),
    ],
)
def test_nanoseconds(value, text):
    assert units.format_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1_572_864, "1.50 MiB"),
        (25_690_112, "24.5 MiB"),
        (3 * 2**40, "3.00 TiB"),
    ],
)
def test_bytes_are_binary_and_say_so(value, text):
    assert units.format_bytes(value) == text


def test_flop_and_rates_are_decimal():
    assert units.format_flop(77.42e9) == "77.4 Gflop"
    assert units.format_flop(0) == "0 flop"
    assert units.format_flop_per_s(12.8e12) == "12.8 Tflop/s"
    assert units.format_bytes_per_s(900e9) == "900 GB/s"
    assert units.format_flop_per_byte(876.97) == "877 flop/B"
    assert units.format_flop_per_byte(0.2588) == "0.26 flop/B"
    assert units.format_inputs_per_s(930.74) == "930.7 inputs/s"
    assert units.format_hz(1.53e9) == "1.53 GHz"


def test_percent():
    assert units.format_ratio_percent(0.3088) == "30.9 %"
    assert units.format_ratio_percent(0.3088, decimals=2) == "30.88 %"
    assert units.format_ratio_percent(0.0) == "0.0 %"
    assert units.format_ratio_percent(1e-9) == "<0.1 %"
    assert units.format_ratio_percent(-1e-9) == "0.0 %"
    assert units.format_ratio_percent(-0.05) == "-5.0 %"
    assert units.format_ratio_percent(12.345) == "1,234.5 %"


def test_factors_and_changes_are_written_as_people_write_them():
    times = {1.2: "1.20", 9.876: "9.88", 500.0: "500", 1030.4: "1,030", 65_500.0: "65,500", 0.0078: "0.00780"}
    assert [units.format_times(one) for one in times] == list(times.values())
    changes = {
        0.05: "+5.0 %",
        -0.05: "−5.0 %",
        0.0: "0.0 %",
        9.9: "+990.0 %",
        655.0: "656 times",
        1029.0: "1,030 times",
    }
    assert [units.format_change(one) for one in changes] == list(changes.values())
    assert units.format_change(None) == units.format_times(None) == units.UNKNOWN
    assert units.format_ratio_interval(9.0, 655.0) == "+900.0 % … 656 times"
    assert [units.format_difference(one) for one in (1_230_000, -500, 0)] == ["+1.23 ms", "−500 ns", "0 ns"]


def test_counts():
    assert units.format_count(1_000_000) == "1,000,000"
    assert units.format_count(0) == "0"
    assert units.format_count(2.5) == "2.5"


@pytest.mark.parametrize("unknown", [None, math.nan, np.float64("nan"), pd.NA, pd.NaT])
def test_unknown_is_never_zero(unknown):
    for column in ("a_ns", "a_bytes", "a_flop", "a_flop_per_s", "a_flop_per_byte", "a_ratio", "a_count"):
        formatter = units.formatter_of(column)
        assert formatter is not None
        assert formatter(unknown) == units.UNKNOWN


def test_the_suffix_chooses_the_formatter():
    assert units.formatter_of("dram_bytes_per_s") is units.format_bytes_per_s
    assert units.formatter_of("latency_ns") is units.format_ns
    assert units.formatter_of("conv_ratio") is units.format_ratio_percent
    assert units.formatter_of("layer_count") is units.format_count
    assert units.formatter_of("layer_index") is None
    assert units.formatter_of("name") is None
    assert units.formatter_of("is_dominant_flop") is None  # a flag, not flop


_FACTOR = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_what_is_printed_is_within_half_a_percent(value):
    number, unit = units.format_ns(value).split(" ")
    assert math.isclose(float(number.replace(",", "")) * _FACTOR[unit], value, rel_tol=0.0051, abs_tol=0.5)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_mantissa_never_reaches_the_next_prefix(value):
    number, unit = units.format_ns(value * 1e3).split(" ")
    if unit != "s":
        assert abs(float(number)) < 1000


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.079, 0.079, "−7.9 % … +7.9 %"),
        (0.0, 0.5, "0.0 % … +50.0 %"),
        (-6.36, 7.1, "too uncertain to say"),
        (-1.01, -0.97, "−100.0 % … −97.0 %"),
    ],
)
def test_an_interval_that_would_make_a_time_negative_is_called_noise(low, high, text):
    assert units.format_ratio_interval(low, high) == text
