"""``ingest``: the CSV that ``ncu --import FILE --csv --page raw`` prints → ``CounterReport``."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.base.messages import INFO, WARNING
from xsp_post.counters.quantities import is_input
from xsp_post.ingest.interning import launch_sizes, short_kernel_name
from xsp_post.model.counters import ACTION_DTYPES, PATH_SEPARATOR, CounterReport
from xsp_post.names.range_text import DOMAIN

_CSV_KNOWN = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
              "Grid Size", "Device", "CC")  # fmt: skip
_PUSH_POP_COLUMN = "Push/Pop_Range"
_START_STOP_COLUMN = "Start/Stop_Range"
_RANGE_FIELDS_AFTER_NAME = 6  # PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg
_SCALES = {
    "nsecond": ("ns", 1.0), "ns": ("ns", 1.0), "usecond": ("ns", 1e3), "us": ("ns", 1e3), "msecond": ("ns", 1e6),
    "ms": ("ns", 1e6), "second": ("ns", 1e9), "s": ("ns", 1e9),
}  # fmt: skip
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "k": 1e3}
_SCALED_UNIT = re.compile(r"([KMGTk])(byte|hz|Hz)(.*)")


def read_ncu_csv(text: str, report_name: str) -> CounterReport:
    """Counters out of ``ncu --csv --page raw``: a header line, a line of units, a line per kernel.

    Lines before the header (``==PROF== …``) are skipped; prefixed units (Kbyte, usecond) are brought to base units.
    Raises CaptureError when there is no such header, or no kernel below it.
    """
    table = _csv_rows(text, report_name)
    header, units, rows = table[0], table[1], table[2:]
    columns = dict(zip(header, zip(*rows)))
    push_pop = next((name for name in header if _PUSH_POP_COLUMN in name), "")
    metric_names = [
        name for name in header
        if name not in _CSV_KNOWN and _PUSH_POP_COLUMN not in name and _START_STOP_COLUMN not in name
    ]  # fmt: skip
    attributes = {name: columns[name] for name in metric_names if name.startswith(DEVICE_PREFIX)}
    metrics, without_value = _csv_metrics(
        {name: columns[name] for name in metric_names if name not in attributes and name not in LAUNCH_COLUMNS},
        dict(zip(header, units)),
    )
    ranges = [_csv_ranges(cell) for cell in columns.get(push_pop, ())] or [{} for _ in rows]
    actions = actions_frame(_csv_actions(columns, len(rows), attributes), ranges)
    firsts = actions.drop_duplicates("device_id")
    by_device = {
        device: {name.removeprefix(DEVICE_PREFIX): _plain(cells[row]) for name, cells in attributes.items()}
        for device, row in zip(firsts["device_id"].tolist(), firsts.index.tolist())
    }
    return CounterReport(report_name, "ncu", actions, metrics, by_device, report_findings(actions, without_value))


def _csv_rows(text: str, report_name: str) -> list[list[str]]:
    lines = text.replace("\x00", "").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"') and '"Kernel Name"' in line), None)
    if start is None:
        raise CaptureError(
            f"{report_name}: is not the raw page of an Nsight Compute report.", code="ncu-csv-unreadable"
        )
    table = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    table = [row for row in table if len(row) == len(table[0])]
    if "Metric Name" in table[0]:
        raise CaptureError(
            f"{report_name}: is the details page of an Nsight Compute report, which has no metric names.",
            code="ncu-csv-unreadable",
        )
    if len(table) < 3:
        raise CaptureError(f"{report_name}: the raw page lists no kernel.", code="ncu-csv-unreadable")
    return table


def _csv_metrics(columns: Mapping[str, Sequence[str]], units: dict[str, str]) -> tuple[pd.DataFrame, dict[str, int]]:
    parts, without_value = [], {}
    for name, cells in columns.items():
        unit, scale = _base_unit(units.get(name, ""))
        values = pd.to_numeric(pd.Series(cells, dtype=object).str.replace(",", ""), errors="coerce").to_numpy(float)
        known = np.isfinite(values)
        looks_numeric = known.any() or all(cell.strip().lower() in ("", "nan", "n/a", "-nan", "inf") for cell in cells)
        if looks_numeric and not known.all():
            without_value[name] = int((~known).sum())
        parts.append(pd.DataFrame({
            "action_id": np.flatnonzero(known), "metric_name": name, "value": values[known] * scale, "unit": unit,
        }))  # fmt: skip
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(
        {"action_id": [], "metric_name": [], "value": [], "unit": []}
    )  # fmt: skip
    frame = frame.astype({"action_id": "int64", "value": "float64", "metric_name": "category", "unit": "category"})
    return frame, without_value


def _base_unit(unit: str) -> tuple[str, float]:
    """``usecond`` → (ns, 1000); ``Kbyte/second`` → (byte/s, 1000)."""
    if unit in _SCALES:
        return _SCALES[unit]
    match = _SCALED_UNIT.fullmatch(unit)
    scale = _PREFIXES[match[1]] if match else 1.0
    base = f"{match[2].lower()}{match[3]}" if match else unit
    return base.replace("/second", "/s").replace("cycle/nsecond", "cycle/ns"), scale


def _csv_actions(
    columns: Mapping[str, Sequence[str]], count: int, attributes: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    names = list(columns["Kernel Name"])
    rows: dict[str, Any] = {
        "name": names,
        "short_name": [short_kernel_name(name) for name in names],
        "gpu_name": list(attributes.get(DEVICE_PREFIX + "display_name", [""] * count)),
        "workload_type": ["kernel"] * count,
        "correlation_id": [UNKNOWN_ID] * count,
    }
    for header, column in (("Process ID", "process_id"), ("Context", "context_id"), ("Stream", "stream_id"),
                           ("Device", "device_id")):  # fmt: skip
        rows[column] = [_whole(cell) for cell in columns.get(header, [""] * count)]
    for header, column in (("Grid Size", "grid"), ("Block Size", "block")):
        rows |= launch_sizes(column, columns.get(header, [""] * count))
    return rows


def _csv_ranges(cell: str) -> dict[str, tuple[str, ...]]:
    """``7  "<default domain>:outer:none:…"  "xsp:conv1:Conv2d#0:none:…"`` → domain → names outer → inner."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in re.findall(r'"([^"]*)"', cell):
        domain, _, rest = entry.partition(":")
        fields = rest.rsplit(":", _RANGE_FIELDS_AFTER_NAME)
        name = fields[0] if len(fields) > _RANGE_FIELDS_AFTER_NAME else rest
        found[domain] = (*found.get(domain, ()), name)
    return found


def _whole(cell: str) -> int:
    digits = cell.replace(",", "").strip()
    return int(digits) if digits.lstrip("-").isdigit() else UNKNOWN_ID


def _plain(cell: str) -> Any:
    text = cell.replace(",", "")
    return int(text) if text.lstrip("-").isdigit() else cell


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
    return found + if_any("counters-several-in-one", actions["workload_type"] != "kernel")
