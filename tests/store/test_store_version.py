"""A store of another schema version is refused, with the command that makes it again."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from contextlib import closing

import pytest
from builders import ExportBuilder

from xsp_post.base.errors import CaptureError
from xsp_post.pipeline import analyze
from xsp_post.store.store import SCHEMA_VERSION, open_store, write_store


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    capture = folder / "my run.sqlite"
    ExportBuilder().process(100).range("model", 0, 1000).kernel("gemm", launch=(10, 15), run=(20, 120)).write(capture)
    write_store(analyze([capture]), folder / "run.xsp.sqlite")
    return folder


@pytest.fixture
def store(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run.xsp.sqlite"


def set_version(store, version):
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE xsp_meta SET value = ? WHERE key = 'schema_version'", (version,))


@pytest.mark.parametrize("version", ["1", str(SCHEMA_VERSION + 1), "x"])
def test_another_version_is_refused_with_the_command_that_makes_it_again(store, version):
    set_version(store, version)
    with pytest.raises(CaptureError) as caught:
        open_store(store)
    assert caught.value.code == "store-version"
    assert f"schema version {version}, this xsp-post reads version {SCHEMA_VERSION}" in caught.value.message
    command = caught.value.hint.removeprefix("make it again: ")
    assert shlex.split(command) == ["xsp-post", "ingest", "my run.sqlite", "-o", str(store), "--force"]


def test_the_store_of_a_run_is_made_again_from_its_folder(store):
    (store.parent / "captures").mkdir()
    (store.parent / "manifest.json").write_text("{}")
    set_version(store, "1")
    with pytest.raises(CaptureError) as caught:
        open_store(store)
    assert f"ingest {shlex.quote(str(store.parent))} -o" in caught.value.hint


def test_an_incomplete_store_names_the_same_command(store):
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TABLE findings")
    with pytest.raises(CaptureError) as caught:
        open_store(store)
    assert caught.value.code == "store-table-missing" and "my run.sqlite" in caught.value.hint


def test_paths_that_exist_twice_are_named(store):
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(
            "CREATE TABLE twice AS SELECT * FROM paths; INSERT INTO twice SELECT * FROM paths; DROP TABLE paths;"
            "ALTER TABLE twice RENAME TO paths"
        )
    with pytest.raises(CaptureError) as refused:
        open_store(store).frame("paths")
    assert refused.value.code == "store-damaged" and "path_id" in refused.value.message


@pytest.mark.parametrize("change", [
    "DELETE FROM balance WHERE attribution = 'total' AND question = 'layer'",
    "DELETE FROM balance WHERE question = 'launch'",
    "INSERT INTO balance SELECT * FROM balance WHERE attribution = 'total'", "UPDATE captures SET capture_id = 7",
])  # fmt: skip
def test_a_balance_without_one_total_for_each_question_is_named(store, change):
    assert open_store(store).frame("balance")["attribution"].eq("total").sum() == 2
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(change)
    with pytest.raises(CaptureError) as refused:
        open_store(store).frame("balance")
    assert refused.value.code == "store-damaged" and "total" in refused.value.message
