"""Signals end a process in time, also while a library keeps the main thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads CPU time from /proc")

STUCK = """
import sqlite3, sys
from pathlib import Path
from xsp_post.base.output import atomic_output
from xsp_post.base.stops import Stops
Stops()
{before}
endless = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
with atomic_output({target!r}) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    sqlite3.connect(":memory:").execute(endless)
"""


def started(tmp_path: Path, *, before: str = "") -> subprocess.Popen[str]:
    program = STUCK.format(target=str(tmp_path / "out.txt"), before=before)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    before_s = cpu_s(process.pid)
    for _ in range(600):  # it uses CPU time when it is inside SQLite
        time.sleep(0.05)
        if cpu_s(process.pid) - before_s > 0.1:
            return process
    raise AssertionError("it does not begin")


def cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_a_process_that_sqlite_keeps(tmp_path, number, word):
    process = started(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)  # 1.5 s on a quiet machine; SQLite alone would never end
    assert process.returncode == 128 + number and stderr == f"xsp-post: {word}\n"
    assert list(tmp_path.iterdir()) == []


def test_where_children_are_ended_a_process_has_more_time(tmp_path):
    process = started(tmp_path, before="from xsp_post.base.stops import give_time; give_time(60)")
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2.5)
    process.kill()
    process.communicate()


def test_an_interrupt_that_a_library_swallows_ends_the_process_all_the_same():
    swallowed = DROPPED.replace("except KeyboardInterrupt:", "except ZeroDivisionError:").replace(
        "del kept", "\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n    except BaseException:\n        pass"
    )
    done = subprocess.run([sys.executable, "-c", swallowed], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "xsp-post: interrupted\n")


HELD = """
import os, signal
from xsp_post.base.stops import Stops, give_time, held
give_time(60)
stops = Stops()
try:
    with held():
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError
except KeyboardInterrupt:
    print("interrupted")
stops = Stops()
stops.finish()
os.kill(os.getpid(), signal.SIGTERM)
print(stops.received)
os._exit(0)
"""


def test_an_interrupt_during_a_held_step_comes_at_its_end_and_none_after_the_command():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"interrupted\n{int(signal.SIGTERM)}\n", done.stderr


DROPPED = """
import os, signal, time
from xsp_post.base.stops import Stops
Stops()
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
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
