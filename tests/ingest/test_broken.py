"""Inputs that broke something once, and their like made here: read whole, or refused in one sentence."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from builders import ExportBuilder
from conftest import CANARY
from export_schema import KERNEL

from xsp_post.base import limits
from xsp_post.base.errors import CaptureError, XspPostError
from xsp_post.hierarchy import build_tree
from xsp_post.ingest import ncu, sqlite_tables, trace_events
from xsp_post.ingest.sources import load
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import Request, WantedColumn, whole
from xsp_post.model.trace import ActivityKind
from xsp_post.pipeline import analyze
from xsp_post.tables.core.captures import devices_frame


@pytest.fixture
def broken(captures) -> Path:
    folder = captures / "broken"
    if not folder.is_dir():
        pytest.skip("no folder of broken captures here")
    return folder


def refused(path) -> XspPostError:
    with pytest.raises(CaptureError) as caught:
        load(path)
    assert caught.value.exit_code == 4 and CANARY not in caught.value.message + caught.value.hint
    return caught.value


def test_lost_kernels_are_not_lost_silently(broken):
    assert refused(broken / "lost_kernels.sqlite").code == "capture-damaged"


def test_a_private_value_stays_out_of_the_sentence(broken):
    error = refused(broken / "canary_leak.sqlite")
    assert error.code == "capture-bad-column" and "CUPTI_ACTIVITY_KIND_MEMCPY.end" in error.message


def test_what_stands_for_a_row_number_is_for_sqlite_to_say(broken):
    """INTEGER PRIMARY KEY, a newline, DESC: the durations once were row numbers."""
    trace = load(broken / "decode_pk_newline_desc.sqlite").trace
    kernels = trace.activities[trace.activities["kind"] == int(ActivityKind.KERNEL)]
    assert (len(kernels), int((kernels["end_ns"] - kernels["start_ns"]).sum())) == (59, 589_147)
    assert "decoded-otherwise" not in finding_codes(broken / "decode_pk_newline_desc.sqlite")


@pytest.mark.parametrize(("name", "table"), [("infview", KERNEL), ("infview_meta", "META_DATA_CAPTURE")])
def test_an_endless_view_is_refused_by_name(broken, name, table):
    error = refused(broken / f"{name}.sqlite")
    assert error.code == "capture-view" and f"{table} is a view" in error.message


def test_a_write_ahead_log_is_not_ignored_and_nothing_stays_beside_it(broken, tmp_path):
    folder = tmp_path / "wal"
    shutil.copytree(broken / "wal", folder)
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert refused(folder / "w2.sqlite").code == "capture-unmerged"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_version_of_thousands_of_digits(broken):
    loaded = load(broken / "export_meta_5000_digits.sqlite").trace
    assert "unknown-schema" in {one.code for one in loaded.findings} and len(loaded.provenance.schema_version) <= 100
    assert (loaded.activities["kind"] == int(ActivityKind.KERNEL)).sum() == 59


def test_times_that_lie_years_apart(broken):
    with pytest.raises(CaptureError) as caught:
        build_tree(load(broken / "kineto_times_beyond_64_bits.pt.trace.json.gz").trace)
    assert caught.value.code == "capture-times-apart" and "53.4 years apart" in caught.value.message


# -- made here ------------------------------------------------------------------------------------------


def export(path, kernels=5) -> Path:
    builder = ExportBuilder().range("step", 0, 10_000)
    for k in range(kernels):
        builder.kernel("k", launch=(10 * k, 10 * k + 1), run=(10 * k + 2, 10 * k + 9))
    return builder.write(path)


def test_a_database_in_wal_mode_leaves_nothing_beside_it(tmp_path):
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"DELETE FROM {KERNEL} WHERE start = 2")
        connection.commit()
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]
    (tmp_path / "a.sqlite-wal").touch()  # an empty log holds no change
    assert len(load(path).trace.activities) == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.sqlite", "a.sqlite-wal"]


def test_a_log_that_a_program_still_writes_is_refused(tmp_path):
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"DELETE FROM {KERNEL} WHERE start = 2")
        connection.commit()
        before = sorted(os.listdir(tmp_path))
        assert refused(path).code == "capture-unmerged"
        link = tmp_path / "link.sqlite"
        link.symlink_to(path)
        assert refused(link).code == "capture-unmerged"
        link.unlink()
        assert sorted(os.listdir(tmp_path)) == before


def test_a_capture_that_a_program_writes_is_called_busy(tmp_path, monkeypatch):
    """Before it is opened, and after."""
    monkeypatch.setattr(sqlite_tables, "_PATIENCE_S", 0.05)
    path = export(tmp_path / "a.sqlite")
    tables = SqliteTables(path)
    tables.tables()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert refused(path).code == "capture-locked"
        with pytest.raises(CaptureError) as caught:
            tables.read([Request(KERNEL, (WantedColumn("start", "start_ns"),))])
    assert caught.value.code == "capture-locked" and "writing to it" in caught.value.message


def arrow_folder(path, change) -> Path:
    """The tables of an export as files, each as ``change`` (table, columns by name, as pairs) makes them."""
    source = export(path.with_suffix(".sqlite"))
    path.mkdir()
    with closing(sqlite3.connect(source)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            asked = connection.execute(f'SELECT * FROM "{name}"')
            rows = asked.fetchall()
            columns = [(one[0], pa.array([row[k] for row in rows])) for k, one in enumerate(asked.description)]
            columns = change(name, columns)
            table = pa.Table.from_arrays([values for _, values in columns], names=[column for column, _ in columns])
            with pa.OSFile(str(path / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    return path


def not_utf8(values: pa.Array) -> pa.Array:
    """Texts with a byte in front that is none of UTF-8."""
    if not pa.types.is_string(values.type):
        return values
    data = pa.array([b"\xff" + text.encode() for text in values.to_pylist()], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(data), data.buffers())


def test_an_arrow_folder_with_a_column_twice_is_refused(tmp_path):
    folder = arrow_folder(tmp_path / "a", lambda name, columns: columns + columns[:1] * (name == KERNEL))
    error = refused(folder)
    assert error.code == "capture-damaged" and f"{KERNEL}.arrow" in error.message


def test_an_arrow_folder_with_texts_that_are_not_utf8(tmp_path):
    folder = arrow_folder(tmp_path / "a", lambda name, columns: [(one, not_utf8(values)) for one, values in columns])
    trace = load(folder).trace
    assert len(trace.activities) == 5 and "\ufffdstep" in trace.strings.tolist()
    assert "non-utf8-text" in {one.code for one in trace.findings}


def test_fewer_rows_than_sqlite_counts_are_refused(tmp_path, monkeypatch):
    path = export(tmp_path / "a.sqlite")
    monkeypatch.setattr(SqliteTables, "_count", lambda self, table: 7)
    error = refused(path)
    assert error.code == "capture-rows-lost" and "of 7 rows of StringIds only" in error.message


# -- JSON -----------------------------------------------------------------------------------------------


def finding_codes(path) -> set[str]:
    return {one.code for one in load(path).trace.findings}


@pytest.mark.parametrize("name", ["k_bigint.pt.trace.json", "k_surr.pt.trace.json", "k_surr_ts.pt.trace.json"])
def test_traps_of_json_are_read(broken, name):
    trace = load(broken / name).trace
    assert len(trace.activities) >= 1 and len(trace.launches) >= 1
    for text in trace.strings.tolist():
        text.encode("utf-8")


def test_an_integer_of_thousands_of_digits(broken):
    assert refused(broken / "hugeint.pt.trace.json").code == "trace-without-events"


@pytest.mark.parametrize("name", ["j_tags.json", "jsurr.json"])
def test_traps_of_json_in_jaeger_traces(broken, name):
    trace = load(broken / name).trace
    assert len(trace.spans) == 1
    "".join(trace.strings.tolist()).encode("utf-8")


KERNEL_EVENTS = (
    '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":1,"dur":1,"pid":1,"tid":1,"args":{"correlation":1}},'
    '{"ph":"X","cat":"kernel","name":"k","ts":3.5,"dur":2,"pid":0,"tid":7,"args":{"device":0,"correlation":1}}'
)


def trace_file(path, events=KERNEL_EVENTS, prefix=b"") -> Path:
    text = prefix + ('{"schemaVersion":1,"traceEvents":[' + events + "]}").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_a_byte_order_mark_before_a_trace(tmp_path):
    for name in ("a.json", "a.json.gz"):
        assert load(trace_file(tmp_path / name, prefix=b"\xef\xbb\xbf")).trace.activities["start_ns"].tolist() == [3500]


def test_numbers_of_any_length(tmp_path):
    for digits in (19, 20, 400, 5000):
        odd = KERNEL_EVENTS.replace('"device":0', f'"device":{"9" * digits}, "grid":[{"9" * digits},1,1]')
        odd = odd.replace('"dur":1', f'"dur":{"9" * digits}')
        trace = load(trace_file(tmp_path / f"{digits}.json", odd)).trace
        assert len(trace.activities) == 1 and trace.activities["device_id"].tolist() == [0]
        assert "kineto-time-unreadable" in {one.code for one in trace.findings}


def test_halves_of_surrogates_become_a_question_mark_and_pairs_stay(tmp_path):
    odd = KERNEL_EVENTS.replace('"name":"k"', r'"name":"a\ud83d\ude42b\ud800c\\ud800d"')
    trace = load(trace_file(tmp_path / "a.json", odd)).trace
    assert "a\U0001f642b�c\\ud800d" in trace.strings.tolist()


@pytest.mark.parametrize(
    "start", ['{"schemaVersion":1,"traceEvents":', '{"data":[{"traceID":"1","spans":', '[{"ph":"X","a":']
)
def test_deep_nesting_is_one_sentence(tmp_path, start):
    path = tmp_path / "a.json"
    path.write_text(start + "[" * 100_000)
    assert refused(path).code == "json-too-deep"


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_cut_gzip_is_called_cut(captures, tmp_path, share):
    whole = (captures / "kineto" / "alexnet_gpu.pt.trace.json.gz").read_bytes()
    (tmp_path / "a.json.gz").write_bytes(whole[: int(share * len(whole))])
    error = refused(tmp_path / "a.json.gz")
    assert error.code == "trace-truncated" and "cut" in error.message


def test_a_compressed_file_that_grows_too_much_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UNCOMPRESSED_BYTES", 1 << 20)
    path = trace_file(
        tmp_path / "a.json.gz", ",".join(['{"ph":"M","name":"x","pid":1}'] * 200_000) + "," + KERNEL_EVENTS
    )
    error = refused(path)
    assert error.code == "capture-over-limit" and "bytes uncompressed" in error.message
    assert limits.VARIABLE in error.hint
    monkeypatch.setenv(limits.VARIABLE, "1")
    assert len(load(path).trace.activities) == 1


def test_a_gzip_bomb_is_refused_before_anything_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UNCOMPRESSED_BYTES", 1 << 20)
    monkeypatch.setattr(trace_events, "Decoder", None)
    assert refused(trace_file(tmp_path / "a.json.gz", "{}," * 500_000)).code == "capture-over-limit"


def test_an_event_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "EVENT_CHARACTERS", 1 << 20)
    monkeypatch.setattr(trace_events, "_PIECE_BYTES", 1 << 18)
    path = tmp_path / "a.json"
    path.write_text('{"schemaVersion":1,"traceEvents":[{"name":"' + "x" * (3 << 20))
    assert refused(path).code == "capture-over-limit"


@pytest.mark.parametrize(("value", "kept"), [("1e308", None), ("2.5", None), ("7", 7)])
def test_a_fraction_is_no_small_integer(tmp_path, value, kept):
    path = export(tmp_path / "a.sqlite", kernels=1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET dynamicSharedMemory = {value}")
        connection.commit()
    if kept is None:
        assert "CUPTI_ACTIVITY_KIND_KERNEL.dynamicSharedMemory" in refused(path).message
    else:
        assert analyze([path]).frame("kernels")["dynamic_shared_memory_bytes"].tolist() == [kept]


@pytest.mark.parametrize("column", ["NVTX_EVENTS SET text", "StringIds SET value"])
def test_a_text_without_end_is_refused(tmp_path, monkeypatch, column):
    """A step after the other would copy it: 900 MB of text took 11 GB."""
    monkeypatch.setattr(limits, "EVENT_CHARACTERS", 1 << 20)
    path = export(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as connection:
        assert connection.execute(f"UPDATE {column} = printf('%.*c', 3000000, 'x')").rowcount
    connection.close()
    assert refused(path).code == "capture-over-limit"


@pytest.mark.parametrize(
    "value", ["null", "true", "-1.5", '"x"', "[]", "[1]", "{}", '{"a":[1]}', "9" * 30, '"\\ud800"']
)
def test_values_of_any_type_where_others_belong(tmp_path, value):
    """No value of an event, of its arguments or beside the events ends in anything but a sentence."""
    keys = ["ph", "cat", "name", "ts", "dur", "pid", "tid", "args", "device", "stream", "correlation", "grid"]
    for key in keys:
        event = json.loads(f"[{KERNEL_EVENTS}]")[1]
        place = event if key in event else event["args"]
        place[key] = json.loads(value)
        try:
            load(trace_file(tmp_path / "a.json", f"{KERNEL_EVENTS},{json.dumps(event)}"))
        except XspPostError as error:
            assert error.exit_code == 4
    for key in ("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "cuda_driver_version", "schemaVersion"):
        (tmp_path / "a.json").write_text(f'{{"{key}": {value}, "traceEvents": [{KERNEL_EVENTS}]}}')
        try:
            load(tmp_path / "a.json")
        except XspPostError as error:
            assert error.exit_code == 4


# -- .ncu-rep -------------------------------------------------------------------------------------------


@pytest.fixture
def report(captures) -> bytes:
    pytest.importorskip("ncu_report")
    return (captures / "ncu" / "sgemm_roofline_a10g_2023.1.ncu-rep").read_bytes()


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_counter_report_is_read_or_refused(report, tmp_path, capfd, seed):
    """NVIDIA's reader aborts the process on some of these; it runs in a child."""
    random = np.random.default_rng(seed)
    damaged = bytearray(report[: int(len(report) * random.uniform(0.1, 1))] if seed % 2 else report)
    for at in random.integers(8, len(damaged), 40 * (seed + 1)).tolist():
        damaged[at] = int(random.integers(0, 256))
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(damaged)
    try:
        assert len(load(path).counters.actions) > 0
    except XspPostError as error:
        assert error.code == "ncu-report-unreadable" and error.exit_code == 4
    assert capfd.readouterr() == ("", "")


def test_a_reader_that_aborts_is_one_sentence(report, tmp_path, monkeypatch):
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report)
    monkeypatch.setattr(ncu.sys, "executable", "/bin/false")
    error = refused(path)
    assert error.code == "ncu-report-unreadable" and "NVIDIA's reader failed on it (exit 1)" in error.message


# -- what the balance says -----------------------------------------------------------------------------


def test_the_balance_says_what_the_file_holds(tmp_path):
    from io import StringIO

    from rich.console import Console

    from xsp_post.pipeline import analyze
    from xsp_post.reports.terminal import print_tree

    analysis = analyze([export(tmp_path / "a.sqlite", kernels=400)])
    assert analysis.frame("captures")["file_operation_count"].tolist() == [400]
    console = Console(file=StringIO(), width=160)
    print_tree(console, analysis)
    assert "400 in the file, 400 in the tree" in console.file.getvalue()


def test_a_reader_that_loses_rows_is_a_contradiction(tmp_path):
    from xsp_post.base.errors import ContradictionError
    from xsp_post.hierarchy import build_tree

    trace = load(export(tmp_path / "a.sqlite")).trace
    trace.provenance.file_operation_count += 1
    with pytest.raises(ContradictionError, match="5 device activities"):
        build_tree(trace)


# -- texts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["tree", "store_escape.xsp.sqlite"], ["table", "findings", "store_escape.xsp.sqlite"],
     ["tree", "hostile_names.sqlite"], ["table", "paths", "hostile_names.sqlite", "--format", "csv"],
     ["table", "kernels", "hostile_names.sqlite", "--format", "md"]],
)  # fmt: skip
def test_no_control_character_reaches_a_terminal(broken, arguments):
    """What a program that thinks it writes to a terminal writes: colours, and nothing else."""
    import pty
    import re
    import subprocess
    import sys

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "xsp_post", *arguments], cwd=broken, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        written += data
    assert process.wait() in (0, 4)  # a store of an older version is refused
    os.close(ours)
    plain = re.sub(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K", b"", written)  # colours, progress
    assert len(plain) > 50 and not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", plain)


def test_a_device_may_have_any_number(tmp_path):
    """Found by scripts/fuzz --one export_bytes:3000310."""
    builder = ExportBuilder().gpu()
    for k in range(3):
        builder.kernel("k", launch=(10 * k, 10 * k + 1), run=(10 * k + 2, 10 * k + 5))
    path = builder.write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = -2147483648 WHERE rowid = 2")
        connection.commit()
    tree = build_tree(load(path).trace)
    devices, _ = devices_frame(tree)
    assert dict(zip(devices["device_id"], devices["kernel_count"])) == {0: 2, -2147483648: 1}


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (3.0, 3), (-1e308, -1), (2.0**63, -1), (float("nan"), -1), (float("inf"), -1), ("3", -1), (None, -1)],
)
def test_a_number_that_no_integer_column_holds_is_unknown(value, number):
    assert whole(value) == number
