"""What must hold for every source, however damaged: the whole analysis, or one sentence and exit code 4."""

from __future__ import annotations

import io
import sqlite3
import tempfile
import warnings
from contextlib import closing
from pathlib import Path

from fuzzing.sources import CANARY, made

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def fault(kind: str, seed: int) -> str:
    """What is wrong with how one case was handled, "" for nothing."""
    from xsp_post.base.errors import EXIT_CAPTURE, XspPostError

    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path = made(kind, seed, folder)
        before = sorted(file.name for file in folder.iterdir())
        try:
            problem = _used(kind, path)
        except XspPostError as error:
            said = f"{error.message} {error.hint}"
            problem = "" if error.exit_code == EXIT_CAPTURE else f"exit {error.exit_code}: {error.message}"
            if CANARY in said:
                problem = "a private value in the sentence"
            if not error.message:
                problem = "no sentence"
        left = [file.name for file in folder.iterdir() if file.name not in before and file.name != "out.xsp.sqlite"]
        return problem or (f"left beside the source: {left}" if left else "")


def _used(kind: str, path: Path) -> str:
    from rich.console import Console

    from xsp_post.pipeline import results_of
    from xsp_post.reports.terminal import print_tree
    from xsp_post.store.store import open_store, write_store

    results = results_of([path])
    console = Console(file=io.StringIO(), width=160)
    if kind.startswith("store"):
        print_tree(console, results)
        for table in results.tables():
            results.frame(table)
        return ""
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
    found = len(stored.frame("kernels", ["kernel_id"]))
    return "" if expected in (found, -1) else f"{expected} kernels in the file, {found} in the tree"
