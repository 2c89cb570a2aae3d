"""Shared results hold no name of the program, and the same numbers."""

from __future__ import annotations

import re

import pandas as pd
import pytest

import xsp_post
from xsp_post.model.anonymous import anonymised
from xsp_post.reports.tree_rows import tree_rows
from xsp_post.reports.why import json_of, why

NAMES = ("transformer_2.7b", "benchmark_loop", "ampere_sgemm", "vectorized_elementwise")


@pytest.fixture(scope="module")
def profile(captures):
    return xsp_post.load(captures / "nsys" / "transformer_2.7b_a100_nvtx.sqlite")


@pytest.mark.guard
def test_no_name_is_left_and_equal_names_stay_equal(profile):
    made = anonymised(profile.results)
    for table in made.tables():
        text = made.frame(table).head(5000).to_csv(index=False, header=False).lower()
        found = [name for name in NAMES if re.search(name, text)]
        assert not found, (table, found)
    recorded = {str(name) for table in ("kernels", "nodes") for name in profile[table]["name"].unique()}
    recorded = {name for name in recorded if not name.startswith("[")}
    for table in made.tables():
        frame = made.frame(table).select_dtypes(exclude="number")
        assert not recorded.intersection(str(text) for column in frame for text in frame[column].unique()), table
    before, after = profile.kernels, made.frame("kernels")
    pairs = pd.DataFrame({"before": before["name"].astype(str), "after": after["name"].astype(str)}).drop_duplicates()
    assert pairs["before"].is_unique and pairs["after"].is_unique
    assert after["start_ns"].equals(before["start_ns"])


def test_what_was_seen_of_the_program_keeps_its_platform_and_no_sentence_has_a_gap(captures):
    """Advice is in the words of the program's language; a finding's example, which may hold a name, is left out."""
    profile = xsp_post.load(captures / "kineto" / "dataloader_0_workers.pt.trace.json.gz")
    made = anonymised(profile.results)
    shown = made.frame("platforms")[["platform", "evidence"]].astype(str)
    assert "PyTorch" in shown["platform"].tolist()
    pd.testing.assert_frame_equal(shown, profile["platforms"][["platform", "evidence"]].astype(str))
    assert made.found()["code"].eq("profiler-records").any()
    assert not re.search(r" \.", str(json_of(why(made))))


@pytest.mark.parametrize("file", ["dataloader_0_workers", "part_batch16", "qwen_h100", "torch_compile_triton"])
def test_other_names_fold_and_are_counted_as_those_of_the_program(captures, file):
    """Layers that differ in numbers only are one line of the tree, and no others: only names differ in the answers."""
    made = xsp_post.load(captures / "kineto" / f"{file}.pt.trace.json.gz").results
    shared = anonymised(made)
    before, after = (tree_rows(one, depth=3, top=20).select_dtypes("number") for one in (made, shared))
    pd.testing.assert_frame_equal(before, after)
    said = [json_of(why(one))["verdict"] for one in (made, shared)]
    figures = [re.sub(r"(?<= in )(\d+ × )?\S+(?=: )", r"\1", one.pop("sentence")) for one in said]
    assert figures[0] == figures[1]
    assert said[0] == said[1]


def test_the_report_and_the_store_can_be_made_of_it(profile, tmp_path):
    from xsp_post.reports.html import write_report
    from xsp_post.store.store import open_store, write_store

    made = anonymised(profile.results)
    write_report(made, tmp_path / "r.html")
    write_store(made, tmp_path / "s.xsp.sqlite")
    assert b"ampere_sgemm" not in (tmp_path / "s.xsp.sqlite").read_bytes()
    assert "ampere_sgemm" not in (tmp_path / "r.html").read_text()
    assert len(open_store(tmp_path / "s.xsp.sqlite").frame("kernels")) == len(profile.kernels)


@pytest.mark.guard
def test_report_and_export_take_the_option(captures, tmp_path):
    from typer.testing import CliRunner

    from xsp_post.cli import app

    source, store = captures / "nsys" / "two_kernels_rtx3080.sqlite", tmp_path / "s.xsp.sqlite"
    done = CliRunner().invoke(app, ["export", str(source), "-o", str(store), "--anonymous"])
    assert done.exit_code == 0 and "two_kernels" not in done.output
    assert b"two_kernels" not in store.read_bytes()
    for words in (["export", str(source), "--to", "otlp", "-o", "o.json"], ["report", str(source), "-o", "r.html"]):
        words[-1] = str(tmp_path / words[-1])
        assert CliRunner().invoke(app, [*words, "--anonymous"]).exit_code == 0
        with open(words[-1], encoding="utf-8") as file:
            assert "two_kernels" not in file.read()
