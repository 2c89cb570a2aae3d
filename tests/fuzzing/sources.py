"""A kind and a seed → one damaged source: exports by SQL and by bytes, JSON traces, counter reports, stores."""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

from builders import ExportBuilder

CANARY = "xsp-canary-fuzz"
SURROUNDINGS = ("fault", "signal")  # a whole export, the command in trouble (`fuzzing.surroundings`)
KINDS = (
    "export_sql", "export_bytes", "json", "jaeger", "ncu", "store_sql", "store_bytes", *SURROUNDINGS, "export_form",
)  # fmt: skip
SHARES = (30, 14, 20, 8, 1, 10, 6, 2, 2, 7)  # how often each kind comes, of a hundred

_SQL_VALUES = (
    "NULL", "0", "-1", "1", "4294967295", "9223372036854775807", "-9223372036854775808", "1e308", "9e999", "1.5",
    "'text'", f"'{CANARY}'", "''", "x''", "x'ff00fe'", "zeroblob(70000)", "'\x1b[31m'", "abs(random())", "rowid",
)  # fmt: skip
_ENCODINGS = ("UTF-8", "UTF-16le", "UTF-16be")
_LARGE = 3 * ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds")
_JSON_TOKENS = (
    "null", "true", "-1", "0", "1e400", "-0.0", "9" * 30, "9" * 5000, "1.5e-9", '""', '"\\ud800"', '"\\u0000"', "[]",
    "{}", "[[1]]", '{"a":{"b":[]}}', "[" * 2000, '"x', "}", "]", ",", ":", "\\", '"xsp/layer#1"', "9223372036854775808",
)  # fmt: skip


def made(kind: str, seed: int, folder: Path) -> Path:
    """Write the source of this kind and seed to an empty folder."""
    source = random.Random(f"{kind}:{seed}")
    return {
        "export_sql": _export_sql, "export_bytes": _export_bytes, "json": _json, "jaeger": _jaeger, "ncu": _ncu,
        "store_sql": _store_sql, "store_bytes": _store_bytes, "export_form": _export_form,
    }[kind](source, folder)  # fmt: skip


def _captures() -> Path | None:
    path = Path(os.environ.get("XSP_POST_CAPTURES") or Path(__file__).resolve().parents[3] / "shared" / "captures")
    return path if path.is_dir() else None


# -- whole sources ------------------------------------------------------------------------------------------


@lru_cache(4)
def whole_export(number: int) -> bytes:
    builder = ExportBuilder(("3.25.0", "2.9.1", "unversioned", "3.24.0")[number])
    builder.process(100).gpu() if number != 2 else builder.process(100)
    for step in range(4):
        t = step * 1000
        builder.range(f"step {step}", t, t + 900)
        for layer in range(3):
            at = t + 10 + layer * 280
            builder.range(f"layer_{layer}", at, at + 200, interned=bool(layer % 2))
            for k in range(2):
                start = at + 90 * k + 40
                builder.kernel(
                    "void gemm<float>(int)", launch=(at + 10 * k + 1, at + 10 * k + 5), run=(start, start + 50)
                )
            builder.memcpy(4096, launch=(at + 150, at + 155), run=(at + 160, at + 190))
    builder.mark("done", 3900).library("cudnnConvolutionForward", 3910, 3920)
    builder.process(200).kernel("other", launch=(10, 20), run=(30, 40))
    return builder.write(Path(os.environ["FUZZ_SCRATCH"]) / f"whole{number}-{os.getpid()}.sqlite").read_bytes()


def _some_export(source: random.Random) -> bytes:
    captures = _captures()
    small = ("two_kernels_rtx3080", "no_metadata_2021.2", "nvfuser_h200") if captures else ()
    if small and source.random() < 0.15:
        return (captures / "nsys" / f"{source.choice(small)}.sqlite").read_bytes()
    return whole_export(source.randrange(4))


@lru_cache(1)
def _whole_trace() -> str:
    events: list[dict] = [{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}}]
    for k in range(30):
        host = {"pid": 7, "tid": 8, "ph": "X"}
        events.append({**host, "cat": "cpu_op", "name": f"aten::mm{k % 3}", "ts": 10.5 * k, "dur": 9.25,
                       "args": {"External id": k, "Input Dims": [[8, 4], []], "Sequence number": k}})  # fmt: skip
        events.append({**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10.5 * k + 1, "dur": 1,
                       "args": {"correlation": k + 1}})  # fmt: skip
        events.append({"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": 10.5 * k + 3, "dur": 4,
                       "args": {"device": 0, "stream": 7, "correlation": k + 1, "grid": [1, 2, 3]}})  # fmt: skip
    events.append(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 7, "tid": 8, "ts": 0, "dur": 400}
    )
    top = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100", "numSms": 108}], "traceEvents": events}
    return json.dumps(top)


@lru_cache(1)
def _whole_jaeger() -> str:
    spans = [
        {"operationName": name, "spanID": str(k), "startTime": 10 * k, "duration": 100 - 10 * k, "processID": "p1",
         "references": [{"refType": "CHILD_OF", "spanID": str(k - 1)}] if k else [],
         "tags": [{"key": "trace_level", "value": level}, {"key": "correlation_id", "value": k}], "logs": []}
        for k, (name, level) in enumerate((("predict", "MODEL_TRACE"), ("conv", "FRAMEWORK_TRACE"),
                                           ("cuda_launch", "SYSTEM_LIBRARY_TRACE"), ("gpu_kernel", "HARDWARE_TRACE")))
    ]  # fmt: skip
    return json.dumps(
        {"data": [{"traceID": "1", "spans": spans, "processes": {"p1": {"serviceName": "s", "tags": []}}}]}
    )


@lru_cache(2)
def whole_store(is_large: bool) -> bytes:
    """``is_large``: every table is laid out as one of many rows."""
    from xsp_post.pipeline import analyze
    from xsp_post.store import layout, store

    scratch = Path(os.environ["FUZZ_SCRATCH"])
    (scratch / "for_store.sqlite").write_bytes(whole_export(0))
    with ExitStack() as limits:
        for module in (layout, store) if is_large else ():
            limits.enter_context(patch.object(module, "LEAST_ROWS", 1))
        store.write_store(analyze([scratch / "for_store.sqlite"]), scratch / "whole.xsp.sqlite", force=True)
    return (scratch / "whole.xsp.sqlite").read_bytes()


# -- damage -------------------------------------------------------------------------------------------------


def _export_sql(source: random.Random, folder: Path) -> Path:
    path = folder / "a.sqlite"
    path.write_bytes(_some_export(source))
    _edit(source, path)
    return path


def _store_sql(source: random.Random, folder: Path) -> Path:
    path = folder / "a.xsp.sqlite"
    path.write_bytes(whole_store(source.random() < 0.7))
    _edit(source, path, _store_statement)
    return path


def _edit(source: random.Random, path: Path, other: Callable[..., str] | None = None) -> None:
    """One to four statements, some of them ``other`` ones; what SQLite refuses is left out."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA writable_schema = ON; PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        for _ in range(source.randint(1, 4)):
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            tables = [name for name in tables if not name.startswith("sqlite_")]
            if not tables:
                break
            table = source.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')] or ["x"]
            make = other if other and source.random() < 0.5 else _statement
            try:
                connection.executescript(make(source, table, source.choice(columns)))
            except (sqlite3.Error, sqlite3.Warning):
                connection.rollback()
        connection.commit()


def _statement(source: random.Random, table: str, column: str) -> str:
    value = source.choice(_SQL_VALUES)
    where = f" WHERE rowid % {source.randint(1, 7)} = 0"
    untyped = (
        f'CREATE TABLE fuzz AS SELECT * FROM "{table}"; DROP TABLE "{table}"; ALTER TABLE fuzz RENAME TO "{table}";'
    )
    change = f'UPDATE OR IGNORE "{table}" SET "{column}" = {value}{where};'
    return source.choice((
        change, change, untyped + change, untyped + change,
        f'ALTER TABLE "{table}" DROP COLUMN "{column}"', f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other',
        f'DROP TABLE "{table}"', f'DELETE FROM "{table}"{where}',
        f'INSERT INTO "{table}" SELECT * FROM "{table}"{where}',
        f'{untyped} INSERT INTO "{table}" ("{column}") VALUES ({value});',
        f'UPDATE OR IGNORE "{table}" SET rowid = {source.choice(("-rowid", "rowid * 1000003", "rowid + 9e15"))}',
        f'ALTER TABLE "{table}" RENAME TO kept; CREATE VIEW "{table}" AS SELECT * FROM kept;',
        f'CREATE TABLE "{table}_V2" AS SELECT * FROM "{table}"',
    ))  # fmt: skip


def _store_statement(source: random.Random, table: str, column: str) -> str:
    """What only the tables of a store can suffer: parts that do not fit together, views that are others."""
    shown = source.choice(("paths", "nodes", "kernels", "idle", "findings", table))
    part = source.choice((f"{shown.removesuffix('s')}_rows", f"{shown.removesuffix('s')}_kinds", "strings", table))
    number = source.choice(("rowid", "2", "-1", "-2", "4000000000", "1e300", "1.5", "NULL", "'text'", "x'00'"))
    query = source.choice((
        f"SELECT * FROM {part}", "SELECT 1",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i FROM n) SELECT i AS name FROM n",
        "SELECT * FROM fuzz2", f"SELECT abs(-9223372036854775807 - 1) AS {column}",
    ))  # fmt: skip
    viewed = f"CREATE VIEW fuzz2 AS SELECT * FROM {shown}; CREATE VIEW {shown} AS {query};"
    kind = f"{part.removesuffix('_rows')}_kind_id"
    return source.choice((
        f"DROP VIEW {shown}; {viewed}", f"DROP VIEW {shown}; CREATE TABLE {shown} AS SELECT 7 AS {column};",
        f"DROP VIEW {shown}", f"DROP TABLE {part}; CREATE VIEW {part} AS {query};", f"DROP TABLE {part}",
        f"UPDATE {part} SET {kind} = {number} WHERE rowid % {source.randint(1, 7)} = 0",
        f"UPDATE {table} SET {column} = {number}", f"DELETE FROM {part} WHERE rowid % {source.randint(1, 7)} = 1",
        f"UPDATE OR IGNORE {part} SET rowid = rowid + 1 + {source.randint(0, 9)}", f"UPDATE {part} SET rowid = -rowid",
        "DELETE FROM xsp_meta WHERE key = 'tables'", f"DELETE FROM xsp_meta WHERE key = 'tables'; DROP TABLE {part}",
        f"DELETE FROM xsp_meta WHERE key = 'tables'; ALTER TABLE {part} DROP COLUMN {kind}",
    ))  # fmt: skip


def _export_form(source: random.Random, folder: Path) -> Path:
    """Pages, encodings, kinds of tables and values that SQLite allows and nsys does not write; overflow pages cut."""
    (folder / "whole").write_bytes(_some_export(source))
    path = folder / "a.sqlite"
    with closing(sqlite3.connect(folder / "whole")) as whole, closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"PRAGMA page_size = {source.choice((512, 1024, 4096, 65536))}; PRAGMA synchronous = OFF; "
            f"PRAGMA auto_vacuum = {source.randrange(3)}; PRAGMA encoding = '{source.choice(_ENCODINGS)}'"
        )
        connection.executescript("\n".join(whole.iterdump()))
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(source.randint(1, 3)):
            table = source.choice((*(name for name in tables if not name.startswith("sqlite_")), *_LARGE))
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            try:
                connection.executescript(_form(source, table, columns))
            except (sqlite3.Error, sqlite3.Warning, IndexError):
                connection.rollback()
        connection.commit()
    (folder / "whole").unlink()
    if source.random() < 0.3:
        _cut_overflow(source, path)
    return path


def _form(source: random.Random, table: str, columns: list[str]) -> str:
    kinds = ("", "TEXT", "REAL", "BLOB", "INTEGER", "INTEGER PRIMARY KEY")
    # of most columns the type they have anyway
    declared = ", ".join(f'"{c}" {source.choice(kinds) if source.random() < 0.3 else ""}' for c in columns)
    names, column = ", ".join(f'"{c}"' for c in columns), source.choice(columns)
    copied = f'INSERT OR IGNORE INTO fuzz ({names}) SELECT {names} FROM "{table}"; DROP TABLE "{table}";'
    renamed = f'ALTER TABLE fuzz RENAME TO "{table}";'
    extreme = source.choice(("9223372036854775807 - rowid", "-9223372036854775808 + rowid", "-1 - rowid", "1"))
    text = source.choice((
        "'a' || char(0) || text", "CAST(x'c328eda080' AS TEXT) || text", "hex(zeroblob(30000)) || text",
        "char(27) || '[2J' || char(8238) || text", "''", "NULL",
    ))  # fmt: skip
    return source.choice((
        f"CREATE TABLE fuzz ({declared}); {copied} {renamed}",
        f'CREATE TABLE fuzz ({names}, PRIMARY KEY ("{column}")) WITHOUT ROWID; {copied} {renamed}',
        f'ALTER TABLE "{table}" ADD COLUMN fuzz AS ("{column}"); CREATE INDEX i1 ON "{table}" ("{column}") WHERE fuzz;',
        f'ALTER TABLE "{table}" DROP COLUMN "{column}"; '
        f'ALTER TABLE "{table}" ADD COLUMN "{column}" INTEGER NOT NULL DEFAULT 7;',
        f'UPDATE "{table}" SET "{column}" = {extreme};', f'UPDATE "{table}" SET start = "end", "end" = start;',
        f'UPDATE "{table}" SET start = start + 9223372036854770000;', f'UPDATE "{table}" SET start = 7, "end" = 7;',
        f"UPDATE StringIds SET value = {text.replace('text', 'value')} WHERE id % {source.randint(1, 4)} = 0;",
        f"UPDATE NVTX_EVENTS SET text = {text} WHERE rowid % {source.randint(1, 4)} = 0;",
        f'CREATE TABLE fuzz AS SELECT * FROM "{table}" UNION ALL SELECT * FROM "{table}"; '
        f'DROP TABLE "{table}"; {renamed}',
        f'DELETE FROM "{table}" WHERE rowid % 2; CREATE TRIGGER t1 BEFORE DELETE ON "{table}" BEGIN SELECT 1; END;',
    ))  # fmt: skip


def _cut_overflow(source: random.Random, path: Path) -> None:
    """The chain of pages of a long text ends early, or goes on elsewhere."""
    with closing(sqlite3.connect(path)) as connection:
        with suppress(sqlite3.Error):
            connection.execute("UPDATE StringIds SET value = hex(zeroblob(60000)) WHERE id % 2")
        connection.commit()
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    # a page of such a text: four bytes that name the next one, then zeros as digits
    pages = [at for at in range(size, len(data), size) if data[at + 4 : at + 36].strip(b"0\0") == b""]
    for at in source.sample(pages, min(len(pages), 2)):
        following = source.choice((0, 1, at // size + 1, len(data), source.randrange(1, len(data) // size)))
        data[at : at + 4] = following.to_bytes(4, "big")
    path.write_bytes(data)


def _export_bytes(source: random.Random, folder: Path) -> Path:
    path = folder / "a.sqlite"
    path.write_bytes(_bytes_damaged(source, _some_export(source)))
    return path


def _store_bytes(source: random.Random, folder: Path) -> Path:
    path = folder / "a.xsp.sqlite"
    path.write_bytes(_bytes_damaged(source, whole_store(source.random() < 0.7)))
    return path


def _bytes_damaged(source: random.Random, whole: bytes, first: int = 100) -> bytes:
    data = bytearray(whole)
    for _ in range(source.randint(1, 3)):
        way, at = source.randrange(4), source.randrange(first, len(data))
        if way == 0:
            for _ in range(source.randint(1, 60)):
                data[source.randrange(first, len(data))] = source.randrange(256)
        elif way == 1:
            data[at : at + 4096] = bytes(min(4096, len(data) - at))
        elif way == 2:
            page = at // 4096 * 4096
            other = source.randrange(len(data)) // 4096 * 4096
            data[page : page + 4096] = data[other : other + 4096]
        else:
            del data[max(at, len(data) // 3) :]
    return bytes(data)


def _json(source: random.Random, folder: Path) -> Path:
    return _text_file(source, folder, _text_damaged(source, _whole_trace()), "a.pt.trace.json")


def _jaeger(source: random.Random, folder: Path) -> Path:
    return _text_file(source, folder, _text_damaged(source, _whole_jaeger()), "a.jaeger.json")


def _text_damaged(source: random.Random, text: str) -> str:
    for _ in range(source.randint(1, 5)):
        way = source.randrange(4)
        if way < 2:  # a value that is somewhere becomes another
            starts = [k for k, c in enumerate(text) if c == ":"]
            at = source.choice(starts) + 1
            end = min((p for p in (text.find(c, at + 1) for c in ",}]") if p > 0), default=len(text))
            text = text[:at] + source.choice(_JSON_TOKENS) + text[end:]
        elif way == 2:
            at = source.randrange(len(text))
            text = text[:at] + source.choice(_JSON_TOKENS) + text[at + source.randrange(3) :]
        else:
            text = text[: source.randrange(len(text) // 2, len(text))] if source.random() < 0.3 else text
    return text


def _text_file(source: random.Random, folder: Path, text: str, name: str) -> Path:
    data = text.encode("utf-8", "surrogatepass")
    if source.random() < 0.1:
        data = b"\xef\xbb\xbf" + data
    if source.random() < 0.3:
        name, data = name + ".gz", gzip.compress(data)
        if source.random() < 0.4:
            data = _bytes_damaged(source, data, 4)
    (folder / name).write_bytes(data)
    return folder / name


def _ncu(source: random.Random, folder: Path) -> Path:
    captures = _captures()
    whole = b"NVR\x00" + bytes(4096)
    if captures:
        whole = (captures / "ncu" / "sgemm_roofline_a10g_2023.1.ncu-rep").read_bytes()
    (folder / "a.ncu-rep").write_bytes(_bytes_damaged(source, whole, 8))
    return folder / "a.ncu-rep"
