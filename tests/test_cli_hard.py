"""The command line handled roughly: odd names, pipes, signals, outputs that must not be touched, narrow terminals."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import ExportBuilder
from helpers import called as xsp

from xsp_post import load

EXECUTABLE = str(Path(sys.executable).with_name("xsp-post"))
SECRETS = ("hunter2-token", "mallory", "buildhost17", "/home/mallory", "--password", "s3cr3t-argument")


def process(*arguments, cwd=None, env=None, stdin=None):
    return subprocess.run(
        [EXECUTABLE, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, stdin=stdin,
        env={**os.environ, "XSP_NSYS": "", **(env or {})}, check=False, timeout=120,
    )  # fmt: skip


def build(path):
    builder = ExportBuilder().gpu()
    for i in range(4):
        t = i * 1000
        builder.range(f"step {i}", t, t + 900).range("model.layers.0.mlp", t + 10, t + 800)
        builder.kernel("void gemm<float>(int)", launch=(t + 12, t + 15), run=(t + 20, t + 60), short="gemm")
    return builder.write(path)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    return build(tmp_path_factory.mktemp("capture") / "small.sqlite")


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


# -- sources ----------------------------------------------------------------------------------------------


def test_names_no_shell_likes_and_a_next_command_that_can_be_pasted(tmp_path):
    name = "we ird 'q\"?%20#;$(x)&.sqlite"
    before = digest(build(tmp_path / name))
    done = process("ingest", name, "--report", "a page.html", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / name) == before
    store = name.removesuffix(".sqlite") + ".xsp.sqlite"
    shown = xsp("tree", store, cwd=tmp_path)
    assert shown.returncode == 0
    words = shlex.split(shown.stderr.splitlines()[-1].removeprefix("Next: "))
    assert words[:3] == ["xsp-post", "report", store]
    assert xsp(*words[1:], cwd=tmp_path).returncode == 0
    assert xsp("tree", "-x", cwd=tmp_path).returncode == 2  # a name that looks like an option
    os.rename(tmp_path / name, tmp_path / "-x")
    assert xsp("tree", "--", "-x", cwd=tmp_path).returncode == 0


def test_links_and_redirected_input_are_files_like_others(tmp_path, capture):
    (tmp_path / "link.sqlite").symlink_to(capture)
    assert xsp("tree", "link.sqlite", cwd=tmp_path).returncode == 0
    with open(capture, "rb") as file:
        assert process("tree", "/dev/stdin", stdin=file).returncode == 0


@pytest.mark.parametrize("kind", ["fifo", "pipe", "null"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    os.mkfifo(tmp_path / "fifo")
    read, write = os.pipe()
    path = {"fifo": tmp_path / "fifo", "pipe": "/dev/stdin", "null": "/dev/null"}[kind]
    done = process("tree", path, stdin=read)
    os.close(read)
    os.close(write)
    assert done.returncode == 4 and "capture-no-file" in done.stderr


def test_a_capture_named_twice_is_refused(tmp_path, capture):
    (tmp_path / "again.sqlite").symlink_to(capture)
    for command in (["tree"], ["table", "A8"], ["ingest", "-o", tmp_path / "out.xsp.sqlite"]):
        done = xsp(*command, capture, tmp_path / "again.sqlite")
        assert done.returncode == 2 and "source-twice" in done.stderr
    assert not (tmp_path / "out.xsp.sqlite").exists()


def test_two_captures_and_two_forms_of_one(tmp_path, capture):
    builder = ExportBuilder().range("step 0", 0, 100).kernel("k", launch=(1, 2), run=(3, 4))
    other = builder.write_parquetdir(tmp_path / "other")
    done = xsp("table", "captures", capture, other, "--json")
    assert done.returncode == 0, done.stderr
    assert [row["kernel_count"] for row in json.loads(done.stdout)["data"]] == [4, 1]


def test_a_database_in_write_ahead_mode_and_a_folder_nobody_may_write_to(tmp_path):
    """Changes that wait in the log are never left out silently: refused, until they are in the file."""
    folder = tmp_path / "locked"
    folder.mkdir()
    path = build(folder / "wal.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE late (x)")
    connection.commit()
    names = sorted(os.listdir(folder))
    before = digest(path)
    folder.chmod(0o555)
    try:
        done = xsp("tree", path)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 4 and "write-ahead log" in done.stderr and "Traceback" not in done.stderr
    assert sorted(os.listdir(folder)) == names and digest(path) == before
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    folder.chmod(0o555)
    try:
        done = xsp("tree", path)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert os.listdir(folder) == ["wal.sqlite"]


# -- outputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["ingest", "{c}", "-o", "{c}"], ["ingest", "{c}", "-o", "{l}"], ["ingest", "{c}", "--report", "{c}"],
        ["ingest", "{l}", "-o", "{c}"], ["table", "A8", "{c}", "-f", "csv", "-o", "{c}"],
        ["report", "{c}", "-o", "{l}"],
        ["export", "{c}", "--to", "chrome", "-o", "{c}"], ["compare", "{c}", "{d}", "-o", "{d}"],
    ],
)  # fmt: skip
def test_no_force_writes_over_the_capture_itself(tmp_path, arguments):
    paths = {"c": build(tmp_path / "c.sqlite"), "d": build(tmp_path / "d.sqlite"), "l": tmp_path / "l.sqlite"}
    paths["l"].symlink_to(paths["c"])
    before = digest(paths["c"]), digest(paths["d"])
    done = xsp(*(a.format(**paths) for a in arguments), "--force", cwd=tmp_path)
    assert done.returncode == 6 and "output-is-source" in done.stderr, done.stderr
    assert (digest(paths["c"]), digest(paths["d"])) == before


def test_one_name_for_two_outputs(tmp_path, capture):
    done = xsp("ingest", capture, "-o", "x.html", "--report", "./x.html", cwd=tmp_path)
    assert done.returncode == 2 and "outputs-same" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["/proc/x.sqlite", "/dev/full", "/", "nowhere/x.sqlite"])
def test_outputs_that_cannot_be(tmp_path, capture, target):
    done = xsp("ingest", capture, "-q", "-o", target, cwd=tmp_path)
    assert done.returncode == 6 and done.stderr.startswith("xsp-post: ") and not list(tmp_path.iterdir())


# -- signals ----------------------------------------------------------------------------------------------


@pytest.mark.guard
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_ingest_leaves_nothing(tmp_path, number, code):
    source = build(tmp_path / "s.sqlite")
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(5):  # on a busy machine the command may end before this process sees its store
        process = subprocess.Popen(
            [EXECUTABLE, "ingest", str(source), "-o", str(out / "x.xsp.sqlite"), "--report", str(out / "x.html"),
             "--force"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while process.poll() is None and not any(out.iterdir()):
            time.sleep(0.002)
        process.send_signal(number)  # the half-written store is there now; on a busy machine it may be whole already
        _, stderr = process.communicate(timeout=120)
        if process.returncode != 0:
            break
        for path in out.iterdir():
            path.unlink()
    assert process.returncode == code
    assert {path.name for path in out.iterdir()} <= {"x.xsp.sqlite"} and "Traceback" not in stderr
    for store in out.iterdir():
        assert len(load(store).kernels) == len(load(source).kernels)
    assert stderr.splitlines()[-1] == f"xsp-post: {'terminated' if number == signal.SIGTERM else 'interrupted'}"


def test_a_reader_that_goes_away_is_no_traceback(capture):
    process = subprocess.Popen(
        [EXECUTABLE, "table", "kernels", str(capture), "-f", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=200)
    assert b"Traceback" not in stderr and b"Exception" not in stderr


# -- terminals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["20", "40", "0", "abc", "", "-5", "1000"])
def test_any_width_prints_names_and_no_colour(capture, columns):
    done = xsp("tree", capture, columns=columns, env={"NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    if columns != "20":  # no room for a name and a number beside it
        assert "step" in done.stdout and "160 ns" in done.stdout


def test_a_narrow_terminal_says_what_it_leaves_out(capture):
    done = xsp("tree", capture, columns=44)
    assert "A wider terminal adds gap" in " ".join(done.stdout.split())
    assert "model.layers" in done.stdout
    assert "no room" not in xsp("tree", capture, columns=120).stdout


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--model-range", "step", "--layer-range", "mlp"], 0), (["--layer-depth", "1"], 0),
        (["--layer-depth", "9"], 0), (["--model-range", "("], 2), (["--layer-range", "nothing"], 2),
        (["--layer-depth", "-1"], 2), (["--layer-depth", "x"], 2), (["--strict"], 0),
        (["--model-range", "mlp", "--layer-range", "step", "--strict"], 0),
    ],
)  # fmt: skip
def test_options_in_any_company(capture, options, code):
    done = xsp("tree", capture, "--json", *options)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        paths = json.loads(done.stdout)["data"]["paths"]
        assert sum(p["self_kernel_count"] for p in paths) == 4


# -- privacy ----------------------------------------------------------------------------------------------


@pytest.mark.guard
def test_nothing_private_reaches_any_output(tmp_path):
    """Environment, user, host, command line and folders are in every real capture."""
    path = tmp_path / "private.sqlite"
    builder = ExportBuilder().process(100, "/home/mallory/venv/bin/python3").gpu()
    builder.range("step 0", 0, 900).kernel("gemm", launch=(10, 12), run=(20, 60))
    builder.environment("TOKEN", "hunter2-token").environment("USER", "mallory")
    builder.capture_meta("PROCESS_0:COMMAND", "/home/mallory/train.py")
    builder.capture_meta("PROCESS_0:ARGUMENT_1", "--password").capture_meta("PROCESS_0:ARGUMENT_2", "s3cr3t-argument")
    builder.capture_meta("PROCESS_0:WORKING_DIR", "/home/mallory/work")
    builder.export_meta("EXPORT_HOST", "buildhost17").export_meta("EXPORT_USER", "mallory")
    builder.export_meta("EXPORT_PARAM_INPUT_PATH_ABS", "/home/mallory/r.nsys-rep")
    builder.export_meta("EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s")
    builder.diagnostic("Could not open /home/mallory/.cache/x: permission denied")
    builder.add_table("TARGET_INFO_SYSTEM_ENV", {"globalVid": "INTEGER", "name": "TEXT", "value": "TEXT"}, [
        {"globalVid": 1, "name": "DeviceEnvironment", "value": "TOKEN=hunter2-token"},
        {"globalVid": 1, "name": "Hostname", "value": "buildhost17"},
        {"globalVid": 1, "name": "NvDriverVersion", "value": "550.1"},
    ])  # fmt: skip
    path_id, content_id = builder.string("/home/mallory/out"), builder.string("hunter2-token")
    builder.add_table("ProcessStreams", {"globalPid": "INTEGER", "filenameId": "INTEGER", "contentId": "INTEGER"}, [
        {"globalPid": 1, "filenameId": path_id, "contentId": content_id}
    ])  # fmt: skip
    builder.write(path)
    made = [xsp("ingest", path, "-o", "s.xsp.sqlite", "--report", "r.html", cwd=tmp_path)]
    made += [xsp("tree", path, "--json"), xsp("tree", path), xsp("report", path, "--json")]
    made += [xsp("ingest", tmp_path / "s.xsp.sqlite")]
    made += [xsp("table", name, tmp_path / "s.xsp.sqlite", "-f", "csv")
             for name in ("captures", "findings", "nodes", "kernels", "devices")]  # fmt: skip
    made += [xsp("export", "s.xsp.sqlite", "--to", "chrome", "-o", "t.json", cwd=tmp_path)]
    assert all(done.returncode in (0, 4) for done in made), [done.stderr for done in made]
    texts = [done.stdout + done.stderr for done in made]
    written = [tmp_path / name for name in ("s.xsp.sqlite", "r.html", "t.json")]
    texts += [path.read_bytes().decode("utf-8", "replace") for path in written]
    for secret in SECRETS:
        assert not any(secret in text for text in texts), secret
