"""Large arrays of NumPy → files without a name, mapped: they take memory only while they are read.

A recording of ten million kernels has columns and intermediate results of several gigabytes, of which each step reads a
few. After `begin` NumPy's allocator (NEP 49) puts files in place of the pages of large arrays, whoever makes them: what
is computed is the same, bit by bit. Linux with glibc; elsewhere, and where the disk has no room, they stay in memory.
Whatever fails here leaves an array in memory; a copy of the process, which would share the arrays, is refused.
"""

import ctypes
import gc
import mmap
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

_LIBRARIES_BYTES = 384 << 20  # Python, its libraries, and what is no large array
_LEAST_MAPPED_BYTES = 64 << 20
_LARGE_BYTES = 4 << 20  # an array that is smaller stays in memory
_PAUSE_S = 0.01
_NEVER_S = 1e6  # no other thread of Python takes its turn before one waits
_PREFIX = "xsp-post-array-"
_SET_HANDLER, _GET_HANDLER = 304, 305  # places in NumPy's table of functions
_NAME = ctypes.create_string_buffer(b"mem_handler")
_MMAP_THRESHOLD, _MAP_FIXED = -3, 0x10  # of glibc's mallopt and of Linux' mmap
_HUGE_PAGE_BYTES = 2 << 20
# A block of glibc with pages of its own begins so far behind the first of them; before it stands their size, and a bit.
_OF_GLIBC, _HAS_PAGES = 16, 2
_IN_MEMORY = (0x01021994, 0x858458F6)  # file systems, linux/magic.h

_Allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_AllocateZeros = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler` of numpy/ndarraytypes.h."""

    _fields_ = [
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]  # fmt: skip


class _Allocator:
    """What NumPy calls. Large blocks come from glibc, too, which gives the system their pages when they are freed."""

    def __init__(self, memory_bytes: int) -> None:
        self.most_bytes = max(_LEAST_MAPPED_BYTES, memory_bytes - _LIBRARIES_BYTES)
        self.large_bytes = min(_LARGE_BYTES, self.most_bytes >> 6)
        self.library = ctypes.PyDLL(None)  # whose functions keep Python's lock
        self.library.mmap.restype = ctypes.c_void_p
        self.library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.library.mallopt(_MMAP_THRESHOLD, self.large_bytes)
        python = ctypes.pythonapi
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCapsule_GetPointer", python)
        )
        capsule = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)(("PyCapsule_New", python))
        core: Any = getattr(np, "_core", None) or np.core  # before NumPy 2
        api = core._multiarray_umath._ARRAY_API
        functions = ctypes.cast(pointer(api, None), ctypes.POINTER(ctypes.c_void_p))
        self.use = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER])
        used = ctypes.PYFUNCTYPE(ctypes.py_object)(functions[_GET_HANDLER])()
        plain = _Handler.from_address(pointer(used, _NAME))
        if core.multiarray.get_handler_name().encode() != plain.name:
            raise RuntimeError("another table of functions")
        self._malloc, self._calloc = _Allocate(plain.malloc), _AllocateZeros(plain.calloc)
        self._calls = _Allocate(self.malloc), _AllocateZeros(self.calloc)
        malloc, calloc = (ctypes.cast(one, ctypes.c_void_p) for one in self._calls)
        self._own = _Handler(b"xsp-post", 1, plain.context, malloc, calloc, plain.realloc, plain.free)
        self.handler = capsule(ctypes.addressof(self._own), ctypes.addressof(_NAME), None)

    def malloc(self, context: int | None, size: int) -> int | None:
        at = self._malloc(context, size)
        return at if size < self.large_bytes or not at else self._in_file(at, size)

    def calloc(self, context: int | None, count: int, size: int) -> int | None:
        at = self._calloc(context, count, size)
        return at if count * size < self.large_bytes or not at else self._in_file(at, count * size)

    def _in_file(self, at: int, size: int) -> int | None:
        """The whole pages of a block that was just made come from a file of zeros. None where they are gone."""
        self.bound()
        if at % mmap.PAGESIZE != _OF_GLIBC:
            return at
        said = ctypes.c_size_t.from_address(at - _OF_GLIBC // 2).value
        if not said & _HAS_PAGES or not 0 < (said & -_OF_GLIBC) - size < 2 * mmap.PAGESIZE:
            return at
        first = at - _OF_GLIBC + mmap.PAGESIZE
        length = (at + size) // mmap.PAGESIZE * mmap.PAGESIZE - first
        offset = first % _HUGE_PAGE_BYTES  # both begin alike: many pages are mapped at once, in a sixth of the time
        with suppress(Exception), tempfile.NamedTemporaryFile(prefix=_PREFIX) as file:
            os.posix_fallocate(file.fileno(), offset, length)  # without room a page would end the program
            if self._map(first, length, mmap.MAP_SHARED, file.fileno(), offset) != first and (
                self._map(first, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0) != first
            ):
                return None  # a mapping that fails may leave nothing in its place
        return at

    def _map(self, first: int, length: int, how: int, file: int, offset: int) -> int:
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        return self.library.mmap(first, length, rights, how | _MAP_FIXED, file, offset)

    def bound(self) -> None:
        """Release them where those in memory are too many."""
        with suppress(Exception), open("/proc/self/statm", "rb") as file:
            if int(file.read().split()[2]) * mmap.PAGESIZE > self.most_bytes:
                self.release()

    def release(self) -> None:
        """Give the system the memory of all of them. What is read again comes from the files.

        From the list of what is mapped to the last call no other thread may run Python, nor garbage be collected: an
        array could be freed, and its place be somebody else's.
        """
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            file = self.library.open(b"/proc/self/maps", os.O_RDONLY)
            buffer, text = ctypes.create_string_buffer(1 << 16), b""
            while (count := self.library.read(file, buffer, len(buffer))) > 0:
                text += buffer.raw[:count]
            self.library.close(file)
            for line in text.splitlines():
                if b"/" + _PREFIX.encode() in line and b" rw-s " in line:  # of others the pages would be lost
                    begin, end = (int(one, 16) for one in line.split(maxsplit=1)[0].split(b"-"))
                    self.library.madvise(begin, end - begin, mmap.MADV_DONTNEED)
        finally:
            if is_enabled:
                gc.enable()

    def watch(self) -> None:
        """For a thread of its own: between two large arrays much may be read."""
        self.use(self.handler)
        while True:
            self.bound()
            time.sleep(_PAUSE_S)


_used: list[_Allocator] = []


def begin(memory_bytes: int) -> None:
    """From here on large arrays of this process lie in files, so that it may need about so much memory in all. Nothing
    happens where the system, Python or NumPy are not as this needs them."""
    if _used or not is_possible():
        return
    with suppress(Exception):
        allocator = _Allocator(memory_bytes)
        threading.Thread(target=allocator.watch, daemon=True).start()
        sys.addaudithook(_refuse_fork)
        sys.setswitchinterval(_NEVER_S)
        _used.append(allocator)
        use()


def is_possible() -> bool:
    """Linux and glibc, a Python whose threads take turns, a temporary folder that is not in memory itself."""
    take_turns = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.platform != "linux" or sys.implementation.name != "cpython" or not take_turns:
        return False
    library = ctypes.CDLL(None)
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not hasattr(library, "gnu_get_libc_version"):
        return False
    kind = (ctypes.c_long * 64)()  # `struct statfs` begins with it
    with suppress(OSError):
        return library.statfs(os.fsencode(tempfile.gettempdir()), kind) == 0 and kind[0] not in _IN_MEMORY
    return False


def _refuse_fork(event: str, _: object) -> None:
    if event in ("os.fork", "os.forkpty"):  # what one of them writes into an array, the other one would read
        raise RuntimeError("a process whose arrays lie in files cannot be copied")


def use() -> None:
    """For each new thread, which has NumPy's own allocator."""
    for one in _used:
        one.use(one.handler)


def release() -> None:
    """Give the system the memory of large arrays, and what was freed in pieces between what stays: the next step may
    need pieces of other sizes."""
    import pyarrow as pa

    for one in _used:
        one.release()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
