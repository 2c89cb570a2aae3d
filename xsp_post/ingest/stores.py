"""Captures in: a store of xsp-post that was given where a capture is wanted."""

from pathlib import Path
from typing import NoReturn

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import files
from xsp_post.ingest.sqlite_tables import SqliteTables


def is_store(path: Path) -> bool:
    """Whether a file is a SQLite database that xsp-post wrote."""
    if not files.is_sqlite(path):
        return False
    try:
        return "xsp_meta" in SqliteTables(path).tables()
    except CaptureError:
        return False


def refuse(path: Path) -> NoReturn:
    """Raise `CaptureError`: a store is what captures become."""
    raise CaptureError(
        f"{path}: is a store made by xsp-post, not a capture",
        code="capture-is-store",
        hint=f"look at it with: xsp-post tree {path}",
    )
