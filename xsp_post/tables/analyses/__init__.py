"""Frames in, frame out: A1…A15 and the paper's evaluation tables (paper, §III). `tables.catalogue` lists them."""

from dataclasses import replace
from typing import Any

import pandas as pd

from xsp_post.base.findings import Finding
from xsp_post.model import options as user
from xsp_post.model.results import Results
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.catalogue import ANALYSES, OF_WORKLOAD
from xsp_post.tables.graph import Graph

__all__ = ["Options", "compute_all"]


def compute_all(
    results: Results, options: user.Options = user.DEFAULTS, **choices: Any
) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """All tables of `ANALYSES` by name (without data: zero rows, all columns), and what was odd.

    ``choices`` are fields of `Options`, e.g. ``roof="fp32"``. Raises UsageError for an unknown choice.
    """
    chosen = replace(Options.of(options), **choices)
    names = [name for step in ANALYSES for name in step.names]
    graph = Graph(results, OF_WORKLOAD, {"options": chosen}, remade=names)
    return {name: graph.frame(name) for name in names}, graph.raised()
