"""The critical path in one line: parts by kind and layer type, with shares that add up."""

import numpy as np
import pandas as pd
from builders import ExportBuilder

from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze
from xsp_post.reports.path_line import critical_path_line


def _results(**changes):
    steps = pd.DataFrame(
        {
            "capture_id": 0,
            "iteration_index": 2.0,
            "kind": ["kernel", "host", "kernel", "memcpy", "launch latency"],
            "layer_index": [1, np.nan, 2, np.nan, np.nan],
            "duration_ns": [400, 300, 220, 70, 10],
        }
    ).assign(**changes)
    layers = pd.DataFrame(
        {"capture_id": 0, "layer_index": [1, 2, 2], "layer_path": ["h.0", "h.1", "h.1"], "layer_type": "Block"}
    )
    return Analysis({"critical_path": steps, "layers": layers})


def test_layers_of_one_type_are_one_part_and_what_is_small_is_other():
    line = critical_path_line(_results(), 0)
    assert line == (
        "Critical path of execution 2, 1.00 µs: 62.0 % kernels of Block, 30.0 % host, "
        "7.0 % copies of no layer, 1.0 % other"
    )


def test_copies_are_of_the_layer_that_made_them(tmp_path):
    """They were of no layer in the path, beside a tree and a table of copies that name it."""
    us, builder = 1_000, ExportBuilder().process(100).thread(100).gpu()
    for at in range(0, 4_000 * us, 1_000 * us):
        builder.range("step", at, at + 70 * us).range("embed", at + us, at + 30 * us)
        builder.memcpy(1 << 20, launch=(at + 2 * us, at + 20 * us), run=(at + 21 * us, at + 500 * us))
        builder.range("head", at + 31 * us, at + 60 * us)
        builder.kernel("gemm", launch=(at + 32 * us, at + 40 * us), run=(at + 501 * us, at + 890 * us))
    path = builder.write(tmp_path / "report.sqlite")
    line = critical_path_line(analyze([path], Options(model_range="^step", layer_range="^(embed|head)")), 0)
    assert "copies of embed" in line and "kernels of head" in line and "no layer" not in line


def test_of_several_executions_it_is_said_how_many():
    line = critical_path_line(_results(iteration_index=[1.0, 1.0, 2.0, 3.0, 3.0]), 0)
    assert line.startswith("Critical path of 3 executions, together 1.00 µs: ")


def test_what_a_cpu_runs_are_operators():
    found = _results()
    cpu = Analysis({**found.frames, "devices": pd.DataFrame({"capture_id": [0], "device_id": [-1]})})
    line = critical_path_line(cpu, 0)
    assert "62.0 % operators of Block" in line and "kernels" not in line


def test_without_the_table_or_an_execution():
    assert critical_path_line(Analysis({}), 0) == ""
    assert critical_path_line(_results(), 1) == ""
    assert critical_path_line(_results(iteration_index=np.nan), 0).startswith("Critical path of the recording")
