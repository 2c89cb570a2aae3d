"""Captures in: the tables of an Nsight Systems export → `trace.Trace`.

Any schema from 2020 to 2026.4: absent tables and columns become empty frames and defaults.
Facts relied on: globalTid = HW:8|VM:8|PID:24|TID:24; correlation ids are unique per process only;
NVTX text is inline or interned; NVTX ``end`` may be NULL; 0, NULL and 0xFFFFFFFF all mean "none".
Private values (environment, command line, output, user, host) are never read.
"""

from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.texts import of_each
from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.ingest import allocations, nsys_activities
from xsp_post.ingest.folder_tables import FolderTables
from xsp_post.ingest.gpu_samples import gpu_samples
from xsp_post.ingest.interning import compact
from xsp_post.ingest.nccl_payloads import nccl_attributes, nccl_calls, stated_ranks
from xsp_post.ingest.nsys_activities import no_sentinel
from xsp_post.ingest.nsys_devices import assumed_identity, device_frame, diagnostic_findings, without_paths
from xsp_post.ingest.nsys_host_rows import NsysHostRows
from xsp_post.ingest.nsys_ranges import RangeReader, close_and_repair
from xsp_post.ingest.nsys_strings import Interner, interner, numbers, without_abi_suffix
from xsp_post.ingest.nsys_threads import Numbering
from xsp_post.ingest.payloads import span_attributes
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import (
    DEVICE_TABLES,
    NULL,
    PROCESS_BITS,
    Request,
    TableSource,
    missing_column,
    requests,
    require_columns,
    resolve,
    whole,
)
from xsp_post.ingest.unmatched_launches import unmatched_launches
from xsp_post.model.kinds import LOADING_TYPES
from xsp_post.model.schemas.units import format_ns
from xsp_post.model.trace import OVERHEAD_DTYPES, ActivityKind, Provenance, Trace, typed_frame

_KNOWN_TABLES = (
    "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "META_DATA_EXPORT",
    "EXPORT_META_DATA",
)  # fmt: skip
_NVPROF_TABLES = {"StringTable", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"}
_EXPORT_KEYS = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_PARTIAL_KEYS = ("EXPORT_PARAM_TABLES_TO_EXPORT", "EXPORT_PARAM_TIMES_TO_EXPORT", "EXPORT_PARAM_TIME_SHIFT")
_LONGEST_VERSION = 100  # characters
_MODULE_LOADING_CALLS = ("cuLibraryLoad", "cuModuleLoad")


def read_sqlite(path: Path) -> Trace:
    return read_trace(SqliteTables(path))


def read_folder(path: Path) -> Trace:
    """Read a ``parquetdir`` or ``arrowdir`` export."""
    return read_trace(FolderTables(path))


def read_report(path: Path) -> Trace:
    """Read a ``.nsys-rep`` by way of the export that nsys makes of it."""
    from xsp_post.ingest.nsys_report import exported

    trace = read_trace(SqliteTables(exported(path)))
    trace.provenance.source_name = path.name
    return trace


def read_trace(source: TableSource) -> Trace:
    """Read an export.

    Raises `CaptureError` when the tables are not an nsys export or a column holds values of a foreign type.
    """
    if _NVPROF_TABLES & source.tables() and "StringIds" not in source.tables():
        raise CaptureError(
            f"{source.path}: is a database of nvprof, the profiler before Nsight Systems; xsp-post does not read it",
            code="capture-nvprof",
        )
    if not any(resolve(source.tables(), name) in source.tables() for name in _KNOWN_TABLES):
        found = ", ".join(sorted(source.tables())[:5]) or "no table at all"
        raise CaptureError(
            f"{source.path}: is not an Nsight Systems export: it has none of {', '.join(_KNOWN_TABLES)} "
            f"(found: {found})",
            code="capture-no-export",
        )
    return _Reader(source).trace()


class _Reader:
    """One pass over one export: request all wanted columns at once, then shape them."""

    def __init__(self, source: TableSource) -> None:
        self.source = source
        self.findings: list[Finding] = []
        self.meta, self.options = self._metadata()

    def _table(self, name: str) -> str:
        return resolve(self.source.tables(), name)

    # -- small tables ---------------------------------------------------------------------------

    def _pairs(self, table: str) -> list[tuple[str, str]]:
        rows = self.source.rows(table, ("name", "value"))
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
        shown = "; ".join(f"{k.removeprefix('EXPORT_PARAM_')}={self.meta[k]}" for k in partial)
        self.findings += if_any("partial-export", len(partial), shown)
        major = version.split(".")[0]
        if major.isdecimal() and int(major[:9]) > 3:  # Python converts no number of thousands of digits
            self.findings.append(finding("unknown-schema", example=version))
        start = self.source.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
        driver = [text for name, text in self._pairs("TARGET_INFO_SYSTEM_ENV") if name == "NvDriverVersion"]
        return Provenance(
            source_name=self.source.path.name,
            collector="nsys",
            tool_version=self._product(),
            schema_version=version[:_LONGEST_VERSION],
            session_start_utc_ns=whole(start[0][0]) if start else -1,
            is_partial=bool(partial),
            file_operation_count=sum(self.source.row_counts.get(self._table(t), 0) for t in DEVICE_TABLES.values()),
            driver_version=driver[0] if driver else "",
            options=self.options,
        )

    # -- shaping --------------------------------------------------------------------------------

    def trace(self) -> Trace:
        wanted = requests(self.source)
        tables = dict(zip(wanted, self.source.read(list(wanted.values()))))
        self.findings += self.source.findings
        self._require_columns(wanted, tables)
        self.strings = interner(tables["strings"])
        self._number_processes_and_threads(tables)
        provenance = self._provenance()
        activities = compact(nsys_activities.activities(tables, self.strings, self.numbering))
        has_kernels = bool((activities["kind"].to_numpy() == int(ActivityKind.KERNEL)).any())
        rows = self.source.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        self.findings += diagnostic_findings(rows, has_kernels=has_kernels)
        launches = compact(self._launches(tables.pop("api")))
        ranges = RangeReader(self.strings, self.numbering)
        spans, domains = ranges.spans(tables.pop("nvtx"), tables["cudnn"], tables["cublas"])
        spans = compact(spans)
        launches, repaired = close_and_repair(spans, launches, activities, ranges.last_ns)
        self.findings += ranges.findings + repaired
        self.findings += unmatched_launches(launches, activities, self.strings.texts)
        self._module_loading(tables["overhead"], launches)
        waits = self._waits(tables, launches)
        graph_nodes = self._graph_nodes(tables["graph_node"])
        calls = nccl_calls(self.source, spans, self.strings.texts)
        self.processes["rank"] = stated_ranks(calls, spans, len(self.processes))
        devices = device_frame(self.source, self.processes)
        self.findings += assumed_identity(self.source, self.processes, activities)
        if len(devices):
            provenance.gpu_name = " + ".join(dict.fromkeys(n for n in devices["gpu_name"] if n))
        tables.clear()
        self.findings += if_any("non-utf8-text", self.strings.bad_bytes_count)
        return Trace(
            provenance=provenance, strings=self.strings.texts, spans=spans, launches=launches, activities=activities,
            graph_nodes=graph_nodes, domains=domains, processes=self.processes, threads=self.threads, devices=devices,
            attributes=self._attributes(spans, calls), findings=self.findings, module_loading_ns=self.module_loading_ns,
            gpu_samples=partial(gpu_samples, self.source), host_rows=NsysHostRows(self.source, self.numbering.gtids),
            **waits,
        )  # fmt: skip

    def _require_columns(self, wanted: dict[str, Request], tables: dict[str, pa.Table]) -> None:
        """Raise where a table with rows lacks what it cannot be read without; else a finding of what is not known."""
        missing: list[str] = []
        for key, request in wanted.items():
            if tables[key].num_rows:
                missing += require_columns(self.source, request, self._tool_version())
        self.findings += if_any("columns-missing", len(missing), "; ".join(missing[:5]))

    def _tool_version(self) -> str:
        """The nsys that wrote the export, as far as the file says."""
        schema = self.meta.get("EXPORT_SCHEMA_VERSION", "")
        return self._product() or (f"nsys, schema {schema}" if schema else "")

    def _product(self) -> str:
        named = (self.meta.get("EXPORT_PRODUCT_NAME"), self.meta.get("EXPORT_PRODUCT_VERSION"))
        return " ".join(value for value in named if value)

    def _require_process_column(self, tables: dict[str, pa.Table]) -> None:
        """Device work that names no process can only be assigned where there is one process."""
        if len(self.numbering.gpids) < 2:
            return
        for key, name in DEVICE_TABLES.items():
            if tables[key].num_rows and "globalPid" not in self.source.columns(self._table(name)):
                raise missing_column(self.source.path, self._table(name), "globalPid", self._tool_version())

    def _number_processes_and_threads(self, tables: dict[str, pa.Table]) -> None:
        self.numbering = Numbering(tables)
        self._require_process_column(tables)
        names = {
            whole(gpid): PurePosixPath(str(name).replace("\\", "/")).name
            for gpid, name in self.source.rows("PROCESSES", ("globalPid", "name"))
            if name
        }
        self.processes = self.numbering.process_frame(names)
        thread_names = {
            whole(gtid): whole(name, NULL) for name, gtid in self.source.rows("ThreadNames", ("nameId", "globalTid"))
        }
        of_threads = [thread_names.get(int(g), NULL) for g in self.numbering.gtids]
        self.threads = self.numbering.thread_frame(self._labels(np.array(of_threads, np.int64)))

    def _labels(self, numbers: np.ndarray) -> np.ndarray:
        """StringIds numbers → text, without keeping the text in the trace's strings."""
        aside = Interner(self.strings.ids, self.strings.values)
        codes = aside.by_number(numbers)
        texts = np.append(aside.texts, np.array([""], object))
        return texts[codes]

    def _launches(self, table: pa.Table) -> pd.DataFrame:
        api_class = numbers(table, "api_class", np.int32)
        # 67 is a CUDABACKTRACE row: a second row for a call that is there already
        keep = (api_class == 0) | (api_class == 1)
        if not keep.all():
            table = table.filter(pa.array(keep))
            api_class = api_class[keep]
        del keep
        thread = self.numbering.thread_index(numbers(table, "global_tid"))
        return pd.DataFrame(
            {
                "thread_index": thread,
                "process_index": self.numbering.process_of_thread[thread],
                "name_id": self.strings.by_number(numbers(table, "name", np.int32), without_abi_suffix),
                "api_class": api_class.astype(np.int8),
                **{name: numbers(table, name) for name in ("correlation_id", "start_ns", "end_ns")},
            },
            copy=False,
        )

    def _attributes(self, spans: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
        attributes = span_attributes(spans, self.strings.texts)
        sizes = nccl_attributes(calls, spans, self.strings.texts)
        return attributes.combine_first(sizes) if len(sizes) else attributes

    def _module_loading(self, overhead: pa.Table, launches: pd.DataFrame) -> None:
        """When code was loaded: as the profiler's overhead says, else (not every export has it) by the calls."""
        kinds = numbers(overhead, "overhead_type")
        loading = np.isin(kinds, LOADING_TYPES)
        self.module_loading_ns = numbers(overhead, "start_ns")[loading]
        if loading.any():
            start, end = numbers(overhead, "start_ns")[loading], numbers(overhead, "end_ns")[loading]
            spent = int(np.maximum(0, np.where(end == NULL, start, end) - start).sum())
            example = f"{format_ns(spent)} spent in it during the capture"
            self.findings.append(finding("module-loading", count=int(loading.sum()), example=example))
            return
        names, texts = launches["name_id"].to_numpy(), self.strings.texts
        loads = of_each(names, lambda one: one >= 0 and texts[one].startswith(_MODULE_LOADING_CALLS), bool)
        self.module_loading_ns = launches["start_ns"].to_numpy()[loads]

    def _waits(self, tables: dict[str, pa.Table], launches: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The optional frames: what was waited for, memory, samples, and the profiler's own overhead."""
        frames = {"profiler_overhead": self._profiler_overhead(tables["overhead"])}
        table, process = self._of_known_processes(tables.pop("synchronization"))
        frames["synchronizations"] = nsys_activities.synchronizations(table, process, launches, self.strings.texts)
        table, process = self._of_known_processes(tables.pop("cuda_event"))
        frames["cuda_events"] = nsys_activities.cuda_events(table, process, launches)
        table, process = self._of_known_processes(tables.pop("memory"))
        frames["allocations"] = allocations.of_nsys(table, process, launches)
        return frames

    def _of_known_processes(self, table: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows of processes that have ranges, calls or device work, and the process index of each."""
        known = np.isin(numbers(table, "global_pid") & PROCESS_BITS, self.numbering.gpids)
        table = table if known.all() else table.filter(pa.array(known))
        return table, self.numbering.process_index(numbers(table, "global_pid"))

    def _profiler_overhead(self, table: pa.Table) -> pd.DataFrame:
        start, end = numbers(table, "start_ns"), numbers(table, "end_ns")
        thread = numbers(table, "global_tid")
        known = np.isin(thread, self.numbering.gtids) & (end > start)
        if not known.all():
            table, start, end, thread = table.filter(pa.array(known)), start[known], end[known], thread[known]
        name = self.strings.by_number(numbers(table, "name"), without_paths)
        return typed_frame(OVERHEAD_DTYPES, {
            "thread_index": self.numbering.thread_index(thread), "name_id": name,
            "overhead_type": numbers(table, "overhead_type"), "start_ns": start, "end_ns": end,
        })  # fmt: skip

    def _graph_nodes(self, table: pa.Table) -> pd.DataFrame:
        thread = self.numbering.thread_index(numbers(table, "global_tid"))
        return pd.DataFrame(
            {
                "graph_node_id": no_sentinel(numbers(table, "graph_node_id")),
                "original_graph_node_id": no_sentinel(numbers(table, "original_graph_node_id")),
                "process_index": self.numbering.process_of_thread[thread],
                "thread_index": thread,
                "start_ns": numbers(table, "start_ns"),
            }
        )
