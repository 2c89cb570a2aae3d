"""The value that ``ingest`` makes and ``hierarchy`` reads: typed frames of one capture, no raw Nsight names.

All times are int64 nanoseconds on the capture's own clock. Texts are interned: a column ``*_name_id``
or ``*_text_id`` indexes ``Trace.strings`` (−1: none). Processes, threads and domains are dense indexes
into their frames, so that every join is an array lookup. Columns are declared in `schemas/frames.txt`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding
from xsp_post.model.kinds import ActivityKind as ActivityKind
from xsp_post.model.schemas.frames import TRACE_FRAMES, dtypes


class SpanKind(IntEnum):
    PUSH_POP = 0
    START_END = 1
    LIBRARY = 2  # a library call traced by table (cuDNN, cuBLAS), not by NVTX
    OPERATOR = 3  # a framework operator (Kineto cpu_op, Jaeger framework span)
    MODULE = 4  # a framework module frame (Kineto nn.Module)
    ANNOTATION = 5  # Kineto user annotation


class MemoryKind(IntEnum):
    """Where the host's side of a copy lies (of a copy between devices: its source); CUPTI's numbers."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5
    DEVICE_STATIC = 6
    MANAGED_STATIC = 7


# From where to where, by ``activities.copy_kind`` (CUPTI's numbers); 0 is unknown.
COPY_DIRECTIONS = (
    "", "host to device", "device to host", "host to array", "array to host", "array to array", "array to device",
    "device to array", "device to device", "host to host", "peer to peer", "host to device, unified memory",
    "device to host, unified memory", "device to device, unified memory",
)  # fmt: skip
UNIFIED_COPIES = (11, 12, 13)  # pages of unified memory that migrate
_TO_HOST = (2, 4, 12)  # copies whose host side is the target


def memory_kinds(copy_kind: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The `MemoryKind` of copies, given that of both sides. int8, shape (copies,)."""
    return np.where(np.isin(copy_kind, _TO_HOST), target, source).astype(np.int8)


# The parts that device time consists of, by kinds of activities.
DEVICE_PARTS: dict[str, tuple[ActivityKind, ...]] = {
    "kernel": (ActivityKind.KERNEL,),
    "copy": (ActivityKind.MEMCPY, ActivityKind.MEMSET),
    "graph": (ActivityKind.GRAPH,),
}
PARTS = tuple(DEVICE_PARTS)
PART_OF_KIND = np.array([next(i for i, kinds in enumerate(DEVICE_PARTS.values()) if k in kinds) for k in ActivityKind])


class SyncKind(IntEnum):
    """What a host thread, or a stream, waited for, by the name of the call (nsys' own number is not reliable)."""

    OTHER = 0
    DEVICE = 1  # everything on the device (or of the context)
    STREAM = 2  # everything on one stream
    EVENT = 3  # the host waits for an event
    STREAM_WAIT_EVENT = 4  # a stream waits for an event; the host does not
    QUERY = 5  # asked, not waited


class HostRows(Protocol):
    """Rows about host threads that may be too many to be read whole: read late, around given gaps only."""

    def os_calls(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Calls into the operating system: thread_index, name (text), start_ns, end_ns."""

    def descheduled(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Times in which a thread had no processor: thread_index, start_ns, end_ns, is_rival (another thread had it, or
        the thread could have run)."""

    def samples(self, threads: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> pd.DataFrame:
        """Samples of the call stack: thread_index, start_ns, name (innermost frame)."""


@dataclass
class Provenance:
    """Where a trace comes from; nothing private (docs/architecture.md)."""

    source_name: str  # file name without its folder
    collector: str  # nsys, torch, jaeger
    tool_version: str = ""
    schema_version: str = ""
    level: str = ""  # M, M/L, M/L/G when a manifest says so
    batch_size: int = -1  # −1: unknown
    workload_name: str = ""
    framework: str = ""
    gpu_name: str = ""
    driver_version: str = ""
    session_start_utc_ns: int = -1
    is_partial: bool = False
    file_operation_count: int = -1  # rows of device work as the file itself counts them; −1: not counted
    clock_offset_ns: int = 0  # shift applied to spans to agree with the device clock (0: one clock)
    run_process: str = ""  # the process of `xsp-post run` that made this capture and others; '' only this one
    step_before_ns: float = math.nan  # of a program under `record`: a step before the recording, and one within it
    step_recorded_ns: float = math.nan
    step_awake_ns: float = math.nan  # before the recording, without its waits for a processor
    options: dict[str, str] = field(default_factory=dict)  # graph trace mode, traced classes …


SYNCHRONIZATION_DTYPES = dtypes(TRACE_FRAMES["synchronizations"])
CUDA_EVENT_DTYPES = dtypes(TRACE_FRAMES["cuda_events"])
OVERHEAD_DTYPES = dtypes(TRACE_FRAMES["profiler_overhead"])
FRAME_DTYPES = dtypes(TRACE_FRAMES["python_frames"])
ALLOCATION_DTYPES = dtypes(TRACE_FRAMES["allocations"])
GPU_SAMPLE_DTYPES = dtypes(TRACE_FRAMES["gpu_samples"])
GRAPH_EDGE_DTYPES = dtypes(TRACE_FRAMES["graph_edges"])


def typed_frame(dtypes: dict[str, str], columns: Mapping[str, Any] | pd.DataFrame | None = None) -> pd.DataFrame:
    """Columns of these types: of these values, else without rows."""
    values = {name: np.asarray(() if columns is None else columns[name]) for name in dtypes}
    types = {name: object if dtype == "str" else dtype for name, dtype in dtypes.items()}
    return pd.DataFrame({name: values[name].astype(types[name]) for name in dtypes}, copy=False)


def _no_rows(name: str, *, with_optional: bool = False) -> Callable[[], pd.DataFrame]:
    """What makes the frame of that name without rows."""
    return lambda: typed_frame(dtypes(TRACE_FRAMES[name], with_optional=with_optional))


@dataclass
class Trace:
    """One capture. Frames are indexed 0…n−1 and that index is the row's id; their columns are in `schemas.frames`.

    ``attributes`` holds what is known of spans besides, one row a span: shape_text, layer_type, batch_size,
    allocated_bytes, flop_count, least_bytes, sequence … (a column that is not there: unknown). The frames from
    ``synchronizations`` on have no rows where the capture has none; ``gpu_samples`` are read when they are called for.
    """

    provenance: Provenance
    strings: Strings  # unique
    spans: pd.DataFrame
    processes: pd.DataFrame
    threads: pd.DataFrame
    launches: pd.DataFrame = field(default_factory=_no_rows("launches"))
    activities: pd.DataFrame = field(default_factory=_no_rows("activities", with_optional=True))
    graph_nodes: pd.DataFrame = field(default_factory=_no_rows("graph_nodes"))
    graph_edges: pd.DataFrame = field(default_factory=_no_rows("graph_edges"))
    compiled_calls: pd.DataFrame = field(default_factory=_no_rows("compiled_calls"))
    compiled_modules: pd.DataFrame = field(default_factory=_no_rows("compiled_modules"))
    domains: pd.DataFrame = field(default_factory=_no_rows("domains"))
    devices: pd.DataFrame = field(default_factory=_no_rows("devices", with_optional=True))
    attributes: pd.DataFrame = field(default_factory=pd.DataFrame)
    # when the profiler or driver loaded or compiled code (i64): iterations around them are not steady
    module_loading_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    findings: list[Finding] = field(default_factory=list)
    synchronizations: pd.DataFrame = field(default_factory=_no_rows("synchronizations"))
    cuda_events: pd.DataFrame = field(default_factory=_no_rows("cuda_events"))
    profiler_overhead: pd.DataFrame = field(default_factory=_no_rows("profiler_overhead"))
    python_frames: pd.DataFrame = field(default_factory=_no_rows("python_frames"))
    allocations: pd.DataFrame = field(default_factory=_no_rows("allocations"))
    # samples of the GPU may be too many to be read whole where nobody asks for them
    gpu_samples: Callable[[], pd.DataFrame] = field(default_factory=lambda: _no_rows("gpu_samples"))
    host_rows: HostRows | None = None  # operating-system calls, scheduling, samples: read around gaps
