"""Captures in: the tables of an Nsight Systems export → `trace.Trace`.

Any schema from 2020 to 2026.4: absent tables and columns become empty frames and defaults (NSYS A).
Facts relied on: globalTid = HW:8|VM:8|PID:24|TID:24; correlation ids are unique per process only;
NVTX text is inline or interned; NVTX ``end`` may be NULL; 0, NULL and 0xFFFFFFFF all mean "none".
Private values (environment, command line, output, user, host) are never read.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.errors import MESSAGES, CaptureError
from xsp_post.findings import CATALOGUE, INFO, WARNING, Entry, Finding, finding
from xsp_post.ingest.tables import NULL, Request, TableSource, Want, resolve
from xsp_post.trace import ActivityKind, Provenance, SpanKind, Trace

MESSAGES.update({
    "capture-no-export": (
        "The file is a database or folder, but none of the tables that every Nsight Systems export has are in it.",
        "Give the output of `nsys export -t sqlite`; DLProf and nvprof databases are not exports.",
    ),
})

CATALOGUE.update({
    "diagnostic-event": Entry(
        WARNING,
        "nsys reported a problem while recording",
        "The capture's DIAGNOSTIC_EVENT table holds warnings or errors of the recording itself.",
        "Read the example; record again when it says that events were lost or a feature was not available.",
    ),
    "partial-export": Entry(
        WARNING,
        "The export covers part of the recording only",
        "nsys export ran with --tables, --times or a time shift, so rows outside are missing.",
        "Export without those options: nsys export -t sqlite REPORT.nsys-rep",
    ),
    "domain-without-name": Entry(
        INFO,
        "NVTX domains without a name",
        "The rows that name a domain are missing, as they are in captures cut to a window.",
        "Harmless: ranges are shown under domain-N; record the whole run to get names.",
    ),
    "open-ranges": Entry(
        INFO,
        "Ranges that never closed",
        "A range was still open when recording stopped (its end is NULL).",
        "Treated as ending with the last event, as NVIDIA's own reports do; close ranges inside the capture range.",
    ),
    "cross-thread-ranges": Entry(
        INFO,
        "Start/end ranges closed by another thread",
        "Such a range belongs to no one thread, so it cannot nest.",
        "Shown beside the tree, without kernels; use push/pop, or close a range where it was opened.",
    ),
    "non-utf8-text": Entry(
        INFO,
        "Text that is not UTF-8",
        "The profiled machine wrote texts in another code page.",
        "Unreadable bytes are shown as \ufffd; set a UTF-8 locale when recording.",
    ),
    "module-loading": Entry(
        WARNING,
        "Modules were loaded or compiled while recording",
        "CUDA loads a kernel's code at its first launch; that time sits in the iterations where it happened.",
        "Run more warm-up iterations before the capture range opens, or set CUDA_MODULE_LOADING=EAGER.",
    ),
    "unknown-schema": Entry(
        WARNING,
        "Export schema newer than any we have seen",
        "The major schema version is above 3; columns may have changed meaning.",
        "Compare totals with nsys stats, and tell us the version.",
    ),
})

_KNOWN_TABLES = (
    "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "META_DATA_EXPORT",
    "EXPORT_META_DATA",
)  # fmt: skip
_NONE_32 = 0xFFFFFFFF
_PUSH_POP, _START_END = (59, 70), (60, 71)
_DOMAIN_CREATE = 75
_EXPORT_KEYS = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_PARTIAL_KEYS = ("EXPORT_PARAM_TABLES_TO_EXPORT", "EXPORT_PARAM_TIMES_TO_EXPORT", "EXPORT_PARAM_TIME_SHIFT")
_CAPTURE_KEYS = ("CAPTURE_EVENT_TYPE", "CUDA_GRAPH_TRACE_OPTIONS:MODE")
_MODULE_LOADING_TYPES = (2, 6, 7)  # driver JIT, runtime-triggered module loading, lazy function loading

_LAUNCH_DETAIL = {
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
COPY_KINDS = {
    0: "[CUDA memcpy]",
    1: "[CUDA memcpy Host-to-Device]",
    2: "[CUDA memcpy Device-to-Host]",
    3: "[CUDA memcpy Host-to-Array]",
    4: "[CUDA memcpy Array-to-Host]",
    5: "[CUDA memcpy Array-to-Array]",
    6: "[CUDA memcpy Array-to-Device]",
    7: "[CUDA memcpy Device-to-Array]",
    8: "[CUDA memcpy Device-to-Device]",
    9: "[CUDA memcpy Host-to-Host]",
    10: "[CUDA memcpy Peer-to-Peer]",
    11: "[CUDA Unified Memory memcpy Host-to-Device]",
    12: "[CUDA Unified Memory memcpy Device-to-Host]",
    13: "[CUDA Unified Memory memcpy Device-to-Device]",
}


def read_trace(source: TableSource, *, detail: bool = True) -> Trace:
    """Read an export. Without ``detail`` launch dimensions and payloads are left out (what `tree` needs).

    Raises `CaptureError` when the tables are no nsys export or a column holds values of a foreign type.
    """
    if not any(resolve(source.tables(), name) in source.tables() for name in _KNOWN_TABLES):
        found = ", ".join(sorted(source.tables())[:5]) or "no table at all"
        raise CaptureError(
            f"{source.path}: is no Nsight Systems export: it has none of {', '.join(_KNOWN_TABLES)} (found: {found})",
            code="capture-no-export",
            hint="give the output of: nsys export -t sqlite REPORT.nsys-rep",
        )
    return _Reader(source, detail).trace()


@dataclass
class _Interner:
    """Collects StringIds numbers and inline texts and hands out dense string ids at the end."""

    ids: np.ndarray  # StringIds.id, ascending
    values: pa.Array  # binary
    texts: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    bad_bytes_count: int = 0

    def text(self, value: str) -> int:
        found = self.index.get(value)
        if found is None:
            found = self.index[value] = len(self.texts)
            self.texts.append(value)
        return found

    def by_number(self, numbers: np.ndarray, transform=None) -> np.ndarray:
        """StringIds numbers → string ids (int32); numbers without a row become ``string-N``, none (NULL, 0) −1."""
        codes, unique = pd.factorize(numbers)
        mapped = np.full(len(unique), -1, np.int32)
        position = np.searchsorted(self.ids, unique)
        position[position >= len(self.ids)] = 0
        for k, number in enumerate(unique.tolist()):
            if len(self.ids) and self.ids[position[k]] == number:
                value = self._decode(self.values[int(position[k])].as_py())
            elif number in (NULL, 0, -1):
                continue
            else:
                value = f"string-{number}"
            mapped[k] = self.text(transform(value) if transform else value)
        return mapped[codes]

    def inline(self, texts: pa.ChunkedArray) -> np.ndarray:
        """Inline texts (binary, empty = none) → string ids (int32), −1 for empty."""
        encoded = texts.combine_chunks().dictionary_encode() if len(texts) else None
        if encoded is None:
            return np.zeros(0, np.int32)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        mapped = np.array(
            [self.text(text) if text else -1 for text in self._decode_all(encoded.dictionary)] or [-1], np.int32
        )
        return mapped[encoded.indices.to_numpy(zero_copy_only=False)]

    def _decode_all(self, values: pa.Array) -> list[str]:
        try:
            return values.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            return [self._decode(value) for value in values.to_pylist()]

    def _decode(self, value: bytes | None) -> str:
        try:
            return (value or b"").decode("utf-8")
        except UnicodeDecodeError:
            self.bad_bytes_count += 1
            return (value or b"").decode("utf-8", "replace")


class _Reader:
    """One pass over one export: request all wanted columns at once, then shape them."""

    def __init__(self, source: TableSource, detail: bool) -> None:
        self.source = source
        self.detail = detail
        self.findings: list[Finding] = []
        self.meta, self.options = self._metadata()

    # -- what to read ---------------------------------------------------------------------------

    def _table(self, name: str) -> str:
        return resolve(self.source.tables(), name)

    def _requests(self) -> dict[str, Request]:
        graph = (Want("graphNodeId", "graph_node_id"),)
        device = (
            Want("start", "start_ns"),
            Want("end", "end_ns", NULL),
            Want("deviceId", "device_id", is_narrow=True),
            Want("streamId", "stream_id", is_narrow=True),
            Want("correlationId", "correlation_id", -1),
            Want("globalPid", "global_pid"),
        )
        kernel = device + graph + (Want("demangledName", "name", is_narrow=True),)
        if self.detail:
            device += (Want("contextId", "context_id", is_narrow=True),)
            kernel += (Want("contextId", "context_id", is_narrow=True), Want("shortName", "short_name", is_narrow=True))
        elif "demangledName" not in self.source.columns(self._table("CUPTI_ACTIVITY_KIND_KERNEL")):
            kernel += (Want("shortName", "short_name", is_narrow=True),)
        copy = device + graph + (Want("bytes", "bytes"), Want("copyKind", "copy_kind", is_narrow=True))
        memset = device + graph + (Want("bytes", "bytes"),)
        api = (
            Want("start", "start_ns"),
            Want("end", "end_ns", NULL),
            Want("eventClass", "api_class", is_narrow=True),
            Want("globalTid", "global_tid"),
            Want("correlationId", "correlation_id", -1),
            Want("nameId", "name", is_narrow=True),
        )
        nvtx = (
            Want("ROWID", "source_row_id"),
            Want("start", "start_ns"),
            Want("end", "end_ns", NULL),
            Want("eventType", "event_type", is_narrow=True),
            Want("globalTid", "global_tid"),
            Want("endGlobalTid", "end_global_tid", NULL),
            Want("text", "text", b""),
            Want("textId", "text_number", NULL),
            Want("domainId", "domain", is_narrow=True),
        )
        if self.detail:
            kernel += tuple(Want(raw, ours, is_narrow=True) for raw, ours in _LAUNCH_DETAIL.items())
            nvtx += (
                Want("jsonText", "json_text", b""),
                Want("jsonTextId", "json_number", NULL),
                Want("int64Value", "int64_value", NULL),
                Want("uint64Value", "uint64_value", NULL),
            )
        library = (Want("start", "start_ns"), Want("end", "end_ns", NULL), Want("globalTid", "global_tid"),
                   Want("nameId", "name", is_narrow=True))  # fmt: skip
        return {
            "strings": Request(self._table("StringIds"), (Want("id", "id"), Want("value", "value", b""))),
            "kernel": Request(self._table("CUPTI_ACTIVITY_KIND_KERNEL"), kernel),
            "api": Request(self._table("CUPTI_ACTIVITY_KIND_RUNTIME"), api),
            "nvtx": Request(self._table("NVTX_EVENTS"), nvtx),
            "memcpy": Request(self._table("CUPTI_ACTIVITY_KIND_MEMCPY"), copy),
            "memset": Request(self._table("CUPTI_ACTIVITY_KIND_MEMSET"), memset),
            "graph": Request(
                self._table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
                device + (Want("graphId", "graph_id"), Want("graphExecId", "graph_exec_id")),
            ),
            "cudnn": Request(self._table("CUDNN_EVENTS"), library),
            "cublas": Request(self._table("CUBLAS_EVENTS"), library),
            "graph_node": self._graph_node_request(),
            "overhead": self._overhead_request(),
        }

    def _graph_node_request(self) -> Request:
        # CUDA_GRAPH_EVENTS held the node rows before schema 3: told apart by its columns.
        table = self._table("CUDA_GRAPH_NODE_EVENTS")
        if not self.source.columns(table):
            old = self._table("CUDA_GRAPH_EVENTS")
            table = old if "graphNodeId" in self.source.columns(old) else table
        return Request(
            table,
            (
                Want("start", "start_ns"),
                Want("globalTid", "global_tid"),
                Want("graphNodeId", "graph_node_id"),
                Want("originalGraphNodeId", "original_graph_node_id"),
            ),
        )

    def _overhead_request(self) -> Request:
        table = self._table("CUPTI_ACTIVITY_KIND_OVERHEAD")
        if not self.source.columns(table):
            table = self._table("PROFILER_OVERHEAD")
        if "overheadType" not in self.source.columns(table):
            table = "-"
        return Request(
            table, (Want("start", "start_ns"), Want("end", "end_ns", NULL), Want("overheadType", "overhead_type"))
        )

    # -- small tables ---------------------------------------------------------------------------

    def _pairs(self, table: str) -> list[tuple[str, str]]:
        rows = self.source.rows(self._table(table), ("name", "value"))
        return [(str(name), "" if value is None else str(value)) for name, value in rows]

    def _metadata(self) -> tuple[dict[str, str], dict[str, str]]:
        pairs = self._pairs("META_DATA_EXPORT") or self._pairs("EXPORT_META_DATA")
        meta = {k: v for k, v in pairs if k in _EXPORT_KEYS or k in _PARTIAL_KEYS}
        options: dict[str, str] = {}
        traced = []
        for key, value in self._pairs("META_DATA_CAPTURE"):
            short = key.split(":", 1)[1] if key.startswith("PROCESS_0:") else key
            if short == "CAPTURE_EVENT_TYPE":
                traced.append(value)
            elif short == "CUDA_GRAPH_TRACE_OPTIONS:MODE":
                options["cuda_graph_trace"] = value.lower()
        if traced:
            options["traced"] = ",".join(sorted(set(traced)))
        return meta, options

    def _provenance(self) -> Provenance:
        version = self.meta.get("EXPORT_SCHEMA_VERSION", "")
        partial = [k for k in _PARTIAL_KEYS if self.meta.get(k, "") not in ("", "0", "none", "None", "all", "-")]
        if partial:
            shown = "; ".join(f"{k.removeprefix('EXPORT_PARAM_')}={self.meta[k]}" for k in partial)
            self.findings.append(finding("partial-export", count=len(partial), example=shown))
        major = version.split(".")[0]
        if major.isdigit() and int(major) > 3:
            self.findings.append(finding("unknown-schema", example=version))
        start = self.source.rows(self._table("TARGET_INFO_SESSION_START_TIME"), ("utcEpochNs",))
        length = self.source.rows(self._table("ANALYSIS_DETAILS"), ("duration",))
        driver = [
            str(v)
            for n, v in self.source.rows(self._table("TARGET_INFO_SYSTEM_ENV"), ("name", "value"))
            if n == "NvDriverVersion"
        ]
        product = " ".join(
            v for v in (self.meta.get("EXPORT_PRODUCT_NAME", ""), self.meta.get("EXPORT_PRODUCT_VERSION", "")) if v
        )
        return Provenance(
            source_name=self.source.path.name,
            collector="nsys",
            tool_version=product,
            schema_version=version,
            session_start_utc_ns=int(start[0][0]) if start and start[0][0] is not None else -1,
            capture_duration_ns=int(length[0][0]) if length and length[0][0] is not None else -1,
            is_partial=bool(partial),
            driver_version=driver[0] if driver else "",
            options=self.options,
        )

    def _diagnostics(self) -> None:
        rows = self.source.rows(self._table("DIAGNOSTIC_EVENT"), ("severity", "text"))
        serious = [_without_paths(str(text)) for severity, text in rows if severity in (2, 3)]
        if serious:
            self.findings.append(finding("diagnostic-event", count=len(serious), example=" | ".join(serious[:3])))

    # -- shaping --------------------------------------------------------------------------------

    def trace(self) -> Trace:
        requests = self._requests()
        tables = dict(zip(requests, self.source.read(list(requests.values()))))
        self.strings = _interner(tables["strings"])
        self._number_processes_and_threads(tables)
        provenance = self._provenance()
        self._diagnostics()
        activities = self._activities(tables)
        launches = self._launches(tables.pop("api"))
        spans, domains = self._spans(tables.pop("nvtx"), tables["cudnn"], tables["cublas"])
        self._close_open_rows(spans, launches, activities)
        self._module_loading(tables["overhead"])
        graph_nodes = self._graph_nodes(tables["graph_node"])
        devices = self._devices()
        if len(devices):
            provenance.gpu_name = " + ".join(dict.fromkeys(n for n in devices["gpu_name"] if n))
        tables.clear()
        _give_back_memory()
        if self.strings.bad_bytes_count:
            self.findings.append(finding("non-utf8-text", count=self.strings.bad_bytes_count))
        return Trace(
            provenance=provenance,
            strings=np.array(self.strings.texts, object),
            spans=spans,
            launches=launches,
            activities=activities,
            graph_nodes=graph_nodes,
            domains=domains,
            processes=self.processes,
            threads=self.threads,
            devices=devices,
            findings=self.findings,
            module_loading_ns=self.module_loading_ns,
        )

    def _number_processes_and_threads(self, tables: dict[str, pa.Table]) -> None:
        """Dense indexes for every process and thread that has a range, a call or device work."""
        thread_ids = [_unique(tables[k], "global_tid") for k in ("api", "nvtx", "cudnn", "cublas", "graph_node")]
        gtids = np.unique(np.concatenate(thread_ids)) if thread_ids else np.zeros(0, np.int64)
        device_ids = [_unique(tables[k], "global_pid") for k in ("kernel", "memcpy", "memset", "graph")]
        gpids = np.unique(np.concatenate([*device_ids, gtids & ~np.int64(0xFFFFFF)]))
        if len(gpids) > 1 and gpids[0] == 0 and len(gpids) == 2:
            # exports of 2019–20 leave globalPid out of device rows: with one process it can only be that one
            gpids = gpids[1:]
            self._zero_is = 0
        else:
            self._zero_is = -1
        self._gpids, self._gtids = gpids, gtids
        names = {
            int(gpid): PurePosixPath(str(name).replace("\\", "/")).name
            for gpid, name in self.source.rows(self._table("PROCESSES"), ("globalPid", "name"))
            if gpid is not None and name
        }
        self.processes = pd.DataFrame(
            {
                "process_id": (gpids >> 24) & 0xFFFFFF,
                "global_id": gpids,
                "name": np.array([names.get(int(g), "") for g in gpids], object),
                "rank": np.full(len(gpids), -1, np.int32),
            }
        )
        thread_names = {
            int(gtid): name
            for name, gtid in self.source.rows(self._table("ThreadNames"), ("nameId", "globalTid"))
            if gtid is not None and name is not None
        }
        labels = self._labels(np.array([thread_names.get(int(g), NULL) for g in gtids], np.int64))
        self.threads = pd.DataFrame(
            {
                "process_index": self._process_index(gtids & ~np.int64(0xFFFFFF)),
                "thread_id": gtids & 0xFFFFFF,
                "name": labels,
            }
        )

    def _labels(self, numbers: np.ndarray) -> np.ndarray:
        """StringIds numbers → text, without keeping the text in the trace's strings."""
        aside = _Interner(self.strings.ids, self.strings.values)
        codes = aside.by_number(numbers)
        return np.array([aside.texts[c] if c >= 0 else "" for c in codes], object)

    def _process_index(self, global_pid: np.ndarray) -> np.ndarray:
        if len(self._gpids) == 1:
            return np.zeros(len(global_pid), np.int32)
        index = np.searchsorted(self._gpids, global_pid).astype(np.int32)
        return np.minimum(index, len(self._gpids) - 1).astype(np.int32)

    def _thread_index(self, global_tid: np.ndarray) -> np.ndarray:
        if len(self._gtids) == 1:
            return np.zeros(len(global_tid), np.int32)
        return np.searchsorted(self._gtids, global_tid).astype(np.int32)

    def _activities(self, tables: dict[str, pa.Table]) -> pd.DataFrame:
        parts = [
            self._device_rows(tables.pop("kernel"), ActivityKind.KERNEL),
            self._device_rows(tables.pop("memcpy"), ActivityKind.MEMCPY),
            self._device_rows(tables.pop("memset"), ActivityKind.MEMSET),
            self._device_rows(tables.pop("graph"), ActivityKind.GRAPH),
        ]
        filled = [p for p in parts if len(p)] or parts[:1]
        if len(filled) == 1:
            return filled[0]
        # concatenate column by column, with the numpy type of the kernels' column
        columns: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(c for part in filled for c in part.columns):
            typed = next(p[name] for p in filled if name in p).dtype
            columns[name] = np.concatenate(
                [p[name].to_numpy() if name in p else np.zeros(len(p), typed) for p in filled]
            ).astype(typed, copy=False)
        return pd.DataFrame(columns, copy=False)

    def _device_rows(self, table: pa.Table, kind: ActivityKind) -> pd.DataFrame:
        count = table.num_rows
        stream = _np(table, "stream_id", np.int32)
        stream[stream < 0] = -1
        columns: dict[str, np.ndarray] = {
            "kind": np.full(count, int(kind), np.int8),
            "process_index": self._process_index(_np(table, "global_pid")),
            "device_id": _np(table, "device_id", np.int32),
            "stream_id": stream,
            "correlation_id": _np(table, "correlation_id"),
            "start_ns": _np(table, "start_ns"),
            "end_ns": _np(table, "end_ns"),
        }
        if self.detail:
            columns["context_id"] = _np(table, "context_id", np.int32)
        if kind is ActivityKind.KERNEL:
            columns["name_id"] = self.strings.by_number(_np(table, "name"))
            columns["short_name_id"] = columns["name_id"]
            if "short_name" in table.column_names:
                columns["short_name_id"] = self.strings.by_number(_np(table, "short_name"))
                missing = columns["name_id"] < 0
                columns["name_id"][missing] = columns["short_name_id"][missing]
            if self.detail:
                for ours in _LAUNCH_DETAIL.values():
                    columns[ours] = _np(table, ours, np.int32)
        else:
            columns["name_id"] = columns["short_name_id"] = self._operation_names(table, kind)
        if kind is not ActivityKind.GRAPH:
            columns["graph_node_id"] = _no_sentinel(_np(table, "graph_node_id"))
        if kind in (ActivityKind.MEMCPY, ActivityKind.MEMSET):
            columns["bytes"] = _np(table, "bytes")
        if kind is ActivityKind.MEMCPY:
            columns["copy_kind"] = _np(table, "copy_kind", np.int8)
        if kind is ActivityKind.GRAPH:
            columns["graph_id"] = _np(table, "graph_id")
        for name, kind_type in (("bytes", np.int64), ("copy_kind", np.int8), ("graph_node_id", np.int64),
                                ("graph_id", np.int64)):  # fmt: skip
            if name not in columns:
                # a column of zeros that costs no memory until somebody writes to it
                columns[name] = np.zeros(count, kind_type)
        return pd.DataFrame(columns, copy=False)

    def _operation_names(self, table: pa.Table, kind: ActivityKind) -> np.ndarray:
        if kind is ActivityKind.MEMSET:
            return np.full(table.num_rows, self.strings.text("[CUDA memset]"), np.int32)
        if kind is ActivityKind.MEMCPY:
            codes, unique = pd.factorize(_np(table, "copy_kind"))
            names = [self.strings.text(COPY_KINDS.get(int(u), f"[CUDA memcpy kind {int(u)}]")) for u in unique]
            return np.array([*names, -1], np.int32)[codes]
        graph, execution = _np(table, "graph_id"), _np(table, "graph_exec_id")
        codes, unique = pd.factorize(pd.MultiIndex.from_arrays([graph, execution]))
        names = [self.strings.text(f"CUDA graph {g} exec {x}") for g, x in unique]
        return np.array([*names, -1], np.int32)[codes]

    def _launches(self, table: pa.Table) -> pd.DataFrame:
        api_class = _np(table, "api_class")
        # 67 is a CUDABACKTRACE row: a second row for a call that is there already (NSYS A.3.4)
        keep = (api_class == 0) | (api_class == 1)
        if not keep.all():
            table = table.filter(pa.array(keep))
            api_class = api_class[keep]
        del keep
        thread = self._thread_index(_np(table, "global_tid"))
        process = self.threads["process_index"].to_numpy()[thread] if len(thread) else np.zeros(0, np.int32)
        return pd.DataFrame(
            {
                "thread_index": thread,
                "process_index": process,
                "correlation_id": _np(table, "correlation_id"),
                "name_id": self.strings.by_number(_np(table, "name"), _without_abi_suffix),
                "api_class": api_class.astype(np.int8),
                "start_ns": _np(table, "start_ns"),
                "end_ns": _np(table, "end_ns"),
            },
            copy=False,
        )

    def _spans(self, nvtx: pa.Table, cudnn: pa.Table, cublas: pa.Table) -> tuple[pd.DataFrame, pd.DataFrame]:
        domains = self._domains(nvtx)
        event_type = _np(nvtx, "event_type")
        push_pop = np.isin(event_type, _PUSH_POP)
        ranges = push_pop | np.isin(event_type, _START_END)
        marks = nvtx.filter(pa.array(event_type == 34)) if (event_type == 34).any() else None
        if not ranges.all():
            nvtx, push_pop = nvtx.filter(pa.array(ranges)), push_pop[ranges]
        spans = self._range_rows(nvtx, push_pop)
        spans["domain_index"] = self._domain_index(nvtx, spans["process_index"].to_numpy())
        cross = spans["is_cross_thread"].to_numpy()
        if cross.any():
            self.findings.append(finding("cross-thread-ranges", count=int(cross.sum())))
        libraries = [self._library_rows(t, n) for t, n in ((cudnn, "cuDNN"), (cublas, "cuBLAS")) if t.num_rows]
        if libraries:
            spans = pd.concat([spans, *libraries], ignore_index=True)
        if marks is not None and self.detail:
            spans = self._shapes_from_marks(spans, marks)
        self.domains = domains
        return spans, domains

    def _range_rows(self, nvtx: pa.Table, push_pop: np.ndarray) -> pd.DataFrame:
        thread = self._thread_index(_np(nvtx, "global_tid"))
        name = self.strings.inline(nvtx.column("text"))
        numbers = _np(nvtx, "text_number")
        by_number = (name < 0) & (numbers != NULL)
        if by_number.any():
            name[by_number] = self.strings.by_number(numbers[by_number])
        closer = _np(nvtx, "end_global_tid")
        end = _np(nvtx, "end_ns")
        frame = pd.DataFrame(
            {
                "kind": np.where(push_pop, int(SpanKind.PUSH_POP), int(SpanKind.START_END)).astype(np.int8),
                "thread_index": thread,
                "process_index": self.threads["process_index"].to_numpy()[thread]
                if len(thread)
                else np.zeros(0, np.int32),
                "name_id": name,
                "start_ns": _np(nvtx, "start_ns"),
                "end_ns": end,
                "source_row_id": _np(nvtx, "source_row_id"),
                "is_open": end == NULL,
                "is_cross_thread": (closer != NULL) & (closer != 0) & (closer != _np(nvtx, "global_tid")),
                "payload_text_id": self._payload(nvtx),
            },
            copy=False,
        )
        return frame

    def _payload(self, nvtx: pa.Table) -> np.ndarray:
        count = nvtx.num_rows
        payload = np.full(count, -1, np.int32)
        if not self.detail or not count:
            return payload
        payload = self.strings.inline(nvtx.column("json_text"))
        numbers = _np(nvtx, "json_number")
        has = numbers != NULL
        if has.any():
            payload[has] = self.strings.by_number(numbers[has])
        for column in ("int64_value", "uint64_value"):
            values = _np(nvtx, column)
            has = (values != NULL) & (payload < 0)
            if has.any():
                codes, unique = pd.factorize(values[has])
                texts = np.array([self.strings.text(str(u)) for u in unique.tolist()], np.int32)
                payload[has] = texts[codes]
        return payload

    def _shapes_from_marks(self, spans: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
        """Our own ``shape:[…]`` marks belong to the innermost range around them (workload.ranges)."""
        from xsp_post.intervals import nest

        texts = self.strings.inline(marks.column("text"))
        numbers = _np(marks, "text_number")
        missing = (texts < 0) & (numbers != NULL)
        if missing.any():
            texts[missing] = self.strings.by_number(numbers[missing])
        is_shape = np.array([c >= 0 and self.strings.texts[c].startswith("shape:") for c in texts.tolist()], bool)
        if not is_shape.any():
            return spans
        thread = self._thread_index(_np(marks, "global_tid"))[is_shape].astype(np.int64)
        at = _np(marks, "start_ns")[is_shape]
        usable = np.flatnonzero((~spans["is_cross_thread"] & ~spans["is_open"]).to_numpy())
        nested = nest(
            spans["thread_index"].to_numpy()[usable].astype(np.int64),
            spans["start_ns"].to_numpy()[usable],
            spans["end_ns"].to_numpy()[usable],
        )
        owner = nested.innermost(thread, at, at)
        shape = np.full(len(spans), -1, np.int32)
        hit = owner >= 0
        shape[usable[owner[hit]]] = texts[is_shape][hit]
        return spans.assign(shape_text_id=shape)

    def _library_rows(self, table: pa.Table, library: str) -> pd.DataFrame:
        thread = self._thread_index(_np(table, "global_tid"))
        count = table.num_rows
        end = _np(table, "end_ns")
        return pd.DataFrame(
            {
                "kind": np.full(count, int(SpanKind.LIBRARY), np.int8),
                "thread_index": thread,
                "process_index": self.threads["process_index"].to_numpy()[thread],
                "name_id": self.strings.by_number(_np(table, "name"), _without_abi_suffix),
                "start_ns": _np(table, "start_ns"),
                "end_ns": end,
                "source_row_id": np.full(count, -1, np.int64),
                "is_open": end == NULL,
                "is_cross_thread": np.zeros(count, bool),
                "payload_text_id": np.full(count, -1, np.int32),
                "domain_index": np.full(count, -1, np.int32),
            }
        )

    def _domains(self, nvtx: pa.Table) -> pd.DataFrame:
        """Every (process, domain number) that has a range, with its name or ``domain-N``."""
        domain, event_type = _np(nvtx, "domain"), _np(nvtx, "event_type")
        gpid = _np(nvtx, "global_tid") & ~np.int64(0xFFFFFF)
        named: dict[tuple[int, int], str] = {}
        created = np.flatnonzero(event_type == _DOMAIN_CREATE)
        if len(created):
            rows = nvtx.take(pa.array(created))
            aside = _Interner(self.strings.ids, self.strings.values)
            text = aside.inline(rows.column("text"))
            by_number = aside.by_number(_np(rows, "text_number"))
            text = np.where(text < 0, by_number, text)
            for g, d, c in zip(gpid[created].tolist(), domain[created].tolist(), text.tolist()):
                if c >= 0:
                    named[g, d] = aside.texts[c]
        used = (domain != 0) & (np.isin(event_type, _PUSH_POP) | np.isin(event_type, _START_END))
        keys = sorted(set(zip(gpid[used].tolist(), domain[used].tolist())))
        names = [named.get(key, f"domain-{key[1]}") for key in keys]
        unnamed = [n for key, n in zip(keys, names) if key not in named]
        if unnamed:
            self.findings.append(finding("domain-without-name", count=len(unnamed), example=", ".join(unnamed[:3])))
        self._domain_keys = {key: index for index, key in enumerate(keys)}
        return pd.DataFrame(
            {
                "process_index": self._process_index(np.array([k[0] for k in keys], np.int64)),
                "name": np.array(names, object),
            }
        )

    def _domain_index(self, nvtx: pa.Table, process: np.ndarray) -> np.ndarray:
        domain = _np(nvtx, "domain")
        result = np.full(len(domain), -1, np.int32)
        if not self._domain_keys:
            return result
        gpid = self._gpids[process]
        for (g, d), index in self._domain_keys.items():
            result[(domain == d) & (gpid == g)] = index
        return result

    def _close_open_rows(self, spans: pd.DataFrame, launches: pd.DataFrame, activities: pd.DataFrame) -> None:
        """NULL ends: ranges end with the last NVTX time (NSYS B.1), calls and activities with their start."""
        for frame in (launches, activities):
            end = frame["end_ns"].to_numpy()
            is_null = end == NULL
            if is_null.any():
                frame["end_ns"] = np.where(is_null, frame["start_ns"].to_numpy(), end)
        is_open = spans["is_open"].to_numpy()
        if is_open.any():
            last = max(
                int(spans["end_ns"].to_numpy()[~is_open].max(initial=NULL)), int(spans["start_ns"].to_numpy().max())
            )
            spans["end_ns"] = np.where(is_open, last, spans["end_ns"].to_numpy())
            self.findings.append(finding("open-ranges", count=int(is_open.sum())))

    def _module_loading(self, overhead: pa.Table) -> None:
        kinds = _np(overhead, "overhead_type")
        loading = np.isin(kinds, _MODULE_LOADING_TYPES)
        self.module_loading_ns = _np(overhead, "start_ns")[loading]
        if loading.any():
            start, end = _np(overhead, "start_ns")[loading], _np(overhead, "end_ns")[loading]
            spent = int(np.maximum(0, np.where(end == NULL, start, end) - start).sum())
            self.findings.append(
                finding("module-loading", count=int(loading.sum()), example=f"{spent} ns spent in it during the capture")
            )

    def _graph_nodes(self, table: pa.Table) -> pd.DataFrame:
        thread = self._thread_index(_np(table, "global_tid"))
        return pd.DataFrame(
            {
                "graph_node_id": _no_sentinel(_np(table, "graph_node_id")),
                "original_graph_node_id": _no_sentinel(_np(table, "original_graph_node_id")),
                "process_index": self.threads["process_index"].to_numpy()[thread]
                if len(thread)
                else np.zeros(0, np.int32),
                "thread_index": thread,
                "start_ns": _np(table, "start_ns"),
            }
        )

    def _devices(self) -> pd.DataFrame:
        return _device_frame(self.source, self._table, self.processes)


def _device_frame(source: TableSource, table, processes: pd.DataFrame) -> pd.DataFrame:
    """Each CUDA device of each process with the hardware facts of its GPU (NSYS A.3.13)."""
    gpu_columns = ("id", "cuDevice", "name", "smCount", "clockRate", "memoryBandwidth", "totalMemory", "l2CacheSize",
                   "computeMajor", "computeMinor", "deviceId")  # fmt: skip
    gpus: dict[int, dict] = {}
    for row in source.rows(table("TARGET_INFO_GPU"), gpu_columns):
        facts = dict(zip(gpu_columns, row))
        number = facts["id"] if facts["id"] is not None else facts["deviceId"]
        gpus[int(number or 0)] = facts
    if not gpus:
        old = ("deviceId", "name", "globalMemoryBandwidth", "numMultiprocessors", "coreClockRate",
               "computeCapabilityMajor", "computeCapabilityMinor")  # fmt: skip
        for number, name, bandwidth, sms, clock, major, minor in source.rows(table("TARGET_INFO_CUDA_GPU"), old):
            gpus[int(number or 0)] = {
                "name": name, "memoryBandwidth": bandwidth, "smCount": sms, "clockRate": clock,
                "computeMajor": major, "computeMinor": minor,
            }  # fmt: skip
    of_process: dict[tuple[int, int], int] = {}
    for gpu, cuda, pid in source.rows(table("TARGET_INFO_CUDA_DEVICE"), ("gpuId", "cudaId", "pid")):
        if gpu is not None and cuda is not None and pid is not None:
            of_process[int(pid), int(cuda)] = int(gpu)
    rows = []
    for index, pid in enumerate(processes["process_id"].tolist()):
        mine = {cuda: gpu for (p, cuda), gpu in of_process.items() if p == pid} or {g: g for g in gpus}
        for cuda, gpu in sorted(mine.items()):
            facts = gpus.get(gpu, {})
            major, minor = facts.get("computeMajor"), facts.get("computeMinor")
            rows.append((
                index, cuda, gpu, str(facts.get("name") or ""), int(facts.get("smCount") or -1),
                float(facts.get("clockRate") or np.nan), float(facts.get("memoryBandwidth") or np.nan),
                int(facts.get("totalMemory") or -1), int(facts.get("l2CacheSize") or -1),
                f"{major}.{minor}" if major is not None else "",
            ))  # fmt: skip
    columns = ["process_index", "device_id", "gpu_index", "gpu_name", "sm_count", "clock_hz",
               "memory_bandwidth_bytes_per_s", "memory_bytes", "l2_bytes", "compute_capability"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _interner(table: pa.Table) -> _Interner:
    ids = _np(table, "id")
    values = table.column("value").combine_chunks() if table.num_rows else pa.array([], pa.binary())
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], pa.binary())
    if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
        order = np.argsort(ids, kind="stable")
        ids, values = ids[order], values.take(pa.array(order))
    return _Interner(ids, values)


def _np(table: pa.Table, column: str, dtype: type = np.int64) -> np.ndarray:
    """A column as a writable NumPy array of that type, copied once."""
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in table.column(column).chunks]
    if not chunks:
        return np.zeros(0, dtype)
    return np.concatenate(chunks, dtype=dtype, casting="unsafe")


def _give_back_memory() -> None:
    """The Arrow rows of an export are as large as the trace made of them: hand them back before the tree is built."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        # the SQLite driver allocates with malloc on its own threads; glibc keeps what they freed
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _unique(table: pa.Table, column: str) -> np.ndarray:
    if not table.num_rows:
        return np.zeros(0, np.int64)
    return pc.unique(table.column(column)).to_numpy(zero_copy_only=False)


def _no_sentinel(values: np.ndarray) -> np.ndarray:
    values[(values == _NONE_32) | (values == NULL)] = 0
    return values


_ABI_SUFFIX = re.compile(r"_v\d+$")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"()\\/]+[\\/])+")


def _without_abi_suffix(name: str) -> str:
    return _ABI_SUFFIX.sub("", name)


def _without_paths(text: str) -> str:
    """Folders stay out of findings: they hold user names."""
    return _PATH.sub("", text)
