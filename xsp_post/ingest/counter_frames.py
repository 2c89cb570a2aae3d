"""Helper of ``ingest`` (a counter report → ``CounterReport``): what all its readers share."""

from typing import Any

import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.base.messages import INFO, WARNING
from xsp_post.counters.quantities import is_input
from xsp_post.model.counters import ACTION_DTYPES, PATH_SEPARATOR
from xsp_post.names.range_text import DOMAIN

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
