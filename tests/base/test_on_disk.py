"""Large arrays lie in files without a name; whatever is made of them is what is made in memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from generators.big import write_big_export
from generators.shapes import SHAPES, write_shape

from xsp_post.base import limits
from xsp_post.base.errors import UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the calls")

# Every table of a capture, its findings, and how many arrays lay in files.
_ALL_TABLES = """
import pickle, sys
from pathlib import Path
from xsp_post.base import on_disk
made, released = [], []
if sys.argv[3] != "0":
    on_disk._LEAST_MAPPED_BYTES, on_disk._LIBRARIES_BYTES, on_disk._LARGE_BYTES = 1 << 20, 0, 1 << 14
    allocate, release = on_disk.os.posix_fallocate, on_disk._Allocator.release
    on_disk.os.posix_fallocate = lambda *of: made.append(allocate(*of))
    on_disk._Allocator.release = lambda self: released.append(release(self))
    on_disk.begin(int(sys.argv[3]))
from xsp_post.pipeline import analyze
analysis = analyze([Path(sys.argv[1])])
frames = {name: analysis.frame(name) for name in analysis.tables()}
Path(sys.argv[2]).write_bytes(pickle.dumps((frames, len(made), len(released))))
"""


def _all_tables(path, memory_bytes):
    import pickle

    out = path.with_suffix(f".{memory_bytes}")
    words = [sys.executable, "-c", _ALL_TABLES, str(path), str(out), str(memory_bytes)]
    subprocess.run(words, check=True, timeout=300)
    return pickle.loads(out.read_bytes())


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [*SHAPES, "layers"])
def test_all_tables_are_those_made_in_memory(shape, tmp_path):
    import pandas as pd

    path = tmp_path / "a.sqlite"
    assert write_shape(path, shape, 6_000) if shape in SHAPES else write_big_export(path, 4_000, processes=2)
    in_memory, mapped, _ = _all_tables(path, 0)
    assert not mapped and len(in_memory["nodes"]) + len(in_memory["kernels"]) > 1_000
    frames, mapped, released = _all_tables(path, 1 << 20)
    assert mapped and released  # how many depends on the version of NumPy and pandas
    assert frames.keys() == in_memory.keys()
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, in_memory[name], obj=name, check_exact=True)


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


@pytest.mark.parametrize(
    ("text", "amount"), [("2GB", 2 * 10**9), ("512MiB", 512 << 20), ("1.5 KB", 1500), ("7B", 7), ("", 640 << 20)]
)
def test_amounts_of_memory(text, amount):
    try:
        limits.want_memory(text)
        assert limits.memory_bytes(1 << 30) == amount
    finally:
        limits.want_memory("")
    assert limits.memory_bytes(1 << 20) == 0


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "2XB", "1GB 2GB"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(UsageError, match="--memory"):
        limits.want_memory(text)
