"""Imported once by the process that readers are forked from: everything that analysing a capture needs."""

from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules

import xsp_post

_ROOMS = ("arrays", "counters", "ingest", "model", "names", "replay", "store", "tables", "tables.analyses",
          "tables.core", "tree", "tree.structure", "work")  # fmt: skip
_NEEDED = (
    "pandas", "numpy.char", "pandas.core.methods.to_dict", "pyarrow", "adbc_driver_sqlite.dbapi", "sqlite_utils",
    "xsp_post.pipeline", "xsp_post.hierarchy", "xsp_post.batch.work",
)  # fmt: skip


def _modules(room: str) -> list[str]:
    folder = xsp_post.__path__[0] + "/" + room.replace(".", "/")
    return [one.name for one in iter_modules([folder], f"xsp_post.{room}.")]


for _name in (*_NEEDED, *(name for room in _ROOMS for name in _modules(room))):
    with suppress(ModuleNotFoundError):  # it is said when a job needs it
        import_module(_name)
