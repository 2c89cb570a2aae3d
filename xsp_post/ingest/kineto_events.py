"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): JSON text → events that hold only what is wanted of each.

Decoded by type: other keys are passed over and make no object. Times and lists stay the text that they are in the
file (`Raw`), so that no time is rounded and equal lists are decoded once.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from xsp_post.ingest.json_text import whole_characters

_NOTHING = Raw()  # a key that the event does not have
NO_DURATION = Raw(b"0")  # an event that was still open
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


class Event(Struct, gc=False):
    """One event."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Raw = _NOTHING
    dur: Raw = NO_DURATION
    args: Arguments | None = None


class DetailedArguments(Arguments, gc=False):
    """With what tables want and the printed tree does not."""

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
    grid: Raw = _NOTHING
    block: Raw = _NOTHING
    collective: Raw = field(default=_NOTHING, name="Collective name")
    dtype: Raw = _NOTHING
    in_count: Raw = field(default=_NOTHING, name="In msg nelems")
    out_count: Raw = field(default=_NOTHING, name="Out msg nelems")
    group_size: Raw = field(default=_NOTHING, name="Group size")


class DetailedEvent(Event, gc=False):
    """One event, with the arguments of the detailed reading."""

    args: DetailedArguments | None = None


NO_ARGUMENTS, NO_DETAILED_ARGUMENTS = Arguments(), DetailedArguments()
_Kind = TypeVar("_Kind", bound=Struct)


class EventDecoder:
    """Decodes JSON lists of events."""

    def __init__(self, *, detail: bool) -> None:
        self._kind: type[Event] = DetailedEvent if detail else Event
        self._arguments = DetailedArguments if detail else Arguments
        self._decoder = msgspec.json.Decoder(list[self._kind], float_hook=str)  # type: ignore[name-defined]

    def decode(self, text: bytes | memoryview) -> list[Event] | None:
        """The events; None for text that is damaged or has values of odd types, which `of_values` takes."""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None

    def of_values(self, values: list[Any]) -> list[Event]:
        """Events out of decoded JSON, whatever its types: what is no object is left out."""
        events = []
        for value in values:
            if isinstance(value, dict):
                args = value.get("args")
                event = _filled(self._kind, {**value, "args": None})
                event.args = _filled(self._arguments, args) if isinstance(args, dict) else None
                events.append(event)
        return events


def _filled(kind: type[_Kind], values: dict[str, Any]) -> _Kind:
    made = kind()
    for one in msgspec.structs.fields(kind):
        if one.encode_name in values:
            value = values[one.encode_name]
            setattr(made, one.name, Raw(json.dumps(value).encode()) if one.type is Raw else value)
    return made


def value_of(raw: Raw | bytes) -> Any:
    """The value that the text is, numbers with a fraction as text; None for nothing and for damaged text."""
    try:
        return json.loads(whole_characters(bytes(raw).decode("utf-8", "replace")), parse_float=str)
    except (ValueError, RecursionError):
        return None
