"""Kernel names of any length are read in time that grows with their length."""

from __future__ import annotations

from xsp_post.tables.analyses.roofline import pipe_of_name
from xsp_post.work.dtypes import pipe_of


def test_the_pipe_of_a_very_long_name():
    letters = "x" * 300_000  # a search from each letter to the end would take minutes
    assert pipe_of("fp32", letters) == "fp32"
    assert pipe_of("fp32", letters + "16816") == "tf32_tensor"


def test_the_pipe_of_flop_that_a_very_long_name_tells():
    assert pipe_of_name("x" * 300_000) == "fp32"
    assert pipe_of_name("x" * 300_000 + "884").endswith("tensor")
