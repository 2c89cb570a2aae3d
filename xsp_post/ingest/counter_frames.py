"""Helper of ``ingest`` (a counter report → ``CounterReport``): what all its readers share."""

from __future__ import annotations

from typing import Any

import pandas as pd

from xsp_post.base.findings import CATALOGUE, INFO, WARNING, Entry, Finding, finding
from xsp_post.counters.quantities import is_input
from xsp_post.model.counters import ACTION_DTYPES, PATH_SEPARATOR
from xsp_post.names.range_text import DOMAIN

CATALOGUE.update({
    "counters-metrics-left-out": Entry(
        INFO, "Metrics that no quantity needs were not kept",
        "The report holds more values than is sensible to store; only those that our quantities are computed from "
        "were read.", "Record with --metrics and the few you want, or name them when reading.",
    ),
    "counters-no-ranges": Entry(
        INFO, "Counters without ranges",
        "Nsight Compute ran without --nvtx, or the program has no ranges: its kernels can be matched by name and "
        "order only.", "Record with ncu --nvtx around a program with ranges.",
    ),
    "counters-not-a-number": Entry(
        WARNING, "Counters without a value",
        "The report lists these metrics without a number (NaN, n/a): the GPU or driver could not collect them, or a "
        "pass failed. They count as not recorded.", "Record these metrics again by themselves, or leave them out.",
    ),
    "counters-report-cut": Entry(
        WARNING, "The counter report is cut short",
        "The file ends inside a block, or says that it holds more results than could be read: the program was killed "
        "or the copy broke off. The kernels before the cut are used.",
        "Copy or record the report again.",
    ),
    "counters-several-in-one": Entry(
        WARNING, "Results that are no single kernels",
        "Nsight Compute measured ranges or whole graphs (--replay-mode range, --graph-profiling graph); they cannot "
        "be joined to kernels.", "Record with --replay-mode kernel and --graph-profiling node.",
    ),
})  # fmt: skip

DEVICE_PREFIX = "device__attribute_"
DEFAULT_DOMAIN = "<default domain>"  # what Nsight Compute calls the domain without a name
UNKNOWN_ID = -1
# Metrics that say where a kernel ran, and the column of CounterReport.actions they become.
LAUNCH_COLUMNS = {
    "launch__context_id": "context_id", "launch__stream_id": "stream_id", "launch__device_id": "device_id",
    "launch__grid_dim_x": "grid_x", "launch__grid_dim_y": "grid_y", "launch__grid_dim_z": "grid_z",
    "launch__block_dim_x": "block_x", "launch__block_dim_y": "block_y", "launch__block_dim_z": "block_z",
}  # fmt: skip


def actions_frame(rows: dict[str, list[Any]], ranges: list[dict[str, tuple[str, ...]]]) -> pd.DataFrame:
    """Typed actions; the range path is that of our domain, else of the domain with most ranges in the report."""
    depth: dict[str, int] = {}
    for of_action in ranges:
        for domain, path in of_action.items():
            depth[domain] = depth.get(domain, 0) + len(path)
    used = [domain for domain in depth if depth[domain]]
    domain = DOMAIN if DOMAIN in used else max(used, key=lambda name: depth[name], default="")
    paths = [PATH_SEPARATOR.join(of_action.get(domain, ())) for of_action in ranges]
    shown = "" if domain == DEFAULT_DOMAIN else domain
    rows = {**rows, "range_path": paths, "domain": [shown if path else "" for path in paths]}
    return pd.DataFrame({name: pd.Series(rows[name], dtype=dtype) for name, dtype in ACTION_DTYPES.items()})


def report_findings(actions: pd.DataFrame, without_value: dict[str, int]) -> list[Finding]:
    found = []
    if without_value:
        worst = max(without_value, key=lambda name: (is_input(name), without_value[name]))
        severity = WARNING if is_input(worst) else INFO  # metrics that no quantity needs are nobody's loss
        count = sum(without_value.values())
        found.append(finding("counters-not-a-number", count=count, example=worst, severity=severity))
    if not (actions["range_path"] != "").any():
        found.append(finding("counters-no-ranges", count=len(actions)))
    several = (actions["workload_type"] != "kernel").sum()
    if several:
        found.append(finding("counters-several-in-one", count=int(several)))
    return found
