"""One factor for all kernels points to the clock; other changes do not."""

from __future__ import annotations

import pandas as pd
import pytest

from xsp_post.compare.clock import LEAST_CHANGE, LEAST_NAMES, LEAST_SHARE, SPREAD, clock_statements, common_factor
from xsp_post.model.results import Analysis


def names(*rows) -> pd.DataFrame:
    """(base mean, other mean[, base count, other count, is communication])."""
    full = [(*row, *(1, 1, False)[len(row) - 2 :]) for row in rows]
    columns = ["base_mean_ns", "other_mean_ns", "base_count", "other_count", "is_communication"]
    return pd.DataFrame(full, columns=columns)


def test_all_kernels_by_one_factor():
    assert common_factor(names(*[(100, 110)] * 4)) == (1.1, 1.0)
    assert common_factor(names(*[(100, 90)] * 4)) == (0.9, 1.0)
    assert (LEAST_CHANGE, SPREAD, LEAST_SHARE, LEAST_NAMES) == (0.03, 0.02, 0.8, 4)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(100, 110)] * 3, None),  # too few names
        ([(100, 102.9)] * 4, None),  # too small a change
        ([(100, 103.5)] * 4, (1.035, 1.0)),
        ([(100, 96.5)] * 4, (0.965, 1.0)),
        ([(100, 97.5)] * 4, None),
        ([(100, 110)] * 4 + [(100, 100)], (1.1, 0.8)),  # four fifths of the time
        ([(100, 110)] * 4 + [(101, 101)], None),
        ([(100, 110)] * 4 + [(50, 50, 2, 2)], (1.1, 0.8)),  # the time of a name is its mean by its count
        ([(100, 110)] * 4 + [(50, 50, 3, 1)], None),
        ([(100, 110)] * 4 + [(900, 900, 1, 1, True)], (1.1, 1.0)),  # communication waits for others
        ([(100, 110)] * 4 + [(900, 900, 0, 1)], (1.1, 1.0)),
        ([(100, 110)] * 4 + [(900, 900, 1, 0)], (1.1, 1.0)),
        ([(100, 110)] * 3 + [(900, 990, 0, 1)], None),
        ([(100, 110)] * 3 + [(100, 112.1)], (1.1, 1.0)),  # within a fiftieth of the factor
        ([(100, 110)] * 4 + [(100, 112.3)], (1.1, 0.8)),
        ([(100, 110)] * 4 + [(100, 107.9)], (1.1, 1.0)),
        ([(100, 110)] * 4 + [(100, 107.7)], (1.1, 0.8)),
        ([(1, 3), (1, 3), (1, 3), (500, 550), (500, 550), (500, 550), (500, 550)], (1.1, 2000 / 2003)),  # by time
        ([(400, 400), *[(25, 27.5)] * 4], None),
        ([(100, 105), (100, 106), (100, 107), (100, 108)], (1.06, 1.0)),
    ],
)
def test_what_is_a_common_factor(rows, found):
    got = common_factor(names(*rows))
    assert (got is None) == (found is None)
    if found is not None:
        assert got == pytest.approx(found)


def devices(*rows) -> Analysis:
    return Analysis({"devices": pd.DataFrame(rows, columns=["clock_hz", "device_ns"])}, [])


def test_stated_clocks_are_said_where_they_differ():
    nothing = names()
    one, two = devices((1.41e9, 5), (9e9, 0)), devices((1.98e9, 5), (0.0, 7))
    (subject, text, differs), *rest = clock_statements(one, two, nothing)
    assert subject == "clock" and differs and not rest and "1.41 GHz" in text and "1.98 GHz" in text
    assert not clock_statements(one, one, nothing)
    assert not clock_statements(one, devices((1.98e9, 0)), nothing)  # no device that was used: not known
    slower = names(*[(100, 110)] * 4)
    (_, said, _), *more = clock_statements(one, one, slower)
    assert "10.0 % longer" in said and "a lower clock" in said and "low confidence" in said and not more
    assert len(clock_statements(one, two, slower)) == 2 and "low conf" not in clock_statements(one, two, slower)[1][1]
    assert "10.0 % shorter" in clock_statements(one, one, names(*[(100, 90)] * 4))[0][1]
