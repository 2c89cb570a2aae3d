"""Views name tables and columns that there are."""

from __future__ import annotations

import pytest

from xsp_post.schemas import TABLES
from xsp_post.schemas.views import VIEWS, label_of, view_of

# Columns that the page joins to a table from its neighbours.
_JOINED = {
    "a02": {"bound", "kernel_latency_ns"},
    "a06": {"allocated_bytes", "allocated_ratio", "count_ratio"},
    "a11": {"name"},
    "collectives": {"collective_count"},
    "overhead": {"event"},
}


@pytest.mark.parametrize("table", VIEWS)
def test_a_view_shows_columns_of_its_table(table):
    names = {column.name for column in TABLES[table].columns}
    assert set(VIEWS[table].columns) - names - _JOINED.get(table, set()) == set()
    assert len(set(view_of(table))) == len(view_of(table))


def test_labels_are_words_without_units():
    assert label_of("kernels", "median_duration_ns") == "median duration"
    assert label_of("a08", "kernel_count") == "launches" and label_of("nodes", "kernel_count") == "kernels"
    assert label_of("kernels", "is_partial") == "partial"
