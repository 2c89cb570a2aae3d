"""Imported once by the process that readers are forked from: everything that analysing a capture needs."""

from contextlib import suppress
from importlib import import_module

from xsp_post.ingest.formats import FORMATS
from xsp_post.tables.catalogue import OF_CAPTURE, OF_WORKLOAD

_NEEDED = (
    "pandas", "numpy.char", "pandas.core.methods.to_dict", "pyarrow", "adbc_driver_sqlite.dbapi", "sqlite_utils",
    "xsp_post.pipeline", "xsp_post.ingest.run_facts", "xsp_post.store.store", "xsp_post.tables.analyses.fleet",
    "xsp_post.tables.analyses.history", "xsp_post.tables.analyses.ranks", "xsp_post.batch.work",
    "xsp_post.tree.structure", "xsp_post.tree.ranks",
    *(f"xsp_post.{step.by.partition(':')[0]}" for step in (*OF_CAPTURE, *OF_WORKLOAD)),
    *(f"xsp_post.ingest.{one.partition(':')[0]}" for kind in FORMATS for one in (kind.recognise, kind.read)),
)  # fmt: skip


for _name in _NEEDED:
    with suppress(ModuleNotFoundError):  # it is said when a job needs it
        import_module(_name)

with suppress(ModuleNotFoundError):  # a column of a frame is found by its name: four times as fast as of Arrow's texts
    import_module("pandas").set_option("mode.string_storage", "python")
