"""Every table that is made with arrays in files is the one made in memory, bit by bit.

Asked of every shared capture and of generated programs (the mark `sampled`). The other process has a limit so low that
arrays of eight pages lie in files (of a large source of more, a 16th of it), and all of them leave memory again and
again.
"""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from generators import planted, simulator
from generators.big import write_big_export
from generators.machine import write_nsys
from generators.shapes import SHAPES, write_shape
from recorded import analyzed

from xsp_post.base.errors import XspPostError
from xsp_post.pipeline import analyze

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the calls")

FOLDER = Path(__file__).resolve().parents[2] / "shared/captures"
CAPTURES = [path for kind in ("nsys/*.sqlite", "kineto/*.json.gz", "other/*") for path in sorted(FOLDER.glob(kind))]
SEEDS = range(20)

# Reads names of sources and of files for their tables. Answers how many arrays lay in files, and how often all of
# them left memory.
_BOUNDED = r"""
import itertools, pickle, sys
from pathlib import Path
from xsp_post.base import on_disk
LARGE = 1 << 15
on_disk._LEAST_MAPPED_BYTES, on_disk._LIBRARIES_BYTES, on_disk._LARGE_BYTES = LARGE << 6, 0, LARGE
made, released, calls = [], [], itertools.count()
allocate, release = on_disk.os.posix_fallocate, on_disk._Allocator.release
on_disk.os.posix_fallocate = lambda *of: made.append(allocate(*of))
on_disk._Allocator.release = lambda self: next(calls) % 64 or released.append(release(self))  # with every array
on_disk.begin(1 << 20)
from xsp_post.base.errors import XspPostError
from xsp_post.pipeline import analyze
for line in sys.stdin:
    source, tables = line.rstrip("\n").split("\t")
    made.clear(), released.clear()
    calls = itertools.count()  # of this source, so that its first always releases, whatever was read before it
    on_disk._used[0].large_bytes = max(LARGE, Path(source).stat().st_size >> 4)
    try:
        analysis = analyze([Path(source)])
        said = {name: analysis.frame(name) for name in analysis.tables()}
    except XspPostError as error:
        said = str(error)
    Path(tables).write_bytes(pickle.dumps(said))
    print(len(made), len(released), tables, flush=True)
"""


@contextmanager
def _bounded(folder):
    """A source → its tables (or what is said against it), from a process with arrays in files; how many did, how often
    they left memory."""
    numbers = itertools.count()
    with subprocess.Popen(
        [sys.executable, "-c", _BOUNDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def tables(path):
            out = folder / str(next(numbers))
            process.stdin.write(f"{path}\t{out}\n")
            for line in process.stdout:  # the first may answer a test that was given up
                made, released, said = line.split()
                if said == str(out):
                    return pickle.loads(out.read_bytes()), int(made), int(released)
            raise AssertionError("the process that reads with arrays in files has ended")

        yield tables
        process.stdin.close()


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """One process for all sources of which nothing is asked but their tables."""
    with _bounded(tmp_path_factory.mktemp("bounded")) as tables:
        yield tables


def _assert_same(frames, in_memory):
    if not isinstance(in_memory, dict):
        assert frames == in_memory
        return
    assert frames.keys() == in_memory.keys()
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(frame, in_memory[name], obj=name, check_exact=True)


def _frames(analysis):
    return {name: analysis.frame(name) for name in analysis.tables()}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_a_capture(path, bounded):
    try:
        in_memory = _frames(analyzed(path))
    except XspPostError as error:
        in_memory = str(error)
    _assert_same(bounded(path)[0], in_memory)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [*SHAPES, "layers"])
def test_a_shape(shape, tmp_path):
    """Each in a process of its own: what was freed before has room for arrays, which then lie in no file."""
    path = tmp_path / "a.sqlite"
    assert write_shape(path, shape, 30_000) if shape in SHAPES else write_big_export(path, 4_000, processes=2)
    in_memory = _frames(analyze([path]))
    assert len(in_memory["nodes"]) + len(in_memory["kernels"]) > 1_000
    with _bounded(tmp_path) as tables:
        frames, mapped, released = tables(path)
    assert mapped and released  # how many depends on the version of NumPy and pandas
    _assert_same(frames, in_memory)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", ["simulated", "planted"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program(kind, seed, bounded, tmp_path):
    if kind == "planted":
        path = write_nsys(planted.plant(seed)[1], tmp_path / "recording")
    else:
        path = simulator.Machine(simulator.draw_program(seed)).run().write(tmp_path / "recording.sqlite")
    _assert_same(bounded(path)[0], _frames(analyze([path])))
