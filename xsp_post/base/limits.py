"""Size limits for one source, far above real captures. An environment variable lifts them.

There is no limit of elapsed time: disks may be slow, and Ctrl-C ends any command.
"""

import os
from pathlib import Path

from xsp_post.base.errors import CaptureError

VARIABLE = "XSP_POST_NO_LIMITS"
# A compressed file may grow a hundredfold (real traces: ten to thirty), and any to this size.
UNCOMPRESSED_RATIO, UNCOMPRESSED_BYTES = 100, 256 << 20
# One event, or what stands before the first of them; real ones have some kilobytes.
EVENT_CHARACTERS = 64 << 20
# Of a process that reads, for one capture; a recording of ten million kernels (2 GB) takes 63 s.
CPU_S, CPU_S_PER_BYTE = 600, 600 / (1 << 30)


def are_lifted() -> bool:
    """Whether the user said that no limit holds."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def over_limit(path: Path, what: str, limit: str) -> CaptureError:
    """The error for a source with more of ``what`` than ``limit``, with the way out."""
    return CaptureError(f"{path}: {what}; the limit is {limit}", code="capture-over-limit")
