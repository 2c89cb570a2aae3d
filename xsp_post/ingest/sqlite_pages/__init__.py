"""Captures in: columns of a large SQLite table, decoded from the pages of the file, a column of many rows at a time.

SQLite hands values over one by one, through the driver at 50 to 90 ns each; NumPy needs 10. Only the usual is read
here: whole numbers and texts of ordinary tables whose rows lie within their page. For anything else, and for whatever
looks damaged, `Unusual` is raised and SQLite reads the table (`sqlite_tables`). Format: sqlite.org/fileformat2.html.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from xsp_post.arrays.cutting import distinct
from xsp_post.ingest.tables import Keep, Request, WantedColumn

_INNER, _LEAF = 0x05, 0x0D  # first byte of the pages of a table
_MOST_LEVELS = 20
_CHUNK_BYTES = 2 << 20  # decoded at once: small enough for the processor's cache
_OFTEN = 4  # a text that is there so often on average stands once
_PIECE_ROWS = 1 << 16  # of a column of one value
_MANY = 0x80  # of a byte of a number of several bytes: more follow
_LONGEST_VALUE = 8
# Sizes of values by their type of one byte: nothing, six sizes of whole numbers, a float, 0, 1, two that are reserved
_BEYOND = 1 << 40  # for what is reserved: no row is as long
_SIZES = np.array(
    [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, _BEYOND, _BEYOND, *((k - 12) // 2 for k in range(12, _MANY))], np.int64
)
_SHIFTS = np.where(_SIZES[:10] > 0, 64 - 8 * _SIZES[:10], 63)  # of eight bytes read at the value
_AT_ONCE = 8  # types that are read as one number
_NULL, _FLOAT, _ZERO, _ONE, _FIRST_TEXT = 0, 7, 8, 9, 12


class Unusual(Exception):
    """The table is not of the kind that is read here."""


class Stored(NamedTuple):
    """A table in the file: its first page, its columns as stored, and the one that stands for the row number."""

    root_page: int
    columns: tuple[str, ...]
    row_number: str = ""


class PageFile:
    """The pages of one database, read-only. Raises `Unusual` where the file is not of the usual kind."""

    def __init__(self, path: Path) -> None:
        if not hasattr(os, "preadv"):  # Windows
            raise Unusual
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        head = os.pread(self._file, 100, 0)
        stated = int.from_bytes(head[16:18], "big")
        self.page_bytes = 65536 if stated == 1 else stated
        is_utf8 = head[56:60] == b"\0\0\0\1"
        if len(head) < 100 or not is_utf8 or self.page_bytes < 512 or self.page_bytes & (self.page_bytes - 1):
            self.close()
            raise Unusual
        self.usable_bytes = self.page_bytes - head[20]
        self.page_count = os.fstat(self._file).st_size // self.page_bytes
        self._buffer = np.zeros(0, np.uint8)

    def close(self) -> None:
        os.close(self._file)

    def read(self, pages: np.ndarray) -> np.ndarray:
        """The bytes of some pages one after the other, and a few more so that every value can be read as eight; until
        others are read."""
        size = len(pages) * self.page_bytes + _LONGEST_VALUE
        if len(self._buffer) < size:
            self._buffer = np.zeros(size, np.uint8)
        buffer = self._buffer[:size]
        view = buffer.data
        edges = np.flatnonzero(np.diff(pages) != 1) + 1
        for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(pages)]):
            wanted = view[first * self.page_bytes : last * self.page_bytes]
            if os.preadv(self._file, [wanted], (int(pages[first]) - 1) * self.page_bytes) != len(wanted):
                raise Unusual
        return buffer

    def leaves(self, root_page: int) -> np.ndarray:
        """The pages that hold the rows of a table, in order."""
        pages = np.array([root_page], np.int64)
        for _ in range(_MOST_LEVELS):
            if pages.min() < 1 or pages.max() > self.page_count or len(distinct(pages)) != len(pages):
                raise Unusual
            first = self.read(pages[:1])[0]
            if first == _LEAF:
                return pages
            parts = [self._children(chunk) for chunk in self.chunks(pages)]
            pages = np.concatenate(parts)
        raise Unusual

    def _children(self, pages: np.ndarray) -> np.ndarray:
        page = _Page(self, pages, _INNER, 12)
        below, last = page.word(">u4")[page.cells], page.word(">u4")[page.base + 8]
        return np.insert(below.astype(np.int64), np.cumsum(page.counts), last)

    def chunks(self, pages: np.ndarray) -> Iterator[np.ndarray]:
        step = max(1, _CHUNK_BYTES // self.page_bytes)
        for first in range(0, len(pages), step):
            yield pages[first : first + step]


class _Page:
    """Some pages in memory: where their cells lie."""

    def __init__(self, file: PageFile, pages: np.ndarray, kind: int, head_bytes: int) -> None:
        self.bytes = file.read(pages)
        self.base = np.arange(len(pages)) * file.page_bytes
        if (self.bytes[self.base] != kind).any():
            raise Unusual
        short = self.word(">u2")
        self.counts = short[self.base + 3].astype(np.int64)
        most = int(self.counts.max())
        if most * 2 + head_bytes > file.usable_bytes:
            raise Unusual
        base = np.repeat(self.base, self.counts)
        whole = self.bytes[: len(pages) * file.page_bytes].reshape(len(pages), file.page_bytes)
        listed = whole[:, head_bytes : head_bytes + 2 * most].view(">u2")
        offset = listed[np.arange(most) < self.counts[:, np.newaxis]].astype(np.int64)
        if len(offset) and (int(offset.min()) < head_bytes or int(offset.max()) > file.usable_bytes - 4):
            raise Unusual
        self.cells = base + offset
        self.ends = base + file.usable_bytes

    def word(self, dtype: str) -> np.ndarray:
        """A number that begins at each byte."""
        size = np.dtype(dtype).itemsize
        return np.ndarray((len(self.bytes) - size + 1,), dtype, self.bytes, strides=(1,))


def read_table(
    file: PageFile, stored: Stored, request: Request, row_count: int, pages: np.ndarray, sample: np.ndarray
) -> tuple[pa.Table, list[int]]:
    """The wanted columns of all rows of pages, and the row numbers of the rows at the places ``sample`` (ascending).

    Raises `Unusual` where they cannot be read here, or are not ``row_count``.
    """
    columns = {w.alias: _Column(w, stored, row_count) for w in request.wants}
    done = 0
    row_numbers: list[int] = []
    for some in file.chunks(pages):
        rows = _Rows(_Page(file, some, _LEAF, 8), file.usable_bytes)
        if done + len(rows.at) > row_count:
            raise Unusual
        if len(rows.at):
            rows.fill(list(columns.values()), slice(done, done + len(rows.at)))
            first, last = np.searchsorted(sample, (done, done + len(rows.at)))
            row_numbers += rows.row_number[sample[first:last] - done].tolist()
        done += len(rows.at)
    if done != row_count:
        raise Unusual
    return pa.table({alias: column.arrow() for alias, column in columns.items()}), row_numbers


def read_kept(
    file: PageFile, stored: Stored, request: Request, keep: Keep, row_count: int, pages: np.ndarray
) -> tuple[pa.Table, np.ndarray]:
    """The same of those rows alone that are to be kept, with all their row numbers."""
    schema = pa.schema([(w.alias, w.arrow_type) for w in request.wants])
    parts, numbers, done = [], [np.zeros(0, np.int64)], 0
    for _, rows, columns in _chunk_by_chunk(file, stored, request, pages):
        batch = pa.record_batch([column.whole() for column in columns], schema=schema)
        is_kept = keep(batch)
        parts.append(batch.filter(pa.array(is_kept)))
        numbers.append(rows.row_number[is_kept])
        done += len(rows.at)
    if done != row_count:
        raise Unusual
    return pa.Table.from_batches(parts, schema), np.concatenate(numbers)


class Zones(NamedTuple):
    """The pages of a table, how many rows each has, and the least and the greatest of some numbers in each."""

    pages: np.ndarray
    counts: np.ndarray
    least: dict[str, np.ndarray]
    most: dict[str, np.ndarray]


def zones(file: PageFile, stored: Stored, request: Request) -> Zones:
    """Where the wanted numbers of a table lie. Raises `Unusual`."""
    pages, counts = file.leaves(stored.root_page), []
    least: dict[str, list[np.ndarray]] = {w.column: [] for w in request.wants}
    most: dict[str, list[np.ndarray]] = {w.column: [] for w in request.wants}
    for page, _, columns in _chunk_by_chunk(file, stored, request, pages):
        if not page.counts.all():
            raise Unusual
        begins = np.cumsum(page.counts) - page.counts
        counts.append(page.counts)
        for want, column in zip(request.wants, columns):
            values = column.whole().to_numpy()
            least[want.column].append(np.minimum.reduceat(values, begins))
            most[want.column].append(np.maximum.reduceat(values, begins))
    bounds = ({name: np.concatenate(parts) for name, parts in of.items()} for of in (least, most))
    return Zones(pages, np.concatenate(counts), *bounds)


def _chunk_by_chunk(
    file: PageFile, stored: Stored, request: Request, pages: np.ndarray
) -> "Iterator[tuple[_Page, _Rows, list[_Column]]]":
    for some in file.chunks(pages):
        page = _Page(file, some, _LEAF, 8)
        rows = _Rows(page, file.usable_bytes)
        columns = [_Column(want, stored, len(rows.at)) for want in request.wants]
        rows.fill(columns, slice(0, len(rows.at)))
        yield page, rows, columns


def longest_row(file: PageFile, stored: Stored) -> int:
    """Bytes of the table's longest row, from the pages where rows begin. Raises `Unusual`."""
    pages = (_Page(file, some, _LEAF, 8) for some in file.chunks(file.leaves(stored.root_page)))
    return max((int(_number(page, page.cells)[0].max(initial=0)) for page in pages), default=0)


class _Column:
    """A wanted column: its place among the stored ones, and its values so far."""

    def __init__(self, want: WantedColumn, stored: Stored, row_count: int) -> None:
        if isinstance(want.default, float):
            raise Unusual
        name = want.name_in(frozenset(stored.columns))
        self.index = stored.columns.index(name) if name else -1
        self.is_row_number = want.column == "ROWID" or bool(name and name == stored.row_number)
        self.default: Any = want.default
        self.is_text = isinstance(want.default, bytes)
        self.parts: list[pa.Array] = []
        self.is_repeated = False
        self.row_count, self.dtype = row_count, np.int32 if want.is_narrow else np.int64
        self.values: np.ndarray | None = None  # while all rows are one value: that value alone
        if not self.is_text:
            self.value = np.array([self.default], np.int64)
        elif self.index < 0 or self.is_row_number:
            raise Unusual

    def put(self, where: slice, values: np.ndarray) -> None:
        """The next rows: a number each, or one of all."""
        if self.values is None:
            if not where.start:
                self.value = values[:1].copy()
            if values[0] == self.value[0] == values[-1] and (values == values[0]).all():
                return
            self.values = np.empty(self.row_count, self.dtype)
            self.values[: where.start] = self.value
        self.values[where] = values

    def put_texts(self, part: pa.Array) -> None:
        """The next rows: each different text once, where they say the same again and again."""
        if not self.parts and len(part) < self.row_count:
            self.is_repeated = len(part) >= _OFTEN * len(part.dictionary_encode().dictionary)
        self.parts.append(part.dictionary_encode() if self.is_repeated else part)

    def whole(self) -> pa.Array:
        """The values of a column that was put at once."""
        if self.is_text:
            return self.parts[0] if self.parts else pa.array([], pa.binary())
        if self.values is None:
            return pa.array(np.repeat(self.value.astype(self.dtype), self.row_count))
        return pa.array(self.values)

    def arrow(self) -> pa.Array | pa.ChunkedArray:
        """The values; one value as a short piece that is there again and again (`nsys_strings.numbers`)."""
        if self.is_text:
            return pa.chunked_array(self.parts, None if self.is_repeated else pa.binary()).unify_dictionaries()
        if self.values is not None:
            return pa.array(self.values)
        piece = pa.array(np.repeat(self.value.astype(self.dtype), min(self.row_count, _PIECE_ROWS)))
        return pa.chunked_array(
            [piece[: self.row_count - first] for first in range(0, self.row_count, _PIECE_ROWS)], piece.type
        )


class _Rows:
    """The rows of some pages, read column by column from the left."""

    def __init__(self, page: _Page, usable_bytes: int) -> None:
        self.bytes, self.word = page.bytes, page.word
        length, at = _number(page, page.cells)
        self.row_number, at = _number(page, at)
        head = self.bytes[at]
        self.stop = at + length
        if len(at) and (length.max() > usable_bytes - 35 or (self.stop > page.ends).any() or head.max() >= _MANY):
            raise Unusual
        self.at = at  # where the row's list of types is
        self.body = at + head

    def fill(self, columns: list[_Column], where: slice) -> None:
        """The values of these rows into the columns."""
        wanted: dict[int, list[_Column]] = {}
        for column in columns:
            if column.is_row_number:
                column.put(where, self.row_number)
            elif column.index >= 0:
                wanted.setdefault(column.index, []).append(column)
        types = self.word("<u8")
        at, value_at, skipped, used = self.at, self.body, 0, _AT_ONCE
        for index in range(max(wanted, default=-1) + 1):
            if used == _AT_ONCE:
                read, used = types[1 + index :][at], 0
                first, differing = int(read[0]), int(np.bitwise_or.reduce(read ^ read[0]))
                several = int(np.bitwise_or.reduce(read))
            if several >> 8 * used & _MANY:  # of several bytes: what follows lies further on
                kind, at = self._long_kinds(read.view(np.uint8)[used::_AT_ONCE], at, 1 + index)
                used = _AT_ONCE
            else:
                is_alike = not differing >> 8 * used & 0xFF
                kind = np.array([first >> 8 * used & 0xFF]) if is_alike else read.view(np.uint8)[used::_AT_ONCE].copy()
                used += 1
            size = _sizes(kind)  # one of all rows, or one of each
            for column in wanted.get(index, ()):
                place = value_at if not skipped else value_at + skipped
                if column.is_text:
                    column.put_texts(self._texts(kind, size, place))
                else:
                    self._integers(kind, place, column, where)
            if len(kind) == 1:
                skipped += int(size[0])
            else:
                value_at = value_at + (size + skipped if skipped else size)
                skipped = 0
        # a row that has fewer columns, or values that go beyond its end
        if (at + 1 + max(wanted, default=-1) >= self.body).any() or (value_at + skipped > self.stop).any():
            raise Unusual

    def _long_kinds(self, kind: np.ndarray, at: np.ndarray, offset: int) -> tuple[np.ndarray, np.ndarray]:
        """Types of up to three bytes (long texts), and the places from which the next ones count."""
        long = kind >= _MANY
        kind = (kind & 0x7F).astype(np.int64)
        for _ in range(2):
            at = at + long
            byte = self.bytes[offset:][at]
            kind = np.where(long, kind << 7 | (byte & 0x7F), kind)
            long = long & (byte >= _MANY)
            if not long.any():
                return kind, at
        raise Unusual

    def _integers(self, kind: np.ndarray, place: np.ndarray, column: _Column, where: slice) -> None:
        constants = {_NULL: column.default, _ZERO: 0, _ONE: 1}
        if len(kind) == 1 and int(kind[0]) in constants:
            column.put(where, np.array([constants[int(kind[0])]], np.int64))
            return
        if (kind > _ONE).any() or (kind == _FLOAT).any():
            raise Unusual
        read = self.word(">i8")[place]
        values = read.byteswap(inplace=True).view(read.dtype.newbyteorder())
        values >>= _SHIFTS[kind]
        for constant, value in constants.items():
            here = kind == constant
            if here.any():
                values[here] = value
        column.put(where, values)

    def _texts(self, kind: np.ndarray, size: np.ndarray, place: np.ndarray) -> pa.Array:
        """Texts (of NULL the empty one): those of one length are copied at once."""
        if ((kind != _NULL) & (kind < _FIRST_TEXT)).any():
            raise Unusual
        kind, size = np.broadcast_to(kind, place.shape), np.broadcast_to(size, place.shape)
        offsets = np.zeros(len(place) + 1, np.int64)
        np.cumsum(size, out=offsets[1:])
        if offsets[-1] > len(self.bytes):  # rows that lie over one another
            raise Unusual
        data = np.empty(int(offsets[-1]), np.uint8)
        order = np.argsort(kind, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
            if length := int(size[rows[0]]):
                _stretches(data, length)[offsets[rows]] = _stretches(self.bytes, length)[place[rows]]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(place), buffers)


def _number(page: _Page, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of one to eight bytes at each place, and the place after it."""
    byte = page.bytes[at]
    value, at = (byte & 0x7F).astype(np.int64), at + 1
    more = byte >= _MANY
    for _ in range(7):
        if not more.any():
            return value, at
        byte = page.bytes[at]
        if more.all():
            value = value << 7 | (byte & 0x7F)
            at += 1
            more = byte >= _MANY
        else:
            value = np.where(more, value << 7 | (byte & 0x7F), value)
            at += more
            more &= byte >= _MANY
    raise Unusual


def _stretches(data: np.ndarray, length: int) -> np.ndarray:
    """So many bytes that begin at each byte."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))


def _sizes(kind: np.ndarray) -> np.ndarray:
    """Bytes of values of these types."""
    if kind.dtype == np.uint8:
        return _SIZES[kind]
    return np.where(kind < _MANY, _SIZES[np.minimum(kind, _MANY - 1)], (kind - 12) // 2)
