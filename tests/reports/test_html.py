"""The page as a file: self-contained, policy, size, JSON that cannot leave its script, the same numbers as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html import escape

import pytest
from builders import ExportBuilder
from hypothesis import given
from hypothesis import strategies as st

from reports.samples import HOSTILE, sample
from xsp_post.base.errors import OutputError
from xsp_post.model.options import Options
from xsp_post.model.schemas import units
from xsp_post.pipeline import analyze
from xsp_post.reports import shell
from xsp_post.reports.html import _action, render, top_rows, write_report
from xsp_post.reports.json_form import report_dict
from xsp_post.reports.page_data import escape_json
from xsp_post.reports.summary import TopRow
from xsp_post.reports.verdict import coverage_note, main_limit
from xsp_post.tables.analyses.advice import Advice


@pytest.fixture(scope="module")
def page(results):
    return render(results)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="xsp-data">(.*?)</script>', page, re.S).group(1))


def test_the_page_names_no_address_to_load_from(page):
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?!#)[^"'>\s]""", without_scripts)
    assert "@import" not in page.split("</style>")[0]
    assert not re.search(r"url\((?!#)", page.split("</style>")[0])


def test_the_policy_allows_exactly_the_two_inline_scripts(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    assert len(scripts) == 2
    assert re.search(r"script-src ([^;]*);", policy).group(1).split() == hashes
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy and "connect-src" not in policy


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans(), lambda c: st.lists(c) | st.dictionaries(st.text(), c), max_leaves=8
    )
)
def test_json_never_leaves_its_script_element(value):
    text = escape_json(value)
    assert "<" not in text and ">" not in text and "&" not in text and text.isascii()
    assert json.loads(text) == value


@pytest.mark.guard
def test_hostile_names_are_only_in_the_page_as_text(hostile_results):
    page = render(hostile_results)
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    for name in HOSTILE:
        assert name not in outside
    assert "<svg/onload" not in page and "<img src=x" not in page
    assert len(re.findall(r"<script", re.sub(r"<script>.*?</script>", "", page, flags=re.S))) == 1  # the data


def test_long_names_are_kept_whole_but_once(hostile_results):
    strings = data_of(render(hostile_results))["strings"]
    assert len(strings) == len(set(strings))
    assert "long " + "x" * 10_000 in strings


@pytest.mark.parametrize("layers", [1, 2, 1500])
def test_size_stays_under_five_megabytes(layers):
    assert len(render(sample(layers)).encode()) < 5e6


def test_a_page_of_enormous_names_stays_under_five_megabytes():
    names = [f"{i} " + "template<" * 1200 for i in range(400)]
    assert len(render(sample(400, names=names)).encode()) < 5e6


def test_script_end_tags_cannot_be_in_the_inlined_scripts():
    for script in (shell.chart_script(), shell.page_script()):
        assert "</script" not in script.lower() and "<!--" not in script


def test_the_numbers_of_the_page_are_those_of_the_tables_to_the_last_digit_shown(results, page):
    tables = data_of(page)["tables"]
    for name, formatter in (("a02", units.format_ns), ("a08", units.format_ns), ("a10", units.format_ns)):
        column = next(c for c in tables[name]["columns"] if c["key"] == "latency_ns")
        table = results.frame(name)
        shown = table[table["case_index"].eq(2)].sort_values("latency_ns", ascending=False, kind="stable")["latency_ns"]
        assert column["raw"] == shown.tolist()
        assert column["text"] == [formatter(v) for v in shown]


def test_the_json_form_holds_the_same_numbers(results, page):
    report = report_dict(results)
    json.dumps(report, allow_nan=False)
    tables = {t["id"]: t for s in report["sections"] for t in s["tables"]}
    for name, table in data_of(page)["tables"].items():
        assert len(tables[name]["rows"]) == table["count"]
        for column in table["columns"]:
            if "raw" in column:
                assert [row[column["key"]] for row in tables[name]["rows"]] == column["raw"]
    assert report["facts"][0]["value"] == results.frame("a01").set_index("case_index").loc[2, "latency_ns"]


def test_an_existing_page_is_left_alone(results, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("mine")
    with pytest.raises(OutputError):
        write_report(results, path)
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    write_report(results, path, force=True)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_the_verdict_leaves_out_is_seen_without_a_click(tmp_path):
    """A GPU that is busy beside a verdict about the host: the sentence that explains it stood in a closed list."""
    builder = ExportBuilder().gpu()
    for k in range(3):
        builder.range("step", 10_000 * k, 10_000 * k + 2_000)
        builder.kernel("gemm", launch=(10_000 * k + 100, 10_000 * k + 200), run=(10_000 * k + 300, 10_000 * k + 1_300))
        builder.kernel(
            "late", launch=(10_000 * k + 3_000, 10_000 * k + 3_100), run=(10_000 * k + 3_200, 10_000 * k + 9_000)
        )
    results = analyze([builder.write(tmp_path / "report.sqlite")], Options(model_range="step"))
    note = coverage_note(results, main_limit(results))
    assert note and f'note">{escape(note)}' in render(results)


def test_two_reports_of_the_same_results_are_the_same(results, page):
    assert render(results) == page


def test_no_chart_no_vega(results):
    from xsp_post.model.results import Analysis

    page = render(Analysis({}))
    assert len(page) < 150_000
    assert "vegaEmbed=" not in page


def test_layers_whose_time_is_not_known_are_not_among_those_that_take_most():
    known, unknown = (TopRow(name, name, time, 0.5, -1, ("",)) for name, time in (("a", 50.0), ("b", math.nan)))
    assert [(row.name, width) for row, width, _ in top_rows([known, unknown])] == [("a", "100.0")]
    assert [(row.name, width, ranked) for row, width, ranked in top_rows([], [unknown])] == [("b", "0.0", False)]


@pytest.mark.parametrize(
    ("estimate_ns", "bound_of", "said"),
    [
        (25, "the time", "about 2.5 %, at most 10.0 %"),
        (100, "the time", "at most 10.0 %"),  # a replay saves as much
        (-1, "the time", "at most 10.0 %"),
        (25, "the 2 s with start-up", "at most 100 ns, once"),
    ],
)
def test_what_to_do_next_says_what_a_replay_saves(estimate_ns, bound_of, said):
    one = Advice("a", "Do it.", "Seen.", "so", 100, 0.1, bound_of=bound_of, estimate_ns=estimate_ns)
    assert _action(one)["bound"] == said
