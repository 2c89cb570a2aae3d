"""Exports of many shapes: what differs between programs beside the number of kernels.

Every worker (a thread of a process) launches one kernel every 10 µs, inside steps, layers and operators; a shape says
how many workers, devices and ranges there are, and what is recorded besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pyarrow as pa
from builders import ExportBuilder, global_id
from export_schema import KERNEL, MEMCPY, RUNTIME

from generators.big import filled

_PID, _EVERY_NS, _CALL_NS, _NAMES = 1000, 10_000, 4_000, 20


@dataclass(frozen=True)
class Shape:
    """processes × threads launch; each process has so many devices. Ranges: steps of ``step`` kernels, layers of
    ``layer``, ``depth`` around each launch."""

    processes: int = 1
    threads: int = 1
    devices: int = 1
    step: int = 500
    layer: int = 10
    depth: int = 1
    layer_names: int = 50
    device_ns: int = 3_000  # of a kernel: it has ended before the next one is launched
    work: str = "kernel"  # or "copy", "graph" (500 nodes a launch), "" (ranges only)
    beside: str = ""  # "system": calls and scheduling of the operating system; "samples": call chains


SHAPES = {
    "gaps everywhere": Shape(),
    "busy": Shape(device_ns=9_800),
    "2 processes, 4 GPUs, 8 threads": Shape(processes=2, threads=8, devices=4),
    "60 deep": Shape(depth=58),
    "graph nodes": Shape(work="graph"),
    "tiny executions": Shape(step=3, layer=3, layer_names=1),
    "ranges only": Shape(work="", depth=2),
    "2,000 layer names": Shape(step=20_000, layer_names=2_000),
    "copies only": Shape(work="copy"),
    "system rows": Shape(beside="system"),
    "call chains": Shape(beside="samples"),
}


def write_shape(path: str | Path, name: str, rows: int) -> int:
    """Write an export of about so many rows; returns how many it has."""
    shape = SHAPES[name]
    beside = {"": 0, "system": 3, "samples": 2}[shape.beside]
    each = shape.depth + 1 / shape.layer + 1 / shape.step + {"": 0, "graph": 1}.get(shape.work, 2) + beside
    count = max(shape.step, int(rows / each) // (shape.processes * shape.threads))
    builder = ExportBuilder()
    for process in range(shape.processes):
        builder.process(_PID + process)
        for device in range(shape.devices):
            builder.gpu(device, name="Generated GPU")
    names = [builder.string(f"void kernel_{i:02d}<float>(float*)") for i in range(_NAMES)]
    calls = [builder.string(f"{name}_v7000") for name in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch")]
    system = builder.string("poll")
    builder.lazy = False  # tables without rows are there, too
    builder.write(path)
    total = 0
    with adbc.connect(str(path)) as connection:
        for process in range(shape.processes):
            for thread in range(shape.threads):
                tables = _worker(shape, process, thread, count, names, calls, system)
                for table, columns in tables.items():
                    size = len(columns["start" if "start" in columns else "id"])
                    total += size
                    with connection.cursor() as cursor:
                        cursor.adbc_ingest(table, filled(table, columns, size), mode="append")
        connection.commit()
    return total


def _worker(
    shape: Shape, process: int, thread: int, count: int, names: list[int], calls: list[int], system: int
) -> dict[str, dict[str, np.ndarray | pa.Array]]:
    """The columns that differ from their defaults, by table."""
    number = np.arange(count, dtype=np.int64)
    launch = 1_000_000 + number * _EVERY_NS + thread * 7
    tid = global_id(_PID + process, _PID + process + thread)
    correlation = 1 + thread * count + number
    tables = {"NVTX_EVENTS": _ranges(shape, launch, tid)}
    device = (thread + process * shape.devices) % max(shape.devices, 1)
    run = {
        "start": launch + _CALL_NS + 500, "end": launch + _CALL_NS + 500 + shape.device_ns,
        "deviceId": np.full(count, device), "streamId": np.full(count, 7 + thread), "correlationId": correlation,
        "globalPid": np.full(count, global_id(_PID + process)),
    }  # fmt: skip
    if shape.work in ("kernel", "graph"):
        name = np.array(names)[number % len(names)]
        run |= {"demangledName": name, "shortName": name, "mangledName": name, "gridX": 1 + number % 64}
    first = slice(None)
    if shape.work == "graph":
        first = slice(None, None, 500)
        run |= {"correlationId": correlation[number // 500 * 500], "graphNodeId": 1 + number % 500}
    if shape.work:
        tables[MEMCPY if shape.work == "copy" else KERNEL] = run
        if shape.work == "copy":
            run["bytes"] = 4096 + number % 7
        start = launch[first]
        call = calls[{"kernel": 0, "copy": 1, "graph": 2}[shape.work]]
        tables[RUNTIME] = {
            "start": start, "end": start + _CALL_NS, "eventClass": np.zeros(len(start), int),
            "globalTid": np.full(len(start), tid), "correlationId": correlation[first],
            "nameId": np.full(len(start), call),
        }  # fmt: skip
    if shape.beside == "system":
        tables["OSRT_API"] = {"start": launch + 5_000, "end": launch + 9_000, "globalTid": np.full(count, tid),
                              "nameId": np.full(count, system)}  # fmt: skip
        at = np.stack([launch + 6_000, launch + 8_000], 1).ravel()
        tables["SCHED_EVENTS"] = {"start": at, "isSchedIn": np.tile([0, 1], count), "cpu": np.zeros(2 * count, int),
                                  "globalTid": np.full(2 * count, tid)}  # fmt: skip
    if shape.beside == "samples":
        ids = 1 + thread * count + number
        tables["COMPOSITE_EVENTS"] = {"id": ids, "start": launch + 6_000, "globalTid": np.full(count, tid)}
        symbol, depth = np.full(count, system), np.zeros(count, int)
        tables["SAMPLING_CALLCHAINS"] = {"id": ids, "symbol": symbol, "stackDepth": depth}
    return tables


def _ranges(shape: Shape, launch: np.ndarray, tid: int) -> dict[str, np.ndarray | pa.Array]:
    """Steps, layers and operators, in the order in which they begin."""
    count = len(launch)
    starts, ends, texts = [], [], []
    for every, margin, one in ((shape.step, 900, "step"), (shape.layer, 800, "layer")):
        first = np.arange(0, count, every)
        last = np.minimum(first + every, count) - 1
        starts.append(launch[first] - margin)
        ends.append(launch[last] + _CALL_NS + margin)
        of = np.arange(len(first)) % shape.layer_names
        texts += [one] * len(first) if one == "step" else [f"layer.{k}" for k in of.tolist()]
    around = 10 * np.arange(shape.depth, 0, -1)
    starts.append((launch[:, None] - around).ravel())
    ends.append((launch[:, None] + _CALL_NS + around).ravel())
    start, end = np.concatenate(starts), np.concatenate(ends)
    operators = pa.array([f"aten::op{k}" for k in range(shape.depth)])
    text = operators.take(pa.array(np.tile(np.arange(shape.depth), count)))
    order = pa.array(np.argsort(start, kind="stable"))
    text = pa.concat_arrays([pa.array(texts, pa.string()), text]).take(order)
    size = len(start)
    return {
        "start": start[order], "end": end[order], "eventType": np.full(size, 59), "text": text,
        "globalTid": np.full(size, tid), "domainId": np.zeros(size, np.int64),
    }  # fmt: skip
