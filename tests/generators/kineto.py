"""A big PyTorch trace (gzipped JSON) as the profiler writes it with shapes: steps, operators, calls, kernels, arrows.

Eight events an operator: `aten::linear` with shapes around `aten::addmm`, its launch and kernel, the arrow between
these, the profiler's annotation of the layer, an instant of memory. Times are epoch microseconds with three digits
behind the point: more than a float holds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

EVENTS_PER_OPERATOR, OPERATORS_PER_STEP = 8, 200
_START_NS, _STEP_NS, _PID = 1_700_000_000_123_456_789, 20_000, 4242
_HEAD = (
    '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Generated GPU", "numSms": 108}],\n"traceEvents": [\n'
)


def write_kineto_trace(path: str | Path, events: int) -> int:
    """Write (at least) so many events; returns how many operators, each with one kernel."""
    operators = -(-events // EVENTS_PER_OPERATOR)
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as stream:
        stream.write(_HEAD + ",\n".join(_steps(operators)) + "\n]}\n")
    return operators


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _event(
    category: str, name: str, at_ns: int, duration_ns: int, args: str, *, pid: int = _PID, tid: int = _PID
) -> str:
    return (
        f'  {{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {_us(at_ns)}, '
        f'"dur": {_us(duration_ns)}, "args": {{{args}}}}}'
    )


def _steps(operators: int) -> Iterator[str]:
    for first in range(0, operators, OPERATORS_PER_STEP):
        count = min(OPERATORS_PER_STEP, operators - first)
        at, step = _START_NS + first * _STEP_NS, first // OPERATORS_PER_STEP
        yield _event("user_annotation", f"ProfilerStep#{step}", at, count * _STEP_NS - 10, '"External id": 0')
        for number in range(first, first + count):
            yield from _operator(number, _START_NS + number * _STEP_NS + 10)


def _operator(number: int, at: int) -> Iterator[str]:
    layer, size = number % OPERATORS_PER_STEP, 64 * (1 + number % 16)
    ids = f'"External id": {number}, "Record function id": 0'
    shapes = (
        f'"Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"], "Input Strides": [[{size}, 1], '
        f'[{size}, 1], [1]], "Input Dims": [[8, {size}], [{size}, {size}], [{size}]], "Ev Idx": {number}'
    )
    call, device = f'"External id": {number}, "cbid": 211, "correlation": {number + 1}', '"pid": 0, "tid": 7'
    yield _event("python_function", f"nn.Module: Linear_{layer}", at, 15_000, f'"Python id": {number}')
    yield _event("cpu_op", "aten::linear", at + 100, 14_000, f"{ids}, {shapes}")
    yield _event("cpu_op", "aten::addmm", at + 200, 13_000, f"{ids}, {shapes}")
    yield (
        f'  {{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": {_PID}, "tid": {_PID}, '
        f'"ts": {_us(at + 300)}, "args": {{"Total Allocated": {number * 512}, "Bytes": 512, "Addr": {number}, '
        '"Device Id": 0, "Device Type": 1}}'
    )
    yield _event("cuda_runtime", "cudaLaunchKernel", at + 1_000, 4_000, call)
    yield (
        f'  {{"ph": "s", "id": {number}, "pid": {_PID}, "tid": {_PID}, "ts": {_us(at + 1_000)}, "cat": "ac2g", '
        '"name": "ac2g"}'
    )
    yield (
        f'  {{"ph": "f", "id": {number}, {device}, "ts": {_us(at + 6_001)}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'
    )
    yield _event(
        "kernel", f"void gemm_{number % 16}<float, 128>(float*, float const*, int)", at + 6_001, 12_345,
        f'"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number + 1}, '
        '"registers per thread": 32, "shared memory": 16384, "blocks per SM": 1.5, "warps per SM": 12.0, '
        '"grid": [64, 4, 1], "block": [256, 1, 1], "est. achieved occupancy %": 38',
        pid=0, tid=7,
    )  # fmt: skip
