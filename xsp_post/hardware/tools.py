"""Where NVIDIA's command line tools are, and which features they have (used by ``run`` and ``ingest``).

Search order of nsys (first hit wins): ``$XSP_NSYS``, PATH, ``$NSYS_HOME/bin``, ``$NSYS_DIR``, the newest of
the usual installation folders. What a tool can do is read from its ``--help`` text, never from its version.
"""

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xsp_post.base.texts import TextTable, read_blocks

_FOLDERS = TextTable(lambda: {
    block.name: [line for _, line in block.lines] for block in read_blocks(Path(__file__).with_name("tools.txt"))
})  # fmt: skip
_VERSION = re.compile(r"(\d{4})\.(\d+)\.(\d+)(?:\.(\d+))?")


class Tool(NamedTuple):
    """One installed command line tool."""

    path: Path
    version: str  # "2025.1.1.110", '' where it would not say


def find_nsys() -> Tool | None:
    """The nsys to use, or None. An nsys that does not answer ``--version`` has version ''."""
    return _find("nsys", "XSP_NSYS", ("NSYS_HOME", "bin/nsys"), ("NSYS_DIR", "nsys"), ("NSYS_DIR", "bin/nsys"))


def find_ncu() -> Tool | None:
    """The ncu to use, or None; ``$XSP_NCU`` names one."""
    return _find("ncu", "XSP_NCU", ("NCU_HOME", "ncu"))


def help_text(tool: Tool, arguments: Sequence[str]) -> str:
    """What ``tool ARGUMENTS --help`` prints ('' when it fails): the source of what flags exist."""
    return output_text(tool.path, [*arguments, "--help"])


def output_text(program: Path, arguments: Sequence[str], timeout_s: float = 20.0) -> str:
    """What ``program ARGUMENTS`` prints on both streams, '' when it fails to start or to end in time."""
    command = [str(program), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")


def has_flag(text: str, flag: str) -> bool:
    """Whether a help text lists a flag as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text) is not None


def _find(name: str, variable: str, *homes: tuple[str, str]) -> Tool | None:
    candidates: list[str] = []
    if chosen := os.environ.get(variable):
        candidates.append(chosen)
    if on_path := shutil.which(name):
        candidates.append(on_path)
    for home, below in homes:
        if folder := os.environ.get(home):
            candidates.append(str(Path(folder) / below))
    found = [path for pattern in _FOLDERS[name] for path in glob.glob(pattern)]
    candidates += sorted(found, key=_version_in_path, reverse=True)
    for candidate in candidates:
        path = Path(candidate)
        if path.is_file() and os.access(path, os.X_OK):
            return Tool(path, _version(path))
    return None


def _version_in_path(path: str) -> tuple[int, ...]:
    match = _VERSION.search(path)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _version(path: Path) -> str:
    match = _VERSION.search(output_text(path, ["--version"]))
    return match.group(0) if match else ""
