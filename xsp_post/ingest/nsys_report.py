"""Captures in: a ``.nsys-rep`` is exported by nsys itself, once, into a cache beside it."""

import json
import os
import subprocess
from functools import lru_cache
from pathlib import Path

from xsp_post.base.children import end_with_parent
from xsp_post.base.errors import ToolError
from xsp_post.base.output import atomic_output, private_folder, read_note, write_text
from xsp_post.base.text_safety import shell_command
from xsp_post.hardware.tools import find_nsys
from xsp_post.ingest.files import SQLITE_MAGIC, head
from xsp_post.ingest.formats import BY_KEY, NSYS_REPORT

_TIMEOUT_S = 3600


def has_report_name(path: Path) -> bool:
    """Whether a file is called as nsys calls its reports: their content is known to nsys only."""
    return path.name.lower().endswith(BY_KEY[NSYS_REPORT].suffixes)


def exported(report: Path) -> Path:
    """The SQLite export of a report: the cached one if it is of this report and this nsys, else a new one.

    Raises `ToolError` (exit 3) when nsys is missing, fails or writes nothing.
    """
    return _exported(report, report.stat().st_mtime_ns)


@lru_cache(1000)  # a sealed process starts no nsys: its parent asked before
def _exported(report: Path, changed_ns: int) -> Path:
    tool = find_nsys()
    cache = report.with_name(report.name + ".xsp-export.sqlite")
    command = ["nsys", "export", "-t", "sqlite", "-f", "true", "-o", str(report.with_suffix(".sqlite")), str(report)]
    if tool is None:
        raise ToolError(
            f"{report}: reading a .nsys-rep needs nsys, which is not installed here",
            code="nsys-missing",
            hint=f"where nsys is, run: {shell_command(*command)}",
        )
    size = report.stat().st_size
    stamp = {"size": size, "mtime_ns": changed_ns, "nsys": str(tool.path), "version": tool.version}
    note = cache.with_name(cache.name + ".json")
    if cache.is_file() and read_note(note) == stamp:
        return cache
    if not os.access(report.parent, os.W_OK):
        target = private_folder()[0] / f"{report.stem}.sqlite"
        _export(str(tool.path), report, target)
        return target
    with atomic_output(cache, force=True) as part:
        _export(str(tool.path), report, part)
    write_text(note, json.dumps(stamp), force=True)
    return cache


def _export(nsys: str, report: Path, target: Path) -> None:
    command = [nsys, "export", "-t", "sqlite", "-f", "true", "-o", str(target), str(report)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False,
            preexec_fn=end_with_parent(),
        )  # fmt: skip
        words = (done.stderr or done.stdout).strip().splitlines()
        why = words[-1] if words else f"exit status {done.returncode}"
    except OSError as error:
        why = str(error)
    except subprocess.TimeoutExpired:
        why = f"no answer within {_TIMEOUT_S} s"
    # the exit code of nsys proves nothing: only a database does
    if target.is_file() and target.stat().st_size and head(target).startswith(SQLITE_MAGIC):
        return
    raise ToolError(f"{report}: nsys could not export it: {why}", code="nsys-export-failed")
