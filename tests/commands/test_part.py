"""--iteration, --from and --until on every command that reads: what is shown says its part and has its sums."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder
from helpers import by_row, called
from typer.testing import CliRunner

from xsp_post.agents import answers
from xsp_post.agents.folder import Folder, part_options
from xsp_post.cli import app
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze, part_of
from xsp_post.store.store import open_store, write_store

# tables that must not change where the part is all of the recording
_SAME = ("paths", "operations", "devices", "balance", "device_windows", "idle_causes", "nodes", "kernels", "layers")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Three executions of two layers; each waits for its launches."""
    builder = ExportBuilder().gpu()
    for k in range(3):
        at = 10_000 * k
        builder.range("step", at, at + 9_000).range("one", at + 10, at + 4_000).range("two", at + 4_100, at + 8_000)
        builder.kernel("gemm", launch=(at + 20, at + 30), run=(at + 100, at + 2_100 + 100 * k))
        builder.memcpy(4096, launch=(at + 4_200, at + 4_210), run=(at + 4_300, at + 4_800))
        builder.kernel("relu", launch=(at + 5_000, at + 5_010), run=(at + 5_100, at + 6_100))
    return builder.write(tmp_path_factory.mktemp("part") / "c.sqlite")


@pytest.fixture(scope="module")
def options():
    return {"model_range": "^step$", "layer_range": "^(one|two)$"}


@pytest.fixture(scope="module")
def whole(source, options):
    return analyze([source], Options(**options))


def test_all_of_it_as_a_part_changes_nothing(whole, options, tmp_path):
    write_store(whole, tmp_path / "s.xsp.sqlite")
    for results in (whole, open_store(tmp_path / "s.xsp.sqlite")):
        part = part_of(results, Options(**options, begin_ns=0))
        for table in _SAME:
            before, after = whole.frame(table), part.frame(table)
            assert len(before) == len(after), table
            for column in before:
                ours, theirs = before[column].astype(object), after[column].astype(object)
                assert ((ours.to_numpy() == theirs.to_numpy()) | ours.isna().to_numpy()).all(), (table, column)


def test_one_execution_is_compared_with_the_same_of_another(source, options):
    chosen = ["--model-range", options["model_range"], "--layer-range", options["layer_range"], "--iteration", "1"]
    said = CliRunner().invoke(app, ["compare", str(source), str(source), *chosen])
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("Part of the base: iteration 1 of 3 (0 … 2)")
    assert "The same 2 kernels in the same order" in said.stdout
    data = json.loads(CliRunner().invoke(app, ["compare", str(source), str(source), *chosen, "--json"]).stdout)["data"]
    assert data["base_part"] == data["other_part"] and data["base_part"].startswith("iteration 1 of 3")


def test_one_execution_has_its_own_sums(whole, options):
    part = part_of(whole, Options(**options, iteration=1))
    capture = part.frame("captures").iloc[0]
    assert (capture["kernel_count"], capture["copy_count"], capture["device_ns"]) == (2, 1, 2_100 + 500 + 1_000)
    assert part.frame("kernels")["iteration_index"].tolist() == [1, 1]
    paths = part.frame("paths").set_index("name")
    assert paths.loc["step", "call_count"] == 1 and paths.loc["one", "device_ns"] == 2_100
    assert paths.loc["two", "copy_ns"] == 500
    window = part.frame("device_windows").iloc[0]
    assert window["busy_ns"] == 3_600 and window["busy_ns"] + window["idle_ns"] == window["window_ns"]
    balance = part.frame("balance")
    assert balance[balance["attribution"] == "total"]["device_ns"].tolist() == [3_600, 3_600]
    assert part.frame("a10")["latency_ns"].sum() == 3_100
    statement = part.frame("part")["statement"].iloc[0]
    assert statement.startswith("iteration 1 of 3 (0 … 2)") and "10.00–19.00 µs of the recording" in statement


def test_a_time_has_what_starts_in_it(whole, options):
    part = part_of(whole, Options(**options, begin_ns=14_000, end_ns=20_000))
    assert part.frame("captures")["device_ns"].iloc[0] == 1_500
    assert part.frame("paths").set_index("name").loc["two", "duration_ns"] == 3_900
    assert part.frame("part")["statement"].iloc[0] == "14.00–20.00 µs of the recording"


def test_an_execution_is_in_a_time_that_holds_all_of_it(whole, options):
    for end, known in ((19_000, [0, 1]), (18_999, [0])):
        part = part_of(whole, Options(**options, begin_ns=0, end_ns=end))
        assert part.frame("iterations")["iteration_index"].tolist() == known


@pytest.mark.parametrize("words", [("tree",), ("why",), ("what-if", "-c", "kernel:gemm=0.5x")])
def test_text_and_json_say_the_part(source, words):
    named = ("--model-range", "^step$", "--iteration", "1")
    said = called(*words, source, *named, columns=160).stdout
    assert said.startswith("Part shown: iteration 1 of 3 (0 … 2)")
    document = json.loads(called(*words, source, *named, "--json").stdout)["data"]
    assert document["part"].startswith("iteration 1 of 3")
    assert document["execution_count"] == 1 if words[0] == "what-if" else document["quantities"]


def test_an_assistant_asks_about_a_part(source):
    folder = Folder(source.parent)
    results = folder.results(source.name, part_options(from_ns=14_000, until_ns=20_000))
    said = by_row(
        json.loads(answers.answer("tree", source.name, lambda: (results, answers.tree(results)), folder.root))
    )
    assert said["part"] == "14.00–20.00 µs of the recording" and said["answer"]["records"][0]["device_ns"] == 1_500
    assert json.loads(answers.answer("sources", "", lambda: (None, folder.sources()), folder.root))["part"] == ""


def test_report_and_export_are_of_the_part(source, tmp_path):
    named = ("--model-range", "^step$", "--iteration", "2")
    made = called("export", source, *named, "--to", "csv", "-o", tmp_path / "csv")
    assert made.returncode == 0 and "Part shown: iteration 2 of 3" in made.stderr
    assert len((tmp_path / "csv/kernels.csv").read_text().splitlines()) == 1 + 2
    assert "iteration 2 of 3" in (tmp_path / "csv/part.csv").read_text()
    assert called("report", source, *named, "-o", tmp_path / "r.html").returncode == 0
    assert "iteration 2 of 3" in (tmp_path / "r.html").read_text()
    until = called("export", source, "--to", "chrome", "--until", "12us", "-o", tmp_path / "t.json", "--json")
    assert json.loads(until.stdout)["data"]["part"].startswith("0.00–12.00 µs")


@pytest.mark.parametrize("kind", ["capture", "store"])
def test_an_extract_is_a_store_of_the_part_without_names(source, options, tmp_path, kind):
    chosen = ["--model-range", options["model_range"], "--layer-range", options["layer_range"]]
    if kind == "store":
        called("ingest", source, *chosen, "--quiet", "-o", tmp_path / "whole.xsp.sqlite")
        source, chosen = tmp_path / "whole.xsp.sqlite", []
    small = tmp_path / "small.xsp.sqlite"
    called("export", source, *chosen, "--iteration", "1", "--anonymous", "-o", small)
    held = open_store(small)
    assert held.frame("kernels")["end_ns"].sub(held.frame("kernels")["start_ns"]).tolist() == [2_100, 1_000]
    assert len(held.frame("iterations")) == 1
    names = {str(name) for table in ("kernels", "nodes") for name in held.frame(table)["name"]}
    assert not names & {"gemm", "relu", "step", "one", "two"}
    assert "iteration 1" in called("why", small).stdout
    assert "--to is missing" in called("export", source).stderr
