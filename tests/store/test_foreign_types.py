"""A store whose columns were declared anew, with values of another kind: one sentence, from every command."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from builders import ExportBuilder
from helpers import called

from xsp_post.pipeline import analyze
from xsp_post.store.store import write_store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store, and the same tables with every column declared TEXT."""
    folder = tmp_path_factory.mktemp("stores")
    builder = ExportBuilder().range("step", 0, 10_000)
    for k in range(5):
        builder.kernel("k", launch=(10 * k, 10 * k + 1), run=(10 * k + 2, 10 * k + 9))
    good, bad = folder / "good.xsp.sqlite", folder / "bad.xsp.sqlite"
    write_store(analyze([builder.write(folder / "a.sqlite")]), good)
    with closing(sqlite3.connect(good)) as source, closing(sqlite3.connect(bad)) as target:
        for name, kind, sql in source.execute("SELECT name, type, sql FROM sqlite_master").fetchall():
            if kind == "table":
                asked = source.execute(f'SELECT * FROM "{name}"')
                columns = ", ".join(f'"{one[0]}" TEXT' for one in asked.description)
                target.execute(f'CREATE TABLE "{name}" ({columns})')
                marks = ", ".join("?" * len(asked.description))
                target.executemany(f'INSERT INTO "{name}" VALUES ({marks})', asked.fetchall())
            elif kind == "view":
                target.execute(sql)
        target.commit()
    return good, bad


@pytest.mark.parametrize(
    "words", [["tree"], ["why"], ["what-if"], ["table", "kernels"], ["table", "findings"], ["table", "idle_causes"],
              ["export", "--to", "chrome", "-o", "{folder}/out.json"], ["report", "-o", "{folder}/out.html"]],
)  # fmt: skip
def test_columns_of_another_kind_are_said(stores, tmp_path, words):
    good, bad = stores
    said = [word.format(folder=tmp_path) for word in words]
    if words[0] == "table":
        assert called(*said, good).returncode == 0
    done = called(*said, bad)
    assert done.returncode == 4 and "[store-damaged]" in done.stderr and "of another type" in done.stderr, done.stderr
