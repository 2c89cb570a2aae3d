"""The comparer behind `scripts/golden` can fail: one changed cell is found, and it alone is named."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import golden_compare as compare
import golden_outputs as outputs
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/resnet50_generated.sqlite"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "run.xsp.sqlite"
    assert outputs._run("ingest", EXAMPLE, "-o", path, "--quiet")[1] == {}
    return path


def texts_of(store: Path) -> dict[str, dict[str, str]]:
    return {
        group: {name: outputs.text_of(values) for name, values in sections.items()}
        for group, sections in outputs.tables(store).items()
    }


def test_one_changed_cell_is_reported_with_its_column_and_no_other(store, tmp_path):
    changed = tmp_path / "changed.xsp.sqlite"
    shutil.copyfile(store, changed)
    before = texts_of(store)
    with closing(sqlite3.connect(changed)) as connection, connection:
        old = connection.execute("SELECT launch_end_ns FROM kernels WHERE kernel_id = 17").fetchone()[0]
        connection.execute(
            "UPDATE kernel_rows SET launch_end_ns_minus_launch_start_ns = "
            "4711 - launch_start_ns_minus_start_ns - start_ns WHERE kernel_id = 17"
        )
    after = texts_of(changed)
    found = compare.differences(compare.hashes_of(before), compare.hashes_of(after))
    assert [str(difference) for difference in found] == ["table kernels / launch_end_ns: changed"]
    values = (json.loads(texts["table kernels"]["launch_end_ns"]) for texts in (before, after))
    assert compare.first_rows(*values) == [f"row 17: {old} → 4711"]


def test_the_same_store_differs_in_nothing(store):
    assert compare.differences(compare.hashes_of(texts_of(store)), compare.hashes_of(texts_of(store))) == []


def test_columns_and_tables_that_come_and_go_are_named():
    golden = {"table a": {"(columns)": "1", "(rows)": "2", "x": "3"}, "table b": {"(rows)": "0"}}
    now = {"table a": {"(columns)": "9", "(rows)": "2", "y": "3"}, "page": {"title": "7"}}
    assert [str(difference) for difference in compare.differences(golden, now)] == [
        "page: new",
        "table a / (columns): changed",
        "table a / x: missing now",
        "table a / y: new",
        "table b: missing now",
    ]
    assert compare.differences(golden, now, frozenset({"page", "table a"}))[0].group == "table b"


def test_a_table_that_lost_its_rows_is_one_difference():
    golden = {"table a": {"(columns)": "1", "(rows)": "2", "x": "3", "y": "4"}}
    now = {"table a": {"(columns)": "1", "(rows)": "0"}}
    assert [str(one) for one in compare.differences(golden, now)] == ["table a / (rows): changed, 2 → 0"]


def test_floats_are_compared_at_twelve_digits():
    assert outputs._parsed("[0.1234567890123456, 0.5]") == [0.123456789012, 0.5]
    assert outputs._rounded_text("a,0.30000000000000004,9.999999999999999e-08,2.5") == "a,0.3,1e-07,2.5"
    assert outputs._rounded_text("0.123456789") != outputs._rounded_text("0.123456788")


def test_hashes_are_read_as_they_were_written(tmp_path):
    hashes = compare.hashes_of({"table a": {"(rows)": "3", "x": "[1,2,3]"}, "export chrome": {"events X kernel": "[]"}})
    path = compare.golden_path(tmp_path, "nsys/transformer_2.7b")
    compare.write_hashes(path, hashes)
    assert path.name == "nsys.transformer_2.7b.txt"
    assert compare.read_hashes(path) == hashes
    assert hashes["table a"]["(rows)"] == "3"


def test_kept_outputs_come_back_and_old_ones_go(tmp_path):
    compare.keep(tmp_path, "nsys/a", {"table a": {"x": "[1,2]"}, "page": {"title": '"t"'}})
    compare.keep(tmp_path, "nsys/a", {"table a": {"x": "[1,3]"}})
    assert compare.kept(tmp_path, "nsys/a", "table a") == {"x": [1, 3]}
    assert compare.kept(tmp_path, "nsys/a", "page") == {}


def test_the_example_has_its_hashes():
    names = {case.name for case in outputs.cases()}
    assert outputs.EXAMPLE in names
    golden = compare.read_hashes(compare.golden_path(ROOT / "tests/golden", outputs.EXAMPLE))
    assert golden["table kernels"]["(rows)"] == "3556"
    assert {"ingest", "report", "page", "export chrome", "export perfetto"} <= set(golden)


def test_check_says_what_it_skipped_and_that_nothing_was_compared(tmp_path):
    environment = {**os.environ, "XSP_POST_CAPTURES": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/golden", "check", "--only", "two_kernels"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Skipped, not in" in done.stdout and "nsys/two_kernels_rtx3080" in done.stdout
    assert done.returncode == 2  # nothing at all was compared: not a pass
