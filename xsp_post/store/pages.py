"""Rows → pages of a SQLite table, thousands of rows at a time.

SQLite takes a microsecond for each row of 20 numbers, whoever hands them over. Here the leaves of the table are laid
out by NumPy and appended to the file, and pages that point to them are put above: a tenth of the time. What is written
is what https://www.sqlite.org/fileformat2.html asks for; a number takes as many bytes as the largest of its column.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 10_000  # of fewer, SQLite's own way takes no time
_CHUNK_PAGES = 64  # laid out at once: what fits a processor's cache
_MOST_COLUMNS = 120  # a text counts twice: the head of a record stays below 128 bytes
_LONGEST = 8000  # bytes of a record: longer ones spill over to further pages
_LEAF, _INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x05, 0x0A, 0x02
_ZERO, _ONE, _REAL = 8, 9, 7  # serial types of the record format
_WIDTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (8, 6))  # bytes of an integer, and its serial type
_LOCK_BYTE = 1 << 30  # the page that holds it is never used


@dataclass(frozen=True)
class _Column:
    """A column of the record: its numbers, which of them are unknown, and how each is stored."""

    values: np.ndarray
    unknown: np.ndarray | None
    width: int
    serial: int

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: slice) -> _Column:
        unknown = None if self.unknown is None else self.unknown[rows]
        return _Column(self.values[rows], unknown, self.width, self.serial)


@dataclass(frozen=True)
class _Texts:
    """A column of texts."""

    array: pa.StringArray

    def __len__(self) -> int:
        return len(self.array)

    def part(self, rows: slice) -> _Texts:
        return _Texts(self.array[rows])

    @property
    def bytes(self) -> np.ndarray:
        """How long each is; −1 for an unknown one."""
        return pc.binary_length(self.array).fill_null(-1).to_numpy()


def can_append(rows: pa.Table) -> bool:
    """Whether these rows are worth it, and can be laid out here: few enough columns of numbers and texts."""
    kinds = rows.schema.types
    return (
        rows.num_rows >= LEAST_ROWS
        and len(kinds) + sum(map(pa.types.is_string, kinds)) <= _MOST_COLUMNS
        and all(_is_number(kind) or pa.types.is_string(kind) for kind in kinds)
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
    columns = {name: _column(rows.column(name)) for name in rows.column_names}
    numbered = columns.get(key or "")
    if isinstance(numbered, _Column):
        row_ids = numbered.values.astype(np.int64, copy=False)
        if numbered.unknown is not None or row_ids[0] < 0 or not (row_ids[1:] > row_ids[:-1]).all():
            return False
        columns[str(key)] = _Column(row_ids, None, 0, 0)  # stored as NULL: the row's own number stands for it
    else:
        row_ids = np.arange(1, rows.num_rows + 1)
    longest = _longest(list(columns.values()))
    with path.open("r+b") as file:
        header = file.read(100)
        page_bytes = struct.unpack(">H", header[16:18])[0]
        layout_and_encoding = struct.unpack(">III", header[44:48] + header[52:60])
        if header[20] or layout_and_encoding != (4, 0, 1) or longest > min(_LONGEST, page_bytes - 35):
            return False
        pages = _Pages(file, page_bytes, struct.unpack(">I", header[28:32])[0])
        _put_above(pages, root, *_append_leaves(pages, list(columns.values()), row_ids), _INTERIOR)
        for name, index_root in (indexes or {}).items():
            entries = _entries(_numbers(rows.column(name)), row_ids)
            _put_above(pages, index_root, *_append_leaves(pages, entries, None), _INDEX_INTERIOR)
        changes = struct.pack(">I", struct.unpack(">I", header[24:28])[0] + 1)
        for at, value in ((24, changes), (28, struct.pack(">I", pages.count)), (92, changes)):
            file.seek(at)
            file.write(value)
    return True


def _entries(column: _Column, row_ids: np.ndarray) -> list[_Column | _Texts]:
    """The columns of an index in its order: unknown ones first, then by number, then by row."""
    values, unknown = column.values, column.unknown
    if column.width <= 2 and values.dtype.kind != "f":
        values = values.astype(np.int16)  # sorted by its digits
    order = np.argsort(values, kind="stable")
    if unknown is not None:
        order = np.concatenate([np.flatnonzero(unknown), order[~unknown[order]]])
        unknown = unknown[order]
    sorted_column = _Column(column.values[order], unknown, column.width, column.serial)
    return [sorted_column, _number_column(row_ids[order], None)]


def _column(stored: pa.ChunkedArray) -> _Column | _Texts:
    return _Texts(_whole(stored)) if pa.types.is_string(stored.type) else _numbers(stored)


def _whole(stored: pa.ChunkedArray) -> pa.Array:
    return stored.combine_chunks() if stored.num_chunks != 1 else stored.chunk(0)


def _numbers(stored: pa.ChunkedArray) -> _Column:
    array = _whole(stored)
    if array.null_count == len(array):
        return _Column(np.zeros(len(array), np.int8), None, 0, 0)
    unknown = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())[array.offset : array.offset + len(array)]
    if values.dtype.kind == "f":
        return _Column(values, unknown, 8, _REAL)
    return _number_column(values, unknown)


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

    def append(self, content: bytes) -> int:
        """Write one page behind the last; its number."""
        self.count += 2 if self.count + 1 == self._lock_page else 1
        self.write(self.count, content)
        return self.count

    def write(self, number: int, content: bytes) -> None:
        self.file.seek((number - 1) * self.page_bytes)
        self.file.write(content)


def _longest(columns: list[_Column | _Texts]) -> int:
    """Bytes of the longest record, or a few more."""
    texts = [np.maximum(column.bytes, 0) for column in columns if isinstance(column, _Texts)]
    fixed = 1 + len(columns) + sum(column.width for column in columns if isinstance(column, _Column))
    return fixed + (len(texts) + int(sum(texts).max()) if texts else 0)


def _append_leaves(
    pages: _Pages, columns: list[_Column | _Texts], row_ids: np.ndarray | None
) -> tuple[list[int], list[bytes]]:
    """Write all rows, or entries of an index (no ``row_ids``); the number of each leaf, and what stands between two of
    them: the last row before, or an entry that is in neither."""
    count, room, longest = len(columns[0]), pages.page_bytes - 8, _longest(columns)
    cells = _Cells(columns, longest, None if row_ids is None else int(row_ids[-1]))
    step = room // (cells.front.itemsize + 2) + 1  # entries of an index: those of a leaf, and the one behind it
    while row_ids is None and not count % step:  # no leaf behind the last entry
        step -= 1
    texts = sum(column.array.nbytes for column in columns if isinstance(column, _Texts))
    some_rows = step if row_ids is None else max(1, room // (cells.bytes + texts // count))
    children, between = [], []
    for first in range(0, count, some_rows * _CHUNK_PAGES):
        chunk = slice(first, min(first + some_rows * _CHUNK_PAGES, count))
        ids = None if row_ids is None else row_ids[chunk]
        content, ends = cells.of([column.part(chunk) for column in columns], ids)
        for a, b in pairwise(_cuts(ends, room) if ids is not None else [*range(0, len(ends) - 1, step), len(ends) - 1]):
            last = b - 1 if ids is None and b - a == step else b
            flag = _INDEX_LEAF if ids is None else _LEAF
            some = ends[a : last + 1]
            children.append(pages.append(_leaf(flag, some, content[some[0] : some[-1]], pages.page_bytes)))
            if ids is not None:
                between.append(_varint(int(ids[b - 1])))
            elif last < b:
                between.append(content[ends[last] : ends[b]].tobytes())
    return children, between[: len(children) - 1]


def _cuts(ends: np.ndarray, room: int) -> list[int]:
    """At which rows the leaves begin that hold as much as they can, and the end of the last."""
    filled = ends + 2 * np.arange(len(ends))
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        cuts.append(int(np.searchsorted(filled, filled[cuts[-1]] + room, side="right")) - 1)
    return cuts


class _Cells:
    """Rows as they stand in pages: length, row number, serial types, values. ``parts``: what stands before the first
    text, between two and behind the last, each at its longest."""

    def __init__(self, columns: list[_Column | _Texts], longest: int, last_id: int | None) -> None:
        id_bytes = 0 if last_id is None else max(1, -(-last_id.bit_length() // 7))
        head = 1 + sum(2 if isinstance(column, _Texts) else 1 for column in columns)
        parts: list[list[tuple[str, str, tuple[int, ...]]]] = [
            [("length", "u1", (1 if longest < 128 else 2,)), ("id", "u1", (id_bytes,)), ("head", "u1", (head,))]
        ]
        for index, column in enumerate(columns):
            if isinstance(column, _Texts):
                parts.append([])
            elif column.width in (3, 6):  # no number of NumPy is as long: its high part and its low part
                low = column.width // 3
                parts[-1] += [(f"high{index}", f">i{low}", ()), (f"low{index}", f">u{2 * low}", ())]
            elif column.width:
                parts[-1] += [(f"low{index}", f">{'f' if column.serial == _REAL else 'i'}{column.width}", ())]
        self.parts = [np.dtype(part) for part in parts]
        self.front = self.parts[0]
        self.bytes = sum(part.itemsize for part in self.parts)

    def of(self, columns: list[_Column | _Texts], row_ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of these rows one after the other, and where each begins and the last ends."""
        count = len(columns[0])
        parts = [_Part(np.empty(count, part)) for part in self.parts]
        front, part, texts = parts[0], parts[0], []
        head = front.cells["head"]
        at, head_bytes, length = 1, np.full(count, head.shape[1]), np.zeros(count, np.int64)
        for index, column in enumerate(columns):
            if isinstance(column, _Texts):
                texts.append(column.array)
                part = parts[len(texts)]
                serial = np.where(column.bytes < 0, 0, 13 + 2 * column.bytes)
                head[:, at], head[:, at + 1] = 128 | serial >> 7, serial & 127
                front.drop("head", at, 1, serial < 128)
                head_bytes -= serial < 128
                length += np.maximum(column.bytes, 0)
                at += 2
                continue
            values, unknown, width, low = column.values, column.unknown, column.width, f"low{index}"
            first = low
            if width in (3, 6):
                first = f"high{index}"
                part.cells[first] = values >> 8 * (width // 3 * 2)
                part.cells[low] = values & (1 << 8 * (width // 3 * 2)) - 1
            elif width:
                part.cells[low] = values
            length += width
            if unknown is None:
                head[:, at] = column.serial
            else:
                head[:, at] = np.where(unknown, 0, column.serial)
                if width:
                    part.drop(first, 0, width, unknown)
                    length -= unknown * width
            at += 1
        head[:, 0] = head_bytes
        length += head_bytes
        if row_ids is not None:
            id_bytes = front.cells["id"].shape[1]
            for byte in range(id_bytes):  # seven bits each; all but the last say that there is more
                above = row_ids >> 7 * (id_bytes - 1 - byte)
                front.cells["id"][:, byte] = above & 127 | (128 if byte < id_bytes - 1 else 0)
                if byte < id_bytes - 1:
                    front.drop("id", byte, 1, above == 0)
        front.cells["length"][:, -1] = length & 127
        if front.cells["length"].shape[1] == 2:
            front.cells["length"][:, 0] = 128 | length >> 7
            front.drop("length", 0, 1, length < 128)
        return _joined(parts, texts)


class _Part:
    """A part of some rows, and what is left out of it: bytes from, to, of which rows."""

    def __init__(self, cells: np.ndarray) -> None:
        self.cells = cells
        self._dropped: list[tuple[int, int, np.ndarray]] = []

    def drop(self, field: str, at: int, width: int, rows: np.ndarray) -> None:
        if rows.any():
            fields: Any = self.cells.dtype.fields
            start = int(fields[field][1]) + at
            self._dropped.append((start, start + width, rows))

    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """What is left, and where each row begins and the last ends."""
        count, longest = len(self.cells), self.cells.itemsize
        content = self.cells.view(np.uint8)
        if not self._dropped:
            return content, np.arange(count + 1) * longest
        kept = np.ones((count, longest), bool)
        size = np.full(count, longest)
        for start, end, rows in self._dropped:
            kept[:, start:end] &= ~rows[:, None]
            size -= rows * (end - start)
        return content[kept.reshape(-1)], np.concatenate([[0], np.cumsum(size)])


def _joined(parts: list[_Part], texts: list[pa.StringArray]) -> tuple[np.ndarray, np.ndarray]:
    """The first part of each row, its first text, its second part …"""
    if not texts:
        return parts[0].packed()
    pieces = []
    for part, text in zip_longest(parts, texts):
        if part.cells.itemsize:
            content, ends = part.packed()
            buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)]
            pieces.append(pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers))
        if text is not None:
            pieces.append(text.cast(pa.binary()))
    nothing = pa.scalar(b"", pa.binary())
    joined = pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement=b"")
    _, ends, content = joined.buffers()
    return np.frombuffer(content, np.uint8), np.frombuffer(ends, np.int32)[: len(joined) + 1]


def _leaf(flag: int, ends: np.ndarray, content: np.ndarray, page_bytes: int) -> bytes:
    """One page of rows: where each begins, from the front; the rows, from the end."""
    count, start = len(ends) - 1, page_bytes - len(content)
    page = np.zeros(page_bytes, np.uint8)
    page[:8] = np.frombuffer(struct.pack(">BHHHB", flag, 0, count, start, 0), np.uint8)
    page[8 : 8 + 2 * count].view(">u2")[:] = ends[:-1] + (start - ends[0])
    page[start:] = content
    return page.tobytes()


def _put_above(pages: _Pages, root: int, children: list[int], between: list[bytes], flag: int) -> None:
    """Write the pages above, level by level, the topmost at the place of the root."""
    most = (pages.page_bytes - 12) // (4 + 2 + max(map(len, between)))
    while len(between) > most:
        step = most + 1
        while len(children) % step == 1:  # a page above needs two below
            step -= 1
        firsts = range(0, len(children), step)
        above = [_interior(flag, children[i : i + step], between[i : i + step - 1], pages.page_bytes) for i in firsts]
        children, between = [pages.append(page) for page in above], [between[i - 1] for i in firsts[1:]]
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
