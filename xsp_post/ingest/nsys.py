"""Captures in: the tables of an Nsight Systems export → `trace.Trace`.

Any schema from 2020 to 2026.4: absent tables and columns become empty frames and defaults.
Facts relied on: globalTid = HW:8|VM:8|PID:24|TID:24; correlation ids are unique per process only;
NVTX text is inline or interned; NVTX ``end`` may be NULL; 0, NULL and 0xFFFFFFFF all mean "none".
Private values (environment, command line, output, user, host) are never read.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding
from xsp_post.ingest import allocations, nsys_waits
from xsp_post.ingest.folder_tables import FolderTables
from xsp_post.ingest.gpu_samples import gpu_samples
from xsp_post.ingest.nccl_payloads import nccl_attributes
from xsp_post.ingest.nsys_devices import assumed_identity, device_frame
from xsp_post.ingest.nsys_diagnostics import diagnostic_findings, without_paths
from xsp_post.ingest.nsys_host_rows import NsysHostRows
from xsp_post.ingest.nsys_requests import LAUNCH_DETAIL, NO_MEMORY_KIND, requests
from xsp_post.ingest.nsys_strings import Interner, interner, numbers
from xsp_post.ingest.nsys_times import close_and_repair, last_time
from xsp_post.ingest.payloads import span_attributes
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import NULL, Request, TableSource, missing_column, require_columns, resolve, whole
from xsp_post.ingest.unmatched_launches import unmatched_launches
from xsp_post.model.trace import OVERHEAD_DTYPES, ActivityKind, Provenance, SpanKind, Trace, memory_kinds
from xsp_post.schemas.units import format_ns

_KNOWN_TABLES = (
    "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "META_DATA_EXPORT",
    "EXPORT_META_DATA",
)  # fmt: skip
_DEVICE_TABLES = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL", "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET", "graph": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}  # fmt: skip
_NVPROF_TABLES = {"StringTable", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"}
_NONE_32 = 0xFFFFFFFF
_PROCESS_BITS = ~np.int64(0xFFFFFF)  # of a global thread or process id
_PUSH_POP, _START_END = (59, 70), (60, 71)
_DOMAIN_CREATE = 75
_EXPORT_KEYS = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_PARTIAL_KEYS = ("EXPORT_PARAM_TABLES_TO_EXPORT", "EXPORT_PARAM_TIMES_TO_EXPORT", "EXPORT_PARAM_TIME_SHIFT")
_CAPTURE_KEYS = ("CAPTURE_EVENT_TYPE", "CUDA_GRAPH_TRACE_OPTIONS:MODE")
_MODULE_LOADING_TYPES = (2, 6, 7)  # driver JIT, runtime-triggered module loading, lazy function loading
_MODULE_LOADING_CALLS = ("cuLibraryLoad", "cuModuleLoad")

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


def read_sqlite(path: Path, *, detail: bool) -> tuple[Trace, None]:
    """Read a SQLite export."""
    return read_trace(SqliteTables(path), detail=detail), None


def read_folder(path: Path, *, detail: bool) -> tuple[Trace, None]:
    """Read a ``parquetdir`` or ``arrowdir`` export."""
    return read_trace(FolderTables(path), detail=detail), None


def read_report(path: Path, *, detail: bool) -> tuple[Trace, None]:
    """Read a ``.nsys-rep`` by way of the export that nsys makes of it."""
    from xsp_post.ingest.nsys_report import exported

    trace = read_trace(SqliteTables(exported(path)), detail=detail)
    trace.provenance.source_name = path.name
    return trace, None


def read_trace(source: TableSource, *, detail: bool = True) -> Trace:
    """Read an export. Without ``detail`` launch dimensions and payloads are left out (what `tree` needs).

    Raises `CaptureError` when the tables are not an nsys export or a column holds values of a foreign type.
    """
    if {
        "StringTable",
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    } & source.tables() and "StringIds" not in source.tables():
        raise CaptureError(
            f"{source.path}: is a database of nvprof, the profiler before Nsight Systems; xsp-post does not read it",
            code="capture-nvprof",
            hint="record again with: nsys profile -t cuda,nvtx -o report python program.py",
        )
    if not any(resolve(source.tables(), name) in source.tables() for name in _KNOWN_TABLES):
        found = ", ".join(sorted(source.tables())[:5]) or "no table at all"
        raise CaptureError(
            f"{source.path}: is not an Nsight Systems export: it has none of {', '.join(_KNOWN_TABLES)} "
            f"(found: {found})",
            code="capture-no-export",
            hint="give the output of: nsys export -t sqlite REPORT.nsys-rep",
        )
    return _Reader(source, detail).trace()


class _Reader:
    """One pass over one export: request all wanted columns at once, then shape them."""

    def __init__(self, source: TableSource, detail: bool) -> None:
        self.source = source
        self.detail = detail
        self.findings: list[Finding] = []
        self.meta, self.options = self._metadata()

    def _table(self, name: str) -> str:
        return resolve(self.source.tables(), name)

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
        driver = [
            str(v)
            for n, v in self.source.rows(self._table("TARGET_INFO_SYSTEM_ENV"), ("name", "value"))
            if n == "NvDriverVersion"
        ]
        return Provenance(
            source_name=self.source.path.name,
            collector="nsys",
            tool_version=self._product(),
            schema_version=version,
            session_start_utc_ns=whole(start[0][0]) if start else -1,
            is_partial=bool(partial),
            file_operation_count=sum(self.source.row_counts.get(self._table(t), 0) for t in _DEVICE_TABLES.values()),
            driver_version=driver[0] if driver else "",
            options=self.options,
        )

    def _diagnostics(self, activities: pd.DataFrame) -> None:
        rows = self.source.rows(self._table("DIAGNOSTIC_EVENT"), ("severity", "text"))
        has_kernels = bool((activities["kind"].to_numpy() == int(ActivityKind.KERNEL)).any())
        self.findings += diagnostic_findings(rows, has_kernels=has_kernels)

    # -- shaping --------------------------------------------------------------------------------

    def trace(self) -> Trace:
        wanted = requests(self.source, detail=self.detail)
        tables = dict(zip(wanted, self.source.read(list(wanted.values()))))
        self._require_columns(wanted, tables)
        self.strings = interner(tables["strings"])
        self._number_processes_and_threads(tables)
        provenance = self._provenance()
        activities = self._activities(tables)
        self._diagnostics(activities)
        launches = self._launches(tables.pop("api"))
        spans, domains = self._spans(tables.pop("nvtx"), tables["cudnn"], tables["cublas"])
        launches, mended = close_and_repair(spans, launches, activities, self._last_nvtx_ns)
        self.findings += mended
        self._unmatched_launches(launches, activities)
        self._module_loading(tables["overhead"], launches)
        waits = self._waits(tables, launches)
        graph_nodes = self._graph_nodes(tables["graph_node"])
        devices = self._devices()
        self.findings += assumed_identity(self.source, self._table, self.processes, activities)
        if len(devices):
            provenance.gpu_name = " + ".join(dict.fromkeys(n for n in devices["gpu_name"] if n))
        tables.clear()
        _give_back_memory()
        if self.strings.bad_bytes_count:
            self.findings.append(finding("non-utf8-text", count=self.strings.bad_bytes_count))
        return Trace(
            provenance=provenance,
            strings=self.strings.array(),
            spans=spans,
            launches=launches,
            activities=activities,
            graph_nodes=graph_nodes,
            domains=domains,
            processes=self.processes,
            threads=self.threads,
            devices=devices,
            attributes=self._attributes(spans),
            findings=self.findings,
            module_loading_ns=self.module_loading_ns,
            host_rows=NsysHostRows(self.source, self._gtids),
            **waits,
        )

    def _require_columns(self, wanted: dict[str, Request], tables: dict[str, pa.Table]) -> None:
        """Raise where a table with rows lacks what it cannot be read without; else a finding of what is not known."""
        missing: list[str] = []
        for key, request in wanted.items():
            if tables[key].num_rows:
                missing += require_columns(self.source, request, self._tool_version())
        if missing:
            self.findings.append(finding("columns-missing", count=len(missing), example="; ".join(missing[:5])))

    def _tool_version(self) -> str:
        """The nsys that wrote the export, as far as the file says."""
        schema = self.meta.get("EXPORT_SCHEMA_VERSION", "")
        return self._product() or (f"nsys, schema {schema}" if schema else "")

    def _product(self) -> str:
        named = (self.meta.get("EXPORT_PRODUCT_NAME"), self.meta.get("EXPORT_PRODUCT_VERSION"))
        return " ".join(value for value in named if value)

    def _require_process_column(self, tables: dict[str, pa.Table], gpids: np.ndarray) -> None:
        """Device work that names no process can only be assigned where there is one process."""
        if len(gpids) < 2:
            return
        for key, name in _DEVICE_TABLES.items():
            if tables[key].num_rows and "globalPid" not in self.source.columns(self._table(name)):
                raise missing_column(self.source.path, self._table(name), "globalPid", self._tool_version())

    def _number_processes_and_threads(self, tables: dict[str, pa.Table]) -> None:
        """Dense indexes for every process and thread that has a range, a call or device work."""
        thread_ids = [_unique(tables[k], "global_tid") for k in ("api", "nvtx", "cudnn", "cublas", "graph_node")]
        gtids = np.unique(np.concatenate(thread_ids)) if thread_ids else np.zeros(0, np.int64)
        device_ids = [_unique(tables[k], "global_pid") for k in ("kernel", "memcpy", "memset", "graph")]
        gpids = np.unique(np.concatenate([*device_ids, gtids]) & _PROCESS_BITS)
        if len(gpids) > 1 and gpids[0] == 0 and len(gpids) == 2:
            # exports of 2019–20 leave globalPid out of device rows: with one process it can only be that one
            gpids = gpids[1:]
        else:
            self._require_process_column(tables, gpids)
        self._gpids, self._gtids = gpids, gtids
        names = {
            whole(gpid): PurePosixPath(str(name).replace("\\", "/")).name
            for gpid, name in self.source.rows(self._table("PROCESSES"), ("globalPid", "name"))
            if name
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
            whole(gtid): whole(name, NULL)
            for name, gtid in self.source.rows(self._table("ThreadNames"), ("nameId", "globalTid"))
        }
        labels = self._labels(np.array([thread_names.get(int(g), NULL) for g in gtids], np.int64))
        self.threads = pd.DataFrame(
            {
                "process_index": self._process_index(gtids),
                "thread_id": gtids & 0xFFFFFF,
                "name": labels,
            }
        )

    def _labels(self, numbers: np.ndarray) -> np.ndarray:
        """StringIds numbers → text, without keeping the text in the trace's strings."""
        aside = Interner(self.strings.ids, self.strings.values)
        codes = aside.by_number(numbers)
        return np.array([aside.texts[c] if c >= 0 else "" for c in codes], object)

    def _process_index(self, global_pid: np.ndarray) -> np.ndarray:
        if len(self._gpids) == 1:
            return np.zeros(len(global_pid), np.int32)
        index = np.searchsorted(self._gpids, global_pid & _PROCESS_BITS).astype(np.int32)
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
            typed = next(p[name] for p in filled if name in p).to_numpy().dtype
            columns[name] = np.concatenate(
                [p[name].to_numpy() if name in p else np.zeros(len(p), typed) for p in filled]
            ).astype(typed, copy=False)
        return pd.DataFrame(columns, copy=False)

    def _device_rows(self, table: pa.Table, kind: ActivityKind) -> pd.DataFrame:
        count = table.num_rows
        stream = numbers(table, "stream_id", np.int32)
        stream[stream < 0] = -1
        columns: dict[str, np.ndarray] = {
            "kind": np.full(count, int(kind), np.int8),
            "process_index": self._process_index(numbers(table, "global_pid")),
            "device_id": numbers(table, "device_id", np.int32),
            "stream_id": stream,
            "correlation_id": numbers(table, "correlation_id"),
            "start_ns": numbers(table, "start_ns"),
            "end_ns": numbers(table, "end_ns"),
        }
        if self.detail:
            columns["context_id"] = numbers(table, "context_id", np.int32)
        if kind is ActivityKind.KERNEL:
            columns["name_id"] = self.strings.by_number(numbers(table, "name"))
            columns["short_name_id"] = columns["name_id"]
            if "short_name" in table.column_names:
                columns["short_name_id"] = self.strings.by_number(numbers(table, "short_name"))
                missing = columns["name_id"] < 0
                columns["name_id"][missing] = columns["short_name_id"][missing]
            if self.detail:
                for ours in LAUNCH_DETAIL.values():
                    columns[ours] = numbers(table, ours, np.int32)
        else:
            columns["name_id"] = columns["short_name_id"] = self._operation_names(table, kind)
        if kind is not ActivityKind.GRAPH:
            columns["graph_node_id"] = _no_sentinel(numbers(table, "graph_node_id"))
        if kind in (ActivityKind.MEMCPY, ActivityKind.MEMSET):
            columns["bytes"] = numbers(table, "bytes")
        if kind is ActivityKind.MEMCPY:
            columns["copy_kind"] = numbers(table, "copy_kind", np.int8)
            # nsys counts from 0 (pageable), CUPTI from 1
            sides = [(numbers(table, f"{side}_kind") + 1) % (NO_MEMORY_KIND + 1) for side in ("source", "target")]
            columns["memory_kind"] = memory_kinds(columns["copy_kind"], *sides)
        if kind is ActivityKind.GRAPH:
            columns["graph_id"] = numbers(table, "graph_id")
        for name, kind_type in (("bytes", np.int64), ("copy_kind", np.int8), ("memory_kind", np.int8),
                                ("graph_node_id", np.int64), ("graph_id", np.int64)):  # fmt: skip
            if name not in columns:
                # a column of zeros that costs no memory until somebody writes to it
                columns[name] = np.zeros(count, kind_type)
        return pd.DataFrame(columns, copy=False)

    def _operation_names(self, table: pa.Table, kind: ActivityKind) -> np.ndarray:
        if kind is ActivityKind.MEMSET:
            return np.full(table.num_rows, self.strings.text("[CUDA memset]"), np.int32)
        if kind is ActivityKind.MEMCPY:
            codes, unique = pd.factorize(numbers(table, "copy_kind"))
            names = [self.strings.text(COPY_KINDS.get(int(u), f"[CUDA memcpy kind {int(u)}]")) for u in unique]
            return np.array([*names, -1], np.int32)[codes]
        if not table.num_rows:
            return np.zeros(0, np.int32)
        graph, execution = numbers(table, "graph_id"), numbers(table, "graph_exec_id")
        codes, launched = pd.factorize(pd.MultiIndex.from_arrays([graph, execution]))
        names = [self.strings.text(f"CUDA graph {g} exec {x}") for g, x in launched]
        return np.array([*names, -1], np.int32)[codes]

    def _launches(self, table: pa.Table) -> pd.DataFrame:
        api_class = numbers(table, "api_class")
        # 67 is a CUDABACKTRACE row: a second row for a call that is there already
        keep = (api_class == 0) | (api_class == 1)
        if not keep.all():
            table = table.filter(pa.array(keep))
            api_class = api_class[keep]
        del keep
        thread = self._thread_index(numbers(table, "global_tid"))
        process = self.threads["process_index"].to_numpy()[thread] if len(thread) else np.zeros(0, np.int32)
        return pd.DataFrame(
            {
                "thread_index": thread,
                "process_index": process,
                "correlation_id": numbers(table, "correlation_id"),
                "name_id": self.strings.by_number(numbers(table, "name"), _without_abi_suffix),
                "api_class": api_class.astype(np.int8),
                "start_ns": numbers(table, "start_ns"),
                "end_ns": numbers(table, "end_ns"),
            },
            copy=False,
        )

    def _spans(self, nvtx: pa.Table, cudnn: pa.Table, cublas: pa.Table) -> tuple[pd.DataFrame, pd.DataFrame]:
        domains = self._domains(nvtx)
        self._last_nvtx_ns = last_time(numbers(nvtx, "start_ns"), numbers(nvtx, "end_ns"))
        event_type = numbers(nvtx, "event_type")
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
        thread = self._thread_index(numbers(nvtx, "global_tid"))
        name = self.strings.inline(nvtx.column("text"))
        text_number = numbers(nvtx, "text_number")
        by_number = (name < 0) & (text_number != NULL)
        if by_number.any():
            name[by_number] = self.strings.by_number(text_number[by_number])
        closer = numbers(nvtx, "end_global_tid")
        end = numbers(nvtx, "end_ns")
        frame = pd.DataFrame(
            {
                "kind": np.where(push_pop, int(SpanKind.PUSH_POP), int(SpanKind.START_END)).astype(np.int8),
                "thread_index": thread,
                "process_index": self.threads["process_index"].to_numpy()[thread]
                if len(thread)
                else np.zeros(0, np.int32),
                "name_id": name,
                "start_ns": numbers(nvtx, "start_ns"),
                "end_ns": end,
                "source_row_id": numbers(nvtx, "source_row_id") if self.detail else np.full(len(end), -1, np.int64),
                "is_open": end == NULL,
                "is_cross_thread": (closer != NULL) & (closer != 0) & (closer != numbers(nvtx, "global_tid")),
                "payload_text_id": self._payload(nvtx),
            },
            copy=False,
        )
        return frame

    def _attributes(self, spans: pd.DataFrame) -> pd.DataFrame:
        strings = self.strings.array()
        attributes = span_attributes(spans, strings)
        sizes = nccl_attributes(self.source, self._table, spans, strings) if self.detail else pd.DataFrame()
        return attributes.combine_first(sizes) if len(sizes) else attributes

    def _payload(self, nvtx: pa.Table) -> np.ndarray:
        count = nvtx.num_rows
        payload = np.full(count, -1, np.int32)
        if not self.detail or not count:
            return payload
        payload = self.strings.inline(nvtx.column("json_text"))
        json_number = numbers(nvtx, "json_number")
        has = json_number != NULL
        if has.any():
            payload[has] = self.strings.by_number(json_number[has])
        for column in ("int64_value", "uint64_value"):
            values = numbers(nvtx, column)
            has = (values != NULL) & (payload < 0)
            if has.any():
                codes, unique = pd.factorize(values[has])
                texts = np.array([self.strings.text(str(u)) for u in unique.tolist()], np.int32)
                payload[has] = texts[codes]
        return payload

    def _shapes_from_marks(self, spans: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
        """Our own ``shape:[…]`` marks belong to the innermost range around them (workload.ranges)."""
        from xsp_post.arrays.intervals import nest

        texts = self.strings.inline(marks.column("text"))
        text_number = numbers(marks, "text_number")
        missing = (texts < 0) & (text_number != NULL)
        if missing.any():
            texts[missing] = self.strings.by_number(text_number[missing])
        is_shape = np.array([c >= 0 and self.strings.texts[c].startswith("shape:") for c in texts.tolist()], bool)
        if not is_shape.any():
            return spans
        thread = self._thread_index(numbers(marks, "global_tid"))[is_shape].astype(np.int64)
        at = numbers(marks, "start_ns")[is_shape]
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
        thread = self._thread_index(numbers(table, "global_tid"))
        count = table.num_rows
        end = numbers(table, "end_ns")
        return pd.DataFrame(
            {
                "kind": np.full(count, int(SpanKind.LIBRARY), np.int8),
                "thread_index": thread,
                "process_index": self.threads["process_index"].to_numpy()[thread],
                "name_id": self.strings.by_number(numbers(table, "name"), _without_abi_suffix),
                "start_ns": numbers(table, "start_ns"),
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
        domain, event_type = numbers(nvtx, "domain"), numbers(nvtx, "event_type")
        is_alone = not domain.any() and not (event_type == _DOMAIN_CREATE).any()
        if is_alone:  # the usual case: nothing to look up in a million rows
            self._domain_keys: dict[tuple[int, int], int] = {}
            return pd.DataFrame({"process_index": np.zeros(0, np.int32), "name": np.zeros(0, object)})
        gpid = numbers(nvtx, "global_tid") & _PROCESS_BITS
        named: dict[tuple[int, int], str] = {}
        created = np.flatnonzero(event_type == _DOMAIN_CREATE)
        if len(created):
            rows = nvtx.take(pa.array(created))
            aside = Interner(self.strings.ids, self.strings.values)
            text = aside.inline(rows.column("text"))
            by_number = aside.by_number(numbers(rows, "text_number"))
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
        result = np.full(nvtx.num_rows, -1, np.int32)
        if not self._domain_keys:
            return result
        domain = numbers(nvtx, "domain")
        gpid = self._gpids[process]
        for (g, d), index in self._domain_keys.items():
            result[(domain == d) & (gpid == g)] = index
        return result

    def _module_loading(self, overhead: pa.Table, launches: pd.DataFrame) -> None:
        """When code was loaded: as the profiler's overhead says, else (not every export has it) by the calls."""
        kinds = numbers(overhead, "overhead_type")
        loading = np.isin(kinds, _MODULE_LOADING_TYPES)
        self.module_loading_ns = numbers(overhead, "start_ns")[loading]
        if loading.any():
            start, end = numbers(overhead, "start_ns")[loading], numbers(overhead, "end_ns")[loading]
            spent = int(np.maximum(0, np.where(end == NULL, start, end) - start).sum())
            example = f"{format_ns(spent)} spent in it during the capture"
            self.findings.append(finding("module-loading", count=int(loading.sum()), example=example))
            return
        codes, used = pd.factorize(launches["name_id"].to_numpy())
        texts = [str(self.strings.texts[name]) if name >= 0 else "" for name in used.tolist()]
        loads = np.array([*(text.startswith(_MODULE_LOADING_CALLS) for text in texts), False])
        self.module_loading_ns = launches["start_ns"].to_numpy()[loads[codes]]

    def _waits(self, tables: dict[str, pa.Table], launches: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The optional frames: what was waited for, memory, samples, and the profiler's own overhead."""
        frames = {"profiler_overhead": self._profiler_overhead(tables["overhead"])}
        if "synchronization" in tables:
            table, process = self._of_known_processes(tables.pop("synchronization"))
            frames["synchronizations"] = nsys_waits.synchronizations(table, process, launches, self.strings.texts)
            table, process = self._of_known_processes(tables.pop("cuda_event"))
            frames["cuda_events"] = nsys_waits.cuda_events(table, process, launches)
            table, process = self._of_known_processes(tables.pop("memory"))
            frames["allocations"] = allocations.of_nsys(table, process, launches)
            frames["gpu_samples"] = gpu_samples(self.source)
        return frames

    def _of_known_processes(self, table: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows of processes that have ranges, calls or device work, and the process index of each."""
        known = np.isin(numbers(table, "global_pid") & _PROCESS_BITS, self._gpids)
        table = table if known.all() else table.filter(pa.array(known))
        return table, self._process_index(numbers(table, "global_pid"))

    def _profiler_overhead(self, table: pa.Table) -> pd.DataFrame:
        start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
        thread = numbers(table, "global_tid")
        known = np.isin(thread, self._gtids) & (end > start)
        if not known.all():
            table, start, end, thread = table.filter(pa.array(known)), start[known], end[known], thread[known]
        columns = {
            "thread_index": self._thread_index(thread),
            "name_id": self.strings.by_number(numbers(table, "name"), without_paths),
            "overhead_type": numbers(table, "overhead_type"),
            "start_ns": start,
            "end_ns": end,
        }
        return pd.DataFrame(columns).astype(OVERHEAD_DTYPES)

    def _unmatched_launches(self, launches: pd.DataFrame, activities: pd.DataFrame) -> None:
        self.findings += unmatched_launches(launches, activities, self.strings.array())

    def _graph_nodes(self, table: pa.Table) -> pd.DataFrame:
        thread = self._thread_index(numbers(table, "global_tid"))
        return pd.DataFrame(
            {
                "graph_node_id": _no_sentinel(numbers(table, "graph_node_id")),
                "original_graph_node_id": _no_sentinel(numbers(table, "original_graph_node_id")),
                "process_index": self.threads["process_index"].to_numpy()[thread]
                if len(thread)
                else np.zeros(0, np.int32),
                "thread_index": thread,
                "start_ns": numbers(table, "start_ns"),
            }
        )

    def _devices(self) -> pd.DataFrame:
        return device_frame(self.source, self._table, self.processes)


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


def _without_abi_suffix(name: str) -> str:
    return _ABI_SUFFIX.sub("", name)
