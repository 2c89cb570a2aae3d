"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): events → columns, piece by piece.

What is wanted of each event goes into typed columns and the event is dropped, so that a trace of a gigabyte never
stands in memory as objects.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec import Raw

from xsp_post.arrays.cutting import distinct
from xsp_post.base.texts import read_blocks
from xsp_post.ingest import collective_messages, kineto_graphs
from xsp_post.ingest.allocations import addresses
from xsp_post.ingest.gpu_samples import column_of
from xsp_post.ingest.interning import Codes, StringTable, int_column, launch_sizes, short_kernel_name
from xsp_post.ingest.json_text import value_of
from xsp_post.ingest.kineto_events import ABSENT, NO_ARGUMENTS, Arguments, Event, TimesOf
from xsp_post.ingest.kineto_threads import frame_text
from xsp_post.ingest.side_files import message, said_entries, said_text
from xsp_post.ingest.side_files.inductor import innermost_place
from xsp_post.model.trace import ActivityKind, MemoryKind, SpanKind, memory_kinds
from xsp_post.work.signature import LONGEST_TEXT

# Categories of events → kinds of rows.
SPAN_KINDS = {"user_annotation": SpanKind.ANNOTATION, "python_function": SpanKind.MODULE, "cpu_op": SpanKind.OPERATOR}
LAUNCH_CLASSES = {"cuda_runtime": 0, "cuda_driver": 1}  # 0: runtime, 1: driver, of whatever vendor
ACTIVITY_KINDS = {"kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET}
_READ = {block.name: block.texts() for block in read_blocks(Path(__file__).with_name("kineto_categories.txt"))}
OTHERS, _SAME_AS, _LAST_WORDS = _READ["others"], _READ["same"], _READ["last words"]
# What only ranges are called that PyTorch 1.8–1.12 wrote as operators.
ANNOTATION_PREFIXES = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)", "xsp/")


def canonical(category: str) -> str:
    """The category as PyTorch calls it today for CUDA, "" for one that is not understood.

    Phases of events without a category (one letter) are understood: they are labels, marks and arrows.
    """
    name = category.lower()
    name = _SAME_AS.get(name, name)
    known = name in SPAN_KINDS or name in LAUNCH_CLASSES or name in ACTIVITY_KINDS or name in OTHERS
    if known or len(name) <= 1:
        return name
    return _LAST_WORDS.get(name.rsplit("_", 1)[-1], "") if "_" in name else ""


# The same numbers as CUPTI and nsys (ENUM_CUDA_MEMCPY_OPER).
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9,
              "PtoP": 10}  # fmt: skip
_MEMORY_KINDS = {kind.name.replace("_", " "): int(kind) for kind in MemoryKind}
_SIDES = re.compile(r"\((.+) -> (.+)\)")
MODULE_PREFIX = "nn.Module: "
NO_CORRELATION = 0
_CATEGORY, _NAME, _COLLECTIVE = attrgetter("cat"), attrgetter("name"), attrgetter("collective")

# column of an activity → where it stands in the arguments
_ACTIVITY_COLUMNS = {
    "device_id": "device", "stream_id": "stream", "bytes": "bytes", "graph_id": "graph_id",
    "graph_node_id": "graph_node_id", "context_id": "context", "registers_per_thread": "registers",
    "dynamic_shared_memory_bytes": "shared_memory",
}  # fmt: skip

# what is kept of events: arrows lead between nodes of graphs, nodes are those that are no work
PARTS = ("spans", "launches", "activities", "allocations", "synchronizations", "overheads", "frames", "counters",
         "arrows", "nodes")  # fmt: skip
_NODE = {"correlation_id": "correlation", "graph_id": "graph_id", "graph_node_id": "graph_node_id"}
# category → what it is kept as, and columns → where they stand in the arguments
_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    "cuda_sync": ("synchronizations", {
        "correlation_id": "correlation", "device_id": "device", "context_id": "context", "stream_id": "stream",
        "event_id": "event_id", "event_record_correlation_id": "event_record_correlation_id",
    }),
    "overhead": ("overheads", {}), "graph_event_node": ("nodes", _NODE), "graph_host_node": ("nodes", _NODE),
}  # fmt: skip

Columns = dict[str, np.ndarray]


class _Group(NamedTuple):
    """Events of one category, with what all have: process, thread, times, row."""

    events: list[Event]
    columns: Columns

    def part(self, rows: slice) -> "_Group":
        return _Group(self.events[rows], {name: values[rows] for name, values in self.columns.items()})

    def where(self, mask: np.ndarray) -> "_Group":
        events = list(compress(self.events, mask.tolist()))
        return _Group(events, {name: values[mask] for name, values in self.columns.items()})


class Collector:
    """Columns of the wanted events, piece by piece; the events themselves are dropped with their piece."""

    def __init__(self) -> None:
        self.strings = StringTable()
        self.parts: dict[str, list[Columns]] = {name: [] for name in PARTS}
        self.labels: dict[tuple[str, int, int], str] = {}  # (process_name or thread_name, pid, tid) → name
        self.left_out: Counter[str] = Counter()
        self.not_understood: Counter[str] = Counter()  # by category
        self.unreadable_count = 0
        self._row = 0
        self._takers: dict[str, Callable[[str, _Group], None]] = {
            **dict.fromkeys(SPAN_KINDS, self._add_spans),
            **dict.fromkeys(LAUNCH_CLASSES, self._add_launches),
            **dict.fromkeys(ACTIVITY_KINDS, self._add_activities),
            "cpu_instant_event": self._add_allocations,
            "c": self._add_counters,
            "ac2g": self._add_arrows,
            **dict.fromkeys(_PLAIN, self._add_plain),
        }

    def add(self, events: list[Event], times_of: TimesOf) -> bool:
        """Take over one piece of the event list; nothing of it, and False, where its times cannot be found."""
        categories = Codes()
        codes = categories.of(list(map(_CATEGORY, events)))
        for nothing in filterfalse(None, list(categories)):  # the phase stands for a category that is not there
            rows = np.flatnonzero(codes == categories[nothing])
            codes[rows] = categories.of([events[row].ph or "" for row in rows.tolist()])
        names = categories.texts()
        kinds = [name if name == "M" else canonical(name) for name in names]
        rows = np.argsort(codes.astype(np.min_scalar_type(len(names))), kind="stable")  # category by category
        ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
        parts = [part for part in zip(kinds, names, [0, *ends], ends) if part[2] < part[3]]
        wanted = [(kind, rows[start:end]) for kind, _, start, end in parts if kind in self._takers]
        wanted = [(kind, self._between_nodes(part, events) if kind == "ac2g" else part) for kind, part in wanted]
        if wanted:
            rows_wanted = np.concatenate([part for _, part in wanted])
            group = self._timed([events[row] for row in rows_wanted.tolist()], rows_wanted + self._row, times_of)
            if group is None:
                return False
            end = 0
            for kind, part in wanted:
                start, end = end, end + len(part)
                self._takers[kind](kind, group.part(slice(start, end)))
        for kind, name, start, end in parts:
            if kind == "M":
                self._add_labels([events[row] for row in rows[start:end].tolist()])
            elif kind == "ac2g":
                self.left_out[name] += end - start - sum(len(part) for of, part in wanted if of == kind)
            elif kind not in self._takers:
                (self.left_out if kind else self.not_understood)[name] += end - start
        self._row += len(events)
        return True

    def _between_nodes(self, rows: np.ndarray, events: list[Event]) -> np.ndarray:
        return rows[_numbers([events[row] for row in rows.tolist()], "id") >= kineto_graphs.FIRST_EDGE]

    def _add_labels(self, events: list[Event]) -> None:
        """Names of processes (tid −1) and threads; the first of each stays."""
        for event in events:
            what, pid, tid = event.name, event.pid, event.tid
            if what not in ("process_name", "thread_name") or not isinstance(pid, int):
                continue
            tid = tid if what == "thread_name" and isinstance(tid, int) else -1
            self.labels.setdefault((str(what), pid, tid), _text(event.args.name if event.args else None))

    def _add_spans(self, category: str, group: _Group) -> None:
        names = _names(group.events)
        if category == "python_function":
            is_module = _begins_with((MODULE_PREFIX,), *names)
            if not is_module.all():
                others, group = group.where(~is_module), group.where(is_module)
                of_event, frames = _names(others.events)
                self._keep("frames", self._named(others, (of_event, [frame_text(name) for name in frames])))
                names = _names(group.events)
        frame = self._named(group, names)
        frame["kind"] = np.full(len(group.events), int(SPAN_KINDS[category]))
        if category == "cpu_op":
            args = self._arguments(group.events)
            frame["sequence"] = _numbers(args, "sequence")
            self._add_arguments(frame, args)
            if _COMMUNICATION in names[1]:
                rows = np.flatnonzero(names[0] == names[1].index(_COMMUNICATION)).tolist()
                self._add_messages(frame, _messages(args, rows))
            frame["kind"][_begins_with(ANNOTATION_PREFIXES, *names)] = int(SpanKind.ANNOTATION)
        self._keep("spans", frame)

    def _add_arguments(self, frame: Columns, args: list[Any]) -> None:
        """What operators were given; equal lists are decoded once."""
        codes = Codes()
        of_event = codes.of(list(map(_SEPARATOR.join, map(_GIVEN, args))))
        first = np.unique(of_event, return_index=True)[1].tolist()
        shapes = [_shape_text(args[k].dims or args[k].old_dims) for k in first]
        texts = [_arguments_text(_GIVEN(args[k])) for k in first]
        frame["shape_id"] = self.strings.add(shapes)[of_event]
        frame["arguments_id"] = self.strings.add(texts)[of_event]

    def _add_launches(self, category: str, group: _Group) -> None:
        frame = self._named(group)
        args = self._arguments(group.events)
        frame["api_class"] = np.full(len(args), LAUNCH_CLASSES[category])
        frame["correlation_id"] = _numbers(args, "correlation")
        kernels = [one.kernel for one in args]
        if any(kernels):  # ROCm names the kernel in the launch call: all there is of one recorded into a graph
            frame["kernel_name_id"] = self.strings.add([str(name) if name else None for name in kernels])
        self._keep("launches", frame)

    def _add_activities(self, category: str, group: _Group) -> None:
        args = self._arguments(group.events)
        of_event, names = _names(group.events, args if category == "gpu_memcpy" else None)
        frame = self._named(group, (of_event, names))
        frame["kind"] = np.full(len(args), int(ACTIVITY_KINDS[category]))
        is_kernel = category == "kernel"
        shorts = self.strings.add([short_kernel_name(name) for name in names]) if is_kernel else None
        frame["short_name_id"] = frame["name_id"] if shorts is None else shorts[of_event]
        frame["correlation_id"] = _numbers(args, "correlation", NO_CORRELATION)
        for column, key in _ACTIVITY_COLUMNS.items():
            frame[column] = _numbers(args, key, 0)
        ran_on = _numbers(args, "original_stream")  # where the work was moved to a lane to look at
        frame["stream_id"] = np.where(ran_on >= 0, ran_on, frame["stream_id"])
        told = self._add_texts(frame, args)
        if is_kernel:
            said = map(_COLLECTIVE, args)
            told |= _messages(args, [row for row, one in enumerate(said) if one is not NO_ARGUMENTS.collective])
            self._add_messages(frame, told)
            for key in ("grid", "block"):
                codes = Codes()
                of_size = codes.of(_SEPARATOR.join(map(attrgetter(key), args)).split(_SEPARATOR))
                frame |= {name: sizes[of_size] for name, sizes in launch_sizes(key, list(codes)).items()}
        if category == "gpu_memcpy":
            kinds = np.array([_copy_kind(name) for name in names], np.int64)
            sides = np.array([_memory_sides(name) for name in names], np.int64).reshape(-1, 2)
            frame["copy_kind"] = kinds[of_event]
            frame["memory_kind"] = memory_kinds(kinds, sides[:, 0], sides[:, 1])[of_event]
        self._keep("activities", frame)

    def _add_texts(self, frame: Columns, args: list[Any]) -> dict[int, str]:
        """What the program named kernels of its graphs by, and their source lines; by row, what it said of
        collectives there."""
        in_graph = np.flatnonzero(frame["graph_node_id"] > 0).tolist()
        entries = {row: said_entries(_said(args[row])) for row in in_graph}
        said = {row: said_text(of_row) for row, of_row in entries.items()}
        places = {row: innermost_place(one.stack) for row, one in enumerate(args) if one.stack}
        for column, texts in (("said_text_id", said), ("source_text_id", places)):
            if any(texts.values()):
                frame[column] = np.full(len(args), -1)
                frame[column][list(texts)] = self.strings.add([text or None for text in texts.values()])
        told = {row: message(of_row) for row, of_row in entries.items()}
        return {row: collective_messages.message_text(one) for row, one in told.items() if one}

    def _add_messages(self, frame: Columns, said: dict[int, str]) -> None:
        """What collectives say of their message and group, by row, as JSON."""
        if said:
            frame["message_text_id"] = np.full(len(frame["name_id"]), -1)
            frame["message_text_id"][list(said)] = self.strings.add(list(said.values()))

    def _add_allocations(self, category: str, group: _Group) -> None:
        is_memory = np.array([event.name == "[memory]" for event in group.events], dtype=bool)
        self.left_out[category] += int((~is_memory).sum())
        group = group if is_memory.all() else group.where(is_memory)
        args = self._arguments(group.events)
        frame = group.columns | {"bytes": _numbers(args, "allocated", 0)}
        frame["address"] = addresses([one.address for one in args])
        for column in ("device_type", "device_id", "total_bytes", "reserved_bytes"):
            frame[column] = _numbers(args, column)
        self._keep("allocations", frame)

    def _add_plain(self, category: str, group: _Group) -> None:
        kept_as, keys = _PLAIN[category]
        args = self._arguments(group.events)
        self._keep(kept_as, self._named(group) | {column: _numbers(args, key) for column, key in keys.items()})

    def _add_counters(self, category: str, group: _Group) -> None:
        of_event, names = _names(group.events)
        columns = self.strings.add([column_of(name) or None for name in names])[of_event]
        gpu = np.array([kineto_graphs.gpu_of(event.pid) for event in group.events], np.int64)
        for code in distinct(of_event[(columns < 0) | (gpu < 0)]).tolist():
            if names[code] not in kineto_graphs.DERIVED:
                self.left_out[names[code]] += int(((columns < 0) | (gpu < 0))[of_event == code].sum())
        values = [event.args.value if event.args else None for event in group.events]
        texts = [one if isinstance(one, (int, float, str)) else None for one in values]  # fractions are text here
        value = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(float)
        frame = group.columns | {"gpu_index": gpu, "column_id": columns, "value": value}
        self._keep("counters", {name: one[(columns >= 0) & (gpu >= 0)] for name, one in frame.items()})

    def _add_arrows(self, category: str, group: _Group) -> None:
        frame = group.columns | {"number": _numbers(group.events, "id")}
        self._keep("arrows", frame | {"is_start": np.array([event.ph == "s" for event in group.events], bool)})

    def _timed(self, events: list[Event], rows: np.ndarray, times_of: TimesOf) -> _Group | None:
        """Events with process, thread, start and end; `is_readable` marks those with usable times."""
        times = times_of(events)
        if times is None:
            return None
        numbers = {"process_id": _numbers(events, "pid"), "thread_id": _numbers(events, "tid")}
        return _Group(events, {**numbers, "source_row_id": rows, **times._asdict()})

    def _named(self, group: _Group, names: "Names | None" = None) -> Columns:
        of_event, texts = _names(group.events) if names is None else names
        return {"name_id": self.strings.add(texts)[of_event], **group.columns}

    def _arguments(self, events: list[Event]) -> list[Any]:
        return [event.args or NO_ARGUMENTS for event in events]

    def _keep(self, name: str, columns: Columns) -> None:
        readable = columns.pop("is_readable")
        count = int(readable.sum())
        self.unreadable_count += len(readable) - count
        if count:
            is_whole = count == len(readable)
            self.parts[name].append(
                columns if is_whole else {name: values[readable] for name, values in columns.items()}
            )


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return "" if value is None else str(value)


def _copy_name(name: Any, args: Any) -> Any:
    """``Memcpy DtoH (Device -> Pinned)``, also where its parts are arguments."""
    if args.copy_kind is None:
        return name
    sides = [str(one or "unknown").replace("_", " ").capitalize() for one in (args.from_memory, args.to_memory)]
    return f"{name} {args.copy_kind} ({' -> '.join(sides)})"


def _said(args: Any) -> dict[str, Any]:
    return {"name": args.name, "str": args.region, "annotation": args.annotation, "module": args.module,
            "autograd_phase": args.phase}  # fmt: skip


Names = tuple[np.ndarray, list[str]]


def _names(events: list[Event], of_copies: list[Any] | None = None) -> Names:
    """Number of each event's name, and the different names. ``of_copies``: the arguments, where events are copies."""
    codes, names = Codes(), list(map(_NAME, events))
    return codes.of(names if of_copies is None else list(map(_copy_name, names, of_copies))), codes.texts()


def _begins_with(prefixes: tuple[str, ...], of_event: np.ndarray, names: list[str]) -> np.ndarray:
    return np.array([name.startswith(prefixes) for name in names], dtype=bool)[of_event]


def _numbers(holders: Sequence[Any], key: str, default: int = -1) -> np.ndarray:
    values_of = attrgetter(key)
    try:
        numbers = np.fromiter(map(values_of, holders), np.int64, len(holders))
    except (TypeError, ValueError, OverflowError):
        missing = (None, ABSENT)
        return int_column([default if value in missing else value for value in map(values_of, holders)], default)
    numbers[numbers == ABSENT] = default
    return numbers


def _shape_text(dims: Raw) -> str | None:
    """Sizes of the inputs as emit_nvtx writes them, e.g. ``[[8, 3], []]``; None where no input has any."""
    sizes = value_of(dims)
    return str(sizes) if isinstance(sizes, list) and any(sizes) else None


_GIVEN = attrgetter(
    "dims", "types", "strides", "concrete", "collective", "dtype", "in_count", "out_count", "group_size", "old_dims"
)
_SEPARATOR = b"\0"  # stands in no JSON
_MESSAGE = collective_messages.KEYS[:5]


def _arguments_text(given: tuple[Raw, ...]) -> str | None:
    """What the operator was given, as `work.signature` reads it; None where sizes were not recorded."""
    message = {key: value_of(text) for key, text in zip(_MESSAGE, given[4:-1]) if text}
    lists = [_compact(text) if text else "[]" for text in map(bytes, given[:4])]
    if not message and not (given[0] and lists[0].startswith("[")):
        return None
    text = f"[{','.join([*lists, json.dumps(message, separators=_CLOSE)] if message else lists)}]"
    return text if len(text) <= LONGEST_TEXT else None


_CLOSE = (",", ":")
_SHORT = 200  # bytes of a list that is decoded once for all operators


def _compact(text: bytes) -> str:
    """The JSON without spaces, numbers with a fraction as text."""
    return _compact_short(text) if len(text) <= _SHORT else json.dumps(value_of(text), separators=_CLOSE)


@lru_cache(1 << 14)
def _compact_short(text: bytes) -> str:
    return json.dumps(value_of(text), separators=_CLOSE)


_COMMUNICATION = "record_param_comms"  # the operator around the launch of a collective
_MESSAGE_KEYS = attrgetter("collective", "dtype", "in_count", "out_count", "group_size", "group_name", "group_label",
                           "group_ranks", "first_rank", "rank_stride", "from_rank", "to_rank")  # fmt: skip


def _messages(args: list[Arguments], rows: list[int]) -> dict[int, str]:
    """What the arguments of these rows say of a collective, as JSON."""
    return {row: _message(_SEPARATOR.join(_MESSAGE_KEYS(args[row]))) for row in rows}


@lru_cache(1 << 14)
def _message(said: bytes) -> str:
    values = map(value_of, said.split(_SEPARATOR))
    return collective_messages.message_text(dict(zip(collective_messages.KEYS, values)))


def _copy_kind(name: str) -> int:
    """``Memcpy HtoD (Pageable -> Device)`` → 1."""
    words = name.split(" ", 2)
    return COPY_KINDS.get(words[1], 0) if len(words) > 1 else 0


def _memory_sides(name: str) -> tuple[int, int]:
    """``Memcpy HtoD (Pageable -> Device)`` → the `MemoryKind` of source and target."""
    found = _SIDES.search(name)
    source, target = found.groups() if found else ("", "")
    return _MEMORY_KINDS.get(source.upper(), 0), _MEMORY_KINDS.get(target.upper(), 0)
