"""Writes real nsys exports from a few readable lines: a test states a capture and what must come out.

    ExportBuilder().process(100).thread(100).range("model#0", 0, 1000, domain="xsp") \\
        .kernel("gemm", launch=(10, 15), run=(20, 120)).write(tmp_path / "report.sqlite")

Times are ns since the session's start, as nsys writes them. The current process and thread (`process`,
`thread`) are where the rows after them belong; rows keep the order they were written in. Nothing is
checked: what a capture must never hold is just what the tests want to write.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from export_rows import ExportRows, Text
from export_schema import A100, GRAPH, KERNEL, MEMCPY, MEMSET, PRODUCTS, RUNTIME, UNVERSIONED, version_key

if TYPE_CHECKING:
    from typing_extensions import Self

Interval: TypeAlias = tuple[int, int]

EVENT_MARK, EVENT_PUSH_POP, EVENT_START_END, EVENT_DOMAIN = 34, 59, 60, 75
CLASS_RUNTIME, CLASS_DRIVER, CLASS_CUDABACKTRACE = 0, 1, 67
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MODULE_LOADING, LAZY_LOADING = 6, 7  # overheadType


def global_id(process_id: int, thread_id: int = 0) -> int:
    """HW:8 | VM:8 | PID:24 | TID:24, with hardware 0 and VM 1 as in the captures seen."""
    return (1 << 48) | (process_id << 24) | thread_id


class ExportBuilder(ExportRows):
    """Collects the rows of one export; `write`, `write_parquetdir`, `write_arrowdir` make the files.

    schema: an nsys schema version or ``"unversioned"``. lazy: leave empty tables out, as nsys does by
    default. interned: write range texts to StringIds (registered strings) instead of inline.
    """

    def __init__(self, schema: str = "3.25.0", *, lazy: bool = True, interned: bool = False) -> None:
        super().__init__(schema, lazy=lazy)
        self.interned = interned
        self.process_id, self.thread_id = 100, 100
        self.last_correlation = 0
        self._correlations: Counter[int] = Counter()
        self._domains: dict[tuple[int, str], int] = {}
        self._range_handle = 0
        self._write_meta_tables()

    # -- where the next rows belong ------------------------------------------------------------------

    def process(self, pid: int, name: str = "python3") -> Self:
        """Make `pid` the current process (its main thread the current thread)."""
        self.process_id = self.thread_id = pid
        if "PROCESSES" in self.tables and all(row["pid"] != pid for row in self.rows["PROCESSES"]):
            self._put("PROCESSES", globalPid=global_id(pid), pid=pid, name=name)
        return self

    def thread(self, tid: int, name: str = "") -> Self:
        """Make `tid` the current thread of the current process; a name is written to ThreadNames."""
        self.thread_id = tid
        if name:
            self._put("ThreadNames", nameId=self.string(name), globalTid=self._tid)
        return self

    @property
    def _pid(self) -> int:
        return global_id(self.process_id)

    @property
    def _tid(self) -> int:
        return global_id(self.process_id, self.thread_id)

    # -- NVTX ----------------------------------------------------------------------------------------

    def domain(self, name: Text, *, at: int = 0, domain_id: int | None = None) -> Self:
        """An NVTX domain of the current process, named by an event-type-75 row."""
        key = (self.process_id, name if isinstance(name, str) else name.decode("latin-1"))
        self._domains[key] = domain_id or 1 + sum(process == self.process_id for process, _ in self._domains)
        self._put(
            "NVTX_EVENTS", start=at, eventType=EVENT_DOMAIN, text=name, globalTid=self._tid, domainId=self._domains[key]
        )
        return self

    def _domain_id(self, domain: str | int) -> int:
        """0 for the default domain, a number as it is (no name row), a name's number (named on first use)."""
        if isinstance(domain, int):
            return domain
        if not domain:
            return 0
        if (self.process_id, domain) not in self._domains:
            self.domain(domain)
        return self._domains[self.process_id, domain]

    def range(
        self,
        text: Text,
        start: int,
        end: int | None,
        *,
        domain: str | int = "",
        interned: bool | None = None,
        **columns: Any,
    ) -> Self:
        """A push/pop range on the current thread; end None: never closed; columns: raw ones."""
        return self._event(EVENT_PUSH_POP, text, start, end, domain, interned, columns)

    def start_end(
        self,
        text: Text,
        start: int,
        end: int | None,
        *,
        domain: str | int = "",
        interned: bool | None = None,
        **columns: Any,
    ) -> Self:
        """A start/end range opened on the current thread; may overlap others partially."""
        self._range_handle += 1
        return self._event(
            EVENT_START_END, text, start, end, domain, interned, {"rangeId": self._range_handle} | columns
        )

    def cross_thread(
        self, text: Text, start: int, end: int, *, end_thread: int, domain: str | int = "", **columns: Any
    ) -> Self:
        """A start/end range that another thread of the process closed."""
        other = {"endGlobalTid": global_id(self.process_id, end_thread)}
        return self.start_end(text, start, end, domain=domain, **other, **columns)

    def mark(self, text: Text, at: int, *, domain: str | int = "") -> Self:
        """An instant."""
        return self._event(EVENT_MARK, text, at, None, domain, None, {})

    def _event(
        self,
        kind: int,
        text: Text,
        start: int,
        end: int | None,
        domain: str | int,
        interned: bool | None,
        columns: dict,
    ) -> Self:
        by_id = self.interned if interned is None else interned
        texts = {"textId": self.string(text)} if by_id else {"text": text}
        domain_id = self._domain_id(domain)
        row = {"start": start, "end": end, "eventType": kind, "globalTid": self._tid, "domainId": domain_id}
        return self._put("NVTX_EVENTS", **(row | texts | columns))

    # -- CUDA ----------------------------------------------------------------------------------------

    def api(
        self,
        name: Text,
        start: int,
        end: int,
        *,
        correlation: int | None = None,
        event_class: int = CLASS_RUNTIME,
        return_value: int = 0,
    ) -> Self:
        """An API call of the current thread; without `correlation` it gets the process's next number."""
        if correlation is None:
            self._correlations[self.process_id] += 1
            correlation = self._correlations[self.process_id]
        self.last_correlation = correlation
        return self._put(
            RUNTIME,
            start=start,
            end=end,
            eventClass=event_class,
            globalTid=self._tid,
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=return_value,
        )

    def duplicate_api(self, name: Text, start: int, end: int, *, event_class: int = CLASS_DRIVER) -> Self:
        """A second API row with the last call's correlation id (driver in runtime, CUDABACKTRACE)."""
        return self.api(name, start, end, correlation=self.last_correlation, event_class=event_class)

    def kernel(
        self,
        name: Text,
        *,
        run: Interval,
        launch: Interval | None = None,
        stream: int = 7,
        device: int = 0,
        correlation: int | None = None,
        api: Text = "cudaLaunchKernel_v7000",
        api_class: int = CLASS_RUNTIME,
        short: Text = "",
        grid: tuple[int, int, int] = (80, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1),
        graph_node: int | None = None,
        **columns: Any,
    ) -> Self:
        """A kernel and, with `launch`, the call that launched it.

        Without `launch` it belongs to an existing call (`correlation`) or, by default, to none: an orphan.
        """
        shape = dict(zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), grid + block, strict=True))
        names = {
            "demangledName": self.string(name),
            "shortName": self.string(short or name),
            "mangledName": self.string(short or name),
        }
        return self._activity(
            KERNEL,
            run,
            launch,
            correlation,
            api,
            api_class,
            names | shape | {"streamId": stream, "deviceId": device, "graphNodeId": graph_node} | columns,
        )

    def memcpy(
        self,
        bytes_: int,
        *,
        run: Interval,
        launch: Interval | None = None,
        kind: str | int = "HtoD",
        stream: int = 7,
        device: int = 0,
        correlation: int | None = None,
        api: Text = "cudaMemcpyAsync_v3020",
        **columns: Any,
    ) -> Self:
        """A copy of `bytes_` bytes."""
        copy_kind = COPY_KINDS[kind] if isinstance(kind, str) else kind
        row = {"bytes": bytes_, "copyKind": copy_kind, "streamId": stream, "deviceId": device}
        return self._activity(MEMCPY, run, launch, correlation, api, CLASS_RUNTIME, row | columns)

    def memset(
        self,
        bytes_: int,
        *,
        run: Interval,
        launch: Interval | None = None,
        value: int = 0,
        stream: int = 7,
        device: int = 0,
        correlation: int | None = None,
        api: Text = "cudaMemsetAsync_v3020",
        **columns: Any,
    ) -> Self:
        """A memory set of `bytes_` bytes."""
        row = {"bytes": bytes_, "value": value, "streamId": stream, "deviceId": device}
        return self._activity(MEMSET, run, launch, correlation, api, CLASS_RUNTIME, row | columns)

    def graph_launch(
        self,
        *,
        launch: Interval,
        run: Interval | None,
        graph_id: int = 1,
        exec_id: int = 1,
        stream: int = 7,
        device: int = 0,
    ) -> Self:
        """A CUDA graph launch: with `run` one opaque device row (graph mode), else the call alone."""
        if run is None:
            return self.api("cudaGraphLaunch_v10000", *launch)
        row = {"graphId": graph_id, "graphExecId": exec_id, "streamId": stream, "deviceId": device}
        return self._activity(GRAPH, run, launch, None, "cudaGraphLaunch_v10000", CLASS_RUNTIME, row)

    def graph_node(self, node_id: int, at: int, *, original: int | None = None, end: int | None = None) -> Self:
        """The creation of a graph node on the current thread; `original`: the node it is a clone of."""
        return self._put(
            "CUDA_GRAPH_NODE_EVENTS" if "CUDA_GRAPH_NODE_EVENTS" in self.tables else "CUDA_GRAPH_EVENTS",
            start=at,
            end=at if end is None else end,
            eventClass=77,
            globalTid=self._tid,
            nameId=self.string("cudaGraphKernelNode"),
            graphNodeId=node_id,
            originalGraphNodeId=original,
        )

    def sync(self, name: Text, start: int, end: int, *, device: int = 0) -> Self:
        """A synchronising API call with its SYNCHRONIZATION row."""
        self.api(name, start, end)
        return self._put(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            start=start,
            end=end,
            correlationId=self.last_correlation,
            globalPid=self._pid,
            deviceId=device,
        )

    def _activity(
        self,
        table: str,
        run: Interval,
        launch: Interval | None,
        correlation: int | None,
        api: Text,
        api_class: int,
        columns: dict,
    ) -> Self:
        if launch is not None:
            self.api(api, *launch, correlation=correlation, event_class=api_class)
        elif correlation is None:  # an orphan takes a number that no call has
            self._correlations[self.process_id] += 1
            self.last_correlation = self._correlations[self.process_id]
        else:
            self.last_correlation = correlation
        ids = {"correlationId": self.last_correlation, "globalPid": self._pid}
        return self._put(table, start=run[0], end=run[1], **(ids | columns))

    # -- libraries, overhead, session ----------------------------------------------------------------

    def library(self, name: Text, start: int, end: int, *, table: str = "CUDNN_EVENTS") -> Self:
        """A cuDNN (or, with ``table="CUBLAS_EVENTS"``, cuBLAS) call of the current thread."""
        event_class = 28 if table == "CUDNN_EVENTS" else 29
        return self._put(
            table, start=start, end=end, eventClass=event_class, globalTid=self._tid, nameId=self.string(name)
        )

    def overhead(self, name: Text, start: int, end: int, *, kind: int = MODULE_LOADING) -> Self:
        """A PROFILER_OVERHEAD row, and from 3.24.0 on the CUPTI_ACTIVITY_KIND_OVERHEAD row beside it."""
        row = {"start": start, "end": end, "globalTid": self._tid, "nameId": self.string(name), "overheadType": kind}
        self._put("PROFILER_OVERHEAD", **row)
        if "CUPTI_ACTIVITY_KIND_OVERHEAD" in self.tables:
            self._put("CUPTI_ACTIVITY_KIND_OVERHEAD", eventClass=103, correlationId=0, **row)
        return self

    def os_call(self, name: Text, start: int, end: int) -> Self:
        """A call of the current thread into the operating system."""
        arguments = {"argumentsId": 0} if any(c.name == "argumentsId" for c in self.tables["OSRT_API"]) else {}
        return self._put(
            "OSRT_API",
            **arguments,
            start=start,
            end=end,
            eventClass=27,
            globalTid=self._tid,
            nameId=self.string(name),
            returnValue=0,
            nestingLevel=0,
            callchainId=0,
        )

    def descheduled(self, start: int, end: int) -> Self:
        """The current thread loses its processor and gets one again."""
        for at, is_in in ((start, 0), (end, 1)):
            self._put("SCHED_EVENTS", start=at, cpu=0, isSchedIn=is_in, globalTid=self._tid)
        return self

    def sample(self, name: Text, at: int) -> Self:
        """A sample of the current thread's stack; ``name`` is the innermost frame, with a caller above it."""
        number = len(self.rows["COMPOSITE_EVENTS"]) + 1
        self._put("COMPOSITE_EVENTS", id=number, start=at, cpu=0, globalTid=self._tid, cpuCycles=1)
        for depth, frame in enumerate((name, "caller")):
            self._put(
                "SAMPLING_CALLCHAINS", id=number, symbol=self.string(frame), module=self.string("m"), stackDepth=depth
            )
        return self

    def diagnostic(self, text: Text, *, severity: int = 2, at: int = 0) -> Self:
        """A DIAGNOSTIC_EVENT of the session (1 info, 2 warning, 3 error)."""
        return self._put(
            "DIAGNOSTIC_EVENT",
            timestamp=at,
            timestampType=1,
            source=1,
            severity=severity,
            text=text,
            globalPid=-144115188075855872,
        )

    def gpu(self, gpu_id: int = 0, **columns: Any) -> Self:
        """A GPU (an A100 unless columns say otherwise), as device `gpu_id` of the current process."""
        self._put(
            "TARGET_INFO_GPU",
            **(
                A100
                | {"vmId": 1 << 48, "id": gpu_id, "cuDevice": gpu_id, "busLocation": f"0000:{gpu_id:02x}:00.0"}
                | columns
            ),
        )
        if "TARGET_INFO_CUDA_DEVICE" in self.tables:
            self._put("TARGET_INFO_CUDA_DEVICE", gpuId=gpu_id, cudaId=gpu_id, pid=self.process_id)
        return self

    def environment(self, name: str, value: str) -> Self:
        """A variable of the profiled program's environment: private, must reach no output."""
        return self.capture_meta("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')

    def capture_meta(self, name: str, value: Text | None) -> Self:
        """A META_DATA_CAPTURE row (from 3.4.0 on)."""
        return self._put("META_DATA_CAPTURE", name=name, value=value)

    def export_meta(self, name: str, value: Text | None) -> Self:
        """A META_DATA_EXPORT (EXPORT_META_DATA before 3.4.0) row; replaces the one of that name."""
        table = "META_DATA_EXPORT" if "META_DATA_EXPORT" in self.tables else "EXPORT_META_DATA"
        self.rows[table] = [row for row in self.rows[table] if row["name"] != name]
        return self._put(table, name=name, value=value)

    def _write_meta_tables(self) -> None:
        if self.schema == UNVERSIONED:
            return
        version = version_key(self.schema)
        product = PRODUCTS.get(self.schema, "2026.1.0.0")
        self.export_meta("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems")
        self.export_meta("EXPORT_PRODUCT_VERSION", product)
        self.export_meta("EXPORT_SCHEMA_VERSION", self.schema)
        for part, number in zip(("MAJOR", "MINOR", "MICRO"), version, strict=True):
            self.export_meta(f"EXPORT_SCHEMA_VERSION_{part}", str(number))
        self.export_meta("EXPORT_PARAM_LAZY", str(self.lazy).lower())
        self.export_meta("EXPORT_PARAM_TIMES_TO_EXPORT", "")
        if "META_DATA_CAPTURE" in self.tables:
            self.capture_meta("CAPTURE_EVENT_TYPE", "Cuda").capture_meta("CAPTURE_EVENT_TYPE", "NvtxEvents")
