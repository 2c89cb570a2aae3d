"""Which rows of what each resource saves a first screen has: all together only where that says anything."""

from __future__ import annotations

import pytest

from xsp_post.reports.verdict import first_shares


def row(resource, gain, margin, part=""):
    return {"resource": resource, "part": part, "gain_ratio": gain, "high_gain_ratio": gain + margin,
            "is_shown": gain > margin, "is_limit": resource == "host"}  # fmt: skip


@pytest.mark.parametrize(("host", "launches", "together", "margin", "is_said"), [
    (0.42, 0.05, 0.50, 0.10, False),  # what halves everything halves the time
    (0.42, 0.05, 0.38, 0.10, True),  # less than half: a part of the time is not known
    (0.20, 0.06, 0.50, 0.10, False),
    (0.20, 0.04, 0.50, 0.10, True),  # they overlap: alone each saves little
])  # fmt: skip
def test_all_together_is_said_where_it_is_no_half_or_far_more_than_each_alone(
    host, launches, together, margin, is_said
):
    rows = [row("host", host, 0.02), row("launches", launches, 0.02), row("kernels", 0.3, 0.1, "gemm"),
            row("together", together, margin)]  # fmt: skip
    shown = [one["resource"] for one in first_shares(rows)]
    assert shown == ["host", "launches", *["together"] * is_said]


def test_nothing_is_made_of_nothing():
    assert first_shares([]) == []


def test_what_the_sentence_names_has_a_row():
    """A resource that another one hides saves less alone than others that limit nothing."""
    rows = [row(name, gain, 0.02) for name, gain in (("kernels", 0.08), ("launches", 0.07), ("copies", 0.06))]
    rows += [row("host", 0.03, 0.02), row("together", 0.5, 0.1)]
    assert [one["resource"] for one in first_shares(rows)] == ["host", "kernels", "launches", "together"]
