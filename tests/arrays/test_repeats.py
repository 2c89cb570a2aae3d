"""Rows numbered by what they share, their sums, and siblings that differ in digits only."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays.repeats import fold_with_targets, numbered, pair_numbers, summed, without_numbers

_ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x"]), st.integers(0, 9)), min_size=1)


@given(_ROWS)
def test_sums_are_those_of_a_group_by(rows):
    frame = pd.DataFrame(rows, columns=["key", "kind", "time_ns"]).astype({"kind": "category"})
    found = summed(frame.assign(longest_ns=frame["time_ns"]), ["key", "kind"], {"time_ns": "sum", "longest_ns": "max"})
    groups = frame.astype({"kind": object}).groupby(["key", "kind"], sort=False)["time_ns"]
    expected = groups.agg(time_ns="sum", longest_ns="max").reset_index()
    assert found.astype(object).to_numpy().tolist() == expected.astype(object).to_numpy().tolist()


def test_numbers_are_in_the_order_in_which_rows_are_met():
    number, first = numbered(pd.DataFrame({"a": [7, 3, 7, 3], "b": ["x", "x", "x", "y"]}), ["a", "b"])
    assert number.tolist() == [0, 1, 0, 2]
    assert first.tolist() == [0, 1, 3]


def test_codes_of_eight_bits_do_not_overflow():
    codes = np.array([127, -1, 127], np.int8)
    assert pair_numbers(np.array([1, 1, 1], np.int8), codes).tolist() == [0, 1, 0]


def test_no_rows():
    number, first = numbered(pd.DataFrame({"a": np.zeros(0, object), "b": np.zeros(0, np.int64)}), ["a", "b"])
    assert len(number) == len(first) == 0
    frame = pd.DataFrame({"a": np.zeros(0, object), "time_ns": np.zeros(0, np.int64)})
    assert summed(frame, ["a"], {"time_ns": "sum"}).empty


@pytest.mark.parametrize("dtype", ["str", "object", "category"])
def test_texts_that_differ_in_digits_share_a_number(dtype):
    names = pd.Series(["layer 1", "layer 22", "loss", "layer x"], dtype=dtype)
    together = pd.concat([names[:2], names[2:]])  # Arrow keeps the parts apart
    for texts in (names, together, together.astype("str")):
        codes, has_number = without_numbers(texts)
        assert codes.tolist() == [0, 0, 1, 2] and has_number.tolist() == [True, True, False, False]


def test_digits_of_any_script_are_digits():
    codes, has_digits = without_numbers(pd.Series(["h.1", "h.23", "h.٣", "h.x", "h.²"]))
    assert codes[0] == codes[1] == codes[2]
    assert len({*codes.tolist()}) == 3
    assert has_digits.tolist() == [True, True, True, False, False]


def _paths(names):
    count = len(names)
    return pd.DataFrame(
        {
            "path_id": np.arange(count), "parent_path_id": np.where(np.arange(count) == 0, -1, 0), "name": names,
            "span_kind": "push_pop", "call_count": 1, "first_start_ns": np.arange(count), "device_ns": 10,
        }
    )  # fmt: skip


def test_siblings_that_differ_in_digits_are_one_row():
    folded, target = fold_with_targets(_paths(["root", "h.0", "h.1", "tail", "h.2"]).iloc[::-1])
    assert folded["shown_name"].tolist() == ["root", "h.0 … h.2", "tail"]
    assert folded["repeat_count"].tolist() == [1, 3, 1]
    assert folded["device_ns"].tolist() == [10, 30, 10]
    assert target.tolist() == [0, 1, 1, 3, 1]


def test_where_nothing_is_alike_all_stays():
    paths = _paths(["root", "one", "two", "layer 7", "layer 8"])
    folded, target = fold_with_targets(paths)
    assert folded["shown_name"].tolist() == paths["name"].tolist()
    assert target.tolist() == [0, 1, 2, 3, 4]
    assert not folded["is_folded"].any()
    assert folded["repeat_count"].tolist() == [1] * 5


def test_two_siblings_stay_beside_three_that_fold():
    folded, target = fold_with_targets(_paths(["root", "h.0", "h.1", "h.2", "side 1", "side 2"]))
    assert folded["shown_name"].tolist() == ["root", "h.0 … h.2", "side 1", "side 2"]
    assert target.tolist() == [0, 1, 1, 1, 4, 5] and folded["repeat_count"].tolist() == [1, 3, 1, 1]
