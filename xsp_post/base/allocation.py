"""Memory that was freed → the next array, or the system: what glibc's malloc is told. Elsewhere nothing is done.

The system must clear each page that it gives anew, which takes about two microseconds: of a million kernels a tenth of
the time, of ten million a quarter.
"""

from __future__ import annotations

import ctypes
import sys

# Options of malloc.h, and their values
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_USUAL = ((_MMAP_THRESHOLD, 32 << 20), (_TRIM_THRESHOLD, 512 << 20), (_ARENA_MAX, 1))
_LARGE = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))


def share_freed_memory() -> None:
    """What Arrow frees is NumPy's next array, and the other way round: both take memory from malloc."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())


def keep_freed_memory(*, is_large: bool = False) -> None:
    """Keep freed memory for the next array, whichever thread made it; ``is_large``: whatever its size, which takes up
    to a tenth more memory."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        for option, value in _LARGE if is_large else _USUAL:
            set_option(option, value)


def give_back_memory() -> None:
    """Hand back what was freed in pieces between what stays: the next step may need pieces of other sizes."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
