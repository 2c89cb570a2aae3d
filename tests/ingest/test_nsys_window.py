"""A time of a large export is read by itself: the same rows and sums as a cut of all of it, from few rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from random import Random

import pytest
from builders import ExportBuilder

from xsp_post.ingest import nsys_window, sqlite_pages
from xsp_post.ingest.nsys_window import WindowTables, is_windowed
from xsp_post.ingest.tables import requests
from xsp_post.model.options import Options
from xsp_post.pipeline import results_of, window_of

STEPS, STEP_NS = 40, 10_000


def program(seed: int, path):
    """Two processes of steps with two layers each; work is queued for up to three steps, some ranges stay open."""
    random, builder = Random(seed), ExportBuilder().gpu()
    for process in (100, 200):
        builder.process(process)
        builder.range("all of it", 0, STEPS * STEP_NS)
        free = 0
        for k in range(STEPS):
            at = k * STEP_NS
            builder.range("step", at, at + 9_000).range("one", at + 10, at + 4_000).range("two", at + 4_100, at + 8_000)
            for launch in (at + 20, at + 4_200, at + 8_100):
                start = max(launch + 20 + random.choice((0, 0, 2 * STEP_NS)), free)
                free = start + random.randrange(100, 3_000)
                builder.kernel(random.choice("abc"), launch=(launch, launch + 10), run=(start, free))
    return builder.write(path)


def said(results):
    """What does not depend on numbers of rows, executions and layers."""
    kernels = results.frame("kernels")
    nodes = results.frame("nodes")
    columns = ["process_id", "name", "start_ns", "end_ns", "launch_start_ns", "launch_end_ns", "attribution"]
    amounts = ["process_id", "name", "start_ns", "kernel_ns", "kernel_count", "self_kernel_ns", "projected_start_ns"]
    causes = results.frame("idle_causes").astype({"cause": str})
    return {
        "kernels": sorted(kernels[columns].astype(str).to_numpy().tolist()),
        "nodes": sorted(nodes[amounts].astype(str).to_numpy().tolist()),
        "capture": results.frame("captures")[["kernel_count", "kernel_ns", "duration_ns", "device_ns"]]
        .to_numpy()
        .tolist(),
        "devices": results.frame("devices")[["process_id", "kernel_ns", "busy_ns"]].to_numpy().tolist(),
        "idle": causes.groupby("cause")["idle_ns"].sum().to_dict(),
        "part": results.frame("part")["statement"].tolist(),
    }


@pytest.mark.parametrize("seed", range(6))
def test_a_window_says_what_a_cut_of_the_whole_says(seed, tmp_path, monkeypatch):
    path = program(seed, tmp_path / "a.sqlite")
    rules = {"model_range": "^step$", "layer_range": "^(one|two)$"}
    options = Options(begin_ns=153_000, end_ns=228_500, **rules)
    whole = results_of([path], options)
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    window = results_of([path], options)
    assert said(window) == said(whole)
    assert "window-alone" in set(window.frame("findings")["code"]) - set(whole.frame("findings")["code"])
    assert "orphan-kernels" not in set(window.frame("findings")["code"])


def test_few_rows_are_read(tmp_path, monkeypatch):
    path = program(1, tmp_path / "a.sqlite")
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    tables = window_of([path], Options(begin_ns=153_000, end_ns=173_000))
    assert isinstance(tables, WindowTables)
    tables.read(list(requests(tables).values()))
    held = {
        name: tables.row_counts[name]
        for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
    }
    assert all(0 < count < 2 * 3 * STEPS // 3 for count in held.values()), held


@pytest.mark.parametrize(("seed", "is_in_order"), [(1, True), (2, False), (3, False)])
def test_few_pages_are_read_and_they_say_what_sqlite_says(tmp_path, monkeypatch, seed, is_in_order):
    """Of rows in order of time; of rows in any order all pages are read, and the same rows come."""
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    path = program(seed, tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        if not is_in_order:  # a page with a mark may hold a range without an end
            columns = "INTO NVTX_EVENTS (start, eventType, globalTid, text) SELECT start + 3, 34, globalTid, 'm'"
            connection.execute(f"INSERT {columns} FROM NVTX_EVENTS")
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            order = "start" if is_in_order else "start * 7919 % 1009"
            connection.execute(f"CREATE TABLE kept AS SELECT * FROM {table} ORDER BY {order}")
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM kept")
            connection.execute("DROP TABLE kept")
        connection.commit()
        connection.execute("PRAGMA page_size=512")
        connection.execute("VACUUM")
    options = Options(begin_ns=153_000, end_ns=173_000)
    pages = []
    read_kept = sqlite_pages.read_kept
    monkeypatch.setattr(sqlite_pages, "read_kept", lambda *words: pages.append(len(words[-1])) or read_kept(*words))
    by_pages = window_of([path], options)
    asked = list(requests(by_pages).values())
    found = by_pages.read(asked)
    monkeypatch.setattr(WindowTables, "_zones_of", lambda *_: None)
    by_sqlite = window_of([path], options)
    assert pages and not by_pages._zones.keys() - {*by_pages._with_ids, by_pages._ranges}
    for one, other in zip(found, by_sqlite.read(asked), strict=True):
        assert one.to_pydict() == other.to_pydict()
    assert by_pages.row_counts == by_sqlite.row_counts and by_pages.findings == by_sqlite.findings
    whole = sum(len(zones.pages) for zones in by_pages._zones.values())
    assert sum(pages) < 0.4 * whole if is_in_order else sum(pages) > 0.8 * whole


def test_a_time_without_anything_says_how_long_the_recording_is(tmp_path, monkeypatch):
    from xsp_post.base.errors import UsageError

    path = program(1, tmp_path / "a.sqlite")
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    with pytest.raises(UsageError, match=r"the recording is 0\.00–"):
        results_of([path], Options(begin_ns=10**9))


def test_only_a_time_of_a_large_export_is_a_window(tmp_path):
    path = program(1, tmp_path / "a.sqlite")
    assert not is_windowed(path, Options(begin_ns=1))  # it is small
    assert window_of([path], Options(begin_ns=1)) is None
    large = tmp_path / "large.sqlite"
    with open(large, "wb") as file:
        file.truncate(nsys_window.LARGE_BYTES)
    assert is_windowed(large, Options(end_ns=1))
    assert not is_windowed(large, Options(iteration=1)) and not is_windowed(large, Options())


def idle_of(path, monkeypatch, begin, end):
    """Idle time and busy time of a time of an export, cut of the whole and read by itself."""
    options, found = Options(begin_ns=begin, end_ns=end), []
    for limit in (10**12, 0):
        monkeypatch.setattr(nsys_window, "LARGE_BYTES", limit)
        windows = results_of([path], options).frame("device_windows")
        found.append((windows["idle_ns"].sum(), windows["busy_ns"].sum()))
    return found


def test_the_device_waited_from_the_work_before_the_window(tmp_path, monkeypatch):
    builder = ExportBuilder().gpu().range("step", 0, 90_000)
    for at in (1_000, 60_000, 80_000):
        builder.kernel("k", launch=(at, at + 10), run=(at + 100, at + 200))
    whole, window = idle_of(builder.write(tmp_path / "a.sqlite"), monkeypatch, 30_000, 81_000)
    assert whole == window and whole[0] > 45_000


def test_work_that_began_long_before_the_window_keeps_the_device_busy(tmp_path, monkeypatch):
    builder = ExportBuilder().gpu().range("step", 0, 90_000)
    builder.kernel("long", launch=(10, 20), run=(100, 70_000), stream=9)
    for at in (20_000, 40_000, 60_000, 80_000):
        builder.kernel("k", launch=(at, at + 10), run=(at + 100, at + 200))
    whole, window = idle_of(builder.write(tmp_path / "a.sqlite"), monkeypatch, 50_000, 81_000)
    assert whole == window


def test_a_range_that_never_ends_is_around_what_is_launched_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    builder = ExportBuilder().gpu().range("open", 5, None).range("late", 60_000, 61_000)
    for at in range(1_000, 50_000, 1_000):
        builder.kernel("k", launch=(at, at + 10), run=(at + 100, at + 200))
    part = results_of([builder.write(tmp_path / "a.sqlite")], Options(begin_ns=30_000, end_ns=40_000))
    assert part.frame("paths").set_index("name").loc["open", "kernel_count"] == 10


def test_equal_ids_of_another_process_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_window, "LARGE_BYTES", 0)
    builder = ExportBuilder().gpu()
    for process, first in ((100, 1_000), (200, 900_000)):
        builder.process(process)
        for at in range(first, first + 50_000, 1_000):
            builder.kernel("k", launch=(at, at + 10), run=(at + 100, at + 200))
    tables = window_of([builder.write(tmp_path / "a.sqlite")], Options(begin_ns=10_000, end_ns=20_000))
    tables.read(list(requests(tables).values()))
    assert 10 <= tables.row_counts["CUPTI_ACTIVITY_KIND_KERNEL"] <= 13
