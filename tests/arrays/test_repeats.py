"""Rows numbered by what they share, their sums, and siblings that differ in digits only."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.repeats import dense, fold_with_targets, numbered, summed, without_numbers

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
    assert dense(np.array([1, 1, 1], np.int8), codes)[0].tolist() == [0, 1, 0]


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


_TREES = st.lists(
    st.tuples(st.integers(0, 100), st.sampled_from(["h.0", "h.1", "h.22", "x", "y 3"]), st.integers(1, 2)),
    min_size=1, max_size=14,
)  # fmt: skip


def _folded_by_loop(parent, names, calls, kinds, minimum):
    """The row that each row is in."""
    count = len(parent)
    below = [[row for row in range(count) if parent[row] == one] for one in range(-1, count)]
    erased = [re.sub(r"\d+", "#", name) for name in names]

    def shape(row):
        return erased[row], calls[row], tuple(sorted(shape(child) for child in below[row + 1]))

    target = list(range(count))

    def carry(row, other):
        for mine, theirs in zip(*(sorted(below[one + 1], key=lambda r: (shape(r), r)) for one in (row, other))):
            target[mine] = target[theirs]
            carry(mine, theirs)

    for siblings in below:
        for row in siblings:
            alike = [one for one in siblings if shape(one) == shape(row)]
            if erased[row] != names[row] and kinds[row] != "rank" and len(alike) >= minimum:
                target[row] = alike[0]
    for row in range(count):  # parents come before their children
        if target[row] != row and (parent[row] < 0 or target[parent[row]] == parent[row]):
            carry(row, target[row])
    return target


@pytest.mark.parametrize("minimum", [2, 3])
@examples(80)
@given(_TREES, st.booleans())
def test_folds_are_those_of_a_loop(minimum, rows, has_rank):
    count = len(rows)
    parent = [min(seed % (k + 1) - 1, 2) for k, (seed, _, _) in enumerate(rows)]
    names, calls = [row[1] for row in rows], [row[2] for row in rows]
    kinds = ["rank" if has_rank and k == count - 1 else "push_pop" for k in range(count)]
    ids = np.arange(count) * 2 + 5  # no positions
    paths = pd.DataFrame(
        {
            "path_id": ids, "parent_path_id": [ids[one] if one >= 0 else -1 for one in parent], "name": names,
            "span_kind": kinds, "call_count": calls, "first_start_ns": 0, "device_ns": 3 ** np.arange(count),
        }
    )  # fmt: skip
    folded, target = fold_with_targets(paths, minimum)
    wanted = _folded_by_loop(parent, names, calls, kinds, minimum)
    kept = sorted(set(wanted))
    mine = {row: [k for k in range(count) if wanted[k] == row] for row in kept}
    # of children alike in all but their place any may stand for any: shapes decide, so that sums are told by name
    assert target.index.tolist() == ids.tolist()
    assert folded["path_id"].tolist() == [int(ids[row]) for row in kept]
    assert folded["call_count"].tolist() == [sum(calls[k] for k in mine[row]) for row in kept]
    assert folded["is_folded"].tolist() == [len(mine[row]) > 1 for row in kept]
    assert folded["device_ns"].sum() == sum(3**k for k in range(count))
    assert target.map(dict(zip(folded["path_id"], folded["device_ns"]))).tolist() == [
        sum(3**k for k in range(count) if target.iloc[k] == target.iloc[row]) for row in range(count)
    ]
    for row, text, repeat, above in zip(kept, folded["shown_name"], folded["repeat_count"], folded["parent_path_id"]):
        is_first = wanted[row] == row and len(mine[row]) > 1 and parent[row] == parent[mine[row][-1]]
        assert text.startswith(names[row]) and (" … " in text) == (len(mine[row]) > 1)
        assert repeat == (len(mine[row]) if is_first else 1) or len(mine[row]) > 1
        assert above == (ids[wanted[parent[row]]] if parent[row] >= 0 else -1)
