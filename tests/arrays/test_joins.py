"""Rows joined by process and id, as a loop over all rows joins them: dense ids by a table, sparse ones by a search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.arrays.joins import join_ids, row_with, rows_of

_KEYS = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 6), st.booleans()), max_size=14)
_ASKED = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 8)), max_size=8)


def _by_loop(keys, asked, with_later):
    for process, wanted in asked:
        rows = [row for row, (of, number, _) in enumerate(keys) if of == process and number == wanted]
        sooner = [row for row in rows if not (with_later and keys[row][2])]
        yield -1 if wanted == -1 or not rows else (sooner or rows)[0]


@pytest.mark.parametrize("with_later", [False, True])
@pytest.mark.parametrize("number_type", [np.int32, np.int64])
@given(_KEYS, _ASKED, st.sampled_from([1, 3, 100_000]), st.integers(1, 3))
def test_rows_are_those_of_a_loop(with_later, number_type, keys, asked, stride, process_count):
    """``stride`` apart the ids are too sparse for a table; one process only is joined without a copy of its rows."""
    keys = [(of % process_count, number if number < 0 else number * stride, late) for of, number, late in keys]
    asked = [(of % (process_count + 1), number if number < 0 else number * stride) for of, number in asked]
    process, ids, later = (np.array([row[k] for row in keys], kind) for k, kind in enumerate((int, number_type, bool)))
    of_process, of_ids = (np.array([row[k] for row in asked], kind) for k, kind in enumerate((int, number_type)))
    found = join_ids(process, ids, of_process, of_ids, later if with_later else None)
    assert found.dtype == np.int32
    assert found.tolist() == list(_by_loop(keys, asked, with_later))


@pytest.mark.parametrize("span", [8 * 3 + 1024 - 1, 8 * 3 + 1024, 2**40])
def test_ids_at_either_end_of_a_table_are_found(span):
    ids = np.array([5, 5 + span, 5], np.int64)
    asked = np.array([4, 5, 6, 4 + span, 5 + span, 6 + span], np.int64)
    nought, of = np.zeros(3, np.int64), np.zeros(6, np.int64)
    assert join_ids(nought, ids, of, asked).tolist() == [-1, 0, -1, -1, 1, -1]


@given(st.lists(st.booleans(), max_size=6))
def test_rows_of_a_mask(mask):
    rows = rows_of(np.array(mask, bool))
    assert isinstance(rows, slice) == all(mask)
    assert np.arange(len(mask))[rows].tolist() == [row for row, is_in in enumerate(mask) if is_in]


_PAIRS = st.lists(st.tuples(st.integers(-1, 2), st.sampled_from([-1, 0, 5, 2**63 - 1, -(2**63)])), max_size=8)


@given(_PAIRS, _PAIRS)
def test_a_row_is_the_first_that_holds_what_is_wanted_in_each_column(known, wanted):
    columns, asked = (np.array(one, np.int64).reshape(-1, 2).T for one in (known, wanted))
    assert row_with(columns, asked).tolist() == [known.index(one) if one in known else -1 for one in wanted]
