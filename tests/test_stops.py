"""Signals end a process in time, also while a library keeps the main thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STUCK = """
import sqlite3, sys
from pathlib import Path
from xsp_post.base.output import atomic_output
from xsp_post.base.stops import Stops
Stops(is_patient={patient})
endless = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
with atomic_output({target!r}) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    sqlite3.connect(":memory:").execute(endless)
"""


def started(tmp_path: Path, *, patient: bool = False) -> subprocess.Popen[str]:
    program = STUCK.format(target=str(tmp_path / "out.txt"), patient=patient)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # until it is inside SQLite
    return process


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_a_process_that_sqlite_keeps(tmp_path, number, word):
    process = started(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)  # 1.5 s on a quiet machine; SQLite alone would never end
    assert process.returncode == 128 + number and stderr == f"xsp-post: {word}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_command_with_children_takes_its_time(tmp_path):
    process = started(tmp_path, patient=True)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    process.kill()
    process.communicate()


DROPPED = """
import os, signal, time
from xsp_post.base.stops import Stops
Stops(is_patient=True)
class Kept:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
kept = Kept()
try:
    del kept
    time.sleep(20)
    print("dropped")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_inside_a_destructor_is_not_lost():
    """Python drops an exception there, and in the callbacks around a fork: `run` once ran on after Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
