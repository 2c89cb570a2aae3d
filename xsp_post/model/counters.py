"""The value that ``ingest`` makes of counters, and the names of the quantities that are read out of it."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from xsp_post.base.findings import Finding

DURATION = "gpu__time_duration.sum"  # of a kernel under the profiler; never a latency

# Quantity → unit. `kernel_metrics.metric_name` of ours; every other name there is the tool's own.
_BY_UNIT = {
    "flop": "flop flop_fp64 flop_fp32 flop_fp16 flop_tensor",
    "B": "dram_bytes dram_read_bytes dram_write_bytes l2_bytes",
    "1": "occupancy_ratio theoretical_occupancy_ratio tensor_active_ratio compute_speed_ratio memory_speed_ratio",
    "ns": "counted_duration_ns", "flop/s": "peak_fp64_flop_per_s peak_fp32_flop_per_s peak_fp16_flop_per_s",
    "B/s": "peak_dram_bytes_per_s",
}  # fmt: skip
QUANTITIES: dict[str, str] = {name: unit for unit, names in _BY_UNIT.items() for name in names.split()}


# How the source of a kernel's tensor flop begins where its tensor work was integer: that is not counted as flop.
INTEGER_ONLY = "tensor pipe: integer work only"


@dataclass
class CounterReport:
    """Counters of one profiling run.

    actions   one row per profiled kernel (or range), index = action_id = profiling order: name (demangled),
              short_name, domain, range_path (NVTX push/pop names outer → inner joined by ' > ', '' none),
              process_id, context_id, stream_id, device_id i64 (−1 unknown), gpu_name, workload_type (kernel,
              graph, range, cmdlist), grid_x … block_z i64 (0 unknown), correlation_id i64 (−1: the tool tells none)
    metrics   action_id i64, metric_name (categorical), value f64, unit (categorical); absent rows: not recorded
    device_attributes   device_id → NVIDIA's device__attribute_* without that prefix
    """

    report_name: str
    tool: str  # ncu, jaeger
    actions: pd.DataFrame
    metrics: pd.DataFrame
    device_attributes: dict[int, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    batch_size: int = -1  # of the run it was recorded in; −1: unknown, fits any


ACTION_DTYPES = {
    "name": "object", "short_name": "object", "domain": "object", "range_path": "object", "gpu_name": "object",
    "workload_type": "object", "process_id": "int64", "context_id": "int64", "stream_id": "int64",
    "device_id": "int64", "grid_x": "int64", "grid_y": "int64", "grid_z": "int64", "block_x": "int64",
    "block_y": "int64", "block_z": "int64", "correlation_id": "int64",
}  # fmt: skip
PATH_SEPARATOR = " > "
