"""Bench of the counter reader: 100,000 kernel results with 20 metrics each, in under 60 s and 1.5 GB.

The report is a real one repeated: its result blocks, with 20 of their metrics, written again and again
into one ``.ncu-rep`` file that NVIDIA's reader opens like any other. Run: scripts/bench ncu
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
from pathlib import Path

from benches._measure import ROOT, Bar, finish, measure, report, work_folder
from benches._ncu_blocks import PAYLOAD_SIZE, RESULT_COUNT, STRING_TABLE, Block, blocks, message, number

LIMIT_S, LIMIT_MB = 60.0, 1500.0
RESULTS_PER_BLOCK = 1000
METRICS_FIELD, SECTIONS_FIELD, RULES_FIELD, METRIC_NAME = 13, 17, 19, 1
METRICS = (
    "gpu__time_duration.sum", "dram__bytes.sum.per_second", "dram__bytes.sum.peak_sustained",
    "dram__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second",
    "sm__maximum_warps_per_active_cycle_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    *(f"smsp__sass_thread_inst_executed_op_{p}{op}_pred_on.sum.per_cycle_elapsed" for p in "fdh" for op in
      ("add", "mul", "fma")), "launch__device_id", "device__attribute_display_name",
)  # fmt: skip


def repeat(source: Path, target: Path, count: int) -> None:
    """Write a report with `count` results: those of `source`, in turn, reduced to `METRICS`."""
    with source.open("rb") as stream:
        every = list(blocks(stream))
        raw = source.read_bytes()
    names = [name for block in every for table in block.fields.get(STRING_TABLE, ()) if isinstance(table, bytes)
             for name in message(table).get(1, ())]  # fmt: skip
    kept = {index for index, name in enumerate(names) if isinstance(name, bytes) and name.decode() in METRICS}
    results = [_reduced(payload, kept) for block in every if block.result_count for payload in _payloads(raw, block)]
    first = next(block for block in every if block.result_count)
    plain = {key: values for key, values in every[-1].fields.items() if key not in (STRING_TABLE,)}
    with target.open("wb") as stream:
        stream.write(raw[: every[0].start])
        for block in every:
            if not block.result_count:
                stream.write(raw[block.start : block.payload_start + block.payload_size])
        written = 0
        while written < count:
            size = min(RESULTS_PER_BLOCK, count - written)
            body = b"".join(results[(written + i) % len(results)] for i in range(size))
            header = dict(first.fields if written == 0 else plain)
            header[RESULT_COUNT], header[PAYLOAD_SIZE] = [size], [len(body)]
            packed = _packed(header)
            stream.write(struct.pack("<I", len(packed)) + packed + body)
            written += size


def _payloads(raw: bytes, block: Block) -> list[dict]:
    position, found = block.payload_start, []
    for _ in range(block.result_count):
        (size,) = struct.unpack_from("<I", raw, position)
        found.append(message(raw[position + 4 : position + 4 + size]))
        position += 4 + size
    return found


def _reduced(result: dict, kept: set[int]) -> bytes:
    metrics = [m for m in result[METRICS_FIELD] if number(message(m), METRIC_NAME) in kept]
    fields = {key: values for key, values in result.items() if key not in (SECTIONS_FIELD, RULES_FIELD)}
    packed = _packed({**fields, METRICS_FIELD: metrics})
    return struct.pack("<I", len(packed)) + packed


def _packed(fields: dict) -> bytes:
    parts = []
    for key, values in fields.items():
        for value in values:
            if isinstance(value, int):
                parts.append(_varint(key << 3) + _varint(value))
            else:
                parts.append(_varint(key << 3 | 2) + _varint(len(value)) + value)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


READ = """
import sys
from pathlib import Path
from xsp_post.counters.quantities import quantities
from xsp_post.ingest.ncu import read_ncu
report = read_ncu(Path(sys.argv[1]))
assert len(report.actions) == int(sys.argv[2]) and len(quantities(report))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed")


def main(options: argparse.Namespace) -> int:
    captures = Path(os.environ.get("XSP_POST_CAPTURES") or ROOT.parent / "shared" / "captures")
    source = captures / "ncu" / "sgemm_roofline_a10g_2023.1.ncu-rep"
    if not source.exists():
        print(f"skipped: {source.name} is not here (set XSP_POST_CAPTURES)")
        return 0
    with work_folder(None) as folder:
        target = folder / "repeated.ncu-rep"
        repeat(source, target, options.results)
        command = [sys.executable, "-c", READ, str(target), str(options.results)]
        work = f"read {options.results:,} results, {len(METRICS)} metrics"
        missed = report([(measure(work, command, repeat=options.repeat), Bar(seconds=LIMIT_S, megabytes=LIMIT_MB))])
    return finish(missed, check=options.check)
