"""What reads a foreign file can do nothing else: each attempt is one that succeeds outside of the seal."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from builders import ExportBuilder

from xsp_post.base import output, sealed
from xsp_post.base.errors import CaptureError

pytestmark = pytest.mark.skipif(not sealed.is_possible(), reason="Landlock and seccomp are of Linux")

ATTEMPTS = {
    "socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()",
    "unix socket": "import socket; socket.socket(socket.AF_UNIX).close()",
    "write elsewhere": "open(elsewhere / 'new', 'w').close()",
    "append to a capture": "open(elsewhere / 'kept', 'a').close()",
    "truncate": "os.truncate(elsewhere / 'kept', 0)",
    "remove": "os.remove(elsewhere / 'kept')",
    "rename into place": "open(private / 'x', 'w').close(); os.rename(private / 'x', elsewhere / 'y')",
    "link": "os.symlink('/etc', private / 'link')",
    "folder": "os.mkdir(elsewhere / 'folder')",
    "mode": "os.chmod(elsewhere / 'kept', 0o777)",
    "times": "os.utime(elsewhere / 'kept', (1, 1))",
    "program": "subprocess.run(['true'], check=True)",
    "program of its own": "(private / 'p').write_text('#!/bin/sh'); os.chmod(private / 'p', 0o755)",
    "program in memory": "os.memfd_create('p')",
    "signal to the parent": "os.kill(os.getppid(), 0)",
    "by another python": "subprocess.run([sys.executable, '-c', 'import socket; socket.socket()'], check=True)",
}
PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path
from xsp_post.base import sealed
elsewhere, private = map(Path, sys.argv[1:3])
if sys.argv[3] == "sealed":
    print(*sealed.seal([private]))
found = {}
for name, attempt in json.loads(sys.argv[4]).items():
    try:
        exec(attempt)
        found[name] = "done"
    except (OSError, subprocess.CalledProcessError) as error:
        found[name] = type(error).__name__
(private / "allowed").write_text("x")
open(os.devnull, "w").write("x")
print(json.dumps(found))
"""


@pytest.mark.guard
@pytest.mark.parametrize("kind", ["open", "sealed"])
def test_a_sealed_process_can_do_nothing_else(tmp_path, kind):
    elsewhere, private = tmp_path / "elsewhere", tmp_path / "private"
    elsewhere.mkdir(), private.mkdir()
    found = {}
    for name, attempt in ATTEMPTS.items() if kind == "open" else [("", "")]:
        (elsewhere / "kept").write_text("kept")
        asked = json.dumps({name: attempt} if kind == "open" else ATTEMPTS)
        words = [sys.executable, "-c", PROGRAM, str(elsewhere), str(private), kind, asked]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        found |= json.loads(lines[-1])
    if kind == "open":
        assert set(found.values()) == {"done"}, "an attempt that fails anyway proves nothing"
        return
    if lines[0] != "True True":
        pytest.skip(f"this kernel has not both: Landlock, seccomp: {lines[0]}")
    assert set(found.values()) <= {"PermissionError", "CalledProcessError"}, found
    assert os.listdir(elsewhere) == ["kept"] and (elsewhere / "kept").read_text() == "kept"
    assert (private / "allowed").exists()


@pytest.mark.guard
def test_the_command_reads_in_a_sealed_child_and_its_outputs_are_put_in_place(tmp_path):
    """A library that is hostile from the first foreign byte on: what it tries is refused, and the command goes on."""
    ExportBuilder().range("step", 0, 10_000).kernel("k", launch=(10, 11), run=(12, 19)).write(tmp_path / "a.sqlite")
    done = command(tmp_path, """
        def hostile(path):
            for name, attempt in attempts.items():
                try:
                    exec(attempt, {"os": os, "elsewhere": Path.cwd()})
                    print("did", name, file=sys.stderr)
                except OSError:
                    pass
            print(os.getppid() == started, file=sys.stderr)
            return real(path)
        real, sources.sniff = sources.sniff, hostile
        """, "ingest", "a.sqlite", "--report", "a.html", "-q")  # fmt: skip
    assert done.returncode == 0 and "did" not in done.stderr and "True" in done.stderr, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["a.html", "a.sqlite", "a.xsp.sqlite"]


@pytest.mark.guard
@pytest.mark.parametrize(
    ("does", "said"),
    [("os.abort()", "ended (SIGABRT)"), ("os.kill(os.getpid(), 9)", "ended (SIGKILL)"),
     ("resource.setrlimit(resource.RLIMIT_CPU, (1, 9))\n    while True: pass", "far more processor time"),
     ("resource.setrlimit(resource.RLIMIT_DATA, (1 << 28, 1 << 28)); bytearray(1 << 30)", "not enough memory"),
     ("raise KeyError('hunter2')", "xsp-post failed (KeyError")],
)  # fmt: skip
def test_however_reading_ends_the_command_says_one_sentence_and_leaves_nothing(tmp_path, does, said):
    (tmp_path / "a.sqlite").write_bytes(b"x")
    program = f"import resource\ndef hostile(path):\n    {does}\nsources.sniff = hostile\n"
    done = command(tmp_path, program, "ingest", "a.sqlite")
    assert done.returncode in (3, 4) and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ["a.sqlite"] and "hunter2" not in done.stderr


def command(folder: Path, before: str, *words: str) -> subprocess.CompletedProcess[str]:
    attempts = {name: ATTEMPTS[name] for name in ("socket", "write elsewhere", "append to a capture", "remove")}
    start = f"import os, sys\nfrom pathlib import Path\nfrom xsp_post.ingest import sources\nattempts = {attempts!r}\n"
    start += f"started = os.getpid()\nsys.argv = ['xsp-post', *{words!r}]\n{textwrap.dedent(before)}\n"
    start += "from xsp_post.cli import main; main()"
    return subprocess.run([sys.executable, "-c", start], cwd=folder, capture_output=True, text=True, check=False)


def test_work_in_a_child_hands_back_what_it_gives_and_a_death(tmp_path):
    with pytest.raises(CaptureError, match=r"a: the process that read it was ended \(SIGKILL\)"):
        sealed.begin(lambda: os.kill(os.getpid(), 9), [Path("a")]).answer()
    with pytest.raises(CaptureError, match="gave no answer"):
        sealed.begin(lambda: {1, 2}, [Path("a")]).answer()
    assert sealed.begin(lambda: [os.getpid(), "x"], [Path("a")]).answer()[0] != os.getpid()
    assert not output.handed and not output.in_child


def sorted_in_a_file():
    with sqlite3.connect(":memory:") as connection:
        connection.execute("PRAGMA cache_size = 10")
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
        rows = connection.execute(f"{numbers} SELECT i FROM n ORDER BY i * 7919 % 100003, hex(i)")
        return len({i for (i,) in rows})


def test_sqlite_sorts_many_rows_in_the_folder_of_the_child():
    """It asks for its folder when it is imported, which is before there is a child."""
    assert sealed.begin(sorted_in_a_file, [Path("a")]).answer() == 100_000


def test_a_temporary_folder_whose_name_is_no_text_or_holds_a_quote(tmp_path, monkeypatch):
    for name in (b"no text \xff", b"it's"):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        monkeypatch.setattr(tempfile, "tempdir", os.fsdecode(folder))
        assert sealed.begin(lambda: "read", [Path("a")]).answer() == "read"
    assert sealed.begin(sorted_in_a_file, [Path("a")]).answer() == 100_000
