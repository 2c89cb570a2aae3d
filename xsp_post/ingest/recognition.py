"""Captures in: first bytes of a file → whether it is of a format that is no database.

Apart from the readers: asking imports none of them.
"""

from pathlib import Path
from typing import NoReturn

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import files
from xsp_post.ingest.json_text import head
from xsp_post.ingest.sqlite_tables import SqliteTables

CLOCK_FORMAT = "xsp-spans"


def is_ncu_report(path: Path) -> bool:
    """Whether the file begins as an .ncu-rep."""
    return files.head(path, 4) == b"NVR\x00"


def sniff_ncu(path: Path) -> bool:
    """Whether the file looks like an .ncu-rep or the CSV of the raw page."""
    start = files.head(path)
    return is_ncu_report(path) or (b'"Kernel Name"' in start and b'"ID"' in start)


def sniff_clock(path: Path) -> bool:
    """Whether a file is clock readings of ours."""
    return files.head(path).startswith(b'{"format": "' + CLOCK_FORMAT.encode())


def sniff_jaeger(path: Path) -> bool:
    """Whether the file looks like Jaeger's JSON of a trace. Reads 64 KiB."""
    start = head(path).lstrip("\ufeff \t\r\n")
    return start[:1] == "{" and '"data"' in start and ('"spans"' in start or '"traceID"' in start)


def sniff_kineto(path: Path) -> bool:
    """Whether the file looks like a PyTorch trace: JSON with events, and no Jaeger spans. Reads 64 KiB."""
    start = head(path).lstrip("\ufeff \t\r\n")
    if start[:1] == "[":
        return '"ph"' in start
    if start[:1] != "{" or '"operationName"' in start:
        return False
    keys = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"', '"distributedInfo"', '"traceName"')
    return any(key in start for key in keys)


def is_store(path: Path) -> bool:
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
