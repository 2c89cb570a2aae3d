"""Captures in: which tables and columns of an Nsight Systems export are read. No pandas here: reading begins
before the rest of the program is imported (`tables.SqliteTables.read_ahead`)."""

from __future__ import annotations

from xsp_post.ingest.tables import NULL, Request, TableSource, Want, resolve

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


class _Tables:
    """Our requests name tables as NVIDIA's documents do; a file may hold them with a version suffix."""

    def __init__(self, source: TableSource) -> None:
        self._names = source.tables()

    def __call__(self, wanted: str) -> str:
        return resolve(self._names, wanted)


def requests(source: TableSource, *, detail: bool) -> dict[str, Request]:
    """One request per table of an export, by our name for it; without ``detail`` launch dimensions and payloads
    are left out."""
    columns, table = source.columns, _Tables(source)
    graph = (Want("graphNodeId", "graph_node_id"),)
    device: tuple[Want, ...] = (
        Want("start", "start_ns", NULL),
        Want("end", "end_ns", NULL),
        Want("deviceId", "device_id", is_narrow=True),
        Want("streamId", "stream_id", is_narrow=True),
        Want("correlationId", "correlation_id", -1),
        Want("globalPid", "global_pid"),
    )
    kernel: tuple[Want, ...] = device + graph + (Want("demangledName", "name", -1, is_narrow=True),)
    if detail:
        device += (Want("contextId", "context_id", is_narrow=True),)
        kernel += (Want("contextId", "context_id", is_narrow=True), Want("shortName", "short_name", -1, is_narrow=True))
    elif "demangledName" not in columns(table("CUPTI_ACTIVITY_KIND_KERNEL")):
        kernel += (Want("shortName", "short_name", -1, is_narrow=True),)
    copy = device + graph + (Want("bytes", "bytes"), Want("copyKind", "copy_kind", is_narrow=True))
    memset = device + graph + (Want("bytes", "bytes"),)
    api = (
        Want("start", "start_ns", NULL),
        Want("end", "end_ns", NULL),
        Want("eventClass", "api_class", is_narrow=True),
        Want("globalTid", "global_tid"),
        Want("correlationId", "correlation_id", -1),
        Want("nameId", "name", -1, is_narrow=True),
    )
    nvtx: tuple[Want, ...] = (
        Want("start", "start_ns", NULL),
        Want("end", "end_ns", NULL),
        Want("eventType", "event_type", is_narrow=True),
        Want("globalTid", "global_tid"),
        Want("endGlobalTid", "end_global_tid", NULL),
        Want("text", "text", b""),
        Want("textId", "text_number", NULL),
        Want("domainId", "domain", is_narrow=True),
    )
    if detail:
        kernel += tuple(Want(raw, ours, is_narrow=True) for raw, ours in LAUNCH_DETAIL.items())
        nvtx += (
            Want("ROWID", "source_row_id"),
            Want("jsonText", "json_text", b""),
            Want("jsonTextId", "json_number", NULL),
            Want("int64Value", "int64_value", NULL),
            Want("uint64Value", "uint64_value", NULL),
        )
    library = (Want("start", "start_ns", NULL), Want("end", "end_ns", NULL), Want("globalTid", "global_tid"),
               Want("nameId", "name", -1, is_narrow=True))  # fmt: skip
    waits = _wait_requests(table) if detail else {}
    return {
        **waits,
        "strings": Request(table("StringIds"), (Want("id", "id"), Want("value", "value", b""))),
        "kernel": Request(table("CUPTI_ACTIVITY_KIND_KERNEL"), kernel),
        "api": Request(table("CUPTI_ACTIVITY_KIND_RUNTIME"), api),
        "nvtx": Request(table("NVTX_EVENTS"), nvtx),
        "memcpy": Request(table("CUPTI_ACTIVITY_KIND_MEMCPY"), copy),
        "memset": Request(table("CUPTI_ACTIVITY_KIND_MEMSET"), memset),
        "graph": Request(
            table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
            device + (Want("graphId", "graph_id"), Want("graphExecId", "graph_exec_id")),
        ),
        "cudnn": Request(table("CUDNN_EVENTS"), library),
        "cublas": Request(table("CUBLAS_EVENTS"), library),
        "graph_node": _graph_node_request(source, table),
        "overhead": _overhead_request(source, table),
    }


def _graph_node_request(source: TableSource, table: _Tables) -> Request:
    # CUDA_GRAPH_EVENTS held the node rows before schema 3: told apart by its columns.
    name = table("CUDA_GRAPH_NODE_EVENTS")
    if not source.columns(name):
        old = table("CUDA_GRAPH_EVENTS")
        name = old if "graphNodeId" in source.columns(old) else name
    return Request(
        name,
        (
            Want("start", "start_ns"),
            Want("globalTid", "global_tid"),
            Want("graphNodeId", "graph_node_id"),
            Want("originalGraphNodeId", "original_graph_node_id"),
        ),
    )


def _wait_requests(table: _Tables) -> dict[str, Request]:
    place = (
        Want("deviceId", "device_id", is_narrow=True),
        Want("contextId", "context_id", is_narrow=True),
        Want("streamId", "stream_id", -1, is_narrow=True),
        Want("correlationId", "correlation_id", -1),
        Want("globalPid", "global_pid"),
        Want("eventId", "event_id", -1),
        Want("eventSyncId", "event_sync_id", -1),
    )
    return {
        "synchronization": Request(
            table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
            (*place, Want("start", "start_ns", NULL), Want("end", "end_ns", NULL)),
        ),
        "cuda_event": Request(table("CUPTI_ACTIVITY_KIND_CUDA_EVENT"), (*place, Want("timestamp", "timestamp_ns", -1))),
    }


def _overhead_request(source: TableSource, table: _Tables) -> Request:
    name = table("CUPTI_ACTIVITY_KIND_OVERHEAD")
    if not source.columns(name):
        name = table("PROFILER_OVERHEAD")
    return Request(
        name,
        (
            Want("start", "start_ns"),
            Want("end", "end_ns", NULL),
            Want("overheadType", "overhead_type"),
            Want("globalTid", "global_tid"),
            Want("nameId", "name", -1, is_narrow=True),
        ),
    )
