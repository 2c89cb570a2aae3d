"""A store that version 0.1.0 wrote (schema version 2) is read, and holds what the same capture gives today."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze, part_of
from xsp_post.store.store import SCHEMA_VERSION, open_store, write_store

US = 1_000
# columns that version 0.1.0 did not write
ROLES = ("attention", "products", "experts", "norm", "sampling", "communication", "other_kernels")
LATER = {"iterations": {"host_gap_ns", *(f"{role}_ratio" for role in ROLES)}}


def capture(path: Path) -> None:
    """The export that the kept store was made of."""
    builder = ExportBuilder().process(100).thread(100)
    for step in range(4):
        start = step * 500
        builder.range(f"model:forward#{step}", start * US, (start + 400) * US, domain="xsp")
        for layer in range(3):
            at = start + 10 + layer * 120
            builder.range(f"blocks.{layer}:Linear#{step}", at * US, (at + 100) * US, domain="xsp")
            builder.kernel(
                "gemm", launch=((at + 5) * US, (at + 10) * US), run=((at + 14) * US, (at + 40 + layer) * US), stream=7
            )
            builder.kernel(
                "relu", launch=((at + 50) * US, (at + 54) * US), run=((at + 56) * US, (at + 70) * US), stream=7
            )
        builder.sync("cudaStreamSynchronize_v3020", (start + 370) * US, (start + 390) * US)
    builder.write(path)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The kept store, and one that is written now."""
    folder = tmp_path_factory.mktemp("stores")
    kept = Path(__file__).with_name("store_0.1.0.xsp.sqlite.xz")
    (folder / "old.xsp.sqlite").write_bytes(lzma.decompress(kept.read_bytes()))
    capture(folder / "old.sqlite")
    write_store(analyze([folder / "old.sqlite"]), folder / "new.xsp.sqlite")
    return folder / "old.xsp.sqlite", folder / "new.xsp.sqlite"


def test_the_kept_store_is_of_an_older_version_and_the_new_one_is_whole(stores):
    versions = []
    for path in stores:
        with closing(sqlite3.connect(path)) as database:
            versions += database.execute("SELECT value FROM xsp_meta WHERE key = 'schema_version'").fetchone()
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert versions == ["2", str(SCHEMA_VERSION)]


@pytest.mark.parametrize("table", ["nodes", "kernels", "layers", "iterations", "idle", "idle_causes", "paths"])
def test_an_older_store_holds_what_the_capture_gives_now(stores, table):
    old, new = (open_store(path).frame(table) for path in stores)
    assert len(old) == len(new) > 0
    if "scope" in new:  # version 0.1.0 knew no scope between two executions
        assert set(old["scope"][new["scope"] == "between"]) <= {"outside"}
        new["scope"] = old["scope"].where(new["scope"] == "between", new["scope"].astype(object))
    differ = [c for c in new if old[c].astype(object).fillna("").tolist() != new[c].astype(object).fillna("").tolist()]
    assert set(differ) <= LATER.get(table, set())
    assert all(old[c].isna().all() or old[c].isin([-1, "", False]).all() for c in differ)


def test_a_window_of_an_older_store_is_that_of_a_new_one(stores):
    old, new = (part_of(open_store(path), Options(iteration=2)) for path in stores)
    for table in ("idle_causes", "device_windows", "layers"):
        pd.testing.assert_frame_equal(old.frame(table).astype(object), new.frame(table).astype(object))
