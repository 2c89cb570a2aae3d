"""`xsp-post report`: pages, pictures and JSON from the shipped example, and what goes wrong in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import ExportBuilder
from typer.testing import CliRunner

from xsp_post.cli import app, main
from xsp_post.commands.shared import JSON_VERSION

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/resnet50_generated.sqlite"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "run.xsp.sqlite"
    from xsp_post.pipeline import analyze
    from xsp_post.store.store import write_store

    write_store(analyze([EXAMPLE]), path)
    return path


@pytest.fixture
def run(monkeypatch):
    """Exit code of a command line, as `main` gives it; signals stay pytest's, whose process lives on."""

    class NoStops:
        received = 0

        def finish(self) -> None: ...

    monkeypatch.setattr("xsp_post.commands.application.Stops", NoStops)
    monkeypatch.setattr("xsp_post.base.sealed.is_possible", lambda: False)  # the child would go on as pytest

    def runner(*arguments: object) -> int:
        monkeypatch.setattr("sys.argv", ["xsp-post", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return runner


def test_the_page_lies_beside_the_store_by_default(store):
    assert CliRunner().invoke(app, ["report", str(store), "--force"]).exit_code == 0
    assert store.with_name("run.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_and_the_pictures_of_a_capture_lie_in_the_current_folder(tmp_path, monkeypatch):
    captures, here = tmp_path / "captures", tmp_path / "here"
    captures.mkdir()
    here.mkdir()
    path = ExportBuilder().process(100).kernel("k", launch=(1, 2), run=(3, 9)).write(captures / "run.sqlite")
    monkeypatch.chdir(here)
    assert CliRunner().invoke(app, ["report", str(path), "--only", "A10", "--format", "svg"]).exit_code == 0
    assert CliRunner().invoke(app, ["report", str(path), "--only", "A10"]).exit_code == 0
    assert {one.name for one in here.iterdir()} == {"run.a10.svg", "run.html"}
    assert [one.name for one in captures.iterdir()] == ["run.sqlite"]


def test_a_page_that_exists_is_refused_before_the_capture_is_read(run, tmp_path):
    (tmp_path / "a.html").write_text("old")
    (tmp_path / "a.sqlite").write_text("no capture")
    assert run("report", tmp_path / "a.sqlite", "-o", tmp_path / "a.html") == 6


def test_json_holds_the_report(store):
    result = CliRunner().invoke(app, ["report", str(store), "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["format"], document["version"]) == ("xsp-post.report", JSON_VERSION)
    report = document["data"]
    assert {s["id"] for s in report["sections"]} >= {"layers", "kernels", "tree", "timeline"}


def test_pictures_of_one_analysis(store, tmp_path):
    result = CliRunner().invoke(
        app, ["report", str(store), "--only", "A10", "--format", "svg", "-o", str(tmp_path / "a10.svg")]
    )
    assert result.exit_code == 0
    assert (tmp_path / "a10.svg").read_text(encoding="utf-8").startswith("<svg")


def test_further_charts_lie_beside_the_file_that_was_asked_for(store, tmp_path):
    """``-o a3.svg`` is a file, never a folder of that name, though A3 has two charts."""
    result = CliRunner().invoke(
        app, ["report", str(store), "--only", "A3", "--format", "svg", "-o", str(tmp_path / "a3.svg")]
    )
    assert result.exit_code == 0
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["a3.a03-box.svg", "a3.svg"]


def test_findings_have_their_texts(store):
    result = CliRunner().invoke(app, ["report", str(store), "--json", "--only", "model"])
    for found in json.loads(result.stdout)["data"]["findings"]:
        assert found["cause"], found["code"]
        assert found["title"] != found["code"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--format", "pdf"], 2), (["--only", "A99"], 2), (["--case", "77"], 2), (["--only", "A9", "--format", "png"], 2)],
)
def test_what_cannot_be_shown_is_a_sentence(run, store, tmp_path, capsys, arguments, code):
    assert run("report", store, "-o", tmp_path / "x", *arguments) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said and len(said.splitlines()) <= 3
    assert not (tmp_path / "x").exists()


def test_an_output_that_exists_is_kept(run, store, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert run("report", store, "-o", page) == 6
    assert page.read_text() == "mine"
