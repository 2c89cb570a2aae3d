"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): JSON text → events that hold only what is wanted of each.

Decoded by type: other keys are passed over and make no object. Lists stay the text that they are in the file (`Raw`),
so that equal lists are decoded once.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Raw, Struct, field

from xsp_post.ingest import json_times

_NOTHING = Raw()  # a key that the event does not have
NO_TIME = float("nan")
ABSENT = -(1 << 62)  # the same, of numbers: so that a column of them is read without looking at each


class Arguments(Struct, gc=False):
    """What is read of ``args``; None, `ABSENT` or empty: no such key. In the order of Kineto's own files."""

    sequence: Any = field(default=ABSENT, name="Sequence number")
    device: Any = ABSENT
    context: Any = ABSENT
    stream: Any = ABSENT
    correlation: Any = ABSENT
    bytes: Any = ABSENT
    graph_id: Any = field(default=ABSENT, name="graph id")
    graph_node_id: Any = field(default=ABSENT, name="graph node id")
    kernel: Any = None
    name: Any = None
    event_id: Any = field(default=ABSENT, name="wait_on_cuda_event_id")
    event_record_correlation_id: Any = field(default=ABSENT, name="wait_on_cuda_event_record_corr_id")
    concrete: Raw = field(default=_NOTHING, name="Concrete Inputs")
    types: Raw = field(default=_NOTHING, name="Input type")
    strides: Raw = field(default=_NOTHING, name="Input Strides")
    dims: Raw = field(default=_NOTHING, name="Input Dims")
    old_dims: Raw = field(default=_NOTHING, name="Input dims")  # until 1.10
    total_bytes: Any = field(default=ABSENT, name="Total Allocated")
    reserved_bytes: Any = field(default=ABSENT, name="Total Reserved")
    allocated: Any = field(default=ABSENT, name="Bytes")
    address: Any = field(default=None, name="Addr")
    device_id: Any = field(default=ABSENT, name="Device Id")
    device_type: Any = field(default=ABSENT, name="Device Type")
    registers: Any = field(default=ABSENT, name="registers per thread")
    shared_memory: Any = field(default=ABSENT, name="shared memory")
    annotation: Any = None
    region: Any = field(default=None, name="str")
    module: Any = None
    phase: Any = field(default=None, name="autograd_phase")
    stack: Any = None
    grid: Raw = _NOTHING
    block: Raw = _NOTHING
    collective: Raw = field(default=_NOTHING, name="Collective name")
    dtype: Raw = _NOTHING
    in_count: Raw = field(default=_NOTHING, name="In msg nelems")
    out_count: Raw = field(default=_NOTHING, name="Out msg nelems")
    group_size: Raw = field(default=_NOTHING, name="Group size")
    group_name: Raw = field(default=_NOTHING, name="Process Group Name")
    group_label: Raw = field(default=_NOTHING, name="Process Group Description")
    group_ranks: Raw = field(default=_NOTHING, name="Process Group Ranks")
    first_rank: Raw = field(default=_NOTHING, name="Global rank start")
    rank_stride: Raw = field(default=_NOTHING, name="Global rank stride")
    from_rank: Raw = field(default=_NOTHING, name="Src Rank")
    to_rank: Raw = field(default=_NOTHING, name="Dst Rank")
    original_stream: Any = ABSENT
    copy_kind: Any = field(default=None, name="copy kind")
    from_memory: Any = field(default=None, name="src kind")
    to_memory: Any = field(default=None, name="dst kind")
    value: Any = field(default=None, name="")  # of a counter


class Event(Struct, gc=False):
    """One event, its times in microseconds; NaN: it has none, or was still open."""

    ph: Any = None
    cat: Any = None
    id: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: float = NO_TIME
    dur: float = NO_TIME
    args: Arguments | None = None


NO_ARGUMENTS = Arguments()
_Kind = TypeVar("_Kind", bound=Struct)
_START, _DURATION = attrgetter("ts"), attrgetter("dur")


class Times(NamedTuple):
    """When events began and ended (nanoseconds), which have no end, and of which that could be read."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    is_open: np.ndarray
    is_readable: np.ndarray


TimesOf = Callable[[list[Event]], Times | None]


class EventDecoder:
    """Decodes JSON lists of events.

    Times as floats are quickest, and exact for a session of a hundred days; others stay the text that they are in the
    file (`Raw`), so that none is rounded.
    """

    def __init__(self) -> None:
        self._ways: list[tuple[msgspec.json.Decoder[list[Event]], TimesOf]] = [
            (_decoder(float, float), _times_of_floats),
            (_decoder(Raw, float | str), _times_of_text),
        ]

    def readings(self, text: bytes | memoryview) -> Iterator[tuple[list[Event], TimesOf]]:
        """The events, and how their times are found: first in the quickest way, which serves nearly all files, then
        with times as text. Nothing for text that is damaged or has values of odd types, which `of_values` takes."""
        for way in list(self._ways):
            decoder, times_of = way
            try:
                yield decoder.decode(text), times_of
            except msgspec.ValidationError:
                pass
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                return
            if len(self._ways) > 1:  # what follows in the file is alike
                self._ways.remove(way)

    def of_values(self, values: list[Any]) -> tuple[list[Event], TimesOf]:
        """Events out of decoded JSON, whatever its types: what is no object is left out."""
        events = []
        for value in values:
            if isinstance(value, dict):
                args = value.get("args")
                event = _filled(Event, {**value, "args": None})
                event.args = _filled(Arguments, args) if isinstance(args, dict) else None
                events.append(event)
        return events, _times_of_values


@cache
def _decoder(start: Any, duration: Any) -> msgspec.json.Decoder[list[Event]]:
    no_start = _NOTHING if start is Raw else NO_TIME
    fields = [("ts", start, no_start), ("dur", duration, NO_TIME), ("args", Arguments | None, None)]
    kind = msgspec.defstruct("Event", fields, bases=(Event,), gc=False)
    return msgspec.json.Decoder(list[kind], float_hook=str)  # type: ignore[valid-type]


def _times_of_floats(events: list[Event]) -> Times | None:
    start_us = np.fromiter(map(_START, events), np.float64, len(events))
    is_readable = ~np.isnan(start_us)
    start_ns, ends = json_times.of_floats(np.where(is_readable, start_us, 0)), _durations(events)
    return None if start_ns is None or ends is None else _times(start_ns, *ends, is_readable)


def _times_of_text(events: list[Event]) -> Times | None:
    ends = _durations(events)
    if ends is None:
        return None
    start_ns, is_readable = json_times.of_text(list(map(_START, events)))
    return _times(start_ns, *ends, is_readable)


def _times_of_values(events: list[Event]) -> Times:
    starts, durations = list(map(_START, events)), list(map(_DURATION, events))
    is_open = np.array([duration is NO_TIME for duration in durations], bool)
    start_ns, is_start = json_times.nanoseconds(starts)
    duration_ns, is_duration = json_times.nanoseconds([0 if one is NO_TIME else one for one in durations])
    return _times(start_ns, duration_ns, is_open, is_start & is_duration)


def _durations(events: list[Event]) -> tuple[np.ndarray, np.ndarray] | None:
    """Nanoseconds, and which are missing; None where one is no number, or larger than a float holds exactly."""
    try:
        duration_us = np.fromiter(map(_DURATION, events), np.float64, len(events))
    except ValueError:
        return None
    is_open = np.isnan(duration_us)
    duration_ns = json_times.of_floats(np.where(is_open, 0, duration_us))
    return None if duration_ns is None else (duration_ns, is_open)


def _times(start_ns: np.ndarray, duration_ns: np.ndarray, is_open: np.ndarray, is_readable: np.ndarray) -> Times:
    return Times(start_ns, start_ns + duration_ns, is_open, is_readable & (duration_ns >= 0))


def _filled(kind: type[_Kind], values: dict[str, Any]) -> _Kind:
    made = kind()
    for one in msgspec.structs.fields(kind):
        if one.encode_name in values:
            value = values[one.encode_name]
            setattr(made, one.name, Raw(json.dumps(value).encode()) if one.type is Raw else value)
    return made
