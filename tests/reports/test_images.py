"""Charts as pictures, without a browser."""

from __future__ import annotations

import sys

import pytest

from xsp_post.base.errors import ToolError
from xsp_post.reports.cases import main_case
from xsp_post.reports.html import render
from xsp_post.reports.images import charts, to_png, to_svg


def test_every_chart_of_the_report_is_there_by_id(results):
    found = charts(results)
    assert {"a01", "a03", "a03-box", "a04", "a05-a07", "a09", "a09-linear", "a10", "a13", "a14", "a15"} <= set(found)


def test_only_an_analysis_gives_its_charts_alone(results):
    assert set(charts(results, only=["A3"])) == {"a03", "a03-box"}
    assert set(charts(results, only=["A6"])) == {"a05-a07"}
    assert set(charts(results, only=["A9"])) == {"a09", "a09-linear"}


def test_a_figure_says_which_case_it_shows(results):
    label = main_case(results).label
    found = charts(results, only=["A1", "A10"])
    assert label and found["a10"].to_dict(validate=False)["title"] == f"Kernels by name, {label} · resnet-like"
    assert found["a01"].to_dict(validate=False)["title"] == "Throughput · resnet-like"


def test_without_the_converter_a_picture_says_what_to_install_and_the_page_has_its_charts(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for draw in (to_png, to_svg):
        with pytest.raises(ToolError) as error:
            draw(charts(results)["a10"])
        assert error.value.code == "pictures-missing" and "pip install 'xsp-post[pictures]'" in error.value.hint
    page = render(results)
    assert "vegaEmbed" in page and 'data-chart="a10"' in page


@pytest.mark.parametrize("name", ["a03", "a09", "a05-a07"])
def test_pictures_are_what_they_say(results, name):
    chart = charts(results)[name]
    assert to_png(chart).startswith(b"\x89PNG")
    svg = to_svg(chart).decode()
    assert svg.startswith("<svg") and "NaN" not in svg


@pytest.mark.guard
def test_hostile_names_are_escaped_in_svg(hostile_results):
    svg = to_svg(charts(hostile_results)["a10"]).decode()
    assert "<script" not in svg and "<img" not in svg
