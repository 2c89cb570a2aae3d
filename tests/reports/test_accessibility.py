"""What people who use a keyboard, a screen reader or paper get of the pages."""

from __future__ import annotations

import pytest

from reports.conftest import Page
from reports.samples import sample
from reports.test_small_pages import hostile_comparison, hostile_fleet
from xsp_post.base.output import write_text
from xsp_post.model.results import Analysis
from xsp_post.reports import compare_page, fleet_page
from xsp_post.reports.html import write_report

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")
PAGES = {
    "report": lambda path: write_report(sample(12), path),
    "report without counters": lambda path: write_report(sample(12, counters=False), path),
    "report of nothing": lambda path: write_report(Analysis({}), path),
    "compare": lambda path: write_text(path, compare_page.render(hostile_comparison())),
    "batch": lambda path: write_text(path, fleet_page.render(hostile_fleet())),
}
_RUN = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(
    one => [one.impact, one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))"""


@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing_serious(chromium, axe, tmp_path, kind):
    path = tmp_path / "page.html"
    PAGES[kind](path)
    for dark in (False, True):
        page = Page(chromium, path, dark=dark)
        page.evaluate(axe + ";0")
        found = page.evaluate(_RUN)
        page.context.close()
        assert [one for one in found if one[0] in SERIOUS] == []


def test_paper_has_every_column(open_page, results):
    """A4 with margins of 10 mm is 718 pixels wide; no table is wider."""
    page = open_page(results, 718)
    page.emulate_media(media="print")
    edges = page.evaluate("""[...document.querySelectorAll('table')].map(
        table => [Math.ceil(table.getBoundingClientRect().right), table.querySelectorAll('thead th').length])""")
    assert max(columns for _, columns in edges) >= 10
    assert [edge for edge, _ in edges if edge > 718] == []


def test_every_control_has_a_name_and_takes_the_focus(open_page, results):
    page = open_page(results)
    nameless = page.evaluate("""[...document.querySelectorAll('button, input, select, canvas[tabindex], summary')]
        .filter(node => node.getClientRects().length)
        .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim() || node.closest('label')))
        .map(node => node.outerHTML.slice(0, 120))""")
    assert nameless == []
    unreachable = page.evaluate("""[...document.querySelectorAll('[role=application], .scroll')]
        .filter(node => node.scrollWidth > node.clientWidth + 1 || node.getAttribute('role') === 'application')
        .filter(node => node.tabIndex < 0).map(node => node.outerHTML.slice(0, 120))""")
    assert unreachable == []
