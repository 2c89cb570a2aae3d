"""Findings keep their texts in the store: every reader of the store says what the reader of the capture says."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from builders import ExportBuilder
from rich.console import Console

import xsp_post
from xsp_post.base.messages import FINDINGS
from xsp_post.model.results import for_people
from xsp_post.pipeline import analyze
from xsp_post.reports.terminal import print_findings
from xsp_post.reports.trust import shown_findings
from xsp_post.store.store import open_store, write_store


@pytest.fixture
def both(tmp_path):
    """The analysis of a capture with an orphan kernel, and the path of its store."""
    capture = tmp_path / "run.sqlite"
    builder = ExportBuilder().process(100).range("model", 0, 1000).kernel("gemm", launch=(10, 15), run=(20, 120))
    builder.kernel("lost", launch=None, run=(200, 260)).write(capture)
    path = tmp_path / "run.xsp.sqlite"
    analysis = analyze([capture])
    write_store(analysis, path)
    return analysis, path


def printed(results):
    file = io.StringIO()
    print_findings(Console(file=file, width=200), results)
    return file.getvalue()


def test_the_store_says_what_the_capture_says(both, monkeypatch):
    analysis, path = both
    assert printed(open_store(path)) == printed(analysis)
    assert shown_findings(open_store(path)) == shown_findings(analysis)
    loaded = xsp_post.load(path).findings
    pd.testing.assert_frame_equal(
        loaded.astype(str).reset_index(drop=True), for_people(analysis, "findings").astype(str), check_dtype=False
    )


def test_the_texts_come_from_the_store_not_from_the_catalogue(both, monkeypatch):
    _, path = both
    before = FINDINGS["orphan-kernels"]
    monkeypatch.delitem(FINDINGS._entries, "orphan-kernels")
    found = {one["code"]: one for one in shown_findings(open_store(path))}["orphan-kernels"]
    assert (found["title"], found["cause"], found["cure"]) == (before.title, before.cause, before.cure)
    assert before.title in printed(open_store(path))
