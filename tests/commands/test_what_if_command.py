"""`xsp-post what-if` from captures and from the store made of them."""

from __future__ import annotations

import json
import shlex

import pytest
from builders import ExportBuilder
from programs import Op, run_steps
from typer.testing import CliRunner

from xsp_post.base.errors import UsageError
from xsp_post.cli import app
from xsp_post.pipeline import analyze
from xsp_post.replay.what_if import what_if

STEP = [*[Op("kernel", 90_000, "gemm")] * 10, *[Op("kernel", 20_000, "[bold]relu")] * 10, Op("sync")]


@pytest.fixture
def capture(tmp_path):
    run_steps(STEP, 5, tmp_path / "steps.sqlite")
    return tmp_path / "steps.sqlite"


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_a_store_predicts_what_its_capture_predicts(capture, tmp_path):
    asked = ("--change", "kernel:gemm=0.5x", "--json")
    from_capture = json.loads(invoke("what-if", capture, "--model-range", "^step", *asked).stdout)["data"]
    store = tmp_path / "steps.xsp.sqlite"
    assert invoke("ingest", capture, "--model-range", "^step", "-o", store).exit_code == 0
    from_store = json.loads(invoke("what-if", store, *asked).stdout)["data"]
    assert from_store == from_capture
    assert from_store["execution_count"] >= 3
    latency = next(one for one in from_store["predictions"] if one["quantity"] == "latency")
    assert latency["predicted_ns"] == pytest.approx(latency["measured_ns"] - 10 * 45_000, rel=0.01)
    assert latency["low_ns"] < latency["predicted_ns"] < latency["high_ns"]
    assert from_store["error_ratio"] < 0.01
    assert from_store["changes"][0]["operation_count"] == 50


def test_the_text_says_error_interval_and_limit(capture):
    done = invoke("what-if", capture, "--model-range", "^step", "-c", "kernel:relu=2x", "-c", "sync=none")
    assert done.exit_code == 0
    assert "Replay error" in done.stdout
    assert "kernels" in done.stdout
    assert "[bold]relu" in done.stdout  # text of the capture is not markup
    assert "Assumes: no host call waits for the device" in " ".join(done.stdout.split())


def test_without_a_change_those_that_fit_are_listed_and_can_be_pasted(capture, tmp_path):
    done = invoke("what-if", capture, "--model-range", "^step")
    assert done.exit_code == 0
    lines = [line.split("  ") for line in done.stdout.splitlines() if line.startswith("  --change")]
    changes = [shlex.split(line[1])[1] for line in lines]
    assert changes[:2] == [r"kernel:\bgemm\b=0.5x", r"kernel:\[bold\]relu\b=0.5x"]
    assert "4.50 ms, 81.8 % of the kernel time" in done.stdout
    for change in changes:
        assert invoke("what-if", capture, "--model-range", "^step", "-c", change).exit_code == 0, change
    empty = ExportBuilder().process(100).range("a", 0, 10).write(tmp_path / "empty.sqlite")
    assert "nothing was recorded that a replay could change" in invoke("what-if", empty).stdout
    with pytest.raises(UsageError, match="--json needs a --change"):
        invoke("what-if", capture, "--json")


def test_where_launches_are_missing_the_interval_is_wide(tmp_path):
    export = ExportBuilder().process(100).thread(100)
    for k in range(20):
        at = 1_000_000 + 50_000 * k
        export.kernel("gemm", launch=(at, at + 4_000) if k % 2 else None, run=(at + 6_000, at + 40_000))
    export.write(tmp_path / "half.sqlite")
    latency = what_if(analyze([tmp_path / "half.sqlite"]), ["kernel:gemm=0.5x"]).latency
    assert latency.high_ns > 0.95 * latency.measured_ns  # they stay where they were
    assert latency.low_ns < latency.predicted_ns < latency.high_ns
