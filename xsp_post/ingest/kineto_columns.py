"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): events → columns, piece by piece.

What is wanted of each event goes into typed columns and the event is dropped, so that a trace of a gigabyte never
stands in memory as objects.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.ingest import interning, trace_events
from xsp_post.ingest.allocations import addresses
from xsp_post.ingest.interning import StringTable, int_column
from xsp_post.ingest.kineto_categories import (
    ACTIVITY_KINDS,
    ANNOTATION_PREFIXES,
    LAUNCH_CLASSES,
    SPAN_KINDS,
    canonical,
)
from xsp_post.ingest.kineto_waits import frame_text
from xsp_post.model.trace import MemoryKind, SpanKind, memory_kinds

# The same numbers as CUPTI and nsys (ENUM_CUDA_MEMCPY_OPER).
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9,
               "PtoP": 10}  # fmt: skip
_MEMORY_KINDS = {kind.name.replace("_", " "): int(kind) for kind in MemoryKind}
_SIDES = re.compile(r"\((.+) -> (.+)\)")
MODULE_PREFIX = "nn.Module: "
_NO_CORRELATION = 0

Event = trace_events.Event


class Collector:
    """Columns of the wanted events, piece by piece; the events themselves are dropped with their piece."""

    def __init__(self, *, with_frames: bool = True) -> None:
        self.strings = StringTable()
        self.with_frames = with_frames  # whether Python frames other than modules are wanted
        self.synchronizations: list[pd.DataFrame] = []
        self.overheads: list[pd.DataFrame] = []
        self.frames: list[pd.DataFrame] = []
        self.spans: list[pd.DataFrame] = []
        self.launches: list[pd.DataFrame] = []
        self.activities: list[pd.DataFrame] = []
        self.allocations: list[pd.DataFrame] = []
        self.labels: dict[tuple[str, int, int], str] = {}  # (process_name or thread_name, pid, tid) → name
        self.left_out: Counter[str] = Counter()
        self.not_understood: Counter[str] = Counter()  # by category
        self.unreadable_count = 0
        self._row = 0

    def add(self, events: list[Event]) -> None:
        """Take over one piece of the event list."""
        category = np.array([str(event.get("cat") or event.get("ph") or "") for event in events], dtype=object)
        codes, names = pd.factorize(category)
        wanted = {
            **dict.fromkeys(SPAN_KINDS, self._add_spans),
            **dict.fromkeys(LAUNCH_CLASSES, self._add_launches),
            **dict.fromkeys(ACTIVITY_KINDS, self._add_activities),
            "cpu_instant_event": self._add_allocations,
            "cuda_sync": self._add_synchronizations,
            "overhead": self._add_overheads,
        }
        for code, name in enumerate(names):
            rows = np.flatnonzero(codes == code)
            group = [events[row] for row in rows]
            meant = canonical(name)
            if name == "M":
                self._add_labels(group)
            elif meant in wanted:
                wanted[meant](meant, group, rows + self._row)
            elif not meant:
                self.not_understood[name] += len(group)
            else:
                self.left_out[name] += len(group)
        self._row += len(events)

    def _add_labels(self, events: list[Event]) -> None:
        """Names of processes (tid −1) and threads; the first of each stays."""
        for event in events:
            what, pid, tid = event.get("name"), event.get("pid"), event.get("tid")
            if what not in ("process_name", "thread_name") or not isinstance(pid, int):
                continue
            tid = tid if what == "thread_name" and isinstance(tid, int) else -1
            self.labels.setdefault((str(what), pid, tid), _text(arguments_of(event).get("name")))

    def _add_spans(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        if category == "python_function":
            is_module = np.array([str(event.get("name")).startswith(MODULE_PREFIX) for event in events], dtype=bool)
            if self.with_frames and not is_module.all():
                others = np.flatnonzero(~is_module)
                self._add_frames([events[k] for k in others.tolist()], rows[others])
            rows = rows[is_module]
            events = [event for event, keep in zip(events, is_module) if keep]
        frame = self._timed(events, rows)
        frame["kind"] = int(SPAN_KINDS[category])
        frame["external_id"] = _arguments(events, "External id")
        if category == "cpu_op":
            frame["sequence"] = _arguments(events, "Sequence number")
            frame["forward_thread_id"] = _arguments(events, "Fwd thread id")
            frame["shape_id"] = self.strings.add([_shape_text(arguments_of(event)) for event in events])
            if self.with_frames:  # all that a table may want; the printed tree does not
                frame["arguments_id"] = self.strings.add([_arguments_text(arguments_of(event)) for event in events])
            if any(event.get("name") == _COMMUNICATION for event in events):
                sizes = np.array([_message(event) for event in events], float)
                frame["message_bytes"], frame["group_size"] = sizes[:, 0], sizes[:, 1]
            is_range = np.array([str(event.get("name")).startswith(ANNOTATION_PREFIXES) for event in events], bool)
            frame.loc[is_range, "kind"] = int(SpanKind.ANNOTATION)
        self._keep(self.spans, frame)

    def _add_launches(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        frame = self._timed(events, rows)
        frame["api_class"] = LAUNCH_CLASSES[category]
        frame["correlation_id"] = _arguments(events, "correlation")
        kernels = [arguments_of(event).get("kernel") for event in events]
        if any(kernels):  # ROCm names the kernel in the launch call: all there is of one recorded into a graph
            frame["kernel_name_id"] = self.strings.add([str(name) if name else None for name in kernels])
        self._keep(self.launches, frame)

    def _add_activities(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        frame = self._timed(events, rows)
        frame["kind"] = int(ACTIVITY_KINDS[category])
        frame["short_name_id"] = self._short_names(frame["name_id"].to_numpy(), category)
        frame["correlation_id"] = _arguments(events, "correlation", _NO_CORRELATION)
        for column, key in (("device_id", "device"), ("context_id", "context"), ("stream_id", "stream"),
                            ("bytes", "bytes"), ("registers_per_thread", "registers per thread"),
                            ("dynamic_shared_memory_bytes", "shared memory"), ("graph_id", "graph id"),
                            ("graph_node_id", "graph node id")):  # fmt: skip
            frame[column] = _arguments(events, key, 0)
        if category == "kernel":
            for key in ("grid", "block"):
                sizes = [_triple(arguments_of(event).get(key)) for event in events]
                frame[[f"{key}_{axis}" for axis in "xyz"]] = np.array(sizes, dtype=np.int64).reshape(-1, 3)
        if category == "gpu_memcpy":
            names = [str(event.get("name")) for event in events]
            kinds = np.array([_copy_kind(name) for name in names], np.int64)
            sides = np.array([_memory_sides(name) for name in names], np.int64).reshape(-1, 2)
            frame["copy_kind"], frame["memory_kind"] = kinds, memory_kinds(kinds, sides[:, 0], sides[:, 1])
        self._keep(self.activities, frame)

    def _add_allocations(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        is_memory = [event.get("name") == "[memory]" for event in events]
        self.left_out[category] += is_memory.count(False)
        kept = [event for event, keep in zip(events, is_memory) if keep]
        frame = self._timed(kept, rows[np.array(is_memory, dtype=bool)])
        frame["bytes"] = _arguments(kept, "Bytes", 0)
        if self.with_frames:
            frame["address"] = addresses([arguments_of(event).get("Addr") for event in kept])
            for column, key in (("device_type", "Device Type"), ("device_id", "Device Id"),
                                ("total_bytes", "Total Allocated"), ("reserved_bytes", "Total Reserved")):  # fmt: skip
                frame[column] = _arguments(kept, key)
        self._keep(self.allocations, frame)

    def _add_synchronizations(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        frame = self._timed(events, rows)
        frame["correlation_id"] = _arguments(events, "correlation")
        for column, key in (("device_id", "device"), ("context_id", "context"), ("stream_id", "stream"),
                            ("event_id", "wait_on_cuda_event_id"),
                            ("event_record_correlation_id", "wait_on_cuda_event_record_corr_id")):  # fmt: skip
            frame[column] = _arguments(events, key)
        self._keep(self.synchronizations, frame)

    def _add_overheads(self, category: str, events: list[Event], rows: np.ndarray) -> None:
        self._keep(self.overheads, self._timed(events, rows))

    def _add_frames(self, events: list[Event], rows: np.ndarray) -> None:
        for event in events:  # each is dropped after this: its text is made harmless where it lies
            event["name"] = frame_text(str(event.get("name")))
        self._keep(self.frames, self._timed(events, rows))

    def _timed(self, events: list[Event], rows: np.ndarray) -> pd.DataFrame:
        """name, process, thread, start and end of events; `is_readable` marks those with usable times."""
        start_ns, start_readable = trace_events.nanoseconds([event.get("ts") for event in events])
        is_open = np.array(["dur" not in event for event in events], dtype=bool)
        duration_ns, readable = trace_events.nanoseconds([event.get("dur", 0) for event in events])
        end_ns = start_ns + duration_ns
        return pd.DataFrame({
            "name_id": self.strings.add([_text(event.get("name")) for event in events]),
            "process_id": int_column([event.get("pid") for event in events]),
            "thread_id": int_column([event.get("tid") for event in events]),
            "start_ns": start_ns,
            "end_ns": end_ns,
            "source_row_id": rows.astype(np.int64),
            "is_open": is_open,
            "is_readable": start_readable & readable & (end_ns >= start_ns),
        })  # fmt: skip

    def _keep(self, frames: list[pd.DataFrame], frame: pd.DataFrame) -> None:
        readable = frame.pop("is_readable").to_numpy()
        self.unreadable_count += int((~readable).sum())
        if readable.any():
            frames.append(frame[readable])

    def _short_names(self, name_ids: np.ndarray, category: str) -> np.ndarray:
        if category != "kernel":
            return name_ids
        unique, inverse = np.unique(name_ids, return_inverse=True)
        texts = self.strings.array()[unique]
        return self.strings.add([interning.short_kernel_name(text) for text in texts])[inverse]


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return "" if value is None else str(value)


def arguments_of(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _arguments(events: list[Event], key: str, default: int = -1) -> np.ndarray:
    return int_column([arguments_of(event).get(key, default) for event in events], default)


def _shape_text(args: dict[str, Any]) -> str | None:
    """Sizes of the inputs as emit_nvtx writes them, e.g. ``[[8, 3], []]``; None where no input has any."""
    sizes = args.get("Input Dims", args.get("Input dims"))  # the second until 1.10
    return str(sizes) if isinstance(sizes, list) and any(sizes) else None


_ARGUMENTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_MESSAGE = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size")
_LONGEST_ARGUMENTS = 20_000  # characters; equal ones are kept once, different ones need not be many


def _arguments_text(args: dict[str, Any]) -> str | None:
    """What the operator was given, as `work.signature` reads it; None where sizes were not recorded."""
    message = {key: args[key] for key in _MESSAGE if key in args}
    if not message and not isinstance(args.get("Input Dims"), list):
        return None
    record: list[Any] = [args.get(key, []) for key in _ARGUMENTS]
    text = json.dumps([*record, message] if message else record, separators=(",", ":"))
    return text if len(text) <= _LONGEST_ARGUMENTS else None


_COMMUNICATION = "record_param_comms"  # the operator around the launch of a collective
_ELEMENT_BYTES = {
    "Float": 4, "Int": 4, "UInt32": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Double": 8, "Long": 8, "UInt64": 8,
    "ComplexFloat": 8, "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip


def _message(event: Event) -> tuple[float, float]:
    """Bytes of a collective's message (the larger side) and ranks of its group; NaN where the event has none."""
    unknown = float("nan")
    if event.get("name") != _COMMUNICATION:
        return unknown, unknown
    args = arguments_of(event)
    counts = [args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    known = [count for count in counts if type(count) is int and 0 <= count < 1 << 50]
    width = _ELEMENT_BYTES.get(str(args.get("dtype")))
    group = args.get("Group size")
    size = float(max(known) * width) if known and width else unknown
    return size, float(group) if type(group) is int and 0 < group < 1 << 31 else unknown


def _triple(value: Any) -> tuple[int, int, int]:
    if isinstance(value, list) and len(value) == 3 and all(type(item) is int and 0 <= item < 2**31 for item in value):
        return (value[0], value[1], value[2])
    return (0, 0, 0)


def _copy_kind(name: str) -> int:
    """``Memcpy HtoD (Pageable -> Device)`` → 1."""
    words = name.split(" ", 2)
    return _COPY_KINDS.get(words[1], 0) if len(words) > 1 else 0


def _memory_sides(name: str) -> tuple[int, int]:
    """``Memcpy HtoD (Pageable -> Device)`` → the `MemoryKind` of source and target."""
    found = _SIDES.search(name)
    source, target = found.groups() if found else ("", "")
    return _MEMORY_KINDS.get(source.upper(), 0), _MEMORY_KINDS.get(target.upper(), 0)
