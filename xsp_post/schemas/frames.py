"""The columns of the frames in memory, between a capture and its tables: those of a `Trace` and those of a `Tree`.

The dtype is the one in memory, where int8 and int32 halve what a million rows need. SQLite has one integer type of 64
bits: what is int8 or int32 here is int64 in every table of the store and after reading one (`STORE_DTYPES`).
"""

from __future__ import annotations

from dataclasses import dataclass

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.gpu_samples import METRIC_COLUMNS

STORE_DTYPES = {"int8": "int64", "int32": "int64", "int64": "int64", "float64": "float64", "bool": "bool", "str": "str"}
ANY_INTEGER = "int"  # of frames with a handful of rows, and of ids that are as small as their values allow


@dataclass(frozen=True)
class Frame:
    """One frame in memory: where it lies, one row per what, its columns, and those it may have besides."""

    name: str
    one_row_per: str
    columns: tuple[C, ...]
    optional: tuple[C, ...] = ()


def _times(what: str) -> tuple[C, C]:
    return C("start_ns", "int64", f"start of the {what}"), C("end_ns", "int64", f"end of the {what}")


_PROCESS = C("process_index", "int32", "row of the frame processes")
_THREAD = C("thread_index", "int32", "row of the frame threads, -1 unknown")
_NAME = C("name_id", "int32", "text: index into strings, -1 none")
_DEVICE = (
    C("device_id", "int32", "device as the process numbers it"),
    C("context_id", "int32", "CUDA context"),
    C("stream_id", "int32", "CUDA stream"),
)

TRACE_FRAMES = (
    Frame(
        "spans",
        "range, library call or operator on a host thread",
        (
            C("kind", "int8", "model.trace.SpanKind"), _THREAD, _PROCESS,
            C("domain_index", "int32", "row of the frame domains, -1 the default domain"), _NAME, *_times("range"),
            C("source_row_id", "int64", "row in the table it was read from"),
            C("is_open", "bool", "the recording ended before the range did"),
            C("is_cross_thread", "bool", "another thread ended it: it nests in nothing"),
            C("payload_text_id", "int32", "payload as text (JSON or number): index into strings, -1 none"),
        ),
        (C("shape_text_id", "int32", "shapes from the payload: index into strings, -1 none"),),
    ),
    Frame(
        "launches",
        "call of the CUDA API",
        (
            _THREAD, _PROCESS, C("correlation_id", ANY_INTEGER, "what links the call to its device work"),
            C("name_id", "int32", "API function without its version: index into strings, -1 none"),
            C("api_class", "int8", "0 runtime, 1 driver"), *_times("call"),
        ),
        (C("kernel_name_id", "int32", "kernel that the call names: index into strings, -1 none"),),
    ),
    Frame(
        "activities",
        "kernel, copy, memset or opaque graph execution on a device",
        (
            C("kind", "int8", "model.trace.ActivityKind"), _PROCESS, _DEVICE[0], _DEVICE[2],
            C("correlation_id", ANY_INTEGER, "what links it to its launch"),
            C("name_id", "int32", "demangled name: index into strings, -1 none"),
            C("short_name_id", "int32", "short name: index into strings, -1 none"), *_times("execution"),
            C("bytes", "int64", "bytes copied or set, 0 for kernels"),
            C("copy_kind", "int8", "direction of a copy: index into model.trace.COPY_DIRECTIONS, 0 for kernels"),
            C("graph_node_id", "int64", "CUDA graph node, 0 none"), C("graph_id", "int64", "CUDA graph, 0 none"),
        ),
        (_DEVICE[1], C("memory_kind", "int8", "of a copy, host's side: model.trace.MemoryKind")) + tuple(
            C(name, "int32", f"launch configuration: {name.replace('_', ' ')}")
            for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread",
                         "static_shared_memory_bytes", "dynamic_shared_memory_bytes")
        ),
    ),
    Frame(
        "graph_nodes",
        "node of a CUDA graph, when it was made",
        (
            C("graph_node_id", "int64", "its id"),
            C("original_graph_node_id", "int64", "node it was cloned from, 0 none"),
            _PROCESS, _THREAD, C("start_ns", "int64", "when it was made"),
        ),
    ),
    Frame("domains", "NVTX domain", (_PROCESS, C("name", "str", "its name"))),
    Frame(
        "processes",
        "process",
        (
            C("process_id", "int64", "operating-system process id"), C("global_id", "int64", "id in the capture"),
            C("name", "str", "program"), C("rank", "int32", "rank of the job, -1 unknown"),
        ),
    ),
    Frame(
        "threads",
        "host thread",
        (_PROCESS, C("thread_id", "int64", "operating-system thread id"), C("name", "str", "its name")),
    ),
    Frame(
        "devices",
        "GPU as a process sees it",
        (
            C("process_index", ANY_INTEGER, "row of the frame processes"),
            C("device_id", ANY_INTEGER, "device as the process numbers it"),
            C("gpu_index", ANY_INTEGER, "physical GPU"), C("gpu_name", "str", "its name"),
        ),
        (
            C("sm_count", ANY_INTEGER, "streaming multiprocessors"), C("clock_hz", "float64", "highest SM clock"),
            C("memory_bandwidth_bytes_per_s", "float64", "memory bandwidth"),
            C("memory_bytes", ANY_INTEGER, "memory"), C("l2_bytes", ANY_INTEGER, "L2 cache"),
            C("compute_capability", "str", "e.g. 8.0"),
        ),
    ),
    Frame(
        "synchronizations",
        "call in which a host thread waits for a device",
        (
            _PROCESS, _THREAD, C("launch_id", "int64", "the call: row of launches, -1 unknown"),
            C("name_id", "int32", "API function: index into strings, -1 none"),
            C("kind", "int8", "model.trace.SyncKind"), *_DEVICE, C("event_id", "int64", "CUDA event, -1 none"),
            C("event_sync_id", "int64", "recording of the event, -1 none"),
            C("event_record_correlation_id", "int64", "call that recorded the event, -1 none"), *_times("wait"),
        ),
    ),
    Frame(
        "cuda_events",
        "recording of a CUDA event",
        (
            _PROCESS, C("launch_id", "int64", "the call: row of launches, -1 unknown"), *_DEVICE,
            C("event_id", "int64", "CUDA event"), C("event_sync_id", "int64", "number of the recording, -1 none"),
            C("timestamp_ns", "int64", "device time, -1 not recorded"),
        ),
    ),
    Frame(
        "profiler_overhead",
        "time that the profiler itself took",
        (_THREAD, _NAME, C("overhead_type", "int8", "its kind, 0 unknown"), *_times("overhead")),
    ),
    Frame("python_frames", "call of a Python function", (_THREAD, _NAME, *_times("call"))),
    Frame(
        "allocations",
        "allocation or release of memory, in order of time",
        (
            _PROCESS, _THREAD, C("device_id", "int32", "device as the process numbers it, -1 memory of the host"),
            C("memory_kind", "int8", "model.trace.MemoryKind"), C("start_ns", "int64", "when it was"),
            C("address", "int64", "where the memory lies"),
            C("bytes", "int64", "bytes allocated; negative: released"),
            C("total_bytes", "int64", "live after it as the capture says, -1 it does not"),
            C("reserved_bytes", "int64", "held from the driver by the framework's allocator, -1 not recorded"),
        ),
    ),
    Frame(
        "gpu_samples",
        "sample of GPU metrics, by GPU and time",
        (
            C("gpu_index", "int32", "physical GPU"), *_times("time that it stands for"),
            *(C(name, "float64", "schemas.gpu_samples: NaN not sampled") for name in METRIC_COLUMNS),
        ),
    ),
)  # fmt: skip

TREE_FRAMES = (
    Frame(
        "nodes",
        "node of the tree; node 0 is the capture",
        (
            C("parent_id", "int32", "row of the parent, -1 for node 0"), C("depth", "int32", "0 for node 0"),
            C("kind", "int8", "model.tree.NodeKind"), C("level", "int8", "model.levels.Level"), _NAME,
            C("folded_id", "int32", "number of the text without what changes from step to step"),
            C("path_id", "int32", "same number: same folded path from node 0"),
            C("process_index", "int32", "row of the frame processes, -1 none"), _THREAD,
            C("domain_index", "int32", "row of the frame domains, -1 the default domain"), *_times("range"),
            C("source_row_id", "int64", "row in the table it was read from, -1 none"),
            C("sequence", "int64", "autograd sequence number, -1 none"),
            C("step_index", "int64", "step number in the text, -1 none"),
            C("is_backward", "bool", "backward pass of a layer"), C("is_warmup_text", "bool", "the text says warm-up"),
            C("is_open", "bool", "the recording ended before the range did"),
            C("is_inferred", "bool", "inferred, not recorded"),
            C("confidence_ratio", "float64", "of an inferred node; 1 for recorded ones"),
            C("iteration_index", "int32", "iteration it lies in, -1 none"),
            C("layer_node_id", "int32", "the LAYER node at or above it, -1 none"),
            C("device_ns", "int64", "device time, inclusive"), C("kernel_ns", "int64", "kernel time, inclusive"),
            C("copy_ns", "int64", "time of copies and memsets, inclusive"),
            C("graph_ns", "int64", "time of opaque graph executions, inclusive"),
            C("kernel_count", "int64", "kernels, inclusive"), C("copy_count", "int64", "copies and memsets, inclusive"),
            C("graph_count", "int64", "opaque graph executions, inclusive"),
            C("memory_bytes", "int64", "bytes copied or set, inclusive"),
            C("busy_ns", "int64", "union of the device intervals, inclusive"),
            C("gpu_count", "int8", "physical GPUs of that work: with several, busy_ns is not that of one GPU"),
            C("self_ns", "int64", "host time that no child covers"),
            C("self_device_ns", "int64", "device time whose innermost node this is"),
            C("self_kernel_ns", "int64", "kernel time whose innermost node this is"),
            C("self_kernel_count", "int64", "kernels whose innermost node this is"),
            C("projected_start_ns", "int64", "first start of device work launched inside, -1 none"),
            C("projected_end_ns", "int64", "last end of device work launched inside, -1 none"),
        ),
        (
            C("layer_key", "int32", "row of the frame layer_keys, -1 none"),
            C("call_index", "int32", "number of the call of this path within its iteration"),
            C("device_operation_count", "int64", "distinct correlation ids launched inside"),
        ),
    ),
    Frame(
        "activities",
        "device activity, the rows of trace.activities with where they were launched and what they count for",
        (
            C("launch_id", "int32", "row of trace.launches, -1 none"),
            C("launch_node_id", "int32", "innermost range of the launching thread, 0 none"),
            C("node_id", "int32", "node it hangs below"), C("attribution", "int8", "model.tree.Attribution"),
            C("iteration_index", "int32", "iteration it belongs to, -1 none"),
            C("layer_node_id", "int32", "layer it belongs to, -1 none"),
            C("layer_attribution", "int8", "model.tree.LayerAttribution"),
            C("gpu_index", "int32", "physical GPU, as in trace.devices"),
        ),
        (C("layer_key", "int32", "row of the frame layer_keys, -1 none"),),
    ),
)  # fmt: skip


def dtypes(frames: tuple[Frame, ...], name: str, *, with_optional: bool = False) -> dict[str, str]:
    """Column name → dtype of the columns that a frame always has, and of those it may have where asked."""
    frame = next(frame for frame in frames if frame.name == name)
    columns = (*frame.columns, *frame.optional) if with_optional else frame.columns
    return {column.name: column.dtype for column in columns}
