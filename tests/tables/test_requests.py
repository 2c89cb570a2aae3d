"""Requests: times that logs of engines state, and times that steps which name requests give."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder

import xsp_post
from xsp_post.base.errors import UsageError
from xsp_post.names.request_logs import read_requests

COLUMNS = ["request_id", "prompt_token_count", "token_count", "queue_ns", "first_token_ns", "time_per_token_ns"]
TRUE = ["r-1", 9, 21, 50e6, 500e6, 100e6]
NAMES = {"request_id": "r-1", "prompt_tokens": 9, "completion_tokens": 21, "time_in_queue": 0.05,
         "time_to_first_token": 0.5, "e2e": 2.5}  # fmt: skip


def spans(kind):
    """A span of vLLM, as Jaeger and as OTLP write it."""
    usage = {
        "request_id": "request.id",
        "prompt_tokens": "usage.prompt_tokens",
        "completion_tokens": "usage.completion_tokens",
    }
    names = {f"gen_ai.{usage.get(name, f'latency.{name}')}": value for name, value in NAMES.items()}
    if kind == "jaeger":
        tags = [{"key": k, "type": type(v).__name__ + "64", "value": v} for k, v in names.items()]
        return {"data": [{"traceID": "1", "spans": [{"traceID": "1", "tags": tags}]}]}
    marks = [{"key": k, "value": {"anyValue": v}} for k, v in names.items()]
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "1", "attributes": marks}]}]}]}


SGLANG = {"id": "r-1", "prompt_tokens": 9, "completion_tokens": 21, "queue_time": 0.05, "ttft": 0.5, "e2e_latency": 2.5}
LOGS = {
    "jaeger": json.dumps(spans("jaeger")),
    "jaeger, indented": json.dumps(spans("jaeger"), indent=2),
    "otlp": json.dumps(spans("otlp")),
    "sglang, metrics": json.dumps({"request_parameters": json.dumps({"rid": "x"}), **SGLANG}),
    "sglang, log": "[10:00] Receive: obj=GenerateReqInput(text='\'ttft\': 9')\n"
    f"[10:02] Finish: obj=GenerateReqInput(text='\'ttft\': 9'), out={ {'text': 'a', 'meta_info': SGLANG} }",
    "milliseconds": json.dumps({"rid": "r-1", "prompt_len": 9, "output_len": 21, "queue_time_ms": 50, "ttft_ms": 500,
                                "tpot_ms": 100}),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOGS)
def test_logs_of_engines(tmp_path, kind):
    path = tmp_path / "requests.log"
    path.write_text(LOGS[kind])
    found = read_requests(path)
    assert len(found) == 1
    for column, true in zip(COLUMNS, TRUE):
        assert found[column][0] == (true if column == "request_id" else pytest.approx(true)), column


def test_a_benchmark_holds_a_list_a_quantity(tmp_path):
    (tmp_path / "bench.json").write_text(
        json.dumps({"input_lens": [9, 5], "output_lens": [3, 1], "ttfts": [0.5, 0.2], "itls": [[0.1, 0.3], []]})
    )
    found = read_requests(tmp_path / "bench.json")
    assert found["latency_ns"].tolist() == pytest.approx([0.9e9, 0.2e9])
    assert found["time_per_token_ns"][0] == pytest.approx(0.2e9) and found["time_per_token_ns"].isna()[1]


@pytest.mark.parametrize("text", ["", "INFO 06-01 10:00:00 Finished request cmpl-1.", '{"model": "x"}', "\x00\xff"])
def test_what_names_no_time_of_a_request_is_refused(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(UsageError, match="names no time"):
        read_requests(tmp_path / "log")


def engine(tmp_path, *, arrivals):
    """Requests 7 and 8: two parts of a prompt and three tokens; one prompt and one token."""
    builder = ExportBuilder().process(100)
    steps = [("prefill", "7"), ("prefill", "7,8"), ("decode", "7,8"), ("decode", "7"), ("decode", "7")]
    for k, (kind, ids) in enumerate(steps):
        at = 10_000 * (k + 1)
        builder.range(f"step:{kind} requests=1 tokens=9 ids={ids}", at, at + 5000, domain="xsp")
        builder.kernel("gemm", launch=(at + 100, at + 200), run=(at + 300, at + 6000))
    if arrivals:
        builder.start_end("request 7", 4000, 60_000).start_end("request 8", 12_000, 40_000)
    return xsp_post.load(builder.write(tmp_path / "report.sqlite"))["requests"].set_index("request_id")


def test_steps_that_name_requests_give_their_times(tmp_path):
    found = engine(tmp_path, arrivals=True)
    times = found[["queue_ns", "first_token_ns", "token_count", "time_per_token_ns", "latency_ns"]]
    assert times.loc["7"].tolist() == [6000, 26_000 - 4000, 4, 10_000, 56_000 - 4000]
    assert found.loc["8", ["queue_ns", "first_token_ns", "token_count", "time_per_token_ns"]].tolist() == [
        8000, 26_000 - 12_000, 2, 10_000,
    ]  # fmt: skip


def test_without_their_arrival_only_the_time_per_token_is_known(tmp_path):
    found = engine(tmp_path, arrivals=False)
    assert found["time_per_token_ns"].tolist() == [10_000, 10_000]
    assert found[["arrival_ns", "queue_ns", "first_token_ns", "latency_ns"]].isna().to_numpy().all()


def test_anonymous_steps_have_no_requests(tmp_path):
    builder = ExportBuilder().process(100).range("step[DECODE bs=5]", 1000, 5000)
    builder.kernel("gemm", launch=(1100, 1200), run=(1300, 4000))
    assert not len(xsp_post.load(builder.write(tmp_path / "report.sqlite"))["requests"])
