"""Tables, span models and flame graphs: nothing lost, nothing invented, and readable by what opens them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest
from helpers import small_analysis

from xsp_post.base import limits
from xsp_post.base.errors import CaptureError, OutputError, UsageError
from xsp_post.exporters import FORMATS, default_path, export, nvtx_gpu_proj_trace, spans, speedscope, tables
from xsp_post.model.results import for_people
from xsp_post.model.schemas import column_names

HOSTILE = "a\",'</script>\n=1+1\x1b[31m\u202e"


def test_csv_holds_every_table_unchanged(tmp_path):
    analysis = small_analysis(layers=[("x", "Conv2d", [(HOSTILE, 10)])])
    written = tables.write_csv(analysis, tmp_path / "out")
    assert sorted(p.stem for p in (tmp_path / "out").iterdir()) == analysis.tables() == sorted(written.counts)
    kernels = pd.read_csv(tmp_path / "out" / "kernels.csv", keep_default_na=False)
    original = analysis.frame("kernels")
    assert list(kernels.columns) == column_names("kernels")
    assert kernels["name"].tolist() == original["name"].tolist()
    assert kernels["start_ns"].tolist() == original["start_ns"].tolist()
    with pytest.raises(OutputError):
        tables.write_csv(analysis, tmp_path / "out")


def test_parquet_holds_every_table_with_meanings(tmp_path):
    analysis = small_analysis()
    tables.write_parquet(analysis, tmp_path / "out")
    for name in analysis.tables():
        table = pyarrow.parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        frame = for_people(analysis, name)
        assert table.column_names == list(frame.columns) and table.num_rows == len(frame)
        assert all(field.metadata and field.metadata[b"meaning"] for field in table.schema)
        got = table.to_pandas()
        for column in frame.columns:
            assert frame[column].isna().equals(got[column].isna()) or got[column].isna().all()
            known = frame[column].notna()
            assert got[column][known].tolist() == frame[column][known].tolist()


def test_jaeger_spans_nest_and_carry_levels(tmp_path):
    analysis = small_analysis()
    path = tmp_path / "trace.json"
    written = spans.write_jaeger(analysis, path)
    trace = json.loads(path.read_text())["data"][0]
    rows = pd.DataFrame(
        [
            {
                "id": s["spanID"],
                "parent": s["references"][0]["spanID"] if s["references"] else "",
                "operation": s["operationName"],
                "start": s["startTime"],
                "end": s["startTime"] + s["duration"],
                **{t["key"]: t["value"] for t in s["tags"]},
            }
            for s in trace["spans"]
        ]
    )
    assert rows["id"].is_unique and len(rows) == written.counts["spans"]
    assert (rows["parent"] == "").sum() == 1  # one root
    kernels = analysis.frame("kernels")
    executed = rows[rows["operation"] == "gpu_kernel"]
    assert len(executed) == len(kernels)
    assert executed["duration_ns"].sum() == kernels["duration_ns"].sum()
    assert executed["start_ns"].tolist() == kernels["start_ns"].tolist()
    launches = rows[rows["operation"] == "cuda_launch"]
    assert len(launches) == len(kernels) - 1 + len(analysis.frame("memory_operations"))  # one orphan
    assert set(launches["correlation_id"]) <= set(rows.loc[rows["operation"] != "cuda_launch", "correlation_id"])
    assert rows["trace_level"].value_counts().to_dict() == {
        "SYSTEM_LIBRARY_TRACE": len(executed) + len(launches) + 3,
        "FRAMEWORK_TRACE": 9,
        "MODEL_TRACE": 3,
        "APPLICATION_TRACE": 3,
    }
    # a layer lies within its model also in whole microseconds
    layers = rows[rows["trace_level"] == "FRAMEWORK_TRACE"]
    child = layers.merge(rows, left_on="parent", right_on="id", suffixes=("", "_p"))
    assert len(child) == 9 and (child["trace_level_p"] == "MODEL_TRACE").all()
    assert ((child["start"] >= child["start_p"]) & (child["end"] <= child["end_p"])).all()
    assert len(trace["processes"]) == 3  # no thread at all, and the two that launched
    process = trace["processes"]["p1"]
    assert {t["key"]: t["value"] for t in process["tags"]}["evaluation_trace_level"] == "SYSTEM_LIBRARY_TRACE"


def test_otlp_holds_the_same_spans_in_nanoseconds(tmp_path):
    analysis = small_analysis()
    spans.write_jaeger(analysis, tmp_path / "j")
    spans.write_otlp(analysis, tmp_path / "o")
    jaeger = json.loads((tmp_path / "j").read_text())["data"][0]["spans"]
    otlp = json.loads((tmp_path / "o").read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [s["spanID"] for s in jaeger] == [s["spanId"] for s in otlp]
    assert all(len(s["traceId"]) == 32 and len(s["spanId"]) == 16 for s in otlp)
    duration = [int(s["endTimeUnixNano"]) - int(s["startTimeUnixNano"]) for s in otlp if s["name"] == "gpu_kernel"]
    assert duration == analysis.frame("kernels")["duration_ns"].tolist()


def test_span_numbers_survive_chunks(tmp_path, monkeypatch):
    analysis = small_analysis(iterations=5)
    spans.write_jaeger(analysis, tmp_path / "whole")
    monkeypatch.setattr(spans, "CHUNK", 3)
    spans.write_jaeger(analysis, tmp_path / "chunks")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "chunks").read_bytes()


def test_speedscope_adds_up(tmp_path):
    analysis = small_analysis(iterations=4)
    speedscope.write(analysis, tmp_path / "f.json")
    document = json.loads((tmp_path / "f.json").read_text())
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    device, host = document["profiles"]
    assert sum(device["weights"]) == device["endValue"] == analysis.frame("kernels")["duration_ns"].sum()
    heaviest = [frames[i] for i in device["samples"][0]]
    assert heaviest == ["small.sqlite", "model:forward", "conv1:Conv2d", "implicit_gemm_128x64"]
    assert device["weights"][0] == 4 * 100_000  # four iterations folded into one path
    nodes = analysis.frame("nodes")
    mine = nodes[(nodes["capture_id"] == 2) & (nodes["span_kind"] == "push_pop")]
    assert sum(host["weights"]) == mine["self_ns"].sum()
    assert all(0 <= i < len(frames) for profile in document["profiles"] for s in profile["samples"] for i in s)


def test_speedscope_joins_what_is_nested_very_deep(tmp_path, monkeypatch):
    analysis = small_analysis(iterations=4)
    speedscope.write(analysis, tmp_path / "whole.json")
    monkeypatch.setattr(speedscope, "_DEEPEST", 2)
    speedscope.write(analysis, tmp_path / "cut.json")
    whole, cut = (json.loads((tmp_path / name).read_text()) for name in ("whole.json", "cut.json"))
    frames = [frame["name"] for frame in cut["shared"]["frames"]]
    for before, after in zip(whole["profiles"], cut["profiles"]):
        assert sum(after["weights"]) == after["endValue"] == before["endValue"]
        assert max(map(len, after["samples"])) <= 4 and len(after["samples"]) <= len(before["samples"])
    assert ["small.sqlite", "model:forward", "[deeper ranges]", "implicit_gemm_128x64"] in [
        [frames[i] for i in sample] for sample in cut["profiles"][0]["samples"]
    ]


def test_stacks_of_ids_have_a_limit_that_can_be_lifted(tmp_path, monkeypatch):
    analysis = small_analysis()
    monkeypatch.setattr(nvtx_gpu_proj_trace, "_MOST_IDS", 3)
    with pytest.raises(CaptureError, match="RangeStack") as caught:
        export(analysis, "nvtx_gpu_proj_trace", tmp_path / "t.csv")
    assert caught.value.code == "capture-over-limit" and limits.VARIABLE in caught.value.hint
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(limits.VARIABLE, "1")
    export(analysis, "nvtx_gpu_proj_trace", tmp_path / "t.csv")
    assert (tmp_path / "t.csv").stat().st_size


def test_every_format_writes_and_refuses(tmp_path):
    analysis = small_analysis()
    for to, fmt in FORMATS.items():
        path = tmp_path / f"out_{to}{fmt.suffix.rstrip('/')}"
        written = export(analysis, to, path)
        assert path.exists() and written.path == path and fmt.opened_by
        with pytest.raises(OutputError) as caught:
            export(analysis, to, path)
        assert caught.value.code == "output-exists"
        export(analysis, to, path, force=True)
    with pytest.raises(UsageError):
        export(analysis, "excel", tmp_path / "x")
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_default_paths():
    # not beside the source: it may lie in a read-only folder
    assert default_path("run", "chrome") == Path("run.trace.json.gz")
    assert default_path("run", "csv") == Path("run_csv")
    assert default_path("a", "nvtx_gpu_proj_trace") == Path("a_nvtx_gpu_proj_trace.csv")


def test_cells_that_a_spreadsheet_would_compute_are_texts():
    from xsp_post.exporters.tables import without_formulas

    names = ["=1+2", "@SUM(A1)", "\t=x", "+1", "-cmd", "＝1", "a=1", "", None]
    frame = without_formulas(pd.DataFrame({"name": names, "value": [-1.5] * 9, "kind": pd.Categorical(["-x"] * 9)}))
    assert frame["name"].tolist()[:-1] == ["'=1+2", "'@SUM(A1)", "'\t=x", "'+1", "'-cmd", "'＝1", "a=1", ""]
    assert frame["name"].isna().tolist() == [False] * 8 + [True]
    assert frame["value"].tolist() == [-1.5] * 9 and frame["kind"].tolist() == ["'-x"] * 9


def test_markdown_holds_no_html():
    from xsp_post.reports.terminal import markdown

    table = markdown(pd.DataFrame({"name": ["<img src=x>|[a](b)`&\\", "gemm<float>"]}))
    assert "&lt;img src=x&gt;\\|\\[a](b)\\`&amp;\\\\" in table and "<" not in table
