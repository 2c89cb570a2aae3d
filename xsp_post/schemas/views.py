"""How tables are shown, on the page and on the terminal: by default these columns, in this order, under these labels.

A column without a label here is called by its name without the unit; a table without a view shows all its columns.
Files (CSV, JSON, Markdown, Parquet) keep the names of the columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xsp_post.schemas.base import column_names, unit_of


@dataclass(frozen=True)
class View:
    """The columns that a table shows by default (none: all of them), and labels that only this table has."""

    columns: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


# Of columns that have one label in every table.
LABELS = {
    "layer_index": "layer",
    "arithmetic_intensity_flop_per_byte": "intensity",
    "arithmetic_throughput_flop_per_s": "throughput",
    "throughput_inputs_per_s": "throughput",
    "is_memory_bound": "memory-bound",
    "shape_text": "shape",
    "memory_bandwidth_bytes_per_s": "memory bandwidth",
    "is_warmup": "warm-up",
    "layer_path": "path",
    "layer_name": "name",
    "layer_type": "type",
    "latency_ratio": "share",
    "short_name": "kernel",
    "standard_deviation_ns": "std dev",
    "std_latency_ns": "std dev",
    "sample_count": "n",
    "total_flop": "flop",
    "dram_read_bytes": "DRAM reads",
    "dram_write_bytes": "DRAM writes",
    "occupancy_ratio": "occupancy",
    "theoretical_occupancy_ratio": "possible occupancy",
    "roof_ratio": "of roof",
    "mfu_ratio": "MFU",
    "forward_kernel_ns": "forward",
    "backward_kernel_ns": "backward",
    "optimizer_kernel_ns": "optimizer",
    "counter_coverage_ratio": "counted",
    "counter_source": "counted by",
    "device_ns": "device time",
    "kernel_ns": "kernel time",
    "copy_ns": "copy time",
    "graph_ns": "graph time",
    "training_phase": "phase of training",
    "analytic_flop": "flop by shapes",
    "analytic_bytes": "bytes by shapes",
}

_COMPARED = {
    "layer_path": "layer",
    "name": "kernel",
    "other_name": "other's kernel",
    "impact_ns": "costs",
    "base_mean_ns": "base, each",
    "other_mean_ns": "other, each",
    "base_per_unit": "base",
    "other_per_unit": "other",
    "difference_value": "difference",
    "base_latency_ns": "base",
    "other_latency_ns": "other",
    "difference_ns": "difference",
    "difference_ratio": "difference in %",
    "interval": "95 % interval",
    "ci_low_difference_ns": "95 % from",
    "ci_high_difference_ns": "to",
    "adjusted_p_value": "p (corrected)",
    "base_count": "launches",
    "other_count": "in the other",
    "base_sample_count": "n base",
    "other_sample_count": "n other",
    "call_index": "call",
    "layer_type": "type",
}

_OF_MANY = {
    "workload_name": "workload",
    "system_name": "system",
    "capture_name": "capture",
    "limit": "limited by",
    "source_name": "file",
    "gpu_latency_ratio": "GPU share",
    "convolution_latency_ratio": "convolution",
    "max_throughput_inputs_per_s": "most throughput",
    "optimal_batch_size": "optimal batch",
    "attributed_ratio": "in ranges",
    "memory_peak_bytes": "peak of memory",
    "online_batch_size": "smallest batch",
    "own_kernel_count": "kernels found only here",
    "normalized_throughput_ratio": "throughput / base",
    "normalized_kernel_latency_ratio": "kernel latency / base",
    "normalized_online_latency_ratio": "latency / base",
    "normalized_max_throughput_ratio": "throughput / base",
    "non_gpu_latency_ratio": "not on the GPU",
    "exposed_ns": "exposed communication",
    "overlap_ratio": "overlapped",
    "compute_excess_ratio": "compute over others",
    "name": "kernel",
}

VIEWS: dict[str, View] = {
    "a01": View(
        (
            "batch_size", "phase", "latency_ns", "ci_low_latency_ns", "ci_high_latency_ns", "interval_over",
            "min_latency_ns", "max_latency_ns", "std_latency_ns", "sample_count", "latency_per_input_ns",
            "throughput_inputs_per_s", "throughput_gain_ratio", "is_optimal", "level", "gpu_name",
        ),
        {
            "ci_low_latency_ns": "95 % from", "ci_high_latency_ns": "to", "min_latency_ns": "min",
            "max_latency_ns": "max", "latency_per_input_ns": "per input", "throughput_gain_ratio": "gain by doubling",
        },
    ),
    "a15": View(
        (
            "batch_size", "phase", "model_latency_ns", "kernel_latency_ns", "kernel_total_ns", "forward_kernel_ns",
            "backward_kernel_ns", "optimizer_kernel_ns", "busy_ns", "kernel_count", "unique_kernel_count",
            "gpu_latency_ratio", "gpu_busy_ratio", "total_flop", "dram_read_bytes", "dram_write_bytes",
            "occupancy_ratio", "arithmetic_intensity_flop_per_byte", "arithmetic_throughput_flop_per_s", "bound",
            "pipe", "roof_ratio", "mfu_ratio", "counter_coverage_ratio", "counter_source",
        ),
        {
            "model_latency_ns": "model", "kernel_latency_ns": "kernels", "kernel_total_ns": "kernels together",
            "busy_ns": "GPU busy", "kernel_count": "launches", "unique_kernel_count": "different",
            "gpu_latency_ratio": "kernels of model", "gpu_busy_ratio": "busy share",
        },
    ),
    "a10": View(
        (
            "name", "kernel_count", "latency_ns", "latency_ratio", "kernel_latency_ratio", "total_flop",
            "dram_read_bytes", "dram_write_bytes", "occupancy_ratio", "arithmetic_intensity_flop_per_byte",
            "arithmetic_throughput_flop_per_s", "bound", "counter_coverage_ratio",
        ),
        {
            "kernel_count": "launches", "latency_ratio": "of model", "kernel_latency_ratio": "of kernels",
            "name": "kernel",
        },
    ),
    "a08": View(
        (
            "kernel_index", "name", "latency_ns", "layer_index", "layer_name", "std_latency_ns", "sample_count",
            "queue_delay_ns", "total_flop", "dram_read_bytes", "dram_write_bytes", "occupancy_ratio",
            "theoretical_occupancy_ratio", "arithmetic_intensity_flop_per_byte", "arithmetic_throughput_flop_per_s",
            "bound", "pipe",
        ),
        {"kernel_index": "launch", "name": "kernel"},
    ),
    "a02": View(
        (
            "layer_index", "layer_name", "layer_type", "shape_text", "latency_ns", "latency_ratio", "kernel_latency_ns",
            "forward_kernel_ns", "backward_kernel_ns", "optimizer_kernel_ns", "allocated_bytes", "call_count",
            "layer_path", "bound",
        ),
        {"latency_ratio": "of layers"},
    ),
    "a09": View((), {"name": "kernel"}),
    "dominant_kernels": View((), {"name": "kernel"}),
    "kernels": View((), {"name": "kernel"}),
    "stages": View(
        ("stage", "layer_count", "latency_ns", "allocated_bytes", "total_flop", "dram_bytes"),
        {"dram_bytes": "DRAM traffic"},
    ),
    "overhead": View(
        (
            "event", "level", "latency_ns", "is_accurate", "compared_level", "overhead_ns", "overhead_ratio",
            "ci_low_overhead_ns", "ci_high_overhead_ns", "verdict", "total_overhead_ns", "total_overhead_ratio",
            "capture_count", "sample_count", "interval_over",
        ),
        {
            "compared_level": "against", "overhead_ratio": "share", "ci_low_overhead_ns": "95 % from",
            "ci_high_overhead_ns": "to", "total_overhead_ns": "in all", "total_overhead_ratio": "share in all",
            "capture_count": "captures",
        },
    ),
    "a11": View(
        (
            "layer_index", "layer_name", "layer_type", "layer_latency_ns", "kernel_latency_ns", "kernel_count", "name",
            "total_flop", "dram_read_bytes", "dram_write_bytes", "occupancy_ratio",
            "arithmetic_intensity_flop_per_byte", "arithmetic_throughput_flop_per_s", "bound", "roof_ratio",
            "mfu_ratio", "counter_coverage_ratio", "counter_source",
        ),
        {
            "name": "longest kernel", "layer_latency_ns": "layer", "kernel_latency_ns": "kernels",
            "kernel_count": "launches",
        },
    ),
    "a13": View(
        (
            "layer_index", "layer_name", "layer_latency_ns", "kernel_latency_ns", "busy_ns", "non_gpu_by_sum_ns",
            "non_gpu_by_union_ns", "gpu_by_sum_ratio", "gpu_by_union_ratio", "is_negative",
        ),
        {
            "layer_latency_ns": "layer", "kernel_latency_ns": "kernels", "non_gpu_by_sum_ns": "non-GPU (sum)",
            "non_gpu_by_union_ns": "non-GPU (union)", "gpu_by_sum_ratio": "GPU (sum)",
            "gpu_by_union_ratio": "GPU (union)",
        },
    ),
    "captures": View(
        (
            "capture_id", "level", "collector", "source_name", "tool_version", "schema_version", "workload_name",
            "framework", "gpu_name", "batch_size", "kernel_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns",
            "gpu_count", "busy_ns", "duration_ns", "process_count", "level_rule", "execution_evidence",
            "layer_evidence", "clock_offset_ns", "is_partial",
        ),
        {
            "capture_id": "id", "source_name": "file", "gpu_count": "GPUs", "busy_ns": "GPU busy",
            "duration_ns": "recorded", "process_count": "processes",
        },
    ),
    "roofs": View(
        (
            "gpu_name", "pipe", "peak_flop_per_s", "memory_bandwidth_bytes_per_s", "ideal_intensity_flop_per_byte",
            "origin", "source",
        ),
        {"peak_flop_per_s": "peak"},
    ),
    "idle_causes": View(
        ("cause", "idle_ns", "owner", "call_name", "detail", "layer_path", "piece_count", "longest_ns"),
        {"call_name": "call or frame", "owner": "in range", "layer_path": "layer", "piece_count": "pieces"},
    ),
    "a06": View(
        (
            "layer_type", "layer_count", "count_ratio", "latency_ns", "latency_ratio", "forward_kernel_ns",
            "backward_kernel_ns", "optimizer_kernel_ns", "allocated_bytes", "allocated_ratio",
        ),
        {"count_ratio": "of layers", "latency_ratio": "of latency", "allocated_ratio": "of memory"},
    ),
    "training_phases": View(
        (
            "training_phase", "layer_name", "kernel_latency_ns", "kernel_latency_ratio", "kernel_count", "total_flop",
            "bound",
        ),
        {"training_phase": "phase", "kernel_latency_ns": "kernel time", "kernel_latency_ratio": "share"},
    ),
    "paths": View((), {"name": "range", "idle_ns": "waited", "duration_ns": "host"}),
    "compare_cases": View((), _COMPARED),
    "compare_models": View((), _COMPARED),
    "compare_layers": View((), _COMPARED),
    "compare_kernels": View((), _COMPARED),
    "compare_totals": View((), _COMPARED),
    "compare_names": View((), _COMPARED),
    "fleet": View(
        (
            "capture_name", "status", "limit", "kernel_count", "device_ns", "iteration_count", "layer_count",
            "attributed_ratio", "memory_peak_bytes", "code", "message",
        ),
        _OF_MANY,
    ),
    "fleet_cases": View((), _OF_MANY),
    "fleet_models": View((), _OF_MANY),
    "fleet_scalability": View((), _OF_MANY),
    "fleet_frameworks": View((), _OF_MANY),
    "fleet_systems": View((), _OF_MANY),
    "fleet_families": View((), _OF_MANY),
    "fleet_kernels": View((), _OF_MANY),
    "fleet_kernel_sets": View((), _OF_MANY),
    "ranks": View(
        (
            "rank", "is_straggler", "busy_ns", "compute_ns", "communication_ns", "exposed_ns", "overlap_ratio",
            "waiting_ns", "idle_ns", "last_count", "matched_count", "compute_excess_ratio", "duration_ns",
            "capture_name",
        ),
        {**_OF_MANY, "last_count": "last to arrive", "matched_count": "matched", "is_straggler": "waited for",
         "exposed_ns": "exposed"},
    ),
    "rank_layers": View(
        (
            "layer_path", "layer_type", "rank_count", "median_latency_ns", "min_latency_ns", "slowest_latency_ns",
            "slowest_rank_name", "spread_ratio",
        ),
        {"layer_path": "layer", "slowest_rank_name": "slowest rank", "min_latency_ns": "fastest"},
    ),
    "collectives": View(
        (
            "device_id", "kind", "name", "collective_count", "duration_ns", "transfer_ns", "waiting_ns",
            "launch_skew_ns", "overlapped_ns",
        ),
        {"device_id": "device", "collective_count": "collectives", "duration_ns": "in all"},
    ),
    "gpu_samples": View(
        (
            "gpu_index", "scope", "layer_index", "layer_path", "iteration_index", "busy_ns", "sample_count",
            "sm_active_ratio", "sm_issue_ratio", "tensor_active_ratio", "dram_read_ratio", "dram_write_ratio",
            "dram_bytes_per_s", "gpc_clock_hz", "purity_ratio",
        ),
        {
            "gpu_index": "GPU", "iteration_index": "execution", "sample_count": "samples",
            "sm_active_ratio": "SMs active", "sm_issue_ratio": "issuing", "tensor_active_ratio": "tensor",
            "dram_read_ratio": "DRAM read", "dram_write_ratio": "write", "dram_bytes_per_s": "DRAM rate",
            "gpc_clock_hz": "clock", "purity_ratio": "own share",
        },
    ),
    "memory": View(
        (
            "owner", "layer_type", "training_phase", "live_at_peak_bytes", "live_at_peak_ratio", "most_live_bytes",
            "allocated_bytes", "allocation_count", "released_bytes", "live_at_end_bytes", "layer_index", "owner_kind",
        ),
        {
            "owner": "layer or range", "training_phase": "phase", "live_at_peak_bytes": "at the peak",
            "live_at_peak_ratio": "share", "most_live_bytes": "at most", "allocation_count": "allocations",
            "live_at_end_bytes": "at the end", "owner_kind": "kind",
        },
    ),
    "memory_devices": View(
        (
            "process_id", "device_id", "memory_kind", "peak_bytes", "peak_offset_ns", "peak_range", "earlier_bytes",
            "allocated_bytes", "allocation_count", "released_bytes", "end_bytes", "reserved_bytes", "memory_bytes",
            "recorded_by",
        ),
        {
            "process_id": "process", "device_id": "device", "memory_kind": "memory", "peak_ns": "peak at",
            "peak_bytes": "peak", "peak_offset_ns": "after", "peak_range": "in",
            "earlier_bytes": "before the recording", "allocation_count": "allocations", "end_bytes": "at the end",
            "reserved_bytes": "most reserved", "memory_bytes": "of the GPU",
        },
    ),
}  # fmt: skip

_SUFFIXES = (
    "_flop_per_byte", "_flop_per_s", "_bytes_per_s", "_inputs_per_s", "_ns", "_bytes", "_flop", "_hz", "_ratio",
    "_count",
)  # fmt: skip
_UNITS = {"ns": "time", "1": "%"}
_BOUNDS = {"ci_low_": " from (95 %)", "ci_high_": " to (95 %)"}
_ACRONYMS = {word.lower(): word for word in ("CPU", "CUDA", "DRAM", "GPU", "L1", "L2", "MFU", "MPI", "SM", "UTC")}
_COUNTED = {"kernel": "kernels", "call": "calls", "layer": "layers", "copy": "copies", "graph": "graphs"}


def view_of(table: str) -> tuple[str, ...]:
    """The columns that a table shows by default, in order."""
    view = VIEWS.get(table)
    return view.columns if view is not None and view.columns else tuple(column_names(table))


def label_of(table: str, column: str) -> str:
    """A column's name for people: words, without the unit suffix. ``median_duration_ns`` → "median duration"."""
    view = VIEWS.get(table)
    if view is not None and column in view.labels:
        return view.labels[column]
    return LABELS.get(column) or _words(column)


def titles_of(table: str, columns: Sequence[str]) -> dict[str, str]:
    """The labels of columns that stand in one table. Where two would have one label: the words of their names, with
    the unit where these are equal, too."""
    titles = {column: label_of(table, column) for column in columns}
    for other in (_words, lambda column: f"{_words(column)} ({_UNITS.get(unit_of(column), unit_of(column))})"):
        count = Counter(titles.values())
        titles = {column: title if count[title] == 1 else other(column) for column, title in titles.items()}
    return titles


def _words(column: str) -> str:
    name = column
    if unit_of(column):
        name = next((column[: -len(suffix)] for suffix in _SUFFIXES if column.endswith(suffix)), column)
    if column.endswith("_count"):
        name = _COUNTED.get(name, f"{name} count")
    if column.endswith("_bytes_per_s"):
        name += " rate"
    for prefix, word in _BOUNDS.items():
        if name.startswith(prefix):
            name = name.removeprefix(prefix) + word
    words = name.removeprefix("is_").replace("_", " ").split()
    return " ".join(_ACRONYMS.get(word, word) for word in words)
