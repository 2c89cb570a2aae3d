"""Analysis → store: the layout of large tables, in which a row takes few bytes.

Of a large table every text stands once, in ``strings``; columns in which many rows are alike (a kernel's name, launch
dimensions, stream; a range's path, thread, number of kernels) stand once a kind of row, in ``<table>_kinds``; and the
rows hold small numbers only (`store.numbers`), above the bases in ``<table>_bases``. A view with the table's name shows
it as one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.repeats import dense
from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.model.schemas import optional_columns
from xsp_post.store.numbers import ABOVE, COMPUTED, MINUS, STRING, Bases, Numbers, StoredName

LEAST_ROWS = 10_000  # a table of fewer rows is small whatever it holds
_READ_FIRST = "captures"  # the table of the sources: read by itself
SQL_TYPES = {"i": "INTEGER", "u": "INTEGER", "b": "INTEGER", "f": "FLOAT"}
_SAMPLES, _SAMPLED = 16, 2048  # stretches of rows that say which columns repeat, and rows of each
_KIND_BYTES = 200  # what a kind of row takes, and what it costs to find it, in bytes of a row
_STRETCH_ROWS = 1024
_FEW_ROWS = 3000  # of fewer rows kinds may be many


def _with_ending(ending: str) -> property:
    return property(lambda layout: f"{layout.stem}{ending}")


@dataclass(frozen=True)
class Layout:
    """One large table: what its parts are called, its key, columns that always repeat, columns that are stored as their
    difference to another one, and columns that the view computes."""

    stem: str
    key: str = ""
    repeated: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()  # column-other
    computed: tuple[str, ...] = ()

    rows, kinds, bases = map(_with_ending, ("_rows", "_kinds", "_bases"))
    kind_id, base_id = map(_with_ending, ("_kind_id", "_base_id"))


def _read() -> dict[str, Layout]:
    found: dict[str, Layout] = {}
    for block in read_blocks(Path(__file__).with_name("layouts.txt")):
        lists: dict[str, Any] = {name: tuple(text.split()) for name, text in block.texts().items()}
        stem, *key = block.title.split()
        found[block.name] = Layout(stem, "".join(key), **lists)
    return found


LAYOUTS = TextTable(_read)


# Each million entries cost a fifth of a second; children of a node and kernels of a layer are found by a scan in less.
INDEXED = {"kernel_metrics": ("kernel_id",)}


def layout_of(name: str) -> Layout:
    """How a large table of this name is laid out."""
    return LAYOUTS.get(name) or Layout(name.removesuffix("s"))


def is_split(name: str, frame: pd.DataFrame) -> bool:
    """Whether a table is laid out as a large one: some always are, others where they have many rows and texts."""
    is_large = len(frame) >= LEAST_ROWS and name != _READ_FIRST
    return name in LAYOUTS or (is_large and any(_is_text(frame[c]) for c in frame.columns))


def is_part(table: str) -> bool:
    """Whether a table of the file is a part of others, or says what wrote it."""
    return table in ("strings", "xsp_meta", STRETCHES) or table.endswith(("_rows", "_kinds", "_bases"))


@dataclass
class SplitTable:
    """One large table ready to be written: (table name, column types, rows) of its parts, and its view."""

    parts: list[tuple[str, dict[str, str], pa.Table]]
    view: str


STRETCHES = "stretches"
STRETCH_COLUMNS = {
    "of_table": "TEXT", "first_row": "INTEGER", "last_row": "INTEGER", "least_start_ns": "INTEGER",
    "most_end_ns": "INTEGER", "least_iteration": "INTEGER", "most_iteration": "INTEGER",
}  # fmt: skip


def stretches(name: str, frame: pd.DataFrame) -> pa.Table:
    """Where in a large table which times and model executions (−1: of none) are: one row per thousand rows, by SQLite's
    number of the first and the last of them."""
    count = len(frame)
    begins = np.arange(0, count, _STRETCH_ROWS)
    key = layout_of(name).key
    numbers = frame[key].to_numpy() if key in frame else np.arange(1, count + 1)

    def of(put: np.ufunc, *columns: str) -> pa.Array:
        known = [put.reduceat(frame[one].fillna(-1).to_numpy(np.int64), begins) for one in columns if one in frame]
        return pa.array(put.reduce(known) if known else [None] * len(begins), pa.int64())

    return pa.table({
        "of_table": pa.array([name] * len(begins)), "first_row": np.minimum.reduceat(numbers, begins),
        "last_row": np.maximum.reduceat(numbers, begins), "least_start_ns": of(np.minimum, "start_ns"),
        "most_end_ns": of(np.maximum, "start_ns", "end_ns"), "least_iteration": of(np.minimum, "iteration_index"),
        "most_iteration": of(np.maximum, "iteration_index"),
    })  # fmt: skip


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
        self.texts += fresh
        return found


def split_table(name: str, frame: pd.DataFrame, strings: Strings) -> SplitTable:
    layout = layout_of(name)
    alone = {layout.key, *INDEXED.get(name, ())}
    columns = _stored(name, layout, frame, strings)
    numbering = Bases.of(frame["iteration_index"].to_numpy() if "iteration_index" in frame else None, len(frame))
    bases: dict[str, Numbers] = {}
    for column in [column for column in columns if column not in alone and not column.endswith(STRING)]:
        found = numbering.above(columns[column])
        if found is not None:
            columns[column], bases[column] = found[0], Numbers(found[1])
    columns = {column + ABOVE * (column in bases): numbers for column, numbers in columns.items()}
    shared, kind, first = _kinds(columns, alone, layout.repeated)
    rows = {column: numbers for column, numbers in columns.items() if column not in shared}
    parts: list[tuple[str, dict[str, Numbers]]] = []
    if shared:
        kinds = {column: columns[column].take(first) for column in shared}
        parts.append((layout.kinds, {layout.kind_id: Numbers(np.arange(len(first))), **kinds}))
        rows[layout.kind_id] = Numbers(kind)
    if bases:
        parts.append((layout.bases, {layout.base_id: Numbers(np.arange(numbering.count)), **bases}))
        rows[layout.base_id] = Numbers(numbering.number)
    parts.append((layout.rows, rows))
    written = [
        (table, {column: SQL_TYPES[numbers.values.dtype.kind] for column, numbers in part.items()},
         pa.table({column: numbers.arrow() for column, numbers in part.items()}))
        for table, part in parts
    ]  # fmt: skip
    return SplitTable(written, _view(name, layout, frame, columns, set(shared), set(bases)))


def _stored(name: str, layout: Layout, frame: pd.DataFrame, strings: Strings) -> dict[str, Numbers]:
    """What is stored of each column: numbers of texts, differences, numbers."""
    missing, optional = "" if name in LAYOUTS else None, optional_columns(name)
    differences = dict(pair.split("-") for pair in layout.differences)
    result: dict[str, Numbers] = {}
    for column in frame.columns:
        if column in layout.computed:
            continue
        if _is_text(frame[column]):
            result[column + STRING] = Numbers.of(strings.column(frame[column], missing=missing), is_optional=True)
            continue
        numbers = Numbers.of(frame[column].to_numpy(), column in optional)
        other = differences.get(column, "")
        less = _difference(numbers, frame, other, optional) if other in frame else None
        result[column if less is None else f"{column}{MINUS}{other}"] = numbers if less is None else less
    return result


def _difference(numbers: Numbers, frame: pd.DataFrame, other: str, optional: frozenset[str]) -> Numbers | None:
    """The column less another one; None where that one is unknown of a row that has a number."""
    of = Numbers.of(frame[other].to_numpy(), other in optional)
    if of.unknown is not None and (numbers.unknown is None or (of.unknown & ~numbers.unknown).any()):
        return None
    return numbers.minus(of.values)


def _kinds(
    columns: dict[str, Numbers], alone: set[str], repeated: tuple[str, ...]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The columns that kinds of rows hold, the kind of each row, and a row of each kind.

    Kinds hold the columns in which rows are so often alike that this takes fewer bytes, as far as some thousand rows
    say; ``repeated`` ones are looked at first, those ``alone`` never.
    """
    count = len(next(iter(columns.values())).values) if columns else 0
    often = {name + end for name in repeated for end in ("", STRING)}
    sample = _sample(count)
    some = {name: numbers.take(sample) for name, numbers in columns.items() if name not in alone}
    kinds, kind_count = np.zeros(len(sample), np.int64), min(count, 1)
    keys, followers = [], []
    for name in sorted(some, key=lambda name: name not in often):
        merged, first = dense(kinds, some[name].codes())
        if len(first) == kind_count:
            followers.append(name)
        elif (len(first) - kind_count) * _KIND_BYTES <= (1 + some[name].width()) * len(sample):
            kinds, kind_count = merged, len(first)
            keys.append(name)
    kind, first = dense(np.zeros(count, np.int8), *(columns[name].codes() for name in keys))
    if len(first) > (count + _FEW_ROWS) // 3:  # kinds would cost more than they save
        keys, kind, first = [], np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
    kind = kind.astype(np.int32)
    shared = {*keys, *(name for name in followers if columns[name].follows(kind, first))}
    return [name for name in columns if name in shared], kind, first


def _sample(count: int) -> np.ndarray:
    """Rows that say which columns repeat: stretches of neighbours."""
    if count <= _SAMPLES * _SAMPLED:
        return np.arange(count)
    begins = np.linspace(0, count - _SAMPLED, _SAMPLES).astype(np.int64)
    return (begins[:, None] + np.arange(_SAMPLED)).ravel()


def _is_text(series: pd.Series) -> bool:
    return isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind not in SQL_TYPES


def _view(
    name: str, layout: Layout, frame: pd.DataFrame, columns: Iterable[str], shared: set[str], bases: set[str]
) -> str:
    """The table as one, with each column's own numbers."""
    joins = [
        f'LEFT JOIN "{part}" {alias} ON {alias}."{number}" = r."{number}"'
        for part, alias, number, is_there in (
            (layout.kinds, "k", layout.kind_id, shared), (layout.bases, "b", layout.base_id, bases))
        if is_there
    ]  # fmt: skip
    by_own = {one.own: one for one in map(StoredName.of, columns)}

    def sql(column: str) -> str:
        if column not in by_own:
            signed = [f"{'-' if term[0] == '-' else '+'} {sql(term.lstrip('-'))}" for term in COMPUTED[column]]
            return f"({' '.join(signed).removeprefix('+ ')})"
        stored = by_own[column]
        terms = [f'{"k" if stored.text in shared else "r"}."{stored.text}"']
        terms += [f'b."{stored.without_base.text}"'] if stored.is_based else []
        terms += [sql(stored.other)] if stored.other else []
        return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"

    select = []
    for column in [*(c for c in frame.columns if c not in layout.computed), *layout.computed]:
        if column in by_own and by_own[column].is_text:
            alias = f"s{len(joins)}"
            joins.append(f"LEFT JOIN strings {alias} ON {alias}.string_id = {sql(column)}")
            select.append(f'{alias}.text AS "{column}"')
        else:
            select.append(f'{sql(column)} AS "{column}"')
    return f'CREATE VIEW "{name}" AS SELECT ' + ",\n  ".join(select) + f'\nFROM "{layout.rows}" r\n' + "\n".join(joins)


def sql_type(series: pd.Series) -> str:
    return SQL_TYPES.get(series.dtype.kind if isinstance(series.dtype, np.dtype) else "O", "TEXT")


def plain_table(frame: pd.DataFrame, optional: frozenset[str]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name in frame.columns:
        series = frame[name]
        if sql_type(series) != "TEXT":
            columns[str(name)] = Numbers.of(series.to_numpy(), name in optional).arrow()
        else:
            columns[str(name)] = text_array(series)
    return pa.table(columns)


def text_array(texts: pd.Series | pd.Index | list[str]) -> pa.Array | pa.ChunkedArray:
    """Texts as Arrow; missing values are NULL. SQLite text ends at a NUL for many readers: it is shown instead."""
    if isinstance(texts, pd.Series) and isinstance(texts.dtype, pd.CategoricalDtype):
        if len(texts) < len(texts.cat.categories):
            texts = texts.cat.remove_unused_categories()
        codes = texts.cat.codes.to_numpy()
        return text_array(texts.cat.categories).take(pa.array(codes, mask=codes < 0))
    try:
        array = pa.array(texts, pa.string(), from_pandas=True)
    except (TypeError, ValueError):  # something else than texts, or a text that cannot be encoded
        plain = (None if pd.isna(value) else str(value) for value in texts)
        array = pa.array([value and value.encode("utf-8", "replace").decode("utf-8") for value in plain], pa.string())
    return pc.replace_substring(array, "\x00", "\u2400")
