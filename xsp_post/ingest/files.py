"""Captures in: what a file is, before anybody tries to read it; and the sentence when it is none of ours."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from xsp_post.base.errors import MESSAGES, CaptureError

SQLITE_MAGIC = b"SQLite format 3\x00"
LFS_MAGIC = b"version https://git-lfs"
GZIP_MAGIC = b"\x1f\x8b"

MESSAGES.update(
    {
        "capture-not-found": ("No file of that name exists.", "Check the path; quote names with spaces or wildcards."),
        "capture-unreadable": (
            "The file exists but the operating system does not let us read it.",
            "Give yourself read permission, or copy the file to a place you own.",
        ),
        "capture-is-directory": (
            "A folder was given where one capture was wanted, and it is no exported parquetdir/arrowdir.",
            "Name the file inside it, or use `xsp-post batch` for a folder of captures.",
        ),
        "capture-no-file": (
            "A pipe or a device was given. A database cannot be read from one: it is read in several places at once.",
            "Save the capture to a file and name that.",
        ),
        "capture-empty": ("The file has zero bytes.", "Export or copy the capture again; the disk may have been full."),
        "capture-lfs-pointer": (
            "The file is a Git LFS pointer: a few lines of text that stand for the real file.",
            "Run `git lfs pull` in that repository, then try again.",
        ),
        "capture-unknown-format": (
            "The first bytes are of none of the formats we read (nsys SQLite export, parquetdir, .nsys-rep, "
            ".ncu-rep, PyTorch trace JSON, Jaeger JSON).",
            "Give the file that nsys, ncu or torch.profiler wrote.",
        ),
        "capture-qdstrm": (
            "A .qdstrm file is the raw stream that nsys leaves when its importer is missing or failed.",
            "Run `nsys import --input-file FILE.qdstrm` with the same nsys version, then ingest the .nsys-rep.",
        ),
    }
)


def require_readable(path: Path) -> None:
    """Raise `CaptureError` unless ``path`` is an existing, non-empty, readable file."""
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise CaptureError(f"{path}: no such file", code="capture-not-found") from error
        raise CaptureError(f"{path}: cannot be opened ({error.strerror})", code="capture-unreadable") from error
    if path.is_dir():
        raise CaptureError(
            f"{path}: is a folder, not a capture",
            code="capture-is-directory",
            hint=f"name one file in it, or run: xsp-post batch {path}",
        )
    if not stat.S_ISREG(status.st_mode):
        raise CaptureError(
            f"{path}: is a pipe or device; a capture is read in several places at once",
            code="capture-no-file",
            hint="save it to a file first",
        )
    if not os.access(path, os.R_OK):
        raise CaptureError(f"{path}: permission to read is missing", code="capture-unreadable")
    if status.st_size == 0:
        raise CaptureError(f"{path}: the file is empty", code="capture-empty", hint="export the capture again")


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a readable file."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read ({error.strerror})", code="capture-unreadable") from error
