"""Helper of ``ingest`` (a capture → ``Trace``): Chrome trace-event JSON, read in pieces.

PyTorch traces of a gigabyte exist (pytorch/kineto#760). The file is cut at boundaries between events and
each piece decoded by itself, so that memory holds one piece, never the document.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Any

from xsp_post.base import limits
from xsp_post.base.errors import CaptureError
from xsp_post.ingest.json_text import Decoder, open_bytes, whole_characters
from xsp_post.ingest.kineto_events import Event, EventDecoder, TimesOf

_PIECE_BYTES = 1 << 21
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Between two events: a quote right after the brace cannot stand inside a string (it would be escaped), and
# the key with its colon rules out a string that ends there.
_BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|cat|name|id|pid|tid|ts|dur|args|s|bp)"\s*:')

OnPiece = Callable[[list[Event], TimesOf], bool]


def read_events(path: Path, on_piece: OnPiece) -> dict[str, Any]:
    """Decode a trace-event file, hand every piece of events to `on_piece`, return the other top-level keys.

    ``on_piece`` gets events and how to find their times; where those are not found, it takes nothing and says False.
    Accepts ``{"traceEvents": [...], ...}`` and a bare ``[...]``, gzipped or not.
    Raises CaptureError (`trace-not-json`, `trace-truncated`, `trace-without-events`).
    """
    try:
        with open_bytes(path) as stream:
            return _read_stream(path, stream, on_piece, EventDecoder())
    except EOFError as error:
        raise _truncated(path, "the compressed data end too early") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise _truncated(path, "the compressed data are damaged") from error
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read ({error.strerror or error}).", code="trace-not-json") from error


def _read_stream(path: Path, stream: RawIOBase, on_piece: OnPiece, typed: EventDecoder) -> dict[str, Any]:
    decoder = Decoder(path, keep_fractions=True)
    header, rest = _find_events(path, stream)
    text = bytearray(b"[") + rest
    while True:
        cut = _hand_over(decoder, typed, text, on_piece)
        if cut:
            text = bytearray(b"[") + text[text.index(b",", cut) + 1 :]
        elif len(text) > limits.EVENT_CHARACTERS and not limits.are_lifted():
            raise _too_long(path, "one event of the trace")
        whole = _with_next(text, stream)
        if len(whole) == len(text):
            break
        text = whole
    last = whole_characters(_in_characters(text))  # positions hold in what is decoded
    try:
        values, end = decoder.first(last)
    except json.JSONDecodeError as error:
        raise _truncated(path, f"the JSON ends or breaks in the event list: {error.msg}") from error
    on_piece(*typed.of_values(values))
    return _decode_rest(decoder, _in_characters(header), last[end:])


def _hand_over(decoder: Decoder, typed: EventDecoder, text: bytearray, on_piece: OnPiece) -> int:
    """Hand over the events before the last place where the text can be cut, and say that place; 0: nowhere.

    What looks like one may lie in a list within an event, or in a list of objects behind the events.
    """
    end, step = len(text), 1
    while cut := _last_boundary(text, end):
        held, text[cut] = text[cut], ord("]")  # where the comma is, or white space before it
        piece = memoryview(text)[: cut + 1]
        try:
            if not any(on_piece(*reading) for reading in typed.readings(piece)):
                on_piece(*typed.of_values(decoder.decode(_in_characters(piece))))
        except json.JSONDecodeError as error:
            if error.msg != "Extra data" and error.pos < len(error.doc) - 1:
                why = f"the JSON is damaged in the event list ({error.msg})"
                raise CaptureError(f"{decoder.path}: {why}.", code="trace-not-json") from error
            end, step = min(cut - step, error.pos), 2 * step
        else:
            return cut
        finally:
            text[cut] = held
    return 0


def _with_next(text: bytearray, stream: RawIOBase) -> bytearray:
    """The text and the next piece of the stream, which is read to its place."""
    whole = bytearray(len(text) + _PIECE_BYTES)
    whole[: len(text)] = text
    with memoryview(whole)[len(text) :] as free:
        count = stream.readinto(free) or 0
    del whole[len(text) + count :]
    return whole


def _too_long(path: Path, what: str) -> CaptureError:
    return limits.over_limit(path, f"{what} is very long", f"{limits.EVENT_CHARACTERS:,} characters")


def _in_characters(text: bytes | bytearray | memoryview) -> str:
    """Bytes that are not UTF-8 become replacement characters."""
    return str(text, "utf-8", "replace")


def _find_events(path: Path, stream: RawIOBase) -> tuple[bytes, bytes]:
    """Text up to and with the opening bracket of the event list, and what was read after it."""
    text = b""
    while True:
        block = stream.read(_PIECE_BYTES)
        text = (text + block).removeprefix(_BYTE_ORDER_MARK)
        if text.lstrip()[:1] == b"[":
            start = text.index(b"[") + 1
            return b"", text[start:]
        match = _EVENTS_KEY.search(text)
        if match:
            return text[: match.end()], text[match.end() :]
        if not block:
            break
        if len(text) > limits.EVENT_CHARACTERS and not limits.are_lifted():
            raise _too_long(path, "what stands before the events")
    try:
        Decoder(path).decode(_in_characters(text))
    except json.JSONDecodeError as error:
        raise CaptureError(
            f"{path}: is not a JSON trace ({error.msg} at character {error.pos}).", code="trace-not-json"
        ) from error
    raise CaptureError(f"{path}: is JSON without a list traceEvents.", code="trace-without-events")


def _last_boundary(text: bytearray, limit: int) -> int:
    """Index just behind what is most likely the last complete event before `limit`, 0 when none is."""
    start = limit
    while start > 0:
        end = min(limit, start + 256)  # a boundary may begin just before the last window
        start = max(0, start - (1 << 14))
        last = None
        for last in _BOUNDARY.finditer(text, start, end):  # noqa: B007
            pass
        if last is not None:
            return last.start() + 1
    return 0


def _decode_rest(decoder: Decoder, header: str, rest: str) -> dict[str, Any]:
    """The top-level keys around the event list; `rest` starts at the list's closing bracket or behind it."""
    if not header:
        return {}
    try:
        document = Decoder(decoder.path).decode(header + "]" + rest.lstrip().removeprefix("]"))
    except json.JSONDecodeError as error:
        raise _truncated(decoder.path, f"the JSON ends or breaks behind the event list: {error.msg}") from error
    return document if isinstance(document, dict) else {}


def _truncated(path: Path, why: str) -> CaptureError:
    return CaptureError(f"{path}: is cut short or damaged ({why}).", code="trace-truncated")
