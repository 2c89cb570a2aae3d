"""Bench of the counter reader: 100,000 kernel results with 20 metrics each, in under 60 s and 1.5 GB.

The report is a real one repeated: its result blocks, with 20 of their metrics, written again and again
into one ``.ncu-rep`` file that NVIDIA's reader opens like any other. Run: python scripts/benches/ncu.py [COUNT]
"""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xsp_post.ingest.ncu_blocks import MAGIC, PAYLOAD_SIZE, RESULT_COUNT, STRING_TABLE, blocks, message, number

LIMIT_S, LIMIT_BYTES = 60.0, 1_500_000_000
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
    assert raw[:4] == MAGIC


def _payloads(raw: bytes, block) -> list[dict]:  # type: ignore[no-untyped-def]
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


def measure(path: Path) -> tuple[float, int, int, int]:
    """(seconds, peak bytes, actions, metric values) of reading and deriving quantities, in this process."""
    from xsp_post.counters import quantities
    from xsp_post.ingest.ncu import read_ncu

    start = time.perf_counter()
    report = read_ncu(path)
    derived = quantities(report)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert len(derived)
    return seconds, peak, len(report.actions), len(report.metrics)


def main(arguments: list[str]) -> int:
    """Build, measure in a fresh process, print one line; 1 when a limit is broken."""
    if len(arguments) == 2 and arguments[0] == "--measure":
        print(*measure(Path(arguments[1])))
        return 0
    count = int(arguments[0]) if arguments else 100_000
    captures = Path(os.environ.get("XSP_POST_CAPTURES", Path(__file__).parents[2].parent / "shared" / "captures"))
    source = captures / "ncu" / "sgemm_roofline_a10g_2023.1.ncu-rep"
    if not source.exists():
        print(f"ncu: skipped, {source.name} is not here (set XSP_POST_CAPTURES)")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "repeated.ncu-rep"
        repeat(source, target, count)
        mib = target.stat().st_size / 2**20
        command = [sys.executable, __file__, "--measure", str(target)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    seconds, peak, actions, values = float(printed[0]), int(printed[1]), int(printed[2]), int(printed[3])
    is_good = seconds < LIMIT_S and peak < LIMIT_BYTES and actions == count
    print(f"ncu: {actions} results, {values} values, {mib:.0f} MiB: {seconds:.1f} s (< {LIMIT_S:.0f}), "
          f"{peak / 1e6:.0f} MB (< {LIMIT_BYTES / 1e6:.0f}) {'ok' if is_good else 'TOO SLOW OR TOO BIG'}")  # fmt: skip
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
