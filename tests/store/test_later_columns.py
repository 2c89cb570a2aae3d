"""A store that was written before a column existed: what it lacks is unknown, and every command answers."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pandas as pd
import pytest
from helpers import called
from programs import Op, run_steps

from xsp_post.model.options import Options
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import analyze
from xsp_post.store.store import open_store, write_store

STEP = [op for _ in range(12) for op in (Op("host", 40_000), Op("kernel", 9_000, "gemm"))] + [Op("sync")]
LATER = {"experiment": ["part", "is_part"], "device_windows": ["small_launch_ns"], "replays": ["execution"],
         "idle_causes": ["detail"], "iterations": ["size_source", "key_count"]}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    run_steps(STEP, 4, folder / "a.sqlite")
    write_store(analyze([folder / "a.sqlite"], Options(model_range="^step")), folder / "a.xsp.sqlite")
    return folder / "a.xsp.sqlite"


def without(store, path, dropped):
    """A copy in which columns were never written; ``dropped``: names of each table."""
    shutil.copy(store, path)
    with closing(sqlite3.connect(path)) as database:
        held = json.loads(database.execute("SELECT value FROM xsp_meta WHERE key = 'tables'").fetchone()[0])
        for table, names in dropped.items():
            for name in names:
                database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{name}"')
                held[table].remove(name)
        database.execute("UPDATE xsp_meta SET value = ? WHERE key = 'tables'", [json.dumps(held)])
        database.commit()
    return path


@pytest.mark.parametrize("command", [["why"], ["why", "--verbose"], ["tree"]])
def test_commands_answer_without_later_columns(store, tmp_path, command):
    older = without(store, tmp_path / "older.xsp.sqlite", LATER)
    said = [called(*command, path) for path in (store, older)]
    assert [one.returncode for one in said] == [0, 0], said[1].stdout
    assert said[0].stdout.splitlines()[0] == said[1].stdout.splitlines()[0]


def test_a_column_of_every_small_table_may_be_missing(store, tmp_path):
    with closing(sqlite3.connect(store)) as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    columns = {name: TABLES[name].columns for name in TABLES if name in there}
    dropped = {name: [listed[-2].name] for name, listed in columns.items() if len(listed) > 2}
    assert len(dropped) > 15
    older, newer = open_store(without(store, tmp_path / "older.xsp.sqlite", dropped)), open_store(store)
    for table, (name,) in dropped.items():
        frame, whole = older.frame(table), newer.frame(table)
        assert frame.columns.tolist() == whole.columns.tolist() and len(frame) == len(whole)
        assert older.frame(table, [name])[name].isin([-1, "", False]).all() or frame[name].isna().all()
        pd.testing.assert_frame_equal(frame.drop(columns=name), whole.drop(columns=name), check_dtype=False)
