"""What a run of the whole suite leaves out of costly tests."""

from __future__ import annotations

import re
from collections import Counter

import drawing
import pytest
from conftest import ROOT
from drawing import function_of, left_out

TESTS = [
    "a.py::cheap[1]", "a.py::cheap[2]", "a.py::alone", *(f"a.py::pair[{k}]" for k in range(2)),
    *(f"a.py::five[{k}]" for k in range(5)), *(f"a.py::many[{k}]" for k in range(40)),
]  # fmt: skip
PARTS = {"a.py::alone": 6, "a.py::pair": 6, "a.py::five": 6, "a.py::many": 4}


def drawn(seed: int) -> list[str]:
    out = left_out(TESTS, PARTS, str(seed))
    return [test for test in TESTS if test not in out]


@pytest.mark.parametrize("seed", range(5))
def test_cheap_tests_stay_and_a_function_with_many_cases_keeps_two_at_least(seed):
    taken = Counter(map(function_of, drawn(seed)))
    assert [taken[f"a.py::{name}"] for name in ("cheap", "five", "many")] == [2, 2, 10]
    assert drawn(seed) == drawn(seed)


def test_every_case_is_drawn_with_some_seed_and_few_cases_in_a_sixth_of_the_runs():
    count = Counter(test for seed in range(600) for test in drawn(seed))
    assert set(count) == set(TESTS)
    assert all(60 < count[test] < 140 for test in ("a.py::alone", "a.py::pair[0]", "a.py::pair[1]"))


def test_costs_are_those_of_all_cases_and_of_what_is_shared_once():
    costs = drawing.costs_of([
        ("a.py::f[1 2]", 0.5, 0.0), ("a.py::g", 0.25, 0.0), ("a.py::f[[x]]", 0.25, 0.0),
        ("b.py::h[1]", 0.25, 8.0), ("b.py::h[2]", 0.25, 8.0), ("b.py::i", 0.25, 8.0),
    ])  # fmt: skip
    assert costs == {"a.py::f": 0.75, "a.py::g": 0.25, "b.py::h": 8.5, "b.py::i": 8.25}


def test_what_is_new_and_costly_is_added_and_what_is_listed_keeps_the_cost_of_all_its_cases(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "COSTLY", tmp_path / "costly.txt")
    drawing.write_costs({"a.py::f": 4.0, "b.py::h": 7.0})
    costs = {"a.py::f": 0.6, "a.py::new": 0.5, "a.py::cheap": 0.4, "a.py::newer": 2.0}
    assert list(drawing.unlisted(costs)) == ["a.py::newer", "a.py::new"]
    drawing.add_costs(costs)
    lines = ["a.py::f 4.0", "a.py::new 0.5", "a.py::newer 2.0", "b.py::h 7.0"]
    assert (tmp_path / "costly.txt").read_text().splitlines()[1:] == lines


def test_the_functions_that_cost_much_are_there():
    """All but a few: who renames one need not measure anew."""
    lost = [
        test for test in drawing.costly()
        for file, name in [test.split("::")]
        if not (ROOT / file).is_file() or not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]  # fmt: skip
    assert len(lost) <= len(drawing.costly()) / 10, lost
