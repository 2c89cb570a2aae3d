"""Exports that are large in one way only; each kernel in a range of its own, on one thread and one stream.

names: no two kernels and no two ranges are called alike (letters, so that no rule finds numbers to fold).
many-layers: one execution of the domain xsp with as many different layers as kernels.
deep: as many ranges inside one another as there are kernels, which the innermost launches.
flat: as many ranges side by side, called alike.
"""

from __future__ import annotations

from pathlib import Path

import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pyarrow as pa
from builders import ExportBuilder, global_id
from export_schema import KERNEL, RUNTIME

from generators.big import filled

SHAPES = ("names", "many-layers", "deep", "flat")
_PID, _STEP_NS, _ALPHABET = 1000, 1000, np.array(list("abcdefghijklmnopqrst"))


def write_extreme_export(path: str | Path, shape: str, count: int) -> None:
    """The export of that many kernels."""
    builder = ExportBuilder().process(_PID).gpu(0, name="Generated GPU")
    words = _words(count)
    names = [f"void {word}_kernel<float>(float*)" for word in words] if shape == "names" else ["gemm"]
    ids = [builder.string(name) for name in names]
    call = builder.string("cudaLaunchKernel_v7000")
    domain = builder.domain("xsp").rows["NVTX_EVENTS"][0]["domainId"] if shape == "many-layers" else 0
    builder.lazy = False  # tables without rows are there, too
    builder.write(path)
    start = _STEP_NS * np.arange(1, count + 1)
    name = np.resize(np.array(ids), count)
    thread, correlation = np.full(count, global_id(_PID, _PID)), np.arange(1, count + 1)
    tables = {
        "NVTX_EVENTS": _ranges(shape, start, words, domain),
        KERNEL: filled(KERNEL, {
            "start": start + 500, "end": start + 900, "deviceId": np.zeros(count, int), "streamId": np.full(count, 7),
            "correlationId": correlation, "globalPid": np.full(count, global_id(_PID)), "demangledName": name,
            "shortName": name, "mangledName": name,
        }, count),
        RUNTIME: filled(RUNTIME, {
            "start": start + 100, "end": start + 200, "eventClass": np.zeros(count, int), "globalTid": thread,
            "correlationId": correlation, "nameId": np.full(count, call),
        }, count),
    }  # fmt: skip
    with adbc.connect(str(path)) as connection:
        for table, rows in tables.items():
            with connection.cursor() as cursor:
                cursor.adbc_ingest(table, rows, mode="append")
        connection.commit()


def _words(count: int) -> list[str]:
    """Different words of five letters."""
    letters = _ALPHABET[np.arange(count)[:, None] // len(_ALPHABET) ** np.arange(5) % len(_ALPHABET)]
    return ["".join(row) for row in letters.tolist()]


def _ranges(shape: str, start: np.ndarray, words: list[str], domain: int) -> pa.Table:
    count, end = len(start), start + 950
    texts = [f"{word} range" for word in words] if shape == "names" else ["range"] * count
    if shape == "deep":  # the launches come after every start and before every end
        start, end = start[0] - count - 1 + np.arange(count), start[-1] + 2 * count - np.arange(count)
    if shape == "many-layers":
        texts = ["model:forward#0", *(f"blocks.{i}.fc:Linear#0" for i in range(count))]
        start, end = np.append(start[0] - 1, start), np.append(end[-1] + 1, end)
    columns = {
        "start": start, "end": end, "eventType": np.full(len(start), 59), "text": pa.array(texts),
        "globalTid": np.full(len(start), global_id(_PID, _PID)), "domainId": np.full(len(start), domain),
    }  # fmt: skip
    return filled("NVTX_EVENTS", columns, len(start))
