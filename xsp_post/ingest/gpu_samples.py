"""Captures in: samples of GPU metrics (``nsys --gpu-metrics-devices``) → ``Trace.gpu_samples``, one row a sample.

Since 2022 the export has a row per sample and metric (``GPU_METRICS``), before that a JSON text per sample
(``GENERIC_EVENTS``). Metrics are known by their names; their numbers differ from GPU to GPU.
"""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json as pa_json

from xsp_post.base.texts import read_blocks
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.tables import NULL, Request, TableSource, WantedColumn, floats, resolve, whole
from xsp_post.model.schemas.frames import METRIC_COLUMNS
from xsp_post.model.trace import GPU_SAMPLE_DTYPES, typed_frame

_NAMES = read_blocks(Path(__file__).with_name("gpu_metrics.txt"))[0].texts()
_UNIT = re.compile(r"\s*[\[(]([^\])]*)[\])]\s*$")
_UNITS = ("throughput %", "%", "mhz", "w", "c", "")
_GPU_BITS = 0xFF
_MEGA = 1e6
_SMALLEST_HZ = 1e5  # a clock below this is in MHz, whatever its name says
LONGEST_STEPS = 3  # a gap of more steps than this between samples is none of the next sample's time
_TIME = (WantedColumn("timestamp", "at", NULL), WantedColumn("rawTimestamp", "raw_at", NULL))
_TYPE, _VALUE = WantedColumn("typeId", "type"), WantedColumn("value", "value", float("nan"))


def gpu_samples(source: TableSource) -> pd.DataFrame:
    """The samples of an export, by GPU and time; without rows where it has none, or none of a metric that is known."""
    tables = source.tables()
    if (name := resolve(tables, "GPU_METRICS")) in tables:
        return _frame(*_of_rows(source, name))
    if (name := resolve(tables, "GENERIC_EVENTS")) in tables and "data" in source.columns(name):
        return _frame(*_of_texts(source, name))
    return typed_frame(GPU_SAMPLE_DTYPES)


_Found = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]  # GPU, time, values by column; one row a sample


def _of_rows(source: TableSource, table: str) -> _Found:
    """From one row per sample and metric."""
    columns = _metric_numbers(source)
    wanted = np.array(sorted({metric for _, metric in columns}), np.int64)
    rows = _read(source, table, (WantedColumn("metricId", "metric", -1), *_TIME, _TYPE, _VALUE), wanted)
    kind, metric, value = numbers(rows, "type"), numbers(rows, "metric"), floats(rows.column("value"))
    keys = pd.DataFrame({"gpu": kind & _GPU_BITS, "at": _times(rows)})
    code = keys.groupby(["gpu", "at"], sort=True).ngroup().to_numpy()
    first = keys.drop_duplicates().sort_values(["gpu", "at"])
    values = {name: np.full(len(first), np.nan) for name in METRIC_COLUMNS}
    for (of_type, number), name in columns.items():  # a dozen metrics
        chosen = (kind == of_type) & (metric == number)
        values[name][code[chosen]] = value[chosen]
    return first["gpu"].to_numpy(), first["at"].to_numpy(), values


def _read(source: TableSource, table: str, wants: tuple[WantedColumn, ...], wanted: np.ndarray) -> pa.Table:
    """The rows whose first column is one of these numbers."""
    return source.read([Request(table, wants, keep=lambda rows: np.isin(rows.column(0).to_numpy(False), wanted))])[0]


def _metric_numbers(source: TableSource) -> dict[tuple[int, int], str]:
    """(typeId, number of the metric) → our column, of the metrics that are known."""
    named = source.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    if not named:  # newer exports list the fields of every kind of event
        fields = source.rows("GENERIC_EVENT_TYPE_FIELDS", ("typeId", "fieldIdx", "fieldNameId"))
        texts = dict(source.rows("StringIds", ("id", "value"))) if fields else {}
        named = [(kind, number, texts.get(text, "")) for kind, number, text in fields]
    return {(whole(kind), whole(number)): column for kind, number, text in named if (column := column_of(str(text)))}


def column_of(name: str) -> str:
    """``SMs Active [Throughput %]`` → sm_active_ratio; "" for a metric that is not used."""
    unit = _UNIT.search(name)
    if unit is not None and unit[1].strip().lower() not in _UNITS:
        return ""
    return _NAMES.get(_UNIT.sub("", name).strip().lower(), "")


def _of_texts(source: TableSource, table: str) -> _Found:
    """From one JSON text per sample: ``{"SM Active": "12", …}``."""
    nothing: _Found = (np.zeros(0, np.int64), np.zeros(0, np.int64), {})
    types = np.array(_types_of_metrics(source), np.int64)
    rows = _read(source, table, (_TYPE, *_TIME, WantedColumn("data", "data", b"")), types) if len(types) else None
    if rows is None or not rows.num_rows:
        return nothing
    lines = b"\n".join(text.replace(b"\n", b" ") for text in rows.column("data").to_pylist())
    try:
        parsed = pa_json.read_json(io.BytesIO(lines))
    except pa.ArrowInvalid:  # no JSON, or values that are numbers here and texts there
        return nothing
    if parsed.num_rows != rows.num_rows:
        return nothing
    order = np.lexsort((_times(rows), numbers(rows, "type") & _GPU_BITS))
    values = {}
    for name in parsed.column_names:
        if column := column_of(name):
            values[column] = pd.to_numeric(parsed.column(name).to_pandas(), errors="coerce").to_numpy(float)[order]
    return (numbers(rows, "type") & _GPU_BITS)[order], _times(rows)[order], values


def _types_of_metrics(source: TableSource) -> list[int]:
    """The kinds of events that have a field named like a metric."""
    found = []
    for kind, data in source.rows("GENERIC_EVENT_TYPES", ("typeId", "data")):
        try:
            fields = json.loads(data)["Fields"]
            names = [str(field["Name"]) for field in fields]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if any(column_of(name) for name in names):
            found.append(whole(kind))
    return found


def _times(rows: pa.Table) -> np.ndarray:
    at, raw = numbers(rows, "at"), numbers(rows, "raw_at")
    return np.where(at == NULL, raw, at)


def _frame(gpu: np.ndarray, at: np.ndarray, values: dict[str, np.ndarray]) -> pd.DataFrame:
    """Samples with the time that each stands for. Rows are by GPU and time."""
    known = [column for column, numbers_ in values.items() if not np.isnan(numbers_).all()]
    if not len(at) or not known:
        return typed_frame(GPU_SAMPLE_DTYPES)
    frame = pd.DataFrame({"gpu_index": gpu, "end_ns": at})
    for name in METRIC_COLUMNS:
        number = values[name] if name in known else np.full(len(at), np.nan)
        frame[name] = in_units(name, number)
    frame["dram_ratio"] = frame["dram_ratio"].fillna(frame["dram_read_ratio"] + frame["dram_write_ratio"])
    step = frame["end_ns"].groupby(frame["gpu_index"]).diff()
    usual = step.groupby(frame["gpu_index"]).transform("median").fillna(0)
    length = step.where(step <= LONGEST_STEPS * usual, usual).fillna(0).astype("int64")
    frame["start_ns"] = frame["end_ns"] - length
    return typed_frame(GPU_SAMPLE_DTYPES, frame[(frame["end_ns"] > NULL) & (length > 0)])


def in_units(name: str, values: np.ndarray) -> np.ndarray:
    """Values of a metric in the unit of its column. Clocks are told by their size: nsys stores Hz under "[MHz]"."""
    if name.endswith("_hz"):
        return np.where(values < _SMALLEST_HZ, values * _MEGA, values)
    return values / 100 if name.endswith("_ratio") else values
