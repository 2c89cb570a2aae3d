"""Large columns lie in files without a name; whatever is made of them is what is made in memory."""

from __future__ import annotations

import errno
import sys

import numpy as np
import pandas as pd
import pytest
from generators.big import write_big_export
from generators.shapes import SHAPES, write_shape

from xsp_post.arrays import on_disk
from xsp_post.pipeline import analyze

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the calls")


@on_linux
@pytest.mark.parametrize("shape", [*SHAPES, "layers"])
def test_all_tables_are_those_made_in_memory(shape, tmp_path, monkeypatch):
    path = tmp_path / "a.sqlite"
    rows = write_shape(path, shape, 3_000) if shape in SHAPES else write_big_export(path, 2_000, processes=2)
    in_memory = analyze([path])
    assert len(in_memory.frame("nodes")) + len(in_memory.frame("kernels")) > 1_000 and rows
    monkeypatch.setattr(on_disk, "LEAST_BYTES", 64)
    mapped, make = [], on_disk.os.posix_fallocate
    monkeypatch.setattr(on_disk.os, "posix_fallocate", lambda *of: mapped.append(make(*of)))
    analysis = analyze([path])
    assert len(mapped) > 50
    assert analysis.tables() == in_memory.tables()
    for name in analysis.tables():
        pd.testing.assert_frame_equal(analysis.frame(name), in_memory.frame(name), obj=name, rtol=1e-12, atol=0)


@on_linux
def test_a_column_takes_no_memory_until_it_is_read(monkeypatch):
    monkeypatch.setattr(on_disk, "MOST_BYTES", 0)
    values = np.arange(1 << 23)
    frame = on_disk.kept(pd.DataFrame({"number": values, "few": np.int8(1), "text": pd.Categorical.from_codes(
        values.astype(np.int32) % 2, ["a", "b"])}))  # fmt: skip
    for _ in range(3):
        on_disk.release()
        assert (frame["number"].to_numpy() == values).all()
        assert (frame["text"].to_numpy() == np.array(["a", "b"], object)[values % 2]).all()
    assert on_disk.moved(frame["number"].to_numpy()) is not values
    assert np.shares_memory(on_disk.moved(frame["number"].to_numpy()), frame["number"].to_numpy())


@on_linux
def test_without_room_on_the_disk_it_stays_in_memory(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(on_disk.os, "posix_fallocate", full)
    values = np.arange(1 << 23)
    assert (on_disk.moved(values) == values).all()
    assert not np.shares_memory(on_disk.moved(values), values)
