"""Large arrays lie in files without a name; whatever is made of them is what is made in memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from xsp_post.base import limits
from xsp_post.base.errors import UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the calls")

_ONE_ARRAY = """
import errno, gc, os, sys
import numpy as np
from xsp_post.base import on_disk

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def full(*_):
    raise OSError(errno.ENOSPC, "no room")

if sys.argv[1] == "full":
    on_disk.os.posix_fallocate = full
on_disk._PAUSE_S = 1e9  # only what is asked for is released
on_disk.begin(8 << 30)
files = lambda: open("/proc/self/maps").read().count("xsp-post-array-")
before = resident()
values = np.arange(1 << 23) + 1
zeros = np.zeros(1 << 22)
assert resident() - before > 60 << 20
on_disk.release()
kept = resident() - before
assert (kept > 60 << 20) == (sys.argv[1] == "full"), kept
assert (files() >= 2) == (sys.argv[1] != "full")
assert not zeros.any() and values.sum() == 35184376283136 and values[-1] == 1 << 23
grown = np.resize(values, 1 << 24)
assert (grown[1 << 23 :] == values).all()
del values, zeros, grown
gc.collect()
assert not files()
"""


@pytest.mark.parametrize("disk", ["free", "full"])
def test_a_large_array_takes_no_memory_until_it_is_read(disk):
    """Without room on the disk it stays in memory. What is freed leaves no file."""
    subprocess.run([sys.executable, "-c", _ONE_ARRAY, disk], check=True, timeout=120)


# What a block is filled with, and what is left of it after it grew and shrank in place.
_HOSTILE = """
import ctypes, errno, gc, os, resource, signal, sys, threading, time
import numpy as np
from xsp_post.base import on_disk, stops

case, count = sys.argv[1], 1 << 21
files = lambda: open("/proc/self/maps").read().count("xsp-post-array-")
real_open, real_fallocate = open, os.posix_fallocate
on_disk._PAUSE_S = 1e9
import pyarrow  # which release() needs
if case == "no symbol":
    core = getattr(np, "_core", None) or np.core
    del core._multiarray_umath._ARRAY_API
if case == "other handler":
    core = getattr(np, "_core", None) or np.core
    core.multiarray.get_handler_name = lambda *of: "somebody's"
if case == "macOS":
    sys.platform = "darwin"
if case == "no turns":
    sys._is_gil_enabled = lambda: False
if case == "PyPy":
    sys.implementation.name = "pypy"
if case == "no thread":
    def start(self):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = start
if case == "folder in memory":
    on_disk.tempfile.tempdir = "/dev/shm"
on_disk.begin(8 << 30)
begun = case not in ("no symbol", "other handler", "macOS", "no turns", "PyPy", "no thread", "folder in memory")
assert bool(on_disk._used) == begun, case
in_files = begun
if case == "no folder":
    on_disk.tempfile.tempdir, in_files = "/nowhere/at/all", False
if case == "no handles":
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    in_files = False
if case == "small files":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    in_files = False
if case == "no proc":
    def nothing(*of, **more):
        raise FileNotFoundError(errno.ENOENT, "no such file")
    on_disk.open = nothing
if case in ("no map", "no map at all"):
    class Library:
        def __init__(self, own):
            self.own = own
        def mmap(self, first, length, rights, how, file, offset):
            if file >= 0 or case == "no map at all":  # the block is gone, nothing in its place
                self.own.munmap(ctypes.c_void_p(first), ctypes.c_size_t(length))
                return 2**64 - 1
            return self.own.mmap(first, length, rights, how, file, offset)
        def __getattr__(self, name):
            return getattr(self.own, name)
    on_disk._used[0].library = Library(on_disk._used[0].library)
    in_files = False
if case == "no map at all":
    try:
        np.zeros(count)
    except MemoryError:
        sys.exit()
    raise AssertionError("an array without memory")
if case == "denied":
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
    try:
        np.ones(1 << 28)
    except MemoryError:
        pass
    else:
        raise AssertionError("2 GiB below a limit of 1 GiB")
if case == "interrupted":
    ends = stops.Stops()
    def interrupted(*of):
        on_disk.os.posix_fallocate = real_fallocate
        signal.raise_signal(signal.SIGINT)
        return real_fallocate(*of)
    on_disk.os.posix_fallocate = interrupted
    try:
        zeros = np.zeros(count)
        is_made = True
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        assert is_made and ends.received == signal.SIGINT
zeros = np.zeros(count)
values = np.arange(count) + 1
on_disk.release()
assert not zeros.any() and values[0] == 1 and values.sum() == count * (count + 1) // 2
if case != "no handles":
    assert bool(files()) == in_files, (case, files())
values.resize(count + (count >> 1), refcheck=False)  # moves what lies in several mappings
assert not values[count:].any() and values[:count].sum() == count * (count + 1) // 2
values.resize(count >> 1, refcheck=False)
on_disk.release()
assert values[0] == 1 and values[-1] == count >> 1
if case == "copied":
    for copy in (os.fork, os.forkpty):
        try:
            child = copy()
        except RuntimeError:
            continue
        os._exit(3)  # both would write to the same arrays
elif not begun:
    child = os.fork()
    if not child:
        values[:] = 0
        os._exit(0)
    os.waitpid(child, 0)
    assert values[0] == 1
if case == "threads":
    from concurrent.futures import ThreadPoolExecutor
    def work(number):
        mine = [np.full(count, number + k) for k in range(4)]
        on_disk.release()
        return all((one == number + k).all() for k, one in enumerate(mine))
    with ThreadPoolExecutor(4, initializer=on_disk.use) as pool:
        assert all(pool.map(work, range(0, 64, 4)))
del values, zeros
gc.collect()
assert case == "no handles" or not files()
"""


@pytest.mark.parametrize(
    "case",
    ["nothing", "no symbol", "other handler", "macOS", "no turns", "PyPy", "no thread", "folder in memory", "no folder",
     "no handles", "small files", "no proc", "no map", "no map at all", "denied", "interrupted", "copied", "threads"],
)  # fmt: skip
def test_whatever_fails_the_numbers_stay(case, tmp_path):
    """Without a file the array is in memory, without memory NumPy says so; a copy of the process is refused."""
    if case == "folder in memory" and not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm")
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE, case], timeout=300, capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "amount"), [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5 KB", 1500), ("7B", 7), ("", 640 << 20)]
)
def test_amounts_of_memory(text, amount, tmp_path):
    large, small = tmp_path / "large", tmp_path / "small"
    for path, size in ((large, 1 << 30), (small, 1 << 20)):
        with path.open("wb") as file:
            file.truncate(size)
    try:
        limits.want_memory(text)
        assert limits.memory_bytes([small, large]) == amount
    finally:
        limits.want_memory("")
    assert limits.memory_bytes([small, tmp_path, tmp_path / "nothing"]) == 0


def test_a_compressed_source_is_as_large_as_it_says_it_is(tmp_path):
    for name, amount in (("a.json.gz", 640 << 20), ("a.json", 0)):
        (tmp_path / name).write_bytes(b"\x1f\x8b" + (1 << 30).to_bytes(4, "little"))
        assert limits.memory_bytes([tmp_path / name]) == amount


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "2XB", "1GB 2GB"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(UsageError, match="--memory"):
        limits.want_memory(text)
