"""Copies: their direction, and where the memory on the host's side lies, for each format that says it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import COPY_KINDS, ExportBuilder

from xsp_post.ingest.sources import load
from xsp_post.model.trace import COPY_DIRECTIONS, MemoryKind, memory_kinds
from xsp_post.pipeline import analyze

PAGEABLE, PINNED, DEVICE = int(MemoryKind.PAGEABLE), int(MemoryKind.PINNED), int(MemoryKind.DEVICE)
DIRECTIONS = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "HtoH": "host to host",
              "PtoP": "peer to peer"}  # fmt: skip
# direction, memory of the source, memory of the target → memory of the host's side; between devices the source's
COPIES = [
    ("HtoD", PAGEABLE, DEVICE, PAGEABLE), ("HtoD", PINNED, DEVICE, PINNED), ("DtoH", DEVICE, PAGEABLE, PAGEABLE),
    ("DtoH", DEVICE, PINNED, PINNED), ("DtoD", DEVICE, DEVICE, DEVICE), ("HtoH", PINNED, PAGEABLE, PINNED),
    ("PtoP", DEVICE, DEVICE, DEVICE),
]  # fmt: skip


def test_the_host_is_the_target_of_copies_to_it():
    kinds = np.arange(len(COPY_DIRECTIONS))
    is_to_host = [direction.split(",")[0].endswith("to host") and not direction.startswith("host")
                  for direction in COPY_DIRECTIONS]  # fmt: skip
    found = memory_kinds(kinds, np.full(len(kinds), PAGEABLE), np.full(len(kinds), PINNED))
    assert found.tolist() == [PINNED if to_host else PAGEABLE for to_host in is_to_host]
    assert sum(is_to_host) == 3, COPY_DIRECTIONS  # of these two to plain memory, one to unified memory


def test_copies_of_an_nsys_export(tmp_path):
    builder = ExportBuilder().range("model#0", 0, 10_000, domain="xsp")
    for number, (way, source, target, _) in enumerate(COPIES):
        at, sides = 100 * number, {"srcKind": source - 1, "dstKind": target - 1}
        builder.memcpy(64, kind=way, launch=(at, at + 9), run=(at + 20, at + 90), **sides)
    path = builder.write(tmp_path / "report.sqlite")
    activities = load(path).trace.activities
    assert activities["memory_kind"].tolist() == [host for *_, host in COPIES]
    assert activities["copy_kind"].tolist() == [COPY_KINDS[way] for way, *_ in COPIES]
    table = analyze([path]).frames["memory_operations"]
    assert table.sort_values("start_ns")["direction"].tolist() == [DIRECTIONS[way] for way, *_ in COPIES]


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy[0])
def test_copies_of_a_pytorch_trace(tmp_path, copy):
    way, source, target, host = copy
    sides = f"{MemoryKind(source).name.title()} -> {MemoryKind(target).name.title()}"
    args = {"device": 0, "stream": 7, "correlation": 12, "bytes": 4096}
    events = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1, "ts": 70, "dur": 5,
         "args": {"correlation": 12}},
        {"ph": "X", "cat": "gpu_memcpy", "name": f"Memcpy {way} ({sides})", "pid": 0, "tid": 7, "ts": 80, "dur": 9,
         "args": args},
    ]  # fmt: skip
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    activities = load(path).trace.activities
    assert activities["memory_kind"].tolist() == [host]
    assert [COPY_DIRECTIONS[kind] for kind in activities["copy_kind"]] == [DIRECTIONS[way]]
