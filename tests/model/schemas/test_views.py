"""Views name tables and columns that there are."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from xsp_post.model.schemas import TABLES
from xsp_post.model.schemas.views import VIEWS, label_of, titles_of, view_of
from xsp_post.reports.terminal import print_frame

# Columns that the page joins to a table from its neighbours.
_JOINED = {
    "a02": {"bound", "kernel_latency_ns"},
    "a06": {"allocated_bytes", "allocated_ratio", "count_ratio"},
    "a11": {"name", "source_line"},
    "collectives": {"collective_count"},
    "overhead": {"event"},
}


@pytest.mark.parametrize("table", [name for name in VIEWS if not name.startswith("*")])
def test_a_view_shows_columns_of_its_table(table):
    names = {column.name for column in TABLES[table].columns}
    assert set(VIEWS[table].columns) - names - _JOINED.get(table, set()) == set()
    assert len(set(view_of(table))) == len(view_of(table))


def test_labels_are_words_without_units():
    assert label_of("kernels", "median_duration_ns") == "median duration"
    assert label_of("a10", "kernel_count") == "launches" and label_of("nodes", "kernel_count") == "kernels"
    assert label_of("kernels", "is_partial") == "partial"
    assert label_of("a08", "ci_low_latency_ns") == "latency from (95 %)"
    assert label_of("devices", "sm_count") == "SM count"


@pytest.mark.parametrize("table", TABLES)
def test_no_two_columns_of_a_table_have_one_title(table):
    columns = [column.name for column in TABLES[table].columns if column.name != "short_name"]  # shown as `name`
    titles = titles_of(table, columns)
    assert len(set(titles.values())) == len(columns)


def test_a_terminal_shows_labels_and_units():
    file = io.StringIO()
    frame = pd.DataFrame({"kernel_count": [3], "latency_ns": [1_500_000], "latency_ratio": [0.25]})
    print_frame(Console(file=file, width=100), frame, 0, "a10")
    assert [line.split() for line in file.getvalue().splitlines()] == [
        ["launches", "latency", "of", "model"], ["3", "1.50", "ms", "25.0", "%"],
    ]  # fmt: skip
