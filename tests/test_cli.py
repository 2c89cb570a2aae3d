"""The command line as a person uses it: exit codes, one sentence, nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from builders import ExportBuilder
from helpers import called as xsp

import xsp_post

EXECUTABLE = Path(sys.executable).with_name("xsp-post")


def process(*arguments, cwd=None, env=None):
    """The command as a process of its own; `xsp` calls it in this one."""
    return subprocess.run(
        [str(EXECUTABLE), *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
        env={**os.environ, "COLUMNS": "160", **(env or {}), "XSP_NSYS": ""}, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "small.sqlite"
    builder = ExportBuilder().gpu()
    for i in range(4):
        t = i * 1000
        builder.range(f"model:forward#{i}", t, t + 900, domain="xsp").range("fc:Linear#0", t + 10, t + 80, domain="xsp")
        builder.kernel("void gemm<float>(int)", launch=(t + 12, t + 15), run=(t + 20, t + 60), short="gemm")
    return builder.write(path)


@pytest.mark.parametrize("option, most", [("--version", 1.5), ("--help", 2.5)])
def test_version_and_help_answer_at_once(option, most):
    """In little more processor time than Python itself, the least of several: a busy machine does not decide."""

    def seconds(*arguments):
        def once():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert subprocess.run(arguments, capture_output=True, check=False).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)

        return min(once() for _ in range(10))

    assert seconds(EXECUTABLE, option) < most * seconds(sys.executable, "-c", "pass")


def test_help_is_what_typer_says():
    text = (Path(xsp_post.__file__).parent / "commands/help.txt").read_text(encoding="utf-8")
    narrow = {**os.environ, "COLUMNS": "60"}
    assert process("--help").stdout == process("-h").stdout == text
    assert "".join(process("--help", env=narrow).stdout.split()) == "".join(text.split())


@pytest.mark.parametrize("redirected", ["> /dev/full", ">&-"])
def test_an_answer_that_cannot_be_printed_is_an_error(redirected):
    done = subprocess.run(f"{EXECUTABLE} --version {redirected}", shell=True, capture_output=True, check=False)
    assert done.returncode == 6 and b"was not printed whole" in done.stderr


def test_ingest_writes_a_store_and_says_what_to_do_next(capture, tmp_path):
    done = process("ingest", capture, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "small.xsp.sqlite").is_file()
    assert "adds up" in done.stdout and "DOES NOT ADD UP" not in done.stdout
    assert "Next: xsp-post report small.xsp.sqlite" in done.stderr
    shown = process("tree", "small.xsp.sqlite", cwd=tmp_path)
    of_store = [line for line in shown.stdout.splitlines() if not line.startswith("Critical path")]
    assert of_store[3:] == xsp("tree", capture).stdout.splitlines()[3:]


def test_any_sqlite_tool_reads_the_store(capture, tmp_path):
    assert xsp("ingest", capture, "-q", cwd=tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "small.xsp.sqlite") as connection:
        rows = connection.execute(
            "SELECT k.name, k.attribution, n.level, k.end_ns - k.start_ns FROM kernels k JOIN nodes n USING (node_id)"
        ).fetchall()
        assert rows == [("void gemm<float>(int)", "nesting", "LAYER", 40)] * 4
        assert connection.execute("SELECT value FROM xsp_meta WHERE key = 'schema_version'").fetchone()
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'kernel_rows'").fetchone()[0]
        assert "-- execution start" in sql
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("form", ["table", "csv", "json", "md"])
def test_a_table_in_every_text_format(capture, form):
    done = xsp("table", "A10", capture, "-f", form)
    assert done.returncode == 0, done.stderr
    assert "gemm" in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["data"][0]["kernel_count"] == 1
        assert xsp("table", capture, "a10", "-f", form).stdout == done.stdout, "the file may come first"


def test_a_table_as_parquet(capture, tmp_path):
    import pandas as pd

    assert xsp("table", "layers", capture, "-f", "parquet", "-o", tmp_path / "l.parquet").returncode == 0
    assert pd.read_parquet(tmp_path / "l.parquet")["kernel_ns"].tolist() == [40] * 4


def test_a_table_by_any_column(capture):
    def column(name, *sort):
        lines = xsp("table", "layers", capture, "-f", "csv", *sort).stdout.splitlines()
        at = lines[0].split(",").index(name)
        return [line.split(",")[at] for line in lines[1:]]

    unsorted = column("layer_index")
    assert column("layer_index", "--sort", "layer_index") == sorted(unsorted, key=int, reverse=True)
    assert column("layer_index", "--sort", "-layer_index") == sorted(unsorted, key=int)
    assert column("layer_name", "--sort", "layer_name") == sorted(column("layer_name"))
    by_time = column("node_id", "--sort", "-time")
    assert by_time == column("node_id", "--sort", "-latency_ns") and len(by_time) == len(unsorted)
    wrong = xsp("table", "layers", capture, "--sort", "weight")
    assert wrong.returncode == 2 and "it has: capture_id" in wrong.stderr and not wrong.stdout


def test_ingest_prints_as_much_of_the_tree_as_asked(capture, tmp_path):
    def printed(*options):
        lines = xsp("ingest", capture, "-o", tmp_path / "s.xsp.sqlite", "--force", *options).stdout.splitlines(True)
        return "".join(line for line in lines if not line.startswith("Critical path"))  # a store's table

    assert printed("--depth", "1", "--top", "2") == xsp("tree", capture, "--depth", "1", "--top", "2").stdout
    assert len(printed("--depth", "1").splitlines()) < len(printed().splitlines())


def test_an_empty_capture_leads_to_a_recording_not_to_another_reading(tmp_path):
    from builders import ExportBuilder

    empty = ExportBuilder().gpu().write(tmp_path / "empty.sqlite")
    for command in (["tree", empty], ["ingest", empty, "-o", tmp_path / "s.xsp.sqlite"]):
        lines = xsp(*command).stderr.splitlines()
        assert lines[-1].startswith("Next: record again") and "nsys profile -t cuda,nvtx" in lines[-1]


def test_tree_as_json_adds_up(capture):
    document = json.loads(xsp("tree", capture, "--json").stdout)
    assert (document["format"], document["version"], len(document)) == ("xsp-post.tree", 2, 3)
    document = document["data"]
    assert document["paths"][0]["kernel_ns"] == 160
    launch = [row for row in document["balance"] if row["question"] == "launch"]
    assert sum(r["kernel_ns"] for r in launch if r["attribution"] != "total") == 160


def bad(tmp_path, capture):
    """(arguments, exit code, part of the sentence)"""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "lfs.sqlite").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (tmp_path / "random.sqlite").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "cut.sqlite").write_bytes(capture.read_bytes()[: capture.stat().st_size // 2])
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    (tmp_path / "report.nsys-rep").write_bytes(b"not for us")
    shutil.copy(capture, tmp_path / "there.xsp.sqlite")
    return [
        (("ingest", "folder"), 4, "folder"),
        (("ingest", "absent.sqlite"), 4, "no such file"),
        (("ingest", "empty.sqlite"), 4, "empty"),
        (("ingest", "lfs.sqlite"), 4, "Git LFS pointer"),
        (("ingest", "random.sqlite"), 4, "is not a capture"),
        (("ingest", "cut.sqlite"), 4, "not an intact SQLite database"),
        (("ingest", "other.sqlite"), 4, "is not an Nsight Systems export"),
        (("ingest", "report.nsys-rep"), 3, "nsys"),
        (("ingest", capture, "-o", "there.xsp.sqlite"), 6, "exists"),
        (("ingest", capture, "-o", "absent/x.xsp.sqlite"), 6, "does not exist"),
        (("table", "A99", capture), 2, "A99"),
        (("table", "A10", capture, "-f", "yaml"), 2, "yaml"),
        (("tree", capture, "--layer-range", "("), 2, "regular expression"),
        (("tree", capture, "--layer-depth", "-1"), 2, "below 1"),
    ]


def test_bad_input_is_one_sentence_and_an_exit_code(tmp_path, capture):
    cases = bad(tmp_path, capture)
    lines = process(*cases[1][0], cwd=tmp_path)  # as a process prints it
    assert lines.returncode == 4 and lines.stderr == xsp(*cases[1][0], cwd=tmp_path).stderr and not lines.stdout
    for arguments, code, part in cases:
        before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
        done = xsp(*arguments, cwd=tmp_path)
        assert done.returncode == code, (arguments, done.stderr)
        assert part in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
        assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before, arguments


def test_a_locked_database(tmp_path, capture):
    path = tmp_path / "locked.sqlite"
    shutil.copy(capture, path)
    path.chmod(0o600)
    connection = sqlite3.connect(path)
    connection.execute("BEGIN EXCLUSIVE")
    done = xsp("tree", path)
    connection.rollback()
    connection.close()
    assert done.returncode == 4 and "locked" in done.stderr
    assert xsp("tree", path).returncode == 0


def test_strict_fails_when_time_lies_outside_every_range(tmp_path, capture):
    path = ExportBuilder().range("r", 0, 10).kernel("out", launch=(50, 51), run=(60, 70)).write(tmp_path / "c.sqlite")
    assert xsp("tree", path).returncode == 0
    done = xsp("tree", path, "--strict")
    assert done.returncode == 5 and "outside every range" in done.stderr
    assert xsp("tree", path, "--strict", "--unattributed-limit", "1").returncode == 0
    assert xsp("tree", capture, "--strict").returncode == 0


@pytest.mark.guard
def test_hostile_text_prints_harmlessly(tmp_path):
    hostile = "\x1b[31mred\u202egnp.exe [bold]x[/bold]"
    builder = ExportBuilder().range(hostile, 0, 100).kernel(hostile, launch=(1, 2), run=(3, 4))
    path = builder.write(tmp_path / "h.sqlite")
    done = xsp("tree", path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert "\\u001b[31mred\\u202e" in done.stdout and "[bold]x[/bold]" in done.stdout


def roofs_of(done):
    assert done.returncode == 0, done.stderr
    return {(row["pipe"], row["origin"]): row["peak_flop_per_s"] for row in json.loads(done.stdout)["data"]}


def test_peaks_of_a_file_serve_captures_and_stores(tmp_path, capture):
    peaks, store = tmp_path / "peaks.json", tmp_path / "s.xsp.sqlite"
    peaks.write_text(json.dumps({"gpu_name": "*", "memory_bandwidth_bytes_per_s": 1e12, "fp32_flop_per_s": 1.25e13}))
    ours = {("fp32", "file"): 1.25e13}
    plain = roofs_of(xsp("table", "roofs", capture, "--json"))
    assert plain and not ours.items() & plain.items()
    assert roofs_of(xsp("table", "roofs", capture, "--peaks", peaks, "--json")) == ours
    assert xsp("ingest", capture, "-o", store, "-q").returncode == 0
    assert roofs_of(xsp("table", "roofs", store, "--json")) == plain
    assert roofs_of(xsp("table", "roofs", store, "--peaks", peaks, "--json")) == ours
    assert xsp("ingest", capture, "-o", store, "-q", "--force", "--peaks", peaks).returncode == 0
    assert roofs_of(xsp("table", "roofs", store, "--json")) == ours
    peaks.write_text("no JSON")
    done = xsp("table", "roofs", store, "--peaks", peaks)
    assert done.returncode == 2 and "peaks.json" in done.stderr


def test_a_store_keeps_its_levels_and_says_so(tmp_path, capture):
    store = tmp_path / "s.xsp.sqlite"
    assert xsp("ingest", capture, "-o", store, "-q").returncode == 0
    done = xsp("table", "layers", store, "--layer-depth", "2")
    assert done.returncode == 0 and "give the captures" in done.stderr
    assert "give the captures" not in xsp("table", "layers", store).stderr


def test_an_empty_table_says_what_to_record(capture):
    done = xsp("table", "A9", capture)
    assert done.returncode == 0 and "counters" in done.stderr and "--ncu" in done.stderr
    assert json.loads(xsp("table", "A9", capture, "--json").stdout)["data"] == []


def test_a_store_that_lost_a_table_is_told_apart(tmp_path, capture):
    store = tmp_path / "s.xsp.sqlite"
    assert xsp("ingest", capture, "-o", store).returncode == 0
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TABLE captures")
    connection.close()
    done = xsp("tree", store)
    assert done.returncode == 4 and "captures" in done.stderr and "ingest" in done.stderr


def test_a_narrow_terminal_cuts_texts_and_no_numbers(tmp_path):
    builder = ExportBuilder().range("a very long range text " * 5, 0, 1_000_000).kernel("k", launch=(1, 2), run=(3, 4))
    done = xsp("tree", builder.write(tmp_path / "c.sqlite"), columns=80)
    lines = done.stdout.splitlines()
    head = next(line for line in lines if line.startswith("range"))
    assert head.split() == ["range", "calls", "kernels", "device", "time", "share", "busy"]
    row = next(line for line in lines[lines.index(head) :] if "a very long" in line)
    assert all(len(line) <= 80 for line in lines)
    assert "…" in row and row.split()[-8:] == ["1", "1", "1", "ns", "100.0", "%", "1", "ns"]


def test_debug_shows_the_traceback(tmp_path):
    done = process("tree", tmp_path / "absent", env={"XSP_POST_DEBUG": "1"})
    assert "Traceback" in done.stderr


def test_a_parquet_folder_gives_the_same_tree(tmp_path, capture):
    builder = ExportBuilder().gpu().range("model:forward#0", 0, 100, domain="xsp")
    builder.kernel("k", launch=(1, 2), run=(3, 40)).memcpy(64, launch=(5, 6), run=(41, 50))
    one = builder.write(tmp_path / "c.sqlite")
    for folder in (builder.write_parquetdir(tmp_path / "c_pqtdir"), builder.write_arrowdir(tmp_path / "c_arwdir")):
        assert xsp("tree", folder).stdout.replace(folder.name, one.name) == xsp("tree", one).stdout


def test_the_tree_names_what_lies_in_folded_blocks_for_all_of_them(tmp_path):
    builder = ExportBuilder()
    at = 0
    for block in range(3):
        builder.range(f"model.blocks.{block}", at, at + 90).range(f"blocks.{block}.linear1", at + 10, at + 40)
        builder.kernel("gemm", launch=(at + 20, at + 25), run=(at + 30, at + 60))
        builder.kernel("add", launch=(at + 50, at + 55), run=(at + 70, at + 80))
        at += 100
    builder.write(tmp_path / "blocks.sqlite")
    lines = xsp("tree", tmp_path / "blocks.sqlite", "--no-infer").stdout.splitlines()
    inside = next(line for line in lines if "linear1" in line).split()
    assert inside[:4] == ["blocks.*.linear1", "3", "3", "90"]
    own = next(line for line in lines if "[self]" in line).split()
    assert own == ["[self]", "3", "3", "30", "ns", "25.0", "%"]  # its busy and host time are not known: no zero


def test_a_finding_of_several_captures_is_said_once(tmp_path):
    for name in ("one.sqlite", "two.sqlite"):
        ExportBuilder().kernel("k", launch=(0, 5), run=(10, 60)).write(tmp_path / name)
    text = xsp(
        "ingest", "--verbose", tmp_path / "one.sqlite", tmp_path / "two.sqlite", "-o", tmp_path / "o.xsp.sqlite"
    ).stdout
    assert text.count("[no-ranges") == 1 and "[no-ranges ×2 in 2 captures]" in text


def test_long_kernel_names_of_one_beginning_are_told_apart_in_a_printed_table(tmp_path):
    builder = ExportBuilder()
    names = [
        f"void at::native::vectorized_elementwise_kernel<(int)4, at::native::{functor}, std::array<char *>>(int)"
        for functor in ("CUDAFunctor_add<float>", "BUnaryFunctor<float>")
    ] * 2
    names[2] = names[2].replace("float", "half")
    for at, name in enumerate(names):
        builder.kernel(name, launch=(at * 100, at * 100 + 5), run=(at * 100 + 10, at * 100 + 60 - at))
    builder.write(tmp_path / "names.sqlite")
    text = xsp("table", "kernels", tmp_path / "names.sqlite").stdout
    assert text.count("vectorized_elementwise_kernel<BUnaryFunctor> ") == 2  # one kernel, twice
    assert text.count("ctor_add…float ") == 1 and text.count("ctor_add>…half ") == 1  # two kernels
    csv = xsp("table", "kernels", tmp_path / "names.sqlite", "-f", "csv").stdout
    assert csv.count("void at::native::vectorized_elementwise_kernel<(int)4") >= 4  # for programs: in full
