"""Rows of the printed tree: which ranges lie in those that are asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reports import samples
from xsp_post.model.results import Analysis
from xsp_post.reports import tree_rows


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reach", [1, 3, 200])
def test_what_lies_in_the_chosen_rows(seed: int, reach: int) -> None:
    rng = np.random.default_rng(seed)
    ids = np.arange(7, 207)
    parents = np.array([-1, *(ids[max(0, row - rng.integers(1, reach + 1))] for row in range(1, len(ids)))])
    order = rng.permutation(len(ids))  # as shown: not by depth
    rows = tree_rows._Rows.__new__(tree_rows._Rows)
    rows.rows, rows.parents = pd.DataFrame({"path_id": ids[order]}), parents[order]
    chosen = rng.random(len(ids)) < 0.05
    by_id = dict(zip(ids[order].tolist(), chosen.tolist()))
    parent_of = dict(zip(ids.tolist(), parents.tolist()))

    def is_below(one: int) -> bool:
        while one >= 0:
            if by_id[one]:
                return True
            one = parent_of[one]
        return False

    assert rows._below(chosen).tolist() == [is_below(one) for one in ids[order].tolist()]


def test_a_layer_with_much_of_the_time_has_a_line_however_deep_it_is():
    """Ten ranges inside each other, many light ones beside them, and a layer with 90 % at the bottom."""
    chain = [{"path_id": k, "parent_path_id": k - 1, "level": "MODULE", "name": f"part{'abcdefghij'[k]}",
              "device_ns": 1000} for k in range(9)]  # fmt: skip
    light = [{"path_id": 20 + k, "parent_path_id": k % 5, "level": "MODULE", "name": "x" * (k + 1), "device_ns": 2}
             for k in range(40)]  # fmt: skip
    deep = {"path_id": 9, "parent_path_id": 8, "level": "LAYER", "name": "encoder", "device_ns": 900}
    paths = samples.frame_of("paths", [*chain, deep, *light])
    numbers = {name: 0 for name in ("gap_ns", "idle_ns", "busy_ns", "kernel_ns", "copy_ns", "graph_ns", "kernel_count")}
    paths = paths.assign(capture_id=0, call_count=1, duration_ns=paths["device_ns"], span_kind="range", **numbers)
    results = Analysis({"paths": paths, "operations": samples.frame_of("operations", [])})
    assert "encoder" in tree_rows.tree_rows(results, lines=18)["name"].tolist()
    assert "encoder" not in tree_rows.tree_rows(results, depth=3)["name"].tolist()


@pytest.mark.parametrize("lines", [18, 40])
def test_below_the_listed_depth_the_lines_of_a_range_add_up(lines):
    """Eight ranges inside each other, at the bottom layers of 40, 30, 20 and ten of 1 %: none is left out."""
    chain = [{"path_id": k, "parent_path_id": k - 1, "level": "MODULE", "name": f"part{'abcdefgh'[k]}",
              "device_ns": 1000} for k in range(8)]  # fmt: skip
    shares = [400, 300, 200, *[10] * 10]
    layers = [{"path_id": 10 + k, "parent_path_id": 7, "level": "LAYER", "name": "l" * (k + 1), "device_ns": share}
              for k, share in enumerate(shares)]  # fmt: skip
    light = [{"path_id": 40 + k, "parent_path_id": k % 5, "level": "MODULE", "name": "x" * (k + 1), "device_ns": 1}
             for k in range(40)]  # fmt: skip
    paths = samples.frame_of("paths", [*chain, *layers, *light])
    numbers = {name: 0 for name in ("gap_ns", "idle_ns", "busy_ns", "kernel_ns", "copy_ns", "graph_ns", "kernel_count")}
    paths = paths.assign(capture_id=0, call_count=1, duration_ns=paths["device_ns"], span_kind="range", **numbers)
    results = Analysis({"paths": paths, "operations": samples.frame_of("operations", [])})
    shown = tree_rows.tree_rows(results, lines=lines)
    deepest = shown[shown["indent"] == shown["indent"].max()]
    assert deepest["device_ns"].sum() == 1000 and len(deepest) == 4


def test_a_range_that_holds_what_the_one_around_it_does_takes_no_line():
    """Room is for what differs: neither for `execute`, nor for `alias` without work beside it."""
    rows = [("step", -1, "MODEL", 1000), ("layer a", 0, "LAYER", 600), ("execute", 1, "OPERATION", 600),
            ("alias", 1, "OPERATION", 0), ("product", 2, "OPERATION", 400), ("sum", 2, "OPERATION", 200)]  # fmt: skip
    rows += [("x" * (k + 1), 0, "LAYER", 20) for k in range(20)]
    paths = samples.frame_of("paths", [
        {"path_id": k, "parent_path_id": parent, "level": level, "name": name, "device_ns": ns}
        for k, (name, parent, level, ns) in enumerate(rows)
    ])  # fmt: skip
    numbers = {name: 0 for name in ("gap_ns", "idle_ns", "busy_ns", "kernel_ns", "copy_ns", "graph_ns", "kernel_count")}
    paths = paths.assign(capture_id=0, call_count=1, duration_ns=paths["device_ns"], span_kind="range", **numbers)
    shown = tree_rows.tree_rows(Analysis({"paths": paths, "operations": samples.frame_of("operations", [])}), lines=8)
    names = shown["name"].tolist()
    assert names[:4] == ["step", "layer a", "product", "sum"] and not {"execute", "alias"} & set(names)
    assert len(names) <= 8
