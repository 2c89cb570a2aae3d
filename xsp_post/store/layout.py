"""Analysis → store: the layout of large tables, by which a million rows are written and read in a second.

Of a large table every text stands once, in ``strings``; what is the same for all rows, and in some tables for many (a
kernel's name, launch dimensions, stream; a node's path, domain, thread), stands once, in ``<table>_kinds``; and the
rows hold numbers only. A view with the table's name shows it as one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.schemas import optional_columns
from xsp_post.store.pages import LEAST_ROWS

_READ_FIRST = "captures"  # the table of the sources: read by itself
_AT_ONCE = 10_000  # texts looked through together
SQL_TYPES = {"i": "INTEGER", "u": "INTEGER", "b": "INTEGER", "f": "FLOAT"}
STRING = "_string_id"


@dataclass(frozen=True)
class Layout:
    """One large table: what its parts are called, key, columns that repeat, and columns the view computes (SQL over
    ``r``)."""

    stem: str
    key: str = ""
    repeated: tuple[str, ...] = ()
    computed: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> str:
        return f"{self.stem}_rows"

    @property
    def kinds(self) -> str:
        return f"{self.stem}_kinds"

    @property
    def kind_id(self) -> str:
        return f"{self.stem}_kind_id"


# What always is a large table; others are one where they have many rows
LAYOUTS: dict[str, Layout] = {
    "nodes": Layout(
        "node", "node_id",
        ("capture_id", "depth", "level", "folded_name", "path_id", "domain", "process_id", "thread_id", "layer_type",
         "dialect", "is_inferred", "is_open", "span_kind"),
        (("duration_ns", "r.end_ns - r.start_ns"), ("device_ns", "r.kernel_ns + r.copy_ns + r.graph_ns")),
    ),
    "kernels": Layout(
        "kernel", "kernel_id",
        ("capture_id", "name", "short_name", "process_id", "device_id", "stream_id", "launch_thread_id", "attribution",
         "layer_attribution", "graph_node_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
         "registers_per_thread", "static_shared_memory_bytes", "dynamic_shared_memory_bytes"),
        (
            ("duration_ns", "r.end_ns - r.start_ns"),
            ("queue_delay_ns", "r.start_ns - r.launch_start_ns"),
        ),
    ),
    "memory_operations": Layout("memory_operation", "activity_id"),
    "layers": Layout("layer"),
    "idle": Layout("idle", "", ("capture_id", "device_id", "cause", "call_name", "detail")),
    "operations": Layout("operation"),
    "memory_timeline": Layout("memory_timeline"),
}  # fmt: skip


def layout_of(name: str) -> Layout:
    """How a large table of this name is laid out."""
    return LAYOUTS.get(name) or Layout(name.removesuffix("s"))


def is_split(name: str, frame: pd.DataFrame) -> bool:
    """Whether a table is laid out as a large one: some always are, others where they have many rows and texts."""
    is_large = len(frame) >= LEAST_ROWS and name != _READ_FIRST
    return name in LAYOUTS or (is_large and any(_is_text(frame[c]) for c in frame.columns))


def is_part(table: str) -> bool:
    """Whether a table of the file is a part of others, or says what wrote it."""
    return table in ("strings", "xsp_meta") or table.endswith(("_rows", "_kinds"))


@dataclass
class SplitTable:
    """One large table ready to be written: (table name, column types, rows) of its parts, and its view."""

    parts: list[tuple[str, dict[str, str], pa.Table]]
    view: str


class Strings:
    """Texts, each once, in the order they were first met."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}
        # of the texts of a column their ids; the same ones stand in many columns, and are looked up once
        self._known: dict[tuple[int, Any, Any], list[tuple[pd.Index, np.ndarray]]] = {}

    def column(self, series: pd.Series, *, missing: str | None = None) -> np.ndarray:
        """String ids of a text column (int32); of a missing text that of ``missing``, without it −1."""
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes, texts = series.cat.codes.to_numpy(), series.cat.categories
        else:
            codes, texts = pd.factorize(series)
            texts = pd.Index(texts)
        ids = np.append(self._ids(texts), np.int32(-1))
        if missing is not None and len(codes) and codes.min() < 0:
            ids[-1] = self._ids(pd.Index([missing]))[0]
        return ids[codes]

    def _ids(self, index: pd.Index) -> np.ndarray:
        """String ids of different texts."""
        if index.empty:
            return np.zeros(0, np.int32)
        alike = self._known.setdefault((len(index), index[0], index[-1]), [])
        for other, ids in alike:
            if other is index or bool((other.to_numpy(object) == index.to_numpy(object)).all()):
                return ids
        alike.append((index, self._number(list(map(str, index.tolist())))))
        return alike[-1][1]

    def _number(self, texts: list[str]) -> np.ndarray:
        found = np.fromiter(map(self._index.get, texts, repeat(-1)), np.int32, len(texts))
        missing = np.flatnonzero(found < 0)
        fresh = texts if len(missing) == len(texts) else [texts[i] for i in missing.tolist()]
        numbers = np.arange(len(self.texts), len(self.texts) + len(fresh))
        self._index.update(zip(fresh, numbers.tolist()))
        found[missing] = numbers
        for at in range(0, len(fresh), _AT_ONCE):
            some = fresh[at : at + _AT_ONCE]
            together = "".join(some)
            self.texts += some if together.isascii() and "\x00" not in together else map(storable, some)
        return found


def split_table(name: str, frame: pd.DataFrame, strings: Strings) -> SplitTable:
    """Split a large table into rows, kinds and texts."""
    layout = layout_of(name)
    missing = "" if name in LAYOUTS else None
    frame = frame.drop(columns=[c for c, _ in layout.computed if c in frame])
    optional = optional_columns(name)
    parts = []
    repeated = [c for c in layout.repeated if c in frame]
    found = _kinds(frame, repeated) if repeated else None
    kind, first = found or (np.zeros(len(frame), np.int8), np.zeros(1, np.int64))
    if found is None:
        repeated = []
    if len(frame) >= LEAST_ROWS:
        repeated += [c for c in frame.columns if c not in (*repeated, layout.key) and _is_constant(frame[c])]
    rows = {c: _values(frame[c], strings, missing) for c in frame.columns if c not in repeated}
    if repeated:
        kinds = {layout.kind_id: np.arange(len(first))}
        some = frame[repeated].iloc[first]
        kinds.update({c: _values(some[c], strings, missing) for c in repeated})
        parts.append(_part(layout.kinds, some, kinds, optional))
        rows[layout.kind_id] = kind
    parts.append(_part(layout.rows, frame, rows, optional))
    return SplitTable(parts, _view(name, layout, list(frame.columns), frame, repeated))


def _kinds(frame: pd.DataFrame, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Number the different combinations of some columns: number per row, and a first row per number. None where hardly
    any row repeats: kinds would cost more than they save."""
    from xsp_post.analyses.frames import dense

    most = (len(frame) + 3000) // 3
    keys: list[Any] = []
    for column in columns:
        values = _numbers(frame[column])
        if values.dtype.kind not in "iu":
            values = pd.factorize(values, use_na_sentinel=False)[0]
        elif _is_text(frame[column]) and np.count_nonzero(np.bincount(values.astype(np.int64) + 1)) > most:
            return None
        keys.append(values)
    kind, first = dense(*keys)
    return (kind.astype(np.int32), first) if len(first) <= most else None


def _is_constant(series: pd.Series) -> bool:
    values = _numbers(series)
    if values.dtype.kind == "f":
        values = values.view(f"i{values.itemsize}")  # unknown is the same as unknown
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _numbers(series: pd.Series) -> np.ndarray:
    return series.cat.codes.to_numpy() if isinstance(series.dtype, pd.CategoricalDtype) else series.to_numpy()


def _is_text(series: pd.Series) -> bool:
    return isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind not in SQL_TYPES


def _values(series: pd.Series, strings: Strings, missing: str | None) -> np.ndarray:
    return strings.column(series, missing=missing) if _is_text(series) else series.to_numpy()


def _part(
    table: str, frame: pd.DataFrame, columns: dict[str, np.ndarray], optional: frozenset[str]
) -> tuple[str, dict[str, str], pa.Table]:
    types: dict[str, str] = {}
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        text = name in frame and _is_text(frame[name])
        stored = name + STRING if text else name
        types[stored] = SQL_TYPES[values.dtype.kind]
        arrays[stored] = number_array(values, text or name in optional)
    return table, types, pa.table(arrays)


def _view(name: str, layout: Layout, columns: list[str], frame: pd.DataFrame, repeated: list[str]) -> str:
    select, joins = [], []
    if repeated:
        joins.append(f'LEFT JOIN "{layout.kinds}" k ON k."{layout.kind_id}" = r."{layout.kind_id}"')
    for column in columns:
        owner = "k" if column in repeated else "r"
        if _is_text(frame[column]):
            alias = f"s{len(joins)}"
            joins.append(f'LEFT JOIN strings {alias} ON {alias}.string_id = {owner}."{column}{STRING}"')
            select.append(f'{alias}.text AS "{column}"')
        else:
            select.append(f'{owner}."{column}"')
    for column, sql in layout.computed:
        owned = re.sub(r"\br\.(\w+)", lambda name: f'{"k" if name[1] in repeated else "r"}."{name[1]}"', sql)
        select.append(f'{owned} AS "{column}"')
    return f'CREATE VIEW "{name}" AS SELECT ' + ",\n  ".join(select) + f'\nFROM "{layout.rows}" r\n' + "\n".join(joins)


def storable(text: str) -> str:
    """SQLite text ends at a NUL for many readers: show it instead. Lone surrogates cannot be encoded."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\u2400").encode("utf-8", "replace").decode("utf-8")


def number_array(values: np.ndarray, is_optional: bool = False) -> pa.Array:
    """Numbers as Arrow; booleans as 0/1, NaN as NULL, and so is the −1 of an integer that may be unknown."""
    if values.dtype == bool:
        values = values.view(np.int8)
    known = values != -1 if is_optional and values.dtype.kind == "i" else np.ones(1, bool)
    if known.all():
        return pa.array(values, from_pandas=values.dtype.kind == "f")
    # as pa.array(mask=…), but the numbers are not copied
    buffers = [pa.py_buffer(np.packbits(known, bitorder="little")), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def sql_type(series: pd.Series) -> str:
    return SQL_TYPES.get(series.dtype.kind if isinstance(series.dtype, np.dtype) else "O", "TEXT")


def plain_table(frame: pd.DataFrame, optional: frozenset[str]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name in frame.columns:
        series = frame[name]
        if sql_type(series) != "TEXT":
            columns[str(name)] = number_array(series.to_numpy(), name in optional)
        else:
            columns[str(name)] = _text_array(series)
    return pa.table(columns)


def _text_array(series: pd.Series | pd.Index) -> pa.Array | pa.ChunkedArray:
    """Texts as Arrow; missing values are NULL."""
    if isinstance(series, pd.Series) and isinstance(series.dtype, pd.CategoricalDtype):
        if len(series) < len(series.cat.categories):
            series = series.cat.remove_unused_categories()
        codes = series.cat.codes.to_numpy()
        return _text_array(series.cat.categories).take(pa.array(codes, mask=codes < 0))
    try:
        texts = pa.array(series, pa.string(), from_pandas=True)
        if not _holds_nul(texts):
            return texts
    except (TypeError, ValueError):  # something else than texts, or a text that cannot be encoded
        pass
    return pa.array([None if pd.isna(value) else storable(str(value)) for value in series.astype(object)], pa.string())


def _holds_nul(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a NUL is in any of the texts (or beside them, in what their memory holds)."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    for chunk in chunks:
        ends, data = (np.frombuffer(buffer or b"", kind) for buffer, kind in zip(chunk.buffers()[1:], ("i4", "u1")))
        held = data[: ends[chunk.offset + len(chunk)]] if len(chunk) else data[:0]
        if len(held) and not held.min():
            return True
    return False
