"""Rows of numbers → pages of a SQLite table, thousands of rows at a time.

SQLite takes a microsecond for each row of 20 numbers, whoever hands them over. Here the leaves of the table are laid
out by NumPy and appended to the file, and pages that point to them are put above: a tenth of the time. What is written
is what https://www.sqlite.org/fileformat2.html asks for; a number takes as many bytes as the largest of its column.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

LEAST_ROWS = 10_000  # of fewer, SQLite's own way takes no time
_CHUNK_PAGES = 64  # laid out at once: what fits a processor's cache
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

    def part(self, rows: slice) -> _Column:
        unknown = None if self.unknown is None else self.unknown[rows]
        return _Column(self.values[rows], unknown, self.width, self.serial)


def can_append(rows: pa.Table) -> bool:
    """Whether these rows are worth it, and can be laid out here: numbers, and few enough columns for one page."""
    kinds = (pa.types.is_integer, pa.types.is_floating)
    return (
        rows.num_rows >= LEAST_ROWS
        and rows.num_columns <= 100
        and all(any(test(kind) for test in kinds) and kind != pa.uint64() for kind in rows.schema.types)
    )


def append_rows(
    path: Path, root: int, rows: pa.Table, key: str | None, indexes: Mapping[str, int] | None = None
) -> bool:
    """Fill an empty table, whose root is that page of a database that nobody has open.

    ``key``: the column that is its INTEGER PRIMARY KEY; ``indexes``: the roots of its indexes, by the column that each
    is over. False, and nothing is written, where the numbers of the key do not rise, or the file is laid out in another
    way than SQLite does by default.
    """
    columns = {name: _column(rows.column(name)) for name in rows.column_names}
    if key in columns:
        row_ids = columns[key].values.astype(np.int64, copy=False)
        if columns[key].unknown is not None or row_ids[0] < 0 or not (row_ids[1:] > row_ids[:-1]).all():
            return False
        columns[key] = _Column(row_ids, None, 0, 0)  # stored as NULL: the row's own number stands for it
    else:
        row_ids = np.arange(1, rows.num_rows + 1)
    with path.open("r+b") as file:
        header = file.read(100)
        page_bytes = struct.unpack(">H", header[16:18])[0]
        plain = header[20] == 0 and header[44:48] == b"\x00\x00\x00\x04" and header[52:56] == bytes(4)
        if not plain or page_bytes < 4096:
            return False
        pages = _Pages(file, page_bytes, struct.unpack(">I", header[28:32])[0])
        _put_above(pages, root, *_append_leaves(pages, list(columns.values()), row_ids), _INTERIOR)
        for name, index_root in (indexes or {}).items():
            entries = _entries(_column(rows.column(name)), row_ids)
            _put_above(pages, index_root, *_append_leaves(pages, entries, None), _INDEX_INTERIOR)
        changes = struct.pack(">I", struct.unpack(">I", header[24:28])[0] + 1)
        for at, value in ((24, changes), (28, struct.pack(">I", pages.count)), (92, changes)):
            file.seek(at)
            file.write(value)
    return True


def _entries(column: _Column, row_ids: np.ndarray) -> list[_Column]:
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


def _column(stored: pa.ChunkedArray) -> _Column:
    array = stored.combine_chunks() if stored.num_chunks != 1 else stored.chunk(0)
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


def _append_leaves(pages: _Pages, columns: list[_Column], row_ids: np.ndarray | None) -> tuple[list[int], list[bytes]]:
    """Write all rows, or entries of an index (no ``row_ids``); the number of each leaf, and what stands between two of
    them: the last row before, or an entry that is in neither."""
    count, apart = len(columns[0].values), int(row_ids is None)
    cell = _cell(columns, None if row_ids is None else int(row_ids[-1]))
    step = (pages.page_bytes - 8) // (cell.itemsize + 2) + apart
    while apart and not count % step:  # no leaf behind the last entry
        step -= 1
    children, between = [], []
    for first in range(0, count, step * _CHUNK_PAGES):
        chunk = slice(first, min(first + step * _CHUNK_PAGES, count))
        ids = None if row_ids is None else row_ids[chunk]
        content, ends = _cells(cell, [column.part(chunk) for column in columns], ids)
        for at in range(0, chunk.stop - first, step):
            some = ends[at : at + step + 1 - apart]
            flag = _INDEX_LEAF if apart else _LEAF
            children.append(pages.append(_leaf(flag, some, content[some[0] : some[-1]], pages.page_bytes)))
            if ids is not None:
                between.append(_varint(int(ids[at + len(some) - 2])))
            elif at + step < len(ends):
                between.append(content[ends[at + step - 1] : ends[at + step]].tobytes())
    return children, between[: len(children) - 1]


def _cell(columns: list[_Column], last_id: int | None) -> np.dtype:
    """One row as it stands in a page, at its longest: length, row number, serial types, numbers."""
    fields: list[tuple[str, str, tuple[int, ...]]] = []
    id_bytes = 0 if last_id is None else max(1, -(-last_id.bit_length() // 7))
    head = 1 + len(columns)
    body = sum(column.width for column in columns)
    fields += [("length", "u1", (1 if head + body < 128 else 2,)), ("id", "u1", (id_bytes,))]
    fields += [("head", "u1", (head,))]
    for index, column in enumerate(columns):
        if column.width in (3, 6):  # no number of NumPy is as long: its high part and its low part
            fields += [
                (f"high{index}", f">i{column.width // 3}", ()),
                (f"low{index}", f">u{column.width // 3 * 2}", ()),
            ]
        elif column.width:
            fields += [(f"low{index}", f">{'f' if column.serial == _REAL else 'i'}{column.width}", ())]
    return np.dtype(fields)


def _cells(cell: np.dtype, columns: list[_Column], row_ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of these rows one after the other, and where each begins and the last ends."""
    cells = np.empty(len(columns[0].values), cell)
    offset = {name: int(field[1]) for name, field in (cell.fields or {}).items()}
    dropped: list[tuple[int, int, np.ndarray]] = []  # bytes from, to, of which rows
    cells["head"] = [1 + len(columns), *(column.serial for column in columns)]
    length = np.full(len(cells), 1 + len(columns) + sum(column.width for column in columns), np.int64)
    for index, (values, unknown, width, serial) in enumerate((c.values, c.unknown, c.width, c.serial) for c in columns):
        first = low = f"low{index}"
        if width in (3, 6):
            first = f"high{index}"
            cells[first] = values >> 8 * (width // 3 * 2)
            cells[low] = values & (1 << 8 * (width // 3 * 2)) - 1
        elif width:
            cells[low] = values
        if unknown is not None and unknown.any():
            cells["head"][:, 1 + index] = np.where(unknown, 0, serial)
            if width:
                dropped.append((offset[first], offset[first] + width, unknown))
                length -= unknown * width
    id_bytes = cell["id"].shape[0]
    for byte in (
        range(id_bytes) if row_ids is not None else ()
    ):  # seven bits each; all but the last say that there is more
        above = row_ids >> 7 * (id_bytes - 1 - byte)
        cells["id"][:, byte] = above & 127 | (128 if byte < id_bytes - 1 else 0)
        if byte < id_bytes - 1 and not above[0]:
            dropped.append((offset["id"] + byte, offset["id"] + byte + 1, above == 0))
    cells["length"][:, -1] = length & 127
    if cell["length"].shape[0] == 2:
        cells["length"][:, 0] = 128 | length >> 7
        if (length < 128).any():
            dropped.append((0, 1, length < 128))
    content = cells.view(np.uint8)
    if not dropped:
        return content, np.arange(len(cells) + 1) * cell.itemsize
    kept = np.ones((len(cells), cell.itemsize), bool)
    size = np.full(len(cells), cell.itemsize)
    for start, end, which in dropped:
        kept[:, start:end] &= ~which[:, None]
        size -= which * (end - start)
    return content[kept.reshape(-1)], np.concatenate([[0], np.cumsum(size)])


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
