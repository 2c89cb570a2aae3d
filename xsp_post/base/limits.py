"""Size limits for one source, far above real captures. An environment variable lifts them.

There is no limit of elapsed time: disks may be slow, and Ctrl-C ends any command.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from xsp_post.base.errors import CaptureError, UsageError

VARIABLE = "XSP_POST_NO_LIMITS"
# A compressed file may grow a hundredfold (real traces: ten to thirty), and any to this size.
UNCOMPRESSED_RATIO, UNCOMPRESSED_BYTES = 100, 256 << 20
# One event, or what stands before the first of them; real ones have some kilobytes.
EVENT_CHARACTERS = 64 << 20
# Of a process that reads, for one capture; a recording of ten million kernels (2 GB) takes 63 s.
CPU_S, CPU_S_PER_BYTE = 600, 600 / (1 << 30)
# About so much memory is used where the sources have so many bytes; `--memory` says another amount for all of them.
LARGE_SOURCE_BYTES, MEMORY_BYTES = 1 << 30, 640 << 20
wanted_memory_bytes = [0]
_SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d+)?)\s*([KMGT]?)(i?)B\s*")


def are_lifted() -> bool:
    """Whether the user said that no limit holds."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def over_limit(path: Path, what: str, limit: str) -> CaptureError:
    """The error for a source with more of ``what`` than ``limit``, with the way out."""
    return CaptureError(f"{path}: {what}; the limit is {limit}", code="capture-over-limit")


def want_memory(text: str) -> None:
    """``2GB`` → what `memory_bytes` says from here on. Raises `UsageError`."""
    found = _SIZE.fullmatch(text) if text else None
    if text and found is None:
        raise UsageError(f"--memory {text!r} is not an amount with its unit, e.g. 2GB, 512MiB", code="bad-memory")
    scale = (1024 if found[3] else 1000) ** " KMGT".index(found[2] or " ") if found else 0
    wanted_memory_bytes[0] = int(float(found[1]) * scale) if found else 0


def memory_bytes(sources: Sequence[Path]) -> int:
    """About how much memory reading these sources may take; 0: as much as it does."""
    return wanted_memory_bytes[0] or (MEMORY_BYTES if sum(map(_size, sources)) >= LARGE_SOURCE_BYTES else 0)


def _size(source: Path) -> int:
    """Bytes of a file, of a compressed one those that it says it has uncompressed; 0 where there is none."""
    if not os.path.isfile(source):  # a pipe would keep us waiting
        return 0
    with suppress(OSError):
        return max(os.path.getsize(source), said_bytes(source) if source.suffix == ".gz" else 0)
    return 0


def said_bytes(packed: Path) -> int:
    """The uncompressed size that the last bytes of a gzip file say."""
    with open(packed, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 4, 0))
        return int.from_bytes(file.read(4), "little")
