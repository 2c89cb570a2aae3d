"""Steps of inference on the page: what the model expects of each, and where the slow ones are in the timeline."""

from __future__ import annotations

import numpy as np
import pytest
from builders import ExportBuilder
from generators.serving import serving
from helpers import frame_of

import xsp_post
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.reports import document, frames, timeline
from xsp_post.reports.blocks import Chart, Table


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = serving(4, 300, dialect="vllm", noise=0.01, outliers=4)
    return made, xsp_post.load(made.write(tmp_path_factory.mktemp("engine") / "engine.json")).results


def test_steps_stand_beside_what_the_model_expects_of_their_size(engine):
    made, results = engine
    steps = frames.FRAMES["serving_steps"](results, None)
    assert len(steps) > 280 and steps["order"].is_monotonic_increasing
    usual = ~steps["iteration_index"].isin(made.causes).to_numpy()
    error = (steps["latency_ns"] / steps["expected_ns"] - 1)[usual]
    assert np.median(np.abs(error)) < 0.03
    slow = frames.FRAMES["slow_steps"](results, None)
    assert set(slow["iteration_index"]) == set(made.causes)
    found = timeline.data(results)
    assert (slow["from_ns"] >= found.start_ns).all() and (slow["to_ns"] > slow["from_ns"]).all()


def test_the_section_has_charts_and_tables_and_a_training_step_has_none(engine, results):
    _, found = engine
    (section,) = document.build(found, only=("steps",)).sections
    assert [one.id for one in section.blocks if isinstance(one, Chart)] == ["step-times", "step-context"]
    tables = ["steps", "step_outliers", "step_costs", "step_predictions"]
    assert [one.id for one in section.blocks if isinstance(one, Table)] == tables
    assert not document.build(results, only=("steps",)).sections


def test_requests_and_experts_stand_with_the_steps(tmp_path):
    (tmp_path / "log").write_text('{"rid": "r-1", "prompt_len": 9, "output_len": 21, "ttft_ms": 500, "tpot_ms": 100}')
    builder = ExportBuilder().process(100)
    for at in (10_000, 20_000):
        builder.range("step[DECODE bs=5]", at, at + 5000)
        builder.kernel("fused_moe_kernel", launch=(at + 100, at + 200), run=(at + 300, at + 4000))
    options = Options(requests=(tmp_path / "log",))
    found = xsp_post.load(builder.write(tmp_path / "report.sqlite"), options=options).results
    (section,) = document.build(found, only=("steps",)).sections
    shown = {one.id: one.row_count for one in section.blocks if isinstance(one, Table)}
    assert shown == {"steps": 1, "step_costs": 2, "requests": 1, "experts": 1}


@pytest.mark.browser
def test_a_slow_step_opens_in_the_timeline(open_page, engine):
    page = open_page(engine[1])
    page.show("steps&show=table-step_outliers")
    page.locator("[data-table=step_outliers] tbody tr").first.click()
    page.wait_for_function("/^#timeline&from=\\d+&to=\\d+$/.test(location.hash)")
    page.wait_for_function("xspReport.timeline.view.to - xspReport.timeline.view.from < 1e8")
    assert page.complaints == []


def test_a_step_on_the_page_takes_what_it_takes_in_the_table():
    rows = [
        {"capture_id": 0, "process_id": 7, "kind": "decode", "iteration_index": k, "start_ns": 100 * k,
         "latency_ns": 150, "batch_size": 4} for k in range(3)
    ]  # fmt: skip
    made = {"iterations": frame_of("iterations", rows), "captures": frame_of("captures", [{"capture_id": 0}])}
    assert frames.FRAMES["serving_steps"](Analysis(made), None)["latency_ns"].tolist() == [150, 100, 100]
