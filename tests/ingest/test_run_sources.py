"""What `xsp-post run` leaves is read back: clock readings, run directories, the facts of layers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xsp_post.base.errors import CaptureError, ContradictionError
from xsp_post.ingest import sources
from xsp_post.ingest.clock import read_clock
from xsp_post.ingest.recognition import sniff_clock
from xsp_post.model import capture
from xsp_post.model.capture import Capture

TEXTS = ["warmup:forward#0", "model:forward#0", "block:Sequential#0", "block.0:Linear#0", "block.0:Linear#1"]
SPANS = {
    "format": "xsp-spans", "version": 1, "clock": "perf_counter_ns", "texts": TEXTS,
    #               warm-up block  linear model block linear linear
    "text_indexes": [0, 2, 3, 1, 2, 3, 4],
    "start_ns": [0, 5, 10, 100, 105, 110, 130],
    "end_ns": [50, 45, 40, 200, 195, 120, 190],
}  # fmt: skip
FACTS = {
    "environment": {"framework": "torch 2.4", "device_name": "A CPU", "torch_version": "2.4"},
    "layers": {
        "phase": ["forward", "forward"], "layer_path": ["block.0", "block.0"], "layer_type": ["Linear", "Linear"],
        "call_index": [0, 1], "shape_text": ["[4,8]", "[4,2]"], "flop_count": [256, 128],
        "least_bytes": [1000, 500], "allocated_bytes": [128, 32],
    },
    "allocated_source": "output tensors",
}  # fmt: skip


def make_run(tmp_path, count=1, **environment):
    """A run directory with `count` M/L captures; the environment's changes are the last one's."""
    (tmp_path / "manifest.json").write_text(json.dumps({"manifest_version": 1}))
    for number in range(count):
        folder = tmp_path / "captures" / f"{number + 1:02d}_ML_b4_r{number}"
        folder.mkdir(parents=True)
        (folder / "spans.json").write_text(json.dumps(SPANS))
        (folder / "facts.json").write_text(json.dumps(FACTS))
        facts = dict(FACTS["environment"], **(environment if number == count - 1 else {}))
        Capture("M/L", 4, number, "clock", files={"spans": "spans.json", "facts": "facts.json"},
                settings={"model": "net", "device": "cpu"}, environment=facts, directory=folder).save()  # fmt: skip
    return tmp_path


def test_clock_readings_become_ranges_of_our_domain(tmp_path):
    folder = make_run(tmp_path) / "captures/01_ML_b4_r0"
    assert sniff_clock(folder / "spans.json") and not sniff_clock(folder / "facts.json")
    trace = read_clock(folder / "spans.json")
    assert [str(trace.strings[i]) for i in trace.spans["name_id"]] == [TEXTS[i] for i in SPANS["text_indexes"]]
    assert trace.spans["start_ns"].tolist() == SPANS["start_ns"] and trace.spans["end_ns"].dtype == np.int64
    assert trace.domains["name"].tolist() == ["xsp"] and not len(trace.activities) and not len(trace.launches)


def test_a_loaded_capture_knows_what_its_run_knew(tmp_path):
    [path] = sources.expand([make_run(tmp_path)])
    loaded = sources.load(path)
    provenance = loaded.trace.provenance
    assert (provenance.level, provenance.batch_size, provenance.workload_name) == ("M/L", 4, "net")
    assert (provenance.framework, provenance.gpu_name) == ("torch 2.4", "A CPU")
    attributes = loaded.trace.attributes
    assert attributes["flop_count"].tolist() == [-1, -1, 256, -1, -1, 256, 128]
    assert attributes["shape_text"].tolist() == ["", "", "[4,8]", "", "", "[4,8]", "[4,2]"]
    assert attributes["batch_size"].tolist() == [4, -1, -1, 4, -1, -1, -1]
    assert [found.code for found in loaded.trace.findings] == ["allocation-is-output-size"]


def test_what_hooks_change_is_a_finding_with_names_and_counts(tmp_path):
    [path] = sources.expand([make_run(tmp_path)])
    assert "hooks-change-program" not in {one.code for one in sources.load(path).trace.findings}
    effect = {"kind": "operators", "without": {"aten::fused": 2, "aten::addmm": 1, "aten::a": 9},
              "with": {"aten::fused": 0, "aten::addmm": 5, "aten::b": 1, "aten::c": 1, "aten::d": 1}}  # fmt: skip
    (path.parent / "facts.json").write_text(json.dumps({**FACTS, "hook_effect": effect}))
    [found] = [one for one in sources.load(path).trace.findings if one.code == "hooks-change-program"]
    assert found.count == 6 and found.example == (
        "operators more without ranges: 9 × aten::a, 2 × aten::fused; "
        "more with them: 1 × aten::b, 1 × aten::c, 1 × aten::d, 1 more"
    )
    assert found.severity == "warning"


def test_captures_of_one_process_name_it(tmp_path):
    [path] = sources.expand([make_run(tmp_path)])
    assert sources.load(path).trace.provenance.run_process == ""
    made = capture.capture_of(path)
    made.process = "01_M_b4_r0"
    made.save()
    assert sources.load(path).trace.provenance.run_process == "01_M_b4_r0"


def test_the_facts_reach_the_layer_table(tmp_path):
    from xsp_post import pipeline

    analysis = pipeline.analyze([make_run(tmp_path)])
    layers = analysis.frame("layers").query("iteration_index == 1 and analytic_flop > 0")
    assert layers["analytic_flop"].tolist() == [256, 128] and layers["call_index"].tolist() == [0, 1]
    assert layers["allocated_bytes"].tolist() == [128, 32] and layers["duration_ns"].tolist() == [10, 60]
    assert analysis.frame("captures")["level"].tolist() == ["M/L"]


def test_levels_that_want_no_kernels_do_not_miss_them(tmp_path):
    from xsp_post import pipeline

    analysis = pipeline.analyze([make_run(tmp_path)])
    assert "no-kernels" not in {found.code for found in analysis.findings}


def test_the_cpu_of_a_run_finds_its_peaks_by_its_own_name(tmp_path):
    from xsp_post.ingest.kineto import read_kineto
    from xsp_post.ingest.run_facts import with_capture
    from xsp_post.model.capture import capture_of

    trace = tmp_path / "trace.json"
    trace.write_text(
        json.dumps(
            {
                "schemaVersion": 1,
                "traceEvents": [
                    {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
                ],
            }
        )
    )
    made = capture_of(make_run(tmp_path) / "captures/01_ML_b4_r0/spans.json")
    loaded = with_capture(read_kineto(trace), made)
    assert loaded.devices["gpu_name"].tolist() == ["A CPU"]


def test_a_recording_without_a_run_beside_it_is_read_as_it_is(tmp_path):
    (tmp_path / "spans.json").write_text(json.dumps(SPANS))
    assert sources.load(tmp_path / "spans.json").trace.provenance.level == ""


def test_captures_of_unlike_environments_in_one_directory_are_refused(tmp_path):
    with pytest.raises(ContradictionError, match="torch_version"):
        sources.expand([make_run(tmp_path, 2, torch_version="2.9")])


def test_failed_captures_are_no_sources(tmp_path):
    run = make_run(tmp_path, 2)
    failed = capture.load_capture(run / "captures/02_ML_b4_r1")
    failed.status = "failed"
    failed.save()
    assert [path.parent.name for path in sources.expand([run])] == ["01_ML_b4_r0"]


@pytest.mark.parametrize("damage", [
    {"texts": ["one"]}, {"end_ns": [1]}, {"start_ns": "x"}, {"version": 9}, {"text_indexes": [-1] * 7}, {"format": "y"},
])  # fmt: skip
def test_damaged_readings_end_in_a_sentence(tmp_path, damage):
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({**SPANS, **damage}))
    with pytest.raises(CaptureError) as caught:
        read_clock(path)
    assert caught.value.code == "spans-damaged" and str(path) in caught.value.message


def test_a_range_that_never_ended_stays_open_until_the_last_reading(tmp_path):
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({**SPANS, "end_ns": [50, 45, 40, -1, 195, 120, 190]}))
    spans = read_clock(path).spans
    assert spans["is_open"].tolist() == [False, False, False, True, False, False, False]
    assert spans["end_ns"].iloc[3] == 195
