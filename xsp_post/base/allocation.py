"""Memory that was freed in pieces → the system. Elsewhere than on Linux with glibc nothing is done."""

from __future__ import annotations

import ctypes
import sys


def give_back_memory() -> None:
    """Hand back what was freed in pieces between what stays: the next step may need pieces of other sizes."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
