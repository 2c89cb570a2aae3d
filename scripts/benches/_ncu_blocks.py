"""The blocks of an ``.ncu-rep`` file, for what writes such files: headers (Protocol Buffers messages) and payloads."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from xsp_post.ingest.ncu_actions import varint

MAGIC = b"NVR\x00"
RESULT_COUNT, STRING_TABLE, PAYLOAD_SIZE = 2, 4, 5
_LENGTH = struct.Struct("<I")
_MOST_HEADER = 1 << 28


@dataclass(frozen=True)
class Block:
    """One block: its header's fields, and where header and payload lie in the file."""

    fields: dict[int, list[int | bytes]]
    start: int
    payload_start: int
    payload_size: int

    @property
    def result_count(self) -> int:
        """Kernels (or ranges) whose results the payload holds."""
        return number(self.fields, RESULT_COUNT)


def blocks(stream: BinaryIO) -> Iterator[Block]:
    """The blocks of an open report. ValueError where the file ends or breaks inside one."""
    size = os.fstat(stream.fileno()).st_size
    if stream.read(4) != MAGIC:
        raise ValueError("no .ncu-rep")
    position = 8 + _length(stream.read(4))
    while position < size:
        stream.seek(position)
        header_size = _length(stream.read(4))
        fields = message(stream.read(header_size))
        payload_size = number(fields, PAYLOAD_SIZE)
        payload_start = position + 4 + header_size
        if payload_start + payload_size > size:
            raise ValueError("the last block is cut")
        yield Block(fields, position, payload_start, payload_size)
        position = payload_start + payload_size


def _length(raw: bytes) -> int:
    if len(raw) != 4:
        raise ValueError("the file ends inside a length")
    (value,) = _LENGTH.unpack(raw)
    if value > _MOST_HEADER:
        raise ValueError("no length")
    return int(value)


def number(fields: dict[int, list[int | bytes]], key: int) -> int:
    """The whole number of a field, 0 when it is not there."""
    value = fields.get(key, [0])[0]
    return value if isinstance(value, int) else 0


def message(raw: bytes) -> dict[int, list[int | bytes]]:
    """Fields of one Protocol Buffers message: number → values (whole numbers, or bytes undecoded)."""
    position, fields = 0, dict[int, "list[int | bytes]"]()
    while position < len(raw):
        tag, position = varint(raw, position)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, position = varint(raw, position)
        elif kind in (1, 2, 5):
            length = 8 if kind == 1 else 4
            if kind == 2:
                length, position = varint(raw, position)
            value = raw[position : position + length]
            position += length
            if position > len(raw):
                raise ValueError("a field is cut")
        else:
            raise ValueError("no Protocol Buffers message")
        fields.setdefault(tag >> 3, []).append(value)
    return fields
