"""Samples of GPU metrics: no public capture holds them, so these exports are made by hand, and so are their answers."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder
from helpers import core_tables

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.gpu_samples import column_of
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options
from xsp_post.model.results import for_people
from xsp_post.pipeline import part_of

NAMES = ("GPC Clock Frequency [MHz]", "SMs Active [Throughput %]", "Tensor Active [Throughput %]",
         "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]",
         "Compute Warps in Flight [Avg]")  # fmt: skip
TYPE = 0x0001_0000_0000_0000 | (7 << 32)  # the lowest byte is the GPU
SAMPLE = {"timestamp": "INTEGER", "rawTimestamp": "INTEGER", "typeId": "INTEGER", "metricId": "INTEGER",
          "value": "INTEGER"}  # fmt: skip


def core(path):
    """The core tables of an export."""
    return core_tables(build_tree(load(path).trace))


def program():
    """Two executions of two layers: a runs for 1000, b for 2000, c for 150 (of layer c), back to back."""
    builder = ExportBuilder().process(100).gpu()
    for at in (0, 10_000):
        builder.range("model", at, at + 5_000)
        for name, low, run in (("a", 10, (1000, 2000)), ("b", 20, (2000, 4000)), ("c", 30, (4000, 4150))):
            builder.range(f"layer_{name}", at + low, at + low + 9)
            builder.kernel(f"gemm_{name}", launch=(at + low + 1, at + low + 5), run=(at + run[0], at + run[1]))
    return builder


def values_at(at):
    """One sample: clock (in Hz, as nsys stores it), SMs, tensor, read, write, warps."""
    in_a = 1000 < at % 10_000 <= 2000
    return (1_410_000_000 if in_a else 1_200_000_000, 80 if in_a else 40, 60 if in_a else 0, 10, 30, 999)


TIMES = [*range(1000, 4200, 100), *range(11_000, 14_200, 100)]


def sampled(builder, gpu=0):
    kind = TYPE | gpu
    info = [{"typeId": kind, "sourceId": 7, "typeName": "GPU Metrics [GA100]", "metricId": k, "metricName": name}
            for k, name in enumerate(NAMES)]  # fmt: skip
    columns = {"typeId": "INTEGER", "sourceId": "INTEGER", "typeName": "TEXT", "metricId": "INTEGER",
               "metricName": "TEXT"}  # fmt: skip
    rows = [{"timestamp": at, "rawTimestamp": at, "typeId": kind, "metricId": k, "value": value}
            for at in TIMES for k, value in enumerate(values_at(at))]  # fmt: skip
    return builder.add_table("TARGET_INFO_GPU_METRICS", columns, info).add_table("GPU_METRICS", SAMPLE, rows)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    return core(sampled(program()).write(tmp_path_factory.mktemp("samples") / "a.sqlite"))


def test_layers_get_the_mean_of_the_samples_of_their_device_work(analysis):
    rows = for_people(analysis, "gpu_samples")
    layers = rows[rows["scope"] == "layer"].set_index("layer_path")
    counts = layers["sample_count"].to_dict()
    assert counts == {"layer_a": 20, "layer_b": 40, "layer_c": 2}  # of both executions
    a, b, c = (layers.loc[f"layer_{name}"] for name in "abc")
    assert (a["sm_active_ratio"], a["tensor_active_ratio"], a["gpc_clock_hz"]) == (
        pytest.approx(0.8), pytest.approx(0.6), pytest.approx(1.41e9))  # fmt: skip
    assert (b["sm_active_ratio"], b["tensor_active_ratio"], b["gpc_clock_hz"]) == (
        pytest.approx(0.4), 0, pytest.approx(1.2e9))  # fmt: skip
    assert a["dram_bytes_per_s"] == pytest.approx(0.4 * 1_555_200_000_000)
    assert (a["covered_ns"], a["busy_ns"], a["purity_ratio"]) == (2000, 2000, 1.0)
    assert c["covered_ns"] == 200 and c["busy_ns"] == 300
    assert layers.loc["layer_c", ["sm_active_ratio", "gpc_clock_hz", "dram_bytes_per_s"]].isna().all()


def test_executions_and_the_capture_weigh_all_their_device_work(analysis):
    rows = for_people(analysis, "gpu_samples")
    capture = rows[rows["scope"] == "capture"].iloc[0]
    # 10 samples of 80 %, 20 of 40 %, and one of 40 % in layer c, of each execution
    mean = (10 * 0.8 + 21 * 0.4) / 31
    assert capture["sample_count"] == 62 and capture["sm_active_ratio"] == pytest.approx(mean)
    executions = rows[rows["scope"] == "execution"]
    assert executions["iteration_index"].tolist() == [0, 1] and executions["sample_count"].tolist() == [31, 31]
    assert executions["sm_active_ratio"].tolist() == pytest.approx([mean, mean])
    assert executions["layer_index"].isna().all() and rows["sys_clock_hz"].isna().all()


def test_a_clock_that_falls_while_the_gpu_works_is_a_finding(analysis):
    found = {f.code: f for f in analysis.findings}
    assert found["gpu-clock-fell"].example.startswith("GPU 0: 1.20 GHz in 67.7 % of its busy time, after 1.41 GHz")
    assert found["gpu-samples-few"].count == 1 and found["gpu-samples-few"].example == "layer_c"


def test_an_execution_as_a_part_has_the_means_of_its_samples(analysis):
    rows = for_people(part_of(analysis, Options(iteration=1)), "gpu_samples")
    mean = (10 * 0.8 + 21 * 0.4) / 31
    assert rows["sample_count"].tolist() == [31, 31, 10, 20, 1] and rows["iteration_index"].iloc[1] == 1
    assert rows["sm_active_ratio"].tolist()[:4] == pytest.approx([mean, mean, 0.8, 0.4])
    assert rows["layer_path"].tolist() == ["", "", "layer_a", "layer_b", "layer_c"]


def test_a_clock_that_rises_is_none(tmp_path):
    builder = sampled(program())
    for row in builder.rows["GPU_METRICS"]:
        if row["metricId"] == 0:
            row["value"] = 1_000_000_000 if row["timestamp"] < 3000 else 1_410_000_000
    codes = {f.code for f in core(builder.write(tmp_path / "a.sqlite")).findings}
    assert "gpu-clock-fell" not in codes


def test_the_timeline_holds_every_sample_with_the_time_it_stands_for(analysis):
    timeline = analysis.frame("gpu_timeline")
    assert timeline["end_ns"].tolist() == TIMES
    assert timeline["start_ns"].tolist() == [at - 100 for at in TIMES]  # a pause is no sample's time
    assert timeline["sm_active_ratio"].between(0, 1).all() and timeline["sys_clock_hz"].isna().all()


def test_samples_are_read_when_they_are_asked_for(tmp_path):
    trace = load(sampled(program()).write(tmp_path / "a.sqlite")).trace
    assert len(trace.gpu_samples()) == len(TIMES)


def test_samples_of_another_gpu_are_not_of_this_ones_work(tmp_path):
    analysis = core(sampled(program(), gpu=1).write(tmp_path / "a.sqlite"))
    assert analysis.frame("gpu_samples").empty and len(analysis.frame("gpu_timeline")) == len(TIMES)


def test_older_exports_hold_a_text_per_sample(tmp_path, analysis):
    fields = {"Name": "GPU Metrics [GA100]", "Fields": [{"Name": name} for name in NAMES]}
    other = {"Name": "sched_switch", "Fields": [{"Name": "prev_pid"}]}
    types = [{"typeId": TYPE, "sourceId": 7, "data": json.dumps(fields)},
             {"typeId": 5, "sourceId": 8, "data": json.dumps(other)},
             {"typeId": 6, "sourceId": 9, "data": "no json"}]  # fmt: skip
    rows = [{"rawTimestamp": at, "typeId": TYPE, "data": json.dumps(dict(zip(NAMES, map(str, values_at(at)))))}
            for at in TIMES] + [{"rawTimestamp": 5, "typeId": 5, "data": '{"prev_pid": [1]}'}]  # fmt: skip
    builder = program().add_table("GENERIC_EVENT_TYPES", {"typeId": "INTEGER", "sourceId": "INTEGER", "data": "TEXT"},
                                  types)  # fmt: skip
    builder.add_table("GENERIC_EVENTS", {"rawTimestamp": "INTEGER", "typeId": "INTEGER", "data": "TEXT"}, rows)
    old = core(builder.write(tmp_path / "a.sqlite"))
    assert old.frame("gpu_timeline").equals(analysis.frame("gpu_timeline"))


def test_names_of_metrics_through_the_releases():
    for name in ("SM Active", "SM Active [Throughput %]", "SMs Active [Throughput %]"):
        assert column_of(name) == "sm_active_ratio"
    assert (
        column_of("Tensor Active / FP16 Active") == column_of("Tensor Active [Throughput %]") == "tensor_active_ratio"
    )
    assert column_of("DRAM Write Throughput") == "dram_write_ratio"
    assert column_of("Compute Warps in Flight [Avg]") == "" == column_of("SMs Active [Workloads]")
