"""Sources to tables: what options change, and what they leave alone."""

from __future__ import annotations

import pytest
from builders import ExportBuilder

from xsp_post.hardware.gpus import Peaks
from xsp_post.model.options import DEFAULTS, ROOFS, TREE, Options
from xsp_post.pipeline import analyze
from xsp_post.tables.catalogue import ANALYSES, OF_WORKLOAD
from xsp_post.tables.graph import Graph

NAME = "Unheard of 9000"
MINE = {NAME: Peaks(NAME, {"fp32": 1e13}, 1e12)}


def analysis_of(tmp_path, options=DEFAULTS):
    builder = ExportBuilder().gpu(name=NAME, computeMajor=99, memoryBandwidth=0)
    for i in range(3):
        builder.range(f"model:forward#{i}", i * 100, i * 100 + 90, domain="xsp")
        builder.range("fc:Linear#0", i * 100 + 1, i * 100 + 80, domain="xsp")
        builder.kernel("k", launch=(i * 100 + 2, i * 100 + 3), run=(i * 100 + 4, i * 100 + 40))
    return analyze([builder.write(tmp_path / "c.sqlite")], options)


def reanalyze(results, options):
    """As for a store with other roofs."""
    return Graph(results, OF_WORKLOAD, {"options": options}, [name for step in ANALYSES for name in step.names])


def codes(results):
    return results.frame("findings")["code"].astype(str).tolist()


def test_analyses_made_anew_leave_the_core_tables_and_settle_what_was_unknown(tmp_path):
    analysis = analysis_of(tmp_path)
    analysis.frames["layers"]["analytic_flop"] = 1e6  # a workload that was run says so; then roofs matter
    unknown = reanalyze(analysis, Options(roof="fp32"))
    assert codes(unknown).count("peaks-unknown") == 1
    assert codes(reanalyze(unknown, Options(roof="fp32"))) == codes(unknown)  # told once, not once more
    known = reanalyze(unknown, Options(peaks=MINE))
    assert codes(known) == [code for code in codes(unknown) if code != "peaks-unknown"]
    assert known.frame("roofs")["peak_flop_per_s"].tolist() == [1e13]
    assert len(analysis.frame("roofs")) == 0
    assert known.frame("kernels") is analysis.frame("kernels")
    assert known.tables() == analysis.tables()


def test_which_options_change_what():
    assert Options().is_default(ROOFS) and Options().is_default(TREE)
    assert not Options(peaks=MINE).is_default(ROOFS) and not Options(roof="fp32").is_default(ROOFS)
    for other in (Options(infer=False), Options(model_range="m")):
        assert other.is_default(ROOFS) and not other.is_default(TREE)


def test_the_given_peaks_reach_the_analyses(tmp_path):
    assert analysis_of(tmp_path, Options(peaks=MINE)).frame("roofs")["peak_flop_per_s"].tolist() == [1e13]


def test_a_capture_of_our_ranges_says_its_analytic_work_itself(tmp_path):
    """No counters, no facts beside it: flop and least bytes stand in the marks of the ranges."""
    from generators.resnet50 import layers, write_resnet50_export

    path = write_resnet50_export(tmp_path / "somebody_elses.sqlite", batch_size=4, iterations=4, warmup=1)
    results = analyze([path])
    a14 = results.frame("a14").set_index("layer_name")
    said = {layer.path: layer.least for layer in layers(4)}
    flop, least = said["layer1.0.conv1"]
    row = a14.loc["layer1.0.conv1:Conv2d"]
    assert row["counter_source"] == "analytic" and row["bound"] in ("memory", "compute", "latency")
    assert row["arithmetic_intensity_flop_per_byte"] == pytest.approx(flop / least)
    shapes = results.frame("layers").drop_duplicates("layer_name").set_index("layer_name")["shape_text"]
    assert shapes["layer1.0.conv1:Conv2d"] == "[4,64,56,56]"
    assert set(results.frame("a15")["counter_source"]) == {"analytic"}
