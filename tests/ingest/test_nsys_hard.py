"""Exports nobody should have written and everybody has: read, told in a finding, or refused in one sentence."""

from __future__ import annotations

import sqlite3
import time
import warnings

import pytest
from builders import ExportBuilder, global_id
from export_schema import PRODUCTS, UNVERSIONED
from helpers import core_tables

from xsp_post.base.errors import CaptureError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.tree import Attribution
from xsp_post.pipeline import Options, analyze

KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
KERNELS, KERNEL_NS = 12, 12 * 50


def steps(schema="3.25.0", **options):
    """Three steps of two layers, two kernels of 50 ns each; GPU, thread and session rows beside them."""
    builder = ExportBuilder(schema, **options).process(100)
    if schema != UNVERSIONED:
        builder.gpu()
    for step in range(3):
        t = step * 1000
        builder.range(f"step {step}", t, t + 900)
        for layer in range(2):
            at = t + 10 + layer * 400
            builder.range(f"layer_{layer}", at, at + 300)
            for k in range(2):
                begin = at + 100 * k + 50
                builder.kernel("gemm", launch=(at + 10 * k + 1, at + 10 * k + 5), run=(begin, begin + 50))
    return builder


def edited(builder, path, *statements):
    """The export with rows or tables changed by hand."""
    builder.write(path)
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.executescript(statement)
    connection.close()
    return path


def untyped(table):
    """The same table without NOT NULL, types and keys, as an edited copy has them."""
    return f"CREATE TABLE copy AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE copy RENAME TO {table};"


def totals(path):
    """(kernels launched in a range, time of all, layers) of the tree, with every numpy warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        tree = build_tree(load(path).trace)
        frames = core_tables(tree).frames
    kernels = frames["kernels"]
    nested = int((kernels["attribution"] == "nesting").sum())
    return nested, int(kernels["duration_ns"].sum()), frames["layers"]["layer_index"].nunique()


@pytest.mark.parametrize("schema", [UNVERSIONED, *PRODUCTS])
def test_every_schema_gives_the_same_tree(tmp_path, schema):
    expected = (KERNELS, KERNEL_NS, 2)
    for options in ({}, {"lazy": False}, {"interned": True}):
        assert totals(steps(schema, **options).write(tmp_path / "a.sqlite")) == expected


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("TARGET_INFO_GPU", "id"), ("TARGET_INFO_GPU", "smCount"), ("TARGET_INFO_GPU", "clockRate"),
        ("TARGET_INFO_GPU", "totalMemory"), ("TARGET_INFO_CUDA_DEVICE", "gpuId"), ("TARGET_INFO_CUDA_DEVICE", "pid"),
        ("PROCESSES", "globalPid"), ("ThreadNames", "globalTid"), ("ThreadNames", "nameId"),
        ("ANALYSIS_DETAILS", "duration"), ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["'text'", "x'00ff'", "1.5", "NULL", "9e999", "9223372036854775806"])
def test_side_tables_with_foreign_values_cost_no_kernel(tmp_path, table, column, value):
    builder = steps().thread(101, "worker")
    builder.row("ANALYSIS_DETAILS", globalVid=1, duration=10, startTime=0, stopTime=10)
    builder.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10)
    path = edited(builder, tmp_path / "a.sqlite", untyped(table), f"UPDATE {table} SET {column} = {value}")
    assert totals(path) == (KERNELS, KERNEL_NS, 2)


@pytest.mark.parametrize("table", [KERNEL, RUNTIME, NVTX])
def test_a_foreign_value_in_a_timeline_names_table_and_column(tmp_path, table):
    change = f"UPDATE {table} SET start = 'soon' WHERE rowid = 2"
    path = edited(steps(), tmp_path / "a.sqlite", untyped(table), change)
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.code == "capture-bad-column" and f"{table}.start" in caught.value.message


def test_a_table_without_row_numbers_is_numbered(tmp_path):
    columns = "start, end, eventType, globalTid, endGlobalTid, text, textId, domainId, eventId"
    path = edited(
        steps("3.28.1"), tmp_path / "a.sqlite",
        f"CREATE TABLE x ({columns.replace('eventId', 'eventId INTEGER PRIMARY KEY')}) WITHOUT ROWID;"
        f"INSERT INTO x SELECT {columns} FROM {NVTX}; DROP TABLE {NVTX}; ALTER TABLE x RENAME TO {NVTX};",
    )  # fmt: skip
    assert totals(path) == (KERNELS, KERNEL_NS, 2)
    numbers = load(path).trace.spans["source_row_id"]
    assert numbers.is_unique and (numbers > 0).all()


@pytest.mark.parametrize("change", ["9223372036854775807 - rowid", "rowid * 1000000007", "-rowid", "rowid * 3000000"])
def test_any_row_numbers(tmp_path, change):
    changes = [f"UPDATE {table} SET rowid = {change}" for table in (KERNEL, RUNTIME, NVTX)]
    path = edited(steps(), tmp_path / "a.sqlite", *changes)
    assert totals(path) == (KERNELS, KERNEL_NS, 2)


@pytest.mark.parametrize("name", [b"N\xe4TX_EVENTS", b"NVTX_EVENTS"])
def test_a_damaged_schema_is_one_sentence_whatever_bytes_are_in_it(tmp_path, name):
    path = steps().write(tmp_path / "a.sqlite")
    damaged = path.read_bytes().replace(b"NVTX_EVENTS", name)
    path.write_bytes(damaged.replace(b'CREATE TABLE "' + name, b'CREATE TABLX "' + name))
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.code == "capture-damaged" and caught.value.exit_code == 4
    assert "codec" not in caught.value.message


def test_null_joins_nothing_and_names_nothing(tmp_path):
    """NULL = NULL is not a match in SQL either; and StringIds row 0 is a name like any other."""
    builder = steps().kernel("lost", run=(5000, 5010)).set_last(KERNEL, correlationId=None)
    builder.api("cudaDeviceSynchronize", 20, 30).set_last(RUNTIME, correlationId=None)
    builder.kernel("nameless", launch=(21, 22), run=(5020, 5030))
    path = edited(
        builder, tmp_path / "a.sqlite", untyped(KERNEL),
        f"UPDATE {KERNEL} SET demangledName = NULL, shortName = NULL, mangledName = NULL WHERE start = 5020",
    )  # fmt: skip
    frames = core_tables(build_tree(load(path).trace)).frames
    kernels = frames["kernels"].set_index("start_ns")
    assert kernels.loc[5000, "attribution"] == "no_launch"
    assert kernels.loc[5020, "attribution"] == "nesting"
    assert kernels.loc[5020, "name"] not in load(path).trace.strings.tolist()


def test_times_no_clock_shows_are_a_finding(tmp_path):
    huge = 2**63 - 8
    builder = steps()
    builder.range("damaged", -huge, huge).kernel("k", launch=(20, 21), run=(-huge, huge))
    builder.kernel("k", launch=(huge - 1, huge), run=(60, huge)).memcpy(8, launch=(31, 32), run=(70, huge))
    path = builder.write(tmp_path / "a.sqlite")
    assert totals(path)[0] == KERNELS + 1
    assert len(load(path).trace.activities) == KERNELS + 3
    assert "implausible-times" in {f.code for f in load(path).trace.findings}
    root = core_tables(build_tree(load(path).trace)).frames["nodes"].iloc[0]
    assert 0 <= root["start_ns"] <= root["end_ns"] <= 2900


def test_times_since_1970_are_plausible(tmp_path):
    """`nsys export --ts-normalize=true` writes them."""
    now = 1_763_700_000_000_000_000
    builder = ExportBuilder().range("layer", now, now + 100)
    builder.kernel("k", launch=(now + 1, now + 2), run=(now + 5, now + 9))
    path = builder.write(tmp_path / "a.sqlite")
    assert totals(path)[:2] == (1, 4)
    assert "implausible-times" not in {f.code for f in load(path).trace.findings}


def test_an_open_range_lasts_to_the_last_nvtx_time(tmp_path):
    """The largest NVTX time of the file, which may be that of a mark; never that of a cuDNN call."""
    builder = ExportBuilder().range("open", 10, None).kernel("k", launch=(40, 41), run=(50, 60))
    builder.mark("done", 45).library("cudnnConvolutionForward", 46, 90)
    spans = load(builder.write(tmp_path / "a.sqlite")).trace.spans
    assert spans["end_ns"].tolist()[0] == 45
    assert totals(tmp_path / "a.sqlite")[:2] == (1, 10)


def test_five_thousand_ranges_inside_one_another(tmp_path):
    count = 5000
    builder = ExportBuilder()
    for i in range(count):
        builder.range(f"f{i % 7}", i, 4 * count - i)
        builder.kernel("k", launch=(2 * i + 1, 2 * i + 1), run=(5 * count + i, 5 * count + i + 1))
    path = builder.write(tmp_path / "a.sqlite")
    start_s = time.process_time()
    assert totals(path)[:2] == (count, count)
    assert time.process_time() - start_s < 8


def test_three_hundred_threads(tmp_path):
    """Half of them have ranges; the other half launches while those are open."""
    builder = ExportBuilder()
    for thread in range(300):
        builder.thread(200 + thread, f"worker{thread}")
        for step in range(5):
            t = step * 1000 + thread
            if thread % 2:
                builder.range(f"step {step}", t, t + 900)
            builder.kernel("k", launch=(t + 10, t + 12), run=(t + 50, t + 100), stream=thread)
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    how = tree.kernels["attribution"].to_numpy()
    assert (how == Attribution.NESTING).sum() == 750
    # threads 0 launches before any other thread has opened a range
    assert (how == Attribution.THREAD_TIME).sum() >= 745


def test_graph_nodes_of_any_kind(tmp_path):
    """Created before the capture, never, in a circle, from a node of another process."""
    builder = ExportBuilder("3.24.0")
    builder.range("capture", -500, -100).graph_node(1, -300).graph_node(2, -200, original=1)
    builder.graph_node(3, 40, original=4).graph_node(4, 41, original=3).graph_node(5, 42, original=5)
    builder.graph_node(6, 43, original=999).graph_node(0, 44)
    builder.process(300).graph_node(77, 45).process(100)
    builder.range("replay", 0, 900)
    for k, node in enumerate((1, 2, 3, 4, 5, 6, 77, 888, 4294967295, 0)):
        builder.api("cudaGraphLaunch_v10000", 100 + k, 101 + k)
        correlation = builder.last_correlation
        builder.kernel("k", run=(200 + k, 201 + k), correlation=correlation, graph_node=node)
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    names = tree.strings[tree.nodes["name_id"].to_numpy()[tree.kernels["node_id"].to_numpy()]].tolist()
    assert names == ["capture"] * 2 + ["replay"] * 8
    assert tree.kernels["attribution"].tolist()[:2] == [Attribution.GRAPH] * 2
    assert (tree.kernels["end_ns"] - tree.kernels["start_ns"]).sum() == 10


def test_device_rows_of_an_unknown_process(tmp_path):
    """Their process has no API row, no range and no PROCESSES row; ids may carry thread bits."""
    builder = steps()
    builder.process(777).kernel("alien", run=(5000, 5010), correlation=1)
    builder.set_last(KERNEL, globalPid=global_id(777, 5))
    builder.kernel("nobody", run=(5020, 5030), correlation=1).set_last(KERNEL, globalPid=0)
    path = builder.write(tmp_path / "a.sqlite")
    tree = build_tree(load(path).trace)
    late = tree.kernels["start_ns"].to_numpy() >= 5000
    assert (tree.kernels["attribution"].to_numpy()[late] == Attribution.NO_LAUNCH).all()
    assert 777 in tree.trace.processes["process_id"].tolist()


def test_thread_bits_in_a_device_rows_process_id_do_not_part_it_from_its_launch(tmp_path):
    builder = steps()
    builder.rows[KERNEL] = [row | {"globalPid": global_id(100, 4)} for row in builder.rows[KERNEL]]
    tree = build_tree(load(builder.write(tmp_path / "a.sqlite")).trace)
    assert (tree.kernels["attribution"].to_numpy() == Attribution.NESTING).all()


def test_iterations_in_which_nothing_ran_may_come_last(tmp_path):
    builder = steps()
    for step in range(3, 9):
        builder.range(f"step {step}", 1000 * step, 1000 * step + 900)
    assert totals(builder.write(tmp_path / "a.sqlite")) == (KERNELS, KERNEL_NS, 2)


@pytest.mark.guard
def test_hostile_texts_go_all_the_way(tmp_path):
    texts = [
        "\x00nul\x00", "", "x" * 10_000, "a\tb\nc", "\x1b[31mred", "[red]m[/red]", "</script><script>", "\u202eabc",
        b"\xff\xfe\x00bad", b"caf\xe9", "q'uo\"te", "%s%d{}", " ", "\U0001f642" * 50, "aten::mm, seq = ",
        "{'op': __import__('os')}", "{" * 3000, "(" * 5000, "[" * 5000, "step 99999999999999999999999",
        "layer_" + "9" * 400, "aten::mm, seq = 99999999999999999999, op_id = 3", "in=[" * 900,
    ]  # fmt: skip
    builder = steps()
    for k, text in enumerate(texts):
        t = 10_000 + 1000 * k
        builder.range(text, t, t + 100).range(text, t + 20, t + 30, interned=True)
        builder.kernel(text, launch=(t + 1, t + 2), run=(t + 3, t + 9))
    analysis = analyze([builder.write(tmp_path / "a.sqlite")], Options())
    assert len(analysis.frame("kernels")) == KERNELS + len(texts)
    assert "non-utf8-text" in set(analysis.frame("findings")["code"])
    from xsp_post.store.store import open_store, write_store

    write_store(analysis, tmp_path / "a.xsp.sqlite")
    kept = open_store(tmp_path / "a.xsp.sqlite").frame("nodes")["name"].to_numpy(object).tolist()
    made = analysis.frame("nodes")["name"].to_numpy(object).tolist()
    assert kept == [text.replace("\x00", "\u2400") for text in made]


@pytest.mark.parametrize("schema", ["3.16.1", "3.25.0"])
def test_a_first_iteration_that_loads_code_is_warm_up_where_no_overhead_says_so(tmp_path, schema):
    """Exports before 3.24 tell no kind of overhead; the driver's own calls do."""
    builder = ExportBuilder(schema).gpu()
    for step in range(5):
        at = step * 1000
        builder.range(f"step{step}:forward", at, at + 500, domain="xsp").range("conv", at + 10, at + 400, domain="xsp")
        builder.kernel("gemm", launch=(at + 100, at + 110), run=(at + 150, at + 450))
    builder.api("cuLibraryLoadData", 20, 60)
    trace = load(builder.write(tmp_path / "report.sqlite")).trace
    assert trace.module_loading_ns.tolist() == [20]
    assert build_tree(trace).iterations["is_warmup"].tolist() == [True, False, False, False, False]
