"""What is unknown is empty wherever a person reads it: NULL in the store, <NA> in frames, "–" on screen."""

import io
import sqlite3

import numpy as np
import pandas as pd
from helpers import small_analysis
from rich.console import Console

import xsp_post
from xsp_post.exporters import tables
from xsp_post.model.schemas import TABLES, optional_columns
from xsp_post.reports.terminal import markdown, print_frame
from xsp_post.store.store import open_store, write_store


def with_unknown_launch(analysis):
    """The sample, whose first kernel has no launch row and whose batch sizes nobody knows."""
    kernels = analysis.frames["kernels"].copy()
    kernels.loc[kernels.index[0], ["launch_start_ns", "queue_delay_ns", "correlation_id"]] = -1
    captures = analysis.frames["captures"].assign(batch_size=-1)
    return type(analysis)({**analysis.frames, "kernels": kernels, "captures": captures}, analysis.findings)


def test_the_store_holds_null_and_reading_it_gives_our_own_value_back(tmp_path):
    analysis = with_unknown_launch(small_analysis())
    path = tmp_path / "s.xsp.sqlite"
    write_store(analysis, path)
    with sqlite3.connect(path) as database:
        (sizes,) = database.execute("SELECT COUNT(batch_size) FROM captures").fetchone()
        (known,) = database.execute("SELECT COUNT(correlation_id) FROM kernels").fetchone()
        (least,) = database.execute("SELECT MIN(queue_delay_ns) FROM kernels").fetchone()
    assert sizes == 0 and known == len(analysis.frames["kernels"]) - 1
    assert least != -1
    again = open_store(path)
    for name in ("kernels", "captures"):
        for column in optional_columns(name) & set(analysis.frames[name].columns):
            values = analysis.frames[name][column].to_numpy()
            assert np.array_equal(again.frame(name)[column].to_numpy(), values), column
    loaded = xsp_post.load(path)
    assert loaded.captures["batch_size"].isna().all()
    assert loaded.kernels["correlation_id"].isna().sum() == 1
    assert loaded.kernels["correlation_id"].mean() > 0  # −1 does not take part in an average


def test_no_table_that_leaves_holds_minus_one_for_unknown(tmp_path):
    analysis = with_unknown_launch(small_analysis())
    tables.write_csv(analysis, tmp_path / "out")
    for name in analysis.tables():
        frame = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        for column in optional_columns(name) & set(frame.columns):
            assert not frame[column].eq(-1).any(), f"{name}.{column}"


def test_the_screen_says_a_dash(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b"], "correlation_id": pd.array([7, None], dtype="Int64")})
    file = io.StringIO()
    print_frame(Console(file=file, width=100), frame, 0)
    assert "–" in file.getvalue() and "<NA>" not in file.getvalue()
    assert "| b |  |" in markdown(frame)


def test_only_integers_are_optional():
    for table in TABLES.values():
        for column in table.columns:
            assert not column.is_optional or column.dtype in ("int64", "int32"), f"{table.name}.{column.name}"
            assert "-1 unknown" not in column.meaning, f"{table.name}.{column.name}"


def test_what_is_the_same_for_all_rows_stands_once_and_is_read_as_before(tmp_path, monkeypatch):
    analysis = small_analysis()
    write_store(analysis, tmp_path / "rows.xsp.sqlite")
    monkeypatch.setattr("xsp_post.store.layout.LEAST_ROWS", 1)
    write_store(analysis, tmp_path / "once.xsp.sqlite")
    rows, once = (open_store(tmp_path / f"{name}.xsp.sqlite") for name in ("rows", "once"))
    assert once.tables() == rows.tables()
    for name in rows.tables():
        pd.testing.assert_frame_equal(once.frame(name).astype(object), rows.frame(name).astype(object))
    with sqlite3.connect(rows.path) as plain, sqlite3.connect(once.path) as split:
        for name in rows.tables():
            assert (
                split.execute(f"SELECT * FROM {name}").fetchall() == plain.execute(f"SELECT * FROM {name}").fetchall()
            )
        columns = {row[1] for row in split.execute("PRAGMA table_info(node_rows)")}
    plain.close(), split.close()
    assert "graph_ns" not in columns and "start_ns_above_base" in columns
