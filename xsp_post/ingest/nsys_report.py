"""Captures in: a ``.nsys-rep`` is exported by nsys itself, once, into a cache beside it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from xsp_post.base.errors import ToolError
from xsp_post.hardware.tools import find_nsys
from xsp_post.ingest.files import SQLITE_MAGIC, head

_TIMEOUT_S = 3600


def exported(report: Path) -> Path:
    """The SQLite export of a report: the cached one if it is of this report and this nsys, else a new one.

    Raises `ToolError` (exit 3) when nsys is missing, fails or writes nothing.
    """
    tool = find_nsys()
    cache = report.with_name(report.name + ".xsp-export.sqlite")
    command = ["nsys", "export", "-t", "sqlite", "-f", "true", "-o", str(report.with_suffix(".sqlite")), str(report)]
    if tool is None:
        raise ToolError(
            f"{report}: reading a .nsys-rep needs nsys, which is not installed here",
            code="nsys-missing",
            hint=f"where nsys is, run: {shlex.join(command)}",
        )
    stamp = _stamp(report, str(tool.path), tool.version)
    note = cache.with_name(cache.name + ".json")
    if cache.is_file() and _read(note) == stamp:
        return cache
    target, is_in_its_folder = (cache, True) if os.access(report.parent, os.W_OK) else (_elsewhere(report), False)
    _export(str(tool.path), report, target)
    if is_in_its_folder:
        note.write_text(json.dumps(stamp), encoding="utf-8")
    return target


def _elsewhere(report: Path) -> Path:
    """A place for the export when the report's folder may not be written to."""
    return Path(tempfile.mkdtemp(prefix="xsp-post-")) / (report.stem + ".sqlite")


def _stamp(report: Path, nsys: str, version: str) -> dict[str, object]:
    status = report.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "nsys": nsys, "version": version}


def _read(note: Path) -> object:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _export(nsys: str, report: Path, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    command = [nsys, "export", "-t", "sqlite", "-f", "true", "-o", str(part), str(report)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
        words = (done.stderr or done.stdout).strip().splitlines()
        why = words[-1] if words else f"exit status {done.returncode}"
    except OSError as error:
        why = str(error)
    except subprocess.TimeoutExpired:
        why = f"no answer within {_TIMEOUT_S} s"
    # the exit code of nsys proves nothing: only a database does
    if part.is_file() and part.stat().st_size and head(part).startswith(SQLITE_MAGIC):
        os.replace(part, target)
        return
    part.unlink(missing_ok=True)
    raise ToolError(
        f"{report}: nsys could not export it: {why}",
        code="nsys-export-failed",
        hint="use an nsys at least as new as the one that wrote the report",
    )
