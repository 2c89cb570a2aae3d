"""Captures in: which tables and columns of an Nsight Systems export are read. No pandas here: reading begins
before the rest of the program is imported (`sqlite_tables.SqliteTables.read_ahead`)."""

from __future__ import annotations

from xsp_post.ingest.tables import NULL, Request, TableSource, WantedColumn, resolve

LAUNCH_DETAIL = {
    "gridX": "grid_x",
    "gridY": "grid_y",
    "gridZ": "grid_z",
    "blockX": "block_x",
    "blockY": "block_y",
    "blockZ": "block_z",
    "registersPerThread": "registers_per_thread",
    "staticSharedMemory": "static_shared_memory_bytes",
    "dynamicSharedMemory": "dynamic_shared_memory_bytes",
}

NO_MEMORY_KIND = 7  # of srcKind and dstKind: 0 pageable, 1 pinned, 2 device …


class _Tables:
    """Our requests name tables as NVIDIA's documents do; a file may hold them with a version suffix."""

    def __init__(self, source: TableSource) -> None:
        self._names = source.tables()

    def __call__(self, wanted: str) -> str:
        return resolve(self._names, wanted)


def requests(source: TableSource) -> dict[str, Request]:
    """One request per table of an export, by our name for it.

    Required is what every nsys since 2019 writes and no tree can be made without.
    """
    table = _Tables(source)
    graph = (WantedColumn("graphNodeId", "graph_node_id"),)
    times = (
        WantedColumn("start", "start_ns", NULL, is_required=True),
        WantedColumn("end", "end_ns", NULL, is_required=True),
    )
    device: tuple[WantedColumn, ...] = (
        *times,
        WantedColumn("deviceId", "device_id", is_narrow=True, is_required=True),
        WantedColumn("streamId", "stream_id", is_narrow=True, is_required=True),
        WantedColumn("correlationId", "correlation_id", -1, is_required=True),
        WantedColumn("globalPid", "global_pid"),  # see `nsys`: needed where there are several processes
        WantedColumn("contextId", "context_id", is_narrow=True),
    )
    name = WantedColumn(
        "demangledName", "name", -1, is_narrow=True, is_required=True, alternatives=("shortName", "mangledName")
    )
    kernel = (
        *device, *graph, name, WantedColumn("shortName", "short_name", -1, is_narrow=True),
        *(
            WantedColumn(raw, ours, is_narrow=True, when_missing=f"{raw} of launches is not known")
            for raw, ours in LAUNCH_DETAIL.items()
        ),
    )  # fmt: skip
    size = WantedColumn("bytes", "bytes", when_missing="sizes and bandwidths are not known")
    kind = WantedColumn("copyKind", "copy_kind", is_narrow=True, when_missing="directions of copies are not known")
    sides = tuple(
        WantedColumn(raw, ours, NO_MEMORY_KIND, is_narrow=True)
        for raw, ours in (("srcKind", "source_kind"), ("dstKind", "target_kind"))
    )
    api = (
        *times,
        WantedColumn(
            "eventClass", "api_class", is_narrow=True,
            when_missing="driver and runtime calls are not distinguished, and calls with a back trace count twice",
        ),
        WantedColumn("globalTid", "global_tid", is_required=True),
        WantedColumn("correlationId", "correlation_id", -1, is_required=True),
        WantedColumn("nameId", "name", -1, is_narrow=True, is_required=True),
    )  # fmt: skip
    nvtx: tuple[WantedColumn, ...] = (
        *times,
        WantedColumn("eventType", "event_type", is_narrow=True, is_required=True),
        WantedColumn("globalTid", "global_tid", is_required=True),
        WantedColumn("endGlobalTid", "end_global_tid", NULL),
        WantedColumn("text", "text", b""),
        WantedColumn("textId", "text_number", NULL),
        WantedColumn("domainId", "domain", is_narrow=True, when_missing="domains of ranges are not known"),
        WantedColumn("ROWID", "source_row_id"),
        WantedColumn("jsonText", "json_text", b""),
        WantedColumn("jsonTextId", "json_number", NULL),
        WantedColumn("int64Value", "int64_value", NULL),
        WantedColumn("uint64Value", "uint64_value", NULL),
    )
    library = (
        *times,
        WantedColumn("globalTid", "global_tid", is_required=True),
        WantedColumn("nameId", "name", -1, is_narrow=True, is_required=True),
    )
    return {
        **_wait_requests(table),
        "memory": _memory_request(table),
        "strings": Request(
            table("StringIds"),
            (WantedColumn("id", "id", is_required=True), WantedColumn("value", "value", b"", is_required=True)),
        ),
        "kernel": Request(table("CUPTI_ACTIVITY_KIND_KERNEL"), kernel),
        "api": Request(table("CUPTI_ACTIVITY_KIND_RUNTIME"), api),
        "nvtx": Request(table("NVTX_EVENTS"), nvtx, one_of=("text", "textId")),
        "memcpy": Request(table("CUPTI_ACTIVITY_KIND_MEMCPY"), (*device, *graph, size, kind, *sides)),
        "memset": Request(table("CUPTI_ACTIVITY_KIND_MEMSET"), (*device, *graph, size)),
        "graph": Request(
            table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
            (*device, WantedColumn("graphId", "graph_id"), WantedColumn("graphExecId", "graph_exec_id")),
        ),
        "cudnn": Request(table("CUDNN_EVENTS"), library),
        "cublas": Request(table("CUBLAS_EVENTS"), library),
        "graph_node": _graph_node_request(source, table),
        "overhead": _overhead_request(source, table),
    }


def _graph_node_request(source: TableSource, table: _Tables) -> Request:
    # CUDA_GRAPH_EVENTS held the node rows before schema 3: recognised by its columns.
    name = table("CUDA_GRAPH_NODE_EVENTS")
    if not source.columns(name):
        old = table("CUDA_GRAPH_EVENTS")
        name = old if "graphNodeId" in source.columns(old) else name
    return Request(
        name,
        (
            WantedColumn("start", "start_ns"),
            WantedColumn("globalTid", "global_tid"),
            WantedColumn("graphNodeId", "graph_node_id"),
            WantedColumn("originalGraphNodeId", "original_graph_node_id"),
        ),
    )


def _wait_requests(table: _Tables) -> dict[str, Request]:
    place = (
        WantedColumn("deviceId", "device_id", is_narrow=True),
        WantedColumn("contextId", "context_id", is_narrow=True),
        WantedColumn("streamId", "stream_id", -1, is_narrow=True, is_required=True),
        WantedColumn("correlationId", "correlation_id", -1, is_required=True),
        WantedColumn("globalPid", "global_pid"),
        WantedColumn("eventId", "event_id", -1),
        WantedColumn("eventSyncId", "event_sync_id", -1),
    )
    times = (
        WantedColumn("start", "start_ns", NULL, is_required=True),
        WantedColumn("end", "end_ns", NULL, is_required=True),
    )
    return {
        "synchronization": Request(table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"), (*place, *times)),
        "cuda_event": Request(
            table("CUPTI_ACTIVITY_KIND_CUDA_EVENT"), (*place, WantedColumn("timestamp", "timestamp_ns", -1))
        ),
    }


def _memory_request(table: _Tables) -> Request:
    return Request(
        table("CUDA_GPU_MEMORY_USAGE_EVENTS"),
        (
            WantedColumn("start", "start_ns", NULL, is_required=True),
            WantedColumn("deviceId", "device_id", is_narrow=True, is_required=True),
            WantedColumn("address", "address", is_required=True),
            WantedColumn("bytes", "bytes", is_required=True),
            WantedColumn("memoryOperationType", "operation", is_narrow=True, is_required=True),
            WantedColumn("memKind", "memory_kind", NO_MEMORY_KIND, is_narrow=True),
            WantedColumn("correlationId", "correlation_id", -1),
            WantedColumn("globalPid", "global_pid"),
        ),
    )


def _overhead_request(source: TableSource, table: _Tables) -> Request:
    name = table("CUPTI_ACTIVITY_KIND_OVERHEAD")
    if not source.columns(name):
        name = table("PROFILER_OVERHEAD")
    return Request(
        name,
        (
            WantedColumn("start", "start_ns"),
            WantedColumn("end", "end_ns", NULL),
            WantedColumn("overheadType", "overhead_type"),
            WantedColumn("globalTid", "global_tid"),
            WantedColumn("nameId", "name", -1, is_narrow=True),
        ),
    )
