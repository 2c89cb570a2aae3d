"""``ingest``: an MLModelScope / XSP trace in Jaeger's JSON → ``Trace`` (and its counters → ``CounterReport``).

Spans carry their level (``trace_level``, MLModelScope's tracer): application, model and framework spans become ranges,
launches and kernels are joined by the tag ``correlation_id``, metrics sit in the logs of the launches. The trace
names no host thread, so each Jaeger process is one thread; containment decides, as in XSP. The framework's spans
may be on another clock than the launches: they are shifted (`clock_offset`), and a finding says by how much.
"""

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.ingest import clock_offset, interning, json_text, json_times
from xsp_post.ingest.interning import StringTable, int_column, launch_sizes, short_kernel_name
from xsp_post.ingest.kineto_columns import COPY_KINDS, NO_CORRELATION
from xsp_post.model.counters import ACTION_DTYPES, CounterReport
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Provenance, SpanKind, Trace

_ACTIVITIES = {
    "gpu_kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET,
    "gpu_graph": ActivityKind.GRAPH,
}  # fmt: skip
_LAUNCH_NAMES = frozenset({"cuda_launch", "launch_kernel"})
_DEVICE_LEVELS = frozenset({"SYSTEM_LIBRARY_TRACE", "HARDWARE_TRACE"})
_METRIC_NAME = re.compile(r"[a-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|[a-z]+__[\w.]+")


def read_source(path: Path) -> tuple[Trace, CounterReport | None]:
    """Read one trace file; times are ns since 1970. Raises CaptureError when it is damaged or empty.

    ``attributes`` has ``level`` (a name of `levels.Level`: what the trace itself says), ``layer_type``,
    ``layer_sequence_index`` and ``shape_text`` per span. ``provenance.clock_offset_ns`` is what was added to the
    framework spans. The report holds metrics logged on the launches (``flop_count_sp`` …); None without any.
    """
    spans = _spans_of(path)
    return _Assembly(spans).trace(path.name), _counters(spans, path.name)


def _spans_of(path: Path) -> pd.DataFrame:
    """All spans: name, process, parent, times, tags (dict), logs (list), in the file's order."""
    try:
        with json_text.open_text(path) as stream:
            document = json_text.Decoder(path).decode(stream.read())
    except json.JSONDecodeError as error:
        raise CaptureError(
            f"{path}: is not readable as JSON ({error.msg} at character {error.pos})", code="jaeger-unreadable"
        ) from error
    except (EOFError, zlib.error, OSError) as error:
        why = getattr(error, "strerror", None) or "its compressed data is cut short or damaged"
        raise CaptureError(f"{path}: cannot be read ({why})", code="jaeger-unreadable") from error
    traces = document.get("data") if isinstance(document, dict) else None
    rows = [
        _row(number, span, trace.get("processes"))
        for number, trace in enumerate(traces if isinstance(traces, list) else [])
        if isinstance(trace, dict) and isinstance(trace.get("spans"), list)
        for span in trace["spans"]
        if isinstance(span, dict)
    ]
    if not rows:
        raise CaptureError(f"{path}: holds no span of a Jaeger trace.", code="jaeger-unreadable")
    columns = ["name", "process", "service", "process_id", "thread_id", "span_key", "parent_key", "start_us",
               "duration_us", "tags", "logs"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _row(number: int, span: dict[str, Any], processes: Any) -> tuple[Any, ...]:
    references = [r for r in _list(span.get("references")) if isinstance(r, dict) and r.get("refType") == "CHILD_OF"]
    parent = str(references[0].get("spanID")) if references else str(span.get("parentSpanID") or "")
    process = str(span.get("processID", ""))
    service = processes.get(process) if isinstance(processes, dict) else None
    name = str(service.get("serviceName", "")) if isinstance(service, dict) else ""
    return (str(span.get("operationName", "")), f"{number}/{process}", name, *_host_ids(service),
            f"{number}/{span.get('spanID')}", f"{number}/{parent}" if parent else "", span.get("startTime"),
            span.get("duration", 0), _tags(span), _list(span.get("logs")))  # fmt: skip


def _host_ids(service: Any) -> tuple[int, int]:
    """Process and thread that a Jaeger process stands for, where it says so (our own exporter); −1 unknown."""
    found = _tags(service)
    ids = (found.get("process_id"), found.get("thread_id", -1))
    if all(isinstance(i, int) and not isinstance(i, bool) and -1 <= i < 2**63 for i in ids):
        return ids  # type: ignore[return-value]
    return -1, -1


def _tags(holder: Any) -> dict[str, Any]:
    """What a span or a process says of itself, by key."""
    listed = _list(holder.get("tags")) if isinstance(holder, dict) else []
    return {one["key"]: one.get("value") for one in listed if isinstance(one, dict) and isinstance(one.get("key"), str)}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _tag(spans: pd.DataFrame, *keys: str) -> list[Any]:
    """Value of the first of these tags per span, None where it has none."""
    return [next((tags[key] for key in keys if key in tags), None) for tags in spans["tags"]]


class _Assembly:
    """Jaeger spans as the frames of a Trace."""

    def __init__(self, spans: pd.DataFrame) -> None:
        self.findings: list[Finding] = []
        self.strings = StringTable()
        start_ns, readable = json_times.nanoseconds(spans["start_us"].tolist())
        duration_ns, also_readable = json_times.nanoseconds(spans["duration_us"].tolist())
        # our own exporter keeps nanoseconds in tags: Jaeger itself knows whole microseconds
        start_ns = int_column([tags.get("start_ns", start) for tags, start in zip(spans["tags"], start_ns.tolist())])
        duration_ns = int_column([t.get("duration_ns", d) for t, d in zip(spans["tags"], duration_ns.tolist())])
        spans = spans.assign(start_ns=start_ns, end_ns=start_ns + np.maximum(duration_ns, 0))
        readable &= also_readable & (spans["end_ns"] >= start_ns).to_numpy()  # an overflow is not a time
        spans["trace_level"] = [str(level or "").upper() for level in _tag(spans, "trace_level")]
        # one thread per Jaeger process; several are threads of one process where they name it
        spans["thread_index"] = pd.factorize(spans["process"])[0].astype(np.int32)
        owner = np.where(spans["process_id"] >= 0, "pid " + spans["process_id"].astype(str), spans["process"])
        spans["process_index"] = pd.factorize(owner)[0].astype(np.int32)
        spans["correlation_id"] = int_column(_tag(spans, "correlation_id"), NO_CORRELATION)
        is_device = spans["trace_level"].isin(_DEVICE_LEVELS)
        is_activity = spans["name"].isin(_ACTIVITIES) & is_device
        is_launch = is_device & ~is_activity & (spans["correlation_id"] != NO_CORRELATION)
        # nodes that xsp-post made up for its own tree come back from the kernels
        is_synthetic = np.array([level == "CAPTURE" for level in _tag(spans, "xsp_level")], dtype=bool)
        usable = readable & ~is_synthetic
        left_out = (is_device & ~is_activity & ~is_launch) | ~readable
        self.findings += if_any("jaeger-spans-left-out", left_out.to_numpy(), lambda row: spans["name"].iloc[row])
        self.all = spans
        self.ranges = spans[usable & ~is_device].copy()
        self.launches = spans[usable & is_launch]
        self.activities = spans[usable & is_activity]
        self.shift_ns = 0

    def trace(self, source_name: str) -> Trace:
        """Everything joined, shifted and typed."""
        self.ranges["level"] = self._levels()
        self._agree_on_a_clock()
        self.ranges = self.ranges.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
        self.ranges = self.ranges.reset_index(drop=False, names="source_row_id")
        processes, threads = self._processes()
        devices = self._devices()
        spans, launches, activities = self._spans(), self._launch_frame(), self._activity_frame()
        return Trace(
            provenance=self._provenance(source_name, devices), strings=self.strings.array(), spans=spans,
            launches=launches, activities=activities, processes=processes, threads=threads, devices=devices,
            attributes=self._attributes(), findings=self.findings,
        )  # fmt: skip

    def _levels(self) -> np.ndarray:
        """The level each range says it has, as a name of `Level`; the model is what holds the layers."""
        said = self.ranges["trace_level"].to_numpy()
        exact = np.array([str(level or "") for level in _tag(self.ranges, "xsp_level")], dtype=object)
        if (exact != "").any():
            return np.where(exact != "", exact, Level.APPLICATION.name)
        is_layer, is_model = said == "FRAMEWORK_TRACE", said == "MODEL_TRACE"
        level = np.full(len(said), Level.APPLICATION.name, dtype=object)
        level[is_layer] = Level.LAYER.name
        level[np.isin(said, ["ML_LIBRARY_TRACE", "LIBRARY_TRACE"])] = Level.LIBRARY.name
        holds_layers = self.ranges["span_key"].isin(self.ranges.loc[is_layer, "parent_key"]).to_numpy()
        if not is_layer.any() or (holds_layers & is_model).any():
            level[is_model] = Level.MODEL.name
            return level
        executions = holds_layers & ~is_layer
        level[executions] = Level.MODEL.name
        inside = self.ranges["parent_key"].isin(self.ranges.loc[executions, "span_key"]).to_numpy()
        level[inside & ~is_layer] = Level.OPERATION.name
        deeper = self.ranges["parent_key"].isin(self.ranges.loc[inside & ~is_layer, "span_key"]).to_numpy()
        level[deeper] = Level.OPERATION.name
        name_of = self.ranges["name"].iloc.__getitem__
        self.findings += if_any("jaeger-model-span-misses-layers", executions, name_of)
        return level

    def _agree_on_a_clock(self) -> None:
        """Shift the layers (and what lies below them) onto the clock of the launches."""
        moves = self.ranges["trace_level"].isin(["FRAMEWORK_TRACE", "ML_LIBRARY_TRACE", "LIBRARY_TRACE"])
        kernels = set(self.activities.loc[self.activities["name"] == "gpu_kernel", "correlation_id"])
        launches = self.launches[self.launches["correlation_id"].isin(kernels)]
        layers = self.ranges[moves]
        found = clock_offset.estimate(
            layers["start_ns"].to_numpy(), layers["end_ns"].to_numpy(),
            launches["start_ns"].to_numpy(), launches["end_ns"].to_numpy(),
        )  # fmt: skip
        self.shift_ns = found.shift_ns
        counts = f"{found.contained_before_count} of {found.launch_count} launches lie in a layer"
        if not found.is_certain:
            self.findings.append(finding("clock-offset-unknown", count=found.launch_count, example=counts))
        if found.shift_ns == 0:
            return
        self.ranges.loc[moves, ["start_ns", "end_ns"]] += found.shift_ns
        example = (
            f"layers moved by {found.shift_ns / 1000:+.1f} µs (any shift from {found.low_ns / 1000:.1f} to "
            f"{found.high_ns / 1000:.1f} µs serves); before it {counts}, after it {found.contained_count}"
        )
        self.findings.append(finding("clocks-differ", count=int(moves.sum()), example=example))

    def _spans(self) -> pd.DataFrame:
        ranges = self.ranges
        kinds = {Level.LAYER.name: SpanKind.OPERATOR, Level.LIBRARY.name: SpanKind.LIBRARY}
        frame = ranges[["process_index", "thread_index", "start_ns", "end_ns", "source_row_id"]].assign(
            kind=[int(kinds.get(level, SpanKind.ANNOTATION)) for level in ranges["level"]],
            domain_index=-1,
            name_id=self.strings.add(ranges["name"].to_numpy(dtype=object)),
        )
        return interning.conform(frame, interning.SPAN_DTYPES)

    def _launch_frame(self) -> pd.DataFrame:
        launches = self.launches
        names = [function or name for function, name in zip(_tag(launches, "function_name"), launches["name"])]
        domains = [str(domain or "") for domain in _tag(launches, "cupti_domain")]
        frame = launches[["process_index", "thread_index", "correlation_id", "start_ns", "end_ns"]].assign(
            name_id=self.strings.add(names), api_class=[int("DRIVER" in domain) for domain in domains]
        )
        return interning.conform(frame.reset_index(drop=True), interning.LAUNCH_DTYPES)

    def _activity_frame(self) -> pd.DataFrame:
        rows = self.activities.sort_values("start_ns", kind="stable")
        kinds = np.array([int(_ACTIVITIES[name]) for name in rows["name"]], dtype=np.int8)
        copies = [str(kind or "") for kind in _tag(rows, "copy_kind")]
        titles = [
            str(title) if title else (f"[CUDA {name.removeprefix('gpu_')} {copy}]".replace(" ]", "]"))
            for title, name, copy in zip(_tag(rows, "name", "kernel"), rows["name"], copies)
        ]
        frame = rows[["process_index", "correlation_id", "start_ns", "end_ns"]].assign(
            kind=kinds,
            name_id=self.strings.add(titles),
            short_name_id=self.strings.add(
                [short_kernel_name(one) if kind == ActivityKind.KERNEL else one for one, kind in zip(titles, kinds)]
            ),
            copy_kind=[COPY_KINDS.get(copy, 0) for copy in copies],
        )
        for column in ("device_id", "context_id", "stream_id", "bytes", "registers_per_thread"):
            frame[column] = int_column(_tag(rows, column), 0)
        for kind in ("static", "dynamic"):
            sizes = _tag(rows, f"{kind}_sharedMemory", f"{kind}_shared_memory")
            frame[f"{kind}_shared_memory_bytes"] = int_column(sizes, 0)
        for key in ("grid", "block"):
            frame = frame.assign(**launch_sizes(key, _tag(rows, f"{key}_dim")))
        return interning.conform(frame.reset_index(drop=True), interning.ACTIVITY_DTYPES)

    def _attributes(self) -> pd.DataFrame:
        ranges = self.ranges
        is_layer = (ranges["level"] == Level.LAYER.name).to_numpy()
        types = [
            str(stated or (name if layer else ""))
            for stated, name, layer in zip(_tag(ranges, "layer_type", "op_name"), ranges["name"], is_layer)
        ]
        columns = {
            "level": pd.Categorical(ranges["level"]),
            "layer_type": pd.Categorical(types),
            "shape_text": pd.Categorical([str(shape or "") for shape in _tag(ranges, "shape_text", "shape")]),
            "layer_sequence_index": int_column(_tag(ranges, "layer_sequence_index")),
            "batch_size": int_column(_tag(ranges, "batch_size")),
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(len(ranges)))

    def _processes(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Processes and threads with the ids the trace tells, else numbered from 1, one thread each."""
        first = self.all.drop_duplicates("process_index").sort_values("process_index")
        numbers = _known_or_numbered(first["process_id"].to_numpy())
        processes = pd.DataFrame({
            "process_id": numbers, "global_id": np.arange(1, len(first) + 1, dtype=np.int64),
            "name": first["service"].to_numpy(dtype=object), "rank": np.full(len(first), -1, dtype=np.int32),
        })  # fmt: skip
        first = self.all.drop_duplicates("thread_index").sort_values("thread_index")
        known = np.where(first["process_id"] >= 0, first["thread_id"], -1)
        threads = pd.DataFrame({
            "process_index": first["process_index"].to_numpy(dtype=np.int32), "thread_id": _known_or_numbered(known),
            "name": np.full(len(first), "", dtype=object),
        })  # fmt: skip
        return processes, threads

    def _devices(self) -> pd.DataFrame:
        used = self.activities.assign(device_id=int_column(_tag(self.activities, "device_id"), 0))
        used = used[["process_index", "device_id"]].drop_duplicates().sort_values(["process_index", "device_id"])
        gpu_name = next((str(name) for name in _tag(self.all, "gpu", "gpu_name") if name), "")
        return used.reset_index(drop=True).astype(np.int32).assign(
            gpu_index=used["device_id"].to_numpy(), gpu_name=gpu_name
        )  # fmt: skip

    def _provenance(self, source_name: str, devices: pd.DataFrame) -> Provenance:
        def stated(*keys: str) -> str:
            return next((str(value) for value in _tag(self.all, *keys) if value), "")

        framework = f"{stated('framework_name')} {stated('framework_version')}".strip()
        first_ns = int(self.all["start_ns"].min())
        return Provenance(
            source_name, "jaeger", batch_size=int(int_column([stated("batch_size") or -1])[0]),
            workload_name=stated("model_name"), framework=framework, session_start_utc_ns=first_ns,
            gpu_name=str(devices["gpu_name"].iloc[0]) if len(devices) else "", clock_offset_ns=self.shift_ns,
        )  # fmt: skip


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _counters(spans: pd.DataFrame, report_name: str) -> CounterReport | None:
    """Numeric log fields of launch spans, joined to their kernels by correlation id."""
    launches = spans[spans["name"].isin(_LAUNCH_NAMES)].reset_index(drop=True)
    rows = [
        (number, str(field["key"]), value)
        for number, logs in enumerate(launches["logs"])
        for log in logs if isinstance(log, dict)
        for field in _list(log.get("fields")) if isinstance(field, dict) and isinstance(field.get("key"), str)
        for value in [_number(field.get("value"))]
        if _METRIC_NAME.fullmatch(field["key"]) and np.isfinite(value)
    ]  # fmt: skip
    if not rows:
        return None
    metrics = pd.DataFrame(rows, columns=["action_id", "metric_name", "value"])
    units = ["flop" if "flop" in name else "byte" if name.endswith("_bytes") else "" for name in metrics["metric_name"]]
    metrics = metrics.assign(unit=units).astype({"value": "float64", "metric_name": "category", "unit": "category"})
    names = [str(name or "") for name in _tag(launches, "kernel", "name")]
    columns: dict[str, Any] = {
        "name": names, "short_name": [short_kernel_name(name) for name in names], "workload_type": "kernel",
        "correlation_id": int_column(_tag(launches, "correlation_id")),
        **launch_sizes("grid", _tag(launches, "grid_dim")), **launch_sizes("block", _tag(launches, "block_dim")),
    }  # fmt: skip
    actions = pd.DataFrame(columns, index=pd.RangeIndex(len(launches)))
    for column, dtype in ACTION_DTYPES.items():
        if column not in actions:
            actions[column] = "" if dtype == "object" else -1
    return CounterReport(report_name, "jaeger", actions[list(ACTION_DTYPES)].astype(ACTION_DTYPES), metrics)


def _known_or_numbered(ids: np.ndarray) -> np.ndarray:
    """Ids as they are, −1 replaced by 1, 2, … in order."""
    return np.where(ids >= 0, ids, np.arange(1, len(ids) + 1)).astype(np.int64)
