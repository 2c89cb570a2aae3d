"""What must hold for every source, however damaged: the whole analysis, or one sentence and exit code 4."""

from __future__ import annotations

import io
import sqlite3
import tempfile
import warnings
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from fuzzing import surroundings
from fuzzing.sources import CANARY, SURROUNDINGS, made

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def fault(kind: str, seed: int, *, is_whole: bool = True) -> str:
    """What is wrong with how one case was handled, "" for nothing. ``is_whole``: with every table, a store and
    processes that are started anew, else what `tree` needs, which takes a third of the time."""
    from xsp_post.base.errors import EXIT_CAPTURE, XspPostError

    if kind in SURROUNDINGS:
        return surroundings.fault(kind, seed)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path = made(kind, seed, folder)
        before = sorted(file.name for file in folder.iterdir())
        try:
            with nullcontext() if is_whole or kind != "ncu" else _warm_reader():
                problem = _used(kind, path, is_whole=is_whole)
        except XspPostError as error:
            said = f"{error.message} {error.hint}"
            problem = "" if error.exit_code == EXIT_CAPTURE else f"exit {error.exit_code}: {error.message}"
            if CANARY in said:
                problem = "a private value in the sentence"
            if not error.message:
                problem = "no sentence"
        left = [file.name for file in folder.iterdir() if file.name not in before and file.name != "out.xsp.sqlite"]
        return problem or (f"left beside the source: {left}" if left else "")


def _warm_reader() -> AbstractContextManager[None]:
    from fuzzing import warm

    return warm.reader_of_reports()


def _used(kind: str, path: Path, *, is_whole: bool) -> str:
    from rich.console import Console

    from xsp_post.commands.tree import SHOWN
    from xsp_post.model.results import Results
    from xsp_post.pipeline import results_of
    from xsp_post.reports.terminal import print_tree
    from xsp_post.store.store import open_store, write_store

    tables = results_of([path])
    results: Results = tables.complete() if is_whole and not kind.startswith("store") else tables
    if not is_whole:
        results = tables.only(SHOWN)
    console = Console(file=io.StringIO(), width=160)
    if kind.startswith("store"):
        print_tree(console, results)
        for table in results.tables():
            results.frame(table)
        return ""
    stored: Results = results
    if is_whole:
        write_store(results, path.with_name("out.xsp.sqlite"), force=True)
        stored = open_store(path.with_name("out.xsp.sqlite"))
    print_tree(console, stored)
    if not kind.startswith("export"):
        return ""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = _KERNEL if _KERNEL in names else f"{_KERNEL}_V2"
            expected = connection.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()[0]
        except sqlite3.DatabaseError:
            expected = 0 if table not in names else -1
    found = int(stored.frame("paths", ["self_kernel_count"])["self_kernel_count"].sum())
    differs = "" if expected == -1 else _differing_cell(path)
    return differs if expected in (found, -1) else f"{expected} kernels in the file, {found} in the tree"


def _differing_cell(path: Path) -> str:
    """The first cell that is read otherwise than SQLite hands it over, "" for none."""
    from xsp_post.ingest.sqlite_tables import SqliteTables
    from xsp_post.ingest.tables import requests

    tables = SqliteTables(path)
    asked = [one for one in requests(tables).values() if tables.columns(one.table)]
    read = tables.read(asked)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        for request, table in zip(asked, read):
            rows = connection.execute(tables._select(request)).fetchall()
            for want, expected in zip(request.wants, zip(*rows)):
                mask = 0xFFFFFFFF if want.is_narrow else -1
                for row, (found, stored) in enumerate(zip(table.column(want.alias).to_pylist(), expected)):
                    is_equal = found & mask == int(stored) & mask if isinstance(found, int) else found == stored
                    if not is_equal:
                        return f"{request.table}.{want.column} of row {row}: {found!r}, in SQLite {stored!r}"
    return ""
