"""`explain` says what a code means; `open` shows the page of a capture and leaves nothing beside it."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest
from builders import ExportBuilder
from helpers import called as xsp

from xsp_post.base.messages import ERRORS, FINDINGS


@pytest.mark.parametrize("typed", ["module-loading", "[module-loading ×17]", "unknown-table"])
def test_a_code_is_explained(typed):
    code = typed.strip("[]").partition(" ")[0]
    message = FINDINGS.get(code) or ERRORS[code]
    said = xsp("explain", typed).stdout
    assert message.title in said and message.cause in said and message.cure in said
    assert json.loads(xsp("explain", typed, "--json").stdout)["data"]["cause"] == message.cause


def test_a_code_that_is_almost_one_is_suggested():
    done = xsp("explain", "module-loadin")
    assert done.returncode == 2 and "module-loading" in done.stderr


def test_a_page_is_opened_and_lies_nowhere_else(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    ExportBuilder().gpu().kernel("gemm", launch=(0, 5), run=(10, 50)).write(tmp_path / "small.sqlite")
    done = xsp("open", tmp_path / "small.sqlite", cwd=tmp_path)
    page = Path(done.stdout.strip())
    assert done.returncode == 0 and opened == [page.as_uri()] and "<html" in page.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["small.sqlite"]
