"""The pages of a fleet and of a comparison in a real browser: nothing of a capture runs, nothing is asked for."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from xsp_post.compare import compare
from xsp_post.model.results import Analysis
from xsp_post.model.schemas import TABLES
from xsp_post.names.families import FAMILIES
from xsp_post.reports import compare_page, fleet_page, history_page, page_rows, theme
from xsp_post.reports.fleet_page import main_families
from xsp_post.tables.analyses import fleet
from xsp_post.tables.analyses.ranks import rank_tables

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from test_compare import run
from test_fleet import small

HOSTILE = '</script><img src=x onerror="window.planted=1">\u202eevil"\'&amp;' + "x" * 300


def hostile_comparison() -> Analysis:
    base = run(1, kernels={3: [HOSTILE, "relu"]}, paths={2: HOSTILE})
    return compare(base, run(2, kernels={3: ["other" + HOSTILE, "relu"]}, paths={2: HOSTILE}, slow={2: 3.0}))


def hostile_fleet() -> Analysis:
    results = [
        small(f"{HOSTILE}{name}", batch, 4.0 * batch, gpu=gpu)
        for name in "ab"
        for batch in (1, 4)
        for gpu in ("Tesla V100-SXM2-16GB", HOSTILE)
    ]
    parts = [fleet.contribution(one, i, HOSTILE + str(i), HOSTILE) for i, one in enumerate(results)]
    rows = [{"capture_name": HOSTILE + str(i), "status": "done", "kernel_count": 3, "kernel_ns": 5} for i in range(8)]
    rows.append({"capture_name": HOSTILE, "status": "failed", "code": "capture-empty", "message": HOSTILE})
    ranks = pd.DataFrame(
        [{c.name: {"int64": 5, "float64": 0.5, "bool": True, "str": HOSTILE}[c.dtype] for c in TABLES["ranks"].columns}]
    )
    return Analysis({**fleet.fleet_tables(parts), "fleet": fleet.fleet_rows(rows), "ranks": ranks})


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "make, render", [(hostile_comparison, compare_page.render), (hostile_fleet, fleet_page.render)]
)
def test_page_renders_and_runs_nothing_of_a_capture(chromium, tmp_path, make, render, width):
    from reports.conftest import Page

    path = tmp_path / "page.html"
    path.write_text(render(make()), encoding="utf-8")
    page = Page(chromium, path, width)
    try:
        page.wait_for_function("document.querySelectorAll('.vega canvas, .vega svg').length > 1")
        assert page.complaints == []
        assert page.foreign_requests() == []
        assert page.evaluate("window.planted") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.evaluate("document.querySelectorAll('.table table tbody tr').length") > 5
    finally:
        page.context.close()


def test_numbers_and_sentences_of_a_comparison_are_on_its_page():
    comparison = compare(run(1), run(2, slow={4: 3.0}))
    page = compare_page.render(comparison, ("a.sqlite", "b.sqlite"))
    assert "a.sqlite → b.sqlite" in page
    for sentence in comparison.frame("compare_summary")["statement"]:
        assert sentence.replace("'", "&#x27;") in page
    assert "layers.4:Linear" in page


def test_empty_tables_give_a_page_all_the_same():
    comparison = compare(run(1), run(2))
    bare = Analysis({name: frame.iloc[:0] for name, frame in comparison.frames.items()})
    assert "xsp-post comparison" in compare_page.render(bare)
    tables = fleet.fleet_tables([])
    rows = [{"capture_name": "x", "status": "failed", "code": "capture-empty", "message": "x: the file is empty"}]
    none = Analysis({**tables, "fleet": fleet.fleet_rows(rows), **rank_tables([])})
    page = fleet_page.render(none)
    assert "1 of 1 capture could not be analysed: x." in page and "x: the file is empty" in page


def test_a_history_has_a_chart_per_measure_and_its_sentences():
    rows = [
        {"workload_index": 0, "position_index": at, "capture_name": f"{HOSTILE}{at}", "gpu_name": HOSTILE,
         "phase": "step", "rank_name": "", "batch_size": 8, "level": level, "subject": subject,
         "value_ns": 1e6 * (1 + (at > 3)), "recorded_utc_ns": -1, "case_index": 0}
        for at in range(6) for level, subject in (("model", "model_latency"), ("layer", HOSTILE), ("cause", "host"))
    ]  # fmt: skip
    values = pd.DataFrame(rows)
    changes = pd.DataFrame(columns=[column.name for column in TABLES["history"].columns])
    page = history_page.render(Analysis({"history_values": values, "history": changes}))
    assert 'id="chart-history-model"' in page and 'id="chart-history-layers"' in page
    assert 'id="chart-history-kernels"' not in page and "6 captures: first and second half differ" in page
    assert HOSTILE not in page
    said = {c.name: {"int64": 0, "float64": 1.0, "bool": True, "str": ""}[c.dtype] for c in TABLES["history"].columns}
    said |= {"kind": "step", "level": "layer", "subject": HOSTILE, "capture_name": f"{HOSTILE}4",
             "position_index": 4}  # fmt: skip
    changed = history_page.render(Analysis({"history_values": values, "history": pd.DataFrame([said])}))
    first = re.compile('id="chart-history-(\\w+)"')  # what changed is on the first screen
    assert first.search(page)[1] == "model" and first.search(changed)[1] == "layers"
    # once in the chart of what shows it, with the name of its capture
    assert "since <" not in changed and [page.count('"since '), changed.count('"since ')] == [0, 1]


def test_no_two_kernel_families_have_one_colour():
    family = pd.Series([*FAMILIES, *FAMILIES])
    share = pd.Series([*range(len(FAMILIES)), *range(len(FAMILIES))], dtype=float)
    shown = sorted(set(main_families(family, share)))
    assert shown == sorted({*FAMILIES[-theme.HUE_COUNT - 1 :], "other"})  # the largest, and the rest together
    colors = theme.category_colors(shown)
    assert len(set(colors)) == len(shown)
    dark = theme.dark_colors()
    assert len({dark[light] for light in colors}) == len(shown)


def test_a_batch_says_what_limits_each_capture_and_plots_no_unlike_latencies():
    def page(*names: str) -> str:
        parts = [
            fleet.contribution(small(name, 4, 4.0, gpu=gpu), i, f"{name}{i}", name)
            for i, (name, gpu) in enumerate(zip(names, ("Tesla V100-SXM2-16GB", "Tesla T4")))
        ]
        rows = [
            {"capture_name": f"{name}{i}", "status": "done", "kernel_count": 3, "kernel_ns": 5, "limit": limit}
            for i, (name, limit) in enumerate(zip(names, ("copy", "launch")))
        ]
        ranks = pd.DataFrame(columns=[column.name for column in TABLES["ranks"].columns])
        tables = {**fleet.fleet_tables(parts), "fleet": fleet.fleet_rows(rows), "ranks": ranks}
        return fleet_page.render(Analysis(tables))

    unlike, alike = page("resnet", "bert"), page("resnet", "resnet")
    assert "1 of 2: copy-bound: resnet0." in unlike and "1 of 2: launch-bound: bert1." in unlike
    assert 'id="chart-fleet-latency"' not in unlike and 'id="chart-fleet-latency"' in alike


def test_the_totals_of_a_comparison_show_both_sides():
    """Every column that `page.txt` names for a table of our own frames is in them, and on the page."""
    busy = {"quantity": "busy", "unit": "ns", "base_value": 100.0, "other_value": 150.0, "base_per_unit": 100.0,
            "other_per_unit": 150.0, "difference_value": 50.0, "difference_ratio": 0.5}  # fmt: skip
    page = compare_page.render(Analysis({**hostile_comparison().frames, "compare_totals": pd.DataFrame([busy])}))
    tables = json.loads(re.search(r'id="xsp-data">(.*?)</script>', page, re.S).group(1))["tables"]
    assert [one["key"] for one in tables["totals"]["columns"]] == list(page_rows.TABLES["totals"].columns)
    assert [one["title"] for one in tables["totals"]["columns"]][:4] == ["quantity", "base", "other", "difference"]
