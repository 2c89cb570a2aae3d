"""Imported once by the server that workers are forked from: everything that analysing a capture needs."""

from __future__ import annotations

import importlib

_NEEDED = (
    "pandas", "pyarrow", "adbc_driver_sqlite.dbapi", "sqlite_utils", "xsp_post.pipeline", "xsp_post.store",
    "xsp_post.tables.analyses.fleet", "xsp_post.tables.analyses.history", "xsp_post.tables.analyses.ranks",
    "xsp_post.batch.work", "xsp_post.ingest.nsys", "xsp_post.tree.structure",
)  # fmt: skip


def up() -> None:
    """Import what is there; what is not is said when a job needs it."""
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue


up()
