"""Odd surroundings: streams that are closed or full, names of any bytes, devices, killed commands."""

from __future__ import annotations

import errno
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

from xsp_post.base import output, streams
from xsp_post.base.errors import CaptureError, OutputError, ToolError, in_words
from xsp_post.base.output import atomic_folder, atomic_output, private_folder
from xsp_post.base.text_safety import path_text, shell_word
from xsp_post.batch.jobs import discover
from xsp_post.commands import shared
from xsp_post.commands.application import LEAST_FILES
from xsp_post.model import capture
from xsp_post.model.capture import Workload
from xsp_post.model.run_folder import prepare
from xsp_post.store.store import StoreWriter

_HELD = "PANDAS_FUTURE_INFER_STRING"
LIGHT = "import sys; sys.argv = ['xsp-post', *{arguments!r}]; from xsp_post.cli import main; main()"


def light(redirect: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command that imports nothing heavy, with the streams as the shell redirects them."""
    line = shlex.join([sys.executable, "-c", LIGHT.format(arguments=list(arguments))])
    return subprocess.run(
        ["sh", "-c", f"{line} {redirect}"], capture_output=True, env={**os.environ, **environment}, check=False
    )


# -- streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
def test_output_that_is_lost_is_exit_6(redirect):
    done = light(redirect, "--version")
    assert done.returncode == 6 and b"[stdout-failed]" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_messages_that_nobody_can_read_change_nothing(redirect):
    assert light(redirect, "no-such-command").returncode == 2


def test_both_streams_closed():
    assert light(">&- 2>&- <&-", "--version").returncode == 6


def test_a_reader_that_went_away_ends_a_command_without_a_word():
    read, write = os.pipe()
    os.close(read)
    try:
        program = LIGHT.format(arguments=["--version"])
        done = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_what_a_stream_cannot_write():
    streams.codecs.register_error("xsp-post", streams._in_plain_characters)
    assert "3 µs → 模".encode("ascii", "xsp-post") == b"3 us -> \\u6a21"
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", "xsp-post")


@pytest.mark.parametrize(
    ("said", "width"),
    [("0", 160), ("-1", 160), ("abc", 160), ("", 160), ("٣", 160), ("100000", 1000), ("44", 44), ("1", 20)],
)
def test_a_width_that_makes_no_sense(monkeypatch, said, width):
    monkeypatch.setenv("COLUMNS", said)
    assert shared.stdout().width == width


# -- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'q"$(x)', "-x", "n\udcff", "\x1b[31m", "a\nb", "\u202etxt", "back\\\n'"]
)
def test_a_hint_can_be_pasted(name):
    word = shell_word(Path(name))
    assert not any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in word)
    echoed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert echoed.removeprefix(b"./" if name.startswith("-") else b"") == os.fsencode(name)
    assert path_text(name).isprintable() and path_text(name).encode()


def test_a_name_of_any_length_and_bytes_is_written(tmp_path):
    for name in ("模" * 80 + ".xsp.sqlite", os.fsdecode(b"\xff\xfe.\xff.csv"), "n" * 255):
        with atomic_output(tmp_path / name) as part:
            part.write_text("x")
        assert (tmp_path / name).read_text() == "x"
    for make in (atomic_output, atomic_folder):
        with pytest.raises(OutputError, match="too long"), make(tmp_path / ("n" * 256)):
            raise AssertionError("the block must not start")


# -- devices, links, leftovers ------------------------------------------------------------------------------


def test_force_replaces_no_device_no_pipe_and_no_link_to_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "broken").symlink_to("nothing/here")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "null", "broken", "loop"):
        with pytest.raises(OutputError) as caught, atomic_output(tmp_path / name, force=True):
            raise AssertionError("the block must not start")
        assert caught.value.code == "output-no-file"
    assert (tmp_path / "pipe").is_fifo() and Path("/dev/null").is_char_device()
    assert (tmp_path / "broken").is_symlink() and (tmp_path / "loop").is_symlink()


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("old")
    (tmp_path / "link").symlink_to("other/file")
    with pytest.raises(OutputError), atomic_output(tmp_path / "link"):
        pass
    with atomic_output(tmp_path / "link", force=True) as part:
        part.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "other" / "file").read_text() == "new"


@pytest.mark.parametrize(
    ("kind", "forced", "hint"),
    [("run", False, "--force"), ("files", True, "no folder of a run"), ("pipe", True, "no folder of a run"),
     ("run", True, ""), ("loop", True, "name another")],
)  # fmt: skip
def test_the_folder_of_a_run_is_replaced_through_a_link_and_nothing_else_is(tmp_path, kind, forced, hint):
    there, link = tmp_path / "there", tmp_path / "link"
    link.symlink_to("link" if kind == "loop" else "there")
    if kind == "pipe":
        os.mkfifo(there)
    elif kind != "loop":
        (there / capture.CAPTURES_FOLDER).mkdir(parents=True)
        (there / (capture.MANIFEST_NAME if kind == "run" else "notes")).write_text("{}")
    if not hint:
        assert prepare(Workload(model="gpt"), link, False, forced) == there
        assert link.is_symlink() and os.listdir(there) == [capture.CAPTURES_FOLDER]
        return
    before = os.listdir(tmp_path)
    with pytest.raises(OutputError) as caught:
        prepare(Workload(model="gpt"), link, False, forced)
    assert hint in str(caught.value.hint).lower() and os.listdir(tmp_path) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from xsp_post.base.output import atomic_folder, atomic_output, private_folder
here = Path(sys.argv[1])
with atomic_output(here / "a.sqlite") as file, atomic_folder(here / "tables") as folder:
    Path(f"{file}-journal").write_text("half")
    (folder / "x.csv").write_text("half")
    (private_folder()[0] / "export.sqlite").write_text("private")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_command_clears_away_what_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(output.tempfile, "tempdir", None)
    monkeypatch.setattr(output, "_cleared", set())
    (tmp_path / "temporary").mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert len(os.listdir(tmp_path)) == 4 and len(os.listdir(tmp_path / "temporary")) == 1
    old = tmp_path / ".kept.xsp-abcd1234.old"  # killed between the two steps of replacing a folder
    old.mkdir()
    with atomic_output(tmp_path / "other") as part:
        monkeypatch.setattr(output, "_cleared", set())
        with atomic_output(tmp_path / "third"):  # what is being written is let be
            assert part.exists()
    assert sorted(os.listdir(tmp_path)) == ["kept", "other", "temporary", "third"]
    assert os.listdir(tmp_path / "temporary") == []


def test_a_folder_for_the_time_of_a_command_is_gone_at_its_end():
    folder = private_folder()[0]
    (folder / "export.sqlite").write_text("private")
    output.stops.remove_unfinished()
    assert not folder.exists()


# -- errors of the system -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (OSError(errno.EIO, "x", "a.sqlite"), CaptureError, "capture-unreadable"),
        (PermissionError(errno.EACCES, "x", "a.sqlite"), CaptureError, "capture-unreadable"),
        (OSError(errno.ENOSPC, "x", "a.sqlite"), OutputError, "output-full"),
        (OSError(errno.EFBIG, "x"), OutputError, "output-failed"),
        (MemoryError(), CaptureError, "out-of-memory"),
        (RuntimeError("can't start new thread"), CaptureError, "out-of-memory"),
        (sqlite3.OperationalError("x.so: failed to map segment from shared object"), CaptureError, "out-of-memory"),
        (ValueError("hunter2"), ToolError, "defect-internal"),
    ],
)
def test_any_error_has_a_sentence_and_quotes_nothing(error, kind, code):
    said = in_words(error)
    assert isinstance(said, kind) and said.code == code
    assert "hunter2" not in said.message + said.hint


# -- children and folders -----------------------------------------------------------------------------------

PARENT = """
import os, signal, subprocess
from xsp_post.base.children import end_with_parent
child = subprocess.Popen(["sleep", "60"], preexec_fn=end_with_parent())
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


# a profiler stands between the two, and lives on
PROFILED = """
import os, signal, subprocess, sys
child = "from xsp_post.base.children import end_with; import time; print(1, flush=True); end_with(%d); time.sleep(60)"
words = [sys.executable, "-c", child % os.getpid()]
profiler = "import subprocess, sys; c = subprocess.Popen(sys.argv[1:]); print(c.pid, flush=True); c.wait()"
process = subprocess.Popen([sys.executable, "-c", profiler, *words], stdout=subprocess.PIPE, text=True)
lines = sorted((process.stdout.readline(), process.stdout.readline()), key=int)
print(lines[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a limit of Linux")
@pytest.mark.parametrize("most", [9, 12, 31, 32])
def test_too_few_open_files_are_said_before_an_import_fails(tmp_path, most):
    export = ExportBuilder().process(100).thread(100).gpu().kernel("gemm", launch=(0, 9), run=(20, 90))
    command = f"ulimit -n {most}; exec {sys.executable} -m xsp_post tree {export.write(tmp_path / 'a.sqlite')}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    if most < LEAST_FILES:
        assert done.returncode == 4 and done.stderr.startswith("xsp-post: Too few files may be open at once. [out-of-")
    else:
        assert done.returncode == 0 and "gemm" in done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a request of Linux")
@pytest.mark.parametrize("program", [PARENT, PROFILED])
def test_a_child_ends_with_a_command_that_was_killed(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    state = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(1000):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    raise AssertionError("the child goes on")


def test_a_folder_that_cannot_be_listed_is_a_row_of_a_batch(tmp_path, monkeypatch):
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.sqlite").write_bytes(b"x")
    real = os.scandir

    def scandir(path="."):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "x", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    jobs, _ = discover([tmp_path])
    assert sorted(job.shown for job in jobs) == ["closed", "open/a.sqlite"]


def test_a_store_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch):
    def full(self):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(StoreWriter, "_describe", full)
    with pytest.raises(OutputError), StoreWriter(tmp_path / "a.xsp.sqlite"):
        raise AssertionError("the block must not start")
    assert os.listdir(tmp_path) == []


# -- pandas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["tree", "--json"], ["why", "--json"], ["table", "a08", "--format", "csv"]])
def test_answers_do_not_depend_on_how_pandas_holds_texts(tmp_path, command):
    builder = ExportBuilder().process(100).thread(100).gpu()
    for k in range(40):
        at = k * 100_000
        builder.range(f"layer{k % 4}:Linear#{k // 4}", at, at + 60_000, domain="xsp")
        builder.kernel(f"gemm_{k % 3}", launch=(at + 10_000, at + 14_000), run=(at + 20_000, at + 50_000))
    builder.memcpy(64, launch=(4_100_000, 4_110_000), run=(4_120_000, 4_130_000))
    words = [*command, str(builder.write(tmp_path / "report.sqlite"))]
    plain, as_objects, as_texts = (light("", *words, **one) for one in ({}, {_HELD: "0"}, {_HELD: "1"}))
    assert plain.returncode == 0 and len(plain.stdout) > 500
    assert plain.stdout == as_objects.stdout == as_texts.stdout
