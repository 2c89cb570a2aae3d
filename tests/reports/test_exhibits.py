"""The frames behind each exhibit: sorted, cut, joined; never a number that the tables do not hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reports import samples
from reports.counting import Only
from xsp_post.base.errors import UsageError
from xsp_post.model.results import Analysis
from xsp_post.model.schemas import TABLES as SCHEMAS
from xsp_post.reports import cases, document, frames, icicle, rooflines, theme, timeline
from xsp_post.reports import verdict as verdict_module
from xsp_post.reports.blocks import Chart, Table
from xsp_post.reports.document import section_of
from xsp_post.reports.draw import MAX_BARS, binned, draw, rows_of
from xsp_post.reports.html import render
from xsp_post.reports.page_rows import CHARTS, SECTIONS, TABLES, sorted_by
from xsp_post.reports.pick import starred, windows
from xsp_post.reports.summary import summarize
from xsp_post.tables.analyses import limits
from xsp_post.tables.graph import Graph


@pytest.fixture(scope="module")
def few():
    """Five layers, for tests that build a document many times."""
    return samples.sample(5)


@pytest.fixture(scope="module")
def readers(few):
    """Table → the sections that read it; those that the choice of the case reads, all sections depend on."""
    found, for_all = {}, Only(few)
    shown = cases.main_case(for_all)
    for row in document.chosen(()):
        counted = Only(few)
        section_of(row, counted, shown, frames.FRAMES, document.LEADS, document.DRAWINGS)
        for table in {table for table, _ in counted.columns} - {table for table, _ in for_all.columns}:
            found.setdefault(table, []).append(row.id)
    return found


def _shown(results, kind, *only):
    """Blocks of a kind of a document by id."""
    return {b.id: b for s in document.build(results, only=only).sections for b in s.blocks if isinstance(b, kind)}


def _frame(results, name):
    return frames.FRAMES[name](results, cases.main_case(results))


def test_layers_come_slowest_first_with_the_tables_own_numbers(results):
    frame, table = _shown(results, Table, "layers")["a02"].frame, results.frame("a02")
    assert frame["latency_ns"].is_monotonic_decreasing
    assert frame["latency_ns"].sum() == table["latency_ns"].sum()
    assert pd.DataFrame(_values(_shown(results, Chart, "layers")["a03"].chart, "x"))["x"].is_monotonic_increasing


def test_the_case_shown_is_the_optimal_one_with_kernels(results):
    case = cases.main_case(results)
    assert (case.index, case.label) == (2, "batch 32")
    assert cases.main_case(results, 0).index == 0
    with pytest.raises(UsageError, match="no case 9"):
        cases.main_case(results, 9)


def test_types_join_count_latency_and_memory(results):
    frame = _frame(results, "types")
    assert frame["latency_ns"].is_monotonic_decreasing
    for ratio in ("count_ratio", "latency_ratio", "allocated_ratio"):
        assert frame[ratio].sum() == pytest.approx(1.0)


def test_many_types_are_folded_into_other_without_losing_a_share():
    rows = pd.DataFrame({"case_index": 0, "layer_type": [f"t{i}" for i in range(30)], "layer_count": 1})
    counted, timed = rows.assign(count_ratio=1 / 30), rows.assign(latency_ratio=1 / 30, latency_ns=1.0)
    shares = frames.type_shares(Analysis({"a05": counted, "a06": timed}), cases.Case(0, ""))
    assert shares[shares["layer_type"].eq("other")]["share_ratio"].tolist() == pytest.approx([22 / 30, 22 / 30])
    assert shares.groupby("of")["share_ratio"].sum().tolist() == pytest.approx([1.0, 1.0])


def test_bars_of_huge_models_are_joined_and_add_up():
    count = 5 * MAX_BARS + 3
    frame = pd.DataFrame(
        {
            "layer_index": np.arange(1, count + 1),
            "layer_name": "n",
            "layer_type": "t",
            "latency_ns": np.arange(count, dtype="float64"),
        }
    )
    rows, size = binned(frame, "latency_ns")
    assert len(rows) <= MAX_BARS
    assert size == 6
    assert rows["latency_ns"].sum() == frame["latency_ns"].sum()


def test_ratios_of_joined_layers_are_not_summed():
    ratio = np.linspace(0.1, 0.9, 2 * MAX_BARS)
    frame = pd.DataFrame({"layer_index": np.arange(len(ratio)), "occupancy_ratio": ratio, "dram_read_bytes": 1.0})
    rows, size = binned(frame, "occupancy_ratio")
    assert size == 2 and rows["occupancy_ratio"].tolist() == ratio[1::2].tolist()
    assert binned(frame, "dram_read_bytes")[0]["dram_read_bytes"].eq(2.0).all()


@pytest.mark.parametrize(("counts", "shown"), [((4, 16), 1), ((4, 4), 0)])
def test_the_page_shows_the_case_that_takes_most_of_the_recording(few, counts, shown):
    """Four calls of an encoder of 79 ms are less than sixteen passes of a decoder of 50 ms."""
    two = {
        name: pd.concat([few.frame(name).head(1)] * 2, ignore_index=True).assign(case_index=[0, 1])
        for name in ("cases", "a01", "a15")
    }
    two["cases"] = two["cases"].assign(iteration_count=list(counts))
    two["a01"] = two["a01"].assign(is_optimal=False)
    two["a15"] = two["a15"].assign(kernel_latency_ns=[79e6, 50e6])
    assert cases.main_case(Analysis({**few.frames, **two})).index == shown


def test_kernels_by_name_keep_the_rest_as_other(results):
    case = cases.main_case(results)
    frame = cases.rows(results, "a10", case)
    wide = pd.concat([frame.assign(name=frame["name"].astype(str) + str(i)) for i in range(10)], ignore_index=True)
    top = frames.top_kernels(Analysis({**results.frames, "a10": wide}), case)
    assert len(top) == frames.TOP_KERNELS + 1 and top["label"].is_unique
    assert top["latency_ns"].sum() == pytest.approx(wide["latency_ns"].sum())
    shown = pd.DataFrame(_values(draw(CHARTS["a10"], top), "x"))
    assert top["latency_ns"].sum() / shown["x"].sum() == pytest.approx(1e6, rel=1e-9)


def test_names_of_an_axis_are_never_equal():
    names = ["a" * 90 + end for end in ("x", "y")] + ["b", "b"]
    frame = pd.DataFrame({"cause": names, "idle_ns": [4, 3, 2, 1], "piece_count": 1})
    shown = pd.DataFrame(_values(draw(CHARTS["idle-causes"], frame), "y"))
    assert shown["y"].nunique() == 3 and shown["y"].iloc[0] != shown["y"].iloc[1]


def test_several_columns_become_a_series_each_and_the_cut_is_said():
    frame = pd.DataFrame({"offset_ns": range(5), "sm_active_ratio": 0.5, "dram_ratio": [0.1, np.nan, 0.3, 0.4, 0.5],
                          "tensor_active_ratio": np.nan})  # fmt: skip
    rows, _ = rows_of(CHARTS["gpu-samples"], frame)
    assert rows.groupby("series", sort=False)["value_ratio"].count().tolist() == [5, 4]
    many = pd.DataFrame({"label": "x", "low_ratio": 0.0, "high_ratio": 0.0, "difference_ratio": [0.1] * 60,
                         "change": "slower"})  # fmt: skip
    rows, said = rows_of(CHARTS["layers-differences"], many)
    assert len(rows) == 15 and "The first 15 of 60" in said


def test_parts_are_stacked_along_the_amount_and_nowhere_else():
    frame = pd.DataFrame({"offset_ns": [0, 5, 0, 5], "part": ["a", "a", "b", "b"], "live_bytes": [1, 2, 3, 4],
                          "reserved_bytes": 9})  # fmt: skip
    encoded = draw(CHARTS["memory"], frame).to_dict(validate=False)["layer"][0]["encoding"]
    assert encoded["y"]["stack"] == "zero" and "stack" not in encoded["x"]


def test_every_row_of_the_page_is_shown_once_and_reads_columns_that_are_there():
    shown = [one for row in SECTIONS.values() for one in row.shows]
    for page in {row.page for row in SECTIONS.values()}:  # the page of a job and that of a folder may show one chart
        of_page = [one for row in SECTIONS.values() if row.page == page for one in row.shows]
        assert len(of_page) == len(set(of_page)), page
    assert {name for kind, name in shown if kind == "chart"} == set(CHARTS)
    assert {name for kind, name in shown if kind == "table"} == set(TABLES)
    for row in (*CHARTS.values(), *TABLES.values()):
        assert row.schema in SCHEMAS, row.id
    for row in TABLES.values():
        known = {column.name for column in SCHEMAS[row.schema].columns}
        assert row.rows not in SCHEMAS or {*row.columns, *row.bars} <= known, row.id


def test_layers_know_their_longest_kernel(results):
    frame = _frame(results, "layer_kernels")
    assert frame["name"].notna().all()
    assert frame["layer_latency_ns"].is_monotonic_decreasing


def test_model_rows_are_by_batch_size(results):
    assert _frame(results, "batches")["batch_size"].tolist() == [8, 16, 32]


def test_roofline_points_are_those_with_flop_and_traffic_and_only_the_logarithm_drops_zeros(results):
    frame, row = _frame(results, "roofline_kernels"), CHARTS["a09"]
    roofs = rooflines.roof_data(results, frame)
    assert roofs["pipe"].tolist() == ["fp32"]
    linear, log = (_values(rooflines.draw_roofline(row, frame, roofs, scale), "label") for scale in ("linear", "log"))
    assert len(linear) == len(frame)
    assert len(log) == int((frame["arithmetic_intensity_flop_per_byte"] > 0).sum()) < len(linear)


def test_the_icicle_holds_every_nanosecond_of_the_capture(results):
    frame = icicle.data(results)
    captures = results.frame("captures").set_index("capture_id")
    total = captures.loc[2, "device_ns"]
    roots = frame[frame["parent"] < 0]
    leaves = frame[frame["level"].eq("KERNEL")]
    assert roots["device_ns"].sum() == total == leaves["device_ns"].sum()
    assert (frame["parent"] < np.arange(len(frame))).all()


@pytest.mark.parametrize("limit", [3, 12, 25])
def test_a_pruned_icicle_still_adds_up_level_by_level(results, limit):
    frame = icicle.data(results, limit=limit)
    whole = icicle.data(results)
    assert len(frame) < len(whole)
    assert frame.loc[frame["parent"] < 0, "device_ns"].sum() == whole.loc[whole["parent"] < 0, "device_ns"].sum()
    inner = frame.groupby("parent")["device_ns"].sum()
    for parent, kernel_ns in inner[inner.index >= 0].items():
        assert kernel_ns == frame.loc[parent, "device_ns"]


def _median(results):
    found = timeline.data(results)
    return found, next(one for one in found.windows if one.title.startswith("median"))


def test_the_timeline_shows_real_executions_to_the_kernel(results):
    found, window = _median(results)
    iterations = results.frame("iterations")
    row = iterations[iterations["capture_id"].eq(2) & iterations["iteration_index"].eq(window.iteration_index)].iloc[0]
    assert not row["is_warmup"]
    kernels = found.events[found.events["kind"].eq("KERNEL")]
    inside = kernels[kernels["start_ns"].between(window.start_ns, window.end_ns)]
    assert len(inside) == row["kernel_count"] and inside["event_count"].eq(1).all()
    assert (inside["end_ns"] - inside["start_ns"]).sum() == row["kernel_ns"] == inside["busy_ns"].sum()
    assert found.events["start_ns"].min() == 0
    assert (inside["start_ns"] - inside["launch_start_ns"]).tolist() == inside["queue_delay_ns"].tolist()


def test_first_median_and_slowest_are_chosen_once_each():
    def titles(latencies):
        rows = pd.DataFrame({"latency_ns": latencies, "start_ns": np.arange(len(latencies)) * 1000, "phase": "step"})
        rows = rows.assign(end_ns=rows["start_ns"] + 10, capture_id=0, is_warmup=False, iteration_index=rows.index)
        return [one.title.split()[0] for one in windows(Analysis({"iterations": rows}), 0)]

    assert titles([10, 20, 30, 25]) == ["first", "median", "slowest"]
    assert titles([20, 10, 30]) == ["median", "slowest"] and titles([5]) == ["execution"] and titles([]) == []


def test_the_critical_path_is_a_lane_of_its_own(results):
    found, window = _median(results)
    start = found.start_ns + window.start_ns
    rows = [("host", "", start, start + 40), ("kernel", "gemm", start + 40, start + 90)]
    path = pd.DataFrame(rows, columns=["kind", "name", "start_ns", "end_ns"])
    path = path.assign(capture_id=window.capture_id, iteration_index=0.0, layer_index=np.nan)
    events = timeline.data(Analysis({**results.frames, "critical_path": path})).events.query("group == 'path'")
    assert events["kind"].tolist() == ["PATH-HOST", "PATH-KERNEL"]
    assert events["name"].tolist() == ["host", "kernel: gemm"]


@pytest.mark.parametrize("limit", [30, 200])
def test_a_thinned_timeline_counts_every_event_and_its_time(results, limit):
    whole, thin = timeline.data(results).events, timeline.data(results, limit=limit).events
    assert len(thin) < len(whole)
    assert thin["end_ns"].max() == whole["end_ns"].max()
    keys = ["group", "lane", "sub", "kind"]
    for amount in ("event_count", "busy_ns"):
        every, joined = (events.groupby(keys)[amount].sum().to_dict() for events in (whole, thin))
        assert every == joined


def test_a_page_finds_each_limit_once(few, monkeypatch):
    asked, found = [], limits._limit
    monkeypatch.setattr(limits, "_limit", lambda *arguments: asked.append(arguments[1]) or found(*arguments))
    document.build(few, only=("idle", "path"))
    assert asked and len(asked) == len(set(asked))


def test_a_timeline_of_many_threads_and_streams_says_what_is_not_drawn(results):
    changed = dict(results.frames)
    kernels = changed["kernels"].copy()
    kernels["stream_id"] = np.arange(len(kernels)) % 40
    changed["kernels"] = kernels
    whole, found = timeline.data(results), timeline.data(Analysis(changed))
    kernels = found.events[found.events["kind"].eq("KERNEL")]
    assert kernels["lane"].nunique() == timeline.LANE_LIMIT
    assert found.events["event_count"].sum() + found.left_out_count == whole.events["event_count"].sum()
    blocks = timeline.blocks(Analysis(changed))
    assert any("not drawn" in getattr(block, "text", "") for block in blocks)


def test_overhead_stacks_what_each_level_added():
    rows = [
        {
            "event_kind": "model",
            "layer_index": 0,
            "level": level,
            "latency_ns": latency,
            "is_accurate": level == "M",
            "compared_level": below,
            "overhead_ns": added,
            "overhead_ratio": ratio,
            "phase": "forward",
            "batch_size": 32,
            "verdict": "overhead",
        }
        for level, latency, below, added, ratio in (
            ("M", 275.1e6, "", np.nan, np.nan),
            ("M/L", 432.1e6, "M", 157.0e6, 0.57),
            ("M/L/G", 490.3e6, "M/L", 58.2e6, 0.13),
        )
    ]
    analysis = Analysis({"overhead": samples.frame_of("overhead", rows)})
    shown = pd.DataFrame(_values(_shown(analysis, Chart, "overhead")["overhead"].chart, "x2"))
    assert shown.groupby("y")["x2"].max().to_dict() == pytest.approx({"M": 275.1, "M/L": 432.1, "M/L/G": 490.3})
    assert shown["part"].unique().tolist() == ["accurate", "added by M/L", "added by M/L/G"]


def test_only_takes_analyses_and_sections(results):
    assert [e.id for e in document.chosen(["A9"])] == ["rooflines"]
    assert [e.id for e in document.chosen(["tree"])] == ["tree"]
    with pytest.raises(UsageError, match="called a99"):
        document.chosen(["A99"])


@pytest.mark.parametrize(
    "missing",
    [
        "a01",
        "a02",
        "a03",
        "a05",
        "a08",
        "a10",
        "a11",
        "a12",
        "a13",
        "a15",
        "roofs",
        "balance",
        "findings",
        "devices",
        "nodes",
        "kernels",
        "layers",
        "iterations",
        "memory_operations",
        "dominant_kernels",
        "cases",
        "captures",
    ],
)
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_any_table_may_be_absent_or_empty(few, readers, missing, how):
    frames = dict(few.frames)
    frames[missing] = frames[missing].iloc[:0]
    if how == "absent":
        del frames[missing]
    built = document.build(Analysis(frames), only=readers.get(missing, ()))  # the other exhibits stay as they are
    assert built.summary.verdict["sentence"]


def test_nothing_at_all_is_a_document_too():
    built = document.build(Analysis({}))
    assert not built.sections
    assert {e.id for e in built.missing} >= {"layers", "kernels", "rooflines", "tree"}
    assert built.summary.title == "unnamed workload"


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -5.0, 0.0, 1e300])
def test_absurd_numbers_still_make_a_page(few, number):
    frames = {}
    for name, frame in few.frames.items():
        floats = [c for c in frame.columns if frame[c].dtype == "float64"]
        frames[name] = frame.assign(**dict.fromkeys(floats, number))
    assert render(Analysis(frames)).endswith("</html>\n")


def test_every_chart_is_valid_vega_lite(results):
    """Building a document leaves these checks out: they take a fifth of its time."""
    charts = [block for part in document.build(results).sections for block in part.blocks if isinstance(block, Chart)]
    assert len(charts) > 10
    for chart in charts:
        for form in (chart.chart, *(form for _, form in chart.alternatives)):
            form.to_dict(validate=True)


def test_each_column_is_read_once(results):
    counting = Only(results)
    document.build(Graph(counting, (), {}))  # as every command makes it
    assert not [
        asked for asked, times in counting.columns.items() if times > 1 and asked[0] in ("kernels", "nodes", "a08")
    ]


def _values(chart, column: str) -> list[dict]:
    """The data set of a chart that has the column."""
    sets = chart.to_dict(validate=False)["datasets"].values()
    return next(rows for rows in sets if rows and column in rows[0])


def test_what_lies_outside_of_the_layers_is_no_layer(results):
    """However long the model's own part takes, the slowest layer is a layer; its own part is said beside them."""
    table = results.frame("a02").copy()
    heaviest = table["latency_ns"].idxmax()
    for column in ("layer_name", "layer_path", "layer_type"):
        table[column] = table[column].astype(object)
        table.loc[heaviest, column] = "[self]"
    changed = Analysis({**results.frames, "a02": table}, results.findings)
    case = cases.main_case(changed)
    summary = summarize(changed, case)
    mine = table[table["case_index"].eq(case.index) & table["layer_name"].ne("[self]")]
    shown = {row.layer_index for row in summary.top_layers}  # of equal layers the slowest
    assert int(mine.nlargest(1, "latency_ns")["layer_index"].iloc[0]) in shown
    assert shown <= set(mine["layer_index"])
    if table.loc[heaviest, "case_index"] == case.index:
        assert summary.outside is not None and summary.outside.name == "the model outside its layers"
    assert summarize(results, case).outside is None
    assert "No layer was recorded" not in render(changed)


@pytest.mark.parametrize(
    ("counters", "idle", "word"),
    [
        (False, 50_000, "GPU-bound"),
        (True, 50_000, "compute-bound"),
        (True, 450_000, "two limits"),
        (True, 2_000_000, "host-bound"),
    ],
)
def test_a_gpu_that_often_waits_is_not_plainly_called_the_limit(counters, idle, word):
    results = samples.sample(3, counters=counters)
    a15 = results.frame("a15")
    case = cases.main_case(results)
    capture = int(cases.rows(results, "cases", case)["kernel_capture_id"].iloc[0])
    if counters:
        a15["bound"], a15["roof_ratio"], a15["counter_coverage_ratio"] = "compute", 0.9, 1.0
    changed = {**results.frames, "a15": a15, **samples.waiting(capture, busy=500_000, idle=idle)}
    results = Analysis(changed)
    assert verdict_module.verdict(results, verdict_module.main_limit(results))["word"] == word


def test_a_capture_of_nothing_has_no_tree_to_draw(few):
    amounts = ["duration_ns", "device_ns", "kernel_ns", "busy_ns", "kernel_count"]
    paths = few.frames["paths"].iloc[:1].assign(**dict.fromkeys(amounts, 0), capture_id=0)
    assert not icicle.blocks(Analysis({"paths": paths}))


def test_cases_that_are_ranks_are_no_batch_sizes_on_an_axis():
    frame = samples.frame_of("a01", [
        {"case_index": k, "batch_size": -1, "phase": "step", "rank_name": f"rank {k}", "is_optimal": False}
        for k in range(2)
    ])  # fmt: skip
    named = frames.FRAMES["batches"](Analysis({"a01": frame}), None)
    assert named["batch"].tolist() == ["rank 0", "rank 1"]
    assert all(row.x_title != "batch size" for row in CHARTS.values() if row.rows == "batches")


def test_a_level_says_what_it_stands_for():
    said = theme.text_of(pd.Series(["M/L/G", "LAYER", ""]), "level")
    assert said == ["M/L/G (ranges and kernels)", "LAYER", ""]


def test_a_table_whose_first_order_is_not_known_is_sorted_by_what_it_cost():
    rows = samples.frame_of("a13", [{"layer_index": k, "layer_latency_ns": ns} for k, ns in enumerate([5, 90, 30], 1)])
    rows = rows.assign(non_gpu_by_sum_ns=np.nan)
    assert sorted_by(rows, TABLES["a13"].sort)["layer_index"].tolist() == [2, 3, 1]


def test_numbers_that_differ_between_any_two_are_stars():
    """First and last of ``d.0.c.3, d.2.c.0, d.2.c.3`` share the 3, the one between them does not."""
    assert starred(["d.0.c.3:Conv2d", "d.2.c.0:Conv2d", "d.2.c.3:Conv2d"]) == "d.*.c.*:Conv2d"
    assert starred(["d.0.c.3:Conv2d", "d.2.c.3:Conv2d"]) == "d.*.c.3:Conv2d"
    assert starred(["step 4", "step 4"]) == "step 4"


@pytest.mark.parametrize(("what", "is_said"), [("", False), ("[self]", False), ("conv", True)])
def test_layers_are_called_inferred_where_one_of_them_is(what, is_said, few):
    """What an inferred execution does outside of recorded layers does not make these inferred."""
    names = few.frame("a02")["layer_name"].astype(object).copy()
    names.iloc[0] = what or names.iloc[0]
    changed = Analysis({**few.frames, "a02": few.frame("a02").assign(layer_name=names, is_inferred=names.eq(what))})
    said = " ".join(document.LEADS["layers"](changed, cases.main_case(changed)))
    assert ("inferred from repeating kernels" in said) == is_said
