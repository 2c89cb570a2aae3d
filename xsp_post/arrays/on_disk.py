"""Large columns → files without a name, mapped: they take memory only while they are read.

A recording of ten million kernels has columns of several gigabytes, of which each step reads a few. Elsewhere than on
Linux, and where the disk has no room, they stay in memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

LEAST_BYTES = 12 << 20  # a smaller column stays in memory: one of fewer than 1.5 million numbers
MOST_BYTES = 256 << 20  # of them in memory at once, and of the libraries
_PAUSE_S = 0.01
_maps: WeakKeyDictionary[mmap.mmap, int] = WeakKeyDictionary()  # those in use, and where in memory they begin


def empty(count: int, dtype: Any) -> np.ndarray:
    """As `numpy.empty`, of one dimension."""
    size = count * np.dtype(dtype).itemsize
    if size < LEAST_BYTES or sys.platform != "linux":
        return np.empty(count, dtype)
    try:
        with tempfile.TemporaryFile(prefix="xsp-post-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a page without room on the disk would end the program
            data = mmap.mmap(file.fileno(), size)
    except OSError:
        return np.empty(count, dtype)
    values = np.frombuffer(data, dtype)
    _maps[data] = values.ctypes.data
    if len(_maps) == 1:
        threading.Thread(target=_watch, daemon=True).start()
    return values


def moved(values: np.ndarray) -> np.ndarray:
    """The values in a file, where they are many, differ and lie in memory."""
    at = values.ctypes.data
    is_small = values.nbytes < LEAST_BYTES or not all(values.strides)
    if is_small or any(begin <= at < begin + len(data) for data, begin in list(_maps.items())):
        return values
    copy = empty(len(values), values.dtype)
    copy[:] = values
    return copy


def kept(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its large columns of numbers in files; the same one where it has none."""
    if len(frame) * np.dtype(np.int64).itemsize < LEAST_BYTES:
        return frame
    import pandas as pd

    def column(values: pd.Series) -> Any:
        if isinstance(values.dtype, pd.CategoricalDtype):
            return pd.Categorical.from_codes(moved(values.cat.codes.to_numpy()), dtype=values.dtype, validate=False)
        return (
            moved(values.to_numpy()) if values.dtype.kind in "biuf" and isinstance(values.dtype, np.dtype) else values
        )

    return pd.DataFrame({name: column(values) for name, values in frame.items()}, frame.index, copy=False)


def release() -> None:
    """Give the system the memory of all of them, what is read again coming from the files, and what was freed in pieces
    between what stays: the next step may need pieces of other sizes."""
    import pyarrow as pa

    _forget()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _forget() -> None:
    for data in list(_maps):
        data.madvise(mmap.MADV_DONTNEED)


def _watch() -> None:
    """Release them whenever those in memory are too many, as long as there are any."""
    while len(_maps):
        with open("/proc/self/statm", "rb") as file:
            shared = int(file.read().split()[2]) * mmap.PAGESIZE
        if shared > MOST_BYTES:
            _forget()
        time.sleep(_PAUSE_S)
