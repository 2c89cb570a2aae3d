"""What PyTorch's profiler takes to write its records, of programs in which a record takes a known time."""

from __future__ import annotations

import re

import pytest
from generators.edited import World
from generators.edited_programs import ADD, BF16, item, linear, op, steps

from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import coverage_note, main_limit

BEGIN_US, END_US = 0.6, 0.35  # of each range of this simulator


def program(tmp_path, *, host: float, kernel: float = 3, is_kineto: bool = True):
    """Six steps of operators around operators; and the share of the steps in which the profiler writes."""
    world = World(3, spread=0.0)
    t = world.thread()

    def body(_: int) -> None:
        for _layer in range(40):
            linear(t, kernel, BF16)
            for _depth in range(4):
                t.begin("aten::_wrapped", "cpu_op")
            op(t, "aten::add", (ADD, kernel), host=host)
            for _depth in range(4):
                t.end()
        item(t)

    steps(t, body)
    results = analyze([world.run().write(tmp_path / "program", is_kineto)])
    inside = [row for row in world.ranges if row["text"].startswith("ProfilerStep")]
    whole = sum(row["end"] - row["start"] for row in inside)
    return results, len(world.ranges) * (BEGIN_US + END_US) * 1_000 / whole


def records_of(results):
    found = results.found()
    return found[found["code"] == "profiler-records"]


@pytest.mark.parametrize(("host", "is_much"), [(1, True), (40, False)])
def test_many_records_beside_little_code_are_found(tmp_path, host, is_much):
    results, share = program(tmp_path, host=host)
    found = records_of(results)
    assert len(found) == is_much
    if is_much:
        said = float(re.search(r"\(([\d.]+) %\)", found["example"].iloc[0])[1]) / 100
        assert 0.5 * share < said < 2 * share
        assert "The profiler's own work may be" in coverage_note(results, main_limit(results))


def test_records_do_not_matter_where_kernels_limit(tmp_path):
    results, _ = program(tmp_path, host=1, kernel=60)
    assert main_limit(results).limits == ("kernels",)
    assert "profiler's own" not in coverage_note(results, main_limit(results))


def test_ranges_of_the_program_are_no_records_of_that_profiler(tmp_path):
    assert records_of(program(tmp_path, host=1, is_kineto=False)[0]).empty
