"""Answers for assistants: one folder only, small, with the balance and what is not known; traps get abstentions."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from builders import ExportBuilder
from helpers import by_row

from xsp_post.agents import answers
from xsp_post.agents.folder import Folder
from xsp_post.base.errors import UsageError
from xsp_post.pipeline import analyze
from xsp_post.store.store import write_store

TOOLS = ("summary", "why", "tree")


def ask(folder, name, source, *more):
    text = answers.answer(name, source, lambda: _made(folder, name, source, more), folder.root)
    assert len(text.encode()) < answers.LIMIT_BYTES
    return by_row(json.loads(text))


def _made(folder, name, source, more):
    results = folder.results(source)
    return results, getattr(answers, name)(results, *more)


def topics(document):
    return {entry["what"] for entry in document["not_known"]}


@pytest.fixture
def traps(tmp_path):
    """Four recordings from which too much is easily concluded."""
    graph = ExportBuilder().gpu()
    graph.range("forward", 0, 5_000).graph_launch(launch=(100, 200), run=(1_000, 4_000))
    graph.write(tmp_path / "graph.sqlite")
    orphans = ExportBuilder().gpu().range("forward", 0, 5_000)
    for k in range(4):
        orphans.kernel("gemm", run=(1_000 + 500 * k, 1_400 + 500 * k), launch=None)
    orphans.write(tmp_path / "orphans.sqlite")
    two = ExportBuilder().gpu()
    for pid in (1000, 2000):
        two.process(pid).range("forward", 0, 5_000)
        two.kernel("gemm", run=(1_000, 2_000), launch=(100, 200))
    two.write(tmp_path / "two.sqlite")
    bare = ExportBuilder().gpu()
    for k in range(3):
        bare.kernel("gemm", run=(1_000 * k + 500, 1_000 * k + 900), launch=(1_000 * k, 1_000 * k + 50))
    bare.write(tmp_path / "bare.sqlite")
    return Folder(tmp_path)


def test_a_graph_recorded_whole_tells_nothing_of_its_kernels(traps):
    for name in TOOLS:
        assert "the kernels inside CUDA graphs" in topics(ask(traps, name, "graph.sqlite"))
    kernels = ask(traps, "table", "graph.sqlite", "A8")
    assert kernels["abstains"] and "no GPU kernels" in kernels["reason"]
    assert kernels["answer"].get("records") is None


def test_orphans_are_given_to_no_layer_and_nothing_is_predicted(traps):
    document = ask(traps, "summary", "orphans.sqlite")
    assert "who launched part of the device work" in topics(document)
    launch = next(row for row in document["balance"] if row["question"] == "launch")
    assert launch["closes"] and launch["parts"] == [{"attribution": "no_launch", "device_ns": 1600}]
    predicted = ask(traps, "what_if", "orphans.sqlite", ["kernel:gemm=0.5x"])
    assert predicted["abstains"] and predicted["answer"] is None
    assert "replay-refused" in predicted["reason"]


def test_two_processes_are_said_beside_every_sum(traps):
    for name in TOOLS:
        assert "which of the processes a summed number is of" in topics(ask(traps, name, "two.sqlite"))


def test_without_ranges_names_are_ours_and_layers_are_not_there(traps):
    document = ask(traps, "summary", "bare.sqlite")
    assert "in which range part of the device work was launched" in topics(document)
    latency = next(q for q in document["answer"]["quantities"] if q["name"] == "execution_latency")
    if latency["value"] is None:
        assert "no model execution is marked" in latency["reason"]
    layers = ask(traps, "table", "bare.sqlite", "A2")
    assert layers["abstains"] and "layer" in layers["reason"]


def test_what_repeats_has_one_short_name_and_rows_say_nothing_twice(tmp_path):
    made = ExportBuilder().gpu()
    for step in range(3):
        made.range(f"step {step}", 10_000 * step, 10_000 * step + 9_000)
        for layer in range(3):
            begin = 10_000 * step + 3_000 * layer + 10
            made.range(f"layers.{layer}", begin, begin + 2_900)
            for late, kind in ((10, "float"), (1_010, "double")):
                name = f"void ns::gemm<{kind}, ns::Add>(int, ns::Sizes<{kind}>)"
                made.kernel(
                    name, launch=(begin + late, begin + late + 50), run=(begin + late + 100, begin + late + 900)
                )
    made.write(tmp_path / "a.sqlite")
    folder = Folder(tmp_path)
    names = [row["name"] for row in ask(folder, "tree", "a.sqlite")["answer"]["records"]]
    assert "layers.*" in names and not any(" … " in name for name in names)
    said = ask(folder, "table", "a.sqlite", "A10")["answer"]
    short = [row["short_name"] for row in said["records"]]
    assert len(set(short)) == 2 and all(one.startswith("gemm<") for one in short)
    assert "name" in said["more_columns"] and "kernel_count" not in said["more_columns"]
    whole = ask(folder, "table", "a.sqlite", "A10", ["name"])["answer"]["records"]
    assert {row["name"] for row in whole} == {
        f"void ns::gemm<{k}, ns::Add>(int, ns::Sizes<{k}>)" for k in ("float", "double")
    }


def test_a_tree_is_the_heaviest_rows_of_all_but_where_a_depth_is_asked_for(tmp_path):
    """So many in each range were cut at the limit of an answer: the second of two ranks was not in it."""
    many = ExportBuilder().gpu()
    for k in range(12):
        many.range(f"part {'abcdefghijkl'[k]}", 10_000 * k, 10_000 * k + 9_000)
        for n in range(4):
            at = 10_000 * k + 2_000 * n
            many.range(f"step {'abcd'[n]}", at + 50, at + 1_000)
            many.kernel(f"kernel{k}_{n}", launch=(at + 100, at + 200), run=(at + 300, at + 400 + 100 * n))
    many.write(tmp_path / "many.sqlite")
    folder = Folder(tmp_path)
    rows = ask(folder, "tree", "many.sqlite")["answer"]["records"]
    assert len(rows) <= 30
    assert sum(row["device_ns"] for row in rows if row["indent"] == 1) == rows[0]["device_ns"]
    assert len(ask(folder, "tree", "many.sqlite", 3, 20)["answer"]["records"]) == 1 + 12 + 12 * 4


def test_numbers_have_count_interval_or_reason(traps):
    for source in ("graph.sqlite", "orphans.sqlite", "two.sqlite", "bare.sqlite"):
        for one in ask(traps, "summary", source)["answer"]["quantities"]:
            assert one["sample_count"] is not None, one
            assert one["reason"] or (one["value"] is not None and one["ci_low"] <= one["value"] <= one["ci_high"]), one


@pytest.mark.parametrize(
    "name", ["../secret.sqlite", "link.sqlite", "linked/secret.sqlite", "/etc/passwd", "a\0b", "~", "x" * 5000]
)
def test_nothing_outside_the_folder_is_read(tmp_path, name):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    ExportBuilder().kernel("gemm", run=(1, 2)).write(outside / "secret.sqlite")
    shutil.copy(outside / "secret.sqlite", tmp_path / "secret.sqlite")
    os.symlink(outside / "secret.sqlite", inside / "link.sqlite")
    os.symlink(outside, inside / "linked")
    folder = Folder(inside)
    with pytest.raises(UsageError) as refused:
        folder.results(name)
    assert refused.value.code in ("agent-outside", "agent-missing")
    assert str(tmp_path) not in refused.value.message
    assert folder.sources() == {"sources": [], "is_complete": True}


def test_a_folder_with_a_link_out_of_it_is_refused(tmp_path):
    inside = tmp_path / "inside"
    (inside / "run").mkdir(parents=True)
    (tmp_path / "secret.json").write_text("{}")
    os.symlink(tmp_path / "secret.json", inside / "run" / "capture.json")
    with pytest.raises(UsageError) as refused:
        Folder(inside).results("run")
    assert refused.value.code == "agent-outside"


def test_a_broken_file_is_an_answer_that_abstains_and_names_no_folder(tmp_path):
    (tmp_path / "x.sqlite").write_bytes(b"SQLite format 3\0 not really")
    document = ask(Folder(tmp_path), "summary", "x.sqlite")
    assert document["abstains"] and document["answer"] is None
    assert str(tmp_path) not in json.dumps(document)


def test_a_failure_after_reading_names_no_folder_either(tmp_path):
    """A store is read table by table, while the answer is made."""
    made = ExportBuilder().gpu().range("forward", 0, 5_000).kernel("gemm", run=(1_000, 2_000), launch=(100, 200))
    write_store(analyze([made.write(tmp_path / "a.sqlite")]), tmp_path / "a.xsp.sqlite")
    with closing(sqlite3.connect(tmp_path / "a.xsp.sqlite")) as connection:
        connection.execute("DELETE FROM balance")
        connection.commit()
    document = ask(Folder(tmp_path), "summary", "a.xsp.sqlite")
    assert document["abstains"] and "[store-damaged]" in document["reason"]
    assert str(tmp_path) not in json.dumps(document) and "a.xsp.sqlite" in document["reason"]

    def defect():
        raise ValueError(f"{tmp_path} and more")

    said = answers.answer("summary", "a", defect, tmp_path)
    assert "[defect-internal]" in said and str(tmp_path) not in said


def test_long_answers_are_cut_and_say_so():
    document = {
        "abstains": False,
        "answer": {"rows": [{"name": "k" * 500, "n": k} for k in range(1000)]},
        "balance": [],
    }
    text = answers.fitting(document)
    assert len(text) < answers.LIMIT_BYTES
    made = by_row(json.loads(text))
    kept = len(made["answer"]["rows"])
    assert 10 < kept < 60
    assert made["left_out"] == [f"answer.rows: {1000 - kept} of 1000"]


def test_real_captures_fit_and_two_runs_are_compared(captures):
    folder = Folder(captures / "nsys")
    for name in TOOLS:
        document = ask(folder, name, "fsdp_2gpu_h100.sqlite")
        assert all(row["closes"] for row in document["balance"])
    base, other = (folder.results(f"fsdp_2gpu_h100{which}.sqlite") for which in ("", "_after"))
    text = answers.answer("compare", "", lambda: (None, answers.compare(base, other)), folder.root)
    assert len(text) < answers.LIMIT_BYTES
    assert by_row(json.loads(text))["answer"]["statements"]
