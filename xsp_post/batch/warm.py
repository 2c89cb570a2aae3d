"""Imported once by the process that readers are forked from: everything that analysing a capture needs."""

from contextlib import suppress
from importlib import import_module

_NEEDED = (
    "pandas", "pyarrow", "adbc_driver_sqlite.dbapi", "sqlite_utils", "xsp_post.pipeline", "xsp_post.store",
    "xsp_post.tables.analyses.fleet", "xsp_post.tables.analyses.history", "xsp_post.tables.analyses.ranks",
    "xsp_post.batch.work", "xsp_post.ingest.nsys", "xsp_post.tree.structure",
)  # fmt: skip


for _name in _NEEDED:
    with suppress(ModuleNotFoundError):  # it is said when a job needs it
        import_module(_name)
