"""The critical path in one line: parts by kind and layer type, with shares that add up."""

import numpy as np
import pandas as pd

from xsp_post.model.results import Analysis
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


def test_of_several_executions_it_is_said_which_one():
    found = _results()
    measured = pd.DataFrame({"capture_id": 0, "is_warmup": [True, False, False, False]})
    line = critical_path_line(Analysis({**found.frames, "iterations": measured}), 0)
    assert line.startswith("Critical path of the median execution (execution 2; 3 measured), 1.00 µs: ")


def test_what_a_cpu_runs_are_operators():
    found = _results()
    cpu = Analysis({**found.frames, "devices": pd.DataFrame({"capture_id": [0], "device_id": [-1]})})
    line = critical_path_line(cpu, 0)
    assert "62.0 % operators of Block" in line and "kernels" not in line


def test_without_the_table_or_an_execution():
    assert critical_path_line(Analysis({}), 0) == ""
    assert critical_path_line(_results(), 1) == ""
    assert critical_path_line(_results(iteration_index=np.nan), 0).startswith("Critical path of the recording")
