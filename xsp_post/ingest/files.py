"""First bytes of a file → its format, or an error for files that cannot be read."""

import errno
import os
import stat
from pathlib import Path

from xsp_post.base.errors import CaptureError

GZIP_MAGIC = b"\x1f\x8b"
SQLITE_MAGIC = b"SQLite format 3\x00"
LFS_MAGIC = b"version https://git-lfs"


def require_readable(path: Path) -> None:
    """Raise `CaptureError` unless ``path`` is an existing, non-empty, readable file."""
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise CaptureError(f"{path}: no such file", code="capture-not-found") from error
        raise CaptureError(f"{path}: cannot be opened ({error.strerror})", code="capture-unreadable") from error
    if not os.access(path, os.R_OK):
        raise CaptureError(f"{path}: permission to read is missing", code="capture-unreadable")
    if os.path.isdir(path):
        raise CaptureError(
            f"{path}: is a folder, not a capture",
            code="capture-is-directory",
            hint=f"name one file in it, or run: xsp-post batch {path}",
        )
    if not stat.S_ISREG(status.st_mode):
        raise CaptureError(
            f"{path}: is a pipe or device; a capture is read in several places at once", code="capture-no-file"
        )
    if status.st_size == 0:
        raise CaptureError(f"{path}: the file is empty", code="capture-empty")


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a readable file."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read ({error.strerror})", code="capture-unreadable") from error


def is_sqlite(path: Path) -> bool:
    """Whether a readable file begins as a SQLite database."""
    return head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC
