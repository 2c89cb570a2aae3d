"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): JSON text → events that hold only what is wanted of each.

Decoded by type: other keys are passed over and make no object. Lists stay the text that they are in the file (`Raw`),
so that equal lists are decoded once.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Raw, Struct, field

from xsp_post.base.texts import read_blocks
from xsp_post.ingest import json_times

_NOTHING = Raw()  # a key that the event does not have
NO_TIME = float("nan")
ABSENT = -(1 << 62)  # the same, of numbers: so that a column of them is read without looking at each


def _arguments() -> Any:
    """The type of ``args``; of a key that is not there a number is `ABSENT`, a value None, a list empty."""
    kinds: dict[str, tuple[Any, Any]] = {"number": (Any, ABSENT), "value": (Any, None), "list": (Raw, _NOTHING)}
    (block,) = read_blocks(Path(__file__).with_name("kineto_arguments.txt"))
    fields: list[Any] = []
    for _, line in block.lines:
        name, kind, key = line.split(None, 2)
        fields.append((name, kinds[kind][0], field(default=kinds[kind][1], name=key.strip('"'))))
    return msgspec.defstruct("Arguments", fields, gc=False)


Arguments: Any = _arguments()


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
    args: Arguments | None = None  # type: ignore[valid-type]


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
