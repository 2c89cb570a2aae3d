"""The bundle that every page holds is made once and kept, and only a whole copy of it is used."""

import pytest

from xsp_post.reports import javascript


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "xsp-post"


def test_what_was_kept_is_read_again(cache_folder):
    assert javascript._kept_bundle() == ""
    javascript._keep_bundle("let a = 'é';\nlet b;".encode())
    assert javascript._kept_bundle() == "let a = 'é';\nlet b;"
    assert [path.suffix for path in cache_folder.iterdir()] == [".js"]


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data + b"x", lambda data: b""])
def test_a_damaged_copy_is_not_used(cache_folder, damage):
    javascript._keep_bundle(b"let a;")
    path = javascript._bundle_file()
    path.write_bytes(damage(path.read_bytes()))
    assert javascript._kept_bundle() == ""


def test_a_copy_that_others_may_write_is_not_used(cache_folder):
    javascript._keep_bundle(b"let a;")
    javascript._bundle_file().chmod(0o666)
    assert javascript._kept_bundle() == ""


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    javascript._keep_bundle(b"let a;")
    assert javascript._kept_bundle() == ""
