"""Rows → pages of a SQLite table, thousands of rows at a time.

SQLite takes a microsecond for each row of 20 numbers, whoever hands them over. Here the leaves of the table are laid
out by NumPy and appended to the file, and pages that point to them are put above: a tenth of the time. What is written
is what https://www.sqlite.org/fileformat2.html asks for; a number takes as many bytes as the largest of its column, and
a column of whole floats is stored as integers, as SQLite stores a whole float.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 10_000  # of fewer, SQLite's own way takes no time
_CHUNK_PAGES = 64  # laid out at once: what fits a processor's cache
_MOST_COLUMNS = 120  # the head of a record stays below 128 bytes
_LONGEST = 8000  # bytes of a record: longer ones spill over to further pages
_LEAF, _INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x05, 0x0A, 0x02
_ZERO, _ONE, _REAL = 8, 9, 7  # serial types of the record format
_WIDTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (8, 6))  # bytes of an integer, and its serial type
_LARGEST_WHOLE = 1 << 47  # a larger whole float is stored as a float
_LOCK_BYTE = 1 << 30  # the page that holds it is never used
_PAGE_HEAD = np.dtype([("flag", "u1"), ("free", ">u2"), ("count", ">u2"), ("start", ">u2"), ("fragments", "u1")])


@dataclass(frozen=True)
class _Column:
    """A column of the record: its numbers, which of them are unknown, and how each is stored."""

    values: np.ndarray
    unknown: np.ndarray | None
    width: int
    serial: int

    def part(self, rows: slice) -> _Column:
        unknown = None if self.unknown is None else self.unknown[rows]
        return _Column(self.values[rows], unknown, self.width, self.serial)


@dataclass(frozen=True)
class _Records:
    """What the rows hold: numbers, and perhaps one text behind them."""

    columns: list[_Column]
    text: pa.StringArray | None = None

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def part(self, rows: slice) -> _Records:
        return _Records([column.part(rows) for column in self.columns], None if self.text is None else self.text[rows])

    @property
    def text_bytes(self) -> np.ndarray:
        """How long each text is; −1 for an unknown one."""
        return pc.binary_length(self.text).fill_null(-1).to_numpy()

    @property
    def longest(self) -> int:
        """Bytes of the longest record, or a few more."""
        numbers = 1 + len(self.columns) + sum(column.width for column in self.columns)
        return numbers if self.text is None else numbers + 2 + max(int(self.text_bytes.max()), 0)


def can_append(rows: pa.Table) -> bool:
    """Whether these rows are worth it, and can be laid out here: not too many columns of numbers, the last of texts."""
    *first, last = rows.schema.types
    return (
        rows.num_rows >= LEAST_ROWS
        and len(first) < _MOST_COLUMNS
        and all(map(_is_number, first))
        and (_is_number(last) or (bool(first) and pa.types.is_string(last)))
    )


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind != pa.uint64())


def append_rows(
    path: Path, root: int, rows: pa.Table, key: str | None, indexes: Mapping[str, int] | None = None
) -> bool:
    """Fill an empty table, whose root is that page of a database that nobody has open.

    ``key``: the column that is its INTEGER PRIMARY KEY; ``indexes``: the roots of its indexes, by the column that each
    is over. False, and nothing is written, where the numbers of the key do not rise, a row is long, or the file is laid
    out in another way than SQLite does by default.
    """
    names = rows.column_names
    text = _whole(rows.column(names.pop())) if pa.types.is_string(rows.schema.types[-1]) else None
    columns = {name: _numbers(rows.column(name)) for name in names}
    if key in columns:
        numbered = columns[key]
        row_ids = numbered.values.astype(np.int64, copy=False)
        if numbered.unknown is not None or row_ids[0] < 0 or not (row_ids[1:] > row_ids[:-1]).all():
            return False
        columns[key] = _Column(row_ids, None, 0, 0)  # stored as NULL: the row's own number stands for it
    else:
        row_ids = np.arange(1, rows.num_rows + 1)
    records = _Records(list(columns.values()), text)
    with path.open("r+b") as file:
        header = file.read(100)
        page_bytes = struct.unpack(">H", header[16:18])[0]
        layout_and_encoding = struct.unpack(">III", header[44:48] + header[52:60])
        if header[20] or layout_and_encoding != (4, 0, 1) or records.longest > min(_LONGEST, page_bytes - 35):
            return False
        pages = _Pages(file, page_bytes, struct.unpack(">I", header[28:32])[0])
        _put_above(pages, root, *_append_leaves(pages, records, row_ids), _INTERIOR)
        for name, index_root in (indexes or {}).items():
            entries = _entries(_numbers(rows.column(name)), row_ids)
            _put_above(pages, index_root, *_append_leaves(pages, entries, None), _INDEX_INTERIOR)
        changes = struct.pack(">I", struct.unpack(">I", header[24:28])[0] + 1)
        for at, value in ((24, changes), (28, struct.pack(">I", pages.count)), (92, changes)):
            file.seek(at)
            file.write(value)
    return True


def _entries(column: _Column, row_ids: np.ndarray) -> _Records:
    """The columns of an index in its order: unknown ones first, then by number, then by row."""
    values, unknown = column.values, column.unknown
    if column.width <= 2 and values.dtype.kind != "f":
        values = values.astype(np.int16)  # sorted by its digits
    order = np.argsort(values, kind="stable")
    if unknown is not None:
        order = np.concatenate([np.flatnonzero(unknown), order[~unknown[order]]])
        unknown = unknown[order]
    sorted_column = _Column(column.values[order], unknown, column.width, column.serial)
    return _Records([sorted_column, _number_column(row_ids[order], None)])


def _whole(stored: pa.ChunkedArray) -> pa.Array:
    return stored.combine_chunks() if stored.num_chunks != 1 else stored.chunk(0)


def _numbers(stored: pa.ChunkedArray) -> _Column:
    array = _whole(stored)
    if array.null_count == len(array):
        return _Column(np.zeros(len(array), np.int8), None, 0, 0)
    unknown = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())[array.offset : array.offset + len(array)]
    if values.dtype.kind != "f":
        return _number_column(values, unknown)
    whole = _as_integers(values, unknown)
    return _Column(values, unknown, 8, _REAL) if whole is None else _number_column(whole, unknown)


def _as_integers(values: np.ndarray, unknown: np.ndarray | None) -> np.ndarray | None:
    """Floats as integers, 0 for unknown ones; None where some known one is none that SQLite stores as an integer."""
    if unknown is not None:
        values = np.where(unknown, 0.0, values)
    if not (np.abs(values) < _LARGEST_WHOLE).all():
        return None
    whole = values.astype(np.int64)
    return whole if (whole == values).all() else None


def _number_column(values: np.ndarray, unknown: np.ndarray | None) -> _Column:
    low, high = int(values.min()), int(values.max())
    if low == high and low in (0, 1):
        return _Column(values, unknown, 0, _ONE if low else _ZERO)
    need = max(high, ~low).bit_length() + 1
    width, serial = next((width, serial) for width, serial in _WIDTHS if need <= 8 * width)
    return _Column(values, unknown, width, serial)


class _Pages:
    """The pages of the file, each numbered and written at its place."""

    def __init__(self, file: BinaryIO, page_bytes: int, count: int) -> None:
        self.file, self.page_bytes, self.count = file, page_bytes, count
        self._lock_page = _LOCK_BYTE // page_bytes + 1

    def append(self, content: memoryview | bytes) -> list[int]:
        """Write whole pages behind the last; their numbers."""
        first, count = self.count + 1, len(content) // self.page_bytes
        numbers = [*range(first, first + count)]
        before = self._lock_page - first
        if not 0 <= before < count:
            self.write(first, content)
        else:
            numbers[before:] = range(self._lock_page + 1, first + count + 1)
            self.write(first, content[: before * self.page_bytes])
            self.write(self._lock_page + 1, content[before * self.page_bytes :])
        self.count = numbers[-1]
        return numbers

    def write(self, number: int, content: memoryview | bytes) -> None:
        self.file.seek((number - 1) * self.page_bytes)
        self.file.write(content)


def _append_leaves(pages: _Pages, records: _Records, row_ids: np.ndarray | None) -> tuple[list[int], list[bytes]]:
    """Write all rows, or entries of an index (no ``row_ids``); the number of each leaf, and what stands between two of
    them: the last row before, or an entry that is in neither."""
    count, room = len(records), pages.page_bytes - 8
    cells = _Cells(records, None if row_ids is None else int(row_ids[-1]))
    step = room // (cells.layout.itemsize + 2) + 1  # entries of an index: those of a leaf, and the one behind it
    while row_ids is None and not count % step:  # no leaf behind the last entry
        step -= 1
    text_bytes = 0 if records.text is None else records.text.nbytes // count
    some_rows = step if row_ids is None else max(1, room // (cells.layout.itemsize + 2 + text_bytes))
    children: list[int] = []
    between: list[bytes] = []
    for first in range(0, count, some_rows * _CHUNK_PAGES):
        chunk = slice(first, min(first + some_rows * _CHUNK_PAGES, count))
        ids = None if row_ids is None else row_ids[chunk]
        content, ends = cells.of(records.part(chunk), ids)
        cuts = _cuts(ends, room) if ids is not None else [*range(0, len(ends) - 1, step), len(ends) - 1]
        lasts = [b - 1 if ids is None and b - a == step else b for a, b in pairwise(cuts)]
        flag = _INDEX_LEAF if ids is None else _LEAF
        children += pages.append(_leaves(flag, content, ends, list(zip(cuts, lasts)), pages.page_bytes))
        if ids is not None:
            between += [_varint(number) for number in ids[np.array(lasts) - 1].tolist()]
        else:
            between += [content[ends[last] : ends[b]].tobytes() for last, b in zip(lasts, cuts[1:]) if last < b]
    return children, between[: len(children) - 1]


def _cuts(ends: np.ndarray, room: int) -> list[int]:
    """At which rows the leaves begin that hold as much as they can, and the end of the last."""
    filled = ends + 2 * np.arange(len(ends))
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        cuts.append(int(np.searchsorted(filled, filled[cuts[-1]] + room, side="right")) - 1)
    return cuts


class _Cells:
    """Rows as they stand in pages: length, row number, serial types, values, each at its longest; a text behind."""

    def __init__(self, records: _Records, last_id: int | None) -> None:
        id_bytes = 0 if last_id is None else max(1, -(-last_id.bit_length() // 7))
        head = 1 + len(records.columns) + (0 if records.text is None else 2)
        fields: list[tuple[str, str, tuple[int, ...]]] = [
            ("length", "u1", (1 if records.longest < 128 else 2,)), ("id", "u1", (id_bytes,)), ("head", "u1", (head,)),
        ]  # fmt: skip
        for index, column in enumerate(records.columns):
            if column.width in (3, 6):  # no number of NumPy is as long: its high part and its low part
                low = column.width // 3
                fields += [(f"value{index}", f">i{low}", ()), (f"low{index}", f">u{2 * low}", ())]
            elif column.width:
                fields += [(f"value{index}", f">{'f' if column.serial == _REAL else 'i'}{column.width}", ())]
        self.layout = np.dtype(fields)
        one = np.zeros(1, self.layout)
        one["head"][0, 1 : 1 + len(records.columns)] = [column.serial for column in records.columns]
        self._alike = one.view(np.uint8)  # what is the same in all rows

    def of(self, records: _Records, row_ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of these rows one after the other, and where each begins and the last ends."""
        rows = _Rows(len(records), self.layout, self._alike)
        head, length, at = rows.cells["head"], rows.cells["length"], rows.cells["id"]
        head_bytes: np.ndarray | int = head.shape[1]
        body_bytes: np.ndarray | int = sum(column.width for column in records.columns)
        for index, column in enumerate(records.columns):
            if column.width in (3, 6):
                low_bits = 8 * (column.width // 3 * 2)
                rows.cells[f"value{index}"] = column.values >> low_bits
                rows.cells[f"low{index}"] = column.values & (1 << low_bits) - 1
            elif column.width:
                rows.cells[f"value{index}"] = column.values
            if column.unknown is not None and column.unknown.any():
                head[column.unknown, 1 + index] = 0
                if column.width:
                    rows.drop(f"value{index}", 0, column.width, column.unknown)
                    body_bytes = body_bytes - column.unknown * column.width
        if records.text is not None:
            text_bytes = records.text_bytes
            serial = np.where(text_bytes < 0, 0, 13 + 2 * text_bytes)
            head[:, -2], head[:, -1] = 128 | serial >> 7, serial & 127
            rows.drop("head", head.shape[1] - 2, 1, serial < 128)
            head_bytes = head_bytes - (serial < 128)
            body_bytes = body_bytes + np.maximum(text_bytes, 0)
        head[:, 0] = head_bytes
        total = head_bytes + body_bytes
        length[:, -1] = total & 127
        if length.shape[1] == 2:
            length[:, 0] = 128 | total >> 7
            rows.drop("length", 0, 1, np.broadcast_to(total < 128, len(records)))
        if row_ids is not None:
            last = at.shape[1] - 1
            for byte in range(last + 1):  # seven bits each; all but the last say that there is more
                above = row_ids >> 7 * (last - byte)
                at[:, byte] = above & 127 | (128 if byte < last else 0)
                if byte < last:
                    rows.drop("id", byte, 1, above == 0)
        return rows.packed(records.text)


class _Rows:
    """Some rows, each at its longest, and what is left out of them: bytes from, to, of which rows."""

    def __init__(self, count: int, layout: np.dtype, alike: np.ndarray) -> None:
        self._bytes = np.empty((count, layout.itemsize), np.uint8)
        self._bytes[:] = alike
        self.cells = self._bytes.view(layout)[:, 0]
        self._dropped: list[tuple[int, int, np.ndarray]] = []

    def drop(self, field: str, at: int, width: int, rows: np.ndarray) -> None:
        if rows.any():
            fields: Any = self.cells.dtype.fields
            start = int(fields[field][1]) + at
            self._dropped.append((start, start + width, rows))

    def packed(self, text: pa.StringArray | None) -> tuple[np.ndarray, np.ndarray]:
        """What is left, with each row's text behind it; and where each row begins and the last ends."""
        count, longest = self._bytes.shape
        content, ends = self._bytes.reshape(-1), np.arange(count + 1) * longest
        if self._dropped:
            kept = np.ones((count, longest), bool)
            size = np.full(count, longest)
            for start, end, rows in self._dropped:
                kept[:, start:end] &= ~rows[:, None]
                size -= rows * (end - start)
            content, ends = content[kept.reshape(-1)], np.concatenate([[0], np.cumsum(size)])
        if text is None:
            return content, ends
        buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)]
        front, nothing = pa.Array.from_buffers(pa.binary(), count, buffers), pa.scalar(b"", pa.binary())
        joined = pc.binary_join_element_wise(
            front, text.cast(pa.binary()), nothing, null_handling="replace", null_replacement=b""
        )
        _, ends, content = joined.buffers()
        return np.frombuffer(content, np.uint8), np.frombuffer(ends, np.int32)[: count + 1]


def _leaves(
    flag: int, content: np.ndarray, ends: np.ndarray, some_rows: list[tuple[int, int]], page_bytes: int
) -> memoryview:
    """Pages of these rows, from and to: where each row begins, from the front; the rows, from the end."""
    pages = np.zeros((len(some_rows), page_bytes), np.uint8)
    first, behind = np.array(some_rows).T
    start = page_bytes - (ends[behind] - ends[first])
    heads = pages[:, :8].view(_PAGE_HEAD)[:, 0]
    heads["flag"], heads["count"], heads["start"] = flag, behind - first, start
    moved = start - ends[first]
    for page, (a, b), at, by in zip(pages, some_rows, start.tolist(), moved.tolist()):
        page[8 : 8 + 2 * (b - a)].view(">u2")[:] = ends[a:b] + by
        page[at:] = content[ends[a] : ends[b]]
    return pages.reshape(-1).data


def _put_above(pages: _Pages, root: int, children: list[int], between: list[bytes], flag: int) -> None:
    """Write the pages above, level by level, the topmost at the place of the root."""
    most = (pages.page_bytes - 12) // (4 + 2 + max(map(len, between)))
    while len(between) > most:
        step = most + 1
        while len(children) % step == 1:  # a page above needs two below
            step -= 1
        firsts = range(0, len(children), step)
        above = [_interior(flag, children[i : i + step], between[i : i + step - 1], pages.page_bytes) for i in firsts]
        children, between = pages.append(b"".join(above)), [between[i - 1] for i in firsts[1:]]
    pages.write(root, _interior(flag, children, between, pages.page_bytes))


def _interior(flag: int, children: list[int], between: list[bytes], page_bytes: int) -> bytes:
    """A page that says which child holds which rows."""
    cells = [struct.pack(">I", number) + after for number, after in zip(children, between)]
    at, begins = page_bytes, []
    for one in cells:
        at -= len(one)
        begins.append(at)
    head = struct.pack(">BHHHBI", flag, 0, len(cells), at, 0, children[-1])
    front = head + struct.pack(f">{len(begins)}H", *begins)
    return front + bytes(at - len(front)) + b"".join(reversed(cells))


def _varint(number: int) -> bytes:
    parts = [number & 127]
    while number := number >> 7:
        parts.append(number & 127 | 128)
    return bytes(reversed(parts))
