"""First screens of drawn captures: lines, words, jargon. `scripts/screens` measures all of them."""

from __future__ import annotations

import os
import random

import pytest
from first_screens import EXAMPLE, NARROW, ROOT, Screen, captures_in, screens
from recorded import analyzed

FOLDER = ROOT.parent / "shared/captures"
TIMELINES = [path for path in captures_in(FOLDER)[1:] if path.suffix != ".ncu-rep"]
DRAWN = random.Random(os.environ.get("XSP_POST_SAMPLE", "")).sample(TIMELINES, 3) if TIMELINES else []


@pytest.mark.parametrize("path", [EXAMPLE, *DRAWN], ids=lambda path: path.name)
def test_a_first_screen_is_short_and_plain(path):
    found = screens(analyzed(path))
    assert {(one.command, one.width): one.faults for one in found if one.faults} == {}
    assert all(one.words > 10 for one in found)


def test_what_breaks_a_bar_is_found():
    long = "It is " + "very " * 24 + "long. Short."
    assert Screen("why", NARROW, "short\n" * 25, "").faults == ["25 lines, at most 24"]
    assert Screen("tree", NARROW, "short\n" * 29, "").faults == [] == Screen("why", 100, "short\n" * 40, "").faults
    assert Screen("why", NARROW, "", long).faults == [f"27 words: {long[:-7]}"]
    assert Screen("why", NARROW, "x" * 81 + "\n1 kernels", "").faults == ["a line of 81 columns", "jargon: 1 kernels"]
