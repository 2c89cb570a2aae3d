"""`output`: a file appears whole or not at all, and every failure is a sentence with exit 6."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from xsp_post.base import output, stops
from xsp_post.base.errors import EXIT_OUTPUT, OutputError
from xsp_post.base.messages import ERRORS
from xsp_post.base.output import atomic_folder, atomic_output, require_free


def left_over(folder):
    return sorted(os.listdir(folder))


def test_a_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "a.csv.gz"
    with atomic_output(target) as path:
        assert path.parent == tmp_path and path.name.endswith(".csv.gz")
        path.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert left_over(tmp_path) == ["a.csv.gz"]


def test_an_existing_file_is_refused_and_unchanged(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(OutputError) as caught, atomic_output(target):
        raise AssertionError("the block must not start")
    assert caught.value.code == "output-exists" and caught.value.exit_code == EXIT_OUTPUT
    assert str(target) in caught.value.message
    with atomic_output(target, force=True) as path:
        path.write_text("new")
    assert target.read_text() == "new"


def test_a_dangling_link_counts_as_existing(tmp_path):
    target = tmp_path / "link"
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError), atomic_output(target):
        pass


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_a_failing_block_leaves_the_old_file_and_nothing_else(tmp_path, error):
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(type(error)), atomic_output(target, force=True) as path:
        path.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert left_over(tmp_path) == ["a"]


@pytest.mark.parametrize(("make", "call"), [(atomic_output, "open"), (atomic_folder, "mkdir")])
def test_a_signal_right_after_the_output_was_created_leaves_nothing(tmp_path, monkeypatch, make, call):
    """The signal comes before the call that creates the file or folder has returned to the program."""
    real, before = getattr(Path, call), set(stops.unfinished)  # of tests before, in this process

    def created(self, *arguments, **named):
        real(self, *arguments, **named)
        assert left_over(tmp_path) == [self.name]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, call, created)
        with pytest.raises(KeyboardInterrupt), make(tmp_path / "a.sqlite"):
            pass
    assert left_over(tmp_path) == [] and stops.unfinished == before


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "output-full"),
        (errno.EROFS, "output-denied"),
        (errno.EACCES, "output-denied"),
        (errno.EIO, "output-failed"),
    ],
)
def test_failures_of_the_disk_are_sentences(tmp_path, number, code):
    with pytest.raises(OutputError) as caught, atomic_output(tmp_path / "a") as path:
        raise OSError(number, os.strerror(number), str(path))
    assert caught.value.code == code in ERRORS
    assert left_over(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_really_full_disk(tmp_path):
    with pytest.raises(OutputError) as caught, atomic_output(tmp_path / "a"):
        Path("/dev/full").write_bytes(b"x")
    assert caught.value.code == "output-full"


def test_an_error_about_another_file_is_not_ours(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_output(tmp_path / "a"):
        (tmp_path / "source").read_bytes()


def test_a_folder_that_cannot_be_written_to_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(output.os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(OutputError) as caught:
        require_free(tmp_path / "a")
    assert caught.value.code == "output-denied"


def test_missing_folder_and_folder_as_target(tmp_path):
    for target in (tmp_path / "no" / "a", tmp_path):
        with pytest.raises(OutputError) as caught, atomic_output(target, force=True):
            pass
        assert caught.value.code == "output-folder"


def test_a_full_database_is_a_full_disk(tmp_path):
    with pytest.raises(OutputError) as caught, atomic_output(tmp_path / "a.sqlite") as path:
        (tmp_path / f"{path.name}-journal").write_text("")
        raise sqlite3.OperationalError("database or disk is full")
    assert caught.value.code == "output-full"
    assert left_over(tmp_path) == []


def test_folders(tmp_path):
    target = tmp_path / "tables"
    with atomic_folder(target) as path:
        (path / "a.csv").write_text("1")
    assert left_over(target) == ["a.csv"]
    with pytest.raises(OutputError), atomic_folder(target):
        pass
    with pytest.raises(ValueError), atomic_folder(target, force=True) as path:
        raise ValueError
    assert left_over(target) == ["a.csv"]
    with atomic_folder(target, force=True) as path:
        (path / "b.csv").write_text("2")
    assert left_over(target) == ["b.csv"] and left_over(tmp_path) == ["tables"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught, atomic_folder(tmp_path / "file", force=True):
        pass
    assert caught.value.code == "output-folder"


def test_an_output_that_another_command_takes_away_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    opened, asked = output._opened, []

    def taken_away(path):
        asked.append(path)
        if len(asked) == 1:
            path.unlink()
        return opened(path)

    monkeypatch.setattr(output, "_opened", taken_away)
    with atomic_output(tmp_path / "a") as path:
        path.write_text("whole")
    assert (tmp_path / "a").read_text() == "whole" and len(asked) == 2


def test_rights_are_those_of_any_new_file(tmp_path):
    with atomic_output(tmp_path / "a"):
        pass
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_folder_with_anything_else_in_it_is_never_replaced(tmp_path):
    target = tmp_path / "home"
    target.mkdir()
    (target / "thesis.tex").write_text("years")
    with pytest.raises(OutputError) as caught, atomic_folder(target, force=True, owned="*.csv"):
        raise AssertionError("the block must not start")
    assert caught.value.code == "output-folder" and "thesis.tex" in caught.value.message
    assert left_over(target) == ["thesis.tex"]
    (target / "sub").mkdir()
    (target / "thesis.tex").unlink()
    with pytest.raises(OutputError), atomic_folder(target, force=True):
        pass
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OutputError), atomic_folder(tmp_path / "link", force=True):
        pass
