"""``ingest``: the kernels of an Nsight Compute report, as NVIDIA's ``ncu_report`` hands them out → ``CounterReport``.

The library opens any file without complaint: what it cannot read has no range in it, so that is checked. Its objects
can only be walked one by one; values go straight into typed buffers.
"""

import math
import os
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import finding, if_any
from xsp_post.counters.quantities import is_input
from xsp_post.ingest.interning import StringTable, short_kernel_name
from xsp_post.ingest.ncu_csv import DEVICE_PREFIX, LAUNCH_COLUMNS, UNKNOWN_ID, actions_frame, report_findings
from xsp_post.model.counters import ACTION_DTYPES, CounterReport

MAX_VALUES = 5_000_000  # above this only the metrics that quantities need are kept
_WORKLOADS = {0: "kernel", 1: "graph", 2: "range", 3: "cmdlist", 4: "subgrid"}


def read_report(path: Path) -> CounterReport:
    """Counters of an ``.ncu-rep``, by NVIDIA's reader in this process: on some damaged files it aborts the process."""
    import ncu_report

    try:
        context = ncu_report.load_report(str(path))
        actions = _Actions(context) if context.num_ranges() else None
        report = None if not actions else read_actions(actions, path.name)
    except _OF_DAMAGED_REPORTS as error:
        raise _unreadable(path) from error
    if actions is None:
        raise _unreadable(path)
    if report is None:
        raise CaptureError(
            f"{path}: is an Nsight Compute report without a single kernel.", code="ncu-report-unreadable",
            hint="Were the launch filters too narrow? Look for '==WARNING== No kernels were profiled'.",
        )  # fmt: skip
    if report.metrics.empty:
        raise _unreadable(path)
    declared, is_complete = declared_results(path)
    if not is_complete or declared > len(actions):
        report.findings.append(finding("counters-report-cut", count=len(actions), example=path.name))
    return report


# What NVIDIA's library, or what it hands out, raises on damaged texts and missing metrics.
_OF_DAMAGED_REPORTS = (
    AttributeError, IndexError, KeyError, MemoryError, OverflowError, RuntimeError, SystemError, TypeError, ValueError,
)  # fmt: skip


class _Actions(Sequence[Any]):
    """All actions of a report, made when asked for: one that is kept holds all that the library decoded of it."""

    def __init__(self, context: Any) -> None:
        self._ranges = [context.range_by_idx(number) for number in range(context.num_ranges())]
        counts = [measured.num_actions() for measured in self._ranges]
        self._ends = np.cumsum(counts).tolist()

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._ends else 0

    def __getitem__(self, number: Any) -> Any:
        number = range(len(self))[number]
        of = bisect_right(self._ends, number)
        return self._ranges[of].action_by_idx(number - (self._ends[of - 1] if of else 0))


def _unreadable(path: Path) -> CaptureError:
    return CaptureError(
        f"{path}: is an Nsight Compute report that this reader cannot open: damaged, or written by a newer ncu.",
        code="ncu-report-unreadable",
    )


def read_actions(actions: Sequence[Any], report_name: str) -> CounterReport:
    """Counters out of ``ncu_report`` actions (anything with its interface), in order."""
    reader = _Reader(_filter(actions))
    for number, action in enumerate(actions):
        reader.read(number, action)
    return reader.report(report_name)


def _filter(actions: Sequence[Any]) -> set[str] | None:
    """Names to keep, None for all: all of a small report, what is needed of a big one."""
    if len(actions[0].metric_names()) * len(actions) <= MAX_VALUES:
        return None
    every = {name for action in (actions[0], actions[len(actions) // 2], actions[-1]) for name in action.metric_names()}
    return {name for name in every if is_input(name) or name.startswith(("launch__", DEVICE_PREFIX))}


class _Reader:
    """Typed buffers filled action by action."""

    def __init__(self, kept: set[str] | None) -> None:
        self._kept = kept
        self._names = StringTable()
        self._units = StringTable()
        self._unit_of: dict[str, int] = {}
        self._number_of: dict[str, int] = {}
        self._text_names: set[str] = set()
        self._action, self._name, self._unit, self._value = array("i"), array("i"), array("h"), array("d")
        self._rows: dict[str, list[Any]] = {column: [] for column in ACTION_DTYPES if column != "range_path"}
        self._ranges: list[dict[str, tuple[str, ...]]] = []
        self._attributes: dict[int, dict[str, Any]] = {}
        self._left_out: set[str] = set()
        self._without_value: dict[str, int] = {}

    def read(self, number: int, action: Any) -> None:
        """One kernel's names, launch, ranges and metrics."""
        launch: dict[str, int] = {}
        device_texts: list[tuple[str, Any]] = []
        for name in action.metric_names():
            if self._kept is not None and name not in self._kept:
                self._left_out.add(name)
                continue
            metric = action.metric_by_name(name)
            if name.startswith(DEVICE_PREFIX):
                device_texts.append((name, metric))
            elif name in LAUNCH_COLUMNS:
                launch[LAUNCH_COLUMNS[name]] = int(metric.as_double())
            elif name not in self._text_names:
                self._number(number, name, metric)
        device_id = launch.get("device_id", UNKNOWN_ID)
        if device_id not in self._attributes:
            self._attributes[device_id] = {n.removeprefix(DEVICE_PREFIX): m.value() for n, m in device_texts}
        self._describe(action, launch, device_id)

    def _number(self, number: int, name: str, metric: Any) -> None:
        if name not in self._number_of:
            if isinstance(metric.value(), str):
                self._text_names.add(name)
                return
            self._number_of[name] = self._names.add_one(name)
            self._unit_of[name] = self._units.add_one(str(metric.unit() or ""))
        # `as_double` of a metric without a value is 0: it must not become a number
        has_value = metric.has_value()
        value = metric.as_double() if has_value else math.nan
        if not math.isfinite(value):
            # metrics that are a series over time or instructions have no value of their own: nothing is missing
            if has_value or is_input(name):
                self._without_value[name] = self._without_value.get(name, 0) + 1
            return
        self._action.append(number)
        self._name.append(self._number_of[name])
        self._unit.append(self._unit_of[name])
        self._value.append(value)

    def _describe(self, action: Any, launch: dict[str, int], device_id: int) -> None:
        demangled = str(action.name(action.NameBase_DEMANGLED))
        rows = self._rows
        rows["name"].append(demangled)
        rows["short_name"].append(str(action.name(action.NameBase_FUNCTION)) or short_kernel_name(demangled))
        rows["workload_type"].append(_WORKLOADS.get(int(action.workload_type()), "other"))
        rows["gpu_name"].append(str(self._attributes[device_id].get("display_name", "")))
        rows["domain"].append("")
        rows["process_id"].append(UNKNOWN_ID)
        rows["correlation_id"].append(UNKNOWN_ID)
        for column in LAUNCH_COLUMNS.values():
            rows[column].append(launch.get(column, UNKNOWN_ID if column.endswith("_id") else 0))
        state = action.nvtx_state()
        domains = (state.domain_by_id(identity) for identity in state.domains()) if state is not None else ()
        self._ranges.append({domain.name(): tuple(domain.push_pop_ranges()) for domain in domains})

    def report(self, report_name: str) -> CounterReport:
        """Everything read, as a CounterReport."""
        actions = actions_frame(self._rows, self._ranges)
        metrics = pd.DataFrame({
            "action_id": np.frombuffer(self._action, dtype=np.int32).astype(np.int64),
            "metric_name": _categories(np.frombuffer(self._name, dtype=np.int32), self._names),
            "value": np.frombuffer(self._value, dtype=np.float64),
            "unit": _categories(np.frombuffer(self._unit, dtype=np.int16), self._units),
        })  # fmt: skip
        found = report_findings(actions, self._without_value)
        found += if_any("counters-metrics-left-out", len(self._left_out), min(self._left_out, default=""))
        return CounterReport(report_name, "ncu", actions, metrics, self._attributes, found)


def _categories(codes: np.ndarray, names: StringTable) -> pd.Categorical:
    return pd.Categorical.from_codes(codes.astype(np.int32), pd.Index(names.array(), dtype=object))


_RESULT_COUNT, _PAYLOAD_SIZE = 2, 5  # fields of the header of a block
_MOST_HEADER = 1 << 28


def declared_results(path: Path) -> tuple[int, bool]:
    """(results of all complete blocks, whether the file ends where a block ends)."""
    count = 0
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            position = 8 + _length(stream, 4)
            while position < size:
                header_size = _length(stream, position)
                header = _whole_numbers(stream.read(header_size))
                position += 4 + header_size + header.get(_PAYLOAD_SIZE, 0)
                if position > size:  # the last block is cut
                    return count, False
                count += header.get(_RESULT_COUNT, 0)
    except (ValueError, IndexError):
        return count, False
    return count, True


def _length(stream: BinaryIO, position: int) -> int:
    stream.seek(position)
    raw = stream.read(4)
    value = int.from_bytes(raw, "little")
    if len(raw) != 4 or value > _MOST_HEADER:
        raise ValueError("no length")
    return value


def _whole_numbers(raw: bytes) -> dict[int, int]:
    """The first value of each field of a Protocol Buffers message that is a whole number."""
    position, fields = 0, dict[int, int]()
    while position < len(raw):
        tag, position = varint(raw, position)
        kind = tag & 7
        if kind not in (0, 1, 2, 5):
            raise ValueError("no Protocol Buffers message")
        value, position = varint(raw, position) if kind in (0, 2) else (8 if kind == 1 else 4, position)
        if kind == 0:
            fields.setdefault(tag >> 3, value)
        elif (position := position + value) > len(raw):
            raise ValueError("a field is cut")
    return fields


def varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
