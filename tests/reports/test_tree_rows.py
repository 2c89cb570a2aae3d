"""Rows of the printed tree: which ranges lie in those that are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from reports import samples
from xsp_post.model.results import Analysis
from xsp_post.reports import tree_rows
from xsp_post.reports.terminal_tree import tree_table


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reach", [1, 3, 40])
def test_the_outermost_of_the_ranges_that_are_asked_for(seed: int, reach: int) -> None:
    """Forty ranges at any depth, some of one name: those that lie in no other one of it, the heaviest first."""
    rng = np.random.default_rng(seed)
    parents = [-1, *(int(max(0, row - rng.integers(1, reach + 1))) for row in range(1, 40))]
    names = ["root", *("wanted" if one else f"x{row}" for row, one in enumerate(rng.random(39) < 0.3))]
    times = (1000 - np.arange(40)).tolist()
    rows = [{"path_id": k, "parent_path_id": parents[k], "level": "MODULE", "name": names[k], "device_ns": times[k]}
            for k in range(40)]  # fmt: skip
    numbers = {name: 0 for name in ("gap_ns", "idle_ns", "busy_ns", "kernel_ns", "copy_ns", "graph_ns", "kernel_count")}
    paths = samples.frame_of("paths", rows)
    paths = paths.assign(capture_id=0, call_count=1, duration_ns=paths["device_ns"], span_kind="range", **numbers)
    results = Analysis({"paths": paths, "operations": samples.frame_of("operations", [])})

    def is_inside_another(row: int) -> bool:
        while (row := parents[row]) >= 0:
            if names[row] == "wanted":
                return True
        return False

    found = tree_rows.tree_rows(results, layer="^wanted", depth=0)
    outermost = [k for k in range(40) if names[k] == "wanted" and not is_inside_another(k)]
    assert found["indent"].tolist() == [0] * len(found)
    assert found["repeat_count"].sum() == len(outermost)
    assert found["device_ns"].is_monotonic_decreasing and found["device_ns"].sum() == sum(times[k] for k in outermost)


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


def of_rows(rows, work=()):
    """Results of ranges (name, parent, level, device_ns) and of kernels (path, name, device_ns)."""
    paths = samples.frame_of("paths", [
        {"path_id": k, "parent_path_id": parent, "level": level, "name": name, "device_ns": ns}
        for k, (name, parent, level, ns) in enumerate(rows)
    ])  # fmt: skip
    numbers = {name: 0 for name in ("gap_ns", "idle_ns", "busy_ns", "kernel_ns", "copy_ns", "graph_ns", "kernel_count")}
    paths = paths.assign(capture_id=0, call_count=1, duration_ns=paths["device_ns"], span_kind="range", **numbers)
    ran = samples.frame_of("operations", [
        {"capture_id": 0, "path_id": path, "kind": "kernel", "name": name, "operation_count": 1, "device_ns": ns}
        for path, name, ns in work
    ])  # fmt: skip
    return Analysis({"paths": paths, "operations": ran})


def test_a_range_that_holds_what_the_one_around_it_does_takes_no_line():
    """Room is for what differs: neither for `execute`, nor for `alias` without work beside it."""
    rows = [("step", -1, "MODEL", 1000), ("layer a", 0, "LAYER", 600), ("execute", 1, "OPERATION", 600),
            ("alias", 1, "OPERATION", 0), ("product", 2, "OPERATION", 400), ("sum", 2, "OPERATION", 200)]  # fmt: skip
    rows += [("x" * (k + 1), 0, "LAYER", 20) for k in range(20)]
    shown = tree_rows.tree_rows(of_rows(rows), lines=8)
    names = shown["name"].tolist()
    assert names[:4] == ["step", "layer a", "product", "sum"] and not {"execute", "alias"} & set(names)
    assert len(names) <= 8


def names_of(table) -> list[str]:
    return [str(cell) for cell in table.columns[0].cells]


def test_siblings_of_one_name_with_other_insides_are_counted_together():
    """18 blocks of which two hold one range more: the verdict says 18, and so does the row of the sixteen."""
    rows = [("all", -1, "MODEL", 1800)]
    for k in range(18):
        rows.append((f"block.{k}", 0, "LAYER", 100))
        rows += [("extra", len(rows) - 1, "OPERATION", 10)] * (k >= 16)
    table, _ = tree_table(tree_rows.tree_rows(of_rows(rows)), 200)
    assert [one.split(" × ")[0].strip() for one in names_of(table) if "×" in one] == ["16 of 18"]


def test_on_a_screen_kernels_that_are_printed_alike_are_one_row():
    """Twelve variants of a template that hold most of the time must not hide in a sum of rows."""
    work = [(0, f"void f<A<{k}>>(int)", 50) for k in range(12)] + [(0, "void g(int)", 100), (0, "void h(int)", 90)]
    results = of_rows([("all", -1, "MODEL", 790)], work)
    screen, whole = tree_rows.tree_rows(results, lines=14), tree_rows.tree_rows(results)
    assert screen["name"].iloc[1].startswith("f<") and screen["device_ns"].iloc[1] == 600
    assert whole["device_ns"].iloc[1] == 100


def test_one_row_is_printed_and_not_its_sum():
    rows = [("all", -1, "MODEL", 1000), ("attention", 0, "LAYER", 700), ("projection", 0, "LAYER", 300)]
    rows += [("x" * (k + 1), 1, "OPERATION", 70) for k in range(10)]
    shown = tree_rows.tree_rows(of_rows(rows), lines=5)["name"].tolist()
    assert "projection" in shown and "1 more" not in shown and len(shown) <= 5


def test_on_a_screen_what_the_verdict_is_of_stands_first():
    """Copies at the start hold most of the time; the executions are what the verdict is of."""
    rows = [("all", -1, "CAPTURE", 1000), ("load", 0, "APPLICATION", 800), ("loop", 0, "APPLICATION", 200),
            ("step", 2, "MODEL", 200)]  # fmt: skip
    assert tree_rows.tree_rows(of_rows(rows), lines=14)["name"].tolist()[1:3] == ["loop", "step"]
    assert tree_rows.tree_rows(of_rows(rows))["name"].tolist()[1] == "load"


def test_names_that_differ_in_the_middle_stay_different_on_a_narrow_terminal():
    name = "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_{}_dynB_sm100f"
    work = [(0, name.format(one), 100) for one in ("swiGlu", "clamp_")]
    rows = tree_rows.tree_rows(of_rows([("all", -1, "MODEL", 200)], work))
    cells = names_of(tree_table(rows, 60)[0])
    assert len(set(cells)) == len(cells) and all(one.strip().startswith("bmm") for one in cells[1:])


@pytest.mark.parametrize("width", [24, 40])
def test_names_give_way_before_the_time_that_rows_are_sorted_by(width):
    rows = tree_rows.tree_rows(of_rows([("a range of a long name, long enough", -1, "MODEL", 200)]))
    assert "device time" in [str(one.header) for one in tree_table(rows, width)[0].columns]


@pytest.mark.parametrize("wanted", ["idle_ns", "copy_ns"])
def test_the_column_of_what_limits_gives_way_last(wanted):
    rows = tree_rows.tree_rows(of_rows([("a range of a long name, long enough", -1, "MODEL", 200)]))
    rows = rows.assign(idle_ns=3, copy_ns=20, graph_ns=90, duration_ns=400, idle_cause="host_code")
    words = {"idle_ns": "waited (most)", "copy_ns": "copy time"}
    shown, left = tree_table(rows, 75, wanted=wanted)
    assert words[wanted] in [str(one.header) for one in shown.columns] and left
    assert words[wanted] in tree_table(rows, 75)[1]


@pytest.mark.parametrize(("heaviest", "is_shown"), [(60, True), (40, False)])
def test_what_holds_most_of_the_device_time_has_a_line_where_the_device_mostly_waits(heaviest, is_shown):
    """Eight ranges that keep the device waiting, the longest first; of the device time one range holds most."""
    names = [("all", -1, "MODEL", 100), ("broadcast", 0, "OPERATION", heaviest)]
    names += [(f"wait {'abcdefgh'[k]}", 0, "OPERATION", (100 - heaviest) // 8) for k in range(8)]
    results = of_rows(names)
    paths = results.frame("paths")
    waits = np.array([4_000, 10, *range(900, 100, -100)])
    paths = paths.assign(idle_ns=waits, duration_ns=[5_000] * 10, idle_cause="host_code")
    shown = tree_rows.tree_rows(Analysis({**results.frames, "paths": paths}), lines=5)["name"].tolist()
    assert ("broadcast" in shown) is is_shown and shown[1] == "wait a" and len(shown) <= 5
